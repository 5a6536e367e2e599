"""How the route `bregman` solves a program: whether it takes it, by which method, and in which order.

One matrix with a fixed diagonal and bounds on entries is a stack of one: the steps of the stacked method cost
no more than the certificate of a general one. Programs that it does not take or prove, infeasible ones among
them, go to the methods for any rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.certify import Certificate
from bregopt.certify.stacks import certify_stack
from bregopt.clock import CutShort
from bregopt.divergences import DIVERGENCES, SCALARS, Divergence
from bregopt.divergences.stacks import STACKED
from bregopt.presolve import presolve, reductions
from bregopt.program import ENDED, Answer, Block, LowRank, Penalty, Program, Start, StopReason
from bregopt.program.entry_stack import EntryStack
from bregopt.program.program import divergence_of
from bregopt.records import replace
from bregopt.routes.progress import Progress, reason
from bregopt.routes.projection.algorithms import (
    DEMPSTER,
    KULIS,
    METHODS,
    QI_SUN,
    WHITENING,
    algorithm_of,
    kind_of,
    kinds_of,
    method_of,
    with_proximal_terms,
)
from bregopt.routes.projection.stacked_newton import solve_stack
from bregopt.routes.projection.tuning import ProjectionTuning
from bregopt.routes.working_set import ActiveSet, can_be_inactive, on_working_set

if TYPE_CHECKING:
    from bregopt.routes.graphical_lasso.recognition import LassoProgram

__all__ = [
    "choice",
    "reduced",
    "refusal",
    "solve",
    "solve_directly",
]

_FINAL = (StopReason.CONVERGED, StopReason.UNBOUNDED, StopReason.MAX_ITER, *ENDED)


def refusal(program: Program, settings: Any) -> str | None:
    """Return the reason why a program is not taken, None if it is."""
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
    return _boundary(program)


def reduced(program: Program, settings: Any) -> Program:
    """Return the program as the driver passes it to the route."""
    return presolve(program, reductions(("boxes", "slacks")), settings).program


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
    for block in presolve(program, reductions(("range space",)), settings).program.blocks:
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


def _boundary(program: Program) -> str | None:
    """Return the reason why no positive definite matrix satisfies the rows, if a single row shows it."""
    inside = [kind.essentially_smooth and kind.finite_on_boundary for kind in map(kind_of, program.blocks)]
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


class _EntryProgram(NamedTuple):
    """A program as a stack of one.

    Parameters
    ----------
    stack : EntryStack
    at : int array of shape (m,)
        The rows of the program, in the order of the stack.
    weight : array of shape (m,)
        Their multiples of the entries.
    mu, offset : float
        The objective is ``mu`` times the divergence plus the offset.
    """

    stack: EntryStack
    at: IntArray
    weight: Array
    mu: float
    offset: float

    def answer(self, X: Array, y: Array, stop: StopReason, iterations: int) -> Answer:
        """Return the answer to the program of that to the stack, of one matrix and its multipliers."""
        own = np.empty(len(self.at))
        own[self.at] = self.mu * y / self.weight
        citation = QI_SUN if self.stack.divergence.quadratic else KULIS
        return Answer((X,), np.zeros(0), own, stop, iterations, citation=citation)

    def start(self, y: Array) -> Array:
        """Return the multipliers of the stack, shape (1, m)."""
        found: Array = y[self.at] * self.weight / self.mu
        return found[None]

    def in_units(self, own: Certificate) -> Certificate:
        """Return the certificate of the program of that of the stack."""
        primal, dual = self.mu * own.primal + self.offset, self.mu * own.dual + self.offset
        return Certificate(primal, dual, own.gap, own.primal_residual, 0.0, self.mu * own.error)


def solve_directly(program: Program, settings: Any, progress: Progress) -> tuple[Answer, Certificate] | None:
    """Return the answer to a program that is a stack of one and its certificate; None where it is not proven.

    An answer at an interrupt is one before the certificate meets the tolerance.
    """
    if settings.method == "cyclic" or program.m == 0:
        return None
    own = _as_entries(program, None)
    if own is None or own.stack.n > own.stack.divergence.largest_order:
        return None
    return None if method_of(program, settings) == "cyclic" else _of_stack(own, None, settings, progress)


def _of_stack(
    own: _EntryProgram, start: Array | None, settings: Any, progress: Progress
) -> tuple[Answer, Certificate] | None:
    """Return the answer of the stacked method and its certificate, None where it has none."""
    steps: list[Certificate] = []
    last: tuple[Array, Callable[[], Array]] | None = None

    def watch(certificate: Certificate, y: Array, X: Callable[[], Array]) -> None:
        nonlocal last
        steps.append(own.in_units(certificate))
        last = y, X

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # multipliers may diverge
        try:
            found = solve_stack(own.stack, settings, start, watch)
        except np.linalg.LinAlgError:
            return None
        except CutShort as cut:
            if last is None:
                raise
            y, X = last[0], last[1]()
            answer = own.answer(X[0], y[0], reason(cut), len(steps) - 1)
            return answer, own.in_units(certify_stack(own.stack, X, y).of(0))
    if len(found.solved) == 0:
        return None
    count = int(found.iterations[0])
    certificate = own.in_units(found.certificate.of(0))
    for step, before in enumerate(steps[:count]):
        progress.record(step, before)
    progress.record(count, certificate)
    return own.answer(found.X[0], found.y[0], StopReason.CONVERGED, count), certificate


def _as_entries(program: Program, start: Start | None) -> _EntryProgram | None:
    """Return the program as a stack of one; None if it has other rows or costs.

    Warm starts of LogDet have other methods, and so have targets that violate most bounds.
    """
    if len(program.blocks) != 1 or program.k or not program.bounds.all_hard:
        return None
    (block,) = program.blocks
    nearness = block.nearness
    if nearness is None or block.cost is not None or block.face is not None or block.cap is not None:
        return None
    kind = nearness.kind
    if nearness.divergence not in STACKED or kind is not DIVERGENCES[nearness.divergence]:
        return None
    if kind.barrier and (start is not None or block.n > STACKED[nearness.divergence].largest_order):
        return None
    rows = _entries_of(program)
    if rows is None:
        return None
    at, i, j, weight = rows
    n, lo, hi = block.n, program.bounds.lo[at] / weight, program.bounds.hi[at] / weight
    if (weight < 0).any():
        lo, hi = np.minimum(lo, hi), np.maximum(lo, hi)
    if not ((lo[:n] == hi[:n]) & (lo[:n] > 0)).all():
        return None
    try:
        divergence = STACKED[nearness.divergence](np.asarray(nearness.X0)[None])
    except np.linalg.LinAlgError:
        return None
    stack = EntryStack(divergence, i, j, lo[None], hi[None])
    return None if stack.crowded else _EntryProgram(stack, at, weight, nearness.mu, program.offset)


def _entries_of(program: Program) -> tuple[IntArray, IntArray, IntArray, Array] | None:
    """Return the rows, their entries ``i <= j`` and weights: the diagonal, then others, or no row at all.

    None where a row is on no single entry, or two are on the same.
    """
    if not all(term.rows.single for term in program.A.terms):
        return None
    n, none = program.blocks[0].n, np.zeros(0, np.intp)
    rows = [(term.at, term.rows.coordinates()) for term in program.A.terms]
    if len(rows) == 1:
        ((own, t),) = rows
        at, i, j, weight = own[t.row], t.i, t.j, t.value
    elif rows:
        at = np.concatenate([own[t.row] for own, t in rows])
        i, j, weight = (np.concatenate([getattr(t, name) for _, t in rows]) for name in ("i", "j", "value"))
    else:
        at, i, j, weight = none, none, none, np.zeros(0)
    if len(at) != program.m or not weight.all():
        return None
    diagonal = np.arange(n)
    if len(at) == n and (i == diagonal).all() and (j == diagonal).all():
        return at, i, j, weight
    i, j = np.minimum(i, j), np.maximum(i, j)
    order = np.lexsort((j, i, i != j))
    at, i, j, weight = at[order], i[order], j[order], weight[order]
    if len(at) and not (np.array_equal(i[:n], diagonal) and np.array_equal(j[:n], diagonal)):
        return None
    if (i[n:] == j[n:]).any() or len(np.unique(i * n + j)) < len(i):
        return None
    return at, i, j, weight


def choice(program: Program, settings: Any) -> str:
    """Return the method for a program and why, a phrase for ``explain``."""
    proximal_steps = None in program.divergences
    program = reduced(with_proximal_terms(program), settings)
    method = method_of(program, settings)
    if _weighted(program):
        return "elementwise weights, by an augmented Lagrangian or, where small, an interior point"
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
    white = presolve(program, reductions(WHITENING), settings).summaries if method == "newton" else []
    steps = ["proximal steps for matrices without a divergence"] if proximal_steps else []
    return "; ".join([f"method {method!r}{why}", *passes, *steps, *white])


def solve(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program without ordinary variables. Methods for some programs are imported when one comes."""
    if None not in program.divergences:
        return _solve(program, settings, start, progress)
    from bregopt.routes.projection.algorithms import proximal

    return proximal(_solve)(program, settings, start, progress)


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
        from bregopt.routes.projection.cyclic import after_row_passes

        answer = after_row_passes(run)(program, settings, start, progress)
    elif method == "newton" and not _weighted(program) and _many_inactive(program, settings.tuning):
        begin = None if start is None else Start((), start.u, program.bounds.clip(start.y))
        first = ActiveSet.resting(program.bounds, None if begin is None else begin.y)
        answer = on_working_set(run, program, settings, first, begin, progress)
    else:
        answer = run(program, settings, start, progress)
    return replace(answer, citation=answer.citation or found.citation)


