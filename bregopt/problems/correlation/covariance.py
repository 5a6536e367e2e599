"""From data to correlations and back: pairwise estimates, nearest covariances, and shrinking."""

from __future__ import annotations

import importlib
import time
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from bregopt import clock
from bregopt.arrays import (
    EPS,
    Array,
    ArrayOrFrame,
    BoundsLike,
    doubles,
    finite_array,
    rectangular,
    symmetric_matrix,
)
from bregopt.io.pandas_labels import Labels, aligned, is_pandas, labeled, labels_of
from bregopt.io.stacks import is_stack
from bregopt.linalg import root_of
from bregopt.problems.arguments import (
    Pairs,
    bounded_entries,
    check_arguments,
    entry_bounds,
    fixed_entries,
    fixed_pairs,
    least_eigenvalue,
    row_and_entry_weights,
)
from bregopt.problems.correlation.answer import Asked, reportable
from bregopt.problems.correlation.infeasibility import least_block
from bregopt.problems.correlation.norms import bracketed, solve_norm
from bregopt.problems.correlation.request import (
    Given,
    Request,
    check_together,
    condition_bound,
    divergence_or_norm,
    given_matrix,
    of_pairs,
    weights_of_known,
)
from bregopt.problems.correlation.solve import solve_request
from bregopt.program.lowrank import LowRank
from bregopt.records import replace
from bregopt.routes.accuracy import Units
from bregopt.routes.options import SolveOptions, time_limit
from bregopt.routes.solution import Solution
from bregopt.threads import threads_for

__all__ = [
    "PairwiseCorrelation",
    "nearest_covariance",
    "pairwise_correlation",
    "shrink_correlation",
]

_CONSTANT = 1e-14  # variance relative to the mean square below which samples are constant

_CITATION = (
    "Higham, Strabic, Sego (2016), Restoring Definiteness via Shrinking, with an Application to Correlation "
    "Matrices with a Fixed Block, SIAM Review 58"
)
_UNIT = 1e-10  # distance of a diagonal from one up to which it is round-off
_LANCZOS = 500  # the order from which Lanczos's method is faster (benchmarks/correlation.py shrinking)
_VECTORS = 40  # of Lanczos's method
_TRIALS = 6  # steps above the bound, each 10 times the one before
_TOL = 1e-6


class PairwiseCorrelation(NamedTuple):
    """Correlations, and weights for :func:`bregopt.nearest_correlation`.

    Parameters
    ----------
    A : array or DataFrame of shape (n, n)
        Symmetric, with unit diagonal; NaN where two columns have too few dates in common, or one column too
        few dates.
    weights : array or DataFrame of shape (n, n)
        The roots of the numbers of common dates, relative to the largest; 0 where `A` is NaN.
    """

    A: ArrayOrFrame
    weights: ArrayOrFrame


def pairwise_correlation(returns: ArrayLike, min_samples: int = 2) -> PairwiseCorrelation:
    """Return pairwise-complete correlations of returns with gaps, weighted by numbers of samples.

    Each correlation uses the dates on which both columns have a return. Such a matrix need not be positive
    semidefinite; :func:`nearest_correlation` repairs it.

    Parameters
    ----------
    returns : array_like or DataFrame of shape (T, n)
        One row a date and one column an asset; NaN marks a gap.
    min_samples : int, at least 2
        Common dates below which a correlation is unknown.

    Returns
    -------
    PairwiseCorrelation
        A named tuple ``(A, weights)``. With these weights the objective of `nearest_correlation` is the sum
        of squared changes times numbers of samples.

    Raises
    ------
    TypeError, ValueError
        If the returns are no real numbers or infinite, or a column is constant on the dates that it shares
        with another.

    Examples
    --------
    >>> import numpy as np, bregopt as bo
    >>> returns = [[1, 2, np.nan], [2, 1, 1], [3, 4, 2], [4, np.nan, 1]]
    >>> A, weights = bo.pairwise_correlation(returns)
    >>> A.round(3).tolist()
    [[1.0, 0.655, 0.0], [0.655, 1.0, 1.0], [0.0, 1.0, 1.0]]
    >>> (4 * weights**2).round().astype(int).tolist()
    [[4, 3, 3], [3, 3, 2], [3, 2, 3]]
    >>> float(bo.nearest_correlation(A, weights=weights).X[1, 2].round(3))
    0.829
    """
    points = _points(returns)
    if isinstance(min_samples, bool) or not isinstance(min_samples, int | np.integer):
        raise TypeError(f"min_samples is {min_samples!r}; expected an integer of at least 2")
    if min_samples < 2:
        raise ValueError(f"min_samples is {min_samples}; expected at least 2")
    frame: Any = returns
    names = frame.columns if is_pandas(returns, "DataFrame") else range(points.shape[1])
    A, counts = _correlations(points, names, min(int(min_samples), len(points) + 1))
    weights = np.sqrt(np.where(np.isfinite(A), counts, 0.0) / max(counts.max(initial=0.0), 1.0))
    if not is_pandas(returns, "DataFrame"):
        return PairwiseCorrelation(A, weights)
    frame = importlib.import_module("pandas").DataFrame
    return PairwiseCorrelation(frame(A, names, names), frame(weights, names, names))


