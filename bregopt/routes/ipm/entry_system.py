"""Newton's system in the entries of one ``X``, for many rows.

Where the entries and the variables are fewer than the rows, they are the unknowns. In coordinates in which
``X`` is the identity and ``K = diag(k)``, ``T`` is a product entry by entry. With ``x = (dX, du)``, the
entries on and above the diagonal and the free variables, and ``F x = A(dX) + B du``,

    h (x - g) + (0, q) = F'dy,     F x + M dy = r,

where ``h`` holds ``2 / (k_i + k_j)``, twice off the diagonal, and zero for the variables. Bounded variables
are eliminated, ``du = r_u - D_u (q - W'dy)`` with their columns ``W``, and so ``M = D + W D_u W'``. It is
diagonal but for a *border*: the rows that share bounded variables with others, such as a sum of all, and
those with ``M = 0``. The other rows are eliminated by ``dy = inv(M) (r - F x)``, and the multipliers of the
border are unknowns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack

from bregopt.arrays import Array, IntArray, Mask, span
from bregopt.clock import checkpoint
from bregopt.linalg import columns_at, dense, lean, symmetrize
from bregopt.program import LinearMap, Program
from bregopt.program.rows import upper_triangles
from bregopt.records import cached_property, dataclass
from bregopt.routes.ipm.linear_solvers import CG_STEPS, CG_TOL, bordered, conjugate_gradients
from bregopt.routes.ipm.plan import Plan, RightHandSide, ScalingPoint, Solve, Step
from bregopt.routes.ipm.row_system import FORMED_ENTRIES

# Entries of ``X`` up to which transforming the Gram matrix costs less than transforming all rows.
# Pays on: triangles, n = 12.
_TRANSFORMED_ENTRIES = 80
# Residual of the system in the entries, relative to the right-hand side, above which it is refined.
_RESIDUAL = 1e-11
# Residual of the equations of the entries after that, relative to their right-hand side, from which another
# system is taken.
# Pays on: entries within one, n = 16.
_LOST = 1e-2
# Numbers in the vectors of the rows that are stored at a time (40 MB).
_LARGEST_FEATURES = 5_000_000
_Solver = Callable[[Array, RightHandSide], tuple[Array, Array, Array]]


class EntrySystem:
    """The system in the entries of one ``X``, the free variables, and the multipliers of the border.

    Parameters
    ----------
    plan : Plan
        Of the one block.
    B : csr_array of shape (m, k)
    free, border : boolean arrays of shape (k,) and (m,)
        Marks the variables without bounds, and the rows of :func:`border_of`.
    formed : int
        Number of entries up to which the system is always formed.
    """

    def __init__(self, plan: Plan, B: Any, free: Mask, border: Mask, formed: int = FORMED_ENTRIES) -> None:
        self._plan, self._A, self._B = plan, plan.A, dense(_columns(B, free))
        self._free, self._border = free, border.nonzero()[0]
        self._eliminated, self._own = lean(_columns(B, ~free)), ~border
        self._to_eliminated, self._squares = self._eliminated.T, self._eliminated * self._eliminated
        self._shared = self._eliminated[self._border]
        (n,) = plan.A.orders
        self._shape = _Triangle.of(n)
        few = self._shape.size <= formed
        self.direct = few or B.shape[1] + len(self._border) > 0
        self.lost_digits = False  # whether a step has missed the equations of the entries

    def factor(self, scaling_point: ScalingPoint) -> Solve:
        # X = P P' and K = P diag(k) P'.
        n = self._shape.n
        (root,), K = scaling_point.roots, scaling_point.K.reshape(n, n)
        k, Q, _ = lapack.dsyevd(_scaled(root, K), lower=1)
        P, inverse = root @ Q, lapack.dtrtrs(root, Q, lower=1, trans=1)[0].T
        Pk = P * k
        complementarity_diagonal = 2 / (k[:, None] + k)
        D, D_u = scaling_point.D, scaling_point.D_u[~self._free]
        E = np.divide(1.0, D + self._squares @ D_u, out=np.zeros(self._A.m), where=self._own)
        if self.direct:
            solve = self._solver(self._features(P), E, complementarity_diagonal, D, D_u)
        else:
            solve = _iterative_solver(self._A.restrict(0, P), E, complementarity_diagonal)

        def step(rhs: RightHandSide) -> Step:
            (R,) = rhs.R or (None,)
            G = np.zeros((n, n)) if R is None else Pk.T @ R @ inverse.T
            G.flat[:: n + 1] += rhs.weight * k - 1
            delta, du, dy = solve(G, rhs)
            return Step(symmetrize(P @ delta @ P.T).ravel(), du, dy, self._plan.adjoint(dy))

        return step

    def _features(self, P: Array) -> _Features:
        """Return the rows as vectors in coordinates ``X = P M P'``."""
        shape = self._shape
        if shape.size <= _TRANSFORMED_ENTRIES:
            C = np.zeros((len(self._untransformed),) * 2)
            C.flat[:: len(C) + 1] = 1.0  # variables are not transformed
            C[: shape.size, : shape.size] = shape.congruence(P)
            return _StoredFeatures(self._untransformed, C)
        A = self._A.restrict(0, P)
        if (shape.size + self._B.shape[1]) * A.m <= _LARGEST_FEATURES:
            return _StoredFeatures(shape.vectors(A, self._B))
        return _ChunkedFeatures(A, self._B, shape, _LARGEST_FEATURES)

    @cached_property
    def _untransformed(self) -> Array:
        return self._shape.vectors(self._A, self._B)

    def _solver(
        self, F: _Features, E: Array, complementarity_diagonal: Array, D: Array, D_u: Array
    ) -> _Solver:
        """Return the solver of the system for ``G`` and the other right-hand sides."""
        shape, border, free, W = self._shape, self._border, self._free, self._eliminated
        h = np.concatenate([shape.doubled(complementarity_diagonal), np.zeros(self._B.shape[1])])
        S = F.gram(E)
        S.flat[:: len(S) + 1] += h
        edge, finite = F.of(border), np.where(np.isfinite(D), D, 0.0)
        # The rows of the border share variables with others: ``N = W_b D_u W'`` is not zero.
        N = dense(self._shared @ (D_u[:, None] * self._to_eliminated))
        corner = N[:, border].copy()
        corner.flat[:: len(border) + 1] += finite[border]
        N[:, border] = 0.0
        NE = N * E
        if np.logical_or.reduce(NE, axis=None):
            edge = edge - np.stack([F.adjoint(row) for row in NE], axis=1)
            corner -= NE @ N.T
        solve_bordered = bordered(S, edge, corner)

        def solve_once(right: Array, r: Array) -> tuple[Array, Array]:
            """Return ``x`` and ``dy`` for the right-hand sides after elimination, and of the rows."""
            x, y = solve_bordered(right, r[border] - NE @ r)
            dy = E * (r - F.apply(x) + y @ N)
            dy[border] = -y
            return x, dy

        def refine(G: Array, rhs: RightHandSide) -> tuple[Array, Array, Array]:
            """Solve, and refine once if the residual is more than round-off.

            The multipliers are ``1 / D`` times a difference that nearly cancels. The residual is small,
            and so are the errors in its own multipliers.
            """
            constant = rhs.r_u[~free] - D_u * rhs.q[~free]
            g = h * np.concatenate([shape.symmetric(G), np.zeros(self._B.shape[1])])
            g[shape.size :] -= rhs.q[free]
            r = rhs.r - W @ constant
            right = g + F.adjoint(E * r)
            x, dy = solve_once(right, r)
            residual = g - h * x + F.adjoint(dy)
            if residual @ residual > _RESIDUAL**2 * (right @ right):
                missed = r - F.apply(x) - finite * dy - W @ (D_u * (self._to_eliminated @ dy))
                correction = solve_once(residual + F.adjoint(E * missed), missed)
                x, dy = x + correction[0], dy + correction[1]
                residual = g - h * x + F.adjoint(dy)
                self.lost_digits |= bool(residual @ residual > _LOST**2 * (g @ g))
            du = np.empty(len(free))
            du[free], du[~free] = x[shape.size :], constant + D_u * (self._to_eliminated @ dy)
            return shape.matrix(x), du, dy

        return refine


