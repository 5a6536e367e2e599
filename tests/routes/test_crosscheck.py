"""cross_check: agreement, disagreement, and an unchanged problem."""

import sys
from dataclasses import replace

import cvxpy as cp
import numpy as np
import peers
import problem_library
import pytest
import scipy.sparse as sp
from cvxpy_problems import CASES
from samples import first

import bregopt as bo
from bregopt.cvxpy.cone_check import ConeProblem
from bregopt.cvxpy.conic_solver import ConicProblem
from bregopt.program import Answer, StopReason
from bregopt.routes import registry, routing
from bregopt.routes.base import Capabilities, Settings


def checked(*arguments, **options):
    """Return a cross-check; skip the test if a foreign solver failed, as there is nothing to compare with."""
    check = bo.cross_check(*arguments, **options)
    for row in check.rows:
        foreign = row.solver == "cvxpy" or row.solver.isupper()
        if foreign and row.status not in ("optimal", "optimal_inaccurate", "infeasible", "unbounded"):
            peers.skip(f"{row.solver} ends {row.status}: {row.stop_reason}")
    return check


def statuses(check):
    return {row.status.removesuffix("_inaccurate") for row in check.rows}


class Liar:
    """A route that returns its start as converged."""

    name = "liar"
    summary = "wrong"
    citation = "none"
    capabilities = Capabilities(objectives=frozenset({"logdet", "von_neumann", "frobenius", "linear"}))
    Settings = Settings

    def refusal(self, program, settings):
        return None

    def choice(self, program, settings):
        return ""

    def solve(self, program, settings, start, progress):
        X = [np.array(block.nearness.X0) for block in program.blocks]
        return Answer(X, np.zeros(program.k), np.zeros(program.m), StopReason.CONVERGED, 1)


class Pessimist(Liar):
    """A route that calls everything infeasible."""

    name = "pessimist"

    def solve(self, program, settings, start, progress):
        X = [np.eye(block.n) for block in program.blocks]
        return Answer(X, np.zeros(program.k), np.ones(program.m), StopReason.INFEASIBLE, 1)


class Broken(Liar):
    """A route that fails."""

    name = "broken"

    def solve(self, program, settings, start, progress):
        raise bo.SolverError("the machine stopped")


@pytest.fixture
def plug_ins():
    for cls in (Liar, Pessimist, Broken):
        bo.register_solver(cls)
    yield
    for cls in (Liar, Pessimist, Broken):
        del registry._registered[cls.name]


@pytest.fixture
def problem():
    X = bo.PSD(3, name="K")
    X0 = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 1.5]])
    return bo.Problem(bo.Minimize(bo.logdet_div(X, X0)), [bo.diag(X) == 1.0, X[0, 1] >= 0.4])


@pytest.mark.parametrize(
    "name",
    [
        "logdet_rank_one_equality",
        "logdet_maximized",
        "logdet_low_rank",
        "von_neumann_trace_one",
        "von_neumann_soft",
        "frobenius_higham",
        "contradiction_logdet",
        "beyond_the_cone_von_neumann",
        "unbounded_matrix",
    ],
)
def test_routes_agree(name):
    case = problem_library.CASES[name]()
    solvers = ("cvxpy", "bregman") if case.status != "unbounded" else ("cvxpy",)
    check = checked(case.problem, solvers=solvers)
    assert all(row.agrees for row in check.rows), f"\n{check}"
    assert check.ok == (len(solvers) > 1)
    assert [row.solver for row in check.rows] == list(solvers)
    assert statuses(check) == {case.status}


def test_every_route_that_takes_the_problem_is_asked(problem):
    check = checked(problem)
    takes = [r.solver for r in routing.routes(problem.program()) if r.refusal is None]
    assert [row.solver for row in check.rows] == takes
    assert check.ok, f"\n{check}"


@pytest.mark.parametrize("solvers", [None, ("bregman", "cvxpy")])
def test_an_option_goes_to_the_routes_that_know_it(problem, solvers, monkeypatch):
    given, solve = {}, bo.Problem.solve

    def recorded(self, solver, **options):
        given[solver] = options
        return solve(self, solver, **options)

    monkeypatch.setattr(bo.Problem, "solve", recorded)
    check = checked(problem, solvers, method="cyclic", backend="SCS", tol=1e-5)
    assert check.ok, f"\n{check}"
    assert given == {
        "bregman": {"method": "cyclic", "tol": 1e-5},
        "cvxpy": {"backend": "SCS", "tol": 1e-5},
        **({} if solvers else {"path": {"tol": 1e-5}}),
    }


