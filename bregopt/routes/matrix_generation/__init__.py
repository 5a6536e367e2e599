"""PSDBoost: matrix generation for trace-bounded problems."""

from bregopt.routes.matrix_generation.route import PSDBoost, PSDBoostSettings

__all__ = ["PSDBoost", "PSDBoostSettings"]
