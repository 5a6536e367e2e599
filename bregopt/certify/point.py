"""A primal and a dual point, and the values that its certificate consists of.

For multipliers ``y`` in their range, Lagrange's bound is

    dual(y) = sum_k g_k(y_k)  +  sum over blocks min_X <C - A*(y), X> + mu D(X, X0)  +  min_u (c - B'y)'u.

Over ``0 <= X <= c I`` every linear function has a minimum: ``<W, X>`` is at least ``c`` times the sum of the
negative eigenvalues of ``W``.

Each value is computed on first use. A route that already holds one hands it over, and it is not computed
again; nothing else of a route enters a certificate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from bregopt.arrays import EPS, TINY, Array, Mask
from bregopt.certify.slacks import (
    TraceBound,
    capped_term,
    diagonal_bounds,
    feasible_fraction,
    least_eigenvalues,
    least_relative_eigenvalue,
    least_seen,
    slack,
    trace_bounds,
)
from bregopt.divergences import SCALARS, psd_part
from bregopt.divergences.rows import Penalty
from bregopt.program.bounds import Face
from bregopt.program.linear_map import SparsePlusLowRank
from bregopt.program.program import Block, Program, divergence_of
from bregopt.program.rows.base import LowRank, Matrix
from bregopt.program.scale import dimacs_sizes, scale_of
from bregopt.records import cached_property, kept

# Fraction of a row's norm times the scale of X: the least size that its violation is relative to. A row that
# is zero at X is otherwise met to round-off and never to a relative tolerance.
ROW_NOISE = 1e-9
# Multiple of the scale of X, or of the costs, beyond which the relative residual is multiplied up: iterates
# that diverge may meet the rows, or the cone, in the limit only (tests/certify/test_false_proofs.py).
DIVERGENT = 1e3
# Times the size of X and of u: the bound of multipliers outside their domain holds for optima up to these
# sizes. Exact programs of condition 2^45 and more had an X 62 times as large as that of an answer with a
# small gap. An optimum that is approached but not attained is larger than any answer.
LARGEST_X, LARGEST_U = 256.0, 4.0
# Fraction of the mean eigenvalue: tolerated negative eigenvalue of a psd matrix, above the round-off of an
# eigendecomposition of order 1,000.
CONE_NOISE = 1e-12


class Known(TypedDict, total=False):
    """Values that a route may hold, under the names of the properties of :class:`PrimalDualPoint`."""

    activity: Array
    magnitudes: Array
    costs: float
    traces: Array
    penalties: float
    divergences: tuple[float, ...]
    cone_residual: float
    row_terms: float
    matrix_terms: tuple[float, ...]
    slacks: tuple[Array | SparsePlusLowRank | None, ...]
    smallest_eigenvalues: tuple[float, ...]


class DualBound(NamedTuple):
    """Lagrange's bound.

    Parameters
    ----------
    value : float
        ``-inf`` if the multipliers prove nothing.
    residual : float
        Distance of the multipliers from the domain of the bound, relative to the scale of the costs.
    cost : float
        Cost of that residual at an ``X`` up to 256 times, and ``u`` up to four times, as large.
    """

    value: float
    residual: float
    cost: float


class PrimalDualPoint:
    """A primal point ``X``, ``u`` and a dual point ``y``.

    Parameters
    ----------
    program : Program
        Without low-rank ``X0``: such blocks are certified on their range spaces.
    X : sequence of arrays of shape (n_b, n_b) or LowRank
    u : array of shape (k,)
    y : array of shape (m,)
        Clipped to its range.
    faces : sequence of Face, optional
        The faces that the rows restrict ``X`` to (:mod:`bregopt.presolve.faces`): ``C - A*(y)`` need be psd
        there only.
    sharp : bool
        Whether a positive smallest eigenvalue of ``C - A*(y)`` is computed where the trace of ``X`` is fixed.
        It raises the bound. Otherwise a factorization is enough.
    S : sequence of arrays of shape (n_b, n_b) or None, optional
        Multipliers of ``X psd``, for blocks with elementwise weights: their minimum over psd matrices has no
        closed form. Without it the gradient at ``X`` is used.
    loss : float
        The bound need be no sharper than this, in units of the objective, where a large eigenvalue problem
        takes less time for it. Zero asks for the sharpest bound.
    **known
        Values that the caller holds: properties of this class by name (:class:`Known`).
    """

    def __init__(
        self,
        program: Program,
        X: Sequence[Matrix],
        u: Array,
        y: Array,
        *,
        faces: Sequence[Face] | None = None,
        sharp: bool = True,
        S: Sequence[Array | None] | None = None,
        loss: float = 0.0,
        **known: Unpack[Known],
    ) -> None:
        self.program, self.X, self.u, self.y = program, X, u, program.bounds.clip(y)
        self._faces, self._sharp, self._S, self._loss = faces, sharp, S, loss
        vars(self).update(known)  # a cached property with a value is not computed

    @cached_property
    def activity(self) -> Array:
        """``A(X) + B u``, an array of shape (m,)."""
        return self.program.activity(self.X, self.u)

    @cached_property
    def magnitudes(self) -> Array:
        """The largest ``sum_ij |A_ij| s_i s_j`` in a block, ``s^2 = diag(X)``, of each violated row; (m,).

        Of `positive_rows` it is the activity itself.
        """
        largest, missed = np.zeros(self.program.m), self.violations > 0
        for term in self.program.A.terms:
            if missed[term.place].any():
                root = np.sqrt(np.maximum(self.X[term.block].diagonal(), 0.0))
                largest[term.place] = np.maximum(largest[term.place], term.rows.magnitude(root))
        return np.where(self.positive_rows, np.abs(self.activity), largest)

    @cached_property
    def positive_rows(self) -> Mask:
        """Mask of the violated rows with psd ``A_k`` on one matrix that a divergence keeps definite.

        The divergence then grows with the ratio of activity and bound, however small these are beside ``X``.
        """
        program, rows = self.program, self.violations > 0
        kinds = [None if block.nearness is None else block.nearness.kind for block in program.blocks]
        smooth = [bool(getattr(kind, "essentially_smooth", False)) for kind in kinds]
        if program.k or not any(smooth) or not rows.any():
            return np.zeros(program.m, dtype=bool)
        rows &= program.A.in_one_block & (program.A.definite_signs != 0)
        for term in program.A.terms:
            rows[term.place] &= smooth[term.block]
        return rows

    @cached_property
    def projection_cost(self) -> float:
        """The divergence of projections onto the single `positive_rows`: a cost of second order."""
        program, cost = self.program, 0.0
        for term in program.A.terms if program.curved else ():
            nearness = program.blocks[term.block].nearness
            own = np.flatnonzero(self.positive_rows[term.place])
            penalty = None if nearness is None else getattr(nearness.kind, "penalty", None)
            if nearness is None or penalty is None or not len(own):
                continue
            at = np.arange(program.m)[term.place][own]
            a = self.activity[at]
            value = SCALARS[penalty].value
            b = np.clip(a, program.bounds.lo[at], program.bounds.hi[at])
            norms = program.row_units[at]
            with np.errstate(all="ignore"):
                own_cost = float(value(np.abs(b) / norms, np.maximum(np.abs(a) / norms, TINY)).sum())
            cost += nearness.mu * own_cost if math.isfinite(own_cost) else math.inf
        return cost

    @cached_property
    def costs(self) -> float:
        """``<C, X>``, summed over the blocks."""
        return math.fsum(map(Block.cost_value, self.program.blocks, self.X))

    @cached_property
    def traces(self) -> Array:
        """The trace of each ``X``."""
        return np.array([float(X.trace()) for X in self.X])

    @cached_property
    def penalties(self) -> float:
        """The sum of the penalties of soft rows."""
        bounds = self.program.bounds
        return 0.0 if bounds.all_hard else float(bounds.penalty(self.activity).sum())

    @cached_property
    def divergences(self) -> tuple[float, ...]:
        """``D(X, X0)`` of each block, zero for a block without a divergence."""
        program, values = self.program, [0.0] * len(self.program.blocks)
        for b in program.curved:
            nearness = program.blocks[b].nearness
            if nearness is not None:
                values[b] = divergence_of(nearness).value(np.asarray(self.X[b]))
        return tuple(values)

    @cached_property
    def primal(self) -> float:
        """The objective at ``X`` and ``u``."""
        program = self.program
        terms = [self.penalties, self.costs]
        if program.k:
            terms.append(float(program.c @ self.u))
        for b in program.curved:
            nearness = program.blocks[b].nearness
            if nearness is not None:
                terms.append(nearness.mu * self.divergences[b])
        return (math.fsum(terms) if all(map(math.isfinite, terms)) else math.inf) + program.offset

    @cached_property
    def evaluation_error(self) -> float:
        """A bound on the round-off that value and bound share, as both evaluate the same divergences."""
        errors = []
        for b in self.program.curved:
            nearness = self.program.blocks[b].nearness
            if nearness is not None:
                own = getattr(divergence_of(nearness), "evaluation_error", None)
                errors.append(0.0 if own is None else nearness.mu * own(np.asarray(self.X[b])))
        return math.fsum(errors) if all(map(math.isfinite, errors)) else math.inf

    @cached_property
    def violations(self) -> Array:
        """The violation of each required row, an array of shape (m,)."""
        return self.program.bounds.missed(self.activity)

    @cached_property
    def cone_residual(self) -> float:
        """The relative distance of ``X`` from the cone, where no divergence keeps it inside."""
        return _cone_residual(self.program, self.X)

    @cached_property
    def cone_loss(self) -> float:
        """The cost of the negative parts, ``<S, X_->`` at the multiplier ``S`` of ``X psd``."""
        if not self.cone_residual:
            return 0.0
        loss = 0.0
        for b, (block, X) in enumerate(zip(self.program.blocks, self.X, strict=True)):
            if not isinstance(X, np.ndarray) or _keeps_inside(block):
                continue
            S: Any = None if self._S is None else self._S[b]
            if S is None:
                S = block.C - self.program.A.adjoint(self.y, b)
                if block.nearness is not None:
                    S = S + block.nearness.mu * divergence_of(block.nearness).gradient(X)
            if not (np.isfinite(X).all() and np.isfinite(S).all()):
                return math.inf
            below: Any = psd_part(-X)
            loss += abs(float(np.vdot(psd_part(S), below)))
        return loss

    @cached_property
    def primal_residual(self) -> float:
        """The largest relative violation of a row, of the box, of a second-order cone, or of ``X psd``."""
        program = self.program
        residual = float(np.maximum.reduce(row_residuals(self), initial=0.0))
        if program.k:
            residual = max(residual, _box_residual(program, self.u), _second_order_residual(program, self.u))
        if residual:
            residual *= divergence_factor(self)
            sizes = dimacs_sizes(program)
            if sizes is not None:
                outside = max(float(np.linalg.norm(self.violations)), _outside_of(program, self.u))
                residual = max(residual, outside / sizes.bounds)
        if program.capped:
            residual = max(residual, self.cap_violation.residual)
        return max(residual, self.cone_residual)

    @cached_property
    def cap_violation(self) -> CapViolation:
        """The violation of ``X <= c I`` and its cost; zero for blocks without a cap."""
        return cap_violation(self.program, self.X, self.y)

    @cached_property
    def second_order_loss(self) -> float:
        """The cost of the violations of second-order cones, at the reduced costs of their axes."""
        program, cones = self.program, self.program.cones
        if not cones.count:
            return 0.0
        reduced = program.c[cones.axes] - (program.Bt @ self.y)[cones.axes]
        return float(np.abs(reduced) @ cones.outside(self.u[cones.index]))

    @cached_property
    def row_terms(self) -> float:
        """``sum_k g_k(y_k)``, the rows' terms of the bound."""
        return float(np.add.reduce(self.program.bounds.conjugate(self.y)))

    @cached_property
    def matrix_terms(self) -> tuple[float, ...]:
        """``min_X <C - A*(y), X> + mu D(X, X0)`` by blocks; zero for one without divergence and cap."""
        terms = [0.0] * len(self.program.blocks)
        for b in self.program.curved:
            terms[b] = self._matrix_term(b)
        return tuple(terms)

    @cached_property
    def slacks(self) -> tuple[Array | SparsePlusLowRank | None, ...]:
        """``C - A*(y)`` of each block, on its face; None for a block with a divergence or a cap."""
        program = self.program
        return tuple(
            None if b in program.curved else slack(program, b, self.y, X, self._faces)
            for b, X in enumerate(self.X)
        )

    @cached_property
    def smallest_eigenvalues(self) -> tuple[float, ...]:
        """A lower bound on the eigenvalues of ``C - A*(y)``, zero for a block with a divergence or a cap.

        Zero may also stand for a positive bound, where that has no use. For a large LowRank the eigenvalues
        are relative to a diagonal (:func:`bregopt.certify.slacks.least_relative_eigenvalue`).
        """
        program = self.program
        if len(program.curved) == len(program.blocks):
            return (0.0,) * len(program.blocks)
        traces = trace_bounds(program)
        smallest: dict[int, float] = {}
        dense: dict[int, Array] = {}
        for b, W in enumerate(self.slacks):
            if isinstance(W, SparsePlusLowRank):
                smallest[b] = least_relative_eigenvalue(program, b, W, self.row_terms, self._loss)
            elif W is not None:
                dense[b] = W
        found = least_eigenvalues(list(dense.values()), [self._sharp and _is_exact(traces[b]) for b in dense])
        smallest.update(zip(dense, found, strict=True))
        return tuple([smallest.get(b, 0.0) for b in range(len(program.blocks))])

    @cached_property
    def bound(self) -> DualBound:
        """Lagrange's bound on the optimum."""
        terms, residual, cost = [self.row_terms, *self.matrix_terms], 0.0, 0.0
        used = [(b, smallest) for b, smallest in enumerate(self.smallest_eigenvalues) if smallest]
        traces, least = trace_bounds(self.program) if used else (), 0.0
        for b, smallest in used:
            trace = traces[b]
            if trace is not None:
                terms.append(trace.least(smallest))
            elif smallest < 0 and (share := feasible_fraction(self.program, self.slacks[b], smallest)):
                terms.append((share - 1) * self.row_terms)
            elif smallest < 0:
                least = min(least, smallest)
                cost -= smallest * float(self.traces[b])
        sizes = dimacs_sizes(self.program)
        if least < 0:
            residual = relative_to_costs(self.program, -least, self.y)
            residual = residual if sizes is None else max(residual, -least / sizes.costs)
        box, miss, left, far = box_minimum(self.program, self.u, self.y)
        terms.append(box)
        value = math.fsum(terms) + self.program.offset if all(map(math.isfinite, terms)) else -math.inf
        miss = miss if sizes is None else max(miss, far / sizes.costs)
        return DualBound(value, max(residual, miss), LARGEST_X * cost + LARGEST_U * left)

    def largest_term(self) -> float:
        """Return the largest of the sums of magnitudes that value and bound are made of.

        A row has the magnitude ``sum_ij |A_ij| s_i s_j``, with ``s^2 = diag(X)``, at its multiplier. It is
        zero where the objective is a sum of divergences: these are small without differences of large terms,
        and the terms of their bounds vanish with the multipliers.
        """
        program = self.program
        linear = [abs(block.cost_value(X)) for block, X in zip(program.blocks, self.X, strict=True)]
        signed = any(linear) or program.c.any() or Penalty.LOG in program.bounds.kinds
        if all(program.divergences) and not signed:
            return 0.0
        largest = [
            sum(linear),
            float(np.abs(program.bounds.conjugate(self.y)).sum()),
            float(np.abs(program.c) @ np.abs(self.u)),
            self.penalties,
            sum(map(abs, self.matrix_terms)),
        ]
        roots = [np.sqrt(np.maximum(X.diagonal(), 0.0)) for X in self.X]
        rows = np.zeros(program.m)
        for term in program.A.terms:
            rows[term.place] += term.rows.magnitude(roots[term.block])
        largest.append(float(np.abs(self.y) @ rows))
        return max(value for value in largest if math.isfinite(value))

    def _matrix_term(self, b: int) -> float:
        nearness, cap = self.program.blocks[b].nearness, self.program.blocks[b].cap
        W, X = self.program.blocks[b].C - self.program.A.adjoint(self.y, b), np.asarray(self.X[b])
        constant, face = 0.0, None if self._faces is None else self._faces[b]
        if face is not None and face.codimension:
            W, X = face.compress(W), face.compress(X)
            if nearness is not None:
                nearness, constant = nearness.on_face(face)
        if cap is not None:
            return capped_term(nearness, W, X, cap) + constant
        assert nearness is not None
        divergence: Any = divergence_of(nearness)
        if getattr(divergence, "takes_multiplier", False):
            S = None if self._S is None else self._S[b]
            least = divergence.dual_term(W, nearness.mu, X, S, diagonal_bounds(self.program)[b])
        else:
            least = divergence.dual_term(W, nearness.mu, X)
        return min(least, least_seen(divergence, W, nearness.mu, X)) + constant


