"""The result of a verification: proven bounds, or the reason why a side is not proven."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bregopt.rigorous.certificate import BoundCertificate
from bregopt.tables import html_table

__all__ = ["Verification"]

_NAMES = ("lower", "upper")


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
        return self.lower == self.upper and self._no_answer == "infeasible"

    @property
    def unbounded(self) -> bool:
        """Whether the problem is proven unbounded."""
        return self.lower == self.upper and self._no_answer == "unbounded"

    @property
    def proven(self) -> str:
        """What is proven, as one sentence."""
        if math.isinf(self.lower) and self.lower == self.upper:
            return f"the problem is {self._no_answer}"
        sides = [not math.isinf(self.lower), not math.isinf(self.upper)]
        if all(sides):
            return f"the optimum is between {self.lower:.17g} and {self.upper:.17g}"
        if sides[0]:
            return f"the optimum is at least {self.lower:.17g}"
        return f"the optimum is at most {self.upper:.17g}" if sides[1] else "nothing"

    @property
    def _no_answer(self) -> str:
        if not math.isinf(self.lower):
            return ""
        maximize = self.certificate is not None and self.certificate.data.maximize
        return "infeasible" if (self.lower > 0) != maximize else "unbounded"

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("lower", f"{self.lower:.16g}"), ("upper", f"{self.upper:.16g}")]
        if not math.isinf(self.width):
            facts.append(("width", f"{self.width:.1e}, relative {self.relative_width:.1e}"))
        facts += [(f"no {name}", self.reasons[name]) for name in _NAMES if name in self.reasons]
        facts += [("given", text) for text in self.given]
        return [*facts, ("effort", f"{self.seconds:.3g} s, {self.solves} further solves")]

    def __repr__(self) -> str:
        lines = [
            f"bregopt verification: {self.proven if math.isinf(self.width) else 'both bounds are proven'}"
        ]
        return "\n".join([*lines, *(f"  {name:<10} {fact}" for name, fact in self._facts())])

    def _repr_html_(self) -> str:
        return html_table((), [("proven", self.proven), *self._facts()], left=2)
