"""Hard rows and hinges: those that act are kept in one place, and every pass finds more of them.

Each round solves the problem of the kept rows by a route of this package, without the other hard rows. Its
objective has a model of the penalties ``f`` of the other soft rows around the last matrix ``N``,

    <f'(N), M> + c D(M, N) + <H, M - N>^2 / (2 k),

with ``H`` and ``k`` of :class:`~bregopt.chunks.chunk.Sums`: the trace term of the Hessian of Gaussian rows
(:mod:`bregopt.routes.quasi_newton`), and a multiple ``c`` of the divergence for the rest of it
(Lu, Freund, Nesterov 2018, Relatively Smooth Convex Optimization by First-Order Methods). The last step
measures ``c``.
Without soft rows there is no model, and the optimum of the kept rows increases from round to round; so rows
that no longer act are dropped. Hinges that are far from their bounds are linear, so the model of them becomes
exact. The kept ones are those at their bounds. A pass at the new matrix finds the rows to keep next: the hard
ones that are broken the most, and hinges near their bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cache, reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, Array, IntArray, Mask
from bregopt.chunks.chunk import HINGE_NOISE, Chunk, Objective, Sums, block_sums, triangular
from bregopt.clock import threads_for
from bregopt.errors import InfeasibleRowError, SolverError
from bregopt.linalg import root_of
from bregopt.program import Block, Bounds, LinearMap, Nearness, Penalty, Program, Term
from bregopt.program.rows import DenseRows, Distances, RankOne
from bregopt.records import dataclass, replace
from bregopt.routes import routing
from bregopt.routes.registry import tuning
from bregopt.routes.solution import Solution, Status

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
_OWN_TOL = 0.05  # tolerance of a round's problem, relative to that of the whole
_FORMED = 6_000  # entries of X up to which a round's system is formed: order 109, 288 MB
_CERTIFICATE_ROUND_OFF = 1e-11  # of a relative violation that is computed in two ways


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
        factor = root_of(solution.X[0])
        if factor is None:  # eigenvalues are raised to round-off
            eigenvalues, U = np.linalg.eigh(solution.X[0])
            factor = U * np.sqrt(np.maximum(eigenvalues, EPS * eigenvalues[-1]))
        at = _iterate(objective, factor, kept, y, _PER_ORDER * r, 0.0)
        yield at
        measured = _measured_factor(objective, base, at, kept, c)
        acting = np.abs(y) > _IDLE * np.abs(y).max(initial=0.0)
        kept = kept.take(acting & (np.abs(y) < (1 - _IDLE) * kept.gamma))
        if c == 0 or measured <= _REJECTED * c:
            base = at
        c = max(_MARGIN * measured, _LEAST_CHANGE * c) if c else _first_factor(objective, at)


def _iterate(objective: Objective, root: Array, kept: KeptRows, y: Array, most: int, least: float) -> Iterate:
    """Return the iterate at ``root root'`` after one pass, with the multipliers of kept rows."""
    M = root @ root.T
    found = objective.rows.map(
        _screened,
        triangular(objective.T @ root),
        objective.penalty,
        objective.T,
        most,
        least,
    )
    screened = reduce(lambda a, b: a.plus(b, most), found)
    sums, divergence = screened.sums, objective.divergence
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
        violation=screened.worst,
        gradient=G,
        curvature=objective.inward(sums.curvature),
        weight=sums.weight,
        broken=screened.rows,
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


def solved(objective: Objective, base: Iterate, c: float, kept: KeptRows, tol: float) -> Solution:
    """Return the answer to the problem of the kept rows, with the model of the soft ones around a matrix.

    ``D(M, M0) + c D(M, N)`` is ``(1 + c) D(M, M0) - c <D'(N), M>`` up to a constant.
    """
    r, k = len(base.M), len(kept.number)
    lo, hi = np.where(kept.sense > 0, 1.0, -np.inf), np.where(kept.sense > 0, np.inf, 1.0)
    kind = np.where(kept.gamma < np.inf, int(Penalty.HINGE), int(Penalty.HARD))
    bounds = Bounds(lo, hi, kind, kept.gamma)
    terms = [Term(0, np.arange(k), RankOne(kept.Z, np.ones(k)))] if k else []
    if base.weight:
        at = np.array([np.vdot(base.curvature, base.M)])
        square, price = np.array([int(Penalty.SQUARE)]), np.array([1 / (2 * base.weight)])
        bounds = bounds.followed_by(Bounds(at, at, square, price))
        terms.append(Term(0, np.array([k]), DenseRows(base.curvature[None])))
    _, gradient, _ = base.without(kept)
    cost = gradient - c * objective.divergence.gradient(base.M)
    block = Block(
        "M",
        r,
        DenseRows(cost[None]) if cost.any() else None,
        Nearness(objective.divergence.name, objective.M0, 1 + c),
    )
    none = np.zeros(0)
    A = LinearMap(bounds.m, (r,), tuple(terms))
    program = Program((block,), A, sp.csr_array((bounds.m, 0)), bounds, none, none, none)
    own = {"tuning": _tuning()} if objective.divergence.barrier else {}
    return routing.solve(program, "bregman", tol=_OWN_TOL * tol, warn=False, **own)


