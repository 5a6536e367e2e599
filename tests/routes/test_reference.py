"""The route `cvxpy`: every kind of objective, row and penalty against independent results."""

import subprocess
import sys

import cvxpy as cp
import numpy as np
import peers
import pytest
from samples import turns
from scipy.optimize import brentq, minimize_scalar

import bregopt as bo
from bregopt.routes import routing

DIVERGENCE = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div}
# D(x, x0) of positive numbers, and its derivative in x.
SCALAR = {
    "logdet": (lambda x, x0: x / x0 - np.log(x / x0) - 1, lambda x, x0: 1 / x0 - 1 / x),
    "von_neumann": (lambda x, x0: x * np.log(x / x0) - x + x0, lambda x, x0: np.log(x / x0)),
    "frobenius": (lambda x, x0: (x - x0) ** 2, lambda x, x0: 2 * (x - x0)),
}


def solve(problem, tol=1e-8, **options):
    sol = peers.reference(problem, tol=tol, **options)
    assert sol.status == "optimal", sol.stop_reason
    assert max(sol.gap, sol.primal_residual, sol.dual_residual) <= tol
    return sol


# A gap of 1e-8 is of second order in X and the multipliers, which are accurate to its root.
KNOWN = 1e-4


def positive_definite(rng, n, condition=10.0):
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return (Q * np.geomspace(1, 1 / condition, n)) @ Q.T


# --- Objectives: one trace row, solved by its multiplier ----------------------------------------------


def log_sym(X):
    w, Q = np.linalg.eigh(X)
    return (Q * np.log(w)) @ Q.T


@pytest.mark.parametrize("backend", ["CLARABEL", "scs"])
def test_logdet_with_a_trace_row(rng, backend):
    X0 = positive_definite(rng, 4)
    w, Q = np.linalg.eigh(X0)
    v = brentq(lambda v: np.sum(1 / (1 / w + v)) - 1.0, 1e-9, 10.0, xtol=1e-14)  # inv(X) = inv(X0) + v I
    X = bo.PSD(4)
    sol = solve(bo.Problem(bo.Minimize(2.5 * bo.logdet_div(X, X0)), [bo.trace(X) == 1.0]), backend=backend)
    np.testing.assert_allclose(sol.X, (Q / (1 / w + v)) @ Q.T, atol=1e-4)
    assert sol.duals[0] == pytest.approx(2.5 * v, abs=1e-4)


def test_von_neumann_with_a_trace_row(rng):
    X0 = positive_definite(rng, 4)
    t = np.trace(X0)
    X = bo.PSD(4)
    sol = solve(bo.Problem(bo.Minimize(bo.von_neumann_div(X, X0)), [bo.trace(X) <= t / 2]))
    np.testing.assert_allclose(sol.X, X0 / 2, atol=KNOWN)
    assert sol.value == pytest.approx(t / 2 * (1 - np.log(2)), abs=1e-8)
    assert sol.duals[0] == pytest.approx(np.log(2), abs=KNOWN)


def test_frobenius_with_a_trace_row(rng):
    X0 = positive_definite(rng, 4)
    X = bo.PSD(4)
    sol = solve(bo.Problem(bo.Minimize(bo.frobenius_div(X, X0)), [bo.trace(X) >= np.trace(X0) + 4]))
    np.testing.assert_allclose(sol.X, X0 + np.eye(4), atol=KNOWN)
    assert sol.duals[0] == pytest.approx(2.0, abs=KNOWN)


@pytest.mark.parametrize(("entry", "nearest"), [(0.5, 0.5), (3.0, 1.0)])
def test_weighted_frobenius(entry, nearest):
    X = bo.PSD(2)
    A, H = np.array([[1.0, entry], [entry, 1.0]]), np.array([[5.0, 2.0], [2.0, 1.0]])
    sol = solve(bo.Problem(bo.Minimize(bo.frobenius_div(X, A, weights=H)), [bo.diag(X) == 1.0]))
    assert sol.X[0, 1] == pytest.approx(nearest, abs=KNOWN)
    assert sol.value == pytest.approx(2 * 4 * (entry - nearest) ** 2, abs=1e-5)


