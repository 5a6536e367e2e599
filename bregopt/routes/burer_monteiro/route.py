"""The route `lowrank`: large sparse problems with a fixed diagonal or trace, by ``X = R R'``."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

from bregopt.program import Answer, Penalty, Program, Start, sparse_plus_low_rank
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.burer_monteiro.staircase import Staircase, first_columns
from bregopt.routes.burer_monteiro.surface import read_surface
from bregopt.routes.burer_monteiro.tuning import BurerMonteiroTuning
from bregopt.routes.progress import Progress
from bregopt.threads import threads_for

__all__ = ["LowRankRoute", "LowRankSettings"]


@dataclass(frozen=True, kw_only=True)
class LowRankSettings(base.Settings):
    """Options of the route `lowrank`.

    Parameters
    ----------
    rank : int, optional
        Columns of the first ``R``; more are added if needed. By default 12, with
        planes such as ``e'Xe == 0`` 24, and for orders above 5000 40, or 16 where `tol` is at least 5e-3.
    factor : LowRank, array of shape (n, k) or (n,), optional
        The first ``R``: a factor, such as that of an earlier answer, or a vector of signs (a partition).
    tuning : BurerMonteiroTuning
        Numerical constants of the method.
    """

    rank: int | None = None
    factor: Any = None
    tuning: BurerMonteiroTuning = BurerMonteiroTuning()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank is None:
            return
        if isinstance(self.rank, bool) or not isinstance(self.rank, Integral):
            raise TypeError(f"rank is {self.rank!r}; expected an integer")
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}; expected at least 1")


class LowRankRoute:
    """Burer and Monteiro's factorization, with bounds that are proven at any final point."""

    name: ClassVar[str] = "lowrank"
    summary: ClassVar[str] = "large sparse problems with a fixed diagonal or trace (cuts of graphs)"
    citation: ClassVar[str] = (
        "Burer, Monteiro (2003), A Nonlinear Programming Algorithm for Solving Semidefinite Programs via "
        "Low-Rank Factorization, Math. Program. 95; Boumal, Voroninski, Bandeira (2016), The Non-convex "
        "Burer-Monteiro Approach Works on Smooth Semidefinite Programs, NIPS 29"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear"}),
        blocks=1,
        variables=False,
        penalties=frozenset({Penalty.HARD}),
    )
    Settings: ClassVar[type[base.Settings]] = LowRankSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        sparse = sparse_plus_low_rank(program)
        if sparse is None:
            return "its cost or its rows have too many terms"
        if read_surface(program, sparse, settings.tuning) is None:
            (block,) = program.blocks
            return f"it needs rows that fix diag({block.name}) above 0, or the trace"
        return None

    def choice(self, program: Program, settings: Any) -> str:
        (block,) = program.blocks
        sparse = sparse_plus_low_rank(program)
        surface = None if sparse is None else read_surface(program, sparse, settings.tuning)
        assert surface is not None
        others = program.m - len(surface.rows) - len(surface.planes)
        fixed = "trace" if len(surface.rows) == 1 and block.n > 1 else "diagonal"
        more = f" and {others} more row{'s' if others > 1 else ''}" if others else ""
        columns = first_columns(program, surface, settings)
        return f"R of {columns} columns at first, on the spheres of the {fixed}{more}"

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        sparse = sparse_plus_low_rank(program)
        assert sparse is not None
        surface = read_surface(program, sparse, settings.tuning)
        assert surface is not None
        with threads_for(1):  # thin matrices: more threads would mostly wait
            return Staircase(program, sparse, surface, settings, start, progress).run()
