"""Certificates: what ``X``, ``u`` and the multipliers ``y`` prove, recomputed from the data alone.

For any multipliers in their range, Lagrange's bound

    dual(y) = sum_k g_k(y_k)  +  sum over blocks min_X <C - A*(y), X> + mu D(X, X0)  +  min_u (c - B'y)'u

lies below the optimum, and for any ``X``, ``u`` that satisfy the hard rows the objective lies above it.
Their difference is the certified gap. No solver's own word enters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.divergences import DIVERGENCES, Divergence, WeightedFrobenius
from bregopt.program.eigenvalue_bound import smallest_eigenvalue
from bregopt.program.face import Face
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.program import Nearness, Program
from bregopt.program.thin import ThinMatrix, ThinProgram, thin_program
from bregopt.program.trace_bound import trace_bounds

__all__ = [
    "Certificate",
    "bound_inside",
    "certificate_inside",
    "certificate_of",
    "certify",
    "divergence_of",
    "primal_residual",
]


@dataclass(frozen=True)
class Certificate:
    """What an answer proves.

    Parameters
    ----------
    primal : float
        Objective at ``X``, ``u``.
    dual : float
        Lower bound on the optimum; ``-inf`` if the multipliers prove nothing. Where `dual_residual` is
        not zero it is the bound the multipliers would prove if the residual were.
    gap : float
        ``|primal - dual|``, and what dual residuals are worth at ``X`` and ``u``, relative to the larger of
        the two or, if larger, to the sum of the magnitudes
        of the linear terms and a thousandth of the objective's unit (``mu`` times 1 for LogDet, ``tr X0`` for
        von Neumann, ``||X0||^2`` for Frobenius; without a divergence the trace of ``X``
        times the norms of what ``C - A*(y)`` is made of). A constant in the objective does not count.
    primal_residual : float
        Largest violation of a hard row, of the box of ``u`` and of ``X psd``, relative to the row's bound
        or, if larger, to the most that the row could be on matrices of the diagonal of ``X``.
    dual_residual : float
        How far ``C - A*(y)`` is from psd (blocks with linear objective and no bound on the trace) and
        ``c - B'y`` from zero (free variables), relative to the terms they are made of.
    error : float
        Bound, to first order, on the error of `primal` as the optimum, in its own units: the gap, what the
        violations are worth at the multipliers, and what the dual residuals are worth at ``X`` and ``u``.
    """

    primal: float
    dual: float
    gap: float
    primal_residual: float
    dual_residual: float
    error: float

    def meets(self, tol: float) -> bool:
        """Whether gap and residuals are all at most `tol`."""
        # Written such that a NaN meets nothing.
        return self.gap <= tol and self.primal_residual <= tol and self.dual_residual <= tol


class _Slack(NamedTuple):
    """``C - A*(y)`` of a block, and the norms of the two."""

    W: Array | ThinMatrix
    cost: float
    adjoint: float


# An objective below this fraction of its unit counts as zero: a gap is not asked to be relative to less.
_NEGLIGIBLE = 1e-3
# Of a row's norm times the trace, or the largest variable: violations are not asked to be relative to less.
_ROUND_OFF = 1e-9
_LARGEST = 1e3  # times the largest trace that the bounds state: beyond, a matrix runs away and is no unit
_NO_TRACE = 3e-9  # a trace below this fraction of any that the bounds state is noise about zero
_SMALL = 500  # the order up to which matrices are formed
_CONE_NOISE = 1e-12  # of the mean eigenvalue: by how much a psd matrix may seem not to be one
# Factorised once for each program; dropped with it.
_anchored: WeakKeyDictionary[Nearness, Divergence] = WeakKeyDictionary()
_thin: WeakKeyDictionary[Program, tuple[ThinProgram | None, ...]] = WeakKeyDictionary()


def divergence_of(nearness: Nearness) -> Divergence:
    """Return the divergence anchored at a block's dense ``X0``; factorised once and kept while it lives."""
    if nearness not in _anchored:
        X0 = np.asarray(nearness.X0)
        if nearness.weights is None:
            _anchored[nearness] = DIVERGENCES[nearness.divergence](X0)
        else:
            _anchored[nearness] = WeightedFrobenius(X0, nearness.weights)
    return _anchored[nearness]


