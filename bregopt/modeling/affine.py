"""Arrays of affine forms of matrix variables, ordinary variables and parameters.

An :class:`Affine` of shape ``s`` has ``prod(s)`` rows in C order. Each row is a linear functional of every
matrix variable (one row family for each), plus a row of a sparse matrix for every ordinary variable and
every parameter, plus a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, finite_array
from bregopt.modeling.naming import Formula
from bregopt.program.rows import Rows, add_rows, combine_rows

__all__ = ["Affine"]

_LONGEST_LABEL = 80  # characters; of a longer sum the last terms are left out
_MORE = " + ..."


@dataclass(frozen=True, eq=False)
class Affine(Formula):
    """An array of affine forms, and its arithmetic by name; results have the class of the array.

    Parameters
    ----------
    shape : tuple of int
    constant : array of shape (rows,)
    psd : dict from PSD to Rows
    variables : dict from Variable to csr_array of shape (rows, variable size)
    parameters : dict from Parameter to csr_array of shape (rows, parameter size)
    label : str
        Its name in messages.
    """

    shape: tuple[int, ...]
    constant: Array
    psd: dict[Any, Rows] = field(default_factory=dict)
    variables: dict[Any, Any] = field(default_factory=dict)
    parameters: dict[Any, Any] = field(default_factory=dict)
    label: str = "affine expression"

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.constant)

    @property
    def is_constant(self) -> bool:
        """Whether no variable occurs; parameters may occur."""
        return not self.psd and not self.variables

    @property
    def full_label(self) -> str:
        """The label with constants and parameters, which `label` leaves to the bound of a constraint."""
        terms = [] if self.is_constant else [self.label, *(p.name for p in self.parameters)]
        first = float(self.constant[0])
        if self.is_constant or self.constant.any():
            same = bool((self.constant == first).all())
            terms.append(f"{first:g}" if same else "b" if self.is_constant or self.size > 1 else f"{first:g}")
        return " + ".join(terms).replace("+ -", "- ")

    @property
    def value(self) -> Array | float | None:
        """The number or array at the current values, None if a variable or parameter has none."""
        total = self.constant.copy()
        for X, rows in self.psd.items():
            if X.value is None:
                return None
            total += rows.apply(X.value)
        linear: list[tuple[Any, Any]] = [*self.variables.items(), *self.parameters.items()]
        for operand, matrix in linear:
            if operand.value is None:
                return None
            total += matrix @ np.ravel(operand.value)
        return total.reshape(self.shape) if self.shape else float(total[0])

    def plus(self, other: Affine) -> Self:
        """Return the sum, broadcast as NumPy does."""
        a, b = self.broadcast_with(other)
        return type(self)(
            a.shape,
            a.constant + b.constant,
            _merged(a.psd, b.psd, add_rows),
            _merged(a.variables, b.variables, _add_csr),
            _merged(a.parameters, b.parameters, _add_csr),
            _sum_label(a, b),
        )

    def broadcast_with(self, other: Affine) -> tuple[Self, Affine]:
        """Return both arrays in their common shape after broadcasting."""
        shape = self.shape if self.shape == other.shape else _broadcast_shape(self, other)
        return self.broadcast_to(shape), other.broadcast_to(shape)

    def broadcast_to(self, shape: tuple[int, ...]) -> Self:
        """Return the array repeated to a shape, as NumPy does."""
        if shape == self.shape:
            return self
        if not self.shape and self.is_constant and not self.parameters:
            return type(self)(shape, np.full(math.prod(shape), self.constant[0]), label=self.label)
        numbers = np.broadcast_to(np.arange(self.size).reshape(self.shape), shape).ravel()
        return self.taken(numbers, shape, self.label)

    def times(self, factor: Any) -> Self:
        """Return the product with numbers, broadcast as NumPy does."""
        factor = np.asarray(factor, dtype=float)
        shape = np.broadcast_shapes(self.shape, factor.shape)
        e = self.broadcast_to(shape)
        weight = np.broadcast_to(factor, shape).ravel().astype(float)
        return type(self)(
            shape,
            e.constant * weight + 0.0,  # avoids negative zeros in messages
            {X: rows.scale(weight) for X, rows in e.psd.items()},
            {u: _times(weight, matrix) for u, matrix in e.variables.items()},
            {p: _times(weight, matrix) for p, matrix in e.parameters.items()},
            _scaled_label(e.label, factor),
        )

    def mapped(self, matrix: Any, left: bool = True) -> Self:
        """Return ``matrix @ self``, or ``self @ matrix`` if not `left`, for a vector expression.

        The matrix is sparse, or an array of one or two dimensions.
        """
        mapping = matrix if left else matrix.T
        if len(self.shape) != 1 or mapping.shape[-1] != self.size:
            raise ValueError(_mismatch(self, matrix.shape, left))
        S = sp.csr_array(np.atleast_2d(mapping) if not sp.issparse(mapping) else mapping)
        finite_array(S.data, "factor of @")
        return self._combined(S, mapping.shape[:-1], f"A @ {self.label}" if left else f"{self.label} @ A")

    def summed(self) -> Self:
        """Return the sum of all elements."""
        return self._combined(sp.csr_array(np.ones((1, self.size))), (), f"sum({self.label})")

    def constant_part(self) -> Self:
        """Return the part without variables."""
        return type(self)(self.shape, self.constant, parameters=self.parameters, label=self.label)

    def variable_part(self) -> Self:
        """Return the part with variables."""
        return type(self)(self.shape, np.zeros(self.size), self.psd, self.variables, label=self.label)

    def without(self, u: Any) -> Self:
        """Return the array without the terms of an ordinary variable."""
        return replace(self, variables={v: matrix for v, matrix in self.variables.items() if v is not u})

    def _combined(self, S: Any, shape: tuple[int, ...], label: str) -> Self:
        return type(self)(
            shape,
            S @ self.constant,
            {X: combine_rows(S, rows) for X, rows in self.psd.items()},
            {u: sp.csr_array(S @ matrix) for u, matrix in self.variables.items()},
            {p: sp.csr_array(S @ matrix) for p, matrix in self.parameters.items()},
            label,
        )

    def taken(self, rows: IntArray, shape: tuple[int, ...], label: str) -> Self:
        """Return these rows, in a shape and with a label of their own."""
        return type(self)(
            shape,
            self.constant[rows],
            {X: family.slice(rows) for X, family in self.psd.items()},
            {u: matrix[rows] for u, matrix in self.variables.items()},
            {p: matrix[rows] for p, matrix in self.parameters.items()},
            label,
        )


def _mismatch(e: Affine, shape: tuple[int, ...], left: bool) -> str:
    """Return the message on a product of mismatched shapes, with the operands in their written order."""
    first, second = (shape, e.shape) if left else (e.shape, shape)
    if len(e.shape) == 1:
        k = e.size
        expected = f"(.., {k}) and ({k},)" if left else f"({k},) and ({k}, ..)"
    else:
        expected = (
            f"a vector expression: take one row, {e.label}[i] @ v; for v'Xv there is bo.quad_form(v, X), for "
            "tr(AX) bo.inner(A, X)"
        )
    return f"@ of shapes {first} and {second}; expected {expected}"


def _broadcast_shape(a: Affine, b: Affine) -> tuple[int, ...]:
    if not b.shape:
        return a.shape
    try:
        return np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ValueError(
            f"shapes of {a.label} {a.shape} and {b.label} {b.shape} do not go together"
        ) from None


def _merged(a: dict[Any, Any], b: dict[Any, Any], add: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    merged = dict(a)
    for key, value in b.items():
        merged[key] = add(merged[key], value) if key in merged else value
    return merged


def _add_csr(a: Any, b: Any) -> Any:
    return sp.csr_array(a + b)


def _times(weight: Array, matrix: Any) -> Any:
    """Return ``diag(weight) @ matrix`` in CSR form."""
    product = sp.csr_array(matrix, copy=True)
    product.data *= np.repeat(weight, np.diff(product.indptr))
    return product


def _sum_label(a: Affine, b: Affine) -> str:
    """Return the label of a sum; it omits numbers and parameters beside variables, as bounds show them."""
    named = [e.label for e in (a, b) if not e.is_constant] or [e.label for e in (a, b) if e.parameters]
    if len(named) < 2:
        return named[0] if named else a.label
    first, second = named
    whole = f"{first} - {second[1:]}" if second.startswith("-") else f"{first} + {second}"
    if len(whole) <= _LONGEST_LABEL:
        return whole
    return first if first.endswith(_MORE) else f"{first}{_MORE}"


def _scaled_label(label: str, factor: Array) -> str:
    if factor.ndim or factor == 1:
        return label
    several = " + " in label or " - " in label
    if factor == -1 and label.startswith("-") and not several:
        return label[1:]
    if several or label.startswith("-"):
        label = f"({label})"
    return _short(f"-{label}" if factor == -1 else f"{float(factor):g} {label}")


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL + len(_MORE) else "affine expression"