def _points(returns: Any) -> Array:
    """Return the returns as an array with NaN for gaps, never the user's own."""
    given = rectangular(returns, "returns")
    if given.dtype.kind not in "biuf":
        raise TypeError(f"returns has dtype {given.dtype}; expected real numbers, NaN for a gap")
    points: Array = doubles(given)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"returns has shape {points.shape}; expected (T, n), one column an asset")
    if np.isinf(points).any():
        t, k = (int(index) for index in np.argwhere(np.isinf(points))[0])
        raise ValueError(
            f"returns is infinite in row {t}, column {k}; expected finite numbers, NaN for a gap"
        )
    return points


def _correlations(points: Array, names: Any, least: int) -> tuple[Array, Array]:
    """Return the correlations, NaN where there are fewer than `least` common samples, and their numbers."""
    observed = np.isfinite(points)
    indicator = observed.astype(np.float64)
    counts = indicator.T @ indicator
    known = counts >= least
    size = np.maximum(counts, 1.0)
    own = np.maximum(counts.diagonal(), 1.0)
    centered = np.where(observed, points - np.where(observed, points, 0.0).sum(axis=0) / own, 0.0)
    largest = np.abs(centered).max(axis=0, initial=0.0)
    centered /= np.where(largest > 0, largest, 1.0)  # squares neither overflow nor vanish
    sums = centered.T @ indicator  # sums of the row's column over dates that also have the other one
    squares = (centered**2).T @ indicator
    covariance = (centered.T @ centered - sums * sums.T / size) / size
    variance = (squares - sums**2 / size) / size
    constant = known & (variance <= _CONSTANT * np.maximum(squares / size, 1e-300))
    if constant.any():
        a, b = (int(k) for k in np.argwhere(constant)[0])
        where = "" if a == b else f" on the dates of column {names[b]!r}"
        raise ValueError(
            f"column {names[a]!r} of returns is constant{where}; it has no correlations: drop it"
        )
    A = covariance / np.sqrt(np.where(known, variance * variance.T, 1.0))
    A = np.clip((A + A.T) / 2, -1.0, 1.0)
    np.fill_diagonal(A, 1.0)
    return np.where(known, A, np.nan), counts


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


