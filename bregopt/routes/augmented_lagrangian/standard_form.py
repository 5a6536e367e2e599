"""The program as one equation in scaled units, its rows' Gram matrix, and a point inside all cones.

With ``x = (X, v)``, where ``v`` has the ordinary variables and a slack for each row that is no hard equality,

    minimize  <C, X> + c'v + prices of v   subject to  A(X) + E v = b,   X psd,   lo <= v <= hi,

in which some variables are in second-order cones, and slacks of hinges and squares leave bounds at a price.
Rows have norm one, variables enter rows with norm one (in a cone at most one), and ``b`` and ``(C, c)`` are
divided by their norms.

The projection on the equations is ``x - A*(M^-1 (A(x) - b))`` with the Gram matrix ``M = A A* + E E'``.
A point inside the cones that meets the equations repairs others: where a projected point leaves a cone by
``delta``, mixing it with one that is inside by ``mu`` brings it back at the share ``delta / (delta + mu)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array, IntArray, span
from bregopt.certify import trace_bounds
from bregopt.clock import checkpoint
from bregopt.linalg import DefiniteFactor
from bregopt.program import Face, LinearMap, Matrix, Penalty, Program
from bregopt.records import cached_property, dataclass, replace
from bregopt.routes.ipm.block_rows import RowAction, RowCurvature
from bregopt.routes.ipm.linear_solvers import conjugate_gradients

__all__ = ["Point", "StandardForm"]

# Sum over entries of the squared number of rows that have them, above which the Gram matrix is not formed.
_LARGEST_GRAM = 50_000_000
# Sum of the squared sizes of groups of rows, linked by common entries, above which it is not factorized: a
# group fills its part of the factor. Only rows count whose slack has this square or more, so that conjugate
# gradients are fast, and with few terms: a factorization eliminates sums of many entries last.
_LARGEST_FILL, _OWN, _FEW_TERMS = 10_000_000, 0.5, 16
# Multiple of the identity, relative to unit rows, that dependent rows need in the factorization.
_RIDGE = 1e-12
# Rows of an entry or variable, relative to the root of their number, above which its column would fill the
# factor of the Gram matrix, and the least square of a row of norm one that has to be left without them.
_WIDE, _LEFT = 1.0, 0.1
# Relative residual and limit of conjugate gradients with a Gram matrix that is not formed.
_GRAM_TOL, _GRAM_STEPS = 1e-13, 300
# Alternating projections in search of a point inside the cones, and the sizes of first points.
_PROJECTIONS, _SIZES = 12, (1.0, 0.1, 10.0)
# Share of the point inside that a repaired point has at least. Inequalities then hold beyond round-off, and a
# proof of the value need not solve for those that act.
_INWARD = 1e-10
# Corrections of a projection on the equations, and the residual that is enough.
_CORRECTIONS, _ON_ROWS = 3, 1e-14


@dataclass(frozen=True, eq=False)
class Point:
    """Matrices and a vector, in scaled units."""

    X: tuple[Array, ...]
    v: Array

    def moved(self, other: Point, share: float) -> Point:
        """Return the point ``self + share (other - self)``."""
        X = tuple(own + share * (new - own) for own, new in zip(self.X, other.X, strict=True))
        return Point(X, self.v + share * (other.v - self.v))

    def distance(self, other: Point) -> float:
        """Return the Frobenius norm of the difference."""
        squares = [float(np.linalg.norm(a - b)) ** 2 for a, b in zip(self.X, other.X, strict=True)]
        return float(np.sqrt(sum(squares) + float(np.linalg.norm(self.v - other.v)) ** 2))


class ListedRows(RowAction):
    """The rows of one block as a matrix on its entries, so that ``A`` and ``A*`` are one product each.

    Attributes
    ----------
    matrix : csr_array of shape (m, n * n)
        It maps any matrix to the values of the rows at its symmetric part.
    """

    def __init__(self, A: LinearMap, block: int) -> None:
        super().__init__(A, block)
        self.matrix = self._terms.on_entries(A.m, self._n)
        self._transposed = sp.csr_array(self.matrix.T)

    def image(self, y: Array) -> Array:
        """Return ``A*(y)`` as a dense matrix."""
        S: Array = self._transposed @ y
        return S.reshape(self._n, self._n)

    def adjoint(self, y: Array) -> Any:
        return super().adjoint(y) if self.sparse else self.image(y)

    def apply(self, S: Array) -> Array:
        activity: Array = self.matrix @ S.ravel()
        return activity

    def apply_symmetric_part(self, F: Array) -> Array:
        return self.apply(F)


class Columns:
    """``E``: the columns of ordinary variables, and minus one in its row for each slack.

    Slacks are gathered and scattered, as a sparse product costs several times as much.

    Parameters
    ----------
    B : csr_array of shape (m, k)
    slack : int array
        The rows that have a slack.
    """

    def __init__(self, B: sp.csr_array, slack: IntArray) -> None:
        (self._m, self._k), self._slack = B.shape, span(slack)
        self._B, self._transposed, self._squares = B, sp.csr_array(B.T), B.multiply(B).tocsr()
        minus = sp.csr_array((-np.ones(len(slack)), (slack, np.arange(len(slack)))), (self._m, len(slack)))
        self.matrix = sp.csr_array(sp.hstack([B, minus], format="csr"))

    def activity(self, v: Array) -> Array:
        """Return ``E v``."""
        activity: Array = self._B @ v[: self._k] if self._k else np.zeros(self._m)
        activity[self._slack] -= v[self._k :]
        return activity

    def adjoint(self, y: Array) -> Array:
        """Return ``E'y``."""
        own = -y[self._slack]
        return np.concatenate([self._transposed @ y, own]) if self._k else own

    def curvature(self, weight: Array) -> Array:
        """Return the diagonal of ``E diag(weight) E'``."""
        diagonal: Array = self._squares @ weight[: self._k] if self._k else np.zeros(self._m)
        diagonal[self._slack] += weight[self._k :]
        return diagonal


