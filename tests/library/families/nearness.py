"""Nearness in three divergences, whose gradient condition holds at a known answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import bregopt as bo
from families.case import Case, of_norm_one, sym


def nearness_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield nearness problems of the three divergences whose gradient condition holds at a known answer."""

    def problem(atom: Any, X0: np.ndarray, A: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> Any:
        def make() -> bo.Problem:
            X = bo.PSD(len(X0))
            equal = lo == hi
            below, above = np.isfinite(lo) & ~equal, np.isfinite(hi) & ~equal
            rows = [bo.inner(A[equal], X) == lo[equal]] if equal.any() else []
            rows += [bo.inner(A[below], X) >= lo[below]] if below.any() else []
            rows += [bo.inner(A[above], X) <= hi[above]] if above.any() else []
            return bo.Problem(bo.Minimize(atom(X, X0)), rows)

        return make

    atoms = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div}
    for name, atom in atoms.items():
        for k in range(3 * count):
            n, scale = int(rng.integers(3, 10)), 10.0 ** rng.integers(-6, 7)
            kind = ("equal", "inequalities", "zero")[k % 3]
            G = rng.normal(size=(n, n))
            X0 = G @ G.T / n + 0.2 * np.eye(n)
            A = of_norm_one(rng, int(rng.integers(1, 2 * n)), n)
            y = rng.normal(size=len(A)) * (kind != "zero")
            loose = (rng.random(len(A)) < 0.6) & (kind == "inequalities")
            idle = loose & (rng.random(len(A)) < 0.4)
            y[idle] = 0.0
            X, value, unit = nearest(name, X0, np.einsum("k,kij->ij", y, A))
            a = scale * np.einsum("kij,ij->k", A, X)
            room = scale * rng.random(len(A))
            lo = np.where(loose & (y < 0), -np.inf, a - np.where(idle, room, 0.0))
            hi = np.where(loose & (y >= 0), np.inf, a)
            size = {"logdet": 1.0, "von_neumann": scale, "frobenius": scale**2}[name]
            make = problem(atom, scale * X0, A, lo, hi)
            yield Case("nearness", f"{name} {kind} {k}", make, size * value, size * unit)


def spectral(A: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the function of a symmetric matrix that acts on its eigenvalues."""
    w, Q = np.linalg.eigh(A)
    return (Q * function(w)) @ Q.T


def nearest(name: str, X0: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return ``X`` where the divergence from `X0` has the gradient `S` plus a multiplier of the cone.

    Also return the divergence of ``X`` and its unit. For LogDet `S` is scaled, in place, until ``X`` exists.
    """
    if name == "frobenius":
        w, Q = np.linalg.eigh(X0 + S / 2)
        X = (Q * np.maximum(w, 0)) @ Q.T
        return X, float(np.linalg.norm(X - X0) ** 2), float(np.linalg.norm(X0) ** 2)
    if name == "von_neumann":
        log_X0 = spectral(X0, np.log)
        X = spectral(log_X0 + S, np.exp)
        value = np.trace(X @ S - X + X0)
        return X, float(value), float(np.trace(X0))
    inverse = np.linalg.inv(X0)
    S *= min(1.0, 0.8 / max(np.linalg.eigvalsh(np.linalg.solve(inverse, S) @ np.eye(len(S)))[-1], 1e-12))
    while np.linalg.eigvalsh(inverse - S)[0] <= 0.05 * np.linalg.eigvalsh(inverse)[0]:
        S *= 0.5
    X = sym(np.linalg.inv(inverse - S))
    R = X @ inverse
    return X, float(np.trace(R) - np.linalg.slogdet(R)[1] - len(X)), 1.0
