"""Arrays in memory, files or Dask's, in parts that are cheap to send, and the state of a solve in a file.

Parquet files and Dask arrays are sources, too; pyarrow and Dask are imported where they are used. A state is
written whole after each pass, by one solve at a time.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, rectangular
from bregopt.errors import require
from bregopt.files import locked, read_arrays, replacing, zipped
from bregopt.records import cached_property, dataclass

SourceLike = ArrayLike | os.PathLike[str]  # an array, one of Dask, or an npy file
_LARGEST_HELD = 2**28  # bytes of a row group of a Parquet file that a thread keeps
_held = threading.local()  # the last row group of each set of columns
_FACTS = ("m", "problem", "M0", "data")  # by which the problem of a checkpoint is known
_SAMPLE = 4096  # rows of each of three parts of the data, in their digest
_COLUMNS = ("bound", "sense", "gamma")
_EXPECTED = "expected i and j, or z_0, z_1, ..., and bound, sense, gamma"


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
        return _opened(self.data)[self.start : self.stop]

    @property
    def dtype(self) -> Any:
        """The type of the numbers."""
        return _opened(self.data).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the rows as an array."""
        return (len(self), *_opened(self.data).shape[1:])


def source_of(value: Any, name: str) -> Source:
    """Return the source of an array, a path or memory map of a whole npy file, or a Dask array.

    Raises
    ------
    TypeError, ValueError
        If it is not an array of real numbers with at least one row.
    """
    data = _path_or_array(value, name)
    array = _opened(data)
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


def _opened(data: Any) -> Any:
    """Return an array with its shape and type, memory-mapped if `data` is the path of an npy file."""
    if isinstance(data, _FileRows):
        return np.asarray(_opened(data.path)[data.numbers])
    return np.load(data, mmap_mode="r") if isinstance(data, Path) else data


def _path_or_array(value: Any, name: str) -> Any:
    if isinstance(value, str | os.PathLike):
        path = Path(value).resolve()
        if path.suffix == ".parquet":
            raise ValueError(f"{name} is the path {path}; expected an npy file: take RowChunks.from_parquet")
        if not path.is_file():
            raise ValueError(f"{name} is the path {path}; expected an npy file, and there is none")
        return path
    if maps_whole_file(value):
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


def maps_whole_file(value: Any) -> bool:
    """Whether `value` is the memory map of a whole npy file, which NumPy would pickle with its data."""
    if not isinstance(value, np.memmap) or value.mode == "c" or value.filename is None:
        return False
    path = Path(value.filename)
    if path.suffix != ".npy" or not path.is_file():
        return False
    whole = np.load(path, mmap_mode="r")
    return bool(whole.shape == value.shape and whole.dtype == value.dtype and whole.strides == value.strides)


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
        """Return rows as a read-only array; only the row groups that have them are read.

        The last row group stays in the memory of this thread, so that the chunks of a large one decode it
        once.

        Raises
        ------
        ValueError
            If a value is missing.
        """
        file = _file(self.path)
        ends = np.cumsum([file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)])
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        parts = []
        for g in range(first, last + 1):
            before = int(ends[g - 1]) if g else 0
            part = self._group(file, g, before)
            parts.append(part[max(start - before, 0) : stop - before])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _group(self, file: Any, g: int, before: int) -> Any:
        """Return a row group, of which the first row has the number `before`."""
        held: dict[Any, Any] = vars(_held)
        of, key = str((self.path, self.names)), (g, self.path.stat().st_mtime_ns)
        if of in held and held[of][0] == key:
            return held[of][1]
        held.pop(of, None)  # before another one is read
        table = file.read_row_group(g, columns=list(self.names), use_threads=False)
        for name in self.names:
            if table[name].null_count:
                k = before + int(np.argmax(table[name].is_null().to_numpy()))
                raise ValueError(f"column {name} of {self.path} has no value in row {k}; expected numbers")
        if self.flat:
            array = table[self.names[0]].to_numpy()
        else:
            array = np.empty((len(table), len(self.names)), dtype=self.dtype)
            for k, name in enumerate(self.names):
                array[:, k] = table[name].to_numpy()
        array.setflags(write=False)
        if array.nbytes <= _LARGEST_HELD:
            held[of] = key, array
        return array


def release_groups() -> None:
    """Drop the row groups that this thread holds."""
    vars(_held).clear()


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
    coordinates = [name for name in names if re.fullmatch(r"z_\d+", name)]
    vectors = tuple(f"z_{k}" for k in range(len(coordinates))) if coordinates else ("i", "j")
    expected = {*vectors, *_COLUMNS}
    if set(names) != expected or len(names) != len(expected):
        raise ValueError(f"{path} has the columns {', '.join(names)}; {_EXPECTED}")
    found = {name: ParquetColumns(where, (name,), flat=True) for name in _COLUMNS}
    return {"rows": ParquetColumns(where, vectors, flat=False), **found}


