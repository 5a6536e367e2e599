"""Answers in rational numbers: matrices that meet the rows exactly and are psd by an exact factorization.

A proof of an upper bound has a matrix ``X`` near a feasible one, with room inside the cone. Its entries are
rounded to multiples of ``1 / denominator``. Then one unknown for each equation is changed, so that all
equations hold exactly, and the matrices are proven psd. So a strictly feasible answer becomes a rational one
as soon as the denominator is large enough (Peyrl and Parrilo 2008, Computing sum of squares decompositions
with rational coefficients). Where rows leave ``X`` no interior, the matrix is rounded on the face.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from bregopt.arrays import TINY, IntArray
from bregopt.program import Penalty
from bregopt.records import cached_property, dataclass
from bregopt.rigorous.ball import UNIT, Ball, inflated
from bregopt.rigorous.data import Data
from bregopt.rigorous.linear_algebra import Rational, changes_for, exceeds, ldl, product_of
from bregopt.rigorous.reduction import reduced
from bregopt.rigorous.upper import Point

if TYPE_CHECKING:
    from bregopt.rigorous.certificate import BoundCertificate

__all__ = ["RationalAnswer", "bound_of_point", "rational_point"]

_LARGEST_ORDER = 40  # of singular matrices


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
        raise ValueError(
            "no feasible point with room inside the cone is proven, so that rounding would leave the cone; "
            "verify().reasons['upper'] says what is missing. Where several rows only together, or in several "
            f"steps, fix parts of a matrix to zero, add these as rows, such as {_first_entry(whole)} == 0"
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


def _first_entry(data: Data) -> str:
    return f"{data.matrices[0].name}[0, 0]" if data.matrices else "u"


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
    return point.value() if all(len(M) <= _LARGEST_ORDER and ldl(M) is not None for M in found) else None


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
        self.places = [
            (b, i, j)
            for b, block in enumerate(data.matrices)
            for i, j in zip(block.i.tolist(), block.j.tolist(), strict=True)
        ]
        self.x = [*(matrices[b][i][j] for b, i, j in self.places), *u]
        self.rows = [_terms(data, k) for k in range(data.m)]

    def activity(self, k: int) -> Fraction:
        return sum((a * self.x[p] for p, a in self.rows[k].items()), Fraction(0))

    def solve(self, equations: IntArray, variables: IntArray) -> None:
        """Change one entry, or one of some variables, for each equation, so that all hold exactly."""
        data, first = self.data, len(self.places)
        missing = []
        for k in equations.tolist():
            ends = [Fraction(end) for end in (float(data.lo[k]), float(data.hi[k])) if math.isfinite(end)]
            activity = self.activity(k)
            missing.append(min((end - activity for end in ends), key=abs))
        movable = [*range(first), *(first + variables).tolist()]
        for p, change in changes_for([self.rows[k] for k in equations.tolist()], movable, missing).items():
            self.x[p] += change

    def check(self) -> None:
        """Refuse a point that violates a row, a box or a cone."""
        data, first = self.data, len(self.places)
        for k in range(data.m):
            if not data.lo[k] <= self.activity(k) <= data.hi[k]:
                raise ValueError(f"rounding violates row {k}; expected a larger denominator")
        u = self.x[first:]
        inside = all(lo <= x <= hi for lo, x, hi in zip(data.u_lo, u, data.u_hi, strict=True))
        for start, dimension in zip(data.cones.starts, data.cones.dimensions, strict=True):
            axis, *others = (u[j] for j in data.cones.index[start : start + dimension].tolist())
            inside = inside and axis >= 0 and axis * axis >= sum((x * x for x in others), Fraction(0))
        if not inside:
            raise ValueError(
                "rounding moves a variable out of its box or cone; expected a larger denominator"
            )

    def matrix(self, b: int) -> Rational:
        """Return a matrix."""
        M = [list(row) for row in self.matrices[b]]
        for (own, i, j), x in zip(self.places, self.x, strict=False):
            if own == b:
                M[i][j] = M[j][i] = x
        return M

    def variables(self) -> list[Fraction]:
        return self.x[len(self.places) :]

    def value(self) -> Fraction:
        """Return the objective of the minimization."""
        costs = np.concatenate([*(block.C.mid for block in self.data.matrices), self.data.c.mid])
        terms = (Fraction(c) * x for c, x in zip(costs.tolist(), self.x, strict=True) if c)
        return sum(terms, Fraction(self.data.offset))


def _is_psd(M: Rational) -> bool:
    """Whether a matrix is psd: proven definite with the rounding of its entries enclosed, or by fractions."""
    near = np.array(M, dtype=float).reshape(len(M), len(M))
    if exceeds(Ball(near, inflated(UNIT * np.abs(near)) + TINY), 0.0):
        return True
    return len(M) <= _LARGEST_ORDER and ldl(M) is not None


def _terms(data: Data, k: int) -> dict[int, Fraction]:
    """Return the coefficients of a row, of entries and then of variables."""
    found, first = {}, 0
    for A in (*(block.A for block in data.matrices), data.B):
        own = slice(A.indptr[k], A.indptr[k + 1])
        for p, a in zip(A.indices[own].tolist(), A.data[own].tolist(), strict=True):
            if a:
                found[first + p] = Fraction(a)
        first += A.shape[1]
    return found


def _below(M: Rational, cap: Fraction) -> Rational:
    """Return ``cap I - M``."""
    return [[(cap if i == j else 0) - x for j, x in enumerate(row)] for i, row in enumerate(M)]


def _array(M: Rational, width: int) -> Any:
    found = np.empty((len(M), width), dtype=object)
    for i, row in enumerate(M):
        for j, x in enumerate(row):
            found[i, j] = x
    return found
