"""A linear program in HiGHS that grows between its runs: directions of a master, violated rows of cuts."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.clock import checkpoint, remaining
from bregopt.errors import SolverError

# Growth factor of the runs of HiGHS, so that one is eventually long enough for a simplex step.
_SECONDS_GROWTH = 1.1


class LinearProgram:
    """A linear program in HiGHS, to which rows and columns are added between its runs.

    Parameters
    ----------
    **options
        Of HiGHS.
    """

    def __init__(self, **options: Any) -> None:
        # highspy.Highs starts the callbacks, and HiGHS then prints its banner whatever the options say. Its
        # base class has all that is called here.
        (plain,) = highspy.Highs.__bases__
        self._model: Any = plain()
        for name, value in {"output_flag": False, "threads": 1, "solver": "simplex", **options}.items():
            self.set(name, value)

    @property
    def columns(self) -> int:
        """The number of columns."""
        return self._model.getNumCol()

    def set(self, option: str, value: Any) -> None:
        """Set an option of HiGHS."""
        self._check(self._model.setOptionValue(option, value), option)

    def add_columns(self, cost: Array, lower: Array, upper: Array, entries: Any) -> None:
        """Add columns, in the rows of a CSR matrix."""
        if len(cost):
            status = self._model.addCols(len(cost), cost, lower, upper, entries.nnz, *_lists(entries))
            self._check(status, "addCols")

    def add_rows(self, R: Any, lower: Array, upper: Array) -> None:
        """Add the rows of a CSR matrix."""
        if len(lower):
            status = self._model.addRows(len(lower), lower, upper, R.nnz, *_lists(R))
            self._check(status, "addRows")

    def drop_rows(self, rows: IntArray) -> None:
        """Delete rows."""
        if len(rows):
            self._check(self._model.deleteRows(len(rows), rows.astype(np.int32)), "deleteRows")

    def run(self, seconds: float) -> Any:
        """Return HiGHS's status after runs from the last basis, as Ctrl-C does not reach HiGHS.

        The first takes so many seconds, and each takes a little longer than the one before.
        """
        while True:
            checkpoint()
            self.set("time_limit", self._model.getRunTime() + min(seconds, remaining()))
            if self._model.run() == highspy.HighsStatus.kError:
                # HiGHS refuses one thread once another caller in this process has started its threads.
                self.set("threads", 0)
                self._model.run()
            if self._model.getModelStatus() != highspy.HighsModelStatus.kTimeLimit:
                return self._model.getModelStatus()
            seconds *= _SECONDS_GROWTH

    def solution(self) -> tuple[Array, Array]:
        """Return the columns, and the multipliers of the rows, positive at lower bounds."""
        found = self._model.getSolution()
        return np.array(found.col_value), np.array(found.row_dual)

    def ray(self, call: str) -> Array | None:
        """Return the ray of columns, ``getPrimalRay``, or of rows, ``getDualRay``; None without one."""
        status, exists, ray = getattr(self._model, call)()
        self._check(status, call)
        return np.array(ray) if exists else None

    @staticmethod
    def _check(status: Any, call: str) -> None:
        if status == highspy.HighsStatus.kError:
            raise SolverError(f"HiGHS refused {call}")


def _lists(A: Any) -> tuple[IntArray, IntArray, Array]:
    """Return the starts, indices and values of the rows of a CSR matrix, as HiGHS takes them."""
    return A.indptr[:-1].astype(np.int32), A.indices.astype(np.int32), A.data
