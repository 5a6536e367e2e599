"""Parameters wherever disciplined parametrized programming has them, beside CVXPY, and compiled once."""

import pickle

import cvxpy as cp
import numpy as np
import peers
import pytest
from samples import first

import bregopt as bo
import bregopt.modeling.problem as problems

N = 4


def symmetric(rng, n):
    A = rng.normal(size=(n, n))
    return (A + A.T) / 2


def definite(rng, n):
    A = rng.normal(size=(n, n))
    return A @ A.T + np.eye(n)


@pytest.fixture
def compilations(monkeypatch):
    """The arguments of each compilation."""
    calls, compile_problem = [], problems.compile_problem

    def counted(*arguments):
        calls.append(arguments)
        return compile_problem(*arguments)

    monkeypatch.setattr(problems, "compile_problem", counted)
    return calls


class TestFactors:
    @pytest.fixture
    def pair(self, rng):
        """The same model in both languages, and a function that sets the values of its parameters."""
        C, A = symmetric(rng, N) + 4 * np.eye(N), rng.normal(size=(2, N))
        values = {"p": (), "P": (3, 2), "Q": (N, N), "w": ()}
        own = {name: bo.Parameter(shape, name=name) for name, shape in values.items()}
        theirs = {name: cp.Parameter(shape, nonneg=shape == ()) for name, shape in values.items()}

        def declare(language, X, u, p, P, Q, w):
            inner = bo.inner if language is bo else lambda A, X: cp.sum(cp.multiply(A, X))
            rows = [
                p * X[0, 1] + X[1, 1] >= 1,
                P @ u + language.diag(X)[:3] >= p,
                inner(Q, X) >= 2,
                p * (A @ X @ A.T)[0, 1] - X[2, 3] * p <= 5 + u[0],
                language.sum((1 + p) * X, axis=0) == w,
                p * language.diag(u) << np.array([[3.0, 1.0], [1.0, 2.0]]),
            ]
            squares = w * language.sum_squares(u - 1)
            goal = inner(C, X) + p * language.trace(X) + w * language.sum(u) + p * 3 + squares
            return language.Problem(language.Minimize(goal), rows)

        ours = declare(bo, bo.PSD(N, name="X"), bo.Variable(2, name="u"), **own)
        peer = declare(cp, cp.Variable((N, N), PSD=True), cp.Variable(2), **theirs)

        def put(seed):
            draw = np.random.default_rng(seed)
            for name, shape in values.items():
                number = draw.uniform(0.5, 1.5) if shape == () else draw.normal(size=shape)
                own[name].value = theirs[name].value = number

        return ours, peer, put

    def test_values_and_duals_are_cvxpys(self, pair, compilations):
        ours, peer, put = pair
        assert peer.is_dpp()
        for seed in range(4):
            put(seed)
            sol = ours.solve(tol=1e-8, warm_start=seed > 0)
            answer = peers.ask(peer)
            assert sol.status == "optimal"
            answer.agrees(sol.value, sol.error)
            assert ours.objective.expression.value == pytest.approx(sol.value, rel=1e-9)
            for mine, other in zip(ours.constraints, peer.constraints, strict=True):
                size = 1 + np.abs(mine.dual_value).max()
                answer.near(np.asarray(mine.dual_value) / size, other.dual_value / size, atol=1e-3)
        assert not compilations

    def test_the_program_is_that_of_numbers(self, pair):
        ours, _, put = pair
        for seed in range(3):
            put(seed)
            program = ours.program()
            rng = np.random.default_rng(seed)
            X, Z, u = definite(rng, N), np.zeros((2, 2)), rng.normal(size=2)
            ours.matrices[0].value, ours.variables[0].value = X, u
            k = program.k - 2
            activity = program.activity((X, Z), np.concatenate([u, np.zeros(k)]))
            start = 0
            for c in ours.constraints[:5]:
                found = activity[start : start + c.size]
                np.testing.assert_allclose(found, np.ravel(c.body.value), atol=1e-12)
                start += c.size

    def test_zeros_leave_no_rows(self):
        X, u, p = bo.PSD(2), bo.Variable(2, nonneg=True), bo.Parameter(2, value=[0.0, 1.0])
        problem = bo.Problem(
            bo.Minimize(bo.trace(X) + bo.sum(u)), [p * X[0] + p * u >= [-1, 1], X[1, 1] >= 1]
        )
        program = problem.program()
        assert program.B.nnz == 1
        assert sorted(np.concatenate([term.at for term in program.A.terms])) == [1, 2]
        assert problem.solve().status == "optimal"

    def test_parts_without_parameters_stay(self, rng):
        X, u, p = bo.PSD(N), bo.Variable(2, nonneg=True), bo.Parameter(value=1.0)
        A = rng.normal(size=(3, N))
        rows = [bo.diag(X) == 1, bo.quad_form(A, X) + bo.sum(u) >= 1, p * X[0, 1] <= 0.3]
        problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, symmetric(rng, N)) + bo.sum(u)), rows)
        first = problem.program()
        p.value = 2.0
        second = problem.program()
        fixed = [term for term in first.A.terms if 4 not in term.at and 7 not in term.at]
        assert all(any(term is other for other in second.A.terms) for term in fixed)
        assert first.B is second.B
        assert first.c is second.c
        assert first.blocks[0].nearness is second.blocks[0].nearness

    def test_each_form_of_a_product(self, rng):
        X, u = bo.PSD(N), bo.Variable((2, 3))
        p, P, q = bo.Parameter(value=2.5), bo.Parameter((5, 2)), bo.Parameter(3)
        X.value, u.value = V, U = definite(rng, N), rng.normal(size=(2, 3))
        P.value, q.value = rng.normal(size=(5, 2)), rng.normal(size=3)
        M = rng.normal(size=(3, N))
        pairs = [
            (p * X, 2.5 * V),
            (X * p, 2.5 * V),
            ((2 * p - 1) * (X - 1), 4 * (V - 1)),
            (P @ u, P.value @ U),
            (u.T @ P.T, U.T @ P.value.T),
            (u @ q, U @ q.value),
            (q * u, q.value * U),
            ((P @ u) @ M, P.value @ U @ M),
            (p * (M @ X @ M.T), 2.5 * (M @ V @ M.T)),
            ((p * X)[0, 1:], 2.5 * V[0, 1:]),
            ((p * X).T, 2.5 * V),
            (bo.sum(P @ u, axis=0), (P.value @ U).sum(0)),
            (bo.vstack([p * X, X, np.ones(N)]), np.vstack([2.5 * V, V, np.ones(N)])),
            (bo.trace(p * (M.T @ M @ X)), 2.5 * np.trace(M.T @ M @ V)),
            (p * 3, 7.5),
            (p * bo.sum(np.ones(2)), 5.0),
            (-(p * X) / 2, -1.25 * V),
        ]
        for e, expected in pairs:
            assert e.shape == np.shape(expected)
            np.testing.assert_allclose(e.value, expected, atol=1e-12)


