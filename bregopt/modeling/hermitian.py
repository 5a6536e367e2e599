"""Hermitian matrix variables, as real symmetric ones of twice the order.

A Hermitian ``X`` is psd if and only if the real matrix ``[Re X, -Im X; Im X, Re X]`` is. Both have the same
eigenvalues, each twice in the real one, so that traces and divergences are twice those of ``X``. All data of
a problem have that form too. So with any ``Y`` that is optimal for the real problem the mean of ``Y`` and
``J Y J'``, ``J = [0, -I; I, 0]``, is optimal, and it has the form (Goemans, Williamson 2004, Approximation
algorithms for MAX-3-CUT and other problems via complex semidefinite programming, J. Comput. Syst. Sci. 68).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import ComplexArray, IntArray, complex_array, entry_indices, hermitian_matrix, symmetrized
from bregopt.modeling.complex_expressions import ComplexExpression
from bregopt.modeling.expressions import Expression
from bregopt.program.rows import Coordinates, RankOnePairs, SparseRows

__all__ = ["HermitianPSD", "compressed", "embedded", "half_embedded", "hermitian_forms"]


class HermitianPSD(ComplexExpression):
    """A Hermitian positive semidefinite matrix variable, made by ``bo.PSD(n, hermitian=True)``.

    Parameters
    ----------
    block : PSD
        Its real form, of order ``2 n``.

    Attributes
    ----------
    real, imag : Expression
        The real and the imaginary part, of shape ``(n, n)``; the imaginary part is antisymmetric.
    value : complex array of shape (n, n), or None
        Set by :meth:`bregopt.Problem.solve`. A value that you set must be finite, Hermitian and positive
        semidefinite; it is copied.
    """

    is_hermitian = True

    def __init__(self, block: Any) -> None:
        self.block = block
        self.n = block.n // 2
        self.name = self.label = block.name

    @property
    def shape(self) -> tuple[int, int]:
        """The shape ``(n, n)``."""
        return self.n, self.n

    @property
    def real(self) -> Expression:
        """The real part, symmetric."""
        return self[:, :].real

    @property
    def imag(self) -> Expression:
        """The imaginary part, antisymmetric."""
        return self[:, :].imag

    @property
    def H(self) -> HermitianPSD:
        """The conjugate transpose, which is the matrix itself."""
        return self

    @property
    def value(self) -> ComplexArray | None:
        """The current value, read-only, or None."""
        Y = self.block.value
        return None if Y is None else compressed(Y)

    @value.setter
    def value(self, value: Any) -> None:
        name = f"value of {self.name}"
        self.block.value = None if value is None else embedded(hermitian_matrix(value, name, self.n))

    def __getitem__(self, key: Any) -> ComplexExpression:
        """Return entries; `key` is any index that NumPy accepts for an array of shape ``(n, n)``."""
        i, j = entry_indices(key, self.n, self.name)
        shape, label = np.shape(i), f"{self.name}[{i}, {j}]" if np.ndim(i) == 0 else f"{self.name}[...]"
        i, j, n = np.ravel(i), np.ravel(j), self.n
        real = self._half_sum((i, j), (n + i, n + j), 1.0, shape, f"{label}.real")
        return ComplexExpression(
            real, self._half_sum((n + i, j), (i, n + j), -1.0, shape, f"{label}.imag"), label
        )

    def _half_sum(
        self,
        first: tuple[IntArray, IntArray],
        second: tuple[IntArray, IntArray],
        sign: float,
        shape: tuple[int, ...],
        label: str,
    ) -> Expression:
        """Return half of the sum of entries of the block and of `sign` times other entries."""
        m = len(first[0])
        row = np.tile(np.arange(m), 2)
        i, j = (np.concatenate(pair) for pair in zip(first, second, strict=True))
        terms = Coordinates(row, i, j, np.repeat([0.5, 0.5 * sign], m))
        rows = SparseRows.of(m, self.block.n, terms)
        return Expression(shape, np.zeros(m), {self.block: rows}, label=label)

    def __repr__(self) -> str:
        return f"PSD({self.n}, name={self.name!r}, hermitian=True)"


def half_embedded(A: Any, name: str, n: int) -> Any:
    """Return ``B`` with ``<B, Y> = tr(A X)`` for the real form ``Y`` of ``X``, after checks of `A`."""
    if not sp.issparse(A):
        return embedded(hermitian_matrix(A, name, n)) / 2
    if A.shape != (n, n):
        raise ValueError(f"{name} has shape {A.shape}; expected {n} x {n}")
    complex_array(sp.coo_array(A).data, name)
    return embedded(symmetrized(sp.csr_array(A, dtype=complex), name)) / 2


def hermitian_forms(Z: Any, X: HermitianPSD) -> Expression:
    """Return ``z*X z`` for each row ``z`` of `Z`, as :func:`bregopt.quad_form`."""
    given = complex_array(Z, "Z of quad_form", ndim=(1, 2))
    rows = np.atleast_2d(given)
    if rows.shape[1] != X.n:
        raise ValueError(f"Z of quad_form has shape {given.shape}; expected rows of length {X.n}")
    m = len(rows)
    if m == 0:
        raise ValueError("Z of quad_form has no rows; expected at least one")
    U, W = np.hstack([rows.real, rows.imag]), np.hstack([-rows.imag, rows.real])
    forms = RankOnePairs(U, W, np.full(m, 0.5))
    return Expression(given.shape[:-1], np.zeros(m), {X.block: forms}, label=f"quad_form(Z, {X.name})")


def embedded(A: Any) -> Any:
    """Return ``[Re A, -Im A; Im A, Re A]``, dense or sparse as `A`; symmetric where `A` is Hermitian."""
    if sp.issparse(A):
        return sp.csr_array(sp.block_array([[A.real, -A.imag], [A.imag, A.real]]))
    return np.block([[A.real, -A.imag], [A.imag, A.real]])


def compressed(Y: Any) -> ComplexArray:
    """Return ``A`` for the matrix ``[Re A, -Im A; Im A, Re A]`` that is nearest to `Y`."""
    n = len(Y) // 2
    A: ComplexArray = (Y[:n, :n] + Y[n:, n:] + 1j * (Y[n:, :n] - Y[:n, n:])) / 2
    return A
