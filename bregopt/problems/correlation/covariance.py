"""The nearest covariance matrix: the correlations move, and the variances stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import LARGEST_SPREAD, Array, BoundsLike, finite_array, is_one_of, unlike_sizes
from bregopt.divergences import Divergence
from bregopt.errors import DataWarning, UnsupportedProblemError, did_you_mean, warn_caller
from bregopt.io.matrices import Answered, Labels, StackLike, aligned, is_stack, labeled, labels_of, opened
from bregopt.problems.arguments import (
    Pairs,
    bounded_entries,
    entry_bounds,
    fixed_entries,
    fixed_pairs,
    largest_change,
    row_and_entry_weights,
    standard_deviations,
)
from bregopt.problems.correlation.answer import CorrelationSolution, reportable
from bregopt.problems.correlation.nearest import solve_directly
from bregopt.problems.correlation.norms import solve_norm
from bregopt.problems.correlation.request import (
    Request,
    check_missing,
    check_together,
    condition_bound,
    divergence_or_norm,
    given_matrix,
    of_pairs,
    rows_left,
    weights_of_known,
)
from bregopt.problems.correlation.solve import solve_request
from bregopt.program.rows.base import LowRank
from bregopt.records import replace
from bregopt.routes.accuracy import Units
from bregopt.routes.registry import PANEL, StackOptions, check_arguments, time_limit
from bregopt.routes.solution import Solution

if TYPE_CHECKING:
    from bregopt.problems.solutions import Solutions

_UNITS = ("auto", "covariance", "correlation")
_NO_DERIVATIVES = "derivatives of nearest_covariance are not known; differentiate nearest_correlation instead"


def nearest_covariance(
    S: StackLike,
    divergence: str = "frobenius",
    fixed: ArrayLike | None = None,
    lower: BoundsLike | None = None,
    upper: BoundsLike | None = None,
    min_eigenvalue: float = 0.0,
    weights: ArrayLike | None = None,
    max_condition: float | None = None,
    missing: str = "error",
    units: str = "auto",
    **options: Unpack[StackOptions],
) -> CorrelationSolution | Solutions:
    """Return the covariance matrix nearest to `S` with the variances of `S`.

    Parameters
    ----------
    S : array_like or DataFrame of shape (n, n), or a stack of these; or the path of a file
        Symmetric, with variances above 0 on the diagonal. LogDet and von Neumann need it positive definite.
        Stacks and files are those of :func:`bregopt.nearest_correlation`; ``returns.rolling(250).cov()`` is
        one.
    divergence, fixed, weights, max_condition, missing
        As for :func:`bregopt.nearest_correlation`, of covariances. All matrices of a stack share them.
    lower, upper : float, array_like of shape (n, n), or dict from pairs of labels; optional
        Bounds on the covariances off the diagonal, in the units of `S`.
    min_eigenvalue : float, from 0 and below the least variance
        Lower bound on the eigenvalues, in the units of `S`.
    units : {"auto", "covariance", "correlation"}
        What is measured: changes of covariances, or of correlations. "auto" measures correlations if
        standard deviations differ by a factor above 10 (of a stack, on one date), and covariances otherwise.
        LogDet is the same in both.
    **options
        Options of :meth:`bregopt.Problem.solve`; of a stack, as for :func:`bregopt.nearest_correlation`.

    Returns
    -------
    CorrelationSolution, or Solutions of a stack
        ``X`` is the covariance matrix, a DataFrame if `S` is one. ``value`` and ``duals`` are in the units of
        `S`, or of correlations if these are measured. The diagonal is exact as in
        :func:`bregopt.nearest_correlation`.

    Raises
    ------
    TypeError, ValueError
        If the input is bad; the message names the argument.

    Warns
    -----
    DataWarning
        If "auto" finds standard deviations of unlike units: it says what was measured, and by how much
        correlations changed. Also as :func:`bregopt.nearest_correlation`.

    Notes
    -----
    With ``D`` the standard deviations, ``S = D C D``, and the answer is ``D X D`` with the correlation matrix
    ``X`` nearest to ``C``: in the distance with weights ``D^2`` of rows where covariances are measured. In
    that distance, correlations of small variances may change without end. Bounds on the condition number,
    and for von Neumann on eigenvalues, are those of covariances, and go with these only.

    Examples
    --------
    >>> import bregopt as bo
    >>> S = [[4, 2, 0], [2, 1, 1], [0, 1, 1]]
    >>> bo.nearest_covariance(S).X.diagonal().tolist()
    [4.0, 1.0, 1.0]
    """
    S = opened(S, "S")
    several = is_stack(S)
    with clock.limited(time_limit(options), batch=several):
        check_arguments(nearest_covariance, options, PANEL if several else ())
        if isinstance(S, LowRank):
            raise TypeError("S is LowRank; expected a matrix of shape (n, n), or a stack: pass S.dense()")
        check_missing(missing)
        given = {
            "divergence": divergence,
            "fixed": fixed,
            "lower": lower,
            "upper": upper,
            "min_eigenvalue": min_eigenvalue,
            "weights": weights,
            "max_condition": max_condition,
            "missing": missing,
            "units": units,
        }
        if several:
            from bregopt.problems.nearest_stacks import nearest_covariances  # only those with stacks wait

            return nearest_covariances(nearest_covariance, S, given, options)
        rows = rows_left(S, missing, "S")
        if rows is not None:
            from bregopt.problems.nearest_stacks import nearest_of_rows  # likewise

            return nearest_of_rows(nearest_covariance, S, rows, given, options, "S")
        task = covariance_task(S, given)
        solution, scale = task.solved(options), np.sqrt(task.variances)
        if units == "auto" and divergence != "logdet" and spread(scale) > LARGEST_SPREAD:
            change = largest_change(task.request.given, solution.X, scale)
            warn_caller(units_message(scale, task.request.labels, task.measured, change), DataWarning)
        return solution


class CovarianceTask(NamedTuple):
    """What the arguments of a nearest covariance matrix say.

    Parameters
    ----------
    request : Request
        Of the correlations.
    measured : {"correlation", "covariance"}
        What is measured.
    variances : array of shape (n,)
    """

    request: Request
    measured: str
    variances: Array

    def solved(self, options: Mapping[str, Any]) -> CorrelationSolution:
        """Return the covariance matrix."""
        request = self.request
        direct = solve_directly(request, options)
        if direct is not None:
            return labeled(self.rescaled(direct), request.labels)
        solution = (solve_norm if request.kind is None else solve_request)(request, options)
        return reportable(labeled(self.rescaled(solution), request.labels), request)

    def rescaled(self, solution: Answered) -> Answered:
        """Return an answer in correlations as a covariance matrix with exactly these variances."""
        if solution.X is None:
            return solution
        correlations, scale = np.asarray(solution.X), np.sqrt(self.variances)
        X = correlations * np.outer(scale, scale)
        np.fill_diagonal(X, np.where(correlations.diagonal() == 1, self.variances, X.diagonal()))
        return replace(solution, X=X, **self.restated(solution))

    def restated(self, solution: Solution) -> dict[str, Any]:
        """Return the fields of an answer that say how the covariance matrix follows from its problem's."""
        none = Units(np.ones(self.request.n), np.zeros(self.request.n))
        units = (solution._units or self.request.units or none).scaled(np.sqrt(self.variances))
        return {"_restated": _NO_DERIVATIVES, "_units": units}


