"""Matrices of the user: one or several, the labels of pandas objects, and files.

Labels are kept in answers; users of plain arrays never import pandas. Files are ``.csv`` with or without
labels, ``.npy``, ``.npz`` and Matrix Market ``.mtx``, real ones, dense or sparse, general or symmetric:
Boisvert, Pozo and Remington (1996), The Matrix Market Exchange Formats: Initial Design, NISTIR 5935.
"""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import Array, IntArray, check_memory, finite_array, is_mapping
from bregopt.errors import did_you_mean
from bregopt.files import (
    ARRAYS,
    Lines,
    archive_of,
    array_of,
    member_of,
    path_of,
    read_bytes,
    read_latin,
    read_text,
    reading,
)
from bregopt.program.rows.base import LowRank
from bregopt.records import dataclass, replace
from bregopt.routes.solution import Solution

# One matrix or number, or one for each key of a stack; or the path of a file that holds them.
StackLike = ArrayLike | LowRank | Mapping[Any, Any] | PathLike[str]
Answered = TypeVar("Answered", bound=Solution)
Labels = Any  # the pandas.Index of a square DataFrame, None for plain arrays
_PLAIN = (np.ndarray, list, float, int, str, type(None))
Cells = list[list[str]]
_LARGEST_INTEGER = 2**53  # up to here a double represents every integer
_SIZES = {"array": ("rows", "columns"), "coordinate": ("rows", "columns", "entries")}
_COLUMNS = {"pattern": ("i", "j"), "real": ("i", "j", "value"), "integer": ("i", "j", "value")}
_EXPECTED = "array or coordinate, real, integer or pattern, general or symmetric"
_POINTER = 8  # bytes of a sparse matrix for each row


def is_stack(value: Any) -> bool:
    """Whether a value holds several matrices rather than one."""
    if is_mapping(value):
        return True
    if is_pandas(value, "DataFrame"):
        return bool(value.index.nlevels == 2 and value.columns.nlevels == 1)
    if isinstance(value, list | tuple):
        return len(value) > 0 and getattr(value[0], "ndim", _depth(value[0])) == 2
    return getattr(value, "ndim", 0) == 3


def _depth(value: Any) -> int:
    """Return the number of nested sequences."""
    depth = 0
    while isinstance(value, list | tuple) and len(value):
        depth, value = depth + 1, value[0]
    return depth


# --- Labels ---


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


# --- Files ---


@dataclass(frozen=True, eq=False)
class Table:
    """The content of a file.

    Parameters
    ----------
    values : array or csr_array
        Finite real numbers. Integers stay integers, so that they can be indices.
    index, columns : tuple of str, optional
        Labels of the rows and of the columns; only ``.csv`` files have labels.
    """

    values: Any
    index: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None


def read_matrix(path: str | Path, key: str | None = None) -> Table:
    """Read a matrix or vector from a file.

    Parameters
    ----------
    path : str or Path
        ``.npy``; ``.npz``; ``.mtx``, where a sparse matrix stays sparse; or comma-separated ``.csv``. A
        first row without a number is read as the labels of the columns, and a first column without a
        number as those of the rows; when the first cell is empty both are labels. One column of several
        numbers is read as a vector.
    key : str, optional
        Name of the array in an ``.npz`` file that holds several.

    Returns
    -------
    Table

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TypeError
        If it has complex numbers or objects.
    ValueError
        If the file is of another kind, damaged or empty, has a cell that is not a number (the line is named),
        NaN or Inf, or if `key` is unknown, missing, or given for another kind of file.
    """
    path = path_of(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path}: files of type {path.suffix!r} are not read, only {', '.join(SUFFIXES)}")
    if key is not None and path.suffix.lower() != ".npz":
        raise ValueError(f"{path}: key is {key!r}, but only .npz files have keys")
    table = reader(path, key)
    return Table(_checked(table.values, str(path)), table.index, table.columns)


def opened(value: Any, name: str) -> Any:
    """Return the matrix or stack in a file, if the value is a path; a stack in an npy file as a memory map.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ImportError
        If it is a Parquet file, and pandas or pyarrow is not installed.
    ValueError
        If it is of another kind or damaged.
    """
    if not isinstance(value, str | PathLike):
        return value
    path = path_of(value)
    suffix = path.suffix.lower()
    if not path.is_file():
        raise FileNotFoundError(f"{name} is the path {path}; there is no such file")
    if suffix == ".npy":
        with reading(path):
            array = np.load(path, mmap_mode="r")
        if array.ndim == 3:
            return array
    if suffix == ".parquet":
        from bregopt.io.panels import parquet_panel  # only those with such files wait

        return parquet_panel(path)
    if suffix not in SUFFIXES:
        known = ", ".join((*SUFFIXES, ".parquet"))
        raise ValueError(f"{name} is the path {path}; expected a file of type {known}")
    table = read_matrix(path)
    labels = table.columns if table.index is None else table.index
    return table.values if labels is None else pandas_module().DataFrame(table.values, labels, labels)


