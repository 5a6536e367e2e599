"""Working sets of rows on the route `path`: the answers of all rows, from any first working set."""

import signal
import warnings
from dataclasses import replace
from unittest.mock import patch

import cvxpy as cp
import numpy as np
import peers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify
from bregopt.presolve.epigraphs import slacks
from bregopt.program import StopReason
from bregopt.routes import working_set
from bregopt.routes.ipm import path_route as route
from bregopt.routes.ipm.central_path import follow_path
from bregopt.routes.working_set import ActiveSet, _best_variables

# Takes a working set from a dozen rows on.
SMALL = replace(bo.tuning("path"), sample_rows=6, sample_orders=1, sample_ratio=1, working_set_flops=1.0)


def comparisons(seed, R, D, apart=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(R, D)) + apart * np.eye(D)[0], rng.normal(size=(R, D))


def margin_problem(far, near, price):
    """Return eq. 3 of PSDBoost with ``C R = price``."""
    R, D = far.shape
    X, rho, xi = bo.PSD(D), bo.Variable(name="rho"), bo.Variable(R, nonneg=True, name="xi")
    margins = bo.quad_form(far, X) - bo.quad_form(near, X)
    return bo.Problem(bo.Maximize(rho - price / R * bo.sum(xi)), [margins >= rho - xi, bo.trace(X) == 1])


def margin_by_clarabel(far, near, price):
    R, D = far.shape
    X, rho, xi = cp.Variable((D, D), PSD=True), cp.Variable(), cp.Variable(R, nonneg=True)
    margins = cp.sum(cp.multiply(far @ X, far), axis=1) - cp.sum(cp.multiply(near @ X, near), axis=1)
    problem = cp.Problem(cp.Maximize(rho - price / R * cp.sum(xi)), [margins >= rho - xi, cp.trace(X) == 1])
    return peers.ask(problem)


def solve(problem, tuning=SMALL, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        return problem.solve(solver="path", tuning=tuning, **options)


@examples(6)
@given(
    seed=st.integers(0, 10_000),
    R=st.integers(13, 70),
    D=st.integers(2, 6),
    price=st.sampled_from([1.2, 2.0, 10.0, 1000.0]),
)
def test_margins_agree_with_clarabel(seed, R, D, price):
    far, near = comparisons(seed, R, D)
    with patch.object(
        working_set, "most_act", return_value=False
    ):  # all rows at once have a test of their own
        sol = solve(margin_problem(far, near, price), tol=1e-7)
    assert sol.status == "optimal"
    assert "rows" in sol.history
    margin_by_clarabel(far, near, price).agrees(sol.value, sol.error)
    assert sol.dual_value >= sol.value - 1e-9 * max(1, abs(sol.value))


@examples(6)
@given(seed=st.integers(0, 10_000), hinge=st.booleans(), n=st.integers(2, 5), m=st.integers(13, 60))
def test_rows_of_every_kind_agree_with_all_rows_at_once(seed, hinge, n, m):
    rng = np.random.default_rng(seed)
    X, u = bo.PSD(n), bo.Variable(2, name="u")
    Z = rng.normal(size=(m, n))
    G = rng.normal(size=(n, n))
    inside = np.einsum("ki,ij,kj->k", Z, G @ G.T / n, Z)
    width = rng.uniform(0, 1, m)
    rows = bo.between(bo.quad_form(Z, X) + rng.normal(size=(m, 2)) @ u, inside - width, inside + width)
    C = rng.normal(size=(n, n))
    problem = bo.Problem(
        bo.Minimize(bo.inner(C + C.T, X) + u[0]),
        [
            bo.soft(rows, gamma=rng.uniform(0.1, 2), penalty="hinge") if hinge else rows,
            bo.trace(X) <= 3 * n,
            u <= 5,
            u >= -5,
        ],
    )
    sol = solve(problem, tol=1e-7)
    program = problem.program()
    assert slacks(program, None) is None
    assert sol.status == "optimal"
    peers.ask(problem).agrees(sol.value, sol.error)


@pytest.mark.parametrize("seed", range(6))
def test_unbounded_margins_are_proven_so(seed):
    far, near = comparisons(seed, 60, 3)
    sol = solve(margin_problem(far, near, 0.5))
    assert sol.status == "unbounded"


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_infeasible_rows_are_proven_so(seed):
    rng = np.random.default_rng(seed)
    Z, X = rng.normal(size=(60, 3)), bo.PSD(3)
    lower = rng.uniform(0, 0.1, 60)
    lower[17] = 2 * Z[17] @ Z[17]
    rows = [bo.quad_form(Z, X) >= lower, bo.trace(X) <= 1]
    sol = solve(bo.Problem(bo.Minimize(X[0, 0]), rows))
    assert sol.status == "infeasible"


def test_rows_that_all_act():
    # As many rows as entries, all equal at the answer.
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(15, 5))
    far = np.repeat(Z, 4, axis=0)
    sol = solve(margin_problem(far, 0 * far, 50.0), tol=1e-7)
    assert sol.status == "optimal"
    margin_by_clarabel(far, 0 * far, 50.0).agrees(sol.value, sol.error)