def test_an_option_that_no_asked_route_knows_is_refused(problem):
    with pytest.raises(TypeError, match=r"no solver that is asked \(cvxpy\) has an option 'method'"):
        bo.cross_check(problem, solvers=("cvxpy",), method="cyclic")
    with pytest.raises(TypeError, match=r"\(bregman, path, cvxpy\) has an option 'smoothing'"):
        bo.cross_check(problem, smoothing=0.5)  # an option of psdboost, which does not take the problem
    assert problem.solution is None


def test_rows_hold_the_numbers_of_the_solutions(problem):
    check = checked(problem, solvers=("bregman", "cvxpy"), tol=1e-7)
    first, second = check.rows
    sol = peers.reference(problem, within=1e-2, tol=1e-7)
    assert (second.value, second.gap, second.error) == (sol.value, sol.gap, sol.error)
    X = problem.solve(solver="bregman", tol=1e-7).X
    assert second.distance == pytest.approx(np.linalg.norm(sol.X - X) / np.linalg.norm(X))
    assert first.distance == 0.0
    assert abs(first.value - second.value) <= first.error + second.error


def test_answer_of_the_first_stays(problem):
    checked(problem, solvers=("bregman", "cvxpy"))
    assert problem.solution.solver == "bregman"
    np.testing.assert_array_equal(problem.matrices[0].value, problem.solution.X)


@pytest.mark.parametrize("wrong", ["liar", "pessimist", "broken"])
@pytest.mark.parametrize("first", [True, False])
def test_wrong_route_is_found_out(problem, plug_ins, wrong, first):
    solvers = (wrong, "cvxpy") if first else ("cvxpy", wrong)
    check = bo.cross_check(problem, solvers=solvers)
    assert not check.ok
    row = next(row for row in check.rows if row.solver == wrong)
    assert not row.agrees or first
    assert row.status != "optimal"
    assert "not ok" in str(check)
    if wrong == "broken":
        assert row.stop_reason == "the machine stopped"


def test_inaccurate_answer_within_its_own_error_is_no_contradiction(problem):
    check = checked(problem, solvers=("bregman", "cvxpy"), tol=1e-15)
    assert check.ok, f"\n{check}"
    assert check.rows[1].status == "optimal_inaccurate"


@pytest.mark.parametrize(("apart", "ok"), [(3e-15, True), (1e-9, False)])
def test_round_off_of_a_value_near_zero_is_no_contradiction(apart, ok, monkeypatch):
    """The distance of X0 from itself is the difference of terms of order one."""
    solve = bo.Problem.solve

    def rounded(self, solver, **options):
        value = apart if solver == "cvxpy" else 0.0
        return replace(solve(self, solver=solver, **options), value=value, dual_value=value, error=0.0)

    monkeypatch.setattr(bo.Problem, "solve", rounded)
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.diag([1.0, 2.0]))))
    assert bo.cross_check(problem, solvers=("bregman", "cvxpy")).ok == ok


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        ({}, "agree", "2 routes agree"),
        ({"error": np.inf}, "undecided", "cvxpy proves no bound: its error is infinite"),
        ({"error": np.nan}, "undecided", "cvxpy proves no bound"),
        ({"status": "user_limit"}, "undecided", "cvxpy ends user_limit"),
        ({"status": "infeasible_inaccurate"}, "undecided", "cvxpy ends infeasible_inaccurate"),
        ({"status": "infeasible"}, "disagree", "cvxpy says infeasible, and bregman optimal"),
        ({"value": 7.0, "error": 1e-9}, "disagree", "cvxpy has 7 with error 1.0e-09, and bregman"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_three_verdicts(problem, change, verdict, reason, first, monkeypatch):
    """A right answer without a bound is no disagreement, in whatever order the routes are asked."""
    solve = bo.Problem.solve

    def changed(self, solver, **options):
        found = solve(self, solver="bregman", **options)
        return replace(found, **change) if solver == "cvxpy" else found

    monkeypatch.setattr(bo.Problem, "solve", changed)
    check = bo.cross_check(problem, solvers=("bregman", "cvxpy") if first else ("cvxpy", "bregman"))
    assert check.verdict == verdict
    assert check.ok == (verdict == "agree")
    if first or verdict != "disagree":
        assert check.reason.startswith(reason)
        assert check.reason in str(check)
    assert "undecided" in str(check) or verdict != "undecided"


@pytest.mark.parametrize("sense", [bo.Minimize, bo.Maximize])
def test_proven_intervals_meet_in_one_that_holds_the_optimum(sense):
    X = bo.PSD(3)
    problem = bo.Problem(sense(X[0, 1] + X[1, 2] + X[0, 2]), [bo.diag(X) == 1])
    check = bo.cross_check(problem, ["path", "lagrangian"], proven=True)
    lower, upper = check.proven
    assert check.ok
    assert lower <= (-1.5 if sense is bo.Minimize else 3) <= upper <= lower + 1e-6
    assert lower == max(row.proven[0] for row in check.rows)
    assert upper == min(row.proven[1] for row in check.rows)
    assert f"proven to be in [{lower!r}, {upper!r}]" in str(check)


def test_proven_intervals_that_exclude_each_other_disagree():
    X = bo.PSD(3)
    check = bo.cross_check(bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 1]), ["path", "lagrangian"])
    assert check.ok
    assert check.proven is None
    apart = [replace(row, proven=(1.9 + k, 2.1 + k)) for k, row in enumerate(check.rows)]
    other = replace(check, rows=tuple(apart))
    assert other.verdict == "disagree"
    assert "exclude each other: 2.9 is above 2.1" in other.reason


