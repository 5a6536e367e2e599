"""A LogDet nearness problem in one matrix, and the certificate of an iterate."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, Protocol, Unpack

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.divergences import LogDet
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.presolve.whitening import Whitened
from bregopt.program import Program
from bregopt.program.anchor import divergence_of
from bregopt.routes.progress import Progress

__all__ = ["LogDetIterate", "LogDetProblem", "LogDeterminants"]


class LogDetIterate(Protocol):
    """An iterate: a matrix, multipliers, their factors; no ``Z_root`` if the multipliers prove nothing."""

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


class LogDeterminants(NamedTuple):
    """The logarithms of the determinants of ``X`` and ``Z``."""

    X: float
    Z: float


class LogDetProblem:
    """A program with one matrix and a LogDet term.

    Parameters
    ----------
    program : Program
    progress : Progress
        Gives the residual in the original program if this one is reduced.
    """

    def __init__(self, program: Program, progress: Progress) -> None:
        (block,) = program.blocks
        nearness = block.nearness
        assert nearness is not None
        divergence = divergence_of(nearness)
        assert isinstance(divergence, LogDet)
        self.program, self.mu, self.X0 = program, nearness.mu, np.asarray(nearness.X0)
        self.divergence = divergence
        self.C: Array = block.C + self.mu * divergence.inverse
        self.whitened = progress.behind(Whitened)
        self._log_det = log_det(divergence.L)
        self._progress = progress

    def point(self, adjoint: Array) -> Array | None:
        """Return ``X = mu inv(C - A*(y))`` for a given ``A*(y)``, None outside the cone."""
        root = root_of(self.C - adjoint)
        return None if root is None else self.mu * inverse_of(root)

    @cached_property
    def unconstrained(self) -> Array | None:
        """The unconstrained minimizer, None if there is none."""
        (block,) = self.program.blocks
        return self.X0.copy() if block.cost is None else self.point(np.zeros_like(self.X0))

    def steepest(self) -> Array:
        """Return the matrix of trace one along which the linear term grows least."""
        v = np.linalg.eigh(self.C)[1][:, :1]
        direction: Array = v @ v.T
        return direction

    def certificate(
        self, at: LogDetIterate, log_det_of: LogDeterminants | None = None, **known: Unpack[Known]
    ) -> Certificate:
        """Return the certificate of an iterate, from its factors and the values already computed."""
        n, proves = len(at.X), at.Z_root is not None
        if log_det_of is None:
            log_det_of = LogDeterminants(log_det(at.X_root), 0.0 if at.Z_root is None else log_det(at.Z_root))
        linear = float(np.vdot(self.divergence.inverse, at.X)) - n
        known["divergences"] = (linear - log_det_of.X + self._log_det,)
        term = self.mu * (log_det_of.Z + self._log_det - n * math.log(self.mu)) if proves else -math.inf
        known |= Known(matrix_terms=(term,), activity=at.activity, cone_residual=0.0)
        found = certify(PrimalDualPoint(self.program, (at.X,), np.zeros(0), at.y, **known))
        residual = self._progress.missed((at.X,), np.zeros(0), at.activity)
        return replace(found, primal_residual=max(found.primal_residual, residual))
