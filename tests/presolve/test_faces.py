"""Nearness on faces of the cone: rows that leave ``X`` no interior, where the dual is not attained."""

from __future__ import annotations

import contextlib
import itertools
import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.linalg
from samples import first, turns

import bregopt as bo
import bregopt.cvxpy  # registers the method
from bregopt.certify import PrimalDualPoint
from bregopt.divergences import psd_part
from bregopt.presolve import exposures
from bregopt.presolve.faces import implied_faces
from bregopt.presolve.svec import svec
from bregopt.program import Answer, StopReason


def symmetric(rng, n, scale=1.0):
    A = scale * rng.uniform(-1, 1, (n, n))
    return (A + A.T) / 2


def spectral(f, A):
    d, Q = np.linalg.eigh(A)
    return (Q * f(d)) @ Q.conj().T


def nearest(A, constraints, mu=1.0):
    X = bo.PSD(len(A))
    problem = bo.Problem(bo.Minimize(mu * bo.frobenius_div(X, A)), constraints(X))
    return problem.solve(), np.asarray(X.value)


@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_nearest_centered_matrix_is_the_projection_of_the_centered_part(n, scale):
    A, J = symmetric(np.random.default_rng(n), n, scale), np.eye(n) - 1 / n
    found, X = nearest(A, lambda X: [bo.inner(np.ones((n, n)), X) == 0])
    expected = psd_part(J @ A @ J)
    assert found.status == "optimal"
    assert np.abs(X - expected).max() <= 1e-7 * scale
    assert found.value == pytest.approx(np.linalg.norm(expected - A) ** 2, rel=1e-9)
    assert np.abs(X.sum(axis=1)).max() <= 1e-12 * n * scale


def test_zeros_on_the_diagonal_leave_the_problem_of_the_other_rows():
    n, A = 20, symmetric(np.random.default_rng(0), 20)
    diagonal = np.ones(n)
    diagonal[[0, 7, 8, 19]] = 0.0
    kept = np.flatnonzero(diagonal)
    found, X = nearest(A, lambda X: [bo.diag(X) == diagonal])
    alone, M = nearest(A[np.ix_(kept, kept)], lambda X: [bo.diag(X) == 1])
    assert found.status == alone.status == "optimal"
    assert np.abs(X[np.ix_(kept, kept)] - M).max() <= 1e-6
    left_out = np.linalg.norm(A) ** 2 - np.linalg.norm(A[np.ix_(kept, kept)]) ** 2
    assert found.value == pytest.approx(alone.value + left_out, rel=1e-8)
    assert np.abs(np.delete(X, kept, axis=0)).max() <= 1e-12


