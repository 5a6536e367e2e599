"""The problem that proofs are about: blocks on faces and ranges, where they have an interior, and its bounds.

Faces are those of :mod:`bregopt.rigorous.faces`. A range is that of a low-rank ``X0 = F F'``: ``X = H M H'``
with ``M`` of the order of the rank. LogDet and von Neumann keep it. LogDet is invariant under congruence:
with ``H = F`` no number is rounded, and ``X0`` becomes the identity. The others, and caps, need an
orthonormal basis of the exact range of `F`: ``H = F T (I + E)^(-1/2)``, for any ``T`` with
``E = (F T)'F T - I`` of norm below one. It is enclosed. If columns depend on others, ``F = G K`` with fewer
columns `G` and a rational ``K``, which is checked exactly; then `G` takes the place of `F`, and ``K K'`` that
of the identity.

Single hard rows imply bounds on traces and variables. A row ``sum_i w_i X_ii + sum_j b_j u_j <= s`` with
``w_i >= 0`` bounds each ``X_ii`` by what the variables leave of ``s``, divided by ``w_i``; it bounds the
variables likewise. All quotients are rounded upward.

Where the rows leave ``X`` no interior, multipliers may grow without end, and no feasible point may be near an
answer. With ``sum tr (C - A*(y)) <= R`` for the multipliers, the dual of

    minimize  <C, X> + R t   subject to   lo <= A(X) + B u <= hi,   X + t I psd,   t >= 0,

both sides have an interior. In ``W = X + t I`` it is a problem of the same form with the variable ``t``, of
cost ``R - tr C`` and column ``-A(I)``. Sums of diagonal entries are enclosed.

A hinge on a bound is a hard one with a variable of its own, whose cost is the price: no number is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from operator import mul
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.program import Penalty, Program
from bregopt.records import dataclass, replace
from bregopt.rigorous.ball import Ball, inflated, raised, sparse_product
from bregopt.rigorous.data import LARGEST_LISTED, Anchor, Data, MatrixData, data_of
from bregopt.rigorous.faces import IntegerFace, RowFace, on_faces, on_integer_face
from bregopt.rigorous.linear_algebra import terms_of

_DEPENDENT = 1e-9  # of the largest diagonal entry of R, below which a column may depend on others
_LARGEST_DENOMINATOR = 12


class Reduced(NamedTuple):
    """A problem with the same optimum, and a matrix near ``H`` of each block ``X = H M H'``, else None."""

    data: Data
    bases: tuple[Array | None, ...]


def reduced(data: Data, face: IntegerFace | None = None) -> Reduced:
    """Return the problem on the faces of its rows and the ranges of low-rank ``X0``.

    Parameters
    ----------
    data : Data
    face : IntegerFace, optional
        That rows imply together.

    Raises
    ------
    ValueError
        If its rows have too many terms to be listed, or do not imply the face.
    """
    return reduced_in_steps(data, face)[0]


def reduced_in_steps(data: Data, face: IntegerFace | None = None) -> tuple[Reduced, tuple[RowFace, ...]]:
    """Return the problem like :func:`reduced`, and the faces of single rows in the order they were taken."""
    bases: tuple[Array | None, ...] = (None,) * len(data.matrices)
    if face is not None:
        on_face = on_integer_face(data, face)
        if on_face is None:
            raise ValueError("the rows do not imply the face that the certificate names")
        data, bases = _with_traces(on_face.data, data), on_face.bases
    taken: list[RowFace] = []
    on, found, faces = on_faces(data)
    while faces:  # a face may have further faces
        data, bases, taken = _with_traces(on, data), tuple(map(_product, bases, found)), taken + faces
        on, found, faces = on_faces(data)
    data, found = _on_ranges(data)
    return Reduced(data, tuple(map(_product, bases, found))), tuple(taken)


