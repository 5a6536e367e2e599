"""Arguments from users, checked on input and never modified or repaired silently; the memory of arrays."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Container, Mapping
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from bregopt.errors import DataWarning, warn_caller

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
IntArray = NDArray[np.intp]
Mask = NDArray[np.bool_]
RandomState = int | np.random.Generator | np.random.RandomState | None  # as in scikit-learn


class SparseMatrix(Protocol):
    """A sparse array or matrix of SciPy, for type checkers without stubs of SciPy."""

    @property
    def nnz(self) -> int:
        """The number of stored entries."""

    @property
    def T(self) -> Any:
        """The transpose."""

    def tocsr(self) -> Any:
        """Return the matrix in CSR form."""


MatrixLike = ArrayLike | SparseMatrix  # pandas' frames and series are ArrayLike
BoundsLike = ArrayLike | Mapping[Any, Any]  # a number, an array, or a dict from pairs to numbers

# Names in quotes, as pandas is an extra.
Frame: TypeAlias = "pd.DataFrame"
ArrayOrFrame: TypeAlias = "Array | pd.DataFrame"
ArrayOrSeries: TypeAlias = "Array | pd.Series[float]"

EPS = float(np.finfo(float).eps)  # the spacing of doubles at one
TINY = float(np.finfo(float).tiny)  # the smallest normal double, which avoids divisions of zero by zero

# Smallest and largest magnitude of data. The sum of fourth powers (squares of products) over the entries of a
# matrix of order 1e5 is then a finite double. Single bounds and entries may be smaller. The largest entry of
# a matrix and a number that must be positive may not.
SMALLEST, LARGEST = 1e-70, 1e70
# Ratio of sizes of variables above which their units are unlike: of standard deviations, and of columns,
# which differ by hundreds in one unit, too, as powers and rare pixels do.
LARGEST_SPREAD, LARGEST_COLUMN_SPREAD = 10.0, 1e3
# Asymmetry as a fraction of the largest entry. Up to `_ROUND_OFF` it is round-off of doubles, up to
# `_SYMMETRY_TOL` that of single precision or of printed digits.
_ROUND_OFF, _SYMMETRY_TOL = 1e-10, 1e-6

# Of checks of memory: the fraction that may be used, as the system and existing data have the rest; gigabytes
# above which messages use an exponent; the file with the limit of a container, "max" where there is none.
_ALWAYS_THERE = 1e5  # bytes that are not looked for: the interpreter alone takes more
_SHARE, _LEGIBLE, _CONTAINER = 0.8, 1e12, Path("/sys/fs/cgroup/memory.max")
_ENTRY = 48  # bytes that an entry of a matrix takes in an expression: two indices, a value and copies


def rectangular(value: Any, name: str) -> NDArray[Any]:
    """Return `value` as an array of any type; a ValueError names it if its rows differ in length."""
    if type(value) is np.ndarray:
        return value
    if sp.issparse(value):
        check_memory(8.0 * math.prod(value.shape), f"{name}, sparse, of shape {value.shape},")
        dense: NDArray[Any] = value.toarray()
        return dense
    if isinstance(value, set | frozenset):
        raise TypeError(
            f"{name} is a {type(value).__name__}, which has no order; pass a list of its elements"
        )
    _check_masks(value, name)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is ragged: expected a rectangular array of numbers ({error})") from None
    return _without_na(value, array) if array.dtype == object and hasattr(value, "isna") else array


def _check_masks(value: Any, name: str) -> None:
    """Refuse masked entries, whose numbers NumPy would take as they stand under the mask."""
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], list | tuple | np.ndarray):  # a masked number is NaN in a list
            for part in value:
                _check_masks(part, name)
    elif isinstance(value, np.ndarray) and type(value) is not np.ndarray:
        masked = np.argwhere(getattr(value, "mask", False))
        if len(masked):
            place = f", the first at {tuple(masked[0].tolist())}" if value.ndim else ""
            raise ValueError(
                f"{name} has {len(masked)} masked entries{place}; expected numbers: fill them, as by "
                ".filled(value), or leave them out"
            )


def _without_na(value: Any, objects: NDArray[Any]) -> NDArray[Any]:
    """Return pandas data of nullable dtypes as numbers, NaN where one is missing; other data unchanged."""
    dtypes = value.dtypes if objects.ndim == 2 else [value.dtype]
    if not all(dtype.kind in "biuf" for dtype in dtypes):
        return objects
    if not np.asarray(value.isna()).any():
        return np.asarray(objects.tolist())
    numbers: NDArray[Any] = value.to_numpy(dtype=float, na_value=np.nan)
    return numbers


def finite_array(value: Any, name: str, ndim: int | tuple[int, ...] | None = None) -> Array:
    """Return `value` as a new float64 array, or raise an error that names it.

    Parameters
    ----------
    value : array_like
        Any object that NumPy reads as real numbers, or pandas data of nullable dtypes. It is copied.
    name : str
        Its name in messages.
    ndim : int or tuple of int, optional
        Accepted numbers of dimensions.

    Raises
    ------
    TypeError
        If the input is not real numbers: complex, objects, strings.
    ValueError
        If there is NaN, Inf, a magnitude above `LARGEST`, or another number of dimensions.
    """
    if isinstance(value, int | float) and abs(value) <= LARGEST and _accepts(ndim, 0):
        return np.array(float(value))  # a shortcut for most weights and bounds
    raw = rectangular(value, name)
    if raw.dtype.kind == "c":
        raise TypeError(f"{name} is complex ({raw.dtype}); expected real numbers")
    if raw.dtype.kind not in "biuf":
        raise TypeError(f"{name} {_described(value, raw)}; expected real numbers")
    array = np.array(raw) if raw.dtype == np.float64 else doubles(raw)
    if ndim is not None and not _accepts(ndim, array.ndim):
        expected = " or ".join(str(d) for d in (ndim if isinstance(ndim, tuple) else (ndim,)))
        raise ValueError(f"{name} has {array.ndim} dimensions, shape {array.shape}; expected {expected}")
    largest = np.maximum.reduce(np.abs(array), axis=None, initial=0.0)
    if largest <= LARGEST:
        return array
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(k) for k in np.argwhere(bad)[0])
        place = f", the first at {_place(value, where)}" if where else ""
        found = f"{int(bad.sum())} NaN or Inf value(s){place}"
        raise ValueError(f"{name} has {found}; expected finite numbers: fill or drop it")
    raise ValueError(f"{name} has magnitude {largest:.3g}; expected at most {LARGEST:g}: take other units")


def _described(value: Any, raw: Any) -> str:
    """Return what an argument is that has no numbers: an answer of bregopt has them in an attribute."""
    if raw.ndim or isinstance(value, str):
        return f"has dtype {raw.dtype}"
    held = [key for key in ("A", "X") if getattr(value, key, None) is not None]
    return f"is of type {type(value).__name__}" + (f", whose attribute {held[0]} is a matrix" if held else "")


def doubles(numbers: NDArray[Any]) -> Array:
    """Return real numbers as a new float64 array; a long double beyond their range is infinite there."""
    with np.errstate(over="ignore"):
        return np.array(numbers, dtype=np.float64)


def complex_array(value: Any, name: str, ndim: int | tuple[int, ...] | None = None) -> ComplexArray:
    """Return `value` as a new complex array, with parts that :func:`finite_array` accepts."""
    dense = rectangular(value, name)
    if dense.dtype.kind != "c":
        return finite_array(value, name, ndim).astype(complex)
    real = finite_array(dense.real, f"real part of {name}", ndim)
    array: ComplexArray = real + 1j * finite_array(dense.imag, f"imaginary part of {name}", ndim)
    return array


def _place(value: Any, where: tuple[int, ...]) -> str:
    """Return the text of an index in messages, with the labels of a DataFrame or Series."""
    axes = getattr(value, "axes", ())
    labels = ", ".join(
        f"{kind} {axis[k]}" for kind, axis, k in zip(("row", "column"), axes, where, strict=False)
    )
    return f"{where if len(where) > 1 else where[0]}{labels and f' ({labels})'}"


def check_magnitude(array: Array, name: str, least: float) -> None:
    """Raise a ValueError if the largest magnitude is above `LARGEST`, or below `least` and not zero."""
    largest = float(np.maximum.reduce(np.abs(array), axis=None, initial=0.0))
    if largest > LARGEST or 0 < largest < least:
        raise ValueError(
            f"{name} has magnitude {largest:.3g}; expected 0 or {least:g} to {LARGEST:g}: take other units"
        )


def check_columns(array: Array, name: str) -> None:
    """Raise a ValueError if a column has a largest magnitude below `SMALLEST` that is not zero.

    The columns of such data have units of their own, and answers have the squares of these.
    """
    largest = np.abs(array).reshape(-1, array.shape[-1]).max(axis=0, initial=0.0)
    tiny = np.flatnonzero((largest > 0) & (largest < SMALLEST))
    if len(tiny):
        k = int(tiny[0])
        raise ValueError(
            f"{name} has magnitude {largest[k]:.3g} in column {k}; expected 0 or {SMALLEST:g} to "
            f"{LARGEST:g}: take other units"
        )


def _accepts(ndim: int | tuple[int, ...] | None, found: int) -> bool:
    """Whether a number of dimensions is accepted; None accepts all."""
    return ndim is None or found == ndim or (isinstance(ndim, tuple) and found in ndim)


def is_one_of(value: object, names: Container[str]) -> bool:
    """Whether an argument is one of some names; unlike ``in``, of an array or a list, too."""
    return isinstance(value, str) and value in names


def is_mapping(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Whether a value maps keys to values. A sparse matrix of SciPy's dok format is a dict, but does not."""
    return isinstance(value, Mapping) and not sp.issparse(value)


