"""The quadratic model of the log-determinant with the penalty, minimized by conjugate gradients on faces.

At ``X`` with the inverse ``W`` the model of the objective at ``Y`` is

    <G, Y - X> + <Y - X, W (Y - X) W> / 2 + sum_ij P_ij |Y_ij|,    G = S - W.

A round is one proximal gradient step, which finds the signs, and conjugate gradients on the face of the
orthant with these signs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.clock import checkpoint
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["minimize_model"]

_Product = Callable[[Any], Any]


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
        self._W, self._G, self._penalty, self._tuning = W, G, penalty, tuning
        self._X: Any = sp.csr_array(X) if self._is_sparse(X) else X
        self._number = W.dtype.type
        self._length = 1.0  # of the proximal step
        self.Y, self.Q, self._gradient = X, np.zeros_like(X), G
        self.products = 0

    def residual(self) -> float:
        """Return the norm of the proximal gradient step of length one."""
        return float(np.linalg.norm(self._proximal_point(1.0) - self.Y))

    def proximal_step(self) -> bool:
        """Take one proximal gradient step of Barzilai and Borwein's length; False at the minimizer."""
        new = self._proximal_point(self._length)
        E = new - self.Y
        change = float(np.vdot(self._gradient, E)) + self._paid(new) - self._paid(self.Y)
        product = self._product(E)
        curvature = float(np.vdot(E, product))
        if curvature <= 0 or change >= 0:
            return False
        self._length = float(np.vdot(E, E)) / curvature
        self._move(E, product, min(1.0, -change / curvature))
        return True

    def face_step(self) -> None:
        """Move to an approximate minimizer over the face of the orthant with the signs at hand."""
        slope, tuning = self._gradient, self._tuning
        zero = self.Y == 0
        face = ~zero | (np.abs(slope) > self._penalty)
        on_face = face.astype(slope.dtype)
        signs = np.where(zero, -np.sign(slope), np.sign(self.Y)) * on_face
        g = slope * on_face
        g += np.where(face, self._penalty, 0) * signs
        product = self._face_product(face)
        size, count = float(np.vdot(g, g)), int(np.count_nonzero(face))
        r, D, QD = -g, np.zeros_like(g), np.zeros_like(g)
        z = self._precondition(r) * on_face
        p, rz = z, float(np.vdot(r, z))
        changed = np.zeros(g.shape, dtype=bool)
        for _ in range(tuning.face_steps):
            q = product(p)
            curvature = float(np.vdot(p, q))
            if not curvature > 0:
                break
            step = self._number(rz / curvature)
            D += step * p
            QD += step * q
            q *= on_face
            q *= step
            r -= q
            changed = (self.Y + D) * signs < 0
            if np.count_nonzero(changed) > tuning.changed_signs * count:
                break
            if float(np.vdot(r, r)) <= tuning.face_decrease**2 * size:
                break
            z = self._precondition(r)
            z *= on_face
            before, rz = rz, float(np.vdot(r, z))
            p *= self._number(rz / before)
            p += z
        if changed.any():
            D = np.where(changed, -self.Y, D)
            if float(np.vdot(g, D)) >= 0:  # the projection of a descent direction need not be one
                D = np.where(g * D < 0, D, 0)
            QD = product(D)
        fall, curvature = -float(np.vdot(g, D)), float(np.vdot(D, QD))
        if fall > 0 and curvature > 0:
            self._move(D, QD, min(1.0, fall / curvature))

    def _move(self, D: Any, product: Any, length: float) -> None:
        t = self._number(length)
        self.Y, self.Q = self.Y + t * D, self.Q + t * product
        self._gradient = self._G + self.Q

    def _proximal_point(self, length: float) -> Any:
        t = self._number(length)
        Z = self.Y - t * self._gradient
        reach = t * self._penalty
        return Z - np.clip(Z, -reach, reach)

    def _paid(self, Y: Any) -> float:
        paid = np.abs(Y)
        np.multiply(paid, self._penalty, out=paid, where=paid > 0)
        return float(paid.sum())

    def _is_sparse(self, P: Any) -> bool:
        if len(P) < self._tuning.sparse_order:
            return False
        return bool(np.count_nonzero(P) < self._tuning.sparse_density * P.size)

    def _product(self, P: Any) -> Any:
        """Return ``W P W``."""
        self.products += 1
        return self._W @ ((sp.csr_array(P) if self._is_sparse(P) else P) @ self._W)

    def _face_product(self, face: Any) -> _Product:
        """Return the function ``P -> W P W`` for matrices that are zero outside the face."""
        if not self._is_sparse(face):
            return self._product
        n, place = len(face), np.flatnonzero(face)
        start = np.searchsorted(place, n * np.arange(n + 1))
        held = sp.csr_array((np.zeros(len(place), self._W.dtype), place % n, start), shape=(n, n))

        def product(P: Any) -> Any:
            self.products += 1
            held.data = P.ravel()[place]
            return self._W @ (held @ self._W)

        return product

    def _precondition(self, R: Any) -> Any:
        """Return ``X R X``: on the space of all symmetric matrices the inverse of the Hessian."""
        half = self._X @ R
        return self._X @ half.T if sp.issparse(self._X) else half @ self._X
