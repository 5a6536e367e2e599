"""The weights that a design may have: their sum is given, and they are within bounds and budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask, finite_array
from bregopt.errors import SolverError

__all__ = ["WeightBounds", "cheapest", "weight_bounds"]

_ROUND_OFF = 1e-12  # of sums of weights
_UNAFFORDABLE = 1e-7  # room below a budget that the tolerance of a linear program may hide, relative to costs


@dataclass(frozen=True, eq=False)
class WeightBounds:
    """The polytope ``lower <= u <= upper, sum(u) = total, costs @ u <= budget``.

    Parameters
    ----------
    lower, upper : arrays of shape (m,)
        ``upper`` is infinite where there is no bound.
    costs : array of shape (r, m)
    budget : array of shape (r,)
    total : float
    """

    lower: Array
    upper: Array
    costs: Array
    budget: Array
    total: float = 1.0

    @classmethod
    def simplex(cls, m: int) -> WeightBounds:
        """Return the bounds of weights that are only nonnegative."""
        return cls(np.zeros(m), np.full(m, np.inf), np.zeros((0, m)), np.zeros(0))

    @property
    def is_simplex(self) -> bool:
        """Whether weights are only nonnegative with sum one."""
        bounded = self.lower.any() or np.isfinite(self.upper).any() or len(self.budget)
        return not bounded and self.total == 1.0

    @property
    def free(self) -> Mask:
        """The weights that the bounds and the sum do not fix, shape ``(m,)``."""
        room = np.minimum(self.upper, self.total) - self.lower
        ends = (self.total - self.lower.sum(), self.upper.sum() - self.total)
        return room > _ROUND_OFF if min(ends) > _ROUND_OFF else np.zeros(len(room), dtype=bool)

    def fixed(self) -> Array:
        """Return the weights that are fixed, zero for others."""
        only_upper = self.upper.sum() - self.total <= _ROUND_OFF
        return np.where(self.free, 0.0, self.upper if only_upper else self.lower)

    def among(self, index: IntArray) -> WeightBounds:
        """Return the polytope of some weights when the others are :meth:`fixed`."""
        rest = self.fixed()
        costs, budget = self.costs[:, index], self.budget - self.costs @ rest
        return WeightBounds(
            self.lower[index], self.upper[index], costs, budget, self.total - float(rest.sum())
        )

    def inside(self) -> Array:
        """Return weights strictly within their bounds; budgets may be exceeded."""
        room = np.minimum(self.upper, self.total) - self.lower
        return self.lower + (self.total - self.lower.sum()) / (room.sum() or 1.0) * room

    def greatest(self, g: Array, prices: Array) -> float:
        """Return an upper bound on ``g @ u`` for all weights of the polytope.

        Parameters
        ----------
        g : array of shape (m,)
        prices : array of shape (r,)
            Multipliers of the budgets, none below 0. Each choice gives a valid bound, the best one is sharp.
        """
        if self.is_simplex:
            return float(g.max())
        h = g - prices @ self.costs
        order = np.argsort(-h)
        room = np.minimum(self.upper - self.lower, self.total)[order]
        left = self.total - self.lower.sum()
        filled = np.clip(left - np.concatenate([[0.0], np.cumsum(room)[:-1]]), 0.0, room)
        return float(h @ self.lower + h[order] @ filled + prices @ self.budget)

    def settled(self, u: Array, g: Array, prices: Array, own: float) -> Array:
        """Return weights with those at their bounds that an optimum with such sensitivities has there.

        Near an optimum the product of the distance from a bound and of the multiplier of the bound is small,
        so one of the two is.

        Parameters
        ----------
        u, g : arrays of shape (m,)
        prices : array of shape (r,)
        own : float
            The unit of `g`.
        """
        h = (g - prices @ self.costs) / own
        most = np.minimum(self.upper, self.total)
        order = np.argsort(-h)
        room = np.cumsum((most - self.lower)[order])
        level = h[order[np.searchsorted(room, self.total - self.lower.sum())]]
        low, high = u - self.lower < level - h, most - u < h - level
        u = np.where(low, self.lower, np.where(high, most, u))
        return self._summing(u)

    def allowed(self, u: Array) -> Array:
        """Return weights near `u` that meet everything, the sum up to round-off."""
        most = np.minimum(self.upper, self.total)
        u = np.clip(u, self.lower, most)
        u = self._summing(u)
        over = (self.costs @ u - self.budget).max(initial=0.0)
        if over <= 0:
            return u
        cheap, excess = cheapest(self)
        return u + over / (over - excess) * (cheap - u) if excess < 0 else u

    def _summing(self, u: Array) -> Array:
        """Return weights within their bounds with the right sum; those at a bound stay there if possible."""
        missing = self.total - u.sum()
        share = np.minimum(u - self.lower, self.upper - u)
        if share.sum() < abs(missing):
            share = np.minimum(self.upper, self.total) - u if missing > 0 else u - self.lower
        return u + missing * share / share.sum() if share.any() else u


def cheapest(bounds: WeightBounds) -> tuple[Array, float]:
    """Return weights whose largest excess over a budget is smallest, and that excess, at least -1."""
    from scipy.optimize import linprog  # its import takes long, and few designs have budgets

    r, m = bounds.costs.shape
    most = np.minimum(bounds.upper, bounds.total)
    found = linprog(
        np.append(np.zeros(m), 1.0),
        np.column_stack([bounds.costs, -np.ones(r)]),
        bounds.budget,
        np.append(np.ones(m), 0.0)[None],
        [bounds.total],
        bounds=np.column_stack([np.append(bounds.lower, -1.0), np.append(most, np.inf)]),
        method="highs",
    )
    if found.x is None:
        raise SolverError(f"HiGHS found no cheapest design: {found.message}")
    return found.x[:m], float(found.x[m])


def weight_bounds(m: int, lower: Any, upper: Any, costs: Any, budget: Any) -> WeightBounds:
    """Return the weights that the arguments of a design allow.

    Raises
    ------
    TypeError, ValueError
        If an argument is bad, or no weights meet all of them.
    """
    least = _bound(lower, "lower", m)
    most = np.full(m, np.inf) if upper is None else _bound(upper, "upper", m)
    if (least < 0).any():
        raise ValueError(f"lower has the value {least.min():g}; expected weights of at least 0")
    if (least > most).any():
        k = int(np.argmax(least > most))
        raise ValueError(f"lower is {least[k]:g} and upper is {most[k]:g} at {k}; expected lower <= upper")
    if least.sum() > 1 + _ROUND_OFF:
        raise ValueError(f"lower has the sum {least.sum():.6g}; expected at most 1, the sum of the weights")
    if most.sum() < 1 - _ROUND_OFF:
        raise ValueError(f"upper has the sum {most.sum():.6g}; expected at least 1, the sum of the weights")
    if (costs is None) != (budget is None):
        raise TypeError("costs or budget is missing; expected both or none")
    if costs is None:
        return WeightBounds(least, most, np.zeros((0, m)), np.zeros(0))
    rows = np.atleast_2d(finite_array(costs, "costs", ndim=(1, 2)))
    right = np.atleast_1d(finite_array(budget, "budget", ndim=(0, 1)))
    if rows.shape[1] != m:
        raise ValueError(f"costs has {rows.shape[1]} columns; expected {m}, a cost of each candidate")
    if right.shape != (len(rows),):
        raise ValueError(f"budget has {len(right)} values; expected {len(rows)}, one for each row of costs")
    size = np.abs(rows).max(axis=1, initial=0.0)
    size[size == 0] = 1.0
    bounds = WeightBounds(least, most, rows / size[:, None], right / size)
    _check_affordable(bounds, size)
    return bounds


def _bound(value: Any, name: str, m: int) -> Array:
    bound = finite_array(value, name, ndim=(0, 1))
    if bound.ndim == 1 and bound.shape != (m,):
        raise ValueError(
            f"{name} has shape {bound.shape}; expected a number or {(m,)}, one for each candidate"
        )
    return np.array(np.broadcast_to(bound, (m,)))


def _check_affordable(bounds: WeightBounds, size: Array) -> None:
    """Raise unless some weights are strictly below the budgets, which are in units of `size`."""
    u, excess = cheapest(bounds)
    if excess < -_UNAFFORDABLE:
        return
    spent = bounds.costs @ u
    k = int((spent - bounds.budget).argmax())
    which = "budget" if len(size) == 1 else f"budget {k}"
    others = "" if len(size) == 1 else " if the others are kept"
    found, least = bounds.budget[k] * size[k], spent[k] * size[k]
    raise ValueError(f"{which} is {found:g}, and weights cost at least {least:g}{others}: raise it")
