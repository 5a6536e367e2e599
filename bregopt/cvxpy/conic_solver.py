"""The conic solver ``BREGOPT`` for ``problem.solve(solver=...)`` of CVXPY.

It extends CVXPY's interface of Clarabel: a route of bregopt solves the semidefinite programs. The parent
class lays out the data, maps answers back to the user's variables and duals, and solves all other programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import cvxpy.settings as s
import numpy as np
import scipy.sparse as sp
from cvxpy.reductions.solvers import defines
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import CLARABEL

from bregopt import clock
from bregopt.arrays import Array
from bregopt.certify import certify, is_farkas, is_ray
from bregopt.cvxpy.conic import Conic, Reading, read_conic, read_dual
from bregopt.errors import InfeasibleRowError, SolverError, UnsupportedProblemError
from bregopt.program import Program, StopReason
from bregopt.routes import routing
from bregopt.routes.options import check_options, time_limit
from bregopt.routes.solution import Solution, Status
from bregopt.threads import threads_for

__all__ = ["BREGOPT", "Bregopt", "ConicProblem", "conic_data", "register"]

_NAME = "BREGOPT"
_TOL = 1e-8  # Clarabel's default
_START = "BREGOPT start"  # key of the last answer, kept for a warm start, in the solver cache
_REFERENCE = "cvxpy"
_BIBTEX = """\
@misc{bregopt,
  title = {bregopt: convex problems over positive semidefinite matrices, solved with a certificate},
  author = {{The bregopt developers}},
}
"""
# Our options, and their names in Clarabel.
_CLARABEL_NAMES = {
    "tol": ("tol_gap_abs", "tol_gap_rel", "tol_feas"),
    "max_iter": ("max_iter",),
    "time_limit": ("time_limit",),
}
_OTHER_CONES = {"soc": "second-order", "exp": "exponential", "p3d": "power", "pnd": "power"}
# Our statuses as Clarabel's, which the parent class reads.
_WORDS = {
    Status.OPTIMAL: "Solved",
    Status.OPTIMAL_INACCURATE: "AlmostSolved",
    Status.INFEASIBLE: "PrimalInfeasible",
    Status.INFEASIBLE_INACCURATE: "AlmostPrimalInfeasible",
    Status.UNBOUNDED: "DualInfeasible",
    Status.UNBOUNDED_INACCURATE: "AlmostDualInfeasible",
    Status.USER_LIMIT: "MaxIterations",
}
_MARGIN, _FINEST = 1e-3, 1e-12  # of the tolerance that Clarabel is asked for, and the finest that it reaches
_NEAR = 1e-2  # tolerance that the certificate of an inaccurate answer meets
# Clarabel's statuses of answers; its statuses of proofs, with the replacement if the proof does not hold.
_ANSWERS = ("Solved", "AlmostSolved", "InsufficientProgress")
_PROOFS = {"PrimalInfeasible": "AlmostPrimalInfeasible", "DualInfeasible": "AlmostDualInfeasible"}
# The status of the dual, and the status of the problem that follows.
_TURNED = {
    Status.INFEASIBLE: Status.UNBOUNDED,
    Status.INFEASIBLE_INACCURATE: Status.UNBOUNDED_INACCURATE,
    Status.UNBOUNDED: Status.INFEASIBLE,
    Status.UNBOUNDED_INACCURATE: Status.INFEASIBLE_INACCURATE,
}


@dataclass(frozen=True, eq=False)
class _Outcome:
    """An answer in the form that the parent class reads."""

    status: str
    x: Array
    z: Array | None
    obj_val: float
    solve_time: float
    iterations: int
    stats: dict[str, Any]


class Bregopt(CLARABEL):  # type: ignore[misc]
    """Semidefinite programs by a route of bregopt, other cones and quadratic objectives by Clarabel.

    ``problem.solver_stats.extra_stats`` holds the ``route``, and either the certificate or the ``reason`` why
    Clarabel solved the problem. There is one instance, :data:`BREGOPT`, because CVXPY caches its compilation
    by solver object.
    """

    def name(self) -> str:
        """Return the name of the solver."""
        return _NAME

    def __reduce__(self) -> str:
        return _NAME

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(_NAME)

    def solve_via_data(
        self,
        data: Mapping[str, Any],
        warm_start: bool,
        verbose: bool,
        solver_opts: Mapping[str, Any],
        solver_cache: dict[str, Any] | None = None,
    ) -> _Outcome:
        """Solve conic data.

        Parameters
        ----------
        data : dict
            The data that CVXPY makes for Clarabel.
        warm_start : bool
            Start from the last answer, if `solver_cache` has one for data of the same shapes.
        verbose : bool
        solver_opts : dict
            Options of the routes, and ``route``, the name of one; "auto" by default.
        solver_cache : dict, optional
            The problem's cache.

        Raises
        ------
        TypeError, ValueError
            If an option is unknown or has a bad value.
        """
        options = {name: value for name, value in solver_opts.items() if name != "use_quad_obj"}
        reason, conic = _not_ours(data), None
        if reason is None:
            ours = {"route": "auto", "tol": _TOL, **options, "verbose": verbose}
            cache = {} if solver_cache is None else solver_cache
            conic = _conic(data)
            with clock.limited(time_limit(ours)), threads_for(max(conic.orders, default=0)):
                found = _solve(conic, warm_start, ours, cache)
            if isinstance(found, _Outcome):
                return found
            reason = found
        tol = float(options.get("tol", _TOL))
        if conic is not None:  # our certificate is stricter, and Clarabel's last steps converge fast
            options = {**options, "tol": max(_MARGIN * tol, _FINEST)}
        result = super().solve_via_data(data, warm_start, verbose, _clarabel_options(options))
        z = None if result.z is None else np.array(result.z)
        stats = {"route": "CLARABEL", "reason": reason}
        x, status = np.array(result.x), str(result.status)
        if conic is not None and z is not None:
            status = _certified_status(conic, status, x, z, tol)
        return _Outcome(status, x, z, result.obj_val, result.solve_time, result.iterations, stats)

    def invert(self, solution: _Outcome, inverse_data: Any) -> Any:
        """Return the answer in the user's terms."""
        inverted = super().invert(solution, inverse_data)
        inverted.attr[s.EXTRA_STATS] = solution.stats
        return inverted

    def cite(self, data: Mapping[str, Any]) -> str:
        """Return what to cite, in BibTeX."""
        return super().cite(data) if _not_ours(data) else _BIBTEX


