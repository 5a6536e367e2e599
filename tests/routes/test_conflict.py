"""Conflicts are irreducible: against all subsets, solved by a peer, and against known sets."""

import itertools
import pickle

import cvxpy as cp
import numpy as np
import peers
import pytest
from samples import first, turns

import bregopt as bo
from bregopt.certify import is_farkas


def found(conflict):
    return {(row.constraint, row.index) for row in conflict}


def violation(matrices, bounds, subset, n):
    """Return the least violation of some rows by a psd matrix, by a peer."""
    X, s = cp.Variable((n, n), PSD=True), cp.Variable(nonneg=True)
    rows = [cp.trace(matrices[k] @ X) <= bounds[k] + s for k in subset]
    return peers.ask(cp.Problem(cp.Minimize(s), rows)).value


def minimal_infeasible_sets(matrices, bounds, n):
    """Return all of them; None if a violation is too small to tell."""
    minimal = []
    for size in range(1, len(bounds) + 1):
        for subset in map(set, itertools.combinations(range(len(bounds)), size)):
            if any(smaller <= subset for smaller in minimal):
                continue
            least = violation(matrices, bounds, subset, n)
            if 1e-7 < least < 1e-3:
                return None
            if least > 1e-3:
                minimal.append(subset)
    return minimal


@pytest.mark.parametrize("seed", first(3, range(2, 9)))
def test_a_conflict_is_one_of_all_minimal_infeasible_sets(seed):
    rng, n, m = np.random.default_rng(seed), 2, 5
    a, b, c = rng.integers(1, 4, size=(3, m)) * np.array([[1.0], [0.5], [-1.0]])  # indefinite
    turns = rng.permuted(np.array([a, c]), axis=0)
    b *= rng.choice([-1, 1], m)
    matrices = [np.array([[p, q], [q, r]]) for p, q, r in zip(turns[0], b, turns[1], strict=True)]
    matrices.append(np.eye(n))
    bounds = np.append(-rng.integers(1, 4, size=m).astype(float), 5.0)
    minimal = minimal_infeasible_sets(matrices, bounds, n)
    if minimal is None or not minimal:
        pytest.skip("no clear contradiction in this draw")
    X = bo.PSD(n, name="X")
    rows = bo.inner(np.array(matrices), X) <= bounds
    sol = bo.Problem(bo.Minimize(bo.trace(X)), [rows]).solve()
    assert sol.status == "infeasible"
    conflict = sol.conflict()
    assert conflict.irreducible
    assert {row.index[0] for row in conflict} in minimal
    assert all(row.multiplier > 0 and row.sense == "<=" for row in conflict)
    assert max(row.multiplier for row in conflict) == 1


def random_rows(rng):
    """Return rows of two matrices and variables, and cones, that may contradict each other."""
    X, Y, t = bo.PSD(3, name="X"), bo.PSD(2, name="Y"), bo.Variable(name="t")
    u = bo.Variable(2, name="u", nonneg=bool(rng.integers(2)))

    def row():
        G, b = rng.integers(-2, 3, size=(3, 3)).astype(float), float(rng.integers(-3, 4))
        e = bo.inner(G + G.T, X)
        return (
            lambda: e <= b,
            lambda: e + bo.inner(np.diag(rng.integers(-2, 3, 2).astype(float)), Y) >= b,
            lambda: bo.diag(X) <= abs(b) * rng.random(3),
            lambda: e + u[0] - 2 * u[1] == b,
            lambda: bo.norm2(bo.diag(X) - b) <= t,
            lambda: t <= b - 2,
        )[rng.integers(6)]()

    return bo.trace(X) + bo.trace(Y), [row() for _ in range(rng.integers(4, 9))]


def one_side(rows, row):
    """Return the inequality that a row of a conflict is."""
    given = rows[row.constraint]
    if row.sense is None:
        return given
    k = 0 if row.index is None else int(np.ravel_multi_index(row.index, given.shape))
    body = given.body.taken(np.array([k]), (), given.label)
    return body <= row.bound if row.sense == "<=" else body >= row.bound


@pytest.mark.parametrize("seed", first(4, [2, 4, 5, 6, 7, 8, 9, 10, 12, 13]))
def test_random_conflicts_are_infeasible_and_irreducible(seed):
    objective, rows = random_rows(np.random.default_rng(seed))
    sol = bo.Problem(bo.Minimize(objective), rows).solve()
    assert sol.status == "infeasible"
    conflict = sol.conflict()
    assert conflict.irreducible
    kept = [one_side(rows, row) for row in conflict]
    fewer = [[row for j, row in enumerate(kept) if j != k] for k in range(len(kept))]
    statuses = [bo.Problem(bo.Minimize(objective), some).solve().status for some in (kept, *fewer)]
    assert statuses == ["infeasible", *["optimal"] * len(kept)]


