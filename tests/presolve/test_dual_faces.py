"""Facial reduction of the dual: closed forms, and optima that the construction of a problem knows."""

import cvxpy as cp
import numpy as np
import pytest

import bregopt as bo
import bregopt.cvxpy
from bregopt.presolve.dual_form import dual_of
from bregopt.presolve.recession import DualFace, _of_integers, _rows_and_costs, _safer
from bregopt.program import Bounds, Face
from bregopt.records import replace
from bregopt.routes.ipm import path_route

pytestmark = pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning", "ignore::UserWarning")


def receding(seed, n=6, m=8):
    """Return costs, rows, bounds and optimum of a problem whose `X` recedes along ``e e'``, and ``e``.

    ``e`` is the sum of two unit vectors. No row sees ``e e'``. Complementary ``M`` and ``Z`` with ``Z e = 0``
    prove the optimum.
    """
    rng = np.random.default_rng(seed)
    e = np.zeros(n)
    e[[0, 2]] = 1.0
    P = np.linalg.qr(np.column_stack([e, rng.normal(size=(n, n - 1))]))[0]
    M = P[:, 1:3] @ P[:, 1:3].T + np.outer(e, e)
    Z = P[:, 3:] @ P[:, 3:].T
    A = rng.normal(size=(m, n, n))
    A = A + A.swapaxes(1, 2)
    A -= np.outer(e, e) * (A @ e @ e)[:, None, None] / 4
    y = np.abs(rng.normal(size=m))
    C, b = Z + np.tensordot(y, A, 1), np.tensordot(A, M, 2)
    return C, A, b, float(np.vdot(C, M)), e


@pytest.mark.parametrize("way", ["language", "method", "solver"])
@pytest.mark.parametrize("seed", range(3))
def test_an_attained_optimum_of_an_unbounded_set_is_optimal(seed, way):
    """The set of optima contains a ray, so no multipliers have a definite `Z`."""
    C, A, b, value, _ = receding(seed)
    if way == "language":
        X, Y = bo.PSD(len(C)), bo.PSD(3)
        rows = [bo.inner(a, X) >= c for a, c in zip(A, b, strict=True)]
        rows += [2 * Y[0, 1] == 2, Y[2, 2] == 1]  # the trace of Y adds two at least, and one
        solution = bo.Problem(bo.Minimize(bo.inner(C, X) + bo.trace(Y)), rows).solve(tol=1e-7)
        assert solution.status == "optimal"
        assert abs(solution.value - value - 3) <= min(solution.error * (1 + 1e-6), 1e-6)
        return
    X = cp.Variable(C.shape, PSD=True)
    rows = [cp.trace(a @ X) >= c for a, c in zip(A, b, strict=True)]
    problem = cp.Problem(cp.Minimize(cp.trace(C @ X)), rows)
    problem.solve(
        **({"method": "bregopt", "tol": 1e-8} if way == "method" else {"solver": bregopt.cvxpy.BREGOPT})
    )
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(value, abs=1e-6)


def test_the_face_has_the_optimum_that_no_matrix_attains():
    """``X_00`` with ``X_01 = 1`` has the infimum 0; on the face the row has the multiplier zero."""
    X = bo.PSD(2)
    program = bo.Problem(bo.Minimize(X[0, 0]), [2 * X[0, 1] == 2]).program()
    face = DualFace.entire(program).smaller([np.diag([1e-4, 1e4])])
    assert abs(face.U[0][:, 0]) == pytest.approx([0, 1], abs=1e-14)
    assert face.program.A.orders == (1,)
    assert np.abs(face.program.B.toarray()) == pytest.approx(np.array([[np.sqrt(2) * np.sqrt(2)]]))
    answer = bo.Problem(bo.Minimize(X[0, 0]), [2 * X[0, 1] == 2]).solve(solver="path", tol=1e-8)
    assert answer.status != "optimal"
    assert 0 < answer.value <= answer.error


