"""Symmetric matrices among affine expressions: mirrored elements are one."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.modeling.affine import Affine
from bregopt.modeling.expressions import Expression

__all__ = ["distinct", "is_symmetric"]

_ROUND_OFF = 1e-12  # relative difference of mirrored elements that counts as none


def distinct(e: Expression) -> tuple[Expression, Array]:
    """Return the elements as a vector, with multiplicities: mirrored ones of a symmetric matrix are one."""
    if not is_symmetric(e):
        return e.taken(np.arange(e.size), (e.size,), e.label), np.ones(e.size)
    n = e.shape[0]
    i, j = np.triu_indices(n)
    return e.taken(n * i + j, (len(i),), e.label), np.where(i == j, 1.0, 2.0)


def is_symmetric(e: Affine) -> bool:
    """Whether an affine expression is a symmetric matrix of order two or more, up to round-off."""
    if len(e.shape) != 2 or e.shape[0] != e.shape[1] or e.shape[0] < 2:
        return False
    n = e.shape[0]
    i, j = np.triu_indices(n, 1)
    upper, lower = (e.taken(at, (len(i),), e.label) for at in (n * i + j, n * j + i))
    difference = upper.plus(lower.times(-1.0))
    if not _vanishes(difference.constant, e.constant):
        return False
    pairs = [(difference.variables[u], e.variables[u]) for u in difference.variables]
    pairs += [(difference.parameters[p], e.parameters[p]) for p in difference.parameters]
    if not all(_vanishes(a.data, b.data) for a, b in pairs):
        return False
    return all(_vanishes(rows.norms(), e.psd[X].norms()) for X, rows in difference.psd.items())


def _vanishes(left: Any, right: Any) -> bool:
    largest = np.abs(right).max(initial=0.0)
    return bool(np.abs(left).max(initial=0.0) <= _ROUND_OFF * largest)
