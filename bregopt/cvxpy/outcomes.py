"""Conic data solved by a route: one reading after the other, and the outcome as Clarabel would say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.cvxpy.conic_program import Conic
from bregopt.cvxpy.readings import Reading, read_conic, read_dual, too_large
from bregopt.errors import InfeasibleRowError, SolverError, UnsupportedProblemError, did_you_mean
from bregopt.program import ENDED, Program, StopReason
from bregopt.records import dataclass, field_names, replace
from bregopt.rigorous import proves_infeasible, proves_unbounded
from bregopt.routes import routing
from bregopt.routes.base import Settings
from bregopt.routes.registry import option_names
from bregopt.routes.solution import Solution, Status

# Clarabel's statuses of rays, and ours of a ray without a feasible point, for which it has none.
UNBOUNDED = ("DualInfeasible", "AlmostDualInfeasible")
INFEASIBLE_OR_UNBOUNDED = "InfeasibleOrUnbounded"

_START = "BREGOPT start"  # key of the last answer, kept for a warm start, in the solver cache
# Our statuses as Clarabel's, which the parent class reads.
_CLARABEL_STATUS = {
    Status.OPTIMAL: "Solved",
    Status.OPTIMAL_INACCURATE: "AlmostSolved",
    Status.INFEASIBLE: "PrimalInfeasible",
    Status.INFEASIBLE_INACCURATE: "AlmostPrimalInfeasible",
    Status.UNBOUNDED: "DualInfeasible",
    Status.UNBOUNDED_INACCURATE: "AlmostDualInfeasible",
    Status.USER_LIMIT: "MaxIterations",
    Status.INACCURATE: "InsufficientProgress",
}
_LEAST_FALL = 3e-4  # of the objective along a ray, relative to their norms: ten roots of 1e-9
# Clarabel's statuses of answers; its statuses of proofs, with the replacement if the proof does not hold.
ROUGH = _CLARABEL_STATUS[Status.INACCURATE]
_ANSWERS = ("Solved", "AlmostSolved", ROUGH)
_PROOFS = {"PrimalInfeasible": "AlmostPrimalInfeasible", "DualInfeasible": "AlmostDualInfeasible"}
UNPROVEN = tuple(_PROOFS.values())
# The status of the dual, and the status of the problem that follows.
_STATUS_OF_DUAL = {
    Status.INFEASIBLE: Status.UNBOUNDED,
    Status.INFEASIBLE_INACCURATE: Status.UNBOUNDED_INACCURATE,
    Status.UNBOUNDED: Status.INFEASIBLE,
    Status.UNBOUNDED_INACCURATE: Status.INFEASIBLE_INACCURATE,
}


_CONTRADICTION = (
    "No point meets the constraints: a combination of them is a contradiction. "
    "bo.from_cvxpy(problem).solve().conflict() names them."
)


@dataclass(frozen=True, eq=False)
class Outcome:
    """An answer in the form that the parent class reads."""

    status: str
    x: Array
    z: Array | None
    obj_val: float
    solve_time: float
    iterations: int
    stats: dict[str, Any]


def solve_conic(
    conic: Conic, warm_start: bool, options: Mapping[str, Any], cache: dict[str, Any]
) -> Outcome | str:
    """Return the answer of a route, or the reason why there is none.

    If the answer does not meet the tolerance, the other reading is solved too. A contradiction or a ray
    without proof is the outcome where no answer has an error that is known.
    """
    for name in options.keys() - {"route", *field_names(Settings)}:
        known = option_names(options["route"])
        if name not in known:
            raise TypeError(f"BREGOPT has no option {name!r}{did_you_mean(name, {'route', *known})}")
    inaccurate: list[Outcome] = []
    unproven: list[Outcome] = []
    rough: list[Outcome] = []
    reasons: list[str] = []
    for reading in _readings(conic, cache, reasons):
        found = _by_route(conic, reading, warm_start, options, cache)
        if reading.dual and not isinstance(found, str) and found.status == _CLARABEL_STATUS[Status.UNBOUNDED]:
            found = _with_a_point(conic, found, options)
        if isinstance(found, str):
            reasons.append(found)
        elif found.status == _CLARABEL_STATUS[Status.OPTIMAL_INACCURATE]:
            inaccurate.append(found)
        elif found.status in UNPROVEN:
            unproven.append(found)
        elif found.status == ROUGH:
            rough.append(found)
        else:
            return found
    if inaccurate and (not unproven or any(found.stats["error"] < np.inf for found in inaccurate)):
        return min(inaccurate, key=lambda found: found.stats["error"])
    if unproven:
        return unproven[0]
    if rough:
        return min(rough, key=lambda found: found.stats["gap"])
    return "; ".join(reasons) or str(too_large(conic))


def _readings(conic: Conic, cache: dict[str, Any], reasons: list[str]) -> Iterator[Reading]:
    """Yield the readings of a program; a mistake in the reader is a reason to hand it on, not the user's."""
    try:
        yield from read_conic(conic, cache)
    except Exception as error:
        reasons.append(f"reading it failed by {error!r}")


