"""The problem of the kept rows, with a model of the other soft rows (:mod:`bregopt.chunks.working_set`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import IntArray
from bregopt.chunks.chunk import Chunk
from bregopt.chunks.iterate import Iterate
from bregopt.chunks.objective import Objective
from bregopt.chunks.screening import KeptRows
from bregopt.program import Block, Bounds, LinearMap, Nearness, Penalty, Program, Term
from bregopt.program.rows import DenseRows, Distances, RankOne
from bregopt.routes import routing
from bregopt.routes.options import tuning
from bregopt.routes.solution import Solution

__all__ = ["given_rows", "solved"]

_OWN_TOL = 0.05  # tolerance of a round's problem, relative to that of the whole
_FORMED = 6_000  # entries of X up to which a round's system is formed: order 109, 288 MB


def solved(objective: Objective, base: Iterate, c: float, kept: KeptRows, tol: float) -> Solution:
    """Return the answer to the problem of the kept rows, with the model of the soft ones around a matrix.

    ``D(M, M0) + c D(M, N)`` is ``(1 + c) D(M, M0) - c <D'(N), M>`` up to a constant.
    """
    r, k = len(base.M), len(kept.number)
    lo, hi = np.where(kept.sense > 0, 1.0, -np.inf), np.where(kept.sense > 0, np.inf, 1.0)
    kind = np.where(kept.gamma < np.inf, int(Penalty.HINGE), int(Penalty.HARD))
    bounds = Bounds(lo, hi, kind, kept.gamma)
    terms = [Term(0, np.arange(k), RankOne(kept.Z, np.ones(k)))] if k else []
    if base.weight:
        at = np.array([np.vdot(base.curvature, base.M)])
        square, price = np.array([int(Penalty.SQUARE)]), np.array([1 / (2 * base.weight)])
        bounds = bounds.followed_by(Bounds(at, at, square, price))
        terms.append(Term(0, np.array([k]), DenseRows(base.curvature[None])))
    _, gradient, _ = base.without(kept)
    cost = gradient - c * objective.divergence.gradient(base.M)
    block = Block(
        "M",
        r,
        DenseRows(cost[None]) if cost.any() else None,
        Nearness(objective.divergence.name, objective.M0, 1 + c),
    )
    none = np.zeros(0)
    A = LinearMap(bounds.m, (r,), tuple(terms))
    program = Program((block,), A, sp.csr_array((bounds.m, 0)), bounds, none, none, none)
    own = {"tuning": _tuning()} if objective.divergence.barrier else {}
    return routing.solve(program, "bregman", tol=_OWN_TOL * tol, warn=False, **own)


def given_rows(chunks: Sequence[Chunk], numbers: IntArray, nearness: Nearness | None) -> list[Program]:
    """Return problems of some hard rows as they were given, for proofs: the kept rows are rounded.

    Each is infeasible only if the rows contradict each other. Pairs of points may do so on the submatrix of
    their points, which is small and exact, or only on the range of ``X0``.

    Parameters
    ----------
    chunks : sequence of Chunk
    numbers : int array of shape (k,)
        Of the rows, ascending.
    nearness : Nearness or None
        None for rows with vectors of their own.
    """
    found = []
    for chunk in chunks:
        own = np.flatnonzero(np.isin(np.asarray(chunk.numbers), numbers))
        if len(own):
            found.append(chunk.take(own))
    bounds = reduce(Bounds.followed_by, (chunk.bounds(Penalty.HINGE) for chunk in found))
    weight = np.ones(bounds.m)
    if nearness is None:
        Z = np.concatenate([chunk.vectors().copy() for chunk in found])
        return [_of_rows(RankOne(Z, weight), bounds, None)]
    pairs = np.concatenate([chunk.rows.read() for chunk in found])
    points, near = np.unique(pairs, return_inverse=True)
    i, j = near.reshape(pairs.shape).T
    submatrix = Distances(len(points), i, j, weight)
    whole = Distances(nearness.X0.shape[0], pairs[:, 0], pairs[:, 1], weight)
    return [_of_rows(submatrix, bounds, None), _of_rows(whole, bounds, nearness)]


def _of_rows(rows: RankOne | Distances, bounds: Bounds, nearness: Nearness | None) -> Program:
    """Return the problem of some rows of one matrix."""
    none = np.zeros(0)
    A = LinearMap(bounds.m, (rows.n,), (Term(0, np.arange(bounds.m), rows),))
    block = Block("X", rows.n, None, nearness)
    return Program((block,), A, sp.csr_array((bounds.m, 0)), bounds, none, none, none)


@cache
def _tuning() -> Any:
    """Return constants for LogDet with kept rows: most of them act, nearly as many as ``X`` has entries.

    The interior-point method takes all rows at once. It forms its system also at larger orders, as conjugate
    gradients converge slowly near a vertex: 40 s instead of 2 for a round of 1,700 rows at order 50.
    """
    constants: Any = tuning("bregman")
    interior = replace(constants.interior, largest_formed_entries=_FORMED)
    return replace(constants, working_set_rows=np.iinfo(np.int64).max, interior=interior)