def _columns(B: Any, mask: Mask) -> Any:
    """Return some columns of a CSR matrix, itself for all, and an array for none."""
    if mask.all():
        return B
    return columns_at(B, mask.nonzero()[0]) if mask.any() else np.zeros((B.shape[0], 0))


def border_of(program: Program, exact: Mask) -> Mask:
    """Return the rows whose multipliers border the system in the entries.

    Bounded variables are eliminated, ``D + W D_u W'``. Each of them stays in the row that has the fewest, and
    then the rows outside the border share none. Rows with ``D = 0`` that have none border the system, too.
    """
    (starts, rows, _), bounds = program.by_columns, program.bounds
    column = np.arange(program.k).repeat(np.diff(starts))
    at = (~program.free[column] & (np.isfinite(bounds.lo) | np.isfinite(bounds.hi))[rows]).nonzero()[0]
    row, column = rows[at], column[at]
    count = np.bincount(row, minlength=program.m)
    border: Mask = exact & (count == 0)
    order = np.lexsort([row, count[row], column])
    border[row[order[1:]][np.diff(column[order]) == 0]] = True
    return border


def _iterative_solver(A: LinearMap, E: Array, complementarity_diagonal: Array) -> _Solver:
    """Return the solver of a system that is not formed, by conjugate gradients; there are no variables.

    They take the rows whose weight matters.
    """
    n = len(complementarity_diagonal)
    active = (E > 1e-12 * E.max(initial=0.0)).nonzero()[0]
    acting, weight = A.slice(active), E[active]
    diagonal = complementarity_diagonal.copy()
    for term in acting.terms:
        rank_one = term.rows.rank_one_terms()
        if rank_one is not None:
            square = dense(rank_one.U) ** 2
            diagonal += square.T @ ((weight[term.at[rank_one.row]] * rank_one.weight**2)[:, None] * square)

    def operator(v: Array) -> Array:
        delta = v.reshape(n, n)
        return (complementarity_diagonal * delta + acting.adjoint(weight * acting.apply((delta,)))).ravel()

    def solve(G: Array, rhs: RightHandSide) -> tuple[Array, Array, Array]:
        right = (A.adjoint(E * rhs.r) + complementarity_diagonal * (G + G.T) / 2).ravel()
        delta = conjugate_gradients(operator, right, diagonal.ravel(), CG_TOL, CG_STEPS).reshape(n, n)
        return delta, rhs.q, E * (rhs.r - A.apply((delta,)))

    return solve


