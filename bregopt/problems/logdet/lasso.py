"""Sparse inverse covariance estimation: the graphical lasso and its path."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import (
    Array,
    MatrixLike,
    check_memory,
    finite_array,
    positive_integer,
    rectangular,
    symmetric_matrix,
    unlike_sizes,
)
from bregopt.errors import DataWarning, did_you_mean, warn_caller
from bregopt.io.matrices import Labels, aligned, labeled, labels_of
from bregopt.linalg import root_of
from bregopt.problems.arguments import fixed_pairs, standard_deviations
from bregopt.problems.logdet.precision import GraphicalLassoPath, GraphicalLassoSolution
from bregopt.program import StopReason
from bregopt.records import dataclass, field_names, replace
from bregopt.routes import base
from bregopt.routes.driver import warn_unproven
from bregopt.routes.graphical_lasso.problem import CITATION, LassoData
from bregopt.routes.graphical_lasso.solve import LassoAnswer, solve_lasso
from bregopt.routes.progress import CallbackError, Progress, digits_bar, items_bar
from bregopt.routes.solution import Ray, Solution, Status

_NAME = "graphical_lasso"
_SINGULAR = (
    "S has a direction in which neither it nor the penalty is above 0, up to round-off (`ray`): raise alpha, "
    "or the zero weights."
)
_LEAST_ALPHA = 1e-2  # of a path of a number of weights, relative to the largest one
_NO_DERIVATIVE = "derivatives of graphical_lasso are not known"


def graphical_lasso(
    S: MatrixLike,
    alpha: float,
    weights: MatrixLike | None = None,
    pattern: ArrayLike | None = None,
    *,
    penalize_diagonal: bool = False,
    standardize: bool = False,
    warm_start: Solution | MatrixLike | None = None,
    **options: Any,
) -> GraphicalLassoSolution:
    """Estimate a sparse inverse covariance matrix.

    Minimizes ``<S, X> - logdet X + alpha * sum_ij w_ij |X_ij|`` over positive definite ``X``.

    Parameters
    ----------
    S : array_like or DataFrame of shape (n, n)
        Symmetric: a covariance or correlation matrix.
    alpha : float, from 0
        Weight of the penalty, in the units of `S`.
    weights : array_like or DataFrame of shape (n, n), optional
        Weights ``w_ij`` of the entries, from 0. An infinite weight requires a zero. All are 1 by default.
    pattern : array_like of bool, shape (n, n), or pairs of indices or labels, shape (k, 2); optional
        The entries off the diagonal that need not be zero. By default all.
    penalize_diagonal : bool
        Whether the penalty includes the diagonal.
    standardize : bool
        Solve the problem of the correlations, whose units `alpha` has then, and return the answer in the
        units of `S`: entry ``i, j`` of the penalty has the weight ``w_ij sqrt(S_ii S_jj)``. `gap` is that of
        the problem of the correlations.
    warm_start : Solution or array_like of shape (n, n), optional
        An answer for a similar problem. It changes the time only.
    **options
        `tol` (relative gap, 1e-6), `max_iter`, `time_limit`, `callback`, `progress` and `verbose`, as for
        :meth:`bregopt.Problem.solve`.

    Returns
    -------
    GraphicalLassoSolution
        ``X`` is the precision matrix with exact zeros, a DataFrame if `S` is one. The status is "unbounded"
        if there is a direction in which `S` and the penalty do not grow, such as for a singular `S` and
        ``alpha=0``.

    Raises
    ------
    TypeError, ValueError
        If the input is bad; the message names the argument.

    Warns
    -----
    ConvergenceWarning
        If the certificate does not meet `tol`.
    DataWarning
        If standard deviations in `S` differ by a factor above 10, and no `weights` are given.

    Notes
    -----
    Maximizing the objective's negative is maximum likelihood with a penalty. The dual is to maximize
    ``logdet(S + U) + n`` over ``|U_ij| <= alpha w_ij``, and each such ``U`` proves a bound.

    References
    ----------
    Friedman, Hastie, Tibshirani (2008), Sparse Inverse Covariance Estimation with the Graphical Lasso,
    Biostatistics 9, eq. 1.

    Examples
    --------
    >>> import bregopt as bo
    >>> S = [[1.0, 0.6, 0.1], [0.6, 1.0, 0.3], [0.1, 0.3, 1.0]]
    >>> sol = bo.graphical_lasso(S, alpha=0.2)
    >>> sol.status, sol.n_edges, sol.X.round(4).tolist()[0]
    ('optimal', 2, [1.1905, -0.4762, 0.0])
    """
    settings = _lasso_settings(_NAME, options)
    problem = _lasso_problem(S, weights, pattern, penalize_diagonal, standardize)
    start = _start(warm_start, problem)
    if rectangular(alpha, "alpha").ndim != 0:
        raise TypeError("alpha has several values; expected a number, or bo.graphical_lasso_path for several")
    weight = float(finite_array(alpha, "alpha", ndim=0))
    if weight < 0:
        raise ValueError(f"alpha is {weight:g}; expected a number from 0")
    solution = _solved(problem, weight, settings, start)
    warn_unproven(solution, settings.tol)
    return solution


def graphical_lasso_path(
    S: MatrixLike,
    alphas: int | ArrayLike = 20,
    weights: MatrixLike | None = None,
    pattern: ArrayLike | None = None,
    *,
    penalize_diagonal: bool = False,
    standardize: bool = False,
    **options: Any,
) -> GraphicalLassoPath:
    """Estimate sparse inverse covariance matrices for several weights of the penalty.

    Each starts at a prediction from the answers for the next larger weights.

    Parameters
    ----------
    S, weights, pattern, penalize_diagonal, standardize
        As for :func:`bregopt.graphical_lasso`.
    alphas : int or array_like of shape (k,)
        Weights of the penalty; or their number, equally spaced in the logarithm from the least weight with a
        diagonal answer down to a hundredth of it.
    **options
        As for :func:`bregopt.graphical_lasso`; `time_limit` is that of the whole path, and `progress` counts
        its answers.

    Returns
    -------
    GraphicalLassoPath
        A sequence of answers, in the order of `alphas`.

    Raises
    ------
    TypeError, ValueError
        If the input is bad; the message names the argument.

    Examples
    --------
    >>> import bregopt as bo
    >>> S = [[1.0, 0.6, 0.1], [0.6, 1.0, 0.3], [0.1, 0.3, 1.0]]
    >>> [sol.n_edges for sol in bo.graphical_lasso_path(S, [0.7, 0.4, 0.2, 0.01])]
    [0, 1, 2, 3]
    """
    settings = _lasso_settings("graphical_lasso_path", options)
    problem = _lasso_problem(S, weights, pattern, penalize_diagonal, standardize)
    values = _alphas(alphas, problem)
    order = np.argsort(-values, kind="stable")
    answers: list[Any] = [None] * len(values)
    known: list[tuple[float, Array]] = []  # the last two answers
    inside = replace(settings, progress=False)
    with clock.limited(settings.time_limit):
        for k in items_bar(order, "graphical_lasso_path", settings.progress):
            alpha = float(values[k])
            answers[k] = _solved(problem, alpha, inside, _predicted(known, alpha))
            if answers[k].X is not None:
                known = [*known[-1:], (alpha, problem.standardized(np.asarray(answers[k].X)))]
    worst = max(answers, key=lambda answer: answer.gap)
    warn_unproven(worst, settings.tol)
    return GraphicalLassoPath(values, answers)


def _predicted(known: Sequence[tuple[float, Array]], alpha: float) -> Array | None:
    """Return the start for the next weight: the last two answers, extrapolated with the signs of the last."""
    if not known:
        return None
    (first, X), (last, Y) = known[0], known[-1]
    if not first > last > alpha:
        return Y
    start = Y + (alpha - last) / (last - first) * (Y - X)
    start[start * Y <= 0] = 0.0
    return start if root_of(start) is not None else Y


def _alphas(value: Any, problem: _LassoProblem) -> Array:
    """Return the weights of a path."""
    if rectangular(value, "alphas").ndim == 0:
        count = positive_integer(value, "alphas", ", the number of weights, or a list of weights")
        off = (problem.weights > 0) & ~np.eye(len(problem.S), dtype=bool)
        largest = float((np.abs(problem.S[off]) / problem.weights[off]).max(initial=0.0))
        if largest == 0:  # from it on the answer is diagonal
            raise ValueError(
                "S has no penalized entry off its diagonal, so alphas has no range; give an array"
            )
        check_memory(8.0 * count, f"alphas={count}")
        return np.geomspace(largest, _LEAST_ALPHA * largest, count)
    alphas = finite_array(value, "alphas", ndim=1)
    if len(alphas) == 0:
        raise ValueError("alphas is empty; expected at least one number")
    if (alphas < 0).any():
        raise ValueError(f"alphas has the value {alphas.min():g}; expected numbers from 0")
    return alphas


def _start(value: Any, problem: _LassoProblem) -> Array | None:
    """Return the matrix of a warm start."""
    given = value.X if isinstance(value, Solution) else value
    if given is None:
        return None
    start = finite_array(aligned(given, problem.labels, "warm_start"), "warm_start", ndim=2)
    if start.shape != problem.S.shape:
        raise ValueError(f"warm_start has shape {start.shape}; expected {problem.S.shape}")
    return problem.standardized(start)


def _solved(
    problem: _LassoProblem, alpha: float, settings: base.Settings, start: Array | None
) -> GraphicalLassoSolution:
    """Return the answer for one weight of the penalty."""
    begin = time.perf_counter()
    data, n = problem.data(alpha), len(problem.S)
    if start is not None:
        start = np.where(np.isinf(data.penalty), 0.0, (start + start.T) / 2)
    with clock.limited(settings.time_limit), digits_bar(_NAME, settings.tol, settings.progress) as bar:
        watchers = [watcher for watcher in (settings.callback, bar) if watcher is not None]
        progress = Progress(f"bregopt {_NAME}: {n} x {n}", settings.verbose, False, watchers)
        try:
            with clock.stoppable():
                answer = solve_lasso(data, settings.tol, settings.max_iter, progress, start)
        except CallbackError as failed:
            raise failed.error from failed.error.__cause__
    timings = {"total": time.perf_counter() - begin}
    solution = _solution(problem, data, answer, progress, settings.tol, alpha, timings)
    return labeled(_in_units(solution, problem.scale), problem.labels)


def _in_units(solution: GraphicalLassoSolution, scale: Array | None) -> GraphicalLassoSolution:
    """Return the answer for standardized variables in their units, with standard deviations `scale`."""
    if scale is None:
        return solution
    unit, shift = np.outer(scale, scale), 2 * float(np.log(scale).sum())
    ray = solution.ray and solution.ray._replace(X=solution.ray.X / unit)
    if solution.X is None or solution.duals is None:
        return replace(solution, ray=ray)
    return replace(
        solution,
        X=solution.X / unit,
        duals=(solution.duals[0] * unit,),
        value=solution.value + shift,
        dual_value=solution.dual_value + shift,
        loss=solution.loss + shift,
    )


def _solution(
    problem: _LassoProblem,
    data: LassoData,
    answer: LassoAnswer,
    progress: Progress,
    tol: float,
    alpha: float,
    timings: dict[str, float],
) -> GraphicalLassoSolution:
    """Return the answer with its status."""
    certificate, bounded = answer.certificate, answer.stop is not StopReason.UNBOUNDED
    status = certificate.status(tol, answer.stop) if bounded else Status.UNBOUNDED
    names = list(range(len(problem.S))) if problem.labels is None else list(problem.labels)
    claimed = StopReason.INACCURATE if answer.stop is StopReason.CONVERGED else answer.stop
    stop = StopReason.CONVERGED if status is Status.OPTIMAL else claimed
    return GraphicalLassoSolution(
        status=status.value,
        stop_reason=stop.value if bounded else f"{stop.value} {_SINGULAR}",
        value=certificate.primal,
        X=answer.X if bounded else None,
        u={},
        duals=(answer.U,) if bounded else None,
        dual_value=certificate.dual,
        gap=certificate.gap if bounded else np.nan,
        primal_residual=certificate.primal_residual if bounded else np.nan,
        dual_residual=certificate.dual_residual if bounded else np.nan,
        error=certificate.error if bounded else np.nan,
        iterations=answer.iterations,
        timings=timings,
        solver=_NAME,
        history=progress.history(),
        citation=CITATION,
        alpha=alpha,
        loss=certificate.primal - data.paid(answer.X) if bounded else np.nan,
        components=tuple([names[k] for k in part] for part in answer.parts),
        _stop=stop,
        _restated=_NO_DERIVATIVE,
        ray=None if bounded else Ray(answer.X, {}),
    )


@dataclass(frozen=True, eq=False)
class _LassoProblem:
    """The arguments but for the weight `alpha` of the penalty.

    Parameters
    ----------
    S : array of shape (n, n)
    weights : array of shape (n, n)
        Of the entries, infinite for those that are zero.
    labels : pandas.Index or None
    scale : array of shape (n,) or None
        The standard deviations by which the variables were divided.
    """

    S: Array
    weights: Array
    labels: Labels
    scale: Array | None = None

    def data(self, alpha: float) -> LassoData:
        """Return the problem with the penalty ``alpha w_ij``; an infinite weight is one for any `alpha`."""
        infinite = np.isinf(self.weights)
        penalty = alpha * np.where(infinite, 0.0, self.weights)
        return LassoData(self.S, np.where(infinite, np.inf, penalty))

    def standardized(self, X: Array) -> Array:
        """Return a precision matrix in the user's units as one of the variables of the problem."""
        return X if self.scale is None else X * np.outer(self.scale, self.scale)


