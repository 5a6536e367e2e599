"""The route `bregman`: nearness problems in one matrix by Bregman projection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from bregopt.divergences import SCALARS, Divergence
from bregopt.errors import did_you_mean
from bregopt.presolve import presolve, reductions
from bregopt.program import Answer, LowRank, Program, Start
from bregopt.program.anchor import divergence_of
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.ipm.logdet_newton import logdet_newton
from bregopt.routes.progress import Progress
from bregopt.routes.projection.cyclic import cyclic_projection
from bregopt.routes.projection.dual_newton import dual_newton
from bregopt.routes.projection.hildreth import dykstra_hildreth
from bregopt.routes.projection.tuning import ProjectionTuning
from bregopt.routes.projection.weighted import weighted_frobenius
from bregopt.routes.reductions import Method, behind
from bregopt.routes.working_set import ActiveSet, can_be_inactive, on_working_set

__all__ = ["Bregman", "BregmanSettings"]

_WHITENING = ("whitening",)  # of the program, or of each working set of its rows
_METHODS = ("auto", "newton", "cyclic")
_KULIS = "Kulis, Sustik, Dhillon (2009), Low-Rank Kernel Learning with Bregman Matrix Divergences, JMLR 10"
_QI_SUN = (
    "Qi, Sun (2006), A Quadratically Convergent Newton Method for Computing the Nearest Correlation Matrix, "
    "SIAM J. Matrix Anal. Appl. 28"
)
_DYKSTRA = (
    "Dykstra (1983), An Algorithm for Restricted Least Squares Regression, JASA 78; Higham (2002), Computing "
    "the Nearest Correlation Matrix: A Problem from Finance, IMA J. Numer. Anal. 22"
)
_QI_SUN_WEIGHTED = (
    "Qi, Sun (2010), An Augmented Lagrangian Dual Approach for the H-Weighted Nearest Correlation Matrix "
    "Problem, IMA J. Numer. Anal. 31; Nesterov, Todd (1997), Self-Scaled Barriers and Interior-Point Methods "
    "for Convex Programming, Math. Oper. Res. 22"
)


def _logdet_newton(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Run the interior-point method, with its own constants."""
    own = base.Settings(tol=settings.tol, max_iter=settings.max_iter, tuning=settings.tuning.interior)
    return logdet_newton(program, own, start, progress)


# Each entry: a method, the features of a divergence that it requires, its function and its citation. The
# first match is used.
_ALGORITHMS: tuple[tuple[str, set[str], Method, str], ...] = (
    ("newton", {"barrier"}, behind(_WHITENING, _logdet_newton), _KULIS),
    ("newton", {"weights"}, weighted_frobenius, _QI_SUN_WEIGHTED),
    ("newton", {"spectrum", "quadratic"}, dual_newton, _QI_SUN),
    ("newton", {"spectrum"}, dual_newton, _KULIS),
    ("cyclic", {"spectrum", "quadratic"}, dykstra_hildreth, _DYKSTRA),
    ("cyclic", {"point"}, cyclic_projection, _KULIS),
)


@dataclass(frozen=True, kw_only=True)
class BregmanSettings(base.Settings):
    """Options of the route `bregman`.

    Parameters
    ----------
    method : {"auto", "newton", "cyclic"}
        "newton" moves all rows at once, "cyclic" projects on one row at a time. "auto" uses "cyclic" for
        LogDet with a single row, where one projection gives the solution, and "newton" otherwise.
    tuning : ProjectionTuning
        Numerical constants of the method.
    """

    method: str = "auto"
    tuning: ProjectionTuning = ProjectionTuning()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in _METHODS:
            raise ValueError(f"method is {self.method!r}{did_you_mean(str(self.method), _METHODS)}")


