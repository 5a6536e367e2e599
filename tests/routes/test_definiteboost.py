"""The route `definiteboost`: its steps, its iteration bound, and agreement with other routes."""

import math
import signal
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from scipy.linalg import expm
from scipy.optimize import minimize_scalar

import bregopt as bo
from bregopt.program import LinearMap
from bregopt.program.linear_map import Term
from bregopt.program.rows import DenseRows
from bregopt.routes.definiteboost import DefiniteBoostSettings
from bregopt.routes.definiteboost.boost import Boost, iteration_bound

OPTIONS = [
    {"step": step, "order": order}
    for step in ("approximate", "exact")
    for order in ("most_violated", "cyclic")
]


def density(rng, n):
    G = rng.normal(size=(n, n))
    W = G @ G.T + 0.2 * np.eye(n)
    return W / np.trace(W)


def log(W):
    w, V = np.linalg.eigh(W)
    return (V * np.log(w)) @ V.T


def symmetric(rng, count, n):
    C = rng.normal(size=(count, n, n))
    return (C + C.transpose(0, 2, 1)) / 2


def boost_of(C, W1, exact=False, corrections=True):
    A = LinearMap(len(C), (len(W1),), (Term(0, np.arange(len(C)), DenseRows(np.array(C))),))
    return Boost(A, log(W1), 1.0, exact, corrections, bo.tuning("definiteboost"))


def distances(n=8, rows=10, seed=0, factor=0.7):
    rng = np.random.default_rng(seed)
    X0 = density(rng, n)
    i, j = np.triu_indices(n, 1)
    some = rng.permutation(len(i))[:rows]
    i, j = i[some], j[some]
    X = bo.PSD(n, name="X")
    near = bo.sq_distance(X, i, j) <= factor * (X0[i, i] + X0[j, j] - 2 * X0[i, j])
    return bo.Problem(bo.Minimize(bo.von_neumann_div(X, X0)), [near, bo.trace(X) == 1])


def margin(n=4, rows=6, seed=0):
    rng = np.random.default_rng(seed)
    C = symmetric(rng, rows, n)
    C = np.eye(n) + C / np.abs(np.linalg.eigvalsh(C)).max(axis=1)[:, None, None]
    X, theta = bo.PSD(n, name="X"), bo.Variable(name="theta")
    return bo.Problem(bo.Minimize(theta), [bo.inner(C, X) <= theta, bo.trace(X) == 1])


class TestStep:
    @pytest.mark.parametrize("seed", range(5))
    def test_approximate_step_minimizes_the_bound_and_exact_one_the_trace(self, seed):
        rng = np.random.default_rng(seed)
        W, C = density(rng, 4), symmetric(rng, 1, 4)[0]
        w, r = np.linalg.eigvalsh(C), float(np.vdot(W, C))

        def bound(a):
            return (np.exp(-a * w[-1]) * (r - w[0]) + np.exp(-a * w[0]) * (w[-1] - r)) / (w[-1] - w[0])

        def trace(a):
            return np.trace(expm(log(W) - a * C))

        zero = np.zeros(1)
        for exact, function in ((False, bound), (True, trace)):
            boost = boost_of([C], W, exact)
            boost.step(zero, zero)
            best = minimize_scalar(function, (-1, 1), tol=1e-14)
            assert -boost.y[0] == pytest.approx(best.x, abs=1e-6)
            expected = expm(log(W) + boost.y[0] * C)
            np.testing.assert_allclose(boost.X, expected / np.trace(expected), atol=1e-12)
            assert trace(-boost.y[0]) <= bound(-boost.y[0]) + 1e-12  # Golden and Thompson
            if exact:
                assert np.vdot(boost.X, C) == pytest.approx(0, abs=1e-13)
        # Theorem 4.1's rho, and Hoeffding's inequality below it.
        low, high = w[0], w[-1]
        rho = (1 - r / high) ** (high / (high - low)) * (1 - r / low) ** (-low / (high - low))
        best = minimize_scalar(bound, (-1, 1), tol=1e-14)
        assert best.fun == pytest.approx(rho)
        assert -math.log(rho) >= 2 * (r / (high - low)) ** 2

    def test_formula_in_print_is_for_symmetric_ends_only(self):
        def printed(r, low, high):
            return math.log((1 + r / high) / (1 + r / low)) / (high - low)

        C = np.diag([1.0, -1.0, 0.3])
        boost = boost_of([C], np.diag([0.5, 0.2, 0.3]))
        boost.step(np.full(1, -np.inf), np.zeros(1))
        r = 0.5 - 0.2 + 0.09
        assert -boost.y[0] == pytest.approx(printed(r, -1.0, 1.0))
        C = np.diag([2.0, -0.5, 0.3])
        boost = boost_of([C], np.diag([0.3, 0.5, 0.2]))
        boost.step(np.full(1, -np.inf), np.zeros(1))
        assert abs(-boost.y[0] - printed(0.6 - 0.25 + 0.06, -0.5, 2.0)) > 0.1

    def test_diagonal_case_is_adaboost(self):
        rng = np.random.default_rng(3)
        edges = rng.choice([-1.0, 1.0], size=(8, 20))  # y_i h_j(x_i)
        w = rng.dirichlet(np.ones(20))
        boost = boost_of([np.diag(e) for e in edges], np.diag(w), corrections=False)
        for _ in range(30):
            r = edges @ w
            j = int(np.argmax(r))
            if r[j] <= 0:
                break
            w = w * np.exp(-0.5 * math.log((1 + r[j]) / (1 - r[j])) * edges[j])
            w = w / w.sum()
            boost.step(np.full(8, -np.inf), np.zeros(8))
            np.testing.assert_allclose(boost.X, np.diag(w), atol=1e-12)

    def test_largest_divergence_is_that_of_the_least_eigenvector(self):
        rng = np.random.default_rng(4)
        W1 = density(rng, 4)
        w = np.linalg.eigvalsh(W1)
        boost = boost_of(symmetric(rng, 1, 4), W1)
        assert boost.largest_divergence == pytest.approx(-math.log(w[0]))
        assert boost_of(symmetric(rng, 1, 4), np.eye(4) / 4).largest_divergence == pytest.approx(math.log(4))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o.values()))
