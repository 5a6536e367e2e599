"""Every route solves all problems of the library that it takes; certificate and answer are checked."""

import itertools
import warnings
from collections import Counter

import numpy as np
import peers
import problem_library
import pytest
from samples import turns

import bregopt as bo
from bregopt import clock
from bregopt.routes import routing

# A new route is tested by adding its name.
ROUTES = ("bregman", "path", "lagrangian", "entropy", "psdboost", "lowrank", "definiteboost", "cvxpy")
# A method of a route is tested by adding its options.
METHODS = {
    "bregman": ({"method": "newton"}, {"method": "cyclic"}),
    "path": ({},),
    "lagrangian": ({},),
    "entropy": ({},),
    "psdboost": ({"master": "lp"}, {"master": "psd"}),
    "lowrank": ({},),
    "definiteboost": ({}, {"step": "exact"}, {"order": "cyclic"}),
    "cvxpy": ({},),
}
TOL = 1e-7
# Largest distance of an answer from the known one, relative to its size.
X_TOL = dict.fromkeys(ROUTES, 1e-3) | {"bregman": 1e-4, "definiteboost": 1e-4, "cvxpy": 2e-3}


def solved(problem, route, **options):
    if route == "cvxpy":  # a backend may miss the tolerance; the test checks its certificate
        return peers.reference(problem, within=1e-5, tol=TOL, **options)
    return problem.solve(solver=route, tol=TOL, **options)


def quietly(problem, route, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        return problem.solve(solver=route, tol=TOL, **options)


def takes(problem, route, **options):
    return routing.takes(problem.program(), route, options)


def matrices(X):
    """Return the matrices of an answer, of which there may be one or several."""
    return [np.asarray(one) for one in (X if isinstance(X, tuple) else (X,))]


PAIRS = [
    pytest.param(name, route, options, id="-".join([name, route, *options.values()]))
    for name, make in problem_library.CASES.items()
    for problem in [make().problem]
    for route in ROUTES
    for options in METHODS[route]
    if takes(problem, route, **options)
]


def third(pairs):
    """Return the pairs of which each method of a route has a third of its problems by default."""
    found, seen = [], Counter()
    for pair in pairs:
        method = pair.id.partition("-")[2]
        seen[method] += 1
        slow = (seen[method] + list(seen).index(method)) % 3
        found.append(pytest.param(*pair.values, id=pair.id, marks=[pytest.mark.slow] * bool(slow)))
    return found


@pytest.mark.parametrize(("name", "route", "options"), PAIRS)
def test_route_meets_known_answer_step_by_step(name, route, options):
    case, steps = problem_library.CASES[name](), []
    sol = solved(case.problem, route, callback=steps.append, **options)
    check_steps(sol, steps)
    check_form(case, sol, route)
    if case.status != "optimal":
        assert sol.status == case.status, sol.stop_reason
        assert sol.X is None
        assert np.isinf(sol.value)
        return
    assert sol.status in ("optimal", "optimal_inaccurate")
    assert max(sol.gap, sol.primal_residual, sol.dual_residual) <= (TOL if route != "cvxpy" else 1e-5)
    unit = max(1.0, abs(sol.value))
    if case.value is not None:
        assert abs(sol.value - case.value) <= (sol.error + 1e-9 * unit if route == "cvxpy" else 1e-6 * unit)
    if sol.status != "optimal":
        return
    if case.X is not None:
        for found, reference in zip(matrices(sol.X), matrices(case.X), strict=True):
            bound = X_TOL[route] * max(1.0, np.abs(reference).max())
            # Some known answers are printed to four digits only.
            assert np.abs(found - reference).max() <= max(bound, 1e-4 if case.value is None else 0)
    for k, dual in case.duals.items():
        np.testing.assert_allclose(sol.duals[k], dual, atol=5e-3 * max(1.0, np.abs(dual).max()))
    for variable, value in case.u.items():
        np.testing.assert_allclose(sol.u[variable], value, atol=1e-4)


def check_form(case, sol, route):
    """Check that an answer is psd, is set in its problem, and obeys weak duality."""
    assert sol.solver == route
    assert set(sol.timings) == {"setup", "solve", "certify", "total"}
    assert case.problem.status == sol.status
    if sol.X is None:
        return
    for X, variable in zip(matrices(sol.X), case.problem.matrices, strict=True):
        np.testing.assert_array_equal(X, X.T)
        assert np.linalg.eigvalsh(X)[0] >= -1e-12 * max(np.trace(X), 1e-300)
        np.testing.assert_array_equal(np.asarray(variable.value), X)
    # Weak duality, up to the cost of the violations.
    sign = case.problem.objective.sign
    assert sign * (sol.value - sol.dual_value) >= -sol.error


# The reference's backends count iterations in their own way.
@pytest.mark.parametrize(
    ("name", "route", "options"), third(pair for pair in PAIRS if pair.values[1] != "cvxpy")
)
def test_limit_of_one_iteration_never_claims_too_much(name, route, options):
    case = problem_library.CASES[name]()
    sol = quietly(case.problem, route, max_iter=1, **options)
    if sol.status == "optimal" and case.value is not None:
        assert sol.value == pytest.approx(case.value, abs=1e-6 * max(1.0, abs(case.value)))
    if sol.status == "user_limit":
        assert sol.stop_reason.startswith("max_iter")
        if case.value is not None and np.isfinite(sol.dual_value):
            sign = case.problem.objective.sign
            assert sign * sol.dual_value <= sign * case.value + 1e-6 * max(1.0, abs(case.value))


def check_steps(sol, steps):
    """Check that the steps which a callback saw are those of the history."""
    assert len(steps) == len(sol.history.get("iteration", ()))
    recorded = {"iteration": "iteration", "value": "primal", "bound": "dual", "gap": "gap"}
    for own, column in recorded.items():
        np.testing.assert_array_equal([getattr(step, own) for step in steps], sol.history.get(column, []))
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(steps))


