"""Arrays of affine forms of matrix variables, ordinary variables and parameters, and their products.

An :class:`Affine` of shape ``s`` has ``prod(s)`` rows in C order. Each row is a linear functional of every
matrix variable (one row family for each), plus a row of a sparse matrix for every ordinary variable and
every parameter, plus a constant, plus products of parameters and affine forms (:class:`Product`).

Factors are matrices of numbers and parameters. The rule of parameters is that of disciplined parametrized
programming (DPP; Agrawal et al. 2019, Differentiable Convex Optimization Layers, section 4.1): one factor is
affine in parameters and holds no variable, the other one holds no parameter.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import field
from typing import Any, Literal, NoReturn, Self, TypeVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, finite_array
from bregopt.linalg import rows_at
from bregopt.program.rows import Bilinear, Rows, add_rows, combine_rows, multiplied_rows, stacked_rows
from bregopt.records import Text, dataclass, replace

_LONGEST = 80  # characters; of a longer sum the last terms are left out
_MORE = " + ..."


class Formula:
    """An object with a formula as text, from which other notations follow.

    Attributes
    ----------
    label : str
        The formula as text in the language.
    """

    label: str
    source_text: Text | None = None  # in the language from which it was translated, CVXPY's

    @property
    def full_label(self) -> str:
        """The whole formula as text, where `label` leaves a part of it out."""
        return self.label

    def _repr_latex_(self) -> str:
        from bregopt.modeling.notation import LATEX, written  # only those who read formulas wait for it

        return f"${written(self.full_label, LATEX)}$"


class Named(Formula):
    """A constraint that may have a name; messages and reports show it.

    Attributes
    ----------
    name : str or None
    source : Named or None
        The constraint that needs this one; None for those that users declare.
    """

    name: str | None = None
    source: Named | None = None

    @property
    def declared(self) -> Named:
        """The declared constraint that this one belongs to."""
        return self if self.source is None else self.source.declared

    def named(self, name: str) -> Self:
        """Give the constraint a name, and return it.

        The name is unique in a problem. Messages show it, and ``sol.duals_by_name`` holds the dual under it.

        Raises
        ------
        TypeError, ValueError
            If the name is not a string, or empty.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of {self.label} is {name!r}; expected a string")
        if not name:
            raise ValueError(f"the name of {self.label} is empty; expected at least one character")
        self.name = name
        return self

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self.label} is a constraint and has no truth value; put it into the constraints of a "
            "bo.Problem. For two bounds write bo.between(expr, lower, upper), not lower <= expr <= upper"
        )

    @property
    def title(self) -> str:
        """The name and the constraint as text."""
        return self.label if self.name is None else f"{self.name}: {self.label}"


def axes_of(value: Any, shape: tuple[int, ...]) -> tuple[Any, ...] | None:
    """Return the labels of a pandas Series or DataFrame of this shape, one index for each axis.

    Other values have none. pandas is not imported.
    """
    if type(value).__module__.split(".")[0] != "pandas" or getattr(value, "shape", None) != shape:
        return None
    return tuple(value.axes)


def sum_label(first: str, second: str) -> str:
    """Return the label of a sum of two labels."""
    whole = f"{first} - {second[1:]}" if second.startswith("-") else f"{first} + {second}"
    if len(whole) <= _LONGEST:
        return whole
    return first if first.endswith(_MORE) else f"{first}{_MORE}"


def scaled_label(label: str, factor: Array) -> str:
    """Return the label of a multiple; an array of factors is called ``A``."""
    first = factor.flat[0]
    if (factor != first).any():
        return _short(f"A * {as_factor(label)}")
    if first == 1:
        return label
    if first == -1 and label.startswith("-") and as_factor(label[1:]) == label[1:]:
        return label[1:]
    label = as_factor(label)
    return _short(f"-{label}" if first == -1 else f"{float(first):g} {label}")


