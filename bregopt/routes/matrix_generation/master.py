"""The restricted masters over the directions so far: a linear program, or a small semidefinite one.

The first is one HiGHS model, built once and extended by columns (Shen et al. 2008, (P1)):

    minimize    sum_k theta_k tau <C, v_k v_k'>  +  c'u  +  sum gamma_r (up_r + down_r)
    subject to  lo <= sum_k theta_k tau A(v_k v_k') + B u - up + down <= hi,
                theta, up, down >= 0,  u in its box

The slacks ``up`` and ``down`` belong to the soft rows. Rows, columns and the objective are scaled to size
one, so that absolute tolerances of solvers have the same meaning at every scale of the data.

The second one is over ``X = V Z V'`` with a small ``Z``, and over a working set of the rows:

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

from enum import Enum
from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.certify import TraceBound
from bregopt.errors import SolverError
from bregopt.program import (
    ENDED,
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
from bregopt.records import dataclass, replace
from bregopt.rigorous import recedes
from bregopt.routes.ipm.central_path import follow_path
from bregopt.routes.ipm.path_route import PathSettings
from bregopt.routes.linear_program import LinearProgram
from bregopt.routes.matrix_generation.oracle import MatrixGenerationTuning, Reward
from bregopt.routes.progress import Progress

# Feasibility tolerance of HiGHS for a master scaled to size one. HiGHS takes 1e-10 or more.
_SIMPLEX_TOL = 1e-9

# Least tolerance of the master after a round without a smaller gap, from which on it decreases by
# `master_tol_ratio`.
_FINEST_MASTER_TOL = 1e-13
# Singular values of the directions, relative to the largest, below which they are linearly dependent.
_BASIS_RANK_TOL = 1e-8
# Number of rows that may join at once besides the first, relative to the working set.
_JOINING_GROWTH = 0.5
# Distance of a multiplier from an end of its range that counts as at the end, relative to the range.
_END_DISTANCE = 1e-2
# Rounds at an end after which a row is fixed there.
_END_ROUNDS = 2
# Growth factor of the prices of hard rows, and the limit on the number of times that they grow.
_PRICE_GROWTH, _PRICE_RAISES = 10.0, 9
# Multiplier of a hard row, relative to its price, from which the price may be too small.
_PRICE_REACHED = 0.9
# Gap, relative to the penalties paid for hard rows, below which these rows stay violated at the present
# prices.
_PENALTY_GAP = 0.5
# Size of an ordinary variable of a stalled master, relative to the scale of the bounds, above which it is on
# a ray.
_RAY_SIZE = 1e6
# Least tolerance of a semidefinite master, relative to that of the problem.
_LEAST_MASTER_TOL = 0.2
# Least eigenvalue of a used direction, relative to the trace times the square root of the master's
# tolerance. The eigenvalues of unused directions on the central path are of the order of the tolerance.
_USED_EIGENVALUE = 1e-2
# Size of the working set up to which no rows leave, and number of rows that may join at once. So few rows
# cost little.
_LEAST_WORKING_SET = 300
# First price of violating a hard row, relative to a guess of the row's multiplier.
_FIRST_PRICE = 3.0

_PRIMAL_SIMPLEX = 4  # in HiGHS


class State(Enum):
    """The status of a restricted master."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    FAILED = "failed"
    CUT_SHORT = "cut short"
    AGAIN = "again"  # rows joined that it had not included


_FINISHED = {
    highspy.HighsModelStatus.kOptimal: State.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: State.INFEASIBLE,
    highspy.HighsModelStatus.kUnbounded: State.UNBOUNDED,
}


@dataclass(frozen=True, eq=False)
class Outcome:
    """A solved master, in the program's units.

    Parameters
    ----------
    state : State
    X : LowRank
    u : array of shape (k,)
        Ordinary variables; a ray if the master is unbounded.
    y : array of shape (m,)
        Multipliers, positive at lower bounds; a Farkas vector of the master if it is infeasible.
    joined : int
        Number of rows that join the next master.
    """

    state: State
    X: LowRank
    u: Array
    y: Array
    joined: int = 0


