"""Newton's method for LogDet nearness, all rows at once.

If every row is soft with a smooth penalty, only matrices and multipliers are unknown, and Newton's method in
both ends in a few steps. Otherwise, or if that takes too many steps, the primal-dual engine runs at the
problem's own weights.

From an earlier answer Newton's method on the dual in the active rows is tried first. With
``X = mu inv(C - A*(y))`` in each block the optimality conditions are one piecewise smooth equation for each
row: its activity is at a bound, or its multiplier at an end of its range. The multiplier that would reach the
bound, the others fixed, determines which of the two holds. Then all rows move at once (a semismooth Newton
method: Hintermüller, Ito, Kunisch 2002). Near the answer the method takes two to four steps, each on the few
active rows; the central path needs as many steps from nearby as from afar. Far from the answer the method may
not converge, so its steps should be limited.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple, Protocol, Unpack

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.clock import checkpoint
from bregopt.divergences import PENALTY_DEGREES, LogDet
from bregopt.linalg import DefiniteFactor, inverse_of, log_det, root_of
from bregopt.presolve.coordinates import Whitened
from bregopt.program import ENDED, Answer, Block, Bounds, LinearMap, Penalty, Program, Start, StopReason
from bregopt.program.program import divergence_of
from bregopt.records import cached_property, dataclass, replace
from bregopt.rigorous import recedes
from bregopt.routes.ipm.block_rows import Gram
from bregopt.routes.ipm.engine import Engine, Iterate
from bregopt.routes.ipm.start import first_iterate
from bregopt.routes.progress import Followed, Method, Monitor, Progress

Matrices = tuple[Array, ...]  # one for each block
# Trials of ``nu`` for a first iterate of LogDet, each a tenth of the last.
_CENTERING_TRIALS = 12
# Limit on the steps from an earlier answer of LogDet. Near the answer that method takes two to four steps;
# far from it the method may not converge.
_WARM_STEPS = 12
# Least step length of Newton's method in the active rows; a shorter step means that the answer is far.
_LEAST_STEP = 0.1
_FINAL = (StopReason.CONVERGED, StopReason.INFEASIBLE, *ENDED)
_NO_VARIABLES = np.zeros(0)
# Limit on the steps of Newton's method for LogDet if ``max_iter`` is None.
_LOGDET_STEPS = 200
# Limit on the steps of Newton's method on soft rows, which is slow if prices are far above the
# divergence's weight.
_SOFT_STEPS = 20
# Largest price of relaxing a bound by its own size, relative to the weight of the divergence, in Newton's
# method on soft rows. At a larger one the multiplier is round-off.
_LARGEST_PRICE = 1e6


class LogDetIterate(Protocol):
    """An iterate: matrices, multipliers, their factors; no ``Z_root`` if the multipliers prove nothing."""

    @property
    def X(self) -> Matrices: ...

    @property
    def X_root(self) -> Matrices: ...

    @property
    def Z_root(self) -> Matrices | None: ...

    @property
    def y(self) -> Array: ...

    @property
    def activity(self) -> Array: ...


class LogDeterminants(NamedTuple):
    """The logarithms of the determinants of ``X`` and ``Z``, for each block."""

    X: tuple[float, ...]
    Z: tuple[float, ...]


class LogDetProblem:
    """A program with a LogDet term for each matrix.

    Parameters
    ----------
    program : Program
    progress : Progress
        Gives the residual in the original program if this one is reduced.

    Attributes
    ----------
    mu : tuple of float
        The weights of the terms.
    X0 : tuple of arrays of shape (n_b, n_b)
    C : tuple of arrays of shape (n_b, n_b)
        The linear terms, ``C + mu inv(X0)``.
    """

    def __init__(self, program: Program, progress: Progress) -> None:
        self._terms = [_LogDetTerm(block) for block in program.blocks]
        self.program, self.mu = program, tuple(term.mu for term in self._terms)
        self.X0 = tuple(term.X0 for term in self._terms)
        self.C: Matrices = tuple(term.C for term in self._terms)
        self.whitened = progress.behind(Whitened)
        self._progress = progress

    @cached_property
    def unconstrained(self) -> Matrices | None:
        """The unconstrained minimizer, None if there is none."""
        found: list[Array] = []
        for term in self._terms:
            X = term.minimizer()
            if X is None:
                return None
            found.append(X)
        return tuple(found)

    def steepest(self) -> Iterator[Matrices]:
        """Yield matrices along which the linear terms grow least: in one block, and in all together.

        Each has trace one, or is zero.
        """
        directions = []
        for C in self.C:
            v = np.linalg.eigh(C)[1][:, :1]
            directions.append(v @ v.T)
        for b in range(len(directions)):
            yield tuple(V if k == b else np.zeros_like(V) for k, V in enumerate(directions))
        if len(directions) > 1:
            yield tuple(directions)

    def certificate(
        self, at: LogDetIterate, log_det_of: LogDeterminants | None = None, **known: Unpack[Known]
    ) -> Certificate:
        """Return the certificate of an iterate, from its factors and the values already computed."""
        if log_det_of is None:
            of_Z = (0.0,) * len(at.X) if at.Z_root is None else tuple(map(log_det, at.Z_root))
            log_det_of = LogDeterminants(tuple(map(log_det, at.X_root)), of_Z)
        blocks = list(zip(self._terms, at.X, *log_det_of, strict=True))
        known["divergences"] = tuple(term.divergence_at(X, of_X) for term, X, of_X, _ in blocks)
        proves = at.Z_root is not None
        least = tuple(term.least(of_Z) if proves else -math.inf for term, _, _, of_Z in blocks)
        known |= Known(matrix_terms=least, activity=at.activity, cone_residual=0.0)
        found = certify(PrimalDualPoint(self.program, at.X, np.zeros(0), at.y, **known))
        residual = self._progress.missed(at.X, np.zeros(0), at.activity)
        return replace(found, primal_residual=max(found.primal_residual, residual))


class _LogDetTerm:
    """The terms ``<C, X> + mu D(X, X0)`` of one block, as ``<C + mu inv(X0), X> - mu logdet X``."""

    def __init__(self, block: Block) -> None:
        nearness = block.nearness
        assert nearness is not None
        divergence = divergence_of(nearness)
        assert isinstance(divergence, LogDet)
        self.mu, self.X0 = nearness.mu, np.asarray(nearness.X0)
        self.C: Array = block.C + self.mu * divergence.inverse
        self._inverse, self._log_det = divergence.inverse, log_det(divergence.L)
        self._has_cost = block.cost is not None

    def minimizer(self) -> Array | None:
        """Return the unconstrained minimizer, None if there is none."""
        if not self._has_cost:
            return self.X0.copy()
        root = root_of(self.C)
        return None if root is None else self.mu * inverse_of(root)

    def divergence_at(self, X: Array, logarithm: float) -> float:
        """Return ``D(X, X0)``, for a given ``logdet X``."""
        return float(np.vdot(self._inverse, X)) - len(X) - logarithm + self._log_det

    def least(self, logarithm: float) -> float:
        """Return the minimum of ``<Z, X> - mu logdet X`` plus constants, for a given ``logdet Z``."""
        return self.mu * (logarithm + self._log_det - len(self.X0) * math.log(self.mu))


# --- Methods --------------------------------------------------------------------------------------------


def smooth(bounds: Bounds, mu: float) -> bool:
    """Whether all rows are soft with smooth penalties, none so stiff that its multiplier is round-off.

    `mu` is the least weight of a divergence.
    """
    power = PENALTY_DEGREES[bounds.kind]
    soft = bounds.kind > int(Penalty.HINGE)
    largest = _LARGEST_PRICE * mu
    return bool((soft & (bounds.gamma * bounds.sizes**power <= largest)).all())


# Pays on: 800 soft distances, LogDet.
def logdet_newton(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a LogDet nearness problem in one block or several.

    Parameters
    ----------
    program : Program
        A LogDet term in each block, no ordinary variables.
    settings : Settings
    start : Start, optional
    progress : Progress
    """
    problem = LogDetProblem(program, progress)
    methods: list[Any] = [_RowNewton(problem, settings.tuning.formed_entries)]
    if smooth(problem.program.bounds, min(problem.mu)):
        from bregopt.routes.ipm.soft_newton import SoftNewton  # only soft rows wait

        methods.insert(0, SoftNewton(problem))
    elif problem.unconstrained is not None:
        inactive = _inactive(problem, problem.unconstrained, settings, progress)
        if inactive is not None:
            return inactive
    for ray in problem.steepest() if problem.unconstrained is None else ():
        if recedes(problem.program, ray, _NO_VARIABLES):
            return Answer(ray, _NO_VARIABLES, np.zeros(program.m), StopReason.UNBOUNDED, 0)
    monitor, limit, steps = Monitor(program, settings, progress), settings.max_iter or _LOGDET_STEPS, 0
    if start is not None:
        warm = _warm(methods[0], problem, start, monitor, limit)
        if warm is not None:
            steps = warm.step
            if warm.stop in _FINAL or steps >= limit:
                return _answer(monitor, warm)
    best: Answer | None = None
    least = np.inf
    for method in methods:
        for first in method.starts():
            last = limit if method is methods[-1] else min(limit, steps + _SOFT_STEPS)
            found = monitor.follow(method, first, last, steps)
            answer, steps = _answer(monitor, found), found.step
            if found.stop in _FINAL:
                return answer
            certificate = method.certificate(found.at)
            error = max(certificate.gap, certificate.primal_residual)
            if best is None or error <= least:
                best, least = answer, error
            if steps >= limit:
                return replace(best, iterations=steps)
    if best is None:
        best = Answer(problem.X0, _NO_VARIABLES, np.zeros(program.m), StopReason.STALLED, steps)
    return replace(best, iterations=steps)


