"""The round-off that value and bound share counts in the error: log X0, inv X0, and an X that is not psd.

The optima are exact: spectra of powers of two in Hadamard bases, or 60 digits of mpmath. Where the condition
of the data hides the tolerance, no answer is "optimal".
"""

from __future__ import annotations

import math
import warnings

import mpmath
import numpy as np
import pytest
from samples import first, turns

import bregopt as bo
from bregopt.arrays import EPS
from bregopt.certify import PrimalDualPoint, certify, row_residuals
from bregopt.certify.restoration import on_rows
from bregopt.divergences import DIVERGENCES, LogDet, VonNeumann
from bregopt.linalg import eigenvalues_of
from bregopt.program.stacks import STACKED

mpmath.mp.dps = 60
LOSS = {
    "von_neumann": lambda a, b: a * mpmath.log(a / b) - a + b,
    "logdet": lambda a, b: a / b - mpmath.log(a / b) - 1,
}
ATOMS = {"von_neumann": bo.von_neumann_div, "logdet": bo.logdet_div}
UNITS = {"von_neumann": np.sum, "logdet": lambda eigenvalues: 1.0}


def hadamard(n):
    H = np.ones((1, 1))
    while len(H) < n:
        H = np.block([[H, H], [H, -H]])
    return H


def with_spectrum(H, eigenvalues):
    """Return the matrix with eigenvectors in the columns of `H`, exact for powers of two."""
    return (H * eigenvalues) @ H.T / len(H)


