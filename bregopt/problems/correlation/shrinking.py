"""The smallest shrinking of a matrix towards a correlation matrix that makes it one."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from bregopt.arrays import EPS, Array, symmetric_matrix
from bregopt.io.pandas_labels import Labels, aligned, labeled, labels_of
from bregopt.io.stacks import is_stack
from bregopt.linalg import root_of
from bregopt.problems.correlation.bracketed import bracketed
from bregopt.problems.correlation.explain import least_block
from bregopt.problems.nearest_arguments import fixed_pairs, least_eigenvalue
from bregopt.program.lowrank import LowRank
from bregopt.routes.solution import Solution
from bregopt.threads import threads_for

__all__ = ["shrink_correlation"]

_CITATION = (
    "Higham, Strabic, Sego (2016), Restoring Definiteness via Shrinking, with an Application to Correlation "
    "Matrices with a Fixed Block, SIAM Review 58"
)
_UNIT = 1e-10  # distance of a diagonal from one up to which it is round-off
_LANCZOS = 500  # the order from which Lanczos's method is faster (benchmarks/correlation.py shrinking)
_VECTORS = 40  # of Lanczos's method
_TRIALS = 6  # steps above the bound, each 10 times the one before
_TOL = 1e-6


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
