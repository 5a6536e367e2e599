"""Exact solutions of linear equations near an approximate one, proven to exist.

Let ``A`` have full row rank, and ``r = b - A x``. The least change that solves the equations is
``A'(A A')^-1 r``, of norm ``(r'(A A')^-1 r)^(1/2) <= ||r|| / lambda_min(A A')^(1/2)``. So a proven least
eigenvalue of ``A A'`` and an enclosure of ``r`` prove a solution within that radius of ``x``, for every ``A``
within given radii (Jansson, Chaykin and Keil 2007, §4, bound the change by interval solutions instead).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray
from bregopt.records import dataclass
from bregopt.rigorous.ball import UNIT, Ball, gamma, inflated, up
from bregopt.rigorous.definite import proven_shift

__all__ = ["LARGEST_SYSTEM", "Found", "Part", "Rows", "nearest_solution", "squares"]

LARGEST_SYSTEM = 6000  # equations whose normal matrix is factorized densely
_ROUNDS = 4  # of refinement
_POWER_STEPS = 5
_DENSE = 0.05  # share of nonzeros above which a dense product is faster


class Part(NamedTuple):
    """One part of the unknowns.

    Parameters
    ----------
    A : csr_array of shape (rows, p)
    rad : csr_array of the same shape, or None
    share : array of shape (p,)
        The squared norm of a change ``d`` is ``sum d^2 / share``; 1/2 for pairs of entries of a matrix.
    columns : int array
        The unknowns that may change.
    """

    A: Any
    rad: Any
    share: Array
    columns: IntArray


State = TypeVar("State")


class Found(NamedTuple, Generic[State]):
    """An approximate solution, and the distance within which an exact one exists."""

    x: State
    radius: float


@dataclass(frozen=True, eq=False)
class Rows:
    """Equations, scaled by powers of two to rows of norms near one, with their normal matrix.

    Parameters
    ----------
    parts : list of (Part, csr_array)
        Each with its scaled columns.
    scale : array of shape (rows,)
    solve : callable or None
        The solution of a system with the computed normal matrix; None where there is none.
    least : float
        A proven lower bound on the eigenvalues of the exact one; not above zero where nothing is proven.
    """

    parts: list[tuple[Part, Any]]
    scale: Array
    solve: Callable[[Array], Array] | None
    least: float

    @classmethod
    def of(cls, parts: Sequence[Part], rows: IntArray) -> Rows:
        """Return the given rows."""
        own = [_chosen(part.A, rows, part.columns) for part in parts]
        size = np.zeros(len(rows))
        for part, A in zip(parts, own, strict=True):
            size += squares(A, part.share[part.columns])
        exponent = np.where(size > 0, -np.round(np.log2(np.where(size > 0, size, 1.0)) / 2), 0.0)
        scale = 2.0**exponent  # exact
        scaled = [_scaled(A, scale) for A in own]
        diagonal, spread, terms = np.zeros(len(rows)), np.zeros(len(rows)), 1
        for part, A in zip(parts, scaled, strict=True):
            share = part.share[part.columns]
            diagonal += squares(A, share)
            terms += int(np.diff(A.indptr).max(initial=0)) + 2
            if part.rad is not None:
                spread += squares(_scaled(_chosen(part.rad, rows, part.columns), scale), share)
        norms, spread = (np.sqrt(part) * (1 + gamma(terms + 4)) for part in (diagonal, spread))
        # Summing a_i'a_j has an error of at most gamma ||a_i|| ||a_j||, and radii r_i change it by at most
        # ||a_i|| ||r_j|| + ||r_i|| (||a_j|| + ||r_j||): outer products of vectors, whose norms are known.
        length, apart = Ball.exact(norms).frobenius(), Ball.exact(spread).frobenius()
        error = gamma(terms + 4) * length**2 + 2 * length * apart + apart**2 + len(rows) * terms * TINY
        error, own = inflated(error), list(zip(parts, scaled, strict=True))
        if all(np.bincount(A.indices).max(initial=0) <= 1 for A in scaled) and diagonal.all():
            return cls(own, scale, lambda r: r / diagonal, float(diagonal.min(initial=np.inf)) - error)
        G = np.sum([_normal(A, part.share[part.columns]) for part, A in own], axis=0)
        least, solve = _factorized((G + G.T) / 2, error)
        return cls(own, scale, solve, least)

    def change(self, r: Array) -> list[Array]:
        """Return the least change that raises the rows by about `r`, for the columns of each part."""
        assert self.solve is not None
        solved = self.solve(self.scale * r)
        return [part.share[part.columns] * (A.T @ solved) for part, A in self.parts]

    def radius(self, r: Ball) -> float:
        """Return a proven distance to a solution from a point with the residual `r`; inf if there is none."""
        if not self.least > 0:
            return math.inf
        size = Ball(r.mid * self.scale, r.rad * self.scale).frobenius()
        return up(inflated(size / math.sqrt(self.least) * (1 + 4 * UNIT)))


def nearest_solution(
    rows: Rows,
    x: State,
    residual: Callable[[State], Ball],
    moved: Callable[[State, list[Array]], State],
) -> Found[State] | None:
    """Return a refined solution and its proven distance from an exact one, None where nothing is proven.

    Parameters
    ----------
    rows : Rows
    x : State
        The unknowns, from which refinement starts.
    residual : callable
        From the unknowns to a ball around what the rows lack.
    moved : callable
        From the unknowns and the change of each part to other unknowns.
    """
    if not rows.least > 0:
        return None
    r = residual(x)
    found = Found(x, rows.radius(r))
    for _ in range(_ROUNDS if rows.solve is not None else 0):
        if (np.abs(r.mid) <= r.rad).all():  # round-off, which no change reduces
            break
        closer = moved(found.x, rows.change(r.mid))
        r = residual(closer)
        last, radius = found, rows.radius(r)
        if not radius < last.radius:
            break
        found = Found(closer, radius)
        if radius >= last.radius / 4:
            break
    return found if math.isfinite(found.radius) else None


def _factorized(G: Array, error: float) -> tuple[float, Callable[[Array], Array] | None]:
    """Return a proven bound on the least eigenvalue of every matrix within `error` of `G`, and its solve.

    Inverse iteration estimates the eigenvalue, and half of the estimate is proven by a second factorization.
    """
    try:
        root = scipy.linalg.cho_factor(G, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return -math.inf, None
    solve = partial(scipy.linalg.cho_solve, root, check_finite=False)
    v = np.random.default_rng(0).normal(size=len(G))
    for _ in range(_POWER_STEPS):
        v /= float(np.abs(v).max())
        v = solve(v)
        if not np.isfinite(v).all():
            return -math.inf, None
    estimate = 1 / max(float(np.abs(v).max()), TINY)
    for share in (0.5, 0.1):
        found = proven_shift(G, share * estimate)
        if found is not None:
            return found - inflated(error), solve
    return -math.inf, None


def squares(A: Any, share: Array) -> Array:
    """Return the sums of squares of the rows of a CSR array, weighted by a share for each column."""
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    return np.bincount(row, A.data**2 * share[A.indices], A.shape[0]).astype(float)


def _chosen(A: Any, rows: IntArray, columns: IntArray) -> Any:
    """Return some rows and columns of a CSR array, each in ascending order."""
    A = A if len(rows) == A.shape[0] else A[rows]
    return A if len(columns) == A.shape[1] else sp.csr_array(A[:, columns])


def _scaled(A: Any, scale: Array) -> Any:
    """Return a CSR array with its rows multiplied by powers of two."""
    A = A.copy()
    A.data *= np.repeat(scale, np.diff(A.indptr))
    return A


def _normal(A: Any, share: Array) -> Array:
    """Return ``A diag(share) A'`` as a dense array."""
    if A.nnz > _DENSE * A.shape[0] * A.shape[1]:
        D = A.toarray()
        product: Array = (D * share) @ D.T
        return product
    found: Array = (sp.csr_array(A * share) @ A.T).toarray()
    return found
