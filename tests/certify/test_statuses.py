"""What an answer is called: one rule, by its certificate, for every route and every ready-made problem."""

import ast
import math
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from families.no_interior import ill_posed_cases
from samples import first

import bregopt as bo
from bregopt.certify import Certificate, PrimalDualPoint, Status, bracket, certify
from bregopt.program import ENDED, StopReason

PACKAGE = Path(bo.__file__).parent
RULE = PACKAGE / "certify" / "certificate.py"
STOPS = [stop for stop in StopReason if stop not in (StopReason.INFEASIBLE, StopReason.UNBOUNDED)]


def claims(source):
    """Yield the lines that give the status "optimal" to something, not those that ask for it."""
    if not re.search(r"\bOPTIMAL\b|[\"']optimal[\"']", source):  # most modules do not have the word
        return
    tree = ast.parse(source)
    parent = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        named = (
            isinstance(node, ast.Attribute) and node.attr == "OPTIMAL" and ast.unparse(node.value) == "Status"
        )
        if not named and not (isinstance(node, ast.Constant) and node.value == "optimal"):
            continue
        at, above = node, parent[node]
        while isinstance(above, ast.Tuple | ast.Set | ast.Subscript):
            at, above = above, parent[above]
        asked = isinstance(above, ast.Compare) or (isinstance(above, ast.Dict) and at in above.keys)
        listed = isinstance(above, ast.Assign) and isinstance(at, ast.Tuple)
        if not asked and not listed:
            yield node.lineno


def test_no_other_module_says_optimal():
    found = {
        str(path.relative_to(PACKAGE)): list(claims(path.read_text(encoding="utf-8")))
        for path in PACKAGE.rglob("*.py")
        if path != RULE
    }
    masters = {"routes/matrix_generation/master.py"}  # the state of a linear program, no status
    assert {name for name, lines in found.items() if lines} == masters
    assert list(claims(RULE.read_text(encoding="utf-8")))  # the search finds the rule itself


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("gap", [0.0, 1e-7, 1e-3, 0.5, math.inf, math.nan])
@pytest.mark.parametrize("residual", [0.0, 1e-4])
def test_a_status_is_what_the_certificate_proves(stop, gap, residual):
    status = Certificate(1.0, 1.0, gap, residual, 0.0, gap).status(1e-6, stop)
    worst = max(gap, residual) if gap == gap else math.inf
    if worst <= 1e-6:
        assert status is Status.OPTIMAL
    elif stop in ENDED or stop is StopReason.MAX_ITER:
        assert status is Status.USER_LIMIT
    elif stop is StopReason.LOCAL_OPTIMUM:
        assert status is Status.LOCALLY_OPTIMAL
    else:
        assert status is (Status.OPTIMAL_INACCURATE if worst <= 1e-2 else Status.INACCURATE)
    assert status.has_point


def test_a_gap_is_relative_to_the_larger_of_value_and_bound():
    assert bracket(2.0, 1.9).gap == pytest.approx(0.05)
    assert bracket(-1.9, -2.0).gap == pytest.approx(0.05)
    assert bracket(2.0, 1.9, loss=0.1).gap == pytest.approx(0.1)
    assert bracket(1e-9, -1e-9, terms=1.0).gap == pytest.approx(2e-7)  # a difference of terms of size one
    assert bracket(0.0, 0.0).gap == 0
    assert bracket(1.0, -math.inf).gap == math.inf


def nearly_feasible(rng, n, distance):
    """Return a matrix at about a distance from the correlation matrices."""
    G = rng.normal(size=(n, n))
    C = G @ G.T + np.eye(n)
    size = np.sqrt(C.diagonal())
    noise = rng.normal(size=(n, n))
    return C / np.outer(size, size) + distance * (noise + noise.T)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("distance", [1e-1, 1e-3, 1e-5])
def test_small_distances_are_as_accurate_as_large_ones(seed, distance):
    """Their values are far below the scale of the data, which the gap was once relative to."""
    A = nearly_feasible(np.random.default_rng(seed), 6, distance)
    X = bo.PSD(6)
    rows = [bo.diag(X) == 1, X[0, 1] <= 0.1]
    sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), rows).solve(tol=1e-6)
    assert sol.status == "optimal"
    assert abs(sol.value - sol.dual_value) <= 1.01e-6 * max(abs(sol.value), abs(sol.dual_value))


@pytest.mark.parametrize("distance", [1e-1, 1e-3, 1e-5])
def test_the_gap_of_a_small_distance_is_relative_to_it(distance):
    A = nearly_feasible(np.random.default_rng(7), 6, distance)
    X = bo.PSD(6)
    prob = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1])
    sol = prob.solve(tol=1e-10)
    worse = certify(PrimalDualPoint(prob.program(), (np.asarray(sol.X),), np.zeros(0), -0.99 * sol.duals[0]))
    assert worse.error > 1e-5 * sol.value
    assert worse.gap == pytest.approx(worse.error / max(worse.primal, worse.dual))


