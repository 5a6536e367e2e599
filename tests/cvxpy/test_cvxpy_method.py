"""``solve(method="bregopt")``: the answers of CVXPY's own solvers, stored in the same attributes."""

import pickle
import threading
import warnings

import cvxpy as cp
import numpy as np
import peers
import pytest
from samples import first, turns

import bregopt as bo
from bregopt.cvxpy import BREGOPT
from bregopt.cvxpy.conic_solver import _conic
from bregopt.cvxpy.problems import method
from bregopt.cvxpy.problems.lower import lower
from bregopt.cvxpy.readings import read_conic

N = 4
RNG = np.random.default_rng(20261121)
_G = RNG.normal(size=(N, N))
K = _G @ _G.T / N + 0.3 * np.eye(N)
K_INVERSE = np.linalg.inv(K)
_w, _Q = np.linalg.eigh(K)
LOG_K = (_Q * np.log(_w)) @ _Q.T
A = RNG.normal(size=(N, N))
A = A + A.T
Z = RNG.normal(size=N)
V = RNG.normal(size=(N, 9))
PAIRS = np.triu_indices(N, 1)
STABLE = RNG.normal(size=(N, N)) - 3 * np.eye(N)


def rows(X):
    """Return rows of every kind on a matrix near a correlation matrix."""
    return [
        cp.diag(X) == 1,
        X[0, 1] >= 0.2,
        cp.quad_form(Z, X) <= 3,
        cp.trace(A @ X) <= 2,
        X[0, 0] + X[1, 1] - 2 * X[0, 1] <= 1.4,
        X[2, :2] <= X[0, 2:] + 0.3,
        cp.sum(X) <= 9,
    ]


def psd():
    return cp.Variable((N, N), PSD=True)


def nearness(objective):
    X = psd()
    return cp.Problem(objective(X), rows(X))


def shifted():
    X = cp.Variable((N, N), symmetric=True)
    return cp.Problem(cp.Minimize(cp.sum_squares(X - A)), [cp.diag(X) == 1, X >> 0.3 * np.eye(N)])


def turned():
    X = cp.Variable((N, N), NSD=True)
    return cp.Problem(cp.Minimize(cp.trace(A @ X)), [cp.diag(X) == -1])


def below():
    X = cp.Variable((N, N), symmetric=True)
    return cp.Problem(cp.Minimize(cp.trace(A @ X)), [2 * X << np.eye(N), cp.diag(X) == -1])


def twice_psd():
    X = psd()
    return cp.Problem(cp.Minimize(cp.trace(A @ X)), [cp.diag(X) == 1, X >> 0, 3 * X >> 0])


def eigenvalue():
    t, x = cp.Variable(), cp.Variable(2)
    return cp.Problem(
        cp.Minimize(t), [t * np.eye(N) - A - x[0] * K - x[1] * K_INVERSE >> 0, cp.sum(x) == 1, x >= 0]
    )


def markov_chain():
    P, t = cp.Variable((N, N), symmetric=True), cp.Variable()
    mean = np.ones((N, N)) / N
    edges = [P @ np.ones(N) == 1, P >= 0, P[0, 3] == 0]
    return cp.Problem(cp.Minimize(t), [*edges, P - mean << t * np.eye(N), P - mean >> -t * np.eye(N)])


def completion():
    W = cp.Variable((2 * N, 2 * N), symmetric=True)
    known = np.arange(0, N * N, 2)
    block = cp.vec(W[:N, N:], order="F")
    return cp.Problem(cp.Minimize(cp.trace(W) / 2), [W >> 0, block[known] == A.ravel()[known]])


def lyapunov():
    P = cp.Variable((N, N), symmetric=True)
    return cp.Problem(
        cp.Minimize(cp.trace(P)), [STABLE @ P + P @ STABLE.T << -np.eye(N), P >> 0.1 * np.eye(N)]
    )


def design():
    x = cp.Variable(9, nonneg=True)
    return cp.Problem(cp.Maximize(cp.log_det(V @ cp.diag(x) @ V.T)), [cp.sum(x) == 1])


def lasso():
    X = psd()
    return cp.Problem(cp.Minimize(cp.trace(K @ X) - cp.log_det(X) + 0.1 * cp.norm1(X)))


def margins():
    X, xi = psd(), cp.Variable(2, nonneg=True)
    held = [X[0, 0] >= 1 - xi[0], X[1, 1] - X[0, 1] >= 2 - xi[1], cp.trace(X) <= 2]
    return cp.Problem(cp.Minimize(cp.trace(X) + 2 * cp.sum(xi)), held)


def boxes():
    X, x = psd(), cp.Variable(3, bounds=[np.array([0.0, -np.inf, -1.0]), 2.0])
    D = cp.Variable((2, 2), diag=True)
    return cp.Problem(
        cp.Maximize(cp.sum(x) - 1.5 * cp.trace(X) + cp.sum(D)),
        [X[0, :3] >= x, cp.diag(D) <= X[1, 1:3], cp.diag(D)[1] <= 0.5, X[0, 1] <= 1],
    )


def elementwise():
    X = cp.Variable((N, N), symmetric=True)
    return cp.Problem(cp.Minimize(cp.trace(A @ X)), [X >> 0, cp.diag(X) == 1, X >= 0, X <= 0.8 + np.eye(N)])


