"""What a reduction is: a program becomes a simpler one, and an answer to that one an answer to the first.

A :class:`Reduction` says whether it applies and makes a :class:`Reduced`: the simpler program, and the way
there and back. :func:`presolve` applies several, one after the other. Each result is kept with its program,
so that routing, ``explain`` and the solve pay for it once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from bregopt import clock
from bregopt.arrays import Array
from bregopt.program import Answer, Program, Start, StopReason

__all__ = ["Presolved", "Reduced", "Reduction", "presolve"]

_UNTRIED: Any = object()


@dataclass(frozen=True, eq=False)
class Reduced:
    """A reduced program. What a reduction does not touch goes both ways as it is.

    Parameters
    ----------
    whole, program : Program
        As given, and reduced.
    """

    whole: Program
    program: Program

    @property
    def summary(self) -> str:
        """What was done, for ``explain``; empty where there is nothing to say."""
        return ""

    def contradiction(self) -> Array | None:
        """Return a Farkas vector of `whole`, shape ``(m,)``, where the reduction has found one."""
        return None

    def shrink(self, start: Start) -> Start:
        """Return an earlier answer to `whole` as one to `program`."""
        return start

    def restore(self, answer: Answer) -> Answer:
        """Return an answer to `program` as one to `whole`: a point, a Farkas vector or a ray, as it says."""
        return answer

    def missed(self, X: Sequence[Array], u: Array, activity: Array) -> float:
        """Return what a point of `program` misses in `whole` that its own residual does not show.

        Parameters
        ----------
        X, u : the point
        activity : array of shape (m,)
            That of the rows of `program`.
        """
        return 0.0


class Reduction(Protocol):
    """One kind of reduction. Register it with :func:`bregopt.presolve.register_reduction`."""

    name: ClassVar[str]
    universal: ClassVar[bool]
    """Whether it is for every route; the others ask for it by name."""

    def apply(self, program: Program, options: Any) -> Reduced | None:
        """Return the reduced program, None where the reduction does not apply; `options` are a route's."""
        ...


@dataclass(frozen=True, eq=False)
class Presolved:
    """A program after several reductions.

    Parameters
    ----------
    whole : Program
        As given.
    steps : tuple of Reduced
        What the reductions that apply have made, in order; nothing after one that found a contradiction.
    farkas : array, optional
        What the last of them found: a Farkas vector of the program before it.
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
        """What each reduction did, for ``explain``."""
        return [step.summary for step in self.steps if step.summary]

    def infeasible(self) -> Answer | None:
        """Return the answer that there is none, where a reduction has found that."""
        if self.farkas is None:
            return None
        *before, last = self.steps
        return _restored(before, Answer.without_point(last.whole, self.farkas, StopReason.INFEASIBLE))

    def shrink(self, start: Start) -> Start:
        """Return an earlier answer to the program as one to the reduced."""
        for step in self.steps:
            start = step.shrink(start)
        return start

    def restore(self, answer: Answer) -> Answer:
        """Return an answer to the reduced program as one to the program."""
        return _restored(self.steps, answer)

    def missed(self, X: Sequence[Array], u: Array, activity: Array) -> float:
        """Return what a point misses in the program that its residual in the reduced does not show."""
        return self.steps[-1].missed(X, u, activity) if self.steps else 0.0


def _restored(steps: Sequence[Reduced], answer: Answer) -> Answer:
    for step in reversed(steps):
        answer = step.restore(answer)
    return answer


def presolve(program: Program, reductions: Iterable[Reduction], options: Any) -> Presolved:
    """Return a program after those reductions that apply, in the order given.

    Raises
    ------
    InfeasibleRowError
        A reduction found a row that no point meets.
    """
    steps: list[Reduced] = []
    farkas = None
    for reduction in reductions:
        step = _applied(reduction, steps[-1].program if steps else program, options)
        if step is not None:
            steps.append(step)
            farkas = step.contradiction()
        if farkas is not None:
            break
    return Presolved(program, tuple(steps), farkas)


def _applied(reduction: Reduction, program: Program, options: Any) -> Reduced | None:
    """Return what a reduction makes of a program; kept with the program, unless time was short."""
    key = reduction.name, options.rank_tol
    # One look only: another thread may clear them at any time.
    step: Reduced | None = program.reductions.get(key, _UNTRIED)
    if step is not _UNTRIED:
        return step
    step = reduction.apply(program, options)
    if step is not None or clock.remaining() == math.inf:
        program.reductions[key] = step
    return step
