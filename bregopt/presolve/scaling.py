"""Units of rows, matrices and the objective.

**Units.** Newton's system loses the digits by which its rows differ where free variables border it. Rows that
are multiplied by powers of ten, and matrices of 1e-6 beside others of 1e6, are divided by powers of two,
which round nothing.

**Scaling.** The tolerances of CVXPY's solvers are absolute for small numbers, and an ill-conditioned ``X0``
costs digits. So ``X = V M V'`` scales ``X0`` to size one, each row is divided by its norm, and the objective
by the size of its terms.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cholesky

from bregopt.arrays import Array
from bregopt.divergences import PENALTY_DEGREES
from bregopt.linalg import csr_of
from bregopt.presolve import Reduced, Tolerances, with_multipliers
from bregopt.program import Answer, Block, Program, Start
from bregopt.program.program import divergence_of
from bregopt.program.scale import differ_by_decades, in_different_units
from bregopt.records import dataclass, replace

_BALANCING = 20  # steps that balance rows and columns in turns
_NO_INDEX = np.zeros(0, dtype=np.intp)
# Condition number of X0 up to which the reference keeps the coordinates of the rows. Its backends lose digits
# earlier than we do.
_REFERENCE_CONDITION = 1e3


@dataclass(frozen=True, eq=False)
class InUnits(Reduced):
    """A program in units in which the largest coefficients of rows and matrices are near one.

    Parameters
    ----------
    sizes : array of shape (blocks,)
        The units of the matrices.
    rows : array of shape (m,)
        The divisors of the rows.
    """

    rescales: ClassVar[bool] = True
    sizes: Array
    rows: Array

    @property
    def summary(self) -> str:
        return "rows and matrices of different units divided by these"

    def shrink(self, start: Start) -> Start:
        X = tuple(X_b / size for X_b, size in zip(start.X, self.sizes, strict=True)) if start.X else ()
        return replace(start, X=X, y=self.rows * start.y)

    def restore(self, answer: Answer) -> Answer:
        X = tuple(size * X_b for X_b, size in zip(answer.X, self.sizes, strict=True))
        return with_multipliers(answer, lambda own: own / self.rows, X=X)


def units(program: Program, tolerances: Tolerances) -> InUnits | None:
    """Divide rows and matrices by powers of two where coefficients differ by decades."""
    if not in_different_units(program):
        return None
    plain = np.array([block.nearness is None and block.cap is None for block in program.blocks])
    count, terms = len(program.blocks), program.A.terms
    row = np.concatenate([_NO_INDEX, *(term.at for term in terms)])
    block = np.repeat([term.block for term in terms], [len(term.at) for term in terms]).astype(np.intp)
    norms = csr_of(np.concatenate([[], *(term.norms for term in terms)]), row, block, (program.m, count))
    sizes = _sizes_of_columns(sp.csr_array(sp.hstack([norms, abs(program.B)])))[:count]
    sizes = np.where(plain, _power_of_two(sizes / sizes.max()), 1.0)
    if not differ_by_decades(sizes):
        sizes = np.ones(count)
    sized = _resized(program, sizes)
    rows = _power_of_two(np.where(sized.row_sizes > 0, sized.row_sizes, 1.0))
    return InUnits(program, _divided(sized, rows, 1.0), sizes, rows)


def _sizes_of_columns(M: Any) -> Array:
    """Return factors of columns which, with others of the rows, make the elements as near to one as possible.

    The sum of squares of their logarithms is the least one (Curtis, Reid 1972, On the automatic scaling of
    matrices for Gaussian elimination). The largest elements alone say nothing of a column that has one in a
    row of its own.
    """
    used = M.data > 0
    row, column = np.arange(M.shape[0]).repeat(np.diff(M.indptr))[used], M.indices[used]
    logarithms, sides = np.log2(M.data[used]), []
    for of, count in zip((row, column), M.shape, strict=True):
        sides.append((of, np.maximum(np.bincount(of, minlength=count), 1), np.zeros(count)))
    for _ in range(_BALANCING):
        for of, elements, factors in sides:
            left = logarithms + sum(other[place] for place, _, other in sides)
            factors -= np.bincount(of, left, len(factors)) / elements
    return np.exp2(sides[1][2])


def _power_of_two(sizes: Array) -> Array:
    return np.exp2(np.round(np.log2(sizes)))


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


def scaling(program: Program, tolerances: Tolerances) -> Scaled:
    """Scale blocks, rows and the objective to size one."""
    V: list[Array] = []
    scaled, sizes = program, np.ones(len(program.blocks))
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
            sizes[b] = float(np.trace(X0) / len(X0) if middle else np.linalg.norm(X0, 2)) or 1.0
            V.append(math.sqrt(sizes[b]) * np.eye(block.n))
    scaled = _resized(scaled, sizes)
    rows = np.where(scaled.row_sizes > 0, scaled.row_sizes, 1.0)
    objective = _size_of_objective(scaled)
    return Scaled(program, _divided(scaled, rows, objective), tuple(V), rows, objective)


def _resized(program: Program, sizes: Array) -> Program:
    """Return the program in ``M_b`` for ``X_b = sizes[b] * M_b``."""
    terms = tuple(
        replace(term, rows=term.rows.scale(np.full(term.rows.m, sizes[term.block])))
        for term in program.A.terms
    )
    blocks = tuple(_resized_block(b, size) for b, size in zip(program.blocks, sizes.tolist(), strict=True))
    return replace(program, blocks=blocks, A=replace(program.A, terms=terms))


def _resized_block(block: Block, size: float) -> Block:
    if size == 1:  # an ``X0`` of low rank stays one
        return block
    cost = None if block.cost is None else block.cost.scale(np.array([size]))
    nearness = block.nearness and replace(
        block.nearness,
        X0=np.asarray(block.nearness.X0) / size,
        mu=block.nearness.mu * size ** (block.nearness.kind.degree or 0),
    )
    return replace(block, cost=cost, nearness=nearness, cap=block.cap and block.cap / size)


def _size_of_objective(program: Program) -> float:
    sizes = [float(np.abs(program.c).max(initial=0.0))]
    for block in program.blocks:
        sizes.append(block.cost_norm)
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
