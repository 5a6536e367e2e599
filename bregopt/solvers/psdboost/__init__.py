"""PSDBoost: matrix generation for trace-bounded problems."""

from bregopt.solvers.psdboost.route import PSDBoost, PSDBoostSettings

__all__ = ["PSDBoost", "PSDBoostSettings"]
