"""Hard rows and hinges: those that act are kept in one place, and every pass finds more of them.

Each round solves the problem of the kept rows by a route of this package, without the other hard rows. Its
objective has a model of the penalties ``f`` of the other soft rows around the last matrix ``N``,

    <f'(N), M> + c D(M, N) + <H, M - N>^2 / (2 k),

with ``H`` and ``k`` of :class:`~bregopt.chunks.sums.Sums`: the trace term of the Hessian of Gaussian rows
(:mod:`bregopt.routes.quasi_newton`), and a multiple ``c`` of the divergence for the rest of it
(Lu, Freund, Nesterov 2018, Relatively Smooth Convex Optimization by First-Order Methods). The last step
measures ``c``.
Without soft rows there is no model, and the optimum of the kept rows increases from round to round; so rows
that no longer act are dropped. Hinges that are far from their bounds are linear, so the model of them becomes
exact. The kept ones are those at their bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

import numpy as np

from bregopt.arrays import EPS, Array, IntArray
from bregopt.chunks.iterate import Iterate
from bregopt.chunks.kept_problem import solved
from bregopt.chunks.objective import Objective, triangular
from bregopt.chunks.screening import KeptRows, Screened, screened
from bregopt.errors import SolverError
from bregopt.linalg import root_of
from bregopt.program import Penalty
from bregopt.routes.solution import Solution, Status

__all__ = ["Contradiction", "rounds"]

_log = logging.getLogger(__name__)

_PER_ORDER = 20  # new rows of a round, in units of the order of the matrix
_NEAR = 1e-3  # a resumed solve first keeps the rows within this fraction of their bounds
_IDLE = 1e-6  # rows with multipliers below this fraction of the largest are dropped
_MARGIN, _LEAST_CHANGE = 1.2, 0.25  # of the factor c: over the measured one, and from step to step
_REJECTED = 4.0  # a step is repeated with a larger c where the measured one is this multiple of it
_ROUND_OFF = 1e-11  # of the penalties, relative: model terms below it measure nothing
_GROWTH = 4.0  # of c, where a round's problem is unbounded
_UNBOUNDED = (Status.UNBOUNDED, Status.UNBOUNDED_INACCURATE)
_PATIENCE = 12  # passes without progress


class Contradiction(Exception):  # noqa: N818
    """The answer that the kept rows have no solution, and its Farkas vector: numbers of rows and multipliers.

    The numbers ascend, and the multipliers are those of the rows over their bounds.
    """

    def __init__(self, solution: Solution, numbers: IntArray, multipliers: Array) -> None:
        super().__init__(solution.status)
        self.solution, self.numbers, self.multipliers = solution, numbers, multipliers


def rounds(objective: Objective, root: Array, tol: float, resumed: bool) -> Iterator[Iterate]:
    """Yield the iterate of each pass, until there is no progress.

    Parameters
    ----------
    objective : Objective
    root : array of shape (r, r)
        The factor of the first matrix.
    tol : float
        Tolerance of the whole problem.
    resumed : bool
        Whether the first matrix is the last one of an interrupted solve.

    Raises
    ------
    Contradiction
        If the kept rows have no solution.
    """
    r = len(root)
    most = _PER_ORDER * r + resumed * r * (r + 1) // 2
    kept = KeptRows.none(r)
    at = base = _iterate(objective, root, kept, np.zeros(0), most, -_NEAR if resumed else 0.0)
    c, least, waited = _first_factor(objective, at), at.distance, 0
    yield at
    while True:
        known = len(kept.number)
        kept = kept.with_new(at.broken)
        waited = 0 if at.distance < least or len(kept.number) > known else waited + 1
        least = min(least, at.distance)
        if waited > (_PATIENCE if c else 1):
            return
        try:
            solution = solved(objective, base, c, kept, tol)
            while solution.status in _UNBOUNDED:  # the linear term outweighs the divergence
                c = max(_GROWTH * c, _first_factor(objective, base), 1.0)
                solution = solved(objective, base, c, kept, tol)
        except SolverError as error:  # the iterates so far stand
            _log.warning("the problem of %d kept rows has no answer: %s", len(kept.number), error)
            return
        y = solution._point[2][: len(kept.number)]
        if solution.X is None:
            used = np.flatnonzero(kept.hard & (y != 0))
            used = used[np.argsort(kept.number[used])]
            raise Contradiction(solution, kept.number[used], y[used])
        y = np.where(y * kept.sense > 0, y, 0.0)
        at = _iterate(objective, _root(solution.X[0]), kept, y, _PER_ORDER * r, 0.0)
        yield at
        measured = _measured_factor(objective, base, at, kept, c)
        acting = np.abs(y) > _IDLE * np.abs(y).max(initial=0.0)
        kept = kept.take(acting & (np.abs(y) < (1 - _IDLE) * kept.gamma))
        if c == 0 or measured <= _REJECTED * c:
            base = at
        c = max(_MARGIN * measured, _LEAST_CHANGE * c) if c else _first_factor(objective, at)


def _root(M: Array) -> Array:
    """Return a factor of a matrix, whose eigenvalues are raised to round-off where it is not definite."""
    root = root_of(M)
    if root is None:
        eigenvalues, U = np.linalg.eigh(M)
        root = U * np.sqrt(np.maximum(eigenvalues, EPS * eigenvalues[-1]))
    return root


def _iterate(objective: Objective, root: Array, kept: KeptRows, y: Array, most: int, least: float) -> Iterate:
    """Return the iterate at ``root root'`` after one pass, with the multipliers of kept rows."""
    M = root @ root.T
    found = objective.rows.map(
        screened,
        triangular(objective.T @ root),
        objective.penalty,
        objective.T,
        most,
        least,
    )
    pass_ = reduce(lambda a, b: a.plus(b, most), found)
    return _certified(objective, root, M, pass_, kept, y)


