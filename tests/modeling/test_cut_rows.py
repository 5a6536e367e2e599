"""``bo.cut_rows`` against the problem with all rows, and what users see of the rounds."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

import bregopt as bo


def triples(n):
    return np.array(list(itertools.combinations(range(n), 3))).T


def triangle_rows(X):
    """Return all triangle inequalities, one array of rows for each pattern of signs."""
    i, j, m = triples(X.n)
    signs = [(1, 1, -1), (1, -1, 1), (-1, 1, 1), (-1, -1, -1)]
    return [a * X[i, j] + b * X[i, m] + c * X[j, m] <= 1 for a, b, c in signs]


def of_all(c, tol=1e-9):
    """Return a function that yields the rows of a constraint that a matrix violates."""

    def separate(value):
        over = np.ravel(c.body.at({next(iter(c.body.psd)): np.asarray(value)}) - c.upper.value)
        at = np.flatnonzero(over > tol)
        return part(c, at) if len(at) else None

    return separate


def part(c, at):
    return bo.Constraint(
        c.body.taken(at, at.shape, c.body.label), None, c.upper.taken(at, at.shape, ""), "<="
    )


def random_weights(rng, n):
    W = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.7), 1)
    return W + W.T


def agree(found, whole):
    """Assert that the certified intervals of two answers to one problem overlap."""
    assert found.status == whole.status == "optimal"
    assert abs(found.value - whole.value) <= found.error + whole.error + 1e-9 * abs(whole.value)


@examples(4)
@given(
    seed=st.integers(0, 10_000), n=st.integers(3, 9), solver=st.sampled_from(["path", "cvxpy", "psdboost"])
)
def test_triangle_inequalities_of_random_graphs(seed, n, solver):
    W = random_weights(np.random.default_rng(seed), n)
    X = bo.PSD(n, name="X")
    goal, unit = bo.Maximize(bo.inner((np.diag(W.sum(1)) - W) / 4, X)), bo.diag(X) == 1
    rows = triangle_rows(X)
    whole = bo.Problem(goal, [unit, *rows]).solve("path")
    generated = [bo.cut_rows(of_all(c)) for c in rows]
    found = bo.Problem(goal, [unit, *generated]).solve(solver, tol=1e-5)
    agree(found, whole)
    assert found.dual_value >= whole.value - 1e-4 * (1 + abs(whole.value))
    value = np.asarray(found.X)
    for c in rows:
        assert np.max(c.body.at({X: value})) <= 1 + 1e-4


@examples(4)
@given(seed=st.integers(0, 10_000), divergence=st.sampled_from(["frobenius", "logdet", "von_neumann"]))
def test_nearest_matrix_with_metric_inequalities(seed, divergence):
    """Squared distances that satisfy the triangle inequality."""
    rng, n = np.random.default_rng(seed), 5
    points = rng.normal(size=(n, 3))
    X0 = points @ points.T + 0.1 * np.eye(n)
    X = bo.PSD(n, name="X")
    near = {"frobenius": bo.frobenius_div, "logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}
    i, j, m = np.concatenate([triples(n)[list(p)] for p in ((0, 1, 2), (0, 2, 1), (1, 2, 0))], axis=1)
    metric = bo.sq_distance(X, i, j) - bo.sq_distance(X, i, m) - bo.sq_distance(X, j, m) <= 0
    goal = bo.Minimize(near[divergence](X, X0))
    whole = bo.Problem(goal, [metric, bo.trace(X) == 5]).solve()
    found = bo.Problem(goal, [bo.cut_rows(of_all(metric)), bo.trace(X) == 5]).solve()
    agree(found, whole)
    assert np.abs(np.asarray(found.X) - np.asarray(whole.X)).max() <= 1e-2


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_sparse_box_rows_at_any_scale(scale):
    rng, n = np.random.default_rng(3), 15
    A = rng.normal(size=(n, n)) * scale
    X = bo.PSD(n, name="X")
    i, j = np.triu_indices(n, 1)
    goal = bo.Minimize(bo.frobenius_div(X, A + A.T))

    def outside(value):
        low, high = value[i, j] < -0.2 * scale, value[i, j] > 0.3 * scale
        rows = [X[i[low], j[low]] >= -0.2 * scale] if low.any() else []
        return [*rows, [X[i[high], j[high]] <= 0.3 * scale] if high.any() else []]

    whole = bo.Problem(goal, [bo.between(X[i, j], -0.2 * scale, 0.3 * scale)]).solve()
    box = bo.cut_rows(outside)
    found = bo.Problem(goal, [box]).solve()
    agree(found, whole)
    assert 0 < box.size < len(i)
    for c in box.constraints:
        assert (np.asarray(c.dual_value) >= -1e-9).all()


def test_low_rank_answers_are_separated():
    rng = np.random.default_rng(1)
    G = rng.normal(size=(20, 4))
    X = bo.PSD(20, name="X")
    i, j = np.triu_indices(20, 1)
    far = bo.sq_distance(X, i, j) <= 9.0
    distances = ((G[i] - G[j]) ** 2).sum(1)
    assert (distances > 9).any()

    def separate(value):
        d = value[i, i] + value[j, j] - 2 * value[i, j]
        at = np.flatnonzero(d > 9 + 1e-8)
        return bo.sq_distance(X, i[at], j[at]) <= 9.0 if len(at) else None

    goal = bo.Minimize(bo.logdet_div(X, bo.LowRank(G)))
    whole, found = (bo.Problem(goal, [rows]).solve() for rows in (far, bo.cut_rows(separate)))
    assert isinstance(found.X, bo.LowRank)
    agree(found, whole)


def test_several_variables():
    """The function reads the values of all variables, and gets a tuple of the matrices."""
    X, Y, u = bo.PSD(3, name="X"), bo.PSD(2, name="Y"), bo.Variable(2, name="u")
    goal = bo.Minimize(bo.trace(X) + bo.trace(Y) + u[0] + 2 * u[1])

    def separate(values):
        assert [np.shape(value) for value in values] == [(3, 3), (2, 2)]
        assert X.value is not None
        missed = [k for k in range(2) if u.value[k] + Y.value[0, 0] < 1 - 1e-8]
        return [u[k] + Y[0, 0] >= 1 for k in missed]

    base = [bo.trace(X) >= 1, u >= -3]
    whole = bo.Problem(goal, [*base, u + Y[0, 0] >= 1]).solve()
    found = bo.Problem(goal, [*base, bo.cut_rows(separate)]).solve()
    agree(found, whole)


def nonnegative(X, least=1e-9):
    def separate(value):
        i, j = np.nonzero(np.triu(np.asarray(value) < -least, 1))
        return X[i, j] >= 0 if len(i) else None

    return separate


def correlation(n=8, seed=0):
    A = np.random.default_rng(seed).normal(size=(n, n))
    return (A + A.T) / 2


def test_duals_are_those_of_all_rows_and_have_names():
    X, A = bo.PSD(8, name="X"), correlation()
    goal, unit = bo.Minimize(bo.frobenius_div(X, A)), (bo.diag(X) == 1).named("unit")
    i, j = np.triu_indices(8, 1)
    all_rows = X[i, j] >= 0
    bo.Problem(goal, [bo.diag(X) == 1, all_rows]).solve(tol=1e-8)

    def separate(value):
        return [
            (X[a, b] >= 0).named(f"X[{a}, {b}]") for a, b in zip(i, j, strict=True) if value[a, b] < -1e-9
        ]

    rows = bo.cut_rows(separate).named("nonnegative")
    found = bo.Problem(goal, [unit, rows]).solve(tol=1e-8)
    expected = dict(zip(zip(i.tolist(), j.tolist(), strict=True), all_rows.dual_value, strict=True))
    for (a, b), dual in expected.items():
        assert found.duals_by_name.get(f"X[{a}, {b}]", 0.0) == pytest.approx(dual, abs=1e-4)
    assert found.duals_by_name["nonnegative"] == rows.dual_value == found.duals[1]
    assert "nonnegative: cut_rows(separate)" in repr(rows)


def test_warm_start_keeps_the_rows():
    X = bo.PSD(8, name="X")
    calls = []

    def separate(value):
        calls.append(value)
        return nonnegative(X)(value)

    t = bo.Parameter(value=1.0, name="t")
    prob = bo.Problem(
        bo.Minimize(bo.frobenius_div(X, correlation())), [bo.diag(X) == t, bo.cut_rows(separate)]
    )
    first, rounds = prob.solve(), len(calls)
    again = prob.solve(warm_start=True)
    agree(again, first)
    assert len(calls) == rounds + 1
    t.value = 1.01
    agree(prob.solve(warm_start=True), prob.solve())


def test_infeasible_rows_are_proven():
    X = bo.PSD(4, name="X")

    def separate(value):
        i, j = np.nonzero(np.triu(value > -0.5, 1))
        return X[i, j] <= -0.5 if len(i) else None

    found = bo.Problem(
        bo.Minimize(bo.inner(np.ones((4, 4)), X)), [bo.diag(X) == 1, bo.cut_rows(separate)]
    ).solve()
    assert found.status == "infeasible"  # four unit vectors have no such angles
    assert found.value == np.inf


def test_an_unbounded_relaxation_is_refused():
    X = bo.PSD(2, name="X")
    prob = bo.Problem(bo.Maximize(bo.trace(X)), [X[0, 1] == 0, bo.cut_rows(lambda value: bo.trace(X) <= 1)])
    with pytest.raises(bo.UnsupportedProblemError, match=r"unbounded.*bo\.trace\(X\) <= t"):
        prob.solve()


@pytest.mark.parametrize(
    ("yields", "error", "message"),
    [
        (lambda X: 3, TypeError, "expected comparisons"),
        (lambda X: "rows", TypeError, "expected comparisons"),
        (lambda X: True, TypeError, "expected comparisons"),
        (lambda X: [None], TypeError, "yields None in a list"),
        (lambda X: np.eye(2), TypeError, "expected comparisons"),
        (lambda X: sp.csr_array(np.eye(2)), TypeError, "expected comparisons"),
        (lambda X: X[0, 1], TypeError, "expected comparisons"),
        (lambda X: bo.soft(X[0, 1] >= 2), TypeError, "expected hard rows"),
        (lambda X: X >> np.eye(3), TypeError, "expected comparisons"),
        (
            lambda X: bo.PSD(3, name="Z")[0, 1] >= 2,
            ValueError,
            "variable Z; expected variables of the problem",
        ),
        (lambda X: bo.Variable(name="v") >= 2, ValueError, "variable v; expected variables of the problem"),
    ],
)
def test_wrong_rows_are_refused(yields, error, message):
    X = bo.PSD(3, name="X")
    prob = bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) >= 1, bo.cut_rows(lambda value: yields(X))])
    with pytest.raises(error, match=message):
        prob.solve()


def test_bad_arguments_are_refused():
    with pytest.raises(TypeError, match="separate of cut_rows is 3; expected a function"):
        bo.cut_rows(3)
    X = bo.PSD(3, name="X")
    prob = bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) >= 1, bo.cut_rows(lambda value: None)])
    with pytest.raises(TypeError, match="tolerance"):
        prob.solve(tolerance=1e-3)
    with pytest.raises((TypeError, ValueError), match="tol"):
        prob.solve(tol=-1.0)


def test_errors_of_the_function_reach_the_caller():
    X = bo.PSD(3, name="X")

    def separate(value):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) >= 1, bo.cut_rows(separate)]).solve()


def test_rows_that_hold_end_the_rounds():
    X = bo.PSD(3, name="X")
    calls = []

    def separate(value):
        calls.append(0)
        return X[0, 1] <= 5

    found = bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) >= 1, bo.cut_rows(separate)]).solve()
    assert found.status == "optimal"
    assert len(calls) < 20


def ended(prob, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        return prob.solve(**options)


def test_a_callback_ends_the_rounds_with_a_bound():
    X, A = bo.PSD(8, name="X"), correlation()
    goal = bo.Minimize(bo.inner(A, X))
    prob = bo.Problem(goal, [bo.diag(X) == 1, bo.cut_rows(nonnegative(X))])
    whole = prob.solve()
    bounds = []

    def callback(step):
        bounds.append(step.bound)
        return len(bounds) == 9

    found = ended(prob, callback=callback)
    assert found.status == "user_limit"
    assert found.primal_residual == np.inf  # the last answer was not separated
    assert "callback" in found.stop_reason
    assert found.dual_value <= whole.value + whole.error
    assert max(bounds) <= whole.value + whole.error
    found = ended(prob, time_limit=1e-3)
    assert found.status == "user_limit"
    assert found.dual_value <= whole.value + whole.error


def test_a_callback_that_ends_a_round_as_it_converges_ends_all_rounds():
    X, A = bo.PSD(8, name="X"), correlation()
    prob = bo.Problem(bo.Minimize(bo.inner(A, X)), [bo.diag(X) == 1, bo.cut_rows(nonnegative(X))])
    steps = []

    def callback(step):
        steps.append(step)
        return max(step.gap, step.primal_residual, step.dual_residual) <= 0.1  # the first round asks no more

    found = ended(prob, callback=callback)
    assert all(step.gap > 0.1 for step in steps[:-1])
    assert found.status == "user_limit"
    assert "callback" in found.stop_reason
    assert 1e-6 < found.primal_residual < np.inf  # of the rows that the answer violates
    bounds = [step.bound for step in steps]
    assert found.dual_value >= bounds[-1] - 1e-9


def test_iteration_limits_end_the_rounds():
    X, A = bo.PSD(8, name="X"), correlation()
    prob = bo.Problem(bo.Minimize(bo.inner(A, X)), [bo.diag(X) == 1, bo.cut_rows(nonnegative(X))])
    whole = prob.solve()
    found = ended(prob, max_iter=2)
    assert found.status in ("user_limit", "optimal_inaccurate")
    assert found.dual_value <= whole.value + whole.error
    with pytest.warns(bo.ConvergenceWarning):
        prob.solve(max_iter=2)


def test_rows_are_written_nowhere_but_can_be_read():
    X = bo.PSD(3, name="X")
    prob = bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) >= 1, bo.cut_rows(nonnegative(X))])
    assert "cut_rows(separate)" in str(prob)
    assert "cut_rows" in prob._repr_latex_() + prob._repr_html_()
    prob.explain()


def test_a_verification_proves_no_point_of_generated_rows():
    X = bo.PSD(2)

    def separate(value):
        return [X[0, 1] <= 0.5] if value[0, 1] > 0.5 + 1e-3 else []

    problem = bo.Problem(bo.Maximize(X[0, 1]), [bo.diag(X) == 1, bo.cut_rows(separate)])
    sol = problem.solve()
    for found in (sol.verify(), bo.verify(problem)):
        assert found.upper >= 0.5  # of the relaxation, hence of the problem
        assert found.lower == -np.inf
        assert "bo.cut_rows" in found.reasons["lower"]