def given_rows(chunks: Sequence[Chunk], numbers: IntArray, nearness: Nearness | None) -> list[Program]:
    """Return problems of some hard rows as they were given, for proofs: the kept rows are rounded.

    Each is infeasible only if the rows contradict each other. Pairs of points may do so on the submatrix of
    their points, which is small and exact, or only on the range of ``X0``.

    Parameters
    ----------
    chunks : sequence of Chunk
    numbers : int array of shape (k,)
        Of the rows, ascending.
    nearness : Nearness or None
        None for rows with vectors of their own.
    """
    found = []
    for chunk in chunks:
        own = np.flatnonzero(np.isin(np.asarray(chunk.numbers), numbers))
        if len(own):
            found.append(chunk.take(own))
    bounds = reduce(Bounds.followed_by, (chunk.bounds(Penalty.HINGE) for chunk in found))
    weight = np.ones(bounds.m)
    if nearness is None:
        Z = np.concatenate([chunk.vectors().copy() for chunk in found])
        return [_of_rows(RankOne(Z, weight), bounds, None)]
    pairs = np.concatenate([chunk.rows.read() for chunk in found])
    points, near = np.unique(pairs, return_inverse=True)
    i, j = near.reshape(pairs.shape).T
    submatrix = Distances(len(points), i, j, weight)
    whole = Distances(nearness.X0.shape[0], pairs[:, 0], pairs[:, 1], weight)
    return [_of_rows(submatrix, bounds, None), _of_rows(whole, bounds, nearness)]


def _of_rows(rows: RankOne | Distances, bounds: Bounds, nearness: Nearness | None) -> Program:
    """Return the problem of some rows of one matrix."""
    none = np.zeros(0)
    A = LinearMap(bounds.m, (rows.n,), (Term(0, np.arange(bounds.m), rows),))
    block = Block("X", rows.n, None, nearness)
    return Program((block,), A, sp.csr_array((bounds.m, 0)), bounds, none, none, none)


@cache
def _tuning() -> Any:
    """Return constants for LogDet with kept rows: most of them act, nearly as many as ``X`` has entries.

    The interior-point method takes all rows at once. It forms its system also at larger orders, as conjugate
    gradients converge slowly near a vertex: 40 s instead of 2 for a round of 1,700 rows at order 50.
    """
    constants: Any = tuning("bregman")
    return replace(constants, working_set_rows=np.iinfo(np.int64).max, formed_entries=_FORMED)


@dataclass(frozen=True, eq=False)
class Iterate:
    """A matrix and the results of a pass there.

    Parameters
    ----------
    root, M : array of shape (r, r)
        ``M = root root'``.
    value, penalty : float
        The objective, and the part of it that soft rows pay.
    conjugate : float
        The terms of the soft rows in the dual function.
    bound : float
        The lower bound on the optimum that the multipliers prove.
    loss : float
        The cost of the violations of kept rows, at their multipliers.
    gap, violation : float
        The certified relative gap with that cost, and the largest violation relative to the bound of its row.
    gradient, curvature : array of shape (r, r)
        Of the penalties.
    weight : float
        Of :class:`~bregopt.chunks.chunk.Sums`.
    broken : KeptRows
        The rows to keep.
    """

    root: Array
    M: Array
    value: float
    penalty: float
    conjugate: float
    bound: float
    loss: float
    gap: float
    violation: float
    gradient: Array
    curvature: Array
    weight: float
    broken: KeptRows

    @property
    def distance(self) -> float:
        """The larger of gap and violation."""
        return max(self.gap, self.violation)

    def is_sure_of(self, kept: KeptRows) -> bool:
        """Whether the pass took no kept hinge as violated that :meth:`without` takes as met, or conversely.

        Otherwise their multipliers may leave their range, and prove nothing.
        """
        violation = kept.take(~kept.hard).violations(self.root)
        return bool((np.abs(violation - HINGE_NOISE) > _CERTIFICATE_ROUND_OFF).all())

    def without(self, kept: KeptRows) -> tuple[float, Array, float]:
        """Return penalty, gradient and conjugate of the soft rows without the kept hinges."""
        k = kept.gamma < np.inf
        if not k.any():
            return self.penalty, self.gradient, self.conjugate
        rows = kept.take(k)
        violation = rows.violations(self.root)
        y = np.where(violation > HINGE_NOISE, rows.sense * rows.gamma, 0.0)
        gradient = self.gradient + (rows.Z.T * y) @ rows.Z
        paid = float(rows.gamma @ np.maximum(violation, 0.0))
        return self.penalty - paid, (gradient + gradient.T) / 2, self.conjugate - float(y.sum())


