"""Coordinates in which ``X0`` is well-conditioned: for LogDet terms, and scaled for external solvers.

With ``X0 = L L'`` and ``X = L M L'`` a LogDet divergence is ``tr M - logdet M - n``, and the conditioning
costs no precision. Rows lose their sparsity, so a well-conditioned ``X0`` is not whitened.

The tolerances of CVXPY's solvers are absolute for small numbers, and an ill-conditioned ``X0`` costs digits.
So ``X = V M V'`` scales ``X0`` to size one, each row is divided by its norm, and the objective by the size of
its terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cholesky

from bregopt.arrays import Array
from bregopt.certify import Known, PrimalDualPoint
from bregopt.certify.point import DIVERGENT
from bregopt.divergences import PENALTY_DEGREES
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.program import Answer, Block, LowRank, Matrix, Program, Start
from bregopt.program.program import divergence_of
from bregopt.records import dataclass, replace

__all__ = ["InCoordinatesOfAnswer", "Scaled", "Scaling", "Whitened", "Whitening", "in_coordinates_of_answer"]

# Entries of the dense matrices of all rows above which no answer is sought in other coordinates: the search
# takes a second.
_LARGEST_FORMED = 1_000_000
# Up to this condition number of X0, Newton's method keeps the coordinates of the rows, which are sparse.
_WHITENED_CONDITION = 1e6
# Condition number up to which the reference keeps them. Its backends lose digits earlier.
_REFERENCE_CONDITION = 1e3


@dataclass(frozen=True, eq=False)
class Whitened(Reduced):
    """A program in ``M`` for ``X = L M L'``, in some of its blocks.

    Parameters
    ----------
    L : mapping from block to array of shape (n, n)
        Lower triangular, with ``X0 = L L'``.
    """

    L: Mapping[int, Array]

    @property
    def summary(self) -> str:
        return "coordinates in which X0 is the identity"

    def shrink(self, start: Start) -> Start:
        return replace(start, X=())

    def restore(self, answer: Answer) -> Answer:
        return replace(answer, X=self._restored(answer.X))

    def missed(self, X: Sequence[Array], u: Array, activity: Array) -> float:
        # A residual that is relatively small in these coordinates may be large in the given ones.
        known = Known(activity=activity, cone_residual=0.0)
        y = np.zeros(self.whole.m)
        return PrimalDualPoint(self.whole, self._restored(X), u, y, **known).primal_residual

    def _restored(self, X: Sequence[Array]) -> tuple[Array, ...]:
        lifted = (self.L[b] @ M @ self.L[b].T if b in self.L else M for b, M in enumerate(X))
        return tuple((M + M.T) / 2 for M in lifted)


class InCoordinatesOfAnswer(Whitened):
    """A linear program in coordinates in which a large approximate answer is of the size of the rows."""

    rescales: ClassVar[bool] = True

    @property
    def summary(self) -> str:
        return "coordinates in which X is of the size of the rows"


def in_coordinates_of_answer(
    program: Program, X: Sequence[Matrix], size: float
) -> InCoordinatesOfAnswer | None:
    """Return a program in coordinates in which eigenvalues of `X` above `size` are one.

    It is None where all of them are of the order of `size`, or the rows, which become dense, are too large.

    An optimum may be as large as one over a small eigenvalue of the data. Products of ``X`` with the data
    lose that eigenvalue in the given coordinates, and in these they do not.
    """
    if program.m * sum(n**2 for n in program.A.orders) > _LARGEST_FORMED:
        return None
    turned, factors = program, {}
    for b, (block, X_b) in enumerate(zip(program.blocks, X, strict=True)):
        if block.cap is not None or block.nearness is not None:
            continue
        eigenvalues, Q = np.linalg.eigh(np.asarray(X_b))
        if eigenvalues[-1] > DIVERGENT * size:
            factors[b] = Q * np.sqrt(np.maximum(eigenvalues / size, 1.0))
            turned = turned.restrict(b, factors[b])
    return InCoordinatesOfAnswer(program, turned, factors) if factors else None


# Pays on: LogDet from a matrix of condition 1e11.
class Whitening:
    """Change the coordinates of LogDet blocks so that ``X0 = I``, where it is ill conditioned."""

    name: ClassVar[str] = "whitening"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Whitened | None:
        white, factors = program, {}
        for b, block in enumerate(program.blocks):
            nearness = block.nearness
            if nearness is None or not nearness.kind.barrier or isinstance(nearness.X0, LowRank):
                continue
            if block.cap is not None:  # a congruence changes the eigenvalues
                continue
            divergence: Any = divergence_of(nearness)
            if _condition(divergence.L) > _WHITENED_CONDITION:
                factors[b] = divergence.L
                white = white.restrict(b, divergence.L, np.eye(block.n))
        return Whitened(program, white, factors) if factors else None


def _condition(L: Array) -> float:
    """Return a lower bound on the condition number of ``L L'``."""
    diagonal = L.diagonal()
    return float((diagonal.max() / diagonal.min()) ** 2)


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
            if free and np.linalg.cond(X0) > _REFERENCE_CONDITION:
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
