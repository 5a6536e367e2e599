"""Newton's direction on a face of the orthant, by conjugate gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.routes.graphical_lasso.face import Face
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["newton_direction"]


def newton_direction(
    face: Face, X: Array, W: Array, g: Array, x: Array, signs: Array, tuning: LassoTuning
) -> Any:
    """Return an approximate minimizer ``D`` of ``<G, D> + <D, W D W> / 2`` on a face, as a vector.

    ``X R X`` is the preconditioner: on the space of all symmetric matrices it inverts the Hessian. Products
    of large matrices are in single precision, which is enough for a direction.

    Parameters
    ----------
    face : Face
    X, W : array of shape (n, n)
        A positive definite matrix and its inverse.
    g, x, signs : array
        Vectors of the face: the gradient ``G``, ``X`` and its signs.
    tuning : LassoTuning
    """
    kind: Any = np.float32 if len(X) >= tuning.single_order else np.float64
    X, W = X.astype(kind, copy=False), W.astype(kind, copy=False)
    r: Any = -g.astype(kind, copy=False)
    d = np.zeros_like(r)
    enough = tuning.face_decrease**2 * face.inner(r, r)
    p = z = face.congruence(X, r)
    rz = face.inner(r, z)
    for _ in range(tuning.face_steps):
        q = face.congruence(W, p)
        curvature = face.inner(p, q)
        if not curvature > 0:
            break
        step = rz / curvature
        d += step * p
        r -= step * q
        changed = np.count_nonzero((x + d) * signs < 0)
        if changed > tuning.changed_signs * len(d) or face.inner(r, r) <= enough:
            break
        z = face.congruence(X, r)
        before, rz = rz, face.inner(r, z)
        p = z + rz / before * p
    return d
