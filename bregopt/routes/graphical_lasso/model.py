"""The quadratic model of the log-determinant with the penalty, minimized by conjugate gradients on faces.

At ``X`` with the inverse ``W`` the model of the objective at ``Y`` is

    <G, Y - X> + <Y - X, W (Y - X) W> / 2 + sum_ij P_ij |Y_ij|,    G = S - W.

A round is one proximal gradient step, which finds the signs, and conjugate gradients on the face of the
orthant with these signs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.clock import checkpoint
from bregopt.routes.graphical_lasso.face import Face
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["minimize_model"]


def minimize_model(X: Array, W: Array, G: Array, penalty: Array, tuning: LassoTuning) -> tuple[Array, Array]:
    """Return an approximate minimizer ``Y`` of the model and the product ``W (Y - X) W``.

    The data are in the precision in which the method computes.

    Parameters
    ----------
    X, W : array of shape (n, n)
        A positive definite matrix and its inverse.
    G, penalty : array of shape (n, n)
    tuning : LassoTuning

    Raises
    ------
    CutShort
        If the work is to end.
    """
    model = _Model(X, W, G, penalty, tuning)
    first = model.residual()
    while model.products < tuning.model_products:
        checkpoint()
        if not model.proximal_step():
            break
        model.face_step()
        if model.residual() <= tuning.model_decrease * first:
            break
    return model.Y, model.Q


class _Model:
    """A point ``Y`` with ``Q = W (Y - X) W`` and the gradient ``G + Q`` of the smooth part."""

    def __init__(self, X: Array, W: Array, G: Array, penalty: Array, tuning: LassoTuning) -> None:
        self._X, self._W, self._G, self._penalty, self._tuning = X, W, G, penalty, tuning
        self._number = W.dtype.type
        self._length = 1.0  # of the proximal step
        self.Y, self.Q, self._gradient = X.copy(), np.zeros_like(X), G
        self.products = 0

    def residual(self) -> float:
        """Return the norm of the proximal gradient step of length one."""
        step = self._proximal_point(1.0)
        step -= self.Y
        return float(np.linalg.norm(step))

    def proximal_step(self) -> bool:
        """Take one proximal gradient step of Barzilai and Borwein's length; False at the minimizer."""
        new = self._proximal_point(self._length)
        E = new - self.Y
        change = float(np.vdot(self._gradient, E)) + self._paid(new) - self._paid(self.Y)
        face = Face(E != 0, self._tuning)
        d = face.part(E)
        product = self._whole_product(face, d)
        curvature = face.inner(d, face.part(product))
        if curvature <= 0 or change >= 0:
            return False
        self._length = face.inner(d, d) / curvature
        self._move(face, d, product, min(1.0, -change / curvature))
        return True

    def face_step(self) -> None:
        """Move to an approximate minimizer over a face of the orthant.

        The face has the entries that are not zero, with their signs, and those that descend from zero.
        """
        mask = (self.Y != 0) | (np.abs(self._gradient) > self._penalty)
        face = Face(mask, self._tuning)
        slope, y = face.part(self._gradient), face.part(self.Y)
        signs = np.where(y == 0, -np.sign(slope), np.sign(y))
        g = slope + face.part(self._penalty) * signs
        d = self._conjugate_gradients(face, g, y, signs)
        changed = (y + d) * signs < 0
        if changed.any():
            d = np.where(changed, -y, d)
            if face.inner(g, d) >= 0:  # the projection of a descent direction need not be one
                d = np.where(g * d < 0, d, 0)
        product = self._whole_product(face, d)
        fall, curvature = -face.inner(g, d), face.inner(d, face.part(product))
        if fall > 0 and curvature > 0:
            self._move(face, d, product, min(1.0, fall / curvature))

    def _conjugate_gradients(self, face: Face, g: Array, y: Array, signs: Array) -> Array:
        """Return an approximate minimizer of the model on the face, less ``Y``.

        ``X R X`` is the preconditioner: on the space of all symmetric matrices it inverts the Hessian.
        """
        tuning = self._tuning
        r, d = -g, np.zeros_like(g)
        enough = tuning.face_decrease**2 * face.inner(g, g)
        p = z = face.congruence(self._X, r)
        rz = face.inner(r, z)
        for _ in range(tuning.face_steps):
            q = face.congruence(self._W, p)
            self.products += 1
            curvature = face.inner(p, q)
            if not curvature > 0:
                break
            step = self._number(rz / curvature)
            d += step * p
            r -= step * q
            if np.count_nonzero((y + d) * signs < 0) > tuning.changed_signs * len(d):
                break
            if face.inner(r, r) <= enough:
                break
            z = face.congruence(self._X, r)
            before, rz = rz, face.inner(r, z)
            p = z + self._number(rz / before) * p
        return d

    def _whole_product(self, face: Face, d: Array) -> Array:
        """Return all of ``W D W``."""
        self.products += 1
        product: Array = self._W @ face.times(d, self._W)
        return product

    def _move(self, face: Face, d: Array, product: Array, length: float) -> None:
        t = self._number(length)
        face.add(self.Y, t * d)
        self.Q += t * product
        self._gradient = self._G + self.Q

    def _proximal_point(self, length: float) -> Any:
        t = self._number(length)
        Z = self.Y - t * self._gradient
        reach = t * self._penalty
        Z -= np.clip(Z, -reach, reach)
        return Z

    def _paid(self, Y: Any) -> float:
        paid = np.abs(Y)
        np.multiply(paid, self._penalty, out=paid, where=paid > 0)
        return float(paid.sum())
