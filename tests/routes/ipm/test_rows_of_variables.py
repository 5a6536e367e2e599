"""Rows of one variable and no matrix: Newton's step without them is that of all rows."""

import numpy as np
import pytest
import scipy.sparse as sp

import bregopt as bo
from bregopt.program import LinearMap, SecondOrderCones, Term
from bregopt.program.rows import DenseRows
from bregopt.routes.ipm import row_system
from bregopt.routes.ipm.plan import Plan, RightHandSide, ScalingPoint
from bregopt.routes.ipm.row_system import RowsOfVariables, RowSystem

N, OTHERS, SINGLE = 8, 30, 120


def system_and_point(rng, decades):
    """Rows of a matrix and of 80 variables, free, boxed and in a cone, and others of one of these."""
    m, k = OTHERS + SINGLE, 80
    stack = rng.normal(size=(OTHERS, N, N))
    plan = Plan.of(LinearMap(m, (N,), (Term(0, np.arange(OTHERS), DenseRows(stack + stack.swapaxes(1, 2))),)))
    B = np.zeros((m, k))
    B[:OTHERS] = rng.normal(size=(OTHERS, k))
    B[np.arange(OTHERS, m), rng.integers(0, k, SINGLE)] = rng.normal(size=SINGLE)
    D, D_u = 10.0 ** rng.uniform(-decades, decades, m), np.full(k, np.inf)
    D[:5], D[[OTHERS, OTHERS + 1]], D[OTHERS + 3] = 0.0, 0.0, np.inf
    B[[OTHERS, OTHERS + 1]] = np.eye(k)[[40, 41]]  # equalities
    D_u[50:61], D_u[61:] = rng.uniform(0.1, 2, 11), 1.0
    cones, p = SecondOrderCones(np.arange(61, 80), (19,)), rng.normal(size=19)
    roots = [np.linalg.cholesky(S @ S.T + np.eye(N)) for S in rng.normal(size=(2, N, N))]
    X, K = (root @ root.T for root in roots)
    at = ScalingPoint(plan, X.ravel(), [roots[0]], (), D, D_u, cones, p, K.ravel())
    return RowSystem(plan, sp.csr_array(B), direct=True), at, B


@pytest.mark.parametrize("decades", [0, 3])
def test_the_step_meets_all_equations(rng, decades):
    system, at, B = system_and_point(rng, decades)
    plan, (m, k) = system.plan, B.shape
    assert len(RowsOfVariables.of(plan, system.B)) == SINGLE
    (X, K), D_u = (S.reshape(N, N) for S in (at.X, at.K)), np.diag(np.where(np.isinf(at.D_u), 0, at.D_u))
    D_u[61:, 61:] += np.outer(at.p_u, at.p_u)
    rhs = RightHandSide(0.3, None, rng.normal(size=m), rng.normal(size=k), rng.normal(size=k))
    free = np.isinf(at.D_u)
    rhs.r_u[free] = 0.0
    step = system.factor(at)(rhs)
    own = np.isfinite(at.D)
    adjoint = plan.adjoint(step.y).reshape(N, N)
    np.testing.assert_allclose(step.adjoint, adjoint.ravel(), atol=1e-12)
    product = X @ adjoint @ K
    np.testing.assert_allclose(
        step.X.reshape(N, N), 0.3 * K - X + (product + product.T) / 2, atol=1e-8 * np.abs(product).max()
    )
    activity = plan.apply(step.X) + B @ step.u + np.where(own, at.D, 0.0) * step.y
    np.testing.assert_allclose(activity[own], rhs.r[own], atol=1e-8 * np.abs(step.u).max())
    assert (step.y[~own] == 0).all()
    dz = rhs.q - B.T @ step.y
    np.testing.assert_allclose(dz[free], 0, atol=1e-9 * np.abs(step.y).max())
    np.testing.assert_allclose((step.u + D_u @ dz)[~free], rhs.r_u[~free], atol=1e-8 * np.abs(step.u).max())


def test_few_of_these_rows_are_left_alone(rng):
    system, _, B = system_and_point(rng, 0)
    B[OTHERS : OTHERS + 90] = rng.normal(size=(90, B.shape[1]))
    assert RowsOfVariables.of(system.plan, sp.csr_array(B)) is None


def test_a_squared_distance_under_a_matrix_inequality(monkeypatch):
    """Projections onto ``K >= 0`` on a subspace have a closed form; no system has the rows of squares."""
    rng, n = np.random.default_rng(0), 16
    D = rng.normal(size=(n, n))
    D += D.T
    sizes, bordered = [], row_system.bordered

    def counted(M, *others):
        sizes.append(len(M))
        return bordered(M, *others)

    monkeypatch.setattr(row_system, "bordered", counted)
    K = bo.Variable((n, n), symmetric=True)
    B = np.linalg.qr(rng.normal(size=(n, n)))[0][:, :12]
    found = bo.Problem(bo.Minimize(bo.sum_squares(K - D)), [B.T @ K @ B >> 0]).solve("path", tol=1e-8)
    assert found.status == "optimal"
    d = np.linalg.eigvalsh(B.T @ D @ B)
    assert found.value == pytest.approx(float((np.minimum(d, 0) ** 2).sum()), rel=1e-6)
    assert max(sizes) <= 12 * 13 // 2
