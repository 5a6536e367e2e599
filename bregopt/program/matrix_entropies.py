"""Convex functions of matrices that are terms of a program: entropies, relative entropies, determinants.

With the eigenvectors ``U`` of ``Y`` and its eigenvalues ``d``, derivatives are elementwise (Daleckii, Krein):

    Dlog[Y](H) = U (L o U'HU) U',        L_ij = (log d_i - log d_j) / (d_i - d_j),
    D2log[Y](H, H) = 2 U (sum_k L_ikj (U'HU)_ik (U'HU)_kj) U',   with second divided differences ``L_ikj``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, Array
from bregopt.program.convex_functions import (
    ConvexFunction,
    Local,
    Logarithm,
    NumbersRelativeEntropy,
    hmat,
    hvec,
    hvec_length,
    times_log,
    upper_places,
)
from bregopt.records import cached_property, dataclass

# Relative distance of eigenvalues below which a second divided difference is that of three equal ones. Its
# error is the square of the distance, and only Newton's steps use it.
_NEAR = 1e-4
_ROUND_OFF = 1e-12  # an eigenvalue, relative to the largest, that is negative by round-off only
_SURE = 1e-12  # least eigenvalue, relative to the largest, of a matrix that is definite without doubt
_NULL = 1e-11  # a singular value, relative to the largest, of directions that are in no argument's range


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
        m = (a - b) / (a + b)  # one where the smaller eigenvalue is below the round-off of the larger
        apart = (self.logs[:, None] - self.logs) / 2
        half = np.where(np.abs(m) < 0.5, np.arctanh(m.clip(-0.5, 0.5)), apart)
        ratio = np.divide(half, m, out=np.ones_like(m), where=np.abs(m) > 1e-8)
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


class OfMatrices(ConvexFunction):
    """A function of symmetric or Hermitian positive definite matrices of given orders."""

    orders: tuple[int, ...]
    hermitian: bool

    @property
    def size(self) -> int:
        """The number of arguments."""
        return sum(self._lengths)

    @property
    def needs_definite(self) -> bool:
        """Whether the function is infinite at all singular matrices."""
        return False

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

    def moved_inside(self, y: Array, share: float) -> Array:
        """Return the matrices plus a multiple of the identity."""
        moved = [Y + share * (float(np.trace(Y).real) or 1.0) * np.eye(len(Y)) for Y in self.matrices(y)]
        return np.concatenate(list(map(hvec, moved)))

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
class EntropySum(OfMatrices):
    """``sum_j w_j tr Y_j log Y_j``, convex as a whole where some of the weights are negative.

    Parameters
    ----------
    orders : tuple of int
    weights : tuple of float
    hermitian : bool
    """

    name: ClassVar[str] = "entropies"
    orders: tuple[int, ...]
    weights: tuple[float, ...]
    hermitian: bool

    def at(self, y: Array) -> Local | None:
        """Return the function at a point, None outside its domain."""
        spectra = self._spectra(y)
        if spectra is None:
            return None
        own = list(zip(self.weights, spectra, strict=True))

        def curvature(weight: Array, L: Any) -> Any:
            total = np.zeros((L.shape[1],) * 2)
            for (w, spectrum), M in zip(own, self.matrices(_columns(L)), strict=True):
                T = hvec(spectrum.turned(M))
                total += (T * (float(weight[0]) * w * _as_vector(spectrum.differences, M))) @ T.T
            return total

        value = np.array([sum(w * float(s.d @ s.logs) for w, s in own)])
        return Local(value, np.concatenate([w * hvec(s.log + np.eye(len(s.d))) for w, s in own]), curvature)

    def value(self, y: Array) -> Array:
        """Return the sum for psd matrices; eigenvalues that are negative by round-off count as zero."""
        total = 0.0
        for w, Y in zip(self.weights, self.matrices(y), strict=True):
            d = np.linalg.eigvalsh(Y)
            if d[0] < -_ROUND_OFF * np.abs(d).max():
                return np.array([np.inf])
            total += w * float(times_log(d.clip(0)).sum())
        return np.array([total])


@dataclass(frozen=True, eq=False)
class RelativeEntropy(OfMatrices):
    """``tr A (log A - log B)`` of two matrices (Lindblad 1974: jointly convex).

    Parameters
    ----------
    orders : tuple of int
        The order of each.
    hermitian : bool
    embedding : array of shape (orders[1], orders[0]), optional
        An isometry ``Q``: the first matrix is ``Q A Q*``, on a part of the range of the second. None for one
        order.
    """

    name: ClassVar[str] = "quantum_rel_entr"
    orders: tuple[int, ...]
    hermitian: bool
    embedding: Any = None

    def at(self, y: Array) -> Local | None:
        """Return the function at a point, None outside its domain."""
        spectra = self._spectra(y)
        if spectra is None:
            return None
        (a, b), Q = spectra, self.embedding
        root = a.U * np.sqrt(a.d)
        value, slope, of_stack = _minus_trace_log(root if Q is None else Q @ root, b)
        other = b.log if Q is None else Q.conj().T @ b.log @ Q

        def curvature(weight: Array, L: Any) -> Any:
            MA, MB = self.matrices(_columns(L))
            T = hvec(a.turned(MA))
            total = (T * _as_vector(a.differences, MA)) @ T.T
            MA = self.embedded(MA)
            across = hvec(b.turned(MA)) * _as_vector(b.differences, MA)
            cross = across @ hvec(b.turned(MB)).T
            return float(weight[0]) * (total - cross - cross.T + of_stack(MB))

        gradient = np.concatenate([hvec(a.log + np.eye(len(a.d)) - other), slope])
        return Local(float(a.d @ a.logs) + value, gradient, curvature)

    def embedded(self, A: Any) -> Any:
        """Return ``Q A Q*`` of matrices."""
        Q = self.embedding
        return A if Q is None else Q @ A @ Q.conj().T


@dataclass(frozen=True, eq=False)
class LogDeterminant(OfMatrices):
    """``-log det Y``.

    Parameters
    ----------
    orders : tuple of one int
    hermitian : bool
    """

    name: ClassVar[str] = "log_det"
    needs_definite: ClassVar[bool] = True
    orders: tuple[int, ...]
    hermitian: bool

    def at(self, y: Array) -> Local | None:
        """Return the function at a point, None outside its domain."""
        spectra = self._spectra(y)
        if spectra is None:
            return None
        (spectrum,) = spectra
        U, d, root = spectrum.U, spectrum.d, np.sqrt(spectrum.d)

        def curvature(weight: Array, L: Any) -> Any:
            (stack,) = self.matrices(_columns(L))
            T = hvec(spectrum.turned(stack) / (root[:, None] * root))
            return float(weight[0]) * (T @ T.T)

        return Local(np.array([-float(spectrum.logs.sum())]), -hvec((U / d) @ U.conj().T), curvature)


@dataclass(frozen=True, eq=False)
class TraceLog(OfMatrices):
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

    @property
    def needs_definite(self) -> bool:
        """Whether ``C`` is definite beyond all round-off of its eigenvalues."""
        d = np.linalg.eigvalsh(self.C)
        return bool(d[0] > _SURE * d[-1])

    @cached_property
    def factor(self) -> Any:
        """``R`` with ``C = R R*``, without the eigenvalues of ``C`` that are round-off."""
        d, U = np.linalg.eigh(self.C)
        kept = d > len(d) * EPS * d[-1]
        return U[:, kept] * np.sqrt(d[kept])

    def at(self, y: Array) -> Local | None:
        """Return the function at a point, None outside its domain."""
        spectra = self._spectra(y)
        if spectra is None:
            return None
        value, gradient, of_stack = _minus_trace_log(self.factor, spectra[0])

        def curvature(weight: Array, L: Any) -> Any:
            (stack,) = self.matrices(_columns(L))
            return float(weight[0]) * of_stack(stack)

        return Local(value, gradient, curvature)


def _minus_trace_log(R: Any, spectrum: _Spectrum) -> tuple[Array, Array, Callable[[Any], Array]]:
    """Return ``-tr R R* log Y``, its gradient, and its second derivative along each two of several matrices.

    Where an eigenvalue of ``Y`` is small, so may be the part of ``R R*`` there. Products with ``R`` have its
    relative error.
    """
    U, part = spectrum.U, spectrum.U.conj().T @ R
    C = part @ part.conj().T

    def of_stack(stack: Any) -> Array:
        H, differences = spectrum.turned(stack), spectrum.second_differences
        total = np.zeros((len(stack),) * 2)
        for k in range(len(C)):
            column = H[:, :, k]
            total -= 2 * np.real(column.conj() @ (C * differences[:, k, :]) @ column.T)
        return total

    value = np.array([-float(np.real(np.diagonal(C)) @ spectrum.logs)])
    return value, -hvec(U @ (spectrum.differences * C) @ U.conj().T), of_stack


# --- ranges


def on_ranges(function: ConvexFunction, samples: Callable[[], Array]) -> tuple[ConvexFunction, Any] | None:
    """Return a function of the parts of its matrices on their ranges, and the map to its arguments.

    Matrices such as ``V X V*`` with a tall ``V`` are singular for all ``X``, and on their ranges they are
    not.

    Parameters
    ----------
    function : ConvexFunction
    samples : callable
        Returns generic arguments, shape (count, size). What vanishes in all of them vanishes in every
        argument.

    Returns
    -------
    tuple or None
        The function and a sparse map, None where there is nothing to reduce.
    """
    if not isinstance(function, EntropySum | RelativeEntropy | TraceLog):
        return None
    bases = [_common_range(stack) for stack in function.matrices(samples())]
    if all(Q.shape[0] == Q.shape[1] for Q in bases):
        return None
    orders, reduced = tuple(Q.shape[1] for Q in bases), function
    if isinstance(function, EntropySum):
        reduced = EntropySum(orders, function.weights, function.hermitian)
    elif isinstance(function, TraceLog):
        (Q,), C = bases, function.C
        if not _within(C, Q):  # infinite, unless rows hold the matrix where it is not
            return None
        reduced = TraceLog(Q.conj().T @ C @ Q, function.hermitian)
    else:
        first, second = bases
        own = function.embedding
        first = first if own is None else own @ first
        if not _within(first, second):
            return None
        Q = None if orders[0] == orders[1] else second.conj().T @ first
        bases = [second if Q is None and own is None else bases[0], second]
        Q = second.conj().T @ first if own is not None else Q
        reduced = RelativeEntropy(orders, function.hermitian, Q)
    return reduced, _compressions(function, bases)


def is_infinite(function: ConvexFunction, samples: Array, sizes: Array) -> bool:
    """Whether a function is infinite at all arguments with the ranges of generic ones.

    A logarithm of a singular matrix is infinite unless the matrix beside it vanishes on the null space.

    Parameters
    ----------
    function : ConvexFunction
    samples : array of shape (count, size)
        Generic arguments.
    sizes : array of shape (size,)
        The magnitudes of the terms of each argument, whose units may differ.
    """
    vanishing = np.abs(samples).max(axis=0) <= _NULL * sizes
    if isinstance(function, Logarithm):
        return bool(vanishing.any())
    if isinstance(function, NumbersRelativeEntropy):
        x, _ = np.split(samples, 2, axis=1)
        constant = (np.ptp(x, axis=0) == 0) & (x[0] != 0)  # another one may vanish there, too
        return bool((constant & np.split(vanishing, 2)[1]).any())
    if not isinstance(function, LogDeterminant | TraceLog | RelativeEntropy):
        return False
    *first, last = function.matrices(samples)
    size = np.abs(function.matrices(sizes)[-1].diagonal())
    d = np.sqrt(np.where(size > 0, size, 1.0))
    Q = _common_range(last / (d[:, None] * d))
    if Q.shape[0] == Q.shape[1]:
        return False
    if isinstance(function, LogDeterminant):
        return True
    if isinstance(function, TraceLog):
        return not _within(function.C / d[:, None], Q)
    assert isinstance(function, RelativeEntropy)
    (A,) = first
    constant = np.linalg.norm(A - A[0]) <= _NULL * np.linalg.norm(A)  # another one may vanish there, too
    return bool(constant) and not _within(function.embedded(A[0]) / d[:, None], Q)


def _common_range(stack: Any) -> Any:
    """Return an orthonormal basis of the directions in which one of several matrices does not vanish."""
    _, s, V = np.linalg.svd(np.concatenate(list(stack)), full_matrices=False)
    kept = s > _NULL * s.max(initial=0.0)
    return np.eye(len(s)) if kept.all() else V[kept].conj().T


def _within(M: Any, Q: Any) -> bool:
    """Whether the columns of a matrix are in the range of an orthonormal basis."""
    return bool(np.linalg.norm(M - Q @ (Q.conj().T @ M)) <= _NULL * np.linalg.norm(M))


def _compressions(function: OfMatrices, bases: Sequence[Any]) -> Any:
    """Return the sparse map from the vectors of matrices to those of ``Q* Y Q``."""
    parts = []
    for n, Q in zip(function.orders, bases, strict=True):
        units = hmat(np.eye(hvec_length(n, function.hermitian)), n, function.hermitian)
        images = hvec(Q.conj().T @ units @ Q).T
        parts.append(sp.coo_array(np.where(np.abs(images) > 1e-15, images, 0.0)))
    return sp.csr_array(sp.block_diag(parts, format="csr"))


# --- vectors


def _columns(L: Any) -> Array:
    """Return the columns of a matrix, dense, as rows."""
    dense: Array = (L.toarray() if sp.issparse(L) else L).T
    return dense


def _as_vector(factors: Array, stack: Any) -> Array:
    """Return factors of the entries of matrices as factors of their vectors."""
    i, j, _, strict = upper_places(len(factors))
    upper = factors[i, j]
    return np.concatenate([upper, upper[strict]]) if np.iscomplexobj(stack) else upper
