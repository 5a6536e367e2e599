"""Bounds on the largest eigenvalue: the language, spectra, certificates, reductions and refusals."""

import re

import numpy as np
import peers
import pytest
from problem_library import positive_definite
from samples import turns

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify, is_farkas, is_ray
from bregopt.certify.slacks import capped_term
from bregopt.divergences import Frobenius, LogDet, TraceDivergence, VonNeumann
from bregopt.presolve import presolve
from bregopt.program import Nearness
from bregopt.routes import routing
from bregopt.routes.base import Settings

DIVERGENCES = {"von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div, "logdet": bo.logdet_div}
SPECTRAL = ("von_neumann", "frobenius")


class Cube(TraceDivergence):
    """``phi(x) = x^3 / 3``, a divergence of a user's own."""

    name = "cube"

    def function(self, x):
        return np.where(x >= -1e-12, np.maximum(x, 0) ** 3 / 3, np.inf)

    def slope(self, x):
        return np.maximum(x, 0) ** 2

    def curvature(self, x):
        return 2 * np.maximum(x, 1e-6)

    def conjugate_slope(self, theta):
        return np.sqrt(np.maximum(theta, 0))


def symmetric(rng, n):
    A = rng.normal(size=(n, n))
    return (A + A.T) / 2


def capped_problem(kind, n, seed, scale=1.0, share=0.6):
    rng = np.random.default_rng(seed)
    X0 = positive_definite(n, seed)
    cap = share * np.linalg.eigvalsh(X0)[-1]
    Z = rng.normal(size=(3, n)) / np.sqrt(n)
    forms = np.einsum("ki,ij,kj->k", Z, X0, Z)
    X = bo.PSD(n, name="X")
    constraints = [
        bo.quad_form(Z, X) <= 0.9 * scale * forms,
        bo.trace(X) == 0.8 * scale * min(np.trace(X0), n * cap),
        bo.lambda_max(X) <= scale * cap,
    ]
    return bo.Problem(bo.Minimize(DIVERGENCES[kind](X, scale * X0)), constraints), scale * cap


# --- the language -----------------------------------------------------------------------------------


def test_bound_is_data_of_the_block():
    X, Y = bo.PSD(3, name="X"), bo.PSD(2, name="Y")
    caps = [bo.lambda_max(X) <= 2, np.float64(1.5) >= bo.lambda_max(X)]
    problem = bo.Problem(bo.Minimize(bo.trace(X) + bo.trace(Y)), [caps, bo.diag(Y) >= 1])
    assert [block.cap for block in problem.program().blocks] == [1.5, None]
    assert problem.program().m == 2
    assert "lambda_max(X) <= 1.5" in [c.label for c in problem.constraints]
    assert repr(caps[0]) == "EigenvalueBound(lambda_max(X) <= 2)"
    problem.solve()
    assert caps[0].dual_value is None
    assert len(problem.solution.duals) == 3


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda X: bo.lambda_max(X) >= 1, TypeError, "bounded from above only"),
        (lambda X: bo.lambda_max(X) == 1, TypeError, "only affine expressions may be equated"),
        (lambda X: bo.lambda_max(X) <= np.nan, ValueError, "NaN"),
        (lambda X: bo.lambda_max(X) <= 1e-300, ValueError, "magnitude"),
        (lambda X: bo.lambda_max(np.eye(3)), ValueError, "no variable"),
        (lambda X: bo.soft(bo.lambda_max(X) <= 1), TypeError, "soft takes a constraint"),
        (lambda X: bo.between(bo.lambda_max(X), 0, 1), TypeError, "not affine"),
        (lambda X: bool(bo.lambda_max(X) <= 1), TypeError, "truth value"),
    ],
)
def test_other_uses_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(bo.PSD(3, name="X"))


