"""Linear matrix inequalities, solved as their dual: known optima, duals by hand, proofs and closed forms."""

import warnings
from dataclasses import replace
from typing import NamedTuple

import cvxpy as cp
import numpy as np
import pytest
from samples import first, turns

import bregopt as bo
import bregopt.cvxpy  # registers the method and the solver
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.presolve import presolve
from bregopt.presolve.dual_form import _pivots, dual_of, matrix_inequalities
from bregopt.presolve.svec import Svec, sparse_svec, svec_map, svec_rows
from bregopt.program import Answer, Penalty, Start, StopReason
from bregopt.routes import routing
from bregopt.routes.base import Settings
from bregopt.routes.ipm.central_path import follow_path

HOOKS = ("method", "BREGOPT", "from_cvxpy")


def symmetric(rng, n, count=None):
    S = rng.normal(size=(count or 1, n, n))
    S = (S + S.transpose(0, 2, 1)) / 2
    return S if count else S[0]


def pair(rng, n, rank):
    """Return psd matrices of ranks ``n - rank`` and `rank` with product zero."""
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    d = rng.uniform(0.5, 2, n)
    return (Q[:, rank:] * d[rank:]) @ Q[:, rank:].T, (Q[:, :rank] * d[:rank]) @ Q[:, :rank].T


class Inequalities(NamedTuple):
    """Matrix inequalities ``F_0 + F(x)`` and linear ones, and the optimum ``at`` of a linear objective."""

    problem: cp.Problem
    x: cp.Variable
    value: float
    c: np.ndarray
    F: list
    F_0: list
    rows: np.ndarray
    equal: int
    at: np.ndarray


