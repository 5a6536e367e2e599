"""The method of multipliers for one matrix of bounded trace: peers, derivatives, optimality conditions."""

import numpy as np
import peers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_psdboost import comparisons, margin_by_clarabel, margin_problem

import bregopt as bo
from bregopt.certify import trace_bounds
from bregopt.routes.matrix_generation import generation
from bregopt.routes.matrix_generation.method_of_multipliers import MethodOfMultipliers

SEEDS = st.integers(0, 2**20)


@pytest.fixture(scope="module", autouse=True)
def all_rows_at_once():
    """Let `psdboost` take all rows at once, whatever a sample says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation._Generation, "_begin", lambda *_: True)
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


@settings(max_examples=15)
@given(R=st.integers(1, 40), D=st.integers(1, 8), price=st.floats(1.05, 8), seed=SEEDS)
def test_margins_agree_with_clarabel(R, D, price, seed):
    rng = np.random.default_rng(seed)
    far, near = rng.normal(size=(2, R, D))
    sol = margin_problem(far, near, price / R).solve(solver="psdboost", tol=1e-6)
    assert sol.status == "optimal"
    margin_by_clarabel(far, near, price / R).agrees(sol.value, sol.error)


@settings(max_examples=15)
@given(n=st.integers(3, 7), m=st.integers(1, 6), exact=st.booleans(), seed=SEEDS)
def test_rows_of_every_kind_agree_with_clarabel(n, m, exact, seed):
    problem = general_problem(n, m, exact, seed)
    sol = problem.solve(solver="psdboost", tol=1e-6)
    assert sol.status == "optimal"
    reference = problem.solve(solver="cvxpy", tol=1e-8)
    assert abs(sol.value - reference.value) <= sol.error + reference.error + 1e-9 * peers.LOOSE


@pytest.mark.parametrize("exact", [True, False])
def test_products_are_derivatives_of_the_gradient(exact):
    program = general_problem(6, 5, exact, 3).program()
    (bound,) = trace_bounds(program)
    rng = np.random.default_rng(0)
    method = MethodOfMultipliers(program, bound, np.zeros(program.m))
    y = 0.3 * rng.normal(size=program.m)
    y[0] -= 0.0 if exact else 4.0  # the price of the trace
    at = method._at(y)
    assert 0 < at.rank < 6
    assert at.shifted == exact
    method._curvature.move(at)
    h = 1e-5
    for _ in range(3):
        d = rng.normal(size=program.m)
        moved = [method._at(at.y + sign * h * d) for sign in (1, -1)]
        X = [own.X.factor @ own.X.factor.T for own in moved]
        change = program.A.apply(((X[0] - X[1]) / (2 * h),))
        assert method._s * method._curvature(d) == pytest.approx(change, abs=1e-5 * np.abs(change).max())
        slope = (moved[0].loss - moved[1].loss) / (2 * h)
        assert slope == pytest.approx(float(at.gradient @ d), rel=1e-5)
    rows = [method._curvature(row)[k] for k, row in enumerate(np.eye(program.m))]
    formed = [k for vectors in method._curvature._vectors for k in vectors.at]
    assert method._curvature.diagonal[formed] == pytest.approx(np.array(rows)[formed], rel=1e-3, abs=1e-5)


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
    monkeypatch.setattr(MethodOfMultipliers, "step", lambda _: None)
    far, near = comparisons(60, 5, 1)
    sol = margin_problem(far, near, 10 / 60).solve(solver="psdboost", tol=1e-7)
    assert sol.status == "optimal"
    assert not isinstance(sol.X, bo.LowRank)
    margin_by_clarabel(far, near, 10 / 60).agrees(sol.value, sol.error)


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