def _with_traces(on: Data, data: Data) -> Data:
    """Return a problem on faces with the bounds on traces of the whole, as for principal submatrices."""
    pairs = zip(on.matrices, implied_bounds(data).traces.tolist(), strict=True)
    return replace(on, matrices=tuple(replace(block, trace=trace) for block, trace in pairs))


def _product(H: Array | None, M: Array | None) -> Array | None:
    return M if H is None else H if M is None else H @ M


def _on_ranges(data: Data) -> tuple[Data, tuple[Array | None, ...]]:
    """Return the problem with each block near a low-rank ``X0`` on its range, and matrices near each ``H``.

    Other blocks stay, and have None; so does one whose factor has neither independent columns nor exact
    multiples of them.

    Raises
    ------
    ValueError
        If the rows have too many terms on the range to be listed.
    """
    found = [_on_range(block, data.m) for block in data.matrices]
    bases = tuple(basis for _, basis in found)
    if all(basis is None for basis in bases):
        return data, bases
    return replace(data, matrices=tuple(block for block, _ in found)), bases


def _on_range(block: MatrixData, m: int) -> tuple[MatrixData, Array | None]:
    """Return a block on the range of its factor and the basis, or the block itself and None."""
    anchor = block.anchor
    if anchor is None or anchor.factor is None:
        return block, None
    G, K = independent_columns(anchor.factor)
    H = _orthonormal(G)
    if H is None:
        return block, None
    if anchor.divergence == "logdet" and block.cap is None:
        H, X0 = Ball.exact(G), K @ K.T
    else:
        J = H.T @ anchor.factor
        X0 = J @ J.T
    X0 = (X0 + X0.T) * 0.5
    r = H.mid.shape[1]
    rows = np.flatnonzero(np.diff(block.A.indptr))
    if len(rows) * r * (r + 1) / 2 > LARGEST_LISTED:
        raise ValueError(
            f"the rows of {block.name} have {len(rows) * r * (r + 1) / 2:.2g} terms on the range of X0; "
            f"proofs list at most {LARGEST_LISTED:.2g}"
        )
    terms = [_pairs(block, H, a) for a in range(r)]
    A = [sparse_product(block.A, block.A_rad, term)[rows] for term in terms]
    priced = block.C.magnitude.any()
    C = [term.T @ block.C if priced else Ball.exact(np.zeros(term.mid.shape[1])) for term in terms]
    i, j = np.triu_indices(r)
    mid, rad = (np.hstack([getattr(part, name) for part in A]) for name in ("mid", "rad"))
    on = MatrixData(
        block.name,
        r,
        i,
        j,
        _listed(mid, rows, m),
        _listed(rad, rows, m) if rad.any() else None,
        Ball.joined(C),
        block.cap,
        Anchor(anchor.divergence, X0, anchor.mu),
    )
    return on, H.mid


def independent_columns(F: Array) -> tuple[Array, Ball]:
    """Return columns `G` of a matrix and ``K`` with ``F = G K``: all of them if no dependence is found.

    The coefficients of a column that others span, up to round-off, are fractions of small denominators, or it
    stays.
    """
    r = F.shape[1]
    R, order = scipy.linalg.qr(F, mode="r", pivoting=True)
    size = np.abs(R.diagonal())
    rank = int(np.count_nonzero(size > _DEPENDENT * size.max(initial=0.0)))
    if rank in (0, r):
        return F, Ball.exact(np.eye(r))
    kept, spanned = np.sort(order[:rank]), np.sort(order[rank:])
    near = np.linalg.lstsq(F[:, kept], F[:, spanned], rcond=None)[0]
    K = Ball.exact(np.zeros((rank, r)))
    K.mid[np.arange(rank), kept] = 1.0
    for j, coefficients in zip(spanned, near.T, strict=True):
        found = _fractions(F[:, kept], F[:, j], coefficients)
        if found is None:
            return F, Ball.exact(np.eye(r))
        K.mid[:, j], K.rad[:, j] = found.mid, found.rad
    return F[:, kept], K


