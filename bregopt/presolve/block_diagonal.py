"""Small matrices are one block-diagonal matrix: a call of LAPACK for each takes longer than its arithmetic.

Rows and costs have no entries outside of the diagonal blocks. A path that begins block-diagonal stays so, and
its step lengths are the least of those of the blocks, so that its points are those of separate matrices. The
zeros outside of the blocks are exact, as sums and products of zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.presolve import Reduced, Tolerances
from bregopt.program import Answer, Block, LinearMap, Program, Start, StopReason, Term
from bregopt.program.rows import Coordinates, DenseRows, SparseRows
from bregopt.records import dataclass, replace

__all__ = ["BlockDiagonal", "block_diagonal"]

# Sum of the orders up to which matrices are joined, if there are no more rows, and entries of the whole,
# relative to those of the blocks. More rows or entries take longer than the calls.
_LARGEST_SUM, _MORE_ENTRIES = 16, 4


@dataclass(frozen=True, eq=False)
class BlockDiagonal(Reduced):
    """A program in one matrix, of which the given ones are the diagonal blocks."""

    def shrink(self, start: Start) -> Start:
        X = [np.asarray(own) for own in start.X]
        return replace(start, X=(_joined(X, self.program.blocks[0].n),) if X else (), S=None)

    def restore(self, answer: Answer) -> Answer:
        if answer.stop is StopReason.INFEASIBLE:
            return Answer.without_point(self.whole, answer.y, answer.stop, answer.iterations)
        (X,), starts = answer.X, _starts(self.whole.A)
        blocks = zip(starts, self.whole.A.orders, strict=True)
        return replace(answer, X=tuple(X[a : a + n, a : a + n] for a, n in blocks), S=None)


# Pays on: hinf4.
def block_diagonal(program: Program, tolerances: Tolerances) -> BlockDiagonal | None:
    """Join a few small matrices without divergence, each on the whole cone."""
    orders = program.A.orders
    n = sum(orders)
    if (
        len(orders) < 2
        or max(n, program.m) > _LARGEST_SUM
        or n**2 > _MORE_ENTRIES * sum(b * b for b in orders)
    ):
        return None
    if program.curved or any(block.face is not None for block in program.blocks):
        return None
    C = _joined([block.C for block in program.blocks], n)
    A = program.A.plans.get(block_diagonal)
    if A is None:
        A = program.A.plans[block_diagonal] = _joined_map(program.A, n)
    blocks = (Block("all", n, DenseRows(C[None])),)
    return BlockDiagonal(program, replace(program, blocks=blocks, A=A))


def _starts(A: LinearMap) -> IntArray:
    """Return the place of each matrix on the diagonal."""
    return np.cumsum([0, *A.orders[:-1]])


def _joined(matrices: Sequence[Array], n: int) -> Array:
    """Return the block-diagonal matrix."""
    S, start = np.zeros((n, n)), 0
    for own in matrices:
        end = start + len(own)
        S[start:end, start:end] = own
        start = end
    return S


def _joined_map(A: LinearMap, n: int) -> LinearMap:
    """Return the rows on the block-diagonal matrix."""
    starts, parts = _starts(A), []
    for term in A.terms:
        t, start = term.rows.coordinates(), starts[term.block]
        parts.append((term.at[t.row], start + t.i, start + t.j, t.value))
    if not parts:
        return LinearMap(A.m, (n,), ())
    row, i, j, value = map(np.concatenate, zip(*parts, strict=True))
    at, local = np.unique(row, return_inverse=True)
    rows = SparseRows.of(len(at), n, Coordinates(local, i, j, value))
    return LinearMap(A.m, (n,), (Term(0, at, rows),))
