"""Products of affine expressions with matrices of numbers and with parameters.

The rule of parameters is that of disciplined parametrized programming (DPP; Agrawal et al. 2019,
Differentiable Convex Optimization Layers, section 4.1): one factor is affine in parameters and holds no
variable, the other one holds no parameter.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import finite_array
from bregopt.modeling.affine import Affine, Product
from bregopt.modeling.labels import as_factor
from bregopt.program.rows import Bilinear, Rows, multiplied_rows

__all__ = ["linear_map", "matrix_product", "multiplied", "product"]

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