def certified(conic: Conic, status: str, x: Array, z: Array, tol: float) -> tuple[str, dict[str, Any]]:
    """Return Clarabel's status, weakened if our certificate does not confirm it, and its numbers.

    The certificate is that of the dual reading, with the matrices of ``z`` and the multipliers ``x``.
    """
    program = read_dual(conic).program
    S, u = conic.matrices(z[conic.first_psd :]), z[: conic.first_psd]
    if status in _ANSWERS and np.isfinite(x).all() and np.isfinite(z).all():
        certificate = certify(PrimalDualPoint(program, S, u, x))
        found = certificate.status(tol, StopReason.INACCURATE)
        bound = -(certificate.primal + certificate.error)
        return _CLARABEL_STATUS[found], _numbers(certificate, bound)
    if status in _PROOFS:
        ray = status == "PrimalInfeasible"
        proven = proves_unbounded(program, S, u) if ray else proves_infeasible(program, x)
        return status if proven else _PROOFS[status], {}
    return status, {}


def _numbers(certificate: Certificate | Solution, bound: float) -> dict[str, Any]:
    """Return the numbers of a certificate for ``extra_stats``."""
    return {
        "gap": certificate.gap,
        "bound": bound,
        "error": certificate.error,
        "primal_residual": certificate.primal_residual,
        "dual_residual": certificate.dual_residual,
    }


def with_a_point(unbounded: Outcome, aimless: Outcome, conic: Conic | None, tol: float) -> Outcome:
    """Return the outcome "unbounded" if a point is feasible, else what a ray alone proves.

    Parameters
    ----------
    unbounded : Outcome
        Clarabel's.
    aimless : Outcome
        Clarabel's for the same problem without objective.
    conic : Conic or None
        That problem, if our certificates take it: they then decide on the point and on its infeasibility.
    tol : float
    """
    status, x, z = aimless.status, aimless.x, aimless.z
    if conic is not None and z is not None:
        z = 0 * z if status in _ANSWERS else z  # without objective these are optimal multipliers
        status, _ = certified(conic, status, x, z, tol)
    if status == "Solved":
        return unbounded
    if status == "PrimalInfeasible":
        return replace(aimless, z=z, stats=unbounded.stats)
    proven = unbounded.status == "DualInfeasible"
    return replace(unbounded, status=INFEASIBLE_OR_UNBOUNDED if proven else "NumericalError")


def _with_a_point(conic: Conic, unbounded: Outcome, options: Mapping[str, Any]) -> Outcome | str:
    """Return the outcome "unbounded" if a feasible point is found, else a proof of infeasibility or a reason.

    An infeasible dual alone proves only that there is no optimum.
    """
    aimless = replace(conic, c=np.zeros(len(conic.c)))
    for reading in read_conic(aimless):
        found = _by_route(aimless, reading, False, options, {})
        if isinstance(found, str):
            continue
        if found.status == _CLARABEL_STATUS[Status.OPTIMAL]:
            return unbounded
        if found.status == _CLARABEL_STATUS[Status.INFEASIBLE]:
            return found
    return "the dual is infeasible, and whether the primal is, too, was not found out"


def _by_route(
    conic: Conic, reading: Reading, warm_start: bool, options: Mapping[str, Any], cache: dict[str, Any]
) -> Outcome | str:
    program, form = reading.program, _form(reading)
    route, own = options["route"], {name: value for name, value in options.items() if name != "route"}
    shape, start = (form, program.m, program.k, conic.soc, conic.orders), None
    if warm_start and cache.get(_START, (None,))[0] == shape:
        start = cache[_START][1]
    try:
        solution = routing.solve(program, route, start, warn=False, reference=False, **own)
    except UnsupportedProblemError as error:
        return f"no route takes its {form} form ({error})"
    except InfeasibleRowError as error:
        return _refused(reading, routing.choose(program, route, own).name, error)
    except (SolverError, MemoryError) as error:
        return f"{routing.choose(program, route, own).name} failed on its {form} form: {error!r}"
    route = solution.solver
    if _gave_up(solution, own) and _CLARABEL_STATUS[Status(solution.status)] not in (*UNPROVEN, ROUGH):
        return f"{route} found {solution.status} on its {form} form: {solution.stop_reason}"
    if reading.dual and solution.status == Status.INFEASIBLE and not _falls(program, solution._point[2]):
        return f"{route} found a ray of the {form} form's dual that hardly decreases the objective"
    on_faces = reading.dual and solution._y_on_faces is not None
    if on_faces and _CLARABEL_STATUS[Status(solution.status)] in _ANSWERS:
        certificate = _of_all_rows(program, solution)
        tol = own.get("tol", Settings().tol)
        status = certificate.status(tol, StopReason.INACCURATE)
        if status is Status.INACCURATE:
            return f"{route} proved its answer to the {form} form on a face only, where x is not feasible"
        if status is not Status.OPTIMAL:
            solution = replace(
                solution,
                status=status.value,
                gap=certificate.gap,
                error=certificate.error,
                dual_residual=certificate.dual_residual,
            )
    if solution.status == Status.OPTIMAL:
        cache[_START] = shape, solution
    return _outcome(conic, reading, solution)


