"""Problems with generated rows, solved in rounds (Kelley 1960, The cutting-plane method, J. SIAM 8).

Each round solves the problem with the rows so far. Its bound is one of the whole problem, as more rows only
shrink the feasible set; for the same reason its proof that no point is feasible is one for the whole problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array, Mask
from bregopt.certify import Certificate, Known, PrimalDualPoint, row_residuals
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.compilation.parametric_program import Compiled
from bregopt.modeling.constraints import Constraint, CutRows, some_rows
from bregopt.presolve import presolve
from bregopt.program import ENDED, LIMITS, Program, StopReason
from bregopt.program.scale import scale_of
from bregopt.records import dataclass, replace
from bregopt.routes.base import Settings
from bregopt.routes.progress import Step
from bregopt.routes.registry import check_options
from bregopt.routes.solution import Solution, Status

_COARSE = 0.1  # tolerance of the first rounds
_SHARPER = 0.3  # of the following ones, relative to those before
_IDLE = 1e-3  # multiplier of a row that is dropped, as a fraction of its slack
_UNMET = "The answer violates generated rows, by {:.1e}; its bound is one of the whole problem. {}"
_UNKNOWN = "The rounds ended before the last answer was separated; its bound is one of the whole problem. {}"
_UNBOUNDED = (
    "without generated rows the problem is unbounded, so it has no point for {}; add a constraint that "
    "bounds it, such as bo.trace(X) <= t"
)


@dataclass(frozen=True)
class _Found:
    """The rows that an answer violates, for each generator, and the largest violation."""

    rows: list[list[Constraint]]
    residual: float


class Rounds:
    """The rounds of one solve.

    Parameters
    ----------
    problem : Problem
    solver : str or solver class
    options : dict
        Of each round; `time_limit` is that of all rounds, and `tol` that of the last ones.

    Attributes
    ----------
    current : Problem
        The problem with the rows of the last round.
    sharpest : pair of Compiled and Solution, or None
        The round whose multipliers prove the best bound, in the terms of its program.
    """

    def __init__(self, problem: Any, solver: Any, options: Mapping[str, Any]) -> None:
        check_options(solver, options)
        self._problem, self._solver, self._options = problem, solver, options
        self._generators = [c for c in problem.constraints if isinstance(c, CutRows)]
        self._tol = float(options.get("tol", Settings.tol))
        self.current = problem
        self.sharpest: tuple[Compiled, Solution] | None = None
        self._bounds: list[float] = []  # proven ones, as lower bounds of a minimization
        self._asked_to_end = False
        self._timings: Counter[str] = Counter()
        self._iterations = 0

    def solve(self, start: Solution | None) -> Solution:
        """Return the answer to the problem, in its own terms.

        Parameters
        ----------
        start : Solution, optional
            In the terms of the program with the rows that the generators have.
        """
        asked = max(self._tol, _COARSE) if start is None else self._tol
        if start is None:  # a warm start has the rows of the last solve
            for generator in self._generators:
                generator.constraints = ()
        self.current = self._problem._with_rows(_rows(self._generators))
        while True:
            answer = self._round(start, asked)
            start = self.current._raw
            if answer.X is None:
                return answer
            if start._stop in ENDED:
                return self._finished(answer, np.inf)
            found = self._violated(answer)
            if answer.status != Status.OPTIMAL or (asked <= self._tol and not any(found.rows)):
                return self._finished(answer, found.residual)
            if self._asked_to_end:  # when the round met its own tolerance
                return self._finished(answer, found.residual, StopReason.CALLBACK)
            if any(found.rows):
                start = self._extended(found)
                asked = max(self._tol, min(asked, _SHARPER * found.residual))
            else:
                asked = max(self._tol, _SHARPER * asked)

    def _round(self, start: Solution | None, asked: float) -> Solution:
        """Return the answer with the rows so far, from a start or, where that leads astray, without."""
        answer = self._once(start, asked)
        if start is None or answer.X is None or answer.status == Status.OPTIMAL:
            return answer
        limited = self._asked_to_end or self.current._raw._stop in LIMITS
        return answer if limited else self._once(None, asked)

    def _once(self, start: Solution | None, asked: float) -> Solution:
        options = {**self._options, "tol": asked}
        if options.get("callback") is not None:
            options["callback"] = self._watched
        answer: Solution = self.current._solve(self._solver, start, False, options)
        if answer.status == Status.UNBOUNDED:
            raise UnsupportedProblemError(_UNBOUNDED.format(self._generators[0].title))
        if answer.dual_residual <= self._tol:
            bound = self._problem.objective.sign * answer.dual_value
            if bound > max(self._bounds, default=-np.inf):
                self.sharpest = self.current._compiled, self.current._raw
            self._bounds.append(bound)
        self._timings.update(answer.timings)
        self._iterations += answer.iterations
        return replace(answer, timings=dict(self._timings), iterations=self._iterations)

    def _watched(self, step: Step) -> bool:
        """Call the user's callback; a request to end also ends the rounds."""
        self._asked_to_end = bool(self._options["callback"](step))
        return self._asked_to_end

    def _violated(self, answer: Solution) -> _Found:
        """Return the rows that an answer violates by more than those it knows."""
        least = max(self._tol, answer.primal_residual)
        yielded = [self._own(generator, generator.violated(answer.X)) for generator in self._generators]
        candidates = list(dict.fromkeys(c for rows in yielded for c in rows))
        if not candidates:
            return _Found([[] for _ in yielded], 0.0)
        whole = self._problem._with_rows(candidates)
        program, raw = whole.program(), self.current._raw
        point = PrimalDualPoint(program, raw.X, raw.u, np.zeros(program.m))
        known = Known(activity=point.activity, magnitudes=point.magnitudes)
        residuals = row_residuals(PrimalDualPoint(_dense(program), raw.X, raw.u, point.y, **known))
        missed = {c: residuals[place] for c, place in whole._compiled.constraint_slices}
        rows = [
            [some_rows(c, missed[c] > least) for c in own if (missed[c] > least).any()] for own in yielded
        ]
        return _Found(rows, max(float(missed[c].max(initial=0.0)) for c in candidates))

    def _own(self, generator: CutRows, found: Sequence[Constraint]) -> Sequence[Constraint]:
        """Return the constraints, after a check that they have no other variables than the problem."""
        known = {*self._problem._compiled.matrices, *self._problem._compiled.variables}
        for c in found:
            for operand in (*c.body.operands("psd"), *c.body.operands("variables")):
                if operand not in known:
                    raise ValueError(
                        f"{generator.title} yields {c.title} with the variable {operand.name}; expected "
                        "variables of the problem"
                    )
        return found

    def _extended(self, found: _Found) -> Solution:
        """Add rows, drop those that do not matter, and return the last answer as a start.

        Rows are dropped only if the bound has risen, so that no cycle is possible.
        """
        raw, before = self.current._raw, self.current
        *earlier, last = (-np.inf, *self._bounds)
        rising = last > max(earlier, default=-np.inf) + self._tol * abs(last)
        idle = _idle(raw, before._compiled) if rising else {}
        places = dict(before._compiled.constraint_slices)
        multipliers: dict[Constraint, Array] = {}
        for generator, new in zip(self._generators, found.rows, strict=True):
            kept = []
            for c in generator.constraints:
                stays = ~idle[c] if rising else np.ones(c.size, dtype=bool)
                if stays.any():
                    kept.append(some_rows(c, stays))
                    multipliers[kept[-1]] = raw.duals[places[c]][stays]
            generator.constraints = (*kept, *new)
        self.current = self._problem._with_rows(_rows(self._generators))
        duals = _carried(raw.duals, before, self.current, multipliers)
        return replace(raw, duals=duals, _inner=None, _y_on_faces=None)  # of other rows

    def _finished(self, answer: Solution, residual: float, stop: StopReason | None = None) -> Solution:
        """Return the answer with the best bound, and the violation of generated rows in its residual.

        A reason to `stop` replaces that of the last round, which may have met a tolerance of its own.
        """
        sign = self._problem.objective.sign
        answer = replace(answer, dual_value=sign * max((sign * answer.dual_value, *self._bounds)))
        met = residual <= max(self._tol, answer.primal_residual)
        if met and stop is None:
            return answer
        why = answer.stop_reason if stop is None else stop.value
        if not met:
            known = np.isfinite(residual)
            why = _UNMET.format(residual, why) if known else _UNKNOWN.format(why)
        certificate = Certificate(
            *(answer.value, answer.dual_value, answer.gap),
            *(max(residual, answer.primal_residual), answer.dual_residual, answer.error),
        )
        return replace(
            answer,
            status=certificate.status(self._tol, stop or self.current._raw._stop).value,
            stop_reason=why,
            primal_residual=certificate.primal_residual,
        )


