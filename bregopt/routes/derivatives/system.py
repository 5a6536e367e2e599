"""The linear system of a derivative: the linearized optimality conditions without the matrices.

With ``H = sum A P' A*`` over the blocks, ``D`` the slopes of soft rows, ``F`` the columns of faces and ``B``
those of free variables,

    (H + D) w + F s + B v = r,    F'w = q,    B'w = t.

Without faces and variables the system is positive semidefinite, and conjugate gradients with its diagonal
solve it in a few products. It is formed where that takes less, and with faces or variables, where it is
indefinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from bregopt.arrays import TINY, Array, check_memory
from bregopt.linalg import factorized
from bregopt.program import LinearMap
from bregopt.program.rows.algebra import upper_triangles
from bregopt.records import cached_property
from bregopt.routes.derivatives.blocks import BarrierPoint, BlockPoint
from bregopt.routes.derivatives.changes import CG_STEPS, CONSISTENT, NULL, SINGULAR
from bregopt.routes.ipm.linear_solvers import conjugate_gradients

__all__ = ["KKTSystem", "SymmetricSystem", "Unknowns"]

# The system is formed up to this number of rows for LogDet, and of entries of their matrices for all.
_FORMED, _SMALL = 4_000, 20_000
_ENTRY = 24  # bytes of an entry of a system that is formed, with copies


class Unknowns(NamedTuple):
    """One vector for each part of the system: rows, faces (a matrix for each block) and free variables."""

    rows: Array
    faces: tuple[Array | None, ...]
    variables: Array


class KKTSystem:
    """The system at a point.

    Parameters
    ----------
    points : sequence of BlockPoint
    A : LinearMap
        The rows that act.
    B : array of shape (m, k)
        Their coefficients of the free variables.
    D : array of shape (m,)
    """

    def __init__(self, points: Sequence[BlockPoint], A: LinearMap, B: Array, D: Array) -> None:
        self._points, self._A, self._B, self._D = points, A, B, D
        self._bordered = B.shape[1] > 0 or any(point.face is not None for point in points)
        barriers = A.m <= _FORMED and all(isinstance(point, BarrierPoint) for point in points)
        small = A.m * sum(n**2 for n in A.orders) <= _SMALL
        self._formed = self._bordered or barriers or small

    def solve(self, right: Unknowns, tol: float, checked: bool = False) -> Unknowns:
        """Return the solution, to a relative residual where it is iterative.

        Parameters
        ----------
        right : Unknowns
        tol : float
        checked : bool
            Whether the system may have no solution, as the bounds of dependent rows change.

        Raises
        ------
        ValueError
            If the system has no solution, or one that is not unique in the matrices or variables.
        """
        if not self._formed:
            rows = self._by_gradients(right.rows, tol)
            if checked:
                _check_residual(right.rows - self._product(rows), right.rows)
            return Unknowns(rows, right.faces, right.variables)
        faces = [_vector(S) for S in right.faces if S is not None]
        whole = np.concatenate([right.rows, *faces, right.variables])
        x = self._system.solve(whole, checked) if len(whole) else whole
        matrices: list[Array | None] = []
        start = self._A.m
        for S in right.faces:
            size = 0 if S is None else len(S) * (len(S) + 1) // 2
            matrices.append(None if S is None else _matrix(x[start : start + size], len(S)))
            start += size
        return Unknowns(x[: self._A.m], tuple(matrices), x[start:])

    def _by_gradients(self, right: Array, tol: float) -> Array:
        return conjugate_gradients(self._product, right, self._diagonal, tol, CG_STEPS)

    def _product(self, v: Array) -> Array:
        return reduce(np.add, (point.product(v) for point in self._points)) + self._D * v

    @cached_property
    def _diagonal(self) -> Array:
        return reduce(np.add, (point.curvature() for point in self._points)) + self._D

    @cached_property
    def _system(self) -> SymmetricSystem:
        return SymmetricSystem(self._matrix, self._A.m, definite=not self._bordered)

    @cached_property
    def _matrix(self) -> Array:
        m, faces = self._A.m, self._faces()
        columns = [*faces, self._B]
        size = m + sum(part.shape[1] for part in columns)
        check_memory(_ENTRY * size**2, f"the system of the derivative, of order {size},")
        M = np.zeros((size, size))
        M[:m, :m] = reduce(np.add, (point.gram() for point in self._points)) + np.diag(self._D)
        M[:m, m:] = np.hstack(columns)
        M[m:, :m] = M[:m, m:].T
        return (M + M.T) / 2

    def _faces(self) -> list[Array]:
        """Return the columns of the faces: the rows' matrices there, by entries on and above the diagonal."""
        parts = []
        for b, point in enumerate(self._points):
            if point.face is not None:
                r = point.face.shape[1]
                weight = np.where(np.equal(*np.triu_indices(r)), 1.0, np.sqrt(0.5))
                columns = np.zeros((self._A.m, len(weight)))
                for term in self._A.terms_of(b):
                    columns[term.at] += (upper_triangles(term.rows.restrict(point.face)) * weight[:, None]).T
                parts.append(columns)
        return parts