def cycle(n):
    """A cycle of comparisons of distances: each is smaller than the next by one; and rows beside it."""
    X, t = bo.PSD(n + 1, name="X"), bo.Variable(2, name="t")
    k = np.arange(n)
    after = bo.sq_distance(X, k, k + 1) + 1 <= bo.sq_distance(X, np.roll(k, 1), np.roll(k, 1) + 1)
    return X, t, after


@pytest.mark.parametrize("solver", ["auto", "path", "cvxpy"])
def test_a_known_conflict_among_rows_beside_it(solver):
    X, t, after = cycle(5)
    rows = [bo.trace(X) <= 90, X[0, 2] >= 1, after.named("order"), bo.sum(t) == 3, t >= X[0, 0]]
    sol = bo.Problem(bo.Minimize(bo.trace(X) + 9 * bo.sum(t)), rows).solve()
    conflict = sol.conflict(solver=solver)
    assert found(conflict) == {(2, (k,)) for k in range(5)}
    np.testing.assert_allclose([row.multiplier for row in conflict], 1, atol=1e-3)
    assert [row.title for row in conflict][:2] == ["order[0]", "order[1]"]
    assert str(conflict).count("\n") == 7


def test_equalities_and_two_bounds_show_the_side_that_contradicts():
    X = bo.PSD(3, name="X")
    rows = [bo.between(bo.diag(X), 0.5, 2).named("range"), X[0, 0] + X[1, 1] == 5, X[1, 2] == 0.1]
    sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(3))), rows).solve()
    conflict = sol.conflict()
    assert [(row.title, row.side, row.sense, row.bound) for row in conflict] == [
        ("range[0]", "<= 2", "<=", 2),
        ("range[1]", "<= 2", "<=", 2),
        ("constraint 1", "", ">=", 5),
    ]
    assert "range[0]" in sol.stop_reason
    assert "sol.conflict()" in sol.stop_reason


def test_cones_and_bounds_on_eigenvalues_are_kept_or_left_out_as_a_whole():
    X, x, t = bo.PSD(2, name="X"), bo.Variable(2, name="x"), bo.Variable(name="t")
    ball, other = (bo.norm2(x) <= t).named("ball"), bo.norm2(x - X[0, 1]) <= 50 * t
    sol = bo.Problem(bo.Minimize(bo.trace(X) + t), [other, ball, t <= 4, bo.sum(x) >= 6]).solve()
    conflict = sol.conflict()
    assert found(conflict) == {(1, None), (2, None), (3, None)}
    # ||x|| <= t <= 4 and e'x >= 6: the multipliers of t and of ||x|| are equal, that of e'x is 1 / sqrt(2).
    np.testing.assert_allclose([row.multiplier for row in conflict], [1, 1, 0.5**0.5], atol=1e-3)
    X = bo.PSD(3, name="X")
    rows = [X[0, 1] >= 0.6, bo.lambda_max(X) <= 1, X[0, 2] <= 1, X[1, 2] >= 0.9]
    sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(3))), rows).solve()
    conflict = sol.conflict()
    # X_12 <= 1/2 for 0 <= X <= I: the multiplier of the bound is half of the entry's. So with X_01.
    assert [row.constraint for row in conflict] in ([1, 3], [0, 1])
    np.testing.assert_allclose(sorted(row.multiplier for row in conflict), [0.5, 1], atol=1e-6)


def test_a_conflict_on_the_range_of_a_low_rank_start(rng):
    G = rng.normal(size=(12, 3))
    X = bo.PSD(12, name="X")
    near = bo.sq_distance(X, np.arange(4), np.arange(1, 5)) <= 0.01  # four points determine the others
    rows = [near, bo.sq_distance(X, 0, 9) >= 30, bo.trace(X) >= 1, bo.trace(X) <= 90]
    sol = bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(G))), rows).solve()
    conflict = sol.conflict()
    assert conflict.irreducible
    kept = [rows[row.constraint] for row in conflict if row.constraint]
    kept += [bo.sq_distance(X, row.index[0], row.index[0] + 1) <= 0.01 for row in conflict if row.index]
    again = bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(G))), kept)
    assert again.solve().status == "infeasible"
    for k in range(len(kept)):
        fewer = [row for j, row in enumerate(kept) if j != k]
        assert bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(G))), fewer).solve().X is not None


