"""The numerical constants of the methods: they are checked, and answers are true whatever their values."""

import contextlib
import warnings
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
import truth
from problem_library import CASES
from samples import first, turns

import bregopt as bo
from bregopt.routes import routing

TOLS = (1e-6, 5e-2)  # the first that a route takes; DefiniteBoost searches for margins with the second
NO_ANSWER = {"infeasible": np.inf, "unbounded": -np.inf}  # value of a truth.Case


@pytest.mark.parametrize("solver", bo.solvers())
def test_every_route_gives_its_constants(solver):
    tuning = bo.tuning(solver)
    assert tuning == type(tuning)()
    documented = {name for cls in type(tuning).__mro__ for name in (cls.__doc__ or "").split()}
    assert {field.name for field in fields(tuning)} <= documented


def shaken(value, rng):
    """Return a constant multiplied by a factor from 1/4 to 4; a fraction has its odds multiplied by it."""
    factor = 4 ** rng.uniform(-1, 1)
    if isinstance(value, tuple):
        seed = rng.integers(2**32)  # one factor for all
        return tuple(shaken(own, np.random.default_rng(seed)) for own in value)
    if isinstance(value, int):
        return max(1, round(value * factor))
    return factor * value / (1 - value + factor * value) if value < 1 else factor * value


def shaken_tuning(tuning, rng):
    """Return a tuning with all constants changed, except those that their class refuses."""
    values = {field.name: shaken(getattr(tuning, field.name), rng) for field in fields(tuning)}
    try:
        return replace(tuning, **values)
    except ValueError:  # such as a first value above the largest
        for name, value in values.items():
            with contextlib.suppress(ValueError):
                tuning = replace(tuning, **{name: value})
        return tuning


@cache
def problems_of_known_truth(solver):
    """Return the problems of the test-bed and of the library that a route takes, each with a tolerance."""
    found = truth.cases(seed=1, count=1)
    for name, make in CASES.items():
        case = make()
        value = NO_ANSWER.get(case.status, case.value)
        if value is not None:
            found.append(truth.Case("library", name, lambda make=make: make().problem, value))
    pairs = []
    for case in found:
        program = case.make().program()
        tol = next((tol for tol in TOLS if routing.takes(program, solver, {"tol": tol})), None)
        pairs += [] if tol is None else [(case, tol)]
    return pairs


@pytest.mark.parametrize(
    ("seed", "solver"), turns(first(3, range(24)), sorted(set(bo.solvers()) - {"cvxpy"}))
)
def test_answers_are_true_whatever_the_constants(solver, seed):
    rng, known = np.random.default_rng(seed), problems_of_known_truth(solver)
    for k in rng.choice(len(known), 2, replace=False):
        (case, tol), tuning = known[k], shaken_tuning(bo.tuning(solver), rng)
        verdict = judged(case, solver, tol, tuning)
        assert verdict.true, (case.family, case.name, verdict, tuning)


def judged(case, solver, tol, tuning):
    """Return the verdict on a route's answer."""
    problem = case.make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        try:
            sol = problem.solve(solver, tol=tol, tuning=tuning, time_limit=1.0)
        except bo.InfeasibleRowError:
            return truth.judge(case, tol, "infeasible", np.inf, np.inf, np.nan)
    maximize = isinstance(problem.objective, bo.Maximize)
    return truth.judge(case, tol, sol.status, sol.value, sol.dual_value, sol.error, maximize=maximize)


def test_a_constant_of_the_wrong_kind_is_refused():
    tuning = bo.tuning("path")
    with pytest.raises(TypeError, match=r"rounds is 2\.5; expected an integer"):
        replace(tuning, rounds=2.5)
    with pytest.raises(TypeError, match="first_tol is 'small'; expected a number"):
        replace(tuning, first_tol="small")
    with pytest.raises(ValueError, match=r"first_tol is -1\.0; expected a positive number"):
        replace(tuning, first_tol=-1.0)
    with pytest.raises(ValueError, match="first_tol is nan; expected a positive number"):
        replace(tuning, first_tol=float("nan"))


def test_the_constants_of_another_method_are_refused():
    A = np.array([[1.0, 0.9, 0.3], [0.9, 1.0, 0.9], [0.3, 0.9, 1.0]])
    with pytest.raises(TypeError, match=r"expected ProjectionTuning, such as bo\.tuning\(solver\)"):
        bo.nearest_correlation(A, solver="bregman", tuning=bo.tuning("path"))


def test_the_constants_of_a_method_select_its_route(capsys):
    X = bo.PSD(3, name="X")
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 1])
    assert problem.solve(tuning=bo.tuning("path")).solver == "path"
    assert problem.solve(tuning=bo.tuning("cvxpy")).solver == "cvxpy"
    problem.explain(tuning=bo.tuning("cvxpy"))
    assert "it has no option 'tuning' of type ReferenceTuning" in capsys.readouterr().out