class TestOptimum:
    def test_is_that_of_bregman(self, options):
        problem = distances()
        reference = problem.solve(solver="bregman", tol=1e-9)
        sol = problem.solve(solver="definiteboost", **options)
        assert sol.status == "optimal"
        assert sol.value == pytest.approx(reference.value, abs=1e-6)
        np.testing.assert_allclose(sol.X, reference.X, atol=1e-5)
        np.testing.assert_allclose(sol.duals[0], reference.duals[0], atol=1e-3)

    def test_equations_two_sided_rows_weights_and_linear_terms(self, options):
        rng = np.random.default_rng(5)
        X0, (A, B, C) = density(rng, 5), symmetric(rng, 3, 5)
        a, b = np.vdot(A, X0), np.vdot(B, X0)
        X = bo.PSD(5)
        objective = 0.7 * bo.von_neumann_div(X, X0) + 0.1 * bo.inner(C, X)
        rows = [bo.inner(A, X) == 2 * a + 0.05, bo.between(bo.inner(B, X), 2 * b + 0.1, 2 * b + 0.3)]
        problem = bo.Problem(bo.Minimize(objective), [*rows, 3 * bo.trace(X) == 6])
        reference = problem.solve(solver="bregman", tol=1e-9)
        sol = problem.solve(solver="definiteboost", **options)
        np.testing.assert_allclose(sol.X, reference.X, atol=1e-5)
        assert sol.duals[2] == pytest.approx(reference.duals[2], abs=1e-4)

    def test_contradiction_is_proven(self, options):
        X = bo.PSD(4)
        rows = [X[0, 0] >= 0.5, X[1, 1] >= 0.4, X[2, 2] >= 0.3, bo.trace(X) == 1]
        sol = bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(4) / 4)), rows).solve(
            solver="definiteboost", **options
        )
        assert sol.status == "infeasible"


def test_steps_as_printed_take_many_more_cycles(monkeypatch):
    # Kulis et al. 2009, §7.1; eq. 4.6 holds as printed for ends -L and L of the spectrum.
    rng = np.random.default_rng(8)
    points = np.repeat(rng.normal(size=(2, 3)), 8, axis=0) + 0.3 * rng.normal(size=(16, 3))
    target = points @ points.T
    target /= np.trace(target)
    i, j = (k[:20] for k in rng.permuted(np.triu_indices(16, 1), axis=1)[:, :40])
    i, j = i[i != j], j[i != j]
    X = bo.PSD(16)
    rows = [bo.sq_distance(X, i, j) <= target[i, i] + target[j, j] - 2 * target[i, j], bo.trace(X) == 1]
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(16) / 16)), rows)

    exact = problem.solve(solver="bregman", method="cyclic", tol=1e-2).iterations
    sharp = problem.solve(solver="definiteboost", order="cyclic", tol=1e-2).iterations

    def printed(self, k, r):
        b = self._mean(k) - r
        size = max(abs(self.least[k] - b), abs(self.largest[k] - b))
        return math.log((1 + r / size) / (1 - r / size)) / (2 * size)

    monkeypatch.setattr(Boost, "_approximate_step", printed)
    with pytest.warns(bo.ConvergenceWarning):
        cut = problem.solve(solver="definiteboost", order="cyclic", tol=1e-2, max_iter=10 * max(exact, sharp))
    assert cut.status == "user_limit"
    assert cut.gap > 0.02


