"""Sparse inverse covariance estimation (graphical lasso) by proximal gradient and Newton steps.

``screening`` separates the rows into connected parts. ``descent`` solves one of them, with the Newton
direction of ``newton`` on vectors of ``face``, and ``splitting`` where that makes no progress (``part``).
``solve`` puts the parts together, and ``recognition`` finds the problem in a program.
"""

from bregopt.routes.graphical_lasso.recognition import LassoProgram, as_lasso
from bregopt.routes.graphical_lasso.solve import LassoAnswer, solve_lasso
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["LassoAnswer", "LassoProgram", "LassoTuning", "as_lasso", "solve_lasso"]
