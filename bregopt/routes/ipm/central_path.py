"""Mehrotra's predictor and corrector on the central path of a semidefinite program, with log-determinants.

At each step the same factorized system gives a predictor, towards ``mu = 0``, and a corrector, towards
``sigma mu``. The step length of the predictor determines ``sigma``; the corrector includes its second-order
terms (HKM direction; Helmberg, Rendl, Vanderbei, Wolkowicz 1996; Todd, Toh, Tütüncü 1998). Each point of the
path solves a LogDet nearness problem at ``mu`` (Kulis et al. 2009, §6.4). A matrix with a LogDet term of its
own keeps ``X Z = w I`` at the weight ``w`` of that term, while ``mu`` vanishes for the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.linalg import symmetrize
from bregopt.program import Answer, Block, Program, Start, StopReason, pays
from bregopt.program.anchor import divergence_of
from bregopt.rigorous.refutation import recedes
from bregopt.routes.ipm.groups import split
from bregopt.routes.ipm.iterate import Iterate
from bregopt.routes.ipm.linear_solvers import DefiniteFactor
from bregopt.routes.ipm.primal_dual import PrimalDual
from bregopt.routes.ipm.start import first_iterate, warm_iterate
from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.monitor import Followed, Method, Monitor
from bregopt.routes.progress import Progress

__all__ = ["follow_path"]


def follow_path(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a semidefinite program, each matrix on its face.

    Parameters
    ----------
    program : Program
        Without divergences but LogDet's.
    settings : Settings
        Its tuning is an :class:`InteriorPointTuning`.
    start : Start, optional
    progress : Progress
    """
    tuning: InteriorPointTuning = settings.tuning
    C, weights = zip(*map(_with_barrier, program.blocks), strict=True)
    engine = PrimalDual(program, C, tuning, program.faces, direct=True, weights=weights)
    at = None if start is None else warm_iterate(engine, program, start, tuning)
    if at is None:
        at = first_iterate(engine, program, tuning)
    method = _CentralPath(engine, program, settings, progress)
    monitor = Monitor(program, settings, progress, tuning.path_share)
    found = monitor.follow(method, at, settings.max_iter or tuning.steps)
    return found.proof or method.answer(found)


