"""Stacks of nearness problems of one order: divergences, bounds on entries, and their linear algebra.

Arrays have the shape ``(B, n, n)``, and one call of NumPy is for the whole stack. Each divergence has the
value and the dual of the class of the same name for one matrix, with the weight ``mu = 1``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask
from bregopt.divergences.base import (
    LEAST_LOGARITHM,
    UNITS,
    Divergence,
    error_of_inverse,
    error_of_log_det,
    error_of_slope,
)
from bregopt.divergences.frobenius import Frobenius
from bregopt.divergences.spectrum import exp_divided_differences
from bregopt.linalg import inverse_of, root_of
from bregopt.records import cached_property, dataclass, replace

# The n^2 entries over those with bounds, from which sparse products, and sums for each entry, cost less than
# products of matrices.
_SPARSE, _FEW = 8, 64
_CROWD = 10  # violated bounds, a multiple of the order
_LARGEST_EXPONENT = 700.0  # beyond it the exponential of a double overflows


class StackedDerivative(NamedTuple):
    """The map ``S -> share S + M + M'`` with ``M = sign P (G o (P' S V)) V'``, for each matrix of a stack.

    Parameters
    ----------
    P : array of shape (B, n, p)
    V : array of shape (B, n, n)
    G : array of shape (B, p, n)
    share, sign : float
    """

    P: Array
    V: Array
    G: Array
    share: float
    sign: float


def inner(S: Array, T: Array) -> Array:
    """Return the inner product of each pair of matrices, shape ``(B,)``."""
    products: Array = np.add.reduce(S * T, axis=(1, 2))
    return products


class StackedDivergence(ABC):
    """One divergence from each matrix of a stack.

    Parameters
    ----------
    X0 : array of shape (B, n, n)
        Each symmetric, and positive definite where the divergence needs it.

    Raises
    ------
    numpy.linalg.LinAlgError
        If one of them is not positive definite where the divergence needs it.
    """

    resolution: ClassVar[float] = Divergence.resolution
    """As that of the divergence."""
    definite_start: ClassVar[bool] = True
    quadratic: ClassVar[bool] = False
    """As those of the divergence."""
    largest_order: ClassVar[int]
    """Order up to which a stack takes less time than a loop (benchmarks/many_stacks.py)."""

    def __init__(self, X0: Array) -> None:
        self.X0 = X0

    @property
    @abstractmethod
    def unit(self) -> Array:
        """The scale of each divergence, shape ``(B,)``."""

    @abstractmethod
    def value(self, X: Array) -> Array:
        """Return each ``D(X, X0)``, shape ``(B,)``; infinite outside the domain."""

    @abstractmethod
    def dual_term(self, S: Array, theta: Array | None = None) -> Array:
        """Return each minimum of ``D(X, X0) - <S, X>`` over psd ``X``, shape ``(B,)``.

        It is a function of `S` alone; `theta` are the eigenvalues of :meth:`StackedSpectral.spectrum`, where
        they are at hand.
        """

    @abstractmethod
    def evaluation_error(self, X: Array, value: Array | None = None) -> Array:
        """Return each bound on the round-off of value and dual term near the minimizer, shape ``(B,)``.

        `value` is that of :meth:`value`, where it is at hand.
        """

    def __getitem__(self, which: IntArray | Mask) -> StackedDivergence:
        """Return the divergences from some of the matrices."""
        own = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(own, name, value[which])
        return own


class StackedSpectral(StackedDivergence):
    """One whose minimizers are functions of spectra.

    The minimizer of ``D(X, X0) - <S, X>`` over psd ``X`` is ``V f(theta) V'``, with ``f`` increasing.
    """

    origin: Array
    """The matrices with the eigenvalues `theta` where ``S`` is zero."""
    rate: ClassVar[float] = 1.0
    """Their derivative in ``S``."""

    def spectrum(self, S: Array) -> tuple[Array, Array]:
        """Return ``theta`` of shape ``(B, n)``, ascending, and ``V`` of shape ``(B, n, n)``."""
        return spectra_of(self.origin + self.rate * S)

    @abstractmethod
    def start(self, diagonal: Array) -> tuple[Array, Array, Array]:
        """Return multipliers of a diagonal at which the trace is about right, and their spectra."""

    @abstractmethod
    def term(self, theta: Array) -> Array:
        """Return each minimum from the spectrum, ``-inf`` where it is not attained."""

    @abstractmethod
    def eigenvalues(self, theta: Array) -> Array:
        """Return ``f(theta)``."""

    @abstractmethod
    def derivative(self, theta: Array, V: Array) -> StackedDerivative:
        """Return the derivatives of the minimizers in ``S``."""

    @abstractmethod
    def residual(self, a: Array, b: Array) -> Array:
        """Return the right-hand side of Newton's equation for entries ``a = b > 0`` of the diagonal.

        It is ``(g(b) - g(a)) / g'(a)``, with a ``g`` of the divergence that makes ``g(a)`` nearly linear in
        the multipliers.
        """


def simplex_shifts(theta: Array, total: Array) -> Array:
    """Return the ``s`` for which the positive parts of ``theta - s`` have given sums, shape ``(B,)``.

    These are projections onto simplices, from ascending numbers. If the ``k`` largest are those above ``s``,
    it is their mean excess; that of any other number of largest ones is no larger.
    """
    excess = np.add.accumulate(theta[:, ::-1], axis=1) - total[:, None]
    shift: Array = np.maximum.reduce(excess / np.arange(1, theta.shape[1] + 1), axis=1)
    return shift


class StackedFrobenius(StackedSpectral):
    """``||X - X0||_F^2``; see :class:`bregopt.divergences.Frobenius`."""

    resolution: ClassVar[float] = Frobenius.resolution
    definite_start: ClassVar[bool] = Frobenius.definite_start
    quadratic: ClassVar[bool] = True
    largest_order: ClassVar[int] = 250
    rate: ClassVar[float] = 0.5

    def __init__(self, X0: Array) -> None:
        super().__init__(X0)
        self.origin, self.square = X0, inner(X0, X0)

    @property
    def unit(self) -> Array:
        return self.square

    def value(self, X: Array) -> Array:
        difference = X - self.X0
        return inner(difference, difference)

    def evaluation_error(self, X: Array, value: Array | None = None) -> Array:
        value = self.value(X) if value is None else value
        round_off = EPS * (np.sqrt(self.square) + np.sqrt(inner(X, X)))
        error: Array = round_off * (np.sqrt(value) + round_off)
        return error

    def dual_term(self, S: Array, theta: Array | None = None) -> Array:
        # A difference of |X0|^2 and |X|^2 would leave their round-off; these terms vanish with S.
        negative: Any = np.minimum(np.linalg.eigvalsh(self.X0 + S / 2) if theta is None else theta, 0.0)
        term: Array = np.add.reduce(negative * negative, axis=1) - inner(self.X0 + S / 4, S)
        return term

    def start(self, diagonal: Array) -> tuple[Array, Array, Array]:
        """Return those of a matrix with this diagonal, which need not be psd, shifted along the identity.

        The shift gives the positive part of the spectrum the right trace: a projection onto a simplex. It
        leaves the eigenvectors as they are.
        """
        y = 2 * (diagonal - self.X0.diagonal(axis1=1, axis2=2))
        theta, V = spectra_of(plus_diagonal(self.X0, y / 2))
        shift = simplex_shifts(theta, np.add.reduce(diagonal, axis=1))[:, None]
        return y - 2 * shift, theta - shift, V

    def term(self, theta: Array) -> Array:
        positive = np.maximum(theta, 0.0)
        term: Array = self.square - np.add.reduce(positive * positive, axis=1)
        return term

    def eigenvalues(self, theta: Array) -> Array:
        return np.maximum(theta, 0.0)

    def derivative(self, theta: Array, V: Array) -> StackedDerivative:
        """Return the generalized derivatives (Qi and Sun 2006).

        The derivatives of the positive and the negative part add up to half the direction. So products with
        the eigenvectors of one sign are enough: of the one that is rarer in the whole stack. Two of that sign
        have the weights ``a / (a + b)`` and ``b / (a + b)``, which add up to one.
        """
        n, size = theta.shape[1], np.abs(theta)
        count = np.add.reduce(theta > 0, axis=1)
        most, least = int(np.maximum.reduce(count)), int(np.minimum.reduce(count))
        if most <= n - least:
            few, own, share, sign = slice(n - max(most, 1), n), theta, 0.0, 1.0
        else:
            few, own, share, sign = slice(0, n - least), -theta, 0.5, -1.0
        a = np.maximum(own[:, few], 0.0)[:, :, None]
        G = a / np.maximum(a + size[:, None, :], TINY) / 2
        return StackedDerivative(V[:, :, few], V, G, share, sign)

    def residual(self, a: Array, b: Array) -> Array:
        return b - a


class StackedVonNeumann(StackedSpectral):
    """``tr(X log X - X log X0 - X + X0)``; see :class:`bregopt.divergences.VonNeumann`."""

    largest_order: ClassVar[int] = 250

    def __init__(self, X0: Array) -> None:
        super().__init__(X0)
        eigenvalues, Q = spectra_of(X0)
        if (eigenvalues[:, 0] <= 0).any():
            raise np.linalg.LinAlgError("X0 is not positive definite")
        self.origin = self.log_X0 = (Q * np.log(eigenvalues)[:, None, :]) @ Q.transpose(0, 2, 1)
        self.trace = np.add.reduce(eigenvalues, axis=1)
        self._error = error_of_slope(eigenvalues, Q, np.log)

    @property
    def unit(self) -> Array:
        return self.trace

    def value(self, X: Array) -> Array:
        x = np.linalg.eigvalsh(X)
        inside = x[:, 0] >= -1e-10 * np.maximum(x[:, -1], 0.0)
        x = np.maximum(x, 0.0)
        entropy = (x * np.log(np.maximum(x, TINY))).sum(axis=1)
        linear = inner(X, self.log_X0)
        return np.where(inside, entropy - linear - x.sum(axis=1) + self.trace, np.inf)

    def evaluation_error(self, X: Array, value: Array | None = None) -> Array:
        size = np.linalg.norm(X, axis=(1, 2))
        entropy = X.shape[1] * EPS * size * (np.abs(np.log(np.maximum(size, TINY))) + LEAST_LOGARITHM)
        error = entropy + inner(X, self._error) + UNITS * self.trace
        return np.where(np.isfinite(error), error, np.inf)

    def dual_term(self, S: Array, theta: Array | None = None) -> Array:
        found: Any = np.linalg.eigvalsh(self.log_X0 + S) if theta is None else theta
        return self.term(found)

    def start(self, diagonal: Array) -> tuple[Array, Array, Array]:
        """Return the multipliers that are exact for a diagonal ``X0``."""
        y = np.log(diagonal / self.X0.diagonal(axis1=1, axis2=2))
        return y, *spectra_of(plus_diagonal(self.log_X0, y))

    def term(self, theta: Array) -> Array:
        term = self.trace - np.add.reduce(np.exp(np.minimum(theta, _LARGEST_EXPONENT)), axis=1)
        return np.where(theta[:, -1] > _LARGEST_EXPONENT, -np.inf, term)

    def eigenvalues(self, theta: Array) -> Array:
        return np.exp(np.minimum(theta, _LARGEST_EXPONENT))

    def derivative(self, theta: Array, V: Array) -> StackedDerivative:
        top = theta[:, -1:]
        G = np.exp(top)[:, :, None] * exp_divided_differences(theta - top)
        return StackedDerivative(V, V, G / 2, 0.0, 1.0)

    def residual(self, a: Array, b: Array) -> Array:
        return a * np.log(b / a)


class StackedLogDet(StackedDivergence):
    """``tr(X inv(X0)) - logdet(X inv(X0)) - n`` by ``X0 = L L'``; see :class:`bregopt.divergences.LogDet`."""

    largest_order: ClassVar[int] = 250

    def __init__(self, X0: Array) -> None:
        super().__init__(X0)
        self.L, self.inverse = roots_of(X0), inverses_of(X0)
        diagonal = diagonal_of(X0)
        self._error_of_inverse = error_of_inverse(self.inverse, diagonal)
        self._error_of_log_det = error_of_log_det(self.inverse, diagonal)

    @property
    def unit(self) -> Array:
        return np.ones(len(self.L))

    def value(self, X: Array) -> Array:
        half = solved_below(self.L, X)
        ratio = solved_below(self.L, half.transpose(0, 2, 1))
        value: Array = np.add.reduce(diagonal_of(ratio), axis=1) - _log_dets(ratio) - X.shape[1]
        return value

    def evaluation_error(self, X: Array, value: Array | None = None) -> Array:
        try:
            inverse = inverses_of(X)
            inside: Any = True
        except np.linalg.LinAlgError:
            inside = np.isfinite(_log_dets(X))
            inverse = np.linalg.inv(np.where(inside[:, None, None], X, np.eye(X.shape[1])))
        of_X = error_of_log_det(inverse, diagonal_of(X))
        error = inner(X, self._error_of_inverse) + self._error_of_log_det + of_X
        return np.where(inside & (error < np.inf), error, np.inf)

    def dual_term(self, S: Array, theta: Array | None = None) -> Array:
        """Return ``logdet(I - L' S L)``, whose inverse is the minimizer in the coordinates of ``L``."""
        M = -self.L.transpose(0, 2, 1) @ S @ self.L
        diagonal_of(M)[:] += 1
        return _log_dets(M)


