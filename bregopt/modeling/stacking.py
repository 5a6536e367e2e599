"""Arrays of expressions side by side, as NumPy puts arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bregopt.modeling.expressions import Expression, ExpressionLike, as_expression
from bregopt.records import replace

__all__ = ["bmat", "hstack", "vstack"]


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
