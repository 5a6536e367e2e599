"""Rays along which only logarithms make the objective fall.

A direction that changes neither rows nor linear terms is one if a log-determinant or a logarithm grows along
it. Iterates that diverge along such a direction fall too slowly to show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.clock import CutShort
from bregopt.presolve.recession import recession
from bregopt.program import Block, Matrix, Penalty, Program
from bregopt.program.anchor import divergence_of
from bregopt.program.rows import DenseRows
from bregopt.rigorous.refutation import recedes

__all__ = ["logarithmic_ray"]

Direction = tuple[tuple[Array, ...], Array]


def logarithmic_ray(program: Program, X: Sequence[Matrix]) -> Direction | None:
    """Return a ray of a program with logarithms, near large matrices, None where none is found.

    Parameters
    ----------
    program : Program
    X : sequence of arrays of shape (n_b, n_b)
        The point that a route ended at.
    """
    barriers = [b.nearness is not None and b.nearness.kind.barrier for b in program.blocks]
    log = program.bounds.kind == Penalty.LOG
    others = any(d is not None and not own for d, own in zip(program.divergences, barriers, strict=True))
    if program.capped or others or not (any(barriers) or log.any()):
        return None
    for found in (_of_matrices(program, X), _of_variables(program)):
        if found is not None and recedes(program, *found):
            return found
    return None


def _of_matrices(program: Program, X: Sequence[Matrix]) -> Direction | None:
    """Return a direction that changes neither rows nor linear terms."""
    linear = replace(program, blocks=tuple(map(_linear, program.blocks)))
    try:
        found = recession(linear, [np.asarray(X_b) for X_b in X])
    except CutShort:
        return None
    return None if found is None else found.direction


def _linear(block: Block) -> Block:
    """Return the block with its linear terms alone, that of its LogDet term included."""
    if block.nearness is None:
        return block
    R: Any = divergence_of(block.nearness).recession()
    return replace(block, cost=DenseRows((block.C + block.nearness.mu * R)[None]), nearness=None)


def _of_variables(program: Program) -> Direction | None:
    """Return the direction of variables alone along which arguments of logarithms grow most."""
    log = program.bounds.kind == Penalty.LOG
    if not program.k or not log.any():
        return None
    from scipy.optimize import linprog  # slow to import, seldom needed

    bounds, in_cone = program.bounds, np.zeros(program.k, dtype=bool)
    in_cone[program.cones.index] = True
    upward, downward = np.isfinite(bounds.lo), np.isfinite(bounds.hi)
    hard = np.concatenate([-program.B[upward].toarray(), program.B[downward].toarray(), program.c[None]])
    lower = np.where(np.isfinite(program.u_lo) | in_cone, 0.0, -1.0)
    upper = np.where(np.isfinite(program.u_hi) | in_cone, 0.0, 1.0)
    growth = np.asarray(program.B[log].sum(axis=0)).ravel()
    found = linprog(-growth, hard, np.zeros(len(hard)), bounds=np.column_stack([lower, upper]))
    if found.status != 0:
        return None
    return tuple(np.zeros((block.n, block.n)) for block in program.blocks), found.x
