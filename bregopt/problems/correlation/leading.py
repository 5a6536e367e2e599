"""Leading eigenvectors of a symmetric matrix: all of a small one, a few of a large one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from bregopt.arrays import EPS, Array
from bregopt.cache import cached_property
from bregopt.clock import checkpoint

__all__ = ["Leading", "leading_eigenvectors"]

_SMALL = 150  # order up to which all eigenvectors take no longer than Lanczos's method with many steps
_FIRST, _GROWTH = 20, 1.4  # steps before the first look at the Ritz vectors, and between looks
_ACCURATE = 1e-3  # residual of the wanted Ritz vectors, relative to the largest Ritz value
_SPARE = 10  # further vectors, beside one more for each wanted one


@dataclass(frozen=True, eq=False)
class Leading:
    """Approximate eigenvectors.

    Parameters
    ----------
    U : array of shape (n, p)
        With orthonormal columns.
    theta : array of shape (p,)
        Their Rayleigh quotients, ascending.
    """

    U: Array
    theta: Array

    @cached_property
    def squares(self) -> Array:
        """The squared entries of ``U``, transposed."""
        return np.ascontiguousarray((self.U**2).T)

    def rows(self, k: int) -> Array:
        """Return ``U diag(max(theta, 0))^(1/2)`` of the `k` largest."""
        return self.U[:, -k:] * np.sqrt(np.maximum(self.theta[-k:], 0.0))

    def less_diagonal(self, diagonal: Array) -> Leading:
        """Return the vectors as approximate ones of the matrix less this diagonal."""
        return Leading(self.U, self.theta - self.squares @ diagonal)


def leading_eigenvectors(B: Array, k: int) -> Leading:
    """Return the `k` leading eigenvectors, and some more that are less accurate; all of a small matrix."""
    n, p = len(B), 2 * k + _SPARE
    found = None if n <= 4 * p else _ritz_vectors(B, k, p)
    if found is None:
        theta, U = np.linalg.eigh(B)
        found = Leading(U, theta)
    return found


def _ritz_vectors(B: Array, k: int, p: int) -> Leading | None:
    """Return the Ritz vectors of Lanczos's method with full reorthogonalization.

    None for a small matrix that takes many steps.
    """
    n, rng = len(B), np.random.default_rng(0)
    Q, alpha, beta = np.empty((n, n), order="F"), np.empty(n), np.empty(n)
    v, look = rng.normal(size=n), max(_FIRST, p)
    q = v / np.linalg.norm(v)
    for step in range(1, n + 1):
        checkpoint()
        Q[:, step - 1] = q
        v, known = B @ q, Q[:, :step]
        alpha[step - 1] = v @ q
        size = _orthogonalized(v, known)
        if step in (look, n):
            theta, S = scipy.linalg.eigh_tridiagonal(alpha[:step], beta[: step - 1])
            if size * np.abs(S[-1, -k:]).max() <= _ACCURATE * np.abs(theta).max() or step == n:
                break
            if n <= _SMALL:
                return None
            look = min(int(_GROWTH * step), n)
        if size <= n * EPS * np.abs(alpha[:step]).max():  # an invariant space: the next vector is random
            size, v = 0.0, rng.normal(size=n)
            q = v / _orthogonalized(v, known)
        else:
            q = v / size
        beta[step - 1] = size
    return Leading(np.asarray(known @ S[:, -p:]), theta[-p:])


def _orthogonalized(v: Array, Q: Array) -> float:
    """Subtract from a vector its part in the range of `Q`, in place, twice; return the norm."""
    for _ in range(2):
        v -= Q @ (v @ Q)
    return float(np.linalg.norm(v))