def symmetric_matrix(value: Any, name: str, n: int | None = None) -> Array:
    """Return `value` as a new exactly symmetric float64 matrix, or raise an error that names it.

    Asymmetry up to ``1e-10`` of the largest entry is round-off: the two entries are averaged. Up to ``1e-6``
    they are averaged with a :class:`~bregopt.DataWarning`. A larger asymmetry is an error.
    """
    matrix = finite_array(value, name, ndim=2)
    if matrix.shape[0] != matrix.shape[1]:
        order = "" if n is None else f", {n} x {n}"
        raise ValueError(f"{name} has shape {matrix.shape}; expected a square matrix{order}")
    if n is not None and matrix.shape[0] != n:
        raise ValueError(f"{name} is {matrix.shape[0]} x {matrix.shape[0]}; expected {n} x {n}")
    if matrix.size == 0:
        raise ValueError(f"{name} is empty; expected at least one row")
    check_magnitude(matrix, name, SMALLEST)
    if np.logical_and.reduce(matrix == matrix.T, axis=None):
        return matrix
    symmetric: Array = symmetrized(matrix, name, value)
    return symmetric


def hermitian_matrix(value: Any, name: str, n: int) -> ComplexArray:
    """Return `value` as a new exactly Hermitian matrix of order `n`, or raise an error that names it.

    Round-off is treated as by :func:`symmetric_matrix`.
    """
    matrix = complex_array(value, name, ndim=2)
    if matrix.shape != (n, n):
        raise ValueError(f"{name} has shape {matrix.shape}; expected {n} x {n}")
    check_magnitude(np.abs(matrix), name, SMALLEST)
    hermitian: ComplexArray = symmetrized(matrix, name, value)
    return hermitian


