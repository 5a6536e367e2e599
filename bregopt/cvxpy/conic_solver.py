"""The conic solver ``BREGOPT`` for ``problem.solve(solver=...)`` of CVXPY.

It extends CVXPY's interface of Clarabel: a route of bregopt solves the programs with psd or exponential
cones, which may have second-order cones and a convex quadratic objective too. The parent class lays out the
data, maps answers back to the user's variables and duals, and solves all other programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, ClassVar

import cvxpy.settings as s
import numpy as np
from cvxpy.reductions.solvers import defines
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import CLARABEL

from bregopt import clock
from bregopt.arrays import Array
from bregopt.clock import threads_for
from bregopt.cvxpy.conic_program import Conic, QuadraticCost, with_quadratic_cost
from bregopt.cvxpy.outcomes import (
    INFEASIBLE_OR_UNBOUNDED,
    ROUGH,
    UNBOUNDED,
    UNPROVEN,
    Outcome,
    certified,
    solve_conic,
    status_of,
    with_a_point,
)
from bregopt.cvxpy.problems.lower import check_sizes
from bregopt.cvxpy.readings import read_conic, too_large
from bregopt.errors import UnsupportedProblemError
from bregopt.linalg import csr_of
from bregopt.program import Program
from bregopt.records import replace
from bregopt.routes import routing
from bregopt.routes.registry import time_limit
from bregopt.routes.solution import Solution

_NAME = "BREGOPT"
_TOL = 1e-8  # Clarabel's default
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
# Its statuses that say more than a contradiction or a ray of ours without proof.
_ENDS = ("Solved", "AlmostSolved", "PrimalInfeasible", "DualInfeasible")
_OTHER_CONES = {"p3d": "power", "pnd": "power"}
# Clarabel is asked for this fraction of the tolerance, but for no tolerance below the finest that it reaches.
_MARGIN, _FINEST = 1e-3, 1e-12
_ROWS = "BREGOPT rows"  # key of the last program, and of its A as it was given, in the solver cache


class Bregopt(CLARABEL):  # type: ignore[misc]
    """Programs with psd or a few exponential cones by a route of bregopt, all others by Clarabel.

    ``problem.solver_stats.extra_stats`` holds the ``route``, the certificate, and the ``reason`` why Clarabel
    solved the problem if it did. The ``bound`` is that of the minimization that CVXPY compiles, which for a
    maximization has the negative objective. There is one instance, :data:`BREGOPT`, because CVXPY caches its
    compilation by solver object.
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

    def can_solve(self, problem_form: Any) -> bool:
        """Whether CVXPY may compile a problem for us; newer versions of CVXPY ask.

        Raises
        ------
        ValueError
            If the problem does not fit in memory.
        """
        problem = getattr(problem_form, "_problem", None)
        if problem is not None:
            check_sizes(problem)
        return bool(super().can_solve(problem_form))

    def solve_via_data(
        self,
        data: Mapping[str, Any],
        warm_start: bool,
        verbose: bool,
        solver_opts: Mapping[str, Any],
        solver_cache: dict[str, Any] | None = None,
    ) -> Outcome:
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
        reason, conic, quadratic, ended, open_end = _not_ours(data), None, None, None, False
        if reason is None:
            ours = {"route": "auto", "tol": _TOL, **options, "verbose": verbose}
            cache = {} if solver_cache is None else solver_cache
            conic = _conic(data, cache)
            quadratic = _quadratic(conic, data)
            conic = conic if quadratic is None else quadratic.conic
            with clock.limited(time_limit(ours)), threads_for(max(conic.orders, default=0)):
                found = solve_conic(conic, warm_start, ours, cache)
            if isinstance(found, Outcome):
                found = found if quadratic is None else _shortened(found, quadratic)
                curved = conic.exponential > 0 and ours["route"] == "auto"
                open_end = curved and found.status == "AlmostSolved"
                if not (open_end or found.status in (*UNPROVEN, ROUGH)):
                    return found
                # As with `method="bregopt"`: CVXPY has no other word for it.
                ended = replace(found, status="AlmostSolved") if found.status == ROUGH else found
                unproven = found.status in UNPROVEN
                end = "no proof of what it found" if unproven else f"a gap of {ended.stats['gap']:.1e}"
                found = f"{ended.stats['route']} ended with {end}"
            reason = found
        tol = float(options.get("tol", _TOL))
        if conic is not None and not conic.exponential:
            # Our certificate is stricter, and Clarabel's last steps converge fast.
            options = {**options, "tol": max(_MARGIN * tol, _FINEST)}
        found = self._by_clarabel(data, warm_start, verbose, options)
        if ended is not None and open_end and found.status != "Solved":
            return ended
        word = found.status
        found = replace(found, stats={**found.stats, "reason": reason})
        if conic is not None and found.z is not None and not conic.exponential:
            x, z = (found.x, found.z) if quadratic is None else _extended(quadratic, found)
            status, numbers = certified(conic, found.status, x, z, tol)
            found = replace(found, status=status, stats={**found.stats, **numbers})
        kept = ended is None or found.status in _ENDS
        if found.status == ROUGH and word == "AlmostSolved":
            better = ended is None or found.stats["error"] < ended.stats.get("error", 0.0)
            found, kept = replace(found, status=word), better and (ended is None or ended.status == word)
        if ended is not None and not kept:
            return ended
        return self._with_a_point(found, data, options, tol) if found.status in UNBOUNDED else found

    def _by_clarabel(
        self, data: Mapping[str, Any], warm_start: bool, verbose: bool, options: Mapping[str, Any]
    ) -> Outcome:
        result = super().solve_via_data(data, warm_start, verbose, _clarabel_options(options))
        x, z = np.array(result.x), None if result.z is None else np.array(result.z)
        stats = {"route": "CLARABEL"}
        return Outcome(str(result.status), x, z, result.obj_val, result.solve_time, result.iterations, stats)

    def _with_a_point(
        self, unbounded: Outcome, data: Mapping[str, Any], options: Mapping[str, Any], tol: float
    ) -> Outcome:
        """Return the outcome "unbounded" if a feasible point is found, else what a ray alone proves."""
        aimless = {name: value for name, value in data.items() if name != s.P}
        aimless[s.C] = np.zeros(len(data[s.C]))
        found = self._by_clarabel(aimless, False, False, options)
        conic = None if _not_ours(data) or data[CLARABEL.DIMS].exp else _conic(aimless)
        return with_a_point(unbounded, found, conic, tol)

    STATUS_MAP: ClassVar[dict[str, str]] = {
        **CLARABEL.STATUS_MAP,
        INFEASIBLE_OR_UNBOUNDED: s.INFEASIBLE_OR_UNBOUNDED,
    }

    def invert(self, solution: Outcome, inverse_data: Any) -> Any:
        """Return the answer in the user's terms."""
        if getattr(inverse_data, "solver_options", {}) is None:  # where get_problem_data was given none
            inverse_data.solver_options = {}
        inverted = super().invert(solution, inverse_data)
        stats = dict(solution.stats)
        if "bound" in stats:
            stats["bound"] = float(stats["bound"] + inverse_data[s.OFFSET])
        inverted.attr[s.EXTRA_STATS] = stats
        return inverted

    def cite(self, data: Mapping[str, Any]) -> str:
        """Return the BibTeX entry to cite."""
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
        If it has no psd or exponential cone, or a power cone.
    """

    def __init__(self, problem: Any) -> None:
        data, self._offset = conic_data(problem)
        reason = _not_ours(data)
        if reason is not None:
            raise UnsupportedProblemError(f"bregopt does not solve the CVXPY problem: {reason}")
        self._sign = -1.0 if type(problem.objective).__name__ == "Maximize" else 1.0
        # Prefer the direct reading if it is offered: its messages are about the problem itself.
        conic = _conic(data)
        quadratic = _quadratic(conic, data)
        conic = conic if quadratic is None else quadratic.conic
        readings = list(read_conic(conic))
        if not readings:
            raise UnsupportedProblemError(f"bregopt does not solve the CVXPY problem: {too_large(conic)}")
        self._reading = min(readings, key=attrgetter("dual"))

    def program(self) -> Program:
        """Return the program that solvers receive."""
        return self._reading.program

    def solve(self, solver: str, **options: Any) -> Solution:
        """Return the answer of a route with the status and values of the CVXPY problem."""
        raw = routing.solve(self.program(), solver, warn=False, **options)
        turn = -1.0 if self._reading.dual else 1.0
        status = status_of(self._reading, raw.status)
        value, bound = (self._sign * (turn * end + self._offset) for end in (raw.value, raw.dual_value))
        return replace(raw, status=status.value, value=value, dual_value=bound)


def _not_ours(data: Mapping[str, Any]) -> str | None:
    """Return the reason why our routes do not take a program, None if they do."""
    dims = data[CLARABEL.DIMS]
    for cone, kind in _OTHER_CONES.items():
        if getattr(dims, cone, None):  # older versions of CVXPY know fewer
            return f"it has {kind} cones"
    return None if dims.psd or dims.exp else "it has no psd cone"


def _conic(data: Mapping[str, Any], cache: dict[str, Any] | None = None) -> Conic:
    """Return the conic program, without a quadratic term of its objective.

    If `cache` has one of the same ``A`` and cones, all that is known of its rows is kept.
    """
    given, dims = data[s.A].tocsc(), data[CLARABEL.DIMS]
    b, c = np.array(data[s.B], dtype=float), np.array(data[s.C], dtype=float)
    soc, orders = tuple(map(int, dims.soc)), tuple(map(int, dims.psd))
    sizes = int(dims.zero), int(dims.nonneg), soc, orders, int(dims.exp)
    parts = given.indptr, given.indices, given.data
    last, before = (None, ()) if cache is None else cache.get(_ROWS, (None, ()))
    if last is not None and last.cone_sizes == sizes and all(map(np.array_equal, parts, before)):
        found: Conic = last.with_numbers(b, c)
        return found
    kept = given.data.nonzero()[0]
    column = np.arange(given.shape[1]).repeat(given.indptr[1:] - given.indptr[:-1])[kept]
    A = csr_of(given.data[kept].astype(float), given.indices[kept], column, given.shape)
    conic = Conic(A, b, c, *sizes)
    if cache is not None:
        cache[_ROWS] = conic, tuple(part.copy() for part in parts)
    return conic


def _quadratic(conic: Conic, data: Mapping[str, Any]) -> QuadraticCost | None:
    """Return the conic program with a cone for the quadratic term of its objective; None without one."""
    given = s.P in data and data[s.P].count_nonzero()
    return with_quadratic_cost(conic, data[s.P]) if given else None


def _shortened(found: Outcome, quadratic: QuadraticCost) -> Outcome:
    """Return an answer to the program with a linear cost as one to the given program."""
    if not len(found.x):
        nothing = np.zeros(len(quadratic.conic.c))
        return replace(found, z=quadratic.shortened(nothing, found.z)[1])
    x, z = quadratic.shortened(found.x, found.z)
    return replace(found, x=x, z=z, obj_val=quadratic.value(x))


def _extended(quadratic: QuadraticCost, found: Outcome) -> tuple[Array, Array]:
    """Return an answer of Clarabel to the given program as one to the program with a linear cost."""
    assert found.z is not None
    extended = quadratic.extended_proof if "Infeasible" in found.status else quadratic.extended
    return extended(found.x, found.z)


def _clarabel_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under Clarabel's names; Clarabel checks those that we do not know."""
    ours = ("route", *_CLARABEL_NAMES)
    given = {name: value for name, value in options.items() if name not in ours}
    for name, theirs in _CLARABEL_NAMES.items():
        if options.get(name) is not None:
            given |= dict.fromkeys(theirs, options[name])
    return given
