"""Cuts of graphs: a bound by semidefinite relaxation, a partition by rounding (Kulis et al. 2009, §6.4).

Let the signs ``s`` give the side of each vertex, and let ``L`` be the Laplacian. Then ``s'Ls / 4`` is the
weight of the cut. The relaxation replaces ``ss'`` by a psd ``X`` with unit diagonal, and the squared
difference of the sizes of the sides by ``e'Xe``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt import clock
from bregopt.arrays import IntArray, finite_array
from bregopt.io.graphs import Graph, read_graph
from bregopt.modeling.atoms import diag, inner, quad_form, trace
from bregopt.modeling.bounds import between
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.objectives import Maximize, Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.psd import PSD
from bregopt.problems.arguments import check_arguments
from bregopt.problems.rounding import best_partition
from bregopt.program import LowRank
from bregopt.program.lowrank import Matrix
from bregopt.routes.base import Seed
from bregopt.routes.options import check_options, time_limit
from bregopt.routes.solution import Solution

__all__ = ["Cut", "lovasz_theta", "max_cut", "min_balanced_cut"]

_SHARE = 0.9  # share of the time limit for the relaxation; the rest is for rounding
_ROUND_OFF = 1e-6  # round-off of a bound: absolute for whole weights, relative to the cut for others


@dataclass(frozen=True, eq=False, repr=False)
class Cut(Solution):
    """A partition with a proof: `cut` is its weight, and no allowed partition is better than `bound`.

    The attributes of :class:`~bregopt.Solution` are those of the relaxation, in units of a cut.

    Attributes
    ----------
    partition : int array of shape (n,)
        The side of each vertex, 1 or -1, in the order of the graph; for edges in the order of sorted names.
    sides : tuple of two lists
        The vertices of each side, by their names in the graph.
    cut : float
        Weight of the edges between the sides.
    bound : float
        Proven: no allowed cut weighs less, or for a maximum cut more.
    optimal : bool
        Whether the bound proves that no partition is better; integer weights give integer cuts.
    largest : bool
        Whether a large cut was asked for.
    duals : tuple
        The duals of ``diag(X) == 1``, and for a balanced cut of the row on ``e'Xe``.
    """

    partition: Any = None
    sides: Any = None
    cut: float = np.nan
    bound: float = np.nan
    optimal: bool = False
    largest: bool = False

    def __repr__(self) -> str:
        return f"{self._sentence}\n{super().__repr__()}"

    @property
    def _sentence(self) -> str:
        sizes = " and ".join(str(len(side)) for side in self.sides)
        proven = "most" if self.largest else "least"
        verdict = f"proven at {proven} {self.bound:.6g}" + (", so optimal" if self.optimal else "")
        return f"cut of weight {self.cut:g} into {sizes} vertices, {verdict}"

    def _facts(self) -> dict[str, str]:
        return {"cut": self._sentence.removeprefix("cut of "), **super()._facts()}


def min_balanced_cut(
    graph: Any, weights: Any = None, imbalance: float = 0.0, *, seed: Seed = 0, **options: Any
) -> Cut:
    """Return a balanced cut of small weight, and a lower bound on the weight of every balanced cut.

    Parameters
    ----------
    graph : networkx graph, adjacency matrix (sparse, dense or DataFrame) of shape (n, n), or edges
        Edges are an array of shape ``(m, 2)`` or a pair of arrays, of integers from 0 on or of strings; the
        vertices are those that occur in an edge. The graph need not be connected, and a networkx graph or a
        matrix may have isolated vertices.
    weights : str or array of shape (m,), optional
        The networkx edge attribute, or the weights of the edges, none below 0; by default one for every edge.
    imbalance : float in [0, 1)
        The sides may differ by this fraction of the number of vertices, and always by one if it is odd.
    seed : int, at least 0, numpy.random.Generator or SeedSequence
        Seed of the random hyperplanes of the rounding.
    **options
        Options of :meth:`bregopt.Problem.solve`, for the relaxation: ``tol``, ``time_limit``, ``verbose``...

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
    rng = _generator(min_balanced_cut, seed, options)
    with clock.limited(time_limit(options)):
        parsed = read_graph(graph, weights)
        n, slack = parsed.n, _largest_imbalance(parsed.n, imbalance)
        X = PSD(n, name="X")
        size = quad_form(np.ones(n), X)
        least = n % 2  # if n is odd, the sides differ by at least one
        balance = size == float(least) if slack == least else _between(least, size, slack**2)
        sizes = range(max((n - slack) // 2, 1), min((n + slack) // 2, n - 1) + 1)
        relaxed = _relaxed(
            Problem(Minimize(inner(parsed.laplacian / 4, X)), [diag(X) == 1, balance]), options
        )
        side = best_partition(
            parsed.adjacency, _matrix(relaxed, n, rng), sizes, rng, bool(options.get("progress"))
        )
    cut = parsed.cut(side)
    return _rounded(relaxed, parsed, side, min(max(relaxed.dual_value, 0.0), cut))


def max_cut(graph: Any, weights: Any = None, *, seed: Seed = 0, **options: Any) -> Cut:
    """Return a cut of large weight, and an upper bound on the weight of every cut.

    Parameters
    ----------
    graph, weights, seed, **options
        As for :func:`min_balanced_cut`; weights may be negative here.

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
    rng = _generator(max_cut, seed, options)
    with clock.limited(time_limit(options)):
        parsed = read_graph(graph, weights, signed=True)
        X = PSD(parsed.n, name="X")
        relaxed = _relaxed(Problem(Maximize(inner(parsed.laplacian / 4, X)), [diag(X) == 1]), options)
        side = best_partition(
            -parsed.adjacency, _matrix(relaxed, parsed.n, rng), None, rng, bool(options.get("progress"))
        )
    return _rounded(relaxed, parsed, side, max(relaxed.dual_value, parsed.cut(side)), largest=True)


def lovasz_theta(graph: Any, **options: Any) -> Solution:
    """Return Lovász's theta of a graph, which lies between its independence number and clique cover number.

    Parameters
    ----------
    graph
        As for :func:`min_balanced_cut`; weights are ignored.
    **options
        Options of :meth:`bregopt.Problem.solve`.

    Returns
    -------
    Solution
        Theta is its `value`; `dual_value` is a proven upper bound on theta and on the independence number.

    Raises
    ------
    TypeError, ValueError
        If the graph is directed, has loops or fewer than two vertices, or an option is unknown.

    References
    ----------
    Lovász (1979), On the Shannon capacity of a graph, IEEE Trans. Inform. Theory 25.
    """
    check_arguments(lovasz_theta, options)
    parsed = read_graph(graph, signed=True)
    X = PSD(parsed.n, name="X")
    i, j = sp.triu(parsed.adjacency, 1).nonzero()
    rows: list[Constraint] = [trace(X) == 1, *([X[i, j] == 0] if len(i) else [])]
    return Problem(Maximize(quad_form(np.ones(parsed.n), X)), rows).solve(**options)


def _relaxed(problem: Problem, options: dict[str, Any]) -> Solution:
    """Return the answer of a relaxation, within a share of the time limit of the cut."""
    limit = time_limit(options)
    with clock.limited(None if limit is None else _SHARE * limit):
        return problem.solve(**options)


def _generator(function: Callable[..., Cut], seed: Any, options: dict[str, Any]) -> np.random.Generator:
    """Return the generator of a seed; check the options before any work."""
    if "warm_start" in options:
        raise TypeError("a cut has no option 'warm_start': each graph is a problem of its own")
    check_arguments(function, options)
    own = {name: value for name, value in options.items() if name != "solver"}
    check_options(options.get("solver", "auto"), {**own, "seed": seed})
    return np.random.default_rng(seed)


def _largest_imbalance(n: int, imbalance: Any) -> int:
    """Return the largest allowed difference of the sizes of the sides; it has the parity of ``n``."""
    fraction = float(finite_array(imbalance, "imbalance", ndim=0))
    if not 0 <= fraction < 1:
        raise ValueError(f"imbalance is {fraction:g}; expected 0 <= imbalance < 1")
    slack = int(np.floor(fraction * n + 1e-9))  # 1e-9 covers the round-off of the product
    return max(slack - (slack - n) % 2, n % 2)


def _between(least: int, size: Any, most: int) -> Constraint:
    return between(size, float(least), float(most)) if least else size <= float(most)


def _matrix(relaxed: Solution, n: int, rng: np.random.Generator) -> Matrix:
    """Return the relaxation's ``X``, or a random rank-one matrix if the route stopped without one."""
    none = relaxed.X is None or (isinstance(relaxed.X, LowRank) and not relaxed.X.factor.any())
    return LowRank(rng.normal(size=(n, 1))) if none else relaxed.X


def _rounded(relaxed: Solution, graph: Graph, side: IntArray, bound: float, largest: bool = False) -> Cut:
    cut = graph.cut(side)
    whole = bool((graph.adjacency.data == np.round(graph.adjacency.data)).all())
    left = abs(cut - bound)
    inherited = {f.name: getattr(relaxed, f.name) for f in fields(Solution)}
    return Cut(
        **inherited,
        partition=side,
        sides=tuple([graph.nodes[k] for k in np.flatnonzero(side == sign)] for sign in (1, -1)),
        cut=cut,
        bound=bound,
        optimal=left < 1 - _ROUND_OFF if whole else left <= _ROUND_OFF * abs(cut),
        largest=largest,
    )
