"""Newton's method with the penalty, for one connected part: a model, and a search along its direction.

The method is that of Hsieh, Sustik, Dhillon, Ravikumar (2014), QUIC: Quadratic Approximation for Sparse
Inverse Covariance Estimation, JMLR 15, with another method for the model. A step costs a factorization for
each trial length, an inverse, and the products of the model.

The quadratic model, which is due to the same authors, is on the entries that may be free. Proximal gradient
steps with the length of Barzilai and Borwein find the signs of the entries. A face step minimizes with these
signs by conjugate gradients, and so overcomes the condition of the model. Each product with the Hessian costs
a fraction of the Cholesky factorization and inverse of a step on the objective itself. Conjugate gradients on
orthant faces are those of Olsen, Oztoprak, Nocedal, Rennie (2012), Newton-Like Methods for Sparse Inverse
Covariance Estimation, NeurIPS 25, and the gradient steps those of Wright, Nowak, Figueiredo (2009), Sparse
Reconstruction by Separable Approximation, IEEE Trans. Signal Process. 57.

A face holds the symmetric matrices that are zero outside given entries. The model takes few operations on
these beside the products ``M D M``, of which it needs the given entries only. Where these are few, a matrix
is the vector of its entries on and above the diagonal, and the products are sparse. Where they are many, or
the order is small, it is a matrix.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, Mask
from bregopt.clock import checkpoint
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.records import replace
from bregopt.routes.graphical_lasso.problem import (
    LassoData,
    LassoPoint,
    ascended,
    clipped,
    with_dual,
)

# Proximal gradient steps on the model before a step on a face. With 3 the time is a twentieth longer.
_GRADIENT_STEPS = 4
# Least ratio of the proximal residual at which the model is minimized enough. From 0.3 to 0.6 the time is
# the same. Where a larger one is enough for the goal, that one counts.
_MODEL_DECREASE = 0.4
# Products with the Hessian after which a model is left.
_MODEL_PRODUCTS = 24
# Increase of the objective that counts as round-off, in units of the order times the machine precision.
_VALUE_NOISE = 8.0
# Ratio of the residual at which conjugate gradients on a face end. With 0.15 the time is a fortieth
# longer.
_FACE_DECREASE = 0.3
# Limit on conjugate gradient steps on a face.
_FACE_STEPS = 12
# Fraction of a face's entries that may change their sign before conjugate gradients on it end. The result
# is projected on the face, so more of them spoil it.
_CHANGED_SIGNS = 0.1
# Least change of the objective in the line searches, relative to that of their models (Armijo).
_LEAST_DECREASE = 1e-4
# Fraction of a Newton step below which the method is stuck.
_SHORTEST_STEP = 1e-4
# Order from which products are in single precision. With 100 orders from 50 take a sixth more time.
SINGLE_ORDER = 40
# Order from which products with matrices of a sparse face are sparse: below it dense ones are as fast.
_SPARSE_ORDER = 80
# Largest density of such a face.
_SPARSE_DENSITY = 0.25


class Descent:
    """The method from a point on, in single or in double precision.

    Parameters
    ----------
    data : LassoData
        The diagonal of ``S`` and penalty is one.
    at : LassoPoint
    single : bool
        Whether all numbers are in single precision. They are estimates then.
    """

    def __init__(self, data: LassoData, at: LassoPoint, single: bool) -> None:
        kind: Any = np.float32 if single else np.float64
        self.single = single
        self._S, self._penalty = data.S.astype(kind), data.penalty.astype(kind)
        self._prices = data.prices.astype(kind)
        self._noise = _VALUE_NOISE * data.n * float(np.finfo(kind).eps)
        self._length: float | None = None  # of the gradient steps of the next model
        self.estimate = math.inf
        self.stuck = False  # whether no step reduces the objective
        self.X: Any = at.X.astype(kind)
        value, root = self._evaluated(self.X)
        if root is None:  # rounded to single precision, it may be indefinite
            self.stuck = True
        else:
            self._move(self.X, value, root)

    def round(self, enough: float) -> bool:
        """Take a step; True where the estimate of the gap is low enough."""
        if not self.stuck and self.estimate > enough:
            checkpoint(len(self.X))
            self._step(math.sqrt(enough / self.estimate))
        return not self.stuck and self.estimate <= enough

    def proven(self, data: LassoData, at: LassoPoint) -> LassoPoint:
        """Return the better of a certified point and this one, primal and dual apart.

        An inverse in single precision is as good a dual point: each point of the box proves a bound.
        """
        if math.isinf(self.estimate):  # it did not start
            return at
        X, W = self.X.astype(np.float64, copy=False), self._W.astype(np.float64, copy=False)
        root = root_of(X) if self.single else self._root
        if root is None:
            self.stuck = True
            return at
        value = data.value(X, root)
        if value < at.value:
            at = replace(at, X=X, value=value)
        return with_dual(data, at, ascended(X, data.S - W))

    def _estimated(self) -> float:
        """Return the gap that the dual point of :meth:`proven` would prove, to second order.

        The second-order term takes the diagonal of ``X`` for the whole.
        """
        U = clipped(ascended(self.X, self._gradient), self._penalty)
        linear = self._paid - float(np.vdot(self.X, U))
        U += self._gradient
        U *= U
        scale = self.X.diagonal()
        return linear + 0.5 * float(scale @ (U @ scale))

    def _step(self, decrease: float) -> None:
        """Minimize the model and go along its direction as far as the objective falls enough.

        The gap is of second order in the residual of the model, of which `decrease` is the ratio to reach.
        """
        face = face_of((self.X != 0) | (np.abs(self._gradient) > self._penalty), self.X.dtype.type)
        gradient, prices, x = (face.part(M) for M in (self._gradient, self._prices, self.X))
        # Products of large matrices are in single precision.
        kind: Any = np.float32 if len(self.X) >= SINGLE_ORDER else np.float64
        X, W = self.X.astype(kind, copy=False), self._W.astype(kind, copy=False)
        model = NewtonModel(face, X, W, x, gradient, prices, self._length)
        model.minimize(max(decrease, _MODEL_DECREASE))
        self._length = model.length
        y = model.y
        d = y - x
        slope = face.inner(gradient, d) + face.inner(prices, np.abs(y) - np.abs(x))
        t = 1.0
        while t >= _SHORTEST_STEP and slope < 0:
            new = face.matrix(y if t == 1 else x + t * d)
            value, root = self._evaluated(new)
            if root is not None and value <= self._value + _LEAST_DECREASE * t * slope + self._noise:
                self._move(new, value, root)
                return
            t /= 2
        self.stuck = True

    def _evaluated(self, X: Any) -> tuple[float, Array | None]:
        root = root_of(X)
        if root is None:
            return math.inf, None
        self._new_paid = float(np.vdot(self._prices, np.abs(X)))
        return float(np.vdot(self._S, X)) + self._new_paid - log_det(root), root

    def _move(self, X: Any, value: float, root: Array) -> None:
        self.X, self._root, self._paid = X, root, self._new_paid
        self._value = value
        self._W = np.ascontiguousarray(inverse_of(root).T)
        self._gradient = self._S - self._W
        self.estimate = self._estimated()


class NewtonModel:
    """``<G, Y - X> + <Y - X, W (Y - X) W> / 2 + sum P_ij |Y_ij|`` for vectors ``Y`` of a face.

    Parameters
    ----------
    face : Face
    X, W : array of shape (n, n)
        A positive definite matrix and its inverse; the diagonal of ``W`` is near one.
    x, gradient, penalty : array
        Vectors of the face.
    length : float or None
        Of the first gradient step; None takes that of steepest descent.

    Attributes
    ----------
    y : array
        The point so far, from `x` on.
    length : float or None
        Of the next gradient step.
    """

    def __init__(
        self,
        face: Face,
        X: Array,
        W: Array,
        x: Array,
        gradient: Array,
        penalty: Array,
        length: float | None,
    ) -> None:
        self._face, self._X, self._W, self._penalty = face, X, W, penalty
        self.y: Any = x
        self._gradient: Any = gradient  # of the quadratic part, at y
        self.length, self._steps, self._products = length, 0, 0
        self._values = [0.0]  # of the last few points, less that of x

    def minimize(self, decrease: float) -> None:
        """Reduce the proximal residual to a fraction, within a number of products."""
        enough = decrease * self._residual()
        while True:
            for _ in range(_GRADIENT_STEPS):
                self._gradient_step()
            if self._products >= _MODEL_PRODUCTS or self._residual() <= enough:
                return
            self._face_step()
            if self._residual() <= enough:
                return

    def _residual(self) -> float:
        """Return the norm of the proximal gradient step of length one: the Hessian's diagonal is near one."""
        e = self.y - _shrunk(self.y - self._gradient, self._penalty)
        return math.sqrt(self._face.inner(e, e))

    def _times(self, M: Array, d: Any) -> Any:
        """Return ``M D M``, in the precision of `M`."""
        self._products += 1
        return self._face.congruence(M, d.astype(M.dtype, copy=False))

    def _steepest(self) -> tuple[Any, Any]:
        """Return the subgradient of least norm, and the signs after a short step against it."""
        g, p = self._gradient, self._penalty
        signs = np.sign(np.where(self.y == 0, -_shrunk(g, p), self.y))
        return (g + p * signs) * (signs != 0), signs

    def _gradient_step(self) -> None:
        """Take a proximal gradient step, shortened if the value is above that of the last few points."""
        face = self._face
        if self.length is None:
            v, _ = self._steepest()
            self.length = face.inner(v, v) / max(face.inner(v, self._times(self._W, v)), TINY)
        t = self.length
        e = _shrunk(self.y - t * self._gradient, t * self._penalty)
        e -= self.y
        change = self._times(self._W, e)
        curvature = face.inner(e, change)
        if not curvature > 0:
            self.length = None
            return
        size = face.inner(e, e)
        slope = -size / t  # the change of linear part and penalty is at most that, and mostly that
        above = self._values[-1] + slope + curvature / 2 > max(self._values)
        self._move(e, change, slope, curvature, min(1.0, -slope / curvature) if above else 1.0)
        self._steps += 1  # the two lengths of Barzilai and Borwein, in turns
        odd = self._steps % 2
        self.length = size / curvature if odd else curvature / max(face.inner(change, change), TINY)

    def _face_step(self) -> None:
        """Minimize with the signs of the entries fixed; entries that change it become zero."""
        steepest, signs = self._steepest()
        d, change = self._conjugate_gradients(-steepest, signs)
        z = self.y + d
        crossed = z * signs < 0
        if crossed.any():
            z[crossed] = 0
            d = z - self.y
            change = self._times(self._W, d)
        slope, curvature = self._face.inner(steepest, d), self._face.inner(d, change)
        if slope < 0 < curvature:  # the penalty is linear on the face
            self._move(d, change, slope, curvature, min(1.0, -slope / curvature))
            self._values = self._values[-1:]

    def _conjugate_gradients(self, r: Any, signs: Any) -> tuple[Any, Any]:
        """Return an approximate Newton direction on a face of the orthant and its product with the Hessian.

        ``X R X`` is the preconditioner: on the space of all symmetric matrices it inverts the Hessian.
        """
        face = self._face
        free = (signs != 0).astype(r.dtype)
        d, change, p, start = np.zeros_like(r), np.zeros_like(r), np.zeros_like(r), self.y
        enough = _FACE_DECREASE**2 * face.inner(r, r)
        allowed = _CHANGED_SIGNS * np.count_nonzero(free)
        rz = math.inf
        for _ in range(_FACE_STEPS):
            z = self._times(self._X, r)
            z *= free
            before, rz = rz, face.inner(r, z)
            if not rz > 0:
                break
            p *= rz / before
            p += z
            q = self._times(self._W, p)
            curvature = face.inner(p, q)
            if not curvature > 0:
                break
            step = rz / curvature
            d += step * p
            change += step * q
            q *= step * free
            r -= q
            if np.count_nonzero((start + d) * signs < 0) > allowed or face.inner(r, r) <= enough:
                break
        return d, change

    def _move(self, e: Any, change: Any, slope: float, curvature: float, t: float) -> None:
        """Go the fraction `t` of a step `e`, whose product with the Hessian is `change`."""
        if t < 1:
            e, change = t * e, t * change
        self.y = self.y + e
        self._gradient = self._gradient + change
        self._values.append(self._values[-1] + t * slope + t * t * curvature / 2)