def two_matrices():
    X, Y = psd(), psd()
    return cp.Problem(cp.Minimize(cp.trace(X + Y)), [(X - Y)[PAIRS] == 1, X[0, 0] <= Y[1, 1]])


def pieces():
    X = psd()
    objective = cp.sum(cp.abs(X[PAIRS] - 0.3)) + cp.pos(X[0, 1] - 0.1) - cp.sum(cp.minimum(X[2], 0.2))
    return cp.Problem(cp.Minimize(objective), [cp.diag(X) == 1, *rows(X)[3:5]])


def parameters():
    X, mu, P = psd(), cp.Parameter(nonneg=True, value=1.5), cp.Parameter((N, N), value=K_INVERSE)
    b = cp.Parameter(value=0.9)
    return cp.Problem(cp.Minimize(cp.trace(P @ X) - mu * cp.log_det(X)), [cp.diag(X) == b, *rows(X)[3:]])


def stacked():
    X, t = psd(), cp.Variable()
    lmi = cp.bmat(
        [[X, cp.reshape(X @ Z, (N, 1), order="F")], [cp.reshape(Z @ X, (1, N), order="F"), t * np.eye(1)]]
    )
    return cp.Problem(cp.Minimize(t + cp.trace(K @ X)), [lmi >> 0, cp.diag(X) >= 1])


PROBLEMS = {
    "logdet": lambda: nearness(lambda X: cp.Minimize(cp.trace(K_INVERSE @ X) - cp.log_det(X))),
    "logdet maximized": lambda: nearness(
        lambda X: cp.Maximize((3 * cp.log_det(2 * X) - cp.trace(K_INVERSE @ X)) / 2 + 1)
    ),
    "logdet alone": lambda: nearness(lambda X: cp.Maximize(cp.log_det(X))),
    "logdet and an indefinite cost": lambda: nearness(lambda X: cp.Minimize(cp.trace(A @ X) - cp.log_det(X))),
    "frobenius": lambda: nearness(lambda X: cp.Minimize(cp.sum_squares(X - A))),
    "frobenius as a norm": lambda: nearness(
        lambda X: cp.Minimize(0.5 * cp.norm(2 * X - A, "fro") ** 2 + cp.trace(X))
    ),
    "frobenius by entries": lambda: nearness(lambda X: cp.Minimize(cp.sum(cp.square(A - X)))),
    "frobenius weighted": lambda: nearness(
        lambda X: cp.Minimize(cp.sum_squares(cp.multiply(1 + np.abs(A), X - A)))
    ),
    "frobenius, one triangle": lambda: nearness(
        lambda X: cp.Minimize(cp.sum_squares(cp.upper_tri(X)) + 2 * cp.sum_squares(cp.diag(X) - 1))
    ),
    "frobenius and a square": lambda: nearness(
        lambda X: cp.Minimize(cp.sum_squares(X - A) + 3 * cp.square(cp.trace(K @ X) - 2))
    ),
    "linear": lambda: nearness(lambda X: cp.Maximize(cp.trace(A @ X))),
    "shifted": shifted,
    "turned": turned,
    "below": below,
    "psd twice": twice_psd,
    "eigenvalue": eigenvalue,
    "markov chain": markov_chain,
    "completion": completion,
    "lyapunov": lyapunov,
    "design": design,
    "lasso": lasso,
    "margins": margins,
    "boxes": boxes,
    "elementwise": elementwise,
    "two matrices": two_matrices,
    "pieces": pieces,
    "parameters": parameters,
    "stacked": stacked,
}


UNIQUE_DUALS = (
    "logdet",
    "logdet maximized",
    "frobenius",
    "linear",
    "shifted",
    "turned",
    "eigenvalue",
    "parameters",
)


def lagrangian_minimum(problem):
    """Return the least value of the Lagrangian near the answer, at the duals of the problem; its error.

    With CVXPY's signs that is the optimum itself if, and only if, the duals are optimal.
    """
    maximize = isinstance(problem.objective, cp.Maximize)
    lagrangian = -problem.objective.args[0] if maximize else problem.objective.args[0]
    for c in problem.constraints:
        dual = -c.dual_value if isinstance(c, cp.constraints.PSD) else c.dual_value
        lagrangian += cp.vdot(dual, c.expr)
    near = [cp.abs(v - v.value) <= 1 for v in problem.variables()]
    least = peers.ask(cp.Problem(cp.Minimize(lagrangian), near))
    return (-least.value if maximize else least.value), least.error


@pytest.mark.parametrize("name", PROBLEMS)
def test_agrees_with_clarabel(name):
    problem = PROBLEMS[name]()
    peer = peers.ask(problem)
    returned = problem.solve(method="bregopt", strict=True, tol=1e-8)
    assert problem.status == "optimal"
    assert returned == problem.value
    peer.agrees(problem.value, problem.solver_stats.extra_stats.error)
    for c, dual in zip(problem.constraints, peer.duals, strict=True):
        assert np.max(c.violation()) == pytest.approx(0, abs=1e-5)
        assert np.shape(c.dual_value) == c.shape
        if name in UNIQUE_DUALS:
            peer.near(c.dual_value, dual, atol=1e-3 * (1 + np.abs(dual).max()))
    value = problem.value
    least, error = lagrangian_minimum(problem)
    assert least == pytest.approx(value, rel=1e-5, abs=1e-5 + error)