class TestBound:
    @examples(30)
    @given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 6), st.booleans(), st.booleans())
    def test_holds_and_the_dual_rises(self, seed, n, rows, exact, corrections):
        rng = np.random.default_rng(seed)
        inside, C = density(rng, n), symmetric(rng, rows, n)
        C -= np.einsum("kij,ij->k", C, inside)[:, None, None] * np.eye(n)  # `inside` meets all rows
        X = bo.PSD(n)
        problem = bo.Problem(
            bo.Minimize(bo.von_neumann_div(X, np.eye(n) / n)), [bo.inner(C, X) <= 0, bo.trace(X) == 1]
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            sol = problem.solve(
                solver="definiteboost",
                step="exact" if exact else "approximate",
                corrections=corrections,
                max_iter=200,
            )
        assert not sol.status.startswith("infeasible")
        assert sol.iteration_bound == pytest.approx(math.log(n) / 2e-12)
        history = sol.history
        # Corollary 4.2 bounds the number of steps with at least a given violation, for each that occurred.
        if not corrections:  # every step is on a violated row
            least = np.minimum.accumulate(history["violation"])[:-1]
            assert (history["steps"][:-1] <= iteration_bound(math.log(n), 1) / least**2 + 1e-9).all()
            at = np.flatnonzero(np.diff(history["steps"]) == 1)
            rise = history["dual"][at + 1] - history["dual"][at]
            assert (rise >= 2 * history["violation"][at] ** 2 - 1e-12).all()
        assert (np.diff(history["dual"]) >= -1e-12).all()

    def test_an_adversary_needs_nearly_as_many_steps(self):
        # Every row has half of the remaining weight at either end of its eigenvalues, but for the violation,
        # and holds with equality at the first coordinate vector: each step makes the least progress.
        n, steps, violations = 256, 0, []
        w = np.full(n, 1 / n)
        while w[1:].sum() > 0.6:
            sign, r = np.zeros(n), 0.0
            for k in np.argsort(-w[1:]) + 1:
                sign[k] = 1.0 if r < 0.5 else -1.0
                r += sign[k] * w[k]
            boost = boost_of([np.diag(sign)], np.diag(w), corrections=False)
            steps += boost.step(np.full(1, -np.inf), np.zeros(1))
            violations.append(r / 2)
            w = np.diag(boost.X).copy()
        bound = iteration_bound(math.log(n), min(violations))
        assert bound / 1.6 < steps <= bound

    def test_is_broken_by_longer_steps(self):
        # Steps of twice the length oscillate for ever, and exceed the bound.
        C, W1 = np.diag([1.0, -1.0]), np.diag([0.9, 0.1])
        boost, zero, violated = boost_of([C], W1), np.zeros(1), 0
        epsilon = 0.2
        for _ in range(400):
            r = float(np.vdot(C, boost.X))
            violated += abs(r) / 2 > epsilon
            boost.reset(boost.y - 2 * boost._approximate_step(0, r))
        assert violated > iteration_bound(boost.largest_divergence, epsilon)
        boost = boost_of([C], W1)
        boost.step(zero, zero)
        assert abs(float(np.vdot(C, boost.X))) / 2 < epsilon

    def test_passing_it_is_a_proof(self):
        X = bo.PSD(3)
        rows = [X[0, 0] >= 0.6, X[1, 1] >= 0.45, bo.trace(X) == 1]
        problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(3) / 3)), rows)
        sol = problem.solve(solver="definiteboost")
        assert sol.status == "infeasible"
        # At every step some row is violated by 0.05 / 2 or more.
        assert sol.iterations <= 1.1 * iteration_bound(math.log(3), 0.05 / 2) + 1


