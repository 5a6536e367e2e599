"""What a divergence offers: a Bregman matrix divergence anchored at ``X0``."""

from __future__ import annotations

from typing import ClassVar, Protocol

from bregopt.arrays import Array

__all__ = ["Divergence"]


class Divergence(Protocol):
    """A divergence ``D(X, X0)`` from one fixed ``X0`` of order `n`, with what its dual needs."""

    name: ClassVar[str]
    infinite_outside_cone: ClassVar[bool]
    """Whether `value` is infinite at every matrix that is not psd; where not, certificates check the cone."""

    @property
    def unit(self) -> float:
        """The scale of ``D``; a hundredth of it is the least that a gap is measured against."""
        ...

    def value(self, X: Array) -> float:
        """Return ``D(X, X0)``; ``inf`` outside its domain."""
        ...

    def gradient(self, X: Array) -> Array:
        """Return the gradient of ``D(., X0)`` at `X`."""
        ...

    def dual_term(self, W: Array, mu: float, X: Array) -> float:
        """Return a lower bound on ``<W, .> + mu D(., X0)`` over psd matrices, ``-inf`` where there is none.

        It is the minimum itself, except where a divergence has no closed form for it and takes the
        multiplier of ``X psd`` from the gradient at `X`.
        """
        ...