def _rows(generators: Sequence[CutRows]) -> list[Constraint]:
    return list(dict.fromkeys(c for generator in generators for c in generator.constraints))


def _dense(program: Program) -> Program:
    """Return the program on the range spaces of low-rank blocks, where its scales are defined."""
    return presolve(program, ("range space",), Settings()).program


def _idle(raw: Solution, compiled: Compiled) -> dict[Constraint, Mask]:
    """Return the masks of rows with far more slack than multiplier, both relative to their scales."""
    program = raw._program
    assert program is not None
    scale, norms = scale_of(_dense(program)), np.maximum(_dense(program).row_units, TINY)
    X, u, _ = raw._point
    activity = program.activity(X, u)
    slack = np.minimum(activity - program.bounds.lo, program.bounds.hi - activity)
    prices = np.abs(raw.duals) * norms / max(scale.dual, scale.objective / max(scale.primal, TINY), TINY)
    idle = _IDLE * slack > prices * norms * scale.primal
    return {c: idle[place] for c, place in compiled.constraint_slices}


def _carried(y: Array, before: Any, after: Any, multipliers: dict[Constraint, Array]) -> Array:
    """Return multipliers of one problem as those of another: by constraint, zero for new rows.

    Rows that other constraints need (epigraphs, cones) are new objects in each problem, in the same order.
    """
    places = before._compiled.constraint_slices
    known = {c: y[place] for c, place in places if c in before.constraints} | multipliers
    others = iter([y[place] for c, place in places if c not in before.constraints])
    parts = [np.zeros(0)]
    for c, _ in after._compiled.constraint_slices:
        declared = c in after.constraints
        parts.append(known.get(c, np.zeros(c.size)) if declared else next(others))
    return np.concatenate(parts)
