"""Cuts of large graphs: rows that fix the diagonal of one large matrix, which is never formed.

A factor ``F`` whose rows are scaled to the lengths that the diagonal asks for is exactly feasible: ``X = D F
F' D`` with real numbers ``D``, and only the objective is enclosed. With a row ``z'X z = 0`` it is ``X = t P F
F' P + P diag(w) P``, where ``P = I - z z' / z'z``, and ``w`` follows from the diagonal: the equations ``t d_i
+ w_i (1 - 2 / s) + sum(w) / s^2 = a_i``, ``s = z'z``, have a closed solution.

The lower bound of a sparse slack matrix is that of its ``L D L'`` with counted errors
(:mod:`bregopt.certify.inertia`) where the factor stays sparse. A multiple of ``z z'``, which costs nothing,
makes it definite along ``z``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.certify.eigenvalue_bound import relative_diagonal
from bregopt.certify.inertia import by_inertia, stays_sparse
from bregopt.certify.lanczos import lowest
from bregopt.memory import shortage
from bregopt.program import Penalty, SparsePlusLowRank
from bregopt.rigorous.ball import UNIT, Ball, gamma, inflated, up
from bregopt.rigorous.data import Data, MatrixData
from bregopt.rigorous.definite import cholesky_error
from bregopt.rigorous.side import Side

__all__ = [
    "LARGEST_DENSE",
    "Corrected",
    "by_cholesky",
    "corrected",
    "dense_bytes",
    "factor_bound",
    "fixes_diagonal",
    "independent_sets",
    "null_weight",
    "sparse_term",
]

LARGEST_DENSE = 5000  # the largest order of a matrix whose products are formed
_FIRST_STEP = 1e-13  # below the estimate of the lowest eigenvalue, relative to the norm
_TRIALS, _GROWTH = 8, 30.0
_DENSE_TRIALS, _DENSE_GROWTH = 4, 4.0
_LANCZOS_STEPS = 240
_ELIMINATIONS, _LEAST_SHARE = (
    4,
    0.05,
)  # of independent sets before a dense factorization, at least of this share
_LESS = 1 - 1e-9  # of a weight of which a smaller one is valid, too: more than its rounding
_LEAST_SUPPORT = 3  # of z, for which its equations have a solution
_SPARE = 4.0  # of the share of the diagonal that the correction may fill, in distances from the rows
_NEWTON_STEPS = 8
_NULL_WEIGHT = (
    1e4  # of the unit vector along z in a slack matrix, relative to its norm: a small one costs accuracy
)


def fixes_diagonal(data: Data) -> bool:
    """Whether the rows fix single diagonal entries of one matrix, each at most once, to positive numbers.

    One more row may be ``z'X z = 0``, if the diagonal is fixed where `z` is not zero.
    """
    if len(data.matrices) != 1 or data.k or (data.kind != int(Penalty.HARD)).any():
        return False
    block = data.matrices[0]
    if block.anchor is not None or block.cap is not None or block.A_rad is not None:
        return False
    A, null = block.A, block.null
    one = np.ones(data.m, dtype=bool)
    if null is not None:
        one[null.row] = False
    single = A.nnz == one.sum() and bool((np.diff(A.indptr)[one] == 1).all())
    if not single or (block.i[A.indices] != block.j[A.indices]).any():
        return False
    fixed = np.unique(block.i[A.indices])
    if null is not None and (np.count_nonzero(null.z) < _LEAST_SUPPORT or np.delete(null.z, fixed).any()):
        return False
    positive = (data.lo == data.hi) & (data.lo - data.lo_rad > 0)
    return len(fixed) == A.nnz and bool(positive[one].all() and (A.data > 0).all())


def factor_bound(data: Data, F: Array) -> Side:
    """Return the objective of the feasible matrix near ``F F'``, rounded upward.

    The data are those of :func:`fixes_diagonal`.
    """
    block = data.matrices[0]
    if block.null is not None:
        return _balanced_bound(data, F)
    r = F.shape[1]
    size = np.einsum("ij,ij->i", F, F)
    square = Ball(size, gamma(r + 2) * size)
    if (square.lo <= 0).any():
        return Side(math.inf, f"a row of the factor of {block.name} is zero: solve again with another seed")
    length, free = _asked(data)
    length.mid[free] = size[free]  # unscaled
    D = _root(length / square)
    D.mid[free], D.rad[free] = 1.0, 0.0
    i, j = block.i, block.j
    entry = _inner(F, i, j) * (D[i] * D[j])
    fixed = np.flatnonzero((i == j) & ~free[i])
    entry.mid[fixed], entry.rad[fixed] = length.mid[i[fixed]], length.rad[i[fixed]]  # as the rows say
    value = float(block.C.dot(entry).hi) + data.offset
    return Side(up(up(value)) if math.isfinite(value) else math.inf)


def _asked(data: Data) -> tuple[Ball, Mask]:
    """Return the diagonal that the rows ask for, one where they do not, and the mask of those entries."""
    block = data.matrices[0]
    row = np.repeat(np.arange(data.m), np.diff(block.A.indptr))
    asked = Ball(data.lo[row], data.lo_rad[row]) / block.A.data
    where = block.i[block.A.indices]
    length, free = Ball.exact(np.ones(block.n)), np.ones(block.n, dtype=bool)
    length.mid[where], length.rad[where], free[where] = asked.mid, asked.rad, False
    return length, free


class Corrected(NamedTuple):
    """A feasible matrix ``t G G' + P diag(w) P`` with ``G = P F``; see the module.

    Parameters
    ----------
    F : array of shape (n, r)
    t : float
    w : Ball of shape (n,)
        Proven nonnegative; zero where no row fixes the diagonal.
    q : float
        An upper bound on ``||F'z / s||``, the distance of each row of ``G`` from that of ``F``.
    """

    F: Array
    t: float
    w: Ball
    q: float


def corrected(data: Data, F: Array) -> Corrected | None:
    """Return a feasible matrix near ``F F'``, None where none is proven."""
    block = data.matrices[0]
    assert block.null is not None
    z, (asked, free) = block.null.z, _asked(data)
    s, on = float(np.count_nonzero(z)), z != 0
    F = _balanced(F, z, asked.mid, free)
    q = (Ball.exact(z[None]) @ F / s).frobenius()
    square = np.einsum("ij,ij->i", F, F)
    moved = inflated((2 * _lengths(F) + q) * q) * on  # of the inner product with itself
    d = Ball(square, inflated(gamma(F.shape[1] + 2) * square + moved + F.shape[1] * TINY))
    t = 1.0 - _SPARE * float(((asked - d).magnitude / asked.mid)[~free].max(initial=0.0))
    c = asked - d * t
    total = c[on].sum()
    own = (c[on] - total / (s * (s - 1))) / (Ball.exact(s - 2.0) / s)
    w = Ball(np.where(free, 0.0, c.mid), np.where(free, 0.0, c.rad))
    w.mid[on], w.rad[on] = own.mid, own.rad
    return Corrected(F, t, w, q) if t > 0 and (w.lo[~free] >= 0).all() else None