def test_what_cannot_hold_a_cap_refuses_it(tmp_path):
    X = bo.PSD(3, name="X")
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [bo.lambda_max(X) <= 2, bo.diag(X) >= 1])
    with pytest.raises(ValueError, match=re.escape("X + S == 2 * np.eye(3)")):
        bo.write_sdpa(problem, tmp_path / "file.dat-s")
    solution = problem.solve()
    assert solution.dimacs is None
    with pytest.raises(ValueError, match="lambda_max"):
        bo.dimacs_errors(problem, solution)
    for solver in ("path", "psdboost", "lowrank", "definiteboost"):
        with pytest.raises(bo.UnsupportedProblemError, match="bound on eigenvalues"):
            problem.solve(solver=solver)
    problem, _ = capped_problem("von_neumann", 4, 0)
    with pytest.raises(bo.UnsupportedProblemError, match="no bound on eigenvalues"):
        problem.solve(solver="bregman", method="cyclic")
    for divergence in (
        bo.logdet_div(X, np.eye(3)),
        bo.frobenius_div(X, np.eye(3), weights=np.ones((3, 3)) + np.eye(3)),
    ):
        capped = bo.Problem(bo.Minimize(divergence), [bo.lambda_max(X) <= 0.5])
        with pytest.raises(bo.UnsupportedProblemError, match="no bound on eigenvalues with"):
            capped.solve(solver="bregman")
        solution = peers.reference(capped, within=1e-5)
        assert np.allclose(solution.X, np.eye(3) / 2, atol=1e-3)


def test_specification_knows_the_atom():
    from bregopt.io.evaluate import evaluate

    bound = evaluate("lambda_max(X) <= 0.5", {"X": bo.PSD(2, name="X")})
    assert bound.cap == 0.5


# --- spectra ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [VonNeumann, Frobenius, Cube])
def test_spectrum_is_the_minimizer_with_its_derivative(make):
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 8):
        divergence, W, mu = make(positive_definite(n, n)), symmetric(rng, n), 0.7
        cap = 0.5 * np.linalg.eigvalsh(divergence.spectrum(W, mu).X)[-1]
        spectrum = divergence.spectrum(W, mu, cap)

        def lagrangian(X, divergence=divergence, W=W, mu=mu):
            return np.vdot(W, X) + mu * divergence.value(X)

        assert np.linalg.eigvalsh(spectrum.X)[-1] <= cap * (1 + 1e-12)
        assert spectrum.term == pytest.approx(lagrangian(spectrum.X), rel=1e-10, abs=1e-10)
        assert spectrum.term == pytest.approx(divergence.dual_term(W, mu, spectrum.X, cap), rel=1e-10)
        for _ in range(20):  # no other matrix below the cap is better
            Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
            other = (Q * rng.uniform(0, cap, size=n)) @ Q.T
            mixed = 0.9 * spectrum.X + 0.1 * other
            assert lagrangian(mixed) >= spectrum.term - 1e-10
        S, step = symmetric(rng, n), 1e-6
        ahead, behind = (divergence.spectrum(W - sign * step * S, mu, cap).X for sign in (1, -1))
        product = spectrum.derivative(S)
        found = product.share * S + (product.L @ product.R.T + product.R @ product.L.T) / 2
        assert np.allclose(found, (ahead - behind) / (2 * step), atol=1e-5)
        q = np.eye(n)
        slope = [np.vdot(np.outer(e, e), divergence_of(spectrum, np.outer(e, e))) for e in q]
        assert np.allclose(spectrum.curvature(q @ spectrum.V), slope)


def divergence_of(spectrum, S):
    product = spectrum.derivative(S)
    return product.share * S + (product.L @ product.R.T + product.R @ product.L.T) / 2


