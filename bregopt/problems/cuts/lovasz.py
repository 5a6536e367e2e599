"""Lovász's theta of a graph."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import scipy.sparse as sp

from bregopt.io.graphs import GraphLike, read_graph
from bregopt.modeling.atoms import quad_form, trace
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.objectives import Maximize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.arguments import check_arguments
from bregopt.routes.options import SolveOptions
from bregopt.routes.solution import Solution

__all__ = ["lovasz_theta"]


def lovasz_theta(graph: GraphLike, **options: Unpack[SolveOptions]) -> Solution:
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