class KeptRows(NamedTuple):
    """Rows ``z' M z >= 1`` or ``<= 1`` in memory, hard ones and soft ones with a hinge.

    Parameters
    ----------
    number : int array of shape (k,)
        In all rows of the problem.
    Z : array of shape (k, r)
        Vectors over the square roots of their bounds, in the coordinates of ``M``.
    sense : array of shape (k,)
        1 for lower bounds, -1 for upper ones.
    gamma : array of shape (k,)
        Weights of the hinge for relative violations, ``inf`` for hard rows.
    violation : array of shape (k,)
        At the matrix of the pass that found the row, relative to the bound; negative where the row is met.
        For a hinge minus its magnitude.
    """

    number: IntArray
    Z: Array
    sense: Array
    gamma: Array
    violation: Array

    @classmethod
    def none(cls, r: int) -> KeptRows:
        """Return no rows of order `r`."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros((0, r)), np.zeros(0), np.zeros(0), np.zeros(0))

    @property
    def hard(self) -> Mask:
        """Mask of the hard rows."""
        hard: Mask = np.isposinf(self.gamma)
        return hard

    def take(self, which: Any) -> KeptRows:
        """Return the rows of a mask or of indices."""
        return KeptRows(*(array[which] for array in self))

    def with_new(self, other: KeptRows) -> KeptRows:
        """Return these rows, and after them those of `other` that are not among them."""
        new = other.take(~np.isin(other.number, self.number))
        return KeptRows(*(np.concatenate(pair) for pair in zip(self, new, strict=True)))

    def violations(self, root: Array) -> Array:
        """Return the relative violations at ``root root'``, negative where a row is met."""
        R = self.Z @ root
        violations: Array = self.sense * (1 - np.einsum("ki,ki->k", R, R))
        return violations


class Screened(NamedTuple):
    """The sums over the soft rows, the rows to keep, and the largest violation of a hard row."""

    sums: Sums
    rows: KeptRows
    worst: float

    def plus(self, other: Screened, most: int) -> Screened:
        """Return the same of the rows of both, with at most `most` rows to keep."""
        rows = KeptRows(*(np.concatenate(pair) for pair in zip(self.rows, other.rows, strict=True)))
        if (
            len(rows.number) > most
        ):  # those of largest violation, and of smaller numbers where these are equal
            rows = rows.take(np.sort(np.argsort(-rows.violation, kind="stable")[:most]))
        return Screened(self.sums.plus(other.sums), rows, max(self.worst, other.worst))


def _screened(
    chunk: Chunk, root: Array, penalty: Penalty, scaling: Array, most: int, least: float
) -> Screened:
    """Return what one pass over a chunk finds at the matrix ``root root'``, in one BLAS thread.

    Parameters
    ----------
    chunk : Chunk
    root : array of shape (d, r)
    penalty : Penalty
        Of the soft rows.
    scaling : array of shape (d, r)
        ``T``, which takes vectors to the coordinates of ``M``.
    most : int
        The largest number of rows to keep.
    least : float
        The least relative violation of hard rows to keep.

    Raises
    ------
    InfeasibleRowError
        If the vector of a row with a lower bound is zero.
    ValueError
        If a row is bad.
    """
    with threads_for(1):
        found = (_of_block(block, root, penalty, scaling, most, least) for block in chunk.blocks())
        return reduce(lambda a, b: a.plus(b, most), found)


def _of_block(block: Chunk, root: Array, penalty: Penalty, T: Array, most: int, least: float) -> Screened:
    bounds = block.bounds(penalty)
    hinge = penalty is Penalty.HINGE
    if bounds.all_soft and not hinge:
        return Screened(block_sums(block, root, penalty, True), KeptRows.none(T.shape[1]), 0.0)
    zero = np.zeros((len(root), len(root)))
    sums = Sums(0.0, 0.0, zero, zero, 0.0) if bounds.all_hard else block_sums(block, root, penalty, True)
    Z, hard = block.vectors(), bounds.hard
    R = Z @ root
    a = np.einsum("ij,ij->i", R, R)
    block.check(np.isfinite(a), a, "the value", "finite vectors")
    lower, zero_vector = np.isfinite(bounds.lo), ~Z.any(axis=1)
    for j in np.flatnonzero(hard & lower & zero_vector):
        raise InfeasibleRowError(
            f"row {block.numbers[j]} is hard and asks for at least {bounds.lo[j]:g}, but its vector is zero, "
            "so no matrix meets it: drop the row, or give it a finite gamma and penalty='hinge'",
            block.numbers[j],
        )
    bound = np.where(lower, bounds.lo, bounds.hi)
    sense = np.where(lower, 1.0, -1.0)
    above = sense * (1 - a / bound)
    violation = np.where(hard, above, -np.abs(above) if hinge else -np.inf)
    # A hinge of a zero vector is the same at all matrices: it stays in the sums.
    k = np.flatnonzero((violation > least) | (hinge & ~hard & ~zero_vector))
    if len(k) > most:
        k = k[np.argpartition(-violation[k], most)[:most]]
    scaled = (Z[k] @ T) / np.sqrt(bound[k])[:, None]
    rows = KeptRows(block.numbers[0] + k, scaled, sense[k], bounds.gamma[k] * bound[k], violation[k])
    return Screened(sums, rows, max(0.0, float(violation.max())))