def _shrunk(a: Any, reach: Any) -> Any:
    """Return the numbers, nearer to zero by at most `reach`."""
    return a - clipped(a, reach)


def face_of(mask: Mask, kind: Any) -> Face:
    """Return the space of matrices that are zero outside a symmetric mask, with numbers of type `kind`."""
    n = len(mask)
    sparse = n >= _SPARSE_ORDER and np.count_nonzero(mask) < _SPARSE_DENSITY * n**2
    return SparseFace(mask, kind) if sparse else DenseFace(mask, kind)


class DenseFace:
    """The space; an element of it is a matrix.

    Parameters
    ----------
    mask : array of bool, shape (n, n)
        Symmetric.
    kind : dtype
    """

    def __init__(self, mask: Mask, kind: Any) -> None:
        self._mask = mask.astype(kind)

    def part(self, M: Array) -> Any:
        """Return the element that has the given entries of a symmetric matrix."""
        return M * self._mask

    def inner(self, a: Array, b: Array) -> float:
        """Return the inner product of two matrices."""
        return float(np.vdot(a, b))

    def matrix(self, d: Array) -> Any:
        """Return an element as a matrix, symmetric in spite of round-off."""
        half = np.triu(d, 1)
        M: Any = half + half.T
        np.fill_diagonal(M, d.diagonal())
        return M

    def congruence(self, M: Array, d: Array) -> Any:
        """Return the element that has the given entries of ``M D M``, for a symmetric `M`."""
        product = M @ (d @ M)
        product *= self._mask
        return product


