"""Optimal designs as answers: weights of candidates, and the proof of their efficiency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, ArrayOrFrame, ArrayOrSeries, IntArray, finite_array, positive_integer
from bregopt.io.pandas_labels import is_pandas, pandas_module
from bregopt.linalg import log_det, root_of
from bregopt.plotting import Axes
from bregopt.problems.logdet.answer import ProvenAnswer, draw_sensitivity
from bregopt.records import dataclass

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Design", "apportioned", "criterion_value"]


@dataclass(frozen=True, eq=False, repr=False)
class Design(ProvenAnswer):
    """Weights of candidates with the information matrix ``M = M0 + sum_i w_i M_i``.

    Attributes
    ----------
    criterion : str
        "D", "A" or "E".
    weights : array or Series of shape (m,)
        The share of the runs that each candidate takes; their sum is one.
    support : int array or Index
        The candidates with weight.
    information : array or DataFrame of shape (n, n)
        ``M``.
    value, bound : float
        ``log det M``, ``tr(K inv(M))`` or the smallest eigenvalue, and the proven bound on that of every
        allowed design.
    efficiency : float
        Proven: the design needs no more than ``1 / efficiency`` times the runs of the best one.
    gap : float
        ``1 - efficiency``.
    sensitivity : array or Series of shape (m,)
        ``<M_i, S>`` with ``S`` of ``inv(M)``, ``inv(M) K inv(M)``, or a convex combination of the projections
        on eigenvectors of the smallest eigenvalue. Its weighted mean is `level`.
    level : float
        ``<M - M0, S>``. By the equivalence theorem of Kiefer and Wolfowitz (1960) an optimal design without
        bounds and budgets has no sensitivity above it.
    """

    title: ClassVar[str] = "design"

    criterion: str
    weights: ArrayOrSeries
    support: IntArray | pd.Index[Any]
    information: ArrayOrFrame
    value: float
    bound: float
    efficiency: float
    sensitivity: ArrayOrSeries
    level: float
    _candidates: Any = None
    _prior: Any = None
    _K: Any = None

    def rounded(self, runs: int) -> IntArray | pd.Series[int]:
        """Return how many of `runs` experiments each candidate gets, by efficient apportionment.

        The counts sum to `runs`, and each candidate of the support has one at least. Bounds and budgets are
        those of weights, which counts meet only roughly.

        Parameters
        ----------
        runs : int
            At least the number of candidates in the support.

        Returns
        -------
        int array or Series of shape (m,)

        References
        ----------
        Pukelsheim, Rieder (1992), Efficient rounding of approximate designs, Biometrika 79.
        """
        counts = apportioned(np.asarray(self.weights), positive_integer(runs, "runs"))
        return _series(counts, self.weights)

    def efficiency_of(self, weights: ArrayLike) -> float:
        """Return a proven lower bound on the efficiency of other weights, or of counts of runs.

        Parameters
        ----------
        weights : array_like of shape (m,)
            None below 0, with any positive sum.
        """
        w = finite_array(weights, "weights", ndim=1)
        if w.shape != (len(self._candidates),) or w.min() < 0 or not w.any():
            raise ValueError(
                f"weights has shape {w.shape}; expected {(len(self._candidates),)}, none below 0, not all 0"
            )
        M = self._candidates.information(w / w.sum())
        value = criterion_value(self.criterion, M if self._prior is None else M + self._prior, self._K)
        return min(efficiency(self.criterion, value, self.bound, len(M)), 1.0)

    def plot(self, places: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
        """Draw the sensitivities of the candidates, and their weights.

        Parameters
        ----------
        places : array_like of shape (m,) or (m, 2), optional
            The settings of the factors. By default the columns of the candidates that are not constant, if
            there are one or two of them.
        ax : matplotlib axes, optional
            The default is a new figure.

        Returns
        -------
        matplotlib axes
        """
        at, names = self._places(places)
        return draw_sensitivity(
            at, np.asarray(self.sensitivity), np.asarray(self.weights), self.level, names, ax
        )

    def _places(self, places: Any) -> tuple[Array, list[Any]]:
        """Return the settings of the factors, and their names."""
        m = len(self._candidates)
        columns = getattr(self.information, "columns", None)
        if places is None:
            X = self._candidates.X if self._candidates.are_rows else np.zeros((1, 0))
            varying = np.flatnonzero(np.ptp(X, axis=0))
            if len(varying) not in (1, 2):
                raise ValueError(
                    "the candidates have more than two columns; pass places, the settings of the factors"
                )
            names = [f"column {k}" if columns is None else columns[k] for k in varying]
            return X[:, varying], names
        given = getattr(places, "columns", None)
        at = finite_array(places, "places", ndim=(1, 2))
        at = at[:, None] if at.ndim == 1 else at
        if len(at) != m or at.shape[1] not in (1, 2):
            raise ValueError(f"places has shape {at.shape}; expected {(m,)} or {(m, 2)}")
        return at, list(given) if given is not None else [f"factor {k}" for k in range(at.shape[1])]

    def _facts(self) -> dict[str, str]:
        names = {"D": "log det M", "A": "tr K inv(M)", "E": "smallest eigenvalue of M"}
        return {
            "value": f"{self.value:.8g}   bound {self.bound:.8g}   {names[self.criterion]}",
            "efficiency": f"at least 1 - {self.gap:.1e}, proven",
            "support": f"{len(self.support)} of {len(self.weights)} candidates",
            "effort": f"{self.iterations} steps",
        }


def criterion_value(criterion: str, M: Array, K: Array | None) -> float:
    """Return ``log det M``, ``tr(K inv(M))``, or the smallest eigenvalue."""
    if criterion == "E":
        return float(np.linalg.eigvalsh(M)[0])
    unit = np.sqrt(np.maximum(M.diagonal(), np.finfo(float).tiny))
    root = root_of(M / unit / unit[:, None])
    if criterion == "D":
        return -np.inf if root is None else log_det(root) + 2 * float(np.log(unit).sum())
    if root is None:
        return np.inf
    half = np.linalg.solve(root, np.diag(1 / unit))
    return float(np.vdot(half.T @ half, np.eye(len(M)) if K is None else K))


def efficiency(criterion: str, value: float, bound: float, n: int) -> float:
    """Return the efficiency of a design of this value relative to a bound on all values."""
    if criterion == "D":
        return float(np.exp((value - bound) / n))
    return bound / value if criterion == "A" else max(value, 0.0) / bound


def apportioned(weights: Array, runs: int) -> IntArray:
    """Return counts with sum `runs` near ``runs * weights``: efficient apportionment.

    Parameters
    ----------
    weights : array of shape (m,)
        With sum one.
    runs : int

    Raises
    ------
    ValueError
        If there are fewer runs than positive weights.
    """
    support = np.flatnonzero(weights)
    if runs < len(support):
        raise ValueError(f"runs is {runs}; expected at least {len(support)}, the candidates with weight")
    w = weights[support]
    counts = np.ceil((runs - len(w) / 2) * w).astype(np.intp)
    while counts.sum() < runs:
        counts[np.argmin(counts / w)] += 1
    while counts.sum() > runs:
        counts[np.argmax((counts - 1) / w)] -= 1
    full = np.zeros(len(weights), dtype=np.intp)
    full[support] = counts
    return full


def _series(values: Any, like: Any) -> Any:
    """Return values with the labels of a Series; unchanged if there are none."""
    return pandas_module().Series(values, index=like.index) if is_pandas(like, "Series") else values
