"""The first ``R``: from an earlier answer, from the user, or random."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array, finite_array
from bregopt.program import LowRank, Program, Start
from bregopt.routes.burer_monteiro.surface import Surface

__all__ = ["first_factor"]


def first_factor(
    program: Program,
    surface: Surface,
    settings: Any,
    start: Start | None,
    columns: int,
    rng: np.random.Generator,
) -> Array:
    """Return the first ``R``, with at least `columns` columns; it need not be on the surface."""
    (block,) = program.blocks
    n = block.n
    if settings.factor is not None:
        given = _given(settings.factor, n)
    elif start is not None and start.X:
        (X,) = start.X
        given = X.factor if isinstance(X, LowRank) else _factor(X)
    else:
        return rng.normal(size=(n, columns)) * np.sqrt(surface.trace / (n * columns))
    if given.shape[1] >= columns:
        return np.array(given)
    size = settings.tuning.start_perturbation * float(np.linalg.norm(given)) / np.sqrt(n * columns)
    more = columns - given.shape[1]
    return np.hstack([given, rng.normal(size=(n, more)) * size])


def _given(value: Any, n: int) -> Array:
    """Return the factor that the user gives."""
    if isinstance(value, LowRank):
        factor = value.factor
    else:
        array = finite_array(value, "factor", ndim=(1, 2))
        factor = array[:, None] if array.ndim == 1 else array
    if factor.shape[0] != n or factor.shape[1] == 0:
        raise ValueError(f"factor has shape {np.shape(factor)}; expected {n} rows, one for each of X")
    return factor


def _factor(X: Array) -> Array:
    eigenvalues, Q = np.linalg.eigh(X)
    positive = eigenvalues > 1e-9 * eigenvalues[-1]
    return Q[:, positive] * np.sqrt(eigenvalues[positive])
