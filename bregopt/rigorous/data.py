"""The data of a program as plain arrays with radii: all that a proof may know of a problem.

    minimize    sum over blocks <C, X> + mu D(X, X0)   +   c'u   +   offset   +   penalties of soft rows
    subject to  lo <= A(X) + B u <= hi,   0 <= X (<= cap I),   u_lo <= u <= u_hi,   u_K in Q

A number of the program is exact as it stands in floating point. Rows that are stored as products of vectors
have radii for the rounding of these products, and interval data have their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.cache import cached_property
from bregopt.program import LowRank, Penalty
from bregopt.program.cones import SecondOrderCones
from bregopt.rigorous.ball import UNIT, Ball, inflated, sparse_product

__all__ = ["LARGEST_DENSE", "Anchor", "Data", "MatrixData", "Null", "csr_of", "entries_of"]

LARGEST_DENSE = 5000  # the largest order of a matrix whose products are formed


@dataclass(frozen=True, eq=False)
class Anchor:
    """The divergence ``mu D(X, X0)`` of a block; `weights` for elementwise ones.

    With a `factor` ``X0`` is ``F F'``, of low rank, and the field `X0` is empty
    (:mod:`bregopt.rigorous.ranges`).
    """

    divergence: str
    X0: Ball
    mu: float
    weights: Array | None = None
    factor: Array | None = None


class Null(NamedTuple):
    """A hard row ``z'X z = 0`` of its block alone, so that ``X z = 0``.

    Parameters
    ----------
    row : int
    z : array of shape (n,)
        Of entries 0, 1 and -1.
    """

    row: int
    z: Array


@dataclass(frozen=True, eq=False)
class MatrixData:
    """One matrix variable: the coefficients of the entries that occur.

    Parameters
    ----------
    name : str
    n : int
        Order of ``X``.
    i, j : int array of shape (p,)
        The entries ``X_ij``, ``i <= j``, that occur.
    A : csr_array of shape (m, p)
        Coefficients of the rows, with sorted indices; those beside the diagonal count both ``X_ij`` and
        ``X_ji``.
    A_rad : csr_array of shape (m, p) or None
        Radii of the coefficients, at the same places; None for exact ones.
    C : Ball of shape (p,)
        Coefficients of the objective.
    cap : float or None
        Upper bound on the eigenvalues.
    anchor : Anchor or None
    trace : float
        An upper bound on the trace that rows implied before a reduction.
    null : Null or None
        A row that `A` does not list.
    """

    name: str
    n: int
    i: IntArray
    j: IntArray
    A: Any
    A_rad: Any
    C: Ball
    cap: float | None = None
    anchor: Anchor | None = None
    trace: float = math.inf
    null: Null | None = None

    @cached_property
    def share(self) -> Array:
        """1 on the diagonal, 1/2 beside it: the share of a coefficient in each of its two entries."""
        return np.where(self.i == self.j, 1.0, 0.5)

    def entries(self, X: Any) -> Array:
        """Return the entries of a matrix that occur."""
        if isinstance(X, LowRank):
            return np.asarray(X[self.i, self.j]) if len(self.i) else np.zeros(0)
        found: Array = np.asarray(X)[self.i, self.j]
        return found

    def matrix(self, coefficients: Ball) -> Ball:
        """Return the symmetric matrix of coefficients; halving them is exact."""
        mid, rad = np.zeros((self.n, self.n)), np.zeros((self.n, self.n))
        for whole, part in ((mid, coefficients.mid), (rad, coefficients.rad)):
            whole[self.i, self.j] = part * self.share
            whole[self.j, self.i] = part * self.share
        return Ball(mid, rad)

    def sparse_matrix(self, coefficients: Array) -> sp.csr_array:
        """Return the sparse symmetric matrix of coefficients."""
        i, j, half = self.i, self.j, coefficients * self.share
        off = i != j
        places = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
        return sp.csr_array((np.concatenate([half, half[off]]), places), (self.n, self.n))


@dataclass(frozen=True, eq=False)
class Data:
    """A problem; see the docstring of the module.

    Parameters
    ----------
    matrices : tuple of MatrixData
    B, B_rad : csr_array of shape (m, k); `B_rad` may be None
    c : Ball of shape (k,)
    u_lo, u_hi : array of shape (k,)
    cones : SecondOrderCones
    lo, hi : array of shape (m,)
    lo_rad, hi_rad : array of shape (m,)
        Radii of the bounds; equal for equalities, whose ends are one number.
    kind : int array of shape (m,)
        Values of :class:`bregopt.program.Penalty`.
    weight : array of shape (m,)
        Of the penalties.
    offset : float
    maximize : bool
        Whether the user maximizes the negative of the objective.
    systems : dict
        The last equations that were factorized (:mod:`bregopt.rigorous.upper`).
    activities : dict
        The activities at the points of proofs.
    """

    matrices: tuple[MatrixData, ...]
    B: Any
    B_rad: Any
    c: Ball
    u_lo: Array
    u_hi: Array
    cones: SecondOrderCones
    lo: Array
    hi: Array
    lo_rad: Array
    hi_rad: Array
    kind: IntArray
    weight: Array
    offset: float = 0.0
    maximize: bool = False
    systems: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    activities: WeakKeyDictionary[Any, Any] = field(default_factory=WeakKeyDictionary, init=False, repr=False)

    @property
    def m(self) -> int:
        """The number of rows."""
        return len(self.lo)

    @property
    def k(self) -> int:
        """The number of ordinary variables."""
        return len(self.u_lo)

    @cached_property
    def A(self) -> Any:
        """The coefficients of all blocks side by side, a CSR array."""
        return _side_by_side([block.A for block in self.matrices], self.m)

    @cached_property
    def A_rad(self) -> Any:
        """Their radii, None where all are zero."""
        if all(block.A_rad is None for block in self.matrices):
            return None
        parts = [sp.csr_array(b.A.shape) if b.A_rad is None else b.A_rad for b in self.matrices]
        return _side_by_side(parts, self.m)

    @cached_property
    def At(self) -> Any:
        """The transpose of `A` in CSR form."""
        return _transposed(self.A)

    @cached_property
    def At_rad(self) -> Any:
        """The transpose of `A_rad`, None where it is None."""
        return None if self.A_rad is None else _transposed(self.A_rad)

    @cached_property
    def share(self) -> Array:
        """The shares of the coefficients of all blocks (:attr:`MatrixData.share`)."""
        return np.concatenate([np.zeros(0), *(block.share for block in self.matrices)])

    def by_block(self, entries: Any) -> list[Any]:
        """Return the parts of an array or a ball with one number for each entry of all blocks."""
        ends = np.cumsum([0, *(len(block.i) for block in self.matrices)])
        return [entries[a:b] for a, b in pairwise(ends)]

    def slacks(self, y: Ball) -> list[Ball]:
        """Return the coefficients of ``C - A*(y)`` of each block."""
        products = self.by_block(sparse_product(self.At, self.At_rad, y))
        return [block.C - product for block, product in zip(self.matrices, products, strict=True)]

    @cached_property
    def Bt(self) -> Any:
        """The transpose of `B` in CSR form."""
        return _transposed(self.B)

    @cached_property
    def Bt_rad(self) -> Any:
        """The transpose of `B_rad`, None where it is None."""
        return None if self.B_rad is None else _transposed(self.B_rad)

    @cached_property
    def in_cone(self) -> Mask:
        """Mask of the variables in second-order cones."""
        mask = np.zeros(self.k, dtype=bool)
        mask[self.cones.index] = True
        return mask

    @cached_property
    def required(self) -> Mask:
        """Mask of the rows whose bounds hold wherever the objective is finite: hard and logarithmic ones."""
        mask: Mask = (self.kind == int(Penalty.HARD)) | (self.kind == int(Penalty.LOG))
        return mask

    @cached_property
    def kinds(self) -> frozenset[Penalty]:
        """The kinds of the rows."""
        return frozenset(map(Penalty, np.unique(self.kind).tolist()))

    @cached_property
    def idle(self) -> Mask:
        """Mask of the rows without coefficients whose bounds allow zero, such as ``0 = 0``."""
        mask: Mask = (self.lo + self.lo_rad <= 0) & (self.hi - self.hi_rad >= 0)
        for part in (self.A, self.A_rad, self.B, self.B_rad):
            if part is not None:
                mask[np.repeat(np.arange(self.m), np.diff(part.indptr))[part.data != 0]] = False
        for block in self.matrices:
            if block.null is not None:
                mask[block.null.row] &= bool(np.isinf(self.lo[block.null.row]))
        return mask

    @cached_property
    def free(self) -> Mask:
        """Mask of the variables that neither a box nor a cone bounds."""
        mask: Mask = np.isinf(self.u_lo) & np.isinf(self.u_hi) & ~self.in_cone
        return mask

    def reduced(self, y: Ball) -> Ball:
        """Return the reduced costs ``c - B'y``."""
        return self.c - sparse_product(self.Bt, self.Bt_rad, y) if self.k else self.c

    def activity(self, X: Sequence[Any], u: Array) -> Ball:
        """Return ``A(X) + B u``; matrices are float arrays or :class:`LowRank`."""
        entries = [entries_of(block, X_b) for block, X_b in zip(self.matrices, X, strict=True)]
        x = Ball(
            *(np.concatenate([np.zeros(0), *(getattr(e, end) for e in entries)]) for end in ("mid", "rad"))
        )
        total = sparse_product(self.A, self.A_rad, x)
        return total + sparse_product(self.B, self.B_rad, Ball.exact(u)) if self.k else total


