"""What each special path of the package buys: its named problem, solved with it and without it.

    OPENBLAS_NUM_THREADS=1 python benchmarks/special_paths.py [--only slacks] [--rounds 5] [--data FOLDER]

A path is switched off by replacing the one decision that chooses it. With and without take turns in each
round, on a problem that is new each time. Times are medians of CPU seconds. A path pays if an answer has a
worse status without it, or takes a fifth more time. The folder has SDPLIB in `sdplib`; one path has its
problem from there. The table of a full run goes to benchmarks/results/special_paths.md.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import operator
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial, reduce
from itertools import combinations, permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import cvxpy as cp
import entropies
import hierarchies
import large_cuts
import logdet_completion
import logdet_lasso
import margins
import networkx as nx
import numpy as np
import relaxations
import scipy.sparse as sp
import sdp_problems
import soft_rows
from correlation_tools import indefinite
from nearness_problems import ATOMS, correlation_problem, distance_problem, start_matrix, uniform_matrix
from textbook_problems import PROBLEMS
from tuning_problems import _quadratic_forms, _random, _theta, suites

import bregopt as bo
from bregopt import presolve
from bregopt.certify import eigenvalue_bound
from bregopt.cvxpy import BREGOPT, exponential_cones
from bregopt.cvxpy.conic_program import Names
from bregopt.cvxpy.problems import convex_atoms
from bregopt.program import Answer

Array = Any
Call = Callable[[], Any]
ROUNDS, LIMIT = 5, 20.0
PAYS = 1.2  # ratio of times
HEAD = (
    "| path, chosen in | problem | ms | without | ratio | status | without | steps | without | gap | without "
    "| pays |\n|---|---|--:|--:|--:|---|---|--:|--:|--:|--:|---|\n"
)
PROVEN = ("optimal", "infeasible", "unbounded")


class SpecialPath(NamedTuple):
    """A path, the module and function that choose it, what switches it off, its problem.

    `prepare` returns the call that solves the problem.
    """

    name: str
    place: str
    off: Callable[[], Any]
    problem: str
    prepare: Callable[[], Call]


# ---------------------------------------------------------------------------------------------- switching off


def replaced(place: str, value: Any) -> Callable[[], Any]:
    """Return what switches off a path by another function or constant."""
    return lambda: patch(f"bregopt.{place}", value)


def answering(place: str, value: Any) -> Callable[[], Any]:
    """Return what switches off a path by a decision that always has the same answer."""
    return replaced(place, lambda *_, **__: value)


def without(*names: str) -> Callable[[], Any]:
    """Return what switches off reductions: they find nothing."""

    @contextlib.contextmanager
    def off() -> Iterator[None]:
        with patch.dict(presolve.UNIVERSAL), patch.dict(presolve.REQUESTED):
            for known in (presolve.UNIVERSAL, presolve.REQUESTED):
                known.update({name: lambda *_: None for name in known.keys() & set(names)})
            yield

    return off


def _stalled(*given: Any) -> Any:
    return next(own for own in given if isinstance(own, Answer))


def _in_rows(plan: Any, program: Any, exact: Any, direct: bool = False, formed: int = 0) -> Any:
    from bregopt.routes.ipm.row_system import RowSystem

    return RowSystem(plan, program.B, direct)


def _without_splitting() -> Any:
    from bregopt.routes.graphical_lasso.solve import _Methods

    descended = _Methods._descended
    return patch.object(_Methods, "_descended", lambda *own: (descended(*own)[0], False))


def _without_rank() -> Any:
    from bregopt.program.rows import RankOne

    return patch.object(RankOne, "rank", None)


def _listed_by_coordinates(rows: Any, U: Any, W: Any, at: Any, n: int) -> Any:
    from bregopt.rigorous.data import Terms, _radii

    t = rows.coordinates()
    return Terms(at[t.row], np.minimum(t.i, t.j) * n + np.maximum(t.i, t.j), t.value, _radii(rows, t))


def _resting(method: Any, program: Any, *_: Any) -> Any:
    from bregopt.routes.working_set import ActiveSet

    return ActiveSet.resting(program.bounds)


# ------------------------------------------------------------------------------------------------ measurement


class Run(NamedTuple):
    """CPU seconds, status, steps and relative gap of an answer."""

    seconds: float
    status: str
    steps: int
    gap: float


def run(prepare: Callable[[], Call]) -> Run:
    """Prepare and time a call; an error is a status."""
    call = prepare()
    with patch.object(eigenvalue_bound, "_cached_bounds", ()):
        begin = time.process_time()
        try:
            answer = call()
        except Exception as error:
            return Run(time.process_time() - begin, type(error).__name__, 0, math.nan)
        seconds = time.process_time() - begin
    return Run(seconds, answer.status, answer.iterations, answer.gap)


class Found(NamedTuple):
    """What is measured of a result that is no answer of a route."""

    status: str
    iterations: int = 0
    gap: float = math.nan


def in_turns(path: SpecialPath, rounds: int) -> tuple[Run, Run]:
    """Return the runs with the path and without, with their median times; the first round imports."""
    runs: dict[bool, list[Run]] = {True: [], False: []}
    for k in range(rounds + 1):
        for use in (True, False) if k % 2 else (False, True):
            if runs[use] and runs[use][-1].seconds > LIMIT / 2:
                continue
            with contextlib.nullcontext() if use else path.off():
                found = run(path.prepare)
            if k or found.seconds > LIMIT / 2:
                runs[use].append(found)
    own, other = (
        found[-1]._replace(seconds=statistics.median(one.seconds for one in found))
        for found in (runs[True], runs[False])
    )
    return own, other


def pays(own: Run, other: Run) -> bool:
    """Whether the status is worse without the path, or the time a fifth longer."""
    worse = own.status in PROVEN and other.status not in PROVEN
    return worse or other.seconds > PAYS * own.seconds


def line(path: SpecialPath, own: Run, other: Run) -> str:
    """Return the line of the table."""
    cells = [
        f"{path.name}, `{path.place}`",
        path.problem,
        f"{1e3 * own.seconds:,.1f}",
        f"{1e3 * other.seconds:,.1f}",
        f"{other.seconds / own.seconds:.1f}",
        own.status,
        other.status,
        str(own.steps),
        str(other.steps),
        *(f"{gap:.0e}" if math.isfinite(gap) else "" for gap in (own.gap, other.gap)),
        "yes" if pays(own, other) else "no",
    ]
    return f"| {' | '.join(cells)} |"


# --------------------------------------------------------------------------------------------------- problems


def solving(make: Callable[..., bo.Problem], *arguments: Any, **options: Any) -> Callable[[], Call]:
    """Return what prepares the solve of a problem."""

    def prepare() -> Call:
        problem = make(*arguments)
        problem.program()
        return partial(problem.solve, time_limit=LIMIT, **options)

    return prepare


def calling(function: Callable[..., Any], *arguments: Any) -> Callable[[], Call]:
    """Return what prepares the call of a function."""
    return lambda: partial(function, *arguments)


def accurate(make: Callable[[], bo.Problem]) -> Callable[[], Call]:
    """Return what prepares a solve that asks how far ``X`` is from the optimum; the gap is that distance.

    The answer counts as proven if entries are known to 1e-6.
    """

    def known(problem: bo.Problem) -> Found:
        sol = problem.solve()
        distance = sol.accuracy.largest / np.abs(sol.X).max()
        return Found("optimal" if distance <= 1e-6 else "inaccurate", sol.iterations, distance)

    return lambda: partial(known, make())


def verified(make: Callable[[], bo.Problem], **options: Any) -> Callable[[], Call]:
    """Return what prepares the rigorous bounds of an answer; the steps are further solves."""

    def bounds(sol: Any) -> Found:
        found = sol.verify()
        return Found("inaccurate" if found.reasons else "optimal", found.solves, found.width)

    return lambda: partial(bounds, make().solve(**options))


def contradicted(make: Callable[[], bo.Problem]) -> Callable[[], Call]:
    """Return what prepares the search for a conflict; the steps are its inequalities."""

    def conflict(sol: Any) -> Found:
        found = sol.conflict()
        return Found("infeasible" if found.irreducible else "inaccurate", len(found))

    return lambda: partial(conflict, make().solve())


def case(route: str, name: str) -> Callable[[], Call]:
    """Return what prepares the solve of a problem of tuning_problems.py."""
    (own,) = [own for own in suites()[route] if own.name == name]
    return solving(own.make, solver=route, **own.options)


def symmetric(rng: np.random.Generator, *shape: int) -> Array:
    """Return random symmetric matrices."""
    A = rng.normal(size=shape)
    return A + np.swapaxes(A, -1, -2)


def covariance(n: int, least: float = 0.1) -> Array:
    """Return a random covariance matrix."""
    G = np.random.default_rng(0).normal(size=(n, 2 * n))
    return G @ G.T / (2 * n) + least * np.eye(n)


def gradient_of_nearest(n: int) -> Call:
    """Return the nearest correlation matrix and one gradient of it."""

    def differentiated(A: Array) -> Found:
        sol = bo.nearest_correlation(A)
        sol.vjp(np.ones((n, n)))
        return Found(sol.status, sol.iterations, sol.gap)

    return partial(differentiated, covariance(n))


def moved_forms(n: int, m: int, near: Any, least: float, most: float) -> bo.Problem:
    """Return nearness with quadratic forms at multiples of their values, between `least` and `most`."""
    rng, X, X0 = np.random.default_rng(0), bo.PSD(n), covariance(n, 0.0)
    Z = rng.normal(size=(m, n))
    values = np.einsum("ki,ij,kj->k", Z, X0, Z) * np.exp(rng.uniform(*np.log([least, most]), m))
    return bo.Problem(bo.Minimize(near(X, X0)), [bo.quad_form(Z, X) == values])


def correlation_with_forms(n: int) -> bo.Problem:
    """Return the search for the nearest correlation matrix within bounds on three quadratic forms."""
    rng, X = np.random.default_rng(0), bo.PSD(n)
    A, Z = 4 * uniform_matrix(n, rng), rng.normal(size=(3, n))
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1, bo.quad_form(Z, X) <= n])


def large_beside_another(n: int) -> bo.Problem:
    """Return LogDet nearness, whose rows ask for a far larger matrix, beside Frobenius nearness."""
    X, Y, Z = bo.PSD(n), bo.PSD(n), np.random.default_rng(1).normal(size=(4, n))
    rows = [bo.quad_form(Z, X) >= 1e5, bo.trace(X) - bo.trace(Y) == 1]
    return bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(n)) + bo.frobenius_div(Y, np.eye(n))), rows)


def beside_large_cost(n: int) -> bo.Problem:
    """Return von Neumann nearness beside a linear cost that is far larger."""
    rng, X = np.random.default_rng(1), bo.PSD(n)
    C, z = symmetric(rng, n, n), rng.normal(size=(3, n))
    objective = bo.Minimize(bo.von_neumann_div(X, np.eye(n)) - bo.inner(100 * C, X))
    return bo.Problem(objective, [bo.diag(X) <= 1, bo.quad_form(z, X) >= 1])


def dense_forms(n: int, m: int) -> bo.Problem:
    """Return the matrix of least trace with lower bounds on dense quadratic forms."""
    X, Z = bo.PSD(n), np.random.default_rng(0).normal(size=(m, n))
    return bo.Problem(bo.Minimize(bo.trace(X)), [bo.quad_form(Z, X) >= 1])


def slowly_split(n: int) -> Array:
    """Return a matrix whose nearest correlation matrix in the largest entry takes a splitting long."""
    A = np.random.default_rng(24).uniform(-1, 1, size=(n, n))
    A = (A + A.T) / 2
    np.fill_diagonal(A, 1.0)
    return A


def triangle_inequalities(n: int, m: int) -> bo.Problem:
    """Return a relaxation of integers with random triangle inequalities."""
    rng = np.random.default_rng(0)
    i, j, k = np.array([rng.choice(n, 3, replace=False) for _ in range(m)]).T
    W, X = rng.normal(size=(n, n)), bo.PSD(n)
    rows = [bo.diag(X) == 1, X[i, j] + X[j, k] - X[i, k] <= 1]
    return bo.Problem(bo.Minimize(bo.inner(W + W.T, X)), rows)


def not_attained() -> bo.Problem:
    """Return the least entry of a psd matrix beside an entry of one, which no matrix attains."""
    X = bo.PSD(2)
    return bo.Problem(bo.Minimize(X[0, 0]), [2 * X[0, 1] == 2])


def theta(n: int, density: float) -> bo.Problem:
    """Return the theta number of a random graph, as a program of the language."""
    i, j = np.array(nx.gnp_random_graph(n, density, seed=0).edges).T
    X = bo.PSD(n)
    return bo.Problem(bo.Maximize(bo.sum(X)), [bo.trace(X) == 1, X[i, j] == 0])


def least_deviation(n: int, diagonal: float | None = None) -> bo.Problem:
    """Return the psd matrix nearest to a symmetric one in the largest deviation of an entry."""
    A, X, t = symmetric(np.random.default_rng(5), n, n), bo.PSD(n), bo.Variable()
    rows = [X - A <= t, A - X <= t] + ([] if diagonal is None else [bo.diag(X) == diagonal])
    return bo.Problem(bo.Minimize(t), rows)


def textbook(name: str, n: int) -> bo.Problem:
    """Return a problem of the table of textbook problems."""
    return bo.from_cvxpy(PROBLEMS[name](n, np.random.default_rng(1)))


def triplets(D: int, R: int, apart: float = 6.0, unit: float = 1.0) -> bo.Problem:
    """Return the soft margin of triplets, its slacks written as variables and their signs as rows.

    The first feature is multiplied by `unit`.
    """
    data, units = margins.classes(D, max(R, 100), D, R, apart), np.append(unit, np.ones(D - 1))
    X, rho, xi = bo.PSD(D), bo.Variable(), bo.Variable(R)
    differences = bo.quad_form(data.far * units, X) - bo.quad_form(data.near * units, X)
    rows = [differences >= rho - xi, xi >= 0, bo.trace(X) == 1]
    return bo.Problem(bo.Maximize(rho - 10 / R * bo.sum(xi)), rows)


def idle_variables(n: int, m: int) -> bo.Problem:
    """Return a linear program that names the values of quadratic forms, on which nothing else depends."""
    rng, X, y = np.random.default_rng(1), bo.PSD(n), bo.Variable(m)
    C, Z = symmetric(rng, n, n), rng.normal(size=(m, n))
    return bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.diag(X) == 1, y == bo.quad_form(Z, X)])


def margin_on_few_rows() -> Call:
    """Return the solve of an unbounded soft margin of triplets on a working set that begins with six."""
    rng = np.random.default_rng(4)
    far, near = rng.normal(size=(60, 3)) + np.eye(3)[0], rng.normal(size=(60, 3))
    X, rho = bo.PSD(3), bo.Variable()
    rows = [bo.soft(bo.quad_form(far, X) - bo.quad_form(near, X) >= rho, gamma=0.5 / 60), bo.trace(X) == 1]
    problem, route = bo.Problem(bo.Maximize(rho), rows), "bregopt.routes.ipm.path_route"

    def call() -> Any:
        with (
            patch(f"{route}._sample_size", lambda *_: 6),
            patch(f"{route}._many_inactive", lambda *_: True),
        ):
            return problem.solve("path")

    return call


def inequality(n: int, k: int) -> bo.Problem:
    """Return the least ``c'u`` with ``F_0 + sum u_i F_i`` psd."""
    rng = np.random.default_rng(n)
    F, u, X = symmetric(rng, k, n, n), bo.Variable(k), bo.PSD(n)
    c, F_0 = np.einsum("kij,ij->k", F, start_matrix(n, rng)), start_matrix(n, rng)
    return bo.Problem(bo.Minimize(c @ u), [X == F_0 + total(u[i] * F[i] for i in range(k))])