def _is_exact(trace: TraceBound | None) -> bool:
    return trace is not None and trace.exact


def relative_to_costs(program: Program, miss: float, y: Array) -> float:
    """Return the dual residual of the eigenvalue ``-miss``."""
    return miss / scale_of(program).price * multiplier_factor(program, y)


def multiplier_factor(program: Program, y: Array) -> float:
    """Return the size of the multipliers as a multiple of ``DIVERGENT`` times their scale, at least one."""
    usual = DIVERGENT * scale_of(program).price
    largest = float(np.maximum.reduce(np.abs(y) * program.row_units, initial=0.0))
    return max(1.0, largest / usual) if usual > DIVERGENT * TINY else 1.0  # without costs there is no scale


def box_minimum(program: Program, u: Array, y: Array) -> tuple[float, float, float, float]:
    """Return the minimum of ``(c - B'y)'u`` over the box; of other ``u`` residual, its cost and its norm.

    The residual of a free variable is its reduced cost. That of a cone is the least change of the cost of its
    axis that brings the reduced costs into the cone; over the cone their minimum is then zero.
    """
    if program.k == 0:
        return 0.0, 0.0, 0.0, 0.0
    reduced = program.c - program.Bt @ y
    end = np.where(reduced > 0, program.u_lo, program.u_hi)
    closed = np.isfinite(end)
    left = np.where(closed, 0.0, np.abs(reduced))
    cones = program.cones
    if cones.count:
        left[cones.index] = 0.0
        left[cones.axes] = cones.outside(np.where(closed, 0.0, reduced)[cones.index])
    miss = left / _price_units(program)
    least = float(reduced[closed] @ end[closed])
    if cones.count and miss[cones.axes].any():
        miss[cones.axes] *= multiplier_factor(program, y)
    return least, float(np.maximum.reduce(miss)), float(left @ np.abs(u)), math.sqrt(left @ left)


