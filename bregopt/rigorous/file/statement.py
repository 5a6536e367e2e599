"""The statement of a certificate: its problem and points in integers, as JSON that `bregopt-check` reads.

The problem is written in one form, so that its checker is short:

    minimize c'x  subject to  a_k'x = b_k  or  a_k'x >= b_k,

over entries of psd matrices, variables that are not negative, free ones, and second-order cones, in this
order. So a row with two ends is two rows; a variable in a box is its distance from one end, with a row for
the other. All numbers of the problem are integers in units of ``2**-bits``. A point ends with a number `t`,
by which it is divided.

A statement also says which rows a point solves exactly, which of its numbers stay, and a bound below the
singular values of these equations. The checker proves all of it: a wrong number proves less, and nothing
false.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement as pairs
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.program import Penalty
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.convex_terms import StatedTerm
from bregopt.rigorous.data import Data, MatrixData
from bregopt.rigorous.faces import IntegerFace, RowFace
from bregopt.rigorous.fractions.multipliers import costless_changes
from bregopt.rigorous.linear_algebra import fractions_of, least_eigenvalue, terms_of

Row = dict[int, tuple[int, int]]  # coefficients with radii, by unknowns; the unknown -1 is t

_EQUAL, _LEAST = 0, 1  # relations of rows
_SPARE = 32  # binary digits of points beyond those of their doubles
_FEWEST = 64  # binary digits of multipliers, to which those of boxes are rounded
_TINY = 20  # binary digits below the largest multiplier, from which on one stays fixed
_MORE = 1e-9  # of an eigenvalue of which a bound is known
_ROOM = 1e-13  # of multipliers of boxes, relative to the sum that they make positive
_FACTOR = 0.99  # of singular values, for the rounding of their bound
_GUARD = 32  # binary digits of singular values after those of their rows
_SHARP = 1e-9  # of the largest eigenvalue of M M', below which its root is not accurate
_LARGEST_SVD = 3e7  # entries times the order


class _Units:
    """Doubles as integers in units of ``2**-bits``."""

    def __init__(self, bits: int) -> None:
        self.one = 1 << bits

    def __call__(self, x: float) -> int:
        p, q = float(x).as_integer_ratio()
        return p * (self.one // q)

    def each(self, values: Any) -> list[int]:
        """Return the integers of an array."""
        return [self(x) for x in np.ravel(values).tolist()]

    def table(self, values: Array) -> list[list[int]]:
        """Return the integers of a matrix, row by row."""
        return [self.each(row) for row in values]


def _digits(arrays: Iterable[Any]) -> int:
    """Return the binary digits after the point that finite doubles have at most."""
    found = 0
    for array in arrays:
        own = np.unique(np.ravel(array))
        finite = own[np.isfinite(own)].tolist()
        found = max([found, *(x.as_integer_ratio()[1].bit_length() - 1 for x in finite)])
    return found


class _Variables(NamedTuple):
    """Ordinary variables as distances ``sign (u - shift)``, by their numbers among the unknowns."""

    at: list[int]
    sign: Array
    shift: Array
    nonnegative: list[int]
    free: list[int]


class Statement:
    """The problem of a statement.

    Parameters
    ----------
    data : Data
        The problem before its reduction to faces.
    traces : array of shape (blocks,)
        Bounds on traces that the author states.
    terms : sequence of StatedTerm
        Convex terms, whose arguments are the last rows, and their sums.
    steps : sequence of RowFace
    face : IntegerFace, optional
        The faces of the statement. Rows on them have the digits of their factors twice.
    """

    def __init__(
        self,
        data: Data,
        traces: Array,
        terms: Sequence[StatedTerm] = (),
        steps: Sequence[RowFace] = (),
        face: IntegerFace | None = None,
    ) -> None:
        self.data, self.traces, self._terms = data, traces, terms
        self.orders = [block.n for block in data.matrices]
        counts = [n * (n + 1) // 2 for n in self.orders]
        self.starts = [sum(counts[:b]) for b in range(len(counts))]
        self.variables = self._placed(sum(counts))
        self.size = sum(counts) + data.k
        numbers = [data.offset, data.c.mid, data.c.rad, data.lo, data.hi, data.lo_rad, data.hi_rad]
        numbers += [term.weights for term in terms]
        numbers += [data.weight, data.u_lo, data.u_hi, traces, data.B.data]
        numbers += [own.data for own in (data.A_rad, data.B_rad, data.A) if own is not None]
        for block in data.matrices:
            numbers += [block.C.mid, block.C.rad, block.cap or 0.0]
            if block.anchor is not None:
                own = block.anchor
                numbers += [own.X0.mid, own.X0.rad, own.mu, 0.0 if own.weights is None else own.weights]
        factors = [_factor(step) for step in steps] + list(() if face is None else face.directions)
        more = 2 * sum(_digits([own]) for own in factors)
        self.bits = _digits(numbers) * (2 if self.variables.shift.any() else 1) + more
        self.units = _Units(self.bits)
        self._write_rows()

    def _placed(self, start: int) -> _Variables:
        data = self.data
        low, high = np.isfinite(data.u_lo), np.isfinite(data.u_hi)
        boxed = (low | high) & ~data.in_cone
        nonnegative, free = np.flatnonzero(boxed).tolist(), np.flatnonzero(data.free).tolist()
        order = [*nonnegative, *free, *data.cones.index.tolist()]
        at = np.zeros(data.k, dtype=int)
        at[order] = start + np.arange(data.k)
        sign = np.where(boxed & ~low, -1.0, 1.0)
        shift = np.where(boxed, np.where(low, data.u_lo, data.u_hi), 0.0)
        return _Variables(at.tolist(), sign, shift, nonnegative, free)

    def _write_rows(self) -> None:
        data, units, variables = self.data, self.units, self.variables
        rows = self._coefficients()
        self.cost = rows.pop()
        self.terms = self._stated_terms(rows)
        self.rows: list[list[Any]] = []
        self.sides: list[dict[int, int]] = [{} for _ in range(data.m)]  # the row of each sign
        self.soft: list[list[Any]] = []
        self.softs: list[int] = []
        for k, (moved, spread, entries) in enumerate(rows):
            ends = [
                (sign, units(end) - moved, units(rad) + spread)
                for sign, end, rad in ((1, data.lo[k], data.lo_rad[k]), (-1, data.hi[k], data.hi_rad[k]))
                if math.isfinite(end)
            ]
            if data.kind[k] != int(Penalty.HARD):
                own = {sign: [end, rad] for sign, end, rad in ends}
                self.softs.append(k)
                weight = units(data.weight[k])
                self.soft.append([int(data.kind[k]), weight, own.get(1, []), own.get(-1, []), entries])
            elif len(ends) > 1 and data.lo[k] == data.hi[k]:
                self.sides[k] = {1: len(self.rows), -1: len(self.rows)}
                self.rows.append([_EQUAL, *ends[0][1:], entries])
            else:
                for sign, end, rad in ends:
                    self.sides[k][sign] = len(self.rows)
                    signed = entries if sign > 0 else [[p, -a, e] for p, a, e in entries]
                    self.rows.append([_LEAST, sign * end, rad, signed])
        self.boxes: dict[int, int] = {}  # the rows of second ends, by variables
        for j in np.flatnonzero(np.isfinite(data.u_hi) & np.isfinite(data.u_lo) & ~data.in_cone).tolist():
            self.boxes[j] = len(self.rows)
            room = units(data.u_hi[j]) - units(data.u_lo[j])
            self.rows.append([_LEAST, -room, 0, [[variables.at[j], -units.one, 0]]])
        for j in data.cones.index.tolist():
            for sign, end in ((1, data.u_lo[j]), (-1, data.u_hi[j])):
                if math.isfinite(end):
                    self.rows.append([_LEAST, sign * units(end), 0, [[variables.at[j], sign * units.one, 0]]])
        self.given = [[b, units(r)] for b, r in enumerate(self.traces.tolist()) if r < math.inf]

    def _stated_terms(self, rows: Sequence[tuple[int, int, list[list[int]]]]) -> list[Any]:
        """Return terms with their arguments as rows, and the rows that bound their sums."""
        count = sum(term.size for term in self._terms)
        own = iter([-moved, spread, entries] for moved, spread, entries in rows[len(rows) - count :])
        return [
            [term.kind, self.units.each(term.weights), [*term.orders], [*islice(own, term.size)]]
            for term in self._terms
        ]

    def _coefficients(self) -> list[tuple[int, int, list[list[int]]]]:
        """Return what shifts take from the end of each row, its radius, and coefficients; costs come last."""
        data, units, variables = self.data, self.units, self.variables
        found: list[dict[int, list[int]]] = [{} for _ in range(data.m + 1)]
        for b, block in enumerate(data.matrices):
            place = self.starts[b] + block.i * block.n - block.i * (block.i - 1) // 2 + block.j - block.i
            places = place.tolist()
            for A, own in (
                (_with_cost(block.A, data.m, block.C.mid), 0),
                (_with_cost(block.A_rad, data.m, block.C.rad), 1),
            ):
                for k, p, value in terms_of(A):
                    found[k].setdefault(places[p], [0, 0])[own] = units(value)
            if block.null is not None:
                z = block.null.z.tolist()
                for p, (i, j) in enumerate(pairs(range(block.n), 2), self.starts[b]):
                    if z[i] and z[j]:
                        own_value = int(z[i] * z[j]) * (1 + (i < j)) * units.one
                        found[block.null.row][p] = [own_value, 0]
        moved, spread = [0] * (data.m + 1), [0] * (data.m + 1)
        for B, own in (
            (_with_cost(data.B, data.m, data.c.mid), 0),
            (_with_cost(data.B_rad, data.m, data.c.rad), 1),
        ):
            for k, j, value in terms_of(B):
                entry = found[k].setdefault(variables.at[j], [0, 0])
                entry[own] = units(value * (1.0 if own else variables.sign[j]))
                if variables.shift[j]:
                    by = units(value) * units(abs(variables.shift[j])) // units.one
                    spread[k] += by if own else 0
                    moved[k] += 0 if own else by if variables.shift[j] > 0 else -by
        entries = [[[p, *entry] for p, entry in sorted(row.items()) if any(entry)] for row in found]
        moved[-1] += units(data.offset)
        return list(zip(moved, spread, entries, strict=True))

    def problem(self, faces: list[Any]) -> dict[str, Any]:
        """Return the facts of the problem."""
        offset, radius, entries = self.cost
        return {
            "bits": self.bits,
            "matrices": [self._block(block) for block in self.data.matrices],
            "nonnegative": len(self.variables.nonnegative),
            "free": len(self.variables.free),
            "cones": self.data.cones.dimensions.tolist(),
            "cost": [-offset, radius, entries],
            "rows": self.rows,
            "given": self.given,
            "soft": self.soft,
            "terms": self.terms,
            "faces": faces,
        }

    def _block(self, block: MatrixData) -> dict[str, Any]:
        units = self.units
        found: dict[str, Any] = {"name": block.name, "n": block.n}
        if block.cap is not None:
            found["cap"] = units(block.cap)
        own = block.anchor
        if own is not None:
            found |= {"divergence": own.divergence, "mu": units(own.mu)}
            found |= {"X0": units.table(own.X0.mid), "radii": units.table(own.X0.rad)}
            found |= {} if own.weights is None else {"weights": units.table(own.weights)}
        return found

    # --- Faces

    def faces(self, steps: Sequence[RowFace], face: IntegerFace | None) -> tuple[list[Any], list[list[int]]]:
        """Return the faces that rows leave one after the other, and the indices of each block that stay."""
        kept, found = [list(range(n)) for n in self.orders], []
        if face is not None:
            sums = {k: v for k, v in enumerate(fractions_of(np.atleast_2d(face.weight))) if v}
            common = math.lcm(*(v.denominator for v in sums.values()))
            rows = [[next(iter(self.sides[k].values())), int(v * common)] for k, v in sums.items()]
            blocks = [self._direction(kept, b, T, 1) for b, T in enumerate(face.directions) if T.shape[1]]
            found.append([rows, blocks])
        for step in steps:
            side = self.sides[step.row].get(-step.sign, next(iter(self.sides[step.row].values()), -1))
            weight = step.sign if self.rows[side][0] == _EQUAL else -1
            found.append([[[side, weight]], [self._direction(kept, step.block, _factor(step)[:, None], -1)]])
        return found, kept

    def _direction(self, kept: list[list[int]], b: int, T: Array, order: int) -> list[Any]:
        """Return a block of a face, its eliminated indices, and `T` in units, one row for each that stays."""
        width = T.shape[1]
        rows = T.tolist()
        own = [next(i for i in range(len(T))[::order] if rows[i] == row) for row in np.eye(width).tolist()]
        units = [kept[b][i] for i in own]
        kept[b] = [i for k, i in enumerate(kept[b]) if k not in own]
        return [b, units, self.units.table(T)]

    # --- Points

    def multipliers(self, own: Data, y: Sequence[int], price: int) -> dict[str, Any]:
        """Return the point of a lower bound.

        Parameters
        ----------
        own : Data
            The problem on its faces.
        y : sequence of int
            Multipliers of its rows, in any unit.
        price : int
            The multiplier `t` of the costs, in the same unit.
        """
        y, price = self._costless(y, price)
        units, z, largest = self.units, [0] * len(self.rows), max(map(abs, y), default=0)
        for k, v in enumerate(y):
            side = self.sides[k].get(1 if v > 0 else -1)
            if v and side is not None:
                z[side] = v if self.rows[side][0] == _EQUAL else abs(v)
        soft = [y[k] for k in self.softs]
        costs = self._reduced_costs([*z, *soft], price)
        free = [self.variables.at[j] for j in self.variables.free]
        lacks = any(value or wide for value, wide, _ in (costs[p] for p in free))
        for j, r in self.boxes.items():
            value, wide, size = costs[self.variables.at[j]]
            room = math.ceil(_ROOM * size) if lacks or wide else 0
            z[r] = max(-(-(wide + room - value) // units.one), 0)
        z += self._of_traces(own, y, price)
        inequalities = [k for k, row in enumerate(self.rows) if row[0] == _LEAST]
        inequalities += range(len(self.rows), len(z))
        fixed = [k for k in inequalities if z[k] <= largest >> _TINY]
        signs = len(inequalities) + len(self.variables.nonnegative)
        columns = {p: f for f, p in enumerate(free)}
        moving = {k: m for m, k in enumerate(sorted({*range(len(self.rows))} - {*fixed}))}
        terms = [
            (columns[p], moving[k], a / units.one)
            for k in moving
            for p, a, _ in self.rows[k][-1]
            if p in columns
        ]
        M = _sparse(terms, (len(free), len(moving)))
        paid = np.flatnonzero(np.diff(M.indptr))  # the others cost nothing, or nothing is proven
        return {
            "at": [*z, *soft, price],
            "fixed": [*fixed, *range(len(z), len(z) + len(soft))],
            **_equations([signs + int(f) for f in paid] if lacks else [], M[paid], self.bits),
        }

    def costless_near(self, y: Array, price: float) -> Ball:
        """Return a ball around multipliers that has those at which free variables cost nothing."""
        own, unit = integers_of([*y[:, None].tolist(), [price]])
        moved, smaller = self._costless(own, unit)
        changes = [abs(Fraction(b, smaller) - Fraction(a, unit)) for a, b in zip(own, moved, strict=True)]
        return Ball(y, np.array([math.nextafter(float(own), math.inf) if own else 0.0 for own in changes]))

    def _costless(self, y: Sequence[int], price: int) -> tuple[Sequence[int], int]:
        """Return multipliers, in a smaller unit, at which free variables of soft rows cost nothing.

        The checker moves no multipliers of soft rows, as their penalties may leave them no room.
        """
        data, largest = self.data, max(map(abs, y), default=0)
        if not self.softs or data.B_rad is not None:
            return y, price
        most = [
            w * price if kind == int(Penalty.HINGE) else math.inf
            for kind, w in zip(data.kind, data.weight, strict=True)
        ]
        movable = [k for k in self.softs if _ROOM * largest < abs(y[k]) < (1 - _ROOM) * most[k]]
        try:
            changes = costless_changes(data, y, price, movable)
        except ValueError:  # no such multipliers
            return y, price
        unit = math.lcm(*(change.denominator for change in changes.values()))
        return [v * unit + int(changes.get(k, 0) * unit) for k, v in enumerate(y)], price * unit

    def _reduced_costs(self, z: list[int], price: int) -> dict[int, tuple[int, int, int]]:
        """Return the reduced costs of variables, their radii and the sizes of their terms."""
        start = self.size - self.data.k
        found = dict.fromkeys(range(start, self.size), (0, 0, 0))
        rows: list[tuple[list[list[int]], int]] = [(self.cost[2], -price)]
        rows += list(zip((row[-1] for row in (*self.rows, *self.soft)), z, strict=True))
        for entries, v in rows:
            for p, a, e in entries if v else ():
                if p >= start:
                    value, wide, size = found[p]
                    found[p] = value - a * v, wide + e * abs(v), size + abs(a * v)
        return found

    def _of_traces(self, own: Data, y: Sequence[int], price: int) -> list[int]:
        """Return the multipliers of stated traces that make slacks psd."""
        if not self.given:
            return []
        unit = price or max(map(abs, y))
        slacks = own.slacks(Ball.exact(np.array([v / unit for v in y])))
        found = []
        for b, _ in self.given:
            least = min(least_eigenvalue(own.matrices[b].matrix(slacks[b]), at_least=0.0), 0.0)
            found.append(math.ceil(Fraction(-least * (1 + _MORE)) * unit))
        return found

    def near(self, matrices: Sequence[Array], t: int) -> list[list[list[int]]]:
        """Return matrices from which terms of divergences take multipliers, in the unit of a point."""
        return [[[int(Fraction(x) * t) for x in row] for row in M.tolist()] for M in matrices]

    def point(
        self,
        own: Data,
        kept: Sequence[Sequence[int]],
        X: Sequence[Array],
        u: Array,
        equations: Sequence[int],
        movable: Sequence[int],
        t: int = 1,
    ) -> dict[str, Any]:
        """Return the point of an upper bound, or of a ray.

        Parameters
        ----------
        own : Data
            The problem on its faces.
        kept : sequence of sequences of int
            The indices of each block that its faces leave.
        X : sequence of arrays of shape (q, n, n)
            Matrices as sums of doubles.
        u : array of shape (q, k)
            Variables, likewise.
        equations, movable : sequences of int
            Rows to be solved, and variables that may change.
        t : int
            1; 0 for a ray.
        """
        variables = self.variables
        units = _Units(_digits([*X, u, variables.shift]) + _SPARE)
        z = [0] * self.size
        for b, parts in enumerate(X):
            n, start = self.orders[b], self.starts[b]
            upper = np.triu_indices(parts.shape[1])
            sums = [
                sum(map(units, own_parts))
                for own_parts in zip(*(M[upper].tolist() for M in parts), strict=True)
            ]
            for i, j, value in zip(*(side.tolist() for side in upper), sums, strict=True):
                k, m = kept[b][i], kept[b][j]
                z[start + k * n - k * (k - 1) // 2 + m - k] = value
        for j, p in enumerate(variables.at):
            value = sum(map(units, u[:, j].tolist())) - t * units(variables.shift[j])
            z[p] = value * int(variables.sign[j])
        first = [M[0] for M in X]
        activity = own.activity(first, u[0]).mid
        solved = []
        for k in equations:
            sides = self.sides[k]
            ends = float(self.data.lo[k]), float(self.data.hi[k])
            below, above = (abs(activity[k] - t * end) if math.isfinite(end) else math.inf for end in ends)
            low = below <= above
            solved += [sides.get(1 if low else -1, next(iter(sides.values())))] if sides else []
        M = own.A[list(equations)]
        if own.k:
            M = sp.csr_array(sp.hstack([M, own.B[list(equations)][:, list(movable)]]))
        return {
            "at": [*z, t * units.one],
            "fixed": [p for j, p in enumerate(variables.at) if j not in set(movable)],
            **_equations(solved, M, self.bits),
        }


def _factor(step: RowFace) -> Array:
    """Return the vector of a face that a row leaves, with a last entry of one."""
    z: Array = step.z / step.z[np.flatnonzero(step.z)[-1]]
    return z


def integers_of(sums: Sequence[Sequence[float]]) -> tuple[list[int], int]:
    """Return sums of doubles in one unit; the last one, a price, apart."""
    units = _Units(max(_digits([x for own in sums for x in own]), _FEWEST) + _SPARE)
    *y, price = (sum(map(units, own)) for own in sums)
    return y, price


def text(facts: dict[str, Any]) -> Array:
    """Return facts as the bytes of a file."""
    return np.frombuffer(json.dumps(facts, separators=(",", ":")).encode(), dtype=np.uint8)


def _with_cost(A: Any, m: int, cost: Array) -> Any:
    """Return rows with a cost as the last one; None for no rows has zeros."""
    return sp.vstack([sp.csr_array((m, len(cost))) if A is None else A, sp.csr_array(cost[None])])


def _sparse(terms: Sequence[tuple[int, int, float]], shape: tuple[int, int]) -> sp.csr_array:
    row, column, value = zip(*terms, strict=True) if terms else ((), (), ())
    return sp.csr_array((value, (row, column)), shape)


def _equations(numbers: list[int], M: Any, bits: int) -> dict[str, Any]:
    """Return equations with powers of two that scale them, and a bound below the singular values then."""
    M = sp.csr_array(M)
    sizes = abs(M).max(axis=1).toarray().ravel() if min(M.shape) else np.zeros(M.shape[0])
    if not numbers or not sizes.all():
        return {"equations": [[k, 0] for k in numbers], "singular": 0}
    exponents = np.frexp(sizes)[1]
    most = int(exponents.max())
    scaled = sp.csr_array(sp.diags_array(np.ldexp(1.0, -exponents)) @ M)
    values = np.linalg.eigvalsh((scaled @ scaled.T).toarray())
    least = math.sqrt(max(float(values[0]), 0.0))
    if values[0] < _SHARP * values[-1] and M.shape[0] ** 2 * M.shape[1] < _LARGEST_SVD:
        least = float(np.linalg.svd(scaled.toarray(), compute_uv=False)[-1])
    shifts = (most - exponents + _GUARD).tolist()
    return {
        "equations": [[k, shift] for k, shift in zip(numbers, shifts, strict=True)],
        "singular": int(Fraction(_FACTOR * least) * 2 ** (bits + most + _GUARD)),
    }
