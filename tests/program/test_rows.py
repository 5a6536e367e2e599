"""Every row family against its definition: a stack of dense symmetric matrices."""

import itertools
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import bregopt as bo
from bregopt.linalg import csr_of, null_space, rows_at
from bregopt.modeling.expressions import Expression
from bregopt.program import LowRank
from bregopt.program.rows import (
    FAMILIES,
    Bilinear,
    Coordinates,
    DenseRows,
    Distances,
    Entries,
    RankOne,
    RankOnePairs,
    RankTwo,
    RowFamily,
    SparseRows,
    add_rows,
    combine_rows,
)

N, M = 6, 5


def unit(k):
    return np.eye(N)[k]


def sym(u, w):
    return (np.outer(u, w) + np.outer(w, u)) / 2


def examples(seed=0):
    """Each family with the stack that defines it."""
    rng = np.random.default_rng(seed)
    i, j = np.array([0, 1, 2, 3, 4]), np.array([0, 3, 5, 1, 5])
    far = np.array([1, 2, 3, 4, 5])
    w = rng.normal(size=M)
    Z, W = rng.normal(size=(M, N)), rng.normal(size=(M, N))
    thin = sp.csr_array(np.where(rng.random((M, N)) < 0.4, Z, 0.0) + sp.eye_array(M, N).toarray())
    terms = Coordinates(
        np.array([0, 0, 1, 2, 2, 2, 4]),
        np.array([0, 1, 2, 3, 0, 1, 5]),
        np.array([0, 2, 2, 1, 5, 1, 4]),
        rng.normal(size=7),
    )
    stack = rng.normal(size=(M, N, N))
    stack = stack + stack.transpose(0, 2, 1)
    sparse_stack = np.zeros((M, N, N))
    for r, a, b, v in zip(terms.row, terms.i, terms.j, terms.value, strict=True):
        sparse_stack[r] += v * sym(unit(a), unit(b))
    return {
        "entries": (
            Entries(N, i, j, w),
            [w[k] * sym(unit(i[k]), unit(j[k])) for k in range(M)],
        ),
        "distances": (
            Distances(N, i, far, w),
            [w[k] * np.outer(unit(i[k]) - unit(far[k]), unit(i[k]) - unit(far[k])) for k in range(M)],
        ),
        "rank_one": (RankOne(Z, w), [w[k] * np.outer(Z[k], Z[k]) for k in range(M)]),
        "rank_one_sparse": (
            RankOne(thin, w),
            [w[k] * np.outer(thin.toarray()[k], thin.toarray()[k]) for k in range(M)],
        ),
        "rank_two": (RankTwo(Z, W, w), [w[k] * sym(Z[k], W[k]) for k in range(M)]),
        "rank_two_parallel": (RankTwo(Z, -2 * Z, w), [-2 * w[k] * np.outer(Z[k], Z[k]) for k in range(M)]),
        "rank_one_pairs": (
            RankOnePairs(Z, W, w),
            [w[k] * (np.outer(Z[k], Z[k]) + np.outer(W[k], W[k])) for k in range(M)],
        ),
        "rank_one_pairs_parallel": (
            RankOnePairs(thin, 2 * thin, w),
            [5 * w[k] * np.outer(thin.toarray()[k], thin.toarray()[k]) for k in range(M)],
        ),
        "bilinear": (
            Bilinear(Z[:3], W, i % 3, j % M, w),
            [w[k] * sym(Z[i[k] % 3], W[j[k] % M]) for k in range(M)],
        ),
        "bilinear_sparse": (
            Bilinear(thin, thin, i, i[::-1], w),
            [w[k] * sym(thin.toarray()[i[k]], thin.toarray()[i[::-1][k]]) for k in range(M)],
        ),
        "bilinear_of_a_vector": (
            Bilinear(sp.csr_array(sp.eye_array(N)), W[:1], i, 0 * i, w),
            [w[k] * sym(unit(i[k]), W[0]) for k in range(M)],
        ),
        "sparse": (SparseRows.of(M, N, terms), sparse_stack),
        "dense": (DenseRows(stack), stack),
    }


