"""The matrix of a problem over rows: dense, or low rank on the range of its ``X0``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array, symmetric_matrix
from bregopt.divergences import DIVERGENCES, Divergence, divergence_named
from bregopt.linalg import is_definite
from bregopt.presolve.range_space import RANK_TOL
from bregopt.program import LowRank, Matrix

__all__ = ["Space", "divergence_class", "space_of"]


@dataclass(frozen=True, eq=False)
class Space:
    """Rows are ``z' T M T' z``, and the answer is ``T M T'``, or ``F T M T' F'`` for a factor `F`.

    Parameters
    ----------
    T : array of shape (d, r)
    M0 : array of shape (r, r)
    factor : array of shape (n, d) or None
    """

    T: Array
    M0: Array
    factor: Array | None = None

    def lift(self, root: Array) -> Matrix:
        """Return the answer for ``M = root root'``."""
        outer = self.T @ root
        return outer @ outer.T if self.factor is None else LowRank(self.factor @ outer)


def space_of(X0: Any, dimension: int | None, kind: type[Divergence]) -> Space:
    """Return the space of ``X0`` for vectors of a dimension, None for pairs of the rows of its factor.

    Raises
    ------
    TypeError, ValueError
        If ``X0`` is not positive definite, or its order is not that of the rows.
    """
    if isinstance(X0, LowRank) and dimension is None:
        return _of_range(X0.factor, kind)
    if dimension is None:
        raise TypeError("X0 is a dense matrix and the rows are pairs without points; give RowChunks(points=)")
    start = symmetric_matrix(np.asarray(X0) if isinstance(X0, LowRank) else X0, "X0")
    if len(start) != dimension:
        raise ValueError(
            f"X0 is {len(start)} x {len(start)} and the rows have {dimension} coordinates; "
            "expected the same number"
        )
    if not is_definite(start):
        raise ValueError("X0 is not positive definite; expected that for rows in chunks")
    return Space(np.eye(len(start)), start)


def divergence_class(name: str) -> type[Divergence]:
    """Return the divergence of a name, one that stays inside the cone and has a penalty of numbers.

    Raises
    ------
    ValueError
        For any other.
    """
    kind = divergence_named(name)
    if not kind.keeps_range or kind.penalty is None:
        usable = [repr(n) for n, k in DIVERGENCES.items() if k.keeps_range and k.penalty is not None]
        raise ValueError(f"divergence is {name!r}; for rows in chunks expected {' or '.join(usable)}")
    return kind


def _of_range(F: Array, kind: type[Divergence]) -> Space:
    """Return the range space of ``F F'``, with ``F = U diag(s) W'``.

    The points are ``F W`` where congruences do not change the divergence, ``U = F W / s`` otherwise.
    """
    _, s, Wt = np.linalg.svd(np.linalg.qr(F, mode="r"))
    if s[0] == 0:
        raise ValueError("X0 is zero: a LowRank start needs a factor that is not zero")
    r = int(np.sum(s > RANK_TOL * s[0]))
    W, s = Wt[:r].T, s[:r]
    return Space(W, np.eye(r), F) if kind.congruence_invariant else Space(W / s, np.diag(s**2), F)
