"""The route `entropy`: semidefinite programs with convex terms, such as entropies, in objective and rows."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from bregopt.program import Answer, Penalty, Program, Start, StopReason
from bregopt.records import dataclass
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.entropy.interior_point import EntropyPath
from bregopt.routes.monitor import Monitor
from bregopt.routes.progress import Progress

__all__ = ["Entropy"]

_STEPS = 200


class Entropy:
    """A primal-dual interior-point method with the terms' own second derivatives."""

    name: ClassVar[str] = "entropy"
    summary: ClassVar[str] = "entropies and other convex functions of affine arguments, beside psd matrices"
    citation: ClassVar[str] = (
        "Nesterov, Todd (1997), Self-scaled barriers and interior-point methods for convex programming, "
        "Mathematics of Operations Research 22"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear"}), penalties=frozenset(), matrices=8, terms=True
    )
    Settings: ClassVar[type[base.Settings]] = base.Settings

    def refusal(self, program: Program, settings: Any) -> str | None:
        if not program.terms:
            return "the problem has no entropy or other convex term; path is faster"
        return None

    def choice(self, program: Program, settings: Any) -> str:
        names = dict.fromkeys(term.function.name for term in program.terms)
        return f"an interior-point method with the second derivatives of {', '.join(names)}"

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        method = EntropyPath(program)
        monitor = Monitor(program, settings, progress)
        at, stop, step, _ = monitor.follow(method, method.first(), settings.max_iter or _STEPS)
        X, u = method.point(at)
        return Answer(tuple(X), u, at.y, stop, step)
