"""The terms of rows in both bounds: conjugates of bounds and penalties, and the penalties themselves."""

from __future__ import annotations

import math

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.program import Penalty
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import Data
from bregopt.rigorous.functions import exp, log

__all__ = ["conjugate", "penalty"]


def conjugate(data: Data, y: Ball) -> Array:
    """Return lower bounds on each row's ``min over a of penalty(a) + y a``, for `y` inside its range.

    It is concave in ``y``, so that its least value is at an end of the enclosure.
    """
    if not y.rad.any():
        return _conjugate_at(data, y.mid).lo
    ends = (np.where(y.rad > 0, end, y.mid) for end in (y.lo, y.hi))
    low, high = (_conjugate_at(data, end).lo for end in ends)
    return np.minimum(low, high)


def _conjugate_at(data: Data, multipliers: Array) -> Ball:
    """Return enclosures of each row's term of the dual function.

    A hard row or a hinge has ``y b`` with the bound ``b`` on the side of the sign of ``y``. A logarithmic row
    has ``y b + w (1 + log(y / w))``, an unknown number where `y` may be zero.
    """
    y = Ball.exact(multipliers)
    side = np.where(y.mid > 0, data.lo, data.hi)
    rad = np.where(y.mid > 0, data.lo_rad, data.hi_rad)
    zero = y.mid == 0
    b = Ball(np.where(zero, 0.0, side), np.where(zero, 0.0, rad))
    term = y * b
    for kind in data.kinds & {Penalty.LOGDET, Penalty.VON_NEUMANN, Penalty.SQUARE}:
        k = np.flatnonzero((data.kind == int(kind)) & ~zero)
        if not len(k):
            continue
        weight, t = data.weight[k], y[k] / data.weight[k]
        if kind is Penalty.LOGDET:
            found = log(t * b[k] + 1.0) * weight
        elif kind is Penalty.VON_NEUMANN:
            found = (1.0 - exp(-t)) * b[k] * weight
        else:
            found = y[k] * (b[k] - t / 4.0)
        term.mid[k], term.rad[k] = found.mid, found.rad
    k = np.flatnonzero((data.kind == int(Penalty.LOG)) & (data.weight > 0))
    if len(k):
        found = term[k] + (log(y[k] / data.weight[k]) + 1.0) * data.weight[k]
        term.mid[k], term.rad[k] = found.mid, found.rad
    return term


def penalty(data: Data, a: Ball) -> Array:
    """Return upper bounds on the penalties of the rows; zero for hard rows.

    A penalty is convex in the activity, so that the largest is at an end of the enclosure: at the lower end
    beyond the lower bound, or at the upper end beyond the upper one. That of a logarithmic row falls with the
    activity; it is infinite where the activity may not be above the bound.
    """
    paid = np.zeros(data.m)
    if data.kinds <= {Penalty.HARD}:
        return paid
    soft = np.flatnonzero(~data.required)
    for end, bound, rad, sign in ((a.lo, data.lo, data.lo_rad, -1.0), (a.hi, data.hi, data.hi_rad, 1.0)):
        k = soft[np.isfinite(bound[soft])]
        b, at = Ball(bound[k], rad[k]), Ball.exact(end[k])
        beyond = (at - b) * sign
        outside = beyond.hi > 0
        found = _paid(data, k[outside], at[outside], b[outside])
        paid[k[outside]] = np.maximum(paid[k[outside]], found)
    k = np.flatnonzero(data.kind == int(Penalty.LOG))
    if len(k):
        gain = log(Ball.exact(a.lo[k]) - Ball(data.lo[k], data.lo_rad[k])) * data.weight[k]
        paid[k] = -gain.lo
    return paid


def _paid(data: Data, rows: IntArray, at: Ball, b: Ball) -> Array:
    """Return upper bounds on the penalties of rows at activities beyond the bounds `b`."""
    paid = np.zeros(len(rows))
    for kind in (Penalty.HINGE, Penalty.LOGDET, Penalty.VON_NEUMANN, Penalty.SQUARE):
        k = np.flatnonzero(data.kind[rows] == int(kind))
        if not len(k):
            continue
        beyond = at[k] - b[k]
        if kind is Penalty.HINGE:
            size = Ball(np.abs(beyond.mid), beyond.rad)
        elif kind is Penalty.SQUARE:
            size = beyond * beyond
        elif kind is Penalty.LOGDET:
            ratio = at[k] / b[k]
            size = ratio - log(ratio) - 1.0
        else:
            size = at[k] * log(at[k] / b[k]) - beyond
        found = (size * data.weight[rows[k]]).magnitude
        paid[k] = np.where(np.isnan(found), math.inf, found)
    return paid
