"""Blocks whose eigenvalues have an upper bound, ``X <= c I``: their term of the bound, and their violation.

Over ``0 <= X <= c I`` every linear function has a minimum: ``<W, X>`` is at least ``c`` times the sum of the
negative eigenvalues of ``W``. So any multipliers give a rigorous bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.consistency import least_seen
from bregopt.certify.constants import CONE_NOISE
from bregopt.divergences import psd_part
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.program import Block, Nearness, Program, divergence_of

__all__ = ["CapViolation", "cap_violation", "capped_term"]


class CapViolation(NamedTuple):
    """The violation of the caps by a point.

    Parameters
    ----------
    residual : float
        The largest excess of an eigenvalue, relative to its cap.
    cost : float
        The change of the Lagrangian if the excess is cut off.
    """

    residual: float
    cost: float


def cap_violation(program: Program, X: Sequence[Matrix], y: Array) -> CapViolation:
    """Return the violation of the caps; excess within round-off counts as zero."""
    residual, cost = 0.0, 0.0
    for b, (block, X_b) in enumerate(zip(program.blocks, X, strict=True)):
        if block.cap is None:
            continue
        excess = _largest_eigenvalue(X_b) / block.cap - 1
        if excess > CONE_NOISE:
            residual = max(residual, excess)
            cost += _cost(block, np.asarray(X_b), block.C - program.A.adjoint(y, b), block.cap)
    return CapViolation(residual, cost)


def capped_term(nearness: Nearness | None, W: Array, X: Array, cap: float) -> float:
    """Return a lower bound on ``<W, .> + mu D(., X0)`` over matrices with eigenvalues from zero to `cap`.

    It is the minimum itself, except where a divergence has no closed form for it. For any psd ``S``,
    ``<S, X> <= cap tr S``. So its bound without the cap at ``W + S``, less ``cap tr S``, is a bound. The
    negative part of the gradient at `X` makes it tight at the optimum.
    """
    if nearness is None:
        return cap * float(np.minimum(np.linalg.eigvalsh(W), 0.0).sum())
    divergence: Any = divergence_of(nearness)
    mu = nearness.mu
    if divergence.takes_cap:
        least = divergence.dual_term(W, mu, X, cap)
    else:
        S = psd_part(-W - mu * divergence.gradient(X))
        least = divergence.dual_term(W + S, mu, X) - cap * float(S.trace())
    return min(least, least_seen(divergence, W, mu, X, cap))


def _largest_eigenvalue(X: Matrix) -> float:
    return float((X.eigenvalues() if isinstance(X, LowRank) else np.linalg.eigvalsh(X))[-1])


def _cost(block: Block, X: Array, W: Array, cap: float) -> float:
    """Return the change of ``<W, X> + mu D(X, X0)`` if eigenvalues above the cap are lowered to it."""
    within = psd_part(X, cap)
    change = float(np.vdot(W, X - within))
    if block.nearness is not None:
        divergence = divergence_of(block.nearness)
        change += block.nearness.mu * (divergence.value(X) - divergence.value(within))
    return abs(change)
