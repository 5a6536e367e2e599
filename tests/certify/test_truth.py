"""Problems of known truth: all claims are true, by all ways to solve them, and well-posed ones are solved."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import truth
from families.case import Case
from families.conditions import divergence_problem
from families.exact import linear_program
from families.statements import SPOILS, spoiled
from samples import turns

import bregopt as bo

PAGE = Path(__file__).parents[2] / "docs" / "trust" / "measurements.md"
SEED = 20261122  # of the draws here; the tables of docs/trust/measurements.md have seed 0


def check(verdicts):
    tally = truth.Tally(verdicts)
    assert tally.verdicts
    assert not tally.wrong
    assert not tally.lost


FEW = 4  # problems of each way, which take some seconds together


@pytest.mark.parametrize("route", truth.ROUTES)
def test_claims_are_true(route):
    check(truth.judged(SEED, 0, [route], 2 if route == "lowrank" else FEW)[1])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("route", truth.ROUTES)
def test_claims_are_true_of_many(route, number):
    check(truth.judged(SEED, number, [route])[1])


# --- Spoiled answers --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "route"), turns(SPOILS, ["path", "bregman"]))
@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_a_spoiled_answer_is_not_called_better_than_it_is(route, kind):
    X = bo.PSD(2)
    objective = bo.trace(X) if route == "path" else bo.frobenius_div(X, np.array([[1.0, 2], [2, 1]]))
    problem = bo.Problem(bo.Minimize(objective), [bo.diag(X) == 1])
    case = Case("pair", kind, lambda: problem, 2.0, 4.0)
    sol = problem.solve(solver=spoiled(route, kind, SEED), tol=1e-6)
    proof = sol.verify(resolve=False)
    verdict = truth.judge(
        *(case, 1e-6, sol.status, sol.value, sol.dual_value, sol.error),
        interval=(proof.lower, proof.upper),
        spoiled=True,
    )
    assert verdict.true, verdict


# --- The judge --------------------------------------------------------------------------------------

RIGHT = {"status": "optimal", "value": 2.0 + 1e-7, "bound": 2.0 - 1e-7, "error": 3e-7, "interval": (1.9, 2.1)}


def verdict(family="pair", value=2.0, **changes):
    said = RIGHT | changes
    positional = [said.pop(name) for name in ("status", "value", "bound", "error")]
    return truth.judge(Case(family, "", lambda: None, value), 1e-6, *positional, **said)


def test_the_judge_finds_nothing_wrong_with_the_truth():
    assert verdict().true
    assert verdict(bound=2.0 + 2e-7, maximize=True).true
    assert verdict(value=np.inf, status="infeasible", interval=None).true


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("false_word", {"value": 2.0 + 3e-6, "error": 1e-5}),
        ("false_word", {"status": "infeasible"}),
        ("false_word", {"status": "unbounded"}),
        ("error", {"error": 0.9e-7}),
        ("bound", {"bound": 2.0 + 1e-6, "status": "optimal_inaccurate"}),
        ("interval", {"interval": (1.9, 2.0 - 1e-9)}),
        ("interval", {"interval": (2.0 + 1e-9, 2.1)}),
        ("accuracy", {"farther": 1e-9}),
        ("order", {"bound": 2.0 + 3e-7}),
        ("gap", {"bound": 2.0 - 3e-6}),
    ],
)
def test_the_judge_sees_a_wrong_claim(claim, changes):
    assert claim in verdict(**changes).wrong


def test_the_judge_sees_an_optimum_where_there_is_none():
    case = Case("none", "", lambda: None, np.inf)
    assert truth.judge(case, 1e-6, "optimal", 2.0, 2.0, 0.0).wrong == ["false_word"]
    assert truth.judge(case, 1e-6, "unbounded", 2.0, 2.0, 0.0).wrong == ["false_word"]


# --- Exact truths -----------------------------------------------------------------------------------


def test_linear_programs_are_exact():
    rng = np.random.default_rng(SEED)
    statuses = {0: 0, 2: 0, 3: 0}  # of linprog: optimal, infeasible, unbounded
    for _ in range(60):
        m, n = int(rng.integers(1, 4)), int(rng.integers(2, 6))
        A, b, c = (rng.integers(-2, 3, size) for size in ((m, n), m, n))
        value, x, y = linear_program(*(fractions(part) for part in (c, A, b)))
        theirs = scipy.optimize.linprog(c, A_eq=A, b_eq=b, method="highs")
        statuses[theirs.status] += 1
        assert {0: abs(value) < np.inf, 2: value == np.inf, 3: value == -np.inf}[theirs.status]
        if theirs.status == 0:
            assert abs(float(value) - theirs.fun) < 1e-9
            assert (A @ x == b).all()
            assert min(x) >= 0
            assert (c - A.T @ y >= 0).all()
            assert b @ y == c @ x == value
    assert min(statuses.values()) >= 5


def fractions(array):
    return [fractions(row) for row in array] if array.ndim > 1 else [Fraction(int(x)) for x in array]


def test_a_truth_is_that_of_the_stored_data():
    # D(X, X0) = e log 2 - 1 + 2^-e where the least eigenvalue is raised from 2^-e to 1.
    H = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    (case,) = (
        case
        for case in truth.drawn(SEED, 0)
        if case.family == "divergence" and case.name.startswith("von_neumann values")
    )
    proof = case.make().solve(tol=1e-10).verify()
    assert proof.lower <= case.value <= proof.upper
    X0 = H @ np.diag([1, 1, 0.5, 2.0**-20]) @ H.T / 4
    problem = divergence_problem("von_neumann", X0, "values", [np.outer(H[3], H[3])], [Fraction(4)])
    assert problem.solve(tol=1e-9).value == pytest.approx(20 * np.log(2) - 1 + 2.0**-20, rel=1e-8)


# --- The page ---------------------------------------------------------------------------------------


def test_the_page_shows_the_tables_of_the_test_bed():
    _, *tables = PAGE.read_text().split("<!-- made by: python tests/library/truth.py --jobs 2 -->\n\n")
    assert len(tables) == 3
    for title, part in zip(("by", "tol", "family"), tables, strict=True):
        heading, _, *lines = part.split("\n\n")[0].splitlines()
        assert heading == f"| {title} {truth.HEADING}"
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        assert not any(int(cell) for row in cells for cell in row[5 : 5 + len(truth.CLAIMS)])
        if title == "by":
            assert [row[0] for row in cells] == list(truth.ROUTES)
