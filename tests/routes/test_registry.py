"""The registry and the answer: routing, plug-ins, limits, interruption, pickling, threads, pictures."""

import copy
import dataclasses
import pickle
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import bregopt as bo
from bregopt.program import Answer, StopReason
from bregopt.routes import registry, routing
from bregopt.routes.base import Capabilities, Settings


def nearness(n=6, seed=0, divergence=bo.logdet_div):
    G = np.random.default_rng(seed).normal(size=(n, n))
    X = bo.PSD(n, name="X")
    start = G + G.T if divergence is bo.frobenius_div else G @ G.T / n + 0.1 * np.eye(n)
    return bo.Problem(bo.Minimize(divergence(X, start)), [bo.diag(X) == 1])


def weighted(X):
    H = np.array([[1.0, 0.5], [0.5, 1.0]])
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, [[1, 2], [2, 1]], weights=H)), [bo.diag(X) == 1])


class Lazy:
    """A plug-in that does nothing and claims to have converged."""

    name = "lazy"
    summary = "returns X0"
    citation = "none"
    capabilities = Capabilities(objectives=frozenset({"logdet"}), blocks=1)
    Settings = Settings

    def refusal(self, program, settings):
        return "it wants a wide problem" if program.blocks[0].n < 3 else None

    def choice(self, program, settings):
        return "no method at all"

    def solve(self, program, settings, start, progress):
        X0 = program.blocks[0].nearness.X0
        return Answer((X0,), np.zeros(program.k), np.zeros(program.m), StopReason.CONVERGED, 0)


@pytest.fixture
def lazy():
    bo.register_solver(Lazy)
    yield Lazy
    del registry._registered["lazy"]


class TestPlugins:
    def test_registered_between_our_own_and_the_reference(self, lazy):
        assert list(bo.solvers())[-2:] == ["lazy", "cvxpy"]
        assert bo.solvers()["lazy"] == "returns X0"

    def test_used_by_name_but_never_believed(self, lazy):
        with pytest.warns(bo.ConvergenceWarning, match="lazy: inaccurate.*does not meet tol"):
            sol = nearness().solve(solver="lazy")
        assert sol.status == "inaccurate"
        assert sol.primal_residual > 1e-2

    def test_used_by_class_without_registration(self):
        with pytest.warns(bo.ConvergenceWarning):
            assert nearness().solve(solver=Lazy).solver == "lazy"
        assert "lazy" not in bo.solvers()

    def test_its_own_refusal_is_heard(self, lazy):
        with pytest.raises(bo.UnsupportedProblemError, match="wants a wide problem"):
            nearness(2).solve(solver="lazy")

    def test_explain(self, lazy, capsys):
        nearness().explain()
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("-> bregman")
        assert any("lazy" in line and "no method at all" in line for line in lines)
        assert any("psdboost" in line and "logdet" in line for line in lines)

    def test_explain_takes_the_options_of_solve(self, capsys):
        problem = nearness()
        problem.explain(method="cyclic")
        first, *others = capsys.readouterr().out.splitlines()
        assert first == "-> bregman        takes it: method 'cyclic'"
        assert all("no: it has no option 'method'" in line for line in others)
        problem.explain(solver="cvxpy", backend="SCS")
        assert "-> cvxpy          takes it: backend SCS" in capsys.readouterr().out
        with pytest.raises(TypeError, match="no solver has an option 'metod'; did you mean 'method'"):
            problem.explain(metod="cyclic")
        with pytest.raises(ValueError, match="tol is -1"):
            problem.explain(tol=-1)

    @pytest.mark.parametrize("options", [{}, {"method": "newton"}])
    def test_explain_names_the_method_of_weights(self, options, capsys):
        X = bo.PSD(2)
        weighted(X).explain(**options)
        assert "-> bregman        takes it: elementwise weights" in capsys.readouterr().out

    def test_incomplete_class_is_refused(self):
        with pytest.raises(TypeError, match=r"lacks name, summary"):
            bo.register_solver(int)
        with pytest.raises(TypeError, match="not a solver class"):
            bo.register_solver(3)

    def test_entry_point_that_fails_warns_and_is_skipped(self, monkeypatch):
        broken = EntryPoint(name="broken", value="no_such_module:Nothing", group="bregopt.solvers")
        monkeypatch.setattr(registry, "entry_points", lambda group: [broken])
        monkeypatch.setattr(registry, "_loaded_plugins", False)
        with pytest.warns(bo.PluginWarning, match="'broken'.*skipped.*no_such_module"):
            names = set(bo.solvers())
        assert names == {
            "bregman",
            "path",
            "lagrangian",
            "entropy",
            "psdboost",
            "lowrank",
            "definiteboost",
            "cvxpy",
        }

    def test_entry_point_is_loaded(self, monkeypatch):
        point = EntryPoint(name="lazy", value=f"{__name__}:Lazy", group="bregopt.solvers")
        monkeypatch.setattr(registry, "entry_points", lambda group: [point])
        monkeypatch.setattr(registry, "_loaded_plugins", False)
        assert "lazy" in bo.solvers()
        del registry._registered["lazy"]


