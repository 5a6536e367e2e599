"""Bounds that are theorems: every rounding of the proof is bounded, so that no optimum lies outside them.

On them rest the words infeasible and unbounded. A Farkas vector of a problem is a vector of multipliers with
a positive bound for the zero objective: its multiples prove bounds beyond every number. A ray is a point of
the homogeneous problem with a negative value. :mod:`bregopt.certify` tests both up to round-off. Only vectors
that pass wait for the proof, in which every rounding counts (:mod:`bregopt.rigorous.proof`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import is_farkas, is_ray
from bregopt.certify.proofs import MENDED
from bregopt.program import Matrix, Program

__all__ = ["contradicts", "proves_bound", "proves_infeasible", "proves_unbounded", "recedes"]


def contradicts(program: Program, y: Array) -> bool:
    """Whether a method stops at multipliers: they prove a contradiction, or only round-off can be in the way.

    Where ``A*(y)`` has a positive eigenvalue beyond round-off and no proof succeeds, the method goes on: the
    problem may have a solution of size one over that eigenvalue.
    """
    # Most candidates fail the weaker test.
    suspected = is_farkas(program, y, MENDED, conclusive=False)
    return suspected and (is_farkas(program, y) or proves_infeasible(program, y))


def recedes(program: Program, X: Sequence[Array], u: Array) -> bool:
    """Whether a method stops at a direction: it is a proven ray, or only round-off can be in the way."""
    return is_ray(program, X, u) or (is_ray(program, X, u, MENDED) and proves_unbounded(program, X, u))


def proves_infeasible(program: Program, y: Array) -> bool:
    """Whether multipliers, or such near them, prove that no ``X`` and ``u`` meet the required rows.

    Parameters
    ----------
    program : Program
        Before its reductions.
    y : array of shape (m,)
    """
    if not np.isfinite(y).all():
        return False
    from bregopt.rigorous.proof import is_refuted

    return is_refuted(program, y)


def proves_unbounded(program: Program, X: Sequence[Matrix], u: Array) -> bool:
    """Whether a direction, or one near it, proves that the objective falls without end from any point.

    Parameters
    ----------
    program : Program
        Before its reductions.
    X : sequence of arrays of shape (n_b, n_b)
    u : array of shape (k,)
    """
    from bregopt.rigorous.proof import falls_along

    return falls_along(program, X, u)


def proves_bound(program: Program, y: Array) -> bool:
    """Whether multipliers prove a finite bound on the optimum, without a tolerance."""
    from bregopt.rigorous.proof import is_bounded

    return is_bounded(program, y)
