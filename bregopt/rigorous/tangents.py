"""Bounds of programs with convex terms, by tangents whose slopes and constants are enclosed.

A convex ``f`` is above its tangent at any point of its domain, feasible or not. At the exact image ``Y`` of a
matrix of doubles the tangent of ``tr Y log Y`` is ``<log Y + I, .> - tr Y``. Only one side of it is needed.
The logarithm is monotone, so that from ``H (D - e) H' <= Y <= H (D + e) H'`` with an orthogonal ``H``

    H log(D - e) H' <= log Y <= H log(D + e) H',

and for positive semidefinite ``Z`` the products with ``Z`` are in the same order. The lower end costs ``e``
relative to each eigenvalue in its own direction, where a norm of the error would cost ``e`` over the least
eigenvalue in all. With such slopes the tangent program has data with radii, and the proofs of semidefinite
programs apply. Complex Hermitian matrices have their real forms, with every eigenvalue twice.

From above, a feasible matrix within a radius of one of doubles has an image within a radius. So its
eigenvalues have enclosures, and sums of ``d log d`` need no condition number.

After Winick, Lütkenhaus and Coles (2018), Reliable numerical key rates for quantum key distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array
from bregopt.linalg import symmetrize
from bregopt.program import Program
from bregopt.program.convex_functions import (
    Exponential,
    Logistic,
    LogSumExp,
    NegativeEntropy,
    NumbersRelativeEntropy,
    entries_of,
)
from bregopt.program.convex_terms import ConvexTerm, Tangent, row_vectors
from bregopt.program.linear_map import LinearMap, Term
from bregopt.program.matrix_entropies import EntropySum, RelativeEntropy, TraceLog
from bregopt.program.rows import DenseRows
from bregopt.records import replace
from bregopt.rigorous.ball import UNIT, Ball, down, exp, inflated, log, sparse_product, up
from bregopt.rigorous.data import Data, Spread, data_of
from bregopt.rigorous.linear_algebra import decomposition, orthogonality

__all__ = [
    "Arguments",
    "Image",
    "components",
    "data_of_tangent",
    "value_of",
    "value_of_terms",
    "violated_row",
]

_SERIES = 0.05  # of the relative difference of two numbers: below it a series has their divided difference
_LEAST = 1e-16  # of the largest number: below it a number is too near zero for a logarithm
_OUTSIDE = "the answer is not proven inside the domain of {}: solve to a larger tol"


class _Slope(NamedTuple):
    """A tangent ``<slope, y> + constant`` below a function, in the coordinates of its matrices' entries."""

    slope: Ball
    constant: Ball