def test_low_rank_distance_needs_no_square_array():
    rng = np.random.default_rng(0)
    n = 20_000  # n x n would be 3.2 GB
    X = bo.PSD(n)
    problem = bo.Problem(
        bo.Minimize(bo.logdet_div(X, bo.LowRank(rng.normal(size=(n, 3))))),
        [bo.sq_distance(X, [0, 1], [2, 3]) <= [0.5, 0.8]],
    )
    check = checked(problem, solvers=("bregman", "cvxpy"))
    assert check.ok
    assert 0 < check.rows[1].distance < 1e-3
    assert isinstance(problem.solution.X, bo.LowRank)


def test_several_matrices_and_variables():
    X, Y, u = bo.PSD(2, name="X"), bo.PSD(3, name="Y"), bo.Variable(nonneg=True, name="u")
    problem = bo.Problem(
        bo.Minimize(bo.logdet_div(X, np.eye(2)) + bo.frobenius_div(Y, np.eye(3)) + 5 * u),
        [bo.trace(X) + bo.trace(Y) + u >= 8.0],
    )
    one = bo.cross_check(problem, solvers=("cvxpy",), backend="SCS")
    assert one.rows[0].distance == 0.0
    assert not one.ok
    assert "one route alone" in str(one)


def test_table_is_aligned(problem):
    lines = str(checked(problem, solvers=("bregman", "cvxpy"))).splitlines()
    assert len({len(line) for line in lines[:-1]}) == 1
    assert (
        " ".join(lines[0].split()) == "solver status value bound gap residual error distance seconds agrees"
    )
    assert lines[-1].startswith("ok: 2 routes agree")


def test_frame(problem):
    pandas = pytest.importorskip("pandas")
    frame = checked(problem, solvers=("bregman", "cvxpy")).to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["solver"]) == ["bregman", "cvxpy"]
    assert (frame["verdict"] == "agree").all()


@pytest.mark.parametrize(
    ("solvers", "error", "words"),
    [
        ("cvxpy", TypeError, "string 'cvxpy'; expected a tuple"),
        ((), ValueError, "solvers is empty"),
        (3, TypeError, "solvers is 3; expected a tuple of names"),
        (np.array(3.0), TypeError, "solvers is array"),
        (sp.bsr_array(np.eye(2)), TypeError, "solvers is <"),
        (sp.coo_array((10**6, 3)), TypeError, "solvers is <"),
        ([["cvxpy"]], TypeError, r"solvers has \['cvxpy'\]; expected names"),
        (("cvxpy", "bergman"), ValueError, "did you mean 'bregman'"),
    ],
)
def test_bad_solvers_are_refused(problem, solvers, error, words):
    with pytest.raises(error, match=words):
        bo.cross_check(problem, solvers=solvers)
    assert problem.solution is None


