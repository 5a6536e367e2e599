"""An answer, refined by Newton's method until its derivative has all digits.

The certificate of an answer bounds its objective; the answer itself has about half of these digits. Newton's
method for the optimality conditions, with the rows that act as equalities, doubles the digits with each step.
It has the system of the derivative.

A hard row with a multiplier acts as an equality; without one it has no effect. A soft row acts by its relaxed
bound, and a hinge that is paid has a fixed multiplier. Near an answer at which every row is in exactly one of
these states (strict complementarity) the states do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.divergences import SCALARS
from bregopt.program import Bounds, LinearMap, Penalty, Program
from bregopt.program.bounds import relaxed_bounds
from bregopt.program.program import divergence_of
from bregopt.program.scale import scale_of
from bregopt.records import cached_property, dataclass
from bregopt.routes.derivatives.blocks import (
    CG_TOL,
    BlockPoint,
    BlockRows,
    Pair,
    complementary_point,
    dual_point,
)
from bregopt.routes.derivatives.system import Adjoint, Change, KKTSystem, Unknowns

STEPS = 8  # of Newton's method; two or three are usual
ROUNDS = 5  # trials for the set of acting rows
_HINGE, _LOG = int(Penalty.HINGE), int(Penalty.LOG)
_LEAST_STEP = 1e-3
_LOOSE = 1e-3  # residual of the equation of a step
_LEAST_SIZE = 1e-3  # of a matrix that may vanish, relative to the others


class Differentiability(NamedTuple):
    """How far an answer is from one without a derivative; all numbers are relative.

    Parameters
    ----------
    eigenvalue : float
        The smallest magnitude of an eigenvalue of ``X - Z``, with ``Z`` the multiplier of ``X psd``, relative
        to the largest; for linear objectives, of an eigenvalue of ``X`` or ``Z`` that is not zero. Infinite
        for LogDet and von Neumann, which are smooth everywhere.
    multiplier : float
        The smallest multiplier of an inequality that acts; infinite without one.
    slack : float
        The smallest slack of an inequality that does not act; infinite without one.
    residual : float
        Violation of the optimality conditions after Newton's method; infinite where they do not determine
        the entries without weight.
    """

    eigenvalue: float
    multiplier: float
    slack: float
    residual: float

    @property
    def margin(self) -> float:
        """The smallest of the three distances."""
        return min(self.eigenvalue, self.multiplier, self.slack)


@dataclass(frozen=True, eq=False)
class Optimum:
    """A point with the rows and variables that act.

    Parameters
    ----------
    program : Program
    y, u : array of shape (m,), (k,)
    points : tuple of BlockPoint
    active : ActiveRows
    A : LinearMap
        The rows with unknown multipliers, `rows` of the program.
    rows, variables : int array
        These rows, and the variables inside of their boxes.
    price : float
        The magnitude of multipliers.
    units : Units
    """

    program: Program
    y: Array
    u: Array
    points: tuple[BlockPoint, ...]
    active: ActiveRows
    A: LinearMap
    rows: IntArray
    variables: IntArray
    price: float
    units: Units

    @property
    def X(self) -> tuple[Array, ...]:
        """The matrices."""
        return tuple(point.X for point in self.points)

    @property
    def slacks(self) -> list[Array | None]:
        """The multipliers of ``X psd``, None where they are functions of the others."""
        return [point.Z for point in self.points]

    @cached_property
    def activity(self) -> Array:
        """The activity of all rows."""
        return self.program.activity(self.X, self.u)

    @cached_property
    def reduced(self) -> Array:
        """The reduced costs of the variables."""
        program = self.program
        return program.c - program.Bt @ self.y if program.k else program.c

    @cached_property
    def system(self) -> KKTSystem:
        """The linearized optimality conditions."""
        _, D = self.active.target(self.y)
        B = (
            self.program.B[self.rows][:, self.variables].toarray()
            if self.program.k
            else np.zeros((len(self.rows), 0))
        )
        return KKTSystem(self.points, self.A, B, D[self.rows])

    @cached_property
    def missed(self) -> Array:
        """The distance of each row with an unknown multiplier from where it must be."""
        target, _ = self.active.target(self.y)
        return (target - self.activity)[self.rows]

    @cached_property
    def residual(self) -> float:
        """The largest relative violation of the optimality conditions."""
        parts = [np.abs(self.missed) / self.units.activity[self.rows]]
        parts.append(np.abs(self.reduced[self.variables]) / self.units.cost[self.variables])
        slopes = [point.residual for point in self.points if point.residual is not None]
        parts.append(np.array([float(np.linalg.norm(R)) / self.price for R in slopes]))
        return float(np.concatenate(parts).max(initial=0.0))

    @property
    def margins(self) -> tuple[float, float]:
        """The least multiplier of an inequality that acts, and the least slack of one that does not."""
        multiplier, slack = self.active.margins(self.activity, self.y, self.units)
        _, box = free_variables(self.program, self.u, self.reduced, self.units)
        return multiplier, min(slack, box)

    def differentiability(self) -> Differentiability:
        """Return the distances from points without a derivative."""
        eigenvalue = min((point.margin for point in self.points), default=np.inf)
        unique = all(point.is_unique for point in self.points)
        return Differentiability(eigenvalue, *self.margins, self.residual if unique else np.inf)

    def tangent(self, change: Change) -> Change:
        """Return the change of the answer."""
        program, rows, right = self.program, change.rows[self.rows], change.u
        paid = change.paid.any()
        if paid:
            right = right - program.Bt @ change.paid if program.k else right
        slopes: list[Array | None] = []
        faces: list[Array | None] = []
        for b, (point, slope) in enumerate(zip(self.points, change.X, strict=True)):
            if paid:
                moved = program.A.adjoint(change.paid, b)
                slope = -moved if slope is None else slope - moved
            slopes.append(slope)
            if slope is not None:
                rows = rows + point.image(slope)
            faces.append(_on_face(point.face, slope))
        unknown = Unknowns(rows, tuple(faces), right[self.variables])
        solution = self.system.solve(unknown, CG_TOL, checked=bool(change.rows.any()))
        y, u = change.paid.copy(), np.zeros(program.k)
        y[self.rows], u[self.variables] = solution.rows, solution.variables
        X = []
        for b, (point, slope) in enumerate(zip(self.points, slopes, strict=True)):
            S = self.A.adjoint(solution.rows, b)
            dX = point.derivative(S if slope is None else S - slope)
            X.append(_plus_face(dX, point.face, solution.faces[b]))
        return Change(tuple(X), y, u, np.zeros(program.m))

    def adjoint(self, X: Sequence[Array | None], u: Array) -> Adjoint:
        """Return the gradient of ``sum <G_b, X_b> + g'u``.

        Parameters
        ----------
        X : sequence of arrays of shape (n_b, n_b) or None
            The ``G_b``, symmetric.
        u : array of shape (k,)
            The ``g``.
        """
        program = self.program
        rows = np.zeros(len(self.rows))
        for point, G in zip(self.points, X, strict=True):
            if G is not None:
                rows = rows + point.image(G)
        faces = tuple(_on_face(point.face, G) for point, G in zip(self.points, X, strict=True))
        solution = self.system.solve(Unknowns(rows, faces, u[self.variables]), CG_TOL)
        w, v = np.zeros(program.m), np.zeros(program.k)
        w[self.rows], v[self.variables] = solution.rows, solution.variables
        slopes = []
        for b, (point, G) in enumerate(zip(self.points, X, strict=True)):
            S = -self.A.adjoint(solution.rows, b)
            moved = point.derivative(S if G is None else G + S)
            inside = solution.faces[b]
            slopes.append(_plus_face(moved, point.face, None if inside is None else -inside))
        paid = np.where(self.active.paid, program.A.apply(slopes), 0.0) if self.active.paid.any() else 0 * w
        if program.k and paid.any():
            paid -= np.where(self.active.paid, program.B @ v, 0.0)
        return Adjoint(tuple(slopes), w, v, paid)


def refined(
    program: Program,
    X: Sequence[Array],
    u: Array,
    y: Array,
    S: Sequence[Array | None] | None,
    enough: float,
    least: bool = False,
) -> Optimum:
    """Return an answer after Newton's method.

    Parameters
    ----------
    program : Program
        Without low-rank blocks.
    X, u, y, S
        The answer: matrices, variables, multipliers of rows, and of ``X psd`` where known.
    enough : float
        The residual at which Newton's method ends.
    least : bool
        Whether entries without weight need not be unique.

    Raises
    ------
    ValueError
        If the optimality conditions have no unique linearization.
    """
    newton = _Newton(program, X, y, enough, least)
    pairs = newton.pairs(X, y, S)
    activity = program.activity(X, u)
    at: Optimum | None = None
    for _ in range(ROUNDS):
        active = active_rows(program.bounds, activity, y, newton.units)
        if at is not None and active.same_as(at.active):
            break
        at = newton.converged(active, u, y, pairs)
        activity, y, u = at.activity, at.y, at.u
        if min(at.margins) > 0:
            break
    assert at is not None
    return at


class _Newton:
    """Newton's method at a program, with the magnitudes of one of its answers."""

    def __init__(self, program: Program, X: Sequence[Array], y: Array, enough: float, least: bool) -> None:
        self._program, self._enough, self.least = program, enough, least
        self._sizes: dict[int, tuple[float, float]] = {}
        scale = scale_of(program)
        size = max((float(np.linalg.norm(M)) for M in X), default=0.0)
        price = float((np.abs(y) * program.row_units).max(initial=0.0))
        self._size = size or scale.primal
        self._price = max(price, scale.dual) or scale.objective / scale.primal or 1.0
        self.units = Units.of(program, self._size, self._price)

    def pairs(self, X: Sequence[Array], y: Array, S: Sequence[Array | None] | None) -> dict[int, Pair]:
        """Return the matrices and multipliers of the blocks that have a multiplier of their own."""
        pairs = {}
        for b, block in enumerate(self._program.blocks):
            if block.nearness is None or block.nearness.kind.weights:
                Z = None if S is None else S[b]
                pairs[b] = self.pair(b, X[b], self.slack(b, X[b], y) if Z is None else Z)
        return pairs

    def pair(self, b: int, X: Array, Z: Array) -> Pair:
        """Return a matrix and its multiplier, in magnitudes that stay those of the first one."""
        if b not in self._sizes:
            size = max(float(np.linalg.norm(X)), _LEAST_SIZE * self._size)
            self._sizes[b] = size, max(float(np.linalg.norm(Z)), _LEAST_SIZE * self._price)
        return Pair(X, Z, *self._sizes[b])

    def slack(self, b: int, X: Array, y: Array) -> Array:
        """Return the multiplier of ``X psd`` that makes the slope of the Lagrangian zero."""
        block = self._program.blocks[b]
        Z = block.C - self._program.A.adjoint(y, b)
        if block.nearness is None:
            return Z
        return Z + block.nearness.mu * divergence_of(block.nearness).gradient(X)

    def converged(self, active: ActiveRows, u: Array, y: Array, pairs: Mapping[int, Pair]) -> Optimum:
        """Return the point of the rows that act."""
        program, rows = self._program, active.free
        fixed = active.fixed_multipliers
        fixed[rows] = y[rows]
        y = fixed
        reduced = program.c - program.Bt @ y if program.k else program.c
        variables, _ = free_variables(program, u, reduced, self.units)
        ends = np.where(u - program.u_lo < program.u_hi - u, program.u_lo, program.u_hi)
        ends[variables] = u[variables]  # the others are at their ends
        A = program.A.slice(rows)
        of_blocks = [BlockRows(A.of_block(b)) for b in range(len(program.blocks))]
        here = _Fixed(program, active, A, rows, variables, of_blocks, self)
        at = here.at(y, ends, pairs)
        if at is None:
            raise ValueError("the answer has no derivative: its multipliers are outside of the dual's domain")
        for _ in range(STEPS):
            if at.residual <= self._enough:
                break
            new = here.step(at, self._enough)
            if new is None:
                break
            at = new
        return at


