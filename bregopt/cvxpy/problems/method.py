"""``prob.solve(method="bregopt")`` on CVXPY problems."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import cvxpy as cp
import cvxpy.reductions.solution as cp_solution
import numpy as np

from bregopt.clock import threads_for
from bregopt.cvxpy.conic_solver import BREGOPT
from bregopt.cvxpy.outcomes import contradiction_of
from bregopt.cvxpy.problems.affine import constant_value
from bregopt.cvxpy.problems.lower import Lowered, check_sizes, lower
from bregopt.errors import InfeasibleRowError, UnsupportedProblemError, warn_caller
from bregopt.modeling.problem import translated
from bregopt.records import dataclass, field_names, replace
from bregopt.routes import routing
from bregopt.routes.base import Settings
from bregopt.routes.registry import REFERENCE, SolverLike, own_options, route_names, time_limit
from bregopt.routes.solution import Solution, Status

if TYPE_CHECKING:
    import cvxpy

# The reading of each problem that is alive. A thread takes a reading out while it uses it; other threads read
# the problem again.
_read: WeakKeyDictionary[Any, Lowered] = WeakKeyDictionary()

# The warning about each problem that was passed on: a sweep over a parameter repeats none.
_told: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

_MOMENT = 1e-3  # seconds: the smallest time limit of a route, once the reading has used up the user's
# Options of CVXPY's own solve that have no meaning here.
_CVXPYS = ("enforce_dpp", "ignore_dpp", "canon_backend")
_OTHER_THEORIES = {"gp": "a geometric program", "qcp": "quasiconvex", "requires_grad": "to be differentiated"}


def solve(
    problem: cvxpy.Problem, *, solver: SolverLike = "auto", strict: bool = False, **options: Any
) -> float | None:
    """Solve a CVXPY problem by bregopt; call it as ``problem.solve(method="bregopt", ...)``.

    Values of variables, duals, status and ``solver_stats`` are set on the problem; the answer with its
    certificate is ``problem.solver_stats.extra_stats``. A problem is read once: if only Parameters that are
    added to its rows have changed, it is solved again without another reading.

    Parameters
    ----------
    problem : cvxpy.Problem
    solver : str or solver class
        A route of ours, as for :meth:`bregopt.Problem.solve`.
    strict : bool
        Raise an error if the problem is not supported, rather than warn and solve its conic form.
    **options
        ``warm_start=True`` starts from the last answer, if this method gave it and the numbers of rows and
        variables are the same. The route takes the others, as for :meth:`bregopt.Problem.solve`. Options that
        only CVXPY knows are passed to it if it solves the problem.

    Returns
    -------
    float
        The optimal value.

    Raises
    ------
    UnsupportedProblemError
        With `strict`, if the problem is not supported; the message gives the reason.
    TypeError, ValueError
        If the solver or an option is unknown, a parameter has no value, or memory is too small.

    Warns
    -----
    UserWarning
        If the problem was solved in conic form, by :data:`~bregopt.cvxpy.conic_solver.BREGOPT` or, if that
        does not take it, by CVXPY's own choice; the message names the solver and the reason. It comes once a
        problem, while BREGOPT's ``extra_stats["not_read"]`` has the reason after each solve.
    """
    if not isinstance(strict, bool):
        raise TypeError(f"strict is {strict!r}; expected True or False")
    limit = time_limit(options)
    end = None if limit is None else time.perf_counter() + limit
    for parameter in problem.parameters():
        if parameter.value is None:
            constant_value(parameter)  # raises the error
    check_sizes(problem)
    try:
        for flag, what in _OTHER_THEORIES.items():
            if options.get(flag):
                raise UnsupportedProblemError(f"{flag}=True declares it {what}")
        order = max((X.shape[0] for X in problem.variables() if X.ndim == 2), default=0)
        with threads_for(order):
            lowered = _lowered(problem)
    except (
        Exception
    ) as error:  # one that is not ours is a mistake in the reader, of which the user need not know
        known = isinstance(error, UnsupportedProblemError)
        reason = str(error) if known else f"reading it failed by {error!r}"
        if strict:
            raise UnsupportedProblemError(f"bregopt does not take this problem: {reason}") from (
                None if known else error
            )
        return _passed_on(problem, options, reason)
    ours = {name: value for name, value in options.items() if name not in (*_CVXPYS, *_OTHER_THEORIES)}
    if end is not None:
        ours["time_limit"] = max(end - time.perf_counter(), _MOMENT)
    if ours.get("warm_start"):
        ours["warm_start"] = _last_answer(problem, lowered)
    try:
        if solver == "auto" and not strict and _only_by_reference(lowered, ours):
            return _passed_on(problem, options, "no route takes its divergences beside its other parts")
        answer = lowered.problem.solve(solver, **ours)
        return _hand_over(problem, lowered, answer)
    except InfeasibleRowError as error:
        return _hand_over(problem, lowered, _contradicted(lowered, error))
    finally:
        _read[problem] = lowered


def _lowered(problem: Any) -> Lowered:
    """Return our problem: the last reading if no substituted value has changed, otherwise a new one."""
    lowered = _read.pop(problem, None)
    if lowered is None or not lowered.is_current():
        return lower(problem)
    lowered.fill_in()
    return lowered


def _only_by_reference(lowered: Lowered, options: Mapping[str, Any]) -> bool:
    """Whether none but the reference route, which solves a conic form, takes a problem with divergences."""
    program, own = lowered.problem.program(), {k: v for k, v in options.items() if k != "warm_start"}
    return any(program.divergences) and routing.choose(program, "auto", own).name == REFERENCE


def _last_answer(problem: Any, lowered: Lowered) -> Solution | bool:
    """Return the last answer if it is ours and has the same numbers of rows and variables, else False."""
    answer = getattr(problem.solver_stats, "extra_stats", None)
    if not isinstance(answer, Solution) or answer._raw is None or answer._raw.duals is None:
        return False
    ours = lowered.problem
    rows, variables = (sum(part.size for part in parts) for parts in (ours.constraints, ours.variables))
    fits = (rows, variables) == (len(answer._raw.duals), len(answer._raw.u))
    return answer if fits else False


def _passed_on(problem: Any, options: Mapping[str, Any], reason: str) -> Any:
    """Solve an unsupported problem by BREGOPT or by CVXPY's own choice, and warn which it was, once."""
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
        statistics.extra_stats["not_read"] = reason
        solver += f" ({statistics.extra_stats['route']})"
    message = f"bregopt does not take this problem as written, {solver} solved it: {reason}"
    if _told.get(problem) != message:
        _told[problem] = message
        warn_caller(message, UserWarning)
    return value


