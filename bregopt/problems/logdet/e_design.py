"""E-optimal weights, as the multipliers of a semidefinite program."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.modeling.atoms import quad_form, trace
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.inner_products import inner
from bregopt.modeling.objectives import Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.psd import PSD
from bregopt.modeling.variables import Variable
from bregopt.problems.logdet.candidates import Candidates
from bregopt.problems.logdet.weight_bounds import WeightBounds

__all__ = ["e_weights"]

_FINE = 1e-9  # largest tolerance of the program: its multipliers are less accurate than its value


def e_weights(
    candidates: Candidates, bounds: WeightBounds, prior: Array, tol: float
) -> tuple[Array, Array, Array, int]:
    """Return weights of a large smallest eigenvalue, and what bounds it for all weights.

    The smallest eigenvalue of ``M(u)`` is at most ``<M(u), Z>`` for each psd ``Z`` of trace one. The program
    minimizes the largest such value of the polytope, which is ``t`` and the cost of bounds and budgets. The
    weights above their lower bounds are the multipliers of its rows ``<M_i, Z> <= t + p_i + (C'y)_i``.

    Parameters
    ----------
    candidates : Candidates
        Matrices with traces of about one.
    bounds : WeightBounds
    prior : array of shape (n, n)
    tol : float

    Returns
    -------
    u : array of shape (m,)
    Z : array of shape (n, n)
    prices : array of shape (r,)
        ``y``.
    steps : int
    """
    given = prior + candidates.information(bounds.lower)
    left = bounds.total - float(bounds.lower.sum())
    Z, t = PSD(candidates.n, name="Z"), Variable(name="t")
    sensitivity = quad_form(candidates.X, Z) if candidates.are_rows else inner(candidates.X, Z)
    price: Any = t
    cost: Any = left * t + inner(given, Z)
    room = np.minimum(bounds.upper - bounds.lower, left)
    if np.isfinite(bounds.upper).any():
        p = Variable(len(candidates), nonneg=True, name="p")
        price, cost = price + p, cost + room @ p
    if len(bounds.budget):
        y = Variable(len(bounds.budget), nonneg=True, name="y")
        price, cost = price + bounds.costs.T @ y, cost + (bounds.budget - bounds.costs @ bounds.lower) @ y
    rows: list[Constraint] = [sensitivity <= price, trace(Z) == 1]
    sol = Problem(Minimize(cost), rows).solve(tol=min(tol, _FINE))
    if sol.X is None or sol.duals is None:
        return bounds.inside(), np.eye(candidates.n), np.zeros(len(bounds.budget)), sol.iterations
    u = bounds.lower + np.maximum(np.atleast_1d(sol.duals[0]), 0.0)
    prices = np.maximum(np.atleast_1d(sol.u["y"]), 0.0) if len(bounds.budget) else np.zeros(0)
    return u, np.asarray(sol.X), prices, sol.iterations
