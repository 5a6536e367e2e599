"""The primal-dual hybrid gradient method for one matrix of bounded trace, all rows at once.

Write the program with the activities ``v = A(X) + B u`` of its rows as the saddle point

    min over X, u   max over y   <C, X> + c'u - y'(A(X) + B u) - (support of y)

over the psd ``X`` of bounded trace and ``u`` within its bounds. A step of the method (Chambolle, Pock 2011)
maps ``z = (X, u, y)`` to ``T(z)``,

    X+ = P(X - t (C - A*(y))),   u+ = clip(u - t_u (c - B'y)),   y+ = prox(y - s (2 a+ - a)),

with the projection ``P`` on the matrices of bounded trace, and the activities ``a`` and ``a+`` of both
points. It takes one eigendecomposition and two products with the rows. Reflected Halpern iterations

    z <- (k + 1) / (k + 2) (2 T(z) - z) + z_0 / (k + 2)

restart from ``T(z)`` where the length of a step has decreased (Lu, Yang 2024). The lengths ``t`` and ``s``
follow the distances that ``x`` and ``y`` moved between two restarts (Applegate et al. 2021).

Rows far from the ends of their bounds, in relation to the last moves, keep their multipliers until the next
restart. A few rows are left of many, and the norm of their map, which limits ``t s``, is smaller.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray
from bregopt.certify import TraceBound
from bregopt.clock import checkpoint
from bregopt.program import LowRank, Program
from bregopt.program.rows import Rows
from bregopt.program.rows.base import SparseRows
from bregopt.program.rows.low_rank import paired, products
from bregopt.records import dataclass

__all__ = ["HybridGradient"]

# Steps between two certificates.
_STEPS = 100
# Length of a step relative to the first one since the last restart, at which to restart: at once, and where
# the next step is longer; and the share of all steps after which to restart in any case.
_SUFFICIENT, _NECESSARY, _LONGEST = 0.2, 0.8, 0.36
# Least steps from one restart to the next.
_LEAST = 10
# Lanczos steps for the norm of the map of rows of norm one, its margin, and the least one: at a constant
# trace, a row may be zero.
_LANCZOS_STEPS, _NORM_MARGIN, _LEAST_NORM = 6, 1.05, 1e-3
# Remainder of a Lanczos step that is round-off of single precision, relative to the first product.
_ROUND_OFF = 1e-6
# Norm of the columns of variables, relative to the last norm. Below one, so that norms may decrease.
_SHARE_U = 0.5
# Largest factor by which the norm increases at once, where a step shows that it was too small.
_LARGEST_FACTOR = 2.0
# Distance from the ends of its bounds beyond which a row keeps its multiplier, relative to the longest move.
_FAR = 1.0
# Terms of a sparse row, on average, up to which it is read entry by entry.
_FEW_TERMS = 32


@dataclass(frozen=True, eq=False)
class _Point:
    """A point with its images: ``a = A(X) + B u``, ``H = A*(y)``, ``b = B'y``; it is a vector."""

    X: Array
    u: Array
    y: Array
    a: Array
    H: Array
    b: Array

    def plus(self, weight: float, other: _Point, factor: float) -> _Point:
        """Return ``weight * self + factor * other``."""
        pairs = zip(self._parts, other._parts, strict=True)
        return _Point(*(weight * own + factor * part for own, part in pairs))

    @property
    def _parts(self) -> tuple[Array, ...]:
        return self.X, self.u, self.y, self.a, self.H, self.b