def shrink_correlation(
    A: ArrayLike,
    target: ArrayLike | None = None,
    fixed: ArrayLike | None = None,
    min_eigenvalue: float = 0.0,
    weights: ArrayLike | None = None,
) -> Solution:
    """Return ``A + alpha (T - A)`` with the smallest ``alpha`` that makes it a correlation matrix.

    Parameters
    ----------
    A : array_like or DataFrame of shape (n, n)
        Symmetric, with a unit diagonal.
    target : array_like or DataFrame of shape (n, n), optional
        ``T``, a correlation matrix with eigenvalues above `min_eigenvalue`; the identity by default.
    fixed : boolean array_like of shape (n, n), or pairs of shape (k, 2), optional
        Entries off the diagonal that stay as they are in `A`: a symmetric mask, or pairs, which may be of
        labels if `A` has them. They replace those of the target.
    min_eigenvalue : float, from 0 and below 1
        Lower bound on the eigenvalues of the answer.
    weights : array_like of shape (n, n), optional
        Symmetric ``H`` from 0 to 1: the target is ``T + H o (A - T)``. A weight of 1 keeps an entry, as
        `fixed` does.

    Returns
    -------
    Solution
        ``value`` and ``u["alpha"]`` are ``alpha``, from 0 to 1. ``dual_value`` is a lower bound on it, from a
        vector ``v`` with ``v'Xv < min_eigenvalue`` for any smaller ``alpha``. Cholesky's factorization proves
        that ``X`` is positive semidefinite. ``duals`` holds the multiplier of ``X - min_eigenvalue I psd``, a
        ``LowRank`` of rank one.

    Raises
    ------
    TypeError, ValueError
        If the input is bad, or the target has an eigenvalue that is not above `min_eigenvalue`. Where all
        entries of a block are fixed, the message names it.

    Notes
    -----
    With ``B = T - t I`` and the smallest eigenvalue ``mu < 0`` of ``(A - t I) v = mu B v`` it is
    ``alpha = mu / (mu - 1)``. Lanczos's method finds the eigenvector from order 500.

    References
    ----------
    Higham, Strabic, Sego (2016), Restoring definiteness via shrinking, with an application to correlation
    matrices with a fixed block, Theorem 3.1 and §3.

    Examples
    --------
    >>> import bregopt as bo
    >>> A = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    >>> round(bo.shrink_correlation(A).value, 6)
    0.292893
    """
    begin = time.perf_counter()
    if isinstance(A, LowRank) or is_stack(A):
        raise TypeError(f"A is {type(A).__name__}; expected one matrix of shape (n, n)")
    labels, C = labels_of(A, "A"), symmetric_matrix(A, "A")
    _check_unit(C, "A", labels)
    t = least_eigenvalue(min_eigenvalue)
    with threads_for(len(C)):
        T = _target(C, target, fixed, weights, labels)
        L = _root(T, t, C, fixed, labels)
        solution = _shrunk(C, T, L, t, begin)
    return labeled(solution, labels)


def _check_unit(C: Array, name: str, labels: Labels) -> None:
    """Refuse a diagonal other than one; set its round-off to zero."""
    far = np.abs(C.diagonal() - 1)
    if far.max() > _UNIT:
        k = int(np.argmax(far))
        raise ValueError(
            f"{name} has {C[k, k]:.10g} on the diagonal, at {k if labels is None else labels[k]}; expected "
            f"1: of a covariance pass {name} / np.outer(s, s) with s = np.sqrt(np.diag({name}))"
        )
    np.fill_diagonal(C, 1.0)


def _target(A: Array, target: Any, fixed: Any, weights: Any, labels: Labels) -> Array | None:
    """Return the target with the kept entries of `A`; None for the identity."""
    n = len(A)
    T = np.eye(n)
    if target is not None:
        T = symmetric_matrix(aligned(target, labels, "target"), "target", n)
        _check_unit(T, "target", labels)
    if weights is not None:
        H = symmetric_matrix(aligned(weights, labels, "weights"), "weights", n)
        if H.min() < 0 or H.max() > 1:
            wrong = H.min() if H.min() < 0 else H.max()
            raise ValueError(f"weights has the value {wrong:g}; expected numbers from 0 to 1")
        T += H * (A - T)
    i, j = fixed_pairs(aligned(fixed, labels, "fixed"), n, labels)
    T[i, j] = T[j, i] = A[i, j]
    return None if target is None and weights is None and len(i) == 0 else T


def _root(T: Array | None, t: float, A: Array, fixed: Any, labels: Labels) -> Array | None:
    """Return Cholesky's factor of ``T - t I``, None for the identity; refuse a target that has none."""
    if T is None:
        return None
    L = root_of(T - t * np.eye(len(T)))
    if L is not None:
        return L
    mask = np.zeros(A.shape, dtype=bool)
    i, j = fixed_pairs(aligned(fixed, labels, "fixed"), len(A), labels)
    mask[i, j] = mask[j, i] = True
    block, least = least_block(mask, A) if len(i) else (i, np.inf)
    if least <= t:
        names = ", ".join(str(k if labels is None else labels[k]) for k in block)
        raise ValueError(
            f"fixed keeps all entries of {names}, and this block has the eigenvalue {least:.3g}; expected "
            f"eigenvalues above {t:g}: fix fewer of its entries, or lower min_eigenvalue"
        )
    kept = ", with the kept entries of A in it," if fixed is not None else ""
    raise ValueError(
        f"target{kept} has the eigenvalue {np.linalg.eigvalsh(T)[0]:.3g}; expected eigenvalues above {t:g}"
    )


