"""The route `path`: semidefinite programs, with LogDet terms, by following their central path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import EPS, TINY, Array, shortage
from bregopt.certify import NEAR, Certificate, PrimalDualPoint, certify, cost_of_round_off
from bregopt.clock import CutShort
from bregopt.errors import InfeasibleRowError
from bregopt.presolve import REVEALED, Presolved, certificate_on_faces, presolve, summaries
from bregopt.presolve.coordinates import in_coordinates_of_answer
from bregopt.presolve.dual_form import dual_of, newton_work
from bregopt.presolve.faces import shortfall
from bregopt.presolve.implied_equalities import tight_rows
from bregopt.presolve.recession import DualFace
from bregopt.program import Answer, Penalty, Program, Start, StopReason
from bregopt.program.rows import DenseRows
from bregopt.program.scale import entries_of, in_different_units, newton_flops, price_range, scale_of
from bregopt.records import dataclass, replace
from bregopt.rigorous import proves_bound, recedes
from bregopt.routes import base
from bregopt.routes.alternatives import with_interior, with_proof
from bregopt.routes.base import Capabilities, Method, behind
from bregopt.routes.ipm.central_path import follow_path, follow_path_directly
from bregopt.routes.progress import Progress
from bregopt.routes.working_set import WorkingSetTuning, first_active_set, on_working_set

# Number of rows up to which other forms are tried after a stall: up to it, one takes about a second.
_OTHER_FORM_ROWS = 500
# Operations of a step up to which the dual form is tried after a stall: that of one dense matrix of order
# 250, with 31,000 rows, would take a minute a step.
_DUAL_WORK = 3e8
# Error of an answer up to which no other form is tried, without round-off and with it. On hinf3, 5, 7 and 8,
# with errors of 2e-4 to 1e-3, the other forms take twice the time of the path and gain no digit.
_NEARLY_ATTAINED, _NEARLY_KNOWN = 1e-5, 3e-3
# Tolerance of the programs whose points and multipliers are those of an answer, relative to its tolerance.
_SHARE_ON_FACES = 0.1
# Error on a face of the dual, relative to the tolerance, up to which no smaller face is sought.
_MORE_FACES = 10.0
# Prices of the directions in which X grows, relative to the tolerance: a larger X needs a smaller one, and a
# larger one leaves the multipliers more of an interior.
_PRICES = (1.0, 100.0, 1e-4)
_WITH_POINT = (StopReason.CONVERGED, StopReason.STALLED)
# Changes of coordinates after an answer of a large X that stalled.
_COORDINATE_TRIALS = 3
# Largest order at which `explain` looks for faces.
_FACE_SEARCH_ORDER = 2_000
# Matrices in memory at a time, of each block's order and of the order of the Schur matrix.
_DENSE_MATRICES, _SCHUR_MATRICES = 16, 3

# Of the program, or of each working set of its rows.
_REDUCTIONS = ("independent rows", "independent columns", "faces", "chordal sparsity")
_IN_COORDINATES = (*_REDUCTIONS, "face coordinates")  # smaller matrices, and dense rows
_DUAL, _SQUARES, _UNITS = ("dual form",), ("squares",), ("units",)
_ON_FACES = ("faces", "face coordinates")
_SMALLER, _FORMS = ("dual form", "chordal sparsity"), _DUAL + _REDUCTIONS  # the first at any order


@dataclass(frozen=True, kw_only=True)
class InteriorPointTuning(WorkingSetTuning):
    """Constants of the interior-point method, besides those of the working set.

    Parameters
    ----------
    path_share : float
        Fraction of the tolerance that the certificate on the path has to meet. The rest is for round-off in
        the certificate of the whole problem.
    stall_steps : int
        Steps without progress after which the method stalls and returns its best iterate.
    sample_rows : int
        Least number of rows in a first working set.
    sample_orders : int
        The same, relative to the largest order.
    sample_ratio : int
        Number of rows that can be inactive, relative to a first working set, above which one is used.
    working_set_flops : float
        Operations of a Newton step on all rows above which a working set is used.
    """

    path_share: float = 0.5
    stall_steps: int = 20
    sample_rows: int = 300
    sample_orders: int = 4
    sample_ratio: int = 3
    working_set_flops: float = 4e9


@dataclass(frozen=True, kw_only=True)
class PathSettings(base.Settings):
    """Options of the route `path`.

    Parameters
    ----------
    tuning : InteriorPointTuning
        Numerical constants of the method.
    """

    tuning: InteriorPointTuning = InteriorPointTuning()


class Path:
    """A primal-dual interior-point method for linear objectives and LogDet: the latter for ``mu`` to zero."""

    name: ClassVar[str] = "path"
    summary: ClassVar[str] = (
        "linear objectives and LogDet over matrices of order up to a few thousand (any SDP)"
    )
    citation: ClassVar[str] = (
        "Kulis, Sustik, Dhillon (2009), Low-Rank Kernel Learning with Bregman Matrix Divergences, JMLR 10; "
        "Helmberg, Rendl, Vanderbei, Wolkowicz (1996), An Interior-Point Method for Semidefinite "
        "Programming, SIAM J. Optim. 6"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear", "barrier"}),
        penalties=frozenset(Penalty),
        cones=True,
        squares=True,
        reductions=(
            "squares",
            "epigraphs",
            "absolute values",
            "slacks",
            "interchangeable variables",
            "parallel rows",
            "opposite rows",
            "equal variables",
            "zero variables",
            "defined variables",
            "zero sums",
        ),
    )
    Settings: ClassVar[type[base.Settings]] = PathSettings
    solve_directly = staticmethod(partial(follow_path_directly, capabilities.reductions + _FORMS))

    def refusal(self, program: Program, settings: Any) -> str | None:
        if not program.blocks:
            return "the problem has no matrix variable"
        program = presolve(program, _SQUARES, settings).program
        if shortage(memory_needed(program)) is None:
            return None
        return shortage(_least_memory(program, settings))

    def choice(self, program: Program, settings: Any) -> str:
        tuning: InteriorPointTuning = settings.tuning
        program = presolve(program, _SQUARES, settings).program
        large = max(block.n for block in program.blocks) > _FACE_SEARCH_ORDER
        found = summaries(program, _SMALLER if large else _FORMS, settings)
        memory = _least_memory(program, settings)
        program = _dual_form(program, settings)
        rows = ["on a working set of rows"] if _many_inactive(program, tuning) else []
        return "; ".join([f"{max(memory / 1e6, 1):.0f} MB of memory at most", *rows, *found])

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        answer = _single_variable_ray(program) or solve_on_path(program, settings, start, progress)
        if answer.stop in _WITH_POINT:
            answer = _in_units(program, answer, settings, progress)
        if answer.stop is StopReason.STALLED:
            for other in (_on_tight_rows, _on_faces_first):
                found = other(self.solve, program, answer, settings, progress)
                if found is not answer:
                    return found
            answer = _on_dual_faces(program, answer, settings, progress)
        if answer.stop is StopReason.CONVERGED:
            return answer
        answer = with_proof(program, answer, solve_on_path, settings, progress)
        answer = with_interior(program, answer, solve_on_path, settings, progress)
        # A face that proves the answer has multipliers of its own; there other forms prove no more.
        on_faces = answer.y_on_faces is not None and not np.array_equal(answer.y, answer.y_on_faces)
        small = program.m <= _OTHER_FORM_ROWS and not program.curved
        if small and answer.stop is StopReason.STALLED and not on_faces:
            return _by_other_forms(program, answer, settings, progress)
        return answer


def solve_on_path(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Return the answer of the form of the program that takes less work."""
    if _dual_form(program, settings) is not program:
        try:
            return behind(_DUAL, _on_all_rows)(program, settings, start, progress)
        except InfeasibleRowError:  # of the dual, on which the program need not have an answer
            pass
    return _directly(program, settings, start, progress)


