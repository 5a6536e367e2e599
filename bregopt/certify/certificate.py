"""Certificates of ``X``, ``u`` and the multipliers ``y``, recomputed from the data alone, and the status.

For any multipliers in their range, Lagrange's bound lies below the optimum (:mod:`bregopt.certify.point`),
and for any ``X``, ``u`` that satisfy the hard rows the objective lies above it. Their difference is the
certified gap. No value that a solver reports enters.

The certificate decides what an answer is called: every answer has its status from :meth:`Certificate.status`.
:func:`bracket` gives the certificate where the problem is no program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import numpy as np

from bregopt.arrays import EPS, TINY, Array
from bregopt.certify.point import LARGEST_X, PrimalDualPoint, divergence_factor, multiplier_factor
from bregopt.certify.slacks import least_eigenvalue, slack, trace_bounds
from bregopt.program.linear_map import SparsePlusLowRank
from bregopt.program.program import LIMITS, Program, StopReason
from bregopt.program.rows import FAMILIES, Rows
from bregopt.program.rows.base import LowRank, Matrix
from bregopt.program.scale import dimacs_sizes, scale_of
from bregopt.records import dataclass, replace

# Fraction of the objective's scale: gaps of smaller objectives are relative to it. With a thousandth, games
# of value zero end inaccurate; with a tenth, some gaps come out ten times too small (tests/library/truth.py).
NEGLIGIBLE_OBJECTIVE = 1e-2
# Round-off of the objective and of its bound, as a fraction of the objective's scale.
ROUND_OFF_OF_TERMS = 64 * EPS
# Relative difference up to which two numbers of one row family, computed in two ways, are taken as equal.
_FAMILY_NOISE = 1e-9
# Rows of a family that are checked one by one.
_CHECKED_ROWS = 50

NEAR = 1e-2
"""The largest gap and residual of an answer that is "optimal_inaccurate"."""


class Status(StrEnum):
    """The status of an answer, in CVXPY's words, and two for which CVXPY has none.

    "optimal" is an answer whose certificate meets the tolerance. "optimal_inaccurate" is one whose
    certificate meets 1e-2, and "inaccurate" one that misses 1e-2, where the method could do no better.
    "user_limit" is the best iterate before a limit: of iterations, of time, by Ctrl-C or by a callback.
    "locally_optimal" is a local optimum of a nonconvex problem that the bound does not prove to be global.
    """

    OPTIMAL = "optimal"
    OPTIMAL_INACCURATE = "optimal_inaccurate"
    LOCALLY_OPTIMAL = "locally_optimal"
    INACCURATE = "inaccurate"
    USER_LIMIT = "user_limit"
    INFEASIBLE = "infeasible"
    INFEASIBLE_INACCURATE = "infeasible_inaccurate"
    UNBOUNDED = "unbounded"
    UNBOUNDED_INACCURATE = "unbounded_inaccurate"

    @property
    def has_point(self) -> bool:
        """Whether there is an answer, and not a proof that there is none."""
        return self in _WITH_POINT


_WITH_POINT = frozenset(
    {
        Status.OPTIMAL,
        Status.OPTIMAL_INACCURATE,
        Status.LOCALLY_OPTIMAL,
        Status.INACCURATE,
        Status.USER_LIMIT,
    }
)


@dataclass(frozen=True)
class Certificate:
    """The bounds and residuals that an answer proves.

    Parameters
    ----------
    primal : float
        Objective at ``X``, ``u``. Where that is below `dual`, as violations allow, it is raised by their cost
        at the multipliers: to first order it is the objective at a feasible point.
    dual : float
        Lower bound on the optimum; ``-inf`` if the multipliers prove nothing. Where `dual_residual` is not
        zero, it is the bound of the multipliers minus the cost of the residual at an ``X`` up to 256 times,
        and ``u`` up to four times, as large.
    gap : float
        `error` relative to the larger of ``|primal|`` and ``|dual|``, constants of the objective apart. Where
        both are below a hundredth of the terms that they are sums of, it is relative to that hundredth, but
        to no more than a hundredth of the objective's scale.
    primal_residual : float
        Largest violation of a hard row, of the box of ``u``, of a second-order cone, of ``X psd`` and of
        ``X <= c I``, the last relative to ``c``. The violation of a row is
        relative to the largest magnitude of the row over psd matrices with the diagonal of ``X``, but to no
        more than the larger of its bound and its norm times the scale of ``X``. The residual is multiplied up
        where ``X`` or ``u`` is more than 1000 times larger than that scale and nothing bounds the trace. For
        a linear objective and hard rows it is no less than the DIMACS errors 1 and 2.
    dual_residual : float
        Distance of ``C - A*(y)`` from psd (blocks with linear objective and no bound on the trace) and of
        ``c - B'y`` from zero (free variables) or from the second-order cone of its variables, relative to the
        scale of the costs. For a linear objective and hard rows it is no less than the DIMACS errors 3 and 4.
    error : float
        First-order bound on the distance of `primal` from the optimum, in units of the objective:
        ``|primal - dual|``, plus the cost of the violations, of rows at their multipliers, plus
        `evaluation_error`.
    evaluation_error : float
        Bound on the round-off that `primal` and `dual` share: both evaluate the same divergences, and the
        logarithm or inverse of an ill-conditioned ``X0`` is known to few digits. It is infinite where
        nothing is known.
    size : float
        The magnitude that `gap` is relative to.

    See Also
    --------
    bregopt.program.scale.Scale : the scales, which are computed from the data alone.
    """

    primal: float
    dual: float
    gap: float
    primal_residual: float
    dual_residual: float
    error: float
    evaluation_error: float = 0.0
    size: float = 0.0

    @property
    def worst(self) -> float:
        """The largest of gap and residuals."""
        return max(self.gap, self.primal_residual, self.dual_residual)

    def meets(self, tol: float) -> bool:
        """Whether gap and residuals are all at most `tol`."""
        # Written such that a NaN does not meet any tolerance.
        return self.gap <= tol and self.primal_residual <= tol and self.dual_residual <= tol

    def is_at_round_off(self, tol: float) -> bool:
        """Whether the round-off of the divergences exceeds `tol` and all other errors of the gap."""
        near = self.primal_residual <= tol and self.dual_residual <= tol
        distance, round_off = abs(self.primal - self.dual), self.evaluation_error
        return near and math.isfinite(distance) and round_off > tol * self.size and round_off >= distance

    def status(self, tol: float, stop: StopReason) -> Status:
        """Return the status of the answer, given why its method stopped.

        The reason never improves the status; it tells the limits of the user from the method's own.
        """
        if self.meets(tol):
            return Status.OPTIMAL
        if stop in LIMITS:
            return Status.USER_LIMIT
        if stop is StopReason.LOCAL_OPTIMUM:
            return Status.LOCALLY_OPTIMAL
        near = self.meets(max(tol, NEAR)) or self.is_at_round_off(tol)
        return Status.OPTIMAL_INACCURATE if near else Status.INACCURATE

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a solution that it proves, by their names; the objective is not negated."""
        return {
            "value": self.primal,
            "dual_value": self.dual,
            "gap": self.gap,
            "primal_residual": self.primal_residual,
            "dual_residual": self.dual_residual,
            "error": self.error,
        }

    @property
    def of_dual(self) -> Certificate:
        """The certificate of the dual, whose objective is the negative of its minimization's."""
        return replace(
            self,
            primal=-self.dual,
            dual=-self.primal,
            primal_residual=self.dual_residual,
            dual_residual=self.primal_residual,
        )


