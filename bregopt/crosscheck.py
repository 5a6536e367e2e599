"""Checks of answers: several routes solve one problem, or one answer is proven, or measured as DIMACS does.

A cross-check compares the certificates of routes. ``verify`` returns rigorous bounds of the optimum.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from bregopt.arrays import Array, Frame
from bregopt.certify import dimacs_errors as errors_of
from bregopt.display import Axes, html_table, latex_table, plot_intervals, table_lines
from bregopt.errors import ConvergenceWarning, SolverError, UnsupportedProblemError, require
from bregopt.modeling.problem import Problem
from bregopt.program import LowRank, Matrix, Program
from bregopt.program.rows.base import frobenius_norm
from bregopt.program.scale import scale_of
from bregopt.records import dataclass, replace
from bregopt.rigorous.file.certificate import BoundCertificate, Verification
from bregopt.routes import registry
from bregopt.routes.progress import items_bar
from bregopt.routes.registry import REFERENCE, SeededOptions, check_options, own_options
from bregopt.routes.routing import takes
from bregopt.routes.solution import Solution, Status
from bregopt.routes.verification import verified

if TYPE_CHECKING:
    import cvxpy

_BACKENDS = "CLARABEL", "SCS"

# Largest difference of two evaluations of one objective, relative to the largest of both values and the
# objective's scale: a value near zero is the difference of larger terms.
_ROUNDING = 1e-12
_HELD = (Status.OPTIMAL, Status.OPTIMAL_INACCURATE)
_PROVEN = (Status.INFEASIBLE, Status.UNBOUNDED)
_TITLES = ("solver", "status", "value", "bound", "gap", "residual", "error", "distance", "seconds", "agrees")


class Verdict(StrEnum):
    """What a comparison of answers shows."""

    AGREE = "agree"
    DISAGREE = "disagree"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class CrossCheckRow:
    """The result of one route, and its comparison with the first route that decides.

    Parameters
    ----------
    solver : str
    status : str
        As in :class:`bregopt.Solution`, or "solver_error" where the route failed.
    stop_reason : str
        The reason why the route stopped or failed.
    value, dual_value : float
        Objective and proven bound.
    gap, primal_residual, error : float
        As in :class:`bregopt.Solution`.
    seconds : float
    distance : float
        Frobenius distance of ``X`` from that of the first route, relative to the norm of the first, over all
        matrices of the problem. NaN if one of the two has none.
    verdict : Verdict
        "agree", "disagree" or "undecided", compared with the first answer that decides; see
        :func:`cross_check`.
    reason : str
        Why it is not "agree".
    proven : tuple of two floats, optional
        Bounds of the optimum that the answer proves, with the option `proven`.
    """

    solver: str
    status: str
    stop_reason: str
    value: float
    dual_value: float
    gap: float
    primal_residual: float
    error: float
    seconds: float
    distance: float
    verdict: Verdict
    reason: str
    proven: tuple[float, float] | None = None

    @property
    def agrees(self) -> bool:
        """Whether the verdict is "agree"."""
        return self.verdict is Verdict.AGREE


_AGREES = {Verdict.AGREE: "yes", Verdict.DISAGREE: "no", Verdict.UNDECIDED: "undecided"}


@dataclass(frozen=True)
class CrossCheck:
    """The answers of several routes to one problem.

    Parameters
    ----------
    rows : tuple of CrossCheckRow
        In the order of the routes.
    """

    rows: tuple[CrossCheckRow, ...]

    @property
    def ok(self) -> bool:
        """Whether all agree: at least two routes decide, and none is undecided."""
        return self.verdict is Verdict.AGREE

    @property
    def verdict(self) -> Verdict:
        """What all show: "disagree" if a route contradicts another, "agree" if at least two and all agree.

        "undecided" says that nothing is contradicted, but that some route decides nothing: it failed, stopped
        short or proves no bound. One route alone is undecided too.
        """
        found = {row.verdict for row in self.rows}
        if Verdict.DISAGREE in found or (self.proven is not None and self.proven[0] > self.proven[1]):
            return Verdict.DISAGREE
        return Verdict.AGREE if found == {Verdict.AGREE} and len(self.rows) >= 2 else Verdict.UNDECIDED

    @property
    def proven(self) -> tuple[float, float] | None:
        """The largest lower and the least upper bound that the answers prove, with the option `proven`."""
        intervals = [row.proven for row in self.rows if row.proven is not None]
        return (max(a for a, _ in intervals), min(b for _, b in intervals)) if intervals else None

    @property
    def reason(self) -> str:
        """The reason for the verdict in a sentence."""
        if self.proven is not None and self.proven[0] > self.proven[1]:
            return f"proven bounds exclude each other: {self.proven[0]!r} is above {self.proven[1]!r}"
        if len(self.rows) < 2:
            return "one route alone is not a check"
        if self.verdict is not Verdict.AGREE:
            return "; ".join(f"{row.solver} {row.reason}" for row in self.rows if row.verdict is self.verdict)
        loosest = max((row.error for row in self.rows if not math.isnan(row.error)), default=0.0)
        return f"{len(self.rows)} routes agree within their certified errors, the largest {loosest:.1e}"

    @property
    def table(self) -> Any:
        """The rows as a ``pandas.DataFrame``; without pandas the text that ``print`` shows."""
        try:
            return self.to_frame()
        except ImportError:
            return str(self)

    def to_frame(self) -> Frame:
        """Return the table as a ``pandas.DataFrame``, one row for each route.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        pandas = require("pandas", "pandas")
        return pandas.DataFrame([asdict(row) for row in self.rows])

    def plot(self, ax: Sequence[Axes] | None = None) -> NDArray[np.object_]:
        """Draw the interval that each route proves for the optimum, and the routes' times.

        Parameters
        ----------
        ax : sequence of two matplotlib axes, optional
            The default is a new figure.

        Returns
        -------
        array of two matplotlib axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        names = [row.solver for row in self.rows]
        values, errors, seconds = np.array([(row.value, row.error, row.seconds) for row in self.rows]).T
        return plot_intervals(names, values, errors, seconds, ax)

    def __str__(self) -> str:
        return "\n".join([*table_lines(_TITLES, [*map(_cells, self.rows)], left=2), self._sentence])

    def _repr_html_(self) -> str:
        return html_table(_TITLES, [*map(_cells, self.rows)], left=2, caption=self._sentence)

    def _repr_latex_(self) -> str:
        table = latex_table(_TITLES, [*map(_cells, self.rows)], left=2)
        return f"$$\n{table}\n$$\n{self._sentence}"

    @property
    def _sentence(self) -> str:
        heading = {Verdict.AGREE: "ok", Verdict.DISAGREE: "not ok"}.get(self.verdict, "not ok, undecided")
        lower, upper = self.proven or (-math.inf, math.inf)
        known = math.isfinite(lower) and math.isfinite(upper)
        found = f"; the optimum is proven to be in [{lower!r}, {upper!r}]" if known else ""
        return f"{heading}: {self.reason}{found}"


def cross_check(
    problem: Problem | cvxpy.Problem,
    solvers: Iterable[str] | None = None,
    *,
    progress: bool = False,
    **options: Unpack[SeededOptions],
) -> CrossCheck:
    """Solve a problem by several routes and compare their certificates.

    Two answers agree if both are optimal (to tolerance or not) and their values differ by at most the errors
    of their certificates, or if both prove that the problem is infeasible, or both that it is unbounded.
    There is no tolerance to choose: an inaccurate answer has a large error, which the table shows, and
    contradicts no value within it. They disagree if both are proven and do not agree. A route is undecided
    if its certificate proves nothing that can be compared: it failed, stopped short, or has no finite bound.

    Afterwards the problem holds the answer of the first route. A CVXPY problem does not change.

    Parameters
    ----------
    problem : Problem or cvxpy.Problem
        A CVXPY problem must have no integers or power cones. If it has cones that no route reads, only CVXPY
        solvers are used, Clarabel and SCS by default, and their answers are certified from the conic data.
    solvers : iterable of str, optional
        Names of routes, or of installed CVXPY solvers, such as "CLARABEL": the route `cvxpy` calls these, so
        that their answers are certified like all others. The default is every registered route that takes the
        problem.
    progress : bool
        Show a bar of the routes (needs tqdm).
    **options
        Options of :meth:`Problem.solve`. Each route gets the options that it knows; at least one route must
        know each option.

    Returns
    -------
    CrossCheck

    Raises
    ------
    TypeError, ValueError
        If a name is unknown, or no route knows an option.
    UnsupportedProblemError
        If a named route does not take the problem, or a CVXPY problem has integers or power cones.
    InfeasibleRowError
        If one row alone contradicts ``X psd``, before any route is asked.
    """
    if isinstance(solvers, str):
        raise TypeError(
            f"solvers is the string {solvers!r}; expected a tuple of names, such as ({solvers!r},)"
        )
    try:
        named = None if solvers is None or sp.issparse(solvers) else tuple(solvers)
    except TypeError:
        named = None
    if named is None and solvers is not None:
        raise TypeError(f"solvers is {solvers!r}; expected a tuple of names")
    if not isinstance(progress, bool):
        raise TypeError(f"progress is {progress!r}; expected True or False")
    problem = _checkable(problem)
    check_options("auto", options)
    foreign = getattr(problem, "solvers", None)  # the solvers of a problem that no route reads
    chosen = (foreign or registry.solvers()) if named is None else named
    asked = {name: _route(name) for name in chosen}
    own = {name: {**own_options(route, options), **more} for name, (route, more) in asked.items()}
    if solvers is None and not foreign:
        program = problem.program()
        own = {name: known for name, known in own.items() if takes(program, name, known)}
        if list(own) == [REFERENCE] and "backend" not in options:  # two of CVXPY's solvers, for a check
            asked = {name: _route(name) for name in _BACKENDS}
            own = {name: {**own[REFERENCE], **more} for name, (_, more) in asked.items()}
    if not own:
        raise ValueError("solvers is empty; expected at least one name")
    _check_heard(options, own)
    for name, known in own.items():
        check_options(asked[name][0], known)
    # The first comes last, so that its answer is the one the problem keeps.
    found = {
        name: _solved(problem, asked[name][0], own[name])
        for name in items_bar([*reversed(own)], "routes", progress)
    }
    first = found[next(iter(own))]
    scale = 0.0 if foreign else _scale(problem.program())
    decided = {
        name: answer for name in own if isinstance(answer := found[name], Solution) and not _undecided(answer)
    }
    return CrossCheck(tuple(_row(name, found[name], first, decided, scale) for name in own))


def _checkable(problem: Any) -> Any:
    """Return the problem in a form that a named route can solve."""
    if isinstance(problem, Problem):
        return problem
    cvxpy = sys.modules.get("cvxpy")
    if cvxpy is None or not isinstance(problem, cvxpy.Problem):
        raise TypeError(f"problem is {type(problem).__name__}; expected a bo.Problem or a cvxpy.Problem")
    from bregopt.cvxpy.cone_check import ConeProblem
    from bregopt.cvxpy.conic_solver import ConicProblem
    from bregopt.cvxpy.problems.lower import from_cvxpy

    reasons = []
    for read in (from_cvxpy, ConicProblem, ConeProblem):
        try:
            found = read(problem)
        except UnsupportedProblemError as error:
            reasons.append(str(error))
            continue
        if isinstance(found, ConeProblem) or not found.program().terms:  # which one route alone takes
            return found
        reasons.append("one route alone takes its entropies")
    raise UnsupportedProblemError(f"{reasons[-1]}; nor can it be read as it is written: {reasons[0]}")


def _route(name: Any) -> tuple[Any, dict[str, Any]]:
    """Return the route of a name, and its options; names of CVXPY's solvers are in capitals."""
    if not isinstance(name, str | type):
        raise TypeError(f"solvers has {name!r}; expected names of solvers")
    foreign = isinstance(name, str) and name.isupper() and name not in registry.solvers()
    return (REFERENCE, {"backend": name}) if foreign else (name, {})


