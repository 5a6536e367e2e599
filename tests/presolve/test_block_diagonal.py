"""Small matrices as one block-diagonal matrix: optima that are eigenvalues, proofs, and the rows."""

import numpy as np
import pytest

import bregopt as bo
from bregopt.presolve import Tolerances
from bregopt.presolve.block_diagonal import block_diagonal
from bregopt.program import Start

TOLERANCES = Tolerances(1e-6, 1e-9)
ORDERS = (3, 4, 1)


def symmetric(n, rng):
    G = rng.normal(size=(n, n))
    return (G + G.T) / 2


def variables():
    return [bo.PSD(n, name=f"X{n}") for n in ORDERS]


def total_trace(matrices):
    return sum(bo.trace(X) for X in matrices)


@pytest.mark.parametrize("seed", range(4))
def test_the_largest_eigenvalue_of_several_matrices(seed):
    rng = np.random.default_rng(seed)
    A, matrices = [symmetric(n, rng) for n in ORDERS], variables()
    objective = sum(bo.inner(C, X) for C, X in zip(A, matrices, strict=True))
    problem = bo.Problem(bo.Maximize(objective), [total_trace(matrices) <= 2])
    assert block_diagonal(problem.program(), TOLERANCES) is not None
    sol = problem.solve(tol=1e-9, solver="path")
    eigenvalues = [np.linalg.eigvalsh(C)[-1] for C in A]
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(2 * max(eigenvalues), rel=1e-8)
    best = int(np.argmax(eigenvalues))
    for b, X in enumerate(sol.X):
        assert X.shape == (ORDERS[b],) * 2
        assert np.trace(X) == pytest.approx(2.0 * (b == best), abs=1e-5)


def test_rows_and_costs_are_those_of_the_blocks(rng):
    matrices = variables()
    forms = [[symmetric(n, rng) for n in ORDERS] for _ in range(3)]
    u = bo.Variable(name="u")
    rows = [
        sum(bo.inner(C, X) for C, X in zip(form, matrices, strict=True)) + u <= k
        for k, form in enumerate(forms)
    ]
    cost = [symmetric(n, rng) for n in ORDERS]
    objective = sum(bo.inner(C, X) for C, X in zip(cost, matrices, strict=True))
    program = bo.Problem(bo.Minimize(objective), rows).program()
    joined = block_diagonal(program, TOLERANCES)
    X, y = [symmetric(n, rng) for n in ORDERS], rng.normal(size=3)
    (whole,) = joined.shrink(Start(tuple(X), np.zeros(1), y)).X
    np.testing.assert_allclose(joined.program.A.apply((whole,)), program.A.apply(X), atol=1e-13)
    assert joined.program.blocks[0].cost_value(whole) == pytest.approx(
        sum(np.vdot(C, own) for C, own in zip(cost, X, strict=True))
    )
    A, start = joined.program.A.adjoint(y), 0
    for b, n in enumerate(ORDERS):
        np.testing.assert_allclose(
            A[start : start + n, start : start + n], program.A.adjoint(y, b), atol=1e-13
        )
        A[start : start + n, start : start + n] = 0.0
        start += n
    assert not A.any()


def test_rows_that_contradict_each_other():
    X, Y = bo.PSD(3), bo.PSD(4)
    rows = [X[0, 0] - Y[1, 1] >= 1, Y[1, 1] - X[0, 0] >= 0, bo.trace(X) + bo.trace(Y) <= 9]
    sol = bo.Problem(bo.Minimize(bo.trace(X)), rows).solve(solver="path")
    assert sol.status == "infeasible"
    assert sol.duals[0] == pytest.approx(sol.duals[1])
    assert sol.duals[0] > 0


def test_a_ray_in_two_blocks():
    X, Y = bo.PSD(2), bo.PSD(2)
    rows = [X[0, 0] - Y[1, 1] <= 1, Y[1, 1] - X[0, 0] <= 1]
    sol = bo.Problem(bo.Maximize(X[0, 0] + Y[0, 1]), rows).solve(solver="path")
    assert sol.status == "unbounded"
    (one, other) = sol.ray.X
    assert one[0, 0] == pytest.approx(other[1, 1])
    assert one[0, 0] + other[0, 1] > 0


def test_an_earlier_answer_is_a_start(rng):
    matrices, price = variables(), bo.Parameter(value=1.0)
    objective = sum(bo.inner(symmetric(n, rng), X) for n, X in zip(ORDERS, matrices, strict=True))
    problem = bo.Problem(bo.Minimize(objective), [total_trace(matrices) <= price, matrices[0][0, 1] >= 0.1])
    problem.solve(tol=1e-8, solver="path")
    price.value = 1.1
    again = problem.solve(tol=1e-8, solver="path", warm_start=True)
    cold = problem.solve(tol=1e-8, solver="path")
    assert again.status == cold.status == "optimal"
    assert again.value == pytest.approx(cold.value, rel=1e-7)


@pytest.mark.parametrize("orders", [(8, 9), (7,), (2,) * 6])
def test_large_and_many_matrices_stay_apart(orders):
    matrices = [bo.PSD(n) for n in orders]
    problem = bo.Problem(bo.Minimize(total_trace(matrices)), [total_trace(matrices) >= 1])
    assert block_diagonal(problem.program(), TOLERANCES) is None