def small_optimum(rng, n, factor):
    """Return a linear problem whose optimum is a small part of the scale of its data, and the optimum.

    ``X`` and ``Z`` are complementary; a share of ``I`` in the cost leaves an optimum of size `factor`.
    """
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    r = n // 2
    X = (Q[:, :r] * rng.uniform(1, 2, r)) @ Q[:, :r].T
    Z = (Q[:, r:] * rng.uniform(1, 2, n - r)) @ Q[:, r:].T
    A = rng.normal(size=(n, n, n))
    A = A + A.transpose(0, 2, 1)
    b = np.einsum("kij,ij->k", A, X)
    y = rng.normal(size=n)
    y += (factor - y @ b) / (b @ b) * b
    return np.einsum("k,kij->ij", y, A) + Z, A, b


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [1.0, 1e-2, 1e-4])
def test_small_optima_are_as_accurate_as_large_ones(seed, factor):
    C, A, b = small_optimum(np.random.default_rng(seed), 6, factor)
    X = bo.PSD(6)
    prob = bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.inner(A, X) == b])
    sol = prob.solve(solver="path", tol=1e-6)
    assert sol.status == "optimal"
    root = np.sqrt(sol.X.diagonal())
    terms = np.abs(sol.duals[0]) @ np.einsum("kij,i,j->k", np.abs(A), root, root)
    size = max(abs(sol.value), abs(sol.dual_value), 1e-2 * terms)
    assert abs(sol.value - sol.dual_value) <= 1.01e-6 * size
    assert abs(sol.value - factor) <= 2e-6 * max(factor, 1e-2 * terms)
    assert np.abs(sol.dimacs[:5]).max() <= 1e-6
    program, raw = prob.program(), sol._raw
    y = raw.duals - 1e-3 * factor * b / (b @ b)  # a bound that is lower by a thousandth of the optimum
    worse = certify(PrimalDualPoint(program, raw.X, raw.u, y))
    assert worse.gap >= 0.9e-3 * factor / size


def test_the_card_says_that_terms_cancel():
    X = bo.PSD(2)
    game = bo.Problem(bo.Maximize(X[0, 1]), [bo.trace(X) == 1, X[0, 1] <= 0]).solve()
    assert game.status == "optimal"
    assert "of the terms that cancel" in repr(game)
    plain = bo.Problem(bo.Maximize(X[0, 1]), [bo.trace(X) == 1]).solve()
    assert plain.status == "optimal"
    assert "cancel" not in repr(plain)


def test_a_constant_of_the_objective_does_not_count_as_its_size():
    A = nearly_feasible(np.random.default_rng(1), 5, 1e-3)
    X = bo.PSD(5)
    rows = [bo.diag(X) == 1]
    alone = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), rows).solve()
    shifted = bo.Problem(bo.Minimize(bo.frobenius_div(X, A) + 1e3), rows).solve()
    assert shifted.status == "optimal"
    assert shifted.value - 1e3 == pytest.approx(alone.value, rel=1e-5)


def test_a_local_optimum_is_no_failure():
    A = nearly_feasible(np.random.default_rng(3), 12, 0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", bo.ConvergenceWarning)
        found = [bo.factor_correlation(A, 2), bo.nearest_correlation(A, max_rank=2)]
    for sol in found:
        assert sol.status == "locally_optimal"
        assert sol.dual_value < sol.value
        assert sol.gap > 1e-6


@pytest.mark.parametrize("every", first(1, [3, 1]))
def test_a_stall_is_no_limit_of_the_user(every):
    found = []
    for case in list(ill_posed_cases(np.random.default_rng(0), 1))[::every]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            try:
                found.append(case.make().solve(solver="path"))
            except bo.InfeasibleRowError:
                continue
    statuses = [sol.status for sol in found if sol.X is not None and sol.iterations < 100]
    assert "user_limit" not in statuses
    assert statuses.count("optimal") < len(statuses)  # some stall


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_a_small_entry_of_the_diagonal_is_not_zero(size):
    """It is below the tolerance of the linear program that looks for zeros on the diagonal."""
    X = bo.PSD(3)
    rows = [bo.trace(X) == size, X[0, 0] == 1e-9 * size, X[1, 1] == 0.3 * size]
    sol = bo.Problem(bo.Minimize(X[1, 2]), rows).solve()
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(-np.sqrt(0.3 * 0.7) * size, rel=1e-6)
