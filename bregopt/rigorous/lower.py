"""A proven lower bound on the optimum of a minimization, from any multipliers.

For multipliers ``y`` in their range, Lagrange's bound is

    dual(y) = sum_k g_k(y_k)  +  sum over blocks min_X <C - A*(y), X> + mu D(X, X0)  +  min_u (c - B'y)'u.

Each term is enclosed, and its lower end counts. Where free variables leave no room for round-off, the bound
is that of exact multipliers near `y` which are proven to exist.

Large sparse slack matrices ``C - A*(y)`` are not formed where a sparse factor proves their term. A
factorization ``L D L'`` with counted errors (:mod:`bregopt.certify.eigenvalue_bound`) is the proof where the
factor stays sparse. Otherwise sets of vertices without edges between them are eliminated, and Cholesky's
factorization of the dense rest is the proof. With a row ``z'X z = 0``, a multiple of ``z z'``, which costs
nothing, makes the matrix definite along ``z``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask, shortage
from bregopt.certify.eigenvalue_bound import by_inertia, lowest, stays_sparse
from bregopt.certify.slacks import relative_diagonal
from bregopt.program import Penalty, SparsePlusLowRank
from bregopt.records import replace
from bregopt.rigorous.ball import UNIT, Ball, down, gamma, inflated
from bregopt.rigorous.data import LARGEST_DENSE, Data, MatrixData, Side
from bregopt.rigorous.divergences import conjugate, dual_term
from bregopt.rigorous.linear_algebra import (
    LARGEST_SYSTEM,
    Part,
    Rows,
    cholesky_error,
    least_eigenvalue,
    nearest_solution,
)
from bregopt.rigorous.reduction import Implied

_TINY = 1e-6  # of the largest multiplier: the distance from an end of its range at which one stays
_LISTED = 100_000  # coefficients of free variables that are added in rational numbers

_LARGE, _SPARSE = 500, 0.05  # order and share of entries from which a sparse factorization is tried first
_FIRST_STEP = 1e-13  # below the estimate of the lowest eigenvalue, relative to the norm
_TRIALS, _GROWTH = 8, 30.0
_DENSE_TRIALS, _DENSE_GROWTH = 4, 4.0
_LANCZOS_STEPS = 240
_ELIMINATIONS = 4  # of sets of vertices before a dense factorization
_LEAST_SHARE = 0.05  # of the vertices in a set; smaller ones save little
_LESS = 1 - 1e-9  # of a weight of which a smaller one is valid, too: more than its rounding
_NULL_WEIGHT = 1e4  # of z z', relative to the norm of the slack matrix; larger ones cost digits


def clipped(data: Data, y: Array) -> Array:
    """Return the nearest multipliers inside their range."""
    least, most = _range_of_multipliers(data)
    found: Array = np.minimum(np.maximum(np.where(np.isfinite(y), y, 0.0), least), most)
    return found


def psd_shifts(data: Data, y: Ball, implied: Implied, stated: Array) -> tuple[Array, float]:
    """Return changes of multipliers that make slacks ``C - A*(y)`` psd, and what they cost.

    An eigenvalue ``-s`` of a slack costs ``s`` times a bound on the trace. Larger multipliers of the rows
    that bound it cost as much, and then no bound on the trace is needed. The changes are apart, as their sums
    with large multipliers are no doubles. The cost is that beyond the bounds on traces, infinite where no
    rows bound one. Bounds that are `stated` have multipliers of their own.
    """
    shifts, cost = np.zeros(data.m), 0.0
    for b, (block, slack) in enumerate(zip(data.matrices, data.slacks(y), strict=True)):
        plain = block.anchor is None and block.cap is None and block.null is None
        counts = plain and stated[b] == math.inf
        least = least_eigenvalue(block.matrix(slack), at_least=0.0) if counts else 0.0
        if least >= 0:
            continue
        t = _trace_multipliers(data, b)
        used = np.flatnonzero(t)
        supply = float(t[used] @ np.where(t > 0, data.hi, data.lo)[used]) if len(used) else math.inf
        shifts += least * t
        cost += -least * (supply - float(implied.traces[b])) if supply < math.inf else math.inf
    return shifts, cost


def _trace_multipliers(data: Data, b: int) -> Array:
    """Return multipliers whose rows add up to the identity or more in a block; zeros where there are none."""
    block, t = data.matrices[b], np.zeros(data.m)
    row = np.repeat(np.arange(data.m), np.diff(block.A.indptr))
    at = block.i[block.A.indices]
    sign = np.zeros(data.m)
    for side, end in ((-1.0, data.lo), (1.0, data.hi)):
        good = np.isfinite(end) & (data.kind == int(Penalty.HARD)) & (np.diff(data.B.indptr) == 0)
        for other in data.matrices:
            wrong = (other.i != other.j)[other.A.indices] | (side * other.A.data < 0)
            good[np.repeat(np.arange(data.m), np.diff(other.A.indptr))[wrong]] = False
        sign[good] = side
    value = sign[row] * block.A.data - (0.0 if block.A_rad is None else block.A_rad.data)
    supply = np.maximum(np.where(sign > 0, data.hi, -data.lo), 0.0)[row]
    with np.errstate(all="ignore"):
        cost = np.where(value > 0, supply / value, np.inf)
    taken = [(at == i) & np.isfinite(cost) for i in range(block.n)]
    if not all(own.any() for own in taken):
        return t
    alone, single = math.inf, -1  # one row with the whole diagonal, or the cheapest row of each entry
    for k in np.flatnonzero(np.bincount(row[np.isfinite(cost)], minlength=data.m) == block.n).tolist():
        own = row == k
        most = float(cost[own].max())
        alone, single = (most, k) if most < alone else (alone, single)
    chosen = [int(np.flatnonzero(own)[cost[own].argmin()]) for own in taken]
    if alone <= float(cost[chosen].sum()):
        t[single] = 1 / float(value[row == single].min())
    else:
        np.maximum.at(t, row[chosen], 1 / value[chosen])
    return t * sign * (1 + 8 * UNIT)


def _range_of_multipliers(data: Data) -> tuple[Array, Array]:
    reach = np.where(data.kind == int(Penalty.HINGE), data.weight, np.inf)
    return np.where(np.isfinite(data.hi), -reach, 0.0), np.where(np.isfinite(data.lo), reach, 0.0)


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
    exact, reason = exact_multipliers(data, clipped(data, y))
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


def exact_multipliers(data: Data, y: Array) -> tuple[Ball | None, str]:
    """Return a ball around `y` that contains multipliers for which free variables cost nothing.

    The rows whose multipliers may move in both directions are corrected by the least change. It exists if
    the columns of the free variables are proven independent in these rows.
    """
    free = np.flatnonzero(data.free)
    residual = data.reduced(Ball.exact(y))[free]
    if not residual.magnitude.any() or (not residual.mid.any() and _costs_nothing(data, y, free)):
        return Ball.exact(y), ""
    least, most = _range_of_multipliers(data)
    tiny = _TINY * float(np.abs(y).max(initial=0.0))
    movable = np.minimum(y - least, most - y) > tiny
    found, reason = _corrected(data, y, free, movable)
    if found is None:  # those that may be round-off may be what no other pays for
        used = movable & (np.abs(y) > tiny)
        ends = np.where(movable, 0.0, np.where(y - least < most - y, least, most))
        found, _ = _corrected(data, np.where(used, y, ends), free, used)
    return found, reason


def _corrected(data: Data, y: Array, free: IntArray, movable: Mask) -> tuple[Ball | None, str]:
    """Return a ball around `y` with multipliers for which free variables cost nothing, or the reason."""
    if len(free) > LARGEST_SYSTEM:
        return None, f"there are {len(free)} free variables: give them a box, or fewer of them"
    rows = np.flatnonzero(movable)
    paid = np.asarray(abs(data.Bt[free][:, rows]).sum(axis=1)).ravel() > 0
    if not paid.all() and not _costs_nothing(data, y, free[~paid]):
        return None, "the cost of a free variable is that of multipliers near the ends of their range"
    free = free[paid]
    columns = Rows.of([Part(data.Bt, data.Bt_rad, np.ones(data.m), rows)], free)

    def moved(v: Array, change: list[Array]) -> Array:
        v = v.copy()
        v[rows] += change[0]
        return v

    found = nearest_solution(columns, y, lambda v: data.reduced(Ball.exact(v))[free], moved)
    if found is None:
        return None, (
            "the columns of the free variables are not proven independent: give free variables a box"
        )
    least, most = _range_of_multipliers(data)
    reach = np.zeros(data.m)
    reach[rows] = found.radius
    y = found.x
    if (np.minimum(y - least, most - y)[rows] < inflated(found.radius)).any():
        return None, "multipliers that free variables determine are too near the ends of their range"
    return Ball(y, reach), ""


def _costs_nothing(data: Data, y: Array, free: IntArray) -> bool:
    """Whether free variables cost exactly nothing at multipliers, in rational numbers."""
    columns = sp.csr_array(data.Bt[free])
    if data.B_rad is not None or data.c.rad.any() or columns.nnz > _LISTED:
        return False
    totals = [Fraction(c) for c in data.c.mid[free].tolist()]
    for j, (start, end) in enumerate(pairwise(columns.indptr.tolist())):
        for k, b in zip(columns.indices[start:end].tolist(), columns.data[start:end].tolist(), strict=True):
            totals[j] -= Fraction(b) * Fraction(float(y[k]))
    return not any(totals)


def _matrix_term(
    block: MatrixData, coefficients: Ball, implied: Implied, b: int, X: Array | None
) -> tuple[float, str]:
    """Return a lower bound on ``<W, X> + mu D(X, X0)`` over the matrices of the block number `b`."""
    trace = float(implied.traces[b])
    plain = block.anchor is None and block.cap is None
    sparse = len(block.i) < _SPARSE * block.n**2 and block.n > _LARGE
    if sparse and plain and math.isfinite(trace):
        least = _sparse_term(block, coefficients, trace, implied.diagonals[b])
        if math.isfinite(least):
            return least, ""
    if block.n > LARGEST_DENSE:
        return -math.inf, (
            f"{block.name} has the order {block.n}, and no factorization of its slack matrix proves a bound: "
            f"{shortage(_dense_bytes(block.n)) or 'it is not sparse, or no row bounds the trace'}; the bound "
            "sol.dual_value is proven but for a probability of 1e-12"
        )
    if block.anchor is not None:
        return dual_term(block, block.matrix(coefficients), trace, X)
    if block.cap is not None:
        return capped_term(block.matrix(coefficients), block.cap), ""
    W = block.matrix(coefficients)
    if block.null is not None:
        W = W + np.outer(block.null.z, _null_weight(block, coefficients) * block.null.z)
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
    for index in data.cones.groups:
        own = z[index]
        if not own.magnitude.any():  # rounding downward would leave the cone
            continue
        margin = down(float(own.lo[0]) - own[1:].frobenius()) if len(index) > 1 else float(own.lo[0])
        if margin < 0:
            axis = float(implied.u_hi[index[0]])
            if math.isinf(axis):
                return -math.inf, (
                    f"the reduced costs of the second-order cone of variable {index[0]} are not proven in it "
                    f"(by {margin:.1e}), and no row bounds its axis: bound the norm"
                )
            terms.append(down(margin * axis))
    return down(math.fsum(terms)), ""


def _sparse_term(block: MatrixData, coefficients: Ball, trace: float, diagonal: Array) -> float:
    """Return a lower bound on ``<W, X>`` for a large sparse ``W``, ``-inf`` where none is proven.

    If ``W - t D - s I`` is psd for ``s, t <= 0`` and a positive diagonal ``D``, ``<W, X>`` is at least ``t``
    times the bound on ``<D, X>``, plus ``s`` times that on the trace. ``D`` is near the diagonal of ``W``, so
    that few vertices of many edges do not weaken the bound. The proof is ``L D L'`` where the factor stays
    sparse, else Cholesky's factorization of the dense matrix.

    Parameters
    ----------
    block : MatrixData
    coefficients : Ball
        Of ``W``.
    trace : float
        A finite upper bound on the trace.
    diagonal : array of shape (n,)
        Upper bounds on the diagonal of ``X``; infinite where there are none.
    """
    border = np.zeros((block.n, 0)) if block.null is None else block.null.z[:, None]
    weights = np.full(border.shape[1], _null_weight(block, coefficients))
    W = SparsePlusLowRank(block.sparse_matrix(coefficients.mid), border, weights)
    banded = stays_sparse(W)
    sets = [] if banded else list(independent_sets(W.S))
    if not banded and shortage(_dense_bytes(block.n - sum(map(len, sets)))) is not None:
        return -math.inf
    sharp = bool(np.isfinite(diagonal).all())
    D = relative_diagonal(W) if sharp else np.ones(block.n)
    reach = float(Ball.exact(D).dot(diagonal).hi) if sharp else trace
    spread = block.sparse_matrix(coefficients.rad).sum(axis=1)
    scaled = W.scaled(1 / np.sqrt(D))
    (estimate, *_), vectors = lowest(scaled, 1, _LANCZOS_STEPS)
    v = vectors[:, 0]
    near = float(np.linalg.norm(scaled @ v - estimate * v))
    step = _FIRST_STEP * float((abs(W.S).sum(axis=1) / D).max())
    step, growth, trials = (
        (step, _GROWTH, _TRIALS) if banded else (max(near, step), _DENSE_GROWTH, _DENSE_TRIALS)
    )
    for _ in range(trials):
        t = min(float(estimate), 0.0) - step
        shifted = sp.csr_array(W.S - sp.diags_array(t * D))
        moved = replace(W, S=shifted)
        found = by_inertia(moved, 0.0) if banded else by_cholesky(moved, sets)
        if found is not None:
            rounding = 4 * UNIT * (abs(shifted.diagonal()) + abs(t) * D)
            s = min(found, 0.0) - inflated(float((spread + rounding).max()) * (1 + gamma(block.n)))
            return float((Ball.exact(t) * reach + Ball.exact(s) * trace).lo)
        step *= growth
    return -math.inf


def _dense_bytes(n: int) -> float:
    """Return the memory that the factorization of a dense matrix takes: one of them, and its columns."""
    return 9.0 * n * n


def _null_weight(block: MatrixData, coefficients: Ball) -> float:
    """Return a weight of ``z z'`` that makes a slack matrix positive along ``z``; zero without a ``z``.

    Every weight is valid: it multiplies ``z'X z = 0``.
    """
    if block.null is None:
        return 0.0
    size = float(block.sparse_matrix(np.abs(coefficients.mid)).sum(axis=1).max(initial=0.0))
    return _NULL_WEIGHT * size / float(np.count_nonzero(block.null.z))


class _Core(NamedTuple):
    """The matrix ``S + weight z z'`` that is left of a larger one, and the order of elimination."""

    S: sp.csr_array
    z: Array
    weight: float