class SymmetricSystem:
    """A formed system whose first unknowns are multipliers, which need not be unique.

    Parameters
    ----------
    M : array of shape (size, size)
    m : int
        The number of multipliers.
    definite : bool
        Whether the matrix is positive semidefinite.
    """

    def __init__(self, M: Array, m: int, definite: bool = False) -> None:
        self._M, self._m, self._definite = M, m, definite
        self._free = 0.0  # the largest part of the other unknowns in a direction without effect

    def solve(self, right: Array, checked: bool = False, unique: bool = True) -> Array:
        """Return the solution, the least one if multipliers are not unique.

        Raises
        ------
        ValueError
            If the others have to be unique and are not, or the system is `checked` and has no solution.
        """
        scale, solve = self._factor
        if unique and self._free > np.sqrt(NULL):
            raise ValueError(
                "the answer has no derivative: it is not unique, as some direction changes neither the rows "
                "that act nor the objective. Add a divergence or a row that singles it out"
            )
        x: Array = scale * solve(scale * right)
        for _ in range(2):
            x += scale * solve(scale * (right - self._M @ x))
        if checked:
            _check_residual(right - self._M @ x, right)
        return x

    @cached_property
    def _factor(self):  # type: ignore[no-untyped-def]
        """A scaling of the system, and the solver of the scaled one."""
        scale = 1 / np.sqrt(np.maximum(np.abs(self._M).max(axis=1), TINY))
        scaled = scale[:, None] * self._M * scale
        if self._definite:
            root, definite = factorized(scaled)
            if definite and root.diagonal().min() > np.sqrt(SINGULAR):
                return scale, lambda right: lapack.dpotrs(root, right, lower=1)[0]
        else:
            lu, pivots, info = lapack.dgetrf(scaled)
            norm = float(np.abs(scaled).sum(axis=0).max())
            if info == 0 and lapack.dgecon(lu, norm)[0] > SINGULAR:
                return scale, lambda right: lapack.dgetrs(lu, pivots, right)[0]
        return scale, self._pseudoinverse(scaled)

    def _pseudoinverse(self, scaled: Array):  # type: ignore[no-untyped-def]
        """Return the solver of a singular system, with the least solution."""
        values, Q = np.linalg.eigh(scaled)
        zero = np.abs(values) <= NULL * np.abs(values).max()
        self._free = float(np.abs(Q[self._m :, zero]).max(initial=0.0))
        inverse = np.divide(1.0, values, out=np.zeros_like(values), where=~zero)
        return lambda right: Q @ (inverse * (Q.T @ right))


def _check_residual(residual: Array, right: Array) -> None:
    missed, size = float(np.linalg.norm(residual)), float(np.linalg.norm(right))
    if not missed <= CONSISTENT * size:
        raise ValueError(
            "the answer has no derivative in these data: the rows that act depend on each other, and their "
            f"bounds would contradict each other (relative residual {missed / size:.1e})"
        )


def _vector(S: Array) -> Array:
    """Return the entries on and above the diagonal, with the inner product of matrices."""
    i, j = np.triu_indices(len(S))
    return S[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))


def _matrix(s: Array, r: int) -> Array:
    """Return the symmetric matrix of a vector of :func:`_vector`."""
    i, j = np.triu_indices(r)
    S = np.zeros((r, r))
    S[i, j] = S[j, i] = s * np.where(i == j, 1.0, np.sqrt(0.5))
    return S
