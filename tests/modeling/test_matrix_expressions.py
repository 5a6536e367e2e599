"""Matrix expressions: values as NumPy's, rows that share their factors, answers as CVXPY's."""

import cvxpy as cp
import numpy as np
import peers
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import turns

import bregopt as bo
from bregopt.program.rows import Bilinear, DenseRows, Entries

N = 4


def symmetric(rng, n):
    A = rng.normal(size=(n, n))
    return (A + A.T) / 2


@pytest.fixture
def X(rng):
    X = bo.PSD(N, name="X")
    F = rng.normal(size=(N, N))
    X.value = F @ F.T
    return X


@pytest.fixture
def u(rng):
    u = bo.Variable((2, 3), name="u")
    u.value = rng.normal(size=(2, 3))
    return u


def check(e, expected):
    assert e.shape == np.shape(expected)
    np.testing.assert_allclose(e.value, expected, atol=1e-12)


class TestValues:
    @pytest.mark.parametrize(
        "kind",
        [
            np.array,
            sp.csr_array,
            sp.csc_array,
            sp.coo_array,
            sp.dok_array,
            sp.lil_array,
            sp.dia_array,
            sp.bsr_array,
        ],
    )
    def test_products(self, X, u, rng, kind):
        V, U, D = X.value, u.value, rng.normal(size=(3, N)) * (rng.random((3, N)) < 0.7)
        M = kind(D)
        check(M @ X, D @ V)
        check(X @ M.T, V @ D.T)
        check(M @ X @ M.T, D @ V @ D.T)
        check(M @ (X - np.eye(N)) @ M.T, D @ (V - np.eye(N)) @ D.T)
        check((M @ X).T, (D @ V).T)
        check(u @ M, U @ D)
        check(u.T @ (u @ M).value, U.T @ (U @ D))

    def test_products_with_vectors(self, X, u, rng):
        V, U, v = X.value, u.value, rng.normal(size=N)
        M = rng.normal(size=(3, N))
        check(X @ v, V @ v)
        check(v @ X, v @ V)
        check(v @ (X @ v), v @ V @ v)
        check((M @ X)[0] @ v, (M @ V)[0] @ v)
        check(u @ np.ones(3), U @ np.ones(3))
        check(np.ones(2) @ u, np.ones(2) @ U)

    def test_shapes(self, X, u, rng):
        V, U, w = X.value, u.value, bo.Variable(N)
        w.value = W = rng.normal(size=N)
        t = bo.Variable()
        t.value = 3.0
        M = rng.normal(size=(3, N))
        check(u.T, U.T)
        check(X.T, V)
        check(X[[0, 2]][:, [1, 3]], V[[0, 2]][:, [1, 3]])
        check((M @ X)[::2, 1:][..., None], (M @ V)[::2, 1:][..., None])
        check(bo.sum(u, axis=0), U.sum(0))
        check(bo.sum(X, axis=-1), V.sum(-1))
        check(bo.sum(M @ X, axis=1), (M @ V).sum(1))
        check(bo.diag(M @ X @ M.T), np.diag(M @ V @ M.T))
        check(bo.diag(w), np.diag(W))
        check(bo.trace(M.T @ M @ X), np.trace(M.T @ M @ V))
        check(bo.inner(M, M @ X), np.sum(M * (M @ V)))
        check(bo.inner([M, 2 * M], M @ X), [np.sum(M * (M @ V)), 2 * np.sum(M * (M @ V))])
        check(bo.inner(sp.csr_array(M), M @ X), np.sum(M * (M @ V)))
        check(np.arange(4.0)[:, None] * X, np.arange(4.0)[:, None] * V)
        check(bo.vstack([X[0], w, M @ X, np.ones(N)]), np.vstack([V[0], W, M @ V, np.ones(N)]))
        check(bo.hstack([X, w[:, None], (M @ X).T]), np.hstack([V, W[:, None], (M @ V).T]))
        check(bo.hstack([bo.trace(X), w, 3]), np.hstack([np.trace(V), W, 3]))
        blocks = bo.bmat([[X, w[:, None]], [w[None, :], t]])
        check(blocks, np.block([[V, W[:, None]], [W[None, :], 3.0]]))

    @given(st.integers(0, 10_000))
    def test_chains_of_products(self, seed):
        rng = np.random.default_rng(seed)
        X, u = bo.PSD(3), bo.Variable((3, 3))
        F = rng.normal(size=(3, 3))
        X.value = V = F @ F.T
        u.value = U = rng.normal(size=(3, 3))
        e, expected = [(X, V), (X[:, :], V), (u, U), (X + u, V + U)][rng.integers(4)]
        for _ in range(rng.integers(1, 6)):
            M = rng.normal(size=(rng.integers(1, 5), e.shape[0])) * (rng.random() < 0.9)
            M = sp.csr_array(M) if rng.random() < 0.3 else M
            step = rng.integers(5)
            if step == 0:
                e, expected = M @ e, M @ expected
            elif step == 1:
                M = rng.normal(size=(e.shape[1], 2))
                e, expected = e @ M, expected @ M
            elif step == 2:
                e, expected = e.T, expected.T
            elif step == 3:
                k = rng.integers(0, e.shape[0], 3)
                e, expected = e[k] * 2, expected[k] * 2
            else:
                e, expected = bo.vstack([e, e[:1] - 1]), np.vstack([expected, expected[:1] - 1])
        check(e, expected)


