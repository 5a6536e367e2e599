"""The quadratic model of Newton's method with the penalty, on the entries that may be free.

Proximal gradient steps with the length of Barzilai and Borwein find the signs of the entries. A face step
minimizes with these signs by conjugate gradients, and so overcomes the condition of the model. Each product
with the Hessian costs a fraction of the Cholesky factorization and inverse of a step on the objective itself.

The quadratic model with the penalty is due to Hsieh, Sustik, Dhillon, Ravikumar (2014), QUIC: Quadratic
Approximation for Sparse Inverse Covariance Estimation, JMLR 15. Conjugate gradients on orthant faces are
those of Olsen, Oztoprak, Nocedal, Rennie (2012), Newton-Like Methods for Sparse Inverse Covariance
Estimation, NeurIPS 25, and the gradient steps those of Wright, Nowak, Figueiredo (2009), Sparse
Reconstruction by Separable Approximation, IEEE Trans. Signal Process. 57.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.certify.graphical_lasso import clipped
from bregopt.routes.graphical_lasso.face import Face
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["NewtonModel"]


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
    tuning : LassoTuning

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
        tuning: LassoTuning,
    ) -> None:
        self._face, self._X, self._W, self._penalty, self._tuning = face, X, W, penalty, tuning
        self.y: Any = x
        self._gradient: Any = gradient  # of the quadratic part, at y
        self.length, self._steps, self._products = length, 0, 0
        self._values = [0.0]  # of the last few points, less that of x

    def minimize(self, decrease: float) -> None:
        """Reduce the proximal residual to a fraction, within a number of products."""
        tuning = self._tuning
        enough = decrease * self._residual()
        while True:
            for _ in range(tuning.gradient_steps):
                self._gradient_step()
            if self._products >= tuning.model_products or self._residual() <= enough:
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
        face, tuning = self._face, self._tuning
        free = (signs != 0).astype(r.dtype)
        d, change, p, start = np.zeros_like(r), np.zeros_like(r), np.zeros_like(r), self.y
        enough = tuning.face_decrease**2 * face.inner(r, r)
        allowed = tuning.changed_signs * np.count_nonzero(free)
        rz = math.inf
        for _ in range(tuning.face_steps):
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