@dataclass(frozen=True, eq=False)
class _Fixed:
    """Newton's method with fixed sets of rows and variables that act."""

    program: Program
    active: ActiveRows
    A: LinearMap
    rows: IntArray
    variables: IntArray
    of_blocks: Sequence[BlockRows]
    newton: _Newton

    def at(self, y: Array, u: Array, pairs: Mapping[int, Pair]) -> Optimum | None:
        """Return a point, None outside the domain of the dual."""
        program, points = self.program, []
        for b, (block, rows) in enumerate(zip(program.blocks, self.of_blocks, strict=True)):
            if b in pairs:
                W = block.C - program.A.adjoint(y, b)
                point: BlockPoint | None = complementary_point(block, rows, pairs[b], W, self.newton.least)
            else:
                point = dual_point(program, b, rows, y)
            if point is None:
                return None
            points.append(point)
        return Optimum(
            *(program, y, u, tuple(points), self.active, self.A, self.rows, self.variables),
            *(self.newton._price, self.newton.units),
        )

    def step(self, at: Optimum, enough: float) -> Optimum | None:
        """Return the next point, None if the residual does not fall."""
        loosest = max(min(_LOOSE, at.residual), enough / (10 * at.residual))
        change = at.system.solve(_right(at), max(loosest, CG_TOL))
        alpha = 1.0
        while alpha > _LEAST_STEP:
            new = self._moved(at, change, alpha)
            if new is not None and new.residual < at.residual:
                return new
            alpha /= 4
        return None

    def _moved(self, at: Optimum, change: Unknowns, alpha: float) -> Optimum | None:
        y, u = at.y.copy(), at.u.copy()
        y[self.rows] += alpha * change.rows
        u[self.variables] += alpha * change.variables
        pairs = {}
        for b, point in enumerate(at.points):
            if point.residual is not None:
                S = self.A.adjoint(change.rows, b)
                dX = point.derivative(S - point.residual)
                if point.face is not None and (inside := change.faces[b]) is not None:
                    dX = dX + point.face @ inside @ point.face.T
                X = point.X + alpha * dX
                pairs[b] = self.newton.pair(b, X, self.newton.slack(b, X, y))
        return self.at(y, u, pairs)


