"""Derivatives of answers: finite differences for each kind of data and row, adjoints, points without one."""

import pickle
import warnings

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from samples import examples, first

import bregopt as bo
from bregopt.divergences.frobenius import Frobenius
from bregopt.io.matrices import read_matrix
from bregopt.routes.derivatives.derivative import derivative_of, optimum_of

N = 8
ROUND_OFF = 1e-14  # residual of the optimality conditions, relative


def symmetric(rng, n=N):
    B = rng.normal(size=(n, n))
    return (B + B.T) / 2


def indefinite(rng, n=N):
    A = np.clip(symmetric(rng, n), -1, 1)
    np.fill_diagonal(A, 1.0)
    return A


def definite(rng, n=N):
    B = rng.normal(size=(n, n))
    return np.eye(n) + 0.3 * B @ B.T / n


def precise(problem):
    """Return the matrix of an answer to round-off, as differences divide its error by ``h``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution = problem.solve(tol=1e-7)
    optimum, anchors = optimum_of(problem.program(), solution._in_program or solution, ROUND_OFF)
    return anchors[0].lifted(optimum.X[0])


def slope(f, h=2e-4):
    """Return ``f'(0)`` by central differences and Richardson's extrapolation."""
    coarse, fine = ((f(s) - f(-s)) / (2 * s) for s in (h, h / 2))
    return (4 * fine - coarse) / 3


def check_in_data(build, A, rng):
    """Compare vjp and jvp of a problem that `build` makes of its data with finite differences."""
    G, dA = symmetric(rng), rng.normal(size=A.shape)
    dA = dA if A.shape != (N, N) else (dA + dA.T) / 2
    solution = build(A).solve()
    expected = slope(lambda s: np.vdot(G, precise(build(A + s * dA))))
    size = np.linalg.norm(G) * np.linalg.norm(dA)
    assert np.vdot(solution.vjp(G), dA) == pytest.approx(expected, abs=1e-8 * size)
    assert np.vdot(G, solution.jvp(dA)) == pytest.approx(expected, abs=1e-8 * size)


DIVERGENCES = {
    "frobenius": (bo.frobenius_div, indefinite),
    "logdet": (bo.logdet_div, definite),
    "von_neumann": (bo.von_neumann_div, definite),
}
ROWS = {
    "diagonal": lambda X: [bo.diag(X) == 1],
    "acting inequalities": lambda X: [bo.diag(X) == 1, X[0, 1] >= 0.2, X[2, 3] <= -0.3],
    "two-sided": lambda X: [bo.between(bo.diag(X), 0.8, 1.2), bo.between(X[0, 1:5], -0.1, 0.1)],
    "distances": lambda X: [bo.trace(X) == N, bo.sq_distance(X, [0, 1], [2, 3]) <= [0.5, 0.6]],
    "general": lambda X: [bo.inner(np.ones((N, N)), X) == 3, bo.trace(X) <= 6],
    "soft": lambda X: [bo.diag(X) == 1, bo.soft(bo.sq_distance(X, [0, 1], [2, 3]) <= 0.4, gamma=0.7)],
    "soft equality": lambda X: [bo.soft(bo.diag(X) == 1, gamma=[2.0] * N)],
    "hinge": lambda X: [
        bo.diag(X) == 1,
        bo.soft(bo.sq_distance(X, [0, 1, 2], [3, 4, 5]) <= 0.9, gamma=0.1, penalty="hinge"),
    ],
    "dependent": lambda X: [bo.diag(X) == 1, bo.trace(X) == N],
    "linear cost": lambda X: [bo.diag(X) == 1, X[0, 1] + X[1, 2] >= 0.3],
    "none": lambda X: [],
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_every_divergence_with_every_kind_of_rows(divergence, rows, rng):
    div, data = DIVERGENCES[divergence]

    def build(A):
        X = bo.PSD(N)
        cost = bo.inner(np.diag(np.arange(N) / N), X) if rows == "linear cost" else 0.0
        return bo.Problem(bo.Minimize(1.5 * div(X, A) + cost), ROWS[rows](X))

    check_in_data(build, data(rng), rng)


def test_elementwise_weights(rng):
    H = rng.uniform(0.2, 1, (N, N))
    H = (H + H.T) / 2

    def build(A):
        X = bo.PSD(N)
        return bo.Problem(bo.Minimize(bo.frobenius_div(X, A, weights=H)), [bo.diag(X) == 1, X[0, 1] >= 0.2])

    check_in_data(build, indefinite(rng), rng)


@pytest.mark.parametrize("div", [bo.logdet_div, bo.von_neumann_div])
def test_low_rank_in_its_factor(div, rng):
    def build(F):
        X = bo.PSD(N)
        rows = [bo.trace(X) == 5, bo.sq_distance(X, [0, 1], [2, 3]) <= 1.0]
        return bo.Problem(bo.Minimize(div(X, bo.LowRank(F)) + 0.1 * X[0, 0]), rows)

    check_in_data(build, rng.normal(size=(N, 3)), rng)


def test_bound_on_eigenvalues_and_matrix_inequality(rng):
    def capped(A):
        X = bo.PSD(N)
        return bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1, bo.lambda_max(X) <= 2.2])

    def bounded(A):
        X = bo.PSD(N)
        return bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1, X >> 0.1 * np.ones((N, N))])

    A = indefinite(rng)
    check_in_data(capped, A, rng)
    check_in_data(bounded, A, rng)


def test_semidefinite_program_in_its_costs(rng):
    def build(C):
        X = bo.PSD(N)
        return bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.diag(X) == 1, X[0, 1] >= 0.3])

    check_in_data(build, symmetric(rng), rng)


def check_in_parameters(problem, parameters, rng, names=()):
    """Compare the gradients of a function of matrix and variables in parameters with finite differences."""
    solution = problem.solve(tol=1e-8)
    derivative = solution.derivative()
    G = symmetric(rng)
    weights = {name: rng.normal(size=np.shape(solution.u[name])) for name in names}
    changes = {p: rng.normal(size=p.shape) for p in parameters}
    changes = {p: (c + c.T) / 2 if c.shape == (N, N) else c for p, c in changes.items()}
    before = {p: np.array(p.value) for p in parameters}

    def f(s):
        for p in parameters:
            p.value = before[p] + s * changes[p]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            at = derivative_of(problem.solve(tol=1e-7))
        u = at._named(at.optimum.u)
        return np.vdot(G, at.optimum.X[0]) + sum(np.vdot(g, u[name]) for name, g in weights.items())

    found = derivative.vjp(G, weights).parameters
    assert list(found) == list(problem.parameters)
    backward = sum(np.vdot(found[p], changes[p]) for p in parameters)
    change = derivative.jvp(parameters=changes)
    forward = np.vdot(G, change.X) + sum(np.vdot(g, change.u[name]) for name, g in weights.items())
    assert forward == pytest.approx(backward, abs=1e-10)
    assert backward == pytest.approx(slope(f), abs=1e-8 * np.linalg.norm(G))


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_parameters_of_a_projection(divergence, rng):
    div, data = DIVERGENCES[divergence]
    X, X0 = bo.PSD(N), bo.Parameter((N, N), value=data(rng))
    b, w, g = bo.Parameter(2, value=[0.6, 0.5]), bo.Parameter(value=0.7), bo.Parameter(2, value=[0.4, 0.3])
    q = bo.Parameter(value=1.3)
    rows = [
        q * X[1, 1] + X[2, 2] == 2 + b[0],
        bo.soft(bo.sq_distance(X, [0, 1], [2, 3]) <= b, gamma=g),
        bo.soft(X[4, 5] == 0.4 * b[1], gamma=0.2 * g[0], penalty="hinge"),
        bo.trace(X) <= q * 3,
    ]
    problem = bo.Problem(bo.Minimize(w * div(X, X0) + q * X[0, 0]), rows)
    check_in_parameters(problem, [X0, b, w, g, q], rng)


def test_parameters_that_are_weights(rng):
    H = rng.uniform(0.3, 1, (N, N))
    X, X0 = bo.PSD(N), bo.Parameter((N, N), value=indefinite(rng))
    weights = bo.Parameter((N, N), value=(H + H.T) / 2)
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, X0, weights=weights)), [bo.diag(X) == 1])
    check_in_parameters(problem, [X0, weights], rng)


def test_parameters_and_variables_of_a_semidefinite_program(rng):
    X, u, q = bo.PSD(N), bo.Variable(2, lower=0, name="u"), bo.Parameter(value=1.3)
    c, s = bo.Parameter(2, value=[1.0, 0.5]), bo.Variable((2, 2), symmetric=True, name="s")
    cost = bo.inner(symmetric(rng), X) + q * X[0, 1] + c[0] * u[0] + c[1] * u[1] + bo.sum_squares(s - 1)
    rows = [bo.diag(X) == 1, X[0, 1] + q * u[0] >= 0.3, q * X[2, 3] - u[1] <= -0.3, X[:2, :2] == q * s]
    rows[-1] = s[0, 1] + s[0, 0] == q * X[4, 5] + c[0]
    check_in_parameters(bo.Problem(bo.Minimize(cost), rows), [q, c], rng, ["u", "s"])


def test_multipliers_change_as_finite_differences_say(rng):
    b = bo.Parameter(N, value=np.ones(N))
    X, C = bo.PSD(N), symmetric(rng)
    row = bo.diag(X) == b
    problem = bo.Problem(bo.Minimize(bo.inner(C, X)), [row])
    change = rng.normal(size=N)
    found = problem.solve(tol=1e-8).derivative().jvp(parameters={b: change}).y

    def multipliers(s):
        b.value = 1 + s * change
        return derivative_of(problem.solve(tol=1e-8)).optimum.y

    assert found == pytest.approx(slope(multipliers), abs=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"min_eigenvalue": 0.1},
        {"weights": np.linspace(0.5, 2, N)},
        {"fixed": [[0, 1], [2, 3]], "min_eigenvalue": 0.05, "weights": np.linspace(0.5, 2, N)},
        {"lower": -0.3, "upper": 0.3},
        {"fixed": [[0, 1]], "weights": 0.5 + np.eye(N)},
        {"max_condition": 5.0},
    ],
    ids=str,
)
def test_nearest_correlation_in_its_matrix(arguments, rng):
    A, G, dA = indefinite(rng) * 0.8 + 0.2 * np.eye(N), symmetric(rng), symmetric(rng)
    np.fill_diagonal(dA, 0.0)

    def at(s):
        solution = bo.nearest_correlation(A + s * dA, tol=1e-7, **arguments)
        derivative = solution._derivative
        X = derivative.restated.tangent(derivative.optimum.X[0])  # but for a multiple of the identity
        return np.vdot(G - np.diag(G.diagonal()), X)

    solution = bo.nearest_correlation(A, **arguments)
    assert np.vdot(solution.vjp(G), dA) == pytest.approx(slope(at), abs=2e-8 * np.linalg.norm(G) * 10)
    assert np.vdot(G, solution.jvp(dA)) == pytest.approx(np.vdot(solution.vjp(G), dA), abs=1e-9)


@pytest.mark.parametrize("divergence", ["frobenius", "logdet", "von_neumann"])
def test_a_condition_that_does_not_act_changes_no_derivative(divergence):
    """The level of the eigenvalues is any of an interval then, and no eigenvalue is near a bend."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        A, G = definite(rng), symmetric(rng)
        plain, bounded = (bo.nearest_correlation(A, divergence, max_condition=k) for k in (None, 4.0))
        assert np.linalg.cond(bounded.X) < 4
        assert bounded.differentiability().margin > 1e-2
        np.testing.assert_allclose(bounded.vjp(G), plain.vjp(G), atol=1e-6 * np.linalg.norm(G))