class Scale:
    """Factors that scale rows, ordinary variables and the objective to size one, like the trace.

    Parameters
    ----------
    program : Program
        One block.
    tau : float
        The bound on the trace.

    Attributes
    ----------
    row : array of shape (m,)
    variable : array of shape (k,)
    objective : float
    """

    def __init__(self, program: Program, tau: float) -> None:
        size = tau * program.A.norms()
        alone = np.asarray(abs(program.B).max(axis=1).todense()).ravel() if program.k else np.zeros(program.m)
        size = np.where(size > 0, size, np.where(alone > 0, alone, 1.0))
        self.row = 1 / size
        self.variable = np.ones(program.k)
        if program.k:
            largest = np.asarray(abs(sp.diags_array(self.row) @ program.B).max(axis=0).todense()).ravel()
            self.variable = 1 / np.where(largest > 0, largest, 1.0)
        (block,) = program.blocks
        of_variables = float(np.abs(program.c * self.variable).max(initial=0.0))
        self.objective = max(tau * block.cost_norm, of_variables) or 1.0


class LinearMaster:
    """The restricted master over the directions added so far.

    Parameters
    ----------
    program : Program
        One block, linear objective, hard and hinge rows.
    tau : float
        The bound on the trace.
    tuning : MatrixGenerationTuning
    """

    def __init__(self, program: Program, tau: float, tuning: MatrixGenerationTuning) -> None:
        self._program, self._tau, self._tuning = program, tau, tuning
        (self._block,) = program.blocks
        self.directions = np.zeros((self._block.n, 0))
        self._scale = Scale(program, tau)
        self._model = LinearProgram(
            presolve="off",  # a presolved infeasible model has no dual ray
            primal_feasibility_tolerance=_SIMPLEX_TOL,
            dual_feasibility_tolerance=_SIMPLEX_TOL,
        )
        self._add_rows()
        self._add_variables()
        self._slacks = self._add_slacks()

    def add(self, V: Array) -> None:
        """Add the unit directions in the columns of `V`, each as a column of the model."""
        count = V.shape[1]
        entries = np.empty((count, self._program.m))
        cost = np.empty(count)
        for k in range(count):
            vv = LowRank(V[:, k : k + 1])
            entries[k] = self._tau * self._scale.row * self._program.A.apply((vv,))
            cost[k] = self._tau * self._block.cost_value(vv) / self._scale.objective
        self._add_columns(cost, np.zeros(count), np.full(count, np.inf), sp.csr_array(entries))
        self.directions = np.hstack([self.directions, V])

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._program.m

    def solve(self, gap: float) -> Outcome:
        """Solve the master exactly from its last basis; `gap` is not used."""
        model = self._model
        state = _FINISHED.get(model.run(self._tuning.simplex_seconds), State.FAILED)
        columns, rows = self._vectors(state)
        if state is State.OPTIMAL:  # as only columns are added from now on, the basis stays primal feasible
            model.set("simplex_strategy", _PRIMAL_SIMPLEX)
        k = self._program.k
        theta = np.maximum(columns[k + self._slacks :], 0.0)
        y = self._scale.objective * self._scale.row * rows
        return Outcome(
            state,
            self._point(theta) if state is State.OPTIMAL else LowRank(np.zeros((len(self.directions), 1))),
            self._scale.variable * columns[:k],
            self._program.bounds.clip(y) if state is State.OPTIMAL else y,
        )

    def _point(self, theta: Array) -> LowRank:
        """Return ``sum_k theta_k tau v_k v_k'``."""
        used = np.flatnonzero(theta)
        if len(used) == 0:
            return LowRank(np.zeros((len(self.directions), 1)))
        return LowRank(self.directions[:, used] * np.sqrt(self._tau * theta[used]))

    def _vectors(self, state: State) -> tuple[Array, Array]:
        """Return the solution by columns and by rows, or the ray instead."""
        model = self._model
        if state is State.OPTIMAL:
            return model.solution()
        columns = model.ray("getPrimalRay") if state is State.UNBOUNDED else None
        rows = model.ray("getDualRay") if state is State.INFEASIBLE else None
        k, m = model.columns, self._program.m
        return np.zeros(k) if columns is None else columns, np.zeros(m) if rows is None else rows

    def _add_rows(self) -> None:
        bounds, m = self._program.bounds, self._program.m
        lower, upper = (self._scale.row * end for end in (bounds.lo, bounds.hi))
        self._model.add_rows(sp.csr_array((m, 0)), lower, upper)

    def _add_variables(self) -> None:
        p, scale = self._program, self._scale
        entries = sp.csr_array((sp.diags_array(scale.row) @ p.B @ sp.diags_array(scale.variable)).T)
        cost = p.c * scale.variable / scale.objective
        self._add_columns(cost, p.u_lo / scale.variable, p.u_hi / scale.variable, entries)

    def _add_slacks(self) -> int:
        """Add one slack for each finite bound of a soft row; return their number."""
        bounds = self._program.bounds
        soft = bounds.kind == Penalty.HINGE
        over, under = (np.flatnonzero(soft & np.isfinite(end)) for end in (bounds.hi, bounds.lo))
        rows = np.concatenate([over, under])
        sign = np.concatenate([np.full(len(over), -1.0), np.ones(len(under))])
        count = len(rows)
        entries = sp.csr_array((sign, (np.arange(count), rows)), (count, self._program.m))
        cost = bounds.gamma[rows] / self._scale.row[rows] / self._scale.objective
        self._add_columns(cost, np.zeros(count), np.full(count, np.inf), entries)
        return count

    def _add_columns(self, cost: Array, lower: Array, upper: Array, entries: Any) -> None:
        """Add columns; `entries` is CSR with one row for each of them."""
        for name, values in (("cost", cost), ("entries", entries.data)):
            if not np.isfinite(values).all():  # HiGHS accepts NaN silently
                raise SolverError(f"a column of the restricted master has NaN or Inf in its {name}")
        self._model.add_columns(cost, lower, upper, entries)


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
        self._recent: list[Array] = []
        (self._block,) = program.blocks
        self._V = np.zeros((self._block.n, 0))
        self.used = self._V
        self._master_tol, self._gap = tuning.first_master_tol, np.inf
        bounds = program.bounds
        self._scale = Scale(program, bound.value)
        self._implied = _implied(program, bound)
        self._working = ~self._implied
        self._fixed = np.zeros(program.m)
        self._activity = np.zeros(program.m)
        self._rounds_at_end = np.zeros(program.m, dtype=int)
        self._has_left = np.zeros(program.m, dtype=bool)
        self._raises = 0
        self._imposes, self._may_impose = False, True  # whether hard rows are imposed, and may be
        self._price = np.where(bounds.hard, _FIRST_PRICE * _guesses(program), bounds.gamma)

    @property
    def directions(self) -> Array:
        """``V``, shape ``(n, order)``."""
        return self._V

    @property
    def rows(self) -> int:
        """The number of rows in the working set."""
        return int(self._working.sum())

    @property
    def price_is_largest(self) -> bool:
        """Whether the price of violating hard rows has its largest value."""
        return self._raises >= _PRICE_RAISES

    def add(self, V: Array) -> None:
        """Add directions, orthonormal columns; those not used for some rounds are dropped."""
        self._recent = [*self._recent, np.hstack([self.used, V])][-self._tuning.memory_rounds :]
        Q, s, _ = np.linalg.svd(np.hstack(self._recent), full_matrices=False)
        self._V = Q[:, s > _BASIS_RANK_TOL * s.max(initial=0.0)]

    def solve(self, gap: float) -> Outcome:
        """Solve the master, and update the working set.

        Parameters
        ----------
        gap : float
            Gap of the whole problem, which the master's tolerance follows.
        """
        tuning = self._tuning
        wanted, least = tuning.master_tol_ratio * gap, _LEAST_MASTER_TOL * self._tol
        if np.isfinite(gap) and gap >= self._gap:  # relative to other sizes, the last answer met that
            wanted, least = tuning.master_tol_ratio * self._master_tol, _FINEST_MASTER_TOL
        self._gap = gap
        self._master_tol = min(self._master_tol, max(wanted, least))
        working = np.flatnonzero(self._working)
        restricted = self._restricted(working)
        answer = follow_path(restricted, PathSettings(tol=self._master_tol), None, Progress("master"))
        if self._imposes and answer.stop in (StopReason.STALLED, StopReason.INFEASIBLE, StopReason.UNBOUNDED):
            self._imposes = self._may_impose = False
            return self.solve(gap)
        if answer.stop is StopReason.UNBOUNDED or _stalls_on_ray(restricted, answer, _RAY_SIZE):
            return self._along_ray(self._scale.variable * answer.u / np.abs(answer.u).max())
        X, y, u = self._point(answer), self._fixed.copy(), self._scale.variable * answer.u
        y[working] = self._scale.objective * self._scale.row[working] * answer.y[:-1]
        y = self._program.bounds.clip(y)
        activity = self._program.activity((X,), u)
        joined = self._update(activity, y)
        state = State.OPTIMAL
        if answer.stop in ENDED:
            state = State.CUT_SHORT
        elif answer.stop is StopReason.INFEASIBLE:
            state = State.FAILED
        return Outcome(state, X, u, y, joined)

    def raise_price(self, outcome: Outcome, dual: float) -> bool:
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
        penalties = float(self._price[hard] @ bounds.violation(activity)[hard])
        reached = (np.abs(outcome.y) >= _PRICE_REACHED * self._price)[hard].any()
        value = self._block.cost_value(outcome.X) + float(program.c @ outcome.u) + program.offset
        value += float(bounds.penalty(activity).sum())
        if value + penalties - dual <= _PENALTY_GAP * penalties and reached:
            self._price[hard] *= _PRICE_GROWTH
            self._raises += 1
            return True
        self._imposes = self._may_impose and penalties <= self._tol * abs(value)
        return False

    def _restricted(self, working: IntArray) -> Program:
        """Return the small program, scaled, with the bound on the trace as its last row."""
        program, V, order = self._program, self._V, self._V.shape[1]
        scale, tau = self._scale, self._bound.value
        cost = -(V.T @ Reward(program, self._fixed).product()(V)) * tau / scale.objective
        size = scale.row[working]
        rows = program.A.slice(working).restrict(0, V)
        terms = tuple(replace(term, rows=term.rows.scale(tau * size[term.at])) for term in rows.terms)
        trace = Term(0, np.array([len(working)]), DenseRows(np.eye(order)[None]))
        own = program.bounds.slice(working)
        imposed = own.hard & self._imposes
        price = np.where(imposed, np.inf, self._price[working] / (size * scale.objective))
        B = sp.diags_array(size) @ program.B[working] @ sp.diags_array(scale.variable)
        return replace(
            program,
            blocks=(Block("Z", order, DenseRows(((cost + cost.T) / 2)[None])),),
            A=LinearMap(len(working) + 1, (order,), (*terms, trace)),
            B=sp.vstack([B, sp.csr_array((1, program.k))], format="csr"),
            bounds=Bounds(
                np.append(size * own.lo, 1.0 if self._bound.exact else -np.inf),
                np.append(size * own.hi, 1.0),
                np.append(np.where(imposed, Penalty.HARD, Penalty.HINGE), Penalty.HARD),
                np.append(price, np.inf),
            ),
            c=scale.variable * (program.c - program.B.T @ self._fixed) / scale.objective,
            u_lo=program.u_lo / scale.variable,
            u_hi=program.u_hi / scale.variable,
            offset=(program.offset + float(program.bounds.conjugate(self._fixed).sum())) / scale.objective,
            labels=(),
        )

    def _point(self, answer: Answer) -> LowRank:
        """Return ``V Z V'``, and store the directions that it uses."""
        (Z,) = answer.X
        eigenvalues, Q = np.linalg.eigh(np.asarray(Z))
        eigenvalues = np.maximum(eigenvalues, 0.0)
        VQ = self._V @ Q
        least = _USED_EIGENVALUE * np.sqrt(self._master_tol) * eigenvalues.sum()
        self.used = VQ[:, eigenvalues > least]
        return LowRank(VQ * np.sqrt(self._bound.value * eigenvalues))

    def _along_ray(self, u: Array) -> Outcome:
        """Add the rows that a ray of the master meets first, unless it is a ray of the whole problem."""
        program, n = self._program, self._block.n
        zero = LowRank(np.zeros((n, 1)))
        slope = program.B @ u
        if recedes(program, (np.zeros((n, n)),), u):
            return Outcome(State.UNBOUNDED, zero, u, np.zeros(program.m))
        limit = np.where(slope > 0, np.inf, -np.inf)
        crossed = ~self._working & ~self._implied & (slope != 0) & (self._end(limit) != self._fixed)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(crossed, self._to_bounds(self._activity) / np.abs(slope), np.inf)
        joining = np.argsort(step)[: min(int(crossed.sum()), self._most_joining)]
        self._working[joining], self._fixed[joining] = True, 0.0
        if len(joining) == 0:  # only prices bound the ray
            self._price[program.bounds.hard] *= _PRICE_GROWTH
            self._raises += 1
        state = State.FAILED if self.price_is_largest else State.AGAIN
        return Outcome(state, zero, u, np.zeros(program.m), len(joining))

    def _update(self, activity: Array, y: Array) -> int:
        """Fix rows that stayed at an end of their range, and add rows that are fixed at the wrong end."""
        bounds = self._program.bounds
        end = self._end(activity)
        self._activity, violation = activity, bounds.violation(activity)
        wrong = ~self._working & ~self._implied & (end != self._fixed)
        cost = np.where(wrong, self._to_bounds(activity) * self._price, -1.0)
        joining = np.argsort(-cost)[: min(int(wrong.sum()), self._most_joining)]
        near, largest = _END_DISTANCE, np.abs(y).max(initial=0.0)
        inactive = (np.abs(y) <= near * np.minimum(self._price, largest)) & (violation == 0)
        paying = (np.abs(y) >= (1 - near) * bounds.gamma) & (violation > 0)
        self._rounds_at_end = np.where(self._working & (inactive | paying), self._rounds_at_end + 1, 0)
        if self.rows > _LEAST_WORKING_SET:
            long_enough = self._rounds_at_end >= _END_ROUNDS
            leaving = self._working & self._can_be_fixed() & long_enough & ~self._has_left
            self._working[leaving], self._has_left[leaving] = False, True
            self._fixed[leaving] = end[leaving]
        self._working[joining], self._fixed[joining] = True, 0.0
        return len(joining)

    @property
    def _most_joining(self) -> int:
        """The largest number of rows that may join the working set at once."""
        return _LEAST_WORKING_SET + int(_JOINING_GROWTH * self.rows)

    def _end(self, activity: Array) -> Array:
        """Return the ends of the multipliers' ranges that belong to these activities."""
        bounds = self._program.bounds
        gamma = np.where(bounds.hard, 1.0, bounds.gamma)  # nonzero, so that a violated hard row joins
        return np.where(activity < bounds.lo, gamma, np.where(activity > bounds.hi, -gamma, 0.0))

    def _to_bounds(self, activity: Array) -> Array:
        """Return the distances of activities from the nearer of their bounds."""
        bounds = self._program.bounds
        return np.minimum(np.abs(activity - bounds.lo), np.abs(activity - bounds.hi))

    def _can_be_fixed(self) -> Mask:
        return self._program.bounds.lo < self._program.bounds.hi


