"""Definite, bordered and very large systems of linear equations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, lapack, lu_factor, lu_solve

from bregopt.arrays import TINY, Array
from bregopt.clock import checkpoint
from bregopt.linalg import factorized
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["DefiniteFactor", "bordered", "conjugate_gradients"]


class DefiniteFactor:
    """A factorized positive definite matrix, its diagonal increased slightly where rows are dependent.

    Parameters
    ----------
    S : array of shape (m, m)
        Positive semidefinite; not to be changed afterwards.
    tuning : InteriorPointTuning
    repair : bool
        Whether the diagonal of a matrix that is not positive definite is increased.

    Raises
    ------
    LinAlgError
        Without `repair`, if the matrix is not positive definite by more than round-off. With it, if its
        diagonal is not finite.
    """

    def __init__(self, S: Array, tuning: InteriorPointTuning, repair: bool = True) -> None:
        self._S, self._tuning, extra = S, tuning, 0.0
        sizes = _sizes(S, tuning)
        while len(S):
            self._root, definite = factorized(S + np.diag(extra * sizes) if extra else S)
            if definite and (repair or (self._root.diagonal() > tuning.least_pivot * np.sqrt(sizes)).all()):
                break
            if not repair or not np.isfinite(S.diagonal()).all():
                raise LinAlgError("the matrix is not positive definite")
            extra = max(10 * extra, 1e-14)
        self._refinements = 3 if extra else 1

    def solve(self, right: Array, refined: bool = True) -> Array:
        """Return the solutions for the columns of `right`; not `refined` if the caller refines."""
        if len(right) == 0:
            return right
        x, _ = lapack.dpotrs(self._root, right, lower=1)
        for _ in range(self._refinements if refined else 0):
            residual = right - self._S @ x
            if np.vdot(residual, residual) <= self._tuning.definite_residual**2 * np.vdot(right, right):
                break
            x += lapack.dpotrs(self._root, residual, lower=1)[0]
        return x


def _sizes(S: Array, tuning: InteriorPointTuning) -> Array:
    """Return the diagonal, one where it is zero."""
    diagonal = S.diagonal()
    return np.where(diagonal > tuning.zero_diagonal, diagonal, 1.0)


def conjugate_gradients(
    operator: Callable[[Array], Array],
    right: Array,
    diagonal: Array,
    tol: float,
    limit: int,
    tuning: InteriorPointTuning,
) -> Array:
    """Solve a positive semidefinite system, preconditioned by its diagonal, to a relative residual."""
    x = np.zeros_like(right)
    r = right.copy()
    z = r / diagonal
    p = z
    rz = float(r @ z)
    enough = tol**2 * rz
    for _ in range(limit):
        checkpoint()
        if rz <= enough:
            break
        Hp = operator(p)
        curvature = float(p @ Hp)
        if curvature <= 1e-14 * float(p @ (diagonal * p)):
            # No curvature along p: take a long step.
            return x + tuning.zero_curvature_step * rz / float(p @ (diagonal * p)) * p
        alpha = rz / curvature
        x = x + alpha * p
        r = r - alpha * Hp
        z = r / diagonal
        rz, old = float(r @ z), rz
        p = z + (rz / old) * p
    return x


def bordered(
    M: Array, F: Array, tuning: InteriorPointTuning, corner: Array | None = None, refine: bool = True
) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return the solver of ``M y + F u = b, F'y - diag(corner) u = q``.

    Parameters
    ----------
    M : array of shape (m, m)
        Positive semidefinite.
    F : array of shape (m, k)
    tuning : InteriorPointTuning
    corner : array of shape (k,), optional
        Nonnegative; zero by default.
    refine : bool
        Whether solutions are refined; otherwise the caller does that.
    """
    if F.shape[1] == 0:
        factor = DefiniteFactor(M, tuning)
        return lambda b, q: (factor.solve(b), q)
    E = np.zeros(F.shape[1]) if corner is None else corner
    try:
        solve_once = _solver_by_elimination(M, F, E, tuning)
    except LinAlgError:
        solve_once = _solver_of_whole(M, F, E)

    def solve(b: Array, q: Array) -> tuple[Array, Array]:
        y, u = solve_once(b, q)
        for _ in range(tuning.bordered_refinements if refine else 0):
            more_y, more_u = solve_once(b - M @ y - F @ u, q - F.T @ y + E * u)
            y, u = y + more_y, u + more_u
        return y, u

    return solve


def _solver_by_elimination(
    M: Array, F: Array, E: Array, tuning: InteriorPointTuning
) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return the solver of the bordered system, without refinement, by elimination of ``y``.

    ``M`` may be nearly singular where the whole system is not. Adding ``F R`` times the second equations
    to the first makes it definite, with a term ``F R F'`` of the size of ``M``. With ``w = (I - R E) u``,

        (M + F R F') y + F w = b + F R q,     F'y - E / (I - R E) w = q.
    """
    diagonal = M.diagonal()
    size = (F**2 / np.where(diagonal > tuning.zero_diagonal, diagonal, np.inf)[:, None]).sum(axis=0)
    size[size == 0] = 1.0  # only in rows without a size of their own
    R = 1 / (size + 2 * E)
    shrinkage = 1 - R * E
    FR = F * R
    checkpoint()
    factor = DefiniteFactor(M + FR @ F.T, tuning, repair=False)
    inverse = factor.solve(F, refined=False)
    border = DefiniteFactor(F.T @ inverse + np.diag(E / shrinkage), tuning, repair=False)

    def solve(b: Array, q: Array) -> tuple[Array, Array]:
        y = factor.solve(b + FR @ q, refined=False)
        w = border.solve(F.T @ y - q, refined=False)
        return y - inverse @ w, w / shrinkage

    return solve


def _solver_of_whole(M: Array, F: Array, E: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return the solver of the bordered system as a whole, regularized at the level of round-off."""
    m, f = F.shape
    whole = np.block([[M, F], [F.T, -np.diag(E)]])
    scale = 1 / np.sqrt(np.maximum(np.abs(whole).max(axis=1), TINY))
    regularized = scale[:, None] * whole * scale + 1e-14 * np.diag([1.0] * m + [-1.0] * f)
    lu = lu_factor(regularized, check_finite=False)  # a step that is not finite is rejected

    def solve(b: Array, q: Array) -> tuple[Array, Array]:
        x = scale * lu_solve(lu, scale * np.concatenate([b, q]), check_finite=False)
        return x[:m], x[m:]

    return solve