# Pays on: an implied equality in other units.
def _in_units(program: Program, given: Answer, settings: Any, progress: Progress) -> Answer:
    """Return the answer in other units after an inaccurate one of rows or matrices that differ by decades."""
    if not in_different_units(program) or _is_judged(program, given, settings):
        return given
    before = _worst(program, given)
    if before <= settings.tol:
        return given
    try:
        found = behind(_UNITS, solve_on_path)(program, settings, None, progress)
    except (CutShort, InfeasibleRowError):
        return given
    error = _worst(program, found) if found.stop in _WITH_POINT else 0.0
    if error >= before:
        return given
    stop = StopReason.STALLED if error > settings.tol else found.stop
    return replace(found, stop=stop, iterations=given.iterations + found.iterations)


def _is_judged(program: Program, answer: Answer, settings: Any) -> bool:
    """Whether the path itself has met the tolerance with all rows of the program, which nothing reduces."""
    if answer.stop is not StopReason.CONVERGED or _many_inactive(program, settings.tuning):
        return False
    return not presolve(program, _FORMS, settings).steps


# Pays on: Frank-Wolfe's method, three steps.
def _on_tight_rows(
    method: Method, program: Program, stalled: Answer, settings: Any, progress: Progress
) -> Answer:
    """Return a method's answer with equalities for the inequalities that are tight at every point, if any.

    A better given answer is returned.
    """
    tight = tight_rows(program, stalled.y)
    if tight is None:
        return stalled
    presolved = Presolved(program, (tight,))
    try:
        found = method(tight.program, settings, None, progress.within(presolved))
    except (CutShort, InfeasibleRowError):
        return stalled
    found = replace(presolved.restore(found), iterations=stalled.iterations + found.iterations)
    worse = found.stop in _WITH_POINT and _worst(program, found) > _worst(program, stalled)
    return stalled if worse else found