def solved(objective, rows, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        return bo.Problem(bo.Minimize(objective), rows).solve(**options)


def off(sol, truth):
    return abs(float(truth - mpmath.mpf(float(sol.value))))


def check(sol, truth, tol, unit):
    """Check all that an answer says: status, error and bound."""
    assert off(sol, truth) <= sol.error * (1 + 1e-6)
    assert mpmath.mpf(float(sol.dual_value)) <= truth + mpmath.mpf(float(sol.error))
    if sol.status == "optimal":
        assert off(sol, truth) <= 1.1 * tol * max(abs(float(truth)), unit / 100)
    else:
        assert sol.status in ("optimal_inaccurate", "inaccurate", "user_limit")


def in_high_precision(A):
    return mpmath.matrix(np.asarray(A).tolist())


class TestExactSpectra:
    @pytest.mark.parametrize("kind", ["von_neumann", "logdet"])
    @pytest.mark.parametrize("exponent", [12, 24, 30, 36, 44, 46, 48])
    def test_one_eigenvalue(self, kind, exponent):
        H, eigenvalues = hadamard(4), np.array([1, 1, 0.5, 2.0**-exponent])
        X = bo.PSD(4)
        rows = [bo.inner(np.outer(H[3], H[3]), X) == 4]
        sol = solved(ATOMS[kind](X, with_spectrum(H, eigenvalues)), rows)
        truth = LOSS[kind](mpmath.mpf(1), mpmath.mpf(2) ** -exponent)
        check(sol, truth, 1e-6, UNITS[kind](eigenvalues))
        assert exponent == 30 or (sol.status == "optimal") == (exponent < 30)

    @pytest.mark.parametrize(("kind", "seed"), turns(["von_neumann", "logdet"], range(8)))
    def test_several_eigenvalues(self, kind, seed):
        rng = np.random.default_rng(seed)
        H, scale = hadamard(8), 2.0 ** rng.choice([-20, 0, 20])
        eigenvalues = scale * 2.0 ** -rng.integers(0, rng.integers(20, 46), 8)
        eigenvalues[0] = scale
        own = np.flatnonzero(rng.random(8) < 0.5)
        factors = np.where(rng.random(8) < 0.5, scale / eigenvalues, 1.0) * 2.0 ** rng.choice(
            [-2, -1, 1, 2], 8
        )
        targets = factors * eigenvalues
        truth = mpmath.fsum(LOSS[kind](mpmath.mpf(targets[k]), mpmath.mpf(eigenvalues[k])) for k in own)
        for tol in (1e-4, 1e-8):
            X = bo.PSD(8)
            rows = [bo.inner(np.outer(H[k], H[k]), X) == 8 * targets[k] for k in own]
            sol = solved(ATOMS[kind](X, with_spectrum(H, eigenvalues)), rows, tol=tol)
            check(sol, truth, tol, UNITS[kind](eigenvalues))

    @pytest.mark.parametrize("kind", ["von_neumann", "logdet"])
    def test_a_low_rank_X0(self, kind):
        H, roots = hadamard(8)[:, :3], 2.0 ** -np.array([0, 7, 20])
        X = bo.PSD(8)
        rows = [bo.inner(np.outer(H[:, 2], H[:, 2]), X) == 64]
        sol = solved(ATOMS[kind](X, bo.LowRank(H * roots)), rows, tol=1e-6)
        check(sol, LOSS[kind](mpmath.mpf(8), mpmath.mpf(8) * mpmath.mpf(2) ** -40), 1e-6, 8.0)

    @pytest.mark.parametrize("kind", ["von_neumann", "logdet"])
    @pytest.mark.parametrize("exponent", [10, 40])
    def test_a_hermitian_matrix(self, kind, exponent):
        U = np.array([[1j ** (a * b) for a in range(4)] for b in range(4)])
        eigenvalues = np.array([1, 0.25, 1, 2.0**-exponent])
        X = bo.PSD(4, hermitian=True)
        rows = [bo.inner(np.outer(U[:, 3], U[:, 3].conj()), X) == 4]
        sol = solved(ATOMS[kind](X, (U * eigenvalues) @ U.conj().T / 4), rows)
        check(sol, LOSS[kind](mpmath.mpf(1), mpmath.mpf(2) ** -exponent), 1e-6, 2.25)

    @pytest.mark.parametrize("exponent", [8, 44])
    def test_a_log_determinant(self, exponent):
        eigenvalues = 2.0 ** -np.array([0, exponent / 2, exponent, 3])
        C, X = with_spectrum(hadamard(4), eigenvalues), bo.PSD(4)
        truth = 4 + mpmath.fsum(mpmath.log(mpmath.mpf(t)) for t in eigenvalues)
        check(solved(bo.inner(C, X) - bo.log_det(X), []), truth, 1e-6, 4.0)

    def test_a_graphical_lasso(self):
        eigenvalues = 2.0 ** -np.array([0, 20, 40, 3])
        S = with_spectrum(hadamard(4), eigenvalues)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            sol = bo.graphical_lasso(S, 2.0**-60, tol=1e-6)
        truth = 4 + mpmath.fsum(mpmath.log(mpmath.mpf(t)) for t in eigenvalues)
        assert off(sol, truth) <= sol.error
        assert sol.error >= EPS * 2**38  # the round-off of both determinants


def test_the_reason_names_condition_and_digits():
    H, X = hadamard(4), bo.PSD(4, name="X")
    X0 = with_spectrum(H, np.array([1, 1, 0.5, 2.0**-40]))
    sol = solved(bo.von_neumann_div(X, X0), [bo.inner(np.outer(H[3], H[3]), X) == 4])
    assert sol.status == "optimal_inaccurate"
    assert "X0 of X has condition 1.1e+12: in doubles the objective is known to 2.0e-03, " in sol.stop_reason
    assert "and tol asks for 2.7e-05." in sol.stop_reason


class TestEvaluationErrors:
    """The errors of the divergences themselves, in random bases."""

    @pytest.mark.parametrize(("kind", "condition"), turns(["von_neumann", "logdet"], [1e3, 1e8, 1e13]))
    def test_bound_the_round_off(self, kind, condition):
        rng = np.random.default_rng(int(math.log10(condition)))
        for n in (2, 5, 9):
            Q, _ = np.linalg.qr(rng.standard_normal((n, n)))
            X0 = (Q * condition ** -np.linspace(0, 1, n)) @ Q.T
            X0 = (X0 + X0.T) / 2
            G = rng.standard_normal((n, n))
            for X in (G @ G.T + 0.1 * np.eye(n), np.outer(Q[:, -1], Q[:, -1]) + 1e-3 * np.eye(n)):
                divergence = DIVERGENCES[kind](X0)
                error = divergence.evaluation_error(X)
                found = abs(float(_exact(kind, X, X0) - mpmath.mpf(divergence.value(X))))
                assert found <= error
                # It is no larger than the condition explains.
                size = float(np.trace(X)) + (condition * np.trace(X) if kind == "logdet" else 1.0)
                assert error <= 2e3 * n**2 * EPS * condition * size

    @pytest.mark.parametrize("kind", ["frobenius", "von_neumann", "logdet"])
    def test_of_stacks_are_those_of_single_matrices(self, kind):
        rng = np.random.default_rng(5)
        G = rng.standard_normal((3, 4, 4))
        X0, X = G @ np.swapaxes(G, 1, 2) + np.eye(4), np.eye(4) + np.zeros((3, 4, 4))
        errors = STACKED[kind](X0).evaluation_error(X)
        for k in range(3):
            single = DIVERGENCES[kind](X0[k]).evaluation_error(X[k])
            assert errors[k] == pytest.approx(single, rel=1e-6 if kind != "frobenius" else 1e3)

    def test_nothing_is_known_beyond_the_condition_of_doubles(self):
        for divergence, least in ((VonNeumann, 2.0**-50), (LogDet, 2.0**-51)):
            X0 = with_spectrum(hadamard(4), np.array([1, 1, 0.5, least]))
            assert divergence(X0).evaluation_error(np.eye(4)) == math.inf

    def test_well_conditioned_problems_are_optimal_at_tight_tolerances(self):
        for kind, atom in ATOMS.items():
            X, X0 = bo.PSD(4), with_spectrum(hadamard(4), np.array([1, 1, 0.5, 0.25]))
            sol = bo.Problem(bo.Minimize(atom(X, X0)), [bo.diag(X) == 1, X[0, 1] == 0.5]).solve(tol=1e-10)
            assert sol.status == "optimal", kind


def _exact(kind, X, X0):
    X, X0 = in_high_precision(X), in_high_precision(X0)
    (x, _), (x0, Q) = mpmath.eigsy(X), mpmath.eigsy(X0)
    B = Q.T * X * Q
    n = len(x)
    if kind == "logdet":
        of_X0 = mpmath.fsum(B[i, i] / x0[i] + mpmath.log(x0[i]) for i in range(n))
        return of_X0 - mpmath.fsum(map(mpmath.log, x)) - n
    of_X0 = mpmath.fsum(x0[i] - B[i, i] * mpmath.log(x0[i]) for i in range(n))
    return of_X0 + mpmath.fsum(t * mpmath.log(t) - t for t in x)


@pytest.mark.parametrize("kind", ["von_neumann", "logdet"])
def test_a_small_row_is_met_relative_to_itself(kind):
    """At X0 the row misses half of its value, but only 2e-8 of the size of X0."""
    H, eigenvalues = hadamard(4), np.array([1, 1, 0.5, 2.0**-24])
    X = bo.PSD(4)
    X0, rows = with_spectrum(H, eigenvalues), [bo.inner(np.outer(H[3], H[3]), X) == 2 * 2.0**-24]
    program = bo.Problem(bo.Minimize(ATOMS[kind](X, X0)), rows).program()
    at_X0 = certify(PrimalDualPoint(program, (X0,), np.zeros(0), np.zeros(1)))
    assert at_X0.primal_residual > 0.1
    truth = LOSS[kind](mpmath.mpf(2.0**-25), mpmath.mpf(2.0**-24))
    check(solved(ATOMS[kind](X, X0), rows, tol=1e-4), truth, 1e-4, UNITS[kind](eigenvalues))


class TestNegativeParts:
    def test_the_error_counts_the_multiplier_times_the_negative_part(self):
        """For <C, X> with trace one, at an X with an eigenvalue of -1e-4, <C, X> is 1e-3 too low.

        The value is raised by the cost of the negative part, here to that of the optimum.
        """
        C = np.diag([1.0, 11.0])
        X = bo.PSD(2)
        program = bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.trace(X) == 1]).program()
        point = PrimalDualPoint(program, (np.diag([1 + 1e-4, -1e-4]),), np.zeros(0), np.ones(1))
        assert point.primal == pytest.approx(1 - 1e-3, rel=1e-9)
        found = certify(point)
        assert found.primal == pytest.approx(1, rel=1e-9)
        assert found.dual == pytest.approx(1, rel=1e-9)
        assert found.error >= 2e-3 * (1 - 1e-9)  # the distance of value and bound, and the negative part

    def test_one_free_entry(self):
        """The audit's instance: the optimum is 1/128, where X is singular."""
        A = np.array([[1, -0.5, -0.5, 0], [-0.5, 1, 0, -0.75], [-0.5, 0, 1, -0.5], [0, -0.75, -0.5, 1]])
        W = np.ones((4, 4))
        W[1, 3] = W[3, 1] = 0.25
        sol = bo.nearest_correlation(A, weights=W, fixed=[[0, 1], [0, 2], [0, 3], [1, 2], [2, 3]])
        assert abs(sol.value - 1 / 128) <= sol.error
        np.linalg.cholesky(sol.X + 1e-12 * np.eye(4))
        assert np.abs(sol.X - A)[W == 1].max() <= 1e-14

    @pytest.mark.parametrize("seed", first(6, range(20)))
    def test_random_entries_are_free_and_the_others_fixed(self, seed):
        A, W, fixed, truth = _one_free_entry(np.random.default_rng(seed))
        for tol in (1e-4, 1e-8):
            sol = bo.nearest_correlation(A, weights=W, fixed=fixed, tol=tol)
            assert off(sol, truth) <= sol.error * (1 + 1e-6)
            np.linalg.cholesky(sol.X + 1e-12 * np.eye(len(A)))
            assert max(abs(sol.X[i, j] - A[i, j]) for i, j in fixed) <= tol

    @pytest.mark.parametrize("seed", first(3, range(10)))
    def test_weights_over_decades_give_psd_matrices(self, seed):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 12))
        A, W = rng.uniform(-1, 1, (n, n)), 10.0 ** rng.uniform(-3, 1, (n, n))
        A, W = np.triu(A, 1), np.triu(W) + np.triu(W, 1).T
        A = A + A.T + np.eye(n)
        W[0, 1] = W[1, 0] = 0.0
        sol = bo.nearest_correlation(A, weights=W, missing="unknown" if seed % 2 else "error")
        np.linalg.cholesky(sol.X + 1e-12 * np.eye(n))


