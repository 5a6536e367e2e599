"""Bounds on partitions by relaxations with rows that all partitions satisfy, generated where violated.

Of a partition in ``k`` parts, ``X_ij`` is 1 if ``i`` and ``j`` share a part and ``-1/(k-1)`` if not, or 0 if
any number of parts is allowed. So ``X_ij >= -1/(k-1)``, and ``X_ij + X_im - X_jm <= 1``: if ``i`` shares its
part with ``j`` and with ``m``, they share it, too. In two parts also ``X_ij + X_im + X_jm >= -1``. There are
too many rows to write them all down. The relaxation with some of them is

    max <C, X>   with   X psd,   diag X = e,   the rows,   lo <= e'Xe <= hi

Its multipliers are improved as those of clique inequalities are, and any of them prove a bound: as ``X`` has
the trace ``n``, an eigenvalue ``lambda`` of ``M`` costs ``n lambda`` at most.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt import clock
from bregopt.arrays import TINY, Array, IntArray
from bregopt.certify import Certificate
from bregopt.clock import CutShort, checkpoint, threads_for
from bregopt.io.graphs import Graph
from bregopt.problems.cuts.branch_and_bound.clique_inequalities import (
    DROPPED,
    SLACK,
    Dual,
    triangles,
    unknown,
)
from bregopt.problems.cuts.proof import TOL, Proof, unrelaxed
from bregopt.program import StopReason
from bregopt.records import replace
from bregopt.rigorous.ball import Ball, gamma, inflated, up
from bregopt.rigorous.linear_algebra import least_eigenvalue
from bregopt.routes.progress import Step, digits_bar, reason
from bregopt.routes.solution import Solution

LARGEST_ORDER = 500  # of graphs for which rows are generated
_ROWS = 5  # of a round, relative to the vertices
_VIOLATED = 0.01  # by which a row is violated at least
_STEPS = 100  # of L-BFGS-B in a round; with 50 bounds of three parts stay 5 % lower
_SHRINK, _SHARE = 0.7, 0.01  # of alpha n^2 / 2, as for clique inequalities
_MOST_ROUNDS = 10**6
_PATIENCE, _GAIN = 5, 0.05  # the least gain of so many rounds, relative to the distance of the cut
_MARGIN = 1e-9  # of a bound in floating point, for its rounding errors, relative to all weights
_LEAST = 1e-10  # distance of bound and cut at a vertex, in units of the largest weight
_HISTORY = ("iteration", "value", "bound", "gap", "primal_residual", "seconds")
_STALLED = "More rounds of generated rows would hardly bring the bound nearer to the cut."
_PROVEN = "The bound proves that no partition is better."


class Rows(NamedTuple):
    """Rows ``sum c_pq X_pq + constant >= 0`` on the pairs ``ij``, ``im``, ``jm`` of triples.

    Parameters
    ----------
    vertices : int array of shape (rows, 3)
        Ascending; the last two are equal where only ``X_ij`` occurs.
    signs : int array of shape (rows, 3)
        The coefficients.
    """

    vertices: IntArray
    signs: IntArray

    @classmethod
    def violated(cls, X: Array, k: float) -> Rows:
        """Return the rows that a matrix violates most, for `k` parts; infinite stands for any number."""
        most = _ROWS * len(X)
        _, triples, signs = triangles(X, most, _VIOLATED, both=k == 2)
        found = [cls(triples.T, -signs.T.astype(np.intp))]
        if k > 2:
            i, j = np.triu_indices(len(X), 1)
            at = np.flatnonzero(X[i, j] < -1 / (k - 1) - _VIOLATED)
            at = at[np.argsort(X[i[at], j[at]], kind="stable")[:most]]
            found.append(
                cls(np.array([i[at], j[at], j[at]]).T, np.eye(1, 3, dtype=np.intp).repeat(len(at), 0))
            )
        return cls(*(np.concatenate(part) for part in zip(*found, strict=True)))

    def matrix(self, n: int) -> Any:
        """Return the coefficients, a csr_array on the entries of an upper triangle of shape (n, n)."""
        i, j, m = self.vertices.T
        place = np.array([i * n + j, i * n + m, j * n + m]).T
        row = np.repeat(np.arange(len(place)), 3)
        return sp.csr_array((self.signs.ravel().astype(float), (row, place.ravel())), (len(place), n * n))

    def constants(self, k: float) -> Array:
        """Return the constants for `k` parts."""
        return np.where(self.signs[:, 1] == 0, 1 / (k - 1), 1.0)


class _Relaxation:
    """The relaxation of a graph's partitions, in units of its largest coefficient."""

    def __init__(self, graph: Graph, k: float, spread: tuple[float, float] | None, largest: bool) -> None:
        factor = (1 - 1 / k) * (1.0 if largest else -1.0)
        W = graph.adjacency.toarray()
        self.n, self.k = graph.n, k
        self.size = 2.0 ** math.frexp(float(np.abs(W).max()) or 1.0)[1]
        self.C = -factor / 2 * (W / self.size)
        # All weights are cut where X is -1/(k-1) off the diagonal.
        self.terms = factor * (sp.triu(graph.adjacency).tocoo().data / self.size)
        # The row on the sizes of the parts is divided by n, so that its norm is that of a row of a triangle.
        n = graph.n
        every = np.where(np.tri(n, dtype=bool), 0.0, 2.0) + np.eye(n)
        self.sizes = sp.csr_array(np.array([-every.ravel(), every.ravel()]) / n if spread else (0, n * n))
        self.ends = np.array([spread[1], -spread[0]]) / n if spread else np.zeros(0)

    def dual(self, rows: Rows, seen: Callable[[float, Array, Array], None]) -> Dual:
        """Return the program with some rows. Multipliers of the sizes come first."""
        T = sp.csr_array(sp.vstack([self.sizes, rows.matrix(self.n)]))
        return Dual(self.C, T, np.concatenate([self.ends, rows.constants(self.k)]), seen)

    def proven(self, rows: Rows, y: Array, z: Array) -> float:
        """Return the bound of multipliers in these units, with all rounding errors."""
        z = np.maximum(z, 0.0)
        dual = self.dual(rows, lambda *_: None)
        M, size = dual.matrix(y, z), abs(dual.T).T @ z
        half = size.reshape(M.shape) / 2
        size = np.abs(self.C) + np.diag(np.abs(y)) + half + half.T
        count = int(np.diff(sp.csc_array(dual.T).indptr).max(initial=0))
        top = -self.n * least_eigenvalue(Ball(-M, inflated(gamma(count + 8) * size)))
        terms = np.concatenate([y, z * dual.constants, self.terms])
        base = math.fsum(terms.tolist())
        return up(up(base + inflated(gamma(8) * math.fsum(np.abs(terms)))) + up(top))


