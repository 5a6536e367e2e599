"""The Schur matrix of rows with many entries, by products ``P A_l Q`` (F1), and which rows these are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.clock import checkpoint
from bregopt.program import Term
from bregopt.records import dataclass
from bregopt.routes.ipm.schur.place_products import PlacedRows, block_of, lean_rows
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["Congruences", "split_by_cost"]

# Number of these products up to which they may have twice as many entries: products of sparse rows with fewer
# columns are slow.
_LEAST_AT_ONCE = 8
# Lines of ``A_l`` that are not zero, relative to its order, up to which only those are multiplied.
_SUPPORT_FRACTION = 0.7


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Some rows, and those from the first of them on.

    Parameters
    ----------
    half : csr_array or array of shape (count * lines, n)
        The nonzero lines of each ``A_l / 2``, one row of the chunk after the other.
    support : array of shape (count, lines) or None
        Indices of these lines, padded with those of zero lines; None stands for all lines in order.
    from_here : PlacedRows
    S : csr_array or array
        The rows `from_here`, in their fastest form for products.
    count : int
        Number of rows of the chunk.
    columns, mirror : tuple
        Indices of the Schur matrix: its block of the rows `from_here` and the rows of the chunk, and the
        block of these and the later rows.
    """

    half: Any
    support: IntArray | None
    from_here: PlacedRows
    S: Any
    count: int
    columns: Any
    mirror: Any

    def between(self, P: Array, Q: Array) -> Array:
        """Return ``P A_l Q / 2`` for the rows of the chunk, shape ``(rows, n, n)``."""
        right = (self.half @ Q).reshape(self.count, -1, len(Q))
        left = P if self.support is None else P[self.support].transpose(0, 2, 1)
        product: Array = left @ right
        return product


class Congruences:
    """The products of the first rows with themselves, all later rows and all rank-one rows.

    Parameters
    ----------
    placed : PlacedRows
        Later rows read places up to an earlier one than the rows before them.
    many : int
        Number of the first rows.
    low_rank : sequence of Term
        The rank-one rows.
    n : int
        The order of the block.
    tuning : InteriorPointTuning
    """

    def __init__(
        self, placed: PlacedRows, many: int, low_rank: Sequence[Term], n: int, tuning: InteriorPointTuning
    ) -> None:
        self._low_rank, self._n = low_rank, n
        at_once = _products_at_once(n, tuning)
        whole = lean_rows(placed.S, tuning)
        self._chunks = [
            _chunk(placed.after(a), whole, min(at_once, many - a), n, tuning) for a in range(0, many, at_once)
        ]

    def add(self, H: Array, P: Array, Q: Array) -> None:
        """Add these products to the Schur matrix of the stack, which is zero in these rows and columns."""
        n = self._n
        for chunk in self._chunks:
            checkpoint()
            D = chunk.between(P, Q)
            i, j = chunk.from_here.i, chunk.from_here.j
            lines = D.reshape(chunk.count, n * n)
            entries = lines.take(i * n + j, axis=1)
            entries += lines.take(j * n + i, axis=1)
            columns = chunk.S @ entries.T
            H[chunk.columns] = columns
            H[chunk.mirror] = columns[chunk.count :].T
            if not self._low_rank:
                continue
            for k, half in zip(chunk.from_here.at[: chunk.count], D, strict=True):
                for term in self._low_rank:
                    activity = term.rows.apply(half + half.T)
                    H[term.at, k] += activity
                    H[k, term.at] += activity