def _inactive(problem: LogDetProblem, X: Matrices, settings: Any, progress: Progress) -> Answer | None:
    """Return the unconstrained minimizer if it is the solution."""
    y = np.zeros(problem.program.m)
    point = PrimalDualPoint(problem.program, X, _NO_VARIABLES, y)
    if point.primal_residual > settings.tol:
        return None
    certificate = certify(point)
    if not certificate.meets(settings.tol):
        return None
    progress.record(0, certificate)
    return Answer(X, _NO_VARIABLES, y, StopReason.CONVERGED, 0)


# Pays on: 300 distances, LogDet, from the answer.
def _warm(
    method: Any,
    problem: LogDetProblem,
    start: Start,
    monitor: Monitor,
    limit: int,
) -> Followed | None:
    """Return the run from an earlier answer's multipliers, None if they give no first iterate."""
    y = problem.program.bounds.clip(start.y)
    if isinstance(method, _RowNewton):
        if problem.program.bounds.penalties:
            return None
        method = _ActiveNewton(problem)
        first = method.at(y)
    else:
        first = method.at(y, tuple(map(np.asarray, start.X)))
    return None if first is None else monitor.follow(method, first, min(limit, _WARM_STEPS))


def _answer(monitor: Monitor, found: Followed) -> Answer:
    y = monitor.farkas if found.stop is StopReason.INFEASIBLE else found.at.y
    return Answer(found.at.X, _NO_VARIABLES, y, found.stop, found.step)


