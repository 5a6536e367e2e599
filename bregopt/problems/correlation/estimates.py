"""Correlations from data with gaps, and their shrinking to a target."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from bregopt.arrays import (
    EPS,
    Array,
    ArrayOrFrame,
    Frame,
    IntArray,
    doubles,
    rectangular,
    rows_with_data,
    symmetric_matrix,
)
from bregopt.clock import threads_for
from bregopt.errors import DataWarning, require, warn_caller
from bregopt.io.matrices import Labels, aligned, framed, is_pandas, is_stack, labeled, labels_of
from bregopt.linalg import root_of
from bregopt.problems.arguments import LABELS_SHOWN, fixed_pairs
from bregopt.problems.correlation.answer import bracketed
from bregopt.problems.correlation.infeasibility import least_block
from bregopt.problems.correlation.request import diagonal_message, least_eigenvalue
from bregopt.program.rows.base import LowRank
from bregopt.records import dataclass
from bregopt.routes.solution import Solution

_FEW, _STALE = "few dates", "no variation"  # why a pair is unknown
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


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseCorrelation:
    """Correlations, and weights for :func:`bregopt.nearest_correlation`; it unpacks as ``A, weights``.

    Attributes
    ----------
    A : array or DataFrame of shape (n, n)
        Symmetric, with unit diagonal; NaN where a pair is unknown.
    weights : array or DataFrame of shape (n, n)
        The roots of the numbers of common dates, relative to the largest; 0 where `A` is NaN.
    counts : int array or DataFrame of shape (n, n)
        The numbers of common dates.
    min_samples : int
        Common dates below which a pair is unknown.
    """

    A: ArrayOrFrame
    weights: ArrayOrFrame
    counts: ArrayOrFrame
    min_samples: int

    def __iter__(self) -> Iterator[ArrayOrFrame]:
        return iter((self.A, self.weights))

    @property
    def unknown(self) -> list[tuple[Any, Any, int, str]]:
        """The unknown pairs: two columns, the number of common dates, and why the pair is unknown.

        The reason is "few dates", or "no variation" where one of the two is constant on the common dates.
        """
        labels, i, j = self._pairs
        counts = np.asarray(self.counts)[i, j]
        few = counts < self.min_samples
        return [
            (labels[a], labels[b], int(count), _FEW if is_few else _STALE)
            for a, b, count, is_few in zip(i, j, counts, few, strict=True)
        ]

    def to_frame(self) -> Frame:
        """Return the unknown pairs as a DataFrame: row, column, dates, reason."""
        columns = ["row", "column", "dates", "reason"]
        return require("pandas", "pandas").DataFrame(self.unknown, columns=columns)

    @property
    def _pairs(self) -> tuple[Any, IntArray, IntArray]:
        """The labels, and the indices of the unknown pairs."""
        A: Any = self.A
        labels = list(A.columns) if is_pandas(A, "DataFrame") else range(len(A))
        i, j = np.nonzero(np.triu(np.isnan(np.asarray(A)), 1))
        return labels, i, j

    def __repr__(self) -> str:
        n, unknown = len(self.A), self.unknown
        lines = [f"bregopt correlations: {n} columns, {len(unknown)} of {n * (n - 1) // 2} pairs unknown"]
        for reason, text in (
            (_FEW, f"fewer than {self.min_samples} common dates"),
            (_STALE, "no variation on the common dates"),
        ):
            own = [pair for pair in unknown if pair[3] == reason]
            if own:
                lines.append(f"  {len(own)} with {text}, the first {own[0][0]}, {own[0][1]}")
        return "\n".join(lines)


def pairwise_correlation(returns: ArrayLike, min_samples: int = 2) -> PairwiseCorrelation:
    """Return pairwise-complete correlations of returns with gaps, weighted by numbers of samples.

    Each correlation uses the dates on which both columns have a return. Such a matrix need not be positive
    semidefinite; :func:`nearest_correlation` repairs it. A pair is unknown if it has fewer common dates than
    `min_samples`, or if one of its columns is constant on them, such as a stale price.

    Parameters
    ----------
    returns : array_like or DataFrame of shape (T, n)
        One row a date and one column an asset; NaN marks a gap.
    min_samples : int, at least 2
        Common dates below which a correlation is unknown.

    Returns
    -------
    PairwiseCorrelation
        It unpacks as ``A, weights``, and says which pairs are unknown and why. With these weights the
        objective of `nearest_correlation` is the sum of squared changes times numbers of samples.

    Raises
    ------
    TypeError, ValueError
        If the returns are no real numbers, or infinite.

    Warns
    -----
    DataWarning
        If a column has no known correlation; `nearest_correlation` leaves it out.

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
    least = min(int(min_samples), len(points) + 1)
    given: Any = returns
    names = given.columns if is_pandas(returns, "DataFrame") else range(points.shape[1])
    A, counts = _correlations(points, least)
    (rows,) = rows_with_data(A[None])
    lost = [str(names[k]) for k in np.flatnonzero(~rows)]
    if lost:
        some = ", ".join(lost[:LABELS_SHOWN]) + (" and more" if len(lost) > LABELS_SHOWN else "")
        warn_caller(
            f"{'column' if len(lost) == 1 else 'columns'} {some} of returns: no correlation is known, for "
            "want of common dates or of variation on them",
            DataWarning,
        )
    weights = np.sqrt(np.where(np.isfinite(A), counts, 0.0) / max(counts.max(initial=0.0), 1.0))
    found: list[Any] = [A, weights, counts.astype(np.intp)]
    labels = names if is_pandas(returns, "DataFrame") else None
    A, weights, counts = (framed(own, labels, labels) for own in found)
    return PairwiseCorrelation(A, weights, counts, int(min_samples))


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