def certify(
    program: Program,
    X: Sequence[Matrix],
    u: Array,
    y: Array,
    faces: Sequence[Face] | None = None,
    sharp: bool = True,
) -> Certificate:
    """Return what a primal and a dual point prove; `y` is clipped to its range first.

    Parameters
    ----------
    program : Program
        Without low-rank divergences: those are certified on their range spaces.
    X : sequence of arrays of shape (n_b, n_b) or LowRank
    u : array of shape (k,)
    y : array of shape (m,)
    faces : sequence of Face, optional
        Where the rows hold ``X``, see :func:`~bregopt.program.find_faces`: ``C - A*(y)`` counts there only.
    sharp : bool
        Whether a smallest eigenvalue of ``C - A*(y)`` above zero is computed where the trace of ``X`` is
        known, and raises the bound; otherwise a factorisation is enough.
    """
    y = program.bounds.clip(y)
    activity = program.activity(X, u)
    linear, magnitude = _linear_terms(program, X, u, activity)
    divergences = [
        block.nearness.mu * divergence_of(block.nearness).value(np.asarray(X_b))
        for block, X_b in zip(program.blocks, X, strict=True)
        if block.nearness is not None
    ]
    primal = math.fsum([linear, *divergences]) if all(map(math.isfinite, divergences)) else math.inf
    dual, dual_residual, worth, unit = _dual(program, X, u, y, faces, sharp)
    residual, loss = _misses(program, X, u, y, activity)
    return Certificate(
        primal=primal,
        dual=dual,
        gap=_relative(primal, dual, worth, program.offset, magnitude + _NEGLIGIBLE * unit),
        primal_residual=max(residual, _cone_residual(program, X)),
        dual_residual=dual_residual,
        error=abs(primal - dual) + loss + worth,
    )


def certificate_of(
    program: Program,
    X: Array,
    y: Array,
    activity: Array,
    divergence: float,
    matrix_term: float,
    paid: float | None = None,
    rows_term: float | None = None,
) -> Certificate:
    """Return the certificate of a nearness problem in one matrix from values that its route has at hand.

    What :func:`certify` finds by decompositions of its own; a route looks with it at every step.

    Parameters
    ----------
    program : Program
        One block with a divergence, no ordinary variables.
    X : array of shape (n, n)
        Positive semidefinite.
    y, activity : array of shape (m,)
    divergence : float
        ``D(X, X0)``.
    matrix_term : float
        ``min_X <C - A*(y), X> + mu D(X, X0)``.
    paid, rows_term : float, optional
        The sum of the penalties, and that of what the rows add to the dual function.
    """
    nearness = program.blocks[0].nearness
    assert nearness is not None
    u = np.zeros(0)
    linear, magnitude = _linear_terms(program, (X,), u, activity, paid)
    primal = linear + nearness.mu * divergence
    dual = matrix_term
    if math.isfinite(matrix_term):
        own = float(program.bounds.conjugate(y).sum()) if rows_term is None else rows_term
        dual += own + program.offset
    residual, loss = _misses(program, (X,), u, y, activity)
    unit = nearness.mu * divergence_of(nearness).unit
    return Certificate(
        primal=primal,
        dual=dual,
        gap=_relative(primal, dual, 0.0, program.offset, magnitude + _NEGLIGIBLE * unit),
        primal_residual=residual,
        dual_residual=0.0,
        error=abs(primal - dual) + loss,
    )


def certificate_inside(
    program: Program,
    X: Sequence[Matrix],
    u: Array,
    y: Array,
    activity: Array,
    dual_residual: float,
    adjoints: Sequence[Array] | None = None,
) -> Certificate:
    """Return the certificate of an interior point of a semidefinite program, where no eigenvalue is needed.

    Parameters
    ----------
    program : Program
        Without divergences.
    X : sequence of arrays of shape (n_b, n_b) or LowRank
        Positive semidefinite.
    u : array of shape (k,)
        In its box.
    y, activity : array of shape (m,)
    dual_residual : float
        How far ``C - A*(y)`` is from the positive definite matrix that the route holds for it.
    adjoints : sequence of arrays of shape (n_b, n_b), optional
        ``A*(y)``, where it is at hand.
    """
    primal, magnitude = _linear_terms(program, X, u, activity)
    dual, miss, left = bound_inside(program, u, y)
    residual, loss = _misses(program, X, u, y, activity)
    unit = _linear_unit(program, X, y, adjoints)
    return Certificate(
        primal=primal,
        dual=dual,
        gap=_relative(primal, dual, left, program.offset, magnitude + _NEGLIGIBLE * unit),
        primal_residual=residual,
        dual_residual=max(dual_residual, miss),
        error=abs(primal - dual) + loss + left,
    )


