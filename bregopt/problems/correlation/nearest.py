"""The nearest correlation matrix: the function, the method that it takes, and ``bregopt repair``.

One with rows on entries alone is solved as a stack of one, and its problem is declared when it is asked for:
to declare, compile and route a problem of order 20 takes longer than to solve it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import Array, BoundsLike
from bregopt.clock import CutShort, threads_for
from bregopt.divergences import DIVERGENCES
from bregopt.errors import DataWarning, warn_caller
from bregopt.files import replacing
from bregopt.io.matrices import (
    SUFFIXES,
    StackLike,
    Table,
    csv_text,
    framed,
    is_stack,
    labeled,
    opened,
    pair_labels,
    read_matrix,
)
from bregopt.problems.arguments import METHOD, PANEL, check_arguments, diagonal_message
from bregopt.problems.correlation.answer import CorrelationSolution, reportable
from bregopt.problems.correlation.infeasibility import check_suggestible, obstacle, suggestion
from bregopt.problems.correlation.request import Request, check_missing, read_request, rows_left
from bregopt.problems.correlation.solve import INFEASIBLE, solve_request, solved_entries, units_of
from bregopt.program import LowRank, StopReason
from bregopt.records import replace
from bregopt.routes.derivatives.stacks import Congruence
from bregopt.routes.driver import log_answer
from bregopt.routes.registry import StackOptions, time_limit
from bregopt.routes.solution import Solution, Status

if TYPE_CHECKING:
    from bregopt.problems.solutions import Solutions

__all__ = [
    "add_repair",
    "answered",
    "nearest_correlation",
    "solve_directly",
]

GroupsLike = ArrayLike | Mapping[Any, Any]  # the group of each row, or of each label

logger = logging.getLogger(__name__)

_TASK = "Find the nearest correlation matrix, and report the changes."
_REPORTS = (".html", ".xlsx", ".txt")


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

    Nobody watches its steps: who reads the log of them sees those of the language's methods.
    """
    if clock.remaining() <= 0 or logger.isEnabledFor(logging.DEBUG):
        return None
    begin = time.perf_counter()
    try:
        with threads_for(request.n):
            solved = solved_entries(request, options)
    except CutShort:
        return None
    if solved is None:
        return None
    certificate = solved.certificate
    seconds = time.perf_counter() - begin  # of all at once: the method proves its answers
    record = {
        "iteration": solved.iterations,
        "primal": certificate.primal,
        "dual": certificate.dual,
        "gap": certificate.gap,
        "primal_residual": certificate.primal_residual,
        "seconds": seconds,
    }
    solution = CorrelationSolution(
        status=certificate.status(solved.settings.tol, StopReason.CONVERGED).value,
        stop_reason=StopReason.CONVERGED.value,
        X=solved.X,
        u={},
        duals=solved.duals,
        **certificate.fields,
        iterations=solved.iterations,
        timings={"setup": 0.0, "solve": seconds, "certify": 0.0, "total": seconds},
        solver=METHOD,
        history={name: np.array([value], dtype=float) for name, value in record.items()},
        citation=solved.citation,
        duals_by_name=_by_name(request, solved.duals),
        _stop=StopReason.CONVERGED,
        _restated=Congruence(request.s, request.n, request.fixed.i, request.fixed.j),
        _units=units_of(request),
        _request=request,
    )
    if logger.isEnabledFor(logging.INFO):
        log_answer(solution)
    return labeled(solution, request.labels)


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


def add_repair(
    commands: Any,
    settings: argparse.ArgumentParser,
    given: Callable[[argparse.Namespace], dict[str, Any]],
    exit_status: Callable[[str], int],
) -> None:
    """Add the command to the parser of the command line.

    `settings` has the options of every route, and `given` returns those that were given.
    """
    parser = commands.add_parser("repair", parents=[settings], help=_TASK, description=_TASK)
    parser.add_argument("file", type=Path, metavar="FILE", help=f"a matrix ({', '.join(SUFFIXES)})")
    parser.add_argument("--key", help="array of an .npz file")
    parser.add_argument(
        "--divergence",
        choices=tuple(DIVERGENCES),
        default="frobenius",
        help="measure of nearness (frobenius)",
    )
    parser.add_argument(
        "--min-eigenvalue", type=float, default=0.0, metavar="T", help="lower bound on the eigenvalues (0)"
    )
    parser.add_argument("--lower", type=float, metavar="L", help="lower bound on the entries (-1)")
    parser.add_argument("--upper", type=float, metavar="U", help="upper bound on the entries (1)")
    parser.add_argument("--output", type=_path(".csv"), metavar="PATH", help=".csv file for the matrix")
    parser.add_argument(
        "--report",
        type=_path(*_REPORTS),
        metavar="PATH",
        help=".html, .xlsx or .txt file for the report of changes and proofs, which is printed without it",
    )
    parser.set_defaults(run=lambda options: _run(options, given(options), exit_status))


def _run(options: argparse.Namespace, settings: dict[str, Any], exit_status: Callable[[str], int]) -> int:
    table = read_matrix(options.file, options.key)
    if table.index is not None and table.columns is not None and table.index != table.columns:
        raise ValueError(f"{options.file}: the labels of the rows and columns differ; expected the same")
    solution: Any = nearest_correlation(
        table.values.toarray() if sp.issparse(table.values) else table.values,
        options.divergence,
        lower=options.lower,
        upper=options.upper,
        min_eigenvalue=options.min_eigenvalue,
        **settings,
    )
    if solution.X is None:
        sys.stdout.write(f"{solution!r}\n")
        return exit_status(solution.status)
    _write(options, table, solution)
    return exit_status(solution.status)


def _write(options: argparse.Namespace, table: Table, solution: CorrelationSolution) -> None:
    labels = table.columns if table.index is None else table.index
    report = replace(solution, _request=replace(solution._asked, labels=labels)).report()
    kind = "" if options.report is None else options.report.suffix.lower()
    if kind == ".html":
        report.to_html(options.report)
    elif kind == ".xlsx":
        report.to_excel(options.report)
    elif kind == ".txt":
        with replacing(options.report) as file:
            file.write(f"{report}\n".encode())
    else:
        sys.stdout.write(f"{report}\n")
    if options.output is not None:
        X = csv_text(np.asarray(solution.X), table.index, table.columns)
        with replacing(options.output) as file:
            file.write(X.encode("utf-8"))
    if kind:
        lines = (f"  {name}: {text}\n" for name, text in report.facts.items())
        sys.stdout.write("".join([f"{report.title}\n", *lines]))


def _path(*kinds: str) -> Callable[[str], Path]:
    """Return the reader of a path that ends in one of these."""

    def read(text: str) -> Path:
        path = Path(text)
        if path.suffix.lower() not in kinds:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(kinds)}")
        if not path.parent.is_dir():
            raise argparse.ArgumentTypeError(f"the folder of {text!r} is not there")
        return path

    return read