def with_zero_diagonals(n: int, k: int, count: int) -> bo.Problem:
    """Return matrix inequalities with a zero at the end of their diagonals, and variables beside it."""
    rng, u, rows = np.random.default_rng(0), bo.Variable(k), []
    for _ in range(count):
        F, F_0 = symmetric(rng, k, n, n), np.eye(n)
        beside = np.outer(rng.normal(size=k), rng.normal(size=n))
        F[:, -1], F[:, :, -1] = beside, beside
        F[:, -1, -1] = F_0[-1, -1] = 0.0
        rows.append(bo.PSD(n) == F_0 + total(u[i] * F[i] for i in range(k)))
    return bo.Problem(bo.Maximize(rng.normal(size=k) @ u), rows)


def with_wide_bounds(n: int, k: int, m: int) -> bo.Problem:
    """Return equalities in a matrix and variables within 1e8, with a primal and a dual point inside."""
    rng, X, u = np.random.default_rng(7), bo.PSD(n), bo.Variable(k)
    A, B, u0, y = symmetric(rng, m, n, n), rng.normal(size=(m, k)), rng.normal(size=k), rng.uniform(size=m)
    right = np.einsum("kij,ij->k", A, start_matrix(n, rng)) + B @ u0
    rows = [bo.inner(A[i], X) + B[i] @ u == right[i] for i in range(m)]
    C = start_matrix(n, rng) - np.einsum("k,kij->ij", y, A)
    return bo.Problem(bo.Minimize(bo.inner(C, X) - (B.T @ y) @ u), [*rows, u <= 1e8, u >= -1e8])


def opposed_entries(n: int) -> bo.Problem:
    """Return correlations that are all at most -0.2, which more than six variables cannot be."""
    X, (i, j) = bo.PSD(n), np.triu_indices(n, 1)
    return bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) == 1, X[i, j] <= -0.2, X[i, j] >= -0.9])


def halfspaces(n: int, m: int) -> bo.Problem:
    """Return Frobenius nearness with a unit diagonal and some inequalities of all entries."""
    rng, X = np.random.default_rng(2), bo.PSD(n)
    X0, A = symmetric(rng, n, n), symmetric(rng, m, n, n)
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, X0)), [bo.diag(X) == 1, bo.inner(A, X) <= 0])


def weighted(n: int) -> bo.Problem:
    """Return the nearest correlation matrix with weights over six decades."""
    rng, X = np.random.default_rng(n), bo.PSD(n)
    H, X0 = 10 ** (symmetric(rng, n, n) / 2).clip(-3, 3), uniform_matrix(n, rng)
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, X0, weights=H)), [bo.diag(X) == 1])


def slacks_without_interior() -> bo.Problem:
    """Return a problem of optimum 1 whose slack matrices have a zero in the last diagonal entry."""
    X = bo.PSD(3)
    return bo.Problem(bo.Minimize(X[0, 0] + X[1, 1]), [X[0, 2] == 1, X[0, 1] == 0.5])


def low_rank_with_a_logarithm() -> bo.Problem:
    """Return von Neumann nearness in low rank with distances, a variable, a soft row and a logarithm."""
    F, i = np.random.default_rng(5).normal(size=(12, 4)), np.arange(5)
    X, u = bo.PSD(12), bo.Variable(nonneg=True)
    rows = [bo.sq_distance(X, i, i + 3) <= 2 + u, bo.soft(X[0, 1] == 0.3, gamma=2.0)]
    rows += [bo.trace(X) <= 40, bo.lambda_max(X) <= 20]
    nearness = bo.von_neumann_div(X, bo.LowRank(F))
    return bo.Problem(bo.Minimize(nearness + u - 0.1 * bo.log(X[0, 0])), rows)


def blocks(count: int, n: int, m: int, chained: bool) -> bo.Problem:
    """Return an SDP of small matrices; its rows meet all of them, or two neighbors in a chain."""
    rng = np.random.default_rng(count)
    X, inside = [bo.PSD(n) for _ in range(count)], [start_matrix(n, rng) for _ in range(count)]
    rows = []
    for met in [(b, b + 1) for b in range(count - 1)] if chained else [range(count)]:
        A = {b: symmetric(rng, m, n, n) for b in met}
        at = sum(np.einsum("kij,ij->k", A[b], inside[b]) for b in met)
        rows.append(total(bo.inner(A[b], X[b]) for b in met) == at)
    return bo.Problem(bo.Minimize(total(bo.inner(start_matrix(n, rng), X_b) for X_b in X)), rows)


def total(terms: Iterator[Any]) -> Any:
    """Return the sum of expressions."""
    return reduce(operator.add, terms)


def nearly_dependent(n: int, m: int, angle: float) -> bo.Problem:
    """Return a random SDP in which half of the rows nearly repeat the others."""
    rng = np.random.default_rng(n)
    A, X = symmetric(rng, m, n, n), bo.PSD(n)
    A[m // 2 :] = A[: m - m // 2] + angle * A[m // 2 :]
    at = np.einsum("kij,ij->k", A, start_matrix(n, rng))
    return bo.Problem(bo.Minimize(bo.inner(start_matrix(n, rng), X)), [bo.inner(A, X) == at])


def many_equalities(divergence: str, n: int, m: int, error: float) -> bo.Problem:
    """Return nearness with far more equalities than entries, which hold up to an error."""
    rng = np.random.default_rng(n)
    A, X = symmetric(rng, m, n, n), bo.PSD(n)
    at = np.einsum("kij,ij->k", A, start_matrix(n, rng)) + error * rng.normal(size=m)
    return bo.Problem(bo.Minimize(ATOMS[divergence](X, start_matrix(n, rng))), [bo.inner(A, X) == at])


def ill_conditioned(n: int, m: int, condition: float) -> bo.Problem:
    """Return LogDet nearness to a matrix of large condition, with distances."""
    rng = np.random.default_rng(n)
    Q, X = np.linalg.qr(rng.normal(size=(n, n)))[0], bo.PSD(n)
    X0 = Q * np.logspace(0, -math.log10(condition), n) @ Q.T
    i, j = np.array([rng.choice(n, 2, replace=False) for _ in range(m)]).T
    near = 0.5 * (X0[i, i] + X0[j, j] - 2 * X0[i, j])
    return bo.Problem(bo.Minimize(bo.logdet_div(X, (X0 + X0.T) / 2)), [bo.sq_distance(X, i, j) <= near])


def duality_gap(seed: int) -> bo.Problem:
    """Return the textbook example whose dual value is 0 and not 1, rotated and with its rows combined.

    ``X_22 = 0`` forces ``X_23 = 0`` and ``X_11 = 1``.
    """
    rng = np.random.default_rng(seed)
    E = np.zeros((3, 3, 3))
    E[0, 1, 1] = E[1, 0, 0] = E[1, 1, 2] = E[1, 2, 1] = E[2, 0, 0] = 1
    Q, T, X = np.linalg.qr(rng.normal(size=(3, 3)))[0], rng.normal(size=(2, 2)) + 3 * np.eye(2), bo.PSD(3)
    A, at = Q @ np.tensordot(T, E[:2], 1) @ Q.T, T @ [0.0, 1.0]
    return bo.Problem(bo.Minimize(bo.inner(Q @ E[2] @ Q.T, X)), [bo.inner(A, X) == at])


def distance_inequality(n: int) -> bo.Problem:
    """Return the nearest matrix of squared distances, as a matrix inequality in these."""
    rng = np.random.default_rng(0)
    P = rng.normal(size=(n, 3))
    D = ((P[:, None] - P) ** 2).sum(axis=2) + symmetric(rng, 1, n, n)[0] / 4
    B = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
    K = bo.Variable((n, n), symmetric=True)
    return bo.Problem(bo.Minimize(bo.sum_squares(K - D)), [bo.diag(K) == 0, B.T @ K @ B << 0])


def largest_deviation(n: int) -> bo.Problem:
    """Return the search for the Gram matrix of the least largest deviation from given distances."""
    rng = np.random.default_rng(0)
    x, (i, j) = rng.normal(size=(n, 2)), np.triu_indices(n, 1)
    d = np.sum((x[i] - x[j]) ** 2, axis=1) * rng.uniform(0.8, 1.2, len(i))
    G, t = bo.PSD(n), bo.Variable()
    off = bo.sq_distance(G, i, j) - d
    return bo.Problem(bo.Minimize(t), [off <= t, -t <= off])


def component_within_a_norm(n: int) -> bo.Problem:
    """Return the search for a sparse principal component (d'Aspremont et al. 2007), as CVXPY states it."""
    A = np.random.default_rng(1).normal(size=(n, n))
    A, X = (A + A.T) / 2, cp.Variable((n, n), PSD=True)
    rows = [cp.trace(X) == 1, cp.norm1(X) <= 3]
    return bo.from_cvxpy(cp.Problem(cp.Maximize(cp.trace(A @ A @ X)), rows))


def nearest_within_a_norm(n: int) -> bo.Problem:
    """Return the search for the nearest psd matrix within a sum of absolute entries, as CVXPY states it."""
    A = np.random.default_rng(1).normal(size=(n, n))
    X = cp.Variable((n, n), PSD=True)
    return bo.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(X - (A + A.T) / 2)), [cp.norm1(X) <= n]))


