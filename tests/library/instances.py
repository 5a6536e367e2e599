"""Random feasible nearness problems with mixed rows, each written in bregopt's language and in CVXPY's."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

import bregopt as bo


def random_nearness(seed, divergence, n, soft=False):
    """Return a bregopt problem, the same problem written in CVXPY, and CVXPY's matrix variable.

    Rows of every kind are drawn such that a random positive definite matrix near ``X0`` is feasible.
    """
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(n, n))
    X0 = G @ G.T / n + 0.3 * np.eye(n)
    E = np.eye(n) + 0.25 * rng.normal(size=(n, n)) / np.sqrt(n)
    F = E @ X0 @ E.T  # the feasible matrix
    i, j = np.triu_indices(n, 1)
    pick = rng.permutation(len(i))[: max(2, n // 2)]
    i, j = i[pick], j[pick]
    k = rng.permutation(n)[: max(1, n // 2)]
    Z = rng.normal(size=(2, n))
    A = rng.normal(size=(n, n))
    A = A + A.T
    gap = rng.uniform(0, 0.2, size=4)
    distance = F[i, i] + F[j, j] - 2 * F[i, j]
    quad = np.einsum("kn,nm,km->k", Z, F, Z)
    gamma = 0.7

    X = bo.PSD(n)
    distances = bo.sq_distance(X, i, j) <= distance * (1 - 0.3 * soft)
    rows = [
        bo.diag(X)[k] == np.diag(F)[k],
        bo.soft(distances, gamma=gamma) if soft else distances,
        X[i, j] >= F[i, j] - gap[0],
        bo.between(bo.quad_form(Z, X), quad * (1 - gap[1]), quad * (1 + gap[1])),
        bo.inner(A, X) <= np.vdot(A, F),
        X[0, 1] - X[n - 1, n - 1] <= F[0, 1] - F[n - 1, n - 1] + gap[2],
    ]
    if soft:
        rows.append(bo.soft(bo.trace(X) == 0.9 * np.trace(F), gamma=0.5, penalty="hinge"))
    atom = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div}[
        divergence
    ]
    problem = bo.Problem(bo.Minimize(atom(X, X0)), rows)

    K = cp.Variable((n, n), PSD=True)
    d = cp.hstack([K[a, a] + K[b, b] - 2 * K[a, b] for a, b in zip(i, j, strict=True)])
    q = cp.hstack([cp.trace(np.outer(z, z) @ K) for z in Z])
    constraints = [
        cp.diag(K)[k] == np.diag(F)[k],
        cp.hstack([K[a, b] for a, b in zip(i, j, strict=True)]) >= F[i, j] - gap[0],
        q >= quad * (1 - gap[1]),
        q <= quad * (1 + gap[1]),
        cp.trace(A @ K) <= np.vdot(A, F),
        K[0, 1] - K[n - 1, n - 1] <= F[0, 1] - F[n - 1, n - 1] + gap[2],
    ]
    if divergence == "logdet":
        objective = cp.trace(np.linalg.inv(X0) @ K) - cp.log_det(K) + np.linalg.slogdet(X0)[1] - n
    elif divergence == "von_neumann":
        w, Q = np.linalg.eigh(X0)
        objective = -cp.von_neumann_entr(K) - cp.trace(((Q * np.log(w)) @ Q.T + np.eye(n)) @ K) + np.trace(X0)
    else:
        objective = cp.sum_squares(K - X0)
    if soft:
        b0, b = distance * 0.7, cp.Variable(len(i))
        constraints.append(d <= b)
        if divergence == "logdet":
            objective += gamma * cp.sum(cp.multiply(1 / b0, b) - cp.log(b) + np.log(b0) - 1)
        elif divergence == "von_neumann":
            objective += gamma * cp.sum(cp.kl_div(b, b0))
        else:
            objective += gamma * cp.sum_squares(b - b0)
        objective += 0.5 * cp.abs(cp.trace(K) - 0.9 * np.trace(F))
    else:
        constraints.append(d <= distance)
    return problem, cp.Problem(cp.Minimize(objective), constraints), K
