"""The route `bregman`: which programs it takes, by which method, and in which order.

One matrix with a fixed diagonal and bounds on entries is a stack of one, solved and certified by the stacked
method alone. Programs that it does not take or prove, infeasible ones among them, go to the methods for any
rows. Those are chosen by the features of divergences that they need, and imported when one comes.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bregopt.arrays import is_one_of
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.certify.point import DIVERGENT
from bregopt.divergences import SCALARS, Divergence
from bregopt.errors import did_you_mean
from bregopt.presolve import presolve
from bregopt.program import ENDED, Answer, Block, LowRank, Penalty, Program, Start, StopReason
from bregopt.program.program import divergence_of
from bregopt.records import dataclass, replace
from bregopt.routes import base
from bregopt.routes.alternatives import with_interior
from bregopt.routes.base import Capabilities, Method, behind
from bregopt.routes.progress import Progress
from bregopt.routes.projection.proximal_point import proximal, with_proximal_terms
from bregopt.routes.projection.stack_newton import solve_stack
from bregopt.routes.projection.stack_of_one import CITATIONS, KULIS, QI_SUN, EntryProgram, solved_as_stack
from bregopt.routes.working_set import ActiveSet, WorkingSetTuning, on_working_set

if TYPE_CHECKING:
    from bregopt.routes.graphical_lasso.problem import LassoProgram

DEMPSTER = (
    "Dempster (1972), Covariance Selection, Biometrics 28; Dahl, Vandenberghe, Roychowdhury (2008), "
    "Covariance Selection for Nonchordal Graphs via Chordal Embedding, Optim. Methods Softw. 23"
)
DYKSTRA = (
    "Dykstra (1983), An Algorithm for Restricted Least Squares Regression, JASA 78; Higham (2002), Computing "
    "the Nearest Correlation Matrix: A Problem from Finance, IMA J. Numer. Anal. 22"
)
QI_SUN_WEIGHTED = (
    "Qi, Sun (2010), An Augmented Lagrangian Dual Approach for the H-Weighted Nearest Correlation Matrix "
    "Problem, IMA J. Numer. Anal. 31"
)
METHODS = ("auto", "newton", "cyclic")
_NORM = ("least norm",)
_FACES = ("faces", "face coordinates")
_FEWER_ROWS = ("redundant equalities",)
WHITENING = (*_FEWER_ROWS, "whitening")  # of the program, or of each working set of its rows
_WORKING_SET_RATIO = 3  # rows that can be inactive, relative to the order, above which a working set is used
_FINAL = (StopReason.CONVERGED, StopReason.UNBOUNDED, StopReason.MAX_ITER, *ENDED)


@dataclass(frozen=True, kw_only=True)
class ProjectionTuning(WorkingSetTuning):
    """Constants of the projection methods, besides those of the working set.

    Parameters
    ----------
    working_set_rows : int
        Number of rows that can be inactive above which a method runs on a working set. With fewer rows the
        steps of one run on all rows cost less than the rounds. More than three times the order count, too.
    formed_entries : int
        Number of entries of ``X`` up to which the interior point for LogDet forms its system in them, where
        conjugate gradients could solve it. Near a vertex they converge slowly.
    pass_rows : int
        Least number of smooth soft rows for which L-BFGS over the rows comes before Newton's method.
    pass_ratio : int
        The same number, relative to the order of the matrix. With fewer rows a pass and the preconditioner
        cost more than a tenth of a Newton step (``benchmarks/many.py methods``).
    pass_order : int
        Least order of the matrix for that with LogDet. Below it a Newton step costs a few passes only.
    pass_curvature : float
        Largest curvature of the penalties relative to LogDet, along one direction, at the first point. With
        heavier penalties L-BFGS takes a hundred passes and more.
    pass_growth : float
        Largest logarithm of the factors by which the first step, at full length, multiplies eigenvalues, for
        LogDet. Line searches limit it to one.
    pass_exponential_curvature : float
        The largest curvature for von Neumann, whose Newton steps cost fewer passes.
    pass_exponential_growth : float
        The same for the first step.
    pass_limit : int
        Passes after which Newton's method takes over.
    first_interior_unknowns : int
        Largest number of unknowns for which elementwise weights begin with the interior point: orders up to
        about 25, where it is faster than the augmented Lagrangian.
    """

    working_set_rows: int = 300
    formed_entries: int = 1_200
    pass_rows: int = 3_000
    pass_ratio: int = 200
    pass_order: int = 16
    pass_curvature: float = 300.0
    pass_growth: float = 20.0
    pass_exponential_curvature: float = 7.0
    pass_exponential_growth: float = 8.0
    pass_limit: int = 60
    first_interior_unknowns: int = 330


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
        if not is_one_of(self.method, METHODS):
            raise ValueError(f"method is {self.method!r}{did_you_mean(str(self.method), METHODS)}")


class Bregman:
    """Bregman projection of matrices, each with its divergence: LogDet, von Neumann, Frobenius or yours."""

    name: ClassVar[str] = "bregman"
    summary: ClassVar[str] = "nearness in LogDet, von Neumann or Frobenius divergence; full or low rank"
    citation: ClassVar[str] = KULIS
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear", "barrier", "spectrum", "point", "weights"}),
        caps=True,
        cones=True,
        matrices=8,
        reductions=("slacks",),
        linear=False,
    )
    Settings: ClassVar[type[base.Settings]] = BregmanSettings
    solve_stack = staticmethod(solve_stack)
    stack_citations: ClassVar[dict[str, str]] = CITATIONS

    def refusal(self, program: Program, settings: Any) -> str | None:
        return refusal(program, settings)

    def choice(self, program: Program, settings: Any) -> str:
        return choice(program, settings)

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        method = _least_norm if program.cones.count else behind(_FACES, solve)
        return method(program, settings, start, progress)

    def solve_directly(
        self, program: Program, settings: Any, start: Start | None, progress: Progress
    ) -> tuple[Answer, Certificate] | None:
        """Solve a program with rows on entries alone, and certify the answer; None for all others."""
        return solve_directly(program, settings, progress) if start is None else None


@dataclass(frozen=True)
class Algorithm:
    """A function, its method and citation, the features of divergences that it needs in each block.

    Parameters
    ----------
    method : str
    needs : tuple of str
    function : str
        Its module and its name. The module is imported on first use.
    citation : str
    several : bool
        Whether it takes more than one block.
    reductions : tuple of str
        Those behind which it runs.
    """

    method: str
    needs: tuple[str, ...]
    function: str
    citation: str
    several: bool = True
    reductions: tuple[str, ...] = ()

    @property
    def run(self) -> Method:
        """The function for a whole program."""
        function: Method = resolve_name(f"bregopt.routes.{self.function}")
        return behind(self.reductions, function) if self.reductions else function


# The first match is used.
_ALGORITHMS = (
    Algorithm("newton", ("barrier",), "ipm.logdet_newton:logdet_newton", KULIS, reductions=WHITENING),
    Algorithm(
        "newton", ("weights",), "projection.weights_lagrangian:weighted_frobenius", QI_SUN_WEIGHTED, False
    ),
    Algorithm("newton", ("spectrum", "quadratic"), "projection.dual_newton:dual_newton", QI_SUN),
    Algorithm(
        "newton", ("spectrum",), "projection.dual_interior_point:on_dual", KULIS, reductions=_FEWER_ROWS
    ),
    Algorithm(
        "cyclic", ("spectrum", "quadratic"), "projection.cyclic_projections:dykstra_hildreth", DYKSTRA, False
    ),
    Algorithm("cyclic", ("point",), "projection.cyclic_projections:cyclic_projection", KULIS, False),
)


def kind_of(block: Block) -> type[Divergence]:
    """Return the kind of the divergence of a block, which has one."""
    assert block.nearness is not None
    return block.nearness.kind


def kinds_of(program: Program) -> tuple[type[Divergence], ...]:
    """Return the kinds of divergences that occur, each once."""
    return tuple(dict.fromkeys(map(kind_of, program.blocks)))


@lru_cache
def algorithm_of(kinds: tuple[type[Divergence], ...], several: bool, method: str) -> Algorithm | None:
    """Return the algorithm of a method for blocks with these divergences; None if there is none."""
    for algorithm in _ALGORITHMS:
        takes = all(kind.offers(need) for kind in kinds for need in algorithm.needs)
        if algorithm.method == method and takes and (algorithm.several or not several):
            return algorithm
    return None


# Pays on: one distance, LogDet, n = 200.
def method_of(program: Program, settings: Any) -> str:
    """Return the method: "auto" means "cyclic" for a single LogDet row, else "newton" if available."""
    if settings.method != "auto":
        return str(settings.method)
    kinds, several = kinds_of(program), len(program.blocks) > 1
    single = program.m == 1 and not several and kinds[0].barrier and program.blocks[0].cost is None
    return "cyclic" if single or algorithm_of(kinds, several, "newton") is None else "newton"


def refusal(program: Program, settings: Any) -> str | None:
    """Return the reason why a program is not taken, None if it is."""
    program = presolve(program, _NORM, settings).program
    if program.cones.count:
        return "of second-order cones it takes the least norm of one matrix minus a constant"
    without_divergence = _without_divergence(program, settings)
    if without_divergence is not None:
        return without_divergence
    program = with_proximal_terms(program)
    left = reduced(program, settings).k if program.k else 0
    if left:
        return f"of ordinary variables it takes slacks only (the problem has {left} other)"
    kinds = kinds_of(program)
    if algorithm_of(kinds, len(program.blocks) > 1, method_of(program, settings)) is None:
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
    return None


def reduced(program: Program, settings: Any) -> Program:
    """Return the program as the driver passes it to the route."""
    return presolve(program, ("boxes", "slacks"), settings).program


def _without_divergence(program: Program, settings: Any) -> str | None:
    """Return the reason why matrices without a divergence are not taken, None if they are."""
    linear = [block.name for block in program.blocks if block.nearness is None]
    if not linear:
        return None
    kinds = [block.nearness.kind for block in program.blocks if block.nearness is not None]
    spectral = [kind.offers("spectrum") and not kind.barrier and not kind.weights for kind in kinds]
    if all(spectral) and settings.method != "cyclic":
        return None
    beside = "but beside von Neumann or Frobenius, method 'newton'"
    return f"it does not take a linear objective (of {linear[0]}) {beside}"


def _beyond_cap(program: Program, settings: Any) -> str | None:
    """Return the reason why a bound on eigenvalues is not taken: Newton's method on a spectrum takes it."""
    method = method_of(program, settings)
    for block in program.blocks:
        kind = kind_of(block)
        spectral = kind.takes_cap and kind.offers("spectrum") and not kind.barrier
        if block.cap is None or (method == "newton" and spectral):
            continue
        bounded = f"it takes no bound on eigenvalues with {kind.phrase()}, method {settings.method!r}"
        return f"{bounded}: only Newton's method for von Neumann and Frobenius does"
    return None


