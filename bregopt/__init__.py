"""bregopt: declare convex problems over positive semidefinite matrices, solve them fast, with a certificate.

This list is the complete public surface, with the learners of `bregopt.learn` and `bregopt.online`.
"""

import importlib as _importlib

from bregopt.crosscheck import CrossCheck, cross_check
from bregopt.errors import (
    ConvergenceWarning,
    DataWarning,
    InfeasibleRowError,
    PluginWarning,
    SolverError,
    UnsupportedProblemError,
)
from bregopt.io.dimacs import dimacs_errors
from bregopt.io.sdpa_reader import read_sdpa
from bregopt.io.sdpa_writer import write_sdpa
from bregopt.modeling.atoms import diag, inner, quad_form, sq_distance, sum, trace
from bregopt.modeling.bounds import between, soft
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.expressions import Expression
from bregopt.modeling.largest_eigenvalue import lambda_max
from bregopt.modeling.objectives import (
    Maximize,
    Minimize,
    bregman_div,
    frobenius_div,
    logdet_div,
    sum_squares,
    von_neumann_div,
)
from bregopt.modeling.problem import Problem
from bregopt.modeling.second_order import norm2
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.problems.cut import Cut, lovasz_theta, max_cut, min_balanced_cut
from bregopt.problems.from_cvxpy import from_cvxpy
from bregopt.problems.kernel import learn_kernel
from bregopt.problems.margin import soft_margin
from bregopt.problems.nearest import nearest_correlation, nearest_psd
from bregopt.problems.solutions import Solutions
from bregopt.program.lowrank import LowRank
from bregopt.routes.options import tuning
from bregopt.routes.registry import register_solver, solvers
from bregopt.routes.solution import Solution

__version__ = "0.1.0"

__all__ = [
    "PSD",
    "Constraint",
    "ConvergenceWarning",
    "CrossCheck",
    "Cut",
    "DataWarning",
    "Expression",
    "InfeasibleRowError",
    "LowRank",
    "Maximize",
    "Minimize",
    "Parameter",
    "PluginWarning",
    "Problem",
    "Solution",
    "Solutions",
    "SolverError",
    "UnsupportedProblemError",
    "Variable",
    "between",
    "bregman_div",
    "cross_check",
    "diag",
    "dimacs_errors",
    "frobenius_div",
    "from_cvxpy",
    "inner",
    "lambda_max",
    "learn_kernel",
    "logdet_div",
    "lovasz_theta",
    "max_cut",
    "min_balanced_cut",
    "nearest_correlation",
    "nearest_psd",
    "norm2",
    "quad_form",
    "read_sdpa",
    "register_solver",
    "soft",
    "soft_margin",
    "solvers",
    "sq_distance",
    "sum",
    "sum_squares",
    "trace",
    "tuning",
    "von_neumann_div",
    "write_sdpa",
]

_LAZY = ("learn", "online")  # packages that need scikit-learn, imported on first use


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, *_LAZY, "__version__"))