@pytest.mark.parametrize("divergence", ["logdet", "von_neumann"])
@pytest.mark.parametrize(
    "arguments",
    [{"min_eigenvalue": 0.3}, {"max_condition": 1.3}, {"max_condition": 4.0}, {"lower": 0.1}],
    ids=str,
)
def test_nearest_correlation_in_other_divergences(divergence, arguments, rng):
    A, G, dA = definite(rng), symmetric(rng), symmetric(rng)
    G -= np.diag(G.diagonal())

    def at(s):
        found = bo.nearest_correlation(A + s * dA, divergence, tol=1e-7, **arguments)._derivative
        return np.vdot(G, found.restated.tangent(found.optimum.X[0]))

    solution = bo.nearest_correlation(A, divergence, **arguments)
    assert np.vdot(solution.vjp(G), dA) == pytest.approx(slope(at), abs=1e-7 * np.linalg.norm(G))
    assert np.vdot(G, solution.jvp(dA)) == pytest.approx(np.vdot(solution.vjp(G), dA), abs=1e-9)


def test_ready_made_problems_that_restate_their_data_say_so(rng):
    A = indefinite(rng)
    refused = [
        (bo.nearest_covariance(A + np.diag(np.arange(N))), "nearest_covariance"),
        (bo.nearest_correlation(A, groups=[0, 0, 0, 0, 1, 1, 1, 1]), "groups"),
        (bo.nearest_correlation(A, "spectral"), "spectral"),
        (bo.nearest_psd([A, A])[0], "solve the problem alone"),
    ]
    for solution, message in refused:
        with pytest.raises(ValueError, match=message):
            solution.vjp(np.eye(N))


