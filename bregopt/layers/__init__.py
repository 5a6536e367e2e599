"""Problems as differentiable functions of NumPy arrays.

:mod:`bregopt.torch` and :mod:`bregopt.jax` wrap them for automatic differentiation.
"""

from bregopt.layers.correlation_stack import CorrelationStack
from bregopt.layers.problem_function import ProblemFunction

__all__ = ["CorrelationStack", "ProblemFunction"]