def bound_inside(program: Program, u: Array, y: Array) -> tuple[float, float, float]:
    """Return Lagrange's bound of multipliers for which every ``C - A*(y)`` is psd.

    And how far ``c - B'y`` is from zero in free variables, relatively, and what that is worth at `u`.
    """
    box, miss, left = _box_minimum(program, u, y)
    return float(program.bounds.conjugate(y).sum()) + box + program.offset, miss, left


def _linear_unit(
    program: Program, X: Sequence[Matrix], y: Array, adjoints: Sequence[Array] | None = None
) -> float:
    """Return the traces times the norms of what ``C - A*(y)`` is made of, where the objective is linear.

    Rows that hold matrices alone to zero do not count: a psd matrix may be held there by any multiple.
    """
    if None not in program.divergences:
        return 0.0
    bound = np.where(y > 0, program.bounds.lo, program.bounds.hi)
    resting = (bound == 0) & program.alone
    # Multipliers of dependent rows may be anything: what they add up to counts.
    if resting.any():
        y, adjoints = np.where(resting, 0.0, y), None
    most = _LARGEST * max(program.stated_traces, default=math.inf)
    unit = 0.0
    for b, block in enumerate(program.blocks):
        if block.nearness is None:
            if adjoints is None:
                slack = _slack(program, b, y, X[b])
                size = slack.cost + slack.adjoint
            else:
                size = block.cost_norm + float(np.linalg.norm(adjoints[b]))
            unit += min(_typical_trace(program, b, float(X[b].trace())), most) * size
    return unit


def _slack(program: Program, b: int, y: Array, X: Matrix, faces: Sequence[Face] | None = None) -> _Slack:
    """Return ``C - A*(y)`` of a linear block; by its terms where ``X`` is large and held by its factor."""
    block = program.blocks[b]
    if isinstance(X, LowRank) and block.n > _SMALL and faces is None:
        thin = _thin_programs(program)[b]
        if thin is not None:
            own = thin.rows.adjoint(y)
            return _Slack(thin.cost - own, thin.cost.norm(), own.norm())
    adjoint = program.A.adjoint(y, b)
    W = block.C - adjoint
    seen = W if faces is None else faces[b].seen(W)
    return _Slack(seen, block.cost_norm, float(np.linalg.norm(adjoint)))


def _relative(primal: float, dual: float, worth: float, offset: float, scale: float) -> float:
    """Return the gap relative to the larger of the two, without the offset, or to the scale."""
    ends = [abs(end - offset) for end in (primal, dual) if math.isfinite(end)]
    scale = max(scale, *ends, 0.0)
    gap = abs(primal - dual) + worth
    if not math.isfinite(gap):
        return math.inf
    return 0.0 if gap == 0 else gap / scale if scale > 0 else math.inf


def _linear_terms(
    program: Program, X: Sequence[Matrix], u: Array, activity: Array, paid: float | None = None
) -> tuple[float, float]:
    """Return what is linear in the objective, penalties and offset with it, and its terms' magnitudes."""
    paid = float(program.bounds.penalty(activity).sum()) if paid is None else paid
    terms = [paid, *(block.cost_value(X_b) for block, X_b in zip(program.blocks, X, strict=True))]
    magnitude = sum(map(abs, terms))
    if program.k:
        terms.append(float(program.c @ u))
        magnitude += float(np.abs(program.c) @ np.abs(u))
    return (math.fsum(terms) if all(map(math.isfinite, terms)) else math.inf) + program.offset, magnitude


def _dual(
    program: Program, X: Sequence[Matrix], u: Array, y: Array, faces: Sequence[Face] | None, sharp: bool
) -> tuple[float, float, float, float]:
    """Return Lagrange's bound, how far the multipliers miss its domain, what that is worth, and the unit."""
    terms, residual, worth, unit = [float(program.bounds.conjugate(y).sum())], 0.0, 0.0, 0.0
    for b, block in enumerate(program.blocks):
        if block.nearness is not None:
            W = block.C - program.A.adjoint(y, b)
            divergence = divergence_of(block.nearness)
            terms.append(divergence.dual_term(W, block.nearness.mu, np.asarray(X[b])))
            unit += block.nearness.mu * divergence.unit
            continue
        slack = _slack(program, b, y, X[b], faces)
        bound, trace = trace_bounds(program)[b], float(X[b].trace())
        smallest = _least_eigenvalue(slack.W, sharp and bound is not None and bound.exact)
        if bound is not None:
            terms.append(bound.least(smallest))
        else:
            size = max(slack.cost, slack.adjoint)
            residual = max(residual, -smallest / size if size > 0 else 0.0)
            worth += max(-smallest, 0.0) * trace
    box, miss, left = _box_minimum(program, u, y)
    terms.append(box)
    total = math.fsum(terms) + program.offset if all(map(math.isfinite, terms)) else -math.inf
    unit += _linear_unit(program, X, y)
    return total, max(residual, miss), worth + left, unit


