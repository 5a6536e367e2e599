"""Blocks of entries that are given in full, found in the pattern of all given entries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bregopt.arrays import Array, IntArray, Mask

__all__ = ["cliques", "least_block"]


def least_block(pattern: Mask, values: Array) -> tuple[IntArray, float]:
    """Return the block of given entries whose smallest eigenvalue is least, and that; infinite without one.

    Parameters
    ----------
    pattern : boolean array of shape (n, n), symmetric
        Which entries off the diagonal are given.
    values : array of shape (n, n), symmetric
        Right on the diagonal and where they are given.
    """
    blocks = list(cliques(pattern))
    least = [float(np.linalg.eigvalsh(values[np.ix_(block, block)])[0]) for block in blocks]
    return min(zip(blocks, least, strict=True), key=lambda pair: pair[1], default=(np.arange(0), np.inf))


def cliques(pattern: Mask) -> Iterator[IntArray]:
    """Yield sets of indices whose entries are all given.

    Vertices whose neighbors are joined are taken away one after the other (Fulkerson and Gross 1965,
    Incidence matrices and interval graphs). So every block is found where the pattern is chordal, as blocks
    on the diagonal and bands are; where it is not, those before the first cycle without chord.
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
