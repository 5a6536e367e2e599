"""Instances of matrix nearness: random ones with a seed, and the real matrices of a data folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bregopt as bo

Array = Any
Make = Callable[[], bo.Problem]
ATOMS = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div}
_LEAST = 1e-3  # eigenvalue of a lifted matrix


def start_matrix(n: int, rng: np.random.Generator) -> Array:
    """Return a random positive definite matrix with a diagonal from 0.25 to 4."""
    G = rng.normal(size=(n, 2 * n))
    S = G @ G.T / (2 * n)
    d = np.sqrt(rng.uniform(0.25, 4, n) / np.diag(S))
    return d[:, None] * S * d


def uniform_matrix(n: int, rng: np.random.Generator) -> Array:
    """Return a symmetric matrix with unit diagonal and entries uniform in [-1, 1]."""
    R = rng.uniform(-1, 1, size=(n, n))
    R = (R + R.T) / 2
    np.fill_diagonal(R, 1)
    return R


def real_matrices(folder: Path) -> dict[str, tuple[Array, Array | None]]:
    """Return the matrices of a folder by name, small ones first, with the mask of fixed entries, if any."""
    found = {}
    for path in folder.glob("*.csv"):
        if not path.stem.endswith("_pattern"):
            pattern = path.with_name(f"{path.stem}_pattern.csv")
            found[path.stem] = (_symmetric(path), _symmetric(pattern) != 0 if pattern.exists() else None)
    return dict(sorted(found.items(), key=lambda item: (len(item[1][0]), item[0])))


def _symmetric(path: Path) -> Array:
    A = np.loadtxt(path, delimiter=",")
    return (A + A.T) / 2


def lifted(A: Array) -> Array:
    """Return the nearest matrix with eigenvalues of at least 1e-3; its diagonal differs from that of `A`."""
    lift = _LEAST * np.eye(len(A))
    return bo.nearest_psd(A - lift, tol=1e-10).X + lift


def correlation_problem(divergence: str, X0: Array, fixed: tuple[Array, Array, Array] | None = None) -> Make:
    """Return the model of the nearest matrix with a unit diagonal.

    Parameters
    ----------
    divergence : str
    X0 : array of shape (n, n)
    fixed : tuple of arrays (i, j, values), optional
        Entries above the diagonal that must have these values.
    """

    def make() -> bo.Problem:
        X = bo.PSD(len(X0))
        rows = [bo.diag(X) == 1]
        if fixed is not None:
            i, j, values = fixed
            rows.append(X[i, j] == values)
        return bo.Problem(bo.Minimize(ATOMS[divergence](X, X0)), rows)

    return make


def distance_problem(divergence: str, n: int, m: int, soft: bool) -> Make:
    """Return the model of `m` random distances, hard or soft, at most 0.8 to 1.2 times those of ``X0``."""
    rng = np.random.default_rng(n)
    X0 = start_matrix(n, rng)
    i, j = _pairs(n, m, rng)
    b = (X0[i, i] + X0[j, j] - 2 * X0[i, j]) * rng.uniform(0.8, 1.2, m)

    def make() -> bo.Problem:
        X = bo.PSD(n)
        rows = bo.sq_distance(X, i, j) <= b
        return bo.Problem(bo.Minimize(ATOMS[divergence](X, X0)), [bo.soft(rows, gamma=1.0) if soft else rows])

    return make


def low_rank_problem(divergence: str, n: int, r: int, m: int) -> Make:
    """Return the model of soft distances on a low-rank kernel, as in Kulis et al. 2009, §7.2."""
    rng = np.random.default_rng(0)
    G = rng.normal(size=(n, r))
    i, j = _pairs(n, m, rng)
    label = rng.integers(0, 10, n)
    d, same = ((G[i] - G[j]) ** 2).sum(axis=1), label[i] == label[j]
    low, high = np.percentile(d, 5), np.percentile(d, 95)

    def make() -> bo.Problem:
        K = bo.PSD(n)
        near = bo.soft(bo.sq_distance(K, i[same], j[same]) <= low, gamma=1.0)
        far = bo.soft(bo.sq_distance(K, i[~same], j[~same]) >= high, gamma=1.0)
        return bo.Problem(bo.Minimize(ATOMS[divergence](K, bo.LowRank(G))), [near, far])

    return make


def _pairs(n: int, m: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return `m` random pairs of different indices."""
    i = rng.integers(0, n, m)
    return i, (i + rng.integers(1, n, m)) % n
