"""Rows and matrices of a conic program that others imply: with them a solution has no interior."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.interop.conic.form import Conic

__all__ = ["needed", "with_rows"]

_PSD_TOL = 1e-14  # of a matrix's norm: by how much one that counts as psd may miss it


def needed(conic: Conic) -> Mask:
    """Return which rows are left without those that others imply."""
    return _needed_rows(conic) & _needed_matrices(conic)


def with_rows(conic: Conic, kept: Mask) -> Conic:
    """Return the program of some rows, those of a matrix all or none."""
    return Conic(
        A=conic.A[np.flatnonzero(kept)],
        b=conic.b[kept],
        c=conic.c,
        zero=int(kept[: conic.zero].sum()),
        nonneg=int(kept[conic.zero : conic.linear].sum()),
        orders=tuple(n for n, span in zip(conic.orders, conic.spans, strict=True) if kept[span.start]),
    )


def _needed_rows(conic: Conic) -> Mask:
    """Return which rows are left without those, not of a matrix, that a parallel one implies.

    CVXPY bounds both of two entries that are one, and a solution with the same row twice has no interior.
    """
    kept = np.ones(len(conic.b), dtype=bool)
    if conic.A[: conic.linear].nnz == 0:
        return kept
    rows, group, size = _parallel(conic.A[: conic.linear])
    # Of a row whose first entry is one: equal to `end`, at most, or at least.
    end = conic.b[rows] / size
    kind = np.where(rows < conic.zero, 0, np.where(size > 0, 1, 2))
    implied = _repeated(group, kind, end)
    lowest, highest = np.full((2, int(group.max()) + 1), np.inf)
    for ends, sign in ((lowest, 1.0), (highest, -1.0)):
        np.minimum.at(ends, group[kind == 0], sign * end[kind == 0])
    equal = np.isfinite(lowest[group])
    implied |= equal & (kind == 1) & (-highest[group] <= end)
    implied |= equal & (kind == 2) & (lowest[group] >= end)
    kept[rows[implied]] = False
    return kept


def _parallel(A: Any) -> tuple[IntArray, IntArray, Array]:
    """Return rows with entries, a number that parallel ones share, and their first entries."""
    used = np.flatnonzero(np.diff(A.indptr))
    size = A.data[A.indptr[used]]
    scaled = sp.csr_array(sp.diags_array(1 / size) @ A[used])
    _, first, group = np.unique(scaled @ _numbers(A.shape[1]), return_index=True, return_inverse=True)
    same = np.diff((scaled - scaled[first[group]]).tocsr().indptr) == 0
    return used[same], group[same], size[same]


def _repeated(group: IntArray, kind: IntArray, end: Array) -> Mask:
    """Return which rows say what another of their group and kind does: the same end, or a tighter one."""
    tightest = np.where(kind == 2, -end, end)
    order = np.lexsort((tightest, kind, group))
    before = np.r_[-1, order[:-1]]
    follows = (group[order] == group[before]) & (kind[order] == kind[before]) & (np.arange(len(order)) > 0)
    repeated = np.zeros(len(order), dtype=bool)
    repeated[order] = follows & ((kind[order] > 0) | (end[order] == end[before]))
    return repeated


def _numbers(k: int) -> Array:
    """Return numbers with which rows are told apart."""
    return np.random.default_rng(0).uniform(1.0, 2.0, k)


def _needed_matrices(conic: Conic) -> Mask:
    """Return which rows are left without matrices ``B - A(x)`` that another one, less a psd matrix, implies.

    A psd variable that is asked to be psd once more, as it is or beyond some multiple of the identity.
    """
    kept = np.ones(len(conic.b), dtype=bool)
    alike: dict[tuple[Any, ...], list[int]] = {}
    S = conic.matrices(conic.b[conic.linear :])
    for b, span in enumerate(conic.spans):
        A = conic.A[span]
        others = alike.setdefault((A.data.tobytes(), A.indices.tobytes(), A.indptr.tobytes()), [])
        if any(_psd(S[b] - S[other]) for other in others):
            kept[span] = False
            continue
        for other in [other for other in others if _psd(S[other] - S[b])]:
            kept[conic.spans[other]] = False
            others.remove(other)
        others.append(b)
    return kept


def _psd(S: Array) -> bool:
    return bool(np.linalg.eigvalsh(S)[0] >= -_PSD_TOL * np.linalg.norm(S))
