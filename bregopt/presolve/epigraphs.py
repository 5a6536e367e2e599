"""Penalties that are stated by variables of their own, as linear and conic programs state them.

Without these variables the objective has a hinge or a divergence, and Newton's system fewer unknowns:

- A *slack* that prices the violation of its row is a hinge: the cost ``c xi`` with ``xi >= 0`` in the row
  ``a + b xi >= lo``, ``b > 0``, is ``c / b max(lo - a, 0)``. A margin problem keeps only the margin as a
  variable. A slack without cost and bounds meets its row, whatever the others are, so that the row is not
  needed. Variables that occur in such rows alone are idle: along them the set of optima has no end, and there
  would be no central path.
- An *absolute value* has a price and two rows, ``u >= a - b`` and ``u >= d - a``. It is a hinge on the row
  ``a``, which pays outside of an interval.
- A *difference* states ``p max(a, 0) + q max(-a, 0)`` as ``a = u - l`` with ``u, l >= 0`` and the costs
  ``p u`` and ``q l``: worst cases over intervals of coefficients. For a given ``a`` the best values have the
  cost ``(p - q) a / 2 + (p + q) |a| / 2``. The first part is linear in the other terms of the row, the second
  one is a hinge on it. A multiplier ``y`` of the hinge is ``y - (p - q) / 2`` in the equality.
- A *norm* is the axis ``t`` of a second-order cone: minimize ``w t`` under ``t >= ||v||``, with a row
  ``e_k x + f_k v_k = a_k`` for each element, where ``x`` is an entry of ``svec(X)``. If these rows hold most
  entries of one matrix, then ``||v||^2 = s ||H o (X - X0)||_F^2 + r`` with numbers ``s`` and ``r``, and
  weights ``H`` if the ``(e_k / f_k)^2`` differ. The square has the same minimizers. It is one divergence
  without rows, where the cone has a variable and a row for each entry. In all other rows the elements are
  substituted.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, Array, IntArray, Mask, scattered
from bregopt.divergences import psd_part
from bregopt.presolve import Reduced, Tolerances, with_multipliers
from bregopt.presolve.svec import Svec, coefficients, comparable, sparse_svec, svec, svec_map
from bregopt.program import NO_CONES, Answer, Block, Nearness, Penalty, Program, Start, StopReason
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.records import dataclass, replace

__all__ = ["Joined", "Squared", "absolute_values", "differences", "least_norm", "slacks"]

_EQUAL = 64 * EPS  # relative difference of two numbers that are equal up to round-off
_MOST_ENTRIES = 0.5  # of all entries: a norm of fewer is a cone with fewer rows


# --- Slacks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WithoutSlacks(Reduced):
    """A program without its slack variables, and without idle ones, which are as near to zero as possible.

    Parameters
    ----------
    kept, slack, row : int array
        The remaining variables, the slack variables, and the rows of these.
    weight : array
        Coefficients of the slack variables in their rows.
    left : int array
        The remaining rows.
    """

    rescales: ClassVar[bool] = True  # programs with hinges have no DIMACS errors
    kept: IntArray
    slack: IntArray
    row: IntArray
    weight: Array
    left: IntArray

    @property
    def summary(self) -> str:
        count = len(self.slack)
        return f"{count} slack variable{'s' if count > 1 else ''} folded into rows"

    def shrink(self, start: Start) -> Start:
        return replace(start, u=start.u[self.kept], y=start.y[self.left])

    def restore(self, answer: Answer) -> Answer:
        whole, slack, row = self.whole, self.slack, self.row
        ends, least = (whole.bounds.lo[row], whole.bounds.hi[row]), whole.u_lo[slack]
        u = np.clip(0.0, whole.u_lo, whole.u_hi)
        if answer.stop is StopReason.UNBOUNDED:  # a ray: the rows and the box without their bounds
            lo, hi, least = (np.where(np.isfinite(end), 0.0, end) for end in (*ends, least))
            ends, u = (lo, hi), 0 * u
        u[self.kept], u[slack] = answer.u, np.where(np.isfinite(least), least, 0.0)
        activity = whole.activity(answer.X, u)[row]
        u[slack] = np.maximum(u[slack] + (np.clip(activity, *ends) - activity) / self.weight, least)
        return with_multipliers(answer, lambda own: scattered(self.left, own, whole.m), u=u)


# Pays on: 300 triplets.
# Pays on: a row of two idle variables.
def slacks(program: Program, tolerances: Tolerances) -> WithoutSlacks | None:
    """Replace priced variables of one row by a hinge on it; leave out the row of a free one."""
    slack, row, weight = _slacks(program)
    if len(slack) == 0:
        return None
    bounds, priced = program.bounds, program.c[slack] > 0
    kind, gamma, lo, hi = bounds.kind.copy(), bounds.gamma.copy(), bounds.lo.copy(), bounds.hi.copy()
    of, least, cost = row[priced], program.u_lo[slack[priced]], program.c[slack[priced]]
    kind[of], gamma[of] = Penalty.HINGE, cost / np.abs(weight[priced])
    lo[of] -= weight[priced] * least
    hi[of] -= weight[priced] * least
    left, kept = np.arange(program.m), np.setdiff1d(np.arange(program.k), slack)
    smaller = replace(program, bounds=replace(bounds, lo=lo, hi=hi, kind=kind, gamma=gamma))
    if not priced.all():
        left = np.setdiff1d(left, row[~priced])
        smaller = replace(
            smaller,
            A=program.A.slice(left),
            B=program.B[left],
            bounds=smaller.bounds.slice(left),
            labels=program.labels_of(left),
        )
        used = np.bincount(smaller.B.indices[smaller.B.data != 0], minlength=program.k) > 0
        kept = kept[(used | (program.c != 0) | program.in_cones)[kept]]
    folded = replace(smaller.of_variables(kept), offset=program.offset + float(cost @ least))
    return WithoutSlacks(program, folded, kept, slack, row, weight, left)


def _slacks(program: Program) -> tuple[IntArray, IntArray, Array]:
    """Return slack variables, at most one for each row, with their rows and coefficients there."""
    priced = (program.c > 0) & np.isfinite(program.u_lo) & np.isinf(program.u_hi)
    possible = priced | (program.free & (program.c == 0))
    if not possible.any():
        none = np.zeros(0, dtype=np.intp)
        return none, none, np.zeros(0)
    (starts, rows, values), bounds = program.by_columns, program.bounds
    slack = np.flatnonzero((np.diff(starts) == 1) & possible)
    row, weight = rows[starts[slack]], values[starts[slack]]
    below, above = np.isfinite(bounds.lo[row]), np.isfinite(bounds.hi[row])
    relieves = np.where(weight > 0, below & ~above, above & ~below) | ~priced[slack]
    relieves &= bounds.hard[row] & (below | above)
    slack, row, weight = slack[relieves], row[relieves], weight[relieves]
    row, first = np.unique(row, return_index=True)
    return slack[first], row, weight[first]


# --- Absolute values ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Folded(Reduced):
    """A program with hinges for its absolute values.

    Parameters
    ----------
    kept, left : int array
        The remaining variables and rows.
    variable : int array
        The absolute values.
    rows : int array of shape (2, count)
        Their rows: the first one is left, as a hinge.
    scale : array of shape (2, count)
        The absolute coefficients of the variables in these rows.
    least : array of shape (count,)
        The values of the variables inside of the hinges' intervals.
    exact : boolean array
        Marks those without an interval, whose two rows pay the whole price.
    """

    kept: IntArray
    left: IntArray
    variable: IntArray
    rows: IntArray
    scale: Array
    least: Array
    exact: Mask

    @property
    def summary(self) -> str:
        count = len(self.variable)
        return f"{count} absolute value{'s' if count > 1 else ''} folded into hinges"

    def shrink(self, start: Start) -> Start:
        y = start.y.copy()
        y[self.rows[0]] += self._signs * start.y[self.rows[1]] * self.scale[1] / self.scale[0]
        return replace(start, u=start.u[self.kept], y=y[self.left])

    def restore(self, answer: Answer) -> Answer:
        place = np.searchsorted(self.left, self.rows[0])
        activity = self.program.activity(answer.X, answer.u)[place]
        bounds, least = self.program.bounds, self.least
        if answer.stop is StopReason.UNBOUNDED:
            missed, least = np.abs(activity), 0 * least
        else:
            missed = np.maximum(np.maximum(bounds.lo[place] - activity, activity - bounds.hi[place]), 0.0)
        u = np.zeros(self.whole.k)
        u[self.kept], u[self.variable] = answer.u, least + missed / self.scale[0]
        costs = 0.0 if answer.stop is StopReason.INFEASIBLE else 1.0
        return with_multipliers(answer, lambda own: self._multipliers(own, costs), u=u)

    @property
    def _signs(self) -> Array:
        """1 where the two rows have the same coefficients but for the variable, -1 where opposite ones."""
        rises = np.isfinite(self.whole.bounds.lo[self.rows])
        return np.where(rises[0] == rises[1], -1.0, 1.0)

    def _multipliers(self, own: Array, costs: float) -> Array:
        """Return multipliers of all rows: the two of an absolute value share its price."""
        y = scattered(self.left, own, self.whole.m)
        rises = np.where(np.isfinite(self.whole.bounds.lo[self.rows]), 1.0, -1.0)
        price = costs * self.whole.c[self.variable]
        net = np.clip(rises[0] * y[self.rows[0]] * self.scale[0], -price, price)
        shares = np.maximum(net, 0.0), np.maximum(-net, 0.0)
        shares = tuple(
            np.where(self.exact, (price + sign * net) / 2, share)
            for sign, share in zip((1, -1), shares, strict=True)
        )
        for k in (0, 1):
            y[self.rows[k]] = rises[k] * shares[k] / self.scale[k]
        return y


# Pays on: sparse component, n = 24.
def absolute_values(program: Program, tolerances: Tolerances) -> Folded | None:
    """Replace priced variables with two opposite rows by a hinge on one of them."""
    priced = (program.c > 0) & ~program.in_cones & np.isinf(program.u_hi)
    if not priced.any() or not comparable(program):
        return None
    starts, row, coefficient = program.by_columns
    variable = np.flatnonzero(priced & (np.diff(starts) == 2))
    if not len(variable):
        return None
    start, bounds = starts[variable], program.bounds
    rows = np.array([row[start], row[start + 1]])
    value = np.array([coefficient[start], coefficient[start + 1]])
    below, above = np.isfinite(bounds.lo[rows]), np.isfinite(bounds.hi[rows])
    relaxes = bounds.hard[rows] & (below ^ above) & ((value > 0) == below)
    good = relaxes.all(axis=0)
    # Each row belongs to one of these variables alone.
    used = np.bincount(rows[:, good].ravel(), minlength=program.m)
    good &= (used[rows] == 1).all(axis=0)
    variable, rows, scale = variable[good], rows[:, good], np.abs(value[:, good])
    if not len(variable):
        return None
    opposite = _opposite(program, variable, rows, scale)
    variable, rows, scale = variable[opposite], rows[:, opposite], scale[:, opposite]
    return _folded(program, variable, rows, scale) if len(variable) else None


def _folded(program: Program, variable: IntArray, rows: IntArray, scale: Array) -> Folded:
    bounds, rises = program.bounds, np.isfinite(program.bounds.lo[rows])
    # In units of the variable u, and with the sign of a rising first row: u >= lo - a and u >= a - hi.
    ends = np.where(rises, bounds.lo[rows], -bounds.hi[rows]) / scale
    lo, hi = ends[0], -ends[1]
    half, box = (lo - hi) / 2, program.u_lo[variable]
    exact = ~(box > half)
    least = np.where(exact, half, box)
    middle = (lo + hi) / 2
    lo, hi = np.where(exact, middle, lo - box), np.where(exact, middle, hi + box)
    first, sign = rows[0], np.where(rises[0], 1.0, -1.0) * scale[0]
    ends = np.sort([sign * lo, sign * hi], axis=0)
    kind, gamma, below, above = bounds.kind.copy(), bounds.gamma.copy(), bounds.lo.copy(), bounds.hi.copy()
    kind[first], gamma[first] = Penalty.HINGE, program.c[variable] / scale[0]
    below[first], above[first] = ends
    mask = np.ones(program.k, dtype=bool)
    mask[variable] = False
    kept, left = np.flatnonzero(mask), np.setdiff1d(np.arange(program.m), rows[1])
    folded = replace(
        program.of_variables(kept),
        A=program.A.slice(left),
        B=sp.csr_array(program.B[left][:, kept]),
        bounds=type(bounds)(below, above, kind, gamma).slice(left),
        offset=program.offset + float(program.c[variable] @ least),
        constant=program.stated_constant,
        labels=program.labels_of(left),
    )
    return Folded(program, folded, kept, left, variable, rows, scale, least, exact)


def _opposite(program: Program, variable: IntArray, rows: IntArray, scale: Array) -> Mask:
    """Whether the two rows of each variable have opposite coefficients, relative to its own."""
    table, rises = coefficients(program), np.isfinite(program.bounds.lo[rows])
    mask = np.ones(table.shape[1])
    mask[table.shape[1] - program.k + variable] = 0.0
    table = sp.csr_array(table @ sp.diags_array(mask))
    sign = np.where(rises, 1.0, -1.0) / scale
    parts = [sp.diags_array(sign[k]) @ table[rows[k]] for k in (0, 1)]
    left = np.asarray(abs(parts[0] + parts[1]).sum(axis=1)).ravel()
    opposite: Mask = left == 0
    return opposite


# --- Differences ----------------------------------------------------------------------------------------


class Pairs(NamedTuple):
    """Equalities with two variables of their own, of opposite signs there.

    Parameters
    ----------
    row : int array of shape (count,)
    variable : int array of shape (2, count)
        First that with the negative sign, which is ``u``.
    size : array of shape (2, count)
        The absolute values of their coefficients.
    """

    row: IntArray
    variable: IntArray
    size: Array


@dataclass(frozen=True, eq=False)
class Joined(Reduced):
    """A program without the two variables of each difference.

    Parameters
    ----------
    pairs : Pairs
    slope : array of shape (count,)
        The part of their costs that is linear in the row.
    kept : int array
        The remaining variables.
    """

    pairs: Pairs
    slope: Array
    kept: IntArray

    @property
    def summary(self) -> str:
        count = len(self.pairs.row)
        return f"{count} difference{'s' if count > 1 else ''} of two variables folded into hinges"

    def shrink(self, start: Start) -> Start:
        y = start.y.copy()
        y[self.pairs.row] += self.slope
        return replace(start, u=start.u[self.kept], y=y)

    def restore(self, answer: Answer) -> Answer:
        whole, (row, variable, size) = self.whole, self.pairs
        ray = answer.stop is StopReason.UNBOUNDED
        u, right = np.zeros(whole.k), whole.bounds.lo[row] * (not ray)
        u[self.kept] = answer.u
        u[variable] = whole.u_lo[variable] * (not ray)
        missed = right - whole.activity(answer.X, u)[row]
        u[variable] += np.maximum([-missed, missed], 0.0) / size
        priced = answer.stop is not StopReason.INFEASIBLE  # a Farkas vector has no prices
        slope = scattered(row, self.slope * priced, whole.m)
        return with_multipliers(answer, lambda own: own - slope, u=u)


# Pays on: the portfolio of the least worst case, n = 60.
def differences(program: Program, tolerances: Tolerances) -> Joined | None:
    """Replace two priced variables of one equality, with opposite signs, by a linear cost and a hinge."""
    pairs = _pairs(program)
    if pairs is None:
        return None
    row, variable, size = pairs
    bounds, (p, q) = program.bounds, program.c[variable] / size
    kind, gamma, lo, hi = bounds.kind.copy(), bounds.gamma.copy(), bounds.lo.copy(), bounds.hi.copy()
    kind[row], gamma[row] = Penalty.HINGE, (p + q) / 2
    least = program.u_lo[variable]
    right = bounds.lo[row] + size[0] * least[0] - size[1] * least[1]
    lo[row] = hi[row] = right
    mask = np.ones(program.k, dtype=bool)
    mask[variable] = False
    kept, weights = np.flatnonzero(mask), np.zeros(program.m)
    weights[row] = (p - q) / 2
    constant = float((program.c[variable] * least).sum() - weights[row] @ right)
    joined = replace(
        program.of_variables(kept),
        blocks=tuple(_with_cost(program, b, weights) for b in range(len(program.blocks))),
        bounds=replace(bounds, lo=lo, hi=hi, kind=kind, gamma=gamma),
        c=(program.c + program.Bt @ weights)[kept],
        offset=program.offset + constant,
        constant=program.stated_constant,
    )
    return Joined(program, joined, pairs, weights[row], kept)


def _pairs(program: Program) -> Pairs | None:
    """Return the equalities with two variables of their own and a positive price of both; None for none."""
    single = np.isfinite(program.u_lo) & np.isinf(program.u_hi) & ~program.in_cones
    equal = program.bounds.equal & program.bounds.hard
    if np.count_nonzero(single) < 2 or not equal.any():
        return None
    starts, rows, values = program.by_columns
    own = np.flatnonzero(single & (np.diff(starts) == 1))
    row, weight = rows[starts[own]], values[starts[own]]
    of_row = np.full((2, program.m), -1)  # one variable of each sign
    for sign in (0, 1):
        chosen = np.flatnonzero(equal[row] & ((weight > 0) == bool(sign)))
        of_row[sign, row[chosen]] = chosen
    found = np.flatnonzero((of_row >= 0).all(axis=0))
    place = of_row[:, found]
    size = np.abs(weight[place])
    priced = (program.c[own[place]] / size).sum(axis=0) > 0
    if not priced.any():
        return None
    return Pairs(found[priced], own[place][:, priced], size[:, priced])


def _with_cost(program: Program, b: int, weights: Array) -> Block:
    """Return a block with the cost of its weighted rows added."""
    block, parts = program.blocks[b], []
    for term in program.A.terms_of(b):
        if weights[term.at].any():
            t = term.rows.coordinates()
            parts.append((t.i, t.j, t.value * weights[term.at[t.row]]))
    if not parts:
        return block
    if block.cost is not None:
        t = block.cost.coordinates()
        parts.append((t.i, t.j, t.value))
    i, j, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    cost = SparseRows.of(1, block.n, Coordinates(np.zeros(len(i), dtype=np.intp), i, j, value))
    return replace(block, cost=cost)


# --- Norms ----------------------------------------------------------------------------------------------


class Elements(NamedTuple):
    """The elements ``v`` of a norm, one for each variable of the cone but its axis.

    Parameters
    ----------
    row, place : int array
        The row of each, and the entry of ``svec(X)`` in it.
    entry, own, right : array
        The coefficients of the entry, which is zero for a constant element, and of the element; the
        right-hand side.
    """

    row: IntArray
    place: IntArray
    entry: Array
    own: Array
    right: Array


@dataclass(frozen=True, eq=False)
class Squared(Reduced):
    """A program with the square of its norm.

    Parameters
    ----------
    elements : Elements
    scale : float
        The number ``s``.
    X0, H : array of shape (n, n)
        `H` is None for equal weights.
    left : int array
        The rows of no element.
    """

    elements: Elements
    scale: float
    X0: Array
    H: Array | None
    left: IntArray
    rescales: ClassVar[bool] = True

    @property
    def summary(self) -> str:
        return "the square of the norm"

    def shrink(self, start: Start) -> Start:
        slope = self._slope(float(start.u[self.whole.cones.axes[0]]))
        return replace(start, u=np.zeros(0), y=start.y[self.left] / (slope or 1.0))

    def restore(self, answer: Answer) -> Answer:
        if answer.stop is StopReason.INFEASIBLE:
            y = self._with_elements(answer.y, np.zeros(len(self.elements.row)))
            return Answer.without_point(self.whole, y, answer.stop, answer.iterations)
        u, cones = np.zeros(self.whole.k), self.whole.cones
        v = self._at(np.asarray(answer.X[0]))
        u[cones.index[1:]], u[cones.axes[0]] = v, np.linalg.norm(v)
        S = None if answer.S is None else answer.S[0]
        return with_multipliers(answer, lambda own: self._multipliers(own, S), u=u, S=None)

    def _slope(self, norm: float) -> float:
        """Return the change of the objective with that of ``||X - X0||^2``; zero at a norm of zero."""
        price = float(self.whole.c[self.whole.cones.axes[0]])
        return price * self.scale / (2 * norm) if norm else 0.0

    def _at(self, X: Array) -> Array:
        """Return the elements at a matrix."""
        e = self.elements
        v: Array = (e.right - e.entry * svec(X[None])[0][e.place]) / e.own
        return v

    def _multipliers(self, own: Array, S: Array | None) -> Array:
        """Return multipliers of all rows from those of the square; zero where the norm is zero."""
        half = self.program.A.adjoint(own) / 2
        if self.H is None or S is None:
            X = psd_part(self.X0 + half)
        else:
            squares = np.where(self.H > 0, self.H, 1.0) ** 2
            X = self.X0 + (half + S / 2) / squares
        v = self._at(X)
        norm, price = float(np.linalg.norm(v)), float(self.whole.c[self.whole.cones.axes[0]])
        return self._with_elements(self._slope(norm) * own, price * v / (norm or 1.0))

    def _with_elements(self, own: Array, negative: Array) -> Array:
        """Return multipliers of all rows, at the negatives of the elements' reduced costs."""
        y = scattered(self.left, own, self.whole.m)
        in_others = (self.whole.Bt @ y)[self.whole.cones.index[1:]]
        y[self.elements.row] = (negative - in_others) / self.elements.own
        return y


