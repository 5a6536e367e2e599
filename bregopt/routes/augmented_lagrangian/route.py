"""The route `lagrangian`: linear programs with many rows for their order, where the rows have few entries.

Directions alternate in chunks. After each, the point is certified twice: as it is, and moved onto the rows
with a point inside the cones. Where the method stalls, as at an optimum that is not attained, the path
answers.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.clock import CutShort
from bregopt.program import LIMITS, Answer, Penalty, Program, Start, StopReason, pays
from bregopt.program.scale import newton_flops
from bregopt.records import dataclass, replace
from bregopt.routes import base
from bregopt.routes.alternatives import with_proof
from bregopt.routes.augmented_lagrangian.alternating_directions import AlternatingDirections
from bregopt.routes.augmented_lagrangian.standard_form import StandardForm
from bregopt.routes.base import Capabilities, Tuning
from bregopt.routes.ipm.path_route import PathSettings, solve_on_path
from bregopt.routes.progress import Monitor, Progress, reason

# Chunks after which the method stalls where the option `max_iter` gives no limit.
_DEFAULT_MAX_ITER = 1000
# Terms of all rows above which they are not listed: 2 GB.
_MOST_TERMS = 50_000_000
# Decrease of the least error that counts as progress, and chunks without one after which the method stalls,
# at least and as a share of all.
_PROGRESS, _PATIENCE, _PATIENCE_SHARE = 0.8, 25, 1 / 3
# Rows up to which the path finds the proof that there is no solution. It keeps more digits.
_ROWS_FOR_PATH = 2_000
# Operations of a step of the path up to which it takes over where this method stalls or takes longer.
_PATH_FLOPS = 2e11
# Operations that the path takes, its steps and the least ones of a step, and those of a step here: relative
# to the cube of the order, and the least ones.
_PATH_STEPS, _PATH_STEP, _DECOMPOSITION, _LEAST_DECOMPOSITION = 12, 5e8, 10.0, 1.5e7
# Matrices of the order in memory at a time, most of them for extrapolations.
_DENSE_MATRICES = 40


@dataclass(frozen=True, kw_only=True)
class LagrangianTuning(Tuning):
    """Constants of the method.

    Parameters
    ----------
    chunk : int
        Steps of alternating directions between two certificates.
    """

    chunk: int = 25


@dataclass(frozen=True, kw_only=True)
class LagrangianSettings(base.Settings):
    """Options of the route `lagrangian`: those of every route.

    Parameters
    ----------
    tuning : LagrangianTuning
        Numerical constants of the method.
    """

    tuning: LagrangianTuning = LagrangianTuning()


class Lagrangian:
    """Alternating directions on an augmented Lagrangian, with bounds that are proven at any point."""

    name: ClassVar[str] = "lagrangian"
    summary: ClassVar[str] = "linear objectives with many rows of few entries (theta numbers, X >= 0)"
    citation: ClassVar[str] = (
        "Wen, Goldfarb, Yin (2010), Alternating Direction Augmented Lagrangian Methods "
        "for Semidefinite Programming, Math. Program. Comput. 2"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear"}),
        penalties=frozenset({Penalty.HARD, Penalty.HINGE, Penalty.SQUARE}),
        cones=True,
        matrices=_DENSE_MATRICES,
        squares=True,
        reductions=(
            "squares",
            "epigraphs",
            "absolute values",
            "differences",
            "slacks",
            "interchangeable variables",
            "parallel rows",
            "opposite rows",
            "equal variables",
            "zero variables",
            "defined variables",
            "zero sums",
            "faces",
            "sparse integer faces",
        ),
    )
    Settings: ClassVar[type[base.Settings]] = LagrangianSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        if not program.blocks:
            return "the problem has no matrix variable"
        in_cones = program.cones.index
        if np.isfinite(program.u_lo[in_cones]).any() or np.isfinite(program.u_hi[in_cones]).any():
            return "variables in second-order cones have bounds of their own"
        count = sum(term.count for term in program.A.terms)
        if count > _MOST_TERMS:
            return f"the rows have about {count:.1e} terms, and it lists up to {_MOST_TERMS:.0e}"
        return None

    def choice(self, program: Program, settings: Any) -> str:
        return f"alternating directions, {settings.tuning.chunk} steps between two certificates"

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        answer = _or_on_path(program, settings, progress, _solve(program, settings, start, progress))
        return with_proof(program, answer, _proving, settings, progress)


# Pays on: an optimum that is not attained.
def _or_on_path(program: Program, settings: Any, progress: Progress, answer: Answer) -> Answer:
    """Return the answer, that of the path where this method stalls and the path takes a minute at most."""
    if answer.stop is not StopReason.STALLED or newton_flops(program) > _PATH_FLOPS:
        return answer
    found = solve_on_path(program, PathSettings(tol=settings.tol), None, progress)
    iterations = answer.iterations + found.iterations
    if found.stop in LIMITS and answer.stop is StopReason.STALLED:  # the first point may be the better one
        own, other = (_worst(program, each) for each in (answer, found))
        found = replace(answer, stop=found.stop) if own < other else found
    return replace(found, iterations=iterations)


def _worst(program: Program, answer: Answer) -> float:
    """Return the largest of an answer's gap and residuals."""
    return certify(PrimalDualPoint(program, answer.X, answer.u, answer.y, faces=program.faces)).worst


