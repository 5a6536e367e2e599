"""Communities of graphs: partitions of large modularity, with upper bounds by semidefinite relaxation.

Let ``A`` be the adjacency matrix, with twice the weights of loops on its diagonal, ``d = A e`` the degrees
and ``2m = e'd``. The modularity of a partition in any number of parts, at resolution ``gamma``, is the sum of

    B_ij = A_ij / 2m - gamma d_i d_j / (2m)^2

over all pairs of one part (Newman, Girvan 2004; Reichardt, Bornholdt 2006). All ``B_ij`` together are
``1 - gamma``, so the best partition has the largest weight of ``-B_ij`` between its parts: it is a cut of a
complete graph with weights of both signs. Its relaxation has ``X_ij = 1`` for ``i`` and ``j`` of one part
and 0 for others, which is psd with unit diagonal (Agarwal, Kempe 2008).

Good partitions are found by moves of vertices on coarser and coarser graphs (Blondel et al. 2008), with
further moves on the way back (Rotta, Noack 2011), and by contraction of what two partitions have in common
(Ovelgönne, Geyer-Schulz 2012).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import Array, IntArray, finite_array
from bregopt.io.graphs import Graph, GraphLike, read_graph
from bregopt.modeling.atoms import diag, inner, quad_form
from bregopt.modeling.convex.expression import Maximize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.cuts.answer import PartedGraph, check_bound, generator
from bregopt.problems.cuts.proof import Proof, Settled, partitions, relaxed, unrelaxed
from bregopt.problems.cuts.triangles import LARGEST_ORDER, tightened
from bregopt.records import dataclass, field_names, replace
from bregopt.routes.base import Seed
from bregopt.routes.progress import items_bar
from bregopt.routes.registry import CutOptions, time_limit
from bregopt.routes.solution import Solution

_SEARCHED = 0.5  # share of the time limit
_ENUMERATED = 12  # vertices beyond which there are too many partitions to count them
_TRIANGLES = 150  # vertices up to which "auto" generates rows: about ten seconds
_EDGES = 1_000_000  # edge ends in all rounds
_MOST_ROUNDS, _PATIENCE = 100, 40  # rounds, and those without a better partition
_AFRESH, _AGAIN = 8, 3  # the first rounds, and one in so many, begin with single vertices or random parts
_PARTS = 8  # most random parts
_POOL = 6  # partitions that are kept
_MOVES = 256  # between looks at the clock
# A move gains at least this share of the modularity: round-off would move vertices for ever.
_LEAST_GAIN = 1e-13
_MARGIN = 1e-9  # of certificates in floating point, for their rounding errors
_ROUND_OFF = 2.0**-48  # of the weights ``B_ij`` together; each has four roundings


@dataclass(frozen=True, eq=False, repr=False)
class Communities(PartedGraph):
    """Communities of a graph: no partition has a larger modularity than `bound`.

    The attributes of :class:`~bregopt.Solution` are those of the relaxation, in units of modularity.

    Attributes
    ----------
    modularity, bound : float
        The bound is proven as that of :class:`Cut` is.
    optimal : bool
        Whether it is proven that no partition is better, as for :class:`Cut`.
    communities : tuple of lists
        The vertices of each community, by their names in the graph, the largest community first.
    assignments : dict
        The number of its community for each vertex by its name.
    labels : int array of shape (n,)
        The same in the order of the graph.
    cut : float
        Weight of the edges between communities.
    graph : Graph
        Its `adjacency`, a csr_array, `loops` and `nodes`, the names of the vertices in the order of `labels`.
    resolution : float
    """

    labels: IntArray = field(kw_only=True)
    communities: tuple[list[Hashable], ...] = field(kw_only=True)
    modularity: float = np.nan
    resolution: float = 1.0

    @property
    def _numbers(self) -> IntArray:
        return self.labels

    @property
    def _proven(self) -> str:
        return "most"

    @property
    def _note(self) -> str:
        return ""

    @property
    def _conclusion(self) -> str:
        return ", so optimal" if self.optimal else ""

    @property
    def _sentence(self) -> str:
        sizes = [len(part) for part in self.communities]
        shown = ", ".join(map(str, sizes[:8])) + (", ..." if len(sizes) > 8 else "")
        noun = "community" if len(sizes) == 1 else "communities"
        return f"modularity {self.modularity:.6g} of {len(sizes)} {noun} ({shown} vertices), {self._verdict}"

    @property
    def _title(self) -> str:
        return f"modularity {self.modularity:.4g}, {self._verdict}\n{len(self.communities)} communities"


def communities(
    graph: GraphLike,
    resolution: float = 1.0,
    *,
    weights: str | ArrayLike | None = None,
    bound: Literal["auto", "sdp", "triangles", False] = "auto",
    seed: Seed | None = 0,
    **options: Unpack[CutOptions],
) -> Communities:
    """Return communities of large modularity, and an upper bound on the modularity of all partitions.

    Parameters
    ----------
    graph, weights, seed, **options
        As for :func:`min_balanced_cut`; loops count.
    resolution : float above 0
        The factor of the degrees in the modularity. Larger ones make smaller communities.
    bound : {"auto", "sdp", "triangles", False}
        The source of the bound. "auto" compares all partitions of up to 10 vertices unless `solver` is given,
        is "triangles" up to 150, and "sdp" for others. "triangles" generates rows that all partitions
        satisfy, of graphs of up to 500 vertices. False solves no relaxation.

    Returns
    -------
    Communities

    Raises
    ------
    TypeError, ValueError
        If the graph is directed, has no edges, negative weights or fewer than two vertices, `resolution` is
        not above 0, or an option is unknown.

    Warns
    -----
    ConvergenceWarning
        If the relaxation's certificate does not meet `tol`; the bound is still proven.

    References
    ----------
    Newman, Girvan (2004), Finding and evaluating community structure in networks, Phys. Rev. E 69; Agarwal,
    Kempe (2008), Modularity-maximizing graph communities via mathematical programming, Eur. Phys. J. B 66.
    """
    start = time.perf_counter()
    rng = generator(communities, seed, options)
    with clock.limited(time_limit(options)):
        parsed = read_graph(graph, weights)
        check_bound(bound, parsed.n)
        gamma = float(finite_array(resolution, "resolution", ndim=0))
        if gamma <= 0:
            raise ValueError(f"resolution is {gamma:g}; expected a number above 0")
        model = _Modularity(parsed, gamma)
        search = _Search(model, rng, options)
        limit = time_limit(options) or 0.0
        with clock.reserving((1 - _SEARCHED) * limit if bound else 0.0):
            search.run()
        if not bound:
            found, answer = Settled(search.best, model.most, False), unrelaxed(model.most)
        else:
            bounded = _bounded if parsed.n <= LARGEST_ORDER else _bounded_large
            found, answer = bounded(model, search.best, bound, options)
    labels = found.part
    size = np.bincount(labels)
    labels = np.argsort(np.argsort(-size, kind="stable"))[labels]
    value = model.value(labels)
    edges = sp.triu(parsed.adjacency).tocoo()
    return Communities(
        **{name: getattr(answer, name) for name in field_names(Solution)},
        graph=parsed,
        labels=labels,
        communities=tuple(
            [parsed.nodes[v] for v in np.flatnonzero(labels == c)] for c in range(labels.max() + 1)
        ),
        cut=math.fsum(edges.data[labels[edges.row] != labels[edges.col]]),
        modularity=value,
        bound=max(found.bound, value),
        optimal=found.optimal,
        resolution=gamma,
    ).timed(start)


class _Modularity:
    """The modularity of the partitions of a graph.

    Parameters
    ----------
    graph : Graph
    resolution : float
    """

    def __init__(self, graph: Graph, resolution: float) -> None:
        self.W, self.n = graph.adjacency, graph.n
        loops = 2 * graph.loops if len(graph.loops) else np.zeros(graph.n)
        self.degree: Array = np.asarray(self.W.sum(axis=1)).ravel() + loops
        self.total = float(self.degree.sum())  # 2m
        if self.total <= 0:
            raise ValueError(
                "graph has no edges; expected one at least: modularity is relative to their weight"
            )
        self._loops, self.resolution = float(loops.sum()), resolution

    @property
    def whole(self) -> float:
        """The modularity of one community."""
        return 1.0 - self.resolution

    @property
    def most(self) -> float:
        """A bound without any work: all edges inside, and the squares of the volumes of single vertices."""
        least = math.fsum((self.degree / self.total) ** 2)
        return (1.0 - self.resolution * least) + _ROUND_OFF * (1 + self.resolution)

    def value(self, labels: IntArray) -> float:
        """Return the modularity of a partition."""
        edges = self.W.tocoo()
        inside = math.fsum(edges.data[labels[edges.row] == labels[edges.col]]) + self._loops
        volume = np.bincount(labels, self.degree) / self.total
        return inside / self.total - self.resolution * math.fsum(volume**2)

    def terms(self) -> Array:
        """Return the matrix ``B``, without its diagonal, which all partitions have."""
        d = self.degree
        B = (self.total * self.W.toarray() - self.resolution * np.multiply.outer(d, d)) / self.total**2
        np.fill_diagonal(B, 0.0)
        return B

    def relaxation(self) -> tuple[Problem, PSD]:
        """Return the relaxed partitions, in products with sparse matrices and one vector."""
        X = PSD(self.n, name="X")
        volume = self.degree / self.total
        value = inner(self.W / self.total, X) - self.resolution * quad_form(volume, X)
        return Problem(Maximize(value + self._loops / self.total), [diag(X) == 1]), X


def _bounded(
    model: _Modularity, labels: IntArray, bound: str | bool, options: Mapping[str, Any]
) -> tuple[Settled, Solution]:
    """Return the best partition and its bound, and the answer to a relaxation, if any."""
    B, n = model.terms(), model.n
    cuts = Graph(
        sp.csr_array(-2 * B), list(range(n))
    )  # its cuts weigh the modularity, less that of the whole
    proof = Proof(cuts, largest=True)
    every = partitions(_all_sizes(n)) if n <= _ENUMERATED else None
    if every is not None and bound == "auto" and "solver" not in options:
        found = proof.compared(every)
        answer = unrelaxed(proof.weight(found.part), len(every))
    else:
        X = PSD(n, name="X")
        problem = Problem(Maximize(inner(B, X) - float(B.sum())), [diag(X) == 1])

        def best() -> IntArray:
            return labels

        if bound == "triangles" or (bound == "auto" and n <= _TRIANGLES):
            answer = tightened(cuts, math.inf, None, proof, best, options)
        else:
            answer = relaxed(problem, proof, best, options)
        found = proof.settled(labels, every)
    answer = replace(answer, value=answer.value + model.whole, dual_value=answer.dual_value + model.whole)
    upper = found.bound + model.whole + _ROUND_OFF * (1 + model.resolution)
    return found._replace(bound=min(upper, model.most)), answer


def _bounded_large(
    model: _Modularity, labels: IntArray, bound: str | bool, options: Mapping[str, Any]
) -> tuple[Settled, Solution]:
    """Return the same for a graph with too many vertices for a matrix of all pairs."""
    proof = _LargeProof(model)
    answer = relaxed(model.relaxation()[0], proof, lambda: labels, options)
    upper = min(proof.bound + _MARGIN * (1 + model.resolution), model.most)
    return Settled(labels, upper, False), answer


class _LargeProof(Proof):
    """The bound of certificates in floating point, which proves no partition."""

    def __init__(self, model: _Modularity) -> None:
        self._model, self.n, self.largest, self.bound = model, model.n, True, model.most

    def weight(self, part: IntArray) -> float:
        return self._model.value(part)

    def decides(self, bound: float, part: IntArray, margin: float = 0.0) -> bool:
        return False


def _all_sizes(n: int) -> Iterator[tuple[int, ...]]:
    """Yield the sizes of the parts of all partitions, the largest first, with zeros for empty parts."""

    def of(rest: int, most: int) -> Iterator[tuple[int, ...]]:
        if not rest:
            yield ()
        for size in range(min(rest, most), 0, -1):
            for others in of(rest - size, size):
                yield size, *others

    for sizes in of(n, n):
        yield *sizes, *([0] * (n - len(sizes)))


# --- The search -----------------------------------------------------------------------------------------


class _Search:
    """A search that keeps a few good partitions.

    Parameters
    ----------
    model : _Modularity
    rng : numpy.random.Generator
    options : dict
        ``progress`` shows a bar of the rounds; `rounds` is their number, at least one.
    """

    def __init__(self, model: _Modularity, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        self._model, self._rng = model, rng
        self._progress, self._asked = bool(options.get("progress")), options.get("rounds")
        self._pool: list[tuple[float, IntArray]] = []
        self._add(np.zeros(model.n, dtype=np.intp))

    @property
    def best(self) -> IntArray:
        """The best partition so far."""
        return self._pool[0][1]

    def run(self) -> None:
        """Make partitions afresh, then combine those of the pool, until too many rounds gained nothing.

        The first round always runs: without it the answer would be one community.
        """
        rounds = min(max(_EDGES // max(self._model.W.nnz, 1), 2), _MOST_ROUNDS)
        if self._asked is not None:
            rounds = max(self._asked, 1)
        afresh, last = min(_AFRESH, (rounds + 1) // 2), 0
        for k in items_bar(range(rounds), "rounds", self._progress):
            if k and (clock.remaining() <= 0 or k - last > _PATIENCE):
                return
            before = self._pool[0][0]
            alone = k < afresh or k % _AGAIN == 0 or len(self._pool) < 2
            self._add(self._grown(k % 2 == 1) if alone else self._combined())
            if self._pool[0][0] > before + _LEAST_GAIN:
                last = k

    def _add(self, labels: IntArray) -> None:
        """Keep a partition if it is new and good."""
        value = self._model.value(labels)
        if all(abs(value - known) > _LEAST_GAIN for known, _ in self._pool):
            self._pool = sorted([*self._pool, (value, labels)], key=lambda each: -each[0])[:_POOL]

    def _grown(self, random: bool) -> IntArray:
        start = np.arange(self._model.n)
        if random:  # another way into good partitions of small graphs
            parts = self._rng.integers(2, 1 + max(min(_PARTS, self._model.n), 2))
            start = self._rng.integers(0, parts, self._model.n)
        return _moved_in_levels(self._model.W, self._model.degree, start, self._rate, self._rng)

    def _combined(self) -> IntArray:
        """Return a partition from what two of the pool have in common, no worse than the better one."""
        one, other = sorted(self._rng.choice(len(self._pool), 2, replace=False))
        better, labels = self._pool[one][1], self._pool[other][1]
        _, common = np.unique(better * (labels.max() + 1) + labels, return_inverse=True)
        W, degree = _contracted(self._model.W, self._model.degree, common)
        start = np.empty(len(degree), dtype=np.intp)
        start[common] = better
        found = _moved_in_levels(W, degree, start, self._rate, self._rng)[common]
        return _moved_in_levels(self._model.W, self._model.degree, found, self._rate, self._rng)

    @property
    def _rate(self) -> float:
        return self._model.resolution / self._model.total


def _moved_in_levels(
    W: Any, degree: Array, labels: IntArray, rate: float, rng: np.random.Generator
) -> IntArray:
    """Return a partition after moves of vertices, of communities as vertices, and of vertices again."""
    labels = _moved(W, degree, labels, rate, rng)
    _, labels = np.unique(labels, return_inverse=True)
    count = int(labels.max()) + 1
    if count == len(degree):
        return labels
    joined = _moved_in_levels(*_contracted(W, degree, labels), np.arange(count), rate, rng)
    if len(np.unique(joined)) == count:
        return labels
    return np.unique(_moved(W, degree, joined[labels], rate, rng), return_inverse=True)[1]


def _contracted(W: Any, degree: Array, labels: IntArray) -> tuple[Any, Array]:
    """Return the weights between the parts, which are numbered from 0 on, and their degrees."""
    P = sp.csr_array((np.ones(len(labels)), (np.arange(len(labels)), labels)))
    return sp.csr_array(P.T @ W @ P), np.bincount(labels, degree).astype(float)


def _moved(W: Any, degree: Array, labels: IntArray, rate: float, rng: np.random.Generator) -> IntArray:
    """Return a partition that no move of one vertex improves, or the last one in time after each had a turn.

    A vertex is looked at again when a neighbor has moved to another community than its own.

    Parameters
    ----------
    W : csr_array of shape (n, n)
        Its diagonal does not matter.
    degree : array of shape (n,)
    labels : int array of shape (n,)
        From 0 to n - 1.
    rate : float
        The loss by two vertices of one community, relative to the product of their degrees.
    rng : numpy.random.Generator
        It draws the order of the vertices.
    """
    n = len(degree)
    starts, ends, weights = W.indptr.tolist(), W.indices.tolist(), W.data.tolist()
    part, d = labels.tolist(), degree.tolist()
    volume: list[float] = np.bincount(labels, degree, n).tolist()
    free = sorted(set(range(n)).difference(part), reverse=True)  # numbers of empty communities
    members: list[int] = np.bincount(labels, minlength=n).tolist()
    least = _LEAST_GAIN * float(degree.sum())
    waiting, queued, looks = deque(rng.permutation(n).tolist()), [True] * n, 0
    while waiting:
        looks += 1
        if looks > n and looks % _MOVES == 0 and clock.remaining() <= 0:
            break
        v = waiting.popleft()
        queued[v] = False
        own, near = part[v], range(starts[v], starts[v + 1])
        links = {own: 0.0}
        for e in near:
            u = ends[e]
            if u != v:
                c = part[u]
                links[c] = links.get(c, 0.0) + weights[e]
        cost = rate * d[v]
        stays = links[own] - cost * (volume[own] - d[v])
        chosen, most = own, stays + least
        if members[own] > 1 and most < 0:
            chosen, most = free[-1], 0.0
        for c, link in links.items():
            gain = link - cost * volume[c]
            if c != own and gain > most:
                chosen, most = c, gain
        if chosen == own:
            continue
        if not members[chosen]:
            free.pop()
        part[v] = chosen
        volume[own] -= d[v]
        volume[chosen] += d[v]
        members[own] -= 1
        members[chosen] += 1
        if not members[own]:
            free.append(own)
        for e in near:
            u = ends[e]
            if not queued[u] and part[u] != chosen:
                queued[u] = True
                waiting.append(u)
    return np.array(part, dtype=np.intp)