@kept
def _price_units(program: Program) -> Array:
    """Return the units of the reduced costs of variables."""
    column = program.column_sizes
    size = np.where(column > 0, scale_of(program).price * column, np.abs(program.c))
    if program.tangent is not None:
        size = np.maximum(size, program.tangent.costs)
    return np.maximum(size, TINY)


def row_residuals(point: PrimalDualPoint) -> Array:
    """Return the relative violation of each row, shape ``(m,)``."""
    program, missed = point.program, point.violations
    if not np.logical_or.reduce(missed):
        return np.zeros(len(missed))
    norms, sizes, rho = program.row_units, program.bounds.sizes, scale_of(program).primal
    reach = np.maximum(sizes, ROW_NOISE * norms * rho)
    if program.k:
        reach = np.maximum(reach, program.absolute_B @ np.abs(point.u))
    reach = np.maximum(reach, point.magnitudes)
    # The floor times a tolerance may be less than round-off.
    round_off = (reach <= ROW_NOISE * norms * rho) & (missed <= 4 * EPS * norms * rho)
    missed = np.where(round_off, 0.0, missed)
    stated = np.maximum(sizes, norms * rho)
    return missed / np.maximum(np.minimum(reach, stated), TINY)


def divergence_factor(point: PrimalDualPoint) -> float:
    """Return the size of ``X`` and ``u`` as a multiple of ``DIVERGENT`` times their scale, at least one.

    Rows that only a divergent sequence meets in the limit are met to any accuracy by large enough matrices.
    """
    program, traces = point.program, point.traces
    usual = DIVERGENT * scale_of(program).primal
    variables = float((np.abs(point.u) * program.column_sizes).max()) if program.k else 0.0
    if max(variables, float(np.maximum.reduce(traces, initial=0.0))) <= usual:
        return 1.0
    free = np.array([bound is None for bound in trace_bounds(program)], dtype=bool)
    return max(1.0, variables / usual, float(traces[free].max(initial=0.0)) / usual)


