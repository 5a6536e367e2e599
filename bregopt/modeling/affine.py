"""Arrays of affine forms of matrix variables, ordinary variables and parameters.

An :class:`Affine` of shape ``s`` has ``prod(s)`` rows in C order. Each row is a linear functional of every
matrix variable (one row family for each), plus a row of a sparse matrix for every ordinary variable and
every parameter, plus a constant, plus products of parameters and affine forms (:class:`Product`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.modeling.labels import as_factor, scaled_label, sum_label
from bregopt.modeling.naming import Formula
from bregopt.program.rows import Rows, add_rows, combine_rows, stacked_rows

__all__ = ["Affine", "Product", "check_shapes"]


@dataclass(frozen=True, eq=False)
class Product:
    """Affine forms times elements of a parameter: the rows ``weights @ (parameter[at] * factor)``.

    Parameters
    ----------
    parameter : Parameter
    at : int array of shape (t,)
        Elements of the parameter.
    factor : Affine
        Its `t` rows hold no parameter and no constant.
    weights : csr_array of shape (rows, t)
    """

    parameter: Any
    at: IntArray
    factor: Affine
    weights: Any

    def at_values(self, values: Mapping[Any, Any]) -> Array:
        """Return the rows at given values of the operands."""
        factor = np.ravel(self.factor.at(values))
        rows: Array = self.weights @ (np.ravel(values[self.parameter])[self.at] * factor)
        return rows

    def weighed(self, weights: Any) -> Product:
        """Return the product with other weights."""
        return replace(self, weights=sp.csr_array(weights))


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
    products : tuple of Product
    label : str
        Its name in messages.
    """

    shape: tuple[int, ...]
    constant: Array
    psd: dict[Any, Rows] = field(default_factory=dict)
    variables: dict[Any, Any] = field(default_factory=dict)
    parameters: dict[Any, Any] = field(default_factory=dict)
    products: tuple[Product, ...] = ()
    label: str = "affine expression"

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.constant)

    @property
    def is_constant(self) -> bool:
        """Whether no variable occurs; parameters may occur."""
        return not self.psd and not self.variables and not self.products

    def operands(self, kind: Literal["psd", "variables", "parameters"]) -> Iterable[Any]:
        """Return the variables or parameters of a kind that occur, each once."""
        own: dict[Any, Any] = getattr(self, kind)
        if not self.products:
            return own
        if kind == "parameters":
            return dict.fromkeys((*own, *(product.parameter for product in self.products)))
        factors = (operand for product in self.products for operand in getattr(product.factor, kind))
        return dict.fromkeys((*own, *factors))

    @property
    def T(self) -> Self:
        """The transpose; of a vector the vector itself, as in NumPy."""
        numbers = np.arange(self.size).reshape(self.shape).T
        return self.taken(numbers.ravel(), numbers.shape, f"{as_factor(self.label)}.T")

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
        operands = (*self.operands("psd"), *self.operands("variables"), *self.operands("parameters"))
        values = {operand: operand.value for operand in operands}
        return None if any(value is None for value in values.values()) else self.at(values)

    def at(self, values: Mapping[Any, Any]) -> Array | float:
        """Return the number or array at given values of its operands."""
        total = self.constant.copy()
        for X, rows in self.psd.items():
            total += rows.apply(values[X])
        for operand, matrix in (*self.variables.items(), *self.parameters.items()):
            total += matrix @ np.ravel(values[operand])
        for product in self.products:
            total += product.at_values(values)
        return total.reshape(self.shape) if self.shape else float(total[0])

    @classmethod
    def concatenated(cls, parts: Sequence[Affine]) -> Self:
        """Return the elements of several arrays as one vector."""
        starts = np.cumsum([0, *(part.size for part in parts)]).tolist()
        m, placed = starts[-1], list(zip(starts, parts, strict=False))
        psd: dict[Any, list[tuple[int, Rows]]] = {}
        for start, part in placed:
            for X, rows in part.psd.items():
                psd.setdefault(X, []).append((start, rows))
        return cls(
            (m,),
            np.concatenate([part.constant for part in parts]),
            {X: stacked_rows(m, X.n, families) for X, families in psd.items()},
            _stacked_csr(parts, "variables"),
            _stacked_csr(parts, "parameters"),
            tuple(
                product.weighed(_shifted(product.weights, start, m))
                for start, part in placed
                for product in part.products
            ),
        )

    def plus(self, other: Affine) -> Self:
        """Return the sum, broadcast as NumPy does."""
        a, b = self.broadcast_with(other)
        return type(self)(
            a.shape,
            a.constant + b.constant,
            _merged(a.psd, b.psd, add_rows),
            _merged(a.variables, b.variables, operator.add),
            _merged(a.parameters, b.parameters, operator.add),
            a.products + b.products,
            _sum_label(a, b),
        )

    def broadcast_with(self, other: Affine) -> tuple[Self, Affine]:
        """Return both arrays in their common shape after broadcasting."""
        shape = check_shapes(self, other)
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
            tuple(product.weighed(_times(weight, product.weights)) for product in e.products),
            scaled_label(e.label, factor),
        )

    def summed(self, axis: int | None = None) -> Self:
        """Return the sum of all elements, or the sums along an axis."""
        label = f"sum({self.label})" if axis is None else f"sum({self.label}, axis={axis})"
        if axis is None:
            return self.combined(sp.csr_array(np.ones((1, self.size))), (), label)
        numbers = np.moveaxis(np.arange(self.size).reshape(self.shape), axis, -1)
        shape, length = numbers.shape[:-1], numbers.shape[-1]
        ends = np.arange(0, self.size + 1, length)
        S = sp.csr_array((np.ones(self.size), numbers.ravel(), ends), (self.size // length, self.size))
        return self.combined(S, shape, label)

    def constant_part(self) -> Self:
        """Return the part without variables."""
        return type(self)(self.shape, self.constant, parameters=self.parameters, label=self.label)

    def variable_part(self) -> Self:
        """Return the part with variables."""
        return replace(self, constant=np.zeros(self.size), parameters={})

    def without(self, u: Any) -> Self:
        """Return the array without the terms of an ordinary variable."""
        return replace(self, variables={v: matrix for v, matrix in self.variables.items() if v is not u})

    def combined(self, S: Any, shape: tuple[int, ...], label: str) -> Self:
        """Return the combinations of rows in a CSR matrix, in a shape and with a label of their own."""
        return type(self)(
            shape,
            S @ self.constant,
            {X: combine_rows(S, rows) for X, rows in self.psd.items()},
            {u: S @ matrix for u, matrix in self.variables.items()},
            {p: S @ matrix for p, matrix in self.parameters.items()},
            tuple(product.weighed(S @ product.weights) for product in self.products),
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
            tuple(product.weighed(product.weights[rows]) for product in self.products),
            label,
        )


def check_shapes(left: Affine, right: Affine) -> tuple[int, ...]:
    """Return the common shape after broadcasting, or raise an error with both as they were written."""
    if left.shape == right.shape or not right.shape:
        return left.shape
    try:
        return np.broadcast_shapes(left.shape, right.shape)
    except ValueError:
        raise ValueError(
            f"shapes of {left.label} {left.shape} and {right.label} {right.shape} do not go together"
        ) from None


def _merged(a: dict[Any, Any], b: dict[Any, Any], add: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    merged = dict(a)
    for key, value in b.items():
        merged[key] = add(merged[key], value) if key in merged else value
    return merged


def _stacked_csr(parts: Sequence[Affine], kind: str) -> dict[Any, Any]:
    """Return the matrices of all parts for each operand of a kind, one below the other."""
    operands = dict.fromkeys(operand for part in parts for operand in getattr(part, kind))
    stacked = {}
    for operand in operands:
        given = [getattr(part, kind).get(operand) for part in parts]
        matrices = [
            sp.csr_array((part.size, operand.size)) if matrix is None else matrix
            for part, matrix in zip(parts, given, strict=True)
        ]
        stacked[operand] = sp.csr_array(sp.vstack(matrices, format="csr"))
    return stacked


def _shifted(matrix: Any, start: int, m: int) -> Any:
    """Return a CSR matrix as rows of one with `m` rows, from row `start` on."""
    ends = np.concatenate([np.zeros(start, dtype=int), matrix.indptr])
    ends = np.concatenate([ends, np.full(m + 1 - len(ends), matrix.nnz)])
    return sp.csr_array((matrix.data, matrix.indices, ends), (m, matrix.shape[1]))


def _times(weight: Array, matrix: Any) -> Any:
    """Return ``diag(weight) @ matrix`` in CSR form."""
    product = matrix.copy()
    product.data *= np.repeat(weight, np.diff(product.indptr))
    return product


def _sum_label(a: Affine, b: Affine) -> str:
    """Return the label of a sum; it omits numbers and parameters beside variables, as bounds show them."""
    named = [e.label for e in (a, b) if not e.is_constant] or [e.label for e in (a, b) if e.parameters]
    if len(named) == 2:
        return sum_label(*named)
    return named[0] if named else a.label
