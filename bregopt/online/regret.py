"""Bounds on the total loss of a learner, from one inequality for each trial.

A trial has the instance ``X`` and the convex loss ``l >= 0``. Before the update the learner predicts ``p``, a
comparator ``U`` predicts ``u``, and ``g = l'(p)``. The *progress* is ``D(U, W) - D(U, W+)``. For some ``C``,

    explicit update:  progress >= eta g (p - u) - eta^2 g^2 C,
    implicit update:  progress  = eta g+ (p+ - u) + D(W+, W),    D(W+, W) >= (p - p+)^2 / 4C,

where ``p+`` and ``g+`` are the prediction and the derivative after the update. The second line is the
three-point identity of Bregman divergences. For the von Neumann divergence at trace one and eigenvalues of
range ``r``, ``C = r^2 / 8``: by the inequalities of Golden and Thompson and of Hoeffding, and by Pinsker's.
For the Burg divergences :mod:`bregopt.online.burg` derives ``C``. Then, with no more than convexity,

    eta (l(p) - l(u)) <= progress + eta^2 g^2 C    for both updates,

the implicit one because ``l(p) - l(p+) <= g (p - p+)``. If ``l'`` has the Lipschitz constant ``beta``, then
``l(u) >= l(p) + g (u - p) + (l'(u) - g)^2 / 2 beta`` and ``l'^2 <= 2 beta l``, from which

    explicit update:  (1 - s) eta l(p) <= eta l(u) / (1 + s - q) + progress    for 0 <= s <= q < 1 + s,
    implicit update:  eta l(p) / (1 + q) <= eta l(u) + progress,    q = 2 beta eta C.

The last line needs ``sqrt(l(p)) <= sqrt(l(p+)) + sqrt(beta / 2) |p - p+|``, which holds for these losses.
With ``s = 0`` and the square loss (``beta = 2``) the line before is Lemma 3.1 of Tsuda et al. (2005). Sums
over the trials bound the total loss.
"""

from __future__ import annotations

__all__ = ["convex_bound", "implicit_bound"]


def convex_bound(divergence: float, loss: float, rates: tuple[float, float], excess: float) -> float:
    """Return the bound for convex losses, ``(largest loss + divergence + excess) / smallest``.

    Parameters
    ----------
    divergence, loss : float
        ``D(U, W1)`` of the comparator, and its loss on the same trials.
    rates : (float, float)
        The smallest and the largest rate of the trials.
    excess : float
        The sum of ``eta^2 g^2 C``.
    """
    smallest, largest = rates
    return (largest * loss + divergence + excess) / smallest


def implicit_bound(divergence: float, loss: float, rates: tuple[float, float], steepness: float) -> float:
    """Return the bound for implicit updates with a smooth loss, for any rates.

    Parameters
    ----------
    divergence, loss, rates
        As for :func:`convex_bound`.
    steepness : float
        The largest ``q = 2 beta eta C`` of the trials.
    """
    return (1 + steepness) * convex_bound(divergence, loss, rates, excess=0.0)