class Bregman:
    """Bregman projection for one matrix and a divergence: LogDet, von Neumann, squared Frobenius or yours."""

    name: ClassVar[str] = "bregman"
    summary: ClassVar[str] = "nearness in LogDet, von Neumann or Frobenius divergence; full or low rank"
    citation: ClassVar[str] = _KULIS
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"barrier", "spectrum", "point", "weights"}),
        blocks=1,
        caps=True,
        matrices=8,
        reductions=("slacks",),
    )
    Settings: ClassVar[type[base.Settings]] = BregmanSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        kind = _kind(program)
        left = _reduced(program, settings).k if program.k else 0
        if left:
            return f"of ordinary variables it takes slacks only (the problem has {left} other)"
        if _algorithm(kind, _method(program, settings)) is None:
            return f"method {settings.method!r} does not take {kind.phrase()}"
        if program.capped and not _takes_cap(kind, _method(program, settings)):
            bounded = f"it takes no bound on eigenvalues with {kind.phrase()}, method {settings.method!r}"
            return f"{bounded}: only Newton's method for von Neumann and Frobenius does"
        if settings.method == "cyclic" and kind.offers("recession") and not _has_start(program):
            return "method 'cyclic' needs C + mu inv(X0) positive definite to start from"
        for penalty in program.bounds.penalties:
            if SCALARS[penalty].of_ratios and not kind.essentially_smooth:
                return f"rows with the {penalty.name.lower()} penalty do not go with {kind.phrase()}"
        return _boundary(program) if kind.essentially_smooth and kind.finite_on_boundary else None

    def choice(self, program: Program, settings: Any) -> str:
        program = _reduced(program, settings)
        method = _method(program, settings)
        if _kind(program).weights:
            return "elementwise weights, by an augmented Lagrangian or, where small, an interior point"
        single = settings.method == "auto" and method == "cyclic" and program.m == 1
        on_some = method == "newton" and _many_inactive(program, settings.tuning)
        why = ", for one row alone" if single else ", on a working set of rows" if on_some else ""
        white = presolve(program, reductions(_WHITENING), settings).summaries if method == "newton" else []
        return "; ".join([f"method {method!r}{why}", *white])

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        return _solve(program, settings, start, progress)


def _reduced(program: Program, settings: Any) -> Program:
    """Return the program as the driver passes it to the route."""
    return presolve(program, reductions(("boxes", "slacks")), settings).program


def _solve(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program without ordinary variables."""
    kind, method = _kind(program), _method(program, settings)
    found = _algorithm(kind, method)
    assert found is not None
    run, citation = found
    if method == "newton" and not kind.weights and _many_inactive(program, settings.tuning):
        begin = None if start is None else Start((), start.u, program.bounds.clip(start.y))
        first = ActiveSet.resting(program.bounds, None if begin is None else begin.y)
        answer = on_working_set(run, program, settings, first, begin, progress)
    else:
        answer = run(program, settings, start, progress)
    return replace(answer, citation=citation)


def _kind(program: Program) -> type[Divergence]:
    (block,) = program.blocks
    assert block.nearness is not None
    return block.nearness.kind


@lru_cache
def _algorithm(kind: type[Divergence], method: str) -> tuple[Method, str] | None:
    """Return the function of a method for a divergence, and its citation; None if there is none."""
    for name, needs, run, citation in _ALGORITHMS:
        if name == method and all(map(kind.offers, needs)):
            return run, citation
    return None


def _takes_cap(kind: type[Divergence], method: str) -> bool:
    """Whether a method takes an upper bound on the eigenvalues: Newton's method on a spectrum does."""
    return method == "newton" and kind.takes_cap and kind.offers("spectrum")


def _has_start(program: Program) -> bool:
    """Whether the dual of a LogDet problem is defined at zero multipliers."""
    (block,) = program.blocks
    if block.cost is None or block.nearness is None or isinstance(block.nearness.X0, LowRank):
        return True
    divergence = divergence_of(block.nearness)
    return divergence.dual_term(block.C, block.nearness.mu, np.eye(block.n)) > -np.inf


def _method(program: Program, settings: Any) -> str:
    """Return the method: "auto" means "cyclic" for a single LogDet row, else "newton" if available."""
    if settings.method != "auto":
        return str(settings.method)
    kind, (block,) = _kind(program), program.blocks
    single = program.m == 1 and kind.barrier and block.cost is None
    return "cyclic" if single or _algorithm(kind, "newton") is None else "newton"


def _many_inactive(program: Program, tuning: ProjectionTuning) -> bool:
    """Whether so many rows can be inactive that a method runs on a working set.

    On the dual, mutually orthogonal rows do not slow each other down, however many they are.
    """
    inactive, (block,) = can_be_inactive(program.bounds), program.blocks
    if not _kind(program).barrier:
        for term in program.A.terms:
            if term.rows.single:
                inactive[term.at] = False
    return int(inactive.sum()) > max(tuning.working_set_rows, tuning.working_set_ratio * block.n)


def _boundary(program: Program) -> str | None:
    """Return the reason why no positive definite matrix satisfies the rows, if a single row shows it."""
    bounds = program.bounds
    for term in program.A.terms:
        sign, hard = term.rows.definite_signs(), bounds.hard[term.at]
        pinned = hard & (((sign > 0) & (bounds.hi[term.at] == 0)) | ((sign < 0) & (bounds.lo[term.at] == 0)))
        where = np.flatnonzero(pinned & (term.rows.norms() > 0))
        if len(where):
            name = program.row_name(int(term.at[where[0]]))
            return f"{name} holds only on the boundary of the psd cone, which projections do not reach"
    return None
