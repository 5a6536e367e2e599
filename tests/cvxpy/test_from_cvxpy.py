"""CVXPY problems in our language: rows keep their structure, and a round trip of ours changes nothing."""

import pickle
import warnings

import cvxpy as cp
import numpy as np
import peers
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, turns

import bregopt as bo
import bregopt.cvxpy  # registers the method
from bregopt.program.rows import Distances, Entries, RankOne, RankTwo, SparseRows

N = 5


def values_of(expression, at):
    """Return our body of ``expression == 0`` and CVXPY's value, at the same random point."""
    problem = cp.Problem(cp.Minimize(cp.trace(at)), [expression == 0, at >> 0])
    ours = bo.from_cvxpy(problem)
    (X,) = [M for M in ours.matrices if M.name == at.name()]
    X.value = at.value
    for u in ours.variables:
        (twin,) = [v for v in problem.variables() if v.name() == u.name]
        u.value = np.ravel(twin.value, order="F").reshape(u.shape)
    row = ours.constraints[0]
    return row.body.value - row.lower.value, np.ravel(expression.value, order="F")


def expressions(X, x, Y, rng):
    """Return affine expressions of every kind in a symmetric matrix, a vector and a rectangular matrix."""
    A, z, P = rng.normal(size=(3, N)), rng.normal(size=N), rng.normal(size=(N, N))
    p = cp.Parameter(value=2.5)
    return {
        "entry": X[0, 3],
        "distance": X[0, 0] + X[1, 1] - 2 * X[0, 1],
        "slice": X[1:4, 2] + x[:3],
        "backwards": X[::-1, 1:4:2],
        "index arrays": X[[0, 1, 4], [2, 2, 0]],
        "mask": X[X.value > 0],
        "row and column": X[1] - X[:, 2],
        "new axis": X[None, 1],
        "diagonal": 3 * cp.diag(X) - 1,
        "triangle": cp.upper_tri(X),
        "sums": cp.sum(X, axis=0) + cp.sum(X, axis=1),
        "sums kept": cp.sum(Y, axis=1, keepdims=True) + cp.sum(x),
        "trace": cp.trace(P @ X) + cp.trace(X) / p,
        "inner": cp.vdot(P, X),
        "sparse": cp.sum(cp.multiply(sp.csr_matrix(np.tril(P)), X)),
        "quadratic": cp.quad_form(z, X) - z @ X @ z / 3,
        "quadratics": cp.diag(A @ X @ A.T),
        "two factors": A @ X @ P,
        "one factor": X @ z - P @ X[0],
        "sparse factor": sp.csr_matrix(A) @ X,
        "row factor": z @ X + x @ rng.normal(size=(4, N)),
        "stacks": cp.hstack([x, X[0], p]),
        "blocks": cp.bmat([[X, Y.T], [Y, np.eye(3)]]),
        "reshaped": cp.reshape(Y, (N, 3), order="C") + cp.vec(X, order="C")[:15].reshape((N, 3), order="F"),
        "vector to diagonal": cp.diag(x, 1) + X,
        "broadcast": X - x[0] + np.arange(N),
        "elementwise": cp.multiply(P, X) / 3 - p * X.T,
        "kronecker": cp.kron(np.eye(2), X),
        "running sums": cp.cumsum(X, axis=0) + cp.diff(Y.T, axis=0)[0, 0],
        "convolution": cp.convolve(np.ones(2), x) + X[0],
        "mean": cp.mean(X) + cp.real(x[1]),
    }


NAMES = list(
    expressions(
        cp.Variable((N, N), symmetric=True, value=np.eye(N)),
        cp.Variable(4),
        cp.Variable((3, N)),
        np.random.default_rng(0),
    )
)


@pytest.mark.parametrize("name", NAMES)
def test_every_affine_expression_is_read(name, rng):
    X, x, Y = cp.Variable((N, N), symmetric=True), cp.Variable(4), cp.Variable((3, N))
    G = rng.normal(size=(N, N))
    X.value, x.value, Y.value = G @ G.T, rng.normal(size=4), rng.normal(size=(3, N))
    ours, cvxpys = values_of(expressions(X, x, Y, rng)[name], X)
    np.testing.assert_allclose(ours, cvxpys, atol=1e-12)