def _balanced_bound(data: Data, F: Array) -> Side:
    """Return the objective of the corrected matrix, rounded upward."""
    block, found = data.matrices[0], corrected(data, F)
    if found is None:
        return Side(math.inf, f"the factor of {block.name} is not near the rows: solve to a smaller tol")
    F, t, w, q = found
    length, i, j = _lengths(F), block.i, block.j
    inner = _inner(F, i, j)
    entry = Ball(inner.mid, inflated(inner.rad + (length[i] + length[j] + q) * q))
    # <C, P diag(w) P> is a sum of w_i v'C v with vectors of length at most one.
    size = _symmetric(block, block.C.magnitude).sum(axis=1).max(initial=0.0) * (1 + gamma(block.n))
    added = inflated(float(size) * float(w.sum().hi))
    value = float((block.C.dot(entry) * t + added + data.offset).hi)
    return Side(up(value) if math.isfinite(value) else math.inf)


def _lengths(F: Array) -> Array:
    """Return upper bounds on the lengths of the rows."""
    r = F.shape[1]
    found: Array = inflated(np.sqrt(np.einsum("ij,ij->i", F, F) + r * TINY) * (1 + gamma(r + 2)))
    return found


def _inner(F: Array, i: IntArray, j: IntArray) -> Ball:
    """Return inner products of rows."""
    r = F.shape[1]
    magnitude = np.einsum("kr,kr->k", np.abs(F[i]), np.abs(F[j]))
    return Ball(np.einsum("kr,kr->k", F[i], F[j]), inflated(gamma(r + 2) * magnitude + r * TINY))


