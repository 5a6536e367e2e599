"""Bounds on traces and variables that single hard rows imply.

A row ``sum_i w_i X_ii + sum_j b_j u_j <= s`` with ``w_i >= 0`` bounds each ``X_ii`` by what the variables
leave of ``s``, divided by ``w_i``; it bounds the variables likewise. All quotients are rounded upward.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.records import dataclass, replace
from bregopt.rigorous.ball import Ball, raised
from bregopt.rigorous.data import Data

__all__ = ["Implied", "implied_bounds"]


@dataclass(frozen=True, eq=False)
class Implied:
    """Proven upper bounds: on the trace of each block, and on the variables from both sides.

    Parameters
    ----------
    traces : array of shape (blocks,)
        Infinite where nothing is known.
    u_lo, u_hi : array of shape (k,)
    diagonals : tuple of array of shape (n,)
        Upper bounds on the diagonal of each block.
    """

    traces: Array
    u_lo: Array
    u_hi: Array
    diagonals: tuple[Array, ...]

    def with_traces(self, given: Array) -> Implied:
        """Return these bounds with those that a caller knows."""
        return replace(self, traces=np.minimum(self.traces, given))


def implied_bounds(data: Data) -> Implied:
    """Return the bounds that single hard or logarithmic rows imply."""
    largest = [np.full(block.n, np.inf) for block in data.matrices]
    traces = np.array([block.trace for block in data.matrices])
    u_lo, u_hi = data.u_lo.copy(), data.u_hi.copy()
    for sign, end, rad in ((1.0, data.hi, data.hi_rad), (-1.0, data.lo, data.lo_rad)):
        supply = _supply(data, sign, raised(sign * end, rad), data.required & np.isfinite(end))
        for b, block in enumerate(data.matrices):
            row = np.repeat(np.arange(data.m), np.diff(block.A.indptr))
            weight = _lowered(sign * block.A.data, block.A_rad)
            share = _quotient(supply[row], weight)
            at = block.i[block.A.indices]
            np.minimum.at(largest[b], at, np.where(weight > 0, share, np.inf))
            # A row with all of the diagonal bounds the trace by its supply over the least weight.
            count = np.bincount(row[weight > 0], minlength=data.m)
            if (count == block.n).any():
                least = np.full(data.m, np.inf)
                np.minimum.at(least, row, weight)
                whole = count == block.n
                traces[b] = min(traces[b], float(_quotient(supply[whole], least[whole]).min()))
        if data.k:
            row = np.repeat(np.arange(data.m), np.diff(data.B.indptr))
            _bound_variables(data, sign, supply, row, u_lo, u_hi)
    for b, caps in enumerate(largest):
        total = Ball.exact(caps).sum()
        traces[b] = min(traces[b], float(total.hi)) if np.isfinite(caps).all() else traces[b]
        cap = data.matrices[b].cap
        if cap is not None:
            traces[b] = min(traces[b], float((Ball.exact(cap) * data.matrices[b].n).hi))
    return Implied(traces, u_lo, u_hi, tuple(largest))


def _supply(data: Data, sign: float, end: Array, rows: Mask) -> Array:
    """Return upper bounds on the nonnegative parts of rows; infinite where another part may be negative."""
    supply = np.where(rows, end, np.inf)
    for block in data.matrices:
        row = np.repeat(np.arange(data.m), np.diff(block.A.indptr))
        off = block.i[block.A.indices] != block.j[block.A.indices]
        wrong = off | (_lowered(sign * block.A.data, block.A_rad) < 0)
        supply[row[wrong]] = np.inf
    if data.k:
        row = np.repeat(np.arange(data.m), np.diff(data.B.indptr))
        j, b = data.B.indices, sign * data.B.data
        least = np.where(b > 0, data.u_lo[j], data.u_hi[j])
        bounded = np.isfinite(least) & (data.B_rad is None)
        supply[row[~bounded]] = np.inf
        term = Ball.exact(b) * np.where(bounded, least, 0.0)
        taken = np.zeros(data.m)
        np.add.at(taken, row, term.lo)
        size = np.zeros(data.m)
        np.add.at(size, row, np.abs(term.lo))
        count = np.diff(data.B.indptr)
        slack = 4 * np.finfo(float).eps * (count + 2) * (size + np.abs(np.where(np.isinf(supply), 0, supply)))
        supply = np.where(count > 0, supply - taken + slack, supply)
    return supply


def _bound_variables(data: Data, sign: float, supply: Array, row: IntArray, u_lo: Array, u_hi: Array) -> None:
    """Tighten the bounds of variables, each above its own end by what its row supplies."""
    j, b = data.B.indices, sign * data.B.data
    finite = np.isfinite(supply[row]) & (data.B_rad is None)
    with np.errstate(invalid="ignore"):
        reach = _quotient(supply[row], np.abs(b))
        above = np.nextafter(data.u_lo[j] + reach, np.inf)
        below = np.nextafter(data.u_hi[j] - reach, -np.inf)
    k = finite & (b > 0)
    np.minimum.at(u_hi, j[k], above[k])
    k = finite & (b < 0)
    np.maximum.at(u_lo, j[k], below[k])


def _lowered(value: Array, rad: Any) -> Array:
    return value if rad is None else np.nextafter(value - rad.data, -np.inf)


def _quotient(a: Array, b: Array) -> Array:
    """Return ``a / b`` for ``b > 0``, rounded upward; infinite elsewhere. Supplies are never negative."""
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.nextafter(np.maximum(a, 0.0) / b, np.inf)
    return np.where(b > 0, q, np.inf)
