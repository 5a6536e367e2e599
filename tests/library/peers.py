"""Peers: CVXPY's solvers, whose answers are certified independently and compared with ours.

:func:`ask` solves a CVXPY problem by a peer without output, and certifies its point from the conic data of
CVXPY. Weak duality bounds the distance of its value from the optimum, whatever its status. A test
asserts that the interval ``[value - error, value + error]`` overlaps with ours. A peer that fails, or has a
wide interval, proves nothing: the test is skipped with this reason, or hypothesis drops the example.

On other machines peers stop at other points. ``BREGOPT_TEST_PEER_LOOSE=10`` multiplies the tolerances of
Clarabel and SCS by ten in the whole suite, to check that no test depends on their last digits.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from functools import wraps
from typing import Any

import cvxpy as cp
import cvxpy.settings as names
import hypothesis
import numpy as np
import pytest
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import CLARABEL
from cvxpy.reductions.solvers.conic_solvers.scs_conif import SCS

import bregopt as bo
from bregopt.cvxpy.cone_check import cones_of
from bregopt.cvxpy.conic_program import triangle
from bregopt.routes.base import Settings

LOOSE = float(os.environ.get("BREGOPT_TEST_PEER_LOOSE", "1"))

# The peers' tolerances in tests by default, and their own defaults.
FINE = {
    "CLARABEL": {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    "SCS": {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 50_000},
}
DEFAULT = {
    "CLARABEL": {"tol_gap_abs": 1e-8, "tol_gap_rel": 1e-8, "tol_feas": 1e-8},
    "SCS": {"eps_abs": 1e-5, "eps_rel": 1e-5},
}
WIDE = 1e-5  # an interval of this half width, relative to max(1, |value|), is too wide to compare with
ROUND_OFF = 1e-13  # round-off of a value in double precision, relative to the terms of its sum


@dataclass(frozen=True)
class Answer:
    """A certified answer. The variables of the problem hold its point until the problem is solved again.

    Parameters
    ----------
    problem : cvxpy.Problem
    name : str
        Name of the solver.
    value : float
        Objective at the solver's point, in the user's sense.
    error : float
        Bound on the distance of the optimum from `value`, by weak duality.
    duals : tuple
        Multipliers of the constraints, with CVXPY's signs.
    """

    problem: cp.Problem
    name: str
    value: float
    error: float
    duals: tuple[Any, ...]

    def agrees(self, value: float, error: float) -> None:
        """Assert that the peer's interval overlaps with ``[value - error, value + error]``."""
        slack = self.error + error + ROUND_OFF * max(1.0, abs(self.value), abs(value))
        apart = abs(value - self.value)
        assert apart <= slack, (
            f"ours is {value!r} +- {error:.1e}, {self.name}'s {self.value!r} +- {self.error:.1e}: "
            f"{apart:.1e} apart, {slack:.1e} proven"
        )

    def confirms(self, solution: Any, point: dict[cp.Variable, Any] | None = None, tol: float = 1e-6) -> None:
        """Assert that a solution's interval overlaps with the peer's, and that CVXPY confirms its value.

        Parameters
        ----------
        solution : Solution
        point : dict, optional
            Our values of all variables of the peer's problem. They must be feasible to `tol` and have our
            objective value. If they violate rows and their objective is better than our bound, our value is
            worse by the cost of the violations, at most our error (see `bregopt.certify.Certificate`).
        tol : float
            Tolerance relative to the largest number of the point.
        """
        self.agrees(solution.value, solution.error)
        if point is not None:
            size = max(1.0, *(np.abs(np.asarray(at)).max() for at in point.values()))
            value, violation = put(self.problem, point)
            assert violation <= tol * size, f"the point violates the peer's problem by {violation:.1e}"
            sign = 1 if isinstance(self.problem.objective, cp.Minimize) else -1
            raised, round_off = sign * (solution.value - value), 1e-9 * max(size, abs(value))
            beyond = abs(raised) > round_off and sign * (solution.dual_value - value) > 0
            most = solution.error if beyond else 0.0
            assert -round_off <= raised <= most + round_off, (
                f"the point has {value!r}, ours {solution.value!r}"
            )

    def near(self, found: Any, expected: Any, atol: float) -> None:
        """Assert that a point or multiplier is the peer's.

        The point is known to the square root of the value's relative error; if this exceeds `atol`, the test
        is skipped.
        """
        known = np.sqrt(self.error / max(1.0, abs(self.value)))
        if known > atol:
            skip(f"{self.name} knows points to {known:.1e} only, {atol:.1e} is asked")
        np.testing.assert_allclose(found, expected, atol=atol)


