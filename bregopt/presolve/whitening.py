"""Whitening: the ill-conditioned ``X0`` of LogDet terms become the identity.

With ``X0 = L L'`` and ``X = L M L'`` the divergence is ``tr M - logdet M - n``, and the conditioning costs no
precision. Rows lose their sparsity, so a well-conditioned ``X0`` is not whitened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Known, PrimalDualPoint
from bregopt.certify.constants import DIVERGENT
from bregopt.presolve.constants import LARGEST_EXPOSING, WHITENED_CONDITION
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.program import Answer, LowRank, Matrix, Program, Start
from bregopt.program.anchor import divergence_of

__all__ = ["InCoordinatesOfAnswer", "Whitened", "Whitening", "in_coordinates_of_answer"]


@dataclass(frozen=True, eq=False)
class Whitened(Reduced):
    """A program in ``M`` for ``X = L M L'``, in some of its blocks.

    Parameters
    ----------
    L : mapping from block to array of shape (n, n)
        Lower triangular, with ``X0 = L L'``.
    """

    L: Mapping[int, Array]

    @property
    def summary(self) -> str:
        return "coordinates in which X0 is the identity"

    def shrink(self, start: Start) -> Start:
        return replace(start, X=())

    def restore(self, answer: Answer) -> Answer:
        return replace(answer, X=self._restored(answer.X))

    def missed(self, X: Sequence[Array], u: Array, activity: Array) -> float:
        # A residual that is relatively small in these coordinates may be large in the given ones.
        known = Known(activity=activity, cone_residual=0.0)
        y = np.zeros(self.whole.m)
        return PrimalDualPoint(self.whole, self._restored(X), u, y, **known).primal_residual

    def _restored(self, X: Sequence[Array]) -> tuple[Array, ...]:
        lifted = (self.L[b] @ M @ self.L[b].T if b in self.L else M for b, M in enumerate(X))
        return tuple((M + M.T) / 2 for M in lifted)


class InCoordinatesOfAnswer(Whitened):
    """A linear program in coordinates in which a large approximate answer is of the size of the rows."""

    rescales: ClassVar[bool] = True

    @property
    def summary(self) -> str:
        return "coordinates in which X is of the size of the rows"


def in_coordinates_of_answer(
    program: Program, X: Sequence[Matrix], size: float
) -> InCoordinatesOfAnswer | None:
    """Return a program in coordinates in which eigenvalues of `X` above `size` are one.

    It is None where all of them are of the order of `size`, or the rows, which become dense, are too large.

    An optimum may be as large as one over a small eigenvalue of the data. Products of ``X`` with the data
    lose that eigenvalue in the given coordinates, and in these they do not.
    """
    if program.m * sum(n**2 for n in program.A.orders) > LARGEST_EXPOSING:
        return None
    turned, factors = program, {}
    for b, (block, X_b) in enumerate(zip(program.blocks, X, strict=True)):
        if block.cap is not None or block.nearness is not None:
            continue
        eigenvalues, Q = np.linalg.eigh(np.asarray(X_b))
        if eigenvalues[-1] > DIVERGENT * size:
            factors[b] = Q * np.sqrt(np.maximum(eigenvalues / size, 1.0))
            turned = turned.restrict(b, factors[b])
    return InCoordinatesOfAnswer(program, turned, factors) if factors else None


class Whitening:
    """Change the coordinates of LogDet blocks so that ``X0 = I``, where it is ill conditioned."""

    name: ClassVar[str] = "whitening"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Whitened | None:
        white, factors = program, {}
        for b, block in enumerate(program.blocks):
            nearness = block.nearness
            if nearness is None or not nearness.kind.barrier or isinstance(nearness.X0, LowRank):
                continue
            if block.cap is not None:  # a congruence changes the eigenvalues
                continue
            divergence: Any = divergence_of(nearness)
            if _condition(divergence.L) > WHITENED_CONDITION:
                factors[b] = divergence.L
                white = white.restrict(b, divergence.L, np.eye(block.n))
        return Whitened(program, white, factors) if factors else None


def _condition(L: Array) -> float:
    """Return a lower bound on the condition number of ``L L'``."""
    diagonal = L.diagonal()
    return float((diagonal.max() / diagonal.min()) ** 2)
