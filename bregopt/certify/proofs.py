"""Farkas vectors, which prove programs infeasible, and rays, which prove them unbounded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.certify.slacks import trace_bounds
from bregopt.divergences import BUILT_IN, Divergence, Penalty
from bregopt.linalg import eigenvalues_of
from bregopt.program.program import Program, divergence_of
from bregopt.program.scale import scale_of

# Largest relative violation of the conditions on a Farkas vector or a ray that may be round-off. Beyond it a
# problem may have a solution of size one over the violation (tests/library/near_boundary.py).
PROOF_NOISE = 64 * EPS
# Largest such violation of a vector that an exact proof may still mend (bregopt.rigorous).
MENDED = 1e-9
# Least demand of a Farkas vector beyond all supply, relative to its terms.
_LEAST_DEMAND = 1e-9
# Least relative growth of the argument of a logarithm along a ray.
_LOG_GROWTH = 1e-6
# Largest power of ten among the step lengths at which a recession function is checked.
_LARGEST_STEP = 8


def is_farkas(program: Program, y: Array, noise: float = PROOF_NOISE, conclusive: bool = True) -> bool:
    """Whether `y` proves, up to round-off, that no ``X``, ``u`` satisfy the rows and domains of logarithms.

    It does if ``sum_k y_k (A_k(X) + B_k u)`` has an upper bound over psd ``X`` and ``u`` in its box, and the
    rows' bounds demand more. Without a bound on the trace, ``A*(y)`` must be negative semidefinite.
    A block with a cap supplies at most the cap times the sum of the positive eigenvalues.

    No status rests on it alone: :func:`bregopt.rigorous.proves_infeasible` decides on these.

    Parameters
    ----------
    program : Program
    y : array of shape (m,)
        Clipped to its range; multipliers of other rows are ignored.
    noise : float
        Largest eigenvalue of ``A*(y)``, and largest ``B'y`` of free variables, that count as round-off,
        relative to their terms.
    conclusive : bool
        Whether no exact proof follows: then round-off of `y` must not hide an ``X`` of the usual size.
    """
    bounds = program.bounds
    y = bounds.clip_required(y)
    size = float(np.abs(y) @ program.A.norms())
    asked = np.where(y > 0, bounds.lo, bounds.hi)
    used = y != 0
    demand = float(y[used] @ asked[used])
    magnitude = float(np.abs(y[used]) @ np.abs(asked[used]))
    reduced = program.Bt @ y
    end = np.where(reduced > 0, program.u_hi, program.u_lo)
    open_end = ~np.isfinite(end)
    column, missing = program.absolute_B.T @ np.abs(y), np.where(open_end, np.abs(reduced), 0.0)
    cones = program.cones
    if cones.count:
        missing[cones.index] = 0.0
        missing[cones.axes] = cones.outside(np.where(open_end, -reduced, 0.0)[cones.index])
        column[cones.axes] = np.maximum.reduceat(column[cones.index], cones.starts)
    if (missing > noise * column).any():
        return False
    from_box = reduced[~open_end] * end[~open_end]
    demand -= float(from_box.sum())
    magnitude += float(np.abs(from_box).sum())
    bounds_on_traces = trace_bounds(program)
    least = _LEAST_DEMAND * magnitude
    usual = scale_of(program).primal if conclusive else 0.0
    if demand <= least and not any(bounds_on_traces) and not program.capped:
        return False  # matrices without bounds supply nothing

    def refutes(spectra: Sequence[Array]) -> bool:
        """Whether a contradiction follows if these are the eigenvalues of ``A*(y)``."""
        supply = 0.0
        for b, (bound, eigenvalues) in enumerate(zip(bounds_on_traces, spectra, strict=True)):
            value, cap = float(eigenvalues.max()), program.blocks[b].cap
            if cap is not None:
                supply += cap * float(np.maximum(eigenvalues, 0.0).sum())
            elif bound is not None:
                supply -= bound.least(-value)
            elif value > noise * size or max(value, EPS * size) * usual > demand:
                return False
        return demand - supply > least

    adjoints: list[Array] = [program.A.adjoint(y, b) for b in range(len(program.blocks))]
    # The diagonal is majorized by the eigenvalues: it supplies no more, and refutes most candidates cheaply.
    return refutes([S.diagonal() for S in adjoints]) and refutes(list(map(_eigenvalues, adjoints)))


def with_trace_multipliers(program: Program, y: Array) -> Array:
    """Return a Farkas vector that includes the multipliers of the rows that bound traces.

    :func:`is_farkas` knows these bounds, so that its vectors may lack the multipliers. Here ``A*(y)`` is
    negative semidefinite on the blocks that have such bounds.
    """
    y = program.bounds.clip_required(y)
    bounds_on_traces = [
        (b, bound)
        for b, bound in enumerate(trace_bounds(program))
        if bound is not None and program.blocks[b].cap is None
    ]
    largest = [float(_eigenvalues(program.A.adjoint(y, b)).max()) for b, _ in bounds_on_traces]
    for value, (_, bound) in zip(largest, bounds_on_traces, strict=True):
        y = y - (value if bound.exact else max(value, 0.0)) * bound.multipliers
    return y


def _eigenvalues(S: Array) -> Array:
    return eigenvalues_of(S).astype(np.float64, copy=False)


def is_ray(program: Program, X: Sequence[Array], u: Array, noise: float = PROOF_NOISE) -> bool:
    """Whether, up to round-off, the objective is unbounded below along the directions `X`, psd, and `u`.

    A divergence with a recession ``R``, such as LogDet, grows at the rate ``mu <R, X>`` along a direction.
    The others grow faster than any linear term: in their blocks a ray is zero, as in blocks with a cap. Where
    the argument of a logarithm grows, the objective need not fall at a linear rate: it is enough that it does
    not rise. Then rows, cones and rate must hold up to round-off.

    No status rests on it alone: :func:`bregopt.rigorous.proves_unbounded` decides on these.

    Parameters
    ----------
    program : Program
    X : sequence of arrays of shape (n_b, n_b)
    u : array of shape (k,)
    noise : float
        Largest violation of a homogeneous row, of the box and of the cones, relative to the direction.
    """
    activity = program.activity(X, u)
    size = program.absolute_B @ np.abs(u)
    for term in program.A.terms:
        size[term.at] += term.norms * float(np.linalg.norm(X[term.block]))
    pairs = [(float(np.linalg.eigvalsh(X_b)[0]), float(np.linalg.norm(X_b))) for X_b in X]
    relative = [least / norm for least, norm in pairs if norm > 0]
    violation = max(_violation(program, activity, size, u), -min(relative, default=0.0))
    if violation > noise or _blocked(program, X):
        return False
    rates, sizes = _rates(program, X, u)
    against = _against(program, activity)
    free = program.bounds.kind == Penalty.HINGE
    paid = float(program.bounds.gamma[free] @ against[free])
    fall = sum(rates) + paid
    exact = violation <= PROOF_NOISE and fall <= PROOF_NOISE * (sum(sizes) + paid)
    if exact and _argument_grows(program, X, activity, size):
        return True
    # The decrease must be far larger than the cost of the violations that are mended. On the boundary of a
    # cone an entry may grow by the root of a violation.
    flat = math.sqrt(MENDED)
    curved = bool(u[program.cones.index].any()) or any(least < flat for least in relative)
    if curved and program.k:  # a violation that is small beside X may be large beside u
        column, largest = program.column_sizes, max((float(np.linalg.norm(X_b)) for X_b in X), default=0.0)
        unit = np.divide(largest, column, out=np.zeros(program.k), where=column > 0)
        sizes.append(float(np.abs(program.c) @ unit))
    least = max(1e3 * MENDED, 10 * flat) if curved else 1e3 * MENDED
    return fall < -least * (sum(sizes) + paid)


def _against(program: Program, activity: Array) -> Array:
    """Return the rate at which each row moves beyond a bound."""
    bounds = program.bounds
    up, down = np.maximum(activity, 0.0), np.maximum(-activity, 0.0)
    return np.where(np.isfinite(bounds.hi), up, 0.0) + np.where(np.isfinite(bounds.lo), down, 0.0)


def _violation(program: Program, activity: Array, size: Array, u: Array) -> float:
    """Return the largest violation of a homogeneous row, the box or a cone, relative to the direction."""
    blocked = program.bounds.kind != Penalty.HINGE
    rows = np.where(blocked, _against(program, activity), 0.0)
    relative = np.divide(rows, size, out=np.where(rows > 0, np.inf, 0.0), where=size > 0)
    out = np.where(np.isfinite(program.u_hi), np.maximum(u, 0), 0.0)
    out += np.where(np.isfinite(program.u_lo), np.maximum(-u, 0), 0.0)
    direction = u[program.cones.index]
    largest = float(np.abs(u).max(initial=0.0)) or 1.0
    outside = program.cones.outside(direction) / (float(np.abs(direction).max(initial=0.0)) or 1.0)
    return max(float(part.max(initial=0.0)) for part in (relative, out / largest, outside))


def _blocked(program: Program, X: Sequence[Array]) -> bool:
    """Whether a matrix may not grow: it has a cap, or a divergence that outgrows every linear term."""
    blocks = [block for block, X_b in zip(program.blocks, X, strict=True) if X_b.any()]
    near = [block.nearness for block in blocks if block.nearness is not None]
    capped = any(block.cap is not None for block in blocks)
    return capped or any(divergence_of(nearness).recession() is None for nearness in near)


def _rates(program: Program, X: Sequence[Array], u: Array) -> tuple[list[float], list[float]]:
    """Return the growth of the terms of the objective along a direction, and the sizes of these terms."""
    rates, sizes = [float(program.c @ u)], [float(np.linalg.norm(program.c) * np.linalg.norm(u))]
    for block, X_b in zip(program.blocks, X, strict=True):
        rates.append(block.cost_value(X_b))
        sizes.append(float(np.linalg.norm(block.C) * np.linalg.norm(X_b)))
        if block.nearness is not None and X_b.any():
            divergence = divergence_of(block.nearness)
            R = divergence.recession()
            assert R is not None
            growth = max(float(np.vdot(R, X_b)), _growth_seen(divergence, X_b, np.eye(block.n)))
            rates.append(block.nearness.mu * growth)
    return rates, sizes


def _growth_seen(divergence: Divergence, X: Array, start: Array) -> float:
    """Return the steepest chord of ``D`` found along the direction `X`; ``-inf`` for built-in divergences.

    As ``D`` is convex, its recession function is at least the slope of any chord. Chords begin at `start`.
    """
    if type(divergence) in BUILT_IN:
        return -np.inf
    first = divergence.value(start)
    steps = 10.0 ** np.arange(_LARGEST_STEP + 1)
    slopes = [(divergence.value(start + t * X) - first) / t for t in steps]
    return max((slope for slope in slopes if not np.isnan(slope)), default=np.inf)


def _argument_grows(program: Program, X: Sequence[Array], activity: Array, size: Array) -> bool:
    """Whether the argument of a log-determinant or of a logarithm grows without end along a direction."""
    for block, X_b in zip(program.blocks, X, strict=True):
        if block.nearness is not None and block.nearness.kind.barrier and X_b.any():
            return True
    log = program.bounds.kind == Penalty.LOG
    return bool((activity[log] > _LOG_GROWTH * size[log]).any())