BREGOPT = Bregopt()


def register() -> None:
    """Make ``solver="BREGOPT"`` known to CVXPY; ``cvxpy.installed_solvers()`` lists it then."""
    defines.SOLVER_MAP_CONIC[_NAME] = BREGOPT
    for names in (defines.CONIC_SOLVERS, defines.INSTALLED_SOLVERS, defines.INSTALLED_CONIC_SOLVERS):
        if _NAME not in names:
            names.append(_NAME)


def conic_data(problem: Any, **options: Any) -> tuple[Mapping[str, Any], float]:
    """Return the conic data that CVXPY makes of a problem for Clarabel, and the constant of the objective.

    Raises
    ------
    UnsupportedProblemError
        If it has integer variables.
    """
    if problem.is_mixed_integer():
        raise UnsupportedProblemError("the CVXPY problem has integer variables")
    data, _, inverse = problem.get_problem_data(BREGOPT, solver_opts=options)
    return data, float(inverse[-1][s.OFFSET])


class ConicProblem:
    """A CVXPY problem as the program that :data:`BREGOPT` solves; the problem itself does not change.

    Parameters
    ----------
    problem : cvxpy.Problem

    Raises
    ------
    UnsupportedProblemError
        If it has no psd cone, other cones than psd ones, or a quadratic objective.
    """

    def __init__(self, problem: Any) -> None:
        data, self._offset = conic_data(problem)
        reason = _not_ours(data)
        if reason is not None:
            raise UnsupportedProblemError(f"the CVXPY problem is no semidefinite program: {reason}")
        self._sign = -1.0 if type(problem.objective).__name__ == "Maximize" else 1.0
        # Prefer the direct reading if it is offered: its messages are about the problem itself.
        self._reading = min(read_conic(_conic(data)), key=attrgetter("dual"))

    def program(self) -> Program:
        """Return the program that solvers receive."""
        return self._reading.program

    def solve(self, solver: str, **options: Any) -> Solution:
        """Return the answer of a route with the status and values of the CVXPY problem."""
        raw = routing.solve(self.program(), solver, warn=False, **options)
        turn = -1.0 if self._reading.dual else 1.0
        status = _status(self._reading, raw.status)
        value, bound = (self._sign * (turn * end + self._offset) for end in (raw.value, raw.dual_value))
        return replace(raw, status=status.value, value=value, dual_value=bound)


