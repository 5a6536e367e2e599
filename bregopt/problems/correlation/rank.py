"""The nearest correlation matrix of a given rank: a descent on its factor, and a bound by Lagrange's dual.

Of all psd ``X`` of rank `r`, the minimizer of ``||X - B||^2 - 2 y'(diag X - w)`` is the part of
``B + Diag(y)`` in its `r` largest positive eigenvalues. Lagrange's bound is therefore

    ``theta(y) = ||B||^2 + 2 y'w - sum of the r largest squared positive eigenvalues of B + Diag(y)``.

It is concave, although the problem is not convex. Where the eigenvalues `r` and ``r + 1`` differ at its
maximum, the minimizer has the diagonal ``w``, and is the global optimum. Elsewhere a gap may remain.

The objective is ``||off(B - R R')||_F^2``, where ``off`` drops the diagonal. With ``q_i = ||r_i||^2`` it is
``||off(B)||^2 - 2 <R, off(B) R> + ||R'R||^2 - ||q||^2``: one product of ``off(B)`` and a thin matrix a step.
It is not convex: a bound on the global optimum gives an answer its status.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np
import scipy.linalg

from bregopt import clock
from bregopt.arrays import EPS, TINY, Array
from bregopt.certify import Certificate, bracket
from bregopt.clock import CutShort, checkpoint, threads_for
from bregopt.errors import ConvergenceWarning, UnsupportedProblemError, warn_caller
from bregopt.problems.correlation.request import Request
from bregopt.program import LowRank, StopReason
from bregopt.records import dataclass
from bregopt.routes.base import Settings
from bregopt.routes.progress import reason
from bregopt.routes.solution import Solution, Status

_SLICE = 200_000  # entries of a slice of ``B - R R'``, which fits the cache
ROUND_OFF = 4 * EPS  # relative round-off of eigenvalues, for each row
_RESOLUTION = 1e-6  # of the squared norm of the data: values below are round-off of the bounds

_OPTIONS = ("max_iter", "seed", "time_limit", "tol")
_MAX_ITER = 1_000  # steps of a descent
_RESTARTS, _RESTARTED = 5, 200_000  # descents from near the dual's minimizer, and the largest n^2 r for them
_EVALUATIONS, _PAIRS = 150, 20  # of the dual in L-BFGS, and its pairs of vectors
_FLAT = 1e-14  # relative increase of the dual at which it ends
_CITATION = "Zhang, Wu (2003), Optimal low-rank approximation to a correlation matrix"
_DESCENT_PAIRS = 10  # of vectors in the L-BFGS of a descent
_DESCENT_FLAT = 1e-15  # decrease relative to the unit of the objective at which it ends


@dataclass(frozen=True, eq=False)
class Descent:
    """The best point of a descent.

    Parameters
    ----------
    R : array of shape (n, k)
    values : list of float
        The objectives of all steps.
    residual : float
        The norm of the projected gradient at the last point, relative to that of ``4 off(B)``.
    stop : StopReason
        Why it is the last; ``CONVERGED`` if the residual meets its tolerance.
    """

    R: Array
    values: list[float]
    residual: float
    stop: StopReason


class Objective:
    """``||off(B - R R')||_F^2`` and its gradient.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    """

    def __init__(self, B: Array) -> None:
        self.B = B
        self.square = float(np.vdot(B, B))

    def at(self, R: Array) -> tuple[float, Array, Array]:
        """Return the value, the gradient, and ``R'R``."""
        BR, gram = self.B @ R, R.T @ R
        q = np.einsum("ij,ij->i", R, R)
        value = self.square - 2 * float(np.vdot(R, BR)) + float(np.vdot(gram, gram)) - float(q @ q)
        return value, 4 * (R @ gram - BR - q[:, None] * R), gram


def distance(B: Array, R: Array) -> float:
    """Return ``||off(B - R R')||_F^2`` from the entries, so that no digits cancel."""
    n, total = len(B), 0.0
    step = max(1, _SLICE // n)
    for a in range(0, n, step):
        left = B[a : a + step] - R[a : a + step] @ R.T
        left[np.arange(len(left)), np.arange(a, a + len(left))] = 0.0
        total += float(np.vdot(left, left))
    return total


def proven_fields(
    descent: Descent, value: float, bound: float, unit: float, constant: float, tol: float
) -> dict[str, Any]:
    """Return the fields of a :class:`~bregopt.Solution` that say how good a feasible answer is.

    The status is that of every other answer: a local optimum is "optimal" where the bound proves it.

    Parameters
    ----------
    descent : Descent
        Its values are without the `constant`.
    value, bound : float
        The objective, and a proven bound on that of every feasible matrix.
    unit : float
        The squared norm of the data.
    constant : float
        The part of the objective that does not depend on the answer.
    tol : float
        The largest gap of a global optimum.
    """
    values = np.array(descent.values) + constant
    certificate = _certificate(value, bound, unit)
    stop = StopReason.LOCAL_OPTIMUM if descent.stop is StopReason.CONVERGED else descent.stop
    return {
        "status": certificate.status(tol, stop).value,
        "stop_reason": _reason(descent, value, bound, certificate.meets(tol)),
        **(certificate.fields | {"dual_value": bound}),
        "iterations": len(values) - 1,
        "history": {
            "iteration": np.arange(float(len(values))),
            "value": values,
            "gap": np.array([_certificate(v, bound, unit).gap for v in values.tolist()]),
        },
    }


def _certificate(value: float, bound: float, unit: float) -> Certificate:
    """Return the certificate of a value and a bound on all, whose round-off is a fraction of `unit`."""
    return bracket(value, min(bound, value), resolution=_RESOLUTION * unit)


def _reason(descent: Descent, value: float, bound: float, optimal: bool) -> str:
    """Return why the descent stopped, and what is proven."""
    if optimal:
        return StopReason.CONVERGED.value
    proven = f"no allowed matrix has a value below {bound:.6g}, {max(bound / value, 0.0):.1%} of this one"
    if descent.stop is StopReason.CONVERGED:
        return f"A local optimum (relative residual {descent.residual:.0e}). Proven: {proven}."
    return f"{descent.stop} Proven: {proven}."


def top_squares(eigenvalues: Array, k: int, size: float) -> float:
    """Return an upper bound on the sum of the `k` largest squared positive eigenvalues.

    Parameters
    ----------
    eigenvalues : array of shape (m,)
        As computed, ascending; all, or the largest.
    k : int
    size : float
        The norm of the matrix times its order.
    """
    top = np.maximum(eigenvalues[-k:] + ROUND_OFF * size, 0.0)
    return float(top @ top) * (1 + k * EPS)


@dataclass(eq=False)
class _Dual:
    """The dual of a matrix, a diagonal and a rank; it keeps the best bound and its multipliers."""

    B: Array
    w: Array
    r: int
    square: float = field(init=False)
    bound: float = field(default=0.0, init=False)
    y: Array = field(init=False)

    def __post_init__(self) -> None:
        self.square = float(np.einsum("ij,ij->i", self.B, self.B).sum())  # by rows: less round-off
        self.y = np.zeros(len(self.B))

    def at(self, y: Array) -> tuple[float, Array]:
        """Return the bound that `y` proves, and the factor of the minimizer."""
        n = len(y)
        shifted = self.B.copy()
        shifted[np.diag_indices(n)] += y
        pairs = scipy.linalg.eigh(shifted, subset_by_index=(n - self.r, n - 1), check_finite=False)
        error = n * EPS * (self.square + 2 * float(np.abs(y) @ self.w))
        size = n * float(np.linalg.norm(shifted))
        bound = self.square + 2 * float(y @ self.w) - top_squares(pairs[0], self.r, size) - error
        if bound > self.bound:
            self.bound, self.y = bound, y.copy()
        return bound, pairs[1] * np.sqrt(np.maximum(pairs[0], 0.0))

    def maximize(self) -> Array:
        """Maximize from the best multipliers; return the factor of the minimizer at the best ones found."""
        from scipy.optimize import minimize  # slow to import

        unit = self.square + float(self.w @ self.w)

        def negative(y: Array) -> tuple[float, Array]:
            checkpoint(len(y))
            bound, V = self.at(y)
            return -bound / unit, -2 * (self.w - np.einsum("ij,ij->i", V, V)) / unit

        limits = {"maxfun": _EVALUATIONS, "maxcor": _PAIRS, "ftol": _FLAT, "gtol": 0.0}
        minimize(negative, self.y, jac=True, method="L-BFGS-B", options=limits)
        return self.at(self.y)[1]


def solve_rank(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return a correlation matrix of the rank near ``A``, and a bound on the distance of each of that rank.

    Raises
    ------
    TypeError, UnsupportedProblemError
        If an argument does not go with the rank.

    Warns
    -----
    ConvergenceWarning
        If a limit or round-off ends the method before a local optimum.

    References
    ----------
    Zhang, Wu (2003), Optimal low-rank approximation to a correlation matrix, Linear Algebra Appl. 364;
    Pietersz, Groenen (2004), Rank reduction of correlation matrices by majorization, Quant. Finance 4.
    """
    begin = time.perf_counter()
    _check(request, options)
    settings = Settings(**options)
    A, s, r = np.asarray(request.A), request.s, request.rank
    assert r is not None
    w, B = s**2, s[:, None] * A * s
    dual = _Dual(B, w, r)
    diagonal = w - B.diagonal()
    constant = float(diagonal @ diagonal)
    with clock.limited(settings.time_limit), threads_for(len(A)):
        descent = _minimized(dual, settings, constant)
    value = distance(B, descent.R) + constant
    solution = Solution(
        **proven_fields(descent, value, dual.bound, dual.square, constant, settings.tol),
        X=LowRank(descent.R / s[:, None]),
        u={},
        duals=(-2 * dual.y * w,),
        duals_by_name={"diagonal": -2 * dual.y * w},
        timings={"total": time.perf_counter() - begin},
        solver="rank",
        citation=_CITATION,
        _restated="a nearest matrix of bounded rank has no known derivative; leave out max_rank",
    )
    if solution.status not in (Status.OPTIMAL, Status.LOCALLY_OPTIMAL):
        found = f"{solution.status}, certified gap {solution.gap:.1e} (tol {settings.tol:g})"
        warn_caller(f"rank: {found}. {solution.stop_reason}", ConvergenceWarning)
    return solution


def _minimized(dual: _Dual, settings: Settings, constant: float) -> Descent:
    """Return the best of several descents: from the leading eigenvectors, and near the dual's minimizer."""
    B, s = dual.B.copy(), np.sqrt(dual.w)
    np.fill_diagonal(B, 0.0)

    def descended(V: Array) -> Descent:
        return _descend_on_spheres(B, V, s, settings.tol, settings.max_iter or _MAX_ITER)

    best = descended(dual.at(np.zeros(len(B)))[1])
    with clock.finishing(), contextlib.suppress(CutShort):
        checkpoint(len(B))
        R = best.R  # at a local optimum (B + Diag(y)) R = R R'R
        dual.at(np.einsum("ij,ij->i", R @ (R.T @ R) - dual.B @ R, R) / dual.w)
    if _closed(dual, best, settings.tol, constant):
        return best
    with contextlib.suppress(CutShort):
        checkpoint(len(B))
        V, rng = dual.maximize(), np.random.default_rng(settings.seed)
        restarts = _RESTARTS if len(V) * V.size <= _RESTARTED else 0
        for k in range(1 + restarts):  # from the minimizer of the dual, and random points ever farther off
            checkpoint()
            start = V + k / _RESTARTS * s[:, None] * rng.normal(size=V.shape) if k else V
            best = min(best, descended(start), key=lambda each: min(each.values))
            if _closed(dual, best, settings.tol, constant):
                break
    return best


def _closed(dual: _Dual, descent: Descent, tol: float, constant: float) -> bool:
    """Whether the bound proves the descent's point a global optimum."""
    value = min(descent.values) + constant
    return _certificate(value, dual.bound, dual.square).meets(tol)


def _check(request: Request, options: Mapping[str, Any]) -> None:
    """Refuse what does not go with a rank."""
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"max_rank has no option {name!r}; it has {', '.join(_OPTIONS)}")
    if request.kind is None or not request.kind.quadratic:
        raise UnsupportedProblemError(
            f"max_rank goes with divergence='frobenius' only; found {request.divergence!r}"
        )
    if isinstance(request.A, LowRank):
        raise TypeError("A is LowRank, whose range Frobenius does not keep: pass A.dense()")
    if np.any(request.t) or request.condition is not None:
        name = "min_eigenvalue" if request.condition is None else "max_condition"
        raise UnsupportedProblemError(
            f"max_rank does not go with {name}: a matrix of rank {request.rank} has the eigenvalue 0"
        )
    if request.H is not None:
        found = "unknown entries" if request.unknown is not None else "weights of entries"
        raise UnsupportedProblemError(
            f"max_rank does not go with {found}: the dual has no closed form then. Use weights of rows"
        )
    rows = {"fixed": request.fixed, "lower and upper": request.bounded}
    found = ", ".join(name for name, entries in rows.items() if len(entries.i))
    found = "groups" if request.groups is not None else found
    if found:
        raise UnsupportedProblemError(
            f"max_rank does not go with {found}: no matrix of rank {request.rank} may meet them, and no "
            "method here decides whether one does"
        )


class _OnSpheres:
    """The objective as a function of any rows ``V``, where ``R`` has their directions."""

    def __init__(self, B: Array, radius: Array, columns: int) -> None:
        self.objective, self.radius, self.shape = Objective(B), radius, (len(B), columns)
        self.R, self.values, self.residual = np.zeros(self.shape), [np.inf], np.inf
        self.unit = self.objective.square + float(np.sum(radius**4))

    def __call__(self, v: Array) -> tuple[float, Array]:
        """Return the scaled value and gradient; store the best point."""
        if len(self.values) > 1:  # there is a point to return
            checkpoint()
        V = v.reshape(self.shape)
        scale = (self.radius / np.maximum(np.sqrt(np.einsum("ij,ij->i", V, V)), TINY))[:, None]
        R = V * scale
        value, gradient, _ = self.objective.at(R)
        outward = np.einsum("ij,ij->i", gradient, R) / self.radius**2
        gradient -= outward[:, None] * R
        if value < min(self.values):
            self.R, self.residual = R, float(np.linalg.norm(gradient)) / (4 * np.sqrt(self.unit))
        self.values.append(value)
        return value / self.unit, (gradient * scale).ravel() / self.unit


def _descend_on_spheres(B: Array, R: Array, radius: Array, tol: float, max_iter: int) -> Descent:
    """Minimize ``||off(B - R R')||_F^2`` from `R` to a local optimum, with rows as long as their radius.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    R : array of shape (n, r)
        A row of zeros gets equal entries first.
    radius : array of shape (n,)
    tol : float
        Largest relative residual of a local optimum; the descent ends at round-off.
    max_iter : int
    """
    from scipy.optimize import minimize  # slow to import

    function, stop = _OnSpheres(B, radius, R.shape[1]), StopReason.STALLED
    start = np.where(np.einsum("ij,ij->i", R, R)[:, None] > 0, R, 1.0)
    limits = {
        "maxiter": max_iter,
        "maxfun": 2 * max_iter,
        "maxcor": _DESCENT_PAIRS,
        "ftol": _DESCENT_FLAT,
        "gtol": 0.0,
    }
    try:
        found = minimize(function, start.ravel(), jac=True, method="L-BFGS-B", options=limits)
        stop = StopReason.MAX_ITER if found.nit >= max_iter else stop
    except CutShort as cut:
        stop = reason(cut)
    residual = function.residual
    return Descent(
        function.R, function.values[1:], residual, StopReason.CONVERGED if residual <= tol else stop
    )
