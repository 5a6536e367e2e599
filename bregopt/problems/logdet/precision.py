"""Precision matrices: their inverses, their graphs, paths of them, and those of completions.

A zero of a precision matrix means that two variables are independent given all others. The other pairs are
the edges of a graph, with partial correlations as weights. A path has the answers for several weights of a
penalty: a sequence, a table, criteria, and a plot. The completion of largest determinant and covariance
selection are dual problems: the inverse of one is the matrix of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import Array, Frame, is_one_of, positive_integer, rectangular, symmetric_matrix
from bregopt.display import Axes, plot_graph, plot_path
from bregopt.errors import did_you_mean, require
from bregopt.io.graphs import GraphLike
from bregopt.io.matrices import Labels, aligned, framed, is_pandas, labeled, labels_of, pair_labels
from bregopt.linalg import inverse_of, root_of
from bregopt.modeling.atoms import diag, inner
from bregopt.modeling.convex.eigenvalues import log_det
from bregopt.modeling.convex.expression import Maximize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.arguments import LABELS_SHOWN, Pairs, fixed_pairs
from bregopt.problems.correlation.request import given_matrix
from bregopt.program.rows.base import LowRank
from bregopt.records import cached_property, dataclass, field_names, replace
from bregopt.routes.registry import SolveOptions, check_arguments
from bregopt.routes.solution import Solution, Status

_CRITERIA = ("ebic", "bic")
_NO_DERIVATIVES = "derivatives of completions are not known; declare the problem in the language for them"


@dataclass(frozen=True, eq=False, repr=False)
class PrecisionSolution(Solution):
    """A :class:`Solution` whose ``X`` is a precision matrix, the inverse of a covariance matrix."""

    @classmethod
    def of(cls, solution: Solution) -> PrecisionSolution:
        """Return an answer as one that is a precision matrix."""
        return cls(**{name: getattr(solution, name) for name in field_names(Solution)})

    @cached_property
    def covariance(self) -> Any:
        """The inverse of ``X``, a DataFrame if that is one; None without an answer."""
        if self.X is None:
            return None
        X: Any = self.X
        root = root_of(np.asarray(X))
        assert root is not None
        inverse, labels = inverse_of(root), getattr(X, "index", None)
        inverse.setflags(write=labels is not None)
        return framed(inverse, labels, labels)

    @property
    def n_edges(self) -> int:
        """The number of pairs with a nonzero entry."""
        return 0 if self.X is None else int(np.count_nonzero(np.triu(np.asarray(self.X), 1)))

    def to_networkx(self) -> Any:
        """Return the graph of conditional dependence.

        Returns
        -------
        networkx.Graph
            Its nodes are the labels, or indices, of the rows. An edge is a nonzero entry; its attributes are
            ``precision``, the entry, and ``weight``, the partial correlation.

        Raises
        ------
        ImportError
            If networkx is not installed.
        ValueError
            If there is no answer.
        """
        networkx = require("networkx", "graph")
        if self.X is None:
            raise ValueError(f"the answer is {self.status}; expected one with a matrix")
        given: Any = self.X
        X = np.asarray(given)
        names = list(given.index) if is_pandas(given, "DataFrame") else list(range(len(X)))
        scale = np.sqrt(X.diagonal())
        graph = networkx.Graph()
        graph.add_nodes_from(names)
        for i, j in np.argwhere(np.triu(X, 1)):
            partial = float(-X[i, j] / (scale[i] * scale[j]))
            graph.add_edge(names[i], names[j], weight=partial, precision=float(X[i, j]))
        return graph

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the graph of conditional dependence on a circle; returns the matplotlib axes.

        ``bo.Solution.plot(sol)`` draws the convergence.

        Raises
        ------
        ImportError
            If matplotlib is not installed; the message names the extra.
        ValueError
            If there is no answer.
        """
        if self.X is None:
            raise ValueError(f"the answer is {self.status}; expected one with a matrix")
        X: Any = self.X
        labels = list(X.index) if is_pandas(X, "DataFrame") else None
        return plot_graph(_partial_matrix(X), labels, ax)


@dataclass(frozen=True, eq=False, repr=False)
class GraphicalLassoSolution(PrecisionSolution):
    """A :class:`Solution` whose ``X`` is a sparse precision matrix.

    ``duals`` has one array ``U`` with ``|U|`` up to the penalty. It proves the bound ``logdet(S + U) + n``.

    Attributes
    ----------
    alpha : float
        Weight of the penalty.
    components : tuple of lists
        Labels, or indices, of the rows of each connected part, the largest first.
    loss : float
        ``<S, X> - logdet X``, the objective without the penalty.
    """

    alpha: float = 0.0
    components: tuple[list[Any], ...] = ()
    loss: float = float("nan")


