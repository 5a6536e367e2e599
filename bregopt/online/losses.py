"""Losses of a real prediction, by name or a user's own, and the step of an implicit update.

A new loss is one :class:`Loss`, and a line in `LOSSES` if it has a name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from scipy.optimize import brentq

from bregopt.arrays import EPS, positive_number
from bregopt.records import dataclass

_STEP_TOL = 1e-13  # error of an implicit step, relative to the explicit one


@dataclass(frozen=True)
class Loss:
    """A loss ``l(p, y)`` of a prediction ``p`` for a label ``y``, convex in ``p`` and not negative.

    Parameters
    ----------
    value : callable
        ``value(p, y)``, the loss.
    derivative : callable
        ``derivative(p, y)``, the derivative in ``p``; where there is none, a subgradient.
    inverse : callable, optional
        ``inverse(g, y)``, a prediction with the subgradient ``g``, for ``g`` strictly between the limits of
        the derivative. Without it an implicit update takes more predictions if the derivative jumps, up to 50
        for some 10.
    smoothness : float
        A Lipschitz constant of the derivative in ``p``; infinite, the default, if none is known. The bounds
        of smooth losses rely on it.
    signed : bool
        Whether labels are 1 and -1, and others are refused.

    Raises
    ------
    TypeError, ValueError
        If a function is none, or `smoothness` is not above zero.

    Notes
    -----
    Convexity, smoothness and `inverse` are not checked, and the bounds rely on them. Only a loss that is made
    of named functions can be pickled.

    Examples
    --------
    The loss of a quantile, at 0.9:

    >>> from bregopt.online import MEG, Loss
    >>> pinball = Loss(lambda p, y: max(0.9 * (y - p), 0.1 * (p - y)), lambda p, y: 0.1 if p > y else -0.9)
    >>> round(MEG(eta=0.5, loss=pinball).fit([[1.0, 0.0]], [1.0]).loss_, 2)
    0.45
    """

    value: Callable[[float, float], float]
    derivative: Callable[[float, float], float]
    inverse: Callable[[float, float], float] | None = None
    smoothness: float = math.inf
    signed: bool = False

    def __post_init__(self) -> None:
        for name in ("value", "derivative", "inverse"):
            function = getattr(self, name)
            if not callable(function) and not (name == "inverse" and function is None):
                raise TypeError(f"{name} is {function!r}; expected a function of two numbers")
        if not self.smoothness > 0:
            raise ValueError(f"smoothness is {self.smoothness}; expected a number above 0, or infinity")

    def total(self, predictions: Iterable[float], y: Iterable[float]) -> float:
        """Return the sum of the losses of predictions, such as those of a comparator."""
        return math.fsum(self.value(float(p), float(label)) for p, label in zip(predictions, y, strict=True))


def _square(p: float, y: float) -> float:
    return (p - y) ** 2


def _square_derivative(p: float, y: float) -> float:
    return 2 * (p - y)


def _square_inverse(g: float, y: float) -> float:
    return y + g / 2


def _huber(threshold: float, p: float, y: float) -> float:
    error = abs(p - y)
    return error**2 if error <= threshold else threshold * (2 * error - threshold)


def _huber_derivative(threshold: float, p: float, y: float) -> float:
    return 2 * max(-threshold, min(p - y, threshold))


def _absolute(p: float, y: float) -> float:
    return abs(p - y)


def _sign_of_error(p: float, y: float) -> float:
    return 0.0 if p == y else math.copysign(1.0, p - y)


def _hinge(p: float, y: float) -> float:
    return max(0.0, 1 - y * p)


def _hinge_derivative(p: float, y: float) -> float:
    return -y if y * p < 1 else 0.0


def _kink_at_label(_: float, y: float) -> float:
    return y


def huber(threshold: float = 1.0) -> Loss:
    """Return Huber's loss: the square of an error up to a threshold, and its tangent beyond.

    Parameters
    ----------
    threshold : float, above 0
        The loss of an error ``e`` is ``e^2`` if ``|e| <= threshold``, else ``threshold (2 |e| - threshold)``.

    References
    ----------
    Huber (1981); Tsuda, Rätsch, Warmuth (2005), §6, propose it for outliers.
    """
    limit = positive_number(threshold, "threshold")
    return Loss(partial(_huber, limit), partial(_huber_derivative, limit), _square_inverse, smoothness=2.0)


SQUARE = Loss(_square, _square_derivative, _square_inverse, smoothness=2.0)

LOSSES = {
    "square": SQUARE,
    "huber": huber(),
    "absolute": Loss(_absolute, _sign_of_error, _kink_at_label),
    "hinge": Loss(_hinge, _hinge_derivative, _kink_at_label, signed=True),  # 1 = y p at p = y
}


def find_loss(loss: Any) -> Loss:
    """Return a loss by its name, or the user's own.

    Raises
    ------
    TypeError, ValueError
        If it is neither a `Loss` nor a name in `LOSSES`.
    """
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str):
        raise TypeError(f"loss is {loss!r}; expected a name, or bregopt.online.Loss(value, derivative)")
    if loss not in LOSSES:
        raise ValueError(f"loss is {loss!r}; expected one of {', '.join(LOSSES)}, or a bregopt.online.Loss")
    return LOSSES[loss]


def implicit_step(
    loss: Loss, y: float, eta: float, predict: Callable[[float], float], farthest: float
) -> float:
    """Return the step ``b`` of an implicit update: ``b = eta g`` with ``g`` a subgradient at ``predict(b)``.

    Parameters
    ----------
    loss : Loss
    y : float
        The label.
    eta : float
    predict : callable
        The prediction after a step; it does not increase.
    farthest : float
        The explicit step, or a part of it; it is returned if the solution is not between zero and it.
    """

    def surplus(b: float) -> float:  # increases
        p = predict(sign * b)
        if loss.inverse is None:
            return b - sign * eta * loss.derivative(p, y)
        return sign * (loss.inverse(sign * b / eta, y) - p)

    sign = math.copysign(1.0, farthest)
    size = abs(farthest)
    if size == 0 or surplus(size) <= 0:
        return farthest
    if surplus(0.0) >= 0:  # by round-off, at a prediction as close to the best one as can be
        return 0.0
    root: float = brentq(surplus, 0.0, size, xtol=_STEP_TOL * size, rtol=4 * EPS)
    return sign * root