@pytest.mark.parametrize("make", [VonNeumann, Frobenius])
def test_a_cap_that_does_not_bind_changes_nothing(make):
    divergence, W = make(positive_definite(5, 1)), symmetric(np.random.default_rng(1), 5)
    free, capped = divergence.spectrum(W, 1.0), divergence.spectrum(W, 1.0, 1e3)
    assert np.array_equal(free.X, capped.X)
    assert free.term == capped.term
    S = symmetric(np.random.default_rng(2), 5)
    assert np.allclose(divergence_of(free, S), divergence_of(capped, S))


def test_capped_exponential_does_not_overflow():
    divergence = VonNeumann(np.eye(3))
    W = -np.diag([2000.0, 1.0, 0.0])
    assert divergence.spectrum(W, 1.0) is None
    spectrum = divergence.spectrum(W, 1.0, 2.0)
    assert np.allclose(np.linalg.eigvalsh(spectrum.X), [1, 2, 2])
    assert np.isfinite(spectrum.differences).all()


def test_dual_term_of_logdet_is_the_minimum():
    rng = np.random.default_rng(3)
    X0, W, mu, cap = positive_definite(4, 3), symmetric(rng, 4), 0.5, 0.4
    divergence = LogDet(X0)
    z, Q = np.linalg.eigh(np.linalg.inv(X0) + W / mu)
    X = (Q * np.where(z > 1 / cap, 1 / np.abs(z), cap)) @ Q.T
    assert divergence.dual_term(W, mu, X, cap) == pytest.approx(np.vdot(W, X) + mu * divergence.value(X))


# --- answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "seed"), turns(DIVERGENCES, range(3)))
def test_interval_overlaps_with_cvxpys(kind, seed):
    import cvxpy as cp

    n = 5
    problem, cap = capped_problem(kind, n, seed)
    solution = problem.solve(tol=1e-6) if kind in SPECTRAL else peers.reference(problem, within=1e-5)
    assert solution.solver == ("bregman" if kind in SPECTRAL else "cvxpy")
    assert np.linalg.eigvalsh(solution.X)[-1] <= cap * (1 + 1e-6)
    assert np.sum(np.linalg.eigvalsh(solution.X) > 0.999 * cap) >= 1  # the cap is active
    free = problem.program()
    peer = problem.to_cvxpy()
    assert len(peer.constraints) == len(problem.constraints)
    assert isinstance(peer.constraints[-1], cp.constraints.PSD)
    assert free.capped
    peers.ask(peer, "CLARABEL").confirms(solution)


@pytest.mark.parametrize("kind", SPECTRAL)
def test_scale_invariance(kind):
    problem, _ = capped_problem(kind, 6, 5)
    usual = problem.solve(tol=1e-9)
    for scale in (1e-6, 1e5):
        scaled = capped_problem(kind, 6, 5, scale)[0].solve(tol=1e-9)
        assert scaled.status == usual.status == "optimal"
        assert np.allclose(scaled.X / scale, usual.X, atol=1e-7 * np.linalg.norm(usual.X))


def test_scale_does_not_hide_a_small_cap():
    X = bo.PSD(3)
    A = np.diag([1.0, -1.0, 2.0])
    problem = bo.Problem(bo.Minimize(bo.inner(A, X)), [bo.lambda_max(X) <= 1e-6, bo.trace(X) <= 100])
    program = problem.program()
    zero = certify(PrimalDualPoint(program, (np.zeros((3, 3)),), np.zeros(0), np.zeros(1)))
    assert zero.dual == pytest.approx(-1e-6)
    assert zero.gap == pytest.approx(1)
    best = certify(PrimalDualPoint(program, (np.diag([0, 1e-6, 0]),), np.zeros(0), np.zeros(1)))
    assert best.meets(1e-12)
    t = bo.Variable(lower=0)
    priced = bo.Problem(bo.Minimize(t - bo.trace(X)), [bo.lambda_max(X) <= 1e-6, t >= 0]).program()
    idle = certify(PrimalDualPoint(priced, (np.zeros((3, 3)),), np.zeros(1), np.zeros(1)))
    assert idle.gap == pytest.approx(1)


