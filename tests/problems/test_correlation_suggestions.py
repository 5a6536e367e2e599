"""Infeasible requests: what contradicts, and the nearest one that works; against CVXPY and closed forms."""

import re
import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

import bregopt as bo
from bregopt.problems.correlation.infeasibility import impossible_triple


def least_total(fixed, lower, upper, floor):
    """The least sum of changes, by CVXPY: `fixed` is a dict of entries, the bounds are arrays."""
    n = len(lower)
    X = cp.Variable((n, n), symmetric=True)
    i, j = np.triu_indices(n, 1)
    free = np.array([pair not in fixed for pair in zip(i.tolist(), j.tolist(), strict=True)])
    cost = sum((cp.abs(X[pair] - value) for pair, value in fixed.items()), cp.Constant(0))
    if free.any():
        x = X[i[free], j[free]]
        lo, hi = lower[i[free], j[free]], upper[i[free], j[free]]
        cost += cp.sum(cp.pos(lo - x)) + cp.sum(cp.pos(x - hi))
    problem = cp.Problem(cp.Minimize(cost), [X >> floor * np.eye(n), cp.diag(X) == 1])
    problem.solve(solver="CLARABEL")
    return problem.value


def check(sol, floor, fixed, lower, upper):
    """A suggestion works, is as small as CVXPY's, and changes what it says."""
    found = sol.suggestion
    assert found.solution.status == "optimal"
    X = np.asarray(found.solution.X)
    assert np.linalg.eigvalsh(X)[0] >= floor - 1e-6
    again = bo.nearest_correlation(**found.arguments)
    assert again.status == "optimal"
    margin = floor + 1e-4 * (1 - floor)
    expected = least_total(fixed, lower, upper, margin)
    assert found.total == pytest.approx(expected, abs=1e-4 * (1 + expected))
    assert found.least <= expected + 1e-6
    assert found.least == pytest.approx(expected, abs=1e-5 * (1 + expected))


def test_three_bounds_that_contradict_are_named():
    pd = pytest.importorskip("pandas")
    names = ["gold", "oil", "wheat", "rates"]
    A = pd.DataFrame(np.eye(4), names, names)
    lower, upper = {("gold", "oil"): 0.9, ("oil", "wheat"): 0.9}, {("gold", "wheat"): 0.2}
    sol = bo.nearest_correlation(A, lower=lower, upper=upper, suggest=True)
    assert sol.status == "infeasible"
    least = np.cos(2 * np.arccos(0.9))
    assert least == pytest.approx(0.62)
    assert (
        "entries (gold, oil) at least 0.9 and (oil, wheat) at least 0.9 force entry (gold, wheat) to be at "
        "least 0.62, but its upper bound is 0.2" in sol.stop_reason
    )
    found = sol.suggestion
    assert set(found.to_frame().argument) <= {"lower", "upper"}
    assert set(found.to_frame().row) <= set(names)
    assert "for a request that works" in str(found)
    assert "gold" in found._repr_html_()
    assert list(found.arguments["lower"].index) == names
    lo, hi = np.full((4, 4), -1.0), np.ones((4, 4))
    lo[0, 1] = lo[1, 2] = 0.9
    hi[0, 2] = 0.2
    check(sol, 0.0, {}, lo, hi)


def test_upper_bounds_and_the_floor_are_named():
    sol = bo.nearest_correlation(np.eye(3), upper=-0.45, min_eigenvalue=0.2)
    assert sol.status == "infeasible"
    # (X - 0.2 I) / 0.8 is a correlation matrix, so the third entry is at least 0.8 cos(2 arccos(-0.45 / 0.8))
    least = 0.8 * np.cos(2 * np.arccos(-0.45 / 0.8))
    found = re.search(r"force entry \(1, 2\) to be at least (\S+) with min_eigenvalue 0.2", sol.stop_reason)
    assert float(found[1]) == pytest.approx(least, abs=1e-4)
    assert "suggest=True" in sol.stop_reason
    assert sol.suggestion is None


def test_a_fixed_block_gets_the_nearest_one():
    A = np.eye(5)
    A[0, 1] = A[1, 0] = A[1, 2] = A[2, 1] = 0.9
    block = [[0, 1], [1, 2], [0, 2]]
    sol = bo.nearest_correlation(A, fixed=block, min_eigenvalue=0.05, suggest=True)
    assert "fixed keeps all entries of 0, 1, 2" in sol.stop_reason
    fixed = {(a, b): A[a, b] for a, b in [(0, 1), (1, 2), (0, 2)]}
    check(sol, 0.05, fixed, np.full((5, 5), -1.0), np.ones((5, 5)))
    suggested = sol.suggestion.arguments["A"]
    assert np.linalg.eigvalsh(suggested[:3, :3])[0] >= 0.05
    assert (A == A.T).all()
    assert A[0, 1] == 0.9


