"""Sparse inverse covariance estimation (graphical lasso) by Newton's method with the penalty.

``screening`` separates the rows into connected parts. ``neighborhoods`` gives the start of one of them
(``point``), ``descent`` takes its Newton steps with the ``model`` on a ``face``, and ``splitting`` replaces
them where they make no progress (``part``). ``solve`` puts the parts together, and ``recognition`` finds the
problem in a program.
"""

from bregopt.routes.graphical_lasso.recognition import LassoProgram, as_lasso
from bregopt.routes.graphical_lasso.solve import LassoAnswer, solve_lasso
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["LassoAnswer", "LassoProgram", "LassoTuning", "as_lasso", "solve_lasso"]