def entries_of(block: MatrixData, X: Any) -> Ball:
    """Return the entries of a matrix that occur, with the rounding of a product ``F F'``."""
    x = block.entries(X)
    if not isinstance(X, LowRank):
        return Ball.exact(x)
    F = X.factor
    size = np.einsum("ij,ij->i", F, F)
    terms = F.shape[1]
    reach = np.sqrt(size[block.i] * size[block.j])
    return Ball(x, inflated((terms + 4) * 2 * UNIT * reach) + terms * TINY)


def csr_of(row: IntArray, column: IntArray, value: Array, shape: tuple[int, int]) -> Any:
    """Return the array of entries sorted by rows and columns."""
    indptr = np.searchsorted(row, np.arange(shape[0] + 1))
    return sp.csr_array((value, column, indptr), shape)


def _side_by_side(parts: Sequence[Any], m: int) -> Any:
    if len(parts) == 1:
        return parts[0]
    return sp.csr_array(sp.hstack(parts)) if parts else sp.csr_array((m, 0))


def _transposed(A: Any) -> Any:
    """Return the transpose in CSR form, with explicit zeros."""
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    order = np.argsort(A.indices, kind="stable")
    return csr_of(A.indices[order], row[order], A.data[order], (A.shape[1], A.shape[0]))
