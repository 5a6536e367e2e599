"""The sets that rows, variables and matrices are in: bounds, hard or soft, second-order cones, and faces.

The bounds add terms to the dual function.

A hard row requires ``lo <= a <= hi`` of its activity ``a``. A soft row relaxes the bound that it violates to
``b`` and pays ``gamma * d(b, bound)``, minimized over ``b`` (Kulis et al. 2009, eq. 22), with a divergence
``d`` of numbers (:mod:`bregopt.divergences.rows`), or ``gamma`` times the violation (the hinge). A
logarithmic row pays ``-gamma log(a - lo)`` at every activity, and requires ``a > lo``.

The multiplier ``y`` of a row is positive where the lower bound is active, negative where the upper one is.
A row adds ``g(y) = min over a of penalty(a) + y a`` to the dual function: ``y * bound`` for a hard row, and
``y * lo + gamma (1 - log(gamma / y))`` for a logarithmic one.

Ordinary variables may be in second-order cones ``Q = {(t, v): ||v|| <= t}``, all of a problem in one array. A
vector ``x = (t, v)`` has the eigenvalues ``t - ||v||`` and ``t + ||v||``; it is in ``Q`` if both are
nonnegative (Alizadeh, Goldfarb 2003, Second-order cone programming, §4). ``Q`` is its own dual.

A matrix with given directions in its null space is on a face of the psd cone, ``X = V M V'``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import blas

from bregopt.arrays import EPS, Array, IntArray, Mask, span
from bregopt.divergences.rows import SCALARS, Penalty, Target
from bregopt.records import PickledWithoutCache, cached_property, dataclass, replace

Subset = IntArray | slice


# Members of an enumeration are slow to look up and to compare with arrays.
_HINGE, _LOG = int(Penalty.HINGE), int(Penalty.LOG)


_SPLITTER = 2.0**27 + 1  # of a double into two halves of its digits
_LARGEST_ROOT = 1e150  # of a sum of squares that does not overflow
_DISTANCE = 0.25  # an optimal distance from a point, relative to the point's norm


def relaxed_bounds(kind: IntArray, bound: Array, gamma: Array, y: Array) -> tuple[Array, Array]:
    """Return the relaxed bounds at the multipliers, and their derivatives in ``y``, which are never positive.

    Outside the domain of its penalty a multiplier has an infinite relaxed bound. Of a logarithmic row it is
    the activity at which the row has the multiplier.
    """
    value, slope = bound.copy(), np.zeros(len(bound))
    if not (kind > _HINGE).any():
        return value, slope
    for penalty, scalar in SCALARS.items():
        k = (kind == penalty).nonzero()[0]
        value[k] = scalar.relaxed_bound(y[k] / gamma[k], bound[k])
        slope[k] = -scalar.slope(value[k], value[k]) / gamma[k]
    log = (kind == _LOG).nonzero()[0]
    if len(log):
        slack = np.divide(gamma[log], y[log], out=np.full(len(log), np.inf), where=y[log] > 0)
        value[log] += slack
        slope[log] = -(slack**2) / gamma[log]
    return value, slope


@dataclass(frozen=True, eq=False)
class Bounds(PickledWithoutCache):
    """Bounds and penalties of `m` rows, four arrays of one length.

    Parameters
    ----------
    lo, hi : array of shape (m,)
        ``-inf`` and ``inf`` where there is none.
    kind : array of shape (m,), values of :class:`Penalty`
    gamma : array of shape (m,)
        Weight of the penalty, ``inf`` for hard rows.
    """

    lo: Array
    hi: Array
    kind: IntArray
    gamma: Array

    @classmethod
    def of_hard_rows(cls, lo: Array, hi: Array) -> Bounds:
        """Return the bounds of hard rows."""
        return cls(lo, hi, np.full(len(lo), int(Penalty.HARD)), np.full(len(lo), np.inf))

    def followed_by(self, other: Bounds) -> Bounds:
        """Return these bounds, and after them those of other rows."""
        return Bounds(
            np.concatenate([self.lo, other.lo]),
            np.concatenate([self.hi, other.hi]),
            np.concatenate([self.kind, other.kind]),
            np.concatenate([self.gamma, other.gamma]),
        )

    @property
    def m(self) -> int:
        """The number of rows."""
        return len(self.lo)

    @cached_property
    def kinds(self) -> frozenset[Penalty]:
        """The penalties that occur, :attr:`Penalty.HARD` among them."""
        return frozenset(Penalty(int(kind)) for kind in np.bincount(self.kind).nonzero()[0])

    @cached_property
    def hard(self) -> Mask:
        """Mask of the hard rows."""
        mask: Mask = self.kind == int(Penalty.HARD)
        return mask

    @cached_property
    def required(self) -> Mask:
        """Mask of the rows whose bounds hold wherever the objective is finite: hard and logarithmic rows."""
        return self.hard | (self.kind == _LOG) if len(self._log) else self.hard

    @cached_property
    def equal(self) -> Mask:
        """Mask of the hard equalities."""
        mask: Mask = self.hard & (self.lo == self.hi)
        return mask

    @cached_property
    def all_hard(self) -> bool:
        """Whether all rows are hard."""
        return bool(np.logical_and.reduce(self.hard))

    @property
    def can_be_inactive(self) -> Mask:
        """The mask of the rows that may have a zero multiplier: those with room between their bounds.

        Rows with a smooth penalty are left to the methods, for which they are cheap.
        """
        mask: Mask = (self.lo < self.hi) & (self.kind <= _HINGE)
        return mask

    @cached_property
    def all_soft(self) -> bool:
        """Whether all rows are soft."""
        return Penalty.HARD not in self.kinds

    @cached_property
    def finite_at_zero(self) -> Mask:
        """Mask of the soft rows whose penalty is finite at the activity zero."""
        finite = [False, True, *(s.finite_at_zero for s in SCALARS.values()), False]
        mask: Mask = np.array(finite)[self.kind]
        return mask

    @cached_property
    def sizes(self) -> Array:
        """The larger magnitude of each row's finite bounds; zero where there is none."""
        ends = np.abs([self.lo, self.hi])
        ends[ends == np.inf] = 0.0
        sizes: Array = np.maximum.reduce(ends)
        return sizes

    @cached_property
    def penalties(self) -> tuple[Penalty, ...]:
        """The smooth penalties that occur."""
        return tuple(kind for kind in SCALARS if kind in self.kinds)

    def slice(self, rows: IntArray) -> Bounds:
        """Return the bounds of the given rows."""
        return replace(self, lo=self.lo[rows], hi=self.hi[rows], kind=self.kind[rows], gamma=self.gamma[rows])

    @cached_property
    def finite_ends(self) -> tuple[Array, Array]:
        """The lower and upper bounds, with zero in place of infinite ones, which no multiplier prices."""
        if self._all_equal:
            return self.lo, self.hi
        return np.where(np.isfinite(self.lo), self.lo, 0.0), np.where(np.isfinite(self.hi), self.hi, 0.0)

    def violation(self, a: Array) -> Array:
        """Return the violation of each row's unrelaxed bounds."""
        if self._all_equal:
            return np.abs(self.lo - a)
        return np.maximum(np.maximum(self.lo - a, a - self.hi), 0.0)

    def missed(self, a: Array) -> Array:
        """Return the violation of each required row's bounds; zero for the others."""
        if self.all_hard:
            return self.violation(a)
        return np.where(self.required, self.violation(a), 0.0)

    def penalty(self, a: Array) -> Array:
        """Return each row's penalty at its activity; zero for hard rows (see :meth:`missed`)."""
        if self.all_hard:
            return np.zeros(self.m)
        paid = np.zeros(self.m)
        nearest = np.minimum(np.maximum(a, self.lo), self.hi)
        if len(self._hinge):
            k = self._hinge
            paid[k] = self.gamma[k] * np.abs(a[k] - nearest[k])
        for kind, rows in self._curved:
            paid[rows] = self.gamma[rows] * SCALARS[kind].value(a[rows], nearest[rows])
        if len(self._log):
            k = self._log
            inside = a[k] > self.lo[k]
            slack = np.where(inside, a[k] - self.lo[k], 1.0)
            paid[k] = np.where(inside, -self.gamma[k] * np.log(slack), np.inf)
        return paid

    def conjugate(self, y: Array) -> Array:
        """Return each row's term ``g(y)`` of the dual function; ``-inf`` outside its domain."""
        if self._all_equal:
            return y * self.lo
        acting = np.where(y > 0, self.lo, self.hi)
        acting[y == 0] = 0.0
        term = y * acting  # -inf where there is no such bound
        if len(self._hinge):
            k = self._hinge
            term[k[np.abs(y[k]) > self.gamma[k]]] = -np.inf
        for kind, rows in self._curved:
            gamma = self.gamma[rows]
            term[rows] = gamma * SCALARS[kind].conjugate(y[rows] / gamma, acting[rows])
        if len(self._log):
            k = self._log
            gamma, paying = self.gamma[k], y[k] > 0
            ratio = np.where(paying, y[k], 1.0) / gamma
            term[k] = np.where(paying, term[k] + gamma * (1 + np.log(ratio)), -np.inf)
        return term

    def response(self, a: Array) -> Array:
        """Return the multipliers of soft rows at an activity: minus the derivative of :meth:`penalty`.

        Only rows with a smooth penalty have one; the others are zero.
        """
        y = np.zeros(self.m)
        nearest = np.minimum(np.maximum(a, self.lo), self.hi)
        for kind, rows in self._curved:
            at, bound = a[rows], nearest[rows]
            with np.errstate(divide="ignore", invalid="ignore"):  # at an infinite penalty
                t = SCALARS[kind].response(at, bound)
            y[rows] = self.gamma[rows] * np.where(at == bound, 0.0, t)
        return y

    def side(self, a: Array, y: Array) -> Array:
        """Return 1 for rows whose lower bound is active, -1 for the upper one, 0 for inactive rows.

        It is the sign of the multiplier or, where that is zero, the side of the violated bound.
        """
        return np.where(y, np.sign(y), np.where(a < self.lo, 1.0, 0.0) - (a > self.hi))

    def meet(self, a: Array, y: Array, side: Array) -> tuple[Array, Array]:
        """Return ``r`` and ``D`` of the linearization ``da + D dy = r`` of ``a = b(y)`` for smooth soft rows.

        ``D`` is the geometric mean of the derivative of that equation and that of its inverse ``y = y(a)``,
        so ``a`` and ``b(y)`` may be far apart. For LogDet this linearizes ``a (gamma / b0 + y) = gamma``.
        ``D`` is infinite for inactive rows.
        """
        up, down = side > 0, side < 0
        bound = np.where(up, self.lo, np.where(down, self.hi, a))
        outside = np.where(up, np.minimum(a, bound), np.where(down, np.maximum(a, bound), a))
        r, D = np.empty(self.m), np.empty(self.m)
        for kind, rows in self._curved:
            gamma = self.gamma[rows]
            relaxed = SCALARS[kind].relaxed_bound(y[rows] / gamma, bound[rows])
            r[rows], D[rows] = relaxed - a[rows], SCALARS[kind].slope(outside[rows], relaxed) / gamma
        inactive = side == 0
        r[inactive], D[inactive] = 0.0, np.inf
        return r, D

    def stop(self, y: Array, side: Array) -> Array:
        """Return the multipliers, zero for inequalities where the sign differs from `side`."""
        return np.where((y * side < 0) & (self.lo < self.hi), 0.0, y)

    def dual_range(self) -> tuple[Array, Array]:
        """Return the closed range of each multiplier: its sign, and ``[-gamma, gamma]`` for a hinge."""
        return self._dual_range

    @cached_property
    def _dual_range(self) -> tuple[Array, Array]:
        reach = np.where(self.kind == _HINGE, self.gamma, np.inf)
        lower = np.where(np.isfinite(self.hi), -reach, 0.0)
        upper = np.where(np.isfinite(self.lo), reach, 0.0)
        return lower, upper

    def clip(self, y: Array) -> Array:
        """Return the nearest multipliers inside their range."""
        if self._all_equal:
            return np.array(y)
        lower, upper = self.dual_range()
        return np.minimum(np.maximum(y, lower), upper)

    def clip_required(self, y: Array) -> Array:
        """Return the nearest multipliers of the rows that must hold inside their range, zero for others."""
        return np.where(self.required, self.clip(y), 0.0)

    def target(self, k: int, upper: bool) -> Target:
        """Return the target of row `k` at its upper or lower bound."""
        bound = self.hi[k] if upper else self.lo[k]
        return Target(Penalty(int(self.kind[k])), float(bound), float(self.gamma[k]))

    @cached_property
    def _all_equal(self) -> bool:
        return self.all_hard and bool(np.logical_and.reduce(self.equal))

    @cached_property
    def _hinge(self) -> IntArray:
        return (self.kind == _HINGE).nonzero()[0]

    @cached_property
    def _log(self) -> IntArray:
        return (self.kind == _LOG).nonzero()[0]

    @cached_property
    def _curved(self) -> tuple[tuple[Penalty, Subset], ...]:
        """The smooth penalties that occur, each with its rows as indices or a slice."""
        if len(self.kinds) == 1:
            return tuple((kind, slice(0, self.m)) for kind in self.penalties)
        return tuple((kind, span((self.kind == int(kind)).nonzero()[0])) for kind in self.penalties)


