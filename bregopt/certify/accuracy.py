"""How far ``X`` is from the optimum, entry by entry."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array

__all__ = ["Accuracy", "unknown_accuracy"]


class Accuracy(NamedTuple):
    """A certified bound on the distance of ``X`` from the optimum.

    Parameters
    ----------
    entries : array or DataFrame of shape (n, n)
        Bounds on ``|X - X*|``, entry by entry; infinite where nothing can be said.
    norm : float
        A bound on the Frobenius norm of ``X - X*``.
    largest : float
        The largest of the finite `entries`; infinite if there is none.
    reason : str
        Why nothing can be said, of all or some entries; empty if there is nothing to explain.
    """

    entries: Array | Any
    norm: float
    largest: float
    reason: str = ""

    @classmethod
    def of(cls, entries: Array, norm: float, reason: str = "") -> Accuracy:
        """Return the accuracy of an `X` with these bounds."""
        finite = entries[np.isfinite(entries)]
        return cls(entries, norm, float(finite.max()) if len(finite) else math.inf, reason)

    @property
    def phrase(self) -> str:
        """The statement, as a phrase about ``X``."""
        if not math.isfinite(self.largest):
            return f"nothing is known of the distance from the optimum: {self.reason}"
        some = f" ({self.reason})" if self.reason else ""
        return f"within {self.largest:.1g} of the optimum, entry by entry{some}"

    def __repr__(self) -> str:
        verb = "is " if math.isfinite(self.largest) else ": "
        norm = f"; {self.norm:.1g} in the Frobenius norm" if math.isfinite(self.norm) else ""
        return f"X {verb}{self.phrase}{norm}" if verb == "is " else f"X: {self.phrase}"


def unknown_accuracy(n: int, reason: str) -> Accuracy:
    """Return the accuracy of which nothing can be said."""
    return Accuracy(np.full((n, n), np.inf), math.inf, math.inf, reason)
