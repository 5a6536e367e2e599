"""The cones of a conic program that CVXPY makes for Clarabel: distances from them, and CVXPY's constraints.

Rows come in the order zero, nonnegative, second-order, psd, exponential. A psd matrix is given by its upper
triangle, column by column; entries off the diagonal are multiplied by the square root of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.presolve.svec import alike, orientation
from bregopt.records import dataclass

__all__ = ["Cone", "Isometry", "Triangle", "cones_of", "isometry", "triangle"]

_ROOT = np.sqrt(2.0)
_LEAST = 1e-300  # replaces zero in logarithms


class Triangle(NamedTuple):
    """The entry of each row of a psd matrix, which is ``weight * S[i, j]``, ``i <= j``."""

    i: IntArray
    j: IntArray
    weight: Array


def triangle(n: int) -> Triangle:
    """Return the entries and weights of the rows of a psd matrix of order `n`."""
    j, i = np.tril_indices(n)
    return Triangle(i, j, np.where(i == j, 1.0, _ROOT))


class Cone(Protocol):
    """A cone ``K`` and the `rows` of ``s`` that lie in it, those of ``z`` in its dual."""

    @property
    def rows(self) -> slice:
        """The rows."""
        ...

    def outside(self, s: Array) -> float:
        """Return the violation of the cone by a vector; at most zero inside."""
        ...

    def outside_dual(self, z: Array) -> float:
        """Return the violation of the dual cone by a vector; at most zero inside."""
        ...

    def inside(self) -> Array:
        """Return a vector strictly inside; zero if there is none."""
        ...

    def constraint(self, s: Any) -> Any:
        """Return CVXPY's constraint that an expression lies in the cone."""
        ...

    def multiplier(self, constraint: Any) -> Array:
        """Return the ``z`` of such a constraint that CVXPY has solved."""
        ...


@dataclass(frozen=True)
class _Zero:
    rows: slice

    def outside(self, s: Array) -> float:
        return float(np.abs(s).max(initial=0.0))

    def outside_dual(self, z: Array) -> float:
        return 0.0

    def inside(self) -> Array:
        return np.zeros(self.rows.stop - self.rows.start)

    def constraint(self, s: Any) -> Any:
        return s == 0

    def multiplier(self, constraint: Any) -> Array:
        return -np.ravel(constraint.dual_value)


@dataclass(frozen=True)
class _Nonnegative:
    rows: slice

    def outside(self, s: Array) -> float:
        return float(-s.min(initial=np.inf))

    outside_dual = outside

    def inside(self) -> Array:
        return np.ones(self.rows.stop - self.rows.start)

    def constraint(self, s: Any) -> Any:
        return s >= 0

    def multiplier(self, constraint: Any) -> Array:
        return np.ravel(constraint.dual_value)


@dataclass(frozen=True)
class _SecondOrder:
    """``|(s_1, ...)| <= s_0``."""

    rows: slice

    def outside(self, s: Array) -> float:
        return float(np.linalg.norm(s[1:]) - s[0])

    outside_dual = outside

    def inside(self) -> Array:
        return np.r_[1.0, np.zeros(self.rows.stop - self.rows.start - 1)]

    def constraint(self, s: Any) -> Any:
        return cp.SOC(s[0], s[1:]) if self.rows.stop > self.rows.start + 1 else s >= 0

    def multiplier(self, constraint: Any) -> Array:
        parts = constraint.dual_value
        return np.concatenate([np.ravel(part) for part in (parts if isinstance(parts, list) else [parts])])


@dataclass(frozen=True)
class _Psd:
    rows: slice
    n: int

    def outside(self, s: Array) -> float:
        i, j, weight = triangle(self.n)
        S = np.zeros((self.n, self.n))
        S[i, j] = S[j, i] = s / weight
        return float(-np.linalg.eigvalsh(S)[0])

    outside_dual = outside

    def inside(self) -> Array:
        i, j, _ = triangle(self.n)
        return np.where(i == j, 1.0, 0.0)

    def constraint(self, s: Any) -> Any:
        i, j, weight = triangle(self.n)
        off, n, row = np.flatnonzero(i != j), self.n, np.arange(len(i))
        places = np.concatenate([i + n * j, (j + n * i)[off]])
        spread = sp.csr_array(
            (np.concatenate([1 / weight, 1 / weight[off]]), (places, np.concatenate([row, off]))),
            (n * n, len(i)),
        )
        return cp.reshape(spread @ s, (n, n), order="F") >> 0

    def multiplier(self, constraint: Any) -> Array:
        i, j, weight = triangle(self.n)
        Z = np.asarray(constraint.dual_value)
        return np.asarray(weight * (Z + Z.T)[i, j] / 2)