def _square(x: Array) -> tuple[Array, Array]:
    """Return the squares of numbers and their rounding errors, which are doubles (Dekker 1971).

    The error is as exact as the square: neither may overflow nor underflow.
    """
    high = _SPLITTER * x
    high -= high - x
    low, square = x - high, x * x
    error: Array = ((high * high - square) + 2 * high * low) + low * low
    return square, error


@dataclass(frozen=True, eq=False)
class SecondOrderCones(PickledWithoutCache):
    """The second-order cones that disjoint groups of variables are in.

    Functions of vectors take the concatenated vectors of all cones, shape ``(size,)``, and return one number
    for each cone, shape ``(count,)``, or a vector again. None of them loops over the cones.

    Parameters
    ----------
    index : int array of shape (size,)
        The variables, one cone after the other; the first one of a cone is its axis ``t``.
    dimensions : int array of shape (count,)
        The number of variables of each cone, at least one.
    """

    index: IntArray
    dimensions: IntArray

    @classmethod
    def of(cls, groups: Sequence[IntArray]) -> SecondOrderCones:
        """Return the cones of groups of variables, the axis first in each."""
        if not groups:
            return NO_CONES
        return cls(np.concatenate(groups).astype(np.intp), np.array([len(group) for group in groups]))

    @cached_property
    def count(self) -> int:
        """The number of cones."""
        return len(self.dimensions)

    @property
    def size(self) -> int:
        """The number of variables in cones."""
        return len(self.index)

    @cached_property
    def starts(self) -> IntArray:
        """The position of each axis in the concatenated vectors."""
        starts: IntArray = np.cumsum(self.dimensions) - self.dimensions
        return starts

    @property
    def groups(self) -> list[IntArray]:
        """The variables of each cone, its axis first."""
        return np.split(self.index, self.starts[1:]) if self.count else []

    @cached_property
    def axes(self) -> IntArray:
        """The variable that is the axis of each cone."""
        return self.index[self.starts]

    @cached_property
    def owner(self) -> IntArray:
        """The cone of each position in the concatenated vectors."""
        return np.repeat(np.arange(self.count), self.dimensions)

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """The pairs of positions in one cone, in both orders, and of each position with itself."""
        count = self.dimensions[self.owner]
        one = np.repeat(np.arange(self.size), count)
        first = np.repeat(np.cumsum(count) - count, count)
        return one, self.starts[self.owner[one]] + np.arange(len(one)) - first

    @cached_property
    def J(self) -> Array:
        """1 at each axis, -1 elsewhere: ``x'J x = t^2 - ||v||^2``."""
        signs = -np.ones(self.size)
        signs[self.starts] = 1.0
        return signs

    @cached_property
    def identity(self) -> Array:
        """The vectors ``(1, 0)``."""
        return (self.J + 1) / 2

    def inner(self, x: Array, y: Array) -> Array:
        """Return the inner product in each cone."""
        return np.add.reduceat(x * y, self.starts) if self.count else np.zeros(0)

    def tail_norms(self, x: Array) -> Array:
        """Return ``||v||`` of each ``(t, v)``."""
        if not self.count:
            return np.zeros(0)
        tail = np.abs(x)
        tail[self.starts] = 0.0
        largest = np.maximum.reduceat(tail, self.starts)
        unit = np.where(largest > 0, largest, 1.0)  # squares of small numbers underflow
        norms: Array = unit * np.sqrt(np.add.reduceat((tail / unit[self.owner]) ** 2, self.starts))
        return norms

    def least_eigenvalues(self, x: Array) -> Array:
        """Return ``t - ||v||`` of each ``(t, v)``."""
        least: Array = x[self.starts] - self.tail_norms(x)
        return least

    def outside(self, x: Array) -> Array:
        """Return how far each axis must rise to bring its vector into the cone; zero inside.

        Large vectors on the boundary may be outside by less than the round-off of ``t - ||v||``. There the
        squares are subtracted exactly.
        """
        least, axis = self.least_eigenvalues(x), x[self.starts]
        on_boundary = (
            (axis > 0) & (axis < _LARGEST_ROOT) & (np.abs(least) <= 4 * EPS * self.dimensions * axis)
        )
        if on_boundary.any():
            square, error = _square(np.where(np.abs(x) < 2 * _LARGEST_ROOT, x, 0.0))
            terms = np.column_stack([square, error])
            terms *= self.J[:, None]
            for k in on_boundary.nonzero()[0]:
                own = terms[self.starts[k] :][: self.dimensions[k]]
                least[k] = math.fsum(own.ravel().tolist()) / (2 * axis[k])
        return np.maximum(-least, 0.0)

    def determinants(self, x: Array) -> Array:
        """Return ``t^2 - ||v||^2``, the product of the eigenvalues."""
        axis, norms = x[self.starts], self.tail_norms(x)
        determinants: Array = (axis - norms) * (axis + norms)
        return determinants

    def inverse(self, x: Array) -> Array:
        """Return ``(t, -v) / (t^2 - ||v||^2)`` of vectors inside their cones."""
        inverse: Array = self.J * x / self.determinants(x)[self.owner]
        return inverse

    def raised(self, x: Array, rise: Array) -> Array:
        """Return the vectors with a number added to each axis."""
        raised = x.copy()
        raised[self.starts] += rise
        return raised

    def projected(self, x: Array) -> Array:
        """Return the nearest vectors in the cones."""
        axis, norms = x[self.starts], self.tail_norms(x)
        inside, polar = norms <= axis, norms <= -axis
        half = (axis + norms) / 2
        share = np.divide(half, norms, out=np.zeros_like(half), where=norms > 0)
        projected: Array = x * np.where(inside, 1.0, np.where(polar, 0.0, share))[self.owner]
        projected[self.starts] = np.where(inside, axis, np.where(polar, 0.0, half))
        return projected

    def clipped(self, u: Array) -> Array:
        """Return all variables, those in cones moved to the nearest vectors there."""
        if not self.count:
            return u
        clipped = u.copy()
        clipped[self.index] = self.projected(u[self.index])
        return clipped

    def renumbered(self, number: IntArray) -> SecondOrderCones:
        """Return the cones of variables with new numbers, ``number[j]`` for variable ``j``."""
        return SecondOrderCones(number[self.index], self.dimensions) if self.count else self


