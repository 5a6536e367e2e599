"""DefiniteBoost: the route for trace-one problems in the von Neumann divergence."""

from bregopt.routes.definiteboost.route import DefiniteBoost, DefiniteBoostSettings
from bregopt.routes.definiteboost.tuning import DefiniteBoostTuning

__all__ = [
    "DefiniteBoost",
    "DefiniteBoostSettings",
    "DefiniteBoostTuning",
]
