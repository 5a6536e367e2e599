"""The route `path`: semidefinite programs by following their central path."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import Array
from bregopt.program import Program, find_faces
from bregopt.solvers import base
from bregopt.solvers.base import Answer, Capabilities, Start
from bregopt.solvers.path.central_path import follow_path
from bregopt.solvers.path.slacks import fold_slacks
from bregopt.solvers.progress import Progress
from bregopt.solvers.solution import StopReason

__all__ = ["Path", "PathSettings"]

_MATRICES = 16  # of each block's order, held at a time
_SCHUR = 3  # of the order of the rows
_SHARE = 0.8  # of the machine's memory


class PathSettings(base.Settings):
    """Options of the route `path`."""


class Path:
    """A primal-dual interior-point method for linear objectives: the LogDet problem for ``mu`` to zero."""

    name: ClassVar[str] = "path"
    summary: ClassVar[str] = "linear objectives over matrices of order up to a few thousand (any SDP)"
    citation: ClassVar[str] = (
        "Kulis, Sustik, Dhillon (2009), Low-Rank Kernel Learning with Bregman Matrix Divergences, JMLR 10; "
        "Helmberg, Rendl, Vanderbei, Wolkowicz (1996), An Interior-Point Method for Semidefinite "
        "Programming, SIAM J. Optim. 6"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(objectives=frozenset({"linear"}))
    Settings: ClassVar[type[base.Settings]] = PathSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        if not program.blocks:
            return "the problem has no matrix variable"
        needed, there = memory_needed(program), _memory()
        if there is not None and needed > _SHARE * there:
            return f"it would need {needed / 1e9:.1f} GB of memory, this machine has {there / 1e9:.1f} GB"
        return None

    def choice(self, program: Program, settings: Any) -> str:
        found = find_faces(program).summary
        memory = f"{max(memory_needed(program) / 1e6, 1):.0f} MB of memory at most"
        return memory + (f"; {found}" if found else "")

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        idle = _idle(program)
        if idle is not None:
            none = tuple(np.zeros((block.n, block.n)) for block in program.blocks)
            return Answer(none, idle, np.zeros(program.m), StopReason.UNBOUNDED, 0)
        folded = fold_slacks(program)
        begin = None if start is None else folded.shrink(start)
        return folded.restore(follow_path(find_faces(folded.program), settings, begin, progress))


def _idle(program: Program) -> Array | None:
    """Return the direction of the variables without bound or row that have a price, if there are any."""
    end = np.where(program.c > 0, program.u_lo, program.u_hi)
    idle = (program.c != 0) & np.isinf(end) & (program.column_sizes == 0)
    return np.where(idle, -np.sign(program.c), 0.0) if idle.any() else None


def memory_needed(program: Program) -> int:
    """Return about how many bytes a solution takes."""
    return 8 * (_MATRICES * sum(block.n**2 for block in program.blocks) + _SCHUR * program.m**2)


def _memory() -> int | None:
    """Return the machine's memory in bytes, None where the system does not say."""
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
