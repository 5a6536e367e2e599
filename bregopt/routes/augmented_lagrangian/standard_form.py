"""The program as one equation in scaled units, its rows' Gram matrix, and a point inside all cones.

With ``x = (X, v)``, where ``v`` has the ordinary variables and the slacks of rows,

    minimize  c'x + prices of v   subject to  A x = b,   X psd,   lo <= v <= hi,   least <= X_E <= most,

in which some variables are in second-order cones, and slacks of hinges and squares leave bounds at a price.
Rows ``E`` of one entry of a matrix are bounds on it. Each other row that is no hard equality has a slack.
Rows have norm one, variables enter rows with norm one (in a cone at most one), and ``b`` and ``c`` are
divided by their norms. A point ``x`` is one vector: ``svec`` of each matrix, then ``v``.

The projection on the equations is ``x - A'M^-1 (A x - b)`` with the Gram matrix ``M = A A'``.
A point inside the cones that meets the equations repairs others: where a projected point leaves a cone by
``delta``, mixing it with one that is inside by ``mu`` brings it back at the share ``delta / (delta + mu)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, Array, IntArray, Mask
from bregopt.certify import trace_bounds
from bregopt.clock import checkpoint
from bregopt.linalg import DefiniteFactor, conjugate_gradients
from bregopt.presolve.svec import smat, sparse_svec, svec
from bregopt.program import Matrix, Penalty, Program
from bregopt.records import cached_property

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


class StandardForm:
    """A linear program in scaled units.

    Parameters
    ----------
    program : Program
        Linear, with hard rows, hinges and squares, no caps, and no bounds of variables in second-order cones.

    Attributes
    ----------
    matrix : csr_array of shape (m, size)
        ``A``, with zeros in the columns of variables that bounds fix, and minus one for each slack.
    b : array of shape (m,)
    c : array of shape (size,)
    lo, hi, price, weight : array of shape (k + slacks,)
        Of the elements of ``v``: bounds, and the price of a distance from them and of its square. The first
        is infinite where the bounds are hard.
    bounded : array of int of shape (e,)
        The places ``E`` of entries of matrices that have bounds.
    least, most : array of shape (e,)
        Their bounds.
    entries : int
        The length of the vectors of all matrices, before ``v``.
    """

    def __init__(self, program: Program) -> None:
        self.program, bounds = program, program.bounds
        self.k = program.k
        self.orders, self.faces = tuple(block.n for block in program.blocks), program.faces
        ends = np.cumsum([n * (n + 1) // 2 for n in self.orders])
        self._own = [slice(end - n * (n + 1) // 2, end) for n, end in zip(self.orders, ends, strict=True)]
        self.entries = int(ends[-1])
        cones = self.cones = program.cones
        columns = np.where(program.column_sizes > 0, program.column_sizes, 1.0)
        if cones.count:
            columns[cones.index] = np.maximum.reduceat(columns[cones.index], cones.starts)[cones.owner]
        B = sp.csr_array(program.B) @ sp.diags_array(1 / columns) if self.k else sp.csr_array((program.m, 0))
        sizes = np.sqrt(program.A.norms() ** 2 + np.asarray((B**2).sum(axis=1)).ravel())
        self._row = 1 / np.where(sizes > 0, sizes, 1.0)
        is_hinge, is_square = (bounds.kind == int(kind) for kind in (Penalty.HINGE, Penalty.SQUARE))
        soft = is_hinge | is_square
        equal = (bounds.lo == bounds.hi) & ~soft  # soft rows may pay on both sides
        listed = sparse_svec(program.A)
        hard_alone = (np.diff(B.indptr) == 0) & ~equal & ~soft
        on_entries, self.bounded, sign = _rows_of_one_entry(listed, hard_alone)
        self._row[on_entries] *= sign
        is_row = np.ones(program.m, dtype=bool)
        is_row[on_entries] = False
        rows = np.flatnonzero(is_row)
        self._order, self.m = np.concatenate([rows, on_entries]), len(rows)
        slack = self._slack = np.flatnonzero(~equal & is_row)

        of_rows = np.abs(self._row) * bounds.sizes
        of_bounds = np.concatenate([of_rows, columns * _finite(program.u_lo, program.u_hi)])
        self.primal = float(np.linalg.norm(of_bounds[of_bounds < np.inf])) or 1.0
        costs = [svec(block.C) for block in program.blocks]
        self.c = np.concatenate([*costs, program.c / columns, np.zeros(len(slack))])
        self.dual = float(np.linalg.norm(self.c))
        if not self.dual:
            prices = bounds.gamma / self._row * np.where(is_square, self.primal / self._row, 1.0)
            self.dual = float(prices[soft].max(initial=0.0)) or 1.0
        self.c /= self.dual
        self._column_sizes = columns
        scaled_bounds = self._row[slack] / self.primal
        self.lo = np.concatenate([program.u_lo * columns / self.primal, bounds.lo[slack] * scaled_bounds])
        self.hi = np.concatenate([program.u_hi * columns / self.primal, bounds.hi[slack] * scaled_bounds])
        own = bounds.gamma[slack] / (self._row[slack] * self.dual)
        square, hinge = is_square[slack], is_hinge[slack]
        own_prices = np.where(hinge, own, np.where(square, 0.0, np.inf))
        self.price = np.concatenate([np.full(self.k, np.inf), own_prices])
        weights = np.where(square, own * self.primal / self._row[slack], 0.0)
        self.weight = np.concatenate([np.zeros(self.k), weights])
        scaled_bounds = self._row[on_entries] / self.primal
        ends_of_rows = bounds.lo[on_entries] * scaled_bounds, bounds.hi[on_entries] * scaled_bounds
        self.least, self.most = np.minimum(*ends_of_rows), np.maximum(*ends_of_rows)

        self.b = np.where(equal, bounds.lo * self._row / self.primal, 0.0)[rows]
        self._soft = bool(np.isfinite(self.price).any())
        self.fixed = (self.lo == self.hi) & np.isinf(self.price)  # slacks never are
        units = sp.diags_array(self._row[rows])
        own, fixed = sp.csr_array(units @ B[rows]), self.fixed[: self.k]
        self.b -= own @ np.where(fixed, self.lo[: self.k], 0.0)
        own = sp.csr_array(own @ sp.diags_array(np.where(fixed, 0.0, 1.0)))
        minus = (-np.ones(len(slack)), (np.searchsorted(rows, slack), np.arange(len(slack))))
        minus = sp.csr_array(minus, (self.m, len(slack)))
        self.matrix = sp.csr_array(sp.hstack([units @ listed[rows], own, minus]))
        self._transposed = sp.csr_array(self.matrix.T)

    def activity(self, x: Array) -> Array:
        """Return ``A x``, shape ``(m,)``."""
        return self.matrix @ x

    def adjoint(self, y: Array) -> Array:
        """Return ``A'y``, shape ``(size,)``."""
        return self._transposed @ y

    def matrices(self, x: Array) -> list[Array]:
        """Return the matrices of a point."""
        return [smat(x[own], n) for n, own in zip(self.orders, self._own, strict=True)]

    def nearest(self, w: Array, penalty: float) -> Array:
        """Return the nearest point to `w` in the cones, with prices times `penalty`."""
        x = np.empty(len(w))
        for face, place, W in zip(self.faces, self._own, self.matrices(w), strict=True):
            checkpoint(len(W))
            theta, V = np.linalg.eigh(face.compress(W))
            k = int(np.searchsorted(theta, 0.0, side="right"))
            half = face.embed(V[:, k:]) * np.sqrt(theta[k:])
            x[place] = svec(half @ half.T)
        own = w[self.entries :]
        v = np.clip(own, self.lo, self.hi)
        if self._soft:
            far = own - v
            paid = np.maximum(np.abs(far) - penalty * self.price, 0.0) / (1 + 2 * penalty * self.weight)
            v += np.copysign(paid, far)
        if self.cones.count:
            v[self.cones.index] = self.cones.projected(own[self.cones.index])
        x[self.entries :] = v
        return x

    def point(self, X: Sequence[Matrix], u: Array) -> Array:
        """Return a point of the program in scaled units."""
        matrices = tuple(map(np.asarray, X))
        slacks = self._row * self.program.activity(matrices, u)
        v = np.concatenate([u * self._column_sizes, slacks[self._slack]])
        return np.concatenate([*map(svec, matrices), v]) / self.primal

    def scaled(self, y: Array) -> Array:
        """Return multipliers of the program in scaled units: of the equations, then of bounds on entries."""
        return (y / (self.dual * self._row))[self._order]

    def given(self, x: Array, multipliers: Array) -> tuple[tuple[Array, ...], Array, Array]:
        """Return ``X``, ``u`` and ``y`` in the units of the program."""
        y = np.empty(len(multipliers))
        y[self._order] = multipliers
        u = self.primal * x[self.entries : self.entries + self.k] / self._column_sizes
        u = self.cones.clipped(np.clip(u, self.program.u_lo, self.program.u_hi))
        return tuple(self.primal * X for X in self.matrices(x)), u, self.dual * self._row * y

    # Pays on: least deviation, unit diagonal, n = 40.
    @cached_property
    def gram_solve(self) -> Callable[[Array], Array]:
        """The solver for ``M``; entries and variables of very many rows are apart (Woodbury's formula)."""
        if not self.m:
            return lambda right: right
        R = sp.csc_array(self.matrix)
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
            return y - G @ small.solve(Ft @ y)

        return corrected

    def on_rows(self, x: Array) -> Array:
        """Return the projection of a point on the equations."""
        for _ in range(_CORRECTIONS):
            missed = self.activity(x) - self.b
            if float(np.linalg.norm(missed)) <= _ON_ROWS:
                break
            x = x - self._on_faces(self.adjoint(self._solved_on_faces(missed)))
        return x

    def _solved_on_faces(self, right: Array) -> Array:
        """Return ``y`` with the image ``A P A'y``, where ``P`` projects matrices on their faces."""
        if not any(face.codimension for face in self.faces):
            return self.gram_solve(right)

        def product(y: Array) -> Array:
            return self.activity(self._on_faces(self.adjoint(y)))

        return conjugate_gradients(product, right, self.gram_solve, _GRAM_TOL, _GRAM_STEPS)[0]

    def _on_faces(self, x: Array) -> Array:
        """Return a point with its matrices on their faces."""
        for face, place, n in zip(self.faces, self._own, self.orders, strict=True):
            if face.codimension:
                x[place] = svec(face.lift(face.compress(smat(x[place], n))))
        return x

    def repaired(self, x: Array) -> Array | None:
        """Return a point on the equations and in the cones near one in the cones; None if none is known."""
        if self.inside is None:
            return None
        inside, mu, room, depth = self.inside
        at, share = self.on_rows(x), _INWARD
        for own, n, least in zip(self._own, self.orders, mu, strict=True):
            delta = float(np.linalg.norm(at[own] - x[own])) + n * EPS * float(np.linalg.norm(at[own]))
            share = max(share, delta / (delta + least))
        out = np.maximum(-self._room(at), 0.0)
        if out.any():
            share = max(share, float((out / (out + room)).max()))
        out = self.cones.outside(at[self.entries :][self.cones.index])
        share = max(share, float((out / (out + depth)).max(initial=0.0)))
        return at + min(share, 1.0) * (inside - at)

    @cached_property
    def inside(self) -> tuple[Array, Array, Array, Array] | None:
        """A point that meets the equations inside the cones, and the distances from their boundaries.

        The last ones are the least eigenvalues of each matrix, distances from bounds (of ``v``, then of
        entries), and the least eigenvalues of each second-order cone.
        """
        traces = zip(trace_bounds(self.program), self.orders, strict=True)
        sizes = [bound.value / n / self.primal for bound, n in traces if bound is not None]
        level = (
            float(np.mean(sizes)) if sizes and min(sizes) > 0 else 1 / np.sqrt(max(self.orders, default=1))
        )
        for size in _SIZES:
            alpha = size * level
            x = self._raised(np.zeros(len(self.c)), alpha)
            for _ in range(_PROJECTIONS):
                x = self.on_rows(x)
                found = self._depths(x)
                if found is not None:
                    return x, *found
                checkpoint(max(self.orders))
                x = self._raised(x, 0.1 * alpha)
        return None

    def _raised(self, x: Array, depth: float) -> Array:
        """Return a point near one, inside cones and hard bounds by `depth`, or by a fourth of a width.

        Each matrix is the nearest one with eigenvalues of at least `depth` on the face, and then its entries
        move inside their bounds.
        """
        x = x.copy()
        for face, place, X in zip(self.faces, self._own, self.matrices(x), strict=True):
            theta, V = np.linalg.eigh(face.compress(X))
            x[place] = svec(face.lift((V * np.maximum(theta, depth)) @ V.T))
        x[self.bounded] = _inside(x[self.bounded], self.least, self.most, depth)
        v, hard = x[self.entries :], np.isinf(self.price)
        v[:] = _inside(v, np.where(hard, self.lo, -np.inf), np.where(hard, self.hi, np.inf), depth)
        index = self.cones.index
        rise = np.maximum(depth - self.cones.least_eigenvalues(v[index]), 0.0)
        v[index] = self.cones.raised(v[index], rise)
        return x

    def _room(self, x: Array) -> Array:
        """Return the distances from hard bounds: of ``v``, then of entries; negative beyond them."""
        v, entries = x[self.entries :], x[self.bounded]
        room = np.where(np.isfinite(self.price), np.inf, np.minimum(v - self.lo, self.hi - v))
        return np.concatenate([room, np.minimum(entries - self.least, self.most - entries)])

    def _depths(self, x: Array) -> tuple[Array, Array, Array] | None:
        """Return how far a point is inside the cones and bounds, None if it is not."""
        if float(np.linalg.norm(self.activity(x) - self.b)) > 1e-9:
            return None
        v, matrices, room = x[self.entries :], self.matrices(x), self._room(x)
        room[: len(v)][self.fixed] = np.inf
        if (room <= 0).any():
            return None
        on_faces = [face.compress(X) for X, face in zip(matrices, self.faces, strict=True)]
        mu = np.array([float(np.linalg.eigvalsh(M)[0]) if len(M) else np.inf for M in on_faces])
        mean = np.array([float(np.trace(X)) / max(len(X), 1) for X in matrices])
        depth = self.cones.least_eigenvalues(v[self.cones.index])
        if not (mu > 1e-8 * mean).all() or not (depth > 1e-8 * np.abs(v[self.cones.axes])).all():
            return None
        return mu, room, depth


