"""The alternating direction method of multipliers for one connected part, for rough answers.

Each iteration takes one eigendecomposition, whatever the condition of the problem, where the quadratic model
of Newton's method takes many products. The scaled multiplier is in the box by construction, so it is a dual
point (Boyd, Parikh, Chu, Peleato, Eckstein 2011, Distributed Optimization and Statistical Learning via the
Alternating Direction Method of Multipliers, sections 3.4.1, 3.4.3, 6.5).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.certify.graphical_lasso import LassoData, clipped
from bregopt.linalg import root_of
from bregopt.routes.graphical_lasso.point import LassoPoint, symmetric
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["Splitting"]


class Splitting:
    """The method; it keeps the weight ``rho`` of its quadratic term from run to run.

    Parameters
    ----------
    data : LassoData
        The diagonal of ``S`` and penalty is one.
    tuning : LassoTuning
    """

    def __init__(self, data: LassoData, tuning: LassoTuning) -> None:
        self._data, self._tuning = data, tuning
        self._rho = 1.0

    def start(self, at: LassoPoint, single: bool) -> None:
        """Begin at a point, in single or in double precision."""
        kind: Any = np.float32 if single else np.float64
        self._number = kind
        self._S, self._penalty = self._data.S.astype(kind), self._data.penalty.astype(kind)
        self._Z, self._V = at.X.astype(kind), (at.U / self._rho).astype(kind)
        if np.count_nonzero(at.X) == self._data.n:  # the multipliers of a diagonal matrix lead astray
            self._V = np.zeros_like(self._Z)

    def advance(self, at: LassoPoint) -> LassoPoint:
        """Return the point after some iterations: the better of old and new, primal and dual apart."""
        for _ in range(self._tuning.splitting_steps):
            self._iterate()
        data = self._data
        U = data.clip(symmetric(self._number(self._rho) * self._V))
        bound = data.bound(U)
        if bound > at.bound:
            at = replace(at, U=U, bound=bound)
        X = symmetric(self._Z)
        root = root_of(X)
        value = math.inf if root is None else data.value(X, root)
        return at if root is None or value >= at.value else replace(at, X=X, value=value)

    def _iterate(self) -> None:
        rho, before, ratio = self._number(self._rho), self._Z, self._tuning.balance
        eigenvalues, Q = np.linalg.eigh(before - self._V - self._S / rho)
        positive = (eigenvalues + np.sqrt(eigenvalues**2 + 4 / rho)) / 2
        T = (Q * positive) @ Q.T
        relax = self._number(self._tuning.relaxation)
        A, reach = relax * T + (1 - relax) * before + self._V, self._penalty / rho
        self._V = clipped(A, reach)
        self._Z = A - self._V
        primal = _norm(T - self._Z) / max(_norm(T), _norm(self._Z))
        multiplier = _norm(self._V)
        dual = _norm(self._Z - before) / multiplier if multiplier else math.inf
        if primal > ratio * dual:
            self._rho *= 2
            self._V = self._V / 2
        elif dual > ratio * primal:
            self._rho /= 2
            self._V = self._V * 2


def _norm(M: Any) -> float:
    return float(np.linalg.norm(M))
