"""The accuracy of answers to weighted nearness problems whose optimum was chosen first."""

import numpy as np
import pytest
from samples import turns
from scipy.linalg import expm

import bregopt as bo
from bregopt.certify import accuracy
from bregopt.certify.weights import cone_curvature

EPS = np.finfo(float).eps
WEIGHTS = ("a decade", "six decades", "no weight")


def symmetric(A):
    return np.triu(A) + np.triu(A, 1).T


class Known:
    """Weights, a correlation matrix ``X``, and the matrix whose weighted nearest correlation matrix it is."""

    def __init__(self, weights, n, seed):
        rng = np.random.default_rng([WEIGHTS.index(weights), n, seed])
        V, r = np.linalg.qr(rng.standard_normal((n, n)))[0], n // 3 + 1
        X = (V[:, :r] * rng.uniform(0.3, 2, r)) @ V[:, :r].T
        D = 1 / np.sqrt(X.diagonal())
        self.X = symmetric(D[:, None] * X * D)
        exponent = {"a decade": 0.5, "six decades": 3, "no weight": 0}[weights]
        self.H = symmetric(10 ** rng.uniform(-exponent, exponent, (n, n)))
        N = np.linalg.qr(V[:, r:] / D[:, None])[0]
        M = np.diag(rng.uniform(0.3, 2, n - r))
        if weights == "no weight":  # where the slope is zero
            i, j = np.arange(0, n - 1, 3), np.arange(1, n, 3)
            self.H[i, j] = self.H[j, i] = 0.0
            pairs = N[i, :, None] * N[j, None, :]
            pairs = (pairs + pairs.transpose(0, 2, 1)).reshape(len(i), -1) / 2
            M -= (pairs.T @ np.linalg.solve(pairs @ pairs.T, pairs @ M.ravel())).reshape(M.shape)
            assert np.linalg.eigvalsh(M)[0] > 0
        Z = N @ M @ N.T
        np.fill_diagonal(self.H, 1.0)
        curvature = np.where(self.H > 0, 2 * self.H**2, 1.0)
        self.X0 = symmetric(self.X - np.where(self.H > 0, Z, 0.0) / curvature)
        np.fill_diagonal(self.X0, 1.0)
        # The data are rounded, so that the optimum is known to this.
        self.error = 64 * n * EPS * np.abs(self.X0).max()

    def problem(self, X0):
        Y = bo.PSD(len(X0))
        return bo.Problem(bo.Minimize(bo.frobenius_div(Y, X0, weights=self.H)), [bo.diag(Y) == 1])


@pytest.mark.parametrize(
    ("weights", "n", "seeds", "sharp"),
    [
        *((weights, 12, range(1), 0.1) for weights in WEIGHTS),
        *(pytest.param(weights, 12, range(1, 3), 0.1, marks=pytest.mark.slow) for weights in WEIGHTS),
        ("a decade", 3, (4, 5, 9), 0.9),
        ("six decades", 3, (0, 6, 8), 0.99),
        pytest.param("a decade", 3, range(10), 0.9, marks=pytest.mark.slow),
        pytest.param("six decades", 3, range(9), 0.99, marks=pytest.mark.slow),
        ("no weight", 4, (10, 15, 26), 0.7),
    ],
)
def test_the_bound_at_the_optimum_of_other_data_holds_and_is_sharp(weights, n, seeds, sharp):
    """The optimum of a matrix that differs a little is a feasible point with complementary multipliers."""
    sharpest = 0.0
    for seed in seeds:
        known = Known(weights, n, seed)
        program = known.problem(known.X0).solve()._raw._program
        rng = np.random.default_rng(seed)
        for size in (1e-2, 1e-4, 1e-6):
            change = symmetric(rng.standard_normal((n, n))) * size / np.maximum(known.H, 1.0) ** 2
            np.fill_diagonal(change, 0.0)
            other = known.problem(known.X0 + change).solve(tol=1e-10)._raw
            given = (program, other.X, other._point[1], other.duals, other._S)
            (plain,), (found,) = accuracy.accuracies(*given), accuracy.accuracies(*given, other.X)
            error = np.abs(other.X[0] - known.X)
            assert (error <= found.entries + known.error).all()
            assert (found.entries <= plain.entries * (1 + 1e-9)).all()
            assert np.isfinite(found.entries).all()
            i, j = np.triu_indices(n, 1)
            sharpest = max(sharpest, ((error[i, j] - known.error) / found.entries[i, j]).max())
    assert sharpest >= sharp


@pytest.mark.parametrize("seed", range(10))
def test_a_psd_matrix_pays_for_a_turn_of_its_range(seed):
    """The bound holds for any psd matrix, and for small turns it is attained."""
    rng = np.random.default_rng(seed)
    k, r = rng.integers(1, 5, 2)
    z, x = rng.uniform(0.1, 2, k), rng.uniform(0.1, 2, r)
    F = np.diag(np.append(np.zeros(k), x))  # in the basis (N, P)
    for size in (1.0, 1e-2, 1e-4):
        S = size * rng.standard_normal((k + r, k + r))
        Q = expm(S - S.T)
        X = (Q * F.diagonal()) @ Q.T
        paid, Y = float(z @ X.diagonal()[:k]), X[:k, k:]
        bound = float(np.sum(cone_curvature(z, x, np.linalg.norm(X - F, 2)) * Y**2))
        assert bound <= paid * (1 + 1e-9)
    assert bound >= 0.99 * paid


@pytest.mark.parametrize(
    ("n", "weights"), turns([26, *(pytest.param(n, marks=pytest.mark.slow) for n in (40, 60))], WEIGHTS)
)
def test_entries_are_certified_by_default(weights, n):
    known = Known(weights, n, 0)
    sol = known.problem(known.X0).solve()
    assert sol.status == "optimal"
    assert sol.accuracy.largest <= 1e-6
    assert (np.abs(sol.X - known.X) <= sol.accuracy.entries + known.error).all()
