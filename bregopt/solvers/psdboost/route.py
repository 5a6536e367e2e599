"""The route `psdboost`: matrix generation for linear objectives over matrices of bounded trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from bregopt.program import Penalty, Program
from bregopt.solvers import base
from bregopt.solvers.base import Answer, Capabilities, Start
from bregopt.solvers.progress import Progress
from bregopt.solvers.psdboost.generation import matrix_generation

__all__ = ["PSDBoost", "PSDBoostSettings"]


@dataclass(frozen=True, kw_only=True)
class PSDBoostSettings(base.Settings):
    """Options of the route `psdboost`; ``cuts_per_round=1, smoothing=0`` is Algorithm 1 as published.

    Parameters
    ----------
    cuts_per_round : int
        Eigenvectors added in each round.
    smoothing : float in [0, 1)
        Weight of the best multipliers so far in those that are priced (Wentges), against tailing off.
    """

    cuts_per_round: int = 5
    smoothing: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.cuts_per_round, bool) or not isinstance(self.cuts_per_round, int):
            raise TypeError(f"cuts_per_round is {self.cuts_per_round!r}; expected an integer")
        if self.cuts_per_round < 1:
            raise ValueError(f"cuts_per_round is {self.cuts_per_round}; expected at least 1")
        if not isinstance(self.smoothing, int | float):
            raise TypeError(f"smoothing is {self.smoothing!r}; expected a number")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing is {self.smoothing}; expected 0 <= smoothing < 1")


class PSDBoost:
    """Matrix generation with a linear-programming master, for one matrix of bounded trace."""

    name: ClassVar[str] = "psdboost"
    summary: ClassVar[str] = "linear objectives over a trace-bounded matrix and LP variables (margin SDPs)"
    citation: ClassVar[str] = (
        "Shen, Welsh, Wang (2008), PSDBoost: Matrix-Generation Linear Programming for Positive "
        "Semidefinite Matrices Learning, NIPS 21"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear"}),
        blocks=1,
        penalties=frozenset({Penalty.HARD, Penalty.HINGE}),
        needs_trace_bound=True,
    )
    Settings: ClassVar[type[base.Settings]] = PSDBoostSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        return None

    def choice(self, program: Program, settings: Any) -> str:
        return (
            f"HiGHS master, {settings.cuts_per_round} eigenvectors a round, smoothing {settings.smoothing:g}"
        )

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        return matrix_generation(program, settings, start, progress)
