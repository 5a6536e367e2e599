"""Effect of each numerical constant of the methods: time, steps and statuses with it smaller and larger.

    python benchmarks/tuning.py [--only path] [--constant first_tol] [--rounds 5]

One constant at a time is halved and doubled. A fraction above one half has its distance to one doubled and
halved; a tuple has all its numbers changed. The problems are those of tuning_problems.py. In each round the
three values take turns problem by problem, so that a slower machine slows all. A time is CPU seconds with one
BLAS thread. The ratio of a round is the geometric mean over the problems, that of the table the median over
the rounds. A time counts as changed if three quarters of the rounds change by more than 5 %. The table of a
full run goes to benchmarks/results/tuning.md.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import compare
from threadpoolctl import threadpool_limits
from tuning_problems import Case, suites

import bregopt as bo
from bregopt.certify import eigenvalue_bound

ROUNDS = 5
LIMIT = 30.0  # seconds for an answer: the default takes 0.3, and a busy machine should not change a status
SIDES = ("smaller", "larger")
HEAD = (
    "| constant | default | time, smaller | larger | steps, smaller | larger | statuses changed | |\n"
    "|---|--:|--:|--:|--:|--:|--:|---|\n"
)


# -------------------------------------------------------------------------------------------------- constants


def constants(tuning: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each constant."""
    for field in fields(tuning):
        yield field.name, getattr(tuning, field.name)


def changed(tuning: Any, name: str, value: Any) -> Any:
    """Return the tuning with another value of a constant, None if its class refuses it."""
    try:
        return replace(tuning, **{name: value})
    except (TypeError, ValueError):
        return None


def scaled(value: Any, factor: float) -> Any:
    """Return a constant times a factor; the distance to one of a fraction above 0.5 is divided by it.

    An integer is rounded and at least 1.
    """
    if isinstance(value, tuple):
        return tuple(scaled(own, factor) for own in value)
    if isinstance(value, int):
        return max(1, round(value * factor))
    if 0.5 < value < 1:
        return 1 - (1 - value) / factor
    return value * factor


def variants(tuning: Any, name: str, value: Any) -> dict[str, Any]:
    """Return the tunings with a smaller and with a larger value of a constant, as far as there are any."""
    found = {}
    for side, factor in zip(SIDES, (0.5, 2.0), strict=True):
        other = scaled(value, factor)
        tuned = None if other == value else changed(tuning, name, other)
        if tuned is not None:
            found[side] = tuned
    return found


# ------------------------------------------------------------------------------------------------ measurement


@dataclass(frozen=True)
class Run:
    """An answer: its CPU seconds, status, number of steps and value."""

    seconds: float
    status: str
    steps: int
    value: float

    def same(self, other: Run) -> bool:
        """Whether the other run has the same steps, status and value to the last digit."""
        value = self.value == other.value or (math.isnan(self.value) and math.isnan(other.value))
        return value and (self.status, self.steps) == (other.status, other.steps)


def solved(problem: bo.Problem, route: str, case: Case, tuning: Any) -> Run:
    """Solve a problem; an error is a status."""
    # Without the cache of bounds, which would serve one tuning with the bounds of another.
    with patch.object(eigenvalue_bound, "_cached_bounds", ()):
        begin = time.process_time()
        try:
            sol = problem.solve(route, tuning=tuning, time_limit=LIMIT, **case.options)
        except Exception as error:
            return Run(time.process_time() - begin, type(error).__name__, 0, math.nan)
        return Run(time.process_time() - begin, sol.status, sol.iterations, sol.value)


def in_turns(
    route: str, cases: list[tuple[Case, bo.Problem]], tunings: dict[str, Any], rounds: int
) -> list[list[dict[str, Run]]]:
    """Return for each round and problem the run of each tuning."""
    found, names = [], list(tunings)
    for k in range(rounds):
        found.append([])
        for shift, (case, problem) in enumerate(cases):
            turn = (k + shift) % len(names)
            order = names[turn:] + names[:turn]
            found[-1].append({name: solved(problem, route, case, tunings[name]) for name in order})
    return found


@dataclass(frozen=True)
class Effect:
    """The effect of one change of a constant, relative to its default.

    Parameters
    ----------
    time, steps : float
        Ratios, geometric means over the problems.
    mark : str
        "slower" or "faster" if three quarters of the rounds are.
    statuses : dict of str to str
        For each problem with another status: the status by default and this one.
    same : bool
        Whether all answers have the same steps, status and value.
    """

    time: float
    steps: float
    mark: str
    statuses: dict[str, tuple[str, str]]
    same: bool

    @property
    def size(self) -> float:
        """The larger of the changes of time and steps, as a logarithm."""
        return max(abs(math.log(self.time)), abs(math.log(self.steps)))