def family(expression, X):
    (term,) = bo.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X)), [expression <= 1])).program().A.terms
    return term.rows


def test_structure_is_found(rng):
    X, z, A = cp.Variable((N, N), PSD=True), rng.normal(size=N), rng.normal(size=(3, N))
    far = X[2, 2] + X[3, 3] - X[2, 3] - X[3, 2]
    assert isinstance(family(X[0, 1], X), Entries)
    assert isinstance(family(X[[0, 1], [2, 3]], X), Entries)
    assert isinstance(family(X[0, 0] - 2 * X[0, 1] + X[1, 1], X), Distances)
    assert isinstance(family(far, X), Distances)
    assert isinstance(family(z @ X @ z, X), RankOne)
    assert isinstance(family(cp.diag(A @ X @ A.T), X), RankOne)
    assert isinstance(family(cp.quad_form(z, X) - cp.quad_form(A[0], X), X), RankTwo)
    assert isinstance(family(X[0, 0] - X[0, 1], X), SparseRows)


def test_scalar_constraints_from_a_loop_become_one_family():
    X = cp.Variable((50, 50), PSD=True)
    rows = [X[k, k] + X[k + 1, k + 1] - 2 * X[k, k + 1] <= 1 for k in range(49)]
    (term,) = bo.from_cvxpy(cp.Problem(cp.Maximize(cp.trace(X)), rows)).program().A.terms
    assert isinstance(term.rows, Distances)
    assert term.rows.m == 49


def test_scalar_constraints_of_many_kinds_are_read_together(rng):
    X = cp.Variable((N, N), PSD=True, name="X", value=np.cov(rng.normal(size=(N, 9))))
    S = cp.Variable((N, N), NSD=True, name="S", value=-np.cov(rng.normal(size=(N, 9))))
    x = cp.Variable((2, 3), name="x", value=rng.normal(size=(2, 3)))
    E = cp.Variable((3, 3), symmetric=True, name="E", value=np.eye(3))  # will be entries of its matrix
    a, p = rng.normal(size=6), cp.Parameter(value=0.7)
    rows = [
        X[0, 3] == X[1, 0],
        2 * X[1, 0] + 1 <= 3 * (X[2, 2] / a[0] - x[1, 2]),
        X[0, 0] + X[1, 1] - 2 * X[0, 1] >= a[1],
        X[2, 2] - X[2, 3] - X[3, 2] + X[3, 3] == 1,
        a[2] <= S[1, 2] + S[2, 1],
        -a[3] * X[1:, 2][1] == x[0][::-1][0] - (X[3, 4] - S[4, 3]) * a[1],
        X[0, 0] + X[1, 1] + 2 * X[1, 0] <= 4,
        E[0, 1] == x[0, 0],
        sum(X[i, j] for i in range(N) for j in range(N)) == 1,
        X[0, 1] - X[1, 0] + X[2, 3] == a[4],
        X[0, 0] + S[0, 0] + x[0, 2] >= 0,
        p * X[0, 0] <= X[0, 4] + p,
        cp.trace(X) - x[0, 1] == cp.sum(x),
        x[1:, :1] + a[2] == 0,
    ]
    cone = cp.bmat([[E, np.zeros((3, 1))], [np.zeros((1, 3)), np.eye(1)]]) >> 0
    ours = bo.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X) - cp.trace(S)), [*rows, cone]))
    given = {"X": X.value, "S": -S.value, "x": x.value.ravel(order="F")}
    for leaf in (*ours.matrices, *ours.variables):
        leaf.value = given.get(leaf.name, np.eye(4))
    families = set()
    for row, own in zip(rows, ours.constraints, strict=False):
        end = own.lower if own.upper is None else own.upper
        turned = -1 if row.args[0].is_constant() else 1
        assert np.allclose(own.body.value - end.value, turned * np.ravel(row.expr.value), atol=1e-12), row
        assert own.size == 1
        families.update(type(family) for family in own.body.psd.values())
    assert {Entries, Distances, RankOne, SparseRows} <= families


