"""Whitening: an ill-conditioned ``X0`` of LogDet becomes the identity.

With ``X0 = L L'`` and ``X = L M L'`` the divergence is ``tr M - logdet M - n``, and the conditioning costs no
precision. Rows lose their sparsity, so a well-conditioned ``X0`` is not whitened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Known, PrimalDualPoint
from bregopt.presolve.constants import WHITENED_CONDITION
from bregopt.presolve.reduction import Reduced
from bregopt.program import Answer, LowRank, Program, Start
from bregopt.program.anchor import divergence_of

__all__ = ["Whitened", "Whitening"]


@dataclass(frozen=True, eq=False)
class Whitened(Reduced):
    """A program in ``M`` for ``X = L M L'``.

    Parameters
    ----------
    L : array of shape (n, n)
        Lower triangular, with ``X0 = L L'``.
    """

    L: Array

    @property
    def summary(self) -> str:
        return "coordinates in which X0 is the identity"

    def shrink(self, start: Start) -> Start:
        return replace(start, X=())

    def restore(self, answer: Answer) -> Answer:
        return replace(answer, X=tuple(self.L @ M @ self.L.T for M in answer.X))

    def missed(self, X: Sequence[Array], u: Array, activity: Array) -> float:
        # A residual that is relatively small in these coordinates may be large in the given ones.
        restored = tuple(self.L @ M @ self.L.T for M in X)
        known = Known(activity=activity, cone_residual=0.0)
        return PrimalDualPoint(self.whole, restored, u, np.zeros(self.whole.m), **known).primal_residual


class Whitening:
    """Change the coordinates of the one matrix of a LogDet program so that ``X0 = I``, if ill conditioned."""

    name: ClassVar[str] = "whitening"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, options: Any) -> Whitened | None:
        nearness = program.blocks[0].nearness
        if len(program.blocks) > 1 or nearness is None or isinstance(nearness.X0, LowRank):
            return None
        if not nearness.kind.barrier or program.capped:  # a congruence changes the eigenvalues
            return None
        divergence: Any = divergence_of(nearness)
        L: Array = divergence.L
        if _condition(L) <= WHITENED_CONDITION:
            return None
        return Whitened(program, program.restrict(0, L, np.eye(len(L))), L)


def _condition(L: Array) -> float:
    """Return a lower bound on the condition number of ``L L'``."""
    diagonal = L.diagonal()
    return float((diagonal.max() / diagonal.min()) ** 2)
