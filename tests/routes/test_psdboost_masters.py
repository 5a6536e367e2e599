"""Both masters on random problems against Clarabel, the oracle's bound, and degenerate problems."""

import subprocess
import sys
import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import peers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first, turns
from test_psdboost import LINEAR, MASTERS, comparisons, margin_by_clarabel, margin_problem, reward_of

import bregopt as bo
from bregopt.certify import proven_bound
from bregopt.program import Face, LowRank
from bregopt.routes import working_set
from bregopt.routes.matrix_generation import oracle
from bregopt.routes.matrix_generation.master import SemidefiniteMaster
from bregopt.routes.matrix_generation.oracle import Reward, leading

SEEDS = st.integers(0, 2**20)


def symmetric(rng, *shape):
    A = rng.normal(size=shape)
    return A + np.swapaxes(A, -1, -2)


@examples(5)
@given(R=st.integers(1, 15), D=st.integers(1, 5), price=st.floats(1.05, 8), seed=SEEDS)
@pytest.mark.parametrize("options", MASTERS)
def test_random_margins_agree_with_clarabel(options, R, D, price, seed):
    rng = np.random.default_rng(seed)
    far, near = rng.normal(size=(R, D)), rng.normal(size=(R, D))
    sol = margin_problem(far, near, price / R).solve(solver="psdboost", tol=1e-6, **options)
    assert sol.status == "optimal"
    margin_by_clarabel(far, near, price / R).agrees(sol.value, sol.error)


@pytest.mark.parametrize("options", MASTERS)
def test_masters_print_nothing(options, capfd):
    margin_problem(*comparisons(20, 3, 1), 2 / 20).solve(solver="psdboost", tol=1e-4, **options)
    assert capfd.readouterr() == ("", "")


@examples(6)
@given(n=st.integers(2, 6), m=st.integers(3, 8), exact=st.booleans(), seed=SEEDS)
@pytest.mark.parametrize("options", MASTERS)
def test_random_bounded_problems_agree_with_clarabel(options, n, m, exact, seed):
    # Rows of every sense around a feasible matrix, one of them soft, and a variable in a box.
    rng = np.random.default_rng(seed)
    A, C, G = symmetric(rng, m, n, n), symmetric(rng, n, n), rng.normal(size=(n, n))
    F = G @ G.T / np.trace(G @ G.T)
    a = np.einsum("kij,ij->k", A, F)
    X, u = bo.PSD(n), bo.Variable(lower=-0.5, upper=1.0, name="u")
    rows = [bo.trace(X) == 1] if exact else [bo.trace(X) <= 1]
    rows += [bo.between(bo.inner(A[:1], X) + u, a[:1] - 0.2, a[:1] + 0.1), bo.inner(A[1:2], X) == a[1:2]]
    rows += [bo.inner(A[2:], X) <= a[2:] + 0.1, bo.soft(bo.inner(C, X) >= 0.3, gamma=2.0, penalty="hinge")]
    sol = bo.Problem(bo.Minimize(bo.inner(C, X) + 0.3 * u), rows).solve(solver="psdboost", **options)
    K, v = cp.Variable((n, n), PSD=True), cp.Variable()
    forms = cp.hstack([cp.trace(M @ K) for M in A])
    trace = cp.trace(K) == 1 if exact else cp.trace(K) <= 1
    held = [trace, v >= -0.5, v <= 1, forms[0] + v >= a[0] - 0.2, forms[0] + v <= a[0] + 0.1]
    held += [forms[1] == a[1], forms[2:] <= a[2:] + 0.1]
    missed = cp.pos(0.3 - cp.trace(C @ K))
    reference = cp.Problem(cp.Minimize(cp.trace(C @ K) + 0.3 * v + 2 * missed), held)
    assert sol.status == "optimal", sol.stop_reason
    peers.ask(reference).confirms(sol, {K: sol.X, v: sol.u["u"]})


@given(n=st.integers(1, 30), below=st.floats(0, 3), seed=SEEDS)
def test_bound_is_proven_whatever_the_estimate(n, below, seed):
    H = symmetric(np.random.default_rng(seed), n, n)
    largest = float(np.linalg.eigvalsh(H)[-1])
    assert proven_bound(H, largest - below, 1e-9) >= largest


