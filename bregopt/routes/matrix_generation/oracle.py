"""Pricing: rank-one matrices of largest reward, the bounds that they prove, and the best point so far.

The reward of a direction ``v`` is ``v'(A*(y) - C)v`` (Shen et al. 2008, (B1) and §5.1). For a small order the
matrix is decomposed; for a large one Lanczos's method uses products only (two thin products for rows of low
rank). A Ritz value is a lower estimate of the largest eigenvalue and proves no bound, however small its
residual, as an eigenvalue may be missed. A Cholesky factorization of ``t I - H`` therefore proves the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh

from bregopt.arrays import EPS, TINY, Array
from bregopt.certify import (
    Certificate,
    Known,
    PrimalDualPoint,
    TraceBound,
    certify,
    objective_size,
    proven_bound,
)
from bregopt.clock import checkpoint
from bregopt.program import Face, LowRank, Program
from bregopt.program.rows import Rows
from bregopt.records import dataclass
from bregopt.routes.base import Tuning

# Lanczos vectors for each requested eigenvector, besides ten.
_LANCZOS_VECTORS = 2.5
# Limit on the restarts of Lanczos's method. The estimates need not converge, as the bound is proven apart
# from them.
_LANCZOS_RESTARTS = 30
_ROUND_OFF = 4 * EPS  # of the eigenvalues of a symmetric matrix, relative to its norm
_Product = Callable[[Array], Array]
# Largest eigenvalue that counts as zero, relative to the trace.
_ZERO_EIGENVALUE = 1e-14
# Limits below which eigenvalues are dropped from the answer, relative to the trace, tried in order.
_TRUNCATION_LIMITS = (0.001, 0.0001, 1e-05, 1e-06, 1e-07, 1e-08, 1e-10)


@dataclass(frozen=True, kw_only=True)
class MatrixGenerationTuning(Tuning):
    """Constants of matrix generation, besides those of every method.

    `progress_ratio` applies to the gaps of the rounds.

    Parameters
    ----------
    linear_cuts : int
        Eigenvectors added in each round of the linear master. On margin SDPs 3 to 5 were best, and 24 were
        slower.
    semidefinite_cuts : int
        Eigenvectors added in each round of the semidefinite master.
    balancing_steps : int
        Limit on the corrections that make the dual residual of unbounded variables zero. One suffices unless
        a multiplier reaches an end of its range.
    simplex_seconds : float
        Seconds of the first run of HiGHS between two checkpoints. Ctrl-C does not reach HiGHS, and each run
        starts from the last basis.
    decomposed_order : int
        Largest order at which all eigenvalues of ``A*(y) - C`` are computed, instead of a few by Lanczos's
        method.
    first_master_tol : float
        Tolerance of the first semidefinite master.
    master_tol_ratio : float
        Tolerance of the next semidefinite master, relative to the gap.
    memory_rounds : int
        Rounds for which an unused direction stays in the basis.
    first_smoothing : float
        First weight of the best multipliers in the priced ones. On margin SDPs 0.8 to 0.9 was best.
    smoothing_decrease : float
        Decrease of the weight at a step.
    """

    linear_cuts: int = 5
    semidefinite_cuts: int = 16
    balancing_steps: int = 3
    simplex_seconds: float = 0.2
    decomposed_order: int = 700
    first_master_tol: float = 1e-2
    master_tol_ratio: float = 0.1
    memory_rounds: int = 3
    first_smoothing: float = 0.8
    smoothing_decrease: float = 0.1


@dataclass(frozen=True, eq=False)
class Leading:
    """Leading eigenpairs, the largest first, and a proven bound.

    Parameters
    ----------
    values : array of shape (count,)
    vectors : array of shape (n, count)
        Orthonormal, on the face.
    bound : float
        An upper bound on all eigenvalues.
    """

    values: Array
    vectors: Array
    bound: float


class Reward:
    """The matrix ``A*(y) - C`` of one block.

    Parameters
    ----------
    program : Program
    y : array of shape (m,)
    costs : bool
        Whether to include ``C``; without it, a positive reward refutes a proof of infeasibility.

    Attributes
    ----------
    n : int
        The order of the matrix.
    size : float
        An upper bound on its norm.
    """

    def __init__(self, program: Program, y: Array, costs: bool = True) -> None:
        (block,) = program.blocks
        self.n = block.n
        self.size = float(np.abs(y) @ program.A.norms())
        acting = np.flatnonzero(y)
        self._parts: list[tuple[Rows, Array]] = [
            (term.rows, y[acting][term.at]) for term in program.A.slice(acting).terms
        ]
        if costs and block.cost is not None:
            self._parts.append((block.cost, np.array([-1.0])))
            self.size += block.cost_norm

    def dense(self) -> Array:
        """Return the matrix."""
        H = np.zeros((self.n, self.n))
        for rows, y in self._parts:
            H += rows.adjoint(y)
        return H

    def product(self) -> _Product:
        """Return the product of the matrix with columns; it forms nothing of order ``n^2`` for thin rows."""
        parts = [_product_of(rows, y) for rows, y in self._parts]

        def times(V: Array) -> Array:
            total = np.zeros_like(V)
            for part in parts:
                total += part(V)
            return total

        return times


def leading(
    reward: Reward,
    face: Face,
    count: int,
    slack: float,
    start: Array | None = None,
    tol: float = 0.0,
    *,
    tuning: MatrixGenerationTuning,
) -> Leading:
    """Return the `count` leading eigenpairs of a reward on a face, and a bound on the largest.

    Parameters
    ----------
    reward : Reward
    face : Face
    count : int
    slack : float
        Largest distance of the bound from the largest eigenvalue if that is not computed to round-off.
    start : array of shape (n, k), optional
        Directions that are likely to be leading.
    tol : float
        Relative accuracy of Lanczos's eigenvalues; zero for full accuracy.
    tuning : MatrixGenerationTuning
    """
    count = min(count, face.order)
    if face.order <= max(tuning.decomposed_order, 2 * count):
        return _decomposed(face.compress(reward.dense()), face, count)
    found = _iterated(reward, face, count, start, tol)
    H = face.compress(reward.dense())
    if found is None:
        return _decomposed(H, face, count)
    values, V = found
    return Leading(values, V, proven_bound(H, float(values[0]), slack))


def _decomposed(H: Array, face: Face, count: int) -> Leading:
    n = len(H)
    checkpoint(n)
    values, V = scipy.linalg.eigh(H, subset_by_index=(n - count, n - 1))
    return Leading(values[::-1], face.embed(V[:, ::-1]), float(values[-1]) + _round_off(H))


def _round_off(H: Array) -> float:
    """Return a bound on the round-off in the eigenvalues of a symmetric matrix."""
    return _ROUND_OFF * float(np.linalg.norm(H))


def _iterated(
    reward: Reward,
    face: Face,
    count: int,
    start: Array | None,
    tol: float,
) -> tuple[Array, Array] | None:
    """Return eigenpairs by Lanczos's method, None if it fails."""
    times = reward.product()
    n = face.order

    def product(v: Array) -> Array:
        checkpoint()
        return face.project(times(face.embed(v.reshape(-1, 1)))).ravel()

    operator = LinearOperator((n, n), matvec=product, dtype=float)
    first = np.random.default_rng(0).normal(size=n) / np.sqrt(n)
    if start is not None and start.shape[1]:
        first = first + face.project(start).sum(axis=1)
    width = min(n, int(_LANCZOS_VECTORS * count) + 10)
    try:
        values, V = eigsh(
            operator, count, which="LA", v0=first, ncv=width, maxiter=_LANCZOS_RESTARTS, tol=tol
        )
    except ArpackNoConvergence as stopped:
        values, V = stopped.eigenvalues, stopped.eigenvectors
    except ArpackError:
        return None
    if len(values) == 0:
        return None
    order = np.argsort(-values)
    V, _ = np.linalg.qr(V[:, order])
    return values[order], face.embed(V)