class Arguments:
    """The form of the arguments of a function: entries of matrices, or numbers.

    Parameters
    ----------
    function : ConvexFunction
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.of_matrices = hasattr(function, "orders")
        self.copies = 2 if self.of_matrices and function.hermitian else 1
        self.orders = [self.copies * n for n in function.orders] if self.of_matrices else []

    def matrices(self, y: Ball) -> list[Ball]:
        """Return the matrices of arguments, in real form."""
        found, start = [], 0
        for n in self.orders:
            own = y[start : start + n * n]
            found.append(Ball(own.mid.reshape(n, n), own.rad.reshape(n, n)))
            start += n * n
        return found


class Image(Arguments):
    """The exact arguments of a term as entries of matrices, or as numbers, at a point and near it.

    Parameters
    ----------
    term : ConvexTerm
    """

    def __init__(self, term: ConvexTerm) -> None:
        f: Any = term.function
        super().__init__(f)
        hermitian = self.copies == 2
        parts = [entries_of(n, hermitian) for n in f.orders] if self.of_matrices else [sp.eye_array(f.size)]
        entries = sp.csr_array(sp.block_diag(parts, format="csr"))
        self.maps = [_product(entries, row_vectors(term.A, b)) for b in range(len(term.A.orders))]
        self.of_variables = _product(entries, sp.csr_array(term.B))
        self.constant = Ball(entries @ term.b, 4 * UNIT * (abs(entries) @ np.abs(term.b)))

    def at(self, X: Sequence[Array], u: Array, radius: float = 0.0) -> Ball:
        """Return the arguments at a point, or within a radius of it in the norm of all its entries."""
        total = self.constant
        for (M, rad), X_b in zip(self.maps, X, strict=True):
            total = total + sparse_product(M, rad, Ball.exact(np.ravel(X_b)))
        M, rad = self.of_variables
        total = total + sparse_product(M, rad, Ball.exact(u))
        if radius == 0:
            return total
        squares = np.zeros(len(total.mid))
        for M, rad in (*self.maps, self.of_variables):
            squares += np.asarray((abs(M) + rad).power(2).sum(axis=1)).ravel()
        return Ball(total.mid, inflated(total.rad + np.sqrt(squares) * radius * (1 + 1e-12)))

    def stated(self, weight: Array) -> tuple[Array, tuple[int, ...]]:
        """Return the weights of a term, and the orders of its matrices or the size of its groups.

        The factor of ``C`` follows the weight of ``-tr C log Y``.
        """
        f = self.function
        if isinstance(f, EntropySum):
            weight = np.array(f.weights) * float(weight[0])
        orders = (f.group,) if isinstance(f, LogSumExp) else tuple(self.orders)
        if isinstance(f, TraceLog):
            return np.append(weight / self.copies, _real_form(f.factor)), orders
        return weight / self.copies, orders


def _product(entries: Any, rows: Any) -> tuple[Any, Any]:
    """Return the product with an error of a few units: each factor of the root of one half is rounded."""
    M = sp.csr_array(entries @ rows)
    size = sp.csr_array(abs(entries) @ abs(rows))
    return M, 8 * UNIT * size


# --- tangents


def data_of_tangent(tangent: Tangent, inward: float = 0.0) -> tuple[Program | None, Data | None, str]:
    """Return the tangent program with data that enclose the exact tangents, or why there are none.

    Parameters
    ----------
    tangent : Tangent
    inward : float
        Share of its mean eigenvalue by which each matrix moves inside the cone first.
    """
    program = tangent.program
    rows = _TangentRows(program)
    X = [X_b + inward * float(np.trace(X_b)) / max(1, len(X_b)) * np.eye(len(X_b)) for X_b in tangent.X]
    costs = [[Ball.exact(block.C)] for block in program.blocks]
    c, constant = Ball.exact(program.c), Ball.exact(program.offset)
    for term, row in components(program):
        image = Image(term)
        found = _TANGENTS[type(term.function)](image, image.at(X, tangent.u), term.weight)
        if found is None or not np.isfinite(found.slope.rad).all():
            return None, None, _OUTSIDE.format(term.function.name)
        if row is not None:
            rows.add(row, image, found)
            continue
        for own, (M, rad), block in zip(costs, image.maps, program.blocks, strict=True):
            entry = _adjoint(M, rad, found.slope)
            own.append(Ball(entry.mid.reshape(block.n, -1), entry.rad.reshape(block.n, -1)))
        c = c + _adjoint(*image.of_variables, found.slope)
        constant = constant + found.constant + image.constant.dot(found.slope)
    sums = [_summed(own) for own in costs]
    linear = replace(
        program,
        blocks=tuple(
            replace(block, cost=DenseRows(symmetrize(C.mid)[None]))
            for block, C in zip(program.blocks, sums, strict=True)
        ),
        c=c.mid,
        offset=down(float(constant.lo)),
        terms=(),
        maximize=False,
        **rows.parts(),
    )
    spreads = [
        Spread(*map(np.concatenate, zip(*own, strict=True)))
        for own in ([_spread(C, linear.m), *rows.spreads[b]] for b, C in enumerate(sums))
    ]
    data = replace(data_of(linear, spreads), c=c)
    return linear, replace(data, B_rad=rows.B_rad) if rows.B_rad is not None else data, ""


def components(program: Program) -> Iterator[tuple[ConvexTerm, int | None]]:
    """Yield the terms of the objective, and each component of those in rows with its row."""
    for term in program.terms:
        if term.rows is None:
            yield term, None
            continue
        for k, row in enumerate(term.rows):
            own = np.flatnonzero(term.function.owner == k)
            single: Any = term.function
            single = single if single.count == 1 else replace(single, count=1)
            parts = term.A.slice(own), term.B[own], term.b[own], term.weight[[k]]
            yield ConvexTerm(single, *parts, np.array([row])), int(row)


class _TangentRows:
    """Rows with tangents in place of their terms: coefficients with radii, and upper bounds."""

    def __init__(self, program: Program) -> None:
        self._program, self._hi = program, program.bounds.hi.copy()
        self._matrices: list[dict[int, Ball]] = [{} for _ in program.blocks]
        self._variables: dict[int, Ball] = {}
        self.spreads: list[list[Spread]] = [[] for _ in program.blocks]
        self.B_rad: Any = None

    def add(self, row: int, image: Image, found: _Slope) -> None:
        """Add a tangent to its row."""
        program = self._program
        for b, (own, (M, rad)) in enumerate(zip(self._matrices, image.maps, strict=True)):
            if row not in own:
                own[row] = Ball.exact(row_vectors(program.A, b)[[row]].toarray()[0])
            own[row] = own[row] + _adjoint(M, rad, found.slope)
        if row not in self._variables:
            self._variables[row] = Ball.exact(program.B[[row]].toarray()[0])
        self._variables[row] = self._variables[row] + _adjoint(*image.of_variables, found.slope)
        below = Ball.exact(self._hi[row]) - (found.constant + image.constant.dot(found.slope))
        self._hi[row] = up(float(below.hi))

    def parts(self) -> dict[str, Any]:
        """Return the changed parts of the program, and keep the radii."""
        program, rows = self._program, np.array(sorted(self._variables), dtype=np.intp)
        if not len(rows):
            return {}
        kept = np.setdiff1d(np.arange(program.m), rows)
        terms: list[Term] = []
        for b, block in enumerate(program.blocks):
            for term in program.A.terms_of(b):
                own = np.flatnonzero(np.isin(term.at, kept))
                terms += [Term(b, term.at[own], term.rows.slice(own))] if len(own) else []
            n, mids = block.n, []
            for row in rows:
                flat = self._matrices[b][int(row)]
                C = Ball(flat.mid.reshape(n, n), flat.rad.reshape(n, n))
                mids.append(symmetrize(C.mid))
                self.spreads[b].append(_spread(C, int(row)))
            terms.append(Term(b, rows, DenseRows(np.array(mids))))
        B, B_rad = program.B.tolil(), sp.lil_array(program.B.shape)
        for row, total in self._variables.items():
            B[[row]], B_rad[[row]] = total.mid, total.rad
        self.B_rad = sp.csr_array(B_rad) if program.k else None
        return {
            "A": LinearMap(program.m, program.A.orders, tuple(terms)),
            "B": sp.csr_array(B),
            "bounds": replace(program.bounds, hi=self._hi),
        }


def _summed(parts: list[Ball]) -> Ball:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _spread(C: Ball, row: int) -> Spread:
    """Return the radii of a cost, with what its symmetric part differs from it by."""
    n = len(C.mid)
    rad = np.maximum(C.rad, C.rad.T) + np.abs(C.mid - C.mid.T) + 2 * UNIT * np.abs(C.mid)
    return Spread(np.full(n * n, row), np.arange(n * n), inflated(rad).ravel())


def _adjoint(M: Any, rad: Any, slope: Ball) -> Ball:
    return sparse_product(sp.csr_array(M.T), sp.csr_array(rad.T), slope)


class _Spectrum:
    """``H (D - e) H' <= Y <= H (D + e) H'`` for a matrix with radii."""

    def __init__(self, Y: Ball) -> None:
        rad = np.maximum(Y.rad, Y.rad.T) + np.abs(Y.mid - Y.mid.T)
        self.Q, self.d, distance = decomposition(Ball((Y.mid + Y.mid.T) / 2, inflated(rad)))
        self.distance = inflated(distance + TINY)
        self.definite = bool(math.isfinite(self.distance) and self.d[0] > 2 * self.distance)
        delta = orthogonality(self.Q)
        self.turn = inflated(delta * (2 + delta))

    def logarithm(self, below: bool) -> Ball:
        """Return a matrix below the logarithm, or above it."""
        moved = Ball.exact(self.d if below else np.maximum(self.d, 0.0))
        moved = moved + (-self.distance if below else self.distance)
        ends = log(moved).lo if below else log(moved).hi
        size = self.turn * float(np.abs(ends).max(initial=0.0))
        K = (Ball.exact(self.Q) * ends) @ self.Q.T
        return K + (-size if below else size) * np.eye(len(self.d))

    def itself(self) -> _Spectrum | None:
        """Return the spectrum of ``H D H'`` itself, None where that is not definite."""
        own = copy(self)
        own.distance = 0.0
        return own if self.d[0] > 0 else None

    def derivative(self, T: Ball) -> Ball:
        """Return a matrix above the derivative of the logarithm at ``H D H'`` along ``H T H'``.

        Radii count on the diagonal, where ``D`` is small: they would spread over all entries.
        """
        N = _differences(self.d) * T
        mid = (N.mid + N.mid.T) / 2
        radii = Ball.exact(np.maximum(N.rad, N.rad.T) + np.abs(N.mid - mid)).sum(1).hi
        return self.congruent(Ball.exact(mid) + np.diag(inflated(radii)))

    def congruent(self, N: Ball) -> Ball:
        """Return ``H N H'``."""
        Q = Ball.exact(self.Q)
        M = Q @ N @ Q.T
        return Ball(M.mid, inflated(M.rad + self.turn * N.frobenius()))

    def turned(self, C: Ball) -> Ball:
        """Return ``H'C H``."""
        Q = Ball.exact(self.Q)
        T = Q.T @ C @ Q
        return Ball(T.mid, inflated(T.rad + self.turn * C.frobenius()))


