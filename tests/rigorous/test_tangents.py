"""Proven bounds of problems with entropies: intervals hold closed forms, and enclosures true slopes."""

import numpy as np
import pytest
from samples import turns

import bregopt as bo
from bregopt.program.convex_functions import hvec
from bregopt.program.matrix_entropies import TraceLog
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.divergences import Spectrum, _differences

Z, F = np.diag([1.0, -1.0]), np.array([[0, 1], [1, 0.0]])
SMALL = 1e-14  # what a closed form loses in doubles


def bb84(q, hermitian):
    rho = bo.PSD(4, hermitian=hermitian)
    errors = [(np.eye(4) - np.kron(s, s)) / 2 for s in (Z, F)]
    key = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)]
    rows = [bo.trace(rho) == 1, *(bo.inner(E, rho) == q for E in errors)]
    return bo.Problem(bo.Minimize(bo.key_rate(rho, pinching=key)), rows)


@pytest.mark.parametrize(("hermitian", "q"), turns([False, True], [1e-4, 0.05, 0.11]))
def test_key_rates_are_theorems(q, hermitian):
    rate = np.log(2) + q * np.log(q) + (1 - q) * np.log(1 - q)
    found = bb84(q, hermitian).solve().verify()
    assert found.lower - SMALL <= rate <= found.upper + SMALL
    assert found.upper - found.lower <= 1e-8
    assert "doubles" in found.given[-1]


def test_relative_entropies():
    A, B, X = bo.PSD(3), bo.PSD(3), bo.PSD(3)
    rows = [bo.diag(A) == [0.5, 0.3, 0.2], bo.trace(B) == 1, B[0, 0] == 0.2]
    both = bo.Problem(bo.Minimize(bo.quantum_rel_entr(A, B)), rows).solve().verify()
    exact = 0.5 * np.log(0.5 / 0.2) + 0.5 * np.log(0.5 / 0.8)
    assert both.lower - SMALL <= exact <= both.upper + SMALL
    assert both.upper - both.lower <= 1e-8
    C = np.diag([0.7, 0.2, 0.1])
    second = (
        bo.Problem(bo.Minimize(bo.quantum_rel_entr(C, X)), [bo.trace(X) == 1, X[0, 0] <= 0.6])
        .solve()
        .verify()
    )
    exact = 0.7 * np.log(0.7 / 0.6) + 0.3 * np.log(0.3 / 0.4)
    assert second.lower - SMALL <= exact <= second.upper + SMALL
    assert second.upper - second.lower <= 1e-8


def test_free_energies_of_random_hamiltonians():
    rng = np.random.default_rng(0)
    for _ in range(5):
        H = rng.standard_normal((4, 4))
        H, X = H + H.T, bo.PSD(4)
        problem = bo.Problem(bo.Maximize(bo.von_neumann_entr(X) - bo.inner(H, X)), [bo.trace(X) == 1])
        found = problem.solve().verify()
        exact = np.log(np.exp(-np.linalg.eigvalsh(H)).sum())
        assert found.lower - SMALL <= exact <= found.upper + SMALL
        assert found.upper - found.lower <= 1e-6


def test_maximum_entropy_of_numbers():
    p, eyes = bo.Variable(6), np.arange(1, 7)
    sol = bo.Problem(bo.Maximize(bo.sum(bo.entr(p))), [bo.sum(p) == 1, eyes @ p == 4.5]).solve()
    found = sol.verify()
    weights = np.exp(0.3710489387 * eyes)  # Jaynes's die
    exact = -np.sum(weights / weights.sum() * np.log(weights / weights.sum()))
    assert found.lower <= sol.value + sol.error
    assert found.lower <= exact + 1e-9
    assert found.upper >= exact - 1e-9


def test_what_is_not_proven_has_a_reason():
    w = bo.Variable(2)
    free = bo.Problem(bo.Minimize(bo.sum(bo.exp(w)) - bo.sum(w))).solve().verify()
    assert free.lower == -np.inf
    assert free.reasons["lower"]
    x = bo.Variable(4)
    unbounded = bo.Problem(bo.Maximize(bo.sum(x)), [bo.log_sum_exp(x) <= 1]).solve().verify()
    assert "give free variables a box" in unbounded.reasons["upper"]


def check_width(problem, exact, width=2e-9):
    found = problem.solve(tol=1e-9).verify()
    size = max(abs(exact), 1e-300)
    assert found.lower <= exact + 1e-14 * size
    assert found.upper >= exact - 1e-14 * size
    assert found.upper - found.lower <= width * size


