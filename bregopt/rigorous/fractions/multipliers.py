"""Bounds of multipliers in fractions: on the boundary of the cone, where doubles fail.

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
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.program import Penalty
from bregopt.program.rows import RankOne, Rows
from bregopt.program.rows.low_rank import dense_row
from bregopt.records import replace
from bregopt.rigorous.data import EXACT, Data
from bregopt.rigorous.linear_algebra import (
    Rational,
    Vector,
    as_fractions,
    eliminated,
    is_psd,
    product_of,
    solution,
    terms_of,
    total_of,
)
from bregopt.rigorous.reduction import Implied

_LARGEST_ORDER, _LARGEST_TERMS = 30, 3_000  # of matrices, and of the rows that are used
_LARGER = 4  # times the order, and its square the terms, where a matrix of low rank decides
_MOST_ADDITIONS = 4_000  # of terms of equations, in an elimination
_LARGEST_EXACT = 200  # equations of a system that is eliminated in fractions
_INDEPENDENT = 1e-9  # diagonal entry of R, relative to the largest, of an independent equation
SHARES = (1e-6, 1e-9, 0.0)  # of the largest: smaller numbers may be round-off
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
    larger = _LARGER if inside or open_rows else 1
    for rows, near in _combinations(data, implied, y, larger):
        margin = rows.margin(near, implied, 0.0)
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
    best, taken = -math.inf, Vector()
    for rows, near in _combinations(priced, implied, v, always=(data.m,)):
        margin = rows.margin(near, implied) if near.get(data.m, 0) < 0 else None
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


def costless_changes(
    data: Data, y: Sequence[Fraction | int], price: Fraction | int, movable: Sequence[int]
) -> Vector:
    """Return the changes of some multipliers, at a price of the costs, at which free variables cost nothing.

    Raises
    ------
    ValueError
        If there are none, or the equations depend on each other.
    """
    columns, equations, missing = data.B.tocsc(), [], []
    for j in np.flatnonzero(data.free).tolist():
        own = slice(columns.indptr[j], columns.indptr[j + 1])
        pairs = zip(columns.indices[own].tolist(), columns.data[own].tolist(), strict=True)
        column = {k: Fraction(a) for k, a in pairs if a}
        if not column.keys().isdisjoint(movable):
            equations.append(column)
            paid = sum((a * y[k] for k, a in column.items()), Fraction(0))
            missing.append(Fraction(float(data.c.mid[j])) * price - paid)
    return changes_for(equations, movable, missing)


def changes_for(equations: Sequence[Vector], movable: Sequence[Any], missing: Sequence[Fraction]) -> Vector:
    """Return changes of as many unknowns as there are equations that supply what these miss.

    Parameters
    ----------
    equations : sequence of dict from unknown to Fraction
    movable : sequence
        The unknowns that may change.
    missing : sequence of Fraction

    Raises
    ------
    ValueError
        If there are too many equations, or they depend on each other.
    """
    if not equations:
        return {}
    if len(equations) > _LARGEST_EXACT:
        raise ValueError(f"{len(equations)} rows have no room; at most {_LARGEST_EXACT} are eliminated")
    columns = {p: number for number, p in enumerate(movable)}
    A = np.zeros((len(equations), len(columns)))
    for row, equation in zip(A, equations, strict=True):
        for p, a in equation.items():
            if p in columns:
                row[columns[p]] = float(a)
    R, order = scipy.linalg.qr(A, mode="r", pivoting=True)
    size = np.abs(R.diagonal())
    if len(order) < len(A) or size[-1] <= _INDEPENDENT * size[0]:
        raise ValueError("the rows without room are not independent; leave out those that others imply")
    pivots = [movable[p] for p in order[: len(A)]]
    square = [[equation.get(p, Fraction(0)) for p in pivots] for equation in equations]
    found = solution(square, [[own] for own in missing])
    return {p: change for p, (change,) in zip(pivots, found, strict=True)}


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


def _combinations(
    data: Data, implied: Implied, y: Array, larger: int = 1, always: Collection[int] = ()
) -> Iterator[tuple[_Combination, Vector]]:
    """Yield combinations near `y`, of the same signs, that solve the equations which `y` nearly solves."""
    size = np.abs(y) * _row_sizes(data)
    for share in SHARES:
        used = size > share * size.max(initial=0.0)
        used[list(always)] = True
        support = np.flatnonzero(used)
        if not len(support) or not _is_small(data, support, larger):
            continue
        rows, v = _Combination(data, support), dict(zip(support.tolist(), y[support].tolist(), strict=True))
        for near in solutions_near(rows.vanishing(v, implied), v):
            if all(x * v[k] >= 0 for k, x in near.items()):
                yield rows, near


class _Combination:
    """Some rows in fractions: their coefficients of entries and of variables, and their bounds."""

    def __init__(self, data: Data, support: IntArray) -> None:
        self.data, self.support = data, support
        self.columns = [_columns(block.A, support) for block in data.matrices]
        self.variables = _columns(data.B, support)

    def vanishing(self, y: dict[Any, float], implied: Implied) -> list[Vector]:
        """Return the sums that are zero up to round-off, and that have to be zero."""
        found = []
        for b, block in enumerate(self.data.matrices):
            if math.isfinite(implied.traces[b]):
                continue
            zero = {p: vanishes(column, y) for p, column in self.columns[b].items()}
            diagonal = {int(block.i[p]): flat for p, flat in zero.items() if block.i[p] == block.j[p]}
            for p, column in self.columns[b].items():
                ends = int(block.i[p]), int(block.j[p])
                if zero[p] or any(diagonal.get(end, True) for end in ends):
                    found.append(column)
        for j, column in self.variables.items():
            if self.data.free[j] or vanishes(column, y):
                found.append(column)
        return found

    def margin(self, y: Vector, implied: Implied, least: float = -math.inf) -> Fraction | None:
        """Return how much more the rows demand than psd matrices and variables supply.

        None is returned if the supply is not bounded, or leaves less than the `least` margin.
        """
        data = self.data
        demand = sum(
            (v * Fraction(float(data.lo[k] if v > 0 else data.hi[k])) for k, v in y.items()), Fraction(0)
        )
        if any(data.lo_rad[k] or data.hi_rad[k] for k in y):
            return None
        supply = self._supply_of_variables(y)
        for b in range(len(data.matrices)):
            if supply is None or demand - supply < least:  # matrices supply nothing below zero
                return None
            slack = self._slack(b, y)
            most = Fraction(0) if is_psd(slack) else _trace_supply(slack, implied.traces[b])
            supply = None if most is None else supply + most
        return None if supply is None else demand - supply

    def is_negative(self, b: int, y: Vector) -> bool:
        """Whether ``A*(y)`` is negative semidefinite, and not zero, in one matrix."""
        slack = self._slack(b, y)
        return any(map(any, slack)) and is_psd(slack)

    def _slack(self, b: int, y: Vector) -> Rational:
        """Return ``-A*(y)`` of one matrix: half a coefficient beside the diagonal is that of each entry."""
        block = self.data.matrices[b]
        M = [[Fraction(0)] * block.n for _ in range(block.n)]
        for p, column in self.columns[b].items():
            i, j = int(block.i[p]), int(block.j[p])
            M[i][j] = M[j][i] = -total_of(column, y) / (1 if i == j else 2)
        return M

    def _supply_of_variables(self, y: Vector) -> Fraction | None:
        """Return the largest ``(B'y)'u``, None where it is not bounded."""
        data, supply = self.data, Fraction(0)
        cone: dict[int, Fraction] = {}
        for j, column in self.variables.items():
            z = total_of(column, y)
            end = float(data.u_hi[j] if z > 0 else data.u_lo[j])
            if not z:
                continue
            if math.isfinite(end):
                supply += z * Fraction(end)
            elif data.in_cone[j]:
                cone[j] = z
            else:
                return None
        return supply if in_cones(data, {j: -z for j, z in cone.items()}) else None


def _trace_supply(slack: Rational, trace: float) -> Fraction | None:
    """Return an upper bound on ``<A*(y), X>`` over psd ``X`` up to a trace, None where there is none."""
    if not math.isfinite(trace):
        return None
    M = np.array(slack, dtype=float)
    least = float(np.linalg.eigvalsh(M)[0])
    most = Fraction(1e-12 * max(float(np.abs(M).max()), abs(least)) - least)
    above = [[(most if i == j else 0) + x for j, x in enumerate(row)] for i, row in enumerate(slack)]
    return most * Fraction(trace) if most > 0 and is_psd(above) else None


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


def _columns(A: Any, support: IntArray) -> dict[int, Vector]:
    """Return the columns of some rows of a CSR array."""
    found: dict[int, Vector] = {}
    for row, column, value in terms_of(A[support]):
        found.setdefault(column, {})[int(support[row])] = Fraction(value)
    return found


def solutions_near(equations: Sequence[Vector], v: dict[Any, float]) -> Iterator[Vector]:
    """Yield vectors near `v` that solve homogeneous equations exactly."""
    unit = max(map(abs, v.values()), default=0.0)
    if not 0 < unit < math.inf:
        return
    pivots = eliminated(equations, _MOST_ADDITIONS)
    seen = []
    for most in _DENOMINATORS:
        near = {k: Fraction(x / unit).limit_denominator(most) for k, x in v.items()}
        for p, row in pivots.items():
            near[p] = -sum((a * near[k] for k, a in row.items() if k not in pivots), Fraction(0))
        if near not in seen and any(near.values()):
            seen.append(near)
            yield {k: x for k, x in near.items() if x}


def vanishes(row: Vector, v: dict[Any, float]) -> bool:
    """Whether a sum is zero up to the error of an approximate vector."""
    terms = [float(a) * v[k] for k, a in row.items()]
    return abs(sum(terms)) <= SHARES[0] * sum(map(abs, terms))


def in_cones(data: Data, z: dict[int, Fraction]) -> bool:
    """Whether a vector is in the second-order cones; each is its own dual."""
    for index in data.cones.groups:
        axis, *others = (z.get(j, Fraction(0)) for j in index.tolist())
        if axis < 0 or axis * axis < sum((x * x for x in others), Fraction(0)):
            return False
    return True


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
        return not any(map(any, product_of(as_fractions(dense_row(rows.Z, 0)[None]), as_fractions(F))))
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
        M = product_of(product_of(as_fractions(F[occurs].T), M), as_fractions(F[occurs]))
    return is_psd(M)