def _differences(d: Array) -> Ball:
    """Return the divided differences of the logarithm of positive doubles."""
    a, b = Ball.exact(d[:, None] + 0 * d), Ball.exact(d + 0 * d[:, None])
    total = a + b
    m = (a - b) / total
    near = np.abs(m.mid) <= _SERIES
    square, term, series = m * m, Ball.exact(np.ones_like(m.mid)), Ball.exact(np.ones_like(m.mid))
    for k in range(1, 7):
        term = term * square
        rounded = Ball(np.zeros_like(m.mid), UNIT * term.magnitude)  # of 1 / (2 k + 1)
        series = series + term * (1.0 / (2 * k + 1)) + rounded
    rest = _SERIES**14  # of the terms that are left out, below a geometric series
    close = Ball(series.mid, series.rad + rest) * 2.0 / total
    apart = np.where(near, 2.0 * d[:, None], d[:, None] + 0 * d)
    logs = log(Ball.exact(apart)) - log(b)
    far = logs / (Ball.exact(apart) - b)
    return Ball(np.where(near, close.mid, far.mid), np.where(near, close.rad, far.rad))


def _of_entropies(image: Image, y: Ball, weight: Array) -> _Slope | None:
    """Return the tangent at the arguments; those of negative weight may move up, and need not be definite.

    The sum is convex as one of relative entropies ``D(A || B)`` with a matrix ``B = P(A)`` of negative
    weight, such as a pinching or a partial trace. These are jointly convex. At ``(A, B + E)`` with psd ``E``
    the slope is ``log A - P*(log (B + E))``, plus the image of ``I - Dlog[B + E](B)``, which is psd.
    """
    slopes, constant = [], Ball.exact(0.0)
    for w, Y in zip(image.function.weights, image.matrices(y), strict=True):
        w = w * float(weight[0]) / image.copies
        spectrum = _Spectrum(Y)
        if not spectrum.definite and (w > 0 or not math.isfinite(spectrum.distance)):
            return None
        slopes.append((spectrum.logarithm(below=w > 0) + np.eye(len(Y.mid))) * w)
        constant = constant - Y[np.diag_indices(len(Y.mid))].sum() * w
    return _Slope(_joined(slopes), constant)


