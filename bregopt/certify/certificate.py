"""Certificates of ``X``, ``u`` and the multipliers ``y``, recomputed from the data alone.

For any multipliers in their range, Lagrange's bound

    dual(y) = sum_k g_k(y_k)  +  sum over blocks min_X <C - A*(y), X> + mu D(X, X0)  +  min_u (c - B'y)'u

lies below the optimum, and for any ``X``, ``u`` that satisfy the hard rows the objective lies above it.
Their difference is the certified gap. No value that a solver reports enters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.certify.consistency import least_seen
from bregopt.certify.eigenvalue_bound import smallest_eigenvalue
from bregopt.certify.trace_bound import diagonal_bounds, trace_bounds
from bregopt.program.anchor import divergence_of
from bregopt.program.face import Face
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.program import Block, Program
from bregopt.program.scale import scale_of
from bregopt.program.sparse_plus_low_rank import SparseLowRankProgram, SparsePlusLowRank, sparse_plus_low_rank

__all__ = [
    "Certificate",
    "bound_inside",
    "certificate_inside",
    "certificate_of",
    "certify",
    "divergence_of",
    "objective_size",
    "primal_residual",
]


@dataclass(frozen=True)
class Certificate:
    """The bounds and residuals that an answer proves.

    Parameters
    ----------
    primal : float
        Objective at ``X``, ``u``.
    dual : float
        Lower bound on the optimum; ``-inf`` if the multipliers prove nothing. Where `dual_residual` is not
        zero, it is the bound of the multipliers minus the first-order cost of the residual at ``X``, ``u``.
    gap : float
        `error` relative to the largest of ``|primal|``, ``|dual|`` (constants of the objective apart) and a
        hundredth of the objective's scale.
    primal_residual : float
        Largest violation of a hard row, of the box of ``u`` and of ``X psd``. The violation of a row is
        relative to the largest magnitude of the row over psd matrices with the diagonal of ``X``, but to no
        more than the larger of its bound and its norm times the scale of ``X``. The residual is multiplied up
        where ``X`` or ``u`` is more than 1000 times larger than that scale and nothing bounds the trace.
    dual_residual : float
        Distance of ``C - A*(y)`` from psd (blocks with linear objective and no bound on the trace) and of
        ``c - B'y`` from zero (free variables), relative to the scale of the costs.
    error : float
        First-order bound on the distance of `primal` from the optimum, in units of the objective:
        ``|primal - dual|`` plus the cost of the violations at the multipliers.

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

    def meets(self, tol: float) -> bool:
        """Whether gap and residuals are all at most `tol`."""
        # Written such that a NaN does not meet any tolerance.
        return self.gap <= tol and self.primal_residual <= tol and self.dual_residual <= tol


# Fraction of the objective's scale: gaps of smaller objectives are relative to it. With a thousandth, games
# of value zero end inaccurate; with a tenth, some gaps come out ten times too small (tests/truth.py).
_NEGLIGIBLE = 1e-2
# Fraction of a row's norm times the scale of X: the least size that its violation is relative to.
_ROUND_OFF = 1e-9
# Multiple of the scale of X, or of the costs, beyond which the relative residual is multiplied up: iterates
# that diverge may meet the rows, or the cone, in the limit only.
_FAR = 1e3
_SMALL = 500  # the order up to which matrices are formed
_CONE_NOISE = 1e-12  # fraction of the mean eigenvalue: tolerated negative eigenvalue of a psd matrix
# Computed once for each program; dropped with it.
_thin: WeakKeyDictionary[Program, tuple[SparseLowRankProgram | None, ...]] = WeakKeyDictionary()


