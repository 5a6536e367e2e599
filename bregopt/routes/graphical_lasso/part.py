"""The method for one connected part: splitting to a rough answer, Newton's method from there.

Where Newton's steps do not reduce the gap as they should, splitting takes over for another few digits.
"""

from __future__ import annotations

from collections.abc import Callable

from bregopt.certify.graphical_lasso import LassoData
from bregopt.clock import CutShort, checkpoint
from bregopt.program import StopReason
from bregopt.routes.graphical_lasso.newton import newton_step
from bregopt.routes.graphical_lasso.point import LassoPoint
from bregopt.routes.graphical_lasso.splitting import Splitting
from bregopt.routes.graphical_lasso.tuning import LassoTuning
from bregopt.routes.progress import reason

__all__ = ["Watch", "solve_part"]

Watch = Callable[[LassoPoint], StopReason | None]


def solve_part(
    data: LassoData, at: LassoPoint, target: float, limit: int, tuning: LassoTuning, watch: Watch
) -> tuple[LassoPoint, StopReason]:
    """Reduce the distance of value and bound to at most `target`.

    Parameters
    ----------
    data : LassoData
        The diagonal of ``S`` and penalty is one.
    at : LassoPoint
    target : float
    limit : int
        Largest number of steps.
    tuning : LassoTuning
    watch : callable
        Called after each step; a reason ends the work.

    Returns
    -------
    (LassoPoint, StopReason)
        UNBOUNDED if ``X`` is a direction along which the objective falls without end.
    """
    splitting, single, slow, idle = Splitting(data, tuning), data.n >= tuning.single_order, 0, 0
    size = max(abs(at.value), abs(at.bound) if at.bound > -float("inf") else 0.0, data.n)
    handover, running = max(target, tuning.rough_gap * size), False
    try:
        for _ in range(limit):
            if at.error <= target:
                return at, StopReason.CONVERGED
            checkpoint(data.n)
            before = at.error
            if before > handover:
                if not running:
                    splitting.start(at, handover >= tuning.single_gap * size)
                    running = True
                at = splitting.advance(at)
            else:
                running = False
                at = newton_step(data, at, tuning, single)
                slow = slow + 1 if at.error > tuning.newton_ratio * before else 0
                if slow:
                    single = False
                if slow > tuning.slow_steps:
                    handover, slow = max(target, before / tuning.handover_factor), 0
            if data.linear_part(at.X) <= 0:
                return at, StopReason.UNBOUNDED
            idle = 0 if at.error < before else idle + 1
            stop = StopReason.STALLED if idle > tuning.idle_steps else watch(at)
            if stop is not None:
                return at, stop
    except CutShort as cut:
        return at, reason(cut)
    return at, StopReason.CONVERGED if at.error <= target else StopReason.MAX_ITER
