"""Optimal designs and capacities: equivalence theorems, known designs, CVXPY, invariances, bad input."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import chebyshev, legendre
from peers import ask
from samples import examples, turns

import bregopt as bo
from bregopt.problems.logdet.exact_designs import apportioned

FUNCTIONS = {"D": bo.d_optimal, "A": bo.a_optimal, "E": bo.e_optimal}


def polynomial(x, degree):
    return np.vander(x, degree + 1, increasing=True)


def asked(criterion, X, lower=0.0, upper=None, costs=None, budget=None, prior=None):
    """Return a peer's certified optimal value."""
    w = cp.Variable(len(X))
    M = X.T @ cp.diag(w) @ X + (0 if prior is None else prior)
    rows = [cp.sum(w) == 1, w >= lower]
    if upper is not None:
        rows.append(w <= upper)
    if costs is not None:
        rows.append(np.atleast_2d(costs) @ w <= np.atleast_1d(budget))
    objective = {
        "D": lambda: cp.Maximize(cp.log_det(M)),
        "A": lambda: cp.Minimize(cp.tr_inv(M)),
        "E": lambda: cp.Maximize(cp.lambda_min(M)),
    }[criterion]()
    return ask(cp.Problem(objective, rows))


def equivalence(design):
    """No sensitivity is above the level, and those of the support are at it (Kiefer and Wolfowitz 1960)."""
    g = np.asarray(design.sensitivity)
    assert g.max() <= design.level * (1 + 1e-6)
    np.testing.assert_allclose(g[np.asarray(design.weights) > 1e-3], design.level, rtol=1e-3)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 6])
def test_d_optimal_polynomials_are_those_of_guest(degree):
    # Guest (1958): weights 1 / n at the ends and at the roots of the derivative of Legendre's polynomial.
    roots = legendre.Legendre.basis(degree).deriv().roots().real
    best = np.sort(np.concatenate([[-1, 1], roots.round(12)])) + 0.0
    x = np.unique(np.concatenate([np.linspace(-1, 1, 51), best]).round(12))
    design = bo.d_optimal(polynomial(x, degree))
    assert design.status == "optimal"
    assert design.level == pytest.approx(degree + 1)
    equivalence(design)
    expected = np.zeros(len(x))
    expected[np.searchsorted(x, best)] = 1 / (degree + 1)
    np.testing.assert_allclose(design.weights, expected, atol=1e-3)


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_e_optimal_polynomials_are_those_of_pukelsheim_and_studden(degree):
    # Support: the extrema of Chebyshev's polynomial; the value is one over its sum of squared coefficients.
    extrema = np.cos(np.pi * np.arange(degree, -1, -1) / degree)
    x = np.unique(np.concatenate([np.linspace(-1, 1, 41), extrema]).round(12))
    design = bo.e_optimal(polynomial(x, degree))
    assert design.status == "optimal"
    coefficients = chebyshev.cheb2poly(np.eye(degree + 1)[degree])
    assert design.value == pytest.approx(1 / (coefficients @ coefficients), rel=1e-6)
    assert np.isclose(x[design.support][:, None], extrema, atol=1e-9).any(axis=1).all()
    equivalence(design)


@pytest.mark.parametrize(("m", "degree"), [(250, 3), (333, 6), (777, 3), (1_000, 2), (2_000, 4)])
@pytest.mark.parametrize("optimal", [bo.d_optimal, bo.a_optimal])
def test_grids_beside_the_best_places_give_few_candidates(optimal, m, degree):
    """Optima on an interval have ``degree + 1`` places; candidates beside each of them share its weight."""
    x = np.linspace(-1, 1, m)
    design = optimal(polynomial(x, degree))
    assert design.status == "optimal"
    groups = np.split(design.support, np.flatnonzero(np.diff(x[design.support]) > 0.1) + 1)
    assert len(groups) == degree + 1
    assert len(design.support) <= 5 * (degree + 1)
    equivalence(design)