def ask(problem: Any, solver: str = "CLARABEL", wide: float = WIDE, **options: Any) -> Answer:
    """Return a peer's certified answer to a problem; skip the test if there is none, or it is too inaccurate.

    Parameters
    ----------
    problem : cvxpy.Problem or bregopt.Problem
        A problem without power cones and integers.
    solver : {"CLARABEL", "SCS"}
    wide : float
        Half width, relative to ``max(1, |value|)``, from which an interval is too wide for the test.
    **options
        Options of the peer; by default `FINE`.
    """
    if not isinstance(problem, cp.Problem):
        problem = problem.to_cvxpy()
    assert problem.is_dcp(), "the test's own problem is not convex"
    try:
        answer = certified(problem, solver, **{**FINE[solver], **options})
    except Exception as error:
        skip(f"{solver} failed: {error}")
    if not answer.error <= wide * max(1.0, abs(answer.value)):
        skip(f"{solver} proves {answer.value!r} to {answer.error:.1e} only")
    return answer


def reference(problem: Any, within: float | None = None, **options: Any) -> Any:
    """Return the answer of our route `cvxpy`, which depends on its backend; skip if it is inaccurate.

    Parameters
    ----------
    problem : bregopt.Problem
    within : float, optional
        Bound on gap and residuals for an answer that misses its tolerance; by default the test is skipped.
    **options
        Options of the route.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        try:
            solution = problem.solve(solver="cvxpy", **options)
        except bo.SolverError as error:
            skip(str(error))
    worst = max(solution.gap, solution.primal_residual, solution.dual_residual)
    if solution.status == "optimal":
        assert worst <= options.get("tol", Settings.tol), "a status is no better than its certificate"
    elif solution.status not in ("infeasible", "unbounded") and not worst <= (within or 0.0):
        skip(f"the backend falls short: {solution.status}, {worst:.1e}. {solution.stop_reason}")
    return solution


def certified(problem: cp.Problem, solver: Any, **options: Any) -> Answer:
    """Return the answer of a conic solver of CVXPY, or of ours, and its error from the conic data.

    Raises
    ------
    cvxpy.SolverError
        If it fails, or reports that there is no optimum.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data, chain, inverse = problem.get_problem_data(solver, solver_opts=options)
        found = chain.solve_via_data(problem, data, solver_opts=dict(options))
        problem.unpack_results(found, chain, inverse)
    if problem.status not in ("optimal", "optimal_inaccurate"):
        raise cp.SolverError(f"the status is {problem.status}")
    # The objective of the conic form differs from the problem's in its constant and its sense only.
    if solver == "SCS":
        error = conic_error(data, found["x"], found["y"], lower=True)
    else:
        error = conic_error(data, np.array(found.x), np.array(found.z))
    duals = tuple(_copied(c.dual_value) for c in problem.constraints)
    return Answer(problem, chain.solver.name(), float(problem.solution.opt_val), error, duals)


def _copied(dual: Any) -> Any:
    return list(map(_copied, dual)) if isinstance(dual, list | tuple) else np.array(dual)


