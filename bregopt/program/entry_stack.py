"""A stack of nearness problems of one order, with bounds on entries of their matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.records import dataclass, replace

__all__ = ["EntryStack"]


@dataclass(frozen=True, eq=False)
class EntryStack:
    """The problems ``min D(X, X0)`` over psd ``X`` with ``lo <= X[i, j] <= hi``, one for each ``X0``.

    Parameters
    ----------
    divergence : bregopt.divergences.stacks.StackedDivergence
        From the ``B`` matrices of order ``n``. Spectral ones offer more to their method.
    i, j : int array of shape (m,)
        Distinct entries with ``i <= j``; the first ``n`` are the diagonal. Or none at all.
    lo, hi : array of shape (B, m)
        Their bounds, those of the diagonal equal and above zero. An entry without a bound in one of the
        problems has ``-inf`` and ``inf`` there.
    """

    divergence: Any
    i: IntArray
    j: IntArray
    lo: Array
    hi: Array

    def __len__(self) -> int:
        return len(self.lo)

    def __getitem__(self, which: IntArray | Mask) -> EntryStack:
        """Return some of the problems."""
        return replace(self, divergence=self.divergence[which], lo=self.lo[which], hi=self.hi[which])

    def of_rows(self, which: Mask) -> EntryStack:
        """Return the problems with some of the rows."""
        own = {name: getattr(self, name)[..., which] for name in ("i", "j", "lo", "hi")}
        return replace(self, **own)

    @property
    def n(self) -> int:
        """The order of the matrices."""
        return self.divergence.X0.shape[1]

    @property
    def alone(self) -> bool:
        """Whether no entries off the diagonal have bounds."""
        return len(self.i) == self.n

    def apply(self, X: Array) -> Array:
        """Return the entries of each matrix, shape (B, m)."""
        return X[:, self.i, self.j]

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_k y_k A_k`` of each problem, with ``<A_k, X>`` the entry of row ``k``."""
        S = np.zeros((len(y), self.n, self.n))
        half = np.where(self.i == self.j, y, y / 2)
        S[:, self.i, self.j] = half
        S[:, self.j, self.i] = half
        return S

    def conjugate(self, y: Array) -> Array:
        """Return each row's term of the dual function, shape (B, m)."""
        acting = np.where(y > 0, self.lo, self.hi)
        return y * np.where(y == 0, 0.0, acting)

    def clip(self, y: Array) -> Array:
        """Return the nearest multipliers inside their range."""
        lower = np.where(np.isfinite(self.hi), -np.inf, 0.0)
        upper = np.where(np.isfinite(self.lo), np.inf, 0.0)
        return np.clip(y, lower, upper)
