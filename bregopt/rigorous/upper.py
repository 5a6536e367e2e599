"""A proven upper bound on the optimum of a minimization: the value of a point that is proven to exist.

The equalities, and the inequalities that leave no room, are solved exactly: a solution exists within a proven
radius of a float matrix (:mod:`bregopt.rigorous.linear_algebra`). If the least eigenvalue of that matrix
exceeds the radius and the other rows have room, the solution is feasible, and its value is enclosed.

For cuts of large graphs, rows fix the diagonal of one large matrix, which is never formed. A factor ``F``
whose rows are scaled to the lengths that the diagonal asks for is exactly feasible: ``X = D F F' D`` with
real numbers ``D``, and only the objective is enclosed. With a row ``z'X z = 0`` it is
``X = t P F F' P + P diag(w) P``, where ``P = I - z z' / z'z``, and ``w`` follows from the diagonal: the
equations ``t d_i + w_i (1 - 2 / s) + sum(w) / s^2 = a_i``, ``s = z'z``, have a closed solution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.program import Penalty
from bregopt.records import dataclass
from bregopt.rigorous.ball import Ball, gamma, inflated, raised, up
from bregopt.rigorous.data import Data, Side
from bregopt.rigorous.divergences import penalty, value_term
from bregopt.rigorous.faces import implied_rows, relations
from bregopt.rigorous.linear_algebra import (
    LARGEST_SYSTEM,
    Found,
    Part,
    Rows,
    exceeds,
    nearest_solution,
    squares,
)

_ROOM = 1e-6  # of a variable: the distance from its box, relative to its size, at which it may change
_ROUNDS = 3  # that add inequalities to the equations
_LEAST_SUPPORT = 3  # of z, for which its equations have a solution
_SPARE = 4.0  # of the share of the diagonal that the correction may fill, in distances from the rows
_NEWTON_STEPS = 8


@dataclass(frozen=True, eq=False)
class Point:
    """A float point near a feasible one.

    Parameters
    ----------
    X : tuple of array of shape (n, n)
    u : array of shape (k,)
    equations : int array
        The rows that are solved exactly.
    movable : int array
        The variables that change in it; the others stay.
    """

    X: tuple[Array, ...]
    u: Array
    equations: IntArray
    movable: IntArray


def feasible_near(data: Data, X: Sequence[Array], u: Array) -> tuple[Point | None, str]:
    """Return a refined point with the rows to solve, or None and the reason."""
    u = _inside(data, u)
    movable = _movable(data, u)
    hard = data.kind == int(Penalty.HARD)
    equal = hard & (data.lo == data.hi)
    a = data.activity(X, u)
    chosen = equal | (hard & ((data.lo + data.lo_rad > a.lo) | (data.hi - data.hi_rad < a.hi)))
    chosen &= ~data.idle
    point = Point(tuple(X), u, np.flatnonzero(chosen), movable)
    data.activities[point] = a
    if 0 < len(point.equations) <= LARGEST_SYSTEM and not _rows(data, point).least > 0:
        point = Point(tuple(X), u, np.flatnonzero(chosen & ~implied_rows(data)), movable)
    for _ in range(_ROUNDS):
        if len(point.equations) > LARGEST_SYSTEM:
            return (
                None,
                f"{len(point.equations)} rows are active; at most {LARGEST_SYSTEM} are solved exactly",
            )
        found = _refined(data, point)
        if found is None:
            return None, _dependence(data)
        point, radius = found
        _, lack = _room(data, point, radius)
        more = np.setdiff1d(np.flatnonzero(hard & (lack > 0)), point.equations)
        more = more[~implied_rows(data)[more]] if len(more) else more
        if not len(more):
            break
        point = Point(point.X, point.u, np.union1d(point.equations, more), point.movable)
    return point, ""


def _dependence(data: Data) -> str:
    """Return why active rows are not proven independent."""
    for k in relations(data).unproven.tolist():
        return f"row {k} depends on others up to round-off, but not exactly: leave it out, or write it alike"
    return "the active rows are not proven independent: leave out rows that others imply"


def upper_bound(data: Data, point: Point) -> Side:
    """Return the value of a feasible point near `point`, if one is proven to exist."""
    radius = distance(data, point)
    if not math.isfinite(radius):
        return Side(math.inf, _dependence(data))
    if not _in_cones(data, point.u, point.movable, radius):
        return Side(math.inf, "a variable is too near the end of its box or cone: widen it")
    for block, X in zip(data.matrices, point.X, strict=True):
        if (X != X.T).any():
            return Side(math.inf, f"{block.name} is not symmetric")
        if not exceeds(Ball.exact(X), radius):
            return Side(
                math.inf,
                f"the eigenvalues of {block.name} are not proven above {radius:.1e}, the distance to a "
                "solution of the rows: no feasible matrix may be definite",
            )
        if block.cap is not None and not exceeds(Ball.exact(block.cap * np.eye(block.n)) - X, radius):
            return Side(math.inf, f"{block.name} is too near its largest eigenvalue {block.cap:g}")
    a, lack = _room(data, point, radius)
    lack[point.equations] = 0.0
    if (lack > 0).any():
        lack[implied_rows(data)] = 0.0
    if (lack > 0).any():
        return Side(math.inf, f"row {int(np.argmax(lack))} is violated by up to {lack.max():.1e}")
    return _value(data, point, a, radius)


def distance(data: Data, point: Point) -> float:
    """Return a proven distance from the point to a solution of its equations; infinite without one."""
    rows = _rows(data, point)
    return rows.radius(_residual(data, point)) if rows.least > 0 else math.inf


def activities(data: Data, point: Point) -> Ball:
    """Return the activities at all solutions of a point's equations within its proven distance."""
    return _room(data, point, distance(data, point))[0]


