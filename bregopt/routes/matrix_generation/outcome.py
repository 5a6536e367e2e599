"""How a restricted master ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bregopt.arrays import Array
from bregopt.program import LowRank

__all__ = ["Outcome", "State"]


class State(Enum):
    """How a master ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    FAILED = "failed"
    CUT_SHORT = "cut short"
    AGAIN = "again"  # rows came in that it had not looked at


@dataclass(frozen=True, eq=False)
class Outcome:
    """A solved master, in the program's units.

    Parameters
    ----------
    state : State
    X : LowRank
    u : array of shape (k,)
        Ordinary variables; a direction where the master is unbounded.
    y : array of shape (m,)
        Multipliers, positive at lower bounds; a Farkas vector of the master where it is infeasible.
    joined : int
        Rows that the next master will look at for the first time.
    """

    state: State
    X: LowRank
    u: Array
    y: Array
    joined: int = 0
