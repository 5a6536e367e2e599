r"""The distance of an answer from the optimum, by the theorem of Newton and Kantorovich.

The objective is linear in ``X``, or a (weighted) Frobenius distance. The optimality conditions ``F(v) = 0``
of ``v = (X, u, y)``, with ``Z = C - A*(y)``, plus ``2 mu H o H o (X - X0)`` for a distance, and the rows and
variables that act as equalities, are

    (X Z + Z X) / 2 = 0,   A(X) + B u = b,   c - B'y = 0   (Alizadeh, Haeberly and Overton 1998).

Only the first is not linear. In units in which ``|dZ|_F <= K |dX|_F + L |dy|`` the change of its derivative
with a change ``X'``, ``y'`` of the place is at most

    |(dX Z' + Z' dX + dZ X' + X' dZ) / 2|_F <= |dX||Z'| + |dZ||X'| <= lambda |(dX, dy)| |(X', y')|,

with ``lambda = K + sqrt(K^2 + L^2)``, the norm of the matrix ``[2 K, L; L, 0]``: a Lipschitz constant. With
``R`` near the inverse of the Jacobian ``J``, ``delta >= |I - R J|``, ``eta >= |R F| / (1 - delta)``, and
``beta >= |R_1| / (1 - delta)`` with the columns ``R_1`` of the first equation, let ``h = beta lambda eta``.
If ``h <= 1/2``, then ``F`` has one root within

    r = (1 - sqrt(1 - 2 h)) / (beta lambda) = 2 eta / (1 + sqrt(1 - 2 h))

(Kantorovich and Akilov 1982, §XVIII.1, in its affine-invariant form). There ``v* - v = -R F + (I - R J)(v* -
v) - R_1 Q`` with ``|Q| <= lambda r^2 / 2``, which bounds each entry of the root.

At a root ``(X + Z)^2 = (X - Z)^2``. So if ``X + Z`` is positive definite, it is the root ``|X - Z|`` of a psd
matrix, and ``X`` and ``Z`` are the parts of ``X - Z``: psd, with ``X Z = 0``. The units of the two do not
matter. With the signs of the multipliers and slacks of inequalities the root is optimal. Another optimum is
complementary to the same multipliers, as the gradient is the same at all optima, and so is each point of the
segment between the two: all of these are roots. As the root is alone in its ball, there is no other optimum.

The rows and variables that act as equalities are found near the answer; the other inequalities are checked at
the enclosure of the root. Every rounding is in a :class:`~bregopt.rigorous.ball.Ball`. Where strict
complementarity or nondegeneracy fails, ``J`` is singular, and nothing is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.certify.accuracy import Accuracy, unknown_accuracy
from bregopt.program import LowRank, Penalty, Program
from bregopt.records import cached_property, dataclass
from bregopt.rigorous.ball import Ball, gamma, inflated
from bregopt.rigorous.data import Data, MatrixData, data_of
from bregopt.rigorous.faces import relations_of
from bregopt.rigorous.linear_algebra import least_eigenvalue, spectral_norm

_LARGEST = 2000  # unknowns: the proof has a dense inverse of this order, and five products
_STEPS = 20  # of Newton's method
_LEAST_SIZE = 1e-3  # of a matrix that may vanish, relative to the others


class UnprovenError(Exception):
    """The reason why nothing can be said."""


# --- Coordinates ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Space:
    """Symmetric matrices, or real forms ``[P, -Q; Q, P]`` of Hermitian ones, by their coordinates.

    Parameters
    ----------
    n : int
    index, sign : array of shape (n, n)
        The coordinate of each entry and its sign, which is zero for entries that vanish.
    i, j : int array of shape (p,)
        An entry of each coordinate, with the sign one.
    times : array of shape (p,)
        The number of entries of each coordinate, a power of two.
    """

    n: int
    index: IntArray
    sign: Array
    i: IntArray
    j: IntArray
    times: Array

    @classmethod
    def of(cls, n: int, hermitian: bool) -> Space:
        """Return the space of a block."""
        index, sign = np.zeros((n, n), dtype=np.intp), np.ones((n, n))
        i, j = np.triu_indices(n // 2 if hermitian else n)
        each = np.arange(len(i))
        index[i, j] = index[j, i] = each
        if hermitian:
            h = n // 2
            index[h:, h:] = index[:h, :h]
            a, b = np.triu_indices(h, 1)
            own = len(i) + np.arange(len(a))
            for r, s, value in ((h + a, b, 1.0), (h + b, a, -1.0)):  # Q_ab = -Q_ba
                index[r, s] = index[s, r] = own
                sign[r, s] = sign[s, r] = value
            k = np.arange(h)
            sign[k, h + k] = sign[h + k, k] = 0.0
            i, j = np.concatenate([i, h + a]), np.concatenate([j, b])
        times = np.bincount(index.ravel(), np.abs(sign).ravel(), len(i)).astype(float)
        return cls(n, index, sign, i, j, times)

    def coordinates(self, M: Array) -> Array:
        """Return those of the nearest matrix of the space."""
        return np.bincount(self.index.ravel(), (self.sign * M).ravel(), len(self.i)) / self.times

    def entries(self, M: Array, sign: Array) -> Array:
        """Return one entry for each coordinate; the others are the same but for these signs."""
        found: Array = M[self.i, self.j]
        if not np.array_equal(np.abs(sign) * M, sign * found[self.index]):
            raise UnprovenError("the matrices of the objective are not in the space of the answer")
        return found

    def matrix(self, x: Ball) -> Ball:
        """Return the matrix with these coordinates."""
        return Ball(self.sign * x.mid[self.index], np.abs(self.sign) * x.rad[self.index])

    def coefficients(self, block: MatrixData, m: int) -> tuple[Ball, Ball]:
        """Return the coefficients of the rows, shape ``(p, m)``, and of the objective, in the coordinates."""
        k, sign = self.index[block.i, block.j], self.sign[block.i, block.j]
        own = (np.minimum(self.i, self.j)[k] == block.i) & (np.maximum(self.i, self.j)[k] == block.j)
        A, A_rad = (np.zeros((len(k), m)) if M is None else M.toarray().T for M in (block.A, block.A_rad))
        mid, rad = np.column_stack([A, block.C.mid]), np.column_stack([A_rad, block.C.rad])
        parts = []
        for part in (own, ~own):  # two entries on or above the diagonal at most share a coordinate
            found = np.zeros((2, len(self.i), m + 1))
            found[0, k[part]] = sign[part, None] * mid[part]
            found[1, k[part]] = np.abs(sign[part, None]) * rad[part]
            parts.append(Ball(*found))
        one, two = parts
        total = one + two
        exact = (one.mid == 0) | (two.mid == 0) | (one.mid == two.mid)
        total = Ball(total.mid, np.where(exact, inflated(one.rad + two.rad), total.rad))
        return total[:, :m], total[:, m]

    def product_with(self, M: Ball) -> Ball:
        """Return the map of coordinates from ``E`` to ``(E M + M E) / 2``, shape ``(p, p)``."""
        mid = self._products(M.mid, self.sign)
        size = self._products(np.abs(M.mid), np.abs(self.sign))
        rad = self._products(M.rad, np.abs(self.sign))
        return Ball(mid, np.where(size + rad > 0, inflated(gamma(12) * size + rad) + 16 * TINY, 0.0))

    def _products(self, M: Array, sign: Array) -> Array:
        total, each = np.zeros((len(self.i), len(self.i))), np.arange(len(self.i))
        for h in range(self.n):  # (E M + M E)_ij = sum_h E_ih M_hj + E_jh M_hi
            for i, j in ((self.i, self.j), (self.j, self.i)):
                total[each, self.index[i, h]] += sign[i, h] * M[h, j] / 2
        return total


# --- Optimality conditions --------------------------------------------------------------------------


class Point(NamedTuple):
    """Coordinates of the matrices, variables inside of their boxes, and multipliers of the active rows."""

    x: Any
    u: Any
    y: Any


class Root(NamedTuple):
    """Enclosures of a point where the conditions hold, and of its slacks."""

    x: Ball
    u: Ball
    y: Ball
    z: Ball


@dataclass(frozen=True, eq=False)
class Conditions:
    """The optimality conditions with the rows and variables that act, in units of the answer.

    Parameters
    ----------
    data : Data
    spaces : sequence of Space
    A, c : Ball of shape (p, m), (p,)
        Coefficients of all rows and of the linear objective, in the coordinates.
    curvature, center : Ball of shape (p,)
        ``q`` and ``x0`` of the gradient ``q (x - x0)`` of the squares in the objective.
    B : Ball of shape (m, k)
    active, redundant : mask of shape (m,)
        Rows whose bound acts, and equalities that are exact combinations of others.
    b : Ball of shape (m,)
        The bounds that act.
    inside : mask of shape (k,)
        Variables between their bounds.
    u : array of shape (k,)
        The others are at their bounds.
    X_unit, Z_unit : array of shape (p,)
        Norms of the matrices of each coordinate.
    row_unit, u_unit : array of shape (m,), (k,)
    """

    data: Data
    spaces: Sequence[Space]
    A: Ball
    c: Ball
    curvature: Ball
    center: Ball
    B: Ball
    active: Mask
    redundant: Mask
    b: Ball
    inside: Mask
    u: Array
    X_unit: Array
    Z_unit: Array
    row_unit: Array
    u_unit: Array

    @cached_property
    def times(self) -> Array:
        """The number of entries of each coordinate."""
        return np.concatenate([space.times for space in self.spaces])

    @cached_property
    def multipliers(self) -> Array:
        """A basis of the multipliers in which ``|dZ|`` is at most the norm of their change, nearly."""
        rows = self.A.mid[:, self.active] / (self.Z_unit * np.sqrt(self.times))[:, None]
        price = (self.u_unit / (self.X_unit * self.Z_unit).max())[self.inside]
        columns = self.B.mid[self.active][:, self.inside] * price
        stacked = np.concatenate([rows, columns.T])
        if stacked.shape[0] < stacked.shape[1]:
            raise UnprovenError(
                f"{stacked.shape[1]} rows act on {stacked.shape[0]} entries and variables, so that the "
                "multipliers are not unique"
            )
        T: Array = np.linalg.qr(stacked)[1]
        if not np.abs(T.diagonal()).min(initial=np.inf) > TINY:
            raise UnprovenError("rows that act depend on others, so that the multipliers are not unique")
        return np.asarray(scipy.linalg.solve_triangular(T, np.eye(len(T))))

    @cached_property
    def slopes(self) -> Ball:
        """The change of the coordinates of ``-Z`` with the multipliers in that basis."""
        return (self.A[:, self.active] @ self.multipliers) * (1 / self.times)[:, None]

    @cached_property
    def lipschitz(self) -> float:
        """The Lipschitz constant ``K + sqrt(K^2 + L^2)`` of the derivative."""
        L = spectral_norm(self.slopes * (np.sqrt(self.times) / self.Z_unit)[:, None])
        K = float((self.curvature.magnitude * self.x_unit / self.Z_unit).max(initial=0.0))
        return float(inflated(K + math.hypot(K, L)))

    @cached_property
    def x_unit(self) -> Array:
        """The units of the coordinates: with them ``dX`` and ``dZ`` are of the order of one."""
        return self.X_unit / np.maximum(self.curvature.mid * self.X_unit / self.Z_unit, 1.0)

    @cached_property
    def scales(self) -> tuple[Array, Array]:
        """The units of the equations, as factors, and those of the unknowns."""
        root, u_unit = np.sqrt(self.times), self.u_unit[self.inside]
        price = (self.X_unit * self.Z_unit).max()
        of_rows = 1 / self.row_unit[self.active]
        equations = (root / (self.X_unit * self.Z_unit), of_rows, u_unit / price)
        unknowns = (self.x_unit / root, u_unit, np.ones(len(of_rows)))
        return np.concatenate(equations), np.concatenate(unknowns)

    def matrices(self, x: Ball) -> list[Ball]:
        """Return the matrices of coordinates."""
        return [space.matrix(x[own]) for space, own in zip(self.spaces, _places(self.spaces), strict=True)]

    def slack(self, x: Any, y: Any) -> Ball:
        """Return the coordinates of ``Z = C - A*(y)``, with the gradient of the squares."""
        linear = (self.c - self.A[:, self.active].times(y)) * (1 / self.times)
        return linear + self.curvature * (Ball.of(x) - self.center) if self.is_curved else linear

    @property
    def is_curved(self) -> bool:
        """Whether the objective has squares."""
        return bool(self.curvature.mid.any())

    def residual(self, at: Point) -> Ball:
        """Return the residuals of the equations, a column."""
        products = []
        matrices = self.matrices(Ball.exact(at.x)), self.matrices(self.slack(at.x, at.y))
        for space, X, Z in zip(self.spaces, *matrices, strict=True):
            product = X @ Z
            products.append(((product + product.T) * 0.5)[space.i, space.j])
        B = self.B[self.active]
        moved = self.u.copy()
        moved[self.inside] = at.u
        rows = self.A[:, self.active].T.times(at.x) + B.times(moved) - self.b[self.active]
        costs = (self.data.c - B.T.times(at.y))[self.inside]
        return Ball.joined([*products, rows, costs])[:, None] * self.scales[0][:, None]

    def jacobian(self, at: Point) -> Ball:
        """Return the derivative of the residuals."""
        A, B = self.A[:, self.active], self.B[self.active][:, self.inside]
        p, m, k = *A.mid.shape, B.mid.shape[1]
        J = Ball.exact(np.zeros((p + m + k, p + m + k)))
        J[p : p + m, :p], J[p : p + m, p : p + k] = A.T, B
        J[p + m :, p + k :] = -(B.T @ self.multipliers)
        matrices = self.matrices(Ball.exact(at.x)), self.matrices(self.slack(at.x, at.y))
        for space, own, X, Z in zip(self.spaces, _places(self.spaces), *matrices, strict=True):
            of_X, of_Z = space.product_with(Z), space.product_with(X)
            if self.is_curved:
                of_X = of_X + of_Z * self.curvature[own]
            J[own, own], J[own, p + k :] = of_X, -(of_Z @ self.slopes[own])
        equations, unknowns = self.scales
        return J * equations[:, None] * unknowns

    def moved(self, at: Point, change: Array) -> Point:
        """Return a point moved by a change in the units of the unknowns."""
        dx, du, dw = np.split(change * self.scales[1], np.cumsum([len(at.x), len(at.u)]))
        return Point(at.x + dx, at.u + du, at.y + self.multipliers @ dw)

    def both(self, x: Ball, z: Ball) -> Ball:
        """Return the coordinates of ``X / |X| + Z / |Z|``."""
        return x * (1 / self.X_unit) + z * (1 / self.Z_unit)

    def complementarity(self, at: Point) -> float:
        """Return the least eigenvalue of these matrices, in floating point."""
        matrices = self.matrices(self.both(Ball.exact(at.x), self.slack(at.x, at.y)))
        return min(float(np.linalg.eigvalsh(M.mid)[0]) for M in matrices)

    def check(self, root: Root) -> None:
        """Raise the reason why the root of the conditions may not be an optimum."""
        data, names = self.data, [block.name for block in self.data.matrices]
        for name, both in zip(names, self.matrices(self.both(root.x, root.z)), strict=True):
            least = least_eigenvalue(both)
            if not least > 0:
                raise UnprovenError(
                    f"strict complementarity of {name} is not proven: the least eigenvalue of X / |X| + "
                    f"Z / |Z| may be {least:.1e}"
                )
        u = Ball.exact(self.u.copy())
        u[self.inside] = root.u
        reduced = data.c - self.B[self.active].T @ root.y
        at_end = ~self.inside & (data.u_lo < data.u_hi)
        activity = self.A.T @ root.x + self.B @ u
        idle, loose = ~self.active & ~self.redundant, data.lo < data.hi
        lo, hi = Ball(data.lo, data.lo_rad), Ball(data.hi, data.hi_rad)
        right = {
            "the multiplier of a row": _signed(root.y, data.lo, self.b.mid, self.active & loose, self.active),
            "the reduced cost of a variable": _signed(reduced, data.u_lo, self.u, at_end),
            "the slack of a row": ((activity.lo > lo.hi) & (activity.hi < hi.lo))[idle],
            "the slack of a variable": ((u.lo > data.u_lo) & (u.hi < data.u_hi))[self.inside],
        }
        for noun, signs in right.items():
            if not signs.all():
                raise UnprovenError(f"the sign of {noun} is not proven: it may be zero")


def conditions_near(
    data: Data, spaces: Sequence[Space], X: Sequence[Array], u: Array, y: Array
) -> tuple[Conditions, Point]:
    """Return the optimality conditions near an answer, and the answer in their coordinates.

    Raises
    ------
    UnprovenError
        If rows leave a matrix no interior, or an equality is redundant up to round-off only.
    """
    if any(block.null is not None for block in data.matrices):
        raise UnprovenError("a row z'X z = 0 leaves X no interior, so that the multipliers are not unique")
    parts = [space.coefficients(block, data.m) for space, block in zip(spaces, data.matrices, strict=True)]
    A, c = Ball.joined([part[0] for part in parts]), Ball.joined([part[1] for part in parts])
    B = Ball(data.B.toarray(), np.zeros(data.B.shape) if data.B_rad is None else data.B_rad.toarray())
    squares = [_squares(space, block) for space, block in zip(spaces, data.matrices, strict=True)]
    curvature, center = (Ball.joined([part[end] for part in squares]) for end in (0, 1))
    x = np.concatenate([space.coordinates(own) for space, own in zip(spaces, X, strict=True)])
    times = np.concatenate([space.times for space in spaces])
    X_unit = _units(spaces, x, times)
    Z = (c.mid - A.mid @ y) / times + curvature.mid * (x - center.mid)
    Z_unit = _units(spaces, Z, times)
    row_unit, u_unit = _row_units(data, A.mid * (X_unit / np.sqrt(times))[:, None], B.mid, u)
    equal = np.flatnonzero(data.lo == data.hi)
    reduced = data.c.mid - B.mid.T @ y
    price = max(np.abs(y * row_unit).max(initial=TINY), np.abs(reduced * u_unit).max(initial=TINY))
    b, row_acts = _acting(data.lo, data.hi, A.mid.T @ x + B.mid @ u, y * row_unit * (row_unit / price))
    ends, u_acts = _acting(data.u_lo, data.u_hi, u, reduced * u_unit * (u_unit / price))
    unit = np.append(X_unit / np.sqrt(times), u_unit)
    redundant = np.zeros(data.m, dtype=bool)
    redundant[_redundant(equal, unit, Ball.joined([A, B.T]), Ball(data.lo, data.lo_rad))] = True
    active = row_acts & ~redundant
    conditions = Conditions(
        *(data, spaces, A, c, curvature, center, B, active, redundant),
        *(Ball(b, np.where(b == data.lo, data.lo_rad, data.hi_rad)), ~u_acts, np.where(u_acts, ends, u)),
        *(X_unit, Z_unit, row_unit, u_unit),
    )
    return conditions, Point(x, u[~u_acts], y[active])


def _squares(space: Space, block: MatrixData) -> tuple[Ball, Ball]:
    """Return ``2 mu H o H`` and ``X0`` of a Frobenius distance in the coordinates, zero without one."""
    if block.anchor is None:
        none = Ball.exact(np.zeros(len(space.i)))
        return none, none
    weights, X0 = block.anchor.weights, block.anchor.X0
    weights = np.ones((block.n, block.n)) if weights is None else weights
    H = Ball.exact(space.entries(weights, np.abs(space.sign)))
    center = Ball(space.entries(X0.mid, space.sign), space.entries(X0.rad, np.abs(space.sign)))
    return H * H * (2 * block.anchor.mu), center


def _units(spaces: Sequence[Space], x: Array, times: Array) -> Array:
    """Return the norm of the matrix of each coordinate; one that may vanish has a share of the largest."""
    norms = np.array([math.sqrt(float(times[own] @ x[own] ** 2)) for own in _places(spaces)])
    norms = np.maximum(norms, _LEAST_SIZE * norms.max()) if norms.max() > 0 else np.ones(len(norms))
    return np.repeat(norms, [len(space.i) for space in spaces])


def _places(spaces: Sequence[Space]) -> list[slice]:
    """Return the places of the coordinates of each matrix among those of all."""
    return [slice(*ends) for ends in pairwise(np.cumsum([0, *(len(space.i) for space in spaces)]).tolist())]


def _row_units(data: Data, A: Array, B: Array, u: Array) -> tuple[Array, Array]:
    """Return magnitudes of rows and of variables.

    Those of a variable follow from the rows that it shares with matrices: at a bound its value has none. Rows
    without a matrix have those of their variables.
    """
    finite = np.where(np.isfinite(data.lo), data.lo, np.where(np.isfinite(data.hi), data.hi, 0.0))
    sizes, shared = np.maximum(np.linalg.norm(A, axis=0), np.abs(finite)), A.any(axis=0)
    columns = (np.abs(B[shared]) / sizes[shared, None]).max(axis=0, initial=0.0)
    largest = float(np.abs(u).max(initial=0.0)) or 1.0
    u_unit = np.where(columns > 0, 1 / columns, largest)
    row_unit = np.maximum(sizes, (np.abs(B) * u_unit).max(axis=1, initial=0.0))
    row_unit[row_unit == 0] = 1.0
    return row_unit, u_unit


def _acting(lo: Array, hi: Array, value: Array, price: Array) -> tuple[Array, Mask]:
    """Return the bound that each price points to, and whether it is nearer than the price is to zero."""
    end = np.where((price > 0) | (lo == hi), lo, hi)
    acts = (lo == hi) | (np.isfinite(end) & (np.abs(price) > np.abs(value - end)))
    return np.where(acts, end, 0.0), acts


def _redundant(equal: IntArray, unit: Array, rows: Ball, b: Ball) -> IntArray:
    """Return equalities that are combinations of the others; each is proven in exact arithmetic.

    Parameters
    ----------
    equal : int array
    unit : array of shape (p + k,)
        Of the unknowns.
    rows, b : Ball of shape (p + k, m), (m,)
    """
    equal = equal[~(rows.rad[:, equal].any(axis=0) | (b.rad[equal] > 0))]
    found = relations_of(sp.csr_array(rows.mid[:, equal].T), b.mid[equal], unit)
    if len(found.unproven):
        raise UnprovenError(
            f"row {equal[found.unproven[0]]} depends on other equalities up to round-off, but is not proven "
            "to be an exact combination of them; leave it out"
        )
    return equal[found.implied]


def _signed(price: Ball, lo: Array, end: Array, rows: Mask, among: Mask | None = None) -> Mask:
    """Return whether prices are positive at lower and negative at upper bounds."""
    own = rows if among is None else rows[among]
    right: Mask = np.where(end[rows] == lo[rows], price.lo[own] > 0, price.hi[own] < 0)
    return right


# --- The theorem ------------------------------------------------------------------------------------


def newton_kantorovich(
    program: Program, X: Sequence[Any], u: Array, y: Array, hermitian: Sequence[bool] = ()
) -> tuple[Accuracy, ...]:
    """Return the proven accuracy of each matrix of an answer to a linear or quadratic problem.

    A few steps of Newton's method refine the answer, and the theorem encloses the optimum near the refined
    point. The accuracy is the distance of the given matrix from this point and the radius around it. It also
    proves that the optimum and its multipliers exist and are unique.

    Parameters
    ----------
    program : Program
    X : sequence of arrays of shape (n_b, n_b)
    u : array of shape (k,)
    y : array of shape (m,)
    hermitian : sequence of bool, optional
        Whether each block is the real form of a Hermitian matrix. The optimum in this form need not be unique
        among all symmetric matrices.

    Returns
    -------
    tuple of Accuracy
        With the reason where nothing can be said: LogDet or von Neumann, soft rows, bounds on
        eigenvalues, second-order cones, LowRank matrices, more than 2000 unknowns (entries of the matrices on
        and above the diagonal, rows and ordinary variables), or an answer without strict complementarity,
        with redundant multipliers or with other optima.
    """
    orders = [block.n for block in program.blocks]
    if not orders:
        return ()
    forms = [b < len(hermitian) and hermitian[b] for b in range(len(orders))]
    sizes = [n * n // 4 if is_form else n * (n + 1) // 2 for n, is_form in zip(orders, forms, strict=True)]
    try:
        _check_supported(program, X, sum(sizes))
        with np.errstate(all="ignore"):
            found = _proven(program, X, u, y, forms)
    except UnprovenError as reason:
        return tuple(unknown_accuracy(n, str(reason)) for n in orders)
    return tuple(Accuracy.of(ball.magnitude, ball.frobenius()) for ball in found)


def _check_supported(program: Program, X: Sequence[Any], entries: int) -> None:
    """Raise the reason why a problem is not of the kind that the theorem is for."""
    reason = ""
    if not set(filter(None, program.divergences)) <= {"frobenius"}:
        reason = "the objective is neither linear nor quadratic in X"
    elif (program.bounds.kind != int(Penalty.HARD)).any():
        reason = "the problem has soft rows"
    elif program.capped:
        reason = "the eigenvalues of a matrix have an upper bound"
    elif program.cones.count:
        reason = "ordinary variables are in second-order cones"
    elif any(isinstance(own, LowRank) for own in X):
        reason = "X is LowRank"
    size = entries + program.m + program.k
    if not reason and size > _LARGEST:
        reason = f"the optimality conditions have {size} unknowns; the proof is dense, for at most {_LARGEST}"
    if reason:
        raise UnprovenError(reason)


def _proven(
    program: Program, X: Sequence[Array], u: Array, y: Array, hermitian: Sequence[bool]
) -> list[Ball]:
    """Return enclosures of ``X - X*``."""
    spaces = [Space.of(block.n, real) for block, real in zip(program.blocks, hermitian, strict=True)]
    conditions, at = conditions_near(data_of(program), spaces, [np.asarray(own) for own in X], u, y)
    root = _enclosure(conditions, _refined(conditions, at))
    conditions.check(root)
    matrices = conditions.matrices(root.x)
    return [Ball.exact(np.asarray(own)) - M for own, M in zip(X, matrices, strict=True)]


def _refined(conditions: Conditions, at: Point) -> Point:
    """Return the best point of Newton's method, which ends at round-off or where the residual stays."""
    best, least, stays = at, math.inf, 0
    for _ in range(_STEPS):
        residual = conditions.residual(at)
        size = float(np.linalg.norm(residual.mid))
        stays = 0 if size < least / 2 else stays + 1
        if size < least:
            best, least = at, size
        if stays == 2 or not math.isfinite(size) or size <= float(np.linalg.norm(residual.rad)):
            break
        try:
            change = np.asarray(np.linalg.solve(conditions.jacobian(at).mid, residual.mid))
        except np.linalg.LinAlgError:
            break
        at = conditions.moved(at, -change[:, 0])
    return best