class _RowNewton(Method):
    """The primal-dual engine at fixed weights, with ``nu`` decreasing to zero."""

    doubles_digits = True

    def __init__(self, problem: LogDetProblem, formed: int) -> None:
        self._problem, self._formed = problem, formed

    @cached_property
    def _engine(self) -> Engine:
        problem = self._problem
        return Engine(problem.program, problem.C, weights=problem.mu, stacked=False, formed=self._formed)

    def starts(self) -> Iterator[_Iterate]:
        """Yield a first iterate at the unconstrained minimizer, then one far above the weights."""
        program = self._problem.program
        first = None if self._problem.whitened else self._near_minimizer()
        if first is not None:
            yield first
        # On the central path of <C, X>, far above the weights.
        yield self._wrapped(first_iterate(self._engine, program))

    # Pays on: 40 quadratic forms, LogDet, n = 60.
    def _near_minimizer(self) -> _Iterate | None:
        program, matrices = self._problem.program, self._problem.unconstrained
        matrices = self._problem.X0 if matrices is None else matrices
        if (program.bounds.lo != program.bounds.hi).any():  # inequalities start well inside the cone
            matrices = tuple((X + np.trace(X) / len(X) * np.eye(len(X))) / 2 for X in matrices)
        return self._centered(tuple(_scaled_to_diagonal(program, b, X) for b, X in enumerate(matrices)))

    def certificate(self, at: _Iterate) -> Certificate:
        """Return the certificate of an iterate."""
        return self._problem.certificate(at)

    def advance(self, at: _Iterate) -> _Iterate | None:
        """Return the iterate after a step, None if no step is left."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of iterates that diverge
            new = self._engine.advance(at.iterate)
        return None if new is None else self._wrapped(new)

    def _wrapped(self, at: Iterate) -> _Iterate:
        return _Iterate(at, self._engine.plan.matrices(at.X))

    def _centered(self, X: Matrices) -> _Iterate | None:
        """Return an iterate at `X`, centered at the largest ``nu`` with ``C - A*(y)`` well inside the cone.

        If there is none, ``Z = mu inv(X)``.
        """
        mu = self._problem.mu
        nu = max(mu)
        plan = self._engine.plan
        flat = plan.joined(X)
        for _ in range(_CENTERING_TRIALS):
            at = self._engine.begin(flat, _NO_VARIABLES, nu)
            if at is not None and _well_inside(plan.matrices(at.Z), self._problem.C):
                return self._wrapped(at)
            nu *= 0.1
        Z = []
        for X_b, mu_b in zip(X, mu, strict=True):
            root = root_of(X_b)
            if root is None:
                return None
            Z.append(mu_b * inverse_of(root))
        at = self._engine.begin(flat, _NO_VARIABLES, max(mu), None, plan.joined(Z).copy())
        return None if at is None else self._wrapped(at)


class _Iterate(NamedTuple):
    """An iterate of the engine, with the fields of its certificate."""

    iterate: Iterate
    X: Matrices

    @property
    def X_root(self) -> Matrices:
        return tuple(self.iterate.X_roots)

    @property
    def Z_root(self) -> Matrices | None:
        """The factors of ``C - A*(y)``, None while ``Z`` differs from it."""
        return None if self.iterate.dual_residual else tuple(self.iterate.Z_roots)

    @property
    def y(self) -> Array:
        return self.iterate.y

    @property
    def activity(self) -> Array:
        return self.iterate.activity


def _well_inside(Z: Matrices, C: Matrices) -> bool:
    """Whether twice the step from `C` to `Z` is still in the cone, in each block."""
    return all(root_of(2 * Z_b - C_b) is not None for Z_b, C_b in zip(Z, C, strict=True))


def _scaled_to_diagonal(program: Program, b: int, X: Array) -> Array:
    """Return `X` of block `b` with rows and columns scaled to the diagonal that equalities prescribe."""
    prescribed = X.diagonal().copy()
    bounds = program.bounds
    exact = (bounds.lo == bounds.hi) & program.A.in_one_block
    for term in program.A.terms:
        if term.block == b and term.rows.single:
            t = term.rows.coordinates()
            k = (t.i == t.j) & exact[term.at]
            prescribed[t.i[k]] = bounds.lo[term.at][k] / t.value[k]
    if (prescribed <= 0).any():
        return X
    scale = np.sqrt(prescribed / X.diagonal())
    return scale[:, None] * X * scale


@dataclass(frozen=True, eq=False)
class _DualPoint:
    """Multipliers, the resulting ``X`` and activity, and lower Cholesky factors of ``X`` and ``Z``."""

    X: Matrices
    X_root: Matrices
    Z_root: Matrices
    y: Array
    activity: Array


class _ActiveNewton(Method):
    """Newton's method in the active rows.

    Parameters
    ----------
    problem : LogDetProblem
        With hard rows and hinges.
    """

    doubles_digits = True

    def __init__(self, problem: LogDetProblem) -> None:
        self._problem, self._A, self._bounds = problem, problem.program.A, problem.program.bounds

    def at(self, y: Array) -> _DualPoint | None:
        """Return the point of given multipliers, None if ``C - A*(y)`` is not positive definite."""
        checkpoint()
        X, X_roots, Z_roots = [], [], []
        for b, (C, mu) in enumerate(zip(self._problem.C, self._problem.mu, strict=True)):
            Z_root = root_of(C - self._A.adjoint(y, b))
            if Z_root is None:
                return None
            X.append(mu * inverse_of(Z_root))
            X_root = root_of(X[-1])
            if X_root is None:
                return None
            X_roots.append(X_root)
            Z_roots.append(Z_root)
        return _DualPoint(tuple(X), tuple(X_roots), tuple(Z_roots), y, self._A.apply(X))

    def certificate(self, at: _DualPoint) -> Certificate:
        return self._problem.certificate(at)

    def advance(self, at: _DualPoint) -> _DualPoint | None:
        """Return the point after a step, None if the step length becomes too short."""
        step, alpha = self._step(at), 1.0
        while np.isfinite(step).all() and alpha > _LEAST_STEP:
            new = self.at(at.y + alpha * step)
            if new is not None:
                return new
            alpha *= 0.5
        return None

    def _step(self, at: _DualPoint) -> Array:
        may_act = (at.y != 0) | self._bounds.equal | (self._bounds.violation(at.activity) > 0)
        rows = np.flatnonzero(may_act & (self._A.norms() > 0))
        bounds, y, activity = self._bounds.slice(rows), at.y[rows], at.activity[rows]
        H = self._hessian(self._A.slice(rows), at.X)
        # Multipliers that would bring each row to its bounds, the others fixed.
        to_lo, to_hi = (y + (bound - activity) / H.diagonal() for bound in (bounds.lo, bounds.hi))
        alone = np.where(to_lo > 0, to_lo, np.where(to_hi < 0, to_hi, 0.0))
        allowed = bounds.clip(alone)
        at_bound = np.flatnonzero(bounds.equal | ((alone != 0) & (allowed == alone)))
        change = allowed - y
        change[at_bound] = 0.0
        residual = np.where(to_lo > 0, bounds.lo, bounds.hi) - activity - H @ change
        change[at_bound] = DefiniteFactor(H[np.ix_(at_bound, at_bound)]).solve(residual[at_bound])
        step = np.zeros(len(at.y))
        step[rows] = change
        return step

    def _hessian(self, A: LinearMap, X: Matrices) -> Array:
        """Return minus the Hessian of the dual function, ``sum <A_k, X A_l X> / mu``."""
        H = [
            Gram(A, b).assemble(X_b, X_b) / mu
            for b, (X_b, mu) in enumerate(zip(X, self._problem.mu, strict=True))
        ]
        return reduce(np.add, H)
