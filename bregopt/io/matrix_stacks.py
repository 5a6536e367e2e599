"""Stacks of matrices in arrays, dicts and lists."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.cache import cached_property
from bregopt.io.pandas_labels import Labels, is_pandas, pandas_module
from bregopt.program.lowrank import LowRank

__all__ = ["ALL_PRESENT", "ArrayStack", "DictStack", "Group", "ListStack", "length_of", "real_numbers"]


ALL_PRESENT: Mapping[int, Mask] = {}  # rows that are there, of matrices in which some are missing


@dataclass(frozen=True, eq=False)
class Group:
    """Matrices of equal order and equal labels.

    Parameters
    ----------
    positions : int array of shape (b,)
        In the stack.
    values : array of shape (b, n, n)
    rows : int array of shape (n,) or None
        Places of the labels among all labels of the stack; None if the matrices have none.
    """

    positions: IntArray
    values: Array
    rows: IntArray | None


@dataclass(frozen=True, eq=False)
class ArrayStack:
    """Matrices in an array of shape ``(B, n, n)``."""

    values: Array

    present: ClassVar[Mapping[int, Mask]] = ALL_PRESENT

    @property
    def keys(self) -> Sequence[Hashable]:
        """The keys of the matrices."""
        return range(len(self.values))

    @property
    def groups(self) -> Iterable[Group]:
        """The matrices of equal order and labels."""
        count, n = self.values.shape[:2]
        return [Group(np.arange(count), self.values, np.arange(n))]

    @property
    def order(self) -> int:
        """The number of all labels, or the largest order."""
        return self.values.shape[1]

    @property
    def all_labels(self) -> Iterable[Hashable]:
        """The labels of all matrices, numbers where they have none."""
        return range(self.values.shape[1])

    def part(self, a: int, b: int) -> ArrayStack:
        """Return the matrices in the positions from `a` to ``b - 1``."""
        return ArrayStack(self.values[a:b])

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

    present: ClassVar[Mapping[int, Mask]] = ALL_PRESENT

    @cached_property
    def keys(self) -> Sequence[Hashable]:
        """The keys of the matrices."""
        return tuple(self.given)

    @property
    def groups(self) -> Iterable[Group]:
        """The matrices of equal order and labels."""
        places: dict[Hashable, list[int]] = {}
        values: dict[Hashable, list[Array]] = {}
        for k, matrix in enumerate(self.given.values()):
            array = _square(matrix)
            if array is not None:
                labels = self.labels(k)
                kind = len(array) if labels is None else tuple(labels)
                places.setdefault(kind, []).append(k)
                values.setdefault(kind, []).append(array)
        return [Group(np.array(places[kind]), np.stack(values[kind]), self._rows(kind)) for kind in places]

    @property
    def order(self) -> int:
        """The number of all labels, or the largest order."""
        return max(len(self._all), *(length_of(matrix) for matrix in self.given.values()))

    @property
    def all_labels(self) -> Iterable[Hashable]:
        """The labels of all matrices, numbers where they have none."""
        return self._all or range(self.order)

    def part(self, a: int, b: int) -> DictStack:
        """Return the matrices in the positions from `a` to ``b - 1``."""
        return DictStack({key: self.given[key] for key in self.keys[a:b]})

    @cached_property
    def _all(self) -> dict[Hashable, int]:
        """The labels of all frames, each with a number."""
        frames = (self.labels(k) for k in range(len(self.keys)))
        labels = dict.fromkeys(label for own in frames if own is not None for label in own)
        return {label: k for k, label in enumerate(labels)}

    def _rows(self, kind: Any) -> IntArray | None:
        return np.array([self._all[label] for label in kind]) if isinstance(kind, tuple) else None

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
            if matrix is not None and labels is not None:
                matrix = pandas_module().DataFrame(np.array(matrix), labels, labels)
            X[key] = matrix
        return X


@dataclass(frozen=True, eq=False)
class ListStack(DictStack):
    """Matrices in a list, frames or of several orders, by their positions."""

    @classmethod
    def of(cls, matrices: Iterable[Any]) -> ListStack:
        """Return the stack of some matrices."""
        return cls(dict(enumerate(matrices)))

    @property
    def keys(self) -> Sequence[Hashable]:
        """The keys of the matrices."""
        return range(len(self.given))

    def part(self, a: int, b: int) -> ListStack:
        """Return the matrices in the positions from `a` to ``b - 1``."""
        return self.of(self.given[k] for k in range(a, b))

    def collected(self, matrices: Sequence[Any]) -> Any:
        """Return answers, None where there is none, in the form of the data."""
        return list(super().collected(matrices).values())


def real_numbers(array: Any, name: str) -> Array:
    """Return an array of doubles; refuse other than real numbers."""
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


def length_of(matrix: Any) -> int:
    """Return the number of rows, zero where there are none."""
    shape = getattr(matrix, "shape", ())
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    return len(matrix) if isinstance(matrix, list | tuple) else 0
