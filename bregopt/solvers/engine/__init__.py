"""The primal-dual Newton method that routes share: all rows at once."""

from bregopt.solvers.engine.action import RowAction
from bregopt.solvers.engine.central_path import follow_path
from bregopt.solvers.engine.gram import Gram
from bregopt.solvers.engine.iterate import Direction, Iterate
from bregopt.solvers.engine.linear import DefiniteFactor, conjugate_gradients
from bregopt.solvers.engine.primal_dual import PrimalDual
from bregopt.solvers.engine.scene import Pull, Scene, Step
from bregopt.solvers.engine.start import first_iterate, warm_iterate
from bregopt.solvers.engine.systems import system_for

__all__ = [
    "DefiniteFactor",
    "Direction",
    "Gram",
    "Iterate",
    "PrimalDual",
    "Pull",
    "RowAction",
    "Scene",
    "Step",
    "conjugate_gradients",
    "first_iterate",
    "follow_path",
    "system_for",
    "warm_iterate",
]
