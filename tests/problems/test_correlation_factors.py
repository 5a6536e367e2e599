"""The nearest correlation matrix with factor structure: local optima, and bounds that nothing beats."""

import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first

import bregopt as bo
from bregopt.problems.correlation.factors import bisection_bound, eigenvalue_bound, leading_part

pytestmark = pytest.mark.filterwarnings("error")


def factors(n, k, seed, communality=(0.3, 0.9)):
    rng = np.random.default_rng(seed)
    L = rng.normal(size=(n, k))
    return L * np.sqrt(rng.uniform(*communality, n) / (L**2).sum(1))[:, None]


def with_unit_diagonal(A):
    A = (A + A.T) / 2
    np.fill_diagonal(A, 1.0)
    return A


def noisy(n, k, seed, noise=0.1):
    L = factors(n, k, seed)
    return with_unit_diagonal(L @ L.T + noise * np.random.default_rng(seed + 1).normal(size=(n, n)))


def returns(n, k, seed, days=250):
    rng = np.random.default_rng(seed)
    L = 0.3 * rng.normal(size=(n, k))
    L[:, 0] = rng.uniform(0.3, 0.8, n)
    return with_unit_diagonal(
        np.corrcoef(rng.normal(size=(days, k)) @ L.T + rng.normal(size=(days, n)), rowvar=False)
    )


def uniform(n, k, seed):
    return with_unit_diagonal(np.random.default_rng(seed).uniform(-1.4, 1.4, (n, n)).clip(-1, 1))


FAMILIES = {"noisy": noisy, "returns": returns, "uniform": uniform}


def squared_distance(X, A):
    return float(np.linalg.norm(np.asarray(X) - A) ** 2)


def check(model, A, k, floor=0.0, w=None, early="locally_optimal"):
    """Check what is promised of every answer."""
    X, L, v = np.asarray(model.X), np.asarray(model.loadings), np.asarray(model.specific_variances)
    s = np.sqrt(np.ones(len(A)) if w is None else w)
    assert L.shape == (len(A), k)
    assert (X.diagonal() == 1).all()
    assert np.allclose(X, L @ L.T + np.diag(v), atol=1e-13)
    assert (v >= floor).all()
    assert (v <= 1).all()
    assert np.isclose(model.value, np.linalg.norm(s[:, None] * (X - A) * s) ** 2, rtol=1e-9, atol=1e-12)
    assert model.dual_value <= model.value * (1 + 1e-9) + 1e-12
    assert (model.status == "optimal") == (model.gap <= 1e-6)
    assert model.status in ("optimal", early)
    gram = L.T @ L
    assert np.allclose(gram, np.diag(gram.diagonal()), atol=1e-7 * gram.trace())
    assert (np.diff(gram.diagonal()) <= 1e-12).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("n", "k"), [(12, 1), (30, 2), (60, 5)])
def test_answers_are_local_optima_with_bounds(family, n, k):
    A = FAMILIES[family](n, k, seed=n)
    model = bo.factor_correlation(A, k)
    check(model, A, k)
    rng = np.random.default_rng(0)
    for size in (1e-4, 1e-2):  # no nearby loadings are better
        for _ in range(20):
            L = model.loadings + size * rng.normal(size=model.loadings.shape)
            L /= np.maximum(1, np.linalg.norm(L, axis=1))[:, None]
            X = L @ L.T
            np.fill_diagonal(X, 1)
            assert squared_distance(X, A) >= model.value * (1 - 1e-9)


@pytest.mark.parametrize(("n", "k"), [(100, 3), (160, 1), (220, 6)])
def test_random_entries_take_few_steps(n, k):
    A = uniform(n, k, seed=n)
    model = bo.factor_correlation(A, k, tol=1e-9)
    check_local(model, A)
    assert model.iterations <= 10
    assert "A local optimum" in model.stop_reason


def check_local(model, A):
    """Check that the projected gradient of the loadings is zero, from the definition."""
    L = np.asarray(model.loadings)
    R = L @ L.T - A
    np.fill_diagonal(R, 0)
    G = 4 * R @ L
    moved = L - 1e-3 * G
    moved /= np.maximum(1, np.linalg.norm(moved, axis=1))[:, None]
    assert np.linalg.norm(moved - L) <= 1e-3 * 1e-7 * 4 * np.linalg.norm(A)