NAMES = list(examples())


@pytest.mark.parametrize("name", NAMES)
class TestFamily:
    def test_apply_dense_and_low_rank(self, name, rng):
        rows, stack = examples()[name]
        F = rng.normal(size=(N, 3))
        expected = [np.vdot(A, F @ F.T) for A in stack]
        np.testing.assert_allclose(rows.apply(F @ F.T), expected, atol=1e-12)
        np.testing.assert_allclose(rows.apply(LowRank(F)), expected, atol=1e-12)

    def test_adjoint_is_the_transpose(self, name, rng):
        rows, stack = examples()[name]
        y = rng.normal(size=M)
        np.testing.assert_allclose(rows.adjoint(y), np.tensordot(y, np.array(stack), 1), atol=1e-12)

    def test_restrict(self, name, rng):
        rows, stack = examples()[name]
        V, Mid = rng.normal(size=(N, 4)), rng.normal(size=(4, 4))
        Mid = Mid + Mid.T
        small = rows.restrict(V)
        assert (small.m, small.n) == (M, 4)
        expected = [np.vdot(A, V @ Mid @ V.T) for A in stack]
        np.testing.assert_allclose(small.apply(Mid), expected, atol=1e-11)

    def test_slice_scale_and_norms(self, name, rng):
        rows, stack = examples()[name]
        picked, weight = np.array([3, 1, 1, 4]), rng.normal(size=4)
        part = rows.slice(picked).scale(weight)
        expected = [w * stack[k] for k, w in zip(picked, weight, strict=True)]
        y = rng.normal(size=4)
        np.testing.assert_allclose(part.adjoint(y), np.tensordot(y, np.array(expected), 1), atol=1e-12)
        np.testing.assert_allclose(part.norms(), [np.linalg.norm(A) for A in expected], atol=1e-12)

    def test_factor(self, name):
        rows, stack = examples()[name]
        for k in range(M):
            U, d = rows.factor(k)
            np.testing.assert_allclose((U * d) @ U.T, stack[k], atol=1e-12)
            assert U.shape[1] == len(d)
            assert len(d) == 0 or np.linalg.matrix_rank(U) == len(d)

    def test_coordinates(self, name):
        rows, stack = examples()[name]
        rebuilt = SparseRows.of(M, N, rows.coordinates())
        for k in range(M):
            np.testing.assert_allclose(rebuilt.adjoint(np.eye(M)[k]), stack[k], atol=1e-12)

    def test_combine(self, name, rng):
        rows, stack = examples()[name]
        S = sp.csr_array(rng.normal(size=(3, M)) * (rng.random((3, M)) < 0.6))
        mixed = combine_rows(S, rows)
        y = rng.normal(size=3)
        np.testing.assert_allclose(mixed.adjoint(y), np.tensordot(S.T @ y, np.array(stack), 1), atol=1e-12)

    def test_concatenate(self, name, rng):
        rows, stack = examples()[name]
        double = rows.followed_by([rows.slice(np.array([0, 2]))])
        y = rng.normal(size=M + 2)
        expected = np.tensordot(y, np.array([*stack, stack[0], stack[2]]), 1)
        np.testing.assert_allclose(double.adjoint(y), expected, atol=1e-12)

    def test_add_to_every_other(self, name, rng):
        rows, stack = examples()[name]
        y = rng.normal(size=M)
        for other, others in examples(1).values():
            both = add_rows(rows, other)
            expected = np.tensordot(y, np.array(stack) + np.array(others), 1)
            np.testing.assert_allclose(both.adjoint(y), expected, atol=1e-12)

    def test_data_is_left_alone(self, name, rng):
        rows, _ = examples()[name]
        y = rng.normal(size=M)
        before = rows.adjoint(y)
        rows.scale(np.zeros(M)), rows.slice(np.array([0])), rows.restrict(np.eye(N)), rows.factor(0)
        np.testing.assert_array_equal(rows.adjoint(y), before)