def test_iterated_oracle_agrees_with_the_decomposed_one(rng):
    n, m = 60, 40
    U = rng.normal(size=(m, n))
    X = bo.PSD(n)
    rows = [bo.quad_form(U, X) <= 1, X[0, 1] >= 0, bo.trace(X) == 1]
    program = bo.Problem(bo.Minimize(bo.inner(symmetric(rng, n, n), X)), rows).program()
    y = program.bounds.clip(rng.normal(size=program.m))
    reward = Reward(program, y)
    V = rng.normal(size=(n, 3))
    H = program.A.adjoint(y) - program.blocks[0].C
    np.testing.assert_allclose(reward.dense(), H, atol=1e-12)
    np.testing.assert_allclose(reward.product()(V), H @ V, atol=1e-11)
    assert reward.size >= np.linalg.norm(H)
    face = Face(rng.normal(size=(n, 2)))
    tuning = bo.tuning("psdboost")
    exact = leading(reward, face, 4, 0.0, tuning=tuning)
    found = leading(reward, face, 4, 1e-6, V, tuning=replace(tuning, decomposed_order=10))
    np.testing.assert_allclose(found.values, exact.values, rtol=1e-8)
    np.testing.assert_allclose(np.abs(found.vectors.T @ exact.vectors), np.eye(4), atol=1e-5)
    assert exact.values[0] <= found.bound <= exact.values[0] + 1e-5


