"""LogDet nearness in coordinates that suit it, and what an iterate of its methods proves."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, certificate_of, primal_residual
from bregopt.divergences import LogDet
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.program import Program
from bregopt.program.anchor import divergence_of

__all__ = ["Frame", "Known", "Point"]

_WELL_CONDITIONED = 1e6  # beyond it rows give up their own structure for the coordinates of X0


class Point(Protocol):
    """An iterate: a matrix, multipliers, and their factors; no ``Z_root`` where these prove nothing."""

    @property
    def X(self) -> Array: ...

    @property
    def X_root(self) -> Array: ...

    @property
    def Z_root(self) -> Array | None: ...

    @property
    def y(self) -> Array: ...

    @property
    def activity(self) -> Array: ...


class Known(NamedTuple):
    """What an iterate's method has computed: logarithms of determinants, and sums over the rows.

    The latter of what they pay, and of what they add to the dual function.
    """

    X_log_det: float
    Z_log_det: float
    paid: float | None = None
    rows_term: float | None = None


class Frame:
    """The problem in coordinates that suit it: its own, or those in which an ill-conditioned ``X0`` is I.

    In the latter the divergence is ``tr X - logdet X - n``, and the conditioning costs no precision.
    """

    def __init__(self, program: Program) -> None:
        nearness = program.blocks[0].nearness
        assert nearness is not None
        divergence = divergence_of(nearness)
        assert isinstance(divergence, LogDet)
        self._L: Array | None = None
        self._given = program
        if _condition(divergence.L) > _WELL_CONDITIONED:
            self._L = divergence.L
            program = program.restrict(0, self._L, np.eye(len(self._L)))
            nearness = program.blocks[0].nearness
            assert nearness is not None
            divergence = LogDet(np.eye(len(self._L)))
        self.program, self.mu, self.X0 = program, nearness.mu, np.asarray(nearness.X0)
        self.divergence = divergence
        self.C: Array = program.blocks[0].C + self.mu * divergence.inverse
        self._log_det = log_det(divergence.L)

    @property
    def ill_conditioned(self) -> bool:
        """Whether the coordinates are those of ``X0``."""
        return self._L is not None

    def point(self, adjoint: Array) -> Array | None:
        """Return the point that belongs to multipliers with this ``A*(y)``, None where there is none."""
        root = root_of(self.C - adjoint)
        return None if root is None else self.mu * inverse_of(root)

    @cached_property
    def resting(self) -> Array | None:
        """The point where no row acts, None where there is none."""
        free = self.program.blocks[0].cost is None
        return self.X0.copy() if free else self.point(np.zeros_like(self.X0))

    def steepest(self) -> Array:
        """Return the direction of trace one along which the objective grows least."""
        v = np.linalg.eigh(self.C)[1][:, :1]
        direction: Array = v @ v.T
        return direction

    def certificate(self, at: Point, known: Known | None = None) -> Certificate:
        """Return what an iterate proves, from the factors that it holds and what else is known of it."""
        n, proves = len(at.X), at.Z_root is not None
        if known is None:
            known = Known(log_det(at.X_root), 0.0 if at.Z_root is None else log_det(at.Z_root))
        own = float(np.vdot(self.divergence.inverse, at.X)) - n
        divergence = own - known.X_log_det + self._log_det
        term = self.mu * (known.Z_log_det + self._log_det - n * math.log(self.mu)) if proves else -math.inf
        sums = known.paid, known.rows_term
        found = certificate_of(self.program, at.X, at.y, at.activity, divergence, term, *sums)
        if not self.ill_conditioned:
            return found
        # What is small beside a row in these coordinates need not be so in the given ones.
        given = primal_residual(self._given, (self.lift(at.X),), np.zeros(0), at.activity)
        return replace(found, primal_residual=max(found.primal_residual, given))

    def lift(self, M: Array) -> Array:
        """Return a matrix in the coordinates of the problem as it was given."""
        return M if self._L is None else self._L @ M @ self._L.T


def _condition(L: Array) -> float:
    """Return a lower bound on the condition number of ``L L'``."""
    diagonal = L.diagonal()
    return float((diagonal.max() / diagonal.min()) ** 2)