def _implied(program: Program, bound: TraceBound) -> Mask:
    """Return the mask of the rows that the master's own bound on the trace implies."""
    rng = np.random.default_rng(0)
    (block,) = program.blocks
    alone = program.bounds.hard & program.alone
    weight, other = (_per_trace(program, rng.normal(size=(block.n, 1))) for _ in range(2))
    size = program.A.norms() / np.sqrt(block.n)
    same = (np.abs(weight - other) <= 1e-12 * size) & (size > 0)
    limit = np.where(same, program.bounds.hi / np.where(size > 0, size, 1.0), np.inf)
    below = np.isneginf(program.bounds.lo) | (program.bounds.equal & bound.exact)
    return alone & same & (weight > 0) & below & (limit >= bound.value * (1 - 1e-12))


def _per_trace(program: Program, x: Array) -> Array:
    """Return the activities of ``x x'`` divided by its trace."""
    return program.A.apply((LowRank(x),)) / float(np.vdot(x, x))


def _guesses(program: Program) -> Array:
    """Return guesses of the size of the multipliers, from the objective and the size of each row."""
    (block,) = program.blocks
    soft = program.bounds.gamma[~program.bounds.hard] * program.row_sizes[~program.bounds.hard]
    largest = max(block.cost_norm, float(soft.max(initial=0.0)))
    size = np.where(program.row_sizes > 0, program.row_sizes, 1.0)
    entries = np.abs(program.B.data)
    smallest = float(entries[entries > 0].min(initial=np.inf))
    of_variables = float(np.abs(program.c).max(initial=0.0)) / smallest if program.k else 0.0
    guess = largest / size + of_variables
    return np.where(guess > 0, guess, 1 / size)


def _stalls_on_ray(program: Program, answer: Answer, ray_size: float) -> bool:
    """Whether the method stalled with variables far out on a ray, obstructed by the matrix."""
    far = ray_size * program.bound_scale
    return answer.stop is StopReason.STALLED and float(np.abs(answer.u).max(initial=0.0)) > far