# The matrices of the approximation of "quantum" are of order n^2.
@pytest.mark.parametrize(("name", "n"), first(2, [("von_neumann", N), ("quantum", 2), ("quantum", 3)]))
def test_entropies_agree_with_scs(name, n):
    """SCS, with CVXPY's approximation of the quantum entropy; its value is in the solution."""
    X = cp.Variable((n, n), PSD=True)
    entropy = {
        "von_neumann": lambda: -cp.von_neumann_entr(X) - cp.trace(LOG_K @ X),
        "quantum": lambda: 2 * cp.quantum_rel_entr(X, K[:n, :n]) + X[0, n - 1],
    }[name]()
    problem = cp.Problem(cp.Minimize(entropy), [cp.diag(X) == 1, X[0, 1] >= 0.2])
    peer = peers.ask(problem, "SCS", wide=1e-4, eps_abs=1e-7, eps_rel=1e-7)
    problem.solve(method="bregopt", strict=True)
    assert problem.solution.opt_val == pytest.approx(peer.value, rel=1e-4, abs=peer.error)


def test_divergences_take_their_own_route():
    for name in ("logdet", "logdet maximized", "frobenius", "frobenius weighted", "parameters"):
        problem = PROBLEMS[name]()
        problem.solve(method="bregopt", strict=True)
        assert problem.solver_stats.solver_name == "bregopt: bregman"


@pytest.mark.parametrize(("scale", "weighted"), turns([1e-6, 1.0, 1e6], [False, True]))
def test_the_norm_of_a_distance_is_found_by_projections(weighted, scale):
    rng = np.random.default_rng(4)
    A, H = rng.uniform(-1, 1, (6, 6)), rng.uniform(0.5, 1.5, (6, 6))
    X = cp.Variable((6, 6), PSD=True)
    distance = scale * (X - (A + A.T) / 2)
    distance = cp.multiply(H + H.T, distance) if weighted else distance
    problem = cp.Problem(cp.Minimize(cp.norm(distance, "fro")), [cp.diag(X) == 1, X[0, 1] >= 0.5])
    problem.solve(method="bregopt", tol=1e-10)
    answer, duals = problem.solver_stats.extra_stats, [c.dual_value for c in problem.constraints]
    assert (problem.status, answer.solver) == ("optimal", "bregman")
    value = problem.value
    problem = cp.Problem(cp.Minimize(problem.objective.args[0] / scale), problem.constraints)
    problem.solve(solver=cp.CLARABEL)
    assert value == pytest.approx(scale * problem.value, rel=1e-6)
    for dual, c in zip(duals, problem.constraints, strict=True):
        np.testing.assert_allclose(dual / scale, c.dual_value, atol=1e-3)


def test_the_norm_of_no_distance_has_its_own_answer():
    """At a distance of zero the root of a small gap is no small gap."""
    X = cp.Variable((4, 4), PSD=True)
    near = np.ones((4, 4)) + 1e-7 * np.eye(4)
    for target in (np.eye(4), near):
        problem = cp.Problem(cp.Minimize(cp.norm(X - target, "fro")), [cp.diag(X) == 1])
        problem.solve(method="bregopt")
        assert problem.status == "optimal"
        assert problem.value == pytest.approx(np.linalg.norm(target.diagonal() - 1), abs=1e-8)
    problem = cp.Problem(cp.Minimize(cp.norm(X - near, "fro")), [cp.diag(X) == -1])
    problem.solve(method="bregopt")
    assert (problem.status, problem.value) == ("infeasible", np.inf)


def test_statistics_hold_the_certificate():
    problem = PROBLEMS["linear"]()
    problem.solve(method="bregopt", tol=1e-7, solver="path")
    stats = problem.solver_stats
    assert stats.solver_name == "bregopt: path"
    assert stats.num_iters > 0
    assert stats.solve_time > 0
    assert isinstance(stats.extra_stats, bo.Solution)
    assert stats.extra_stats.gap < 1e-7


def test_infeasible_brings_a_farkas_vector():
    X = psd()
    held = [cp.diag(X) == 1, X[0, 1] >= 0.9, X[0, 2] >= 0.9, X[1, 2] <= 0, X >> 0]
    problem = cp.Problem(cp.Minimize(cp.trace(A @ X)), held)
    assert problem.solve(method="bregopt", strict=True) == np.inf
    assert problem.status == "infeasible"
    assert X.value is None
    if held[0].dual_value is None:
        pytest.skip(f"CVXPY {cp.__version__} keeps no duals of infeasible problems")
    # A combination of the rows that no psd matrix meets: v'(diag X - 1) + ... <= 0 fails for every X psd.
    v, l1, l2, l3, S = (c.dual_value for c in held)
    M = np.diag(v)
    for (i, j), w in zip([(0, 1), (0, 2), (1, 2)], [-l1, -l2, l3], strict=True):
        M[i, j] += w / 2
        M[j, i] += w / 2
    np.testing.assert_allclose(M, S, atol=1e-9 * np.abs(M).max())
    assert np.linalg.eigvalsh(M)[0] > -1e-9 * np.abs(M).max()
    assert -v.sum() + 0.9 * (l1 + l2) > 0