def _box_residual(program: Program, u: Array) -> float:
    """Return the largest violation of the box, relative to the larger of its bound and the scale of u."""
    outside = np.maximum(np.maximum(program.u_lo - u, u - program.u_hi), 0.0)
    column = program.column_sizes
    usual = scale_of(program).primal / np.where(column > 0, column, 1.0)
    end = np.where(u < program.u_lo, program.u_lo, program.u_hi)
    size = np.maximum(usual, np.where(outside > 0, np.abs(end), 0.0))
    return float((outside / size).max())


def _second_order_residual(program: Program, u: Array) -> float:
    """Return the largest violation of a second-order cone, relative to the scale of its axis."""
    cones, column = program.cones, program.column_sizes[program.cones.axes]
    usual = scale_of(program).primal / np.where(column > 0, column, 1.0)
    return float((cones.outside(u[cones.index]) / usual).max(initial=0.0))


def _outside_of(program: Program, u: Array) -> float:
    """Return the largest distance of a variable from its box, or of variables from their cone."""
    if program.k == 0:
        return 0.0
    box = np.abs(u - np.clip(u, program.u_lo, program.u_hi))
    return float(max(box.max(), program.cones.outside(u[program.cones.index]).max(initial=0.0)))


def _cone_residual(program: Program, X: Sequence[Matrix]) -> float:
    """Return the relative distance of the matrices from the cone, where no divergence keeps them inside.

    It is relative to the mean eigenvalue or the scale of ``X``, and no less than the DIMACS error 2.
    """
    sizes = dimacs_sizes(program)
    own = [
        X_b
        for block, X_b in zip(program.blocks, X, strict=True)
        if not (isinstance(X_b, LowRank) or _keeps_inside(block))
    ]
    averages, worst = [float(X_b.trace()) / len(X_b) for X_b in own], 0.0
    noisy = [np.array(X_b, dtype=float) for X_b in own]
    for S, average in zip(noisy, averages, strict=True):
        S.flat[:: len(S) + 1] += CONE_NOISE * abs(average)
    for smallest, average in zip(least_eigenvalues(noisy, [False] * len(own)), averages, strict=True):
        if smallest < 0:
            size = min(average, scale_of(program).primal, math.inf if sizes is None else sizes.bounds)
            worst = max(worst, -smallest / size if size > 0 else math.inf)
    return worst


