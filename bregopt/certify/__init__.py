"""Certificates of answers and proofs of infeasibility and unboundedness, from the data alone."""

from bregopt.certify.certificate import (
    NEAR,
    Certificate,
    Status,
    bracket,
    certify,
    check_families,
    cost_of_round_off,
    dimacs_errors,
    objective_size,
    trace_of_slacks,
)
from bregopt.certify.eigenvalue_bound import (
    filtered,
    highest,
    lowest,
    proven_bound,
    smallest_eigenvalue,
)
from bregopt.certify.point import Known, PrimalDualPoint, divergence_factor, row_residuals
from bregopt.certify.proofs import is_farkas, is_ray, with_trace_multipliers
from bregopt.certify.slacks import (
    TraceBound,
    definite_cost,
    relative_diagonal,
    trace_bound,
    trace_bounds,
    with_trace_row,
)

__all__ = [
    "NEAR",
    "Certificate",
    "Known",
    "PrimalDualPoint",
    "Status",
    "TraceBound",
    "bracket",
    "certify",
    "check_families",
    "cost_of_round_off",
    "definite_cost",
    "dimacs_errors",
    "divergence_factor",
    "filtered",
    "highest",
    "is_farkas",
    "is_ray",
    "lowest",
    "objective_size",
    "proven_bound",
    "relative_diagonal",
    "row_residuals",
    "smallest_eigenvalue",
    "trace_bound",
    "trace_bounds",
    "trace_of_slacks",
    "with_trace_multipliers",
    "with_trace_row",
]
