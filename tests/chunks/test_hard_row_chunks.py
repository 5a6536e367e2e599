"""Hard rows in chunks, alone and beside soft ones: the answers of `Problem`, and proofs of infeasibility."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from samples import turns

import bregopt as bo

DIVERGENCES = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}


def planted(m=240, r=4, slack=0.3, seed=0):
    """Vectors, bounds and senses of rows that one matrix meets."""
    rng = np.random.default_rng(seed)
    Z, B = rng.normal(size=(m, r)), np.eye(r) + rng.normal(size=(r, r)) / (2 * np.sqrt(r))
    a = np.sum((Z @ B) ** 2, axis=1)
    lower = rng.random(m) < 0.5
    bound = np.where(lower, a * rng.uniform(1 - slack, 1, m), a * rng.uniform(1, 1 + slack, m))
    return Z, bound, np.where(lower, 1, -1)


def by_problem(Z, bound, sense, gamma, X0, name, tol=1e-7):
    """The same problem, by `Problem`."""
    X = bo.PSD(len(X0), name="X")
    a, gamma = bo.quad_form(Z, X), np.broadcast_to(gamma, len(Z))
    rows = []
    for hard in (True, False):
        for sign in (-1, 1):
            k = (sense == sign) & (np.isinf(gamma) == hard)
            if k.any():
                row = a[k] <= bound[k] if sign < 0 else a[k] >= bound[k]
                rows.append(row if hard else bo.soft(row, gamma[k]))
    return bo.Problem(bo.Minimize(DIVERGENCES[name](X, X0)), rows).solve(tol=tol)


def agree(sol, other):
    """Whether both are optimal, and their values agree up to what both prove."""
    assert sol.status == other.status == "optimal"
    assert abs(sol.value - other.value) <= sol.error + other.error + 1e-9 * abs(sol.value)
    return np.allclose(sol.X, other.X, atol=2e-3 * np.abs(other.X).max())


def violation(X, Z, bound, sense):
    a = np.einsum("ki,ij,kj->k", Z, X, Z)
    return np.max(sense * (bound - a) / bound)


@pytest.mark.parametrize(("name", "soft", "size"), turns(DIVERGENCES, [None, 0.01, 1.0], [1.0, 1e4]))
def test_the_answer_is_that_of_problem(name, soft, size):
    Z, bound, sense = planted()
    gamma = np.full(len(Z), np.inf)
    if soft is not None:
        gamma[np.random.default_rng(1).random(len(Z)) < 0.7] = soft
    X0 = size * np.diag(np.linspace(0.5, 2, 4))
    sol = bo.RowChunks(Z / np.sqrt(size), bound, sense, gamma, chunk=50).solve(X0, name, tol=1e-7)
    assert agree(sol, by_problem(Z / np.sqrt(size), bound, sense, gamma, X0, name))
    hard = np.isinf(gamma)
    found = violation(sol.X, Z[hard] / np.sqrt(size), bound[hard], sense[hard])
    assert found <= sol.primal_residual + 1e-12 <= 1e-7


@pytest.mark.parametrize("name", DIVERGENCES)
def test_pairs_of_a_low_rank_kernel(name):
    rng = np.random.default_rng(0)
    F = rng.normal(size=(40, 4))
    i, j = np.triu_indices(40, 1)
    near = rng.random(len(i)) < 0.1
    d = np.sum((F[i] - F[j]) ** 2, axis=1)
    bound, pairs = np.where(near, 0.9, 0.8) * d, np.stack([i, j], axis=1)
    sol = bo.RowChunks(pairs, bound, np.where(near, -1, 1), np.inf, chunk=50).solve(bo.LowRank(F), name)
    K = bo.PSD(40, name="K")
    rows = [
        bo.sq_distance(K, i[near], j[near]) <= bound[near],
        bo.sq_distance(K, i[~near], j[~near]) >= bound[~near],
    ]
    other = bo.Problem(bo.Minimize(DIVERGENCES[name](K, bo.LowRank(F))), rows).solve(tol=1e-8)
    assert isinstance(sol.X, bo.LowRank)
    assert sol.status == other.status == "optimal"
    assert abs(sol.value - other.value) <= sol.error + other.error
    assert np.allclose(sol.X.dense(), other.X.dense(), atol=1e-3 * np.abs(F).max() ** 2)


def test_closed_form_of_one_row():
    # D(x, 1) = x - log x - 1 increases from 1 on.
    sol = bo.RowChunks([[1.0]], 2.0, ">=", np.inf).solve([[1.0]])
    assert sol.X[0, 0] == pytest.approx(2, rel=1e-6)
    assert sol.value == pytest.approx(1 - np.log(2), rel=1e-6)
    assert sol.dual_value == pytest.approx(1 - np.log(2), rel=1e-6)


def test_rows_that_are_met_take_one_pass():
    sol = bo.RowChunks(np.eye(3), 2.0, "<=", np.inf).solve(np.eye(3))
    assert (sol.status, sol.value, sol.iterations) == ("optimal", 0, 1)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_chunks_and_executors_give_the_same_answer(name):
    Z, bound, sense = planted()
    gamma = np.where(np.arange(len(Z)) % 2, np.inf, 0.1)
    serial = bo.RowChunks(Z, bound, sense, gamma, chunk=50).solve(np.eye(4), name)
    with ThreadPoolExecutor(3) as threads:
        other = bo.RowChunks(Z, bound, sense, gamma, chunk=50).solve(np.eye(4), name, executor=threads)
    assert (other.X == serial.X).all()
    for size in (7, 10_000):
        other = bo.RowChunks(Z[:200], bound[:200], sense[:200], gamma[:200], chunk=size)
        whole = bo.RowChunks(Z[:200], bound[:200], sense[:200], gamma[:200], chunk=50)
        a, b = other.solve(np.eye(4), name), whole.solve(np.eye(4), name)
        assert abs(a.value - b.value) <= a.error + b.error + 1e-9


@pytest.mark.parametrize("name", DIVERGENCES)
def test_equations_are_two_rows(name):
    Z, bound, _ = planted(4)
    twice = np.repeat(Z, 2, axis=0), np.repeat(bound, 2), np.tile([-1, 1], 4)
    sol = bo.RowChunks(*twice, np.inf).solve(np.eye(4), name, tol=1e-7)
    X = bo.PSD(4)
    problem = bo.Problem(bo.Minimize(DIVERGENCES[name](X, np.eye(4))), [bo.quad_form(Z, X) == bound])
    assert agree(sol, problem.solve(tol=1e-8))


def test_repeated_rows_change_nothing():
    Z, bound, sense = planted(60)
    many = [np.repeat(array, 40, axis=0) for array in (Z, bound, sense)]
    sol, once = (bo.RowChunks(*a, np.inf, chunk=170).solve(np.eye(4)) for a in (many, (Z, bound, sense)))
    assert agree(sol, once)


@pytest.mark.parametrize(("name", "gamma"), turns(DIVERGENCES, [np.inf, "some"]))
def test_contradictions_are_proven(name, gamma):
    Z, bound, sense = planted()
    rng = np.random.default_rng(1)
    bound = bound * rng.uniform(0.2, 5, len(bound))
    if gamma == "some":
        gamma = np.where(rng.random(len(bound)) < 0.5, np.inf, 1.0)
    sol = bo.RowChunks(Z, bound, sense, gamma, chunk=50).solve(np.eye(4), name)
    assert sol.status == "infeasible"
    assert sol.value == sol.dual_value == np.inf
    assert sol.X is None
    assert "contradict" in sol.stop_reason
    assert "infeasible" in repr(sol)


def test_the_rows_of_a_contradiction_are_named():
    Z = np.vstack([np.eye(2)[[0] * 50], np.eye(2)[[1, 1]]])
    sense = np.array([1] * 51 + [-1])
    bound = np.array([1.0] * 50 + [3.0, 2.9])
    sol = bo.RowChunks(Z, bound, sense, np.inf, chunk=7).solve(np.eye(2))
    assert sol.status == "infeasible"
    assert "2 hard rows contradict each other: 50, 51" in sol.stop_reason.replace("51, 50", "50, 51")


@pytest.mark.parametrize("shape", [(10, 20), (6, 6), (40, 4)])
def test_pairs_that_contradict_each_other(shape):
    X0 = bo.LowRank(np.random.default_rng(0).normal(size=shape))
    twice = bo.RowChunks([[0, 1], [1, 0]], [0.7, 0.71], [-1, 1], np.inf)
    triangle = bo.RowChunks([[0, 1], [1, 2], [0, 2]], [1.0, 1.0, 5.0], [-1, -1, 1], np.inf)
    for rows in (twice, triangle):
        sol = rows.solve(X0)
        assert sol.status == "infeasible"
        assert "hard rows contradict each other" in sol.stop_reason
    X = bo.PSD(shape[0])
    square = bo.between(X[0, 0] + X[1, 1] - 2 * X[0, 1], 0.7, 0.71)
    assert bo.Problem(bo.Minimize(bo.logdet_div(X, X0)), [square]).solve().status == "optimal"


def test_points_that_are_equal_cannot_be_moved_apart():
    points, pairs = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), np.array([[0, 2], [0, 1], [1, 1]])
    with pytest.raises(
        bo.InfeasibleRowError, match="row 1 is hard and asks for at least 2, but its vector is zero"
    ):
        bo.RowChunks(pairs, 2.0, ">=", np.inf, points=points).solve(np.eye(2))
    sol = bo.RowChunks(pairs, 1.0, "<=", np.inf, points=points).solve(np.eye(2))
    assert sol.status == "optimal"


def test_a_limit_on_passes_is_said():
    Z, bound, sense = planted()
    with pytest.warns(bo.ConvergenceWarning, match=r"primal residual .* max_passes \(2\) was reached"):
        sol = bo.RowChunks(Z, bound, sense, np.inf).solve(np.eye(4), max_passes=2)
    assert sol.status == "user_limit"
    assert sol.primal_residual == pytest.approx(violation(sol.X, Z, bound, sense), rel=1e-6)


@pytest.mark.parametrize("some", [False, True])
def test_an_interrupted_solve_goes_on(tmp_path, some):
    Z, bound, sense = planted()
    gamma = np.where((np.arange(len(Z)) % 2 == 0) & some, 0.1, np.inf)
    rows, path = bo.RowChunks(Z, bound, sense, gamma, chunk=50), tmp_path / "state.npz"
    whole = rows.solve(np.eye(4), tol=1e-7)
    with pytest.warns(bo.ConvergenceWarning):
        rows.solve(np.eye(4), tol=1e-7, max_passes=whole.iterations - 1, resume=path)
    resumed = rows.solve(np.eye(4), tol=1e-7, resume=path)
    assert agree(resumed, whole)
    assert resumed.iterations <= whole.iterations + 2


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"gamma": [np.inf] * 4 + [np.nan]},
            ValueError,
            "gamma of row 4 is nan; expected a number above 0, or np.inf",
        ),
        ({"bound": [1.0, 1.0, 1.0, 0.0, 1.0]}, ValueError, "bound of row 3 is 0"),
        ({"sense": [1, 1, -1, 1, 2]}, ValueError, "sense of row 4 is 2"),
        ({"rows": np.vstack([np.eye(3), [[0, 0, np.nan], [1, 0, 0]]])}, ValueError, "value of row 3 is nan"),
    ],
)
def test_bad_rows_are_refused(change, error, message):
    rows = {"rows": np.ones((5, 3)), "bound": 1.0, "sense": 1, "gamma": np.inf} | change
    rows["sense"] = np.broadcast_to(rows["sense"], 5).copy()
    with pytest.raises(error, match=message):
        bo.RowChunks(**rows, chunk=2).solve(np.eye(3))


def test_hard_rows_have_no_sample():
    with pytest.raises(ValueError, match="sample is 1, and row 1 is hard; expected None"):
        bo.RowChunks(np.eye(2), 1.0, "<=", [1.0, np.inf]).solve(np.eye(2), sample=1)
