"""Block matrices, and maps of matrices on products of spaces: partial trace and transpose, Kronecker product.

Blocks stand side by side as NumPy puts arrays. A matrix of order ``n = d_0 d_1 ... d_k`` acts on the product
of spaces of dimensions `dims`; the last factor varies fastest, as in ``numpy.kron``.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import IntArray, complex_array
from bregopt.modeling.complex_expressions import ComplexExpression, as_complex
from bregopt.modeling.expressions import Expression, ExpressionLike, Operand, as_expression
from bregopt.records import replace

__all__ = ["bmat", "hstack", "kron", "partial_trace", "partial_transpose", "vstack"]


def vstack(parts: Sequence[ExpressionLike]) -> Expression:
    """Return expressions one below the other; vectors are rows, as in NumPy.

    Parameters
    ----------
    parts : sequence of expressions, variables, parameters and arrays
        With equally many columns.

    Returns
    -------
    Expression
        Of two dimensions.

    Raises
    ------
    TypeError, ValueError
        If there are no parts, or their shapes do not go together.
    """
    return _stacked(parts, np.vstack, "vstack")


def hstack(parts: Sequence[ExpressionLike]) -> Expression:
    """Return expressions side by side; vectors one after the other, as in NumPy.

    Parameters
    ----------
    parts : sequence of expressions, variables, parameters and arrays
        With equally many rows.

    Returns
    -------
    Expression
        A vector for scalars and vectors, otherwise of two dimensions.

    Raises
    ------
    TypeError, ValueError
        If there are no parts, or their shapes do not go together.
    """
    return _stacked(parts, np.hstack, "hstack")


def bmat(blocks: Sequence[Sequence[ExpressionLike]]) -> Expression:
    """Return a matrix of blocks, such as ``bo.bmat([[X, B], [B.T, t * np.eye(2)]]) >> 0``.

    Parameters
    ----------
    blocks : list of lists of expressions, variables, parameters and arrays
        Matrices; a scalar is a block of order one. A vector ``v`` is ``v[:, None]`` or ``v[None, :]``.

    Returns
    -------
    Expression
        Of two dimensions.

    Raises
    ------
    TypeError, ValueError
        If there are no blocks, a block is a vector, or their shapes do not go together.
    """
    if not isinstance(blocks, list | tuple) or not all(isinstance(row, list | tuple) for row in blocks):
        raise TypeError("blocks of bmat is no list of lists; expected one list for each row of blocks")
    rows = [hstack([_block(part, i, j) for j, part in enumerate(row)]) for i, row in enumerate(blocks)]
    return replace(vstack(rows), label="bmat(...)")


def _block(part: Any, i: int, j: int) -> Expression:
    e = as_expression(part, f"block [{i}][{j}] of bmat")
    if len(e.shape) == 1:
        raise ValueError(
            f"block [{i}][{j}] of bmat has shape {e.shape}; expected a matrix: write v[:, None] for a "
            "column, v[None, :] for a row"
        )
    return e if e.shape else e[None, None]


def _stacked(parts: Sequence[Any], stack: Callable[..., Any], name: str) -> Expression:
    if not isinstance(parts, list | tuple) or not parts:
        raise TypeError(f"parts of {name} is {parts!r}; expected a list of expressions")
    expressions = [as_expression(part, f"part {k} of {name}") for k, part in enumerate(parts)]
    ends = np.cumsum([0, *(e.size for e in expressions)])
    numbers = [
        np.arange(start, start + e.size).reshape(e.shape) for start, e in zip(ends, expressions, strict=False)
    ]
    try:
        order = stack(numbers)
    except ValueError:
        shapes = ", ".join(str(e.shape) for e in expressions)
        raise ValueError(f"{name} of shapes {shapes}; they do not go together") from None
    label = f"{name}({', '.join(e.label for e in expressions)})"
    return Expression.concatenated(expressions).taken(order.ravel(), order.shape, label)


def partial_trace(
    X: Operand, dims: Sequence[int], keep: int | Sequence[int]
) -> Expression | ComplexExpression:
    """Return the partial trace of a matrix: that on some factors of a product of spaces.

    Parameters
    ----------
    X : PSD or expression of shape (n, n)
        Real or complex.
    dims : sequence of int
        The dimensions of the factors, with the product `n`.
    keep : int or sequence of int
        The factors that are kept, from 0; all others are traced out.

    Returns
    -------
    Expression or ComplexExpression
        Of the order of the product of the dimensions of the kept factors, in the order of `dims`.

    Raises
    ------
    TypeError, ValueError
        If `X` is not a square matrix, `dims` are not its factors, or there is no factor `keep`.
    """
    matrix, sizes = _factored(X, dims, "partial_trace")
    kept = _factors(keep, sizes, "keep of partial_trace")
    place = np.arange(matrix.shape[0]).reshape(sizes)
    lost = [k for k in range(len(sizes)) if k not in kept]
    order = math.prod(sizes[k] for k in kept)
    # Row `a` of `own` holds the indices of all kept states for the state `a` of the others.
    own = place.transpose([*lost, *kept]).reshape(-1, order)
    parts = (matrix[rows[:, None], rows[None, :]] for rows in own)
    return _labeled(
        functools.reduce(operator.add, parts), f"partial_trace({matrix.label}, {list(sizes)}, keep={kept})"
    )


def partial_transpose(
    X: Operand, dims: Sequence[int], which: int | Sequence[int]
) -> Expression | ComplexExpression:
    """Return the partial transpose of a matrix, in some factors of a product of spaces.

    Parameters
    ----------
    X : PSD or expression of shape (n, n)
        Real or complex.
    dims : sequence of int
        The dimensions of the factors, with the product `n`.
    which : int or sequence of int
        The factors that are transposed, from 0.

    Returns
    -------
    Expression or ComplexExpression
        Of shape ``(n, n)``.

    Raises
    ------
    TypeError, ValueError
        If `X` is not a square matrix, `dims` are not its factors, or there is no factor `which`.
    """
    matrix, sizes = _factored(X, dims, "partial_transpose")
    n = matrix.shape[0]
    i, j = (place.reshape(2 * sizes) for place in np.indices((n, n)))
    turned = list(range(2 * len(sizes)))
    chosen = _factors(which, sizes, "which of partial_transpose")
    for k in chosen:
        turned[k], turned[len(sizes) + k] = turned[len(sizes) + k], turned[k]
    rows, columns = (place.transpose(turned).reshape(n, n) for place in (i, j))
    return _labeled(
        matrix[rows, columns], f"partial_transpose({matrix.label}, {list(sizes)}, which={chosen})"
    )


def kron(A: ExpressionLike, B: ExpressionLike) -> Expression | ComplexExpression:
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


def _factored(X: Any, dims: Any, atom: str) -> tuple[Any, tuple[int, ...]]:
    """Return the matrix and the dimensions of the factors."""
    matrix = _matrix(X, atom)
    n, m = matrix.shape
    sizes: IntArray = np.atleast_1d(np.asarray(dims))
    if sizes.dtype.kind not in "iu" or sizes.ndim != 1 or (sizes < 1).any():
        raise TypeError(f"dims of {atom} is {dims!r}; expected positive integers")
    if n != m or math.prod(sizes.tolist()) != n:
        raise ValueError(
            f"dims of {atom} is {dims!r} for shape {matrix.shape}; expected the factors of its order"
        )
    return matrix, tuple(sizes.tolist())


def _factors(given: Any, sizes: tuple[int, ...], name: str) -> list[int]:
    """Return numbers of factors, in ascending order."""
    numbers: IntArray = np.atleast_1d(np.asarray(given))
    integers = numbers.dtype.kind in "iu" and numbers.ndim == 1
    if not integers or ((numbers < 0) | (numbers >= len(sizes))).any():
        raise ValueError(f"{name} is {given!r}; expected integers from 0 to {len(sizes) - 1}")
    found = sorted(set(numbers.tolist()))
    if len(found) < len(numbers):
        raise ValueError(f"{name} is {given!r}; expected each factor once")
    return found


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