def _typical_trace(program: Program, block: int, trace: float) -> float:
    """Return the trace of the answer; where that is zero but for noise, the least that the bounds state."""
    natural = min(program.stated_traces, default=float(program.blocks[block].n))
    return trace if trace > _NO_TRACE * natural else natural


def _box_minimum(program: Program, u: Array, y: Array) -> tuple[float, float, float]:
    """Return the minimum of ``(c - B'y)'u`` over the box; what a free ``u`` leaves, relatively; its worth.

    The relative size is that of the largest terms that could be there, as multipliers that should vanish are
    round-off of the others, each row taken at its own size.
    """
    if program.k == 0:
        return 0.0, 0.0, 0.0
    reduced = program.c - program.Bt @ y
    # The largest term that any row could add, at the largest multiplier.
    largest = float((np.abs(y) * program.row_sizes).max(initial=0.0))
    size = np.abs(program.c) + program.column_sizes * largest
    end = np.where(reduced > 0, program.u_lo, program.u_hi)
    closed = np.isfinite(end)
    left = np.where(closed, 0.0, np.abs(reduced))
    miss = left / np.maximum(size, TINY)
    return float(reduced[closed] @ end[closed]), float(miss.max()), float(left @ np.abs(u))


def primal_residual(program: Program, X: Sequence[Matrix], u: Array, activity: Array) -> float:
    """Return the largest relative violation of a row or of the box, from activities that are at hand."""
    return _misses(program, X, u, np.zeros(program.m), activity)[0]


def _misses(
    program: Program, X: Sequence[Matrix], u: Array, y: Array, activity: Array
) -> tuple[float, float]:
    """Return the largest relative violation of a row or of the box, and what those of rows are worth."""
    residual = worth = 0.0
    if not program.bounds.all_soft:
        missed = program.bounds.missed(activity)
        residual, worth = _of_rows(program, X, u, missed), float(np.abs(y) @ missed)
    if program.k:
        outside = np.maximum(program.u_lo - u, u - program.u_hi)
        residual = max(residual, float((outside / np.maximum(np.abs(u), 1.0)).max()))
    return residual, worth


def _of_rows(program: Program, X: Sequence[Matrix], u: Array, missed: Array) -> float:
    """Return the largest violation of a row, relatively."""
    if not missed.any():
        return 0.0
    size = np.maximum(program.bounds.sizes, 1e-300)
    if program.k:
        least = _ROUND_OFF * np.abs(u).max()
        size = np.maximum(size, program.absolute_B @ np.maximum(np.abs(u), least))
    for term in program.A.terms:
        if missed[term.place].any():
            root = np.sqrt(np.maximum(X[term.block].diagonal(), 0.0))
            trace = _typical_trace(program, term.block, float(root @ root))
            most = np.maximum(term.rows.magnitude(root), _ROUND_OFF * trace * term.norms)
            size[term.place] = np.maximum(size[term.place], most)
    return float((missed / size).max())


def _cone_residual(program: Program, X: Sequence[Matrix]) -> float:
    """Return how far the matrices are outside the cone, where their divergence is finite there."""
    worst = 0.0
    for block, X_b in zip(program.blocks, X, strict=True):
        if isinstance(X_b, LowRank):
            continue
        if block.nearness is None or block.nearness.divergence == "frobenius":
            average = float(np.trace(X_b)) / len(X_b)
            smallest = _least_eigenvalue(X_b + _CONE_NOISE * abs(average) * np.eye(len(X_b)), False)
            if smallest < 0:
                worst = max(worst, -smallest / average if average > 0 else math.inf)
    return worst


def _least_eigenvalue(S: Array | ThinMatrix, above_zero: bool) -> float:
    """Return the smallest eigenvalue; zero, unless asked, where a Cholesky factorisation shows it above."""
    if isinstance(S, ThinMatrix):
        return smallest_eigenvalue(S)
    if not above_zero:
        try:
            np.linalg.cholesky(S)
        except np.linalg.LinAlgError:
            pass
        else:
            return 0.0
    return float(np.linalg.eigvalsh(S)[0])


def _thin_programs(program: Program) -> tuple[ThinProgram | None, ...]:
    if program not in _thin:
        _thin[program] = tuple(thin_program(program, b) for b in range(len(program.blocks)))
    return _thin[program]
