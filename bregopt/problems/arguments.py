"""Arguments of ready-made problems: divergences, standard deviations, weights, fixed and bounded entries."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from bregopt.arrays import (
    Array,
    IntArray,
    check_memory,
    finite_array,
    index_array,
    is_one_of,
    rectangular,
    symmetric_matrix,
)
from bregopt.divergences import DIVERGENCES, Divergence
from bregopt.errors import did_you_mean
from bregopt.io.matrices import Labels
from bregopt.linalg import is_definite
from bregopt.modeling.convex.expression import CurvedExpression
from bregopt.modeling.objectives import bregman_div
from bregopt.modeling.variables import PSD
from bregopt.program.rows.base import LowRank, Matrix
from bregopt.records import dataclass

Pairs = tuple[IntArray, IntArray]
_NO_PAIRS: Pairs = np.arange(0), np.arange(0)
LABELS_SHOWN = 5  # in messages
_BYTES_A_BOUND = 16.0  # memory of the bounds for each of the n^2 entries: two indices for each pair


def divergence_class(divergence: Any, norms: Iterable[str] = ()) -> type[Divergence]:
    """Return the class of a divergence by the name that a user gives; messages also name the `norms`."""
    if not is_one_of(divergence, DIVERGENCES):
        known = (*DIVERGENCES, *norms)
        raise ValueError(f"divergence is {divergence!r}{did_you_mean(str(divergence), known)}")
    return DIVERGENCES[divergence]


def nearness(divergence: str, X: PSD, X0: Matrix, name: str, **parameters: Any) -> CurvedExpression:
    """Return the divergence of `X` from `X0`; messages call `X0` by the `name` of the user's argument."""
    kind = divergence_class(divergence)
    if isinstance(X0, LowRank):
        if not kind.keeps_range:
            refused = f"whose range {kind.__name__} does not keep"
            raise TypeError(f"{name} is LowRank, {refused}: pass {name}.dense()")
    elif kind.definite_start:
        check_definite(X0, name, divergence)
    return bregman_div(X, X0, divergence, **parameters)


def check_definite(X0: Any, name: str, divergence: str) -> None:
    """Refuse a matrix that is not positive definite."""
    if not is_definite(X0):
        eigenvalues = np.linalg.eigvalsh(X0)
        raise ValueError(
            f"{name} is not positive definite (eigenvalues from {eigenvalues[0]:.3g} to "
            f"{eigenvalues[-1]:.3g}), which "
            f"divergence={divergence!r} needs: use divergence='frobenius', add a multiple of the identity, "
            "or, where it is singular, pass bo.LowRank(factor)"
        )


@dataclass(frozen=True, eq=False)
class BoundedEntries:
    """Entries above the diagonal, each pair once, and their bounds."""

    i: IntArray
    j: IntArray
    lo: Array
    hi: Array


UNBOUNDED = BoundedEntries(*_NO_PAIRS, np.zeros(0), np.zeros(0))


def standard_deviations(variances: Array, labels: Labels) -> Array:
    """Return the standard deviations of the matrix `S`; refuse variances that are not above 0."""
    bad = np.flatnonzero(~(variances > 0))
    if len(bad):
        k = int(bad[0])
        found = "NaN" if np.isnan(variances[k]) else f"{variances[k]:g}"
        raise ValueError(
            f"S has the variance {found} at {k if labels is None else labels[k]}; expected variances above "
            "0: drop it"
        )
    return np.sqrt(variances)


def largest_change(S: Array, X: Any, scale: Array) -> tuple[float, int, int]:
    """Return the largest change of a known entry between two covariances, and its place.

    It is in parts of both standard deviations, `scale`: off the diagonal the change of a correlation.
    """
    if X is None:
        return 0.0, 0, 0
    change = np.abs(np.triu(np.nan_to_num((np.asarray(X) - S) / np.outer(scale, scale))))
    i, j = np.unravel_index(int(change.argmax()), change.shape)
    return float(change[i, j]), int(i), int(j)


def row_weights(value: Any, n: int) -> Array:
    """Return the weights of the rows, one by default."""
    if value is None:
        return np.ones(n)
    weights = finite_array(value, "weights", ndim=1)
    if weights.shape != (n,):
        raise ValueError(f"weights has shape {weights.shape}; expected {(n,)}, one weight for each row")
    if (weights <= 0).any():
        raise ValueError(f"weights has the value {weights.min():g}; expected numbers above 0 for rows")
    return weights


def row_and_entry_weights(
    value: Any, n: int, divergence: type[Divergence] | None
) -> tuple[Array, Array | None]:
    """Return the roots of the weights of the rows, and the weights of the entries if those are given."""
    if value is None:
        return np.ones(n), None
    if divergence is not None and not divergence.quadratic:
        raise ValueError(f"weights go with divergence='frobenius' only; found {divergence.name!r}")
    weights = finite_array(value, "weights", ndim=(1, 2))
    if weights.shape not in ((n,), (n, n)):
        raise ValueError(f"weights has shape {weights.shape}; expected {(n,)} or {(n, n)}")
    if weights.ndim == 1:
        return np.sqrt(row_weights(weights, n)), None
    if (weights < 0).any():
        raise ValueError(f"weights has the value {weights.min():g}; expected numbers from 0 for entries")
    if not weights.any():
        raise ValueError("weights are all 0, so that no entry counts; expected one above 0")
    return np.ones(n), symmetric_matrix(weights, "weights")


