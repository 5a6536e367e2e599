"""The primal-dual interior-point method that routes share, and the route `path`, which is that method."""

from bregopt.routes.ipm.central_path import follow_path
from bregopt.routes.ipm.iterate import Direction, Iterate
from bregopt.routes.ipm.linear_solvers import DefiniteFactor, conjugate_gradients
from bregopt.routes.ipm.newton_point import RightHandSide, ScalingPoint, Step
from bregopt.routes.ipm.path_route import Path, PathSettings
from bregopt.routes.ipm.primal_dual import PrimalDual
from bregopt.routes.ipm.row_action import RowAction
from bregopt.routes.ipm.schur import Gram
from bregopt.routes.ipm.start import first_iterate, warm_iterate
from bregopt.routes.ipm.systems import system_for
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = [
    "DefiniteFactor",
    "Direction",
    "Gram",
    "InteriorPointTuning",
    "Iterate",
    "Path",
    "PathSettings",
    "PrimalDual",
    "RightHandSide",
    "RowAction",
    "ScalingPoint",
    "Step",
    "conjugate_gradients",
    "first_iterate",
    "follow_path",
    "system_for",
    "warm_iterate",
]
