"""Soft-margin metric learning: the semidefinite program of PSDBoost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Unpack

import scipy.sparse as sp

from bregopt.arrays import MatrixLike, finite_array, positive_number
from bregopt.io.pandas_labels import Labels, labeled
from bregopt.modeling.atoms import quad_form, trace
from bregopt.modeling.atoms import sum as total
from bregopt.modeling.objectives import Maximize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Variable
from bregopt.problems.arguments import check_arguments
from bregopt.routes.solution import Solution
from bregopt.routes.solve_options import SolveOptions

__all__ = ["soft_margin"]

_TRADE_OFF = 10.0  # the default C is this divided by the number of comparisons


def soft_margin(
    comparisons: Sequence[MatrixLike], C: float | None = None, **options: Unpack[SolveOptions]
) -> Solution:
    """Learn a metric with the largest soft margin between the squared lengths of far and of near differences.

    Solves, over metrics ``X`` of trace one, margins ``rho`` and slacks ``xi >= 0``,

        maximize    rho - C sum_r xi_r
        subject to  far_r' X far_r - near_r' X near_r >= rho - xi_r.

    Parameters
    ----------
    comparisons : pair of array_like or sparse, each of shape (R, D)
        ``(far, near)``: comparison `r` asks that ``far[r]`` be longer than ``near[r]``. For triplets
        ``(i, j, k)`` with `i` closer to `j` than to `k` these are ``points[i] - points[k]`` and
        ``points[i] - points[j]``. The columns of DataFrames name the features; rows match by position.
    C : float, optional
        Penalty weight of a slack, at least ``1 / R``; by default ``10 / R``.
    **options
        Options of :meth:`bregopt.Problem.solve`.

    Returns
    -------
    Solution
        ``X`` is the metric, of shape ``(D, D)``, a DataFrame if the comparisons are;
        ``u["rho"]`` is the margin and ``u["xi"]`` are the slacks.

    Raises
    ------
    TypeError, ValueError
        If `comparisons` is not a pair of arrays of one shape, column names differ, there is no comparison,
        values are not finite real numbers, or ``C R < 1``, which makes the problem unbounded.

    References
    ----------
    Shen, Welsh, Wang (2008), PSDBoost, eq. 3.

    Examples
    --------
    >>> import numpy as np
    >>> import bregopt as bo
    >>> points = np.array([[0.0, 0.0], [3.0, 0.2], [0.1, 1.0]])
    >>> i, j, k = np.array([[0, 1, 2]]).T  # 0 is closer to 1 than to 2
    >>> sol = bo.soft_margin((points[i] - points[k], points[i] - points[j]))
    >>> bool(sol.u["rho"] > 0)
    True
    """
    check_arguments(soft_margin, options)
    far, near = _differences(comparisons)
    features = _features(comparisons)
    R, D = far.shape
    price = _TRADE_OFF / R if C is None else positive_number(C, "C")
    if price * R < 1 - 1e-12:  # up to the round-off of a C given as 1 / R
        raise ValueError(
            f"C is {price:g} for {R} comparisons; expected at least 1/{R} = {1 / R:.3g}: below that, rho and "
            "all xi grow together without end and the problem is unbounded"
        )
    X, rho, xi = PSD(D, name="X"), Variable(name="rho"), Variable(R, nonneg=True, name="xi")
    margins = quad_form(far, X) - quad_form(near, X)
    problem = Problem(Maximize(rho - price * total(xi)), [margins >= rho - xi, trace(X) == 1])
    return labeled(problem.solve(**options), features)


def _differences(comparisons: Any) -> tuple[Any, Any]:
    if not isinstance(comparisons, tuple | list) or len(comparisons) != 2:
        raise TypeError(
            f"comparisons is {type(comparisons).__name__}; expected a pair (far, near) of arrays of "
            "differences, each of shape (R, D)"
        )
    far, near = (
        _rows(part, f"{name} of comparisons") for name, part in zip(("far", "near"), comparisons, strict=True)
    )
    if far.shape != near.shape:
        raise ValueError(
            f"far and near of comparisons have shapes {far.shape} and {near.shape}; expected one"
        )
    if 0 in far.shape:
        raise ValueError(f"comparisons has shape {far.shape}; expected at least one row and one column")
    return far, near


def _features(comparisons: Any) -> Labels:
    """Return the columns of the DataFrames among the two, which must agree; None for two arrays."""
    pandas = sys.modules.get("pandas")  # if pandas is not imported, nothing is a DataFrame
    if pandas is None:
        return None
    named = [part.columns for part in comparisons if isinstance(part, pandas.DataFrame)]
    if not named:
        return None
    if not named[0].equals(named[-1]):
        raise ValueError(
            "far and near of comparisons have different columns; expected the same, in one order"
        )
    if not named[0].is_unique:
        repeated = named[0][named[0].duplicated()][0]
        raise ValueError(f"comparisons have the column {repeated!r} twice; expected distinct columns")
    return named[0]


def _rows(part: Any, name: str) -> Any:
    if not sp.issparse(part):
        return finite_array(part, name, ndim=2)
    if part.ndim != 2:
        raise ValueError(f"{name} has {part.ndim} dimensions, shape {part.shape}; expected 2")
    rows = sp.csr_array(part, copy=True)
    finite_array(rows.data, name)
    return rows
