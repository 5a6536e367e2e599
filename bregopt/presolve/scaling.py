"""Scaling of a program for external solvers.

The tolerances of CVXPY's solvers are absolute for small numbers, and an ill-conditioned ``X0`` costs digits.
So ``X = V M V'`` scales ``X0`` to size one, each row is divided by its norm, and the objective by the size of
its terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cholesky

from bregopt.arrays import Array
from bregopt.divergences import PENALTY_DEGREES
from bregopt.presolve.constants import REFERENCE_CONDITION
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.program import Answer, Block, Program
from bregopt.program.anchor import divergence_of

__all__ = ["Scaled", "Scaling"]


@dataclass(frozen=True, eq=False)
class Scaled(Reduced):
    """A scaled program.

    Parameters
    ----------
    V : tuple of arrays of shape (n_b, n_b)
        ``X = V M V'`` for the ``M`` of each block.
    rows : array of shape (m,)
        The divisors of the rows.
    objective : float
        The divisor of the objective.
    """

    V: tuple[Array, ...]
    rows: Array
    objective: float

    def restore(self, answer: Answer) -> Answer:
        X = tuple(V @ M @ V.T for V, M in zip(self.V, answer.X, strict=True))
        return replace(answer, X=X, y=self.objective * answer.y / self.rows)


class Scaling:
    """Scale blocks, rows and the objective to size one."""

    name: ClassVar[str] = "scaling"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Scaled:
        V: list[Array] = []
        scaled = program
        for b, block in enumerate(program.blocks):
            kind = None if block.nearness is None else block.nearness.kind
            X0: Array = np.eye(block.n) if block.nearness is None else np.asarray(block.nearness.X0)
            free = kind is not None and kind.congruence_invariant and block.cap is None
            if free and np.linalg.cond(X0) > REFERENCE_CONDITION:
                V.append(cholesky(X0, lower=True))
                scaled = scaled.restrict(b, V[b], np.eye(block.n))
            elif kind is not None and kind.degree is None:
                V.append(np.eye(block.n))
            else:
                # A divergence of degree zero takes logarithms: their mean should be near zero, not the
                # largest.
                middle = kind is not None and kind.degree == 0
                size = float(np.trace(X0) / len(X0) if middle else np.linalg.norm(X0, 2)) or 1.0
                V.append(math.sqrt(size) * np.eye(block.n))
                scaled = _resized(scaled, b, size)
        rows = np.where(scaled.row_sizes > 0, scaled.row_sizes, 1.0)
        objective = _size_of_objective(scaled)
        return Scaled(program, _divided(scaled, rows, objective), tuple(V), rows, objective)


def _resized(program: Program, b: int, size: float) -> Program:
    """Return the program in ``M`` for ``X_b = size * M``."""
    block = program.blocks[b]
    cost = None if block.cost is None else block.cost.scale(np.array([size]))
    nearness = block.nearness and replace(
        block.nearness,
        X0=np.asarray(block.nearness.X0) / size,
        mu=block.nearness.mu * size ** (block.nearness.kind.degree or 0),
    )
    blocks = tuple(
        replace(block, cost=cost, nearness=nearness, cap=block.cap and block.cap / size) if k == b else other
        for k, other in enumerate(program.blocks)
    )
    terms = tuple(
        replace(term, rows=term.rows.scale(np.full(term.rows.m, size))) if term.block == b else term
        for term in program.A.terms
    )
    return replace(program, blocks=blocks, A=replace(program.A, terms=terms))


def _size_of_objective(program: Program) -> float:
    sizes = [float(np.abs(program.c).max(initial=0.0))]
    for block in program.blocks:
        if block.cost is not None:
            sizes.append(float(block.cost.norms()[0]))
        if block.nearness is not None:
            sizes.append(block.nearness.mu * max(divergence_of(block.nearness).unit, 1.0))
    return max(sizes) or 1.0


def _divided(program: Program, rows: Array, objective: float) -> Program:
    """Return the program with each row and the objective divided by a number of its own."""
    bounds = program.bounds
    degree = PENALTY_DEGREES[bounds.kind]
    terms = tuple(replace(term, rows=term.rows.scale(1 / rows[term.at])) for term in program.A.terms)
    return replace(
        program,
        blocks=tuple(_cheaper(block, objective) for block in program.blocks),
        A=replace(program.A, terms=terms),
        B=sp.csr_array(sp.diags_array(1 / rows) @ program.B),
        bounds=replace(
            bounds, lo=bounds.lo / rows, hi=bounds.hi / rows, gamma=bounds.gamma * rows**degree / objective
        ),
        c=program.c / objective,
        offset=program.offset / objective,
        constant=program.stated_constant / objective,
    )


def _cheaper(block: Block, objective: float) -> Block:
    cost = None if block.cost is None else block.cost.scale(np.array([1 / objective]))
    nearness = block.nearness and replace(block.nearness, mu=block.nearness.mu / objective)
    return replace(block, cost=cost, nearness=nearness)
