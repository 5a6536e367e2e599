"""Popular problems in CVXPY that join psd matrices with second-order cones or quadratic objectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
from sdp_problems import positive_definite, symmetric

Array = Any
Make = Callable[[], cp.Problem]


def families(quick: bool) -> dict[str, list[Make]]:
    """Return the problems of each line of the table, as functions that make new ones."""
    few, users, antennas, sensors, order = (2, 2, 3, 8, 6) if quick else (20, 4, 8, 40, 30)
    return {
        f"{few} SOC + PSD problems": [lambda seed=seed: mixed_cones(seed) for seed in range(few)],
        "robust beamforming": [lambda: robust_beamforming(users, antennas)],
        "outage beamforming": [lambda: outage_beamforming(users, antennas // 2 + 1)],
        "sensor network": [lambda: sensor_network(sensors, anchors=4)],
        "nuclear-norm regression": [lambda: nuclear_norm_regression(order // 2, order // 2 - 1)],
        "lambda_max": [lambda: largest_eigenvalue(order, order // 3)],
        "Chebyshev LMI": [lambda: chebyshev(order, order // 2, order // 3)],
    }


def mixed_cones(seed: int) -> cp.Problem:
    """Return  min <C, X> + c'x,  A(X) + B x = b,  ||D_k x - d_k|| <= e_k'x + f_k,  regular on both sides."""
    rng = np.random.default_rng(seed)
    n, k, cones = (int(rng.integers(*ends)) for ends in ((4, 16), (5, 30), (1, 5)))
    m = int(rng.integers(1, (n * (n + 1) // 2 + k) // 2))
    A, B = symmetric(rng, m, n), rng.normal(size=(m, k))
    (X0, Z0), x0, y = positive_definite(rng, 2, n), rng.normal(size=k), rng.normal(size=m)
    C, c = Z0 + np.einsum("r,rij->ij", y, A), B.T @ y
    X, x = cp.Variable((n, n), PSD=True), cp.Variable(k)
    rows = [A.reshape(m, -1) @ cp.vec(X, order="C") + B @ x == np.einsum("rij,ij->r", A, X0) + B @ x0]
    for _ in range(cones):
        size = int(rng.integers(2, 12))
        D, e, (d, w) = rng.normal(size=(size, k)), rng.normal(size=k), rng.normal(size=(2, size))
        f = np.linalg.norm(D @ x0 - d) - e @ x0 + rng.uniform(0.1, 1)
        c = c + (np.linalg.norm(w) + rng.uniform(0.1, 1)) * e + D.T @ w
        rows.append(cp.norm(D @ x - d) <= e @ x + f)
    return cp.Problem(cp.Minimize(cp.trace(C @ X) + c @ x), rows)


def robust_beamforming(users: int, antennas: int, seed: int = 0) -> cp.Problem:
    """Return the least power of beams W_k with a signal-to-noise ratio for all channels near h_k.

    The power is the trace plus the norm of the antennas' powers. The S-procedure makes one linear matrix
    inequality a user; Zheng, Wong and Ng (2008), Robust linear MIMO in the downlink, with real channels.
    """
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(users, antennas))
    ratio, radius, noise = 1.0, 0.1, 0.1
    W = [cp.Variable((antennas, antennas), PSD=True) for _ in range(users)]
    t, rows = cp.Variable(users, nonneg=True), []
    for k in range(users):
        Q = W[k] / ratio - sum(W[i] for i in range(users) if i != k)
        Qh, corner = Q @ h[k], h[k] @ Q @ h[k] - noise - radius**2 * t[k]
        column = cp.reshape(Qh, (antennas, 1), order="C")
        corner = cp.reshape(corner, (1, 1), order="C")
        rows.append(cp.bmat([[Q + t[k] * np.eye(antennas), column], [column.T, corner]]) >> 0)
    power = sum(cp.diag(W_k) for W_k in W)
    return cp.Problem(cp.Minimize(sum(cp.trace(W_k) for W_k in W) + cp.norm(power)), rows)


def outage_beamforming(users: int, antennas: int, seed: int = 0) -> cp.Problem:
    """Return the least power of beams W_k that miss a signal-to-noise ratio with a probability of 0.1.

    A Bernstein inequality makes a second-order cone and a linear matrix inequality a user; Wang, So, Chang,
    Ma and Chi (2014), Outage constrained robust transmit optimization, IEEE Trans. Signal Processing 62.
    """
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(users, antennas))
    ratio, deviation, noise, level = 1.0, 0.05, 0.1, np.log(1 / 0.1)
    W = [cp.Variable((antennas, antennas), PSD=True) for _ in range(users)]
    x, y, rows = cp.Variable(users), cp.Variable(users, nonneg=True), []
    for k in range(users):
        Q = W[k] / ratio - sum(W[i] for i in range(users) if i != k)
        spread, mean = deviation**2 * Q, deviation * Q @ h[k]
        level_k = cp.trace(spread) - np.sqrt(2 * level) * x[k] - level * y[k]
        rows += [
            level_k + h[k] @ Q @ h[k] >= noise,
            cp.norm(cp.hstack([cp.vec(spread, order="C"), np.sqrt(2) * mean])) <= x[k],
            y[k] * np.eye(antennas) + spread >> 0,
        ]
    return cp.Problem(cp.Minimize(sum(cp.trace(W_k) for W_k in W)), rows)


def sensor_network(sensors: int, anchors: int, seed: int = 0) -> cp.Problem:
    """Return the places P of sensors in the plane from noisy distances, by least squares.

    The matrix (I P'; P Y) is psd, where Y stands for PP'; Biswas and Ye (2004), Semidefinite programming
    for ad hoc wireless sensor network localization.
    """
    rng = np.random.default_rng(seed)
    at, fixed = rng.uniform(-0.5, 0.5, (sensors, 2)), rng.uniform(-0.5, 0.5, (anchors, 2))
    Z, misses = cp.Variable((2 + sensors, 2 + sensors), PSD=True), []

    def noisy(difference: Array) -> float:
        return float(difference @ difference * rng.normal(1, 0.05) ** 2)

    for i in range(sensors):
        near = sorted(range(i), key=lambda j, i=i: np.linalg.norm(at[i] - at[j]))[:4]
        misses += [
            Z[2 + i, 2 + i] + Z[2 + j, 2 + j] - 2 * Z[2 + i, 2 + j] - noisy(at[i] - at[j]) for j in near
        ]
        for a in fixed:
            length = Z[2 + i, 2 + i] - 2 * a[0] * Z[0, 2 + i] - 2 * a[1] * Z[1, 2 + i] + a @ a
            misses.append(length - noisy(at[i] - a))
    return cp.Problem(cp.Minimize(cp.sum_squares(cp.hstack(misses))), [Z[:2, :2] == np.eye(2)])


def nuclear_norm_regression(rows: int, columns: int, seed: int = 0) -> cp.Problem:
    """Return least squares for observations of a matrix of rank 2, plus ten times its nuclear norm."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(rows, 2)) @ rng.normal(size=(2, columns))
    samples = rng.normal(size=(3 * (rows + columns), rows * columns))
    seen = samples @ truth.ravel() + 0.1 * rng.normal(size=len(samples))
    W = cp.Variable((rows, columns))
    return cp.Problem(cp.Minimize(cp.sum_squares(samples @ cp.vec(W, order="C") - seen) + 10 * cp.normNuc(W)))


def largest_eigenvalue(order: int, count: int, seed: int = 0) -> cp.Problem:
    """Return the least largest eigenvalue of  A_0 + sum_i x_i A_i  for x in the unit ball."""
    A0, *A = symmetric(np.random.default_rng(seed), 1 + count, order)
    x = cp.Variable(count)
    sum_ = A0 + sum(x[i] * A[i] for i in range(count))
    return cp.Problem(cp.Minimize(cp.lambda_max(sum_)), [cp.norm(x) <= 1])


def chebyshev(rows: int, columns: int, count: int, seed: int = 0) -> cp.Problem:
    """Return the best approximation of a matrix by others in the spectral norm."""
    A0, *A = np.random.default_rng(seed).normal(size=(1 + count, rows, columns))
    x = cp.Variable(count)
    difference = A0 + sum(x[i] * A[i] for i in range(count))
    return cp.Problem(cp.Minimize(cp.sigma_max(difference)), [cp.norm(x) <= 2])