class TestAsPublished:
    def test_finds_a_matrix_that_meets_the_rows_but_not_the_nearest(self):
        # Kulis et al. 2009, Appendix B.
        X = bo.PSD(3)
        rows = np.array([[0.0912, 0.9385, -0.4377], [0.6020, 0.6020, -0.4377]])
        problem = bo.Problem(
            bo.Minimize(bo.von_neumann_div(X, np.diag([0.1, 0.1, 0.8]))),
            [rows @ bo.diag(X) >= np.array([0.0238, 0.2554]), bo.trace(X) == 1.0],
        )
        with pytest.warns(bo.ConvergenceWarning):
            sol = problem.solve(solver="definiteboost", corrections=False, step="exact", order="cyclic")
        assert sol.status != "optimal"
        assert sol.primal_residual < 1e-5
        assert np.abs(np.diag(sol.X) - 1 / 3).max() > 0.05
        best = problem.solve(solver="definiteboost")
        np.testing.assert_allclose(np.diag(best.X), 1 / 3, atol=1e-3)


@pytest.mark.parametrize("step", ["approximate", "exact"])
def test_round_off_does_not_choose_among_equal_rows(step):
    """From the identity all distances are equal; a start that differs by round-off takes the same steps."""
    n = 12
    i, j = np.triu_indices(n, 1)
    X, noise = bo.PSD(n), 1e-16 * symmetric(np.random.default_rng(0), 1, n)[0]
    duals = []
    for X0 in (np.eye(n) / n, np.eye(n) / n + noise):
        rows = [bo.sq_distance(X, i, j) <= np.where((i + j) % 3, 1 / n, 3 / n), bo.trace(X) == 1]
        problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, X0)), rows)
        with pytest.warns(bo.ConvergenceWarning):
            sol = problem.solve("definiteboost", step=step, corrections=False, max_iter=40)
        duals.append(sol.duals[0])
    np.testing.assert_allclose(*duals, atol=1e-10)


class TestMargin:
    @pytest.mark.parametrize("options", [{"step": "exact"}, {"order": "cyclic"}, {}])
    def test_value_of_path(self, options):
        problem = margin()
        reference = problem.solve(solver="path")
        sol = problem.solve(solver="definiteboost", tol=0.01, **options)
        assert sol.status == "optimal"
        assert abs(sol.value - reference.value) <= sol.error
        assert sol.dual_value <= reference.value + 1e-6
        assert (np.diff(sol.history["dual"]) >= -1e-9).all()
        assert problem.variables[0].value == pytest.approx(sol.value)

    def test_maximized_with_other_rows(self):
        rng = np.random.default_rng(6)
        far, near = rng.normal(size=(5, 3)) * [1.5, 1, 1], 0.5 * rng.normal(size=(5, 3))
        X, rho = bo.PSD(3), bo.Variable(name="rho")
        rows = [bo.quad_form(far, X) - bo.quad_form(near, X) >= rho, X[0, 0] <= 0.6, bo.trace(X) == 2]
        problem = bo.Problem(bo.Maximize(rho), rows)
        reference = problem.solve(solver="path")
        sol = problem.solve(solver="definiteboost", tol=0.05, step="exact")
        assert sol.status == "optimal"
        assert abs(sol.value - reference.value) <= sol.error + 1e-9
        warm = problem.solve(solver="definiteboost", tol=0.05, step="exact", warm_start=True)
        assert warm.iterations < sol.iterations

    def test_contradiction_of_the_other_rows(self):
        X, theta = bo.PSD(2), bo.Variable(name="theta")
        rows = [X[0, 0] - X[1, 1] <= theta, X[0, 0] >= 0.7, X[1, 1] >= 0.6, bo.trace(X) == 1]
        sol = bo.Problem(bo.Minimize(theta), rows).solve(solver="definiteboost", tol=0.01)
        assert sol.status == "infeasible"