def _check_heard(options: Mapping[str, Any], own: dict[str, dict[str, Any]]) -> None:
    """Refuse an option that would be given to no route."""
    for option in options:
        if not any(option in known for known in own.values()):
            raise TypeError(f"no solver that is asked ({', '.join(own)}) has an option {option!r}")


def _solved(problem: Any, solver: str, options: Mapping[str, Any]) -> Solution | SolverError:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the status tells it
        try:
            return problem.solve(solver=solver, **options)
        except SolverError as error:
            return error


def _scale(program: Program) -> float:
    """Return the scale of the objective, zero beside a low-rank start, which has none before presolve."""
    starts = [block.nearness.X0 for block in program.blocks if block.nearness is not None]
    return 0.0 if any(isinstance(X0, LowRank) for X0 in starts) else scale_of(program).objective


def _row(
    name: str,
    found: Solution | SolverError,
    first: Solution | SolverError,
    decided: Mapping[str, Solution],
    scale: float,
) -> CrossCheckRow:
    verdict, reason = _compared(name, found, decided, scale)
    if isinstance(found, SolverError):
        nan = math.nan
        return CrossCheckRow(
            name, "solver_error", str(found), nan, nan, nan, nan, nan, nan, nan, verdict, reason
        )
    return CrossCheckRow(
        solver=name,
        status=found.status,
        stop_reason=found.stop_reason,
        value=found.value,
        dual_value=found.dual_value,
        gap=found.gap,
        primal_residual=found.primal_residual,
        error=found.error,
        seconds=found.timings["total"],
        distance=math.nan if isinstance(first, SolverError) else _relative_distance(found.X, first.X),
        verdict=verdict,
        reason=reason,
        proven=None if found.proof is None else (found.proof.lower, found.proof.upper),
    )


