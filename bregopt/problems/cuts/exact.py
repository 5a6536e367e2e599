"""Exact statements on the weights of partitions: their lattice, and the best one of a small graph.

If all weights of edges are multiples of a unit, so are those of partitions, and a bound that is below the
next multiple proves a partition. Doubles are multiples of a power of two; multiples of other units, such as
0.1, are rounded, and the distance from them is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray, Mask

__all__ = ["Lattice", "partitions", "strongest"]

_ROUNDED = 2.0**-50  # of a weight: what two products and the quotient of two weights may round
_LARGEST_DIVISOR = 2**22  # of the least weight
_MOST_PARTITIONS = 2**15


class Lattice(NamedTuple):
    """The multiples of a unit, near which all sums of weights lie.

    Parameters
    ----------
    unit : Fraction
        Zero where no unit is large enough to separate sums.
    distance : Fraction
        The largest distance of a sum of weights from a multiple of the unit, round-off of the sum included.
        It is at most a quarter of the unit.
    """

    unit: Fraction
    distance: Fraction

    @staticmethod
    def of(weights: Array) -> Lattice:
        """Return the coarsest lattice of some weights.

        Weights count as multiples of a unit if they are to within the rounding of two products.
        """
        sizes = np.unique(np.abs(weights[weights != 0]))
        if not len(sizes):
            return Lattice(Fraction(1), Fraction(0))
        total = Fraction(math.fsum(np.abs(weights)))
        exact, near = _exact_unit(sizes), _near_unit(sizes)
        rounded = total * Fraction(8 * _ROUNDED)
        if near > exact and 4 * rounded <= near:
            return Lattice(near, rounded)
        # Sums of multiples of the unit are exact in doubles up to 2^53 units.
        return Lattice(exact if total <= 2**53 * exact else Fraction(0), Fraction(0))

    def proves(self, bound: float, weight: float, largest: bool) -> bool:
        """Whether a bound on all partitions is below the next multiple beyond the weight of one of them."""
        if not self.unit or not math.isfinite(bound):
            return False
        own = Fraction(weight)
        room = Fraction(bound) - own if largest else own - Fraction(bound)
        away = abs(own - round(own / self.unit) * self.unit)
        return room < self.unit - self.distance - away


def _exact_unit(sizes: Array) -> Fraction:
    """Return the greatest common divisor of doubles."""
    mantissa, exponent = np.frexp(sizes)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    twos = np.bitwise_and(whole, -whole)  # the largest power of two that divides each
    odd = whole // twos
    least = int((np.frexp(twos.astype(float))[1] - 1 + exponent - 53).min())
    return int(np.gcd.reduce(odd)) * Fraction(2) ** least


def _near_unit(sizes: Array) -> Fraction:
    """Return the largest unit of which sorted doubles are multiples up to round-off, zero for none.

    It divides the least one. Each that is no multiple yet gives a factor of the divisor: the denominator of
    the simplest fraction near their quotient.
    """
    quotient, divisor = sizes / sizes[0], 1
    while True:
        multiple = divisor * quotient
        off = np.abs(multiple - np.rint(multiple)) > _ROUNDED * multiple
        if not off.any():
            whole = np.rint(multiple)
            if whole[-1] >= 2.0**53:
                return Fraction(0)
            common = int(np.gcd.reduce(whole.astype(np.int64)))
            return Fraction(float(sizes[0])) * common / divisor
        part = Fraction(float(multiple[off][0])).limit_denominator(_LARGEST_DIVISOR // divisor)
        divisor *= part.denominator
        if part.denominator == 1 or 2 * divisor > _LARGEST_DIVISOR:
            return Fraction(0)


def partitions(n: int, k: int, allowed: Callable[[IntArray], Mask], most: int) -> IntArray | None:
    """Return all partitions of `n` vertices in at most `k` parts, shape (count, n); None if there are many.

    Parameters
    ----------
    n, k : int
    allowed : function
        Whether partitions are allowed whose parts have the sizes in the rows of an array of shape (count, k).
        Parts are numbered in the order of their first vertices.
    most : int
        The largest size of a part.
    """
    part, sizes = np.zeros((1, 0), dtype=np.intp), np.zeros((1, k), dtype=np.intp)
    for _ in range(n):
        used = (sizes > 0).sum(axis=1)
        row, own = np.nonzero((np.arange(k) <= used[:, None]) & (sizes < most))
        if len(row) > _MOST_PARTITIONS:
            return None
        part = np.column_stack([part[row], own])
        sizes = sizes[row]
        sizes[np.arange(len(row)), own] += 1
    return part[allowed(sizes)]


def strongest(cut: Mask, weights: Array, largest: bool) -> int:
    """Return the number of the partition with the largest or smallest sum of weights, compared exactly.

    Parameters
    ----------
    cut : bool array of shape (count, m)
        The edges between parts of each partition.
    weights : array of shape (m,)
    largest : bool
    """
    gain = cut @ (weights if largest else -weights)
    if not len(weights):
        return 0
    total, unit = float(np.abs(weights).sum()), _exact_unit(np.abs(weights))
    if total <= 2**53 * unit:  # then the sums are exact
        return int(np.argmax(gain))
    close = np.flatnonzero(gain >= gain.max() - len(weights) * 2.0**-51 * total)
    whole = np.array([int(Fraction(w) / unit) for w in weights.tolist()], dtype=object)
    exact = (cut[close] * (whole if largest else -whole)).sum(axis=1)
    return int(close[np.argmax(exact)])