NO_CONES = SecondOrderCones(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))


def boost_factor(q: Any, norm: Any, count: Any) -> Any:
    """Return ``f`` for which ``f q`` and ``t / f`` are about as large where ``q t >= ||x||^2`` is tight.

    Parameters
    ----------
    q, norm : float or array
        Constants above zero; the norms, above zero, of the constants of ``x``.
    count : int or int array
        Numbers of elements of ``x``. The constant of one alone may be small by chance; ``f`` is then at
        least one.
    """
    f = np.exp2(np.round(np.log2(_DISTANCE * norm / q)))  # powers of two round no number
    return np.where(count == 1, np.maximum(f, 1.0), f)


# --- Faces of the psd cone ----------------------------------------------------------------------------------


class Face:
    """The psd matrices of order `n` with the given directions in their null space, a face of the cone.

    ``X = V M V'``, where ``V`` is an orthonormal basis of the complement of the directions. ``V`` is not
    formed: it is the last columns of an orthogonal ``Q = I - Y T Y'`` (Schreiber and Van Loan 1989). So
    mapping a matrix to the face and back costs ``n^2`` times the number of directions.

    Parameters
    ----------
    directions : array of shape (n, q)
        Linearly independent; none, ``q = 0``, for the whole cone.
    """

    def __init__(self, directions: Array) -> None:
        n, q = directions.shape
        self.n, self.codimension = n, q
        if q == 0:
            return
        (packed, tau), _ = scipy.linalg.qr(directions, mode="raw")
        self._Y = np.tril(packed[:, :q], -1) + np.eye(n, q)
        self._Y[:, tau == 0] = 0.0  # no reflection
        tau = np.where(tau == 0, 1.0, tau)
        self._T = np.linalg.inv(np.triu(self._Y.T @ self._Y, 1) + np.diag(1 / tau))

    @classmethod
    @cache
    def whole(cls, n: int) -> Face:
        """Return the whole cone."""
        return cls(np.zeros((n, 0)))

    @property
    def order(self) -> int:
        """The order of ``M``."""
        return self.n - self.codimension

    @property
    def basis(self) -> Array:
        """``V``, shape ``(n, order)``."""
        return self.embed(np.eye(self.order))

    def project(self, W: Array) -> Array:
        """Return ``V' W``."""
        if self.codimension == 0:
            return W
        turned = W - self._Y @ (self._T.T @ (self._Y.T @ W))
        return turned[self.codimension :]

    def embed(self, W: Array) -> Array:
        """Return ``V W``."""
        if self.codimension == 0:
            return W
        padded = np.concatenate([np.zeros((self.codimension, *W.shape[1:])), W])
        return padded - self._Y @ (self._T @ (self._Y.T @ padded))

    def compress(self, S: Array) -> Array:
        """Return ``V' S V`` for a symmetric matrix."""
        q = self.codimension
        if q == 0:
            return S
        Y, T = self._Y, self._T
        W = S @ Y @ T
        W -= Y @ (T.T @ (Y.T @ W)) / 2
        return _less_both(np.array(S[q:, q:]), W[q:], Y[q:])

    def lift(self, M: Array) -> Array:
        """Return ``V M V'``."""
        q = self.codimension
        if q == 0:
            return M
        Y, T = self._Y, self._T
        S = np.zeros((self.n, self.n))
        S[q:, q:] = M
        W = S @ Y @ T.T
        W -= Y @ (T @ (Y.T @ W)) / 2
        return _less_both(S, W, Y)


def _less_both(S: Array, W: Array, Y: Array) -> Array:
    """Return ``S - W Y' - Y W'``, overwriting the symmetric `S`."""
    if len(S) == 0:
        return S
    both, other = np.concatenate((W, Y), axis=1), np.concatenate((Y, W), axis=1)
    less: Array = blas.dgemm(-1.0, both, other, 1.0, S.T, trans_b=1, overwrite_c=1)
    return less.T
