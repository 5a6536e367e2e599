"""Semidefinite relaxations of partitions with many rows, by splitting.

    min <C, X>   with   X psd,   Y in the polyhedron of the rows,   X = Y

The alternating direction method of multipliers projects on either set in turn: on psd matrices by an
eigendecomposition, on the rows by gradient steps on their multipliers. So 10,000 rows cost little more than
none, and the next rows begin where these ended. As the diagonal of ``X`` is given, so is its trace, and the
multipliers of any step prove a bound.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.certify import PrimalDualPoint, certify
from bregopt.clock import CutShort, checkpoint
from bregopt.divergences import psd_part
from bregopt.problems.cuts.polyhedron import read_rows
from bregopt.program import Answer, Program, Start, StopReason
from bregopt.routes import base
from bregopt.routes.progress import Progress, reason
from bregopt.threads import threads_for

__all__ = ["Splitting"]

_STEPS = 5_000
_CHECKED = 10  # steps between certificates
_OVERSTEP = 1.6  # length of the steps of the multipliers of X = Y; the method converges below 1.618
_UNEQUAL, _CHANGE = 4.0, 1.3  # ratio of the residuals from which the penalty changes, and by how much
_SCALINGS, _NEAR = 30, 1e-6  # of a matrix for its certificate, and the miss of e'Xe that needs no further one
_LOSS = 1e-7  # of the bound by a finite multiplier of e'Xe = 0, relative to ||C||


class Splitting:
    """The alternating direction method of multipliers for relaxed partitions.

    It takes the programs of :func:`~bregopt.problems.cuts.polyhedron.read_rows`.
    """

    name: ClassVar[str] = "splitting"
    summary: ClassVar[str] = "relaxed partitions with generated rows"
    citation: ClassVar[str] = (
        "Wen, Goldfarb, Yin (2010), Alternating direction augmented Lagrangian methods for semidefinite "
        "programming, Math. Program. Comput. 2; de Meijer, Sotirov, Wiegele, Zhao (2023), Partitioning "
        "through projections: strong SDP bounds for large graph partition problems, Comput. Oper. Res. 151"
    )
    capabilities: ClassVar[base.Capabilities] = base.Capabilities(
        objectives=frozenset({"linear"}), blocks=1, variables=False
    )
    Settings: ClassVar[type[base.Settings]] = base.Settings

    def refusal(self, program: Program, settings: Any) -> str | None:
        """Return None; relaxed partitions have such rows only."""
        return None

    def choice(self, program: Program, settings: Any) -> str:
        """Return no reason: there is one method."""
        return ""

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        """Take steps until the certificate meets the tolerance."""
        steps = _Steps(program, start)
        stop = StopReason.MAX_ITER
        with threads_for(program.blocks[0].n):
            try:
                for k in range(1, 1 + (settings.max_iter or _STEPS)):
                    checkpoint(program.blocks[0].n)
                    steps.step()
                    if k % _CHECKED == 0:
                        point = PrimalDualPoint(program, (steps.near(),), np.zeros(0), steps.multipliers())
                        certificate = certify(point)
                        progress.record(k, certificate)
                        if certificate.meets(settings.tol):
                            stop = StopReason.CONVERGED
                            break
                        steps.balance()
            except CutShort as cut:
                stop = reason(cut)
            return Answer((steps.near(),), np.zeros(0), steps.multipliers(), stop, k, S=(steps.S,))


class _Steps:
    """The iterates: ``X``, ``Y``, multipliers `z` of the rows, and ``S`` of ``X = Y``."""

    def __init__(self, program: Program, start: Start | None) -> None:
        self._C, self._m = program.blocks[0].C, program.m
        self._polyhedron, self._places = read_rows(program)
        n = len(self._C)
        self._size = float(np.linalg.norm(self._C))
        self._penalty = self._size / n if self._size else 1.0
        self._centered = self._polyhedron.total == (0.0, 0.0)  # then X e = 0
        self.X, self.S = np.diag(self._polyhedron.diagonal), np.zeros((n, n))
        self._y, self._slack = np.zeros(self._m), self._C
        if start is not None and start.X and start.S is not None and start.S[0] is not None:
            self.X, self.S, self._y = np.asarray(start.X[0]), start.S[0], start.y
        self._z = self._y[self._places.sparse] / self._penalty
        self._primal = self._dual = 0.0

    def step(self) -> None:
        """Project on the rows, then on psd matrices; update the multipliers of ``X = Y``."""
        W = self.X - (self._C - self.S) / self._penalty
        Y, self._z, shift = self._polyhedron.project(W, self._z)
        missing = self._polyhedron.diagonal - W.diagonal()
        self._y = self._penalty * self._places.multipliers(missing, self._z, shift, self._m)
        self._slack = self._C - self._penalty * (Y - W)
        V, before = Y - self.S / self._penalty, self.X
        self.X = psd_part(_centered(V) if self._centered else V)
        self.S = self.S - _OVERSTEP * self._penalty * (Y - self.X)
        self._primal = float(np.linalg.norm(Y - self.X)) / len(Y)
        self._dual = self._penalty * float(np.linalg.norm(self.X - before)) / max(self._size, TINY)

    def balance(self) -> None:
        """Change the penalty where one residual is much larger than the other."""
        factor = 1.0
        if self._primal > _UNEQUAL * self._dual:
            factor = _CHANGE
        elif self._dual > _UNEQUAL * self._primal:
            factor = 1 / _CHANGE
        self._penalty *= factor
        self._z = self._z / factor

    def near(self) -> Array:
        """Return a psd matrix near ``X`` with the given diagonal, and with ``e'Xe`` between its bounds.

        Congruences keep it psd. In turn one scales the part along ``e``, where the steps converge slowly, and
        the other scales the diagonal.
        """
        X, diagonal, (low, high) = self.X, self._polyhedron.diagonal, self._polyhedron.total
        n = len(X)
        for _ in range(_SCALINGS):
            own = X.diagonal()
            scale = np.sqrt(np.divide(diagonal, own, where=own > 0, out=np.ones(n)))
            X = scale[:, None] * X * scale
            sums = X.sum(axis=0)
            total = float(sums.sum())
            wanted = min(max(total, low), high)
            if abs(total - wanted) <= _NEAR * max(wanted, 1.0) or min(total, wanted) <= 0:
                break
            share = (math.sqrt(wanted / total) - 1) / n
            half = share * sums + share**2 * total / 2
            X = X + half + half[:, None]
        return X

    def multipliers(self) -> Array:
        """Return the multipliers of all rows.

        Where ``e'Xe = 0``, a large one makes the matrix ``C - A*(y)`` as definite as it is on the complement
        of ``e``, up to a small loss (by Schur complements).
        """
        if not self._centered:
            return self._y
        e = np.ones(len(self._slack)) / np.sqrt(len(self._slack))
        along = self._slack @ e
        across = along - (along @ e) * e
        definite = len(e) * float(across @ across) / max(_LOSS * self._size, TINY)
        y = self._y.copy()
        y[self._places.total] -= max(definite - along @ e, 0.0) / len(e) / self._places.weight
        return y


def _centered(V: Array) -> Array:
    """Return ``P V P`` for the projection ``P`` on the complement of ``e``."""
    mean = V.mean(axis=0)
    centered: Array = V - mean - mean[:, None] + mean.mean()
    return centered