@dataclass(frozen=True)
class _Exponential:
    """Triples ``s_1 exp(s_0 / s_1) <= s_2``, one after the other."""

    rows: slice

    def outside(self, s: Array) -> float:
        x, y, z = s.reshape(-1, 3).T
        reach = np.maximum(y, 0.0) * np.log(np.maximum(z, _LEAST) / np.maximum(y, _LEAST))
        return float(np.max([-y, -z, x - reach], initial=-np.inf))

    def outside_dual(self, z: Array) -> float:
        """Return the violation of ``-u exp(v / u) <= e w``, ``u <= 0``."""
        u, v, w = z.reshape(-1, 3).T
        p = np.maximum(-u, 0.0)
        least = -p - p * np.log(np.maximum(w, _LEAST) / np.maximum(p, _LEAST))
        return float(np.max([u, -w, least - v], initial=-np.inf))

    def inside(self) -> Array:
        return np.tile([0.0, 1.0, 2.0], (self.rows.stop - self.rows.start) // 3)

    def constraint(self, s: Any) -> Any:
        return cp.ExpCone(s[0::3], s[1::3], s[2::3])

    def multiplier(self, constraint: Any) -> Array:
        return np.column_stack([np.ravel(part) for part in constraint.dual_value]).ravel()


def cones_of(dims: Any) -> Iterator[Cone]:
    """Yield the cones of CVXPY's ``ConeDims`` that have rows."""
    start = 0

    def rows(count: int) -> slice:
        nonlocal start
        start += count
        return slice(start - count, start)

    if dims.zero:
        yield _Zero(rows(int(dims.zero)))
    if dims.nonneg:
        yield _Nonnegative(rows(int(dims.nonneg)))
    yield from (_SecondOrder(rows(int(size))) for size in dims.soc)
    yield from (_Psd(rows(int(n) * (int(n) + 1) // 2), int(n)) for n in dims.psd)
    if dims.exp:
        yield _Exponential(rows(3 * int(dims.exp)))


class Isometry(NamedTuple):
    """Vectors of second-order cones as ``S w`` with shorter vectors ``w`` of the same cones, ``S'S = I``.

    Parameters
    ----------
    S : csr_array
    dimensions : int array
        Of the ``w``.
    """

    S: Any
    dimensions: IntArray

    @property
    def back(self) -> Any:
        """``S'``: the ``w`` of vectors, and the rows of the ``w``."""
        return sp.csr_array(self.S.T)


def isometry(rows: Any, dimensions: IntArray) -> Isometry | None:
    """Return vectors whose elements are equal up to sign, such as mirrored ones, by each of them once.

    Such elements become one, times the root of their number, which leaves the norm. The norm of a symmetric
    matrix has each element off its diagonal twice.

    Parameters
    ----------
    rows : csr_array of shape (sum(dimensions), width)
        The coefficients and the constant of each element, the axis of a vector first.
    dimensions : int array
        Of the vectors.

    Returns
    -------
    Isometry or None
        None if no elements are equal.
    """
    if not len(dimensions):
        return None
    rows = sp.csr_array(rows, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    owner, axis = np.repeat(np.arange(len(dimensions)), dimensions), np.zeros(rows.shape[0])
    axis[np.cumsum(dimensions) - dimensions] = 1.0
    sign = orientation(rows)
    group = alike(rows, sign, axis, owner)
    if group is None:
        return None
    _, leader, of = np.unique(group, return_index=True, return_inverse=True)
    kept = np.sort(leader)
    place = np.searchsorted(kept, leader)[np.ravel(of)]
    value = sign * sign[kept][place] / np.sqrt(np.bincount(place))[place]
    S = sp.csr_array((value, (np.arange(len(value)), place)), (len(value), len(kept)))
    return Isometry(S, np.bincount(owner[kept], minlength=len(dimensions)))