def inequalities(seed, sizes, k, rows=0, equal=0, scale=1.0, maximize=False, spread=1.0):
    """Return a problem whose optimum is known, as its multipliers are; `spread` scales the variables."""
    rng = np.random.default_rng(seed)
    x, at = cp.Variable(k), spread * rng.normal(size=k)
    constraints, c, all_F, all_F_0 = [], np.zeros(k), [], []
    for n in sizes:
        F = symmetric(rng, n, k) / spread
        S, Z = pair(rng, n, max(1, n // 3))
        F_0 = S - np.tensordot(at, F, 1)
        constraints.append(F_0 + sum(x[j] * F[j] for j in range(k)) >> 0)
        c += np.tensordot(F, Z, 2)
        all_F.append(F)
        all_F_0.append(F_0)
    a = rng.normal(size=(rows, k)) / spread
    if rows:
        active = np.arange(rows) < (rows + 1) // 2
        multiplier = np.where(active, rng.uniform(0.5, 2, rows), 0.0)
        multiplier[:equal] = rng.normal(size=equal)
        b = a @ at - np.where(active, 0.0, 1.0)
        constraints += [a[:equal] @ x == b[:equal]] if equal else []
        constraints.append(a[equal:] @ x >= b[equal:])
        c += a.T @ multiplier
    c *= scale
    objective = cp.Maximize(-c @ x) if maximize else cp.Minimize(c @ x)
    value = float(c @ at) * (-1 if maximize else 1)
    return Inequalities(cp.Problem(objective, constraints), x, value, c, all_F, all_F_0, a, equal, at)


def answered(problem, hook, **options):
    """Solve a CVXPY problem by a hook; return its status and value."""
    if hook == "method":
        problem.solve(method="bregopt", **options)
    elif hook == "BREGOPT":
        problem.solve(solver="BREGOPT", tol=options.pop("tol", 1e-6), **options)
    else:
        solution = bo.from_cvxpy(problem).solve(**options)
        return solution.status, solution.value
    return problem.status, problem.value


def in_dual_form(program):
    return presolve(program, ["dual form"], Settings())


CASES = {
    "one block": {"sizes": [6], "k": 3},
    "blocks of several orders": {"sizes": [1, 2, 5, 5, 8], "k": 4},
    "linear rows": {"sizes": [4, 4], "k": 4, "rows": 4},
    "equalities": {"sizes": [5, 3], "k": 5, "rows": 5, "equal": 2},
    "maximize": {"sizes": [5, 3], "k": 5, "rows": 3, "maximize": True},
    "large costs": {"sizes": [5, 3], "k": 3, "rows": 2, "scale": 1e6},
    "small costs": {"sizes": [5, 3], "k": 3, "rows": 2, "scale": 1e-6},
    "large variables": {"sizes": [5, 3], "k": 3, "rows": 2, "spread": 1e6},
    "small variables": {"sizes": [5, 3], "k": 3, "rows": 2, "spread": 1e-6},
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seeds", first(1, [range(1), range(1, 3)]), ids=["one", "more"])
def test_known_optima(seeds, name, hook):
    for seed in seeds:
        case = inequalities(seed, **CASES[name])
        status, value = answered(case.problem, hook)
        assert status == "optimal"
        assert value == pytest.approx(case.value, abs=1e-5 * (abs(case.value) + np.abs(case.c).max()))


@pytest.mark.parametrize("name", CASES)
def test_values_and_duals_meet_the_optimality_conditions(name):
    case = inequalities(7, **CASES[name])
    case.problem.solve(method="bregopt", tol=1e-8)
    left, sign, size = case.c.copy(), -1.0 if CASES[name].get("maximize") else 1.0, np.abs(case.c).max()
    for F, F_0, constraint in zip(case.F, case.F_0, case.problem.constraints, strict=False):
        Z, S = constraint.dual_value, F_0 + np.tensordot(case.x.value, F, 1)
        assert np.linalg.eigvalsh(S)[0] >= -1e-6
        assert np.linalg.eigvalsh(Z)[0] >= -1e-6 * size
        assert abs(np.vdot(S, Z)) <= 1e-5 * max(size, np.linalg.norm(Z))
        left -= np.tensordot(F, Z, 2)
    linear = case.problem.constraints[len(case.F) :]
    if case.equal:
        left += case.rows[: case.equal].T @ linear[0].dual_value
    if len(linear):
        y, slack = linear[-1].dual_value, linear[-1].args[1].value - linear[-1].args[0].value
        assert y.min() >= 0
        assert np.abs(y * slack).max() <= 1e-5 * max(size, np.abs(y).max())
        left -= case.rows[case.equal :].T @ y
    assert np.abs(left).max() <= 1e-5 * size
    assert sign * case.problem.value == pytest.approx(sign * case.value, rel=1e-6, abs=1e-6 * size)


def test_the_dual_has_a_row_for_each_variable():
    case = inequalities(0, [4, 4, 4], k=3, rows=2, equal=1)
    program = bo.from_cvxpy(case.problem).program()
    found = in_dual_form(program)
    assert (program.m, found.program.m, found.program.k) == (32, 3, 2)
    assert "3 matrix inequalities, with 3 rows instead of 32" in found.summaries[0]


def test_a_program_whose_dual_is_not_smaller_stays():
    rng = np.random.default_rng(0)
    case = inequalities(1, [2], k=3)  # three entries, three variables
    assert not in_dual_form(bo.from_cvxpy(case.problem).program()).steps
    X, u = bo.PSD(3, name="X"), bo.Variable(1, name="u")
    some_entries = [X[0, 1] == u[0], bo.trace(X) == 1]  # not all entries are defined
    assert not in_dual_form(bo.Problem(bo.Minimize(u[0]), some_entries).program()).steps
    Y = bo.PSD(3, name="Y")  # both matrices have six entries
    rows = [X[i, j] - Y[i, j] == float(rng.normal()) for i in range(3) for j in range(i + 1)]
    assert not in_dual_form(bo.Problem(bo.Minimize(bo.trace(Y)), rows).program()).steps


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_to_the_dual_is_one_to_the_program(seed):
    """Both certificates are of the same points: bounds change roles and signs."""
    rng = np.random.default_rng(seed)
    case = inequalities(seed, [3, 4], k=3, rows=3)
    box = [case.x[0] <= 4, case.x[1] >= -4, case.x[2] <= 5, case.x[2] >= -5]
    problem = bo.from_cvxpy(cp.Problem(case.problem.objective, [*case.problem.constraints, *box]))
    whole = presolve(problem.program(), ["boxes"], Settings()).program
    (step,) = in_dual_form(whole).steps
    dual = step.program
    Z = tuple(S @ S for S in (symmetric(rng, block.n) for block in dual.blocks))
    u = np.clip(rng.normal(size=dual.k), dual.u_lo, dual.u_hi)
    answer = step.restore(
        Answer(
            Z,
            u,
            case.x.value if case.x.value is not None else rng.normal(size=dual.m),
            StopReason.MAX_ITER,
            0,
        )
    )
    point = PrimalDualPoint(whole, answer.X, answer.u, answer.y)
    for block, Z_b, b in zip(whole.blocks, Z, range(2), strict=True):
        assert np.allclose(block.C - whole.A.adjoint(point.y, b), Z_b)
    again = step.shrink(Start(answer.X, answer.u, answer.y))
    assert all(np.allclose(S, T) for S, T in zip(again.X, Z, strict=True))
    assert np.allclose(again.y, answer.u)


def test_lambda_max_is_the_largest_eigenvalue():
    for factor in (1.0, 1e6, 1e-6):
        S, t = factor * symmetric(np.random.default_rng(3), 7), cp.Variable()
        largest = float(np.linalg.eigvalsh(S)[-1])
        for hook in HOOKS:
            status, value = answered(cp.Problem(cp.Minimize(t), [S << t * np.eye(7)]), hook)
            assert status == "optimal"
            assert value == pytest.approx(largest, rel=1e-5)


def test_least_squares_as_a_schur_complement():
    rng = np.random.default_rng(5)
    A, b, x, t = rng.normal(size=(6, 3)), rng.normal(size=6), cp.Variable(3), cp.Variable((1, 1))
    r = cp.reshape(A @ x - b, (6, 1), order="C")
    problem = cp.Problem(cp.Minimize(t[0, 0]), [cp.bmat([[np.eye(6), r], [r.T, t]]) >> 0])
    least = float(np.linalg.lstsq(A, b, rcond=None)[1][0])
    for hook in HOOKS:
        status, value = answered(problem, hook)
        assert status == "optimal"
        assert value == pytest.approx(least, rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_a_matrix_of_which_rows_fix_a_part_has_a_dual_of_few_rows(seed):
    # t >= ||G w||^2 by a Schur complement: all entries but t are defined. The least value has a closed form.
    n, rng = 16, np.random.default_rng(seed)
    G, w, t = rng.normal(size=(n, n)), cp.Variable(n), cp.Variable((1, 1))
    Gw = cp.reshape(G @ w, (n, 1), order="F")
    problem = cp.Problem(cp.Minimize(t[0, 0]), [cp.bmat([[np.eye(n), Gw], [Gw.T, t]]) >> 0, cp.sum(w) == 1])
    program = bo.from_cvxpy(problem).program()
    assert in_dual_form(program).program.m <= n + 1 < program.m
    inverse = np.linalg.solve(G.T @ G, np.ones(n))
    status, value = answered(problem, "method", tol=1e-8)
    assert status == "optimal"
    assert value == pytest.approx(1 / inverse.sum(), rel=1e-6, abs=1e-7)
    assert w.value == pytest.approx(inverse / inverse.sum(), abs=1e-3)


def test_lyapunov_inequalities_share_a_psd_variable():
    """Six inequalities in one matrix variable: its entries are variables of the dual's rows."""
    rng, n = np.random.default_rng(6), 4
    P = cp.Variable((n, n), PSD=True)
    systems = [0.4 * rng.normal(size=(n, n)) - 2 * np.eye(n) for _ in range(6)]
    problem = cp.Problem(cp.Minimize(cp.trace(P)), [A.T @ P + P @ A << -np.eye(n) for A in systems])
    found = in_dual_form(bo.from_cvxpy(problem).program())
    assert found.program.m == 10
    reference = problem.solve(solver="CLARABEL")
    for hook in HOOKS:
        status, value = answered(problem, hook)
        assert status == "optimal"
        assert value == pytest.approx(reference, rel=1e-5)
    problem.solve(method="bregopt")
    assert np.linalg.eigvalsh(P.value)[0] > 0
    total = sum(
        A @ c.dual_value + c.dual_value @ A.T for A, c in zip(systems, problem.constraints, strict=True)
    )
    slack = np.eye(n) + total  # the multiplier of P psd
    assert np.linalg.eigvalsh(slack)[0] >= -1e-5
    assert abs(np.vdot(slack, P.value)) <= 1e-4


def linked(n, S):
    """Return ``min u`` with ``X = u I - S``, entry by entry, in our language."""
    X, u = bo.PSD(n, name="X"), bo.Variable(1, name="u")
    entries = [(i, j) for i in range(n) for j in range(n)]  # both of mirrored entries: one says nothing new
    rows = [X[i, j] == float(-S[i, j]) + (u[0] if i == j else 0.0) for i, j in entries]
    return X, u, rows


def test_entries_linked_one_by_one():
    S = symmetric(np.random.default_rng(8), 6)
    X, u, rows = linked(6, S)
    problem = bo.Problem(bo.Minimize(u[0]), rows)
    found = in_dual_form(problem.program())
    assert found.program.m == 1
    assert found.program.k == 0
    solution = problem.solve()
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(np.linalg.eigvalsh(S)[-1], rel=1e-5)
    assert np.allclose(X.value, u.value * np.eye(6) - S, atol=1e-5)
    assert problem.solve(warm_start=True).status == "optimal"


def test_rows_and_costs_on_the_linked_matrix():
    """The trace of ``X`` and a cost of ``X`` are those of ``u I - S``."""
    S = symmetric(np.random.default_rng(9), 5)
    largest = float(np.linalg.eigvalsh(S)[-1])
    X, u, rows = linked(5, S)
    least = 5 * (largest + 1) - np.trace(S)
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [*rows, bo.trace(X) >= least])
    assert problem.solve().value == pytest.approx(least, rel=1e-5)
    assert u.value[0] == pytest.approx(largest + 1, rel=1e-5)
    inconsistent = bo.Problem(bo.Minimize(u[0]), [*rows, X[0, 1] == float(-S[0, 1]) + 1])
    assert inconsistent.solve().status == "infeasible"


def test_hinges_and_boxes():
    """``min u + 3 max(0, 1 - v)`` with ``[[u, v], [v, 1]] psd`` and ``-2 <= v <= 0.5``: u = v^2, v = 0.5."""
    u, v = cp.Variable(), cp.Variable()
    matrix = cp.bmat([[u, v], [v, 1]])
    problem = cp.Problem(cp.Minimize(u + 3 * cp.pos(1 - v)), [matrix >> 0, v >= -2, v <= 0.5])
    for hook in HOOKS:
        status, value = answered(problem, hook)
        assert status == "optimal"
        assert value == pytest.approx(0.25 + 1.5, rel=1e-5)


def squares(weight):
    """Return a problem with squares and matrix inequalities, and its value: its optimum is chosen first."""
    case, M = inequalities(2, [9, 7], k=4), np.random.default_rng(4).normal(size=(4, 4))
    residual = np.linalg.solve(M.T, case.c) / (2 * weight)
    M, residual = np.sign(residual)[:, None] * M, np.abs(residual)
    misses = M @ case.x - (M @ case.at - residual)
    problem = cp.Problem(cp.Minimize(weight * cp.sum_squares(misses)), case.problem.constraints)
    return problem, weight * float(residual @ residual)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("weight", [1.0, 1e3, 1e-3])
def test_squares_beside_matrix_inequalities(weight, hook):
    problem, value = squares(weight)
    status, found = answered(problem, hook, tol=1e-8)
    assert status == "optimal"
    assert found == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("end", ["lo", "hi"])
def test_squares_have_rows_in_the_dual(end):
    """The optimum misses upper bounds only, so that it is the same without lower ones."""
    problem, value = squares(1.0)
    program = bo.from_cvxpy(problem).program()
    square = program.bounds.kind == Penalty.SQUARE
    without = {end: np.where(square, np.inf if end == "hi" else -np.inf, getattr(program.bounds, end))}
    one_sided = replace(program, bounds=replace(program.bounds, **without))
    dual = in_dual_form(one_sided).program
    assert dual.m == 4 + 4 < program.m
    for form, sign in ((one_sided, 1), (dual, -1)):
        solution = routing.solve(form, "path", tol=1e-8)
        assert solution.status == "optimal"
        assert sign * solution.value == pytest.approx(value if end == "lo" else 0, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_variables_of_cones_need_no_rows_in_the_dual(scale, hook, rng):
    """The largest ``g'x`` in a ball, inside wider balls and a matrix inequality: at the end of a radius."""
    x, a, g, F = cp.Variable(4), scale * rng.normal(size=4), rng.normal(size=4), symmetric(rng, 12, 4)
    balls = [
        cp.norm(x - a) <= scale,
        *(cp.norm(x - a + scale * rng.normal(size=4)) <= 9 * scale for _ in range(5)),
    ]
    wide = 9 * scale * 12 * np.eye(12) + sum(x[j] * F[j] for j in range(4)) >> 0
    problem = cp.Problem(cp.Maximize(g @ x), [*balls, wide])
    assert in_dual_form(bo.from_cvxpy(problem).program()).program.m == 4 + 6  # of x and of the radii
    status, value = answered(problem, hook, tol=1e-8)
    assert status == "optimal"
    assert value == pytest.approx(float(g @ a) + scale * float(np.linalg.norm(g)), rel=1e-6, abs=1e-6 * scale)
    if hook != "from_cvxpy":  # which leaves the variables of CVXPY without values
        assert x.value == pytest.approx(a + scale * g / np.linalg.norm(g), abs=1e-3 * scale)


def test_a_parameter_beside_squares_moves_the_optimum(rng):
    """``||x - p||^2`` with ``-1 <= x <= 1`` as matrix inequalities: ``x`` is the nearest point."""
    x, p, repeated = cp.Variable(3), cp.Parameter(3), np.kron(np.eye(3), np.ones((4, 1)))
    ends = [np.eye(12) + sign * cp.diag(repeated @ x) >> 0 for sign in (1, -1)]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x - p)), ends)
    for _ in range(3):  # the later ones begin at the answer before
        p.value = 3 * rng.normal(size=3)
        problem.solve(method="bregopt", tol=1e-8)
        assert problem.status == "optimal"
        assert x.value == pytest.approx(np.clip(p.value, -1, 1), abs=1e-4)


@pytest.mark.parametrize(("hook", "seed"), turns(HOOKS, range(3)))
def test_infeasible_inequalities(seed, hook):
    """``<F_j, Z> = 0`` for all j and ``<F_0, Z> < 0`` for a psd Z: nothing is feasible."""
    rng = np.random.default_rng(seed)
    F, (Z, _), x = symmetric(rng, 5, 3), pair(rng, 5, 2), cp.Variable(3)
    F -= np.tensordot(F, Z, 2)[:, None, None] * Z / np.vdot(Z, Z)
    F_0 = symmetric(rng, 5)
    F_0 -= (np.vdot(F_0, Z) + np.linalg.norm(Z)) * Z / np.vdot(Z, Z)
    inequality = F_0 + sum(x[j] * F[j] for j in range(3)) >> 0
    for objective in (cp.Minimize(rng.normal(size=3) @ x), cp.Maximize(0)):
        assert answered(cp.Problem(objective, [inequality]), hook)[0] == "infeasible"


@pytest.mark.parametrize(("hook", "seed"), turns(HOOKS, range(3)))
def test_unbounded_inequalities(seed, hook):
    """``F(d)`` is positive definite and ``c'd < 0``: the objective falls along d."""
    rng = np.random.default_rng(seed)
    F, d, x = symmetric(rng, 5, 3), rng.normal(size=3), cp.Variable(3)
    F[0] += (np.eye(5) - np.tensordot(d, F, 1)) / d[0]
    inequality = symmetric(rng, 5) + sum(x[j] * F[j] for j in range(3)) >> 0
    for objective in (cp.Minimize(-d @ x), cp.Maximize(d @ x)):
        assert answered(cp.Problem(objective, [inequality]), hook)[0] == "unbounded"
    both = [inequality, d @ x <= -1, d @ x >= 1]
    assert answered(cp.Problem(cp.Minimize(-d @ x), both), hook)[0] == "infeasible"
    assert answered(cp.Problem(cp.Minimize(0), [inequality]), hook) == ("optimal", 0)


def test_costs_that_cancel_leave_no_ray():
    """A cost parallel to the one inequality is constant on its boundary: round-off is no direction."""
    a, x = np.array([-1.98138762, 2.00516389, -1.82591455]), cp.Variable(3)
    problem = cp.Problem(cp.Minimize(1.0518 * a @ x), [cp.reshape(a @ x - 3.2, (1, 1), order="C") >> 0])
    for hook in HOOKS:
        status, value = answered(problem, hook)
        assert status == "optimal"
        assert value == pytest.approx(1.0518 * 3.2, rel=1e-5)


def test_an_optimum_that_is_not_attained_is_not_claimed_exactly():
    """``min u`` with ``[[u, 1], [1, v]] psd`` is zero, for v without end."""
    u, v = cp.Variable(), cp.Variable()
    problem = cp.Problem(cp.Minimize(u), [cp.bmat([[u, 1], [1, v]]) >> 0])
    for hook in HOOKS[:2]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            status, value = answered(problem, hook)
        assert status != "optimal" or abs(value) <= 1e-4


def test_the_table_of_progress_has_the_users_sign(capsys):
    S = symmetric(np.random.default_rng(8), 6)
    _, u, rows = linked(6, S)
    solution = bo.Problem(bo.Minimize(u[0]), rows).solve(verbose=True)
    assert solution.history["primal"][-1] == pytest.approx(solution.value, rel=1e-5)
    assert "X 6 x 6" in capsys.readouterr().out


def test_rows_as_vectors_and_back():
    case = inequalities(2, [3, 1, 4], k=3)
    program = bo.from_cvxpy(case.problem).program()
    vectors = sparse_svec(program.A)
    assert np.allclose(vectors.toarray(), svec_rows(program, np.arange(program.m))[:, : vectors.shape[1]])
    y = np.random.default_rng(0).normal(size=program.m)
    again = svec_map(program.A.orders, vectors)
    for b in range(3):
        assert np.allclose(again.adjoint(y, b), program.A.adjoint(y, b))


def test_matrix_inequalities_hold_the_program():
    """At random variables ``F_0 + F v`` meets the rows that it replaces, and costs are the same."""
    rng = np.random.default_rng(4)
    P, x = cp.Variable((2, 2), PSD=True, name="P"), cp.Variable(2)
    F, L = symmetric(rng, 3, 2), rng.normal(size=(3, 2))
    problem = cp.Problem(
        cp.Minimize(x[0] + cp.trace(P)),
        [np.eye(3) + x[0] * F[0] + x[1] * F[1] - L @ P @ L.T >> 0, x[0] + P[0, 1] >= 1, cp.trace(P) == 2],
    )
    program = bo.from_cvxpy(problem).program()
    form = matrix_inequalities(program)
    v = rng.normal(size=len(form.c))
    entries = form.F_0 + form.F @ v
    X, u = form.matrices(entries), v[: program.k]
    activity, defining = program.activity(X, u), np.setdiff1d(np.arange(program.m), form.kept)
    assert np.allclose(activity[defining], program.bounds.lo[defining])
    finite = np.isfinite(form.bounds.lo)
    moved = program.bounds.lo[form.kept][finite] - form.bounds.lo[finite]
    assert np.allclose(activity[form.kept][finite], (form.K @ v)[finite] + moved)
    cost = sum(block.cost_value(X_b) for block, X_b in zip(program.blocks, X, strict=True)) + program.c @ u
    assert cost + program.offset == pytest.approx(form.c @ v + form.offset)
    stacks, _ = Svec(program.A.orders, 0).points(entries[None])
    assert np.allclose(form.entries(X), entries)
    assert np.allclose(stacks[0][0], X[0])


@pytest.mark.parametrize("fixed", [3, 2])
def test_a_matrix_is_defined_in_all_of_its_entries_or_in_part(fixed):
    """``[[S, x], [x', t]]`` has entries that no row defines once they are entries of a matrix variable."""
    S, X = np.eye(3) + 0.1, cp.Variable((3, 3), PSD=True)
    rows = [X[i, j] == S[i, j] for i in range(3) for j in range(i, 3) if max(i, j) < fixed]
    program = bo.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X)), [*rows, cp.sum(X) <= 9])).program()
    form = matrix_inequalities(program)
    defined = np.count_nonzero(form.pivot >= 0)
    assert defined == fixed * (fixed + 1) // 2
    assert (matrix_inequalities(program, entire=True) is None) == (defined < 6)


