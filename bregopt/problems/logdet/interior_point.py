"""A primal-dual interior-point method for the weights of designs, and so for ellipsoids around points.

It minimizes a convex criterion of ``M(u) = M0 + sum_i u_i M_i`` over the weights of a polytope, by Mehrotra's
(1992) predictor and corrector. For ``-log det`` over the simplex it is close to the dual reduced Newton
method of Sun and Freund (2004). Of many candidates it takes few, the working set, in rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from bregopt import clock
from bregopt.arrays import TINY, Array, IntArray, Mask, scattered
from bregopt.clock import remaining
from bregopt.problems.logdet.candidates import Candidates, LocalModel, WeightBounds, local_model
from bregopt.records import dataclass, replace

_TO_BOUNDARY = 0.995  # fraction of the way to the boundary
_MAX_STEPS = 200  # of one call; 10 to 25 are usual
_PATIENCE = 15  # steps without a better efficiency that end a call

_FIRST = 4  # candidates of the first working set, relative to the order
_NEW = 3  # most candidates that a round adds, relative to the order
_FEW = 500  # candidates up to which all of them are the working set
_SHARE = 0.1  # weight of a new candidate, relative to the mean weight
_LOOSE = 0.05  # tolerance of a round, relative to the inefficiency after the round before
_TIGHT = 0.4  # the same relative to the tolerance, at least
_IDLE = 1e-3  # weight of a candidate that may be dropped, relative to the mean weight
_FINER = 0.01  # tolerance of the last steps, relative: weights that move to a bound make the bound larger
# Distances from a bound that are the small ones, relative to the multiplier. The first is enough unless
# the best place is between two candidates, one of which has little weight.
_CLEAR = (1.0, 1e-2, 1e-4, 1e-6)
_MAX_ROUNDS = 100
_NO_PRICES = np.zeros(0)


@dataclass(frozen=True, eq=False)
class OptimalWeights:
    """Weights and what they prove.

    Parameters
    ----------
    u : array of shape (m,)
    efficiency : float
        Lower bound on the efficiency among all weights of the polytope.
    steps : int
        Newton steps.
    prices : array of shape (r,)
        Multipliers of the budgets.
    """

    u: Array
    efficiency: float
    steps: int
    prices: Array = field(default_factory=lambda: _NO_PRICES)


def optimal_weights(model: Model, inside: Array, tol: float) -> OptimalWeights:
    """Return weights with efficiency ``1 - tol``, or the best ones found.

    Parameters
    ----------
    model : Model
    inside : array of shape (m,)
        Weights strictly inside their bounds, with a positive definite information matrix.
    tol : float
        Half of the inefficiency that the caller allows: weights move to their bounds within the other half.
    """
    found = None
    if len(model.candidates) > max(_FEW, 10 * model.candidates.n) and model.bounds.is_simplex:
        found = _in_rounds(model, inside, tol)
        if found is not None and (found.efficiency >= 1 - 2 * tol or clock.remaining() <= 0):
            return found
    # Rounds stall where the best place is between two candidates that are hardly better than others: all of
    # 1,000 candidates for a parabola give 1e-8 in place of 8e-7.
    at, local, efficiency = _minimize(model, _start(model, inside), _FINER * tol)
    whole = _settled(model, local, OptimalWeights(at.u, efficiency, at.steps, at.prices()), tol)
    return whole if found is None or whole.efficiency > found.efficiency else found


def _in_rounds(model: Model, inside: Array, tol: float) -> OptimalWeights | None:
    """Solve on working sets that grow by the candidates with the largest sensitivities.

    Candidates that have no weight in any optimum (Harman and Pronzato 2007) are left out for good. The answer
    is None where the first working set leaves the information singular, as many equal candidates may.

    It pays on 20,000 normal rows of length 20: a thirtieth of the time. Leaving candidates out takes a third
    of what remains there.
    """
    m = len(model.candidates)
    local = model.local(model.information(inside))
    assert local is not None
    best = OptimalWeights(inside, model.efficiency(local, _NO_PRICES), 0)
    work, rest, others = _first(model.candidates, local.g), model, np.arange(m)
    inner = model[work]
    at, bound = _start(inner, np.full(len(work), 1 / len(work))), 1.0
    if inner.local(inner.information(at.u)) is None:
        return None
    for _ in range(_MAX_ROUNDS):
        last = best.efficiency >= 1 - tol
        at, _, _ = _minimize(inner, at, _FINER * tol if last else max(_TIGHT * tol, _LOOSE * bound))
        local = rest.local(inner.information(at.u))
        assert local is not None
        efficiency = rest.efficiency(local, _NO_PRICES)
        if efficiency > best.efficiency:
            best = OptimalWeights(scattered(work, at.u, m), efficiency, at.steps)
        if last or clock.remaining() <= 0:
            break
        bound = 1 - efficiency
        least = _least_sensitivity(model, efficiency)
        kept = local.g >= least
        place = np.searchsorted(others, work)
        kept[place] |= at.u > _IDLE / len(work)  # without them the information may be singular
        stays = kept[place]
        rest, others = rest[np.flatnonzero(kept)], others[kept]
        new = _violated(others, local.g[kept], local.own - local.given, work, _NEW * model.candidates.n)
        work = np.concatenate([work[stays], new])
        at = _extended(at, stays, len(new), bound * local.own)
        inner = model[work]
    else:
        return best
    found = OptimalWeights(scattered(work, at.u, m)[others], efficiency, at.steps)
    found = _settled(rest, local, found, tol)
    enough = found.efficiency >= min(1 - 2 * tol, best.efficiency)
    return replace(found, u=scattered(others, found.u, m)) if enough else best


def _settled(model: Model, local: LocalModel, found: OptimalWeights, tol: float) -> OptimalWeights:
    """Return the weights with those at their bounds that belong there, if the efficiency allows it."""
    for share in _CLEAR:
        u = model.bounds.settled(found.u, local.g, found.prices, local.own, share)
        at = model.local(model.information(u))
        efficiency = 0.0 if at is None else model.efficiency(at, found.prices)
        if efficiency >= min(1 - 2 * tol, found.efficiency):
            return replace(found, u=u, efficiency=efficiency)
    return found


def _first(candidates: Candidates, g: Array) -> IntArray:
    """Return the candidates with the largest sensitivities, and the extremes along each axis for rows."""
    largest = np.argpartition(-g, _FIRST * candidates.n)[: _FIRST * candidates.n]
    if not candidates.are_rows:
        return largest
    X = candidates.X
    return np.unique(np.concatenate([largest, X.argmax(axis=0), X.argmin(axis=0)]))


def _least_sensitivity(model: Model, efficiency: float) -> float:
    """Return the sensitivity below which a candidate has no weight in any D-optimal design."""
    if model.K is not None or model.prior is not None or not model.candidates.are_rows:
        return -np.inf
    n, excess = model.candidates.n, 1 / efficiency - 1
    return n * (1 + excess / 2 - np.sqrt(max(excess * (4 + excess - 4 / n), 0.0)) / 2)


def _violated(index: IntArray, g: Array, level: float, work: IntArray, most: int) -> IntArray:
    """Return the candidates outside of the working set with the largest sensitivities above `level`."""
    above = np.flatnonzero(g > level)
    largest = above[np.argsort(-g[above])][: most + len(work)]
    new = index[largest]
    return new[~np.isin(new, work)][:most]


def _extended(at: _Iterate, stays: Mask, added: int, gap: float) -> _Iterate:
    """Return an iterate on the next working set, with small weights of the new candidates."""
    u, q = at.u[stays], at.q[stays]
    size = len(u) + added
    mu = max(float(np.mean(u * q)), 0.1 * gap / size)
    share = _SHARE / size
    u = np.concatenate([u * (1 - share * added) / u.sum(), np.full(added, share)])
    q = np.maximum(np.concatenate([q, np.full(added, mu / share)]), 0.1 * mu / u)
    return replace(at, u=u, q=q)


@dataclass(frozen=True, eq=False)
class Model:
    """A criterion over weights.

    Parameters
    ----------
    candidates : Candidates
    bounds : WeightBounds
    K : array of shape (n, n) or None
        As for :func:`local_model`.
    prior : array of shape (n, n) or None
        ``M0``.
    """

    candidates: Candidates
    bounds: WeightBounds
    K: Array | None = None
    prior: Array | None = None

    def __getitem__(self, index: IntArray) -> Model:
        return replace(self, candidates=self.candidates[index], bounds=self.bounds.among(index))

    def information(self, u: Array) -> Array:
        """Return ``M(u)``."""
        M = self.candidates.information(u)
        return M if self.prior is None else M + self.prior

    def local(self, M: Array) -> LocalModel | None:
        """Return the criterion at an information matrix, None where that is not positive definite."""
        return local_model(self.candidates, M, self.K, self.prior)

    def efficiency(self, local: LocalModel, prices: Array) -> float:
        """Return a lower bound on the efficiency, from the sensitivities of all candidates."""
        return local.own / max(local.given + self.bounds.greatest(local.g, prices), local.own)


@dataclass(frozen=True, eq=False)
class _Iterate:
    """Weights, slacks and multipliers.

    Parameters
    ----------
    u : array of shape (m,)
    s : array of shape (r,)
        Slacks of the budgets.
    q : array of shape (m + f + r,)
        Multipliers of lower bounds, finite upper bounds and budgets.
    y : float
        Multiplier of ``sum(u) = 1``.
    steps : int
        Newton steps so far.
    """

    u: Array
    s: Array
    q: Array
    y: float
    steps: int = 0

    def prices(self) -> Array:
        """Return the multipliers of the budgets."""
        return self.q[len(self.q) - len(self.s) :]


def _start(model: Model, u: Array) -> _Iterate:
    """Return an iterate at weights strictly inside their bounds."""
    bounds = model.bounds
    n = model.candidates.n
    s = np.maximum(bounds.budget - bounds.costs @ u, 0.1 * np.abs(bounds.costs).max(axis=1, initial=0.0))
    p = _slacks(u, s, bounds, np.isfinite(bounds.upper))
    q = n * np.mean(p) / p / 2
    return _Iterate(u, s, q, float(n))


def _minimize(model: Model, at: _Iterate, tol: float) -> tuple[_Iterate, LocalModel, float]:
    """Return an iterate whose efficiency among the candidates of the model is ``1 - tol``, or the last one.

    Returns
    -------
    _Iterate
    LocalModel
        The criterion at the iterate.
    float
        The bound on its efficiency, which is smaller where steps in floating point gain nothing.
    """
    best: tuple[_Iterate, LocalModel, float] | None = None
    since = 0
    for step in range(_MAX_STEPS + 1):
        if best is not None and remaining() <= 0:
            break
        local = model.local(model.information(at.u))
        if local is None:
            break
        # Weights above a budget may be better than all that are allowed, and prove nothing.
        efficiency = model.efficiency(local, at.prices()) if model.bounds.affords(at.u, tol) else 0.0
        if best is None or efficiency > best[2] or efficiency == 0:
            best, since = (at, local, efficiency), step
        if efficiency >= 1 - tol or step - since > _PATIENCE:
            break
        moved = _step(model, at, local)
        if moved is None:
            break
        at = moved
    assert best is not None
    return best


def _step(model: Model, at: _Iterate, local: LocalModel) -> _Iterate | None:
    """Return the next iterate, None where the Newton matrix has no factor."""
    newton = _Newton.at(model, at, local)
    if newton is None:
        return None
    p, q = newton.p, at.q
    mu = float(p @ q) / len(p)
    try:
        predicted = newton.direction(0.0, 0.0)
        a = min(_length(p, predicted.dp), _length(q, predicted.dq))
        centering = (float((p + a * predicted.dp) @ (q + a * predicted.dq)) / (len(p) * mu)) ** 3
        step = newton.direction(centering * mu, predicted.dp * predicted.dq)
    except np.linalg.LinAlgError:  # budgets leave the weights hardly any room
        return None
    a = min(_length(p, step.dp), _length(q, step.dq))
    if not a > 0 or not np.isfinite(step.dp).all():
        return None
    k, r = len(at.u), len(at.s)
    u, s = at.u + a * step.dp[:k], at.s + a * step.dp[len(p) - r :]
    return replace(at, u=u, s=s, q=q + a * step.dq, y=at.y + a * step.dy, steps=at.steps + 1)


class _Direction(NamedTuple):
    """Changes of the slacks, of their multipliers, and of the multiplier of the sum."""

    dp: Array
    dq: Array
    dy: float


@dataclass(frozen=True, eq=False)
class _Newton:
    """The Newton system of an iterate, with one factorization for both directions.

    Parameters
    ----------
    solve : callable
        Solves with the Hessian and the bounds.
    capped : bool array of shape (m,)
        Weights with an upper bound.
    p, q : arrays of shape (m + f + r,)
        Slacks and multipliers of lower bounds, upper bounds and budgets.
    rows : array of shape (1 + r, m)
        Of the sum and of the budgets.
    solved : array of shape (m, 1 + r)
        ``solve(rows.T)``.
    missing : array of shape (1 + r,)
        What the rows, with their slacks, lack.
    residual : array of shape (m,)
        Minus the gradient of the Lagrangian.
    """

    solve: Callable[[Array], Array]
    capped: Mask
    p: Array
    q: Array
    rows: Array
    solved: Array
    missing: Array
    residual: Array

    @classmethod
    def at(cls, model: Model, at: _Iterate, local: LocalModel) -> _Newton | None:
        """Return the system, None where its matrix has no factor."""
        bounds, k, q = model.bounds, len(at.u), at.q
        capped = np.isfinite(bounds.upper)
        p = _slacks(at.u, at.s, bounds, capped)
        f = len(p) - k - len(at.s)
        D = q[:k] / p[:k]
        D[capped] += q[k : k + f] / p[k : k + f]
        solve = _solver(local, D)
        if solve is None:
            return None
        rows = np.concatenate([np.ones((1, k)), bounds.costs])
        missing = np.append(bounds.total - at.u.sum(), bounds.budget - bounds.costs @ at.u - at.s)
        residual = local.g - np.append(at.y, at.prices()) @ rows + q[:k]
        residual[capped] -= q[k : k + f]
        return cls(solve, capped, p, q, rows, solve(rows.T), missing, residual)

    def direction(self, target: float, second: Array | float) -> _Direction:
        """Return the direction toward complementarity products `target`, less those of second order."""
        p, q, k, r = self.p, self.q, len(self.capped), len(self.missing) - 1
        f = len(p) - k - r
        push = (target - second) / p - q
        right = self.residual + push[:k]
        right[self.capped] -= push[k : k + f]
        give = p[k + f :] / np.maximum(q[k + f :], TINY)
        lacking = self.missing.copy()
        lacking[1:] -= give * push[k + f :]
        schur = self.rows @ self.solved
        schur[np.arange(1, r + 1), np.arange(1, r + 1)] += give
        free = self.solve(right[:, None])[:, 0]
        dy = np.linalg.solve(schur, self.rows @ free - lacking)
        du = free - self.solved @ dy
        dp = np.concatenate([du, -du[self.capped], self.missing[1:] - self.rows[1:] @ du])
        return _Direction(dp, push - q / p * dp, float(dy[0]))


def _slacks(u: Array, s: Array, bounds: WeightBounds, capped: Mask) -> Array:
    """Return the distances to lower bounds, finite upper bounds and budgets."""
    if bounds.is_simplex:
        return u
    return np.concatenate([u - bounds.lower, (bounds.upper - u)[capped], s])


def _length(x: Array, dx: Array) -> float:
    """Return the largest step up to one that keeps `x` positive, with a margin."""
    falling = dx < 0
    return min(1.0, _TO_BOUNDARY * float((x[falling] / -dx[falling]).min(initial=np.inf)))


def _solver(local: LocalModel, D: Array) -> Callable[[Array], Array] | None:
    """Return the function that solves with the Hessian plus ``Diag(D)``; None if it has no factor."""
    m, n = len(D), local.white.n
    if local.white.are_rows and m <= n * (n + 1) // 2 + n:
        H = local.hessian()
        H.ravel()[:: m + 1] += D
        root, info = lapack.dpotrf(H.T, lower=1, clean=0, overwrite_a=1)
        return None if info else lambda rhs: lapack.dpotrs(root, rhs, lower=1)[0]
    F = local.hessian_factor()
    scaled = F / D[:, None]
    inner = F.T @ scaled
    inner.ravel()[:: len(inner) + 1] += 1.0
    small, info = lapack.dpotrf(inner.T, lower=1, clean=0, overwrite_a=1)
    if info:
        return None
    return lambda rhs: rhs / D[:, None] - scaled @ lapack.dpotrs(small, scaled.T @ rhs, lower=1)[0]
