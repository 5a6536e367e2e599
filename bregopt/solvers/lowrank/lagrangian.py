"""The augmented Lagrangian of the rows that the spheres do not hold, as a function of ``R``.

    L(R) = <C, R R'> + sum over rows of  rho / 2 dist(a - y / rho, [lo, hi])^2,    a = A(R R').

A row ``<F, X> <= 0`` with psd ``F``, such as ``e'Xe == 0``, has no point inside, and its square would be flat
to third order: it is held by the plain penalty ``s <F, X>``, whose weight ``s`` grows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import Program, ThinMatrix, ThinProgram, ThinRows
from bregopt.solvers.lowrank.spheres import Spheres

__all__ = ["Lagrangian", "Point", "lagrangian"]

_STIFF = 10.0  # times the mean of the cost's rows: the first penalties
_PLANES = 1e-14  # of the trace: by how little the rows held to zero are missed after a repair
_REPAIRS = 50


@dataclass(frozen=True, eq=False)
class Point:
    """``R`` and what the Lagrangian is there.

    Parameters
    ----------
    R : array of shape (n, k)
    value : float
    y : array
        What the multipliers become.
    slack : ThinMatrix
        ``C - A*(y)`` without the rows of the spheres,
    share : array of shape (n, 1) or (1, 1)
        and the multipliers of those.
    gradient : array of shape (n, k)
        Half of the Riemannian gradient.
    bent : array
        The penalties of the rows that act.
    """

    R: Array
    value: float
    y: Array
    slack: ThinMatrix
    share: Array
    gradient: Array
    bent: Array

    @cached_property
    def steepness(self) -> float:
        """The norm of the gradient."""
        return float(np.linalg.norm(self.gradient))


@dataclass(frozen=True, eq=False)
class Lagrangian:
    """The function of ``R``.

    Parameters
    ----------
    cost : ThinMatrix
    spheres : Spheres
    rows : ThinRows
        The rows besides the spheres',
    at : int array of shape (m,)
        which these are,
    lo, hi : array of shape (m,)
        their bounds,
    y, rho : array of shape (m,)
        their multipliers, and their penalties: zero for the rows held to zero, where ``-y`` is the weight.
    """

    cost: ThinMatrix
    spheres: Spheres
    rows: ThinRows
    at: IntArray
    lo: Array
    hi: Array
    y: Array
    rho: Array

    @property
    def held(self) -> Mask:
        """Mask of the rows that are held to zero by a weight."""
        mask: Mask = self.rho == 0
        return mask

    def at_point(self, R: Array) -> Point:
        """Return the Lagrangian at a point of the spheres."""
        a = self.rows.apply(R)
        held, safe = self.held, np.where(self.rho > 0, self.rho, 1.0)
        moved = a - self.y / safe
        miss = np.where(held, 0.0, moved - np.clip(moved, self.lo, self.hi))
        y = np.where(held, self.y, -self.rho * miss)
        slack = self.cost - self.rows.adjoint(y) if len(y) else self.cost
        G = slack @ R
        share = self.spheres.share(G, R)
        # <C, R R'> is <G, R> and what the rows were worth in it.
        value = float(np.vdot(G, R)) + float(y[~held] @ a[~held]) + float(self.rho @ miss**2) / 2
        return Point(R, value, y, slack, share, G - share * R, np.where(miss != 0, self.rho, 0.0))

    def second(self, at: Point, V: Array) -> Array:
        """Return half of the Riemannian Hessian at a point times a tangent matrix."""
        H = at.slack @ V - at.share * V
        if at.bent.any():
            change = 2 * at.bent * self.rows.apply(at.R, V)
            H += self.rows.adjoint(change) @ at.R
        return self.spheres.tangent(H, at.R)

    def retract(self, R: Array) -> Point:
        """Return the Lagrangian at the nearest point of the spheres."""
        return self.at_point(self.spheres.retract(R))

    def cost_at(self, R: Array) -> float:
        """Return ``<C, R R'>``."""
        return float(np.vdot(self.cost @ R, R))

    def violation(self, R: Array) -> Array:
        """Return by how much each row is outside its bounds."""
        a = self.rows.apply(R)
        return np.maximum(np.maximum(self.lo - a, a - self.hi), 0.0)

    def repaired(self, R: Array) -> Array:
        """Return a point near by on the spheres where the forms held to zero are zero, if they meet there."""
        Z = self.rows.Z[self.held[self.rows.at]]
        if len(Z) == 0:
            return R
        Q, _ = np.linalg.qr(Z.T)
        for _ in range(_REPAIRS):
            across = Q.T @ R
            if np.vdot(across, across) <= _PLANES * self.spheres.trace:
                break
            R = self.spheres.retract(R - Q @ across)
        return R

    def multipliers(self, at: Point, m: int) -> Array:
        """Return the multipliers of all `m` rows of the program."""
        y = np.zeros(m)
        y[self.at] = at.y
        y[self.spheres.rows] = at.share[:, 0] / self.spheres.weight
        return y

    def updated(self, at: Point, before: Array, tol: float) -> Lagrangian:
        """Return the Lagrangian with the multipliers of a minimiser.

        Penalties grow where rows are missed by more than a quarter of what they were missed by `before`, and
        weights where what they hold back is worth more than `tol`.
        """
        a, miss = self.rows.apply(at.R), self.violation(at.R)
        slow = ~self.held & (miss > before / 4) & (np.abs(at.y) * miss > tol)
        weak = self.held & (np.abs(self.y) * np.abs(a) > tol)
        y = np.where(weak, 10 * self.y, at.y)
        return replace(self, y=y, rho=np.where(slow, 4 * self.rho, self.rho))


