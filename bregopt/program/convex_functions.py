"""Convex functions that are terms of a program: entropies of matrices, and functions of numbers.

A function has one vector of arguments. A matrix among them is ``hvec(S)``: the real parts on and above the
diagonal, and for a complex Hermitian matrix the imaginary parts above it; those above the diagonal times the
root of two. Inner products of vectors are the real inner products of matrices.

With the eigenvectors ``U`` of ``Y`` and its eigenvalues ``d``, derivatives are elementwise (Daleckii, Krein):

    Dlog[Y](H) = U (L o U'HU) U',        L_ij = (log d_i - log d_j) / (d_i - d_j),
    D2log[Y](H, H) = 2 U (sum_k L_ikj (U'HU)_ik (U'HU)_kj) U',   with second divided differences ``L_ikj``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, rel_entr, xlogy

from bregopt.arrays import Array, IntArray
from bregopt.records import cached_property, dataclass

__all__ = [
    "ConvexFunction",
    "EntropySum",
    "Exponential",
    "Local",
    "LogDeterminant",
    "LogSumExp",
    "Logarithm",
    "Logistic",
    "NegativeEntropy",
    "NumbersRelativeEntropy",
    "RelativeEntropy",
    "SquaredDistance",
    "TraceLog",
    "hmat",
    "hvec",
    "hvec_length",
]

# Relative distance of eigenvalues below which a second divided difference is that of three equal ones. Its
# error is the square of the distance, and only Newton's steps use it.
_NEAR = 1e-4
_ROUND_OFF = 1e-12  # an eigenvalue, relative to the largest, that is negative by round-off only


def hvec_length(n: int, hermitian: bool) -> int:
    """Return the length of the vector of a matrix of order `n`."""
    return n * n if hermitian else n * (n + 1) // 2


def hvec(S: Array) -> Array:
    """Return the vectors of real symmetric or complex Hermitian matrices, shape ``(..., n, n)``."""
    i, j, scale, strict = _places(S.shape[-1])
    upper = S[..., i, j] * scale
    if not np.iscomplexobj(S):
        return upper
    return np.concatenate([upper.real, upper.imag[..., strict]], axis=-1)


def hmat(vectors: Array, n: int, hermitian: bool) -> Any:
    """Return the matrices of vectors, shape ``(..., length)``."""
    i, j, scale, strict = _places(n)
    upper: Any = vectors[..., : len(i)]
    if hermitian:
        upper = upper.astype(complex)
        upper[..., strict] += 1j * vectors[..., len(i) :]
    upper = upper / scale
    S = np.empty((*vectors.shape[:-1], n, n), dtype=upper.dtype)
    S[..., j, i] = upper.conj()
    S[..., i, j] = upper
    return S


@lru_cache(maxsize=64)
def _places(n: int) -> tuple[IntArray, IntArray, Array, IntArray]:
    """Return the places on and above the diagonal, their factors, and the numbers of those above it."""
    i, j = np.triu_indices(n)
    return i, j, np.where(i == j, 1.0, np.sqrt(2)), np.flatnonzero(i != j)


class Local(ABC):
    """A function at one point.

    Attributes
    ----------
    value : array of shape (count,)
    gradient : array of shape (size,)
        Of each component in its own arguments.
    """

    value: Array
    gradient: Array

    @abstractmethod
    def curvature(self, weight: Array, L: Any) -> Any:
        """Return ``L' H L`` with the second derivative ``H`` of ``weight @ function``."""


class ConvexFunction(ABC):
    """A vector of convex functions, each of its own part of the arguments.

    Attributes
    ----------
    name : str
    size : int
        The number of arguments.
    count : int
        The number of functions.
    homogeneous : bool
        Whether ``f(t y) = t f(y)`` for all ``t > 0``.
    """

    name: ClassVar[str]
    homogeneous: ClassVar[bool] = False
    size: int
    count: int = 1

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

    @abstractmethod
    def interior(self, near: Array) -> Array:
        """Return a point inside the domain: `near` itself, moved inside where that is needed."""

    def reach(self, y: Array, dy: Array) -> float:
        """Return the length of the step `dy` from `y` at which it leaves the domain."""
        return np.inf


# --- entropies of matrices


