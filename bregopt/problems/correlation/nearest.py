"""The nearest correlation matrix.

A small one is solved as a stack of one, and its problem is declared when it is asked for: to declare, compile
and route a problem of order 20 takes as long as to solve it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import LARGEST, SMALLEST, ArrayOrFrame, BoundsLike
from bregopt.errors import DataWarning, warn_caller
from bregopt.io.pandas_labels import labeled, pandas_module
from bregopt.io.stacks import StackLike, is_stack
from bregopt.problems.arguments import METHOD, PANEL, check_arguments, has_method, stack_settings
from bregopt.problems.correlation.answer import Asked, CorrelationSolution
from bregopt.problems.correlation.request import Request, read_request
from bregopt.problems.nearest_arguments import covariance_message
from bregopt.program import LowRank, StopReason
from bregopt.records import dataclass
from bregopt.routes.derivatives.restated import Congruence
from bregopt.routes.driver import log_answer
from bregopt.routes.options import time_limit
from bregopt.routes.progress import Progress
from bregopt.routes.registry import route
from bregopt.routes.solution import MatricesLike
from bregopt.routes.solve_options import StackOptions
from bregopt.threads import threads_for

if TYPE_CHECKING:
    from bregopt.problems.solutions import Solutions

__all__ = ["nearest_correlation", "solve_directly"]

GroupsLike = ArrayLike | Mapping[Any, Any]  # the group of each row, or of each label


def nearest_correlation(
    A: StackLike,
    divergence: str = "frobenius",
    fixed: StackLike | None = None,
    lower: BoundsLike | None = None,
    upper: BoundsLike | None = None,
    min_eigenvalue: StackLike = 0.0,
    weights: StackLike | None = None,
    max_condition: StackLike | None = None,
    groups: GroupsLike | None = None,
    missing: str = "error",
    max_rank: int | None = None,
    suggest: bool = False,
    **options: Unpack[StackOptions],
) -> CorrelationSolution | Solutions:
    """Return the correlation matrix nearest to `A`.

    Parameters
    ----------
    A : array_like or DataFrame of shape (n, n), or LowRank; or a stack of these
        Symmetric. LogDet and von Neumann need it positive definite or ``LowRank``; repair any other matrix
        first, with Frobenius and `min_eigenvalue`. A stack is an array of shape (B, n, n), a dict of matrices
        of any orders, or a DataFrame with the matrices' keys in the first level of its index and labels in
        the second level and the columns.
    divergence : {"frobenius", "logdet", "von_neumann", "largest_entry", "spectral"}
        The last two are norms of ``X - A``: its entry of largest magnitude, and its eigenvalue of largest
        magnitude. Their minimizer need not be unique.
    fixed : boolean array_like of shape (n, n), or pairs of shape (k, 2), optional
        Entries off the diagonal that stay as they are in `A`, up to the residual that `tol` allows: a
        symmetric mask, or pairs of integers, or of the labels of `A`.
    lower, upper : float, array_like of shape (n, n), or dict, optional
        Bounds on the entries off the diagonal that are not fixed; -1 and 1 by default. A dict maps pairs to
        numbers; each part of a pair is a label of `A` (an index without labels), a group of `groups`, or a
        tuple of these. The tightest bound on an entry counts.
    min_eigenvalue : float, from 0 and below 1
        Lower bound on the eigenvalues.
    weights : array_like of shape (n,) or (n, n), optional
        For Frobenius and the norms. A vector ``w``, above 0, measures ``W^1/2 (X - A) W^1/2`` with ``W`` its
        diagonal matrix; a nonnegative symmetric matrix ``H`` measures ``H o (X - A)``, entry by entry. An
        entry of weight 0 is unknown: its value in `A` is ignored. The spectral norm takes a vector only.
    max_condition : float, from 1, optional
        Upper bound on the condition number of ``X``; without `weights` in a divergence.
    groups : sequence of length n, Series, or dict from label to group; optional
        The group of each row. All entries of two groups, and all entries off the diagonal within a group, are
        then equal; for the divergences, without `max_condition`.
    missing : {"error", "unknown"}
        With "unknown", NaN marks unknown entries. Frobenius and the largest entry ignore them, so ``X`` need
        not be unique there. LogDet and von Neumann start from the completion of `A` of largest determinant.
    max_rank : int, at least 1, optional
        Upper bound on the rank of ``X``, for Frobenius and weights of rows. ``X`` is then ``LowRank``; it is
        "optimal" only if a bound proves that no matrix of this rank is nearer.
    suggest : bool
        If the request is infeasible or not solved, find the nearest fixed entries and bounds that a matrix
        meets: the answer's ``suggestion``. Without `groups`, `max_condition` and ``LowRank``.
    **options
        Options of :meth:`bregopt.Problem.solve`. A stack has one `time_limit`, and three options more:
        ``warm_start="chain"`` starts each matrix from the answer to the one before, for data that drift;
        `executor` is a ``concurrent.futures.Executor`` that solves its parts; ``progress=True`` shows a bar
        of the matrices, if tqdm is installed. With `max_rank` options are `tol`, `max_iter` and `time_limit`.

    Returns
    -------
    CorrelationSolution, or Solutions of a stack
        ``X`` is a DataFrame if `A` is one. It is positive semidefinite. Its diagonal is exactly 1, and fixed
        entries are exact, except for a ``LowRank`` `A` and where the constraints leave no interior; they may
        then be off by `tol`. ``accuracy`` bounds the distance of each entry from the optimum; in Frobenius,
        LogDet and von Neumann it is at most ``tol_X`` (1e-6), unless round-off is larger.
        ``duals`` are those of the diagonal, the fixed entries and the bounded entries, if there are any; with
        `groups`, of the problem in the correlations of groups.

    Raises
    ------
    TypeError, ValueError
        If the input is bad, or two arguments do not go together; the message names them. A bad matrix of a
        stack raises nothing: its status is "error".

    Warns
    -----
    DataWarning
        If `A` looks like a covariance, with a diagonal far from 1 (Frobenius only), or is asymmetric by
        more than the round-off of doubles, or matrices of a stack have errors.
    ConvergenceWarning
        If the certificate does not meet `tol`.

    Notes
    -----
    A row of a matrix of a stack that holds only NaN, with its column, is of an asset that is missing there.
    The problem is then that of the other rows, and ``X`` has NaN in the same places. Frames, fixed entries
    and arrays for all labels are restricted to those that are there.

    All matrices of a stack share `groups`, `missing` and bounds by pairs. They share the other arguments, or
    each has its own: in a dict with the keys of `A` (``0 .. B-1`` for an array), a DataFrame like `A`, an
    array of shape (B, n, n), or for numbers an array of shape (B,) or a Series. Slices of the stack that fit
    the cache are solved at once. Large orders, weights of entries, unknown entries, `max_condition`, `groups`
    and norms are solved one by one. Warnings are given once for the stack.

    The problem is infeasible if a block of `fixed` entries has an eigenvalue below `min_eigenvalue`, or if
    two entries force a third one beyond its bounds; the answer's `stop_reason` then names them.

    Let ``S`` be the diagonal matrix of the roots of the weights and ``t = min_eigenvalue``. In Frobenius the
    variable is ``Y = S (X - t I) S``, which is positive semidefinite if and only if ``X`` has no eigenvalue
    below ``t``. With `max_condition`, and for LogDet and von Neumann, the minimizer for given multipliers has
    clipped eigenvalues (:mod:`bregopt.divergences.conditioned`). The norms are semidefinite programs.
    The largest entry is found by Douglas-Rachford splitting, with one eigendecomposition an iteration. The
    spectral norm mostly takes one problem of order ``n - 1``.

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
        check_arguments(nearest_correlation, options, PANEL if is_stack(A) else ())
        given = {
            "fixed": fixed,
            "lower": lower,
            "upper": upper,
            "min_eigenvalue": min_eigenvalue,
            "weights": weights,
            "max_condition": max_condition,
            "groups": groups,
            "missing": missing,
            "max_rank": max_rank,
            "suggest": suggest,
        }
        if is_stack(A):
            from bregopt.problems.nearest_stacks import nearest_correlations  # only those with stacks wait

            return nearest_correlations(nearest_correlation, A, divergence, given, options)
        request = read_request(A, divergence, given)
        message = covariance_message(request.A.diagonal(), request.labels)
        if message is not None and (request.kind is None or request.kind.quadratic):
            warn_caller(message, DataWarning)  # a LogDet or von Neumann prior may have any scale
        direct = solve_directly(request, options)
        if direct is not None:
            return direct
        from bregopt.problems.correlation.answered import answered  # small matrices do not wait

        return answered(request, given, options, nearest_correlation)


