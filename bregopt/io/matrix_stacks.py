"""Stacks of matrices from users: arrays, dicts, and pandas frames with an index of two levels."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, rectangular
from bregopt.io.pandas_labels import Labels, is_pandas
from bregopt.program.lowrank import LowRank

__all__ = ["ArrayStack", "DictStack", "FrameStack", "MatrixStack", "is_stack", "read_stack"]


def is_stack(value: Any) -> bool:
    """Whether a value holds several matrices rather than one."""
    if isinstance(value, Mapping):
        return True
    if is_pandas(value, "DataFrame"):
        return bool(value.index.nlevels == 2 and value.columns.nlevels == 1)
    if isinstance(value, list | tuple):
        return len(value) > 0 and getattr(value[0], "ndim", _depth(value[0])) == 2
    return isinstance(value, np.ndarray) and value.ndim == 3


def _depth(value: Any) -> int:
    """Return the number of nested sequences."""
    depth = 0
    while isinstance(value, list | tuple) and len(value):
        depth, value = depth + 1, value[0]
    return depth


@dataclass(frozen=True, eq=False)
class ArrayStack:
    """Matrices in an array of shape ``(B, n, n)``."""

    values: Array

    @property
    def keys(self) -> Sequence[Hashable]:
        """The keys of the matrices."""
        return range(len(self.values))

    @property
    def groups(self) -> Iterable[tuple[IntArray, Array]]:
        """Positions of matrices of equal order, with these as an array of shape ``(b, n, n)``."""
        return [(np.arange(len(self.values)), self.values)]

    def one(self, k: int) -> Any:
        """Return one matrix as it was given."""
        return self.values[k]

    def labels(self, k: int) -> Labels:
        """Return the labels of one matrix, None if it has none."""
        return None

    def collected(self, matrices: Sequence[Any]) -> Any:
        """Return answers, None where there is none, in the form of the data."""
        X = np.full(self.values.shape, np.nan)
        for k, matrix in enumerate(matrices):
            if matrix is not None:
                X[k] = matrix
        return X


@dataclass(frozen=True, eq=False)
class DictStack:
    """Matrices of any orders in a dict; each may be a frame with labels."""

    given: Mapping[Hashable, Any]

    @cached_property
    def keys(self) -> Sequence[Hashable]:
        """The keys of the matrices."""
        return tuple(self.given)

    @property
    def groups(self) -> Iterable[tuple[IntArray, Array]]:
        """Positions of matrices of equal order, with these as an array of shape ``(b, n, n)``."""
        places: dict[int, list[int]] = {}
        values: dict[int, list[Array]] = {}
        for k, matrix in enumerate(self.given.values()):
            array = _square(matrix)
            if array is not None:
                places.setdefault(len(array), []).append(k)
                values.setdefault(len(array), []).append(array)
        return [(np.array(places[n]), np.stack(values[n])) for n in places]

    def one(self, k: int) -> Any:
        """Return one matrix as it was given."""
        return self.given[self.keys[k]]

    def labels(self, k: int) -> Labels:
        """Return the labels of one matrix, None if it has none."""
        matrix = self.one(k)
        return matrix.index if is_pandas(matrix, "DataFrame") else None

    def collected(self, matrices: Sequence[Any]) -> Any:
        """Return answers, None where there is none, in the form of the data."""
        X: dict[Hashable, Any] = {}
        for k, (key, matrix) in enumerate(zip(self.keys, matrices, strict=True)):
            labels = self.labels(k)
            bare = matrix is None or labels is None
            X[key] = matrix if bare else _pandas().DataFrame(np.array(matrix), labels, labels)
        return X


@dataclass(frozen=True, eq=False)
class FrameStack:
    """Matrices in a frame with the keys in the first level of its index, labels in the second and columns.

    Parameters
    ----------
    frame : DataFrame
    keys : tuple
    rows : list of int arrays
        The rows of each matrix.
    """

    frame: Any
    keys: tuple[Hashable, ...]
    rows: list[IntArray]

    @property
    def groups(self) -> Iterable[tuple[IntArray, Array]]:
        """Positions of matrices of equal order, with these as an array of shape ``(b, n, n)``."""
        values, columns = _real(rectangular(self.frame, "A"), "A"), self.frame.columns
        second = self.frame.index.get_level_values(1)
        regular = [
            k
            for k, rows in enumerate(self.rows)
            if len(rows) == len(columns) and second[rows].equals(columns)
        ]
        return [(np.array(regular), values[np.stack([self.rows[k] for k in regular])])] if regular else []

    def one(self, k: int) -> Any:
        """Return one matrix as it was given."""
        return self.frame.iloc[self.rows[k]].droplevel(0)

    def labels(self, k: int) -> Labels:
        """Return the labels of one matrix, None if it has none."""
        return self.frame.columns

    def collected(self, matrices: Sequence[Any]) -> Any:
        """Return answers, None where there is none, in the form of the data."""
        values = np.full(self.frame.shape, np.nan)
        for rows, matrix in zip(self.rows, matrices, strict=True):
            if matrix is not None:
                values[rows] = matrix
        return _pandas().DataFrame(values, self.frame.index, self.frame.columns)


MatrixStack = ArrayStack | DictStack | FrameStack


def read_stack(value: Any, name: str, real: bool = True) -> MatrixStack:
    """Return a stack of matrices.

    Raises
    ------
    TypeError
        If an array or a frame does not hold real numbers, unless `real` is false.
    ValueError
        If there is no matrix, or those of an array are not square.
    """
    if isinstance(value, Mapping):
        stack: MatrixStack = DictStack(value)
    elif is_pandas(value, "DataFrame"):
        stack = _frame_stack(value, name, real)
    else:
        array = rectangular(value, name)
        stack = ArrayStack(_real(array, name) if real else array)
        shape = stack.values.shape
        if len(shape) != 3 or shape[1] != shape[2]:
            raise ValueError(f"{name} has shape {shape}; expected (B, n, n)")
    if len(stack.keys) == 0:
        raise ValueError(f"{name} holds no matrix; expected one at least")
    return stack


def _frame_stack(frame: Any, name: str, real: bool) -> FrameStack:
    if real:
        _real(rectangular(frame, name), name)
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(
            f"{name} is a DataFrame with the column {repeated!r} twice; expected distinct labels"
        )
    codes, keys = _pandas().factorize(frame.index.get_level_values(0))
    order = np.argsort(codes, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(codes, minlength=len(keys)))[:-1])
    return FrameStack(frame, tuple(keys), rows)


def _real(array: Any, name: str) -> Array:
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} has dtype {array.dtype}; expected real numbers")
    numbers: Array = array if array.dtype == np.float64 else array.astype(np.float64)
    return numbers


def _square(matrix: Any) -> Array | None:
    """Return a square array of real numbers, None for anything else."""
    if isinstance(matrix, LowRank):
        return None
    if is_pandas(matrix, "DataFrame") and not (
        matrix.index.equals(matrix.columns) and matrix.index.is_unique
    ):
        return None
    try:
        array = np.asarray(matrix)
    except ValueError:
        return None
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.dtype.kind not in "biuf":
        return None
    return array.astype(np.float64, copy=False)


def _pandas() -> Any:
    return importlib.import_module("pandas")