def as_factor(label: str) -> str:
    """Return a label that can be a factor, in parentheses where it is a sum or product."""
    compound = any(sign in label for sign in (" + ", " - ", " * ")) or label.startswith("-")
    return f"({label})" if compound else label


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST + len(_MORE) else "affine expression"


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
        values = {X: X.value for X in self.operands("psd")}
        values |= {p: p.elements for p in (*self.operands("variables"), *self.operands("parameters"))}
        return None if any(value is None for value in values.values()) else self.at(values)

    def at(self, values: Mapping[Any, Any]) -> Array | float:
        """Return the number or array at given matrices, and elements of variables and parameters."""
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
        if self.shape == other.shape:
            return self, other
        shape = check_shapes(self, other)
        return self.broadcast_to(shape), other.broadcast_to(shape)

    def broadcast_to(self, shape: tuple[int, ...]) -> Self:
        """Return the array repeated to a shape, as NumPy does."""
        if shape == self.shape:
            return self
        if not self.shape and self.is_constant and not self.parameters:
            return type(self)(shape, self.constant.repeat(math.prod(shape)), label=self.label)
        numbers = np.broadcast_to(np.arange(self.size).reshape(self.shape), shape).ravel()
        return self.taken(numbers, shape, self.label)

    def times(self, factor: Any) -> Self:
        """Return the product with numbers, broadcast as NumPy does."""
        factor, e = np.asarray(factor, dtype=float), self
        if factor.ndim:
            e = self.broadcast_to(np.broadcast_shapes(self.shape, factor.shape))
            weight = np.broadcast_to(factor, e.shape).flatten()
        else:
            weight = np.full(e.size, factor)
        return type(self)(
            e.shape,
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
            ones = np.ones(self.size), np.arange(self.size), np.array([0, self.size])
            return self.combined(sp.csr_array(ones, (1, self.size)), (), label)
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
            {u: rows_at(matrix, rows) for u, matrix in self.variables.items()},
            {p: rows_at(matrix, rows) for p, matrix in self.parameters.items()},
            tuple(product.weighed(product.weights[rows]) for product in self.products),
            label,
        )


def random_values(*forms: Affine, seed: int = 0) -> dict[Any, Array]:
    """Return random values of all operands of affine forms, symmetric ones of matrices.

    Affine forms that are equal at a random point are equal everywhere, with probability one.
    """
    rng, values = np.random.default_rng(seed), dict[Any, Array]()
    for e in forms:
        for X in e.operands("psd"):
            G = rng.standard_normal((X.n, X.n))
            values.setdefault(X, (G + G.T) / 2)
        for u in (*e.operands("variables"), *e.operands("parameters")):
            values.setdefault(u, rng.standard_normal(u.size))
    return values


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
    product = copy(matrix)  # SciPy's constructor, and its own copy, take ten times as long for few rows
    product.indices, product.indptr = matrix.indices.copy(), matrix.indptr.copy()
    product.data = matrix.data * weight.repeat(matrix.indptr[1:] - matrix.indptr[:-1])
    return product


def _sum_label(a: Affine, b: Affine) -> str:
    """Return the label of a sum; it omits numbers and parameters beside variables, as bounds show them."""
    named = [e.label for e in (a, b) if not e.is_constant] or [e.label for e in (a, b) if e.parameters]
    if len(named) == 2:
        return sum_label(*named)
    return named[0] if named else a.label


A = TypeVar("A", bound=Affine)


def product(left: A, right: A) -> A:
    """Return ``left * right``, elementwise, broadcast as NumPy does.

    Raises
    ------
    TypeError
        If both factors hold a variable, or both a parameter.
    """
    _check_factors(left, right, "*")
    shape = np.broadcast_shapes(left.shape, right.shape)
    label = f"{as_factor(left.label)} * {as_factor(right.label)}"
    return replace(_product(left.broadcast_to(shape), right.broadcast_to(shape)), label=label)


def matrix_product(left: A, right: A) -> A:
    """Return ``left @ right``.

    Raises
    ------
    TypeError
        If both factors hold a variable, or both a parameter.
    ValueError
        If the shapes do not go together.
    """
    _check_factors(left, right, "@")
    shape = _product_shape(left.shape, right.shape)
    q = right.shape[0]
    p, r = left.size // q, right.size // q
    first = replace(left, shape=(p, q, 1)).broadcast_to((p, q, r))
    second = replace(right, shape=(1, q, r)).broadcast_to((p, q, r))
    label = f"{as_factor(left.label)} @ {as_factor(right.label)}"
    return replace(_product(first, second).summed(1), shape=shape, label=label)