def _falls(program: Program, y: Array | None) -> bool:
    """Whether the objective falls along the ray ``x = y`` by more than the root of a tolerated violation.

    On the boundary of a cone an entry may grow by that root: a ray that falls less need not exist.
    """
    if y is None:
        return False
    right = np.where(y > 0, program.bounds.lo, program.bounds.hi)
    return float(y @ right) > _LEAST_FALL * float(np.linalg.norm(y) * np.linalg.norm(right))


def _of_all_rows(program: Program, solution: Solution) -> Certificate:
    """Return the certificate on the whole cones.

    The multipliers of the dual form are the variables ``x``. Multipliers that prove an answer on a face of
    the cones need not be feasible.
    """
    return certify(PrimalDualPoint(program, tuple(solution.X or ()), *solution._point[1:]))


def _gave_up(solution: Solution, options: Mapping[str, Any]) -> bool:
    """Whether a route stopped without an answer for another reason than a limit of the user's."""
    unproven = (
        Status.USER_LIMIT,
        Status.INACCURATE,
        Status.INFEASIBLE_INACCURATE,
        Status.UNBOUNDED_INACCURATE,
    )
    limits = ENDED | ({StopReason.MAX_ITER} if options.get("max_iter") is not None else set())
    return solution.status in unproven and solution._stop not in limits


def _refused(reading: Reading, route: str, error: InfeasibleRowError) -> Outcome | str:
    """Return the outcome that one row contradicts the others, with its Farkas vector if there is one."""
    program, y = reading.program, contradiction_of(reading.program, error)
    if reading.dual and y is None:
        return f"{route} found no proof: {error}"
    z = None
    if y is not None and not reading.dual:
        z = reading.z([np.zeros((n, n)) for n in program.A.orders], np.zeros(program.k), y, priced=False)
    status = status_of(reading, Status.INFEASIBLE)
    reason = _CONTRADICTION if status == Status.INFEASIBLE else StopReason.INFEASIBLE.value
    stats = {"route": route, "form": _form(reading), "stop_reason": reason}
    return Outcome(_CLARABEL_STATUS[status], np.zeros(0), z, np.nan, 0.0, 0, stats)


def contradiction_of(program: Program, error: InfeasibleRowError) -> Array | None:
    """Return the Farkas vector of a row that alone contradicts ``X psd``, None if it needs no other proof."""
    y = np.zeros(program.m)
    if error.row is not None:
        y[error.row] = 1.0 if program.bounds.lo[error.row] > 0 else -1.0
    return y if proves_infeasible(program, y) else None


def status_of(reading: Reading, found: str) -> Status:
    """Return the status of the problem from the status of a reading."""
    status = Status(found)
    return _STATUS_OF_DUAL.get(status, status) if reading.dual else status


def _form(reading: Reading) -> str:
    return "dual" if reading.dual else "primal"


def _outcome(conic: Conic, reading: Reading, solution: Solution) -> Outcome:
    status = status_of(reading, solution.status)
    x, z = np.zeros(len(conic.c)), None
    X, u, y = solution._point
    if X is not None:
        x = reading.x(X, u, y)
        z = reading.z(X, u, y)
    elif status in (Status.INFEASIBLE, Status.INFEASIBLE_INACCURATE):
        tangent = None if solution._program is None else solution._program.tangent
        z = reading.z(solution._ray or (() if tangent is None else tangent.X), u, y, priced=False)
    stats = {
        "route": solution.solver,
        "form": _form(reading),
        **_numbers(solution, -(solution.value + solution.error) if reading.dual else solution.dual_value),
        "stop_reason": _CONTRADICTION if status == Status.INFEASIBLE else solution.stop_reason,
    }
    if solution.proof is not None:
        lower, upper = solution.proof.lower, solution.proof.upper
        stats["proven"] = (-upper, -lower) if reading.dual else (lower, upper)  # of the cone program
    seconds = solution.timings["total"]
    return Outcome(_CLARABEL_STATUS[status], x, z, float(conic.c @ x), seconds, solution.iterations, stats)