def _not_ours(data: Mapping[str, Any]) -> str | None:
    """Return the reason why our routes do not take a program, None if they do."""
    dims = data[CLARABEL.DIMS]
    for cone, kind in _OTHER_CONES.items():
        if getattr(dims, cone, None):  # older versions of CVXPY know fewer
            return f"it has {kind} cones"
    if s.P in data and data[s.P].count_nonzero():
        return "its objective is quadratic"
    return None if dims.psd else "it has no psd cone"


def _conic(data: Mapping[str, Any]) -> Conic:
    A = sp.csr_array(data[s.A], dtype=float)
    A.eliminate_zeros()
    dims = data[CLARABEL.DIMS]
    b, c = np.array(data[s.B], dtype=float), np.array(data[s.C], dtype=float)
    return Conic(A, b, c, int(dims.zero), int(dims.nonneg), tuple(map(int, dims.psd)))


def _solve(conic: Conic, warm_start: bool, options: dict[str, Any], cache: dict[str, Any]) -> _Outcome | str:
    """Return the answer of a route, or the reason why there is none.

    If the answer does not meet the tolerance, the other reading is solved too.
    """
    inaccurate, reasons = [], []
    for reading in read_conic(conic):
        found = _by_route(conic, reading, warm_start, options, cache)
        if reading.dual and not isinstance(found, str) and found.status == _WORDS[Status.UNBOUNDED]:
            found = _with_a_point(conic, found, options)
        if isinstance(found, str):
            reasons.append(found)
        elif found.status == _WORDS[Status.OPTIMAL_INACCURATE]:
            inaccurate.append(found)
        else:
            return found
    return min(inaccurate, key=lambda found: found.stats["error"]) if inaccurate else "; ".join(reasons)


def _certified_status(conic: Conic, status: str, x: Array, z: Array, tol: float) -> str:
    """Return Clarabel's status, weakened if our certificate does not confirm it.

    The certificate is that of the dual reading, with the matrices of ``z`` and the multipliers ``x``.
    """
    program = read_dual(conic).program
    S, u = conic.matrices(z[conic.linear :]), z[: conic.linear]
    if status in _ANSWERS and np.isfinite(x).all() and np.isfinite(z).all():
        certificate = certify(program, S, u, x)
        near = status == "Solved" or certificate.meets(max(tol, _NEAR))
        return "Solved" if certificate.meets(tol) else "AlmostSolved" if near else status
    if status in _PROOFS:
        proven = is_ray(program, S, u) if status == "PrimalInfeasible" else is_farkas(program, x)
        return status if proven else _PROOFS[status]
    return status


def _with_a_point(conic: Conic, unbounded: _Outcome, options: dict[str, Any]) -> _Outcome | str:
    """Return the outcome "unbounded" if a feasible point is found, else a proof of infeasibility or a reason.

    An infeasible dual alone proves only that there is no optimum.
    """
    aimless = replace(conic, c=np.zeros(len(conic.c)))
    for reading in read_conic(aimless):
        found = _by_route(aimless, reading, False, options, {})
        if isinstance(found, str):
            continue
        if found.status == _WORDS[Status.OPTIMAL]:
            return unbounded
        if found.status == _WORDS[Status.INFEASIBLE]:
            return found
    return "the dual is infeasible, and whether the primal is, too, was not found out"


