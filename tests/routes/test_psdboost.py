"""Matrix generation against Clarabel, its bound, and every status of a master."""

import dataclasses
import signal
import warnings

import cvxpy as cp
import numpy as np
import peers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, turns

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify
from bregopt.program import Face
from bregopt.routes.matrix_generation import PSDBoost, PSDBoostSettings, generation
from bregopt.routes.matrix_generation.oracle import Reward, leading
from bregopt.routes.progress import Progress


def reward_of(H):
    """Return a reward equal to the given matrix."""
    X = bo.PSD(len(H))
    return Reward(bo.Problem(bo.Maximize(bo.inner(H, X)), [bo.trace(X) == 1]).program(), np.zeros(1))


PUBLISHED = {"master": "lp", "cuts_per_round": 1, "smoothing": 0.0}
LINEAR, SEMIDEFINITE = {"master": "lp"}, {"master": "psd"}
MASTERS = [LINEAR, SEMIDEFINITE]


def comparisons(R, D, seed):
    """Return the differences ``(far, near)`` of random triplets of two Gaussian classes."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(3 * R, D)) * np.linspace(0.3, 2, D)
    label = rng.integers(0, 2, 3 * R)
    points[:, 0] += 2 * label
    near, far = np.empty((R, D)), np.empty((R, D))
    for r in range(R):
        i = rng.integers(3 * R)
        same, other = np.flatnonzero(label == label[i]), np.flatnonzero(label != label[i])
        near[r] = points[i] - points[rng.choice(same[same != i])]
        far[r] = points[i] - points[rng.choice(other)]
    return far, near


def margin_problem(far, near, C):
    X, rho, xi = bo.PSD(far.shape[1]), bo.Variable(name="rho"), bo.Variable(len(far), nonneg=True, name="xi")
    margins = bo.quad_form(far, X) - bo.quad_form(near, X)
    return bo.Problem(bo.Maximize(rho - C * bo.sum(xi)), [margins >= rho - xi, bo.trace(X) == 1])


def margin_by_clarabel(far, near, C):
    D, R = far.shape[1], len(far)
    X, rho, xi = cp.Variable((D, D), PSD=True), cp.Variable(), cp.Variable(R, nonneg=True)
    margins = cp.sum(cp.multiply(far @ X, far), axis=1) - cp.sum(cp.multiply(near @ X, near), axis=1)
    problem = cp.Problem(cp.Maximize(rho - C * cp.sum(xi)), [margins >= rho - xi, cp.trace(X) == 1])
    return peers.ask(problem)


@pytest.mark.parametrize(
    ("data", "options"),
    turns(
        [(20, 3, 5.0, 0), (60, 6, 3.0, 1), (40, 5, 1.0, 2)],
        [{}, LINEAR, SEMIDEFINITE, PUBLISHED, {"cuts_per_round": 3, "smoothing": 0.5}],
    ),
)
def test_margins_agree_with_clarabel(data, options):
    R, D, price, seed = data
    far, near = comparisons(R, D, seed)
    sol = margin_problem(far, near, price / R).solve(solver="psdboost", tol=1e-7, **options)
    assert sol.status == "optimal"
    peer = margin_by_clarabel(far, near, price / R)
    peer.agrees(sol.value, sol.error)
    assert sol.dual_value >= peer.value - peer.error  # an upper bound: this is a maximum
    assert np.trace(sol.X) == pytest.approx(1, abs=1e-7)


def test_bound_is_the_largest_eigenvalue_of_the_weighted_comparisons():
    far, near = comparisons(50, 5, 3)
    sol = margin_problem(far, near, 2 / 50).solve(solver="psdboost", tol=1e-8)
    w = np.abs(sol.duals[0])
    assert w.sum() == pytest.approx(1, abs=1e-7)
    assert w.max() <= 2 / 50 + 1e-9
    weighted = (far.T * w) @ far - (near.T * w) @ near
    assert sol.dual_value == pytest.approx(np.linalg.eigvalsh(weighted)[-1], abs=1e-7)


def test_best_bound_never_gets_worse_and_is_valid_all_along():
    far, near = comparisons(80, 6, 4)
    sol = margin_problem(far, near, 4 / 80).solve(solver="psdboost", tol=1e-8)
    bound = sol.history["dual"]
    assert len(bound) > 3
    assert (np.diff(bound) <= 1e-12).all()
    assert (bound >= sol.value - 1e-9).all()
    assert (np.diff(sol.history["primal"]) >= -1e-7).all()  # the master only gets more directions


def test_max_cut_from_an_infeasible_first_master(rng):
    # No combination of the first directions has a unit diagonal: Farkas pricing has to find others.
    n = 8
    W = np.triu(rng.random((n, n)) < 0.5, 1) * rng.integers(1, 4, (n, n)).astype(float)
    W = W + W.T
    L = (np.diag(W.sum(1)) - W) / 4
    X = bo.PSD(n)
    sol = bo.Problem(bo.Maximize(bo.inner(L, X)), [bo.diag(X) == 1]).solve(solver="psdboost", tol=1e-6)
    K = cp.Variable((n, n), PSD=True)
    reference = cp.Problem(cp.Maximize(cp.trace(L @ K)), [cp.diag(K) == 1])
    assert sol.status == "optimal"
    peers.ask(reference).confirms(sol, {K: sol.X})


def test_trace_may_stay_below_its_bound():
    # All reward is negative: the best X is zero, which a bound on the trace allows.
    X = bo.PSD(3)
    sol = bo.Problem(bo.Minimize(bo.trace(X)), [bo.trace(X) <= 5]).solve(solver="psdboost")
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(0, abs=1e-7)
    assert np.abs(sol.X).max() <= 1e-7


def test_hinge_rows_are_slacks_in_the_master(rng):
    n = 5
    A = rng.normal(size=(6, n, n))
    A = A + A.transpose(0, 2, 1)
    C = A[0] @ A[1] + A[1] @ A[0]
    b, gamma = rng.normal(size=6), rng.uniform(0.2, 2, 6)
    X = bo.PSD(n)
    sol = bo.Problem(
        bo.Minimize(bo.inner(C, X)),
        [bo.trace(X) == 2, bo.soft(bo.inner(A, X) <= b, gamma=gamma, penalty="hinge")],
    ).solve(solver="psdboost", tol=1e-7)
    K = cp.Variable((n, n), PSD=True)
    bends = cp.pos(cp.hstack([cp.trace(a @ K) for a in A]) - b)
    reference = cp.Problem(cp.Minimize(cp.trace(C @ K) + gamma @ bends), [cp.trace(K) == 2])
    assert sol.status == "optimal"
    peers.ask(reference).confirms(sol, {K: sol.X})


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scaled_comparisons_give_the_scaled_margin(scale):
    far, near = comparisons(40, 4, 5)
    plain = margin_problem(far, near, 3 / 40).solve(solver="psdboost", tol=1e-7)
    root = np.sqrt(scale)
    scaled = margin_problem(root * far, root * near, 3 / 40).solve(solver="psdboost", tol=1e-7)
    assert scaled.status == "optimal"
    assert scaled.value == pytest.approx(scale * plain.value, rel=1e-5)
    np.testing.assert_allclose(scaled.X, plain.X, atol=1e-3)


@examples(4)
@given(angle=st.floats(0, np.pi), seed=st.integers(0, 20))
def test_rotated_comparisons_give_the_rotated_metric(angle, seed):
    far, near = comparisons(15, 2, seed)
    Q = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    plain = margin_problem(far, near, 0.2).solve(solver="psdboost", tol=1e-8)
    turned = margin_problem(far @ Q.T, near @ Q.T, 0.2).solve(solver="psdboost", tol=1e-8)
    assert turned.value == pytest.approx(plain.value, abs=2e-8 * max(1, abs(plain.value)))


def test_repeated_comparisons_change_nothing_at_the_same_total_price():
    far, near = comparisons(20, 3, 6)
    once = margin_problem(far, near, 2 / 20).solve(solver="psdboost", tol=1e-8)
    thrice = margin_problem(np.tile(far, (3, 1)), np.tile(near, (3, 1)), 2 / 60)
    again = thrice.solve(solver="psdboost", tol=1e-8)
    assert again.value == pytest.approx(once.value, abs=1e-7 * max(1, abs(once.value)))


def test_one_dimension_is_a_linear_program():
    # X = [1]; margins are far^2 - near^2, and with a price of one a slack rho is the least of them.
    far, near = np.array([[2.0], [3.0], [1.5]]), np.array([[1.0], [0.5], [1.0]])
    sol = margin_problem(far, near, 1.0).solve(solver="psdboost")
    assert sol.value == pytest.approx(1.25, abs=1e-6)


def test_infeasible_rows_are_proven_so():
    X = bo.PSD(3)
    problem = bo.Problem(bo.Minimize(X[0, 1]), [bo.trace(X) == 1, bo.diag(X) >= 0.5])
    sol = problem.solve(solver="psdboost")
    assert sol.status == "infeasible"
    assert sol.X is None


def test_unbounded_margin_is_proven_so():
    far, near = comparisons(10, 3, 7)
    sol = margin_problem(far, near, 0.05).solve(solver="psdboost")  # C R < 1
    assert sol.status == "unbounded"
    assert sol.value == np.inf


def test_without_a_trace_bound_the_route_is_refused_with_the_reason():
    X = bo.PSD(3)
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] >= 1])
    with pytest.raises(bo.UnsupportedProblemError, match="trace"):
        problem.solve(solver="psdboost")


def test_round_limit_keeps_a_feasible_point_and_a_bound():
    far, near = comparisons(60, 6, 1)
    peer = margin_by_clarabel(far, near, 3 / 60)
    with pytest.warns(bo.ConvergenceWarning):
        sol = margin_problem(far, near, 3 / 60).solve(solver="psdboost", max_iter=2, tol=1e-8)
    assert sol.status == "user_limit"
    assert sol.iterations == 2
    assert sol.primal_residual <= 1e-8
    assert sol.value <= peer.value + peer.error + 1e-7
    assert sol.dual_value >= peer.value - peer.error


def test_time_limit_stops():
    far, near = comparisons(60, 6, 1)
    with pytest.warns(bo.ConvergenceWarning, match="time_limit"):
        sol = margin_problem(far, near, 3 / 60).solve(solver="psdboost", time_limit=1e-9, tol=1e-8)
    assert sol.status == "user_limit"


@pytest.mark.parametrize("options", MASTERS)
def test_interrupt_returns_the_best_iterate(monkeypatch, options):
    far, near = comparisons(60, 6, 1)
    peer = margin_by_clarabel(far, near, 3 / 60)
    name = "LinearMaster" if options is LINEAR else "SemidefiniteMaster"
    master = getattr(generation, name)
    solve, calls = master.solve, []

    def interrupted(self, gap):
        calls.append(gap)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return solve(self, gap)

    monkeypatch.setattr(master, "solve", interrupted)
    with pytest.warns(bo.ConvergenceWarning, match="Interrupted"):
        sol = margin_problem(far, near, 3 / 60).solve(solver="psdboost", tol=1e-8, **options)
    assert sol.status == "user_limit"
    assert sol.primal_residual <= 1e-8
    assert sol.value <= peer.value + peer.error + 1e-7
    assert sol.dual_value >= peer.value - peer.error


@pytest.mark.parametrize("options", MASTERS)
def test_warm_start_needs_fewer_rounds(options):
    far, near = comparisons(120, 8, 8)
    price, R = bo.Parameter(value=3 / 120), 120
    X, rho, xi = bo.PSD(8), bo.Variable(), bo.Variable(R, nonneg=True)
    margins = bo.quad_form(far, X) - bo.quad_form(near, X)
    shift = bo.Parameter(value=0.0)
    problem = bo.Problem(
        bo.Maximize(rho - price.value * bo.sum(xi)), [margins >= rho - xi + shift, bo.trace(X) == 1]
    )
    cold = problem.solve(solver="psdboost", tol=1e-7, **options)
    shift.value = 0.01
    warm = problem.solve(solver="psdboost", tol=1e-7, **options, warm_start=True)
    assert warm.value == pytest.approx(cold.value - 0.01, abs=1e-6)
    assert warm.iterations <= (cold.iterations / 2 if options is LINEAR else cold.iterations)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"cuts_per_round": 0}, ValueError),
        ({"cuts_per_round": 1.5}, TypeError),
        ({"cuts_per_round": True}, TypeError),
        ({"smoothing": 1.0}, ValueError),
        ({"smoothing": -0.1}, ValueError),
        ({"smoothing": "much"}, TypeError),
        ({"cut_per_round": 3}, TypeError),
    ],
)
def test_bad_options_are_named(options, error):
    far, near = comparisons(5, 2, 0)
    with pytest.raises(error, match=next(iter(options))):
        margin_problem(far, near, 1.0).solve(solver="psdboost", **options)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_oracle_returns_leading_eigenpairs(n, rng):
    H = rng.normal(size=(n, n))
    H = H + H.T
    found = leading(reward_of(H), Face.whole(n), 3, 0.0, tuning=bo.tuning("psdboost"))
    assert (np.diff(found.values) <= 0).all()
    np.testing.assert_allclose(found.values, np.linalg.eigvalsh(H)[::-1][:3])
    np.testing.assert_allclose(H @ found.vectors, found.vectors * found.values, atol=1e-12)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(min(n, 3)), atol=1e-12)
    assert found.values[0] <= found.bound <= found.values[0] + 1e-12 * max(1, abs(found.values[0])) * n


def test_any_multipliers_give_a_valid_bound(rng):
    far, near = comparisons(30, 4, 9)
    problem = margin_problem(far, near, 2 / 30)
    best = problem.solve(solver="psdboost", tol=1e-8).value
    program = problem.program()
    for _ in range(20):
        w = rng.dirichlet(np.ones(30)) * 1.0
        y = np.append(np.minimum(w, 2 / 30), 0.0)
        y[:30] /= y[:30].sum()
        if y.max() > 2 / 30:
            continue
        bound = -certify(PrimalDualPoint(program, (np.eye(4) / 4,), np.zeros(program.k), y)).dual
        assert bound >= best - 1e-8


def test_the_route_never_modifies_the_program():
    far, near = comparisons(20, 3, 10)
    before = far.copy(), near.copy()
    program = margin_problem(far, near, 0.5).program()
    fields = [np.copy(getattr(program.bounds, f.name)) for f in dataclasses.fields(program.bounds)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PSDBoost().solve(program, PSDBoostSettings(), None, Progress("test"))
    for f, kept in zip(dataclasses.fields(program.bounds), fields, strict=True):
        np.testing.assert_array_equal(getattr(program.bounds, f.name), kept)
    np.testing.assert_array_equal(far, before[0])
    np.testing.assert_array_equal(near, before[1])
