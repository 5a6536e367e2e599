"""The nearest correlation matrix: the function, and the problems with rows on entries alone.

Those are solved as a stack of one, and the problem is declared when it is asked for: to declare, compile and
route a problem of order 20 takes longer than to solve it. With the diagonal matrix ``S`` of the roots of the
weights and the bound ``t`` on the eigenvalues the variable is ``Y = S (X - t I) S``, which is positive
semidefinite if and only if ``X`` has no eigenvalue below ``t``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import EPS, LARGEST, SMALLEST, Array, BoundsLike, IntArray, Mask
from bregopt.certify.stacks import StackedAnswer
from bregopt.clock import CutShort, threads_for
from bregopt.errors import DataWarning, warn_caller
from bregopt.io.matrices import (
    StackLike,
    framed,
    is_stack,
    labeled,
    opened,
    pair_labels,
)
from bregopt.linalg import root_of
from bregopt.problems.correlation.answer import CorrelationSolution, reportable
from bregopt.problems.correlation.infeasibility import check_suggestible, obstacle, suggestion
from bregopt.problems.correlation.request import (
    Request,
    check_missing,
    diagonal_message,
    read_request,
    rows_left,
)
from bregopt.problems.correlation.solve import INFEASIBLE, solve_request
from bregopt.program import LowRank, StopReason
from bregopt.program.stacks import STACKED, EntryStack
from bregopt.records import cached_property, dataclass, replace
from bregopt.routes.derivatives.stacks import Congruence
from bregopt.routes.driver import log_answer
from bregopt.routes.registry import (
    PANEL,
    STACKS,
    StackOptions,
    check_arguments,
    load,
    stack_answer,
    stack_settings,
    takes_stacks,
    time_limit,
)
from bregopt.routes.solution import Solution, Status

if TYPE_CHECKING:
    from bregopt.problems.solutions import Solutions

GroupsLike = ArrayLike | Mapping[Any, Any]  # the group of each row, or of each label

logger = logging.getLogger(__name__)

_BY_PROBLEM = ("t", "s", "lo", "hi", "fixed", "bounded", "refused")
_MOST_ROWS = 5_000  # fixed and bounded entries beyond which the language's methods take no more time


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
    A : array_like or DataFrame of shape (n, n), or LowRank; or a stack of these; or the path of a file
        Symmetric. LogDet and von Neumann need it positive definite or ``LowRank``; repair any other matrix
        first, with Frobenius and `min_eigenvalue`. A stack is an array of shape (B, n, n), a dict of matrices
        of any orders, or a DataFrame with the matrices' keys in the first level of its index and labels in
        the second level and the columns. A file is ``.csv``, ``.npy``, ``.npz``, ``.mtx`` or ``.parquet``; a
        stack in an ``.npy`` file, or a memory map of one, is read part by part.
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
        Options of :meth:`bregopt.Problem.solve`. A stack has one `time_limit`, and four options more:
        ``warm_start="chain"`` starts each matrix from the answer to the one before, for data that drift;
        `executor` is a ``concurrent.futures.Executor`` that solves its parts; ``progress=True`` shows a bar
        of the matrices, if tqdm is installed; `resume` is a folder that keeps the answers as they are found,
        ``X`` of arrays in a file of its own, so that a later call solves the rest.
        With `max_rank` options are `tol`, `max_iter` and `time_limit`.

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
    clipped eigenvalues (:mod:`bregopt.divergences.trace_function`). The norms are semidefinite programs.
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
    A = opened(A, "A")
    several = is_stack(A)
    with clock.limited(time_limit(options), batch=several):
        check_arguments(nearest_correlation, options, PANEL if several else ())
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
        if several:
            from bregopt.problems.nearest_stacks import nearest_correlations  # only those with stacks wait

            return nearest_correlations(nearest_correlation, A, divergence, given, options)
        check_missing(missing)
        rows = rows_left(A, missing)
        if rows is not None:
            from bregopt.problems.nearest_stacks import nearest_of_rows  # likewise

            given["divergence"] = divergence
            return nearest_of_rows(nearest_correlation, A, rows, given, options)
        request = read_request(A, divergence, given)
        A = request.A
        message = diagonal_message(A.diagonal() if isinstance(A, LowRank) else A, request.labels)
        if message is not None and (request.kind is None or request.kind.quadratic):
            warn_caller(message, DataWarning)  # a LogDet or von Neumann prior may have any scale
        direct = None if suggest else solve_directly(request, options)
        if direct is not None:
            return direct

        return answered(request, given, options, nearest_correlation)


def solve_directly(request: Request, options: Mapping[str, Any]) -> CorrelationSolution | None:
    """Return the answer of the method for rows on entries; None where it does not take or prove it.

    Problems that it does not take or prove, infeasible ones among them, are those of the language. Nobody
    watches its steps: who reads the log of them sees those of the language's methods.
    """
    if not _has_rows_on_entries(request) or not takes_stacks(request.divergence, options):
        return None
    if clock.remaining() <= 0 or logger.isEnabledFor(logging.DEBUG):
        return None
    settings, begin = stack_settings(options), time.perf_counter()
    try:
        with threads_for(request.n):
            solved = _solved(request, settings)
    except CutShort:
        return None
    if solved is None:
        return None
    X, duals, answer = solved
    certificate, iterations = answer.certificate.of(0), int(answer.iterations[0])
    seconds = time.perf_counter() - begin  # of all at once: the method proves its answers
    method: Any = load(STACKS)
    record = {
        "iteration": iterations,
        "primal": certificate.primal,
        "dual": certificate.dual,
        "gap": certificate.gap,
        "primal_residual": certificate.primal_residual,
        "seconds": seconds,
    }
    solution = CorrelationSolution(
        status=certificate.status(settings.tol, StopReason.CONVERGED).value,
        stop_reason=StopReason.CONVERGED.value,
        X=X,
        u={},
        duals=duals,
        **certificate.fields,
        iterations=iterations,
        timings={"setup": 0.0, "solve": seconds, "certify": 0.0, "total": seconds},
        solver=STACKS,
        history={name: np.array([value], dtype=float) for name, value in record.items()},
        citation=method.stack_citations[request.divergence],
        duals_by_name=_by_name(request, duals),
        _stop=StopReason.CONVERGED,
        _restated=Congruence(request.s, request.n, request.fixed.i, request.fixed.j),
        _units=request.units,
        _request=request,
    )
    if logger.isEnabledFor(logging.INFO):
        log_answer(solution)
    return labeled(solution, request.labels)


def _solved(request: Request, settings: Any) -> tuple[Array, tuple[Array, ...], StackedAnswer] | None:
    """Return ``X``, the duals and the answer to the stack of one problem; None where it is not proven."""
    rows, A = _rows_of(request), np.asarray(request.A)
    if STACKED[request.divergence].definite_start and root_of(A) is None:
        return None
    try:
        problem = rows.problem(A[None], request.divergence)
    except np.linalg.LinAlgError:
        return None
    answer = None if problem.crowded else stack_answer(problem, settings)
    if answer is None or len(answer.solved) == 0:
        return None
    (X,), (duals,) = rows.restored(answer.X), rows.duals(answer.y)
    unit = request.scale
    if unit is not None:  # the rows are those on covariances
        pairs = [own for own in (request.fixed, request.bounded) if len(own.i)]
        sizes = [unit**2, *(unit[own.i] * unit[own.j] for own in pairs)]
        duals = tuple(dual / size for dual, size in zip(duals, sizes, strict=True))
    return X, duals, answer


def _has_rows_on_entries(request: Request) -> bool:
    """Whether there is a distance of a usual size, with bounds on eigenvalues that a shift can meet."""
    kind, A = request.kind, request.A
    if kind is None or isinstance(A, LowRank) or request.of_eigenvalues:
        return False
    if any(part is not None for part in (request.H, request.unknown, request.groups, request.rank)):
        return False
    if request.divergence not in STACKED or len(A) > STACKED[request.divergence].largest_order:
        return False
    count = len(request.fixed.i) + len(request.bounded.i)
    return count <= _MOST_ROWS and bool(SMALLEST <= np.abs(A).max() <= LARGEST)


def _rows_of(request: Request) -> CorrelationRows:
    """Return the rows of one problem."""
    if request.is_plain:
        return CorrelationRows.of_diagonals(1, request.n)
    fixed, bounded = request.fixed, request.bounded
    count = len(fixed.i)
    i, j = np.append(fixed.i, bounded.i), np.append(fixed.j, bounded.j)
    lo, hi = np.append(fixed.lo, bounded.lo)[None], np.append(fixed.hi, bounded.hi)[None]
    is_fixed = np.arange(len(i))[None] < count
    t, refused = np.broadcast_to(request.t, (1, request.n)), np.zeros(1, dtype=bool)
    return CorrelationRows(t, request.s[None], i, j, lo, hi, is_fixed, ~is_fixed, refused)


def _by_name(request: Request, duals: tuple[Array, ...]) -> dict[str, Any]:
    """Return the duals by the names of their constraints, with the labels of the matrix."""
    labels = request.labels
    pairs = {"fixed": request.fixed, "bounds": request.bounded}
    present = {name: own for name, own in pairs.items() if len(own.i)}
    named = dict(zip(("diagonal", *present), duals, strict=True))
    if labels is None:
        return named
    axes = {"diagonal": labels} | {name: pair_labels(labels, own.i, own.j) for name, own in present.items()}
    return {name: framed(dual.copy(), axes[name]) for name, dual in named.items()}


@dataclass(frozen=True, eq=False)
class CorrelationRows:
    """The rows of nearest correlation problems of one order ``n``, in terms of ``X``.

    Parameters
    ----------
    t : array of shape (b, n)
        ``X - Diag(t)`` is positive semidefinite: lower bounds on the eigenvalues.
    s : array of shape (b, n)
        Roots of the weights.
    i, j : int array of shape (k,)
        Entries above the diagonal that are fixed or bounded in one of the problems, in the order of the rows.
    lo, hi : array of shape (b, k)
    fixed, bounded : boolean array of shape (b, k)
    refused : boolean array of shape (b,)
        The problems with bad arguments.
    """

    t: Array
    s: Array
    i: IntArray
    j: IntArray
    lo: Array
    hi: Array
    fixed: Mask
    bounded: Mask
    refused: Mask

    @classmethod
    def of_diagonals(cls, b: int, n: int) -> CorrelationRows:
        """Return the rows of `b` problems with a diagonal alone."""
        none, empty = np.zeros(0, dtype=np.intp), np.zeros((b, 0))
        no = empty.astype(bool)
        return cls(
            np.zeros((b, n)), np.ones((b, n)), none, none, empty, empty, no, no, np.zeros(b, dtype=bool)
        )

    def __getitem__(self, which: IntArray) -> CorrelationRows:
        """Return the rows of some of the problems."""
        return replace(self, **{name: getattr(self, name)[which] for name in _BY_PROBLEM})

    @cached_property
    def _plain(self) -> bool:
        """Whether ``Y`` is ``X``."""
        return not self.t.any() and bool((self.s == 1).all())

    def problem(self, A: Array, divergence: str) -> EntryStack:
        """Return the problems in terms of ``Y``, for an array `A` of shape ``(b, n, n)``."""
        n = A.shape[1]
        k, one = np.arange(n), 1 - self.t
        if self._plain:
            if len(self.i) == 0:
                return EntryStack(STACKED[divergence](A), k, k, one, one)
            Y0 = A
        else:
            Y0 = A.copy()
            Y0[:, k, k] -= self.t
            Y0 = self.s[:, :, None] * Y0 * self.s[:, None, :]
        scale = self._scale
        lo, hi = (np.concatenate([one, end], axis=1) * scale for end in (self.lo, self.hi))
        return EntryStack(STACKED[divergence](Y0), *self._entries, lo, hi)

    @property
    def _entries(self) -> tuple[IntArray, IntArray]:
        k = np.arange(self.s.shape[1])
        return np.append(k, self.i), np.append(k, self.j)

    @property
    def _scale(self) -> Array:
        """The factors of the rows' entries, shape ``(b, n + k)``."""
        i, j = self._entries
        scale: Array = self.s[:, i] * self.s[:, j]
        return scale

    def restored(self, Y: Array) -> Array:
        """Return the matrices ``X``: exact entries stay exact."""
        if self._plain:
            return Y
        k = np.arange(Y.shape[1])
        X = Y / (self.s[:, :, None] * self.s[:, None, :])
        exact = Y[:, k, k] == (1 - self.t) * self.s**2
        X[:, k, k] = np.where(exact, 1.0, X[:, k, k] + self.t)
        own = X[:, self.i, self.j]
        kept = self.fixed & (np.abs(own - self.lo) <= 4 * EPS)
        X[:, self.i, self.j] = X[:, self.j, self.i] = np.where(kept, self.lo, own)
        return X

    def duals(self, y: Array) -> list[tuple[Array, ...]]:
        """Return the duals of the rows: of the diagonal, of fixed and of bounded entries."""
        n, v = self.s.shape[1], 0.0 - (y if self._plain else y * self._scale)
        if len(self.i) == 0:
            return [(own,) for own in v]
        parts = zip(v[:, :n], v[:, n:], self.fixed, self.bounded, strict=True)
        return [
            (diagonal, *(off[mask] for mask in (fixed, bounded) if mask.any()))
            for diagonal, off, fixed, bounded in parts
        ]


