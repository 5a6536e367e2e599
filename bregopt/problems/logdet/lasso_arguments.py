"""Arguments of :func:`bregopt.graphical_lasso`, checked: the penalty of each entry, the pattern, options."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array, finite_array, rectangular, symmetric_matrix
from bregopt.certify.graphical_lasso import LassoData
from bregopt.errors import DataWarning, did_you_mean, warn_caller
from bregopt.io.pandas_labels import Labels, aligned, labels_of
from bregopt.problems.nearest_arguments import fixed_pairs
from bregopt.routes import base
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["LassoProblem", "LassoSettings", "lasso_problem", "lasso_settings", "penalty_weight"]

_SPREAD = 1e4  # ratio of variances above which the units are doubtful
_RAW_UNITS = (
    f"the variances in S differ by a factor above {_SPREAD:.0e}: one alpha does not suit them all, and the "
    "method may reach max_iter. Standardize the data, or pass correlations: S / np.outer(s, s) with "
    "s = np.sqrt(np.diag(S))"
)


@dataclass(frozen=True, kw_only=True)
class LassoSettings(base.Settings):
    """Options of sparse inverse covariance estimation."""

    tuning: LassoTuning = LassoTuning()


@dataclass(frozen=True, eq=False)
class LassoProblem:
    """The arguments but for the weight `alpha` of the penalty.

    Parameters
    ----------
    S : array of shape (n, n)
    weights : array of shape (n, n)
        Of the entries, infinite for those that are zero.
    labels : pandas.Index or None
    """

    S: Array
    weights: Array
    labels: Labels

    def data(self, alpha: float) -> LassoData:
        """Return the problem with the penalty ``alpha w_ij``; an infinite weight is one for any `alpha`."""
        infinite = np.isinf(self.weights)
        penalty = alpha * np.where(infinite, 0.0, self.weights)
        return LassoData(self.S, np.where(infinite, np.inf, penalty))

    @property
    def largest_alpha(self) -> float:
        """The least `alpha` from which the answer is diagonal; zero weights off the diagonal do not count."""
        off = (self.weights > 0) & ~np.eye(len(self.S), dtype=bool)
        return float((np.abs(self.S[off]) / self.weights[off]).max(initial=0.0))


def lasso_problem(S: Any, weights: Any, pattern: Any, penalize_diagonal: Any) -> LassoProblem:
    """Return the checked arguments."""
    labels = labels_of(S, "S", "S.cov(), or S.corr()")
    matrix = symmetric_matrix(S, "S")
    n = len(matrix)
    if not isinstance(penalize_diagonal, bool | np.bool_):
        raise TypeError(f"penalize_diagonal is {penalize_diagonal!r}; expected True or False")
    if weights is None:
        _warn_of_units(matrix.diagonal())
    w = np.ones((n, n)) if weights is None else _weights(aligned(weights, labels, "weights"), n)
    if not penalize_diagonal:
        np.fill_diagonal(w, 0.0)
    if np.isinf(w.diagonal()).any():
        raise ValueError(
            "weights are infinite on the diagonal, which cannot be zero; expected finite ones there"
        )
    if pattern is not None:
        i, j = fixed_pairs(aligned(pattern, labels, "pattern"), n, labels, "pattern", "S")
        allowed = np.eye(n, dtype=bool)
        allowed[i, j] = allowed[j, i] = True
        w[~allowed] = np.inf
    return LassoProblem(matrix, w, labels)


def _warn_of_units(variances: Array) -> None:
    """Warn where the variances are so different that the data seem to be in raw units."""
    positive = variances[variances > 0]
    if len(positive) and positive.max() > _SPREAD * positive.min():
        warn_caller(_RAW_UNITS, DataWarning)


def _weights(value: Any, n: int) -> Array:
    """Return weights from zero to infinity."""
    given = rectangular(value, "weights")
    if given.dtype.kind not in "biuf":
        raise TypeError(f"weights has dtype {given.dtype}; expected real numbers")
    infinite = np.isposinf(given)
    w = finite_array(np.where(infinite, 0.0, given), "weights", ndim=2)
    if w.shape != (n, n):
        raise ValueError(f"weights has shape {w.shape}; expected {(n, n)}")
    if (w < 0).any():
        raise ValueError(f"weights has the value {w.min():g}; expected numbers from 0, or inf for zeros")
    if (infinite != infinite.T).any():
        i, j = (int(k) for k in np.argwhere(infinite != infinite.T)[0])
        raise ValueError(f"weights is not symmetric: only one of {(i, j)} and {(j, i)} is infinite")
    w = symmetric_matrix(w, "weights")
    w[infinite] = np.inf
    return w


def penalty_weight(value: Any) -> float:
    """Return `alpha`."""
    if rectangular(value, "alpha").ndim != 0:
        raise TypeError("alpha has several values; expected a number, or bo.graphical_lasso_path for several")
    alpha = float(finite_array(value, "alpha", ndim=0))
    if alpha < 0:
        raise ValueError(f"alpha is {alpha:g}; expected a number from 0")
    return alpha


def lasso_settings(function: str, options: dict[str, Any]) -> LassoSettings:
    """Return the settings; an unknown option raises a TypeError before any work."""
    known = [f.name for f in dataclasses.fields(LassoSettings)]
    for name in options:
        if name not in known:
            raise TypeError(f"{function} has no option {name!r}{did_you_mean(name, known)}")
    return LassoSettings(**options)
