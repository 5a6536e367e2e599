"""The bound of a node of a sparse graph: a linear program with odd cycles (Barahona, Mahjoub 1986).

The variable of a pair of adjacent groups is 1 where the pair is on two sides. The program has only rows that
were once violated. They are separated by shortest paths on the double cover of the graph, whose vertices are
the groups on either side: an edge of ``F`` changes the copy, of length ``1 - x``, and any other keeps it, of
length ``x``. A path from a group to its other copy is a closed walk with an odd ``F``, and its row is
violated where the path is shorter than 1.

HiGHS's multipliers prove a bound whatever its tolerances: :func:`.leaves.cut_bound`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, dijkstra, minimum_spanning_tree

from bregopt.arrays import Array, IntArray, Mask
from bregopt.clock import CutShort, checkpoint
from bregopt.problems.cuts.branch_and_bound.clique_inequalities import Outcome, enumerated_side
from bregopt.problems.cuts.branch_and_bound.leaves import ENUMERATED, Cycles, Form, Node, cut_bound
from bregopt.problems.cuts.coarsening import refined
from bregopt.routes.linear_program import LinearProgram

_VIOLATED = 1e-4
_ROWS = 100  # from which on a round seeks no more
_SOURCES = 32  # groups whose paths are sought at a time
_NO_ZERO = 1e-12  # added to lengths: an edge of length zero would be none
_SLACK = 1e-3  # beyond which a row without multiplier is dropped, once there are many
_INTEGRAL = 1e-6  # distance from 0 or 1 of variables that are decided
_GAIN, _PATIENCE = 1e-7, 20  # relative gain of so many rounds, below which a node branches
_SLICE = 0.5  # seconds of HiGHS between looks at the clock


class Work:
    """Rounds of rows on the linear program of one node."""

    def __init__(self, form: Form, node: Node, target: float) -> None:
        assert isinstance(node.rows, Cycles)
        self.form, self.node, self.target = form, node, target
        self.group, self.sign = node.groups(form.n)
        self.m = int(self.group.max()) + 1
        self.first = np.unique(self.group, return_index=True)[1]
        self.A, self.constant, (self.g, self.h) = form.fold(node)
        self.rows, self.proven = node.rows, node.rows
        self.best = np.inf
        self.x = np.full(len(self.g), 0.5)
        self.place = self.g * self.m + self.h  # ascending
        at = self.A.tocoo()
        self.edge = np.zeros(len(self.g), dtype=np.intp)
        self.edge[at.col[::-1]] = at.row[::-1]
        self.next = 0  # the group from which large graphs are separated next

    def run(self) -> Outcome:
        """Take rounds; return what they found."""
        if self.m <= ENUMERATED:
            side = enumerated_side(self.form, self.group, self.sign)
            return Outcome(self.node, cut_bound(self.form, self.node), None, side)
        self._keep(self.rows)
        with suppress(CutShort):
            self._rounds()
        return Outcome(Node(self.node.path, self.proven), self.best, self._pair(), self._side())

    def _rounds(self) -> None:
        model = Model(self.A.T @ self.form.weights.mid)
        model.add(*self._on_pairs(self.rows))
        history: list[float] = []
        while True:
            checkpoint()
            self.x, z = model.solve()
            self._keep(self.rows._replace(z=np.maximum(z, 0.0)))
            history.append(self.best)
            past = history[-_PATIENCE] if len(history) >= _PATIENCE else np.inf
            if self.best < self.target or past - history[-1] < _GAIN * abs(self.best):
                return
            new = self._separate()
            if not len(new.z):
                return
            R, ends = self._on_pairs(self.rows)
            if R.shape[0] > 4 * len(self.x):
                idle = (z <= 0) & (ends - R @ self.x > _SLACK)
                model.drop_rows(np.flatnonzero(idle))
                self.rows = self.rows.taken(np.flatnonzero(~idle))
            model.add(*self._on_pairs(new))
            start = np.concatenate([self.rows.start, self.rows.start[-1] + new.start[1:]])
            self.rows = Cycles(
                start, *(np.concatenate(part) for part in zip(self.rows[1:], new[1:], strict=True))
            )

    def _keep(self, rows: Cycles) -> None:
        """Keep multipliers that prove a better bound."""
        used = rows.taken(np.flatnonzero(rows.z > 0))
        bound = cut_bound(self.form, Node(self.node.path, used))
        if bound < self.best:
            self.best, self.proven = bound, used

    def _on_pairs(self, rows: Cycles) -> tuple[Any, Array]:
        """Return rows on the variables of pairs, and their right sides."""
        R = rows.matrix(len(self.form.i))
        return sp.csr_array(R @ self.A), rows.constants - R @ self.constant

    def _separate(self) -> Cycles:
        """Return violated rows, from groups in turn that are on no walk of the round yet."""
        m, x = self.m, np.clip(self.x, 0.0, 1.0)
        same, other = x + _NO_ZERO, 1 - x + _NO_ZERO
        tail = np.concatenate([self.g, self.g + m, self.g, self.g + m])
        head = np.concatenate([self.h, self.h + m, self.h + m, self.h])
        length = np.concatenate([same, same, other, other])
        cover = _graph(sp.csr_array((length, (tail, head)), (2 * m, 2 * m)))
        found: dict[bytes, tuple[IntArray, Mask, Mask]] = {}
        free = np.ones(m, dtype=bool)
        for first in range(0, m, _SOURCES):
            turn = (self.next + np.arange(first, min(first + _SOURCES, m))) % m
            sources = turn[free[turn]]
            if not len(sources):
                continue
            distance, before = dijkstra(
                cover, directed=False, indices=sources, return_predecessors=True, limit=1 - _VIOLATED
            )
            for k in np.flatnonzero(np.isfinite(distance[np.arange(len(sources)), sources + m])):
                walk = [int(sources[k]) + m]
                while walk[-1] != sources[k]:
                    walk.append(int(before[k, walk[-1]]))
                steps = np.array(_shortest_odd(walk[::-1], m))
                free[steps[:, 0] % m] = False
                self._add(found, steps)
            if len(found) >= _ROWS:
                self.next = int(turn[-1]) + 1
                break
        walks = list(found.values())
        if not walks:
            return Cycles.none()
        start = np.cumsum([0, *(len(edge) for edge, _, _ in walks)])
        edge, back, odd = (np.concatenate(part) for part in zip(*walks, strict=True))
        return Cycles(start.astype(np.intp), edge.astype(np.intp), back, odd, np.zeros(len(walks)))

    def _add(self, found: dict[bytes, tuple[IntArray, Mask, Mask]], steps: IntArray) -> None:
        """Add the row of a closed walk on the double cover, with the first edge of each of its pairs."""
        m, (a, b) = self.m, steps.T
        low, high = np.minimum(a % m, b % m), np.maximum(a % m, b % m)
        pair = np.searchsorted(self.place, low * m + high)
        crosses = (a >= m) != (b >= m)
        edge = self.edge[pair]
        back = self.group[self.form.i[edge]] != a % m
        # F is for a change of copies, of the groups. The edge is turned where their signs are.
        odd = crosses ^ (self.constant[edge] > 0)
        found.setdefault(np.sort(2 * pair + crosses).tobytes(), (edge, back, odd))

    def _pair(self) -> tuple[int, int] | None:
        """Return an undecided pair of groups with a large weight."""
        weight = np.abs(self.A.T @ self.form.weights.mid)
        k = int(np.argmax(np.minimum(self.x, 1 - self.x) * (weight + 1e-3 * weight.max(initial=0.0))))
        return int(self.first[self.g[k]]), int(self.first[self.h[k]])

    def _side(self) -> IntArray:
        """Return the cut of a spanning tree of the most decided pairs, improved by single moves."""
        doubt = _INTEGRAL + np.minimum(self.x, 1 - self.x)
        tree = minimum_spanning_tree(_graph(sp.csr_array((doubt, (self.g, self.h)), (self.m, self.m))))
        whole = _graph(sp.csr_array(tree + tree.T))
        u = np.ones(self.m, dtype=np.intp)
        order, parent = breadth_first_order(whole, 0, directed=False)
        for v in order[1:].tolist():  # a piece is connected
            low, high = sorted((v, int(parent[v])))
            decided = self.x[np.searchsorted(self.place, low * self.m + high)] > 0.5
            u[v] = -u[parent[v]] if decided else u[parent[v]]
        return refined(self.form.signs, u[self.group] * self.sign)


def _shortest_odd(walk: list[int], m: int) -> list[tuple[int, int]]:
    """Return the steps of the shortest closed part of a walk that meets both copies of a group."""
    last: dict[int, int] = {}
    start, end = 0, len(walk) - 1
    for k, v in enumerate(walk):
        other = last.get((v + m) % (2 * m))
        if other is not None and k - other < end - start:
            start, end = other, k
        last[v] = k
    return [(walk[k], walk[k + 1]) for k in range(start, end)]


class Model(LinearProgram):
    """The linear program: maximize the cut, with variables between 0 and 1."""

    def __init__(self, weights: Array) -> None:
        super().__init__()
        size = len(weights)
        self.add_columns(-weights, np.zeros(size), np.ones(size), sp.csr_array((size, 0)))

    def add(self, R: Any, ends: Array) -> None:
        """Add rows ``R x <= ends``."""
        self.add_rows(R, np.full(len(ends), -np.inf), ends)

    def solve(self) -> tuple[Array, Array]:
        """Return the variables and the multipliers of the rows, at least zero."""
        self.run(_SLICE)
        x, z = self.solution()
        return x, -z


def _graph(A: Any) -> Any:
    """Return a matrix with indices of 32 bits, which graph functions of SciPy 1.13 ask for."""
    return sp.csr_array((A.data, A.indices.astype(np.int32), A.indptr.astype(np.int32)), A.shape)
