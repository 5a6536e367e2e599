"""Positive semidefinite matrix variables, symmetric or Hermitian."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import Array, ComplexArray, entry_indices, symmetric_matrix
from bregopt.memory import check_memory
from bregopt.modeling.declared import VALUE_TOL, checked_name, checked_size
from bregopt.modeling.expressions import Expression, Operand
from bregopt.modeling.hermitian import HermitianPSD, compressed, embedded
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.rows import Entries

__all__ = ["PSD"]

_ORDER = 16  # bytes that a declaration takes for each row of a matrix: indices


class PSD(Operand):
    """A symmetric positive semidefinite matrix variable, or a Hermitian one.

    Parameters
    ----------
    n : int
        Its order.
    name : str, optional
        Its name in messages and answers.
    hermitian : bool
        Whether it is complex Hermitian. Its parts are ``X.real`` and ``X.imag``, and its value is complex.

    Attributes
    ----------
    value : array of shape (n, n), LowRank or None
        Set by :meth:`bregopt.Problem.solve`. A value that you set must be finite, symmetric (Hermitian) and
        positive semidefinite; it is copied.

    Raises
    ------
    TypeError, ValueError
        If `n` is not a positive integer, `name` is not a string, `hermitian` is not a bool, or a value set is
        not such a matrix.
    """

    is_hermitian = False
    is_slack = False  # of a matrix inequality, which has no place in answers

    def __new__(cls, *args: Any, hermitian: bool = False, **named: Any) -> Any:
        """Return the variable; a Hermitian one has a class of its own."""
        if not isinstance(hermitian, bool):
            raise TypeError(f"hermitian is {hermitian!r}; expected True or False")
        if not hermitian:
            return super().__new__(cls)
        return _RealForm(*args, **named).whole

    def __init__(self, n: int, name: str | None = None, *, hermitian: bool = False) -> None:
        self.n = checked_size(n, "n")
        self.name = checked_name(name, "X")
        check_memory(_ORDER * self.n, f"n = {self.n} of {self.name}")
        self._value: Array | LowRank | None = None

    @property
    def value(self) -> Array | LowRank | None:
        """The current value, read-only, or None."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = None if value is None else self._checked(value)

    @property
    def whole(self) -> Any:
        """The variable that the user declared: this one, or the Hermitian one whose real form it is."""
        return self

    @property
    def block(self) -> PSD:
        """The real matrix in the program: this one."""
        return self

    def of_block(self, value: Matrix) -> Matrix | ComplexArray:
        """Return the matrix of the declared variable that belongs to one of the program."""
        return value

    def set_answer(self, value: Matrix | None) -> Matrix | ComplexArray | None:
        """Set the value without a check or a copy; return that of the declared variable."""
        self._value = value
        return value

    def _checked(self, value: Any) -> Array | LowRank:
        name = f"value of {self.name}"
        if isinstance(value, LowRank):
            if value.shape != self.shape:
                raise ValueError(f"{name} has shape {value.shape}; expected {self.n} x {self.n}")
            return value
        matrix = symmetric_matrix(value, name, self.n)
        least = float(np.linalg.eigvalsh(matrix)[0])
        if least < -VALUE_TOL * np.abs(matrix).max():
            raise ValueError(
                f"{name} has the eigenvalue {least:.3g}; expected a positive semidefinite matrix"
            )
        matrix.setflags(write=False)
        return matrix

    @property
    def shape(self) -> tuple[int, int]:
        """The shape ``(n, n)``."""
        return self.n, self.n

    @property
    def T(self) -> PSD:
        """The transpose, which is the matrix itself."""
        return self

    def __getitem__(self, key: Any) -> Expression:
        """Return entries; `key` is any index that NumPy accepts for an array of shape ``(n, n)``."""
        i, j = entry_indices(key, self.n, self.name)
        shape = np.shape(i)
        entries = Entries(self.n, np.ravel(i), np.ravel(j), np.ones(np.size(i)))
        label = f"{self.name}[{int(i)}, {int(j)}]" if shape == () else f"{self.name}[...]"
        return Expression(shape, np.zeros(np.size(i)), {self: entries}, label=label)

    def expression(self) -> Expression:
        """Return all entries, shape ``(n, n)``."""
        return replace(self[:, :], label=self.name)

    def __repr__(self) -> str:
        return f"PSD({self.n}, name={self.name!r})"


class _RealForm(PSD):
    """The real matrix of order ``2 n`` of a Hermitian one of order `n`."""

    def __init__(self, n: int, name: str | None = None) -> None:
        super().__init__(n, name)
        self.n = 2 * self.n
        self._whole: Any = None

    @property
    def whole(self) -> Any:
        """The Hermitian matrix."""
        if self._whole is None:
            self._whole = HermitianPSD(self)
        return self._whole

    def of_block(self, value: Any) -> ComplexArray:
        """Return the Hermitian matrix of the nearest real form."""
        return compressed(np.asarray(value))

    def set_answer(self, value: Array | LowRank | None) -> ComplexArray | None:
        """Set the value to the nearest real form; return it as a complex matrix."""
        X = None if value is None else self.of_block(value)
        self._value = None if X is None else embedded(X)
        return X
