"""LogDet problems whose rows fix entries: Newton's method on the pattern of a sparse ``X`` or ``Z``.

Two problems have this form, and each is the dual of the other. In the completion of largest determinant the
rows fix entries of ``X``, and ``Z = C - A*(y)`` is zero elsewhere. In covariance selection the rows are
``X_ij = 0``, and ``X`` is sparse itself. Both need the sparse matrix whose inverse is given on its pattern
(:mod:`bregopt.routes.projection.sparse_inverse`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.cache import cached_property
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.program import Answer, Program, StopReason
from bregopt.program.anchor import divergence_of
from bregopt.rigorous.refutation import contradicts, recedes
from bregopt.routes.ipm.logdet_problem import LogDetProblem
from bregopt.routes.monitor import Method, Monitor
from bregopt.routes.progress import Progress
from bregopt.routes.projection.sparse_inverse import Pattern, closed_form, newton_direction, tree_inverse
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["FixedEntries", "fixed_entries", "pattern_newton"]

_SINGULAR = "The given entries leave no positive definite matrix, or only nearly singular ones."
_NO_VARIABLES = np.zeros(0)


@dataclass(frozen=True, eq=False)
class FixedEntries:
    """A LogDet problem in one matrix whose rows fix entries of it.

    Parameters
    ----------
    program : Program
    pattern : Pattern
        Of the sparse matrix.
    i, j, weight : array of shape (m,)
        The rows ``weight X_ij``.
    C : array of shape (n, n)
        The linear term divided by ``mu``: the problem is ``min <C, X> - logdet X``.
    completes : bool
        Whether ``Z`` is the sparse matrix, otherwise ``X`` is.
    """

    program: Program
    pattern: Pattern
    i: IntArray
    j: IntArray
    weight: Array
    C: Array
    completes: bool

    @property
    def mu(self) -> float:
        """The weight of the divergence."""
        nearness = self.program.blocks[0].nearness
        assert nearness is not None
        return nearness.mu

    @cached_property
    def given(self) -> Array:
        """The matrix whose entries on the pattern the inverse of the sparse matrix has, shape ``(n, n)``."""
        if not self.completes:
            return self.C
        given = np.zeros_like(self.C)
        given[self.i, self.j] = given[self.j, self.i] = self.program.bounds.lo / self.weight
        return given

    def multipliers(self, Z: Array) -> Array:
        """Return ``y`` with ``C - A*(y) = mu Z`` where the rows are."""
        shares = np.where(self.i == self.j, 1.0, 2.0)
        y: Array = self.mu * (self.C - Z)[self.i, self.j] * shares / self.weight
        return y


def fixed_entries(program: Program, tuning: ProjectionTuning) -> FixedEntries | None:
    """Return a program in the form that :func:`pattern_newton` takes, None for another one."""
    single = program.m > 0 and all(term.rows.single for term in program.A.terms)
    if len(program.blocks) > 1 or program.k or not single or not program.bounds.equal.all():
        return None
    block = program.blocks[0]
    if block.nearness is None or not block.nearness.kind.barrier or block.cap is not None:
        return None
    i, j, weight = np.zeros(program.m, dtype=np.intp), np.zeros(program.m, dtype=np.intp), np.zeros(program.m)
    for term in program.A.terms:
        t = term.rows.coordinates()
        i[term.at], j[term.at], weight[term.at] = np.minimum(t.i, t.j), np.maximum(t.i, t.j), t.value
    on_diagonal, n = i == j, block.n
    divergence: Any = divergence_of(block.nearness)
    C = block.C / block.nearness.mu + divergence.inverse
    completes = (
        int(on_diagonal.sum()) == n and np.count_nonzero(C) <= n and not C[~np.eye(n, dtype=bool)].any()
    )
    selects = not on_diagonal.any() and not program.bounds.lo.any() and bool((C.diagonal() > 0).all())
    if not (completes or selects) or not weight.all() or len(np.unique(i * n + j)) < program.m:
        return None
    if completes:
        positive = (program.bounds.lo / weight)[on_diagonal] > 0
        pattern = Pattern.of(n, i[~on_diagonal], j[~on_diagonal])
        return FixedEntries(program, pattern, i, j, weight, C, True) if positive.all() else None
    free = np.triu(np.ones((n, n), dtype=bool), 1)
    free[i, j] = False
    pattern = Pattern.of(n, *np.nonzero(free))
    few = len(pattern.i) <= tuning.pattern_ratio * program.m
    return FixedEntries(program, pattern, i, j, weight, C, False) if few else None


def pattern_newton(problem: FixedEntries, settings: Any, progress: Progress) -> Answer | None:
    """Solve such a problem; None where it stalls or a proof fails, for another method."""
    pattern, scaled = problem.pattern, _Scaled(problem)
    K, clique = closed_form(pattern, scaled.C)
    if K is None and clique is None:
        clique = _clique_of_two(pattern, scaled.on_pattern)
        K = tree_inverse(pattern, scaled.C) if clique is None else None
    if K is None:
        assert clique is not None
        v = np.zeros(pattern.n)
        v[clique] = np.linalg.eigh(scaled.C[np.ix_(clique, clique)])[1][:, 0]
        X, y = np.diag(problem.given.diagonal()), np.zeros(problem.program.m)
        singular = Answer((X,), _NO_VARIABLES, y, StopReason.STALLED, 0, detail=_SINGULAR)
        return _proof(problem, np.outer(v, v) / scaled.units, 0) or singular
    first = scaled.at(K)
    if first is None:
        return None
    tuning = settings.tuning
    limit = settings.max_iter or tuning.pattern_limit
    monitor = Monitor(problem.program, settings, progress)
    found = monitor.follow(_PatternNewton(scaled, tuning, progress), first, limit)
    if found.proof is not None:
        return found.proof
    if found.stop is StopReason.STALLED and found.at.K.diagonal().max() < tuning.diverged_entry:
        return None
    detail = _SINGULAR if found.stop is StopReason.STALLED else ""
    return Answer(found.at.definite_X, _NO_VARIABLES, found.at.y, found.stop, found.step, detail=detail)


def _clique_of_two(pattern: Pattern, values: Array) -> IntArray | None:
    """Return a pair whose entry of a matrix with unit diagonal is not between -1 and 1, None without one."""
    beyond = np.flatnonzero(np.abs(values[: pattern.pairs]) >= 1)
    return np.array([pattern.i[beyond[0]], pattern.j[beyond[0]]]) if len(beyond) else None


def _proof(problem: FixedEntries, D: Array, step: int) -> Answer | None:
    """Return the proof by a psd matrix of the pattern that there is no solution, None if it is none.

    If ``<C, D> <= 0``, log det K - <C, K> grows without end along ``D``, and no positive definite matrix has
    the entries of ``C`` on the pattern.
    """
    program = problem.program
    if not problem.completes:
        ray = recedes(program, (D,), _NO_VARIABLES)
        return Answer((D,), _NO_VARIABLES, np.zeros(program.m), StopReason.UNBOUNDED, step) if ray else None
    y = problem.multipliers(problem.C + D) / problem.mu
    proven = contradicts(program, y)
    return Answer.without_point(program, y, StopReason.INFEASIBLE, step) if proven else None


class _Point:
    """A sparse matrix ``K`` of the scaled problem, its root and its inverse, as a point of the problem.

    The dense one of ``X`` and ``Z`` is the inverse with the given entries on the pattern. It need not be
    definite; `definite_X` then misses given entries instead.
    """

    def __init__(self, problem: _Scaled, K: Array, root: Array) -> None:
        self.K, self.root, self.W = K, root, inverse_of(root)
        own, pattern, scale = problem.own, problem.own.pattern, problem.scale
        self.gradient: Array = self.W[pattern.i, pattern.j] - problem.on_pattern
        dense = self.W.copy()
        dense[pattern.i, pattern.j] = dense[pattern.j, pattern.i] = problem.on_pattern
        dense_root = root_of(dense)
        dense *= problem.units
        sparse = K / problem.units
        roots = [root / scale[:, None], None if dense_root is None else scale[:, None] * dense_root]
        X, Z, (X_root, Z_root) = (dense, sparse, roots[::-1]) if own.completes else (sparse, dense, roots)
        self.X = (X,)
        self.definite_X = (X if X_root is not None else self.W * problem.units,)
        self.X_root = None if X_root is None else (X_root,)
        self.Z_root = None if Z_root is None else (math.sqrt(own.mu) * Z_root,)
        self.y = own.multipliers(Z)
        self.activity: Array = own.weight * X[own.i, own.j]


class _Scaled:
    """The problem with a unit diagonal of the given matrix."""

    def __init__(self, own: FixedEntries) -> None:
        self.own = own
        self.scale = np.sqrt(own.given.diagonal())
        self.units = np.outer(self.scale, self.scale)
        self.C = own.given / self.units
        np.fill_diagonal(self.C, 1.0)
        self.on_pattern = self.C[own.pattern.i, own.pattern.j]

    def at(self, K: Array) -> _Point | None:
        """Return the point at a matrix of the pattern, None if it is not positive definite."""
        root = root_of(K)
        return None if root is None else _Point(self, K, root)


class _PatternNewton(Method):
    """Newton's method for ``max log det K - <C, K>`` on a pattern, with a line search."""

    tests_multipliers = False
    doubles_digits = True

    def __init__(self, problem: _Scaled, tuning: ProjectionTuning, progress: Progress) -> None:
        self._problem, self._certified = problem, LogDetProblem(problem.own.program, progress)
        self._tuning, self.patience = tuning, tuning.pattern_patience

    def certificate(self, at: Any) -> Certificate:
        if at.X_root is not None:
            return self._certified.certificate(at)
        known = Known(activity=at.activity, divergences=(math.inf,), cone_residual=0.0)
        return certify(PrimalDualPoint(self._problem.own.program, at.X, _NO_VARIABLES, at.y, **known))

    def proof(self, at: _Point, before: Array, certificate: Certificate, step: int) -> Answer | None:
        """Return the proof that there is no solution if ``K`` is one."""
        shares = self._problem.own.pattern.unit**2
        entries = at.K[self._problem.own.pattern.i, self._problem.own.pattern.j]
        if float(self._problem.on_pattern @ (shares * entries)) > 0:
            return None
        return _proof(self._problem.own, at.K / self._problem.units, step)

    def advance(self, at: _Point) -> _Point | None:
        pattern, tuning = self._problem.own.pattern, self._tuning
        step = newton_direction(pattern, at.W, at.gradient, tuning)
        shares = pattern.unit**2
        slope = float(at.gradient @ (shares * step))
        falls, value, t = float(self._problem.on_pattern @ (shares * step)), log_det(at.root), 1.0
        if not slope > 0:
            return None
        D = pattern.matrix(step)
        while t > tuning.shortest_pattern_step:
            K = at.K + t * D
            root = root_of(K)
            if root is not None and log_det(root) - value - t * falls >= tuning.armijo_fraction * t * slope:
                return _Point(self._problem, K, root)
            t /= 2
        return None
