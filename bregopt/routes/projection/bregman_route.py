"""The route `bregman`: nearness problems by Bregman projection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bregopt.arrays import Array
from bregopt.errors import did_you_mean, is_one_of
from bregopt.program import Answer, Program, Start
from bregopt.records import dataclass
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.progress import Progress
from bregopt.routes.projection.algorithms import KULIS, METHODS, QI_SUN
from bregopt.routes.projection.tuning import ProjectionTuning

if TYPE_CHECKING:
    from bregopt.certify import Certificate
    from bregopt.program.entry_stack import EntryStack
    from bregopt.routes.projection.stacked_answer import StackedAnswer

__all__ = ["Bregman", "BregmanSettings"]


@dataclass(frozen=True, kw_only=True)
class BregmanSettings(base.Settings):
    """Options of the route `bregman`.

    Parameters
    ----------
    method : {"auto", "newton", "cyclic"}
        "newton" moves all rows at once, "cyclic" projects on one row of one matrix at a time. "auto" uses
        "cyclic" for LogDet with a single row, where one projection gives the solution, and "newton"
        otherwise. Where soft rows with smooth penalties are many and the matrix small, "auto" begins with
        L-BFGS, whose iterations are passes over the rows.
    tuning : ProjectionTuning
        Numerical constants of the method.
    """

    method: str = "auto"
    tuning: ProjectionTuning = ProjectionTuning()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_one_of(self.method, METHODS):
            raise ValueError(f"method is {self.method!r}{did_you_mean(str(self.method), METHODS)}")


class Bregman:
    """Bregman projection of matrices, each with its divergence: LogDet, von Neumann, Frobenius or yours."""

    name: ClassVar[str] = "bregman"
    summary: ClassVar[str] = "nearness in LogDet, von Neumann or Frobenius divergence; full or low rank"
    citation: ClassVar[str] = KULIS
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear", "barrier", "spectrum", "point", "weights"}),
        caps=True,
        matrices=8,
        reductions=("slacks",),
    )
    Settings: ClassVar[type[base.Settings]] = BregmanSettings

    # Each method imports what it runs: one small matrix needs no method for programs or stacks.

    def refusal(self, program: Program, settings: Any) -> str | None:
        from bregopt.routes.projection.solve import refusal

        return refusal(program, settings)

    def choice(self, program: Program, settings: Any) -> str:
        from bregopt.routes.projection.solve import choice

        return choice(program, settings)

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        from bregopt.routes.projection.solve import solve

        return solve(program, settings, start, progress)

    def solve_directly(
        self, program: Program, settings: Any, progress: Progress
    ) -> tuple[Answer, Certificate] | None:
        """Solve a program with rows on entries alone, and certify the answer; None for all others."""
        from bregopt.routes.projection.solve import solve_directly

        return solve_directly(program, settings, progress)

    def solve_stack(self, stack: EntryStack, settings: Any, start: Array | None = None) -> StackedAnswer:
        """Solve a stack of nearness problems with bounds on entries; some of them may stay unsolved.

        `start` has multipliers of all rows, shape (B, m). LogDet's method has no use for them.
        """
        from bregopt.routes.projection.stacked_newton import solve_stack

        return solve_stack(stack, settings, start)

    @staticmethod
    def citation_of(divergence: str) -> str:
        """Return the reference of the method for stacks."""
        return QI_SUN if divergence == "frobenius" else KULIS
