"""Cuts of graphs in two sides, with bounds by semidefinite relaxation (Kulis et al. 2009, §6.4).

Let the signs ``s`` give the side of each vertex, and let ``L`` be the Laplacian. Then ``s'Ls / 4`` is the
weight of the cut. The relaxation replaces ``ss'`` by a psd ``X`` with unit diagonal, and the squared
difference of the sizes of the sides by ``e'Xe``.

A search finds good partitions, :mod:`.search`, and further ones are roundings of the relaxation.

Quadratic unconstrained binary optimization is a largest cut. Let ``x_i`` be 1 where vertex ``i`` is on
another side than one more vertex, ``0``, and let ``q_ij`` be the sum of ``Q_ij`` and ``Q_ji``. Then
``x_i = c_0i`` and ``x_i x_j = (c_0i + c_0j - c_ij) / 2`` for the cut variables ``c``. So ``x'Qx`` is minus
the cut of the graph with the weights ``q_ij / 2`` and ``-Q_ii - sum_j q_ij / 2`` (Hammer 1965;
De Simone 1990).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import field
from fractions import Fraction
from functools import cache
from typing import Any, Literal, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import Array, IntArray, MatrixLike, finite_array
from bregopt.display import html_table
from bregopt.io.graphs import Graph, GraphLike, read_graph
from bregopt.io.matrices import labels_of
from bregopt.modeling.atoms import diag, inner, quad_form
from bregopt.modeling.convex.expression import Maximize, Minimize
from bregopt.modeling.expressions import between
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.cuts.answer import PartedGraph, check_bound, check_exact, first_sizes, generator
from bregopt.problems.cuts.branch_and_bound.certificate import Task
from bregopt.problems.cuts.coarsening import SignGraph
from bregopt.problems.cuts.optimum import best_cut
from bregopt.problems.cuts.proof import Lattice, Proof, Settled, partitions, relaxed, unrelaxed
from bregopt.problems.cuts.search import Search
from bregopt.problems.cuts.triangles import tightened
from bregopt.records import dataclass, field_names, replace
from bregopt.rigorous.ball import UNIT, down
from bregopt.routes.base import Seed
from bregopt.routes.registry import CutOptions, time_limit
from bregopt.routes.solution import Solution

# Shares of the time limit: of the search before the relaxation, and of both; the rest is for its rounding.
_SEARCHED, _RELAXED = 0.3, 0.9


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
        ``rounds`` is the number of rounds of the search, by default as many as pay; 0 takes one multilevel
        cycle, as METIS does: with ``bound=False`` a cut of 10,000 vertices in a third of a second.

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
    search = Search(signs, rng, proof.suggests, options)

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
    answer = found.answer(settled, proof.weight(settled.part))
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
    stream = copy.deepcopy(rng) if early else rng  # of roundings: a search draws what it draws without them
    search = Search(signs, stream, proof.suggests, options)
    alone: IntArray | None = None

    def searched() -> IntArray:
        nonlocal search, alone
        if alone is None:
            rounded: list[IntArray] = []
            if early:
                rounded, search = [search.best], Search(signs, rng, proof.suggests, options)
            search.refine(begin())
            search.run()
            alone = search.best
            search.refine([*kept, *rounded])
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


# --- Binary variables --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class BinaryMinimum:
    """Binary numbers with a small ``x'Qx``, and a lower bound on all.

    Attributes
    ----------
    x : int array of shape (n,)
        Zeros and ones, in the order of `Q`; for a dict in the order of `sample`.
    sample : dict
        The number of each variable by its name.
    value : float
        ``x'Qx``.
    bound : float
        Proven: no binary numbers have a smaller value. All rounding errors are counted.
    optimal : bool
        Whether it is proven that no binary numbers have a smaller value.
    cut : Cut
        The cut that the numbers were found as; its largest weight is minus the smallest value, up to the
        rounding of weights.
    """

    x: IntArray
    sample: dict[Hashable, int]
    value: float
    bound: float
    optimal: bool
    cut: Cut

    @property
    def _facts(self) -> dict[str, str]:
        verdict = f"proven at least {self.bound:.8g}{', so optimal' if self.optimal else ''}"
        ones = f"{int(self.x.sum())} of {len(self.x)} variables are 1"
        return {"minimum": f"{self.value:.8g}, {verdict}", "x": ones}

    def __repr__(self) -> str:
        return "\n".join(f"{name:<9} {fact}" for name, fact in self._facts.items())

    def _repr_html_(self) -> str:
        return html_table((), list(self._facts.items()), left=2)


def qubo(
    Q: MatrixLike | Mapping[tuple[Hashable, Hashable], float],
    *,
    bound: Literal["auto", "sdp", "triangles", False] = "auto",
    exact: bool = False,
    executor: Executor | None = None,
    seed: Seed | None = 0,
    **options: Unpack[CutOptions],
) -> BinaryMinimum:
    """Return zeros and ones with a small ``x'Qx``, and a lower bound on all of them.

    Parameters
    ----------
    Q : array, sparse matrix or DataFrame of shape (n, n), or dict from pair of names to number
        Any square matrix, such as an upper triangular one. A dict has the linear terms at pairs of a name
        with itself, as in D-Wave's tools; entries ``(a, b)`` and ``(b, a)`` add up.
    bound, exact, executor, seed, **options
        As for :func:`max_cut`; with ``exact=True`` the numbers are proven to be best.

    Returns
    -------
    BinaryMinimum

    Raises
    ------
    TypeError, ValueError
        If `Q` is not square or not finite, a key is no pair, or an option is unknown.

    References
    ----------
    De Simone (1990), The cut polytope and the boolean quadric polytope, Discrete Math. 79.
    """
    i, j, values, names = _terms(Q)
    n = len(names)
    if n < 1:
        raise ValueError("Q has no variables; expected at least one")
    half = [Fraction(v) / 2 for v in values.tolist()]
    linear = [Fraction(0)] * n
    pairs: dict[tuple[int, int], Fraction] = {}
    for a, b, h in zip(i.tolist(), j.tolist(), half, strict=True):
        linear[a] += h
        linear[b] += h
        if a != b:
            pair = (min(a, b), max(a, b))
            pairs[pair] = pairs.get(pair, Fraction(0)) + h
    exact_weights = [-w for w in linear] + list(pairs.values())
    weights = np.array([float(w) for w in exact_weights])
    ends = [(0, v + 1) for v in range(n)] + [(a + 1, b + 1) for a, b in pairs]
    off = sum(
        (abs(w - Fraction(f)) for w, f in zip(exact_weights, weights.tolist(), strict=True)), Fraction(0)
    )
    tail, head = np.array(ends).T
    whole = sp.csr_array((weights, (tail, head)), (n + 1, n + 1))
    cut = max_cut(
        sp.csr_array(whole + whole.T), bound=bound, exact=exact, executor=executor, seed=seed, **options
    )
    x = (cut.partition[1:] != cut.partition[0]).astype(np.intp)
    value = sum(
        (Fraction(v) for v, a, b in zip(values.tolist(), i, j, strict=True) if x[a] and x[b]), Fraction(0)
    )
    least = min(-cut.bound - float(off) * (1 + 4 * UNIT), float(value))
    least = down(least) if off or Fraction(least) > value else least
    optimal = cut.optimal if not off else Lattice.of(values).proves(least, float(value), largest=False)
    return BinaryMinimum(x, dict(zip(names, x.tolist(), strict=True)), float(value), least, optimal, cut)


def _terms(Q: Any) -> tuple[IntArray, IntArray, Array, list[Hashable]]:
    """Return rows, columns and values of all terms, and the names of the variables."""
    if isinstance(Q, Mapping):
        names: dict[Hashable, int] = {}
        for key in Q:
            if not isinstance(key, tuple) or len(key) != 2:
                raise TypeError(f"Q has the key {key!r}; expected pairs of names, (a, a) for a linear term")
            for name in key:
                names.setdefault(name, len(names))
        values = finite_array(list(Q.values()), "Q") if Q else np.zeros(0)
        ends = np.array([(names[a], names[b]) for a, b in Q], dtype=np.intp).reshape(-1, 2)
        return ends[:, 0], ends[:, 1], values, list(names)
    labels = labels_of(Q, "Q")
    if sp.issparse(Q):
        terms = Q.tocoo()
        shape, i, j, values = terms.shape, terms.row, terms.col, finite_array(terms.data, "Q")
    else:
        array = finite_array(Q, "Q", ndim=2)
        i, j = np.nonzero(array)
        shape, values = array.shape, array[i, j]
    if shape[0] != shape[1]:
        raise ValueError(f"Q has shape {shape}; expected a square matrix")
    found = range(shape[0]) if labels is None else labels
    return i.astype(np.intp), j.astype(np.intp), values, list(found)
