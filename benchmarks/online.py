"""Cost of a trial of the online learners, compared with ten lines of NumPy that do the same.

    python benchmarks/online.py [--rounds 15] [--trials 1000]

Learner and lines take turns on the same stream, on one BLAS thread. A time is the smallest over the rounds,
and the ratio the median over the rounds. The table goes to benchmarks/results/online.md.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from bregopt.online import (
    MEG,
    BurgGradient,
    GeneralMatrixWinnow,
    MatrixBurgGradient,
    MatrixWinnow,
    OnlinePCA,
)

ORDERS = (10, 50, 100)
RATE, THRESHOLD = 1.28, 0.19  # of the Winnows
RANK = 5  # of the instances of "matrix Burg, factors"


def meg(x, y, eta):
    """Return what MEG learns from vectors."""
    n = x.shape[1]
    G, W = -math.log(n) * np.eye(n), np.eye(n) / n
    for x_t, y_t in zip(x, y, strict=True):
        G = G - 2 * eta * (x_t @ W @ x_t - y_t) * np.outer(x_t, x_t)
        w, V = np.linalg.eigh(G)
        w = np.exp(w - w[-1])
        W = (V * w) @ V.T / w.sum()
    return W


def burg(x, y, eta):
    """Return what the Burg gradient learns."""
    w = np.full(x.shape[1], 1 / x.shape[1])
    for x_t, y_t in zip(x, y, strict=True):
        share = w * x_t
        error = share.sum() - y_t
        fall = (-error * share).max()
        rate = min(eta, 1 / (4 * (share @ share)), 1 / (4 * fall) if fall > 0 else math.inf)
        w = w / (1 + 2 * rate * error * share)
    return w


def matrix_burg(z, y, eta):
    """Return what the matrix Burg gradient learns from vectors, with the ceiling one."""
    n = z.shape[1]
    F, H = np.eye(n) / math.sqrt(n), np.eye(n) / math.sqrt(n - 1)
    for z_t, y_t in zip(z, y, strict=True):
        v, u = z_t @ F, z_t @ H
        p, q = v @ v, u @ u
        rate = min(eta, 1 / (4 * p**2), 1 / (4 * (y_t - p) * q) if p < y_t else math.inf)
        step = 2 * rate * (p - y_t)
        a, b = math.sqrt(1 + step * p), math.sqrt(1 + step * q)
        F = F - np.outer(step / (a * (1 + a)) * (F @ v), v)
        H = H - np.outer(step / (b * (1 + b)) * (H @ u), u)
    return F @ F.T


def matrix_burg_of_factors(Z, y, eta):
    """Return what the matrix Burg gradient learns from factors, with the ceiling one."""
    n = Z.shape[1]
    F, H = np.eye(n) / math.sqrt(n), np.eye(n) / math.sqrt(n - 1)
    for Z_t, y_t in zip(Z, y, strict=True):
        V, U = F.T @ Z_t, H.T @ Z_t
        (v, P), (u, Q) = np.linalg.eigh(V.T @ V), np.linalg.eigh(U.T @ U)
        error = v.sum() - y_t
        rate = min(eta, 1 / (4 * (v @ v)), -1 / (4 * error * u[-1]) if error < 0 else math.inf)
        step = 2 * rate * error
        a, b, V, U = np.sqrt(1 + step * v), np.sqrt(1 + step * u), V @ P, U @ Q
        F = F - (F @ V * (step / (a * (1 + a)))) @ V.T
        H = H - (H @ U * (step / (b * (1 + b)))) @ U.T
    return F @ F.T


def winnow(x, y, w0):
    """Return what Matrix Winnow learns from vectors."""
    n = x.shape[1]
    G, W = math.log(w0) * np.eye(n), w0 * np.eye(n)
    for x_t, y_t in zip(x, y, strict=True):
        if (x_t @ W @ x_t >= THRESHOLD) != (y_t > 0):
            G = G + RATE * y_t * np.outer(x_t, x_t)
            w, V = np.linalg.eigh(G)
            W = (V * np.exp(w)) @ V.T
    return W


def general_winnow(X, y, theta, eta, w0):
    """Return what the general Winnow learns from matrices."""
    m, n = X.shape[1:]
    S = R = np.zeros((m, n))
    for X_t, y_t in zip(X, y, strict=True):
        if (np.vdot(X_t, R) >= theta) != (y_t > 0):
            S = S + eta * y_t * X_t
            U, s, Vt = np.linalg.svd(S, full_matrices=False)
            total = 2 * np.cosh(s).sum() + abs(m - n)
            R = (U * (2 * w0 * np.sinh(s) * (m + n) / total)) @ Vt
    return R


def pca(x, eta, k):
    """Return the weights of on-line PCA: relative entropy and capped eigenvalues."""
    n = x.shape[1]
    G, W = np.zeros((n, n)), np.eye(n) / n
    for x_t in x:
        w, V = np.linalg.eigh(G - eta * np.outer(x_t, x_t))
        w, cap = np.exp(w - w[-1]), 1 / (n - k)
        for count in range(n):  # how many eigenvalues are capped
            rest = w[: n - count] * ((1 - count * cap) / w[: n - count].sum())
            if rest[-1] <= cap:
                break
        w = np.concatenate([rest, np.full(count, cap)])
        G, W = (V * np.log(w)) @ V.T, (V * w) @ V.T
    return W


def cases(n, trials):
    """Return the names of the cases, each with a learner, the lines and their arguments."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(trials, n)) / math.sqrt(n)
    Z = rng.normal(size=(trials, n, RANK)) / math.sqrt(n * RANK)
    y = rng.uniform(0, 2 / n, trials)
    short = x / np.linalg.norm(x, axis=1).max()
    sign = np.where(rng.random(trials) < 0.5, 1.0, -1.0)  # noise: about every second trial is a mistake
    M = rng.normal(size=(trials, n, n))
    M /= np.linalg.norm(M, 2, axis=(1, 2))[:, None, None]
    w0 = 2 / n
    general = {"eta": 0.5, "theta": 0.1, "w0": 0.5}
    return {
        "MEG": (MEG(eta=0.5, r=None), "W_", meg, x, y, 0.5),
        "Burg": (BurgGradient(), "w_", burg, np.abs(x), y, 0.25),
        "matrix Burg": (MatrixBurgGradient(), "W_", matrix_burg, x, y, 0.25),
        f"matrix Burg, factors of rank {RANK}": (
            MatrixBurgGradient(),
            "W_",
            matrix_burg_of_factors,
            Z,
            y,
            0.25,
        ),
        "Winnow": (MatrixWinnow(eta=RATE, theta=THRESHOLD, w0=w0), "W_", winnow, short, sign, w0),
        "general Winnow": (GeneralMatrixWinnow(**general), "R_", general_winnow, M, sign, 0.1, 0.5, 0.5),
        "PCA": (
            OnlinePCA(n // 2, eta=0.5),
            "W_",
            lambda x, _, *more: pca(x, *more),
            short,
            None,
            0.5,
            n // 2,
        ),
    }


def seconds(call, *arguments):
    """Return the time that a call takes."""
    before = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - before


def main():
    """Measure in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--trials", type=int, default=1000)
    options = parser.parse_args()
    lines = ["| learner | n | learner, us | NumPy, us | ratio |", "|---|--:|--:|--:|--:|"]
    with threadpool_limits(1):
        for n in ORDERS:
            for name, (learner, learned, by_hand, *stream) in cases(n, options.trials).items():
                examples = stream[:2]
                found = getattr(learner.fit(*examples), learned)
                assert np.allclose(found, by_hand(*stream), atol=1e-8), name
                times = np.array(
                    [
                        [seconds(learner.fit, *examples), seconds(by_hand, *stream)]
                        for _ in range(options.rounds)
                    ]
                )
                best = 1e6 * times.min(axis=0) / options.trials
                ratio = np.median(times[:, 0] / times[:, 1])
                lines.append(f"| {name} | {n} | {best[0]:.1f} | {best[1]:.1f} | {ratio:.2f} |")
    print("\n".join(lines))
    if options.trials >= 1000:  # only full runs are saved
        (Path(__file__).parent / "results" / "online.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
