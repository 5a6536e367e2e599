"""The route `psdboost`: matrix generation for linear objectives over matrices of bounded trace."""

from __future__ import annotations

from typing import Any, ClassVar

from bregopt.arrays import positive_number
from bregopt.certify import with_trace_row
from bregopt.errors import is_one_of
from bregopt.program import Answer, Penalty, Program, Start
from bregopt.records import dataclass
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.matrix_generation.generation import matrix_generation
from bregopt.routes.matrix_generation.tuning import MatrixGenerationTuning
from bregopt.routes.progress import Progress

__all__ = ["PSDBoost", "PSDBoostSettings"]

# Eigenvectors in a round of the semidefinite master from this number of rows: a master with many rows costs
# more with each direction.
_MANY_ROWS_CUTS, _MANY_ROWS = 8, 2_500


_MASTERS = ("auto", "lp", "psd")


@dataclass(frozen=True, kw_only=True)
class PSDBoostSettings(base.Settings):
    """Options of the route `psdboost`.

    ``master="lp", cuts_per_round=1, smoothing=0`` is Algorithm 1 of Shen et al. as published.

    Parameters
    ----------
    master : {"auto", "lp", "psd"}
        The master problem over the directions so far: a linear or a small semidefinite program.
    cuts_per_round : int, optional
        Eigenvectors added in each round; by default 5 for the linear master, 16 for the semidefinite one, and
        8 if that has many rows. For the latter two it doubles after a round that leaves more than half of the
        gap.
    smoothing : float in [0, 1) or "auto"
        Weight of the best multipliers so far in the priced ones (Wentges), against the tailing-off of the
        linear master. The semidefinite master's multipliers are central and need no smoothing.
    trace_bound : float, optional
        An upper bound on the trace, if no rows give one. It becomes a row of the problem: the answer and its
        certificate are those of ``tr X <= trace_bound``.
    tuning : MatrixGenerationTuning
        Numerical constants of the method.
    """

    master: str = "auto"
    cuts_per_round: int | None = None
    smoothing: float | str = "auto"
    trace_bound: float | None = None
    tuning: MatrixGenerationTuning = MatrixGenerationTuning()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trace_bound is not None:
            positive_number(self.trace_bound, "trace_bound")
        if not isinstance(self.master, str):
            raise TypeError(f"master is {self.master!r}; expected one of {', '.join(map(repr, _MASTERS))}")
        if self.master not in _MASTERS:
            raise ValueError(f"master is {self.master!r}; expected one of {', '.join(map(repr, _MASTERS))}")
        if self.cuts_per_round is not None:
            if isinstance(self.cuts_per_round, bool) or not isinstance(self.cuts_per_round, int):
                raise TypeError(f"cuts_per_round is {self.cuts_per_round!r}; expected an integer")
            if self.cuts_per_round < 1:
                raise ValueError(f"cuts_per_round is {self.cuts_per_round}; expected at least 1")
        if is_one_of(self.smoothing, ("auto",)):
            return
        if isinstance(self.smoothing, bool) or not isinstance(self.smoothing, int | float):
            raise TypeError(f'smoothing is {self.smoothing!r}; expected a number or "auto"')
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing is {self.smoothing}; expected 0 <= smoothing < 1")

    def completed(self, program: Program) -> Program:
        """Return the program with the bound on the trace, if given, as its last row."""
        if self.trace_bound is None or len(program.blocks) != 1:
            return program
        return with_trace_row(program, 0, float(self.trace_bound))

    @property
    def published(self) -> bool:
        """Whether the linear master is the paper's, which keeps every direction."""
        return self.cuts_per_round == 1 and self.smoothing == 0

    def cuts(self, master: str, rows: int) -> int:
        """Return the number of eigenvectors added in each round of a master with `rows` rows."""
        if self.cuts_per_round is not None:
            return self.cuts_per_round
        tuning = self.tuning
        if master == "lp":
            return tuning.linear_cuts
        return tuning.semidefinite_cuts if rows < _MANY_ROWS else _MANY_ROWS_CUTS


class PSDBoost:
    """Matrix generation with a linear or a semidefinite master, for one matrix of bounded trace."""

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
        matrices=4,
        reductions=("slacks", "faces"),
    )
    Settings: ClassVar[type[base.Settings]] = PSDBoostSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        return None

    def choice(self, program: Program, settings: Any) -> str:
        master, why = _master(settings)
        cuts = f"{settings.cuts(master, program.m)} eigenvectors a round"
        if master == "psd":
            return f"semidefinite master ({why}), {cuts}"
        smoothing = settings.smoothing if settings.smoothing == "auto" else f"{settings.smoothing:g}"
        return f"HiGHS master ({why}), {cuts}, smoothing {smoothing}"

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        return matrix_generation(program, settings, _master(settings)[0], start, progress)


# Pays on: a matrix game, n = 24.
def _master(settings: Any) -> tuple[str, str]:
    """Return the name of the master, and the reason for it."""
    if settings.master != "auto":
        return settings.master, "as asked"
    if settings.smoothing != "auto":
        return "lp", "which smoothing is for"
    return "psd", "in few rounds"
