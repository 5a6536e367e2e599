"""Bounds on entries by labels: a dict from pairs of labels, of groups, or of tuples of labels to numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, finite_array, is_mapping
from bregopt.errors import did_you_mean
from bregopt.io.pandas_labels import Labels
from bregopt.problems.correlation.groups import Groups
from bregopt.problems.nearest_arguments import LABELS_SHOWN

__all__ = ["by_pairs", "of_pairs", "of_present"]


def by_pairs(value: Any) -> bool:
    """Whether bounds are given by pairs: a dict all of whose keys are tuples of two."""
    return (
        is_mapping(value)
        and len(value) > 0
        and all(isinstance(key, tuple) and len(key) == 2 for key in value)
    )


def of_present(value: Mapping[Any, Any], places: Mapping[Hashable, Hashable | None]) -> dict[Any, Any]:
    """Return the bounds by pairs whose labels are all there, by the labels' own `places`.

    Parameters
    ----------
    value : mapping
    places : mapping
        The new label of each label of the stack, None where it is missing; other names stay.
    """

    def moved(part: Any) -> Any:
        if isinstance(part, Hashable) and part in places:
            return places[part]
        if isinstance(part, tuple | frozenset):
            own = tuple(new for new in map(moved, part) if new is not None)
            return own or None
        return part

    pairs = {tuple(map(moved, key)): bound for key, bound in value.items()}
    return {key: bound for key, bound in pairs.items() if None not in key}


def of_pairs(
    value: Any, name: str, labels: Labels, groups: Groups | None, n: int, widest: Array | float
) -> Any:
    """Return bounds by pairs as an array of shape ``(n, n)``; other bounds unchanged.

    Where several keys meet an entry, the tightest bound counts; where none does, it is `widest` away from 0.

    Raises
    ------
    TypeError, ValueError
        If a key is no pair, or names nothing; if a pair has no entry off the diagonal; if a bound is no
        finite number.
    """
    if not is_mapping(value):
        return value
    if not by_pairs(value):
        raise TypeError(
            f"{name} is a dict with other keys than pairs; expected pairs of labels, such as "
            f"{{('equities', 'credit'): 0.2}}"
        )
    sign, tighter = (-1.0, np.maximum) if name == "lower" else (1.0, np.minimum)
    bounds = np.full((n, n), sign * widest)
    places = _places(labels, groups, n)
    for key, number in value.items():
        first, second = (_members(part, key, places, name) for part in key)
        bound = float(finite_array(number, f"{name}[{key!r}]", ndim=0))
        _tighten(bounds, first, second, bound, tighter)
        if len(first) == len(second) == 1 and first[0] == second[0]:
            raise ValueError(f"{name} has the pair {key!r}, which is on the diagonal; expected two labels")
    return bounds


def _tighten(bounds: Array, first: IntArray, second: IntArray, bound: float, tighter: Any) -> None:
    """Tighten the bounds on the entries of two sets of indices, in both triangles."""
    for a, b in ((first, second), (second, first)):
        at = np.ix_(a, b)
        bounds[at] = tighter(bounds[at], bound)


def _places(labels: Labels, groups: Groups | None, n: int) -> dict[Hashable, IntArray]:
    """Return the indices of each label and of each group."""
    names = range(n) if labels is None else labels
    places = {name: np.array([k]) for k, name in enumerate(names)}
    if groups is None:
        return places
    for g, name in enumerate(groups.names):
        own = groups.members(g)
        if name in places and not np.array_equal(places[name], own):
            raise ValueError(f"{name!r} is a label of A and a group of groups; expected distinct names")
        places[name] = own
    return places


def _members(part: Any, key: Any, places: Mapping[Hashable, IntArray], name: str) -> IntArray:
    """Return the indices of a label, a group, or a tuple of these."""
    if isinstance(part, Hashable) and part in places:
        return places[part]
    if isinstance(part, tuple | frozenset) and part:
        return np.unique(np.concatenate([_members(one, key, places, name) for one in part]))
    known = [str(one) for one in places]
    raise ValueError(
        f"{name} has the pair {key!r}, and {part!r} is no label of A and no group"
        f"{did_you_mean(str(part), known, LABELS_SHOWN)}"
    )
