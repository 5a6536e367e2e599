"""Answers that are precision matrices: their inverses, their graphs, and paths of them.

A zero of a precision matrix means that two variables are independent given all others. The other pairs are
the edges of a graph, with partial correlations as weights. A path has the answers for several weights of a
penalty: a sequence, a table, criteria, and a plot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import Array, Frame, positive_integer
from bregopt.errors import did_you_mean, is_one_of, require
from bregopt.io.pandas_labels import framed, is_pandas
from bregopt.linalg import inverse_of, root_of
from bregopt.plotting import Axes, plot_graph, plot_path
from bregopt.records import cached_property, dataclass, field_names
from bregopt.routes.solution import Solution

__all__ = ["GraphicalLassoPath", "GraphicalLassoSolution", "PrecisionSolution"]

_CRITERIA = ("ebic", "bic")


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
