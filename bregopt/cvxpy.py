"""bregopt for CVXPY users: importing this module adds ``problem.solve(method="bregopt")`` to CVXPY."""

from __future__ import annotations

import cvxpy as cp

from bregopt.interop.cvxpy_problems.method import solve

__all__ = ["solve"]

cp.Problem.register_solve("bregopt", solve)
