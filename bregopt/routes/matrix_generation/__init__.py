"""PSDBoost: matrix generation for trace-bounded problems."""

from bregopt.routes.matrix_generation.route import PSDBoost, PSDBoostSettings
from bregopt.routes.matrix_generation.tuning import MatrixGenerationTuning

__all__ = ["MatrixGenerationTuning", "PSDBoost", "PSDBoostSettings"]