def test_one_row_that_contradicts_is_infeasible():
    X = psd()
    problem = cp.Problem(cp.Minimize(cp.trace(K_INVERSE @ X) - cp.log_det(X)), [X[0, 0] <= -1])
    assert problem.solve(method="bregopt", strict=True) == np.inf
    assert problem.status == "infeasible"


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
def test_unbounded(sense):
    X = psd()
    sign = 1 if sense is cp.Minimize else -1
    problem = cp.Problem(sense(-sign * cp.trace(X)), [X[0, 1] >= 0.9])
    assert problem.solve(method="bregopt", strict=True) == -sign * np.inf
    assert problem.status == "unbounded"


def soc():
    X = psd()
    return cp.Problem(cp.Minimize(cp.trace(X)), [cp.norm(X[0]) <= 1, X[1, 1] == 1])


def no_matrix():
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1])


def in_a_power_cone():
    X = psd()
    power = cp.PowCone3D(X[0, 0], X[1, 1], X[0, 1], 0.3)
    return cp.Problem(cp.Minimize(cp.trace(X)), [power, X[0, 1] >= 1])


def bounded_entropy():
    X = psd()
    return cp.Problem(cp.Minimize(cp.trace(X)), [cp.quantum_rel_entr(X, np.eye(N)) <= 0.5])


def not_convex():
    X = psd()
    return cp.Problem(cp.Minimize(cp.trace(X)), [cp.norm(X[0]) >= 1])


def some_squares():
    X = psd()
    return cp.Problem(cp.Minimize(cp.sum_squares(X[0]) + cp.trace(X)), [X[0, 1] == 1])


def not_symmetric():
    X = cp.Variable((N, N))
    return cp.Problem(cp.Maximize(cp.log_det(X)), [X == X.T, cp.trace(X) == 1])


def constant_row():
    X = psd()
    return cp.Problem(cp.Minimize(cp.trace(X)), [X[0, 1] == 1, cp.Constant(1) >= 2])


def infinite():
    X = psd()
    return cp.Problem(cp.Minimize(cp.trace(X)), [X[0, 1] == 1, X[0, 0] <= np.inf])


FOREIGN = {
    "constraint 1: NaN or Inf": infinite,
    "constraint 0 is of the kind PowCone3D": in_a_power_cone,
    "constraint 0: quantum_rel_entr is not affine": bounded_entropy,
    "constraint 0: Pnorm is not affine": not_convex,
    "no bo.PSD variable": no_matrix,
    "constraint 1 has no variable": constant_row,
}


@pytest.mark.parametrize("reason", FOREIGN)
def test_what_is_not_ours_says_why(reason):
    with pytest.raises(bo.UnsupportedProblemError, match=reason):
        FOREIGN[reason]().solve(method="bregopt", strict=True)


def test_what_is_not_ours_goes_on_with_one_warning():
    problem = in_a_power_cone()
    with pytest.warns(UserWarning, match="kind PowCone3D") as caught:
        value = problem.solve(method="bregopt", tol=1e-7, verbose=False)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert value == pytest.approx(in_a_power_cone().solve(solver="CLARABEL"), rel=1e-6)
    assert "bregopt" not in problem.solver_stats.solver_name


def test_other_theories_go_on():
    x = cp.Variable(pos=True)
    problem = cp.Problem(cp.Minimize(x + 1 / x))
    with pytest.warns(UserWarning, match="gp=True"):
        assert problem.solve(method="bregopt", gp=True) == pytest.approx(2, rel=1e-5)


def test_options_are_checked():
    problem = PROBLEMS["linear"]()
    with pytest.raises(TypeError, match="toll"):
        problem.solve(method="bregopt", toll=1e-3)
    with pytest.raises(TypeError, match="strict"):
        problem.solve(method="bregopt", strict=1)
    with pytest.raises(ValueError, match="unknown solver"):
        problem.solve(method="bregopt", solver="CLARABEL")
    problem.solve(method="bregopt", warm_start=True, enforce_dpp=True, verbose=False)


def test_a_parameter_without_value_is_named():
    X, b = psd(), cp.Parameter(name="budget")
    with pytest.raises(ValueError, match="budget"):
        cp.Problem(cp.Minimize(cp.trace(X)), [X[0, 1] >= b]).solve(method="bregopt")


def test_inaccurate_warns_at_the_users_line():
    problem = PROBLEMS["linear"]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        problem.solve(method="bregopt", max_iter=2)
    assert [(w.category, w.filename) for w in caught] == [(bo.ConvergenceWarning, __file__)]
    assert problem.status in ("user_limit", "optimal_inaccurate")


def test_answers_follow_parameters():
    X, b = psd(), cp.Parameter()
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X - A)), [cp.trace(X) == b])
    for value in (1.0, 2.0):
        b.value = value
        problem.solve(method="bregopt")
        assert np.trace(X.value) == pytest.approx(value, abs=1e-5)


