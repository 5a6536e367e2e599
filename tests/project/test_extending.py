"""The extensions of docs/development/extending, each one file and one line, pass the tests of our own."""

import inspect
import runpy
from pathlib import Path

import numpy as np
import problem_library
import pytest
import test_conformance
import test_rows
from hypothesis import given
from hypothesis import strategies as st
from samples import turns
from scipy.linalg import toeplitz
from scipy.optimize import check_grad

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify, is_ray
from bregopt.divergences import DIVERGENCES, Divergence, Penalty, TraceDivergence, register_divergence

EXTENDING = Path(__file__).parents[2] / "docs" / "development" / "extending"
PAGE = EXTENDING.with_suffix(".md")
LINES = 60


def symmetric(S):
    return (S + S.T) / 2


def added(name):
    """Run one of the files, which registers its extension, and return its definitions."""
    return runpy.run_path(str(EXTENDING / f"{name}.py"))


@pytest.mark.parametrize("path", sorted(EXTENDING.glob("*.py")), ids=lambda path: path.name)
def test_an_extension_is_one_short_file(path):
    text = path.read_text()
    assert len(text.splitlines()) <= LINES
    assert f"```python\n{text}```" in PAGE.read_text()  # the page shows these files


class TestDivergence:
    @pytest.fixture(autouse=True)
    def burg(self, plug_ins):
        """The class, registered for one test."""
        return added("burg")["Burg"]

    @pytest.fixture
    def rng(self):
        return np.random.default_rng(5)

    def start(self, rng, n, least=0.0):
        """Return a matrix whose smallest eigenvalue is `least`."""
        Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
        return symmetric((Q * np.linspace(least, 2.0, n)) @ Q.T)

    @pytest.mark.parametrize("shift", [1e-3, 1.0])
    def test_definition_and_derivative(self, burg, rng, shift):
        n, unit = 4, np.eye(4)
        X0, X = self.start(rng, n), self.start(rng, n)
        D = burg(X0, shift)
        logdet = DIVERGENCES["logdet"](X0 + shift * unit)
        assert D.value(X) == pytest.approx(logdet.value(X + shift * unit), rel=1e-9)
        assert D.value(X0) == pytest.approx(0, abs=1e-9)
        assert D.value(-2 * shift * unit) == np.inf
        S = self.start(rng, n)
        inside = X + unit
        assert check_grad(
            lambda t: D.value(inside + t[0] * S),
            lambda t: [np.vdot(D.gradient(inside + t[0] * S), S)],
            [0.0],
        ) < 1e-5 * np.linalg.norm(D.gradient(inside))

    def test_minimizer_and_how_it_moves(self, burg, rng):
        n, mu, h = 5, 0.7, 1e-6
        D, W, S = burg(self.start(rng, n), 0.5), self.start(rng, n, -0.3), self.start(rng, n, -1.0)
        at = D.spectrum(W, mu)
        assert 0 < np.linalg.matrix_rank(at.X, tol=1e-9) < n  # so that X is on the boundary
        value = np.vdot(W, at.X) + mu * D.value(at.X)
        assert at.term == pytest.approx(value, rel=1e-10)
        Z = W + mu * D.gradient(at.X)  # the multiplier of X psd
        assert np.linalg.eigvalsh(Z)[0] > -1e-10
        assert abs(np.vdot(Z, at.X)) < 1e-10
        moved = at.derivative(S)
        dense = (moved.L @ moved.R.T + moved.R @ moved.L.T) / 2 + moved.share * S
        slope = (D.spectrum(W - h * S, mu).X - D.spectrum(W + h * S, mu).X) / (2 * h)
        np.testing.assert_allclose(dense, slope, atol=1e-6)
        q = rng.normal(size=(2, n))
        of_q = [at.derivative(np.outer(v, v)) for v in q]
        curvature = [v @ (p.L @ p.R.T) @ v for v, p in zip(q, of_q, strict=True)]
        np.testing.assert_allclose(at.curvature(q @ at.V), curvature, rtol=1e-9)

    def test_spectra_that_nearly_coincide(self, burg):
        D = burg(np.diag([1.0, 1.0 + 1e-9, 1.0 + 3e-6, 2.0]), 0.1)
        F = D.spectrum(np.zeros((4, 4)), 1.0).differences
        x = np.array([1.0, 1.0 + 1e-9, 1.0 + 3e-6, 2.0]) + 0.1
        np.testing.assert_allclose(F, np.outer(x, x), rtol=1e-5)  # -1/theta has these differences

    # --- Answers -------------------------------------------------------------------------------------

    def kinds_of_rows(self, X, d):
        """Return rows of every family, most of them active."""
        Z = np.arange(3.0 * X.n).reshape(3, -1) / (3 * X.n)
        A = np.eye(X.n) + np.ones((X.n, X.n)) / X.n
        return {
            "equalities": [bo.diag(X) == d],
            "bounds": [bo.diag(X) == d, X[0, 1] >= 0.6 * d, bo.between(X[1, 2], -0.1, 0.1)],
            "distances": [bo.sq_distance(X, [0, 1], [1, 2]) <= 0.4 * d, bo.trace(X) == X.n * d],
            "forms": [bo.quad_form(Z, X) >= d, bo.inner(A, X) <= 3.0 * X.n * d],
            "hinges": [bo.diag(X) == d, bo.soft(X[0, 1] == 0.9 * d, gamma=0.05)],
            "none": [],
        }

    @pytest.mark.parametrize(
        ("shift", "name"), turns([1e-3, 0.3, 5.0], ["equalities", "bounds", "distances", "forms", "none"])
    )
    def test_optimality_conditions(self, burg, rng, name, shift):
        X = bo.PSD(6)
        X0, C = self.start(rng, X.n), self.start(rng, X.n, -0.1)
        rows = self.kinds_of_rows(X, 1.0)[name]
        mu = 0.8
        objective = mu * bo.bregman_div(X, X0, "burg", shift=shift) + bo.inner(C, X)
        problem = bo.Problem(bo.Minimize(objective), rows)
        sol = problem.solve(tol=1e-10)
        assert (sol.status, sol.solver) == ("optimal", "bregman")
        assert max(sol.gap, sol.primal_residual) <= 1e-10
        program, y = problem.program(), sol._raw.duals
        Z = C + mu * burg(X0, shift).gradient(sol.X) - program.A.adjoint(y)
        size = np.linalg.norm(Z) + 1
        assert np.linalg.eigvalsh(sol.X)[0] >= -1e-9
        assert np.linalg.eigvalsh(Z)[0] >= -1e-6 * size
        assert abs(np.vdot(Z, sol.X)) <= 1e-6 * size
        slack = program.A.apply((sol.X,))
        bounds = program.bounds
        assert (bounds.missed(slack) <= 1e-8).all()
        for end, sign in ((bounds.lo, 1), (bounds.hi, -1)):  # a multiplier only if its bound is active
            assert (np.abs(end - slack)[sign * y > 1e-5] <= 1e-5).all()

    @pytest.mark.parametrize("name", ["equalities", "bounds", "distances", "forms", "hinges", "none"])
    def test_routes_agree(self, rng, name):
        X = bo.PSD(4)
        objective = bo.bregman_div(X, self.start(rng, X.n), "burg", shift=0.2)
        check = bo.cross_check(bo.Problem(bo.Minimize(objective), self.kinds_of_rows(X, 1.0)[name]))
        assert check.ok
        assert {"bregman", "cvxpy"} <= {row.solver for row in check.rows}

    def test_closed_form_of_diagonal_matrices(self, burg):
        x0, c, shift, total = np.array([0.0, 0.5, 1.0, 2.0]), np.array([0.3, 0.0, 2.0, -0.1]), 0.5, 1.5
        X = bo.PSD(4)
        objective = bo.bregman_div(X, np.diag(x0), burg, shift=shift) + bo.inner(np.diag(c), X)
        sol = bo.Problem(bo.Minimize(objective), [bo.trace(X) == total]).solve(tol=1e-10)

        def x(y):
            return np.maximum(1 / (1 / (x0 + shift) + c - y) - shift, 0.0)

        low, high = -10.0, (1 / (x0 + shift) + c).min() - 1e-12
        for _ in range(200):
            y = (low + high) / 2
            low, high = (y, high) if x(y).sum() < total else (low, y)
        assert (x(low) == 0).any()
        np.testing.assert_allclose(sol.X, np.diag(x(low)), atol=1e-7)
        assert sol.duals[0] == pytest.approx(-low, abs=1e-6)

    def test_without_shift_it_is_logdet(self, rng):
        X = bo.PSD(5)
        X0 = self.start(rng, X.n, 0.2)
        answers = [
            bo.Problem(bo.Minimize(objective), self.kinds_of_rows(X, 1.0)["bounds"]).solve(tol=1e-10).X
            for objective in (bo.logdet_div(X, X0), bo.bregman_div(X, X0, "burg", shift=1e-7))
        ]
        np.testing.assert_allclose(*answers, atol=1e-5)

    def test_orthogonal_invariance(self, rng):
        X = bo.PSD(5)
        X0 = self.start(rng, X.n)
        Q, _ = np.linalg.qr(rng.normal(size=(5, 5)))
        answers = []
        for V in (np.eye(5), Q):
            objective = bo.bregman_div(X, symmetric(V @ X0 @ V.T), "burg", shift=0.4)
            A = symmetric(V @ np.diag([1.0, 2.0, 0.0, 0.0, -1.0]) @ V.T)
            rows = [bo.trace(X) == 4.0, bo.inner(A, X) >= 4.0]
            answers.append(V.T @ bo.Problem(bo.Minimize(objective), rows).solve(tol=1e-10).X @ V)
        np.testing.assert_allclose(*answers, atol=1e-6)

    def test_certificate_proves_it_and_nothing_else(self, burg, rng):
        X = bo.PSD(4)
        X0 = self.start(rng, X.n)
        problem = bo.Problem(bo.Minimize(bo.bregman_div(X, X0, "burg")), [bo.diag(X) == 1])
        sol = problem.solve(tol=1e-9)
        program, y = problem.program(), sol._raw.duals
        assert certify(PrimalDualPoint(program, (sol.X,), np.zeros(0), y)).meets(1e-8)
        assert not certify(PrimalDualPoint(program, (np.eye(4),), np.zeros(0), y)).meets(1e-3)
        outside = sol.X + 0.05 * (np.ones((4, 4)) - np.eye(4))
        outside += 3 * (outside - np.diag(outside.diagonal()))  # of the right diagonal, beyond the cone
        assert np.linalg.eigvalsh(outside)[0] < -0.1
        assert certify(PrimalDualPoint(program, (outside,), np.zeros(0), y)).primal_residual > 0.1

    def test_no_answer_is_proven(self):
        X = bo.PSD(3)
        near = bo.bregman_div(X, np.eye(3), "burg")
        both = [X[0, 0] == 1, X[1, 1] == 1, X[0, 1] == 2]
        assert bo.Problem(bo.Minimize(near), both).solve().status == "infeasible"
        falling = bo.Problem(bo.Minimize(near - bo.trace(X)))  # grows by tr X / 2 only
        assert falling.solve(solver="cvxpy").status == "unbounded"

    def test_growth_is_not_taken_on_trust(self, burg):
        class Slow(burg):
            name = "slow"

            def recession(self):
                return 0 * self.slope_X0

        register_divergence(Slow)
        X = bo.PSD(3)
        program = bo.Problem(bo.Minimize(bo.bregman_div(X, np.eye(3), "slow") - 0.1 * bo.trace(X))).program()
        assert not is_ray(program, (np.eye(3),), np.zeros(0))

    # --- What is refused ---------------------------------------------------------------------------

    def test_methods_that_need_more_refuse(self, rng):
        X = bo.PSD(3)
        near = bo.bregman_div(X, self.start(rng, 3), "burg")
        with pytest.raises(bo.UnsupportedProblemError, match="'cyclic' does not take the burg divergence"):
            bo.Problem(bo.Minimize(near), [bo.diag(X) == 1]).solve(method="cyclic", solver="bregman")
        with pytest.raises(bo.UnsupportedProblemError, match="does not take the burg divergence"):
            bo.Problem(bo.Minimize(near), [bo.trace(X) == 1]).solve(solver="definiteboost")
        with pytest.raises(ValueError, match="penalty"):
            row = bo.soft(bo.diag(X) == 1, penalty="divergence")
            bo.Problem(bo.Minimize(near), [row]).solve()

    def test_bad_input_is_refused_where_it_is_declared(self):
        X = bo.PSD(3)
        with pytest.raises(ValueError, match="shift is 0; expected a number above 0"):
            bo.bregman_div(X, np.eye(3), "burg", shift=0)
        with pytest.raises(ValueError, match="outside the domain of the burg divergence"):
            bo.bregman_div(X, -2 * np.eye(3), "burg", shift=1)
        with pytest.raises(TypeError, match="LowRank, whose range it does not keep"):
            bo.bregman_div(X, bo.LowRank(np.ones((3, 1))), "burg")
        with pytest.raises(TypeError, match="unexpected keyword argument 'shfit'"):
            bo.bregman_div(X, np.eye(3), "burg", shfit=1)
        with pytest.raises(ValueError, match="did you mean 'burg'"):
            bo.bregman_div(X, np.eye(3), "brug")

    def test_registration_is_checked(self, burg):
        with pytest.raises(TypeError, match="expected a subclass"):
            register_divergence(dict)
        with pytest.raises(TypeError, match="Half lacks conjugate_slope, curvature, function, slope, name"):
            register_divergence(type("Half", (TraceDivergence,), {}))
        with pytest.raises(ValueError, match="called 'logdet', as a divergence of bregopt"):
            register_divergence(type("Own", (burg,), {"name": "logdet"}))

    def test_known_divergences_by_their_names(self, rng):
        X, X0 = bo.PSD(4), self.start(rng, 4, 0.3)
        for name, own in {
            "logdet": bo.logdet_div(X, X0),
            "von_neumann": bo.von_neumann_div(X, X0),
            "frobenius": bo.frobenius_div(X, X0),
        }.items():
            values = [
                bo.Problem(bo.Minimize(objective), [bo.diag(X) == 1]).solve().value
                for objective in (own, bo.bregman_div(X, X0, name))
            ]
            assert values[0] == values[1]

    def test_every_divergence_states_facts_that_hold(self, rng):
        """Compare each declared property of each class with numerical values."""
        n, r = 4, 3.0
        X0, X = self.start(rng, n, 0.2), self.start(rng, n, 0.1)
        V = rng.normal(size=(n, n))
        singular = self.start(rng, n, 0.0)
        for name, cls in DIVERGENCES.items():
            D = cls(X0)
            assert issubclass(cls, Divergence)
            assert cls.name == name
            assert cls.penalty in (None, *Penalty)
            if cls.degree is not None:
                assert cls(r * X0).value(r * X) == pytest.approx(r**cls.degree * D.value(X), rel=1e-9)
            congruent = cls(V @ X0 @ V.T).value(V @ X @ V.T)
            assert (congruent == pytest.approx(D.value(X), rel=1e-6)) == cls.congruence_invariant
            if cls.finite_on_boundary:
                assert np.isfinite(D.value(singular))
            else:
                assert D.value(singular - 1e-9 * np.eye(n)) == np.inf
            if cls.infinite_outside_cone:
                assert D.value(singular - 0.1 * np.eye(n)) == np.inf
            lifted = X - np.linalg.eigvalsh(X)[0] * np.eye(n)
            near, nearer = (np.linalg.norm(D.gradient(lifted + e * np.eye(n))) for e in (1e-6, 1e-12))
            assert (nearer > near + 1) == cls.essentially_smooth
            R, far = D.recession(), 1e7
            growth = D.value(X0 + far * X) / far
            if R is None:
                assert growth > 10 * np.linalg.norm(X)
            else:
                assert growth == pytest.approx(np.vdot(R, X), rel=1e-3)