def test_soft_rows_are_in_no_conflict():
    X = bo.PSD(2)
    rows = [bo.soft(X[0, 0] <= 1, 1.0), X[0, 0] >= 3, bo.trace(X) <= 2]
    sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(2))), rows).solve()
    assert found(sol.conflict()) == {(1, None), (2, None)}


def test_a_conflict_that_is_cut_short_says_so(ticking):
    X, t, after = cycle(6)
    sol = bo.Problem(bo.Minimize(bo.trace(X)), [after, bo.trace(X) <= 90, bo.sum(t) == 1]).solve()
    conflict = sol.conflict(time_limit=1.5)
    assert not conflict.irreducible
    assert "a part of them may do so already" in str(conflict)
    assert {(0, (k,)) for k in range(6)} <= found(conflict)


def test_a_farkas_vector_of_the_conflict_is_one_of_the_problem():
    X, _, after = cycle(4)
    prob = bo.Problem(bo.Minimize(bo.trace(X)), [bo.trace(X) <= 90, after])
    conflict = prob.solve().conflict()
    program, y = prob.program(), np.zeros(5)
    for row in conflict:
        y[1 + row.index[0]] = -row.multiplier if row.sense == "<=" else row.multiplier
    assert is_farkas(program, y)


def test_no_conflict_without_a_contradiction():
    X = bo.PSD(2)
    sol = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] >= 1]).solve()
    with pytest.raises(ValueError, match="the answer is optimal; expected an infeasible problem"):
        sol.conflict()
    unbounded = bo.Problem(bo.Maximize(bo.trace(X)), [X[0, 1] >= 1]).solve()
    with pytest.raises(ValueError, match="the answer is unbounded"):
        unbounded.conflict()


def test_answers_without_a_point_pickle_and_show_their_conflict():
    X, _, after = cycle(3)
    sol = bo.Problem(bo.Minimize(bo.trace(X)), [after]).solve()
    again = pickle.loads(pickle.dumps(sol))
    assert found(again.conflict()) == found(sol.conflict())
    with pytest.raises(TypeError, match="no solver has an option 'tool'"):
        sol.conflict(tool=1)


def test_the_ray_of_an_unbounded_problem():
    X, Y, u = bo.PSD(3, name="X"), bo.PSD(2, name="Y"), bo.Variable((2, 1), name="u", nonneg=True)
    prob = bo.Problem(bo.Minimize(X[0, 0] - X[1, 1] + bo.trace(Y)), [X[0, 1] == 0, u[0] + X[2, 2] == X[1, 1]])
    sol = prob.solve()
    assert sol.status == "unbounded"
    assert sol.ray is not None
    (X_ray, Y_ray), u_ray = sol.ray.X, sol.ray.u["u"]
    assert np.linalg.eigvalsh(X_ray)[0] >= -1e-9
    assert X_ray[0, 0] - X_ray[1, 1] + np.trace(Y_ray) < 0
    assert abs(X_ray[0, 1]) < 1e-9
    np.testing.assert_allclose(u_ray[0] + X_ray[2, 2], X_ray[1, 1], atol=1e-8)
    assert "ray        X 3 x 3" in repr(sol)
    assert bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 1]).solve().ray is None


@pytest.mark.parametrize(("seed", "scale"), turns(range(20), [1.0, 1e6]))
def test_the_row_that_bounds_the_trace_has_its_multiplier(seed, scale):
    """<A, X> <= lambda_max(A) tr X, so that two rows contradict each other, and neither alone."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3, 3))
    A = A + A.T
    top = float(np.linalg.eigvalsh(A)[-1])
    if top < 0.1:
        A, top = A + 2 * np.eye(3) * (1 - top), 2 - top
    X = bo.PSD(3)
    rows = [bo.inner(A, X) == rng.uniform(1.05, 2) * top * scale, bo.trace(X) <= scale]
    sol = bo.Problem(bo.Minimize(bo.trace(X)), rows).solve()
    assert sol.status == "infeasible"
    assert sol.duals[1] >= 0  # the sign of an upper bound
    equation, trace = sol.conflict()
    assert (equation.sense, trace.sense, trace.bound) == (">=", "<=", scale)
    combined = equation.multiplier * A - trace.multiplier * np.eye(3)
    assert np.linalg.eigvalsh(combined)[-1] <= 1e-9
    assert equation.multiplier * equation.bound > trace.multiplier * trace.bound
