"""Cyclic projection for the squared Frobenius distance: Hildreth on the rows, Dykstra with the psd cone.

The dual is maximized in two blocks: the multipliers of the rows for a fixed multiplier ``S`` of ``X psd``
(Hildreth's coordinate ascent), then ``S``, by one eigendecomposition. Rows with orthogonal matrices are
independent; they move together as arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.clock import checkpoint
from bregopt.divergences import psd_part
from bregopt.program import Answer, Bounds, Penalty, Program, Start, StopReason
from bregopt.records import dataclass
from bregopt.rigorous.refutation import contradicts
from bregopt.routes.monitor import Method, Monitor
from bregopt.routes.progress import Progress
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["dykstra_hildreth"]


def dykstra_hildreth(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a squared Frobenius problem in one block by cyclic projection.

    Parameters
    ----------
    program : Program
        One block with an unweighted Frobenius term, no ordinary variables.
    """
    limit = settings.max_iter or settings.tuning.cycle_limit
    method = _Dykstra(program, settings.tuning, start, limit)
    found = Monitor(program, settings, progress).follow(method, method.first, limit)
    return found.proof or _answer(found.at, found.at.y, found.stop, found.step)


@dataclass(frozen=True, eq=False)
class _Point:
    """Multipliers, and the psd matrix that minimizes the Lagrangian."""

    y: Array
    X: Array


def _answer(at: _Point, y: Array, stop: StopReason, step: int) -> Answer:
    return Answer((at.X,), np.zeros(0), y, stop, step)


class _Dykstra(Method):
    """The rounds: the rows by Hildreth's method, then the cone."""

    tests_multipliers = False
    keeps_best = False

    def __init__(self, program: Program, tuning: ProjectionTuning, start: Start | None, limit: int) -> None:
        self._program, self._tuning, self._limit = program, tuning, limit
        (block,) = program.blocks
        assert block.nearness is not None
        self._mu = block.nearness.mu
        self._center = np.asarray(block.nearness.X0) - block.C / (2 * self._mu)
        self._rows = _RowAscent(program, self._mu, tuning)
        self.first = self._point(np.zeros(program.m) if start is None else program.bounds.clip(start.y))
        self._tested = self.first.y

    def _point(self, y: Array) -> _Point:
        return _Point(y, psd_part(self._center + self._program.A.adjoint(y) / (2 * self._mu)))

    def certificate(self, at: _Point) -> Certificate:
        return certify(PrimalDualPoint(self._program, (at.X,), np.zeros(0), at.y))

    def advance(self, at: _Point) -> _Point:
        checkpoint(len(at.X))
        return self._point(self._rows.ascend(at.y, at.X))

    def proof(self, at: _Point, before: Array, certificate: Certificate, step: int) -> Answer | None:
        """Return the change of the multipliers over many rounds, if it is a Farkas vector."""
        if (step + 1) % self._tuning.farkas_rounds or step == self._limit:
            return None
        change, self._tested = at.y - self._tested, at.y
        suspected = certificate.primal_residual > self._tuning.farkas_residual
        if not (suspected and contradicts(self._program, change)):
            return None
        return _answer(at, change, StopReason.INFEASIBLE, step)


class _RowAscent:
    """Hildreth's method on the rows, in terms of their activities and Gram matrix."""

    def __init__(self, program: Program, mu: float, tuning: ProjectionTuning) -> None:
        self._program, self._mu, self._bounds = program, mu, program.bounds
        self._tuning = tuning
        self._gram = _gram(program)
        self._diagonal = np.asarray(self._gram.diagonal())
        self._groups = _orthogonal_groups(self._gram, np.flatnonzero(self._diagonal > 0))
        self._columns = [sp.csr_array(self._gram[:, group]) for group in self._groups]

    def ascend(self, y: Array, X: Array) -> Array:
        """Return better multipliers for a fixed multiplier of ``X psd``; `X` is their psd point."""
        y, activity = y.copy(), self._program.A.apply((X,))
        first = 0.0
        for number in range(self._tuning.hildreth_sweeps if len(self._groups) > 1 else 1):
            largest = 0.0
            for group, columns in zip(self._groups, self._columns, strict=True):
                new = coordinate_maxima(
                    y[group], activity[group], self._diagonal[group], self._bounds.slice(group), self._mu
                )
                step = new - y[group]
                y[group] = new
                activity += columns @ (step / (2 * self._mu))
                largest = max(largest, float(np.abs(step).max(initial=0.0)))
            first = largest if number == 0 else first
            if largest <= self._tuning.hildreth_decrease * first:
                break
        return y


def coordinate_maxima(y: Array, activity: Array, square: Array, bounds: Bounds, mu: float) -> Array:
    """Return the multipliers of orthogonal rows that maximize the dual function, all others fixed.

    Increasing a multiplier by ``2 mu alpha`` increases its activity by ``alpha square``; a squared penalty
    relaxes the bound by ``y / (2 gamma)``.
    """
    relaxation = np.where(bounds.kind == Penalty.SQUARE, 1 / bounds.gamma, 0.0)
    complementarity_diagonal = square + mu * relaxation
    lower, upper = bounds.dual_range()
    at_lo = y + 2 * mu * (bounds.lo - y * relaxation / 2 - activity) / complementarity_diagonal
    at_hi = y + 2 * mu * (bounds.hi - y * relaxation / 2 - activity) / complementarity_diagonal
    return np.clip(np.where(at_lo > 0, at_lo, np.where(at_hi < 0, at_hi, 0.0)), lower, upper)


def _gram(program: Program) -> Any:
    """Return the sparse matrix of the ``<A_k, A_l>``."""
    (block,) = program.blocks
    n, m = block.n, program.m
    total = sp.csr_array((m, n * n))
    for term in program.A.terms:
        t = term.rows.coordinates()
        row = np.concatenate([term.at[t.row]] * 2)
        cell = np.concatenate([t.i * n + t.j, t.j * n + t.i])
        total = total + sp.csr_array((np.concatenate([t.value, t.value]) / 2, (row, cell)), (m, n * n))
    return sp.csr_array(total @ total.T)


def _orthogonal_groups(gram: Any, rows: IntArray) -> list[IntArray]:
    """Return the rows in groups of mutually orthogonal rows (greedy coloring)."""
    color = np.full(gram.shape[0], -1)
    for k in rows:
        checkpoint()
        span = slice(gram.indptr[k], gram.indptr[k + 1])
        neighbors = gram.indices[span][gram.data[span] != 0]
        taken = set(color[neighbors].tolist())
        color[k] = next(c for c in range(len(taken) + 1) if c not in taken)
    return [np.flatnonzero(color == c) for c in range(int(color.max(initial=-1)) + 1)]
