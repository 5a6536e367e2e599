"""The method of multipliers for one matrix of bounded trace, all rows at once.

Write the program with the activities ``v`` of its rows as

    minimize  <C, X> + c'u + penalties of v   subject to  A(X) + B u = v

over the psd ``X`` of bounded trace and ``u`` within its bounds. From a point ``(X, u, v)``, with a penalty
``s``, multipliers ``y`` lead to the point that minimizes the Lagrangian plus its squared distance divided by
``2 s``,

    X(y) = P(X - s (C - A*(y))),   u(y) = clip(u - s_u (c - B'y)),   v(y) = prox(v - s_v y),

with the projection ``P`` on the matrices of bounded trace. The minimum is a concave function of ``y`` with
the gradient ``v(y) - A(X(y)) - B u(y)``. A step maximizes it by Newton's method, and moves to the point of
the maximizer (Rockafellar 1976; Zhao, Sun, Toh 2010). Every ``X(y)`` has its bounded trace, and clipped
multipliers prove a bound. So each step has a certificate.

Let ``a`` be the positive eigenvalues of the projected matrix less its shift, ``b`` the others, and ``Q`` the
eigenvectors. Then

    P'[H] = T + T' - tr(T + T') Q_a Q_a' / r,   T = Q (V o Q'H Q_a) Q_a',

with ``V = 1/2`` in the rows of ``a`` and ``a / (a - b)`` in those of ``b``. A product with ``A P' A*`` for
rows ``u'X w`` takes products of their vectors in this basis, with ``r`` columns on one side. It costs little
where ``X`` has low rank, and conjugate gradients need single precision only.
"""

from __future__ import annotations

import math

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.certify import TraceBound
from bregopt.clock import checkpoint
from bregopt.program import LowRank, Program
from bregopt.program.rows import Rows
from bregopt.records import cached_property, dataclass
from bregopt.routes.ipm.linear_solvers import conjugate_gradients

__all__ = ["MethodOfMultipliers"]

# Newton steps for one point, and products in one of them.
_NEWTON_STEPS, _CG_STEPS = 30, 200
# Residual of conjugate gradients, relative to the gradient.
_FORCING = 0.1
# Multiple of the identity in Newton's equation, at most, in rows of norm one.
_RIDGE = 1e-3
# Gradient at which Newton's method ends, relative to the distance from the last point.
_SHARE = 0.1
# Decrease of the function along a step, relative to the slope (Armijo), its round-off, and the shortest step.
_ARMIJO, _NOISE, _SHORTEST = 1e-4, 1e-13, 1e-4
# Factor of the penalty from point to point, and the products for one point below which it increases, and
# above which it decreases. It also decreases where Newton's method does not end.
_FACTOR, _FEW_PRODUCTS, _MANY_PRODUCTS = 4.0, 100, 300


@dataclass(frozen=True, eq=False)
class _At:
    """The point of multipliers ``y``, and what derivatives need.

    Parameters
    ----------
    y : array of shape (m,)
    X : LowRank
    theta, Q : arrays of shapes (n,) and (n, n)
        Eigenvalues, ascending, less the shift to the bounded trace, and eigenvectors.
    shifted : bool
        Whether the bound on the trace holds with equality.
    u, v : arrays of shapes (k,) and (m,)
    moves_u, moves_v : arrays of shapes (k,) and (m,)
        1 where ``u`` or ``v`` moves with ``y``, 0 where it stays at an end.
    gradient : array of shape (m,)
        ``A(X) + B u - v``.
    loss : float
        The function to minimize, the negative of the one above.
    """

    y: Array
    X: LowRank
    theta: Array
    Q: Array
    shifted: bool
    u: Array
    v: Array
    moves_u: Array
    moves_v: Array
    gradient: Array
    loss: float

    @cached_property
    def rank(self) -> int:
        """The number of positive eigenvalues."""
        return int(np.count_nonzero(self.theta > 0))