def test_the_table_is_a_frame_where_pandas_is(problem, monkeypatch):
    check = checked(problem, solvers=("bregman", "cvxpy"))
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert check.table == str(check)
    monkeypatch.undo()
    pandas = pytest.importorskip("pandas")
    assert isinstance(check.table, pandas.DataFrame)
    assert list(check.table["solver"]) == ["bregman", "cvxpy"]


def test_solvers_of_cvxpy_are_certified_like_routes(problem):
    check = checked(problem, solvers=("bregman", "CLARABEL", "SCS"))
    assert check.ok, f"\n{check}"
    assert [row.solver for row in check.rows] == ["bregman", "CLARABEL", "SCS"]
    assert "CLARABEL says" in check.rows[1].stop_reason or check.rows[1].status == "optimal"
    assert all(np.isfinite(row.error) for row in check.rows)
    with pytest.raises(ValueError, match="unknown backend 'CLARABELL'; did you mean 'CLARABEL'"):
        bo.cross_check(problem, solvers=("bregman", "CLARABELL"))


@pytest.mark.parametrize("name", ["max_cut", "lovasz_theta_lmi", "nearest_correlation_frobenius"])
def test_problems_of_cvxpy_are_taken(name):
    problem = CASES[name][0]()
    check = checked(problem, tol=1e-7)
    assert len(check.rows) >= 2
    assert check.ok, f"\n{check}"
    assert problem.value is None  # the problem is unchanged
    peer = peers.ask(problem)
    for row in check.rows:
        peer.agrees(row.value, row.error)


@pytest.mark.parametrize("name", ["infeasible_direct", "unbounded_lmi"])
def test_problems_of_cvxpy_without_an_answer(name):
    check = checked(CASES[name][0](), solvers=("path", "CLARABEL"))
    assert check.ok, f"\n{check}"
    assert statuses(check) == {CASES[name][1]}


def test_conic_problems_of_cvxpy_say_what_they_say_there():
    for name in ("max_cut", "max_cut_dual", "hermitian", "infeasible_direct", "unbounded_direct"):
        problem = CASES[name][0]()
        found = ConicProblem(problem).solve("path")
        assert found.status == CASES[name][1]
        if found.status == "optimal":
            peer = peers.ask(problem)
            peer.agrees(found.value, found.error)
            peer.agrees(found.dual_value, found.error)
        else:
            sign = 1 if isinstance(problem.objective, cp.Minimize) else -1
            assert found.value == sign * {"infeasible": np.inf, "unbounded": -np.inf}[found.status]


# --- Cones that no route reads ------------------------------------------------------------------------


def other_cones():
    """Return problems with second-order and exponential cones, and their statuses."""
    x = cp.Variable(3)
    return {
        "norm": (cp.Minimize(cp.norm(x - 1)), [cp.sum(x) == 0], "optimal"),
        "logarithm": (cp.Maximize(cp.sum(cp.log(x)) - cp.sum_squares(x)), [cp.sum(x) <= 2], "optimal"),
        "quadratic": (cp.Minimize(cp.sum_squares(x - 1) + 3), [x >= 2], "optimal"),
        "entropy": (cp.Maximize(cp.sum(cp.entr(x)) + x[0]), [cp.norm(x) <= 1, cp.sum(x) == 1], "optimal"),
        "no point": (cp.Minimize(cp.norm(x)), [cp.norm(x - 1) <= 0.1, cp.sum(x) == 0], "infeasible"),
        "no logarithm": (cp.Minimize(x[0]), [cp.log(x[1]) >= 3, x[1] <= 1, x[0] >= 0], "infeasible"),
        "no end": (cp.Minimize(x[0]), [cp.norm(x[1:]) <= x[2], cp.sum(x) == 0], "unbounded"),
    }


@pytest.mark.parametrize("name", other_cones())
def test_cones_that_no_route_reads_are_certified(name):
    objective, constraints, status = other_cones()[name]
    problem = cp.Problem(objective, constraints)
    check = checked(problem, tol=1e-6)
    assert check.ok, f"\n{check}"
    assert [row.solver for row in check.rows] == ["CLARABEL", "SCS"]
    assert statuses(check) == {status}
    assert problem.value is None
    if status == "optimal":
        peer = peers.ask(problem)
        for row in check.rows:
            peer.agrees(row.value, row.error)
            assert np.isfinite(row.error)
    else:
        assert check.rows[0].value == {"infeasible": np.inf, "unbounded": -np.inf}[status]