def test_rows_that_free_variables_keep_have_no_multiplier():
    """``X_01 >= 1`` costs nothing where ``X_11`` may have any size: only the other row counts."""
    X = bo.PSD(3)
    rows = [X[0, 1] >= 1, X[0, 0] >= 2, X[2, 2] >= 3]
    program = bo.Problem(bo.Minimize(X[0, 0] + X[2, 2]), rows).program()
    face = DualFace.entire(program).smaller([np.diag([2.0, 1e7, 3.0])])
    assert face.kept.tolist() == [1, 2]
    assert face.program.k == 0


def test_safe_sides_by_hand():
    """The first variable changes only the first row, the second one the other two in opposite directions."""
    bounds = Bounds.of_hard_rows(np.array([0.0, 0.0, -np.inf]), np.array([np.inf, np.inf, 1.0]))
    columns = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    assert _safer(bounds, columns).tolist() == [True, False, False]
    columns[2, 1] = -1.0
    assert _safer(bounds, columns).tolist() == [True, True, True]
    columns[3] = 1.0, 0.0  # the first one costs more
    assert _safer(bounds, columns).tolist() == [False, True, True]


def test_equalities_are_not_left_out():
    bounds = Bounds.of_hard_rows(np.zeros(1), np.zeros(1))
    assert not _safer(bounds, np.array([[1.0], [0.0]])).any()


@pytest.mark.parametrize("seed", range(4))
def test_integers_are_found_exactly(seed):
    C, A, b, _, e = receding(seed)
    X = bo.PSD(len(C))
    program = bo.Problem(
        bo.Minimize(bo.inner(C, X)), [bo.inner(a, X) >= c for a, c in zip(A, b, strict=True)]
    ).program()
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=C.shape)
    rows, noise = _rows_and_costs(program), noise @ noise.T
    found = _of_integers(program, rows, [1e6 * np.outer(e, e) + noise])
    assert np.abs(np.abs(found.U[0][:, 0]) - e / np.sqrt(2)).max() <= 1e-15
    other = np.eye(len(C))[1]  # a direction that rows see
    assert (
        _of_integers(program, _rows_and_costs(program), [1e6 * np.outer(other, other) + noise @ noise.T])
        is None
    )


def test_problems_with_interiors_are_left_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(path_route, "_on_dual_faces", lambda *given: asked.append(given))
    X = bo.PSD(4)
    assert bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 1]).solve(solver="path").status == "optimal"
    assert not asked


@pytest.mark.parametrize("seed", range(3))
def test_multipliers_on_faces_of_both_sides_prove_the_optimum(seed):
    """`X` recedes, and no multipliers attain the dual: ``(1, -1, 0)`` is in the null space of all ``Y``."""
    C, A, b, value, _ = receding(seed)
    X, Y = bo.PSD(len(C)), bo.PSD(3)
    rows = [bo.inner(a, X) >= c for a, c in zip(A, b, strict=True)]
    rows += [Y[0, 0] + Y[1, 1] == 2 * Y[0, 1], Y[2, 2] == 1]
    solution = bo.Problem(bo.Minimize(bo.inner(C, X) + Y[0, 2] - Y[1, 2]), rows).solve(tol=1e-8)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(value, abs=1e-7)


def test_programs_on_faces_are_solved_in_coordinates_of_the_faces(monkeypatch):
    """Matrices of full order with faces would take several times as long a step."""
    orders, follow = [], path_route.follow_path

    def seen(program, *given):
        orders.append(program.A.orders)
        return follow(program, *given)

    monkeypatch.setattr(path_route, "follow_path", seen)
    C, A, b, _, _ = receding(0)
    X, Y = bo.PSD(len(C)), bo.PSD(3)
    rows = [bo.inner(a, X) >= c for a, c in zip(A, b, strict=True)]
    rows += [Y[0, 0] + Y[1, 1] == 2 * Y[0, 1], Y[2, 2] == 1]
    bo.Problem(bo.Minimize(bo.inner(C, X) + Y[0, 2] - Y[1, 2]), rows).solve(tol=1e-8)
    assert orders[0] == (6, 3)
    assert orders[-1] == (6, 2)