@pytest.mark.parametrize(("hermitian", "n", "scale"), turns([False, True], [4, 30], [1e-6, 1.0, 1e6]))
def test_the_nearest_centered_matrix_in_von_neumann_divergence_is_an_exponential_on_the_face(
    n, scale, hermitian
):
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, 2 * n)) + (1j * rng.normal(size=(n, 2 * n)) if hermitian else 0)
    A = scale * (A @ A.conj().T)
    U = np.linalg.svd(np.ones((1, n)))[2][1:].T
    expected = U @ spectral(np.exp, U.T @ spectral(np.log, A) @ U) @ U.T
    X = bo.PSD(n, hermitian=hermitian)
    for rows in ([bo.inner(np.ones((n, n)), X) == 0], [X @ np.ones(n) == 0]):
        found = bo.Problem(bo.Minimize(bo.von_neumann_div(X, A)), rows).solve()
        assert found.status == "optimal"
        assert found.value == pytest.approx(np.trace(A - expected).real, rel=1e-8)
        assert np.abs(X.value - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("bound", [1e-3, 1e-6, 1e-9, 1e-12])
def test_a_row_that_nearly_leaves_no_interior_is_met_by_von_neumann(bound):
    n, rng = 30, np.random.default_rng(30)
    A, G = rng.normal(size=(n, n)), rng.normal(size=(n, 2))
    A = A @ A.T / n + 0.1 * np.eye(n)
    X = bo.PSD(n)
    found = bo.Problem(bo.Minimize(bo.von_neumann_div(X, A)), [bo.inner(G @ G.T, X) <= bound]).solve()
    U = np.linalg.svd(G)[0][:, 2:]
    on_face = np.trace(A) - np.trace(spectral(np.exp, U.T @ spectral(np.log, A) @ U))
    assert found.status == "optimal"
    assert found.bound <= on_face + 1e-9
    assert found.value >= on_face - 3 * np.sqrt(bound)


@pytest.mark.parametrize(("near", "n"), turns([bo.frobenius_div, bo.von_neumann_div], [4, 16, 30]))
def test_a_variable_beside_nearness_on_a_face_is_a_penalty(n, near):
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n))
    A = A @ A.T / n + 0.1 * np.eye(n)
    answers = []
    for soft in (False, True):
        X, u = bo.PSD(n), bo.Variable()
        rows = [X @ np.ones(n) == 0, bo.diag(X) <= 2]
        if soft:
            objective, last = near(X, A), bo.soft(X[0, 1] >= 1, 3.0, penalty="hinge")
        else:
            objective, last = near(X, A) + 3 * bo.pos(u), X[0, 1] + u >= 1
        answers.append(bo.Problem(bo.Minimize(objective), [*rows, last]).solve())
    one, two = answers
    assert (one.solver, two.solver) == ("entropy", "bregman")
    assert one.status == two.status == "optimal"
    assert one.value == pytest.approx(two.value, rel=3e-6)


@pytest.mark.parametrize("n", [4, 6, 150])
def test_pairs_fixed_at_one_make_rows_proportional(n):
    rng = np.random.default_rng(n)
    A, d = symmetric(rng, n), rng.uniform(0.5, 3, n)
    d[0] = d[1] = 1.0
    ends = [(0, 1, 1.0), (1, 2, -np.sqrt(d[1] * d[2])), (1, 3, np.sqrt(d[1] * d[3]))]
    found, X = nearest(A, lambda X: [bo.diag(X) == d, *(X[i, j] == v for i, j, v in ends)])
    assert found.status == "optimal"
    assert np.abs(X[0] - X[1]).max() <= 1e-7
    assert np.abs(X[2] + np.sqrt(d[2]) * X[0]).max() <= 1e-7
    if n == 150:
        return
    Y = cp.Variable((n, n), PSD=True)
    rows = [cp.diag(Y) == d, *(Y[i, j] == v for i, j, v in ends)]
    value = cp.Problem(cp.Minimize(cp.sum_squares(Y - A)), rows).solve(solver="CLARABEL")
    assert found.value == pytest.approx(value, rel=1e-4)  # of a dual that is not attained
    assert found.bound <= found.value * (1 + 1e-12)


