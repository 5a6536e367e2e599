"""Proofs in fractions: Farkas vectors, rays and lower bounds on the boundary of the cone, where doubles fail.

Doubles are rational numbers. A vector that only nearly satisfies a homogeneous system is first replaced by
one that satisfies exactly the equations which it nearly meets: Gauss's elimination in fractions, with simple
fractions for the unknowns that remain free. Then every condition of a proof is decided without rounding, and
a singular matrix is no harder than a definite one (Peyrl, Parrilo 2008, round sums of squares likewise).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.program import Penalty
from bregopt.program.rows import RankOne, Rows
from bregopt.program.rows.low_rank import dense_row
from bregopt.records import replace
from bregopt.rigorous.data import EXACT, Data, MatrixData
from bregopt.rigorous.linear_algebra import Rational, Vector, eliminated, ldl, product_of, solution, terms_of
from bregopt.rigorous.reduction import Implied

__all__ = [
    "bound_of_multipliers",
    "exact_bound",
    "exact_farkas",
    "exact_inverse",
    "exact_ray",
    "keeps_sign",
]

_LARGEST_ORDER, _LARGEST_TERMS = 30, 3_000  # of matrices, and of the rows that are used
_LARGER = 4  # times the order, and its square the terms, where a matrix of low rank decides
_LARGEST_SYSTEM = 4_000  # equations times the square of the unknowns
_LARGEST_INVERTED = 8  # order of an X0 beside the diagonal ones
_SHARES = (1e-6, 1e-9, 0.0)  # of the largest: smaller numbers may be round-off
_DENOMINATORS = (12, 1_000, 2**30)  # of simple fractions, the first tried first


def exact_farkas(
    data: Data, implied: Implied, y: Array, inside: Collection[int] = (), open_rows: Collection[int] = ()
) -> Vector | None:
    """Return a Farkas vector near `y`: the rows demand more than any psd ``X`` and ``u`` supply.

    If some matrices are `inside` the cone, the rows may demand as much, but of a definite matrix that is
    more than they get: ``<A*(y), X> < 0`` for a matrix ``A*(y)`` that is negative semidefinite and not zero.
    So it is if a multiplier of an open row, which demands more than its bound, is not zero.

    It is None where none is found.

    Parameters
    ----------
    data : Data
    implied : Implied
        Bounds on traces, which bound what a matrix supplies.
    y : array of shape (m,)
        Multipliers of required rows, positive at lower bounds.
    inside : collection of int
        The matrices that are positive definite.
    open_rows : collection of int
        Rows whose activity is larger than the lower bound.
    """
    y = np.where(data.required & np.isfinite(np.where(y > 0, data.lo, data.hi)), y, 0.0)
    size = np.abs(y) * _row_sizes(data)
    for share in _SHARES:
        support = np.flatnonzero(size > share * size.max(initial=0.0))
        larger = _LARGER if inside or open_rows else 1
        if not len(support) or not _is_small(data, support, larger):
            continue
        rows = _Combination(data, support)
        equations = rows.vanishing(y, implied)
        for near in _solutions(equations, support, y):
            if all(near[k] * y[k] >= 0 for k in near):
                margin = rows.margin(near, implied)
                if margin is None or margin < 0:
                    continue
                above = any(near.get(k, 0) > 0 for k in open_rows)
                if margin > 0 or above or any(rows.is_negative(b, near) for b in inside):
                    return near
    return None


# Pays on: slack matrices without an interior, n = 3.
def exact_bound(data: Data, implied: Implied, y: Array) -> tuple[float, Vector]:
    """Return the lower bound of fractions near `y`, rounded downward, and these; ``-inf`` for none.

    Where slack matrices have no interior, ``C - A*(y)`` of doubles is indefinite by round-off, and a bound
    needs multipliers that solve exactly the equations which `y` nearly solves. The costs are one more row
    with the multiplier -1; in what is returned it has the number `m` and a multiplier below zero.

    Parameters
    ----------
    data : Data
    implied : Implied
    y : array of shape (m,)
    """
    priced = _priced(data)
    if priced is None:
        return -math.inf, {}
    v = np.append(np.where(np.isfinite(np.where(y > 0, data.lo, data.hi)), y, 0.0), -1.0)
    size, best, taken = np.abs(v) * _row_sizes(priced), -math.inf, Vector()
    for share in _SHARES:
        support = np.union1d(np.flatnonzero(size > share * size.max()), [data.m])
        if not _is_small(priced, support):
            continue
        rows = _Combination(priced, support)
        for near in _solutions(rows.vanishing(v, implied), support, v):
            if near.get(data.m, 0) < 0 and all(near[k] * v[k] >= 0 for k in near):
                margin = rows.margin(near, implied)
                if margin is not None and _within_weights(data, near, -near[data.m]):
                    found = Fraction(data.offset) - margin / near[data.m]
                    bound = math.nextafter(float(found), -math.inf)
                    best, taken = (bound, near) if bound > best else (best, taken)
    return best, taken


def bound_of_multipliers(data: Data, implied: Implied, y: Vector) -> Fraction | None:
    """Return the lower bound that multipliers prove, exactly; None where they prove none.

    Parameters
    ----------
    data : Data
    implied : Implied
    y : dict from int to Fraction
        Multipliers of rows; those that are left out are zero.
    """
    priced = _priced(data)
    own = {k: v for k, v in y.items() if v}
    if priced is None or any(math.isinf(data.lo[k] if v > 0 else data.hi[k]) for k, v in own.items()):
        return None
    support = np.array([*sorted(own), data.m], dtype=np.intp)
    margin = _Combination(priced, support).margin({**own, data.m: Fraction(-1)}, implied)
    if margin is None or not _within_weights(data, own, Fraction(1)):
        return None
    return Fraction(data.offset) + margin


def _within_weights(data: Data, y: Vector, price: Fraction) -> bool:
    """Whether no multiplier of a hinge is larger than the weight of its row."""
    return all(
        abs(v) <= Fraction(float(data.weight[k])) * price
        for k, v in y.items()
        if k < data.m and data.kind[k] == int(Penalty.HINGE)
    )


def _priced(data: Data) -> Data | None:
    """Return the data with the costs as one more row; None where their numbers are not exact."""
    plain = all(
        b.anchor is None and b.cap is None and b.A_rad is None and not b.C.rad.any() for b in data.matrices
    )
    if not plain or data.c.rad.any() or not data.kinds <= {Penalty.HARD, Penalty.HINGE}:
        return None
    blocks = tuple(replace(b, A=_with_row(b.A, b.C.mid)) for b in data.matrices)
    ends: dict[str, Any] = {
        name: np.append(getattr(data, name), 0.0) for name in ("lo", "hi", "lo_rad", "hi_rad")
    }
    kind, weight = np.append(data.kind, int(Penalty.HARD)), np.append(data.weight, np.inf)
    B = _with_row(data.B, data.c.mid)
    return replace(data, matrices=blocks, B=B, kind=kind, weight=weight, **ends)


def _with_row(A: Any, row: Array) -> Any:
    return sp.csr_array(sp.vstack([A, sp.csr_array(row[None])]))


def exact_ray(data: Data, X: Sequence[Array], u: Array, recessions: Sequence[Rational | None]) -> bool:
    """Whether a vector near ``X``, ``u`` is a ray: a direction that keeps all rows and lowers the objective.

    Parameters
    ----------
    data : Data
    X : sequence of arrays of shape (n, n)
    u : array of shape (k,)
    recessions : sequence of matrices in fractions, or None
        ``R`` of each block with a divergence, which adds ``mu R`` to the costs; None where it is not known.
    """
    if any(len(M) > _LARGEST_ORDER and M.any() for M in X):
        return False
    for share in _SHARES:
        direction = _Direction(data, X, u, recessions, share)
        if not direction.is_exact:
            continue
        index = np.arange(len(direction.values))
        for near in _solutions(direction.equations(), index, direction.values):
            if direction.falls(near):
                return True
    return False


def keeps_sign(rows: Rows, sign: float, F: Array | None = None) -> bool:
    """Whether one row times `sign` is never negative for psd ``X``, or for those with the range of `F`.

    Parameters
    ----------
    rows : Rows
        A family of this row alone.
    sign : float
        1 or -1.
    F : array of shape (n, r), optional
    """
    if type(rows).definite_signs is not Rows.definite_signs and rows.definite_signs()[0] * sign > 0:
        return True  # a product of vectors, or entries
    if F is not None and isinstance(rows, RankOne):
        return not any(map(any, product_of(_fractions(dense_row(rows.Z, 0)[None]), _fractions(F))))
    t = rows.coordinates()
    if (t.i == t.j).all() and (sign * t.value >= 0).all():
        return True
    occurs, place = np.unique(np.concatenate([t.i, t.j]), return_inverse=True)
    if not isinstance(rows, EXACT) or len(occurs) > _LARGEST_ORDER:
        return False
    M = [[Fraction(0)] * len(occurs) for _ in occurs]
    for i, j, value in zip(*np.split(place, 2), (t.value * sign).tolist(), strict=True):
        M[i][j] += Fraction(value) / 2
        M[j][i] += Fraction(value) / 2
    if F is not None:
        M = product_of(product_of(_fractions(F[occurs].T), M), _fractions(F[occurs]))
    return ldl(M) is not None


class _Combination:
    """Some rows in fractions: their coefficients of entries and of variables, and their bounds."""

    def __init__(self, data: Data, support: IntArray) -> None:
        self.data, self.support = data, support
        self.columns = [_columns(block.A, support) for block in data.matrices]
        self.variables = _columns(data.B, support)

    def vanishing(self, y: Array, implied: Implied) -> list[Vector]:
        """Return the sums that are zero up to round-off, and that have to be zero."""
        found = []
        for b, block in enumerate(self.data.matrices):
            if math.isfinite(implied.traces[b]):
                continue
            zero = {p: _cancels(column, y) for p, column in self.columns[b].items()}
            diagonal = {int(block.i[p]): flat for p, flat in zero.items() if block.i[p] == block.j[p]}
            for p, column in self.columns[b].items():
                ends = int(block.i[p]), int(block.j[p])
                if zero[p] or any(diagonal.get(end, True) for end in ends):
                    found.append(column)
        for j, column in self.variables.items():
            if self.data.free[j] or _cancels(column, y):
                found.append(column)
        return found

    def margin(self, y: Vector, implied: Implied) -> Fraction | None:
        """Return how much more the rows demand than psd matrices and variables supply, None if unbounded."""
        data = self.data
        demand = sum(
            (v * Fraction(float(data.lo[k] if v > 0 else data.hi[k])) for k, v in y.items()), Fraction(0)
        )
        if any(data.lo_rad[k] or data.hi_rad[k] for k in y):
            return None
        supply = self._supply_of_variables(y)
        for b in range(len(data.matrices)):
            if supply is None:
                return None
            slack = self._slack(b, y)
            most = Fraction(0) if ldl(slack) is not None else _trace_supply(slack, implied.traces[b])
            supply = None if most is None else supply + most
        return None if supply is None else demand - supply

    def is_negative(self, b: int, y: Vector) -> bool:
        """Whether ``A*(y)`` is negative semidefinite, and not zero, in one matrix."""
        slack = self._slack(b, y)
        return any(map(any, slack)) and ldl(slack) is not None

    def _slack(self, b: int, y: Vector) -> Rational:
        """Return ``-A*(y)`` of one matrix: half a coefficient beside the diagonal is that of each entry."""
        block = self.data.matrices[b]
        M = [[Fraction(0)] * block.n for _ in range(block.n)]
        for p, column in self.columns[b].items():
            i, j = int(block.i[p]), int(block.j[p])
            M[i][j] = M[j][i] = -_sum(column, y) / (1 if i == j else 2)
        return M

    def _supply_of_variables(self, y: Vector) -> Fraction | None:
        """Return the largest ``(B'y)'u``, None where it is not bounded."""
        data, supply = self.data, Fraction(0)
        cone: dict[int, Fraction] = {}
        for j, column in self.variables.items():
            z = _sum(column, y)
            end = float(data.u_hi[j] if z > 0 else data.u_lo[j])
            if not z:
                continue
            if math.isfinite(end):
                supply += z * Fraction(end)
            elif data.in_cone[j]:
                cone[j] = z
            else:
                return None
        return supply if _in_cones(data, {j: -z for j, z in cone.items()}) else None


class _Direction:
    """A direction: the entries of ``X`` on and above the diagonal and the variables that are not zero."""

    def __init__(
        self, data: Data, X: Sequence[Array], u: Array, recessions: Sequence[Rational | None], share: float
    ) -> None:
        self.data, self.recessions = data, recessions
        self.entries: list[tuple[int, int, int]] = []
        largest = max((float(np.abs(M).max(initial=0.0)) for M in X), default=0.0)
        values = []
        for b, M in enumerate(X):
            kept = np.flatnonzero(M.diagonal() > share * largest)
            for a, i in enumerate(kept.tolist()):
                for j in kept[a:].tolist():
                    self.entries.append((b, i, j))
                    values.append(float(M[i, j]))
        self.kept = np.flatnonzero(np.abs(u) > share * np.abs(u).max(initial=0.0))
        self.values = np.array([*values, *u[self.kept]])
        self.is_exact = data.B_rad is None
        place = {entry: k for k, entry in enumerate(self.entries)}
        self.rows: list[Vector] = [{} for _ in range(data.m)]
        for b, block in enumerate(data.matrices):
            if not X[b].any():
                continue
            self.is_exact &= block.A_rad is None
            for row, p, value in terms_of(block.A):
                k = place.get((b, int(block.i[p]), int(block.j[p])))
                if k is not None:
                    self.rows[row][k] = Fraction(value)
        number = {int(j): len(self.entries) + k for k, j in enumerate(self.kept)}
        for row, j, value in terms_of(data.B):
            if j in number:
                self.rows[row][number[j]] = Fraction(value)
        self.number = number

    def equations(self) -> list[Vector]:
        """Return the rows that are zero up to round-off."""
        ends = np.isfinite(self.data.lo) | np.isfinite(self.data.hi)
        return [row for k, row in enumerate(self.rows) if ends[k] and row and _cancels(row, self.values)]

    def falls(self, v: Vector) -> bool:
        """Whether the objective falls without end along a direction that keeps all rows."""
        data, rate, grows = self.data, Fraction(0), False
        for k, row in enumerate(self.rows):
            a = _sum(row, v)
            beyond = (a > 0 and data.hi[k] < np.inf) or (a < 0 and data.lo[k] > -np.inf)
            if beyond and data.kind[k] != int(Penalty.HINGE):
                return False
            if beyond:
                rate += abs(a) * Fraction(float(data.weight[k]))
            grows |= a > 0 and data.kind[k] == int(Penalty.LOG)
        for j, k in self.number.items():
            z = v.get(k, Fraction(0))
            if (z > 0 and data.u_hi[j] < np.inf) or (z < 0 and data.u_lo[j] > -np.inf):
                return False
            rate += z * Fraction(float(data.c.mid[j]))
        if not _in_cones(data, {j: v.get(k, Fraction(0)) for j, k in self.number.items()}):
            return False
        for b, block in enumerate(data.matrices):
            own = {(i, j): v.get(k, Fraction(0)) for k, (c, i, j) in enumerate(self.entries) if c == b}
            M = [
                [own.get((min(i, j), max(i, j)), Fraction(0)) for j in range(block.n)] for i in range(block.n)
            ]
            if not any(map(any, M)):
                continue
            if block.cap is not None or ldl(M) is None:
                return False
            growth = self._growth(b, block, M)
            if growth is None:
                return False
            rate, grows = rate + growth, grows or block.anchor is not None
        priced = bool(data.c.rad.any() or any(block.C.rad.any() for block in data.matrices))
        return not priced and (rate < 0 or (rate == 0 and grows))

    def _growth(self, b: int, block: MatrixData, M: list[list[Fraction]]) -> Fraction | None:
        """Return ``<C + mu R, X>``, with the recession ``R`` of a divergence; None where there is none."""
        rate = sum(
            (Fraction(float(c)) * M[i][j] for i, j, c in zip(block.i, block.j, block.C.mid, strict=True)),
            Fraction(0),
        )
        if block.anchor is None:
            return rate
        R = self.recessions[b]
        if R is None:
            return None
        pairs = zip(R, M, strict=True)
        trace = sum((x * z for one, two in pairs for x, z in zip(one, two, strict=True)), Fraction(0))
        return rate + Fraction(block.anchor.mu) * trace


def _solutions(equations: Sequence[Vector], support: IntArray, v: Array) -> Iterator[Vector]:
    """Yield vectors near `v`, zero outside their support, that solve homogeneous equations exactly."""
    pivots = {} if len(equations) * len(support) ** 2 > _LARGEST_SYSTEM else eliminated(equations)
    unit = float(np.abs(v[support]).max(initial=0.0))
    if not unit > 0 or not math.isfinite(unit):
        return
    seen = []
    for most in _DENOMINATORS:
        near = {int(k): Fraction(float(v[k]) / unit).limit_denominator(most) for k in support}
        for p, row in pivots.items():
            near[p] = -sum((a * near[k] for k, a in row.items() if k not in pivots), Fraction(0))
        if near not in seen and any(near.values()):
            seen.append(near)
            yield {k: x for k, x in near.items() if x}


def _cancels(row: Vector, v: Array) -> bool:
    """Whether a sum is zero up to the error of an approximate vector."""
    terms = [float(a) * float(v[k]) for k, a in row.items()]
    return abs(sum(terms)) <= _SHARES[0] * sum(map(abs, terms))


def _sum(row: Vector, v: Vector) -> Fraction:
    return sum((a * v[k] for k, a in row.items() if k in v), Fraction(0))


def _columns(A: Any, support: IntArray) -> dict[int, Vector]:
    """Return the columns of some rows of a CSR array."""
    found: dict[int, Vector] = {}
    for row, column, value in terms_of(A[support]):
        found.setdefault(column, {})[int(support[row])] = Fraction(value)
    return found


def _row_sizes(data: Data) -> Array:
    """Return the largest coefficient of each row."""
    size = np.zeros(data.m)
    for A in (data.A, data.B):
        row = np.repeat(np.arange(data.m), np.diff(A.indptr))
        np.maximum.at(size, row, np.abs(A.data))
    return size


def _is_small(data: Data, support: IntArray, larger: int = 1) -> bool:
    """Whether the rows are exact, and few and short enough for fractions."""
    linear = all(block.null is None and block.n <= larger * _LARGEST_ORDER for block in data.matrices)
    count = sum(int(np.diff(A.indptr)[support].sum()) for A in (data.A, data.B))
    exact = data.A_rad is None or not data.A_rad[support].data.any()
    return linear and exact and data.B_rad is None and count <= larger**2 * _LARGEST_TERMS


def _trace_supply(slack: Rational, trace: float) -> Fraction | None:
    """Return an upper bound on ``<A*(y), X>`` over psd ``X`` up to a trace, None where there is none."""
    if not math.isfinite(trace):
        return None
    M = np.array(slack, dtype=float)
    least = float(np.linalg.eigvalsh(M)[0])
    most = Fraction(1e-12 * max(float(np.abs(M).max()), abs(least)) - least)
    above = [[(most if i == j else 0) + x for j, x in enumerate(row)] for i, row in enumerate(slack)]
    return most * Fraction(trace) if most > 0 and ldl(above) is not None else None


def _in_cones(data: Data, z: dict[int, Fraction]) -> bool:
    """Whether a vector is in the second-order cones; each is its own dual."""
    cones = data.cones
    for start, size in zip(cones.starts, cones.dimensions, strict=True):
        axis, *others = (z.get(int(j), Fraction(0)) for j in cones.index[start : start + size])
        if axis < 0 or axis * axis < sum((x * x for x in others), Fraction(0)):
            return False
    return True


def _fractions(M: Array) -> Rational:
    return [[Fraction(x) for x in row] for row in M.tolist()]


def exact_inverse(X0: Array) -> Rational | None:
    """Return the inverse of a matrix; None where there is none, or it is too large for fractions."""
    n, diagonal = len(X0), not (X0 - np.diag(X0.diagonal())).any()
    if n > (_LARGEST_ORDER if diagonal else _LARGEST_INVERTED):
        return None
    try:
        return solution(_fractions(X0), _fractions(np.eye(n)))
    except ZeroDivisionError:  # singular
        return None