def _proving(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Return the answer of a program of the alternative."""
    if program.m > _ROWS_FOR_PATH:
        return _solve(program, settings, start, progress)
    return solve_on_path(program, PathSettings(tol=settings.tol), start, progress)


def _solve(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    return _Run(program, settings, progress).answer(start)


class _Certified(NamedTuple):
    """A point in the units of the program, and its certificate."""

    certificate: Certificate
    point: PrimalDualPoint

    def answer(self, stop: StopReason, iterations: int) -> Answer:
        """Return the answer with this point."""
        at = self.point
        return Answer(tuple(at.X), at.u, at.y, stop, iterations)


class _Run:
    """One run of the method.

    Parameters
    ----------
    program : Program
    settings : LagrangianSettings
    progress : Progress
    """

    def __init__(self, program: Program, settings: Any, progress: Progress) -> None:
        self._form, self._program, self._tol = StandardForm(program), program, settings.tol
        self._tuning: LagrangianTuning = settings.tuning
        self._most = settings.max_iter
        self._progress, self._monitor = progress, Monitor(program, settings, progress)
        self._steps = 0
        self._best: _Certified | None = None
        self._awaited = False
        cubes = sum(float(n) ** 3 for n in self._form.orders)
        path = _PATH_STEPS * (_PATH_STEP + newton_flops(program) / 3)
        self._work_of_path = path / (_DECOMPOSITION * cubes + _LEAST_DECOMPOSITION)
        self._errors: list[tuple[int, float]] = []

    def answer(self, start: Start | None) -> Answer:
        """Return the best point that was certified, or a Farkas vector."""
        form, program = self._form, self._program
        x, y = np.zeros(len(form.c)), np.zeros(program.m)
        if start is not None:
            x, y = form.point(start.X, start.u) if start.X else x, form.scaled(start.y)
        try:
            self._method = AlternatingDirections(form, x, y)
            stop = self._run()
        except CutShort as cut:
            stop = reason(cut)
        if stop is StopReason.INFEASIBLE:
            return Answer.without_point(program, self._monitor.farkas, stop, self._steps)
        if self._best is None:
            return Answer(*form.given(x, y), stop, self._steps)
        return self._best.answer(stop, self._steps)

    def _run(self) -> StopReason:
        """Alternate directions until a point meets the tolerance, or none makes progress."""
        waited, mark = 0, math.inf
        while waited < max(_PATIENCE, _PATIENCE_SHARE * self._steps):
            self._method.run(self._tuning.chunk)
            stop = self._judged()
            if stop is not None:
                return stop
            waited, mark = (0, self._error) if self._error < _PROGRESS * mark else (waited + 1, mark)
        return StopReason.STALLED

    @property
    def _error(self) -> float:
        """The gap or residual of the best point."""
        return math.inf if self._best is None else self._best.certificate.worst

    def _judged(self) -> StopReason | None:
        """Certify the last point and the repaired one, and keep the best; why to stop."""
        self._steps += 1
        at = self._method
        found = self._certified(at.x, at.multipliers)
        repaired = self._form.repaired(at.x)
        if repaired is not None:
            feasible = self._certified(repaired, at.multipliers, found.point)
            met = found.certificate.worst <= self._tol
            near = feasible.certificate.worst <= max(found.certificate.worst, self._tol)
            # A feasible point has a proof. It is awaited once, as it may never be as near.
            awaited, self._awaited = met and not self._awaited, met
            found = feasible if near or awaited else found
        if self._best is None or found.certificate.worst < self._best.certificate.worst:
            self._best = found
        self._errors.append((at.steps, self._error))
        stop = self._monitor.look(self._steps, found.certificate, found.point.y)
        unsettled = stop is StopReason.CONVERGED and not self._settles(found)
        if unsettled or stop is StopReason.STALLED:  # the method itself detects that it stalls
            stop = None
        if stop is None and self._falls_behind():
            stop = StopReason.STALLED
        if stop is None and self._steps >= (self._most or _DEFAULT_MAX_ITER):
            stop = StopReason.MAX_ITER if self._most else StopReason.STALLED
        return stop

    # Pays on: theta of 300 vertices and 1,400 edges.
    def _falls_behind(self) -> bool:
        """Whether the path had met the tolerance by now, and does so earlier at the rate of the last half."""
        work, error = self._errors[-1]
        if work < self._work_of_path or newton_flops(self._program) > _PATH_FLOPS:
            return False
        half, before = next(past for past in self._errors if past[0] >= work / 2)
        gained = math.log(before / max(error, TINY)) / max(work - half, 1.0)
        return math.log(max(error, TINY) / self._tol) > gained * self._work_of_path

    def _settles(self, found: _Certified) -> bool:
        """Whether a point meets the tolerance before the reductions, too."""
        answer = found.answer(StopReason.CONVERGED, self._steps)
        return self._progress.settles(lambda: answer, self._tol)

    def _certified(self, x: Array, multipliers: Array, other: PrimalDualPoint | None = None) -> _Certified:
        """Return the point, certified; another one with these multipliers has the same dual part."""
        program = self._program
        X, u, y = self._form.given(x, multipliers)
        known: Known = {}
        if other is not None:
            known = Known(slacks=other.slacks, smallest_eigenvalues=other.smallest_eigenvalues)
        point = PrimalDualPoint(program, X, u, y if pays(program) else 0 * y, faces=program.faces, **known)
        return _Certified(certify(point), point)
