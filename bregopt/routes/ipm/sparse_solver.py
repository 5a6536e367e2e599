"""Sparse systems of linear equations, definite or quasi-definite."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError
from scipy.sparse.linalg import SuperLU, splu

from bregopt.arrays import Array
from bregopt.clock import checkpoint
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["SparseFactor"]


class SparseFactor:
    """A factorized symmetric matrix, its diagonal increased slightly where rows are dependent.

    Parameters
    ----------
    S : csc_array of shape (n, n)
        Its leading block is positive semidefinite, its trailing block negative semidefinite.
    definite : int
        The order of the leading block.
    tuning : InteriorPointTuning

    Raises
    ------
    LinAlgError
        If the matrix is not finite, or not factorized even after its diagonal is doubled.
    """

    def __init__(self, S: Any, definite: int, tuning: InteriorPointTuning) -> None:
        if not np.isfinite(S.data).all():
            raise LinAlgError("the matrix is not finite")
        self._S, self._tuning = S, tuning
        sizes = np.abs(S.diagonal())
        sizes = np.where(sizes > tuning.zero_diagonal, sizes, 1.0) * np.repeat(
            [1.0, -1.0], [definite, S.shape[0] - definite]
        )
        pivoting = tuning.sparse_pivot if definite < S.shape[0] else 0.0
        extra, factor = 0.0, None
        while factor is None:
            checkpoint()
            if extra > 1:
                raise LinAlgError("the matrix is out of the range of doubles")
            shifted = S + sp.diags_array(extra * sizes) if extra else S
            factor = _factor(shifted, pivoting)
            extra = max(10 * extra, 1e-14)
        self._factor = factor

    def solve(self, right: Array) -> Array:
        """Return the solution, refined while that reduces the residual."""
        if len(right) == 0:
            return right
        x = self._factor.solve(right)
        residual = right - self._S @ x
        size = float(residual @ residual)
        for _ in range(self._tuning.sparse_refinements):
            if size <= self._tuning.definite_residual**2 * float(right @ right):
                break
            refined = x + self._factor.solve(residual)
            residual = right - self._S @ refined
            size, before = float(residual @ residual), size
            if not size < before:
                break
            x = refined
        return x


def _factor(S: Any, pivoting: float) -> SuperLU | None:
    """Return the factorization, None where the matrix is singular or, without pivoting, not definite."""
    try:
        factor = splu(
            sp.csc_array(S),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=pivoting,
            options={"SymmetricMode": True},
        )
    except RuntimeError:
        return None
    return factor if pivoting or (factor.U.diagonal() > 0).all() else None
