"""Callbacks, logs and progress bars."""

import logging
import sys
import warnings
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

import bregopt as bo
import bregopt.cvxpy  # registers method="bregopt"
from bregopt.certify import Certificate
from bregopt.program import StopReason
from bregopt.routes.ipm.path_route import PathSettings
from bregopt.routes.progress import Method, Monitor, Progress


def correlation(n=12, seed=0):
    G = np.random.default_rng(seed).normal(size=(n, n))
    X = bo.PSD(n, name="X")
    rows = [bo.diag(X) == 1, (X[0, 1:] <= 0.1).named("first")]
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, (G + G.T) / 2)), rows)


class TestCallback:
    def test_it_ends_the_solve_at_the_step_that_it_chooses(self):
        steps = []
        with pytest.warns(bo.ConvergenceWarning, match="The callback ended the solve"):
            sol = correlation().solve(callback=lambda s: steps.append(s) or len(steps) == 2)
        assert len(steps) == 2
        assert sol.status == "user_limit"
        assert sol.iterations == steps[-1].iteration
        assert np.linalg.eigvalsh(sol.X)[0] >= -1e-12

    def test_a_gap_of_ones_own(self):
        """A looser answer than `tol` is what the certificate says it is."""
        exact = correlation().solve(tol=1e-9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            rough = correlation().solve(tol=1e-9, callback=lambda s: max(s.gap, s.primal_residual) < 1e-2)
        assert rough.status == "user_limit"
        assert 1e-9 < max(rough.gap, rough.primal_residual) < 1e-2
        assert abs(rough.value - exact.value) <= rough.error + exact.error

    def test_an_end_after_the_last_step_leaves_the_answer_optimal(self):
        sol = correlation().solve(callback=lambda s: max(s.gap, s.primal_residual) < 1e-6)
        assert sol.status == "optimal"
        assert sol.stop_reason.startswith("The certificate meets the tolerance")

    def test_values_have_the_sign_of_a_maximization(self):
        X, steps = bo.PSD(3), []
        prob = bo.Problem(bo.Maximize(bo.inner(np.ones((3, 3)), X)), [bo.diag(X) == 1])
        sol = prob.solve(callback=steps.append)
        assert steps[-1].value == pytest.approx(sol.value, abs=1e-4)
        assert all(step.bound >= sol.value - 1e-6 for step in steps)

    def test_it_may_solve_a_problem_itself(self):
        inner = []

        def solves(step):
            inner.append(correlation(5).solve(callback=lambda s: False).status)
            return False

        assert correlation().solve(callback=solves).status == "optimal"
        assert set(inner) == {"optimal"}

    def test_an_end_ends_one_solve_only(self):
        graph = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [0, 2], [1, 3]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            cut = bo.max_cut(graph, callback=lambda s: True)
        assert cut.cut == 6  # the rounding that follows is complete
        assert cut.bound >= 6

    def test_cvxpy_passes_it_on(self):
        Y, steps = cp.Variable((3, 3), PSD=True), []
        problem = cp.Problem(cp.Minimize(cp.trace(Y)), [Y[0, 1] >= 1])
        problem.solve(method="bregopt", callback=steps.append)
        assert steps[-1].value == pytest.approx(2, abs=1e-4)
        seen = len(steps)
        problem.solve(solver=bregopt.cvxpy.BREGOPT, callback=steps.append)
        assert len(steps) > seen

    @pytest.mark.parametrize("callback", [3, "print", [print]])
    def test_it_must_be_callable(self, callback):
        with pytest.raises(TypeError, match=r"callback is .*; expected a function of one argument"):
            correlation().solve(callback=callback)

    def test_a_cause_of_its_exception_is_kept(self):
        def fails(step):
            raise ZeroDivisionError("mine") from KeyError("the cause")

        with pytest.raises(ZeroDivisionError, match="mine") as found:
            correlation().solve(callback=fails)
        assert isinstance(found.value.__cause__, KeyError)


class TestLog:
    def test_levels_and_names(self, caplog):
        with caplog.at_level(logging.INFO, logger="bregopt"):
            correlation().solve()
        names = [record.name for record in caplog.records]
        assert names[0] == "bregopt.routes.routing"
        assert set(names[1:]) == {"bregopt.routes.driver"}
        assert caplog.messages[0].startswith("route bregman: method 'newton'")
        assert caplog.messages[-1].startswith("bregman: optimal after ")
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger="bregopt"):
            sol = correlation().solve()
        steps = [record for record in caplog.records if record.levelno == logging.DEBUG]
        assert [record.name for record in steps] == ["bregopt.routes.progress"] * len(sol.history["gap"])
        assert "iteration 0, value" in steps[0].getMessage()

    def test_reductions_are_in_it(self, caplog):
        X, u = bo.PSD(3, name="X"), bo.Variable(2, name="u")
        rows = [bo.diag(X) == 1, bo.trace(X) == 3, u[0] >= 1, u[1] >= X[0, 1]]
        with caplog.at_level(logging.INFO, logger="bregopt"):
            bo.Problem(bo.Minimize(bo.sum(u) + X[0, 2]), rows).solve(solver="path")
        assert any(message.startswith("path: after ") for message in caplog.messages)

    def test_nothing_is_printed_by_default(self, capfd):
        correlation().solve()
        assert capfd.readouterr() == ("", "")


