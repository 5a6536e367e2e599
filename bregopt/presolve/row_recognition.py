"""Sparse rows told by their numbers: squared distances and quadratic forms, which engines solve faster."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program.rows import Distances, RankOne, Rows, SparseRows

__all__ = ["recognize"]

_SAME = 1e-12  # of a row's largest number: round-off of who wrote it down
_DENSE = 0.25  # of the order: where vectors are no longer sparse


def recognize(rows: SparseRows) -> list[tuple[IntArray, Rows]]:
    """Return the rows by family, each family with the numbers of its rows.

    Rows ``w (X_ii + X_jj - 2 X_ij)`` become :class:`Distances`, others that are ``w z'Xz`` with two or more
    entries in ``z`` become :class:`RankOne`, and what is left stays as it is.
    """
    t, left = rows.terms, np.ones(rows.m, dtype=bool)
    count = np.bincount(t.row, minlength=rows.m)
    support = np.bincount(t.row[t.i == t.j], minlength=rows.m)
    full = (support >= 2) & (count == support * (support + 1) // 2)
    found: list[tuple[IntArray, Rows]] = []
    for s in np.unique(support[full]):
        at, place, z, weight = _squares(rows, np.flatnonzero(full & (support == s)))
        left[at] = False
        apart = _differences(z)
        for chosen, distances in ((apart, True), (~apart, False)):
            if chosen.any():
                family = _family(rows.n, place[chosen], z[chosen], weight[chosen], distances)
                found.append((at[chosen], family))
    rest = np.flatnonzero(left)
    return [*found, (rest, rows.slice(rest))] if len(rest) else found


def _squares(rows: SparseRows, at: IntArray) -> tuple[IntArray, IntArray, Array, Array]:
    """Return which of some rows, of one number of diagonal entries, are ``w z'Xz``; where ``z`` is; both.

    The terms of such a row are the upper triangle of ``w z z'`` on the support of ``z``, row by row.
    """
    t = rows.terms
    start = np.searchsorted(t.row, at)
    s = int((np.sqrt(8 * (np.searchsorted(t.row, at[:1] + 1) - start[:1])[0] + 1) - 1) / 2 + 0.5)
    i, j = np.triu_indices(s)
    term = start[:, None] + np.arange(len(i))
    place = t.i[term[:, i == j]]
    there = (t.i[term] == place[:, i]).all(axis=1) & (t.j[term] == place[:, j]).all(axis=1)
    value = t.value[term] / np.where(i == j, 1.0, 2.0)
    weight = value[:, 0]
    z = value[:, :s] / weight[:, None]
    miss = np.abs(weight[:, None] * z[:, i] * z[:, j] - value).max(axis=1)
    same = there & (miss <= _SAME * np.abs(value).max(axis=1))
    return at[same], place[same], z[same], weight[same]


def _differences(z: Array) -> Mask:
    """Return which vectors, that begin with one, are ``(1, -1)``."""
    return np.abs(z[:, 1] + 1) <= _SAME if z.shape[1] == 2 else np.zeros(len(z), dtype=bool)


def _family(n: int, place: IntArray, z: Array, weight: Array, distances: bool) -> Rows:
    if distances:
        return Distances(n, place[:, 0], place[:, 1], weight)
    m, s = z.shape
    Z = sp.csr_array((z.ravel(), place.ravel(), s * np.arange(m + 1)), (m, n))
    return RankOne(Z.toarray() if s > _DENSE * n else Z, weight)
