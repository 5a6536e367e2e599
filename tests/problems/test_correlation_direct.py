"""Small nearest correlation matrices, whose problem is declared when it is asked for."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings

import numpy as np
import pytest
from samples import turns

import bregopt as bo
from bregopt.problems.correlation.nearest import read_request, solve_directly
from bregopt.routes.routing import solve as solve_program

NAMES = ("fixed", "lower", "upper", "weights", "max_condition", "groups", "max_rank")
PLAIN = dict.fromkeys(NAMES) | {"min_eigenvalue": 0.0, "missing": "error", "suggest": False}


def indefinite(n, seed=0, size=0.5):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(n, n))
    A = size * (B + B.T)
    np.fill_diagonal(A, 1.0)
    return A


def generally(A, **options):
    """The answer of the general method, which a solve with a callback takes."""
    return bo.nearest_correlation(A, callback=lambda step: None, **options)


def is_direct(A, **options):
    return solve_directly(read_request(A, "frobenius", PLAIN), options) is not None


@pytest.mark.parametrize(("n", "size"), turns([1, 2, 3, 8, 25, 60], [1e-6, 0.5, 1e3]))
def test_the_answer_is_that_of_the_general_method(n, size):
    A = indefinite(n, seed=n, size=size)
    sol, other = bo.nearest_correlation(A, tol=1e-10), generally(A, tol=1e-10)
    assert is_direct(A) or size > 1  # far from the cone Newton's method alone may not converge
    assert sol.status == other.status == "optimal"
    round_off = 1e-13 * np.sum(A**2)
    assert sol.dual_value <= other.value + other.error + round_off
    assert other.dual_value <= sol.value + sol.error + round_off
    np.testing.assert_allclose(sol.X, other.X, atol=1e-5 if size < 1 else 1e-2)
    assert (sol.X.diagonal() == 1).all()
    assert np.linalg.eigvalsh(sol.X)[0] >= -1e-13 * n
    (dual,), (theirs,) = sol.duals, other.duals
    np.testing.assert_allclose(dual, theirs, atol=1e-4 * max(1.0, 10 * size))
    assert sol.duals_by_name.keys() == other.duals_by_name.keys()
    assert sol.timings.keys() == other.timings.keys()
    assert sol.history.keys() == other.history.keys()
    assert (sol.solver, sol.citation, sol.u) == (other.solver, other.citation, other.u)


def test_its_certificate_is_that_of_its_declared_problem():
    A = indefinite(12)
    sol = bo.nearest_correlation(A)
    X = bo.PSD(12)
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1])
    found = bo.verify(problem, sol)
    assert found.lower <= sol.value <= found.upper * (1 + 1e-8)
    own = sol.verify()
    assert own.upper - own.lower <= 1e-6 * sol.value
    raw = sol._in_program
    from_start = solve_program(raw._program, start=raw)
    assert from_start.iterations == 0
    assert problem.solve(warm_start=sol).iterations == 0


@pytest.mark.parametrize("n", [2, 7, 30])
def test_products_are_those_of_the_derivative(n, rng):
    A, G = indefinite(n, seed=n), rng.normal(size=(n, n))
    sol = bo.nearest_correlation(A)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(sol.vjp(G), sol.derivative().vjp(G).data, atol=1e-8)
        np.testing.assert_allclose(sol.jvp(G), sol.derivative().jvp(G).X, atol=1e-8)
        np.testing.assert_allclose(sol.vjp(G), generally(A).vjp(G), atol=1e-8)
    assert sol.derivative().vjp(G).parameters == {}


def test_labels_are_kept_and_compared():
    pd = pytest.importorskip("pandas")
    names = list("abcd")
    A = pd.DataFrame(indefinite(4), index=names, columns=names)
    sol, other = bo.nearest_correlation(A), generally(A, tol=1e-10)
    assert is_direct(A)
    pd.testing.assert_frame_equal(sol.X, other.X, atol=1e-6)
    pd.testing.assert_series_equal(sol.duals_by_name["diagonal"], other.duals_by_name["diagonal"], atol=1e-4)
    gradient = sol.vjp(pd.DataFrame(np.eye(4)[::-1], index=names, columns=names))
    assert list(gradient.index) == list(gradient.columns) == names
    with pytest.raises(ValueError, match="other labels"):
        sol.vjp(A.loc[names[::-1], names[::-1]])
    assert "a" in str(sol.report())


@pytest.mark.parametrize("S", [np.eye(3), np.full((4, 4), np.nan), np.zeros(4)])
def test_bad_gradients_are_refused(S):
    sol = bo.nearest_correlation(indefinite(4))
    for product in (sol.vjp, sol.jvp):
        with pytest.raises(ValueError, match=r"shape|finite|NaN|dimension"):
            product(S)


def test_a_kink_is_refused():
    sol = bo.nearest_correlation(np.ones((3, 3)))
    assert is_direct(np.ones((3, 3)))
    for product in (sol.vjp, sol.jvp):
        with pytest.raises(ValueError, match="an eigenvalue of X - Z is zero"):
            product(np.eye(3))


def test_it_pickles_and_copies():
    A = indefinite(5)
    sol = bo.nearest_correlation(A)
    before = sol.vjp(np.eye(5))
    for again in (pickle.loads(pickle.dumps(sol)), copy.deepcopy(sol)):
        np.testing.assert_array_equal(again.X, sol.X)
        np.testing.assert_array_equal(again.vjp(np.eye(5)), before)
        assert again.verify().lower <= sol.value
        assert not again.X.flags.writeable
        assert repr(again) == repr(sol)


def test_arrays_of_the_user_are_not_changed():
    A = indefinite(6)
    kept = A.copy()
    sol = bo.nearest_correlation(A)
    sol.vjp(np.eye(6))
    np.testing.assert_array_equal(A, kept)
    A[:] = 0.0
    assert sol.verify().lower <= sol.value
    with pytest.raises(ValueError, match="read-only"):
        sol.X[0, 1] = 0.0


def test_who_watches_or_starts_warm_takes_the_general_method():
    A, steps = indefinite(6), []
    assert not is_direct(A, callback=steps.append)
    assert not is_direct(A, warm_start=True)
    assert not is_direct(A, method="cyclic")
    assert not is_direct(A, solver="path")
    assert not is_direct(indefinite(251))
    assert not is_direct(np.zeros((3, 3)))
    assert not is_direct(A, max_iter=1)
    bo.nearest_correlation(A, callback=steps.append)
    assert len(steps) > 1
    with pytest.raises(ValueError, match="tol"):
        bo.nearest_correlation(A, tol=-1.0)


def test_the_answer_is_logged(caplog):
    with caplog.at_level(logging.INFO, logger="bregopt"):
        bo.nearest_correlation(indefinite(6))
    assert any("bregman: optimal after" in record.getMessage() for record in caplog.records)
