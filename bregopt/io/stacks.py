"""Stacks of matrices from users: arrays, dicts, lists, and pandas frames with an index of two levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import is_mapping, rectangular
from bregopt.io.frame_stacks import FrameStack, frame_stack
from bregopt.io.matrix_stacks import ArrayStack, DictStack, ListStack, length_of, real_numbers
from bregopt.io.pandas_labels import is_pandas
from bregopt.program.lowrank import LowRank

__all__ = ["MatrixStack", "StackLike", "is_stack", "read_stack"]

StackLike = ArrayLike | LowRank | Mapping[Any, Any]  # one matrix or number, or one for each key of a stack
MatrixStack = ArrayStack | DictStack | FrameStack


def is_stack(value: Any) -> bool:
    """Whether a value holds several matrices rather than one."""
    if is_mapping(value):
        return True
    if is_pandas(value, "DataFrame"):
        return bool(value.index.nlevels == 2 and value.columns.nlevels == 1)
    if isinstance(value, list | tuple):
        return len(value) > 0 and getattr(value[0], "ndim", _depth(value[0])) == 2
    return isinstance(value, np.ndarray) and value.ndim == 3


def read_stack(value: Any, name: str, real: bool = True) -> MatrixStack:
    """Return a stack of matrices.

    Raises
    ------
    TypeError
        If an array or a frame does not hold real numbers, unless `real` is false.
    ValueError
        If there is no matrix, or those of an array are not square.
    """
    if is_mapping(value):
        stack: MatrixStack = DictStack(value)
    elif is_pandas(value, "DataFrame"):
        stack = frame_stack(value, name, real)
    elif isinstance(value, list | tuple) and not _uniform(value):
        stack = ListStack.of(value)
    else:
        array = rectangular(value, name)
        stack = ArrayStack(real_numbers(array, name) if real else array)
        shape = stack.values.shape
        if len(shape) != 3 or shape[1] != shape[2]:
            raise ValueError(f"{name} has shape {shape}; expected (B, n, n)")
    if len(stack.keys) == 0:
        raise ValueError(f"{name} holds no matrix; expected one at least")
    return stack


def _uniform(matrices: Sequence[Any]) -> bool:
    """Whether matrices are of one order, and neither frames nor sparse."""
    orders = {length_of(matrix) for matrix in matrices}
    plain = not any(is_pandas(matrix, "DataFrame") or sp.issparse(matrix) for matrix in matrices)
    return plain and len(orders) == 1


def _depth(value: Any) -> int:
    """Return the number of nested sequences."""
    depth = 0
    while isinstance(value, list | tuple) and len(value):
        depth, value = depth + 1, value[0]
    return depth
