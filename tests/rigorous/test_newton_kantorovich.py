"""The accuracy of X for linear objectives: no bound is below the true distance from a known optimum."""

from dataclasses import replace

import numpy as np
import pytest
from rational import pair
from samples import turns

import bregopt as bo
import bregopt.rigorous.newton_kantorovich as kantorovich
from bregopt.modeling.complex_variables import embedded

KINDS = ("plain", "blocks", "free", "box", "inequalities", "redundant", "Hermitian")


def symmetric(rng, n):
    A = rng.integers(-3, 4, (n, n))
    return A + A.T


def hermitian_pair(rng, n):
    """Return complex integer matrices with ``X Z = 0``, of complementary ranks."""
    T = np.eye(n, dtype=complex) + np.tril(rng.integers(-1, 2, (n, n)) + 1j * rng.integers(-1, 2, (n, n)), -1)
    inverse = np.round(np.linalg.inv(T))
    assert (T @ inverse == np.eye(n)).all()
    rank = int(rng.integers(1, n))
    D = np.where(np.arange(n) < rank, rng.integers(1, 5, n), 0)
    E = np.where(np.arange(n) < rank, 0, rng.integers(1, 5, n))
    return (T * D) @ T.conj().T, (inverse.conj().T * E) @ inverse


def regular_count(rng, X):
    """Return a number of rows with which a random pair is nondegenerate on both sides."""
    n, r = len(X), int(np.linalg.matrix_rank(X))
    if np.iscomplexobj(X):
        return int(rng.integers(r * r, 2 * n * r - r * r + 1))
    return int(rng.integers(r * (r + 1) // 2, r * n - r * (r - 1) // 2 + 1))


def known(rng, kind, n, scale_X=1.0, scale_Z=1.0):
    """Return a problem of integers times powers of two, and its optimal matrices, which are exact."""
    if kind == "Hermitian":
        return known_hermitian(rng, min(n, 6), scale_X, scale_Z)
    orders = [n, *rng.integers(2, n + 1, 2)] if kind == "blocks" else [n]
    pairs = [pair(rng, int(order)) for order in orders]
    k = int(rng.integers(1, 4)) if kind in ("free", "box") else 0
    at_end = (rng.random(k) < 0.5) & (kind == "box")
    m = sum(regular_count(rng, X) for X, _ in pairs) + k - int(at_end.sum())
    rows = [[symmetric(rng, len(X)) for X, _ in pairs] for _ in range(m)]
    y = rng.choice([-3, -2, -1, 1, 2, 3], m)
    b = np.array([sum((A * X).sum() for A, (X, _) in zip(row, pairs, strict=True)) for row in rows])
    loose = np.zeros(m, dtype=bool)
    if kind == "inequalities":
        loose = rng.random(m) < 0.5
        idle = loose & (rng.random(m) < 0.3)
        y = np.where(idle, 0, y)
    variables = [bo.PSD(len(X)) for X, _ in pairs]
    C = [
        Z + sum(int(y_k) * row[at] for y_k, row in zip(y, rows, strict=True))
        for at, (_, Z) in enumerate(pairs)
    ]
    goal = sum(bo.inner(scale_Z * c, X) for c, X in zip(C, variables, strict=True))
    bodies = [sum(bo.inner(A.astype(float), X) for A, X in zip(row, variables, strict=True)) for row in rows]
    constraints = []
    if kind in ("free", "box"):
        B = rng.integers(-3, 4, (m, k))
        u = np.where(at_end, rng.choice([0, 6], k), rng.integers(1, 6, k))
        z = np.where(u == 0, 1, np.where(u == 6, -1, 0)) * rng.integers(1, 4, k)
        v = bo.Variable(k)
        goal = goal + (scale_Z * (z + B.T @ y)) @ v
        bodies = [body + B[i].astype(float) @ v for i, body in enumerate(bodies)]
        b = b + B @ u
        if kind == "box":
            constraints += [v >= 0, v <= 6 * scale_X]
    for body, side, y_k, unequal in zip(bodies, b, y, loose, strict=True):
        if not unequal:
            constraints.append(body == scale_X * side)
        elif y_k > 0 or (y_k == 0 and rng.random() < 0.5):
            constraints.append(body >= scale_X * (side - 2 * (y_k == 0)))
        else:
            constraints.append(body <= scale_X * (side + 2 * (y_k == 0)))
    if kind == "redundant":
        shares = rng.integers(-2, 3, (2, m))
        for share in shares:
            body = sum(
                bo.inner(sum(int(s) * row[at] for s, row in zip(share, rows, strict=True)).astype(float), X)
                for at, X in enumerate(variables)
            )
            constraints.append(body == scale_X * (share @ b))
    return bo.Problem(bo.Minimize(goal), constraints), [scale_X * X for X, _ in pairs]


def known_hermitian(rng, n, scale_X, scale_Z):
    X, Z = hermitian_pair(rng, n)
    m = regular_count(rng, X)
    K = rng.integers(-2, 3, (m, n, n)) + 1j * rng.integers(-2, 3, (m, n, n))
    rows = K + np.swapaxes(K.conj(), 1, 2)
    y = rng.choice([-2, -1, 1, 2], m)
    C = Z + np.einsum("k,kij->ij", y, rows)
    H = bo.PSD(n, hermitian=True)
    b = np.einsum("kij,ji->k", rows, X).real
    constraints = [bo.inner(A, H) == scale_X * side for A, side in zip(rows, b, strict=True)]
    return bo.Problem(bo.Minimize(bo.inner(scale_Z * C, H)), constraints), [scale_X * X]


def checked(sol, truth):
    """Return whether an accuracy is proven, after a comparison of all bounds with the true distances."""
    X = sol.X if isinstance(sol.X, tuple) else (sol.X,)
    found = sol.accuracy if isinstance(sol.X, tuple) else (sol.accuracy,)
    for own, true, accuracy in zip(X, truth, found, strict=True):
        distance = np.abs(own - true)
        assert (accuracy.entries >= distance).all(), (distance.max(), accuracy)
        assert accuracy.norm >= np.linalg.norm(distance) * (1 - 1e-14)
        assert accuracy.largest == accuracy.entries.max()
        assert bool(accuracy.reason) == np.isinf(accuracy.norm)
    far = zip(found, X, truth, strict=True)
    ratios = [a.norm / max(float(np.linalg.norm(own - true)), 1e-300) for a, own, true in far]
    return np.isfinite(found[0].norm), max(ratios)


@pytest.mark.parametrize("kind", KINDS)
def test_no_bound_is_below_the_true_distance(kind):
    proven, ratios = 0, []
    for seed in range(8):
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        scale_X, scale_Z = 2.0 ** rng.integers(-20, 21, 2)
        problem, truth = known(rng, kind, int(rng.integers(2, 8)), scale_X, scale_Z)
        sol = problem.solve(tol=(1e-5, 1e-6, 1e-8)[seed % 3])
        found, ratio = checked(sol, truth)
        proven += found
        ratios += [ratio] * bool(found)
    assert proven >= 4
    assert np.median(ratios) <= 10


@pytest.mark.parametrize(("steps", "kind"), turns([1, 2, 3], ["plain", "blocks", "box", "Hermitian"]))
def test_the_ball_contains_the_optimum_before_newton_converges(kind, steps, monkeypatch):
    """The enclosure of ``X - X*`` holds at any point, with a wide radius where the point is far."""
    monkeypatch.setattr(kantorovich, "_STEPS", steps)
    proven, relative = 0, []
    for seed in range(8):
        rng = np.random.default_rng([seed, 7])
        problem, truth = known(rng, kind, int(rng.integers(2, 6)), *2.0 ** rng.integers(-20, 21, 2))
        raw = problem.solve(tol=1e-7)._raw
        real = [embedded(X) if kind == "Hermitian" else X for X in truth]
        try:
            with np.errstate(all="ignore"):
                found = kantorovich._proven(raw._program, *raw._point, [kind == "Hermitian"] * len(truth))
        except kantorovich.UnprovenError:
            continue
        proven += 1
        for own, true, ball in zip(raw.X, real, found, strict=True):
            assert (np.abs((own - true) - ball.mid) <= ball.rad).all()
            relative.append(ball.rad.max() / np.abs(true).max())
    assert proven >= 3
    assert steps > 1 or max(relative) > 1e-9  # the radius is that of the theorem, not of round-off


def degenerate_pair(rng, n, both):
    """Return integer matrices with ``X Z = 0`` whose ranks add up to less than `n` where `both` vanish."""
    T = np.eye(n, dtype=int) + np.tril(rng.integers(-1, 2, (n, n)), -1)
    inverse = np.rint(np.linalg.inv(T)).astype(int)
    rank = int(rng.integers(1, n - 1))
    D, E = np.zeros((2, n), dtype=int)
    D[:rank], E[rank + both :] = rng.integers(1, 5, rank), rng.integers(1, 5, n - rank - both)
    return (T * D) @ T.T, (inverse.T * E) @ inverse


def posed(rng, X, Z, m):
    """Return the problem of a pair with random rows."""
    rows = [symmetric(rng, len(X)) for _ in range(m)]
    y = rng.integers(-3, 4, m)
    C = Z + sum(int(y_k) * A for y_k, A in zip(y, rows, strict=True))
    M = bo.PSD(len(X))
    constraints = [bo.inner(A.astype(float), M) == float((A * X).sum()) for A in rows]
    return bo.Problem(bo.Minimize(bo.inner(C.astype(float), M)), constraints)


@pytest.mark.parametrize(
    ("seed", "how"), turns(range(6), ["not strictly complementary", "several optima", "several multipliers"])
)
def test_nothing_is_claimed_of_degenerate_answers(how, seed):
    rng = np.random.default_rng([seed, 11])
    n = int(rng.integers(4, 8))
    X, Z = degenerate_pair(rng, n, how == "not strictly complementary")
    r = int(np.linalg.matrix_rank(X))
    fewest, most = r * (r + 1) // 2, n * r - r * (r - 1) // 2
    if how == "several optima":
        if fewest < 3:
            X, Z = Z, X
            r = n - r
            fewest = r * (r + 1) // 2
        m = fewest - 1
    elif how == "several multipliers":
        m = min(most + 2, n * (n + 1) // 2)
    else:
        m = fewest + 1
    sol = posed(rng, X, Z, m).solve(tol=1e-9)
    assert np.isinf(sol.accuracy.norm), (sol.accuracy, np.abs(sol.X - X).max())
    assert sol.accuracy.reason in repr(sol.accuracy)


def test_nothing_is_claimed_without_an_interior():
    X = bo.PSD(3)
    for rows in (
        [X[1, 1] == 0, X[0, 0] + 2 * X[1, 2] == 1],  # a duality gap
        [bo.quad_form(np.array([1.0, -1.0, 0.0]), X) == 0, bo.trace(X) == 1],
    ):
        sol = bo.Problem(bo.Minimize(X[0, 0] + 2 * X[2, 2]), rows).solve()
        assert np.isinf(sol.accuracy.norm)
        assert sol.accuracy.reason


@pytest.mark.parametrize("upper", [False, True])
def test_hinges_are_bounds_with_variables_of_their_own(upper):
    """One is met, one is violated; the optimum is e_1 e_1' by hand."""
    X = bo.PSD(3)
    cost = bo.inner(np.diag([1.0, 2.0, 3.0]), X)
    violated = X[0, 0] <= 0.5 if upper else X[0, 0] >= 1.5
    rows = [bo.soft(bo.trace(X) == 1, 9.0, "hinge"), bo.soft(violated, 0.5, "hinge")]
    sol = bo.Problem(bo.Minimize(cost), rows).solve()
    assert sol.value == pytest.approx(1.25, abs=1e-5)
    assert (np.abs(sol.X - np.diag([1.0, 0, 0])) <= sol.accuracy.entries).all()
    assert sol.accuracy.largest < 1e-4


def test_problems_of_other_kinds_are_named():
    X, u = bo.PSD(3), bo.Variable(3)
    trace = bo.trace(X) == 1
    cost = bo.inner(np.diag([1.0, 2.0, 3.0]), X)
    cases = {
        "soft rows": bo.Problem(bo.Minimize(cost - bo.log(X[0, 0])), [trace]),
        "upper bound": bo.Problem(bo.Minimize(cost), [trace, bo.lambda_max(X) <= 0.9]),
        "second-order": bo.Problem(bo.Minimize(bo.norm2(u) + cost), [trace, u[0] - X[0, 1] == 1]),
    }
    for noun, problem in cases.items():
        assert noun in problem.solve().accuracy.reason
    large = bo.PSD(64)
    sol = bo.Problem(bo.Minimize(bo.trace(large)), [bo.diag(large) == 1]).solve()
    assert "at most 2000" in sol.accuracy.reason


def test_redundant_rows_must_be_exact_combinations():
    X = bo.PSD(3)
    C = np.array([[2.0, 1, 0], [1, 2, 1], [0, 1, 3]])
    sol = bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.diag(X) == 1, bo.trace(X) == 3]).solve()
    assert sol.accuracy.largest < 1e-5
    nearly = np.diag([1, 1, 1 + 2.0**-50])
    rows = [bo.diag(X) == 1, bo.inner(nearly, X) == 3]
    sol = bo.Problem(bo.Minimize(bo.inner(C, X)), rows).solve()
    assert "exact combination" in sol.accuracy.reason


def test_an_infeasible_problem_has_no_accuracy():
    X = bo.PSD(2)
    sol = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] == 1, X[1, 1] == 1, X[0, 1] == 2]).solve()
    assert sol.status == "infeasible"
    assert sol.accuracy is None


