"""The route `bregman`: nearness problems in one matrix by Bregman projection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bregopt.errors import did_you_mean
from bregopt.presolve import presolve, reductions
from bregopt.presolve.range_space import definite_sign
from bregopt.program import Answer, LowRank, Penalty, Program, Start
from bregopt.program.anchor import divergence_of
from bregopt.program.rows import Entries
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.ipm.logdet_newton import logdet_newton
from bregopt.routes.progress import Progress
from bregopt.routes.projection.cyclic import cyclic_projection
from bregopt.routes.projection.dual_newton import dual_newton
from bregopt.routes.projection.hildreth import dykstra_hildreth
from bregopt.routes.projection.weighted import weighted_frobenius
from bregopt.routes.reductions import Method, behind
from bregopt.routes.working_set import Split, may_rest, on_working_set

__all__ = ["Bregman", "BregmanSettings"]

_WHITENING = ("whitening",)  # of the program, or of each working set of its rows
_METHODS = ("auto", "newton", "cyclic")
_MANY = 300  # rows that may rest, from which a working set pays
_WEIGHTED = "weighted"
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
# What each method runs, and what to cite for it.
_ALGORITHMS: dict[tuple[str, str], tuple[Method, str]] = {
    ("logdet", "newton"): (behind(_WHITENING, logdet_newton), _KULIS),
    ("logdet", "cyclic"): (cyclic_projection, _KULIS),
    ("von_neumann", "newton"): (dual_newton, _KULIS),
    ("von_neumann", "cyclic"): (cyclic_projection, _KULIS),
    ("frobenius", "newton"): (dual_newton, _QI_SUN),
    ("frobenius", "cyclic"): (dykstra_hildreth, _DYKSTRA),
    ("frobenius", _WEIGHTED): (weighted_frobenius, _QI_SUN_WEIGHTED),
}
_OWN_PENALTY = {
    "logdet": {Penalty.LOGDET, Penalty.VON_NEUMANN, Penalty.SQUARE},
    "von_neumann": {Penalty.LOGDET, Penalty.VON_NEUMANN, Penalty.SQUARE},
    "frobenius": {Penalty.SQUARE},
}


@dataclass(frozen=True, kw_only=True)
class BregmanSettings(base.Settings):
    """Options of the route `bregman`.

    Parameters
    ----------
    method : {"auto", "newton", "cyclic"}
        "newton" moves all rows at once, "cyclic" projects on one row at a time; "auto" takes "cyclic" for
        LogDet with a single row, which one projection settles, and "newton" otherwise.
    """

    method: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in _METHODS:
            raise ValueError(f"method is {self.method!r}{did_you_mean(str(self.method), _METHODS)}")


class Bregman:
    """Bregman projection for one matrix and a LogDet, von Neumann or squared Frobenius objective."""

    name: ClassVar[str] = "bregman"
    summary: ClassVar[str] = "nearness in LogDet, von Neumann or Frobenius divergence; full or low rank"
    citation: ClassVar[str] = _KULIS
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"logdet", "von_neumann", "frobenius", "weights"}),
        blocks=1,
        matrices=8,
        reductions=("slacks",),
    )
    Settings: ClassVar[type[base.Settings]] = BregmanSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        kind = program.divergences[0]
        assert kind is not None
        left = _reduced(program, settings).k if program.k else 0
        if left:
            return f"of ordinary variables it takes slacks only (the problem has {left} other)"
        if _weighted(program) and settings.method == "cyclic":
            return "method 'cyclic' does not take elementwise weights"
        if settings.method == "cyclic" and kind == "logdet" and not _has_start(program):
            return "method 'cyclic' needs C + mu inv(X0) positive definite to start from"
        for penalty in set(Penalty) - {Penalty.HARD, Penalty.HINGE} - _OWN_PENALTY[kind]:
            if penalty in program.bounds.kinds:
                return f"rows with the {penalty.name.lower()} penalty do not go with the {kind} divergence"
        return _boundary(program) if kind == "von_neumann" else None

    def choice(self, program: Program, settings: Any) -> str:
        program = _reduced(program, settings)
        method = _method(program, settings)
        if method == _WEIGHTED:
            return "elementwise weights, by an augmented Lagrangian or, where small, an interior point"
        alone = settings.method == "auto" and method == "cyclic"
        on_some = method == "newton" and _many_may_rest(program)
        why = ", for one row alone" if alone else ", on a working set of rows" if on_some else ""
        white = presolve(program, reductions(_WHITENING), settings).summaries if method == "newton" else []
        return "; ".join([f"method {method!r}{why}", *white])

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        return _solve(program, settings, start, progress)


def _reduced(program: Program, settings: Any) -> Program:
    """Return the program as the driver would hand it over."""
    return presolve(program, reductions(("boxes", "slacks")), settings).program


def _solve(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program without ordinary variables."""
    kind = program.divergences[0]
    assert kind is not None
    method = _method(program, settings)
    run, citation = _ALGORITHMS[kind, method]
    if method == "newton" and _many_may_rest(program):
        begin = None if start is None else Start((), start.u, program.bounds.clip(start.y))
        first = Split.resting(program.bounds, None if begin is None else begin.y)
        answer = on_working_set(run, program, settings, first, begin, progress)
    else:
        answer = run(program, settings, start, progress)
    return replace(answer, citation=citation)


def _has_start(program: Program) -> bool:
    """Whether the dual of a LogDet problem is defined where no row acts."""
    block = program.blocks[0]
    if block.cost is None or block.nearness is None or isinstance(block.nearness.X0, LowRank):
        return True
    divergence = divergence_of(block.nearness)
    return divergence.dual_term(block.C, block.nearness.mu, np.eye(block.n)) > -np.inf


def _method(program: Program, settings: Any) -> str:
    """Return what runs: "auto" projects on a single LogDet row, and takes Newton's method otherwise."""
    if _weighted(program):
        return _WEIGHTED
    if settings.method != "auto":
        return str(settings.method)
    alone = program.m == 1 and program.divergences[0] == "logdet" and program.blocks[0].cost is None
    return "cyclic" if alone else "newton"


def _many_may_rest(program: Program) -> bool:
    """Whether so many rows may rest that a method had better see those that act.

    On the dual, rows that are orthogonal to each other do not hold each other up, however many they are.
    """
    rest = may_rest(program.bounds)
    if program.divergences[0] != "logdet":
        for term in program.A.terms:
            if isinstance(term.rows, Entries):
                rest[term.at] = False
    return int(rest.sum()) > max(_MANY, 3 * program.blocks[0].n)


def _weighted(program: Program) -> bool:
    nearness = program.blocks[0].nearness
    return nearness is not None and nearness.weights is not None


def _boundary(program: Program) -> str | None:
    """Return why no interior matrix meets the rows, where one of them alone shows it."""
    bounds = program.bounds
    for term in program.A.terms:
        sign, hard = definite_sign(term.rows), bounds.hard[term.at]
        pinned = hard & (((sign > 0) & (bounds.hi[term.at] == 0)) | ((sign < 0) & (bounds.lo[term.at] == 0)))
        where = np.flatnonzero(pinned & (term.rows.norms() > 0))
        if len(where):
            name = program.row_name(int(term.at[where[0]]))
            return f"{name} holds only on the boundary of the psd cone, which projections do not reach"
    return None