class MethodOfMultipliers:
    """The state of one run.

    Parameters
    ----------
    program : Program
        Linear, with one matrix, and hard rows and hinges.
    bound : TraceBound
        On the trace of the matrix, above zero.
    y : array of shape (m,)
        First multipliers.

    Attributes
    ----------
    X, u, y : LowRank and arrays of shapes (k,) and (m,)
        The last point and its multipliers.
    """

    def __init__(self, program: Program, bound: TraceBound, y: Array) -> None:
        self._program, self._bound, self.y = program, bound, y
        (block,) = program.blocks
        n, trace = block.n, bound.value
        self._C = block.C
        self._dense = np.eye(n) * (trace / n)
        self.X = LowRank(np.eye(n) * math.sqrt(trace / n))
        self.u = np.clip(np.zeros(program.k), program.u_lo, program.u_hi)
        self._v = program.activity((self.X,), self.u)
        norms = program.A.norms() ** 2
        mean = float(norms.mean()) or 1.0
        # Steps of v and u are as long as those of X if rows have norm one. Rows beyond the entries of X
        # depend on each other, and what one of them asks for the others do, too.
        self._scale_v = np.full(program.m, mean * max(1.0, program.m / (n * (n + 1) / 2)))
        columns = np.asarray(program.B.multiply(program.B).sum(axis=0), dtype=float).ravel()
        self._scale_u = mean / np.where(columns > 0, columns, 1.0)
        slope = float(np.linalg.norm(self._C - program.A.adjoint(y)))
        self._s = trace / math.sqrt(n) / max(slope, TINY)
        self._curvature = _Curvature(program)
        self._first = 0.0

    def step(self) -> None:
        """Move to the point that maximizes the function of the multipliers, approximately."""
        at, products, reached = self._at(self.y), 0, False
        for _ in range(_NEWTON_STEPS):
            size = self._size(at.gradient)
            self._first = self._first or size
            reached = size <= _SHARE * self._distance(at)
            if reached:
                break
            direction, used = self._direction(at, size)
            products += used
            new = self._searched(at, direction)
            if new is None:
                break
            at = new
        self.X, self.u, self.y, self._v = at.X, at.u, at.y, at.v
        self._dense = self.X.factor @ self.X.factor.T
        if products > _MANY_PRODUCTS or not reached:
            self._s /= _FACTOR
        elif products < _FEW_PRODUCTS:
            self._s *= _FACTOR

    def _at(self, y: Array) -> _At:
        """Return the point of multipliers."""
        program, s = self._program, self._s
        checkpoint(len(self._C))
        theta, Q = np.linalg.eigh(self._dense + s * (program.A.adjoint(y) - self._C))
        shift, shifted = _shift(theta, self._bound)
        lam = np.maximum(theta - shift, 0.0)
        s_u, s_v, bounds = s * self._scale_u, s * self._scale_v, program.bounds
        reduced = program.c - program.B.T @ y
        free = self.u - s_u * reduced
        u = np.clip(free, program.u_lo, program.u_hi)
        w = self._v - s_v * y
        nearest, reach = np.clip(w, bounds.lo, bounds.hi), s_v * bounds.gamma
        v = np.where(w > nearest + reach, w - reach, np.where(w < nearest - reach, w + reach, nearest))
        kept = slice(min(np.count_nonzero(lam == 0), len(lam) - 1), None)  # a matrix has a column
        X = LowRank(Q[:, kept] * np.sqrt(lam[kept]))
        gradient = program.activity((X,), u) - v
        value = float(theta @ lam) - float(lam @ lam) / 2 - float(np.vdot(self._dense, self._dense)) / 2
        loss = value / s - float(reduced @ u) - float(y @ v) - float(bounds.penalty(v).sum())
        loss -= float(((u - self.u) ** 2 / s_u).sum() + ((v - self._v) ** 2 / s_v).sum()) / 2
        moves_v = (v == w) | (v != np.clip(v, bounds.lo, bounds.hi))
        return _At(
            *(y, X, theta - shift, Q, shifted, u, v),
            *((u == free).astype(float), moves_v.astype(float), gradient, loss),
        )

    def _size(self, gradient: Array) -> float:
        """Return the norm of a gradient, in rows of norm one."""
        return float(np.linalg.norm(gradient / np.sqrt(self._scale_v)))

    def _distance(self, at: _At) -> float:
        """Return the distance of a point from the last one."""
        squares = float(np.linalg.norm(at.X.factor @ at.X.factor.T - self._dense)) ** 2
        squares += float(((at.u - self.u) ** 2 / self._scale_u).sum())
        return math.sqrt(squares + float(((at.v - self._v) ** 2 / self._scale_v).sum()))

    def _direction(self, at: _At, size: float) -> tuple[Array, int]:
        """Return the direction of Newton's method, and the number of products."""
        s, B, curvature = self._s, self._program.B, self._curvature
        curvature.move(at)
        ridge = _RIDGE * min(1.0, size / self._first)
        own = s * self._scale_v * (at.moves_v + ridge)
        border = s * self._scale_u * at.moves_u
        diagonal = s * curvature.diagonal + own + (B.multiply(B) @ border if len(border) else 0.0)
        products = 0

        def operator(d: Array) -> Array:
            nonlocal products
            products += 1
            image = s * curvature(d) + own * d
            return image + B @ (border * (B.T @ d)) if len(border) else image

        return conjugate_gradients(operator, -at.gradient, diagonal, _FORCING, _CG_STEPS), products

    def _searched(self, at: _At, direction: Array) -> _At | None:
        """Return the point after a step along a direction, None where there is no progress."""
        slope, alpha = float(at.gradient @ direction), 1.0
        noise = _NOISE * abs(at.loss)
        while alpha > _SHORTEST and slope < 0:
            new = self._at(at.y + alpha * direction)
            if new.loss <= at.loss + _ARMIJO * alpha * slope + noise:
                return new
            alpha /= 2
        return None


