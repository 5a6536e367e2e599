"""Logarithm and exponential with proven error bounds.

NumPy's and the C library's functions are accurate to a few units in the last place, on every processor for
which they are built (NumPy's own tests ask for four). Twice that is assumed here; nothing else about them is.
"""

from __future__ import annotations

import numpy as np

from bregopt.arrays import TINY, Array, Mask
from bregopt.rigorous.ball import UNIT, Ball

__all__ = ["exp", "log"]

_ULPS = 16 * UNIT  # relative error: eight units in the last place


def log(x: Ball) -> Ball:
    """Return the natural logarithm; its radius is infinite where a number may not be positive."""
    lo, hi = x.lo, x.hi
    with np.errstate(divide="ignore", invalid="ignore"):
        below, above = np.log(lo), np.log(hi)
    below, above = below - _ULPS * np.abs(below), above + _ULPS * np.abs(above)
    return _between(below, above, lo > 0)


def exp(x: Ball) -> Ball:
    """Return the exponential; its radius is infinite where it overflows."""
    with np.errstate(over="ignore"):
        below, above = np.exp(x.lo), np.exp(x.hi)
    below, above = below * (1 - _ULPS) - TINY, above * (1 + _ULPS) + TINY
    return _between(np.maximum(below, 0.0), above, np.isfinite(above))


def _between(lo: Array, hi: Array, valid: Mask) -> Ball:
    lo, hi = np.where(valid, lo, 0.0), np.where(valid, hi, 0.0)
    found = Ball.between(lo, hi)
    return Ball(found.mid, np.where(valid, found.rad, np.inf))
