"""solve(proven=True): optimal only with a proven interval, in every way to solve."""

import math
import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize

import bregopt as bo
from bregopt.cvxpy import BREGOPT
from bregopt.errors import UnsupportedProblemError
from bregopt.records import replace
from bregopt.routes import routing


def ones(n=4):
    """The largest sum of a correlation matrix is n^2."""
    X = bo.PSD(n, name="X")
    return bo.Problem(bo.Maximize(bo.sum(X)), [bo.diag(X) == 1])


def test_an_optimal_answer_has_its_interval():
    found = ones().solve(proven=True)
    assert found.status == "optimal"
    assert found.proof.lower <= 16 <= found.proof.upper
    assert found.proof.width <= 1e-6 * 16
    assert found.verify() is found.proof
    assert "the optimum is between" in str(found)
    assert found.verify(trace_bound=4.0) is not found.proof


def test_a_wide_interval_is_narrowed_by_a_finer_solve_or_is_no_optimum(monkeypatch):
    runs = []
    plain = routing.driver.run

    def run(solver, program, settings, start, warn=True):
        runs.append(settings.tol)
        return plain(solver, program, settings, start, warn)

    monkeypatch.setattr(routing.driver, "run", run)
    coarse = ones().solve(proven=True, tol=0.3)
    assert coarse.proof.width <= 0.3 * 16
    narrow = routing._proof

    def widened(program, solution):
        found = narrow(program, solution)
        return replace(found, upper=found.upper + 1)

    monkeypatch.setattr(routing, "_proof", widened)
    runs.clear()
    with pytest.warns(bo.ConvergenceWarning, match="optimal_inaccurate"):
        found = ones().solve(proven=True)
    assert runs == [1e-6, 1e-8]
    assert found.status == "optimal_inaccurate"
    assert "the relative width of the proven interval is" in found.stop_reason