class TestRowFamily:
    @pytest.fixture
    def family(self):
        return added("diagonal_sums")

    @pytest.mark.parametrize("test", [name for name in dir(test_rows.TestFamily) if name.startswith("test_")])
    def test_it_is_as_its_definition_says(self, family, rng, monkeypatch, test):
        lag, weight = np.array([0, 1, 2, 3, 5]), rng.normal(size=test_rows.M)
        rows = family["DiagonalSums"](test_rows.N, lag, weight)
        ones = [np.eye(test_rows.N, k=k) for k in lag]
        stack = [w * symmetric(A) for w, A in zip(weight, ones, strict=True)]
        others = test_rows.examples()
        monkeypatch.setattr(test_rows, "examples", lambda seed=0: others | {"diagonal sums": (rows, stack)})
        method = getattr(test_rows.TestFamily(), test)
        own = {"name": "diagonal sums", "rng": rng}
        method(**{name: own[name] for name in inspect.signature(method).parameters})

    @pytest.mark.parametrize("route", ["bregman", "path", "psdboost", "cvxpy"])
    def test_routes_take_it_like_dense_rows(self, family, rng, route):
        n, lags = 6, np.array([0, 1, 3])
        F = rng.normal(size=(n, n))
        moments = np.array([np.trace(F @ F.T, offset=k) for k in lags])
        answers = []
        for dense in (False, True):
            X = bo.PSD(n)
            sums = family["diagonal_sums"](X, lags)
            if dense:
                stack = np.array([symmetric(np.eye(n, k=k)) for k in lags])
                sums = bo.inner(stack, X)
            cost = bo.frobenius_div(X, np.eye(n)) if route in ("bregman", "cvxpy") else bo.inner(F + F.T, X)
            answers.append(
                bo.Problem(bo.Minimize(cost), [sums == moments, bo.trace(X) <= 2 * moments[0]]).solve(
                    solver=route
                )
            )
        own, dense = answers
        assert own.status == dense.status == "optimal"
        assert abs(own.value - dense.value) <= own.error + dense.error


