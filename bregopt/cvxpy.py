"""bregopt for CVXPY users: importing this module adds ``method="bregopt"`` and ``solver="BREGOPT"`` to CVXPY.

The first reads problems as they were written; the second is a conic solver, also held as :data:`BREGOPT`.
"""

from __future__ import annotations

import cvxpy as cp

from bregopt.interop.cvxpy_problems.method import solve
from bregopt.interop.cvxpy_solver import BREGOPT, register

__all__ = ["BREGOPT", "register", "solve"]

cp.Problem.register_solve("bregopt", solve)
register()
