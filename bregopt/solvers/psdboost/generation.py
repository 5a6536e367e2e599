"""Matrix generation (Shen et al. 2008, Algorithm 1), for the general problem.

Each round solves the master over the directions found so far, and asks the oracle for directions ``v``
with ``v'(A*(y) - C) v > 0`` at its multipliers ``y``: they would lower the objective. For any ``y`` the
oracle's largest eigenvalue gives a bound on the optimum; the best one is kept with its ``y``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.program import Certificate, Program, certify, is_farkas, trace_bound
from bregopt.solvers.base import Answer, Start
from bregopt.solvers.progress import Progress
from bregopt.solvers.psdboost.master import Master, Outcome, State
from bregopt.solvers.psdboost.oracle import leading_directions
from bregopt.solvers.solution import StopReason

__all__ = ["ROUNDS", "matrix_generation"]

ROUNDS = 5_000  # the limit where the user gives none
_PROMISE = 1e-11  # reduced costs below this fraction of the size of A*(y) - C are round-off


def matrix_generation(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a linear problem over one matrix of bounded trace.

    Parameters
    ----------
    program : Program
        One block with a bound on its trace, linear objective, hard and hinge rows.
    settings : PSDBoostSettings
    """
    return _Generation(program, settings, progress).run(start)


class _Generation:
    """The state of one run: the master, the feasible point and the best multipliers so far."""

    def __init__(self, program: Program, settings: Any, progress: Progress) -> None:
        self._program, self._settings, self._progress = program, settings, progress
        bound = trace_bound(program, 0)
        assert bound is not None
        self._tau = bound.value
        self._n = program.blocks[0].n
        self._X: Array = (self._tau / self._n) * np.eye(self._n)
        self._u = np.clip(np.zeros(program.k), program.u_lo, program.u_hi)
        self._y = np.zeros(program.m)
        self._dual = -np.inf

    def run(self, start: Start | None) -> Answer:
        """Return the answer; interrupted or out of time, the best point and bound so far."""
        round_, limit = 0, self._settings.max_iter or ROUNDS
        try:
            master = Master(self._program, self._tau)
            self._begin(master, start)
            while round_ < limit:
                round_ += 1
                outcome = master.solve(self._progress.remaining())
                stop = self._advance(master, outcome, round_)
                if stop is StopReason.INFEASIBLE:
                    return Answer((self._X,), self._u, outcome.y, stop, round_)
                if stop is StopReason.UNBOUNDED:
                    return Answer((np.zeros_like(self._X),), outcome.u, self._y, stop, round_)
                if stop is not None:
                    return self._answer(stop, round_)
        except KeyboardInterrupt:
            return self._answer(StopReason.INTERRUPTED, round_)
        return self._answer(StopReason.MAX_ITER, round_)

    def _answer(self, stop: StopReason, round_: int) -> Answer:
        return Answer((self._X,), self._u, self._y, stop, round_)

    def _begin(self, master: Master, start: Start | None) -> None:
        """Give the master its first directions: of an earlier answer, or of uniform multipliers."""
        y = _uniform(self._program)
        if start is not None:
            y = self._program.bounds.clip(start.y)
            self._offer(y)
            if start.X:
                eigenvalues, V = np.linalg.eigh(start.X[0])
                master.add(V[:, eigenvalues > 1e-9 * max(eigenvalues[-1], 1e-300)])
        master.add(leading_directions(self._promise(y), self._settings.cuts_per_round)[1])

    def _advance(self, master: Master, outcome: Outcome, round_: int) -> StopReason | None:
        if outcome.state is State.INFEASIBLE:
            return self._repair(master, outcome.y)
        if outcome.state is State.UNBOUNDED:
            return StopReason.UNBOUNDED
        if outcome.state is State.CUT_SHORT:
            return StopReason.TIME_LIMIT
        if outcome.state is State.FAILED:
            return StopReason.STALLED
        V = master.directions
        self._X, self._u = self._tau * (V * outcome.theta) @ V.T, outcome.u
        found = self._price(master, outcome.y)
        certificate = self._certificate()
        self._progress.record(round_, certificate, directions=V.shape[1])
        if certificate.meets(self._settings.tol):
            return StopReason.CONVERGED
        if self._progress.out_of_time():
            return StopReason.TIME_LIMIT
        return None if found else StopReason.STALLED

    def _price(self, master: Master, y: Array) -> bool:
        """Add directions that pay at the master's multipliers; False where none does.

        They are sought at smoothed multipliers first, whose bound is better and whose directions last
        longer; where none of those pays at the master's own multipliers, at these.
        """
        own = self._promise(y)
        weight = self._settings.smoothing if np.isfinite(self._dual) else 0.0
        for point in ([weight * self._y + (1 - weight) * y] if weight else []) + [y]:
            H = own if point is y else self._promise(point)
            _, V = leading_directions(H, self._settings.cuts_per_round)
            self._offer(point)
            pays = np.einsum("ik,ij,jk->k", V, own, V) > _PROMISE * np.linalg.norm(own)
            if pays.any():
                master.add(V[:, pays])
                return True
        return False

    def _repair(self, master: Master, y: Array) -> StopReason | None:
        """Add directions that break the master's proof of infeasibility (Farkas pricing)."""
        if is_farkas(self._program, y):
            return StopReason.INFEASIBLE
        H = self._program.A.adjoint(y)
        values, V = leading_directions(H, self._settings.cuts_per_round)
        pays = values > _PROMISE * np.linalg.norm(H)
        if not pays.any():
            return StopReason.STALLED
        master.add(V[:, pays])
        return None

    def _offer(self, y: Array) -> None:
        """Keep multipliers whose bound is the best so far."""
        dual = certify(self._program, (self._X,), self._u, y).dual
        if dual > self._dual:
            self._dual, self._y = dual, y

    def _certificate(self) -> Certificate:
        return certify(self._program, (self._X,), self._u, self._y)

    def _promise(self, y: Array) -> Array:
        """Return ``A*(y) - C``, in which a direction pays if its quadratic form is positive."""
        H: Array = self._program.A.adjoint(y) - self._program.blocks[0].C
        return H


def _uniform(program: Program) -> Array:
    """Return multipliers of equal weight for every row, on the side on which it has a bound."""
    norms = program.A.norms()
    side = np.where(np.isfinite(program.bounds.lo), 1.0, -1.0)
    weight = side / np.where(norms > 0, norms, 1.0)
    return program.bounds.clip(weight / max(program.m, 1))
