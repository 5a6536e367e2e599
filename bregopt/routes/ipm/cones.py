"""The cones of the method's matrices: psd matrices on a face, or a stack of psd matrices of equal order.

An element of a cone is one array. For a stack its shape is ``(B, n, n)``, so that a thousand small matrices
cost as many Python calls as one.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from bregopt.arrays import Array
from bregopt.linalg import dense, inverse_of, root_of
from bregopt.program import Face
from bregopt.routes.ipm.step_length import dual_length, length_to_boundary, primal_length
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["Cone", "FaceCone", "StackCone"]


class Cone(Protocol):
    """A cone of arrays ``X``.

    A root is computed once for each ``X``: the lower Cholesky factors of its matrices in the coordinates of
    the cone, or the inverses of these factors.
    """

    @property
    def order(self) -> int:
        """The sum of the orders of the matrices on their faces."""
        ...

    def root(self, X: Array) -> Array | None:
        """Return the root, None outside the interior of the cone."""
        ...

    def project(self, X: Array) -> Array:
        """Return the projection on the subspace that the cone spans."""
        ...

    def inverse(self, root: Array) -> Array:
        """Return the inverse on that subspace, from a root."""
        ...

    def identity(self) -> Array:
        """Return the identity of that subspace."""
        ...

    def traces(self, X: Array) -> Array:
        """Return the trace of each matrix."""
        ...

    def weighted(self, X: Array, weights: Array) -> Array:
        """Return the matrices times numbers, one for each."""
        ...

    def compressed(self, S: Array) -> Array:
        """Return matrices in the coordinates of the cone, as a stack."""
        ...

    def lifted(self, M: Array) -> Array:
        """Return the array of a stack of matrices in these coordinates."""
        ...

    def primal_length(self, X: Array, root: Array, step: Array, tol: float) -> float:
        """Return about the largest ``alpha`` with ``X + alpha step`` in the cone, up to a relative `tol`."""
        ...

    def dual_length(self, Z: Array, root: Array, K: Array, step: Any, tol: float) -> float:
        """Return the same for ``Z``, with ``K = inv(Z)``."""
        ...


class FaceCone:
    """The psd matrices on a face.

    Parameters
    ----------
    face : Face
    tuning : InteriorPointTuning
    """

    def __init__(self, face: Face, tuning: InteriorPointTuning) -> None:
        self._face, self._tuning = face, tuning

    @property
    def order(self) -> int:
        return self._face.order

    def root(self, X: Array) -> Array | None:
        return root_of(self._face.compress(X))

    def project(self, X: Array) -> Array:
        return self._face.lift(self._face.compress(X)) if self._face.codimension else X

    def inverse(self, root: Array) -> Array:
        if self.order == 0:
            return np.zeros((self._face.n,) * 2)
        return self._face.lift(inverse_of(root))

    def identity(self) -> Array:
        return self._face.lift(np.eye(self.order))

    def traces(self, X: Array) -> Array:
        return np.array([np.trace(X)])

    def weighted(self, X: Array, weights: Array) -> Array:
        return float(weights[0]) * X

    def compressed(self, S: Array) -> Array:
        return self._face.compress(S)[None]

    def lifted(self, M: Array) -> Array:
        return self._face.lift(M[0])

    def primal_length(self, X: Array, root: Array, step: Array, tol: float) -> float:
        return primal_length(X, root, step, self._face, tol, self._tuning)

    def dual_length(self, Z: Array, root: Array, K: Array, step: Any, tol: float) -> float:
        return dual_length(Z, root, K, step, self._face, tol, self._tuning)


class StackCone:
    """Psd matrices of equal order, each on the whole cone. A root consists of inverse Cholesky factors.

    Parameters
    ----------
    count, n : int
        Number of matrices and their order.
    """

    def __init__(self, count: int, n: int) -> None:
        self._count, self._n = count, n

    @property
    def order(self) -> int:
        return self._count * self._n

    def root(self, X: Array) -> Array | None:
        try:
            root = np.linalg.cholesky(X)
            inverse_root = np.linalg.inv(root)
        except np.linalg.LinAlgError:
            return None
        return inverse_root if math.isfinite(float(inverse_root.sum())) else None

    def project(self, X: Array) -> Array:
        return X

    def inverse(self, root: Array) -> Array:
        return np.swapaxes(root, 1, 2) @ root

    def identity(self) -> Array:
        return np.tile(np.eye(self._n), (self._count, 1, 1))

    def traces(self, X: Array) -> Array:
        traces: Array = np.einsum("bii->b", X)
        return traces

    def weighted(self, X: Array, weights: Array) -> Array:
        return weights[:, None, None] * X

    def compressed(self, S: Array) -> Array:
        return S

    def lifted(self, M: Array) -> Array:
        return M

    def primal_length(self, X: Array, root: Array, step: Array, tol: float) -> float:
        scaled = root @ step @ np.swapaxes(root, 1, 2)
        return length_to_boundary(float(np.linalg.eigvalsh(scaled)[:, 0].min()))

    def dual_length(self, Z: Array, root: Array, K: Array, step: Any, tol: float) -> float:
        return self.primal_length(Z, root, dense(step), tol)