def by_cholesky(W: SparsePlusLowRank, sets: Sequence[IntArray]) -> float | None:
    """Return a proven bound below zero on the eigenvalues, None where none is found.

    Sets of vertices without edges between them are eliminated first, which leaves a smaller dense matrix.
    """
    core, lost = _Core(W.S, W.U[:, 0] if len(W.w) else np.zeros(W.n), float(W.w.sum())), 0.0
    for chosen in sets:
        found = _eliminated(core, chosen)
        if found is None:  # S alone may be indefinite; the sum of both is not, if it has a factor
            break
        core, lost = found[0], lost + found[1]
    if shortage(_dense_bytes(core.S.shape[0])) is not None:
        return None
    M = core.S.toarray()
    if core.weight:
        for row, z in zip(M, core.z, strict=True):
            row += (core.weight * z) * core.z
        size = np.abs(core.z)
        lost += 4 * UNIT * float((abs(core.S).sum(axis=1) + core.weight * size * size.sum()).max())
    error = cholesky_error(M, overwrite=True)
    return None if error is None else -inflated(error + lost * (1 + gamma(W.n)))


def _eliminated(core: _Core, chosen: IntArray) -> tuple[_Core, float] | None:
    """Return the Schur complement of a diagonal part, and a bound on its error in the spectral norm.

    ``[a b'; b S]`` is at least ``-e I`` if ``a > 0`` and ``S - b inv(a) b'`` is. With ``z z'`` of a weight,
    the complement has the weight over ``1 + weight z_1' inv(a) z_1``, of which a smaller one is valid.
    """
    S, z, weight = core
    rest = np.setdiff1d(np.arange(S.shape[0]), chosen)
    a, b = S.diagonal()[chosen], sp.csr_array(S[rest][:, chosen])
    if not (a > 0).all():
        return None
    quotient = b.copy()  # arrays of indices are not shared, as SciPy may sort them in place
    quotient.data /= a[quotient.indices]
    left = sp.csr_array(S[rest][:, rest])
    size, terms = abs(quotient) @ abs(b).sum(axis=0), int(np.diff(b.indptr).max(initial=0))
    error = float((gamma(terms + 4) * size + 2 * UNIT * (abs(left).sum(axis=1) + size)).max())
    reduced = sp.csr_array(left - quotient @ b.T)
    if not weight:
        return _Core(reduced, z[rest], 0.0), error
    weight = _LESS * weight / (1 + weight * float((z[chosen] ** 2 / a).sum()))
    across = abs(quotient) @ np.abs(z[chosen])
    off = Ball.exact(gamma(terms + 4) * across + 2 * UNIT * (np.abs(z[rest]) + across)).frobenius()
    z = z[rest] - quotient @ z[chosen]
    return _Core(reduced, z, weight), error + inflated(weight * off * (2 * Ball.exact(z).frobenius() + off))


def independent_sets(S: sp.csr_array) -> Iterator[IntArray]:
    """Yield sets of vertices without edges between them, each in the graph that is left of the last."""
    graph = S.copy()
    graph.data[:] = 1.0
    for _ in range(_ELIMINATIONS):
        degrees = np.diff(graph.indptr)
        free, chosen = degrees <= math.sqrt(S.shape[0]), []
        for v in np.argsort(degrees, kind="stable"):
            if free[v]:
                chosen.append(v)
                free[graph.indices[graph.indptr[v] : graph.indptr[v + 1]]] = False
        if not _LEAST_SHARE * graph.shape[0] <= len(chosen) < graph.shape[0]:
            return
        yield np.sort(chosen)
        rest = np.setdiff1d(np.arange(graph.shape[0]), chosen)
        across = sp.csr_array(graph[rest][:, chosen])
        graph = sp.csr_array(graph[rest][:, rest] + across @ across.T)
