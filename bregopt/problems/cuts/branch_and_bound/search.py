"""Branch and bound: best first, in waves of nodes that any executor may bound, with the same answer.

A node whose proven bound is below the target is a leaf. Any other one has two children, with a pair of its
groups on one side and on two. They begin with its rows and multipliers, and so at its bound. At any time
leaves and open nodes together cover all cuts, and the largest of their bounds holds for all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from bregopt.arrays import IntArray
from bregopt.clock import CutShort, remaining
from bregopt.executors import Crew
from bregopt.problems.cuts.branch_and_bound import clique_inequalities, odd_cycles, parts
from bregopt.problems.cuts.branch_and_bound.clique_inequalities import Outcome
from bregopt.problems.cuts.branch_and_bound.leaves import Cliques, Cycles, Form, Node, Triples

__all__ = ["Explored", "explored"]

_PATIENT = 8  # times as many rounds of small gain, where there are no children
_WAVE = 16  # nodes that are bounded at a time; the number of workers does not change it


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
                for outcome in crew.map(_bounded, items, form, target(side), branching):
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


def _bounded(node: Node, form: Form, target: float, branching: bool) -> Outcome:
    if isinstance(node.rows, Cycles):
        return odd_cycles.bounded(form, node, target)
    ahead = clique_inequalities.AHEAD * (1 if branching else _PATIENT)
    method = parts if isinstance(node.rows, Triples) else clique_inequalities
    return method.bounded(form, node, target, ahead)