def swept(value):
    """Return problems whose rows have a number, a vector and a matrix; each may be a Parameter."""
    X, b, v, P = psd(), value(0.4), value(np.linspace(0.5, 1, N)), value(np.outer([1, 2, 3, 4], [0.1, 0.2]))
    d, s = cp.diag(X), cp.Variable(2, nonneg=True, name="s")
    near, bound = cp.Minimize(cp.trace(K_INVERSE @ X) - cp.log_det(X)), [cp.trace(X) <= 2.5]
    linear = cp.Minimize(cp.trace((K + np.eye(N)) @ X))
    two = X[[0, 1], [1, 2]]
    return {
        "number": cp.Problem(near, [X[0, 1] >= b, *bound]),
        "both sides": cp.Problem(near, [b >= X[0, 1] + 2 * b, b / 2 <= d, *bound]),
        "vector": cp.Problem(near, [d <= v, *bound]),
        "reversed": cp.Problem(near, [d[1:3] == v[::-1][1:3], *bound]),
        "matrix": cp.Problem(linear, [two >= P[1:3, 1], cp.sum(X) >= cp.sum(P), *bound]),
        "transposed": cp.Problem(linear, [X[:2, :4] @ np.eye(N)[:4, :4] >= 0.1 * P.T]),
        "factors": cp.Problem(linear, [d >= np.eye(N)[:, :4] @ P @ [1.0, 2.0] + 0.5 * (v @ np.eye(N))]),
        "stacked": cp.Problem(linear, [cp.hstack([d[0], two[0], b]) >= cp.hstack([b, 0.1, 0.1])]),
        "curved": cp.Problem(near, [X[0, 1] <= cp.exp(b) - cp.square(b) - 1, d <= b * v + 1]),
        "slope": cp.Problem(near, [b * X[0, 1] + d[1] <= v[0], *bound]),
        "objective": cp.Problem(cp.Minimize(near.args[0] + b * cp.trace(X)), bound),
        "cone": cp.Problem(linear, [X >> b * np.eye(N), X[0, 1] == v[1]]),
        "no variable": cp.Problem(near, [b >= 0.1, d <= v + 0.1]),
        "bent": cp.Problem(cp.Minimize(near.args[0] + cp.sum(s)), [two - s <= v[:2] - 0.5, d == b + 0.5]),
        "box": cp.Problem(cp.Minimize(near.args[0] - cp.sum(s)), [s <= 0.1 * v[:2], two == s]),
    }


@pytest.mark.parametrize("kind", sorted(swept(lambda value: value)))
def test_a_parameter_is_as_good_as_its_value(kind):
    parameters, factor = [], 1.0

    def as_parameter(value):
        parameters.append(cp.Parameter(np.shape(value), value=value))
        return parameters[-1]

    problem = swept(as_parameter)[kind]
    first = [p.value for p in parameters]
    for factor in (1.0, 1.1, 0.9):
        for p, value in zip(parameters, first, strict=True):
            p.value = factor * value
        expected = swept(lambda value, by=factor: by * value)[kind]
        value = expected.solve(method="bregopt", tol=1e-8, strict=True)
        assert problem.solve(method="bregopt", tol=1e-8, strict=True) == pytest.approx(value, rel=1e-6)
        assert problem.status == expected.status == "optimal"
        for ours, theirs in zip(problem.constraints, expected.constraints, strict=True):
            np.testing.assert_allclose(ours.dual_value, theirs.dual_value, atol=2e-4)
        for u, v in zip(problem.variables(), expected.variables(), strict=True):
            np.testing.assert_allclose(u.value, v.value, atol=1e-4)


def test_a_problem_is_read_again_only_where_it_must(monkeypatch):
    read = []
    monkeypatch.setattr(method, "lower", lambda problem: read.append(problem) or lower(problem))
    X, b, slope = psd(), cp.Parameter(value=0.1), cp.Parameter(value=1.0)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X - A)), [slope * X[0, 1] >= b, cp.trace(X) == 2])
    for b.value in (0.1, 0.2, 0.3):
        problem.solve(method="bregopt")
        assert X.value[0, 1] >= b.value - 1e-6
    assert len(read) == 1
    slope.value = 2.0
    problem.solve(method="bregopt")
    problem.solve(method="bregopt", warm_start=True)
    assert len(read) == 2


def test_a_parameter_that_is_no_number_is_refused_each_time():
    X, b = psd(), cp.Parameter(value=0.1)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X - A)), [X[0, 1] >= b, cp.trace(X) == 2])
    problem.solve(method="bregopt")
    try:
        b.value = np.inf
    except ValueError:
        pytest.skip("this CVXPY does not take it for a value")
    with pytest.raises(bo.UnsupportedProblemError, match="NaN or Inf"):
        problem.solve(method="bregopt", strict=True)
    b.value = 0.1
    assert problem.solve(method="bregopt") is not None


def test_problems_pickle_before_and_after():
    problem = PROBLEMS["frobenius"]()
    before = pickle.loads(pickle.dumps(problem))
    value = problem.solve(method="bregopt")
    after = pickle.loads(pickle.dumps(problem))
    assert before.solve(method="bregopt") == value
    assert after.value == value
    assert after.solver_stats.extra_stats.gap == problem.solver_stats.extra_stats.gap
    assert after.solve(method="bregopt") == value
    np.testing.assert_array_equal(after.constraints[0].dual_value, problem.constraints[0].dual_value)


