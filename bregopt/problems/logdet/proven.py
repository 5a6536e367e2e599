"""What all answers of this package have: a status by a proven gap, and read-only arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bregopt import clock
from bregopt.certify import Certificate
from bregopt.errors import ConvergenceWarning, warn_caller
from bregopt.program import StopReason

__all__ = ["ProvenAnswer", "verdict"]


@dataclass(frozen=True, eq=False, repr=False)
class ProvenAnswer:
    """The base of ellipsoids, designs and capacities. Arrays are read-only, so that the proof stays valid.

    Attributes
    ----------
    status : str
        "optimal" if `gap` is at most the tolerance; see :class:`bregopt.certify.Status`.
    stop_reason : str
        Why the method stopped, with advice.
    gap : float
        Proven, computed from the data.
    iterations : int
        Newton steps.
    """

    title: ClassVar[str]

    status: str
    stop_reason: str
    gap: float
    iterations: int

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()  # pickle does not keep the flag

    def __repr__(self) -> str:
        facts = {**self._facts(), "stopped": self.stop_reason}
        lines = [f"bregopt {self.title}: {self.status}"]
        return "\n".join([*lines, *(f"  {name:<11} {fact}" for name, fact in facts.items())])

    def _facts(self) -> dict[str, str]:
        """Return what the card shows, by name."""
        raise NotImplementedError


def verdict(gap: float, tol: float, name: str) -> dict[str, Any]:
    """Return the fields of an answer that follow from its gap; warn where it is above the tolerance.

    Parameters
    ----------
    gap, tol : float
    name : str
        The function, for the warning.
    """
    certificate = Certificate(math.nan, math.nan, gap, 0.0, 0.0, math.nan)
    reason = StopReason.TIME_LIMIT if clock.remaining() <= 0 else StopReason.STALLED
    reason = StopReason.CONVERGED if certificate.meets(tol) else reason
    status = certificate.status(tol, reason)
    if reason is not StopReason.CONVERGED:
        warn_caller(f"{name}: {status}, gap {gap:.1e}. {reason}", ConvergenceWarning)
    return {"status": status.value, "stop_reason": reason.value, "gap": gap}