def test_second_order_cones_beside_matrices_are_read_by_a_route():
    X = cp.Variable((3, 3), PSD=True)
    problem = cp.Problem(cp.Minimize(cp.trace(X) + cp.norm(X[0])), [cp.norm(X[0] - 1) <= 1, X[1, 1] == 1])
    check = checked(problem, tol=1e-6)
    assert check.ok, f"\n{check}"
    assert [row.solver for row in check.rows] == ["path", "lagrangian", "cvxpy"]
    peer = peers.ask(problem)
    for row in check.rows:
        peer.agrees(row.value, row.error)


@pytest.mark.parametrize("name", ["norm", "entropy"])
def test_a_wrong_answer_in_other_cones_is_seen(name, monkeypatch):
    objective, constraints, _ = other_cones()[name]
    unpack = cp.Problem.unpack_results

    def wrong(self, found, chain, inverse):
        unpack(self, found, chain, inverse)
        if chain.solver.name() == "SCS":
            for v in self.variables():
                v.value = 0.9 * v.value + 0.1

    problem = cp.Problem(objective, constraints)
    monkeypatch.setattr(cp.Problem, "unpack_results", wrong)
    check = bo.cross_check(problem)
    assert check.rows[0].status.startswith("optimal")
    assert check.rows[1].status != "optimal"
    assert check.rows[1].error > 1e-2


def test_what_is_no_cone_of_ours_is_refused():
    x, k = cp.Variable(3), cp.Variable(2, integer=True)
    powers = cp.Problem(cp.Minimize(cp.sum(x)), [cp.PowCone3D(x[0], x[1], x[2], 0.4), x[2] >= 1])
    with pytest.raises(bo.UnsupportedProblemError, match="power cones; nor can it be read"):
        bo.cross_check(powers)
    with pytest.raises(bo.UnsupportedProblemError, match="integer"):
        bo.cross_check(cp.Problem(cp.Minimize(cp.sum(k)), [k >= 0.5]))
    with pytest.raises(bo.UnsupportedProblemError, match="'path' does not take this problem"):
        bo.cross_check(cp.Problem(*other_cones()["norm"][:2]), solvers=("path", "SCS"))


@pytest.mark.parametrize("name", first((len(CASES) + 1) // 2, sorted(CASES)[::2] + sorted(CASES)[1::2]))
def test_conic_certificates_hold_what_clarabel_says(name):
    build, status = CASES[name][:2]
    problem = build()
    found = ConeProblem(problem).solve("cvxpy", tol=1e-6)
    if found.status in ("user_limit", "infeasible_inaccurate", "unbounded_inaccurate"):
        pytest.skip(f"Clarabel ends {found.status}")
    assert found.status.split("_")[0] == status.split("_")[0]
    if status == "optimal":
        peer = peers.ask(problem)
        peer.agrees(found.value, found.error)
        peer.agrees(found.dual_value, found.error)


def test_bad_problem_and_option_are_refused(problem):
    with pytest.raises(TypeError, match=r"expected a bo\.Problem or a cvxpy\.Problem"):
        bo.cross_check(problem.program())
    with pytest.raises(TypeError, match="tolerance"):
        bo.cross_check(problem, solvers=("cvxpy",), tolerance=1e-3)
    with pytest.raises(TypeError, match="progress is array"):
        bo.cross_check(problem, progress=np.eye(2))


def test_the_plot_shows_each_value_with_its_error_and_the_seconds():
    pytest.importorskip("matplotlib").use("agg")
    X = bo.PSD(3)
    A = np.array([[1.0, 0.9, -0.4], [0.9, 1.0, 0.3], [-0.4, 0.3, 1.0]])
    check = checked(bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1]), ["bregman", "cvxpy"])
    intervals, seconds = check.plot()
    drawn = intervals.containers[0]
    apart = [row.value - check.rows[0].value for row in check.rows]
    np.testing.assert_allclose(drawn.lines[0].get_xdata(), apart)
    (segments,) = drawn.lines[2]
    lengths = [np.ptp(segment[:, 0]) / 2 for segment in segments.get_segments()]
    np.testing.assert_allclose(lengths, [row.error for row in check.rows], rtol=1e-6)
    assert [bar.get_width() for bar in seconds.patches] == [row.seconds for row in check.rows]
    with pytest.raises(ValueError, match="expected 2"):
        check.plot(intervals)