@pytest.mark.parametrize(("seed", "unit"), [(0, 1.0), (1, 1e-6), (2, 1e6)])
def test_triplets_of_one_class_take_all_rows(seed, unit):
    # All but a few of the sampled triplets act.
    far, near = comparisons(seed, 120, 16, apart=0.0)
    sol = solve(margin_problem(np.sqrt(unit) * far, np.sqrt(unit) * near, 10.0), tol=1e-7)
    assert sol.status == "optimal"
    assert "rows" not in sol.history
    margin_by_clarabel(far, near, 10.0).agrees(sol.value / unit, sol.error / unit)


@pytest.mark.parametrize("n", [8, 16])
def test_rows_without_which_the_objective_falls_take_all_rows(n):
    # No part of the bounds on entries bounds the sum of all entries.
    X, (i, j) = bo.PSD(n), np.triu_indices(n)
    goal, bounds = bo.Maximize(bo.sum(X)), (np.eye(n) + 0.1)[i, j]
    sol = solve(bo.Problem(goal, [X[i, j] <= bounds]), tol=1e-7)
    assert sol.status == "optimal"
    assert "rows" not in sol.history
    assert sol.value == pytest.approx(n + 0.1 * n**2, rel=1e-6)
    endless = solve(bo.Problem(goal, [X[i[n:], j[n:]] <= bounds[n:]]))  # without those of the first row
    assert endless.status == "unbounded"


@pytest.mark.parametrize("split", ["resting", "given way", "wrong"])
def test_any_first_split_leads_to_the_answer(split, monkeypatch):
    far, near = comparisons(3, 60, 4)
    problem = margin_problem(far, near, 3.0)
    peer = margin_by_clarabel(far, near, 3.0)

    def first(method, program, settings, count, start):
        rest = ActiveSet.resting(program.bounds)
        held = np.zeros(program.m)
        if split != "resting":
            held = np.where(rest.working, 0.0, program.bounds.gamma)
        if split == "wrong":
            held[::2] = 0.0
        return ActiveSet(rest.working, held)

    monkeypatch.setattr("bregopt.routes.ipm.path_route.first_active_set", first)
    sol = solve(problem, tol=1e-7)
    assert sol.status == "optimal"
    peer.agrees(sol.value, sol.error)


def test_a_stalled_round_is_no_answer(monkeypatch):
    """A method that stalls on few rows gets more of them."""
    far, near = comparisons(5, 60, 4)

    def weak(program, settings, start, progress):
        answer = follow_path(program, settings, start, progress)
        if program.m < 30:
            return type(answer)(answer.X, answer.u, 0 * answer.y, StopReason.STALLED, 1)
        return answer

    monkeypatch.setattr(route, "follow_path", weak)
    sol = solve(margin_problem(far, near, 3.0), tol=1e-7)
    assert sol.status == "optimal"