def _log_dets(S: Array) -> Array:
    """Return the logarithms of determinants; ``-inf`` for matrices that are not positive definite."""
    S = (S + S.transpose(0, 2, 1)) / 2
    try:
        roots = roots_of(S)
    except np.linalg.LinAlgError:
        eigenvalues = np.linalg.eigvalsh(S)
        inside = eigenvalues[:, 0] > 0
        return np.where(inside, np.log(np.maximum(eigenvalues, TINY)).sum(axis=1), -np.inf)
    log_dets: Array = 2 * np.add.reduce(np.log(roots.diagonal(axis1=1, axis2=2)), axis=1)
    return log_dets


STACKED: dict[str, type[StackedDivergence]] = {
    "frobenius": StackedFrobenius,
    "von_neumann": StackedVonNeumann,
    "logdet": StackedLogDet,
}


# --- Rows -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EntryStack:
    """The problems ``min D(X, X0)`` over psd ``X`` with ``lo <= X[i, j] <= hi``, one for each ``X0``.

    Parameters
    ----------
    divergence : StackedDivergence
        From the ``B`` matrices of order ``n``. Spectral ones offer more to their method.
    i, j : int array of shape (m,)
        Distinct entries with ``i <= j``; the first ``n`` are the diagonal. Or none at all.
    lo, hi : array of shape (B, m)
        Their bounds, those of the diagonal equal and above zero. An entry without a bound in one of the
        problems has ``-inf`` and ``inf`` there.
    """

    divergence: Any
    i: IntArray
    j: IntArray
    lo: Array
    hi: Array

    def __len__(self) -> int:
        return len(self.lo)

    def __getitem__(self, which: IntArray | Mask | slice) -> EntryStack:
        """Return some of the problems."""
        if isinstance(which, slice) and which == slice(None):
            return self
        return EntryStack(self.divergence[which], self.i, self.j, self.lo[which], self.hi[which])

    def of_rows(self, which: Mask) -> EntryStack:
        """Return the problems with some of the rows."""
        own = {name: getattr(self, name)[..., which] for name in ("i", "j", "lo", "hi")}
        return replace(self, **own)

    @cached_property
    def n(self) -> int:
        """The order of the matrices."""
        return self.divergence.X0.shape[1]

    @cached_property
    def alone(self) -> bool:
        """Whether no entries off the diagonal have bounds."""
        return len(self.i) == self.n

    @cached_property
    def fixed(self) -> bool:
        """Whether all entries with bounds are fixed."""
        return bool(np.logical_and.reduce(self.lo == self.hi, axis=None))

    @cached_property
    def units(self) -> Array:
        """The size of each entry of a feasible matrix, ``sqrt(X_ii X_jj)``, shape (B, m)."""
        root = np.sqrt(self.lo[:, : self.n])
        return self.lo if self.alone else root[:, self.i] * root[:, self.j]

    @property
    def crowded(self) -> bool:
        """Whether the targets violate so many bounds that one problem alone takes other methods less time."""
        if self.fixed:
            return False
        a = self.apply(self.divergence.X0)
        beyond = ((a < self.lo) | (a > self.hi)) & (self.lo < self.hi)
        return int(np.count_nonzero(beyond)) > _CROWD * self.n * len(self)

    def apply(self, X: Array) -> Array:
        """Return the entries of each matrix, shape (B, m)."""
        return X[:, self.i, self.j]

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_k y_k A_k`` of each problem, with ``<A_k, X>`` the entry of row ``k``."""
        S = np.zeros((len(y), self.n, self.n))
        if self.alone:
            S[:, self.i, self.i] = y
            return S
        half = np.where(self.i == self.j, y, y / 2)
        S[:, self.i, self.j] = half
        S[:, self.j, self.i] = half
        return S

    def plus(self, M: Array, y: Array) -> Array:
        """Return the sums of matrices of shape (B, n, n) and those of :meth:`adjoint`."""
        if self.alone:
            return plus_diagonal(M, y)
        return M + self.adjoint(y)

    def times(self, y: Array, M: Array) -> Array:
        """Return the products of those matrices with `M`, shape (B, n, p)."""
        if self.alone:
            return y[:, :, None] * M
        if len(y) > 1 or _SPARSE * (len(self.i) - self.n) > self.n**2:
            return self.adjoint(y) @ M
        product: Array = (y[:, : self.n, None] * M)[0]
        i, j = self.i[self.n :], self.j[self.n :]
        half = y[0, self.n :] / 2
        S = sp.csr_array((np.append(half, half), (np.append(i, j), np.append(j, i))), (self.n, self.n))
        return (product + S @ M[0])[None]

    def entries_of(self, L: Array, R: Array) -> Array:
        """Return the entries of the matrices ``L R' + R L'``, shape (B, m)."""
        diagonal: Array = 2 * np.add.reduce(L * R, axis=2) if len(self.i) else np.zeros((len(L), 0))
        if self.alone or len(self.i) == 0:
            return diagonal
        if _FEW * (len(self.i) - self.n) <= self.n**2:
            i, j = self.i[self.n :], self.j[self.n :]
            others = np.add.reduce(L[:, i] * R[:, j] + R[:, i] * L[:, j], axis=2)
            return np.concatenate([diagonal, others], axis=1)
        M = L @ np.swapaxes(R, 1, 2)
        return self.apply(M) + M[:, self.j, self.i]

    def conjugate(self, y: Array) -> Array:
        """Return each row's term of the dual function, shape (B, m)."""
        if self.fixed:
            return y * self.lo
        acting = np.where(y > 0, self.lo, self.hi)
        return y * np.where(y == 0, 0.0, acting)

    def clip(self, y: Array) -> Array:
        """Return the nearest multipliers inside their range."""
        lower = np.where(np.isfinite(self.hi), -np.inf, 0.0)
        upper = np.where(np.isfinite(self.lo), np.inf, 0.0)
        return np.clip(y, lower, upper)