def _right(at: Optimum) -> Unknowns:
    """Return the right-hand side of Newton's step."""
    rows, faces = at.missed, []
    for point in at.points:
        V, R = point.face, point.residual
        if R is not None:
            rows = rows + point.image(R)
        faces.append(None if V is None or R is None else V.T @ R @ V)
    return Unknowns(rows, tuple(faces), at.reduced[at.variables])


class Units(NamedTuple):
    """Magnitudes that activities and multipliers are compared in, of shape ``(m,)``; those of variables.

    Parameters
    ----------
    activity, multiplier : array of shape (m,)
    variable, cost : array of shape (k,)
        Of ordinary variables and their reduced costs.
    """

    activity: Array
    multiplier: Array
    variable: Array
    cost: Array

    @classmethod
    def of(cls, program: Program, size: float, price: float) -> Units:
        """Return the units of a program whose matrices have a size, and whose multipliers a price."""
        rows = np.maximum(program.row_units, TINY)
        columns = np.maximum(program.column_sizes, TINY)
        with np.errstate(over="ignore"):  # of rows without coefficients
            return cls(rows * size, price / rows, size / columns, price * columns)


@dataclass(frozen=True, eq=False)
class ActiveRows:
    """The state of each row.

    Parameters
    ----------
    bounds : Bounds
    side : array of shape (m,)
        1 where the lower bound acts, -1 for the upper one, 0 for rows that do not act.
    paid : mask of shape (m,)
        Hinges outside of their bounds: their multiplier is `side` times ``gamma``.
    """

    bounds: Bounds
    side: Array
    paid: Mask

    @property
    def free(self) -> IntArray:
        """The rows whose multipliers are unknowns."""
        return np.flatnonzero((self.side != 0) & ~self.paid)

    @property
    def fixed_multipliers(self) -> Array:
        """The multipliers of the other rows: those of hinges that are paid, otherwise zero."""
        return np.where(self.paid, self.side * np.where(self.paid, self.bounds.gamma, 0.0), 0.0)

    def same_as(self, other: ActiveRows) -> bool:
        """Whether all rows have the same states."""
        return np.array_equal(self.side, other.side) and np.array_equal(self.paid, other.paid)

    @property
    def acting(self) -> Array:
        """The bound that acts on each row; zero where none does."""
        bounds = self.bounds
        return np.where(self.side > 0, bounds.lo, np.where(self.side < 0, bounds.hi, 0.0))

    def target(self, y: Array) -> tuple[Array, Array]:
        """Return the activity that each row must have, and minus its derivative in the multiplier."""
        value, slope = relaxed_bounds(self.bounds.kind, self.acting, self.bounds.gamma, y)
        return value, -slope

    def bound_slope(self, y: Array) -> Array:
        """Return the derivative of the target in the bound that acts."""
        bound, slope = self.acting, np.where(self.side != 0, 1.0, 0.0)
        value, _ = self.target(y)
        for kind in self.bounds.penalties:
            rows = np.flatnonzero((self.bounds.kind == int(kind)) & (self.side != 0))
            slope[rows] = SCALARS[kind].bound_slope(value[rows], bound[rows])
        return slope

    def weight_slope(self, y: Array) -> Array:
        """Return the derivative of the target in the weight of the penalty."""
        _, decrease = self.target(y)
        return np.where(decrease > 0, decrease * y / self.bounds.gamma, 0.0)

    def margins(self, a: Array, y: Array, units: Units) -> tuple[float, float]:
        """Return the smallest multiplier of a row that acts, and the smallest slack of one that does not.

        Negative for rows that are in a wrong state; infinite where no row is an inequality. A paid hinge
        counts by its violation, another one also by its distance from being paid.
        """
        bounds, side = self.bounds, self.side
        if bounds.equal.all():
            return np.inf, np.inf
        size = y * side / units.multiplier
        inequality = (side != 0) & ~self.paid & ((bounds.lo < bounds.hi) & (bounds.kind <= _HINGE))
        violation = (self.acting - a) * side / units.activity
        curved = (side != 0) & (bounds.lo < bounds.hi) & (bounds.kind > _HINGE) & (bounds.kind != _LOG)
        hinge = (bounds.kind == _HINGE) & (side != 0) & ~self.paid
        multipliers = [size[inequality], violation[curved]]
        multipliers.append((bounds.gamma[hinge] - np.abs(y[hinge])) / units.multiplier[hinge])
        slack = np.minimum(a - bounds.lo, bounds.hi - a) / units.activity
        slacks = [slack[side == 0], violation[self.paid]]
        least, shortest = (float(np.concatenate(part).min(initial=np.inf)) for part in (multipliers, slacks))
        return least, shortest


