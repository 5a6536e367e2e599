"""Linear matrix inequalities beside CVXPY: values, duals in CVXPY's sign, and refusals."""

import cvxpy as cp
import numpy as np
import peers
import pytest
import scipy.sparse as sp

import bregopt as bo


def symmetric(rng, n):
    A = rng.normal(size=(n, n))
    return (A + A.T) / 2


def check(problem, inequalities, theirs, their_inequalities, tol=1e-4):
    """Compare the value and the duals of two readings of a problem."""
    sol = problem.solve(tol=1e-9)
    assert sol.status == "optimal"
    peer = peers.ask(theirs)
    peer.agrees(sol.value, sol.error)
    for own, other in zip(inequalities, their_inequalities, strict=True):
        S = own.dual_value
        assert np.array_equal(S, S.T)
        size = 1 + np.abs(S).max()
        assert np.linalg.eigvalsh(S)[0] >= -1e-7 * size
        peer.near(S / size, other.dual_value / size, atol=tol)
    return sol


class TestBesideCvxpy:
    @pytest.mark.parametrize("maximize", [False, True])
    def test_largest_eigenvalue_of_an_affine_matrix(self, rng, maximize):
        n, A, C = 6, [symmetric(rng, 6) for _ in range(3)], symmetric(rng, 6)
        t, x = bo.Variable(), bo.Variable(3, lower=-1, upper=1)
        T, z = cp.Variable(), cp.Variable(3)
        if maximize:
            own, other = C + sum(x[k] * A[k] for k in range(3)) >> t * np.eye(n), bo.Maximize(t + x[0])
            theirs = C + sum(z[k] * A[k] for k in range(3)) >> T * np.eye(n)
            objective = cp.Maximize(T + z[0])
        else:
            own, other = C + sum(x[k] * A[k] for k in range(3)) << t * np.eye(n), bo.Minimize(t + x[0])
            theirs = C + sum(z[k] * A[k] for k in range(3)) << T * np.eye(n)
            objective = cp.Minimize(T + z[0])
        check(bo.Problem(other, [own]), [own], cp.Problem(objective, [theirs, z >= -1, z <= 1]), [theirs])

    @pytest.mark.parametrize("sparse", [False, True])
    def test_lyapunov(self, rng, sparse):
        n = 5
        A = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.6) - 4 * np.eye(n)
        A = sp.csr_array(A) if sparse else A
        P, Q = bo.PSD(n), cp.Variable((n, n), PSD=True)
        own, theirs = A.T @ P + P @ A << -np.eye(n), A.T @ Q + Q @ A << -np.eye(n)
        check(
            bo.Problem(bo.Minimize(bo.trace(P)), [own]),
            [own],
            cp.Problem(cp.Minimize(cp.trace(Q)), [theirs]),
            [theirs],
        )

    def test_congruence_and_bounds_on_both_sides(self, rng):
        n, M, B = 5, rng.normal(size=(3, 5)), symmetric(rng, 3)
        C = symmetric(rng, n) + 4 * np.eye(n)
        X, Y = bo.PSD(n), cp.Variable((n, n), PSD=True)
        own = [M @ X @ M.T >> B, 5 * np.eye(n) >> X]
        theirs = [M @ Y @ M.T >> B, 5 * np.eye(n) >> Y]
        check(
            bo.Problem(bo.Minimize(bo.inner(C, X)), own),
            own,
            cp.Problem(cp.Minimize(cp.trace(C @ Y)), theirs),
            theirs,
        )

    def test_two_matrices_and_a_vector(self, rng):
        C, D = symmetric(rng, 4) + 3 * np.eye(4), symmetric(rng, 4)
        X, Y, d = bo.PSD(4), bo.PSD(4), bo.Variable(4)
        U, V, e = cp.Variable((4, 4), PSD=True), cp.Variable((4, 4), PSD=True), cp.Variable(4)
        own, theirs = [X - Y + bo.diag(d) >> C], [U - V + cp.diag(e) >> C]
        rows, their_rows = [bo.trace(X) <= 3, d <= 4], [cp.trace(U) <= 3, e <= 4]
        check(
            bo.Problem(bo.Minimize(bo.trace(Y) + bo.inner(D @ D, X) + bo.sum(d)), own + rows),
            own,
            cp.Problem(cp.Minimize(cp.trace(V) + cp.trace(D @ D @ U) + cp.sum(e)), theirs + their_rows),
            theirs,
        )

    def test_schur_complement(self, rng):
        A, b = rng.normal(size=(4, 3)), rng.normal(size=4)
        x, t = bo.Variable(3), bo.Variable()
        r = A @ x - b
        own = bo.bmat([[np.eye(4), r[:, None]], [r[None, :], t]]) >> 0
        sol = bo.Problem(bo.Minimize(t), [own]).solve(tol=1e-9)
        least = np.linalg.lstsq(A, b, rcond=None)
        assert sol.value == pytest.approx(least[1][0], rel=1e-6)
        np.testing.assert_allclose(x.value, least[0], atol=1e-4)
        assert sol.X == sol.rank == ()
        assert "no matrix variable" in repr(sol)

    def test_of_a_variable_as_a_whole_is_its_own_cone(self, rng):
        C = symmetric(rng, 4)
        X, Y = bo.PSD(4), cp.Variable((4, 4), symmetric=True)
        own, theirs = X >> 0, Y >> 0
        problem = bo.Problem(bo.Minimize(bo.inner(C, X)), [own, bo.trace(X) == 1])
        assert len(problem.program().blocks) == 1
        check(problem, [own], cp.Problem(cp.Minimize(cp.trace(C @ Y)), [theirs, cp.trace(Y) == 1]), [theirs])

    def test_with_a_divergence(self, rng):
        A, B = symmetric(rng, 4), symmetric(rng, 4)
        X, Y = bo.PSD(4), cp.Variable((4, 4), PSD=True)
        own, theirs = X >> B, Y >> B
        problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [own])
        sol = peers.reference(problem)
        peer = peers.ask(cp.Problem(cp.Minimize(cp.sum_squares(Y - A)), [theirs]))
        peer.near(sol.X, Y.value, atol=1e-3)
        peer.near(own.dual_value, theirs.dual_value, atol=1e-2)

    def test_infeasible_holds_a_farkas_vector(self):
        x = bo.Variable()
        own, other = x * np.eye(2) >> np.eye(2), x * np.eye(2) << np.diag([0.5, 3])
        sol = bo.Problem(bo.Minimize(x), [own, other]).solve()
        assert sol.status == "infeasible"
        S, T = own.dual_value, other.dual_value  # <S - T, I> = 0 and <S, I> > <T, diag(.5, 3)>
        assert np.trace(S) == pytest.approx(np.trace(T))
        assert np.trace(S) > T[0, 0] / 2 + 3 * T[1, 1]

    def test_many_small_ones_are_read_as_the_dual(self, rng, capsys):
        m, count, n = 5, 30, 4
        A = rng.normal(size=(count, m, n, n))
        A = A + A.transpose(0, 1, 3, 2)
        x = bo.Variable(m)
        own = [np.eye(n) + sum(x[k] * A[g, k] for k in range(m)) >> 0 for g in range(count)]
        problem = bo.Problem(bo.Minimize(np.ones(m) @ x), own)
        problem.explain()
        assert f"dual of {count} matrix inequalities, with {m} rows instead" in capsys.readouterr().out
        y = cp.Variable(m)
        theirs = [np.eye(n) + sum(y[k] * A[g, k] for k in range(m)) >> 0 for g in range(count)]
        check(problem, own, cp.Problem(cp.Minimize(cp.sum(y)), theirs), theirs)