def certify(
    program: Program,
    X: Sequence[Matrix],
    u: Array,
    y: Array,
    faces: Sequence[Face] | None = None,
    sharp: bool = True,
    S: Sequence[Array | None] | None = None,
) -> Certificate:
    """Return the certificate of a primal and a dual point; `y` is clipped to its range first.

    Parameters
    ----------
    program : Program
        Without low-rank ``X0``: such blocks are certified on their range spaces.
    X : sequence of arrays of shape (n_b, n_b) or LowRank
    u : array of shape (k,)
    y : array of shape (m,)
    faces : sequence of Face, optional
        The faces that the rows restrict ``X`` to (:mod:`bregopt.presolve.faces`): ``C - A*(y)`` need be psd
        there only.
    sharp : bool
        Whether a positive smallest eigenvalue of ``C - A*(y)`` is computed where the trace of ``X`` is fixed.
        It raises the bound. Otherwise a factorization is enough.
    S : sequence of arrays of shape (n_b, n_b) or None, optional
        Multipliers of ``X psd``, for blocks with elementwise weights: their minimum over psd matrices has no
        closed form. Without it the gradient at `X` is used.
    """
    y = program.bounds.clip(y)
    activity = program.activity(X, u)
    linear = _linear_value(program, X, u, activity)
    divergences = [
        block.nearness.mu * divergence_of(block.nearness).value(np.asarray(X_b))
        for block, X_b in zip(program.blocks, X, strict=True)
        if block.nearness is not None
    ]
    primal = math.fsum([linear, *divergences]) if all(map(math.isfinite, divergences)) else math.inf
    dual, dual_residual, cost = _dual(program, X, u, y, faces, sharp, S)
    residual, loss = _misses(program, X, u, y, activity)
    residual = max(residual, _cone_residual(program, X))
    return _certificate(program, primal, dual - cost, loss, residual, dual_residual)


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

    It is that of :func:`certify` without its decompositions, cheap enough for every step of a route.

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
        The sum of the penalties, and the sum of the rows' terms of the dual function.
    """
    nearness = program.blocks[0].nearness
    assert nearness is not None
    u = np.zeros(0)
    primal = _linear_value(program, (X,), u, activity, paid) + nearness.mu * divergence
    dual = matrix_term
    if math.isfinite(matrix_term):
        own = float(program.bounds.conjugate(y).sum()) if rows_term is None else rows_term
        dual += own + program.offset
    residual, loss = _misses(program, (X,), u, y, activity)
    return _certificate(program, primal, dual, loss, residual, 0.0)


def certificate_inside(
    program: Program,
    X: Sequence[Matrix],
    u: Array,
    y: Array,
    activity: Array,
    dual_miss: float = 0.0,
) -> Certificate:
    """Return the certificate of an interior point of a semidefinite program; it needs no eigenvalue.

    Parameters
    ----------
    program : Program
        Without divergences.
    X : sequence of arrays of shape (n_b, n_b) or LowRank
        Positive semidefinite.
    u : array of shape (k,)
        In its box.
    y, activity : array of shape (m,)
    dual_miss : float
        Every eigenvalue of ``C - A*(y)`` is at least ``-dual_miss``.
    """
    primal = _linear_value(program, X, u, activity)
    dual, dual_residual, left = bound_inside(program, u, y)
    residual, loss = _misses(program, X, u, y, activity)
    if dual_miss:
        dual_residual = max(dual_residual, _relative_to_costs(program, dual_miss, y))
        left += dual_miss * sum(float(X_b.trace()) for X_b in X)
    return _certificate(program, primal, dual - left, loss, residual, dual_residual)


def bound_inside(program: Program, u: Array, y: Array) -> tuple[float, float, float]:
    """Return Lagrange's bound, the dual residual and its cost, for ``y`` with every ``C - A*(y)`` psd.

    The residual is the relative distance of ``c - B'y`` from zero in free variables, its cost is at `u`.
    """
    box, miss, left = _box_minimum(program, u, y)
    return float(program.bounds.conjugate(y).sum()) + box + program.offset, miss, left


def objective_size(program: Program, *values: float) -> float:
    """Return the magnitude that a gap between objective values is relative to.

    It is the largest finite value, constants apart, but at least a hundredth of the objective's scale.
    """
    sizes = [abs(value - program.offset) for value in values if math.isfinite(value)]
    return max([*sizes, _NEGLIGIBLE * scale_of(program).objective])


def _certificate(
    program: Program, primal: float, dual: float, loss: float, primal_residual: float, dual_residual: float
) -> Certificate:
    """Return the certificate of a primal and a dual value; `loss` is the cost of the violations."""
    error = abs(primal - dual) + loss
    size = objective_size(program, primal, dual)
    if not math.isfinite(error):
        error = gap = math.inf
    else:
        gap = 0.0 if error == 0 else error / size if size > 0 else math.inf
    return Certificate(primal, dual, gap, primal_residual, dual_residual, error)


def slack(
    program: Program, b: int, y: Array, X: Matrix, faces: Sequence[Face] | None = None
) -> Array | SparsePlusLowRank:
    """Return ``C - A*(y)`` of a linear block; sparse plus low rank where ``X`` is large and a LowRank."""
    block = program.blocks[b]
    if isinstance(X, LowRank) and block.n > _SMALL and faces is None:
        thin = _thin_programs(program)[b]
        if thin is not None:
            return thin.cost - thin.rows.adjoint(y)
    W = block.C - program.A.adjoint(y, b)
    return W if faces is None else faces[b].compress(W)


def _linear_value(
    program: Program, X: Sequence[Matrix], u: Array, activity: Array, paid: float | None = None
) -> float:
    """Return the linear terms of the objective, with the penalties and the offset."""
    paid = float(program.bounds.penalty(activity).sum()) if paid is None else paid
    terms = [paid, *(block.cost_value(X_b) for block, X_b in zip(program.blocks, X, strict=True))]
    if program.k:
        terms.append(float(program.c @ u))
    return (math.fsum(terms) if all(map(math.isfinite, terms)) else math.inf) + program.offset


def _dual(
    program: Program,
    X: Sequence[Matrix],
    u: Array,
    y: Array,
    faces: Sequence[Face] | None,
    sharp: bool,
    S: Sequence[Array | None] | None,
) -> tuple[float, float, float]:
    """Return Lagrange's bound, the relative distance of the multipliers from its domain, and its cost."""
    terms, residual, cost = [float(program.bounds.conjugate(y).sum())], 0.0, 0.0
    for b, block in enumerate(program.blocks):
        if block.nearness is not None:
            W = block.C - program.A.adjoint(y, b)
            divergence: Any = divergence_of(block.nearness)
            at, mu = np.asarray(X[b]), block.nearness.mu
            if getattr(divergence, "takes_multiplier", False):
                own = None if S is None else S[b]
                least = divergence.dual_term(W, mu, at, own, diagonal_bounds(program)[b])
            else:
                least = divergence.dual_term(W, mu, at)
            terms.append(min(least, least_seen(divergence, W, mu, at)))
            continue
        bound = trace_bounds(program)[b]
        Z = slack(program, b, y, X[b], faces)
        smallest = least_eigenvalue(Z, sharp and bound is not None and bound.exact)
        if bound is not None:
            terms.append(bound.least(smallest))
        elif smallest < 0:
            residual = max(residual, _relative_to_costs(program, -smallest, y))
            cost -= smallest * float(X[b].trace())
    box, miss, left = _box_minimum(program, u, y)
    terms.append(box)
    total = math.fsum(terms) + program.offset if all(map(math.isfinite, terms)) else -math.inf
    return total, max(residual, miss), cost + left


