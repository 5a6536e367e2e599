"""The nearest correlation matrix of a given rank: global where the bound says so, its gap said elsewhere."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first

import bregopt as bo
from bregopt.problems.correlation.rank import _Dual

pytestmark = pytest.mark.filterwarnings("error", "ignore::bregopt.ConvergenceWarning")


def uniform(n, seed):
    A = np.triu(np.random.default_rng(seed).uniform(-1, 1, (n, n)), 1)
    return A + A.T + np.eye(n)


def decaying(n, rho=0.9):
    return rho ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


def smooth(n, seed):
    """Return correlations of a smooth curve at random places."""
    x = np.sort(np.random.default_rng(seed).uniform(0, 3, n))
    return np.exp(-(np.subtract.outer(x, x) ** 2))


def check(sol, A, r, w=None):
    """Check what is promised of every answer."""
    s = np.sqrt(np.ones(len(A)) if w is None else w)
    X = np.asarray(sol.X)
    assert np.allclose(X.diagonal(), 1, atol=1e-14)
    assert np.linalg.matrix_rank(X, tol=1e-9) <= r
    assert np.isclose(sol.value, np.linalg.norm(s[:, None] * (X - A) * s) ** 2, rtol=1e-9, atol=1e-12)
    assert sol.dual_value <= sol.value + 1e-11 * np.sum(A**2) * s.max() ** 4
    assert (sol.status == "optimal") == (sol.gap <= 1e-6)


@pytest.mark.parametrize("n", [50, 100])
@pytest.mark.parametrize("A", [decaying, lambda n: smooth(n, 0), lambda n: (1 + decaying(n)) / 2])
def test_a_tenth_of_the_rank_is_global_with_proof(A, n):
    sol = bo.nearest_correlation(A(n), max_rank=n // 10)
    check(sol, A(n), n // 10)
    assert sol.status == "optimal"
    assert isinstance(sol.X, bo.LowRank)
    assert sol.X.rank == n // 10


@pytest.mark.parametrize("seed", first(2, range(10)))
def test_bounds_never_exceed_the_best_of_many_descents(seed):
    """Small random matrices against 60 descents of SciPy's from random starts."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 8))
    r = int(rng.integers(1, n))
    A = uniform(n, seed)

    def value(v):
        V = v.reshape(n, r)
        V = V / np.linalg.norm(V, axis=1, keepdims=True)
        return np.linalg.norm(V @ V.T - A) ** 2

    best = min(minimize(value, rng.normal(size=n * r)).fun for _ in range(20))
    sol = bo.nearest_correlation(A, max_rank=r)
    check(sol, A, r)
    assert sol.dual_value <= best * (1 + 1e-9)
    if sol.status == "optimal":
        assert sol.value <= best * (1 + 1e-6)
    dual = _Dual(A, np.ones(n), r)
    for _ in range(50):  # the bound holds for any multipliers
        assert dual.at(rng.normal(size=n))[0] <= best * (1 + 1e-9)


@pytest.mark.parametrize("n", [2, 3, 6, 9])
def test_rank_one_is_the_best_signs(n):
    A = uniform(n, n)
    words = np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1
    best = min(np.linalg.norm(np.outer(e, e) - A) ** 2 for e in 1 - 2.0 * words)
    sol = bo.nearest_correlation(A, max_rank=1)
    check(sol, A, 1)
    assert np.allclose(np.abs(np.asarray(sol.X)), 1)
    assert sol.dual_value <= best + 1e-9
    assert sol.value >= best - 1e-9


def test_a_matrix_of_the_rank_is_its_own_answer():
    V = np.random.default_rng(0).normal(size=(30, 4))
    V /= np.linalg.norm(V, axis=1)[:, None]
    for r in (4, 5):
        sol = bo.nearest_correlation(V @ V.T, max_rank=r)
        assert sol.status == "optimal"
        assert sol.value < 1e-10