@pytest.mark.parametrize(("name", "route", "options"), third(PAIRS))
def test_the_callback_may_end_the_solve(name, route, options):
    case, steps = problem_library.CASES[name](), []

    def first(step):
        steps.append(step)
        return True

    sol = quietly(case.problem, route, callback=first, **options)
    # A step of the interior-point method may prove that there is no answer before it is recorded.
    if sol.status != "user_limit":
        return
    assert len(steps) == 1 or route == "cvxpy"
    assert sol.stop_reason.startswith("The callback ended the solve")
    for X in matrices(sol.X):
        assert np.linalg.eigvalsh(X)[0] >= -1e-12 * max(np.trace(X), 1e-300)
    if case.value is not None and case.status == "optimal" and np.isfinite(sol.dual_value):
        sign = case.problem.objective.sign
        assert sign * sol.dual_value <= sign * case.value + 1e-6 * max(1.0, abs(case.value))


@pytest.mark.parametrize(
    ("error", "name", "route", "options"),
    turns([ValueError, ZeroDivisionError, np.linalg.LinAlgError, clock.CutShort], PAIRS[:: len(PAIRS) // 12]),
)
def test_exceptions_of_the_callback_propagate(error, name, route, options):
    case, raised = problem_library.CASES[name](), []

    def fails(step):
        raised.append(error(clock.Ending.TIME if error is clock.CutShort else "of the callback"))
        raise raised[0]

    if not quietly(problem_library.CASES[name]().problem, route, **options).history:
        pytest.skip("presolve answers the problem")
    with pytest.raises(error) as found:
        quietly(case.problem, route, callback=fails, **options)
    assert found.value is raised[0]
    assert len(raised) == 1


def test_every_builtin_route_is_enrolled():
    assert set(bo.solvers()) == set(ROUTES)
