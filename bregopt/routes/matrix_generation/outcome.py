"""The result of a restricted master."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bregopt.arrays import Array
from bregopt.program import LowRank

__all__ = ["Outcome", "State"]


class State(Enum):
    """The status of a restricted master."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    FAILED = "failed"
    CUT_SHORT = "cut short"
    AGAIN = "again"  # rows joined that it had not included


@dataclass(frozen=True, eq=False)
class Outcome:
    """A solved master, in the program's units.

    Parameters
    ----------
    state : State
    X : LowRank
    u : array of shape (k,)
        Ordinary variables; a ray if the master is unbounded.
    y : array of shape (m,)
        Multipliers, positive at lower bounds; a Farkas vector of the master if it is infeasible.
    joined : int
        Number of rows that join the next master.
    """

    state: State
    X: LowRank
    u: Array
    y: Array
    joined: int = 0