def certify(point: PrimalDualPoint) -> Certificate:
    """Return the certificate of a primal and a dual point.

    Parameters
    ----------
    point : PrimalDualPoint

    Returns
    -------
    Certificate
    """
    program, primal, bound, shared = point.program, point.primal, point.bound, 0.0
    dual = bound.value - bound.cost
    loss = float(np.abs(point.y) @ point.violations) + last_digits(point)
    if point.cone_residual:
        loss += point.cone_loss
    if program.cones.count:
        loss += point.second_order_loss
    if program.curved:
        loss += point.cap_violation.cost + point.projection_cost
        shared = point.evaluation_error
    error = abs(primal - dual) + loss + shared
    size = objective_size(program, primal, dual, terms=point.largest_term)
    round_off = max(ROUND_OFF_OF_TERMS * scale_of(program).objective, shared)
    if primal < dual <= primal + round_off:
        dual = primal  # the bound of a feasible point is above it by round-off only
    elif primal < dual < math.inf:
        primal += loss  # by weak duality no less than the bound: to first order the value at a feasible point
    if not math.isfinite(error):
        error = gap = math.inf
    else:
        gap = 0.0 if error == 0 else error / size if size > 0 else math.inf
        if program.tangent is None and dimacs_sizes(program) is not None:
            gap = max(gap, abs(primal - dual) / (1 + abs(primal) + abs(dual)))
    residuals = point.primal_residual, bound.residual
    return Certificate(primal, dual, gap, *residuals, error, shared, size)