@pytest.mark.parametrize("options", MASTERS)
def test_poor_oracle_never_certifies_too_much(monkeypatch, options):
    far, near = comparisons(60, 12, 1)
    peer = margin_by_clarabel(far, near, 3 / 60)
    rng = np.random.default_rng(0)

    def poor(reward, face, count, start, tol):  # noise: estimates far too low, random directions
        V, _ = np.linalg.qr(rng.normal(size=(face.order, count)))
        return np.sort(np.einsum("ik,ik->k", V, reward.dense() @ V))[::-1], V

    monkeypatch.setattr(oracle, "_iterated", poor)
    tuning = replace(bo.tuning("psdboost"), decomposed_order=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        sol = margin_problem(far, near, 3 / 60).solve(
            solver="psdboost", tol=1e-7, max_iter=12, cuts_per_round=2, tuning=tuning, **options
        )
    assert sol.value <= peer.value + peer.error + 1e-6
    assert (np.append(sol.history["dual"], sol.dual_value) >= peer.value - peer.error).all()


@pytest.mark.parametrize(("limit", "options"), turns([1, 10, 40, 150], MASTERS))
def test_time_limit_keeps_a_feasible_point_and_a_bound(options, limit, ticking):
    far, near = comparisons(300, 20, 2)
    problem = margin_problem(far, near, 10 / 300)
    with pytest.warns(bo.ConvergenceWarning, match="time_limit"):
        sol = problem.solve(solver="psdboost", tol=1e-9, time_limit=limit, **options)
    optimum = problem.solve(solver="path", tol=1e-7)
    assert sol.status == "user_limit"
    assert sol.dual_value >= optimum.value - optimum.error
    if limit >= 10:  # the first column exists
        assert sol.primal_residual <= 1e-9
        assert sol.X.trace() == pytest.approx(1)
        assert sol.value <= optimum.value + optimum.error


@pytest.mark.parametrize("options", MASTERS)
def test_one_comparison_is_an_eigenvector(options):
    far, near = np.array([[2.0, 1.0, 0.5]]), np.array([[0.3, 1.0, -0.2]])
    sol = margin_problem(far, near, 2.0).solve(solver="psdboost", tol=1e-8, **options)
    assert sol.value == pytest.approx(np.linalg.eigvalsh(far.T @ far - near.T @ near)[-1], abs=1e-6)
    assert sol.rank == 1


@pytest.mark.parametrize("options", MASTERS)
def test_comparisons_of_nothing_have_no_margin(options):
    sol = margin_problem(np.zeros((4, 3)), np.zeros((4, 3)), 1.0).solve(solver="psdboost", **options)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("options", MASTERS)
def test_repeated_comparisons_are_dearer_ones(options):
    far, near = comparisons(12, 4, 3)
    once = margin_problem(far, near, 0.25).solve(solver="psdboost", tol=1e-8, **options)
    twice = margin_problem(np.tile(far, (2, 1)), np.tile(near, (2, 1)), 0.125)
    assert twice.solve(solver="psdboost", tol=1e-8, **options).value == pytest.approx(once.value, abs=1e-6)


@pytest.mark.parametrize("options", MASTERS)
def test_without_an_interior_it_is_exact_on_the_face(rng, options):
    # e'Xe = 0 and a unit diagonal: min-balanced-cut, where no X is definite.
    n = 12
    W = np.triu(rng.random((n, n)) < 0.4, 1).astype(float)
    L = np.diag((W + W.T).sum(1)) - W - W.T
    X = bo.PSD(n)
    problem = bo.Problem(bo.Minimize(bo.inner(L, X)), [bo.diag(X) == 1, bo.inner(np.ones((n, n)), X) == 0])
    reference = problem.solve(solver="path", tol=1e-8)
    sol = problem.solve(solver="psdboost", tol=1e-6, **options)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(reference.value, rel=1e-5)
    assert np.abs(np.asarray(sol.X).sum(axis=0)).max() <= 1e-6


@pytest.mark.parametrize("options", MASTERS)
def test_rows_that_cannot_be_met_are_proven_so(rng, options):
    # No psd X of trace one has both forms above the mean of the two largest eigenvalues of their sum.
    n = 10
    A = symmetric(rng, 2, n, n)
    level = float(np.linalg.eigvalsh(A[0] + A[1])[-1]) / 2 + 0.05
    X = bo.PSD(n)
    problem = bo.Problem(bo.Minimize(X[0, 0]), [bo.inner(A, X) >= level, bo.trace(X) == 1])
    assert problem.solve(solver="psdboost", **options).status == "infeasible"


@pytest.mark.parametrize("options", MASTERS)
def test_too_cheap_slacks_are_found_and_explained(options):
    far, near = comparisons(30, 5, 4)
    sol = margin_problem(far, near, 0.9 / 30).solve(solver="psdboost", **options)
    assert sol.status == "unbounded"
    assert "along a ray" in sol.stop_reason


def test_rows_leave_the_master_as_their_multipliers_settle(monkeypatch):
    far, near = comparisons(3_000, 6, 5)
    most = []
    restricted = SemidefiniteMaster._restricted

    def counted(self, working):
        most.append(len(working))
        return restricted(self, working)

    monkeypatch.setattr(SemidefiniteMaster, "_restricted", counted)
    sol = margin_problem(far, near, 10 / 3_000).solve(solver="psdboost", master="psd", tol=1e-6)
    assert sol.status == "optimal"
    assert most[-1] <= 300
    reference = margin_problem(far, near, 10 / 3_000).solve(solver="path", tol=1e-7)
    assert sol.value == pytest.approx(reference.value, abs=1e-6 * max(1, abs(reference.value)))


@pytest.mark.parametrize(("R", "D", "many"), first(1, [(100, 6, 70), (200, 12, 150)]))
def test_many_comparisons_are_taken_at_once_unless_a_master_is_asked_for(R, D, many, monkeypatch):
    monkeypatch.setattr(working_set, "_MANY_HINGES", many)
    for order, master, taken in ((D, "auto", True), (D, "psd", False), (2 * D, "auto", False)):
        far, near = comparisons(R, order, 1)
        sol = margin_problem(far, near, 10 / R).solve(solver="psdboost", master=master, tol=1e-5)
        assert sol.status == "optimal"
        margin_by_clarabel(far, near, 10 / R).agrees(sol.value, sol.error)
        assert ("rank" in sol.history) == taken


def test_many_comparisons_start_from_an_earlier_answer(monkeypatch):
    monkeypatch.setattr(working_set, "_MANY_HINGES", 200)
    far, near = comparisons(300, 12, 1)
    problem = margin_problem(far, near, 10 / 300)
    first = problem.solve(solver="psdboost", tol=1e-4)
    again = problem.solve(solver="psdboost", tol=1e-3, warm_start=first)
    assert again.status == "optimal"
    assert again.iterations < first.iterations
    assert abs(again.value - first.value) <= again.error + first.error


def test_answer_has_its_true_rank_and_says_what_that_costs():
    far, near = comparisons(80, 10, 6)
    sol = margin_problem(far, near, 4 / 80).solve(solver="psdboost", tol=1e-6)
    assert isinstance(sol.X, LowRank)
    assert sol.rank == sol.X.rank < 10
    assert sol.X.trace() == pytest.approx(1, abs=1e-9)
    assert sol.gap <= 1e-6
    np.testing.assert_allclose(sol.X.factor.T @ sol.X.factor, np.diag(sol.X.eigenvalues()[::-1]), atol=1e-12)


@pytest.mark.slow
def test_smoothing_needs_a_fifth_of_the_rounds():
    far, near = comparisons(200, 20, 8)
    problem = margin_problem(far, near, 10 / 200)
    plain = problem.solve(solver="psdboost", tol=1e-2, master="lp", cuts_per_round=1, smoothing=0)
    assert 5 * problem.solve(solver="psdboost", tol=1e-2, **LINEAR).iterations <= plain.iterations


@pytest.mark.parametrize(
    ("options", "error"),
    [({"master": "qp"}, ValueError), ({"master": 1}, TypeError), ({"smoothing": "yes"}, TypeError)],
)
def test_bad_masters_are_named(options, error):
    far, near = comparisons(5, 2, 0)
    with pytest.raises(error, match=next(iter(options))):
        margin_problem(far, near, 1.0).solve(solver="psdboost", **options)


def test_reward_helper_is_the_matrix(rng):
    H = symmetric(rng, 5, 5)
    np.testing.assert_allclose(reward_of(H).dense(), H, atol=1e-14)


def test_rows_are_met_where_the_answer_has_a_zero_diagonal(rng):
    # Lovász's number of a bipartite graph is the size of its largest independent set; vertices outside it
    # have X_ii = 0, where being near X_ij = 0 is not enough.
    n = 16
    i, j = np.nonzero(rng.random((n // 2 - 2, n // 2 + 2)) < 0.5)
    j = j + n // 2 - 2
    X = bo.PSD(n)
    problem = bo.Problem(bo.Maximize(bo.inner(np.ones((n, n)), X)), [X[i, j] == 0, bo.trace(X) == 1])
    sol = problem.solve(solver="psdboost", master="psd")
    reference = problem.solve(solver="path")
    assert sol.status == "optimal", sol.stop_reason
    assert sol.value == pytest.approx(reference.value, rel=1e-5)


@pytest.mark.parametrize(("options", "room"), turns(MASTERS, [0.5, 3.0]))
def test_bound_on_the_trace_may_be_given(rng, options, room):
    C = rng.normal(size=(6, 6))
    C, Z, X = C @ C.T + np.eye(6), rng.normal(size=(3, 6)), bo.PSD(6)
    problem = bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.quad_form(Z, X) >= 1])
    free = problem.solve(solver="path", tol=1e-8)
    tau = room * float(np.trace(free.X))
    bounded = bo.Problem(problem.objective, [*problem.constraints, bo.trace(X) <= tau])
    expected = bounded.solve(solver="path", tol=1e-8)
    sol = problem.solve(solver="psdboost", trace_bound=tau, **options)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(expected.value, rel=1e-5)
    assert sol.X.trace() <= tau * (1 + 1e-6)
    assert len(sol.duals) == 1
    assert sol.duals[0].shape == (3,)
    if room > 1:
        assert sol.value == pytest.approx(free.value, rel=1e-5)
    again = problem.solve(solver="psdboost", trace_bound=tau, warm_start=True, **options)
    assert again.value == pytest.approx(expected.value, rel=1e-5)


def test_problem_without_a_bound_on_the_trace_is_refused_with_advice():
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] >= 1])
    with pytest.raises(bo.UnsupportedProblemError, match="option trace_bound"):
        problem.solve(solver="psdboost")
    for wrong in (-1.0, 0, np.inf):
        with pytest.raises(ValueError, match="trace_bound"):
            problem.solve(solver="psdboost", trace_bound=wrong)
    assert problem.solve(trace_bound=2.0).solver == "psdboost"


def test_the_linear_master_runs_beside_another_user_of_highs():
    """HiGHS has one number of threads in a process, that of whoever starts them first."""
    code = (
        "import highspy, numpy as np, bregopt as bo\n"
        "other = highspy.Highs()\n"
        "other.setOptionValue('output_flag', False)\n"
        "other.setOptionValue('threads', 2)\n"
        "other.addVar(0.5, 9.0)\n"
        "other.changeColIntegrality(0, highspy.HighsVarType.kInteger)\n"
        "other.run()\n"
        "X = bo.PSD(3)\n"
        "goal = bo.Maximize(bo.inner(np.diag([1.0, 2.0, 3.0]), X))\n"
        "found = bo.Problem(goal, [bo.trace(X) <= 1]).solve(solver='psdboost', master='lp')\n"
        "print(found.status, round(found.value, 5))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["optimal", "3.0"]
