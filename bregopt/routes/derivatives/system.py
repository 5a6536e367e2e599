"""The linearized optimality conditions: the data on the right, and the linear system.

First come changes of the conditions, and what the data of each block, ``X0`` as a matrix or by its factor or
the matrix of linear costs, add to them. The system is that without the matrices. With ``H = sum A P' A*``
over the blocks, ``D`` the slopes of soft rows, ``F`` the columns of faces and ``B`` those of free variables,

    (H + D) w + F s + B v = r,    F'w = q,    B'w = t.

Without faces and variables the system is positive semidefinite, and conjugate gradients with its diagonal
solve it in a few products. It is formed where that takes less, and with faces or variables, where it is
indefinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from bregopt.arrays import TINY, Array, check_memory, finite_array
from bregopt.linalg import factorized, symmetrize
from bregopt.presolve.coordinates import RANK_TOL, range_space
from bregopt.program import LinearMap, LowRank, Program
from bregopt.program.program import divergence_of
from bregopt.program.rows.algebra import upper_triangles
from bregopt.records import cached_property, dataclass
from bregopt.routes.derivatives.blocks import CG_STEPS, NULL, SINGULAR, BarrierPoint, BlockPoint
from bregopt.routes.ipm.block_rows import RowAction
from bregopt.routes.ipm.linear_solvers import conjugate_gradients

CONSISTENT = 1e-7  # residual of a singular system that has a solution
# The system is formed up to this number of rows for LogDet, and of entries of their matrices for all.
_FORMED, _SMALL = 4_000, 20_000
_ENTRY = 24  # bytes of an entry of a system that is formed, with copies


# --- Changes, and the data of one block ---


@dataclass(frozen=True, eq=False)
class Change:
    """A change of the optimality conditions, or of the answer.

    Parameters
    ----------
    X : tuple of arrays of shape (n_b, n_b) or None
        Of the slopes, or of the matrices; None for zero.
    rows : array of shape (m,)
        Of the right-hand sides, or of the multipliers.
    u : array of shape (k,)
        Of the costs, or of the variables.
    paid : array of shape (m,)
        Of the multipliers of hinges that are paid; not used in an answer.
    """

    X: tuple[Array | None, ...]
    rows: Array
    u: Array
    paid: Array


@dataclass(frozen=True, eq=False)
class Adjoint:
    """The gradient of a function of the answer, in the terms of :class:`Change`.

    Parameters
    ----------
    X : tuple of arrays of shape (n_b, n_b)
        Minus the gradient in the slopes.
    rows, u, paid : array
        The gradients in the others.
    """

    X: tuple[Array, ...]
    rows: Array
    u: Array
    paid: Array


@dataclass(frozen=True, eq=False)
class Moved:
    """The effect of a change of the data: on the slope of the block, and on the rows' right-hand sides."""

    slope: Array
    rows: Array | None = None


class Anchor(Protocol):
    """The data of one block, and its matrix in the coordinates of the reduced program."""

    def inside(self, G: Any) -> Array:
        """Return a cotangent of the matrix in the coordinates of the program."""
        ...

    def gradient(self, at: Any, found: Adjoint, G: Any) -> Array:
        """Return the gradient in the data; `G` is the cotangent of the matrix."""
        ...

    def moved(self, at: Any, change: Any) -> Moved:
        """Return the effect of a change of the data."""
        ...

    def lifted(self, M: Array) -> Array:
        """Return the matrix of the user that has the coordinates `M`."""
        ...

    def outside(self, dX: Array, at: Any, change: Any) -> Array:
        """Return the change of the matrix from that in the coordinates of the program."""
        ...


@dataclass(frozen=True, eq=False)
class _Dense:
    """A dense ``X0``, or the costs ``C`` of a linear objective."""

    b: int
    n: int

    def inside(self, G: Any) -> Array:
        return symmetric_part(G, self.n, "G")

    def gradient(self, at: Any, found: Adjoint, G: Any) -> Array:
        nearness = at.program.blocks[self.b].nearness
        slope = found.X[self.b]
        if nearness is None:
            return slope if at.program.maximize else -slope
        return symmetrize(nearness.mu * divergence_of(nearness).anchor_derivative(slope))

    def moved(self, at: Any, change: Any) -> Moved:
        change = symmetric_part(change, self.n, "the change of the data")
        nearness = at.program.blocks[self.b].nearness
        if nearness is None:
            return Moved(-change if at.program.maximize else change)
        return Moved(-symmetrize(nearness.mu * divergence_of(nearness).anchor_derivative(change)))

    def lifted(self, M: Array) -> Array:
        return M

    def outside(self, dX: Array, at: Any, change: Any) -> Array:
        return dX


