"""Stacks of matrices from users: arrays, dicts, lists, pandas frames with an index of two levels, and files.

Some rows and columns may hold only NaN off the diagonal: assets without data (:func:`present_stack`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask, check_memory, is_mapping, rectangular, rows_with_data
from bregopt.chunks.sources import Source, maps_whole_file
from bregopt.io.matrices import Labels, is_pandas, pandas_module
from bregopt.program.rows.base import LowRank
from bregopt.records import cached_property, dataclass

ANSWERS = "all answers in memory (resume='folder' keeps them in a file)"
BLOCK = 2**24  # bytes of a file that are read at once


def read_stack(value: Any, name: str, real: bool = True) -> MatrixStack:
    """Return a stack of matrices.

    Raises
    ------
    TypeError
        If an array or a frame does not hold real numbers, unless `real` is false.
    ValueError
        If there is no matrix, or those of an array are not square.
    """
    if isinstance(value, MatrixStack):  # of a file
        stack = value
    elif is_mapping(value):
        stack = _DictStack(value)
    elif is_pandas(value, "DataFrame"):
        from bregopt.io.panels import frame_stack  # only those with frames wait

        stack = frame_stack(value, name, real)
    elif isinstance(value, list | tuple) and not _uniform(value):
        stack = _ListStack.of(value)
    elif real and maps_whole_file(value):
        stack = _ArrayStack.of(value, name)
    else:
        array = rectangular(value, name)
        stack = _ArrayStack.of(real_numbers(array, name) if real else array, name)
    if len(stack.keys) == 0:
        raise ValueError(f"{name} holds no matrix; expected one at least")
    return stack


def _uniform(matrices: Sequence[Any]) -> bool:
    """Whether matrices are of one order, and neither frames nor sparse."""
    orders = {_length_of(matrix) for matrix in matrices}
    plain = not any(is_pandas(matrix, "DataFrame") or sp.issparse(matrix) for matrix in matrices)
    return plain and len(orders) == 1


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


class MatrixStack(ABC):
    """Matrices with keys, and the way back to the form in which they were given."""

    ndim: ClassVar[int] = 3
    """As that of an array of matrices."""

    @property
    @abstractmethod
    def keys(self) -> Sequence[Hashable]:
        """The keys of the matrices."""

    @property
    @abstractmethod
    def groups(self) -> Iterable[Group]:
        """The matrices of equal order and labels."""

    @property
    @abstractmethod
    def order(self) -> int:
        """The number of all labels, or the largest order."""

    @property
    @abstractmethod
    def all_labels(self) -> Iterable[Hashable]:
        """The labels of all matrices, numbers where they have none."""

    @property
    def present(self) -> Mapping[int, Mask]:
        """The rows that are there, of each matrix in which some are missing, by its position."""
        return {}

    def absent(self, k: int) -> list[Any]:
        """Return the labels, or numbers, of the rows of one matrix that are not there."""
        return []

    @abstractmethod
    def part(self, a: int, b: int) -> MatrixStack:
        """Return the matrices in the positions from `a` to ``b - 1``."""

    @abstractmethod
    def one(self, k: int) -> Any:
        """Return one matrix as it was given, without what is missing."""

    def labels(self, k: int) -> Labels:
        """Return the labels of one matrix, None if it has none."""
        return None

    def rows_in_file(self, a: int, b: int) -> slice | None:
        """Return the rows of the answers `a` to ``b - 1`` in the file of a folder; None if none has them."""
        return None

    def of_answers(self, X: Array, k: int) -> Array:
        """Return the answer to one matrix, without what is missing, from the array of that file."""
        return X[self.rows_in_file(k, k + 1)]

    def mapped(self, X: Array) -> Any:
        """Return the array of that file in the form of the data, without a copy."""
        return X

    @abstractmethod
    def collected(self, matrices: Sequence[Any]) -> Any:
        """Return answers, None where there is none, in the form of the data; NaN where a row is missing."""

    def panels(self, matrices: Sequence[Any]) -> Iterable[Any]:
        """Yield answers as frames, some after the other, with keys and labels in their index."""
        pandas, length = pandas_module(), max(1, BLOCK // (8 * max(1, self.order) ** 2))
        for a in range(0, len(self.keys), length):
            part = self.part(a, min(len(self.keys), a + length))
            X = part.collected(matrices[a : a + length])
            if not is_pandas(X, "DataFrame"):
                found = zip(self.keys[a : a + length], X.values() if is_mapping(X) else X, strict=True)
                frames = {
                    key: own if is_pandas(own, "DataFrame") else pandas.DataFrame(np.asarray(own))
                    for key, own in found
                    if own is not None
                }
                if not frames:
                    continue
                X = pandas.concat(frames).reindex(columns=list(self.all_labels))
            yield X


@dataclass(frozen=True, eq=False)
class _ArrayStack(MatrixStack):
    """Matrices in an array of shape ``(B, n, n)``, or in an npy file.

    Parts of a file are read where they are used; a pickle holds its path.
    """

    source: Source

    @classmethod
    def of(cls, array: Any, name: str) -> _ArrayStack:
        """Return the stack of an array, or of a memory map of a whole file; refuse other shapes and types."""
        in_file = maps_whole_file(array)
        if in_file and array.dtype.kind not in "biuf":
            raise TypeError(f"{name} has dtype {array.dtype}; expected real numbers")
        if array.ndim != 3 or array.shape[1] != array.shape[2]:
            raise ValueError(f"{name} has shape {array.shape}; expected (B, n, n)")
        return cls(Source(Path(array.filename) if in_file else array, 0, len(array)))

    @property
    def keys(self) -> Sequence[Hashable]:
        return range(len(self.source))

    @property
    def groups(self) -> Iterable[Group]:
        count, n = len(self.source), self.order
        length = max(1, count) if self.source.path is None else max(1, BLOCK // (8 * max(n, 1) ** 2))
        for a in range(0, count, length):
            b = min(count, a + length)
            yield Group(np.arange(a, b), self._read(a, b), np.arange(n))

    @property
    def order(self) -> int:
        return self.source.shape[1]

    @property
    def all_labels(self) -> Iterable[Hashable]:
        return range(self.order)

    def part(self, a: int, b: int) -> _ArrayStack:
        return _ArrayStack(self.source.part(a, b))

    def one(self, k: int) -> Any:
        return self._read(k, k + 1)[0]

    def rows_in_file(self, a: int, b: int) -> slice | None:
        return slice(a, b)

    def of_answers(self, X: Array, k: int) -> Array:
        return X[k]

    def collected(self, matrices: Sequence[Any]) -> Any:
        shape = self.source.shape
        if self.source.path is not None:
            check_memory(8.0 * math.prod(shape), ANSWERS)
        X = np.full(shape, np.nan)
        for k, matrix in enumerate(matrices):
            if matrix is not None:
                X[k] = matrix
        return X

    def _read(self, a: int, b: int) -> Any:
        """Return some matrices; those of a file as a copy, after which their part is no longer mapped."""
        found = self.source.part(a, b).read()
        return found if self.source.path is None else np.array(found, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _DictStack(MatrixStack):
    """Matrices of any orders in a dict; each may be a frame with labels."""

    given: Mapping[Hashable, Any]

    @cached_property
    def keys(self) -> Sequence[Hashable]:
        return tuple(self.given)

    @property
    def groups(self) -> Iterable[Group]:
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
        return max(len(self._all), *(_length_of(matrix) for matrix in self.given.values()))

    @property
    def all_labels(self) -> Iterable[Hashable]:
        return self._all or range(self.order)

    def part(self, a: int, b: int) -> _DictStack:
        return _DictStack({key: self.given[key] for key in self.keys[a:b]})

    @cached_property
    def _all(self) -> dict[Hashable, int]:
        """The labels of all frames, each with a number."""
        frames = (self.labels(k) for k in range(len(self.keys)))
        labels = dict.fromkeys(label for own in frames if own is not None for label in own)
        return {label: k for k, label in enumerate(labels)}

    def _rows(self, kind: Any) -> IntArray | None:
        return np.array([self._all[label] for label in kind]) if isinstance(kind, tuple) else None

    def one(self, k: int) -> Any:
        return self.given[self.keys[k]]

    def labels(self, k: int) -> Labels:
        matrix = self.one(k)
        return matrix.index if is_pandas(matrix, "DataFrame") else None

    def collected(self, matrices: Sequence[Any]) -> Any:
        X: dict[Hashable, Any] = {}
        for k, (key, matrix) in enumerate(zip(self.keys, matrices, strict=True)):
            labels = self.labels(k)
            if matrix is not None and labels is not None:
                matrix = pandas_module().DataFrame(np.array(matrix), labels, labels)
            X[key] = matrix
        return X


@dataclass(frozen=True, eq=False)
class _ListStack(_DictStack):
    """Matrices in a list, frames or of several orders, by their positions."""

    @classmethod
    def of(cls, matrices: Iterable[Any]) -> _ListStack:
        """Return the stack of some matrices."""
        return cls(dict(enumerate(matrices)))

    @property
    def keys(self) -> Sequence[Hashable]:
        return range(len(self.given))

    def part(self, a: int, b: int) -> _ListStack:
        return self.of(self.given[k] for k in range(a, b))

    def collected(self, matrices: Sequence[Any]) -> Any:
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


def _length_of(matrix: Any) -> int:
    """Return the number of rows, zero where there are none."""
    shape = getattr(matrix, "shape", ())
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    return len(matrix) if isinstance(matrix, list | tuple) else 0


@dataclass(frozen=True, eq=False)
class _PresentStack(MatrixStack):
    """The matrices of a stack without their missing rows and columns.

    Parameters
    ----------
    whole : MatrixStack
    masks : mapping from int to boolean array
        The rows that are there, of each matrix in which some are missing, by its position.
    """

    whole: MatrixStack
    masks: Mapping[int, Mask]

    @property
    def present(self) -> Mapping[int, Mask]:
        return self.masks

    @property
    def keys(self) -> Sequence[Any]:
        return self.whole.keys

    @property
    def order(self) -> int:
        return self.whole.order

    @property
    def all_labels(self) -> Iterable[Hashable]:
        return self.whole.all_labels

    @property
    def groups(self) -> Iterable[Group]:
        for group in self.whole.groups:
            kinds: dict[bytes, list[int]] = {}
            everything = np.ones(group.values.shape[1], dtype=bool)
            masks = [self.present.get(k, everything) for k in group.positions.tolist()]
            for k, mask in enumerate(masks):
                kinds.setdefault(mask.tobytes(), []).append(k)
            for own in kinds.values():
                rows = np.flatnonzero(masks[own[0]])
                values = group.values[np.ix_(np.array(own), rows, rows)]
                yield Group(group.positions[own], values, None if group.rows is None else group.rows[rows])

    def part(self, a: int, b: int) -> _PresentStack:
        return _PresentStack(self.whole.part(a, b), {k - a: m for k, m in self.present.items() if a <= k < b})

    def one(self, k: int) -> Any:
        """Return one matrix, without what is missing.

        Raises
        ------
        ValueError
            If all of it is missing.
        """
        matrix = self.whole.one(k)
        if k not in self.present:
            return matrix
        rows = np.flatnonzero(self.present[k])
        if len(rows) == 0:
            raise ValueError(
                "the matrix has no number off the diagonal; expected the entries of two rows at least"
            )
        if is_pandas(matrix, "DataFrame"):
            return matrix.iloc[rows, rows]
        return np.asarray(matrix)[np.ix_(rows, rows)]

    def absent(self, k: int) -> list[Any]:
        if k not in self.present:
            return []
        labels, missing = self.whole.labels(k), ~self.present[k]
        return (np.flatnonzero(missing) if labels is None else labels[missing]).tolist()

    def labels(self, k: int) -> Labels:
        labels = self.whole.labels(k)
        return labels if labels is None or k not in self.present else labels[self.present[k]]

    def rows_in_file(self, a: int, b: int) -> slice | None:
        return self.whole.rows_in_file(a, b)

    def of_answers(self, X: Array, k: int) -> Array:
        own, rows = self.whole.of_answers(X, k), self.present.get(k)
        return own if rows is None else own[np.ix_(rows, rows)]

    def mapped(self, X: Array) -> Any:
        return self.whole.mapped(X)

    def collected(self, matrices: Sequence[Any]) -> Any:
        """Return answers in the form of the data, NaN where an asset is missing."""
        whole = list(matrices)
        for k, mask in self.present.items():
            if matrices[k] is not None:
                whole[k] = np.full((len(mask),) * 2, np.nan)
                whole[k][np.ix_(mask, mask)] = matrices[k]
        return self.whole.collected(whole)


def present_stack(stack: MatrixStack) -> Any:
    """Return the stack without the rows that hold no data; the stack itself if all do."""
    present = {}
    for group in stack.groups:
        if not np.isnan(group.values).any():
            continue
        for k, mask in zip(group.positions.tolist(), rows_with_data(group.values), strict=True):
            if not mask.all():
                present[k] = mask
    return _PresentStack(stack, present) if present else stack