class TestSymmetricVariables:
    def test_nearest_matrix_between_two(self, rng):
        n, A, B = 4, symmetric(rng, 4), symmetric(rng, 4)
        S, t = bo.Variable((n, n), symmetric=True, name="S"), bo.Variable()
        Y, s = cp.Variable((n, n), symmetric=True), cp.Variable()
        own = [S >> A, S >> B, t * np.eye(n) >> S - A]
        theirs = [Y >> A, Y >> B, s * np.eye(n) >> Y - A]
        goal, other = t + bo.trace(S) / 10 + S[0, 1], s + cp.trace(Y) / 10 + Y[0, 1]
        problem = bo.Problem(bo.Minimize(goal), [*own, S <= 9, bo.sum(S) >= -3])
        sol = check(problem, own, cp.Problem(cp.Minimize(other), [*theirs, Y <= 9, cp.sum(Y) >= -3]), theirs)
        assert np.array_equal(S.value, S.value.T)
        assert sol.u["S"] is S.value
        assert not S.value.flags.writeable
        assert problem.objective.expression.value == pytest.approx(sol.value)

    def test_are_shown_as_such(self):
        S = bo.Variable((2, 2), symmetric=True, name="S")
        problem = bo.Problem(bo.Minimize(bo.trace(S)), [S >> np.eye(2)])
        assert "symmetric" in str(problem)
        assert r"S \in \mathbb{S}^{2}" in problem._repr_latex_()
        assert repr(S) == "Variable((2, 2), name='S', symmetric=True)"

    def test_elements_bounds_and_values(self, rng):
        A = symmetric(rng, 3)
        S = bo.Variable((3, 3), symmetric=True, lower=A - 1, upper=2)
        assert S.size == len(S.lower) == 6
        S.value = A
        np.testing.assert_array_equal(S.expression().value, A)
        np.testing.assert_array_equal((S @ np.eye(3)).value, A)
        np.testing.assert_array_equal(S.with_elements(S.elements), A)

    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (
                lambda: bo.Variable((2, 3), symmetric=True, name="S"),
                ValueError,
                r"S is symmetric and has shape \(2, 3",
            ),
            (lambda: bo.Variable(symmetric=True), ValueError, "expected a square matrix"),
            (
                lambda: bo.Variable((2, 2), symmetric=1),
                TypeError,
                "symmetric of .* is 1; expected True or False",
            ),
            (
                lambda: bo.Variable((2, 2), symmetric=True, lower=[[0, 1], [2, 0]]),
                ValueError,
                "lower of .* symmetric",
            ),
            (
                lambda: setattr(bo.Variable((2, 2), symmetric=True), "value", [[0, 1], [2, 0]]),
                ValueError,
                "not symm",
            ),
        ],
    )
    def test_what_is_refused(self, make, error, message):
        with pytest.raises(error, match=message):
            make()