def test_nearly_diagonal_matrices_need_no_long_descent():
    A = np.eye(60) + 1e-6 * (uniform(60, 2, seed=0) - np.eye(60))
    model = bo.factor_correlation(A, 2)
    check(model, A, 2)
    assert model.iterations <= 100
    model = bo.factor_correlation(np.eye(60), 2)
    assert model.status == "optimal"
    assert model.value == 0


@pytest.mark.parametrize(
    "A",
    [uniform(200, 3, 0), noisy(300, 2, 1), np.eye(160), np.zeros((160, 160)), np.ones((170, 170))],
    ids=["random", "factors", "identity", "zero", "ones"],
)
def test_leading_part(A):
    R = leading_part(A, 3)
    gram = R.T @ R
    theta, exact = gram.diagonal(), np.linalg.eigvalsh(A)
    size = max(np.abs(exact).max(), 1e-12)
    assert np.abs(gram - np.diag(theta)).max() <= 1e-12 * max(size, 1)
    assert np.linalg.norm(A @ R - R * theta) <= 5e-3 * size * np.sqrt(size)
    assert theta[-1] == pytest.approx(exact[-1], rel=1e-4)


@pytest.mark.parametrize("seed", first(4, range(12)))
def test_bounds_never_exceed_the_best_of_many_starts(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 12))
    k = int(rng.integers(1, n))
    A = FAMILIES[list(FAMILIES)[seed % 3]](n, k, seed)
    best = bo.factor_correlation(A, k, starts=15, seed=seed, max_iter=3000)
    check(best, A, k)
    B = A - np.eye(n)
    for order_seed in range(10):
        assert bisection_bound(B, k, order_seed) <= best.value * (1 + 1e-9)
    assert eigenvalue_bound(B, k, np.ones(n)) <= best.value * (1 + 1e-9)


@pytest.mark.parametrize(("family", "n", "k", "share"), [
    ("noisy", 100, 3, 0.8),
    ("noisy", 100, 6, 0.8),
    ("returns", 100, 3, 0.8),
    ("returns", 100, 6, 0.8),
    ("returns", 200, 6, 0.85),
    ("uniform", 100, 6, 0.98),
])  # fmt: skip
def test_bounds_are_a_large_share(family, n, k, share):
    model = bo.factor_correlation(FAMILIES[family](n, k, 0), k)
    assert share * model.value <= model.dual_value <= model.value


@pytest.mark.parametrize(("n", "k"), [(3, 1), (10, 2), (40, 3), (200, 4)])
def test_matrices_with_the_structure_are_their_own_answer(n, k):
    L = factors(n, k, seed=n)
    A = L @ L.T
    np.fill_diagonal(A, 1)
    model = bo.factor_correlation(A, k)
    check(model, A, k)
    assert model.status == "optimal"
    assert model.value <= 1e-8 * np.sum(A**2)
    assert np.allclose(model.X, A, atol=1e-4)


def test_the_factor_of_three_rows_has_a_closed_form():
    """``l_1^2 = a_12 a_13 / a_23`` (Spearman)."""
    a, b, c = 0.56, 0.4, 0.35
    A = np.array([[1, a, b], [a, 1, c], [b, c, 1]])
    L = bo.factor_correlation(A, 1, tol=1e-9).loadings[:, 0]
    assert np.allclose(L**2, [a * b / c, a * c / b, b * c / a], atol=1e-7)


def test_two_rows_have_a_closed_form():
    model = bo.factor_correlation([[1, 1.5], [1.5, 1]], 1)
    assert np.isclose(model.value, 2 * 0.5**2)
    assert np.isclose(model.X[0, 1], 1)
    model = bo.factor_correlation([[1, 1.5], [1.5, 1]], 1, min_specific_variance=0.3)
    assert np.isclose(model.value, 2 * 0.8**2)
    assert np.isclose(model.X[0, 1], 0.7)


