"""A conic program read directly: the matrices are the blocks of ``s``.

Variables that are entries of a block, such as those of a psd variable, are eliminated: they are the pivots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.cvxpy.conic.form import Conic, others
from bregopt.cvxpy.conic.parts import blocks_of, hard_bounds, map_of
from bregopt.presolve.constants import ENTRY_NOISE
from bregopt.program import Program

__all__ = ["Direct", "Pivots", "pivots_of", "read_directly"]


@dataclass(frozen=True, eq=False)
class Direct:
    """(P) with the variables ``x_P = T (b_D - s_D - A_DF x_F)`` of the pivots eliminated.

    Parameters
    ----------
    conic : Conic
    program : Program
        Its ``u`` is ``x_F``, and its rows are the rows ``R``.
    D, P : int array
        The pivots' rows and variables.
    T : array
        The inverses of their entries.
    F, R : int array
        The other variables and rows.
    """

    dual: ClassVar[bool] = False
    conic: Conic
    program: Program
    D: IntArray
    P: IntArray
    T: Array
    F: IntArray
    R: IntArray

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer."""
        A, b, linear = self.conic.A, self.conic.b, self.conic.linear
        x = np.zeros(A.shape[1])
        x[self.F] = u
        x[self.P] = self.T * ((b - A @ x)[self.D] - self.conic.triangles(S)[self.D - linear])
        return x

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return ``z``: on the rows ``R`` from the multipliers, on the pivots' rows from ``A'z = -c``."""
        A, c = self.conic.A, self.conic.c if priced else np.zeros(len(self.conic.c))
        z = np.zeros(A.shape[0])
        z[self.R] = -self.program.bounds.clip(y)
        z[self.D] = -self.T * (c + A.T @ z)[self.P]
        return z


class Pivots(NamedTuple):
    """The rows, columns and values of the pivots."""

    rows: IntArray
    columns: IntArray
    entries: Array


def pivots_of(conic: Conic) -> Pivots:
    """Return psd rows, and for each a variable that occurs in no other of these rows.

    First come variables that are the only one in a psd row. Then, in rows without such a variable, come
    variables that occur in no other psd row.
    """
    psd = conic.A[conic.linear :]
    count = np.diff(psd.indptr)
    single = psd.indptr[np.flatnonzero(count == 1)]
    alone, first = np.unique(psd.indices[single], return_index=True)
    taken = np.zeros(psd.shape[1], dtype=bool)
    taken[alone] = True
    row = np.repeat(np.arange(psd.shape[0]), count)
    open_row = np.bincount(row, weights=taken[psd.indices], minlength=psd.shape[0]) == 0
    once = np.bincount(psd.indices, minlength=psd.shape[1]) == 1
    own = np.flatnonzero(open_row[row] & once[psd.indices])
    _, at = np.unique(row[own], return_index=True)
    chosen = np.concatenate([single[first], own[at]])
    return Pivots(row[chosen] + conic.linear, psd.indices[chosen], psd.data[chosen])


def read_directly(conic: Conic, pivots: Pivots) -> Direct:
    """Return the reading of (P)."""
    A, b, c = conic.A, conic.b, conic.c
    D, P, T = pivots.rows, pivots.columns, 1 / pivots.entries
    R, F = others(D, A.shape[0]), others(P, A.shape[1])
    through = sp.csr_array(A[R][:, P] @ sp.diags_array(T))
    # A row has entries in s_D; a psd row has one more, in its own element of s.
    inner = np.flatnonzero(conic.linear <= R)
    s = sp.coo_array(-through)
    row = np.concatenate([s.row, inner])
    place = np.concatenate([D[s.col], R[inner]]) - conic.linear
    value = np.concatenate([s.data, np.ones(len(inner))])
    bound = b[R] - through @ b[D]
    program = Program(
        blocks=blocks_of(conic, D - conic.linear, -T * c[P]),
        A=map_of(conic, len(R), row, place, value),
        B=sp.csr_array(A[R][:, F] - through @ A[D][:, F]),
        bounds=hard_bounds(np.where((R >= conic.zero) & (R < conic.linear), -np.inf, bound), bound),
        c=_without_round_off(c[F], A[D][:, F].T, T * c[P]),
        u_lo=np.full(len(F), -np.inf),
        u_hi=np.full(len(F), np.inf),
        offset=float(c[P] @ (T * b[D])),
    )
    return Direct(conic, program, D, P, T, F, R)


def _without_round_off(c: Array, A: Any, price: Array) -> Array:
    """Return ``c - A price``, zero where that is round-off: a cost of round-off seems to fall without end."""
    left = c - A @ price
    return np.where(np.abs(left) > ENTRY_NOISE * (np.abs(c) + abs(A) @ np.abs(price)), left, 0.0)