def test_an_answer_of_a_stack_has_the_derivative_of_its_single_solve(rng):
    A, G = indefinite(rng), symmetric(rng)
    own = {"weights": rng.uniform(0.5, 2, N), "min_eigenvalue": 0.01}
    alone = bo.nearest_correlation(A, **own).vjp(G)
    assert bo.nearest_correlation([A, A], **own)[1].vjp(G) == pytest.approx(alone, abs=1e-8)


def test_the_costs_of_a_maximization(rng):
    C, G, dC = symmetric(rng), symmetric(rng), symmetric(rng)
    X = bo.PSD(N)
    least = bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.diag(X) == 1]).solve()
    most = bo.Problem(bo.Maximize(bo.inner(-C, X)), [bo.diag(X) == 1]).solve()
    assert most.vjp(G) == pytest.approx(-least.vjp(G), abs=1e-8)
    assert most.jvp(dC) == pytest.approx(-least.jvp(dC), abs=1e-8)


def test_the_solver_itself_moves_as_the_derivative_says(rng):
    A, dA = indefinite(rng), symmetric(rng)
    moved = slope(lambda s: bo.nearest_correlation(A + s * dA, tol=1e-12).X, 1e-3)
    np.fill_diagonal(moved, 0.0)
    assert bo.nearest_correlation(A).jvp(dA) == pytest.approx(moved, abs=1e-5)


