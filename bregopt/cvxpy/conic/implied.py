"""Rows and matrices of a conic program that others imply: with them the solution set has no interior.

Elements of second-order cones that are equal up to sign are no contradiction to that, but each costs a row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.cvxpy.cones import coordinates_of
from bregopt.cvxpy.conic.form import Conic
from bregopt.records import kept, replace

__all__ = ["distribution", "in_other_coordinates", "needed", "parallel_rows", "with_rows"]

_PSD_TOL = 1e-14  # relative to a matrix's norm: how far below zero an eigenvalue of a psd matrix may be
_SAME = 1e-13  # relative to the largest number: numbers that differ by less are equal up to round-off


class Parallel(NamedTuple):
    """The linear rows that are multiples of another one.

    Parameters
    ----------
    rows : int array
    group : int array
        A number for each, the same for parallel rows.
    size : array
        Their first entries.
    """

    rows: IntArray
    group: IntArray
    size: Array


@kept  # with the rows of a problem that is solved again
def parallel_rows(conic: Conic) -> Parallel:
    """Return the linear rows that are multiples of another one."""
    start = conic.A.indptr[: conic.linear + 1]
    column, entry = conic.A.indices[: start[-1]], conic.A.data[: start[-1]]
    used = np.flatnonzero(np.diff(start))
    size = entry[start[used]]
    place = np.repeat(np.arange(len(used)), np.diff(start)[used])
    scaled = entry / size[place]
    key = np.bincount(place, scaled * _numbers(conic.A.shape[1])[column], len(used))
    order = np.argsort(key, kind="stable")
    round_off = _SAME * np.bincount(place, np.abs(scaled), len(used))
    apart = np.diff(key[order], prepend=-np.inf) > round_off[order]
    group = np.empty(len(used), dtype=np.intp)
    group[order] = np.cumsum(apart) - 1
    several = np.flatnonzero(np.bincount(group)[group] > 1)
    if not len(several):
        return Parallel(several, several, np.zeros(0))
    first = order[np.flatnonzero(apart)]
    rows = sp.csr_array((scaled, column, start), (conic.linear, conic.A.shape[1]))[used]
    own, group = rows[several], group[several]
    left = abs(own - rows[first[group]])
    same = _largest(left) <= _SAME * _largest(abs(own))
    return Parallel(used[several[same]], group[same], size[several[same]])


def _largest(A: Any) -> Array:
    """Return the largest entry of each row."""
    return np.asarray(A.max(axis=1).todense()).ravel()


def needed(conic: Conic, parallel: Parallel) -> Mask:
    """Return the mask of the rows that others do not imply."""
    return _needed_rows(conic, parallel) & _needed_matrices(conic)


def distribution(conic: Conic, parallel: Parallel, kept: Mask) -> Any:
    """Return the matrix that maps multipliers of the kept rows to multipliers of all rows.

    Equivalent rows, such as two mirrored entries of a symmetric matrix, get equal parts.

    Returns
    -------
    csr_array of shape (m, rows kept), or None for the identity
    """
    if kept.all() and not len(parallel.rows):
        return None
    m, place = len(kept), np.cumsum(kept) - 1
    alone = sp.csr_array((np.ones(place[-1] + 1), (np.flatnonzero(kept), place[kept])), (m, place[-1] + 1))
    rows, _, size = parallel
    if not len(rows):
        return alone
    same = _said_by(conic, parallel)
    count, holder = np.bincount(same), np.full(len(rows), -1)
    left = np.flatnonzero(kept[rows])
    holder[same[left]] = left
    of = holder[same]
    shared = np.flatnonzero((count[same] > 1) & (of >= 0))
    of = of[shared]
    part = size[of] / (size[shared] * count[same[shared]])
    spread = sp.csr_array((part, (rows[shared], place[rows[of]])), alone.shape)
    own = np.ones(m)
    own[rows[shared]] = 0.0
    return sp.csr_array(sp.diags_array(own) @ alone + spread)


def in_other_coordinates(conic: Conic) -> tuple[Conic, Any]:
    """Return the program with better coordinates of its cones, and the map of their ``z`` to all rows.

    CVXPY's norm of a symmetric matrix of order 40 is a cone of 1,601 elements, of which 821 differ. The map
    is a CSR matrix; None for the identity.
    """
    if not conic.soc:
        return conic, None
    cones = slice(conic.linear, conic.first_psd)
    own = sp.hstack([conic.A[cones], sp.csr_array(conic.b[cones, None])], format="csr")
    found = coordinates_of(own, np.array(conic.soc, dtype=np.intp))
    if found is None:
        return conic, None
    others = sp.eye_array(conic.linear), sp.eye_array(len(conic.b) - conic.first_psd)
    S = sp.block_diag([others[0], found.S, others[1]], format="csr")
    back, soc = sp.csr_array(S.T), tuple(found.dimensions.tolist())
    A = sp.csr_array(back @ conic.A)
    A.sort_indices()
    return replace(conic, A=A, b=back @ conic.b, soc=soc), S


def with_rows(conic: Conic, kept: Mask) -> Conic:
    """Return the program of the kept rows; of each matrix all rows or none are kept."""
    if kept.all():
        return conic
    return Conic(
        A=conic.A[np.flatnonzero(kept)],
        b=conic.b[kept],
        c=conic.c,
        zero=int(kept[: conic.zero].sum()),
        nonneg=int(kept[conic.zero : conic.linear].sum()),
        soc=conic.soc,
        orders=tuple(n for n, span in zip(conic.orders, conic.spans, strict=True) if kept[span.start]),
        log_dets=tuple(w for w, span in zip(conic.log_dets, conic.spans, strict=False) if kept[span.start]),
    )


def _needed_rows(conic: Conic, parallel: Parallel) -> Mask:
    """Return the mask of the rows without linear rows that a parallel one implies.

    CVXPY bounds both of two mirrored entries, which are equal. A program with the same row twice has no
    interior.
    """
    kept = np.ones(len(conic.b), dtype=bool)
    rows, group, size = parallel
    if not len(rows):
        return kept
    end, kind = _ends(conic, rows, size)
    implied = _repeated(group, kind, end)
    lowest, highest = np.full((2, int(group.max()) + 1), np.inf)
    for ends, sign in ((lowest, 1.0), (highest, -1.0)):
        np.minimum.at(ends, group[kind == 0], sign * end[kind == 0])
    equal = np.isfinite(lowest[group])
    implied |= equal & (kind == 1) & (-highest[group] <= end)
    implied |= equal & (kind == 2) & (lowest[group] >= end)
    kept[rows[implied]] = False
    return kept


def _ends(conic: Conic, rows: IntArray, size: Array) -> tuple[Array, IntArray]:
    """Return the bounds of rows scaled to first entry one, and their kinds: 0 equality, 1 upper, 2 lower.

    Bounds that differ by round-off are made equal.
    """
    end = conic.b[rows] / size
    order = np.argsort(end)
    apart = np.diff(end[order], prepend=-np.inf) > _SAME * np.abs(end).max()
    end[order] = end[order][np.flatnonzero(apart)][np.cumsum(apart) - 1]
    return end, np.where(rows < conic.zero, 0, np.where(size > 0, 1, 2))


def _said_by(conic: Conic, parallel: Parallel) -> IntArray:
    """Return a number for each row; equivalent rows have the same number."""
    rows, group, size = parallel
    end, kind = _ends(conic, rows, size)
    _, said = np.unique(np.array([group, kind, end]), axis=1, return_inverse=True)
    return np.ravel(said)


def _repeated(group: IntArray, kind: IntArray, end: Array) -> Mask:
    """Return the mask of rows for which another of their group and kind has the same or a tighter bound."""
    tightest = np.where(kind == 2, -end, end)
    order = np.lexsort((tightest, kind, group))
    before = np.r_[-1, order[:-1]]
    follows = (group[order] == group[before]) & (kind[order] == kind[before]) & (np.arange(len(order)) > 0)
    repeated = np.zeros(len(order), dtype=bool)
    repeated[order] = follows & ((kind[order] > 0) | (end[order] == end[before]))
    return repeated


def _numbers(k: int) -> Array:
    """Return `k` random weights: parallel rows have the same weighted sum, others almost surely not."""
    return np.random.default_rng(0).uniform(1.0, 2.0, k)


def _needed_matrices(conic: Conic) -> Mask:
    """Return the mask of the rows without matrices ``B - A(x)`` that are another one plus a psd matrix.

    This happens when a psd variable is required to be psd again, or to exceed a multiple of the identity. A
    matrix with a log-determinant stays.
    """
    kept, A = np.ones(len(conic.b), dtype=bool), conic.A
    if len(conic.orders) == 1:
        return kept
    alike: dict[tuple[Any, ...], list[int]] = {}
    S = conic.matrices(conic.b[conic.first_psd :])
    for b, span in enumerate(conic.spans):
        ends = A.indptr[span.start : span.stop + 1]
        own = slice(ends[0], ends[-1])
        others = alike.setdefault(
            (A.data[own].tobytes(), A.indices[own].tobytes(), np.diff(ends).tobytes()), []
        )
        stays = any(conic.log_dets[b : b + 1])
        if not stays and any(_psd(S[b] - S[other]) for other in others):
            kept[span] = False
            continue
        implied = [k for k in others if not any(conic.log_dets[k : k + 1]) and _psd(S[k] - S[b])]
        for other in implied:
            kept[conic.spans[other]] = False
            others.remove(other)
        others.append(b)
    return kept


def _psd(S: Array) -> bool:
    return bool(np.linalg.eigvalsh(S)[0] >= -_PSD_TOL * np.linalg.norm(S))
