"""The data of a program, its rows and costs listed term by term."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, Mask, scattered
from bregopt.program import LowRank, Penalty, Program
from bregopt.program.rows import (
    Coordinates,
    DenseRows,
    Distances,
    Entries,
    RankOne,
    RankTwo,
    Rows,
    SparseRows,
)
from bregopt.program.rows.rank_one import dense_row
from bregopt.rigorous.ball import UNIT, Ball, inflated
from bregopt.rigorous.data import Anchor, Data, MatrixData, Null, csr_of

__all__ = ["EXACT", "LARGEST_LISTED", "Spread", "Terms", "assembled", "data_of", "is_short"]

LARGEST_LISTED = 60_000_000  # terms of the rows of a problem that are listed
EXACT = (DenseRows, Distances, Entries, SparseRows)  # families whose coefficients are stored as numbers
_PRODUCT = 8 * UNIT  # relative error of a product of three factors, and of a doubled one


class Spread(NamedTuple):
    """Radii of the coefficients of a matrix, in `row` (that after the last is the cost) at ``i n + j``."""

    row: IntArray
    place: IntArray
    rad: Array


class Terms(NamedTuple):
    """Coefficients of a matrix with radii, in `row` (that after the last is the cost) at ``i n + j``.

    It is ``i <= j``, and those beside the diagonal count both ``X_ij`` and ``X_ji``.
    """

    row: IntArray
    place: IntArray
    value: Array
    rad: Array


def data_of(program: Program, spreads: Sequence[Spread | None] | None = None) -> Data:
    """Return the data of a program, with radii of the coefficients of each block besides those of rounding.

    Raises
    ------
    ValueError
        If its rows have too many terms to be listed, or a block is on a face.
    """
    nulls = [None] * len(program.blocks) if spreads else _nulls(program)
    rows = {null.row for null in nulls if null is not None}
    count = sum(_without(term.rows, term.at, rows)[0].count() for term in program.A.terms)
    if count > LARGEST_LISTED:
        raise ValueError(f"the rows have {count:.2g} terms; proofs list at most {LARGEST_LISTED:.2g}")
    bounds = program.bounds
    none = np.zeros(program.m)
    return Data(
        matrices=tuple(
            _matrix(program, b, None if spreads is None else spreads[b], null) for b, null in enumerate(nulls)
        ),
        B=_canonical(program.B),
        B_rad=None,
        c=Ball.exact(program.c),
        u_lo=program.u_lo,
        u_hi=program.u_hi,
        cones=program.cones,
        lo=bounds.lo,
        hi=bounds.hi,
        lo_rad=none,
        hi_rad=none,
        kind=bounds.kind,
        weight=bounds.gamma,
        offset=program.offset,
        maximize=program.maximize,
    )


def _nulls(program: Program) -> list[Null | None]:
    """Return the row ``z'X z = 0`` of signs of each linear block, None where there is none, or several."""
    bounds = program.bounds
    found: list[list[Null]] = [[] for _ in program.blocks]
    zero = (bounds.lo == 0) & (bounds.hi == 0) & (bounds.kind == int(Penalty.HARD))
    if zero.any():
        times = np.zeros(program.m, dtype=np.intp)
        for term in program.A.terms:
            np.add.at(times, term.at, 1)
        zero &= (times == 1) & (np.diff(sp.csr_array(program.B).indptr) == 0)
    for term in program.A.terms:
        block = program.blocks[term.block]
        if isinstance(term.rows, RankOne) and block.nearness is None and block.cap is None:
            for k in np.flatnonzero(zero[term.at]):
                z = dense_row(term.rows.Z, int(k))
                signs = ((z == 0) | (np.abs(z) == np.abs(z).max())).all() and np.count_nonzero(z) > 1
                if signs and term.rows.weight[k]:
                    found[term.block].append(Null(int(term.at[k]), np.sign(z)))
    return [rows[0] if len(rows) == 1 else None for rows in found]


def _without(rows: Rows, at: IntArray, left_out: Collection[int]) -> tuple[Rows, IntArray]:
    """Return a family and the places of its rows, without the rows at some places."""
    at = np.asarray(at)
    kept = np.flatnonzero(~np.isin(at, list(left_out)))
    return (rows, at) if len(kept) == len(at) else (rows.slice(kept), at[kept])


def _matrix(program: Program, b: int, spread: Spread | None, null: Null | None) -> MatrixData:
    block, n = program.blocks[b], program.blocks[b].n
    if block.face is not None:
        raise ValueError(f"{block.name} is on a face; expected a program before its reductions")
    left_out = () if null is None else (null.row,)
    parts = [_without(term.rows, term.at, left_out) for term in program.A.terms_of(b)]
    if block.cost is not None:
        parts.append((block.cost, np.array([program.m])))
    listed = [_listed(family, np.asarray(at), n) for family, at in parts]
    if spread is not None:
        i, j = np.divmod(spread.place, n)
        place = np.minimum(i, j) * n + np.maximum(i, j)
        listed.append(Terms(spread.row, place, np.zeros(len(i)), spread.rad))
    none = Terms(np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.zeros(0))
    terms = Terms(*map(np.concatenate, zip(none, *listed, strict=True)))
    return replace(assembled(block.name, n, program.m, terms, block.cap, _anchor(block.nearness)), null=null)