def _by_stack(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer | None:
    """Return the answer of the stacked method; None where it does not take or prove it."""
    own = None if progress.watched else _as_entries(program, start)  # it has no certificate at each step
    if own is None:
        return None
    y = None if start is None else own.start(program.bounds.clip(start.y))
    found = _of_stack(own, y, settings, progress)
    return None if found is None else found[0]


def _by_entries(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer | None:
    """Return the answer of a method for LogDet with rows on entries, None where none fits or ends."""
    if settings.method == "cyclic" or not _is_logdet_of_entries(program):
        return None
    from bregopt.routes.projection.pattern_newton import fixed_entries, pattern_newton

    fixed = None if start is not None else fixed_entries(program, settings.tuning)
    answer = None if fixed is None else pattern_newton(fixed, settings, progress)
    if answer is not None:
        return replace(answer, citation=DEMPSTER)
    lasso = _lasso(program) if method_of(program, settings) == "newton" else None
    if lasso is None:
        return None
    answer = lasso.solve(settings.tol, settings.max_iter, settings.tuning.lasso, start, progress)
    return answer if answer.stop in _FINAL else None


def _lasso(program: Program) -> LassoProgram | None:
    """Return the program as a sparse inverse covariance problem, None if it is not one."""
    if not _is_logdet_of_entries(program):
        return None
    from bregopt.routes.graphical_lasso.recognition import as_lasso

    return as_lasso(program)


def _is_logdet_of_entries(program: Program) -> bool:
    """Whether there is one matrix, its divergence has a barrier, and each row is on one of its entries."""
    barrier = len(program.blocks) == 1 and kind_of(program.blocks[0]).barrier
    return barrier and all(term.rows.single for term in program.A.terms)


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


def _many_inactive(program: Program, tuning: ProjectionTuning) -> bool:
    """Whether so many rows can be inactive that a method runs on a working set.

    On the dual, mutually orthogonal rows do not slow each other down, however many they are.
    """
    inactive = can_be_inactive(program.bounds)
    if not all(kind.barrier for kind in kinds_of(program)):
        for term in program.A.terms:
            if term.rows.single:
                inactive[term.at] = False
    order = sum(block.n for block in program.blocks)
    return int(inactive.sum()) > max(tuning.working_set_rows, tuning.working_set_ratio * order)