def test_linear_objective_on_a_trace_ball_is_the_smallest_eigenvalue(rng):
    C = positive_definite(rng, 5) - 0.3 * np.eye(5)
    X = bo.PSD(5)
    sol = solve(bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.trace(X) <= 2.0]))
    assert sol.value == pytest.approx(2 * min(np.linalg.eigvalsh(C)[0], 0), abs=1e-7)


# --- Soft rows: x alone, against a scalar minimization -------------------------------------------------


def paid(violation, bound, x, kind, gamma):
    if violation == 0:
        return 0.0
    return gamma * (violation if kind == "hinge" else SCALAR[kind][0](x, bound))


ROWS = {
    "<=": (lambda x: x <= 0.6, lambda x: (max(x - 0.6, 0.0), 0.6)),
    ">=": (lambda x: x >= 2.5, lambda x: (max(2.5 - x, 0.0), 2.5)),
    "==": (lambda x: x == 2.0, lambda x: (abs(x - 2.0), 2.0)),
    "between, above": (lambda x: bo.between(x, 0.2, 0.5), lambda x: (max(x - 0.5, 0.0), 0.5)),
    "between, below": (lambda x: bo.between(x, 2.0, 3.0), lambda x: (max(2.0 - x, 0.0), 2.0)),
    "between, inside": (lambda x: bo.between(x, 0.5, 3.0), lambda x: (max(0.5 - x, x - 3.0, 0.0), 0.5)),
}


@pytest.mark.parametrize(("row", "penalty", "divergence"), turns(ROWS, ["divergence", "hinge"], DIVERGENCE))
def test_soft_row(divergence, penalty, row):
    gamma, x0 = 0.4, 1.0
    declare, violation = ROWS[row]
    kind = "hinge" if penalty == "hinge" else divergence
    best = minimize_scalar(
        lambda x: SCALAR[divergence][0](x, x0) + paid(*violation(x), x, kind, gamma),
        bounds=(1e-3, 5.0),
        method="bounded",
        options={"xatol": 1e-12},
    )
    X = bo.PSD(1)
    soft = bo.soft(declare(X[0, 0]), gamma=gamma, penalty=penalty)
    sol = solve(bo.Problem(bo.Minimize(DIVERGENCE[divergence](X, [[x0]])), [soft]))
    assert sol.value == pytest.approx(best.fun, abs=1e-7)
    assert sol.X[0, 0] == pytest.approx(best.x, abs=1e-4)


def test_soft_rows_of_a_linear_objective_take_the_hinge():
    # min 3 x + 5 |x - 2|: the hinge has the larger price.
    X = bo.PSD(1)
    sol = solve(bo.Problem(bo.Minimize(3 * bo.trace(X)), [bo.soft(X[0, 0] >= 2.0, gamma=5.0)]))
    assert sol.X[0, 0] == pytest.approx(2.0, abs=1e-6)
    assert sol.duals[0] == pytest.approx(3.0, abs=1e-6)


# --- Signs of the duals: by hand from the stationarity f'(x) + sum v g'(x) = 0 --------------------------


@pytest.mark.parametrize(("maximize", "divergence"), turns([False, True], DIVERGENCE))
@pytest.mark.parametrize(
    ("declare", "x", "sign"),
    [
        pytest.param(lambda a: a <= 0.5, 0.5, -1, id="<="),
        pytest.param(lambda a: a >= 2.0, 2.0, 1, id=">="),
        pytest.param(lambda a: a == 2.0, 2.0, -1, id="== above"),
        pytest.param(lambda a: a == 0.5, 0.5, -1, id="== below"),
        pytest.param(lambda a: bo.between(a, 0.2, 0.5), 0.5, -1, id="between, upper end"),
        pytest.param(lambda a: bo.between(a, 2.0, 3.0), 2.0, -1, id="between, lower end"),
        pytest.param(lambda a: a <= 7.0, 1.0, -1, id="inactive"),
    ],
)
def test_dual_signs(divergence, maximize, declare, x, sign):
    X = bo.PSD(1)
    D = 3.0 * DIVERGENCE[divergence](X, [[1.0]])
    problem = bo.Problem(bo.Maximize(-D) if maximize else bo.Minimize(D), [declare(X[0, 0])])
    solve(problem)
    expected = sign * 3.0 * SCALAR[divergence][1](x, 1.0)
    assert problem.constraints[0].dual_value == pytest.approx(expected, abs=1e-3)