def _listed(rows: Rows, at: IntArray, n: int) -> Terms:
    """Return the terms of a family whose rows have the places `at`."""
    if isinstance(rows, RankOne | RankTwo):
        U, W, weight = (getattr(rows.products(), name) for name in ("U", "W", "weight"))
        if not (sp.issparse(U) or sp.issparse(W)):
            return _listed_dense(rows, weight[:, None] * U, W, at, n)
    t = rows.coordinates()
    return Terms(at[t.row], np.minimum(t.i, t.j) * n + np.maximum(t.i, t.j), t.value, _radii(rows, t))


def _listed_dense(rows: Rows, U: Array, W: Array, at: IntArray, n: int) -> Terms:
    """Return the terms of the rows ``u_k' X w_k`` for dense vectors, those of ``X_ij`` and ``X_ji`` added."""
    i, j = np.triu_indices(n)
    one, two = U[:, i] * W[:, j], np.where(i == j, 0.0, U[:, j] * W[:, i])
    row, pair = np.nonzero((one != 0) | (two != 0))
    one, two, i, j = one[row, pair], two[row, pair], i[pair], j[pair]
    total, lost = _of_two(one, two)
    rad = _radii(rows, Coordinates(row, i, j, one)) + _radii(rows, Coordinates(row, j, i, two))
    return Terms(at[row], i * n + j, total, inflated(rad + lost + 4 * UNIT * rad))


def _of_two(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the sums of two numbers, and the sizes of their errors, which are exact (Knuth)."""
    total = a + b
    part = total - a
    return total, np.abs((a - (total - part)) + (b - part))


def assembled(
    name: str, n: int, m: int, terms: Terms, cap: float | None = None, anchor: Anchor | None = None
) -> MatrixData:
    """Return a block of order `n` in `m` rows; terms of one place are added, and the rounding is counted."""
    present, column = _numbered(terms.place, n * n)
    row, column, value, rad = _added(terms.row, column, terms.value, terms.rad, len(present))
    ends = np.searchsorted(row, [m])[0]
    A = csr_of(row[:ends], column[:ends], value[:ends], (m, len(present)))
    A_rad = csr_of(row[:ends], column[:ends], rad[:ends], A.shape) if rad[:ends].any() else None
    i, j = np.divmod(present, n)
    C = Ball(*(scattered(column[ends:], part[ends:], len(present)) for part in (value, rad)))
    return MatrixData(name, n, i, j, A, A_rad, C, cap, anchor)


def _added(
    row: IntArray, column: IntArray, value: Array, rad: Array, columns: int
) -> tuple[IntArray, IntArray, Array, Array]:
    """Return the terms sorted by row and column, those of one place added, with radii for the rounding."""
    keys = row * columns + column
    if (keys[1:] <= keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        keys, value, rad = keys[order], value[order], rad[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] > keys[:-1]])[: len(keys)])
    if len(first) == len(keys):
        return (*(np.divmod(keys, columns) if columns else (row, column)), value, rad)
    count = np.diff(np.append(first, len(keys)))
    total, spread, size = (np.add.reduceat(part, first) for part in (value, rad, np.abs(value)))
    a, b = value[first], value[np.minimum(first + 1, len(keys) - 1)]
    # Sums of numbers of 17 bits whose exponents differ by at most 30 are exact.
    exponent = np.where(value != 0, np.frexp(value)[1], 0)
    most, least = np.maximum.reduceat(exponent, first), np.minimum.reduceat(exponent, first)
    exact = np.logical_and.reduceat(is_short(value), first) & (most - least <= 30) & (count < 32)
    rounding = np.where(
        (count == 1) | exact, 0.0, np.where(count == 2, _of_two(a, b)[1], 2 * count * UNIT * size)
    )
    spread = inflated(spread + np.where(count > 1, rounding + 2 * count * UNIT * spread, 0.0))
    kept = (total != 0) | (spread != 0)
    row, column = np.divmod(keys[first[kept]], columns)
    return row, column, total[kept], spread[kept]


def _numbered(place: IntArray, places: int) -> tuple[IntArray, IntArray]:
    """Return the places that occur, in ascending order, and the index of each place among them."""
    if places > len(place):
        return np.unique(place, return_inverse=True)
    occurs = np.zeros(places, dtype=bool)
    occurs[place] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[place]


def _radii(rows: Rows, terms: Coordinates) -> Array:
    """Return the radii of products of numbers; products of numbers of few bits are exact."""
    if isinstance(rows, EXACT):
        return np.zeros(len(terms.value))
    rad = _PRODUCT * np.abs(terms.value) + TINY
    products = rows.products()
    if products is not None:
        exact = is_short(products.weight)
        for factor in (products.U, products.W):
            own = sp.csr_array(factor)
            exact[np.repeat(np.arange(len(exact)), np.diff(own.indptr))[~is_short(own.data)]] = False
        rad[exact[terms.row]] = 0.0
    return rad


def is_short(x: Array) -> Mask:
    """Return the mask of numbers of at most 17 bits, whose products of three are exact."""
    leading = np.ldexp(np.frexp(x)[0], 17)
    mask: Mask = (leading == np.rint(leading)) & (np.abs(np.frexp(x)[1]) < 300)
    return mask


def _anchor(nearness: Any) -> Anchor | None:
    if nearness is None:
        return None
    known = set(nearness.parameters) <= {"weights"}
    name = nearness.divergence if known else nearness.kind.phrase()
    if isinstance(nearness.X0, LowRank):
        return Anchor(name, Ball.exact(np.zeros((0, 0))), nearness.mu, factor=nearness.X0.factor)
    return Anchor(name, Ball.exact(nearness.X0), nearness.mu, nearness.parameters.get("weights"))


def _canonical(B: Any) -> Any:
    B = sp.csr_array(B, copy=True)
    B.sum_duplicates()
    return B
