"""The search for proofs near an approximate answer: of both bounds, or that there is no optimum.

Round-off leaves an answer slightly outside the cone as often as inside. A mixture with a point well inside is
inside, and the bound loses only its share of the difference. Every trial is proven from the data; the search
itself needs no proof.

A Farkas vector is a lower bound of the problem without costs, a ray a point of the homogeneous one.
:mod:`bregopt.certify` tests such vectors up to round-off. Here nothing is: where the least eigenvalue of a
matrix is ``1e-12`` of the largest, it decides. Enclosures prove vectors inside the cone. On its boundary they
leave no room for round-off, and small problems are checked in fractions
(:mod:`bregopt.rigorous.fractions.rational`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import lsqr

from bregopt.arrays import EPS, Array, IntArray
from bregopt.certify import is_ray, trace_bounds, with_trace_multipliers
from bregopt.certify.proofs import MENDED
from bregopt.divergences import BUILT_IN, LogDet
from bregopt.linalg import factorized
from bregopt.program import Block, LowRank, Matrix, Penalty, Program
from bregopt.program.program import divergence_of
from bregopt.program.rows import Distances, RankOne, Rows
from bregopt.records import dataclass, replace
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import LARGEST_DENSE, LARGEST_LISTED, Data, Side, data_of
from bregopt.rigorous.fractions.multipliers import exact_farkas
from bregopt.rigorous.fractions.rational import exact_inverse, exact_ray
from bregopt.rigorous.linear_algebra import Rational
from bregopt.rigorous.lower import lower_bound
from bregopt.rigorous.reduction import Implied, implied_bounds, reduced
from bregopt.rigorous.upper import Point, distance, feasible_near, upper_bound

_LEAST_SHARE, _LARGEST_SHARE = 1e-12, 0.5  # of the interior point in a mixture
_BISECTIONS = 7  # of the logarithm of the share, which it finds to a factor of 1.3
_GROWTH = 3.0  # of the share, from one trial to the next
# Coefficients of rows that are searched for a definite combination, and its least eigenvalue. The identity
# is sought.
_LARGEST_SEARCH, _DEFINITE = 1_000_000, 0.5
_ENOUGH = 1e-7  # distance from the value of the answer, relative to it; no nearer bound is sought
_INSIDE_SHARES = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)  # of multipliers inside the dual cone
_LARGEST_FIT = 100_000_000  # operations of the least-squares problem for these


class Candidate(NamedTuple):
    """An approximate answer.

    Parameters
    ----------
    X : tuple of array or None
        Symmetric matrices, None where there are none.
    u : array of shape (k,)
    y : array of shape (m,) or None
    value : float
        The objective; NaN where it is not known.
    error : float
        Its distance from the optimum, as far as floating point tells.
    bound : float
        The lower bound of the multipliers, as far as floating point tells.
    inner : Candidate or None
        An earlier iterate, farther inside the cones.
    """

    X: tuple[Array, ...] | None
    u: Array
    y: Array | None
    value: float = math.nan
    error: float = 0.0
    bound: float = math.nan
    inner: Candidate | None = None


@dataclass(frozen=True, eq=False)
class Proven:
    """A bound with the point that proves it: multipliers for a lower one, matrices for an upper one."""

    side: Side
    y: Array | None = None
    point: Point | None = None


def best_lower(data: Data, answer: Candidate, interior: Iterable[Candidate], implied: Implied) -> Proven:
    """Return the best lower bound of the multipliers of an answer, mixed with more interior ones."""
    if answer.y is None:
        return Proven(Side(-math.inf, "the answer has no multipliers"))

    def proven(y: Array) -> Proven:
        return Proven(lower_bound(data, y, implied, answer.X), y=y)

    def mixed(share: float, z: Array) -> Proven:
        assert answer.y is not None
        return proven((1 - share) * answer.y + share * z)

    best = proven(answer.y)
    if _is_near(best, answer):
        return best
    for other in chain([answer.inner] if answer.inner else [], interior):
        if other.y is None:
            continue
        trial = lru_cache(partial(mixed, z=other.y))
        found = _by_share(partial(_succeeds, trial), trial)
        if found is not None and found.side.value > best.side.value:
            best = found
        if _is_near(best, answer):
            break
    return best


def best_upper(data: Data, answer: Candidate, interior: Iterable[Candidate]) -> Proven:
    """Return the best upper bound of the matrices of an answer, mixed with more interior ones."""
    if answer.X is None:
        return Proven(Side(math.inf, "the answer has no matrix"))

    def proven(X: Sequence[Array], u: Array) -> Proven:
        point, reason = feasible_near(data, X, u)
        if point is None:
            return Proven(Side(math.inf, reason))
        return Proven(upper_bound(data, point), point=point)

    def mixed(share: float, Z: Sequence[Array], v: Array) -> Proven:
        assert answer.X is not None
        X = [(1 - share) * A + share * B for A, B in zip(answer.X, Z, strict=True)]
        return proven(X, (1 - share) * answer.u + share * v)

    best = proven(answer.X, answer.u)
    if _is_near(best, answer):
        return best
    own, room = answer.X, 0.0
    if best.point is not None:
        own, room = best.point.X, 2 * distance(data, best.point)
    first = chain([answer.inner] if answer.inner else [], _near_identity(data, answer))
    for other in chain(first, interior):
        found = None
        if other.X is not None:
            inside = partial(_is_definite_mixture, own, other.X, room)
            found = _by_share(inside, partial(mixed, Z=other.X, v=other.u))
        if found is not None and found.side.value < best.side.value:
            best = found
        if _is_near(best, answer):
            break
    return best


def inward(data: Data, answer: Candidate) -> Candidate | None:
    """Return multipliers of a definite slack, where rows combine to a definite matrix, None elsewhere.

    A combination ``A*(w)`` near the identity of all matrices, with ``B'w`` near zero, bounds their traces by
    ``w'b``. To subtract a multiple of ``w`` from the multipliers of an answer costs the bound that much.
    """
    if answer.y is None or data.A.nnz + data.B.nnz > _LARGEST_SEARCH or not data.matrices:
        return None
    equal = np.flatnonzero((data.kind == int(Penalty.HARD)) & (data.lo == data.hi))
    weight, identity = np.sqrt(data.share), np.concatenate([b.i == b.j for b in data.matrices])
    covered = sum(int((b.i == b.j).sum()) for b in data.matrices) == sum(b.n for b in data.matrices)
    if not len(equal) or not covered:
        return None
    table = sp.csr_array(sp.vstack([sp.diags_array(weight) @ data.A.T, data.Bt]))[:, equal]
    asked = np.concatenate([weight * identity, np.zeros(data.k)])
    w = np.zeros(data.m)
    w[equal] = lsqr(table, asked, atol=EPS, btol=EPS)[0]
    size = 0.0
    for block, F, S in zip(
        data.matrices, data.by_block(data.A.T @ w), data.slacks(Ball.exact(answer.y)), strict=True
    ):
        if np.linalg.eigvalsh(block.sparse_matrix(F).toarray())[0] < _DEFINITE:
            return None
        size = max(size, float(np.abs(block.sparse_matrix(S.mid)).sum(axis=1).max(initial=0.0)))
    return Candidate(None, answer.u, answer.y - (size or 1.0) * w)


def _succeeds(trial: Callable[[float], Proven], share: float) -> bool:
    return math.isfinite(trial(share).side.value)


def _is_definite_mixture(X: Sequence[Array], Z: Sequence[Array], room: float, share: float) -> bool:
    """Whether the eigenvalues of a mixture are above `room`, in floating point."""
    for A, B in zip(X, Z, strict=True):
        M = (1 - share) * A + share * B
        M[np.diag_indices(len(M))] -= room
        if not factorized(M, overwrite=True)[1]:
            return False
    return True


def _is_near(found: Proven, answer: Candidate) -> bool:
    """Whether a bound is so near the value or the bound of the answer that no nearer one is sought."""
    if math.isnan(answer.value):
        return math.isfinite(found.side.value)
    near = max(_ENOUGH * abs(answer.value), 2 * answer.error)
    return any(abs(found.side.value - end) <= near for end in (answer.value, answer.bound))


def _by_share(inside: Callable[[float], bool], trial: Callable[[float], Proven]) -> Proven | None:
    """Return a proof by nearly the least share of the interior point that succeeds, None where none does.

    Bisection by `inside`, which costs less than a trial, finds the least share that may succeed. Proofs ask
    for more room, so that larger shares follow.
    """
    share = _least_share(inside)
    while share is not None:
        found = trial(share)
        if math.isfinite(found.side.value):
            return found
        share = _GROWTH * share if _GROWTH * share <= _LARGEST_SHARE else None
    return None


def _least_share(inside: Callable[[float], bool]) -> float | None:
    if inside(_LEAST_SHARE):
        return _LEAST_SHARE
    if not inside(_LARGEST_SHARE):
        return None
    low, high = _LEAST_SHARE, _LARGEST_SHARE
    for _ in range(_BISECTIONS):
        share = math.sqrt(low * high)
        low, high = (low, share) if inside(share) else (share, high)
    return high


def _near_identity(data: Data, answer: Candidate) -> Iterator[Candidate]:
    """Yield multiples of the identity, moved to the rows."""
    assert answer.X is not None
    eyes = tuple(max(float(np.trace(X)), 0.0) / len(X) * np.eye(len(X)) for X in answer.X)
    point, _ = feasible_near(data, eyes, answer.u)
    if point is not None:
        yield Candidate(point.X, point.u, None)


# --- No optimum --------------------------------------------------------------------------------------


def is_refuted(program: Program, y: Array) -> bool:
    """Whether finite multipliers, or such near them, prove that the required rows contradict each other."""
    if _bounds_exclude(program, y):
        return True
    candidates = [y]
    try:
        data = data_of(program)
        if refutes(data, y) or _used_rows_refute(program, y) or _leaves_no_interior(data, y):
            return True
        traced = any(bound is not None and bound.exact for bound in trace_bounds(program))
        if traced and all(block.n <= LARGEST_DENSE for block in program.blocks):
            candidates.append(with_trace_multipliers(program, y))
            if refutes(data, candidates[-1]):
                return True
        empty = feasibility(reduced(data).data)
    except (ValueError, MemoryError):  # too large to be listed
        return False
    implied = implied_bounds(empty)
    for each in candidates:
        inside = interior_multipliers(empty, each)
        if inside is not None and any(
            lower_bound(empty, each + share * inside, implied).value > 0 for share in _INSIDE_SHARES
        ):
            return True
    return False


def _leaves_no_interior(data: Data, y: Array) -> bool:
    """Whether the rows let no matrix with a log-determinant be definite, or no logarithm be finite."""
    for own in (data, reduced(data).data):  # on faces and ranges rows of logarithms may vanish
        anchors = [block.anchor for block in own.matrices]
        inside = [
            b
            for b, near in enumerate(anchors)
            if near is not None and near.divergence == LogDet.name and near.factor is None
        ]
        logarithms = np.flatnonzero(own.kind == int(Penalty.LOG)).tolist()
        empty = feasibility(own)
        if (inside or logarithms) and exact_farkas(empty, implied_bounds(empty), y, inside, logarithms):
            return True
    return False


def _used_rows_refute(program: Program, y: Array) -> bool:
    """Whether the rows with a multiplier contradict each other without those that link variables to cones.

    Beside these rows, variables cost nothing only after a move of multipliers, which may leave a cone.
    """
    used = np.flatnonzero(y)
    if not program.cones.count or len(used) in (0, program.m):
        return False
    return refutes(data_of(replace(program.of_rows(used), parameter_slopes=())), y[used])


def _bounds_exclude(program: Program, y: Array) -> bool:
    """Whether bounds of one form ``w z'X z``, in several rows with a multiplier, exclude each other.

    The products of the entries of `z` are rounded, and the form is on the boundary of the cone: as rows of
    coefficients with radii they contradict nothing.
    """
    used = program.bounds.required & program.alone & program.A.in_one_block & (y != 0)
    for term in program.A.terms:
        own = np.flatnonzero(used[term.place])
        forms = _forms(term.rows, own)
        if forms is None:
            continue
        _, number = np.unique(forms, axis=0, return_inverse=True)
        number, at = number.ravel(), term.at[own]
        lo, hi = np.full(len(own), -np.inf), np.full(len(own), np.inf)
        np.maximum.at(lo, number, program.bounds.lo[at])
        np.minimum.at(hi, number, program.bounds.hi[at])
        if (lo > hi).any():
            return True
    return False


def _forms(rows: Rows, own: IntArray) -> Array | None:
    """Return the numbers that determine some rows of a family, one line each; None for other families."""
    if not len(own):
        return None
    if isinstance(rows, Distances):
        i, j, weight = rows.i[own], rows.j[own], rows.weight[own]
        return np.column_stack([np.minimum(i, j), np.maximum(i, j), weight])
    if not isinstance(rows, RankOne) or len(own) * rows.Z.shape[1] > LARGEST_LISTED:
        return None
    Z = rows.Z[own].toarray() if sp.issparse(rows.Z) else rows.Z[own]
    first = Z[np.arange(len(own)), (Z != 0).argmax(axis=1)]
    return np.column_stack([np.where(first < 0, -1.0, 1.0)[:, None] * Z, rows.weight[own]])


def falls_along(program: Program, X: Sequence[Matrix], u: Array) -> bool:
    """Whether a direction, or one near it, is a ray."""
    if any(isinstance(M, LowRank) and M.shape[0] > LARGEST_DENSE for M in X):
        return False
    if not is_ray(program, [np.asarray(M) for M in X], u, MENDED):
        return False
    try:
        data = data_of(program)
    except (ValueError, MemoryError):
        return False
    matrices = tuple((M + M.T) / 2 for M in map(np.asarray, X))
    if not all(np.isfinite(part).all() for part in (*matrices, u)):
        return False
    along = homogeneous(data)
    if along is not None:
        on_faces, bases = reduced(along)
        inverses = [None if H is None else np.linalg.pinv(H) for H in bases]
        own = [M if P is None else P @ M @ P.T for M, P in zip(matrices, inverses, strict=True)]
        found = best_upper(on_faces, Candidate(tuple((M + M.T) / 2 for M in own), np.array(u), None), ())
        if found.point is not None and found.side.value < 0:
            return True
    # A matrix on the boundary has lost its least eigenvalues in round-off; nearby ones are definite.
    inside = tuple(M + len(M) * EPS * np.trace(M) * np.eye(len(M)) for M in matrices)
    return any(
        exact_ray(data, own, u, tuple(map(_recession, program.blocks, own))) for own in (matrices, inside)
    )


def is_bounded(program: Program, y: Array) -> bool:
    """Whether multipliers prove a finite bound on the optimum, without a tolerance."""
    try:
        data = reduced(data_of(program)).data
    except (ValueError, MemoryError):
        return False
    return lower_bound(data, y, implied_bounds(data)).value > -np.inf


def refutes(data: Data, y: Array) -> bool:
    """Whether multipliers prove that the required rows contradict each other, on faces and ranges."""
    empty = feasibility(reduced(data).data)
    implied = implied_bounds(empty)
    return lower_bound(empty, y, implied).value > 0 or exact_farkas(empty, implied, y) is not None


def interior_multipliers(data: Data, y: Array) -> Array | None:
    """Return multipliers of the size of `y` with ``A*(y)`` near ``-I``, None where none are found."""
    up, down = (np.flatnonzero(data.required & np.isfinite(end)) for end in (data.lo, data.hi))
    count = len(data.share) + int(data.free.sum())
    ends = len(up) + len(down)
    if count * ends * min(count, ends) > _LARGEST_FIT:
        return None
    from scipy.optimize import linprog  # only vectors on the boundary wait

    diagonal = np.concatenate([np.zeros(0, dtype=bool), *(block.i == block.j for block in data.matrices)])
    columns = np.vstack([data.At.toarray(), data.Bt.toarray()[data.free]])
    goal = np.concatenate([np.where(diagonal, -1.0, 0.0), np.zeros(int(data.free.sum()))])
    signed = np.hstack([columns[:, up], -columns[:, down]])
    norms = np.linalg.norm(signed, axis=0)
    norms[norms == 0] = 1.0
    # Nonnegative multipliers of the least largest miss; SciPy's nnls aborts the process on some matrices.
    miss = np.ones((count, 1))
    least = linprog(
        np.append(np.zeros(ends), 1.0),
        np.block([[signed / norms, -miss], [-signed / norms, -miss]]),
        np.concatenate([goal, -goal]),
    )
    if least.status != 0 or least.x[-1] >= 1 or not least.x[:-1].any():
        return None
    found = least.x[:-1] / norms
    inside = np.zeros(data.m)
    inside[up] += found[: len(up)]
    inside[down] -= found[len(up) :]
    scaled: Array = inside * (float(np.abs(y).max()) / float(np.abs(inside).max()))
    return scaled


def _recession(block: Block, X: Array) -> Rational | None:
    """Return ``R`` of a block with a divergence in fractions, None where it is zero along `X` or not exact.

    Of LogDet it is the inverse of ``X0``. That of a class that is not built in is what the class says.
    """
    near = block.nearness
    if near is None or not X.any() or (near.kind in BUILT_IN and near.kind is not LogDet):
        return None
    if near.kind is LogDet:
        return None if isinstance(near.X0, LowRank) else exact_inverse(np.asarray(near.X0))
    R = divergence_of(near).recession()
    return None if R is None else [[Fraction(x) for x in row] for row in R.tolist()]


def feasibility(data: Data) -> Data:
    """Return the problem of its hard rows, domains of logarithms and cones, with the objective zero."""
    return replace(
        data,
        matrices=tuple(
            replace(block, C=Ball.exact(np.zeros(len(block.i))), anchor=None) for block in data.matrices
        ),
        c=Ball.exact(np.zeros(data.k)),
        lo=np.where(data.required, data.lo, -np.inf),
        hi=np.where(data.required, data.hi, np.inf),
        kind=np.full(data.m, int(Penalty.HARD)),
        weight=np.full(data.m, np.inf),
        offset=0.0,
    )


def homogeneous(data: Data) -> Data | None:
    """Return the problem of directions: finite bounds become zero, and penalties that grow faster hard rows.

    None where a block has a divergence or a cap: its rays are zero.
    """
    if any(block.anchor is not None or block.cap is not None for block in data.matrices):
        return None
    hinge = data.kind == int(Penalty.HINGE)

    def zero(end: Array) -> Array:
        return np.where(np.isfinite(end), 0.0, end)

    return replace(
        data,
        lo=zero(data.lo),
        hi=zero(data.hi),
        lo_rad=np.zeros(data.m),
        hi_rad=np.zeros(data.m),
        u_lo=zero(data.u_lo),
        u_hi=zero(data.u_hi),
        kind=np.where(hinge, data.kind, int(Penalty.HARD)),
        weight=np.where(hinge, data.weight, np.inf),
        offset=0.0,
    )