def test_difference_of_distances_stays_rank_two():
    i, j = np.array([0, 1]), np.array([2, 3])
    near, far = Distances(N, i, j, np.ones(2)), Distances(N, j, i + 4, np.ones(2))
    both = add_rows(far, near.scale(-np.ones(2)))
    assert isinstance(both, RankTwo)
    assert sp.issparse(both.U)
    X = np.arange(36.0).reshape(N, N)
    X = X + X.T
    np.testing.assert_allclose(both.apply(X), far.apply(X) - near.apply(X))


def test_families_are_listed():
    assert {type(rows) for rows, _ in examples().values()} == set(FAMILIES)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 6))
def test_sparse_slice_against_dense(seed, m, count):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(0, 12))
    terms = Coordinates(
        rng.integers(0, m, size), rng.integers(0, N, size), rng.integers(0, N, size), rng.normal(size=size)
    )
    rows = SparseRows.of(m, N, terms)
    picked = rng.integers(0, m, count)
    full = np.array([rows.adjoint(np.eye(m)[k]) for k in range(m)])
    part = rows.slice(picked)
    for k in range(count):
        np.testing.assert_allclose(part.adjoint(np.eye(count)[k]), full[picked[k]], atol=1e-14)


@dataclass(frozen=True, eq=False)
class Squares(RowFamily):
    """A plug-in that declares no structure: ``A_k = w_k U_k U_k'``, closed under restriction."""

    U: np.ndarray  # shape (m, n, r)
    weight: np.ndarray

    @property
    def m(self):
        return len(self.U)

    @property
    def n(self):
        return self.U.shape[1]

    @property
    def stack(self):
        return self.weight[:, None, None] * (self.U @ self.U.transpose(0, 2, 1))

    def apply(self, X):
        X = X.factor @ X.factor.T if isinstance(X, LowRank) else X
        return np.einsum("kij,ij->k", self.stack, X)

    def adjoint(self, y):
        return np.einsum("k,kij->ij", y, self.stack)

    def restrict(self, V):
        return Squares(np.einsum("ia,kir->kar", V, self.U), self.weight)

    def slice(self, rows):
        return Squares(self.U[rows], self.weight[rows])

    def scale(self, weight):
        return Squares(self.U, self.weight * weight)

    def norms(self):
        return np.linalg.norm(self.stack, axis=(1, 2))

    def magnitude(self, s):
        return np.einsum("kij,i,j->k", np.abs(self.stack), s, s)

    def factor(self, k):
        d, Q = np.linalg.eigh(self.stack[k])
        kept = np.abs(d) > 1e-12 * np.abs(d).max()
        return Q[:, kept], d[kept]

    def rank_one_terms(self):
        return None

    def coordinates(self):
        k, i, j = np.nonzero(np.ones((self.m, self.n, self.n)))
        return Coordinates(k, i, j, self.stack[k, i, j])

    def count(self):
        return self.m * self.n**2


def squares_and_dense(U):
    family = Squares(U, np.ones(len(U)))
    return family, DenseRows(family.stack)


OBJECTIVES = {
    "logdet": lambda X, X0: bo.logdet_div(X, X0),
    "von_neumann": lambda X, X0: bo.von_neumann_div(X, X0),
    "frobenius": lambda X, X0: bo.frobenius_div(X, X0),
    "linear": lambda X, X0: bo.trace(X) - bo.inner(X0, X) / 2,
}
ROUTES = [
    *[{"solver": name} for name in ("bregman", "path", "psdboost", "lowrank", "definiteboost")],
    {"solver": "bregman", "method": "cyclic", "max_iter": 5_000},
    {"solver": "cvxpy"},
]


