"""Certificates: the dual function is correct, bounds hold at any multipliers, proofs are checked."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instances import random_nearness
from samples import turns

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify, is_farkas, is_ray, trace_bound
from bregopt.certify.slacks import least_eigenvalue
from bregopt.program import Bounds, Penalty


def bounds_of(kind, m, lo=0.5, hi=2.0, gamma=1.3):
    weight = np.inf if kind == Penalty.HARD else gamma
    return Bounds(np.full(m, lo), np.full(m, hi), np.full(m, int(kind)), np.full(m, weight))


@pytest.mark.parametrize("kind", list(Penalty))
@given(y=st.floats(-1.2, 1.2))
def test_conjugate_is_the_minimum_over_activities(kind, y):
    if kind == Penalty.LOGDET and y < 0:
        y /= 2  # the domain ends at -gamma / hi = -0.65
    if kind == Penalty.LOG:
        y = abs(y) + 0.1  # the domain is above 0, and the minimizer is lo + gamma / y
    grid = np.linspace(-4, 6, 10_001) if kind == Penalty.SQUARE else np.geomspace(1e-4, 60, 10_001)
    a = np.append(grid, [0.5, 2.0])  # with the bounds, where the cost has kinks
    bounds = bounds_of(kind, len(a))
    cost = bounds.penalty(a) + y * a + np.where((bounds.violation(a) > 0) & bounds.hard, np.inf, 0.0)
    claimed = bounds.conjugate(np.full(len(a), y))[0]
    assert claimed == pytest.approx(cost.min(), abs=2e-4)
    assert claimed <= cost.min() + 1e-12


@pytest.mark.parametrize(("divergence", "soft"), turns(["logdet", "von_neumann", "frobenius"], [False, True]))
def test_any_multipliers_give_a_lower_bound(divergence, soft):
    problem, *_ = random_nearness(3, divergence, 5, soft)
    sol = problem.solve(solver="bregman", tol=1e-9)
    program = problem.program()
    rng = np.random.default_rng(0)
    best = -np.inf
    for _ in range(200):
        y = program.bounds.clip(sol._raw.duals + 0.3 * rng.normal(size=program.m) * rng.random())
        certificate = certify(PrimalDualPoint(program, (sol.X,), np.zeros(0), y))
        assert certificate.dual <= sol.value + 1e-7
        assert certificate.primal == pytest.approx(sol.value)
        best = max(best, certificate.dual)
    assert best > -np.inf


@pytest.mark.parametrize("divergence", ["logdet", "von_neumann", "frobenius"])
def test_gap_is_a_divergence_plus_complementarity(divergence):
    """primal(X) - dual(y) = D(X, X_y) + sum of |s y|: the gap of every method."""
    from bregopt.program.program import divergence_of

    problem, *_ = random_nearness(5, divergence, 4)
    sol = problem.solve(solver="bregman", tol=1e-9)
    program = problem.program()
    rng = np.random.default_rng(1)
    y = program.bounds.clip(sol._raw.duals * (1 + 0.2 * rng.normal(size=program.m)))
    certificate = certify(PrimalDualPoint(program, (sol.X,), np.zeros(0), y))
    D = divergence_of(program.blocks[0].nearness)
    X_y = D.minimizer(-program.A.adjoint(y), 1.0)
    a = program.A.apply((sol.X,))
    slack = np.where(y > 0, a - program.bounds.lo, program.bounds.hi - a)
    complementarity = float(np.abs(y[y != 0]) @ slack[y != 0])
    if divergence == "frobenius":
        # The minimizer is on the cone's boundary: the complementarity of the cone counts too.
        S = 2 * (X_y - D.X0) - program.A.adjoint(y)
        complementarity += float(np.vdot(S, sol.X))
        between = float(np.sum((sol.X - X_y) ** 2))
    else:
        between = type(D)(X_y).value(sol.X)
    assert certificate.primal - certificate.dual == pytest.approx(between + complementarity, abs=1e-6)


def test_violations_are_reported_relative_to_their_size():
    X = bo.PSD(2)
    for scale in (1e-6, 1.0, 1e6):
        problem = bo.Problem(
            bo.Minimize(bo.frobenius_div(X, scale * np.eye(2))), [X[0, 0] == 2 * scale, X[0, 1] == 0.0]
        )
        point = scale * np.array([[1.9, 0.01], [0.01, 1.0]])
        certificate = certify(PrimalDualPoint(problem.program(), (point,), np.zeros(0), np.zeros(2)))
        assert certificate.primal_residual == pytest.approx(0.05, rel=1e-9)


def test_indefinite_answers_are_not_psd():
    X = bo.PSD(2)
    program = bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) == 1]).program()
    indefinite = np.array([[1.0, 1.5], [1.5, 1.0]])
    certificate = certify(PrimalDualPoint(program, (indefinite,), np.zeros(0), np.ones(2)))
    assert certificate.primal_residual == pytest.approx(0.5)


class TestTraceBound:
    def bound(self, constraints, X):
        return trace_bound(bo.Problem(bo.Minimize(bo.trace(X)), constraints).program(), 0)

    def test_kinds(self):
        X, u = bo.PSD(3), bo.Variable()
        assert self.bound([bo.trace(X) == 2], X).exact
        assert self.bound([bo.trace(X) <= 2], X).value == 2
        assert not self.bound([bo.trace(X) <= 2], X).exact
        assert self.bound([2 * bo.trace(X) == 2], X).value == 1
        assert self.bound([bo.diag(X) == [1, 2, 3]], X).value == 6
        assert self.bound([bo.diag(X) == [1, 2, 3]], X).exact
        assert self.bound([np.array([1.0, 2, 1]) @ bo.diag(X) <= 4], X).value == 4
        assert self.bound([bo.diag(X) <= 5, bo.trace(X) <= 2], X).value == 2
        assert self.bound([X[0, 0] + 9 * X[1, 1] <= 5, bo.diag(X) <= 1], X).value == 3
        assert self.bound([bo.trace(X) >= 2], X) is None
        assert self.bound([X[0, 0] <= 1, X[1, 1] <= 1], X) is None
        assert self.bound([bo.trace(X) <= u], X) is None
        assert self.bound([bo.soft(bo.trace(X) <= 1)], X) is None
        assert self.bound([bo.trace(X) + X[0, 1] <= 1], X) is None

    @pytest.mark.parametrize("hermitian", [False, True])
    def test_rows_with_parts_of_the_diagonal(self, hermitian):
        X, copies = bo.PSD(6, hermitian=hermitian), 1 + hermitian
        source = np.array([[0.5, 0.1, 0], [0.1, 0.3, 0.1], [0, 0.1, 0.7]])
        found = self.bound([bo.partial_trace(X, (3, 2), keep=0) == source], X)
        assert found.exact
        assert found.value == pytest.approx(1.5 * copies, rel=1e-14)
        one, two = X[0, 0] + X[1, 1] <= 1, 2 * X[2, 2] + 3 * (X[3, 3] + X[4, 4]) + 2 * X[5, 5] <= 4
        found = self.bound([one, two], X)
        assert not found.exact
        assert found.value == pytest.approx(3 * copies, rel=1e-14)  # by one + two / 2
        assert self.bound([one, X[2, 2] + X[3, 3] <= 1, X[4, 4] <= 1], X) is None
        overlapping = self.bound([one, X[1, 1] + X[2, 2] == 1, X[3, 3] + X[4, 4] + X[5, 5] == 1], X)
        assert not overlapping.exact
        assert overlapping.value == pytest.approx(3 * copies, rel=1e-14)


def test_farkas_vectors_are_checked():
    X, u = bo.PSD(2), bo.Variable(nonneg=True)
    program = bo.Problem(
        bo.Minimize(bo.trace(X)), [X[0, 0] <= 1, X[1, 1] <= 1, X[0, 1] >= 2, X[0, 0] + u >= 0]
    ).program()
    assert is_farkas(program, np.array([-1.0, -1.0, 2.0, 0.0]))  # -(X00 - 2 X01 + X11) >= -2 + 4
    assert not is_farkas(program, np.array([-1.0, -1.0, 0.9, 0.0]))
    assert not is_farkas(program, np.array([-1.0, -1.0, 2.0, 1.0]))  # u could pay for it
    assert not is_farkas(program, np.zeros(4))
    assert not is_farkas(program, np.array([1.0, 1.0, -2.0, 0.0]))  # multipliers of the wrong sign


def test_rays_are_checked():
    X, u = bo.PSD(2), bo.Variable()
    program = bo.Problem(bo.Maximize(X[0, 0] + u), [X[1, 1] <= 1, u <= X[1, 1]]).program()
    assert is_ray(program, (np.diag([1.0, 0.0]),), np.zeros(1))
    assert not is_ray(program, (np.diag([0.0, 1.0]),), np.zeros(1))
    assert not is_ray(program, (np.zeros((2, 2)),), np.ones(1))
    assert not is_ray(program, (np.diag([1.0, -1.0]),), np.zeros(1))
    assert not is_ray(program, (np.diag([-1.0, 0.0]),), np.zeros(1))


def test_finite_differences_of_the_dual_function():
    """The slope of the dual in a multiplier is its bound minus the activity of the minimizer."""
    from bregopt.program.program import divergence_of

    for divergence in ("logdet", "von_neumann", "frobenius"):
        problem, *_ = random_nearness(7, divergence, 4)
        sol = problem.solve(solver="bregman", tol=1e-9)
        program, y = problem.program(), sol._raw.duals.copy()
        k, h = int(np.argmax(np.abs(y))), 1e-6
        up, down = y.copy(), y.copy()
        up[k] += h
        down[k] -= h
        values = [certify(PrimalDualPoint(program, (sol.X,), np.zeros(0), t)).dual for t in (up, down)]
        X_y = divergence_of(program.blocks[0].nearness).minimizer(-program.A.adjoint(y), 1.0)
        bound = program.bounds.lo[k] if y[k] > 0 else program.bounds.hi[k]
        slope = bound - program.A.apply((X_y,))[k]
        assert (values[0] - values[1]) / (2 * h) == pytest.approx(slope, abs=1e-5)


def test_a_sharp_bound_uses_eigenvalues_above_zero(rng):
    """At a known trace ``C - A*(y)`` may be shifted; without `sharp`, a definite one counts as zero."""
    G = rng.normal(size=(4, 4))
    C = G @ G.T + np.eye(4)
    X = bo.PSD(4)
    program = bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.trace(X) == 2]).program()
    at = (np.eye(4) / 2,), np.zeros(0), np.zeros(1)
    sharp, unsharp = (certify(PrimalDualPoint(program, *at, sharp=s)) for s in (True, False))
    assert sharp.dual == pytest.approx(2 * np.linalg.eigvalsh(C)[0])
    assert unsharp.dual == 0


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_variables_have_the_size_of_those_that_they_share_rows_with(unit):
    X, t, v, w = bo.PSD(3), bo.Variable(), bo.Variable(), bo.Variable()
    rows = [bo.trace(X) == 1, 1e6 * X[0, 1] - t >= 0, t - unit * v == 0, 2 * v + w >= 1]
    program = bo.Problem(bo.Minimize(t), rows).program()
    sizes = dict(zip((t.name, v.name, w.name), program.column_sizes, strict=True))
    assert sizes[v.name] == pytest.approx(unit * sizes[t.name])
    assert sizes[w.name] == pytest.approx(sizes[v.name] / 2)


@pytest.mark.parametrize(
    ("least", "size", "units"), [(1e-9, 1, [1, 2, 1]), (0, 1, [1, 2, 1]), (0.1, 10, [1, 2, 0.1])]
)
def test_a_coefficient_that_nearly_vanishes_measures_no_variables(least, size, units):
    X, q, s = bo.PSD(3), bo.Variable(), bo.Variable(3)
    forms = [a * X[i, i] for i, a in enumerate((1.0, 2.0, least))]
    rows = [form + q - s[i] == 0 for i, form in enumerate(forms)]
    program = bo.Problem(bo.Minimize(q), [*rows, s >= 0]).program()
    assert sorted(program.column_sizes) == pytest.approx(sorted([size, 1, 0.5, 1 / units[2]]))
    assert program.row_units[:3] == pytest.approx(units)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_coefficients_of_round_off_measure_no_variables(unit):
    """A sine of pi is 1e-16: a beam pattern has such coefficients beside others of its variables."""
    X, s = bo.PSD(3), bo.Variable(2)
    programs = []
    for noise in (0.0, 1e-16):
        rows = [X[0, 0] - unit * bo.sum(s) == 0, X[0, 1] - unit * (noise * s[0] + s[1]) == 0, bo.sum(s) == 1]
        programs.append(bo.Problem(bo.Minimize(bo.trace(X)), [*rows, s >= 0]).program())
    clean, noisy = programs
    assert noisy.B.nnz == clean.B.nnz + 1
    assert noisy.bound_scale == clean.bound_scale == pytest.approx(unit)
    assert np.array_equal(noisy.column_sizes, clean.column_sizes)
    assert np.array_equal(noisy.row_units, clean.row_units)


@pytest.mark.parametrize("solver", ["path", "cvxpy"])
def test_costs_of_variables_far_from_the_matrices_count(solver):
    """Each hinge has two more variables, as in CVXPY, in units of a million."""
    rng = np.random.default_rng(2)
    F = rng.normal(size=(8, 3, 3))
    A = 1e6 * (F + F.transpose(0, 2, 1))
    X, t, bent, paid = bo.PSD(3), bo.Variable(), bo.Variable(8), bo.Variable(8)
    rows = [bo.inner(A, X) - t >= bent, bo.trace(X) == 1]
    direct = bo.Problem(bo.Maximize(t), [bo.soft(bo.inner(A, X) - t >= 0, gamma=0.3), rows[1]]).solve()
    far = bo.Problem(bo.Maximize(t - 0.3 * bo.sum(paid)), [*rows, paid >= bent, paid >= -bent])
    for tol in (1e-3, 1e-4, 1e-5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            sol = far.solve(solver=solver, tol=tol)
        assert abs(sol.value - direct.value) <= sol.error + direct.error
        assert sol.status == "optimal" or solver == "cvxpy"


def test_an_eigenvalue_above_zero_is_zero_where_round_off_stops_the_factorization(monkeypatch):
    def stopped(S):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(np.linalg, "cholesky", stopped)
    S = np.diag([1.0, 2.0])
    assert least_eigenvalue(S) == 0.0
    assert least_eigenvalue(S, above_zero=True) == 1.0
    assert least_eigenvalue(-S) == -2.0
