"""Directions along which an answer recedes: the multipliers' cone then has no interior.

A psd ``D`` with ``A(D) + B d = 0`` and ``<C, D> + c'd = 0`` changes neither rows nor objective, so the set of
optima is unbounded, or the optimum is approached without being attained. For all multipliers ``<Z, D> = 0``,
hence ``Z D = 0`` wherever ``Z = C - A*(y)`` is psd: no ``Z`` is definite (Borwein and Wolkowicz 1981). A
matrix that grows without bound shows such a ``D`` to a few digits, and Newton's methods find it to round-off
(:mod:`bregopt.presolve.exposing_vectors`): ``D`` is a psd combination of a basis of the directions that
change nothing, as exposing vectors are of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.presolve.constants import LARGEST_RECEDING, RECEDING_RANK
from bregopt.presolve.exposing_vectors import Equalities
from bregopt.presolve.svec import Svec, svec, svec_rows
from bregopt.program import Program

__all__ = ["Recession", "recession"]


@dataclass(frozen=True, eq=False)
class Recession:
    """The range of a direction ``D`` that changes neither rows nor objective.

    Parameters
    ----------
    program : Program
    U : tuple of arrays of shape (n_b, r_b)
        Orthonormal bases of the range of ``D`` in each block.
    vector : array
        ``D`` and ``d`` as one vector.
    """

    program: Program
    U: tuple[Array, ...]
    vector: Array

    @property
    def direction(self) -> tuple[tuple[Array, ...], Array]:
        """``D``, without parts outside its range, and ``d``."""
        stacks, u = Svec.of(self.program).points(self.vector[None])
        D = [U @ (U.T @ stack[0] @ U) @ U.T for stack, U in zip(stacks, self.U, strict=True)]
        return tuple((D_b + D_b.T) / 2 for D_b in D), u[0]

    @property
    def rank(self) -> int:
        """The rank of ``D``."""
        return sum(U.shape[1] for U in self.U)

    def multipliers(self, y: Array) -> Array:
        """Return the nearest multipliers, of rows of norm one, with ``Z U = 0`` and free variables priced.

        Only these may have a psd ``Z``.
        """
        program = self.program
        units = np.eye(program.m) / np.maximum(program.row_sizes, TINY)[:, None]
        costs = [(block.C @ U).ravel() for block, U in zip(program.blocks, self.U, strict=True)]
        right = np.concatenate([*costs, program.c[program.free]])
        equations = np.array([self._on_range(unit) for unit in units]).T
        left = right - self._on_range(y)
        nearest: Array = y + np.linalg.lstsq(equations, left, rcond=RECEDING_RANK)[0] @ units
        return nearest

    def _on_range(self, y: Array) -> Array:
        """Return ``A*(y) U`` and ``B'y`` of the free variables, as a vector."""
        program = self.program
        parts = [(program.A.adjoint(y, b) @ U).ravel() for b, U in enumerate(self.U)]
        return np.concatenate([*parts, (program.Bt @ y)[program.free]])


def recession(program: Program, X: Sequence[Array]) -> Recession | None:
    """Return the direction, near large matrices, that changes neither rows nor objective, None without one.

    Only free variables change with it, and no slack of a row does.

    Parameters
    ----------
    program : Program
        With linear objective.
    X : sequence of arrays of shape (n_b, n_b)
    """
    vectors = Svec.of(program)
    matrices = vectors.width - program.k
    entries = vectors.width * sum(n**2 for n in vectors.orders)
    if entries > LARGEST_RECEDING or not all(np.isfinite(X_b).all() for X_b in X):
        return None
    kept = np.concatenate([np.ones(matrices, dtype=bool), program.free])
    costs = vectors.vectors([block.C[None] for block in program.blocks], program.c[None])
    fixed = np.concatenate([svec_rows(program, np.arange(program.m)), costs])[:, kept]
    sizes = np.linalg.norm(fixed, axis=1)
    unchanged = _null_space(fixed[sizes > 0] / sizes[sizes > 0, None])
    directions = _row_space(unchanged[:, :matrices])
    w = directions @ np.concatenate([svec(X_b) for X_b in X])
    if not w.any():
        return None
    stacks, _ = Svec(vectors.orders, 0).points(directions)
    found = Equalities(stacks, np.zeros(len(directions))).exposing(w)
    return (
        None
        if found is None
        else Recession(program, found.U, _whole(program, unchanged, directions, found.w))
    )


def _whole(program: Program, unchanged: Array, directions: Array, w: Array) -> Array:
    """Return ``D``, a combination of directions of matrices, and a ``d`` as one vector."""
    matrices = directions.shape[1]
    weights = np.linalg.lstsq(unchanged[:, :matrices].T, w @ directions, rcond=None)[0]
    kept = np.concatenate([np.ones(matrices, dtype=bool), program.free])
    whole: Array = np.zeros(len(kept))
    whole[kept] = weights @ unchanged
    return whole


def _null_space(M: Array) -> Array:
    """Return an orthonormal basis of the null space, its rows."""
    _, s, Q = np.linalg.svd(M)
    basis: Array = Q[int((s > RECEDING_RANK * s.max(initial=0.0)).sum()) :]
    return basis


def _row_space(M: Array) -> Array:
    """Return an orthonormal basis of the row space, its rows."""
    _, s, Q = np.linalg.svd(M, full_matrices=False)
    basis: Array = Q[s > RECEDING_RANK]
    return basis
