r"""The distance of an answer from the optimum, by the theorem of Newton and Kantorovich.

The objective is linear in ``X``, or a (weighted) Frobenius distance. The optimality conditions ``F(v) = 0``
of ``v = (X, u, y)``, with ``Z = C - A*(y)``, plus ``2 mu H o H o (X - X0)`` for a distance, and the rows and
variables that act as equalities, are

    (X Z + Z X) / 2 = 0,   A(X) + B u = b,   c - B'y = 0   (Alizadeh, Haeberly and Overton 1998).

Only the first is not linear. In units in which ``|dZ|_F <= K |dX|_F + L |dy|`` the change of its derivative
with a change ``X'``, ``y'`` of the place is at most

    |(dX Z' + Z' dX + dZ X' + X' dZ) / 2|_F <= |dX||Z'| + |dZ||X'| <= lambda |(dX, dy)| |(X', y')|,

with ``lambda = K + sqrt(K^2 + L^2)``, the norm of the matrix ``[2 K, L; L, 0]``: a Lipschitz constant. With
``R`` near the inverse of the Jacobian ``J``, ``delta >= |I - R J|``, ``eta >= |R F| / (1 - delta)``, and
``beta >= |R_1| / (1 - delta)`` with the columns ``R_1`` of the first equation, let ``h = beta lambda eta``.
If ``h <= 1/2``, then ``F`` has one root within

    r = (1 - sqrt(1 - 2 h)) / (beta lambda) = 2 eta / (1 + sqrt(1 - 2 h))

(Kantorovich and Akilov 1982, §XVIII.1, in its affine-invariant form). There ``v* - v = -R F + (I - R J)(v* -
v) - R_1 Q`` with ``|Q| <= lambda r^2 / 2``, which bounds each entry of the root.

At a root ``(X + Z)^2 = (X - Z)^2``. So if ``X + Z`` is positive definite, it is the root ``|X - Z|`` of a psd
matrix, and ``X`` and ``Z`` are the parts of ``X - Z``: psd, with ``X Z = 0``. The units of the two do not
matter. With the signs of the multipliers and slacks of inequalities the root is optimal. Another optimum is
complementary to the same multipliers, as the gradient is the same at all optima, and so is each point of the
segment between the two: all of these are roots. As the root is alone in its ball, there is no other optimum.

Every rounding is in a :class:`~bregopt.rigorous.ball.Ball`. Where strict complementarity or nondegeneracy
fails, ``J`` is singular, and nothing is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.certify.accuracy import Accuracy, unknown_accuracy
from bregopt.program import LowRank, Penalty, Program
from bregopt.rigorous.ball import Ball, gamma, inflated
from bregopt.rigorous.data import data_of
from bregopt.rigorous.optimality import (
    Conditions,
    Point,
    Root,
    Space,
    UnprovenError,
    conditions_near,
    spectral_norm,
)

__all__ = ["newton_kantorovich"]

_LARGEST = 2000  # unknowns: the proof has a dense inverse of this order, and five products
_STEPS = 20  # of Newton's method


def newton_kantorovich(
    program: Program, X: Sequence[Any], u: Array, y: Array, hermitian: Sequence[bool] = ()
) -> tuple[Accuracy, ...]:
    """Return the proven accuracy of each matrix of an answer to a linear or quadratic problem.

    A few steps of Newton's method refine the answer, and the theorem encloses the optimum near the refined
    point. The accuracy is the distance of the given matrix from this point and the radius around it. It also
    proves that the optimum and its multipliers exist and are unique.

    Parameters
    ----------
    program : Program
    X : sequence of arrays of shape (n_b, n_b)
    u : array of shape (k,)
    y : array of shape (m,)
    hermitian : sequence of bool, optional
        Whether each block is the real form of a Hermitian matrix. The optimum in this form need not be unique
        among all symmetric matrices.

    Returns
    -------
    tuple of Accuracy
        With the reason where nothing can be said: LogDet or von Neumann, soft rows, bounds on
        eigenvalues, second-order cones, LowRank matrices, more than 2000 unknowns (entries of the matrices on
        and above the diagonal, rows and ordinary variables), or an answer without strict complementarity,
        with redundant multipliers or with other optima.
    """
    orders = [block.n for block in program.blocks]
    if not orders:
        return ()
    forms = [b < len(hermitian) and hermitian[b] for b in range(len(orders))]
    sizes = [n * n // 4 if is_form else n * (n + 1) // 2 for n, is_form in zip(orders, forms, strict=True)]
    try:
        _check_supported(program, X, sum(sizes))
        with np.errstate(all="ignore"):
            found = _proven(program, X, u, y, forms)
    except UnprovenError as reason:
        return tuple(unknown_accuracy(n, str(reason)) for n in orders)
    return tuple(Accuracy.of(ball.magnitude, ball.frobenius()) for ball in found)


def _check_supported(program: Program, X: Sequence[Any], entries: int) -> None:
    """Raise the reason why a problem is not of the kind that the theorem is for."""
    reason = ""
    if not set(filter(None, program.divergences)) <= {"frobenius"}:
        reason = "the objective is neither linear nor quadratic in X"
    elif (program.bounds.kind != int(Penalty.HARD)).any():
        reason = "the problem has soft rows"
    elif program.capped:
        reason = "the eigenvalues of a matrix have an upper bound"
    elif program.cones.count:
        reason = "ordinary variables are in second-order cones"
    elif any(isinstance(own, LowRank) for own in X):
        reason = "X is LowRank"
    size = entries + program.m + program.k
    if not reason and size > _LARGEST:
        reason = f"the optimality conditions have {size} unknowns; the proof is dense, for at most {_LARGEST}"
    if reason:
        raise UnprovenError(reason)


def _proven(
    program: Program, X: Sequence[Array], u: Array, y: Array, hermitian: Sequence[bool]
) -> list[Ball]:
    """Return enclosures of ``X - X*``."""
    spaces = [Space.of(block.n, real) for block, real in zip(program.blocks, hermitian, strict=True)]
    conditions, at = conditions_near(data_of(program), spaces, [np.asarray(own) for own in X], u, y)
    root = _enclosure(conditions, _refined(conditions, at))
    conditions.check(root)
    matrices = conditions.matrices(root.x)
    return [Ball.exact(np.asarray(own)) - M for own, M in zip(X, matrices, strict=True)]


def _refined(conditions: Conditions, at: Point) -> Point:
    """Return the best point of Newton's method, which ends at round-off or where the residual stays."""
    best, least, stays = at, math.inf, 0
    for _ in range(_STEPS):
        residual = conditions.residual(at)
        size = float(np.linalg.norm(residual.mid))
        stays = 0 if size < least / 2 else stays + 1
        if size < least:
            best, least = at, size
        if stays == 2 or not math.isfinite(size) or size <= float(np.linalg.norm(residual.rad)):
            break
        try:
            change = np.asarray(np.linalg.solve(conditions.jacobian(at).mid, residual.mid))
        except np.linalg.LinAlgError:
            break
        at = conditions.moved(at, -change[:, 0])
    return best


