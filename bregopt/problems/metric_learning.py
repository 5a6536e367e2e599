"""Kernels from pairs of similar and dissimilar points, and metrics from comparisons with a soft margin."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import (
    Array,
    IntArray,
    MatrixLike,
    check_pair_bounds,
    finite_array,
    positive_number,
    rectangular,
    symmetric_matrix,
)
from bregopt.io.matrices import Labels, labeled, labels_of
from bregopt.linalg import root_of
from bregopt.modeling.atoms import quad_form, sq_distance, trace
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.convex.expression import Maximize, Minimize
from bregopt.modeling.expressions import soft
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Variable
from bregopt.problems.arguments import nearness
from bregopt.program.rows import Distances
from bregopt.program.rows.base import LowRank, Matrix
from bregopt.records import replace
from bregopt.routes.registry import KernelOptions, SolveOptions, check_arguments
from bregopt.routes.solution import Solution

if TYPE_CHECKING:
    from bregopt.chunks import RowChunks

_TRADE_OFF = 10.0  # the default C is this divided by the number of comparisons
_SHRINK = 0.25  # of the squared distances, in the default bounds


def learn_kernel(
    K0: ArrayLike | LowRank,
    similar: ArrayLike | None = None,
    dissimilar: ArrayLike | None = None,
    *,
    rows: RowChunks | None = None,
    upper: ArrayLike | None = None,
    lower: ArrayLike | None = None,
    divergence: str = "logdet",
    gamma: float | None = None,
    shrink: float | None = None,
    **options: Unpack[KernelOptions],
) -> Solution:
    """Change a kernel as little as possible such that similar points come closer and dissimilar ones farther.

    Minimizes ``D(K, K0)`` subject to ``d(i, j) <= upper`` for similar and ``d(i, j) >= lower`` for
    dissimilar pairs, with ``d(i, j) = K_ii + K_jj - 2 K_ij``.

    Parameters
    ----------
    K0 : array_like or DataFrame of shape (n, n), or LowRank
        Positive definite for LogDet and von Neumann. For a :class:`bregopt.LowRank` the answer is ``LowRank``
        with the same range, and no ``n x n`` matrix is formed.
    similar, dissimilar : array_like of int, shape (k, 2), optional
        Pairs of points; one of the two may be empty.
    rows : RowChunks, optional
        Pairs of points with their bounds and weights, for pairs that do not fit in memory, instead of
        `similar`, `dissimilar`, `upper`, `lower`, `gamma` and `shrink`; LogDet or von Neumann.
    upper, lower : float or array_like of shape (k,), optional
        Bounds on the squared distances of the similar and of the dissimilar pairs, above 0; if both are
        numbers, ``upper <= lower``. By default ``(1 - shrink) b`` and ``(1 + shrink) b`` with ``b`` the
        squared distance in ``K0``.
    divergence : {"logdet", "von_neumann", "frobenius"}
    gamma : float, optional
        Penalty weight of relaxed bounds; see :func:`bregopt.soft`. None keeps the bounds hard, which may be
        infeasible for many pairs in a low rank.
    shrink : float, above 0 and below 1, default 0.25
        Relative change of the squared distances in the default bounds.
    **options
        Options of :meth:`bregopt.Problem.solve`, or with `rows` of :meth:`bregopt.RowChunks.solve`.

    Returns
    -------
    Solution
        ``duals`` holds an array for the similar pairs, if any, then one for the dissimilar ones, if any; with
        `rows` it is None.

    Raises
    ------
    TypeError, ValueError
        If the input is bad, or a pair that needs a default bound has distance zero in ``K0``.
    InfeasibleRowError
        If a pair cannot be moved apart in the range of ``K0``.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), §7.1.

    Examples
    --------
    >>> import numpy as np
    >>> import bregopt as bo
    >>> sol = bo.learn_kernel(np.eye(3), similar=[[0, 1]], dissimilar=[[0, 2]])
    >>> round(float(sol.X[0, 0] + sol.X[1, 1] - 2 * sol.X[0, 1]), 4)
    1.5
    """
    labels = labels_of(K0, "K0")
    start: Matrix = K0 if isinstance(K0, LowRank) else symmetric_matrix(K0, "K0")
    if rows is not None:
        given = {
            "similar": similar,
            "dissimilar": dissimilar,
            "upper": upper,
            "lower": lower,
            "gamma": gamma,
            "shrink": shrink,
        }
        return labeled(_from_chunks(start, rows, given, divergence, options), labels)
    check_arguments(learn_kernel, options)
    step = positive_number(_SHRINK if shrink is None else shrink, "shrink")
    if step >= 1:
        raise ValueError(f"shrink is {step:g}; expected a number above 0 and below 1")
    K = PSD(start.shape[0], name="K")
    objective = nearness(divergence, K, start, "K0")
    near = _pairs(similar, "similar", K.n)
    far = _pairs(dissimilar, "dissimilar", K.n)
    if len(near) + len(far) == 0:
        raise ValueError("similar and dissimilar are both empty; expected at least one pair")
    check_pair_bounds(upper, lower)
    constraints: list[Constraint] = []
    if len(near):
        constraints.append(
            (sq_distance(K, *near.T) <= _bounds(upper, "upper", near, start, 1 - step)).named("similar")
        )
    elif upper is not None:
        raise ValueError("upper is given but similar has no pairs")
    if len(far):
        constraints.append(
            (sq_distance(K, *far.T) >= _bounds(lower, "lower", far, start, 1 + step)).named("dissimilar")
        )
    elif lower is not None:
        raise ValueError("lower is given but dissimilar has no pairs")
    if gamma is not None:
        weight = positive_number(gamma, "gamma")
        constraints = [soft(row, weight) for row in constraints]
    problem = Problem(Minimize(objective), constraints)
    own: Any = options  # without those of rows in chunks, as was checked
    return labeled(problem.solve(**own), labels)


def _from_chunks(
    K0: Matrix, rows: RowChunks, given: dict[str, Any], divergence: str, options: Mapping[str, Any]
) -> Solution:
    """Return the answer for pairs in chunks, a dense one for a dense ``K0``."""
    from bregopt.chunks import RowChunks  # only those whose pairs do not fit in memory wait for it

    if not isinstance(rows, RowChunks):
        raise TypeError(f"rows is a {type(rows).__name__}; expected a RowChunks")
    for name, value in given.items():
        if value is not None:
            raise TypeError(
                f"{name} is given beside rows, which have pairs, bounds and weights; expected one"
            )
    if rows.dimension is not None:
        own = "points of their own" if rows.pairs else "vectors"
        raise ValueError(f"rows have {own}; expected pairs of the {K0.shape[0]} points of K0")
    if isinstance(K0, LowRank):
        return rows.solve(K0, divergence, **options)
    root = root_of(K0)
    if root is None:
        raise ValueError("K0 is not positive definite; expected that with rows, or a LowRank matrix")
    solution = rows.solve(LowRank(root), divergence, **options)
    return solution if solution.X is None else replace(solution, X=solution._point[0].dense())


def _pairs(value: Any, name: str, n: int) -> IntArray:
    """Return pairs of distinct points as an array of shape ``(k, 2)``, possibly empty."""
    raw = rectangular([] if value is None else value, name)
    if raw.size == 0:
        return np.zeros((0, 2), dtype=np.intp)
    if raw.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {raw.dtype}; expected pairs of integers")
    if raw.ndim != 2 or raw.shape[1] != 2:
        raise ValueError(f"{name} has shape {raw.shape}; expected (k, 2), one pair of points a row")
    outside = (raw < 0) | (raw >= n)
    if outside.any():
        raise ValueError(f"{name} has index {raw[outside][0]}; expected 0 to {n - 1} for {n} points")
    same = np.flatnonzero(raw[:, 0] == raw[:, 1])
    if len(same):
        raise ValueError(f"{name} pairs point {raw[same[0], 0]} with itself at row {same[0]}")
    return raw.astype(np.intp)


def _bounds(given: Any, name: str, pairs: IntArray, K0: Matrix, factor: float) -> Array:
    """Return the bounds of the pairs: the user's, or `factor` times their squared distances in ``K0``."""
    if given is not None:
        bounds = finite_array(given, name, ndim=(0, 1))
        if bounds.ndim and len(bounds) != len(pairs):
            raise ValueError(f"{name} has {len(bounds)} values for {len(pairs)} pairs; expected one for each")
        if (bounds <= 0).any():
            raise ValueError(f"{name} has the value {bounds.min():g}; expected squared distances above 0")
        return np.broadcast_to(bounds, len(pairs))
    i, j = pairs.T
    distance = Distances(K0.shape[0], i, j, np.ones(len(i))).apply(K0)
    together = np.flatnonzero(distance <= 1e-14 * np.abs(K0[i, i] + K0[j, j]))  # round-off of the difference
    if len(together):
        a, b = pairs[together[0]]
        raise ValueError(
            f"the points {a} and {b} of pair {together[0]} are not apart in K0 (squared distance "
            f"{distance[together[0]]:.3g}), which leaves no default bound: drop the pair or give {name}="
        )
    return factor * distance


def soft_margin(
    comparisons: Sequence[MatrixLike], C: float | None = None, **options: Unpack[SolveOptions]
) -> Solution:
    """Learn a metric with the largest soft margin between the squared lengths of far and of near differences.

    Solves, over metrics ``X`` of trace one, margins ``rho`` and slacks ``xi >= 0``,

        maximize    rho - C sum_r xi_r
        subject to  far_r' X far_r - near_r' X near_r >= rho - xi_r,

    stated with hinges: ``xi_r`` is the violation of ``far_r' X far_r - near_r' X near_r >= rho``.

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
    X, rho = PSD(D, name="X"), Variable(name="rho")
    margins = quad_form(far, X) - quad_form(near, X)
    problem = Problem(Maximize(rho), [soft(margins >= rho, price, "hinge"), trace(X) == 1])
    solution = problem.solve(**options)
    if solution.u is not None:
        xi = np.maximum(solution.u["rho"] - margins.value, 0.0)
        solution = replace(solution, u={**solution.u, "xi": xi})
    return labeled(solution, features)


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