# Pays on: four matrix inequalities with a zero on their diagonals.
def _on_faces_first(
    method: Method, program: Program, stalled: Answer, settings: Any, progress: Progress
) -> Answer:
    """Return a method's answer on the faces that rows imply, where the dual form was taken without them.

    The multipliers of rows that imply a face grow without end there. A better given answer is returned.
    """
    if _dual_form(program, settings) is program or not presolve(program, _ON_FACES, settings).steps:
        return stalled
    inner = behind(Path.capabilities.reductions, method)
    try:
        found = behind(_ON_FACES, inner)(program, settings, None, progress)
    except (CutShort, InfeasibleRowError):
        return stalled
    if found.stop not in _WITH_POINT or _worst(program, found) > _worst(program, stalled):
        return stalled
    return replace(found, iterations=stalled.iterations + found.iterations)


# Pays on: the worst case of a proximal method.
def _on_dual_faces(program: Program, stalled: Answer, settings: Any, progress: Progress) -> Answer:
    """Return the best answer with multipliers on the faces of the dual that a large `X` shows.

    A price on the directions in which ``X`` grows gives a smaller one.
    """
    if program.curved or program.capped or not stalled.X:
        return stalled
    sharp = replace(settings, tol=_SHARE_ON_FACES * settings.tol)
    other, follow = progress.of_another_program(), behind(_DUAL + _IN_COORDINATES, follow_path)
    face, X, answers = DualFace.entire(program), stalled.X, [stalled]
    try:
        while (smaller := face.smaller(X)) is not None:
            face = smaller
            found = follow(face.program, sharp, None, other)
            if found.stop not in _WITH_POINT:
                return stalled
            answers.append(face.restore(found))
            X = found.X
            if _worst(face.program, found) <= _MORE_FACES * settings.tol:
                break
        if len(answers) == 1:
            return stalled
        for price in _PRICES:
            priced = follow(face.priced(price * settings.tol * scale_of(program).dual), sharp, None, other)
            if priced.stop not in _WITH_POINT:
                break
            answers.append(priced)
            if _worst(program, _best_pair(program, answers, settings)) <= settings.tol:
                break
    except (CutShort, InfeasibleRowError):
        return stalled
    answer = _best_pair(program, answers, settings)
    met = _worst(program, answer) <= settings.tol
    return replace(answer, stop=StopReason.CONVERGED if met else StopReason.STALLED)