@pytest.mark.parametrize("option", [{"max_iter": 20}, {"time_limit": 1e-6}])
def test_limits_keep_a_valid_answer(option):
    far, near = comparisons(1, 200, 6)
    sol = solve(margin_problem(far, near, 10.0), tol=1e-9, **option)
    assert sol.status == "user_limit"
    peer = margin_by_clarabel(far, near, 10.0)
    assert sol.value <= peer.value + peer.error + sol.error
    assert sol.dual_value >= peer.value - peer.error - 1e-9


def test_interrupt_between_rounds_keeps_the_best(monkeypatch):
    far, near = comparisons(1, 200, 6)
    original, calls = working_set._Rounds._joining, []

    def interrupted(self, split, answer):
        calls.append(1)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return original(self, split, answer)

    monkeypatch.setattr(working_set._Rounds, "_joining", interrupted)
    sol = solve(margin_problem(far, near, 10.0), tol=1e-9)
    assert "Interrupted" in sol.stop_reason
    peer = margin_by_clarabel(far, near, 10.0)
    assert sol.dual_value >= peer.value - peer.error - 1e-9


def test_memory_is_not_asked_for_rows_that_rest():
    far, near = comparisons(0, 30_000, 8)
    program = margin_problem(far, near, 10.0).program()
    assert route.memory_needed(program) < 1e9
    assert route.Path().refusal(program, route.PathSettings()) is None


def test_many_rows_and_the_multipliers_of_all():
    far, near = comparisons(2, 3000, 6)
    problem = margin_problem(far, near, 10.0)
    sol = solve(problem, tol=1e-7, tuning=replace(bo.tuning("path"), working_set_flops=1.0))
    assert sol.status == "optimal"
    assert sol.history["rows"].max() < 1500
    y = sol.duals[0]
    assert abs(y).sum() == pytest.approx(1, abs=1e-6)
    raw = sol._raw
    assert certify(PrimalDualPoint(problem.program(), raw.X, raw.u, raw.duals)).gap <= 1e-7


def test_best_margin_is_the_quantile(rng):
    far, near = comparisons(0, 40, 3)
    program = slacks(margin_problem(far, near, 8.0).program(), None).program
    matrices = program.A.apply((np.eye(3) / 3,))
    u = _best_variables(program, matrices, np.zeros(1))

    def objective(rho):
        return float(program.c @ [rho]) + program.bounds.penalty(matrices + program.B @ np.array([rho])).sum()

    best = min(objective(rho) for rho in np.linspace(-10, 10, 2001))
    assert objective(u[0]) <= best + 1e-12


def partition_relaxation(rows):
    """A relaxation of a partition on the face e'Xe = 0, with `rows` inequalities in a constraint."""
    rng = np.random.default_rng(0)
    n = 24
    W = np.triu(rng.random((n, n)) < 0.3, 1) * 1.0
    L = np.diag((W + W.T).sum(1)) - W - W.T
    X = bo.PSD(n, name="X")
    i, j = np.triu_indices(n, 1)
    chunks = [X[i[k : k + rows], j[k : k + rows]] >= -0.5 for k in range(0, len(i), rows)]
    fixed = [bo.diag(X) == 1, bo.quad_form(np.ones(n), X) == 0]
    return bo.Problem(bo.Minimize(bo.inner(L / 3, X)), [*fixed, *chunks])


@pytest.mark.parametrize("rows", [5, 300])
def test_rows_of_small_constraints_and_faces(rows):
    """Constraints of few rows are never left out, so that no row is left to sample."""
    whole = partition_relaxation(300).solve(solver="path")
    found = partition_relaxation(rows).solve(solver="path", tuning=SMALL)
    assert whole.status == found.status == "optimal"
    assert abs(found.value - whole.value) <= found.error + whole.error
    with pytest.warns(bo.ConvergenceWarning, match="callback"):
        stopped = partition_relaxation(rows).solve(
            solver="path", tuning=SMALL, callback=lambda step: step.gap < 0.1
        )
    assert stopped.dual_value <= whole.value + whole.error