def effect(cases: list[tuple[Case, bo.Problem]], rounds: list[list[dict[str, Run]]], side: str) -> Effect:
    """Return the effect of a change from its runs and those by default."""
    ratios = [
        statistics.geometric_mean([run[side].seconds / run["default"].seconds for run in runs])
        for runs in rounds
    ]
    pairs = [(case.name, run["default"], run[side]) for (case, _), run in zip(cases, rounds[0], strict=True)]
    steps = statistics.geometric_mean([max(b.steps, 1) / max(a.steps, 1) for _, a, b in pairs])
    statuses = {name: (a.status, b.status) for name, a, b in pairs if a.status != b.status}
    mark = compare.mark(*compare.quartiles(ratios))
    return Effect(statistics.median(ratios), steps, mark, statuses, all(a.same(b) for _, a, b in pairs))


# ------------------------------------------------------------------------------------------------------ table


@dataclass(frozen=True)
class Line:
    """A constant of a route, and the effects of its changes: a smaller value, a larger one, or both."""

    name: str
    value: Any
    effects: dict[str, Effect]

    @property
    def changes_time(self) -> bool:
        """Whether a change makes the method slower or faster."""
        return any(own.mark for own in self.effects.values())

    @property
    def statuses(self) -> int:
        """The number of answers with another status."""
        return sum(len(own.statuses) for own in self.effects.values())

    @property
    def without_effect(self) -> bool:
        """Whether time, steps, statuses and values are the same."""
        return not self.changes_time and all(own.same for own in self.effects.values())

    @property
    def size(self) -> tuple[int, float]:
        """The key of the order by effect."""
        return self.statuses, max((own.size for own in self.effects.values()), default=0.0)

    def __str__(self) -> str:
        effects = [self.effects.get(side) for side in SIDES]
        times = ["" if own is None else f"{own.time:.2f}" for own in effects]
        steps = ["" if own is None else f"{own.steps:.2f}" for own in effects]
        marks = [f"{side}: {own.mark}" for side, own in self.effects.items() if own.mark]
        cells = [
            f"`{self.name}`",
            shown(self.value),
            *times,
            *steps,
            str(self.statuses or ""),
            ", ".join(marks),
        ]
        return f"| {' | '.join(cells)} |"


def shown(value: Any) -> str:
    """Return a constant as text."""
    return ", ".join(map(shown, value)) if isinstance(value, tuple) else f"{value:g}"


def measured(route: str, words: str, rounds: int) -> list[Line]:
    """Return the lines of a route, the largest effect first."""
    default = bo.tuning(route)
    cases = [(case, case.make()) for case in suites()[route]]
    for case, problem in cases:  # the first solve of a problem compiles and caches
        solved(problem, route, case, default)
    lines = []
    for name, value in constants(default):
        if words not in name:
            continue
        tunings = {"default": default, **variants(default, name, value)}
        runs = in_turns(route, cases, tunings, rounds)
        lines.append(
            Line(name, value, {side: effect(cases, runs, side) for side in tunings if side in SIDES})
        )
        print(f"{route}: {lines[-1]}", file=sys.stderr, flush=True)
    return sorted(lines, key=lambda line: line.size, reverse=True)


def table(route: str, lines: list[Line]) -> str:
    """Return the section of a route: its table, the answers with another status, constants without effect."""
    names = "; ".join(case.name for case in suites()[route])
    text = f"\n## {route}\n\nProblems: {names}.\n\n{HEAD}"
    text += "".join(f"{line}\n" for line in lines if not line.without_effect)
    changes = [
        f"- `{line.name}` {side}, {problem}: {now} instead of {before}\n"
        for line in lines
        for side, own in line.effects.items()
        for problem, (before, now) in own.statuses.items()
    ]
    text += "\n" + "".join(changes) if changes else ""
    rest = ", ".join(f"`{line.name}`" for line in lines if line.without_effect)
    return text + (f"\nWithout effect on time, steps and answers: {rest}.\n" if rest else "")


def summary(found: dict[str, list[Line]]) -> str:
    """Return the sentence that counts constants and effects."""
    lines = [(line, len(suites()[route])) for route, own in found.items() for line in own]
    changes, none = sum(line.changes_time for line, _ in lines), sum(line.without_effect for line, _ in lines)
    statuses = sum(line.statuses for line, _ in lines)
    answers = sum(len(line.effects) * problems for line, problems in lines)
    return (
        f"Of {len(lines)} constants, halved and doubled one at a time, {changes} change the time by more "
        f"than {compare.CHANGE:.0%}, and {none} have no effect on these problems; {statuses} of {answers:,} "
        "answers have another status."
    )


def main() -> None:
    """Measure, print the tables and save those of a full run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=tuple(suites()), help="one route")
    parser.add_argument("--constant", default="", metavar="NAME", help="constants whose name contains this")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1, user_api="blas"):
        routes = [options.only] if options.only else list(suites())
        found = {route: measured(route, options.constant, options.rounds) for route in routes}
    text = f"{summary(found)}\nTimes and steps are relative to the default, "
    text += f"times in CPU seconds with one BLAS thread, medians of {options.rounds} rounds.\n"
    text += "".join(table(route, lines) for route, lines in found.items())
    print(text)
    if not options.only and not options.constant:
        (Path(__file__).parent / "results" / "tuning.md").write_text(text)


if __name__ == "__main__":
    main()
