"""Hinges in chunks, alone and beside hard rows: the answers of `Problem`."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from samples import first, turns

import bregopt as bo

DIVERGENCES = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}


def data(m=400, r=4, seed=0):
    """Vectors, contradictory bounds and senses."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(m, r))
    bound = np.sum((Z * np.linspace(0.6, 1.4, r)) ** 2, axis=1) * rng.uniform(0.6, 1.6, m)
    return Z, bound, np.where(rng.random(m) < 0.5, -1, 1)


def by_problem(Z, bound, sense, gamma, name, hard):
    X = bo.PSD(Z.shape[1], name="X")
    a, rows = bo.quad_form(Z, X), []
    for sign in (-1, 1):
        for kept in (True, False):
            k = (sense == sign) & (hard == kept)
            if k.any():
                row = a[k] <= bound[k] if sign < 0 else a[k] >= bound[k]
                rows.append(row if kept else bo.soft(row, gamma[k], penalty="hinge"))
    return bo.Problem(bo.Minimize(DIVERGENCES[name](X, np.eye(Z.shape[1]))), rows).solve(tol=1e-7)


@pytest.mark.parametrize(
    ("name", "weight", "some_hard"), turns(DIVERGENCES, first(1, [0.03, 1e-3, 0.1]), [False, True])
)
def test_the_value_is_that_of_problem(name, weight, some_hard):
    Z, bound, sense = data()
    gamma, hard = weight / bound, np.zeros(len(Z), dtype=bool)
    if some_hard:  # rows that the identity meets
        met = sense * (np.sum(Z**2, axis=1) - bound) > 0
        hard = met & (np.arange(len(Z)) % 5 == 0)
    mixed = np.where(hard, np.inf, gamma)
    sol = bo.RowChunks(Z, bound, sense, mixed, penalty="hinge", chunk=90).solve(np.eye(4), name)
    other = by_problem(Z, bound, sense, gamma, name, hard)
    assert sol.status == other.status == "optimal"
    assert abs(sol.value - other.value) <= sol.error + other.error + 1e-12
    assert np.allclose(sol.X, other.X, atol=0.01)
    a = np.einsum("ki,ij,kj->k", Z, sol.X, Z)
    paid = gamma[~hard] @ np.maximum(sense * (bound - a), 0)[~hard]
    D = {"logdet": lambda X: np.trace(X) - np.linalg.slogdet(X)[1] - 4, "von_neumann": entropy}[name]
    assert sol.value == pytest.approx(D(sol.X) + paid, rel=1e-9)


def entropy(X):
    eigenvalues = np.linalg.eigvalsh(X)
    return np.sum(eigenvalues * np.log(eigenvalues) - eigenvalues + 1)


def test_closed_forms_of_one_row():
    # x - log x - 1 + gamma (2 - x) for x <= 2: 1 - 1/x = gamma, and the kink at 2 from gamma = 1/2 on.
    for gamma, x in ((0.25, 4 / 3), (0.5, 2.0), (3.0, 2.0)):
        sol = bo.RowChunks([[1.0]], 2.0, ">=", gamma, penalty="hinge").solve([[1.0]], tol=1e-9)
        assert sol.status == "optimal"
        assert sol.X[0, 0] == pytest.approx(x, rel=1e-4)
        assert sol.value == pytest.approx(x - np.log(x) - 1 + gamma * (2 - x), abs=1e-8)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_zero_vector_only_adds_what_it_pays(name):
    Z, bound, sense = data(m=40)
    without = bo.RowChunks(Z, bound, sense, 0.02, penalty="hinge").solve(np.eye(4), name)
    Z, bound, sense = np.vstack([Z, np.zeros(4)]), np.append(bound, 3.0), np.append(sense, 1)
    sol = bo.RowChunks(Z, bound, sense, 0.02, penalty="hinge").solve(np.eye(4), name)
    assert sol.status == without.status == "optimal"
    assert abs(sol.value - without.value - 0.06) <= sol.error + without.error


@pytest.mark.parametrize("name", DIVERGENCES)
def test_chunks_and_executors(name):
    Z, bound, sense = data()
    answers = []
    with ThreadPoolExecutor(2) as threads:
        for size, executor in ((90, None), (90, threads), (1_000, None)):
            rows = bo.RowChunks(Z, bound, sense, 0.01, penalty="hinge", chunk=size)
            answers.append(rows.solve(np.eye(4), name, executor=executor))
    assert (answers[0].X == answers[1].X).all()
    assert abs(answers[0].value - answers[2].value) <= answers[0].error + answers[2].error


def test_zero_vectors_pay_their_bound():
    Z = [[1.0, 0.0], [0.0, 0.0]]
    sol = bo.RowChunks(Z, 2.0, ">=", 0.25, penalty="hinge").solve(np.eye(2), tol=1e-8)
    once = bo.RowChunks(Z[:1], 2.0, ">=", 0.25, penalty="hinge").solve(np.eye(2), tol=1e-8)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(once.value + 0.5, abs=1e-7)


def test_repeated_rows_are_one_of_more_weight():
    Z, bound, sense = data(30)
    many = bo.RowChunks(
        *(np.repeat(a, 5, axis=0) for a in (Z, bound, sense)), 0.04, penalty="hinge", chunk=70
    )
    once = bo.RowChunks(Z, bound, sense, 0.2, penalty="hinge")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)  # equal hinges share a multiplier in any way
        a = many.solve(np.eye(4))
    b = once.solve(np.eye(4))
    assert b.status == "optimal"
    assert a.gap <= 1e-2
    assert abs(a.value - b.value) <= a.error + b.error


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="penalty is 'hing'; did you mean 'hinge'"):
        bo.RowChunks(np.eye(2), 1.0, "<=", 1.0, penalty="hing")
    rows = bo.RowChunks(np.array([[1.0, 0], [np.nan, 0]]), 1.0, "<=", 1.0, penalty="hinge", chunk=1)
    with pytest.raises(ValueError, match="value of row 1 is nan"):
        rows.solve(np.eye(2))
    with pytest.raises(ValueError, match="sample is 1, and the penalty is the hinge; expected None"):
        rows.solve(np.eye(2), sample=1)
