"""Groups of rows of a correlation matrix, such as sectors: their names, and the group of each row."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, is_mapping, rectangular
from bregopt.io.pandas_labels import Labels, aligned
from bregopt.records import dataclass

__all__ = ["Groups", "read_groups"]

_SHOWN = 3  # labels in messages


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of the rows ``0 .. n-1``.

    Parameters
    ----------
    names : tuple
        The names of the ``k`` groups, in the order in which they occur.
    at : int array of shape (n,)
        The group of each row.
    """

    names: tuple[Hashable, ...]
    at: IntArray

    @property
    def sizes(self) -> IntArray:
        """The number of rows of each group, shape (k,)."""
        return np.bincount(self.at, minlength=len(self.names))

    def members(self, g: int) -> IntArray:
        """Return the rows of one group."""
        return np.flatnonzero(self.at == g)

    def block_sums(self, M: Array) -> Array:
        """Return the sums of the blocks of a matrix of shape ``(n, n)``, shape ``(k, k)``."""
        order = np.argsort(self.at, kind="stable")
        starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        rows = np.add.reduceat(M[np.ix_(order, order)], starts, axis=0)
        sums: Array = np.add.reduceat(rows, starts, axis=1)
        return sums


def read_groups(value: Any, labels: Labels, n: int) -> Groups | None:
    """Return the groups of `n` rows.

    Parameters
    ----------
    value : sequence of length n, Series with the labels of the rows, dict from label to group, or None
    labels : pandas.Index or None
    n : int

    Raises
    ------
    TypeError, ValueError
        If it is none of these, if a row has no group, or a label is unknown.
    """
    if value is None:
        return None
    if is_mapping(value):
        names = _of_mapping(value, list(range(n)) if labels is None else list(labels))
    else:
        if isinstance(value, str) or not hasattr(value, "__len__") or rectangular(value, "groups").ndim != 1:
            raise TypeError(f"groups is {value!r}; expected the name of a group for each of the {n} rows")
        names = aligned(value, labels, "groups")
        names = names.tolist() if hasattr(names, "tolist") else list(names)
    if len(names) != n:
        raise ValueError(f"groups has {len(names)} names; expected one for each of the {n} rows")
    for k, name in enumerate(names):
        if name is None or name != name:  # NaN
            raise ValueError(
                f"groups has no name at {k if labels is None else labels[k]}; expected one, its own for a "
                "row of no group"
            )
    order: dict[Hashable, int] = {}
    at = np.array([order.setdefault(name, len(order)) for name in names], dtype=np.intp)
    return Groups(tuple(order), at)


def _of_mapping(value: Mapping[Hashable, Any], labels: list[Any]) -> list[Any]:
    """Return the groups of the labels, in their order."""
    lacking, spare = [x for x in labels if x not in value], [x for x in value if x not in set(labels)]
    if lacking or spare:
        problem, found = ("lacks", lacking) if lacking else ("has the unknown label", spare)
        shown = ", ".join(map(repr, found[:_SHOWN])) + (" and more" if len(found) > _SHOWN else "")
        raise ValueError(f"groups {problem} {shown}; expected a group for each label of A")
    return [value[x] for x in labels]