def tightened(
    graph: Graph,
    k: float,
    spread: tuple[float, float] | None,
    proof: Proof,
    best: Callable[[], IntArray],
    options: Mapping[str, Any],
    improve: Callable[[Array], None] = lambda X: None,
) -> Solution:
    """Return the answer to a relaxation with generated rows, and add its bound to the proof.

    Parameters
    ----------
    graph : Graph
    k : int or infinity
        The number of parts; infinite where any number is allowed.
    spread : pair of float, optional
        Bounds on ``e'Xe``.
    proof : Proof
    best : function
        Returns the best partition so far.
    options : dict
        ``progress``, ``verbose``, ``callback`` and ``max_iter``, of rounds.
    improve : function of a matrix
        Called with the ``X`` of the second round, to find a better cut.
    """
    rounds = _Rounds(_Relaxation(graph, k, spread, proof.largest), proof, best, options)
    shown = bool(options.get("progress"))
    with digits_bar("bound", TOL, shown) as bar, clock.stoppable(), threads_for(graph.n):
        stop = rounds.run(bar, improve)
    return rounds.answer(stop)


class _Rounds:
    """Rounds of rows, and the best multipliers so far."""

    def __init__(
        self,
        relaxation: _Relaxation,
        proof: Proof,
        best: Callable[[], IntArray],
        options: Mapping[str, Any],
    ) -> None:
        self._of, self._proof, self._best, self._options = relaxation, proof, best, options
        self._unit = relaxation.size if proof.largest else -relaxation.size
        self._constant = math.fsum(relaxation.terms)
        self._rows = Rows(*(np.zeros((0, 3), dtype=np.intp),) * 2)
        self._bound, self._begin = math.inf, time.perf_counter()
        self._steps: list[Step] = []
        self._kept = self._rows, np.zeros(relaxation.n), np.zeros(len(relaxation.ends))
        proof.proven_by(lambda: self._unit * relaxation.proven(*self._kept))

    def run(self, bar: Callable[[Step], None] | None, improve: Callable[[Array], None]) -> str:
        """Take rounds, until they prove the cut or gain too little; return why they ended."""
        n, fixed = self._of.n, len(self._of.ends)
        y, z = np.full(n, np.linalg.norm(self._of.C, 2)), np.zeros(fixed)
        dual = self._of.dual(self._rows, self._seen)
        dual.evaluate(np.concatenate([y, z]), 1.0)
        self._record(0, dual, bar)
        level, distances = self._distance, [self._distance]
        try:
            for number in range(1, 1 + (self._options.get("max_iter") or _MOST_ROUNDS)):
                if self._proof.decides(self._proof.bound, self._best(), _MARGIN):
                    return _PROVEN
                if number > _PATIENCE and distances[-1] > (1 - _GAIN) * distances[-1 - _PATIENCE]:
                    return _STALLED
                checkpoint(n)
                y, z = dual.improved(y, z, 2 * level / n**2, _STEPS)
                self._record(number, dual, bar)
                X, slack = dual.slacks()
                if number == 2:
                    improve(X)
                distances.append(self._distance)
                checkpoint()
                useful = np.flatnonzero((z[fixed:] > DROPPED) | (slack[fixed:] < SLACK))
                kept, new = Rows(*(part[useful] for part in self._rows)), Rows.violated(X, self._of.k)
                fresh = unknown(np.hstack(kept), np.hstack(new))
                self._rows = Rows(*(np.concatenate([a, b[fresh]]) for a, b in zip(kept, new, strict=True)))
                z = np.concatenate([z[:fixed], z[fixed:][useful], np.zeros(len(fresh))])
                dual = self._of.dual(self._rows, self._seen)
                level = max(_SHRINK * level, min(level, _SHARE * self._distance))
        except CutShort as cut:
            return reason(cut)
        return StopReason.MAX_ITER

    def answer(self, stop: str) -> Solution:
        """Return the last state."""
        end = self._steps[-1]
        certificate = Certificate(end.value, end.bound, end.gap, end.primal_residual, 0.0, end.gap)
        history = {name: np.array([getattr(step, name) for step in self._steps]) for name in _HISTORY}
        return replace(
            unrelaxed(end.bound),
            status=certificate.status(TOL, StopReason.INACCURATE).value,
            stop_reason=stop,
            X=self._X,
            value=end.value,
            gap=end.gap,
            primal_residual=end.primal_residual,
            dual_residual=0.0,
            error=abs(end.value - end.bound),
            iterations=end.iteration,
            solver="generated rows",
            history=history,
        )

    @property
    def _distance(self) -> float:
        """The distance of bound and cut, but no less than round-off of the bound."""
        return max(self._proof.distance(self._best()) / self._of.size, _LEAST * self._of.n)

    def _seen(self, bound: float, y: Array, z: Array) -> None:
        """Keep the best multipliers."""
        if bound + self._constant < self._bound:
            self._bound, self._kept = bound + self._constant, (self._rows, y, z.copy())

    def _record(self, number: int, dual: Dual, bar: Callable[[Step], None] | None) -> None:
        """Add the bound to the proof, and show it."""
        self._X, slack = dual.slacks()
        self._proof.add(self._unit * self._bound)
        value = self._unit * (self._constant + float(np.vdot(self._of.C, self._X)))
        bound, seconds = self._proof.bound, time.perf_counter() - self._begin
        gap = abs(bound - value) / max(abs(bound), abs(value), TINY)
        self._steps.append(Step(number, value, bound, gap, float(-slack.min(initial=0.0)), 0.0, seconds))
        if self._options.get("verbose"):
            sys.stdout.write(f"{seconds:9.2f} s  {len(slack)} rows  bound {bound:.8g}\n")
        if bar is not None:
            bar(self._steps[-1])
        callback = self._options.get("callback")
        if callback is not None and callback(self._steps[-1]):
            clock.end()