def _relative_to_costs(program: Program, miss: float, y: Array) -> float:
    """Return the dual residual of the eigenvalue ``-miss``, relative to the scale of the costs.

    It is multiplied up where the multipliers are far larger than that scale (see ``_FAR``).
    """
    eta = max(scale_of(program).dual, TINY)
    largest = float((np.abs(y) * program.A.norms()).max(initial=0.0))
    return miss / eta * max(1.0, largest / (_FAR * eta))


def _box_minimum(program: Program, u: Array, y: Array) -> tuple[float, float, float]:
    """Return the minimum of ``(c - B'y)'u`` over the box, the relative residual of free ``u``, its cost."""
    if program.k == 0:
        return 0.0, 0.0, 0.0
    reduced = program.c - program.Bt @ y
    end = np.where(reduced > 0, program.u_lo, program.u_hi)
    closed = np.isfinite(end)
    left = np.where(closed, 0.0, np.abs(reduced))
    column = program.column_sizes
    size = np.where(column > 0, scale_of(program).dual * column, np.abs(program.c))
    miss = left / np.maximum(size, TINY)
    return float(reduced[closed] @ end[closed]), float(miss.max()), float(left @ np.abs(u))


def primal_residual(program: Program, X: Sequence[Matrix], u: Array, activity: Array) -> float:
    """Return the largest relative violation of a row or of the box, from given activities."""
    return _misses(program, X, u, np.zeros(program.m), activity)[0]


