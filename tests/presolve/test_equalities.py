"""Equalities: sums of entries that are zero, rows that depend on each other, and more rows than unknowns."""

from itertools import permutations

import numpy as np
import pytest
from samples import first

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify, is_farkas
from bregopt.presolve import presolve
from bregopt.program import Answer, StopReason
from bregopt.rigorous import proves_infeasible
from bregopt.routes import routing
from bregopt.routes.base import Settings
from bregopt.routes.ipm.path_route import PathSettings

# --- Sums of zero ---------------------------------------------------------------------------------------


NAMES = ("parallel rows", "zero sums")


def reduced(rows, cost):
    program = bo.Problem(bo.Minimize(cost), rows).program()
    return program, presolve(program, NAMES, Settings())


def fixed_entries(presolved):
    """Return the entries that single rows of the reduced program fix to zero."""
    program = presolved.program
    found = set()
    for term in program.A.terms:
        t = term.rows.coordinates()
        count = np.bincount(t.row, minlength=term.rows.m)
        for row, i, j in zip(t.row, t.i, t.j, strict=True):
            k = term.at[row]
            if count[row] == 1 and program.bounds.lo[k] == program.bounds.hi[k] == 0:
                found.add((min(i, j), max(i, j)))
    return found


def rows_in_two_steps(X):
    """Rows with ``X_01 = X_02 = 0``, after which also ``X_03 = X_12 = 0``."""
    yield X >= 0
    yield X[0, 0] == X[1, 1]
    yield X[0, 1] + 2 * X[0, 2] + X[1, 1] == X[0, 0]  # the sum shows behind the equal entries
    yield X[0, 3] + 3 * X[1, 2] - X[0, 1] <= 0
    yield bo.trace(X) == 4


def test_sums_are_found_behind_equal_entries_and_behind_each_other():
    X = bo.PSD(4)
    program, presolved = reduced(list(rows_in_two_steps(X)), X[2, 3])
    assert fixed_entries(presolved) == {(0, 1), (0, 2), (0, 3), (1, 2)}
    assert presolved.program.m < program.m - 6  # the two sums, and the mirrored entries


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_with_zeros_is_one_to_all_rows(seed):
    """The certificate of the whole program knows nothing of the equalities."""
    C = np.random.default_rng(seed).normal(size=(4, 4))
    X = bo.PSD(4)
    program, presolved = reduced(list(rows_in_two_steps(X)), bo.inner(C + C.T, X))
    sol = routing.solve(presolved.program, solver="path", tol=1e-9)
    answer = presolved.restore(Answer(sol.X, sol.u, sol.duals, StopReason.CONVERGED, 0))
    certificate = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y))
    assert certificate.worst < 1e-8
    assert (program.bounds.clip(answer.y) == answer.y).all()
    assert answer.X[0][[0, 0, 0, 1], [1, 2, 3, 2]] == pytest.approx(0, abs=1e-8)


def test_an_entry_of_a_sum_that_must_be_positive_refutes_the_rows():
    X = bo.PSD(4)
    program, presolved = reduced([*rows_in_two_steps(X), X[1, 2] >= 0.25], X[2, 3])
    found = presolved.infeasible()
    assert found is not None
    assert proves_infeasible(program, found.y)
    sol = bo.Problem(bo.Minimize(X[2, 3]), [*rows_in_two_steps(X), X[1, 2] >= 0.25]).solve("path")
    assert sol.status == "infeasible"


def test_a_sum_with_a_value_an_entry_of_both_signs_or_round_off_fixes_nothing():
    X = bo.PSD(4)
    for rows in (
        [X >= 0, X[0, 1] + X[0, 2] == 1e-9],
        [X[0, 1] >= 0, X[0, 1] + X[0, 2] == 0],
        [X >= 0, X[0, 1] + X[0, 2] >= 0],
        [X >= 0, X[1, 2] == X[0, 3], (0.1 + 0.2) * X[1, 2] + X[0, 1] == 0.3 * X[0, 3]],
    ):
        _, presolved = reduced([*rows, bo.trace(X) == 1], X[2, 3])
        assert fixed_entries(presolved) == set()


def assignment(n, seed, products):
    """Return a lifted quadratic assignment, and the least cost of a permutation.

    With `products`, each row and column is multiplied by each variable (Zhao et al. 1998). Without, there are
    the sums over blocks of Povh and Rendl (2009), whose relaxation has the same optimum.
    """
    rng, N = np.random.default_rng(seed), n * n
    A, B = (M + M.T for M in rng.integers(0, 9, (2, n, n)))
    lines = [*np.arange(N).reshape(n, n), *np.arange(N).reshape(n, n).T]
    if products:
        X = bo.PSD(N + 1)
        Y = X[1:, 1:]
        rows = [X[0, 0] == 1, X >= 0, *(Y[k, k] == X[0, k + 1] for k in range(N))]
        rows += [sum(Y[k, j] for j in line) == Y[k, k] for line in lines for k in range(N)]
        rows += [sum(Y[j, j] for j in line) == 1 for line in lines]
    else:
        Y = bo.PSD(N)
        blocks = [[Y[i * n : (i + 1) * n, j * n : (j + 1) * n] for j in range(n)] for i in range(n)]
        rows = [Y >= 0, sum(blocks[i][i] for i in range(n)) == np.eye(n), bo.sum(Y) == N]
        rows += [bo.trace(blocks[i][j]) == float(i == j) for i in range(n) for j in range(i + 1)]
    least = min(np.vdot(A, B[np.ix_(p, p)]) for p in permutations(range(n)))
    return bo.Problem(bo.Minimize(bo.inner(np.kron(A, B), Y)), rows), float(least)


