"""Rows with one matrix up to sign: Newton's system with one unknown a pair is the system of all rows."""

import numpy as np
import pytest

import bregopt as bo
from bregopt.program import LinearMap, Term
from bregopt.program.rows import DenseRows
from bregopt.routes.ipm import row_system
from bregopt.routes.ipm.plan import Plan, ScalingPoint
from bregopt.routes.ipm.row_system import PairedRows

N = 12


def shuffled_pairs(rng, alone=5, pairs=60):
    """Rows of which most are in pairs, half of those with opposite signs, in random order."""
    A = rng.normal(size=(alone + pairs, N, N))
    signs = rng.choice([-1.0, 1.0], pairs)
    stack = np.concatenate([A + A.swapaxes(1, 2), signs[:, None, None] * (A + A.swapaxes(1, 2))[alone:]])
    return stack[rng.permutation(len(stack))]


@pytest.mark.parametrize("decades", [0, 4, 8])
def test_the_system_of_pairs_is_that_of_all_rows(rng, decades):
    stack = shuffled_pairs(rng)
    m = len(stack)
    plan = Plan.of(LinearMap(m, (N,), (Term(0, np.arange(m), DenseRows(stack)),)))
    D = 10.0 ** rng.uniform(-decades, decades, m)
    roots = [np.linalg.cholesky(S @ S.T + np.eye(N)) for S in rng.normal(size=(2, N, N))]
    X, K = (root @ root.T for root in roots)
    at = ScalingPoint(plan, X.ravel(), [roots[0]], (), D, np.full(2, np.inf), K=K.ravel())
    F = rng.normal(size=(m, 2))
    solve = PairedRows.of(plan).solver(at, F)
    M = plan.schur([X], [K], np.arange(m), [roots[0]]) + np.diag(D)
    for _ in range(3):
        y, u = rng.normal(size=m), rng.normal(size=2)
        b, q = M @ y + F @ u, F.T @ y
        found, variables = solve(b, q)
        size = np.linalg.norm(np.abs(M) @ np.abs(y))
        assert np.linalg.norm(M @ found + F @ variables - b) <= 1e-12 * size
        np.testing.assert_allclose(F.T @ found, q, atol=1e-9 * np.linalg.norm(y))


def test_equalities_with_one_matrix_have_the_system_of_all_rows(rng):
    stack = shuffled_pairs(rng)
    m, one = len(stack), np.eye(N)
    plan = Plan.of(LinearMap(m, (N,), (Term(0, np.arange(m), DenseRows(stack)),)))
    at = ScalingPoint(plan, one.ravel(), [one], [one], np.zeros(m), np.full(1, np.inf))
    assert PairedRows.of(plan).solver(at, np.ones((m, 1))) is None


def test_few_pairs_and_triples_are_left_alone(rng):
    few = shuffled_pairs(rng, alone=120, pairs=20)
    triples = np.concatenate([3 * [S] for S in few[:40]]).reshape(-1, N, N)
    for stack in (few, triples):
        m = len(stack)
        plan = Plan.of(LinearMap(m, (N,), (Term(0, np.arange(m), DenseRows(stack)),)))
        assert PairedRows.of(plan) is None


def test_the_largest_deviation_of_distances(rng, monkeypatch):
    """The answer does not depend on whether pairs are found."""
    x = rng.normal(size=(16, 2))
    D = np.sum((x[:, None] - x[None]) ** 2, axis=2) * rng.uniform(0.8, 1.2, (16, 16))

    def embedding():
        G, t = bo.PSD(16), bo.Variable()
        i, j = np.triu_indices(16, 1)
        d = bo.sq_distance(G, i, j) - (D + D.T)[i, j] / 2
        return bo.Problem(bo.Minimize(t), [d <= t, -t <= d]).solve(solver="path")

    found = embedding()
    monkeypatch.setattr(row_system, "_LEAST_PAIRED", np.inf)
    whole = embedding()
    assert found.status == whole.status == "optimal"
    assert abs(found.value - whole.value) <= found.error + whole.error
