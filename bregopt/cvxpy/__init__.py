"""bregopt for CVXPY users: importing this module adds ``method="bregopt"`` and ``solver="BREGOPT"`` to CVXPY.

The method reads problems as they were written; the solver takes their conic form and is also :data:`BREGOPT`.
"""

from __future__ import annotations

import cvxpy as cp

from bregopt.cvxpy.conic_solver import BREGOPT, register
from bregopt.cvxpy.problems.method import solve

__all__ = ["BREGOPT", "register", "solve"]

cp.Problem.register_solve("bregopt", solve)
register()
