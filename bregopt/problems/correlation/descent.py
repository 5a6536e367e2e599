"""Descents on a factor ``R`` of the part ``R R'`` that is near a matrix: their objective, result, and proof.

The objective is ``||off(B - R R')||_F^2``, where ``off`` drops the diagonal. With ``q_i = ||r_i||^2`` it is
``||off(B)||^2 - 2 <R, off(B) R> + ||R'R||^2 - ||q||^2``: one product of ``off(B)`` and a thin matrix a step.
It is not convex: a bound on the global optimum gives an answer its status.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.certify import Certificate, bracket
from bregopt.program import StopReason
from bregopt.records import dataclass

__all__ = [
    "ROUND_OFF",
    "Descent",
    "Objective",
    "distance",
    "proven_certificate",
    "proven_fields",
    "top_squares",
]

_SLICE = 200_000  # entries of a slice of ``B - R R'``, which fits the cache
ROUND_OFF = 4 * EPS  # relative round-off of eigenvalues, for each row
_RESOLUTION = 1e-6  # of the squared norm of the data: values below are round-off of the bounds


@dataclass(frozen=True, eq=False)
class Descent:
    """The best point of a descent.

    Parameters
    ----------
    R : array of shape (n, k)
    values : list of float
        The objectives of all steps.
    residual : float
        The norm of the projected gradient at the last point, relative to that of ``4 off(B)``.
    stop : StopReason
        Why it is the last; ``CONVERGED`` if the residual meets its tolerance.
    """

    R: Array
    values: list[float]
    residual: float
    stop: StopReason


class Objective:
    """``||off(B - R R')||_F^2`` and its gradient.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    """

    def __init__(self, B: Array) -> None:
        self.B = B
        self.square = float(np.vdot(B, B))

    def at(self, R: Array) -> tuple[float, Array, Array]:
        """Return the value, the gradient, and ``R'R``."""
        BR, gram = self.B @ R, R.T @ R
        q = np.einsum("ij,ij->i", R, R)
        value = self.square - 2 * float(np.vdot(R, BR)) + float(np.vdot(gram, gram)) - float(q @ q)
        return value, 4 * (R @ gram - BR - q[:, None] * R), gram


def distance(B: Array, R: Array) -> float:
    """Return ``||off(B - R R')||_F^2`` from the entries, so that no digits cancel."""
    n, total = len(B), 0.0
    step = max(1, _SLICE // n)
    for a in range(0, n, step):
        left = B[a : a + step] - R[a : a + step] @ R.T
        left[np.arange(len(left)), np.arange(a, a + len(left))] = 0.0
        total += float(np.vdot(left, left))
    return total


def proven_fields(
    descent: Descent, value: float, bound: float, unit: float, constant: float, tol: float
) -> dict[str, Any]:
    """Return the fields of a :class:`~bregopt.Solution` that say how good a feasible answer is.

    The status is that of every other answer: a local optimum is "optimal" where the bound proves it.

    Parameters
    ----------
    descent : Descent
        Its values are without the `constant`.
    value, bound : float
        The objective, and a proven bound on that of every feasible matrix.
    unit : float
        The squared norm of the data.
    constant : float
        The part of the objective that does not depend on the answer.
    tol : float
        The largest gap of a global optimum.
    """
    values = np.array(descent.values) + constant
    certificate = proven_certificate(value, bound, unit)
    stop = StopReason.LOCAL_OPTIMUM if descent.stop is StopReason.CONVERGED else descent.stop
    return {
        "status": certificate.status(tol, stop).value,
        "stop_reason": _reason(descent, value, bound, certificate.meets(tol)),
        "value": value,
        "dual_value": bound,
        "gap": certificate.gap,
        "primal_residual": 0.0,
        "dual_residual": 0.0,
        "error": certificate.error,
        "iterations": len(values) - 1,
        "history": {
            "iteration": np.arange(float(len(values))),
            "value": values,
            "gap": np.array([proven_certificate(v, bound, unit).gap for v in values.tolist()]),
        },
    }


def proven_certificate(value: float, bound: float, unit: float) -> Certificate:
    """Return the certificate of a value and a bound on all, whose round-off is a fraction of `unit`."""
    return bracket(value, min(bound, value), resolution=_RESOLUTION * unit)


def _reason(descent: Descent, value: float, bound: float, optimal: bool) -> str:
    """Return why the descent stopped, and what is proven."""
    if optimal:
        return StopReason.CONVERGED.value
    proven = f"no allowed matrix has a value below {bound:.6g}, {max(bound / value, 0.0):.1%} of this one"
    if descent.stop is StopReason.CONVERGED:
        return f"A local optimum (relative residual {descent.residual:.0e}). Proven: {proven}."
    return f"{descent.stop} Proven: {proven}."


def top_squares(eigenvalues: Array, k: int, size: float) -> float:
    """Return an upper bound on the sum of the `k` largest squared positive eigenvalues.

    Parameters
    ----------
    eigenvalues : array of shape (m,)
        As computed, ascending; all, or the largest.
    k : int
    size : float
        The norm of the matrix times its order.
    """
    top = np.maximum(eigenvalues[-k:] + ROUND_OFF * size, 0.0)
    return float(top @ top) * (1 + k * EPS)