def _by_route(
    conic: Conic, reading: Reading, warm_start: bool, options: dict[str, Any], cache: dict[str, Any]
) -> _Outcome | str:
    program, form = reading.program, _form(reading)
    route, own = options["route"], {name: value for name, value in options.items() if name != "route"}
    check_options(route, own)
    if route == "auto":
        route = routing.choose(program, route, own).name
    if route == _REFERENCE:
        refusals = [f"{r.solver}: {r.refusal}" for r in routing.routes(program, **own) if r.refusal]
        return f"no route takes its {form} form ({'; '.join(refusals)})"
    shape, start = (form, program.m, program.k, conic.orders), None
    if warm_start and cache.get(_START, (None,))[0] == shape:
        start = cache[_START][1]
    try:
        solution = routing.solve(program, route, start, warn=False, **own)
    except InfeasibleRowError as error:
        return _refused(reading, route, error)
    except (SolverError, MemoryError) as error:
        return f"{route} failed on its {form} form: {error!r}"
    if _gave_up(solution, own):
        return f"{route} found {solution.status} on its {form} form: {solution.stop_reason}"
    if solution.status == Status.OPTIMAL:
        cache[_START] = shape, solution
    return _outcome(conic, reading, solution)


def _gave_up(solution: Solution, options: Mapping[str, Any]) -> bool:
    """Whether a route stopped without an answer for another reason than a limit of the user's."""
    unproven = (Status.USER_LIMIT, Status.INFEASIBLE_INACCURATE, Status.UNBOUNDED_INACCURATE)
    limits = {StopReason.TIME_LIMIT, StopReason.INTERRUPTED}
    if options.get("max_iter") is not None:
        limits.add(StopReason.MAX_ITER)
    return solution.status in unproven and solution._stop not in limits


def _refused(reading: Reading, route: str, error: InfeasibleRowError) -> _Outcome | str:
    """Return the outcome that one row contradicts the others, with its Farkas vector if there is one."""
    program, y = reading.program, np.zeros(reading.program.m)
    if error.row is not None:
        y[error.row] = 1.0 if program.bounds.lo[error.row] > 0 else -1.0
    proven = is_farkas(program, y)
    if reading.dual and not proven:
        return f"{route} found no proof: {error}"
    z = reading.z((), np.zeros(program.k), y, priced=False) if proven and not reading.dual else None
    stats = {"route": route, "form": _form(reading), "stop_reason": StopReason.INFEASIBLE.value}
    return _Outcome(_WORDS[_status(reading, Status.INFEASIBLE)], np.zeros(0), z, np.nan, 0.0, 0, stats)


def _status(reading: Reading, found: str) -> Status:
    """Return the status of the problem from the status of a reading."""
    status = Status(found)
    return _TURNED.get(status, status) if reading.dual else status


def _form(reading: Reading) -> str:
    return "dual" if reading.dual else "primal"


def _outcome(conic: Conic, reading: Reading, solution: Solution) -> _Outcome:
    status = _status(reading, solution.status)
    x, z = np.zeros(len(conic.c)), None
    if solution.X is not None:
        x = reading.x(solution.X, solution.u, solution.duals)
        z = reading.z(solution.X, solution.u, solution.duals)
    elif status in (Status.INFEASIBLE, Status.INFEASIBLE_INACCURATE):
        z = reading.z(solution._ray or (), solution.u, solution.duals, priced=False)
    stats = {
        "route": solution.solver,
        "form": _form(reading),
        "gap": solution.gap,
        "error": solution.error,
        "primal_residual": solution.primal_residual,
        "dual_residual": solution.dual_residual,
        "stop_reason": solution.stop_reason,
    }
    seconds = solution.timings["total"]
    return _Outcome(_WORDS[status], x, z, float(conic.c @ x), seconds, solution.iterations, stats)


def _clarabel_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under Clarabel's names; Clarabel checks those that we do not know."""
    ours = ("route", *_CLARABEL_NAMES)
    given = {name: value for name, value in options.items() if name not in ours}
    for name, theirs in _CLARABEL_NAMES.items():
        if options.get(name) is not None:
            given |= dict.fromkeys(theirs, options[name])
    return given
