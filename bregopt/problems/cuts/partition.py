"""Partitions of graphs in k parts of given sizes, with bounds by semidefinite relaxation.

Let ``X_ij`` be 1 if ``i`` and ``j`` share a part and ``-1/(k-1)`` if not. ``X`` is psd with unit diagonal,
and ``(k-1)/(2k) <L, X>`` is the weight of the edges between parts (Frieze and Jerrum 1997). The sizes ``m_p``
fix ``e'Xe = (k sum m_p^2 - n^2) / (k-1)``.

A good partition is found by recursive bisection, relaxed parts, and refinement of pairs. The vectors of a
relaxation are rounded to parts of given sizes by k-means with capacities.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import field
from functools import cache
from itertools import combinations
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import Array, IntArray
from bregopt.io.graphs import Graph, GraphLike, read_graph
from bregopt.modeling.atoms import diag, inner, quad_form
from bregopt.modeling.convex.expression import Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.cuts.answer import (
    PartedGraph,
    check_bound,
    check_exact,
    generator,
    number_of_parts,
    part_sizes,
)
from bregopt.problems.cuts.branch_and_bound.certificate import Task
from bregopt.problems.cuts.coarsening import SignGraph, cycle
from bregopt.problems.cuts.cut import proven_cut
from bregopt.problems.cuts.optimum import best_cut
from bregopt.problems.cuts.proof import Proof, Settled, partitions, principal, relaxed, unrelaxed
from bregopt.problems.cuts.search import assigned, divided
from bregopt.problems.cuts.triangles import LARGEST_ORDER, tightened
from bregopt.program.rows.base import Matrix
from bregopt.records import dataclass, field_names, replace
from bregopt.routes.base import Seed
from bregopt.routes.progress import items_bar
from bregopt.routes.registry import CutOptions, time_limit
from bregopt.routes.solution import Solution

# Shares of the time limit: of the search before the relaxation, and of both; the rest is for its rounding.
_SEARCHED, _RELAXED = 0.5, 0.9
# Rounds that divide all of the graph, by recursive bisection, and their largest share of all rounds.
_STARTS, _STARTS_SHARE = 6, 0.25
# Edge ends in all rounds, for each pair of parts that a vertex is in: so many, and more for few rounds. One
# round cuts graphs of 1,000 vertices in 8 parts with no more weight than KaHIP's eco and strong modes.
_EDGES, _EDGES_FEW, _FEW_ROUNDS = 250_000, 500_000, 3
_MOST_ROUNDS = 66
_SWEEPS = 10  # over all pairs of parts
_MERGED = (2, 3)  # parts that rounds divide anew, in turn
_CLUSTERED, _REFINED = 10, 3  # roundings of a relaxation, and the number of the best to refine
_STEPS = 5  # of k-means
_TOGETHER = 8  # most equal parts that a search without rounds finds at once, in half the time or less


@dataclass(frozen=True, eq=False, repr=False)
class Partition(PartedGraph):
    """Parts of a graph: `cut` is the weight between them, and no allowed partition has less than `bound`.

    The attributes of :class:`~bregopt.Solution` are those of the relaxation, in units of a cut.

    Attributes
    ----------
    parts : tuple of k lists
        The vertices of each part, by their names in the graph.
    assignments : dict
        The number of its part for each vertex by its name.
    labels : int array of shape (n,)
        The same in the order of the graph; for edges in the order of sorted names.
    cut : float
        Weight of the edges between parts.
    bound : float
        Proven: no partition in parts of these sizes has less weight between parts. All rounding errors are
        counted. Beyond 500 vertices, where it does not prove the cut, it is that of a certificate in floating
        point, less a billionth of all weights.
    optimal : bool
        Whether it is proven that no partition is better. Weights that are multiples of a unit give such cuts,
        and a bound with all rounding errors is below the next multiple; weights count as multiples if they
        are to within their rounding. All partitions of a small graph are enumerated where the bound does not
        decide, and compared exactly.
    graph : Graph
        Its `adjacency`, a csr_array, and `nodes`, the names of the vertices in the order of `labels`.
    """

    labels: IntArray = field(kw_only=True)
    parts: tuple[list[Hashable], ...] = field(kw_only=True)

    @property
    def _numbers(self) -> IntArray:
        return self.labels

    @property
    def _sentence(self) -> str:
        sizes = ", ".join(str(len(part)) for part in self.parts)
        return f"cut of weight {self.cut:g} into {len(self.parts)} parts of {sizes} vertices, {self._verdict}"


def partition(
    graph: GraphLike,
    k: int,
    sizes: Sequence[int] | None = None,
    *,
    weights: str | ArrayLike | None = None,
    bound: Literal["auto", "sdp", "triangles", False] = "auto",
    exact: bool = False,
    executor: Executor | None = None,
    seed: Seed | None = 0,
    **options: Unpack[CutOptions],
) -> Partition:
    """Return `k` parts of a graph with small weight between them, and a lower bound on all such partitions.

    Parameters
    ----------
    graph, weights, seed, **options
        As for :func:`min_balanced_cut`.
    k : int
        The number of parts, from 2 to the number of vertices.
    sizes : sequence of k ints, optional
        The numbers of vertices of the parts. By default they differ by one at most.
    bound : {"auto", "sdp", "triangles", False}
        The source of the bound. "auto" compares all partitions of a small graph (14 vertices in 3 equal
        parts) unless `solver` is given, and is "sdp" for others. "triangles" generates rows that all
        partitions satisfy, for a sharper relaxation of graphs of up to 500 vertices. False solves none;
        `bound` of the answer is 0 then.
    exact : bool
        Prove that the parts are best, by branch and bound as in :func:`min_balanced_cut`; three parts or
        more of a small graph by comparing all. Three parts or more take at most 500 vertices: seconds for
        some 30, and longer for more parts.
    executor : concurrent.futures.Executor, optional
        Bounds nodes of the tree, with the same answer; for ``exact=True`` only.

    Returns
    -------
    Partition

    Raises
    ------
    TypeError, ValueError
        If the graph is directed, has negative weights or fewer than two vertices, if `k` or `sizes` do not
        fit it, or an option is unknown.

    Warns
    -----
    ConvergenceWarning
        If the relaxation's certificate does not meet `tol`; the bound is still proven.

    References
    ----------
    Frieze, Jerrum (1997), Improved approximation algorithms for MAX k-CUT and MAX BISECTION, Algorithmica 18.
    """
    if "imbalance" in options:
        raise TypeError(
            "partition has no option 'imbalance': give sizes=, the number of vertices of each part"
        )
    start = time.perf_counter()
    rng = generator(partition, seed, options)
    with clock.limited(time_limit(options)):
        parsed = read_graph(graph, weights)
        check_bound(bound, parsed.n)
        check_exact(exact, executor)
        number_of_parts(k, parsed.n)
        wanted = part_sizes(sizes, k, parsed.n)
        every = partitions([wanted]) if bound or exact else None
        if exact and (k == 2 or every is None):
            if k > 2 and parsed.n > LARGEST_ORDER:
                raise ValueError(
                    f"exact is True for {k} parts of {parsed.n} vertices; expected at most {LARGEST_ORDER}: "
                    "leave it out, for a bound by relaxation"
                )
            own = _two_parts if k == 2 else _proven
            return own(parsed, wanted, rng, options, executor).timed(start)
        if exact:
            bound = "auto"
        proof = Proof(parsed, largest=False)
        if every is not None and bound == "auto" and "solver" not in options:
            found = proof.compared(every)
            answer = unrelaxed(proof.weight(found.part), len(every))
        else:
            answer, found = _found(parsed, wanted, proof, every, bound, rng, options)
    return _partition(parsed, wanted, answer, found, proof.weight(found.part)).timed(start)


def _two_parts(
    graph: Graph,
    sizes: list[int],
    rng: np.random.Generator,
    options: Mapping[str, Any],
    executor: Executor | None,
) -> Partition:
    """Return the best two parts by branch and bound."""
    cut = proven_cut(
        graph, _signs(graph.adjacency, sizes[0], sizes[0]), abs(sizes[0] - sizes[1]), rng, options, executor
    )
    found = Settled((1 - cut.partition) // 2, cut.bound, cut.optimal)
    return replace(
        _partition(graph, sizes, cut, found, cut.cut),
        certificate=cut.certificate,
        nodes=cut.nodes,
        open=cut.open,
        _plan=cut._plan,
    )


def _proven(
    graph: Graph,
    sizes: list[int],
    rng: np.random.Generator,
    options: Mapping[str, Any],
    executor: Executor | None,
) -> Partition:
    """Return the best parts, three or more, by branch and bound."""
    proof = Proof(graph, largest=False)
    search = PartSearch(graph.adjacency, sizes, rng, proof.suggests, options)

    def searched() -> IntArray:
        with clock.reserving((1 - _SEARCHED) * (time_limit(options) or 0.0)):
            search.run()
        return search.best

    task = Task.of(graph, sizes=tuple(sizes))
    found = best_cut(task, search.best, cache(searched), options, executor)
    certificate = found.certificate
    settled = Settled(certificate.side, certificate.claim, certificate.optimal)
    cut = proof.weight(settled.part)
    return replace(
        _partition(graph, sizes, found.answer(settled, cut), settled, cut),
        certificate=certificate,
        nodes=found.nodes,
        open=found.open,
        _plan=found.plan,
    )


def _partition(graph: Graph, sizes: list[int], answer: Solution, found: Settled, cut: float) -> Partition:
    """Return the answer to a relaxation, if any, with parts and their bound."""
    labels = numbered(found.part, sizes)
    return Partition(
        **{name: getattr(answer, name) for name in field_names(Solution)},
        graph=graph,
        labels=labels,
        parts=tuple([graph.nodes[v] for v in np.flatnonzero(labels == p)] for p in range(len(sizes))),
        cut=cut,
        bound=min(found.bound, cut),
        optimal=found.optimal,
    )


def _found(
    graph: Graph,
    sizes: list[int],
    proof: Proof,
    every: IntArray | None,
    bound: str | bool,
    rng: np.random.Generator,
    options: Mapping[str, Any],
) -> tuple[Solution, Settled]:
    """Return the answer to a relaxation, if any, and the best partition of a search and of its roundings."""
    n, k = graph.n, len(sizes)
    limit = time_limit(options) or 0.0
    search = PartSearch(graph.adjacency, sizes, rng, proof.suggests, options)

    def best() -> IntArray:
        return search.best

    if every is not None:  # comparing all takes less time than a search
        search.take(proof.compared(every).part)
    else:
        with clock.reserving((1 - _SEARCHED) * limit if bound else 0.0):
            search.run()
    answer = unrelaxed(proof.bound)
    if bound:
        X = PSD(n, name="X")
        spread = (k * sum(size**2 for size in sizes) - n**2) / (k - 1)
        cost = inner((k - 1) / (2 * k) * graph.laplacian, X)
        rows = [diag(X) == 1, quad_form(np.ones(n), X) == spread]
        with clock.reserving((1 - _RELAXED) * limit):
            if bound == "triangles":
                answer = tightened(graph, k, (spread, spread), proof, best, options, search.round_matrix)
            else:
                answer = relaxed(Problem(Minimize(cost), rows), proof, best, options)
        if every is None:
            search.round_matrix(answer.X)
    return answer, proof.settled(search.best, every)


class PartSearch:
    """A search that keeps the best partition.

    Parameters
    ----------
    W : csr_array of shape (n, n)
        The weights of the edges, none below zero.
    sizes : list of int
    rng : numpy.random.Generator
    proven : function of a partition
        Whether none is better.
    options : dict
        ``progress`` shows a bar of the rounds; `rounds` is their number, 0 for bisections without refinement.
    """

    def __init__(
        self,
        W: Any,
        sizes: list[int],
        rng: np.random.Generator,
        proven: Callable[[IntArray], bool],
        options: Mapping[str, Any],
    ) -> None:
        self._W, self._sizes, self._rng, self._proven = W, sizes, rng, proven
        self._progress, self._asked = bool(options.get("progress")), options.get("rounds")
        self._edges = W.tocoo()
        self._part = np.repeat(np.arange(len(sizes)), sizes)
        self._kept = self._inside(self._part)

    @property
    def best(self) -> IntArray:
        """The number of its part for each vertex; the parts have the sizes in the order asked for."""
        return numbered(self._part, self._sizes)

    def take(self, part: IntArray) -> None:
        """Make a partition the best one."""
        self._part, self._kept = part, self._inside(part)

    def run(self) -> None:
        """Divide some parts of the best partition anew in each round, and refine what it gets."""
        if self._asked == 0:
            self.take(_bisected(self._W, self._sizes, self._rng, _TOGETHER))
        self._each("rounds", range(self._rounds), self._round)

    def round_matrix(self, X: Matrix | None) -> None:
        """Add roundings of the answer to the semidefinite program.

        A route that was cut short may have none.
        """
        if X is None or clock.remaining() <= 0 or self._proven(self.best):
            return
        F = principal(X)
        if not F.any():
            return
        found: list[IntArray] = []
        for _ in range(_CLUSTERED):
            if clock.remaining() <= 0:
                return
            found.append(clustered(F, self._sizes, self._rng))
        found.sort(key=self._inside, reverse=True)
        self._each("roundings", found[: min(_REFINED, self._rounds)], self._add)

    @property
    def _rounds(self) -> int:
        if self._asked is not None:
            return self._asked
        edges = max((len(self._sizes) - 1) * self._W.nnz, 1)
        few = min(_EDGES_FEW // edges, _FEW_ROUNDS)
        return min(max(_EDGES // edges, few, 1), _MOST_ROUNDS)

    def _each(self, name: str, items: Iterable[Any], step: Callable[[Any], None]) -> None:
        """Take the steps until time is up or the best partition is proven."""
        for number, item in enumerate(items_bar(items, name, self._progress)):
            if self._proven(self.best) or (number and clock.remaining() <= 0):
                return
            step(item)

    def _round(self, number: int) -> None:
        k = len(self._sizes)
        start = number < max(min(_STARTS, int(_STARTS_SHARE * self._rounds)), 1)
        merged = np.arange(k) if start else self._rng.permutation(k)[: _MERGED[number % len(_MERGED)]]
        self._add(_divided(self._W, self._part, merged, self._rng), merged)

    def _add(self, part: IntArray, changed: Iterable[int] | None = None) -> None:
        """Refine a partition, and keep it if it is as good as the best, so that equal ones take turns."""
        part = _refined(self._W, part, range(len(self._sizes)) if changed is None else changed, self._rng)
        kept = self._inside(part)
        if kept >= self._kept:
            self._part, self._kept = part, kept

    def _inside(self, part: IntArray) -> float:
        """Return twice the weight of the edges inside the parts."""
        edges = self._edges
        return float(edges.data[part[edges.row] == part[edges.col]].sum())


def numbered(part: IntArray, sizes: list[int]) -> IntArray:
    """Return a partition whose parts are numbered such that they have these sizes."""
    found = np.bincount(part, minlength=len(sizes))
    number = np.empty(len(sizes), dtype=np.intp)
    number[np.argsort(found, kind="stable")] = np.argsort(sizes, kind="stable")
    return number[part]


def _divided(W: Any, part: IntArray, merged: IntArray, rng: np.random.Generator) -> IntArray:
    """Return a partition with other parts in place of some of them."""
    vertices = np.flatnonzero(np.isin(part, merged))
    sizes = np.bincount(part, minlength=merged.max() + 1)[merged]
    part = part.copy()
    part[vertices] = merged[_bisected(_between(W, vertices), [int(size) for size in sizes], rng)]
    return part


def _bisected(W: Any, sizes: list[int], rng: np.random.Generator, together: int = 2) -> IntArray:
    """Return a partition by bisections of bisections, down to so many equal parts that are found together."""
    part = np.zeros(W.shape[0], dtype=np.intp)
    if 2 < len(sizes) <= together and max(sizes) - min(sizes) <= 1:
        return divided(W, sizes, rng)
    half = len(sizes) // 2
    first = sum(sizes[:half])
    side = cycle(_signs(W, first, first), [], rng, fast=together > 2)
    for sign, own, offset in ((1, sizes[:half], 0), (-1, sizes[half:], half)):
        vertices = np.flatnonzero(side == sign)
        part[vertices] = offset
        if len(own) > 1:
            part[vertices] += _bisected(_between(W, vertices), own, rng, together)
    return part


def _refined(W: Any, part: IntArray, changed: Iterable[int], rng: np.random.Generator) -> IntArray:
    """Return a partition that cycles in pairs of its parts do not improve, or the last one in time.

    Pairs without a part that changed are left as they are, and so are those without an edge between them.
    """
    part = part.copy()
    k = int(part.max()) + 1
    edges = W.tocoo()
    changed = set(changed)
    for _ in range(_SWEEPS):
        before, changed = changed, set()
        adjacent = np.zeros((k, k), dtype=bool)
        adjacent[part[edges.row], part[edges.col]] = True
        for p, q in combinations(range(k), 2):
            if clock.remaining() <= 0:
                return part
            near = adjacent[p, q] or {p, q} & changed
            if near and {p, q} & (before | changed) and _refine_pair(W, part, p, q, rng):
                changed |= {p, q}
        if not changed:
            break
    return part


def _refine_pair(W: Any, part: IntArray, p: int, q: int, rng: np.random.Generator) -> bool:
    """Improve two parts in place; return whether they changed. Their sizes may change places."""
    vertices = np.flatnonzero((part == p) | (part == q))
    side = np.where(part[vertices] == p, 1, -1)
    ends = sorted((int((side == 1).sum()), int((side == -1).sum())))
    least, most = ends if ends[1] - ends[0] == 1 else (int((side == 1).sum()),) * 2
    graph = _signs(_between(W, vertices), least, most)
    better = cycle(graph, [side], rng)
    if graph.value(better) <= graph.value(side) + graph.round_off:
        return False
    part[vertices] = np.where(better == 1, p, q)
    return True


def _signs(W: Any, least: int, most: int) -> SignGraph:
    return SignGraph(W, np.ones(W.shape[0], dtype=np.intp), least, most)


def _between(W: Any, vertices: IntArray) -> Any:
    """Return the weights between some of the vertices."""
    return W[vertices][:, vertices]


def clustered(F: Array, sizes: Sequence[int], rng: np.random.Generator) -> IntArray:
    """Return the part of each vertex, with similar vectors in one part.

    Parameters
    ----------
    F : array of shape (n, rank)
        The vectors of the vertices.
    sizes : sequence of int
    rng : numpy.random.Generator
        It draws the vertices whose vectors are the first centers.
    """
    seeds = _seeds(F, len(sizes), rng)
    wanted = np.bincount((F @ seeds.T).argmax(axis=1), minlength=len(sizes))
    centers = np.empty_like(seeds)
    centers[np.argsort(sizes)] = seeds[np.argsort(wanted)]  # the largest part where most vertices are near
    for _ in range(_STEPS):
        part = assigned(F @ centers.T, sizes)
        centers = np.stack([F[part == p].mean(axis=0) for p in range(len(sizes))])
        length = np.linalg.norm(centers, axis=1)
        centers /= np.where(length > 0, length, 1.0)[:, None]
    return assigned(F @ centers.T, sizes)


def _seeds(F: Array, k: int, rng: np.random.Generator) -> Array:
    """Return the vectors of k vertices, mostly far from each other.

    The probability of each is proportional to its squared distance from those before it, as in k-means++
    (Arthur and Vassilvitskii 2007).
    """
    chosen = [int(rng.integers(len(F)))]
    distance = np.full(len(F), np.inf)
    for _ in range(k - 1):
        distance = np.minimum(distance, ((F - F[chosen[-1]]) ** 2).sum(axis=1))
        total = distance.sum()
        chosen.append(int(rng.choice(len(F), p=distance / total if total > 0 else None)))
    return F[chosen]