@examples(4)
@given(seed=st.integers(0, 10**6), floor=st.sampled_from([0.0, 0.1]))
def test_suggestions_work_and_are_least(seed, floor):
    rng = np.random.default_rng(seed)
    A = rng.uniform(-0.85, 0.85, (5, 5))
    A = np.triu(A, 1) + np.triu(A, 1).T + np.eye(5)
    lower, upper = A - 0.05, A + 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)  # some are infeasible by very little
        sol = bo.nearest_correlation(
            A, fixed=[[0, 1], [1, 2]], lower=lower, upper=upper, min_eigenvalue=floor, suggest=True
        )
    if sol.status == "optimal":
        assert sol.suggestion is None
        return
    check(sol, floor, {(0, 1): A[0, 1], (1, 2): A[1, 2]}, np.maximum(lower, -1), np.minimum(upper, 1))


@examples(20)
@given(seed=st.integers(0, 10**6))
def test_three_entries_are_possible_exactly_if_a_matrix_has_them(seed):
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.uniform(-1, 1, (2, 3, 3)), axis=0)
    lower, upper = (np.triu(end, 1) + np.triu(end, 1).T + np.eye(3) for end in ends)
    triple = impossible_triple(lower, upper)
    grid = np.stack(
        np.meshgrid(*(np.linspace(lower[p], upper[p], 21) for p in ((0, 1), (0, 2), (1, 2)))), -1
    ).reshape(-1, 3)
    a, b, c = grid.T
    best = (1 + 2 * a * b * c - a**2 - b**2 - c**2).max()  # the determinant is negative iff one is indefinite
    if triple is not None:
        assert best < 1e-9
    else:
        assert best > -0.15  # the grid is coarse


def test_a_stack_suggests_too():
    upper = {0: 1.0, 1: -0.9}
    panel = bo.nearest_correlation(np.stack([np.eye(3)] * 2), upper=upper, suggest=True)
    assert panel[0].suggestion is None
    assert panel[1].suggestion.solution.status == "optimal"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"groups": [0, 0, 1]}, "groups"),
        ({"max_condition": 5.0}, "max_condition"),
    ],
)
def test_where_no_suggestion_is_known_it_is_refused(arguments, text):
    with pytest.raises(bo.UnsupportedProblemError, match=f"suggest=True does not go with {text}"):
        bo.nearest_correlation(np.eye(3), suggest=True, **arguments)


IMPOSSIBLE = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
@pytest.mark.parametrize("arguments", [{"groups": [0, 1, 2]}, {"max_condition": 5.0}])
def test_the_reason_promises_no_suggestion_where_none_is_known(arguments):
    reason = bo.nearest_correlation(IMPOSSIBLE, fixed=np.ones((3, 3), bool), **arguments).stop_reason
    assert "fixed keeps all entries of 0, 1, 2" in reason
    assert "suggest" not in reason


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
@pytest.mark.parametrize("repair", [bo.nearest_correlation, bo.nearest_covariance])
def test_a_fixed_block_is_named_where_the_solver_only_gets_stuck(repair):
    sol = repair(IMPOSSIBLE, fixed=np.ones((3, 3), bool), weights=np.ones((3, 3)))
    assert sol.status != "optimal"
    assert "fixed keeps all entries of 0, 1, 2" in sol.stop_reason


def test_bounds_that_cross_are_named_by_labels():
    pd = pytest.importorskip("pandas")
    A = pd.DataFrame(np.eye(2), ["oil", "gold"], ["oil", "gold"])
    with pytest.raises(ValueError, match=r"at \(oil, gold\).*nearest bounds that agree are both 0.35"):
        bo.nearest_correlation(A, lower=0.5, upper=0.2)
    with pytest.raises(ValueError, match=r"upper at \(oil, gold\) lies beyond 1"):
        bo.nearest_correlation(A, upper=-1.5, lower=-2)


@pytest.mark.parametrize("value", [1, "yes", np.eye(2)])
def test_suggest_is_true_or_false(value):
    with pytest.raises(TypeError, match=r"suggest is (?s:.*); expected True or False"):
        bo.nearest_correlation(np.eye(2), suggest=value)