@pytest.mark.parametrize(("size", "hermitian"), turns([1e-6, 1.0, 1e6], [False, True]))
def test_an_entropy_in_a_row(size, hermitian):
    """The least energy at a given entropy is that of a Gibbs state."""
    rng = np.random.default_rng(3)
    H = rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3)) * hermitian
    H = size * ((H + H.conj().T) if hermitian else (H + H.T).real)
    levels = np.linalg.eigvalsh(H)
    p = np.exp(-levels / size) / np.exp(-levels / size).sum()
    rho = bo.PSD(3, hermitian=hermitian)
    rows = [bo.trace(rho) == 1, bo.von_neumann_entr(rho) >= float(-p @ np.log(p))]
    check_width(bo.Problem(bo.Minimize(bo.inner(H, rho)), rows), float(p @ levels))


def test_relative_entropies_and_exponentials_in_rows():
    rng = np.random.default_rng(4)
    p, q, d = bo.Variable(5), rng.random(5), rng.standard_normal(5)
    tilted = q * np.exp(2 * d) / (q @ np.exp(2 * d))
    rows = [bo.sum(p) == 1, bo.sum(bo.rel_entr(p, q)) <= float(tilted @ np.log(tilted / q))]
    check_width(bo.Problem(bo.Maximize(d @ p), rows), float(d @ tilted))
    x = bo.Variable(4)
    check_width(bo.Problem(bo.Minimize(bo.sum(x)), [bo.exp(-x) <= 2.0]), -4 * np.log(2))
    box = [bo.log_sum_exp(x) <= 1, x >= -5, x <= 5]
    check_width(bo.Problem(bo.Maximize(bo.sum(x)), box), 4 * (1 - np.log(4)))


def test_the_largest_error_rate_of_a_key():
    """BB84 with one rate known: the other is where the key rate in nats is ``log 2 - h(q)``."""
    q, rho = 0.07, bo.PSD(4)
    signs = np.diag([1.0, -1.0]), np.array([[0, 1.0], [1, 0]])
    errors = [(np.eye(4) - np.kron(s, s)) / 2 for s in signs]
    key = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)]
    rate = float(np.log(2) + q * np.log(q) + (1 - q) * np.log1p(-q))
    rows = [bo.trace(rho) == 1, bo.inner(errors[0], rho) == 0.02, bo.key_rate(rho, pinching=key) <= rate]
    rows.append(bo.inner(errors[1], rho) <= 0.5)
    check_width(bo.Problem(bo.Minimize(bo.inner(errors[1], rho)), rows), q, 1e-8)


@pytest.mark.parametrize("near", [0.0, 1e-12, 1e-3, 0.5])
def test_divided_differences_are_enclosed(near):
    """Sixty digits of mpmath are inside."""
    mpmath = pytest.importorskip("mpmath")
    d = np.array([0.3, 0.3 * (1 + near), 2.0])
    found = _differences(d)
    with mpmath.workdps(60):
        for i in range(3):
            for j in range(3):
                a, b = mpmath.mpf(d[i]), mpmath.mpf(d[j])
                exact = 1 / a if a == b else (mpmath.log(a) - mpmath.log(b)) / (a - b)
                assert abs(exact - mpmath.mpf(found.mid[i, j])) <= mpmath.mpf(found.rad[i, j])
                assert found.rad[i, j] <= 1e-12 * abs(found.mid[i, j])


def test_logarithms_are_enclosed_in_the_order_of_matrices():
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(1)
    Q, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    Y = (Q * [1e-9, 1e-4, 0.3, 1.0]) @ Q.T
    Y = (Y + Y.T) / 2
    spectrum = Spectrum(Ball.exact(Y))
    with mpmath.workdps(60):
        E, V = mpmath.eigsy(mpmath.matrix(Y.tolist()))
        exact = V * mpmath.diag([mpmath.log(e) for e in E]) * V.T
        for below in (True, False):
            K = spectrum.logarithm(below)
            gap = (exact - mpmath.matrix(K.mid.tolist())) * (1 if below else -1)
            slack = float(np.linalg.norm(K.rad))
            assert min(mpmath.eigsy(gap, eigvals_only=True)) >= -slack
            assert float(mpmath.norm(gap)) <= 1e-5  # the least eigenvalue is known to 1e-7 of itself


def test_a_derivative_of_the_logarithm_is_enclosed():
    rng = np.random.default_rng(2)
    G, H = rng.standard_normal((2, 3, 3))
    Y, C = G @ G.T + 0.1 * np.eye(3), H @ H.T
    spectrum = Spectrum(Ball.exact(Y)).itself()
    found = spectrum.derivative(spectrum.turned(Ball.exact(C)))
    floats = -TraceLog(C, False).at(hvec(Y)).gradient
    assert (np.abs(hvec(found.mid) - floats) <= hvec(found.rad) + 1e-12).all()
    assert found.rad.max() <= 1e-12