def _split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of every route of ours, and those that are CVXPY's."""
    ours = {name for route in route_names() for name in own_options(route, options)}
    common = {name: options[name] for name in field_names(Settings) if name in options}
    theirs = {name: value for name, value in options.items() if name not in ours}
    verbose = {name: common.pop(name) for name in ("verbose",) if name in common}
    return common, theirs | verbose


@dataclass(frozen=True)
class _Named:
    """The solver, as CVXPY asks for it when it unpacks an answer."""

    route: str

    @property
    def solver(self) -> _Named:
        """The solver, which is its own chain of reductions."""
        return self

    def name(self) -> str:
        """Return the name that ``solver_stats.solver_name`` shows."""
        return f"bregopt: {self.route}"

    def invert(self, solution: Any, inverse_data: Any) -> Any:
        """Return the answer, which is in the user's terms already."""
        return solution


def _hand_over(problem: Any, lowered: Lowered, answer: Solution) -> Any:
    """Set values, duals, status and statistics of a CVXPY problem by CVXPY's methods; return its value."""
    names = cp.settings
    statistics = {
        names.SOLVE_TIME: answer.timings["solve"],
        names.SETUP_TIME: answer.timings["setup"],
        names.NUM_ITERS: answer.iterations,
        names.EXTRA_STATS: answer,
    }
    values = {} if answer.X is None else lowered.primal()
    # CVXPY has no word for an answer that misses 1e-2 without a limit: our warning tells by how much.
    status = names.OPTIMAL_INACCURATE if answer.status == "inaccurate" else answer.status
    found = cp_solution.Solution(status, answer.value, values, lowered.duals(answer), statistics)
    found = found if lowered.real_form is None else lowered.real_form.inverted(found)
    with warnings.catch_warnings():  # ours has said so, with the gap
        warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
        problem.unpack_results(found, _Named(answer.solver), None)
    return problem.value


def _contradicted(lowered: Lowered, error: InfeasibleRowError) -> Solution:
    """Return the answer that one row alone contradicts ``X psd``, with its Farkas vector if there is one."""
    ours, program = lowered.problem, lowered.problem.program()
    raw = Solution(
        status=Status.INFEASIBLE.value,
        stop_reason=str(error),
        value=np.inf,
        X=None,
        u=np.zeros(program.k),
        duals=contradiction_of(program, error),
        dual_value=np.inf,
        gap=np.nan,
        primal_residual=np.nan,
        dual_residual=np.nan,
        error=np.nan,
        iterations=0,
        timings=dict.fromkeys(("setup", "solve", "certify", "total"), 0.0),
        solver="one row alone",
        history={},
        citation="",
        _program=program,
    )
    sign = ours.objective.sign
    if raw.duals is None:
        return replace(raw, value=sign * raw.value, dual_value=sign * raw.dual_value, u={})
    return translated(raw, ours._compiled, ours.constraints, sign)
