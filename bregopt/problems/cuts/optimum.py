"""The best cut of a graph, proven: reductions, a tree for each piece, and a certificate of all of them.

Each piece is bounded by the method that its density calls for. The order in which its nodes are bounded does
not depend on the executor, so neither does the answer. What the answer says of the best cut is what the check
of the certificate proves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from fractions import Fraction
from functools import partial
from heapq import heappop, heappush
from math import nextafter
from typing import Any, NamedTuple

import numpy as np

from bregopt import clock
from bregopt.arrays import Array, IntArray, Mask
from bregopt.clock import CutShort, Ending, remaining, threads_for
from bregopt.executors import Crew
from bregopt.problems.cuts.branch_and_bound import odd_cycles
from bregopt.problems.cuts.branch_and_bound.certificate import CutCertificate, Task
from bregopt.problems.cuts.branch_and_bound.clique_inequalities import (
    AHEAD,
    DROPPED,
    SLACK,
    Dual,
    Outcome,
    Work,
    unknown,
)
from bregopt.problems.cuts.branch_and_bound.leaves import (
    ENUMERATED,
    Cliques,
    Cycles,
    Form,
    Node,
    Triples,
    labelings,
)
from bregopt.problems.cuts.branch_and_bound.reduction import Piece, Reduction
from bregopt.problems.cuts.proof import Lattice, Settled, status_of, unrelaxed
from bregopt.problems.cuts.triangles import Rows
from bregopt.records import replace
from bregopt.routes.progress import Step, digits_bar
from bregopt.routes.solution import Solution

_SPARSE = 3.0  # edges of a vertex up to which odd cycles give the bound
_LARGEST_DENSE = 500  # vertices of a piece up to which its matrices are decomposed some hundred times
_PATIENT = 8  # times as many rounds of small gain, where there are no children
_WAVE = 16  # nodes that are bounded at a time; the number of workers does not change it
_TOL = 1e-6  # of weights without a unit: relative distance of bound and cut at which a node is a leaf
_ROOT = "More rounds of rows would hardly bring the bound nearer to the cut; exact=True goes on by branching."
_ALL_LEAVES = "Every node of the tree is a leaf: no cut of it is better."
_STOPPED = {
    Ending.TIME: "time_limit",
    Ending.INTERRUPT: "interrupted",
    Ending.REQUEST: "callback asked for the end",
}


class Optimum(NamedTuple):
    """A cut and what is proven of it.

    Parameters
    ----------
    certificate : CutCertificate
        With the partition.
    nodes, open : int
        Nodes of all trees that were bounded, and those that are no leaves yet.
    plan : tuple of str
        What was done, and why.
    stopped : str
        Why the work ended before all nodes were leaves; empty where it did not.
    history : dict from str to array
    """

    certificate: CutCertificate
    nodes: int
    open: int
    plan: tuple[str, ...]
    stopped: str
    history: dict[str, Any]

    def answer(self, settled: Settled, cut: float) -> Solution:
        """Return the answer in place of that to a relaxation, given what is settled, and the cut."""
        bound, closed = settled.bound, settled.optimal or not self.open
        return replace(
            unrelaxed(bound),
            status=status_of(closed).value,
            stop_reason=self.stopped or (_ALL_LEAVES if closed else _ROOT),
            value=cut,
            gap=abs(bound - cut) / max(abs(bound), abs(cut)) if bound != cut else 0.0,
            iterations=self.nodes,
            solver="branch and bound",
            history=self.history,
        )


class _Watch:
    """What is known of the whole graph while its pieces are solved; the bound only improves."""

    def __init__(
        self,
        task: Task,
        reduction: Reduction,
        sides: list[IntArray],
        side: IntArray,
        bar: Any,
        options: Mapping[str, Any],
    ) -> None:
        self._task, self._reduction, self._sides, self._side, self._bar = task, reduction, sides, side, bar
        self._callback, self._verbose = options.get("callback"), bool(options.get("verbose"))
        self._begin = time.perf_counter()
        self._bounds = [
            float(sum((w for w in piece.weights if w > 0), Fraction(0))) for piece in reduction.pieces
        ]
        self.bound = np.inf if task.largest else 0.0
        self.nodes = self.left = 0
        self._records: list[tuple[float, float, float, float]] = []

    def keep(self, k: int, exponent: int, found: Explored) -> None:
        """Keep the cut and the bound of a piece, and count its nodes."""
        self._sides[k] = found.side
        self._bounds[k] = found.bound * 2.0**exponent
        self.nodes, self.left = self.nodes + found.nodes, self.left + found.open

    def whole(self) -> IntArray:
        """Return the cut of the whole graph from those of its pieces, or the given one if that is better."""
        if not self._task.largest:
            return _original(self._task, self._sides[0])
        signs = self._reduction.lifted(self._sides)
        found = np.array([signs[v] for v in range(self._task.n)], dtype=np.intp)
        return found if self._task.weight(found) >= self._task.weight(self._side) else self._side

    def searched(self, k: int, search: Callable[[], IntArray]) -> IntArray:
        """Return the part in piece `k` of the cut that a search finds, for the whole graph."""
        found = search()
        if self._task.weight(found) > self._task.weight(self._side):
            self._side = found
        return self._task.sides(found, self._reduction.pieces)[k]

    def show(self, k: int, exponent: int, found: Explored) -> None:
        """Show the state of piece `k`, and end the work where the callback asks for it."""
        self._sides[k] = found.side
        own = found.bound * 2.0**exponent
        bound = float(self._reduction.total) + sum(self._bounds[:k]) + own + sum(self._bounds[k + 1 :])
        self.bound = min(self.bound, bound) if self._task.largest else max(self.bound, -bound)
        cut, seconds = float(self._task.weight(self.whole())), time.perf_counter() - self._begin
        nodes, left = self.nodes + found.nodes, self.left + found.open
        size = max(abs(cut), abs(self.bound))
        gap = abs(self.bound - cut) / size if size else 0.0
        self._records.append((seconds, nodes, cut, self.bound))
        if self._verbose:
            tree = f"{nodes} nodes, {left} open"
            sys.stdout.write(f"{seconds:9.2f} s  {tree}  cut {cut:.8g}  bound {self.bound:.8g}\n")
        step = Step(nodes, cut, self.bound, gap, 0.0, 0.0, seconds)
        if self._bar is not None:
            self._bar(step)
        if self._callback is not None and self._callback(step):
            clock.end()

    def history(self) -> dict[str, Any]:
        """Return one array for each recorded quantity."""
        names = ("seconds", "nodes", "value", "bound")
        columns = np.array(self._records).reshape(-1, len(names)).T
        return dict(zip(names, columns, strict=True))


def best_cut(
    task: Task,
    side: IntArray,
    searched: Callable[[], IntArray],
    options: Mapping[str, Any],
    executor: Executor | None,
    branching: bool = True,
) -> Optimum:
    """Return the best cut, proven, or what time allows of it.

    Parameters
    ----------
    task : Task
    side : int array of shape (n,)
        A cut with sides of the sizes asked for.
    searched : function
        Returns a good one. Roots of sparse pieces round to good cuts themselves, and often prove them.
    options : dict
        ``tol``, ``progress``, ``verbose`` and ``callback``.
    executor : Executor or None
    branching : bool
        Without it the tree of each piece has its root only.
    """
    reduction = task.reduction()
    pieces, lattice = reduction.pieces, Lattice.of(task.weights)
    if task.sizes or not all(map(_is_sparse, pieces)):
        side = searched()
    sides = task.sides(side, pieces)
    room = _room(task, lattice, side, len(pieces), float(options.get("tol", _TOL)))
    plan = [_reductions(task, reduction.left_out, pieces)]
    trees: list[tuple[Node, ...]] = []
    with digits_bar("cut", _TOL, bool(options.get("progress"))) as bar, clock.stoppable():
        watch = _Watch(task, reduction, sides, side, bar, options)
        for k, piece in enumerate(pieces):
            form, linear = Form.of(piece, task.sizes), not task.sizes and _is_sparse(piece)
            plan.append(_method(form, linear))
            found = explored(
                form,
                sides[k],
                linear,
                partial(_target, piece, form, room),
                partial(_is_better, task, piece),
                partial(watch.show, k, form.exponent),
                partial(watch.searched, k, searched),
                executor,
                branching,
            )
            watch.keep(k, form.exponent, found)
            trees.append(tuple(found.leaves))
        stopped = _STOPPED[clock.ending()] if watch.left and clock.remaining() <= 0 else ""
    certificate = CutCertificate(task, watch.whole(), tuple(trees)).stated()
    return Optimum(certificate, watch.nodes, watch.left, tuple(plan), stopped, watch.history())


def _room(task: Task, lattice: Lattice, side: IntArray, pieces: int, tol: float) -> Fraction:
    """Return what the bound of a piece may exceed its best cut by."""
    if lattice.unit and not lattice.distance:
        return lattice.unit
    if lattice.unit:
        return (lattice.unit - 4 * lattice.distance) / max(pieces, 1)
    return Fraction(tol) * abs(task.weight(side)) / max(pieces, 1)


def _target(piece: Piece, form: Form, room: Fraction, side: IntArray) -> float:
    """Return the bound that closes a node, given a cut of the piece."""
    exact = (piece.cut(side) + room) * Fraction(2) ** -form.exponent
    return nextafter(nextafter(float(exact), -np.inf), -np.inf)


def _is_better(task: Task, piece: Piece, side: IntArray, than: IntArray) -> bool:
    """Whether a cut of a piece is allowed and better than another."""
    return task.allows(_original(task, side)) and piece.cut(side) > piece.cut(than)


def _original(task: Task, side: IntArray) -> IntArray:
    """Return the cut of the graph itself, without the vertex that a balanced cut of other sizes adds."""
    return side if task.largest or len(side) == task.n else side[: task.n] * side[task.n]


def _is_sparse(piece: Piece) -> bool:
    return len(piece.i) <= _SPARSE * piece.n or piece.n > _LARGEST_DENSE


def _reductions(task: Task, left_out: int, pieces: list[Piece]) -> str:
    if task.sizes:
        return f"{len(task.sizes)} parts of given sizes: no reductions"
    if not task.largest:
        return "sizes of the sides: an exact penalty makes the cut a largest cut of a complete graph"
    return (
        f"reductions: {left_out} of {task.n} vertices with at most 3 neighbors are left out; "
        f"what is left has {len(pieces)} {'block' if len(pieces) == 1 else 'blocks'}"
    )


def _method(piece: Form, linear: bool) -> str:
    size = f"{piece.n} vertices, {len(piece.i)} edges"
    if piece.sizes:
        return f"{size}: semidefinite bounds with rows of pairs and triples, two groups in one part or in two"
    if piece.n <= ENUMERATED:
        return f"{size}: all cuts are compared, as it has at most {ENUMERATED} vertices"
    if not linear:
        return (
            f"{size}: semidefinite bounds with clique inequalities, as it has over {_SPARSE:g} edges a vertex"
        )
    if len(piece.i) <= _SPARSE * piece.n:
        return f"{size}: linear bounds with odd cycles, as it has at most {_SPARSE:g} edges a vertex"
    return f"{size}: linear bounds with odd cycles, as it has over {_LARGEST_DENSE} vertices"


# --- The tree ----------------------------------------------------------------------------------------------
#
# Branch and bound is best first, in waves of nodes that any executor may bound. A node whose proven bound is
# below the target is a leaf. Any other one has two children, with a pair of its groups on one side and on
# two. They begin with its rows and multipliers, and so at its bound. At any time leaves and open nodes
# together cover all cuts, and the largest of their bounds holds for all.


class Explored(NamedTuple):
    """A tree, perhaps with open nodes.

    Parameters
    ----------
    leaves : list of Node
        They cover all cuts.
    bound : float
        On all cuts, in the units of the form.
    side : int array of shape (n,)
        The best cut that was seen.
    nodes, open : int
        How many were bounded, and how many are no leaves yet.
    """

    leaves: list[Node]
    bound: float
    side: IntArray
    nodes: int
    open: int


class _Open(NamedTuple):
    """An open node; a heap has the largest bound first, then the oldest."""

    negative_bound: float
    number: int
    node: Node


def explored(
    form: Form,
    side: IntArray,
    linear: bool,
    target: Callable[[IntArray], float],
    better: Callable[[IntArray, IntArray], bool],
    watch: Callable[[Explored], None],
    searched: Callable[[], IntArray],
    executor: Executor | None = None,
    branching: bool = True,
) -> Explored:
    """Return a tree that proves the target, or as much of it as time allows.

    Parameters
    ----------
    form : Form
    side : int array of shape (n,)
        A cut.
    linear : bool
        Whether bounds are those of odd cycles, not of cliques.
    target : function of a cut
        The bound below which a node is a leaf, given the best cut.
    better : function of two cuts
        Whether the first is allowed and better than the second.
    watch : function
        Called after each wave; it may call :func:`bregopt.clock.end`.
    searched : function
        Returns a better cut with some effort. It is called where the root is no leaf.
    executor : Executor, optional
    branching : bool
        Without it rows are added to the root for longer, and it has no children.
    """
    dense = Triples if form.sizes else Cliques
    root = Node((), Cycles.none() if linear else dense.none(form.n))
    heap = [_Open(-np.inf, 0, root)]
    leaves: list[tuple[float, Node]] = []
    nodes, crew = 0, Crew(executor)

    def state() -> Explored:
        bounds = [bound for bound, _ in leaves] + [-own.negative_bound for own in heap]
        cover = [node for _, node in leaves] + [own.node for own in heap]
        return Explored(cover, max(bounds), side, nodes, len(heap))

    try:
        while heap and remaining() > 0:
            wave = [heappop(heap) for _ in range(min(_WAVE, len(heap)))]
            done = 0
            try:
                items = [own.node for own in wave]
                for outcome in crew.map(bounded, items, form, target(side), branching):
                    parent, done, nodes = wave[done], done + 1, nodes + 1
                    if better(outcome.side, side):
                        side = outcome.side
                    if nodes == 1 and outcome.bound >= target(side):
                        candidate = searched()
                        side = candidate if better(candidate, side) else side
                    if outcome.pair is None or outcome.bound < target(side):
                        leaves.append((outcome.bound, outcome.node))
                        continue
                    bound, rows = outcome.bound, outcome.node.rows
                    if not branching:
                        heappush(heap, _Open(-bound, 1, outcome.node))
                        watch(state())
                        return state()
                    if bound > -parent.negative_bound:  # by round-off, or as time was over
                        bound, rows = -parent.negative_bound, parent.node.rows
                    for k, sign in enumerate((1, -1)):
                        path = (*parent.node.path, (*outcome.pair, sign))
                        heappush(heap, _Open(-bound, 2 * nodes + k, Node(path, rows)))
            except CutShort:
                pass
            for own in wave[done:]:
                heappush(heap, own)
            watch(state())
    finally:
        crew.close()
    return state()


def bounded(node: Node, form: Form, target: float, branching: bool = True) -> Outcome:
    """Bound the cuts of a node, until the bound is below the target or further rounds gain too little."""
    if isinstance(node.rows, Cycles):
        return odd_cycles.Work(form, node, target).run()
    ahead = AHEAD * (1 if branching else _PATIENT)
    work = _PartWork if isinstance(node.rows, Triples) else Work
    with threads_for(form.n):
        return work(form, node, target, ahead).run()


# --- Three parts or more -----------------------------------------------------------------------------------


class _PartWork(Work):
    """The rounds at a node of partitions in three parts or more, with rows of pairs and triples.

    Branching puts two groups in one part or in two. A bound sees of the sizes of the parts the sum of their
    squares only. Where few partitions are left, all are compared.
    """

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