def last_digits(point: PrimalDualPoint) -> float:
    """Return the cost of the round-off of rows, at their multipliers, if ``X`` or ``u`` is very large.

    Such matrices may meet the rows of a problem without solution exactly, by their last digits.
    """
    if divergence_factor(point) == 1:
        return 0.0
    terms = point.magnitudes + point.program.absolute_B @ np.abs(point.u)
    return EPS * float(np.abs(point.y) @ terms)


def cost_of_round_off(program: Program, X: Sequence[Matrix], y: Array) -> float:
    """Return the cost of the eigenvalues of ``C - A*(y)`` that may be negative by round-off.

    They count at an ``X`` as large as for a dual residual, where no divergence and no row bounds it.
    """
    linear = [b for b, block in enumerate(program.blocks) if block.nearness is None and block.cap is None]
    bounds = trace_bounds(program) if linear else ()
    free = [X[b].shape[0] * float(X[b].trace()) for b in linear if bounds[b] is None]
    if not free:
        return 0.0
    largest = float((np.abs(y) * program.A.norms()).max(initial=0.0))
    return LARGEST_X * EPS * max(largest, scale_of(program).dual) * sum(free)


def bracket(
    value: float,
    bound: float,
    *,
    terms: float = 0.0,
    resolution: float = 0.0,
    loss: float = 0.0,
    evaluation_error: float = 0.0,
    primal_residual: float = 0.0,
    dual_residual: float = 0.0,
) -> Certificate:
    """Return the certificate of a value and a proven bound on the optimum.

    Parameters
    ----------
    value, bound : float
        Without constants of the objective.
    terms : float
        The largest term of the sums that they are.
    resolution : float
        The objective that is round-off.
    loss : float
        The cost of the violations.
    evaluation_error : float
        The round-off that value and bound share.
    primal_residual, dual_residual : float
    """
    error = abs(value - bound) + loss + evaluation_error
    if not math.isfinite(error):
        return Certificate(value, bound, math.inf, primal_residual, dual_residual, math.inf)
    size = max(abs(value), abs(bound), NEGLIGIBLE_OBJECTIVE * terms, resolution)
    gap = 0.0 if error == 0 else error / size if size > 0 else math.inf
    return Certificate(value, bound, gap, primal_residual, dual_residual, error, evaluation_error, size)


def objective_size(program: Program, *values: float, terms: float | Callable[[], float] = math.inf) -> float:
    """Return the magnitude that a gap between objective values is relative to.

    It is the largest finite value, constants apart, except where the values nearly cancel: then a hundredth
    of the largest term of their sums, but no more than a hundredth of the objective's scale.

    Parameters
    ----------
    program : Program
    *values : float
        Objective values.
    terms : float or function
        The largest term, or a function that returns it and is called only where it counts. Infinity stands
        for unknown terms.
    """
    scale, constant = scale_of(program), program.stated_constant
    size = max([scale.resolution, *[abs(v - constant) for v in values if math.isfinite(v)]])
    most = NEGLIGIBLE_OBJECTIVE * scale.objective
    if size >= most:
        return size
    return max(size, min(NEGLIGIBLE_OBJECTIVE * (terms() if callable(terms) else terms), most))


