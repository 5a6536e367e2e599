"""bregopt: declare convex problems over positive semidefinite matrices, solve them fast, with a certificate.

This list is the complete public surface, with the learners of `bregopt.learn` and `bregopt.online`.
"""

import importlib as _importlib
import logging as _logging
from typing import TYPE_CHECKING as _TYPE_CHECKING

from bregopt.errors import (
    ConvergenceWarning,
    DataWarning,
    InfeasibleRowError,
    PluginWarning,
    SolverError,
    UnsupportedProblemError,
)
from bregopt.modeling.atoms import diag, quad_form, sq_distance, sum, trace
from bregopt.modeling.block_matrices import bmat, hstack, vstack
from bregopt.modeling.constraints import Constraint, CutRows, MatrixInequality, cut_rows
from bregopt.modeling.convex.eigenvalues import lambda_max, lambda_min, lambda_sum_largest, log_det
from bregopt.modeling.convex.expression import ConvexConstraint, CurvedExpression, Maximize, Minimize
from bregopt.modeling.expressions import Expression, between, soft
from bregopt.modeling.objectives import bregman_div, frobenius_div, logdet_div, von_neumann_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.program.rows.base import LowRank
from bregopt.routes.registry import register_solver, solvers, tuning
from bregopt.routes.solution import Solution

if _TYPE_CHECKING:
    from bregopt.chunks import RowChunks, TripletChunks
    from bregopt.crosscheck import CrossCheck, cross_check, dimacs_errors, verify
    from bregopt.cvxpy.problems.lower import from_cvxpy
    from bregopt.io.cbf import read_cbf, write_cbf
    from bregopt.io.sdpa import read_sdpa, write_sdpa
    from bregopt.io.spec import load_spec
    from bregopt.many import solve_many
    from bregopt.modeling.atoms import inner
    from bregopt.modeling.block_matrices import kron, partial_trace, partial_transpose
    from bregopt.modeling.complex_expressions import conj, imag, real
    from bregopt.modeling.convex.eigenvalues import norm_nuc, sigma_max
    from bregopt.modeling.convex.elementwise import abs, log, max, maximum, min, minimum, pos, square
    from bregopt.modeling.convex.norms import norm1, norm2, norm_inf, quad_over_lin, sum_squares
    from bregopt.problems.correlation.answer import CorrelationReport, CorrelationSolution
    from bregopt.problems.correlation.covariance import nearest_covariance
    from bregopt.problems.correlation.estimates import (
        PairwiseCorrelation,
        pairwise_correlation,
        shrink_correlation,
    )
    from bregopt.problems.correlation.factors import FactorModel, factor_correlation
    from bregopt.problems.correlation.infeasibility import Suggestion
    from bregopt.problems.correlation.nearest import nearest_correlation
    from bregopt.problems.cuts.branch_and_bound.certificate import CutCertificate
    from bregopt.problems.cuts.communities import Communities, communities
    from bregopt.problems.cuts.cut import BinaryMinimum, Cut, max_cut, min_balanced_cut, qubo
    from bregopt.problems.cuts.partition import Partition, partition
    from bregopt.problems.cuts.theta import ThetaNumber, lovasz_theta
    from bregopt.problems.logdet.capacity import ChannelCapacity, mimo_capacity, water_filling
    from bregopt.problems.logdet.designs import Design, a_optimal, d_optimal, e_optimal
    from bregopt.problems.logdet.exact_designs import ExactDesign
    from bregopt.problems.logdet.john_ellipsoid import max_volume_inscribed_ellipsoid
    from bregopt.problems.logdet.lasso import graphical_lasso, graphical_lasso_path
    from bregopt.problems.logdet.loewner_ellipsoid import Ellipsoid, min_volume_ellipsoid
    from bregopt.problems.logdet.precision import (
        GraphicalLassoPath,
        GraphicalLassoSolution,
        PrecisionSolution,
        covariance_selection,
        max_det_completion,
    )
    from bregopt.problems.metric_learning import learn_kernel, soft_margin
    from bregopt.problems.nearest_psd import nearest_psd
    from bregopt.problems.reports import PanelReport
    from bregopt.problems.solutions import Solutions
    from bregopt.rigorous.file.certificate import BoundCertificate, ProvenBound, Verification
    from bregopt.routes.conflict import Conflict

__version__ = "0.2.0"

_logging.getLogger(__name__).addHandler(_logging.NullHandler())