class HybridGradient:
    """The state of one run.

    Parameters
    ----------
    program : Program
        Linear, with one matrix, and hard rows and hinges.
    bound : TraceBound
        On the trace of the matrix, above zero.
    X : LowRank
        The first point.
    y : array of shape (m,)
        Its multipliers.

    Attributes
    ----------
    X, u, y : LowRank and arrays of shapes (k,) and (m,)
        The last point and its multipliers.
    """

    _at: _Point
    _start: _Point
    _own: int
    _first: float
    _last: float

    def __init__(self, program: Program, bound: TraceBound, X: LowRank, y: Array) -> None:
        self._program, self._bound, self.X, self.y = program, bound, X, y
        (block,) = program.blocks
        n = block.n
        self._C = block.C
        self.u = np.clip(np.zeros(program.k), program.u_lo, program.u_hi)
        sizes = program.A.norms()
        self._size = np.where(sizes > 0, sizes, 1.0)
        # The ratio of the lengths of both parts of a step.
        self._ratio = bound.value / math.sqrt(n) / max(float(np.linalg.norm(self._size * y)), TINY)
        self._leading = np.random.default_rng(0).normal(size=n * n + program.k)
        self._norm_K = 0.0
        self._steps = 0
        # One row that fixes the trace holds at every point.
        fixing = np.flatnonzero(bound.multipliers)
        self._moves = np.ones(program.m, dtype=bool)
        self._moves[fixing] = not (bound.exact and len(fixing) == 1)
        self._activity = program.activity((self.X,), self.u)
        self._begin(np.flatnonzero(self._moves))

    def step(self) -> None:
        """Take steps until the next restart, or for a while."""
        for _ in range(_STEPS):
            at = self._at
            new, factor = self._next(at)
            self._steps += 1
            square, product = self._lengths(at, new)
            if square + product < 0:
                self._shorten(-product / square)
                continue
            self._own += 1
            length = math.sqrt(square + product)
            self._first = self._first or length
            due = length <= _SUFFICIENT * self._first or self._own >= _LONGEST * self._steps
            if self._own >= _LEAST and (due or self._last < length <= _NECESSARY * self._first):
                self._settle(new, factor)
                self._restart(new)
                return
            self._last = length
            share = self._own / (self._own + 1)
            reflected = new.plus(2.0, at, -1.0)
            self._at = reflected.plus(share, self._start, 1 - share)
        self._settle(new, factor)

    def _settle(self, new: _Point, factor: Array) -> None:
        """Make a point the last one."""
        self.X, self.u = LowRank(factor), new.u
        self.y = self.y.copy()
        self.y[self._rows] = new.y

    def _restart(self, new: _Point) -> None:
        """Begin from the last point, with the rows that may move."""
        start, program = self._start, self._program
        x = math.hypot(float(np.linalg.norm(new.X - start.X)), float(np.linalg.norm(new.u - start.u)))
        y = float(np.linalg.norm((new.y - start.y) * self._size[self._rows]))
        if min(x, y) > 0:
            self._ratio = math.sqrt(self._ratio * x / y)
        before, bounds = self._activity, program.bounds
        self._activity = program.activity((self.X,), self.u)
        move = float(np.abs((self._activity - before) / self._size).max(initial=0.0))
        ends = (np.abs(self._activity - end) for end in (bounds.lo, bounds.hi))
        far = np.minimum(*ends) > _FAR * move * self._size
        inside = bounds.violation(self._activity) == 0
        self.y = bounds.clip(self.y)
        resting = np.where(inside, self.y == 0, np.abs(self.y) >= bounds.gamma)
        self._begin(np.flatnonzero(self._moves & ~(far & resting)))

    def _begin(self, rows: IntArray) -> None:
        """Begin with the given rows, from the last point."""
        program, bounds, size = self._program, self._program.bounds, self._size[rows]
        self._rows, self._A, self._B = rows, _Map(program, rows), program.B[rows]
        self._Bt = self._B.T.tocsr()
        scaled = sp.diags_array(1 / size) @ self._B
        columns = np.asarray(scaled.multiply(scaled).sum(axis=0), dtype=float).ravel()
        norm = self._norm_K or self._norm(size, np.zeros(program.k))
        self._scale_u = (_SHARE_U * norm) ** 2 / np.where(columns > 0, columns, norm**2)
        self._set_lengths(size, self._norm(size, self._scale_u))
        self._lo, self._hi, self._gamma = bounds.lo[rows], bounds.hi[rows], bounds.gamma[rows]
        X, y = self.X.factor @ self.X.factor.T, self.y
        images = self._activity[rows], program.A.adjoint(y), program.B.T @ y
        self._at = self._start = _Point(X, self.u, y[rows], *images)
        self._own = 0
        self._first, self._last = 0.0, math.inf

    def _norm(self, size: Array, scale_u: Array) -> float:
        """Return about the norm of the map, scaled, on matrices of trace zero if the trace is fixed."""
        n, root = self._program.blocks[0].n, np.sqrt(scale_u)

        def product(v: Array) -> Array:
            X, u = self._centered(v[: n * n].reshape(n, n)), v[n * n :]
            y = (self._A.apply(X) + self._B @ (root * u)) / size**2
            return np.concatenate([self._centered(self._A.adjoint(y)).ravel(), root * (self._Bt @ y)])

        V, alpha, beta = [_unit(product(self._leading))], [], []
        for _ in range(_LANCZOS_STEPS):
            w = product(V[-1])
            alpha.append(float(w @ V[-1]))
            basis = np.column_stack(V)
            w -= basis @ (basis.T @ w)
            beta.append(float(np.linalg.norm(w)))
            if beta[-1] <= _ROUND_OFF * alpha[0]:
                break
            V.append(_unit(w))
        values, S = np.linalg.eigh(np.diag(alpha) + np.diag(beta[:-1], -1))  # of the lower triangle
        self._leading = np.column_stack(V[: len(alpha)]) @ S[:, -1]
        return max(_NORM_MARGIN * math.sqrt(max(values[-1], 0.0)), _LEAST_NORM)

    def _centered(self, X: Array) -> Array:
        """Return the symmetric part of a direction, of trace zero if the trace is fixed."""
        X = (X + X.T) / 2
        return X - np.eye(len(X)) * (np.trace(X) / len(X)) if self._bound.exact else X

    def _set_lengths(self, size: Array, norm: float) -> None:
        """Set the lengths of both parts of a step."""
        self._norm_K = norm
        self._t, self._s = self._ratio / norm, 1 / (self._ratio * norm * size**2)

    def _shorten(self, factor: float) -> None:
        """Begin again with shorter steps."""
        norm = min(_NORM_MARGIN * factor, _LARGEST_FACTOR) * self._norm_K
        self._set_lengths(self._size[self._rows], norm)
        self._at, self._own, self._first, self._last = self._start, 0, 0.0, math.inf

    def _next(self, z: _Point) -> tuple[_Point, Array]:
        """Return ``T(z)``, and a factor of its matrix."""
        program, t, s = self._program, self._t, self._s
        checkpoint(len(self._C))
        theta, Q = np.linalg.eigh(z.X - t * (self._C - z.H))
        lam = np.maximum(theta - _shift(theta, self._bound), 0.0)
        kept = slice(min(np.count_nonzero(lam == 0), len(lam) - 1), None)  # a matrix has a column
        factor = Q[:, kept] * np.sqrt(lam[kept])
        X = factor @ factor.T
        u = np.clip(z.u - t * self._scale_u * (program.c - z.b), program.u_lo, program.u_hi)
        start = self._start
        a = start.a + self._A.apply(X - start.X) + self._B @ (u - start.u)
        w = 2 * a - z.a - z.y / s
        nearest, reach = np.clip(w, self._lo, self._hi), self._gamma / s
        v = np.where(w > nearest + reach, w - reach, np.where(w < nearest - reach, w + reach, nearest))
        y = s * (v - w)
        H, b = start.H + self._A.adjoint(y - start.y), start.b + self._Bt @ (y - start.y)
        return _Point(X, u, y, a, H, b), factor

    def _lengths(self, z: _Point, new: _Point) -> tuple[float, float]:
        """Return both parts of the square of the length of a step, in the norm of a projection.

        Their sum is negative only where the norm of the map is larger than it was taken to be.
        """
        X, u, y, a = new.X - z.X, new.u - z.u, new.y - z.y, new.a - z.a
        square = (float(np.vdot(X, X)) + float((u**2 / self._scale_u).sum())) / self._t
        return square + float((y**2 / self._s).sum()), 2 * float(y @ a)


