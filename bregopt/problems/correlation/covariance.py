"""The nearest covariance matrix with given variances."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import Array, BoundsLike, finite_array
from bregopt.io.pandas_labels import Labels, aligned, labeled, labels_of
from bregopt.io.stacks import is_stack
from bregopt.problems.arguments import check_arguments
from bregopt.problems.correlation.answer import Asked, reportable
from bregopt.problems.correlation.norms import solve_norm
from bregopt.problems.correlation.pair_bounds import of_pairs
from bregopt.problems.correlation.request import (
    Given,
    Request,
    check_together,
    condition_bound,
    divergence_or_norm,
    given_matrix,
    weights_of_known,
)
from bregopt.problems.correlation.solve import solve_request
from bregopt.problems.nearest_arguments import (
    Pairs,
    bounded_entries,
    entry_bounds,
    fixed_entries,
    fixed_pairs,
    row_and_entry_weights,
)
from bregopt.program.lowrank import LowRank
from bregopt.records import replace
from bregopt.routes.accuracy import Units
from bregopt.routes.options import time_limit
from bregopt.routes.solution import Solution
from bregopt.routes.solve_options import SolveOptions

__all__ = ["nearest_covariance"]


def nearest_covariance(
    S: ArrayLike,
    divergence: str = "frobenius",
    fixed: ArrayLike | None = None,
    lower: BoundsLike | None = None,
    upper: BoundsLike | None = None,
    min_eigenvalue: float = 0.0,
    weights: ArrayLike | None = None,
    max_condition: float | None = None,
    missing: str = "error",
    **options: Unpack[SolveOptions],
) -> Solution:
    """Return the covariance matrix nearest to `S` with the variances of `S`.

    Parameters
    ----------
    S : array_like or DataFrame of shape (n, n)
        Symmetric, with variances above 0 on the diagonal. LogDet and von Neumann need it positive definite.
    divergence, fixed, weights, max_condition, missing
        As for :func:`bregopt.nearest_correlation`, of covariances.
    lower, upper : float, array_like of shape (n, n), or dict from pairs of labels; optional
        Bounds on the covariances off the diagonal, in the units of `S`.
    min_eigenvalue : float, from 0 and below the least variance
        Lower bound on the eigenvalues, in the units of `S`.
    **options
        Options of :meth:`bregopt.Problem.solve`.

    Returns
    -------
    Solution
        ``X`` is the covariance matrix, a DataFrame if `S` is one. ``value`` and ``duals`` are in the units of
        `S`. The diagonal is exact as in :func:`bregopt.nearest_correlation`.

    Raises
    ------
    TypeError, ValueError
        If the input is bad; the message names the argument.

    Notes
    -----
    With ``D`` the standard deviations, ``S = D C D``, and the answer is ``D X D`` with the correlation matrix
    ``X`` nearest to ``C`` in the distance with weights ``D^2`` of rows.

    Examples
    --------
    >>> import bregopt as bo
    >>> S = [[4, 2, 0], [2, 1, 1], [0, 1, 1]]
    >>> bo.nearest_covariance(S).X.diagonal().tolist()
    [4.0, 1.0, 1.0]
    """
    with clock.limited(time_limit(options)):
        check_arguments(nearest_covariance, options)
        if isinstance(S, LowRank) or is_stack(S):
            raise TypeError(f"S is {type(S).__name__}; expected one matrix of shape (n, n)")
        labels = labels_of(S, "S", "S.cov()")
        given = given_matrix(S, missing, "S")
        scale = _deviations(given, labels)
        kind = divergence_or_norm(divergence)
        n, unit = len(scale), np.outer(scale, scale)
        w, H = row_and_entry_weights(aligned(weights, labels, "weights"), n, kind)
        w, H = weights_of_known(w, H, given, kind)
        pairs = fixed_pairs(aligned(fixed, labels, "fixed"), n, labels)
        given.check_known(*pairs, "fixed")
        C = np.asarray(given.A) / unit
        np.fill_diagonal(C, 1.0)
        lo, hi = (
            _in_correlations(value, name, unit, labels, pairs)
            for name, value in (("lower", lower), ("upper", upper))
        )
        request = Request(
            A=C,
            labels=labels,
            divergence=divergence,
            kind=kind,
            floor=_least(min_eigenvalue, scale, labels),
            s=w * scale if H is None else np.ones(n),
            H=None if H is None else H * unit,
            fixed=fixed_entries(pairs, C, 1.0),
            bounded=bounded_entries(lo, hi, pairs, n, 1.0),
            unknown=given.unknown,
            condition=condition_bound(max_condition),
            groups=None,
            scale=scale,
        )
        check_together(request, weights is not None)
        solution = (solve_norm if kind is None else solve_request)(request, options)
        variances = np.asarray(given.A).diagonal()
        return reportable(labeled(_covariance(solution, scale, variances), labels), Asked.of(request))


def _covariance(solution: Solution, scale: Array, variances: Array) -> Solution:
    """Return the answer as a covariance matrix with these variances, whose roots are `scale`."""
    if solution.X is None:
        return solution
    X = solution.X * np.outer(scale, scale)
    exact = solution.X.diagonal() == 1
    np.fill_diagonal(X, np.where(exact, variances, X.diagonal()))
    reason = "derivatives of nearest_covariance are not known; differentiate nearest_correlation instead"
    units = solution._units or Units(np.ones(len(scale)), np.zeros(len(scale)))
    return replace(solution, X=X, _restated=reason, _units=units.scaled(scale))


def _deviations(given: Given, labels: Labels) -> Array:
    """Return the standard deviations."""
    variances = np.asarray(given.A).diagonal()
    if given.no_variance is not None or (variances <= 0).any():
        k = int(np.argmin(variances)) if given.no_variance is None else given.no_variance
        found = "NaN" if given.no_variance is not None else f"{variances[k]:g}"
        raise ValueError(
            f"S has the variance {found} at {k if labels is None else labels[k]}; expected variances above 0"
        )
    return np.sqrt(variances)


def _least(value: Any, scale: Array, labels: Labels) -> float:
    """Return the lower bound on the eigenvalues, in the units of the covariances."""
    floor, k = float(finite_array(value, "min_eigenvalue", ndim=0)), int(np.argmin(scale))
    if not 0 <= floor < scale[k] ** 2:
        raise ValueError(
            f"min_eigenvalue is {floor:g}; expected a number from 0 and below the least variance, "
            f"{scale[k] ** 2:g} at {k if labels is None else labels[k]}"
        )
    return floor


def _in_correlations(value: Any, name: str, unit: Array, labels: Labels, fixed: Pairs) -> Any:
    """Return bounds on covariances as bounds on correlations."""
    if value is None:
        return None
    own = of_pairs(aligned(value, labels, name), name, labels, None, len(unit), 2 * unit)
    ends = np.broadcast_to(entry_bounds(own, 0.0, name, len(unit)), unit.shape)
    free = np.triu(np.ones(unit.shape, dtype=bool), 1)
    free[fixed] = False
    excess = ends - unit if name == "lower" else -ends - unit
    beyond = np.argwhere(free & (excess > 0))
    if len(beyond):
        a, b = (int(k) for k in beyond[0])
        raise ValueError(
            f"{name} is {ends[a, b]:g} at {a, b}; expected a magnitude up to {unit[a, b]:g}, by the variances"
        )
    return ends / unit
