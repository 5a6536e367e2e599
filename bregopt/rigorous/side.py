"""One bound of an optimum."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Side"]


@dataclass(frozen=True)
class Side:
    """One bound and how far it is proven.

    Parameters
    ----------
    value : float
        ``-inf`` (a lower bound) or ``inf`` (an upper one) where nothing is proven.
    reason : str
        Why nothing is proven, and the next step; empty where it is.
    """

    value: float
    reason: str = ""