def multiplied(e: A, matrix: Any, left: bool = True) -> A:
    """Return ``matrix @ e``, or ``e @ matrix`` if not `left`.

    The matrix is sparse, or an array of one or two dimensions.

    Raises
    ------
    ValueError
        If the shapes do not go together, or a number is not finite.
    """
    finite_array(sp.coo_array(matrix).data if sp.issparse(matrix) else matrix, "factor of @")
    shape = _product_shape(matrix.shape, e.shape, left) if left else _product_shape(e.shape, matrix.shape)
    factor = _as_matrix(matrix, left)
    sides = (factor, None) if left else (None, factor)
    given = (e.shape[0] if left else math.prod(e.shape[:-1]), -1)
    found = {X: _product_rows(e, rows, given, *sides) for X, rows in e.psd.items()}
    rest = replace(e, psd={X: rows for X, rows in e.psd.items() if found[X] is None})
    label = f"A @ {as_factor(e.label)}" if left else f"{as_factor(e.label)} @ A"
    if rest.is_constant and not rest.parameters and not rest.constant.any():
        total = type(e)(shape, np.zeros(math.prod(shape)), label=label)
    else:
        total = rest.combined(linear_map(matrix, e.size, left), shape, label)
    return replace(total, psd={**{X: rows for X, rows in found.items() if rows is not None}, **total.psd})


def linear_map(matrix: Any, size: int, left: bool = True) -> Any:
    """Return the csr_array that maps the elements of an array ``e`` to those of ``matrix @ e``.

    If not `left` they are those of ``e @ matrix``. The array has `size` elements, taken row by row.
    """
    factor = _as_matrix(matrix, left)
    count, S = size // factor.shape[1 if left else 0], factor if left else factor.T
    if count > 1:
        others = sp.eye_array(count)
        S = sp.kron(S, others) if left else sp.kron(others, S)
    return sp.csr_array(S)


def _as_matrix(matrix: Any, left: bool) -> Any:
    """Return a factor as a matrix: a vector is a row on the left, and a column on the right."""
    if len(matrix.shape) == 2:
        return matrix
    return matrix[None, :] if left else matrix[:, None]


def _product_rows(e: Affine, rows: Rows, shape: tuple[int, int], left: Any, right: Any) -> Rows | None:
    """Return the rows of a matrix product as entries of ``L X R'``, None where they are no such entries."""
    if len(e.shape) == 1 and not isinstance(rows, Bilinear):
        return None
    return multiplied_rows(rows, shape, left, right)


def _product_shape(first: tuple[int, ...], second: tuple[int, ...], left: bool = False) -> tuple[int, ...]:
    """Return the shape of a matrix product; errors ask for another first factor if `left`."""
    if not {len(first), len(second)} <= {1, 2}:
        raise ValueError(f"@ of shapes {first} and {second}; expected vectors and matrices")
    if first[-1] != second[0]:
        expected = f"(.., {second[0]}) and {second}" if left else f"{first} and ({first[-1]}, ..)"
        raise ValueError(f"@ of shapes {first} and {second}; expected {expected}")
    return first[:-1] + second[1:]


def _check_factors(left: Affine, right: Affine, sign: str) -> None:
    written = f"{as_factor(left.label)} {sign} {as_factor(right.label)}"
    if not left.is_constant and not right.is_constant:
        raise TypeError(
            f"{written} is a product of two expressions with variables, which is not affine; expected "
            "numbers or parameters on one side (z'X z is bo.quad_form(z, X))"
        )
    if left.operands("parameters") and right.operands("parameters"):
        raise TypeError(
            f"{written} is a product of two expressions with parameters; by the rules of disciplined "
            "parametrized programming (DPP) one factor must be without: declare one bo.Parameter for the "
            "product of the two, and set its value"
        )


def _product(left: A, right: A) -> A:
    """Return the elementwise product of two arrays of one shape."""
    constant, e = (left, right) if left.is_constant and not right.operands("parameters") else (right, left)
    if not constant.is_constant:
        constant, e = e, constant
    if not constant.parameters:
        return e.times(constant.constant.reshape(constant.shape))
    total = type(e)(e.shape, np.zeros(e.size))
    if constant.constant.any():
        total = e.times(constant.constant.reshape(constant.shape))
    for parameter, slope in constant.parameters.items():
        coo = sp.coo_array(slope)
        row, at = coo.coords
        own = sp.csr_array((coo.data * e.constant[row], (row, at)), slope.shape)
        own.eliminate_zeros()
        part = type(e)(e.shape, np.zeros(e.size), parameters={parameter: own} if own.nnz else {})
        if not e.is_constant:
            factor = e.taken(row, (len(row),), e.label).variable_part()
            weights = sp.csr_array((coo.data, (row, np.arange(len(row)))), (e.size, len(row)))
            part = replace(part, products=(Product(parameter, at, factor, weights),))
        total = total.plus(part)
    return total
