"""The Schur matrix of rows with few entries, by products of entries of ``P`` and ``Q`` (F3).

With ``S`` the rows over distinct places and ``G`` the matrix of all pairs of places,

    G[(i,j), (p,q)] = (P_ip Q_jq + P_jp Q_iq + P_iq Q_jp + P_jq Q_ip) / 4,

the Schur matrix is ``S G S'``. As ``G`` is symmetric, its columns are formed in strips from the diagonal
down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, span
from bregopt.clock import checkpoint
from bregopt.linalg import symmetrize
from bregopt.routes.ipm.schur.placed_rows import PlacedRows, block_of, lean_rows
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["PlaceProducts"]


@dataclass(frozen=True, eq=False)
class _Strip:
    """The columns ``a .. b-1`` of ``G``, from row ``a`` down.

    `later` holds the rows on the places from ``a``. `own` holds those rows that read a place of the strip, on
    its places; their indices are `rows`.
    """

    a: int
    b: int
    later: Any
    rows: IntArray | slice
    own: Any


class PlaceProducts:
    """The Schur matrix of rows over distinct places.

    Parameters
    ----------
    placed : PlacedRows
    m : int
        Number of rows of the stack.
    tuning : InteriorPointTuning
    """

    def __init__(self, placed: PlacedRows, m: int, tuning: InteriorPointTuning) -> None:
        self._tuning = tuning
        self._weights = None
        if placed.one_place_each:
            placed = placed.reordered(np.arange(len(placed.at)), placed.S.indices)
            self._weights = placed.S.data
        elif 2 * len(placed.at) >= m:
            placed = placed.of_stack(m)  # empty rows cost less than indices in the Schur matrix
        self._i, self._j, self._at, self.at = placed.i, placed.j, placed.at, span(placed.at)
        self._S = lean_rows(placed.S, tuning)
        self._diagonal = bool((placed.i == placed.j).all())
        self._strips = _strips(self._S, tuning)

    def add(self, H: Array, P: Array, Q: Array) -> None:
        """Add the Schur matrix of these rows to a matrix for the stack that is zero."""
        one = np.ascontiguousarray(P)
        P, Q = one, one if P is Q else np.ascontiguousarray(Q)
        if self._weights is not None:
            self._add_entries(H, P, Q, self._weights)
        elif isinstance(self.at, slice):
            self._add_rows(H[self.at, self.at], P, Q)
        else:
            own = np.zeros((len(self._at),) * 2)
            self._add_rows(own, P, Q)
            H[np.ix_(self._at, self._at)] = own

    def _add_rows(self, H: Array, P: Array, Q: Array) -> None:
        for strip in self._strips:
            checkpoint()
            G = self._products(P, Q, strip)
            G[strip.b - strip.a :] *= 2  # for their mirror images
            H[strip.rows] += strip.own @ (strip.later @ G).T
        symmetrize(H)

    def _add_entries(self, H: Array, P: Array, Q: Array, weights: Array) -> None:
        """Add the products of rows of one entry each, whose products ``G`` has in their order."""
        for strip in self._strips:
            checkpoint()
            a, b = strip.a, strip.b
            G = self._products(P, Q, strip)
            if not (weights == 1).all():
                G *= weights[a:, None]
                G *= weights[a:b]
            own, later = self._at[a:b], self._at[b:]
            H[block_of(self._at[a:], own)] = G
            H[block_of(own, later)] = G[b - a :].T

    def mixed(self, left: Array, right: Array) -> Array:
        """Return the products of these rows and rank-one terms, shape ``(rows, terms)``.

        `left` and `right` are ``U P`` and ``U Q``, with the vectors of the terms in the rows of ``U``.
        """
        i, j = self._i, self._j
        mixed = np.empty((self._S.shape[0], len(left)))
        width = max(1, self._tuning.strip_products // len(i))
        for a in range(0, len(left), width):
            checkpoint()
            L, R = (np.ascontiguousarray(half[a : a + width].T) for half in (left, right))
            products = L.take(i, axis=0) * R.take(j, axis=0)
            if not self._diagonal:
                products += L.take(j, axis=0) * R.take(i, axis=0)
                products /= 2
            mixed[:, a : a + width] = self._S @ products
        return mixed

    def _products(self, P: Array, Q: Array, strip: _Strip) -> Array:
        """Return a strip of ``G``.

        Columns of ``P`` and ``Q`` are gathered first, so that products read contiguous rows, and in tiles
        that stay in the cache.
        """
        i, j, a, b = self._i, self._j, strip.a, strip.b
        P_i, P_j, Q_i, Q_j = (M.take(k[a:b], axis=1) for M in (P, Q) for k in (i, j))
        sums = [(P_i, i, Q_j, j), (P_i, j, Q_j, i), (P_j, i, Q_i, j), (P_j, j, Q_i, i)]
        if self._diagonal:  # the four products are equal
            del sums[1:]
        elif P is Q:  # the last two are the first two
            del sums[2:]
        P_i /= len(sums)
        P_j /= len(sums)
        G = np.empty((len(i) - a, b - a))
        height = max(1, self._tuning.tile_products // (b - a))
        for t in range(a, len(i), height):
            tile, rows = G[t - a : t - a + height], slice(t, t + height)
            for number, (left, r, right, s) in enumerate(sums):
                product = left.take(r[rows], axis=0)
                product *= right.take(s[rows], axis=0)
                if number:
                    tile += product
                else:
                    tile[:] = product
        return G


def _strips(S: Any, tuning: InteriorPointTuning) -> list[_Strip]:
    """Return strips of about ``tuning.strip_products`` products, for rows as a dense or sparse matrix."""
    m, places = S.shape
    dense = isinstance(S, np.ndarray)
    columns: Any = S if dense else sp.csc_array(S)
    strips, a = [], 0
    while a < places:
        b = min(places, a + max(tuning.least_strip, tuning.strip_products // max(m, places - a)))
        if dense:
            strips.append(_Strip(a, b, columns[:, a:], slice(None), columns[:, a:b]))
        else:
            own = sp.csr_array(columns[:, a:b])
            used = np.flatnonzero(np.diff(own.indptr))
            strips.append(_Strip(a, b, _columns_from(columns, a), span(used), own[used]))
        a = b
    return strips


def _columns_from(S: Any, a: int) -> Any:
    """Return the columns of a CSC matrix from `a` on, as a view."""
    start = S.indptr[a]
    own = S.data[start:], S.indices[start:], S.indptr[a:] - start
    return sp.csc_array(own, shape=(S.shape[0], S.shape[1] - a))