class TestConvexAtom:
    @pytest.fixture
    def fraction(self):
        return added("matrix_fraction")["matrix_fraction"]

    def test_its_value_is_that_of_the_definition(self, fraction, rng):
        F, a = rng.normal(size=(3, 3)), rng.normal(size=3)
        M = F @ F.T + np.eye(3)
        x, P = bo.Variable(3), bo.PSD(3)
        goal = fraction(x, P)
        sol = bo.Problem(bo.Minimize(goal), [x == a, P[:, :] == M]).solve()
        assert sol.status == "optimal"
        assert abs(sol.value - a @ np.linalg.solve(M, a)) <= 1e-5
        assert goal.value == pytest.approx(sol.value, rel=1e-5)

    @pytest.mark.parametrize("bounded", [False, True])
    def test_its_smallest_sums_with_a_trace(self, fraction, rng, bounded):
        # inv(P) x x' has a trace of t at most where P - x x' / t is psd; P = x x' / |x| has the least sum.
        a = rng.normal(size=4)
        x, P = bo.Variable(4), bo.PSD(4)
        goal, rows = fraction(x + a, P), [x >= 0, x <= 0]
        if bounded:
            sol = bo.Problem(bo.Minimize(bo.trace(P)), [goal <= 3, *rows]).solve()
            assert abs(sol.value - a @ a / 3) <= sol.error + 1e-9
        else:
            sol = bo.Problem(bo.Minimize(goal + bo.trace(P)), rows).solve()
            assert abs(sol.value - 2 * np.linalg.norm(a)) <= sol.error + 1e-9
        assert sol.status == "optimal"

    def test_the_rules_of_convexity_hold_for_it(self, fraction):
        x, P = bo.Variable(3), bo.PSD(3)
        with pytest.raises(ValueError, match=r"x of matrix_fraction has shape \(2,\); expected \(3,\)"):
            fraction(x[:2], P)
        with pytest.raises(TypeError, match="a convex expression may be bounded from above only"):
            bo.Problem(bo.Minimize(bo.trace(P)), [fraction(x, P) >= 1])
        with pytest.raises(TypeError, match="matrix_fraction is convex and not monotone here"):
            fraction(bo.abs(x), P)


