"""Bounds in high precision: an interior-point method with hundreds of digits, proven in fractions.

Where the rows leave matrices or slacks hardly an interior, doubles cannot follow the central path to the
optimum, and what they reach may be far from it. Numbers of several hundred bits can: after some forty steps
of Mehrotra's method (HKM direction; Helmberg, Rendl, Vanderbei, Wolkowicz 1996) both bounds agree in all
digits of a double. The method itself proves nothing. Its multipliers and its point are rounded to sums of
doubles. Then fractions decide every condition of the bounds: whether slacks are psd
(:func:`bregopt.rigorous.fractions.multipliers.bound_of_multipliers`), and whether a matrix near the point
meets the rows and is psd (:func:`bregopt.rigorous.fractions.rational.bound_of_point`).

Arithmetic is that of FLINT. Numbers are midpoints of its balls, so that radii do not grow along the path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.errors import require
from bregopt.program import Penalty
from bregopt.records import replace
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import Data
from bregopt.rigorous.faces import IntegerFace, exposes, implied_rows
from bregopt.rigorous.fractions.multipliers import bound_of_multipliers, costless_changes
from bregopt.rigorous.fractions.rational import bound_of_point, rows_of
from bregopt.rigorous.linear_algebra import (
    LARGEST_PARTS,
    Vector,
    add_multiple,
    eliminated,
    fractions_of,
    sums_of_doubles,
    terms_of,
)
from bregopt.rigorous.reduction import implied_bounds

_BITS = 800  # of the numbers: at 400 round-off ends the path of hinf1 early
_UNIT_BITS = 500  # after the binary point of multipliers and points that are proven
_GAP, _SMALLEST_GAP = 1e-20, 1e-70  # relative, at which the path ends; the second one for faces
_VANISHING = 1e-35  # of slacks of trace one, and of their multipliers, that are zero on a face
_STEPS = 300
_FIRST = 1e3  # of the first iterate, relative to the usual sizes: a small one is led to the boundary at once
_LEAST_CENTERING, _CENTERING = 1e-4, 0.5  # the second while mu falls faster than the residual of the rows
_LAG = 1e2  # of the residual behind mu, in relation to the first iterate
_FRACTION, _FULL = 0.9, 0.99  # of the way to the boundary, after a short and after a full predictor
_LEAST_STEP = 1e-8
_WORK = 4e6  # rows times the cubes of the orders, a minute or so


class Digits(NamedTuple):
    """Multipliers and a point as sums of doubles, the largest parts first.

    Parameters
    ----------
    y : array of shape (q, m)
    X : tuple of arrays of shape (q, n, n)
    u : array of shape (q, k)
    equations : int array
        The rows that the point is corrected to meet exactly.
    shift : array of shape (q, 1)
        ``t`` with ``X + t I`` psd: what a bound on the trace of slacks allows; zero without one.
    """

    y: Array
    X: tuple[Array, ...]
    u: Array
    equations: IntArray
    shift: Array


def check_exact(data: Data) -> None:
    """Refuse problems that are not small or have other parts than linear ones.

    Raises
    ------
    ValueError
        With what was found and what to do.
    """
    radii = [data.c.rad, data.lo_rad, data.hi_rad, *(block.C.rad for block in data.matrices)]
    found = ""
    if any(block.anchor is not None or block.cap is not None for block in data.matrices):
        found = "a divergence, or a cap on eigenvalues"
    elif (data.kind != int(Penalty.HARD)).any():
        found = "soft rows"
    elif data.A_rad is not None or data.B_rad is not None or any(rad.any() for rad in radii):
        found = "coefficients that doubles round, or intervals; state rows as matrices of numbers"
    if found:
        raise ValueError(f"exact=True takes linear problems in matrices and variables, not {found}")
    cones = float((data.cones.dimensions**3).sum())
    rows = data.m + float((data.cones.dimensions**2).sum()) / 2
    work = rows * (sum(block.n**3 for block in data.matrices) + cones + rows**2)
    if work > _WORK:
        orders = ", ".join(str(block.n) for block in data.matrices)
        raise ValueError(
            f"exact=True is for small problems: {data.m} rows and matrices of order {orders} would take "
            f"{work / _WORK:.0f} times the work that is allowed; verify() without it proves bounds in doubles"
        )


def exact_digits(data: Data, bound: float = math.inf) -> Digits:
    """Return multipliers and a point that prove both bounds in most cases.

    Parameters
    ----------
    data : Data
        That :func:`check_exact` accepts.
    bound : float
        On the sum of the traces of the slacks (:mod:`bregopt.rigorous.reduction`).
    """
    form = _StandardForm(data, bound)
    X, y = _Path(form).follow()
    t = Fraction(0) if form.shift is None else _fraction(X[form.shift][0, 0])
    matrices = []
    for n, M in zip((block.n for block in data.matrices), X, strict=False):
        entries = list(map(_fraction, M.entries()))
        entries[:: n + 1] = [x - t for x in entries[:: n + 1]]
        parts = _parts(entries)
        matrices.append(parts.reshape(len(parts), n, n))
    multipliers = form.multipliers(y)[: data.m]
    return Digits(
        _parts(multipliers), tuple(matrices), _parts(form.variables(X)), form.equations, _parts([t])
    )


# It gives hinf4, hinf7 and hinf8 two proven sides, on such faces.
def coordinate_face(data: Data) -> IntegerFace | None:
    """Return rows and columns of matrices that equalities fix to zero, None where none are found.

    Multipliers whose slack is psd, with a trace of at most one, and zero costs, lead to them: those at the
    end of the central path have the largest rank.
    """
    nothing = tuple(replace(b, C=Ball.exact(np.zeros(len(b.i)))) for b in data.matrices)
    form = _StandardForm(replace(data, matrices=nothing, c=Ball.exact(np.zeros(data.k))), 1.0)
    _, y = _Path(form, _SMALLEST_GAP).follow()
    w = {k: -v for k, v in enumerate(form.multipliers(y)[: data.m]) if abs(v) > _VANISHING}
    # Beside the rows and columns, and in all with the ends of rows, weights cancel exactly.
    vanishing = [{k: Fraction(float(data.lo[k])) for k in w if data.lo[k]}]
    directions = []
    for block in data.matrices:
        sums: dict[int, dict[int, Fraction]] = {}
        for k, p, a in terms_of(block.A[list(w)]):
            sums.setdefault(p, {})[list(w)[k]] = Fraction(a)
        slack = np.zeros(block.n)
        for p, own in sums.items():
            if block.i[p] == block.j[p]:
                slack[block.i[p]] = sum(float(w[k] * a) for k, a in own.items())
        fixed = slack > _VANISHING
        vanishing += [own for p, own in sums.items() if not (fixed[block.i[p]] and fixed[block.j[p]])]
        directions.append(np.eye(block.n)[:, fixed])
    if not any(T.shape[1] for T in directions):
        return None
    pivots = eliminated(vanishing)
    for p, row in pivots.items():
        w[p] = -sum((a * w[k] for k, a in row.items() if k not in pivots), Fraction(0))
    shared = math.lcm(*(v.denominator for v in w.values()))
    unit = Fraction(shared, 1 << shared.bit_length())
    weight = sums_of_doubles([w.get(k, Fraction(0)) * unit for k in range(data.m)])
    face = IntegerFace(weight, tuple(directions))
    return face if len(weight) <= LARGEST_PARTS and exposes(data, face) else None


def proven_by_digits(
    data: Data, digits: Digits, traces: Array, bound: float = math.inf
) -> tuple[float, float]:
    """Return the bounds that multipliers and a point prove in fractions, rounded outward.

    With a `bound` they are those of the optimum given that the slacks have traces that sum to at most it: the
    multipliers have such slacks, and ``<C, X> + t R`` is at least what they prove where ``X + t I`` is psd.

    Parameters
    ----------
    data : Data
    digits : Digits
    traces : array of shape (blocks,)
        Bounds that the caller stated; infinite where there are none.
    bound : float
    """
    implied = implied_bounds(data).with_traces(traces)
    lower, upper = -math.inf, math.inf
    (t,) = fractions_of(digits.shift)
    try:
        y = _at_no_cost(data, fractions_of(digits.y))
        least = bound_of_multipliers(data, implied, y)
    except ValueError:  # equations of free variables that depend on each other
        least = None
    if least is not None and (math.isinf(bound) or _trace_of_slacks(data, y) <= Fraction(bound)):
        lower = -_above(-least)
    matrices = []
    for parts in digits.X:
        n, flat = parts.shape[1], fractions_of(parts.reshape(len(parts), -1))
        matrices.append([flat[k * n : (k + 1) * n] for k in range(n)])
    most = None
    if t >= 0 and (not t or math.isfinite(bound)):
        most = bound_of_point(data, matrices, fractions_of(digits.u), digits.equations, t)
    if most is not None:
        upper = _above(most + (t * Fraction(bound) if t else 0))
    return lower, upper


def _above(x: Fraction) -> float:
    """Return the least double that is not below a number."""
    near = float(x)
    return math.nextafter(near, math.inf) if Fraction(near) < x else near


def _at_no_cost(data: Data, y: list[Fraction]) -> Vector:
    """Return multipliers near the given ones at which free variables cost nothing."""
    # Those of inequalities keep their sign only if they are not small.
    largest = max(map(abs, y), default=Fraction(0))
    movable = [k for k, v in enumerate(y) if data.lo[k] == data.hi[k] or abs(v) > largest / 2**20]
    changes = costless_changes(data, y, Fraction(1), movable)
    return {k: v + changes.get(k, 0) for k, v in enumerate(y)}


def _trace_of_slacks(data: Data, y: dict[int, Fraction]) -> Fraction:
    """Return the sum of the traces of ``C - A*(y)``."""
    total = Fraction(0)
    for block in data.matrices:
        on = block.i == block.j
        total += sum(map(Fraction, block.C.mid[on].tolist()), Fraction(0))
        terms = (Fraction(a) * y[k] for k, _, a in terms_of(block.A[:, np.flatnonzero(on)]))
        total -= sum(terms, Fraction(0))
    return total


def _fraction(x: Any) -> Fraction:
    """Return a number of FLINT."""
    mantissa, exponent = (int(part) for part in x.mid().man_exp())
    return Fraction(mantissa) * Fraction(2) ** exponent


def _parts(numbers: Sequence[Fraction]) -> Array:
    """Return numbers, rounded to a small unit, as sums of doubles."""
    unit = 1 << _UNIT_BITS
    return sums_of_doubles([Fraction(round(x * unit), unit) for x in numbers])


Entry = tuple[
    int, int, int
]  # block, i and j, ``i <= j``, as of :func:`bregopt.rigorous.fractions.rational.rows_of`


class _Elimination(NamedTuple):
    """A free variable that a row determines, and what was subtracted from other rows and from the costs."""

    variable: int
    row: int
    terms: Vector
    end: Fraction
    factors: dict[int, Fraction]
    price: Fraction


class _StandardForm:
    """The problem with equalities and psd matrices alone, in fractions.

    Variables are matrices of order one: the distance to an end of their box, and the rest where it has two;
    likewise the room of inequalities. Those of a second-order cone are the first row of a matrix whose other
    entries are zero beside the diagonal, and equal on it. A row determines each free variable. Rows are
    ``sum_b <A_kb, X_b> = b_k``, those of the data first.

    Attributes
    ----------
    orders : list of int
    rows : list of dict
        For each row its coefficients of entries.
    costs : dict
        Those of the objective, likewise.
    b : list of Fraction
    kept : list of int
        The rows that are left.
    equations : int array
        The equalities of the data that others do not imply.
    shift : int or None
        The block of ``t`` where the traces of slacks have a bound; the matrices are ``X + t I`` then.
    """

    def __init__(self, data: Data, bound: float) -> None:
        self.orders = [block.n for block in data.matrices]
        self.rows, self.costs = rows_of(data)
        self.b = [Fraction(0)] * data.m
        places: dict[int, Entry] = {}
        for index in data.cones.groups:
            cone = self._cone(len(index))
            places |= {int(j): (cone, 0, i) for i, j in enumerate(index)}
        self._ends: list[tuple[Fraction, int, Entry | None]] = []  # of each variable: end, sign, place
        for j in range(data.k):
            self._add_variable(data, j, places.get(j))
        for k, (lo, hi) in enumerate(zip(data.lo.tolist(), data.hi.tolist(), strict=True)):
            end, sign = (lo, -1) if math.isfinite(lo) else (hi, 1)
            if math.isfinite(end):
                self.b[k] += Fraction(end)
            if lo != hi and math.isfinite(end):
                self.rows[k][self._between(lo, hi), 0, 0] = Fraction(sign)
        self.shift = self._shifted(data, Fraction(bound)) if math.isfinite(bound) else None
        none = data.idle | implied_rows(data) | (np.isinf(data.lo) & np.isinf(data.hi))
        self.kept = np.flatnonzero(~np.append(none, np.zeros(len(self.rows) - data.m, dtype=bool))).tolist()
        self.equations = np.array([k for k in self.kept if k < data.m and data.lo[k] == data.hi[k]], np.intp)
        free = np.flatnonzero(data.free).tolist()
        self._eliminated = [found for j in free if (found := self._eliminate(j)) is not None]

    def _cone(self, size: int) -> int:
        """Add a matrix whose first row is in the second-order cone; return its block."""
        self.orders.append(size)
        cone = len(self.orders) - 1
        for i in range(1, size):
            self.rows.append({(cone, 0, 0): Fraction(1), (cone, i, i): Fraction(-1)})
            self.rows += [{(cone, i, j): Fraction(1)} for j in range(i + 1, size)]
        self.b += [Fraction(0)] * (len(self.rows) - len(self.b))
        return cone

    def _add_variable(self, data: Data, j: int, place: Entry | None) -> None:
        lo, hi = float(data.u_lo[j]), float(data.u_hi[j])
        own, end, sign = (-1 - j, 0, 0), Fraction(0), 1
        place = place or own  # until a row determines a free variable
        if math.isfinite(lo) or math.isfinite(hi):
            end, sign = (Fraction(lo), 1) if math.isfinite(lo) else (Fraction(hi), -1)
            place = None if lo == hi else (self._between(lo, hi), 0, 0)
        for k, row in enumerate(self.rows[: data.m]):
            a = row.pop(own, None)
            if a is not None:
                self.b[k] -= a * end
                row |= {} if place is None else {place: sign * a}
        cost = self.costs.pop(own, Fraction(0))
        self.costs |= {} if place is None else {place: sign * cost}
        self._ends.append((end, sign, place))

    def _between(self, lo: float, hi: float) -> int:
        """Add a number from zero to ``hi - lo``; return its block."""
        self.orders.append(1)
        place = len(self.orders) - 1
        if math.isfinite(lo) and math.isfinite(hi):
            self.orders.append(1)
            self.rows.append({(place, 0, 0): Fraction(1), (place + 1, 0, 0): Fraction(1)})
            self.b.append(Fraction(hi) - Fraction(lo))
        return place

    def _shifted(self, data: Data, bound: Fraction) -> int:
        """Add ``t``, of which matrices ``X + t I`` have a multiple of the identity; return its block."""
        place = self._between(0.0, math.inf)
        for row in (*self.rows[: data.m], self.costs):
            diagonal = [a for (b, i, j), a in row.items() if i == j and 0 <= b < len(data.matrices)]
            row[place, 0, 0] = -sum(diagonal, Fraction(0))
        self.costs[place, 0, 0] += bound
        return place

    def _eliminate(self, j: int) -> _Elimination | None:
        """Let the row with the largest coefficient of a free variable determine it."""
        key = (-1 - j, 0, 0)
        rows = [k for k in self.kept if self.rows[k].get(key)]
        if not rows:
            self.costs.pop(key, None)
            return None
        p = max(rows, key=lambda k: abs(self.rows[k][key]))
        terms, end = self.rows[p], self.b[p]
        factors = {k: self.rows[k][key] / terms[key] for k in rows if k != p}
        price = self.costs.get(key, Fraction(0)) / terms[key]
        for k, factor in factors.items():
            add_multiple(self.rows[k], terms, -factor)
            self.b[k] -= factor * end
        add_multiple(self.costs, terms, -price)
        self.kept.remove(p)
        return _Elimination(j, p, terms, end, factors, price)

    def variables(self, X: Sequence[Any]) -> list[Fraction]:
        """Return the variables of the data for matrices of FLINT."""
        values: Vector = {}

        def at(entry: Entry) -> Fraction:
            b, i, j = entry
            return values.get(entry, Fraction(0)) if b < 0 else _fraction(X[b][i, j])

        for found in reversed(self._eliminated):
            own = (-1 - found.variable, 0, 0)
            spent = (a * at(entry) for entry, a in found.terms.items() if entry != own)
            values[own] = (found.end - sum(spent, Fraction(0))) / found.terms[own]
        return [end if place is None else end + sign * at(place) for end, sign, place in self._ends]

    def multipliers(self, y: Sequence[Any]) -> list[Fraction]:
        """Return the multipliers of all rows for those of FLINT of the rows that are left."""
        every = [Fraction(0)] * len(self.rows)
        for k, value in zip(self.kept, y, strict=True):
            every[k] = _fraction(value)
        for found in reversed(self._eliminated):
            spent = (factor * every[k] for k, factor in found.factors.items())
            every[found.row] = found.price - sum(spent, Fraction(0))
        return every


class _Path:
    """The central path of a standard form."""

    def __init__(self, form: _StandardForm, gap: float = _GAP) -> None:
        self.flint, self.gap = require("flint", "exact"), gap
        self.form, self.blocks = form, range(len(form.orders))
        self.rows = [form.rows[k] for k in form.kept]

    def follow(self) -> tuple[list[Any], list[Any]]:
        """Return the matrices and the multipliers of the rows that are left at the end of the path."""
        context = self.flint.ctx
        before, context.prec = context.prec, _BITS
        try:
            return self._followed()
        finally:
            context.prec = before

    def _followed(self) -> tuple[list[Any], list[Any]]:
        arb, orders = self.flint.arb, self.form.orders
        C = self._matrices(self.form.costs)
        A = [self._matrices(row) for row in self.rows]
        b = [self._number(self.form.b[k]) for k in self.form.kept]
        terms = [self._terms(row) for row in self.rows]
        size = [math.hypot(*map(float, row.values())) for row in self.rows]
        reach = max((abs(float(end)) / (1 + s) for end, s in zip(b, size, strict=True)), default=0.0)
        largest = max([*size, *(abs(float(c)) for c in self.form.costs.values())], default=0.0)
        X = [self._identity(n, _FIRST * max(10.0, n, n * reach)) for n in orders]
        Z = [self._identity(n, _FIRST * max(10.0, n, largest)) for n in orders]
        y, first = [arb(0)] * len(b), None
        for _ in range(_STEPS):
            missing = [(end - self._product(row, X)).mid() for end, row in zip(b, terms, strict=True)]
            residual = [(S - M).mid() for S, M in zip(self._slacks(C, A, y), Z, strict=True)]
            mu = self._complementarity(X, Z)
            worst = max((abs(float(r)) for r in missing), default=0.0)
            value = float(self._product(self._terms(self.form.costs), X))
            first = first or (mu, max(worst, 1e-300))
            if float(mu) * sum(orders) <= self.gap * (1 + abs(value)) and worst <= self.gap * (1 + reach):
                break
            try:
                step = _Step(self, A, terms, X, Z, missing, residual)
            except ZeroDivisionError:
                break
            predictor = step.direction(arb(0), None)
            ahead = self._moved(X, Z, predictor, step.lengths(predictor))
            ratio = min(1.0, max(float(self._complementarity(*ahead) / mu), 0.0))
            short = min(step.lengths(predictor))
            sigma = max(ratio ** max(1.0, 3 * short**2), _LEAST_CENTERING)
            if worst > self.gap and worst / first[1] > _LAG * float(mu / first[0]):
                sigma = max(sigma, _CENTERING)
            corrector = step.direction((sigma * mu).mid(), predictor)
            lengths = step.lengths(corrector)
            if max(lengths) < _LEAST_STEP:
                break
            fraction = _FRACTION + (_FULL - _FRACTION) * min(lengths)
            lengths = tuple(length if length == 1 else fraction * length for length in lengths)
            X, Z = self._moved(X, Z, corrector, lengths)
            y = [(v + lengths[1] * d).mid() for v, d in zip(y, corrector[2], strict=True)]
        return X, y

    def _number(self, x: Fraction) -> Any:
        return self.flint.arb(self.flint.fmpq(x.numerator, x.denominator)).mid()

    def _identity(self, n: int, factor: float) -> Any:
        return self.flint.arb_mat([[factor if i == j else 0 for j in range(n)] for i in range(n)])

    def _matrices(self, row: Vector) -> dict[int, Any]:
        """Return the symmetric matrices of coefficients, one for each block that occurs."""
        entries: dict[int, list[list[Any]]] = {}
        for (b, i, j), a in row.items():
            n = self.form.orders[b]
            own = entries.setdefault(b, [[0] * n for _ in range(n)])
            own[i][j] = own[j][i] = self._number(a if i == j else a / 2)
        return {b: self.flint.arb_mat(own) for b, own in entries.items()}

    def _terms(self, row: Vector) -> list[tuple[int, int, int, Any]]:
        return [(*entry, self._number(a)) for entry, a in row.items()]

    def _product(self, terms: Sequence[tuple[int, int, int, Any]], X: Any) -> Any:
        """Return ``<A, X>``."""
        return sum((a * X[b][i, j] for b, i, j, a in terms), self.flint.arb(0)).mid()

    def _slacks(self, C: dict[int, Any], A: Sequence[dict[int, Any]], y: Sequence[Any]) -> list[Any]:
        """Return ``C - A*(y)``; None stands for no costs."""
        found = [C.get(b, self.flint.arb_mat(n, n)) for b, n in enumerate(self.form.orders)]
        for row, v in zip(A, y, strict=True):
            for b, M in row.items():
                found[b] = (found[b] - v * M).mid()
        return found

    def _complementarity(self, X: Sequence[Any], Z: Sequence[Any]) -> Any:
        """Return ``<X, Z>`` divided by the order."""
        products = ((M * S).trace() for M, S in zip(X, Z, strict=True))
        return (sum(products, self.flint.arb(0)) / sum(self.form.orders)).mid()

    @staticmethod
    def _moved(X: Any, Z: Any, direction: Any, lengths: Sequence[float]) -> tuple[list[Any], list[Any]]:
        """Return matrices and slacks, each a step along its part of a direction."""

        def ahead(k: int, M: Any) -> list[Any]:
            return [(one + lengths[k] * d).mid() for one, d in zip(M, direction[k], strict=True)]

        return ahead(0, X), ahead(1, Z)


class _Step:
    """Newton's system at an iterate, ``M_kl = <A_k, inv(Z) A_l X>``, factorized once for two directions."""

    def __init__(
        self, path: _Path, A: Any, terms: Any, X: Any, Z: Any, missing: Sequence[Any], residual: Sequence[Any]
    ) -> None:
        self.path, self.A, self.terms, self.X, self.Z = path, A, terms, X, Z
        self.missing, self.residual = missing, residual
        self.K = [M.inv().mid() for M in Z]
        # Factors of inverses of Cholesky factors scale a direction, so that doubles hold its eigenvalues.
        self.roots = [[_inverse_root(path.flint, M) for M in own] for own in (X, Z)]
        m = len(terms)
        schur = [[path.flint.arb(0)] * m for _ in range(m)]
        for k in range(m):
            own = {b: (self.K[b] * M * X[b]).mid() for b, M in A[k].items()}
            own = {b: ((T + T.transpose()) / 2).mid() for b, T in own.items()}
            for other in range(k + 1):
                if own.keys() & A[other].keys():
                    shared = [term for term in terms[other] if term[0] in own]
                    schur[k][other] = schur[other][k] = path._product(shared, own)
        self.inverse = path.flint.arb_mat(schur).inv().mid() if m else None

    def direction(self, target: Any, predictor: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Return ``dX, dZ, dy`` towards ``X Z = target I``, with the second-order terms of a predictor."""
        path, blocks = self.path, self.path.blocks
        pull = [self._toward(b, target, self.residual[b], predictor) for b in blocks]
        right = [
            [(r - path._product(row, pull)).mid()] for r, row in zip(self.missing, self.terms, strict=True)
        ]
        dy = [row[0] for row in (self.inverse * path.flint.arb_mat(right)).mid().tolist()] if right else []
        dZ = list(self.residual)
        for row, v in zip(self.A, dy, strict=True):
            for b, M in row.items():
                dZ[b] = (dZ[b] - v * M).mid()
        return [self._toward(b, target, dZ[b], predictor) for b in blocks], dZ, dy

    def _toward(self, b: int, target: Any, dZ: Any, predictor: Any) -> Any:
        """Return the change of a matrix that a change of its slack implies."""
        K, X = self.K[b], self.X[b]
        T = target * K - X - K * dZ * X
        if predictor is not None:
            T = T - K * predictor[1][b] * predictor[0][b]
        return ((T + T.transpose()) / 2).mid()

    def lengths(self, direction: Any) -> tuple[float, ...]:
        """Return the primal and the dual step length to the boundary, at most 1."""
        found = []
        for roots, changes in zip(self.roots, direction, strict=False):
            least = 0.0
            for R, D in zip(roots, changes, strict=True):
                if R is None:
                    return 0.0, 0.0
                if not R.nrows():  # nothing is left on a face
                    continue
                scaled = np.array((R * D * R.transpose()).mid().tolist(), dtype=float)
                least = min(least, float(np.linalg.eigvalsh(scaled + scaled.T)[0]) / 2)
            found.append(min(1.0, -1 / least) if least < 0 else 1.0)
        return tuple(found)


def _inverse_root(flint: Any, M: Any) -> Any:
    """Return the inverse of the Cholesky factor of a matrix, None if it is not positive definite."""
    L: list[list[Any]] = []
    for i, row in enumerate(M.tolist()):
        own: list[Any] = []
        for j in range(i):
            rest = row[j] - sum((a * b for a, b in zip(own, L[j], strict=False)), flint.arb(0))
            own.append((rest / L[j][j]).mid())
        pivot = (row[i] - sum((a * a for a in own), flint.arb(0))).mid()
        if not pivot > 0:
            return None
        L.append([*own, pivot.sqrt().mid()])
    n = len(L)
    return flint.arb_mat([[*row, *([0] * (n - len(row)))] for row in L]).inv().mid()
