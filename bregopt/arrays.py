"""Arrays from users: checked once at the border, never modified, never repaired silently."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = [
    "EPS",
    "TINY",
    "Array",
    "IntArray",
    "Mask",
    "covers",
    "finite_array",
    "index_array",
    "positive_number",
    "rectangular",
    "span",
    "symmetric_matrix",
]

Array = NDArray[np.float64]
IntArray = NDArray[np.intp]
Mask = NDArray[np.bool_]

EPS = float(np.finfo(float).eps)  # the spacing of doubles at one
TINY = float(np.finfo(float).tiny)  # the smallest normal one, for quotients of nothing by nothing

# Asymmetry above this fraction of the largest entry is an error; below it is round-off of the caller's.
SYMMETRY_TOL = 1e-10


def rectangular(value: Any, name: str) -> NDArray[Any]:
    """Return `value` as an array of whatever it holds; a ValueError names it if its rows differ in length."""
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is ragged: expected a rectangular array of numbers ({error})") from None


def finite_array(value: Any, name: str, ndim: int | tuple[int, ...] | None = None) -> Array:
    """Return `value` as a new float64 array, or raise an error that names it.

    Parameters
    ----------
    value : array_like
        Anything numpy reads as real numbers. It is copied.
    name : str
        What the message calls it.
    ndim : int or tuple of int, optional
        Accepted numbers of dimensions.

    Raises
    ------
    TypeError
        Complex, object, string or boolean-valued input that is not numbers.
    ValueError
        NaN, Inf, or another number of dimensions.
    """
    if isinstance(value, float) and math.isfinite(value) and _accepts(ndim, 0):
        return np.array(value)  # as most prices and bounds are
    if sp.issparse(value):
        value = value.toarray()
    raw = rectangular(value, name)
    if raw.dtype.kind == "c":
        raise TypeError(f"{name} is complex ({raw.dtype}); expected real numbers")
    if raw.dtype.kind not in "biuf":
        raise TypeError(f"{name} has dtype {raw.dtype}; expected real numbers")
    array = np.array(raw, dtype=np.float64)
    if not _accepts(ndim, array.ndim):
        expected = " or ".join(str(d) for d in (ndim if isinstance(ndim, tuple) else (ndim,)))
        raise ValueError(f"{name} has {array.ndim} dimensions, shape {array.shape}; expected {expected}")
    if not np.isfinite(array).all():
        bad = ~np.isfinite(array)
        where = tuple(int(k) for k in np.argwhere(bad)[0])
        place = f" at {where if len(where) > 1 else where[0]}" if where else ""
        raise ValueError(
            f"{name} has {int(bad.sum())} NaN or Inf value(s), the first{place}; expected finite"
        )
    return array


def _accepts(ndim: int | tuple[int, ...] | None, found: int) -> bool:
    """Whether a number of dimensions is one of those that are accepted; None accepts all."""
    return ndim is None or found == ndim or (isinstance(ndim, tuple) and found in ndim)


def symmetric_matrix(value: Any, name: str, n: int | None = None) -> Array:
    """Return `value` as a new exactly symmetric float64 matrix, or raise an error that names it.

    Asymmetry up to ``1e-10`` of the largest entry is taken for round-off and averaged; more is an error.
    """
    matrix = finite_array(value, name, ndim=2)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} has shape {matrix.shape}; expected a square matrix")
    if n is not None and matrix.shape[0] != n:
        raise ValueError(f"{name} is {matrix.shape[0]} x {matrix.shape[0]}; expected {n} x {n}")
    if matrix.size == 0:
        raise ValueError(f"{name} is empty; expected at least one row")
    if (matrix == matrix.T).all():
        return matrix
    skew = np.abs(matrix - matrix.T)
    if skew.max() > SYMMETRY_TOL * np.abs(matrix).max():
        i, j = (int(k) for k in np.unravel_index(int(skew.argmax()), skew.shape))
        raise ValueError(
            f"{name} is not symmetric: entry {i, j} is {matrix[i, j]:g} but entry {j, i} is {matrix[j, i]:g}"
        )
    symmetrised: Array = (matrix + matrix.T) / 2
    return symmetrised


def index_array(value: Any, name: str, n: int) -> IntArray:
    """Return `value` as a non-empty 1-D index array in ``0 .. n-1``; negative ones count from the end."""
    raw = rectangular(value, name)
    if raw.size == 0:
        raise ValueError(f"{name} is empty; expected at least one index")
    if raw.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {raw.dtype}; expected integers")
    if raw.ndim > 1:
        raise ValueError(f"{name} has shape {raw.shape}; expected an integer or a 1-D array of integers")
    index = np.atleast_1d(raw).astype(np.intp)
    outside = (index < -n) | (index >= n)
    if outside.any():
        raise ValueError(f"{name} has index {int(index[outside][0])}; expected {-n} to {n - 1} for order {n}")
    return np.where(index < 0, index + n, index)


def positive_number(value: Any, name: str) -> float:
    """Return `value` as a finite float above zero, or raise an error that names it."""
    number = float(finite_array(value, name, ndim=0))
    if number <= 0:
        raise ValueError(f"{name} is {number:g}; expected a number above 0")
    return number


def span(index: IntArray) -> IntArray | slice:
    """Return numbers as a slice, which makes a view, where each follows the one before."""
    follow = len(index) > 0 and bool((index[1:] - index[:-1] == 1).all())
    return slice(int(index[0]), int(index[0]) + len(index)) if follow else index


def covers(index: IntArray | slice, m: int) -> bool:
    """Whether what :func:`span` returned is all of the numbers to `m`, in their order."""
    return isinstance(index, slice) and index == slice(0, m)