class TestRouting:
    def test_first_route_that_takes_it(self):
        assert nearness().solve().solver == "bregman"
        X = bo.PSD(2)
        assert bo.Problem(bo.Minimize(X[0, 0]), [bo.trace(X) == 1]).solve().solver == "path"
        both = bo.Minimize(X[0, 0] + bo.logdet_div(bo.PSD(2), np.eye(2)))
        assert bo.Problem(both).solve().solver == "path"
        both = bo.Minimize(X[0, 0] + bo.frobenius_div(bo.PSD(2), np.eye(2), np.eye(2)))
        assert bo.Problem(both, [bo.trace(X) == 1]).solve().solver == "cvxpy"

    def test_an_option_of_one_route_routes_there(self):
        assert nearness().solve(method="cyclic").solver == "bregman"

    def test_nearness_beside_variables_goes_to_entropy(self):
        X, u = bo.PSD(3), bo.Variable()
        for near, largest in ((bo.von_neumann_div, None), (bo.frobenius_div, 40)):
            rows = [X[0, 0] + u == 2]
            problem = bo.Problem(bo.Minimize(near(X, np.eye(3)) + bo.square(u)), rows)
            assert problem.solve().solver == "entropy"
            if largest is not None:
                Y = bo.PSD(largest + 1)
                big = bo.Problem(bo.Minimize(near(Y, np.eye(largest + 1)) + bo.square(u)), [Y[0, 0] + u == 2])
                with pytest.raises(bo.UnsupportedProblemError, match="order up to 40"):
                    big.solve(solver="entropy")