class TestStructure:
    def test_rows_of_products_share_their_factors(self, rng):
        n, p = 300, 40
        X, M = bo.PSD(n), rng.normal(size=(p, n))
        rows = (M @ X @ M.T).psd[X]
        assert isinstance(rows, Bilinear)
        assert rows.L is rows.R
        assert rows.L.size + rows.i.size + rows.j.size + rows.weight.size == p * n + 3 * p * p
        column = (X @ M[0]).psd[X]
        assert isinstance(column, Bilinear)
        assert column.R.size + column.L.nnz == 2 * n
        i, j = np.triu_indices(p)
        F = rng.normal(size=(n, 3))
        np.testing.assert_allclose((M @ X @ M.T)[i, j].psd[X].apply(F @ F.T), (M @ F @ F.T @ M.T)[i, j])

    def test_traces_of_products_are_one_matrix(self, rng):
        X, M = bo.PSD(30), rng.normal(size=(30, 30))
        rows = bo.trace(M @ X).psd[X]
        assert isinstance(rows, DenseRows)
        np.testing.assert_allclose(rows.stack[0], (M + M.T) / 2)

    def test_large_sums_of_products_are_dense(self, rng):
        X, K = bo.PSD(20), rng.normal(size=(2, 20, 20))
        F = rng.normal(size=(20, 20))
        channel = K[0] @ X @ K[0].T + K[1] @ X @ K[1].T
        assert isinstance(channel.psd[X], DenseRows)
        X.value = V = F @ F.T
        np.testing.assert_allclose(channel.value, sum(k @ V @ k.T for k in K), atol=1e-9)
        both = bo.vstack([channel, X])
        np.testing.assert_allclose(both.value, np.vstack([channel.value, V]), atol=1e-9)

    def test_sums_that_memory_does_not_hold_are_refused(self, rng):
        X, M = bo.PSD(1000), rng.normal(size=(1000, 1000))
        with pytest.raises(
            ValueError, match=r"1000000 rows with a matrix of order 1000 each is too large: .* GB"
        ):
            M @ X @ M.T + M.T @ X @ M

    def test_sums_of_entries_stay_entries(self):
        X = bo.PSD(5)
        assert isinstance(((X[:, :] + X[:, :].T) / 2).psd[X], Entries)
        assert len((X[0, 1] - X[1, 0]).psd[X].nonzero()) == 0


def models(language, X, M, N, C, v):
    """The same rows in both languages."""
    inner = bo.inner if language is bo else lambda C, X: cp.trace(C @ X)
    return {
        "congruence": (inner(C, X), [language.diag(M @ X @ M.T) == 1, (M @ X @ M.T)[0, 1] >= 0.2]),
        "columns": (inner(C, X), [X @ v == np.arange(1.0, 5), language.trace(X) <= 20]),
        "trace": (inner(C, X), [language.trace(M.T @ M @ X) >= 1, language.sum(N @ X, axis=0) <= 1]),
        "stack": (inner(C, X), [language.vstack([M @ X, X]) >= -0.1, language.trace(X) == 1]),
        "two-sided": (inner(C, X), [M @ X @ N.T <= 1, v @ X >= 0.1]),
    }