class StandardForm:
    """A linear program in scaled units.

    Parameters
    ----------
    program : Program
        Linear, with hard rows, hinges and squares, no caps, and no bounds of variables in second-order cones.

    Attributes
    ----------
    C : tuple of arrays of shape (n_b, n_b)
    c, lo, hi, price, weight : array of shape (k + rows that are no hard equalities,)
        Of the elements of ``v``: cost, bounds, and the price of a distance from them and of its square. The
        first is infinite where the bounds are hard.
    b : array of shape (m,)
    columns : Columns
        ``E``, with zeros in the columns of variables that bounds fix.
    """

    def __init__(self, program: Program) -> None:
        self.program, bounds = program, program.bounds
        self.m, self.k = program.m, program.k
        self.orders, self.faces = tuple(block.n for block in program.blocks), program.faces
        cones = self.cones = program.cones
        columns = np.where(program.column_sizes > 0, program.column_sizes, 1.0)
        if cones.count:
            columns[cones.index] = np.maximum.reduceat(columns[cones.index], cones.starts)[cones.owner]
        B = sp.csr_array(program.B) @ sp.diags_array(1 / columns) if self.k else sp.csr_array((self.m, 0))
        sizes = np.sqrt(program.A.norms() ** 2 + np.asarray((B**2).sum(axis=1)).ravel())
        self._row = 1 / np.where(sizes > 0, sizes, 1.0)
        self.A = replace(
            program.A,
            terms=tuple(replace(t, rows=t.rows.scale(self._row[t.at])) for t in program.A.terms),
        )
        is_hinge, is_square = (bounds.kind == int(kind) for kind in (Penalty.HINGE, Penalty.SQUARE))
        equal = (bounds.lo == bounds.hi) & ~is_hinge & ~is_square  # soft rows may pay on both sides
        slack = self._slack = np.flatnonzero(~equal)
        ends = np.concatenate([self._row * bounds.sizes, columns * _finite(program.u_lo, program.u_hi)])
        self.primal = float(np.linalg.norm(ends[ends < np.inf])) or 1.0
        costs = np.concatenate([np.zeros(0), *(block.C.ravel() for block in program.blocks)])
        self.dual = float(np.hypot(np.linalg.norm(costs), np.linalg.norm(program.c / columns)))
        if not self.dual:
            prices = bounds.gamma / self._row * np.where(is_square, self.primal / self._row, 1.0)
            self.dual = float(prices[is_hinge | is_square].max(initial=0.0)) or 1.0
        self._column_sizes = columns
        self.C = tuple(block.C / self.dual for block in program.blocks)
        self.c = np.concatenate([program.c / (columns * self.dual), np.zeros(len(slack))])
        scaled_bounds = self._row[slack] / self.primal
        self.lo = np.concatenate([program.u_lo * columns / self.primal, bounds.lo[slack] * scaled_bounds])
        self.hi = np.concatenate([program.u_hi * columns / self.primal, bounds.hi[slack] * scaled_bounds])
        own = bounds.gamma[slack] / (self._row[slack] * self.dual)
        square, hinge = is_square[slack], is_hinge[slack]
        own_prices = np.where(hinge, own, np.where(square, 0.0, np.inf))
        self.price = np.concatenate([np.full(self.k, np.inf), own_prices])
        weights = np.where(square, own * self.primal / self._row[slack], 0.0)
        self.weight = np.concatenate([np.zeros(self.k), weights])
        self.b = np.where(equal, bounds.lo * self._row / self.primal, 0.0)
        self.fixed = (self.lo == self.hi) & np.isinf(self.price)  # slacks never are
        own, fixed = sp.csr_array(sp.diags_array(self._row) @ B), self.fixed[: self.k]
        self.b -= own @ np.where(fixed, self.lo[: self.k], 0.0)
        self.columns = Columns(sp.csr_array(own @ sp.diags_array(np.where(fixed, 0.0, 1.0))), slack)
        self.actions = [ListedRows(self.A, b) for b in range(len(self.orders))]
        self.b_size = 1 + float(np.linalg.norm(self.b))

    def activity(self, x: Point) -> Array:
        """Return ``A(X) + E v``, shape ``(m,)``."""
        activity = self.columns.activity(x.v)
        for own, X in zip(self.actions, x.X, strict=True):
            activity += own.apply(X)
        return activity

    def zero(self) -> Point:
        """Return the origin."""
        return Point(tuple(np.zeros((n, n)) for n in self.orders), np.zeros(len(self.c)))

    def point(self, X: Sequence[Matrix], u: Array, y: Array) -> tuple[Point, Array]:
        """Return a point and multipliers of the program in scaled units."""
        matrices = tuple(np.asarray(own) / self.primal for own in X)
        activity = self._row * self.program.activity(tuple(map(np.asarray, X)), u)
        own = np.concatenate([u * self._column_sizes, activity[self._slack]]) / self.primal
        return Point(matrices, own), self.scaled(y)

    def scaled(self, y: Array) -> Array:
        """Return multipliers of the program in scaled units."""
        return y / (self.dual * self._row)

    def given(self, x: Point, y: Array) -> tuple[tuple[Array, ...], Array, Array]:
        """Return ``X``, ``u`` and ``y`` in the units of the program."""
        u = np.clip(self.primal * x.v[: self.k] / self._column_sizes, self.program.u_lo, self.program.u_hi)
        return tuple(self.primal * X for X in x.X), self.cones.clipped(u), self.dual * self._row * y

    # Pays on: the least largest deviation, n = 60.
    @cached_property
    def _gram_solve(self) -> Callable[[Array], Array]:
        """The solver for ``M``; entries and variables of very many rows are apart (Woodbury's formula)."""
        R = sp.csc_array(
            sp.hstack([*(own.matrix for own in self.actions), self.columns.matrix], format="csc")
        )
        R.eliminate_zeros()
        wide = np.diff(R.indptr) > _WIDE * math.sqrt(self.m)
        others = sp.csr_array(R[:, ~wide])
        left = np.asarray(others.multiply(others).sum(axis=1)).ravel()
        if not 0 < np.count_nonzero(wide) * self.m <= _LARGEST_GRAM or left.min() < _LEFT:
            return _gram_solver(sp.csr_array(R))
        Ft, solve = sp.csr_array(R[:, wide].T), _gram_solver(others)
        G = np.column_stack([solve(own) for own in Ft.toarray()])
        small = DefiniteFactor(np.eye(G.shape[1]) + Ft @ G)

        def corrected(right: Array) -> Array:
            y = solve(right)
            found: Array = y - G @ small.solve(Ft @ y)
            return found

        return corrected

    def gram_solve(self, right: Array) -> Array:
        """Return the solution of ``M y = right``."""
        return self._gram_solve(right)

    @cached_property
    def curvatures(self) -> list[RowCurvature]:
        """The approximate diagonals of the blocks' Hessians."""
        return [RowCurvature(self.A.of_block(b)) for b in range(len(self.orders))]

    def on_rows(self, x: Point) -> Point:
        """Return the projection of a point on the equations."""
        for _ in range(_CORRECTIONS):
            missed = self.activity(x) - self.b
            if float(np.linalg.norm(missed)) <= _ON_ROWS * self.b_size:
                break
            y = self.gram_solve(missed)
            x = Point(
                tuple(
                    X - face.lift(face.compress(own.image(y)))
                    for face, own, X in zip(self.faces, self.actions, x.X, strict=True)
                ),
                x.v - self.columns.adjoint(y),
            )
        return x

    def repaired(self, x: Point) -> Point | None:
        """Return a point on the equations and in the cones near one in the cones; None if none is known."""
        if self.inside is None:
            return None
        at, (inside, mu, room, depth) = self.on_rows(x), self.inside
        share = _INWARD
        for b, X in enumerate(at.X):
            delta = float(np.linalg.norm(X - x.X[b])) + len(X) * EPS * float(np.linalg.norm(X))
            share = max(share, delta / (delta + mu[b]))
        out = np.maximum(np.maximum(self.lo - at.v, at.v - self.hi), 0.0)
        out[np.isfinite(self.price)] = 0.0
        if out.any():
            share = max(share, float((out / (out + room)).max()))
        out = self.cones.outside(at.v[self.cones.index])
        share = max(share, float((out / (out + depth)).max(initial=0.0)))
        return at.moved(inside, min(share, 1.0))

    @cached_property
    def inside(self) -> tuple[Point, Array, Array, Array] | None:
        """A point that meets the equations inside the cones, and the distances from their boundaries.

        The last ones are the least eigenvalues of each matrix, distances from bounds, and the least
        eigenvalues of each second-order cone.
        """
        traces = zip(trace_bounds(self.program), self.orders, strict=True)
        sizes = [bound.value / n / self.primal for bound, n in traces if bound is not None]
        level = (
            float(np.mean(sizes)) if sizes and min(sizes) > 0 else 1 / np.sqrt(max(self.orders, default=1))
        )
        for size in _SIZES:
            alpha = size * level
            x = Point(
                tuple(alpha * face.lift(np.eye(face.order)) for face in self.faces),
                self._within(np.zeros(len(self.c)), alpha),
            )
            for _ in range(_PROJECTIONS):
                x = self.on_rows(x)
                found = self._depths(x)
                if found is not None:
                    return x, *found
                checkpoint(max(self.orders))
                X = tuple(_raised(X, face, 0.1 * alpha) for X, face in zip(x.X, self.faces, strict=True))
                x = Point(X, self._within(x.v, 0.1 * alpha))
        return None

    def _within(self, v: Array, depth: float) -> Array:
        """Return a vector near `v` inside hard bounds and cones by `depth`, or by a fourth of a width."""
        hard = np.isinf(self.price)
        lo, hi = np.where(hard, self.lo, -np.inf), np.where(hard, self.hi, np.inf)
        depth_of = np.minimum(depth, np.where(np.isfinite(hi - lo), (hi - lo) / 4, np.inf))
        within, index = np.clip(v, lo + depth_of, hi - depth_of), self.cones.index
        rise = np.maximum(depth - self.cones.least_eigenvalues(within[index]), 0.0)
        within[index] = self.cones.raised(within[index], rise)
        return within

    def _depths(self, x: Point) -> tuple[Array, Array, Array] | None:
        """Return how far a point is inside the cones and bounds; None where it is not."""
        if float(np.linalg.norm(self.activity(x) - self.b)) > 1e-9 * self.b_size:
            return None
        room = np.where(np.isfinite(self.price), np.inf, np.minimum(x.v - self.lo, self.hi - x.v))
        if (room[~self.fixed] <= 0).any():
            return None
        on_faces = [face.compress(X) for X, face in zip(x.X, self.faces, strict=True)]
        mu = np.array([float(np.linalg.eigvalsh(M)[0]) if len(M) else np.inf for M in on_faces])
        least = [1e-8 * max(float(np.trace(X)) / max(len(X), 1), TINY) for X in x.X]
        depth = self.cones.least_eigenvalues(x.v[self.cones.index])
        if not (mu > least).all() or not (depth > 1e-8 * np.abs(x.v[self.cones.axes])).all():
            return None
        return mu, np.where(self.fixed, np.inf, room), depth


