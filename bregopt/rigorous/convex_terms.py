"""Bounds of programs with convex terms: tangents from below, and the epigraph, in which both bounds are.

A convex ``f`` is above its tangent at any point of its domain, feasible or not. At the exact image ``Y`` of a
matrix of doubles the tangent of ``tr Y log Y`` is ``<log Y + I, .> - tr Y``. Only one side of it is needed.
The logarithm is monotone, so that from ``H (D - e) H' <= Y <= H (D + e) H'`` with an orthogonal ``H``

    H log(D - e) H' <= log Y <= H log(D + e) H',

and for positive semidefinite ``Z`` the products with ``Z`` are in the same order. The lower end costs ``e``
relative to each eigenvalue in its own direction, where a norm of the error would cost ``e`` over the least
eigenvalue in all. With such slopes the tangent program has data with radii, and the proofs of semidefinite
programs apply. Complex Hermitian matrices have their real forms, with every eigenvalue twice.

A certificate has a linear problem. Tangents of the terms prove the lower bound, but a point on them need not
be feasible, and its value is no upper bound. With the epigraph both sides are those of one problem,

    minimize t  subject to  t >= c'x + sum_k f_k(y_k),  t >= tangent(x),
                            h_i >= a_i'x + sum_k g_ik(y_k),  h_i >= tangent_i(x),  and the other rows,

of which tangents follow from terms, and the lower bound needs only the tangents. The last rows of the data
have no ends: ``t - c'x`` and the arguments of its terms, then ``h_i - a_i'x`` and those of its terms, for
each ``i``. A variable that is 1 has their constants.

After Winick, Lütkenhaus and Coles (2018), Reliable numerical key rates for quantum key distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.linalg import symmetrize
from bregopt.program import Penalty, Program
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
from bregopt.rigorous.data import Data, MatrixData, Spread, data_of
from bregopt.rigorous.divergences import Arguments, Spectrum, function_value, log_of_sum, real_form, value_of
from bregopt.rigorous.reduction import implied_bounds
from bregopt.rigorous.upper import Point, activities

_LEAST = 1e-16  # of the largest number: below it a number is too near zero for a logarithm
_OUTSIDE = "the answer is not proven inside the domain of {}: solve to a larger tol"
_LARGEST = 2_000_000  # coefficients, dense, of the data with arguments
_WIDER = 1e-3  # of the ends of a box, by which it grows

KINDS: dict[str, type] = {
    "entropy": EntropySum,
    "relative entropy": RelativeEntropy,
    "entropy of numbers": NegativeEntropy,
    "relative entropy of numbers": NumbersRelativeEntropy,
    "exponential": Exponential,
    "logistic": Logistic,
    "logarithm of a sum": LogSumExp,
    "trace of a logarithm": TraceLog,
}  # of functions that files state
SUM = "sum"  # of the terms that follow, which is no more than its row
_MATRICES = ("entropy", "relative entropy", "trace of a logarithm")


class _Slope(NamedTuple):
    """A tangent ``<slope, y> + constant`` below a function, in the coordinates of its matrices' entries."""

    slope: Ball
    constant: Ball


