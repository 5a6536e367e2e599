"""The fill of a sparse system in the multipliers of the rows, before it is formed."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.presolve.cliques import eliminate
from bregopt.program import LinearMap

__all__ = ["fill_of"]


def fill_of(A: LinearMap, B: Any, most: float) -> float:
    """Return about the number of nonzeros in a factor of ``[[M, B], [B', -E]]``.

    Rows that meet the same blocks and variables have the same pattern: each kind of row is eliminated at
    once.

    Parameters
    ----------
    A : LinearMap
    B : csr_array of shape (m, k)
    most : float
        Limit on the operations of the search.

    Returns
    -------
    float
        Infinite if the limit is reached.
    """
    kind, weight, incidence = _kinds(A, B)
    blocks, kinds = len(A.orders), len(weight)
    columns = sp.csc_array(incidence)
    neighbors: dict[int, set[int]] = {v: set() for v in range(kinds + B.shape[1])}
    for j, (start, end) in enumerate(pairwise(columns.indptr.tolist())):
        met = set(kind[columns.indices[start:end]].tolist())
        most -= len(met) ** 2
        if most < 0:
            return math.inf
        if j >= blocks:
            neighbors[kinds + j - blocks] |= met
        for v in met:
            neighbors[v] |= met - {v} if j < blocks else {kinds + j - blocks}
    order = eliminate(neighbors, most)
    if neighbors:
        return math.inf
    size = [*weight, *[1] * B.shape[1]]
    return float(sum(size[v] * ((size[v] + 1) / 2 + sum(size[u] for u in later)) for v, later in order))


def _kinds(A: LinearMap, B: Any) -> tuple[Any, list[int], Any]:
    """Return the kind of each row, the number of rows of each kind, and what each row meets."""
    at = np.concatenate([np.zeros(0, dtype=np.intp), *(term.at for term in A.terms)])
    block = np.repeat([term.block for term in A.terms], [len(term.at) for term in A.terms]).astype(np.intp)
    meets = sp.csr_array((np.ones(len(at)), (at, block)), (A.m, len(A.orders)))
    incidence = sp.csr_array(sp.hstack([meets, B], format="csr"))
    incidence.sort_indices()
    number: dict[bytes, int] = {}
    ends = incidence.indptr.tolist()
    kind = [
        number.setdefault(incidence.indices[start:end].tobytes(), len(number))
        for start, end in pairwise(ends)
    ]
    return np.array(kind), np.bincount(kind).tolist(), incidence