def trace_of_slacks(program: Program, y: Array) -> float | None:
    """Return the trace of ``C - A*(y)``, over the matrices of unbounded trace, if multipliers are very large.

    It is None for others. The bound is the optimum given that the slacks have no larger trace. Where the rows
    leave ``X`` no interior, larger multipliers may prove another one.
    """
    free = [k for k, bound in enumerate(trace_bounds(program)) if bound is None and k not in program.curved]
    if not free or multiplier_factor(program, y) == 1:
        return None
    ones = [np.eye(n) if k in free else np.zeros((n, n)) for k, n in enumerate(program.A.orders)]
    costs = math.fsum(program.blocks[k].cost_value(ones[k]) for k in free)
    return costs - float(y @ program.activity(ones, np.zeros(program.k)))


def dimacs_errors(program: Program, X: Sequence[Matrix], u: Array, y: Array) -> Array:
    """Return the six DIMACS error measures of a primal and a dual point.

    Let ``Z = C - A*(y)``, the reduced costs ``z = c - B'y``, ``|b|`` the largest magnitude of a bound of a
    row, and ``|C|`` that of a cost. The slacks of rows and of the box of ``u`` count among the variables, and
    a vector's distance from a second-order cone is minus its smaller eigenvalue.
    The measures are::

        1  ||violations of the rows||_2 / (1 + |b|)
        2  (distance of X and u from their cone and box) / (1 + |b|)
        3  ||z of free variables||_2 / (1 + |C|)
        4  (distance of Z and z from the dual cone) / (1 + |C|)
        5  (primal - dual) / (1 + |primal| + |dual|), which may be negative
        6  (<X, Z> + slacks times their multipliers) / (1 + |primal| + |dual|)

    Parameters
    ----------
    program : Program
        With a linear objective and hard rows.
    X : sequence of arrays of shape (n_b, n_b) or LowRank
    u : array of shape (k,)
    y : array of shape (m,)
        Clipped to its range first. Where rows bound the trace of a block, their multipliers take up the
        negative eigenvalue of its ``Z``, as in the certificate.

    Returns
    -------
    array of shape (6,)

    Raises
    ------
    ValueError
        If there is a divergence, a cap or a soft row: the measures are not defined for them.

    References
    ----------
    Mittelmann (2003), An independent benchmarking of SDP and SOCP solvers, Mathematical Programming 95.
    """
    if any(program.divergences) or program.terms or not program.bounds.all_hard:
        raise ValueError("DIMACS errors are defined for linear objectives and hard rows only")
    if program.capped:
        raise ValueError("DIMACS errors are not defined for bounds on eigenvalues (lambda_max)")
    sizes = dimacs_sizes(program)
    assert sizes is not None
    bounds, y, activity = program.bounds, program.bounds.clip(y), program.activity(X, u)
    Z = [slack(program, b, y, X_b) for b, X_b in enumerate(X)]
    for trace, Z_b in zip(trace_bounds(program), Z, strict=True):
        if trace is not None:
            y = y + least_eigenvalue(Z_b) * trace.multipliers
    if any(trace_bounds(program)):
        Z = [slack(program, b, y, X_b) for b, X_b in enumerate(X)]
    z = program.c - program.Bt @ y
    bound = np.where(y > 0, bounds.lo, np.where(y < 0, bounds.hi, 0.0))
    # Each reduced cost prices one bound of its variable; where that is infinite, the other bound replaces it.
    wanted, other = np.where(z > 0, (program.u_lo, program.u_hi), (program.u_hi, program.u_lo))
    free, missed = program.free, np.isinf(wanted) & np.isfinite(other)
    end = np.where(np.isfinite(wanted), wanted, np.where(missed, other, 0.0))
    priced, cones = np.where(free, 0.0, z), program.cones

    primal = sum(block.cost_value(X_b) for block, X_b in zip(program.blocks, X, strict=True)) + program.c @ u
    dual = y @ bound + priced @ end
    products = sum(_inner(X_b, Z_b) for X_b, Z_b in zip(X, Z, strict=True))
    products += (y * (activity - bound))[bounds.lo < bounds.hi].sum() + priced @ (u - end)
    size = 1 + abs(primal) + abs(dual)
    return np.array(
        [
            np.linalg.norm(bounds.violation(activity)) / sizes.bounds,
            max(
                _beyond(X),
                _largest([np.clip(u, program.u_lo, program.u_hi) - u, cones.outside(u[cones.index])]),
            )
            / sizes.bounds,
            np.linalg.norm(z[free]) / sizes.costs,
            max(_beyond(Z), _largest([z[missed], cones.outside(z[cones.index])])) / sizes.costs,
            (primal - dual) / size,
            products / size,
        ]
    )