@dataclass(frozen=True, eq=False)
class _Triangle:
    """The entries on and above the diagonal, row by row."""

    n: int
    i: IntArray
    j: IntArray
    twice: Array

    @classmethod
    def of(cls, n: int) -> _Triangle:
        i, j = np.triu_indices(n)
        return cls(n, i, j, np.where(i == j, 1.0, 2.0))

    @cached_property
    def size(self) -> int:
        return len(self.i)

    def vectors(self, A: LinearMap, B: Array) -> Array:
        """Return the rows as the columns of an array, entries above the diagonal twice, variables last."""
        Ft = np.zeros((self.size + B.shape[1], A.m))
        for term in A.terms:
            Ft[: self.size, span(term.at)] += upper_triangles(term.rows)
        Ft[self.size :] = B.T
        return Ft

    def symmetric(self, G: Array) -> Array:
        """Return the entries of the symmetric part of a matrix."""
        return (G[self.i, self.j] + G[self.j, self.i]) / 2

    def doubled(self, S: Array) -> Array:
        """Return the entries, those above the diagonal twice."""
        return S[self.i, self.j] * self.twice

    def congruence(self, P: Array) -> Array:
        """Return the map from rows as vectors, entries above the diagonal twice, to those of ``P'A P``."""
        left, right = P.T[self.i], P.T[self.j]
        C = left[:, self.i] * right[:, self.j]
        C += left[:, self.j] * right[:, self.i]
        C *= (self.twice / 2)[:, None]
        return C

    def matrix(self, x: Array) -> Array:
        """Return the symmetric matrix of the given entries."""
        S = np.empty((self.n, self.n))
        S[self.i, self.j] = S[self.j, self.i] = x[: self.size]
        return S


class _StoredFeatures:
    """Features in one array, the columns of `Ft`, or of ``C Ft`` in other coordinates."""

    def __init__(self, Ft: Array, C: Array | None = None) -> None:
        self._Ft, self._C = Ft, C

    def apply(self, x: Array) -> Array:
        return (x if self._C is None else x @ self._C) @ self._Ft

    def adjoint(self, y: Array) -> Array:
        product: Array = self._Ft @ y
        return product if self._C is None else self._C @ product

    def gram(self, E: Array) -> Array:
        # A product of a matrix with its own transpose costs half.
        weighted = self._Ft * np.sqrt(E)
        product: Array = weighted @ weighted.T
        return product if self._C is None else self._C @ product @ self._C.T

    def of(self, rows: IntArray) -> Array:
        own = self._Ft[:, rows]
        return own if self._C is None else self._C @ own


class _ChunkedFeatures:
    """Features that are computed in chunks of at most `largest` numbers, never all at once."""

    def __init__(self, A: LinearMap, B: Array, shape: _Triangle, largest: int) -> None:
        self._A, self._B, self._shape, self._largest = A, B, shape, largest

    def apply(self, x: Array) -> Array:
        size = self._shape.size
        return self._A.apply((self._shape.matrix(x),)) + self._B @ x[size:]

    def adjoint(self, y: Array) -> Array:
        return np.concatenate([self._shape.doubled(self._A.adjoint(y)), self._B.T @ y])

    def gram(self, E: Array) -> Array:
        weighted = E.nonzero()[0]
        width = self._shape.size + self._B.shape[1]
        total = np.zeros((width, width))
        for rows in np.array_split(weighted, max(1, -(-len(weighted) * width // self._largest))):
            checkpoint()
            total += self._chunk(rows).gram(E[rows])
        return total

    def of(self, rows: IntArray) -> Array:
        return self._chunk(rows).of(np.arange(len(rows)))

    def _chunk(self, rows: IntArray) -> _StoredFeatures:
        return _StoredFeatures(self._shape.vectors(self._A.slice(rows), self._B[rows]))


_Features = _StoredFeatures | _ChunkedFeatures


def _scaled(root: Array, S: Array) -> Array:
    """Return the symmetric part of ``inv(L) S inv(L)'``."""
    half, _ = lapack.dtrtrs(root, S, lower=1)
    scaled, _ = lapack.dtrtrs(root, half.T, lower=1)
    return (scaled + scaled.T) / 2
