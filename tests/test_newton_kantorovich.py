"""The accuracy of X for linear objectives: no bound is below the true distance from a known optimum."""

import numpy as np
import pytest
from rational import pair

import bregopt as bo

KINDS = ("plain", "blocks", "free", "box", "inequalities", "redundant", "Hermitian")


def symmetric(rng, n):
    A = rng.integers(-3, 4, (n, n))
    return A + A.T


def hermitian_pair(rng, n):
    """Return complex integer matrices with ``X Z = 0``, of complementary ranks."""
    T = np.eye(n, dtype=complex) + np.tril(rng.integers(-1, 2, (n, n)) + 1j * rng.integers(-1, 2, (n, n)), -1)
    inverse = np.round(np.linalg.inv(T))
    assert (T @ inverse == np.eye(n)).all()
    rank = int(rng.integers(1, n))
    D = np.where(np.arange(n) < rank, rng.integers(1, 5, n), 0)
    E = np.where(np.arange(n) < rank, 0, rng.integers(1, 5, n))
    return (T * D) @ T.conj().T, (inverse.conj().T * E) @ inverse


def regular_count(rng, X):
    """Return a number of rows with which a random pair is nondegenerate on both sides."""
    n, r = len(X), int(np.linalg.matrix_rank(X))
    if np.iscomplexobj(X):
        return int(rng.integers(r * r, 2 * n * r - r * r + 1))
    return int(rng.integers(r * (r + 1) // 2, r * n - r * (r - 1) // 2 + 1))


def known(rng, kind, n, scale_X=1.0, scale_Z=1.0):
    """Return a problem of integers times powers of two, and its optimal matrices, which are exact."""
    if kind == "Hermitian":
        return known_hermitian(rng, min(n, 6), scale_X, scale_Z)
    orders = [n, *rng.integers(2, n + 1, 2)] if kind == "blocks" else [n]
    pairs = [pair(rng, int(order)) for order in orders]
    k = int(rng.integers(1, 4)) if kind in ("free", "box") else 0
    at_end = (rng.random(k) < 0.5) & (kind == "box")
    m = sum(regular_count(rng, X) for X, _ in pairs) + k - int(at_end.sum())
    rows = [[symmetric(rng, len(X)) for X, _ in pairs] for _ in range(m)]
    y = rng.choice([-3, -2, -1, 1, 2, 3], m)
    b = np.array([sum((A * X).sum() for A, (X, _) in zip(row, pairs, strict=True)) for row in rows])
    loose = np.zeros(m, dtype=bool)
    if kind == "inequalities":
        loose = rng.random(m) < 0.5
        idle = loose & (rng.random(m) < 0.3)
        y = np.where(idle, 0, y)
    variables = [bo.PSD(len(X)) for X, _ in pairs]
    C = [
        Z + sum(int(y_k) * row[at] for y_k, row in zip(y, rows, strict=True))
        for at, (_, Z) in enumerate(pairs)
    ]
    goal = sum(bo.inner(scale_Z * c, X) for c, X in zip(C, variables, strict=True))
    bodies = [sum(bo.inner(A.astype(float), X) for A, X in zip(row, variables, strict=True)) for row in rows]
    constraints = []
    if kind in ("free", "box"):
        B = rng.integers(-3, 4, (m, k))
        u = np.where(at_end, rng.choice([0, 6], k), rng.integers(1, 6, k))
        z = np.where(u == 0, 1, np.where(u == 6, -1, 0)) * rng.integers(1, 4, k)
        v = bo.Variable(k)
        goal = goal + (scale_Z * (z + B.T @ y)) @ v
        bodies = [body + B[i].astype(float) @ v for i, body in enumerate(bodies)]
        b = b + B @ u
        if kind == "box":
            constraints += [v >= 0, v <= 6 * scale_X]
    for body, side, y_k, unequal in zip(bodies, b, y, loose, strict=True):
        if not unequal:
            constraints.append(body == scale_X * side)
        elif y_k > 0 or (y_k == 0 and rng.random() < 0.5):
            constraints.append(body >= scale_X * (side - 2 * (y_k == 0)))
        else:
            constraints.append(body <= scale_X * (side + 2 * (y_k == 0)))
    if kind == "redundant":
        shares = rng.integers(-2, 3, (2, m))
        for share in shares:
            body = sum(
                bo.inner(sum(int(s) * row[at] for s, row in zip(share, rows, strict=True)).astype(float), X)
                for at, X in enumerate(variables)
            )
            constraints.append(body == scale_X * (share @ b))
    return bo.Problem(bo.Minimize(goal), constraints), [scale_X * X for X, _ in pairs]


def known_hermitian(rng, n, scale_X, scale_Z):
    X, Z = hermitian_pair(rng, n)
    m = regular_count(rng, X)
    K = rng.integers(-2, 3, (m, n, n)) + 1j * rng.integers(-2, 3, (m, n, n))
    rows = K + np.swapaxes(K.conj(), 1, 2)
    y = rng.choice([-2, -1, 1, 2], m)
    C = Z + np.einsum("k,kij->ij", y, rows)
    H = bo.PSD(n, hermitian=True)
    b = np.einsum("kij,ji->k", rows, X).real
    constraints = [bo.inner(A, H) == scale_X * side for A, side in zip(rows, b, strict=True)]
    return bo.Problem(bo.Minimize(bo.inner(scale_Z * C, H)), constraints), [scale_X * X]


def checked(sol, truth):
    """Return whether an accuracy is proven, after a comparison of all bounds with the true distances."""
    X = sol.X if isinstance(sol.X, tuple) else (sol.X,)
    found = sol.accuracy if isinstance(sol.X, tuple) else (sol.accuracy,)
    for own, true, accuracy in zip(X, truth, found, strict=True):
        distance = np.abs(own - true)
        assert (accuracy.entries >= distance).all(), (distance.max(), accuracy)
        assert accuracy.norm >= np.linalg.norm(distance) * (1 - 1e-14)
        assert accuracy.largest == accuracy.entries.max()
        assert bool(accuracy.reason) == np.isinf(accuracy.norm)
    far = zip(found, X, truth, strict=True)
    ratios = [a.norm / max(float(np.linalg.norm(own - true)), 1e-300) for a, own, true in far]
    return np.isfinite(found[0].norm), max(ratios)


@pytest.mark.parametrize("kind", KINDS)
def test_no_bound_is_below_the_true_distance(kind):
    proven, ratios = 0, []
    for seed in range(12):
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        scale_X, scale_Z = 2.0 ** rng.integers(-20, 21, 2)
        problem, truth = known(rng, kind, int(rng.integers(2, 8)), scale_X, scale_Z)
        sol = problem.solve(tol=(1e-5, 1e-6, 1e-8)[seed % 3])
        found, ratio = checked(sol, truth)
        proven += found
        ratios += [ratio] * bool(found)
    assert proven >= 6
    assert np.median(ratios) <= 10