class _Map:
    """The rows at the given indices; products with vectors are in single precision."""

    def __init__(self, program: Program, rows: IntArray) -> None:
        self._m, self._n = len(rows), program.blocks[0].n
        self._vectors: list[tuple[IntArray, Any, Any, Array]] = []
        self._others: list[tuple[IntArray, Rows]] = []
        for term in program.A.slice(rows).terms:
            form = term.rows.products()
            if form is None:
                self._others.append((term.at, term.rows))
            elif sp.issparse(form.U) and term.rows.count() <= _FEW_TERMS * len(term.at):
                entries = SparseRows.of(len(term.at), self._n, term.rows.coordinates())
                self._others.append((term.at, entries))
            else:
                U = _single(form.U)
                W = U if form.W is form.U else _single(form.W)
                self._vectors.append((term.at, U, W, form.weight))

    def apply(self, X: Array) -> Array:
        """Return ``A(X)``."""
        activity, rounded = np.zeros(self._m), _single(X)
        for at, U, W, weight in self._vectors:
            activity[at] += weight * paired(U, W, rounded)
        for at, rows in self._others:
            activity[at] += rows.apply(X)
        return activity

    def adjoint(self, y: Array) -> Array:
        """Return ``A*(y)``."""
        H = np.zeros((self._n, self._n))
        for at, U, W, weight in self._vectors:
            H += products(U, W, _single(weight * y[at]))
        for at, rows in self._others:
            H += rows.adjoint(y[at])
        return H


def _unit(v: Array) -> Array:
    """Return a vector of length one, or zero."""
    length = float(np.linalg.norm(v))
    return v / length if length > 0 else v


def _single(array: Any) -> Any:
    """Return an array, dense or sparse, in single precision."""
    return array.astype(np.float32)


def _shift(theta: Array, bound: TraceBound) -> float:
    """Return the decrease of eigenvalues, ascending, that brings the positive ones to the bounded sum."""
    if not bound.exact and float(np.maximum(theta, 0.0).sum()) <= bound.value:
        return 0.0
    largest = theta[::-1] - theta[-1]
    shifts = (np.cumsum(largest) - bound.value) / np.arange(1, len(theta) + 1)
    return float(theta[-1] + shifts[np.flatnonzero(largest > shifts)[-1]])