@pytest.mark.parametrize("n", [3, 5, 8])
def test_all_factors_but_one_give_the_nearest_correlation_matrix(n):
    A = uniform(n, 0, seed=n)
    model = bo.factor_correlation(A, n - 1, tol=1e-8, max_iter=20_000)
    nearest = bo.nearest_correlation(A, tol=1e-9)
    assert np.isclose(model.value, nearest.value, rtol=1e-5)
    assert np.isclose(model.dual_value, nearest.value, rtol=1e-5)


@examples(10)
@given(st.integers(0, 10_000))
def test_values_do_not_depend_on_order_and_signs(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(12, 40)), int(rng.integers(1, 4))
    A = noisy(n, k, seed)
    w = rng.uniform(0.5, 2, n)
    order, signs = rng.permutation(n), rng.choice([-1.0, 1.0], n)
    moved = (signs[:, None] * A * signs)[np.ix_(order, order)]
    one = bo.factor_correlation(A, k, weights=w, starts=3)
    two = bo.factor_correlation(moved, k, weights=w[order], starts=3)
    check(one, A, k, w=w)
    if np.isclose(one.value, two.value, rtol=1e-3):  # else the starts ended in different local optima
        assert np.isclose(one.value, two.value, rtol=1e-6)
        assert one.dual_value <= two.value * (1 + 1e-9)
        assert two.dual_value <= one.value * (1 + 1e-9)
    scaled = bo.factor_correlation(A, k, weights=1e6 * w, starts=3)
    assert np.isclose(scaled.value, 1e12 * one.value, rtol=1e-6)
    assert np.isclose(scaled.dual_value, 1e12 * one.dual_value, rtol=1e-6, atol=1e6)


def test_specific_variances_have_a_floor():
    A = uniform(20, 0, seed=3)
    free = bo.factor_correlation(A, 3)
    kept = bo.factor_correlation(A, 3, min_specific_variance=0.2)
    check(kept, A, 3, floor=0.2)
    assert free.specific_variances.min() < 0.1
    assert kept.value > free.value
    assert np.linalg.eigvalsh(kept.X)[0] >= 0.2 - 1e-12


def test_weights_pull_heavy_rows_closer():
    A = uniform(15, 0, seed=1)
    w = np.ones(15)
    w[:4] = 100.0
    heavy = bo.factor_correlation(A, 2, weights=w, starts=5)
    check(heavy, A, 2, w=w)
    plain = bo.factor_correlation(A, 2, starts=5)
    part = np.ix_(range(4), range(4))
    assert squared_distance(heavy.X[part], A[part]) < squared_distance(plain.X[part], A[part])


def test_a_diagonal_other_than_one_counts():
    A = noisy(20, 2, seed=0)
    other = A + np.diag(np.linspace(0, 0.4, 20))
    one, two = bo.factor_correlation(A, 2), bo.factor_correlation(other, 2)
    extra = float(np.sum(np.linspace(0, 0.4, 20) ** 2))
    assert np.isclose(two.value, one.value + extra, rtol=1e-6)
    assert (one.dual_value + extra) * (1 + 1e-12) >= two.dual_value >= extra  # equal but for round-off


def test_more_starts_and_another_seed():
    A = uniform(10, 0, seed=4)
    one = bo.factor_correlation(A, 3)
    many = bo.factor_correlation(A, 3, starts=20)
    again = bo.factor_correlation(A, 3, starts=20)
    assert many.value <= one.value * (1 + 1e-9)
    assert many.value == again.value


def test_frames_keep_their_labels():
    pandas = pytest.importorskip("pandas")
    A = noisy(6, 2, seed=0)
    names = list("abcdef")
    frame = pandas.DataFrame(A, index=names, columns=names)
    model = bo.factor_correlation(frame, 2, weights=pandas.Series(np.ones(6), index=names))
    assert list(model.X.columns) == list(model.X.index) == list(model.loadings.index) == names
    assert list(model.specific_variances.index) == names
    with pytest.raises(ValueError, match="weights is a Series with other labels"):
        bo.factor_correlation(frame, 2, weights=pandas.Series(np.ones(6), index=names[::-1]))