def general_matrix_within_a_norm(n: int) -> bo.Problem:
    """Return the search for a square matrix near another within a norm, its symmetric part below a third."""
    A = np.random.default_rng(1).normal(size=(n, n))
    X, S = cp.Variable((n, n)), cp.Variable((n, n), PSD=True)
    rows = [X + X.T << S, cp.norm1(X) <= 3]
    return bo.from_cvxpy(cp.Problem(cp.Minimize(cp.norm1(X - A) + cp.trace(S)), rows))


def symmetric_by_rows(n: int) -> bo.Problem:
    """Return the cheapest split of a matrix in a psd one and one within bounds that equals its transpose."""
    rng = np.random.default_rng(0)
    cost, M = rng.normal(size=(2, n, n))
    X, N = cp.Variable((n, n), PSD=True), cp.Variable((n, n))
    rows = [X + N == M @ M.T / n - 0.5, N == N.T, N >= -1, N <= 2]
    return bo.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.multiply(cost, N)) + cp.trace(X)), rows))


def entries_within_one(n: int) -> bo.Problem:
    """Return the search for a matrix of bounded trace whose entries are at most one."""
    A, X = np.random.default_rng(1).normal(size=(n, n)), cp.Variable((n, n), PSD=True)
    rows = [cp.abs(X) <= 1, cp.trace(X) <= n / 2]
    return bo.from_cvxpy(cp.Problem(cp.Minimize(cp.trace((A + A.T) @ X)), rows))


def linear_beside_a_matrix(m: int, k: int) -> bo.Problem:
    """Return a sparse linear program, and the least eigenvalue of a matrix of order 8."""
    rng = np.random.default_rng(0)
    A, G = rng.normal(size=(8, 8)), np.where(rng.random((m, k)) < 4 / k, rng.uniform(size=(m, k)), 0.0)
    X, x, c = bo.PSD(8), bo.Variable(k), G.T @ rng.random(m)
    return bo.Problem(bo.Minimize(bo.inner(A + A.T, X) - c @ x), [G @ x <= rng.random(m), bo.trace(X) == 1])


def above_another(n: int) -> bo.Problem:
    """Return the search for the nearest correlation matrix that is a given one plus a psd matrix."""
    A, X = np.random.default_rng(3).normal(size=(n, n)), bo.PSD(n)
    rows = [bo.diag(X) == 1, X >> 0.1 * np.ones((n, n))]
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, (A + A.T) / 2)), rows)


def far_optimum(t: float, n: int) -> bo.Problem:
    """Return ``min tr X`` for ``x_1 - x_2 >= 1`` and ``(1 + t) x_2 - x_1 >= 1``, in a random basis.

    The sum of the rows is ``t x_2 >= 2``: the optimum is as large as one over an eigenvalue of the data.
    """
    Q, X = np.linalg.qr(np.random.default_rng(1).normal(size=(n, n)))[0][:, :2], bo.PSD(n)
    rows = [bo.inner((Q * d) @ Q.T, X) >= 1 for d in ([1, -1], [-1, 1 + t])]
    return bo.Problem(bo.Minimize(bo.trace(X)), rows)


def zero_diagonals(n: int) -> bo.Problem:
    """Return a problem in which rows on the diagonal together fix entries of it to zero."""
    X = bo.PSD(n)
    d, cost = bo.diag(X), start_matrix(n, np.random.default_rng(0))
    rows = [bo.sum(d[:5]) <= bo.sum(d[5:10]), bo.sum(d[5:10]) <= bo.sum(d[:5]) - bo.sum(d[10:13])]
    return bo.Problem(bo.Maximize(bo.inner(cost, X)), [*rows, bo.trace(X) == 1])