def _correlations(points: Array, least: int) -> tuple[Array, Array]:
    """Return the correlations, and the numbers of common samples.

    A pair with fewer than `least` of them, or without variation on them, is NaN.
    """
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
    varies = variance > _CONSTANT * np.maximum(squares / size, 1e-300)
    known &= varies & varies.T
    A = covariance / np.sqrt(np.where(known, variance * variance.T, 1.0))
    A = np.clip((A + A.T) / 2, -1.0, 1.0)
    np.fill_diagonal(A, 1.0)
    return np.where(known, A, np.nan), counts


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
        at = k if labels is None else labels[k]
        raise ValueError(
            diagonal_message(C, labels, name)
            or f"{name} has {C[k, k]:.10g} on the diagonal, at {at}; expected 1: of a covariance pass "
            f"{name} / np.outer(s, s) with s = np.sqrt(np.diag({name}))"
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
        iterations=steps,
        solver="shrinking",
        citation=_CITATION,
        begin=begin,
    )


def _vector(A: Array, L: Array | None, t: float, dense: bool) -> tuple[Array, int]:
    """Return the eigenvector of the smallest eigenvalue of ``(A - t I) v = mu L L' v``, and the steps."""
    n, steps, V = len(A), 0, None

    def congruent(x: Array) -> Array:
        """Return ``inv(L) (A - t I) inv(L') x``."""
        nonlocal steps
        steps += 1
        y = x if L is None else lapack.dtrtrs(L, x, lower=1, trans=1)[0]
        y = A @ y - t * y
        return y if L is None else lapack.dtrtrs(L, y, lower=1)[0]

    if not dense:
        operator = LinearOperator((n, n), matvec=congruent, dtype=float)
        start = np.random.default_rng(0).normal(size=n)
        with suppress(ArpackNoConvergence):
            _, V = eigsh(operator, k=1, which="SA", v0=start, tol=1e-7, ncv=_VECTORS, maxiter=50)
    if V is None:
        moved = A - t * np.eye(n)
        moved = moved if L is None else lapack.dsygst(moved, L, itype=1, lower=1)[0]
        _, V = eigh(moved, lower=True, subset_by_index=[0, 0], overwrite_a=True, check_finite=False)
    v: Array = V[:, 0] if L is None else lapack.dtrtrs(L, V[:, 0], lower=1, trans=1)[0]
    return v / np.linalg.norm(v), max(steps, 1)


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
