"""The route `bregman`: nearness problems by Bregman projection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.divergences import SCALARS, Divergence
from bregopt.divergences.stacks import StackedLogDet
from bregopt.errors import did_you_mean
from bregopt.presolve import presolve, reductions
from bregopt.program import ENDED, Answer, Block, LowRank, Program, Start, StopReason
from bregopt.program.anchor import divergence_of
from bregopt.program.entry_stack import EntryStack
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.graphical_lasso import as_lasso
from bregopt.routes.ipm.logdet_newton import logdet_newton
from bregopt.routes.progress import Progress
from bregopt.routes.projection.cyclic import cyclic_projection
from bregopt.routes.projection.dual_interior import dual_interior, has_more_rows_than_unknowns
from bregopt.routes.projection.dual_newton import dual_newton
from bregopt.routes.projection.hildreth import dykstra_hildreth
from bregopt.routes.projection.pattern_newton import fixed_entries, pattern_newton
from bregopt.routes.projection.proximal import proximal, with_proximal_terms
from bregopt.routes.projection.row_passes import after_row_passes, suits_row_passes
from bregopt.routes.projection.stacked_answer import StackedAnswer
from bregopt.routes.projection.stacked_logdet import logdet_newton_stack
from bregopt.routes.projection.stacked_working_set import newton_on_acting_rows
from bregopt.routes.projection.tuning import ProjectionTuning
from bregopt.routes.projection.weighted import weighted_frobenius
from bregopt.routes.reductions import Method, behind
from bregopt.routes.working_set import ActiveSet, can_be_inactive, on_working_set

__all__ = ["Bregman", "BregmanSettings"]

_FEWER_ROWS = ("redundant equalities",)
_WHITENING = (*_FEWER_ROWS, "whitening")  # of the program, or of each working set of its rows
_FINAL = (StopReason.CONVERGED, StopReason.UNBOUNDED, StopReason.MAX_ITER, *ENDED)
_METHODS = ("auto", "newton", "cyclic")
_KULIS = "Kulis, Sustik, Dhillon (2009), Low-Rank Kernel Learning with Bregman Matrix Divergences, JMLR 10"
_QI_SUN = (
    "Qi, Sun (2006), A Quadratically Convergent Newton Method for Computing the Nearest Correlation Matrix, "
    "SIAM J. Matrix Anal. Appl. 28"
)
_DEMPSTER = (
    "Dempster (1972), Covariance Selection, Biometrics 28; Dahl, Vandenberghe, Roychowdhury (2008), "
    "Covariance Selection for Nonchordal Graphs via Chordal Embedding, Optim. Methods Softw. 23"
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


def _exponential_newton(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Run Newton's method on the dual, with a barrier where multipliers may not be unique."""
    on_dual = dual_interior if has_more_rows_than_unknowns(program, settings.tuning) else dual_newton
    return on_dual(program, settings, start, progress)


class _Algorithm(NamedTuple):
    """A function, its method and citation, the features of divergences that it needs in each block.

    `several` tells whether it takes more than one block.
    """

    method: str
    needs: frozenset[str]
    run: Method
    citation: str
    several: bool


# The first match is used.
_ALGORITHMS = (
    _Algorithm("newton", frozenset({"barrier"}), behind(_WHITENING, _logdet_newton), _KULIS, True),
    _Algorithm("newton", frozenset({"weights"}), weighted_frobenius, _QI_SUN_WEIGHTED, False),
    _Algorithm("newton", frozenset({"spectrum", "quadratic"}), dual_newton, _QI_SUN, True),
    _Algorithm(
        "newton",
        frozenset({"spectrum", "exponential"}),
        behind(_FEWER_ROWS, _exponential_newton),
        _KULIS,
        True,
    ),
    _Algorithm("newton", frozenset({"spectrum"}), behind(_FEWER_ROWS, dual_newton), _KULIS, True),
    _Algorithm("cyclic", frozenset({"spectrum", "quadratic"}), dykstra_hildreth, _DYKSTRA, False),
    _Algorithm("cyclic", frozenset({"point"}), cyclic_projection, _KULIS, False),
)


