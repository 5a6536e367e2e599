"""Checks of what variables and parameters are declared with: names, sizes, shapes and values."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from bregopt.arrays import Array, finite_array

__all__ = ["VALUE_TOL", "checked_name", "checked_shape", "checked_size", "checked_value"]

VALUE_TOL = 1e-8  # tolerance of a given value: times the largest entry for the cone, max(1, |u|) for the box
_LARGEST_SIZE = 2**31 - 1  # its square, the number of entries, fits a 64-bit integer
_LEGIBLE = 10**30  # messages give larger integers by their number of bits

_counter = itertools.count()


def checked_name(name: Any, prefix: str) -> str:
    """Return the given name, or a generated one that is used once."""
    if name is None:
        return f"{prefix}{next(_counter)}"
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}; expected a string")
    if not name:
        raise ValueError("name is empty; expected at least one character, or None")
    return name


def checked_value(value: Any, name: str, shape: tuple[int, ...]) -> Array:
    """Return a value as a finite array of the given shape, read-only so that it stays valid."""
    array = finite_array(value, name)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}")
    array.setflags(write=False)
    return array


def checked_size(n: Any, name: str) -> int:
    """Return a size as a positive integer."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(f"{name} is {n!r}; expected a positive integer")
    if n < 1:
        raise ValueError(f"{name} is {n}; expected a positive integer")
    if n > _LARGEST_SIZE:
        digits = n if n < _LEGIBLE else f"a number of {int(n).bit_length()} bits"
        raise ValueError(f"{name} is {digits}; expected at most {_LARGEST_SIZE}")
    return int(n)


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of positive integers."""
    sizes = shape if isinstance(shape, tuple) else (shape,)
    return tuple(checked_size(n, "shape") for n in sizes)
