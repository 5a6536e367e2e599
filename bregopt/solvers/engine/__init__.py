"""The primal-dual Newton method that routes share: all rows at once."""

from bregopt.solvers.engine.primal_dual import Iterate, PrimalDual

__all__ = ["Iterate", "PrimalDual"]