def _misses(
    program: Program, X: Sequence[Matrix], u: Array, y: Array, activity: Array
) -> tuple[float, float]:
    """Return the largest relative violation of a row or of the box, and the cost of the rows' violations."""
    residual = loss = 0.0
    if not program.bounds.all_soft:
        missed = program.bounds.missed(activity)
        residual, loss = _of_rows(program, X, u, missed), float(np.abs(y) @ missed)
    if program.k:
        residual = max(residual, _of_box(program, u))
    return (residual * _distance(program, X, u) if residual else 0.0), loss


def _of_rows(program: Program, X: Sequence[Matrix], u: Array, missed: Array) -> float:
    """Return the largest relative violation of a row."""
    if not missed.any():
        return 0.0
    norms, sizes, rho = program.row_sizes, program.bounds.sizes, scale_of(program).primal
    reach = np.maximum(sizes, _ROUND_OFF * norms * rho)
    if program.k:
        reach = np.maximum(reach, program.absolute_B @ np.abs(u))
    for term in program.A.terms:
        if missed[term.place].any():
            root = np.sqrt(np.maximum(X[term.block].diagonal(), 0.0))
            reach[term.place] = np.maximum(reach[term.place], term.rows.magnitude(root))
    stated = np.maximum(sizes, norms * rho)
    return float((missed / np.maximum(np.minimum(reach, stated), TINY)).max())


def _of_box(program: Program, u: Array) -> float:
    """Return the largest violation of the box, relative to the larger of its bound and the scale of u."""
    outside = np.maximum(np.maximum(program.u_lo - u, u - program.u_hi), 0.0)
    column = program.column_sizes
    usual = scale_of(program).primal / np.where(column > 0, column, 1.0)
    end = np.where(u < program.u_lo, program.u_lo, program.u_hi)
    size = np.maximum(usual, np.where(outside > 0, np.abs(end), 0.0))
    return float((outside / size).max())


def _distance(program: Program, X: Sequence[Matrix], u: Array) -> float:
    """Return the size of ``X`` and ``u`` as a multiple of ``_FAR`` times their scale, at least one.

    Rows that only a divergent sequence meets in the limit are met to any accuracy by large enough matrices.
    """
    usual = _FAR * scale_of(program).primal
    variables = float((np.abs(u) * program.column_sizes).max()) if program.k else 0.0
    largest = max([variables, *(float(X_b.trace()) for X_b in X)])
    if largest <= usual:
        return 1.0
    traces = [
        float(X_b.trace()) for X_b, bound in zip(X, trace_bounds(program), strict=True) if bound is None
    ]
    return max([1.0, variables / usual, *(trace / usual for trace in traces)])


def _cone_residual(program: Program, X: Sequence[Matrix]) -> float:
    """Return the relative distance of the matrices from the cone, where no divergence keeps them inside."""
    worst = 0.0
    for block, X_b in zip(program.blocks, X, strict=True):
        if isinstance(X_b, LowRank) or _keeps_inside(block):
            continue
        average = float(np.trace(X_b)) / len(X_b)
        smallest = least_eigenvalue(X_b + _CONE_NOISE * abs(average) * np.eye(len(X_b)))
        if smallest < 0:
            size = min(average, scale_of(program).primal)
            worst = max(worst, -smallest / size if size > 0 else math.inf)
    return worst


def _keeps_inside(block: Block) -> bool:
    """Whether the block's divergence declares that it is infinite outside the cone."""
    if block.nearness is None:
        return False
    return bool(getattr(divergence_of(block.nearness), "infinite_outside_cone", False))


def least_eigenvalue(S: Array | SparsePlusLowRank, above_zero: bool = False) -> float:
    """Return the smallest eigenvalue; if positive, it is replaced by zero unless `above_zero`.

    A Cholesky factorization then replaces the eigenvalues.
    """
    if isinstance(S, SparsePlusLowRank):
        return smallest_eigenvalue(S)
    if not above_zero:
        try:
            np.linalg.cholesky(S)
        except np.linalg.LinAlgError:
            pass
        else:
            return 0.0
    return float(np.linalg.eigvalsh(S)[0])


def _thin_programs(program: Program) -> tuple[SparseLowRankProgram | None, ...]:
    if program not in _thin:
        _thin[program] = tuple(sparse_plus_low_rank(program, b) for b in range(len(program.blocks)))
    return _thin[program]