def _certified(
    objective: Objective, root: Array, M: Array, found: Screened, kept: KeptRows, y: Array
) -> Iterate:
    sums, divergence = found.sums, objective.divergence
    G = objective.inward(sums.gradient)
    value = divergence.value(M) + sums.penalty
    at = Iterate(
        root=root,
        M=M,
        value=value,
        penalty=sums.penalty,
        conjugate=sums.conjugate,
        bound=-np.inf,
        loss=float(np.abs(y)[kept.hard] @ np.maximum(kept.violations(root)[kept.hard], 0.0)),
        gap=np.inf,
        violation=found.worst,
        gradient=G,
        curvature=objective.inward(sums.curvature),
        weight=sums.weight,
        broken=found.rows,
    )
    _, gradient, conjugate = at.without(kept)
    W = gradient - (kept.Z.T * y) @ kept.Z
    bound = conjugate + float(y.sum()) + divergence.dual_term((W + W.T) / 2, 1.0, M)
    if not at.is_sure_of(kept):
        bound = -np.inf
    objective.passes.append((value, bound))
    best = objective.best_bound
    return replace(at, bound=best, gap=objective.relative_gap(value, best, at.loss))


def _first_factor(objective: Objective, at: Iterate) -> float:
    """Return the mean of ``2 S A S`` relative to the divergence's Hessian, zero where no soft row acts.

    Hinges have no curvature: the factor for which a step along their gradient changes ``M`` by half of it.
    """
    if not at.weight and objective.penalty is Penalty.HINGE:
        factor = np.eye(len(at.M)) if objective.divergence.exponential else at.root
        return 2 * float(np.abs(np.linalg.eigvalsh(factor.T @ at.gradient @ factor)).max())
    if not at.weight:
        return 0.0
    factor = at.root
    if objective.divergence.exponential:  # its Hessian is near A -> M^(-1/2) A M^(-1/2)
        eigenvalues, U = np.linalg.eigh(at.M)
        factor = U * np.maximum(eigenvalues, 0.0) ** 0.25
    d = np.linalg.eigvalsh(factor.T @ at.curvature @ factor)
    return float(2 * np.mean(d**2) / at.weight)


def _measured_factor(objective: Objective, base: Iterate, at: Iterate, kept: KeptRows, c: float) -> float:
    """Return the ``c`` that makes the model exact at the new matrix, `c` itself where round-off hides it."""
    step, divergence = at.M - base.M, objective.divergence
    D = divergence.value(at.M) - divergence.value(base.M) - np.vdot(divergence.gradient(base.M), step)
    paid, gradient, _ = base.without(kept)
    above = at.without(kept)[0] - paid - np.vdot(gradient, step)
    if base.weight:
        above -= np.vdot(base.curvature, step) ** 2 / (2 * base.weight)
    if not D * max(c, 1.0) > _ROUND_OFF * (abs(at.penalty) + abs(divergence.value(at.M))):
        return c
    return max(0.0, float(above / D))
