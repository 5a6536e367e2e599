"""A stack of nearness problems of one order, with bounds on entries of their matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.divergences import DIVERGENCES
from bregopt.divergences.stacks import STACKED
from bregopt.linalg import plus_diagonal
from bregopt.program.program import Program
from bregopt.program.rows.base import LowRank
from bregopt.records import cached_property, dataclass, replace

__all__ = ["EntryProgram", "EntryStack"]

# The n^2 entries over those with bounds, from which sparse products, and sums for each entry, cost less than
# products of matrices.
_SPARSE, _FEW = 8, 64
_CROWD = 10  # violated bounds, a multiple of the order


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

    def __getitem__(self, which: IntArray | Mask | slice) -> EntryStack:
        """Return some of the problems."""
        if isinstance(which, slice) and which == slice(None):
            return self
        return EntryStack(self.divergence[which], self.i, self.j, self.lo[which], self.hi[which])

    def of_rows(self, which: Mask) -> EntryStack:
        """Return the problems with some of the rows."""
        own = {name: getattr(self, name)[..., which] for name in ("i", "j", "lo", "hi")}
        return replace(self, **own)

    @cached_property
    def n(self) -> int:
        """The order of the matrices."""
        return self.divergence.X0.shape[1]

    @cached_property
    def alone(self) -> bool:
        """Whether no entries off the diagonal have bounds."""
        return len(self.i) == self.n

    @cached_property
    def fixed(self) -> bool:
        """Whether all entries with bounds are fixed."""
        return bool((self.lo == self.hi).all())

    @cached_property
    def units(self) -> Array:
        """The size of each entry of a feasible matrix, ``sqrt(X_ii X_jj)``, shape (B, m)."""
        root = np.sqrt(self.lo[:, : self.n])
        return self.lo if self.alone else root[:, self.i] * root[:, self.j]

    @property
    def crowded(self) -> bool:
        """Whether the targets violate so many bounds that one problem alone takes other methods less time."""
        if self.fixed:
            return False
        a = self.apply(self.divergence.X0)
        beyond = ((a < self.lo) | (a > self.hi)) & (self.lo < self.hi)
        return int(np.count_nonzero(beyond)) > _CROWD * self.n * len(self)

    def apply(self, X: Array) -> Array:
        """Return the entries of each matrix, shape (B, m)."""
        return X[:, self.i, self.j]

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_k y_k A_k`` of each problem, with ``<A_k, X>`` the entry of row ``k``."""
        S = np.zeros((len(y), self.n, self.n))
        if self.alone:
            S[:, self.i, self.i] = y
            return S
        half = np.where(self.i == self.j, y, y / 2)
        S[:, self.i, self.j] = half
        S[:, self.j, self.i] = half
        return S

    def plus(self, M: Array, y: Array) -> Array:
        """Return the sums of matrices of shape (B, n, n) and those of :meth:`adjoint`."""
        if self.alone:
            return plus_diagonal(M, y)
        return M + self.adjoint(y)

    def times(self, y: Array, M: Array) -> Array:
        """Return the products of those matrices with `M`, shape (B, n, p)."""
        if self.alone:
            return y[:, :, None] * M
        if len(y) > 1 or _SPARSE * (len(self.i) - self.n) > self.n**2:
            return self.adjoint(y) @ M
        product: Array = (y[:, : self.n, None] * M)[0]
        i, j = self.i[self.n :], self.j[self.n :]
        half = y[0, self.n :] / 2
        S = sp.csr_array((np.append(half, half), (np.append(i, j), np.append(j, i))), (self.n, self.n))
        return (product + S @ M[0])[None]

    def entries_of(self, L: Array, R: Array) -> Array:
        """Return the entries of the matrices ``L R' + R L'``, shape (B, m)."""
        diagonal: Array = 2 * np.add.reduce(L * R, axis=2) if len(self.i) else np.zeros((len(L), 0))
        if self.alone or len(self.i) == 0:
            return diagonal
        if _FEW * (len(self.i) - self.n) <= self.n**2:
            i, j = self.i[self.n :], self.j[self.n :]
            others = np.add.reduce(L[:, i] * R[:, j] + R[:, i] * L[:, j], axis=2)
            return np.concatenate([diagonal, others], axis=1)
        M = L @ np.swapaxes(R, 1, 2)
        return self.apply(M) + M[:, self.j, self.i]

    def conjugate(self, y: Array) -> Array:
        """Return each row's term of the dual function, shape (B, m)."""
        if self.fixed:
            return y * self.lo
        acting = np.where(y > 0, self.lo, self.hi)
        return y * np.where(y == 0, 0.0, acting)

    def clip(self, y: Array) -> Array:
        """Return the nearest multipliers inside their range."""
        lower = np.where(np.isfinite(self.hi), -np.inf, 0.0)
        upper = np.where(np.isfinite(self.lo), np.inf, 0.0)
        return np.clip(y, lower, upper)


