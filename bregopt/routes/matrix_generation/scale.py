"""The scale of a master, which makes its solvers' tolerances independent of the scale of the data."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bregopt.program import Program

__all__ = ["Scale"]


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
