"""A declared constraint and its part of a program, for reports."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import IntArray
from bregopt.records import dataclass

__all__ = ["Declaration"]


@dataclass(frozen=True, eq=False)
class Declaration:
    """A declared constraint and its part of a program.

    Parameters
    ----------
    number : int
        Its place among the constraints of the problem.
    label : str
        The constraint as text.
    name : str or None
        The name that the user gave it.
    shape : tuple of int or None
        The shape of its rows, in C order; None for a constraint that holds or fails as a whole.
    rows : int array
        Its rows in the program.
    cones : int array
        Its second-order cones in the program.
    block : int or None
        The matrix whose eigenvalues it bounds.
    axes : tuple of pandas.Index or None
        The labels of its rows, one index for each axis.
    """

    number: int
    label: str
    name: str | None
    shape: tuple[int, ...] | None
    rows: IntArray
    cones: IntArray
    block: int | None = None
    axes: tuple[Any, ...] | None = None

    @property
    def title(self) -> str:
        """The name, or the number where it has none."""
        return f"constraint {self.number}" if self.name is None else self.name

    def index(self, k: int) -> tuple[Any, ...] | None:
        """Return the index or the labels of its `k`-th row; None if it is one row, or a whole."""
        if not self.shape:
            return None
        place = tuple(map(int, np.unravel_index(k, self.shape)))
        if self.axes is None:
            return place
        return tuple(axis[i] for axis, i in zip(self.axes, place, strict=True))
