"""bregopt for CVXPY: the conic solver :data:`BREGOPT`."""

from bregopt.interop.cvxpy_solver import BREGOPT, register

__all__ = ["BREGOPT", "register"]
