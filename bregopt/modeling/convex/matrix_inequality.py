"""Linear matrix inequalities in the epigraphs of spectral atoms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import IntArray
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.expressions import Expression
from bregopt.modeling.variables import PSD

__all__ = ["block_matrix", "equal_matrix", "positive_semidefinite"]


def positive_semidefinite(F: Expression) -> Constraint:
    """Return rows that make an affine symmetric matrix positive semidefinite."""
    return equal_matrix(F)[1]


def equal_matrix(F: Expression) -> tuple[PSD, Constraint]:
    """Return a new matrix variable, and rows that equate it with an affine symmetric matrix."""
    Z = PSD(F.shape[0])
    upper = np.triu_indices(Z.n)
    return Z, Z[upper] - F[upper] == 0


def block_matrix(n: int, pieces: Sequence[tuple[IntArray, IntArray, Expression]]) -> Expression:
    """Return a symmetric matrix of order `n` of zeros and of pieces, each with its rows and columns.

    A piece stands at the mirrored places, too, and pieces at one place add up.
    """
    total: Any = np.zeros((n, n))
    for i, j, e in pieces:
        i, j, k = (np.ravel(index) for index in (i, j, np.arange(e.size)))
        off = i != j
        places = np.concatenate([n * i + j, (n * j + i)[off]])
        elements = np.concatenate([k, k[off]])
        S = sp.csr_array((np.ones(len(places)), (places, elements)), (n * n, e.size))
        flat = e.taken(np.arange(e.size), (e.size,), e.label).mapped(S)
        total = total + flat.taken(np.arange(n * n), (n, n), e.label)
    assert isinstance(total, Expression)
    return total
