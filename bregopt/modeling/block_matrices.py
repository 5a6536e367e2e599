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

from bregopt.arrays import IntArray, rectangular
from bregopt.modeling.complex_expressions import ComplexExpression, ComplexForms, as_complex, relabeled
from bregopt.modeling.expressions import Expression, ExpressionLike, Operand, as_expression, holds_complex


def vstack(parts: Sequence[ExpressionLike]) -> Expression | ComplexExpression:
    """Return expressions one below the other; vectors are rows, as in NumPy.

    Parameters
    ----------
    parts : sequence of expressions, variables, parameters and arrays
        With equally many columns.

    Returns
    -------
    Expression or ComplexExpression
        Of two dimensions; complex where a part is.

    Raises
    ------
    TypeError, ValueError
        If there are no parts, or their shapes do not go together.
    """
    found: Expression | ComplexExpression = _stacked(parts, np.vstack, "vstack")
    return found


def hstack(parts: Sequence[ExpressionLike]) -> Expression | ComplexExpression:
    """Return expressions side by side; vectors one after the other, as in NumPy.

    Parameters
    ----------
    parts : sequence of expressions, variables, parameters and arrays
        With equally many rows.

    Returns
    -------
    Expression or ComplexExpression
        A vector for scalars and vectors, otherwise of two dimensions; complex where a part is.

    Raises
    ------
    TypeError, ValueError
        If there are no parts, or their shapes do not go together.
    """
    found: Expression | ComplexExpression = _stacked(parts, np.hstack, "hstack")
    return found


def bmat(blocks: Sequence[Sequence[ExpressionLike]]) -> Expression | ComplexExpression:
    """Return a matrix of blocks, such as ``bo.bmat([[X, B], [B.T, t * np.eye(2)]]) >> 0``.

    Parameters
    ----------
    blocks : list of lists of expressions, variables, parameters and arrays
        Matrices; a scalar is a block of order one. A vector ``v`` is ``v[:, None]`` or ``v[None, :]``.

    Returns
    -------
    Expression or ComplexExpression
        Of two dimensions; complex where a part is.

    Raises
    ------
    TypeError, ValueError
        If there are no blocks, a block is a vector, or their shapes do not go together.
    """
    if not isinstance(blocks, list | tuple) or not all(isinstance(row, list | tuple) for row in blocks):
        raise TypeError("blocks of bmat is no list of lists; expected one list for each row of blocks")
    rows = [hstack([_block(part, i, j) for j, part in enumerate(row)]) for i, row in enumerate(blocks)]
    found: Expression | ComplexExpression = relabeled(vstack(rows), "bmat(...)")
    return found


def _block(part: Any, i: int, j: int) -> Any:
    e = _operand(part, f"block [{i}][{j}] of bmat")
    if len(e.shape) == 1:
        raise ValueError(
            f"block [{i}][{j}] of bmat has shape {e.shape}; expected a matrix: write v[:, None] for a "
            "column, v[None, :] for a row"
        )
    return e if e.shape else e[None, None]


def _operand(value: Any, name: str) -> Any:
    """Return a part as an expression, complex where its numbers are."""
    return as_complex(value, name) if holds_complex(value) else as_expression(value, name)


def _stacked(parts: Sequence[Any], stack: Callable[..., Any], name: str) -> Any:
    if not isinstance(parts, list | tuple) or not parts:
        raise TypeError(f"parts of {name} is {parts!r}; expected a list of expressions")
    expressions = [_operand(part, f"part {k} of {name}") for k, part in enumerate(parts)]
    label = f"{name}({', '.join(e.label for e in expressions)})"
    if any(isinstance(e, ComplexForms) for e in expressions):
        whole = [as_complex(e) for e in expressions]
        real, imag = (
            _stacked(parts, stack, name) for parts in ([e.real for e in whole], [e.imag for e in whole])
        )
        return ComplexExpression(real, imag, label)
    ends = np.cumsum([0, *(e.size for e in expressions)])
    numbers = [
        np.arange(start, start + e.size).reshape(e.shape) for start, e in zip(ends, expressions, strict=False)
    ]
    try:
        order = stack(numbers)
    except ValueError:
        shapes = ", ".join(str(e.shape) for e in expressions)
        raise ValueError(f"{name} of shapes {shapes}; they do not go together") from None
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
    return relabeled(
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
    return relabeled(
        matrix[rows, columns], f"partial_transpose({matrix.label}, {list(sizes)}, which={chosen})"
    )


def kron(A: ExpressionLike, B: ExpressionLike) -> Expression | ComplexExpression:
    """Return the Kronecker product of a matrix of expressions and one of numbers, in either order.

    Parameters
    ----------
    A, B : expression or array_like of two dimensions
        Real or complex. One of them holds no variable; it may hold parameters.

    Returns
    -------
    Expression or ComplexExpression

    Raises
    ------
    TypeError, ValueError
        If neither is an expression, both hold variables, both hold parameters, or one is no matrix.
    """
    if not isinstance(A, Operand) and not isinstance(B, Operand):
        raise TypeError(
            f"kron of {type(A).__name__} and {type(B).__name__}; expected an expression on one side; for "
            "numbers there is np.kron"
        )
    factors: list[Any] = []
    names: list[str] = []
    for name, side in (("A", A), ("B", B)):
        factors.append(
            _operand(side, f"{name} of kron") if isinstance(side, Operand) else rectangular(side, name)
        )
        names.append(factors[-1].label if isinstance(side, Operand) else name)
        if len(factors[-1].shape) != 2:
            raise ValueError(f"{name} of kron has shape {factors[-1].shape}; expected a matrix")
    shapes = [factor.shape for factor in factors]
    ones = [np.ones(shape, dtype=int) for shape in shapes]
    (i, j), (k, m) = np.indices(shapes[0]), np.indices(shapes[1])
    first = factors[0][np.kron(i, ones[1]), np.kron(j, ones[1])]
    second = factors[1][np.kron(ones[0], k), np.kron(ones[0], m)]
    return relabeled(first * second, f"kron({', '.join(names)})")


def _factored(X: Any, dims: Any, atom: str) -> tuple[Any, tuple[int, ...]]:
    """Return the matrix and the dimensions of the factors."""
    matrix = _matrix(X, atom)
    n, m = matrix.shape
    sizes: IntArray = np.atleast_1d(rectangular(dims, f"dims of {atom}"))
    if sizes.dtype.kind not in "iu" or sizes.ndim != 1 or (sizes < 1).any():
        raise TypeError(f"dims of {atom} is {dims!r}; expected positive integers")
    if n != m or math.prod(sizes.tolist()) != n:
        raise ValueError(
            f"dims of {atom} is {dims!r} for shape {matrix.shape}; expected the factors of its order"
        )
    return matrix, tuple(sizes.tolist())


def _factors(given: Any, sizes: tuple[int, ...], name: str) -> list[int]:
    """Return numbers of factors, in ascending order."""
    numbers: IntArray = np.atleast_1d(rectangular(given, name))
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
    matrix = X if isinstance(X, ComplexForms) else as_expression(X)
    if len(matrix.shape) != 2:
        raise ValueError(f"X of {atom} has shape {matrix.shape}; expected a matrix")
    return matrix
