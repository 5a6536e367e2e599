"""The oracle: the rank-one matrices that promise most, by eigenvectors (Shen et al. 2008, (B1))."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from bregopt.arrays import Array

__all__ = ["leading_directions"]


def leading_directions(H: Array, count: int) -> tuple[Array, Array]:
    """Return the `count` largest eigenvalues of the symmetric `H`, largest first, and their vectors.

    The best ``Z`` of trace one for ``<H, Z>`` is ``v v'`` for the leading eigenvector ``v``; the next ones
    are added in the same round, since they tend to be wanted soon.
    """
    n = len(H)
    first = max(n - count, 0)
    eigenvalues, V = scipy.linalg.eigh(H, subset_by_index=(first, n - 1))
    return np.asarray(eigenvalues[::-1]), np.asarray(V[:, ::-1])