class TestReduction:
    @pytest.fixture(autouse=True)
    def registered(self, plug_ins):
        return added("equal_rows")["EqualRows"]

    @pytest.mark.parametrize(
        ("name", "route", "options"),
        [
            pytest.param(*pair.values, id=pair.id, marks=[pytest.mark.slow] * (k % 2))
            for k, pair in enumerate(test_conformance.PAIRS[::3])
        ],
    )
    def test_conformance(self, name, route, options):
        test_conformance.test_route_meets_known_answer_step_by_step(name, route, options)

    def twice(self, seed, solver):
        """Return a problem in which every other row is repeated with a looser bound."""
        rng = np.random.default_rng(seed)
        n = 5
        X = bo.PSD(n)
        G = rng.normal(size=(n, n))
        at = (G @ G.T) / n
        i, j = np.triu_indices(n, 1)
        loose = [X[i, j] <= at[i, j] + 1, X[i, j] >= at[i, j] - 1]
        tight = [X[i, j] <= at[i, j] + 0.01, X[i, j] >= at[i, j] - 0.01]
        cost = bo.inner(G + G.T, X) if solver == "path" else bo.frobenius_div(X, G + G.T)
        rows = [bo.diag(X) == at.diagonal()]
        return [bo.Problem(bo.Minimize(cost), parts + rows) for parts in (loose + tight, tight)]

    @given(seed=st.integers(0, 10_000), solver=st.sampled_from(["path", "bregman"]))
    def test_the_tightest_bound_counts_and_has_the_multiplier(self, seed, solver):
        both, tight = (problem.solve(solver=solver) for problem in self.twice(seed, solver))
        assert both.status == tight.status == "optimal"
        assert abs(both.value - tight.value) <= both.error + tight.error
        for dual in both.duals[:2]:
            assert not dual.any()

    def test_explain_names_it(self, capsys):
        self.twice(0, "path")[0].explain(solver="path")
        assert "after: rows merged with equal ones: 30" in capsys.readouterr().out

    def test_a_contradiction_is_proven(self):
        X = bo.PSD(3)
        rows = [X[0, 1] >= 2, X[0, 1] <= 1, bo.trace(X) == 1]
        sol = bo.Problem(bo.Minimize(X[0, 0]), rows).solve()
        assert sol.status == "infeasible"
        assert sol.iterations == 0

    def test_an_earlier_answer_is_a_start(self):
        problem = self.twice(1, "path")[0]
        first = problem.solve(solver="path")
        again = problem.solve(solver="path", warm_start=first)
        assert again.status == "optimal"
        assert abs(again.value - first.value) <= again.error + first.error


