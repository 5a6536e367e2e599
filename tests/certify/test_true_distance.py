"""The accuracy of X against optima to 30 digits, which Newton's method finds in multiple precision."""

import mpmath as mp
import numpy as np
import pytest
from samples import first, turns

import bregopt as bo

KINDS = ("plain", "pairs", "floor", "bounds", "weights", "six decades", "no weight", "nearly singular block")


def symmetric(A):
    return np.triu(A) + np.triu(A, 1).T


def request(kind, seed):
    """Return the matrix and the arguments of ``nearest_correlation``."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    n = int(rng.integers(4, 7))
    A = symmetric(rng.uniform(-1, 1, (n, n)))
    np.fill_diagonal(A, 1.0)
    fixed = np.zeros((n, n), dtype=bool)
    if kind == "pairs":
        fixed[[0, 1, 2, 3], [1, 0, 3, 2]] = True
        A[fixed] = 0.25
    elif kind == "nearly singular block":
        Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        B = (Q * [10.0 ** rng.uniform(-8, -3), 0.5, 1.5]) @ Q.T
        A[:3, :3] = symmetric(B / np.sqrt(np.outer(B.diagonal(), B.diagonal())))
        np.fill_diagonal(A, 1.0)
        fixed[:3, :3] = ~np.eye(3, dtype=bool)
    hole = np.ones((n, n))
    hole[0, 1] = hole[1, 0] = 0
    own = {
        "floor": {"min_eigenvalue": 2.0**-6},
        "bounds": {"lower": -0.3, "upper": 0.6},
        "weights": {"weights": symmetric(rng.uniform(0.5, 2, (n, n)))},
        "six decades": {"weights": symmetric(10.0 ** rng.uniform(-3, 3, (n, n)))},
        "no weight": {"weights": hole},
    }.get(kind, {})
    return A, own | ({"fixed": fixed} if fixed.any() else {})


def optimum(A, X, fixed=None, lower=-np.inf, upper=np.inf, min_eigenvalue=0.0, weights=None):
    """Return the optimum near an answer, to 30 digits; None where it is not found.

    ``X Z + Z X = 0`` has one unknown for each entry: ``Z_ij`` where ``X_ij`` is given, ``X_ij`` elsewhere, as
    there ``Z = 2 H o H o (X - A)``. The Jacobian is in doubles, so that each step adds a few digits.
    """
    n = len(A)
    square = 2 * np.ones((n, n)) if weights is None else 2 * weights**2
    ends = [np.isclose(X, end, rtol=0, atol=1e-6) & ~np.eye(n, dtype=bool) for end in (lower, upper)]
    given = ends[0] | ends[1] | np.eye(n, dtype=bool) | (False if fixed is None else fixed)
    exact = np.where(ends[0], lower, np.where(ends[1], upper, A))
    i, j = np.triu_indices(n)
    held, own = given[i, j], square[i, j]
    Z = np.where(given, 0.0, square * (X - A))
    floor = min_eigenvalue * np.eye(n)

    def slopes(X, Z):  # of the equations in the unknowns
        columns = []
        for a, b, is_held, s in zip(i, j, held, own, strict=True):
            E = np.zeros((n, n))
            E[a, b] = E[b, a] = 1.0
            M = X @ E if is_held else E @ Z + s * (X @ E)
            columns.append((M + M.T)[i, j])
        return np.array(columns).T

    equations = slopes(X - floor, Z)[:, held]
    start = X @ Z - min_eigenvalue * Z
    z = np.linalg.lstsq(equations, -(start + start.T)[i, j], rcond=None)[0]
    Z[i[held], j[held]] += z
    Z = np.triu(Z) + np.triu(Z, 1).T
    J = slopes(X - floor, Z)
    unit = 1 / np.abs(J).max(axis=0)
    inverse = np.linalg.inv(J * unit)
    x = mp.matrix(np.where(held, exact[i, j], X[i, j]).tolist())
    z = mp.matrix(Z[i, j].tolist())
    data, curvature = mp.matrix(A[i, j].tolist()), mp.matrix(own.tolist())
    for _ in range(60):
        P, Q = mp.matrix(n), mp.matrix(n)
        for k, (a, b) in enumerate(zip(i, j, strict=True)):
            if not held[k]:
                z[k] = curvature[k] * (x[k] - data[k])
            P[a, b] = P[b, a] = x[k] - (mp.mpf(min_eigenvalue) if a == b else 0)
            Q[a, b] = Q[b, a] = z[k]
        F = P * Q
        residual = [F[int(a), int(b)] + F[int(b), int(a)] for a, b in zip(i, j, strict=True)]
        size = max(abs(r) for r in residual)
        if size < mp.mpf(10) ** -32:
            break
        # A double has the digits of the residual relative to its size.
        step = unit * (inverse @ np.array([float(r / size) for r in residual]))
        for k, d in enumerate(step):
            if held[k]:
                z[k] -= size * mp.mpf(float(d))
            else:
                x[k] -= size * mp.mpf(float(d))
    least = min(min(mp.eigsy(P, eigvals_only=True)), min(mp.eigsy(Q, eigvals_only=True)))
    sides = [
        (curvature[k] * (x[k] - data[k]) - z[k]) * (1 if ends[0][a, b] else -1)
        for k, (a, b) in enumerate(zip(i, j, strict=True))
        if ends[0][a, b] or ends[1][a, b]
    ]
    if size > mp.mpf(10) ** -30 or least < -(mp.mpf(10) ** -25) or any(side < 0 for side in sides):
        return None
    found = mp.matrix(n)
    for k, (a, b) in enumerate(zip(i, j, strict=True)):
        found[a, b] = found[b, a] = x[k]
    return found


@pytest.mark.parametrize(("seed", "kind"), turns(first(1, range(3)), KINDS))
def test_the_radius_is_at_least_the_distance_and_at_most_four_times_it(kind, seed):
    A, own = request(kind, seed)
    with mp.workdps(50):
        sol = bo.nearest_correlation(A, **own)
        truth = optimum(A, sol.X, **own)
        assert truth is not None
        for options in ({}, {"tol": 1e-3, "tol_X": 0.1}):
            sol = bo.nearest_correlation(A, **own, **options)
            n, known = len(A), sol.accuracy
            error = np.array([[float(abs(sol.X[i, j] - truth[i, j])) for j in range(n)] for i in range(n)])
            assert (error <= known.entries + 1e-16).all()
            assert np.linalg.norm(error) <= known.norm + 1e-15
            assert known.largest <= (1e-6 if not options else np.inf)
            if error.max() > (1e-9 if kind == "six decades" else 1e-13):  # above round-off
                assert known.largest <= 4 * error.max()