def test_certificates_of_the_dual_change_roles():
    certificate = Certificate(
        primal=2.0, dual=1.0, gap=0.5, primal_residual=0.1, dual_residual=0.2, error=1.0
    )
    turned = Certificate(primal=-1.0, dual=-2.0, gap=0.5, primal_residual=0.2, dual_residual=0.1, error=1.0)
    assert certificate.of_dual == turned
    assert turned.of_dual == certificate


def sdpa_lines(case):
    """Return SDPA's two files of one problem: rows for the variables, and rows for the entries."""
    k, orders, number = len(case.c), [len(F_0) for F_0 in case.F_0], "{:.17g}".format
    of_variables = [str(k), str(len(orders)), " ".join(map(str, orders)), " ".join(map(number, case.c))]
    of_entries, bounds, blocks = [], [], len(orders)
    for j in range(k):  # a free variable is a difference of two nonnegative ones
        of_entries += [f"0 {blocks + 1} {j + 1} {j + 1} {number(-case.c[j])}"]
        of_entries += [f"0 {blocks + 1} {k + j + 1} {k + j + 1} {number(case.c[j])}"]
    for b, (F, F_0) in enumerate(zip(case.F, case.F_0, strict=True), start=1):
        for i, other in zip(*np.triu_indices(len(F_0)), strict=True):
            place = f"{b} {i + 1} {other + 1}"
            of_variables.append(f"0 {place} {number(-F_0[i, other])}")
            of_variables += [f"{j + 1} {place} {number(F[j, i, other])}" for j in range(k)]
            bounds.append(number(F_0[i, other]))
            row = len(bounds)
            of_entries.append(f"{row} {place} {1 if i == other else 0.5}")
            for j in range(k):
                of_entries.append(f"{row} {blocks + 1} {j + 1} {j + 1} {number(-F[j, i, other])}")
                of_entries.append(f"{row} {blocks + 1} {k + j + 1} {k + j + 1} {number(F[j, i, other])}")
    head = [str(len(bounds)), str(blocks + 1), " ".join(map(str, [*orders, -2 * k])), " ".join(bounds)]
    return of_variables, [*head, *of_entries]


