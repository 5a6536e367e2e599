"""Completions of largest determinant, and covariance selection: a matrix, its inverse, and a graph."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import Array, rectangular, symmetric_matrix
from bregopt.errors import did_you_mean
from bregopt.io.graphs import GraphLike
from bregopt.io.pandas_labels import Labels, aligned, labeled, labels_of, pair_labels
from bregopt.modeling.atoms import diag, inner
from bregopt.modeling.convex.divergence import log_det
from bregopt.modeling.objectives import Maximize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.arguments import LABELS_SHOWN, Pairs, check_arguments, fixed_pairs
from bregopt.problems.correlation.request import given_matrix
from bregopt.problems.logdet.precision import PrecisionSolution
from bregopt.program.lowrank import LowRank
from bregopt.records import replace
from bregopt.routes.options import SolveOptions
from bregopt.routes.solution import Solution, Status

__all__ = ["covariance_selection", "max_det_completion"]

_NO_DERIVATIVES = "derivatives of completions are not known; declare the problem in the language for them"


def max_det_completion(
    S: ArrayLike, edges: GraphLike | None = None, **options: Unpack[SolveOptions]
) -> Solution:
    """Return the positive definite matrix of largest determinant with given entries.

    Its inverse is zero at all other entries.

    Parameters
    ----------
    S : array_like or DataFrame of shape (n, n)
        Symmetric. Its diagonal, and its entries on the edges, are kept; the others are ignored and may be
        NaN.
    edges : networkx or igraph graph, symmetric mask of shape (n, n), or pairs of shape (k, 2); optional
        Vertices are integers, or the labels of `S`. By default all entries that are not NaN.
    **options
        Options of :meth:`bregopt.Problem.solve`.

    Returns
    -------
    Solution
        ``X`` is the completion, a DataFrame if `S` is one, and `value` its log-determinant. ``duals`` are
        those of the diagonal and of the edges. The problem is infeasible if there is no positive definite
        completion.

    Raises
    ------
    TypeError, ValueError
        If `S` is not symmetric, or has NaN on the diagonal or an edge, or a number that is not above 0 on the
        diagonal; if the edges are no graph on its rows; or if an option is unknown.

    Notes
    -----
    If the graph is chordal, the inverse is a sum of inverses of the submatrices of its cliques, less those
    of the separators. Otherwise Newton's method finds it.

    References
    ----------
    Dempster (1972), Covariance selection, Biometrics 28; Grone, Johnson, Sa, Wolkowicz (1984), Positive
    definite completions of partial Hermitian matrices, Linear Algebra Appl. 58.

    Examples
    --------
    >>> import bregopt as bo
    >>> nan = float("nan")
    >>> bo.max_det_completion([[1, 0.5, nan], [0.5, 1, 0.4], [nan, 0.4, 1]]).X[0].round(6).tolist()
    [1.0, 0.5, 0.2]
    """
    check_arguments(max_det_completion, options)
    labels = labels_of(S, "S")
    given = given_matrix(_no_factor(S), "unknown", "S")
    values = np.asarray(given.A)
    n = len(values)
    if given.no_variance is not None:
        raise ValueError(f"S is NaN on the diagonal, at {given.no_variance}; expected a number above 0")
    _check_diagonal(values, labels)
    if edges is None:
        known = np.ones((n, n), dtype=bool) if given.unknown is None else ~given.unknown
        i, j = np.nonzero(np.triu(known, 1))
    else:
        i, j = _read_edges(edges, n, labels)
        given.check_known(i, j, "edges")
    variances, X = values.diagonal(), PSD(n, name="X")
    s = np.sqrt(variances)
    rows = [(variances * diag(X) == variances).named("diagonal")]
    if len(i):
        rows.append((s[i] * s[j] * X[i, j] == values[i, j]).named("edges"))
    if labels is not None:
        axes = [labels, pair_labels(labels, i, j)] if len(i) else [labels]
        for row, axis in zip(rows, axes, strict=True):
            row.axes = (axis,)
    objective = log_det(X) + float(np.log(variances).sum())
    solution = _in_units(Problem(Maximize(objective), rows).solve(**options), np.outer(s, s))
    if solution.status == Status.OPTIMAL:  # of other answers that might not be positive definite
        kept = np.eye(n, dtype=bool)
        kept[i, j] = kept[j, i] = True
        solution = replace(solution, X=np.where(kept, values, solution.X))
    return labeled(solution, labels)


def covariance_selection(
    S: ArrayLike, edges: GraphLike, **options: Unpack[SolveOptions]
) -> PrecisionSolution:
    """Return the precision matrix of largest likelihood that is zero outside a graph.

    It maximizes ``log det X - <S, X>``. Its inverse is the completion of largest determinant of `S`
    (:func:`max_det_completion`).

    Parameters
    ----------
    S : array_like or DataFrame of shape (n, n)
        An empirical covariance. Only its diagonal and its entries on the edges count.
    edges : networkx or igraph graph, symmetric mask of shape (n, n), or pairs of shape (k, 2)
        Vertices are integers, or the labels of `S`.
    **options
        Options of :meth:`bregopt.Problem.solve`.

    Returns
    -------
    PrecisionSolution
        ``X`` is the precision matrix, a DataFrame if `S` is one, and ``covariance`` its inverse. ``duals``
        are those of the zeros. The problem is unbounded if `S` has no positive definite completion, such as
        with fewer samples than
        vertices in a clique.

    Raises
    ------
    TypeError, ValueError
        If `S` is not symmetric or finite, or has a number that is not above 0 on the diagonal; if the edges
        are no graph on its rows; or if an option is unknown.

    References
    ----------
    Dempster (1972), Covariance selection, Biometrics 28.

    Examples
    --------
    >>> import bregopt as bo
    >>> S = [[1, 0.5, 0.3], [0.5, 1, 0.4], [0.3, 0.4, 1]]
    >>> bo.covariance_selection(S, [[0, 1], [1, 2]]).X[0].round(4).tolist()
    [1.3333, -0.6667, 0.0]
    """
    check_arguments(covariance_selection, options)
    labels = labels_of(S, "S")
    values = symmetric_matrix(_no_factor(S), "S")
    n = len(values)
    _check_diagonal(values, labels)
    outside = np.triu(np.ones((n, n), dtype=bool), 1)
    outside[_read_edges(edges, n, labels)] = False
    i, j = np.nonzero(outside)
    variances, X = values.diagonal(), PSD(n, name="X")
    s = np.sqrt(variances)
    rows = [(X[i, j] / (s[i] * s[j]) == 0).named("zeros")] if len(i) else []
    if labels is not None and rows:
        rows[0].axes = (pair_labels(labels, i, j),)
    # Entries of S outside the graph have no effect; without them the start is nearer.
    units = np.outer(s, s)
    kept = np.where(outside | outside.T, 0.0, values / units)
    objective = log_det(X) - inner(kept, X) - float(np.log(variances).sum())
    solution = _in_units(Problem(Maximize(objective), rows).solve(**options), 1 / units)
    if solution.X is not None:
        solution = replace(solution, X=np.where(outside | outside.T, 0.0, solution.X))
    return labeled(PrecisionSolution.of(solution), labels)


def _in_units(solution: Solution, units: Array) -> Solution:
    """Return the solution in the units of `S`; the problem is solved in correlations."""
    ray = solution.ray and solution.ray._replace(X=units * solution.ray.X)
    X = None if solution.X is None else units * solution.X
    return replace(solution, X=X, ray=ray, _restated=_NO_DERIVATIVES)


def _no_factor(S: Any) -> Any:
    if isinstance(S, LowRank):
        raise TypeError("S is LowRank; expected a dense matrix: pass S.dense()")
    return S


def _check_diagonal(S: Array, labels: Labels) -> None:
    wrong = np.flatnonzero(S.diagonal() <= 0)
    if len(wrong):
        k = int(wrong[0])
        raise ValueError(
            f"S has {S[k, k]:g} on the diagonal, at {k if labels is None else labels[k]}; expected numbers "
            "above 0"
        )


def _read_edges(edges: Any, n: int, labels: Labels) -> Pairs:
    """Return the ends ``i < j`` of the edges, each edge once.

    Parameters
    ----------
    edges : networkx or igraph graph, symmetric mask of shape (n, n), or pairs of shape (k, 2)
        Vertices are integers from 0 to n - 1, or the labels of the matrix.
    n : int
    labels : pandas.Index or None

    Raises
    ------
    TypeError, ValueError
        If the edges are none of these, or the graph is directed or has other vertices.
    """
    if hasattr(edges, "is_directed"):
        return fixed_pairs(_of_graph(edges, n, labels), n, None, "edges")
    if sp.issparse(edges):
        edges = rectangular(edges, "edges") != 0
    return fixed_pairs(aligned(edges, labels, "edges"), n, labels, "edges", "S")


def _of_graph(graph: Any, n: int, labels: Labels) -> Any:
    """Return the edges of a graph as pairs of positions."""
    if graph.is_directed():
        raise TypeError(
            "edges is a directed graph; expected an undirected one, such as graph.to_undirected()"
        )
    if hasattr(graph, "get_edgelist"):
        names = graph.vs["name"] if "name" in graph.vs.attributes() else range(graph.vcount())
        pairs = [(names[a], names[b]) for a, b in graph.get_edgelist()]
    else:
        names, pairs = graph.nodes, list(graph.edges(data=False))
    place = {name: k for k, name in enumerate(range(n) if labels is None else labels)}
    unknown = next((name for name in names if name not in place), None)
    if unknown is not None:
        hint = did_you_mean(str(unknown), map(str, place), LABELS_SHOWN) if labels is not None else ""
        expected = f"integers from 0 to {n - 1}" if labels is None else "labels of the matrix"
        raise ValueError(f"edges has the vertex {unknown!r}{hint}; expected {expected}")
    return np.array([(place[pair[0]], place[pair[1]]) for pair in pairs], dtype=np.intp).reshape(-1, 2)