def _value(data: Data, point: Point, a: Ball, radius: float) -> Side:
    """Return an upper bound on the objective within the radius of a point, on the rows' activities."""
    paid = penalty(data, a)
    if not np.isfinite(paid).all():
        row = int(np.argmin(np.isfinite(paid)))
        return Side(math.inf, f"row {row} is not proven inside the domain of its logarithm or penalty")
    terms, norms = [data.offset, *paid.tolist()], []
    for block, X in zip(data.matrices, point.X, strict=True):
        terms.append(float(block.C.dot(block.entries(X)).hi))
        norms.append((block.C * np.sqrt(block.share)).frobenius())
        if block.anchor is not None:
            value, reason = value_term(block, X, radius)
            if not value < math.inf:
                return Side(math.inf, reason)
            terms.append(value)
    if data.k:
        terms.append(float(data.c.dot(point.u).hi))
        norms.append(data.c[point.movable].frobenius())
    terms.append(float(Ball.exact(norms).frobenius()) * radius * (1 + 1e-12))
    if not all(map(math.isfinite, terms)):
        return Side(math.inf, "the objective is not finite at the point")
    return Side(up(math.fsum(terms)))


def _parts(data: Data, point: Point) -> list[Part]:
    entries = Part(data.A, data.A_rad, data.share, np.arange(len(data.share)))
    return [entries, Part(data.B, data.B_rad, np.ones(data.k), point.movable)] if data.k else [entries]


def _rows(data: Data, point: Point) -> Rows:
    """Return the equations of a point; the last ones of the data are kept, as mixtures share them."""
    key = (point.equations.tobytes(), point.movable.tobytes())
    if key not in data.systems:
        data.systems.clear()
        data.systems[key] = Rows.of(_parts(data, point), point.equations), _norms(data, point)
    rows: Rows = data.systems[key][0]
    return rows


def _activity(data: Data, point: Point) -> Ball:
    """Return the activities at a point; search and proof ask for them in turn."""
    if point not in data.activities:
        data.activities[point] = data.activity(point.X, point.u)
    found: Ball = data.activities[point]
    return found


