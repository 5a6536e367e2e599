"""Conditions on the rows: one fixes the trace, and none is feasible only on the boundary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bregopt.arrays import Array
from bregopt.errors import UnsupportedProblemError
from bregopt.program import Program
from bregopt.routes.definiteboost.boost import Boost
from bregopt.routes.definiteboost.tuning import DefiniteBoostTuning

__all__ = ["Trace", "impossible", "no_trace", "trace_row"]


@dataclass(frozen=True)
class Trace:
    """The row ``weight tr X = weight value``."""

    row: int
    weight: float
    value: float

    def with_trace_multiplier(self, program: Program, y: Array) -> Array:
        """Return multipliers whose trace part makes ``A*(y)`` just negative semidefinite."""
        rest = np.where(np.arange(program.m) == self.row, 0.0, y)
        rest[self.row] = -float(np.linalg.eigvalsh(program.A.adjoint(rest))[-1]) / self.weight
        return rest


def trace_row(program: Program, tuning: DefiniteBoostTuning) -> Trace | None:
    """Return the first hard equality on a multiple of the identity with a positive trace."""
    for row, weight in _identities(program, tuning):
        if program.bounds.equal[row] and program.bounds.lo[row] / weight > 0:
            return Trace(row, weight, float(program.bounds.lo[row]) / weight)
    return None


def no_trace(program: Program, tuning: DefiniteBoostTuning) -> str:
    """Return why no row fixes the trace: the row that comes nearest, if there is one."""
    (block,) = program.blocks
    needed = f"it needs one row that fixes the trace of {block.name}, such as bo.trace({block.name}) == 1"
    for row, _ in _identities(program, tuning):
        why = "asks for no positive trace" if program.bounds.equal[row] else "bounds the trace only"
        return f"{needed}; {program.row_name(row)} {why}"
    return needed


def _identities(program: Program, tuning: DefiniteBoostTuning) -> Iterator[tuple[int, float]]:
    """Yield the hard rows on a multiple of the identity, with the multiple."""
    (block,) = program.blocks
    n = block.n
    for term in program.A.terms:
        if term.rows.rank is not None and term.rows.rank < n:
            continue
        hard = np.flatnonzero(program.bounds.hard[term.at])
        t = term.rows.slice(hard).coordinates()
        own = t.i == t.j
        weight = np.bincount(t.row[own], t.value[own], len(hard)) / n
        norm = term.norms[hard]
        # The diagonal mean equals the root mean square over all entries only for multiples of the identity.
        identity = np.abs(weight) * np.sqrt(n) >= norm * (1 - tuning.row_round_off)
        for k in np.flatnonzero(identity & (norm > 0)):
            yield int(term.at[hard[k]]), float(weight[k])


def impossible(
    program: Program, boost: Boost, lo: Array, hi: Array, tuning: DefiniteBoostTuning
) -> Array | None:
    """Return a Farkas vector of a row that no matrix of the trace satisfies, None if there is none.

    Raises
    ------
    UnsupportedProblemError
        If a row holds only on the boundary of the cone, which steps cannot reach.
    """
    size = tuning.row_round_off * boost.trace * np.maximum(np.abs(boost.least), np.abs(boost.largest))
    distance = np.maximum(boost.trace * boost.least - hi, lo - boost.trace * boost.largest)
    beyond = np.flatnonzero(distance > size)
    if len(beyond):
        farkas = np.zeros(program.m)
        farkas[beyond[0]] = 1.0 if lo[beyond[0]] > boost.trace * boost.largest[beyond[0]] else -1.0
        return farkas
    edge = np.flatnonzero((distance >= -size) & (boost.range > 0))
    if len(edge):
        raise UnsupportedProblemError(
            f"{program.row_name(int(edge[0]))} holds only on the boundary of the psd cone at this trace, "
            "which DefiniteBoost does not reach"
        )
    return None