def test_sdpa_files_of_either_kind_have_a_row_for_each_variable(tmp_path):
    for seed, sizes in enumerate(([8], [5, 5, 5], [6] * 8)):
        case, path = inequalities(seed, sizes, k=3), tmp_path / "problem.dat-s"
        for lines, sign in zip(sdpa_lines(case), (1.0, -1.0), strict=True):
            path.write_text("\n".join(lines) + "\n")
            problem = bo.read_sdpa(path)
            solution = problem.solve()
            assert solution.status == "optimal"
            assert sign * solution.value == pytest.approx(case.value, abs=1e-5 * np.abs(case.c).max())
            assert in_dual_form(problem.program()).program.m <= 6


def test_a_small_program_is_solved_as_it_is_where_its_dual_stalls(monkeypatch):
    case, asked = inequalities(0, [4, 4], k=3), []

    def stalling(program, *rest):
        asked.append(program.m)
        answer = follow_path(program, *rest)
        inaccurate = replace(answer, y=1.0001 * answer.y, stop=StopReason.STALLED)
        return inaccurate if program.m == 3 else answer

    monkeypatch.setattr("bregopt.routes.ipm.path_route.Path.solve_directly", lambda *_: None)
    monkeypatch.setattr("bregopt.routes.ipm.path_route.follow_path", stalling)
    assert answered(case.problem, "method") == ("optimal", pytest.approx(case.value, rel=1e-5))
    assert asked == [3, 20]