@dataclass(frozen=True, kw_only=True)
class BregmanSettings(base.Settings):
    """Options of the route `bregman`.

    Parameters
    ----------
    method : {"auto", "newton", "cyclic"}
        "newton" moves all rows at once, "cyclic" projects on one row of one matrix at a time. "auto" uses
        "cyclic" for LogDet with a single row, where one projection gives the solution, and "newton"
        otherwise. Where soft rows with smooth penalties are many and the matrix small, "auto" begins with
        L-BFGS, whose iterations are passes over the rows.
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
    """Bregman projection of matrices, each with its divergence: LogDet, von Neumann, Frobenius or yours."""

    name: ClassVar[str] = "bregman"
    summary: ClassVar[str] = "nearness in LogDet, von Neumann or Frobenius divergence; full or low rank"
    citation: ClassVar[str] = _KULIS
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear", "barrier", "spectrum", "point", "weights"}),
        caps=True,
        matrices=8,
        reductions=("slacks",),
    )
    Settings: ClassVar[type[base.Settings]] = BregmanSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        without_divergence = _without_divergence(program, settings)
        if without_divergence is not None:
            return without_divergence
        program = with_proximal_terms(program)
        left = _reduced(program, settings).k if program.k else 0
        if left:
            return f"of ordinary variables it takes slacks only (the problem has {left} other)"
        kinds = _kinds(program)
        if _algorithm(kinds, len(program.blocks) > 1, _method(program, settings)) is None:
            return _not_taken(program, settings)
        beyond = _beyond_cap(program, settings)
        if beyond is not None:
            return beyond
        without = _without_start(program, settings)
        if without is not None:
            return without
        for kind in kinds:
            for penalty in program.bounds.penalties:
                if SCALARS[penalty].of_ratios and not kind.essentially_smooth:
                    return f"rows with the {penalty.name.lower()} penalty do not go with {kind.phrase()}"
        return _boundary(program)

    def choice(self, program: Program, settings: Any) -> str:
        proximal_steps = None in program.divergences
        program = _reduced(with_proximal_terms(program), settings)
        method = _method(program, settings)
        if _weighted(program):
            return "elementwise weights, by an augmented Lagrangian or, where small, an interior point"
        if method == "newton" and as_lasso(program) is not None:
            return "method 'newton', for sparse inverse covariances"
        single = settings.method == "auto" and method == "cyclic" and program.m == 1
        on_some = method == "newton" and _many_inactive(program, settings.tuning)
        why = ", for one row alone" if single else ", on a working set of rows" if on_some else ""
        passes = (
            ["L-BFGS over the rows first, unless penalties are heavy"]
            if _begins_with_passes(program, settings)
            else []
        )
        white = presolve(program, reductions(_WHITENING), settings).summaries if method == "newton" else []
        steps = ["proximal steps for matrices without a divergence"] if proximal_steps else []
        return "; ".join([f"method {method!r}{why}", *passes, *steps, *white])

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        method = proximal(_solve) if None in program.divergences else _solve
        return method(program, settings, start, progress)

    def solve_stack(self, stack: EntryStack, settings: Any, start: Array | None = None) -> StackedAnswer:
        """Solve a stack of nearness problems with bounds on entries; some of them may stay unsolved.

        `start` has multipliers of all rows, shape (B, m). LogDet's method has no use for them.
        """
        limit = settings.max_iter or settings.tuning.newton_limit
        if isinstance(stack.divergence, StackedLogDet):
            return logdet_newton_stack(stack, settings.tol, limit)
        return newton_on_acting_rows(stack, settings.tol, settings.tuning, limit, start)


def _without_divergence(program: Program, settings: Any) -> str | None:
    """Return the reason why matrices without a divergence are not taken, None if they are."""
    linear = [block.name for block in program.blocks if block.nearness is None]
    if not linear:
        return None
    kinds = [block.nearness.kind for block in program.blocks if block.nearness is not None]
    spectral = [kind.offers("spectrum") and not kind.barrier and not kind.weights for kind in kinds]
    if kinds and all(spectral) and settings.method != "cyclic":
        return None
    beside = " but beside von Neumann or Frobenius, method 'newton'" if kinds else ""
    return f"it does not take a linear objective (of {linear[0]}){beside}"


def _reduced(program: Program, settings: Any) -> Program:
    """Return the program as the driver passes it to the route."""
    return presolve(program, reductions(("boxes", "slacks")), settings).program


def _solve(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program without ordinary variables."""
    special = _special(program, settings, start, progress)
    if special is not None:
        return special
    method = _method(program, settings)
    found = _algorithm(_kinds(program), len(program.blocks) > 1, method)
    assert found is not None
    run = found.run
    if _begins_with_passes(program, settings):
        answer = after_row_passes(run)(program, settings, start, progress)
    elif method == "newton" and not _weighted(program) and _many_inactive(program, settings.tuning):
        begin = None if start is None else Start((), start.u, program.bounds.clip(start.y))
        first = ActiveSet.resting(program.bounds, None if begin is None else begin.y)
        answer = on_working_set(run, program, settings, first, begin, progress)
    else:
        answer = run(program, settings, start, progress)
    return replace(answer, citation=answer.citation or found.citation)


def _begins_with_passes(program: Program, settings: Any) -> bool:
    return settings.method == "auto" and suits_row_passes(program, settings.tuning)


