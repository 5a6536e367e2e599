"""The sums over one chunk that objective, gradient and certificate need."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dtrmm

from bregopt.arrays import Array
from bregopt.chunks.chunk import Chunk, buffer
from bregopt.program import Bounds, Penalty
from bregopt.threads import threads_for

__all__ = ["HINGE_NOISE", "Sums", "block_sums", "sums_of"]

HINGE_NOISE = 1e-9  # relative violation up to which a hinge counts as met: kept ones are met to round-off
_NONE = np.zeros((0, 0))


class Sums(NamedTuple):
    """Sums over rows at a matrix, with multipliers ``y_k = -penalty_k'(a_k)``.

    Parameters
    ----------
    penalty, conjugate : float
        Of the penalties, and of the rows' terms in the dual function.
    gradient : array of shape (d, d)
        The sum of ``-y_k z_k z_k'``.
    curvature : array of shape (d, d)
        The sum of ``w_k z_k z_k'``, with ``w_k`` the second derivative of the penalty. Empty, and `weight`
        zero, where it was not asked for.
    weight : float
        The sum of ``w_k``.
    """

    penalty: float
    conjugate: float
    gradient: Array
    curvature: Array
    weight: float

    def plus(self, other: Sums) -> Sums:
        """Return the sums over the rows of both."""
        return Sums(
            self.penalty + other.penalty,
            self.conjugate + other.conjugate,
            self.gradient + other.gradient,
            self.curvature + other.curvature,
            self.weight + other.weight,
        )


def sums_of(chunk: Chunk, root: Array, penalty: Penalty, curvature: bool) -> Sums:
    """Return the sums over a chunk at the matrix ``root root'``, in one BLAS thread.

    Parameters
    ----------
    chunk : Chunk
    root : array of shape (d, d), lower triangular, stored by columns
    penalty : Penalty
    curvature : bool
        Whether to sum second derivatives, too.

    Raises
    ------
    ValueError
        If a row is bad.
    """
    with threads_for(1):
        return reduce(Sums.plus, (block_sums(block, root, penalty, curvature) for block in chunk.blocks()))


def block_sums(block: Chunk, root: Array, penalty: Penalty, curvature: bool) -> Sums:
    """Return the sums over the soft rows of one block."""
    Z, bounds = block.vectors(), block.bounds(penalty)
    R = buffer("products", Z.shape)
    np.copyto(R, Z)
    dtrmm(1.0, root, R.T, lower=1, trans_a=1, overwrite_b=1)  # R = Z root, in half of the flops
    a = np.einsum("ij,ij->i", R, R)
    block.check(np.isfinite(a), a, "the value", "finite vectors")
    paid = bounds.penalty(a)
    y = _hinge_response(bounds, a) if penalty is Penalty.HINGE else bounds.response(a)
    inside = (paid < np.inf) & np.isfinite(y)
    block.check(inside, a, "the value", "one above 0: its vector is zero, so drop the row")
    first = float(paid.sum()), float(bounds.conjugate(y).sum()), _weighted_moment(Z, -y)
    if not curvature:
        return Sums(*first, _NONE, 0.0)
    if penalty is Penalty.HINGE:
        return Sums(*first, np.zeros_like(first[2]), 0.0)
    _, D = bounds.meet(a, y, np.where(bounds.hard, 0.0, bounds.side(a, y)))
    w = 1 / D
    return Sums(*first, _weighted_moment(Z, w), float(w.sum()))


def _hinge_response(bounds: Bounds, a: Array) -> Array:
    """Return the multipliers of hinges, zero at the kink up to `HINGE_NOISE`; of hard rows zero."""
    up, down = a < bounds.lo * (1 - HINGE_NOISE), a > bounds.hi * (1 + HINGE_NOISE)
    side = np.where(up, 1.0, 0.0) - down
    return np.where(bounds.hard, 0.0, side * np.where(bounds.hard, 0.0, bounds.gamma))


def _weighted_moment(Z: Array, weights: Array) -> Array:
    """Return the sum of ``weights_k z_k z_k'``, by symmetric products of the rows of each sign."""
    moment = np.zeros((Z.shape[1], Z.shape[1]))
    for sign in (-1, 1):
        rows = np.flatnonzero(sign * weights > 0)
        scaled = buffer("products", (len(rows), Z.shape[1]))
        np.take(Z, rows, axis=0, out=scaled, mode="clip")  # other modes buffer the output
        scaled *= np.sqrt(sign * weights[rows])[:, None]
        moment += sign * (scaled.T @ scaled)  # NumPy takes a product with its own transpose as symmetric
    return moment
