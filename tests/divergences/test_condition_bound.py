"""Divergences over matrices of bounded condition: minimizers, derivatives, bounds, and the language."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import bregopt as bo
from bregopt.divergences.trace_function import CONDITIONED

NAMES = tuple(CONDITIONED)


def start(rng, n=5):
    F = rng.normal(size=(n, n + 2))
    return F @ F.T / n


def symmetric(rng, n=5):
    W = rng.normal(size=(n, n))
    return (W + W.T) / 2


@hypothesis.given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(NAMES),
    kappa=st.floats(1, 1e4),
    floor=st.sampled_from([0.0, 1e-3, 0.5]),
)
def test_the_level_is_the_best_one(seed, name, kappa, floor):
    """For each fixed `t` the minimizer is a clip; the best `t` is found by a scalar search."""
    rng = np.random.default_rng(seed)
    D = CONDITIONED[name](start(rng), condition=kappa, floor=floor)
    theta = np.linalg.eigvalsh(symmetric(rng)) - (1.5 if name == "logdet" else 0.0)

    def value(log_t):
        t = max(np.exp(log_t), floor, 1e-12)
        x = np.clip(D.conjugate_slope(theta), t, kappa * t)
        return float(D.function(x).sum() - theta @ x)

    if name == "logdet":
        hypothesis.assume(theta.max() < -1e-3)
    t = D._level_of(theta)
    grid = np.linspace(-14, 6, 400)
    near = grid[np.argmin([value(g) for g in grid])]
    best = minimize_scalar(value, bounds=(near - 0.1, near + 0.1), method="bounded", options={"xatol": 1e-10})
    assert value(np.log(max(t, 1e-12))) <= best.fun + 1e-7 * max(1, abs(best.fun))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bounds", [{"condition": 4.0}, {"floor": 0.4}, {"condition": 30.0, "floor": 0.2}])
def test_derivative_against_finite_differences(name, bounds, rng):
    D, h = CONDITIONED[name](start(rng), **bounds), 1e-6
    W, S = 0.3 * symmetric(rng), symmetric(rng)
    if name == "logdet":
        W += 0.5 * np.eye(5)
    move = D.spectrum(W, 1.5).derivative(S)
    found = move.share * S + (move.L @ move.R.T + move.R @ move.L.T) / 2
    found = found if move.M is None else found + move.M
    ahead, behind = (D.spectrum(W - sign * h * S, 1.5).X for sign in (1, -1))
    np.testing.assert_allclose(found, (ahead - behind) / (2 * h), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_curvatures_are_those_of_the_derivative(name, rng):
    D = CONDITIONED[name](start(rng), condition=5.0)
    spectrum = D.spectrum(0.2 * symmetric(rng) + 0.3 * np.eye(5), 1.0)
    for i in range(5):
        E = np.zeros((5, 5))
        E[i, i] = 1
        move = spectrum.derivative(E)
        found = ((move.L @ move.R.T + move.R @ move.L.T) / 2 + (0 if move.M is None else move.M))[i, i]
        assert spectrum.curvature(spectrum.V[i : i + 1])[0] == pytest.approx(found)
        assert spectrum.entry_curvature()[i, i] == pytest.approx(found)


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_is_valid_and_tight(name, rng):
    X0, kappa = start(rng), 6.0
    D = CONDITIONED[name](X0, condition=kappa)
    W, mu = 0.2 * symmetric(rng) + 0.3 * np.eye(5), 0.7
    spectrum = D.spectrum(W, mu)
    bound = D.dual_term(W, mu, X0)
    assert np.vdot(W, spectrum.X) + mu * D.value(spectrum.X) == pytest.approx(bound)
    for _ in range(50):
        x = rng.uniform(1, kappa, 5) * rng.uniform(0.05, 2)
        Q, _ = np.linalg.qr(rng.normal(size=(5, 5)))
        X = (Q * x) @ Q.T
        assert np.vdot(W, X) + mu * D.value((X + X.T) / 2) >= bound - 1e-9


def test_there_is_no_minimizer_beyond_the_range_of_doubles(rng):
    D = CONDITIONED["von_neumann"](start(rng), condition=2.0)
    assert D.spectrum(-1e4 * np.eye(5), 1.0) is None
    assert D.dual_term(-1e4 * np.eye(5), 1.0, np.eye(5)) == -np.inf


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_divergence_inside_and_infinite_outside(name, rng):
    X0 = start(rng)
    D = CONDITIONED[name](X0, condition=3.0, floor=0.5)
    Q, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    inside, low, wide = ((Q * x) @ Q.T for x in ([1, 1.5, 2, 2.5, 2.9], [0.4, 1, 1, 1, 1], [1, 1, 1, 1, 3.1]))
    X = bo.PSD(5)
    plain = bo.bregman_div(X, X0, name).terms[0].atom
    assert D.value((inside + inside.T) / 2) == pytest.approx(plain.numbers(inside))
    assert D.value(low) == D.value(wide) == np.inf


def test_the_language_reads_writes_and_pickles_it(tmp_path, rng):
    X0 = start(rng)
    X = bo.PSD(5, name="X")
    objective = bo.bregman_div(X, X0, "logdet", condition=4.0, floor=0.1)
    prob = bo.Problem(bo.Minimize(objective), [bo.diag(X) == 1])
    value = prob.solve().value
    prob.to_spec(tmp_path / "problem.toml")
    assert bo.load_spec(tmp_path / "problem.toml").solve().value == pytest.approx(value)
    with pytest.raises(NotImplementedError, match="bounds on the eigenvalues is not known in CVXPY"):
        prob.to_cvxpy()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"condition": 0.5}, r"condition is 0\.5; expected a number from 1"),
        ({"condition": np.nan}, "condition is nan"),
        ({"condition": "5"}, "condition is '5'"),
        ({"floor": -1.0}, r"floor is -1\.0; expected a number from 0"),
    ],
)
def test_bad_bounds_are_named(name, bounds, message):
    with pytest.raises(ValueError, match=message):
        bo.bregman_div(bo.PSD(3), np.eye(3), name, **bounds)