def test_duals_of_the_translation_are_those_of_the_solution(rng):
    X0 = positive_definite(rng, 3)
    X, u = bo.PSD(3), bo.Variable(2, lower=0.0, name="u")
    rows = [
        bo.diag(X) + 0.1 * bo.sum(u) >= np.array([0.9, 0.8, 0.7]),
        bo.between(bo.trace(X), 0.5, 2.6),
        X[0, 1] == 0.3,
        bo.soft(bo.sq_distance(X, 0, 2) <= 0.4),
    ]
    for goal in (bo.Minimize, bo.Maximize):
        sign = 1 if goal is bo.Minimize else -1
        problem = bo.Problem(goal(sign * (bo.logdet_div(X, X0) + 2 * bo.sum(u))), rows)
        sol = solve(problem)
        copy = problem.to_cvxpy()
        assert type(copy.objective) is getattr(cp, goal.__name__)
        peer = peers.ask(copy)
        peer.agrees(sol.value, sol.error)
        at_least, low, high, equal, bent, *_ = peer.duals
        for found, expected in zip(sol.duals, (at_least, high - low, equal, bent), strict=True):
            peer.near(np.ravel(found), np.ravel(expected), atol=1e-3)


# --- Blocks, variables, low rank, units ---------------------------------------------------------------


def test_two_matrices_share_a_row():
    # min logdet(x, 1) + vn(y, 1) with x + y = 3: 1 - 1/x = log y.
    X, Y = bo.PSD(1, name="X"), bo.PSD(1, name="Y")
    objective = bo.logdet_div(X, [[1.0]]) + bo.von_neumann_div(Y, [[1.0]])
    sol = solve(bo.Problem(bo.Minimize(objective), [X[0, 0] + Y[0, 0] == 3.0]))
    x = brentq(lambda x: 1 - 1 / x - np.log(3 - x), 0.5, 2.9)
    assert [float(M[0, 0]) for M in sol.X] == pytest.approx([x, 3 - x], abs=1e-4)
    assert sol.duals[0] == pytest.approx(-(1 - 1 / x), abs=1e-4)
    assert sol.rank == (1, 1)


def test_matrices_with_and_without_divergence():
    X, Y = bo.PSD(2, name="X"), bo.PSD(3, name="Y")
    problem = bo.Problem(
        bo.Minimize(bo.frobenius_div(X, np.zeros((2, 2))) + bo.trace(Y)), [bo.trace(X) + bo.trace(Y) >= 4.0]
    )
    # (t/2)^2 * 2 + (4 - t): t = 1.
    sol = solve(problem)
    assert sol.value == pytest.approx(3.5, abs=1e-7)
    np.testing.assert_allclose(sol.X[0], 0.5 * np.eye(2), atol=KNOWN)


def test_ordinary_variables_in_their_box():
    # min logdet(x, 1) + u/5 with x + u >= 3, 0 <= u <= 1: the multiplier 1 - 1/2 exceeds 1/5, so that u = 1.
    X, u = bo.PSD(1), bo.Variable(lower=0.0, upper=1.0, name="u")
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, [[1.0]]) + 0.2 * u + 7.0), [X[0, 0] + u >= 3.0])
    sol = solve(problem)
    assert sol.u["u"] == pytest.approx(1.0, abs=KNOWN)
    assert sol.value == pytest.approx(1 - np.log(2) + 0.2 + 7.0, abs=1e-7)
    assert sol.duals[0] == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("divergence", ["logdet", "von_neumann"])
