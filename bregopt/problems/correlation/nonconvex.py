"""Answers to nonconvex problems: their status from a bound on the global optimum, and its round-off."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.certify import Certificate, bracket
from bregopt.problems.correlation.descent import Descent
from bregopt.program import StopReason

__all__ = ["ROUND_OFF", "proven_certificate", "proven_fields", "top_squares"]

ROUND_OFF = 4 * EPS  # relative round-off of eigenvalues, for each row

_RESOLUTION = 1e-6  # of the squared norm of the data: values below are round-off of the bounds


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
