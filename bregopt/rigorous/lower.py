"""A proven lower bound on the optimum of a minimization, from any multipliers.

For multipliers ``y`` in their range, Lagrange's bound is

    dual(y) = sum_k g_k(y_k)  +  sum over blocks min_X <C - A*(y), X> + mu D(X, X0)  +  min_u (c - B'y)'u.

Each term is enclosed, and its lower end counts. Where free variables leave no room for round-off, the bound
is that of exact multipliers near `y` which are proven to exist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bregopt.arrays import Array
from bregopt.memory import shortage
from bregopt.program import Penalty
from bregopt.rigorous.ball import Ball, down, inflated
from bregopt.rigorous.correction import LARGEST_SYSTEM, Part, Rows, nearest_solution
from bregopt.rigorous.data import LARGEST_DENSE, Data, MatrixData
from bregopt.rigorous.definite import least_eigenvalue
from bregopt.rigorous.divergences import dual_term
from bregopt.rigorous.implied import Implied
from bregopt.rigorous.penalties import conjugate
from bregopt.rigorous.side import Side
from bregopt.rigorous.sparse_slack import dense_bytes, null_weight, sparse_term

__all__ = ["clipped", "lower_bound"]

_LARGE, _SPARSE = 500, 0.05  # order and share of entries from which a sparse factorization is tried first


def clipped(data: Data, y: Array) -> Array:
    """Return the nearest multipliers inside their range."""
    reach = np.where(data.kind == int(Penalty.HINGE), data.weight, np.inf)
    least = np.where(np.isfinite(data.hi), -reach, 0.0)
    most = np.where(np.isfinite(data.lo), reach, 0.0)
    found: Array = np.minimum(np.maximum(np.where(np.isfinite(y), y, 0.0), least), most)
    return found


def lower_bound(data: Data, y: Array, implied: Implied, points: Sequence[Array | None] | None = None) -> Side:
    """Return the bound that multipliers prove.

    Parameters
    ----------
    data : Data
    y : array of shape (m,)
        Clipped to their range.
    implied : Implied
        Bounds on traces and variables.
    points : sequence of array or None, optional
        Approximate answers of the blocks, from which terms of divergences take multipliers of ``X psd``.
    """
    exact, reason = _exact_multipliers(data, clipped(data, y))
    if exact is None:
        return Side(-math.inf, reason)
    terms = conjugate(data, exact).tolist()
    terms.append(data.offset)
    for b, (block, slack) in enumerate(zip(data.matrices, data.slacks(exact), strict=True)):
        X = None if points is None else points[b]
        least, reason = _matrix_term(block, slack, implied, b, X)
        if not least > -math.inf:
            return Side(-math.inf, reason)
        terms.append(least)
    if data.k:
        least, reason = _variable_term(data, data.reduced(exact), implied)
        if not least > -math.inf:
            return Side(-math.inf, reason)
        terms.append(least)
    if not all(map(math.isfinite, terms)):
        return Side(-math.inf, "the multipliers are outside the domain of a soft row's penalty")
    return Side(down(math.fsum(terms)))


def _exact_multipliers(data: Data, y: Array) -> tuple[Ball | None, str]:
    """Return a ball around `y` that contains multipliers for which free variables cost nothing.

    The rows whose multipliers may move in both directions are corrected by the least change. It exists if
    the columns of the free variables are proven independent in these rows.
    """
    free = np.flatnonzero(data.free)
    residual = data.reduced(Ball.exact(y))[free]
    if not residual.magnitude.any():
        return Ball.exact(y), ""
    reach = np.where(data.kind == int(Penalty.HINGE), data.weight, np.inf)
    least = np.where(np.isfinite(data.hi), -reach, 0.0)
    most = np.where(np.isfinite(data.lo), reach, 0.0)
    room = np.minimum(y - least, most - y)
    scale = float(np.abs(y).max(initial=0.0))
    movable = np.flatnonzero(room > 1e-6 * scale)
    if len(free) > LARGEST_SYSTEM:
        return None, f"there are {len(free)} free variables: give them a box, or fewer of them"
    columns = Rows.of([Part(data.Bt, data.Bt_rad, np.ones(data.m), movable)], free)

    def moved(v: Array, change: list[Array]) -> Array:
        v = v.copy()
        v[movable] += change[0]
        return v

    found = nearest_solution(columns, y, lambda v: data.reduced(Ball.exact(v))[free], moved)
    if found is None:
        return None, (
            "the columns of the free variables are not proven independent: give free variables a box"
        )
    reach = np.zeros(data.m)
    reach[movable] = found.radius
    y = found.x
    if (np.minimum(y - least, most - y)[movable] < inflated(found.radius)).any():
        return None, "multipliers that free variables determine are too near the ends of their range"
    return Ball(y, reach), ""


def _matrix_term(
    block: MatrixData, coefficients: Ball, implied: Implied, b: int, X: Array | None
) -> tuple[float, str]:
    """Return a lower bound on ``<W, X> + mu D(X, X0)`` over the matrices of the block number `b`."""
    trace = float(implied.traces[b])
    plain = block.anchor is None and block.cap is None
    sparse = len(block.i) < _SPARSE * block.n**2 and block.n > _LARGE
    if sparse and plain and math.isfinite(trace):
        least = sparse_term(block, coefficients, trace, implied.diagonals[b])
        if math.isfinite(least):
            return least, ""
    if block.n > LARGEST_DENSE:
        return -math.inf, (
            f"{block.name} has the order {block.n}, and no factorization of its slack matrix proves a bound: "
            f"{shortage(dense_bytes(block.n)) or 'it is not sparse, or no row bounds the trace'}; the bound "
            "sol.dual_value is proven but for a probability of 1e-12"
        )
    if block.anchor is not None:
        return dual_term(block, block.matrix(coefficients), trace, X)
    if block.cap is not None:
        return capped_term(block.matrix(coefficients), block.cap), ""
    W = block.matrix(coefficients)
    if block.null is not None:
        W = W + np.outer(block.null.z, null_weight(block, coefficients) * block.null.z)
    smallest = least_eigenvalue(W, at_least=0.0)
    if smallest >= 0:
        return 0.0, ""
    if math.isinf(trace):
        return -math.inf, (
            f"C - A*(y) of {block.name} is not proven psd (its least eigenvalue is at least {smallest:.1e}) "
            f"and no row bounds the trace: add bo.trace({block.name}) <= t or pass trace_bound"
        )
    return float((Ball.exact(smallest) * trace).lo), ""


def capped_term(W: Ball, cap: float) -> float:
    """Return a lower bound on ``<W, X>`` over ``0 <= X <= cap I``.

    For psd ``T`` it is at least ``-cap tr T`` plus ``cap n`` times the least eigenvalue of ``W + T`` where
    that is negative. ``T = F F'`` is the negative part of `W`.
    """
    d, Q = np.linalg.eigh(W.mid)
    F = Q * np.sqrt(np.maximum(-d, 0.0))
    T = Ball.exact(F) @ F.T
    trace = (Ball.exact(F) * F).sum()
    S = W + T
    smallest = min(least_eigenvalue((S + S.T) * 0.5), 0.0)
    return float(((Ball.exact(smallest) * float(len(d)) - trace) * cap).lo)


def _variable_term(data: Data, z: Ball, implied: Implied) -> tuple[float, str]:
    """Return a lower bound on ``z'u`` over boxes and cones; ``z`` is zero for free variables."""
    terms: list[float] = []
    boxed = np.flatnonzero(~data.free & ~data.in_cone)
    lo, hi, low, high = z.lo[boxed], z.hi[boxed], implied.u_lo[boxed], implied.u_hi[boxed]
    nothing = (z.mid[boxed] == 0) & (z.rad[boxed] == 0)
    # The least product of an interval with an interval is at corners; 0 times infinity is 0.
    with np.errstate(invalid="ignore"):
        corners = [np.where(a == 0, 0.0, a * b) for a in (lo, hi) for b in (low, high)]
    least = np.where(nothing, 0.0, np.nextafter(np.min(corners, axis=0), -np.inf))
    if not np.isfinite(least).all():
        k = int(boxed[np.flatnonzero(~np.isfinite(least))[0]])
        return -math.inf, (
            f"the reduced cost of variable {k} may have the wrong sign (it is at least {z.lo[k]:.1e}) and no "
            "row bounds the variable: give it a box"
        )
    terms.extend(least.tolist())
    cones = data.cones
    for start, size in zip(cones.starts, cones.dimensions, strict=True):
        index = cones.index[start : start + size]
        own = z[index]
        margin = down(float(own.lo[0]) - own[1:].frobenius()) if size > 1 else float(own.lo[0])
        if margin < 0:
            axis = float(implied.u_hi[index[0]])
            if math.isinf(axis):
                return -math.inf, (
                    f"the reduced costs of the second-order cone of variable {index[0]} are not proven in it "
                    f"(by {margin:.1e}), and no row bounds its axis: bound the norm"
                )
            terms.append(down(margin * axis))
    return down(math.fsum(terms)), ""