def _file(path: Path) -> Any:
    return require("pyarrow.parquet", "parquet").ParquetFile(path)


# --- Checkpoints ------------------------------------------------------------------------------------------


class State(NamedTuple):
    """A factor of the best matrix so far, the value of every pass, and numbers that the method goes on from.

    Bounds are not stored: weights may have changed, and a bound of other rows would prove nothing.
    """

    root: Array
    values: list[float]
    numbers: tuple[float, ...]


def _digest_of(*sources: Source | float | None) -> str:
    """Return a SHA-256 of the first, middle and last rows of data; of few rows it has all of them."""
    found = hashlib.sha256()
    for source in sources:
        if not isinstance(source, Source):
            found.update(repr(source).encode())
            continue
        m = len(source)
        found.update(f"{source.shape}".encode())
        for start in sorted({0, max(0, (m - _SAMPLE) // 2), max(0, m - _SAMPLE)}):
            part = source.part(start, min(start + _SAMPLE, m)).read()
            found.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
    return found.hexdigest()


@dataclass(eq=False)
class Checkpoint:
    """A file, None for no checkpoints, and the facts by which the problem is known.

    Parameters
    ----------
    path : Path or None
    m : int
        The number of rows.
    problem : str
        The name of the divergence, or of another problem.
    M0 : array of shape (r, r)
        The start.
    data : str
        The digest of the rows.
    count : int
        How many numbers the method goes on from.
    best : (float, array of shape (r, k), tuple of float) or None
        The least value of the passes that were recorded, the factor of its matrix, and its numbers.
    """

    path: Path | None
    m: int
    problem: str
    M0: Array
    data: str = ""
    count: int = 0
    best: tuple[float, Array, tuple[float, ...]] | None = None

    @classmethod
    def of(
        cls, path: Any, m: int, problem: str, M0: Array, sources: tuple[Any, ...] = (), count: int = 0
    ) -> Checkpoint:
        """Return the checkpoint at a path, of data in `sources`.

        Raises
        ------
        TypeError, ValueError
            If `path` is not a path in an existing folder.
        """
        if path is None:
            return cls(None, m, problem, M0)
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"resume is {path!r}; expected the path of a file")
        if not Path(path).absolute().parent.is_dir():
            raise ValueError(f"resume is {path}; expected a file in a folder that exists")
        return cls(Path(path).absolute(), m, problem, M0, _digest_of(*sources), count)

    def held(self) -> AbstractContextManager[None]:
        """Keep other solves from the file, as :func:`bregopt.files.locked` does."""
        return nullcontext() if self.path is None else locked(self.path, "resume")

    def load(self) -> State | None:
        """Return the stored state, None where there is no file.

        Raises
        ------
        ValueError
            If the file is no checkpoint, or one of another problem.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            stored = read_arrays(self.path)
            state = {name: stored.pop(name) for name in ("root", "values", "numbers", *_FACTS)}
        except (ValueError, KeyError) as error:
            raise ValueError(f"resume is {self.path}, which is no checkpoint of bregopt ({error})") from None
        same = all(np.array_equal(state[name], getattr(self, name)) for name in _FACTS)
        if not same:
            raise ValueError(
                f"resume is {self.path}, the checkpoint of {state['m']} rows, {state['problem']}, order "
                f"{len(np.atleast_1d(state['M0']))}; expected this problem's {self.m} rows, {self.problem}, "
                f"order {len(self.M0)}, the same X0 and the same data: give another file, or delete this one"
            )
        root, values, numbers = (state[name] for name in ("root", "values", "numbers"))
        shaped = root.ndim == 2 and len(root) == len(self.M0) and values.ndim == 1
        numeric = all(part.dtype.kind == "f" for part in (root, values)) and numbers.dtype.kind in "fiu"
        sound = shaped and numeric and numbers.shape == (self.count,)
        if not sound or not np.isfinite(root).all() or not root.any() or np.isnan(values).any():
            raise ValueError(
                f"resume is {self.path}, which was changed: its fields root, values or numbers have other "
                "types or shapes than a solve writes, or NaN; delete it"
            )
        return State(root, values.tolist(), tuple(numbers.tolist()))

    def record(self, value: float, root: Array, values: list[float], numbers: tuple[float, ...] = ()) -> None:
        """Store a pass at ``root root'``; a file that exists is replaced in one step, so it is always whole.

        Parameters
        ----------
        value : float
        root : array of shape (r, k)
        values : list of float
            Of all passes, this one included.
        numbers : tuple of float
            That the method goes on from.
        """
        if self.path is None:
            return
        if self.best is None or value <= self.best[0]:
            self.best = value, root, numbers
        _, root, numbers = self.best
        facts = {name: getattr(self, name) for name in _FACTS}
        with replacing(self.path) as file:
            file.write(zipped({"root": root, "values": values, "numbers": numbers, **facts}))
