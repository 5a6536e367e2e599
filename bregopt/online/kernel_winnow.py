"""Matrix Winnow on feature vectors ``phi(x)`` that are known by a kernel only (Warmuth 2007, §1).

``log W`` is ``log(w0) I`` plus a sum of ``eta y phi(x) phi(x)'`` over the mistakes. So ``W`` is ``w0 I`` on
the orthogonal complement of the span of their features, which suggests an orthonormal basis of that span. The
Cholesky factor ``L`` of the mistakes' Gram matrix gives one: a point ``x`` with the kernel values ``k`` has
the coordinates ``q = inv(L) k``, and

    phi(x)' W phi(x) = w0 (k(x, x) - q'q) + q' W_S q,

with ``W_S`` the matrix in these coordinates, which the update of `winnow` changes. Memory and time depend on
the dimension of the span, at most the number of mistakes, and not on the dimension of the features.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.online import meg, winnow

__all__ = ["KernelWinnowState", "init", "traces", "update"]

# A squared distance from the span below this fraction of the squared norm is zero. The condition number of L
# is then at most about 1e5, and coordinates have ten digits.
_RANK_TOL = 1e-10
_INDEFINITE = 1e-6  # a squared distance below minus this is no round-off


class KernelWinnowState(NamedTuple):
    """The state between trials, for a span of dimension ``m``."""

    points: Array  # (m, d), whose features span
    inverse: Array  # (m, m), inv(L)
    G: Array  # (m, m), log W in the coordinates q
    W: Array  # (m, m)


def init(d: int) -> KernelWinnowState:
    """Return the initial state ``w0 I``, whose span has dimension zero, for points of `d` features."""
    empty = np.zeros((0, 0))
    return KernelWinnowState(np.zeros((0, d)), empty, empty, empty)


def traces(state: KernelWinnowState, rows: Array, squares: Array, w0: float) -> Array:
    """Return ``phi(x)' W phi(x)`` for points, shape ``(T,)``.

    Parameters
    ----------
    state : KernelWinnowState
    rows : array of shape (T, m)
        Kernel values with the points of the state.
    squares : array of shape (T,)
        ``k(x, x)``.
    w0 : float
    """
    q = rows @ state.inverse.T
    rest = np.maximum(squares - (q**2).sum(axis=1), 0.0)
    forms: Array = w0 * rest + ((q @ state.W) * q).sum(axis=1)
    return forms


def update(
    state: KernelWinnowState,
    x: Array,
    row: Array,
    square: float,
    y: float,
    eta: float,
    w0: float,
    floor: float = 0.0,
) -> KernelWinnowState:
    """Learn from a mistake at the point `x`, whose kernel values with the state's points are `row`.

    ``log W`` moves by ``eta y phi(x) phi(x)'``. With a floor above 0 the eigenvalues in the span are kept in
    ``[floor, 1]``.

    Raises
    ------
    ValueError
        If the values are those of no positive semidefinite kernel.
    """
    q = state.inverse @ row
    rest = square - float(q @ q)
    if rest < -_INDEFINITE * max(square, 1.0):
        raise ValueError(
            f"the kernel is not positive semidefinite: the squared distance of {x} from the span of the "
            f"{len(q)} points before is {rest:.2g}"
        )
    if rest > _RANK_TOL * square:
        state = _extended(state, x, q, math.sqrt(rest), w0)
        q = np.append(q, math.sqrt(rest))
    if len(q) == 0:  # the features are zero
        return state
    moved = winnow.update(meg.MEGState(state.G, state.W), q, y, eta, floor=floor)
    return KernelWinnowState(state.points, state.inverse, moved.G, moved.W)


def _extended(state: KernelWinnowState, x: Array, q: Array, distance: float, w0: float) -> KernelWinnowState:
    """Return the same ``W`` with one more dimension in the span: that of a point at a distance from it."""
    inverse = _bordered(state.inverse, 1 / distance)
    inverse[-1, :-1] = -(q @ state.inverse) / distance
    points = np.vstack([state.points, x])
    return KernelWinnowState(points, inverse, _bordered(state.G, math.log(w0)), _bordered(state.W, w0))


def _bordered(A: Array, corner: float) -> Array:
    """Return the block diagonal matrix of a matrix and a number."""
    m = len(A)
    bordered = np.zeros((m + 1, m + 1))
    bordered[:m, :m] = A
    bordered[m, m] = corner
    return bordered
