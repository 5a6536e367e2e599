"""Relaxations with generated rows: nonpositive correlations of parts, and triangle inequalities.

Of a partition in ``k`` parts, ``X_ij`` is 1 if ``i`` and ``j`` share a part and ``-1/(k-1)`` if not. So
``X_ij >= -1/(k-1)``, and ``X_ij + X_im - X_jm <= 1``: if ``i`` shares its part with ``j`` and with ``m``,
they share it, too. In two parts also ``X_ij + X_im + X_jm >= -1``, as two of three vertices share a part.
There are too many rows to write them all down. Each round adds those that the last answer violates most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.arrays import Array, IntArray
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.problem import Problem
from bregopt.modeling.psd import PSD
from bregopt.problems.cuts.proof import Proof, relaxed
from bregopt.routes.solution import Solution

__all__ = ["LARGEST_ORDER", "tightened"]

LARGEST_ORDER = 500  # of graphs for which rows are generated
_MOST_ROWS = 2_000
_ROWS = 3.0  # of a round, relative to the vertices
_VIOLATED = 1e-3
_GAIN = 0.02  # of a round, relative to the distance of bound and cut; smaller ones end the rounds


def tightened(
    problem: Problem,
    X: PSD,
    k: int,
    proof: Proof,
    cut: float,
    options: dict[str, Any],
    cut_of: Callable[[Solution], float],
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
    cut : float
        The best one so far.
    options : dict
        Of the solves.
    cut_of : function of an answer
        Returns the best cut that is known after it.
    """
    rows: list[Constraint] = []
    count, before = 0, np.inf
    while True:
        answer = relaxed(Problem(problem.objective, [*problem.constraints, *rows]), proof, cut, options)
        cut = cut_of(answer)
        left = proof.distance(cut)
        stalled = left > (1 - _GAIN) * before or count >= _MOST_ROWS
        if answer.X is None or proof.proves(cut) or clock.remaining() <= 0 or stalled:
            return answer
        new, added = _violated(X, np.asarray(answer.X), k)
        if not new:
            return answer
        rows, count, before = rows + new, count + added, left


def _violated(X: PSD, value: Array, k: int) -> tuple[list[Constraint], int]:
    """Return constraints with the rows that a matrix violates most, and the number of the rows."""
    found: list[Constraint] = []
    count = 0
    most = int(_ROWS * X.n)
    least = -1.0 / (k - 1)
    if k > 2:
        i, j = np.triu_indices(X.n, 1)
        i, j = _largest(least - value[i, j], most, i, j)
        if len(i):
            found.append(X[i, j] >= least)
            count += len(i)
    # Signs of X_ij, X_im and X_jm in the rows a X_ij + b X_im + c X_jm <= 1.
    signs = [(1, 1, -1)] if k > 2 else [(1, 1, -1), (-1, -1, -1)]
    for a, b, c in signs:
        i, j, m = _triangles(value, (a, b, c), most)
        if len(i):
            found.append(a * X[i, j] + b * X[i, m] + c * X[j, m] <= 1.0)
            count += len(i)
    return found, count


def _triangles(value: Array, signs: tuple[int, int, int], most: int) -> tuple[IntArray, ...]:
    """Return the triples ``i, j < m`` whose rows are violated most."""
    a, b, c = signs
    n = len(value)
    best: list[tuple[IntArray, ...]] = []
    excess: list[Array] = []
    j, m = np.triu_indices(n, 1)
    symmetric = a == b == c
    for i in range(n):
        over = a * value[i, j] + b * value[i, m] + c * value[j, m] - 1.0
        allowed = (j > i) if symmetric else (j != i) & (m != i)
        at = np.flatnonzero(allowed & (over > _VIOLATED))
        if len(at) > most:
            at = at[np.argpartition(-over[at], most)[:most]]
        best.append((np.full(len(at), i), j[at], m[at]))
        excess.append(over[at])
    indices = [np.concatenate(part) for part in zip(*best, strict=True)]
    return _largest(np.concatenate(excess), most, *indices)


def _largest(excess: Array, most: int, *index: IntArray) -> tuple[IntArray, ...]:
    """Return the indices of the largest violations."""
    at = np.flatnonzero(excess > _VIOLATED)
    if len(at) > most:
        at = at[np.argpartition(-excess[at], most)[:most]]
    return tuple(part[at] for part in index)
