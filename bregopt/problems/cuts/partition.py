"""Partitions of graphs in k parts of given sizes, with bounds by semidefinite relaxation.

Let ``X_ij`` be 1 if ``i`` and ``j`` share a part and ``-1/(k-1)`` if not. ``X`` is psd with unit diagonal,
and ``(k-1)/(2k) <L, X>`` is the weight of the edges between parts (Frieze and Jerrum 1997). The sizes ``m_p``
fix ``e'Xe = (k sum m_p^2 - n^2) / (k-1)``.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import IntArray, Mask
from bregopt.io.graphs import GraphLike, read_graph
from bregopt.modeling.atoms import diag, inner, quad_form
from bregopt.modeling.objectives import Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.cuts.answer import PartedGraph, check_bound, generator, number_of_parts, part_sizes
from bregopt.problems.cuts.exact import partitions
from bregopt.problems.cuts.parts import PartSearch, numbered
from bregopt.problems.cuts.proof import Proof, relaxed, unrelaxed
from bregopt.problems.cuts.triangles import tightened
from bregopt.records import dataclass, field_names
from bregopt.routes.base import Seed
from bregopt.routes.options import time_limit
from bregopt.routes.solution import Solution
from bregopt.routes.solve_options import CutOptions

__all__ = ["Partition", "partition"]

# Shares of the time limit: of the search before the relaxation, and of both; the rest is for its rounding.
_SEARCHED, _RELAXED = 0.5, 0.9


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
    bound: Literal["sdp", "triangles", False] = "sdp",
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
    bound : {"sdp", "triangles", False}
        The relaxation. "triangles" generates rows that all partitions satisfy, for a sharper bound of graphs
        of up to 500 vertices. False solves none; `bound` of the answer is 0 then.

    Returns
    -------
    Partition

    Raises
    ------
    TypeError, ValueError
        If the graph is directed, has loops, negative weights or fewer than two vertices, if `k` or `sizes` do
        not fit it, or an option is unknown.

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
    limit = time_limit(options)
    with clock.limited(limit):
        parsed = read_graph(graph, weights)
        n = parsed.n
        check_bound(bound, n)
        number_of_parts(k, n)
        wanted = part_sizes(sizes, k, n)
        proof = Proof(parsed, largest=False)
        search = PartSearch(
            parsed.adjacency,
            wanted,
            rng,
            proof.suggests,
            bool(options.get("progress")),
        )

        def best() -> IntArray:
            return search.best

        def allowed(sizes: IntArray) -> Mask:
            return np.asarray((np.sort(sizes) == np.sort(wanted)).all(axis=1))

        every = partitions(n, k, allowed, max(wanted)) if bound else None
        if every is not None:  # up to 2^15 partitions: the best of them takes less time than a search
            search.take(proof.best_of(every))
        with clock.reserving((1 - _SEARCHED) * (limit or 0.0) if bound else 0.0):
            if every is None:
                search.run()
        answer = unrelaxed(proof.bound)
        if bound:
            with clock.reserving((1 - _RELAXED) * (limit or 0.0)):
                X = PSD(n, name="X")
                spread = (k * sum(size**2 for size in wanted) - n**2) / (k - 1)
                problem = Problem(
                    Minimize(inner((k - 1) / (2 * k) * parsed.laplacian, X)),
                    [diag(X) == 1, quad_form(np.ones(n), X) == spread],
                )
                if bound == "triangles":
                    answer = tightened(problem, X, k, proof, best, options, search.round_matrix)
                else:
                    answer = relaxed(problem, proof, best, options)
            if every is None:
                search.round_matrix(answer.X)
        found = proof.settled(search.best, lambda: every)
    labels, cut = numbered(found.part, wanted), proof.weight(found.part)
    inherited = {name: getattr(answer, name) for name in field_names(Solution)}
    return Partition(
        **inherited,
        graph=parsed,
        labels=labels,
        parts=tuple([parsed.nodes[v] for v in np.flatnonzero(labels == p)] for p in range(k)),
        cut=cut,
        bound=min(found.bound, cut),
        optimal=found.optimal,
    ).timed(start)
