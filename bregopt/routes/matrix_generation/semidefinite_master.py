"""The semidefinite master problem: ``X = V Z V'`` with a small ``Z``, over a working set of the rows.

    minimize    <V'(C - A*(h)) V, Z>  +  (c - B'h)'u  +  the penalties of the rows in the working set
    subject to  Z psd,  tr Z <= tau,  u in its box

``V`` is an orthonormal basis of the directions found and used in the last rounds. A row whose multiplier is
at an end of its range is fixed there, at ``h``: an inactive row at ``h = 0``, a violated hinge at its price.
So 100,000 comparisons cost as much as the few that are active. Hard rows have a price, which is raised if
they stay violated. The master thus always has an interior, and its multipliers become a Farkas vector if the
rows are infeasible. Once the penalties are negligible the rows are imposed as hard rows, and hold to
round-off.

The master is solved on the central path, to a tolerance that follows the gap.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.certify import TraceBound, is_ray
from bregopt.program import (
    Answer,
    Block,
    Bounds,
    LinearMap,
    LowRank,
    Penalty,
    Program,
    StopReason,
    Term,
)
from bregopt.program.rows import DenseRows
from bregopt.routes.base import Settings
from bregopt.routes.ipm import InteriorPointTuning, follow_path
from bregopt.routes.matrix_generation.oracle import Reward
from bregopt.routes.matrix_generation.outcome import Outcome, State
from bregopt.routes.matrix_generation.scale import Scale
from bregopt.routes.matrix_generation.tuning import MatrixGenerationTuning
from bregopt.routes.progress import Progress

__all__ = ["SemidefiniteMaster"]


class SemidefiniteMaster:
    """The restricted master over a subspace and a working set of the rows.

    Parameters
    ----------
    program : Program
        One block, linear objective, hard and hinge rows.
    bound : TraceBound
    tol : float
        Tolerance of the whole problem.
    tuning : MatrixGenerationTuning

    Attributes
    ----------
    used : array of shape (n, k)
        The directions that the last answer uses.
    """

    def __init__(
        self, program: Program, bound: TraceBound, tol: float, tuning: MatrixGenerationTuning
    ) -> None:
        self._program, self._bound, self._tol, self._tuning = program, bound, tol, tuning
        self._pool: list[Array] = []
        self._V = np.zeros((program.blocks[0].n, 0))
        self.used = self._V
        self._inner = tuning.first_master_tol
        bounds = program.bounds
        self._scale = Scale(program, bound.value)
        self._implied = _implied(program, bound)
        self._inside = ~self._implied
        self._held = np.zeros(program.m)
        self._activity = np.zeros(program.m)
        self._settled = np.zeros(program.m, dtype=int)
        self._left = np.zeros(program.m, dtype=bool)
        self._raised = 0
        self._strict, self._may_be_strict = False, True  # whether hard rows are imposed, and may be
        self._price = np.where(bounds.hard, tuning.first_price * _guesses(program), bounds.gamma)

    @property
    def directions(self) -> Array:
        """``V``, shape ``(n, order)``."""
        return self._V

    @property
    def rows(self) -> int:
        """The number of rows in the working set."""
        return int(self._inside.sum())

    @property
    def dearest(self) -> bool:
        """Whether the price of violating hard rows has its largest value."""
        return self._raised >= self._tuning.price_raises

    def place(self, X: LowRank, u: Array, count: int) -> None:
        """Fix the rows at their ends at a good point, except the `count` rows nearest to their bounds."""
        bounds, activity = self._program.bounds, self._program.activity((X,), u)
        sure = self._to_bounds(activity) / self._program.row_sizes.clip(TINY)
        sure[~self._may_be_held()] = -1.0
        nearest = np.argsort(sure)[: count + int((sure < 0).sum())]
        self._inside[:] = False
        self._inside[nearest] = True
        self._inside &= ~self._implied
        self._held = np.where(self._inside | bounds.hard, 0.0, self._end(activity))
        self._activity = activity

    def add(self, V: Array) -> None:
        """Add directions, orthonormal columns; those not used for some rounds are dropped."""
        self._pool = [*self._pool, np.hstack([self.used, V])][-self._tuning.memory_rounds :]
        Q, s, _ = np.linalg.svd(np.hstack(self._pool), full_matrices=False)
        self._V = Q[:, s > self._tuning.basis_rank_tol * s.max(initial=0.0)]

    def solve(self, gap: float) -> Outcome:
        """Solve the master, and update the working set.

        Parameters
        ----------
        gap : float
            Gap of the whole problem, which the master's tolerance follows.
        """
        tuning = self._tuning
        self._inner = max(
            min(self._inner, tuning.master_tol_ratio * gap), tuning.least_master_tol * self._tol
        )
        inside = np.flatnonzero(self._inside)
        small = self._restricted(inside)
        answer = follow_path(
            small, Settings(tol=self._inner, tuning=tuning.interior), None, Progress("master")
        )
        if self._strict and answer.stop in (StopReason.STALLED, StopReason.INFEASIBLE, StopReason.UNBOUNDED):
            self._strict = self._may_be_strict = False
            return self.solve(gap)
        if answer.stop is StopReason.UNBOUNDED or _runs_away(small, answer, tuning.ray_size):
            return self._along(self._scale.variable * answer.u / np.abs(answer.u).max())
        X, y, u = self._point(answer), self._held.copy(), self._scale.variable * answer.u
        y[inside] = self._scale.objective * self._scale.row[inside] * answer.y[:-1]
        y = self._program.bounds.clip(y)
        activity = self._program.activity((X,), u)
        joined = self._look(activity, y)
        state = State.OPTIMAL
        if answer.stop in (StopReason.TIME_LIMIT, StopReason.INTERRUPTED):
            state = State.CUT_SHORT
        elif answer.stop is StopReason.INFEASIBLE:
            state = State.FAILED
        return Outcome(state, X, u, y, joined)

    def dearer(self, outcome: Outcome, dual: float) -> bool:
        """Raise the price of violating hard rows if they stay violated; return whether it was raised.

        Parameters
        ----------
        outcome : Outcome
        dual : float
            The best bound on the whole problem's objective.
        """
        bounds, program = self._program.bounds, self._program
        activity = program.activity((outcome.X,), outcome.u)
        hard = bounds.hard & ~self._implied
        paid = float(self._price[hard] @ bounds.violation(activity)[hard])
        value = program.blocks[0].cost_value(outcome.X) + float(program.c @ outcome.u) + program.offset
        value += float(bounds.penalty(activity).sum())
        if (
            value + paid - dual <= self._tuning.penalty_gap * paid
            and (np.abs(outcome.y) >= 0.9 * self._price)[hard].any()
        ):
            self._price[hard] *= self._tuning.price_growth
            self._raised += 1
            return True
        self._strict = self._may_be_strict and paid <= self._tol * abs(value)
        return False

    def _restricted(self, inside: IntArray) -> Program:
        """Return the small program, scaled, with the bound on the trace as its last row."""
        program, V, order = self._program, self._V, self._V.shape[1]
        scale, tau = self._scale, self._bound.value
        cost = -(V.T @ Reward(program, self._held).product()(V)) * tau / scale.objective
        size = scale.row[inside]
        rows = program.A.slice(inside).restrict(0, V)
        terms = tuple(replace(term, rows=term.rows.scale(tau * size[term.at])) for term in rows.terms)
        trace = Term(0, np.array([len(inside)]), DenseRows(np.eye(order)[None]))
        own = program.bounds.slice(inside)
        held = own.hard & self._strict
        price = np.where(held, np.inf, self._price[inside] / (size * scale.objective))
        B = sp.diags_array(size) @ program.B[inside] @ sp.diags_array(scale.variable)
        return replace(
            program,
            blocks=(Block("Z", order, DenseRows(((cost + cost.T) / 2)[None])),),
            A=LinearMap(len(inside) + 1, (order,), (*terms, trace)),
            B=sp.vstack([B, sp.csr_array((1, program.k))], format="csr"),
            bounds=Bounds(
                np.append(size * own.lo, 1.0 if self._bound.exact else -np.inf),
                np.append(size * own.hi, 1.0),
                np.append(np.where(held, Penalty.HARD, Penalty.HINGE), Penalty.HARD),
                np.append(price, np.inf),
            ),
            c=scale.variable * (program.c - program.B.T @ self._held) / scale.objective,
            u_lo=program.u_lo / scale.variable,
            u_hi=program.u_hi / scale.variable,
            offset=(program.offset + float(program.bounds.conjugate(self._held).sum())) / scale.objective,
            labels=(),
        )

    def _point(self, answer: Answer) -> LowRank:
        """Return ``V Z V'``, and store the directions that it uses."""
        eigenvalues, Q = np.linalg.eigh(np.asarray(answer.X[0]))
        eigenvalues = np.maximum(eigenvalues, 0.0)
        VQ = self._V @ Q
        self.used = VQ[
            :, eigenvalues > self._tuning.used_eigenvalue * np.sqrt(self._inner) * eigenvalues.sum()
        ]
        return LowRank(VQ * np.sqrt(self._bound.value * eigenvalues))

    def _along(self, u: Array) -> Outcome:
        """Add the rows that a ray of the master meets first; if there are none, it may be the problem's."""
        program = self._program
        none = LowRank(np.zeros((program.blocks[0].n, 1)))
        slope = program.B @ u
        if is_ray(program, (np.zeros((none.shape[0],) * 2),), u):
            return Outcome(State.UNBOUNDED, none, u, np.zeros(program.m))
        far = np.where(slope > 0, np.inf, -np.inf)
        met = ~self._inside & ~self._implied & (slope != 0) & (self._end(far) != self._held)
        with np.errstate(divide="ignore", invalid="ignore"):
            way = np.where(met, self._to_bounds(self._activity) / np.abs(slope), np.inf)
        joining = np.argsort(way)[: min(int(met.sum()), self._most_joining)]
        self._inside[joining], self._held[joining] = True, 0.0
        if len(joining) == 0:  # only prices bound the ray
            self._price[program.bounds.hard] *= self._tuning.price_growth
            self._raised += 1
        state = State.FAILED if self.dearest else State.AGAIN
        return Outcome(state, none, u, np.zeros(program.m), len(joining))

    def _look(self, activity: Array, y: Array) -> int:
        """Fix rows that stayed at an end of their range, and add rows that are fixed at the wrong end."""
        bounds = self._program.bounds
        end = self._end(activity)
        self._activity, missed = activity, bounds.violation(activity)
        wrong = ~self._inside & ~self._implied & (end != self._held)
        worth = np.where(wrong, self._to_bounds(activity) * self._price, -1.0)
        joining = np.argsort(-worth)[: min(int(wrong.sum()), self._most_joining)]
        near, largest = self._tuning.end_distance, np.abs(y).max(initial=0.0)
        at_rest = (np.abs(y) <= near * np.minimum(self._price, largest)) & (missed == 0)
        paying = (np.abs(y) >= (1 - near) * bounds.gamma) & (missed > 0)
        self._settled = np.where(self._inside & (at_rest | paying), self._settled + 1, 0)
        if self.rows > self._tuning.least_working_set:
            settled = self._settled >= self._tuning.end_rounds
            leaving = self._inside & self._may_be_held() & settled & ~self._left
            self._inside[leaving], self._left[leaving] = False, True
            self._held[leaving] = end[leaving]
        self._inside[joining], self._held[joining] = True, 0.0
        return len(joining)

    @property
    def _most_joining(self) -> int:
        """The largest number of rows that may join the working set at once."""
        return self._tuning.least_working_set + int(self._tuning.joining_growth * self.rows)

    def _end(self, activity: Array) -> Array:
        """Return the ends of the multipliers' ranges that belong to these activities."""
        bounds = self._program.bounds
        gamma = np.where(bounds.hard, 1.0, bounds.gamma)  # of a hard row nonzero: zero is the wrong end
        return np.where(activity < bounds.lo, gamma, np.where(activity > bounds.hi, -gamma, 0.0))

    def _to_bounds(self, activity: Array) -> Array:
        """Return the distances of activities from the nearer of their bounds."""
        bounds = self._program.bounds
        nearer: Array = np.minimum(np.abs(activity - bounds.lo), np.abs(activity - bounds.hi))
        return nearer

    def _may_be_held(self) -> Mask:
        mask: Mask = self._program.bounds.lo < self._program.bounds.hi
        return mask