def _beyond(matrices: Sequence[Matrix | SparsePlusLowRank]) -> float:
    """Return the largest magnitude of a negative eigenvalue of the matrices."""
    own = [least_eigenvalue(A) for A in matrices if not isinstance(A, LowRank)]
    return max([0.0, *(-value for value in own)])


def _inner(X: Matrix, Z: Array | SparsePlusLowRank) -> float:
    """Return ``<X, Z>``."""
    if isinstance(X, LowRank):
        return float(np.vdot(X.factor, Z @ X.factor))
    return float(np.vdot(X, Z.dense() if isinstance(Z, SparsePlusLowRank) else Z))


def _largest(arrays: Sequence[Array]) -> float:
    """Return the largest magnitude of any entry."""
    return max(float(np.abs(a).max(initial=0.0)) for a in arrays)


# --- Row families that are not built in: a certificate relies on <A*(y), X> = y'A(X)


def check_families(program: Program) -> None:
    """Refuse a row family that is not built in and contradicts itself.

    Raises
    ------
    ValueError
        If two methods of a class disagree; the message names them.
    """
    for term in program.A.terms:
        if type(term.rows) not in FAMILIES:
            problem = _contradiction(term.rows)
            if problem is not None:
                raise ValueError(
                    f"the row family {type(term.rows).__name__} contradicts itself: {problem}. "
                    "See bregopt.program.rows.Rows for the definition of each method"
                )


def _contradiction(rows: Rows) -> str | None:
    """Return a message on methods of a family that disagree on random matrices, None where all agree."""
    rng, n = np.random.default_rng(0), rows.n
    F, s = rng.normal(size=(n, max(1, min(n, 3)))), rng.random(n)
    X = F @ F.T
    tried = rng.permutation(rows.m)[:_CHECKED_ROWS]
    matrices = np.array([rows.adjoint(np.eye(rows.m)[k]) for k in tried]).reshape(-1, n, n)
    if not np.array_equal(matrices, matrices.transpose(0, 2, 1)):
        return "adjoint(y) is not symmetric"
    y = rng.normal(size=rows.m)
    flat = matrices.reshape(len(tried), -1)
    activity = rows.apply(X)
    t = rows.coordinates()
    of_terms = np.bincount(t.row, t.value * X[t.i, t.j], rows.m)
    expected: list[tuple[str, Any, Any]] = [
        ("coordinates() are not those of apply", of_terms, activity),
        ("apply(X) is not <A_k, X> with the A_k of adjoint", activity[tried], flat @ X.ravel()),
        ("apply differs between an array and a LowRank", rows.apply(LowRank(F)), activity),
        ("adjoint is not linear", float(np.vdot(rows.adjoint(y), X)), float(y @ activity)),
        ("norms() are not those of the A_k of adjoint", rows.norms()[tried], np.linalg.norm(flat, axis=1)),
        (
            "magnitude(s) is not sum |A_ij| s_i s_j",
            rows.magnitude(s)[tried],
            np.abs(flat) @ np.outer(s, s).ravel(),
        ),
    ]
    for message, found, wanted in expected:
        size = max(float(np.abs(flat).max(initial=0.0)) * float(np.trace(X)), TINY)
        noise = _FAMILY_NOISE * size * n
        if np.shape(found) != np.shape(wanted) or not (np.abs(found - wanted) <= noise).all():
            return message
    return None