class TestRoute:
    @pytest.fixture(autouse=True)
    def registered(self, plug_ins, monkeypatch):
        monkeypatch.setitem(test_conformance.X_TOL, "lbfgs", 1e-4)
        return added("dual_lbfgs")["DualLBFGS"]

    @pytest.mark.parametrize(
        "test",
        [
            test_conformance.test_route_meets_known_answer_step_by_step,
            test_conformance.test_limit_of_one_iteration_never_claims_too_much,
        ],
    )
    def test_conformance(self, test):
        taken = [
            name
            for name, make in problem_library.CASES.items()
            if test_conformance.takes(make().problem, "lbfgs")
        ]
        assert len(taken) > 10
        for name in taken:
            test(name, "lbfgs", {})

    def test_it_is_asked_with_the_others(self):
        X = bo.PSD(3)
        near = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.ones((3, 3)) - 2)), [bo.diag(X) == 1])
        check = bo.cross_check(near)
        assert check.ok
        assert "lbfgs" in {row.solver for row in check.rows}
        with pytest.raises(bo.UnsupportedProblemError, match="rows of one bound"):
            bo.Problem(near.objective, [bo.between(X[0, 1], -1, 1)]).solve(solver="lbfgs")


class TestReadyMadeProblem:
    @pytest.fixture
    def nearest_toeplitz(self):
        return added("nearest_toeplitz")["nearest_toeplitz"]

    def test_a_psd_average_is_the_answer(self, nearest_toeplitz, rng):
        A = toeplitz([3.0, 1.0, 0.5, 0.2]) + 0.1 * symmetric(rng.normal(size=(4, 4)))
        averages = toeplitz([np.trace(A, offset=k) / (4 - k) for k in range(4)])
        assert np.linalg.eigvalsh(averages)[0] > 0
        np.testing.assert_allclose(nearest_toeplitz(A, tol=1e-10).X, averages, atol=1e-7)

    @given(seed=st.integers(0, 10_000), n=st.integers(1, 6))
    def test_optimality(self, seed, n):
        nearest_toeplitz = added("nearest_toeplitz")["nearest_toeplitz"]
        A = symmetric(np.random.default_rng(seed).normal(size=(n, n)))
        X = nearest_toeplitz(A, tol=1e-9).X
        assert np.ptp([np.ptp(X.diagonal(k)) for k in range(n)]) <= 1e-6
        # The residual is a psd matrix, orthogonal to X, plus one whose diagonals sum to zero.
        cosines = [np.cos(2 * np.pi * np.arange(n) * f) for f in np.linspace(0, 0.5, 50)]
        sines = [np.sin(2 * np.pi * np.arange(n) * f) for f in np.linspace(0, 0.5, 50)]
        for c, s in zip(cosines, sines, strict=True):  # no psd Toeplitz matrix is a descent direction
            assert np.vdot(X - A, np.outer(c, c) + np.outer(s, s)) >= -1e-5 * np.linalg.norm(A) * n
        assert abs(np.vdot(X - A, X)) <= 1e-5 * np.linalg.norm(A) ** 2

    @pytest.mark.parametrize("scale", [1e-6, 1e6])
    def test_scale(self, nearest_toeplitz, rng, scale):
        A = symmetric(rng.normal(size=(4, 4)))
        np.testing.assert_allclose(
            nearest_toeplitz(scale * A).X, scale * nearest_toeplitz(A).X, rtol=1e-5, atol=1e-5 * scale
        )