class SparseFace:
    """The space; an element of it is the vector of the entries on and above the diagonal.

    Parameters
    ----------
    mask : array of bool, shape (n, n)
        Symmetric.
    kind : dtype
    """

    def __init__(self, mask: Mask, kind: Any) -> None:
        n = len(mask)
        entries = np.flatnonzero(mask)
        rows, columns = np.divmod(entries, n)
        upper = rows <= columns
        self._above, self._below = entries[upper], columns[upper] * n + rows[upper]
        self._twice = np.where(rows[upper] == columns[upper], kind(1), kind(2))
        number = np.empty(n * n, np.intp)
        number[self._above] = number[self._below] = np.arange(len(self._above))
        self._number = number.take(entries)  # of each entry of the matrix, among those of the vector
        starts = np.searchsorted(rows, np.arange(n + 1))
        self._matrix = sp.csr_array((np.zeros(len(rows), kind), columns, starts), mask.shape)

    def part(self, M: Array) -> Any:
        """Return the element that has the given entries of a symmetric matrix."""
        return M.ravel(order="K").take(self._above)

    def inner(self, a: Array, b: Array) -> float:
        """Return the inner product of two matrices."""
        return float(np.vdot(self._twice * a, b))

    def matrix(self, d: Array) -> Any:
        """Return an element as a matrix."""
        M = np.zeros(self._matrix.shape, d.dtype)
        flat = M.ravel()  # a view
        flat[self._above] = flat[self._below] = d
        return M

    def congruence(self, M: Array, d: Array) -> Any:
        """Return the element that has the given entries of ``M D M``, for a symmetric `M`."""
        self._matrix.data = d.take(self._number)
        return self.part(M @ (self._matrix @ M))


Face = DenseFace | SparseFace