def test_a_optimal_designs_in_closed_form():
    for n in (1, 2, 5):  # of unit vectors and their multiples: weights proportional to one over the length
        lengths = np.arange(1.0, n + 1)
        design = bo.a_optimal(np.diag(lengths))
        np.testing.assert_allclose(design.weights, 1 / lengths / (1 / lengths).sum(), atol=1e-6)
        assert design.value == pytest.approx((1 / lengths).sum() ** 2)
        equivalence(design)
    x = np.linspace(-1, 1, 21)
    design = bo.a_optimal(polynomial(x, 2))
    np.testing.assert_allclose(design.weights[[0, 10, 20]], [0.25, 0.5, 0.25], atol=1e-6)
    assert design.value == pytest.approx(8)


def test_i_optimality_is_a_optimality_with_moments():
    x = np.linspace(-1, 1, 41)
    X = polynomial(x, 1)
    design = bo.a_optimal(X, K=np.diag([1, 1 / 3]))
    assert design.value == pytest.approx(4 / 3)
    W = np.array([[2.0, 0.4], [0.4, 1.0]])
    root = np.linalg.cholesky(W)
    direct, turned = bo.a_optimal(X, K=W), bo.a_optimal(np.linalg.solve(root, X.T).T)
    assert direct.value == pytest.approx(turned.value, rel=1e-7)


CASES = {
    "bounds": {"upper": 0.08},
    "lower": {"lower": 0.004, "upper": 0.3},
    "prior": {"prior": np.diag([0.5, 0.0, 0.1])},
    "costs": {"costs": np.linspace(0, 1, 40) ** 2, "budget": 0.3},
    "all": {
        "lower": np.full(40, 0.002),
        "upper": np.linspace(0.05, 0.5, 40),
        "costs": np.stack([np.linspace(0, 1, 40), np.linspace(3, 0, 40)]),
        "budget": [0.5, 1.6],
        "prior": 0.05 * np.eye(3),
    },
}


@pytest.mark.parametrize(("criterion", "case"), turns(FUNCTIONS, CASES))
def test_bounds_costs_and_priors_as_cvxpy(criterion, case):
    X = np.random.default_rng(3).normal(size=(40, 3))
    options = CASES[case]
    design = FUNCTIONS[criterion](X, **options)
    assert design.status == "optimal"
    w = design.weights
    assert w.sum() == pytest.approx(1, abs=1e-12)
    assert (w >= options.get("lower", 0.0)).all()
    assert (w <= options.get("upper", 1.0)).all()
    if "costs" in options:
        assert (np.atleast_2d(options["costs"]) @ w <= np.asarray(options["budget"]) * (1 + 1e-12)).all()
    asked(criterion, X, **options).agrees(design.value, abs(design.bound - design.value))
    assert (design.bound - design.value) * (-1 if criterion == "A" else 1) >= 0


@pytest.mark.parametrize("criterion", FUNCTIONS)
def test_matrices_of_rank_one_are_rows(criterion):
    X = np.random.default_rng(0).normal(size=(30, 3))
    rows, matrices = FUNCTIONS[criterion](X), FUNCTIONS[criterion](X[:, :, None] * X[:, None])
    assert rows.value == pytest.approx(matrices.value, rel=1e-7)
    np.testing.assert_allclose(rows.weights, matrices.weights, atol=1e-4)


@pytest.mark.parametrize("criterion", FUNCTIONS)
def test_matrices_of_higher_rank(criterion):
    G = np.random.default_rng(1).normal(size=(700, 4, 2))
    design = FUNCTIONS[criterion](G @ G.transpose(0, 2, 1))
    assert design.status == "optimal"
    equivalence(design)