def zeros_on_the_diagonal(n: int) -> bo.Problem:
    """Return a nearness problem with zeros on the diagonal, whose dual is not attained."""
    X = bo.PSD(n)
    near = bo.frobenius_div(X, start_matrix(n, np.random.default_rng(0)))
    return bo.Problem(bo.Minimize(near), [bo.diag(X) == np.sign(np.arange(n) // 4)])


def fixed_pairs(n: int) -> bo.Problem:
    """Return a nearest correlation matrix with entries fixed at one and minus one."""
    X, A = bo.PSD(n), start_matrix(n, np.random.default_rng(1))
    pairs = [X[0, 1] == 1, X[2, 3] == -1, X[3, 4] == 1]
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1, *pairs])


def _without_terms(route: Any, program: Any, settings: Any) -> str | None:
    return None if program.terms else "it takes convex terms"


def nearness_beside_a_variable(n: int) -> bo.Problem:
    """Return a von Neumann nearness problem in which a variable is part of a row."""
    X, u = bo.PSD(n), bo.Variable()
    near = bo.von_neumann_div(X, start_matrix(n, np.random.default_rng(0)))
    return bo.Problem(bo.Minimize(near + 3 * bo.square(u)), [X[0, 1] + u == 1, bo.diag(X) == 1])


def least_centered(n: int) -> bo.Problem:
    """Return a problem in centered matrices whose solution is zero."""
    X = bo.PSD(n)
    cost = bo.inner(start_matrix(n, np.random.default_rng(0)), X)
    return bo.Problem(bo.Minimize(cost), [bo.inner(np.ones((n, n)), X) == 0])


def correlations_within_bounds(count: int, n: int) -> Found:
    """Solve a stack of sample correlations, 1/2 in truth, with noise that makes them indefinite."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(count, n + 5, n)) @ np.linalg.cholesky(np.full((n, n), 0.5) + 0.5 * np.eye(n)).T
    noise = 0.05 * rng.normal(size=(count, n, n))
    A = np.array([np.corrcoef(own.T) for own in Z]) + (noise + noise.swapaxes(1, 2)) / 2
    A[:, range(n), range(n)] = 1.0
    sols = bo.nearest_correlation(A, lower=np.full((n, n), 0.3), upper=np.full((n, n), 0.8))
    worst = next((sol for sol in sols if sol.status != "optimal"), sols[0])
    return Found(worst.status, max(sol.iterations for sol in sols), max(sol.gap for sol in sols))


def nearness_with_a_null_vector(n: int) -> bo.Problem:
    """Return a von Neumann nearness problem whose rows have a null vector."""
    X = bo.PSD(n)
    near = bo.von_neumann_div(X, start_matrix(n, np.random.default_rng(0)))
    return bo.Problem(bo.Minimize(near), [X @ np.ones(n) == 0])


def null_vector(n: int) -> bo.Problem:
    """Return a log-determinant of matrices with a null vector, which is finite for none of them."""
    X = bo.PSD(n)
    return bo.Problem(bo.Maximize(bo.log_det(X)), [X @ np.ones(n) == 0, bo.trace(X) == 1])


def rows_without_interior(n: int) -> bo.Problem:
    """Return a nearness problem in which the sum of two indefinite rows leaves no interior."""
    X, rng = bo.PSD(n), np.random.default_rng(7)
    z, A, D = rng.normal(size=n), rng.uniform(-1, 1, (n, n)), np.diag(np.arange(float(n)))
    rows = [bo.inner(np.outer(z, z) + D, X) == 2, bo.inner(-D, X) == -2]
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, (A + A.T) / 2)), rows)


def replaceable_variables() -> bo.Problem:
    """Return a problem in which two free variables have the same effect up to a factor."""
    rng = np.random.default_rng(3)
    X, u, v, y = bo.PSD(3), bo.Variable(2), rng.normal(size=2), rng.normal()
    G, W = np.diag(rng.integers(0, 2, 3) * 0.4), rng.normal(size=(3, 3))
    cost = bo.inner(W @ W.T + y * G, X) + y * (v @ u)
    return bo.Problem(bo.Minimize(cost), [bo.inner(G, X) + v @ u == rng.normal()])


def touching_cones(seed: int) -> bo.Problem:
    """Return a problem whose directions touch a Lorentz cone, so that its rays are not interior."""
    rng, n = np.random.default_rng(seed), 5

    def rounded(order: int) -> Array:
        M = rng.normal(size=(order, order))
        return np.round(M + M.T, 1)

    X, x = bo.PSD(n), bo.Variable(2)
    moved = sum((x[i] * rounded(3) for i in range(2)), start=rounded(3) + 3 * np.eye(3))
    rows = [bo.sum_squares(x) <= 0.3 + X[0, 1], moved >> 0, bo.abs(X[0, 0] - 1) <= 1 + x[0]]
    cost = bo.inner(rounded(n), X) + np.round(rng.normal(size=2), 1) @ x
    return bo.Problem(bo.Minimize(cost), rows)


def proximal_gradient(steps: int) -> bo.Problem:
    """Return the worst case of a proximal gradient method, whose optimum no Gram matrix attains."""
    n = 3 + 2 * steps
    E, G, f, h = np.eye(n), bo.PSD(n), bo.Variable(steps + 2), bo.Variable(steps + 1)
    origin, x = np.zeros(n), [E[0]]
    for k in range(steps):
        x.append(x[-1] - E[2 + k] - E[steps + 3 + k])
    of_f = [(origin, E[1]), *zip(x, E[2 : steps + 3], strict=True)]
    of_h = [(origin, -E[1]), *zip(x[1:], E[steps + 3 :], strict=True)]
    rows = [G[0, 0] <= 1, f[0] + h[0] == 0]
    for points, values, smooth in ((of_f, f, 1), (of_h, h, 0)):
        for i, (y, a) in enumerate(points):
            for j, (z, b) in enumerate(points):
                if i != j:
                    M = np.outer(b, y - z) + np.outer(y - z, b) + smooth * np.outer(a - b, a - b)
                    rows.append(values[j] + bo.inner(M, G) / 2 <= values[i])
    return bo.Problem(bo.Maximize(f[steps + 1] + h[steps]), rows)


def kept_potential(n: int) -> bo.Problem:
    """Return the largest growth of a potential after `n` gradient steps, zero: the rows are homogeneous.

    The potential is ``(2 n + 1) (f - f*) + n (n + 2) |g|^2 + |x - x*|^2`` (Bansal, Gupta 2019).
    """
    (x, g, h), G, f = np.eye(3), bo.PSD(3), bo.Variable(2)
    origin, rows = np.zeros(3), []
    points = [(origin, origin, 0.0), (x, g, f[0]), (x - g, h, f[1])]
    for i, (y, a, value) in enumerate(points):
        for j, (z, b, other) in enumerate(points):
            if i != j:
                M = np.outer(b, y - z) + np.outer(y - z, b) + np.outer(a - b, a - b)
                rows.append(other + bo.inner(M, G) / 2 <= value)
    M = (n + 1) * (n + 3) * np.outer(h, h) + np.outer(x - g, x - g) - n * (n + 2) * np.outer(g, g)
    growth = bo.inner(M - np.outer(x, x), G) + (2 * n + 3) * f[1] - (2 * n + 1) * f[0]
    return bo.Problem(bo.Maximize(growth), rows)


def conditional_gradient(steps: int) -> bo.Problem:
    """Return the worst case of Frank-Wolfe's method after some steps, whose last point has a normal.

    That point is an average of others, so that the inequalities of its normal sum to zero.
    """
    n = 2 * steps + 4
    E, G, f, origin = np.eye(n), bo.PSD(n), bo.Variable(steps + 2), np.zeros(n)
    x, g, ends = [E[0]], E[2 : steps + 3], E[steps + 3 : 2 * steps + 3]
    for k, end in enumerate(ends):
        x.append((k * x[-1] + 2 * end) / (k + 2))
    smooth = [(origin, E[1]), *zip(x, g, strict=True)]
    normal = [(origin, -E[1]), (x[-1], E[-1]), *zip(ends, -g[:-1], strict=True)]
    rows = [bo.quad_form(y - z, G) <= 1 for (y, _), (z, _) in combinations([*normal, (E[0], 0)], 2)]
    for (y, a, value), (z, b, other) in permutations([(*own, f[k]) for k, own in enumerate(smooth)], 2):
        M = np.outer(b, y - z) + np.outer(y - z, b) + np.outer(a - b, a - b)
        rows.append(other + bo.inner(M, G) / 2 <= value)
    for (y, _), (z, b) in permutations([*normal, (E[0], 0)], 2):
        if np.any(b):
            rows.append(bo.inner(np.outer(b, y - z) + np.outer(y - z, b), G) <= 0)
    return bo.Problem(bo.Maximize(f[steps + 1] - f[0]), rows)


def reduced_variance(count: int) -> bo.Problem:
    """Return the worst case of a step of Point-SAGA: the proximal step of a random one of several functions.

    Shifts of the gradients that add up to zero change nothing (Defazio 2016, A simple practical accelerated
    method for finite sums).
    """
    E, G, mu = np.eye(3 * count), bo.PSD(3 * count), 0.1
    f, g, x, table, new = bo.Variable(count), bo.Variable(count), E[0], E[1 : count + 1], E[count + 1 :]
    optimal = np.vstack([new[count:], -new[count:].sum(axis=0)])
    rows, after = [], np.zeros_like(E)
    shift = table - optimal
    for i in range(count):
        y = x + (table[i] - table.mean(axis=0) - new[i]) / 2
        d, e = y, new[i] - optimal[i]
        curved = np.outer(e, e) + mu * (np.outer(d, d) - np.outer(d, e) - np.outer(e, d))
        for sign, s, here, there in ((1, optimal[i], g[i], f[i]), (-1, new[i], f[i], g[i])):
            M = sign * (np.outer(s, d) + np.outer(d, s)) / 2 + curved / (2 * (1 - mu))
            rows.append(here + bo.inner(M, G) <= there)
        left = shift.T @ shift - np.outer(shift[i], shift[i]) + np.outer(e, e)
        after += (np.outer(y, y) + left / count) / count
    before = np.outer(x, x) + shift.T @ shift / count
    return bo.Problem(bo.Maximize(bo.inner(after, G)), [*rows, bo.inner(before, G) <= 1])


def implied_equality(n: int, decades: int) -> bo.Problem:
    """Return equalities in units of powers of ten, of which the last one is a combination of the others."""
    rng = np.random.default_rng(7)
    X, u, G, of_u = bo.PSD(n), bo.Variable(3), rng.normal(size=(n, 2)), rng.normal(size=3)
    A, B = rng.normal(size=(2 * n, n, n)), rng.normal(size=(2 * n, 3))
    A, weights = A + A.transpose(0, 2, 1), rng.normal(size=2 * n - 1)
    A[-1], B[-1] = np.tensordot(weights, A[:-1], 1), weights @ B[:-1]
    rows = []
    for A_k, B_k in zip(A, B, strict=True):
        unit = 10.0 ** rng.integers(-decades, decades + 1)
        rows.append(bo.inner(unit * A_k, X) + unit * B_k @ u == unit * (np.vdot(A_k, G @ G.T) + B_k @ of_u))
    return bo.Problem(bo.Minimize(bo.inner(np.diag(np.arange(1.0, n + 1)), X)), rows)


def logarithm_alone() -> bo.Problem:
    """Return a problem whose objective falls along a ray by its logarithm alone."""
    X = bo.PSD(2)
    return bo.Problem(bo.Minimize(-bo.log_det(X)), [X[0, 0] <= 1])


def again() -> Call:
    """Solve LogDet nearness, and return the call that solves it again from its answer."""
    problem = distance_problem("logdet", 40, 300, soft=False)()
    problem.solve()
    return partial(problem.solve, warm_start=True)


def squares_in_small_units(n: int) -> Call:
    """Return a call that solves the conic form of a nearest correlation matrix in units of 1e4."""
    A, X = symmetric(np.random.default_rng(1), n, n) / 2, cp.Variable((n, n), PSD=True)
    return by_solver(cp.Problem(cp.Minimize(cp.sum_squares(1e4 * X - A)), [cp.diag(X) == 1e-4]))


def complex_phases(n: int) -> cp.Problem:
    """Return CVXPY's phase retrieval of a complex signal from four times as many magnitudes."""
    rng = np.random.default_rng(n)
    a, x = rng.normal(size=(4 * n, n, 2)) @ [1, 1j], rng.normal(size=(n, 2)) @ [1, 1j]
    X = cp.Variable((n, n), hermitian=True)
    rows = [cp.real(a_k.conj() @ X @ a_k) == abs(a_k.conj() @ x) ** 2 for a_k in a]
    return cp.Problem(cp.Minimize(cp.real(cp.trace(X))), [X >> 0, *rows])


def by_solver(problem: cp.Problem) -> Call:
    """Return a call that solves the conic form of CVXPY's problem."""

    def call() -> Any:
        problem.solve(solver=BREGOPT)
        stats = problem.solver_stats
        return SimpleNamespace(
            status=problem.status, iterations=stats.num_iters, gap=stats.extra_stats["gap"]
        )

    return call


def nearest_state(n: int) -> cp.Problem:
    """Return the nearest state of a given mean, in CVXPY's approximation of the relative entropy."""
    H, S, R = symmetric(np.random.default_rng(0), 3, n, n)
    S, R = (M @ M / np.trace(M @ M) for M in (S, R))
    A = cp.Variable((n, n), PSD=True)
    rows = [cp.trace(A) == 1, cp.trace(H @ A) == np.trace(H @ R)]
    return cp.Problem(cp.Minimize(cp.quantum_rel_entr(S, A)), rows)


def least_ellipsoid(count: int, n: int) -> Call:
    """Return a call that solves the conic form of the least ellipsoid around points, with a bounded term."""
    points = np.random.default_rng(7).normal(size=(count, n))
    A, b, t = cp.Variable((n, n), PSD=True), cp.Variable(n), cp.Variable()
    rows = [cp.norm(A @ x + b) <= 1 for x in points]
    return by_solver(cp.Problem(cp.Maximize(t), [*rows, t <= cp.log_det(A)]))


def _without_huber() -> dict[str, Any]:
    return {name: rule for name, rule in convex_atoms._ATOMS.items() if name != "huber"}


def by_exponentials(n: int) -> cp.Problem:
    """Return the least sum of exponentials of a diagonal beside a cost."""
    A, X = np.random.default_rng(4).normal(size=(n, n)), cp.Variable((n, n), PSD=True)
    return cp.Problem(cp.Minimize(cp.sum(cp.exp(cp.diag(X))) + cp.trace((A + A.T) @ X)))


def by_logarithms(count: int, n: int) -> cp.Problem:
    """Return the largest sum of logarithms of quadratic forms at trace one, as of returns (Kelly)."""
    X, rng = cp.Variable((n, n), PSD=True), np.random.default_rng(0)
    forms = cp.hstack([v @ X @ v for v in rng.normal(size=(count, n))])
    return cp.Problem(cp.Maximize(rng.uniform(0.5, 1.5, count) @ cp.log(forms + 0.3)), [cp.trace(X) <= 1])


def by_huber(n: int) -> cp.Problem:
    """Return a correlation matrix that is nearest in Huber's loss."""
    X = cp.Variable((n, n), PSD=True)
    A = symmetric(np.random.default_rng(7), n, n) / 2
    return cp.Problem(cp.Minimize(cp.sum(cp.huber(X - A))), [cp.diag(X) == 1])


def inverse_covariance(n: int) -> Call:
    """Return a call that solves the conic form of a sparse inverse covariance."""
    S = np.cov(np.random.default_rng(7).normal(size=(n, 4 * n)))
    X = cp.Variable((n, n), PSD=True)
    cost = cp.trace(S @ X) - cp.log_det(X) + 0.1 * cp.sum(cp.abs(X))
    return by_solver(cp.Problem(cp.Minimize(cost)))


def squares_below_a_variable(n: int) -> cp.Problem:
    """Return CVXPY's nearest correlation matrix beside a cost, whose squares a variable bounds."""
    rng = np.random.default_rng(n)
    A, C = uniform_matrix(n, rng), symmetric(rng, n, n)
    X, t = cp.Variable((n, n), PSD=True), cp.Variable()
    return cp.Problem(cp.Minimize(t + cp.trace(C @ X)), [cp.diag(X) == 1, cp.sum_squares(X - A) <= t])


def nearest_by_norm(n: int) -> Call:
    """Return a call that solves CVXPY's problem of the nearest correlation matrix in the Frobenius norm."""
    A, X = uniform_matrix(n, np.random.default_rng(n)), cp.Variable((n, n), PSD=True)
    return by_method(cp.Problem(cp.Minimize(cp.norm(X - A, "fro")), [cp.diag(X) == 1]))


def by_method(problem: cp.Problem) -> Call:
    """Return a call that solves CVXPY's problem as it was written."""

    def call() -> Any:
        problem.solve(method="bregopt", tol=1e-8)
        return problem.solver_stats.extra_stats

    return call


def right_hand_sides(n: int, count: int) -> Call:
    """Return a call that solves a linear program over the cone for several right-hand sides."""
    rng = np.random.default_rng(n)
    X, b = bo.PSD(n), bo.Parameter(n, value=np.ones(n))
    problem = bo.Problem(bo.Minimize(bo.inner(symmetric(rng, n, n), X)), [bo.diag(X) == b])

    def call() -> Any:
        for _ in range(count):
            b.value = rng.uniform(1, 2, n)
            answer = problem.solve()
        return answer

    return call


def forms(n: int, m: int) -> bo.Problem:
    """Return the nearest matrix to the identity with more bounds on quadratic forms than entries."""
    rng = np.random.default_rng(n)
    Z, X = rng.normal(size=(m, n)) / np.sqrt(n), bo.PSD(n)
    near = np.einsum("kn,nm,km->k", Z, start_matrix(n, rng), Z)
    rows = bo.between(bo.quad_form(Z, X), 0.9 * near, 1.5 * near)
    return bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(n))), [rows])


