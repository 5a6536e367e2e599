"""``prob.solve(method="bregopt")`` on CVXPY problems."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import cvxpy as cp
import cvxpy.reductions.solution as cp_solution

from bregopt.cvxpy.conic_solver import BREGOPT
from bregopt.cvxpy.problems.lower import Lowered, lower
from bregopt.errors import InfeasibleRowError, UnsupportedProblemError, warn_caller
from bregopt.routes import registry
from bregopt.routes.base import Settings
from bregopt.routes.solution import Solution
from bregopt.threads import threads_for

__all__ = ["solve"]

# What problems were read as, while they live. What one thread uses is not here: others read for themselves.
_read: WeakKeyDictionary[Any, Lowered] = WeakKeyDictionary()

_MOMENT = 1e-3  # seconds: the least that is left of a time limit when a problem is read
# What CVXPY's own solve takes and has no meaning here.
_CVXPYS = ("enforce_dpp", "ignore_dpp", "canon_backend")
_OTHER_THEORIES = {"gp": "a geometric program", "qcp": "quasiconvex", "requires_grad": "to be differentiated"}


def solve(problem: Any, *, solver: Any = "auto", strict: bool = False, **options: Any) -> Any:
    """Solve a CVXPY problem by bregopt; call it as ``problem.solve(method="bregopt", ...)``.

    Values of variables, duals, status and ``solver_stats`` are set on the problem; the answer with its
    certificate is ``problem.solver_stats.extra_stats``. A problem is read once: where only Parameters have
    changed that are added to its rows, it is solved again as it was read.

    Parameters
    ----------
    problem : cvxpy.Problem
    solver : str or solver class
        A route of ours, as for :meth:`bregopt.Problem.solve`.
    strict : bool
        Raise an error, rather than warn and solve the conic form, where the problem is not of our kind.
    **options
        ``warm_start=True`` starts from the last answer, if this method gave it and the rows are as many.
        Others are of the route, as for :meth:`bregopt.Problem.solve`; what only CVXPY knows is handed on to
        it, should it be asked.

    Returns
    -------
    float
        The optimal value.

    Raises
    ------
    UnsupportedProblemError
        With `strict`: the problem is not of our kind; the message says why.
    TypeError, ValueError
        Unknown solver or option, or a parameter without value.

    Warns
    -----
    UserWarning
        The problem was solved in conic form, by :data:`~bregopt.cvxpy.conic_solver.BREGOPT` or, where that
        does not take it, by CVXPY's own choice; the message says by which solver, and why.
    """
    if not isinstance(strict, bool):
        raise TypeError(f"strict is {strict!r}; expected True or False")
    limit = registry.time_limit(options)
    end = None if limit is None else time.perf_counter() + limit
    try:
        for flag, what in _OTHER_THEORIES.items():
            if options.get(flag):
                raise UnsupportedProblemError(f"{flag}=True declares it {what}")
        order = max((X.shape[0] for X in problem.variables() if X.ndim == 2), default=0)
        with threads_for(order):
            lowered = _lowered(problem)
    except UnsupportedProblemError as error:
        if strict:
            raise UnsupportedProblemError(f"bregopt does not take this problem: {error}") from None
        return _passed_on(problem, options, error)
    ours = {name: value for name, value in options.items() if name not in (*_CVXPYS, *_OTHER_THEORIES)}
    if end is not None:
        ours["time_limit"] = max(end - time.perf_counter(), _MOMENT)
    if ours.get("warm_start"):
        ours["warm_start"] = _last_answer(problem, lowered)
    try:
        answer = lowered.problem.solve(solver, **ours)
        return _hand_over(problem, lowered, answer)
    except InfeasibleRowError:
        return _contradicted(problem)
    finally:
        _read[problem] = lowered


def _lowered(problem: Any) -> Lowered:
    """Return what a problem is in our language: as read before, if what was written in has not changed."""
    lowered = _read.pop(problem, None)
    if lowered is None or not lowered.is_current():
        return lower(problem)
    lowered.fill_in()
    return lowered


def _last_answer(problem: Any, lowered: Lowered) -> Solution | bool:
    """Return the last answer, if it is ours and has as many rows and variables; False otherwise."""
    answer = getattr(problem.solver_stats, "extra_stats", None)
    if not isinstance(answer, Solution) or answer._raw is None or answer._raw.duals is None:
        return False
    ours = lowered.problem
    rows, variables = (sum(part.size for part in parts) for parts in (ours.constraints, ours.variables))
    fits = (rows, variables) == (len(answer._raw.duals), len(answer._raw.u))
    return answer if fits else False


def _passed_on(problem: Any, options: dict[str, Any], reason: UnsupportedProblemError) -> Any:
    """Solve a problem that is not of our kind by BREGOPT, or by CVXPY's own choice, and say which it was."""
    common, theirs = _split(options)
    conic = not any(options.get(flag) for flag in _OTHER_THEORIES)
    try:
        value = problem.solve(**({"solver": BREGOPT, **common} if conic else {}), **theirs)
    except cp.SolverError:
        if not conic:
            raise
        value = problem.solve(**theirs)
    statistics = problem.solver_stats
    solver = "CVXPY" if statistics is None else statistics.solver_name
    if solver == BREGOPT.name():
        solver += f" ({statistics.extra_stats['route']})"
    warn_caller(f"bregopt does not take this problem as written, {solver} solved it: {reason}", UserWarning)
    return value


def _split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of every route of ours, and those that are CVXPY's."""
    ours = {name for route in registry.solvers() for name in registry.own_options(route, options)}
    common = {name: options[name] for name in Settings.__dataclass_fields__ if name in options}
    theirs = {name: value for name, value in options.items() if name not in ours}
    verbose = {name: common.pop(name) for name in ("verbose",) if name in common}
    return common, theirs | verbose


@dataclass(frozen=True)
class _Named:
    """Who solved, as CVXPY asks for it when it unpacks an answer."""

    route: str

    @property
    def solver(self) -> _Named:
        """The solver, which is its own chain of reductions."""
        return self

    def name(self) -> str:
        """Return what ``solver_stats.solver_name`` shows."""
        return f"bregopt: {self.route}"

    def invert(self, solution: Any, inverse_data: Any) -> Any:
        """Return the answer, which is in the user's terms already."""
        return solution


def _hand_over(problem: Any, lowered: Lowered, answer: Solution) -> Any:
    """Set values, duals, status and statistics of a CVXPY problem by its own means, and return its value."""
    names = cp.settings
    statistics = {
        names.SOLVE_TIME: answer.timings["solve"],
        names.SETUP_TIME: answer.timings["setup"],
        names.NUM_ITERS: answer.iterations,
        names.EXTRA_STATS: answer,
    }
    values = {} if answer.X is None else lowered.primal()
    found = cp_solution.Solution(answer.status, answer.value, values, lowered.duals(answer), statistics)
    problem.unpack_results(found, _Named(answer.solver), None)
    return problem.value


def _contradicted(problem: Any) -> Any:
    """Set what is known where one row alone contradicts the rest: no certificate is needed, and none made."""
    none = cp_solution.failure_solution(cp.settings.INFEASIBLE)
    none.opt_val = -none.opt_val if isinstance(problem.objective, cp.Maximize) else none.opt_val
    problem.unpack_results(none, _Named("one row alone"), None)
    return problem.value
