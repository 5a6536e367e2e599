"""The pricing oracle: rank-one matrices of largest reward, by eigenvectors (Shen et al. 2008, (B1) and §5.1).

The reward of a direction ``v`` is ``v'(A*(y) - C)v``. For a small order the matrix is decomposed; for a large
one Lanczos's method uses products only (two thin products for rows of low rank). A Ritz value is a lower
estimate of the largest eigenvalue and proves no bound, however small its residual, as an eigenvalue may be
missed. A Cholesky factorization of ``t I - H`` therefore proves the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh

from bregopt.arrays import EPS, Array
from bregopt.certify import proven_bound
from bregopt.clock import checkpoint
from bregopt.program import Face, Program
from bregopt.program.rows import Rows
from bregopt.records import dataclass
from bregopt.routes.matrix_generation.master import MatrixGenerationTuning

__all__ = ["Leading", "Reward", "leading"]

# Lanczos vectors for each requested eigenvector, besides ten.
_LANCZOS_VECTORS = 2.5
# Limit on the restarts of Lanczos's method. The estimates need not converge, as the bound is proven apart
# from them.
_LANCZOS_RESTARTS = 30

_ROUND_OFF = 4 * EPS  # of the eigenvalues of a symmetric matrix, relative to its norm

_Product = Callable[[Array], Array]


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
            (norm,) = block.cost.norms()
            self.size += float(norm)

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
    S: Any = _sparse(rows, y) if rows.few_terms else rows.adjoint(y)
    return lambda V: S @ V


def _sparse(rows: Rows, y: Array) -> Any:
    """Return ``sum_k y_k A_k`` of rows with few terms as a sparse array."""
    t = rows.coordinates()
    half = t.value * y[t.row] / 2
    index = np.concatenate([t.i, t.j]), np.concatenate([t.j, t.i])
    return sp.csr_array((np.concatenate([half, half]), index), (rows.n, rows.n))
