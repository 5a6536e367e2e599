"""The answers to a stack of problems: recorded as they come in, and as the user reads them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bregopt.arrays import Array, Frame, IntArray
from bregopt.certify.accuracy import Accuracy
from bregopt.display import Axes
from bregopt.errors import DataWarning, require, warn_caller
from bregopt.io.matrices import labeled
from bregopt.program import StopReason
from bregopt.program.rows.base import LowRank
from bregopt.records import cached_property, dataclass
from bregopt.routes.solution import Solution, Status

if TYPE_CHECKING:
    from bregopt.problems.reports import PanelReport

ERROR = "error"  # the status of a problem whose data were refused
NUMBERS = ("value", "dual_value", "gap", "primal_residual", "dual_residual", "error", "accuracy", "seconds")


@dataclass(frozen=True, eq=False)
class Solutions:
    """The answers to many problems, each with its own certificate: the plural of :class:`Solution`.

    Each key gives a :class:`Solution`, and so does iteration in the order of the problems. Arrays have one
    element for each problem and are read-only.

    Attributes
    ----------
    keys : sequence
        The keys of the problems: ``0 .. B-1`` for an array of shape ``(B, n, n)``, the keys of a dict, the
        labels of the first level of a frame's index.
    X : array of shape (B, n, n), dict, or DataFrame
        The matrices, in the form in which the data were given. A problem without an answer has NaN, and None
        in a dict.
    status : array of str
        As for a :class:`Solution`, and "error" where the data of a problem were refused.
    value : array of float
        Objectives at the answers.
    dual_value, gap : array of float
        Proven bounds and certified relative gaps.
    primal_residual, dual_residual, error : array of float
        As for a :class:`Solution`.
    accuracy : array of float
        Certified bounds on the distance of the entries of each matrix from the optimum, where they are known;
        those of one answer have ``solutions[key].accuracy``.
    iterations : array of int
    errors : dict from key to Exception
        The reasons why data were refused.
    warnings : dict from key to list of str
        The warnings about each problem that has some.
    timings : dict from str to float
        Seconds: "total".
    seconds : array of float
        Those of each problem; problems that are solved together share theirs.
    """

    keys: Sequence[Hashable]
    X: Array | Any  # or a dict or a DataFrame, as the data
    status: NDArray[np.str_]
    value: Array
    dual_value: Array
    gap: Array
    primal_residual: Array
    dual_residual: Array
    error: Array
    accuracy: Array
    iterations: IntArray
    errors: dict[Hashable, Exception]
    warnings: dict[Hashable, list[str]]
    timings: dict[str, float]
    seconds: Array
    _problem: Any = field(repr=False)  # the StackedProblem
    _matrices: Sequence[Any] = field(repr=False)
    _duals: Sequence[Any] = field(repr=False)
    _single: dict[int, Solution] = field(repr=False)  # answers that one problem alone was solved for
    _stop: str = field(repr=False)  # the reason why problems without an answer have none
    _citation: str = field(repr=False)

    def __post_init__(self) -> None:
        for value in (self.X, *self._matrices, *vars(self).values()):
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Solution]:
        return map(self._solution, range(len(self)))

    def __getitem__(self, key: Hashable) -> Solution:
        count = len(self)
        if isinstance(self.keys, range):
            if isinstance(key, int | np.integer) and -count <= key < count:
                return self._solution(int(key) % count)
            raise IndexError(f"key is {key!r}; expected an integer from {-count} to {count - 1}")
        if key not in self._places:
            raise KeyError(f"{key!r} is none of the {count} keys")
        return self._solution(self._places[key])

    def __repr__(self) -> str:
        gaps, far = self.gap[np.isfinite(self.gap)], self.accuracy[np.isfinite(self.accuracy)]
        lines = [
            f"bregopt solutions: {len(self)}",
            f"  status     {self.statuses}",
            *([f"  gap        median {np.median(gaps):.1e}, largest {gaps.max():.1e}"] if len(gaps) else []),
            *(
                [f"  accuracy   X is within {far.max():.1g} of the optimum, entry by entry"]
                if len(far)
                else []
            ),
            *([f"  errors     {self._first_error}"] if self.errors else []),
            f"  effort     {self.timings['total']:.3g} s",
        ]
        return "\n".join(lines)

    @property
    def statuses(self) -> str:
        """How many problems have each status, the most frequent first."""
        counts = Counter(self.status.tolist())
        return ", ".join(f"{count} {status}" for status, count in counts.most_common())

    def to_frame(self) -> Frame:
        """Return one row for each problem, as a DataFrame with the keys as its index.

        Returns
        -------
        DataFrame
            Its columns: status; gap; accuracy, of the entries; distance, the Frobenius norm of the change of
            the given entries; smallest_eigenvalue, of the answer; seconds; iterations; reason, where there is
            no optimal answer; warnings.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        pandas = require("pandas", "pandas")
        distance, smallest = np.full(len(self), np.nan), np.full(len(self), np.nan)
        for k, X in enumerate(self._matrices):
            if X is not None:
                answer = np.asarray(X)
                change = answer - np.asarray(self._problem.matrices.one(k), dtype=np.float64)
                distance[k] = np.linalg.norm(np.nan_to_num(change))
                smallest[k] = np.linalg.eigvalsh(answer)[0]
        columns = {
            "status": self.status,
            "gap": self.gap,
            "accuracy": self.accuracy,
            "distance": distance,
            "smallest_eigenvalue": smallest,
            "seconds": self.seconds,
            "iterations": self.iterations,
            "reason": [
                self._reason(k) if status != Status.OPTIMAL else "" for k, status in enumerate(self.status)
            ],
            "warnings": ["; ".join(self.warnings.get(key, [])) for key in self.keys],
        }
        return pandas.DataFrame(columns, index=pandas.Index(self.keys))

    def report(self) -> PanelReport:
        """Return one report of all matrices: the dates that moved most, and the pairs that moved most often.

        Returns
        -------
        PanelReport
            It prints, and goes to pandas, Excel, CSV and HTML.
        """
        from bregopt.problems.reports import PanelReport  # only those who ask wait

        return PanelReport.of(self)

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write the matrices to a Parquet file as a panel, part by part.

        Keys and labels are in its index, labels in its columns: ``pandas.read_parquet`` reads it, and
        :func:`bregopt.nearest_correlation`. Without an answer there is NaN, of a dict no row.

        Raises
        ------
        ImportError
            If pandas or pyarrow is not installed.
        """
        from bregopt.io.panels import write_panel  # only those who ask wait

        require("pandas", "pandas")
        write_panel(path, self._problem.matrices.panels(self._matrices))

    def plot(self, ax: Sequence[Axes] | None = None) -> NDArray[np.object_]:
        """Draw the report, as :meth:`PanelReport.plot`."""
        return self.report().plot(ax)

    def _reason(self, k: int) -> str:
        """Return why a problem stopped."""
        if k in self._single:
            return self._single[k].stop_reason
        refused = self.errors.get(self.keys[k])
        return self._stop if refused is None else f"{type(refused).__name__}: {refused}"

    @property
    def _first_error(self) -> str:
        key, error = next(iter(self.errors.items()))
        return f"the first at {key!r}: {error}"

    @cached_property
    def _places(self) -> dict[Hashable, int]:
        return {key: k for k, key in enumerate(self.keys)}

    def _solution(self, k: int) -> Solution:
        """Return one answer."""
        if k in self._single:
            return self._single[k]
        status = str(self.status[k])
        reason = StopReason.CONVERGED.value if status == Status.OPTIMAL else self._reason(k)
        solution = Solution(
            status=status,
            stop_reason=reason,
            value=float(self.value[k]),
            X=self._matrices[k],
            u={},
            duals=self._duals[k],
            dual_value=float(self.dual_value[k]),
            gap=float(self.gap[k]),
            primal_residual=float(self.primal_residual[k]),
            dual_residual=float(self.dual_residual[k]),
            error=float(self.error[k]),
            iterations=int(self.iterations[k]),
            timings={"total": float(self.seconds[k])},
            solver="none" if self.keys[k] in self.errors else "bregman",
            history={},
            citation=self._citation,
        )
        return self._problem.finished(labeled(solution, self._problem.matrices.labels(k)), k)


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
