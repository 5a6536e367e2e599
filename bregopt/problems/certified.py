"""The solution of a ready-made problem with a changed answer and the certificate of that answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bregopt.certify import Certificate
from bregopt.routes.solution import Solution

__all__ = ["certified"]


def certified(solution: Solution, certificate: Certificate, **changes: Any) -> Solution:
    """Return a solution with the numbers of a certificate, and other changes."""
    return replace(
        solution,
        value=certificate.primal,
        dual_value=certificate.dual,
        gap=certificate.gap,
        primal_residual=certificate.primal_residual,
        dual_residual=certificate.dual_residual,
        error=certificate.error,
        **changes,
    )
