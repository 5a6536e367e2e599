"""The runs of our hooks, Clarabel and SCS on problems of CVXPY, and the lines of their table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import cvxpy.settings as names
import numpy as np
from sdp_cones import Make, families
from sdp_cvxpy import CLARABEL, METHOD, SCS, SOLVER, options_of
from sdp_table import beside
from sdp_targets import FEASIBLE, Result

import bregopt as bo
import bregopt.cvxpy
from bregopt.cvxpy.cone_check import cones_of
from bregopt.cvxpy.conic_program import triangle

Array = Any
_NAMES = {METHOD: METHOD, SOLVER: SOLVER, CLARABEL: "Clarabel", SCS: "SCS"}
_NONE = np.full(6, np.nan)


@dataclass(frozen=True)
class ConeRun:
    """One solver on one problem: status, CPU seconds with compilation, value, the six DIMACS errors."""

    says: str
    seconds: float
    value: float
    errors: Array


def run(make: Make, how: str, cap: float) -> ConeRun:
    """Compile and solve a new problem; the errors come from CVXPY's conic data and the solver's point."""
    problem, begin = make(), time.process_time()
    try:
        if how == METHOD:
            problem.solve(**options_of(how, cap))
        else:
            data, point = _by_conic_data(problem, how, cap)
    except cp.SolverError as error:
        return ConeRun(f"failed: {error}"[:60], time.process_time() - begin, np.nan, _NONE)
    seconds = time.process_time() - begin
    value = np.nan if problem.value is None else float(problem.value)
    if how == METHOD:
        errors = _errors_of_the_method(problem, make, cap)
    else:
        errors = conic_errors(data, *point)
    return ConeRun(problem.status, seconds, value, errors)


def _by_conic_data(problem: cp.Problem, how: str, cap: float) -> tuple[Any, tuple[Array, Array]]:
    """Solve as ``problem.solve`` does, and return the conic data with the solver's x and z."""
    options = options_of(how, cap)
    solver = options.pop("solver")
    data, chain, inverse = problem.get_problem_data(solver, solver_opts=options)
    found = chain.solve_via_data(problem, data, solver_opts=dict(options))
    problem.unpack_results(found, chain, inverse)
    if how == SCS:
        order = _upper(data["dims"])
        data = {**data, names.A: data[names.A].tocsr()[order], names.B: data[names.B][order]}
        return data, (found["x"], found["y"][order])
    return data, (np.array(found.x), np.array(found.z))


def _errors_of_the_method(problem: cp.Problem, make: Make, cap: float) -> Array:
    """Return the errors of our own program, or of the conic form if the method solved that.

    Where the measures are not defined, for divergences and bounds on eigenvalues, the certificate stands in.
    """
    solution = problem.solver_stats.extra_stats
    if not isinstance(solution, bo.Solution):
        return run(make, SOLVER, cap).errors
    try:
        return bo.dimacs_errors(bo.from_cvxpy(problem), solution)
    except ValueError:
        gap = solution.gap
        return np.array([solution.primal_residual, 0.0, solution.dual_residual, 0.0, gap, gap])


# --- Errors ------------------------------------------------------------------------------------------


def conic_errors(data: Any, x: Array, z: Array) -> Array:
    """Return the DIMACS errors of  min x'Px / 2 + c'x,  s = b - A x in K,  with multipliers z in K*.

    Equations missed by s, cone of s, ``P x + c + A'z``, cone of z, gap by the objectives, gap by <s, z>.
    """
    dims, A, b, c = data["dims"], data[names.A], data[names.B], data[names.C]
    Px = data[names.P] @ x if names.P in data else np.zeros_like(x)
    s = b - A @ x
    primal, dual = c @ x + x @ Px / 2, -b @ z - x @ Px / 2
    size_b, size_c = 1 + np.abs(b).max(initial=0.0), 1 + np.abs(c).max(initial=0.0)
    size = 1 + abs(primal) + abs(dual)
    cones = [cone for cone in cones_of(dims) if cone.inside().any()]
    return np.array(
        [
            np.linalg.norm(s[: int(dims.zero)]) / size_b,
            max(0.0, *(cone.outside(s[cone.rows]) for cone in cones)) / size_b,
            np.linalg.norm(Px + c + A.T @ z) / size_c,
            max(0.0, *(cone.outside_dual(z[cone.rows]) for cone in cones)) / size_c,
            (primal - dual) / size,
            s @ z / size,
        ]
    )


def _upper(dims: Any) -> Array:
    """Return the places of the rows of upper triangles among those of SCS, which are lower triangles."""
    start = dims.zero + dims.nonneg + sum(dims.soc)
    order = [np.arange(start)]
    for n in map(int, dims.psd):
        upper, place = triangle(n), np.zeros((n, n), dtype=int)
        j, i = np.triu_indices(n)  # the lower triangle, column by column
        place[j, i] = start + np.arange(len(i))
        order.append(place[upper.i, upper.j])
        start += len(i)
    return np.concatenate(order)


# --- Table -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """The runs of one solver on the problems of a family: sums of medians, the largest errors."""

    name: str
    says: str
    seconds: float
    values: Array
    errors: Array

    @classmethod
    def of(cls, makes: Sequence[Make], how: str, repeats: int, cap: float) -> Line:
        """Run all problems of a family."""
        runs = [[run(make, how, cap) for _ in range(repeats)] for make in makes]
        says = sorted({own[-1].says for own in runs})
        seconds = sum(float(np.median([r.seconds for r in own])) for own in runs)
        values = np.array([own[-1].value for own in runs])
        errors = np.abs([own[-1].errors for own in runs]).max(axis=0)
        return cls(_NAMES[how], ", ".join(says), seconds, values, errors)

    def result(self) -> Result:
        """Return what targets judge."""
        largest, feasible = float(self.errors.max()), bool(self.errors[:5].max() <= FEASIBLE)
        return Result(self.name, self.says, self.seconds, self.seconds, largest, feasible)


_HEAD = [
    "| through CVXPY | solver | says | CPU s | value | largest DIMACS errors 1 to 6 | off Clarabel "
    "| beside ours |",
    "|---|---|---|--:|--:|---|--:|--:|",
]


def cone_table(
    solvers: Sequence[str], repeats: int, cap: float, quick: bool
) -> tuple[list[str], dict[str, list[Result]]]:
    """Solve each family by every solver; return (and print as they come) the lines, and the results."""
    bregopt.cvxpy.register()
    hows = [how for how, name in _NAMES.items() if name in solvers or how in (METHOD, SOLVER)]
    lines, results = list(_HEAD), {}
    print("\n".join(lines))
    for family, makes in families(quick).items():
        found = [Line.of(makes, how, repeats, cap) for how in hows]
        results[family] = [line.result() for line in found]
        base = next((line.values for line in found if line.name == "Clarabel"), np.full(len(makes), np.nan))
        for line, ratio in zip(found, beside(results[family]), strict=True):
            value = f"{line.values[0]:.8g}" if len(makes) == 1 else ""
            off = (np.abs(line.values - base) / (1 + np.abs(base))).max()
            errors = " ".join(f"{e:.0e}" if not e <= 1e-16 else "0" for e in line.errors)
            cells = [line.name, line.says, f"{line.seconds:#.3g}", value, errors, f"{off:.0e}", ratio]
            lines.append(f"| {family} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    return lines, results
