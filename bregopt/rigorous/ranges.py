"""Blocks near a low-rank ``X0 = F F'``, on its range: ``X = H M H'`` with ``M`` of the order of the rank.

LogDet and von Neumann keep the range of ``X0``. LogDet is invariant under congruence: with ``H = F`` no
number is rounded, and ``X0`` becomes the identity. The others, and caps, need an orthonormal basis of the
exact range of `F`: ``H = F T (I + E)^(-1/2)``, for any ``T`` with ``E = (F T)'F T - I`` of norm below one. It
is enclosed. If columns depend on others, ``F = G K`` with fewer columns `G` and a rational ``K``, which is
checked exactly; then `G` takes the place of `F`, and ``K K'`` that of the identity.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from operator import mul

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray
from bregopt.rigorous.ball import Ball, inflated, sparse_product
from bregopt.rigorous.data import Anchor, Data, MatrixData
from bregopt.rigorous.listing import LARGEST_LISTED

__all__ = ["independent_columns", "on_ranges"]

_DEPENDENT = 1e-9  # of the largest diagonal entry of R, below which a column may depend on others
_LARGEST_DENOMINATOR = 12


def on_ranges(data: Data) -> tuple[Data, tuple[Array | None, ...]]:
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
    C = [_cost(block, term) for term in terms]
    i, j = np.triu_indices(r)
    mid, rad = (np.hstack([getattr(part, name) for part in A]) for name in ("mid", "rad"))
    on = MatrixData(
        block.name,
        r,
        i,
        j,
        _listed(mid, rows, m),
        _listed(rad, rows, m) if rad.any() else None,
        Ball(*(np.concatenate([getattr(part, name) for part in C]) for name in ("mid", "rad"))),
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


def _cost(block: MatrixData, terms: Ball) -> Ball:
    if not block.C.magnitude.any():
        return Ball.exact(np.zeros(terms.mid.shape[1]))
    found: Ball = terms.T @ block.C
    return found


def _listed(values: Array, rows: IntArray, m: int) -> sp.csr_array:
    """Return the sparse array of all entries, with explicit zeros, in the given rows of `m`."""
    width = values.shape[1]
    count = np.zeros(m, dtype=np.intp)
    count[rows] = width
    indptr = np.concatenate([[0], np.cumsum(count)])
    return sp.csr_array((values.ravel(), np.tile(np.arange(width), len(rows)), indptr), (m, width))