@pytest.mark.parametrize("seed", [0, 3, 11])
def test_assignments_of_size_3_are_solved_by_their_relaxation(seed):
    for products in (True, False):
        problem, least = assignment(3, seed, products)
        sol = problem.solve()
        assert sol.status == "optimal"
        assert sol.value == pytest.approx(least, rel=2e-6)


@pytest.mark.parametrize("seed", [1, 9])
def test_two_relaxations_of_an_assignment_have_one_optimum(seed):
    (first, least), (second, _) = (assignment(4, seed, products) for products in (True, False))
    one, other = first.solve(), second.solve()
    assert one.status == other.status == "optimal"
    assert one.value == pytest.approx(other.value, rel=3e-6)
    assert one.bound <= least * (1 + 1e-6)


# --- Dependent equalities and variables -----------------------------------------------------------------


def combined(rng, m, k, rank):
    """Return a matrix of integers of these sizes and at most this rank."""
    return rng.integers(-3, 4, (m, rank)).astype(float) @ rng.integers(-3, 4, (rank, k))


@pytest.mark.parametrize("seed", range(6))
def test_dependent_free_variables_change_nothing(seed):
    """Variables ``u = P v`` with more entries than ``v`` have the optimum of ``v``."""
    rng = np.random.default_rng(seed)
    n, m, k, rank = 4, 5, int(rng.integers(2, 6)), int(rng.integers(1, 3))
    G, X0 = rng.normal(size=(m, n, n)), np.eye(n)
    G += G.transpose(0, 2, 1)
    B, y = rng.normal(size=(m, rank)), rng.normal(size=m)
    P = combined(rng, rank, k, min(rank, k)) * 2.0 ** rng.integers(-9, 10)
    if seed % 2:
        P[:, -1] = 0.0
    b = [float(np.sum(A * X0)) for A in G]
    W = rng.normal(size=(n, 2))

    def problem(columns):
        X, u = bo.PSD(n), bo.Variable(columns.shape[1])
        C = W @ W.T + np.tensordot(y, G, 1)
        rows = [bo.inner(A, X) + row @ u == right for A, row, right in zip(G, columns, b, strict=True)]
        return bo.Problem(bo.Minimize(bo.inner(C, X) + (columns.T @ y) @ u), rows)

    given, smaller = problem(B @ P).solve(tol=1e-8), problem(B).solve(tol=1e-8)
    assert given.status == smaller.status == "optimal"
    assert given.value == pytest.approx(smaller.value, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", first(6, range(20)))
def test_replaceable_variables_beside_a_matrix_of_zero(seed):
    """As ``X`` vanishes, only the two variables hold the row: before, they grew to 1e11."""
    rng = np.random.default_rng(seed)
    X, u, v, y, b = bo.PSD(3), bo.Variable(2), rng.normal(size=2), rng.normal(), rng.normal()
    G, W = np.diag(rng.integers(0, 2, 3) * 0.4), rng.normal(size=(3, 3))
    cost = bo.inner(W @ W.T + y * G, X) + y * (v @ u)
    sol = bo.Problem(bo.Minimize(cost), [bo.inner(G, X) + v @ u == b]).solve()
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(y * b, rel=1e-5, abs=1e-5)


def test_a_start_keeps_its_effect(rng):
    X, u = bo.PSD(3), bo.Variable(4)
    B = combined(rng, 5, 4, 2)
    rows = [bo.inner(np.diag(rng.normal(size=3)), X) + row @ u == 1 for row in B]
    program = bo.Problem(bo.Minimize(bo.trace(X) + (B.T @ np.ones(5)) @ u), rows).program()
    presolved = presolve(program, ["independent columns"], PathSettings())
    (step,) = presolved.steps
    kept = program.B[:, step.kept].toarray()
    np.testing.assert_allclose(kept @ step.T, program.B[:, step.others].toarray(), atol=1e-12)
    assert len(step.kept) == 2


def test_a_cost_along_the_combination_is_unbounded():
    X, u = bo.PSD(3), bo.Variable(2)
    problem = bo.Problem(bo.Minimize(bo.trace(X) + u[0] + u[1]), [bo.trace(X) + u[0] - u[1] == 1])
    assert problem.solve().status == "unbounded"


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_contradicting_equalities_are_infeasible(seed):
    rng = np.random.default_rng(seed)
    n, k, m = 3, 2, [3, 6, 30][seed % 3]
    rank = 2 if m == 3 else 4
    M = combined(rng, m, n * (n + 1) // 2 + k, rank)
    b = M @ rng.normal(size=M.shape[1])
    b[0] += 0.1 * np.abs(b).max()
    X, u = bo.PSD(n), bo.Variable(k)
    i, j = np.triu_indices(n)
    rows = [
        sum(w * X[p, q] for w, p, q in zip(row, i, j, strict=False)) + row[-k:] @ u == r
        for row, r in zip(M, b, strict=True)
    ]
    problem = bo.Problem(bo.Minimize(bo.trace(X)), rows)
    sol = problem.solve()
    assert sol.status == "infeasible"
    assert is_farkas(problem.program(), sol._raw.duals, 1e-9)
    consistent = bo.Problem(bo.Minimize(bo.trace(X)), rows[1:]).solve()
    assert consistent.status in ("optimal", "infeasible")


def test_contradicting_equalities_of_variables_alone():
    """``1.5 u = 1`` and ``u = 1``, beside a row of a matrix."""
    X, u = bo.PSD(3), bo.Variable()
    rows = [1.5 * u == 1, u == 1, X[0, 1] + u == 2]
    sol = bo.Problem(bo.Minimize(bo.trace(X)), rows).solve()
    assert sol.status == "infeasible"
    assert {row.constraint for row in sol.conflict()} == {0, 1}