def _fractions(G: Array, f: Array, coefficients: Array) -> Ball | None:
    """Return fractions near some coefficients with ``f = G k`` exactly, None where none are found."""
    for q in range(1, _LARGEST_DENOMINATOR + 1):
        p = np.rint(q * coefficients)
        if (np.abs(q * coefficients - p) > _DEPENDENT * q * (1 + np.abs(coefficients))).any():
            continue
        used = np.flatnonzero(p)
        weights = [int(p[k]) for k in used]
        rows = zip(G[:, used].tolist(), f.tolist(), strict=True)
        if all(q * Fraction(b) == sum(map(mul, weights, map(Fraction, row))) for row, b in rows):
            return Ball.exact(p) / float(q)
    return None


def _orthonormal(F: Array) -> Ball | None:
    """Return an orthonormal basis of the exact range of `F`; None where its columns may be dependent.

    For ``e = ||E|| <= 1/2``, ``(I + E)^(-1/2)`` differs from the identity by at most ``e``.
    """
    if F.shape[1] > F.shape[0]:
        return None
    R = np.linalg.qr(F, mode="r")
    with np.errstate(all="ignore"):
        T, info = scipy.linalg.lapack.dtrtri(R)
    if info != 0 or not np.isfinite(T).all():
        return None
    near = Ball.exact(F) @ np.triu(T)
    E = near.T @ near - np.eye(F.shape[1])
    e = E.frobenius()
    if not e < 0.5:
        return None
    lengths = np.sqrt((near.magnitude**2).sum(axis=1)) * (1 + 1e-12) + TINY
    return Ball(near.mid, inflated(near.rad + e * lengths[:, None]))


def _pairs(block: MatrixData, H: Ball, a: int) -> Ball:
    """Return the coefficients of ``M_ab``, ``b >= a``, in the entries ``X_ij`` of a block."""
    left, right = H[block.i], H[block.j]
    one, other = left[:, a : a + 1] * right[:, a:], right[:, a : a + 1] * left[:, a:]
    both = one + other
    both.mid[:, 0], both.rad[:, 0] = one.mid[:, 0], one.rad[:, 0]
    return both


def _listed(values: Array, rows: IntArray, m: int) -> sp.csr_array:
    """Return the sparse array of all entries, with explicit zeros, in the given rows of `m`."""
    width = values.shape[1]
    count = np.zeros(m, dtype=np.intp)
    count[rows] = width
    indptr = np.concatenate([[0], np.cumsum(count)])
    return sp.csr_array((values.ravel(), np.tile(np.arange(width), len(rows)), indptr), (m, width))


@dataclass(frozen=True, eq=False)
class Implied:
    """Proven upper bounds: on the trace of each block, and on the variables from both sides.

    Parameters
    ----------
    traces : array of shape (blocks,)
        Infinite where nothing is known.
    u_lo, u_hi : array of shape (k,)
    diagonals : tuple of array of shape (n,)
        Upper bounds on the diagonal of each block.
    """

    traces: Array
    u_lo: Array
    u_hi: Array
    diagonals: tuple[Array, ...]

    def with_traces(self, given: Array) -> Implied:
        """Return these bounds with those that a caller knows."""
        return replace(self, traces=np.minimum(self.traces, given))