# --- Linear algebra -------------------------------------------------------------------------------------


def spectra_of(S: Array) -> tuple[Array, Array]:
    """Return the eigenvalues, ascending, and the eigenvectors of symmetric matrices, shape (B, n, n).

    One matrix goes to LAPACK directly, which at small orders takes half the time.
    """
    if len(S) != 1:
        found: Any = np.linalg.eigh(S)
        return found[0], found[1]
    theta, V, info = lapack.dsyevd(S[0], lower=1)
    if info != 0:
        raise np.linalg.LinAlgError("Eigenvalues did not converge")
    return theta[None], V[None]


def roots_of(S: Array) -> Array:
    """Return the lower Cholesky factors of positive definite matrices, shape (B, n, n).

    One matrix goes to LAPACK directly here, too, and in the functions that follow.

    Raises
    ------
    numpy.linalg.LinAlgError
        If one is not positive definite.
    """
    if len(S) != 1:
        roots: Any = np.linalg.cholesky(S)
        return roots
    root = root_of(S[0])
    if root is None:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return root[None]


def inverses_of(S: Array) -> Array:
    """Return the inverses of positive definite matrices, symmetric, shape (B, n, n)."""
    if len(S) != 1:
        inverses: Any = np.linalg.inv(S)
        symmetric: Array = (inverses + np.swapaxes(inverses, 1, 2)) / 2
        return symmetric
    return inverse_of(roots_of(S)[0])[None]


def solved_below(L: Array, M: Array) -> Array:
    """Return ``inv(L) M`` for lower triangular matrices, shape (B, n, n)."""
    if len(L) != 1:
        found: Any = np.linalg.solve(L, M)
        return found
    return lapack.dtrtrs(L[0], M[0], lower=1)[0][None]


def plus_diagonal(M: Array, d: Array) -> Array:
    """Return ``M + Diag(d)`` for each of a stack, shape (B, n, n) for diagonals of shape (B, n)."""
    total = M.copy()
    diagonal_of(total)[:] += d
    return total


def diagonal_of(M: Array) -> Array:
    """Return a view of the diagonals of a contiguous stack, shape (B, n)."""
    n = M.shape[1]
    return M.reshape(len(M), n * n)[:, :: n + 1]


def solutions_of(H: Array, right: Array) -> Array:
    """Return the solutions of systems with positive definite matrices, shape (B, n) for (B, n, n).

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is singular, or the only one is not positive definite.
    """
    if len(H) != 1:
        found: Any = np.linalg.solve(H, right[:, :, None])
        return found[:, :, 0]
    _, x, info = lapack.dposv(H[0], right[0], lower=1)
    if info != 0:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return x[None]
