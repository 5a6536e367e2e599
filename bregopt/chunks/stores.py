"""Parquet files and Dask arrays as sources of rows; pyarrow and Dask are imported where they are used."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bregopt.cache import cached_property
from bregopt.errors import require

__all__ = ["DaskArray", "ParquetColumns", "is_dask", "parquet_columns"]

_COLUMNS = ("bound", "sense", "gamma")
_EXPECTED = "expected i and j, or z_0, z_1, ..., and bound, sense, gamma"


@dataclass(frozen=True, eq=False)
class ParquetColumns:
    """Columns of numbers in a Parquet file, as an array; a pickle holds the path and the names.

    Parameters
    ----------
    path : Path
    names : tuple of str
    flat : bool
        Whether the array has one dimension.
    """

    path: Path
    names: tuple[str, ...]
    flat: bool

    @cached_property
    def dtype(self) -> Any:
        """The type of numbers that all columns fit in."""
        schema = _file(self.path).schema_arrow
        return np.result_type(*(schema.field(name).type.to_pandas_dtype() for name in self.names))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        m = _file(self.path).metadata.num_rows
        return (m,) if self.flat else (m, len(self.names))

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return len(self.shape)

    def read(self, start: int, stop: int) -> Any:
        """Return rows as an array; only the row groups that have them are read.

        Raises
        ------
        ValueError
            If a value is missing.
        """
        file = _file(self.path)
        counts = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
        ends = np.cumsum(counts)
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        table = file.read_row_groups(
            list(range(first, last + 1)), columns=list(self.names), use_threads=False
        )
        before = int(ends[first]) - counts[first]
        table = table.slice(start - before, stop - start)
        for name in self.names:
            if table[name].null_count:
                k = start + int(np.argmax(table[name].is_null().to_numpy()))
                raise ValueError(f"column {name} of {self.path} has no value in row {k}; expected numbers")
        columns = [table[name].to_numpy() for name in self.names]
        return columns[0] if self.flat else np.stack(columns, axis=1).astype(self.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class DaskArray:
    """A Dask array, which is computed where it is read."""

    array: Any

    @property
    def dtype(self) -> Any:
        """The type of its numbers."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; NaN stands for lengths that are not known."""
        shape: tuple[int, ...] = self.array.shape
        return shape

    def __getitem__(self, rows: slice) -> DaskArray:
        """Return rows as an array whose graph has no tasks of other rows."""
        (array,) = require("dask", "dask").optimize(self.array[rows])
        return DaskArray(array)

    def read(self, start: int, stop: int) -> Any:
        """Return rows as a NumPy array, computed in this thread."""
        whole = (start, stop) == (0, self.shape[0])
        array = self.array if whole else self.array[start:stop]
        return np.asarray(array.compute(scheduler="synchronous"))


def is_dask(value: Any) -> bool:
    """Whether a value is one of Dask's collections."""
    return hasattr(value, "__dask_graph__")


def parquet_columns(path: Any) -> dict[str, ParquetColumns]:
    """Return rows, bounds, senses and weights of a Parquet file.

    Raises
    ------
    TypeError, ValueError
        If there is no such file, or a column is missing, unknown or not of numbers.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is {path!r}; expected the path of a Parquet file")
    where = Path(path).resolve()
    if not where.is_file():
        raise ValueError(f"path is {where}; expected a Parquet file, and there is none")
    try:
        names = _file(where).schema_arrow.names
    except (OSError, ValueError) as error:  # those of pyarrow are of these classes
        raise ValueError(f"path is {where}; expected a Parquet file ({error})") from None
    vectors = _vector_columns(where, names)
    found = {name: ParquetColumns(where, (name,), flat=True) for name in _COLUMNS}
    return {"rows": ParquetColumns(where, vectors, flat=False), **found}


def _vector_columns(path: Path, names: list[str]) -> tuple[str, ...]:
    """Return the columns of pairs or vectors, after a check of all names."""
    coordinates = [name for name in names if re.fullmatch(r"z_\d+", name)]
    vectors = tuple(f"z_{k}" for k in range(len(coordinates))) if coordinates else ("i", "j")
    expected = {*vectors, *_COLUMNS}
    if set(names) != expected or len(names) != len(expected):
        raise ValueError(f"{path} has the columns {', '.join(names)}; {_EXPECTED}")
    return vectors


def _file(path: Path) -> Any:
    return require("pyarrow.parquet", "parquet").ParquetFile(path)