def test_interior_answers_have_closed_forms(rng):
    P = definite(rng)
    G = symmetric(rng)
    X = bo.PSD(N)
    plain = bo.Problem(bo.Minimize(bo.frobenius_div(X, P)))
    assert plain.solve().vjp(G) == pytest.approx(G)
    one = bo.Problem(bo.Minimize(bo.logdet_div(X, P)), [bo.trace(X) == 3])
    # Along X0 itself the trace of X stays 3 and inv(X) - inv(X0) = y I changes with X0 alone.
    solution = one.solve()
    M = np.asarray(solution.derivative().optimum.X[0])
    dA = symmetric(rng)
    T = M @ np.linalg.solve(P, np.linalg.solve(P, dA).T) @ M
    expected = T - np.trace(T) / np.trace(M @ M) * M @ M
    assert solution.jvp(dA) == pytest.approx(expected, abs=1e-9)


@hypothesis.given(
    st.integers(0, 10**6),
    st.sampled_from(sorted(DIVERGENCES)),
    st.sampled_from(sorted(ROWS)),
    st.integers(2, 6),
)
@examples(12)
def test_vjp_is_the_adjoint_of_jvp(seed, divergence, rows, power):
    rng = np.random.default_rng(seed)
    div, data = DIVERGENCES[divergence]
    X, scale = bo.PSD(N), 10.0 ** (power - 4)
    solution = bo.Problem(bo.Minimize(scale * div(X, data(rng))), ROWS[rows](X)).solve()
    G, dA = symmetric(rng), symmetric(rng)
    hypothesis.assume(solution.differentiability().margin > 1e-6)
    left, right = np.vdot(G, solution.jvp(dA)), np.vdot(solution.vjp(G), dA)
    assert left == pytest.approx(right, abs=1e-8 * np.linalg.norm(G) * np.linalg.norm(dA))


