"""Nearest correlation matrices of a stack and their derivatives, all at once.

A change of ``A`` also moves rows that keep entries of ``X`` at those of ``A`` (:class:`Congruence`). With
multipliers ``v`` of the diagonal ``X = f(Theta)``, ``Theta = phi(A) + Diag(v)``: the positive part for
Frobenius, the exponential for von Neumann, minus the inverse for LogDet, and ``phi`` the identity, the
logarithm, minus the inverse. With the divided differences ``Omega`` of ``f``, ``P'[S] = V (Omega o V'SV) V'``
and ``H_ij = sum_ab V_ia V_ja Omega_ab V_ib V_jb``,

    H dv = -diag P'[phi'(dA)],    dX = P'[phi'(dA) + Diag(dv)].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.divergences.spectrum import exp_divided_differences
from bregopt.linalg import symmetrize
from bregopt.records import PickledWithoutCache, cached_property, dataclass

SMALLEST_MARGIN = 1e-8  # relative; below it an answer counts as a point without a derivative
_STEPS = 4  # of Newton's method from an answer
_ENOUGH = 1e-13  # the error of the diagonal at which it ends


@dataclass(frozen=True, eq=False)
class Congruence:
    """``X`` near ``A`` by way of ``Y = S (X - t I) S`` near ``S (A - t I) S``.

    Parameters
    ----------
    s : array of shape (n,)
        The diagonal of ``S``, above zero.
    first : int
        The first of consecutive rows of the problem that keep entries of ``X`` at those of ``A``.
    i, j : int array of shape (k,)
        These entries.
    """

    s: Array
    first: int
    i: IntArray
    j: IntArray

    @property
    def rows(self) -> slice:
        """The rows of these entries."""
        return slice(self.first, self.first + len(self.i))

    def cotangent(self, G: Array) -> Array:
        """Return the cotangent of ``Y`` of one of ``X``."""
        return G / np.outer(self.s, self.s)

    def tangent(self, dY: Array) -> Array:
        """Return the change of ``X`` of one of ``Y``."""
        return dY / np.outer(self.s, self.s)

    def gradient(self, of_start: Array, of_rows: Array) -> Array:
        """Return the gradient in ``A`` of those in the start and in the right-hand sides of all rows."""
        gradient = of_start * np.outer(self.s, self.s)
        half = of_rows[self.rows] / 2
        np.add.at(gradient, (self.i, self.j), half)
        np.add.at(gradient, (self.j, self.i), half)
        return gradient

    def change(self, dA: Array, m: int) -> tuple[Array, Array]:
        """Return the changes of the start and of the right-hand sides of `m` rows."""
        rows = np.zeros(m)
        rows[self.rows] = (dA[self.i, self.j] + dA[self.j, self.i]) / 2
        return dA * np.outer(self.s, self.s), rows


class StackedCorrelations(PickledWithoutCache):
    """Matrices ``X`` with given multipliers.

    Parameters
    ----------
    divergence : {"frobenius", "logdet", "von_neumann"}
    A : array of shape (b, n, n)
        Symmetric.
    v : array of shape (b, n)
    """

    def __init__(self, divergence: str, A: Array, v: Array) -> None:
        self._divergence, self._A, self.v = divergence, A, v
        Theta = self._phi.copy()
        k = np.arange(A.shape[-1])
        Theta[:, k, k] += v
        self.theta, self.V = np.linalg.eigh(Theta)

    @cached_property
    def X(self) -> Array:
        """The matrices."""
        return symmetrize((self.V * self._values[:, None, :]) @ np.swapaxes(self.V, 1, 2))

    @cached_property
    def missed(self) -> Array:
        """The distance of the diagonals from one."""
        return 1 - np.einsum("bij,bj->bi", self.V**2, self._values)

    @property
    def margins(self) -> Array:
        """The least magnitude of an eigenvalue of ``X - Z``, relative to the largest; infinite if smooth."""
        if self._divergence != "frobenius":
            return np.full(len(self.theta), np.inf)
        size = np.abs(self.theta)
        return np.asarray(size.min(axis=1) / np.maximum(size.max(axis=1), TINY), dtype=float)

    @classmethod
    def of_rows(cls, divergence: str, A: Array, y: Array) -> StackedCorrelations:
        """Return the matrices with the multipliers `y` of their rows, shape (b, n)."""
        return cls(divergence, A, y / 2 if divergence == "frobenius" else y)

    def refined(self) -> StackedCorrelations:
        """Return the matrices after steps of Newton's method from certified answers.

        It ends at round-off, or where the error does not fall.
        """
        at, missed = self, float(np.abs(self.missed).max(initial=0.0))
        for _ in range(_STEPS):
            if missed <= _ENOUGH:
                break
            try:
                new = StackedCorrelations(at._divergence, at._A, at.v + at._solved(at.missed))
            except np.linalg.LinAlgError:  # a singular Hessian
                break
            left = float(np.abs(new.missed).max(initial=0.0))
            if not left < missed:
                break
            at, missed = new, left
        return at

    def check_exists(self, name: Callable[[int], str], first: int = 0) -> None:
        """Raise a ValueError if a matrix has no derivative, with its name; `first` is the first's number."""
        k = int(self.margins.argmin())
        if self.margins[k] < SMALLEST_MARGIN:
            raise ValueError(
                f"the answer of {name(first + k)} has no derivative: an eigenvalue of X - Z is zero "
                f"({self.margins[k]:.1e}, relative; expected above {SMALLEST_MARGIN:g})"
            )

    def jvp(self, dA: Array) -> Array:
        """Return the changes of the matrices."""
        S = self._anchored(dA)
        return self._derivative(_plus_diagonal(S, -self._solved(self._diagonal_of(S))))

    def vjp(self, G: Array) -> Array:
        """Return the gradients in ``A`` of ``<G, X>``."""
        return self._anchored(self._derivative(_plus_diagonal(G, -self._solved(self._diagonal_of(G)))))

    @cached_property
    def _values(self) -> Array:
        """The eigenvalues of the matrices."""
        if self._divergence == "frobenius":
            return np.maximum(self.theta, 0.0)
        return np.exp(self.theta) if self._divergence == "von_neumann" else -1 / self.theta

    @cached_property
    def _differences(self) -> Array:
        theta, x = self.theta, self._values
        if self._divergence == "logdet":
            return x[:, :, None] * x[:, None, :]
        if self._divergence == "von_neumann":
            top = theta[:, -1:]
            return np.exp(top)[:, :, None] * exp_divided_differences(theta - top)
        size = np.abs(theta)
        total = size[:, :, None] + size[:, None, :]
        return (x[:, :, None] + x[:, None, :]) / np.maximum(total, TINY)

    def _derivative(self, S: Array) -> Array:
        """Return ``P'[S]``."""
        Vt = np.swapaxes(self.V, 1, 2)
        return symmetrize(self.V @ (self._differences * (Vt @ S @ self.V)) @ Vt)

    def _diagonal_of(self, S: Array) -> Array:
        """Return ``diag P'[S]``."""
        inside = self._differences * (np.swapaxes(self.V, 1, 2) @ S @ self.V)
        return np.einsum("bia,bia->bi", self.V @ inside, self.V)

    def _solved(self, right: Array) -> Array:
        """Return the solutions of ``H v = right``."""
        return np.asarray(np.linalg.solve(self._H, right[:, :, None])[:, :, 0], dtype=float)

    @cached_property
    def _H(self) -> Array:
        if self._divergence == "logdet":
            return self.X**2
        H = np.empty_like(self._A)
        for k, V in enumerate(self.V):
            products = V[:, None, :] * V  # V_ia V_ja
            if self._divergence == "frobenius":  # differences of one inside a sign, and zero
                p = int((self.theta[k] <= 0).sum())
                mixed = products[:, :, :p] @ self._differences[k, :p, p:]
                positive = V[:, p:] @ V[:, p:].T
                H[k] = positive**2 + 2 * np.einsum("ija,ija->ij", mixed, products[:, :, p:])
            else:
                H[k] = np.einsum("ija,ija->ij", products @ self._differences[k], products)
        return H

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of ``A``."""
        theta, Q = np.linalg.eigh(self._A)
        return theta, Q

    @cached_property
    def _phi(self) -> Array:
        if self._divergence == "frobenius":
            return self._A
        a, Q = self._spectrum
        mapped = np.log(a) if self._divergence == "von_neumann" else -1 / a
        return symmetrize((Q * mapped[:, None, :]) @ np.swapaxes(Q, 1, 2))

    def _anchored(self, S: Array) -> Array:
        """Return ``phi'(S)``, a self-adjoint map."""
        if self._divergence == "frobenius":
            return S
        a, Q = self._spectrum
        if self._divergence == "logdet":
            slopes = 1 / (a[:, :, None] * a[:, None, :])
        else:
            logs = np.log(a)
            top = logs[:, -1:]
            slopes = 1 / (np.exp(top)[:, :, None] * exp_divided_differences(logs - top))
        Qt = np.swapaxes(Q, 1, 2)
        return symmetrize(Q @ (slopes * (Qt @ S @ Q)) @ Qt)


def _plus_diagonal(S: Array, d: Array) -> Array:
    moved, k = S.copy(), np.arange(S.shape[-1])
    moved[:, k, k] += d
    return moved
