"""Reductions: each turns a program into a simpler one, and an answer to that into an answer to the first.

A reduction is a function. Where it applies, it returns a :class:`Reduced`: the simpler program, and the maps
there and back. :func:`presolve` applies several, one after the other: every route uses those in
:data:`UNIVERSAL`, then the ones that it requests by name from :data:`REQUESTED`. Each result is cached with
its program, so that routing, ``explain`` and the solve compute it once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import cache
from operator import attrgetter
from pkgutil import resolve_name
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from bregopt import clock
from bregopt.arrays import Array
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.errors import InfeasibleRowError
from bregopt.program import Answer, Program, Start, StopReason
from bregopt.records import dataclass, replace

__all__ = [
    "LEAST_CHORDAL_ORDER",
    "REQUESTED",
    "REVEALED",
    "UNIVERSAL",
    "Presolved",
    "Reduced",
    "Reduction",
    "Tolerances",
    "certificate_on_faces",
    "presolve",
    "register_reduction",
    "summaries",
    "with_multipliers",
]

REVEALED = "revealed faces"  # the name of these among the cached reductions of a program
# Order from which a sparse pattern is looked for; below, a step takes less than the calls for cliques.
LEAST_CHORDAL_ORDER = 170
_UNTRIED: Any = object()


@dataclass(frozen=True, eq=False)
class Reduced:
    """A reduced program. By default, starts and answers are mapped unchanged.

    Parameters
    ----------
    whole, program : Program
        The given program and the reduced one.
    """

    whole: Program
    program: Program

    rescales: ClassVar[bool] = False
    """Whether certificates of `program` are relative to other magnitudes than those of `whole`."""
    repeats: ClassVar[bool] = False
    """Whether the reduction may apply to its own result."""

    @property
    def margin(self) -> float:
        """The fraction of the tolerance to which `program` is solved, as errors may be larger in `whole`."""
        return 1.0

    @property
    def summary(self) -> str:
        """A phrase on the reduction for ``explain``; may be empty."""
        return ""

    def contradiction(self) -> Array | None:
        """Return a Farkas vector of `whole`, shape ``(m,)``, if the reduction has found one."""
        return None

    def shrink(self, start: Start) -> Start:
        """Return an earlier answer to `whole` as one to `program`."""
        return start

    def restore(self, answer: Answer) -> Answer:
        """Return an answer to `program` as one to `whole`: a point, a Farkas vector or a ray."""
        return answer

    def missed(self, X: Sequence[Array], u: Array, activity: Array) -> float:
        """Return the part of the residual in `whole` that the residual of `program` does not show.

        Parameters
        ----------
        X, u : the point of `program`
        activity : array of shape (m,)
            Of the rows of `program`.
        """
        return 0.0


class Tolerances(NamedTuple):
    """The options of a route that a reduction may read; results are cached by these.

    Parameters
    ----------
    tol : float
        Tolerance of the answer.
    rank_tol : float
        Singular values of a ``LowRank`` factor below this fraction of the largest count as zero.
    """

    tol: float
    rank_tol: float


_ANY = Tolerances(0.0, 0.0)  # for reductions that read none
_Apply = Callable[[Program, Tolerances], Reduced | None]


def _ours(where: str, needs: Callable[[Program], Any] | None = None) -> _Apply:
    """Return a reduction by its module and function, which are loaded where a program has what it needs."""

    def apply(program: Program, tolerances: Tolerances) -> Reduced | None:
        if needs is not None and not needs(program):
            return None
        reduction: _Apply = _function(where)
        return reduction(program, tolerances)

    return apply


@cache
def _function(where: str) -> Any:
    return resolve_name(f"{__name__}.{where}")


def _large(program: Program) -> bool:
    return max(program.A.orders, default=0) >= LEAST_CHORDAL_ORDER


def _rows_may_be_alike(program: Program) -> bool:
    from bregopt.presolve.svec import all_differ  # which imports this module

    return program.m > 1 and not all_differ(program)


def _rows_may_be_parallel(program: Program) -> bool:
    from bregopt.presolve.equalities import are_independent

    equal = program.bounds.equal
    independent = equal.all() and program.row_sizes.all() and are_independent(program, equal)
    return not independent and _rows_may_be_alike(program)


def _variables_may_be_alike(program: Program) -> bool:
    return program.k > 1 and _rows_may_be_alike(program)


_variables, _squares = attrgetter("k"), attrgetter("has_squares_beside_others")
# A new reduction is one file and one line here. Both are in the order in which reductions are applied.
UNIVERSAL: dict[str, _Apply] = {
    "range space": _ours("coordinates:range_spaces"),
    "fixed variables": _ours("variables:fixed_variables", _variables),
    "boxes": _ours("variables:boxes", _variables),
}
REQUESTED: dict[str, _Apply] = {
    "units": _ours("scaling:units"),
    "least norm": _ours("squares:least_norm"),
    "squares": _ours("squares:squares_as_rows", _squares),
    "epigraphs": _ours("variables:dominated_variables", _variables),
    "absolute values": _ours("epigraphs:absolute_values", _variables),
    "differences": _ours("epigraphs:differences", _variables),
    "slacks": _ours("epigraphs:slacks", _variables),
    "equal variables": _ours("variables:equal_variables", _variables),
    "zero variables": _ours("variables:fixed_variables", _variables),  # x = 2 y and y = 2 x
    "interchangeable variables": _ours("interchange:interchangeable_variables", _variables_may_be_alike),
    "parallel rows": _ours("svec:parallel_rows", _rows_may_be_parallel),
    "opposite rows": _ours("epigraphs:opposite_rows", _variables),
    "defined variables": _ours("variables:defined_variables", _variables),
    "zero sums": _ours("implied_equalities:zero_sums"),
    "dual form": _ours("dual_form:dual_form"),
    "redundant equalities": _ours("equalities:redundant_equalities"),
    "independent rows": _ours("equalities:independent_rows"),
    "independent columns": _ours("variables:independent_columns", _variables),
    "faces": _ours("faces:faces"),
    "sparse integer faces": _ours("faces:sparse_integer_faces"),
    "face coordinates": _ours("faces:face_coordinates"),
    "chordal sparsity": _ours("chordal:chordal_sparsity", _large),
    "whitening": _ours("coordinates:whitening"),
    "scaling": _ours("scaling:scaling"),
}


class Reduction(Protocol):
    """One kind of reduction. Register a class of them with :func:`register_reduction`."""

    name: ClassVar[str]
    universal: ClassVar[bool]
    """Whether every route uses it; other reductions are asked for by name."""

    def apply(self, program: Program, tolerances: Tolerances) -> Reduced | None:
        """Return the reduced program, None where the reduction does not apply."""
        ...


def register_reduction(cls: type[Reduction]) -> type[Reduction]:
    """Add a reduction; also usable as a class decorator. It replaces one of the same name.

    A universal reduction is placed after the other universal ones, before those that routes ask for.

    Parameters
    ----------
    cls : class
        With the attributes and methods of :class:`Reduction`.
    """
    for known in (UNIVERSAL, REQUESTED):
        known.pop(cls.name, None)
    (UNIVERSAL if cls.universal else REQUESTED)[cls.name] = cls().apply
    return cls


@dataclass(frozen=True, eq=False)
class Presolved:
    """A program after several reductions.

    Parameters
    ----------
    whole : Program
        The given program.
    steps : tuple of Reduced
        The results of the reductions that apply, in order; the last one may have found a contradiction.
    farkas : array, optional
        A Farkas vector that the last reduction found, for the program before it.
    """

    whole: Program
    steps: tuple[Reduced, ...]
    farkas: Array | None = None

    @property
    def program(self) -> Program:
        """The reduced program."""
        return self.steps[-1].program if self.steps else self.whole

    @property
    def summaries(self) -> list[str]:
        """The phrases on the reductions for ``explain``."""
        return [step.summary for step in self.steps if step.summary]

    @property
    def margin(self) -> float:
        """The fraction of the tolerance to which the reduced program is solved."""
        return math.prod(step.margin for step in self.steps)

    def infeasible(self) -> Answer | None:
        """Return the answer with a Farkas vector, if a reduction has found one."""
        if self.farkas is None:
            return None
        *before, last = self.steps
        return _restored(before, Answer.without_point(last.whole, self.farkas, StopReason.INFEASIBLE))

    def shrink(self, start: Start) -> Start:
        """Return an earlier answer to the program as one to the reduced program."""
        for step in self.steps:
            start = step.shrink(start)
        return start

    def restore(self, answer: Answer) -> Answer:
        """Return an answer to the reduced program as one to the program."""
        return _restored(self.steps, answer)

    @property
    def rescales(self) -> bool:
        """Whether a reduction changes the magnitudes that certificates are relative to."""
        return any(step.rescales for step in self.steps)

    def settles(self, answer: Answer, tol: float) -> bool:
        """Whether an answer meets the tolerance before each reduction that changes magnitudes, too.

        It does with its multipliers of all rows, or with those on the faces that the rows imply.
        """
        for step in reversed(self.steps):
            answer = step.restore(answer)
            if not step.rescales:
                continue
            certificate = certify(PrimalDualPoint(step.whole, answer.X, answer.u, answer.y))
            if certificate.meets(tol):
                continue
            if answer.y_on_faces is None or not certificate_on_faces(step.whole, answer).meets(tol):
                return False
        return True

    def missed(self, X: Sequence[Array], u: Array, activity: Array) -> float:
        """Return the part of the residual in the program that the reduced program does not show."""
        if not self.steps:
            return 0.0
        *before, last = self.steps
        largest = last.missed(X, u, activity)
        if not before:
            return largest
        point = last.restore(Answer(tuple(X), u, np.zeros(len(activity)), StopReason.CONVERGED, 0))
        outer = Presolved(self.whole, tuple(before))
        return max(largest, outer.missed(point.X, point.u, last.whole.activity(point.X, point.u)))


def with_multipliers(answer: Answer, of_all: Callable[[Array], Array], **changes: Any) -> Answer:
    """Return an answer with multipliers of all rows, on faces too, as a function of those at hand."""
    on_faces = None if answer.y_on_faces is None else of_all(answer.y_on_faces)
    return replace(answer, y=of_all(answer.y), y_on_faces=on_faces, **changes)


def certificate_on_faces(program: Program, answer: Answer) -> Certificate:
    """Return the certificate of an answer with its multipliers on the faces that the rows imply."""
    faces = program.faces
    implied = _applied("faces", program, _ANY)
    if implied is not None:
        faces = implied.program.faces
    assert answer.y_on_faces is not None
    return certify(PrimalDualPoint(program, answer.X, answer.u, answer.y_on_faces, faces=faces))


def _restored(steps: Sequence[Reduced], answer: Answer) -> Answer:
    if not steps:
        return answer
    inner = answer.inner
    for step in reversed(steps):
        answer = step.restore(answer)
    return answer if inner is None else replace(answer, inner=_restored(steps, inner))


def presolve(program: Program, names: Collection[str], options: Any) -> Presolved:
    """Return a program after those reductions of the given names that apply, in the order of the registry.

    Parameters
    ----------
    program : Program
    names : collection of str
    options : Settings
        Of the route; only its tolerances are used.

    Raises
    ------
    InfeasibleRowError
        If a reduction finds a row that no point meets.
    """
    steps: list[Reduced] = []
    farkas, tolerances = None, Tolerances(options.tol, options.rank_tol)
    chosen = [name for known in (UNIVERSAL, REQUESTED) for name in known if name in names]
    for name in () if program.terms else chosen:  # a route with convex terms reduces by itself
        step = _applied(name, steps[-1].program if steps else program, tolerances)
        while step is not None and farkas is None:
            steps.append(step)
            farkas = step.contradiction()
            step = _applied(name, step.program, tolerances) if step.repeats else None
        if farkas is not None:
            break
    return Presolved(program, tuple(steps), farkas)


def summaries(program: Program, names: Collection[str], options: Any) -> list[str]:
    """Return what reductions do to a program, in words; or that one finds a row that no point meets."""
    try:
        return presolve(program, names, options).summaries
    except InfeasibleRowError as error:
        return [str(error)]


def _applied(name: str, program: Program, tolerances: Tolerances) -> Reduced | None:
    """Return the result of a reduction, cached with the program unless a time limit may have prevented it."""
    key = name, tolerances
    # One look only: another thread may clear them at any time.
    step: Reduced | None = program.reductions.get(key, _UNTRIED)
    if step is not _UNTRIED:
        return step
    known = UNIVERSAL if name in UNIVERSAL else REQUESTED
    step = known[name](program, tolerances)
    if step is not None or clock.remaining() == math.inf:
        program.reductions[key] = step
    return step