# Pays on: nearest correlation matrix by its norm.
def least_norm(program: Program, tolerances: Tolerances) -> Squared | None:
    """Replace the norm of a matrix minus a constant, as the objective, by its square."""
    if not _has_norm(program):
        return None
    rows = sparse_svec(program.A)
    elements = _elements_of(program, rows)
    if elements is None:
        return None
    slope, count = elements.entry / elements.own, rows.shape[1]
    weight = np.bincount(elements.place, slope**2, count)
    if np.count_nonzero(weight) <= _MOST_ENTRIES * count:
        return None
    nearest = np.bincount(elements.place, slope * elements.right / elements.own, count)
    nearest = np.divide(nearest, weight, out=np.zeros(count), where=weight > 0)
    scale, lengths = float(weight.max()), svec(np.ones(2 * program.A.orders))
    vectors = np.array([nearest, lengths * np.sqrt(weight / scale)])
    X0, H = Svec(program.A.orders, 0).points(vectors)[0][0]
    uniform = weight.min() >= (1 - _EQUAL) * scale
    parameters = {} if uniform else {"weights": H}
    left = np.setdiff1d(np.arange(program.m), elements.row)
    in_left = sp.csr_array(program.B[left][:, program.cones.index[1:]])
    A, bounds = program.A.slice(left), program.bounds.slice(left)
    if in_left.nnz:
        per_element = sp.csr_array(in_left @ sp.diags_array(1 / elements.own))
        moved = per_element @ elements.right
        A = svec_map(A.orders, sp.csr_array(rows[left] - per_element @ rows[elements.row]))
        bounds = replace(bounds, lo=bounds.lo - moved, hi=bounds.hi - moved)
    nearness = Nearness("frobenius", X0, parameters=parameters)
    squared = replace(
        program.of_variables(np.zeros(0, dtype=np.intp)),
        blocks=(replace(program.blocks[0], cost=None, nearness=nearness),),
        A=A,
        B=sp.csr_array((len(left), 0)),
        bounds=bounds,
        cones=NO_CONES,
        offset=0.0,
        constant=None,
        labels=program.labels_of(left),
    )
    return Squared(program, squared, elements, scale, X0, None if uniform else H, left)