def _one_free_entry(rng):
    """Return a problem in which one entry is free: it is the end of an interval in closed form."""
    while True:
        n = int(rng.integers(3, 7))
        A = np.triu(rng.integers(-3, 4, (n, n)) / 4, 1)
        A = A + A.T + np.eye(n)
        i, j, rest = 0, 1, range(2, n)
        K = in_high_precision(A[np.ix_(rest, rest)])
        if min(np.linalg.eigvalsh(A[np.ix_(rest, rest)])) < 1e-3:
            continue
        a, b = in_high_precision(A[rest, i]), in_high_precision(A[rest, j])
        inverse = K**-1
        square = (1 - (a.T * inverse * a)[0]) * (1 - (b.T * inverse * b)[0])
        if (1 - (a.T * inverse * a)[0]) < 1e-3 or (1 - (b.T * inverse * b)[0]) < 1e-3:
            continue
        middle, reach = (a.T * inverse * b)[0], mpmath.sqrt(square)
        entry = min(max(mpmath.mpf(A[i, j]), middle - reach), middle + reach)
        W = np.full((n, n), 2.0 ** rng.integers(-6, 6))
        W[i, j] = W[j, i] = w = 2.0 ** rng.integers(-12, 6)
        fixed = [[k, m] for k in range(n) for m in range(k + 1, n) if (k, m) != (i, j)]
        return A, W, fixed, 2 * mpmath.mpf(w) ** 2 * (entry - mpmath.mpf(A[i, j])) ** 2


