"""Stacks of matrices in pandas frames with an index of two levels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import Array, IntArray, Mask, rectangular
from bregopt.cache import cached_property
from bregopt.io.matrix_stacks import ALL_PRESENT, Group, real_numbers
from bregopt.io.pandas_labels import Labels, pandas_module

__all__ = ["FrameStack", "frame_stack"]


@dataclass(frozen=True, eq=False)
class FrameStack:
    """Matrices in a frame with the keys in the first level of its index, labels in the second and columns.

    Parameters
    ----------
    frame : DataFrame
    keys : tuple
    rows : list of int arrays
        The rows of each matrix.
    """

    frame: Any
    keys: tuple[Hashable, ...]
    rows: list[IntArray]

    present: ClassVar[Mapping[int, Mask]] = ALL_PRESENT

    @property
    def groups(self) -> Iterable[Group]:
        """The matrices of equal order and labels."""
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
        """The number of all labels, or the largest order."""
        return self.frame.shape[1]

    @property
    def all_labels(self) -> Iterable[Hashable]:
        """The labels of all matrices, numbers where they have none."""
        return self.frame.columns

    def part(self, a: int, b: int) -> FrameStack:
        """Return the matrices in the positions from `a` to ``b - 1``."""
        rows = self.rows[a:b]
        ends = np.cumsum([0, *map(len, rows)])
        frame = self.frame.iloc[np.concatenate(rows)]
        return FrameStack(frame, self.keys[a:b], [*map(np.arange, ends[:-1], ends[1:])])

    def one(self, k: int) -> Any:
        """Return one matrix as it was given."""
        own, columns = self.frame.iloc[self.rows[k]].droplevel(0), self._columns[k]
        return own if columns is None else own.iloc[:, columns]

    def labels(self, k: int) -> Labels:
        """Return the labels of one matrix, None if it has none."""
        columns = self._columns[k]
        return self.frame.columns if columns is None else self.frame.columns[columns]

    def collected(self, matrices: Sequence[Any]) -> Any:
        """Return answers, None where there is none, in the form of the data."""
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


def frame_stack(frame: Any, name: str, real: bool) -> FrameStack:
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
    return FrameStack(frame, tuple(keys), rows)
