"""Nearness in the largest entry, by Douglas-Rachford splitting with Anderson's acceleration.

The problem is

    minimize  d   subject to   |Y_ij - a_ij| <= d k_ij,   l_ij <= Y_ij <= u_ij,   Y_ii = c_i,   Y psd.

The psd matrices and the other rows alternate, at the cost of one eigendecomposition. The negative part of the
matrix that is projected onto the psd matrices is a multiplier of ``Y psd``, so each iterate has a bound.

References
----------
Eckstein, Bertsekas (1992), On the Douglas-Rachford splitting method, Math. Program. 55.
Walker, Ni (2011), Anderson acceleration for fixed-point iterations, SIAM J. Numer. Anal. 49.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.clock import checkpoint

__all__ = ["Entries", "Splitting", "distance_of"]

_RELAXATION = 1.6  # of the steps; 1 is without, 2 the limit of convergence
_MEMORY = 8  # differences of Anderson's acceleration; with 15 it needs as many iterations at order 200
_RIDGE = 1e-10  # regularization of its normal equations, relative to their trace
_LARGEST_MIX = 1e3  # sum of its coefficients beyond which they are round-off
_GROWTH = 2.0  # of the residual, at which the acceleration starts again
_LAST_BALANCE = 1_280  # iteration after which the penalty stays as it is: a constant one converges
_BALANCED, _LARGEST_CHANGE = 1.5, 5.0  # ratios of the residuals, and of penalties
_ROUNDS = 60  # of the search over the distance; it ends after about four


@dataclass(frozen=True, eq=False)
class Entries:
    """The rows on the pairs ``i < j`` and the diagonal, with ``k = 0`` where no distance is measured.

    Parameters
    ----------
    i, j : integer array of shape (p,)
    a, k, lo, hi : array of shape (p,)
    least : float
        A lower bound on ``d``; no bound ``lo <= Y <= hi`` forces a larger one.
    diagonal : array of shape (n,)
    """

    i: IntArray
    j: IntArray
    a: Array
    k: Array
    lo: Array
    hi: Array
    least: float
    diagonal: Array

    def ends(self, d: float) -> tuple[Array, Array]:
        """Return the least and the largest values of the pairs at the distance ``d``."""
        width = np.where(self.k > 0, d * self.k, np.inf)
        return np.maximum(self.lo, self.a - width), np.minimum(self.hi, self.a + width)

    def matrix(self, values: Array) -> Array:
        """Return the symmetric matrix of the pairs' values, with the given diagonal."""
        Z = np.diag(self.diagonal)
        Z[self.i, self.j] = Z[self.j, self.i] = values
        return Z

    def distance(self, Y: Array) -> float:
        """Return the least ``d`` that a matrix allows, and at least `least`."""
        moved, measured = np.abs(Y[self.i, self.j] - self.a), self.k > 0
        return max(self.least, float((moved[measured] / self.k[measured]).max(initial=0.0)))


def distance_of(entries: Entries, r: Array, price: float, d: float) -> float:
    """Return the ``d >= least`` that minimizes ``price d + dist(r, [lo(d), hi(d)])^2 / 2``.

    The derivative is nondecreasing and piecewise linear: Newton's method from `d`, with bisection at jumps.
    """
    k = entries.k
    moved = np.abs(r - entries.a)
    reach = np.minimum(moved, np.where(r > entries.a, entries.hi - entries.a, entries.a - entries.lo))
    measured = (k > 0) & (reach > entries.least * k)
    k, moved, reach = k[measured], moved[measured], reach[measured]
    if float(k @ (moved - entries.least * k)) <= price:
        return entries.least
    low, high = entries.least, float((moved / k).max())
    d = min(max(d, low), high)
    for _ in range(_ROUNDS):
        active = reach > d * k
        own = k[active]
        slope = float(own @ own)
        excess = float(own @ moved[active]) - slope * d - price
        low, high = (d, high) if excess > 0 else (low, d)
        new = d + excess / slope if slope else low
        if abs(new - d) <= 1e-15 * high:
            return new
        d = new if low < new < high else (low + high) / 2
    return d