class TestLimits:
    @pytest.mark.parametrize("divergence", [bo.logdet_div, bo.von_neumann_div, bo.frobenius_div])
    def test_not_converged_warns_and_keeps_the_best(self, divergence):
        problem = nearness(divergence=divergence)
        with pytest.warns(bo.ConvergenceWarning, match="user_limit.*max_iter was reached"):
            sol = problem.solve(solver="bregman", max_iter=1, tol=1e-14)
        assert sol.status == problem.status == "user_limit"
        assert sol.iterations == 1
        assert sol.X is not None

    @pytest.mark.parametrize("divergence", [bo.logdet_div, bo.frobenius_div])
    def test_time_limit(self, divergence):
        with pytest.warns(bo.ConvergenceWarning, match="time_limit"):
            sol = nearness(30, divergence=divergence).solve(solver="bregman", time_limit=1e-6, tol=1e-12)
        assert sol.status == "user_limit"
        assert sol.timings["total"] < 5

    @pytest.mark.parametrize("divergence", [bo.logdet_div, bo.von_neumann_div, bo.frobenius_div])
    def test_interrupt_returns_the_best_iterate(self, divergence, monkeypatch):
        from bregopt.program import LinearMap
        from bregopt.routes.projection import stack_newton

        problem = nearness(divergence=divergence)
        optimum = problem.solve(solver="bregman", tol=1e-9).value

        def interrupted(owner, name, call):
            calls, function = [], getattr(owner, name)

            def own(*arguments):
                calls.append(None)
                if len(calls) == call:
                    signal.raise_signal(signal.SIGINT)
                return function(*arguments)

            monkeypatch.setattr(owner, name, own)

        interrupted(LinearMap, "apply", 4)
        interrupted(stack_newton, "checkpoint", 2)
        with pytest.warns(bo.ConvergenceWarning, match="Interrupted"):
            sol = problem.solve(solver="bregman", tol=1e-14)
        assert sol.status == "user_limit"
        assert np.isfinite(sol.dual_value)
        assert sol.dual_value <= optimum * (1 + 1e-9)
        assert np.linalg.eigvalsh(sol.X)[0] >= -1e-12

    def test_scaled_data_gives_the_scaled_answer(self):
        A = np.array([[2.0, 1.9, 0.1], [1.9, 2.0, 1.9], [0.1, 1.9, 2.0]])
        for divergence in (bo.frobenius_div, bo.logdet_div, bo.von_neumann_div):
            start = A if divergence is bo.frobenius_div else A + np.eye(3)
            answers = []
            for scale in (1.0, 1e-6, 1e6):
                X = bo.PSD(3)
                rows = [bo.diag(X) == scale, X[0, 2] >= 0.3 * scale, X[0, 1] <= 0.8 * scale]
                problem = bo.Problem(bo.Minimize(divergence(X, scale * start)), rows)
                answers.append(problem.solve(solver="bregman", tol=1e-8).X / scale)
            np.testing.assert_allclose(answers[1], answers[0], atol=1e-7)
            np.testing.assert_allclose(answers[2], answers[0], atol=1e-7)


