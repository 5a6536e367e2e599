"""Constraints on a kernel from pairs of its points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bregopt import PSD, soft, sq_distance
from bregopt.arrays import Array, IntArray, finite_array, positive_number
from bregopt.learn.base import softened
from bregopt.learn.constraints import index_rows
from bregopt.learn.distance_bounds import idealized_bounds, sq_distances
from bregopt.modeling.constraints import Constraint

__all__ = ["KernelRows"]

# Pairs of points, and lower and upper bounds, each None if there are none.
BoundedPairs = tuple[ArrayLike, ArrayLike | None, ArrayLike | None]


@dataclass(frozen=True, eq=False)
class KernelRows:
    """The constraints on a kernel `K` near ``G0 G0'``, soft with weight `gamma` unless that is None.

    Squared distances are taken relative to their bounds, with the scalar divergence as penalty. All other
    rows have a hinge penalty, relative to the mean squared distance, or norm, of their points. The penalty
    weight is `gamma` times the scale of the divergence, so that it does not depend on the units of the data.
    """

    K: PSD
    G0: Array
    gamma: float | None
    scale: float

    def idealized(self, similar: Any, dissimilar: Any, shrink: float) -> Iterator[Constraint]:
        """Yield rows that change squared distances by the share `shrink`: similar pairs down, others up."""
        near = index_rows(similar, "similar", self.K.n, 2)
        far = index_rows(dissimilar, "dissimilar", self.K.n, 2)
        near = near[sq_distances(self.G0, near) > 0]  # equal points stay equal in any kernel of this range
        upper, lower = idealized_bounds(self.G0, near, far, shrink)
        if len(near):
            yield softened(sq_distance(self.K, *near.T) / upper <= 1, self.gamma, self.scale)
        if len(far):
            yield softened(sq_distance(self.K, *far.T) / lower >= 1, self.gamma, self.scale)

    def distances(self, given: Any) -> Iterator[Constraint]:
        """Yield bounds on squared distances from ``(pairs, lower, upper)``."""
        if given is None:
            return
        pairs, lower, upper = _bounded(given, "distances", self.K.n, distinct=True)
        for end in (lower, upper):
            if end is not None and (end <= 0).any():
                raise ValueError(f"distances has the bound {end.min():g}; expected squared distances above 0")
        body = sq_distance(self.K, *pairs.T)
        if lower is not None:
            yield softened(body / lower >= 1, self.gamma, self.scale)
        if upper is not None:
            yield softened(body / upper <= 1, self.gamma, self.scale)

    def similarities(self, given: Any) -> Iterator[Constraint]:
        """Yield bounds on entries of the kernel from ``(pairs, lower, upper)``."""
        if given is None:
            return
        pairs, lower, upper = _bounded(given, "similarities", self.K.n, distinct=False)
        scale = float(np.mean(np.square(self.G0[pairs]).sum(axis=-1)))
        body = self.K[pairs[:, 0], pairs[:, 1]]
        if lower is not None:
            yield self._hinged(body >= lower, scale)
        if upper is not None:
            yield self._hinged(body <= upper, scale)

    def comparisons(self, given: Any) -> Iterator[Constraint]:
        """Yield rows that compare two squared distances."""
        rows = index_rows(given, "comparisons", self.K.n, 3, 4)
        if len(rows) == 0:
            return
        near, far = rows[:, :2], rows[:, [0, 2]] if rows.shape[1] == 3 else rows[:, 2:]
        same = np.flatnonzero(far[:, 0] == far[:, 1])
        if len(same):
            raise ValueError(f"comparisons pairs point {far[same[0], 0]} with itself at row {same[0]}")
        scale = float(np.mean(sq_distances(self.G0, np.concatenate([near, far]))))
        yield self._hinged(sq_distance(self.K, *near.T) <= sq_distance(self.K, *far.T), scale)

    def _hinged(self, row: Constraint, scale: float) -> Constraint:
        if self.gamma is None:
            return row
        price = self.scale * positive_number(self.gamma, "gamma")
        return soft(row, price / (scale or 1.0), penalty="hinge")


def _bounded(given: Any, name: str, n: int, distinct: bool) -> tuple[IntArray, Array | None, Array | None]:
    """Return pairs, their lower bounds and their upper bounds; None for no bounds."""
    if not isinstance(given, tuple) or len(given) != 3:
        raise TypeError(f"{name} is {type(given).__name__}; expected a tuple (pairs, lower, upper)")
    pairs = index_rows(given[0], f"{name}[0]", n, 2, distinct=distinct)
    if len(pairs) == 0 or (given[1] is None and given[2] is None):
        raise ValueError(f"{name} has {len(pairs)} pairs, or no bound; expected both")
    ends: list[Array | None] = []
    for place in (1, 2):
        end = None if given[place] is None else finite_array(given[place], f"{name}[{place}]", ndim=(0, 1))
        if end is not None and end.ndim and len(end) != len(pairs):
            raise ValueError(
                f"{name}[{place}] has {len(end)} values for {len(pairs)} pairs; expected one for each"
            )
        ends.append(None if end is None else np.broadcast_to(end, len(pairs)))
    if ends[0] is not None and ends[1] is not None and (ends[0] > ends[1]).any():
        k = int(np.flatnonzero(ends[0] > ends[1])[0])
        raise ValueError(
            f"{name} has the lower bound {ends[0][k]:g} above the upper one {ends[1][k]:g} at pair {k}; "
            "expected a tuple (pairs, lower, upper)"
        )
    return pairs, ends[0], ends[1]