def _undecided(found: Solution | SolverError) -> str:
    """Return why an answer decides nothing, an empty text for one that does."""
    if isinstance(found, SolverError):
        return f"failed: {found}"
    if found.status in _PROVEN:
        return ""
    if found.status not in _HELD:
        return f"ends {found.status}: {found.stop_reason}"
    return "" if math.isfinite(found.error) else "proves no bound: its error is infinite"


def _compared(
    name: str, found: Solution | SolverError, decided: Mapping[str, Solution], scale: float
) -> tuple[Verdict, str]:
    """Return the verdict on an answer beside the first that decides, and its reason."""
    if isinstance(found, SolverError) or name not in decided:
        return Verdict.UNDECIDED, _undecided(found)
    other, first = next(iter(decided.items()))
    statuses = f"says {found.status}, and {other} {first.status}"
    if found.status in _PROVEN or first.status in _PROVEN:
        if found.status == first.status:
            return Verdict.AGREE, ""
        if Status.OPTIMAL_INACCURATE in (found.status, first.status):  # its point may miss the rows
            return Verdict.UNDECIDED, statuses
        return Verdict.DISAGREE, statuses
    rounding = _ROUNDING * max(abs(found.value), abs(first.value), scale)
    if abs(found.value - first.value) <= found.error + first.error + rounding:
        return Verdict.AGREE, ""
    return Verdict.DISAGREE, (
        f"has {found.value:.9g} with error {found.error:.1e}, and {other} {first.value:.9g} with error "
        f"{first.error:.1e}"
    )