def test_threads_get_the_same_answers():
    alone = {name: PROBLEMS[name]().solve(method="bregopt") for name in ("logdet", "linear", "shifted")}
    shared = PROBLEMS["logdet"]()
    found = []

    def work(name):
        found.append((name, PROBLEMS[name]().solve(method="bregopt")))
        found.append(("logdet", shared.solve(method="bregopt")))

    threads = [threading.Thread(target=work, args=(name,)) for name in [*alone, *alone]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert all(value == alone[name] for name, value in found)


def test_a_warm_start_goes_on_from_the_last_answer():
    X, b = psd(), cp.Parameter(len(PAIRS[0]), value=np.full(len(PAIRS[0]), 0.6))
    d = cp.diag(X)
    rows = [d[PAIRS[0]] + d[PAIRS[1]] - 2 * X[PAIRS] <= b, cp.trace(X) >= 3]
    problem = cp.Problem(cp.Minimize(cp.trace(K_INVERSE @ X) - cp.log_det(X)), rows)
    problem.solve(method="bregopt", warm_start=True)  # there is no answer yet
    b.value = b.value * 1.01
    cold = problem.solve(method="bregopt")
    b.value = b.value / 1.01
    problem.solve(method="bregopt")
    b.value = b.value * 1.01
    assert problem.solve(method="bregopt", warm_start=True) == pytest.approx(cold, rel=1e-5)
    problem.solve(method="bregopt", warm_start=True, max_iter=1)  # starts from the answer
    assert problem.status == "optimal"
    other = cp.Problem(problem.objective, rows[:1])
    other.solve(method="bregopt")
    peers.ask(problem)
    problem.solve(method="bregopt", warm_start=True)  # the last answer is not ours
    assert problem.value == pytest.approx(cold, rel=1e-5)


# --- What is passed on, and to whom -------------------------------------------------------------------


def nuclear():
    F = cp.Variable((3, 4))
    return cp.Problem(cp.Minimize(cp.normNuc(F)), [F[0, 0] == 1, F[1, 2] == 2])


def largest_eigenvalue():
    x = cp.Variable()
    return cp.Problem(cp.Minimize(cp.lambda_max(A + x * K)), [x >= -1])


def stacked_cones():
    try:
        X = cp.Variable((2, 3, 3), symmetric=True)
    except ValueError as error:
        pytest.skip(f"this CVXPY has no stacks of matrices: {error}")
    return cp.Problem(cp.Minimize(cp.sum(X[:, 0, 0])), [X >> 0, X[:, 0, 1] == 1, X[:, 1, 1] <= 2])


def imaginary():
    X = cp.Variable((2, 2), hermitian=True)
    return cp.Problem(cp.Minimize(cp.imag(X[1, 0])), [X >> 0, cp.real(cp.trace(X)) == 1])


def perspective():
    X, x, t = psd(), cp.Variable(), cp.Variable(nonneg=True)
    held = [cp.perspective(cp.square(x), t) <= 2, X[0, 1] == x, x >= 1, t <= 2]
    return cp.Problem(cp.Minimize(cp.trace(X) - t), held)


PASSED_ON = {
    stacked_cones: "path",
    in_a_power_cone: "CLARABEL",
}


@pytest.mark.parametrize("make", [nuclear, largest_eigenvalue, soc, perspective, imaginary])
def test_epigraphs_of_second_order_cones_and_matrices_are_read(make):
    problem, reference = make(), make()
    problem.solve(method="bregopt", tol=1e-7, strict=True)
    reference.solve(solver="CLARABEL")
    assert problem.value == pytest.approx(reference.value, rel=1e-6, abs=1e-6)
    assert problem.solver_stats.solver_name == "bregopt: path"
    for c, other in zip(problem.constraints, reference.constraints, strict=True):
        np.testing.assert_allclose(c.dual_value, other.dual_value, atol=1e-3)


@pytest.mark.parametrize(("how", "parametric"), turns(["method", "solver"], [False, True]))
def test_equal_elements_of_second_order_cones_are_one(how, parametric):
    X, r, D = psd(), cp.Variable(), cp.Parameter((N, N), symmetric=True, value=K)
    target = D if parametric else K
    vector = cp.hstack([cp.vec(X - target, order="F"), X[0, 1] + 1, -1 - X[1, 0]])
    problem = cp.Problem(cp.Minimize(r + cp.trace(A @ X)), [cp.SOC(r, vector), cp.trace(X) == 1])
    elements = 2 + N * (N + 1) // 2
    if how == "method":
        assert list(lower(problem).problem.program().cones.dimensions) == [elements]
    else:
        conic = _conic(problem.get_problem_data(BREGOPT)[0])
        assert conic.soc == (3 + N**2,)
        assert all(list(r.program.cones.dimensions) == [elements] for r in read_conic(conic))
    ours = {"method": {"method": "bregopt"}, "solver": {"solver": BREGOPT}}[how] | {"tol": 1e-10}
    precise = dict.fromkeys(["tol_gap_rel", "tol_gap_abs", "tol_feas"], 1e-10)
    for _ in range(2):
        answers = []
        for options in (ours, {"solver": "CLARABEL", **precise}):
            problem.solve(**options)
            dual = np.concatenate([np.ravel(part) for part in problem.constraints[0].dual_value])
            answers.append((problem.value, X.value, dual))
        for mine, theirs in zip(*answers, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)
        D.value = D.value + np.eye(N)


@pytest.mark.filterwarnings("ignore:The problem has an expression with dimension")
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("make", PASSED_ON)
def test_what_is_not_read_goes_to_bregopt_first(make):
    problem, reference = make(), make()
    with pytest.warns(UserWarning, match=rf"BREGOPT \({PASSED_ON[make]}\) solved it"):
        problem.solve(method="bregopt", tol=1e-7)
    reference.solve(solver="CLARABEL")
    assert problem.value == pytest.approx(reference.value, rel=1e-5, abs=1e-5)
    assert problem.solver_stats.solver_name == "BREGOPT"


def test_integers_go_on_to_cvxpys_choice():
    x = cp.Variable(2, integer=True)
    with pytest.warns(UserWarning, match="(HIGHS|SCIPY) solved it: variable .* is integer"):
        value = cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0.5]).solve(method="bregopt", tol=1e-7)
    assert value == pytest.approx(2)


