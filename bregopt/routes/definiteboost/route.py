"""The route `definiteboost`: one row at a time, with a bound on the number of steps."""

from __future__ import annotations

from typing import Any, ClassVar

from bregopt.errors import did_you_mean, is_one_of
from bregopt.program import Answer, Program, Start
from bregopt.records import dataclass
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.definiteboost.boost import no_trace, project, trace_row
from bregopt.routes.definiteboost.search import no_margin, search
from bregopt.routes.definiteboost.tuning import DefiniteBoostTuning
from bregopt.routes.progress import Progress

__all__ = ["DefiniteBoost", "DefiniteBoostSettings"]

_STEPS = ("approximate", "exact")
_ORDERS = ("most_violated", "cyclic")


@dataclass(frozen=True, kw_only=True)
class DefiniteBoostSettings(base.Settings):
    """Options of the route `definiteboost`.

    ``corrections=False`` is Algorithm 2 of Tsuda et al. as published. It finds a feasible matrix, which is
    the nearest one only if no step went too far.

    Parameters
    ----------
    step : {"approximate", "exact"}
        A step by the formula (4.6), or onto the row (4.3).
    order : {"most_violated", "cyclic"}
        The order of rows. An iteration is one step, or one cycle over all rows.
    corrections : bool
        Whether steps also go back on satisfied rows with a nonzero multiplier.
    tuning : DefiniteBoostTuning
        Numerical constants of the method.
    """

    step: str = "approximate"
    order: str = "most_violated"
    corrections: bool = True
    tuning: DefiniteBoostTuning = DefiniteBoostTuning()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("step", _STEPS), ("order", _ORDERS)):
            value = getattr(self, name)
            if not is_one_of(value, known):
                raise ValueError(f"{name} is {value!r}{did_you_mean(str(value), known)}")
        if not isinstance(self.corrections, bool):
            raise TypeError(f"corrections is {self.corrections!r}; expected True or False")

    @property
    def exact(self) -> bool:
        """Whether steps go exactly onto their row."""
        return self.step == "exact"

    @property
    def cyclic(self) -> bool:
        """Whether rows are processed in order."""
        return self.order == "cyclic"


class DefiniteBoost:
    """AdaBoost for matrices: steps on rows for a von Neumann objective, or one margin, at a fixed trace."""

    name: ClassVar[str] = "definiteboost"
    summary: ClassVar[str] = "von Neumann nearness or a margin at a fixed trace, in a bounded number of steps"
    citation: ClassVar[str] = (
        "Tsuda, Rätsch, Warmuth (2005), Matrix Exponentiated Gradient Updates for On-line Learning and "
        "Bregman Projection, JMLR 6"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"exponential", "linear"}), blocks=1, penalties=frozenset(), matrices=8
    )
    Settings: ClassVar[type[base.Settings]] = DefiniteBoostSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        if not program.blocks:
            return "the problem has no matrix variable"
        (block,) = program.blocks
        # The objective first: no row for the trace would mend it.
        if block.nearness is None:
            reason, least = no_margin(program), settings.tuning.least_margin_tol
        else:
            reason, least = None, 0.0
            if program.k:
                reason = "it does not take ordinary variables with a divergence"
        if reason is None and trace_row(program, settings.tuning) is None:
            reason = no_trace(program, settings.tuning)
        if reason is None and settings.tol < least:
            reason = f"its search over the margin is for tol={least:g} or more, not {settings.tol:g}"
        return reason

    def choice(self, program: Program, settings: Any) -> str:
        row = "row after row" if settings.cyclic else "on the most violated row"
        back = "with corrections" if settings.corrections else "as published"
        return f"{settings.step} steps {row}, {back}"

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        trace = trace_row(program, settings.tuning)
        assert trace is not None
        (block,) = program.blocks
        run = search if block.nearness is None else project
        return run(program, trace, settings, start, progress)