class TestSolution:
    def test_card(self):
        sol = nearness().solve()
        card = repr(sol)
        assert card.startswith("bregopt solution: optimal (bregman)")
        assert "certified gap" in card
        assert len(card.splitlines()) <= 7

    def test_citation_follows_what_ran(self):
        for divergence in (bo.logdet_div, bo.von_neumann_div):
            assert "Kulis" in nearness(divergence=divergence).solve().citation
        frobenius = nearness(divergence=bo.frobenius_div)
        assert frobenius.solve().citation.startswith("Qi, Sun (2006)")
        assert "Dykstra (1983)" in frobenius.solve(method="cyclic").citation
        assert "Diamond" in frobenius.solve(solver="cvxpy").citation
        assert "H-Weighted" in weighted(bo.PSD(2)).solve().citation

    def test_frozen(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            nearness().solve().value = 0

    @pytest.mark.parametrize(
        "kept", [lambda sol: sol, lambda sol: pickle.loads(pickle.dumps(sol)), copy.deepcopy]
    )
    @pytest.mark.parametrize("X0", [np.eye(3), bo.LowRank(np.eye(3)[:, :2])])
    def test_arrays_are_read_only(self, kept, X0):
        X, u = bo.PSD(3), bo.Variable(2, nonneg=True, name="u")
        rows = [bo.diag(X)[:2] + u >= 2, X[0, 1] == 0.1]
        sol = kept(bo.Problem(bo.Minimize(bo.logdet_div(X, X0) + bo.sum(u)), rows).solve(solver="bregman"))
        held = X0 if isinstance(X0, np.ndarray) else None
        assert held is None or held.flags.writeable  # the user's array stays writeable
        matrix = sol.X.factor if isinstance(sol.X, bo.LowRank) else sol.X
        for array in (matrix, sol.u["u"], sol.duals[0], *sol.history.values(), sol._raw.u, sol._raw.duals):
            before = array.copy()
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 99
            np.testing.assert_array_equal(array, before)
        sol.X.dense() if isinstance(sol.X, bo.LowRank) else sol.X.copy()[0]

    def test_values_and_duals_are_those_of_the_answer(self):
        X, u = bo.PSD(2), bo.Variable(2, nonneg=True)
        row = bo.diag(X) + u == 1
        sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, [[1, 2], [2, 1]]) + bo.sum(u)), [row]).solve()
        for value in (X.value, u.value, row.dual_value):
            with pytest.raises(ValueError, match="read-only"):
                value += 1
        assert X.value is sol.X
        assert row.dual_value is sol.duals[0]

    def test_dimacs_errors_are_read_only(self):
        X = bo.PSD(2)
        sol = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 1]).solve()
        with pytest.raises(ValueError, match="read-only"):
            sol.dimacs[0] = 0

    @pytest.mark.parametrize(
        ("objective", "bound", "status"),
        [(bo.Minimize, -1.0, "infeasible"), (bo.Maximize, 1.0, "unbounded")],
    )
    def test_the_card_of_a_problem_without_answer_shows_what_there_is(self, objective, bound, status):
        X = bo.PSD(3, name="X")
        far = [X[0, 1] == bound, X[0, 0] + X[1, 1] <= 1] if status == "infeasible" else [X[0, 0] == bound]
        problem = bo.Problem(objective(bo.trace(X)), far)
        card = repr(problem.solve(solver="path"))
        assert problem.status == status
        assert "nan" not in card
        assert "gap" not in card
        assert "value      inf" in card

    def test_a_printed_problem_shows_its_rows(self):
        X, u = bo.PSD(2, name="X"), bo.Variable(3, name="u")
        rows = [bo.diag(X) == 1, bo.soft(X[0, 1] >= 0.5), bo.sum(u) <= bo.trace(X)]
        lines = str(bo.Problem(bo.Maximize(-bo.logdet_div(X, np.eye(2)) + u[0]), rows)).splitlines()
        assert lines == [
            "maximize    −D_LogDet(X, X₀) + u[0]",
            "subject to  diag(X) = 1   (2 rows)",
            "            X[0, 1] ≥ 0.5 (soft)",
            "            Σ u − tr X ≤ 0",
            "over        X ⪰ 0 (2 × 2), u (3)",
        ]
        assert str(bo.Problem(bo.Minimize(bo.trace(X)))) == "minimize    tr X\nover        X ⪰ 0 (2 × 2)"
        mu = bo.Parameter(value=2.0, name="mu")
        weighed = bo.Minimize(0.5 * (mu * bo.frobenius_div(X, np.eye(2))) - X[0, 1])
        assert repr(weighed) == "Minimize(0.5 mu frobenius_div(X) - X[0, 1])"

    def test_one_of_a_kind_has_no_plural(self):
        X = bo.PSD(2, name="X")
        one, two = bo.trace(X) == 1, bo.diag(X) >= 0.1
        assert "1 constraint with 1 row, X" in repr(bo.Problem(bo.Minimize(X[0, 1]), [one]))
        assert "2 constraints with 3 rows, X" in repr(bo.Problem(bo.Minimize(X[0, 1]), [one, two]))
        with pytest.warns(bo.ConvergenceWarning):
            assert "effort     1 iteration, " in repr(nearness().solve(solver="bregman", **LIMITED))

    def test_history_is_one_array_a_quantity(self):
        history = nearness().solve().history
        lengths = {len(values) for values in history.values()}
        assert len(lengths) == 1
        assert {"iteration", "primal", "dual", "gap", "primal_residual", "seconds"} <= set(history)
        assert (np.diff(history["dual"]) >= -1e-9).all()  # coordinate ascent on the dual

    def test_value_of_the_objective_expression(self):
        problem = nearness()
        sol = problem.solve()
        assert problem.objective.expression.value == pytest.approx(sol.value)
        assert problem.value == sol.value

    @pytest.mark.parametrize("low_rank", [False, True])
    def test_pickles_before_and_after_solving(self, low_rank):
        problem = nearness()
        if low_rank:
            X = bo.PSD(9)
            start = bo.LowRank(np.random.default_rng(1).normal(size=(9, 2)))
            problem = bo.Problem(bo.Minimize(bo.logdet_div(X, start)), [bo.trace(X) == 1])
        fresh = pickle.loads(pickle.dumps(problem)).solve()
        sol = problem.solve()
        again = pickle.loads(pickle.dumps(sol))
        assert again.value == sol.value == fresh.value
        np.testing.assert_array_equal(np.asarray(again.X), np.asarray(sol.X))
        assert pickle.loads(pickle.dumps(problem)).solve(warm_start=True).iterations <= sol.iterations
        assert copy.deepcopy(problem).solve().value == sol.value

    def test_threads_give_the_same_answers(self):
        expected = [nearness(seed=s).solve().value for s in range(6)]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda s: nearness(seed=s).solve().value, range(6)))
        assert found == expected

    def test_verbose_prints_a_table(self, capsys):
        nearness().solve(verbose=True)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("bregopt bregman: X 6 x 6; 6 rows")
        assert lines[1].split() == ["iteration", "primal", "bound", "gap", "residual", "seconds"]
        assert len(lines) >= 4
        nearness().solve()
        assert capsys.readouterr().out == ""

    def test_plot(self):
        matplotlib = pytest.importorskip("matplotlib")
        matplotlib.use("Agg")
        ax = nearness().solve().plot()
        names = {line.get_label().partition(":")[0] for line in ax.lines}  # a residual of zero says so
        assert names == {"certified gap", "primal residual"}
        matplotlib.pyplot.close("all")

    def test_first_solve_equals_second(self):
        problem = nearness()
        first, second = problem.solve(), problem.solve()
        assert first.iterations == second.iterations
        np.testing.assert_array_equal(first.X, second.X)


