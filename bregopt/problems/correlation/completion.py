"""The completion of largest determinant of a matrix with unknown entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array, Mask
from bregopt.modeling.atoms import diag
from bregopt.modeling.objectives import Minimize, logdet_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.psd import PSD

__all__ = ["completed"]

_TOL = 1e-9  # of the completion, which is data of the nearness problem


def completed(A: Array, unknown: Mask) -> Array:
    """Return the positive definite matrix of largest determinant with the known entries of `A`.

    Its inverse is zero at the unknown entries (Grone, Johnson, Sa, Wolkowicz 1984, Positive definite
    completions of partial Hermitian matrices). It exists if and only if there is a positive definite
    completion.

    Raises
    ------
    ValueError
        If there is none.
    """
    d = A.diagonal()
    if (d <= 0).any():
        raise ValueError(f"A has {d.min():g} on the diagonal; expected numbers above 0")
    s = np.sqrt(d)
    C = A / np.outer(s, s)
    X = PSD(len(A), name="X")
    i, j = np.nonzero(np.triu(~unknown, 1))
    rows: list[Any] = [diag(X) == 1]
    if len(i):
        rows.append(X[i, j] == C[i, j])
    if (np.abs(C[i, j]) < 1).all():
        solution = Problem(Minimize(logdet_div(X, np.eye(len(A)))), rows).solve(tol=_TOL)
        if solution.status == "optimal":
            full: Array = np.where(unknown, solution.X, C) * np.outer(s, s)
            return full
    raise ValueError(
        "the known entries of A have no positive definite completion, which LogDet and von Neumann start "
        "from: repair A first, with divergence='frobenius', missing='unknown' and min_eigenvalue"
    )
