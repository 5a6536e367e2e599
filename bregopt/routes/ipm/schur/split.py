"""Which rows the Schur matrix takes by which formula: those with most entries by F1, the others by F3."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.routes.ipm.schur.placed_rows import PlacedRows
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["products_at_once", "split_by_cost"]


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
    cost = tuning.call_cost / products_at_once(n, tuning)
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


def products_at_once(n: int, tuning: InteriorPointTuning) -> int:
    """Return the number of products ``P A_l Q`` of order `n` in memory at a time."""
    entries = tuning.congruence_entries
    return max(1, entries // n**2, min(tuning.least_congruences, 2 * entries // n**2))


def _products_cost(rows: Any, places: Any, terms: Any, tuning: InteriorPointTuning) -> Any:
    """Return the cost of F3 in nanoseconds."""
    products = tuning.product_cost * places**2 / 2
    return products + (places / 2 + rows) * _times_rows(rows, places, terms, tuning)


def _times_rows(rows: Any, places: Any, terms: Any, tuning: InteriorPointTuning) -> Any:
    """Return the cost of applying rows to one matrix."""
    return np.minimum(tuning.sparse_cost * terms, tuning.flop_cost * rows * places)