def symmetrized(matrix: Any, name: str, labeled: Any = None) -> Any:
    """Return a square matrix, dense or sparse in CSR form, made exactly symmetric, or raise an error.

    Parameters
    ----------
    matrix : array or csr_array of shape (n, n)
        Finite. A complex one is made Hermitian.
    name : str
        Its name in messages.
    labeled : DataFrame, optional
        The source of the matrix, for its labels.

    Raises
    ------
    ValueError
        If the asymmetry is above ``1e-6`` of the largest entry; the message names the pair of largest
        difference.

    Warns
    -----
    DataWarning
        If the asymmetry is above ``1e-10`` of the largest entry.
    """
    is_complex = matrix.dtype.kind == "c"
    adjoint = matrix.T.conj() if is_complex else matrix.T
    skew = abs(matrix - adjoint)
    if skew.max() == 0:
        return matrix
    relative = float(skew.max()) / float(abs(matrix).max())
    if relative > _ROUND_OFF:
        i, j = (int(k) for k in np.unravel_index(int(skew.argmax()), skew.shape))
        pair = (
            f"entry {_place(labeled, (i, j))} is {matrix[i, j]:.10g} but entry {j, i} is {matrix[j, i]:.10g}"
        )
        kind, mean = ("Hermitian", "(A + A.conj().T) / 2") if is_complex else ("symmetric", "(A + A.T) / 2")
        if relative > _SYMMETRY_TOL:
            raise ValueError(f"{name} is not {kind}: {pair}; if their mean is meant pass {mean}")
        warn_caller(
            f"{name} is {kind} to {relative:.0e} of its largest entry only: {pair}. Means are taken; "
            f"pass {mean} to say so",
            DataWarning,
        )
    return (matrix + adjoint) / 2


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


def entry_indices(key: Any, n: int, name: str) -> tuple[Any, Any]:
    """Return the rows and the columns of the entries that an index of an ``n x n`` matrix selects."""
    if type(key) is tuple and len(key) == 2 and all(type(k) is int and -n <= k < n for k in key):
        return key[0] % n, key[1] % n  # loops over entries spend their time here
    order = np.arange(n)
    _check_masks(key, f"index of {name}")
    try:
        i = np.broadcast_to(order[:, None], (n, n))[key]
        j = np.broadcast_to(order, (n, n))[key]
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(f"index of {name}, {n} x {n}: {error}") from None
    if np.size(i) == 0:
        raise ValueError(f"index of {name} is empty; expected at least one entry")
    check_memory(_ENTRY * np.size(i), f"an expression of {np.size(i)} entries of {name}")
    return i, j