class _Anderson:
    """Anderson's acceleration of a nonexpansive iteration ``w -> w + g(w)``.

    A point whose residual is far larger than the least one is dropped for a plain step from the one before,
    whose residual is not larger.
    """

    def __init__(self, size: int) -> None:
        # Differences of residuals, and of residuals plus points.
        self._G, self._T = np.empty((2, _MEMORY, size))
        self.restart()

    def restart(self) -> None:
        """Forget all points, as the iteration changes."""
        self._held, self._least = 0, np.inf
        self._before = np.zeros(0), np.zeros(0)

    def next(self, w: Array, g: Array) -> Array:
        """Return the next point, from the point `w` and its residual `g`."""
        old, last = self._before
        size = float(np.linalg.norm(g))
        if self._held and not size <= _GROWTH * self._least:
            self._held = 0
            return old + last
        self._least = min(self._least, size)
        if self._held:
            at = (self._held - 1) % _MEMORY
            np.subtract(g, last, out=self._G[at])
            np.subtract(w, old, out=self._T[at])
            self._T[at] += self._G[at]
        self._held += 1
        self._before = w, g
        count = min(self._held - 1, _MEMORY)
        if count < 2:
            return w + g
        G, T = self._G[:count], self._T[:count]
        normal = G @ G.T
        normal.flat[:: count + 1] += _RIDGE * np.trace(normal) + TINY
        mix = np.linalg.solve(normal, G @ g)
        if not np.abs(mix).sum() <= _LARGEST_MIX:  # a NaN is none
            return w + g
        accelerated: Array = w + g - mix @ T
        return accelerated


@dataclass
class Splitting:
    """The state of the iteration.

    Parameters
    ----------
    entries : Entries
    W : array of shape (n, n)
        The fixed point's iterate: ``Y - S / penalty``.
    d : float
        The distance.
    penalty : float

    Attributes
    ----------
    Y, S : array of shape (n, n)
        The positive part of ``W``, and the negative one, a multiple of the multiplier of ``Y psd``.
    """

    entries: Entries
    W: Array
    d: float
    penalty: float
    Y: Array = field(init=False)
    S: Array = field(init=False)
    iterations: int = 0
    _last: Array | None = None

    def __post_init__(self) -> None:
        self._anderson = _Anderson(self.W.size)
        self.split()

    @classmethod
    def started(cls, entries: Entries, W: Array) -> Splitting:
        """Return the state at a matrix; the penalty is that of a distance spread over all its entries."""
        eigenvalues = np.linalg.eigvalsh(W)
        negative = float(np.maximum(-eigenvalues, 0.0).sum())
        size = max(negative, 1e-3 * float(np.abs(eigenvalues).max()), TINY)
        return cls(entries, W, 0.0, 1 / (np.sqrt(len(W)) * size))

    def split(self) -> None:
        """Split ``W`` into its positive and negative parts, from the smaller one."""
        checkpoint(len(self.W))
        eigenvalues, Q = np.linalg.eigh(self.W)
        first = int(np.searchsorted(eigenvalues, 0.0))
        if 2 * first > len(Q):
            self.Y = (Q[:, first:] * eigenvalues[first:]) @ Q[:, first:].T
            self.S = self.Y - self.W
        else:
            self.S = -(Q[:, :first] * eigenvalues[:first]) @ Q[:, :first].T
            self.Y = self.W + self.S

    def iterate(self) -> None:
        """Do one iteration."""
        rows, R = self.entries, self.Y + self.S
        r = (R[rows.i, rows.j] + R[rows.j, rows.i]) / 2
        # Each pair stands twice in the squared distance.
        self.d = distance_of(rows, r, 1 / (2 * self.penalty), self.d)
        Z = rows.matrix(np.clip(r, *rows.ends(self.d)))
        step = Z - self.Y
        self.iterations += 1
        if not self._balanced(Z, step):
            new = self._anderson.next(self.W.ravel(), (_RELAXATION * step).ravel())
            self.W = new.reshape(self.W.shape)
        self._last = Z
        self.split()

    def _balanced(self, Z: Array, step: Array) -> bool:
        """Change the penalty, at iterations 20, 40, 80, ..., if one residual is far larger."""
        turn, rest = divmod(self.iterations, 20)
        if rest or turn & (turn - 1) or self.iterations > _LAST_BALANCE or self._last is None:
            return False
        primal = np.linalg.norm(step) / max(float(np.linalg.norm(self.Y)), TINY)
        dual = np.linalg.norm(Z - self._last) / max(float(np.linalg.norm(self.S)), TINY)
        change = float(np.sqrt(primal / (dual + TINY)))
        if 1 / _BALANCED <= change <= _BALANCED:
            return False
        change = float(np.clip(change, 1 / _LARGEST_CHANGE, _LARGEST_CHANGE))
        self.penalty *= change
        self.W = self.Y + (_RELAXATION * step - self.S) / change
        self._anderson.restart()
        return True
