"""Labels of pandas objects, kept in answers; users of plain arrays never import pandas."""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

import numpy as np

from bregopt.arrays import IntArray
from bregopt.records import replace
from bregopt.routes.solution import Solution

__all__ = [
    "Answered",
    "Labels",
    "aligned",
    "framed",
    "is_pandas",
    "labeled",
    "labels_of",
    "pair_labels",
    "pandas_module",
]

Answered = TypeVar("Answered", bound=Solution)
_PLAIN = (np.ndarray, list, float, int, str, type(None))
Labels = Any  # the pandas.Index of a square DataFrame, None for plain arrays


def labels_of(value: Any, name: str, of_data: str = "") -> Labels:
    """Return the labels of a Series, or of the rows and columns of a square DataFrame; None for others.

    Parameters
    ----------
    value : object
    name : str
        Its name in messages.
    of_data : str
        The matrix to pass instead, if the frame holds data: one row a sample.

    Raises
    ------
    ValueError
        If the index and the columns differ, or a label occurs twice.
    """
    if not is_pandas(value, "DataFrame", "Series"):
        return None
    if is_pandas(value, "DataFrame") and not value.index.equals(value.columns):
        hint = f". If it holds data, pass {of_data}" if of_data and _is_data(value) else ""
        raise ValueError(
            f"{name} is a DataFrame whose index and columns differ; expected the same labels{hint}"
        )
    if not value.index.is_unique:
        repeated = value.index[value.index.duplicated()][0]
        raise ValueError(
            f"{name} is a {type(value).__name__} with the label {repeated!r} twice; expected distinct labels"
        )
    return value.index


def _is_data(frame: Any) -> bool:
    """Whether a frame holds numbers and is not square."""
    rows, columns = frame.shape
    return rows != columns and all(dtype.kind in "biuf" for dtype in frame.dtypes)


def aligned(value: Any, labels: Labels, name: str) -> Any:
    """Return a second argument without its labels, after comparing them with those of the first.

    Raises
    ------
    ValueError
        If it is a DataFrame or Series with other labels, or with labels in another order.
    """
    own = None if value is None else labels_of(value, name)
    if own is None:
        return value
    if labels is not None and not own.equals(labels):
        raise ValueError(
            f"{name} is a {type(value).__name__} with other labels; "
            "expected those of the matrix, in its order"
        )
    return value


def labeled(solution: Answered, labels: Labels) -> Answered:
    """Return the solution with its matrix as a DataFrame with these labels; unchanged without labels."""
    if labels is None or solution.X is None:
        return solution
    pandas = pandas_module()
    return replace(solution, X=pandas.DataFrame(np.array(solution.X), index=labels, columns=labels))


def framed(values: Any, index: Labels, columns: Labels = None) -> Any:
    """Return an array as a Series or DataFrame with labels; unchanged if `index` is None."""
    if index is None:
        return values
    pandas = pandas_module()
    return pandas.Series(values, index) if values.ndim == 1 else pandas.DataFrame(values, index, columns)


def pair_labels(labels: Labels, i: IntArray, j: IntArray) -> Labels:
    """Return the labels of pairs of rows, a ``pandas.MultiIndex``."""
    pandas = pandas_module()
    return pandas.MultiIndex.from_arrays([labels[i], labels[j]])


def is_pandas(value: Any, *names: str) -> bool:
    """Whether `value` is an instance of one of these pandas classes, found without importing pandas."""
    classes = type(value).__mro__
    if classes[0] in _PLAIN:
        return False
    return any(cls.__module__.split(".")[0] == "pandas" and cls.__name__ in names for cls in classes)


def pandas_module() -> Any:
    """Return pandas, which users of its objects have imported."""
    return importlib.import_module("pandas")