def _residual(data: Data, point: Point) -> Ball:
    """Return what the equations lack to the nearest bound, inside by its radius."""
    k = point.equations
    a = _activity(data, point)[k]
    equal = data.lo[k] == data.hi[k]
    lower = equal | (np.abs(a.mid - data.lo[k]) <= np.abs(a.mid - data.hi[k]))
    end = np.where(lower, data.lo[k], data.hi[k])
    rad = np.where(lower, data.lo_rad[k], data.hi_rad[k])
    return Ball(end, rad) - a


def _refined(data: Data, point: Point) -> Found[Point] | None:
    """Return the point after the least change that solves its equations, and the proven distance left."""

    def moved(old: Point, change: list[Array]) -> Point:
        X = []
        for block, own, step in zip(data.matrices, old.X, data.by_block(change[0]), strict=True):
            new = own.copy()
            new[block.i, block.j] += step
            new[block.j, block.i] = new[block.i, block.j]
            X.append(new)
        u = old.u.copy()
        if data.k:
            u[point.movable] += change[-1]
        return Point(tuple(X), u, point.equations, point.movable)

    return nearest_solution(_rows(data, point), point, lambda at: _residual(data, at), moved)


def _room(data: Data, point: Point, radius: float) -> tuple[Ball, Array]:
    """Return the activities within the radius of a point, and how far hard rows may be violated there."""
    _rows(data, point)
    (_, norms), a = data.systems[point.equations.tobytes(), point.movable.tobytes()], _activity(data, point)
    a = Ball(a.mid, inflated(a.rad + inflated(norms * radius)))
    lack = np.maximum(raised(data.lo, data.lo_rad) - a.lo, a.hi + raised(-data.hi, data.hi_rad))
    hard = (data.kind == int(Penalty.HARD)) & ~data.idle
    ends = np.where(hard, np.nextafter(lack, np.inf), -np.inf)
    return a, ends


def _norms(data: Data, point: Point) -> Array:
    """Return upper bounds on the norms of the rows."""
    total, terms = np.zeros(data.m), 8
    for part in _parts(data, point):
        A, share = part.A[:, part.columns], part.share[part.columns]
        own, most = squares(A, share), int(np.diff(A.indptr).max(initial=0))
        if part.rad is not None:  # (a + r)^2 <= 2 a^2 + 2 r^2
            own = 2 * own + 2 * squares(part.rad[:, part.columns], share)
        total, terms = total + own, terms + most + 4
    norms: Array = inflated(np.sqrt(total) * (1 + gamma(terms)))
    return norms


def _inside(data: Data, u: Array) -> Array:
    """Return the nearest variables in their box and cones."""
    u = np.minimum(np.maximum(u, data.u_lo), data.u_hi)
    for axis, *others in data.cones.groups:
        u[axis] = max(u[axis], Ball.exact(u[others]).frobenius())
    return u


def _movable(data: Data, u: Array) -> IntArray:
    """Return the variables with room to change."""
    size = float(np.abs(u).max(initial=0.0))
    room = np.minimum(u - data.u_lo, data.u_hi - u) > _ROOM * np.maximum(np.abs(u), _ROOM * size)
    for index in data.cones.groups:
        length = float(np.linalg.norm(u[index[1:]]))
        room[index] = u[index[0]] - length > _ROOM * max(u[index[0]], _ROOM * size)
    return np.flatnonzero(room)


def _in_cones(data: Data, u: Array, movable: IntArray, radius: float) -> bool:
    """Whether all variables within the radius are in their box and cones; those that stay need no room."""
    reach = np.zeros(data.k)
    reach[movable] = radius
    if (np.nextafter(u - reach, np.where(reach > 0, -np.inf, u)) < data.u_lo).any():
        return False
    if (np.nextafter(u + reach, np.where(reach > 0, np.inf, u)) > data.u_hi).any():
        return False
    for index in data.cones.groups:
        spread = 1.5 * float(reach[index].max())  # above the root of two: of axis and vector
        length = Ball.exact(u[index[1:]]).frobenius()
        if inflated(length + spread) > u[index[0]] and (spread or length > u[index[0]]):
            return False
    return True