def answered(
    request: Request, given: Mapping[str, Any], options: Mapping[str, Any], solve: Callable[..., Any]
) -> CorrelationSolution:
    """Return the answer to a request; `given` are the arguments of the user, of the function `solve`."""
    suggest = given["suggest"]
    if suggest:
        check_suggestible(request)
    solution = labeled(_solver(request)(request, options), request.labels)
    unmet = suggest and solution.status != Status.OPTIMAL
    suggested = suggestion(request, given, solve) if unmet else None
    known = suggested is not None or not (suggest or obstacle(request))
    if known and solution.status in INFEASIBLE:
        hint = "suggest=True finds" if suggested is None else "sol.suggestion is"
        found = f"{solution.stop_reason} {hint} the nearest request that works."
        solution = replace(solution, stop_reason=found)
    return reportable(solution, request, suggested)


def _solver(request: Request) -> Callable[[Request, Mapping[str, Any]], Solution]:
    """Return the function that solves the problem; its module is imported when a problem needs it."""
    if request.rank is not None:
        from bregopt.problems.correlation.rank import solve_rank

        return solve_rank
    if request.groups is not None:
        from bregopt.problems.correlation.solve import solve_groups

        return solve_groups
    if request.kind is None:
        from bregopt.problems.correlation.norms import solve_norm

        return solve_norm
    return solve_request