def covariance_task(S: Any, of_user: Mapping[str, Any]) -> CovarianceTask:
    """Return what the arguments say, checked."""
    labels = labels_of(S, "S", "S.cov()")
    given = given_matrix(S, of_user["missing"], "S")
    variances = np.asarray(given.A).diagonal().copy()
    if given.no_variance is not None:
        variances[given.no_variance] = np.nan
    scale = standard_deviations(variances, labels)
    kind, condition = divergence_or_norm(of_user["divergence"]), condition_bound(of_user["max_condition"])
    n, unit = len(scale), np.outer(scale, scale)
    w, H = row_and_entry_weights(aligned(of_user["weights"], labels, "weights"), n, kind)
    w, H = weights_of_known(w, H, given, kind)
    pairs = fixed_pairs(aligned(of_user["fixed"], labels, "fixed"), n, labels)
    given.check_known(*pairs, "fixed")
    C = np.asarray(given.A) / unit
    np.fill_diagonal(C, 1.0)
    lo, hi = (_in_correlations(of_user[name], name, unit, labels, pairs) for name in ("lower", "upper"))
    floor, k = float(finite_array(of_user["min_eigenvalue"], "min_eigenvalue", ndim=0)), int(np.argmin(scale))
    if not 0 <= floor < scale[k] ** 2:
        raise ValueError(
            f"min_eigenvalue is {floor:g}; expected a number from 0 and below the least variance, "
            f"{scale[k] ** 2:g} at {k if labels is None else labels[k]}"
        )
    measured = measured_units(of_user["units"], spread(scale), kind, floor, condition)
    if measured == "covariance":
        w, H = w * scale, None if H is None else H * unit
    request = Request(
        A=C,
        labels=labels,
        divergence=of_user["divergence"],
        kind=kind,
        floor=floor,
        s=w if H is None else np.ones(n),
        H=H,
        fixed=fixed_entries(pairs, C, 1.0),
        bounded=bounded_entries(lo, hi, pairs, n, 1.0),
        unknown=given.unknown,
        condition=condition,
        groups=None,
        scale=scale,
    )
    check_together(request, of_user["weights"] is not None)
    return CovarianceTask(request, measured, variances)


