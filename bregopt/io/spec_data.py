"""The data of a spec: numbers in it, and arrays in files of its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import complex_array, finite_array
from bregopt.files import read_arrays
from bregopt.io.matrices import Table, read_matrix
from bregopt.io.spec_keys import check_keys, typed
from bregopt.program.lowrank import LowRank

__all__ = ["arrays_of", "entry_of", "inline", "labels_a_square"]


def entry_of(value: Any, folder: Path) -> tuple[Any, Table | None]:
    """Return the value of an entry of ``[data]``, and the table that it was read from."""
    if not isinstance(value, dict):
        return inline(value), None
    if "factor" in value:
        check_keys(value, "factor")
        return LowRank(finite_array(value["factor"], "factor", ndim=2)), None
    table = _from_file(value, folder)
    if not typed(value.get("low_rank", False), bool, "low_rank"):
        return table.values, table
    values = table.values
    return LowRank(values if sp.issparse(values) else values.reshape(len(values), -1)), table


def arrays_of(name: Any, digest: Any, folder: Path) -> dict[str, Any]:
    """Return all arrays of an ``.npz`` file by name: finite numbers and strings, of any shape, also empty."""
    path = _beside(typed(name, str, "the value"), folder)
    if path.suffix.lower() != ".npz":
        raise ValueError(f"{path}: expected an .npz file")
    arrays = read_arrays(path, None if digest is None else typed(digest, str, "digest"))
    for name, array in arrays.items():
        if array.dtype.kind not in "biuU":
            complex_array(array, f"{name} of {path}")
    return arrays


def labels_a_square(table: Table) -> bool:
    """Whether a table is a square matrix with the same labels for rows and columns."""
    labels = {found for found in (table.index, table.columns) if found is not None}
    return len(labels) == 1 and table.values.shape == 2 * (len(labels.pop()),)


def inline(value: Any) -> Any:
    """Return a number or an array; integers stay integers, so that they can be indices."""
    finite = finite_array(value, "the value")
    given = np.asarray(value)
    if given.dtype.kind == "b":
        raise TypeError(f"the value is {value!r}; expected numbers")
    if finite.size == 0:
        raise ValueError("the value is empty; expected numbers")
    if finite.ndim == 0:
        return value
    return given if given.dtype.kind == "i" else finite


def _from_file(table: dict[str, Any], folder: Path) -> Table:
    check_keys(table, "file")
    if "file" not in table:
        raise ValueError('file is missing; expected { file = "name.csv" }')
    name = typed(table["file"], str, "file")
    key = typed(table["key"], str, "key") if "key" in table else None
    return read_matrix(_beside(name, folder), key)


def _beside(name: str, folder: Path) -> Path:
    """Return the path of a file that a spec names; links must not lead out of the spec's folder."""
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # links in a circle
        raise ValueError(f"file is {name!r}, which cannot be followed: {error}") from error
    if not inside:
        raise ValueError(f"file is {name!r}, outside the spec's folder; expected one in it or below it")
    return path