def test_a_combination_of_rows_that_only_multipliers_reveal_is_a_face():
    n, rng = 6, np.random.default_rng(2)
    z, A = rng.normal(size=n), symmetric(rng, n)
    first, second = np.outer(z, z) + np.diag(np.arange(6.0)), -np.diag(np.arange(6.0))
    found, X = nearest(A, lambda X: [bo.inner(first, X) == 2, bo.inner(second, X) == -2])
    P = np.eye(n) - np.outer(z, z) / (z @ z)
    assert found.status == "optimal"
    assert np.linalg.norm(X @ z) <= 1e-6
    Y = cp.Variable((n, n), PSD=True)
    own = [cp.trace(first @ P @ Y @ P) == 2]
    value = cp.Problem(cp.Minimize(cp.sum_squares(P @ Y @ P - A)), own).solve(solver="CLARABEL")
    assert found.value == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_compression_that_rows_fix_to_a_singular_matrix_is_a_face(seed):
    """``R'XR = vv'`` leaves ``X`` the vectors of ``R`` orthogonal to ``v`` as null vectors."""
    rng = np.random.default_rng(seed)
    (R, _), v = np.linalg.qr(rng.normal(size=(7, 3))), rng.normal(size=3)
    X, matrices = bo.PSD(7), [symmetric(rng, 3) for _ in range(6)]
    rows = [bo.inner(R @ M @ R.T, X) == v @ M @ v for M in matrices]
    problem = bo.Problem(bo.Minimize(bo.trace(X)), rows)
    implied = implied_faces(problem.program())
    assert implied.program.faces[0].order == 5
    assert len(implied.kept) == 1
    basis = implied.program.faces[0].basis
    np.testing.assert_allclose(basis.T @ R @ scipy.linalg.null_space(v[None]), 0, atol=1e-10)
    found = problem.solve()
    assert found.status == "optimal"
    assert found.value == pytest.approx(v @ v, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_compression_that_is_a_multiple_of_a_singular_matrix_is_a_face(seed):
    """Rows say ``R'XR = (1 + u) v v'``; the variable is in those of ``M`` with ``v'Mv`` not zero."""
    rng = np.random.default_rng(seed)
    (R, _), v = np.linalg.qr(rng.normal(size=(7, 3))), rng.normal(size=3)
    X, u, P = bo.PSD(7), bo.Variable(4), v[None] / np.linalg.norm(v)
    matrices = [symmetric(rng, 3) for _ in range(9)]
    matrices[2:] = [M - (v @ M @ v) / (v @ v) * (P.T @ P) for M in matrices[2:]]
    rows = [bo.inner(R @ M @ R.T, X) == (1 + u[0]) * (v @ M @ v) for M in matrices[:2]]
    rows += [bo.inner(R @ M @ R.T, X) == 0 for M in matrices[2:6]] + [X[5, 6] + u[0] >= 2, u[0] <= u[1]]
    rows += [bo.inner(R @ matrices[k] @ R.T, X) == k * u[2] for k in (6, 7)]  # so that this is zero
    rows += [bo.inner(R @ matrices[8] @ R.T, X) == u[3]]  # it fixes nothing
    problem = bo.Problem(bo.Minimize(bo.trace(X) + (v @ v) * u[1] + 3 * u[2]), rows)
    program = problem.program()
    implied = implied_faces(program)
    assert implied.program.faces[0].order == 5
    assert implied.exposures[0].rows.tolist() == [0, 1, 2, 3, 4, 5, 8, 9]
    basis = implied.program.faces[0].basis
    np.testing.assert_allclose(basis.T @ R @ scipy.linalg.null_space(v[None]), 0, atol=1e-10)
    y = rng.normal(size=implied.program.m)
    answer = Answer((np.eye(7),), np.zeros(4), y, StopReason.CONVERGED, 0)
    lifted = implied.restore(answer).y
    np.testing.assert_allclose(program.Bt @ lifted, implied.program.Bt @ y, atol=1e-10)
    found, plain = problem.solve(), problem.solve("cvxpy")
    assert found.status == "optimal"
    assert found.dual_residual <= 1e-9
    assert found.value == pytest.approx(plain.value, rel=1e-5)


@pytest.mark.parametrize("unit", [1e-14, 1.0, 1e4])
def test_round_off_of_a_large_row_is_no_face(unit):
    """On the face ``v'X = 0`` a row of ``v'Xw`` vanishes, but for round-off, which may be positive."""
    for seed in range(12):
        v, w = np.linalg.qr(np.random.default_rng(seed).normal(size=(2, 2)))[0].T
        X, corner = bo.PSD(2), np.outer(v, w) + np.outer(w, v)
        rows = [bo.inner(np.outer(v, v), X) == 0, bo.inner(unit * corner, X) == 0]
        found = bo.Problem(bo.Minimize(bo.trace(X)), [*rows, bo.inner(np.outer(w, w), X) == 1]).solve("path")
        assert found.status == "optimal"
        assert found.value == pytest.approx(1)
    zero = bo.Problem(bo.Minimize(bo.trace(X)), [bo.inner(unit * np.outer(v, v), X) == 0, rows[1]])
    assert implied_faces(zero.program()).program.faces[0].order == 1


def test_signs_that_contradict_each_other_are_infeasible():
    A = np.eye(5)
    signs = [(0, 1, 1.0), (1, 2, 1.0), (0, 2, -1.0)]
    found, _ = nearest_or_none(A, lambda X: [bo.diag(X) == 1, *(X[i, j] == v for i, j, v in signs)])
    assert found.status == "infeasible"
    found, _ = nearest_or_none(A, lambda X: [bo.diag(X) == 1, X[0, 1] == 1, X[0, 2] == 0.5, X[1, 2] == 0.3])
    assert found.status == "infeasible"


def nearest_or_none(A, constraints):
    X = bo.PSD(len(A))
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), constraints(X)).solve(), None


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_on_a_face_is_below_the_value_of_every_matrix_on_it(seed):
    n, rng = 6, np.random.default_rng(seed)
    Z, A, C = rng.normal(size=(n, 2)), symmetric(rng, n), symmetric(rng, n)
    G = symmetric(rng, n)
    X = bo.PSD(n)
    objective = bo.Minimize(3 * bo.frobenius_div(X, A) + bo.inner(C, X))
    program = bo.Problem(objective, [bo.inner(Z @ Z.T, X) == 0, bo.inner(G, X) <= 1]).program()
    faces = implied_faces(program).program.faces
    assert faces[0].order == n - 2
    points = [faces[0].lift(F @ F.T) for F in rng.normal(size=(40, n - 2, n - 2)) * rng.random((40, 1, 1))]
    points = [X for X in points if np.vdot(G, X) <= 1]
    assert points
    for y in -rng.exponential(size=(10, 2)):
        bound = PrimalDualPoint(program, (points[0],), np.zeros(0), y, faces=faces).bound.value
        whole = PrimalDualPoint(program, (points[0],), np.zeros(0), y).bound.value
        values = [3 * np.linalg.norm(X - A) ** 2 + float(np.vdot(C, X)) for X in points]
        assert whole <= bound + 1e-9
        assert bound <= min(values) + 1e-9