@pytest.mark.parametrize(
    ("name", "divergence"), turns(["congruence", "columns", "trace", "stack", "two-sided"], [False, True])
)
def test_answers_and_duals_are_cvxpys(name, divergence, rng):
    M, K, C, v = (
        rng.normal(size=(3, N)),
        rng.normal(size=(2, N)),
        symmetric(rng, N) + 4 * np.eye(N),
        np.ones(N),
    )
    X, Y = bo.PSD(N), cp.Variable((N, N), PSD=True)
    (goal, rows), (theirs, their_rows) = models(bo, X, M, K, C, v)[name], models(cp, Y, M, K, C, v)[name]
    if divergence:
        goal, theirs = goal + bo.frobenius_div(X, C), theirs + cp.sum_squares(Y - C)
    sol = bo.Problem(bo.Minimize(goal), rows).solve(tol=1e-8)
    peer = peers.ask(cp.Problem(cp.Minimize(theirs), their_rows))
    assert sol.status == "optimal"
    peer.agrees(sol.value, sol.error)
    for own, other in zip(rows, their_rows, strict=True):
        size = 1 + np.abs(own.dual_value).max()
        peer.near(np.asarray(own.dual_value) / size, other.dual_value / size, atol=1e-3)


@pytest.mark.parametrize("objective", ["linear", "logdet_div", "von_neumann_div", "frobenius_div"])
def test_routes_agree_on_products(objective, rng):
    n, M = 6, rng.normal(size=(3, 6))
    X, X0 = bo.PSD(n), np.eye(n) + 0.2
    goal = bo.trace(X) if objective == "linear" else getattr(bo, objective)(X, X0)
    table = bo.cross_check(bo.Problem(bo.Minimize(goal), [M @ X @ M.T == M @ M.T, X @ np.ones(n) <= 3]))
    assert table.ok
    assert len(table.rows) >= 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (
                lambda X, u: np.ones((2, 3)) @ X,
                ValueError,
                r"shapes \(2, 3\) and \(4, 4\); expected \(.., 4\) and",
            ),
            (
                lambda X, u: X @ np.ones((3, 2)),
                ValueError,
                r"shapes \(4, 4\) and \(3, 2\); expected \(4, 4\) and",
            ),
            (lambda X, u: X @ np.ones((4, 2, 2)), ValueError, "factor of @ has 3 dimensions"),
            (lambda X, u: X @ 2, ValueError, "factor of @ has 0 dimensions"),
            (lambda X, u: X @ [np.nan] * 4, ValueError, "factor of @ has"),
            (lambda X, u: bo.trace(X) @ np.ones(3), ValueError, "expected vectors and matrices"),
            (lambda X, u: bo.bmat([[X, u[0]]]), ValueError, r"block \[0\]\[1\] of bmat has shape \(3,\)"),
            (lambda X, u: bo.bmat([X, u]), TypeError, "no list of lists"),
            (lambda X, u: bo.vstack([X, u]), ValueError, r"vstack of shapes \(4, 4\), \(2, 3\)"),
            (lambda X, u: bo.hstack(X), TypeError, "parts of hstack is PSD"),
            (lambda X, u: bo.hstack([]), TypeError, "expected a list of expressions"),
            (
                lambda X, u: bo.diag(u),
                ValueError,
                r"X of diag has shape \(2, 3\); expected a square matrix or a",
            ),
            (lambda X, u: bo.trace(u[0]), ValueError, r"X of trace has shape \(3,\)"),
            (lambda X, u: bo.trace(np.eye(2)), TypeError, "there is np.trace"),
            (lambda X, u: bo.sum(u, axis=2), ValueError, r"axis of sum is 2, but u has shape \(2, 3\)"),
            (lambda X, u: bo.sum(u, axis=1.0), TypeError, "axis of sum is 1.0"),
            (lambda X, u: bo.inner(np.eye(2), u), ValueError, r"shape \(2, 2\); expected \(2, 3\)"),
            (lambda X, u: bo.inner(np.eye(2), u[0]), ValueError, "expected a matrix"),
            (lambda X, u: u @ X, TypeError, "product of two expressions with variables"),
        ],
    )
    def test_message(self, X, u, make, error, message):
        with pytest.raises(error, match=message):
            make(X, u)

    @pytest.mark.parametrize(
        ("call", "advice"),
        [
            (lambda X: np.vstack([X, X]), "use bo.vstack"),
            (lambda X: np.block([[X, X]]), "use bo.bmat"),
            (lambda X: np.dot(np.ones(4), X), "use the operator @"),
            (lambda X: np.transpose(X), "use its attribute T"),
            (lambda X: np.multiply(X, X), "use the operator"),
        ],
    )
    def test_functions_of_numpy_name_ours(self, X, call, advice):
        with pytest.raises(TypeError, match=rf"^numpy.\w+ takes no expression of bregopt; {advice}"):
            call(X)