def _not_taken(program: Program, settings: Any) -> str:
    """Return the reason why no algorithm takes the divergences of a program."""
    asked, count = settings.method, len(program.blocks)
    methods = [name for name in METHODS[1:] if asked in ("auto", name)]

    def taken(kind: type[Divergence], several: bool) -> bool:
        return any(algorithm_of((kind,), several, method) for method in methods)

    for kind in kinds_of(program):
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
    cyclic, kinds = settings.method == "cyclic", kinds_of(program)
    if not any(kind.offers("recession") for kind in kinds) or not (cyclic or len(kinds) > 1):
        return None
    for block in presolve(program, ("range space",), settings).program.blocks:
        if kind_of(block).offers("recession") and not _has_start(block):
            needed = f"needs C + mu inv(X0) of {block.name} positive definite to start from"
            return f"method 'cyclic' {needed}" if cyclic else f"LogDet beside other divergences {needed}"
    return None


def _has_start(block: Block) -> bool:
    """Whether the dual of a block's term is defined at zero multipliers."""
    if block.cost is None or block.nearness is None or isinstance(block.nearness.X0, LowRank):
        return True
    divergence = divergence_of(block.nearness)
    return divergence.dual_term(block.C, block.nearness.mu, np.eye(block.n)) > -np.inf