@dataclass(frozen=True, eq=False)
class _Factor:
    """``X0 = F F'``: ``X = V M V'`` with orthonormal ``V`` of the range of ``F``, which moves with ``F``.

    To first order ``dV = (I - V V') dF inv(V'F)``, and the ``X0`` of the reduced program is
    ``(V'F) (V'F)'``.
    """

    b: int
    F: Array
    V: Array
    whole: Program

    @property
    def _inner(self) -> Array:
        return self.V.T @ self.F

    def _action(self) -> RowAction:
        return RowAction(self.whole.A.of_block(self.b))

    def _slack(self, y: Array) -> Any:
        """Return ``A*(y) - C`` of the whole program, sparse where its rows are."""
        block, found = self.whole.blocks[self.b], self._action().adjoint(y)
        return found if block.cost is None else (found.toarray() if sp.issparse(found) else found) - block.C

    def inside(self, G: Any) -> Array:
        product = _times(G, self.V)
        return symmetrize(self.V.T @ product)

    def gradient(self, at: Any, found: Adjoint, G: Any) -> Array:
        nearness = at.program.blocks[self.b].nearness
        assert nearness is not None
        V, M, slope = self.V, at.X[self.b], found.X[self.b]
        pulled = -(self._action().adjoint(found.rows) @ V)
        if G is not None:
            pulled = pulled + _times(G, V)
        of_V = 2 * (pulled @ M + self._slack(at.y) @ V @ slope)
        of_V -= V @ (V.T @ of_V)
        of_X0 = symmetrize(nearness.mu * divergence_of(nearness).anchor_derivative(slope))
        return np.linalg.solve(self._inner, of_V.T).T + 2 * V @ (of_X0 @ self._inner)

    def moved(self, at: Any, change: Any) -> Moved:
        dF, dV = self._changes(change)
        nearness = at.program.blocks[self.b].nearness
        assert nearness is not None
        V, M = self.V, at.X[self.b]
        half = V.T @ dF @ self._inner.T
        slope = -symmetrize(nearness.mu * divergence_of(nearness).anchor_derivative(half + half.T))
        half = V.T @ (self._slack(at.y) @ dV)
        rows = -2 * self._action().apply_product(dV @ M, V)
        return Moved(slope - (half + half.T), rows)

    def lifted(self, M: Array) -> Array:
        return self.V @ M @ self.V.T

    def outside(self, dX: Array, at: Any, change: Any) -> Array:
        V, M = self.V, at.X[self.b]
        half = V @ dX / 2
        if change is not None:
            half = half + self._changes(change)[1] @ M
        return half @ V.T + V @ half.T

    def _changes(self, change: Any) -> tuple[Array, Array]:
        dF = finite_array(change, "the change of the factor", 2)
        if dF.shape != self.F.shape:
            raise ValueError(f"the change of the factor has shape {dF.shape}; expected {self.F.shape}")
        outside = dF - self.V @ (self.V.T @ dF)
        return dF, np.asarray(np.linalg.solve(self._inner.T, outside.T).T, dtype=float)


def anchors_of(program: Program) -> tuple[Program, tuple[Anchor, ...]]:
    """Return the program with low-rank blocks on the ranges of their ``X0``, and the data of each block.

    Raises
    ------
    ValueError
        If the factor of a low-rank ``X0`` has dependent columns: its range may then grow.
    """
    reduced, anchors = program, list[Anchor]()
    for b, block in enumerate(program.blocks):
        X0 = None if block.nearness is None else block.nearness.X0
        if not isinstance(X0, LowRank) or block.nearness is None:
            anchors.append(_Dense(b, block.n))
            continue
        space = range_space(X0, block.nearness.kind, RANK_TOL, orthonormal=True)
        if space.V.shape[1] < X0.rank:
            raise ValueError(
                f"the factor of X0 of {block.name} has {X0.rank} columns and rank {space.V.shape[1]}; the "
                "answer has a derivative in a factor with independent columns only"
            )
        M0 = space.V.T @ X0.factor
        reduced = reduced.restrict(b, space.V, M0 @ M0.T)
        anchors.append(_Factor(b, X0.factor, space.V, program))
    return reduced, tuple(anchors)


def symmetric_part(S: Any, n: int, name: str) -> Array:
    """Return ``(S + S') / 2`` of a finite matrix of order `n`.

    Raises
    ------
    TypeError, ValueError
        If it is no such matrix.
    """
    array = finite_array(S, name, 2)
    if array.shape != (n, n):
        raise ValueError(f"{name} has shape {array.shape}; expected {(n, n)}")
    return symmetrize(array)


def _times(G: Any, V: Array) -> Array:
    """Return the symmetric part of `G`, dense, sparse or LowRank, times `V`."""
    n = V.shape[0]
    if not isinstance(G, LowRank) and not sp.issparse(G):
        G = finite_array(G, "G", 2)
    if G.shape != (n, n):
        raise ValueError(f"G has shape {G.shape}; expected {(n, n)}")
    if isinstance(G, LowRank):
        return G @ V
    return (G @ V + G.T @ V) / 2


# --- The system ---


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
