"""Recognition of squared distances and quadratic forms in sparse rows, which solvers handle faster."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.presolve.constants import DENSE_FRACTION, ENTRY_NOISE
from bregopt.program.rows import Distances, RankOne, Rows, SparseRows

__all__ = ["recognize"]


def recognize(rows: SparseRows) -> list[tuple[IntArray, Rows]]:
    """Return the rows by family, each family with the numbers of its rows.

    Rows ``w (X_ii + X_jj - 2 X_ij)`` become :class:`Distances`. Other rows ``w z'Xz`` with two or more
    entries in ``z`` become :class:`RankOne`. The remaining rows stay as they are.
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
    """Return the rows that are ``w z'Xz``, the supports of the ``z``, the ``z`` there, and the ``w``.

    All rows `at` have the same number of diagonal entries. The terms of a row ``w z'Xz`` are the upper
    triangle of ``w z z'`` on the support of ``z``, row by row.
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
    same = there & (miss <= ENTRY_NOISE * np.abs(value).max(axis=1))
    return at[same], place[same], z[same], weight[same]


def _differences(z: Array) -> Mask:
    """Return the mask of vectors ``(1, -1)``; every vector begins with one."""
    return np.abs(z[:, 1] + 1) <= ENTRY_NOISE if z.shape[1] == 2 else np.zeros(len(z), dtype=bool)


def _family(n: int, place: IntArray, z: Array, weight: Array, distances: bool) -> Rows:
    if distances:
        return Distances(n, place[:, 0], place[:, 1], weight)
    m, s = z.shape
    Z = sp.csr_array((z.ravel(), place.ravel(), s * np.arange(m + 1)), (m, n))
    return RankOne(Z.toarray() if s > DENSE_FRACTION * n else Z, weight)
