"""Lower bounds of large sparse slack matrices, which are not formed where a sparse factor proves the bound.

A factorization ``L D L'`` with counted errors (:mod:`bregopt.certify.inertia`) is the proof where the factor
stays sparse. Otherwise sets of vertices without edges between them are eliminated, and Cholesky's
factorization of the dense rest is the proof. With a row ``z'X z = 0``, a multiple of ``z z'``, which costs
nothing, makes the matrix definite along ``z``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.certify.eigenvalue_bound import relative_diagonal
from bregopt.certify.lanczos import lowest
from bregopt.memory import shortage
from bregopt.program import SparsePlusLowRank
from bregopt.rigorous.ball import UNIT, Ball, gamma, inflated
from bregopt.rigorous.data import MatrixData
from bregopt.rigorous.definite import cholesky_error

__all__ = ["by_cholesky", "dense_bytes", "independent_sets", "null_weight", "sparse_term"]

_FIRST_STEP = 1e-13  # below the estimate of the lowest eigenvalue, relative to the norm
_TRIALS, _GROWTH = 8, 30.0
_DENSE_TRIALS, _DENSE_GROWTH = 4, 4.0
_LANCZOS_STEPS = 240
_ELIMINATIONS = 4  # of sets of vertices before a dense factorization
_LEAST_SHARE = 0.05  # of the vertices in a set; smaller ones save little
_LESS = 1 - 1e-9  # of a weight of which a smaller one is valid, too: more than its rounding
_NULL_WEIGHT = 1e4  # of z z', relative to the norm of the slack matrix; larger ones cost digits


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
    W = SparsePlusLowRank(block.sparse_matrix(coefficients.mid), *_border(block, coefficients))
    from bregopt.certify.inertia import by_inertia, stays_sparse  # with SciPy's graphs and sparse solvers

    banded = stays_sparse(W)
    sets = [] if banded else list(independent_sets(W.S))
    if not banded and shortage(dense_bytes(block.n - sum(map(len, sets)))) is not None:
        return -math.inf
    sharp = bool(np.isfinite(diagonal).all())
    D = relative_diagonal(W) if sharp else np.ones(block.n)
    reach = float(Ball.exact(D).dot(diagonal).hi) if sharp else trace
    spread = block.sparse_matrix(coefficients.rad).sum(axis=1)
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
    size = float(block.sparse_matrix(np.abs(coefficients.mid)).sum(axis=1).max(initial=0.0))
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