def test_through_cvxpy_and_back():
    x = bo.Variable(2, name="x")
    own = bo.diag(x) << np.array([[2.0, 1.0], [1.0, 2.0]])
    problem = bo.Problem(bo.Maximize(bo.sum(x)), [own])
    sol = problem.solve()
    peers.ask(problem).agrees(sol.value, sol.error)


V, t = bo.Variable((3, 3), name="V"), bo.Variable(name="t")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda X: V >> 0, ValueError, r"V >> 0: .* not symmetric: its entries \[0, 1\] and \[1, 0\] are"),
        (lambda X: X >> 1, ValueError, r"X >> 1: 1 is a scalar; .* t \* np.eye\(n\)"),
        (lambda X: t << X, ValueError, "t << X: t is a scalar"),
        (lambda X: t >> 0, ValueError, "t >> 0: t is a scalar"),
        (lambda X: X[0] >> 0, ValueError, r"the matrix has shape \(3,\); expected a square matrix"),
        (lambda X: V[:2] >> 0, ValueError, r"the matrix has shape \(2, 3\)"),
        (lambda X: X >> np.ones((2, 2)), ValueError, r"shapes of X \(3, 3\) and .* \(2, 2\)"),
        (lambda X: X >> np.triu(np.ones((3, 3))), ValueError, r"X >> B: .* its entries \[0, 1\]"),
        (lambda X: bool(X >> 0), TypeError, "X >> 0 is a constraint and has no truth value; put it into"),
        (lambda X: bo.soft(X >> np.eye(3)), TypeError, "soft takes a constraint"),
        (lambda X: bo.sum(np.ones((2, 2)))[None, None] >> 0, ValueError, "has no variable; expected one"),
    ],
)
def test_what_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(bo.PSD(3, name="X"))


def test_problems_without_a_matrix_variable():
    x, t = bo.Variable(2, name="x"), bo.Variable(name="t")
    rows = [bo.bmat([[t, x[0]], [x[0], 1]]) >> 0, x[None, :1] >> np.array([[0.5]]), bo.sum(x) == 1]
    problem = bo.Problem(bo.Minimize(t), rows)
    assert repr(problem) == "Problem(Minimize(t), 3 constraints with 5 rows)"
    table = bo.cross_check(problem)
    assert table.ok
    assert {"path", "cvxpy"} <= {row.solver for row in table.rows}
    assert problem.value == pytest.approx(0.25, abs=1e-6)
    assert problem.solve(warm_start=True).status == "optimal"


def test_operands_stand_as_they_were_written():
    X = bo.PSD(3, name="X")
    B = sp.csr_array(np.eye(3))
    texts = [str(c.label) for c in (X >> 0, 0 << X, np.eye(3) >> X, B << X, X << 2 * X)]
    assert texts == ["X >> 0", "0 << X", "B >> X", "B << X", "X << 2 X"]