class TestData:
    @pytest.mark.parametrize("divergence", ["logdet_div", "von_neumann_div", "frobenius_div"])
    def test_start_and_weight(self, rng, divergence, compilations):
        X, X0, p, d = (
            bo.PSD(N),
            bo.Parameter((N, N), name="X0"),
            bo.Parameter(name="p"),
            getattr(bo, divergence),
        )
        problem = bo.Problem(bo.Minimize((1 + p) * d(X, X0)), [bo.diag(X) == p])
        for k in range(3):
            X0.value, p.value = A, b = definite(rng, N), 1.0 + k
            sol = problem.solve(tol=1e-9, warm_start=k > 0)
            Y = bo.PSD(N)
            same = bo.Problem(bo.Minimize((1 + b) * d(Y, A)), [bo.diag(Y) == b]).solve(tol=1e-9)
            assert abs(sol.value - same.value) <= sol.error + same.error + 1e-12
        assert len(compilations) == 1 + 3
        assert problem.program().blocks[0].nearness is problem.program().blocks[0].nearness

    def test_weights_of_entries_and_cap(self, rng):
        A, H, c = symmetric(rng, N), bo.Parameter((N, N)), bo.Parameter(name="c")
        X, Y = bo.PSD(N), cp.Variable((N, N), PSD=True)
        problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A, weights=H)), [bo.lambda_max(X) <= c])
        assert str(problem.constraints[0].label).endswith("<= c")
        for cap in (0.4, 0.9):
            H.value, c.value = W, _ = np.abs(symmetric(rng, N)) + 0.5, cap
            sol = peers.reference(problem)
            goal = cp.sum_squares(cp.multiply(W, Y - A))
            peer = peers.ask(cp.Problem(cp.Minimize(goal), [Y << cap * np.eye(N)]))
            peer.agrees(sol.value, sol.error)

    def test_gamma_as_an_expression(self):
        X, p = bo.PSD(1), bo.Parameter(value=1.0)
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, [[1.0]])), [bo.soft(X[0, 0] <= 0.4, gamma=2 * p)])
        for g in (1.0, 3.0):
            p.value = g
            assert problem.solve(tol=1e-9).X[0, 0] == pytest.approx((1 + 2 * g) / (1 + 5 * g), rel=1e-5)

    def test_matrix_inequality(self, rng, compilations):
        B, p, x = bo.Parameter((3, 3), name="B"), bo.Parameter(), bo.Variable(3)
        row = p * bo.diag(x) >> B
        problem = bo.Problem(bo.Minimize(bo.sum(x)), [row])
        for k in (1.0, 2.0):
            B.value, p.value = symmetric(rng, 3), k
            sol = problem.solve()
            y = cp.Variable(3)
            theirs = k * cp.diag(y) >> B.value
            peer = peers.ask(cp.Problem(cp.Minimize(cp.sum(y)), [theirs]))
            peer.agrees(sol.value, sol.error)
            peer.near(row.dual_value, theirs.dual_value, atol=1e-3)
        assert len(compilations) == 1
        B.value = np.triu(np.ones((3, 3)))
        with pytest.raises(ValueError, match=r"is not symmetric: its entries \[0, 1\]"):
            problem.solve()