__all__ = [
    "PSD",
    "BinaryMinimum",
    "BoundCertificate",
    "ChannelCapacity",
    "Communities",
    "Conflict",
    "Constraint",
    "ConvergenceWarning",
    "ConvexConstraint",
    "CorrelationReport",
    "CorrelationSolution",
    "CrossCheck",
    "CurvedExpression",
    "Cut",
    "CutCertificate",
    "CutRows",
    "DataWarning",
    "Design",
    "Ellipsoid",
    "ExactDesign",
    "Expression",
    "FactorModel",
    "GraphicalLassoPath",
    "GraphicalLassoSolution",
    "InfeasibleRowError",
    "LowRank",
    "MatrixInequality",
    "Maximize",
    "Minimize",
    "PairwiseCorrelation",
    "PanelReport",
    "Parameter",
    "Partition",
    "PluginWarning",
    "PrecisionSolution",
    "Problem",
    "ProvenBound",
    "RowChunks",
    "Solution",
    "Solutions",
    "SolverError",
    "Suggestion",
    "ThetaNumber",
    "TripletChunks",
    "UnsupportedProblemError",
    "Variable",
    "Verification",
    "a_optimal",
    "abs",
    "between",
    "bmat",
    "bregman_div",
    "communities",
    "conj",
    "covariance_selection",
    "cross_check",
    "cut_rows",
    "d_optimal",
    "diag",
    "dimacs_errors",
    "e_optimal",
    "entr",
    "exp",
    "factor_correlation",
    "frobenius_div",
    "from_cvxpy",
    "graphical_lasso",
    "graphical_lasso_path",
    "hstack",
    "imag",
    "inner",
    "key_rate",
    "kl_div",
    "kron",
    "lambda_max",
    "lambda_min",
    "lambda_sum_largest",
    "learn_kernel",
    "load_spec",
    "log",
    "log_det",
    "log_sum_exp",
    "logdet_div",
    "logistic",
    "lovasz_theta",
    "max",
    "max_cut",
    "max_det_completion",
    "max_volume_inscribed_ellipsoid",
    "maximum",
    "mimo_capacity",
    "min",
    "min_balanced_cut",
    "min_volume_ellipsoid",
    "minimum",
    "nearest_correlation",
    "nearest_covariance",
    "nearest_psd",
    "norm1",
    "norm2",
    "norm_inf",
    "norm_nuc",
    "pairwise_correlation",
    "partial_trace",
    "partial_transpose",
    "partition",
    "pos",
    "quad_form",
    "quad_over_lin",
    "quantum_cond_entr",
    "quantum_rel_entr",
    "qubo",
    "read_cbf",
    "read_sdpa",
    "real",
    "register_solver",
    "rel_entr",
    "shrink_correlation",
    "sigma_max",
    "soft",
    "soft_margin",
    "solve_many",
    "solvers",
    "sq_distance",
    "square",
    "sum",
    "sum_squares",
    "trace",
    "trace_logm",
    "tuning",
    "verify",
    "von_neumann_div",
    "von_neumann_entr",
    "vstack",
    "water_filling",
    "write_cbf",
    "write_sdpa",
]