def _implied(program: Program, bound: TraceBound) -> Mask:
    """Return the mask of the rows that the master's own bound on the trace implies."""
    rng = np.random.default_rng(0)
    alone = program.bounds.hard & program.alone
    weight: list[Array] = []
    for _ in range(2):
        x = rng.normal(size=(program.blocks[0].n, 1))
        weight.append(program.A.apply((LowRank(x),)) / float(np.vdot(x, x)))
    size = program.A.norms() / np.sqrt(program.blocks[0].n)
    same = (np.abs(weight[0] - weight[1]) <= 1e-12 * size) & (size > 0)
    limit = np.where(same, program.bounds.hi / np.where(size > 0, size, 1.0), np.inf)
    below = np.isneginf(program.bounds.lo) | (program.bounds.equal & bound.exact)
    mask: Mask = alone & same & (weight[0] > 0) & below & (limit >= bound.value * (1 - 1e-12))
    return mask


def _guesses(program: Program) -> Array:
    """Return guesses of the size of the multipliers, from the objective and the size of each row."""
    cost = program.blocks[0].cost
    largest = 0.0 if cost is None else float(cost.norms()[0])
    soft = program.bounds.gamma[~program.bounds.hard] * program.row_sizes[~program.bounds.hard]
    largest = max(largest, float(soft.max(initial=0.0)))
    size = np.where(program.row_sizes > 0, program.row_sizes, 1.0)
    entries = np.abs(program.B.data)
    smallest = float(entries[entries > 0].min(initial=np.inf))
    through = float(np.abs(program.c).max(initial=0.0)) / smallest if program.k else 0.0
    guess = largest / size + through
    return np.where(guess > 0, guess, 1 / size)


def _runs_away(program: Program, answer: Answer, ray_size: float) -> bool:
    """Whether the engine stalled far out along a ray of the variables, with matrices that obstruct it."""
    far = ray_size * program.bound_scale
    return answer.stop is StopReason.STALLED and float(np.abs(answer.u).max(initial=0.0)) > far
