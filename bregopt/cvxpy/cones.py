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
from bregopt.program.bounds import boost_factor
from bregopt.records import dataclass

__all__ = ["Cone", "Coordinates", "Triangle", "cones_of", "coordinates_of", "triangle"]

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


class Coordinates(NamedTuple):
    """Vectors ``s`` of second-order cones by ``w = S's``, also in such cones; the dual of ``s`` is ``S z``.

    Parameters
    ----------
    S : csr_array
        The dual of ``w`` is ``z``.
    dimensions : int array
        Of the ``w``.
    """

    S: Any
    dimensions: IntArray

    @property
    def back(self) -> Any:
        """``S'``: the ``w`` of vectors, and the rows of the ``w``."""
        return sp.csr_array(self.S.T)


def coordinates_of(rows: Any, dimensions: IntArray) -> Coordinates | None:
    """Return better coordinates of vectors in second-order cones.

    Elements that are equal up to sign, such as mirrored ones, become one, times the root of their number,
    which leaves the norm: that of a symmetric matrix has each element off its diagonal twice. The cone of
    ``||x||^2 <= t``, which CVXPY writes as ``(1 + t, 1 - t, 2 x)``, becomes ``(r + t / r, r - t / r, 2 x)``.

    Parameters
    ----------
    rows : csr_array of shape (sum(dimensions), width)
        The coefficients and the constant of each element, the axis of a vector first.
    dimensions : int array
        Of the vectors.

    Returns
    -------
    Coordinates or None
        None if those that are given are as good.
    """
    if not len(dimensions):
        return None
    rows = sp.csr_array(rows, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    shorter = _without_copies(rows, dimensions)
    if shorter is None:
        boost = _boost(rows, dimensions)
        return None if boost is None else Coordinates(boost, dimensions)
    boost = _boost(sp.csr_array(shorter.back @ rows), shorter.dimensions)
    return shorter if boost is None else shorter._replace(S=sp.csr_array(shorter.S @ boost))


def _without_copies(rows: Any, dimensions: IntArray) -> Coordinates | None:
    """Return vectors by each of their elements once, None if no elements are equal up to sign."""
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
    return Coordinates(S, np.bincount(owner[kept], minlength=len(dimensions)))


# Pays on: squares of a matrix below a variable, n = 60.
def _boost(rows: Any, dimensions: IntArray) -> Any:
    """Return the Lorentz boosts that make both factors of rotated cones equally large, None for none.

    In a rotated cone the axis plus or minus another element is a constant ``q > 0``. Their difference
    times their sum is at least the square of the norm of the others. A boost makes ``f q`` of one and
    divides the other by ``f``.
    """
    start, owner = np.cumsum(dimensions) - dimensions, np.repeat(np.arange(len(dimensions)), dimensions)
    slopes, constant = sp.csr_array(rows[:, :-1]), rows[:, [-1]].toarray().ravel()
    label = slopes @ np.random.default_rng(0).uniform(1.0, 2.0, slopes.shape[1])
    same = np.isclose(np.abs(label), np.abs(label[start])[owner]) & (label != 0)
    same[start] = False
    if not same.any():
        return None
    at = np.flatnonzero(same)
    cone, first = np.unique(owner[at], return_index=True)
    axis, at = start[cone], at[first]
    sign = np.sign(label[axis] * label[at])
    apart = abs(slopes[axis] - sp.diags_array(sign) @ slopes[at]).sum(axis=1)
    q, square = constant[axis] - sign * constant[at], constant**2
    square[axis] = square[at] = 0.0
    size = np.sqrt(np.bincount(owner, square, len(dimensions)))[cone]
    chosen = np.flatnonzero((apart == 0) & (q > 0) & (size > 0))
    axis, at, sign = axis[chosen], at[chosen], sign[chosen]
    f = boost_factor(q[chosen], size[chosen])
    if (f == 1).all():
        return None
    own, mixed, m = (1 / f + f) / 2 - 1, sign * (1 / f - f) / 2, len(owner)
    places = np.concatenate([axis, at, axis, at]), np.concatenate([axis, at, at, axis])
    change = sp.csr_array((np.concatenate([own, own, mixed, mixed]), places), (m, m))
    return sp.csr_array(sp.eye_array(m) + change)