class _Curvature:
    """Products with ``A P' A*`` at a point.

    Parameters
    ----------
    program : Program
    """

    def __init__(self, program: Program) -> None:
        self._m = program.m
        self._vectors: list[_Vectors] = []
        self._others: list[tuple[IntArray, Rows]] = []
        self._least = 1e-12 * program.A.norms() ** 2
        for term in program.A.terms:
            form = term.rows.products()
            if form is None:
                self._others.append((term.at, term.rows))
            else:
                self._vectors.append(_Vectors(term.at, form.U, form.W, form.weight))

    def move(self, at: _At) -> None:
        """Move to a point."""
        n, r = len(at.Q), at.rank
        a, b = at.theta[n - r :], at.theta[: n - r]
        V = np.full((n, r), 0.5)
        V[: n - r] = a / np.maximum(a - b[:, None], TINY)
        self._V, self._Q, self._Qa = V, at.Q, at.Q[:, n - r :]
        self._share = 1 / r if at.shifted and r else 0.0
        self._trace, self.diagonal = np.zeros(self._m), np.zeros(self._m)
        for vectors in self._vectors:
            vectors.move(at.Q, r)
            self._trace[vectors.at] += vectors.traces()
            self.diagonal[vectors.at] += vectors.curvatures(V)
        identity = self._Qa @ self._Qa.T
        for rows_at, rows in self._others:
            self._trace[rows_at] += rows.apply(identity)
            self.diagonal[rows_at] += rows.norms() ** 2
        self.diagonal = np.maximum(self.diagonal - self._share * self._trace**2, self._least + TINY)

    def __call__(self, d: Array) -> Array:
        """Return the product."""
        checkpoint()
        H = np.zeros(self._V.shape)
        for vectors in self._vectors:
            H += vectors.adjoint(d[vectors.at])
        for at, rows in self._others:
            H += self._Q.T @ (rows.adjoint(d[at]) @ self._Qa)
        T = self._V * H
        image = -self._share * float(self._trace @ d) * self._trace
        for vectors in self._vectors:
            image[vectors.at] += vectors.apply(T)
        for at, rows in self._others:
            half = self._Q @ T @ self._Qa.T
            image[at] += rows.apply(half + half.T)
        return image


class _Vectors:
    """Rows ``w u'X z`` in the basis of a point, in single precision."""

    def __init__(self, at: IntArray, U: Array, W: Array, weight: Array) -> None:
        self.at, self._given, self._weight = at, (U,) if U is W else (U, W), weight

    def move(self, Q: Array, r: int) -> None:
        """Move to a basis whose last `r` vectors span the range of ``X``."""
        self._all = [np.asarray(U @ Q).astype(np.float32) for U in self._given]
        self._few = [np.ascontiguousarray(U[:, len(Q) - r :]) for U in self._all]

    def adjoint(self, d: Array) -> Array:
        """Return ``Q'A*(d) Q_a``."""
        weight = (d * self._weight).astype(np.float32)[:, None] / len(self._all)
        crossed = zip(self._all, reversed(self._few), strict=True)
        total: Array = sum(U.T @ (weight * W) for U, W in crossed)  # type: ignore[assignment]
        return total

    def apply(self, T: Array) -> Array:
        """Return ``A(Q T Q_a' + Q_a T' Q')``."""
        T = T.astype(np.float32)
        crossed = zip(self._all, reversed(self._few), strict=True)
        total = sum(np.einsum("kr,kr->k", U @ T, W) for U, W in crossed)
        return np.asarray(2 / len(self._all) * self._weight * total)

    def traces(self) -> Array:
        """Return ``A(Q_a Q_a')``."""
        return np.asarray(self._weight * np.einsum("kr,kr->k", self._few[0], self._few[-1]))

    def curvatures(self, V: Array) -> Array:
        """Return ``<A_k, T + T'>`` for the ``T`` of each row itself."""
        V = V.astype(np.float32)
        U, W, u, w = self._all[0], self._all[-1], self._few[0], self._few[-1]
        mixed = np.einsum("kr,kr->k", (U * W) @ V, u * w)
        squares = np.einsum("kr,kr->k", U**2 @ V, w**2) + np.einsum("kr,kr->k", W**2 @ V, u**2)
        return np.asarray(self._weight**2 * (mixed + squares / 2))


def _shift(theta: Array, bound: TraceBound) -> tuple[float, bool]:
    """Return the decrease of eigenvalues, ascending, that brings the positive ones to the bounded sum."""
    if not bound.exact and float(np.maximum(theta, 0.0).sum()) <= bound.value:
        return 0.0, False
    largest = theta[::-1]
    shifts = (np.cumsum(largest) - bound.value) / np.arange(1, len(theta) + 1)
    return float(shifts[np.flatnonzero(largest > shifts)[-1]]), True
