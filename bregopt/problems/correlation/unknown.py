"""Unknown entries of a matrix: NaN, read as unknown only if the user says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import IntArray, Mask, rectangular, symmetric_matrix
from bregopt.errors import did_you_mean, is_one_of
from bregopt.io.pandas_labels import is_pandas
from bregopt.program.lowrank import LowRank, Matrix

__all__ = ["Given", "check_missing", "given_matrix"]

_CHOICES = ("error", "unknown")


@dataclass(frozen=True, eq=False)
class Given:
    """A symmetric matrix and the mask of its unknown entries off the diagonal, None if all are known.

    Unknown entries are 0, and unknown diagonal entries 1. The first of those is at `no_variance`.
    """

    A: Matrix
    unknown: Mask | None
    no_variance: int | None = None

    def check_known(self, i: IntArray, j: IntArray, name: str) -> None:
        """Refuse an argument that keeps an unknown entry."""
        if self.unknown is not None and self.unknown[i, j].any():
            k = int(np.flatnonzero(self.unknown[i, j])[0])
            raise ValueError(
                f"{name} keeps entry {int(i[k]), int(j[k])}, which is NaN; expected a number there"
            )


def given_matrix(A: Any, missing: str, name: str = "A") -> Given:
    """Return the matrix of a user.

    Parameters
    ----------
    A : array_like or DataFrame of shape (n, n), or LowRank
    missing : {"error", "unknown"}
        What NaN means.
    name : str
        Its name in messages.

    Raises
    ------
    TypeError, ValueError
        As :func:`bregopt.arrays.symmetric_matrix`; also if one of a pair of entries is NaN alone, or
        `missing` is neither.
    """
    check_missing(missing)
    if isinstance(A, LowRank):
        return Given(A, None)
    nan = _nan(A, name) if missing == "unknown" else None
    if nan is None:
        try:
            return Given(symmetric_matrix(A, name), None)
        except ValueError as error:
            if _nan(A, name) is None:
                raise
            raise ValueError(f"{error}, or pass missing='unknown'") from None
    alone = np.argwhere(nan != nan.T)
    if len(alone):
        a, b = (int(k) for k in alone[0])
        raise ValueError(f"{name} is NaN at one of the entries {a, b} and {b, a} only; expected both or none")
    filled = np.where(
        nan, np.eye(len(nan)), np.where(nan, 0.0, np.asarray(rectangular(A, name), dtype=float))
    )
    if is_pandas(A, "DataFrame"):  # for the labels in messages
        filled = type(A)(filled, index=A.index, columns=A.columns)
    lost = np.flatnonzero(nan.diagonal())
    np.fill_diagonal(nan, False)
    no_variance = int(lost[0]) if len(lost) else None
    return Given(symmetric_matrix(filled, name), nan if nan.any() else None, no_variance)


def check_missing(missing: Any) -> None:
    """Refuse a meaning of NaN that is neither "error" nor "unknown"."""
    if not is_one_of(missing, _CHOICES):
        raise ValueError(f"missing is {missing!r}{did_you_mean(str(missing), _CHOICES)}")


def _nan(A: Any, name: str) -> Mask | None:
    """Return the mask of NaN of a square matrix, None where there is none."""
    raw = rectangular(A, name)
    if raw.dtype.kind != "f" or raw.ndim != 2 or raw.shape[0] != raw.shape[1]:
        return None
    nan: Mask = np.isnan(raw)
    return nan if nan.any() else None
