"""Points in fractions: answers that meet the rows exactly and are psd by an exact factorization, and rays.

An answer in fractions needs a matrix ``X`` near a feasible one, with room inside the cone. Its entries are
rounded to multiples of ``1 / denominator``. Then one unknown for each equation is changed, so that all
equations hold exactly, and the matrices are proven psd. So a strictly feasible answer becomes a rational one
as soon as the denominator is large enough (Peyrl and Parrilo 2008, Computing sum of squares decompositions
with rational coefficients). Where rows leave ``X`` no interior, the matrix is rounded on the face. A ray on
the boundary of the cone is one of simple fractions (:mod:`bregopt.rigorous.fractions.multipliers`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.program import Penalty
from bregopt.records import cached_property, dataclass
from bregopt.rigorous.ball import UNIT, Ball, inflated
from bregopt.rigorous.data import Data
from bregopt.rigorous.fractions.multipliers import SHARES, changes_for, in_cones, solutions_near, vanishes
from bregopt.rigorous.linear_algebra import (
    Rational,
    Vector,
    as_fractions,
    exceeds,
    is_psd,
    ldl,
    product_of,
    solution,
    terms_of,
    total_of,
)
from bregopt.rigorous.reduction import reduced
from bregopt.rigorous.upper import Point

if TYPE_CHECKING:
    from bregopt.rigorous.file.certificate import BoundCertificate

_LARGEST_ORDER = 30  # of matrices of rays
_LARGEST_SINGULAR = 40  # order of singular matrices of answers
_LARGEST_INVERTED = 8  # order of an X0 beside the diagonal ones


def rows_of(data: Data) -> tuple[list[Vector], Vector]:
    """Return the coefficients of rows and costs in fractions.

    Unknowns are entries ``(b, i, j)`` of matrices, ``i <= j``, and variables ``(-1 - j, 0, 0)``.
    """
    rows: list[Vector] = [{} for _ in range(data.m)]
    costs: Vector = {}
    for b, block in enumerate(data.matrices):
        entries = [(b, i, j) for i, j in zip(block.i.tolist(), block.j.tolist(), strict=True)]
        costs |= {e: Fraction(c) for e, c in zip(entries, block.C.mid.tolist(), strict=True) if c}
        for k, p, a in terms_of(block.A):
            rows[k][entries[p]] = Fraction(a)
    for k, j, a in terms_of(data.B):
        rows[k][-1 - j, 0, 0] = Fraction(a)
    return rows, costs | {(-1 - j, 0, 0): Fraction(c) for j, c in enumerate(data.c.mid.tolist()) if c}


@dataclass(frozen=True)
class RationalAnswer:
    """An answer in rational numbers, which is feasible exactly.

    Attributes
    ----------
    X : array of Fraction of shape (n, n), or a tuple of those
        The matrix, or one for each matrix variable; ``()`` if none is a variable.
    u : dict from str to Fraction or array of Fraction
        Ordinary variables by name.
    value : Fraction
        The objective at the answer, exactly: a bound on the optimum from the side of feasible points.
    denominator : int
        The entries were rounded to multiples of its inverse before the equations were solved.
    matrices : tuple of array of Fraction
        All psd matrices of the problem; those of inequalities are after those of variables.
    """

    X: Any
    u: dict[str, Any]
    value: Fraction
    denominator: int
    matrices: tuple[Any, ...] = field(repr=False)

    @cached_property
    def factors(self) -> tuple[tuple[Any, Any], ...]:
        """``L`` of shape (n, r) and ``d > 0`` of shape (r,) of each matrix, ``X = L diag(d) L'`` exactly.

        They are a proof that anybody can check, and the squares of a sum of squares.
        """
        found = (ldl(M.tolist()) for M in self.matrices)
        return tuple((_array(L, len(d)), np.array(d, dtype=object)) for L, d in filter(None, found))

    def __repr__(self) -> str:
        shown = str(self.value) if len(str(self.value)) <= 60 else f"{float(self.value):.17g}, a fraction"
        orders = ", ".join(f"{len(M)} x {len(M)}" for M in self.matrices)
        return f"bregopt rational answer: value {shown}\n  psd        {orders or 'none'}"


def rational_point(
    certificate: BoundCertificate, denominator: int
) -> tuple[tuple[Any, ...], list[Fraction], Fraction]:
    """Return matrices, variables and the objective of a rational point near that of a certificate.

    Parameters
    ----------
    certificate : BoundCertificate
    denominator : int

    Raises
    ------
    ValueError
        If there is none: the message says why.
    """
    whole = certificate.data
    if any(block.anchor is not None for block in whole.matrices) or (whole.kind != int(Penalty.HARD)).any():
        raise ValueError("the objective is not linear: its value is no fraction; expected linear objectives")
    if certificate.point is None:
        entry = f"{whole.matrices[0].name}[0, 0]" if whole.matrices else "u"
        raise ValueError(
            "no feasible point with room inside the cone is proven, so that rounding would leave the cone; "
            "verify().reasons['upper'] says what is missing. Where several rows only together, or in several "
            f"steps, fix parts of a matrix to zero, add these as rows, such as {entry} == 0"
        )
    if _has_radii(whole):
        raise ValueError(
            "rows or costs are products that doubles round, or intervals; state them as matrices of numbers"
        )
    data, bases = reduced(whole, certificate.face)
    rounded = _rounded(data, certificate.point, denominator)
    rounded.solve(certificate.point.equations, certificate.point.movable)
    X = []
    for b, (block, H) in enumerate(zip(data.matrices, bases, strict=True)):
        M = rounded.matrix(b)
        if not _is_psd(M) or (block.cap is not None and not _is_psd(_below(M, Fraction(block.cap)))):
            raise ValueError(
                f"{block.name}, rounded to 1 / {denominator}, is not psd or is above its cap; expected a "
                "larger denominator"
            )
        if H is not None:
            lift = [[Fraction(h) for h in row] for row in H.tolist()]
            M = product_of(product_of(lift, M), [list(column) for column in zip(*lift, strict=True)])
        X.append(M)
    found = _Point(whole, X, rounded.variables())
    found.check()
    return tuple(_array(M, len(M)) for M in X), found.variables(), found.value()


def bound_of_point(
    data: Data,
    matrices: Sequence[Rational],
    u: Sequence[Fraction],
    equations: IntArray,
    shift: Fraction = Fraction(0),
) -> Fraction | None:
    """Return the objective at a feasible point near matrices and variables; None where none is found.

    Parameters
    ----------
    data : Data
        With linear costs, hard rows and exact numbers.
    matrices : sequence of matrices in fractions
    u : sequence of Fraction
    equations : int array
        The rows that are solved for one entry or variable each; the point has room in the others.
    shift : Fraction
        The matrices are psd after a multiple of the identity is added.
    """
    if _has_radii(data):
        return None
    point = _Point(data, matrices, u)
    try:
        point.solve(equations, np.arange(data.k))
        point.check()
    except ValueError:
        return None
    found = [point.matrix(b) for b in range(len(data.matrices))]
    for M in found:
        for i in range(len(M)):
            M[i][i] += shift
    return point.value() if all(len(M) <= _LARGEST_SINGULAR and is_psd(M) for M in found) else None


def _has_radii(data: Data) -> bool:
    parts = (data.lo_rad, data.hi_rad, data.c.rad, *(block.C.rad for block in data.matrices))
    return data.A_rad is not None or data.B_rad is not None or any(part.any() for part in parts)


def _rounded(data: Data, point: Point, denominator: int) -> _Point:
    """Return a point whose entries and movable variables are multiples of ``1 / denominator``."""

    def nearest(x: float) -> Fraction:
        return Fraction(round(Fraction(x) * denominator), denominator)

    movable = set(point.movable.tolist())
    u = [nearest(x) if k in movable else Fraction(x) for k, x in enumerate(point.u.tolist())]
    return _Point(data, [[[nearest(x) for x in row] for row in X.tolist()] for X in point.X], u)


class _Point:
    """Matrices and variables in fractions; those of their entries that occur in rows or costs may change."""

    def __init__(self, data: Data, matrices: Sequence[Rational], u: Sequence[Fraction]) -> None:
        self.data, self.matrices = data, matrices
        self.rows, self.costs = rows_of(data)
        places = [(b, block.i.tolist(), block.j.tolist()) for b, block in enumerate(data.matrices)]
        self.entries = [(b, i, j) for b, own, other in places for i, j in zip(own, other, strict=True)]
        self.x: Vector = {(b, i, j): matrices[b][i][j] for b, i, j in self.entries}
        self.x |= {(-1 - j, 0, 0): x for j, x in enumerate(u)}

    def solve(self, equations: IntArray, variables: IntArray) -> None:
        """Change one entry, or one of some variables, for each equation, so that all hold exactly."""
        missing = []
        for k in equations.tolist():
            ends = [Fraction(x) for x in (float(self.data.lo[k]), float(self.data.hi[k])) if math.isfinite(x)]
            activity = total_of(self.rows[k], self.x)
            missing.append(min((end - activity for end in ends), key=abs))
        movable = [*self.entries, *((-1 - j, 0, 0) for j in variables.tolist())]
        for p, change in changes_for([self.rows[k] for k in equations.tolist()], movable, missing).items():
            self.x[p] += change

    def check(self) -> None:
        """Refuse a point that violates a row, a box or a cone."""
        data, u = self.data, self.variables()
        for k, row in enumerate(self.rows):
            if not data.lo[k] <= total_of(row, self.x) <= data.hi[k]:
                raise ValueError(f"rounding violates row {k}; expected a larger denominator")
        inside = all(lo <= x <= hi for lo, x, hi in zip(data.u_lo, u, data.u_hi, strict=True))
        if not inside or not in_cones(data, dict(enumerate(u))):
            raise ValueError(
                "rounding moves a variable out of its box or cone; expected a larger denominator"
            )

    def matrix(self, b: int) -> Rational:
        """Return a matrix."""
        M = [list(row) for row in self.matrices[b]]
        for own, i, j in self.entries:
            if own == b:
                M[i][j] = M[j][i] = self.x[b, i, j]
        return M

    def variables(self) -> list[Fraction]:
        return [self.x[-1 - j, 0, 0] for j in range(self.data.k)]

    def value(self) -> Fraction:
        """Return the objective of the minimization."""
        return total_of(self.costs, self.x) + Fraction(self.data.offset)

    def falls(self, recessions: Sequence[Rational | None]) -> bool:
        """Whether the objective falls without end along the point as a direction, which keeps all rows."""
        data, u, grows = self.data, self.variables(), False
        rate = total_of(self.costs, self.x)
        for k, row in enumerate(self.rows):
            a = total_of(row, self.x)
            beyond = (a > 0 and data.hi[k] < np.inf) or (a < 0 and data.lo[k] > -np.inf)
            if beyond and data.kind[k] != int(Penalty.HINGE):
                return False
            if beyond:
                rate += abs(a) * Fraction(float(data.weight[k]))
            grows |= a > 0 and data.kind[k] == int(Penalty.LOG)
        for z, lo, hi in zip(u, data.u_lo, data.u_hi, strict=True):
            if (z > 0 and hi < np.inf) or (z < 0 and lo > -np.inf):
                return False
        if not in_cones(data, dict(enumerate(u))):
            return False
        for M, block, R in zip(self.matrices, data.matrices, recessions, strict=True):
            if not any(map(any, M)):
                continue
            if block.cap is not None or not is_psd(M) or (block.anchor is not None and R is None):
                return False
            if block.anchor is not None and R is not None:
                pairs = (
                    x * z for own, other in zip(R, M, strict=True) for x, z in zip(own, other, strict=True)
                )
                rate, grows = rate + Fraction(block.anchor.mu) * sum(pairs, Fraction(0)), True
        priced = bool(data.c.rad.any() or any(block.C.rad.any() for block in data.matrices))
        return not priced and (rate < 0 or (rate == 0 and grows))


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
    pairs = list(zip(X, data.matrices, strict=True))
    exact = data.B_rad is None and all(block.A_rad is None or not M.any() for M, block in pairs)
    if not exact or any(len(M) > _LARGEST_ORDER and M.any() for M in X):
        return False
    ends = np.isfinite(data.lo) | np.isfinite(data.hi)
    rows = [row for row, end in zip(rows_of(data)[0], ends, strict=True) if end]
    for share in SHARES:
        v = _entries(X, u, share)
        own = ({e: a for e, a in row.items() if e in v} for row in rows)
        for near in solutions_near([row for row in own if row and vanishes(row, v)], v):
            matrices = [
                [
                    [near.get((b, min(i, j), max(i, j)), Fraction(0)) for j in range(len(M))]
                    for i in range(len(M))
                ]
                for b, M in enumerate(X)
            ]
            variables = [near.get((-1 - j, 0, 0), Fraction(0)) for j in range(data.k)]
            if _Point(data, matrices, variables).falls(recessions):
                return True
    return False


def _entries(X: Sequence[Array], u: Array, share: float) -> dict[Any, float]:
    """Return the entries of a direction on and above the diagonal, and the variables, that are not zero."""
    largest = max((float(np.abs(M).max(initial=0.0)) for M in X), default=0.0)
    v: dict[Any, float] = {}
    for b, M in enumerate(X):
        kept = np.flatnonzero(M.diagonal() > share * largest).tolist()
        v |= {(b, i, j): float(M[i, j]) for a, i in enumerate(kept) for j in kept[a:]}
    used = np.flatnonzero(np.abs(u) > share * np.abs(u).max(initial=0.0))
    return v | {(-1 - j, 0, 0): float(u[j]) for j in used.tolist()}


def exact_inverse(X0: Array) -> Rational | None:
    """Return the inverse of a matrix; None where there is none, or it is too large for fractions."""
    n, diagonal = len(X0), not (X0 - np.diag(X0.diagonal())).any()
    if n > (_LARGEST_ORDER if diagonal else _LARGEST_INVERTED):
        return None
    try:
        return solution(as_fractions(X0), as_fractions(np.eye(n)))
    except ZeroDivisionError:  # singular
        return None


def _is_psd(M: Rational) -> bool:
    """Whether a matrix is psd: proven definite with the rounding of its entries enclosed, or by fractions."""
    near = np.array(M, dtype=float).reshape(len(M), len(M))
    if exceeds(Ball(near, inflated(UNIT * np.abs(near)) + TINY), 0.0):
        return True
    return len(M) <= _LARGEST_SINGULAR and is_psd(M)


def _below(M: Rational, cap: Fraction) -> Rational:
    """Return ``cap I - M``."""
    return [[(cap if i == j else 0) - x for j, x in enumerate(row)] for i, row in enumerate(M)]


def _array(M: Rational, width: int) -> Any:
    found = np.empty((len(M), width), dtype=object)
    for i, row in enumerate(M):
        for j, x in enumerate(row):
            found[i, j] = x
    return found
