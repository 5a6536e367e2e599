"""Routing: the choice of a route for a program, its explanation, and the solve.

Automatic routing uses the first route, in the order of the registry, that takes the program. There are four
exceptions. If the matrix is large, its cost definite, and the rows have few entries, as for the completion of
a matrix, ``lowrank`` comes first. If rows of few entries are so many for the order of the matrix that Newton
steps cost more than a few hundred eigendecompositions, in both forms, ``lagrangian`` comes before ``path``;
on a face only with squares or second-order cones. If most rows can be inactive, and they are very many, many
are hinges, or the matrix is large, ``psdboost`` comes before ``path`` at tolerances of 1e-6 and above. If the
matrix is large and there are few more rows than fix its diagonal, ``lowrank`` comes before ``path``, unless
all entries of cost and rows are in a narrow band.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.linalg import LinAlgError

from bregopt import clock
from bregopt.arrays import is_one_of
from bregopt.certify import Status, definite_cost, objective_size, trace_bounds
from bregopt.certify.certificate import NEGLIGIBLE_OBJECTIVE
from bregopt.clock import threads_for
from bregopt.errors import InfeasibleRowError, UnsupportedProblemError
from bregopt.presolve import UNIVERSAL, presolve
from bregopt.presolve.coordinates import on_range_spaces
from bregopt.presolve.dual_form import newton_unknowns
from bregopt.program import Block, LowRank, Penalty, Program, sparse_plus_low_rank
from bregopt.program.program import divergence_of
from bregopt.program.scale import newton_flops
from bregopt.records import dataclass, replace
from bregopt.routes import driver
from bregopt.routes.base import Settings, Solver
from bregopt.routes.progress import CallbackError
from bregopt.routes.registry import (
    REFERENCE,
    check_options,
    failure,
    has_option,
    is_foreign,
    load,
    own_settings,
    resolve,
    route,
    route_names,
    time_limit,
)
from bregopt.routes.solution import Solution
from bregopt.routes.working_set import has_many_hinges

if TYPE_CHECKING:
    from bregopt.rigorous.file.certificate import Verification

logger = logging.getLogger(__name__)

# Floating-point operations of a Newton step on all rows. Above it, generating matrices is faster than `path`:
# 4 times at 4e11 operations (100,000 comparisons of order 64 in benchmarks/margins.py), equal at 1e10.
_HARD_WORK = 1e11
# The same for many hinges, all of which `psdboost` takes at once: 2,200 comparisons of order 64 (1e10
# operations) take it .4 CPU seconds, where `path` takes 2, and 1 instead of 9 where classes overlap.
_HARD_HINGES = 5e9
# Order of the largest matrix. Above it, generated matrices and low-rank factors are faster than `path`. At
# order 400, `path` is 1.7 times faster than generation (benchmarks/margins.py). `lowrank` takes a second on
# graphs of 800 vertices (benchmarks/large_cuts.py).
_LARGE_ORDER = 500
# Tolerance (relative). Each further digit takes matrix generation many rounds, and `path` a few steps.
# benchmarks/margins.py asks for 1e-6 and more.
_COARSE = 1e-6
# Rows beyond the order of the matrix. A relaxed cut has a row for each vertex, and a few more if it is
# balanced; `lowrank` is measured on those (benchmarks/large_cuts.py).
_FEW_MORE = 10
# Operations of a factorization from which on `lagrangian` takes less time than `path`: these, plus a multiple
# of the cubes of the orders, which decompositions cost; and the terms of a row, on average, up to which its
# entries are few. SDPLIB's theta5 (order 250, 3,028 rows) takes `path` 5.5 CPU seconds and `lagrangian` 3.6;
# theta4 (200, 1,949) takes 1.8 and 2.9. Six textbook problems of bounds on entries and largest eigenvalues
# take it half of the time at orders 36 to 44, and .8 at 28 and 32.
_LEAST_WORK, _DECOMPOSITIONS, _FEW_ENTRIES, _SPARSE_PAIRS = 8e7, 350.0, 16, 0.3
# Variables times rows, relative to the cubes of the orders, from which dense rows of variables cost more than
# a decomposition. The pencils of the sum of largest eigenvalues (order 100) have 26 variables.
_OF_VARIABLES = 10.0
# Order beyond which hundreds of decompositions take too long: theta of a random graph of 2,000 vertices and
# 20,000 edges takes `lowrank` 52 CPU seconds to 1e-3, and is between 360 and 729 after 110 of `lagrangian`.
# With 1,000 and 10,000 `lowrank` is faster, too, but it does not reach 1e-3 on scale-free graphs of 800.
_LARGEST_DECOMPOSED = 1_500
# Order up to which `bregman` takes squared distances beside matrices without a divergence by proximal steps,
# which know the entries of ``X`` to ten digits.
# Pays on: nearest correlation matrix above another, n = 64.
_LARGEST_PROXIMAL = 50
# Entries and variables up to which `entropy` takes squared distances beside variables. Its equations are
# dense.
# Pays on: nearest matrix within a norm, n = 36.
_LARGEST_DENSE = 800
# Growth of ``X`` by its linear cost at zero multipliers, from which Newton's method on the dual begins so far
# away that it takes hundreds of steps, or does not end.
# Pays on: von Neumann nearness beside a large cost, n = 30.
_LARGEST_GROWTH = 1e13
# Bandwidth of a band that is narrow. `path` solves one by its cliques, in linear time, where `lowrank` takes
# many steps: 0.4 and 8 seconds at order 2,000 and bandwidth 4, 0.7 and 1.0 at order 1,000 and bandwidth 12.
_NARROW = 12
_FINER = 0.01  # of the tolerance, where an answer is to be proven and is not
# Options of all routes, at values that ask for no more than the answer.
_SILENT = {"time_limit": None, "proven": False, "verbose": False, "callback": None, "progress": False}
_COMMON = frozenset({"tol", "tol_X", "max_iter", "seed", "rank_tol", *_SILENT})


@dataclass(frozen=True)
class Route:
    """One line of an explanation: a route, its refusal (None if it takes the problem), its choice."""

    solver: str
    refusal: str | None
    choice: str
    chosen: bool


def solve(
    program: Program,
    solver: Any = "auto",
    start: Solution | None = None,
    warn: bool = True,
    reference: bool = True,
    **options: Any,
) -> Solution:
    """Choose a route for a program, solve it and certify the answer; see :meth:`bregopt.Problem.solve`.

    A caller that reports the status itself sets `warn` to False, and one that CVXPY has called sets
    `reference` to False: the reference, which would call CVXPY again, is then refused.
    """
    with clock.limited(time_limit(options)), threads_for(_order(program)):
        direct = _directly(program, solver, start, warn, options)
        if direct is not None:
            return direct
        cls = choose(program, solver, options)
        if cls.name == REFERENCE and not reference:
            refusals = [f"{r.solver}: {r.refusal}" for r in routes(program, **options) if r.refusal]
            raise UnsupportedProblemError("; ".join(refusals) or f"{REFERENCE} is the reference")
        settings = own_settings(cls, options)
        if logger.isEnabledFor(logging.INFO):
            _log_route(cls, program, settings)
        try:
            if settings.proven:
                return _proven(cls, program, settings, start, warn)
            return driver.run(cls(), program, settings, start, warn)
        except CallbackError as failed:
            raise failed.error from failed.error.__cause__
        except (ArithmeticError, LinAlgError) as error:
            raise failure(cls, error) from error


def _proven(
    cls: type[Solver], program: Program, settings: Settings, start: Solution | None, warn: bool
) -> Solution:
    """Return an answer with its proven interval, "optimal" only if that is within the tolerance."""
    solution = driver.run(cls(), program, settings, start, False)
    proof = _proof(program, solution)
    if solution.status == Status.OPTIMAL and not _is_within(proof, solution, settings.tol):
        finer = driver.run(cls(), program, replace(settings, tol=_FINER * settings.tol), start, False)
        closer = _proof(program, finer)  # the interval is of the optimum, whichever answer it came from
        proof = closer if closer.width < proof.width else proof
    solution = replace(solution, proof=proof)
    if solution.status == Status.OPTIMAL and not _is_within(proof, solution, settings.tol):
        reasons = "; ".join(f"no {side} bound: {reason}" for side, reason in proof.reasons.items())
        found = reasons or f"the relative width of the proven interval is {proof.relative_width:.1e}"
        stop_reason = f"The certificate meets the tolerance, but the proof does not: {found}."
        solution = replace(solution, status=Status.OPTIMAL_INACCURATE, stop_reason=stop_reason)
    if warn:
        driver.warn_unproven(solution, settings.tol)
    return solution


def _is_within(proof: Verification, solution: Solution, tol: float) -> bool:
    """Whether the proven interval is as narrow as a gap of the tolerance, relative to what the gap is."""
    program = solution._program
    assert program is not None  # with tangents in place of convex terms
    ends = (-proof.upper, -proof.lower) if program.maximize else (proof.lower, proof.upper)
    unit = solution.error / solution.gap if solution.gap > 0 else 0.0  # or more: an error counts round-off
    size = objective_size(program, *ends, terms=unit / NEGLIGIBLE_OBJECTIVE)
    return math.isfinite(proof.width) and proof.width <= tol * size


def _proof(program: Program, solution: Solution) -> Verification:
    """Return the proven bounds of an answer; none, with the reason, where there is no proof."""
    from bregopt.rigorous.file.certificate import Verification
    from bregopt.routes.verification import verified  # it solves problems, so it is above this module

    try:
        return verified(program, solution, True, None, None)
    except ValueError as error:
        return Verification(-math.inf, math.inf, dict.fromkeys(("lower", "upper"), str(error)))


def _directly(
    program: Program, solver: Any, start: Solution | None, warn: bool, options: Mapping[str, Any]
) -> Solution | None:
    """Return the answer of a route that certifies what it finds, where nobody watches its steps.

    To reduce, to route and to certify a small problem takes up to three times as long as to solve it.
    """
    silent = all(value is _SILENT.get(name, value) for name, value in options.items())
    if not (silent and options.keys() <= _COMMON) or logger.isEnabledFor(logging.DEBUG):
        return None
    linear = all(block.nearness is None for block in program.blocks)
    name = "path" if linear else "bregman"
    cls: Any = load(name) if is_one_of(solver, ("auto", name)) else None
    if cls is None or not hasattr(cls, "solve_directly") or is_foreign(cls, program):
        return None
    settings = own_settings(cls, options)
    try:
        solution = driver.run_directly(cls(), program, settings, start, warn)
    except (ArithmeticError, LinAlgError):  # the whole route may reduce what breaks down
        return None
    if solution is not None and logger.isEnabledFor(logging.INFO):
        _log_route(cls, program, settings)
        driver.log_answer(solution)
    return solution


def _log_route(cls: type[Solver], program: Program, settings: Settings) -> None:
    method = cls().choice(program, settings)
    logger.info("route %s%s", cls.name, method and f": {method}")


def choose(program: Program, solver: Any, options: Mapping[str, Any]) -> type[Solver]:
    """Return the route that :func:`solve` uses.

    Raises
    ------
    UnsupportedProblemError
        The named route, or every route, does not take the program; the message says why.
    TypeError, ValueError
        Unknown solver or option, or a bad value of one.
    """
    check_options(solver, options)
    if solver != "auto":
        name, cls = resolve(solver)
        refusal = _refusal(cls, program, options)
        if refusal is None:
            return cls
        others = [r.solver for r in routes(program) if r.refusal is None]
        raise UnsupportedProblemError(
            f"solver {name!r} does not take this problem: {refusal}. "
            + (f"These do: {', '.join(others)}." if others else "No registered solver does.")
        )
    refusals = {}
    for name in _in_order(program, options):
        cls = load(name)
        refusals[name] = _refusal(cls, program, options)
        if refusals[name] is None:
            return cls
    reasons = "; ".join(f"{name}: {refusal}" for name, refusal in refusals.items())
    raise UnsupportedProblemError(f"no registered solver takes this problem ({reasons})")


def takes(program: Program, solver: str, options: Mapping[str, Any]) -> bool:
    """Whether a route takes a program, under options that it has."""
    return _refusal(resolve(solver)[1], program, options) is None


def routes(program: Program, solver: Any = "auto", **options: Any) -> list[Route]:
    """Return the verdict of each registered route on a program, and the route that would be used."""
    names = _in_order(program, options) if solver == "auto" else route_names()
    considered = {name: load(name) for name in names}
    if solver != "auto":
        considered |= [resolve(solver)]
    chosen = False
    found = []
    for name, cls in considered.items():
        refusal = _refusal(cls, program, options)
        takes = refusal is None and not chosen and (solver == "auto" or name == resolve(solver)[0])
        choice = "" if refusal else cls().choice(program, own_settings(cls, options))
        found.append(Route(name, refusal, choice, takes))
        chosen = chosen or takes
    return found


def explain(program: Program, solver: Any = "auto", **options: Any) -> str:
    """Return, as text, each registered route's verdict on a program, and the chosen one's reductions."""
    check_options(solver, options)
    lines = []
    for line in routes(program, solver, **options):
        mark = "->" if line.chosen else "  "
        choice = f": {line.choice}" if line.choice else ""
        verdict = f"no: {line.refusal}" if line.refusal else f"takes it{choice}"
        lines.append(f"{mark} {line.solver:<14} {verdict}")
        if line.chosen:
            cls = resolve(solver if isinstance(solver, type) else line.solver)[1]
            done = driver.reductions_of(cls, program, own_settings(cls, options))
            lines += [f"{'':17} after: {summary}" for summary in done]
    return "\n".join(lines)


def translate(program: Program, solver: str) -> Any:
    """Return the program in the form of the named route (for the reference a ``cvxpy.Problem``)."""
    return route(solver).translate(on_range_spaces(program, Settings().rank_tol)[0])


def _refusal(cls: type[Solver], program: Program, options: Mapping[str, Any]) -> str | None:
    for name, value in options.items():
        if not has_option(cls, name, value):
            kind = f" of type {type(value).__name__}" if name == "tuning" else ""
            return f"it has no option {name!r}{kind}"
    settings = own_settings(cls, options)
    program = settings.completed(program)
    reason = cls.capabilities.refusal(program)
    return reason if reason is not None else cls().refusal(program, settings)


# Pays on: max-cut, n = 800.
def _in_order(program: Program, options: Mapping[str, Any]) -> list[str]:
    """Return the names of all routes in the order for a program and the tolerance asked for."""
    order = _order(program)
    if program.has_squares_beside_others:
        if _has_large_squares(program) and options.get("tol_X") is None:
            return _first("lagrangian" if _many_rows(_reduced_for("path", program)) else "path")
        return _earlier("entropy", route_names())
    if any(map(_outgrows, program.blocks)):
        return _first("entropy")
    large = order > _LARGE_ORDER
    hard = large or newton_flops(program) > _HARD_WORK
    coarse = options.get("tol", Settings.tol) >= _COARSE
    if large and (coarse or order > _LARGEST_DECOMPOSED) and _completes(program) and not _narrow(program):
        return _earlier("lowrank", route_names())
    if _many_rows(program) and not _narrow(program):
        if order <= _LARGEST_DECOMPOSED:
            return _earlier("lagrangian", route_names())
        if None not in trace_bounds(program):
            return _earlier("lowrank", route_names())
    most = int(program.bounds.can_be_inactive.sum()) > program.m / 2
    if coarse and most and (hard or _hard_hinges(program)):
        return _earlier("psdboost", route_names())
    if large and program.m <= order + _FEW_MORE and not _narrow(program):
        return _earlier("lowrank", route_names())
    return route_names()


# Pays on: completion of a matrix of 300 x 300.
def _completes(program: Program) -> bool:
    """Whether a definite cost, such as a trace, is least over rows of few entries: its answer has low rank.

    Rows of full vectors have no part in the preconditioner: phase retrieval of order 600 takes `lowrank` 109
    CPU seconds, and `path` 20. Squares of differences, such as distances, have terms on the diagonal, and
    `lowrank` converges slowly: 4,000 of 500 sensors take `path` 43 CPU seconds, and `lowrank` has no answer
    in 117. But 8,000 of 600 sensors take it 92, where `lagrangian` has none in 110. Entries with noise take
    `lowrank` two to three times as long as `lagrangian`.
    """
    if definite_cost(program) is None:
        return False
    (sparse,) = sparse_plus_low_rank(program)
    if sparse is None or len(sparse.rows.at):
        return False
    terms = sparse.rows.terms
    return int((terms.i == terms.j).sum()) <= program.blocks[0].n or _many_rows(program)


def _has_large_squares(program: Program) -> bool:
    """Whether squared distances as soft rows are faster than with their own curvature."""
    if all(block.nearness is not None for block in program.blocks):
        return sum(n * (n + 1) // 2 for n in program.A.orders) + program.k > _LARGEST_DENSE
    return _order(program) > _LARGEST_PROXIMAL


def _outgrows(block: Block) -> bool:
    """Whether a linear cost makes the minimizer of a von Neumann divergence far larger than its ``X0``."""
    nearness = block.nearness
    if (
        block.cost is None
        or nearness is None
        or not nearness.kind.exponential
        or isinstance(nearness.X0, LowRank)
    ):
        return False
    spectrum = divergence_of(nearness).spectrum(block.C, nearness.mu)
    return spectrum is None or float(spectrum.X.trace()) > _LARGEST_GROWTH * float(np.trace(nearness.X0))


def _hard_hinges(program: Program) -> bool:
    """Whether `psdboost` takes many hinges at once, in the form that it takes, faster than `path`."""
    if newton_flops(program) < _HARD_HINGES:
        return False
    try:
        return has_many_hinges(_reduced_for("psdboost", program))
    except InfeasibleRowError:
        return False


def _reduced_for(name: str, program: Program) -> Program:
    """Return the program in the form that a route takes, whichever rows of bounds it was given with."""
    names = (*UNIVERSAL, *load(name).capabilities.reductions)
    return presolve(program, names, Settings()).program


# Pays on: theta of 300 vertices and 4,500 edges.
def _many_rows(program: Program) -> bool:
    """Whether rows of few entries cost `path` more than `lagrangian`, in the form that it takes."""
    cubes = sum(float(block.n) ** 3 for block in program.blocks)
    least = _LEAST_WORK + _DECOMPOSITIONS * cubes
    if newton_flops(program) / 3 < least:
        return False
    settings = Settings()
    try:
        reduced = _reduced_for("path", program)
        form = presolve(reduced, ("dual form",), settings).program
    except InfeasibleRowError:
        return False
    if newton_unknowns(form) ** 3 / 3 < least:
        return False
    terms = sum(term.count for term in reduced.A.terms)
    if reduced.k * reduced.m > _OF_VARIABLES * cubes:
        terms += reduced.B.nnz
    if terms > _FEW_ENTRIES * reduced.m:
        return False
    # On a face (order 100) distances nearest to given ones take it .5 CPU seconds by squares, 1.5 by a cone.
    # For the sum of their deviations it does not reach 1e-6 in 40, and `path` does in 34. The largest one
    # takes 5 to 16 and `path` 34 or more, but an embedding within a factor does not reach 1e-6.
    smooth = Penalty.SQUARE in reduced.bounds.kinds or reduced.cones.count
    if not smooth and presolve(reduced, ("faces",), settings).steps:
        return False
    meeting = np.zeros(len(form.blocks))  # the rows that meet each of several matrices
    for term in form.A.terms:
        meeting[term.block] += len(term.at)
    return len(meeting) == 1 or float(meeting @ meeting) > _SPARSE_PAIRS * form.m**2


def _order(program: Program) -> int:
    """Return the largest order of a matrix of the program."""
    return max(program.A.orders, default=0)


def _narrow(program: Program) -> bool:
    """Whether all entries of cost and rows in the one matrix are in a narrow band, after reordering."""
    from bregopt.presolve.chordal import pattern_of  # only large problems wait

    pattern = pattern_of(program, 0) if len(program.blocks) == 1 else None
    return pattern is not None and pattern.bandwidth <= _NARROW


def _first(name: str) -> list[str]:
    """Return the names of all routes, one of them first."""
    return [name, *(other for other in route_names() if other != name)]


def _earlier(name: str, names: list[str]) -> list[str]:
    """Return the names with one of them moved right before ``path``."""
    others = [other for other in names if other != name]
    place = others.index("path")
    return [*others[:place], name, *others[place:]]
