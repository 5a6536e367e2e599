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

Features in a small unit have large entries in the rows, which make all steps short, and may have small ones
in ``X``. Then lengths of matrices are those of ``V^-1 D V^-1``, with a diagonal ``V`` that the last ``X``
gives, and a step in ``G`` is one in ``V^2 G V^2``.

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
from bregopt.program import LinearMap, LowRank, Program
from bregopt.program.rows import Rows
from bregopt.program.rows.base import SparseRows
from bregopt.program.rows.low_rank import paired, products
from bregopt.records import dataclass, replace

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
# Unit of a feature below which units differ, the least that counts, and the quantile of the parts of features
# in the rows from which a part is large.
_OTHER_UNIT, _LEAST_UNIT, _SMALL_PART = 0.3, 1e-6, 0.1
# Error of a projection, relative to the last move or to its matrix, and the eigendecompositions that it takes
# at most.
_PROJECTION_ERROR, _PROJECTION_ROUND_OFF, _DECOMPOSITIONS = 1e-2, 1e-12, 30


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
        self._measure_by(_Metric(np.ones(n), bound))
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

    def _measure_by(self, metric: _Metric) -> None:
        """Take a metric, with the norms of the rows in it."""
        self._metric, sizes = metric, metric.norms(self._program.A)
        self._size = np.where(sizes > 0, sizes, 1.0)
        self._shares = self._shares_of_features()

    def _shares_of_features(self) -> Array:
        """Return the ``V`` in which features with large parts in the rows have small ones; at most one.

        The sum of the rows, of norm one, with random signs has about their parts.
        """
        v, norming = self._metric.v, self._bound.multipliers != 0
        signs = np.random.default_rng(0).choice([-1.0, 1.0], len(self._size)) / self._size
        H = self._program.A.adjoint(np.where(norming, 0.0, signs))
        parts = np.linalg.norm(self._metric.scaled(H), axis=1)
        small = float(np.quantile(parts, _SMALL_PART))
        shares: Array = v * (small / np.maximum(parts, small) if small > 0 else 1.0)
        return shares / shares.max()

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
        v = _units(self.X.factor, self._shares)
        if not np.array_equal(v, self._metric.v):
            self._measure_by(_Metric(v, self._bound))
        u = float(np.linalg.norm((new.u - start.u) / np.sqrt(self._scale_u)))
        x = math.hypot(self._metric.length(new.X - start.X), u)
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
        n, root, metric = self._program.blocks[0].n, np.sqrt(scale_u), self._metric

        def product(v: Array) -> Array:
            X, u = metric.scaled(metric.tangent(v[: n * n].reshape(n, n))), v[n * n :]
            y = (self._A.apply(X) + self._B @ (root * u)) / size**2
            image = metric.tangent(metric.scaled(self._A.adjoint(y)))
            return np.concatenate([image.ravel(), root * (self._Bt @ y)])

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
        factor = self._metric.projected(z.X, t * (self._C - z.H))
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
        square = (self._metric.length(X) ** 2 + float((u**2 / self._scale_u).sum())) / self._t
        return square + float((y**2 / self._s).sum()), 2 * float(y @ a)