def _relative_distance(X: Any, Y: Any) -> float:
    """Return the Frobenius distance of two answers, of one matrix or several, relative to the second."""
    if X is None or Y is None:
        return math.nan
    pairs = list(zip(X, Y, strict=True)) if isinstance(X, tuple) else [(X, Y)]
    apart = math.hypot(*(_distance(a, b) for a, b in pairs))
    size = math.hypot(*(frobenius_norm(b) for _, b in pairs))
    return apart / size if size > 0 else apart


def _distance(X: Matrix, Y: Matrix) -> float:
    """Return ``||X - Y||_F``; for two low-rank matrices without an ``n x n`` matrix."""
    if isinstance(X, LowRank) and isinstance(Y, LowRank):
        R: Array = np.linalg.qr(np.hstack([X.factor, Y.factor])).R
        F, G = R[:, : X.rank], R[:, X.rank :]
        return float(np.linalg.norm(F @ F.T - G @ G.T))
    return float(np.linalg.norm(np.asarray(X) - np.asarray(Y)))


def _cells(row: CrossCheckRow) -> tuple[str, ...]:
    small = (row.gap, row.primal_residual, row.error, row.distance)
    return (
        row.solver,
        row.status,
        *(f"{x:.9g}" for x in (row.value, row.dual_value)),
        *("" if math.isnan(x) else f"{x:.1e}" for x in small),
        f"{row.seconds:.3f}",
        _AGREES[row.verdict],
    )