class _Spectrum:
    """The eigenvalues and eigenvectors of one positive definite matrix, and logarithms on them."""

    def __init__(self, Y: Any) -> None:
        self.d, self.U = np.linalg.eigh(Y)
        self.inside = bool(self.d[0] > 0)

    @cached_property
    def logs(self) -> Array:
        """The logarithms of the eigenvalues."""
        return np.log(self.d)

    @cached_property
    def log(self) -> Any:
        """The logarithm of the matrix."""
        return (self.U * self.logs) @ self.U.conj().T

    @cached_property
    def differences(self) -> Array:
        """The divided differences of the logarithm, shape ``(n, n)``."""
        a, b = self.d[:, None], self.d[None]
        m = (a - b) / (a + b)
        ratio = np.divide(np.arctanh(m), m, out=np.ones_like(m), where=np.abs(m) > 1e-8)
        return 2 * ratio / (a + b)

    @cached_property
    def second_differences(self) -> Array:
        """The second divided differences ``L_ikj`` of the logarithm, negative, shape ``(n, n, n)``."""
        d, L = self.d, self.differences
        i, k, j = np.meshgrid(*[np.arange(len(d))] * 3, indexing="ij")
        order = np.sort(np.stack([i, k, j]), axis=0)  # eigenvalues ascend
        low, middle, high = order
        spread = d[high] - d[low]
        apart = spread > _NEAR * d[high]
        difference = L[middle, high] - L[low, middle]
        equal = -0.5 / (np.cbrt(d[low] * d[middle] * d[high])) ** 2
        return np.divide(difference, spread, out=equal, where=apart)

    def turned(self, stack: Any) -> Any:
        """Return ``U' M U`` of matrices."""
        return self.U.conj().T @ stack @ self.U


