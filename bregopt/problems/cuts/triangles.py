"""Rows that all partitions satisfy: nonpositive correlations of parts, and triangle inequalities.

Of a partition in ``k`` parts, ``X_ij`` is 1 if ``i`` and ``j`` share a part and ``-1/(k-1)`` if not. So
``X_ij >= -1/(k-1)``, and ``X_ij + X_im - X_jm <= 1``: if ``i`` shares its part with ``j`` and with ``m``,
they share it, too. In two parts also ``X_ij + X_im + X_jm >= -1``, as two of three vertices share a part.
There are too many rows to write them all down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.cut_rows import cut_rows
from bregopt.modeling.problem import Problem
from bregopt.modeling.psd import PSD
from bregopt.problems.cuts.proof import TOL, Proof, relaxed
from bregopt.problems.cuts.splitting import Splitting
from bregopt.routes.solution import Solution

__all__ = ["LARGEST_ORDER", "tightened", "violated_rows"]

LARGEST_ORDER = 500  # of graphs for which rows are generated
_ROWS = 5  # of a round, relative to the vertices
_VIOLATED = 1e-3  # rows that are violated by less are not added
_PATIENCE, _GAIN = 40, 0.02  # the least gain of so many certificates, relative to the distance of the cut


def tightened(
    problem: Problem,
    X: PSD,
    k: int,
    proof: Proof,
    best: Callable[[], IntArray],
    options: Mapping[str, Any],
    improve: Callable[[Any], None] = lambda value: None,
) -> Solution:
    """Return the answer to a relaxation with generated rows, and add the bounds of all rounds to the proof.

    Parameters
    ----------
    problem : Problem
    X : PSD
        Its variable.
    k : int
        The number of parts.
    proof : Proof
    best : function
        Returns the best partition so far.
    options : dict
        Of the solves.
    improve : function of a matrix
        Called with the answer of the first round, to find a better cut.
    """
    searched = False
    distances: list[float] = []

    def triangles(value: Any) -> list[Constraint]:
        nonlocal searched
        if not searched:
            improve(value)
            searched = True
        return violated_rows(X, np.asarray(value), k)

    def stalled() -> bool:
        distances.append(proof.distance(best()))
        return len(distances) > _PATIENCE and distances[-1] > (1 - _GAIN) * distances[-1 - _PATIENCE]

    tighter = Problem(problem.objective, [*problem.constraints, cut_rows(triangles)])
    return relaxed(tighter, proof, best, {"solver": Splitting, "tol": TOL, **options}, stalled)


def violated_rows(X: PSD, value: Array, k: int) -> list[Constraint]:
    """Return constraints with the rows that a matrix violates most."""
    most, least = _ROWS * X.n, -1.0 / (k - 1)
    found: list[Constraint] = []
    if k > 2:
        i, j = np.triu_indices(X.n, 1)
        i, j = _largest(least - value[i, j], most, i, j)
        if len(i):
            found.append(X[i, j] >= least)
    i, j, m, signs = _triangles(value, most, both=k == 2)
    if len(i):
        a, b, c = signs
        found.append(a * X[i, j] + b * X[i, m] + c * X[j, m] <= 1.0)
    return found


def _triangles(value: Array, most: int, both: bool) -> tuple[IntArray, IntArray, IntArray, Array]:
    """Return the triples ``i < j < m`` whose rows are violated most, and the signs in the rows, (3, rows).

    Of the two rows with a sign ``c`` of ``X_jm``, that with the larger left side has ``|X_ij - c X_im|``
    there. Without `both`, only rows with two positive signs are meant.
    """
    value = value.astype(np.float32)  # in half of the time; it only chooses rows
    excess, triples, least = np.zeros(0), np.zeros((4, 0), dtype=np.intp), _VIOLATED
    for i in range(len(value) - 2):
        row, rest = value[i, i + 1 :], value[i + 1 :, i + 1 :]
        for c in (-1, 1):
            over = np.subtract.outer(row, c * row)
            if both or c > 0:
                np.abs(over, out=over)
            over += c * rest
            at = np.flatnonzero(over > 1 + least)
            j, m = np.divmod(at, len(row))
            at, j, m = at[j < m], j[j < m] + i + 1, m[j < m] + i + 1
            excess = np.append(excess, over.ravel()[at] - 1)
            triples = np.append(triples, np.array([np.full(len(at), i), j, m, np.full(len(at), c)]), axis=1)
            if len(excess) > 2 * most:
                kept = np.argpartition(-excess, most)[:most]
                excess, triples = excess[kept], triples[:, kept]
                least = float(excess.min())
    i, j, m, c = triples[:, np.argsort(-excess)[:most]]
    a = np.where((value[i, j] < c * value[i, m]) & (both | (c > 0)), -1.0, 1.0)
    return i, j, m, np.array([a, -c * a, c])


def _largest(excess: Array, most: int, *index: IntArray) -> tuple[IntArray, ...]:
    """Return the indices of the largest violations."""
    at = np.flatnonzero(excess > _VIOLATED)
    if len(at) > most:
        at = at[np.argpartition(-excess[at], most)[:most]]
    return tuple(part[at] for part in index)
