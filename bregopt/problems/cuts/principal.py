"""The vectors of a relaxation."""

from __future__ import annotations

import numpy as np

from bregopt.arrays import Array
from bregopt.clock import affords
from bregopt.linalg import turned
from bregopt.program import LowRank
from bregopt.program.lowrank import Matrix
from bregopt.threads import threads_for

__all__ = ["principal"]


def principal(X: Matrix) -> Array:
    """Return ``F`` with ``X = F F'`` and orthogonal columns, the longest first.

    If there is no time for the eigendecomposition, ``F`` is ``X`` itself: roundings then have another
    distribution.
    """
    with threads_for(X.shape[0]):
        if isinstance(X, LowRank):
            return turned(X.factor)
        if not affords(len(X)):
            return X
        eigenvalues, U = np.linalg.eigh(X)
        return np.asarray((U * np.sqrt(np.maximum(eigenvalues, 0.0)))[:, ::-1])
