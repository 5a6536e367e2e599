"""The route `lowrank`: ``X = R R'`` for problems on large graphs."""

from bregopt.solvers.lowrank.route import LowRankRoute, LowRankSettings

__all__ = ["LowRankRoute", "LowRankSettings"]