def test_no_interior_no_proof_says_why():
    X = bo.PSD(2)
    rows = [X[0, 0] - 1e-9 * X[1, 1] == -1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bo.Problem(bo.Minimize(bo.trace(X)), rows).solve(proven=True)
    assert found.proof.lower <= 1e9 <= found.proof.upper
    unattained = bo.Problem(bo.Minimize(2 * X[0, 1]), [X[1, 1] == 0, X[0, 0] == 1]).solve(proven=True)
    assert unattained.proof.lower <= 0 <= unattained.proof.upper


def test_an_interval_is_relative_to_the_objective_alone():
    """Neither a constant nor the round-off of a matrix of size 1e13 makes a wide interval narrow."""
    X = bo.PSD(2)
    unattained = bo.Problem(bo.Minimize(X[0, 0]), [X[0, 1] == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = unattained.solve(proven=True)
    assert found.proof.lower <= 0 <= found.proof.upper
    assert found.status == "optimal_inaccurate" or found.proof.width <= 1e-8
    moved = bo.Problem(bo.Minimize(2 * X[0, 1] + 1e6), [bo.diag(X) == 1])
    found = moved.solve(proven=True)
    raw = found._in_program
    assert found.status == "optimal"
    assert routing._is_within(found.proof, raw, 1e-6)
    wide = replace(found.proof, upper=found.proof.lower + 1e-4)
    assert not routing._is_within(wide, raw, 1e-6)


def test_entropies_count():
    """The largest entropy of a state is log n, in the objective and as the bound of a row."""
    X = bo.PSD(3)
    state = [bo.trace(X) == 1]
    largest = bo.Problem(bo.Maximize(bo.von_neumann_entr(X)), state).solve(proven=True)
    assert largest.status == "optimal"
    assert largest.proof.lower <= math.log(3) <= largest.proof.upper
    again = bo.verify(bo.Problem(bo.Maximize(bo.von_neumann_entr(X)), state), largest)
    assert again.lower <= math.log(3) <= again.upper <= again.lower + 1e-6
    with pytest.raises(ValueError, match="entropies and exponentials are proven with their tangents"):
        bo.verify(bo.Problem(bo.Maximize(bo.von_neumann_entr(X)), state), again.certificate)
    with pytest.raises(ValueError, match="not of entropies"):
        largest.verify(trace=9.0)
    with pytest.raises(ValueError, match="has entropies"):
        largest.rational()
    assert largest.accuracy.largest == np.inf
    assert "entropies" in largest.accuracy.reason
    energy = bo.inner(np.diag([0.0, 1.0, 3.0]), X)
    found = bo.Problem(bo.Minimize(energy), [*state, bo.von_neumann_entr(X) >= 1]).solve(proven=True)
    thermal = scipy.optimize.brentq(lambda beta: entropy_at(beta)[0] - 1, 0.01, 9.0, xtol=1e-15)
    assert found.proof.lower - 1e-12 <= entropy_at(thermal)[1] <= found.proof.upper + 1e-12
    assert found.proof.relative_width <= 1e-6


def test_intervals_of_parameters_are_not_those_of_entropies():
    X, p = bo.PSD(2), bo.Parameter(lo=0.9, hi=1.1, name="p")
    found = bo.Problem(bo.Maximize(bo.von_neumann_entr(X)), [bo.trace(X) == p]).solve().verify()
    assert found.lower <= math.log(2) <= found.upper
    assert not found.intervals
    assert "entropies take no intervals: the bounds are those at the values of p" in found.given
    with pytest.raises(ValueError, match="DIMACS errors are defined for linear"):
        problem = bo.Problem(bo.Maximize(bo.von_neumann_entr(X)), [bo.trace(X) == 1])
        bo.dimacs_errors(problem, problem.solve())


@pytest.mark.parametrize("sign", [-1, 1])
def test_nodes_with_entropies_are_bounded_by_these(sign):
    """With a fixed entry the spectrum of ``X = [a, c; c, 1 - a]`` is best at ``a = 1/2``."""
    X = bo.PSD(2)
    entry, entropy = bo.between(X[0, 1], -1.0, 1.0), bo.von_neumann_entr(X)
    objective = bo.Maximize(entropy) if sign > 0 else bo.Minimize(-entropy)
    problem = bo.Problem(objective, [bo.trace(X) == 1, entry])
    for c in (0.0, 0.25, 0.4):
        p = np.array([0.5 - c, 0.5 + c])
        truth = sign * float(-p @ np.log(p))
        found = problem.bound({entry: c})
        assert sign * (found.value - truth) >= -1e-12
        assert found.value == pytest.approx(truth, abs=1e-6)
    assert problem.bound({entry: 0.6}).value in (-np.inf, np.inf)


def entropy_at(beta):
    """Return the entropy and the energy of a thermal state."""
    levels = np.array([0.0, 1.0, 3.0])
    p = np.exp(-beta * levels) / np.exp(-beta * levels).sum()
    return -p @ np.log(p), p @ levels


def test_contradictions_rays_and_other_routes():
    X = bo.PSD(2)
    infeasible = bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) == 1, X[0, 1] >= 1.5]).solve(proven=True)
    assert infeasible.status == "infeasible"
    assert infeasible.proof.infeasible
    unbounded = bo.Problem(bo.Minimize(X[0, 0] - X[1, 1]), [X[0, 1] == 0]).solve(proven=True)
    assert unbounded.proof.unbounded
    A = np.array([[1, -0.9, 0.3], [-0.9, 1, 0.6], [0.3, 0.6, 1]])
    nearest = bo.nearest_correlation(A, proven=True)
    assert nearest.status == "optimal"
    assert nearest.proof.lower <= bo.nearest_correlation(A, tol=1e-10).value <= nearest.proof.upper
    for solver in ("path", "cvxpy", "psdboost"):
        assert ones().solve(solver=solver, proven=True, tol=1e-4).proof.upper >= 16 - 1e-12


def test_stacks_many_checks_and_cvxpy():
    A = np.array([[1, -0.9, 0.3], [-0.9, 1, 0.6], [0.3, 0.6, 1]])
    many = bo.solve_many([ones(3), ones(4)], proven=True)
    assert [answer.proof.lower <= n**2 <= answer.proof.upper for answer, n in zip(many, (3, 4), strict=True)]
    stack = bo.nearest_correlation(np.stack([A, A.T]), proven=True)
    assert all(math.isfinite(answer.proof.width) for answer in stack)
    check = bo.cross_check(ones(), solvers=("path", "cvxpy"), proven=True)
    assert check.ok
    assert all(row.status == "optimal" for row in check.rows)
    X = cp.Variable((4, 4), PSD=True)
    problem = cp.Problem(cp.Maximize(cp.sum(X)), [cp.diag(X) == 1])
    problem.solve(method="bregopt", proven=True)
    proof = problem.solver_stats.extra_stats.proof
    assert proof.lower <= 16 <= proof.upper
    problem.solve(solver=BREGOPT, proven=True)
    lower, upper = problem.solver_stats.extra_stats["proven"]
    assert lower <= -16 <= upper
    assert upper - lower <= 1e-5


def test_options_that_cannot_be_proven():
    with pytest.raises(TypeError, match="proven is 1; expected True or False"):
        ones().solve(proven=1)
    X = bo.PSD(3)
    rows = bo.cut_rows(lambda answer: [])
    with pytest.raises(UnsupportedProblemError, match="may generate further rows"):
        bo.Problem(bo.Maximize(bo.sum(X)), [bo.diag(X) == 1, rows]).solve(proven=True)