class _Metric:
    """The length ``|V^-1 D V^-1|`` of a matrix, and the projection on psd matrices of bounded trace in it.

    Of ``X = V M V`` the projection is that of ``M`` in the Frobenius norm, and the trace is ``<V^2, M>``. So
    it is ``P(M - s V^2)``, the psd part for a number ``s``. At a trial ``s`` with eigenvalues ``theta`` and
    vectors ``Q``, a change of ``s`` by ``d`` moves the eigenvalues by ``-d diag(Q'V^2 Q)`` to first order.
    That ``d`` gives the trace exactly, and if ``V = I`` the matrix, too. Otherwise Newton's method, from the
    ``s`` of the last step, goes on until what the entries apart from the diagonal add is small.

    Parameters
    ----------
    v : array of shape (n,)
        The diagonal of ``V``.
    bound : TraceBound
    """

    def __init__(self, v: Array, bound: TraceBound) -> None:
        self.v, self._bound = v, bound
        self._square = v**2
        self._deviation = self._square - self._square.mean()
        self._is_plain = bool((v == 1.0).all())
        self._s = self._move = 0.0

    def length(self, D: Array) -> float:
        """Return the length of a matrix."""
        return float(np.linalg.norm(self._unscaled(D)))

    def scaled(self, M: Array) -> Array:
        """Return ``V M V``."""
        return M if self._is_plain else M * self.v * self.v[:, None]

    def _unscaled(self, X: Array) -> Array:
        return X if self._is_plain else X / self.v / self.v[:, None]

    def tangent(self, M: Array) -> Array:
        """Return the symmetric part of a direction of ``M``, of trace zero if the trace is fixed."""
        M = (M + M.T) / 2
        if self._bound.exact:
            M[np.diag_indices(len(M))] -= self._square * (
                float(M.diagonal() @ self._square) / float(self._square @ self._square)
            )
        return M

    def norms(self, A: LinearMap) -> Array:
        """Return the norms of the matrices ``V A_k V``."""
        if self._is_plain:
            return A.norms()
        norms, V = np.zeros(A.m), sp.csr_array(sp.diags_array(self.v))
        for term in A.terms:
            if term.rows.products() is not None:
                norms[term.at] = term.rows.restrict(V).norms()
            else:
                t = term.rows.coordinates()
                scaled = replace(t, value=t.value * self.v[t.i] * self.v[t.j])
                norms[term.at] = SparseRows.of(len(term.at), len(self.v), scaled).norms()
        return norms

    def projected(self, X: Array, G: Array) -> Array:
        """Return a factor of the projection of ``X - V^2 G V^2``."""
        M = self._unscaled(X)
        W = M - self.scaled(G)
        for _ in range(_DECOMPOSITIONS):
            checkpoint(len(W))
            theta, Q = np.linalg.eigh(W - np.diag(self._s * self._square))
            squares = Q**2
            b = self._square @ squares
            change = self._change(theta, b)
            # Apart from the diagonal Q'V^2 Q is as that of the deviation from a multiple of I: zero if V = I.
            diagonal = self._deviation @ squares
            across = max(float(self._deviation @ self._deviation - diagonal @ diagonal), 0.0)
            round_off = _PROJECTION_ROUND_OFF * float(np.linalg.norm(theta))
            if abs(change) * math.sqrt(across) <= max(_PROJECTION_ERROR * self._move, round_off):
                break
            self._s += self._newton(theta, Q, b) or change
            self._s = self._s if self._bound.exact else max(self._s, 0.0)
        self._s += change
        lam = np.maximum(theta - change * b, 0.0)
        positive = np.flatnonzero(lam)
        factor = Q[:, positive] * np.sqrt(lam[positive]) if len(positive) else np.zeros((len(lam), 1))
        if self._is_plain:
            return factor
        self._move = float(np.linalg.norm(factor @ factor.T - M))
        factor = self.v[:, None] * factor
        # Small parts of V enlarge round-off of the eigenvectors.
        trace = float(np.vdot(factor, factor))
        scaled = trace > self._bound.value or (self._bound.exact and trace > 0)
        return factor * math.sqrt(self._bound.value / trace) if scaled else factor

    def _change(self, theta: Array, b: Array) -> float:
        """Return the ``d`` for which ``b' max(theta - d b, 0)`` is the bound on the trace, or is allowed."""
        order = np.argsort(-theta / b)
        weight = b[order]
        largest = theta[order[0]] / weight[0]
        own = theta[order] - largest * weight  # the first is zero, whatever round-off the others have
        changes = (np.cumsum(weight * own) - self._bound.value) / np.cumsum(weight**2)
        change = float(largest + changes[np.flatnonzero(own > changes * weight)[-1]])
        return change if self._bound.exact else max(change, -self._s)

    def _newton(self, theta: Array, Q: Array, b: Array) -> float:
        """Return Newton's step for ``s``, zero where the psd part is zero."""
        first = int(np.searchsorted(theta, 0.0, side="right"))
        own = theta[first:]
        if not len(own):
            return 0.0
        B = Q.T @ (self._square[:, None] * Q[:, first:])
        shares = own / (own - theta[:first, None])
        slope = float((B[first:] ** 2).sum() + 2 * (shares * B[:first] ** 2).sum())
        return (float(b[first:] @ own) - self._bound.value) / slope


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
            elif sp.issparse(form.U) and term.count <= _FEW_TERMS * len(term.at):
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


# Pays on: 2,500 triplets whose first feature is in another unit, n = 128.
def _units(factor: Array, shares: Array) -> Array:
    """Return the diagonal of ``V``, of mean square one.

    It is small at features with large parts in the rows, and so small shares, that have small ones in ``X``.
    """
    lengths = np.linalg.norm(factor, axis=1)
    v = np.maximum(np.maximum(lengths / max(float(lengths.max()), TINY), shares), _LEAST_UNIT)
    v = v if v.min() < _OTHER_UNIT else np.ones(len(v))
    return v * math.sqrt(len(v) / float(v @ v))


def _unit(v: Array) -> Array:
    """Return a vector of length one, or zero."""
    length = float(np.linalg.norm(v))
    return v / length if length > 0 else v


def _single(array: Any) -> Any:
    """Return an array, dense or sparse, in single precision."""
    return array.astype(np.float32)
