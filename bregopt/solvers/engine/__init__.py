"""The primal-dual Newton method that routes share: all rows at once."""

from bregopt.solvers.engine.primal_dual import Iterate, PrimalDual
from bregopt.solvers.engine.systems import Newton, conjugate_gradients, system_for

__all__ = ["Iterate", "Newton", "PrimalDual", "conjugate_gradients", "system_for"]
