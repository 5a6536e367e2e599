"""Bregman projections: closed forms, the interior-point method, and what they do not take."""

import numpy as np
import pytest
from samples import first
from scipy.optimize import minimize
from scipy.special import logsumexp, xlogy

import bregopt as bo
from bregopt.routes.entropy.blahut_arimoto import BlahutArimoto
from bregopt.routes.entropy.standard_form import StandardForm


def unbiased(d, rate):
    """Return the key rate of two parts that agree in two bases, and the value (Sheridan, Scarani 2010)."""
    fourier = np.exp(2j * np.pi * np.outer(range(d), range(d)) / d) / np.sqrt(d)
    turn = np.kron(fourier, fourier.conj())
    agree = np.diag(np.eye(d).ravel()).astype(complex)
    rho = bo.PSD(d * d, hermitian=True)
    rows = [bo.trace(rho) == 1]
    rows += [bo.inner(A, rho) == 1 - rate for A in (agree, turn @ agree @ turn.conj().T)]
    key = [np.kron(np.diag(e), np.eye(d)) for e in np.eye(d)]
    exact = np.log(d) + rate * np.log(rate / max(d - 1, 1)) + (1 - rate) * np.log(1 - rate)
    return bo.Problem(bo.Minimize(bo.key_rate(rho, pinching=key)), rows), exact


def measured():
    """Return the key rate of a noisy entangled state of which six random observables are measured."""
    rng = np.random.default_rng(1)
    rho, phi = bo.PSD(4), np.eye(2).ravel() / np.sqrt(2)
    state = 0.4 * np.outer(phi, phi) + 0.15 * np.eye(4)
    observables = [M + M.T for M in rng.standard_normal((6, 4, 4))]
    rows = [bo.trace(rho) == 1, *(bo.inner(M, rho) == np.vdot(M, state) for M in observables)]
    key = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)]
    return bo.Problem(bo.Minimize(bo.key_rate(rho, pinching=key)), rows)


def method_of(problem):
    program = problem.program()
    form = StandardForm(program)
    assert BlahutArimoto.takes(form)
    return BlahutArimoto(program, form)


@pytest.mark.parametrize("d", [2, 3, 4, 6])
def test_mutually_unbiased_bases(d):
    problem, exact = unbiased(d, 0.07)
    sol = problem.solve(tol=1e-10)
    assert sol.status == "optimal"
    assert sol.iterations <= 3
    assert abs(sol.value - exact) <= sol.error + 1e-14
    assert sol.dual_value <= exact + 1e-13


def test_problems_without_symmetry_agree_with_the_interior_point_method():
    problem = measured()
    sol = problem.solve(tol=1e-9)
    path = problem.solve(tol=1e-9, solver="entropy", projections=False)
    assert sol.status == path.status == "optimal"
    assert abs(sol.value - path.value) <= sol.error + path.error
    method = method_of(problem)
    at = method.first()
    for _ in range(25):
        at = method.advance(at)
    np.testing.assert_allclose(at.W, at.own, atol=1e-9)  # the fixed point


@pytest.mark.parametrize("hermitian", [False, True])
def test_a_gibbs_state_is_one_projection(hermitian):
    rng = np.random.default_rng(0)
    H = rng.standard_normal((30, 30)) + 1j * rng.standard_normal((30, 30)) * hermitian
    H = (H + H.conj().T if hermitian else (H + H.T).real) / 5
    rho = bo.PSD(30, hermitian=hermitian)
    entropy = bo.von_neumann_entr(rho)
    sol = bo.Problem(bo.Minimize(bo.inner(H, rho) - 2 * entropy), [bo.trace(rho) == 1]).solve(tol=1e-10)
    exact = -2 * np.log(np.exp(-np.linalg.eigvalsh(H) / 2).sum())
    assert sol.iterations == 0
    assert abs(sol.value - exact) <= sol.error + 1e-12


def test_what_is_not_of_the_form():
    X, u = bo.PSD(3), bo.Variable(nonneg=True)
    entropy = bo.Maximize(bo.von_neumann_entr(X))
    for rows in ([bo.trace(X) <= 1], [bo.trace(X) + u == 1], []):
        assert not BlahutArimoto.takes(StandardForm(bo.Problem(entropy, rows).program()))
    image = bo.Maximize(bo.von_neumann_entr(np.diag([1.0, 2, 3]) @ X @ np.diag([1.0, 2, 3])))
    assert not BlahutArimoto.takes(StandardForm(bo.Problem(image, [bo.trace(X) == 1]).program()))


def test_states_that_are_singular_at_the_optimum():
    """Rows that nearly fix a pure state: projections may fail there, the answer must not."""
    X, v = bo.PSD(3), np.array([1.0, 1, 1]) / np.sqrt(3)
    rows = [bo.trace(X) == 1, bo.inner(np.outer(v, v), X) == 1 - 1e-9]
    sol = bo.Problem(bo.Maximize(bo.von_neumann_entr(X)), rows).solve(tol=1e-9)
    exact = -(1 - 1e-9) * np.log1p(-1e-9) - 1e-9 * np.log(1e-9 / 2)
    assert abs(sol.value - exact) <= max(sol.error, 1e-10)