def test_bounds_with_all_rounding_of_an_answer_on_a_face_are_near_its_value():
    n, A = 6, symmetric(np.random.default_rng(3), 6)
    found, _ = nearest(A, lambda X: [bo.inner(np.ones((n, n)), X) == 0, bo.diag(X) <= 0.5])
    proven = found.verify()
    assert found.value * (1 - 1e-4) <= proven.lower <= found.value * (1 + 1e-9)


def test_a_matrix_that_is_zero_needs_no_face():
    A = symmetric(np.random.default_rng(4), 5)
    found, X = nearest(A, lambda X: [bo.trace(X) == 0])
    assert found.status == "optimal"
    assert np.abs(X).max() <= 1e-9
    assert found.value == pytest.approx(np.linalg.norm(A) ** 2, rel=1e-9)


def assignment_program(n, seed):
    """Return the doubly nonnegative relaxation of a quadratic assignment, and its matrices."""
    rng = np.random.default_rng(seed)
    A, B = (M + M.T for M in rng.integers(0, 9, (2, n, n)))
    N, lines = n * n + 1, []
    for k in range(n):
        place = np.zeros((n, n))
        place[k] = 1
        lines += [np.append(0.0, place.ravel()), np.append(0.0, place.T.ravel())]
    X, first = bo.PSD(N), np.eye(N)[0]
    rows = [X[0, 0] == 1, X >= 0, *(X[k, k] == X[0, k] for k in range(1, N))]
    rows += [X @ line == X @ first for line in lines]
    clashes = [
        (1 + i * n + a, 1 + j * n + b)
        for i in range(n)
        for j in range(n)
        for a in range(n)
        for b in range(n)
        if (i == j) != (a == b)
    ]
    rows += [X[i, j] == 0 for i, j in clashes if i < j]
    cost = np.zeros((N, N))
    cost[1:, 1:] = np.kron(A, B)
    return bo.Problem(bo.Minimize(bo.inner(cost, X)), rows), A, B


