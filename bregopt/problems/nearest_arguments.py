"""Arguments of :func:`bregopt.nearest_correlation`, checked: eigenvalues, weights, fixed entries, bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask, finite_array, index_array, rectangular, symmetric_matrix
from bregopt.program.lowrank import Matrix

__all__ = [
    "BoundedEntries",
    "bounded_entries",
    "fixed_entries",
    "fixed_mask",
    "least_eigenvalue",
    "row_and_entry_weights",
]


@dataclass(frozen=True, eq=False)
class BoundedEntries:
    """Entries above the diagonal, each pair once, and their bounds."""

    i: IntArray
    j: IntArray
    lo: Array
    hi: Array


def least_eigenvalue(value: Any, divergence: str) -> float:
    """Return the lower bound on the eigenvalues."""
    t = float(finite_array(value, "min_eigenvalue", ndim=0))
    if not 0 <= t < 1:
        raise ValueError(f"min_eigenvalue is {t:g}; expected 0 <= min_eigenvalue < 1, as the mean is 1")
    if t > 0 and divergence != "frobenius":
        raise ValueError(f"min_eigenvalue goes with divergence='frobenius' only; found {divergence!r}")
    return t


def row_and_entry_weights(value: Any, n: int, divergence: str) -> tuple[Array, Array | None]:
    """Return the roots of the weights of the rows, and the weights of the entries if those are given."""
    if value is None:
        return np.ones(n), None
    if divergence != "frobenius":
        raise ValueError(f"weights go with divergence='frobenius' only; found {divergence!r}")
    weights = finite_array(value, "weights", ndim=(1, 2))
    if weights.shape not in ((n,), (n, n)):
        raise ValueError(f"weights has shape {weights.shape}; expected {(n,)} or {(n, n)}")
    if weights.ndim == 1:
        if (weights <= 0).any():
            raise ValueError(f"weights has the value {weights.min():g}; expected numbers above 0 for rows")
        return np.sqrt(weights), None
    if (weights < 0).any():
        raise ValueError(f"weights has the value {weights.min():g}; expected numbers from 0 for entries")
    return np.ones(n), symmetric_matrix(weights, "weights")


def fixed_mask(value: Any, n: int) -> Mask:
    """Return the symmetric mask of the fixed entries."""
    mask = np.zeros((n, n), dtype=bool)
    if value is None:
        return mask
    given = rectangular(value, "fixed")
    if given.size == 0:
        return mask
    if given.dtype == bool:
        if given.shape != (n, n):
            raise ValueError(f"fixed has shape {given.shape}; expected a mask of shape {(n, n)}")
        if (given != given.T).any():
            a, b = (int(k) for k in np.argwhere(given != given.T)[0])
            raise ValueError(f"fixed is not symmetric: entries {a, b} and {b, a} differ")
        return given
    if given.dtype.kind not in "iu":
        raise TypeError(f"fixed has dtype {given.dtype}; expected a boolean mask, or pairs of integers")
    if given.ndim != 2 or given.shape[1] != 2:
        raise ValueError(
            f"fixed holds integers in shape {given.shape}; expected pairs, shape (k, 2), or a boolean mask: "
            "mask.astype(bool)"
        )
    i, j = index_array(given[:, 0], "fixed", n), index_array(given[:, 1], "fixed", n)
    mask[i, j] = mask[j, i] = True
    return mask


def fixed_entries(mask: Mask, A: Matrix, limit: float) -> BoundedEntries:
    """Return the fixed entries; refuse an entry larger than the diagonal allows."""
    i, j = np.nonzero(np.triu(mask, 1))
    value = A[i, j]
    large = np.flatnonzero(np.abs(value) > limit)
    if len(large):
        k = large[0]
        raise ValueError(
            f"fixed keeps entry {int(i[k]), int(j[k])} at {value[k]:g}; no correlation matrix "
            f"{'' if limit == 1 else 'of that min_eigenvalue '}has an entry beyond {limit:g}"
        )
    return BoundedEntries(i, j, value, value)


def bounded_entries(lower: Any, upper: Any, mask: Mask, limit: float) -> BoundedEntries:
    """Return the entries off the diagonal that are not fixed and whose bounds ``X psd`` does not imply."""
    n = len(mask)
    lo, hi = _bound(lower, -1.0, "lower", n), _bound(upper, 1.0, "upper", n)
    i, j = np.nonzero(np.triu(~mask, 1))
    crossed = np.flatnonzero(lo[i, j] > hi[i, j])
    if len(crossed):
        a, b = int(i[crossed[0]]), int(j[crossed[0]])
        raise ValueError(
            f"lower is {lo[a, b]:g} but upper is {hi[a, b]:g} at {a, b}; expected lower <= upper"
        )
    for name, excess in (("lower", lo), ("upper", -hi)):
        beyond = np.flatnonzero(excess[i, j] > limit)
        if len(beyond):
            a, b = int(i[beyond[0]]), int(j[beyond[0]])
            raise ValueError(f"{name} at {a, b} lies beyond {limit:g}, which no entry can reach")
    acting = (lo[i, j] > -limit) | (hi[i, j] < limit)
    i, j = i[acting], j[acting]
    return BoundedEntries(i, j, lo[i, j], hi[i, j])


def _bound(value: Any, default: float, name: str, n: int) -> Array:
    if value is None:
        return np.full((n, n), default)
    array = finite_array(value, name, ndim=(0, 2))
    return np.full((n, n), array) if array.ndim == 0 else symmetric_matrix(array, name, n)