def test_low_rank_is_the_dense_problem_on_the_range(rng, divergence):
    G = rng.normal(size=(12, 3))
    i, j = np.array([0, 2, 5]), np.array([1, 3, 6])
    bound = np.array([0.5, 0.7, 1.2]) * np.sum((G[i] - G[j]) ** 2, axis=1)
    X = bo.PSD(12)
    low = solve(
        bo.Problem(bo.Minimize(DIVERGENCE[divergence](X, bo.LowRank(G))), [bo.sq_distance(X, i, j) <= bound])
    )
    assert isinstance(low.X, bo.LowRank)
    Q, R = np.linalg.qr(G)
    M = bo.PSD(3)
    rows = [bo.quad_form(Q[i] - Q[j], M) <= bound]
    dense = solve(bo.Problem(bo.Minimize(DIVERGENCE[divergence](M, R @ R.T)), rows))
    assert low.value == pytest.approx(dense.value, abs=1e-6)
    np.testing.assert_allclose(low.X.dense(), Q @ dense.X @ Q.T, atol=2e-3)


@pytest.mark.parametrize(
    ("size", "condition", "divergence"), turns([1e-5, 1.0, 1e5], [10.0, 1e7], DIVERGENCE)
)
def test_units_and_conditioning_do_not_matter(rng, divergence, condition, size):
    X0 = size * positive_definite(rng, 5, condition)
    z = rng.normal(size=(3, 5))
    X = bo.PSD(5)
    rows = [bo.quad_form(z, X) <= 0.8 * np.einsum("ki,ij,kj->k", z, X0, z), bo.trace(X) == np.trace(X0)]
    sol = solve(bo.Problem(bo.Minimize(DIVERGENCE[divergence](X, X0)), rows), tol=1e-6)
    assert np.linalg.eigvalsh(sol.X)[0] >= -1e-14 * size


# --- No answer ----------------------------------------------------------------------------------------


def triangle(X):
    """Three unit vectors cannot be pairwise at an obtuse angle of more than 120 degrees."""
    return [bo.diag(X) == 1.0, X[[0, 1, 0], [1, 2, 2]] <= -0.6]


@pytest.mark.parametrize(("unit", "kind"), turns([1.0, 1e6], [*DIVERGENCE, "linear"]))
def test_infeasible_is_proven(kind, unit):
    X = bo.PSD(4)
    objective = bo.trace(X) if kind == "linear" else DIVERGENCE[kind](X, np.eye(4))
    problem = bo.Problem(bo.Minimize(objective), [*triangle(X), unit * X[3, 0] <= unit])
    sol = peers.reference(problem)
    assert sol.status == "infeasible", sol.stop_reason
    assert sol.value == np.inf
    assert sol.X is None


def test_infeasible_is_proven_without_a_trace_bound_and_with_variables():
    X, u = bo.PSD(3), bo.Variable(lower=0.0, upper=2.0)
    rows = [
        bo.sq_distance(X, 0, 1) <= 1.0,
        bo.sq_distance(X, 1, 2) <= 1.0,
        bo.sq_distance(X, 0, 2) >= 7.0 - u,
    ]
    assert peers.reference(bo.Problem(bo.Minimize(bo.trace(X)), rows)).status == "infeasible"


def test_soft_rows_do_not_make_a_problem_infeasible():
    X = bo.PSD(4)
    equal, obtuse = triangle(X)
    solve(bo.Problem(bo.Minimize(bo.trace(X)), [equal, bo.soft(obtuse)]))


def test_unbounded_is_proven():
    X = bo.PSD(3)
    sol = peers.reference(
        bo.Problem(bo.Maximize(bo.trace(X)), [bo.sq_distance(X, 0, 1) == 1.0, X[2, 2] <= 5.0])
    )
    assert sol.status == "unbounded", sol.stop_reason
    assert sol.value == np.inf


