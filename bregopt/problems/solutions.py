"""The answers to a stack of problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bregopt.arrays import Array, Frame, IntArray
from bregopt.cache import cached_property
from bregopt.errors import require
from bregopt.io.pandas_labels import labeled
from bregopt.program import StopReason
from bregopt.records import dataclass
from bregopt.routes.solution import Solution, Status

__all__ = ["ERROR", "Solutions"]

ERROR = "error"  # the status of a problem whose data were refused


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
