"""Matrices in files: ``.csv`` with or without labels, ``.npy``, ``.npz`` and Matrix Market ``.mtx``."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import finite_array
from bregopt.errors import did_you_mean
from bregopt.files import ARRAYS, archive_of, array_of, member_of, path_of, read_bytes, read_text, reading
from bregopt.io.matrix_market import read_matrix_market

__all__ = ["SUFFIXES", "Table", "csv_text", "read_matrix"]

Labels = tuple[str, ...]
Cells = list[list[str]]

_LARGEST_INTEGER = 2**53  # up to here a double represents every integer


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
    index: Labels | None = None
    columns: Labels | None = None


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


def csv_text(X: Any, index: Labels | None = None, columns: Labels | None = None) -> str:
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


def _read_npy(path: Path, key: str | None) -> Table:
    return Table(array_of(path, read_bytes(path, ARRAYS)))


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


def _read_mtx(path: Path, key: str | None) -> Table:
    return Table(read_matrix_market(path))


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
    if all(_is_integer(cell) for _, row in body for cell in row) and np.abs(values).max() < _LARGEST_INTEGER:
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


def _is_integer(cell: str) -> bool:
    return cell.lstrip("+-").isdigit()


_READERS: dict[str, Callable[[Path, str | None], Table]] = {
    ".csv": _read_csv,
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".mtx": _read_mtx,
}
SUFFIXES = tuple(_READERS)