FORMS = ("many", "soft", "apart")


def turns():
    """Yield objective, form and route. The default run has each pair of two of them, the slow one all."""
    each = itertools.product(enumerate(OBJECTIVES), enumerate(FORMS), enumerate(ROUTES))
    for (i, objective), (j, form), (k, route) in each:
        slow = [pytest.mark.slow] * ((i + j + k) % len(FORMS) != 0)
        name = "-".join([form, objective, *map(str, route.values())])
        yield pytest.param(objective, form, route, id=name, marks=slow)


@pytest.mark.parametrize(("objective", "form", "route"), turns())
@pytest.mark.filterwarnings("ignore:cvxpy:bregopt.ConvergenceWarning")  # a peer may miss the last digits
def test_a_plug_in_family_is_as_good_as_its_dense_rows(objective, form, route):
    rng = np.random.default_rng(3)
    n = 4
    U, G = rng.normal(size=(14, n, 2)), rng.normal(size=(n, n))
    X0 = G @ G.T / n + np.eye(n)
    bound = 0.9 * np.einsum("kia,kja,ij->k", U, U, X0)
    answers = []
    for kind in (0, 1):
        X = bo.PSD(n)

        def rows(part, X=X, kind=kind):
            family = squares_and_dense(U[part])[kind]
            return Expression((family.m,), np.zeros(family.m), {X: family}, label="squares")

        held = {
            "many": lambda: [rows(slice(None)) <= bound],
            "soft": lambda: [bo.soft(rows(slice(None)) <= bound, gamma=2.0)],
            "apart": lambda: [rows(slice(0, 2)) <= bound[:2], rows(slice(2, 5)) <= bound[2:5]],
        }[form]()
        problem = bo.Problem(bo.Minimize(OBJECTIVES[objective](X, X0)), [bo.trace(X) <= 3 * n, *held])
        try:
            answers.append(problem.solve(**route))
        except bo.UnsupportedProblemError:
            answers.append(None)
    own, dense = answers
    assert (own is None) == (dense is None)
    if own is not None:
        assert route["solver"] == "cvxpy" or own.status == dense.status == "optimal"
        assert abs(own.value - dense.value) <= own.error + dense.error + 1e-12 * abs(dense.value)


@pytest.mark.parametrize("count", [0, 1, 7, 60])
def test_sparse_entries_of_one_place_add_up_and_rows_are_taken_in_any_order(count):
    rng = np.random.default_rng(count)
    m, n = 6, 5
    row, column = rng.integers(m, size=count).astype(np.int32), rng.integers(n, size=count)
    value = rng.integers(-4, 5, size=count).astype(float)
    full = np.zeros((m, n))
    np.add.at(full, (row, column), value)
    A = csr_of(value, row, column, (m, n))
    assert A.has_canonical_format
    assert np.array_equal(A.toarray(), full)
    for rows in (np.arange(m), rng.permutation(m), np.array([2, 2, 5]), np.array([], dtype=np.intp)):
        factor = rng.integers(1, 5, size=len(rows)).astype(float)
        assert np.array_equal(rows_at(A, rows).toarray(), full[rows])
        assert np.array_equal(rows_at(A, rows, factor).toarray(), factor[:, None] * full[rows])


@pytest.mark.parametrize(("m", "n", "rank"), [(4_000, 3, 2), (5, 9, 4), (6, 6, 6), (0, 3, 0), (7, 4, 0)])
def test_the_null_space_of_a_tall_matrix_takes_no_square_of_its_rows(m, n, rank, rng):
    M = rng.normal(size=(m, rank)) @ rng.normal(size=(rank, n))
    tracemalloc.start()
    N = null_space(M, 1e-10)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_allclose(N @ N.T, np.eye(n - rank), atol=1e-12)
    np.testing.assert_allclose(M @ N.T, 0, atol=1e-9)
    assert peak < 2e6  # the square of 4,000 takes 1.3e8
