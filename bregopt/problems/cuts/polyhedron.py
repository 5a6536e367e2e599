"""The rows of a relaxation with a fixed diagonal, and the projection of matrices on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.cache import cached_property
from bregopt.program import Program

__all__ = ["Places", "Polyhedron", "read_rows"]

_STEPS = 15  # of a projection; the next one continues from its multipliers
_POWERS = 20  # of the matrix whose norm bounds the curvature
_MARGIN = 1.1  # of that norm, which powers approach from below


@dataclass(frozen=True, eq=False)
class Polyhedron:
    """Symmetric ``Y`` with a given diagonal, ``lo <= T y <= hi`` for entries ``y``, and a bounded ``e'Ye``.

    Parameters
    ----------
    diagonal : array of shape (n,)
    i, j : int array of shape (entries,)
        The entries above the diagonal in the rows of `T`.
    T : csr_array of shape (rows, entries)
    lo, hi : array of shape (rows,)
    total : pair of float
        The bounds of ``e'Ye``.
    """

    diagonal: Array
    i: IntArray
    j: IntArray
    T: Any
    lo: Array
    hi: Array
    total: tuple[float, float]

    def project(self, W: Array, z: Array) -> tuple[Array, Array, float]:
        """Return ``Y`` near ``W`` of shape (n, n), the multipliers of `T`, and that of ``e'Ye``.

        Accelerated gradient steps on the multipliers, from `z`, approach the projection (Nesterov 1983, with
        the restarts of O'Donoghue and Candes 2015).
        """
        n, w = len(W), W[self.i, self.j]
        others = float(W.sum() - np.trace(W))
        best = point = z
        t = 1.0
        for _ in range(_STEPS if len(z) else 0):
            half = self._Tt @ point / 2
            gradient = self.T @ (w + half + self._shift(others + 2 * half.sum(), n))
            moved = point - gradient / self._curvature
            following = np.maximum(moved + self.lo / self._curvature, 0.0)
            following += np.minimum(moved + self.hi / self._curvature, 0.0)
            if (point - following) @ (following - best) > 0:
                t = 1.0
            grown = (1 + np.sqrt(1 + 4 * t * t)) / 2
            point = following + (t - 1) / grown * (following - best)
            best, t = following, grown
        half = self._Tt @ best / 2
        shift = self._shift(others + 2 * half.sum(), n)
        Y = W + shift
        Y[self.i, self.j] += half
        Y[self.j, self.i] += half
        Y[np.diag_indices(n)] = self.diagonal
        return Y, best, shift

    def _shift(self, others: float, n: int) -> float:
        """Return what all entries off the diagonal need for their sum to be between its bounds."""
        low, high = (end - self.diagonal.sum() for end in self.total)
        return float(np.clip(others, low, high) - others) / max(n * (n - 1), 1)

    @cached_property
    def _Tt(self) -> Any:
        return sp.csr_array(self.T.T)

    @cached_property
    def _curvature(self) -> float:
        """An upper bound on the norm of ``T T' / 2``, estimated by powers."""
        m = self.T.shape[0]
        v = 1 + np.random.default_rng(0).normal(size=m)  # ones alone may be orthogonal to the largest
        norm = 1.0
        for _ in range(_POWERS):
            v = self.T @ (self._Tt @ (v / np.linalg.norm(v))) / 2
            norm = float(np.linalg.norm(v))
        return _MARGIN * norm


@dataclass(frozen=True, eq=False)
class Places:
    """Where the rows of a polyhedron are in a program.

    Parameters
    ----------
    diagonal : int array of shape (n,)
        The row of each diagonal entry.
    weights : array of shape (n,)
        The weight of the entry in its row.
    sparse : int array of shape (rows of `T`,)
    total : int array of shape (0,) or (1,)
        The row on ``e'Xe``.
    weight : float
        Of ``e'Xe`` in that row.
    """

    diagonal: IntArray
    weights: Array
    sparse: IntArray
    total: IntArray
    weight: float

    def multipliers(self, missing: Array, z: Array, shift: float, m: int) -> Array:
        """Return multipliers ``y`` of all rows, shape (m,).

        Parameters
        ----------
        missing : array of shape (n,)
            The diagonal of ``A*(y)``.
        z : array of shape (rows of `T`,)
        shift : float
            The multiplier of ``e'Xe``.
        m : int
        """
        y = np.zeros(m)
        y[self.sparse] = z
        y[self.diagonal] = (missing - shift) / self.weights
        y[self.total] = shift / self.weight
        return y


def read_rows(program: Program) -> tuple[Polyhedron, Places]:
    """Return the rows of a program as a polyhedron, and their places.

    The program has one matrix, an equality row for each diagonal entry, rows of entries off the diagonal, and
    at most one row on ``e'Xe``, which alone has entries both on and off the diagonal.
    """
    n, bounds = program.blocks[0].n, program.bounds
    terms = [(term.at, term.rows.coordinates()) for term in program.A.terms]
    rows = np.concatenate([at[t.row] for at, t in terms])
    i = np.concatenate([np.minimum(t.i, t.j) for _, t in terms])
    j = np.concatenate([np.maximum(t.i, t.j) for _, t in terms])
    values = np.concatenate([t.value for _, t in terms])
    total = np.intersect1d(rows[i == j], rows[i != j])
    on, off = ((mask & ~np.isin(rows, total)).nonzero()[0] for mask in (i == j, i != j))
    on = on[np.argsort(i[on])]
    sparse, local = np.unique(rows[off], return_inverse=True)
    entries, column = np.unique(i[off] * n + j[off], return_inverse=True)
    weight = float(values[(rows == total[0]) & (i == j)][0]) if len(total) else 1.0
    ends = (
        [float(end[total[0]]) / weight for end in (bounds.lo, bounds.hi)] if len(total) else [-np.inf, np.inf]
    )
    polyhedron = Polyhedron(
        diagonal=bounds.lo[rows[on]] / values[on],
        i=entries // n,
        j=entries % n,
        T=sp.csr_array((values[off], (local, column)), (len(sparse), len(entries))),
        lo=bounds.lo[sparse],
        hi=bounds.hi[sparse],
        total=(ends[0], ends[1]),
    )
    return polyhedron, Places(rows[on], values[on], sparse, total, weight)