def conic_error(data: Any, x: np.ndarray, z: np.ndarray, lower: bool = False) -> float:
    """Return a first-order bound on the distance of the value at `x` from the optimum of a conic program.

    The program is ``min x'Px / 2 + c'x`` where ``s = b - A x`` is in ``K``. Its dual bound is
    ``-x'Px / 2 - b'z``, for ``P x + c + A'z = 0`` and ``z`` in ``K*``. A residual of `x` counts with the
    multipliers `z` as prices, a residual of `z` with `x`.

    Parameters
    ----------
    data : dict
        Result of CVXPY's ``get_problem_data``.
    x, z : arrays
    lower : bool
        Whether psd matrices are given by their lower triangles, as for SCS, not by the upper ones.
    """
    A, b, c, dims = data[names.A], data[names.B], data[names.C], data["dims"]
    assert not any(getattr(dims, cone, None) for cone in ("p3d", "pnd")), "power cones are not certified"
    Px = data[names.P] @ x if names.P in data else np.zeros_like(x)
    s, left = b - A @ x, Px + c + A.T @ z
    error = abs(x @ Px + c @ x + b @ z) + np.abs(left) @ np.abs(x)
    error += ROUND_OFF * (np.abs(c) @ np.abs(x) + np.abs(b) @ np.abs(z))
    order = _upper(dims) if lower else slice(None)
    s, z = s[order], z[order]
    for cone in cones_of(dims):
        s_K, z_K, inside = s[cone.rows], z[cone.rows], cone.inside()
        price = inside if set(inside.tolist()) == {0.0, 1.0} else np.ones_like(inside)
        error += max(cone.outside(s_K), 0.0) * (price @ np.abs(z_K))
        error += max(cone.outside_dual(z_K), 0.0) * (price @ np.abs(s_K))
    return float(error)


def put(problem: cp.Problem, point: dict[cp.Variable, Any]) -> tuple[float, float]:
    """Return the objective of a CVXPY problem at a point, and the largest violation of its constraints."""
    unknown = [v.name() for v in problem.variables() if v not in point]
    assert not unknown, f"the point has no values of {unknown}"
    for variable, value in point.items():
        variable.save_value(np.reshape(np.asarray(value, dtype=float), variable.shape))
    violations = [float(np.max(c.violation(), initial=0.0)) for c in problem.constraints]
    for variable in point:
        value = variable.value
        if variable.attributes["PSD"]:
            violations.append(-float(np.linalg.eigvalsh(value)[0]))
        if variable.attributes["nonneg"]:
            violations.append(-float(np.min(value)))
    return float(problem.objective.value), max(violations, default=0.0)


def skip(reason: str) -> Any:
    """Skip the test, or within hypothesis the example, as a peer gives nothing to compare with."""
    if hypothesis.currently_in_test_context():
        hypothesis.event(reason)
        hypothesis.reject()
    pytest.skip(reason)


def _upper(dims: Any) -> np.ndarray:
    """Return the places of the rows of Clarabel's triangles in those of SCS, which are lower triangles."""
    ahead = np.arange(dims.zero + dims.nonneg + sum(dims.soc))
    order, start = [ahead], len(ahead)
    for n in map(int, dims.psd):
        place = np.zeros((n, n), dtype=int)
        j, i = np.triu_indices(n)  # the lower triangle, column by column
        place[j, i] = start + np.arange(len(i))
        upper = triangle(n)
        order.append(place[upper.i, upper.j])
        start += len(i)
    order.append(start + np.arange(3 * dims.exp))
    return np.concatenate(order)


def loosen(factor: float) -> None:
    """Multiply the tolerances of every call of Clarabel and SCS through CVXPY."""
    for solver, name in ((CLARABEL, "CLARABEL"), (SCS, "SCS")):
        solver.solve_via_data = _loosened(solver.solve_via_data, DEFAULT[name], factor)


def _loosened(solve: Any, defaults: dict[str, float], factor: float) -> Any:
    @wraps(solve)
    def loosened(self, data, warm_start, verbose, solver_opts, solver_cache=None):
        options = dict(solver_opts)
        eps = options.pop("eps", None)  # SCS's name for both of its tolerances
        for name, default in defaults.items():
            options[name] = factor * options.get(name, default if eps is None else eps)
        return solve(self, data, warm_start, verbose, options, solver_cache)

    return loosened
