"""A proven upper bound on the optimum of a minimization: the value of a point that is proven to exist.

The equalities, and the inequalities that leave no room, are solved exactly: a solution exists within a proven
radius of a float matrix (:mod:`bregopt.rigorous.correction`). If the least eigenvalue of that matrix exceeds
the radius and the other rows have room, the solution is feasible, and its value is enclosed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.program import Penalty
from bregopt.records import dataclass
from bregopt.rigorous.ball import Ball, gamma, inflated, raised, up
from bregopt.rigorous.correction import LARGEST_SYSTEM, Found, Part, Rows, nearest_solution, squares
from bregopt.rigorous.data import Data, Side
from bregopt.rigorous.definite import exceeds
from bregopt.rigorous.divergences import penalty, value_term

__all__ = ["Point", "distance", "feasible_near", "upper_bound"]

_ROOM = 1e-6  # of a variable: the distance from its box, relative to its size, at which it may change
_ROUNDS = 3  # that add inequalities to the equations


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
    point = Point(tuple(X), u, np.flatnonzero(chosen & ~data.idle), movable)
    data.activities[point] = a
    for _ in range(_ROUNDS):
        if len(point.equations) > LARGEST_SYSTEM:
            return (
                None,
                f"{len(point.equations)} rows are active; at most {LARGEST_SYSTEM} are solved exactly",
            )
        found = _refined(data, point)
        if found is None:
            return None, "the active rows are not proven independent: leave out rows that others imply"
        point, radius = found
        _, lack = _room(data, point, radius)
        more = np.setdiff1d(np.flatnonzero(hard & (lack > 0)), point.equations)
        if not len(more):
            break
        point = Point(point.X, point.u, np.union1d(point.equations, more), point.movable)
    return point, ""


def upper_bound(data: Data, point: Point) -> Side:
    """Return the value of a feasible point near `point`, if one is proven to exist."""
    radius = distance(data, point)
    if not math.isfinite(radius):
        return Side(math.inf, "the active rows are not proven independent: leave out rows that others imply")
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
        return Side(math.inf, f"row {int(np.argmax(lack))} is violated by up to {lack.max():.1e}")
    return _value(data, point, a, radius)


def distance(data: Data, point: Point) -> float:
    """Return a proven distance from the point to a solution of its equations; infinite without one."""
    rows = _rows(data, point)
    return rows.radius(_residual(data, point)) if rows.least > 0 else math.inf


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
    cones = data.cones
    for start, size in zip(cones.starts, cones.dimensions, strict=True):
        index = cones.index[start : start + size]
        length = Ball.exact(u[index[1:]]).frobenius() if size > 1 else 0.0
        u[index[0]] = max(u[index[0]], length)
    return u


def _movable(data: Data, u: Array) -> IntArray:
    """Return the variables with room to change."""
    size = float(np.abs(u).max(initial=0.0))
    room = np.minimum(u - data.u_lo, data.u_hi - u) > _ROOM * np.maximum(np.abs(u), _ROOM * size)
    cones = data.cones
    for start, dimension in zip(cones.starts, cones.dimensions, strict=True):
        index = cones.index[start : start + dimension]
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
    cones = data.cones
    for start, size in zip(cones.starts, cones.dimensions, strict=True):
        index = cones.index[start : start + size]
        spread = 1.5 * float(reach[index].max())  # above the root of two: of axis and vector
        length = Ball.exact(u[index[1:]]).frobenius() if size > 1 else 0.0
        if inflated(length + spread) > u[index[0]] and (spread or length > u[index[0]]):
            return False
    return True
