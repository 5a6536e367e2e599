"""The route `lowrank`: ``X = R R'`` for problems on large graphs."""

from bregopt.routes.burer_monteiro.lagrangian import BurerMonteiroTuning
from bregopt.routes.burer_monteiro.route import LowRankRoute, LowRankSettings

__all__ = ["BurerMonteiroTuning", "LowRankRoute", "LowRankSettings"]