@pytest.mark.parametrize(("n", "seed"), first(4, [(3, 0), (4, 0), (4, 1), (5, 0), (7, 0)]))
def test_faces_of_integers_beside_inequalities_and_dependent_rows(n, seed):
    problem, A, B = assignment_program(n, seed)
    found = problem.solve()
    orders = itertools.permutations(range(n)) if n < 7 else []
    least = min((float(np.vdot(A, B[np.ix_(p, p)])) for p in map(list, orders)), default=2848.0)
    assert found.status == "optimal"
    assert found.bound <= least * (1 + 1e-6)
    if n < 5:  # the relaxation is exact there
        assert found.value == pytest.approx(least, rel=1e-5)
    assert found.iterations <= 60


@pytest.mark.parametrize("bound", [1e-4, 1.0])
def test_a_row_that_vanishes_on_a_face_of_integers_may_not_ask_for_more(bound):
    X = bo.PSD(4)
    line = np.array([-1.0, 1, 1, 0])
    rows = [X[0, 0] == 1, *(X[k, k] == X[0, k] for k in (1, 2, 3)), X @ line == 0, X >= 0]
    rows.append(X[0, 1] + X[0, 2] - X[0, 0] >= bound)
    found = bo.Problem(bo.Minimize(bo.trace(X)), rows).solve()
    assert found.status == "infeasible"


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_soft_rows_beside_a_face_of_integers_all_count(scale):
    n, rng = 5, np.random.default_rng(0)
    D = np.abs(symmetric(rng, n))
    np.fill_diagonal(D, 0.5)  # a cost that no X changes

    def problem(cost):
        G, one = cp.Variable((n, n), PSD=True), np.ones((n, 1))
        d = cp.reshape(cp.diag(G), (n, 1), order="F")
        return cp.Problem(cp.Minimize(cost(d @ one.T + one @ d.T - 2 * G)), [cp.sum(G, axis=1) == 0])

    least = problem(lambda E: cp.norm(E - D, "fro")).solve(solver="CLARABEL") ** 2
    squares = problem(lambda E: cp.sum_squares(E - scale * D))
    squares.solve(method="bregopt")
    found = squares.solver_stats.extra_stats
    assert squares.status == "optimal"
    assert found.value == pytest.approx(least * scale**2, rel=1e-5)
    assert found.dual_value == pytest.approx(least * scale**2, rel=1e-5)


@pytest.mark.parametrize("n", [4, 12])
def test_the_norm_of_a_difference_is_least_on_the_face(n):
    A, J = symmetric(np.random.default_rng(n), n), np.eye(n) - 1 / n
    X = bo.PSD(n)
    found = bo.Problem(bo.Minimize(bo.norm2(X - A)), [bo.inner(np.ones((n, n)), X) == 0]).solve()
    assert found.status == "optimal"
    assert found.value == pytest.approx(np.linalg.norm(psd_part(J @ A @ J) - A), rel=1e-6)
    Y = cp.Variable((n, n), PSD=True)
    problem = cp.Problem(cp.Minimize(cp.norm(Y - A, "fro")), [cp.sum(Y) == 0])
    assert problem.solve(method="bregopt") == pytest.approx(found.value, rel=1e-6)
    assert problem.status == "optimal"