class EntryProgram(NamedTuple):
    """A program as a stack of one.

    Parameters
    ----------
    stack : EntryStack
    at : int array of shape (m,)
        The rows of the program, in the order of the stack.
    weight : array of shape (m,)
        Their multiples of the entries.
    mu, offset : float
        The objective is ``mu`` times the divergence plus the offset.
    """

    stack: EntryStack
    at: IntArray
    weight: Array
    mu: float
    offset: float

    @classmethod
    def of(cls, program: Program, small: bool = False) -> EntryProgram | None:
        """Return a program as such a stack; None if it has other rows or costs, or violates most bounds.

        LogDet's method, and with `small` all, take orders up to which a stack takes less time than a loop.
        """
        if len(program.blocks) != 1 or program.k or not program.bounds.all_hard:
            return None
        (block,) = program.blocks
        nearness = block.nearness
        if nearness is None or block.cost is not None or block.face is not None or block.cap is not None:
            return None
        kind = nearness.kind
        if nearness.divergence not in STACKED or kind is not DIVERGENCES[nearness.divergence]:
            return None
        stacked = STACKED[nearness.divergence]
        if isinstance(nearness.X0, LowRank) or ((small or kind.barrier) and block.n > stacked.largest_order):
            return None
        rows = _entries_of(program)
        if rows is None:
            return None
        at, i, j, weight = rows
        n, lo, hi = block.n, program.bounds.lo[at] / weight, program.bounds.hi[at] / weight
        if (weight < 0).any():
            lo, hi = np.minimum(lo, hi), np.maximum(lo, hi)
        if not ((lo[:n] == hi[:n]) & (lo[:n] > 0)).all():
            return None
        try:
            divergence = stacked(nearness.X0[None])
        except np.linalg.LinAlgError:
            return None
        stack = EntryStack(divergence, i, j, lo[None], hi[None])
        return None if stack.crowded else cls(stack, at, weight, nearness.mu, program.offset)

    def multipliers(self, y: Array) -> Array:
        """Return the multipliers of the program's rows."""
        own = np.empty(len(self.at))
        own[self.at] = self.mu * y / self.weight
        return own

    def start(self, y: Array) -> Array:
        """Return the multipliers of the stack, shape (1, m)."""
        found: Array = y[self.at] * self.weight / self.mu
        return found[None]


def _entries_of(program: Program) -> tuple[IntArray, IntArray, IntArray, Array] | None:
    """Return the rows, their entries ``i <= j`` and weights: the diagonal, then others, or no row at all.

    None where a row is on no single entry, or two are on the same.
    """
    if not all(term.rows.single for term in program.A.terms):
        return None
    n, none = program.blocks[0].n, np.zeros(0, np.intp)
    rows = [(term.at, term.rows.coordinates()) for term in program.A.terms]
    if len(rows) == 1:
        ((own, t),) = rows
        at, i, j, weight = own[t.row], t.i, t.j, t.value
    elif rows:
        at = np.concatenate([own[t.row] for own, t in rows])
        i, j, weight = (np.concatenate([getattr(t, name) for _, t in rows]) for name in ("i", "j", "value"))
    else:
        at, i, j, weight = none, none, none, np.zeros(0)
    if len(at) != program.m or not weight.all():
        return None
    diagonal = np.arange(n)
    if len(at) == n and (i == diagonal).all() and (j == diagonal).all():
        return at, i, j, weight
    i, j = np.minimum(i, j), np.maximum(i, j)
    order = np.lexsort((j, i, i != j))
    at, i, j, weight = at[order], i[order], j[order], weight[order]
    if len(at) and not (np.array_equal(i[:n], diagonal) and np.array_equal(j[:n], diagonal)):
        return None
    if (i[n:] == j[n:]).any() or len(np.unique(i * n + j)) < len(i):
        return None
    return at, i, j, weight
