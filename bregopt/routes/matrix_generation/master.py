"""What the two restricted masters have in common: their result, and their scale.

The scale makes the tolerances of their solvers independent of the scale of the data.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.program import LowRank, Program
from bregopt.records import dataclass

__all__ = ["Outcome", "Scale", "State"]


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


class Scale:
    """Factors that scale rows, ordinary variables and the objective to size one, like the trace.

    Parameters
    ----------
    program : Program
        One block.
    tau : float
        The bound on the trace.

    Attributes
    ----------
    row : array of shape (m,)
    variable : array of shape (k,)
    objective : float
    """

    def __init__(self, program: Program, tau: float) -> None:
        size = tau * program.A.norms()
        alone = np.asarray(abs(program.B).max(axis=1).todense()).ravel() if program.k else np.zeros(program.m)
        size = np.where(size > 0, size, np.where(alone > 0, alone, 1.0))
        self.row = 1 / size
        self.variable = np.ones(program.k)
        if program.k:
            largest = np.asarray(abs(sp.diags_array(self.row) @ program.B).max(axis=0).todense()).ravel()
            self.variable = 1 / np.where(largest > 0, largest, 1.0)
        (block,) = program.blocks
        terms = [] if block.cost is None else [tau * float(norm) for norm in block.cost.norms()]
        terms.append(float(np.abs(program.c * self.variable).max(initial=0.0)))
        self.objective = max(terms) or 1.0
