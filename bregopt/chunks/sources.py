"""Arrays in memory, files or Dask's, and their parts, which are cheap to send to another process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, rectangular
from bregopt.chunks.stores import DaskArray, ParquetColumns, is_dask

__all__ = ["Source", "SourceLike", "opened", "source", "source_of"]

SourceLike = ArrayLike | os.PathLike[str]  # an array, one of Dask, or an npy file


class _FileRows(NamedTuple):
    """Rows of an npy file, by their numbers."""

    path: Path
    numbers: range | Array


@dataclass(frozen=True, eq=False)
class Source:
    """An array, the npy or Parquet file that holds it, or a Dask array, from row `start` to row `stop`.

    A file is opened where it is read, so a pickle holds its path only.
    """

    data: Any
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def part(self, start: int, stop: int) -> Source:
        """Return the rows from `start` to `stop`, relative to this part."""
        if isinstance(self.data, Path | ParquetColumns | _FileRows):
            return Source(self.data, self.start + start, self.start + stop)
        return Source(self.data[self.start + start : self.start + stop], 0, stop - start)

    def of_file(self, numbers: range | Array) -> Source:
        """Return other rows of the whole file, which are read where they are used."""
        return Source(_FileRows(self.data, numbers), 0, len(numbers))

    @property
    def path(self) -> Path | None:
        """The npy file, None for an array."""
        return self.data if isinstance(self.data, Path) else None

    def read(self) -> Any:
        """Return the rows as an array, a memory map for an npy file."""
        if isinstance(self.data, ParquetColumns | DaskArray):
            return self.data.read(self.start, self.stop)
        return opened(self.data)[self.start : self.stop]

    @property
    def dtype(self) -> Any:
        """The type of the numbers."""
        return opened(self.data).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the rows as an array."""
        return (len(self), *opened(self.data).shape[1:])


def source_of(value: Any, name: str) -> Source:
    """Return the source of an array, a path or memory map of a whole npy file, or a Dask array.

    Raises
    ------
    TypeError, ValueError
        If it is not an array of real numbers with at least one row.
    """
    data = _path_or_array(value, name)
    array = opened(data)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} has dtype {array.dtype}; expected real numbers")
    if not array.shape or 0 in array.shape:
        raise ValueError(f"{name} has shape {array.shape}; expected at least one row")
    if not all(isinstance(length, int) for length in array.shape):  # NaN in Dask
        raise ValueError(
            f"{name} has shape {array.shape}; expected known lengths: call its compute_chunk_sizes()"
        )
    return Source(data, 0, array.shape[0])


def source(array: Array) -> Source:
    """Return the source of an array."""
    return Source(array, 0, len(array))


def opened(data: Any) -> Any:
    """Return an array with its shape and type, memory-mapped if `data` is the path of an npy file."""
    if isinstance(data, _FileRows):
        return np.asarray(opened(data.path)[data.numbers])
    return np.load(data, mmap_mode="r") if isinstance(data, Path) else data


def _path_or_array(value: Any, name: str) -> Any:
    if isinstance(value, str | os.PathLike):
        path = Path(value).resolve()
        if path.suffix == ".parquet":
            raise ValueError(f"{name} is the path {path}; expected an npy file: take RowChunks.from_parquet")
        if not path.is_file():
            raise ValueError(f"{name} is the path {path}; expected an npy file, and there is none")
        return path
    if _maps_whole_file(value):
        return Path(value.filename)
    if isinstance(value, ParquetColumns):
        return value
    if is_dask(value):
        if not isinstance(
            value.chunks if hasattr(value, "chunks") else None, tuple
        ):  # a Delayed has any name
            found = type(value).__name__
            raise TypeError(
                f"{name} is a Dask {found}; expected an array, which dask.array.from_delayed and "
                "to_dask_array(lengths=True) make"
            )
        return DaskArray(value)
    return rectangular(value, name)


def _maps_whole_file(value: Any) -> bool:
    """Whether `value` is the memory map of a whole npy file, which NumPy would pickle with its data."""
    if not isinstance(value, np.memmap) or value.mode == "c" or value.filename is None:
        return False
    path = Path(value.filename)
    if path.suffix != ".npy" or not path.is_file():
        return False
    whole = np.load(path, mmap_mode="r")
    return bool(whole.shape == value.shape and whole.dtype == value.dtype and whole.strides == value.strides)
