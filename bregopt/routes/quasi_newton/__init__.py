"""L-BFGS on positive definite matrices with a fourth-moment preconditioner: one pass over the rows a step."""

from bregopt.routes.quasi_newton.lbfgs import curve_of, descent_along, line_search, quasi_newton
from bregopt.routes.quasi_newton.objective import Objective, Point
from bregopt.routes.quasi_newton.preconditioner import preconditioner, relative_curvature

__all__ = [
    "Objective",
    "Point",
    "curve_of",
    "descent_along",
    "line_search",
    "preconditioner",
    "quasi_newton",
    "relative_curvature",
]