def _balanced(F: Array, z: Array, asked: Array, free: Mask) -> Array:
    """Return a factor near `F` with rows of about the lengths asked for, and about ``F'z = 0``.

    Newton's method: ``f_i - z_i p``, scaled to its length, changes ``F'z`` by ``-(s I - sum f_i f_i' / a_i)
    p``.
    """
    root = np.where(free, 0.0, np.sqrt(asked))
    on, s = z != 0, float(np.count_nonzero(z))
    for _ in range(_NEWTON_STEPS):
        norms = np.linalg.norm(F, axis=1)
        F = F * np.where(free | (norms == 0), 1.0, root / np.where(norms == 0, 1.0, norms))[:, None]
        unit = F[on] / root[on, None]
        p = np.linalg.lstsq(s * np.eye(F.shape[1]) - unit.T @ unit, F.T @ z, rcond=None)[0]
        F = F - np.outer(z, p)
    return F


def sparse_term(block: MatrixData, coefficients: Ball, trace: float, diagonal: Array) -> float:
    """Return a lower bound on ``<W, X>`` for a large sparse ``W``, ``-inf`` where none is proven.

    If ``W - t D - s I`` is psd for ``s, t <= 0`` and a positive diagonal ``D``, ``<W, X>`` is at least ``t``
    times the bound on ``<D, X>``, plus ``s`` times that on the trace. ``D`` is near the diagonal of ``W``, so
    that few vertices of many edges do not weaken the bound. The proof is ``L D L'`` where the factor stays
    sparse, else Cholesky's factorization of the dense matrix.

    Parameters
    ----------
    block : MatrixData
    coefficients : Ball
        Of ``W``.
    trace : float
        A finite upper bound on the trace.
    diagonal : array of shape (n,)
        Upper bounds on the diagonal of ``X``; infinite where there are none.
    """
    W = SparsePlusLowRank(_symmetric(block, coefficients.mid), *_border(block, coefficients))
    banded = stays_sparse(W)
    sets = [] if banded else list(independent_sets(W.S))
    if not banded and shortage(dense_bytes(block.n - sum(map(len, sets)))) is not None:
        return -math.inf
    sharp = bool(np.isfinite(diagonal).all())
    D = relative_diagonal(W) if sharp else np.ones(block.n)
    reach = float(Ball.exact(D).dot(diagonal).hi) if sharp else trace
    spread = _symmetric(block, coefficients.rad).sum(axis=1)
    estimate, near = _lowest(W.scaled(1 / np.sqrt(D)))
    step = _FIRST_STEP * float((abs(W.S).sum(axis=1) / D).max())
    step, growth, trials = (
        (step, _GROWTH, _TRIALS) if banded else (max(near, step), _DENSE_GROWTH, _DENSE_TRIALS)
    )
    for _ in range(trials):
        t = min(estimate, 0.0) - step
        shifted = sp.csr_array(W.S - sp.diags_array(t * D))
        moved = replace(W, S=shifted)
        found = by_inertia(moved, 0.0) if banded else by_cholesky(moved, sets)
        if found is not None:
            rounding = 4 * UNIT * (abs(shifted.diagonal()) + abs(t) * D)
            s = min(found, 0.0) - inflated(float((spread + rounding).max()) * (1 + gamma(block.n)))
            return float((Ball.exact(t) * reach + Ball.exact(s) * trace).lo)
        step *= growth
    return -math.inf


def dense_bytes(n: int) -> float:
    """Return the memory that the factorization of a dense matrix takes: one of them, and its columns."""
    return 9.0 * n * n


def null_weight(block: MatrixData, coefficients: Ball) -> float:
    """Return a weight of ``z z'`` that makes a slack matrix positive along ``z``; zero without a ``z``.

    Every weight is valid: it multiplies ``z'X z = 0``.
    """
    if block.null is None:
        return 0.0
    size = float(_symmetric(block, np.abs(coefficients.mid)).sum(axis=1).max(initial=0.0))
    return _NULL_WEIGHT * size / float(np.count_nonzero(block.null.z))


def _border(block: MatrixData, coefficients: Ball) -> tuple[Array, Array]:
    """Return the vector ``z`` as a column, and its weight."""
    if block.null is None:
        return np.zeros((block.n, 0)), np.zeros(0)
    return block.null.z[:, None], np.array([null_weight(block, coefficients)])


class _Core(NamedTuple):
    """The matrix ``S + weight z z'`` that is left of a larger one, and the order of elimination."""

    S: sp.csr_array
    z: Array
    weight: float