class _OfMatrices(ConvexFunction):
    """A function of symmetric or Hermitian positive definite matrices of given orders."""

    orders: tuple[int, ...]
    hermitian: bool

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of arguments."""
        return sum(self._lengths)

    @property
    def _lengths(self) -> list[int]:
        return [hvec_length(n, self.hermitian) for n in self.orders]

    def matrices(self, y: Array) -> list[Any]:
        """Return the matrices, or stacks of them, of vectors of shape ``(..., size)``."""
        ends = np.cumsum([0, *self._lengths])
        return [
            hmat(y[..., a:b], n, self.hermitian)
            for n, a, b in zip(self.orders, ends[:-1], ends[1:], strict=True)
        ]

    def interior(self, near: Array) -> Array:
        """Return the matrices, plus a multiple of the identity where they are not definite."""
        inside = []
        for Y in self.matrices(near):
            d = np.linalg.eigvalsh(Y)
            least = max(1e-3 * float(np.abs(d).max()), 1e-6 if not d.any() else 0.0)
            shift = 0.0 if d[0] > least else least - d[0] + (float(np.abs(d).mean()) or 1.0)
            inside.append(hvec(Y + shift * np.eye(len(Y))))
        return np.concatenate(inside)

    def reach(self, y: Array, dy: Array) -> float:
        """Return the length of the step at which a matrix is singular."""
        longest = np.inf
        for Y, D in zip(self.matrices(y), self.matrices(dy), strict=True):
            R = np.linalg.inv(np.linalg.cholesky(Y))
            least = float(np.linalg.eigvalsh(R @ D @ R.conj().T)[0])
            longest = min(longest, -1 / least if least < 0 else np.inf)
        return longest

    def _spectra(self, y: Array) -> list[_Spectrum] | None:
        spectra = [_Spectrum(Y) for Y in self.matrices(y)]
        return spectra if all(own.inside for own in spectra) else None


@dataclass(frozen=True, eq=False)
class EntropySum(_OfMatrices):
    """``sum_j w_j tr Y_j log Y_j``, convex as a whole where some of the weights are negative.

    Parameters
    ----------
    orders : tuple of int
    weights : tuple of float
    hermitian : bool
    """

    name: ClassVar[str] = "entropies"
    homogeneous: ClassVar[bool] = False
    orders: tuple[int, ...]
    weights: tuple[float, ...]
    hermitian: bool

    def at(self, y: Array) -> Local | None:
        """Return the function at a point, None outside its domain."""
        spectra = self._spectra(y)
        return None if spectra is None else _EntropiesAt(self, spectra)

    def value(self, y: Array) -> Array:
        """Return the sum for psd matrices; eigenvalues that are negative by round-off count as zero."""
        total = 0.0
        for w, Y in zip(self.weights, self.matrices(y), strict=True):
            d = np.linalg.eigvalsh(Y)
            if d[0] < -_ROUND_OFF * np.abs(d).max():
                return np.array([np.inf])
            total += w * float(xlogy(d.clip(0), d.clip(0)).sum())
        return np.array([total])


class _EntropiesAt(Local):
    def __init__(self, function: EntropySum, spectra: list[_Spectrum]) -> None:
        self._function, self._spectra = function, spectra
        own = list(zip(function.weights, spectra, strict=True))
        self.value = np.array([sum(w * float(s.d @ s.logs) for w, s in own)])
        self.gradient = np.concatenate([w * hvec(s.log + np.eye(len(s.d))) for w, s in own])

    def curvature(self, weight: Array, L: Any) -> Any:
        stacks = self._function.matrices(_columns(L))
        total = np.zeros((L.shape[1],) * 2)
        for w, spectrum, M in zip(self._function.weights, self._spectra, stacks, strict=True):
            T = hvec(spectrum.turned(M))
            total += (T * (float(weight[0]) * w * _as_vector(spectrum.differences, M))) @ T.T
        return total


@dataclass(frozen=True, eq=False)
class RelativeEntropy(_OfMatrices):
    """``tr A (log A - log B)`` of two matrices of one order (Lindblad 1974: jointly convex).

    Parameters
    ----------
    orders : tuple of int
        The order, twice.
    hermitian : bool
    """

    name: ClassVar[str] = "quantum_rel_entr"
    homogeneous: ClassVar[bool] = True
    orders: tuple[int, ...]
    hermitian: bool

    def at(self, y: Array) -> Local | None:
        """Return the function at a point, None outside its domain."""
        spectra = self._spectra(y)
        return None if spectra is None else _RelativeAt(self, spectra, self.matrices(y)[0])


class _RelativeAt(Local):
    def __init__(self, function: RelativeEntropy, spectra: list[_Spectrum], A: Any) -> None:
        self._function, (self._a, self._b) = function, spectra
        self._of_log = _TraceLogAt(A, self._b)
        entropy = float(self._a.d @ self._a.logs)
        self.value = entropy + self._of_log.value
        rest = self._a.log + np.eye(len(A)) - self._b.log
        self.gradient = np.concatenate([hvec(rest), self._of_log.gradient])

    def curvature(self, weight: Array, L: Any) -> Any:
        MA, MB = self._function.matrices(_columns(L))
        T = hvec(self._a.turned(MA))
        total = (T * _as_vector(self._a.differences, MA)) @ T.T
        across = hvec(self._b.turned(MA)) * _as_vector(self._b.differences, MA)
        cross = across @ hvec(self._b.turned(MB)).T
        return float(weight[0]) * (total - cross - cross.T + self._of_log.of_stack(MB))


@dataclass(frozen=True, eq=False)
class LogDeterminant(_OfMatrices):
    """``-log det Y``.

    Parameters
    ----------
    orders : tuple of one int
    hermitian : bool
    """

    name: ClassVar[str] = "log_det"
    orders: tuple[int, ...]
    hermitian: bool

    def at(self, y: Array) -> Local | None:
        """Return the function at a point, None outside its domain."""
        spectra = self._spectra(y)
        return None if spectra is None else _LogDeterminantAt(self, spectra[0])


class _LogDeterminantAt(Local):
    def __init__(self, function: LogDeterminant, spectrum: _Spectrum) -> None:
        self._function, self._spectrum = function, spectrum
        U, d = spectrum.U, spectrum.d
        self.value = np.array([-float(spectrum.logs.sum())])
        self.gradient = -hvec((U / d) @ U.conj().T)

    def curvature(self, weight: Array, L: Any) -> Any:
        (stack,) = self._function.matrices(_columns(L))
        root = np.sqrt(self._spectrum.d)
        T = hvec(self._spectrum.turned(stack) / (root[:, None] * root))
        return float(weight[0]) * (T @ T.T)


@dataclass(frozen=True, eq=False)
class TraceLog(_OfMatrices):
    """``-tr C log Y`` with a constant positive semidefinite ``C``.

    Parameters
    ----------
    C : array of shape (n, n)
    hermitian : bool
    """

    name: ClassVar[str] = "trace_logm"
    C: Any
    hermitian: bool

    @property
    def orders(self) -> tuple[int, ...]:  # type: ignore[override]
        """The order of ``Y``."""
        return (len(self.C),)

    def at(self, y: Array) -> Local | None:
        """Return the function at a point, None outside its domain."""
        spectra = self._spectra(y)
        return None if spectra is None else _TraceLogAt(self.C, spectra[0])


class _TraceLogAt(Local):
    """``-tr C log Y`` at one ``Y``."""

    def __init__(self, C: Any, spectrum: _Spectrum) -> None:
        self._spectrum, self._C = spectrum, spectrum.turned(C)
        U = spectrum.U
        self.value = np.array([-float(np.real(np.diagonal(self._C)) @ spectrum.logs)])
        self.gradient = -hvec(U @ (spectrum.differences * self._C) @ U.conj().T)

    def curvature(self, weight: Array, L: Any) -> Any:
        columns, n = _columns(L), len(self._C)
        return float(weight[0]) * self.of_stack(hmat(columns, n, np.iscomplexobj(self._C)))

    def of_stack(self, stack: Any) -> Array:
        """Return the second derivative along each two of several matrices."""
        H = self._spectrum.turned(stack)
        differences = self._spectrum.second_differences
        total = np.zeros((len(stack),) * 2)
        for k in range(len(self._C)):
            column = H[:, :, k]
            total -= 2 * np.real(column.conj() @ (self._C * differences[:, k, :]) @ column.T)
        return total


def _columns(L: Any) -> Array:
    """Return the columns of a matrix, dense, as rows."""
    dense: Array = (L.toarray() if sp.issparse(L) else L).T
    return dense


def _as_vector(factors: Array, stack: Any) -> Array:
    """Return factors of the entries of matrices as factors of their vectors."""
    i, j, _, strict = _places(len(factors))
    upper = factors[i, j]
    return np.concatenate([upper, upper[strict]]) if np.iscomplexobj(stack) else upper


# --- functions of numbers


class _OfNumbers(ConvexFunction):
    """Functions of one number each."""

    @property
    def owner(self) -> IntArray:
        """The function that each argument belongs to."""
        return np.arange(self.size) % self.count

    def at(self, y: Array) -> Local | None:
        """Return the functions at a point, None outside the interior of their domain."""
        if not self._inside(y):
            return None
        with np.errstate(over="ignore"):
            value, slope, second = self._derivatives(y)
        return _NumbersAt(value, slope, second)

    def interior(self, near: Array) -> Array:
        """Return the nearest point that is well inside."""
        return near

    def _inside(self, y: Array) -> bool:
        return True

    @abstractmethod
    def _derivatives(self, y: Array) -> tuple[Array, Array, Array]:
        """Return the value of each function, its first and its second derivative."""


class _NumbersAt(Local):
    def __init__(self, value: Array, gradient: Array, second: Array) -> None:
        self.value, self.gradient, self._second = value, gradient, second

    def curvature(self, weight: Array, L: Any) -> Any:
        factors = weight * self._second
        if sp.issparse(L):
            return L.T @ sp.diags_array(factors) @ L
        return (L.T * factors) @ L


class _OfPositive(_OfNumbers):
    """Functions of positive numbers."""

    def interior(self, near: Array) -> Array:
        """Return positive numbers."""
        usual = float(np.abs(near).mean()) or 1.0
        return np.maximum(near, 0.1 * usual)

    def reach(self, y: Array, dy: Array) -> float:
        """Return the length of the step at which a number is zero."""
        falls = dy < 0
        return float((y[falls] / -dy[falls]).min(initial=np.inf))

    def _inside(self, y: Array) -> bool:
        return bool((y > 0).all())


@dataclass(frozen=True, eq=False)
class NegativeEntropy(_OfPositive):
    """``y log y``, elementwise."""

    name: ClassVar[str] = "entr"
    count: int

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of arguments."""
        return self.count

    def value(self, y: Array) -> Array:
        """Return the values, zero at zero."""
        inside = y >= 0
        values: Array = np.where(inside, xlogy(y, np.where(inside, y, 1.0)), np.inf)
        return values

    def _derivatives(self, y: Array) -> tuple[Array, Array, Array]:
        logs = np.log(y)
        return y * logs, logs + 1, 1 / y