class Image(Arguments):
    """The exact arguments of a term as entries of matrices, or as numbers, at a point and near it.

    Parameters
    ----------
    term : ConvexTerm
    """

    def __init__(self, term: ConvexTerm) -> None:
        f: Any = term.function
        super().__init__(f)
        self.weight = term.weight
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

    @property
    def stated(self) -> tuple[Array, tuple[int, ...]]:
        """The weights of a term, and the orders of its matrices or the size of its groups.

        The factor of ``C`` follows the weight of ``-tr C log Y``.
        """
        f, weight = self.function, self.weight
        if isinstance(f, EntropySum):
            weight = np.array(f.weights) * float(weight[0])
        orders = (f.group,) if isinstance(f, LogSumExp) else tuple(self.orders)
        if isinstance(f, TraceLog):
            return np.append(weight / self.copies, real_form(f.factor)), orders
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
    X = [X_b + inward * float(np.trace(X_b)) / max(1, len(X_b)) * np.eye(len(X_b)) for X_b in tangent.X]
    sums: dict[int | None, _Linear] = {}
    for group in _groups(program):
        matrices = [Ball.exact(C) for C in group.matrices]
        c, constant = Ball.exact(group.c), Ball.exact(group.constant)
        for image in group.images:
            found = _TANGENTS[type(image.function)](image, image.at(X, tangent.u), image.weight)
            if found is None or not np.isfinite(found.slope.rad).all():
                return None, None, _OUTSIDE.format(image.function.name)
            pairs = zip(matrices, image.maps, strict=True)
            matrices = [own + _adjoint(M, rad, found.slope) for own, (M, rad) in pairs]
            c = c + _adjoint(*image.of_variables, found.slope)
            constant = constant + found.constant + image.constant.dot(found.slope)
        whole = [C.reshape(block.n, -1) for C, block in zip(matrices, program.blocks, strict=True)]
        sums[group.row] = _Linear(whole, c, constant)
    objective, rows = sums[None], {row: own for row, own in sums.items() if row is not None}
    linear = replace(
        program,
        blocks=tuple(
            replace(block, cost=DenseRows(symmetrize(C.mid)[None]))
            for block, C in zip(program.blocks, objective.matrices, strict=True)
        ),
        c=objective.c.mid,
        offset=down(float(objective.constant.lo)),
        terms=(),
        maximize=False,
        **_tangent_rows(program, rows),
    )
    spreads = []
    for b in range(len(program.blocks)):
        own = [
            _spread(objective.matrices[b], program.m),
            *(_spread(f.matrices[b], k) for k, f in rows.items()),
        ]
        spreads.append(Spread(*map(np.concatenate, zip(*own, strict=True))))
    data = replace(data_of(linear, spreads), c=objective.c)
    if not rows or not program.k:
        return linear, data, ""
    B_rad = sp.lil_array(program.B.shape)
    for row, f in rows.items():
        B_rad[[row]] = f.c.rad
    return linear, replace(data, B_rad=sp.csr_array(B_rad)), ""


class _Linear(NamedTuple):
    """A linear function of matrices and variables."""

    matrices: list[Ball]
    c: Ball
    constant: Ball


def _tangent_rows(program: Program, rows: dict[int, _Linear]) -> dict[str, Any]:
    """Return the parts of a program whose rows have tangents in place of their terms."""
    if not rows:
        return {}
    at = np.array(sorted(rows), dtype=np.intp)
    kept = np.setdiff1d(np.arange(program.m), at)
    terms: list[Term] = []
    for b in range(len(program.blocks)):
        for term in program.A.terms_of(b):
            own = np.flatnonzero(np.isin(term.at, kept))
            terms += [Term(b, term.at[own], term.rows.slice(own))] if len(own) else []
        mids = [symmetrize(rows[row].matrices[b].mid) for row in at.tolist()]
        terms.append(Term(b, at, DenseRows(np.array(mids))))
    B, hi = program.B.tolil(), program.bounds.hi.copy()
    for row, f in rows.items():
        B[[row]], hi[row] = f.c.mid, up(-float(f.constant.lo))
    return {
        "A": LinearMap(program.m, program.A.orders, tuple(terms)),
        "B": sp.csr_array(B),
        "bounds": replace(program.bounds, hi=hi),
    }


class _Group(NamedTuple):
    """The sum of terms and a linear function of the objective, or of a row, where it is not above zero."""

    row: int | None
    matrices: list[Array]
    c: Array
    constant: float
    images: list[Image]


def _groups(program: Program) -> list[_Group]:
    """Return the sums of the objective and of each row with terms."""
    images: dict[int | None, list[Image]] = {None: []}
    for term, row in components(program):
        images.setdefault(row, []).append(Image(term))
    costs = [np.ravel(block.C) for block in program.blocks]
    groups = [_Group(None, costs, program.c, program.offset, images.pop(None))]
    for row, own in images.items():
        A = [row_vectors(program.A, b)[[row]].toarray()[0] for b in range(len(program.blocks))]
        B, end = program.B[[row]].toarray()[0], float(program.bounds.hi[row])
        groups.append(_Group(row, A, B, -end, own))
    return groups


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


