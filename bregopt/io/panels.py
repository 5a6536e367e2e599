"""Panels: matrices in a pandas frame with an index of two levels, keys and labels, or in its Parquet file."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, check_memory, rectangular
from bregopt.errors import require
from bregopt.files import path_of, reading, replacing
from bregopt.io.matrices import Labels, pandas_module
from bregopt.io.stacks import ANSWERS, BLOCK, Group, MatrixStack, real_numbers
from bregopt.records import cached_property, dataclass

_ROWS = 2**12  # of a Parquet file that are decoded at once
_readers = threading.local()


@dataclass(frozen=True, eq=False)
class _FrameStack(MatrixStack):
    """Matrices in a frame with the keys in the first level of its index, labels in the second and columns.

    Parameters
    ----------
    frame : DataFrame
    names : tuple
        The keys.
    rows : list of int arrays
        The rows of each matrix.
    """

    frame: Any
    names: tuple[Hashable, ...]
    rows: list[IntArray]

    @property
    def keys(self) -> Sequence[Hashable]:
        return self.names

    @property
    def groups(self) -> Iterable[Group]:
        kinds: dict[tuple[int, ...], list[int]] = {}
        for k, columns in enumerate(self._columns):
            if columns is not None:
                kinds.setdefault(tuple(columns.tolist()), []).append(k)
        for kind, positions in kinds.items():
            columns = np.array(kind, dtype=np.intp)
            rows = np.stack([self.rows[k] for k in positions])
            yield Group(np.array(positions), self._values[rows][:, :, columns], columns)

    @property
    def order(self) -> int:
        return self.frame.shape[1]

    @property
    def all_labels(self) -> Iterable[Hashable]:
        return self.frame.columns

    def part(self, a: int, b: int) -> _FrameStack:
        rows = self.rows[a:b]
        ends = np.cumsum([0, *map(len, rows)])
        frame = self.frame.iloc[np.concatenate(rows)]
        return _FrameStack(frame, self.names[a:b], [*map(np.arange, ends[:-1], ends[1:])])

    def one(self, k: int) -> Any:
        own, columns = self.frame.iloc[self.rows[k]].droplevel(0), self._columns[k]
        return own if columns is None else own.iloc[:, columns]

    def labels(self, k: int) -> Labels:
        columns = self._columns[k]
        return self.frame.columns if columns is None else self.frame.columns[columns]

    def collected(self, matrices: Sequence[Any]) -> Any:
        values = np.full(self.frame.shape, np.nan)
        for rows, columns, matrix in zip(self.rows, self._columns, matrices, strict=True):
            if matrix is not None and columns is not None:
                values[np.ix_(rows, columns)] = matrix
        return pandas_module().DataFrame(values, self.frame.index, self.frame.columns)

    @cached_property
    def _values(self) -> Array:
        return real_numbers(rectangular(self.frame, "A"), "A")

    @cached_property
    def _columns(self) -> list[IntArray | None]:
        """The columns of each matrix: those of its rows if the others are empty, None if it is not square."""
        places = self.frame.columns.get_indexer(self.frame.index.get_level_values(1))
        return [self._own_columns(rows, places[rows]) for rows in self.rows]

    def _own_columns(self, rows: IntArray, columns: IntArray) -> IntArray | None:
        n = self.frame.shape[1]
        if (columns < 0).any() or len(np.unique(columns)) < len(columns):
            return None
        spare = np.delete(np.arange(n), columns)
        return columns if np.isnan(self._values[np.ix_(rows, spare)]).all() else None


def frame_stack(frame: Any, name: str, real: bool) -> _FrameStack:
    """Return the stack in a frame; refuse repeated columns, and if `real` other than real numbers."""
    if real:
        real_numbers(rectangular(frame, name), name)
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(
            f"{name} is a DataFrame with the column {repeated!r} twice; expected distinct labels"
        )
    codes, keys = pandas_module().factorize(frame.index.get_level_values(0))
    order = np.argsort(codes, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(codes, minlength=len(keys)))[:-1])
    return _FrameStack(frame, tuple(keys), rows)


@dataclass(frozen=True, eq=False)
class _ParquetStack(MatrixStack):
    """Matrices in the Parquet file of a frame, of which parts are read as those of npy files.

    Parameters
    ----------
    path : Path
    columns : pandas.Index
    index : pandas.Index
        The keys.
    ends : int array of shape (B + 1,)
        The first row of each matrix, and the number of all rows.
    """

    path: Path
    columns: Any
    index: Any
    ends: IntArray

    @cached_property
    def keys(self) -> Sequence[Hashable]:
        return tuple(self.index)

    @property
    def groups(self) -> Iterable[Group]:
        for a in self._starts:
            for group in self._block(a).groups:
                yield Group(a + group.positions, group.values, group.rows)

    @property
    def order(self) -> int:
        return len(self.columns)

    @property
    def all_labels(self) -> Iterable[Hashable]:
        return self.columns

    def part(self, a: int, b: int) -> _ParquetStack:
        return _ParquetStack(self.path, self.columns, self.index[a:b], self.ends[a : b + 1])

    def one(self, k: int) -> Any:
        return self._block(k - k % self._length).one(k % self._length)

    def labels(self, k: int) -> Labels:
        return self._block(k - k % self._length).labels(k % self._length)

    def rows_in_file(self, a: int, b: int) -> slice | None:
        return slice(int(self.ends[a] - self.ends[0]), int(self.ends[b] - self.ends[0]))

    def of_answers(self, X: Array, k: int) -> Array:
        own, labels = super().of_answers(X, k), self.labels(k)
        return own if labels.equals(self.columns) else own[:, self.columns.get_indexer(labels)]

    def mapped(self, X: Array) -> Any:
        names, labels, of_label = _reader_of(self.path).labels(self.columns)
        codes = np.repeat(np.arange(len(self.index)), np.diff(self.ends)), of_label
        pandas = pandas_module()
        index = pandas.MultiIndex(levels=[self.index, labels], codes=codes, names=names)
        return pandas.DataFrame(X, index, self.columns, copy=False)

    def collected(self, matrices: Sequence[Any]) -> Any:
        check_memory(8.0 * self.order * float(self.ends[-1] - self.ends[0]), ANSWERS)
        frames = [self._block(a).collected(matrices[a : a + self._length]) for a in self._starts]
        return pandas_module().concat(frames)

    @property
    def _length(self) -> int:
        """The number of matrices of a block."""
        return max(1, BLOCK // (8 * max(1, self.order) ** 2))

    @property
    def _starts(self) -> range:
        """The first positions of the blocks."""
        return range(0, len(self.index), self._length)

    def _block(self, a: int) -> _FrameStack:
        """Return the block that begins at a position."""
        b = min(len(self.index), a + self._length)
        return _reader_of(self.path).block(int(self.ends[a]), int(self.ends[b]))


class _ParquetReader:
    """Rows of a Parquet file, which are decoded one batch after the other; it holds the last block."""

    def __init__(self, path: Path) -> None:
        # Without prefetches, which hold all of the file that was read.
        self._file = require("pyarrow.parquet", "parquet").ParquetFile(path, pre_buffer=False)
        self._last: tuple[Any, Any] = None, None  # the rows of the last block, and the block
        self._restart()

    def _restart(self) -> None:
        self._first, self._held = 0, deque[Any]()  # the number of the first row that is held, and batches
        self._batches = self._file.iter_batches(_ROWS, use_threads=False)

    def labels(self, known: Any) -> tuple[Any, Any, IntArray]:
        """Return the names of the index, the `known` labels and all others, and the number of each row's."""
        schema, codes = self._file.schema_arrow, []
        second = schema.pandas_metadata["index_columns"][1]
        for batch in self._file.iter_batches(_ROWS, columns=[second], use_threads=False):
            own = pandas_module().Index(batch.column(0).to_pandas())
            known = known.append(own[~own.isin(known)].unique())
            codes.append(known.get_indexer(own).astype(np.int32))
        return schema.empty_table().to_pandas().index.names, known, np.concatenate(codes)

    def block(self, start: int, stop: int) -> _FrameStack:
        """Return the matrices in some rows; rows before those of the last block are decoded again."""
        if self._last[0] != (start, stop):
            self._last = (start, stop), frame_stack(self._rows(start, stop), "A", True)
        return self._last[1]

    def _rows(self, start: int, stop: int) -> Any:
        """Return rows as a frame."""
        if start < self._first:
            self._restart()
        count = sum(map(len, self._held))
        while self._first + count < stop or (self._held and self._first + len(self._held[0]) <= start):
            if self._held and self._first + len(self._held[0]) <= start:
                count -= len(self._held[0])
                self._first += len(self._held.popleft())
            else:
                self._held.append(next(self._batches))
                count += len(self._held[-1])
        whole = require("pyarrow", "parquet").Table.from_batches(self._held, self._file.schema_arrow)
        return whole.slice(start - self._first, stop - start).to_pandas()