def _enclosure(conditions: Conditions, at: Point) -> Root:
    """Return the enclosure of the root near a point."""
    J, F = conditions.jacobian(at), conditions.residual(at)
    try:
        R = np.linalg.inv(J.mid)
    except np.linalg.LinAlgError:
        R = np.full_like(J.mid, np.inf)
    p, k = len(at.x), len(at.u)
    rest = Ball.exact(R) @ J - np.eye(len(R))
    delta = rest.frobenius()
    if not delta < 0.5:
        condition = float(np.linalg.norm(J.mid, 1) * np.linalg.norm(R, 1))
        raise UnprovenError(
            f"the Jacobian of the optimality conditions may be singular (condition {condition:.0e}), because "
            "the optimum or its multipliers are not unique, or without strict complementarity (the least "
            f"eigenvalue of X / |X| + Z / |Z| is {conditions.complementarity(at):.0e})"
        )
    step = Ball.exact(R) @ F
    eta = inflated(step.frobenius() / (1 - delta))
    beta = inflated(spectral_norm(Ball.exact(R[:, :p])) / (1 - delta))
    h = inflated(beta * conditions.lipschitz * eta)
    if not h <= 0.5:
        raise UnprovenError(
            f"the answer is too far from a root of the optimality conditions, or these are too badly "
            f"conditioned: beta lambda eta is {h:.1e}, above 1/2; solve with a smaller tol"
        )
    r = inflated(2 * eta / (1 + math.sqrt(1 - 2 * h)))
    squares = conditions.lipschitz * r * r / 2
    rad = step.magnitude[:, 0] + _row_norms(rest.magnitude) * r + _row_norms(np.abs(R[:, :p])) * squares
    dx, du, dw = np.split(inflated(rad) * conditions.scales[1], np.cumsum([p, k]))
    dx, du = inflated(dx), inflated(du)
    spread = Ball(np.zeros(len(dw)), inflated(dw))
    moved = Ball.exact(conditions.multipliers) @ spread
    x = Ball(at.x, dx)
    z = conditions.slack(x, at.y) - conditions.slopes @ spread
    return Root(x, Ball(at.u, du), Ball.exact(at.y) + moved, z)


def _row_norms(M: Array) -> Array:
    """Return upper bounds on the norms of the rows."""
    n = M.shape[1]
    found: Array = inflated(np.sqrt((M * M).sum(axis=1) * (1 + gamma(n + 2)))) + math.sqrt(n * TINY)
    return found