def _enclosure(conditions: Conditions, at: Point) -> Root:
    """Return the enclosure of the root near a point."""
    J, F = conditions.jacobian(at), conditions.residual(at)
    try:
        R = np.linalg.inv(J.mid)
    except np.linalg.LinAlgError:
        R = np.full_like(J.mid, np.inf)
    p, k = len(at.x), len(at.u)
    rest = Ball.exact(R) @ J - np.eye(len(R))
    delta = rest.frobenius()
    if not delta < 0.5:
        condition = float(np.linalg.norm(J.mid, 1) * np.linalg.norm(R, 1))
        raise UnprovenError(
            f"the Jacobian of the optimality conditions may be singular (condition {condition:.0e}), because "
            "the optimum or its multipliers are not unique, or without strict complementarity (the least "
            f"eigenvalue of X / |X| + Z / |Z| is {conditions.complementarity(at):.0e})"
        )
    step = Ball.exact(R) @ F
    eta = inflated(step.frobenius() / (1 - delta))
    of_squares = Ball.exact(R[:, :p])
    beta = inflated(spectral_norm(of_squares) / (1 - delta))
    h = inflated(beta * conditions.lipschitz * eta)
    if not h <= 0.5:
        raise UnprovenError(
            f"the answer is too far from a root of the optimality conditions, or these are too badly "
            f"conditioned: beta lambda eta is {h:.1e}, above 1/2; solve with a smaller tol"
        )
    r = inflated(2 * eta / (1 + math.sqrt(1 - 2 * h)))
    squares = conditions.lipschitz * r * r / 2
    rad = step.magnitude[:, 0] + rest.row_norms() * r + of_squares.row_norms() * squares
    dx, du, dw = map(inflated, np.split(inflated(rad) * conditions.scales[1], np.cumsum([p, k])))
    spread, x = Ball(np.zeros(len(dw)), dw), Ball(at.x, dx)
    y = Ball.exact(at.y) + Ball.exact(conditions.multipliers) @ spread
    return Root(x, Ball(at.u, du), y, conditions.slack(x, at.y) - conditions.slopes @ spread)
