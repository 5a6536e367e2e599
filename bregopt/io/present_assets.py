"""Stacks of matrices in which some rows and columns hold only NaN: assets that are missing on some dates."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import IntArray, Mask
from bregopt.io.matrix_stacks import Group
from bregopt.io.pandas_labels import Labels, is_pandas
from bregopt.io.stacks import MatrixStack

__all__ = ["PresentStack", "present_stack"]


@dataclass(frozen=True, eq=False)
class PresentStack:
    """The matrices of a stack without their missing rows and columns.

    Parameters
    ----------
    whole : MatrixStack
    present : mapping from int to boolean array
        The rows that are there, of each matrix in which some are missing, by its position.
    """

    whole: Any
    present: Mapping[int, Mask]

    @property
    def keys(self) -> Sequence[Any]:
        """The keys of the matrices."""
        return self.whole.keys

    @property
    def order(self) -> int:
        """The number of all labels, or the largest order."""
        return self.whole.order

    @property
    def all_labels(self) -> Iterable[Hashable]:
        """The labels of all matrices, numbers where they have none."""
        return self.whole.all_labels

    @property
    def groups(self) -> Iterator[Group]:
        """The matrices of equal order and labels."""
        for group in self.whole.groups:
            kinds: dict[bytes, list[int]] = {}
            everything = np.ones(group.values.shape[1], dtype=bool)
            masks = [self.present.get(k, everything) for k in group.positions.tolist()]
            for k, mask in enumerate(masks):
                kinds.setdefault(mask.tobytes(), []).append(k)
            for own in kinds.values():
                rows = np.flatnonzero(masks[own[0]])
                values = group.values[np.ix_(np.array(own), rows, rows)]
                yield Group(group.positions[own], values, None if group.rows is None else group.rows[rows])

    def part(self, a: int, b: int) -> PresentStack:
        """Return the matrices in the positions from `a` to ``b - 1``."""
        return PresentStack(self.whole.part(a, b), {k - a: m for k, m in self.present.items() if a <= k < b})

    def one(self, k: int) -> Any:
        """Return one matrix, without what is missing.

        Raises
        ------
        ValueError
            If all of it is missing.
        """
        matrix = self.whole.one(k)
        if k not in self.present:
            return matrix
        rows = np.flatnonzero(self.present[k])
        if len(rows) == 0:
            raise ValueError("A has only NaN; expected numbers for one row at least")
        return _block(matrix, rows)

    def labels(self, k: int) -> Labels:
        """Return the labels of one matrix, None if it has none."""
        labels = self.whole.labels(k)
        return labels if labels is None or k not in self.present else labels[self.present[k]]

    def collected(self, matrices: Sequence[Any]) -> Any:
        """Return answers in the form of the data, NaN where an asset is missing."""
        whole = list(matrices)
        for k, mask in self.present.items():
            if matrices[k] is not None:
                whole[k] = np.full((len(mask),) * 2, np.nan)
                whole[k][np.ix_(mask, mask)] = matrices[k]
        return self.whole.collected(whole)


def present_stack(stack: MatrixStack) -> Any:
    """Return the stack itself if no row of a matrix is missing."""
    present = {}
    for group in stack.groups:
        if not np.isnan(group.values).any():
            continue
        empty = np.isnan(group.values)
        missing: Any = empty.all(axis=2) & empty.all(axis=1)
        for k, mask in zip(group.positions.tolist(), missing, strict=True):
            if mask.any():
                present[k] = ~mask
    return PresentStack(stack, present) if present else stack


def _block(matrix: Any, rows: IntArray) -> Any:
    """Return the rows and columns of a square matrix."""
    if is_pandas(matrix, "DataFrame"):
        return matrix.iloc[rows, rows]
    return np.asarray(matrix)[np.ix_(rows, rows)]
