"""Blocks on the face that a row ``z'X z <= 0`` of short numbers leaves, as in relaxations of balanced cuts.

``X`` psd and ``z'X z <= 0`` imply ``X z = 0``. For ``z`` whose last entry beside zeros, ``z_l``, is 1 or -1,
``l`` is eliminated without rounding: ``X_al = -z_l sum_b z_b X_ab``, ``X_ll = sum_ab z_a z_b X_ab``. In
other words, ``X = H M H'``, where ``H`` has unit vectors as rows, and at ``l`` the row ``-z_l z_b``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import Penalty
from bregopt.rigorous.data import Data, MatrixData, Null
from bregopt.rigorous.implied import implied_bounds
from bregopt.rigorous.listing import LARGEST_LISTED, Terms, assembled, is_short

__all__ = ["on_faces"]


def on_faces(data: Data) -> tuple[Data, tuple[Array | None, ...]]:
    """Return the problem with each linear block on the face of its first such row, and the ``H`` of each.

    The row itself has no bounds there. Where there is none, the block stays, and its ``H`` is None.
    """
    blocks: list[MatrixData] = []
    bases: list[Array | None] = []
    rows: list[int] = []
    zero = _zero_rows(data)
    for b, block in enumerate(data.matrices):
        whole = True
        found = block.null
        for k in _candidates(data, zero, b) if found is None else ():
            null = _null(block, k)
            if null is not None:
                found, whole = Null(k, null[0]), null[1]
                break
        smaller = None if found is None else _eliminated(block, found.row if whole else -1, found.z)
        if found is None or smaller is None:
            blocks.append(block)
            bases.append(None)
            continue
        if whole:
            rows.append(found.row)
        trace = float(implied_bounds(data).traces[b])  # also of a principal submatrix
        blocks.append(replace(smaller, trace=trace))
        bases.append(_basis(found.z))
    if all(H is None for H in bases):
        return data, tuple(bases)
    lo, hi = data.lo.copy(), data.hi.copy()
    lo[rows], hi[rows] = -np.inf, np.inf
    return replace(data, matrices=tuple(blocks), lo=lo, hi=hi), tuple(bases)


def _candidates(data: Data, zero: Mask, b: int) -> IntArray:
    """Return those of the rows `zero` that may be ``z'X z <= 0`` of a block, if it is linear."""
    block = data.matrices[b]
    if block.anchor is not None or block.cap is not None or block.n < 2:
        return np.zeros(0, dtype=np.intp)
    rows = np.flatnonzero(zero & (np.diff(block.A.indptr) > 0))
    first = block.A.indptr[rows]  # of z z' it is on the diagonal
    at = block.A.indices[first]
    end = np.where(block.A.data[first] > 0, data.hi[rows], data.lo[rows])
    return rows[(block.i[at] == block.j[at]) & (end == 0)]


def _zero_rows(data: Data) -> Mask:
    """Return the mask of the hard rows of one block and no variables with a bound that is exactly zero."""
    zero = (data.lo <= 0) & (data.hi >= 0) & ((data.lo == 0) | (data.hi == 0))
    zero &= (data.lo_rad == 0) & (data.hi_rad == 0)
    zero &= (data.kind == int(Penalty.HARD)) & (np.diff(data.B.indptr) == 0)
    if zero.any():
        zero &= np.sum([np.diff(block.A.indptr) > 0 for block in data.matrices], axis=0) == 1
    return zero


