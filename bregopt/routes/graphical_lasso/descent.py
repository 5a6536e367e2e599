"""Proximal gradient steps and Newton steps on faces of the orthant, in turns, for one connected part.

A proximal gradient step with the length of Barzilai and Borwein finds the signs of the entries; it costs a
Cholesky factorization and an inverse. A face step minimizes the quadratic model with these signs by conjugate
gradients, and so overcomes the condition of the problem. Both search along their direction for the objective
itself.

The gradient steps are those of Rolfs, Rajaratnam, Guillot, Wong, Maleki (2012), Iterative Thresholding
Algorithm for Sparse Inverse Covariance Estimation, NeurIPS 25, with the search of Wright, Nowak, Figueiredo
(2009), Sparse Reconstruction by Separable Approximation, IEEE Trans. Signal Process. 57. Conjugate gradients
on orthant faces are due to Olsen, Oztoprak, Nocedal, Rennie (2012), Newton-Like Methods for Sparse Inverse
Covariance Estimation, NeurIPS 25.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.graphical_lasso import LassoData
from bregopt.clock import checkpoint
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.routes.graphical_lasso.face import Face
from bregopt.routes.graphical_lasso.newton import newton_direction
from bregopt.routes.graphical_lasso.point import LassoPoint, with_dual
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["Descent"]


class Descent:
    """The method from a point on, in single or in double precision.

    Parameters
    ----------
    data : LassoData
        The diagonal of ``S`` and penalty is one.
    at : LassoPoint
    tuning : LassoTuning
    single : bool
        Whether all numbers are in single precision. They are estimates then.
    """

    def __init__(self, data: LassoData, at: LassoPoint, tuning: LassoTuning, single: bool) -> None:
        kind: Any = np.float32 if single else np.float64
        self.single, self._tuning = single, tuning
        self._S, self._penalty = data.S.astype(kind), data.penalty.astype(kind)
        self._prices = np.where(np.isinf(self._penalty), kind(0), self._penalty)
        self._noise = tuning.value_noise * data.n * float(np.finfo(kind).eps)
        self._length, self._steps, self._values = 1.0, 0, list[float]()
        self.estimate = math.inf
        self.stuck = False  # whether no step reduces the objective
        self.X: Any = at.X.astype(kind)
        value, root = self._evaluated(self.X)
        if root is None:  # rounded to single precision, it may be indefinite
            self.stuck = True
        else:
            self._move(self.X, value, root)

    def round(self, enough: float) -> bool:
        """Take some gradient steps and one face step; True where the estimate of the gap is low enough."""
        for _ in range(self._tuning.gradient_steps):
            if not self.stuck and self.estimate > enough:
                checkpoint(len(self.X))
                self._gradient_step()
        if not self.stuck and self.estimate > enough:
            checkpoint(len(self.X))
            self._face_step()
        return not self.stuck and self.estimate <= enough

    def proven(self, data: LassoData, at: LassoPoint) -> LassoPoint:
        """Return the better of a certified point and this one, primal and dual apart.

        An inverse in single precision is as good a dual point: each point of the box proves a bound.
        """
        if not self._values:  # it did not start
            return at
        X, W = self.X.astype(np.float64, copy=False), self._W.astype(np.float64, copy=False)
        root = root_of(X) if self.single else self._root
        if root is None:
            self.stuck = True
            return at
        value = data.value(X, root)
        if value < at.value:
            at = replace(at, X=X, root=root, value=value)
        return with_dual(data, at, W)

    def _estimated(self) -> float:
        """Return the gap that the inverse would prove, clipped to the box, to second order.

        The second-order term takes the diagonal of ``X`` for the whole.
        """
        U = np.clip(-self._gradient, -self._penalty, self._penalty)
        linear = self._paid - float(np.vdot(self.X, U))
        U += self._gradient
        U *= U
        scale = self.X.diagonal()
        return linear + 0.5 * float(scale @ (U @ scale))

    def _gradient_step(self) -> None:
        """Take a proximal gradient step; its value need only be below the largest of the last few."""
        tuning, reference = self._tuning, max(self._values)
        t = self._length
        while True:
            new = self.X - t * self._gradient
            reach = t * self._penalty
            new -= np.clip(new, -reach, reach)
            E = new - self.X
            size = float(np.vdot(E, E))
            value, root = self._evaluated(new)
            if root is not None and value <= reference - tuning.least_decrease * size / t + self._noise:
                break
            t /= 2
            if t < tuning.shortest_step:
                self.stuck = True
                return
        before, self._steps = self._gradient, self._steps + 1
        self._move(new, value, root)
        change = self._gradient - before
        curvature = float(np.vdot(E, change))
        if curvature > 0:  # the two lengths of Barzilai and Borwein, in turns
            odd = self._steps % 2
            self._length = size / curvature if odd else curvature / float(np.vdot(change, change))

    def _face_step(self) -> None:
        """Take a Newton step with the signs of the entries fixed; those that change it become zero."""
        tuning = self._tuning
        face = Face((self.X != 0) | (np.abs(self._gradient) > self._penalty), tuning)
        slope, x = face.part(self._gradient), face.part(self.X)
        signs = np.where(x == 0, -np.sign(slope), np.sign(x))
        g = slope + face.part(self._prices) * signs
        d = newton_direction(face, self.X, self._W, g, x, signs, tuning)
        t = 1.0
        while t >= tuning.shortest_face_step:
            y = x + t * d
            y[y * signs < 0] = 0
            new = self.X.copy()
            face.set(new, y)
            value, root = self._evaluated(new)
            decrease = -tuning.least_decrease * face.inner(g, y - x)
            if root is not None and value <= self._values[-1] - decrease + self._noise:
                self._values = []
                self._move(new, value, root)
                self._length = min(self._length, 1.0)
                return
            t /= 2

    def _evaluated(self, X: Any) -> tuple[float, Array | None]:
        root = root_of(X)
        if root is None:
            return math.inf, None
        self._new_paid = float(np.vdot(self._prices, np.abs(X)))
        return float(np.vdot(self._S, X)) + self._new_paid - log_det(root), root

    def _move(self, X: Any, value: float, root: Array) -> None:
        self.X, self._root, self._paid = X, root, self._new_paid
        self._values.append(value)
        self._W = inverse_of(root)
        self._gradient = self._S - self._W
        self.estimate = self._estimated()
