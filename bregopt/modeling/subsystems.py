"""Maps of matrices on a product of spaces: partial trace, partial transpose, Kronecker product.

A matrix of order ``n = d_0 d_1 ... d_k`` acts on the product of spaces of dimensions `dims`; the last factor
varies fastest, as in ``numpy.kron``.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import IntArray, complex_array
from bregopt.modeling.complex_expressions import ComplexExpression, as_complex
from bregopt.modeling.expressions import Operand, as_expression

__all__ = ["kron", "partial_trace", "partial_transpose"]


def partial_trace(X: Any, dims: Sequence[int], axis: int = 0) -> Any:
    """Return the partial trace of a matrix, over one factor of a product of spaces.

    Parameters
    ----------
    X : PSD or expression of shape (n, n)
        Real or complex.
    dims : sequence of int
        The dimensions of the factors, with the product `n`.
    axis : int
        The factor that is traced out.

    Returns
    -------
    Expression or ComplexExpression
        Of order ``n / dims[axis]``.

    Raises
    ------
    TypeError, ValueError
        If `X` is not a square matrix, `dims` are not its factors, or there is no factor `axis`.
    """
    matrix, d, stride = _factored(X, dims, axis, "partial_trace")
    order = np.arange(matrix.shape[0])
    kept = order[order // stride % d == 0]
    i, j = kept[:, None], kept[None, :]
    parts = (matrix[i + k * stride, j + k * stride] for k in range(d))
    return _labeled(functools.reduce(operator.add, parts), f"partial_trace({matrix.label}, axis={axis})")


def partial_transpose(X: Any, dims: Sequence[int], axis: int = 0) -> Any:
    """Return the partial transpose of a matrix, over one factor of a product of spaces.

    Parameters
    ----------
    X : PSD or expression of shape (n, n)
        Real or complex.
    dims : sequence of int
        The dimensions of the factors, with the product `n`.
    axis : int
        The factor that is transposed.

    Returns
    -------
    Expression or ComplexExpression
        Of shape ``(n, n)``.

    Raises
    ------
    TypeError, ValueError
        If `X` is not a square matrix, `dims` are not its factors, or there is no factor `axis`.
    """
    matrix, d, stride = _factored(X, dims, axis, "partial_transpose")
    i, j = np.indices(matrix.shape)
    exchange = (j // stride % d - i // stride % d) * stride
    turned = matrix[i + exchange, j - exchange]
    return _labeled(turned, f"partial_transpose({matrix.label}, axis={axis})")


def kron(A: Any, B: Any) -> Any:
    """Return the Kronecker product of a matrix of numbers and a matrix of expressions, in either order.

    Parameters
    ----------
    A, B : array_like of two dimensions, and an expression of two dimensions
        Real or complex.

    Returns
    -------
    Expression or ComplexExpression

    Raises
    ------
    TypeError, ValueError
        If not exactly one of them is an expression, or one is no matrix.
    """
    if isinstance(A, Operand) == isinstance(B, Operand):
        raise TypeError(
            f"kron of {type(A).__name__} and {type(B).__name__}; expected numbers and an expression"
        )
    first = isinstance(A, Operand)
    matrix = _matrix(A if first else B, "kron")
    numbers = complex_array(B if first else A, f"{'B' if first else 'A'} of kron", ndim=2)
    if numbers.imag.any():
        matrix = as_complex(matrix)
    factor: Any = numbers if numbers.imag.any() else numbers.real
    i, j = np.indices(matrix.shape)
    ones = np.ones_like(factor, dtype=int)
    shown = np.ones(matrix.shape)
    if first:
        product = matrix[np.kron(i, ones), np.kron(j, ones)] * np.kron(shown, factor)
    else:
        product = matrix[np.kron(ones, i), np.kron(ones, j)] * np.kron(factor, shown)
    return _labeled(product, f"kron({matrix.label}, B)" if first else f"kron(A, {matrix.label})")


def _factored(X: Any, dims: Any, axis: Any, atom: str) -> tuple[Any, int, int]:
    """Return the matrix, the dimension of its factor `axis`, and the step of an index along it."""
    matrix = _matrix(X, atom)
    n, m = matrix.shape
    sizes: IntArray = np.atleast_1d(np.asarray(dims))
    if sizes.dtype.kind not in "iu" or sizes.ndim != 1 or (sizes < 1).any():
        raise TypeError(f"dims of {atom} is {dims!r}; expected positive integers")
    if n != m or math.prod(sizes.tolist()) != n:
        raise ValueError(
            f"dims of {atom} is {dims!r} for shape {matrix.shape}; expected the factors of its order"
        )
    if not isinstance(axis, int | np.integer) or not 0 <= axis < len(sizes):
        raise ValueError(f"axis of {atom} is {axis!r}; expected 0 to {len(sizes) - 1}")
    return matrix, int(sizes[axis]), math.prod(sizes[axis + 1 :].tolist())


def _matrix(X: Any, atom: str) -> Any:
    if not isinstance(X, Operand):
        raise TypeError(f"X of {atom} is {type(X).__name__}; expected a matrix of expressions")
    matrix = X if isinstance(X, ComplexExpression) else as_expression(X)
    if len(matrix.shape) != 2:
        raise ValueError(f"X of {atom} has shape {matrix.shape}; expected a matrix")
    return matrix


def _labeled(e: Any, label: str) -> Any:
    if isinstance(e, ComplexExpression):
        return ComplexExpression(e.real, e.imag, label)
    return replace(e, label=label)