def _shrunk(A: Array, T: Array | None, L: Array | None, t: float, begin: float) -> Solution:
    """Return the certified answer; the vector is computed again by a dense method if it proves too little."""
    n = len(A)
    towards = np.negative(A) if T is None else T - A  # `T - A`; its diagonal is zero
    np.fill_diagonal(towards, 0.0)
    for dense in [False, True] if n >= _LANCZOS else [True]:
        v, steps = _vector(A, L, t, dense)
        own, rise = float(v @ (A @ v)) - t, float(v @ (towards @ v))
        lower = min(max(-own / rise, 0.0), 1.0) if own < 0 < rise else 0.0
        alpha, X = _psd_above(A, towards, lower, t, max(rise, EPS))
        if alpha - lower <= _TOL * alpha:
            break
    v = v / np.sqrt(rise) if lower > 0 else np.zeros(n)
    return bracketed(
        value=alpha,
        lower=lower,
        scale=1.0,
        tol=_TOL,
        X=X,
        u={"alpha": alpha},
        duals=(LowRank(v[:, None]),),
        residual=0.0,
        iterations=steps,
        solver="shrinking",
        citation=_CITATION,
        begin=begin,
    )


def _vector(A: Array, L: Array | None, t: float, dense: bool) -> tuple[Array, int]:
    """Return the eigenvector of the smallest eigenvalue of ``(A - t I) v = mu L L' v``, and the steps."""
    n, steps = len(A), 0

    def congruent(x: Array) -> Array:
        """Return ``inv(L) (A - t I) inv(L') x``."""
        nonlocal steps
        steps += 1
        y = x if L is None else lapack.dtrtrs(L, x, lower=1, trans=1)[0]
        y = A @ y - t * y
        return y if L is None else lapack.dtrtrs(L, y, lower=1)[0]

    if dense:
        return _dense_vector(A, L, t), 1
    operator = LinearOperator((n, n), matvec=congruent, dtype=float)
    start = np.random.default_rng(0).normal(size=n)
    try:
        _, V = eigsh(operator, k=1, which="SA", v0=start, tol=1e-7, ncv=_VECTORS, maxiter=50)
    except ArpackNoConvergence:
        return _dense_vector(A, L, t), steps
    v = V[:, 0] if L is None else lapack.dtrtrs(L, V[:, 0], lower=1, trans=1)[0]
    return v / np.linalg.norm(v), steps


def _dense_vector(A: Array, L: Array | None, t: float) -> Array:
    """Return the same from all entries."""
    moved = A - t * np.eye(len(A))
    if L is None:
        _, V = eigh(moved, subset_by_index=[0, 0], overwrite_a=True, check_finite=False)
        v: Array = V[:, 0]
    else:
        reduced, _ = lapack.dsygst(moved, L, itype=1, lower=1)
        _, V = eigh(reduced, lower=True, subset_by_index=[0, 0], overwrite_a=True, check_finite=False)
        v = lapack.dtrtrs(L, V[:, 0], lower=1, trans=1)[0]
    return v / np.linalg.norm(v)


def _psd_above(A: Array, towards: Array, lower: float, t: float, rise: float) -> tuple[float, Array]:
    """Return the first ``alpha``, in growing steps from the bound, that Cholesky's factorization proves."""
    n = len(A)
    step = 2 * EPS * float(np.linalg.norm(A)) / rise
    for trial in range(0 if lower == 0 else 1, _TRIALS):
        alpha = lower if trial == 0 else min(lower + step * 10.0 ** (trial - 1), 1.0)
        X = towards * alpha
        X += A
        diagonal = X.ravel()[:: n + 1]
        diagonal -= t
        if root_of(X) is not None:
            diagonal[:] = 1.0
            return alpha, X
    return 1.0, A + towards
