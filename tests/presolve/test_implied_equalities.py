"""Inequalities that are tight at every point: sums of entries that are zero, and other relations of rows."""

import operator
from itertools import combinations, permutations

import cvxpy as cp
import numpy as np
import pytest

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify
from bregopt.presolve import presolve
from bregopt.presolve.implied_equalities import tight_rows
from bregopt.program import Answer, StopReason
from bregopt.rigorous import proves_infeasible
from bregopt.routes import routing
from bregopt.routes.base import Settings

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


# --- Other rows -----------------------------------------------------------------------------------------


def related(seed, kind, right=0.0):
    """Return a program whose first four rows have the weights ``w`` and sum to the given bound, and ``w``.

    The fifth row is no part of any relation. Each kind of row has its own sign.
    """
    rng = np.random.default_rng(seed)
    X, u, w = bo.PSD(4), bo.Variable(2), np.array([1.0, 2.0, 0.5, 3.0])
    A, B, b = rng.normal(size=(5, 4, 4)), rng.normal(size=(5, 2)), rng.normal(size=5)
    A = A + A.swapaxes(1, 2)
    for values in (A, B, b):
        values[3] = -np.tensordot(w[:3], values[:3], 1) / w[3]
    b[3] += right / w[3]
    if kind == "mixed":
        A[3], B[3], b[3] = -A[3], -B[3], -b[3]
    kinds = {"lower": "lllll", "upper": "uuuuu", "mixed": "lleul"}[kind]
    to = {"l": operator.ge, "u": operator.le, "e": operator.eq}
    rows = [to[kinds[k]](bo.inner(A[k], X) + B[k] @ u, b[k]) for k in range(5)]
    return bo.Problem(bo.Minimize(bo.trace(X)), rows).program(), w


@pytest.mark.parametrize("kind", ["lower", "upper", "mixed"])
@pytest.mark.parametrize("seed", range(3))
def test_inequalities_that_sum_to_zero_are_tight(seed, kind):
    program, w = related(seed, kind)
    sign = np.where(np.isfinite(program.bounds.lo[:4]), 1.0, -1.0)
    grown = np.append(1e9 * sign * w, 0.0)
    found = tight_rows(program, grown + np.ones(5))
    equal = np.isin(np.arange(5), [0, 1, 2, 3])
    assert (found.program.bounds.equal == equal).all()
    # Multipliers of any sign become some of inequalities that change neither A*(y) nor the dual value.
    y = np.random.default_rng(seed).normal(size=5) * np.append(np.ones(4), 0.0)
    lifted = found.restore(Answer((np.eye(4),), np.zeros(2), y, StopReason.CONVERGED, 0)).y
    loose = np.array([0, 1, 3] if kind == "mixed" else [0, 1, 2, 3])
    assert (lifted[loose] * sign[loose] >= -1e-15).all()
    np.testing.assert_allclose(program.A.adjoint(lifted, 0), program.A.adjoint(y, 0), atol=1e-13)
    np.testing.assert_allclose(program.Bt @ lifted, program.Bt @ y, atol=1e-13)
    right = np.where(sign > 0, program.bounds.lo[:4], program.bounds.hi[:4])
    assert right @ lifted[:4] == pytest.approx(right @ y[:4], abs=1e-13)


def test_a_sum_with_a_margin_or_multipliers_that_do_not_cancel_fix_nothing():
    program, w = related(0, "lower", right=-1e-9)
    assert tight_rows(program, np.append(1e9 * w, 1.0)) is None
    program, w = related(0, "lower")
    assert tight_rows(program, np.append(w, 1.0)) is None


def conditional_gradient(steps, G, f, inner):
    """Return the rows of the worst case of Frank-Wolfe's method, by the Gram matrix of points and gradients.

    The last point has a normal ``s``. It is the average ``sum_k w_k d_k`` of others, all with
    ``s'(d_k - x) <= 0``, which sum to zero.
    """
    E, origin = np.eye(2 * steps + 4), np.zeros(2 * steps + 4)
    x, g, ends = [E[0]], E[2 : steps + 3], E[steps + 3 : 2 * steps + 3]
    for k, end in enumerate(ends):
        x.append((k * x[-1] + 2 * end) / (k + 2))
    smooth = [(origin, E[1], f[0]), *((x[k], g[k], f[k + 1]) for k in range(steps + 1))]
    normal = [(origin, -E[1]), (x[-1], E[-1]), *((d, -g[k]) for k, d in enumerate(ends)), (E[0], 0 * origin)]
    for (y, a, value), (z, b, other) in permutations(smooth, 2):
        M = np.outer(b, y - z) + np.outer(y - z, b) + np.outer(a - b, a - b)
        yield other + inner(M / 2, G) <= value
    for (y, _), (z, b) in permutations(normal, 2):
        if b.any():
            yield inner(np.outer(b, y - z) + np.outer(y - z, b), G) <= 0
    for (y, _), (z, _) in combinations(normal, 2):
        yield inner(np.outer(y - z, y - z), G) <= 1


@pytest.mark.parametrize("steps", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_the_worst_case_of_a_conditional_gradient_method_is_optimal(steps):
    G, f = bo.PSD(2 * steps + 4), bo.Variable(steps + 2)
    rows = list(conditional_gradient(steps, G, f, bo.inner))
    sol = bo.Problem(bo.Maximize(f[steps + 1] - f[0]), rows).solve(tol=1e-8)
    assert sol.status == "optimal"
    G, f = cp.Variable((2 * steps + 4, 2 * steps + 4), PSD=True), cp.Variable(steps + 2)
    rows = list(conditional_gradient(steps, G, f, lambda M, G: cp.trace(M @ G)))
    peer = cp.Problem(cp.Maximize(f[steps + 1] - f[0]), rows)
    peer.solve(solver=cp.CLARABEL)
    assert sol.value == pytest.approx(peer.value, abs=1e-7)
    assert sol.value + sol.error >= peer.value - 1e-7


def test_the_worst_case_of_one_step_is_half():
    G, f = bo.PSD(6), bo.Variable(3)
    sol = bo.Problem(bo.Maximize(f[2] - f[0]), list(conditional_gradient(1, G, f, bo.inner))).solve(tol=1e-8)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(1 / 2, abs=1e-8)