def _of_relative_entropy(image: Image, y: Ball, weight: Array) -> _Slope | None:
    """Return the tangent at matrices near the arguments, of which the second has a known spectrum.

    The function has its arguments for itself, so any definite ones will do.
    """
    A, B = image.matrices(y)
    b = _Spectrum(B).itself()
    if b is None:
        return None
    inner = b.turned(Ball.exact(A.mid)).mid
    T = Ball.exact((inner + inner.T) / 2)
    a = _Spectrum(b.congruent(T))
    if not a.definite:
        return None
    w = float(weight[0]) / image.copies
    first = a.logarithm(below=True) + np.eye(len(A.mid)) - b.logarithm(below=False)
    return _Slope(_joined([first * w, b.derivative(T) * -w]), Ball.exact(0.0))


def _of_trace_log(image: Image, y: Ball, weight: Array) -> _Slope | None:
    (Y,) = image.matrices(y)
    spectrum, w = _Spectrum(Y).itself(), float(weight[0]) / image.copies
    if spectrum is None:
        return None
    R = _real_form(image.function.factor)
    half = Ball.exact(spectrum.Q.T) @ R
    half = Ball(half.mid, inflated(half.rad + spectrum.turn * Ball.exact(R).frobenius()))
    C = Ball.exact(R) @ R.T
    value = spectrum.logarithm(below=False).dot(C) * -w
    slope = spectrum.derivative(half @ half.T)
    return _Slope(_joined([slope * -w]), value + C[np.diag_indices(len(C.mid))].sum() * w)