@pytest.mark.parametrize("width", [0, 1, 5, 11])
def test_eigenvalues_of_a_permuted_band(width, rng):
    n = 500
    S = np.zeros((n, n))
    for k in range(width + 1):
        S[np.arange(n - k), np.arange(k, n)] = rng.standard_normal(n - k)
    S[rng.integers(n, size=20)] = 0.0
    order = rng.permutation(n)
    S = (S + S.T)[np.ix_(order, order)]
    expected = np.linalg.eigvalsh(S)
    np.testing.assert_allclose(eigenvalues_of(S), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_infeasible_band():
    n, w = 600, 2
    X = bo.PSD(n)
    i, j = np.triu_indices(n)
    i, j = i[j - i <= w], j[j - i <= w]
    value = np.select([j == i, j - i == 1], [1.0, 0.9], -0.9)  # three variables contradict each other
    assert bo.Problem(bo.Minimize(bo.trace(X)), [X[i, j] == value]).solve().status == "infeasible"
    value[j - i == 2] = 0.81
    assert bo.Problem(bo.Minimize(bo.trace(X)), [X[i, j] == value]).solve().status == "optimal"


def test_the_least_change_puts_tiny_entries_on_their_rows():
    """Round-off of the large entries is much beside a row of entries of 1e-8."""
    rng = np.random.default_rng(2)
    v = np.array([1.0, 0.5, -0.7, 1e-4, 2e-4, -1e-4])
    exact, X = np.outer(v, v), bo.PSD(6)
    rows = [X[3, 3] == X[5, 5], X[3, 4] + 2 * X[3, 5] == 0, X[0, 3] + X[0, 5] == 0, bo.trace(X) == v @ v]
    program = bo.Problem(bo.Minimize(X[0, 1]), [*rows, X[4, 4] <= 4e-8]).program()
    noise = rng.normal(size=(6, 6)) * 1e-14
    off_rows = exact + noise + noise.T + np.diag([0, 0, 0, 0, 1e-14, 0])
    (moved,) = on_rows(program, (off_rows,), np.zeros(0))
    before, after = (
        row_residuals(PrimalDualPoint(program, (M,), np.zeros(0), np.zeros(program.m)))
        for M in (off_rows, moved)
    )
    assert before.max() > 1e-7
    assert after.max() <= 1e-11
    assert np.linalg.norm(moved - exact) <= 4 * np.linalg.norm(off_rows - exact)


def test_a_change_to_rows_keeps_the_inequalities_that_it_would_violate():
    """The sum moves all of its entries down, and one of them is at its bound."""
    X = bo.PSD(3)
    rows = [X >= 0, X[0, 1] + X[0, 2] + X[1, 2] == 2e-8, bo.trace(X) == 3]
    program = bo.Problem(bo.Minimize(X[0, 1]), rows).program()
    off_rows = np.eye(3)
    off_rows[[0, 1], [1, 0]] = off_rows[[0, 2], [2, 0]] = 1e-8 + 1e-13
    (moved,) = on_rows(program, (off_rows,), np.zeros(0))
    assert program.bounds.violation(program.activity((moved,), np.zeros(0))).max() <= 1e-22
    assert np.abs(moved - off_rows).max() <= 2e-13
