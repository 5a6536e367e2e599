"""The search for points that prove both bounds: the answer, and mixtures of it with more interior points.

Round-off leaves an answer slightly outside the cone as often as inside. A mixture with a point well inside is
inside, and the bound loses only its share of the difference. Every trial is proven from the data; the search
itself needs no proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import lsqr

from bregopt.arrays import EPS, Array
from bregopt.linalg import factorized
from bregopt.program import Penalty
from bregopt.records import dataclass
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import Data, Side
from bregopt.rigorous.lower import lower_bound
from bregopt.rigorous.reduction import Implied
from bregopt.rigorous.upper import Point, distance, feasible_near, upper_bound

__all__ = ["Candidate", "Proven", "best_lower", "best_upper", "inward"]

_LEAST_SHARE, _LARGEST_SHARE = 1e-12, 0.5  # of the interior point in a mixture
_BISECTIONS = 7  # of the logarithm of the share, which it finds to a factor of 1.3
_GROWTH = 3.0  # of the share, from one trial to the next
# Coefficients of rows that are searched for a definite combination, and its least eigenvalue. The identity
# is sought.
_LARGEST_SEARCH, _DEFINITE = 1_000_000, 0.5
_ENOUGH = 1e-7  # distance from the value of the answer, relative to it; no nearer bound is sought


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