def by_cholesky(W: SparsePlusLowRank, sets: Sequence[IntArray]) -> float | None:
    """Return a proven bound below zero on the eigenvalues, None where none is found.

    Sets of vertices without edges between them are eliminated first, which leaves a smaller dense matrix.
    """
    core, lost = _Core(W.S, W.U[:, 0] if len(W.w) else np.zeros(W.n), float(W.w.sum())), 0.0
    for chosen in sets:
        found = _eliminated(core, chosen)
        if found is None:  # S alone may be indefinite; the sum of both is not, if it has a factor
            break
        core, lost = found[0], lost + found[1]
    if shortage(dense_bytes(core.S.shape[0])) is not None:
        return None
    M = core.S.toarray()
    if core.weight:
        for row, z in zip(M, core.z, strict=True):
            row += (core.weight * z) * core.z
        size = np.abs(core.z)
        lost += 4 * UNIT * float((abs(core.S).sum(axis=1) + core.weight * size * size.sum()).max())
    error = cholesky_error(M, overwrite=True)
    return None if error is None else -inflated(error + lost * (1 + gamma(W.n)))


def _eliminated(core: _Core, chosen: IntArray) -> tuple[_Core, float] | None:
    """Return the Schur complement of a diagonal part, and a bound on its error in the spectral norm.

    ``[a b'; b S]`` is at least ``-e I`` if ``a > 0`` and ``S - b inv(a) b'`` is. With ``z z'`` of a weight,
    the complement has the weight over ``1 + weight z_1' inv(a) z_1``, of which a smaller one is valid.
    """
    S, z, weight = core
    rest = np.setdiff1d(np.arange(S.shape[0]), chosen)
    a, b = S.diagonal()[chosen], sp.csr_array(S[rest][:, chosen])
    if not (a > 0).all():
        return None
    quotient = b.copy()  # arrays of indices are not shared, as SciPy may sort them in place
    quotient.data /= a[quotient.indices]
    left = sp.csr_array(S[rest][:, rest])
    size, terms = abs(quotient) @ abs(b).sum(axis=0), int(np.diff(b.indptr).max(initial=0))
    error = float((gamma(terms + 4) * size + 2 * UNIT * (abs(left).sum(axis=1) + size)).max())
    reduced = sp.csr_array(left - quotient @ b.T)
    if not weight:
        return _Core(reduced, z[rest], 0.0), error
    weight = _LESS * weight / (1 + weight * float((z[chosen] ** 2 / a).sum()))
    across = abs(quotient) @ np.abs(z[chosen])
    off = Ball.exact(gamma(terms + 4) * across + 2 * UNIT * (np.abs(z[rest]) + across)).frobenius()
    z = z[rest] - quotient @ z[chosen]
    return _Core(reduced, z, weight), error + inflated(weight * off * (2 * Ball.exact(z).frobenius() + off))


def independent_sets(S: sp.csr_array) -> Iterator[IntArray]:
    """Yield sets of vertices without edges between them, each in the graph that is left of the last."""
    graph = S.copy()
    graph.data[:] = 1.0
    for _ in range(_ELIMINATIONS):
        degrees = np.diff(graph.indptr)
        free, chosen = degrees <= math.sqrt(S.shape[0]), []
        for v in np.argsort(degrees, kind="stable"):
            if free[v]:
                chosen.append(v)
                free[graph.indices[graph.indptr[v] : graph.indptr[v + 1]]] = False
        if not _LEAST_SHARE * graph.shape[0] <= len(chosen) < graph.shape[0]:
            return
        yield np.sort(chosen)
        rest = np.setdiff1d(np.arange(graph.shape[0]), chosen)
        across = sp.csr_array(graph[rest][:, chosen])
        graph = sp.csr_array(graph[rest][:, rest] + across @ across.T)


def _lowest(W: SparsePlusLowRank) -> tuple[float, float]:
    """Return the lowest Ritz value of Lanczos's method and the length of its residual."""
    (value, *_), vectors = lowest(W, 1, _LANCZOS_STEPS)
    v = vectors[:, 0]
    return float(value), float(np.linalg.norm(W @ v - value * v))


def _symmetric(block: MatrixData, coefficients: Array) -> sp.csr_array:
    """Return the sparse symmetric matrix of coefficients."""
    i, j, half = block.i, block.j, coefficients * block.share
    off = i != j
    places = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
    return sp.csr_array((np.concatenate([half, half[off]]), places), (block.n, block.n))


def _root(x: Ball) -> Ball:
    """Return the square root of positive numbers; NumPy's is correctly rounded."""
    lo, hi = np.nextafter(np.sqrt(np.maximum(x.lo, 0.0)), -np.inf), np.nextafter(np.sqrt(x.hi), np.inf)
    return Ball.between(lo, hi)