def test_the_dual_of_a_program_without_rows():
    """Its entries are all free: the dual is the cone of matrices below the costs."""
    X, u = bo.PSD(2), bo.Variable(lower=2, name="u")
    program = bo.Problem(bo.Minimize(bo.sum(X) + 5 * u), []).program()
    assert program.m == 0
    assert (_pivots(program, sparse_svec(program.A)) == -1).all()
    dual = dual_of(program)
    point = routing.solve(dual.program, "path", tol=1e-6)._point
    answer = dual.restore(Answer(*point, StopReason.CONVERGED, 0))
    certificate = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y))
    assert certificate.primal == pytest.approx(10, abs=1e-4)


def test_the_dual_of_a_program_without_defined_entries(rng):
    """Its value is that of the program, and its answer gives a matrix and multipliers of all rows."""
    X, u, A = bo.PSD(4), bo.Variable(), symmetric(rng, 4, 3)
    rows = [bo.inner(S, X) + k * u <= 1 + k for k, S in enumerate(A)] + [bo.trace(X) == 1, u <= 2]
    problem = bo.Problem(bo.Maximize(bo.inner(symmetric(rng, 4), X) + u), rows)
    program = problem.program()
    assert matrix_inequalities(program) is None
    dual = dual_of(program)
    point = routing.solve(dual.program, "path", tol=1e-8)._point
    answer = dual.restore(Answer(*point, StopReason.CONVERGED, 0))
    certificate = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y))
    assert certificate.meets(1e-6)
    assert -certificate.primal == pytest.approx(problem.solve(solver="path", tol=1e-8).value, abs=1e-6)