def _null(block: MatrixData, k: int) -> tuple[Array, bool] | None:
    """Return ``z`` with ``X z = 0`` from a row, and whether the row is ``z'X z``; None for other rows.

    The row is a multiple of ``z'X z`` with exact coefficients, or has entries of one sign on the diagonal
    alone, one of which is left out at a time. The last entry of ``z`` that is not zero is one.
    """
    at = slice(block.A.indptr[k], block.A.indptr[k + 1])
    value, column = block.A.data[at], block.A.indices[at]
    if block.A_rad is not None and block.A_rad.data[at].any():
        return None
    i, j, value = block.i[column], block.j[column], value * block.share[column]
    support = np.unique(np.concatenate([i, j]))
    s, z = len(support), np.zeros(block.n)
    if (i == j).all() and (value * value[0] > 0).all():
        z[i[0]] = 1.0
        return z, s == 1
    first = i == support[0]
    if len(value) != s * (s + 1) // 2 or not value[0] or first.sum() != s:
        return None
    z[j[first]] = value[first] / value[0]
    products = value[0] * z[i] * z[j]
    unit = z / z[support[-1]] if z[support[-1]] else z
    short = is_short(np.concatenate([value[:1], z, unit])).all()  # so that all products are exact
    if not short or (products != value).any() or (unit * z[support[-1]] != z).any():
        return None
    return (unit, True) if unit[support[-1]] == 1 else None


def _basis(z: Array) -> Array:
    last = int(np.flatnonzero(z)[-1])
    H = np.delete(np.eye(len(z)), last, axis=1)
    H[last] = -z[last] * np.delete(z, last)
    return H


def _eliminated(block: MatrixData, k: int, z: Array) -> MatrixData | None:
    """Return a block without row `k` and the last index of `z`, None where it has too many terms."""
    n, m = block.n, block.A.shape[0]
    terms = _without(block, k)
    last = int(np.flatnonzero(z)[-1])
    i, j = np.divmod(terms.place, n)
    others = np.delete(np.flatnonzero(z), -1)
    one, both = (i == last) != (j == last), (i == last) & (j == last)
    s = len(others)
    if one.sum() * s + both.sum() * s * s > LARGEST_LISTED:
        return None
    a, b = np.triu_indices(s)
    # X_al is a sum over b, and X_ll one over all pairs, of which those beside the diagonal count twice.
    pairs = np.where(a == b, 1.0, 2.0) * z[others[a]] * z[others[b]]
    stay = ~(one | both)
    along = np.where(i == last, j, i)[one]
    parts = [
        (terms.row[stay], i[stay], j[stay], terms.value[stay], terms.rad[stay]),
        _outer(terms, one, np.repeat(along, s), np.tile(others, one.sum()), -z[last] * z[others]),
        _outer(terms, both, np.tile(others[a], both.sum()), np.tile(others[b], both.sum()), pairs),
    ]
    row, i, j, value, rad = (np.concatenate(part) for part in zip(*parts, strict=True))
    i, j = (index - (index > last) for index in (np.minimum(i, j), np.maximum(i, j)))
    return assembled(block.name, n - 1, m, Terms(row, i * (n - 1) + j, value, rad))


def _without(block: MatrixData, k: int) -> Terms:
    """Return the terms of a block and its cost, without those of row `k`."""
    A, m = block.A, block.A.shape[0]
    row = np.repeat(np.arange(m), np.diff(A.indptr))
    rad = np.zeros(A.nnz) if block.A_rad is None else block.A_rad.data
    kept, costs = row != k, np.flatnonzero(block.C.magnitude)
    place = block.i * block.n + block.j
    return Terms(
        np.concatenate([row[kept], np.full(len(costs), m)]),
        np.concatenate([place[A.indices[kept]], place[costs]]),
        np.concatenate([A.data[kept], block.C.mid[costs]]),
        np.concatenate([rad[kept], block.C.rad[costs]]),
    )


def _outer(terms: Terms, chosen: Mask, i: IntArray, j: IntArray, factor: Array) -> tuple[Any, ...]:
    """Return the chosen terms times each of some factors of 1 or 2, at the given entries."""
    value = np.outer(terms.value[chosen], factor).ravel()
    rad = np.outer(terms.rad[chosen], np.abs(factor)).ravel()
    return np.repeat(terms.row[chosen], len(factor)), i, j, value, rad
