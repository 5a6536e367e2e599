"""Variables that rows fix or that only state an epigraph, and rows that say the same.

Modeling languages write ``X[i, j] == a``, ``|a| <= t`` and ``min |a|`` with a variable for each element:

- A *fixed* variable has an equation of its own: the known entries of a matrix that is to be completed. It
  becomes a constant.
- A *dominated* variable has no cost, and increasing it (or decreasing) relaxes all of its rows but one, which
  is its largest value. It takes that value: with ``a <= u``, ``-a <= u`` and ``u <= t`` it is ``u = t``.
- An *absolute value* has a price and two rows, ``u >= a - b`` and ``u >= d - a``. It is a hinge on the row
  ``a``, which pays outside of an interval.
- *Parallel* rows are equal up to sign, such as those of two mirrored entries of a symmetric matrix. Hard ones
  are one row with the tightest bounds, hinges on the same bounds are one with the sum of the prices.

A bound on the entries of a matrix of order 40 is 1,600 variables and 4,800 rows of CVXPY, and 820 rows here
(Andersen, Andersen 1995, Presolving in linear programming, section 3: dominated and duplicate rows).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.certify import is_farkas
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.presolve.svec import alike, orientation, sparse_svec
from bregopt.program import Answer, Penalty, Program, Start, StopReason
from bregopt.records import dataclass, replace

__all__ = ["AbsoluteValues", "Dominated", "FixedVariables", "ParallelRows"]

_MOST_TERMS = 3  # of a row that bounds a dominated variable: it takes the place of one in every other row
# Terms of all rows above which rows are not compared, of families of few terms and of all families.
_LARGEST_LISTED, _LARGEST_DENSE = 10_000_000, 1_000_000
_SAME = 1e-12  # relative distance of two sums above which they are sums of other numbers
_HINGE, _PENALTIES = int(Penalty.HINGE), {Penalty.HARD, Penalty.HINGE}


# --- Fixed and dominated variables ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Substituted(Reduced):
    """A program without its fixed or dominated variables, ``u_J = first + slope u_kept``.

    Parameters
    ----------
    J, kept : int array
        The fixed or dominated variables, and the others.
    first : array of shape (len(J),)
    slope : csr_array of shape (len(J), len(kept))
    row : int array of shape (len(J),)
        The row that fixes or bounds each; -1 where its box does.
    left : int array
        The remaining rows.
    """

    J: IntArray
    kept: IntArray
    first: Array
    slope: Any
    row: IntArray
    left: IntArray

    @property
    def summary(self) -> str:
        count = len(self.J)
        return f"{count} variable{'s' if count > 1 else ''} fixed by rows or at bounds of epigraphs"

    def contradiction(self) -> Array | None:
        """Return a Farkas vector where a row has nothing left and may not be zero."""
        own, bounds = self.program, self.program.bounds
        empty = (own.A.norms() == 0) & (np.diff(own.B.indptr) == 0) & bounds.hard
        for k in np.flatnonzero(empty & ((bounds.lo > 0) | (bounds.hi < 0))):
            y = np.zeros(own.m)
            y[k] = 1.0 if bounds.lo[k] > 0 else -1.0
            y = self._multipliers(y, 0 * self.whole.c)
            if is_farkas(self.whole, y):
                return y
        return None

    def shrink(self, start: Start) -> Start:
        return replace(start, u=start.u[self.kept], y=start.y[self.left])

    def restore(self, answer: Answer) -> Answer:
        u = np.zeros(self.whole.k)
        u[self.kept] = answer.u
        u[self.J] = self.slope @ answer.u + (0.0 if answer.stop is StopReason.UNBOUNDED else self.first)
        costs = self.whole.c if answer.stop is not StopReason.INFEASIBLE else 0 * self.whole.c
        on_faces = None if answer.y_on_faces is None else self._multipliers(answer.y_on_faces, costs)
        return replace(answer, u=u, y=self._multipliers(answer.y, costs), y_on_faces=on_faces)

    def _multipliers(self, own: Array, costs: Array) -> Array:
        """Return multipliers of all rows; those of the variables' own rows leave them no reduced cost."""
        y, bounded = np.zeros(self.whole.m), self.row >= 0
        y[self.left] = own
        J, row = self.J[bounded], self.row[bounded]
        y[row] = (costs - self.whole.B.T @ y)[J] / _elements(self.whole.B, row, J)
        return y