# Pays on: k-means, n = 100.
def _rows_of_one_entry(listed: Any, candidate: Mask) -> tuple[IntArray, IntArray, Array]:
    """Return the first row of one entry for each such entry, the entry's place, and the sign of its term."""
    at = np.flatnonzero((np.diff(listed.indptr) == 1) & candidate)
    places, first = np.unique(listed.indices[listed.indptr[at]], return_index=True)
    at = at[first]
    return at, places, np.sign(listed.data[listed.indptr[at]])


def _inside(x: Array, lo: Array, hi: Array, depth: float) -> Array:
    """Return the nearest numbers inside bounds by `depth`, or by a fourth of a width."""
    depths = np.minimum(depth, np.where(np.isfinite(hi - lo), (hi - lo) / 4, np.inf))
    return np.clip(x, lo + depths, hi - depths)


def _gram_solver(R: sp.csr_array) -> Callable[[Array], Array]:
    """Return the solver for ``R R'``."""
    count, m = np.bincount(R.indices, minlength=R.shape[1]).astype(float), R.shape[0]
    if float(count @ count) > _LARGEST_GRAM or _fill(R, count) > _LARGEST_FILL:
        transposed = R.T.tocsr()
        diagonal = np.maximum(np.asarray(R.multiply(R).sum(axis=1)).ravel(), _RIDGE)

        def product(y: Array) -> Array:
            return R @ (transposed @ y) + _RIDGE * y

        def scaled(right: Array) -> Array:
            return right / diagonal

        return lambda right: conjugate_gradients(product, right, scaled, _GRAM_TOL, _GRAM_STEPS)[0]
    M = sp.csc_array(R @ R.T)
    M.eliminate_zeros()
    diagonal = M.diagonal()
    if M.nnz <= m:
        inverse = 1 / np.where(diagonal > 0, diagonal, 1.0)
        return lambda right: inverse * right
    from scipy.sparse.linalg import splu  # only rows with entries in common wait for it

    M = sp.csc_array(M + sp.diags_array(np.where(diagonal > 0, _RIDGE, 1.0)))
    factor = splu(M, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    return factor.solve


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


def _finite(lo: Array, hi: Array) -> Array:
    """Return the larger magnitude of the finite bounds, zero where there is none."""
    return np.maximum(*(np.where(np.isfinite(end), np.abs(end), 0.0) for end in (lo, hi)))