X, Y = bo.PSD(3, name="X"), bo.PSD(3, name="Y")
p, q, P = bo.Parameter(name="p"), bo.Parameter(name="q"), bo.Parameter((3, 3), name="P")
u = bo.Variable(3, name="u")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: p * q, r"^p \* q is a product of two expressions with parameters; .*DPP"),
        (lambda: q * (p * X), r"^q \* \(?p \* X\)? is a product of two expressions with parameters"),
        (lambda: p * (X + q), "with parameters"),
        (lambda: P @ (P @ u), "^P @ .* with parameters"),
        (lambda: X * u[0], r"^X \* u\[0\] is a product of two expressions with variables, .* not affine"),
        (lambda: Y @ X, "^Y @ X is a product of two expressions with variables"),
        (lambda: X / p, "the divisor is an expression; .* another bo.Parameter for its inverse"),
        (lambda: 1 / X, "the divisor is an expression"),
        (lambda: q * (p * bo.logdet_div(X, np.eye(3))), "product of two parameters; .*DPP"),
        (lambda: u[0] * bo.logdet_div(X, np.eye(3)), "a product of expressions is not"),
        (lambda: u * bo.logdet_div(X, np.eye(3)), "a product of expressions is not"),
        (lambda: P * bo.logdet_div(X, np.eye(3)), "expected a scalar number or parameter as the weight"),
        (lambda: bo.logdet_div(X, p), r"X0 of logdet_div has shape \(\); .* of shape \(3, 3\)"),
        (lambda: bo.frobenius_div(X, P, weights=u), "weights of frobenius_div is .*; expected numbers or"),
        (lambda: bo.soft(X[0, 0] <= 1, gamma=u[0]), "gamma of soft is .*, with variables"),
    ],
)
def test_what_is_no_disciplined_product_is_refused_with_the_rule(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_shapes_stand_as_they_were_written():
    with pytest.raises(ValueError, match=r"^@ of shapes \(3, 3\) and \(2, 3\)"):
        P @ bo.Variable((2, 3))


@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "parameter cap has no value"), (-1, "lambda_max.X. is -1; expected a number above")],
)
def test_caps_are_checked_at_the_solve(value, message):
    cap = bo.Parameter(name="cap", value=value)
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(3))), [bo.lambda_max(X) <= cap])
    with pytest.raises(ValueError, match=message):
        problem.solve()