# Pays on: completion of 24 x 24.
class FixedVariables:
    """Substitute the variables that equations in no other variable and no matrix fix within their boxes.

    Penalties other than hinges are no functions of differences, so that their rows keep their variables.
    """

    name: ClassVar[str] = "fixed variables"
    universal: ClassVar[bool] = True

    def apply(self, program: Program, tolerances: Tolerances) -> Substituted | None:
        bounds = program.bounds
        if program.k == 0 or program.terms:
            return None
        row = np.flatnonzero(bounds.equal & bounds.hard & (np.diff(program.B.indptr) == 1))
        row = row[program.A.norms()[row] == 0]
        if not len(row):
            return None
        column = program.B.indices[program.B.indptr[row]]
        weight = program.B.data[program.B.indptr[row]]
        value = bounds.lo[row] / np.where(weight == 0, 1.0, weight)
        movable = np.isin(bounds.kind, (int(Penalty.HARD), int(Penalty.HINGE)))
        tied = np.asarray(abs(program.B[~movable]).sum(axis=0)).ravel() > 0
        once = np.bincount(column, minlength=program.k)[column] == 1
        inside = (program.u_lo[column] <= value) & (value <= program.u_hi[column])
        taken = once & inside & (weight != 0) & ~tied[column] & ~program.in_cones[column]
        found = list(zip(column[taken].tolist(), row[taken].tolist(), strict=True))
        return _substituted(program, found) if found else None


class Dominated:
    """Give variables without cost, which relax all rows but one, the largest value that this one allows."""

    name: ClassVar[str] = "epigraphs"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Substituted | None:
        free = (program.c == 0) & ~program.in_cones
        if not free.any():
            return None
        B, bounds = sp.csr_array(program.B, copy=True), program.bounds
        B.eliminate_zeros()
        B = B.tocoo()
        row, column, value = B.row, B.col, B.data
        below, above = np.isfinite(bounds.lo)[row], np.isfinite(bounds.hi)[row]
        one_sided = bounds.hard[row] & (below ^ above)
        # Whether an increase of the variable relaxes the row, and a decrease.
        up, down = one_sided & ((value > 0) == below), one_sided & ((value > 0) == above)
        several = np.bincount(column, minlength=program.k) > 1
        relaxed = np.bincount(column, up, program.k), np.bincount(column, down, program.k)
        found = []
        for relaxes, number, end, other in (
            (up, relaxed[0], program.u_hi, program.u_lo),
            (down, relaxed[1], program.u_lo, program.u_hi),
        ):
            blocked = np.bincount(column, minlength=program.k) - number
            boxed = free & (number > 0) & (blocked == 0) & np.isfinite(end)
            found += [(int(j), -1) for j in np.flatnonzero(boxed)]
            single = free & several & (number > 0) & (blocked == 1) & np.isinf(end) & np.isinf(other)
            if single.any():
                k = np.flatnonzero(single[column] & ~relaxes & one_sided)
                found += list(zip(column[k].tolist(), row[k].tolist(), strict=True))
        return _substituted(program, found) if found else None


def _substituted(program: Program, found: list[tuple[int, int]]) -> Substituted | None:
    """Return the program without variables that are given with their bounding rows.

    A bounding row has few terms, no matrix, and no other variable of these.
    """
    J, row = np.array(sorted({j: (j, r) for j, r in reversed(found)}.values()), dtype=np.intp).T
    by_row, norms = row >= 0, program.A.norms()
    good = ~by_row | ((norms[row] == 0) & (np.diff(program.B.indptr)[row] <= _MOST_TERMS))
    chosen = np.zeros(program.k)
    chosen[J[good]] = 1.0
    good &= ~by_row | ((abs(program.B) > 0).astype(float) @ chosen == 1)[row]
    J, row, by_row = J[good], row[good], by_row[good]
    if not len(J):
        return None
    mask = np.zeros(program.k, dtype=bool)
    mask[J] = True
    kept, bounding = np.flatnonzero(~mask), row[by_row]
    left = np.setdiff1d(np.arange(program.m), bounding)
    bounds, first = program.bounds, np.zeros(len(J))
    end = np.where(np.isfinite(bounds.lo), bounds.lo, bounds.hi)[bounding]
    first[~by_row] = _finite_end(program, J[~by_row])
    own = _elements(program.B, bounding, J[by_row])
    first[by_row] = end / own
    place = sp.csr_array((-1 / own, (np.flatnonzero(by_row), np.arange(len(own)))), (len(J), len(own)))
    slope = sp.csr_array(place @ program.B[bounding][:, kept])
    in_rows = program.B[left][:, J]
    moved = in_rows @ first
    smaller = replace(
        program.of_variables(kept),
        A=program.A.slice(left),
        B=sp.csr_array(program.B[left][:, kept] + in_rows @ slope),
        bounds=replace(bounds.slice(left), lo=bounds.lo[left] - moved, hi=bounds.hi[left] - moved),
        labels=program.labels_of(left),
    )
    if program.c[J].any():  # of fixed variables, whose slopes are zero
        cost = float(program.c[J] @ first)
        smaller = replace(smaller, offset=program.offset + cost, constant=program.stated_constant)
    return Substituted(program, smaller, J, kept, first, slope, row, left)


