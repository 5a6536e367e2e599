"""Baselines of Jain et al. (2007, §5): gradient descent and the exponentiated gradient for vectors."""

from __future__ import annotations

import numpy as np

from bregopt.arrays import Array


def gradient_descent(w: Array, x: Array, y: float, eta: float) -> Array:
    """Return ``w - 2 eta (w'x - y) x``; the divergence is the squared distance."""
    step: Array = w - 2 * eta * (w @ x - y) * x
    return step


def exponentiated_gradient(w: Array, x: Array, y: float, eta: float) -> Array:
    """Return the positive ``w`` times ``exp(-2 eta (w'x - y) x)``, scaled to the sum of ``w``.

    The divergence is the relative entropy (Kivinen and Warmuth 1997).
    """
    exponent = -2 * eta * (w @ x - y) * x
    grown = w * np.exp(exponent - exponent.max())
    scaled: Array = grown * (w.sum() / grown.sum())
    return scaled