def test_a_nearly_singular_second_argument():
    """Only its own logarithm sees it: the relative entropy from A to the states with one entry given."""
    A, B = bo.PSD(3), bo.PSD(3)
    C, least = np.diag([0.6, 0.4, 0.0]), 1e-8
    rows = [bo.trace(A) == 1, bo.inner(C, A) >= 0.55, bo.trace(B) == 1, B[2, 2] == least, A[2, 2] == least]
    found = bo.Problem(bo.Minimize(bo.quantum_rel_entr(A, B)), rows).solve().verify()
    assert found.lower <= 0 <= found.upper  # A = B
    assert found.upper - found.lower <= 1e-5


def proven_width(problem, exact, **options):
    """Return the width of the proven interval, which holds the closed form."""
    found = problem.solve(**options).verify()
    assert found.lower - SMALL <= exact <= found.upper + SMALL
    return found.upper - found.lower


def test_rows_that_bound_the_trace_together():
    """No row has the diagonal alone: only their sum bounds the trace."""
    X = bo.PSD(2)
    rows = [bo.inner(np.eye(2) + s * F, X) == 1 + 0.4 * s for s in (0.5, -0.5)]
    exact = -0.7 * np.log(0.7) - 0.3 * np.log(0.3)
    assert proven_width(bo.Problem(bo.Maximize(bo.von_neumann_entr(X)), rows), exact) <= 1e-9


@pytest.mark.parametrize("weight", [0.5, 0.9, 0.999])
def test_entanglement_of_pure_states(weight):
    """The relative entropy to the states of positive partial transpose is the entropy of one part."""
    psi = np.sqrt([weight, 0, 0, 1 - weight])
    turn = np.kron(*np.linalg.qr(np.random.default_rng(1).standard_normal((2, 2, 2)))[0])
    pure, Y = np.outer(turn @ psi, turn @ psi), bo.PSD(4, hermitian=True)
    rows = [bo.trace(Y) == 1, bo.partial_transpose(Y, (2, 2), 1) >> 0]
    entropy = -weight * np.log(weight) - (1 - weight) * np.log(1 - weight)
    assert proven_width(bo.Problem(bo.Minimize(bo.quantum_rel_entr(pure, Y)), rows), entropy) <= 1e-8


def test_feasible_matrices_near_the_boundary():
    """The largest least eigenvalue of a feasible matrix is 1e-9."""
    X, p = bo.PSD(3), np.array([1e-9, 0.3, 0.7 - 1e-9])
    rows = [bo.trace(X) == 1, X[0, 0] == p[0], X[1, 1] == p[1], X[0, 1] == 0]
    assert proven_width(bo.Problem(bo.Maximize(bo.von_neumann_entr(X)), rows), -p @ np.log(p)) <= 1e-8


def test_images_with_eigenvalues_below_round_off():
    """A Kraus operator of singular values 1 and 1e-8: its image has eigenvalues near 1e-18."""
    rho, K = bo.PSD(4), np.kron(np.eye(2), np.diag([1, 1e-8]))
    key = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)]
    rows = [bo.trace(rho) == 1, bo.inner(np.kron(F, np.diag([1.0, 0])), rho) == 0.4, rho[0, 0] == 0.25]
    rows += [rho[2, 2] == 0.25]
    d = np.array([0.45, 0.05])  # of [[.25, .2], [.2, .25]], whose pinching is I / 4
    exact = d @ np.log(d) - 0.5 * np.log(0.25)
    problem = bo.Problem(bo.Minimize(bo.key_rate(rho, kraus=[K], pinching=key)), rows)
    assert proven_width(problem, exact) <= 1e-8


def test_rows_that_contradict_each_other_beside_an_entropy():
    X = bo.PSD(3)
    rows = [bo.trace(X) == 1, X[0, 0] == 0.3, X[1, 1] == 0.3, X[0, 1] == 0.31]
    found = bo.Problem(bo.Maximize(bo.von_neumann_entr(X)), rows).solve().verify()
    assert found.upper == -np.inf


@pytest.mark.parametrize("n", [2, 3])
def test_equal_states_have_no_relative_entropy(n):
    """The slacks vanish, so that multipliers are as good as they fit the slopes."""
    A, B = bo.PSD(n), bo.PSD(n)
    problem = bo.Problem(bo.Minimize(bo.quantum_rel_entr(A, B)), [bo.trace(A) == 1, bo.trace(B) == 1])
    found = problem.solve().verify()
    assert found.lower <= 0 <= found.upper
    assert found.upper - found.lower <= 1e-12
