"""Second-order cones ``Q = {(t, v): ||v|| <= t}`` of ordinary variables, all of a problem in one array.

A vector ``x = (t, v)`` has the eigenvalues ``t - ||v||`` and ``t + ||v||``; it is in ``Q`` if both are
nonnegative (Alizadeh, Goldfarb 2003, Second-order cone programming, §4). ``Q`` is its own dual.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.records import PickledWithoutCache, cached_property, dataclass

__all__ = ["NO_CONES", "SecondOrderCones"]


@dataclass(frozen=True, eq=False)
class SecondOrderCones(PickledWithoutCache):
    """The second-order cones that disjoint groups of variables are in.

    Functions of vectors take the concatenated vectors of all cones, shape ``(size,)``, and return one number
    for each cone, shape ``(count,)``, or a vector again. None of them loops over the cones.

    Parameters
    ----------
    index : int array of shape (size,)
        The variables, one cone after the other; the first one of a cone is its axis ``t``.
    dimensions : int array of shape (count,)
        The number of variables of each cone, at least one.
    """

    index: IntArray
    dimensions: IntArray

    @classmethod
    def of(cls, groups: Sequence[IntArray]) -> SecondOrderCones:
        """Return the cones of groups of variables, the axis first in each."""
        if not groups:
            return NO_CONES
        return cls(np.concatenate(groups).astype(np.intp), np.array([len(group) for group in groups]))

    @cached_property
    def count(self) -> int:
        """The number of cones."""
        return len(self.dimensions)

    @property
    def size(self) -> int:
        """The number of variables in cones."""
        return len(self.index)

    @cached_property
    def starts(self) -> IntArray:
        """The position of each axis in the concatenated vectors."""
        starts: IntArray = np.cumsum(self.dimensions) - self.dimensions
        return starts

    @cached_property
    def axes(self) -> IntArray:
        """The variable that is the axis of each cone."""
        return self.index[self.starts]

    @cached_property
    def owner(self) -> IntArray:
        """The cone of each position in the concatenated vectors."""
        return np.repeat(np.arange(self.count), self.dimensions)

    @cached_property
    def J(self) -> Array:
        """1 at each axis, -1 elsewhere: ``x'J x = t^2 - ||v||^2``."""
        signs = -np.ones(self.size)
        signs[self.starts] = 1.0
        return signs

    @cached_property
    def identity(self) -> Array:
        """The vectors ``(1, 0)``."""
        return (self.J + 1) / 2

    def inner(self, x: Array, y: Array) -> Array:
        """Return the inner product in each cone."""
        return np.add.reduceat(x * y, self.starts) if self.count else np.zeros(0)

    def tail_norms(self, x: Array) -> Array:
        """Return ``||v||`` of each ``(t, v)``."""
        if not self.count:
            return np.zeros(0)
        tail = np.abs(x)
        tail[self.starts] = 0.0
        largest = np.maximum.reduceat(tail, self.starts)
        unit = np.where(largest > 0, largest, 1.0)  # squares of small numbers underflow
        norms: Array = unit * np.sqrt(np.add.reduceat((tail / unit[self.owner]) ** 2, self.starts))
        return norms

    def least_eigenvalues(self, x: Array) -> Array:
        """Return ``t - ||v||`` of each ``(t, v)``."""
        least: Array = x[self.starts] - self.tail_norms(x)
        return least

    def outside(self, x: Array) -> Array:
        """Return how far each axis must rise to bring its vector into the cone; zero inside."""
        return np.maximum(-self.least_eigenvalues(x), 0.0)

    def determinants(self, x: Array) -> Array:
        """Return ``t^2 - ||v||^2``, the product of the eigenvalues."""
        axis, norms = x[self.starts], self.tail_norms(x)
        determinants: Array = (axis - norms) * (axis + norms)
        return determinants

    def inverse(self, x: Array) -> Array:
        """Return ``(t, -v) / (t^2 - ||v||^2)`` of vectors inside their cones."""
        inverse: Array = self.J * x / self.determinants(x)[self.owner]
        return inverse

    def raised(self, x: Array, rise: Array) -> Array:
        """Return the vectors with a number added to each axis."""
        raised = x.copy()
        raised[self.starts] += rise
        return raised

    def projected(self, x: Array) -> Array:
        """Return the nearest vectors in the cones."""
        axis, norms = x[self.starts], self.tail_norms(x)
        inside, polar = norms <= axis, norms <= -axis
        half = (axis + norms) / 2
        share = np.divide(half, norms, out=np.zeros_like(half), where=norms > 0)
        projected: Array = x * np.where(inside, 1.0, np.where(polar, 0.0, share))[self.owner]
        projected[self.starts] = np.where(inside, axis, np.where(polar, 0.0, half))
        return projected

    def clipped(self, u: Array) -> Array:
        """Return all variables, those in cones moved to the nearest vectors there."""
        if not self.count:
            return u
        clipped = u.copy()
        clipped[self.index] = self.projected(u[self.index])
        return clipped

    def renumbered(self, number: IntArray) -> SecondOrderCones:
        """Return the cones of variables with new numbers, ``number[j]`` for variable ``j``."""
        return SecondOrderCones(number[self.index], self.dimensions) if self.count else self


NO_CONES = SecondOrderCones(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))