def lagrangian(program: Program, thin: ThinProgram, spheres: Spheres, y: Array | None) -> Lagrangian:
    """Return the Lagrangian of a program in one block, with the multipliers of an earlier answer."""
    at = np.setdiff1d(np.arange(program.m), spheres.rows)
    rows, lo, hi = thin.rows.slice(at), program.bounds.lo[at], program.bounds.hi[at]
    sign = _psd_sign(rows)
    held = ((sign > 0) & (hi == 0)) | ((sign < 0) & (lo == 0))
    level = float(abs(thin.cost.S).sum()) / thin.cost.n
    level = level if level > 0 else 1.0
    size, steep = _sizes(rows), _steepness(rows, spheres, lo, hi)
    # Squares that are to be far smaller than they are at random begin as if they were held.
    small = np.where(sign > 0, hi, -lo) < size * spheres.trace / thin.cost.n
    first = np.where(small, -sign * level / np.maximum(size, np.finfo(float).tiny), 0.0)
    start = program.bounds.slice(at).clip(first)
    if y is not None:
        start = np.where(held, np.minimum(start * sign, y[at] * sign) * sign, y[at])
    rho = np.where(held, 0.0, _STIFF * level / np.maximum(steep, np.finfo(float).tiny))
    return Lagrangian(thin.cost, spheres, rows, at, lo, hi, start, rho)


def _psd_sign(rows: ThinRows) -> Array:
    """Return 1 for rows that are one square of a vector, -1 for their negatives, 0 for others."""
    sign = np.zeros(rows.m)
    sign[rows.at] = np.sign(rows.weight)
    sign[rows.terms.row] = 0.0
    own = rows.terms.i == rows.terms.j
    alone = np.bincount(rows.terms.row, minlength=rows.m) == 1
    single = own & alone[rows.terms.row]
    sign[rows.terms.row[single]] = np.sign(rows.terms.value[single])
    return sign


def _sizes(rows: ThinRows) -> Array:
    """Return the Frobenius norms of the rows, squares of vectors and terms apart."""
    t = rows.terms
    square = np.bincount(t.row, np.where(t.i == t.j, t.value**2, t.value**2 / 2), rows.m).astype(float)
    length = np.einsum("qn,qn->q", rows.Z, rows.Z)
    return np.sqrt(square + np.bincount(rows.at, (rows.weight * length) ** 2, rows.m))


def _steepness(rows: ThinRows, spheres: Spheres, lo: Array, hi: Array) -> Array:
    """Return about the squared norms of ``2 A_k R`` at the bounds, which penalties are divided by."""
    size = _sizes(rows)
    bound = np.minimum(np.abs(lo), np.abs(hi))  # one of the two is finite, or the row never acts
    largest = float(spheres.square.max())
    steep = 4 * size**2 * largest
    form = np.zeros(rows.m, dtype=bool)
    form[rows.at] = True
    steep[form] = 4 * size[form] * np.where(np.isfinite(bound[form]), bound[form], 0.0)
    return np.where(steep > 0, steep, 4 * size * largest)
