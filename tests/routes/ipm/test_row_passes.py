"""L-BFGS over soft rows in memory, before Newton's method: against Newton's method alone and row chunks."""

import io
from contextlib import redirect_stdout
from dataclasses import replace

import numpy as np
import pytest
from samples import turns

import bregopt as bo

TUNING = bo.tuning("bregman")
EASY = replace(TUNING, pass_rows=50, pass_ratio=5, pass_order=2)  # for small problems
DIVERGENCES = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}
FORCED = replace(EASY, pass_curvature=1e9, pass_growth=1e9, pass_exponential_curvature=1e9)
FORCED = replace(FORCED, pass_exponential_growth=1e9)


def data(r, m, seed=0):
    """Return vectors, bounds and senses: distances that are to be smaller, and others larger."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(m, r)) * np.linspace(1.5, 0.3, r)
    size, near = np.einsum("ki,ki->k", Z, Z), rng.random(m) < 0.5
    return Z, np.where(near, 0.7, 1.4) * size, near


def problem(name, r=6, m=300, gamma=0.3, scale=1.0, seed=0, weight=1.0, cost=None, start=None):
    """Return a problem of soft rows of both senses."""
    Z, bound, near = data(r, m, seed)
    X = bo.PSD(r, name="X")
    form = bo.quad_form(Z, X)
    rows = [
        bo.soft(form[near] <= scale * bound[near], gamma),
        bo.soft(form[~near] >= scale * bound[~near], gamma),
    ]
    objective = weight * DIVERGENCES[name](X, scale * np.eye(r) if start is None else start)
    return bo.Problem(bo.Minimize(objective if cost is None else objective + bo.inner(cost, X)), rows)


def begins(prob, **options):
    """Whether the explanation says that L-BFGS comes first."""
    with redirect_stdout(io.StringIO()) as out:
        prob.explain("bregman", **options)
    return "L-BFGS over the rows first" in out.getvalue()


def agree(first, second):
    """Whether two answers are optimal, and the intervals of their values overlap."""
    assert first.status == second.status == "optimal"
    assert first.dual_value <= second.value + 1e-12 * abs(second.value)
    assert second.dual_value <= first.value + 1e-12 * abs(first.value)


@pytest.mark.parametrize(("name", "tol", "scale"), turns(DIVERGENCES, [1e-6, 1e-9], [1e-6, 1.0, 1e6]))
def test_it_agrees_with_newton_alone(name, tol, scale):
    prob = problem(name, gamma=0.3 if name == "logdet" else 0.01, scale=scale)
    assert begins(prob, tuning=EASY)
    ours = prob.solve(tol=tol, tuning=EASY)
    newton = prob.solve(tol=tol, method="newton")
    agree(ours, newton)
    assert "Liu, Nocedal" in ours.citation
    assert "Liu, Nocedal" not in newton.citation
    assert np.allclose(ours.X, newton.X, rtol=1e-2, atol=1e-3 * scale)
    if tol < 1e-6:
        y, other = np.concatenate(ours.duals), np.concatenate(newton.duals)
        assert np.allclose(y, other, atol=1e-3 * np.abs(other).max())


@pytest.mark.parametrize("name", DIVERGENCES)
def test_weights_costs_and_starts(name):
    rng = np.random.default_rng(3)
    B = rng.normal(size=(6, 6))
    cost, start = 0.05 * (B + B.T), B @ B.T + np.eye(6)
    for options in ({"weight": 7.0}, {"cost": cost}, {"start": start}, {"weight": 0.4, "cost": cost}):
        prob = problem(name, **options)
        agree(prob.solve(tuning=FORCED), prob.solve(method="newton"))


@pytest.mark.parametrize("name", DIVERGENCES)
def test_it_agrees_with_rows_in_chunks(name):
    Z, bound, near = data(6, 300)
    chunks = bo.RowChunks(Z, bound, np.where(near, -1, 1), 0.3).solve(np.eye(6), name)
    agree(problem(name).solve(tuning=FORCED), chunks)


def test_a_low_rank_start():
    rng = np.random.default_rng(5)
    points = rng.normal(size=(60, 4))
    i, j = rng.integers(0, 60, (2, 900))
    X, kept = bo.PSD(60, name="X"), i != j
    d = bo.sq_distance(X, i[kept], j[kept])
    prob = bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(points))), [bo.soft(d <= 4.0, 0.01)])
    ours = prob.solve(tuning=EASY)
    assert begins(prob, tuning=EASY)
    assert isinstance(ours.X, bo.LowRank)
    agree(ours, prob.solve(method="newton"))


def test_squared_penalties():
    Z, bound, _ = data(6, 300)
    X = bo.PSD(6, name="X")
    squares = bo.sum_squares(bo.quad_form(Z / np.sqrt(bound)[:, None], X) - 1.0)
    for name, divergence in DIVERGENCES.items():
        prob = bo.Problem(bo.Minimize(divergence(X, np.eye(6)) + 0.01 * squares), [])
        assert begins(prob, tuning=FORCED), name
        agree(prob.solve(tuning=FORCED), prob.solve(method="newton"))


def test_it_runs_where_rows_are_many_and_the_order_is_small():
    many = problem("logdet", 16, 3_300)
    assert begins(many)
    assert not begins(many, method="newton")
    assert not begins(problem("logdet", 16, 3_100))  # fewer than 200 rows a column
    assert not begins(problem("logdet", 12, 3_300))  # a Newton step is cheap
    assert begins(problem("von_neumann", 12, 3_300))
    assert not begins(problem("von_neumann", 2, 2_900))


def test_other_rows_and_objectives_are_left_to_newton():
    Z, bound, _ = data(6, 300)
    X, Y = bo.PSD(6, name="X"), bo.PSD(6, name="Y")
    form = bo.quad_form(Z, X)
    near, soft = bo.logdet_div(X, np.eye(6)), bo.soft(form <= bound, 0.1)
    difference = bo.soft(form - bo.quad_form(Z[::-1], X) <= bound, 0.1, penalty="hinge")
    for objective, rows in (
        (near, [form <= bound]),
        (near, [bo.soft(form <= bound, 0.1, penalty="hinge")]),
        (near, [soft, bo.trace(X) <= 5]),
        (near, [soft, difference]),
        (near + bo.logdet_div(Y, np.eye(6)), [soft]),
        (bo.frobenius_div(X, np.eye(6)), [bo.soft(form <= bound, 0.1)]),
    ):
        assert not begins(bo.Problem(bo.Minimize(objective), rows), tuning=FORCED)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_newton_takes_over_after_too_many_passes(name):
    prob = problem(name, gamma=3.0)
    few = replace(FORCED, pass_limit=3)
    sol = prob.solve(tuning=few)
    agree(sol, prob.solve(method="newton"))
    assert sol.iterations > 3
    steps = sol.history["iteration"]
    assert (np.diff(steps) >= 0).all()
    assert steps[-1] == sol.iterations
    with pytest.warns(bo.ConvergenceWarning, match="max_iter"):
        cut = prob.solve(tuning=few, max_iter=4, tol=1e-12)
    assert cut.status == "user_limit"
    assert cut.iterations == 4


@pytest.mark.parametrize("name", DIVERGENCES)
def test_heavy_penalties_are_left_to_newton_at_once(name):
    prob = problem(name, gamma=1e3 if name == "logdet" else 10.0)
    sol, newton = prob.solve(tuning=EASY), prob.solve(method="newton")
    assert sol.iterations == newton.iterations
    assert "Liu" not in sol.citation
    forced = prob.solve(tuning=FORCED)
    agree(forced, newton)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_limits_callbacks_and_tables(name):
    prob = problem(name)
    with pytest.warns(bo.ConvergenceWarning, match="max_iter was reached"):
        cut = prob.solve(tuning=FORCED, max_iter=1, tol=1e-12)
    assert (cut.status, cut.iterations) == ("user_limit", 1)
    assert cut.X is not None
    with pytest.warns(bo.ConvergenceWarning, match="time_limit was reached"):
        prob.solve(tuning=FORCED, time_limit=1e-9)
    seen = []
    with pytest.warns(bo.ConvergenceWarning, match="The callback ended"):
        prob.solve(tuning=FORCED, tol=1e-12, callback=lambda step: seen.append(step) or len(seen) > 2)
    assert [step.iteration for step in seen] == [0, 1, 2]
    assert seen[-1].value <= seen[0].value
    with redirect_stdout(io.StringIO()) as out:
        sol = prob.solve(tuning=FORCED, verbose=True)
    assert len(out.getvalue().splitlines()) == 3 + len(sol.history["gap"])
    assert sol.history["gap"][-1] <= 1e-6


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_warm_start_begins_at_the_multipliers(name):
    prob = problem(name)
    cold = prob.solve(tuning=FORCED, tol=1e-8)
    assert prob.solve(tuning=FORCED, warm_start=cold).iterations <= cold.iterations // 2
    near = problem(name, gamma=0.303)
    warm = near.solve(tuning=FORCED, warm_start=cold, tol=1e-8)
    assert warm.iterations <= near.solve(tuning=FORCED, tol=1e-8).iterations
    agree(warm, near.solve(method="newton"))


def test_duplicates_and_rows_that_span_a_part_only():
    Z, bound, near = data(6, 40)
    Z[:, 4:] = 0.0
    at = np.tile(np.arange(40), 10)
    X = bo.PSD(6, name="X")
    form = bo.quad_form(Z[at], X)
    rows = [bo.soft(form[near[at]] <= bound[at][near[at]], 0.1)]
    rows.append(bo.soft(form[~near[at]] >= bound[at][~near[at]], 0.1))
    for divergence in DIVERGENCES.values():
        prob = bo.Problem(bo.Minimize(divergence(X, np.eye(6))), rows)
        assert begins(prob, tuning=FORCED)
        agree(prob.solve(tuning=FORCED), prob.solve(method="newton"))
