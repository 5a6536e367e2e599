"""The Schur matrix by every formula, against its definition ``H_kl = <A_k, sym(P A_l Q)>``."""

from __future__ import annotations

from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp

from bregopt.program import LinearMap, Term
from bregopt.program.rows import (
    Coordinates,
    DenseRows,
    Distances,
    Entries,
    RankOne,
    RankOnePairs,
    RankTwo,
    SparseRows,
)
from bregopt.routes.ipm import schur
from bregopt.routes.ipm.block_rows import Gram

SMALL = {"_STRIP_PRODUCTS": 30, "_LEAST_STRIP": 2, "_TILE_PRODUCTS": 8, "_DENSE_ROWS_SIZE": 1}
ONLY_CONGRUENCES = {"_CALL_COST": 1e-9, "_PRODUCT_COST": 1e99}
FORMULAS = {
    "split by cost": {},
    "places": {"_CALL_COST": 1e99},
    "places in strips": {"_CALL_COST": 1e99, **SMALL},
    "congruences": ONLY_CONGRUENCES,
    "congruences, one by one": {**ONLY_CONGRUENCES, "_CONGRUENCE_ENTRIES": 1, "_DENSE_ROWS_SIZE": 1},
    "both": {"_CALL_COST": 1e-9, "_PRODUCT_COST": 1.0, "_SPARSE_COST": 1e-9, "_GATHER_COST": 1e-9, **SMALL},
}


def with_costs(costs):
    """Change the constants that choose the formulas of sparse rows."""
    return patch.multiple(schur, **costs) if costs else nullcontext()


def positive_definite(n, rng):
    G = rng.normal(size=(n, n))
    return G @ G.T / n + 0.3 * np.eye(n)


def sparse_rows(n, m, rng, density=0.2):
    """Return rows of different numbers of terms, with places that repeat; every fourth row is empty."""
    row = rng.integers(0, m, max(1, round(density * m * n**2 / 2)))
    row = row[row % 4 != 3]
    i, j = rng.integers(0, n, (2, len(row)))
    i, j = np.where(row % 4 == 0, i % 3, i), np.where(row % 4 == 0, j % 3, j)  # few places, for many rows
    return SparseRows(m, n, Coordinates(np.sort(row), i, j, rng.normal(size=len(row))))


def families(n, rng):
    """Return a family of each kind, by name."""
    m = 5
    i, j = rng.integers(0, n, (2, m))
    other = np.where(i == j, (i + 1) % n, j)
    w, G = rng.normal(size=m), rng.normal(size=(m, n, n))
    return {
        "sparse": sparse_rows(n, 8, rng),
        "very sparse": sparse_rows(n, 12, rng, 0.02),
        "full": SparseRows(
            3, n, Coordinates(*(a.ravel() for a in np.indices((3, n, n))), rng.normal(size=3 * n * n))
        ),
        "dense": DenseRows(G + G.transpose(0, 2, 1)),
        "entries": Entries(n, i, j, w),
        "one entry each": Entries(n, np.zeros(n, dtype=int), rng.permutation(n), rng.normal(size=n)),
        "the diagonal": Entries(n, np.arange(n), np.arange(n), np.ones(n)),
        "a part of the diagonal": Entries(n, np.arange(1, n, 2), np.arange(1, n, 2), np.arange(1.0, n, 2)),
        "distances": Distances(n, i, other, w),
        "rank one": RankOne(rng.normal(size=(m, n)), w),
        "sparse rank one": RankOne(sp.csr_array(rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.4)), w),
        "rank one pairs": RankOnePairs(rng.normal(size=(m, n)), rng.normal(size=(m, n)), w),
        "rank two": RankTwo(rng.normal(size=(m, n)), rng.normal(size=(m, n)), w),
        "one diagonal entry and others": SparseRows(
            2, n, Coordinates(np.array([0, 1, 1]), np.array([1, 0, 0]), np.array([1, 2, 2]), np.ones(3))
        ),
    }


def stacked(chosen, n, rng):
    """Return the map of some families, at random places of a stack with two more rows."""
    m = sum(rows.m for rows in chosen) + 2
    place = rng.permutation(m) if len(chosen) > 1 else np.arange(m)
    ends = np.cumsum([0, *(rows.m for rows in chosen)])
    terms = [
        Term(0, np.sort(place[a:b]), rows) for a, b, rows in zip(ends[:-1], ends[1:], chosen, strict=True)
    ]
    return LinearMap(m, (n,), tuple(terms))


def by_definition(A, P, Q):
    units = [A.adjoint(e) for e in np.eye(A.m)]
    images = [(P @ A_l @ Q + Q @ A_l @ P) / 2 for A_l in units]
    return np.array([[np.vdot(A_k, image) for image in images] for A_k in units])