def test_divergences_are_found_again(rng):
    G = rng.normal(size=(N, N))
    X0 = G @ G.T + np.eye(N)
    X = bo.PSD(N, name="X")
    for divergence, name in ((bo.logdet_div, "logdet"), (bo.von_neumann_div, "von_neumann")):
        problem = bo.Problem(bo.Minimize(2 * divergence(X, X0)), [bo.diag(X) == 1])
        (block,) = bo.from_cvxpy(problem.to_cvxpy()).program().blocks
        assert block.nearness.divergence == name
        assert block.nearness.mu == pytest.approx(2)
        np.testing.assert_allclose(block.nearness.X0, X0, rtol=1e-8)


def test_a_large_cost_stays_a_cost(rng):
    """A start that includes the cost would be singular in floating point."""
    cost = np.diag([0.0, 10.0, 100.0, 200.0, 1000.0])
    X = bo.PSD(N, name="X")
    problem = bo.Problem(
        bo.Minimize(bo.von_neumann_div(X, np.eye(N)) + bo.inner(cost, X)), [bo.trace(X) == 1]
    )
    there = bo.from_cvxpy(problem.to_cvxpy())
    assert there.program().blocks[0].cost is not None
    assert there.solve().value == pytest.approx(problem.solve().value, rel=1e-6)


def test_only_cvxpy_problems():
    with pytest.raises(TypeError, match="expected a cvxpy"):
        bo.from_cvxpy(bo.Problem(bo.Minimize(bo.trace(bo.PSD(2)))))


def test_variables_of_one_name_are_told_apart():
    X, Y = (cp.Variable((2, 2), PSD=True, name="K") for _ in range(2))
    names = [M.name for M in bo.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X + Y)))).matrices]
    assert len(set(names)) == 2
    assert all(name.startswith("K#") for name in names)


# --- There and back -----------------------------------------------------------------------------------