@dataclass(frozen=True, eq=False)
class Logarithm(_OfPositive):
    """``-log y``, elementwise."""

    name: ClassVar[str] = "log"
    count: int

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of arguments."""
        return self.count

    def _derivatives(self, y: Array) -> tuple[Array, Array, Array]:
        return -np.log(y), -1 / y, y**-2.0


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

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of arguments."""
        return len(self.lo)

    def _derivatives(self, y: Array) -> tuple[Array, Array, Array]:
        away = y - np.clip(y, self.lo, self.hi)
        outside = (y < self.lo) | (y > self.hi) | (self.lo == self.hi)
        return away**2, 2 * away, np.where(outside, 2.0, 0.0)


@dataclass(frozen=True, eq=False)
class Exponential(_OfNumbers):
    """``exp y``, elementwise."""

    name: ClassVar[str] = "exp"
    count: int

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of arguments."""
        return self.count

    def _derivatives(self, y: Array) -> tuple[Array, Array, Array]:
        e = np.exp(y)
        return e, e, e

    def _inside(self, y: Array) -> bool:
        return bool((y < 300).all())


@dataclass(frozen=True, eq=False)
class Logistic(_OfNumbers):
    """``log(1 + exp y)``, elementwise."""

    name: ClassVar[str] = "logistic"
    count: int

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of arguments."""
        return self.count

    def _derivatives(self, y: Array) -> tuple[Array, Array, Array]:
        p = expit(y)
        return np.logaddexp(0.0, y), p, p * expit(-y)


