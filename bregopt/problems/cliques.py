"""Principal blocks whose entries are all given, found in the pattern of given entries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bregopt.arrays import Array, IntArray, Mask

__all__ = ["cliques", "least_block"]


def least_block(pattern: Mask, values: Array) -> tuple[IntArray, float]:
    """Return the given block with the least smallest eigenvalue, and this eigenvalue; infinity without any.

    Parameters
    ----------
    pattern : boolean array of shape (n, n), symmetric
        Mask of the given entries off the diagonal.
    values : array of shape (n, n), symmetric
        Valid on the diagonal and at the given entries.
    """
    blocks = list(cliques(pattern))
    least = [float(np.linalg.eigvalsh(values[np.ix_(block, block)])[0]) for block in blocks]
    return min(zip(blocks, least, strict=True), key=lambda pair: pair[1], default=(np.arange(0), np.inf))


def cliques(pattern: Mask) -> Iterator[IntArray]:
    """Yield sets of indices whose entries are all given.

    Vertices whose neighbors are all adjacent to each other are removed one by one (Fulkerson and Gross 1965,
    Incidence matrices and interval graphs). This finds every maximal block of a chordal pattern, such as
    diagonal blocks and bands. In other patterns it stops at the first cycles without chord.
    """
    near = pattern | np.eye(len(pattern), dtype=bool)
    left = np.ones(len(pattern), dtype=bool)
    found = True
    while found:
        found = False
        for i in np.flatnonzero(left):
            clique = np.flatnonzero(near[i] & left)
            if left[i] and near[np.ix_(clique, clique)].all():
                found = True
                yield clique
                left[clique] = near[np.ix_(clique, left)].sum(axis=1) > len(clique)
