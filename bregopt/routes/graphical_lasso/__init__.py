"""Sparse inverse covariance estimation (graphical lasso) by proximal Newton's method.

``screening`` separates the rows into connected parts, ``splitting`` and ``newton`` solve one of them, the
latter with the quadratic model of ``model`` on vectors of ``face``. ``solve`` puts the parts together, and
``recognition`` finds the problem in a program.
"""

from bregopt.routes.graphical_lasso.recognition import LassoProgram, as_lasso
from bregopt.routes.graphical_lasso.solve import LassoAnswer, solve_lasso
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["LassoAnswer", "LassoProgram", "LassoTuning", "as_lasso", "solve_lasso"]