def active_rows(bounds: Bounds, a: Array, y: Array, units: Units) -> ActiveRows:
    """Return the state of each row at given activities and multipliers.

    Of slack and multiplier, each in its unit, the larger one decides.
    """
    if bounds.equal.all():
        return ActiveRows(bounds, np.ones(bounds.m), np.zeros(bounds.m, dtype=bool))
    t = y / units.multiplier
    below, above = (a - bounds.lo) / units.activity, (bounds.hi - a) / units.activity
    side = np.where(t > below, 1.0, np.where(-t > above, -1.0, 0.0))
    equal = bounds.lo == bounds.hi
    hinge = bounds.kind == _HINGE
    side = np.where(equal & (side == 0), 1.0, side)
    outside = np.where(side > 0, -below, -above)
    room = (np.where(hinge, bounds.gamma, 0.0) - np.abs(y)) / units.multiplier
    paid = hinge & (side != 0) & (outside > room)
    side = np.where(equal & ~paid & (bounds.kind <= _HINGE), 1.0, side)
    always = (equal & (bounds.kind > _HINGE)) | (bounds.kind == _LOG)
    side = np.where(always, 1.0, side)
    return ActiveRows(bounds, side, paid)


def free_variables(program: Program, u: Array, reduced: Array, units: Units) -> tuple[IntArray, float]:
    """Return the variables strictly inside their box, and the margin of this choice.

    Parameters
    ----------
    program : Program
    u, reduced : array of shape (k,)
        The variables and their reduced costs.
    units : Units

    Returns
    -------
    int array
    float
        The least of the distances from the box and of the reduced costs of the others, relative.
    """
    if program.k == 0:
        return np.zeros(0, dtype=np.intp), np.inf
    room = np.minimum(u - program.u_lo, program.u_hi - u) / units.variable
    price = np.abs(reduced) / units.cost
    fixed = program.u_lo == program.u_hi
    inside = (room > price) & ~fixed
    margin = float(np.where(inside, room, np.where(fixed, np.inf, price)).min(initial=np.inf))
    return np.flatnonzero(inside), margin


def _on_face(V: Array | None, S: Array | None) -> Array | None:
    if V is None:
        return None
    return np.zeros((V.shape[1],) * 2) if S is None else V.T @ S @ V


def _plus_face(S: Array, V: Array | None, inside: Array | None) -> Array:
    return S if V is None or inside is None else S + V @ inside @ V.T