@pytest.mark.parametrize("near", [bo.frobenius_div, bo.von_neumann_div])
def test_a_matrix_without_divergence_moves_to_its_face(near):
    n = 4
    A = np.eye(n) + 0.1 * np.ones((n, n))
    X, Y = bo.PSD(n), bo.PSD(n)
    rows = [X[0, 0] == Y[0, 0] + 0.5, bo.inner(np.ones((n, n)), Y) == 0]
    found = bo.Problem(bo.Minimize(near(X, A) + bo.trace(Y)), rows).solve()
    assert (found.status, found.solver) == ("optimal", "bregman")
    # Of the centered matrices with Y_00 = t the least trace is 4/3 t, that of t (4/3) vv', v = e_0 - e/4.
    M = Y.value
    assert np.trace(M) == pytest.approx(4 / 3 * M[0, 0], abs=1e-5)
    assert np.abs(M.sum(axis=0)).max() <= 1e-12
    for zero in ([bo.trace(Y) == 0], [Y << 0]):
        alone = bo.Problem(bo.Minimize(near(X, A) + bo.trace(Y)), [rows[0], *zero]).solve()
        without = bo.Problem(bo.Minimize(near(X, A)), [X[0, 0] == 0.5]).solve()
        assert alone.status == without.status == "optimal"
        assert alone.value == pytest.approx(without.value, rel=1e-6)


CENTERED = {
    "the sum": lambda X, n: [cp.sum(X) == 0],
    "zeros on the diagonal": lambda X, n: [cp.diag(X) == np.arange(n) // 2 % 2],
    "a form": lambda X, n: [X[0, 0] + X[1, 1] - 2 * X[0, 1] <= 0, cp.diag(X) <= 2],
    "a correlation of one": lambda X, n: [X[0, 0] == 1, X[1, 1] == 1, X[0, 1] == 1],
}


@pytest.mark.parametrize("rows", CENTERED)
@pytest.mark.parametrize("objective", ["sum_squares", "norm", "lambda_max", "sum of absolute values"])
def test_both_hooks_meet_rows_without_interior(objective, rows):
    n = 5
    A = symmetric(np.random.default_rng(3), n)

    def solved(**hook):
        X = cp.Variable((n, n), PSD=True)
        cost = {
            "sum_squares": lambda X: cp.sum_squares(X - A),
            "norm": lambda X: cp.norm(X - A, "fro"),
            "lambda_max": lambda X: cp.lambda_max(X) + 0.1 * cp.sum_squares(X - A),
            "sum of absolute values": lambda X: cp.sum(cp.abs(X - A)),
        }[objective](X)
        problem = cp.Problem(cp.Minimize(cost), CENTERED[rows](X, n))
        problem.solve(**hook)
        return problem

    ours = [solved(method="bregopt"), solved(solver="BREGOPT")]
    for problem in ours:
        assert problem.status == "optimal"
        assert max(float(np.max(row.violation())) for row in problem.constraints) <= 1e-6
    assert ours[0].value == pytest.approx(ours[1].value, rel=3e-6)
    with contextlib.suppress(cp.error.SolverError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert solved(solver="CLARABEL").value == pytest.approx(ours[1].value, rel=1e-4)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_centered_matrix_of_least_trace_is_zero(scale):
    X = bo.PSD(5)
    P = scale * (np.eye(5) + 0.1)
    rows = [bo.inner(np.ones((5, 5)), X) == 0]
    found = bo.Problem(bo.Minimize(bo.inner(P, X)), rows).solve(tol=1e-9)
    assert found.status == "optimal"
    assert abs(found.value) <= 1e-9 * scale


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rows_that_leave_a_definite_matrix_fix_no_null_vector(scale, rng):
    """The matrices of an inequality do; those with ``X v = 0`` for a vector do not, beside a trace."""
    n, v = 4, rng.normal(size=4)
    units = np.eye(n)
    null = [np.outer(e, v) + np.outer(v, e) for e in units]
    on_trace, on_face = svec(np.array([units])), svec(np.array([units, *null]))
    assert exposures._leaves_definite(on_trace, np.array([scale]), n)
    assert not exposures._leaves_definite(on_face, np.array([scale, *np.zeros(n)]), n)
    F = rng.normal(size=(2, n, n))
    slopes = svec(F + F.swapaxes(1, 2))
    inequality = np.column_stack([np.eye(n * (n + 1) // 2), slopes.T])  # X - u_1 F_1 - u_2 F_2 = F_0
    assert exposures._leaves_definite(inequality, scale * svec(units), n)