def test_weights_are_checked_at_the_solve():
    w, X, u = bo.Parameter(name="w", value=-1.0), bo.PSD(2), bo.Variable(2)
    squares = bo.Problem(bo.Minimize(w * bo.sum_squares(u) + bo.trace(X)), [X[0, 0] >= 1])
    with pytest.raises(ValueError, match="the weight w of a sum of squares has the value -1"):
        squares.solve()
    with pytest.raises(ValueError, match=r"divergence has weight -1 \(w\)"):
        bo.Problem(bo.Minimize(w * bo.logdet_div(X, np.eye(2)))).solve()


# --- What is kept for the next values ------------------------------------------------------------------


def bounded(seed):
    """Return a problem with an equality, an inequality, a soft row and a cost of parameters, and those."""
    rng = np.random.default_rng(seed)
    X, u = bo.PSD(5), bo.Variable(2)
    C = bo.Parameter((5, 5), value=np.eye(5))
    d, most, gamma = bo.Parameter(5), bo.Parameter(), bo.Parameter()
    rows = [
        bo.diag(X) == d,
        bo.inner(np.ones((5, 5)), X) + bo.sum(u) <= most,
        bo.soft(X[0, 1] + u[0] >= 0.5, gamma=gamma),
        u >= -1,
    ]
    problem = bo.Problem(bo.Minimize(bo.inner(C, X) + bo.sum(u)), rows)

    def values(k):
        symmetric = rng.normal(size=(5, 5)) if k else np.zeros((5, 5))
        C.value = symmetric + symmetric.T
        d.value, most.value, gamma.value = 1 + rng.random(5), rng.choice([3.0, 30.0]), 0.1 + rng.random()

    return problem, values


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_other_values_have_the_answer_of_a_new_problem(seed):
    problem, values = bounded(seed)
    for k in range(4):
        values(k)
        again = problem.solve()
        fresh, same_values = bounded(seed)
        for j in range(k + 1):
            same_values(j)
        alone = fresh.solve()
        assert (again.status, again.value, again.iterations) == (alone.status, alone.value, alone.iterations)
        np.testing.assert_array_equal(again.X, alone.X)
        for mine, other in zip(again.duals, alone.duals, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("scaled", [False, True])
def test_what_coefficients_determine_is_kept_for_other_bounds_alone(scaled):
    X, u, b, a = bo.PSD(3), bo.Variable(2), bo.Parameter(3, value=np.ones(3)), bo.Parameter(value=2.0)
    rows = [bo.diag(X) == b, (a if scaled else 2.0) * X[0, 1] + u[0] - u[1] <= 3.0]
    prob = bo.Problem(bo.Minimize(bo.trace(X) + bo.sum(u)), rows)
    first = prob.program()
    known = (first.row_units, first.column_sizes, first.Bt)
    b.value, a.value = np.full(3, 4.0), 6.0
    second = prob.program()
    assert (
        all(
            own is other
            for own, other in zip(known, (second.row_units, second.column_sizes, second.Bt), strict=True)
        )
        != scaled
    )
    np.testing.assert_allclose(second.row_units, [1, 1, 1, np.hypot(3, 3) if scaled else np.hypot(1, 1)])
    assert second.bounds.lo[0] == second.bounds.sizes[0] == 4.0


def test_the_plan_of_the_rows_is_kept_and_is_no_part_of_pickles():
    X, d = bo.PSD(4), bo.Parameter(4, value=np.ones(4))
    problem = bo.Problem(bo.Minimize(X[0, 1]), [bo.diag(X) == d])
    problem.solve()
    program = problem.program()
    kept = dict(program.A.plans)
    assert kept
    d.value = np.full(4, 2.0)
    problem.solve()
    assert problem.program().A.plans == kept
    assert not pickle.loads(pickle.dumps(program)).A.plans
