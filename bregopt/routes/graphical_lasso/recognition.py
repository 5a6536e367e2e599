"""Sparse inverse covariance problems among programs: LogDet nearness with absolute values of entries.

With ``S = C / mu + inv(X0)`` a LogDet term and its cost are ``mu (<S, X> - logdet X)`` and a constant. A soft
row that pays ``gamma |w X_ij|`` is a penalty of ``gamma |w| / mu``, half of it for each of two equal entries,
and a hard row ``X_ij = 0`` is an infinite one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.certify import Certificate, objective_size
from bregopt.divergences.logdet import LogDet
from bregopt.program import Answer, Penalty, Program, Start
from bregopt.program.program import divergence_of
from bregopt.records import dataclass
from bregopt.routes.graphical_lasso.problem import LassoData
from bregopt.routes.progress import Progress

__all__ = ["LassoProgram", "as_lasso"]

_CITATION = (
    "Friedman, Hastie, Tibshirani (2008), Sparse Inverse Covariance Estimation with the Graphical Lasso, "
    "Biostatistics 9; Hsieh, Sustik, Dhillon, Ravikumar (2014), QUIC: Quadratic Approximation for Sparse "
    "Inverse Covariance Estimation, JMLR 15"
)


@dataclass(frozen=True, eq=False)
class LassoProgram:
    """A program that is a sparse inverse covariance problem.

    Parameters
    ----------
    program : Program
    i, j : int arrays of shape (m,)
        The entry of each row.
    weight : array of shape (m,)
        Its factor in the row.
    """

    program: Program
    i: IntArray
    j: IntArray
    weight: Array

    @property
    def _mu(self) -> float:
        nearness = self.program.blocks[0].nearness
        assert nearness is not None
        return nearness.mu

    @property
    def _share(self) -> Array:
        """The change of a row by one of its entries, in units of ``mu``, shape (m,)."""
        return self.weight * np.where(self.i == self.j, 1.0, 0.5) / self._mu

    def data(self) -> LassoData:
        """Return ``S`` and the penalties."""
        block, bounds = self.program.blocks[0], self.program.bounds
        assert block.nearness is not None
        divergence: Any = divergence_of(block.nearness)
        penalty = np.zeros((block.n, block.n))
        paid = np.where(bounds.hard, np.inf, bounds.gamma * np.abs(self._share))
        penalty[self.i, self.j] = penalty[self.j, self.i] = paid
        return LassoData(block.C / self._mu + divergence.inverse, penalty)

    def solve(self, tol: float, limit: int | None, start: Start | None, progress: Progress) -> Answer:
        """Return the answer in the terms of the program."""
        from bregopt.routes.graphical_lasso.solve import solve_lasso  # only those with such a program wait

        data, program = self.data(), self.program
        X0 = None if start is None or not start.X else np.asarray(start.X[0])
        if X0 is not None:
            X0 = np.where(np.isinf(data.penalty), 0.0, X0)
        constant = self._constant(data)

        def restated(n: int, primal: float, dual: float, evaluation_error: float = 0.0) -> Certificate:
            values = self._mu * primal + constant, self._mu * dual + constant
            error = abs(values[0] - values[1]) + self._mu * evaluation_error
            gap = error / objective_size(program, *values) if np.isfinite(error) else np.inf
            return Certificate(*values, gap, 0.0, 0.0, error)

        found = solve_lasso(data, tol, limit, progress, X0, restated)
        y = -found.U[self.i, self.j] / self._share
        return Answer(
            (found.X,), np.zeros(0), program.bounds.clip(y), found.stop, found.iterations, citation=_CITATION
        )

    def _constant(self, data: LassoData) -> float:
        """Return the difference of the program's objective and ``mu`` times that of `data`."""
        nearness = self.program.blocks[0].nearness
        assert nearness is not None
        X, mu = np.asarray(nearness.X0), nearness.mu
        own = self.program.blocks[0].cost_value(X) + mu * divergence_of(nearness).value(X)
        return own - mu * data.loss(X) + self.program.offset


def as_lasso(program: Program) -> LassoProgram | None:
    """Return the program as a sparse inverse covariance problem, None if it is not one.

    It is one if it has one matrix with a LogDet term, no ordinary variable, and each row equates a different
    entry to zero: softly with a hinge, or, off the diagonal, exactly.
    """
    bounds = program.bounds
    if len(program.blocks) != 1 or program.k or program.m == 0 or bounds.lo.any() or bounds.hi.any():
        return None
    block = program.blocks[0]
    if block.nearness is None or block.nearness.kind is not LogDet or block.cap is not None:
        return None
    if bounds.penalties or not all(term.rows.single for term in program.A.terms):
        return None
    i, j, weight = np.zeros(program.m, np.intp), np.zeros(program.m, np.intp), np.zeros(program.m)
    for term in program.A.terms:
        own, rows = term.rows.coordinates(), np.arange(program.m)[term.at]
        i[rows[own.row]], j[rows[own.row]], weight[rows[own.row]] = own.i, own.j, own.value
    diagonal: Mask = i == j
    distinct = len(np.unique(np.minimum(i, j) * block.n + np.maximum(i, j))) == program.m
    if not distinct or not weight.all() or (diagonal & bounds.hard).any():
        return None
    hinge = bounds.kind == int(Penalty.HINGE)
    return LassoProgram(program, i, j, weight) if (hinge | bounds.hard).all() else None