def positive_number(value: Any, name: str) -> float:
    """Return `value` as a finite float above zero, or raise an error that names it."""
    number = float(finite_array(value, name, ndim=0))
    if number <= 0:
        raise ValueError(f"{name} is {number:g}; expected a number above 0")
    check_magnitude(np.array(number), name, SMALLEST)
    return number


def positive_integer(value: Any, name: str, otherwise: str = "") -> int:
    """Return `value` as an integer from one on, or raise an error that names it and what else it may be."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r}; expected an integer{otherwise}")
    if int(value) < 1:
        raise ValueError(f"{name} is {value}; expected an integer from 1")
    if int(value) > sys.maxsize:  # no index, and beyond floats at last
        raise ValueError(f"{name} is above {sys.maxsize}; expected an integer from 1 to there")
    return int(value)


def check_pair_bounds(upper: Any, lower: Any) -> None:
    """Refuse a scalar bound on the distances of similar pairs above the one of dissimilar pairs."""
    if upper is None or lower is None:
        return
    most, least = finite_array(upper, "upper"), finite_array(lower, "lower")
    if most.ndim == least.ndim == 0 and most > least:
        raise ValueError(
            f"upper is {most:g} but lower is {least:g}; expected upper <= lower: similar pairs come within "
            "upper, and dissimilar ones stay beyond lower"
        )


def unlike_sizes(size: Array, names: Any = None, largest: float = LARGEST_SPREAD) -> str | None:
    """Return the range of sizes of variables as text where their units are unlike, None otherwise.

    Parameters
    ----------
    size : array of shape (n,)
        Variables of size zero or NaN do not count.
    names : sequence of length n, optional
        The default is their numbers.
    largest : float
        The ratio above which units are unlike.
    """
    some = np.flatnonzero(size > 0)
    if len(some) == 0 or size[some].max() <= largest * size[some].min():
        return None
    ends = some[[int(size[some].argmin()), int(size[some].argmax())]]
    low, high = (f"{size[k]:.3g} ({k if names is None else names[k]})" for k in ends)
    return f"from {low} to {high}"


def span(index: IntArray) -> IntArray | slice:
    """Return indices as a slice, which makes a view, if they are consecutive."""
    follow = len(index) > 0 and bool(np.logical_and.reduce(index[1:] - index[:-1] == 1))
    return slice(int(index[0]), int(index[0]) + len(index)) if follow else index


def covers(index: IntArray | slice, m: int) -> bool:
    """Whether an index that :func:`span` returned is ``0 .. m-1`` in order."""
    return isinstance(index, slice) and index == slice(0, m)


def scattered(index: IntArray, values: Array | float, size: int) -> Array:
    """Return an array of zeros but for `values` at `index`, shape ``(size,)``."""
    full = np.zeros(size)
    full[index] = values
    return full


# --- Memory -----------------------------------------------------------------------------------------


def rows_with_data(values: Array) -> Mask:
    """Return the rows of matrices with a number off the diagonal, in the row or the column.

    Parameters
    ----------
    values : array of shape (B, n, n)

    Returns
    -------
    boolean array of shape (B, n)
        Of matrices of order one, whether the entry is a number.
    """
    known = ~np.isnan(values)
    if values.shape[1] > 1:
        k = np.arange(values.shape[1])
        known[:, k, k] = False
    mask: Mask = np.asarray(known.any(axis=2) | known.any(axis=1))
    return mask


def memory() -> int | None:
    """Return the number of bytes that this process may use, None where it is unknown.

    It is the least of the machine's memory, the limit of the container and the limit on the address
    space (``ulimit -v``).
    """
    found = [size for size in (_machine(), _container(), _address_space()) if size is not None]
    return min(found, default=None)


def shortage(needed: float) -> str | None:
    """Return the message that `needed` bytes are too many, None where they are available."""
    if needed <= _ALWAYS_THERE:
        return None
    there = memory()
    if there is None or needed <= _SHARE * there:
        return None
    wanted = min(needed, sys.float_info.max) / 1e9  # an integer may be beyond all doubles
    size = f"{wanted:.1f}" if wanted < _LEGIBLE else f"{wanted:.1e}"
    return f"it would need {size} GB of memory, this machine has {there / 1e9:.1f} GB"


def check_memory(needed: float, name: str) -> None:
    """Raise a ValueError with `name` and both numbers if `needed` bytes are too many."""
    reason = shortage(needed)
    if reason is not None:
        raise ValueError(f"{name} is too large: {reason}")


def _machine() -> int | None:
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@cache
def _container() -> int | None:
    try:
        text = _CONTAINER.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft
