"""The answer to a sparse inverse covariance problem: the precision matrix, its inverse and its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.cache import cached_property
from bregopt.errors import require
from bregopt.io.pandas_labels import is_pandas, pandas_module
from bregopt.linalg import inverse_of, root_of
from bregopt.routes.solution import Solution

__all__ = ["GraphicalLassoSolution"]


@dataclass(frozen=True, eq=False, repr=False)
class GraphicalLassoSolution(Solution):
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

    @cached_property
    def covariance(self) -> Any:
        """The inverse of ``X``, a DataFrame if that is one; None without an answer."""
        if self.X is None:
            return None
        X: Any = self.X
        root = root_of(np.asarray(X))
        assert root is not None
        inverse = inverse_of(root)
        inverse.setflags(write=False)
        if is_pandas(X, "DataFrame"):
            return pandas_module().DataFrame(inverse.copy(), index=X.index, columns=X.columns)
        return inverse

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
