"""Descents on a factor ``R`` of the part ``R R'`` that is near a matrix: their objective and result.

The objective is ``||off(B - R R')||_F^2``, where ``off`` drops the diagonal. With ``q_i = ||r_i||^2`` it is
``||off(B)||^2 - 2 <R, off(B) R> + ||R'R||^2 - ||q||^2``: one product of ``off(B)`` and a thin matrix a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bregopt.arrays import Array
from bregopt.program import StopReason

__all__ = ["Descent", "Objective", "distance"]

_SLICE = 200_000  # entries of a slice of ``B - R R'``, which fits the cache


@dataclass(frozen=True, eq=False)
class Descent:
    """The best point of a descent.

    Parameters
    ----------
    R : array of shape (n, k)
    values : list of float
        The objectives of all steps.
    residual : float
        The norm of the projected gradient at the last point, relative to that of ``4 off(B)``.
    stop : StopReason
        Why it is the last; ``CONVERGED`` if the residual meets its tolerance.
    """

    R: Array
    values: list[float]
    residual: float
    stop: StopReason


class Objective:
    """``||off(B - R R')||_F^2`` and its gradient.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    """

    def __init__(self, B: Array) -> None:
        self.B = B
        self.square = float(np.vdot(B, B))

    def at(self, R: Array) -> tuple[float, Array, Array]:
        """Return the value, the gradient, and ``R'R``."""
        BR, gram = self.B @ R, R.T @ R
        q = np.einsum("ij,ij->i", R, R)
        value = self.square - 2 * float(np.vdot(R, BR)) + float(np.vdot(gram, gram)) - float(q @ q)
        return value, 4 * (R @ gram - BR - q[:, None] * R), gram


def distance(B: Array, R: Array) -> float:
    """Return ``||off(B - R R')||_F^2`` from the entries, so that no digits cancel."""
    n, total = len(B), 0.0
    step = max(1, _SLICE // n)
    for a in range(0, n, step):
        left = B[a : a + step] - R[a : a + step] @ R.T
        left[np.arange(len(left)), np.arange(a, a + len(left))] = 0.0
        total += float(np.vdot(left, left))
    return total