def verify(
    problem: Problem,
    solution: Solution | BoundCertificate | None = None,
    *,
    resolve: bool = True,
    trace_bound: ArrayLike | None = None,
    eigenvalue_bound: ArrayLike | None = None,
) -> Verification:
    """Return bounds on the optimum of a problem that are proven in spite of all rounding errors.

    The bounds are those of the problem at the current values of its parameters. The answer may be any guess,
    such as one of a similar problem: it changes how near the bounds are, not whether they hold.

    Parameters
    ----------
    problem : Problem
    solution : Solution or BoundCertificate, optional
        An answer of a problem with the same variables and rows; by default the last answer of `problem`. Of
        a certificate only its points and multipliers are used, and what its author states of traces: its
        claims are proven for this problem, from which all data come.
    resolve, trace_bound, eigenvalue_bound
        As for :meth:`bregopt.Solution.verify`.

    Returns
    -------
    Verification

    Raises
    ------
    TypeError, ValueError
        If there is no answer, or it has other variables or rows, or does not prove what it claims.
    """
    if not isinstance(problem, Problem):
        theirs = type(problem).__module__.partition(".")[0] == "cvxpy"
        hint = ": pass bo.from_cvxpy(problem), solved" if theirs else ""
        raise TypeError(f"problem is {type(problem).__name__}; expected a bo.Problem{hint}")
    given = problem.solution if solution is None else solution
    if given is None:
        raise ValueError("the problem has no answer; solve it first, or pass a solution")
    if isinstance(given, BoundCertificate):
        return _checked(problem, given)
    if not isinstance(given, Solution):
        raise TypeError(
            f"solution is {type(given).__name__}; expected the Solution of a problem, or a certificate"
        )
    raw = given._in_program or given
    program = problem.program()
    found = (len(raw.u), None if raw.duals is None else len(raw.duals))
    orders = None if raw.X is None else [X.shape[0] for X in raw.X]
    if found[0] != program.k or found[1] not in (None, program.m):
        raise ValueError(
            f"the solution has {found[1]} rows and {found[0]} variables; expected {program.m} and {program.k}"
        )
    if orders not in (None, [block.n for block in program.blocks]):
        own = [block.n for block in program.blocks]
        raise ValueError(f"the solution has matrices of orders {orders}; expected {own}")
    source = problem._compiled.proof_data(program)
    generated = bool(problem._generates)
    return verified(program, raw, resolve, trace_bound, eigenvalue_bound, source, generated=generated)


def _checked(problem: Problem, certificate: BoundCertificate) -> Verification:
    """Return the claims of a certificate, proven for a problem."""
    start = time.perf_counter()
    _, data, intervals = problem._compiled.proof_data(problem.program())
    if problem._generates and certificate.claims[1] < math.inf:  # no point is proven feasible
        lower_only = certificate.claims[0], math.inf
        certificate = replace(certificate, point=None, factor=None, ray=None, claims=lower_only)
    if certificate.terms or problem.program().terms:
        raise ValueError(
            "entropies and exponentials are proven with their tangents, which are in the file alone: "
            "certificate.check() proves it, and problem.solve().verify() your problem"
        )
    certificate = certificate.of_problem(data)
    certificate.check()
    lower, upper = certificate.claims
    lower, upper = (-upper, -lower) if data.maximize else (lower, upper)
    seconds = time.perf_counter() - start
    given = certificate.given
    return Verification(lower, upper, {}, given, intervals, seconds, source=certificate)


def dimacs_errors(problem: Problem, solution: Solution) -> Array:
    """Return the six error measures of the 7th DIMACS challenge, recomputed from the data.

    Violated rows, ``X`` outside its cone, free variables whose cost is not met, ``Z = C - A*(y)`` outside its
    cone, the gap of the objectives, and ``<X, Z>``, each relative to the size of the data;
    :func:`bregopt.certify.dimacs_errors` has the formulas.

    Parameters
    ----------
    problem : Problem
        With a linear objective and hard rows.
    solution : Solution
        Of this problem, as :meth:`Problem.solve` returned it.

    Returns
    -------
    array of shape (6,)

    Raises
    ------
    ValueError
        If there is a divergence or a soft row, or the solution has no ``X`` or no multipliers.
    """
    raw = solution._in_program
    if raw is None or raw.X is None or raw.duals is None:
        raise ValueError(f"the solution ({solution.status}) has no X or no duals; expected both")
    return errors_of(problem.program(), *raw._point)
