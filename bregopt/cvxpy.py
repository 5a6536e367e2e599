"""bregopt for CVXPY users: importing this module adds ``problem.solve(method="bregopt")`` to CVXPY.

:data:`BREGOPT` is a conic solver for ``problem.solve(solver=BREGOPT)``; :func:`register` gives it a name.
"""

from __future__ import annotations

import cvxpy as cp

from bregopt.interop.cvxpy_problems.method import solve
from bregopt.interop.cvxpy_solver import BREGOPT, register

__all__ = ["BREGOPT", "register", "solve"]

cp.Problem.register_solve("bregopt", solve)