def _keeps_inside(block: Block) -> bool:
    """Whether the block's divergence declares that it is infinite outside the cone."""
    if block.nearness is None:
        return False
    return bool(getattr(divergence_of(block.nearness), "infinite_outside_cone", False))


class CapViolation(NamedTuple):
    """The violation of the caps by a point.

    Parameters
    ----------
    residual : float
        The largest excess of an eigenvalue, relative to its cap.
    cost : float
        The change of the Lagrangian if the excess is cut off.
    """

    residual: float
    cost: float


def cap_violation(program: Program, X: Sequence[Matrix], y: Array) -> CapViolation:
    """Return the violation of the caps; excess within round-off counts as zero."""
    residual, cost = 0.0, 0.0
    for b, (block, X_b) in enumerate(zip(program.blocks, X, strict=True)):
        if block.cap is None:
            continue
        eigenvalues = X_b.eigenvalues() if isinstance(X_b, LowRank) else np.linalg.eigvalsh(X_b)
        excess = float(eigenvalues[-1]) / block.cap - 1
        if excess > CONE_NOISE:
            residual = max(residual, excess)
            cost += _excess_cost(block, np.asarray(X_b), block.C - program.A.adjoint(y, b), block.cap)
    return CapViolation(residual, cost)


def _excess_cost(block: Block, X: Array, W: Array, cap: float) -> float:
    """Return the change of ``<W, X> + mu D(X, X0)`` if eigenvalues above the cap are lowered to it."""
    within = psd_part(X, cap)
    change = float(np.vdot(W, X - within))
    if block.nearness is not None:
        divergence = divergence_of(block.nearness)
        change += block.nearness.mu * (divergence.value(X) - divergence.value(within))
    return abs(change)
