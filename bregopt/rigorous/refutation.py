"""Problems whose bounds prove another problem infeasible or unbounded.

A Farkas vector of a problem is a vector of multipliers with a positive bound for the zero objective: its
multiples prove bounds beyond every number. A ray is a point of the homogeneous problem with a negative value.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bregopt.arrays import Array
from bregopt.program import Penalty
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import Data
from bregopt.rigorous.implied import implied_bounds
from bregopt.rigorous.lower import lower_bound
from bregopt.rigorous.reduction import reduced

__all__ = ["feasibility", "homogeneous", "refutes"]


def refutes(data: Data, y: Array) -> bool:
    """Whether multipliers prove that the required rows contradict each other, on faces and ranges."""
    empty = feasibility(reduced(data).data)
    return lower_bound(empty, y, implied_bounds(empty)).value > 0


def feasibility(data: Data) -> Data:
    """Return the problem of its hard rows, domains of logarithms and cones, with the objective zero."""
    return replace(
        data,
        matrices=tuple(
            replace(block, C=Ball.exact(np.zeros(len(block.i))), anchor=None) for block in data.matrices
        ),
        c=Ball.exact(np.zeros(data.k)),
        lo=np.where(data.required, data.lo, -np.inf),
        hi=np.where(data.required, data.hi, np.inf),
        kind=np.full(data.m, int(Penalty.HARD)),
        weight=np.full(data.m, np.inf),
        offset=0.0,
    )


def homogeneous(data: Data) -> Data | None:
    """Return the problem of directions: finite bounds become zero, and penalties that grow faster hard rows.

    None where a block has a divergence or a cap: its rays are zero.
    """
    if any(block.anchor is not None or block.cap is not None for block in data.matrices):
        return None
    hinge = data.kind == int(Penalty.HINGE)

    def zero(end: Array) -> Array:
        return np.where(np.isfinite(end), 0.0, end)

    return replace(
        data,
        lo=zero(data.lo),
        hi=zero(data.hi),
        lo_rad=np.zeros(data.m),
        hi_rad=np.zeros(data.m),
        u_lo=zero(data.u_lo),
        u_hi=zero(data.u_hi),
        kind=np.where(hinge, data.kind, int(Penalty.HARD)),
        weight=np.where(hinge, data.weight, np.inf),
        offset=0.0,
    )
