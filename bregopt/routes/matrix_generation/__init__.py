"""PSDBoost: matrix generation for trace-bounded problems."""

from bregopt.routes.matrix_generation.generation import PSDBoost, PSDBoostSettings
from bregopt.routes.matrix_generation.oracle import MatrixGenerationTuning

__all__ = ["MatrixGenerationTuning", "PSDBoost", "PSDBoostSettings"]
