"""Optimal weights of many candidates, by interior-point steps on few of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bregopt import clock
from bregopt.arrays import Array, IntArray, Mask, scattered
from bregopt.problems.logdet.criterion import Candidates, LocalModel
from bregopt.problems.logdet.interior_point import Iterate, Model, minimize, start

__all__ = ["OptimalWeights", "optimal_weights"]

_FIRST = 4  # candidates of the first working set, relative to the order
_NEW = 3  # most candidates that a round adds, relative to the order
_FEW = 500  # candidates up to which all of them are the working set
_SHARE = 0.1  # weight of a new candidate, relative to the mean weight
_LOOSE = 0.05  # tolerance of a round, relative to the inefficiency after the round before
_TIGHT = 0.4  # the same relative to the tolerance, at least
_IDLE = 1e-3  # weight of a candidate that may be dropped, relative to the mean weight
_FINER = 0.01  # tolerance of the last steps, relative: weights that move to a bound make the bound larger
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
    if len(model.candidates) > max(_FEW, 10 * model.candidates.n) and model.bounds.is_simplex:
        return _in_rounds(model, inside, tol)
    at, local, efficiency = minimize(model, start(model, inside), _FINER * tol)
    return _settled(model, local, OptimalWeights(at.u, efficiency, at.steps, at.prices()), tol)


def _in_rounds(model: Model, inside: Array, tol: float) -> OptimalWeights:
    """Solve on working sets that grow by the candidates with the largest sensitivities.

    Candidates that have no weight in any optimum (Harman and Pronzato 2007) are left out for good.
    """
    m = len(model.candidates)
    local = model.local(model.information(inside))
    assert local is not None
    best = OptimalWeights(inside, model.efficiency(local, _NO_PRICES), 0)
    work, rest, others = _first(model.candidates, local.g), model, np.arange(m)
    inner = model[work]
    at, bound = start(inner, np.full(len(work), 1 / len(work))), 1.0
    for _ in range(_MAX_ROUNDS):
        last = best.efficiency >= 1 - tol
        at, _, _ = minimize(inner, at, _FINER * tol if last else max(_TIGHT * tol, _LOOSE * bound))
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
    u = model.bounds.settled(found.u, local.g, found.prices, local.own)
    at = model.local(model.information(u))
    efficiency = 0.0 if at is None else model.efficiency(at, found.prices)
    if efficiency < min(1 - 2 * tol, found.efficiency):
        return found
    return replace(found, u=u, efficiency=efficiency)


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


def _extended(at: Iterate, stays: Mask, added: int, gap: float) -> Iterate:
    """Return an iterate on the next working set, with small weights of the new candidates."""
    u, q = at.u[stays], at.q[stays]
    size = len(u) + added
    mu = max(float(np.mean(u * q)), 0.1 * gap / size)
    share = _SHARE / size
    u = np.concatenate([u * (1 - share * added) / u.sum(), np.full(added, share)])
    q = np.maximum(np.concatenate([q, np.full(added, mu / share)]), 0.1 * mu / u)
    return replace(at, u=u, q=q)