def _spread(C: Ball, row: int) -> Spread:
    """Return the radii of a cost, with what its symmetric part differs from it by."""
    n = len(C.mid)
    rad = np.maximum(C.rad, C.rad.T) + np.abs(C.mid - C.mid.T) + 2 * UNIT * np.abs(C.mid)
    return Spread(np.full(n * n, row), np.arange(n * n), inflated(rad).ravel())


def _adjoint(M: Any, rad: Any, slope: Ball) -> Ball:
    return sparse_product(sp.csr_array(M.T), sp.csr_array(rad.T), slope)


def _of_entropies(image: Image, y: Ball, weight: Array) -> _Slope | None:
    """Return the tangent at the arguments; those of negative weight may move up, and need not be definite.

    The sum is convex as one of relative entropies ``D(A || B)`` with a matrix ``B = P(A)`` of negative
    weight, such as a pinching or a partial trace. These are jointly convex. At ``(A, B + E)`` with psd ``E``
    the slope is ``log A - P*(log (B + E))``, plus the image of ``I - Dlog[B + E](B)``, which is psd.
    """
    slopes, constant = [], Ball.exact(0.0)
    for w, Y in zip(image.function.weights, image.matrices(y), strict=True):
        w = w * float(weight[0]) / image.copies
        spectrum = Spectrum(Y)
        if not spectrum.definite and (w > 0 or not math.isfinite(spectrum.distance)):
            return None
        slopes.append(((spectrum.logarithm(below=w > 0) + np.eye(len(Y.mid))) * w).reshape(-1))
        constant = constant - Y[np.diag_indices(len(Y.mid))].sum() * w
    return _Slope(Ball.joined(slopes), constant)


def _of_relative_entropy(image: Image, y: Ball, weight: Array) -> _Slope | None:
    """Return the tangent at matrices near the arguments, of which the second has a known spectrum.

    The function has its arguments for itself, so any definite ones will do.
    """
    A, B = image.matrices(y)
    b = Spectrum(B).itself()
    if b is None:
        return None
    inner = b.turned(Ball.exact(A.mid)).mid
    T = Ball.exact((inner + inner.T) / 2)
    a = Spectrum(b.congruent(T))
    if not a.definite:
        return None
    w = float(weight[0]) / image.copies
    first = a.logarithm(below=True) + np.eye(len(A.mid)) - b.logarithm(below=False)
    return _Slope(Ball.joined([(first * w).reshape(-1), (b.derivative(T) * -w).reshape(-1)]), Ball.exact(0.0))


def _of_trace_log(image: Image, y: Ball, weight: Array) -> _Slope | None:
    (Y,) = image.matrices(y)
    spectrum, w = Spectrum(Y).itself(), float(weight[0]) / image.copies
    if spectrum is None:
        return None
    R = real_form(image.function.factor)
    half = Ball.exact(spectrum.Q.T) @ R
    half = Ball(half.mid, inflated(half.rad + spectrum.turn * Ball.exact(R).frobenius()))
    C = Ball.exact(R) @ R.T
    value = spectrum.logarithm(below=False).dot(C) * -w
    slope = spectrum.derivative(half @ half.T)
    return _Slope((slope * -w).reshape(-1), value + C[np.diag_indices(len(C.mid))].sum() * w)


def _of_negative_entropy(image: Image, y: Ball, weight: Array) -> _Slope | None:
    point = Ball.exact(_positive(y.mid))  # a tangent at any point will do, one for each number
    return _Slope((log(point) + 1.0) * weight, -(point * weight).sum())


def _of_ratios(image: Image, y: Ball, weight: Array) -> _Slope | None:
    a, b = (Ball.exact(part) for part in np.split(_positive(y.mid), 2))
    first, second = (log(a) - log(b) + 1.0) * weight, -(a / b) * weight
    return _Slope(Ball.joined([first, second]), Ball.exact(0.0))


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
    value = log_of_sum(Ball(np.stack([0 * y.mid, y.mid], 1), np.zeros((len(y.mid), 2))))
    return _Slope(p * weight, ((value - p * point) * weight).sum())