def fixed_pairs(value: Any, n: int, labels: Labels = None, name: str = "fixed", matrix: str = "A") -> Pairs:
    """Return the indices ``i < j`` of entries, each pair once, in the order of the rows.

    A list of rows, by label or number, means all pairs of their block. Pairs cost memory in proportion to
    their number; only a mask has shape ``(n, n)``.
    """
    if value is None:
        return _NO_PAIRS
    given, found = rectangular(value, name), "integers"
    if labels is not None and given.dtype.kind in "OUS":
        found = "labels"
        wanted = given.ravel()
        try:
            places = labels.get_indexer(wanted)
        except TypeError:  # one cannot be hashed
            places = np.array([0 if isinstance(label, Hashable) else -1 for label in wanted])
        if (places < 0).any():
            unknown = str(wanted[int(np.argmax(places < 0))])
            hint = did_you_mean(unknown, map(str, labels), LABELS_SHOWN)
            raise ValueError(f"{name} has {unknown!r}, which is no label of {matrix}{hint}")
        given = np.asarray(places).reshape(given.shape)
    if given.size == 0:
        return _NO_PAIRS
    if given.dtype == bool:
        if given.shape != (n, n):
            raise ValueError(f"{name} has shape {given.shape}; expected a mask of shape {(n, n)}")
        if (given != given.T).any():
            a, b = (int(k) for k in np.argwhere(given != given.T)[0])
            raise ValueError(f"{name} is not symmetric: entries {a, b} and {b, a} differ")
        i, j = np.nonzero(np.triu(given, 1))
        return i, j
    if given.dtype.kind not in "iu":
        raise TypeError(
            f"{name} has dtype {given.dtype}; expected a boolean mask, or pairs or a block of integers, or "
            "of the labels of a DataFrame"
        )
    if given.ndim == 1:  # a block
        block = np.unique(index_array(given, name, n))
        first, second = np.triu_indices(len(block), 1)
        return block[first], block[second]
    if given.ndim != 2 or given.shape[1] != 2:
        raise ValueError(
            f"{name} holds {found} in shape {given.shape}; expected pairs, shape (k, 2), the rows of a "
            "block, shape (k,), or a boolean mask. Of a mask of integers pass mask.astype(bool)"
        )
    i, j = index_array(given[:, 0], name, n), index_array(given[:, 1], name, n)
    pairs = np.unique((np.minimum(i, j) * n + np.maximum(i, j))[i != j])
    return pairs // n, pairs % n


def fixed_entries(pairs: Pairs, A: Matrix, limit: float, labels: Any = None) -> BoundedEntries:
    """Return the fixed entries; refuse an entry larger than the diagonal allows."""
    i, j = pairs
    if len(i) == 0:
        return UNBOUNDED
    value = A[i, j]
    large = np.flatnonzero(np.abs(value) > limit)
    if len(large):
        k = large[0]
        raise ValueError(
            f"fixed keeps entry {_pair(i[k], j[k], labels)} at {value[k]:g}; no correlation matrix "
            f"{'' if limit == 1 else 'of that min_eigenvalue '}has an entry beyond {limit:g}"
        )
    return BoundedEntries(i, j, value, value)


def bounded_entries(
    lower: Any, upper: Any, fixed: Pairs, n: int, limit: float, labels: Any = None
) -> BoundedEntries:
    """Return the entries off the diagonal that are not fixed and whose bounds ``X psd`` does not imply.

    No array of shape ``(n, n)`` is made where bounds of all entries have no effect.
    """
    if lower is None and upper is None:
        return UNBOUNDED
    lo, hi = entry_bounds(lower, -1.0, "lower", n), entry_bounds(upper, 1.0, "upper", n)
    if lo.ndim == hi.ndim == 0 and lo <= -limit and hi >= limit:
        return UNBOUNDED
    check_memory(_BYTES_A_BOUND * n * n, f"bounds on all entries of a matrix of order {n}")
    lo, hi = np.broadcast_to(lo, (n, n)), np.broadcast_to(hi, (n, n))
    free = np.ones((n, n), dtype=bool)
    free[fixed] = False
    i, j = np.nonzero(np.triu(free, 1))
    crossed = np.flatnonzero(lo[i, j] > hi[i, j])
    if len(crossed):
        a, b = int(i[crossed[0]]), int(j[crossed[0]])
        raise ValueError(
            f"lower is {lo[a, b]:g} but upper is {hi[a, b]:g} at {_pair(a, b, labels)}; expected lower <= "
            f"upper. The nearest bounds that agree are both {(lo[a, b] + hi[a, b]) / 2:g}"
        )
    for name, excess in (("lower", lo), ("upper", -hi)):
        beyond = np.flatnonzero(excess[i, j] > limit)
        if len(beyond):
            a, b = int(i[beyond[0]]), int(j[beyond[0]])
            raise ValueError(
                f"{name} at {_pair(a, b, labels)} lies beyond {limit:g}, which no entry can reach"
            )
    acting = (lo[i, j] > -limit) | (hi[i, j] < limit)
    i, j = i[acting], j[acting]
    return BoundedEntries(i, j, lo[i, j], hi[i, j])


def _pair(i: Any, j: Any, labels: Any) -> str:
    """Return an entry by its labels or indices."""
    return f"({i}, {j})" if labels is None else f"({labels[i]}, {labels[j]})"


def entry_bounds(value: Any, default: float, name: str, n: int) -> Array:
    """Return bounds as a scalar array, of all entries, or one of shape ``(n, n)``."""
    array = finite_array(default if value is None else value, name, ndim=(0, 2))
    return array if array.ndim == 0 else symmetric_matrix(array, name, n)