def bounded_completion(n: int) -> bo.Problem:
    """Return the completion of least nuclear norm of half of the entries of rank three, others in bounds."""
    rng = np.random.default_rng(2)
    M = rng.normal(size=(n, 3)) @ rng.normal(size=(3, n))
    F, (i, j) = bo.Variable((n, n), lower=-10.0, upper=10.0), np.nonzero(rng.random((n, n)) < 0.5)
    return bo.Problem(bo.Minimize(bo.norm_nuc(F)), [F[i, j] == M[i, j]])


def priced_key_rate() -> bo.Problem:
    """Return a key rate plus a cost; its optimal states are nearly block-diagonal."""
    rng = np.random.default_rng(7)
    M, C, E = rng.standard_normal((3, 4, 4))
    key, rho = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)], bo.PSD(4)
    state = 0.9 * M @ M.T / np.trace(M @ M.T) + np.eye(4) / 40
    rows = [bo.trace(rho) == 1, bo.inner(E + E.T, rho) == float(np.vdot(E + E.T, state))]
    return bo.Problem(bo.Minimize(bo.key_rate(rho, pinching=key) + 0.02 * bo.inner(C + C.T, rho)), rows)


def priced_image(n: int = 8, seed: int = 41) -> bo.Problem:
    """Return a key rate of an image of order two of a state, and a small cost."""
    rng = np.random.default_rng(seed)
    C, E, K = rng.standard_normal((n, n)), rng.standard_normal((n, n)), rng.standard_normal((2, n))
    rho = bo.PSD(n)
    rate = bo.key_rate(rho, kraus=[K], pinching=[np.diag([1.0, 0.0]), np.diag([0.0, 1.0])])
    rows = [bo.trace(rho) == 1, bo.inner(E + E.T, rho) == 2 * np.trace(E) / n]
    return bo.Problem(bo.Minimize(rate + 0.02 * bo.inner(C + C.T, rho)), rows)


def expectations(n: int = 4) -> bo.Problem:
    """Return the state of largest entropy with an energy."""
    rho, energy = bo.PSD(n), np.arange(float(n))
    rows = [bo.trace(rho) == 1, bo.inner(np.diag(energy), rho) == 1]
    return bo.Problem(bo.Maximize(bo.von_neumann_entr(rho)), rows)


def priced_relative_entropies(n: int = 10) -> bo.Problem:
    """Return relative entropies of pairs of numbers; costs hold some pairs near zero."""
    rng = np.random.default_rng(0)
    x, y, B = bo.Variable(n), bo.Variable(n), rng.standard_normal(n)
    cost, start = 3 * rng.standard_normal(n), rng.dirichlet(np.ones(n))
    rows = [bo.sum(x) == 1, bo.sum(y) == 1, B @ y == B @ start, x >= 0, y >= 0]
    return bo.Problem(bo.Minimize(bo.sum(bo.rel_entr(x, y)) + cost @ x), rows)


def _from_zero(method: Any, *_: Any) -> Array:
    return np.zeros(len(method.form.e))


def _no_bounds(*_: Any) -> tuple[Array, Array, Array]:
    return np.zeros(0, dtype=int), np.zeros(0, dtype=int), np.zeros(0)


def _domains_as_rows(constraints: Any, variables: Any) -> tuple[list[Any], list[Array]]:
    return list(constraints), [u.lower for u in variables]


def _mixed(method: Any, at: Any) -> Any:
    return method._projection(method._mixing.next(at.W, at.own), at.z)


def source_rate(n: int = 6) -> bo.Problem:
    """Return the least information about a source within a distance of it."""
    rng = np.random.default_rng(1)
    G = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
    source = G @ G.conj().T / np.linalg.norm(G) ** 2
    d, U = np.linalg.eigh(source)
    psi = ((U * np.sqrt(d)) @ U.conj().T).ravel()
    X = bo.PSD(n * n, hermitian=True)
    away = bo.inner(np.eye(n * n) - np.outer(psi, psi.conj()), X)
    rows = [bo.partial_trace(X, (n, n), keep=0) == source, away <= 0.8]
    return bo.Problem(bo.Maximize(bo.quantum_cond_entr(X, (n, n), 0)), rows)


def soft_pairs(m: int, r: int, divergence: str, gamma: float = 1.0) -> bo.Problem:
    """Return soft distances of pairs in a low-rank kernel."""
    points, pairs, bound, sense = soft_rows.blocks(m, r)
    X, near = bo.PSD(len(points)), sense < 0
    d = bo.sq_distance(X, *pairs.T)
    rows = [bo.soft(d[near] <= bound[near], gamma), bo.soft(d[~near] >= bound[~near], gamma)]
    return bo.Problem(bo.Minimize(soft_rows.DIVERGENCES[divergence](X, bo.LowRank(points))), rows)


def nearly_singular_block(n: int, m: int, bound: float | None = None) -> bo.Problem:
    """Return a nearest correlation matrix with a fixed block of condition 1e6 or more."""
    rng = np.random.default_rng(0)
    A, G = np.triu(rng.uniform(-1, 1, (n, n)), 1), rng.normal(size=(m, m)) * np.geomspace(1, 1e-3, m)
    A += A.T + np.eye(n)
    d = np.linalg.norm(G, axis=1)
    A[:m, :m] = (G / d[:, None]) @ (G / d[:, None]).T
    X, (i, j), (k, l) = bo.PSD(n), np.triu_indices(m, 1), np.triu_indices(n - m, 1)  # noqa: E741
    rows = [bo.diag(X) == 1, X[i, j] == A[i, j]]
    if bound is not None:
        rows += [X[m + k, m + l] >= -bound, X[m + k, m + l] <= bound]
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), rows)


def contradicting_bands(n: int) -> bo.Problem:
    """Return rows on entries near the diagonal of which no three neighbors agree."""
    X, (i, j) = bo.PSD(n), np.triu_indices(n)
    near = j - i <= 2
    i, j = i[near], j[near]
    value = np.select([i == j, j - i == 1], [1.0, 0.9], -0.9)
    return bo.Problem(bo.Minimize(bo.trace(X)), [X[i, j] == value])


def path_theta(n: int) -> bo.Problem:
    """Return the theta number of a path, of which `lovasz_theta` leaves one vertex."""
    X, i = bo.PSD(n), np.arange(n - 1)
    return bo.Problem(bo.Maximize(bo.quad_form(np.ones(n), X)), [bo.trace(X) == 1, X[i, i + 1] == 0])


def entries_of_low_rank(n: int) -> bo.Problem:
    """Return the least nuclear norm with forty entries in each row of a matrix of rank three."""
    rng, X = np.random.default_rng(6), bo.PSD(2 * n)
    A, B = rng.normal(size=(n, 3)), rng.normal(size=(n, 3))
    i, j = np.divmod(np.sort(rng.choice(n * n, 40 * n, replace=False)), n)
    return bo.Problem(bo.Minimize(bo.trace(X) / 2), [X[i, n + j] == np.sum(A[i] * B[j], axis=1)])


def real_phases(n: int) -> bo.Problem:
    """Return phase retrieval of a real signal from five times as many magnitudes."""
    rng, X = np.random.default_rng(4), bo.PSD(n)
    a, x = rng.normal(size=(5 * n, n)), rng.normal(size=n)
    return bo.Problem(bo.Minimize(bo.trace(X)), [bo.quad_form(a, X) == (a @ x) ** 2])


def completion(n: int, chords: int) -> bo.Problem:
    """Return the completion of largest determinant of a covariance on a graph."""
    S, edges = logdet_completion.instance(n, chords)
    (i, j), X = edges.T, bo.PSD(n)
    return bo.Problem(bo.Maximize(bo.log_det(X)), [bo.diag(X) == S.diagonal(), X[i, j] == S[i, j]])


def lasso(n: int) -> bo.Problem:
    """Return a sparse inverse covariance problem in the language."""
    X, S = bo.PSD(n), logdet_lasso.sampled(n, 2 * n)
    return bo.Problem(bo.Minimize(bo.inner(S, X) - bo.log_det(X) + 0.1 * bo.sum(bo.abs(X))))


def independent_parts(count: int, n: int) -> Array:
    """Return correlations of groups that do not depend on each other."""
    S = np.eye(count * n)
    for b in range(count):
        own = slice(b * n, (b + 1) * n)
        S[own, own] = logdet_lasso.sampled(n, 2 * n, seed=b)
    return S


def cut(n: int, edges: int) -> bo.Problem:
    """Return the relaxed maximum cut of a random graph."""
    return large_cuts.max_cut(large_cuts.random_graph(n, edges))


def modularity(n: int) -> bo.Problem:
    """Return the relaxation of communities of a graph with four edges a vertex."""
    i, j = np.random.default_rng(n).integers(0, n, (2, 4 * n))
    half = sp.csr_array((np.ones(len(i)), (i, j)), (n, n))
    W, X = half + half.T, bo.PSD(n)
    volume = np.asarray(W.sum(axis=1)).ravel() / W.sum()
    value = bo.inner(W / W.sum(), X) - bo.quad_form(volume, X)
    return bo.Problem(bo.Maximize(value), [bo.diag(X) == 1])


def weights(n: int) -> Array:
    """Return a complete graph with random weights."""
    W = np.triu(np.random.default_rng(n).uniform(0, 1, (n, n)), 1)
    return W + W.T


# ------------------------------------------------------------------------------------------------------ paths