def _of_negative_entropy(image: Image, y: Ball, weight: Array) -> _Slope | None:
    point = Ball.exact(_positive(y.mid))  # a tangent at any point will do, one for each number
    return _Slope((log(point) + 1.0) * weight, -(point * weight).sum())


def _of_ratios(image: Image, y: Ball, weight: Array) -> _Slope | None:
    a, b = (Ball.exact(part) for part in np.split(_positive(y.mid), 2))
    first, second = (log(a) - log(b) + 1.0) * weight, -(a / b) * weight
    slope = Ball(np.concatenate([first.mid, second.mid]), np.concatenate([first.rad, second.rad]))
    return _Slope(slope, Ball.exact(0.0))


def _positive(y: Array) -> Array:
    """Return numbers inside the domain of the logarithm."""
    moved: Array = np.maximum(y, _LEAST * (float(np.abs(y).max(initial=0.0)) or 1.0))
    return moved


def _of_exponentials(image: Image, y: Ball, weight: Array) -> _Slope | None:
    point = Ball.exact(y.mid)
    e = exp(point) * weight
    return _Slope(e, (e * (1.0 - point)).sum())


def _of_logistics(image: Image, y: Ball, weight: Array) -> _Slope | None:
    point = Ball.exact(y.mid)
    p = Ball.exact(1.0) / (exp(-point) + 1.0)
    value = _log_of_sum(Ball(np.stack([0 * y.mid, y.mid], 1), np.zeros((len(y.mid), 2))))
    return _Slope(p * weight, ((value - p * point) * weight).sum())