def rate(source, most):
    """Return the least information of a state and its image that is within a distance of its purification."""
    d, U = np.linalg.eigh(source)
    n = len(d)
    psi = ((U * np.sqrt(d)) @ U.conj().T).ravel()
    X = bo.PSD(n * n, hermitian=np.iscomplexobj(source))
    away = bo.inner(np.eye(n * n) - np.outer(psi, psi.conj()), X)
    rows = [bo.partial_trace(X, (n, n), keep=0) == source, away <= most]
    information = float(-d @ np.log(d)) - bo.quantum_cond_entr(X, (n, n), 0)
    return bo.Problem(bo.Minimize(information), rows)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_rate_of_a_uniform_source(n):
    """Optimal states are isotropic; within the distance ``1 - 1 / n^2`` nothing need be sent."""
    most = 0.4
    exact = 2 * np.log(n) + xlogy(most, most / (n**2 - 1)) + xlogy(1 - most, 1 - most)
    problem = rate(np.eye(n) / n, most)
    assert BlahutArimoto.takes(StandardForm(problem.program()))
    sol = problem.solve(tol=1e-10)
    assert sol.status == "optimal"
    assert abs(sol.value - exact) <= sol.error + 1e-14
    assert sol.dual_value <= exact + 1e-13
    slope = np.log((1 - most) * (n**2 - 1) / most)  # minus the derivative of the rate
    assert problem.constraints[1].dual_value == pytest.approx(slope, rel=1e-7)
    free = rate(np.eye(n) / n, 1 - 0.5 / n**2)
    assert abs(free.solve(tol=1e-10).value) <= 1e-12
    assert free.constraints[1].dual_value == 0


@pytest.mark.parametrize(
    ("n", "most", "hermitian"),
    first(2, [(3, 0.3, True), (4, 0.5, False), (4, 0.5, True), (3, 0.7, True)]),
)
def test_rates_agree_with_the_interior_point_method(n, most, hermitian):
    """The last image of the state is nearly singular, where steps without mixing are slow."""
    rng = np.random.default_rng(n)
    G = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n)) * hermitian
    source = G @ G.conj().T / np.linalg.norm(G) ** 2
    problem = rate(source if hermitian else source.real, most)
    sol, path = (problem.solve(tol=1e-8, projections=own) for own in (True, False))
    assert sol.status == path.status == "optimal"
    assert abs(sol.value - path.value) <= sol.error + path.error
    proven = sol.verify()
    assert proven.lower - 1e-12 <= path.value <= proven.upper + path.error
    method = method_of(problem)
    at = method.first()
    for _ in range(60):
        if method.certificate(at).meets(1e-8):
            break
        at = method.advance(at)
    assert method.certificate(at).meets(1e-8)


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_maximum_entropy_of_numbers_is_one_projection(size, signs):
    """It agrees with the interior-point method; the optimum is exponential in the rows."""
    rng = np.random.default_rng(0)
    F, prior, weights = rng.standard_normal((3, 40)), rng.random(40) + 0.1, rng.random(40) + 0.5
    p = bo.Variable(40)
    rows = [bo.sum(p) == size, F @ p == size * F @ (prior / prior.sum()) + 0.01 * size]
    rows += [p >= 0] if signs else []
    problem = bo.Problem(bo.Minimize(bo.sum(weights * bo.kl_div(p, size * prior))), rows)
    other, sol = (problem.solve(tol=1e-9, solver="entropy", projections=own) for own in (False, True))
    assert sol.status == other.status == "optimal"
    assert sol.iterations == 0
    assert abs(sol.value - other.value) <= sol.error + other.error
    slopes = weights * np.log(p.value / (size * prior))
    table = np.vstack([np.ones(40), F])
    assert np.abs(slopes - np.linalg.lstsq(table.T, slopes, rcond=None)[0] @ table).max() < 1e-12


def test_maximum_entropy_without_an_answer():
    p, eyes = bo.Variable(6), np.arange(1, 7)
    for mean in (6.001, 7.0):
        rows = [bo.sum(p) == 1, eyes @ p == mean]
        assert bo.Problem(bo.Maximize(bo.sum(bo.entr(p))), rows).solve().status == "infeasible"


def test_projections_that_overflow_leave_the_problem_to_the_interior_point_method():
    """A key rate of weight 1e-6 beside a cost: mixing leads far outside, where exponentials overflow."""
    C = np.array([[0.01065975, -0.00255518], [-0.00255518, -0.00997043]])
    rho = bo.PSD(2)
    rate = bo.key_rate(rho, pinching=[np.diag([1.0, 0]), np.diag([0, 1.0])])
    sol = bo.Problem(bo.Minimize(1e-6 * (rate + bo.inner(C, rho))), [bo.trace(rho) == 1]).solve(tol=1e-9)

    def cost(z):
        p, c = np.sin(z[0]) ** 2, np.tanh(z[1]) * abs(np.sin(2 * z[0])) / 2
        X = np.array([[p, c], [c, 1 - p]])
        entropies = [d * np.log(d) for d in (*np.linalg.eigvalsh(X).clip(1e-300), 1e-300)]
        return sum(entropies) - xlogy(p, p) - xlogy(1 - p, 1 - p) + np.vdot(C, X)

    found = minimize(cost, [1e-3, 0.1], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-16})
    assert sol.status == "optimal"
    assert abs(1e6 * sol.value - found.fun) < 1e-8


def test_costs_that_overflow():
    """Of numbers the optimum is ``-log sum exp(-c)``, in which no exponential is a double."""
    p, c = bo.Variable(50), np.linspace(-3000.0, -2500.0, 50)
    sol = bo.Problem(bo.Minimize(c @ p - bo.sum(bo.entr(p))), [bo.sum(p) == 1]).solve(tol=1e-9)
    assert sol.status == "optimal"
    assert sol.iterations == 0
    assert sol.value == pytest.approx(-logsumexp(-c), rel=1e-12)