def test_unbounded_in_a_variable_against_a_hinge_is_proven():
    X, u = bo.PSD(2), bo.Variable(name="u")
    rows = [bo.soft(bo.diag(X) >= u, gamma=0.4), bo.trace(X) <= 1.0]
    assert peers.reference(bo.Problem(bo.Maximize(u), rows)).status == "unbounded"


# --- The backend --------------------------------------------------------------------------------------


def simple():
    X = bo.PSD(3)
    return bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(3))), [X[0, 1] >= 0.5])


def test_backend_goes_by_kind_and_size():
    def choice(n, divergence):
        X = bo.PSD(n)
        routes = routing.routes(bo.Problem(bo.Minimize(divergence(X)), [bo.trace(X) == 1.0]).program())
        return next(route.choice for route in routes if route.solver == "cvxpy")

    assert choice(5, lambda X: bo.logdet_div(X, np.eye(5))) == "backend CLARABEL"
    assert choice(40, lambda X: bo.logdet_div(X, np.eye(40))) == "backend SCS"
    assert choice(40, bo.trace) == "backend CLARABEL"
    assert choice(80, bo.trace) == "backend SCS"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"backend": "CLARABLE"}, ValueError, r"unknown backend 'CLARABLE'; did you mean 'CLARABEL'\?.*SCS"),
        ({"backend": 3}, TypeError, "backend is 3"),
        ({"backend_options": 7}, TypeError, "backend_options is 7; expected a dict"),
        ({"backend_options": {"no_such": 1}}, TypeError, "no_such"),
        (
            {"backend_options": {"verbose": True}},
            ValueError,
            "has 'verbose', which is no option of a backend",
        ),
        ({"backend_options": {"solver": "SCS"}}, ValueError, "has 'solver', which is no option of a backend"),
        ({"backend_options": {1: 1}}, TypeError, "has the key 1; expected the name of an option"),
        ({"time_limit": 10**400}, ValueError, "expected a number above 0 and below 1e.70"),
        ({"max_iter": 10**30}, ValueError, f"max_iter is {10**30}; expected at most 2147483647"),
        ({"backnd": "SCS"}, TypeError, "did you mean 'backend'"),
    ],
)
def test_bad_options_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        simple().solve(solver="cvxpy", **options)


def test_backend_that_takes_no_matrices_fails_with_its_words():
    with pytest.raises(bo.SolverError, match="OSQP failed"):
        simple().solve(solver="cvxpy", backend="OSQP")


def test_limits_are_handed_on():
    with pytest.warns(bo.ConvergenceWarning, match="user_limit"):
        sol = simple().solve(solver="cvxpy", max_iter=3)
    assert sol.status == "user_limit"
    assert sol.iterations == 3
    assert sol.stop_reason.startswith("max_iter")
    with pytest.warns(bo.ConvergenceWarning):
        sol = simple().solve(solver="cvxpy", backend="SCS", backend_options={"max_iters": 2})
    assert sol.iterations == 2


def test_one_line_of_history():
    sol = solve(simple())
    assert sol.history["gap"].shape == (1,)
    assert sol.stop_reason.startswith("The certificate meets the tolerance. CLARABEL says optimal")


def test_thousands_of_rows_are_one_constraint_of_cvxpy(rng):
    n, m = 10, 3000
    i, j = rng.integers(0, n, size=(2, m))
    i, j = i[i != j], j[i != j]
    X = bo.PSD(n)
    rows = [bo.sq_distance(X, i, j) <= 1.8, bo.diag(X) == 1.0]
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(n))), rows)
    assert len(problem.to_cvxpy().constraints) == 2
    solve(problem, tol=1e-6)