def _of_log_sums(image: Image, y: Ball, weight: Array) -> _Slope | None:
    f = image.function
    point = Ball.exact(y.mid.reshape(f.count, f.group))
    value = _log_of_sum(point)
    p = exp(point - Ball(value.mid[:, None], value.rad[:, None]))
    w = weight[:, None] + 0 * y.mid.reshape(f.count, f.group)
    slope = p * w
    return _Slope(Ball(slope.mid.ravel(), slope.rad.ravel()), (value * weight).sum() - (slope * point).sum())


def _log_of_sum(y: Ball) -> Ball:
    """Return ``log(sum exp)`` of each row."""
    largest = y.mid.max(axis=1)
    return log(exp(y - largest[:, None]).sum(1)) + largest


def _joined(slopes: list[Ball]) -> Ball:
    mid, rad = ([part.ravel() for part in own] for own in zip(*((s.mid, s.rad) for s in slopes), strict=True))
    return Ball(np.concatenate(mid), np.concatenate(rad))


def _real_form(C: Any) -> Array:
    return np.block([[C.real, -C.imag], [C.imag, C.real]]) if np.iscomplexobj(C) else np.asarray(C)


_TANGENTS: dict[type, Callable[[Image, Ball, Array], _Slope | None]] = {
    EntropySum: _of_entropies,
    RelativeEntropy: _of_relative_entropy,
    TraceLog: _of_trace_log,
    NegativeEntropy: _of_negative_entropy,
    NumbersRelativeEntropy: _of_ratios,
    Exponential: _of_exponentials,
    Logistic: _of_logistics,
    LogSumExp: _of_log_sums,
}


# --- values


def value_of_terms(program: Program, X: Sequence[Array], u: Array, radius: float) -> float:
    """Return an upper bound on the objective's terms at every feasible point within `radius` of a point."""
    own = (_value(term, X, u, radius) for term in program.terms if term.rows is None)
    return reduce(lambda total, value: up(total + value), own, 0.0)


def violated_row(program: Program, data: Data, X: Sequence[Array], u: Array, radius: float) -> int | None:
    """Return a row with a term that is not proven to hold at each point within `radius`, None without one.

    Parameters
    ----------
    data : Data
        Of the program without its terms.
    """
    linear = data.activity(X, u).hi
    norms = np.sqrt(sum(np.square(part).sum(axis=1) for part in (data.A, data.B) if part.shape[1]))
    linear = linear + np.asarray(norms).ravel() * math.sqrt(2) * radius * (1 + 1e-9)
    for term, row in components(program):
        if row is not None:
            linear[row] = up(float(linear[row]) + _value(term, X, u, radius))
    rows = np.concatenate([term.rows for term in program.terms if term.rows is not None])
    missed = rows[~(linear[rows] <= program.bounds.hi[rows])]
    return int(missed[0]) if len(missed) else None


def _value(term: ConvexTerm, X: Sequence[Array], u: Array, radius: float) -> float:
    image = Image(term)
    return _VALUES[type(term.function)](image, image.at(X, u, radius), term.weight)


def value_of(function: Any, y: Ball, weight: Array) -> float:
    """Return an upper bound on a function at all arguments in intervals; matrices are proven definite."""
    own = Arguments(function)
    if not all(_Spectrum(Y).definite for Y in own.matrices(y)):
        return math.inf
    return _VALUES[type(function)](own, y, weight)


def _value_of_entropies(image: Arguments, y: Ball, weight: Array) -> float:
    total = 0.0
    for w, Y in zip(image.function.weights, image.matrices(y), strict=True):
        spectrum = _Spectrum(Y)
        if not math.isfinite(spectrum.distance):
            return math.inf
        w = w * float(weight[0]) / image.copies
        total = up(total + float((_entropy(spectrum, largest=w > 0) * w).hi))
    return total


