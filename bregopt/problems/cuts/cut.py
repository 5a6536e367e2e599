"""Cuts of graphs in two sides, with bounds by semidefinite relaxation (Kulis et al. 2009, §6.4).

Let the signs ``s`` give the side of each vertex, and let ``L`` be the Laplacian. Then ``s'Ls / 4`` is the
weight of the cut. The relaxation replaces ``ss'`` by a psd ``X`` with unit diagonal, and the squared
difference of the sizes of the sides by ``e'Xe``.

Good partitions are found by multilevel cycles, relaxed partitions, which have unit vectors in place of signs
(Burer, Monteiro, Zhang 2002), and combinations of both.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import field
from functools import cache
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import Array, IntArray
from bregopt.clock import CutShort, checkpoint, remaining
from bregopt.io.graphs import Graph, GraphLike, read_graph
from bregopt.modeling.atoms import diag, inner, quad_form
from bregopt.modeling.bounds import between
from bregopt.modeling.objectives import Maximize, Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.cuts.answer import PartedGraph, check_bound, check_exact, first_sizes, generator
from bregopt.problems.cuts.branch_and_bound.certificate import Task
from bregopt.problems.cuts.coarsening import SignGraph, cycle, refined
from bregopt.problems.cuts.optimum import best_cut
from bregopt.problems.cuts.proof import Proof, Settled, partitions, principal, relaxed, status_of, unrelaxed
from bregopt.problems.cuts.triangles import tightened
from bregopt.program import LowRank
from bregopt.program.lowrank import Matrix
from bregopt.records import dataclass, field_names, replace
from bregopt.routes.base import Seed
from bregopt.routes.options import CutOptions, time_limit
from bregopt.routes.progress import items_bar
from bregopt.routes.solution import Solution
from bregopt.threads import threads_for

__all__ = ["Cut", "Search", "ascended", "max_cut", "min_balanced_cut", "proven_cut"]

_CYCLES = 8  # multilevel cycles at first
_EDGES = 600_000  # edge ends in all rounds: about two seconds; on meshes twice as many
_MOST_ROUNDS = 30
_PATIENCE, _PATIENCE_SHARE = 20, 0.02  # rounds without a better partition, and relative to the vertices
_RANK = 3  # length of the vectors of relaxed partitions; 2 and 6 end at smaller values
_AFRESH, _AFRESH_MESH = 4, 2  # one round in so many begins at random
_STEPS_AFRESH, _STEPS = 200, 60
_HYPERPLANES, _REFINED = 10, 3  # roundings of a relaxed partition, and the number of the best to refine
_HYPERPLANES_SDP, _REFINED_SDP = 50, 8  # the same for the answer of the semidefinite program
_LEADING = 3  # leading eigenvectors that are rounded, too
_POOL = 8  # partitions that are kept
_DAMPING = 0.5  # weight of the last step; without it the vertices of bipartite graphs change places for ever
# Shares of the time limit: of the search before the relaxation, and of both; the rest is for its rounding.
_SEARCHED, _RELAXED = 0.3, 0.9
_ROOT = "More rounds of rows would hardly bring the bound nearer to the cut; exact=True goes on by branching."
_ALL_LEAVES = "Every node of the tree is a leaf: no cut of it is better."


@dataclass(frozen=True, eq=False, repr=False)
class Cut(PartedGraph):
    """A partition with a proof: `cut` is its weight, and no allowed partition is better than `bound`.

    The attributes of :class:`~bregopt.Solution` are those of the relaxation, in units of a cut.

    Attributes
    ----------
    partition : int array of shape (n,)
        The side of each vertex, 1 or -1, in the order of the graph; for edges in the order of sorted names.
    sides : tuple of two lists
        The vertices of each side, by their names in the graph.
    assignments : dict
        The number of its side, 0 or 1, for each vertex by its name.
    cut : float
        Weight of the edges between the sides.
    bound : float
        Proven: no allowed cut weighs less, or for a maximum cut more. All rounding errors are
        counted. Beyond 500 vertices, where it does not prove the cut, it is that of a certificate in floating
        point, less a billionth of all weights.
    optimal : bool
        Whether it is proven that no partition is better. Weights that are multiples of a unit give such cuts,
        and a bound with all rounding errors is below the next multiple; weights count as multiples if they
        are to within their rounding. All partitions of a small graph are enumerated where the bound does not
        decide, and compared exactly.
    largest : bool
        Whether a large cut was asked for.
    graph : Graph
        Its `adjacency`, a csr_array, and `nodes`, the names of the vertices in the order of `partition`.
    duals : tuple
        The duals of ``diag(X) == 1``, and for a balanced cut of the row on ``e'Xe``.
    certificate : CutCertificate or None
        With ``exact=True``, and mostly with ``bound="triangles"``, the leaves of the tree:
        ``certificate.save(file)`` writes them, and ``bregopt verify FILE`` proves the bound again.
    nodes, open : int
        With ``exact=True`` the nodes of the tree that were bounded, and those whose bound does not prove the
        cut yet.
    """

    partition: IntArray = field(kw_only=True)
    sides: tuple[list[Hashable], list[Hashable]] = field(kw_only=True)
    largest: bool = False

    @property
    def _numbers(self) -> IntArray:
        return (1 - self.partition) // 2

    @property
    def _proven(self) -> str:
        return "most" if self.largest else "least"

    @property
    def _sentence(self) -> str:
        sizes = " and ".join(str(len(side)) for side in self.sides)
        return f"cut of weight {self.cut:g} into {sizes} vertices, {self._verdict}"


def min_balanced_cut(
    graph: GraphLike,
    weights: str | ArrayLike | None = None,
    imbalance: float = 0.0,
    *,
    sizes: Sequence[int] | None = None,
    bound: Literal["auto", "sdp", "triangles", False] = "auto",
    exact: bool = False,
    executor: Executor | None = None,
    seed: Seed | None = 0,
    **options: Unpack[CutOptions],
) -> Cut:
    """Return a balanced cut of small weight, and a lower bound on the weight of every balanced cut.

    Parameters
    ----------
    graph : networkx or igraph graph, adjacency matrix (sparse, dense or DataFrame) of shape (n, n), or edges
        Edges are an array of shape ``(m, 2)`` or a pair of arrays, of integers from 0 on or of strings, or a
        list of pairs of tuples; the vertices are those that occur in an edge. The graph need not be
        connected, and a graph or a matrix may have isolated vertices. Loops are ignored: no cut has them.
    weights : str or array of shape (m,), optional
        The name of the edge attribute of a networkx or igraph graph, or the weights of the edges, none below
        0; by default one for every edge.
    imbalance : float in [0, 1)
        The sides may differ by this fraction of the number of vertices, and always by one if it is odd. The
        search begins at the cut with equal sides of the same call without `imbalance`, which it solves
        first: without a time limit the cut is never worse than that one.
    sizes : two ints, optional
        The numbers of vertices of the two sides, instead of `imbalance`.
    bound : {"auto", "sdp", "triangles", False}
        The source of the bound. "auto" compares all cuts of a small graph (17 vertices, or 19 in equal
        halves) unless `solver` is given, and is "sdp" for others. "triangles" generates rows that all cuts
        satisfy, for a sharper relaxation of graphs of up to 500 vertices: clique inequalities, as at the root
        of the tree of `exact`. False solves none; `bound` of the answer is 0 then.
    exact : bool
        Prove that the cut is best, by branch and bound; `bound` has no effect then, and sides of equal size
        or of given `sizes` are required. With ``time_limit``, a callback or Ctrl-C the answer has the best
        cut so far, and what is proven of it. Weights without a common unit, such as random numbers, are
        solved until bound and cut differ by ``tol``, 1e-6 of the cut.
    executor : concurrent.futures.Executor, optional
        Bounds nodes of the tree, with the same answer; for ``exact=True`` only.
    seed : int, at least 0, numpy.random.Generator or SeedSequence, or None
        Seed of the search; None takes another one in each call.
    **options
        Options of :meth:`bregopt.Problem.solve`, for the relaxation: ``tol``, ``verbose``... ``time_limit``
        covers the search, too. Beyond 200 vertices the relaxation ends as soon as its bound proves the cut;
        without ``tol`` also at a gap of at most 1e-3 that is small against the distance of bound and cut.

    Returns
    -------
    Cut

    Raises
    ------
    TypeError, ValueError
        If the graph is directed, has negative weights or fewer than two vertices, or an option is unknown.

    Warns
    -----
    ConvergenceWarning
        If the relaxation's certificate does not meet `tol`; the bound is still proven.

    References
    ----------
    Lang (2005), Fixing two weaknesses of the spectral method; Kulis, Sustik, Dhillon (2009), §6.4.
    """
    start = time.perf_counter()
    rng = generator(min_balanced_cut, seed, options)
    with clock.limited(time_limit(options)):
        parsed = read_graph(graph, weights)
        check_bound(bound, parsed.n)
        least, most = first_sizes(parsed.n, imbalance, sizes)
        check_exact(exact, executor)
        differences = {abs(2 * first - parsed.n) for first in range(least, most + 1)}
        if exact and len(differences) > 1:
            raise ValueError(
                f"imbalance allows differences of the sides from {min(differences)} to {max(differences)}, "
                "and exact=True takes one; give sizes=, or leave imbalance out"
            )
        if len(differences) == 1 and (exact or bound == "triangles"):
            signs = SignGraph(parsed.adjacency, np.ones(parsed.n, dtype=np.intp), least, most)
            return proven_cut(parsed, signs, differences.pop(), rng, options, executor, exact).timed(start)
        halves = parsed.n // 2, (parsed.n + 1) // 2
        if not (least < halves[0] and halves[1] < most):
            return _balanced(parsed, least, most, bound, rng, options)[0].timed(start)
        with clock.reserving(0.5 * _left()):
            equal, alone = _balanced(parsed, *halves, bound, copy.deepcopy(rng), options)

        def begin() -> list[IntArray]:
            known = alone
            if known is None:
                known = _balanced(parsed, *halves, False, copy.deepcopy(rng), options)[0].partition
            return [known]

        kept = [equal.partition]
        return _balanced(parsed, least, most, bound, rng, options, begin, kept)[0].timed(start)


def max_cut(
    graph: GraphLike,
    weights: str | ArrayLike | None = None,
    *,
    bound: Literal["auto", "sdp", "triangles", False] = "auto",
    exact: bool = False,
    executor: Executor | None = None,
    seed: Seed | None = 0,
    **options: Unpack[CutOptions],
) -> Cut:
    """Return a cut of large weight, and an upper bound on the weight of every cut.

    Parameters
    ----------
    graph, weights, seed, **options
        As for :func:`min_balanced_cut`; weights may be negative here.
    bound : {"auto", "sdp", "triangles", False}
        As for :func:`min_balanced_cut`; without a relaxation it is the sum of the weights above 0.
    exact, executor
        As for :func:`min_balanced_cut`. Sparse graphs of some thousand edges and dense ones of up to some 80
        vertices take seconds.

    Returns
    -------
    Cut

    Raises
    ------
    TypeError, ValueError
        If the graph is directed or has fewer than two vertices, or an option is unknown.

    References
    ----------
    Goemans and Williamson (1995), Improved approximation algorithms for maximum cut and satisfiability
    problems using semidefinite programming, J. ACM 42.
    """
    start = time.perf_counter()
    rng = generator(max_cut, seed, options)
    with clock.limited(time_limit(options)):
        parsed = read_graph(graph, weights, signed=True)
        check_bound(bound, parsed.n)
        check_exact(exact, executor)
        signs = SignGraph(-parsed.adjacency, np.ones(parsed.n, dtype=np.intp), 0, parsed.n)
        if exact or bound == "triangles":
            return proven_cut(parsed, signs, -1, rng, options, executor, exact).timed(start)

        def relaxation() -> Problem:
            X = PSD(parsed.n, name="X")
            return Problem(Maximize(inner(parsed.laplacian / 4, X)), [diag(X) == 1])

        return _found(parsed, signs, relaxation, bound, rng, options, largest=True)[0].timed(start)


def proven_cut(
    graph: Graph,
    signs: SignGraph,
    difference: int,
    rng: np.random.Generator,
    options: Mapping[str, Any],
    executor: Executor | None = None,
    branching: bool = True,
) -> Cut:
    """Return the best cut by branch and bound, from that of a search, or what the root of the tree proves."""
    largest = difference < 0
    proof = Proof(graph, largest)
    search = Search(signs, rng, proof.suggests, bool(options.get("progress")))

    @cache
    def searched() -> IntArray:
        with clock.reserving((1 - _SEARCHED) * _left()):
            search.run()
        return search.best

    found = best_cut(Task.of(graph, difference), search.best, searched, options, executor, branching)
    certificate = found.certificate
    settled = Settled(certificate.side, certificate.claim, certificate.optimal)
    every = None if settled.optimal else _all_sides(signs)
    if every is not None:  # weights of any kind, compared exactly
        settled = proof.compared(every)
    if signs.excess(signs.first(settled.part)):  # the tree has no order of the sides
        settled = settled._replace(part=-settled.part)
    cut, bound = proof.weight(settled.part), settled.bound
    closed = settled.optimal or not found.open
    answer = replace(
        unrelaxed(bound),
        status=status_of(closed).value,
        stop_reason=found.stopped or (_ALL_LEAVES if closed else _ROOT),
        value=cut,
        gap=abs(bound - cut) / max(abs(bound), abs(cut)) if bound != cut else 0.0,
        iterations=found.nodes,
        solver="branch and bound",
        history=found.history,
    )
    return replace(
        _cut(graph, answer, settled, proof),
        certificate=certificate,
        nodes=found.nodes,
        open=found.open,
        _plan=found.plan,
    )


def _balanced(
    graph: Graph,
    least: int,
    most: int,
    bound: str | bool,
    rng: np.random.Generator,
    options: Mapping[str, Any],
    begin: Callable[[], Sequence[IntArray]] = tuple,
    kept: Sequence[IntArray] = (),
) -> tuple[Cut, IntArray | None]:
    """Return a small cut whose first side has a size in a range; see :func:`_found`."""
    signs = SignGraph(graph.adjacency, np.ones(graph.n, dtype=np.intp), least, most)

    def relaxation() -> Problem:
        X = PSD(graph.n, name="X")
        size, (low, high) = quad_form(np.ones(graph.n), X), _ends(signs)
        row = size == high if low == high else between(size, low, high) if low else size <= high
        return Problem(Minimize(inner(graph.laplacian / 4, X)), [diag(X) == 1, row])

    return _found(graph, signs, relaxation, bound, rng, options, begin, kept)


def _found(
    graph: Graph,
    signs: SignGraph,
    relaxation: Callable[[], Problem],
    bound: str | bool,
    rng: np.random.Generator,
    options: Mapping[str, Any],
    begin: Callable[[], Sequence[IntArray]] = tuple,
    kept: Sequence[IntArray] = (),
    largest: bool = False,
) -> tuple[Cut, IntArray | None]:
    """Return the best partition of a search and of roundings of a relaxation, and that of the search alone.

    The search is that without a relaxation, so that no cut is worse than without one. It begins with the
    partitions `begin`; the answer is no worse than these and those `kept`. The relaxation begins before the
    search: that of a small graph takes less time and may prove one of its roundings, and that of a large
    graph shows a first bound. With a time limit the search of a large graph comes first.
    """
    proof = Proof(graph, largest)
    every = _all_sides(signs) if bound else None
    if bound == "auto" and every is not None and "solver" not in options:
        found = proof.compared(every)
        return _cut(graph, unrelaxed(proof.weight(found.part), len(every)), found, proof), None
    limit = _left()
    early = bool(bound) and proof.small
    progress = bool(options.get("progress"))
    stream = copy.deepcopy(rng) if early else rng  # of roundings: a search draws what it draws without them
    search = Search(signs, stream, proof.suggests, progress)
    alone: IntArray | None = None

    def searched() -> IntArray:
        nonlocal search, alone
        if alone is None:
            rounded, search = search, Search(signs, rng, proof.suggests, progress)
            search.refine(begin())
            search.run()
            alone = search.best
            search.refine([*kept, *([rounded.best] if early else [])])
        return search.best

    def best() -> IntArray:
        return search.best if early else searched()

    if every is not None:
        search.add(proof.compared(every).part)
    elif early:
        search.refine(kept)
    elif limit or not bound:
        with clock.reserving((1 - _SEARCHED) * limit if bound else 0.0):
            searched()
    answer = unrelaxed(proof.bound)
    if bound:
        with clock.reserving((1 - _RELAXED) * limit):
            if bound == "triangles":
                answer = tightened(graph, 2, _ends(signs), proof, best, options, search.round_matrix)
            else:
                answer = relaxed(relaxation(), proof, best, options)
        best()
        search.round_matrix(answer.X, combine=not early)
    if early and every is None and not proof.suggests(search.best):
        searched()
        search.round_matrix(answer.X)
    return _cut(graph, answer, proof.settled(search.best, every), proof), alone


def _cut(graph: Graph, answer: Solution, found: Settled, proof: Proof) -> Cut:
    """Return the answer to a relaxation, if any, with a partition and its bound."""
    side, cut = found.part, proof.weight(found.part)
    first, second = ([graph.nodes[k] for k in np.flatnonzero(side == sign)] for sign in (1, -1))
    return Cut(
        **{name: getattr(answer, name) for name in field_names(Solution)},
        graph=graph,
        partition=side,
        sides=(first, second),
        cut=cut,
        bound=max(found.bound, cut) if proof.largest else min(found.bound, cut),
        optimal=found.optimal,
        largest=proof.largest,
    )


def _all_sides(graph: SignGraph) -> IntArray | None:
    """Return all partitions whose first side has an allowed size, None if there are many."""
    part = partitions([(first, graph.n - first) for first in range(max(graph.least, 0), graph.most + 1)])
    if part is None:
        return None
    side = 1 - 2 * part
    size = (part == 0).sum(axis=1)
    side[(size < graph.least) | (size > graph.most)] *= -1
    return side


def _left() -> float:
    """Return the time that is left of a limit; without one it is 0, as nothing is reserved then."""
    left = clock.remaining()
    return max(left, 0.0) if left < np.inf else 0.0


def _ends(graph: SignGraph) -> tuple[float, float]:
    """Return bounds on the squared difference of the sizes of the sides."""
    n, ends = graph.n, (graph.least, graph.most)
    differences = [abs(2 * first - n) for first in ends]
    least = n % 2 if 2 * ends[0] <= n <= 2 * ends[1] else min(differences)
    return float(least**2), float(max(differences) ** 2)


class Search:
    """A pool of good and different partitions.

    Parameters
    ----------
    graph : SignGraph
        Each vertex has size 1.
    rng : numpy.random.Generator
    proven : function of a partition
        Whether none is better.
    progress : bool
        Show a bar for each loop.
    """

    def __init__(
        self,
        graph: SignGraph,
        rng: np.random.Generator,
        proven: Callable[[IntArray], bool],
        progress: bool = False,
    ) -> None:
        self._graph, self._rng, self._proven, self._progress = graph, rng, proven, progress
        self._sides: list[IntArray] = []
        self._values: list[float] = []
        self._by_cycles = self._by_ascents = -np.inf  # the best values of both ways to begin
        self.add(refined(graph, graph.split(np.linspace(1.0, -1.0, graph.n))))

    @property
    def best(self) -> IntArray:
        """The best partition so far."""
        return self._sides[int(np.argmax(self._values))]

    def add(self, side: IntArray) -> None:
        """Add a partition to the pool; a full pool drops the most similar of those that are no better."""
        value = self._graph.value(side)
        overlaps = [self._overlap(side, other) for other in self._sides]
        if self._graph.n in overlaps or self._graph.excess(self._graph.first(side)):
            return
        if len(self._sides) < _POOL:
            self._sides.append(side)
            self._values.append(value)
            return
        no_better = [k for k, other in enumerate(self._values) if other <= value]
        if no_better:
            k = max(no_better, key=overlaps.__getitem__)
            self._sides[k], self._values[k] = side, value

    def refine(self, sides: Iterable[IntArray]) -> None:
        """Add partitions after moves that improve them."""
        for side in sides:
            self.add(refined(self._graph, side))

    def run(self, cycles: bool = True) -> None:
        """Search until the work is done, the best partition is proven, or time is up.

        Parameters
        ----------
        cycles : bool
            Whether multilevel cycles come first; a pool of good partitions needs none, and half the patience.
        """
        rounds = min(max(_EDGES // max(self._graph.W.nnz, 1), 1), _MOST_ROUNDS)
        self._each("cycles", range(min(_CYCLES, rounds) * cycles), lambda k: self.add(self._cycle()))
        self._by_cycles = max(self._values)
        patience = min(_PATIENCE, 1 + _PATIENCE_SHARE * self._graph.n) / (1 if cycles else 2)
        self._each("rounds", range(rounds), self._round, patience)
        if self._mesh:
            self._each("rounds", range(rounds), self._round, patience)

    def round_matrix(self, X: Matrix | None, combine: bool = True) -> None:
        """Add roundings of the answer to the semidefinite program, and what they combine to.

        A route that was cut short may have none, or a factor of zeros. Before a run none are combined.
        """
        if X is None or (isinstance(X, LowRank) and not X.factor.any()) or self._proven(self.best):
            return
        with threads_for(X.shape[0]):
            F = principal(X)
            normals = self._rng.normal(size=(F.shape[1], _HYPERPLANES_SDP)).T
            normals = np.concatenate([np.eye(F.shape[1])[:_LEADING], normals])
            best = self._roundings(F, normals, _REFINED_SDP)
        use = self._combine_new if combine else self.add
        self._each("roundings", best, lambda side: use(refined(self._graph, side)))

    def _each(
        self, name: str, items: Iterable[Any], step: Callable[[Any], None], patience: float = np.inf
    ) -> None:
        """Take the steps until time is up, the best partition is proven, or some steps gained nothing."""
        last, best = 0, -np.inf
        try:
            for k, item in enumerate(items_bar(items, name, self._progress)):
                if self._proven(self.best):
                    return
                checkpoint()
                step(item)
                if max(self._values) > best:
                    last, best = k, max(self._values)
                if k - last >= patience:
                    return
        except CutShort:
            return

    def _round(self, k: int) -> None:
        """Make a partition, afresh or from one of the pool, and combine it with another one."""
        if k % (_AFRESH_MESH if self._mesh else _AFRESH):
            self._combine(self._ascent(self.best if self._rng.random() < 0.5 else self._any(), _STEPS))
        elif self._mesh:
            self._combine(self._cycle())
        else:
            side = self._ascent(np.zeros(self._graph.n), _STEPS_AFRESH)
            self._by_ascents = max(self._by_ascents, self._graph.value(side))
            self._combine(side)

    @property
    def _mesh(self) -> bool:
        """Whether cycles find better partitions than ascents, as they do on meshes."""
        return -np.inf < self._by_ascents < self._by_cycles

    def _ascent(self, start: Array | IntArray, steps: int) -> IntArray:
        """Return the best rounding of unit vectors that begin at `start` plus noise."""
        R = self._rng.normal(size=(self._graph.n, _RANK))
        R[:, 0] += start
        R = ascended(self._graph, R, steps)
        sides = self._roundings(R, self._rng.normal(size=(_HYPERPLANES, _RANK)), _REFINED)
        return max((refined(self._graph, side) for side in sides), key=self._graph.value)

    def _roundings(self, F: Array, normals: Array, kept: int) -> list[IntArray]:
        """Return the best partitions by hyperplanes with the given normals, at least by the first one."""
        found: dict[bytes, IntArray] = {}
        for normal in normals:
            if found and remaining() <= 0:
                break
            side = self._graph.split(F @ normal)
            found[np.packbits(side > 0).tobytes()] = side
        return sorted(found.values(), key=self._graph.value, reverse=True)[:kept]

    def _combine(self, side: IntArray) -> None:
        """Add a partition, and what a cycle finds that keeps both it and one of the pool."""
        other = self._any()
        if self._graph.symmetric and side @ other < 0:
            other = -other
        self.add(side)
        self.add(self._cycle(side, other))

    def _combine_new(self, side: IntArray) -> None:
        """Combine a partition that is not in the pool, where many roundings of a small graph end."""
        if all(self._overlap(side, other) < self._graph.n for other in self._sides):
            self._combine(side)

    def _cycle(self, *kept: IntArray) -> IntArray:
        return cycle(self._graph, kept, self._rng)

    def _any(self) -> IntArray:
        return self._sides[self._rng.integers(len(self._sides))]

    def _overlap(self, side: IntArray, other: IntArray) -> int:
        same = int(side @ other)
        return abs(same) if self._graph.symmetric else same


def ascended(graph: SignGraph, R: Array, steps: int) -> Array:
    """Return unit vectors, the rows of ``R``, with a larger ``tr R'WR``.

    Each step moves every row toward the best one for the others. The length of the sum of all rows is kept
    at that of a partition with allowed sizes.

    Parameters
    ----------
    graph : SignGraph
        Each vertex has size 1.
    R : array of shape (n, rank)
        The start.
    steps : int
    """
    R = _unit(R)
    for _ in range(steps):
        checkpoint()
        R = _centered(graph, _unit(_DAMPING * R + _unit(graph.W @ R)))
    return R


def _unit(R: Array) -> Array:
    length = np.sqrt(np.einsum("ij,ij->i", R, R))
    length[length == 0] = 1.0
    return R / length[:, None]


def _centered(graph: SignGraph, R: Array) -> Array:
    """Return unit rows whose mean has nearly a length that the sizes of the sides allow."""
    if graph.free:
        return R
    smallest, largest = _lengths(graph)
    mean = R.mean(axis=0)
    length = float(np.linalg.norm(mean))
    if length == 0:
        return R
    return _unit(R + (min(max(length, smallest), largest) / length - 1.0) * mean)


def _lengths(graph: SignGraph) -> tuple[float, float]:
    """Return bounds on the length of the mean of the signs of a partition."""
    ends = [2 * first / graph.n - 1 for first in (graph.least, graph.most)]
    smallest = 0.0 if ends[0] <= 0 <= ends[1] else min(map(abs, ends))
    return smallest, max(map(abs, ends))