# --- Symmetric rows -----------------------------------------------------------------------------------


def equation_of_symmetric_matrices():
    X, C = cp.Variable((2, 2), PSD=True), cp.Variable((2, 2), symmetric=True)
    return cp.Problem(cp.Maximize(cp.sum(X)), [X == 2 * np.eye(2) - C, C >= 0])


def fixed_matrix():
    X, Y = psd(), psd()
    return cp.Problem(cp.Minimize(cp.trace(A @ Y) + cp.trace(K @ X)), [X - Y == K, Y << 2 * np.eye(N)])


def congruence():
    X, Y = psd(), cp.Variable((2, 2), symmetric=True)
    F = np.ascontiguousarray(V[:, :2]) / 3
    rows = [F.T @ X @ F == Y, cp.trace(Y) >= 1, X <= 1.5 * np.ones((N, N))]
    return cp.Problem(cp.Minimize(cp.trace(K @ X)), rows)


def bounds_of_entries():
    X, P = psd(), cp.Parameter((N, N), value=0.4 * np.ones((N, N)) + np.eye(N))
    return cp.Problem(cp.Minimize(cp.trace(A @ X)), [X <= P, X >= -P])


@pytest.mark.parametrize(
    ("how", "make"),
    turns(
        ["method", "solver"], [equation_of_symmetric_matrices, fixed_matrix, congruence, bounds_of_entries]
    ),
)
def test_duals_of_symmetric_rows_are_symmetric(make, how):
    problem = make()
    options = {"method": "bregopt", "strict": True} if how == "method" else {"solver": BREGOPT}
    problem.solve(tol=1e-8, **options)
    assert problem.status == "optimal"
    for c in problem.constraints:
        dual = np.asarray(c.dual_value)
        if dual.ndim == 2:
            np.testing.assert_allclose(dual, dual.T, atol=1e-9 * np.abs(dual).max())
    least, error = lagrangian_minimum(problem)
    assert least == pytest.approx(problem.value, rel=1e-5, abs=1e-5 + error)


def test_the_dual_of_a_symmetric_equation_is_that_of_conic_solvers():
    problem = equation_of_symmetric_matrices()
    for options in ({"method": "bregopt"}, {"solver": BREGOPT}):
        problem.solve(**options)
        for c in problem.constraints:  # stationarity: 1 1' = v = l, as C and X are there in one row alone
            np.testing.assert_allclose(c.dual_value, np.ones((2, 2)), atol=1e-5)


def test_bounds_that_are_not_symmetric_keep_their_own_duals():
    X, P = psd(), 0.4 * np.ones((N, N)) + np.eye(N) + 0.2 * np.triu(np.ones((N, N)), 1)
    problem = cp.Problem(cp.Minimize(cp.trace(A @ X)), [X <= P, X >= -P])
    problem.solve(method="bregopt", tol=1e-8)
    upper, lower_ = (np.asarray(c.dual_value) for c in problem.constraints)
    assert np.abs(np.triu(upper * (X.value - P), 1)).max() < 1e-5
    assert np.abs(np.triu(lower_ * (X.value + P), 1)).max() < 1e-5
    least, error = lagrangian_minimum(problem)
    assert least == pytest.approx(problem.value, rel=1e-5, abs=1e-5 + error)


# --- No point, or no optimum --------------------------------------------------------------------------


KINDS = {
    "psd": lambda n: cp.Variable((n, n), PSD=True),
    "symmetric": lambda n: cp.Variable((n, n), symmetric=True),
    "square": lambda n: cp.Variable((n, n)),
}
OBJECTIVES = {
    "zero": lambda X: cp.Minimize(0),
    "trace": lambda X: cp.Minimize(cp.trace(X)),
    "falling": lambda X: cp.Maximize(cp.trace(X)),
    "corner": lambda X: cp.Minimize(X[0, -1]),
}
CONTRADICTIONS = {
    "negative entry": lambda X: [X[0, 0] == -1],
    "negative bound": lambda X: [X[0, 0] <= -1],
    "negative trace": lambda X: [cp.trace(X) == -1],
    "two values": lambda X: [X[0, 0] == 1, X[0, 0] == 2],
    "crossed bounds": lambda X: [X[0, 0] >= 2, X[0, 0] <= 1],
    "diagonal": lambda X: [cp.diag(X) == np.arange(X.shape[0]) - 1.0],
    "minor": lambda X: [X[0, 0] == 1, X[-1, -1] == 1, X[0, -1] == 2, X[-1, 0] == 2],
    "column of zero": lambda X: [X[0, 0] == 0, X[0, -1] == 1, X[-1, 0] == 1],
    "below": lambda X: [-np.eye(X.shape[0]) >> X],
    "equation": lambda X: [X == -np.eye(X.shape[0])],
}
RAYS = {
    "free": lambda X: [],
    "nonnegative": lambda X: [X >= 0],
    "one entry": lambda X: [X[-1, -1] >= 1],
    "floor": lambda X: [X >> np.eye(X.shape[0])],
}
WAYS = [{"method": "bregopt", "strict": True}, {"solver": BREGOPT}]


