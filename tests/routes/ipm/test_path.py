"""The route `path`: known answers, faces, soft rows, scale, infeasible problems, SDPLIB, interruptions."""

import dataclasses
import itertools
import re
import shutil
import signal
import subprocess
import warnings

import cvxpy as cp
import numpy as np
import peers
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st
from samples import examples, first, turns
from scipy.optimize import linprog

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify, is_farkas, is_ray
from bregopt.presolve.faces import faces
from bregopt.program import Penalty
from bregopt.routes import routing
from bregopt.routes.ipm import central_path
from bregopt.routes.ipm.cones import _least_eigenvalue
from bregopt.routes.ipm.engine import Engine


def symmetric(n, rng):
    A = rng.normal(size=(n, n))
    return (A + A.T) / 2


def positive_definite(n, rng):
    G = rng.normal(size=(n, n))
    return G @ G.T / n + 0.3 * np.eye(n)


def complementary(n, rng, rank=None):
    """Return psd matrices with ``X S = 0`` whose ranks add up to `n`."""
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    r = int(rng.integers(0, n + 1)) if rank is None else rank
    size = rng.uniform(0.3, 3, n)
    return (Q[:, :r] * size[:r]) @ Q[:, :r].T, (Q[:, r:] * size[r:]) @ Q[:, r:].T


def solve(problem, **options):
    """Solve by `path` without warnings; the test checks the accuracy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        return problem.solve(solver="path", **options)


def stationary(problem, solution, tol):
    """Check psd matrices, the dual cone and complementarity, from the program's data."""
    program, raw = problem.program(), solution._raw
    y = program.bounds.clip(raw.duals)
    np.testing.assert_allclose(y, raw.duals)
    for b, block in enumerate(program.blocks):
        X, Z = np.asarray(raw.X[b]), block.C - program.A.adjoint(y, b)
        size = max(np.linalg.norm(block.C), np.linalg.norm(Z), 1.0)
        assert np.linalg.eigvalsh(X)[0] >= -1e-12 * max(np.trace(X), 1)
        assert np.linalg.eigvalsh(Z)[0] >= -tol * size
        assert abs(np.vdot(X, Z)) <= tol * size * max(np.trace(X), 1)
    a, bounds = program.activity(raw.X, raw.u), program.bounds
    hard = bounds.hard & (bounds.lo < bounds.hi)
    nearest = np.where(y > 0, bounds.lo, np.where(y < 0, bounds.hi, a))
    assert (np.abs(y * (a - nearest))[hard] <= tol * (1 + np.abs(y) + np.abs(a))[hard]).all()


# --- Known answers ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Row:
    """``lo <= <A, X> + b'u <= hi`` with its multiplier."""

    A: list
    b: np.ndarray
    lo: float
    hi: float
    y: float


def declared(orders, rows, C, c, box):
    """Return the problem of such rows in our language."""
    X = [bo.PSD(n, name=f"X{k}") for k, n in enumerate(orders)]
    u = [
        bo.Variable(name=f"u{k}", lower=lo if lo > -np.inf else None, upper=hi if hi < np.inf else None)
        for k, (lo, hi) in enumerate(box)
    ]

    def linear(A, b):
        terms = [bo.inner(A_k, X_k) for A_k, X_k in zip(A, X, strict=True) if A_k.any()]
        terms += [b_k * u_k for b_k, u_k in zip(b, u, strict=True) if b_k]
        return sum(terms[1:], terms[0])

    constraints = []
    for row in rows:
        e = linear(row.A, row.b)
        if row.lo == row.hi:
            constraints.append(e == row.lo)
        elif np.isinf(row.lo):
            constraints.append(e <= row.hi)
        else:
            constraints.append(e >= row.lo if np.isinf(row.hi) else bo.between(e, row.lo, row.hi))
    terms = [bo.inner(C_k, X_k) for C_k, X_k in zip(C, X, strict=True)]
    terms += [c_k * u_k for c_k, u_k in zip(c, u, strict=True)]
    objective = sum(terms[1:], terms[0])
    return bo.Problem(bo.Minimize(objective), constraints)


