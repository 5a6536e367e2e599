"""The proximal point method: matrices without a divergence beside others that have one.

Each step adds ``mu ||Z - Z_k||^2`` for the matrices ``Z`` without a divergence, and solves the problem by the
methods for divergences; its answer is ``Z_{k+1}``. The multipliers of its rows are those of an augmented
Lagrangian method: as ``Z_k`` converges they become optimal, and the certificate is about the problem without
the added term (Rockafellar 1976, Augmented Lagrangians and applications of the proximal point algorithm in
convex programming, Math. Oper. Res. 1). As ``mu`` decreases, convergence is superlinear.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.program import Answer, Block, Nearness, Program, Start, StopReason
from bregopt.program.program import divergence_of
from bregopt.records import dataclass, replace
from bregopt.routes import base
from bregopt.routes.progress import Method, Monitor, Progress

# First weight of the proximal term of a matrix without a divergence, relative to the divergences.
_FIRST_WEIGHT = 0.1
# Factor of that weight from step to step. With a small one Newton's method takes more steps.
_WEIGHT_DECREASE = 0.3
# Tolerance of each step, relative to that of the answer.
_STEP_TOL = 0.1
# Limit on the proximal steps where the option `max_iter` gives none.
_STEPS = 100
# Proximal steps without a better certificate after which the method has stalled.
_PATIENCE = 8

# The multipliers that make slacks psd need not be exact: their least eigenvalue only has to be positive.
_INWARD_TOL, _INWARD_STEPS, _LEAST_INWARD = 1e-3, 50, 0.1
_NOISE = 1e-13  # round-off of the eigenvalues of a slack, relative to the largest


def with_proximal_terms(program: Program, at: tuple[Array, ...] | None = None, mu: float = 1.0) -> Program:
    """Return the program with ``mu ||Z - Z_k||^2`` for matrices without a divergence; ``Z_k`` is in `at`."""
    if None not in program.divergences:
        return program

    def with_term(b: int, block: Block) -> Block:
        if block.nearness is not None:
            return block
        Z = np.zeros((block.n, block.n)) if at is None else at[b]
        return replace(block, nearness=Nearness("frobenius", Z, mu))

    return replace(program, blocks=tuple(with_term(b, block) for b, block in enumerate(program.blocks)))


@dataclass(frozen=True, eq=False)
class _Point:
    """Matrices and multipliers of the rows; the weight of the term that gave them."""

    X: tuple[Array, ...]
    y: Array
    mu: float


def proximal(solve: base.Method) -> base.Method:
    """Return a method for programs with some divergence from one for programs with a divergence each."""

    def run(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        return _Proximal(program, settings, progress, solve).run(start)

    return run


class _Proximal(Method):
    tests_multipliers = False

    def __init__(self, program: Program, settings: Any, progress: Progress, solve: base.Method) -> None:
        self._program, self._settings, self._progress, self._solve = program, settings, progress, solve
        self.patience = _PATIENCE
        self._proof: Answer | None = None
        self._inward = _inward(program)

    def run(self, start: Start | None) -> Answer:
        """Return the answer; after an interrupt or at the time limit it is the best point."""
        orders = [block.n for block in self._program.blocks]
        X = tuple(np.zeros((n, n)) for n in orders)
        if start is not None and start.X:
            X = tuple(np.asarray(part) for part in start.X)
        y = np.zeros(self._program.m) if start is None else self._program.bounds.clip(start.y)
        first = self._next(_Point(X, y, _FIRST_WEIGHT * self._unit()))
        if first is None:
            return self._proof or Answer(X, np.zeros(0), y, StopReason.STALLED, 0)
        limit = self._settings.max_iter or _STEPS
        loop = Monitor(self._program, self._settings, self._progress)
        at, stop, step, _ = loop.follow(self, first, limit, step=1)
        return self._proof or Answer(at.X, np.zeros(0), at.y, stop, step)

    def _unit(self) -> float:
        """Return the weight with which a term is as large as the divergences at their ``X0``."""
        given = [block for block in self._program.blocks if block.nearness is not None]
        sizes = [float(np.linalg.norm(np.asarray(_nearness(block).X0))) ** 2 for block in given]
        units = [_nearness(block).mu * divergence_of(_nearness(block)).unit for block in given]
        return sum(units) / max(sum(sizes), np.finfo(float).tiny)

    def certificate(self, at: _Point) -> Certificate:
        return certify(PrimalDualPoint(self._program, at.X, np.zeros(0), at.y))

    def advance(self, at: _Point) -> _Point | None:
        return self._next(replace(at, mu=at.mu * _WEIGHT_DECREASE))

    def _next(self, at: _Point) -> _Point | None:
        """Return the answer with a proximal term at a point, None if there is none."""
        posed = with_proximal_terms(self._program, at.X, at.mu)
        settings = replace(self._settings, tol=_STEP_TOL * self._settings.tol, max_iter=None)
        start = Start((), np.zeros(0), at.y) if at.y.any() else None
        answer = self._solve(posed, settings, start, Progress("a proximal step"))
        if answer.stop is StopReason.INFEASIBLE:
            self._proof = answer
            return None
        return _Point(tuple(answer.X), self._feasible(answer.y), at.mu)

    def _feasible(self, y: Array) -> Array:
        """Return multipliers that leave matrices without a divergence psd slacks, if there are some.

        The slacks of `y` are psd with the proximal term, so that they miss by the order of its gradient.
        """
        if self._inward is None:
            return y
        program, length = self._program, 0.0
        for (b, block), inside in zip(_linear(program), self._inward.least, strict=True):
            slack = np.linalg.eigvalsh(block.C - program.A.adjoint(y, b))
            noise = _NOISE * float(np.abs(slack).max())
            length = max(length, (noise - float(slack[0])) / inside)
        return y + length * self._inward.y


@dataclass(frozen=True, eq=False)
class _Inward:
    """Multipliers with a definite ``-A*(y)`` in blocks without a divergence, and its least eigenvalues."""

    y: Array
    least: list[float]


def _inward(program: Program) -> _Inward | None:
    """Return multipliers of equalities with ``-A*(y)`` nearest to the identities; None if not definite."""
    from scipy.sparse.linalg import LinearOperator, cg  # loads slowly

    linear, equal = dict(_linear(program)), np.flatnonzero(program.bounds.equal)
    zero = [np.zeros((block.n, block.n)) for block in program.blocks]

    def normal(v: Array) -> Array:
        y = _embedded(v, equal, program.m)
        slopes = [program.A.adjoint(y, b) if b in linear else zero[b] for b in range(len(zero))]
        return program.A.apply(slopes)[equal]

    identity = [np.eye(block.n) if b in linear else zero[b] for b, block in enumerate(program.blocks)]
    square = LinearOperator((len(equal),) * 2, matvec=normal, dtype=float)
    v, _ = cg(square, -program.A.apply(identity)[equal], rtol=_INWARD_TOL, maxiter=_INWARD_STEPS)
    y = _embedded(v, equal, program.m)
    least = [float(np.linalg.eigvalsh(-program.A.adjoint(y, b))[0]) for b in linear]
    return _Inward(y, least) if min(least) > _LEAST_INWARD else None


def _linear(program: Program) -> list[tuple[int, Block]]:
    """Return the blocks without a divergence with their numbers."""
    return [(b, block) for b, block in enumerate(program.blocks) if block.nearness is None]


def _embedded(v: Array, at: IntArray, m: int) -> Array:
    y = np.zeros(m)
    y[at] = v
    return y


def _nearness(block: Block) -> Nearness:
    assert block.nearness is not None
    return block.nearness