@examples(5)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([1e-6, 1.0, 1e6]))
def test_designs_follow_linear_maps(seed, n, unit):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 8, n))
    T = unit * (rng.normal(size=(n, n)) + 2 * np.eye(n))
    order = rng.permutation(len(X))
    before, after = bo.d_optimal(X), bo.d_optimal((X @ T)[order])
    assert after.status == "optimal"
    assert after.value - 2 * np.linalg.slogdet(T)[1] == pytest.approx(before.value, abs=1e-7)
    A = bo.a_optimal(X)
    assert bo.a_optimal(unit * X).value * unit**2 == pytest.approx(A.value, rel=1e-7)
    assert bo.e_optimal(unit * X).value / unit**2 == pytest.approx(bo.e_optimal(X).value, rel=1e-6)
    twice = bo.a_optimal(np.concatenate([X, X]))
    assert twice.value == pytest.approx(A.value, rel=1e-7)


@pytest.mark.parametrize("criterion", FUNCTIONS)
def test_many_candidates(criterion):
    X = np.random.default_rng(5).normal(size=(3000, 4))
    design = FUNCTIONS[criterion](X)
    assert design.status == "optimal"
    assert len(design.support) <= 30
    equivalence(design)
    half = FUNCTIONS[criterion](X, upper=0.02)
    assert half.status == "optimal"
    assert len(half.support) >= 50
    assert half.weights.max() <= 0.02


def test_weights_that_the_bounds_leave_no_choice():
    X = np.random.default_rng(0).normal(size=(4, 2))
    for criterion in FUNCTIONS.values():
        for design in (criterion(X, upper=0.25), criterion(X, lower=[0.1, 0.2, 0.3, 0.4])):
            assert design.status == "optimal"
            assert design.weights.sum() == pytest.approx(1)
    fixed = bo.d_optimal(X, lower=[0.3, 0, 0, 0], upper=[0.3, 1, 1, 1])
    assert fixed.weights[0] == 0.3
    asked("D", X, [0.3, 0, 0, 0], [0.3, 1, 1, 1]).agrees(fixed.value, fixed.bound - fixed.value)


def test_the_bound_of_a_rough_design_is_true():
    X = np.random.default_rng(2).normal(size=(2000, 5))
    for criterion, sign in (("D", 1), ("A", -1), ("E", 1)):
        best = FUNCTIONS[criterion](X)
        rough = FUNCTIONS[criterion](X, tol=0.3)
        assert sign * rough.bound >= sign * best.value * (1 - 1e-9) - 1e-9
        assert rough.efficiency <= best.efficiency_of(rough.weights) + 1e-9 or criterion == "E"
        assert best.efficiency_of(best.weights) >= 1 - 1e-7


def test_a_polynomial_of_high_degree():
    x = np.linspace(0, 1, 400)
    design = bo.d_optimal(polynomial(x, 8))
    assert design.status == "optimal"
    assert design.level == pytest.approx(9)


def test_rounded_designs():
    assert apportioned(np.array([0.2, 0, 0.3, 0.5]), 10).tolist() == [2, 0, 3, 5]
    x = np.linspace(-1, 1, 101)
    design = bo.d_optimal(polynomial(x, 2))
    for runs in (3, 4, 7, 30):
        counts = design.rounded(runs)
        assert counts.sum() == runs
        assert counts[design.support].min() >= runs // 3
        assert 0.9 < design.efficiency_of(counts) <= 1
    assert design.efficiency_of(design.rounded(30)) == pytest.approx(1)
    with pytest.raises(ValueError, match="runs is 2; expected at least 3"):
        design.rounded(2)
    with pytest.raises(TypeError, match=r"runs is 2.5"):
        design.rounded(2.5)
    with pytest.raises(ValueError, match="weights has shape"):
        design.efficiency_of([1.0])