class TestBars:
    def test_a_solve_shows_its_digits(self, capsys):
        pytest.importorskip("tqdm")
        assert correlation().solve(progress=True).status == "optimal"
        shown = capsys.readouterr().err
        assert "bregopt bregman" in shown
        assert "100%" in shown
        assert "bound" in shown
        assert "gap" in shown

    def test_loops_show_their_items(self, capsys):
        pytest.importorskip("tqdm")
        bo.cross_check(correlation(4), solvers=("bregman", "cvxpy"), progress=True)
        assert "routes: 100%" in capsys.readouterr().err
        edges = np.array([[0, 1], [1, 2], [2, 0]])
        bo.max_cut(edges, bound="sdp", progress=True)
        assert "bregopt path" in capsys.readouterr().err
        bo.max_cut(edges, bound=False, progress=True)
        shown = capsys.readouterr().err
        assert "cycles: " in shown
        assert "rounds: " in shown
        X = bo.PSD(2)
        sol = bo.Problem(bo.Minimize(bo.trace(X)), [bo.trace(X) <= 1, X[0, 0] >= 2]).solve()
        sol.conflict(progress=True)
        assert "solves: 2" in capsys.readouterr().err

    def test_a_missing_package_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
        with pytest.raises(ImportError, match=r"pip install 'bregopt\[progress\]'"):
            correlation().solve(progress=True)
        assert correlation().solve().status == "optimal"

    def test_it_is_true_or_false(self):
        with pytest.raises(TypeError, match="progress is 1; expected True or False"):
            correlation().solve(progress=1)


class Steps(Method):
    """Points of given errors; only some of them answer the program before its reductions."""

    tests_multipliers = False

    def __init__(self, errors, settle):
        self._errors, self._settle = errors, settle

    def certificate(self, at):
        return Certificate(1.0, 1.0, self._errors[at.k], 0.0, 0.0, self._errors[at.k], size=1.0)

    def advance(self, at):
        return SimpleNamespace(k=at.k + 1, y=at.y)

    def settled(self, at):
        return at.k in self._settle


def test_a_method_ends_at_the_point_that_settles_the_whole_program():
    """An earlier one of less error in the reduced program need not be an answer to the whole."""
    X = bo.PSD(2)
    program = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 1]).program()
    monitor = Monitor(program, PathSettings(tol=1e-6), Progress("steps"))
    method = Steps([1e-3, 1e-8, 1e-7, 1e-9], settle={2, 3})
    found = monitor.follow(method, SimpleNamespace(k=0, y=np.zeros(1)), 10)
    assert (found.stop, found.step, found.at.k) == (StopReason.CONVERGED, 2, 2)