class TestRefusals:
    @pytest.mark.parametrize(
        ("declare", "reason"),
        [
            (
                lambda X, t: (bo.von_neumann_div(X, np.eye(2)), [X[0, 0] <= 1, 2 * bo.trace(X) <= 1]),
                r"fixes the trace of X, .*; constraint 1 \(.*\) bounds the trace only",
            ),
            (
                lambda X, t: (bo.von_neumann_div(X, np.eye(2)), [bo.trace(X) == -1]),
                r"constraint 0 \(trace\(X\) == -1\) asks for no positive trace",
            ),
            (lambda X, t: (bo.von_neumann_div(X, np.eye(2)), [bo.diag(X) == 1]), r"== 1\. These"),
            (lambda X, t: (t, [X[0, 0] <= t, bo.trace(X) <= 1]), "constraint 1 .* bounds the trace only"),
            (lambda X, t: (bo.trace(X), [X[0, 0] == 1]), "without a term in X"),  # whatever fixes the trace
            (lambda X, t: (bo.logdet_div(X, np.eye(2)), [bo.trace(X) == 1]), "logdet"),
            (lambda X, t: (bo.trace(X), [bo.trace(X) == 1]), "without a term in X"),
            (lambda X, t: (t, [X[0, 0] <= t, bo.trace(X) == 1, t >= 0]), None),
            (lambda X, t: (t, [X[0, 0] >= t, bo.trace(X) == 1]), "does not give way"),
            (lambda X, t: (t, [bo.between(X[0, 0] - t, 0, 1), bo.trace(X) == 1]), "two-sided"),
            (lambda X, t: (t, [bo.trace(X) == 1]), "no row has the variable"),
            (
                lambda X, t: (bo.von_neumann_div(X, np.eye(2)) + t, [X[0, 0] <= t, bo.trace(X) == 1]),
                "ordinary variables with a divergence",
            ),
            (
                lambda X, t: (
                    bo.von_neumann_div(X, np.eye(2)),
                    [bo.soft(X[0, 0] <= 1, 1.0), bo.trace(X) == 1],
                ),
                "soft rows",
            ),
        ],
    )
    def test_reason(self, declare, reason):
        X, t = bo.PSD(2, name="X"), bo.Variable(name="t")
        objective, rows = declare(X, t)
        problem = bo.Problem(bo.Minimize(objective), rows)
        if reason is None:
            assert problem.solve(solver="definiteboost", tol=0.01).value == pytest.approx(0, abs=0.02)
            return
        with pytest.raises(bo.UnsupportedProblemError, match=reason):
            problem.solve(solver="definiteboost", tol=0.01)

    def test_tolerance_of_a_margin(self):
        with pytest.raises(bo.UnsupportedProblemError, match="for tol="):
            margin().solve(solver="definiteboost")

    def test_row_on_the_boundary(self):
        X = bo.PSD(2)
        rows = [X[0, 0] >= 1, bo.trace(X) == 1]
        with pytest.raises(bo.UnsupportedProblemError, match="only on the boundary"):
            bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(2))), rows).solve(solver="definiteboost")

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"step": "exakt"}, ValueError, "did you mean 'exact'"),
            ({"order": "random"}, ValueError, "order is 'random'"),
            ({"corrections": 1}, TypeError, "corrections is 1"),
        ],
    )
    def test_options(self, options, error, message):
        with pytest.raises(error, match=message):
            DefiniteBoostSettings(**options)


class TestRunning:
    def test_warm_start(self):
        problem = distances()
        cold = problem.solve(solver="definiteboost")
        assert problem.solve(solver="definiteboost", warm_start=True).iterations < cold.iterations / 4

    def test_low_rank(self):
        G = np.random.default_rng(7).normal(size=(12, 3))
        G /= np.linalg.norm(G)
        X = bo.PSD(12)
        rows = [bo.sq_distance(X, 0, 1) <= 0.5 * ((G[0] - G[1]) ** 2).sum(), bo.trace(X) == 1]
        problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, bo.LowRank(G))), rows)
        reference = np.asarray(problem.solve(solver="bregman", tol=1e-9).X)
        sol = problem.solve(solver="definiteboost")
        assert sol.rank == 3
        np.testing.assert_allclose(np.asarray(sol.X), reference, atol=1e-5)

    @pytest.mark.parametrize("problem", [distances(), margin()], ids=["nearness", "margin"])
    @pytest.mark.parametrize("stop", ["time", "keyboard"])
    def test_stops_with_what_it_has(self, problem, stop, monkeypatch):
        step = Boost.step

        def interrupt(*arguments):
            signal.raise_signal(signal.SIGINT)
            return step(*arguments)

        options = {"time_limit": 1e-9}
        if stop == "keyboard":
            monkeypatch.setattr(Boost, "step", interrupt)
            options = {}
        with pytest.warns(bo.ConvergenceWarning):
            sol = problem.solve(solver="definiteboost", tol=0.01, **options)
        assert sol.status == "user_limit"
        assert np.linalg.eigvalsh(sol.X)[0] > 0