@dataclass(frozen=True, eq=False, repr=False)
class _Direct(CorrelationSolution):
    """An answer that has its derivative at hand."""

    _proven: Any = field(kw_only=True)

    def vjp(self, G: MatricesLike) -> ArrayOrFrame | tuple[ArrayOrFrame, ...]:
        return self._proven.products.vjp(G, self.X)

    def jvp(self, dA: MatricesLike) -> ArrayOrFrame | tuple[ArrayOrFrame, ...]:
        return self._proven.products.jvp(dA, self.X)


def solve_directly(request: Request, options: Mapping[str, Any]) -> CorrelationSolution | None:
    """Return the nearest correlation matrix; None where the method does not take it, or does not prove it."""
    if not _is_plain(request) or not has_method(request.divergence, options) or clock.remaining() <= 0:
        return None
    begin = time.perf_counter()
    settings, method = stack_settings(options), route(METHOD)
    progress = Progress(method.name)
    with threads_for(request.n):
        proven = method.nearest_correlations(np.asarray(request.A)[None], settings)
    if proven is None:
        return None
    certificate, labels = proven.certificate.of(0), request.labels
    progress.record(proven.steps, certificate)
    dual = 0.0 - proven.y[0]
    seconds = time.perf_counter() - begin  # of all at once: the method proves its answers
    solution = _Direct(
        status=certificate.status(settings.tol, StopReason.CONVERGED).value,
        stop_reason=StopReason.CONVERGED.value,
        value=certificate.primal,
        X=proven.X[0],
        u={},
        duals=(dual,),
        dual_value=certificate.dual,
        gap=certificate.gap,
        primal_residual=certificate.primal_residual,
        dual_residual=certificate.dual_residual,
        error=certificate.error,
        iterations=proven.steps,
        timings={"setup": 0.0, "solve": seconds, "certify": 0.0, "total": seconds},
        solver=method.name,
        history=progress.history(),
        citation=proven.citation,
        duals_by_name={"diagonal": dual if labels is None else pandas_module().Series(dual.copy(), labels)},
        _stop=StopReason.CONVERGED,
        _restated=Congruence(request.s, request.n, request.fixed.i, request.fixed.j),
        _asked=Asked.of(request),
        _request=request,
        _proven=proven,
    )
    log_answer(solution)
    return labeled(solution, labels)


def _is_plain(request: Request) -> bool:
    """Whether nothing but the matrix is given, and the distance is Frobenius's."""
    given = (request.H, request.unknown, request.condition, request.groups, request.rank, request.scale)
    if request.divergence != "frobenius" or any(part is not None for part in given):
        return False
    if isinstance(request.A, LowRank) or len(request.fixed.i) or len(request.bounded.i):
        return False
    largest = float(np.abs(request.A).max())
    return request.floor == 0 and bool((request.s == 1).all()) and SMALLEST <= largest <= LARGEST
