"""DefiniteBoost: the route for trace-one problems in the von Neumann divergence."""

from bregopt.routes.definiteboost.boost import DefiniteBoostTuning
from bregopt.routes.definiteboost.route import DefiniteBoost, DefiniteBoostSettings

__all__ = [
    "DefiniteBoost",
    "DefiniteBoostSettings",
    "DefiniteBoostTuning",
]