def choice(program: Program, settings: Any) -> str:
    """Return the method for a program and why, a phrase for ``explain``."""
    norm = presolve(program, (*_NORM, *_FACES), settings)
    proximal_steps = None in norm.program.divergences
    program = reduced(with_proximal_terms(norm.program), settings)
    method = method_of(program, settings)
    if _weighted(program):
        weights = "elementwise weights, by an augmented Lagrangian or, where small, an interior point"
        return "; ".join([*norm.summaries, weights])
    if method == "newton" and _lasso(program) is not None:
        return "method 'newton', for sparse inverse covariances"
    single = settings.method == "auto" and method == "cyclic" and program.m == 1
    on_some = method == "newton" and _many_inactive(program, settings.tuning)
    why = ", for one row alone" if single else ", on a working set of rows" if on_some else ""
    passes = (
        ["L-BFGS over the rows first, unless penalties are heavy"]
        if _begins_with_passes(program, settings)
        else []
    )
    white = presolve(program, WHITENING, settings).summaries if method == "newton" else []
    steps = ["proximal steps for matrices without a divergence"] if proximal_steps else []
    return "; ".join([*norm.summaries, f"method {method!r}{why}", *passes, *steps, *white])


def solve_directly(program: Program, settings: Any, progress: Progress) -> tuple[Answer, Certificate] | None:
    """Return the answer to a program that is a stack of one and its certificate; None where it is not proven.

    An answer at an interrupt is one before the certificate meets the tolerance.
    """
    if settings.method == "cyclic" or program.m == 0:
        return None
    own = EntryProgram.of(program, small=True)
    if own is None or method_of(program, settings) == "cyclic":
        return None
    return solved_as_stack(own, None, settings, progress)


