"""Relative violations of the box, of second-order cones and of ``X psd``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.constants import CONE_NOISE
from bregopt.certify.dimacs import dimacs_sizes
from bregopt.certify.slacks import least_eigenvalues
from bregopt.program.anchor import divergence_of
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.program import Block, Program
from bregopt.program.scale import scale_of

__all__ = ["box_residual", "cone_residual", "keeps_inside", "outside_of", "second_order_residual"]


def box_residual(program: Program, u: Array) -> float:
    """Return the largest violation of the box, relative to the larger of its bound and the scale of u."""
    outside = np.maximum(np.maximum(program.u_lo - u, u - program.u_hi), 0.0)
    column = program.column_sizes
    usual = scale_of(program).primal / np.where(column > 0, column, 1.0)
    end = np.where(u < program.u_lo, program.u_lo, program.u_hi)
    size = np.maximum(usual, np.where(outside > 0, np.abs(end), 0.0))
    return float((outside / size).max())


def second_order_residual(program: Program, u: Array) -> float:
    """Return the largest violation of a second-order cone, relative to the scale of its axis."""
    cones, column = program.cones, program.column_sizes[program.cones.axes]
    usual = scale_of(program).primal / np.where(column > 0, column, 1.0)
    return float((cones.outside(u[cones.index]) / usual).max(initial=0.0))


def outside_of(program: Program, u: Array) -> float:
    """Return the largest distance of a variable from its box, or of variables from their cone."""
    if program.k == 0:
        return 0.0
    box = np.abs(u - np.clip(u, program.u_lo, program.u_hi))
    return float(max(box.max(), program.cones.outside(u[program.cones.index]).max(initial=0.0)))


def cone_residual(program: Program, X: Sequence[Matrix]) -> float:
    """Return the relative distance of the matrices from the cone, where no divergence keeps them inside.

    It is relative to the mean eigenvalue or the scale of ``X``, and no less than the DIMACS error 2.
    """
    sizes = dimacs_sizes(program)
    own = [
        X_b
        for block, X_b in zip(program.blocks, X, strict=True)
        if not (isinstance(X_b, LowRank) or keeps_inside(block))
    ]
    averages = [float(np.trace(X_b)) / len(X_b) for X_b in own]
    noisy = [X_b + CONE_NOISE * abs(a) * np.eye(len(X_b)) for X_b, a in zip(own, averages, strict=True)]
    worst = 0.0
    for smallest, average in zip(least_eigenvalues(noisy, [False] * len(own)), averages, strict=True):
        if smallest < 0:
            size = min(average, scale_of(program).primal, math.inf if sizes is None else sizes.bounds)
            worst = max(worst, -smallest / size if size > 0 else math.inf)
    return worst


def keeps_inside(block: Block) -> bool:
    """Whether the block's divergence declares that it is infinite outside the cone."""
    if block.nearness is None:
        return False
    return bool(getattr(divergence_of(block.nearness), "infinite_outside_cone", False))
