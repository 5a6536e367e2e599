"""Programs whose solutions prove infeasibility or unboundedness; always feasible and bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.program import Block, Bounds, LinearMap, Penalty, Program, Term
from bregopt.program.anchor import divergence_of
from bregopt.program.rows import Coordinates, DenseRows, SparseRows

__all__ = ["elastic", "largest_trace", "recession", "recession_box"]


def elastic(program: Program) -> Program:
    """Return the program that minimizes the violations of the hard rows, relative to the rows' norms.

    If the minimum is positive, its multipliers are a Farkas vector.
    """
    bounds = program.bounds
    norms = program.row_sizes
    return replace(
        program,
        blocks=tuple(replace(block, cost=None, nearness=None) for block in program.blocks),
        bounds=Bounds(
            np.where(bounds.required, bounds.lo, -np.inf),
            np.where(bounds.required, bounds.hi, np.inf),
            np.full(program.m, int(Penalty.HINGE)),
            1 / np.where(norms > 0, norms, 1.0),
        ),
        c=np.zeros(program.k),
        offset=0.0,
    )


def recession(program: Program) -> Program:
    """Return the program for the steepest ray, with trace and entries of directions at most one.

    A direction satisfies every homogeneous row; it may violate hinges at their price. If the minimum is
    negative, it is a ray. One row for each block, at the end, bounds its trace: by zero if a divergence
    outgrows every linear term. LogDet does not: it adds its recession, ``mu inv(X0)``, to the cost.
    """
    bounds, count = program.bounds, len(program.blocks)
    traces = [_trace(program.m + b, b, n) for b, n in enumerate(program.A.orders)]
    hinge = bounds.kind == Penalty.HINGE
    u_lo, u_hi = recession_box(program)
    return replace(
        program,
        blocks=tuple(map(_cost_of_direction, program.blocks)),
        A=LinearMap(program.m + count, program.A.orders, (*program.A.terms, *traces)),
        B=sp.csr_array(sp.vstack([program.B, sp.csr_array((count, program.k))])),
        bounds=Bounds(
            np.append(np.where(np.isfinite(bounds.lo), 0.0, -np.inf), np.full(count, -np.inf)),
            np.append(
                np.where(np.isfinite(bounds.hi), 0.0, np.inf), list(map(largest_trace, program.blocks))
            ),
            np.append(np.where(hinge, Penalty.HINGE, Penalty.HARD), np.full(count, Penalty.HARD)),
            np.append(np.where(hinge, bounds.gamma, np.inf), np.full(count, np.inf)),
        ),
        u_lo=u_lo,
        u_hi=u_hi,
        offset=0.0,
    )


def _cost_of_direction(block: Block) -> Block:
    cost = block.C
    R = _recession(block)
    if R is not None and block.nearness is not None:
        cost = cost + block.nearness.mu * R
    return replace(block, cost=DenseRows((cost + cost.T)[None] / 2), nearness=None, cap=None)


def _recession(block: Block) -> Array | None:
    return None if block.nearness is None else divergence_of(block.nearness).recession()


def largest_trace(block: Block) -> float:
    """Return the largest trace of a direction: zero for a cap, or a divergence that outgrows linear terms."""
    unbounded = block.nearness is None or _recession(block) is not None
    return 1.0 if unbounded and block.cap is None else 0.0


def recession_box(program: Program) -> tuple[Array, Array]:
    """Return the box of directions of ``u``: zero towards a finite bound, one towards an infinite one.

    Variables in second-order cones have a box beside their cone there.
    """
    return np.where(np.isfinite(program.u_lo), 0.0, -1.0), np.where(np.isfinite(program.u_hi), 0.0, 1.0)


def _trace(row: int, block: int, n: int) -> Term:
    each = np.arange(n)
    rows = SparseRows(1, n, Coordinates(np.zeros(n, dtype=np.intp), each, each, np.ones(n)))
    return Term(block, np.array([row]), rows)