# Pays on: a potential that a gradient step keeps.
def _by_other_forms(program: Program, answer: Answer, settings: Any, progress: Progress) -> Answer:
    """Return the best answer of the other form, the perturbed program and the given one, far from a solution.

    Where matrices or multipliers diverge, one form often has the best matrices and another the best
    multipliers. No answer takes the place of one that meets the tolerance, or nearly so, unless it does, too.
    """
    answers, near = [answer], max(settings.tol, _NEARLY_ATTAINED)
    for form in (_by_other_form, _perturbed):
        worst, error = _errors(program, answer)
        if worst <= near and error <= _NEARLY_KNOWN:
            break
        try:
            other = form(program, settings, progress)
        except (CutShort, InfeasibleRowError):
            break
        if other is not None and other.stop in _WITH_POINT:
            answers.append(other)
            answer = _best_pair(program, answers, settings)
    return answer


def _best_pair(program: Program, answers: Sequence[Answer], settings: Any) -> Answer:
    """Return the matrices of one answer and the multipliers of another or the same one that prove most."""
    near = max(settings.tol, _NEARLY_ATTAINED)

    def rank(other: Answer) -> tuple[bool, bool, float, float]:
        worst, error = _errors(program, other)
        return worst > settings.tol, worst > near, error, worst

    pairs, stop = product(answers, answers), StopReason.STALLED
    mixed = (a if a is b else replace(a, y=b.y, y_on_faces=b.y_on_faces, stop=stop) for a, b in pairs)
    return min(mixed, key=rank)


def _by_other_form(program: Program, settings: Any, progress: Progress) -> Answer | None:
    """Return the answer by that of the two forms that takes more work; None if there is none."""
    if _dual_form(program, settings) is not program:
        return _directly(program, settings, None, progress)
    dual = dual_of(program)
    if dual is None or newton_work(dual.program) > _DUAL_WORK:
        return None
    presolved = Presolved(program, (dual,))
    return presolved.restore(_on_all_rows(dual.program, settings, None, progress.within(presolved)))


def _perturbed(program: Program, settings: Any, progress: Progress) -> Answer:
    """Return the answer to the program with wider inequalities and a price on traces, by the tolerance.

    Where no `X` attains the optimum, an `X` that is nearly feasible and nearly optimal need not be large.
    """
    scale, bounds = scale_of(program), program.bounds
    width = settings.tol * np.maximum(program.row_units * scale.primal, bounds.sizes)
    width = np.where(bounds.equal, 0.0, width)
    price = settings.tol * scale.dual
    perturbed = replace(
        program,
        blocks=tuple(
            replace(block, cost=DenseRows((block.C + price * np.eye(block.n))[None]))
            for block in program.blocks
        ),
        bounds=replace(bounds, lo=bounds.lo - width, hi=bounds.hi + width),
    )
    return behind(_REDUCTIONS, follow_path)(perturbed, settings, None, progress.of_another_program())


def _errors(program: Program, answer: Answer) -> tuple[float, float]:
    """Return the largest of gap and residuals, and the same with the round-off at a large `X`."""
    certificate, y = _certificate(program, answer)
    cost, worst = cost_of_round_off(program, answer.X, y), certificate.worst
    return worst, max(worst, min(cost / certificate.size, NEAR) if certificate.size else 0.0)


def _worst(program: Program, answer: Answer) -> float:
    """Return the largest of gap and residuals: multipliers on a face of the dual may be no answer."""
    return _certificate(program, answer)[0].worst


