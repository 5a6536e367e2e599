"""The first iterate: multipliers and matrices of least norm, against the Gram matrix by its definition."""

from __future__ import annotations

import numpy as np
import pytest

import bregopt as bo
from bregopt.linalg import dense
from bregopt.program import LinearMap, Term
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.routes.ipm import start
from bregopt.routes.ipm.engine import Engine
from bregopt.routes.ipm.plan import Plan
from bregopt.routes.ipm.start import _solver_of_gram

BLOCKS, N, M = 150, 3, 60


def rows_on(rng, entries):
    """Return rows with one coefficient each on some of the given entries of every third block or so."""
    terms = []
    for b in range(BLOCKS):
        at = np.sort(rng.choice(M, size=len(entries), replace=False))
        i, j = np.array(entries).T
        values = Coordinates(np.arange(len(at)), i, j, rng.normal(size=len(at)) + 3)
        terms.append(Term(b, at, SparseRows(len(at), N, values)))
    return LinearMap(M, (N,) * BLOCKS, tuple(terms))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("entries", "orthogonal"),
    [([(0, 0), (0, 1)], True), ([(0, 0), (1, 0), (0, 0)], False), ([(1, 2)] * 40, False)],
)
def test_the_solver_of_the_gram_matrix_is_its_inverse(entries, orthogonal, sparse):
    rng = np.random.default_rng(len(entries))
    A = rows_on(rng, entries)
    plan, rows = Plan.of(A), np.arange(1, M)
    assert not isinstance(plan.listed, np.ndarray)
    each = np.array(
        [np.concatenate([dense(A.adjoint(e, b)).ravel() for b in range(BLOCKS)]) for e in np.eye(M)]
    )
    gram = each[rows] @ each[rows].T
    assert orthogonal == (np.count_nonzero(gram) == np.count_nonzero(gram.diagonal()))
    right = rng.normal(size=len(rows))
    found = _solver_of_gram(plan, rows, sparse)(right)
    np.testing.assert_allclose(gram @ found, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("repeated", [False, True])
def test_the_gram_matrix_of_a_sparse_system_is_sparse(repeated, monkeypatch):
    """Rows of a chain of matrices meet their neighbors alone; one that is repeated leaves them dependent."""
    dense_orders = []
    monkeypatch.setattr(start, "DefiniteFactor", lambda S: dense_orders.append(len(S)))
    rng, X = np.random.default_rng(0), [bo.PSD(3) for _ in range(120)]
    A = rng.normal(size=(120, 4, 3, 3))
    A = A + A.swapaxes(2, 3)
    rows = [bo.inner(A[b], X[b]) + bo.inner(A[b + 1], X[b + 1]) == np.ones(4) for b in range(119)]
    rows += rows[:1] if repeated else []
    program = bo.Problem(bo.Minimize(sum(map(bo.trace, X))), rows).program()
    engine = Engine(program, [np.eye(3)] * 120, direct=True)
    solve, _ = start._gram(engine, np.arange(program.m))
    assert engine.is_sparse
    assert not dense_orders
    M, inside = engine.plan.listed, rng.normal(size=engine.plan.size)
    right = M @ inside
    np.testing.assert_allclose(M @ (M.T @ solve(right)), right, rtol=1e-8, atol=1e-8)
