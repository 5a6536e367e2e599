"""One step of proximal Newton's method for a connected part of a sparse inverse covariance problem.

The minimizer ``Y`` of the quadratic model at ``X`` (:mod:`bregopt.routes.graphical_lasso.model`) gives a
descent direction, and the linearized inverse ``W - W (Y - X) W``, clipped to the box, a dual point. It proves
the new matrix without its inverse, one step before ``inv(X)`` itself would.

Newton's method on the quadratic model with the penalty is that of Hsieh, Sustik, Dhillon, Ravikumar (2014),
QUIC: Quadratic Approximation for Sparse Inverse Covariance Estimation, JMLR 15; conjugate gradients on
orthant faces are due to Olsen, Oztoprak, Nocedal, Rennie (2012), Newton-Like Methods for Sparse Inverse
Covariance Estimation, NeurIPS 25.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.graphical_lasso import LassoData
from bregopt.linalg import inverse_of, root_of
from bregopt.routes.graphical_lasso.model import minimize_model
from bregopt.routes.graphical_lasso.point import LassoPoint, symmetric, with_dual
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["newton_step"]


def newton_step(data: LassoData, at: LassoPoint, tuning: LassoTuning, single: bool) -> LassoPoint:
    """Return the point after one step; ``X`` stays where no step length reduces the objective.

    Parameters
    ----------
    data : LassoData
        The diagonal of ``S`` and penalty is one.
    at : LassoPoint
    tuning : LassoTuning
    single : bool
        Whether the model is in single precision; values and bounds are in double precision.
    """
    kind: Any = np.float32 if single else np.float64
    W = inverse_of(at.root)
    G = data.S - W
    X, P = np.ascontiguousarray(at.X, kind), data.penalty.astype(kind, copy=False)
    Y, Q = minimize_model(X, np.ascontiguousarray(W, kind), np.ascontiguousarray(G, kind), P, tuning)
    D = symmetric(Y) - at.X
    D[np.isinf(data.penalty)] = 0.0
    at = with_dual(data, at, W - symmetric(Q))
    expected = float(np.vdot(G, D)) + _penalty_change(data, at.X, D)
    t = 1.0
    while t >= tuning.shortest_step and expected < 0:
        new = at.X + t * D
        root = root_of(new)
        value = math.inf if root is None else data.value(new, root)
        if root is not None and value <= at.value + tuning.least_decrease * t * expected:
            return replace(at, X=new, root=root, value=value)
        t /= 2
    return at


def _penalty_change(data: LassoData, X: Array, D: Array) -> float:
    change = np.abs(X + D) - np.abs(X)
    np.multiply(change, data.penalty, out=change, where=change != 0)
    return float(change.sum())