def _gram_solver(R: sp.csr_array) -> Callable[[Array], Array]:
    """Return the solver for ``R R'``."""
    count, m = np.bincount(R.indices, minlength=R.shape[1]).astype(float), R.shape[0]
    if float(count @ count) > _LARGEST_GRAM or _fill(R, count) > _LARGEST_FILL:
        transposed = R.T.tocsr()
        diagonal = np.maximum(np.asarray(R.multiply(R).sum(axis=1)).ravel(), _RIDGE)

        def product(y: Array) -> Array:
            image: Array = R @ (transposed @ y) + _RIDGE * y
            return image

        return lambda right: conjugate_gradients(product, right, diagonal, _GRAM_TOL, _GRAM_STEPS)
    M = sp.csc_array(R @ R.T)
    M.eliminate_zeros()
    diagonal = M.diagonal()
    if M.nnz <= m:
        inverse = 1 / np.where(diagonal > 0, diagonal, 1.0)
        return lambda right: inverse * right
    from scipy.sparse.linalg import splu  # only rows with entries in common wait for it

    M = sp.csc_array(M + sp.diags_array(np.where(diagonal > 0, _RIDGE, 1.0)))
    factor = splu(M, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    solved: Callable[[Array], Array] = factor.solve
    return solved


# Pays on: 4,000 triangle inequalities, n = 60.
def _fill(R: sp.csr_array, count: Array) -> float:
    """Return the sum of the squared sizes of the groups of inequalities that common entries link."""
    own = np.asarray(R.multiply(R) @ (count == 1)).ravel()
    few = np.flatnonzero((own >= _OWN) & (np.diff(R.indptr) <= _FEW_TERMS))
    if len(few) ** 2 <= _LARGEST_FILL:
        return 0.0
    from scipy.sparse.csgraph import connected_components  # only many rows wait for it

    links = sp.csr_array(R[few])
    both = sp.csr_array(sp.block_array([[None, links], [links.T, None]]))
    sizes = np.bincount(connected_components(both, directed=False)[1][: len(few)]).astype(float)
    return float(sizes @ sizes)


def _raised(X: Array, face: Face, least: float) -> Array:
    """Return the nearest matrix with eigenvalues of at least `least` on the face."""
    theta, V = np.linalg.eigh(face.compress(X))
    return face.lift((V * np.maximum(theta, least)) @ V.T)


def _finite(lo: Array, hi: Array) -> Array:
    """Return the larger magnitude of the finite bounds, zero where there is none."""
    return np.maximum(*(np.where(np.isfinite(end), np.abs(end), 0.0) for end in (lo, hi)))
