"""Parts of a sparse inverse covariance problem that the data separate."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from bregopt.arrays import IntArray, Mask
from bregopt.certify.graphical_lasso import LassoData

__all__ = ["connected_parts"]

_BREADTH = 6  # edges from the first vertex to the others in most connected graphs of data


def connected_parts(data: LassoData) -> list[IntArray]:
    """Return the rows of each connected component of the graph with edges ``|S_ij| > P_ij``, largest first.

    The solution is zero between components (Witten, Friedman, Simon 2011, New Insights and Faster
    Computations for the Graphical Lasso, J. Comput. Graph. Stat. 20; Mazumder, Hastie 2012, Exact Covariance
    Thresholding into Connected Components for Large-Scale Graphical Lasso, JMLR 13).
    """
    edges = np.abs(data.S) > data.penalty
    np.fill_diagonal(edges, False)
    alone: Mask = ~np.any(edges, axis=0)
    if _soon_connected(edges, alone):
        joined = np.flatnonzero(~alone)
        return [*([joined] if len(joined) else []), *np.flatnonzero(alone)[:, None]]
    _, label = connected_components(sp.csr_array(edges), directed=False)
    order = np.argsort(label, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(label))[:-1])
    return sorted(parts, key=len, reverse=True)


def _soon_connected(edges: Mask, alone: Mask) -> bool:
    """Whether all vertices with edges are a few edges away from the first, which dense arrays say sooner."""
    reached = np.arange(len(edges)) == np.argmin(alone)
    for _ in range(_BREADTH):
        further = edges[reached].any(axis=0) | reached
        if (further | alone).all():
            return True
        if np.array_equal(further, reached):
            return False
        reached = further
    return False