def paths(data: Path | None) -> list[SpecialPath]:
    """Return all special paths."""
    of_three = partial(solving, triplets, 12, 300, solver="path")
    correlation = correlation_problem("frobenius", uniform_matrix(30, np.random.default_rng(0)))
    cancer = logdet_lasso.correlations(logdet_lasso.load_breast_cancer().data)
    samples = logdet_lasso.sampled(300, 400)
    rows = [
        # Reductions.
        ("boxes", "presolve.variables:boxes", without("boxes"), "300 triplets", of_three()),
        ("slacks", "presolve.epigraphs:slacks", without("slacks"), "300 triplets", of_three()),
        (
            *("fixed variables", "presolve.variables:fixed_variables"),
            without("fixed variables", "zero variables"),
            *("completion of 24 x 24 within bounds", solving(bounded_completion, 24, solver="path")),
        ),
        (
            *("idle variables", "presolve.epigraphs:slacks", without("slacks")),
            *("100 forms whose values nothing needs, n = 40", solving(idle_variables, 40, 100)),
        ),
        (
            *("path without reductions", "routes.ipm.central_path:follow_path_directly"),
            answering("routes.ipm.path_route.Path.solve_directly", None),
            *("50 right-hand sides of a program of order 8", lambda: right_hand_sides(8, 50)),
        ),
        (
            *("linked inequalities", "routes.augmented_lagrangian.standard_form:_fill"),
            answering("routes.augmented_lagrangian.standard_form._fill", 0.0),
            *(
                "4,000 triangle inequalities, n = 60",
                solving(triangle_inequalities, 60, 4000, solver="lagrangian"),
            ),
        ),
        (
            *(
                "extrapolation",
                "routes.augmented_lagrangian.alternating_directions:AlternatingDirections.run",
            ),
            replaced("routes.augmented_lagrangian.alternating_directions._EXTRAPOLATE_STEPS", 10**9),
            *("the least largest deviation, n = 100", solving(least_deviation, 100, solver="lagrangian")),
        ),
        (
            "bounds on entries",
            "routes.augmented_lagrangian.standard_form:_rows_of_one_entry",
            answering(
                "routes.augmented_lagrangian.standard_form._rows_of_one_entry",
                (np.zeros(0, int), np.zeros(0, int), np.zeros(0)),
            ),
            *("k-means, n = 100", solving(relaxations.k_means, bo, solver="lagrangian")),
        ),
        (
            *("path after a stall", "routes.augmented_lagrangian.route:_or_on_path"),
            replaced("routes.augmented_lagrangian.route._PATH_FLOPS", 0.0),
            *("an optimum that is not attained", solving(not_attained, solver="lagrangian")),
        ),
        (
            *("path at a low rate", "routes.augmented_lagrangian.route:_Run._falls_behind"),
            answering("routes.augmented_lagrangian.route._Run._falls_behind", False),
            *("theta of 300 vertices and 1,400 edges", solving(theta, 300, 0.03, solver="lagrangian")),
        ),
        (
            "variables of all rows",
            "routes.augmented_lagrangian.standard_form:StandardForm.gram_solve",
            replaced("routes.augmented_lagrangian.standard_form._WIDE", 1e9),
            "least deviation, unit diagonal, n = 40",
            solving(least_deviation, 40, 1.0, solver="lagrangian"),
        ),
        (
            *("differences of variables", "presolve.epigraphs:differences", without("differences")),
            *("the portfolio of the least worst case, n = 60", solving(textbook, "robust_portfolio", 60)),
        ),
        (
            *("many rows", "routes.routing:_many_rows"),
            answering("routes.routing._many_rows", False),
            *("theta of 300 vertices and 4,500 edges", solving(theta, 300, 0.1)),
        ),
        (
            *("step lengths by trials", "routes.ipm.cones:FaceCone.length"),
            replaced("routes.ipm.cones._TRIAL_ORDER", 10**9),
            *("max-cut of 400 edges, n = 100", solving(cut, 100, 400, solver="path")),
        ),
        (
            *("step lengths by Lanczos", "routes.ipm.cones:FaceCone.length"),
            replaced("routes.ipm.cones._LANCZOS_ORDER", 10**9),
            *("max-cut of 3,200 edges, n = 800", solving(cut, 800, 3_200, solver="path")),
        ),
        (
            *("bordering variables", "routes.ipm.linear_solvers:VariableMetric.split"),
            replaced("routes.ipm.linear_solvers._exceeding", lambda B, *_: np.zeros(B.shape[1], dtype=bool)),
            *("300 equalities, 8 variables of wide bounds, n = 25", solving(with_wide_bounds, 25, 8, 300)),
        ),
        (
            *("dual form", "presolve.dual_form:dual_form", without("dual form")),
            *("matrix inequality of order 30 in 20 variables", solving(inequality, 30, 20)),
        ),
        (
            *("squares of norms", "presolve.squares:least_norm", without("least norm")),
            *("nearest correlation matrix by its norm", partial(nearest_by_norm, 40)),
        ),
        (
            *("chordal sparsity", "presolve.chordal:chordal_sparsity", without("chordal sparsity")),
            "max-cut of a band, n = 800",
            solving(lambda: large_cuts.max_cut(sdp_problems.band(800, 4, 800)), solver="path"),
        ),
        (
            *("clique merging", "presolve.chordal:_clique_terms"),
            replaced("presolve.chordal.merged", lambda tree, *_: tree),
            "max-cut of a band, n = 800",
            solving(lambda: large_cuts.max_cut(sdp_problems.band(800, 4, 800)), solver="path"),
        ),
        (
            *("faces of rows", "presolve.faces:faces", without("faces")),
            *("equipartition, n = 80", case("path", "equipartition, n = 80")),
        ),
        (
            *("faces of diagonals", "presolve.exposures:_diagonal_exposure"),
            answering("presolve.exposures._diagonal_exposure", None),
            *("rows that fix diagonal entries to zero, n = 80", solving(zero_diagonals, 80)),
        ),
        (
            *("faces of fixed compressions", "presolve.exposures:_fixed_compression"),
            answering("presolve.exposures._fixed_compression", None),
            *("a relative entropy by quadrature, n = 2", lambda: by_solver(nearest_state(2))),
        ),
        (
            *("coordinates of faces", "presolve.faces:face_coordinates", without("faces")),
            *("Frobenius nearness with zeros on the diagonal, n = 20", solving(zeros_on_the_diagonal, 20)),
        ),
        (
            *("collinear rows", "presolve.exposures:_collinear_exposure"),
            answering("presolve.exposures._collinear_exposure", None),
            *("nearest correlation matrix, pairs fixed at one", solving(fixed_pairs, 150)),
        ),
        (
            *("multipliers that diverge", "routes.projection.route:_diverges"),
            answering("routes.projection.route._diverges", False),
            *("nearest psd matrix on two rows without interior", solving(rows_without_interior, 10)),
        ),
        (
            *("divergences beside variables", "routes.entropy.route:Entropy.refusal"),
            replaced("routes.entropy.route.Entropy.refusal", _without_terms),
            *("von Neumann nearness beside a variable, n = 10", solving(nearness_beside_a_variable, 10)),
        ),
        (
            *("the point zero", "routes.driver:_at_zero"),
            replaced(
                "routes.driver._at_zero", lambda program, answer, certificate, tol: (answer, certificate)
            ),
            *("a centered matrix of least trace", solving(least_centered, 5, tol=1e-9)),
        ),
        (
            *("null vectors", "presolve.exposures:_null_exposure"),
            answering("presolve.exposures._null_exposure", None),
            *("von Neumann nearness with a null vector, n = 60", solving(nearness_with_a_null_vector, 60)),
        ),
        (
            *("largest least eigenvalue", "routes.alternatives:with_interior"),
            replaced("routes.projection.route.with_interior", lambda program, answer, *_: answer),
            *("log det of matrices with a null vector", solving(null_vector, 10)),
        ),
        (
            *("revealed faces", "routes.ipm.path_route:on_revealed_faces"),
            replaced("routes.ipm.path_route.on_revealed_faces", _stalled),
            *("a duality gap, rotated", solving(duality_gap, 0)),
        ),
        (
            *("zero sums", "presolve.implied_equalities:zero_sums", without("zero sums")),
            *("a lifted assignment of size 3", solving(relaxations.lifted_assignment, bo, 3, 3)),
        ),
        (
            *("faces of integers", "presolve.faces:integer_faces"),
            answering("routes.ipm.central_path.integer_faces", None),
            "a quadratic assignment of size 7",
            None if data is None else verified(partial(bo.read_sdpa, data / "sdplib" / "qap7.dat-s.gz")),
        ),
        (
            *("faces with all rows", "presolve.faces:sparse_integer_faces", without("sparse integer faces")),
            "a quadratic assignment on a grid of nine",
            solving(relaxations.assignment_on_a_grid, bo, solver="lagrangian"),
        ),
        (
            *("independent rows", "presolve.equalities:independent_rows", without("independent rows")),
            *("150 rows at angles of 1e-6", solving(nearly_dependent, 40, 150, 1e-6)),
        ),
        (
            *("squares as rows", "routes.routing:_in_order"),
            replaced("routes.routing._LARGEST_PROXIMAL", 10**9),
            *("nearest correlation matrix above another, n = 64", solving(above_another, 64)),
        ),
        (
            *("squares beside variables", "routes.routing:_in_order"),
            replaced("routes.routing._LARGEST_DENSE", 10**9),
            *("nearest matrix within a norm, n = 36", solving(nearest_within_a_norm, 36)),
        ),
        (
            *("epigraphs", "presolve.variables:dominated_variables", without("epigraphs")),
            *("embedding of distances, n = 20", solving(textbook, "distance_embedding", 20)),
        ),
        (
            *("absolute values", "presolve.epigraphs:absolute_values", without("absolute values")),
            "sparse component, n = 24",
            lambda: by_solver(PROBLEMS["sparse_component"](24, np.random.default_rng(1))),
        ),
        (
            *("parallel rows", "presolve.svec:parallel_rows", without("parallel rows")),
            *("embedding of distances, n = 20", solving(textbook, "distance_embedding", 20)),
        ),
        (
            *("null spaces of all rows", "presolve.faces:_without_null_spaces"),
            answering("presolve.faces._without_null_spaces", None),
            *("embedding of distances, n = 20", solving(textbook, "distance_embedding", 20)),
        ),
        (
            *("equal variables", "presolve.variables:equal_variables", without("equal variables")),
            *("a matrix that equals its transpose, n = 24", solving(symmetric_by_rows, 24)),
        ),
        (
            *("interchangeable variables", "presolve.interchange:interchangeable_variables"),
            without("interchangeable variables"),
            *("sparse component within a norm, n = 24", solving(component_within_a_norm, 24)),
        ),
        (
            *("opposite rows", "presolve.epigraphs:opposite_rows", without("opposite rows")),
            *("sparse component within a norm, n = 40", solving(component_within_a_norm, 40)),
        ),
        (
            *("defined variables", "presolve.variables:defined_variables", without("defined variables")),
            *("a general matrix within a norm, n = 12", solving(general_matrix_within_a_norm, 12)),
        ),
        (
            *("independent columns", "presolve.variables:independent_columns"),
            *(without("independent columns"), "one row with two free variables"),
            solving(replaceable_variables),
        ),
        (
            "redundant equalities",
            "presolve.equalities:redundant_equalities",
            without("redundant equalities"),
            "400 equalities that contradict each other, von Neumann",
            solving(many_equalities, "von_neumann", 8, 400, 1.0),
        ),
        (
            *("whitening", "presolve.coordinates:whitening", without("whitening")),
            *("LogDet from a matrix of condition 1e11", solving(ill_conditioned, 30, 40, 1e11)),
        ),
        # Semidefinite programs.
        (
            *("faces of the dual", "routes.ipm.path_route:_on_dual_faces"),
            replaced("routes.ipm.path_route._on_dual_faces", _stalled),
            *("the worst case of a proximal method", solving(proximal_gradient, 1, tol=1e-8)),
        ),
        (
            *("faces before the dual form", "routes.ipm.path_route:_on_faces_first"),
            replaced("routes.ipm.path_route._on_faces_first", lambda method, program, stalled, *_: stalled),
            "four matrix inequalities with a zero on their diagonals",
            solving(with_zero_diagonals, 20, 10, 4, tol=1e-8),
        ),
        (
            *("tight rows", "routes.ipm.path_route:_on_tight_rows"),
            answering("routes.ipm.path_route.tight_rows", None),
            *("Frank-Wolfe's method, three steps", solving(conditional_gradient, 3, tol=1e-8)),
        ),
        (
            *("other forms", "routes.ipm.path_route:_by_other_forms"),
            replaced("routes.ipm.path_route._by_other_forms", _stalled),
            *("a potential that a gradient step keeps", solving(kept_potential, 4, tol=1e-8)),
        ),
        (
            *("directions of integers", "presolve.recession:_of_integers"),
            answering("presolve.recession._of_integers", None),
            *("a variance reduced over ten functions", solving(reduced_variance, 10, tol=1e-8)),
        ),
        (
            *("units", "routes.ipm.path_route:_in_units"),
            replaced("routes.ipm.path_route._in_units", _stalled),
            *("an implied equality in other units", solving(implied_equality, 5, 6)),
        ),
        (
            *("coordinates of the answer", "routes.ipm.path_route:_in_coordinates_of_answer"),
            replaced("routes.ipm.path_route._in_coordinates_of_answer", _stalled),
            *("an optimum of 4e6", solving(far_optimum, 1e-6, 8, tol=1e-8)),
        ),
        (
            *("programs of the alternative", "routes.alternatives:_alternative"),
            answering("routes.alternatives._is_far", False),
            *("directions that touch a Lorentz cone", solving(touching_cones, 0)),
        ),
        (
            *("answers moved to their rows", "routes.driver:_on_rows"),
            replaced("routes.driver._on_rows", lambda program, answer, certificate: (answer, certificate)),
            "qap5",
            None if data is None else solving(bo.read_sdpa, data / "sdplib" / "qap5.dat-s.gz", tol=1e-8),
        ),
        (
            *("rays of logarithms", "routes.alternatives:_logarithmic_ray"),
            answering("routes.alternatives._logarithmic_ray", None),
            *("log det with one entry bounded", solving(logarithm_alone)),
        ),
        (
            *("ray of one variable", "routes.ipm.path_route:_single_variable_ray"),
            answering("routes.ipm.path_route._single_variable_ray", None),
            *("60 triplets at a price too low, few at a time", margin_on_few_rows),
        ),
        (
            *("system in the entries", "routes.ipm.row_system:system_for"),
            *(replaced("routes.ipm.engine.system_for", _in_rows), "300 triplets", of_three()),
        ),
        (
            *("lost equations of the entries", "routes.ipm.entry_system:EntrySystem"),
            *(replaced("routes.ipm.entry_system._LOST", math.inf), "entries within one, n = 16"),
            solving(entries_within_one, 16, tol=1e-8),
        ),
        (
            *("transformed Gram matrices", "routes.ipm.entry_system:_TRANSFORMED_ENTRIES"),
            replaced("routes.ipm.entry_system._TRANSFORMED_ENTRIES", 0),
            *("triangles, n = 12", case("path", "triangles, n = 12")),
        ),
        (
            *("sparse system", "routes.ipm.row_system:system_for"),
            answering("routes.ipm.many_blocks.SparseRowSystem.of", None),
            *("100 matrices in a chain", solving(blocks, 100, 4, 5, True)),
        ),
        (
            *("sparse system of one matrix", "routes.ipm.row_system:system_for"),
            answering("routes.ipm.many_blocks.SparseRowSystem.of", None),
            "a linear program of 1,800 rows beside a small matrix",
            solving(linear_beside_a_matrix, 1800, 200),
        ),
        (
            *("blocks as one matrix", "routes.ipm.plan:_joint", answering("routes.ipm.plan._joint", ())),
            "hinf4",
            None if data is None else solving(bo.read_sdpa, data / "sdplib" / "hinf4.dat-s.gz"),
        ),
        (
            *("stacks", "routes.ipm.plan:_stacks", answering("routes.ipm.plan._stacks", ())),
            *("100 matrices of order 5", solving(blocks, 100, 5, 30, False)),
        ),
        (
            *("scores at hand", "routes.ipm.central_path:_Scores"),
            answering("routes.ipm.central_path._Scores.of", None),
            *("100 matrices of order 5", solving(blocks, 100, 5, 30, False)),
        ),
        (
            *("working set", "routes.ipm.path_route:_many_inactive"),
            answering("routes.ipm.path_route._many_inactive", False),
            *("4,800 distances, n = 100", case("path", "4,800 distances, n = 100")),
        ),
        (
            *("sample of the rows", "routes.ipm.path_route:_on_working_set"),
            replaced("routes.ipm.path_route.first_active_set", _resting),
            *("4,800 distances, n = 100", case("path", "4,800 distances, n = 100")),
        ),
        (
            *("all rows where most of a sample act", "routes.working_set:most_act"),
            answering("routes.working_set.most_act", False),
            "1,600 triplets of overlapping classes, n = 64",
            solving(triplets, 64, 1600, 0.0, solver="path"),
        ),
        (
            *("pairs of rows", "routes.ipm.row_system:PairedRows"),
            answering("routes.ipm.row_system.PairedRows.of", None),
            *("distances within a largest deviation, n = 40", solving(largest_deviation, 40)),
        ),
        (
            *("rows of one variable", "routes.ipm.row_system:RowsOfVariables"),
            answering("routes.ipm.row_system.RowsOfVariables.of", None),
            "the nearest distance matrix as a matrix inequality, n = 40",
            solving(distance_inequality, 40),
        ),
        (
            *("refined steps", "routes.ipm.row_system:_RowSolve"),
            replaced("routes.ipm.linear_solvers.Corrections.refined", lambda own, residual, x, *_: x),
            "copo14",
            None if data is None else solving(bo.read_sdpa, data / "sdp" / "copo14.dat-s.gz"),
        ),
        (
            *("scaled rows", "routes.ipm.scaled_systems:ScaledRows"),
            answering("routes.ipm.scaled_systems.ScaledRows.of", None),
            "hinf1",
            None if data is None else solving(bo.read_sdpa, data / "sdplib" / "hinf1.dat-s.gz"),
        ),
        (
            *("eigenvalues that round-off hides", "routes.ipm.central_path:_CentralPath"),
            answering("routes.ipm.central_path._CentralPath._may_lose_sign", False),
            "hinf7",
            None if data is None else solving(bo.read_sdpa, data / "sdplib" / "hinf7.dat-s.gz"),
        ),
        (
            *("larger start", "routes.ipm.central_path:_CentralPath"),
            answering("routes.ipm.central_path._CentralPath._begins_again", False),
            "control5",
            None if data is None else solving(bo.read_sdpa, data / "sdplib" / "control5.dat-s.gz"),
        ),
        (
            *("Schur matrix of dense rows", "routes.ipm.plan:Plan"),
            *(answering("routes.ipm.schur.DenseSchur.of", None), "100 random rows, n = 80"),
            solving(_random, 80, 60, 40, solver="path"),
        ),
        (
            *("Schur matrix of rank-one rows", "routes.ipm.block_rows:Gram", _without_rank),
            *("500 quadratic forms, n = 40", solving(_quadratic_forms, 40, 500)),
        ),
        (
            *("Schur matrix by congruences", "routes.ipm.schur:split_by_cost"),
            replaced("routes.ipm.block_rows.split_by_cost", lambda placed, *_: (0, placed)),
            *("theta of 400 edges, n = 100", solving(_theta, 100, 400)),
        ),
        (
            *("semidefinite master", "routes.matrix_generation.generation:_master"),
            answering("routes.matrix_generation.generation._master", ("lp", "")),
            *("a matrix game, n = 24", case("psdboost", "game, n = 24")),
        ),
        (
            *("hybrid gradient", "routes.working_set:has_many_hinges"),
            answering("routes.matrix_generation.generation.has_many_hinges", False),
            "2,500 triplets of overlapping classes, n = 128",
            solving(triplets, 128, 2500, 0.0, solver="psdboost"),
        ),
        (
            *("units of features", "routes.matrix_generation.hybrid_gradient:_units"),
            replaced(
                "routes.matrix_generation.hybrid_gradient._units",
                lambda factor, _: np.ones(len(factor)),
            ),
            "2,500 triplets whose first feature is in another unit, n = 128",
            solving(triplets, 128, 2500, 0.0, 1e3, solver="psdboost"),
        ),
        (
            *(
                "low rank for cuts",
                "routes.routing:_in_order",
                replaced("routes.routing._LARGE_ORDER", 10**9),
            ),
            *("max-cut, n = 800", solving(cut, 800, 3_000)),
        ),
        (
            *("low rank for completions", "routes.routing:_completes"),
            replaced("routes.routing._completes", lambda _: False),
            *("completion of a matrix of 300 x 300", solving(entries_of_low_rank, 300, tol=1e-4)),
        ),
        (
            *("rows at zero", "routes.burer_monteiro.route:_nearly_zero_rows"),
            replaced(
                "routes.burer_monteiro.route._nearly_zero_rows", lambda R, _: np.zeros(len(R), dtype=bool)
            ),
            *("theta of a path of 5 vertices", solving(path_theta, 5, solver="lowrank")),
        ),
        (
            *("proofs no sharper than the rows", "routes.burer_monteiro.route:Staircase._proof_loss"),
            replaced("routes.burer_monteiro.route._MISSED_SHARE", 0.0),
            *("completion of a matrix of 1,500 x 1,500", solving(entries_of_low_rank, 1_500, tol=1e-5)),
        ),
        (
            *("eigenvalues beside many vectors", "certify.eigenvalue_bound:_by_proof"),
            replaced("certify.eigenvalue_bound.MANY_VECTORS", 1e9),
            *("phase retrieval, n = 510", solving(real_phases, 510, solver="lowrank", tol=1e-3)),
        ),
        (
            *("a factor of X first", "problems.cuts.theta:_by_factors"),
            replaced("problems.cuts.theta._LOW_RANK_ORDERS", (0, 0)),
            "theta of 1,000 vertices and 10,000 edges",
            lambda: partial(bo.lovasz_theta, nx.gnm_random_graph(1_000, 10_000, seed=0), tol=1e-3),
        ),
        (
            *("rows orthogonal on edges", "problems.cuts.theta:_feasible"),
            replaced("problems.cuts.theta._orthogonal", lambda R, _: R),
            "theta of a random graph of 1,000 vertices",
            lambda: partial(bo.lovasz_theta, nx.gnm_random_graph(1_000, 10_000, seed=0), tol=1e-3),
        ),
        (
            *("dominated vertices", "problems.cuts.theta:_dominated"),
            replaced("problems.cuts.theta._dominated", lambda _, w: ([], [{0, 1}] * len(w))),
            "theta of 300 points in a square",
            lambda: partial(bo.lovasz_theta, nx.random_geometric_graph(300, 0.15, seed=0)),
        ),
        (
            *("spectra of bands", "linalg:eigenvalues_of"),
            replaced("linalg._LEAST_BANDED", 10**9),
            *("contradicting bands, n = 2,000", solving(contradicting_bands, 2_000)),
        ),
        # Nearness.
        (
            *("stack of one", "routes.projection.stack_of_one:solved_as_stack"),
            answering("routes.projection.route.solved_as_stack", None),
            *("nearest correlation matrix, n = 30", solving(correlation)),
        ),
        (
            *("one row alone", "routes.projection.route:method_of"),
            replaced("routes.projection.route.method_of", lambda program, settings: "newton"),
            *("one distance, LogDet, n = 200", solving(distance_problem("logdet", 200, 1, soft=False))),
        ),
        (
            *("working set", "routes.projection.route:_many_inactive"),
            answering("routes.projection.route._many_inactive", False),
            *("2,000 distances, LogDet, n = 60", solving(distance_problem("logdet", 60, 2_000, soft=False))),
        ),
        (
            *("smooth penalties", "routes.ipm.logdet_newton:logdet_newton"),
            answering("routes.ipm.logdet_newton.smooth", False),
            *("800 soft distances, LogDet", case("bregman", "800 distances, logdet")),
        ),
        (
            *(
                "active rows",
                "routes.ipm.logdet_newton:_warm",
                answering("routes.ipm.logdet_newton._warm", None),
            ),
            *("300 distances, LogDet, from the answer", again),
        ),
        (
            *("passes over rows", "routes.projection.route:_begins_with_passes"),
            answering("routes.projection.route._begins_with_passes", False),
            *("30,000 soft pairs, von Neumann", solving(soft_pairs, 30_000, 20, "von Neumann")),
        ),
        (
            *("dual interior point", "routes.projection.dual_interior_point:_has_more_rows_than_unknowns"),
            answering("routes.projection.dual_interior_point._has_more_rows_than_unknowns", False),
            *("400 forms for 36 entries, von Neumann", solving(forms, 8, 400)),
        ),
        (
            *("interior point for weights", "routes.projection.weights_lagrangian:weighted_frobenius"),
            replaced("routes.projection.weights.ScaledNearness.unknowns", 0),
            *("weights 0, 1 and 100, n = 25", case("bregman", "weights 0 and 100, n = 25")),
        ),
        (
            *("factorized equation", "routes.projection.dual_newton:_has_gram"),
            answering("routes.projection.dual_newton._DualNewton._has_gram", False),
            *("nearly singular block and bounds, n = 45", solving(nearly_singular_block, 45, 15, 0.3)),
        ),
        (
            *("barrier", "routes.projection.dual_newton:_begins_path"),
            answering("routes.projection.dual_newton._DualNewton._begins_path", False),
            *("nearly singular block, n = 30", solving(nearly_singular_block, 30, 10)),
        ),
        (
            *("completion", "routes.projection.route:_by_entries"),
            answering("routes.projection.pattern_newton.fixed_entries", None),
            *("completion of 40 entries, n = 30", solving(completion, 30, 10)),
        ),
        (
            *("sparse inverse covariance", "routes.projection.route:_lasso"),
            answering("routes.projection.route._lasso", None),
            *("lasso in the language, n = 40", solving(lasso, 40)),
        ),
        (
            *("larger start of LogDet", "routes.projection.dual_newton:_DualNewton._from_above"),
            replaced("routes.projection.dual_newton._FAR_LARGER", math.inf),
            "a large matrix beside another one, LogDet, n = 12",
            solving(large_beside_another, 12),
        ),
        (
            *("logarithms of activities", "routes.projection.dual_newton:_DualNewton._equations"),
            replaced(
                "routes.projection.dual_newton.exponential_rows", lambda A, _: np.zeros(A.m, dtype=bool)
            ),
            "forms that are far smaller, von Neumann, n = 20",
            solving(moved_forms, 20, 10, bo.von_neumann_div, 1e-6, 1.0),
        ),
        (
            *("start of the right trace", "routes.projection.dual_newton:_DualNewton._of_right_trace"),
            answering("routes.projection.dual_newton._DualNewton._of_right_trace", None),
            *("a correlation matrix with three bounded forms, n = 150", solving(correlation_with_forms, 150)),
        ),
        (
            *("start near the minimizer", "routes.ipm.logdet_newton:_RowNewton._near_minimizer"),
            answering("routes.ipm.logdet_newton._RowNewton._near_minimizer", None),
            "40 quadratic forms, LogDet, n = 60",
            solving(moved_forms, 60, 40, bo.logdet_div, 0.6, 1.4),
        ),
        (
            *("large costs by entropy", "routes.routing:_outgrows"),
            answering("routes.routing._outgrows", False),
            "von Neumann nearness beside a large cost, n = 30",
            solving(beside_large_cost, 30),
        ),
        # Correlation matrices.
        (
            *("products of one stack", "problems.correlation.answer:CorrelationSolution._products"),
            replaced("problems.correlation.answer.CorrelationSolution._products", None),
            *("the gradient of a nearest correlation matrix, n = 12", lambda: gradient_of_nearest(12)),
        ),
        (
            *("rounds of acting bounds", "routes.projection.stack_newton:_newton_on_acting_rows"),
            replaced("routes.projection.stack_newton._WORKING_SET_ROWS", 10**9),
            "20 correlation matrices within bounds, n = 60",
            calling(correlations_within_bounds, 20, 60),
        ),
        (
            *("splitting of entries", "problems.correlation.norms:_splits"),
            answering("problems.correlation.norms._splits", False),
            "nearest in the largest entry, n = 60",
            calling(bo.nearest_correlation, indefinite(60), "largest_entry"),
        ),
        (
            *("path after a slow splitting", "problems.correlation.norms:_of_splitting"),
            replaced("problems.correlation.norms._SMALL", 0),
            "a slow splitting, n = 40",
            calling(bo.nearest_correlation, slowly_split(40), "largest_entry"),
        ),
        (
            *("smallest eigenvalue alone", "problems.correlation.norms:_of_smallest_eigenvalue"),
            answering("problems.correlation.norms._of_smallest_eigenvalue", None),
            "nearest in the spectral norm, n = 60",
            calling(bo.nearest_correlation, indefinite(60), "spectral"),
        ),
        # Sparse inverse covariances.
        (
            *("connected parts", "routes.graphical_lasso.solve:solve_lasso"),
            replaced("routes.graphical_lasso.solve.connected_parts", lambda data: [np.arange(data.n)]),
            *("10 groups of 20 variables", calling(bo.graphical_lasso, independent_parts(10, 20), 0.15)),
        ),
        (
            *("start by regressions", "routes.graphical_lasso.solve:_candidates"),
            replaced("routes.graphical_lasso.solve.neighborhood_estimate", lambda data: np.eye(data.n)),
            *("300 variables", calling(bo.graphical_lasso, samples, 0.1)),
        ),
        (
            *("splitting", "routes.graphical_lasso.solve:_Methods.step", _without_splitting),
            *("breast cancer, penalty 0.01", calling(bo.graphical_lasso, cancer, 0.01)),
        ),
        (
            *("projections", "routes.entropy.route:_projected"),
            answering("routes.entropy.route._projected", None),
            *("a key rate of two parts of order 5", solving(lambda: entropies.key_rate(5)[0])),
        ),
        (
            *("entropies of numbers", "routes.entropy.blahut_arimoto:MaximumEntropy"),
            answering("routes.entropy.blahut_arimoto.MaximumEntropy.takes", False),
            *("maximum entropy of 5,000 numbers", solving(lambda: entropies.maximum_entropy(5_000, 50)[0])),
        ),
        (
            *("multipliers of the trace", "routes.entropy.blahut_arimoto:BlahutArimoto"),
            replaced("routes.entropy.blahut_arimoto.BlahutArimoto._of_trace", _from_zero),
            *("maximum entropy of 5,000 numbers", solving(lambda: entropies.maximum_entropy(5_000, 50)[0])),
        ),
        (
            *("bounds of domains", "modeling.compilation.compile:_without_domains"),
            replaced("modeling.compilation.compile._without_domains", _domains_as_rows),
            *("maximum entropy of 5,000 numbers", solving(lambda: entropies.maximum_entropy(5_000, 50)[0])),
        ),
        (
            *("steps without mixing", "routes.entropy.blahut_arimoto:BlahutArimoto.advance"),
            replaced("routes.entropy.blahut_arimoto.BlahutArimoto.advance", _mixed),
            *("the rate of a source of order 6", solving(source_rate)),
        ),
        (
            *("positive diagonals", "presolve.exposures:_has_positive_solution"),
            answering("presolve.exposures._has_positive_solution", False),
            *("largest entropy at an energy, order 4", solving(expectations)),
        ),
        (
            *("barrier method", "routes.entropy.interior_point:Barrier"),
            replaced("routes.entropy.route._LOST", np.inf),
            *("a key rate of an image beside a cost, order 8", solving(priced_image)),
        ),
        (
            *("slacks on the central path", "routes.entropy.interior_point:EntropyPath"),
            replaced("routes.entropy.interior_point._FAR", 0.0),
            *("a key rate beside a cost, order 4", solving(priced_key_rate, projections=False)),
        ),
        (
            *("bounds of ratios", "routes.entropy.interior_point:_bounds_of_ratios"),
            replaced("routes.entropy.interior_point._bounds_of_ratios", _no_bounds),
            *("relative entropies of ten numbers beside costs", solving(priced_relative_entropies)),
        ),
        (
            *("columns of their own", "routes.entropy.equations:ReducedSystem"),
            answering("routes.entropy.interior_point.own_columns", None),
            *("the least ellipsoid of 28 points through CVXPY", partial(least_ellipsoid, 28, 7)),
        ),
        # CVXPY.
        (
            *("Huber's loss", "cvxpy.problems.convex_atoms:_huber"),
            replaced("cvxpy.problems.convex_atoms._ATOMS", _without_huber()),
            *("a correlation matrix by Huber's loss, n = 10", lambda: by_method(by_huber(10))),
        ),
        (
            *("log-determinants", "cvxpy.conic_program:with_log_dets"),
            answering("cvxpy.readings.with_log_dets", None),
            *("a sparse inverse covariance through CVXPY, n = 10", partial(inverse_covariance, 10)),
        ),
        (
            *("bounds of variables as terms", "cvxpy.exponential_cones:Exponential"),
            replaced(
                "cvxpy.exponential_cones.Exponential._outlets",
                lambda _, rows, sign: exponential_cones._nowhere(len(rows)),
            ),
            *("exponentials of a diagonal through CVXPY, n = 20", lambda: by_solver(by_exponentials(20))),
        ),
        (
            *("logarithmic rows of cones", "cvxpy.exponential_cones:Exponential._logarithms"),
            replaced(
                "cvxpy.exponential_cones.Exponential._logarithms",
                lambda _, paid: np.zeros(0, np.intp),
            ),
            *(
                "logarithms of 15 quadratic forms through CVXPY, n = 8",
                lambda: by_solver(by_logarithms(15, 8)),
            ),
        ),
        (
            *("names of squared expressions", "cvxpy.conic_program:_names"),
            answering("cvxpy.conic_program._names", Names(*[np.zeros(0, np.intp)] * 2, np.zeros(0))),
            *("least squares of a matrix in units of 1e4, n = 25", partial(squares_in_small_units, 25)),
        ),
        (
            *("copies of Hermitian variables", "cvxpy.reductions:with_copies"),
            answering("cvxpy.readings.with_copies", None),
            *("phase retrieval of complex signals, n = 36", lambda: by_solver(complex_phases(36))),
        ),
        (
            *("boosts of rotated cones", "cvxpy.reductions:_boost"),
            answering("cvxpy.reductions._boost", None),
            *(
                "squares of a matrix below a variable, n = 60",
                lambda: by_method(squares_below_a_variable(60)),
            ),
        ),
        (
            *("scalars read together", "cvxpy.problems.constraints:_scalars"),
            answering("cvxpy.problems.constraints._scalars", {}),
            *("moments of a cycle of 9", lambda: by_method(hierarchies.cycle_cut(9, 2))),
        ),
        # Certificates and proofs.
        (
            *("matrices on the rows", "certify.accuracy:near_minimizers"),
            answering("certify.accuracy.restored", None),
            *("Frobenius with four inequalities, n = 12", accurate(partial(halfspaces, 12, 4))),
        ),
        (
            *("curvature of the cone", "certify.weights:LARGEST_ORDER"),
            replaced("certify.weights.LARGEST_ORDER", 0),
            *("weights over six decades, n = 80", accurate(partial(weighted, 80))),
        ),
        (
            *("further solves", "routes.verification:_Search.interior"),
            answering("routes.verification._Search.interior", ()),
            *("low rank with a logarithm", verified(low_rank_with_a_logarithm, tol=1e-9)),
        ),
        (
            *("dense vectors of rows", "rigorous.data:_listed_dense"),
            replaced("rigorous.data._listed_dense", _listed_by_coordinates),
            *("60 dense forms, proven, n = 40", verified(partial(dense_forms, 40, 60))),
        ),
        (
            *("bounds in fractions", "rigorous.fractions.multipliers:exact_bound"),
            answering("routes.verification.exact_bound", (-np.inf, {})),
            *("slack matrices without an interior, n = 3", verified(slacks_without_interior, tol=1e-9)),
        ),
        (
            *("support of a contradiction", "routes.conflict:_Filter._support"),
            replaced("routes.conflict._Filter._support", lambda self, parts, y: list(parts)),
            *("21 correlations of at most -0.2", contradicted(partial(opposed_entries, 7))),
        ),
        # Graphs.
        (
            *("sums kept apart", "program.rows.algebra:Sum"),
            replaced("program.rows.algebra._LARGEST_SUMMED", 10**9),
            *("communities of 5,000 vertices", solving(modularity, 5_000, tol=1e-2)),
        ),
        (
            *("enumeration", "problems.cuts.proof:partitions"),
            replaced("problems.cuts.proof._MOST_ENTRIES", 0),
            *("9 vertices in 3 parts", calling(bo.partition, weights(9), 3)),
        ),
    ]
    return [SpecialPath(*row) for row in rows if row[-1] is not None]


def main() -> None:
    """Measure, print the table and save that of a full run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="NAME", help="paths whose name contains this")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--data", type=Path, default=None, help="folder with SDPLIB")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    warnings.simplefilter("ignore")
    print(HEAD, end="", flush=True)
    lines = []
    for path in paths(options.data):
        if options.only in path.name:
            lines.append(line(path, *in_turns(path, options.rounds)))
            print(lines[-1], flush=True)
    if not options.only:
        text = HEAD + "".join(f"{own}\n" for own in lines)
        (Path(__file__).parent / "results" / "special_paths.md").write_text(text)


if __name__ == "__main__":
    main()
