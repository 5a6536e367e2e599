"""Equalities: rows that depend on each other, and more rows than unknowns."""

import numpy as np
import pytest
from samples import first

import bregopt as bo
from bregopt.certify import is_farkas
from bregopt.presolve import presolve
from bregopt.routes.ipm.path_route import PathSettings

# --- Dependent equalities and variables -----------------------------------------------------------------


def combined(rng, m, k, rank):
    """Return a matrix of integers of these sizes and at most this rank."""
    return rng.integers(-3, 4, (m, rank)).astype(float) @ rng.integers(-3, 4, (rank, k))


@pytest.mark.parametrize("seed", range(6))
def test_dependent_free_variables_change_nothing(seed):
    """Variables ``u = P v`` with more entries than ``v`` have the optimum of ``v``."""
    rng = np.random.default_rng(seed)
    n, m, k, rank = 4, 5, int(rng.integers(2, 6)), int(rng.integers(1, 3))
    G, X0 = rng.normal(size=(m, n, n)), np.eye(n)
    G += G.transpose(0, 2, 1)
    B, y = rng.normal(size=(m, rank)), rng.normal(size=m)
    P = combined(rng, rank, k, min(rank, k)) * 2.0 ** rng.integers(-9, 10)
    if seed % 2:
        P[:, -1] = 0.0
    b = [float(np.sum(A * X0)) for A in G]
    W = rng.normal(size=(n, 2))

    def problem(columns):
        X, u = bo.PSD(n), bo.Variable(columns.shape[1])
        C = W @ W.T + np.tensordot(y, G, 1)
        rows = [bo.inner(A, X) + row @ u == right for A, row, right in zip(G, columns, b, strict=True)]
        return bo.Problem(bo.Minimize(bo.inner(C, X) + (columns.T @ y) @ u), rows)

    given, smaller = problem(B @ P).solve(tol=1e-8), problem(B).solve(tol=1e-8)
    assert given.status == smaller.status == "optimal"
    assert given.value == pytest.approx(smaller.value, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", first(6, range(20)))
def test_replaceable_variables_beside_a_matrix_of_zero(seed):
    """As ``X`` vanishes, only the two variables hold the row: before, they grew to 1e11."""
    rng = np.random.default_rng(seed)
    X, u, v, y, b = bo.PSD(3), bo.Variable(2), rng.normal(size=2), rng.normal(), rng.normal()
    G, W = np.diag(rng.integers(0, 2, 3) * 0.4), rng.normal(size=(3, 3))
    cost = bo.inner(W @ W.T + y * G, X) + y * (v @ u)
    sol = bo.Problem(bo.Minimize(cost), [bo.inner(G, X) + v @ u == b]).solve()
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(y * b, rel=1e-5, abs=1e-5)


def test_a_start_keeps_its_effect(rng):
    X, u = bo.PSD(3), bo.Variable(4)
    B = combined(rng, 5, 4, 2)
    rows = [bo.inner(np.diag(rng.normal(size=3)), X) + row @ u == 1 for row in B]
    program = bo.Problem(bo.Minimize(bo.trace(X) + (B.T @ np.ones(5)) @ u), rows).program()
    presolved = presolve(program, ["independent columns"], PathSettings())
    (step,) = presolved.steps
    kept = program.B[:, step.kept].toarray()
    np.testing.assert_allclose(kept @ step.T, program.B[:, step.others].toarray(), atol=1e-12)
    assert len(step.kept) == 2


def test_a_cost_along_the_combination_is_unbounded():
    X, u = bo.PSD(3), bo.Variable(2)
    problem = bo.Problem(bo.Minimize(bo.trace(X) + u[0] + u[1]), [bo.trace(X) + u[0] - u[1] == 1])
    assert problem.solve().status == "unbounded"


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_contradicting_equalities_are_infeasible(seed):
    rng = np.random.default_rng(seed)
    n, k, m = 3, 2, [3, 6, 30][seed % 3]
    rank = 2 if m == 3 else 4
    M = combined(rng, m, n * (n + 1) // 2 + k, rank)
    b = M @ rng.normal(size=M.shape[1])
    b[0] += 0.1 * np.abs(b).max()
    X, u = bo.PSD(n), bo.Variable(k)
    i, j = np.triu_indices(n)
    rows = [
        sum(w * X[p, q] for w, p, q in zip(row, i, j, strict=False)) + row[-k:] @ u == r
        for row, r in zip(M, b, strict=True)
    ]
    problem = bo.Problem(bo.Minimize(bo.trace(X)), rows)
    sol = problem.solve()
    assert sol.status == "infeasible"
    assert is_farkas(problem.program(), sol._raw.duals, 1e-9)
    consistent = bo.Problem(bo.Minimize(bo.trace(X)), rows[1:]).solve()
    assert consistent.status in ("optimal", "infeasible")


def test_contradicting_equalities_of_variables_alone():
    """``1.5 u = 1`` and ``u = 1``, beside a row of a matrix."""
    X, u = bo.PSD(3), bo.Variable()
    rows = [1.5 * u == 1, u == 1, X[0, 1] + u == 2]
    sol = bo.Problem(bo.Minimize(bo.trace(X)), rows).solve()
    assert sol.status == "infeasible"
    assert {row.constraint for row in sol.conflict()} == {0, 1}