def fixes_diagonal(data: Data) -> bool:
    """Whether the rows fix single diagonal entries of one matrix, each at most once, to positive numbers.

    One more row may be ``z'X z = 0``, if the diagonal is fixed where `z` is not zero.
    """
    if len(data.matrices) != 1 or data.k or (data.kind != int(Penalty.HARD)).any():
        return False
    block = data.matrices[0]
    if block.anchor is not None or block.cap is not None or block.A_rad is not None:
        return False
    A, null = block.A, block.null
    one = np.ones(data.m, dtype=bool)
    if null is not None:
        one[null.row] = False
    single = A.nnz == one.sum() and bool((np.diff(A.indptr)[one] == 1).all())
    if not single or (block.i[A.indices] != block.j[A.indices]).any():
        return False
    fixed = np.unique(block.i[A.indices])
    if null is not None and (np.count_nonzero(null.z) < _LEAST_SUPPORT or np.delete(null.z, fixed).any()):
        return False
    positive = (data.lo == data.hi) & (data.lo - data.lo_rad > 0)
    return len(fixed) == A.nnz and bool(positive[one].all() and (A.data > 0).all())


def factor_bound(data: Data, F: Array) -> Side:
    """Return the objective of the feasible matrix near ``F F'``, rounded upward.

    The data are those of :func:`fixes_diagonal`.
    """
    block = data.matrices[0]
    if block.null is not None:
        return _balanced_bound(data, F)
    r = F.shape[1]
    size = np.einsum("ij,ij->i", F, F)
    square = Ball(size, gamma(r + 2) * size)
    if (square.lo <= 0).any():
        return Side(math.inf, f"a row of the factor of {block.name} is zero: solve again with another seed")
    length, free = _asked(data)
    length.mid[free] = size[free]  # unscaled
    D = _root(length / square)
    D.mid[free], D.rad[free] = 1.0, 0.0
    i, j = block.i, block.j
    entry = _inner(F, i, j) * (D[i] * D[j])
    fixed = np.flatnonzero((i == j) & ~free[i])
    entry.mid[fixed], entry.rad[fixed] = length.mid[i[fixed]], length.rad[i[fixed]]  # as the rows say
    value = float(block.C.dot(entry).hi) + data.offset
    return Side(up(up(value)) if math.isfinite(value) else math.inf)


def _asked(data: Data) -> tuple[Ball, Mask]:
    """Return the diagonal that the rows ask for, one where they do not, and the mask of those entries."""
    block = data.matrices[0]
    row = np.repeat(np.arange(data.m), np.diff(block.A.indptr))
    asked = Ball(data.lo[row], data.lo_rad[row]) / block.A.data
    where = block.i[block.A.indices]
    length, free = Ball.exact(np.ones(block.n)), np.ones(block.n, dtype=bool)
    length.mid[where], length.rad[where], free[where] = asked.mid, asked.rad, False
    return length, free


class Corrected(NamedTuple):
    """A feasible matrix ``t G G' + P diag(w) P`` with ``G = P F``; see the module.

    Parameters
    ----------
    F : array of shape (n, r)
    t : float
    w : Ball of shape (n,)
        Proven nonnegative; zero where no row fixes the diagonal.
    q : float
        An upper bound on ``||F'z / s||``, the distance of each row of ``G`` from that of ``F``.
    """

    F: Array
    t: float
    w: Ball
    q: float


