"""The nearest correlation matrix, and the nearest positive semidefinite matrix under any constraints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.arrays import Array, symmetric_matrix
from bregopt.certify import PrimalDualPoint, certify
from bregopt.errors import DataWarning, warn_caller
from bregopt.io.matrix_stacks import is_stack
from bregopt.io.pandas_labels import Labels, aligned, labeled, labels_of, pair_labels
from bregopt.modeling.atoms import diag
from bregopt.modeling.bounds import between
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.objectives import Minimize, frobenius_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.psd import PSD
from bregopt.problems.arguments import check_arguments
from bregopt.problems.certified import certified
from bregopt.problems.cliques import least_block
from bregopt.problems.nearest_arguments import (
    BoundedEntries,
    bounded_entries,
    covariance_message,
    fixed_entries,
    fixed_pairs,
    least_eigenvalue,
    row_and_entry_weights,
)
from bregopt.problems.nearest_stacks import nearest_correlations, nearest_psds
from bregopt.problems.objective import divergence_class, nearness
from bregopt.problems.solutions import Solutions
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.routes.base import Settings
from bregopt.routes.options import time_limit
from bregopt.routes.solution import Solution
from bregopt.threads import threads_for

__all__ = ["nearest_correlation", "nearest_psd"]

_ROUND_OFF = 1e-10  # absolute round-off of the eigenvalues of blocks with unit diagonal
_LARGEST_EXPLAINED = 5_000  # number of indices with fixed entries among which a block is searched for
_SHOWN = 6  # number of indices of a block in messages


def nearest_psd(
    A: Any,
    constraints: Callable[[PSD], Any] | Sequence[Callable[[PSD], Any]] = (),
    divergence: str = "frobenius",
    **options: Any,
) -> Solution | Solutions:
    """Return the positive semidefinite matrix nearest to `A` that meets the constraints.

    Parameters
    ----------
    A : array_like or DataFrame of shape (n, n), or LowRank; or a stack of these
        Symmetric; positive definite or ``LowRank`` for LogDet and von Neumann. Stacks are those of
        :func:`nearest_correlation`.
    constraints : callable, or sequence of callables
        Each takes the matrix variable and returns a constraint or a list of them, for instance
        ``lambda X: [bo.diag(X) == 1, X[0, 1] >= 0]``.
    divergence : {"frobenius", "logdet", "von_neumann"}
    **options
        Options of :meth:`bregopt.Problem.solve`.

    Returns
    -------
    Solution, or Solutions of a stack
        ``X`` is a DataFrame if `A` is one.

    Raises
    ------
    TypeError, ValueError
        If the input is bad; the message names the argument. A bad matrix of a stack raises nothing: its
        status is "error".

    Examples
    --------
    >>> import bregopt as bo
    >>> bo.nearest_psd([[1, 2], [2, 1]]).X.round(6).tolist()
    [[1.5, 1.5], [1.5, 1.5]]
    """
    check_arguments(nearest_psd, options)
    declarations = _declarations(constraints)
    if is_stack(A):
        return nearest_psds(nearest_psd, A, declarations, divergence, options)
    labels = labels_of(A, "A")
    target = _target(A)
    X = PSD(target.shape[0], name="X")
    problem = Problem(
        Minimize(nearness(divergence, X, target, "A")), [declare(X) for declare in declarations]
    )
    return labeled(problem.solve(**options), labels)


def nearest_correlation(
    A: Any,
    divergence: str = "frobenius",
    fixed: Any = None,
    lower: Any = None,
    upper: Any = None,
    min_eigenvalue: float = 0.0,
    weights: Any = None,
    **options: Any,
) -> Solution | Solutions:
    """Return the correlation matrix nearest to `A`.

    Parameters
    ----------
    A : array_like or DataFrame of shape (n, n), or LowRank; or a stack of these
        Symmetric. LogDet and von Neumann need it positive definite or ``LowRank``; repair any other matrix
        first, with Frobenius and `min_eigenvalue`. A stack is an array of shape (B, n, n), a dict of matrices
        of any orders, or a DataFrame with the matrices' keys in the first level of its index and labels in
        the second level and the columns.
    divergence : {"frobenius", "logdet", "von_neumann"}
    fixed : boolean array_like of shape (n, n), or integer array_like of shape (k, 2), optional
        Entries off the diagonal that stay as they are in `A`: a symmetric mask, or pairs.
    lower, upper : float or array_like of shape (n, n), optional
        Bounds on the entries off the diagonal that are not fixed; -1 and 1 by default.
    min_eigenvalue : float, from 0 and below 1
        Lower bound on the eigenvalues; Frobenius only.
    weights : array_like of shape (n,) or (n, n), optional
        Frobenius only. A vector ``w``, above 0, measures ``||W^1/2 (X - A) W^1/2||_F^2`` with ``W`` its
        diagonal matrix; a nonnegative symmetric matrix ``H`` measures ``||H o (X - A)||_F^2``, entry by
        entry. An entry of weight 0 is unknown: its value in `A` is ignored.
    **options
        Options of :meth:`bregopt.Problem.solve`. A stack has one `time_limit`, and no `warm_start`.

    Returns
    -------
    Solution, or Solutions of a stack
        ``X`` is a DataFrame if `A` is one. It is positive semidefinite. Its diagonal is exactly 1 if the
        answer scaled to this diagonal is still within `tol`. This may fail only for a ``LowRank`` `A` and for
        entries that are fixed or at a bound; the diagonal may then be off by `tol`.
        ``duals`` are those of the diagonal, the fixed entries and the bounded entries, if there are any.

    Raises
    ------
    TypeError, ValueError
        If the input is bad; the message names the argument. A bad matrix of a stack raises nothing: its
        status is "error".

    Warns
    -----
    DataWarning
        If `A` looks like a covariance, with a diagonal far from 1 (Frobenius only), or is asymmetric by
        more than the round-off of doubles, or a matrix of a stack is refused.
    ConvergenceWarning
        If the certificate does not meet `tol`.

    Notes
    -----
    All matrices of a stack share `fixed`, `lower`, `upper`, `min_eigenvalue` and `weights`, or each has its
    own: in a dict with the keys of `A` (``0 .. B-1`` for an array), a DataFrame like `A`, an array of shape
    (B, n, n), or for numbers an array of shape (B,) or a Series. Slices of the stack that fit the cache are
    solved at once, large orders and weights of entries one by one. Warnings are given once for the stack.

    The problem is infeasible if a block of `fixed` entries has an eigenvalue below `min_eigenvalue`; the
    answer's `stop_reason` then names the block and the eigenvalue.

    Let ``S`` be the diagonal matrix of the roots of the weights and ``t = min_eigenvalue``. The variable is
    ``Y = S (X - t I) S``, which is positive semidefinite if and only if ``X`` has no eigenvalue below ``t``.

    References
    ----------
    Higham (2002), Computing the nearest correlation matrix: a problem from finance.

    Examples
    --------
    >>> import bregopt as bo
    >>> A = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    >>> bo.nearest_correlation(A).X[0].round(4).tolist()
    [1.0, 0.7607, 0.1573]
    """
    with clock.limited(time_limit(options)):
        check_arguments(nearest_correlation, options)
        if is_stack(A):
            given = {
                "fixed": fixed,
                "lower": lower,
                "upper": upper,
                "min_eigenvalue": min_eigenvalue,
                "weights": weights,
            }
            return nearest_correlations(nearest_correlation, A, divergence, given, options)
        labels = labels_of(A, "A")
        target = _target(A)
        n = target.shape[0]
        kind = divergence_class(divergence)
        t = least_eigenvalue(min_eigenvalue, kind)
        s, H = row_and_entry_weights(aligned(weights, labels, "weights"), n, kind)
        pairs = fixed_pairs(aligned(fixed, labels, "fixed"), n)
        lower, upper = aligned(lower, labels, "lower"), aligned(upper, labels, "upper")
        Y = PSD(n, name="X")
        if kind.quadratic and not isinstance(target, LowRank):
            moved = s[:, None] * (target - t * np.eye(n)) * s
            objective = frobenius_div(Y, moved, weights=H)
        else:
            objective = nearness(divergence, Y, target, "A")
        kept = fixed_entries(pairs, target, 1 - t)
        rows = _correlation_rows(Y, t, s, kept, bounded_entries(lower, upper, pairs, n, 1 - t), labels)
        if kind.quadratic:
            message = covariance_message(target.diagonal(), labels)
            if message is not None:  # a LogDet or von Neumann prior may have any scale
                warn_caller(message, DataWarning)
        problem = Problem(Minimize(objective), rows)
        with clock.reserving(_seconds_to_scale(target)):
            solution = problem.solve(**options)
        if solution.status in ("infeasible", "infeasible_inaccurate"):
            return _with_reason(solution, kept, t, labels)
        solution = _with_unit_diagonal(problem, solution, s**2 * (1 - t), options.get("tol", Settings.tol))
        return labeled(_moved_back(solution, s, t), labels)


def _declarations(constraints: Any) -> Sequence[Callable[[PSD], Any]]:
    """Return functions that declare constraints, one function too."""
    given: Any = [constraints] if callable(constraints) else constraints
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(map(callable, given)):
        raise TypeError(
            f"constraints is {constraints!r}; expected a function of the matrix variable that returns "
            "constraints, or a sequence of such functions"
        )
    return given


def _with_reason(solution: Solution, kept: BoundedEntries, t: float, labels: Labels) -> Solution:
    """Return an infeasible answer; its reason names the fixed block that proves it, if there is one."""
    touched, at = np.unique(np.concatenate([kept.i, kept.j]), return_inverse=True)
    if len(touched) > _LARGEST_EXPLAINED:
        return solution
    i, j = at.reshape(2, -1)
    C, mask = np.eye(len(touched)), np.zeros((len(touched),) * 2, dtype=bool)
    C[i, j] = C[j, i] = kept.lo
    mask[i, j] = mask[j, i] = True
    block, least = least_block(mask, C)
    if least > t - _ROUND_OFF:
        return solution
    block = touched[block]
    names = [str(k if labels is None else labels[k]) for k in block[:_SHOWN]]
    more = f" and {len(block) - _SHOWN} more" if len(block) > _SHOWN else ""
    reason = (
        f"No X meets the hard rows: fixed keeps all entries of {', '.join(names)}{more}, and with a unit "
        f"diagonal this block has the eigenvalue {least:.3g}, below {t:g}. Fix fewer of its entries."
    )
    return replace(solution, stop_reason=reason)


def _correlation_rows(
    Y: PSD, t: float, s: Array, fixed: BoundedEntries, bounded: BoundedEntries, labels: Labels
) -> list[Constraint]:
    """Return the named rows on the entries of ``X`` in terms of ``Y = S (X - t I) S``."""
    rows = [(diag(Y) / s**2 == 1 - t).named("diagonal")]
    if len(fixed.i):
        entries = Y[fixed.i, fixed.j] / (s[fixed.i] * s[fixed.j])
        rows.append((entries == fixed.lo).named("fixed"))
    if len(bounded.i):
        entries = Y[bounded.i, bounded.j] / (s[bounded.i] * s[bounded.j])
        rows.append(between(entries, bounded.lo, bounded.hi).named("bounds"))
    if labels is not None:
        pairs = {"fixed": fixed, "bounds": bounded}
        for row in rows:
            own = pairs.get(row.name or "")
            row.axes = (labels if own is None else pair_labels(labels, own.i, own.j),)
    return rows


def _moved_back(solution: Solution, s: Array, t: float) -> Solution:
    """Return the solution in terms of ``X``; without weights and with ``t = 0``, ``X`` is ``Y``."""
    if solution.X is None or (t == 0 and (s == 1).all()):
        return solution
    X = solution.X / np.outer(s, s) + t * np.eye(len(s))
    exact = solution.X.diagonal() == s**2 * (1 - t)
    np.fill_diagonal(X, np.where(exact, 1.0, X.diagonal()))  # exact diagonals stay exact
    return replace(solution, X=X)


def _target(A: Any) -> Matrix:
    return A if isinstance(A, LowRank) else symmetric_matrix(A, "A")


def _seconds_to_scale(target: Matrix) -> float:
    """Return the approximate time of the certificate of a scaled answer, in seconds."""
    nothing = isinstance(target, LowRank) or clock.remaining() == math.inf
    return 0.0 if nothing else clock.seconds_for(target.shape[0])


def _with_unit_diagonal(problem: Problem, solution: Solution, required: Array, tol: float) -> Solution:
    """Return the answer scaled to exactly the required diagonal, with the certificate of the scaled answer.

    An optimal answer is not scaled if the scaled one would not meet the tolerance.
    """
    if solution.X is None or isinstance(solution.X, LowRank):  # scaling would leave the range of X0
        return solution
    diagonal = solution.X.diagonal()
    if (diagonal == required).all() or (diagonal <= 0).any():  # exact already, or stopped too early
        return solution
    size = np.sqrt(required / diagonal)
    Y = solution.X * np.outer(size, size)
    np.fill_diagonal(Y, required)
    raw = solution._raw
    assert raw is not None
    with threads_for(len(Y)):
        certificate = certify(PrimalDualPoint(problem.program(), (Y,), raw.u, raw.duals, S=raw._S))
    if solution.status == "optimal" and not certificate.meets(tol):
        return solution
    return certified(solution, certificate, X=Y)
