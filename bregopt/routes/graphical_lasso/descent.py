"""Newton's method with the penalty, for one connected part: a model, and a search along its direction.

The method is that of Hsieh, Sustik, Dhillon, Ravikumar (2014), QUIC: Quadratic Approximation for Sparse
Inverse Covariance Estimation, JMLR 15, with another method for the model (:mod:`.model`). A step costs a
factorization for each trial length, an inverse, and the products of the model.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.graphical_lasso import LassoData, clipped
from bregopt.clock import checkpoint
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.routes.graphical_lasso.face import Face, face_of
from bregopt.routes.graphical_lasso.model import NewtonModel
from bregopt.routes.graphical_lasso.point import LassoPoint, ascended, with_dual
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
        self._prices = data.prices.astype(kind)
        self._noise = tuning.value_noise * data.n * float(np.finfo(kind).eps)
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
        tuning = self._tuning
        face = face_of((self.X != 0) | (np.abs(self._gradient) > self._penalty), self.X.dtype.type, tuning)
        gradient, prices, x = (face.part(M) for M in (self._gradient, self._prices, self.X))
        y = self._modeled(face, x, gradient, prices, decrease)
        d = y - x
        slope = face.inner(gradient, d) + face.inner(prices, np.abs(y) - np.abs(x))
        t = 1.0
        while t >= tuning.shortest_step and slope < 0:
            new = face.matrix(y if t == 1 else x + t * d)
            value, root = self._evaluated(new)
            if root is not None and value <= self._value + tuning.least_decrease * t * slope + self._noise:
                self._move(new, value, root)
                return
            t /= 2
        self.stuck = True

    def _modeled(self, face: Face, x: Any, gradient: Any, prices: Any, decrease: float) -> Any:
        """Return a point that reduces the model; products of large matrices are in single precision."""
        kind: Any = np.float32 if len(self.X) >= self._tuning.single_order else np.float64
        X, W = self.X.astype(kind, copy=False), self._W.astype(kind, copy=False)
        model = NewtonModel(face, X, W, x, gradient, prices, self._length, self._tuning)
        model.minimize(max(decrease, self._tuning.model_decrease))
        self._length = model.length
        return model.y

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