def measured_units(
    units: Any, ratio: float, kind: type[Divergence] | None, floor: float, condition: float | None
) -> str:
    """Return what is measured: "correlation" or "covariance".

    `ratio` is that of the largest and the least standard deviation, and `floor` and `condition` bound the
    eigenvalues and the condition number. Units that are unknown, or do not go with these, are refused.
    """
    if not is_one_of(units, _UNITS):
        raise ValueError(f"units is {units!r}{did_you_mean(str(units), _UNITS)}")
    of_covariances = kind is not None and (condition is not None or (floor > 0 and not kind.quadratic))
    if of_covariances and units == "correlation":
        name = "min_eigenvalue" if condition is None else "max_condition"
        raise UnsupportedProblemError(
            f"{name} is of covariances here and does not go with units='correlation': leave one of them out, "
            "or repair the correlations with bo.nearest_correlation"
        )
    if of_covariances or units == "covariance":
        return "covariance"
    unlike = ratio > LARGEST_SPREAD or (kind is not None and kind.name == "logdet")  # which is the same
    return "correlation" if unlike or units == "correlation" else "covariance"


def spread(scale: Array) -> float:
    """Return the largest ratio of two standard deviations."""
    return float(scale.max() / scale.min())


def units_message(
    scale: Array, labels: Labels, measured: str, change: tuple[float, int, int], date: Any = None
) -> str:
    """Return what was measured for standard deviations of unlike units, and what that did to correlations.

    `change` is the largest change of a correlation and its place, in the matrix `date` of a stack.
    """
    names = range(len(scale)) if labels is None else labels
    size, i, j = change
    choice = (
        "For covariances pass units='covariance'; pass units='correlation' if this is meant"
        if measured == "correlation"
        else "max_condition, and min_eigenvalue of von Neumann, go with covariances only; to measure "
        "correlations leave them out, or take bo.nearest_correlation"
    )
    return (
        f"standard deviations in S go {unlike_sizes(scale, labels, 0.0)}. Changes of {measured}s were "
        f"measured; the largest change of a correlation is {size:.2g}, of {names[i]} and {names[j]}"
        f"{'' if date is None else f', in matrix {date!r}'}. {choice}"
    )


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