@st.composite
def declared(draw):
    """Draw a problem that is feasible and bounded, and the kind of its objective."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(2, 4))
    kind = draw(st.sampled_from(["logdet", "von_neumann", "frobenius", "weighted", "linear"]))
    G = rng.normal(size=(n, n))
    X0 = G @ G.T / n + 0.5 * np.eye(n)
    C = rng.normal(size=(n, n))
    C = (C + C.T) / 2
    X, u = bo.PSD(n, name="X"), bo.Variable(2, name="u", lower=0.1, upper=[3.0, np.pi])
    objective = {
        "logdet": lambda: bo.logdet_div(X, X0),
        "von_neumann": lambda: bo.von_neumann_div(X, X0),
        "frobenius": lambda: bo.frobenius_div(X, C),
        "weighted": lambda: bo.frobenius_div(X, C, weights=1 + np.abs(C)),
        "linear": lambda: bo.inner(C, X) + 0.0,
    }[kind]() * draw(st.sampled_from([1.0, 0.3, 4.0]))
    if draw(st.booleans()):
        objective = objective + 0.2 * bo.inner(X0, X) + 1.5
    z = rng.normal(size=n)
    kinds = {
        "equal": lambda: bo.diag(X) == np.diag(X0),
        "entry": lambda: X[0, 1] >= X0[0, 1] + 0.1,
        "between": lambda: bo.between(X[0, n - 1], X0[0, n - 1] - 0.1, X0[0, n - 1] + 0.1),
        "distance": lambda: bo.sq_distance(X, 0, 1) <= 0.7 * (X0[0, 0] + X0[1, 1] - 2 * X0[0, 1]),
        "quadratic": lambda: bo.quad_form(z, X) <= 0.9 * z @ X0 @ z,
        "relative": lambda: bo.sq_distance(X, 0, 1) <= bo.quad_form(z, X) + 3,
        "stack": lambda: bo.inner(np.array([C, X0]), X) <= [np.vdot(C, X0) + 1, np.vdot(X0, X0)],
        "soft": lambda: bo.soft(bo.sq_distance(X, 0, 1) <= 0.4, gamma=0.8),
        "soft from below": lambda: bo.soft(bo.diag(X)[:2] >= 2.0, gamma=[0.5, 0.9]),
        "soft equation": lambda: bo.soft(bo.quad_form(z, X) == 1.5, gamma=0.3),
        "soft from both sides": lambda: bo.soft(bo.between(bo.diag(X)[1:], 0.4, 0.6), gamma=2.0),
        "hinge": lambda: bo.soft(bo.inner(C, X) == 0.3, gamma=0.2, penalty="hinge"),
        "hinges": lambda: bo.soft(
            bo.quad_form(np.array([z, C[0]]), X) <= [0.5, 0.7], [0.2, 3], penalty="hinge"
        ),
        "hinge from below": lambda: bo.soft(X[0, 1] - 2 * X[1, 1] >= -0.3, gamma=0.7, penalty="hinge"),
        "variables": lambda: X[0, 0] + u[0] - 2 * u[1] <= X0[0, 0] + 1,
        "soft and variables": lambda: bo.soft(X[0, 0] + u[0] >= 2.5, gamma=0.6, penalty="hinge"),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=4, unique=True))
    rows = [bo.trace(X) <= 1.2 * np.trace(X0), *(kinds[name]() for name in chosen)]
    if any("variables" in name for name in chosen):
        objective = objective + bo.sum(u)
    sense = draw(st.booleans())
    return bo.Problem(bo.Maximize(-objective) if sense else bo.Minimize(objective), rows), kind


def sides(problem):
    """Return, for each finite bound, its row over all matrices and variables, the bound and the penalty.

    In the order in which `to_cvxpy` writes them: by constraint, comparison and penalty; ``>=`` turned round.
    """
    program, found = problem.program(), []
    B, bounds, start = program.B.toarray(), program.bounds, 0
    coefficients = [
        np.concatenate([program.A.adjoint(e, b).ravel() for b in range(len(program.blocks))] + [B[k]])
        for k, e in enumerate(np.eye(program.m))
    ]
    for _, size in program.labels:
        rows = range(start, start + size)
        start += size
        for sense, end, sign in (("==", bounds.lo, 1), ("<=", bounds.lo, -1), ("<=", bounds.hi, 1)):
            for kind in np.unique(bounds.kind):
                for k in rows:
                    equal = bounds.lo[k] == bounds.hi[k]
                    if bounds.kind[k] == kind and equal == (sense == "==") and np.isfinite(end[k]):
                        row = sign * np.append(coefficients[k], end[k])
                        found.append((sense, kind, bounds.gamma[k], row))
    unit = np.hstack([np.zeros((program.k, len(coefficients[0]) - program.k)), np.eye(program.k)])
    for end, sign in ((program.u_lo, -1), (program.u_hi, 1)):
        for j in np.flatnonzero(np.isfinite(end)):
            found.append(("<=", 0, np.inf, sign * np.append(unit[j], end[j])))
    return found


def pull(problem):
    """Return ``A*(y)`` of the answer: the slope of the objective if the matrix is inside the cone."""
    program = problem.program()
    return program.A.adjoint(problem.solution._raw.duals)


@examples(7)
@given(declared())
def test_there_and_back(case):
    problem, kind = case
    back = bo.from_cvxpy(problem.to_cvxpy())
    here, there = sides(problem), sides(back)
    assert [side[:2] for side in here] == [side[:2] for side in there]
    for ours, theirs in zip(here, there, strict=True):
        assert theirs[2] == pytest.approx(ours[2], rel=1e-12)
        turned = -1 if ours[0] == "==" and ours[3] @ theirs[3] < 0 else 1
        np.testing.assert_allclose(turned * theirs[3], ours[3], rtol=1e-12, atol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        here, there = problem.solve(tol=1e-8), back.solve(tol=1e-8)
    if here.status == "infeasible":  # a few draws are infeasible, in either form
        assert there.status == "infeasible"
        return
    scale = 1 + abs(here.value)
    assert there.status.startswith("optimal")
    assert abs(here.value - there.value) <= here.error + there.error + 1e-7 * scale
    if kind != "linear":
        np.testing.assert_allclose(there.X, here.X, atol=1e-3 * (1 + np.abs(here.X).max()))
    if kind != "linear" and not back.program().k:
        assert there.solver == "bregman"
    if kind in ("logdet", "von_neumann"):
        here_pull, there_pull = pull(problem), pull(back)
        np.testing.assert_allclose(there_pull, here_pull, atol=1e-2 * (1 + np.abs(here_pull).max()))


@pytest.mark.parametrize(
    ("divergence", "sense"),
    turns([bo.logdet_div, bo.von_neumann_div, bo.frobenius_div], [bo.Minimize, bo.Maximize]),
)
def test_duals_come_back(divergence, sense, rng):
    G = rng.normal(size=(N, N))
    X0 = G @ G.T / N + 0.5 * np.eye(N)
    X, u, z = bo.PSD(N, name="X"), bo.Variable(2, name="u", nonneg=True), rng.normal(size=N)
    rows = [
        bo.diag(X)[:2] == 1.1 * np.diag(X0)[:2],
        X[0, 1] >= X0[0, 1] + 0.1,
        bo.between(X[[0, 1], [3, 4]], X0[[0, 1], [3, 4]] + [0.1, -0.2], X0[[0, 1], [3, 4]] + [0.3, -0.1]),
        bo.quad_form(z, X) <= 0.9 * z @ X0 @ z + u[0],
        bo.soft(bo.sq_distance(X, 2, [3, 4]) <= 0.4, gamma=0.8),
        bo.soft(bo.trace(X) == 3.0, gamma=0.1, penalty="hinge"),
        2 * u[1] >= 1,
    ]
    objective = divergence(X, X0) + bo.sum(u)
    problem = bo.Problem(sense(objective if sense is bo.Minimize else -objective), rows)
    back = bo.from_cvxpy(problem.to_cvxpy())
    here, there = problem.solve(tol=1e-8), back.solve(tol=1e-8)
    assert there.value == pytest.approx(here.value, rel=1e-6)
    np.testing.assert_allclose(there.X, here.X, atol=1e-4)
    found = iter(back.constraints)
    for c in rows:
        dual = np.asarray(next(found).dual_value)
        if c.sense == "between":
            dual = np.asarray(next(found).dual_value) - dual
        np.testing.assert_allclose(dual, np.ravel(c.dual_value), atol=1e-3)


def test_variables_keep_their_names_and_boxes():
    X, u, free = bo.PSD(2, name="X"), bo.Variable(3, name="u", lower=[0, 1, 2]), bo.Variable(name="free")
    v = bo.Variable((2, 2), name="v", lower=-1.0, upper=1.0)
    rows = [X[0, 0] + u[1] >= 1, bo.sum(v) + X[0, 1] == free, bo.trace(X) <= 2]
    theirs = bo.Problem(bo.Minimize(bo.sum(u) - 2 * free), rows).to_cvxpy()
    assert {each.name(): each.size for each in theirs.variables()} == {"X": 4, "u": 3, "free": 1, "v": 4}
    back = {each.name: each for each in bo.from_cvxpy(theirs).variables}
    np.testing.assert_array_equal(back["u"].lower, u.lower)
    np.testing.assert_array_equal(back["v"].upper, v.upper.ravel())
    assert back["free"].lower == -np.inf


def test_parameters_go_there_and_back():
    X, b, c = bo.PSD(3, name="X"), bo.Parameter(3, name="b"), bo.Parameter(name="c")
    s, t = bo.Parameter((1, 2), name="s"), bo.Parameter(name="t")
    b.value, c.value, s.value, t.value = [1.0, 2.0, 3.0], 0.5, [[0.1, 0.1]], 0.2
    rows = [
        bo.diag(X) == 2 * b,
        bo.between(X[0, 1], c - 0.5, c),
        bo.between(X[[0, 1], [2, 2]], s[0, 0], s[0, 1]),  # one value now
        bo.soft(X[0, 2] + X[1, 2] >= 3 * t, gamma=2.0),
        bo.soft(bo.trace(X) == c, gamma=0.1, penalty="hinge"),
    ]
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.ones((3, 3)))), rows)
    back = bo.from_cvxpy(problem.to_cvxpy())
    assert [p.name for p in back.parameters] == ["b", "c", "s", "t"]
    theirs = {p.name: p for p in back.parameters}
    for factor in (1.0, 1.5):
        for p in (b, c, t):
            p.value = factor * p.value
            theirs[p.name].value = np.ravel(p.value)
        s.value = [[0.1, 0.1 * factor]]
        theirs["s"].value = s.value[0]
        here, there = problem.solve(tol=1e-9), back.solve(tol=1e-9)
        assert there.status == "optimal"
        assert there.value == pytest.approx(here.value, rel=1e-6)
        np.testing.assert_allclose(there.X, here.X, atol=1e-5)


def test_parameters_that_are_added_to_rows_stay_parameters():
    X = cp.Variable((3, 3), PSD=True, name="X")
    b, scale = cp.Parameter(3, name="b", value=[1.0, 2.0, 3.0]), cp.Parameter(name="scale", value=2.0)
    ours = bo.from_cvxpy(cp.Problem(cp.Minimize(scale * cp.trace(X)), [scale * cp.diag(X) == b]))
    (parameter,) = ours.parameters
    assert parameter.name == "b"
    assert ours.solve().value == pytest.approx(6)
    parameter.value = [1.0, 1.0, 1.0]
    assert ours.solve().value == pytest.approx(3)
    b.value = np.zeros(3)  # ours has its own values
    assert ours.solve().value == pytest.approx(3)


def test_problems_from_cvxpy_pickle(rng):
    X = cp.Variable((N, N), PSD=True)
    ours = bo.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(X - 2)), [cp.diag(X) == 1, X[0, 1] <= 0.5]))
    before = pickle.loads(pickle.dumps(ours))
    value = ours.solve().value
    after = pickle.loads(pickle.dumps(ours))
    assert before.solve().value == after.value == after.solve().value == value


def test_complex_numbers_and_a_real_matrix():
    X = cp.Variable((2, 2), PSD=True)
    cost = cp.real(cp.trace(np.array([[1, 1j], [-1j, 2]]) @ X))
    ours = bo.from_cvxpy(cp.Problem(cp.Minimize(cost), [cp.trace(X) == 1]))
    assert ours.solve().value == pytest.approx(1, abs=1e-6)


# --- Soft rows that were written in CVXPY -------------------------------------------------------------


def bends(X, v):
    """Return prices and rows in which ``v`` only relaxes bounds, and the number of soft rows."""
    d = cp.hstack([X[0, 0] + X[1, 1] - 2 * X[0, 1], X[2, 2] + X[3, 3] - 2 * X[2, 3]])
    return {
        "squares": (cp.sum_squares(v), [d <= 0.5 + v]),
        "squares, one by one": (cp.sum_squares(v), [d[0] - v[0] <= 0.5, d[1] <= 0.6 + 2 * v[1]]),
        "weighted": (3 * cp.square(v[0]) + cp.square(2 * v[1] - 1), [d == v]),
        "distances": (cp.norm1(v), [d <= 0.5 + v]),
        "distances from below": (2 * cp.sum(cp.abs(v - 4)), [v <= d]),
        "one-sided": (cp.sum(cp.pos(v)) / 2, [d - 0.5 <= v]),
        "a row turned round": (cp.sum(cp.abs(v)), [3 - d == 2 * v]),
    }


BENDS = list(bends(cp.Variable((N, N), PSD=True), cp.Variable(2)))


@pytest.mark.parametrize("name", BENDS)
def test_variables_that_only_bend_bounds_become_soft_rows(name, rng):
    G = rng.normal(size=(N, N))
    X, v = cp.Variable((N, N), PSD=True), cp.Variable(2)
    price, rows = bends(X, v)[name]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X - G - G.T) + price), [*rows, cp.trace(X) == N])
    ours = bo.from_cvxpy(problem)
    assert not ours.variables
    assert len(ours.constraints) == len(rows) + 1
    assert all(c.penalty is not None for c in ours.constraints[: len(rows)])
    peer = peers.ask(problem)
    at = v.value
    problem.solve(method="bregopt", strict=True, tol=1e-9)
    assert problem.solver_stats.solver_name == "bregopt: bregman"
    peer.agrees(problem.value, problem.solver_stats.extra_stats.error)
    if name != "one-sided":  # there any value below the bound is optimal
        peer.near(v.value, at, atol=1e-4)
    assert all(np.max(c.violation()) <= 1e-6 for c in problem.constraints)
    for c, dual in zip(problem.constraints, peer.duals, strict=True):
        peer.near(c.dual_value, dual, atol=1e-3)


def test_variables_that_do_more_stay(rng):
    X, v, d = cp.Variable((N, N), PSD=True), cp.Variable(2), cp.Variable(2)
    distances = cp.hstack([X[0, 0] - X[0, 1], X[1, 1]])
    price, row = cp.sum_squares(v), distances <= 0.5 + v
    for more in ([v[0] <= 1], [distances >= v - 3], [v + d == 1]):
        problem = cp.Problem(cp.Minimize(cp.sum_squares(X - 1) + price), [row, *more])
        assert bo.from_cvxpy(problem).variables
    for other in (price + v[0], cp.square(v[0]), cp.sum_squares(v + d), price + cp.norm1(v)):
        problem = cp.Problem(cp.Minimize(cp.sum_squares(X - 1) + other), [row])
        assert bo.from_cvxpy(problem).variables
    # A price on tightened bounds only: relaxed bounds are free, and would diverge.
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X - 1) + cp.sum(cp.pos(-v))), [row])
    assert bo.from_cvxpy(problem).variables


def test_constraints_are_shown_as_cvxpy_prints_them():
    X, t = cp.Variable((3, 3), PSD=True, name="X"), cp.Variable(2, name="t")
    A = np.arange(9.0).reshape(3, 3)
    rows = [X[0, 2] >= 0.9, X[0, 1] <= 0.5, cp.diag(X) == 1, cp.norm(t) <= 5, cp.trace((A + A.T) @ X) <= 9]
    problem = cp.Problem(cp.Minimize(cp.trace(X) + cp.norm(t)), rows)
    ours = bo.from_cvxpy(problem)
    labels = [c.label for c in ours.constraints]
    assert labels[:4] == [str(row) for row in rows[:4]]
    assert labels[4].endswith(" ...")
    assert all(len(label) <= 60 and "\n" not in label for label in labels)
    assert ours.objective.label == str(problem.objective.args[0])
    sol = ours.solve()
    problem.solve(solver="CLARABEL")
    assert sol.value == pytest.approx(problem.value, abs=1e-5)
    np.testing.assert_allclose(ours.constraints[0].dual_value, [rows[0].dual_value], atol=1e-4)
    impossible = bo.from_cvxpy(cp.Problem(problem.objective, [*rows[1:3], X[0, 1] >= 0.6])).solve()
    found = {(row.label, row.side) for row in impossible.conflict()}
    assert found == {("X[0, 1] <= 0.5", "<= 0.5"), ("0.6 <= X[0, 1]", ">= 0.6")}


@pytest.mark.skipif(not hasattr(cp.Variable() >= 0, "set_label"), reason="CVXPY has no labels yet")
def test_labels_of_cvxpy_are_names():
    X = cp.Variable((2, 2), PSD=True, name="X")
    row = (X[0, 1] >= 0.5).set_label("floor")
    (ours,) = bo.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X)), [row])).constraints
    assert (ours.name, ours.label) == ("floor", "0.5 <= X[0, 1]")