@pytest.mark.parametrize("n", [5, 12, 30])
def test_a_large_rank_is_no_restriction(n):
    A = uniform(n, 1)
    nearest = bo.nearest_correlation(A, tol=1e-9)
    for r in (n // 2 + n // 4 + 1, n - 1):
        sol = bo.nearest_correlation(A, max_rank=r)
        if sol.X.rank >= nearest.rank:
            assert sol.status == "optimal"
            assert np.isclose(sol.value, nearest.value, rtol=1e-6)
    same = bo.nearest_correlation(A, max_rank=n, tol=1e-9)
    assert (same.X == nearest.X).all()


def test_duals_give_the_answer_and_the_value_its_slope():
    """``X`` is the top of ``A - Diag(duals) / 2``; the value has the gradient ``2 (A - X)``."""
    A = decaying(12)
    sol = bo.nearest_correlation(A, max_rank=3, tol=1e-9)
    assert sol.status == "optimal"
    shifted = A - np.diag(sol.duals[0]) / 2
    w, U = np.linalg.eigh(shifted)
    X = (U[:, -3:] * w[-3:]) @ U[:, -3:].T
    assert np.allclose(X, np.asarray(sol.X), atol=1e-6)
    h = 1e-4
    D = uniform(12, 0) - np.eye(12)
    ends = [bo.nearest_correlation(A + e * h * D, max_rank=3, tol=1e-9).value for e in (1, -1)]
    slope = 2 * np.sum(D * (A - np.asarray(sol.X)))
    assert np.isclose((ends[0] - ends[1]) / (2 * h), slope, rtol=1e-5)


@examples(7)
@given(st.integers(0, 10_000))
def test_values_do_not_depend_on_order_signs_and_scale(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 20))
    r = int(rng.integers(2, n))
    A = smooth(n, seed)
    w = rng.uniform(0.5, 2, n)
    order, signs = rng.permutation(n), rng.choice([-1.0, 1.0], n)
    moved = (signs[:, None] * A * signs)[np.ix_(order, order)]
    one = bo.nearest_correlation(A, max_rank=r, weights=w)
    check(one, A, r, w)
    two = bo.nearest_correlation(moved, max_rank=r, weights=w[order])
    size = np.sum(A**2)
    assert one.dual_value <= two.value + 1e-9 * size
    assert two.dual_value <= one.value + 1e-9 * size
    scaled = bo.nearest_correlation(A, max_rank=r, weights=1e6 * w)
    assert scaled.dual_value <= 1e12 * (one.value + 1e-9 * size)
    if one.status == two.status == scaled.status == "optimal":
        assert abs(one.value - two.value) <= 1e-6 * size
        assert abs(scaled.value - 1e12 * one.value) <= 1e6 * size


def test_frames_and_stacks():
    pandas = pytest.importorskip("pandas")
    names = list("abcdef")
    frame = pandas.DataFrame(decaying(6), index=names, columns=names)
    sol = bo.nearest_correlation(frame, max_rank=2)
    assert list(sol.X.index) == list(sol.X.columns) == names
    stack = np.array([decaying(6), decaying(6, 0.5)])
    together = bo.nearest_correlation(stack, max_rank=2)
    assert len(together) == 2
    assert np.isclose(together.value[0], sol.value)


def test_what_does_not_go_together_is_refused():
    A = decaying(6)
    refused = {
        "divergence='frobenius' only": {"divergence": "logdet"},
        "min_eigenvalue": {"min_eigenvalue": 0.1},
        "max_condition": {"max_condition": 10.0},
        "weights of entries": {"weights": np.ones((6, 6))},
        "fixed": {"fixed": [(0, 1)]},
        "lower and upper": {"lower": 0.1},
        "groups": {"groups": list("aabbcc")},
    }
    for message, arguments in refused.items():
        with pytest.raises(bo.UnsupportedProblemError, match=message):
            bo.nearest_correlation(A, max_rank=2, **arguments)
    with pytest.raises(TypeError, match="LowRank"):
        bo.nearest_correlation(bo.LowRank(np.ones((6, 1))), max_rank=2)
    with pytest.raises(TypeError, match="no option 'solver'"):
        bo.nearest_correlation(A, max_rank=2, solver="path")
    with pytest.raises(TypeError, match=r"max_rank is 2\.0; expected an integer"):
        bo.nearest_correlation(A, max_rank=2.0)
    with pytest.raises(ValueError, match="max_rank is 0; expected an integer from 1"):
        bo.nearest_correlation(A, max_rank=0)


def test_a_gap_that_remains_is_said():
    A = uniform(20, 0)
    sol = bo.nearest_correlation(A, max_rank=2)
    check(sol, A, 2)
    assert sol.status == "locally_optimal"
    assert "A local optimum" in sol.stop_reason
    assert 0 < sol.dual_value < sol.value
    again = bo.nearest_correlation(A, max_rank=2)
    assert again.value == sol.value


def test_a_time_limit_and_max_iter_are_kept():
    A = uniform(40, 0)
    for options in ({"time_limit": 1e-9}, {"max_iter": 2}):
        with pytest.warns(bo.ConvergenceWarning, match=next(iter(options))):
            sol = bo.nearest_correlation(A, max_rank=4, **options)
        check(sol, A, 4)


def test_real_matrices():
    data = os.environ.get("BREGOPT_DATA")
    if data is None:
        pytest.skip("BREGOPT_DATA is not set")
    proven = total = 0
    for path in sorted((Path(data) / "nearcorr").glob("*.csv")):
        if path.stem.endswith("_pattern"):
            continue
        A = np.loadtxt(path, delimiter=",")
        A = (A + A.T) / 2
        for r in {1, min(3, len(A) - 1)}:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", bo.ConvergenceWarning)
                sol = bo.nearest_correlation(A, max_rank=r)
            check(sol, A, r)
            proven, total = proven + (sol.status == "optimal"), total + 1
    assert proven > total / 2


@pytest.mark.slow
def test_order_500_is_global_with_proof():
    A = decaying(500)
    for r in (50, 125):
        sol = bo.nearest_correlation(A, max_rank=r)
        check(sol, A, r)
        assert sol.status == "optimal"
