"""A primal-dual interior point for small weighted nearness problems with hard rows.

The unknowns are the entries that are not fixed. Directions are those of Nesterov and Todd (1997) with the
corrector of Mehrotra (1992). With ``P Y P = Z`` for the matrix ``Y`` and its multiplier ``Z``, Newton's
equation ``K o D + P D P + B' w B D = r`` is formed entry by entry and factorized.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, lapack, lstsq

from bregopt.arrays import Array, Mask
from bregopt.clock import checkpoint
from bregopt.linalg import root_of, symmetrize
from bregopt.records import dataclass
from bregopt.routes.projection.weights import ScaledNearness

__all__ = ["InteriorPoint", "interior_unknowns"]

# Fraction of the step to the boundary that is taken.
_STEP_FRACTION = 0.99
# Step length at which the interior point stops.
_SHORTEST_STEP = 1e-5
# Power of the predictor's decrease of complementarity that gives the centering parameter (Mehrotra).
_CENTERING_EXPONENT = 3
# Least centering parameter.
_LEAST_CENTERING = 1e-10

_Solve = Callable[[Array, Array], tuple[Array, Array]]


def interior_unknowns(scaled: ScaledNearness) -> float:
    """Return the order of Newton's equation; infinite if the interior point does not take the problem.

    It takes no soft rows, and no problem in which all entries are fixed.
    """
    unknowns = int(np.triu(~scaled.fixed).sum())
    if unknowns == 0 or not np.isinf(scaled.rows.gamma).all():
        return np.inf
    return max(unknowns, len(scaled.rows.at))


@dataclass(frozen=True, eq=False)
class _BoundState:
    """The lower or the upper bounds of box entries and rows, their slacks and multipliers.

    Parameters
    ----------
    sign : float
        1 for lower bounds, -1 for upper ones.
    bounded : mask of shape (m,)
        Marks the finite bounds; elsewhere the slack is one and the multiplier zero.
    bound, slack, multiplier : array of shape (m,)
    """

    sign: float
    bounded: Mask
    bound: Array
    slack: Array
    multiplier: Array

    @property
    def weight(self) -> Array:
        """The quotient of multiplier and slack, the diagonal ``w`` of Newton's equation."""
        return np.where(self.bounded, self.multiplier / self.slack, 0.0)

    @property
    def product(self) -> float:
        """The sum of the products of slack and multiplier."""
        return float(self.slack @ self.multiplier)

    def moved(self, step: _BoundStep, alpha: float) -> _BoundState:
        """Return the bounds after a step."""
        slack, multiplier = self.slack + alpha * step.slack, self.multiplier + alpha * step.multiplier
        return _BoundState(self.sign, self.bounded, self.bound, slack, multiplier)

    def step_length(self, step: _BoundStep) -> float:
        """Return the largest step length that keeps slacks and multipliers nonnegative."""
        alpha = np.inf
        for value, move in ((self.slack, step.slack), (self.multiplier, step.multiplier)):
            falling = self.bounded & (move < 0)
            alpha = min(alpha, float((-value[falling] / move[falling]).min(initial=np.inf)))
        return alpha

    def residual(self, activity: Array) -> Array:
        """Return the residual of the slacks at these activities."""
        return np.where(self.bounded, self.sign * (activity - self.bound) - self.slack, 0.0)

    def multiplier_step(self, mu: float, second: Array) -> Array:
        """Return the step of the multipliers for unchanged slacks."""
        return np.where(self.bounded, (mu - second) / self.slack - self.multiplier, 0.0)


@dataclass(frozen=True, eq=False)
class _BoundStep:
    slack: Array
    multiplier: Array


@dataclass(frozen=True, eq=False)
class _Step:
    D: Array
    X: Array
    Z: Array
    multipliers: Array
    bounds: tuple[_BoundStep, ...]


@dataclass(frozen=True, eq=False)
class _Scaling:
    """``inv(G) X inv(G)' = G' Z G = diag(s)``, and ``P = inv(G)' inv(G)``."""

    G: Array
    inverse: Array
    s: Array
    P: Array

    def of_primal(self, D: Array) -> Array:
        return self.inverse @ D @ self.inverse.T

    def of_dual(self, D: Array) -> Array:
        return self.G.T @ D @ self.G


def _scaling(X: Array, Z: Array) -> _Scaling | None:
    """Return the scaling point of Nesterov and Todd; None if a matrix is not positive definite."""
    root_X, root_Z = root_of(X), root_of(Z)
    if root_X is None or root_Z is None:
        return None
    U, s, Vt = np.linalg.svd(root_Z.T @ root_X)
    root = np.sqrt(s)
    inverse = (U / root).T @ root_Z.T
    return _Scaling((root_X @ Vt.T) / root, inverse, s, inverse.T @ inverse)


