"""Logarithms and log-determinants in objectives, beside everything that the route `path` takes."""

import itertools
import warnings

import cvxpy as cp
import numpy as np
import peers
import pytest
from languages import CVXPY, OURS
from samples import turns

import bregopt as bo
from bregopt.certify import is_ray
from bregopt.io.spec import load_spec


class Model:
    """The variables and rows of one language."""

    def __init__(self, m):
        rng = np.random.default_rng(5)
        G = rng.normal(size=(8, 3))
        self.m, self.S, self.V = m, G.T @ G / 8, rng.normal(size=(5, 3))
        self.X, self.Y = m.PSD(3, name="X"), m.PSD(2, name="Y")
        self.t, self.u = m.Variable(name="t"), m.Variable(4, name="u")
        self.likelihood = m.inner(self.S, self.X) - m.log_det(self.X)


# The minimized objective and the rows, in terms of a model.
PROBLEMS = {
    "log_det, a variable": lambda m, p: (p.likelihood + p.t, [m.trace(p.X) <= p.t, p.X[0, 1] == 0.1]),
    "log_det, a block without": lambda m, p: (
        p.likelihood + m.trace(p.Y),
        [p.X[0, 1] == p.Y[0, 1], p.Y[0, 0] >= p.X[0, 0]],
    ),
    "log_det, two weights": lambda m, p: (
        p.likelihood + m.trace(p.Y) - 3 * m.log_det(p.Y) + p.t,
        [p.X[0, 1] == p.Y[0, 1], p.t >= p.Y[0, 0] + p.X[0, 0]],
    ),
    "log_det, a second-order cone": lambda m, p: (p.likelihood + p.t, [m.norm2(p.X[0, :]) <= p.t]),
    "log_det, a matrix inequality": lambda m, p: (p.likelihood, [p.X - np.diag([1.0, 2.0, 0.5]) >> 0]),
    "log_det, a norm and a variable": lambda m, p: (
        p.likelihood + 0.2 * m.norm1(p.X) + m.square(p.t),
        [p.t >= p.X[0, 0] - 1],
    ),
    "log_det, sparse minus low rank": lambda m, p: (
        p.likelihood + 0.1 * m.norm1(p.X) + 0.5 * m.trace(p.Y),
        [p.X[:2, :2] + p.Y >> np.eye(2)],
    ),
    "log_det of a design": lambda m, p: (
        -m.log_det(sum(p.u[k] * np.outer(v, v) for k, v in enumerate(p.V[:4]))),
        [m.sum(p.u) == 1, p.u >= 0, p.u <= 0.3],
    ),
    "log of variables and entries": lambda m, p: (
        -m.sum(m.log(p.u)) - m.log(p.X[0, 1] + 0.5) + m.trace(p.X),
        [m.sum(p.u) <= p.X[1, 1], p.u[0] >= 2 * p.u[1]],
    ),
    "log with weights": lambda m, p: (
        -np.array([1.0, 2.0, 0.5, 3.0, 1.0]) @ m.log(m.quad_form(p.V, p.X)),
        [m.trace(p.X) == 1],
    ),
    "log beside log_det and a cone": lambda m, p: (
        p.likelihood - 2 * m.log(1 - p.t) + m.norm2(p.u),
        [p.t >= p.X[0, 0], m.sum(p.u) == 1],
    ),
    "log of a concave": lambda m, p: (-m.log(m.min(p.u)) + m.trace(p.X), [m.sum(p.u) == p.X[0, 0] + 1]),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_beside_cvxpy(name):
    def make(m):
        objective, rows = PROBLEMS[name](m, p := Model(m))
        return p, m.Problem(m.Minimize(objective), rows)

    (_, ours), (_, theirs) = make(OURS), make(CVXPY)
    found = ours.solve(tol=1e-7)
    assert (found.status, found.solver) == ("optimal", "path")
    peer = peers.ask(theirs)
    peer.confirms(found)
    assert ours.objective.expression.value == pytest.approx(found.value, abs=1e-5)
    for c, dual in zip(ours.constraints, peer.duals, strict=True):
        peer.near(c.dual_value, dual, 2e-3 * max(1.0, np.abs(dual).max()))


def test_hermitian():
    X, t = bo.PSD(3, hermitian=True, name="X"), bo.Variable(name="t")
    S = np.array([[2, 1j, 0], [-1j, 3, 0.5], [0, 0.5, 1]])
    found = bo.Problem(bo.Maximize(bo.log_det(X) - bo.inner(S, X) - t), [bo.trace(X) <= t]).solve(tol=1e-9)
    assert (found.status, found.solver) == ("optimal", "path")
    np.testing.assert_allclose(found.X, np.linalg.inv(S + np.eye(3)), atol=1e-6)


# --- Closed forms and optimality conditions -----------------------------------------------------------


@pytest.mark.parametrize("power", [1e-6, 1.0, 1e6])
def test_water_filling(power):
    gains = np.array([3.0, 1.0, 0.5, 0.2]) / power
    levels = np.sort(1 / gains)
    count = max(k for k in range(1, 5) if levels[k - 1] < (power + levels[:k].sum()) / k)
    level = (power + levels[:count].sum()) / count
    expected = np.maximum(level - 1 / gains, 0)
    Q = bo.PSD(4, name="Q")
    by_logs = bo.Problem(bo.Maximize(bo.sum(bo.log(1 + gains * bo.diag(Q)))), [bo.trace(Q) <= power])
    found = by_logs.solve(tol=1e-9)
    assert found.status == "optimal"
    np.testing.assert_allclose(found.X.diagonal(), expected, atol=1e-6 * power)
    assert by_logs.constraints[0].dual_value == pytest.approx(1 / level, rel=1e-4)
    H = np.diag(np.sqrt(gains * power)) @ np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    capacity = bo.Problem(bo.Maximize(bo.log_det(np.eye(4) + H @ Q @ H.T)), [bo.trace(Q) <= 1])
    assert capacity.solve(tol=1e-9).value == pytest.approx(found.value, rel=1e-6)


def test_kiefer_wolfowitz():
    V = np.random.default_rng(1).normal(size=(40, 4))
    u, M = bo.Variable(40, name="u"), bo.PSD(4, name="M")
    rows = [bo.trace(M) == np.sum(V**2, axis=1) @ u, bo.sum(u) == 1, u >= 0]
    i, j = np.triu_indices(4)
    rows[0] = M[i, j] == (V[:, i] * V[:, j]).T @ u
    problem = bo.Problem(bo.Maximize(bo.log_det(M)), rows)
    found = problem.solve(tol=1e-8)
    assert (found.status, found.solver) == ("optimal", "path")
    leverage = np.einsum("ki,ij,kj->k", V, np.linalg.inv((V.T * u.value) @ V), V)
    assert leverage.max() == pytest.approx(4, rel=1e-6)
    np.testing.assert_allclose(leverage[u.value > 1e-4], 4, rtol=1e-4)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_analytic_center(unit):
    rng = np.random.default_rng(2)
    A, X = rng.normal(size=(9, 3, 3)), bo.PSD(3, name="X")
    A = A + np.swapaxes(A, 1, 2)
    b = 2 + np.abs(np.trace(A, axis1=1, axis2=2))
    slack = [unit * b[k] - bo.inner(A[k], X) for k in range(9)]
    problem = bo.Problem(bo.Maximize(bo.log_det(X) + sum(map(bo.log, slack))), [bo.trace(X) <= 9 * unit])
    found = problem.solve(tol=1e-9)
    assert found.status == "optimal"
    s = unit * b - np.einsum("kij,ij->k", A, found.X)
    gradient = np.linalg.inv(found.X) - np.einsum("kij,k->ij", A, 1 / s)
    gradient -= problem.constraints[0].dual_value * np.eye(3)
    assert np.abs(gradient).max() <= 1e-3 / unit


def test_poisson_likelihood():
    rng = np.random.default_rng(3)
    G = rng.normal(size=(30, 4))
    truth = np.diag([1.0, 2.0, 0.1, 3.0])
    counts = rng.poisson(np.einsum("ki,ij,kj->k", G, truth, G)).astype(float)
    X = bo.PSD(4, name="X")
    rate = bo.quad_form(G, X)
    seen = np.flatnonzero(counts)
    objective = bo.sum(rate) - counts[seen] @ bo.log(bo.quad_form(G[seen], X))
    found = bo.Problem(bo.Minimize(objective)).solve(tol=1e-9)
    assert found.status == "optimal"
    rates = np.einsum("ki,ij,kj->k", G, found.X, G)
    Z = (G.T * (1 - counts / rates)) @ G
    assert np.linalg.eigvalsh(Z)[0] >= -1e-4
    assert abs(np.vdot(Z, found.X)) <= 1e-4


def tomography(qubits, shots=200):
    """Return the vectors of the outcomes of all Pauli settings on a noisy GHZ state, and frequencies > 0."""
    rng, n = np.random.default_rng(0), 2**qubits
    psi = np.zeros(n)
    psi[[0, -1]] = np.sqrt(0.5)
    rho = 0.9 * np.outer(psi, psi) + 0.1 * np.eye(n) / n
    h, y = np.array([[1, 1], [1, -1]]) / np.sqrt(2), np.array([[1, 1], [1j, -1j]]) / np.sqrt(2)
    V, counts = [], []
    for setting in itertools.product([np.eye(2), h, y], repeat=qubits):
        U = np.ones((1, 1))
        for basis in setting:
            U = np.kron(U, basis)
        p = np.maximum(np.einsum("ia,ij,ja->a", U.conj(), rho, U).real, 0)
        V.append(U.T)
        counts.append(rng.multinomial(shots, p / p.sum()))
    f = np.concatenate(counts) / (shots * 3**qubits)
    return np.concatenate(V)[f > 0], f[f > 0]


def r_rho_r(V, f, tol):
    """Return the state of largest likelihood by the iteration R rho R (Lvovsky 2004), to a proven gap."""
    n = V.shape[1]
    rho = np.eye(n) / n
    for _ in range(100_000):
        p = np.einsum("ki,ij,kj->k", V.conj(), rho, V).real
        R = (V.T * (f / p)) @ V.conj()
        if (
            np.linalg.eigvalsh(R)[-1] - 1 <= tol
        ):  # log L is concave: it is at most that much below the maximum
            return rho, float(f @ np.log(p))
        rho = R @ rho @ R
        rho /= np.trace(rho).real
    raise AssertionError("R rho R has not converged")


@pytest.mark.parametrize("qubits", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_tomography_of_largest_likelihood(qubits):
    V, f = tomography(qubits)
    rho, value = r_rho_r(V, f, 1e-9)
    X = bo.PSD(2**qubits, name="X", hermitian=True)
    found = bo.Problem(bo.Maximize(f @ bo.log(bo.quad_form(V, X))), [bo.trace(X) == 1]).solve(tol=1e-10)
    assert found.status == "optimal"
    assert found.value == pytest.approx(value, abs=1e-7)
    np.testing.assert_allclose(found.X, rho, atol=1e-4)


# --- Scales, statuses, small orders -------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_of_the_objective_changes_nothing(unit):
    def solved(scale):
        X, t = bo.PSD(3, name="X"), bo.Variable(name="t")
        objective = bo.log_det(X) + 2 * bo.log(1 - X[0, 1]) - t
        return bo.Problem(bo.Maximize(scale * objective), [bo.trace(X) <= t]).solve(tol=1e-8)

    plain, scaled = solved(1.0), solved(unit)
    assert plain.status == scaled.status == "optimal"
    np.testing.assert_allclose(scaled.X, plain.X, atol=1e-4)
    assert scaled.value == pytest.approx(unit * plain.value, rel=1e-6)


def test_orders_of_one_and_two():
    X = bo.PSD(1, name="X")
    assert bo.Problem(bo.Maximize(3 * bo.log(X[0, 0])), [X[0, 0] <= 7]).solve().value == pytest.approx(
        3 * np.log(7), rel=1e-6
    )
    Y = bo.PSD(2, name="Y")
    found = bo.Problem(bo.Maximize(bo.log(Y[0, 0]) + bo.log(3 - Y[0, 0] - Y[1, 1]))).solve(tol=1e-9)
    assert found.X[0, 0] == pytest.approx(1.5, abs=1e-4)


# Each is the maximized objective and the rows of X, of order 4, and of u, t.
UNBOUNDED = {
    "log_det alone": lambda X, u, t: (bo.log_det(X), []),
    "free directions": lambda X, u, t: (bo.log_det(X), [X[0, 0] <= 1]),
    "a singular cost": lambda X, u, t: (bo.log_det(X) - bo.inner(np.diag([1.0, 1, 1, 0]), X), []),
    "a singular dense cost": lambda X, u, t: (
        bo.log_det(X) - bo.inner(np.ones((4, 4)) + np.diag([1.0, 1, 0, 0]), X),
        [],
    ),
    "an indefinite cost": lambda X, u, t: (bo.log_det(X) - bo.inner(np.diag([1.0, 1, 1, -1]), X), []),
    "a linear term": lambda X, u, t: (bo.log_det(X) + t, [bo.trace(X) <= t]),
    "a free variable": lambda X, u, t: (bo.log_det(X), [bo.trace(X) <= t]),
    "variables": lambda X, u, t: (bo.sum(bo.log(u)) - bo.trace(X), [bo.trace(X) >= 1]),
    "one of the variables": lambda X, u, t: (bo.sum(bo.log(u)) - bo.trace(X), [u[:2] <= 1, X[0, 0] >= u[0]]),
    "entries": lambda X, u, t: (bo.log(X[0, 0] + 1), [X[1, 1] <= 1]),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_unbounded(name):
    X, u, t = bo.PSD(4, name="X"), bo.Variable(3, name="u"), bo.Variable(name="t")
    objective, rows = UNBOUNDED[name](X, u, t)
    problem = bo.Problem(bo.Maximize(objective), rows)
    found = problem.solve()
    assert (found.status, found.value) == ("unbounded", np.inf)
    program = problem.program()
    blocks = found.ray.X if isinstance(found.ray.X, tuple) else (found.ray.X,)
    values = [found.ray.u[name] for name, _ in program.columns]
    assert is_ray(program, blocks, np.concatenate([np.zeros(0), *map(np.atleast_1d, values)]))


@pytest.mark.parametrize("least", [1e-3, 1e-6, 1e-9])
def test_a_small_slope_is_no_ray(least):
    X = bo.PSD(3, name="X")
    S = np.diag([1.0, 1.0, least])
    found = bo.Problem(bo.Maximize(bo.log_det(X) - bo.inner(S, X)), [X[0, 1] == 0.1]).solve()
    assert found.status in ("optimal", "optimal_inaccurate", "user_limit")
    program = bo.Problem(bo.Maximize(bo.log_det(X) - bo.inner(S, X))).program()
    assert not is_ray(program, (np.diag([0.0, 0.0, 1.0]),), np.zeros(0))


INFEASIBLE = {
    "an empty domain": lambda X, u: (bo.log(X[0, 0] - 2) - bo.trace(X), [bo.trace(X) <= 1]),
    "variables": lambda X, u: (bo.sum(bo.log(u)) - bo.trace(X), [bo.sum(u) <= -1]),
    "two logarithms": lambda X, u: (bo.log(X[0, 0] - 2) + bo.log(1 - bo.trace(X)), []),
    "rows": lambda X, u: (bo.log_det(X) - bo.norm2(u), [bo.trace(X) <= u[0], u[0] <= -1]),
}


@pytest.mark.parametrize("name", INFEASIBLE)
def test_infeasible(name):
    X, u = bo.PSD(3, name="X"), bo.Variable(3, name="u")
    objective, rows = INFEASIBLE[name](X, u)
    found = bo.Problem(bo.Maximize(objective), rows).solve()
    assert found.status == "infeasible"


E = np.ones(3)
# Rows that hold for psd matrices, but for no definite ones: a log-determinant is minus infinity there.
WITHOUT_INTERIOR = {
    "a null vector": lambda X, Y, u: (bo.log_det(X) - bo.trace(X), [X @ E == 0]),
    "a large trace": lambda X, Y, u: (bo.log_det(X), [X @ E == 0, bo.trace(X) == 1e6]),
    "a correlation of one": lambda X, Y, u: (bo.log_det(X), [bo.diag(X) == 1, X[0, 1] == 1]),
    "a complement": lambda X, Y, u: (bo.log_det(X) + bo.log_det(np.eye(3) - X), [X @ E == E]),
    "another matrix": lambda X, Y, u: (
        bo.log_det(X) - bo.trace(X) - bo.trace(Y),
        [(X - Y) @ E == 0, bo.inner(np.outer(E, E), Y) == 0],
    ),
    "a matrix inequality": lambda X, Y, u: (
        bo.log_det(bo.diag(u)) - bo.trace(X),
        [u[0] + u[1] == 0, u <= 1],
    ),
    "a zero": lambda X, Y, u: (bo.sum(bo.log(bo.diag(X))), [X[0, 0] == 0, bo.trace(X) == 1]),
    "two zeros": lambda X, Y, u: (bo.sum(bo.log(bo.diag(X))) - bo.trace(X), [X[0, 0] + X[1, 1] == 0]),
    "two logarithms": lambda X, Y, u: (
        bo.log(X[0, 0] - 1) + bo.log(X[1, 1]) - bo.trace(X),
        [X[0, 0] + X[1, 1] == 1],
    ),
}


@pytest.mark.parametrize("name", WITHOUT_INTERIOR)
def test_matrices_without_an_interior_have_no_log_determinant(name):
    X, Y, u = bo.PSD(3), bo.PSD(3), bo.Variable(3)
    objective, rows = WITHOUT_INTERIOR[name](X, Y, u)
    assert bo.Problem(bo.Maximize(objective), rows).solve().status == "infeasible"


@pytest.mark.parametrize(("n", "hermitian"), turns([4, 20, 60], [False, True]))
def test_nearness_without_an_interior(n, hermitian):
    X = bo.PSD(n, hermitian=hermitian)
    near = bo.Minimize(bo.logdet_div(X, np.eye(n)))
    assert bo.Problem(near, [X[0, 0] == 1, X[1, 1] == 1, X[0, 1] == 1]).solve().status == "infeasible"
    # A least eigenvalue of 1e-8 is positive; the others stay at one.
    found = bo.Problem(near, [X[0, 0] == 1, X[1, 1] == 1, X[0, 1] == 1 - 1e-8]).solve()
    assert found.status == "optimal"
    assert found.value == pytest.approx(-np.log(1 - (1 - 1e-8) ** 2), rel=1e-6)


def test_a_domain_that_one_row_empties():
    X = bo.PSD(3, name="X")
    with pytest.raises(bo.InfeasibleRowError, match=r"log\(-trace\(X\)\)\) needs an argument above 0"):
        bo.Problem(bo.Maximize(bo.log(-bo.trace(X)))).solve()


# --- The language -------------------------------------------------------------------------------------


def test_values_and_refusals():
    X, x = bo.PSD(2, name="X"), bo.Variable(2, name="x")
    X.value, x.value = np.array([[1.0, 0.5], [0.5, 2.0]]), np.array([1.0, -1.0])
    assert bo.log(X[0, 0]).value == 0
    assert bo.log(x).value.tolist() == [0, -np.inf]
    assert bo.log(X).curvature == "concave"
    with pytest.raises(TypeError, match="concave"):
        bo.Minimize(bo.log(X[0, 0]))
    with pytest.raises((TypeError, ValueError)):
        bo.log(bo.square(x))
    with pytest.raises((TypeError, ValueError)):
        bo.log(3.0)
    with pytest.raises(bo.UnsupportedProblemError, match="the row x >= exp"):
        bo.Problem(bo.Minimize(bo.trace(X)), [bo.log(X[0, 0]) >= 1])
    with pytest.raises(ValueError, match="weight"):
        weight = bo.Parameter(name="w", value=-1.0)
        bo.Problem(bo.Maximize(weight * bo.log(X[0, 0])), [bo.trace(X) <= 1]).solve()
    for route in ("bregman", "psdboost", "lowrank", "definiteboost"):
        with pytest.raises(bo.UnsupportedProblemError):
            bo.Problem(bo.Maximize(bo.log(X[0, 0])), [bo.trace(X) == 1]).solve(route)


def test_a_parameter_weighs_and_its_derivative():
    rng = np.random.default_rng(4)
    w = [bo.Parameter(name=f"w{k}", value=1.0 + k) for k in range(3)]
    X, G = bo.PSD(3, name="X"), rng.normal(size=(3, 3))
    G = G + G.T
    objective = bo.log_det(X) + sum(w[k] * bo.log(X[k, k] + 0.1 * k) for k in range(3))
    problem = bo.Problem(bo.Maximize(objective), [bo.trace(X) <= 1, X[0, 1] == 0.05])
    found = problem.solve(tol=1e-10)
    gradient = found.derivative().vjp(X=G).parameters
    for p in w:
        value, ends = float(p.value), []
        for step in (1e-3, -1e-3):
            p.value = value + step
            ends.append(np.vdot(G, problem.solve(tol=1e-10).X))
        p.value = value
        assert gradient[p] == pytest.approx((ends[0] - ends[1]) / 2e-3, abs=1e-4)


def test_to_and_from_cvxpy_and_files(tmp_path):
    objective, rows = PROBLEMS["log beside log_det and a cone"](OURS, Model(OURS))
    problem = bo.Problem(bo.Minimize(objective), rows)
    value = problem.solve(tol=1e-8).value
    assert problem.to_cvxpy().is_dcp()
    assert problem.solve("cvxpy").value == pytest.approx(value, abs=1e-4)
    path = tmp_path / "problem.toml"
    problem.to_spec(path)
    assert load_spec(path).problem.solve(tol=1e-8).value == pytest.approx(value, abs=1e-6)
    objective, rows = PROBLEMS["log with weights"](CVXPY, Model(CVXPY))
    read = bo.from_cvxpy(cp.Problem(cp.Minimize(objective), rows))
    ours = bo.Problem(
        bo.Minimize(PROBLEMS["log with weights"](OURS, p := Model(OURS))[0]), [bo.trace(p.X) == 1]
    )
    assert read.solve(tol=1e-8).value == pytest.approx(ours.solve(tol=1e-8).value, abs=1e-6)


def test_notation():
    X = bo.PSD(2, name="X")
    problem = bo.Problem(bo.Maximize(bo.log(X[0, 0]) + bo.log_det(X)), [bo.trace(X) <= 1])
    assert "log X[0, 0] + log det X" in str(problem)
    assert r"\operatorname{log} X_{0,0}" in problem._repr_latex_()


# --- A working set whose problem is unbounded ---------------------------------------------------------


@pytest.mark.parametrize("m", [1000, 5000])
def test_few_rows_may_leave_the_problem_unbounded(m):
    V = np.random.default_rng(0).normal(size=(m, 6))
    X = bo.PSD(6, name="X")
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(6)) - bo.trace(X)), [bo.quad_form(V, X) <= 1])
    found = problem.solve("bregman", max_iter=200)  # the first working set has no row
    assert found.status == "optimal"
    y = problem.constraints[0].dual_value
    np.testing.assert_allclose((V.T * y) @ V, np.linalg.inv(found.X), rtol=1e-4, atol=1e-4)