def assert_equal(H, expected):
    size = max(np.abs(expected).max(initial=0.0), 1e-3)
    np.testing.assert_allclose(H, expected, rtol=0, atol=1e-12 * size)
    np.testing.assert_allclose(H, H.T, rtol=0, atol=1e-13 * size)


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("name", families(4, np.random.default_rng(0)))
def test_each_family(formula, name):
    for seed, n in enumerate((3, 6, 11)):
        rng = np.random.default_rng(seed)
        rows = families(n, rng)[name]
        A = LinearMap(rows.m, (n,), (Term(0, np.arange(rows.m), rows),))
        P, Q = positive_definite(n, rng), positive_definite(n, rng)
        for left, right in ((P, Q), (P, P), (np.asfortranarray(P), np.asfortranarray(Q))):
            with with_costs(FORMULAS[formula]):
                H = Gram(A).assemble(left, right)
            assert_equal(H, by_definition(A, left, right))


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("seed", range(8))
def test_mixtures_and_parts_of_their_rows(formula, seed, monkeypatch):
    for name, value in FORMULAS[formula].items():
        monkeypatch.setattr(schur, name, value)
    monkeypatch.setattr("bregopt.routes.ipm.block_rows._ROWS_AT_A_TIME", 2)
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 10))
    every = list(families(n, rng).values())
    count = int(rng.integers(1, 6))
    A = stacked([every[k] for k in rng.choice(len(every), count, replace=False)], n, rng)
    P, Q = positive_definite(n, rng), positive_definite(n, rng)
    expected, gram = by_definition(A, P, Q), Gram(A)
    assert_equal(gram.assemble(P, Q), expected)
    assert_equal(gram.assemble(P, Q), expected)  # nothing of the first call is left over
    for share in (0.3, 0.9):
        part = np.flatnonzero(rng.random(A.m) < share)
        assert_equal(gram.assemble(P, Q, part), expected[np.ix_(part, part)])


@pytest.mark.parametrize("rows", [np.arange(9), np.array([1, 4, 8])])
def test_dense_rows_by_the_factors_of_both_matrices(rows):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(9, 5, 5))
    A += A.swapaxes(1, 2)
    X, Z = positive_definite(5, rng), positive_definite(5, rng)
    own, K = schur.DenseSchur(A.reshape(9, 25), 5), np.linalg.inv(Z)
    H = own.gram(np.linalg.cholesky(X), np.linalg.cholesky(Z), rows)
    expected = np.einsum("kij,jp,lpq,qi->kl", A[rows], X, A[rows], K)
    np.testing.assert_allclose(H, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(own(X, K, rows), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(H, H.T)


def test_the_second_block_alone():
    rng = np.random.default_rng(0)
    rows = [sparse_rows(4, 6, rng), sparse_rows(5, 3, rng, 0.5)]
    A = LinearMap(7, (4, 5), (Term(0, np.arange(6), rows[0]), Term(1, np.array([1, 3, 6]), rows[1])))
    P, Q = positive_definite(5, rng), positive_definite(5, rng)
    for costs in FORMULAS.values():
        with with_costs(costs):
            assert_equal(Gram(A, 1).assemble(P, Q), by_definition(A.of_block(1), P, Q))


def test_a_block_without_rows():
    A = LinearMap(3, (4, 2), (Term(0, np.arange(3), sparse_rows(4, 3, np.random.default_rng(0))),))
    assert not Gram(A, 1).assemble(np.eye(2), np.eye(2)).any()


def test_the_matrices_are_not_changed():
    rng = np.random.default_rng(1)
    A = stacked(list(families(6, rng).values()), 6, rng)
    P, Q = positive_definite(6, rng), positive_definite(6, rng)
    before = P.copy(), Q.copy()
    for costs in FORMULAS.values():
        with with_costs(costs):
            Gram(A).assemble(P, Q)
    np.testing.assert_array_equal(P, before[0])
    np.testing.assert_array_equal(Q, before[1])


def test_scaling_a_row_scales_its_products():
    rng = np.random.default_rng(2)
    rows = sparse_rows(8, 10, rng)
    P, Q, weight = positive_definite(8, rng), positive_definite(8, rng), rng.normal(size=10) * 1e6
    for costs in FORMULAS.values():
        with with_costs(costs):
            H, scaled = (
                Gram(LinearMap(10, (8,), (Term(0, np.arange(10), own),))).assemble(P, Q)
                for own in (rows, rows.scale(weight))
            )
            np.testing.assert_allclose(scaled, weight[:, None] * H * weight, rtol=1e-10, atol=1e-3)
