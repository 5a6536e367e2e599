"""Arrays in memory or in npy files, and their parts, which are cheap to send to another process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, rectangular

__all__ = ["Source", "opened", "source", "source_of"]


class _FileRows(NamedTuple):
    """Rows of an npy file, by their numbers."""

    path: Path
    numbers: range | Array


@dataclass(frozen=True, eq=False)
class Source:
    """An array, or the npy file that holds it, from row `start` to row `stop`.

    A file is mapped into memory where it is read, so a pickle holds its path only.
    """

    data: Any
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def part(self, start: int, stop: int) -> Source:
        """Return the rows from `start` to `stop`, relative to this part."""
        if isinstance(self.data, np.ndarray):
            return source(self.data[start:stop])
        return Source(self.data, self.start + start, self.start + stop)

    def of_file(self, numbers: range | Array) -> Source:
        """Return other rows of the whole file, which are read where they are used."""
        return Source(_FileRows(self.data, numbers), 0, len(numbers))

    @property
    def path(self) -> Path | None:
        """The npy file, None for an array."""
        return self.data if isinstance(self.data, Path) else None

    def read(self) -> Any:
        """Return the rows as an array, a memory map for a file."""
        return opened(self.data)[self.start : self.stop]


def source_of(value: Any, name: str) -> Source:
    """Return the source of an array, a path of an npy file, or a memory map of a whole npy file.

    Raises
    ------
    TypeError, ValueError
        If it is not an array of real numbers with at least one row.
    """
    data = _path_or_array(value, name)
    array = opened(data)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} has dtype {array.dtype}; expected real numbers")
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}; expected at least one row")
    return Source(data, 0, len(array))


def source(array: Array) -> Source:
    """Return the source of an array."""
    return Source(array, 0, len(array))


def opened(data: Any) -> Any:
    """Return an array, memory-mapped if `data` is the path of an npy file."""
    if isinstance(data, _FileRows):
        return np.asarray(opened(data.path)[data.numbers])
    return np.load(data, mmap_mode="r") if isinstance(data, Path) else data


def _path_or_array(value: Any, name: str) -> Any:
    if isinstance(value, str | os.PathLike):
        path = Path(value).resolve()
        if not path.is_file():
            raise ValueError(f"{name} is the path {path}; expected an npy file, and there is none")
        return path
    if _maps_whole_file(value):
        return Path(value.filename)
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