class InteriorPoint:
    """The iterate, which :meth:`step` updates.

    Parameters
    ----------
    scaled : ScaledNearness
        With entries that are not fixed, and no soft rows.

    Attributes
    ----------
    Y : array of shape (n, n)
        Has the fixed entries; psd and feasible in the limit.
    Z : array of shape (n, n)
        Its multiplier.
    """

    def __init__(self, scaled: ScaledNearness) -> None:
        self._scaled = scaled
        self._at = np.nonzero(np.triu(~scaled.fixed))
        i, j = self._at
        self._twice = np.where(i == j, 1.0, 2.0)
        n, rows = scaled.n, scaled.rows
        self.Y = np.where(scaled.fixed, scaled.target, np.eye(n))
        self._X = np.eye(n) * max(1.0, float(np.abs(self.Y).max()))
        self._definite: tuple[Array, Array] | None = None  # the last definite Y, with its root
        self._keep_definite()
        size = max(1.0, float(np.linalg.norm(scaled.gradient(self.Y), 2)))
        self.Z = size * np.eye(n)
        lower, upper = scaled.lower[self._at], scaled.upper[self._at]
        self._bounded = np.flatnonzero(np.isfinite(lower) | np.isfinite(upper))  # of the unknowns
        lo = np.concatenate([lower[self._bounded], rows.lo])
        hi = np.concatenate([upper[self._bounded], rows.hi])
        self._equal, self._value = lo == hi, lo
        at_lo, at_hi = self._bound_state(1.0, lo, size), self._bound_state(-1.0, hi, size)
        self._bounds: tuple[_BoundState, ...] = (at_lo, at_hi)
        self._multipliers = at_lo.multiplier - at_hi.multiplier
        adjoints = [self._entries(rows.adjoint(unit) + np.zeros((n, n))) for unit in np.eye(len(rows.at))]
        self._rows = np.array(adjoints).reshape(len(rows.at), len(i))

    @property
    def y(self) -> Array:
        """The multipliers of the rows, scaled; shape ``(m,)``."""
        return self._multipliers[len(self._bounded) :]

    @property
    def complementarity(self) -> float:
        """The duality gap of a primal and dual feasible point."""
        return float(np.vdot(self._X, self.Z)) + sum(side.product for side in self._bounds)

    def step(self) -> bool:
        """Do one step; False if no step is possible."""
        checkpoint()
        scaling = _scaling(self._X, self.Z)
        if scaling is None:
            return False
        try:
            step = self._corrected(scaling)
        except LinAlgError:
            return False
        alpha = min(1.0, _STEP_FRACTION * self._step_length(step, scaling))
        if not alpha > _SHORTEST_STEP:
            return False
        self.Y = self.Y + alpha * step.D
        self._X, self.Z = self._X + alpha * step.X, self.Z + alpha * step.Z
        self._multipliers = self._multipliers + alpha * step.multipliers
        self._bounds = self._moved(step, alpha)
        self._keep_definite()
        return bool(np.isfinite(self.Y).all())

    def _keep_definite(self) -> None:
        root = root_of(self.Y)
        if root is not None:
            self._definite = self.Y, root

    def psd_point(self) -> Array:
        """Return `Y`, moved to the last definite one until it is psd, so that it keeps the fixed entries.

        If none was definite, they may leave no interior. Then it is the definite iterate of the same limit.
        """
        if self._definite is None:
            return self._X
        definite, root = self._definite
        if definite is self.Y:
            return definite
        half, _ = lapack.dtrtrs(root, self.Y, lower=1)
        ratio, _ = lapack.dtrtrs(root, half.T, lower=1)
        least = float(np.linalg.eigvalsh(ratio)[0])
        moved: Array = self.Y + max(-least / (1 - least), 0.0) * (definite - self.Y)
        return moved

    def _corrected(self, scaling: _Scaling) -> _Step:
        """Return the corrector step; the predictor determines its centering parameter."""
        solve, s = self._equation(scaling.P), scaling.s
        nothing = tuple(np.zeros(len(self._value)) for _ in self._bounds)
        predictor = self._direction(solve, scaling, np.diag(-(s**2)), nothing, 0.0)
        alpha = min(1.0, self._step_length(predictor, scaling))
        mu = self._mean_product(predictor, 0.0)
        left = self._mean_product(predictor, alpha) / mu if mu > 0 else 0.0
        center = min(max(left**_CENTERING_EXPONENT, _LEAST_CENTERING), 1.0)
        X, Z = scaling.of_primal(predictor.X), scaling.of_dual(predictor.Z)
        target = np.diag(center * mu - s**2) - symmetrize(X @ Z)
        second = tuple(side.slack * side.multiplier for side in predictor.bounds)
        return self._direction(solve, scaling, target, second, center * mu)

    def _bound_state(self, sign: float, bound: Array, size: float) -> _BoundState:
        bounded = np.isfinite(bound) & ~self._equal
        return _BoundState(
            sign, bounded, np.where(bounded, bound, 0.0), np.ones(len(bound)), np.where(bounded, size, 0.0)
        )

    def _entries(self, S: Array) -> Array:
        """Return ``e`` with ``<S, D>`` equal to ``e`` times the unknowns of ``D``."""
        entries: Array = self._twice * S[self._at]
        return entries

    def _matrix(self, unknowns: Array) -> Array:
        """Return the matrix of given unknowns, zero at the fixed entries."""
        D = np.zeros((self._scaled.n,) * 2)
        i, j = self._at
        D[i, j] = D[j, i] = unknowns
        return D

    def _activity(self, unknowns: Array) -> Array:
        """Return the changes of the bounded entries and the rows for given changes of the unknowns."""
        return np.concatenate([unknowns[self._bounded], self._rows @ unknowns])

    def _gathered(self, y: Array) -> Array:
        """Return the transpose of :meth:`_activity`."""
        h = len(self._bounded)
        total: Array = y[h:] @ self._rows
        total[self._bounded] += y[:h]
        return total

    def _equation(self, P: Array) -> _Solve:
        """Return the solver of Newton's equation, for the unknowns and the multipliers of equalities."""
        i, j = self._at
        Pi, Pj = P.take(i, 0), P.take(j, 0)
        M, crossed = Pi.take(i, 1), Pi.take(j, 1)
        M *= Pj.take(j, 1)
        crossed *= Pj.take(i, 1)
        M += crossed
        M *= self._twice[:, None]
        M *= self._twice / 2
        M[np.diag_indices(len(i))] += self._entries(self._scaled.K)
        at_lo, at_hi = self._bounds
        weight, h = at_lo.weight + at_hi.weight, len(self._bounded)
        M[self._bounded, self._bounded] += weight[:h]
        if weight[h:].any():
            M += (self._rows.T * weight[h:]) @ self._rows
        factor, info = lapack.dpotrf(M.T, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            raise LinAlgError("Newton's equation is not definite")
        E = self._rows[self._equal[h:]]  # no bounded unknown is fixed
        half = lapack.dpotrs(factor, E.T, lower=1)[0] if len(E) else E.T

        def solve(right: Array, left: Array) -> tuple[Array, Array]:
            x = lapack.dpotrs(factor, right, lower=1)[0]
            if not len(E):
                return x, left
            v = lstsq(E @ half, left - E @ x)[0]  # equalities may be dependent
            return x + half @ v, v

        return solve

    def _direction(
        self, solve: _Solve, scaling: _Scaling, target: Array, second: tuple[Array, ...], mu: float
    ) -> _Step:
        """Return the step that changes the products of the scaled matrices by `target`.

        Parameters
        ----------
        target : array of shape (n, n)
        second : tuple of arrays of shape (m,)
            The products of the slack and multiplier steps of the predictor, for lower and upper bounds.
        mu : float
            The target of those products.
        """
        scaled, P, s = self._scaled, scaling.P, scaling.s
        gap = self.Y - self._X
        unscaled = scaling.inverse.T @ (2 * target / (s[:, None] + s)) @ scaling.inverse  # of dZ + P dX P
        dual_residual = self._entries(scaled.gradient(self.Y) - self.Z) - self._gathered(self._multipliers)
        activity = np.concatenate([self.Y[self._at][self._bounded], scaled.rows.apply(self.Y)])
        residuals = [side.residual(activity) for side in self._bounds]
        moves = [side.multiplier_step(mu, own) for side, own in zip(self._bounds, second, strict=True)]
        of_bounds = np.zeros(len(activity))
        for side, residual, move in zip(self._bounds, residuals, moves, strict=True):
            of_bounds += side.sign * (move - side.weight * residual)
        right = self._entries(unscaled - P @ gap @ P) - dual_residual + self._gathered(of_bounds)
        unknowns, of_equalities = solve(right, (self._value - activity)[self._equal])
        D, moved = self._matrix(unknowns), self._activity(unknowns)
        steps, multipliers = [], np.zeros(len(activity))
        for side, residual, move in zip(self._bounds, residuals, moves, strict=True):
            slack = np.where(side.bounded, side.sign * moved + residual, 0.0)
            steps.append(_BoundStep(slack, move - side.weight * slack))
            multipliers += side.sign * steps[-1].multiplier
        multipliers[self._equal] = of_equalities
        return _Step(D, D + gap, symmetrize(unscaled - P @ (D + gap) @ P), multipliers, tuple(steps))

    def _step_length(self, step: _Step, scaling: _Scaling) -> float:
        """Return the largest step length inside all cones."""
        root = np.sqrt(scaling.s)
        lengths = [side.step_length(own) for side, own in zip(self._bounds, step.bounds, strict=True)]
        for S in (scaling.of_primal(step.X), scaling.of_dual(step.Z)):
            least = float(np.linalg.eigvalsh(S / np.outer(root, root))[0])
            lengths.append(-1 / least if least < 0 else np.inf)
        return min(lengths)

    def _moved(self, step: _Step, alpha: float) -> tuple[_BoundState, ...]:
        """Return the bounds after a step."""
        return tuple(side.moved(own, alpha) for side, own in zip(self._bounds, step.bounds, strict=True))

    def _mean_product(self, step: _Step, alpha: float) -> float:
        """Return the mean complementarity product after a step."""
        total = float(np.vdot(self._X + alpha * step.X, self.Z + alpha * step.Z))
        bounds = self._moved(step, alpha)
        count = len(self._X) + sum(int(side.bounded.sum()) for side in bounds)
        return (total + sum(side.product for side in bounds)) / count
