"""The result of a verification: proven bounds, or the reason why a side is not proven."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bregopt.rigorous.certificate import BoundCertificate, stated
from bregopt.tables import html_table

__all__ = ["ProvenBound", "Verification"]

_NAMES = ("lower", "upper")


class ProvenBound(NamedTuple):
    """A bound of a problem that counts all rounding.

    Parameters
    ----------
    value : float
        A lower bound of a minimization, an upper bound of a maximization.
    reason : str
        Why nothing is proven; empty where something is.
    X : array, or a tuple of those, or None
        The matrices of the answer that led to it, for heuristics and the choice of branches.
    u : dict from str to float or array
        Its ordinary variables by name.
    """

    value: float
    reason: str
    X: Any
    u: dict[str, Any]


@dataclass(frozen=True)
class Verification:
    """Bounds on the optimal value that hold in spite of all rounding, in the user's sign of the objective.

    Attributes
    ----------
    lower, upper : float
        The optimum lies between them; ``-inf`` and ``inf`` where a side is not proven. Both are ``inf``
        (``-inf`` for a maximization) if the problem is proven infeasible, and the other infinity if it is
        proven unbounded.
    reasons : dict from str to str
        For each side that is not proven, "lower" or "upper", the reason and the next step.
    given : tuple of str
        Bounds that the caller stated and the proof uses: it holds if they do.
    intervals : tuple of str
        The parameters for every value of which, in their intervals, the bounds hold.
    seconds : float
        The time of the proof, with that of further solves.
    solves : int
        The further solves that looked for more interior points.
    certificate : BoundCertificate
        The data and the points of the proof; ``certificate.save(file)`` writes them, and ``bregopt verify
        FILE`` checks them again.
    """

    lower: float
    upper: float
    reasons: dict[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    intervals: tuple[str, ...] = ()
    seconds: float = 0.0
    solves: int = 0
    certificate: BoundCertificate | None = field(default=None, repr=False)

    @property
    def width(self) -> float:
        """``upper - lower``; zero if the problem is proven infeasible or unbounded."""
        return 0.0 if self.lower == self.upper else self.upper - self.lower

    @property
    def relative_width(self) -> float:
        """The width divided by the larger magnitude of the bounds, but by no less than one."""
        if self.width == 0 or math.isinf(self.width):
            return self.width
        return self.width / max(1.0, abs(self.lower), abs(self.upper))

    @property
    def infeasible(self) -> bool:
        """Whether the problem is proven infeasible."""
        return self.lower == self.upper == (-math.inf if self._maximize else math.inf)

    @property
    def unbounded(self) -> bool:
        """Whether the problem is proven unbounded."""
        return self.lower == self.upper == (math.inf if self._maximize else -math.inf)

    @property
    def proven(self) -> str:
        """What is proven, as one sentence."""
        return stated(self.lower, self.upper, self._maximize)

    @property
    def _maximize(self) -> bool:
        return self.certificate is not None and self.certificate.data.maximize

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("lower", f"{self.lower:.16g}"), ("upper", f"{self.upper:.16g}")]
        if math.isfinite(self.lower) and math.isfinite(self.upper):
            facts.append(("width", f"{self.width:.1e}, relative {self.relative_width:.1e}"))
        facts += [(f"no {name}", self.reasons[name]) for name in _NAMES if name in self.reasons]
        facts += [("given", text) for text in self.given]
        if self.intervals:
            facts.append(("for all", f"values of {', '.join(self.intervals)} in their intervals"))
        return [*facts, ("effort", f"{self.seconds:.3g} s, {self.solves} further solves")]

    def __repr__(self) -> str:
        finite = math.isfinite(self.lower) and math.isfinite(self.upper)
        lines = [f"bregopt verification: {'both bounds are proven' if finite else self.proven}"]
        return "\n".join([*lines, *(f"  {name:<10} {fact}" for name, fact in self._facts())])

    def _repr_html_(self) -> str:
        return html_table((), [("proven", self.proven), *self._facts()], left=2)
