"""Vertices that a theta number does not need: dominated ones, and those apart from all others.

With roots ``q`` of the weights, theta is the least ``t`` for which some ``M`` with a zero diagonal makes

    Z = t I + M - qq'

psd. Lovász's number has ``M`` of edges alone, Schrijver's also entries ``M_ij <= 0`` on other pairs, and
Szegedy's has ``M >= 0`` on edges. These are the multipliers of the rows of ``X``
(:mod:`bregopt.problems.cuts.theta`).

A vertex ``u`` dominates its neighbor ``v`` if all neighbors of ``u`` are neighbors of ``v``, and ``v`` is not
heavier. Then each of the numbers is that of the graph without ``v``. It is at least that, by ``X`` with zeros
at ``v``. It is at most that: append ``s = q_v / q_u`` times the row and column of ``u`` to ``Z``, and add
``(1 - s^2) t`` to the new diagonal entry, which is then ``s^2 (t - w_u) + (1 - s^2) t = t - w_v``. The result
is psd. Its ``M`` is ``s t`` between ``u`` and ``v``, and otherwise ``s`` times that of ``u``: a pair of ``v``
without an edge comes from one of ``u`` without an edge. A vertex of weight zero has ``s = 0`` and any ``u``.

Vertices without neighbors become one vertex of their total weight ``W``. It stands for the unit vector ``p``
with their entries ``q_a / sqrt(W)``: the whole graph has ``V X V'`` and ``V M V'``, where ``V`` has ``p``
beside columns of the identity, as ``Z`` is ``V Z V'`` and ``t`` times a projector.

A vertex whose neighbors are a clique, none of them heavier, dominates all of them, and is then apart. Of
trees one vertex is left. Of points in a square with edges between near ones, a third of the vertices and half
of the edges go.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.program.lowrank import LowRank, Matrix

__all__ = ["WithoutDominated"]

# Order from which an X of the whole graph is a factor.
_LARGEST_DENSE = 1_500


class WithoutDominated:
    """A graph without its dominated vertices, in which one vertex stands for all that are apart.

    Parameters
    ----------
    near : csr_array of shape (n, n)
        Its adjacency.
    w : array of shape (n,)
        Weights of the vertices, nonnegative, one above zero.

    Attributes
    ----------
    near : csr_array of shape (k, k)
    q : array of shape (k,)
        Roots of the weights.
    changed : bool
        Whether it is another graph.
    """

    def __init__(self, near: Any, w: Array) -> None:
        self._q = np.sqrt(w)
        self._dropped, closed = _dominated(near, w)
        gone = {v for v, _ in self._dropped}
        left = [v for v in range(len(w)) if v not in gone]
        apart = [v for v in left if len(closed[v]) == 1]
        self.changed = bool(gone) or len(apart) > 1
        rest = [v for v in left if len(closed[v]) > 1]
        k, weight = len(rest), float(w[apart].sum())
        single = [sp.csr_array((1, 1), dtype=bool)] if apart else []
        self.near = sp.block_diag([near[rest][:, rest], *single], format="csr")
        self.q = np.append(self._q[rest], [np.sqrt(weight)] * len(single))
        values = np.concatenate([np.ones(k), self._q[apart] / np.sqrt(weight or 1.0)])
        columns = np.concatenate([np.arange(k), np.full(len(apart), k)])
        self._V = sp.csr_array((values, ([*rest, *apart], columns)), (len(w), len(self.q)))

    def lifted(self, X: Matrix) -> Matrix:
        """Return the matrix of the whole graph."""
        V = self._V
        if not isinstance(X, LowRank) and V.shape[0] > _LARGEST_DENSE:
            theta, Q = np.linalg.eigh(X)
            X = LowRank(Q * np.sqrt(np.maximum(theta, 0.0)))
        return LowRank(V @ X.factor) if isinstance(X, LowRank) else V @ (V @ X).T

    def multipliers(self, M: sp.csr_array, t: float) -> sp.csr_array:
        """Return ``M`` of the whole graph, from a sparse one of this graph and its ``t``."""
        rows: list[dict[int, float]] = [{} for _ in self._q]
        for a, b, value in zip(*map(np.ndarray.tolist, sp.find(self._V @ M @ self._V.T)), strict=True):
            rows[a][b] = value
        for v, u in reversed(self._dropped):
            s = self._q[v] / self._q[u]
            rows[v] = {j: s * value for j, value in rows[u].items()} | {u: s * t}
            for j, value in rows[v].items():
                rows[j][v] = value
        return _as_sparse(rows)


# Pays on: theta of 300 points in a square.
def _dominated(near: Any, w: Array) -> tuple[list[tuple[int, int]], list[set[int]]]:
    """Return dominated vertices, each with one that dominates it, and closed neighborhoods of the others."""
    closed = [{v, *near.indices[near.indptr[v] : near.indptr[v + 1]].tolist()} for v in range(len(w))]
    heaviest, weights, dropped = int(np.argmax(w)), w.tolist(), []
    queue = sorted(range(len(w)), key=lambda v: -len(closed[v]))
    waiting = set(queue)

    def drop(v: int, u: int) -> None:
        dropped.append((v, u))
        for j in closed[v] - {v}:
            closed[j].remove(v)
            if j not in waiting:
                waiting.add(j)
                queue.append(j)
        closed[v] = set()

    for v in np.flatnonzero(w == 0).tolist():
        drop(v, heaviest)
    while queue:
        u = queue.pop()
        waiting.discard(u)
        own = closed[u]
        for v in sorted(own - {u}):
            if weights[v] <= weights[u] and own <= closed[v]:
                drop(v, u)  # it leaves `own`, too
    return dropped, closed


def _as_sparse(rows: list[dict[int, float]]) -> sp.csr_array:
    """Return the matrix of rows that map columns to entries."""
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.array([j for row in rows for j in row], dtype=np.intp)
    values = np.array([value for row in rows for value in row.values()], dtype=float)
    return sp.csr_array((values, columns, ends), (len(rows), len(rows)))
