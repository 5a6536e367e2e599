"""The restricted master as a linear program, and what it has in common with the semidefinite one.

It is one HiGHS model, built once and extended by columns (Shen et al. 2008, (P1)):

    minimize    sum_k theta_k tau <C, v_k v_k'>  +  c'u  +  sum gamma_r (up_r + down_r)
    subject to  lo <= sum_k theta_k tau A(v_k v_k') + B u - up + down <= hi,
                theta, up, down >= 0,  u in its box

The slacks ``up`` and ``down`` belong to the soft rows. Rows, columns and the objective are scaled to size
one, so that absolute tolerances of solvers have the same meaning at every scale of the data.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.clock import checkpoint, remaining
from bregopt.errors import SolverError
from bregopt.program import LowRank, Penalty, Program
from bregopt.records import dataclass
from bregopt.routes.base import Tuning

__all__ = ["LinearMaster", "MatrixGenerationTuning", "Outcome", "Scale", "State"]

# Feasibility tolerance of HiGHS for a master scaled to size one. HiGHS takes 1e-10 or more.
_SIMPLEX_TOL = 1e-9
# Growth factor of the runs of HiGHS, so that one is eventually long enough for a simplex step.
_SIMPLEX_SECONDS_GROWTH = 1.1

_PRIMAL_SIMPLEX = 4  # in HiGHS


@dataclass(frozen=True, kw_only=True)
class MatrixGenerationTuning(Tuning):
    """Constants of matrix generation, besides those of every method.

    `progress_ratio` applies to the gaps of the rounds.

    Parameters
    ----------
    linear_cuts : int
        Eigenvectors added in each round of the linear master. On margin SDPs 3 to 5 were best, and 24 were
        slower.
    semidefinite_cuts : int
        Eigenvectors added in each round of the semidefinite master.
    balancing_steps : int
        Limit on the corrections that make the dual residual of unbounded variables zero. One suffices unless
        a multiplier reaches an end of its range.
    simplex_seconds : float
        Seconds of the first run of HiGHS between two checkpoints. Ctrl-C does not reach HiGHS, and each run
        starts from the last basis.
    decomposed_order : int
        Largest order at which all eigenvalues of ``A*(y) - C`` are computed, instead of a few by Lanczos's
        method.
    first_master_tol : float
        Tolerance of the first semidefinite master.
    master_tol_ratio : float
        Tolerance of the next semidefinite master, relative to the gap.
    memory_rounds : int
        Rounds for which an unused direction stays in the basis.
    first_smoothing : float
        First weight of the best multipliers in the priced ones. On margin SDPs 0.8 to 0.9 was best.
    smoothing_decrease : float
        Decrease of the weight at a step.
    """

    linear_cuts: int = 5
    semidefinite_cuts: int = 16
    balancing_steps: int = 3
    simplex_seconds: float = 0.2
    decomposed_order: int = 700
    first_master_tol: float = 1e-2
    master_tol_ratio: float = 0.1
    memory_rounds: int = 3
    first_smoothing: float = 0.8
    smoothing_decrease: float = 0.1


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
        terms = [] if block.cost is None else [tau * float(norm) for norm in block.cost.norms()]
        terms.append(float(np.abs(program.c * self.variable).max(initial=0.0)))
        self.objective = max(terms) or 1.0


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
        self._model = _new_model()
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
        self._run()
        state = _FINISHED.get(model.getModelStatus(), State.FAILED)
        columns, rows = self._vectors(state)
        if state is State.OPTIMAL:  # as only columns are added from now on, the basis stays primal feasible
            _checked(model.setOptionValue("simplex_strategy", _PRIMAL_SIMPLEX), "simplex_strategy")
        k = self._program.k
        theta = np.maximum(columns[k + self._slacks :], 0.0)
        y = self._scale.objective * self._scale.row * rows
        return Outcome(
            state,
            self._point(theta) if state is State.OPTIMAL else LowRank(np.zeros((len(self.directions), 1))),
            self._scale.variable * columns[:k],
            self._program.bounds.clip(y) if state is State.OPTIMAL else y,
        )

    def _run(self) -> None:
        """Run HiGHS in slices of time, each from the last basis, as Ctrl-C does not reach HiGHS."""
        cut_short, length = highspy.HighsModelStatus.kTimeLimit, self._tuning.simplex_seconds
        while True:
            checkpoint()
            end = self._model.getRunTime() + min(length, remaining())
            _checked(self._model.setOptionValue("time_limit", end), "time_limit")
            if self._model.run() == highspy.HighsStatus.kError:
                # HiGHS refuses one thread once another caller in this process has started its threads.
                _checked(self._model.setOptionValue("threads", 0), "threads")
                self._model.run()
            if self._model.getModelStatus() != cut_short:
                return
            length *= _SIMPLEX_SECONDS_GROWTH

    def _point(self, theta: Array) -> LowRank:
        """Return ``sum_k theta_k tau v_k v_k'``."""
        used = np.flatnonzero(theta)
        if len(used) == 0:
            return LowRank(np.zeros((len(self.directions), 1)))
        return LowRank(self.directions[:, used] * np.sqrt(self._tau * theta[used]))

    def _vectors(self, state: State) -> tuple[Array, Array]:
        """Return the solution by columns and by rows, or the ray instead."""
        columns, rows = np.zeros(self._model.getNumCol()), np.zeros(self._model.getNumRow())
        if state is State.OPTIMAL:
            solution = self._model.getSolution()
            return np.array(solution.col_value), np.array(solution.row_dual)
        if state is State.UNBOUNDED:
            status, exists, ray = self._model.getPrimalRay()
            _checked(status, "getPrimalRay")
            return (np.array(ray) if exists else columns), rows
        if state is State.INFEASIBLE:
            status, exists, ray = self._model.getDualRay()
            _checked(status, "getDualRay")
            return columns, (np.array(ray) if exists else rows)
        return columns, rows

    def _add_rows(self) -> None:
        bounds, m = self._program.bounds, self._program.m
        lower, upper = (self._scale.row * end for end in (bounds.lo, bounds.hi))
        none = np.zeros(0, dtype=np.int32)
        _checked(
            self._model.addRows(m, lower, upper, 0, np.zeros(m, dtype=np.int32), none, np.zeros(0)), "addRows"
        )

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
        if len(cost):
            starts, index = (part.astype(np.int32) for part in (entries.indptr[:-1], entries.indices))
            status = self._model.addCols(
                len(cost), cost, lower, upper, entries.nnz, starts, index, entries.data
            )
            _checked(status, "addCols")


def _new_model() -> Any:
    # highspy.Highs starts the callbacks, and HiGHS then prints its banner whatever the options say. Its base
    # class has all that is called here.
    (plain,) = highspy.Highs.__bases__
    model: Any = plain()
    options = {
        "output_flag": False,
        "presolve": "off",  # a presolved infeasible model has no dual ray
        "solver": "simplex",
        "threads": 1,
        "primal_feasibility_tolerance": _SIMPLEX_TOL,
        "dual_feasibility_tolerance": _SIMPLEX_TOL,
    }
    for name, value in options.items():
        _checked(model.setOptionValue(name, value), name)
    return model


def _checked(status: Any, call: str) -> None:
    if status == highspy.HighsStatus.kError:
        raise SolverError(f"HiGHS refused {call}")