@hypothesis.given(st.integers(0, 10**6), st.floats(0.01, 100))
@examples(7)
def test_answers_are_homogeneous(seed, r):
    """``X(r A, r b) = r X(A, b)``, so the derivative along ``(A, b)`` is ``X``, and it is of degree zero."""
    rng = np.random.default_rng(seed)
    A, b = bo.Parameter((N, N), value=r * indefinite(rng)), bo.Parameter(N, value=r * np.ones(N))
    X = bo.PSD(N)
    solution = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == b]).solve()
    hypothesis.assume(solution.differentiability().margin > 1e-6)
    change = solution.derivative().jvp(parameters={A: A.value, b: b.value})
    assert change.X == pytest.approx(solution.derivative().optimum.X[0], abs=1e-8 * r)


def test_points_without_a_derivative_are_refused():
    X = bo.PSD(2)
    at_zero = bo.Problem(bo.Minimize(bo.frobenius_div(X, [[1.0, 0.0], [0.0, 0.0]]))).solve()
    with pytest.raises(ValueError, match=r"no derivative: an eigenvalue of X - Z is zero"):
        at_zero.vjp(np.eye(2))
    assert at_zero.differentiability().margin < 1e-8
    touching = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(2))), [X[0, 1] >= 0]).solve()
    with pytest.raises(ValueError, match=r"no derivative: a row"):
        touching.vjp(np.eye(2))
    many = bo.Problem(bo.Minimize(bo.trace(X)), [bo.inner(np.ones((2, 2)) / 2, X) == 1]).solve()
    assert many.jvp(np.eye(2)) == pytest.approx(np.zeros((2, 2)), abs=1e-9)
    flat = bo.Problem(bo.Minimize(bo.inner(np.eye(2), X)), [bo.trace(X) == 1]).solve()
    with pytest.raises(ValueError, match="no derivative"):
        flat.vjp(np.eye(2))


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_unknown_entries_are_named_where_the_answer_is_not_unique(seed):
    rng, n = np.random.default_rng(seed), 8
    A, weights = rng.uniform(-1, 1, (n, n)), np.ones((n, n))
    A = (A + A.T) / 2
    np.fill_diagonal(A, 1)
    i, j = np.array(np.triu_indices(n, 1))[:, rng.permutation(28)[:10]]
    weights[i, j] = weights[j, i] = 0
    G = symmetric(rng, n)
    with pytest.raises(ValueError, match=r"10 entries of X are unknown .* such as 0\.1"):
        bo.nearest_correlation(A, weights=weights).vjp(G)
    weights[weights == 0] = 0.1
    assert np.isfinite(bo.nearest_correlation(A, weights=weights).vjp(G)).all()