def test_path_on_a_working_set():
    V = np.random.default_rng(0).normal(size=(3000, 5))
    X, t = bo.PSD(5, name="X"), bo.Variable(name="t")
    problem = bo.Problem(bo.Maximize(bo.log_det(X) - t), [bo.quad_form(V, X) <= t])
    found = problem.solve()
    assert (found.status, found.solver) == ("optimal", "path")
    assert t.value == pytest.approx(5, rel=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem.solve(tol=1e-8)


@pytest.mark.parametrize("seed", [57, 83, 124, 127])
def test_hinges_beside_a_determinant_do_not_cycle(seed):
    """The second-order terms of short predictors, taken again and again, leave the path of a fixed weight."""
    rng, n, k = np.random.default_rng(seed), 5, 4

    def affine():
        A = rng.normal(size=(n, n))
        return bo.inner((A + A.T) / 2, X) + rng.normal(size=k) @ x + rng.normal()

    X, x = bo.PSD(n), bo.Variable(k, lower=-5.0, upper=5.0, name="x")
    hinges = sum(bo.pos(affine()) for _ in range(3))
    rows = [affine() == rng.normal() for _ in range(2)]
    cost = 100 * (hinges - 0.9 * bo.log_det(X + 0.1 * np.eye(n)))
    problem = bo.Problem(bo.Minimize(cost), [*rows, bo.trace(X) <= 3, bo.abs(X) <= 20])
    solution = problem.solve(solver="path", tol=1e-8)
    assert solution.status == "optimal"
    peers.ask(problem).agrees(solution.value, solution.error)


@pytest.mark.parametrize("seed", range(8))
def test_a_determinant_falls_along_singular_matrices(seed):
    """In round-off, a ray of rank one has eigenvalues of either sign; definite ones beside it prove it."""
    A = np.random.default_rng(seed).normal(size=(2 + seed % 5,) * 2)
    X, C = bo.PSD(len(A)), A + A.T
    solution = bo.Problem(bo.Minimize(bo.inner(C, X) - bo.log_det(X))).solve()
    assert solution.status == ("unbounded" if np.linalg.eigvalsh(C)[0] < 0 else "optimal")