class _CentralPath(Method):
    tests_multipliers = False

    def __init__(self, engine: PrimalDual, program: Program, settings: Any, progress: Progress) -> None:
        self._engine, self._program = engine, program
        self._settings, self._progress = settings, progress
        self._tuning: InteriorPointTuning = settings.tuning
        self.patience = self._tuning.stall_steps
        self._has_no_objective = not pays(program)
        self._inner: Answer | None = None

    def certificate(self, at: Iterate) -> Certificate:
        X, y = self._engine.matrices(at), 0 * at.y if self._has_no_objective else at.y
        least = 0.0 if self._has_no_objective or _dual_feasible(at) else -at.dual_residual
        smallest = tuple(0.0 if block.nearness else least for block in self._program.blocks)
        known = Known(activity=at.activity, cone_residual=0.0, smallest_eigenvalues=smallest)
        if len(at.pairs) < len(X):  # one pass over the groups instead of one over the blocks
            arrays = [pair.X for pair in at.pairs]
            known |= Known(
                magnitudes=self._engine.magnitudes(arrays),
                traces=self._engine.traces(arrays),
            )
        certificate = certify(PrimalDualPoint(self._program, X, at.u, y, **known))
        if self._inner is None and certificate.meets(self._tuning.inner_error):
            self._inner = Answer(X, at.u, y, StopReason.CONVERGED, 0)
        return certificate

    def advance(self, at: Iterate) -> Iterate | None:
        return self._engine.advance(at)

    def fall_back(self) -> bool:
        in_rows = self._engine.in_rows()
        self._engine = in_rows or self._engine
        return in_rows is not None

    def columns(self, at: Iterate) -> dict[str, float]:
        pairs = [g for g, group in enumerate(self._engine.groups) if not group.weight]
        mu = at.complementarity(pairs) / max(at.order(pairs), 1)
        return {"mu": mu, "order": self._engine.order}

    def settled(self, at: Iterate) -> bool:
        return self._progress.settles(self.answer(Followed(at, StopReason.CONVERGED, 0)), self._settings.tol)

    def answer(self, found: Followed) -> Answer:
        """Return the answer at the best point of the path."""
        at = found.at
        y = 0 * at.y if self._has_no_objective else at.y
        return Answer(self._engine.matrices(at), at.u, y, found.stop, found.step, inner=self._inner)

    def diverges(self, at: Iterate) -> bool:
        return self._dual_diverges(at) or self._primal_diverges(at)

    def proof(self, at: Iterate, before: Array, certificate: Certificate, step: int) -> Answer | None:
        """Return a Farkas vector or a ray if the iterates diverge along one."""
        program, tol = self._program, self._settings.tol
        if certificate.primal_residual > tol and self._dual_diverges(at):
            # A Farkas vector does not depend on the costs, which cancel in the difference of two iterates.
            for direction in (at.y, at.y - before):
                y = self._diverging_multipliers(direction)
                if self._progress.contradicts(program, y):
                    return Answer.without_point(program, y, StopReason.INFEASIBLE, step)
        decreases = certificate.primal < program.offset
        no_bound = certificate.dual_residual > tol or certificate.dual == -np.inf
        if no_bound and decreases and self._primal_diverges(at):
            X, u = self._ray(at)
            if all(np.isfinite(part).all() for part in (*X, u)) and recedes(program, X, u):
                return Answer(X, u, np.zeros(program.m), StopReason.UNBOUNDED, step)
        return None

    def _diverging_multipliers(self, y: Array) -> Array:
        """Return the multipliers that diverge, with zero for the others."""
        size = np.abs(y) * self._program.row_sizes
        least = self._tuning.farkas_least_multiplier * size.max(initial=0.0)
        return np.where(size > least, y, 0.0)

    def _dual_diverges(self, at: Iterate) -> bool:
        """Whether ``y`` is far larger than the costs, which ``A*(y)`` and ``B'y`` should be close to."""
        largest = float(np.abs(at.y) @ self._program.row_sizes)
        costs = [float(np.linalg.norm(self._program.c)), *(group.cost_norm for group in self._engine.groups)]
        residuals = [0.0 if p.residual is None else float(np.linalg.norm(p.residual)) for p in at.pairs]
        return max(costs) + max(residuals) < self._tuning.dual_divergence * largest

    def _primal_diverges(self, at: Iterate) -> bool:
        """Whether ``X`` or ``u`` is far larger than the bounds of the rows."""
        variables = np.abs(at.u) * self._program.column_sizes
        largest = max(float(variables.max(initial=0.0)), *(float(p.traces.max()) for p in at.pairs))
        return self._program.bound_scale < self._tuning.primal_divergence * largest

    def _ray(self, at: Iterate) -> tuple[tuple[Array, ...], Array]:
        """Return the direction of the iterate, corrected where it violates the rows of a ray.

        The correction is the least in the metric of the iterate. Matrices stay psd while it is small.
        """
        B, bounds, groups = self._program.B, self._program.bounds, self._engine.groups
        largest = max(float(np.abs(at.u).max(initial=0.0)), *(float(p.traces.max()) for p in at.pairs))
        least = self._tuning.ray_least_trace * largest
        X = [p.cone.weighted(p.X, (p.traces > least).astype(float)) for p in at.pairs]
        u = np.where(np.abs(at.u) > least, at.u, 0.0)
        activity = self._engine.activity(X, u)
        violation = np.where(np.isfinite(bounds.hi), np.maximum(activity, 0.0), 0.0)
        violation += np.where(np.isfinite(bounds.lo), np.minimum(activity, 0.0), 0.0)
        H = (B @ sp.diags_array(u**2) @ B.T).toarray()
        for group, X_g in zip(groups, X, strict=True):
            H += group.rows.schur(X_g, X_g)
        w = DefiniteFactor(H, self._tuning).solve(violation)
        corrected = [X_g - X_g @ group.rows.adjoint(w) @ X_g for group, X_g in zip(groups, X, strict=True)]
        return split(groups, [symmetrize(X_g) for X_g in corrected]), u - u**2 * (B.T @ w)


def _with_barrier(block: Block) -> tuple[Array, float]:
    """Return ``C`` and ``w`` of the terms ``<C, X> - w logdet X`` of a block, constants apart."""
    if block.nearness is None:
        return block.C, 0.0
    divergence: Any = divergence_of(block.nearness)
    return block.C + block.nearness.mu * divergence.inverse, block.nearness.mu


def _dual_feasible(at: Iterate) -> bool:
    """Whether ``C - A*(y)`` is positive definite, even if ``Z`` differs from it."""
    slacks = ((p.cone, p.Z + p.residual) for p in at.pairs if p.residual is not None)
    return all(cone.root(Z) is not None for cone, Z in slacks)