def implied_bounds(data: Data) -> Implied:
    """Return the bounds that single hard or logarithmic rows imply."""
    largest = [np.full(block.n, np.inf) for block in data.matrices]
    traces = np.array([block.trace for block in data.matrices])
    u_lo, u_hi = data.u_lo.copy(), data.u_hi.copy()
    for sign, end, rad in ((1.0, data.hi, data.hi_rad), (-1.0, data.lo, data.lo_rad)):
        supply = _supply(data, sign, raised(sign * end, rad), data.required & np.isfinite(end))
        for b, block in enumerate(data.matrices):
            row = np.repeat(np.arange(data.m), np.diff(block.A.indptr))
            weight = _lowered(sign * block.A.data, block.A_rad)
            share = _quotient(supply[row], weight)
            at = block.i[block.A.indices]
            np.minimum.at(largest[b], at, np.where(weight > 0, share, np.inf))
            # A row with all of the diagonal bounds the trace by its supply over the least weight.
            count = np.bincount(row[weight > 0], minlength=data.m)
            if (count == block.n).any():
                least = np.full(data.m, np.inf)
                np.minimum.at(least, row, weight)
                whole = count == block.n
                traces[b] = min(traces[b], float(_quotient(supply[whole], least[whole]).min()))
        if data.k:
            row = np.repeat(np.arange(data.m), np.diff(data.B.indptr))
            _bound_variables(data, sign, supply, row, u_lo, u_hi)
    for b, caps in enumerate(largest):
        total = Ball.exact(caps).sum()
        traces[b] = min(traces[b], float(total.hi)) if np.isfinite(caps).all() else traces[b]
        cap = data.matrices[b].cap
        if cap is not None:
            traces[b] = min(traces[b], float((Ball.exact(cap) * data.matrices[b].n).hi))
    return Implied(traces, u_lo, u_hi, tuple(largest))


def _supply(data: Data, sign: float, end: Array, rows: Mask) -> Array:
    """Return upper bounds on the nonnegative parts of rows; infinite where another part may be negative."""
    supply = np.where(rows, end, np.inf)
    for block in data.matrices:
        row = np.repeat(np.arange(data.m), np.diff(block.A.indptr))
        off = block.i[block.A.indices] != block.j[block.A.indices]
        wrong = off | (_lowered(sign * block.A.data, block.A_rad) < 0)
        supply[row[wrong]] = np.inf
    if data.k:
        row = np.repeat(np.arange(data.m), np.diff(data.B.indptr))
        j, b = data.B.indices, sign * data.B.data
        least = np.where(b > 0, data.u_lo[j], data.u_hi[j])
        bounded = np.isfinite(least) & (data.B_rad is None)
        supply[row[~bounded]] = np.inf
        term = Ball.exact(b) * np.where(bounded, least, 0.0)
        taken = np.zeros(data.m)
        np.add.at(taken, row, term.lo)
        size = np.zeros(data.m)
        np.add.at(size, row, np.abs(term.lo))
        count = np.diff(data.B.indptr)
        slack = 4 * np.finfo(float).eps * (count + 2) * (size + np.abs(np.where(np.isinf(supply), 0, supply)))
        supply = np.where(count > 0, supply - taken + slack, supply)
    return supply


def _bound_variables(data: Data, sign: float, supply: Array, row: IntArray, u_lo: Array, u_hi: Array) -> None:
    """Tighten the bounds of variables, each above its own end by what its row supplies."""
    j, b = data.B.indices, sign * data.B.data
    finite = np.isfinite(supply[row]) & (data.B_rad is None)
    with np.errstate(invalid="ignore"):
        reach = _quotient(supply[row], np.abs(b))
        above = np.nextafter(data.u_lo[j] + reach, np.inf)
        below = np.nextafter(data.u_hi[j] - reach, -np.inf)
    k = finite & (b > 0)
    np.minimum.at(u_hi, j[k], above[k])
    k = finite & (b < 0)
    np.maximum.at(u_lo, j[k], below[k])


def _lowered(value: Array, rad: Any) -> Array:
    return value if rad is None else np.nextafter(value - rad.data, -np.inf)


def _quotient(a: Array, b: Array) -> Array:
    """Return ``a / b`` for ``b > 0``, rounded upward; infinite elsewhere. Supplies are never negative."""
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.nextafter(np.maximum(a, 0.0) / b, np.inf)
    return np.where(b > 0, q, np.inf)