def test_low_rank_start():
    rng = np.random.default_rng(6)
    G = rng.normal(size=(8, 3))
    eigenvalues = np.linalg.eigvalsh(G.T @ G)
    cap = 0.6 * eigenvalues[-1]
    for div in (bo.von_neumann_div, bo.logdet_div):
        X = bo.PSD(8)
        problem = bo.Problem(bo.Minimize(div(X, bo.LowRank(G))), [bo.lambda_max(X) <= cap])
        solution = problem.solve(tol=1e-6)
        assert solution.status == "optimal"
        assert np.allclose(solution.X.eigenvalues(), np.minimum(eigenvalues, cap), rtol=2e-3)


def test_soft_rows_parameters_and_warm_starts():
    X, X0, limit = bo.PSD(4), positive_definite(4, 2), bo.Parameter(value=0.5)
    Z = np.random.default_rng(2).normal(size=(3, 4))
    cap = 0.5 * np.linalg.eigvalsh(X0)[-1]
    rows = [bo.lambda_max(X) <= cap, bo.soft(bo.quad_form(Z, X) <= 0.5, gamma=2.0), X[0, 0] >= limit]
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, X0)), rows)
    for value in (0.5, 1.0):
        limit.value = value
        solution = problem.solve(solver="bregman", warm_start=value > 0.5, tol=1e-8)
        assert solution.status == "optimal"
        peers.ask(problem.to_cvxpy(), "CLARABEL").agrees(solution.value, solution.error)


def test_many_inequalities_run_on_a_working_set():
    n = 10
    X, X0 = bo.PSD(n), positive_definite(n, 8)
    Z = np.random.default_rng(8).normal(size=(800, n))
    w, Q = np.linalg.eigh(X0)
    cap = 0.6 * w[-1]
    forms = (Z @ Q) ** 2 @ np.minimum(w, cap)
    rows = [
        bo.quad_form(Z, X) <= 0.97 * forms,
        bo.trace(X) >= 0.9 * np.minimum(w, cap).sum(),
        bo.lambda_max(X) <= cap,
    ]
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, X0)), rows)
    assert any("working set" in line.choice for line in routing.routes(problem.program()))
    solution = problem.solve(solver="bregman", tol=1e-8)
    assert solution.status == "optimal"
    assert np.count_nonzero(solution.duals[0]) > 1
    assert np.linalg.eigvalsh(solution.X)[-1] <= cap * (1 + 1e-8)


def test_cap_with_fixed_diagonal_is_not_undone():
    """A matrix scaled to the diagonal would be above the cap: the method must not end with one."""
    n, rng = 6, np.random.default_rng(9)
    A = symmetric(rng, n) + 2 * np.ones((n, n))
    X = bo.PSD(n)
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1, bo.lambda_max(X) <= 2])
    solution = problem.solve(solver="bregman", tol=1e-8)
    assert solution.status == "optimal"
    assert np.linalg.eigvalsh(solution.X)[-1] <= 2 * (1 + 1e-8)
    peers.ask(problem.to_cvxpy(), "CLARABEL").agrees(solution.value, solution.error)


# --- certificates -----------------------------------------------------------------------------------


def test_residual_and_cost_of_an_excess():
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(bo.inner(-np.eye(2), X)), [bo.lambda_max(X) <= 0.5])
    certificate = certify(PrimalDualPoint(problem.program(), (0.6 * np.eye(2),), np.zeros(0), np.zeros(0)))
    assert certificate.primal_residual == pytest.approx(0.2)
    assert certificate.dual == pytest.approx(-1)
    assert certificate.error == pytest.approx(0.2 + 0.2)