def test_a_derivative_prints_in_one_line(rng):
    found = bo.nearest_correlation(indefinite(rng)).derivative()
    assert repr(found).startswith(f"Derivative of X ({N} x {N}), with vjp and jvp: {N} of {N} rows act")
    assert len(repr(found)) < 120


def test_nearly_degenerate_answers_warn():
    X = bo.PSD(2)
    near = bo.Problem(bo.Minimize(bo.frobenius_div(X, [[1.0, 0.0], [0.0, 1e-6]]))).solve()
    with pytest.warns(bo.DataWarning, match="valid for very small changes"):
        assert near.vjp(np.eye(2)) == pytest.approx(np.eye(2))
    found = near.differentiability()
    assert found.eigenvalue == pytest.approx(1e-6)
    assert found.multiplier == found.slack == np.inf


def test_inconsistent_rows_have_no_derivative_in_their_bounds():
    X, b = bo.PSD(2), bo.Parameter(value=2.0)
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(2))), [bo.diag(X) == 1, bo.trace(X) == b])
    derivative = problem.solve().derivative()
    assert derivative.jvp(np.ones((2, 2))).X == pytest.approx(np.array([[0, 1], [1, 0]]), abs=1e-9)
    with pytest.raises(ValueError, match="contradict each other"):
        derivative.jvp(parameters={b: 1.0})


def test_bad_input_is_named(rng):
    A = indefinite(rng)
    solution = bo.nearest_correlation(A)
    with pytest.raises(ValueError, match=r"G has shape \(2, 2\); expected \(8, 8\)"):
        solution.vjp(np.eye(2))
    with pytest.raises(ValueError, match="G is ragged"):
        solution.vjp([[1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match=r"data (has|contains)"):
        solution.jvp(np.full((N, N), np.nan))
    with pytest.raises(ValueError, match="u has 'v'"):
        solution.derivative().vjp(np.eye(N), {"v": 1.0})
    with pytest.raises(ValueError, match="does not occur"):
        solution.derivative().jvp(parameters={bo.Parameter(): 1.0})
    X = bo.PSD(2)
    infeasible = bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) == 1, X[0, 1] == 2])
    with pytest.raises(ValueError, match="expected an optimal one"):
        infeasible.solve().vjp(np.eye(2))
    norm = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(2))), [bo.norm2(X[0, :]) <= 0.5])
    with pytest.raises(ValueError, match="second-order cones"):
        norm.solve().vjp(np.eye(2))
    X = bo.PSD(2, hermitian=True)
    with pytest.raises(ValueError, match="Hermitian"):
        bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(2))), [bo.trace(X) == 1]).solve().vjp(np.eye(2))