def csv_text(X: Any, index: tuple[str, ...] | None = None, columns: tuple[str, ...] | None = None) -> str:
    """Return a matrix for :func:`read_matrix`, each number with the fewest digits that read back exactly.

    A label that a spreadsheet would compute, such as ``=A1``, has an apostrophe in front.
    """
    rows = [[repr(value) for value in row] for row in np.asarray(X, dtype=float).tolist()]
    if index is not None:
        rows = [[_text_cell(label), *row] for label, row in zip(index, rows, strict=True)]
    if columns is not None:
        rows.insert(0, [*([""] if index is not None else []), *map(_text_cell, columns)])
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def _text_cell(label: str) -> str:
    return f"'{label}" if label.startswith(("=", "+", "-", "@", "\t", "\r")) else label


def _checked(values: Any, name: str) -> Any:
    if isinstance(values, sp.csr_array):
        finite_array(values.data, name)
        return values
    finite = finite_array(values, name)
    if finite.size == 0:
        raise ValueError(f"{name} is empty: it holds an array of shape {finite.shape}")
    return values if values.dtype.kind in "iu" else finite


def _read_npz(path: Path, key: str | None) -> Table:
    archive, members = archive_of(path, read_bytes(path, ARRAYS))
    return Table(member_of(path, archive, members[_chosen(path, key, list(members))]))


def _chosen(path: Path, key: str | None, names: list[str]) -> str:
    if key is None:
        if len(names) != 1:
            raise ValueError(f"{path} holds {len(names)} arrays ({', '.join(names)}); choose one by its key")
        return names[0]
    if key not in names:
        raise ValueError(f"{path} holds no array of key {key!r}{did_you_mean(key, names)}")
    return key