def _product_of(rows: Rows, y: Array) -> _Product:
    """Return the product of ``sum_k y_k A_k`` with columns."""
    forms = rows.products()
    if forms is not None:
        U, W, weight = forms.U, forms.W, (forms.weight * y)[:, None]
        if U is W:
            return lambda V: U.T @ (weight * (U @ V))
        half = weight / 2
        return lambda V: U.T @ (half * (W @ V)) + W.T @ (half * (U @ V))
    S: Any = rows.coordinates().combined(y, rows.n) if rows.few_terms else rows.adjoint(y)
    return lambda V: S @ V


# --- The best point and multipliers ---------------------------------------------------------------------


class Incumbent:
    """The best point and multipliers so far of a program on its face.

    Parameters
    ----------
    program : Program
    bound : TraceBound
    tol : float
        Largest residual of points and multipliers that count as feasible.
    tuning : MatrixGenerationTuning
    """

    def __init__(
        self, program: Program, bound: TraceBound, tol: float, tuning: MatrixGenerationTuning
    ) -> None:
        self._program, self._bound, self._tol, self._tuning = program, bound, tol, tuning
        (self._block,), (face,) = program.blocks, program.faces
        first = face.embed(np.eye(face.order, 1))
        self.dual, self._primal, self._residual, self._dual_residual = -np.inf, np.inf, np.inf, np.inf
        self.y = self._violations = np.zeros(self._program.m)
        self.offer_point(
            LowRank(np.sqrt(bound.value) * first),
            np.clip(np.zeros(self._program.k), self._program.u_lo, self._program.u_hi),
        )

    @property
    def width(self) -> float:
        """Objective minus bound, infinite if one of them is missing."""
        return self._primal - self.dual

    def offer_point(self, X: LowRank, u: Array) -> None:
        """Keep a point if it is better in the larger of residual and gap.

        Without a bound, it is better if its residual is smaller, or equal with a lower objective.
        """
        program = self._program
        point = PrimalDualPoint(program, (X,), u, np.zeros(program.m))
        residual, primal = max(point.primal_residual, self._tol), point.primal
        size = max(objective_size(program, self._primal, self.dual), TINY)
        merit = self._merit(residual, primal, point.violations, size)
        if merit < self._merit(self._residual, self._primal, self._violations, size):
            self.X, self.u, self._activity, self._violations = X, u, point.activity, point.violations
            self._residual, self._primal = residual, primal

    def _merit(self, residual: float, primal: float, violations: Array, size: float) -> tuple[float, float]:
        """Return the sort key of points, least first; `size` is the same for both points of a comparison.

        The gap counts the cost of violations, as the certificate does.
        """
        if not np.isfinite(self.dual):
            return residual, primal
        loss = float(np.abs(self.y) @ violations)
        return max(residual, (abs(primal - self.dual) + loss) / size), primal

    def offer_bound(self, y: Array, found: Leading) -> None:
        """Keep multipliers with a smaller dual residual, or an equal one and a better bound.

        The multipliers of the rows that bound the trace absorb the proven bound on the largest eigenvalue of
        ``A*(y) - C``. Then ``C - A*(y)`` is psd, and Lagrange's bound is the sum of the terms of rows and
        box.
        """
        if self._bound.exact or found.bound > 0:
            y = y - found.bound * self._bound.multipliers
        bound = PrimalDualPoint(self._program, (self.X,), self.u, y, smallest_eigenvalues=(0.0,)).bound
        dual, residual = bound.value - bound.cost, max(bound.residual, self._tol)
        if (-residual, dual) > (-self._dual_residual, self.dual):
            self.dual, self.y, self._dual_residual = dual, y, residual

    def certificate(self) -> Certificate:
        """Return the certificate of point and multipliers."""
        return self._certificate(self.X, self._activity)

    def of_least_rank(self, tol: float) -> LowRank:
        """Return the point with as few orthogonal columns as the certificate allows.

        The smallest eigenvalues are dropped while gap and residuals stay within `tol` or do not increase. If
        the trace is fixed, the others are scaled up to keep it.
        """
        Q, s, _ = np.linalg.svd(self.X.factor, full_matrices=False)
        present = self.certificate()
        tol = max(tol, present.gap, present.primal_residual)
        rank = max(int((s**2 > _ZERO_EIGENVALUE * float(s @ s)).sum()), 1)
        for limit in _TRUNCATION_LIMITS:
            fewer = max(int((s**2 > limit * float(s @ s)).sum()), 1)
            if fewer < rank:
                X = LowRank(Q[:, :fewer] * (s[:fewer] * self._growth(s, fewer)))
                certificate = self._certificate(X, self._program.activity((X,), self.u))
                if max(certificate.gap, certificate.primal_residual) <= tol:
                    return X
        return LowRank(Q[:, :rank] * s[:rank])

    def _growth(self, s: Array, rank: int) -> float:
        """Return the factor of the remaining columns that keeps a fixed trace."""
        trace = float(s[:rank] @ s[:rank])
        return float(np.sqrt(float(s @ s) / trace)) if self._bound.exact and trace > 0 else 1.0

    def _certificate(self, X: LowRank, activity: Array) -> Certificate:
        known = Known(activity=activity, smallest_eigenvalues=(0.0,))
        point = PrimalDualPoint(self._program, (X,), self.u, self.y, **known)
        if np.isfinite(self.dual):
            return certify(point)
        return Certificate(self._primal, -np.inf, np.inf, point.primal_residual, 1.0, np.inf)


def balanced(program: Program, y: Array, tuning: MatrixGenerationTuning) -> Array:
    """Return multipliers near `y` with zero dual residual for unbounded variables, so that a bound exists.

    ``c - B'y`` must be zero for a free variable, and of one sign for a variable with one bound. The residual
    is distributed over the rows by the distance of their multipliers from the ends of their ranges.
    """
    lower, upper = program.bounds.dual_range()
    for _ in range(tuning.balancing_steps if program.k else 0):
        reduced = program.c - program.B.T @ y
        residual = np.where(np.isinf(program.u_hi), np.minimum(reduced, 0.0), 0.0)
        residual += np.where(np.isinf(program.u_lo), np.maximum(reduced, 0.0), 0.0)
        columns = np.flatnonzero(residual)
        if len(columns) == 0:
            break
        own = np.maximum(np.abs(y), TINY)
        room = np.minimum(np.minimum(y - lower, upper - y), own)
        B = program.B[:, columns]
        move = np.linalg.lstsq((B.T @ sp.diags_array(room) @ B).toarray(), residual[columns], rcond=None)[0]
        y = np.clip(y + room * (B @ move), lower, upper)
    return y
