"""Rows that differ in their variables and bounds alone, such as ``a - t <= d`` and ``a + t >= d``, as one.

Two equations of Newton's system, with signs such that their matrices are equal, are
``S_g w + D_i y_i + F_i u = b_i`` with ``w = y_1 + y_2`` and ``S_g`` the row of the Schur matrix. With
``kappa = 1 / (D_1 + D_2)``, their mean by the weights ``kappa D_2`` and ``kappa D_1``, and their difference,
are

    S_g w + (kappa D_1 D_2) w + F_g u = b_g,     y_1 = kappa D_2 w + kappa (b_1 - b_2 - (F_1 - F_2) u).

So the unknowns are one ``w`` for each pair, and the equations of the variables, ``F'y = q``, become

    F_g'w - kappa (F_1 - F_2)'(F_1 - F_2) u = q - kappa (F_1 - F_2)'(b_1 - b_2).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.clock import checkpoint
from bregopt.routes.ipm.linear_solvers import bordered
from bregopt.routes.ipm.plan import Plan, ScalingPoint

__all__ = ["PairedRows"]

# Number of rows from which pairs are looked for, and the share of the rows from which pairs pay.
_LEAST_ROWS, _PAYS = 100, 0.5
_SAME = 1e-13  # relative distance of two sums of coefficients above which rows differ


class PairedRows:
    """Pairs of rows with one matrix up to sign.

    Parameters
    ----------
    plan : Plan
    first, second : int array
        The rows of each pair, the first ones ascending; a row that is alone is in both.
    sign : array
        1 or -1 for each pair: the matrix of the second row is this times that of the first.
    """

    def __init__(self, plan: Plan, first: IntArray, second: IntArray, sign: Array) -> None:
        self._plan, self._first, self._second, self._sign = plan, first, second, sign
        self._alone = first == second

    # Pays on: distances within a largest deviation, n = 40.
    @classmethod
    def of(cls, plan: Plan) -> PairedRows | None:
        """Return the pairs of the rows of a plan, None where they are few."""
        if plan.m < _LEAST_ROWS:
            return None
        rng, sums = np.random.default_rng(0), np.empty((2, plan.m))
        for own in sums:
            halves = [rng.uniform(1.0, 2.0, (n, n)) for n in plan.A.orders]
            own[:] = plan.apply(plan.joined([S + S.T for S in halves]))
        sign = np.where(sums[0] < 0, -1.0, 1.0)
        sums *= sign
        order = np.lexsort(sums[::-1])
        ascending = sums[:, order]
        same: Mask = np.all(np.abs(np.diff(ascending)) <= _SAME * np.abs(ascending[:, 1:]), axis=0)
        if 2 * np.count_nonzero(same) < _PAYS * plan.m or (same[1:] & same[:-1]).any():
            return None
        starts = np.concatenate([[True], ~same])
        ends = np.concatenate([~same, [True]])
        pairs = np.sort([order[starts], order[ends]], axis=0)
        first, second = pairs[:, np.argsort(pairs[0])]
        return cls(plan, first, second, sign[first] * sign[second])

    def solver(self, at: ScalingPoint, F: Array) -> Callable[[Array, Array], tuple[Array, Array]] | None:
        """Return the solver of the system, None where both rows of a pair have ``D = 0``.

        Parameters
        ----------
        at : ScalingPoint
            All rows have bounds, and all variables are free.
        F : array of shape (m, k)
            The columns of the variables.
        """
        first, second, sign, alone, D = self._first, self._second, self._sign, self._alone, at.D
        if not (alone | (D[first] + D[second] > 0)).all():
            return None
        S = self._plan.schur(at.X_parts, at.K_parts, first, at.roots)
        checkpoint()
        kappa = np.where(alone, 0.0, 1 / np.where(alone, 1.0, D[first] + D[second]))
        share = np.where(alone, 1.0, kappa * D[second])  # of the first row
        other = kappa * D[first]
        S.flat[:: len(S) + 1] += share * D[first]

        def means(v: Array) -> tuple[Array, Array]:
            """Return the means of pairs and their differences."""
            one, two = v[first].T, sign * v[second].T
            return (share * one + other * two).T, (one - two).T

        F_g, F_d = means(F)
        solve_pairs = bordered(S, F_g, F_d.T @ (kappa[:, None] * F_d))

        def solve(b: Array, q: Array) -> tuple[Array, Array]:
            b_g, b_d = means(b)
            w, u = solve_pairs(b_g, q - F_d.T @ (kappa * b_d))
            y, along = np.empty(len(b)), kappa * (b_d - F_d @ u)
            y[second] = sign * (other * w - along)
            y[first] = share * w + along
            return y, u

        return solve