def _chunk(placed: PlacedRows, whole: Any, count: int, n: int, tuning: InteriorPointTuning) -> _Chunk:
    """Return the first `count` of rows as a chunk; they are the last rows and first places of `whole`."""
    from_here = whole[-len(placed.at) :, : len(placed.i)] if isinstance(whole, np.ndarray) else placed.S
    S = placed.S[:count].tocoo()
    row, i, j, quarter = S.row, placed.i[S.col], placed.j[S.col], S.data / 4
    row, i, j = np.concatenate([row, row]), np.concatenate([i, j]), np.concatenate([j, i])
    meets = np.zeros((count, n), dtype=bool)
    meets[row, i] = True
    lines, support = int(meets.sum(axis=1).max()), None
    if lines <= _SUPPORT_FRACTION * n:
        support = np.argsort(~meets, axis=1, kind="stable")[:, :lines]
        i = (np.cumsum(meets, axis=1) - 1)[row, i]
    else:
        lines = n
    half = sp.csr_array((np.tile(quarter, 2), (row * lines + i, j)), shape=(count * lines, n))
    rows = placed.at
    columns, mirror = block_of(rows, rows[:count]), block_of(rows[:count], rows[count:])
    return _Chunk(lean_rows(half, tuning), support, placed, from_here, count, columns, mirror)


# Pays on: theta of 600 edges, n = 150.
def split_by_cost(placed: PlacedRows, n: int, tuning: InteriorPointTuning) -> tuple[int, PlacedRows]:
    """Return the number of rows for products ``P A_l Q``, and the rows in an order with those first.

    In the order of falling numbers of entries, the Schur matrix costs least with some first rows by F1, which
    also gives their products with all later rows, and the rest by F3 (Fujisawa, Kojima and Nakata 1997,
    section 3). Later rows then read only places that are stored first.

    Parameters
    ----------
    placed : PlacedRows
    n : int
        The order of the block.
    tuning : InteriorPointTuning
    """
    S = placed.S
    m, p = S.shape
    if _products_cost(m, p, S.nnz, tuning) <= tuning.call_cost:
        return 0, placed
    entries = np.diff(S.indptr)
    row = np.repeat(np.arange(m), entries)
    order = np.argsort(-entries, kind="stable")
    number = np.empty(m, dtype=np.intp)
    number[order] = np.arange(m)
    last = np.zeros(p, dtype=np.intp)  # the last row, in this order, that reads a place
    np.maximum.at(last, S.indices, number[row])
    # Of the rows from the k-th on, for k = 0 .. m: their number, their places and their entries.
    rows = m - np.arange(m + 1)
    places = p - np.concatenate([[0], np.cumsum(np.bincount(last, minlength=m))])
    terms = S.nnz - np.concatenate([[0], np.cumsum(entries[order])])
    meets = np.zeros((m, n), dtype=bool)
    meets[row, placed.i[S.indices]] = meets[row, placed.j[S.indices]] = True
    support = meets.sum(axis=1)[order]
    cost = tuning.call_cost / _products_at_once(n, tuning)
    cost = cost + tuning.flop_cost * support * n**2
    cost += np.minimum(tuning.flop_cost * support * n**2, tuning.sparse_cost * 2 * entries[order] * n)
    cost += 2 * tuning.gather_cost * places[:-1]
    cost += _times_rows(rows, places, terms, tuning)[:-1]
    before = np.concatenate([[0.0], np.cumsum(cost)])
    many = int(np.argmin(before + _products_cost(rows, places, terms, tuning)))
    if many == 0:
        return 0, placed
    first = np.concatenate([order[:many], np.sort(order[many:])])
    return many, placed.reordered(first, np.argsort(-np.minimum(last, many), kind="stable"))


def _products_at_once(n: int, tuning: InteriorPointTuning) -> int:
    """Return the number of products ``P A_l Q`` of order `n` in memory at a time."""
    entries = tuning.congruence_entries
    return max(1, entries // n**2, min(_LEAST_AT_ONCE, 2 * entries // n**2))


def _products_cost(rows: Any, places: Any, terms: Any, tuning: InteriorPointTuning) -> Any:
    """Return the cost of F3 in nanoseconds."""
    products = tuning.product_cost * places**2 / 2
    return products + (places / 2 + rows) * _times_rows(rows, places, terms, tuning)


def _times_rows(rows: Any, places: Any, terms: Any, tuning: InteriorPointTuning) -> Any:
    """Return the cost of applying rows to one matrix."""
    return np.minimum(tuning.sparse_cost * terms, tuning.flop_cost * rows * places)
