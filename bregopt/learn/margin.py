"""Mahalanobis metrics from triplets, with the largest soft margin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from bregopt import LowRank, TripletChunks, soft_margin
from bregopt.arrays import RandomState
from bregopt.learn.base import LinearMetric, validated
from bregopt.learn.constraints import index_rows, triplets_from_labels
from bregopt.threads import threads_for

__all__ = ["SoftMarginMetricLearner"]

_RANK_TOL = 1e-9  # eigenvalues below this fraction of the largest give no component


class SoftMarginMetricLearner(LinearMetric):
    """The metric of trace one with the largest soft margin between far and near points.

    Maximizes ``rho - C sum_r xi_r`` subject to ``d(i, k)^2 - d(i, j)^2 >= rho - xi_r`` for each triplet
    ``(i, j, k)``. :meth:`transform` has as many components as the metric has rank.

    Parameters
    ----------
    C : float, optional
        Penalty weight of a slack, at least ``1 / R`` for ``R`` triplets: below that the problem is unbounded.
        The default is ``10 / R``.
    n_targets, n_impostors : int
        For triplets from labels: the numbers of nearest points of the same and of other classes; see
        :func:`bregopt.learn.triplets_from_labels`.
    n_triplets : int, optional
        Number of triplets to draw; all by default.
    tol : float
        Largest certified relative gap and residual of a fit that counts as converged.
    max_iter : int, optional
        None leaves the limit to the route. For triplets in chunks it limits the passes.
    solver_options : dict, optional
        Further options of :meth:`bregopt.Problem.solve`, such as ``{"solver": "psdboost"}``.
    random_state : int, Generator, RandomState or None
        Seed of the draw of triplets.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
    margin_ : float
        ``rho``.
    triplets_ : int array of shape (R, 3) or TripletChunks
    solution_, n_iter_, gap_, converged_, n_features_in_, feature_names_in_
        As for :class:`LogDetMetricLearner`.

    References
    ----------
    Shen, Welsh, Wang (2008), eq. 3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bregopt.learn import SoftMarginMetricLearner
    >>> learner = SoftMarginMetricLearner().fit(*load_iris(return_X_y=True))
    >>> round(float(learner.get_mahalanobis_matrix().trace()), 6)
    1.0
    """

    def __init__(
        self,
        C: float | None = None,
        *,
        n_targets: int = 1,
        n_impostors: int = 1,
        n_triplets: int | None = None,
        tol: float = 1e-6,
        max_iter: int | None = None,
        solver_options: Mapping[str, object] | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.C = C
        self.n_targets = n_targets
        self.n_impostors = n_impostors
        self.n_triplets = n_triplets
        self.tol = tol
        self.max_iter = max_iter
        self.solver_options = solver_options
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, triplets: ArrayLike | TripletChunks | None = None
    ) -> Self:
        """Learn the metric from labels, or from triplets.

        Parameters
        ----------
        X : array_like or DataFrame of shape (n, n_features)
        y : array_like of shape (n,), optional
            Classes, from which triplets are made if none are given.
        triplets : int array_like of shape (R, 3) or TripletChunks, optional
            Rows ``(i, j, k)`` of `X`: `i` should be nearer to `j` than to `k`. Those in chunks are solved by
            :meth:`bregopt.TripletChunks.solve`, whose options are then those of `solver_options`.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If input or parameters are bad, or ``C R < 1``, which makes the problem unbounded.
        """
        points, labels = validated(self, X, y, triplets is not None, "triplets=")
        if isinstance(triplets, TripletChunks):
            self.triplets_ = triplets
            solution = triplets.of(points).solve(self.C, **self._chunk_options())
        else:
            chosen = self._triplets(points, labels, triplets)
            self.triplets_, (i, j, k) = chosen, chosen.T
            solution = soft_margin((points[i] - points[k], points[i] - points[j]), self.C, **self._options())
        self.components_ = _components(self._keep(solution, ""))
        self.margin_ = float(solution.u["rho"])
        return self

    def _triplets(self, points: Any, labels: Any, triplets: Any) -> Any:
        """Return the triplets given, or those from labels."""
        if triplets is not None:
            return index_rows(triplets, "triplets", len(points), 3)
        return triplets_from_labels(
            points, labels, self.n_targets, self.n_impostors, self.n_triplets, self.random_state
        )

    def _chunk_options(self) -> dict[str, Any]:
        """Return the options for :meth:`bregopt.TripletChunks.solve`."""
        options = self._options()
        passes = options.pop("max_iter")
        return options if passes is None else {"max_passes": passes} | options


def _components(X: Any) -> Any:
    """Return ``L`` with ``X = L'L`` and as many rows as ``X`` has rank, the longest first."""
    with threads_for(X.shape[0]):
        if isinstance(X, LowRank):
            _, s, Vt = np.linalg.svd(X.factor.T, full_matrices=False)
            eigenvalues, V = s**2, Vt.T
        else:
            eigenvalues, V = np.linalg.eigh(X)
            eigenvalues, V = eigenvalues[::-1], V[:, ::-1]
    kept = eigenvalues > _RANK_TOL * eigenvalues[0]
    return (V[:, kept] * np.sqrt(eigenvalues[kept])).T