@pytest.mark.parametrize(("n", "kind", "name"), turns(first(1, [3, 1]), KINDS, CONTRADICTIONS))
def test_contradictions_are_infeasible_whatever_the_objective(name, kind, n):
    for objective in OBJECTIVES.values():
        X = KINDS[kind](n)
        problem = cp.Problem(objective(X), [X >> 0, *CONTRADICTIONS[name](X)])
        for options in WAYS:
            problem.solve(**options)
            assert problem.status == "infeasible"


@pytest.mark.parametrize(("n", "kind", "name"), turns([1, 3], KINDS, RAYS))
def test_rays_are_unbounded_and_feasible_problems_are_not(name, kind, n):
    X = KINDS[kind](n)
    for sense, status in ((cp.Maximize, "unbounded"), (cp.Minimize, "optimal")):
        problem = cp.Problem(sense(cp.trace(X)), [X >> 0, *RAYS[name](X)])
        for options in WAYS:
            problem.solve(**options)
            assert problem.status == status


def test_a_square_variable_is_its_symmetric_part_and_the_rest():
    rng = np.random.default_rng(5)
    C = rng.normal(size=(N, N))
    values = []
    for options in (*WAYS, {"solver": "CLARABEL"}):
        X = cp.Variable((N, N))
        held = [X >> 0.1 * np.eye(N), cp.diag(X) == 1, X >= -0.3, X <= 1.1, X[0, 1] == X[1, 0] + 0.2]
        problem = cp.Problem(cp.Minimize(cp.trace(C @ X)), held)
        problem.solve(**options)
        assert problem.status == "optimal"
        assert max(np.max(c.violation()) for c in held) < 1e-5
        values.append(problem.value)
    assert values[0] == pytest.approx(values[2], rel=1e-5)
    assert values[1] == pytest.approx(values[2], rel=1e-5)


@pytest.mark.parametrize("M", [0.5, 2.0])
@pytest.mark.parametrize("slope", [0.6, 1.0, 5.0])
def test_hubers_loss_of_a_diagonal_is_known(M, slope):
    """``huber(x - a) + slope x`` is least at ``x = a - slope / 2`` below the slope 2 M, otherwise at zero."""
    a, weight = np.array([1.0, 3.0, 0.2]), np.array([1.0, 2.0, 0.5])
    X = cp.Variable((3, 3), PSD=True)
    loss = cp.huber(cp.diag(X) - a, M)
    problem = cp.Problem(
        cp.Minimize(weight @ (loss + slope * cp.diag(X)) + cp.sum(cp.abs(X - cp.diag(cp.diag(X)))))
    )
    problem.solve(method="bregopt", strict=True, tol=1e-8)
    x = np.maximum(a - slope / 2, 0) if slope < 2 * M else np.zeros(3)
    far = np.abs(x - a) > M
    loss = np.where(far, 2 * M * np.abs(x - a) - M**2, (x - a) ** 2)
    bound = problem.solver_stats.extra_stats.dual_value  # of what was read, not of CVXPY's expression
    assert problem.value == pytest.approx(weight @ (loss + slope * x), abs=1e-6)
    assert bound == pytest.approx(problem.value, abs=1e-6)
    if slope != 2 * M:  # there any x is optimal
        assert np.diag(X.value) == pytest.approx(x, abs=2e-3)


@pytest.mark.parametrize("hook", [{"method": "bregopt"}, {"solver": BREGOPT}])
@pytest.mark.parametrize(("power", "n"), first(2, [(1.5, 12), (4, 12), (4, 20)]))
def test_powers_of_differences_whose_constants_may_be_small(hook, power, n):
    """By convexity the gradient bounds the optimum; once `method` ended 35 % above it."""
    A = np.random.default_rng(1).normal(size=(n, n))
    A, X = (A + A.T) / 2, cp.Variable((n, n), PSD=True)
    problem = cp.Problem(
        cp.Minimize(cp.sum(cp.power(cp.abs(X - A) if power < 2 else X - A, power))), [cp.trace(X) == 1]
    )
    problem.solve(**hook)
    assert problem.status == "optimal"
    off = X.value - A
    value = float((np.abs(off) ** power).sum())
    gradient = power * np.sign(off) * np.abs(off) ** (power - 1)
    bound = value + np.linalg.eigvalsh(gradient)[0] - float(np.vdot(gradient, X.value))
    assert problem.value == pytest.approx(value, rel=1e-5)
    assert bound <= problem.value * (1 + 1e-6)
    assert problem.value - bound <= 1e-4 * value
