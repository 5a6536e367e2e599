"""Nearest correlation and nearest psd matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, finite_array, symmetric_matrix
from bregopt.errors import did_you_mean
from bregopt.interop.frames import labelled, unlabelled
from bregopt.modeling.atoms import diag
from bregopt.modeling.constraints import Constraint, between
from bregopt.modeling.objectives import Minimize, frobenius_div, logdet_div, von_neumann_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.program import LowRank, certify
from bregopt.solvers.solution import Solution

__all__ = ["nearest_correlation", "nearest_psd"]

_DIVERGENCES: dict[str, Callable[..., Any]] = {
    "frobenius": frobenius_div,
    "logdet": logdet_div,
    "von_neumann": von_neumann_div,
}


def nearest_correlation(
    A: Any,
    divergence: str = "frobenius",
    fixed: Any = None,
    lower: Any = None,
    upper: Any = None,
    min_eigenvalue: float = 0.0,
    weights: Any = None,
    **options: Any,
) -> Solution:
    """Return the nearest correlation matrix: psd with unit diagonal.

    Parameters
    ----------
    A : array_like or pandas.DataFrame of shape (n, n), symmetric, or LowRank
        For the Frobenius distance it may be indefinite; for the others it must be positive definite, or
        a :class:`~bregopt.LowRank`, whose range the answer keeps.
    divergence : {"frobenius", "logdet", "von_neumann"}
    fixed : bool array of shape (n, n), symmetric, or int array of shape (k, 2), optional
        Off-diagonal entries, or pairs of indices, that stay as they are in `A`.
    lower, upper : float or array_like of shape (n, n), symmetric, optional
        Bounds on the off-diagonal entries.
    min_eigenvalue : float in [0, 1)
        Floor on the eigenvalues; Frobenius only.
    weights : array_like of shape (n,) or (n, n), above 0, optional
        Frobenius only. A vector ``w`` weighs the distance as ``||W^1/2 (X - A) W^1/2||``; a symmetric
        matrix ``H`` elementwise, as ``||H o (X - A)||``.
    **options
        Passed to :meth:`bregopt.Problem.solve`.

    Returns
    -------
    Solution
        Its ``X`` has an exact unit diagonal (except for a LowRank start), and the labels of a DataFrame.

    Raises
    ------
    TypeError, ValueError
        Bad input; the message names the argument.

    References
    ----------
    Higham (2002), Computing the nearest correlation matrix; Kulis, Sustik, Dhillon (2009), §6.3.
    """
    matrix, labels = unlabelled(A, "A")
    task = _Correlation.of(matrix, divergence, min_eigenvalue, weights)
    X = PSD(task.n, name="X")
    rows = [diag(X) == task.target, *_entry_rows(X, task, fixed, lower, upper)]
    problem = Problem(Minimize(task.objective(X)), rows)
    solution = problem.solve(**options)
    if solution.X is None:
        return solution
    if not isinstance(solution.X, LowRank):
        solution = _unit_diagonal(problem, solution, task.target, options.get("tol", 1e-6))
        solution = replace(solution, X=task.original(solution.X))
        if task.floor > 0:
            solution = replace(solution, rank=task.n)
    return replace(solution, X=labelled(solution.X, labels))


def nearest_psd(A: Any, constraints: Any = (), divergence: str = "frobenius", **options: Any) -> Solution:
    """Return the nearest positive semidefinite matrix, under constraints if there are any.

    Parameters
    ----------
    A : array_like or pandas.DataFrame of shape (n, n), symmetric, or LowRank
    constraints : callable or iterable of callables
        Each takes the matrix variable and returns a constraint or a list of them, such as
        ``lambda X: bo.trace(X) == 1``.
    divergence : {"frobenius", "logdet", "von_neumann"}
    **options
        Passed to :meth:`bregopt.Problem.solve`.

    Returns
    -------
    Solution
        With the labels of a DataFrame.

    Raises
    ------
    TypeError, ValueError
        Bad input; the message names the argument.
    """
    matrix, labels = unlabelled(A, "A")
    _check_divergence(divergence)
    n = matrix.shape[0] if isinstance(matrix, LowRank) else len(symmetric_matrix(matrix, "A"))
    X = PSD(n, name="X")
    makers = [constraints] if callable(constraints) else list(constraints)
    for k, make in enumerate(makers):
        if not callable(make):
            raise TypeError(f"constraints[{k}] is {type(make).__name__}; expected a function of X")
    problem = Problem(Minimize(_nearness(divergence, X, matrix)), [make(X) for make in makers])
    solution = problem.solve(**options)
    return replace(solution, X=labelled(solution.X, labels))


@dataclass(frozen=True, eq=False)
class _Correlation:
    """The problem in the variable that is solved for, ``Y = S (X - floor I) S`` with ``S = diag(scale)``."""

    start: Array | LowRank
    divergence: str
    floor: float
    scale: Array
    elementwise: Array | None

    @classmethod
    def of(cls, A: Any, divergence: str, floor: float, weights: Any) -> _Correlation:
        _check_divergence(divergence)
        floor = float(finite_array(floor, "min_eigenvalue", ndim=0))
        if not 0 <= floor < 1:
            raise ValueError(f"min_eigenvalue is {floor:g}; expected 0 <= min_eigenvalue < 1")
        if divergence != "frobenius" and (floor > 0 or weights is not None):
            raise ValueError(f'min_eigenvalue and weights go with divergence="frobenius", not {divergence!r}')
        if isinstance(A, LowRank):
            return cls(A, divergence, floor, np.ones(A.shape[0]), None)
        matrix = symmetric_matrix(A, "A")
        scale, elementwise = np.ones(len(matrix)), None
        if weights is not None:
            given = finite_array(weights, "weights", ndim=(1, 2))
            if given.shape not in ((len(matrix),), matrix.shape):
                raise ValueError(f"weights has shape {given.shape}; expected {(len(matrix),)} or {matrix.shape}")
            if (given <= 0).any():
                raise ValueError(f"weights has the value {given.min():g}; expected numbers above 0")
            if given.ndim == 1:
                scale = np.sqrt(given)
            else:
                elementwise = symmetric_matrix(given, "weights")
        return cls(matrix, divergence, floor, scale, elementwise)

    @property
    def n(self) -> int:
        return self.start.shape[0]

    @property
    def target(self) -> Array:
        """The diagonal of ``Y``."""
        return self.scale**2 * (1 - self.floor)

    def objective(self, Y: PSD) -> Any:
        if isinstance(self.start, LowRank):
            return _nearness(self.divergence, Y, self.start)
        moved = np.outer(self.scale, self.scale) * (self.start - self.floor * np.eye(self.n))
        if self.elementwise is not None:
            return frobenius_div(Y, moved, weights=self.elementwise)
        return _nearness(self.divergence, Y, moved)

    def original(self, Y: Array) -> Array:
        """Return ``X`` from ``Y``; its diagonal is one to the last bit."""
        X: Array = Y / np.outer(self.scale, self.scale) + self.floor * np.eye(self.n)
        if np.abs(X.diagonal() - 1).max() < 1e-14:
            np.fill_diagonal(X, 1.0)
        return X


def _entry_rows(X: PSD, task: _Correlation, fixed: Any, lower: Any, upper: Any) -> list[Constraint]:
    """Return rows for the entries that stay, and for bounds on the others, each pair once."""
    n = task.n
    i, j = np.triu_indices(n, 1)
    A = task.start[i, j]
    stays = _fixed_pairs(fixed, n)[i, j]
    lo, hi = _bound(lower, "lower", n, -np.inf)[i, j], _bound(upper, "upper", n, np.inf)[i, j]
    crossed = np.flatnonzero(lo > hi)
    if len(crossed):
        k = crossed[0]
        raise ValueError(f"lower is {lo[k]:g} but upper is {hi[k]:g} at {int(i[k]), int(j[k])}")
    outside = np.flatnonzero(stays & ((lo > A) | (hi < A) | (np.abs(A) > 1)))
    if len(outside):
        k = outside[0]
        raise ValueError(
            f"fixed keeps {A[k]:g} at {int(i[k]), int(j[k])}, outside [{max(lo[k], -1):g}, {min(hi[k], 1):g}]"
        )
    s = task.scale[i] * task.scale[j]
    rows = [X[i[stays], j[stays]] == s[stays] * A[stays]] if stays.any() else []
    # |X_ij| <= 1 holds by itself: only tighter bounds become rows.
    for sides, make in (
        ((lo > -1) & (hi < 1), lambda e, k: between(e, s[k] * lo[k], s[k] * hi[k])),
        ((lo > -1) & (hi >= 1), lambda e, k: e >= s[k] * lo[k]),
        ((lo <= -1) & (hi < 1), lambda e, k: e <= s[k] * hi[k]),
    ):
        k = np.flatnonzero(sides & ~stays)
        if len(k):
            rows.append(make(X[i[k], j[k]], k))
    return rows


def _fixed_pairs(fixed: Any, n: int) -> Any:
    mask = np.zeros((n, n), dtype=bool)
    if fixed is None:
        return mask
    given = np.asarray(fixed)
    if given.dtype == bool:
        if given.shape != (n, n) or (given != given.T).any():
            raise ValueError(f"fixed has shape {given.shape}; expected a symmetric mask of shape {(n, n)}")
        return given
    pairs: IntArray = given
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(
            f"fixed has shape {pairs.shape} and dtype {pairs.dtype}; expected a bool mask or (k, 2) integers"
        )
    if (pairs < 0).any() or (pairs >= n).any():
        raise ValueError(f"fixed has an index outside 0 to {n - 1}")
    mask[pairs[:, 0], pairs[:, 1]] = mask[pairs[:, 1], pairs[:, 0]] = True
    return mask


def _bound(bound: Any, name: str, n: int, default: float) -> Array:
    if bound is None:
        return np.full((n, n), default)
    array = np.asarray(unlabelled(bound, name)[0])
    if array.dtype.kind not in "biuf" or np.isnan(array).any():
        raise ValueError(f"{name} has NaN or is not numeric; expected numbers")
    if array.shape not in ((), (n, n)):
        raise ValueError(f"{name} has shape {array.shape}; expected a number or {(n, n)}")
    full = np.broadcast_to(array.astype(float), (n, n))
    if (full != full.T).any():
        raise ValueError(f"{name} is not symmetric")
    return full


def _unit_diagonal(problem: Problem, solution: Solution, target: Array, tol: float) -> Solution:
    """Return the answer with its diagonal met exactly, by a diagonal congruence, and its certificate anew.

    The answer stays as it was where that would break another row by more than the tolerance.
    """
    ratio = np.sqrt(target / solution.X.diagonal())
    X = solution.X * np.outer(ratio, ratio)
    np.fill_diagonal(X, target)
    raw = solution._raw
    assert raw is not None
    certificate = certify(problem.program(), (X,), raw.u, raw.duals)
    if certificate.primal_residual > max(tol, solution.primal_residual):
        return solution
    problem.matrices[0].value = X
    return replace(
        solution,
        X=X,
        value=certificate.primal,
        dual_value=certificate.dual,
        gap=certificate.gap,
        primal_residual=certificate.primal_residual,
        error=certificate.error,
    )


def _nearness(divergence: str, X: PSD, A: Any) -> Any:
    try:
        return _DIVERGENCES[divergence](X, A)
    except ValueError as error:
        raise ValueError(f"A: {error}") from None


def _check_divergence(divergence: str) -> None:
    if divergence not in _DIVERGENCES:
        raise ValueError(f"divergence {divergence!r} is unknown{did_you_mean(str(divergence), _DIVERGENCES)}")