def _of_log_sums(image: Image, y: Ball, weight: Array) -> _Slope | None:
    f = image.function
    point = Ball.exact(y.mid.reshape(f.count, f.group))
    value = log_of_sum(point)
    p = exp(point - Ball(value.mid[:, None], value.rad[:, None]))
    w = weight[:, None] + 0 * y.mid.reshape(f.count, f.group)
    slope = p * w
    return _Slope(slope.reshape(-1), (value * weight).sum() - (slope * point).sum())


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


# --- Values


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
    return function_value(image, image.at(X, u, radius), term.weight)


# --- The epigraph


class StatedTerm(NamedTuple):
    """A term, whose arguments are rows, or the row that bounds the sum of those that follow.

    Parameters
    ----------
    kind : str
        One of `KINDS`, or a sum.
    weights : array
        Of each matrix for entropies, of one function for relative ones, else of each number or group. For
        ``-tr R R' log Y`` the entries of ``R`` come next. A sum has none.
    orders : tuple of int
        Of the matrices, all of whose entries are arguments; for logarithms of sums the size of a group.
    """

    kind: str
    weights: Array
    orders: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of arguments."""
        if self.kind == SUM:
            return 1
        if self.kind in _MATRICES:
            return sum(n * n for n in self.orders)
        factor = 2 if self.kind == "relative entropy of numbers" else sum(self.orders) or 1
        return factor * len(self.weights)

    def value(self, y: Ball) -> float:
        """Return an upper bound at all arguments in intervals, infinite where they may leave the domain."""
        weight, count = np.ones(1), len(self.weights)
        if self.kind == "entropy":
            function: Any = KINDS[self.kind](self.orders, tuple(self.weights.tolist()), False)
        elif self.kind == "relative entropy":
            function, weight = KINDS[self.kind](self.orders, False), self.weights
        elif self.kind == "trace of a logarithm":
            function, weight = TraceLog(np.eye(self.orders[0]), False), self.weights[:1]
            vars(function)["factor"] = self.weights[1:].reshape(self.orders[0], -1)
        else:
            function, weight = KINDS[self.kind](count, *self.orders), self.weights
        return value_of(function, y, weight)


def with_epigraph(program: Program, data: Data) -> tuple[Data, tuple[StatedTerm, ...]] | None:
    """Return the epigraph of convex terms with their tangents, None where a certificate has no form for it.

    Parameters
    ----------
    program : Program
        With convex terms.
    data : Data
        Of its tangent program; the rows are the same.
    """
    if any(block.anchor is not None for block in data.matrices) or (data.kind != int(Penalty.HARD)).any():
        return None
    names = {function: kind for kind, function in KINDS.items()}
    groups, stated = _groups(program), []
    for group in groups:
        stated.append(StatedTerm(SUM, np.zeros(0), ()))
        stated += [StatedTerm(names[type(image.function)], *image.stated) for image in group.images]
    terms = tuple(stated)
    count = 1 + sum(term.size for term in terms)
    columns = sum(block.n * (block.n + 1) // 2 for block in data.matrices) + data.k + 2
    if (data.m + count) * columns > _LARGEST:
        return None
    costs = [block.C for block in data.matrices]
    blocks = [_block(block, groups, b) for b, block in enumerate(data.matrices)]
    end = Ball.exact(np.zeros((count, 2)))
    end.mid[:2, 1] = 1.0
    mids, rads, place = [-data.c.mid[None]], [data.c.rad[None]], 1
    for group in groups:
        mids.append(-group.c[None])
        rads.append(np.zeros_like(group.c)[None])
        end.mid[place, 0] = -group.constant
        place += 1
        for image in group.images:
            own = slice(place, place + len(image.constant.mid))
            end.mid[own, 0], end.rad[own, 0] = image.constant.mid, image.constant.rad
            mids.append(image.of_variables[0].toarray())
            rads.append(image.of_variables[1].toarray())
            place = own.stop
    own_rows = Ball(np.hstack([np.vstack(mids), end.mid]), np.hstack([np.vstack(rads), end.rad]))
    ones = sp.csr_array((np.ones(data.k), (np.arange(data.k), np.arange(data.k))), (data.k, data.k + 2))
    B, B_rad = _followed(data.B, data.B_rad, ones, own_rows)
    # Rows with radii imply no boxes; these are implied by rows without, and have room for points inside.
    implied = implied_bounds(data)
    wider = np.where(data.in_cone, np.inf, _WIDER * (np.abs(implied.u_lo) + np.abs(implied.u_hi)))
    least = UNIT**3 * max(float(np.abs(part.mid).max(initial=0.0)) for part in (data.c, *costs))
    low = -least if 0 < abs(data.offset) < least else data.offset  # lower, of fewer digits
    free, zero = np.full(count, np.inf), np.zeros(count)
    found = replace(
        data,
        matrices=tuple(blocks),
        B=B,
        B_rad=B_rad,
        c=Ball.exact(np.append(np.zeros(data.k + 1), 1.0)),
        u_lo=np.append(np.maximum(data.u_lo, implied.u_lo - wider), [1.0, -np.inf]),
        u_hi=np.append(np.minimum(data.u_hi, implied.u_hi + wider), [1.0, np.inf]),
        lo=np.concatenate([data.lo, [low], -free[1:]]),
        hi=np.append(data.hi, free),
        lo_rad=np.append(data.lo_rad, zero),
        hi_rad=np.append(data.hi_rad, zero),
        kind=np.append(data.kind, np.full(count, int(Penalty.HARD))),
        weight=np.append(data.weight, free),
        offset=0.0,
    )
    return found, terms


def _block(block: MatrixData, groups: list[_Group], b: int) -> MatrixData:
    """Return a matrix with the rows of the tangent, and those of sums and of arguments."""
    n, p = block.n, block.n * (block.n + 1) // 2
    i, j = np.triu_indices(n)
    place = block.i * n - block.i * (block.i - 1) // 2 + block.j - block.i
    moved = sp.csr_array((np.ones(len(place)), (np.arange(len(place)), place)), (len(place), p))
    whole = []
    for group in groups:
        whole.append((-group.matrices[b][None], np.zeros((1, n * n))))
        whole += [tuple(part.toarray() for part in image.maps[b]) for image in group.images]
    M, rad = (np.vstack(part) for part in zip(*whole, strict=True))
    off = i != j
    first, second = M[:, i * n + j], M[:, j * n + i] * off
    mid = first + second  # exact for two equal ones
    radius = rad[:, i * n + j] + rad[:, j * n + i] * off + 2 * UNIT * np.abs(mid) * (off & (first != second))
    tangent = [(part @ moved)[None] for part in (-block.C.mid, block.C.rad)]
    own = Ball(np.vstack([tangent[0], mid]), np.vstack([tangent[1], inflated(radius)]))
    A, A_rad = _followed(block.A, block.A_rad, moved, own)
    return replace(block, i=i, j=j, A=A, A_rad=A_rad, C=Ball.exact(np.zeros(p)))


def _followed(A: Any, rad: Any, moved: Any, own: Ball) -> tuple[Any, Any]:
    """Return rows with moved columns, followed by others, and radii at the same places."""
    mid = np.vstack([(A @ moved).toarray(), own.mid])
    radius = np.vstack([np.zeros(A.shape) @ moved if rad is None else (rad @ moved).toarray(), own.rad])
    # Radii of the least double would need a thousand digits in a file.
    least = UNIT**3 * np.abs(mid).max(axis=1, initial=0.0, keepdims=True)
    radius = np.where(radius > 0, np.maximum(radius, least), 0.0)
    row, column = np.nonzero((mid != 0) | (radius != 0))
    ends = np.searchsorted(row, np.arange(len(mid) + 1))
    values = (part[row, column] for part in (mid, radius))
    found = [sp.csr_array((value, column, ends), mid.shape) for value in values]
    return found[0], found[1] if radius.any() else None


def in_epigraph(data: Data, terms: tuple[StatedTerm, ...], point: Point) -> bool:
    """Whether all points near a point, that solve its equations, are proven in the epigraph."""
    start = data.m - sum(term.size for term in terms)
    y, ends, totals = activities(data, point), [], []
    for term in terms:
        own = y[start : start + term.size]
        if term.kind == SUM:
            ends.append(float(own.lo[0]))
            totals.append(0.0)
        else:
            totals[-1] = up(totals[-1] + term.value(own))
        start += term.size
    return all(total <= end for total, end in zip(totals, ends, strict=True))