def program_of(constraints, X, u=0.0):
    """Return the program of ``min <diag(1, 2), X> + u``."""
    return bo.Problem(bo.Minimize(bo.inner(np.diag([1.0, 2.0]), X) + u), constraints).program()


def reason_at(program, X, u, y):
    (found,) = kantorovich.newton_kantorovich(program, [np.diag(X)], np.array(u), np.array(y))
    assert bool(found.reason) == np.isinf(found.norm)
    return found.reason


def test_regular_roots_that_are_no_optimum_are_refused():
    X = bo.PSD(2)
    trace = bo.trace(X) == 1
    program = program_of([trace], X)
    assert not reason_at(program, [1.0, 0.0], [], [1.0])
    assert "strict complementarity" in reason_at(program, [0.0, 1.0], [], [2.0])  # Z = diag(-1, 0)
    diagonal = [trace, X[0, 1] == 0]
    program = program_of([*diagonal, X[0, 0] >= 0.25], X)
    assert not reason_at(program, [1.0, 0.0], [], [1.0, 0.0, 0.0])
    assert "sign of the multiplier" in reason_at(program, [0.25, 0.75], [], [2.0, 0.0, 1.0])  # it is -1
    program = program_of([*diagonal, X[0, 0] <= 0.25], X)
    assert not reason_at(program, [0.25, 0.75], [], [2.0, 0.0, -1.0])
    assert "slack of a row" in reason_at(program, [1.0, 0.0], [], [1.0, 0.0, 0.0])


def test_bounds_of_variables_are_checked():
    X, u = bo.PSD(2), bo.Variable()
    box = {"u_lo": np.zeros(1), "u_hi": np.full(1, 0.5)}
    dear, cheap = (replace(program_of([bo.trace(X) + u == 1], X, cost * u), **box) for cost in (3.0, 0.5))
    assert not reason_at(dear, [1.0, 0.0], [0.0], [1.0])
    assert "reduced cost" in reason_at(dear, [0.5, 0.0], [0.5], [4.0])
    assert not reason_at(cheap, [0.5, 0.0], [0.5], [1.0])
    assert "slack of a variable" in reason_at(cheap, [0.0, 0.0], [1.0], [0.5])