def test_bad_input_is_refused():
    A = noisy(6, 2, seed=0)
    for k, error, message in (
        (0, ValueError, "k is 0; expected an integer from 1"),
        (6, ValueError, "k is 6; expected at most 5"),
        (2.0, TypeError, "k is 2.0; expected an integer"),
        (True, TypeError, "k is True"),
    ):
        with pytest.raises(error, match=message):
            bo.factor_correlation(A, k)
    with pytest.raises(ValueError, match="min_specific_variance is 1"):
        bo.factor_correlation(A, 2, min_specific_variance=1.0)
    with pytest.raises(ValueError, match="weights has 2 dimensions"):
        bo.factor_correlation(A, 2, weights=np.ones((6, 6)))
    with pytest.raises(ValueError, match="weights has the value 0"):
        bo.factor_correlation(A, 2, weights=np.zeros(6))
    with pytest.raises(ValueError, match="starts is 0"):
        bo.factor_correlation(A, 2, starts=0)
    with pytest.raises(ValueError, match="NaN"):
        bo.factor_correlation(np.where(np.eye(6) > 0, np.nan, A), 2)
    with pytest.raises(TypeError, match="LowRank"):
        bo.factor_correlation(bo.LowRank(np.ones((6, 2))), 2)
    with pytest.raises(ValueError, match="tol is 2"):
        bo.factor_correlation(A, 2, tol=2)
    with pytest.warns(bo.DataWarning, match="covariance"):
        bo.factor_correlation(10 * A, 2)


def test_ended_early_is_said():
    A = uniform(40, 0, seed=0)
    with pytest.warns(bo.ConvergenceWarning, match="max_iter was reached"):
        model = bo.factor_correlation(A, 3, max_iter=3)
    check(model, A, 3, early="user_limit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        model = bo.factor_correlation(A, 3, time_limit=1e-9)
    check(model, A, 3, early="user_limit")


def test_bounds_of_exact_structures_are_not_above_round_off():
    for n, k in ((20, 1), (40, 3), (200, 5)):
        L = factors(n, k, seed=n)
        B = L @ L.T
        np.fill_diagonal(B, 0.0)
        for scale in (1e-6, 1.0, 1e6):
            assert bisection_bound(scale * B, k) <= 1e-30 * scale**2 * np.sum(B**2)
            assert eigenvalue_bound(scale * B, k, np.full(n, scale)) <= 0


def test_answers_are_pickled():
    model = pickle.loads(pickle.dumps(bo.factor_correlation(noisy(10, 2, seed=0), 2)))
    assert isinstance(model, bo.FactorModel)
    assert not model.loadings.flags.writeable


def test_data_are_not_modified():
    A = noisy(10, 2, seed=0)
    before = A.copy()
    model = bo.factor_correlation(A, 2)
    assert (A == before).all()
    assert not model.loadings.flags.writeable
    assert not model.specific_variances.flags.writeable
    assert model.loadings is not None
    assert "locally_optimal" in repr(model)


def test_real_matrices():
    data = os.environ.get("BREGOPT_DATA")
    if data is None:
        pytest.skip("BREGOPT_DATA is not set")
    paths = [p for p in sorted((Path(data) / "nearcorr").glob("*.csv")) if not p.stem.endswith("_pattern")]
    assert paths
    for path in paths:
        A = np.loadtxt(path, delimiter=",")
        A = (A + A.T) / 2
        for k in {1, 2, min(3, len(A) - 1)}:
            model = bo.factor_correlation(A, k, max_iter=5_000)
            check(model, A, k)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(50, 2), (100, 3)])
def test_values_are_no_larger_than_those_of_statsmodels(n, k):
    tools = pytest.importorskip("statsmodels.stats.correlation_tools")
    A = returns(n, k, seed=n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = tools.corr_nearest_factor(A, k).corr.to_matrix()
    assert bo.factor_correlation(A, k).value <= squared_distance(theirs, A) * (1 + 1e-9)


def test_the_drawing_of_loadings_shows_them():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    A = np.corrcoef(np.random.default_rng(0).normal(size=(40, 6)).T)
    model = bo.factor_correlation(A, 2)
    axes = model.plot_loadings()
    np.testing.assert_array_equal(axes[0].images[0].get_array(), model.loadings)
    widths = np.array([patch.get_width() for patch in axes[1].patches]).reshape(3, 6)
    np.testing.assert_allclose(widths.sum(axis=0), 1)  # the shares of each variance
    pyplot.close("all")