@dataclass(frozen=True, eq=False)
class NumbersRelativeEntropy(_OfPositive):
    """``x log(x / y)``, elementwise: the arguments are all ``x``, then all ``y``."""

    name: ClassVar[str] = "rel_entr"
    homogeneous: ClassVar[bool] = True
    count: int

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of arguments."""
        return 2 * self.count

    def at(self, y: Array) -> Local | None:
        """Return the functions at a point, None outside the interior of their domain."""
        return _RatiosAt(*np.split(y, 2)) if self._inside(y) else None

    def value(self, y: Array) -> Array:
        """Return the values, zero where ``x`` is zero."""
        values: Array = rel_entr(*np.split(y, 2))
        return values

    def _derivatives(self, y: Array) -> tuple[Array, Array, Array]:
        raise NotImplementedError


class _RatiosAt(Local):
    def __init__(self, x: Array, y: Array) -> None:
        ratio = np.log(x / y)
        self.value = x * ratio
        self.gradient = np.concatenate([ratio + 1, -x / y])
        self._root = np.concatenate([1 / np.sqrt(x), -np.sqrt(x) / y])

    def curvature(self, weight: Array, L: Any) -> Any:
        # The second derivative in (x, y) is r r' with r = (1 / sqrt x, - sqrt x / y).
        r, m = self._root, len(weight)
        joined = sp.diags_array(np.sqrt(weight)) @ (
            sp.diags_array(r[:m]) @ sp.csr_array(L[:m]) + sp.diags_array(r[m:]) @ sp.csr_array(L[m:])
        )
        joined = sp.csr_array(joined)
        return joined.T @ joined if sp.issparse(L) else (joined.T @ joined).toarray()


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
    def size(self) -> int:  # type: ignore[override]
        """The number of arguments."""
        return self.count * self.group

    @property
    def owner(self) -> IntArray:
        """The group that each argument belongs to."""
        return np.repeat(np.arange(self.count), self.group)

    def at(self, y: Array) -> Local | None:
        """Return the functions at a point."""
        return _LogSumAt(y.reshape(self.count, self.group))

    def interior(self, near: Array) -> Array:
        """Return the point itself."""
        return near


class _LogSumAt(Local):
    def __init__(self, y: Array) -> None:
        largest = y.max(axis=1)
        e = np.exp(y - largest[:, None])
        total = e.sum(axis=1)
        self.value = largest + np.log(total)
        self._p = e / total[:, None]
        self.gradient = self._p.ravel()

    def curvature(self, weight: Array, L: Any) -> Any:
        count, group = self._p.shape
        factors = (weight[:, None] * self._p).ravel()
        where = np.arange(count * group) // group
        P = sp.csr_array((self._p.ravel(), (where, np.arange(count * group))), (count, count * group))
        means = P @ L
        if sp.issparse(L):
            return L.T @ sp.diags_array(factors) @ L - means.T @ sp.diags_array(weight) @ means
        return (L.T * factors) @ L - (means.T * weight) @ means
