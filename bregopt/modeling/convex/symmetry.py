"""Symmetric matrices among affine expressions: mirrored elements are one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bregopt.arrays import Array
from bregopt.modeling.affine import Affine
from bregopt.modeling.expressions import Expression

__all__ = ["distinct", "is_symmetric", "svec"]

_ROUND_OFF = 1e-12  # relative difference of mirrored elements that counts as none


def distinct(e: Expression) -> tuple[Expression, Array]:
    """Return the elements as a vector, with multiplicities: mirrored ones of a symmetric matrix are one."""
    if not is_symmetric(e):
        return replace(e, shape=(e.size,)), np.ones(e.size)
    n = e.shape[0]
    i, j = np.triu_indices(n)
    return e.taken(n * i + j, (len(i),), e.label), np.where(i == j, 1.0, 2.0)


def svec(e: Expression) -> Expression:
    """Return a vector of the same Euclidean norm; mirrored elements of a symmetric matrix are one."""
    elements, count = distinct(e)
    return elements if elements.size == e.size else elements.times(np.sqrt(count))


def is_symmetric(e: Affine, at_zero: bool = False) -> bool:
    """Whether an affine expression is a symmetric matrix of order two or more.

    One that is symmetric at a random point is symmetric everywhere, with probability one.

    Parameters
    ----------
    e : Affine
    at_zero : bool
        Whether all parameters are zero; otherwise they have any values.
    """
    if len(e.shape) != 2 or e.shape[0] != e.shape[1] or e.shape[0] < 2:
        return False
    rng, values = np.random.default_rng(0), {}
    for X in e.operands("psd"):
        G = rng.standard_normal((X.n, X.n))
        values[X] = (G + G.T) / 2
    for u in e.operands("variables"):
        values[u] = rng.standard_normal(u.size)
    for p in e.operands("parameters"):
        values[p] = np.zeros(p.size) if at_zero else rng.standard_normal(p.size)
    F = np.asarray(e.at(values))
    return bool(np.abs(F - F.T).max() <= _ROUND_OFF * np.abs(F).max())
