"""Optima that no `X` attains: worst cases of optimization methods, whose values are theorems."""

import numpy as np
import pytest
from samples import turns

import bregopt as bo
import bregopt.cvxpy
from bregopt.presolve.dual_form import dual_of
from bregopt.routes.ipm import path_route
from bregopt.routes.progress import Progress
from bregopt.routes.registry import settings

pytestmark = pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning", "ignore::UserWarning")


def product(a, b):
    """Return the symmetric matrix of the inner product of two combinations of the Gram matrix's vectors."""
    return (np.outer(a, b) + np.outer(b, a)) / 2


def interpolation(G, points, smoothness):
    """Yield the conditions under which points, gradients and values are those of one convex function."""
    for x, g, f in points:
        for z, h, e in points:
            if x is not z:
                curved = product(g - h, g - h) / (2 * smoothness)
                yield e + bo.inner(product(h, x - z) + curved, G) <= f


def proximal_gradient(steps, units=(1.0, 1.0)):
    """Return the worst value of ``f + h`` after steps of length one on a 1-smooth ``f`` and a convex ``h``.

    The start has distance one from an optimum, where the gradient may have any size: the Gram matrix is not
    bounded in its direction. The value is ``1 / (4 steps)`` (Taylor, Hendrickx, Glineur 2017, Exact
    worst-case performance of first-order methods for composite convex optimization).
    """
    n = 3 + 2 * steps
    E, G = np.eye(n), bo.PSD(n)
    f, h = bo.Variable(steps + 2), bo.Variable(steps + 1)
    x, optimal_gradient, gradients, subgradients = [E[0]], E[1], E[2 : steps + 3], E[steps + 3 :]
    for g, s in zip(gradients[:-1], subgradients, strict=True):
        x.append(x[-1] - g - s)
    origin = np.zeros(n)
    of_f = [(origin, optimal_gradient, f[0]), *zip(x, gradients, list(f)[1:], strict=True)]
    of_h = [(origin, -optimal_gradient, h[0]), *zip(x[1:], subgradients, list(h)[1:], strict=True)]
    rows = [bo.inner(product(x[0], x[0]), G) <= units[0], f[0] + h[0] == 0]
    rows += [*interpolation(G, of_f, 1.0), *interpolation(G, of_h, np.inf)]
    return bo.Problem(bo.Maximize(units[1] * (f[steps + 1] + h[steps])), rows)


@pytest.mark.parametrize(("units", "steps"), turns([(1.0, 1.0), (1e6, 1e-6)], [1, 2]))
def test_proximal_gradient(steps, units):
    solution = proximal_gradient(steps, units).solve(tol=1e-8)
    unit = units[0] * units[1]
    assert solution.status == "optimal"
    assert abs(solution.value - unit / (4 * steps)) <= solution.error <= 1e-7 * unit


@pytest.mark.parametrize("way", [{"method": "bregopt", "tol": 1e-8}, {"solver": bregopt.cvxpy.BREGOPT}])
def test_proximal_gradient_by_cvxpy(way):
    problem = proximal_gradient(2).to_cvxpy()
    problem.solve(**way)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(1 / 8, abs=1e-8)


@pytest.mark.parametrize("k", [1, 4])
def test_a_potential_of_the_gradient_method_does_not_grow(k):
    """``k (f - f*) + |x - x*|^2 / 2`` (Bansal, Gupta 2019): the rows are homogeneous, the optimum is 0."""
    (x, g, h), origin = np.eye(3), np.zeros(3)
    G, f = bo.PSD(3), bo.Variable(2)
    rows = interpolation(G, [(origin, origin, 0.0), (x, g, f[0]), (x - g, h, f[1])], 1.0)
    moved = bo.inner(product(x - g, x - g) - product(x, x), G) / 2
    solution = bo.Problem(bo.Maximize((k + 1) * f[1] - k * f[0] + moved), list(rows)).solve(tol=1e-8)
    assert solution.status == "optimal"
    assert abs(solution.value) <= solution.error + 1e-8


def receding(seed, equal):
    """Return a problem whose `X` recedes along ``U U'``, and its optimum, by complementary solutions.

    No row sees ``U U'``, so all multipliers have ``Z U = 0``. The optimum is that of ``<C, M>`` over the `M`
    with a psd ``V'MV`` alone, and the entries of the best one between ``V`` and ``U`` leave no psd matrix.
    """
    rng, n, r, m = np.random.default_rng(seed), 6, 1 + seed % 2, 8
    Q, P = (np.linalg.qr(rng.normal(size=(k, k)))[0] for k in (n, n - r))
    U, V = Q[:, :r], Q[:, r:]
    W, Z = (V @ (B * rng.uniform(0.5, 2, B.shape[1])) @ B.T @ V.T for B in (P[:, :2], P[:, 2:]))
    corner = V @ rng.normal(size=(n - r, r)) @ U.T
    A = rng.normal(size=(m, n, n))
    A = A + A.swapaxes(1, 2)
    A -= U @ (U.T @ A @ U) @ U.T
    M, y = W + corner + corner.T, rng.normal(size=m)
    idle = np.zeros(m) if equal else rng.integers(2, size=m)
    y = y if equal else np.where(idle, 0.0, np.abs(y))
    C, b = Z + np.tensordot(y, A, 1), np.tensordot(A, M, 2) - idle
    X = bo.PSD(n)
    rows = [bo.inner(a, X) == c if equal else bo.inner(a, X) >= c for a, c in zip(A, b, strict=True)]
    return bo.Problem(bo.Minimize(bo.inner((C + C.T) / 2, X)), rows), float(np.vdot(C, M))


@pytest.mark.parametrize(("seed", "equal"), [(1, True), (0, False), (8, False)])
def test_matrices_that_recede(seed, equal):
    """Without the faces of the dual their errors are above 5e-5, and infinite in the last one."""
    problem, value = receding(seed, equal)
    solution = problem.solve(tol=1e-8)
    assert solution.status in ("optimal", "optimal_inaccurate")
    assert abs(solution.value - value) <= solution.error * (1 + 1e-6)
    assert solution.error <= 5e-5 * max(abs(value), 1)


def test_a_dual_form_of_many_rows_is_not_tried(monkeypatch):
    """A matrix of order 250 has 31,000 rows there, of which one step took a minute."""
    X = bo.PSD(60)
    program = bo.Problem(bo.Minimize(bo.trace(X)), [bo.inner(np.ones((60, 60)), X) == 0]).program()
    assert dual_of(program).program.m > 1500
    asked = []
    monkeypatch.setattr(path_route, "_on_all_rows", lambda *given: asked.append(given))
    assert path_route._by_other_form(program, settings("path", {}), Progress("path")) is None
    assert not asked