def _finite_end(program: Program, J: IntArray) -> Array:
    """Return the end of the box that each variable goes to, which relaxes all of its rows."""
    starts, row, value = program.by_columns
    first = starts[J]  # of all rows of a variable, which it relaxes in the same direction
    rises = (value[first] > 0) == np.isfinite(program.bounds.lo[row[first]])
    return np.where(rises, program.u_hi[J], program.u_lo[J])


def _elements(B: Any, row: IntArray, column: IntArray) -> Array:
    """Return the given elements of a sparse matrix."""
    return np.asarray(B[row, column]).ravel() if len(row) else np.zeros(0)


# --- Absolute values -----------------------------------------------------------------------------------


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
        on_faces = None if answer.y_on_faces is None else self._multipliers(answer.y_on_faces, costs)
        return replace(answer, u=u, y=self._multipliers(answer.y, costs), y_on_faces=on_faces)

    @property
    def _signs(self) -> Array:
        """1 where the two rows have the same coefficients but for the variable, -1 where opposite ones."""
        rises = np.isfinite(self.whole.bounds.lo[self.rows])
        return np.where(rises[0] == rises[1], -1.0, 1.0)

    def _multipliers(self, own: Array, costs: float) -> Array:
        """Return multipliers of all rows: the two of an absolute value share its price."""
        y = np.zeros(self.whole.m)
        y[self.left] = own
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


class AbsoluteValues:
    """Replace priced variables with two opposite rows by a hinge on one of them."""

    name: ClassVar[str] = "absolute values"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Folded | None:
        priced = (program.c > 0) & ~program.in_cones & np.isinf(program.u_hi)
        if not priced.any() or not _comparable(program):
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
    kind[first], gamma[first] = _HINGE, program.c[variable] / scale[0]
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
    coefficients, rises = _coefficients(program), np.isfinite(program.bounds.lo[rows])
    mask = np.ones(coefficients.shape[1])
    mask[coefficients.shape[1] - program.k + variable] = 0.0
    coefficients = sp.csr_array(coefficients @ sp.diags_array(mask))
    sign = np.where(rises, 1.0, -1.0) / scale
    parts = [sp.diags_array(sign[k]) @ coefficients[rows[k]] for k in (0, 1)]
    left = np.asarray(abs(parts[0] + parts[1]).sum(axis=1)).ravel()
    opposite: Mask = left == 0
    return opposite


# --- Parallel rows -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Merged(Reduced):
    """A program in which one row stands for all that are parallel to it.

    Parameters
    ----------
    left : int array
        The remaining rows.
    of : int array of shape (m,)
        The place among them of the row that stands for each.
    sign : array of shape (m,)
        Its sign in that.
    farkas : array of shape (m,), optional
        A Farkas vector, where two rows contradict each other.
    """

    left: IntArray
    of: IntArray
    sign: Array
    farkas: Array | None = None

    rescales: ClassVar[bool] = True  # each of the rows counts in the norm of the violations

    def contradiction(self) -> Array | None:
        return self.farkas

    @property
    def summary(self) -> str:
        count = self.whole.m - len(self.left)
        return f"{count} row{'s' if count > 1 else ''} parallel to another"

    def shrink(self, start: Start) -> Start:
        return replace(start, y=np.bincount(self.of, self.sign * start.y, len(self.left)).astype(float))

    def restore(self, answer: Answer) -> Answer:
        on_faces = None if answer.y_on_faces is None else self._multipliers(answer.y_on_faces)
        return replace(answer, y=self._multipliers(answer.y), y_on_faces=on_faces)

    def _multipliers(self, own: Array) -> Array:
        """Return multipliers of all rows: those with the tightest bound share one, hinges by their prices."""
        bounds, y = self.whole.bounds, own[self.of]
        lo, hi = _oriented(bounds, self.sign)
        tight = np.where(y > 0, lo == self.program.bounds.lo[self.of], hi == self.program.bounds.hi[self.of])
        weight = np.where(bounds.kind == _HINGE, bounds.gamma, 1.0) * tight
        total = np.bincount(self.of, weight, len(self.left))[self.of]
        shared: Array = self.sign * y * np.divide(weight, total, out=np.zeros(len(y)), where=total > 0)
        return shared