@pytest.mark.parametrize("seed", range(4))
def test_a_price_hides_no_vector_that_rows_and_costs_do_not_see(seed):
    """An error of 1e-9 in the range of the direction, of which no row tells, would make one definite."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    unseen, e, seen = Q[:, :1], Q[:, 1:2], Q[:, 2:]
    X, Y = bo.PSD(6), bo.PSD(2)
    S = rng.normal(size=(3, 4, 4))
    A = [seen @ (M + M.T) @ seen.T + e @ seen[:, :1].T + seen[:, :1] @ e.T for M in S]
    rows = [bo.inner(M, X) + bo.trace(Y) <= 1 for M in A]
    program = bo.Problem(bo.Minimize(bo.inner(np.eye(2), Y)), rows).program()
    assert program.A.orders == (2, 6)
    U = np.zeros((2, 0)), e + 1e-9 * unseen
    priced = DualFace(program, U, program, np.arange(program.m)).priced(1e-8)
    cost = priced.blocks[1].C
    assert np.abs(cost @ unseen).max() <= 1e-14 * np.abs(cost).max()
    assert cost == pytest.approx(1e-8 * e @ e.T, abs=1e-20)
    np.testing.assert_array_equal(priced.blocks[0].C, np.eye(2))


def zero_diagonals(seed, n=8, k=6, count=3):
    """Return ``F_0`` and ``F`` of matrix inequalities whose last diagonal entry is zero, and costs."""
    rng = np.random.default_rng(seed)
    F, F_0 = rng.normal(size=(count, k, n, n)), np.eye(n)
    F = F + F.swapaxes(2, 3)
    beside = rng.normal(size=(count, k, 1)) * rng.normal(size=(count, 1, n))
    F[:, :, -1], F[:, :, :, -1] = beside, beside
    F[:, :, -1, -1] = F_0[-1, -1] = 0.0
    return F_0, F, rng.normal(size=k)


@pytest.mark.parametrize("way", ["language", "method"])
@pytest.mark.parametrize("seed", range(2))
def test_faces_come_before_the_dual_form_after_a_stall(seed, way):
    """The zeros fix linear forms of the variables, which a program of CVXPY has as equalities."""
    F_0, F, c = zero_diagonals(seed)
    v, k = cp.Variable(len(c)), len(c)
    inside = [F_0[:-1, :-1] + sum(v[i] * own[i, :-1, :-1] for i in range(k)) >> 0 for own in F]
    explicit = cp.Problem(cp.Maximize(c @ v), [*inside, np.array([own[:, -1, 0] for own in F]) @ v == 0])
    explicit.solve(solver=cp.CLARABEL)
    if way == "language":
        u = bo.Variable(k)
        parts = [sum((u[i] * own[i] for i in range(1, k)), u[0] * own[0]) for own in F]
        answer = bo.Problem(bo.Maximize(c @ u), [bo.PSD(len(F_0)) == F_0 + part for part in parts])
        answer = answer.solve(tol=1e-8)
        assert answer.value == pytest.approx(explicit.value, abs=answer.error + 1e-7)
    else:
        matrices = [F_0 + sum(v[i] * own[i] for i in range(k)) >> 0 for own in F]
        answer = cp.Problem(cp.Maximize(c @ v), matrices)
        answer.solve(method="bregopt", tol=1e-8)
    assert answer.status == "optimal"
    assert answer.value == pytest.approx(explicit.value, abs=1e-6)


def test_a_matrix_on_the_whole_cone_has_a_dual_form():
    """Faces of other matrices leave it where it was: a program without them has the same dual form."""
    F_0, F, c = zero_diagonals(0)
    u, X = bo.Variable(len(c)), bo.PSD(len(F_0))
    rows = [X == F_0 + sum((u[i] * F[0, i] for i in range(1, len(c))), u[0] * F[0, 0])]
    program = bo.Problem(bo.Maximize(c @ u), rows).program()
    whole = replace(program, blocks=tuple(replace(b, face=Face.whole(b.n)) for b in program.blocks))
    assert dual_of(whole).program.m == dual_of(program).program.m == len(c)