def with_bounded_slack(program: Program, bound: float) -> tuple[Program, Data]:
    """Return the program in which the traces of the slack matrices sum to at most a bound, and its data.

    Raises
    ------
    ValueError
        If the objective is not linear, a row is soft, or eigenvalues have a cap.
    """
    if any(b.nearness is not None or b.cap is not None for b in program.blocks):
        raise ValueError("trace= bounds the slack C - A*(y) of linear objectives without caps on eigenvalues")
    if (program.bounds.kind != int(Penalty.HARD)).any():
        raise ValueError("trace= bounds the slack C - A*(y) of problems with hard rows; some are soft")
    given = data_of(program)
    if any(block.null is not None or block.A_rad is not None for block in given.matrices):
        raise ValueError("trace= needs rows that are stored as numbers; some are products of vectors")
    sums = [Fraction(0)] * program.m
    costs = Fraction(bound)
    for block in given.matrices:
        on = block.i == block.j
        for k, at, a in terms_of(block.A):
            if on[at]:
                sums[k] -= Fraction(a)
        costs -= sum(map(Fraction, block.C.mid[on].tolist()), Fraction(0))
    column, cost = _enclosed(sums), _enclosed([costs])
    rows = np.flatnonzero((column.mid != 0) | (column.rad != 0))
    places = rows, np.zeros(len(rows), dtype=np.intp)
    added = sp.csr_array((column.mid[rows], places), (program.m, 1))
    wider = replace(
        program,
        B=sp.csr_array(sp.hstack([program.B, added])),
        c=np.append(program.c, cost.mid),
        u_lo=np.append(program.u_lo, 0.0),
        u_hi=np.append(program.u_hi, np.inf),
        columns=(),
        parameter_slopes=(),
    )
    data = data_of(wider)
    if column.rad.any():
        last, row = data.B.indices == program.k, np.repeat(np.arange(program.m), np.diff(data.B.indptr))
        radii = np.where(last, column.rad[row], 0.0)
        data = replace(data, B_rad=sp.csr_array((radii, data.B.indices, data.B.indptr), data.B.shape))
    return wider, replace(data, c=Ball(data.c.mid, np.append(np.zeros(program.k), cost.rad)))


def with_violations(program: Program, X: Sequence[Array], u: Array) -> tuple[Program, Array]:
    """Return the program with a variable for the violation of each bound that is a hinge, and the variables.

    Parameters
    ----------
    program : Program
    X : sequence of arrays of shape (n_b, n_b)
    u : array of shape (k,)
    """
    bounds, activity = program.bounds, program.activity(X, u)
    hinge = bounds.kind == int(Penalty.HINGE)
    below, above = (np.flatnonzero(hinge & np.isfinite(end)) for end in (bounds.lo, bounds.hi))
    rows, count = np.concatenate([below, above]), len(below) + len(above)
    if not count:
        return program, u
    sign = np.repeat([1.0, -1.0], [len(below), len(above)])
    own = sp.csr_array((sign, (rows, np.arange(count))), (program.m, count))
    violations = np.concatenate([(bounds.lo - activity)[below], (activity - bounds.hi)[above]])
    stated = replace(
        program,
        B=sp.csr_array(sp.hstack([program.B, own], format="csr")),
        bounds=replace(bounds, kind=np.where(hinge, int(Penalty.HARD), bounds.kind)),
        c=np.concatenate([program.c, bounds.gamma[rows]]),
        u_lo=np.concatenate([program.u_lo, np.zeros(count)]),
        u_hi=np.concatenate([program.u_hi, np.full(count, np.inf)]),
        columns=(),
    )
    return stated, np.concatenate([u, np.maximum(violations, 0.0)])


def _enclosed(numbers: Sequence[Fraction]) -> Ball:
    """Return the nearest doubles, with radii for those that are none."""
    mid = [float(number) for number in numbers]
    rad = [0.0 if Fraction(m) == x else math.ulp(m) for m, x in zip(mid, numbers, strict=True)]
    return Ball(np.array(mid), np.array(rad))
