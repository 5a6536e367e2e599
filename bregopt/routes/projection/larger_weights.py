"""Programs of larger weights, whose answers are first points for Newton's method on the dual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.program import Program
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["demanded_growth", "enlarging", "weighing"]


def weighing(program: Program, mu: Array) -> Program:
    """Return the program with other weights of its divergences, an array with one for each block."""
    blocks = []
    for block, weight in zip(program.blocks, mu.tolist(), strict=True):
        assert block.nearness is not None
        blocks.append(replace(block, nearness=replace(block.nearness, mu=weight)))
    return replace(program, blocks=tuple(blocks))


def enlarging(program: Program, ratio: float) -> Program:
    """Return the program with ``mu`` and ``X0`` of its LogDet terms multiplied by `ratio`.

    The dual function of such a term has the same domain.
    """
    blocks = []
    for block in program.blocks:
        nearness = block.nearness
        assert nearness is not None
        if nearness.kind.barrier:
            nearness = replace(nearness, mu=ratio * nearness.mu, X0=ratio * np.asarray(nearness.X0))
        blocks.append(replace(block, nearness=nearness))
    return replace(program, blocks=tuple(blocks))


def demanded_growth(program: Program, X: Sequence[Array], activity: Array, tuning: ProjectionTuning) -> float:
    """Return the largest ratio of the size that a violated row demands of ``X`` to its least eigenvalue.

    Only rows in blocks with a LogDet term count; zero without one. Enlarged by the ratio, ``X`` is large
    enough for all rows, and Newton's method shrinks it in few steps.
    """
    bounds, largest = program.bounds, 0.0
    violated = bounds.violation(activity) > 0
    for term in program.A.terms:
        nearness = program.blocks[term.block].nearness
        if nearness is not None and nearness.kind.barrier:
            least = float(np.linalg.eigvalsh(X[term.block])[0])
            used = violated[term.at] & (term.norms > 0)
            demanded = bounds.sizes[term.at][used] / term.norms[used]
            largest = max(largest, float(demanded.max(initial=0.0)) / max(least, TINY))
    return min(largest, tuning.start_growth**tuning.start_trials)
