"""A matrix, the results of a pass there, and what the kept rows and multipliers prove."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bregopt.arrays import Array
from bregopt.chunks.screening import KeptRows
from bregopt.chunks.sums import HINGE_NOISE

__all__ = ["Iterate"]

_ROUND_OFF = 1e-11  # of a relative violation that is computed in two ways


@dataclass(frozen=True, eq=False)
class Iterate:
    """A matrix and the results of a pass there.

    Parameters
    ----------
    root, M : array of shape (r, r)
        ``M = root root'``.
    value, penalty : float
        The objective, and the part of it that soft rows pay.
    conjugate : float
        The terms of the soft rows in the dual function.
    bound : float
        The lower bound on the optimum that the multipliers prove.
    loss : float
        The cost of the violations of kept rows, at their multipliers.
    gap, violation : float
        The certified relative gap with that cost, and the largest violation relative to the bound of its row.
    gradient, curvature : array of shape (r, r)
        Of the penalties.
    weight : float
        Of :class:`~bregopt.chunks.sums.Sums`.
    broken : KeptRows
        The rows to keep.
    """

    root: Array
    M: Array
    value: float
    penalty: float
    conjugate: float
    bound: float
    loss: float
    gap: float
    violation: float
    gradient: Array
    curvature: Array
    weight: float
    broken: KeptRows

    @property
    def distance(self) -> float:
        """The larger of gap and violation."""
        return max(self.gap, self.violation)

    def is_sure_of(self, kept: KeptRows) -> bool:
        """Whether the pass took no kept hinge as violated that :meth:`without` takes as met, or conversely.

        Otherwise their multipliers may leave their range, and prove nothing.
        """
        violation = kept.take(~kept.hard).violations(self.root)
        return bool((np.abs(violation - HINGE_NOISE) > _ROUND_OFF).all())

    def without(self, kept: KeptRows) -> tuple[float, Array, float]:
        """Return penalty, gradient and conjugate of the soft rows without the kept hinges."""
        k = kept.gamma < np.inf
        if not k.any():
            return self.penalty, self.gradient, self.conjugate
        rows = kept.take(k)
        violation = rows.violations(self.root)
        y = np.where(violation > HINGE_NOISE, rows.sense * rows.gamma, 0.0)
        gradient = self.gradient + (rows.Z.T * y) @ rows.Z
        paid = float(rows.gamma @ np.maximum(violation, 0.0))
        return self.penalty - paid, (gradient + gradient.T) / 2, self.conjugate - float(y.sum())