def test_no_constraints_at_all():
    X0 = np.diag([1.0, 2.0])
    X = bo.PSD(2)
    for divergence in (bo.logdet_div, bo.von_neumann_div, bo.frobenius_div):
        sol = bo.Problem(bo.Minimize(divergence(X, X0))).solve()
        assert sol.value == pytest.approx(0, abs=1e-12)
        np.testing.assert_allclose(sol.X, X0, atol=1e-12)


LIMITED = {"max_iter": 1, "tol": 1e-14, "method": "cyclic"}


@pytest.mark.parametrize(
    "solve",
    [
        lambda: nearness().solve(solver="bregman", **LIMITED),
        lambda: bo.nearest_correlation([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]], **LIMITED),
        lambda: bo.nearest_psd(
            np.diag([1.0, 2.0]), lambda X: [bo.diag(X) == 1, X[0, 1] >= 0.5], "logdet", **LIMITED
        ),
        lambda: bo.learn_kernel(np.eye(3), [[0, 1], [1, 2]], [[0, 2]], gamma=0.1, **LIMITED),
    ],
)
def test_warnings_point_at_the_caller(solve):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solve()
    (warning,) = caught
    assert warning.category is bo.ConvergenceWarning
    assert (warning.filename, warning.lineno) == (__file__, solve.__code__.co_firstlineno)


@pytest.mark.parametrize(
    ("D", "R", "first"), [(5, 200, "path"), (64, 100_000, "psdboost"), (501, 60, "psdboost")]
)
def test_matrices_are_generated_where_a_step_on_all_rows_is_too_much(D, R, first):
    rng = np.random.default_rng(0)
    X, rho = bo.PSD(D), bo.Variable()
    rows = bo.quad_form(rng.normal(size=(R, D)), X) - rho >= 0
    problem = bo.Problem(bo.Maximize(rho), [bo.soft(rows, gamma=10 / R), bo.trace(X) == 1])
    chosen = [route.solver for route in routing.routes(problem.program()) if route.chosen]
    assert chosen == [first]


@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), np.linalg.LinAlgError("singular")])
def test_arithmetic_that_breaks_down_is_an_error_of_the_route(monkeypatch, error):
    def breaks(*_):
        raise error

    monkeypatch.setattr(routing.driver, "run_directly", breaks)
    monkeypatch.setattr(routing.driver, "run", breaks)
    X = bo.PSD(2)
    with pytest.raises(bo.SolverError, match=f"path left the range of doubles .{error}.; take units"):
        bo.Problem(bo.Minimize(X[0, 0]), [bo.trace(X) <= 1]).solve("path")


def test_tolerances_may_be_fractions():
    X = bo.PSD(3)
    rows = [bo.trace(X) == 1, X[0, 1] <= 0.1, X[1, 2] >= 0.2]
    found = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(3))), rows).solve(tol=Fraction(1, 10**7))
    assert found.status == "optimal"
    assert found.gap <= 1e-7