def corrected(data: Data, F: Array) -> Corrected | None:
    """Return a feasible matrix near ``F F'``, None where none is proven."""
    block = data.matrices[0]
    assert block.null is not None
    z, (asked, free) = block.null.z, _asked(data)
    s, on = float(np.count_nonzero(z)), z != 0
    F = _balanced(F, z, asked.mid, free)
    q = (Ball.exact(z[None]) @ F / s).frobenius()
    square = np.einsum("ij,ij->i", F, F)
    moved = inflated((2 * _lengths(F) + q) * q) * on  # of the inner product with itself
    d = Ball(square, inflated(gamma(F.shape[1] + 2) * square + moved + F.shape[1] * TINY))
    t = 1.0 - _SPARE * float(((asked - d).magnitude / asked.mid)[~free].max(initial=0.0))
    c = asked - d * t
    total = c[on].sum()
    own = (c[on] - total / (s * (s - 1))) / (Ball.exact(s - 2.0) / s)
    w = Ball(np.where(free, 0.0, c.mid), np.where(free, 0.0, c.rad))
    w.mid[on], w.rad[on] = own.mid, own.rad
    return Corrected(F, t, w, q) if t > 0 and (w.lo[~free] >= 0).all() else None


def _balanced_bound(data: Data, F: Array) -> Side:
    """Return the objective of the corrected matrix, rounded upward."""
    block, found = data.matrices[0], corrected(data, F)
    if found is None:
        return Side(math.inf, f"the factor of {block.name} is not near the rows: solve to a smaller tol")
    F, t, w, q = found
    length, i, j = _lengths(F), block.i, block.j
    inner = _inner(F, i, j)
    entry = Ball(inner.mid, inflated(inner.rad + (length[i] + length[j] + q) * q))
    # <C, P diag(w) P> is a sum of w_i v'C v with vectors of length at most one.
    size = block.sparse_matrix(block.C.magnitude).sum(axis=1).max(initial=0.0) * (1 + gamma(block.n))
    added = inflated(float(size) * float(w.sum().hi))
    value = float((block.C.dot(entry) * t + added + data.offset).hi)
    return Side(up(value) if math.isfinite(value) else math.inf)


def _lengths(F: Array) -> Array:
    """Return upper bounds on the lengths of the rows."""
    r = F.shape[1]
    found: Array = inflated(np.sqrt(np.einsum("ij,ij->i", F, F) + r * TINY) * (1 + gamma(r + 2)))
    return found


def _inner(F: Array, i: IntArray, j: IntArray) -> Ball:
    """Return inner products of rows."""
    r = F.shape[1]
    magnitude = np.einsum("kr,kr->k", np.abs(F[i]), np.abs(F[j]))
    return Ball(np.einsum("kr,kr->k", F[i], F[j]), inflated(gamma(r + 2) * magnitude + r * TINY))


def _balanced(F: Array, z: Array, asked: Array, free: Mask) -> Array:
    """Return a factor near `F` with rows of about the lengths asked for, and about ``F'z = 0``.

    Newton's method: ``f_i - z_i p``, scaled to its length, changes ``F'z`` by ``-(s I - sum f_i f_i' / a_i)
    p``.
    """
    root = np.where(free, 0.0, np.sqrt(asked))
    on, s = z != 0, float(np.count_nonzero(z))
    for _ in range(_NEWTON_STEPS):
        norms = np.linalg.norm(F, axis=1)
        F = F * np.where(free | (norms == 0), 1.0, root / np.where(norms == 0, 1.0, norms))[:, None]
        unit = F[on] / root[on, None]
        p = np.linalg.lstsq(s * np.eye(F.shape[1]) - unit.T @ unit, F.T @ z, rcond=None)[0]
        F = F - np.outer(z, p)
    return F


def _root(x: Ball) -> Ball:
    """Return the square root of positive numbers; NumPy's is correctly rounded."""
    lo, hi = np.nextafter(np.sqrt(np.maximum(x.lo, 0.0)), -np.inf), np.nextafter(np.sqrt(x.hi), np.inf)
    return Ball.between(lo, hi)