# Packages, and names with their modules, that are imported on first use: most sessions need few of them, and
# the packages need scikit-learn.
_PACKAGES = ("learn", "online")
_MODULES = {
    "RowChunks": "bregopt.chunks",
    "TripletChunks": "bregopt.chunks",
    "CrossCheck": "bregopt.crosscheck",
    "cross_check": "bregopt.crosscheck",
    "read_cbf": "bregopt.io.cbf",
    "write_cbf": "bregopt.io.cbf",
    "dimacs_errors": "bregopt.crosscheck",
    "read_sdpa": "bregopt.io.sdpa",
    "write_sdpa": "bregopt.io.sdpa",
    "load_spec": "bregopt.io.spec",
    "solve_many": "bregopt.many",
    "abs": "bregopt.modeling.convex.elementwise",
    "log": "bregopt.modeling.convex.elementwise",
    "maximum": "bregopt.modeling.convex.elementwise",
    "minimum": "bregopt.modeling.convex.elementwise",
    "pos": "bregopt.modeling.convex.elementwise",
    "square": "bregopt.modeling.convex.elementwise",
    "max": "bregopt.modeling.convex.elementwise",
    "min": "bregopt.modeling.convex.elementwise",
    "norm1": "bregopt.modeling.convex.norms",
    "norm2": "bregopt.modeling.convex.norms",
    "norm_inf": "bregopt.modeling.convex.norms",
    "norm_nuc": "bregopt.modeling.convex.eigenvalues",
    "sigma_max": "bregopt.modeling.convex.eigenvalues",
    "quad_over_lin": "bregopt.modeling.convex.norms",
    "sum_squares": "bregopt.modeling.convex.norms",
    "inner": "bregopt.modeling.atoms",
    "kron": "bregopt.modeling.block_matrices",
    "partial_trace": "bregopt.modeling.block_matrices",
    "partial_transpose": "bregopt.modeling.block_matrices",
    "conj": "bregopt.modeling.complex_expressions",
    "imag": "bregopt.modeling.complex_expressions",
    "real": "bregopt.modeling.complex_expressions",
    "CorrelationSolution": "bregopt.problems.correlation.answer",
    "nearest_covariance": "bregopt.problems.correlation.covariance",
    "FactorModel": "bregopt.problems.correlation.factors",
    "factor_correlation": "bregopt.problems.correlation.factors",
    "nearest_correlation": "bregopt.problems.correlation.nearest",
    "pairwise_correlation": "bregopt.problems.correlation.estimates",
    "CorrelationReport": "bregopt.problems.correlation.answer",
    "PairwiseCorrelation": "bregopt.problems.correlation.estimates",
    "PanelReport": "bregopt.problems.reports",
    "shrink_correlation": "bregopt.problems.correlation.estimates",
    "Suggestion": "bregopt.problems.correlation.infeasibility",
    "BinaryMinimum": "bregopt.problems.cuts.cut",
    "Communities": "bregopt.problems.cuts.communities",
    "communities": "bregopt.problems.cuts.communities",
    "Cut": "bregopt.problems.cuts.cut",
    "CutCertificate": "bregopt.problems.cuts.branch_and_bound.certificate",
    "max_cut": "bregopt.problems.cuts.cut",
    "min_balanced_cut": "bregopt.problems.cuts.cut",
    "ThetaNumber": "bregopt.problems.cuts.theta",
    "lovasz_theta": "bregopt.problems.cuts.theta",
    "Partition": "bregopt.problems.cuts.partition",
    "partition": "bregopt.problems.cuts.partition",
    "qubo": "bregopt.problems.cuts.cut",
    "from_cvxpy": "bregopt.cvxpy.problems.lower",
    "entr": "bregopt.modeling.convex.entropies",
    "exp": "bregopt.modeling.convex.entropies",
    "key_rate": "bregopt.modeling.convex.entropies",
    "kl_div": "bregopt.modeling.convex.entropies",
    "log_sum_exp": "bregopt.modeling.convex.entropies",
    "logistic": "bregopt.modeling.convex.entropies",
    "quantum_cond_entr": "bregopt.modeling.convex.entropies",
    "quantum_rel_entr": "bregopt.modeling.convex.entropies",
    "rel_entr": "bregopt.modeling.convex.entropies",
    "trace_logm": "bregopt.modeling.convex.entropies",
    "von_neumann_entr": "bregopt.modeling.convex.entropies",
    "learn_kernel": "bregopt.problems.metric_learning",
    "ChannelCapacity": "bregopt.problems.logdet.capacity",
    "mimo_capacity": "bregopt.problems.logdet.capacity",
    "water_filling": "bregopt.problems.logdet.capacity",
    "Design": "bregopt.problems.logdet.designs",
    "ExactDesign": "bregopt.problems.logdet.exact_designs",
    "Ellipsoid": "bregopt.problems.logdet.loewner_ellipsoid",
    "min_volume_ellipsoid": "bregopt.problems.logdet.loewner_ellipsoid",
    "max_volume_inscribed_ellipsoid": "bregopt.problems.logdet.john_ellipsoid",
    "a_optimal": "bregopt.problems.logdet.designs",
    "d_optimal": "bregopt.problems.logdet.designs",
    "e_optimal": "bregopt.problems.logdet.designs",
    "covariance_selection": "bregopt.problems.logdet.precision",
    "max_det_completion": "bregopt.problems.logdet.precision",
    "graphical_lasso": "bregopt.problems.logdet.lasso",
    "graphical_lasso_path": "bregopt.problems.logdet.lasso",
    "GraphicalLassoPath": "bregopt.problems.logdet.precision",
    "PrecisionSolution": "bregopt.problems.logdet.precision",
    "GraphicalLassoSolution": "bregopt.problems.logdet.precision",
    "soft_margin": "bregopt.problems.metric_learning",
    "nearest_psd": "bregopt.problems.nearest_psd",
    "Solutions": "bregopt.problems.solutions",
    "verify": "bregopt.crosscheck",
    "BoundCertificate": "bregopt.rigorous.file.certificate",
    "ProvenBound": "bregopt.rigorous.file.certificate",
    "Verification": "bregopt.rigorous.file.certificate",
    "Conflict": "bregopt.routes.conflict",
}


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return _importlib.import_module(f"{__name__}.{name}")
    if name in _MODULES:
        globals()[name] = found = getattr(_importlib.import_module(_MODULES[name]), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, *_PACKAGES, "__version__"))
