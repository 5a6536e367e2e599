"""Convex functions that are terms of a program: the interface, vectors of matrices, functions of numbers.

A function has one vector of arguments. A matrix among them is ``hvec(S)``: the real parts on and above the
diagonal, and for a complex Hermitian matrix the imaginary parts above it; those above the diagonal times the
root of two. Inner products of vectors are the real inner products of matrices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray
from bregopt.records import dataclass


def hvec_length(n: int, hermitian: bool) -> int:
    """Return the length of the vector of a matrix of order `n`."""
    return n * n if hermitian else n * (n + 1) // 2


def hvec(S: Array) -> Array:
    """Return the vectors of real symmetric or complex Hermitian matrices, shape ``(..., n, n)``."""
    i, j, scale, strict = upper_places(n := S.shape[-1])
    upper = S.reshape(*S.shape[:-2], n * n).take(n * i + j, axis=-1) * scale
    if not np.iscomplexobj(S):
        return upper
    return np.concatenate([upper.real, upper.imag[..., strict]], axis=-1)


def hmat(vectors: Array, n: int, hermitian: bool) -> Any:
    """Return the matrices of vectors, shape ``(..., length)``."""
    place, scale, imaginary, sign = _places_of_entries(n)
    S: Any = vectors.take(place, axis=-1) / scale
    return S + vectors.take(imaginary, axis=-1) * sign if hermitian else S


@lru_cache(maxsize=16)
def entries_of(n: int, hermitian: bool) -> Any:
    """Return the entries of a matrix, in real form, as a sparse map of its vector.

    The real form of a Hermitian ``X`` is ``[Re X, -Im X; Im X, Re X]``, of twice the order.
    """
    i, j = np.triu_indices(n)
    order, k = (2 * n if hermitian else n), np.arange(len(i))
    half = np.where(i == j, 1.0, np.sqrt(0.5))
    strict = np.flatnonzero(i != j)
    a, b, root = i[strict], j[strict], half[strict]
    entries = [(i + s, j + s, k, half) for s in ((0, n) if hermitian else (0,))]
    entries += [(b + s, a + s, k[strict], root) for s in ((0, n) if hermitian else (0,))]
    if hermitian:
        imaginary = len(i) + np.arange(len(strict))
        for row, column, sign in ((n + a, b, 1.0), (n + b, a, -1.0)):
            entries += [(row, column, imaginary, sign * root), (column, row, imaginary, sign * root)]
    row, column, number, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    return sp.csr_array((value, (row * order + column, number)), (order**2, hvec_length(n, hermitian)))


@lru_cache(maxsize=64)
def upper_places(n: int) -> tuple[IntArray, IntArray, Array, IntArray]:
    """Return the places on and above the diagonal, their factors, and the numbers of those above it."""
    i, j = np.triu_indices(n)
    return i, j, np.where(i == j, 1.0, np.sqrt(2)), np.flatnonzero(i != j)


@lru_cache(maxsize=64)
def _places_of_entries(n: int) -> tuple[IntArray, Array, IntArray, Any]:
    """Return the places in a vector of the real parts of all entries, what divides them, and imaginary parts.

    The last array has the factors of the imaginary parts, zero on the diagonal.
    """
    i, j, scale, strict = upper_places(n)
    place, imaginary = np.zeros((n, n), dtype=np.intp), np.zeros((n, n), dtype=np.intp)
    divisor, sign = np.ones((n, n)), np.zeros((n, n), dtype=complex)
    place[i, j] = place[j, i] = np.arange(len(i))
    divisor[i, j] = divisor[j, i] = scale
    a, b = i[strict], j[strict]
    imaginary[a, b] = imaginary[b, a] = len(i) + np.arange(len(strict))
    sign[a, b], sign[b, a] = 1j / np.sqrt(2), -1j / np.sqrt(2)
    return place, divisor, imaginary, sign


class Local(NamedTuple):
    """A function at one point.

    Parameters
    ----------
    value : array of shape (count,)
    gradient : array of shape (size,)
        Of each component in its own arguments.
    curvature : callable
        Returns ``L' H L``, for `weight` and ``L``, with the second derivative ``H`` of ``weight @ function``.
    """

    value: Array
    gradient: Array
    curvature: Callable[[Array, Any], Any]


class ConvexFunction(ABC):
    """A vector of convex functions, each of its own part of the arguments.

    Attributes
    ----------
    name : str
    size : int
        The number of arguments.
    count : int
        The number of functions.
    """

    name: ClassVar[str]
    count: int = 1

    @property
    def size(self) -> int:
        """The number of arguments; by default one for each function."""
        return self.count

    @property
    def owner(self) -> IntArray:
        """The function that each argument belongs to, shape ``(size,)``."""
        return np.zeros(self.size, dtype=np.intp)

    @abstractmethod
    def at(self, y: Array) -> Local | None:
        """Return the function at a point, None outside the interior of its domain."""

    def value(self, y: Array) -> Array:
        """Return the functions on their whole domain, infinite outside it, shape ``(count,)``."""
        local = self.at(y)
        return np.full(self.count, np.inf) if local is None else local.value

    def interior(self, near: Array) -> Array:
        """Return a point inside the domain: `near` itself, moved inside where that is needed."""
        return near

    def moved_inside(self, y: Array, share: float) -> Array:
        """Return a point near one on the boundary of the domain, at a distance of `share` of its size."""
        return y

    def reach(self, y: Array, dy: Array) -> float:
        """Return the length of the step `dy` from `y` at which it leaves the domain."""
        return np.inf


class _OfNumbers(ConvexFunction):
    """Functions of numbers, element by element."""

    @property
    def owner(self) -> IntArray:
        """The function that each argument belongs to."""
        return np.arange(self.size) % self.count

    def at(self, y: Array) -> Local | None:
        """Return the functions at a point, None outside the interior of their domain."""
        return self._local(y) if self._inside(y) else None

    def _inside(self, y: Array) -> bool:
        return True

    @abstractmethod
    def _local(self, y: Array) -> Local:
        """Return the functions at a point inside."""


def _numbers_at(value: Array, gradient: Array, second: Array) -> Local:
    """Return functions of one number each, with their first and second derivatives."""

    def curvature(weight: Array, L: Any) -> Any:
        factors = weight * second
        if sp.issparse(L):
            return L.T @ sp.diags_array(factors) @ L
        return (L.T * factors) @ L

    return Local(value, gradient, curvature)


class _OfPositive(_OfNumbers):
    """Functions of positive numbers."""

    def interior(self, near: Array) -> Array:
        """Return positive numbers."""
        usual = float(np.abs(near).mean()) or 1.0
        return np.maximum(near, 0.1 * usual)

    def moved_inside(self, y: Array, share: float) -> Array:
        """Return positive numbers."""
        return np.maximum(y, share * (float(np.abs(y).max(initial=0.0)) or 1.0))

    def reach(self, y: Array, dy: Array) -> float:
        """Return the length of the step at which a number is zero."""
        falls = dy < 0
        return float((y[falls] / -dy[falls]).min(initial=np.inf))

    def _inside(self, y: Array) -> bool:
        return bool((y > 0).all())


def times_log(p: Array) -> Array:
    """Return ``p log p`` for numbers that are not negative, zero at zero."""
    return p * np.log(np.maximum(p, TINY))


@dataclass(frozen=True, eq=False)
class NegativeEntropy(_OfPositive):
    """``y log y``, elementwise."""

    name: ClassVar[str] = "entr"
    count: int

    def value(self, y: Array) -> Array:
        """Return the values, zero at zero."""
        return np.where(y >= 0, times_log(y), np.inf)

    def _local(self, y: Array) -> Local:
        logs = np.log(y)
        return _numbers_at(y * logs, logs + 1, 1 / y)


@dataclass(frozen=True, eq=False)
class Logarithm(_OfPositive):
    """``-log y``, elementwise."""

    name: ClassVar[str] = "log"
    count: int

    def _local(self, y: Array) -> Local:
        return _numbers_at(-np.log(y), -1 / y, y**-2.0)


@dataclass(frozen=True, eq=False)
class SquaredDistance(_OfNumbers):
    """The squared distance of each number from an interval.

    Parameters
    ----------
    lo, hi : array of shape (count,)
    """

    name: ClassVar[str] = "square"
    lo: Array
    hi: Array

    @property
    def count(self) -> int:  # type: ignore[override]
        """The number of intervals."""
        return len(self.lo)

    def _local(self, y: Array) -> Local:
        away = y - np.clip(y, self.lo, self.hi)
        outside = (y < self.lo) | (y > self.hi) | (self.lo == self.hi)
        return _numbers_at(away**2, 2 * away, np.where(outside, 2.0, 0.0))


@dataclass(frozen=True, eq=False)
class Exponential(_OfNumbers):
    """``exp y``, elementwise."""

    name: ClassVar[str] = "exp"
    count: int

    def _local(self, y: Array) -> Local:
        e = np.exp(y)
        return _numbers_at(e, e, e)

    def _inside(self, y: Array) -> bool:
        return bool((y < 300).all())


@dataclass(frozen=True, eq=False)
class Logistic(_OfNumbers):
    """``log(1 + exp y)``, elementwise."""

    name: ClassVar[str] = "logistic"
    count: int

    def _local(self, y: Array) -> Local:
        value, opposite = np.logaddexp(0.0, y), np.logaddexp(0.0, -y)
        p = np.exp(-opposite)
        return _numbers_at(value, p, p * np.exp(-value))


@dataclass(frozen=True, eq=False)
class NumbersRelativeEntropy(_OfPositive):
    """``x log(x / y)``, elementwise: the arguments are all ``x``, then all ``y``."""

    name: ClassVar[str] = "rel_entr"
    count: int

    @property
    def size(self) -> int:
        """The number of arguments."""
        return 2 * self.count

    def value(self, y: Array) -> Array:
        """Return the values, zero where ``x`` is zero."""
        x, other = np.split(y, 2)
        positive = (x > 0) & (other > 0)
        ratio = np.where(positive, x, 1.0) / np.where(positive, other, 1.0)
        return np.where(positive | (x == 0) & (other >= 0), x * np.log(ratio), np.inf)

    def _local(self, y: Array) -> Local:
        x, other = np.split(y, 2)
        logs = np.log(x / other)

        def curvature(weight: Array, L: Any) -> Any:
            # The second derivative in (x, y) is r r' with r = (1 / sqrt x, - sqrt x / y).
            m, root = self.count, np.sqrt(x)
            first, second = sp.csr_array(L[:m]), sp.csr_array(L[m:])
            joined = sp.diags_array(1 / root) @ first - sp.diags_array(root / other) @ second
            joined = sp.csr_array(sp.diags_array(np.sqrt(weight)) @ joined)
            return joined.T @ joined if sp.issparse(L) else (joined.T @ joined).toarray()

        return Local(x * logs, np.concatenate([logs + 1, -x / other]), curvature)


@dataclass(frozen=True, eq=False)
class LogSumExp(ConvexFunction):
    """``log(sum exp y)`` of each of several groups of one size.

    Parameters
    ----------
    count : int
        The number of groups.
    group : int
        The number of arguments of each; they are listed group by group.
    """

    name: ClassVar[str] = "log_sum_exp"
    count: int
    group: int

    @property
    def size(self) -> int:
        """The number of arguments."""
        return self.count * self.group

    @property
    def owner(self) -> IntArray:
        """The group that each argument belongs to."""
        return np.repeat(np.arange(self.count), self.group)

    def at(self, y: Array) -> Local | None:
        """Return the functions at a point."""
        table = y.reshape(self.count, self.group)
        largest = table.max(axis=1)
        e = np.exp(table - largest[:, None])
        total = e.sum(axis=1)
        p = e / total[:, None]

        def curvature(weight: Array, L: Any) -> Any:
            factors = (weight[:, None] * p).ravel()
            means = sp.csr_array((p.ravel(), (self.owner, np.arange(self.size))), (self.count, self.size)) @ L
            if sp.issparse(L):
                return L.T @ sp.diags_array(factors) @ L - means.T @ sp.diags_array(weight) @ means
            return (L.T * factors) @ L - (means.T * weight) @ means

        return Local(largest + np.log(total), p.ravel(), curvature)