def solve(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program without ordinary variables. Methods for some programs are imported when one comes."""
    method = _solve if None not in program.divergences else proximal(_solve)
    answer = method(program, settings, start, progress)
    if answer.stop in (StopReason.STALLED, StopReason.MAX_ITER):
        from bregopt.routes.ipm.path_route import PathSettings, solve_on_path  # only such answers wait

        path = PathSettings(tol=settings.tol, max_iter=settings.max_iter)
        answer = with_interior(program, answer, solve_on_path, path, progress)
    if answer.stop is not StopReason.STALLED and not _diverges(program, answer):
        return answer
    from bregopt.routes.ipm.path_route import on_revealed_faces  # the same

    on_faces = behind(_FACES[1:], method)
    return on_revealed_faces(on_faces, program, settings, progress, answer)


# Pays on: nearest psd matrix on two rows without interior.
def _diverges(program: Program, answer: Answer) -> bool:
    """Whether equalities have such multipliers that the dual may not be attained."""
    equal, y = program.bounds.equal, answer.y
    if answer.stop is not StopReason.CONVERGED or not equal.any():
        return False
    slopes = [
        block.nearness.mu * divergence_of(block.nearness).gradient(np.asarray(X))
        for block, X in zip(program.blocks, answer.X, strict=True)
        if block.nearness is not None and block.nearness.kind.offers("restricted")
    ]
    largest = max((float(np.linalg.norm(slope)) for slope in slopes), default=math.inf)
    return float((np.abs(y) * program.A.norms())[equal].max()) > DIVERGENT * largest


def _least_norm(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Return the answer by the square of the norm, or by the cone: near zero the root of a gap is larger."""
    answer = behind((*_NORM, *_FACES), solve)(program, settings, start, progress)
    point = PrimalDualPoint(program, answer.X, answer.u, answer.y)
    if answer.stop is not StopReason.CONVERGED or certify(point).meets(settings.tol):
        return answer
    from bregopt.routes.ipm.path_route import PathSettings, solve_on_path  # only norms of nearly zero wait

    return solve_on_path(program, PathSettings(tol=settings.tol), None, progress)


def _solve(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program whose matrices all have a divergence."""
    method = method_of(program, settings)
    found = algorithm_of(kinds_of(program), len(program.blocks) > 1, method)
    assert found is not None
    direct = _by_stack(program, settings, start, progress) if method == "newton" else None
    if direct is not None:
        return direct
    special = _by_entries(program, settings, start, progress)
    if special is not None:
        return special
    run = found.run
    if _begins_with_passes(program, settings):
        from bregopt.routes.projection.cyclic_projections import after_row_passes

        answer = after_row_passes(run)(program, settings, start, progress)
    elif method == "newton" and not _weighted(program) and _many_inactive(program, settings.tuning):
        begin = None if start is None else Start((), start.u, program.bounds.clip(start.y))
        first = ActiveSet.resting(program.bounds, None if begin is None else begin.y)
        answer = on_working_set(run, program, settings, first, begin, progress)
    else:
        answer = run(program, settings, start, progress)
    return replace(answer, citation=answer.citation or found.citation)


def _by_stack(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer | None:
    """Return the answer of the stacked method; None where it does not take or prove it.

    Warm starts of LogDet have another method.
    """
    own = None if progress.watched else EntryProgram.of(program)  # it has no certificate at each step
    if own is None or (start is not None and kind_of(program.blocks[0]).barrier):
        return None
    y = None if start is None else own.start(program.bounds.clip(start.y))
    found = solved_as_stack(own, y, settings, progress)
    return None if found is None else found[0]


# Pays on: completion of 40 entries, n = 30.
def _by_entries(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer | None:
    """Return the answer of a method for LogDet with rows on entries, None where none fits or ends."""
    if settings.method == "cyclic" or not _is_logdet_of_entries(program):
        return None
    from bregopt.routes.projection.pattern_newton import fixed_entries, pattern_newton

    fixed = None if start is not None else fixed_entries(program)
    answer = None if fixed is None else pattern_newton(fixed, settings, progress)
    if answer is not None:
        return replace(answer, citation=DEMPSTER)
    lasso = _lasso(program) if method_of(program, settings) == "newton" else None
    if lasso is None:
        return None
    answer = lasso.solve(settings.tol, settings.max_iter, start, progress)
    return answer if answer.stop in _FINAL else None


# Pays on: lasso in the language, n = 40.
def _lasso(program: Program) -> LassoProgram | None:
    """Return the program as a sparse inverse covariance problem, None if it is not one."""
    if not _is_logdet_of_entries(program):
        return None
    from bregopt.routes.graphical_lasso.problem import as_lasso

    return as_lasso(program)


def _is_logdet_of_entries(program: Program) -> bool:
    """Whether there is one matrix, its divergence has a barrier, and each row is on one of its entries."""
    barrier = len(program.blocks) == 1 and kind_of(program.blocks[0]).barrier
    return barrier and all(term.rows.single for term in program.A.terms)


# Pays on: 30,000 soft pairs, von Neumann.
def _begins_with_passes(program: Program, settings: Any) -> bool:
    return settings.method == "auto" and _suits_row_passes(program, settings.tuning)


def _suits_row_passes(program: Program, tuning: ProjectionTuning) -> bool:
    """Whether a pass over the rows takes far less time than a Newton step: many soft rows, a small order."""
    if len(program.blocks) > 1 or program.k:
        return False
    (block,) = program.blocks
    nearness, n = block.nearness, block.n
    if program.m < max(tuning.pass_rows, tuning.pass_ratio * n) or nearness is None or block.cap is not None:
        return False
    exponential, barrier = nearness.kind.exponential, nearness.kind.barrier and n >= tuning.pass_order
    return (
        (exponential or barrier)
        and not nearness.parameters
        and bool((program.bounds.kind > int(Penalty.HINGE)).all())
        and all(term.rows.rank == 1 for term in program.A.terms)
        and bool(program.A.definite_signs.all())
    )


def _weighted(program: Program) -> bool:
    return any(kind.weights for kind in kinds_of(program))


# Pays on: 2,000 distances, LogDet, n = 60.
def _many_inactive(program: Program, tuning: ProjectionTuning) -> bool:
    """Whether so many rows can be inactive that a method runs on a working set.

    On the dual, mutually orthogonal rows do not slow each other down, however many they are.
    """
    inactive = program.bounds.can_be_inactive
    if not all(kind.barrier for kind in kinds_of(program)):
        for term in program.A.terms:
            if term.rows.single:
                inactive[term.at] = False
    order = sum(block.n for block in program.blocks)
    return int(inactive.sum()) > max(tuning.working_set_rows, _WORKING_SET_RATIO * order)
