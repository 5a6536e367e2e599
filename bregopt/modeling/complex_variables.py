"""Complex variables and parameters, and Hermitian matrices as real symmetric ones of twice the order.

A complex variable or parameter is a real one that holds both parts. A Hermitian ``X`` is psd if and
only if the real matrix ``[Re X, -Im X; Im X, Re X]`` is. Both have the same eigenvalues, each twice in the
real one, so that traces and divergences are twice those of ``X``. All data of a problem have that form too.
So with any ``Y`` that is optimal for the real problem the mean of ``Y`` and ``J Y J'`` is optimal, with
``J = [0, -I; I, 0]``, and it has the form (Goemans, Williamson 2004, Approximation algorithms for MAX-3-CUT
and other problems via complex semidefinite programming, J. Comput. Syst. Sci. 68).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import (
    Array,
    ComplexArray,
    IntArray,
    complex_array,
    entry_indices,
    hermitian_matrix,
    symmetrized,
)
from bregopt.modeling.complex_expressions import ComplexExpression, ComplexForms
from bregopt.modeling.expressions import Expression
from bregopt.program.rows import Coordinates, RankOnePairs, SparseRows
from bregopt.records import replace


class ComplexOperand(ComplexForms):
    """A complex variable or parameter, made by ``bo.Variable`` and ``bo.Parameter``.

    Parameters
    ----------
    parts : Variable or Parameter
        The real one that stands for it in programs, with the real and then the imaginary parts. Of a
        Hermitian matrix it is a square one: with the real parts on and above the diagonal, and the imaginary
        parts of the mirrored entries below.
    is_hermitian : bool

    Attributes
    ----------
    real, imag : Expression
        The two parts, of the shape of the operand.
    value : complex or complex array of that shape, or None
        A value that you set must be finite, of that shape, and Hermitian where that is declared; it is
        copied.
    """

    def __init__(self, parts: Any, is_hermitian: bool) -> None:
        self.parts, self.is_hermitian = parts, is_hermitian
        self.name = self.label = parts.name
        e: Expression = parts.expression()
        real, imag = (e, e) if is_hermitian else (e[0], e[1])
        if is_hermitian:
            i, j = np.indices(parts.shape)
            low, high = np.minimum(i, j), np.maximum(i, j)
            real, imag = e[low, high], e[high, low] * np.sign(j - i)
        self._parts = tuple(
            replace(part, label=f"{self.name}.{kind}") for part, kind in ((real, "real"), (imag, "imag"))
        )

    @property
    def value(self) -> Any:
        """The current value, read-only, or None."""
        return None if self.parts.value is None else self.of_parts(np.asarray(self.parts.value))

    @value.setter
    def value(self, value: Any) -> None:
        self.parts.value = None if value is None else self._in_parts(value)

    def of_parts(self, parts: Array) -> Any:
        """Return the value whose parts these are."""
        if self.is_hermitian:
            below = np.tril(parts, -1)
            value: ComplexArray = np.triu(parts) + np.triu(parts, 1).T + 1j * (below.T - below)
        else:
            value = parts[0] + 1j * parts[1]
        if not self.shape:
            return complex(value)
        value.setflags(write=False)
        return value

    def _in_parts(self, value: Any) -> Array:
        name = f"value of {self.name}"
        if self.is_hermitian:
            A = hermitian_matrix(value, name, self.shape[0])
            return np.triu(A.real) - np.tril(A.imag, -1)
        array = complex_array(value, name)
        if array.shape != self.shape:
            raise ValueError(f"{name} has shape {array.shape}; expected {self.shape}")
        return np.stack([array.real, array.imag])

    def __repr__(self) -> str:
        kind = "hermitian" if self.is_hermitian else "complex"
        return f"{type(self.parts).__name__}({self.shape}, name={self.name!r}, {kind}=True)"


class HermitianPSD(ComplexForms):
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