def _lasso_problem(
    S: Any, weights: Any, pattern: Any, penalize_diagonal: Any, standardize: Any
) -> _LassoProblem:
    """Return the checked arguments."""
    labels = labels_of(S, "S", "S.cov(), or S.corr()")
    matrix = symmetric_matrix(S, "S")
    n = len(matrix)
    for name, flag in (("penalize_diagonal", penalize_diagonal), ("standardize", standardize)):
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name} is {flag!r}; expected True or False")
    scale = standard_deviations(matrix.diagonal(), labels) if standardize else None
    if scale is not None:
        matrix = matrix / np.outer(scale, scale)
    elif weights is None:
        found = unlike_sizes(np.sqrt(np.maximum(matrix.diagonal(), 0.0)), labels)
        if found is not None:
            warn_caller(
                f"standard deviations in S go {found}: one alpha does not suit them all. Pass "
                "standardize=True, or correlations: S / np.outer(s, s) with s = np.sqrt(np.diag(S))",
                DataWarning,
            )
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
    return _LassoProblem(matrix, w, labels, scale)


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


def _lasso_settings(function: str, options: dict[str, Any]) -> base.Settings:
    """Return the settings; an unknown option raises a TypeError before any work."""
    known = field_names(base.Settings)
    for name in options:
        if name not in known:
            raise TypeError(f"{function} has no option {name!r}{did_you_mean(name, known)}")
    return base.Settings(**options)