def _has_norm(program: Program) -> bool:
    """Whether the axis of a cone of all variables is the objective of a program of one matrix."""
    cones = program.cones
    if cones.count != 1 or cones.size != program.k or len(program.blocks) != 1 or program.terms:
        return False
    block, axis, tail = program.blocks[0], cones.axes[0], cones.index[1:]
    if block.nearness is not None or block.cap is not None or block.cost is not None:
        return False
    boxed = np.isfinite(program.u_hi).any() or np.isfinite(program.u_lo[tail]).any()
    return bool(program.c[axis] > 0) and not (boxed or program.u_lo[axis] > 0 or program.c[tail].any())


def _elements_of(program: Program, rows: Any) -> Elements | None:
    """Return the elements of the norm, each with a row that says what it is; None without such.

    A row with an entry goes before one that says a constant.
    """
    tail, bounds, B = program.cones.index[1:], program.bounds, program.B
    count = np.diff(rows.indptr)
    single = (np.diff(B.indptr) == 1) & (count <= 1) & bounds.equal & bounds.hard
    own = np.flatnonzero(single)
    own = own[np.argsort(-count[own], kind="stable")]
    column, first = np.unique(B.indices[B.indptr[own]], return_index=True)
    if not np.array_equal(column, np.sort(tail)) or B[:, [int(program.cones.axes[0])]].count_nonzero():
        return None
    row = own[first][np.searchsorted(column, tail)]
    coefficient, held = B.data[B.indptr[row]], count[row] > 0
    if not coefficient.all():
        return None
    place, entry = np.zeros(len(row), dtype=np.intp), np.zeros(len(row))
    at = rows.indptr[row[held]]
    place[held], entry[held] = rows.indices[at], rows.data[at]
    return Elements(row, place, entry, coefficient, bounds.lo[row])
