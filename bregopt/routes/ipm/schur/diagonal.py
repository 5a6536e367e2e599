"""The Schur matrix of rows that are one diagonal entry of ``X`` each: a Hadamard product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, covers, span
from bregopt.program.rows import Coordinates
from bregopt.routes.ipm.schur.placed_rows import block_of

__all__ = ["DiagonalRows"]


@dataclass(frozen=True, eq=False)
class DiagonalRows:
    """All rows of the stack, in order, as ``weight_k X_ii``.

    Parameters
    ----------
    block : index
        The block of ``X`` of the diagonal entries.
    weight : array of shape (m,), optional
        None stands for ones.
    """

    block: Any
    weight: Array | None

    @classmethod
    def of(cls, families: list[tuple[IntArray, Coordinates]], m: int) -> DiagonalRows | None:
        """Return the rows of families at indices of a stack of `m`; None if others are among them."""
        if m == 0 or sum(len(t.row) for _, t in families) != m:
            return None
        row = np.concatenate([at[t.row] for at, t in families])
        i, j, value = (np.concatenate([getattr(t, f) for _, t in families]) for f in ("i", "j", "value"))
        if not covers(span(row), m) or not np.array_equal(i, j):
            return None
        return cls(block_of(i, i), None if (value == 1).all() else value)

    def products(self, P: Array, Q: Array) -> Array:
        """Return the Schur matrix."""
        H: Array = P[self.block] * Q[self.block]
        return H if self.weight is None else self.weight[:, None] * H * self.weight
