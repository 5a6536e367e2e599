"""Programs with exponential cones, read directly, with convex terms in place of the cones.

An element ``(s_0, s_1, s_2)`` of the exponential cone, ``s_1 exp(s_0 / s_1) <= s_2``, is the convex row
``s_0 + s_1 log(s_1 / s_2) <= 0``, or ``exp(s_0) <= s_2`` where ``s_1 = 1``. A price ``p`` of such a row times
its derivatives is an element of the dual cone.

CVXPY states each atom by a variable. Where a cone alone bounds a free variable, which then has a cost or is
in one inequality, its bound takes its place: ``exp(l) <= t`` with the cost ``w t`` is the term ``w exp(l)``
of the objective, and ``t <= x log(y / x)`` gives relative entropies. Of exponentials alone in a row,
``sum_k w_k exp(l_k) <= h``, the logarithm is taken, ``log sum_k exp(l_k + log(w_k / h)) <= 0``. A variable
that all ``l_k`` have with one coefficient, as in ``log_sum_exp`` and ``logistic``, comes out of the sum, and
is a bound again. Where all cones are logarithms of rows in the objective, ``-w log l``, no term is left:
these rows are logarithmic ones, which the interior-point method takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray
from bregopt.cvxpy.conic_program import Conic, others
from bregopt.cvxpy.readings import pivots_of, read_directly
from bregopt.program import Penalty, Program
from bregopt.program import convex_functions as functions
from bregopt.program.convex_terms import ConvexTerm
from bregopt.records import replace

_OBJECTIVE, _OWN = -1, -2  # in place of the number of a row


class _Outlets(NamedTuple):
    """Where bounds of variables go: to the objective, to another row, or nowhere, in a row of their own.

    Parameters
    ----------
    variable, target : int arrays
    coefficient, weight : arrays
        Of the variable in its bound, and of the bound at its target.
    """

    variable: IntArray
    target: IntArray
    coefficient: Array
    weight: Array

    def at(self, places: IntArray) -> _Outlets:
        """Return some of them."""
        variable, target, coefficient, weight = self
        return _Outlets(variable[places], target[places], coefficient[places], weight[places])


class _Sum(NamedTuple):
    """A row of exponentials, as a logarithm of their sum.

    Parameters
    ----------
    row : int
    cones : int array
        Those of the exponentials.
    logs : array
        The logarithms of their weights.
    outlet : _Outlets
        Of the variable that comes out, as one bound.
    """

    row: int
    cones: IntArray
    logs: Array
    outlet: _Outlets

    @property
    def place(self) -> int:
        """The row, the target of its bound, or the objective."""
        target = int(self.outlet.target[0])
        return self.row if target == _OWN else target


# Pays on: exponentials of a diagonal through CVXPY, n = 20.
class Exponential:
    """(P) read directly, with terms for its exponential cones.

    Parameters
    ----------
    conic : Conic
        With exponential cones.
    """

    dual: ClassVar[bool] = False

    def __init__(self, conic: Conic) -> None:
        m, own = len(conic.b), 3 * conic.exponential
        # Read as equalities, which come first, their rows are those of ``s``, less the constants.
        self._order = np.concatenate([np.arange(m - own, m), np.arange(m - own)])
        A, b = sp.csr_array(conic.A[self._order]), conic.b[self._order]
        A.data[: A.indptr[own]] *= -1
        b[:own] *= -1
        read = replace(conic, A=A, b=b, zero=conic.zero + own, exponential=0)
        self._direct = read_directly(read, pivots_of(read))
        self._plain = plain = self._direct.program
        self._rows = np.arange(own).reshape(-1, 3)
        self._constant = -plain.bounds.hi[:own]
        self._B = sp.csr_array(plain.B, copy=True)
        self._B.sum_duplicates()
        self._B.eliminate_zeros()
        first, second, third = self._rows.T
        empty = (np.diff(self._B.indptr)[second] == 0) & (plain.A.norms()[second] == 0)
        raised, lowered = self._outlets(third, 1.0), self._outlets(first, -1.0)
        of_one = empty & (self._constant[second] == 1)
        self._logs = self._logarithms(of_one & (lowered.target == _OBJECTIVE))
        self._is_exp = of_one & (raised.target != _OWN) & (len(self._logs) == 0)
        chosen = (np.where(self._is_exp, a, b) for a, b in zip(raised, lowered, strict=True))
        self._outlet = _Outlets(*chosen)
        # What a bound adds to its target beside its function.
        self._beside = np.where(self._is_exp, -self._constant[third], self._constant[first])
        self._sums = list(self._found_sums())
        self.program = self._with_terms()

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer."""
        return self._direct.x(S, self._whole(S, u), y)

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return the ``z`` of an answer, or of a Farkas vector of tangents at `S` and `u`."""
        whole, own = np.zeros(self._plain.m), self._rows.size
        whole[self._kept_rows] = y
        if len(self._logs):
            triples = self._of_logs(whole[self._logs], self._outlet.weight * float(priced))
        else:
            triples = self._of_terms(whole, self._arguments(S, self._whole(S, u)), float(priced))
        z = np.empty(len(self._order))
        found = self._direct.of_rows(np.concatenate([triples.T.ravel(), whole[own:]]), priced)
        found[:own] *= -1
        z[self._order] = found
        return z

    def _of_logs(self, y: Array, p: Array) -> Array:
        """Return the multipliers of the cones of logarithms of the price `p` at multipliers of their rows."""
        return np.array([-p, -p * (1 + np.log(np.maximum(y, TINY) / np.maximum(p, TINY))), y])

    def _of_terms(self, whole: Array, s: Array, paid: float) -> Array:
        """Return the multipliers of the cones at their `s`; those of sums are added to `whole`."""
        outlet = self._outlet

        def prices(of: _Outlets) -> Array:
            return of.weight * np.where(of.target == _OBJECTIVE, paid, -whole[of.target])

        for part in self._sums:
            logs = s[self._rows[part.cones, 0]] + part.logs
            price = -whole[part.row] if part.place == part.row else float(prices(part.outlet)[0])
            whole[part.row] = -price / (np.exp(logs).sum() * self._most(part.row))
        p = np.where(outlet.target == _OWN, -whole[self._rows[:, 0]], prices(outlet))
        first, second, third = s[self._rows].T
        ratio = np.maximum(second, TINY) / np.maximum(third, TINY)
        e = np.exp(np.where(self._is_exp, first, 0.0))
        of_exp, of_ratio = [-e, e * (first - 1), 1 + 0 * e], [-1 + 0 * e, -np.log(ratio) - 1, ratio]
        return np.asarray(p * np.where(self._is_exp, of_exp, of_ratio))

    # --- The program ---------------------------------------------------------------------------------------

    def _outlets(self, rows: IntArray, sign: float) -> _Outlets:
        """Return the outlets of rows with one variable and a constant, whose growth times `sign` costs."""
        B, plain = self._B, self._plain
        single = (np.diff(B.indptr)[rows] == 1) & (plain.A.norms()[rows] == 0)
        at = np.where(single, B.indptr[rows], 0)
        if not single.any():
            return _nowhere(len(rows))
        variable, a = B.indices[at].astype(np.intp), B.data[at]
        return self._outlets_of(single, variable, a, rows, 1, sign)

    def _outlets_of(
        self, good: Any, variable: IntArray, a: Array, in_rows: Any, count: int, sign: float
    ) -> _Outlets:
        """Return the outlets of variables in `count` rows, of the sums `in_rows`, and in no other or one."""
        B, plain, own = self._B, self._plain, self._rows.size
        times = np.bincount(B.indices, minlength=plain.k)[variable]
        row = np.repeat(np.arange(plain.m), np.diff(B.indptr))
        other = np.bincount(B.indices, row, plain.k)[variable] - in_rows
        other = np.where(good & (times == count + 1), other, 0).astype(np.intp)  # else no row's number
        inequality = (other >= own) & np.isinf(plain.bounds.lo[other]) & np.isfinite(plain.bounds.hi[other])
        cost, slope = plain.c[variable], np.asarray(B[other, variable]).ravel()
        good = good & plain.free[variable]
        paid = good & (times == count) & (sign * a * cost > 0)
        tight = good & (times == count + 1) & (cost == 0) & inequality & (sign * a * slope > 0)
        target = np.where(paid, _OBJECTIVE, np.where(tight, other, _OWN))
        return _Outlets(variable, target, a, sign * np.where(paid, cost, slope) / a)

    def _most(self, row: int) -> float:
        """Return the upper bound of a row, less what the bounds in it add beside their functions."""
        inside = self._outlet.target == row
        return float(self._plain.bounds.hi[row] - (self._outlet.weight * self._beside)[inside].sum())

    # Pays on: logarithms of 15 quadratic forms through CVXPY, n = 8.
    def _logarithms(self, paid: Any) -> IntArray:
        """Return the rows of ``l`` where each cone is a `paid` ``-w log l`` beside matrices, else none."""
        rows: IntArray = self._rows[:, 2]
        return rows if self._plain.blocks and paid.all() else rows[:0]

    def _found_sums(self) -> Iterator[_Sum]:
        B, outlet = self._B, self._outlet
        for row in np.unique(outlet.target[self._is_exp & (outlet.target >= 0)]).tolist():
            cones = np.flatnonzero(outlet.target == row)
            alone = B.indptr[row + 1] - B.indptr[row] == len(cones) and self._plain.A.norms()[row] == 0
            most = self._most(row)
            if not alone or not self._is_exp[cones].all() or most <= 0:
                continue
            logs, rows = np.log(outlet.weight[cones] / most), self._rows[cones, 0]
            yield _Sum(row, cones, logs, self._common(rows))

    def _common(self, rows: IntArray) -> _Outlets:
        """Return the outlet of a variable with the same coefficient in all rows."""
        B = self._B[rows]
        number, variable = len(rows), B.indices[: B.indptr[1]].astype(np.intp)
        if len(variable):
            a, block = B.data[: B.indptr[1]], B[:, variable]
            same = (np.abs(block.toarray() - a)).max(axis=0) == 0
            found = self._outlets_of(same, variable, a, np.full(len(a), rows.sum()), number, -1.0)
            good = np.flatnonzero(found.target != _OWN)[:1]
            if len(good):
                return found.at(good)
        return _nowhere(1)

    def _with_terms(self) -> Program:
        plain, outlet, own = self._plain, self._outlet, self._rows.size
        out = [part for part in self._sums if part.place != part.row]
        gone = [outlet.variable[outlet.target != _OWN], *(part.outlet.variable for part in out)]
        self._kept = others(np.concatenate(gone), plain.k)
        left = np.ones(plain.m, dtype=bool)
        left[:own] = False
        left[self._rows[outlet.target == _OWN, 0]] = True
        left[self._logs] = True
        left[[part.row for part in out]] = False
        self._kept_rows = rows = np.flatnonzero(left)
        place = np.cumsum(left) - 1
        lo, hi, beside = plain.bounds.lo.copy(), plain.bounds.hi.copy(), outlet.weight * self._beside
        kind, gamma = plain.bounds.kind.copy(), plain.bounds.gamma.copy()
        lo[:own] = -np.inf
        logs = self._logs
        lo[logs], hi[logs], kind[logs] = -self._constant[logs], np.inf, int(Penalty.LOG)
        gamma[logs] = outlet.weight[: len(logs)]
        inside = outlet.target >= 0
        np.subtract.at(hi, outlet.target[inside], beside[inside])
        hi[[part.row for part in self._sums]] = 0.0
        program = plain.of_rows(rows).of_variables(self._kept)
        return replace(
            program,
            bounds=replace(program.bounds, lo=lo[rows], hi=hi[rows], kind=kind[rows], gamma=gamma[rows]),
            offset=plain.offset + float(beside[outlet.target == _OBJECTIVE].sum()),
            constant=plain.stated_constant,
            terms=() if len(logs) else tuple(self._terms(place)),
        )

    def _terms(self, place: IntArray) -> Iterator[ConvexTerm]:
        """Yield the terms; `place` has the number of each row among those that are left."""
        outlet, first = self._outlet, self._rows[:, 0]
        summed = np.zeros(len(first), dtype=bool)
        for size, parts in groupby(
            sorted(self._sums, key=lambda part: (len(part.cones), part.place == _OBJECTIVE)),
            key=lambda part: (len(part.cones), part.place == _OBJECTIVE),
        ):
            own = list(parts)
            cones = np.concatenate([part.cones for part in own])
            summed[cones] = True
            prices = [1.0 if part.place == part.row else float(part.outlet.weight[0]) for part in own]
            yield self._term(
                functions.LogSumExp(len(own), size[0]),
                first[cones],
                np.concatenate([part.logs for part in own]),
                np.array(prices),
                None if size[1] else place[[part.place for part in own]],
            )
        target = np.where(outlet.target == _OWN, first, outlet.target)
        weight = np.where(outlet.target == _OWN, 1.0, outlet.weight)
        for kind in (True, False):
            for paid in (True, False):
                k = np.flatnonzero((self._is_exp == kind) & ~summed & ((target == _OBJECTIVE) == paid))
                if not len(k):
                    continue
                rows = first[k] if kind else self._rows[k, 1:].T.ravel()
                function: Any = (functions.Exponential if kind else functions.NumbersRelativeEntropy)(len(k))
                yield self._term(
                    function, rows, np.zeros(len(rows)), weight[k], None if paid else place[target[k]]
                )

    def _term(
        self, function: Any, rows: IntArray, shift: Array, weight: Array, place: IntArray | None
    ) -> ConvexTerm:
        B = sp.csr_array(self._B[rows][:, self._kept])
        return ConvexTerm(function, self._plain.A.slice(rows), B, self._constant[rows] + shift, weight, place)

    # --- Its answers ---------------------------------------------------------------------------------------

    def _arguments(self, S: Sequence[Array], whole: Array) -> Array:
        """Return the ``s`` of the exponential cones."""
        own = self._rows.size
        s: Array = self._plain.activity(S, whole)[:own] + self._constant
        return s

    def _whole(self, S: Sequence[Array], u: Array) -> Array:
        """Return the variables with those that are bounds."""
        whole, outlet = np.zeros(self._plain.k), self._outlet
        whole[self._kept] = u
        s = self._arguments(S, whole)
        for part in self._sums:
            if part.place != part.row:
                logs = s[self._rows[part.cones, 0]] + part.logs
                value = functions.LogSumExp(1, len(logs)).value(logs)
                whole[part.outlet.variable] = -value / part.outlet.coefficient
        first, second, third = self._arguments(S, whole)[self._rows].T
        ratio = np.maximum(second, TINY) / np.maximum(third, TINY)
        value = np.where(self._is_exp, np.exp(np.where(self._is_exp, first, 0.0)), -second * np.log(ratio))
        bound = outlet.target != _OWN
        end = (value + np.where(self._is_exp, 1.0, -1.0) * self._beside) / outlet.coefficient
        whole[outlet.variable[bound]] = end[bound]
        return whole


def _nowhere(count: int) -> _Outlets:
    none = np.zeros(count, dtype=np.intp)
    return _Outlets(none, np.full(count, _OWN), np.ones(count), np.ones(count))
