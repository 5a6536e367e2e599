"""Matrix Market files: real matrices, dense or sparse, general or symmetric.

The format is that of Boisvert, Pozo and Remington (1996), The Matrix Market Exchange Formats: Initial
Design, NISTIR 5935.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.files import read_bytes
from bregopt.io.lines import Lines
from bregopt.memory import check_memory

__all__ = ["read_matrix_market"]

_SIZES = {"array": ("rows", "columns"), "coordinate": ("rows", "columns", "entries")}
_COLUMNS = {"pattern": ("i", "j"), "real": ("i", "j", "value"), "integer": ("i", "j", "value")}
_EXPECTED = "array or coordinate, real, integer or pattern, general or symmetric"
_POINTER = 8  # bytes of a sparse matrix for each row
_LARGEST_INTEGER = 2**53  # up to here a double represents every integer


def read_matrix_market(path: Path) -> Any:
    """Read a matrix; a matrix in coordinates stays sparse.

    Parameters
    ----------
    path : Path

    Returns
    -------
    array of shape (rows, columns) or csr_array
        Integers stay integers; entries of a pattern are one.

    Raises
    ------
    TypeError
        If the numbers are complex.
    ValueError
        If the file is of another kind, its counts disagree with its lines, or an entry is no number, lies
        outside the matrix or is given twice; the message names the line.
    """
    lines = read_bytes(path).decode("latin-1").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    kind, field, symmetric = _banner(path, lines[0])
    source = Lines(path, ["" if line.startswith("%") else line for line in lines])
    head, *body = source.written(0) or [len(lines) - 1]
    sizes = [_count(source, head, size) for size in source.table([head], _SIZES[kind])[0]]
    if symmetric and sizes[0] != sizes[1]:
        raise source.error(head, f"a symmetric matrix of shape {sizes[0]} x {sizes[1]}", "a square one")
    if kind == "array":
        return _dense(source, head, body, sizes, field, symmetric)
    return _sparse(source, head, body, sizes, field, symmetric)


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
    _check_once(source, body, i, j)
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


def _check_once(source: Lines, body: list[int], i: IntArray, j: IntArray) -> None:
    order = np.lexsort((np.array(body), j, i))
    again = (np.diff(i[order]) == 0) & (np.diff(j[order]) == 0)
    if again.any():
        k = int(again.argmax())
        first, second = body[order[k]] + 1, body[order[k + 1]]
        found = f"the entry at {i[order[k]] + 1} {j[order[k]] + 1} of line {first} once more"
        raise source.error(second, found, "each entry once")