def test_bound_is_rigorous_for_any_multipliers():
    rng = np.random.default_rng(10)
    for kind in (*DIVERGENCES, None):
        for seed in range(5):
            n = 4
            X = bo.PSD(n)
            X0, A = positive_definite(n, seed), symmetric(rng, n)
            near = 0 if kind is None else DIVERGENCES[kind](X, X0)
            objective = bo.Minimize(bo.inner(A, X) + near)
            program = bo.Problem(
                objective, [bo.inner(symmetric(rng, n), X) == 0.1, bo.lambda_max(X) <= 0.7]
            ).program()
            for _ in range(10):
                Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
                point = (Q * rng.uniform(1e-3, 0.7, n)) @ Q.T
                y = rng.normal(size=1)
                found = PrimalDualPoint(program, (point,), np.zeros(0), y)
                lagrangian = found.primal + float(y @ (0.1 - found.activity))
                assert found.bound.value <= lagrangian + 1e-10
                assert found.bound.residual == 0


def test_divergence_without_a_capped_minimum_is_bounded_by_a_multiplier():
    rng = np.random.default_rng(11)
    X0, W, H = positive_definite(3, 0), symmetric(rng, 3), np.ones((3, 3)) + np.eye(3)
    weighted = Nearness("frobenius", X0, 1.0, {"weights": H})
    Q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    bound = capped_term(weighted, W, X0, 0.3)
    for _ in range(50):
        X = (Q * rng.uniform(0, 0.3, 3)) @ Q.T
        assert bound <= np.vdot(W, X) + np.linalg.norm(H * (X - X0)) ** 2


def test_farkas_vectors_count_the_cap():
    X = bo.PSD(4)
    for cap, contradicts in ((0.2499, True), (0.2501, False)):
        program = bo.Problem(
            bo.Minimize(0 * bo.trace(X)), [bo.trace(X) == 1, bo.lambda_max(X) <= cap]
        ).program()
        assert is_farkas(program, np.ones(1)) == contradicts
        assert not is_farkas(program, -np.ones(1))
        assert not is_ray(program, (np.eye(4),), np.zeros(0))


@pytest.mark.parametrize("kind", SPECTRAL)
def test_infeasible(kind):
    X = bo.PSD(5)
    rows = [bo.diag(X) >= np.arange(5) / 10, bo.trace(X) == 2, bo.lambda_max(X) <= 0.39]
    solution = bo.Problem(bo.Minimize(DIVERGENCES[kind](X, positive_definite(5, 1))), rows).solve()
    assert solution.status == "infeasible"


def test_unbounded_objectives_are_bounded_by_a_cap():
    X, t = bo.PSD(3), bo.Variable(lower=0)
    problem = bo.Problem(bo.Maximize(bo.trace(X) - t), [bo.lambda_max(X) <= 2])
    assert peers.reference(problem, within=1e-6).value == pytest.approx(6, abs=1e-4)
    free = bo.Problem(bo.Maximize(bo.trace(X) + t), [bo.lambda_max(X) <= 2])
    assert free.solve().status == "unbounded"


# --- reductions -------------------------------------------------------------------------------------


def test_reductions_keep_the_cap():
    problem, cap = capped_problem("logdet", 5, 0)
    ill = np.diag(10.0 ** np.arange(-8, 0, 2.0).repeat(1)[:4])
    X = bo.PSD(4)
    program = bo.Problem(bo.Minimize(bo.logdet_div(X, ill)), [bo.lambda_max(X) <= 1e-3]).program()
    assert presolve(program, ["whitening"], Settings()).program is program
    scaled = presolve(program, ["scaling"], Settings()).steps[-1]
    V = scaled.V[0]
    assert scaled.program.blocks[0].cap * V[0, 0] ** 2 == pytest.approx(1e-3)
    assert np.allclose(V, V[0, 0] * np.eye(4))
    whole = problem.program()
    for name in ("boxes", "slacks", "independent rows", "faces"):
        reduced = presolve(whole, [name], Settings()).program
        assert reduced.blocks[0].cap == cap
    with pytest.raises(AssertionError):
        whole.restrict(0, 2 * np.eye(5), np.eye(5))
