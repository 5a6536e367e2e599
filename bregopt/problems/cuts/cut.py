"""Cuts of graphs in two sides, with bounds by semidefinite relaxation (Kulis et al. 2009, §6.4).

Let the signs ``s`` give the side of each vertex, and let ``L`` be the Laplacian. Then ``s'Ls / 4`` is the
weight of the cut. The relaxation replaces ``ss'`` by a psd ``X`` with unit diagonal, and the squared
difference of the sizes of the sides by ``e'Xe``.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import IntArray, Mask
from bregopt.io.graphs import Graph, GraphLike, read_graph
from bregopt.modeling.atoms import diag, inner, quad_form
from bregopt.modeling.bounds import between
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.objectives import Maximize, Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.cuts.answer import PartedGraph, check_bound, first_sizes, generator
from bregopt.problems.cuts.exact import partitions
from bregopt.problems.cuts.multilevel import SignGraph, refined
from bregopt.problems.cuts.proof import Proof, relaxed, unrelaxed
from bregopt.problems.cuts.search import Search
from bregopt.problems.cuts.triangles import tightened
from bregopt.records import dataclass, field_names
from bregopt.routes.base import Seed
from bregopt.routes.options import time_limit
from bregopt.routes.solution import Solution
from bregopt.routes.solve_options import CutOptions

__all__ = ["Cut", "max_cut", "min_balanced_cut"]

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
    bound: Literal["sdp", "triangles", False] = "sdp",
    seed: Seed | None = 0,
    **options: Unpack[CutOptions],
) -> Cut:
    """Return a balanced cut of small weight, and a lower bound on the weight of every balanced cut.

    Parameters
    ----------
    graph : networkx or igraph graph, adjacency matrix (sparse, dense or DataFrame) of shape (n, n), or edges
        Edges are an array of shape ``(m, 2)`` or a pair of arrays, of integers from 0 on or of strings, or a
        list of pairs of tuples; the vertices are those that occur in an edge. The graph need not be
        connected, and a graph or a matrix may have isolated vertices.
    weights : str or array of shape (m,), optional
        The name of the edge attribute of a networkx or igraph graph, or the weights of the edges, none below
        0; by default one for every edge.
    imbalance : float in [0, 1)
        The sides may differ by this fraction of the number of vertices, and always by one if it is odd. The
        search begins at the cut with equal sides of the same call without `imbalance`, which it solves
        first: without a time limit the cut is never worse than that one.
    sizes : two ints, optional
        The numbers of vertices of the two sides, instead of `imbalance`.
    bound : {"sdp", "triangles", False}
        The relaxation. "triangles" generates rows that all cuts satisfy, for a sharper bound of graphs of up
        to 500 vertices. False solves none; `bound` of the answer is 0 then.
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
        If the graph is directed, has loops, negative weights or fewer than two vertices, or an option is
        unknown.

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
    bound: Literal["sdp", "triangles", False] = "sdp",
    seed: Seed | None = 0,
    **options: Unpack[CutOptions],
) -> Cut:
    """Return a cut of large weight, and an upper bound on the weight of every cut.

    Parameters
    ----------
    graph, weights, seed, **options
        As for :func:`min_balanced_cut`; weights may be negative here.
    bound : {"sdp", "triangles", False}
        As for :func:`min_balanced_cut`; without a relaxation it is the sum of the weights above 0.

    Returns
    -------
    Cut

    Raises
    ------
    TypeError, ValueError
        If the graph is directed, has loops or fewer than two vertices, or an option is unknown.

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
        X = PSD(parsed.n, name="X")
        problem = Problem(Maximize(inner(parsed.laplacian / 4, X)), [diag(X) == 1])
        signs = SignGraph(-parsed.adjacency, np.ones(parsed.n, dtype=np.intp), 0, parsed.n)
        return _found(parsed, signs, problem, X, bound, rng, options, largest=True)[0].timed(start)


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
    X = PSD(graph.n, name="X")
    problem = Problem(
        Minimize(inner(graph.laplacian / 4, X)), [diag(X) == 1, _balance(X, graph.n, least, most)]
    )
    signs = SignGraph(graph.adjacency, np.ones(graph.n, dtype=np.intp), least, most)
    return _found(graph, signs, problem, X, bound, rng, options, begin, kept)


def _found(
    graph: Graph,
    signs: SignGraph,
    problem: Problem,
    X: PSD,
    bound: str | bool,
    rng: np.random.Generator,
    options: Mapping[str, Any],
    begin: Callable[[], Sequence[IntArray]] = tuple,
    kept: Sequence[IntArray] = (),
    largest: bool = False,
) -> tuple[Cut, IntArray | None]:
    """Return the best partition of a search and of roundings of a relaxation, and that of the search alone.

    The search is that without a relaxation, so that no cut is worse than without one. The relaxation of a
    small graph takes less time, and comes first; the search follows where no rounding is proven. It begins
    with the partitions `begin`; the answer is no worse than these and those `kept`.
    """
    proof = Proof(graph, largest)
    limit = _left()
    progress = bool(options.get("progress"))
    early = bool(bound) and proof.small
    stream = copy.deepcopy(rng)  # of roundings: the search draws what it draws without them

    def refine_into(search: Search, sides: Sequence[IntArray]) -> None:
        for side in sides:
            search.add(refined(signs, side))

    def searched() -> Search:
        search = Search(signs, rng, proof.suggests, progress)
        refine_into(search, begin())
        search.run()
        return search

    if early:
        search = Search(signs, stream, proof.suggests, progress)
    else:
        with clock.reserving((1 - _SEARCHED) * limit if bound else 0.0):
            search = searched()
    alone = None if early else search.best
    refine_into(search, kept)
    answer = unrelaxed(proof.bound)
    if bound:

        def best() -> IntArray:
            return search.best

        with clock.reserving((1 - _RELAXED) * limit):
            if bound == "triangles":
                answer = tightened(problem, X, 2, proof, best, options, search.round_matrix)
            else:
                answer = relaxed(problem, proof, best, options)
        search.round_matrix(answer.X, combine=not early)
    if early and not proof.suggests(search.best):
        rounded, search = search, searched()
        alone = search.best
        refine_into(search, [*kept, rounded.best])
        search.round_matrix(answer.X)

    def every() -> IntArray | None:
        return _all_sides(signs) if bound else None

    found = proof.settled(search.best, every)
    side, cut = found.part, proof.weight(found.part)
    inherited = {name: getattr(answer, name) for name in field_names(Solution)}
    first, second = ([graph.nodes[k] for k in np.flatnonzero(side == sign)] for sign in (1, -1))
    whole = Cut(
        **inherited,
        graph=graph,
        partition=side,
        sides=(first, second),
        cut=cut,
        bound=max(found.bound, cut) if largest else min(found.bound, cut),
        optimal=found.optimal,
        largest=largest,
    )
    return whole, alone


def _all_sides(graph: SignGraph) -> IntArray | None:
    """Return all partitions whose first side has an allowed size, None if there are many."""

    def allowed(sizes: IntArray) -> Mask:
        fits = (sizes >= graph.least) & (sizes <= graph.most)
        return np.asarray(fits.any(axis=1))

    part = partitions(graph.n, 2, allowed, max(graph.most, graph.n - graph.least))
    if part is None:
        return None
    size = (part == 0).sum(axis=1)
    fits = (size >= graph.least) & (size <= graph.most)
    return np.where(part == np.where(fits, 0, 1)[:, None], 1, -1)


def _left() -> float:
    """Return the time that is left of a limit; without one it is 0, as nothing is reserved then."""
    left = clock.remaining()
    return max(left, 0.0) if left < np.inf else 0.0


def _balance(X: PSD, n: int, least: int, most: int) -> Constraint:
    """Return the row on the squared difference of the sizes of the sides."""
    size = quad_form(np.ones(n), X)
    differences = [abs(2 * first - n) for first in (least, most)]
    smallest = n % 2 if 2 * least <= n <= 2 * most else min(differences)
    low, high = smallest**2, max(differences) ** 2
    if low == high:
        return size == float(high)
    return between(size, float(low), float(high)) if low else size <= float(high)