class GraphicalLassoPath(Sequence[GraphicalLassoSolution]):
    """Answers of :func:`bregopt.graphical_lasso_path`, each with its own certificate.

    Attributes
    ----------
    alphas : array of shape (k,)
        Weights of the penalty.
    """

    def __init__(self, alphas: Array, solutions: Sequence[GraphicalLassoSolution]) -> None:
        self.alphas = alphas.copy()
        self.alphas.setflags(write=False)
        self._solutions = tuple(solutions)

    def __len__(self) -> int:
        return len(self._solutions)

    def __getitem__(self, k: Any) -> Any:
        """Return an answer by its place; a slice gives a path."""
        if isinstance(k, slice):
            return GraphicalLassoPath(self.alphas[k], self._solutions[k])
        return self._solutions[k]

    def __iter__(self) -> Iterator[GraphicalLassoSolution]:
        return iter(self._solutions)

    def __repr__(self) -> str:
        edges = [solution.n_edges for solution in self]
        proven = sum(solution.status == "optimal" for solution in self)
        return (
            f"bregopt graphical lasso path: {len(self)} answers, {proven} optimal, alpha "
            f"{self.alphas.max():.3g} to {self.alphas.min():.3g}, {min(edges)} to {max(edges)} edges"
        )

    def ebic(self, n_samples: int, gamma: float = 0.5) -> Array:
        """Return the extended Bayesian information criterion of each answer; the least one selects.

        Parameters
        ----------
        n_samples : int
            Number ``N`` of the samples of `S`.
        gamma : float, from 0 to 1
            Zero gives the BIC.

        Returns
        -------
        array of shape (k,)
            ``N (<S, X> - logdet X) + E log N + 4 gamma E log n``, with ``E`` edges; NaN without an answer.

        References
        ----------
        Foygel, Drton (2010), Extended Bayesian Information Criteria for Gaussian Graphical Models,
        NeurIPS 23, eq. 2.
        """
        N = positive_integer(n_samples, "n_samples")
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma is {gamma!r}; expected a number from 0 to 1")
        return np.array(
            [
                np.nan if s.X is None else N * s.loss + s.n_edges * (np.log(N) + 4 * gamma * np.log(len(s.X)))
                for s in self
            ]
        )

    def best(
        self, criterion: str = "ebic", *, n_samples: int | None = None, gamma: float = 0.5
    ) -> GraphicalLassoSolution:
        """Return the answer with the least value of a criterion.

        Parameters
        ----------
        criterion : {"ebic", "bic"}
        n_samples, gamma
            As for :meth:`ebic`; the covariance matrix does not tell the number of its samples.
        """
        if n_samples is None:
            raise TypeError(f"{criterion} needs the number of the samples of S; expected n_samples=N")
        if not is_one_of(criterion, _CRITERIA):
            raise ValueError(f"criterion is {criterion!r}{did_you_mean(str(criterion), _CRITERIA)}")
        values = self.ebic(n_samples, gamma if criterion == "ebic" else 0.0)
        if np.isnan(values).all():
            raise ValueError("no answer of the path has a matrix; expected one at least: raise alphas")
        return self._solutions[int(np.nanargmin(values))]

    def to_frame(self) -> Frame:
        """Return one row for each answer, as a DataFrame: alpha, status, edges, value, gap, seconds."""
        columns = ["alpha", "status", "edges", "value", "gap", "seconds"]
        rows = [
            (a, s.status, s.n_edges, s.value, s.gap, s.timings["total"])
            for a, s in zip(self.alphas, self, strict=True)
        ]
        return require("pandas", "pandas").DataFrame(rows, columns=columns)

    def plot(self, ax: Axes | None = None, *, n_samples: int | None = None, gamma: float = 0.5) -> Axes:
        """Draw the partial correlations against `alpha`; returns the matplotlib axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            The default is a new figure.
        n_samples, gamma
            As for :meth:`ebic`. With `n_samples` the criterion is drawn on an axis at the right, with a mark
            at its least value.
        """
        known = [s for s in self if s.X is not None]
        alphas = np.array([s.alpha for s in known])
        curves = np.array([_partial_matrix(s.X)[np.triu_indices(len(s.X), 1)] for s in known])
        if n_samples is None:
            return plot_path(alphas, curves, "partial correlation", ax)
        criterion = self.ebic(n_samples, gamma)
        values = criterion[[s.X is not None for s in self]]
        return plot_path(alphas, curves, "partial correlation", ax, values, "EBIC" if gamma else "BIC")


def _partial_matrix(X: Any) -> Array:
    """Return the partial correlations, zero on the diagonal."""
    matrix = np.asarray(X)
    scale = np.sqrt(matrix.diagonal())
    partial: Array = -matrix / np.outer(scale, scale)
    np.fill_diagonal(partial, 0.0)
    return partial


# --- Completions -------------------------------------------------------------------------------------------


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