def known_problem(seed, blocks=1, free=0, boxed=0, senses=False, redundant=False, largest=8):
    """Return a problem and its optimal value, from a primal and a dual point that are complementary.

    Both sides have interior points: rows are placed such that a positive definite point meets them, and
    one row bounds the trace.
    """
    rng = np.random.default_rng(seed)
    orders = rng.integers(1, largest + 1, blocks)
    X, S = zip(*(complementary(n, rng) for n in orders), strict=True)
    inside = [positive_definite(n, rng) for n in orders]
    k = free + boxed
    u, z, box = rng.normal(size=k), np.zeros(k), np.tile([-np.inf, np.inf], (k, 1))
    for i in range(free, k):
        at, far = u[i], rng.uniform(0.3, 2, 2)
        box[i] = [(at, np.inf), (-np.inf, at), (at - far[0], at + far[1]), (at, at + far[1])][i % 4]
        z[i] = [far[0], -far[0], 0.0, far[0]][i % 4]
    v = np.clip(u + np.where(box[:, 0] == u, 0.2, np.where(box[:, 1] == u, -0.2, 0.0)), *box.T)
    step = [I_b - X_b for I_b, X_b in zip(inside, X, strict=True)]
    length = sum(np.vdot(d, d) for d in step) + (v - u) @ (v - u)

    trace = max(sum(map(np.trace, X)), sum(map(np.trace, inside))) + 1
    rows = [Row([np.eye(n) for n in orders], np.zeros(k), -np.inf, trace, 0.0)]
    count = int(rng.integers(free, max(free + 1, sum(n * (n + 1) // 2 for n in orders))))
    for number in range(count):
        A = [symmetric(n, rng) * (rng.random((n, n)) < 0.7 if number % 2 else 1) for n in orders]
        A[0][0, 0] = 1.0
        A, b = [np.triu(A_b) + np.triu(A_b, 1).T for A_b in A], rng.normal(size=k)
        t = sum(np.vdot(*pair) for pair in zip(A, step, strict=True)) + b @ (v - u)
        kind = number % 4 if senses and abs(t) > 0.1 else 0
        if kind == 0:
            A, b = [A_b - t / length * d for A_b, d in zip(A, step, strict=True)], b - t / length * (v - u)
        a = sum(np.vdot(*pair) for pair in zip(A, X, strict=True)) + b @ u
        y, wide = rng.uniform(0.2, 2), abs(t) + 1
        if kind == 0:
            row = Row(A, b, a, a, y - 1)
        elif kind == 3:
            row = Row(A, b, a - wide, np.inf, 0.0)
        elif t > 0:
            row = Row(A, b, a, np.inf if kind == 1 else a + wide, y)
        else:
            row = Row(A, b, -np.inf if kind == 1 else a - wide, a, -y)
        rows.append(row)
    if redundant:
        equal = [row for row in rows if row.lo == row.hi]
        for _ in range(3 if equal else 0):
            w = rng.normal(size=len(equal)) * (rng.random(len(equal)) < 0.7)
            w[rng.integers(len(equal))] = 1.0
            A = [sum(w_k * row.A[b] for w_k, row in zip(w, equal, strict=True)) for b in range(blocks)]
            b = sum(w_k * row.b for w_k, row in zip(w, equal, strict=True))
            a = sum(w_k * row.lo for w_k, row in zip(w, equal, strict=True))
            rows.append(Row(A, b, a, a, 0.0))
    C = [S[b] + sum(row.y * row.A[b] for row in rows) for b in range(blocks)]
    c = z + sum(row.y * row.b for row in rows)
    value = sum(np.vdot(*pair) for pair in zip(C, X, strict=True)) + c @ u
    return declared(orders, rows, C, c, box), float(value)


def check_known(problem, value, tol=1e-7):
    solution = solve(problem, tol=tol)
    assert solution.status == "optimal", solution
    assert abs(solution.value - value) <= max(1e-6 * max(abs(value), 1e-2), 2 * solution.error)
    assert max(solution.gap, solution.primal_residual, solution.dual_residual) <= tol
    stationary(problem, solution, 1e-5)
    return solution


SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.integers(1, 2), st.integers(0, 2), st.integers(0, 4), st.booleans(), st.booleans())
@examples(15)
@example(34, 2, 2, 4, True, False)
def test_known_answers(seed, blocks, free, boxed, senses, redundant):
    problem, value = known_problem(seed, blocks, free, boxed, senses, redundant, 8 if blocks == 1 else 5)
    check_known(problem, value)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(20))
def test_many_known_answers(chunk):
    rng = np.random.default_rng(chunk)
    for seed in range(100 * chunk, 100 * (chunk + 1)):
        shape = rng.integers(0, [2, 3, 5, 2, 2])
        problem = known_problem(seed, 1 + int(shape[0]), *map(int, shape[1:3]), *map(bool, shape[3:]))
        check_known(*problem, tol=1e-6)


@pytest.mark.parametrize(
    "shape", [(266, 1, 2, 4, True, False), (1660, 2, 2, 2, False, True), (108, 1, 2, 0, False, False)]
)
def test_rows_that_hold_little_but_free_variables(shape):
    # The system of the rows is all but singular there without its border: it stalled, from 1e-6 on.
    check_known(*known_problem(*shape), tol=1e-8)


def test_two_sided_rows_do_not_spoil_the_multipliers():
    # Their multipliers came from the step of the activity over a slack of 1e-8: the route stalled at 1e-6.
    for seed in range(10):
        problem, _ = known_problem(seed, senses=True)
        assert solve(problem, tol=1e-8).status == "optimal", seed


def test_multipliers_that_cancel_in_dependent_rows_are_no_unit():
    # Of 1e9, they made an error of 1.7 a gap of 3e-9.
    X = bo.PSD(2)
    rows = [bo.trace(X) == 1, bo.trace(X) == 1]
    program = bo.Problem(bo.Minimize(bo.inner(np.diag([1.0, 2.0]), X)), rows).program()
    certificate = certify(PrimalDualPoint(program, (np.eye(2) / 2,), np.zeros(0), np.array([1e9 + 1, -1e9])))
    assert (certificate.primal, certificate.dual) == pytest.approx((1.5, 1.0))
    assert certificate.gap > 0.1


# --- Faces --------------------------------------------------------------------------------------------

FACES = ["one", "rank", "negative", "inequality", "single", "diagonal", "nested", "combination"]


def faced_problem(seed, kind, largest=8):
    """Return a problem that is regular on a proper face, its value, and the order of the face."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, largest + 1))
    r = int(rng.integers(1, n))
    q = n - r
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    if kind in ("diagonal", "combination"):
        Q = np.eye(n)[rng.permutation(n)]
    V, W = Q[:, :r], Q[:, r:]
    M, S = complementary(r, rng, int(rng.integers(1, r + 1)))
    inside = positive_definite(r, rng)
    inside[0, 0] = M[0, 0] if kind == "combination" and M[0, 0] > 0.2 else inside[0, 0]
    d = inside - M
    rows = [(np.eye(n), -np.inf, max(np.trace(M), np.trace(inside)) + 1, 0.0)]
    for _ in range(int(rng.integers(0, r * (r + 1) // 2)) if r > 1 else 0):
        A = symmetric(n, rng)
        A -= np.vdot(V.T @ A @ V, d) / np.vdot(d, d) * (V @ d @ V.T)
        a = np.vdot(V.T @ A @ V, M)
        rows.append((A, a, a, rng.normal()))
    G = W @ rng.normal(size=(q, q + 1))
    F, half = G @ G.T, (q + 1) // 2
    later = W[:, half:] @ W[:, half:].T + symmetric_part(
        W[:, :half] @ rng.normal(size=(half, q - half)) @ W[:, half:].T
    )
    e, f = np.outer(V[:, 0], V[:, 0]), W @ np.diag(rng.uniform(0.5, 2, q)) @ W.T
    exposing = {
        "one": [(np.outer(w, w), 0.0, 0.0) for w in W.T],
        "rank": [(F, 0.0, 0.0)],
        "negative": [(-F, 0.0, 0.0)],
        "inequality": [(F, -np.inf, 0.0)],
        "single": [(W @ W.T, 0.0, 0.0)],
        "diagonal": [(np.outer(w, w), 0.0, 0.0) for w in W.T],
        "nested": [(W[:, :half] @ W[:, :half].T, 0.0, 0.0), *([(later, 0.0, 0.0)] if q > half else [])],
        "combination": [(e, M[0, 0], M[0, 0]), (e + f, M[0, 0], M[0, 0])],
    }[kind]
    C = V @ S @ V.T + sum(y * A for A, _, _, y in rows)
    C += W @ (rng.choice([1.0, -2.0]) * positive_definite(q, rng)) @ W.T  # the multiplier of F pays for it
    every = [(A, lo, hi) for A, lo, hi, _ in rows] + exposing
    every = [
        Row([A], np.zeros(0), lo, hi, 0.0) for A, lo, hi in (every[k] for k in rng.permutation(len(every)))
    ]
    problem = declared([n], every, [C], np.zeros(0), np.zeros((0, 2)))
    return problem, float(np.vdot(V.T @ C @ V, M)), r


def symmetric_part(A):
    return (A + A.T) / 2


@pytest.mark.parametrize("kind", FACES)
@given(seed=SEEDS)
@examples(4)  # of each kind
def test_faces(kind, seed):
    problem, value, r = faced_problem(seed, kind)
    assert faces(problem.program(), None).program.faces[0].order == r
    solution = solve(problem)
    assert solution.status == "optimal"
    assert abs(solution.value - value) <= 5e-6 * max(abs(value), 1.0)
    assert np.linalg.eigvalsh(solution.X)[-r - 1] <= 1e-12 * np.trace(solution.X)


@pytest.mark.parametrize("seed", first(6, range(20)))
def test_bisections_that_the_bound_finds(seed):
    """X is that of a cut, of rank one, for which the second-order terms of a step are round-off."""
    n, rng = 6, np.random.default_rng(seed)
    laplacian = np.zeros((n, n))
    for i, j, weight in zip(*rng.integers(0, n, (2, 3)), rng.uniform(0.2, 2, 3), strict=True):
        d = np.eye(n)[i] - np.eye(n)[j]
        laplacian += weight * np.outer(d, d)
    X = bo.PSD(n)
    rows = [bo.diag(X) == 1, bo.quad_form(np.ones(n), X) == 0]
    sides = [np.array(side) for side in itertools.product([-1, 1], repeat=n) if sum(side) == 0]
    best = min(x @ laplacian @ x for x in sides) / 4
    tol = 1e-8 if best else 1e-6  # at zero the gap is relative to a millionth: 1e-8 of it is round-off
    solution = bo.Problem(bo.Minimize(bo.inner(laplacian / 4, X)), rows).solve(solver="path", tol=tol)
    assert solution.status == "optimal"
    assert solution.value <= best + 1e-8


def test_what_cannot_fit_is_refused_with_the_number():
    """The refusal of any order takes arithmetic only; asking the other routes takes no memory of its size."""
    X = bo.PSD(60_000)
    problem = bo.Problem(bo.Maximize(bo.inner(sp.eye_array(60_000), X)), [bo.diag(X) == 1])
    with pytest.raises(bo.UnsupportedProblemError, match=r"it would need \d+\.\d GB of memory"):
        problem.solve(solver="path")


def test_dual_that_is_not_attained_is_proven_on_the_face():
    """With X00 == 0, C - A*(y) is indefinite for every multiple of the row, by as little as wanted."""
    X = bo.PSD(3)
    rows = [X[0, 0] == 0, X[1, 1] == 1, X[2, 2] == 2]
    solution = bo.Problem(bo.Minimize(1e4 * X[0, 1] + X[1, 2]), rows).solve(solver="path")
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(-np.sqrt(2), rel=1e-6)
    np.testing.assert_allclose(solution.X[0], 0, atol=1e-12)
    p = bo.Problem(bo.Minimize(1e4 * X[0, 1] + X[1, 2]), rows).program()
    y = np.array([0.0, -1 / np.sqrt(2), -0.25 * np.sqrt(2)])
    assert not certify(PrimalDualPoint(p, (solution.X,), np.zeros(0), y)).meets(1e-6)
    on_face = faces(p, None).program
    assert certify(PrimalDualPoint(p, (solution.X,), np.zeros(0), y, faces=on_face.faces)).meets(1e-6)


@pytest.mark.parametrize("kind", FACES)
def test_certificates_on_faces_meet_the_tolerance(kind):
    for seed in range(6):
        problem, _, _ = faced_problem(seed, kind)
        assert solve(problem).status == "optimal", seed


@pytest.mark.parametrize("name", ["gpp100", "gpp124-1"])
def test_round_off_does_not_leave_the_face(data, name):
    # X drifted off it, |Xe| = 3e-8, and a multiple of 1e7 made that a DIMACS error of 1e-4.
    problem = bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz")
    solution = solve(problem, tol=2e-8)
    n = len(solution.X)
    assert np.linalg.norm(solution.X @ np.ones(n)) <= 1e-11
    assert np.abs(bo.dimacs_errors(problem, solution)).max() <= 1e-7
    assert np.abs(solution._raw.duals).max() <= 1e6


def test_a_combination_of_three_rows_fixes_a_part_to_zero():
    X = bo.PSD(5)
    rows = [bo.trace(X) == 1, X[0, 0] + X[1, 1] == 0.4, X[2, 2] == 0.6, X[0, 1] == 0.1]
    problem = bo.Problem(bo.Maximize(X[0, 2] + X[1, 2] + X[3, 4] + X[3, 3]), rows)
    assert faces(problem.program(), None).program.faces[0].order == 3
    solution = solve(problem, tol=1e-8)
    peers.ask(problem).agrees(solution.value, solution.error)


def test_explain_names_the_face(capsys):
    X, Y = bo.PSD(6, name="K"), bo.PSD(3, name="L")
    rows = [bo.quad_form(np.ones(6), X) == 0, bo.diag(X) == 1, bo.trace(Y) == 1]
    problem = bo.Problem(bo.Minimize(X[0, 1] + Y[0, 1]), rows)
    problem.explain()
    said = next(line for line in capsys.readouterr().out.splitlines() if "path" in line)
    assert "K is on a face of order 5 of 6; 1 row implied" in said
    assert "L lives" not in said


def test_bounds_of_round_off_on_rows_that_vanish_are_no_contradiction():
    X = bo.PSD(3)
    for noise in (4e-16, -4e-16):
        rows = [X[0, 0] == 0, X[0, 1] == noise, X[1, 1] + X[2, 2] == 1]
        solution = solve(bo.Problem(bo.Minimize(X[1, 2]), rows))
        assert solution.status == "optimal"
        assert solution.value == pytest.approx(-0.5, abs=1e-6)


def test_an_unattained_dual_is_not_called_optimal_without_proof():
    # min 2 X01 with X11 == 0: X01 is 0, but no multiplier makes [[0, 1], [1, y]] psd.
    X = bo.PSD(2)
    solution = solve(bo.Problem(bo.Minimize(2 * X[0, 1]), [X[1, 1] == 0, X[0, 0] <= 1]))
    assert solution.value == pytest.approx(0, abs=1e-7)
    assert solution.status == "optimal" or solution.gap > 1e-6


# --- Soft rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("penalty", "seed"), turns([Penalty.HINGE, Penalty.LOGDET, Penalty.VON_NEUMANN, Penalty.SQUARE], range(4))
)
def test_soft_rows(penalty, seed):
    rng = np.random.default_rng(seed)
    n, m = 4, 9
    A = np.array([positive_definite(n, rng) for _ in range(m)])
    b, gamma = rng.uniform(0.5, 2, m), rng.uniform(0.3, 3, m)
    sense = np.arange(m) % 3  # ==, >=, <=
    C = symmetric(n, rng)
    X = bo.PSD(n)
    body = bo.inner(A, X)
    rows = [
        bo.soft(body[k] == b[k] if s == 0 else body[k] >= b[k] if s == 1 else body[k] <= b[k], gamma=gamma[k])
        for k, s in enumerate(sense)
    ]
    problem = bo.Problem(bo.Minimize(bo.inner(C, X)), [*rows, bo.trace(X) <= 3])
    program = problem.program()
    kind = np.where(program.bounds.hard, Penalty.HARD, penalty)
    program = dataclasses.replace(program, bounds=dataclasses.replace(program.bounds, kind=kind))
    solution = routing.solve(program, "path", tol=1e-8)
    assert solution.status == "optimal"

    K, t = cp.Variable((n, n), PSD=True), cp.Variable(m)
    activity = cp.hstack([cp.trace(A_k @ K) for A_k in A])
    constraints = [cp.trace(K) <= 3]
    for k, s in enumerate(sense):
        constraints.append(
            activity[k] == t[k] if s == 0 else activity[k] >= t[k] if s == 1 else activity[k] <= t[k]
        )
    paid = {
        Penalty.HINGE: lambda: cp.multiply(gamma, cp.abs(t - b)),
        Penalty.LOGDET: lambda: cp.multiply(gamma, cp.multiply(1 / b, t) - cp.log(t) + np.log(b) - 1),
        Penalty.VON_NEUMANN: lambda: cp.multiply(gamma, cp.kl_div(t, b)),
        Penalty.SQUARE: lambda: cp.multiply(gamma, cp.square(t - b)),
    }[penalty]()
    reference = cp.Problem(cp.Minimize(cp.trace(C @ K) + cp.sum(paid)), constraints)
    peers.ask(reference).agrees(solution.value, solution.error)


def test_two_sided_soft_rows():
    rng = np.random.default_rng(3)
    A, C = np.array([symmetric(4, rng) for _ in range(6)]), symmetric(4, rng)
    X, u = bo.PSD(4), bo.Variable(name="u")
    rows = [bo.soft(bo.between(bo.inner(A, X) + u, -0.1, 0.2), gamma=0.4), bo.trace(X) == 2]
    solution = solve(bo.Problem(bo.Minimize(bo.inner(C, X) + 0.3 * u), rows), tol=1e-8)
    K, v = cp.Variable((4, 4), PSD=True), cp.Variable()
    a = cp.hstack([cp.trace(A_k @ K) for A_k in A]) + v
    paid = 0.4 * cp.sum(cp.pos(a - 0.2) + cp.pos(-0.1 - a))
    reference = cp.Problem(cp.Minimize(cp.trace(C @ K) + 0.3 * v + paid), [cp.trace(K) == 2])
    peers.ask(reference).confirms(solution, {K: solution.X, v: solution.u["u"]})


# --- Scale --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "scale", "what"), turns(range(3), [1e-8, 1e8], ["costs", "bounds", "rows", "some rows"])
)
def test_scale(what, scale, seed):
    """Costs scale the value, bounds scale value and X; rows scaled with their bounds change nothing."""

    def problem(cost=1.0, bound=1.0, row=1.0, last=1.0):
        rng = np.random.default_rng(seed)
        A, C, point = np.array([symmetric(5, rng) for _ in range(4)]), symmetric(5, rng), np.eye(5) / 5
        weight = row * np.array([1, 1, last, last])
        X = bo.PSD(5)
        body, b = bo.inner(weight[:, None, None] * A, X), bound * weight * np.einsum("kij,ij->k", A, point)
        rows = [row * bo.trace(X) == row * bound, body[:2] == b[:2], body[2:] <= b[2:]]
        return bo.Problem(bo.Minimize(cost * bo.inner(C, X)), rows)

    plain = solve(problem(), tol=1e-8)
    change = {"costs": "cost", "bounds": "bound", "rows": "row", "some rows": "last"}[what]
    scaled = solve(problem(**{change: scale}), tol=1e-8)
    assert plain.status == scaled.status == "optimal"
    factor = scale if what in ("costs", "bounds") else 1.0
    assert scaled.value / factor == pytest.approx(plain.value, rel=1e-6)


# --- Infeasible and unbounded -------------------------------------------------------------------------


def no_answer(problem, proof):
    """Solve a problem without an optimum: the result is a checked proof or inaccurate, never "optimal"."""
    program = problem.program()
    try:
        solution = solve(problem)
    except bo.InfeasibleRowError:
        return "refused"
    assert solution.status != "optimal", solution
    if solution.status == "infeasible":
        assert proof == "infeasible"
        assert is_farkas(program, solution._raw.duals)
    elif solution.status == "unbounded":
        assert proof == "unbounded"
        assert solution.value == -np.inf
    return solution.status


@given(SEEDS, st.integers(0, 2))
def test_infeasible_rows(seed, free):
    """A combination of the rows is psd, and its bound is negative."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 7)), int(rng.integers(2, 6))
    A, b, y = np.array([symmetric(n, rng) for _ in range(m)]), rng.normal(size=m), rng.normal(size=m)
    B = rng.normal(size=(m, free))
    A[-1] = (positive_definite(n, rng) - np.tensordot(y[:-1], A[:-1], 1)) / y[-1]
    b[-1] = (-rng.uniform(0.5, 2) - y[:-1] @ b[:-1]) / y[-1]
    B[-1] = -y[:-1] @ B[:-1] / y[-1]
    rows = [Row([A_k], B_k, b_k, b_k, 0.0) for A_k, B_k, b_k in zip(A, B, b, strict=True)]
    problem = declared(
        [n], rows, [positive_definite(n, rng)], np.zeros(free), np.tile([-np.inf, np.inf], (free, 1))
    )
    allowed = {"infeasible", "refused"}
    if free == m:  # the columns of the variables are dependent up to round-off only
        allowed.add("infeasible_inaccurate")
    assert no_answer(problem, "infeasible") in allowed


@given(SEEDS)
def test_unbounded_costs(seed):
    """A psd direction on which the rows are zero, along which the cost decreases."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    z = rng.normal(size=n)
    z /= np.linalg.norm(z)
    R = np.outer(z, z)
    A = [symmetric(n, rng) for _ in range(int(rng.integers(1, n)))]
    A = [A_k - (z @ A_k @ z) * R for A_k in A]
    C = symmetric(n, rng)
    C -= (z @ C @ z + rng.uniform(0.3, 1)) * R
    inside = positive_definite(n, rng)
    rows = [Row([A_k], np.zeros(0), np.vdot(A_k, inside), np.vdot(A_k, inside), 0.0) for A_k in A]
    problem = declared([n], rows, [C], np.zeros(0), np.zeros((0, 2)))
    assert no_answer(problem, "unbounded") == "unbounded"


def test_unbounded_in_a_free_variable():
    X, u = bo.PSD(2), bo.Variable()
    assert solve(bo.Problem(bo.Minimize(bo.trace(X) + u), [X[0, 0] + u <= 1])).status == "unbounded"


def test_weakly_infeasible():
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] == 0, X[0, 1] == 1])
    with pytest.raises(bo.InfeasibleRowError, match=r"asks for 1, but it is 0 for every X"):
        solve(problem)
    X = bo.PSD(3)  # the same in other coordinates
    z = np.array([1.0, 2.0, -1.0])
    rows = [bo.quad_form(z, X) <= 0, bo.inner(np.outer(z, [1, 0, 0]) + np.outer([1, 0, 0], z), X) >= 1]
    with pytest.raises(bo.InfeasibleRowError):
        solve(bo.Problem(bo.Minimize(bo.trace(X)), rows))


def test_weakly_infeasible_where_no_row_alone_shows_it():
    X = bo.PSD(3)
    rows = [X[0, 0] + X[1, 1] == 0, X[0, 2] == 1, X[2, 2] <= 5]
    assert no_answer(bo.Problem(bo.Minimize(bo.trace(X)), rows), "infeasible") in ("refused", "infeasible")


def test_rows_that_contradict_each_other():
    X, u = bo.PSD(2), bo.Variable(lower=0, upper=1)
    for rows in (
        [bo.trace(X) == 1, bo.trace(X) >= 2],
        [X[0, 0] <= -1],
        [X[0, 0] - u >= 1, X[0, 0] <= 0.5],
        [bo.trace(X) + u == 1, bo.trace(X) >= 1.5],
    ):
        assert no_answer(bo.Problem(bo.Minimize(bo.trace(X)), rows), "infeasible") in (
            "infeasible",
            "refused",
        )


@pytest.mark.parametrize(("name", "status"), [("infp1", "unbounded"), ("infd1", "infeasible")])
def test_sdplib_infeasible(data, name, status):
    """SDPA's primal is our dual: SDPA's primal infeasible is unbounded here."""
    problem = bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz")
    solution = solve(problem)
    assert solution.status in (status, {"unbounded": "infeasible", "infeasible": "unbounded"}[status])
    if solution.status == "infeasible":
        assert is_farkas(problem.program(), solution._raw.duals)


# --- SDPLIB -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["control1", "mcp100", "mcp124-1"])
def test_multipliers_are_those_of_csdp(data, tmp_path, name):
    if shutil.which("csdp") is None:
        pytest.skip("no csdp on the path")
    problem = bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz")
    bo.write_sdpa(problem, tmp_path / "a.dat-s")
    command = ["csdp", "a.dat-s", "a.sol"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    theirs = np.array((tmp_path / "a.sol").read_text().splitlines()[0].split(), dtype=float)
    solve(problem, tol=1e-8)
    ours = problem.constraints[0].dual_value
    np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.abs(theirs).max())


# --- Warm starts, limits, interruptions ---------------------------------------------------------------


def max_cut_like(n=12, seed=0):
    rng = np.random.default_rng(seed)
    X, b = bo.PSD(n), bo.Parameter(n, name="b", value=np.ones(n))
    return bo.Problem(bo.Minimize(bo.inner(symmetric(n, rng), X)), [bo.diag(X) == b]), b


@pytest.mark.parametrize("seed", range(5))
def test_warm_start_after_a_changed_bound(seed):
    problem, b = max_cut_like(seed=seed)
    solve(problem)
    b.value = 1 + 0.01 * np.random.default_rng(seed).normal(size=12)
    warm = solve(problem, warm_start=True)
    cold = solve(problem)
    assert warm.status == cold.status == "optimal"
    assert warm.value == pytest.approx(cold.value, rel=1e-5)
    assert warm.history["gap"][0] < cold.history["gap"][0]


def test_warm_start_of_a_changed_cost():
    rng = np.random.default_rng(1)
    X, C, D = bo.PSD(12), symmetric(12, rng), symmetric(12, rng)
    rows = [bo.diag(X) == 1]
    first = solve(bo.Problem(bo.Minimize(bo.inner(C, X)), rows))
    changed = bo.Problem(bo.Minimize(bo.inner(C + 0.01 * D, X)), rows)
    warm, cold = solve(changed, warm_start=first), solve(changed)
    assert warm.status == "optimal"
    assert warm.value == pytest.approx(cold.value, rel=1e-5)
    assert warm.history["gap"][0] < cold.history["gap"][0]


def test_warm_start_on_a_face_and_with_variables():
    X, u, b = bo.PSD(6), bo.Variable(2, lower=-1, upper=1), bo.Parameter(value=1.0)
    rows = [bo.quad_form(np.ones(6), X) == 0, bo.trace(X) <= b, X[0, 0] + u[0] + u[1] == 0.5]
    problem = bo.Problem(bo.Minimize(X[0, 1] + X[2, 3] + 0.3 * u[0] - 0.1 * u[1]), rows)
    solve(problem)
    b.value = 1.1
    warm, cold = solve(problem, warm_start=True), solve(problem)
    assert warm.status == "optimal"
    assert warm.value == pytest.approx(cold.value, abs=1e-5)


def test_max_iter_and_time_limit():
    problem, _ = max_cut_like(30)
    cut_short = solve(problem, max_iter=3)
    assert (cut_short.status, cut_short.iterations) == ("user_limit", 3)
    assert cut_short.stop_reason.startswith("max_iter")
    assert cut_short.dual_value <= solve(problem).value + 1e-6
    assert len(cut_short.history["gap"]) == 4
    late = solve(problem, time_limit=1e-9)
    assert late.status == "user_limit"
    assert late.stop_reason.startswith("time_limit")


@pytest.mark.parametrize("when", [1, 4])
def test_ctrl_c_returns_the_best_iterate(monkeypatch, when):
    problem, _ = max_cut_like(20)
    advance, calls = Engine.advance, iter(range(100))

    def interrupted(*arguments):
        if next(calls) == when:
            signal.raise_signal(signal.SIGINT)
        return advance(*arguments)

    monkeypatch.setattr(Engine, "advance", interrupted)
    solution = solve(problem)
    assert solution.status == "user_limit"
    assert solution.stop_reason.startswith("Interrupted")
    assert solution.iterations <= when + 1  # the step during which it came is the last
    best = solution.history["gap"].argmin()
    assert solution.value == pytest.approx(solution.history["primal"][best], rel=1e-9)


def test_what_does_not_fit_in_memory_is_refused_with_the_number(capsys):
    X = bo.PSD(1_000_000)
    problem = bo.Problem(bo.Minimize(X[0, 1]), [X[0, 0] == 1, X[1, 1] == 1])
    with pytest.raises(bo.UnsupportedProblemError, match=r"it would need 128000\.0 GB of memory"):
        problem.solve(solver="path")
    problem.explain()
    assert re.search(r"path +no: it would need 128000\.0 GB of memory", capsys.readouterr().out)


# --- Corners ------------------------------------------------------------------------------------------


def test_feasibility():
    rng = np.random.default_rng(0)
    A, inside = np.array([symmetric(6, rng) for _ in range(7)]), positive_definite(6, rng)
    X = bo.PSD(6)
    solution = solve(
        bo.Problem(bo.Minimize(0 * bo.trace(X)), [bo.inner(A, X) == np.einsum("kij,ij->k", A, inside)])
    )
    assert (solution.status, solution.value) == ("optimal", 0.0)
    assert solution.primal_residual <= 1e-6


def test_no_rows():
    X = bo.PSD(3)
    solution = solve(bo.Problem(bo.Minimize(bo.trace(X))))
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(0, abs=1e-6)
    assert solve(bo.Problem(bo.Minimize(X[0, 1]))).status == "unbounded"


def test_zero_is_optimal():
    X = bo.PSD(4)
    solution = solve(bo.Problem(bo.Minimize(bo.trace(X)), [bo.trace(X) <= 1, X[0, 1] <= 0.5]))
    assert solution.status == "optimal"
    assert np.trace(solution.X) <= 1e-6


def test_zero_is_all_there_is():
    X, Y, u = bo.PSD(3), bo.PSD(2), bo.Variable(lower=-2, upper=3)
    solution = solve(bo.Problem(bo.Minimize(X[0, 1] + 3), [bo.trace(X) == 0]))
    assert (solution.status, solution.value) == ("optimal", 3.0)
    np.testing.assert_array_equal(solution.X, np.zeros((3, 3)))
    rows = [bo.trace(X) == 0, bo.trace(Y) == 1, Y[0, 1] + u <= 1]
    solution = solve(bo.Problem(bo.Minimize(X[0, 1] + 2 * Y[0, 1] - u), rows))
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(-2.5, abs=1e-5)
    solution = solve(bo.Problem(bo.Minimize(X[0, 1] + u), [bo.trace(X) <= 0, X[0, 1] + u >= -1]))
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(-1, abs=1e-6)


def test_blocks_of_order_one():
    X, Y = bo.PSD(1), bo.PSD(1)
    problem = bo.Problem(bo.Minimize(-X[0, 0] - 2 * Y[0, 0]), [X[0, 0] + Y[0, 0] <= 3, Y[0, 0] <= 1])
    assert solve(problem).value == pytest.approx(-4, abs=1e-5)


def test_a_block_that_no_row_mentions():
    X, Y = bo.PSD(2), bo.PSD(3)
    problem = bo.Problem(bo.Minimize(X[0, 1] + bo.trace(Y)), [bo.diag(X) == 1])
    solution = solve(problem)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(-1, abs=1e-6)
    assert np.trace(solution.X[1]) <= 1e-5
    problem = bo.Problem(bo.Minimize(X[0, 1] - bo.trace(Y)), [bo.diag(X) == 1])
    assert solve(problem).status == "unbounded"


def test_variables_that_no_row_mentions():
    X, u = bo.PSD(2), bo.Variable(3, lower=[-1, 0, 2], upper=[1, 5, 2])
    problem = bo.Problem(bo.Minimize(X[0, 1] + u[0] - u[1] + 0 * u[2]), [bo.diag(X) == 1])
    solution = solve(problem)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(-7, abs=1e-5)


def test_maximization_reports_its_own_sense():
    X = bo.PSD(2)
    solution = solve(bo.Problem(bo.Maximize(X[0, 1]), [bo.diag(X) == 1]))
    assert solution.value == pytest.approx(1, abs=1e-6)
    assert solution.dual_value >= solution.value - 1e-9


@pytest.mark.parametrize("end", [lambda X: X[0, 0] == 1, lambda X: X[0, 0] <= 1])
def test_weakly_unbounded_costs_have_no_optimum(end):
    # X01 grows as the root of X11: there is no ray, and nearly feasible multipliers are near each point.
    X = bo.PSD(2)
    solution = solve(bo.Problem(bo.Maximize(X[0, 1]), [end(X)]))
    assert solution.status != "optimal"
    assert solution.gap > 1e-2


def test_rays_are_checked():
    X, u = bo.PSD(2), bo.Variable(nonneg=True)
    problem = bo.Problem(bo.Minimize(-bo.trace(X) - u), [X[0, 0] - X[1, 1] == 0, X[0, 0] - u == 1])
    program = problem.program()
    assert is_ray(program, (np.eye(2),), np.ones(1))
    assert solve(problem).status == "unbounded"


def test_quadratic_forms_on_a_face():
    """The system of many forms uses the factor of X, which on a face is smaller than X."""
    n = 5
    Z = np.random.default_rng(0).normal(size=(12, n))
    X, smaller = bo.PSD(n), bo.PSD(n - 1)
    rows = [bo.quad_form(Z, X) >= 1, bo.quad_form(np.eye(n)[0], X) == 0]
    held = bo.Problem(bo.Minimize(bo.trace(X)), rows).solve("path")
    plain = bo.Problem(bo.Minimize(bo.trace(smaller)), [bo.quad_form(Z[:, 1:], smaller) >= 1])
    assert held.status == "optimal"
    peers.ask(plain).agrees(held.value, held.error)


def test_explain_tells_of_a_row_that_cannot_be_met(capsys):
    X = bo.PSD(3)
    problem = bo.Problem(bo.Minimize(X[1, 2]), [X[0, 0] == 0, X[0, 1] == 1])
    problem.explain()
    assert "it is 0 for every X" in capsys.readouterr().out
    with pytest.raises(bo.UnsupportedProblemError, match="linear objective"):
        problem.solve(solver="bregman")


def test_a_row_that_cancels_at_the_first_point():
    """A unit vector's row is round-off at multiples of the identity; a slack of that size starts at 1e17."""
    rng = np.random.default_rng(3)
    near, far = 0.3 * rng.normal(size=(30, 6)), rng.normal(size=(30, 6))
    far /= np.linalg.norm(far, axis=1, keepdims=True)
    W, rho = bo.PSD(7, name="W"), bo.Variable(name="rho")
    near, far = (np.column_stack([Z, np.zeros(30)]) for Z in (near, far))
    rows = [
        W[6, 6] - bo.quad_form(near, W) >= rho,
        bo.quad_form(far, W) - W[6, 6] >= rho,
        bo.trace(W) == 1,
    ]
    problem = bo.Problem(bo.Maximize(rho), rows)
    path, generation = (problem.solve(solver) for solver in ("path", "psdboost"))
    assert path.status == generation.status == "optimal"
    assert path.value <= generation.dual_value + 1e-9
    assert generation.value <= path.dual_value + 1e-9


# --- Without an interior -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_dual_without_interior(seed):
    """``A(vv') = 0`` and ``<C, vv'> = 0``: no ``C - A*(y)`` is definite. The value is known.

    ``X`` grows along ``vv'``, and with it the cost of the round-off of ``C - A*(y)``.
    """
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(6, 12)), int(rng.integers(8, 20))
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    v, rank = Q[:, 0], n // 3
    A = [M - (v @ M @ v) * np.outer(v, v) for M in (symmetric(n, rng) for _ in range(m))]
    X0 = (Q[:, :rank] * rng.uniform(0.5, 2, rank)) @ Q[:, :rank].T
    Z0 = (Q[:, rank:] * rng.uniform(0.5, 2, n - rank)) @ Q[:, rank:].T
    C = sum(y * M for y, M in zip(rng.normal(size=m), A, strict=True)) + Z0
    X = bo.PSD(n, name="X")
    rows = [bo.inner(M, X) == float(np.vdot(M, X0)) for M in A]
    solution = bo.Problem(bo.Minimize(bo.inner(C, X)), rows).solve(solver="path", tol=1e-6)
    assert solution.status in ("optimal", "optimal_inaccurate")
    assert max(solution.gap, solution.primal_residual, solution.dual_residual) <= 1e-5
    assert solution.value == pytest.approx(np.vdot(C, X0), rel=1e-5, abs=1e-5 * np.linalg.norm(C))


@pytest.mark.parametrize(
    ("name", "value", "tol", "largest"),
    [
        ("qap5", -436.0, 1e-7, 1e-7),
        ("control3", 13.633267, 1e-7, 1e-7),
        ("hinf2", 10.967, 3e-7, 1e-6),
        ("truss7", -900.001, 1e-7, 1e-7),
    ],
)
def test_sdplib_without_margin(data, name, value, tol, largest):
    """Problems with almost no interior: the value of SDPLIB's table, and all six DIMACS errors."""
    problem = bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz")
    solution = problem.solve(solver="path", tol=tol)
    assert solution.value == pytest.approx(value, rel=2e-4 if name == "hinf2" else 1e-5)
    assert np.abs(solution.dimacs).max() <= largest


@pytest.mark.parametrize("seed", [0, 1])
def test_a_doubly_nonnegative_assignment(seed):
    """The relaxation of a quadratic assignment of size 4 is exact here: its value is the least of 24 costs.

    Most entries of the optimum are zero, and each has rows of its own.
    """
    n, rng = 4, np.random.default_rng(seed)
    A, B = (M + M.T for M in rng.integers(0, 9, (2, n, n)))
    X, at = bo.PSD(n * n + 1), 1 + np.arange(n * n).reshape(n, n)
    rows = [X[0, 0] == 1, bo.diag(X)[1:] == X[0, 1:]]
    for k in range(n * n + 1):
        rows += [sum(X[k, j] for j in line) == (1 if k == 0 else X[0, k]) for line in (*at, *at.T)]
    apart = [(line[a], line[b]) for line in (*at, *at.T) for a in range(n) for b in range(a)]
    rows += [X[i, j] == 0 for i, j in apart]
    cost = np.zeros((n * n + 1,) * 2)
    cost[1:, 1:] = np.kron(A, B)
    found = bo.Problem(bo.Minimize(bo.inner(cost, X)), [*rows, X >= 0]).solve(tol=1e-7)
    orders = [list(p) for p in itertools.permutations(range(n))]
    assert found.status == "optimal"
    assert found.value == pytest.approx(min((A * B[np.ix_(p, p)]).sum() for p in orders), rel=1e-6)


def test_a_gap_of_one_is_progress_while_value_and_bound_approach_each_other():
    """The margin is near zero, so the relative gap of value and bound stays at one for twenty steps."""
    rng = np.random.default_rng(1)
    label = np.arange(1_200) % 4
    points = rng.normal(size=(1_200, 10)) * np.linspace(2, 0.3, 10) + rng.normal(size=(4, 10))[label]
    i, k = rng.integers(0, 1_200, (2, 2_000))
    j = (i + 4 * rng.integers(1, 300, 2_000)) % 1_200
    i, j, k = (index[label[i] != label[k]] for index in (i, j, k))
    comparisons = points[i] - points[k], points[i] - points[j]
    found, other = (bo.soft_margin(comparisons, solver=solver) for solver in ("path", "psdboost"))
    assert found.status == other.status == "optimal"
    assert abs(found.value - other.value) <= found.error + other.error


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_a_linear_program_beside_a_small_matrix(seed):
    """The variables are far larger than the matrix, whose trace is one; once seed 2 diverged."""
    rng, n, m, k = np.random.default_rng(seed), 8, 1800, 200
    A = rng.normal(size=(n, n))
    G = np.where(rng.random((m, k)) < 4 / k, rng.uniform(size=(m, k)), 0.0)
    h, c = rng.random(m), G.T @ rng.random(m)
    X, x = bo.PSD(n, name="X"), bo.Variable(k, name="x")
    sol = bo.Problem(bo.Minimize(bo.inner(A + A.T, X) - c @ x), [G @ x <= h, bo.trace(X) == 1]).solve()
    linear = linprog(-c, G, h, bounds=(None, None)).fun
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(linear + np.linalg.eigvalsh(A + A.T)[0], rel=1e-6)


# --- Hinges ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "n"), turns([1e-6, 1.0, 1e6], [6, 20, 30]))
def test_absolute_values_are_paid_for_from_the_first_step_on(n, scale, rng):
    """A sparse principal component (d'Aspremont et al. 2007), once 30 steps and none from order 20 on."""
    A = rng.normal(size=(n, 2 * n))
    C = A @ A.T / (2 * n)
    X = bo.PSD(n)
    i, j = np.triu_indices(n)
    price = scale * np.where(i == j, 0.1, 0.2)
    rows = [bo.trace(X) == 1, bo.soft(X[i, j] == 0, gamma=price, penalty="hinge")]
    sol = bo.Problem(bo.Maximize(scale * bo.inner(C, X)), rows).solve(tol=1e-7)
    assert sol.status == "optimal"
    assert sol.iterations <= 20
    paid = 0.1 * np.abs(sol.X).sum()
    assert sol.value == pytest.approx(scale * (float(np.sum(C * sol.X)) - paid), rel=1e-6)
    # The dual: the least largest eigenvalue of C + U with |U_ij| <= 0.1, which the multipliers prove.
    U = np.zeros((n, n))
    U[i, j] = sol.duals[1] / scale / np.where(i == j, 1, 2)
    U = U + U.T - np.diag(U.diagonal())
    assert np.abs(U).max() <= 0.1 * (1 + 1e-9)
    assert np.linalg.eigvalsh(C - U)[-1] == pytest.approx(sol.value / scale, rel=1e-5)


# --- Without reductions ------------------------------------------------------------------------------


def fixed_diagonal(n, seed, scale):
    rng, X = np.random.default_rng(seed), bo.PSD(n)
    C, b = rng.normal(size=(n, n)), rng.uniform(0.5, 2, n)
    return X, bo.inner(C + C.T, X), [bo.diag(X) == scale * b]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("n", [2, 5, 9])
def test_a_small_program_with_an_interior_needs_no_reductions(n, scale, monkeypatch):
    """The dual of the maximum cut: the multipliers prove the value by one eigenvalue."""
    _, cost, rows = fixed_diagonal(n, n, scale)
    problem = bo.Problem(bo.Minimize(cost), rows)
    reduced = problem.solve(verbose=True)  # whose steps are watched, so that it is reduced and routed
    monkeypatch.setattr(routing, "choose", None)
    sol = problem.solve()
    assert sol.status == reduced.status == "optimal"
    assert abs(sol.value - reduced.value) <= sol.error + reduced.error
    assert np.array_equal(sol.X, sol.X.T)
    C = problem.program().blocks[0].C
    least = np.linalg.eigvalsh(C + np.diag(sol.duals[0]))[0]  # CVXPY's signs
    bound = -float(sol.duals[0] @ rows[0].lower.constant) + min(least, 0) * np.trace(sol.X)
    assert bound == pytest.approx(sol.value, rel=1e-5)
    assert sol.verify().lower <= sol.value + sol.error


@pytest.mark.parametrize("kind", ["no interior", "infeasible", "dependent", "unbounded trace", "zero cost"])
def test_other_small_programs_are_reduced(kind):
    X, cost, rows = fixed_diagonal(4, 1, 1.0)
    b = rows[0].lower.constant
    more = {
        "no interior": [X[0, 1] == np.sqrt(b[0] * b[1])],
        "infeasible": [X[0, 1] == 2 * np.sqrt(b[0] * b[1])],
        "dependent": [bo.trace(X) == b.sum()],
        "unbounded trace": [],
        "zero cost": [],
    }[kind]
    if kind == "unbounded trace":
        cost, rows = bo.trace(X), [X[0, 0] == 1]
    if kind == "zero cost":
        cost = 0 * bo.trace(X)
    sol = bo.Problem(bo.Minimize(cost), [*rows, *more]).solve()
    assert sol.status == ("infeasible" if kind == "infeasible" else "optimal")
    if kind == "unbounded trace":
        assert sol.value == pytest.approx(1.0, rel=1e-6)
    if kind == "zero cost":
        assert not sol.duals[0].any()
    if kind == "no interior":
        assert sol.X[0, 1] == pytest.approx(np.sqrt(b[0] * b[1]), rel=1e-6)


@pytest.mark.parametrize("orders", [(5,), (1, 4), (3, 3, 2)])
def test_the_certificate_of_a_small_program_is_that_of_its_data(orders):
    """The method hands over what it has at hand: activities, and ``C - A*(y)``."""
    parts = [fixed_diagonal(n, seed, 1.0) for seed, n in enumerate(orders)]
    problem = bo.Problem(
        bo.Minimize(sum(part[1] for part in parts)), [row for part in parts for row in part[2]]
    )
    raw = problem.solve()._raw
    assert raw.timings["setup"] == 0.0  # without reductions
    own = certify(PrimalDualPoint(problem.program(), raw.X, raw.u, raw.duals))
    assert (raw.value, raw.dual_value) == pytest.approx((own.primal, own.dual), rel=1e-13)
    assert raw.error == pytest.approx(own.error, rel=1e-3, abs=1e-13 * own.size)
    assert abs(raw.primal_residual - own.primal_residual) <= 1e-14
    assert raw.dual_residual == own.dual_residual == 0.0


def test_the_least_eigenvalue_is_estimated_from_an_eigenvector():
    start = np.eye(3)[0]
    assert _least_eigenvalue(lambda v: -2.0 * v, start) == pytest.approx(-2)


@pytest.mark.parametrize("seed", range(4))
def test_numbers_of_an_iterate_with_hinges_are_those_of_its_certificate(seed, monkeypatch):
    """The path judges its iterates by numbers at hand; the certificate computes them from the data."""
    rng = np.random.default_rng(seed)
    X, b = bo.PSD(4), bo.Variable()
    points = rng.normal(size=(30, 4))
    rows = [z @ X @ z + b for z in points]
    hinges = [
        bo.soft(row >= 1 if k % 2 else row <= -1, gamma=0.1 + rng.random(), penalty="hinge")
        for k, row in enumerate(rows)
    ]
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [*hinges, X[0, 0] <= 3, bo.sum(X) == 2])
    compared, given = [], central_path._Scores.of

    def of(scores, at, y, least):
        found = given(scores, at, y, least)
        if found is not None:
            known = {"activity": at.activity, "cone_residual": 0.0, "smallest_eigenvalues": (least,)}
            point = PrimalDualPoint(scores._program, scores._plan.matrices(at.X), at.u, y, **known)
            compared.append((found, certify(point)))
        return found

    monkeypatch.setattr(central_path._Scores, "of", of)
    monkeypatch.setattr("bregopt.routes.ipm.path_route.Path.solve_directly", lambda *_: None)
    assert solve(problem).status == "optimal"
    assert len(compared) > 5
    for found, certificate in compared:
        for field in ("primal", "dual", "gap", "primal_residual", "dual_residual", "error"):
            # Of a small violation the exact size does not matter: it is estimated from above.
            least = central_path._NEGLIGIBLE if field == "primal_residual" else 1e-12
            np.testing.assert_allclose(
                getattr(found, field), getattr(certificate, field), rtol=1e-6, atol=least, err_msg=field
            )
        assert found.primal_residual >= (1 - 1e-6) * certificate.primal_residual - 1e-12