@examples(25)
@given(st.lists(st.floats(1e-3, 1), min_size=1, max_size=12), st.integers(0, 40))
def test_apportionment_meets_its_optimality_condition(shares, more):
    w = np.array(shares) / sum(shares)
    runs = len(w) + more
    counts = apportioned(w, runs)
    assert counts.sum() == runs
    assert counts.min() >= 1
    # Pukelsheim and Rieder (1992): the least n / w among candidates is above no (n - 1) / w.
    assert (counts / w).min() >= ((counts - 1) / w).max() * (1 - 1e-9)


BAD = {
    "rank": ({"candidates": [[1.0, 2], [2, 4]]}, ValueError, "determine 1 of 2 parameters"),
    "few": ({"candidates": np.eye(3)[:2]}, ValueError, "determine 2 of 3"),
    "shape": ({"candidates": np.zeros((2, 2, 3))}, ValueError, "candidates has shape"),
    "empty": ({"candidates": np.zeros((0, 3))}, ValueError, "candidates has shape"),
    "nan": ({"candidates": [[np.nan]]}, ValueError, "candidates has 1 NaN"),
    "text": ({"candidates": [["a"]]}, TypeError, "candidates has dtype"),
    "indefinite": (
        {"candidates": np.array([np.eye(2), -np.eye(2)])},
        ValueError,
        r"candidates\[1\] has the eig",
    ),
    "negative": ({"lower": -0.1}, ValueError, "lower has the value -0.1"),
    "crossed": ({"lower": 0.2, "upper": 0.1}, ValueError, "lower is 0.2 and upper is 0.1"),
    "too much": ({"lower": 0.4}, ValueError, "lower has the sum 1.2"),
    "too little": ({"upper": 0.2}, ValueError, "upper has the sum 0.6"),
    "upper": ({"upper": [1.0, 1.0]}, ValueError, r"upper has shape \(2,\)"),
    "budget": ({"costs": [1.0, 2, 3]}, TypeError, "costs or budget is missing"),
    "costs": ({"costs": [1.0, 2], "budget": 1}, ValueError, "costs has 2 columns; expected 3"),
    "budgets": ({"costs": [1.0, 2, 3], "budget": [1.0, 2]}, ValueError, "budget has 2 values"),
    "poor": ({"costs": [1.0, 2, 3], "budget": 0.5}, ValueError, "budget is 0.5, and weights cost at least 1"),
    "exact": ({"costs": [1.0, 2, 3], "budget": 1.0}, ValueError, "weights cost at least 1"),
    "two": ({"costs": [[1.0, 0, 0], [0, 1, 1]], "budget": [0.1, 0.1]}, ValueError, r"budget [01] is 0.1"),
    "prior": ({"prior": -np.eye(2)}, ValueError, "prior has the eigenvalue -1"),
    "prior shape": ({"prior": np.eye(3)}, ValueError, "prior is 3 x 3; expected 2 x 2"),
    "tol": ({"tol": 2}, ValueError, "tol is 2"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("criterion", FUNCTIONS)
def test_bad_designs(criterion, case):
    options, error, match = BAD[case]
    arguments = {"candidates": [[1.0, 0], [1, 1], [1, 2]], **options}
    with pytest.raises(error, match=match):
        FUNCTIONS[criterion](**arguments)


def test_a_singular_mean_of_variances_is_refused():
    with pytest.raises(ValueError, match="K has the eigenvalue 0"):
        bo.a_optimal(np.eye(2), K=np.diag([1.0, 0]))


def test_designs_keep_labels_and_stay_as_they_are():
    pandas = pytest.importorskip("pandas")
    x = np.linspace(-1, 1, 11)
    X = pandas.DataFrame(polynomial(x, 2), index=[f"run {k}" for k in range(11)], columns=["1", "x", "xx"])
    before = X.copy()
    for criterion in FUNCTIONS.values():
        design = criterion(X)
        assert list(design.support) == ["run 0", "run 5", "run 10"]
        assert list(design.information.columns) == ["1", "x", "xx"]
        assert design.rounded(9).index.equals(X.index)
        assert design.sensitivity.idxmax() in design.support
        assert design.efficiency_of(design.rounded(8)) > 0.8
        assert pickle.loads(pickle.dumps(design)).weights.equals(design.weights)
        assert "optimal" in repr(design)
    pandas.testing.assert_frame_equal(X, before)
    plain = bo.d_optimal(X.to_numpy())
    with pytest.raises(ValueError, match="read-only"):
        plain.weights[0] = 1


def test_drawings_of_sensitivities():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    x = np.linspace(-1, 1, 41)
    line = bo.d_optimal(polynomial(x, 1)).plot()
    assert line.get_xlabel() == "column 1"
    cubic = bo.d_optimal(polynomial(x, 3))
    ranked = cubic.plot()
    np.testing.assert_allclose(ranked.lines[0].get_ydata(), np.sort(cubic.sensitivity)[::-1])
    assert "(-1, 1, -1)" in ranked.texts[0].get_text()
    np.testing.assert_allclose(cubic.plot(x).lines[0].get_ydata(), cubic.sensitivity)
    with pytest.raises(ValueError, match="places has shape"):
        cubic.plot(x[1:])
    a, b = (each.ravel() for each in np.meshgrid(x[::8], x[::8]))
    bo.a_optimal(np.column_stack([np.ones(36), a, b, a * b])).plot(np.column_stack([a, b]))
    pyplot.close("all")


# Capacities


def test_water_filling_is_exact():
    rng = np.random.default_rng(0)
    for k in (1, 2, 7, 50):
        gains = rng.exponential(size=k) * 10.0 ** rng.integers(-6, 6, k)
        gains[rng.random(k) < 0.2] = 0
        gains[0] = 1.0
        for total in (1e-6, 1.0, 1e6):
            found = bo.water_filling(gains, total)
            assert found.status == "optimal"
            assert found.power.sum() == pytest.approx(total)
            used = found.power > 0
            depth = np.divide(1, gains, out=np.full(k, np.inf), where=gains > 0)
            np.testing.assert_allclose((found.power + depth)[used], found.level, rtol=1e-9)
            assert (depth[~used] >= found.level * (1 - 1e-12)).all()
            assert found.capacity == pytest.approx(np.log2(1 + gains * found.power).sum())
            assert found.capacity <= found.bound <= found.capacity * (1 + 1e-9)


def test_parallel_channels_are_a_diagonal_matrix():
    gains = np.array([3.0, 1.0, 0.2])
    parallel = bo.water_filling(gains, 2.0)
    matrix = bo.mimo_capacity(np.diag(np.sqrt(gains)), 2.0)
    assert matrix.capacity == pytest.approx(parallel.capacity)
    np.testing.assert_allclose(matrix.covariance, np.diag(parallel.power), atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "is_complex"), turns([(1, 1), (2, 2), (2, 4), (4, 2), (3, 3)], [False, True])
)
def test_the_capacity_of_a_matrix(shape, is_complex):
    rng = np.random.default_rng(1)
    H = rng.normal(size=shape) + (1j * rng.normal(size=shape) if is_complex else 0)
    free = bo.mimo_capacity(H, 3.0)
    loose = bo.mimo_capacity(H, 3.0, antenna_power=3.0)
    tight = bo.mimo_capacity(H, 3.0, antenna_power=0.4 * np.ones(shape[1]))
    assert loose.capacity == pytest.approx(free.capacity, rel=1e-6)
    assert tight.capacity < free.capacity
    for found in (free, loose, tight):
        Q = found.covariance
        assert found.status == "optimal"
        assert np.linalg.eigvalsh(Q)[0] >= -1e-12
        assert np.trace(Q).real <= 3 * (1 + 1e-12)
        _, value = np.linalg.slogdet(np.eye(shape[0]) + H @ Q @ H.conj().T)
        assert value / np.log(2) == pytest.approx(found.capacity)
    assert tight.covariance.diagonal().real.max() <= 0.4 * (1 + 1e-12)
    # Twice over in real numbers.
    G = np.block([[H.real, -H.imag], [H.imag, H.real]])
    Q = cp.Variable((2 * shape[1], 2 * shape[1]), PSD=True)
    rows = [cp.trace(Q) <= 6, cp.diag(Q) <= 0.4]
    peer = ask(cp.Problem(cp.Maximize(cp.log_det(np.eye(2 * shape[0]) + G @ Q @ G.T)), rows))
    peer.agrees(2 * np.log(2) * tight.capacity, 2 * np.log(2) * (tight.bound - tight.capacity))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: bo.water_filling([], 1), ValueError, "gains has no value above 0"),
        (lambda: bo.water_filling([1, -1], 1), ValueError, "gains has"),
        (lambda: bo.water_filling([1], 0), ValueError, "power is 0"),
        (lambda: bo.water_filling([[1]], 1), ValueError, "gains has 2 dimensions"),
        (lambda: bo.mimo_capacity(np.zeros((2, 2)), 1), ValueError, "H is zero"),
        (lambda: bo.mimo_capacity(np.eye(2), 1, antenna_power=[1]), ValueError, "antenna_power has shape"),
        (
            lambda: bo.mimo_capacity(np.eye(2), 1, antenna_power=0),
            ValueError,
            "antenna_power has the value 0",
        ),
    ],
)
def test_bad_channels(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_labels_of_channels():
    pandas = pytest.importorskip("pandas")
    found = bo.water_filling(pandas.Series([2.0, 1.0], index=["a", "b"]), 1.0)
    assert list(found.power.index) == ["a", "b"]
    assert "bits" in repr(found)


@pytest.mark.parametrize("power", [1e-69, 1e-30, 1e-9, 1.0, 1e9, 1e69])
@pytest.mark.parametrize("unit", [1e-60, 1.0, 1e60])
def test_water_filling_at_any_ratio_of_power_and_noise(power, unit):
    gains = np.array([1.0, 1.0, 0.5, 1e-20, 0.0]) * unit
    found = bo.water_filling(gains, power)
    p = found.power
    assert found.status == "optimal"
    assert p.sum() == pytest.approx(power, rel=1e-12)
    price = gains / (1 + gains * p)
    assert (price <= price[p > 0].min() * (1 + 1e-9)).all()
    assert found.capacity == pytest.approx(np.log1p(gains * p).sum() / np.log(2), rel=1e-12, abs=0)


def test_the_capacity_of_more_receivers_than_antennas_counts_no_round_off():
    H, power = np.outer([1.0, 2.0, 3.0], [1e5]), 1.0
    found = bo.mimo_capacity(H, power, antenna_power=1.0)
    assert found.capacity == pytest.approx(np.log2(1 + 14e10), rel=1e-6)


@pytest.mark.parametrize(
    ("is_complex", "gain"), turns([False, True], [1e-40, 1e-12, 1e-8, 1e-6, 1e-4, 1e-2, 1e6, 1e20, 1e60])
)
def test_the_capacity_of_bounded_antennas_at_any_gain(gain, is_complex):
    rng = np.random.default_rng(3)
    h = rng.normal(size=(1, 4)) + (1j * rng.normal(size=(1, 4)) if is_complex else 0)
    bounds = np.array([0.1, 0.4, 0.05, 0.2])
    found = bo.mimo_capacity(h * np.sqrt(gain), 1.0, bounds)
    # All antennas transmit one signal in phase, with all of their power.
    capacity = np.log1p(gain * float(np.abs(h[0]) @ np.sqrt(bounds)) ** 2) / np.log(2)
    assert found.status == "optimal"
    assert found.capacity <= capacity * (1 + 1e-12) <= found.bound * (1 + 2e-12)
    assert found.capacity == pytest.approx(capacity, rel=1e-6, abs=0)


def test_channels_and_candidates_whose_squares_vanish_are_refused():
    with pytest.raises(ValueError, match="gains has magnitude 1e-300; expected"):
        bo.water_filling([1e-300], 1.0)
    with pytest.raises(ValueError, match="H has magnitude 1e-200; expected"):
        bo.mimo_capacity([[1e-200]], 1.0)
    for design in (bo.d_optimal, bo.a_optimal, bo.e_optimal):
        with pytest.raises(ValueError, match="candidates has magnitude 1e-200 in column 1; expected"):
            design([[1.0, 1e-200], [1.0, 0.0]])


@pytest.mark.parametrize("design", [bo.d_optimal, bo.a_optimal, bo.e_optimal])
def test_information_that_is_singular_up_to_round_off(design):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 4)) * [1.0, 1e-6, 1.0, 1e6]
    with pytest.raises(ValueError, match="candidates determine 3 of 4 parameters"):
        design(np.einsum("mi,mj->mij", rows, rows)[[0, 1, 2, 0, 1]])


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_budgets_that_leave_hardly_any_room():
    """The weights keep them, and nearly all is on the cheapest candidate."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        rows, costs = rng.normal(size=(6, 2)), rng.random(6)
        budget = float(costs.min()) * 1.001
        found = bo.d_optimal(rows, costs=costs, budget=budget)
        assert found.weights.sum() == pytest.approx(1)
        assert found.weights @ costs <= budget + 1e-6
        others = np.delete(costs, costs.argmin()).min() - costs.min()
        assert 1 - found.weights[costs.argmin()] <= (budget - costs.min() + 1e-6) / others


@pytest.mark.parametrize("design", [bo.d_optimal, bo.a_optimal, bo.e_optimal])
def test_a_prior_alone_and_one_candidate(design):
    empty = design(np.zeros((2, 2)), prior=np.eye(2))
    assert empty.status == "optimal"
    np.testing.assert_array_equal(empty.information, np.eye(2))
    alone = design([[2.0]], lower=1.0)
    assert alone.status == "optimal"
    assert alone.weights.tolist() == [1.0]


def test_numbers_of_runs_beyond_floats_are_refused():
    with pytest.raises(ValueError, match="runs is above"):
        bo.d_optimal(np.eye(2)).rounded(10**400)


@pytest.mark.parametrize(
    ("budget", "design"), turns([1.2, 1.76, 1.9], [bo.d_optimal, bo.a_optimal, bo.e_optimal])
)
def test_tight_budgets(design, budget):
    """The first weights exceed the budget and are better than all that are allowed: they ended the method."""
    X, costs = np.random.default_rng(0).normal(size=(8, 3)), np.arange(1.0, 9)
    found = design(X, costs=costs, budget=budget)
    assert found.status == "optimal"
    assert costs @ found.weights <= budget * (1 + 1e-12)
    for k in range(200):  # no design within the budget is better
        w = np.random.default_rng(k).dirichlet(np.full(8, 0.3))
        cheap = np.eye(8)[0]
        share = min(1.0, (budget - 1) / max(costs @ w - 1, 1e-9))
        assert found.efficiency_of((1 - share) * cheap + share * w) <= 1 - 1e-6


@pytest.mark.parametrize("design", [bo.a_optimal, bo.e_optimal])
def test_parameters_of_unlike_units_are_told(design):
    rows = polynomial(np.linspace(0, 100, 21), 2)
    with pytest.warns(bo.DataWarning, match=r"from 1 .* to 4\.\d+e\+03 .*parameters in unlike units"):
        found = design(rows, tol=1e-6)
    like = design(rows / np.sqrt(np.mean(rows**2, axis=0)))  # no warning
    assert like.efficiency_of(found.weights) < 0.9  # the question matters
    assert bo.d_optimal(rows).status == "optimal"
