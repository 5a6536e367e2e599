"""The hybrid gradient method for one matrix of bounded trace: peers, fixed points, optimality conditions."""

import numpy as np
import peers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first
from test_psdboost import comparisons, margin_by_clarabel, margin_problem

import bregopt as bo
from bregopt.certify import trace_bounds
from bregopt.program import Answer, StopReason
from bregopt.routes.matrix_generation import generation
from bregopt.routes.matrix_generation.hybrid_gradient import HybridGradient, _Metric

SEEDS = st.integers(0, 2**20)


@pytest.fixture(scope="module", autouse=True)
def all_rows_at_once():
    """Let `psdboost` take all rows at once, however few they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "has_many_hinges", lambda _: True)
        yield


def general_problem(n, m, exact, seed):
    """Return rows of every kind around a feasible matrix, and a variable in a box."""
    rng = np.random.default_rng(seed)
    U, W, z = rng.normal(size=(m, n)), rng.normal(size=(m, n)), rng.normal(size=(m, n))
    G, C, S = rng.normal(size=(n, n)), rng.normal(size=(n, n)), rng.normal(size=(2, n, n))
    F = G @ G.T / np.trace(G @ G.T)
    X, u = bo.PSD(n), bo.Variable(lower=-0.5, upper=1.0, name="u")
    lengths, dense = np.einsum("ki,ij,kj->k", z, F, z), np.einsum("kij,ij->k", S, F)
    products = bo.quad_form(U, X) - bo.quad_form(W, X)
    at_F = np.einsum("ki,ij,kj->k", U, F, U) - np.einsum("ki,ij,kj->k", W, F, W)
    rows = [
        bo.trace(X) == 1 if exact else bo.trace(X) <= 1,
        bo.soft(products >= at_F + 0.2, gamma=0.3, penalty="hinge"),
        bo.quad_form(z, X) + u <= lengths + 0.1,
        bo.inner(S + S.swapaxes(1, 2), X) == 2 * dense,
        X[0, 0] >= F[0, 0] - 0.1,
    ]
    return bo.Problem(bo.Minimize(bo.inner(C + C.T, X) + 0.3 * u), rows)


@examples(4)
@given(R=st.integers(1, 40), D=st.integers(1, 8), price=st.floats(1.05, 8), seed=SEEDS)
def test_margins_agree_with_clarabel(R, D, price, seed):
    rng = np.random.default_rng(seed)
    far, near = rng.normal(size=(2, R, D))
    sol = margin_problem(far, near, price / R).solve(solver="psdboost", tol=1e-6)
    assert sol.status == "optimal"
    margin_by_clarabel(far, near, price / R).agrees(sol.value, sol.error)


@examples(7)
@given(n=st.integers(3, 7), m=st.integers(1, 6), exact=st.booleans(), seed=SEEDS)
def test_rows_of_every_kind_agree_with_clarabel(n, m, exact, seed):
    problem = general_problem(n, m, exact, seed)
    sol = problem.solve(solver="psdboost", tol=1e-6)
    assert sol.status == "optimal"
    reference = problem.solve(solver="cvxpy", tol=1e-8)
    assert abs(sol.value - reference.value) <= sol.error + reference.error + 1e-9 * peers.LOOSE


def started(program, y):
    """Return the method at the multiple of the identity."""
    (bound,) = trace_bounds(program)
    n = program.blocks[0].n
    return HybridGradient(program, bound, bo.LowRank(np.eye(n) * np.sqrt(bound.value / n)), y)


@pytest.mark.parametrize("exact", [True, False])
def test_a_step_solves_three_nearest_point_problems(exact):
    program = general_problem(6, 5, exact, 3).program()
    rng = np.random.default_rng(0)
    method = started(program, 0.3 * rng.normal(size=program.m))
    rows, C, lo, hi = method._rows, program.blocks[0].C, program.u_lo, program.u_hi
    assert len(rows) == program.m - exact  # the trace, where it is fixed
    for _ in range(5):
        z = method._at
        new, factor = method._next(z)
        y = method.y.copy()
        y[rows] = new.y
        assert new.a == pytest.approx(program.activity((factor @ factor.T,), new.u)[rows], abs=1e-5)
        assert new.H == pytest.approx(program.A.adjoint(y), abs=1e-5)
        assert new.b == pytest.approx(program.B.T @ y, abs=1e-5)
        # X and u are nearest where the way to the asked points leads out of the sets.
        X_off = z.X - method._t * (C - z.H) - new.X
        u_off = z.u - method._t * method._scale_u * (program.c - z.b) - new.u
        for G in rng.normal(size=(20, 6, 6)):
            other = G @ G.T / np.trace(G @ G.T) * (1 if exact else rng.uniform())
            assert np.vdot(X_off, other - new.X) <= 1e-9
            assert u_off @ (rng.uniform(lo, hi) - new.u) <= 1e-9
        # -y is a subgradient of the penalties at v.
        v = 2 * new.a - z.a - z.y / method._s + new.y / method._s
        bounds = program.bounds.slice(rows)
        assert bounds.violation(v)[bounds.hard] == pytest.approx(0, abs=1e-12)
        for other in rng.normal(size=(20, len(rows))):
            other = np.where(bounds.hard, np.clip(other, bounds.lo, bounds.hi), other)
            rise = bounds.penalty(other) - bounds.penalty(v)
            assert (rise >= -new.y * (other - v) - 1e-9).all()
        method._at = new


@pytest.mark.parametrize("exact", [True, False])
def test_the_lengths_of_steps_are_those_of_the_norm_of_the_map(exact):
    program = general_problem(5, 4, exact, 1).program()
    method = started(program, np.ones(program.m))
    size, columns = method._size[method._rows], []
    for i in range(5):
        for j in range(5):
            E = np.zeros((5, 5))
            E[i, j] += 0.5
            E[j, i] += 0.5
            if exact:
                E -= np.eye(5) * (np.trace(E) / 5)
            columns.append(program.A.apply((E,))[method._rows] / size)
    B = program.B.toarray()[method._rows] * np.sqrt(method._scale_u) / size[:, None]
    norm = np.linalg.norm(np.column_stack([*columns, B]), 2)
    scaled = method._t * (method._s * size**2)
    assert np.allclose(scaled, scaled[0])
    assert 0.8 < scaled[0] * norm**2 <= 1


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("units", [1.0, 1e-1, 1e-3])
def test_a_projection_is_nearest_in_its_metric(exact, units):
    """Where the way to the asked point leads out of the set, no other point of the set lies ahead."""
    rng = np.random.default_rng(7)
    (bound,) = trace_bounds(general_problem(6, 5, exact, 3).program())
    v = np.where(np.arange(6) % 2, units, 1.0) * rng.uniform(0.5, 1, 6)
    metric = _Metric(v, bound)
    X = np.diag(v**2) / (v @ v)
    for size in (1e-3, 1.0, 30.0):
        G = rng.normal(size=(6, 6)) / (v @ v)
        G = size * (G + G.T)
        factor = metric.projected(X, G)
        new = factor @ factor.T
        assert np.trace(new) == pytest.approx(1) if exact else np.trace(new) <= 1 + 1e-12
        off = (X - new) / np.outer(v, v) ** 2 - G
        for F in rng.normal(size=(100, 6, 6)) * rng.choice([1.0, units], (100, 6, 1)):
            other = F @ F.T / np.trace(F @ F.T) * (1 if exact else rng.uniform())
            ahead = np.vdot(off, other - new)
            assert ahead <= 1e-9 + 0.02 * metric.length(new - X) * metric.length(other - new)
        X = new


def test_the_norms_of_rows_are_those_in_the_metric():
    program = general_problem(5, 4, True, 2).program()
    (bound,), v = trace_bounds(program), np.array([1.0, 1e-3, 0.2, 1e3, 2.0])
    found = _Metric(v, bound).norms(program.A)
    for k in range(program.m):
        A = program.A.adjoint(np.eye(program.m)[k])
        assert found[k] == pytest.approx(np.linalg.norm(A * np.outer(v, v)))


def test_steps_do_not_depend_on_the_unit_of_all_features():
    far, near = np.random.default_rng(4).normal(size=(2, 300, 12))
    points = []
    for unit in (1.0, 2.0**10):
        program = margin_problem(unit * far, unit * near, 10 / 300).program()
        method = started(program, np.full(program.m, 1e-2))
        for _ in range(6):
            method.step()
        points.append((np.asarray(method.X), method.u[0] / unit**2, method.y[:300]))
    for own, other in zip(*points, strict=True):
        assert own == pytest.approx(other, rel=1e-2, abs=1e-6)


@pytest.mark.parametrize("large", first(1, [[0, 7, 14], [3], list(range(0, 20, 2))]))
def test_features_in_two_units_need_no_interior_point(monkeypatch, large):
    monkeypatch.setattr(generation, "_on_path", None)
    far, near = np.random.default_rng(3).normal(size=(2, 400, 20))
    unit = np.ones(20)
    unit[large] = 1e3
    problem = margin_problem(far * unit, near * unit, 10 / 400)
    sol = problem.solve(solver="psdboost", tol=1e-4)
    assert sol.status == "optimal"
    finer = problem.solve(solver="path", tol=1e-8)
    assert abs(sol.value - finer.value) <= sol.error + finer.error


@pytest.mark.parametrize("R", first(1, [500, 2_000]))
def test_rows_far_from_their_ends_keep_their_multipliers(R):
    far, near = comparisons(R, 12, 3)
    program = margin_problem(far, near, 10 / R).program()
    method = started(program, generation._uniform(program))
    for _ in range(30):
        before, rows = method.y, method._rows
        method.step()
        rest = np.setdiff1d(np.arange(program.m), rows)
        assert np.array_equal(method.y[rest], program.bounds.clip(before)[rest])
    assert len(method._rows) < program.m / 2


def test_margins_of_one_cloud_meet_the_optimality_conditions():
    far, near = np.random.default_rng(5).normal(size=(2, 400, 30))
    sol = margin_problem(far, near, 10 / 400).solve(solver="psdboost", tol=1e-7)
    assert sol.status == "optimal"
    assert "rank" in sol.history
    w, X = np.abs(sol.duals[0]), np.asarray(sol.X)
    assert w.sum() == pytest.approx(1, abs=1e-9)
    assert 0 <= w.min()
    assert w.max() <= 10 / 400 * (1 + 1e-12)
    H = far.T @ (w[:, None] * far) - near.T @ (w[:, None] * near)
    largest = np.linalg.eigvalsh(H)[-1]
    assert np.trace(X) == pytest.approx(1)
    assert np.vdot(H, X) == pytest.approx(largest, rel=1e-5)
    assert abs(sol.value - largest) <= 1e-6 * largest


def test_easy_margins_need_no_interior_point(monkeypatch):
    monkeypatch.setattr(generation, "_on_path", None)
    far, near = comparisons(300, 12, 2)
    assert margin_problem(far, near, 10 / 300).solve(solver="psdboost", tol=1e-6).status == "optimal"


def test_where_it_stalls_the_interior_point_goes_on(monkeypatch):
    monkeypatch.setattr(HybridGradient, "step", lambda _: None)
    far, near = comparisons(60, 5, 1)
    sol = margin_problem(far, near, 10 / 60).solve(solver="psdboost", tol=1e-7)
    assert sol.status == "optimal"
    assert not isinstance(sol.X, bo.LowRank)
    margin_by_clarabel(far, near, 10 / 60).agrees(sol.value, sol.error)


def test_the_best_point_is_kept_where_a_limit_ends_the_interior_point(monkeypatch):
    step, calls = HybridGradient.step, []

    def stalling(method):
        calls.append(0)
        if len(calls) <= 8:
            step(method)

    def cut_short(program, settings, start, progress):
        X = np.eye(program.blocks[0].n) / program.blocks[0].n
        return Answer((X,), np.zeros(program.k), np.zeros(program.m), StopReason.TIME_LIMIT, 3)

    monkeypatch.setattr(HybridGradient, "step", stalling)
    monkeypatch.setattr(generation, "_on_path", cut_short)
    far, near = comparisons(60, 5, 1)
    with pytest.warns(bo.ConvergenceWarning):
        sol = margin_problem(far, near, 10 / 60).solve(solver="psdboost", tol=1e-12)
    finer = margin_problem(far, near, 10 / 60).solve(solver="path", tol=1e-8)
    assert sol.status == "user_limit"
    assert sol.iterations == len(calls) + 3
    assert sol.value - 1e-7 <= finer.value <= sol.dual_value + 1e-7
    assert sol.dual_value - sol.value <= 0.2 * abs(finer.value)


def test_a_small_norm_of_the_map_is_noticed(monkeypatch):
    """Steps that are twice too long shrink, and the answer is the same."""
    norm = HybridGradient._norm
    monkeypatch.setattr(HybridGradient, "_norm", lambda *arguments: norm(*arguments) / 2)
    monkeypatch.setattr(generation, "_on_path", None)
    far, near = comparisons(300, 12, 2)
    sol = margin_problem(far, near, 10 / 300).solve(solver="psdboost", tol=1e-6)
    assert sol.status == "optimal"
    finer = margin_problem(far, near, 10 / 300).solve(solver="path", tol=1e-8)
    assert abs(sol.value - finer.value) <= sol.error + finer.error


def test_a_limit_of_steps_ends_with_a_certificate():
    far, near = comparisons(60, 5, 1)
    with pytest.warns(bo.ConvergenceWarning):
        sol = margin_problem(far, near, 10 / 60).solve(solver="psdboost", tol=1e-9, max_iter=2)
    assert sol.status == "user_limit"
    assert sol.iterations == 2
    finer = margin_problem(far, near, 10 / 60).solve(solver="path", tol=1e-8)
    assert min(sol.value, sol.dual_value) - 1e-7 <= finer.value <= max(sol.value, sol.dual_value) + 1e-7


def test_contradictions_are_proven():
    X = bo.PSD(4)
    rows = [bo.trace(X) == 1, bo.quad_form(np.eye(4), X) >= 0.3]
    assert bo.Problem(bo.Minimize(X[0, 1]), rows).solve(solver="psdboost").status == "infeasible"


def test_an_answer_of_another_order_starts_with_its_multipliers_alone():
    smaller, larger = (general_problem(n, 12, True, 0) for n in (4, 6))
    first = smaller.solve(solver="psdboost", tol=1e-6)
    found = larger.solve(solver="psdboost", tol=1e-6, warm_start=first)
    cold = larger.solve(solver="path", tol=1e-8)
    assert found.status == "optimal"
    assert abs(found.value - cold.value) <= found.error + cold.error
