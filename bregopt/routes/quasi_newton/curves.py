"""Curves of positive definite matrices through a point, on which line searches move."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bregopt.arrays import Array

__all__ = ["Curve", "Exponential", "Geodesic"]


class Curve(Protocol):
    """Curves from ``root root'``, each with a symmetric exponent."""

    def exponent(self, step: Array) -> Array:
        """Return the exponent of the curve with a given tangent at the point."""
        ...

    def exponent_to(self, root: Array) -> Array:
        """Return the exponent of the curve that reaches ``root root'`` at ``t = 1``."""
        ...

    def slope(self, gradient: Array, exponent: Array) -> float:
        """Return the derivative of a function with the given gradient along a curve."""
        ...

    def at(self, exponent: Array, t: float) -> Array:
        """Return a factor of the matrix at `t`."""
        ...


class Geodesic:
    """``R expm(t E) R'``: eigenvalues grow as fast as they shrink.

    Along a segment they would grow at most twofold in a Newton step of LogDet.
    """

    def __init__(self, root: Array) -> None:
        self._root = root

    def exponent(self, step: Array) -> Array:
        half = np.linalg.solve(self._root, step)
        return _symmetric(np.linalg.solve(self._root, half.T))

    def exponent_to(self, root: Array) -> Array:
        U, s, _ = np.linalg.svd(np.linalg.solve(self._root, root))
        return _symmetric((U * (2 * np.log(s))) @ U.T)

    def slope(self, gradient: Array, exponent: Array) -> float:
        return float(np.vdot(self._root.T @ gradient @ self._root, exponent))

    def at(self, exponent: Array, t: float) -> Array:
        powers, Q = np.linalg.eigh(exponent)
        root: Array = (self._root @ Q) * np.exp(t * powers / 2)
        return root


class Exponential:
    """``expm(log M + t E)``, in the eigenvectors of ``M``: the lines of von Neumann's gradient.

    Attributes
    ----------
    U : array of shape (r, r)
        Eigenvectors of ``M``.
    logs : array of shape (r,)
        Logarithms of its eigenvalues.
    means : array of shape (r, r)
        Logarithmic means of pairs of eigenvalues, the derivative of ``expm``.
    """

    def __init__(self, root: Array) -> None:
        self.U, s, _ = np.linalg.svd(root)
        self.logs = 2 * np.log(s)
        half = (self.logs[:, None] - self.logs) / 2
        ratio = np.divide(np.sinh(half), half, out=np.ones_like(half), where=np.abs(half) > 1e-6)
        self.means = np.outer(s, s) * ratio

    def exponent(self, step: Array) -> Array:
        return _symmetric((self.U.T @ step @ self.U) / self.means)

    def exponent_to(self, root: Array) -> Array:
        U, s, _ = np.linalg.svd(self.U.T @ root)
        return _symmetric((U * (2 * np.log(s))) @ U.T - np.diag(self.logs))

    def slope(self, gradient: Array, exponent: Array) -> float:
        return float(np.vdot((self.U.T @ gradient @ self.U) * self.means, exponent))

    def at(self, exponent: Array, t: float) -> Array:
        logs, Q = np.linalg.eigh(np.diag(self.logs) + t * exponent)
        root: Array = (self.U @ Q) * np.exp(logs / 2)
        return root


def _symmetric(S: Array) -> Array:
    symmetric: Array = (S + S.T) / 2
    return symmetric