def _reader_of(path: Path) -> _ParquetReader:
    """Return the reader that this thread has of a file, or a new one."""
    key = path, path.stat().st_mtime_ns, os.getpid()
    held, reader = vars(_readers).get("last", (None, None))
    if held != key:
        reader = _ParquetReader(path)
        vars(_readers)["last"] = key, reader
    return reader


def parquet_panel(path: Path) -> Any:
    """Return the stack or frame in a Parquet file; a stack whose keys are in order is read part by part.

    Raises
    ------
    ImportError
        If pandas or pyarrow is not installed.
    ValueError
        If the file is damaged.
    """
    pandas, parquet = require("pandas", "pandas"), require("pyarrow.parquet", "parquet")
    with reading(path):
        file = parquet.ParquetFile(path)
        index = (file.schema_arrow.pandas_metadata or {}).get("index_columns", [])
        if len(index) == 2 and all(isinstance(name, str) for name in index):
            codes, keys = pandas.factorize(pandas.Index(file.read([index[0]]).column(0).to_pandas()))
            first = np.flatnonzero(np.diff(codes, prepend=-1))
            columns = file.schema_arrow.empty_table().to_pandas().columns
            if len(first) == len(keys) > 0 and columns.is_unique:
                return _ParquetStack(path, columns, keys, np.append(first, len(codes)))
        return pandas.read_parquet(path)


def write_panel(path: str | PathLike[str], frames: Iterable[Any]) -> None:
    """Write frames, one after the other, as one panel in a Parquet file.

    Raises
    ------
    ImportError
        If pyarrow is not installed.
    """
    arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
    tables = (arrow.Table.from_pandas(frame, preserve_index=True) for frame in frames)
    with replacing(path_of(path)) as file:
        first = next(tables)
        with parquet.ParquetWriter(file, first.schema) as writer:
            for table in itertools.chain([first], tables):
                writer.write_table(table)