def _read_csv(path: Path, key: str | None) -> Table:
    lines = _lines(path)
    cells = [row for _, row in lines]
    has_columns, has_index = _labeled(cells)
    columns = tuple(cells[0][has_index:]) if has_columns else None
    index = tuple(row[0] for row in cells[has_columns:]) if has_index else None
    body = [(number, row[has_index:]) for number, row in lines[has_columns:]]
    if not body:
        raise ValueError(f"{path} holds labels but no numbers")
    values = np.array([_parsed(path, number, row, 1 + has_index) for number, row in body])
    integers = all(cell.lstrip("+-").isdigit() for _, row in body for cell in row)
    if integers and np.abs(values).max() < _LARGEST_INTEGER:
        values = values.astype(np.int64)
    if values.shape[1] == 1 and len(values) > 1:
        values = values[:, 0]
    return Table(values, index, columns)


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Return the cells of each line that is not blank, with its number."""
    text = io.StringIO(read_text(path), newline="")
    with reading(path):
        reader = csv.reader(text, strict=True)
        lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    lines = [(number, row) for number, row in lines if any(row)]
    if not lines:
        raise ValueError(f"{path} is empty; expected rows of comma-separated numbers")
    width = len(lines[0][1])
    for number, row in lines:
        if len(row) != width:
            raise ValueError(f"{path}, line {number} has {len(row)} cells; expected {width} as in the first")
    return lines


def _labeled(cells: Cells) -> tuple[bool, bool]:
    """Return two flags: whether the first row, and whether the first column, are labels."""
    wide = len(cells[0]) > 1
    if wide and not cells[0][0] and all(row[0] for row in cells[1:]):
        return True, True
    has_columns = all(_number(cell) is None for cell in cells[0])
    firsts = [row[0] for row in cells[has_columns:]]
    has_index = wide and bool(firsts) and all(cell and _number(cell) is None for cell in firsts)
    return has_columns, has_index


def _parsed(path: Path, line: int, row: list[str], first: int) -> list[float]:
    values = [_number(cell) for cell in row]
    if None in values:
        k = values.index(None)
        found = f"is {row[k]!r}" if row[k] else "is empty"
        raise ValueError(f"{path}, line {line}, column {first + k} {found}; expected a number")
    return [value for value in values if value is not None]


def _number(cell: str) -> float | None:
    # Python reads 2020_1 as a number; in a file it is a label.
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _read_mtx(path: Path, key: str | None) -> Table:
    """Read a Matrix Market file: a matrix in coordinates stays sparse, and entries of a pattern are one."""
    lines = read_latin(path).split("\n")
    kind, field, symmetric = _banner(path, lines[0])
    source = Lines(path, ["" if line.startswith("%") else line for line in lines])
    head, *body = source.written(0) or [len(lines) - 1]
    sizes = [_count(source, head, size) for size in source.table([head], _SIZES[kind])[0]]
    if symmetric and sizes[0] != sizes[1]:
        raise source.error(head, f"a symmetric matrix of shape {sizes[0]} x {sizes[1]}", "a square one")
    read = _dense if kind == "array" else _sparse
    return Table(read(source, head, body, sizes, field, symmetric))


def _banner(path: Path, line: str) -> tuple[str, str, bool]:
    """Return the kind of a file, the field of its numbers, and whether the matrix is symmetric."""
    words = line.lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ValueError(f"{path} cannot be read as .mtx: line 1 does not begin with %%MatrixMarket matrix")
    kind, field, symmetry = words[2:]
    if "complex" in words or "hermitian" in words:
        raise TypeError(f"{path} is complex; expected real numbers")
    known = kind in _SIZES and field in _COLUMNS and symmetry in ("general", "symmetric")
    if not known or (kind, field) == ("array", "pattern"):
        raise ValueError(
            f"{path} cannot be read as .mtx: line 1 says {kind} {field} {symmetry}; expected {_EXPECTED}"
        )
    return kind, field, symmetry == "symmetric"


def _count(source: Lines, line: int, size: float) -> int:
    if not (size >= 0 and size.is_integer() and size <= _LARGEST_INTEGER):
        raise source.error(line, f"the size {size:g}", "an integer of at least 0")
    return int(size)


def _check_number(source: Lines, head: int, body: list[int], count: int) -> None:
    if len(body) != count:
        expected = f"as many lines after it, not {len(body)}: the file may be cut"
        raise source.error(head, f"the sizes ask for {count} entries", expected)


def _dense(source: Lines, head: int, body: list[int], sizes: list[int], field: str, symmetric: bool) -> Any:
    rows, columns = sizes
    _check_number(source, head, body, rows * (rows + 1) // 2 if symmetric else rows * columns)
    if not body:
        return np.zeros((rows, columns))
    value = _values(source, body, source.table(body, ("the value",))[:, 0], field)
    if not symmetric:
        return value.reshape((rows, columns), order="F")
    matrix = np.zeros((rows, rows), dtype=value.dtype)
    j, i = np.triu_indices(rows)  # the lower triangle, column by column
    matrix[i, j] = matrix[j, i] = value
    return matrix


def _sparse(
    source: Lines, head: int, body: list[int], sizes: list[int], field: str, symmetric: bool
) -> sp.csr_array:
    rows, columns, count = sizes
    _check_number(source, head, body, count)
    check_memory(_POINTER * rows, f"the matrix of {rows} rows in {source.path}")
    names = _COLUMNS[field]
    table = source.table(body, names) if body else np.zeros((0, len(names)))
    for name, place, size in zip(names, table.T, (rows, columns), strict=False):
        bad = ~((place >= 1) & (place <= size) & (place % 1 == 0))
        if bad.any():
            k = int(bad.argmax())
            raise source.error(body[k], f"{name} is {place[k]:.17g}", f"an integer from 1 to {size}")
    i, j = table[:, :2].astype(np.intp).T - 1
    value = _values(source, body, table[:, 2] if len(names) > 2 else np.ones(count), field)
    if symmetric:  # the format has the lower triangle only; each entry also gives its mirror image
        i, j = np.maximum(i, j), np.minimum(i, j)
    order = np.lexsort((np.array(body), j, i))
    again = (np.diff(i[order]) == 0) & (np.diff(j[order]) == 0)
    if again.any():
        k = int(again.argmax())
        first, second = body[order[k]] + 1, body[order[k + 1]]
        found = f"the entry at {i[order[k]] + 1} {j[order[k]] + 1} of line {first} once more"
        raise source.error(second, found, "each entry once")
    if symmetric:
        off = i != j
        i, j, value = np.append(i, j[off]), np.append(j, i[off]), np.append(value, value[off])
    return sp.csr_array((value, (i, j)), (rows, columns))


def _values(source: Lines, body: list[int], value: Array, field: str) -> Any:
    """Return the values, as integers if the field of the file is "integer"."""
    if field != "integer" or (np.abs(value) >= _LARGEST_INTEGER).any():
        return value
    broken = value % 1 != 0
    if broken.any():
        k = int(broken.argmax())
        raise source.error(body[k], f"the value {value[k]:.17g}", "an integer")
    return value.astype(np.int64)


_READERS: dict[str, Callable[[Path, str | None], Table]] = {
    ".csv": _read_csv,
    ".npy": lambda path, key: Table(array_of(path, read_bytes(path, ARRAYS))),
    ".npz": _read_npz,
    ".mtx": _read_mtx,
}
SUFFIXES = tuple(_READERS)