def test_dependent_columns_of_a_factor_are_refused():
    X, F = bo.PSD(3), bo.LowRank([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    solution = bo.Problem(bo.Minimize(bo.logdet_div(X, F)), [bo.trace(X) == 1]).solve()
    with pytest.raises(ValueError, match="2 columns and rank 1"):
        solution.vjp(np.eye(3))


def test_labels_are_kept_and_compared(rng):
    pd = pytest.importorskip("pandas")
    A = indefinite(rng)
    names = list("abcdefgh")
    frame = pd.DataFrame(A, names, names)
    G = symmetric(rng)
    solution = bo.nearest_correlation(frame)
    found = solution.vjp(pd.DataFrame(G, names, names))
    assert list(found.index) == list(found.columns) == names
    assert found.to_numpy() == pytest.approx(bo.nearest_correlation(A).vjp(G))
    with pytest.raises(ValueError, match="other labels"):
        solution.vjp(pd.DataFrame(G, names[::-1], names[::-1]))


def test_several_matrices(rng):
    A, B, G = indefinite(rng), indefinite(rng), symmetric(rng)
    X, Y = bo.PSD(N), bo.PSD(N)
    goal = bo.frobenius_div(X, A) + bo.frobenius_div(Y, B)
    solution = bo.Problem(bo.Minimize(goal), [bo.diag(X) == 1, bo.diag(Y) == 1]).solve()
    of_A, of_B = solution.vjp((G, None))
    assert of_A == pytest.approx(bo.nearest_correlation(A).vjp(G), abs=1e-8)
    assert of_B == pytest.approx(np.zeros((N, N)))
    with pytest.raises(TypeError, match="tuple of 2"):
        solution.vjp(G)


def test_answers_are_pickled_without_their_problem(rng):
    A, G = indefinite(rng), symmetric(rng)
    solution = bo.nearest_psd(A, lambda X: bo.diag(X) == 1)
    expected = solution.vjp(G)
    copy = pickle.loads(pickle.dumps(solution))
    assert "_derivative" not in vars(copy)
    assert copy.vjp(G) == pytest.approx(expected)
    with pytest.raises(ValueError, match="pickled"):
        copy.derivative().vjp(G).parameters
    assert len(pickle.dumps(solution)) < 40_000


def test_an_answer_that_was_changed_is_refused(rng):
    from dataclasses import replace

    X = bo.PSD(N)
    solution = bo.Problem(bo.Minimize(bo.frobenius_div(X, indefinite(rng))), [bo.diag(X) == 1]).solve()
    with pytest.raises(ValueError, match="X was changed after the solve"):
        replace(solution, X=2 * solution.X).vjp(np.eye(N))


def test_real_matrices(rng, data):
    checked = 0
    for path in sorted((data / "nearcorr").glob("*.csv")):
        A = np.asarray(read_matrix(path).values, dtype=float)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solution = bo.nearest_correlation(A)
            if "pattern" in path.name or solution.differentiability().margin < 1e-6:
                continue
            G, dA = symmetric(rng, len(A)), symmetric(rng, len(A))
            left, right = np.vdot(G, solution.jvp(dA)), np.vdot(solution.vjp(G), dA)
        assert left == pytest.approx(right, abs=1e-8 * np.linalg.norm(G) * np.linalg.norm(dA))
        checked += 1
    assert checked >= 8


def test_a_divergence_without_a_derivative_in_its_data_is_refused(rng, monkeypatch):
    solution = bo.nearest_psd(definite(rng), lambda X: bo.diag(X) == 1)
    monkeypatch.delattr(Frobenius, "anchor_derivative")
    with pytest.raises(ValueError, match="the frobenius divergence has no anchor_derivative"):
        solution.vjp(np.eye(8))


@pytest.mark.parametrize("kind", ["linear", "largest", "frobenius", "logdet", "von_neumann"])
def test_the_gradient_of_the_value_is_that_of_differences(kind):
    rng, n = np.random.default_rng(0), 4
    A = rng.normal(size=(n, n))
    A = A + A.T
    X, b = bo.PSD(n), bo.Parameter(n, value=1 + rng.random(n), name="b")
    t = bo.Parameter(value=0.3, name="t")
    if kind in ("linear", "largest"):
        term = bo.inner(A, X)
    else:
        term = getattr(bo, f"{kind}_div")(X, 5 * np.eye(n) + 0.1 * A)
    sense = bo.Maximize if kind == "largest" else bo.Minimize
    rows = [bo.diag(X) == b, X[0, 1] <= t]
    problem = bo.Problem(sense(term + t * bo.inner(np.diag(np.arange(1.0, n + 1)), X)), rows)
    gradient = problem.solve(tol=1e-10).derivative().value()
    for parameter, step in ((b, np.eye(n)[2]), (t, 1.0)):
        at, values = parameter.value, []
        for sign in (1, -1):
            parameter.value = at + sign * 1e-5 * step
            values.append(problem.solve(tol=1e-10).value)
        parameter.value = at
        expected = (values[0] - values[1]) / 2e-5
        assert np.sum(gradient[parameter] * step) == pytest.approx(expected, rel=1e-5, abs=1e-6)
