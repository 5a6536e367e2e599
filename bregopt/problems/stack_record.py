"""The answers to a stack of problems as they come in, and the warnings about them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.certify.accuracy import Accuracy
from bregopt.errors import DataWarning, warn_caller
from bregopt.program.lowrank import LowRank
from bregopt.records import dataclass
from bregopt.routes.solution import Solution

__all__ = ["NUMBERS", "Record", "Warnings"]

NUMBERS = ("value", "dual_value", "gap", "primal_residual", "dual_residual", "error", "accuracy", "seconds")


@dataclass(frozen=True, eq=False)
class Record:
    """The answers so far, an element for each problem; its status is None before.

    Parameters
    ----------
    status : object array of shape (B,)
    numbers : dict from str to array of shape (B,)
    iterations : int array of shape (B,)
    X, duals : list
    single : dict from int to Solution
        Answers that one problem alone was solved for, by position.
    errors : dict from int to Exception
        The reasons why data were refused, by position.
    """

    status: Any
    numbers: dict[str, Array]
    iterations: IntArray
    X: list[Any]
    duals: list[Any]
    single: dict[int, Solution]
    errors: dict[int, Exception]

    @classmethod
    def empty(cls, count: int) -> Record:
        """Return a record without answers."""
        numbers = {name: np.full(count, np.nan) for name in NUMBERS}
        status = np.full(count, None, dtype=object)
        none: list[Any] = [None] * count
        return cls(status, numbers, np.zeros(count, dtype=np.intp), none, none.copy(), {}, {})

    @property
    def open(self) -> list[int]:
        """The positions of the problems without an answer."""
        return np.flatnonzero([status is None for status in self.status]).tolist()

    def put(self, k: int, solution: Solution) -> None:
        """Record the answer of a single solve."""
        self.single[k], self.status[k], self.iterations[k] = solution, solution.status, solution.iterations
        for name, values in self.numbers.items():
            values[k] = _number(solution, name)
        X = solution.X
        self.X[k] = X if X is None or isinstance(X, LowRank) else np.asarray(X)

    def store(
        self, at: IntArray, answer: Any, X: Array, duals: Sequence[Any], seconds: float, tol: float
    ) -> None:
        """Record the answers of the stacked method in some positions; `seconds` are those of each."""
        certificate = answer.certificate
        found = {
            "value": certificate.primal,
            "dual_value": certificate.dual,
            "gap": certificate.gap,
            "primal_residual": certificate.primal_residual,
            "dual_residual": 0.0,
            "error": certificate.error,
            "accuracy": answer.accuracy,
            "seconds": seconds,
        }
        for name, values in found.items():
            self.numbers[name][at] = values
        self.status[at], self.iterations[at] = certificate.statuses(tol), answer.iterations
        for k, own, dual in zip(at.tolist(), X, duals, strict=True):
            self.X[k], self.duals[k] = own, dual

    def place(self, part: Record, a: int) -> None:
        """Record the answers of the problems from position `a` on."""
        b = a + len(part.X)
        self.status[a:b], self.iterations[a:b] = part.status, part.iterations
        self.X[a:b], self.duals[a:b] = part.X, part.duals
        for name, values in self.numbers.items():
            values[a:b] = part.numbers[name]
        self.single.update({a + k: solution for k, solution in part.single.items()})
        self.errors.update({a + k: error for k, error in part.errors.items()})


def _number(solution: Solution, name: str) -> float:
    if name == "seconds":
        return solution.timings["total"]
    if name == "accuracy":
        return solution.accuracy.largest if isinstance(solution.accuracy, Accuracy) else math.nan
    return float(getattr(solution, name))


class Warnings:
    """Warnings about single problems by position, given once for each category."""

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[type[Warning], str]]] = {}

    def add(self, k: int, message: str, category: type[Warning]) -> None:
        """Add a warning about the problem in position `k`, unless it has it."""
        own = self._of.setdefault(k, [])
        if (category, message) not in own:
            own.append((category, message))

    def include(self, part: Warnings, a: int) -> None:
        """Add the warnings about the problems from position `a` on."""
        for k, own in part._of.items():
            self._of[a + k] = own

    def messages(self, keys: Sequence[Hashable]) -> dict[Hashable, list[str]]:
        """Return the messages about each problem that has some, by its key."""
        return {keys[k]: [message for _, message in own] for k, own in sorted(self._of.items())}

    def give(self, keys: Sequence[Hashable], errors: Mapping[Hashable, Exception]) -> None:
        """Warn at the user's line, of the problems with an error and for each category."""
        if errors:
            key, error = next(iter(errors.items()))
            message = f"{type(error).__name__}: {error}"
            warn_caller(_counted("an error", len(errors), len(keys), key, message), DataWarning)
        by_category: dict[type[Warning], dict[int, str]] = {}
        for k, own in sorted(self._of.items()):
            for category, message in own:
                by_category.setdefault(category, {}).setdefault(k, message)
        for category, messages in by_category.items():
            k, message = next(iter(messages.items()))
            warn_caller(_counted("a warning", len(messages), len(keys), keys[k], message), category)


def _counted(what: str, count: int, total: int, key: Hashable, message: str) -> str:
    """Return how many matrices have something, and the message about the first one."""
    verb, first = ("has", "") if count == 1 else ("have", "the first is ")
    return f"{count} of {total} matrices {verb} {what}, {first}matrix {key!r}: {message}"
