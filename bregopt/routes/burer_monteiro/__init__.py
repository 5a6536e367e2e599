"""The route `lowrank`: ``X = R R'`` for problems on large graphs."""

from bregopt.routes.burer_monteiro.route import LowRankRoute, LowRankSettings
from bregopt.routes.burer_monteiro.tuning import BurerMonteiroTuning

__all__ = ["BurerMonteiroTuning", "LowRankRoute", "LowRankSettings"]