def _special(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer | None:
    """Return the answer of a method for fixed entries or a graphical lasso, None where none fits or ends."""
    if settings.method == "cyclic":
        return None
    fixed = None if start is not None else fixed_entries(program, settings.tuning)
    answer = None if fixed is None else pattern_newton(fixed, settings, progress)
    if answer is not None:
        return replace(answer, citation=_DEMPSTER)
    lasso = as_lasso(program) if _method(program, settings) == "newton" else None
    if lasso is None:
        return None
    answer = lasso.solve(settings.tol, settings.max_iter, settings.tuning.lasso, start, progress)
    return answer if answer.stop in _FINAL else None


def _kind(block: Block) -> type[Divergence]:
    assert block.nearness is not None
    return block.nearness.kind


def _kinds(program: Program) -> tuple[type[Divergence], ...]:
    """Return the kinds of divergences that occur, each once."""
    return tuple(dict.fromkeys(map(_kind, program.blocks)))


def _weighted(program: Program) -> bool:
    return any(kind.weights for kind in _kinds(program))


@lru_cache
def _algorithm(kinds: tuple[type[Divergence], ...], several: bool, method: str) -> _Algorithm | None:
    """Return the algorithm of a method for blocks with these divergences; None if there is none."""
    for algorithm in _ALGORITHMS:
        takes = all(kind.offers(need) for kind in kinds for need in algorithm.needs)
        if algorithm.method == method and takes and (algorithm.several or not several):
            return algorithm
    return None


def _beyond_cap(program: Program, settings: Any) -> str | None:
    """Return the reason why a bound on eigenvalues is not taken: Newton's method on a spectrum takes it."""
    method = _method(program, settings)
    for block in program.blocks:
        kind = _kind(block)
        spectral = kind.takes_cap and kind.offers("spectrum") and not kind.barrier
        if block.cap is None or (method == "newton" and spectral):
            continue
        bounded = f"it takes no bound on eigenvalues with {kind.phrase()}, method {settings.method!r}"
        return f"{bounded}: only Newton's method for von Neumann and Frobenius does"
    return None


def _not_taken(program: Program, settings: Any) -> str:
    """Return the reason why no algorithm takes the divergences of a program."""
    asked, count = settings.method, len(program.blocks)
    methods = [name for name in _METHODS[1:] if asked in ("auto", name)]

    def taken(kind: type[Divergence], several: bool) -> bool:
        return any(_algorithm((kind,), several, method) for method in methods)

    for kind in _kinds(program):
        if not taken(kind, several=count > 1):
            if not taken(kind, several=False):
                return f"method {asked!r} does not take {kind.phrase()}"
            alone = f"it takes {kind.phrase()} with method {asked!r} in 1 matrix variable"
            return f"{alone}, the problem has {count}"
    return f"method {asked!r} does not take these divergences together"


def _without_start(program: Program, settings: Any) -> str | None:
    """Return the reason why a method has no start: the dual of a LogDet term is not defined at zero.

    Newton's method for LogDet alone needs no such start.
    """
    cyclic, kinds = settings.method == "cyclic", _kinds(program)
    if not any(kind.offers("recession") for kind in kinds) or not (cyclic or len(kinds) > 1):
        return None
    for block in presolve(program, reductions(("range space",)), settings).program.blocks:
        if _kind(block).offers("recession") and not _has_start(block):
            needed = f"needs C + mu inv(X0) of {block.name} positive definite to start from"
            return f"method 'cyclic' {needed}" if cyclic else f"LogDet beside other divergences {needed}"
    return None


def _has_start(block: Block) -> bool:
    """Whether the dual of a block's term is defined at zero multipliers."""
    if block.cost is None or block.nearness is None or isinstance(block.nearness.X0, LowRank):
        return True
    divergence = divergence_of(block.nearness)
    return divergence.dual_term(block.C, block.nearness.mu, np.eye(block.n)) > -np.inf


def _method(program: Program, settings: Any) -> str:
    """Return the method: "auto" means "cyclic" for a single LogDet row, else "newton" if available."""
    if settings.method != "auto":
        return str(settings.method)
    kinds, several = _kinds(program), len(program.blocks) > 1
    single = program.m == 1 and not several and kinds[0].barrier and program.blocks[0].cost is None
    return "cyclic" if single or _algorithm(kinds, several, "newton") is None else "newton"


def _many_inactive(program: Program, tuning: ProjectionTuning) -> bool:
    """Whether so many rows can be inactive that a method runs on a working set.

    On the dual, mutually orthogonal rows do not slow each other down, however many they are.
    """
    inactive = can_be_inactive(program.bounds)
    if not all(kind.barrier for kind in _kinds(program)):
        for term in program.A.terms:
            if term.rows.single:
                inactive[term.at] = False
    order = sum(block.n for block in program.blocks)
    return int(inactive.sum()) > max(tuning.working_set_rows, tuning.working_set_ratio * order)


def _boundary(program: Program) -> str | None:
    """Return the reason why no positive definite matrix satisfies the rows, if a single row shows it."""
    inside = [kind.essentially_smooth and kind.finite_on_boundary for kind in map(_kind, program.blocks)]
    if not any(inside):
        return None
    bounds, sign = program.bounds, program.A.definite_signs
    pinned = bounds.hard & (((sign > 0) & (bounds.hi == 0)) | ((sign < 0) & (bounds.lo == 0)))
    for term in program.A.terms:
        where = np.flatnonzero(inside[term.block] & pinned[term.at] & (term.rows.norms() > 0))
        if len(where):
            name = program.row_name(int(term.at[where[0]]))
            return f"{name} holds only on the boundary of the psd cone, which projections do not reach"
    return None
