"""The functions that expressions written as text may call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import finite_array
from bregopt.modeling.atoms import diag, quad_form, sq_distance, sum, trace
from bregopt.modeling.bounds import between, soft
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.convex import elementwise, extremes
from bregopt.modeling.convex.eigenvalues import lambda_max, lambda_min, lambda_sum_largest
from bregopt.modeling.convex.elementwise import log, maximum, minimum, pos, square
from bregopt.modeling.convex.expression import as_curved
from bregopt.modeling.convex.log_det import log_det
from bregopt.modeling.convex.norms import norm1, norm2, norm_inf
from bregopt.modeling.convex.singular_values import norm_nuc, sigma_max
from bregopt.modeling.convex.squares import quad_over_lin, sum_squares
from bregopt.modeling.inner_products import inner
from bregopt.modeling.naming import Named
from bregopt.modeling.objectives import bregman_div, frobenius_div, logdet_div, von_neumann_div
from bregopt.modeling.stacking import bmat, hstack, vstack
from bregopt.modeling.subsystems import kron, partial_trace, partial_transpose
from bregopt.program.lowrank import LowRank

__all__ = ["FUNCTIONS"]


def named(constraint: Any, name: str) -> Any:
    """Give a constraint a name, and return it."""
    if not isinstance(constraint, Named):
        raise TypeError(f"{constraint!r} is no constraint; expected one to be named")
    return constraint.named(name)


def labeled(constraint: Any, *axes: Any) -> Any:
    """Give the rows of a constraint labels, one array for each axis, and return it."""
    if not isinstance(constraint, Constraint):
        raise TypeError(f"{constraint!r} has no rows; expected a comparison of affine expressions")
    found = tuple(np.size(axis) for axis in axes)
    if found != constraint.shape:
        raise ValueError(f"{found} labels for rows of shape {constraint.shape}; expected one for each")
    constraint.axes = tuple(np.ravel(axis).tolist() for axis in axes)
    return constraint


def linear_map(matrix: Any, e: Any, shape: Any = ()) -> Any:
    """Return the array of a shape whose elements are `matrix` times those of `e`, both row by row."""
    given = as_curved(e)
    S = sp.csr_array(matrix, dtype=float)
    finite_array(S.data, "matrix of linear_map")
    sizes = tuple(np.atleast_1d(shape).tolist())
    if S.shape != (math.prod(sizes), given.size):
        raise ValueError(
            f"matrix of linear_map has shape {S.shape}; expected {math.prod(sizes)} x {given.size}, the "
            f"elements of {sizes} and of {given.label}"
        )
    return given.combined(S, sizes)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "LowRank": LowRank,
    "abs": elementwise.abs,
    "between": between,
    "bmat": bmat,
    "bregman_div": bregman_div,
    "diag": diag,
    "frobenius_div": frobenius_div,
    "hstack": hstack,
    "inner": inner,
    "kron": kron,
    "labeled": labeled,
    "lambda_max": lambda_max,
    "lambda_min": lambda_min,
    "lambda_sum_largest": lambda_sum_largest,
    "linear_map": linear_map,
    "log": log,
    "log_det": log_det,
    "named": named,
    "logdet_div": logdet_div,
    "max": extremes.max,
    "maximum": maximum,
    "min": extremes.min,
    "minimum": minimum,
    "norm1": norm1,
    "norm2": norm2,
    "norm_inf": norm_inf,
    "norm_nuc": norm_nuc,
    "partial_trace": partial_trace,
    "partial_transpose": partial_transpose,
    "pos": pos,
    "quad_form": quad_form,
    "quad_over_lin": quad_over_lin,
    "sigma_max": sigma_max,
    "soft": soft,
    "sq_distance": sq_distance,
    "square": square,
    "sum": sum,
    "sum_squares": sum_squares,
    "trace": trace,
    "vstack": vstack,
    "von_neumann_div": von_neumann_div,
}