def after_ctrl_c_in_the_import(at, action):
    """Return the lines that an action prints when the signal comes at one of CVXPY's own imports."""
    code = f"""
import builtins, signal, warnings
import bregopt as bo
warnings.simplefilter("ignore", bo.ConvergenceWarning)
names, real = [], builtins.__import__
def importing(name, *rest):
    if name.startswith("cvxpy."):
        names.append(name)
        if len(names) == {at}:
            signal.raise_signal(signal.SIGINT)
    return real(name, *rest)
builtins.__import__ = importing
X = bo.PSD(2)
problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] == 1])
try:
    {action}
except KeyboardInterrupt:
    print("KeyboardInterrupt")
builtins.__import__ = real
print(problem.solve("cvxpy").status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


SOLVE, CONVERT = 'print(problem.solve("cvxpy").status)', "problem.to_cvxpy()"


@pytest.mark.parametrize(
    ("at", "action"),
    [
        (10, SOLVE),
        (200, CONVERT),
        pytest.param(10, CONVERT, marks=pytest.mark.slow),
        pytest.param(200, SOLVE, marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_during_the_import_leaves_no_half_of_cvxpy(at, action):
    """During a solve Ctrl-C gives an answer, elsewhere it is raised after the import; later solves work."""
    first = "user_limit" if action is SOLVE else "KeyboardInterrupt"
    assert after_ctrl_c_in_the_import(at, action) == [first, "optimal"]


def test_asked_again_in_the_users_units(data):
    """In our units Clarabel stops at 57 for this problem, whose optimum is known."""
    problem = bo.read_sdpa(data / "sdplib" / "control1.dat-s.gz")
    assert solve(problem, tol=1e-7, backend="CLARABEL").value == pytest.approx(17.78463, rel=1e-6)


@pytest.mark.parametrize(("backend", "steps"), turns(["CLARABEL", "SCS"], [1, 2, 3]))
def test_a_backends_word_is_no_proof(backend, steps):
    """Backends at a limit call feasible problems infeasible; the answer is then an iterate."""
    X = bo.PSD(3)
    feasible = bo.Problem(
        bo.Minimize(bo.logdet_div(X, 1e3 * np.eye(3))), [X[0, 0] <= 1e-3, X[0, 1] >= 1, X[1, 1] <= 1e4]
    )
    with pytest.warns(bo.ConvergenceWarning):
        sol = feasible.solve(solver="cvxpy", backend=backend, max_iter=steps)
    assert sol.status == "user_limit"
    assert sol.X is not None


def test_a_solver_of_cvxpy_is_named_as_a_backend():
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 1])
    with pytest.raises(ValueError, match="solver='cvxpy', backend='SCS'"):
        problem.solve(solver="SCS")
    assert problem.solve(solver="cvxpy", backend="SCS").value == pytest.approx(2, abs=1e-4)


@pytest.mark.parametrize(("backend", "n"), turns(["CLARABEL", "SCS"], [6, 9, 14]))
def test_balanced_cuts_are_solved_on_their_face(n, backend):
    """The rows diag X = 1 and sum X = 0 leave no interior."""
    rng = np.random.default_rng(n)
    W = np.triu(rng.random((n, n)) < 0.5, 1) * rng.random((n, n))
    laplacian = np.diag((W + W.T).sum(axis=1)) - W - W.T
    X = bo.PSD(n)
    rows = [bo.diag(X) == 1, bo.quad_form(np.ones(n), X) == 0]
    problem = bo.Problem(bo.Minimize(bo.inner(laplacian / 4, X)), rows)
    check = bo.cross_check(problem, solvers=("path", backend))
    assert [row.status for row in check.rows] == ["optimal", "optimal"]
    assert check.ok, f"\n{check}"


@pytest.mark.parametrize("error", [ArithmeticError, RuntimeError, np.linalg.LinAlgError, ValueError])
def test_a_failure_of_a_backend_is_a_status(error, monkeypatch):
    def fails(self, *arguments, **options):
        raise error("numbers out of range")

    monkeypatch.setattr(cp.Problem, "unpack_results", fails)
    with pytest.warns(bo.ConvergenceWarning, match="inaccurate"):
        sol = simple().solve(solver="cvxpy", backend="CLARABEL")
    assert sol.status == "inaccurate"
    assert "CLARABEL failed: numbers out of range" in sol.stop_reason
    assert np.isinf(sol.error)