def _certificate(program: Program, answer: Answer) -> tuple[Certificate, Array]:
    """Return the certificate and its multipliers: those on implied faces if they prove more."""
    certificate = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y))
    if answer.y_on_faces is not None:
        on_faces = certificate_on_faces(program, answer)
        if on_faces.worst < certificate.worst:
            return on_faces, answer.y_on_faces
    return certificate, answer.y


def _directly(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    method = _on_working_set if _many_inactive(program, settings.tuning) else _on_all_rows
    return method(program, settings, start, progress)


def _dual_form(program: Program, settings: Any) -> Program:
    """Return the dual of linear matrix inequalities where that takes less work, else the program."""
    return presolve(program, _DUAL, settings).program


def _smaller_form(program: Program, settings: Any) -> Program:
    """Return the program in the forms of less work that exist: dual, or in cliques."""
    return presolve(program, _SMALLER, settings).program


def _on_all_rows(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    answer = behind(_REDUCTIONS, follow_path)(program, settings, start, progress)
    if answer.stop is StopReason.STALLED:
        answer = on_revealed_faces(follow_path, program, settings, progress, answer)
    return _in_coordinates_of_answer(program, settings, progress, answer)


# Pays on: an optimum of 4e6.
def _in_coordinates_of_answer(program: Program, settings: Any, progress: Progress, stalled: Answer) -> Answer:
    """Return the answer after an inaccurate one of a large `X`, in coordinates in which `X` is smaller.

    The first of them may be far from the optimum, so the coordinates are improved a few times. Where faces
    were revealed, they are why the answer is inaccurate, and other coordinates do not help.
    """
    if stalled.y_on_faces is not None:
        return stalled
    for _ in range(_COORDINATE_TRIALS):
        if stalled.stop is not StopReason.STALLED or (worst := _worst(program, stalled)) <= settings.tol:
            break
        turned = in_coordinates_of_answer(program, stalled.X, program.bound_scale)
        if turned is None:
            break
        presolved = Presolved(program, (turned,))
        try:
            found = follow_path(turned.program, settings, None, progress.within(presolved))
        except CutShort:
            break
        found = replace(presolved.restore(found), iterations=stalled.iterations + found.iterations)
        if found.stop is StopReason.STALLED:
            found = min(found, _scaled_into_rows(program, found), key=partial(_worst, program))
        error = _worst(program, found)
        if found.stop is StopReason.STALLED and error >= worst:
            break
        # There a multiplier of 1e9 may meet the tolerance although the dual has no such point.
        near = ((1 + share * settings.tol) * found.y for share in (0, 100, -100))
        if error <= settings.tol:
            found = replace(found, stop=StopReason.CONVERGED)
        if found.stop is StopReason.CONVERGED and not any(proves_bound(program, y) for y in near):
            break
        stalled = found
    return stalled


def _scaled_into_rows(program: Program, answer: Answer) -> Answer:
    """Return the answer with multiples of `X` and `u` that meet inequalities beyond round-off.

    A violation by round-off counts as many times as `X` is larger than the scale of the rows.
    """
    point = PrimalDualPoint(program, answer.X, answer.u, answer.y)
    missed = np.where(program.bounds.equal, 0.0, point.violations)
    wanted = np.where(missed > 0, missed + 4 * EPS * point.magnitudes, 0.0)
    if not wanted.any():
        return answer
    size = np.maximum(np.abs(point.activity), TINY)
    k = int(np.argmax(wanted / size))
    up = (point.activity[k] < program.bounds.lo[k]) == (point.activity[k] > 0)
    factor = 1 + (1 if up else -1) * float(wanted[k] / size[k])
    if not 0.5 < factor < 2:
        return answer
    return replace(answer, X=tuple(factor * np.asarray(X) for X in answer.X), u=factor * answer.u)


# Pays on: a duality gap, rotated.
def on_revealed_faces(
    method: Method, program: Program, settings: Any, progress: Progress, stalled: Answer
) -> Answer:
    """Return a method's answer on the faces that the multipliers of a stalled one reveal, if it is better.

    It is if it is proven there, or if its multipliers of all rows are better. Multipliers that reach
    the tolerance on the faces alone may be far from it on all rows.
    """
    from bregopt.presolve.revealed_faces import revealed_faces  # only stalled answers wait

    known = program.reductions.get(REVEALED)
    if known is not None and known.miss == 0:  # an exact face, which the answer is on
        return stalled
    try:
        revealed = revealed_faces(program, stalled.y)
        if revealed is None:
            return stalled
        presolved = Presolved(program, (revealed,))
        found = method(presolved.program, settings, None, progress.within(presolved))
    except CutShort:
        return stalled
    if found.stop not in (StopReason.CONVERGED, StopReason.STALLED):
        return stalled
    answer = presolved.restore(found)
    assert answer.y_on_faces is not None
    proven = revealed.certificate(answer.X, answer.u, answer.y_on_faces).meets(settings.tol)
    if not proven and shortfall(program, answer) >= shortfall(program, stalled):
        answer = replace(stalled, y_on_faces=stalled.y)
    return replace(answer, stop=StopReason.STALLED, iterations=stalled.iterations + found.iterations)


def _on_working_set(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    count = _sample_size(program, settings.tuning)
    active_set = first_active_set(_on_all_rows, program, settings, count, start)
    if active_set.working.all():
        return _on_all_rows(program, settings, start, progress)
    return on_working_set(_on_all_rows, program, settings, active_set, start, progress, loose=True)


# Pays on: 60 triplets at a price too low, few at a time.
def _single_variable_ray(program: Program) -> Answer | None:
    """Return the ray of a variable without bound whose cost exceeds all prices, as a margin's may, if any."""
    if not program.k:
        return None
    least, largest = price_range(program, *program.bounds.dual_range())
    falls = (program.c > largest) & np.isinf(program.u_lo) | (program.c < least) & np.isinf(program.u_hi)
    X = tuple(np.zeros((block.n, block.n)) for block in program.blocks)
    for j in np.flatnonzero(falls & ~program.in_cones):
        u = np.zeros(program.k)
        u[j] = -1.0 if program.c[j] > largest[j] else 1.0
        if recedes(program, X, u):
            return Answer(X, u, np.zeros(program.m), StopReason.UNBOUNDED, 0)
    return None


# Pays on: 4,800 distances, n = 100.
def _many_inactive(program: Program, tuning: InteriorPointTuning) -> bool:
    """Whether so many rows can be inactive that a working set costs less."""
    inactive = int(program.bounds.can_be_inactive.sum())
    many = inactive > tuning.sample_ratio * _sample_size(program, tuning)
    return many and newton_flops(program) > tuning.working_set_flops


def _sample_size(program: Program, tuning: InteriorPointTuning) -> int:
    """Return the number of rows that can be inactive in the first working set."""
    return max(tuning.sample_rows, tuning.sample_orders * max(block.n for block in program.blocks))


def _least_memory(program: Program, settings: Any) -> float:
    """Return the memory for the smaller form, by a sparse Newton system where a dense one does not fit."""
    smaller = _smaller_form(program, settings)
    dense = memory_needed(smaller)
    if shortage(dense) is None:
        return dense
    from bregopt.routes.ipm.many_blocks import sparse_fill  # only large programs wait

    return memory_needed(smaller, sparse_fill(smaller.A, smaller.B, smaller.cones))


def memory_needed(program: Program, nonzeros: float = math.inf) -> float:
    """Return an estimate of the memory that a solution needs, in bytes.

    `nonzeros` is the number of those in the factor of Newton's system if it is sparse.
    """
    inactive = int(program.bounds.can_be_inactive.sum())
    triangles = entries_of(program)
    # About as many of the rows that can be inactive are active as there are entries; these are stored twice.
    unknowns = program.m - inactive + min(inactive, 2 * triangles)
    entries = sum(block.n**2 for block in program.blocks)
    return 8 * (_DENSE_MATRICES * entries + _SCHUR_MATRICES * min(unknowns**2, 2 * nonzeros))
