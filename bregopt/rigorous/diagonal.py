"""Cuts of large graphs: rows that fix the diagonal of one large matrix, which is never formed.

A factor ``F`` whose rows are scaled to the lengths that the diagonal asks for is exactly feasible: ``X = D F
F' D`` with real numbers ``D``, and only the objective is enclosed. The lower bound of a sparse slack matrix
is that of its ``L D L'`` with counted errors (:mod:`bregopt.certify.inertia`) where the factor stays sparse.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.certify.eigenvalue_bound import relative_diagonal
from bregopt.certify.inertia import by_inertia, stays_sparse
from bregopt.certify.lanczos import lowest
from bregopt.memory import shortage
from bregopt.program import Penalty, SparsePlusLowRank
from bregopt.rigorous.ball import UNIT, Ball, gamma, inflated, up
from bregopt.rigorous.data import Data, MatrixData
from bregopt.rigorous.definite import cholesky_error
from bregopt.rigorous.side import Side

__all__ = ["LARGEST_DENSE", "dense_bytes", "factor_bound", "fixes_diagonal", "sparse_term"]

LARGEST_DENSE = 5000  # the largest order of a matrix whose products are formed
_FIRST_STEP = 1e-13  # below the estimate of the lowest eigenvalue, relative to the norm
_TRIALS, _GROWTH = 8, 30.0
_DENSE_TRIALS, _DENSE_GROWTH = 4, 4.0
_LANCZOS_STEPS = 240


def fixes_diagonal(data: Data) -> bool:
    """Whether the rows fix single diagonal entries of one matrix, each at most once, to positive numbers."""
    if len(data.matrices) != 1 or data.k or (data.kind != int(Penalty.HARD)).any():
        return False
    block = data.matrices[0]
    if block.anchor is not None or block.cap is not None or block.A_rad is not None:
        return False
    A = block.A
    single = A.nnz == data.m and bool((np.diff(A.indptr) == 1).all())
    if not single or (block.i[A.indices] != block.j[A.indices]).any():
        return False
    once = len(np.unique(A.indices)) == data.m
    return once and bool(((data.lo == data.hi) & (data.lo - data.lo_rad > 0) & (A.data > 0)).all())


def factor_bound(data: Data, F: Array) -> Side:
    """Return the objective of ``D F F' D``, rounded upward, for data with :func:`fixes_diagonal`."""
    block = data.matrices[0]
    r = F.shape[1]
    size = np.einsum("ij,ij->i", F, F)
    square = Ball(size, gamma(r + 2) * size)
    if (square.lo <= 0).any():
        return Side(math.inf, f"a row of the factor of {block.name} is zero: solve again with another seed")
    length = Ball.exact(np.ones(block.n))
    asked = Ball(data.lo, data.lo_rad) / block.A.data
    where = block.i[block.A.indices]
    length.mid[where], length.rad[where] = asked.mid, asked.rad
    free = np.ones(block.n, dtype=bool)
    free[where] = False
    length.mid[free] = size[free]  # unscaled
    D = _root(length / square)
    D.mid[free], D.rad[free] = 1.0, 0.0
    i, j = block.i, block.j
    inner = np.einsum("kr,kr->k", F[i], F[j])
    magnitude = np.einsum("kr,kr->k", np.abs(F[i]), np.abs(F[j]))
    entry = Ball(inner, inflated(gamma(r + 2) * magnitude)) * (D[i] * D[j])
    fixed = np.flatnonzero((i == j) & ~free[i])
    entry.mid[fixed], entry.rad[fixed] = length.mid[i[fixed]], length.rad[i[fixed]]  # as the rows say
    value = float(block.C.dot(entry).hi) + data.offset
    return Side(up(up(value)) if math.isfinite(value) else math.inf)


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
    W = SparsePlusLowRank(_symmetric(block, coefficients.mid), np.zeros((block.n, 0)), np.zeros(0))
    banded = stays_sparse(W)
    if not banded and shortage(dense_bytes(block.n)) is not None:
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
        found = by_inertia(replace(W, S=shifted), 0.0) if banded else _by_cholesky(shifted)
        if found is not None:
            rounding = 4 * UNIT * (abs(shifted.diagonal()) + abs(t) * D)
            s = min(found, 0.0) - inflated(float((spread + rounding).max()) * (1 + gamma(block.n)))
            return float((Ball.exact(t) * reach + Ball.exact(s) * trace).lo)
        step *= growth
    return -math.inf


def dense_bytes(n: int) -> float:
    """Return the memory that the factorization of a dense matrix takes: two of them."""
    return 16.0 * n * n


def _by_cholesky(S: sp.csr_array) -> float | None:
    error = cholesky_error(S.toarray())
    return None if error is None else -error


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
