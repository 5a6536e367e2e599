"""The bound of a node of partitions in three parts or more: semidefinite, with rows of pairs and triples.

Rounds are those of :mod:`.clique_inequalities`. Branching puts two groups in one part or in two. A bound sees
of the sizes of the parts the sum of their squares only. Where few partitions are left, all are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.problems.cuts.branch_and_bound.clique_inequalities import (
    DROPPED,
    SLACK,
    Dual,
    Outcome,
    Work,
    unknown,
)
from bregopt.problems.cuts.branch_and_bound.leaves import Form, Node, Triples, labelings
from bregopt.problems.cuts.triangles import Rows
from bregopt.threads import threads_for

__all__ = ["bounded"]


def bounded(form: Form, node: Node, target: float, ahead: float) -> Outcome:
    """Bound the partitions of a node; see :func:`.clique_inequalities.bounded`."""
    with threads_for(form.n):
        return _Work(form, node, target, ahead).run()


class _Work(Work):
    """The rounds at one node."""

    steps = 100  # with 50 bounds of three parts stay 5 % lower

    def __init__(self, form: Form, node: Node, target: float, ahead: float) -> None:
        rows = node.rows
        assert isinstance(rows, Triples)
        group, _ = node.groups(form.n)
        self._every = labelings(form, node, group)
        apart = np.array([sorted((group[i], group[j])) for i, j, s in node.path if s < 0], dtype=np.intp)
        apart = np.unique(apart.reshape(-1, 2), axis=0)
        first = np.unique(group, return_index=True)[1]
        pairs = Rows(first[apart[:, [0, 1, 1]]], np.eye(1, 3, dtype=np.intp).repeat(len(apart), 0))
        node = node._replace(rows=_joined(rows, pairs))
        super().__init__(form, node, target, ahead)
        factor = 1 - 1 / len(form.sizes)
        self.constant = factor * float(form.weights.mid.sum())

    def _few(self) -> bool:
        return self._every is not None

    def _dual(self, rows: Any) -> Dual:
        factor = 2 * (1 - 1 / len(self.form.sizes))
        return Dual(factor * self.C, rows.matrix(self.group), rows.constants(self.form.sizes), self._seen)

    def _free(self) -> Mask | None:
        free: Mask = self.rows.apart(self.group, self.path)
        return free

    def _used(self, rows: Any, z: Array) -> Any:
        used = np.flatnonzero(z[1:])
        return Triples(rows.vertices[used], rows.signs[used], z[np.append(0, 1 + used)], rows.y)

    def _separate(self, with_larger: bool) -> Array:
        X, slack = self.dual.slacks()
        useful = self._free() | (self.rows.z > DROPPED) | (slack < SLACK)
        useful = np.flatnonzero(useful[1:])
        rows = Triples(
            self.rows.vertices[useful],
            self.rows.signs[useful],
            self.rows.z[np.append(0, 1 + useful)],
            self.rows.y,
        )
        new = Rows.violated(X, len(self.form.sizes))
        self.rows = _joined(rows, Rows(self.first[new.vertices], new.signs))
        self.dual = self._dual(self.rows)
        z: Array = self.rows.z
        return z

    def _pair(self, X: Array) -> tuple[int, int]:
        """Return the pair that is least decided."""
        k = len(self.form.sizes)
        share = (X + 1 / (k - 1)) * (k - 1) / k  # of one part
        doubt = np.abs(share - 0.5)
        doubt[np.tril_indices(self.m)] = np.inf
        for i, j, s in self.path:
            if s < 0:
                g, h = sorted((self.group[i], self.group[j]))
                doubt[g, h] = np.inf
        g, h = divmod(int(np.argmin(doubt)), self.m)
        return g, h

    def _side(self, X: Array | None) -> IntArray:
        """Return the best partition of few groups. Else none: a search finds better ones than roundings."""
        if self._every is None or not len(self._every):
            return np.zeros(self.form.n, dtype=np.intp)
        i, j = self.group[self.form.i], self.group[self.form.j]
        cut = (self._every[:, i] != self._every[:, j]) @ self.form.weights.mid
        side: IntArray = self._every[int(np.argmax(cut))][self.group]
        return side


def _joined(rows: Triples, new: Rows) -> Triples:
    """Return rows with new ones, of multiplier zero."""
    fresh = unknown(np.hstack([rows.vertices, rows.signs]), np.hstack(new))
    return Triples(
        np.concatenate([rows.vertices, new.vertices[fresh]]),
        np.concatenate([rows.signs, new.signs[fresh]]),
        np.append(rows.z, np.zeros(len(fresh))),
        rows.y,
    )