class ParallelRows:
    """Merge hard rows, and hinges on the same bounds, that are equal up to sign."""

    name: ClassVar[str] = "parallel rows"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Merged | None:
        if program.m < 2 or not program.bounds.kinds <= _PENALTIES or _all_differ(program):
            return None
        if not _comparable(program):
            return None
        rows = _coefficients(program)
        first = orientation(rows)
        lo, hi = _oriented(program.bounds, first)
        hinge = program.bounds.kind == _HINGE
        # Hinges merge with those on the same bounds alone, hard rows with all hard ones.
        group = alike(rows, first, np.where(hinge, hi, 0.0), np.where(hinge, lo, 0.0), hinge)
        if group is None:
            return None
        return _merged(program, group, first, lo, hi)


def _merged(program: Program, group: IntArray, first: Array, lo: Array, hi: Array) -> Merged | None:
    count = int(group.max()) + 1
    tightest = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(tightest[0], group, lo)
    np.minimum.at(tightest[1], group, hi)
    crossed, farkas = tightest[0] > tightest[1], None
    if crossed.any():  # they stay apart, and contradict each other if that is more than round-off
        rows = np.flatnonzero(group == np.argmax(crossed))
        y = np.zeros(program.m)
        for k, price in ((rows[np.argmax(lo[rows])], 1.0), (rows[np.argmin(hi[rows])], -1.0)):
            y[k] += price * first[k]
        farkas = y if is_farkas(program, y) else None
        group = np.where(crossed[group], count + np.arange(program.m), group)
    _, leader, of = np.unique(group, return_index=True, return_inverse=True)
    if len(leader) == program.m and farkas is None:
        return None
    left = np.sort(leader)
    of = np.searchsorted(left, leader)[np.ravel(of)]
    bounds, sign = program.bounds.slice(left), first * first[left][of]
    own = _oriented(program.bounds, sign)
    lo, hi = np.full(len(left), -np.inf), np.full(len(left), np.inf)
    np.maximum.at(lo, of, own[0])
    np.minimum.at(hi, of, own[1])
    hinge = bounds.kind == _HINGE
    gamma = np.where(
        hinge, np.bincount(of, np.where(program.bounds.kind == _HINGE, program.bounds.gamma, 0.0)), np.inf
    )
    merged = replace(
        program,
        A=program.A.slice(left),
        B=program.B[left],
        bounds=replace(bounds, lo=lo, hi=hi, gamma=gamma),
        labels=program.labels_of(left),
    )
    return Merged(program, merged, left, of, sign, farkas)


def _all_differ(program: Program) -> bool:
    """Whether no two rows have the same weighted sum of coefficients, up to sign; kept with the rows."""
    known = program.A.plans.get(ParallelRows)
    if known is None or known[0] is not program.B:
        rng = np.random.default_rng(0)
        weights = [rng.uniform(1.0, 2.0, (n, n)) for n in program.A.orders]
        sums = program.activity([W + W.T for W in weights], rng.uniform(1.0, 2.0, program.k))
        size = np.sort(np.abs(sums))
        known = program.A.plans[ParallelRows] = program.B, bool((np.diff(size) > _SAME * size[1:]).all())
    return bool(known[1])


def _oriented(bounds: Any, sign: Array) -> tuple[Array, Array]:
    """Return the bounds of rows times signs."""
    return np.where(sign > 0, bounds.lo, -bounds.hi), np.where(sign > 0, bounds.hi, -bounds.lo)


def _comparable(program: Program) -> bool:
    """Whether all rows are listed by few terms, or by few enough."""
    rows = [term.rows for term in program.A.terms]
    few, count = all(own.few_terms for own in rows), sum(own.count() for own in rows)
    return count <= (_LARGEST_LISTED if few else _LARGEST_DENSE)


def _coefficients(program: Program) -> Any:
    """Return the coefficients of all rows as one CSR matrix, entries of matrices first."""
    both = sp.csr_array(sp.hstack([sparse_svec(program.A), program.B], format="csr"))
    both.sum_duplicates()
    both.eliminate_zeros()
    return both