def _entropy(spectrum: _Spectrum, largest: bool) -> Ball:
    """Return the largest or the least ``sum d log d`` of nonnegative numbers in enclosures."""
    lo = np.maximum(np.nextafter(spectrum.d - spectrum.distance, -np.inf), 0.0)
    hi = np.maximum(np.nextafter(spectrum.d + spectrum.distance, np.inf), TINY)
    ends = [_product_with_log(end) for end in (np.maximum(lo, TINY), hi)]
    if largest:
        values = np.maximum(ends[0].hi, ends[1].hi)
        values = np.where(lo == 0, np.maximum(values, 0.0), values)
    else:
        values = np.minimum(ends[0].lo, ends[1].lo)
        inside = (lo <= 0.3678794411714424) & (hi >= 0.3678794411714423)
        values = np.where(inside, -0.3678794411714424, values)
    return Ball.exact(values).sum()


def _product_with_log(d: Array) -> Ball:
    return log(Ball.exact(d)) * d


def _value_of_relative_entropy(image: Arguments, y: Ball, weight: Array) -> float:
    A, B = image.matrices(y)
    a, b, w = _Spectrum(A), _Spectrum(B), float(weight[0]) / image.copies
    if not (b.definite and math.isfinite(a.distance)):
        return math.inf
    return up(float((_entropy(a, largest=True) * w).hi) + float((b.logarithm(below=True).dot(A) * -w).hi))


def _value_of_trace_log(image: Arguments, y: Ball, weight: Array) -> float:
    (Y,) = image.matrices(y)
    spectrum, w = _Spectrum(Y), float(weight[0]) / image.copies
    if not spectrum.definite:
        return math.inf
    R = _real_form(image.function.factor)
    return float((spectrum.logarithm(below=True).dot(Ball.exact(R) @ R.T) * -w).hi)


def _value_of_numbers(image: Arguments, y: Ball, weight: Array) -> float:
    """Return the value of functions of one number that are convex, from the ends of its interval."""
    f = image.function
    ends = [_NUMBERS[type(f)](Ball.exact(end)).hi for end in (y.lo, y.hi)]
    return up(float((Ball.exact(np.maximum(*ends)) * weight).sum().hi))


def _value_of_ratios(image: Arguments, y: Ball, weight: Array) -> float:
    lo, hi = np.split(y.lo, 2), np.split(y.hi, 2)
    if not (lo[0] > 0).all() or not (lo[1] > 0).all():
        return math.inf
    b = log(Ball.exact(lo[1]))
    ends = [((log(Ball.exact(x)) - b) * x).hi for x in (lo[0], hi[0])]
    return up(float((Ball.exact(np.maximum(*ends)) * weight).sum().hi))


def _value_of_log_sums(image: Arguments, y: Ball, weight: Array) -> float:
    f = image.function
    return float((_log_of_sum(Ball.exact(y.hi.reshape(f.count, f.group))) * weight).sum().hi)


def _entropy_of_numbers(y: Ball) -> Ball:
    positive = y.mid > 0
    found = _product_with_log(np.where(positive, y.mid, 1.0))
    return Ball(np.where(positive, found.mid, 0.0), np.where(y.mid >= 0, found.rad, np.inf))


def _logistic_of_numbers(y: Ball) -> Ball:
    return _log_of_sum(Ball(np.stack([0 * y.mid, y.mid], 1), np.stack([0 * y.rad, y.rad], 1)))


_NUMBERS: dict[type, Callable[[Ball], Ball]] = {
    NegativeEntropy: _entropy_of_numbers,
    Exponential: exp,
    Logistic: _logistic_of_numbers,
}
_VALUES: dict[type, Callable[[Arguments, Ball, Array], float]] = {
    EntropySum: _value_of_entropies,
    RelativeEntropy: _value_of_relative_entropy,
    TraceLog: _value_of_trace_log,
    NumbersRelativeEntropy: _value_of_ratios,
    LogSumExp: _value_of_log_sums,
    **dict.fromkeys(_NUMBERS, _value_of_numbers),
}
