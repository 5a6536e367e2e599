"""The modeling language: expressions, constraints, and errors for bad input."""

import operator
import re

import cvxpy as cp
import numpy as np
import peers
import pytest
import scipy.linalg
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import turns

import bregopt as bo
from bregopt.io.graphs import read_graph
from bregopt.program.rows import Distances, Entries, RankTwo, SparseRows
from bregopt.routes.base import Settings

N = 5


@pytest.fixture
def X(rng):
    X = bo.PSD(N, name="X")
    G = rng.normal(size=(N, N))
    X.value = G @ G.T
    return X


class TestAtoms:
    def test_values(self, X, rng):
        V = X.value
        A, Z, i, j = rng.normal(size=(N, N)), rng.normal(size=(3, N)), np.array([0, 1]), np.array([3, 4])
        A = A + A.T
        distance = V[i, i] + V[j, j] - 2 * V[i, j]
        np.testing.assert_allclose(bo.diag(X).value, np.diag(V))
        assert bo.trace(X).value == pytest.approx(np.trace(V))
        assert bo.inner(A, X).value == pytest.approx(np.vdot(A, V))
        assert bo.inner(sp.csr_array(A), X).value == pytest.approx(np.vdot(A, V))
        np.testing.assert_allclose(bo.inner([A, 2 * A], X).value, [np.vdot(A, V), 2 * np.vdot(A, V)])
        np.testing.assert_allclose(
            bo.inner(np.array([A, 2 * A]), X).value, [np.vdot(A, V), 2 * np.vdot(A, V)]
        )
        np.testing.assert_allclose(bo.quad_form(Z, X).value, np.diag(Z @ V @ Z.T))
        np.testing.assert_allclose(bo.quad_form(sp.csr_array(Z), X).value, np.diag(Z @ V @ Z.T))
        assert bo.quad_form(Z[0], X).value == pytest.approx(Z[0] @ V @ Z[0])
        np.testing.assert_allclose(bo.sq_distance(X, i, j).value, distance)
        np.testing.assert_allclose(
            bo.sq_distance(X, 0, [3, 4]).value, V[0, 0] + np.diag(V)[3:] - 2 * V[0, 3:]
        )

    @pytest.mark.parametrize(
        "key",
        [
            (0, 1),
            (-1, 2),
            ([0, 1, 2], [2, 3, 4]),
            (slice(None), 0),
            (slice(1, 4), slice(0, 2)),
            2,
            (np.arange(N), np.arange(N)),
            np.triu(np.ones((N, N), dtype=bool)),
            ([[0], [1]], [2, 3]),
        ],
    )
    def test_indexing_is_numpys(self, X, key):
        np.testing.assert_allclose(X[key].value, X.value[key])
        assert X[key].shape == X.value[key].shape

    def test_arithmetic(self, X, rng):
        V = X.value
        u, p = bo.Variable(N), bo.Parameter(N, value=np.arange(5.0))
        u.value = rng.normal(size=N)
        w, M = rng.normal(size=N), rng.normal(size=(2, N))
        e = 2 * bo.diag(X) - u * w + p / 2 - 1 + X[0, 1]
        expected = 2 * np.diag(V) - u.value * w + np.arange(5) / 2 - 1 + V[0, 1]
        np.testing.assert_allclose(e.value, expected)
        np.testing.assert_allclose((M @ e).value, M @ expected)
        np.testing.assert_allclose((sp.csr_array(M) @ e).value, M @ expected)
        assert (w @ e).value == pytest.approx(w @ expected)
        assert bo.sum(e).value == pytest.approx(expected.sum())
        np.testing.assert_allclose((w - e).value, w - expected)
        np.testing.assert_allclose((-e)[1:3].value, -expected[1:3])
        np.testing.assert_allclose((X - np.eye(N)).value, V - np.eye(N))
        assert (X[0, 1] - X[1, 0]).value == 0

    def test_structure_is_kept(self, X):
        i, j = np.arange(3), np.arange(3) + 1
        assert isinstance(bo.diag(X).psd[X], Entries)
        assert isinstance((3 * bo.sq_distance(X, i, j) - 1).psd[X], Distances)
        assert isinstance((bo.sq_distance(X, i, j) - bo.sq_distance(X, j, i + 2)).psd[X], RankTwo)
        assert isinstance((X[0, 1] + bo.trace(X)).psd[X], SparseRows)

    def test_thousands_of_rows_are_three_arrays(self):
        X = bo.PSD(2000)
        i, j = np.arange(1999), np.arange(1999) + 1
        problem = bo.Problem(bo.Minimize(bo.trace(X)), [bo.sq_distance(X, i, j) >= 1])
        (term,) = problem.program().A.terms
        assert isinstance(term.rows, Distances)

    def test_rows_from_a_loop_are_joined(self):
        X = bo.PSD(50)
        problem = bo.Problem(bo.Minimize(bo.trace(X)), [bo.sq_distance(X, k, k + 1) >= 1 for k in range(49)])
        (term,) = problem.program().A.terms
        assert isinstance(term.rows, Distances)
        assert term.rows.m == 49


class TestConstraints:
    def test_both_sides(self, X):
        for c in (bo.diag(X) <= 2, 2 >= bo.diag(X), np.full(N, 2.0) >= bo.diag(X)):
            assert c.sense == "<="
            np.testing.assert_allclose(c.upper.value, 2)
        for c in (bo.diag(X) == 1, 1 == bo.diag(X)):
            assert c.lower is c.upper

    def test_comparing_expressions(self, X):
        c = bo.sq_distance(X, 0, 1) <= bo.sq_distance(X, 2, 3) - 0.5
        assert c.upper.value == -0.5
        assert isinstance(c.body.psd[X], RankTwo)

    def test_chained_comparison_is_refused(self, X):
        with pytest.raises(TypeError, match="between"):
            0 <= X[0, 1] <= 1

    def test_strict_comparison_is_refused(self, X):
        with pytest.raises(TypeError, match="<="):
            X[0, 1] < 1
        with pytest.raises(TypeError, match="not a convex"):
            X[0, 1] != 1

    def test_readable(self, X):
        assert repr(bo.diag(X) == 1) == "Constraint(diag(X) == 1, rows=5)"
        assert "soft" in repr(bo.soft(X[0, 1] >= 0.5))
        assert "0.1 <= X[0, 1] <= 0.3" in repr(bo.between(X[0, 1], 0.1, 0.3))

    def test_differences_of_distances_are_readable(self, X):
        near, far, t = bo.sq_distance(X, 0, 1), bo.sq_distance(X, 2, 3), bo.Parameter(value=0.5, name="t")
        many = bo.sq_distance(X, [0, 1], [2, 3])
        assert (near <= far).label == "sq_distance(X, 0, 1) - sq_distance(X, 2, 3) <= 0"
        assert (near - far <= 0.5).label == "sq_distance(X, 0, 1) - sq_distance(X, 2, 3) <= 0.5"
        assert (near <= far + t).label == "sq_distance(X, 0, 1) - sq_distance(X, 2, 3) <= t"
        assert (many <= far).label == "sq_distance(X, [0, ...], [2, ...]) - sq_distance(X, 2, 3) <= 0"
        sums = (near + near <= far + near).label  # too long to help
        assert sums == "sq_distance(X, 0, 1) + sq_distance(X, 0, 1) + ... <= 0"
        assert (X[0, 0] >= X[1, 1] + X[2, 2]).label == "X[0, 0] - (X[1, 1] + X[2, 2]) >= 0"
        assert (X[0, 0] - (X[1, 1] - X[2, 2]) >= 0).label == "X[0, 0] - (X[1, 1] - X[2, 2]) >= 0"
        assert (X[0, 0] - (-X[1, 1]) >= 0).label == "X[0, 0] + X[1, 1] >= 0"
        assert (2 * (X[0, 0] - X[1, 1]) == t).label == "2 (X[0, 0] - X[1, 1]) == t"
        assert (X >= 0).label == "X >= 0"


class TestIteration:
    def test_goes_over_the_first_axis(self, X):
        np.testing.assert_allclose([row.value for row in X], X.value)
        np.testing.assert_allclose([entry.value for entry in bo.diag(X)], np.diag(X.value))
        np.testing.assert_allclose(sum(X).value, X.value.sum(axis=0))
        assert [e.shape for e in bo.Variable(2)] == [(), ()]

    def test_scalars_have_no_elements(self, X):
        with pytest.raises(TypeError, match=r"trace\(X\) is a scalar"):
            list(bo.trace(X))
        with pytest.raises(TypeError, match="t is a scalar"):
            list(bo.Parameter(name="t"))

    def test_a_matrix_is_no_list_of_constraints(self, X):
        with pytest.raises(TypeError, match=r"a constraint is PSD\(5, name='X'\)"):
            bo.Problem(bo.Minimize(bo.trace(X)), [X])


A = np.array([[2.0, 0.5], [0.5, 1.0]])
TWO_SIDES = {
    "number": lambda b, X, t, v: (b.trace(X), 1.0),
    "numpy number": lambda b, X, t, v: (b.trace(X), np.float64(1.0)),
    "parameter": lambda b, X, t, v: (b.trace(X), t),
    "array": lambda b, X, t, v: (b.diag(X), np.array([0.6, 0.7])),
    "array parameter": lambda b, X, t, v: (b.diag(X), v),
    "parameter and number": lambda b, X, t, v: (b.diag(X), v + 0.1),
    "expressions": lambda b, X, t, v: (X[0, 0], X[1, 1] + 0.2 * t),
    "difference": lambda b, X, t, v: (t - b.trace(X), 0.0),
}


class TestDualSigns:
    """The same constraint, written the same way, here and in CVXPY."""

    @pytest.mark.parametrize(
        ("compare", "swapped", "sides"),
        turns([operator.eq, operator.le, operator.ge], [False, True], list(TWO_SIDES)),
    )
    def test_are_cvxpys(self, sides, swapped, compare):
        problems, rows = [], []
        for b, X in ((bo, bo.PSD(2)), (cp, cp.Variable((2, 2), PSD=True))):
            left, right = TWO_SIDES[sides](b, X, b.Parameter(value=1.0), b.Parameter(2, value=[0.6, 0.7]))
            row = compare(right, left) if swapped else compare(left, right)
            objective = bo.frobenius_div(X, A) if b is bo else cp.sum_squares(X - A)
            problems.append(b.Problem(b.Minimize(objective), [row]))
            rows.append(row)
        problems[0].solve(solver="bregman")
        peer = peers.ask(problems[1])
        peer.near(rows[0].dual_value, peer.duals[0], atol=1e-4)
        if compare is operator.eq:
            assert np.abs(rows[0].dual_value).min() > 0.1  # large enough to show a wrong sign

    def test_soft_rows_keep_them(self):
        X, t = bo.PSD(2), bo.Parameter(value=1.0)
        rows = [bo.soft(bo.trace(X) == t), bo.soft(t == bo.trace(X))]
        for row in rows:
            bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [row]).solve()
        assert rows[0].dual_value == pytest.approx(-rows[1].dual_value)

    @pytest.mark.parametrize("solver", ["bregman", "cvxpy"])
    def test_infeasible_rows_hold_a_farkas_vector(self, solver):
        X = bo.PSD(2)
        rows = [X[0, 1] <= -1, 2 <= X[0, 1]]
        problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), rows)
        sol = problem.solve(solver=solver) if solver == "bregman" else peers.reference(problem)
        assert sol.status == "infeasible"
        y = np.array([row.dual_value for row in rows])
        np.testing.assert_array_equal(y, sol.duals)
        # One up to a factor, as X[0, 1] has either sign; not negative, as CVXPY states duals of inequalities.
        np.testing.assert_allclose(y / y[0], [1, 1], atol=1e-2)
        assert y[0] > 0

    def test_unbounded_rows_hold_none(self):
        X = bo.PSD(2)
        row = X[0, 0] <= 1
        sol = bo.Problem(bo.Maximize(bo.trace(X)), [row]).solve()
        assert (sol.status, sol.duals, row.dual_value) == ("unbounded", None, None)


class TestParameters:
    def test_right_hand_side_changes_without_compiling(self):
        X, b = bo.PSD(2), bo.Parameter(value=1.0)
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(2))), [bo.trace(X) == b])
        before = problem._compiled
        assert problem.solve().X[0, 0] == pytest.approx(0.5)
        b.value = 4.0
        assert problem.solve(warm_start=True).X[0, 0] == pytest.approx(2.0)
        assert problem._compiled is before

    def test_weight_and_gamma(self):
        X, mu, gamma = bo.PSD(1), bo.Parameter(value=1.0), bo.Parameter(value=2.0)
        row = bo.soft(X[0, 0] <= 0.4, gamma=gamma)
        problem = bo.Problem(bo.Minimize(mu * bo.logdet_div(X, [[1.0]])), [row])
        for m, g in ((1.0, 2.0), (0.5, 3.0)):
            mu.value, gamma.value = m, g
            # m (1 - 1/x) + g (1/0.4 - 1/x) = 0
            assert problem.solve(tol=1e-9).X[0, 0] == pytest.approx((m + g) / (m + g / 0.4), rel=1e-5)

    def test_errors(self):
        X, p = bo.PSD(2), bo.Parameter(2, name="p")
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(2))), [bo.diag(X) == p])
        with pytest.raises(ValueError, match="parameter p has no value"):
            problem.solve()
        with pytest.raises(ValueError, match=r"shape \(3,\); expected \(2,\)"):
            p.value = np.ones(3)
        with pytest.raises(TypeError, match=r"product of two expressions with parameters.*DPP"):
            p * (p[0] * bo.diag(X))
        with pytest.raises(ValueError, match="weight -1"):
            w = bo.Parameter(value=-1.0, name="w")
            bo.Problem(bo.Minimize(w * bo.logdet_div(X, np.eye(2)))).solve()


class TestWarmStart:
    def test_fewer_cycles_from_the_last_answer(self, rng):
        X, n = bo.PSD(6), 6
        G = rng.normal(size=(n, n))
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, G @ G.T + np.eye(n))), [bo.diag(X) == 1])
        cold = problem.solve(solver="bregman")
        warm = problem.solve(solver="bregman", warm_start=True)
        assert warm.history["gap"][0] < cold.history["gap"][0]
        assert warm.value == pytest.approx(cold.value, rel=1e-6)

    def test_from_another_solution(self, rng):
        def problem(mu):
            X = bo.PSD(4)
            return bo.Problem(bo.Minimize(mu * bo.logdet_div(X, np.diag([1.0, 2, 3, 4]))), [bo.diag(X) == 1])

        first = problem(1.0).solve(solver="bregman")
        second = problem(1.1).solve(solver="bregman", warm_start=first)
        assert second.status == "optimal"
        with pytest.raises(ValueError, match="warm_start has 4 rows"):
            X = bo.PSD(4)
            bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(4))), [bo.trace(X) == 1]).solve(warm_start=first)


class TestOtherPackagesFunctions:
    """Functions of other packages refuse our expressions, and the error names an alternative."""

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (np.trace, "numpy.trace takes no expression of bregopt; use bo.trace"),
            (np.diag, "numpy.diag takes .*; use bo.diag"),
            (np.sum, "numpy.sum takes .*; use bo.sum"),
            (np.mean, "numpy.mean takes .*; use bo.sum and the operator /"),
            (np.exp, "numpy.exp takes .*; there are bo.trace, bo.diag"),
            (lambda X: np.matmul(X, X), "numpy.matmul takes .*; use the operator @"),
            (np.linalg.qr, "numpy.linalg.qr takes .*; there are bo.trace, bo.diag"),
            (np.linalg.eigvalsh, "eigvalsh takes .*; use bo.lambda_max and bo.lambda_min"),
            (lambda X: np.vstack([X[0], X[1]]), "numpy.vstack takes"),
            (lambda X: np.dot(np.ones(N), X[0]), "numpy.dot takes"),
            (
                cp.trace,
                "a function of numpy, scipy or CVXPY takes no expression of bregopt; there are bo.trace",
            ),
            (scipy.linalg.norm, "a function of numpy, scipy or CVXPY takes"),
            (scipy.linalg.expm, "a function of numpy, scipy or CVXPY takes"),
            (lambda X: cp.sum(X[0]), "a function of numpy, scipy or CVXPY takes"),
            (lambda X: np.asarray(X, dtype=float), "a function of numpy, scipy or CVXPY takes"),
        ],
    )
    def test_they_are_refused(self, X, call, message):
        with pytest.raises(TypeError, match=message):
            call(X)

    def test_series_of_pandas_defer(self, X):
        pandas = pytest.importorskip("pandas")
        b = pandas.Series(np.arange(5.0))
        row = b >= X[0]
        assert (row.size, row.sense) == (5, "<=")
        np.testing.assert_allclose((b - X[0]).value, b - X.value[0])
        np.testing.assert_allclose((X @ b).value, X.value @ b)

    @pytest.mark.parametrize("matrix", [np.arange(15.0).reshape(3, N), sp.csr_array(np.eye(3, N))])
    def test_products_still_are_ours(self, X, matrix):
        row = X[0]
        dense = matrix.toarray() if sp.issparse(matrix) else matrix
        np.testing.assert_allclose((matrix @ row).value, dense @ X.value[0])
        np.testing.assert_allclose((row @ matrix.T).value, X.value[0] @ dense.T)
        np.testing.assert_allclose((row @ np.arange(5.0)).value, X.value[0] @ np.arange(5.0))

    @pytest.mark.parametrize(
        ("product", "shapes"),
        [
            (lambda X: X @ np.ones(4), r"\(5, 5\) and \(4,\); expected \(5, 5\) and \(5, ..\)"),
            (lambda X: np.ones((5, 2)) @ X, r"\(5, 2\) and \(5, 5\); expected \(.., 5\) and \(5, 5\)"),
            (lambda X: X[0] @ np.ones((2, 4)), r"\(5,\) and \(2, 4\); expected \(5,\) and \(5, ..\)"),
            (lambda X: np.ones((4, 2)) @ X[0], r"\(4, 2\) and \(5,\); expected \(.., 5\) and \(5,\)"),
        ],
    )
    def test_shapes_of_a_product_stand_as_they_were_written(self, X, product, shapes):
        with pytest.raises(ValueError, match=f"^@ of shapes {shapes}"):
            product(X)


def test_indices_out_of_range_are_named(X):
    for call in (lambda: X[5], lambda: X[0][5], lambda: bo.Variable(2, name="u")["a"]):
        with pytest.raises(ValueError, match=r"index of (X|X\[...\]|u), "):
            call()


class TestValuesThatAreSet:
    """A value is checked and copied when it is set, as in CVXPY."""

    def test_they_are_copied_and_read_only(self, X):
        given = np.diag(np.arange(1.0, N + 1))
        X.value = given
        given[0, 0] = 7
        assert X.value[0, 0] == 1
        with pytest.raises(ValueError, match="read-only"):
            X.value[0, 0] = 99
        u = bo.Variable(upper=2.0)
        u.value = 2
        assert (u.value, (u + 1).value) == (2.0, 3.0)
        u.value = X.value = None
        assert u.value is X.value is None

    def test_low_rank(self, X):
        X.value = bo.LowRank(np.ones((N, 1)))
        assert bo.trace(X).value == N
        with pytest.raises(ValueError, match=r"value of X has shape \(2, 2\); expected 5 x 5"):
            X.value = bo.LowRank(np.ones((2, 1)))

    @pytest.mark.parametrize("solver", ["path", "psdboost"])
    def test_answers_may_be_set_again(self, solver):
        X, u = bo.PSD(3), bo.Variable(2, nonneg=True, upper=[1.0, 2.0])
        objective = bo.Minimize(bo.inner(np.ones((3, 3)), X) - bo.sum(u))
        bo.Problem(objective, [bo.diag(X) == 1, bo.sum(u) <= 2]).solve(solver=solver)
        matrix, vector = X.value, u.value
        X.value, u.value = matrix, vector
        np.testing.assert_array_equal(X.value, matrix)
        np.testing.assert_array_equal(u.value, vector)

    @pytest.mark.parametrize(
        ("value", "error", "message"),
        [
            (np.ones((7, 2)), ValueError, r"value of X has shape \(7, 2\); expected a square matrix, 5 x 5"),
            (np.eye(3), ValueError, "value of X is 3 x 3; expected 5 x 5"),
            (np.triu(np.ones((N, N))), ValueError, "value of X is not symmetric: entry .0, 1. is 1"),
            (-np.eye(N), ValueError, "value of X has the eigenvalue -1; expected a positive semidefinite"),
            (np.full((N, N), np.nan), ValueError, "value of X has 25 NaN"),
            (1j * np.eye(N), TypeError, "value of X is complex"),
            ("eye", TypeError, "value of X has dtype"),
        ],
    )
    def test_matrices_that_are_refused(self, X, value, error, message):
        before = X.value
        with pytest.raises(error, match=message):
            X.value = value
        assert X.value is before

    @pytest.mark.parametrize(
        ("value", "error", "message"),
        [
            ([1.0, 2.0, 3.0], ValueError, r"value of u has shape \(3,\); expected \(2,\)"),
            (1.0, ValueError, r"value of u has shape \(\); expected \(2,\)"),
            ([0.0, -1.0], ValueError, "value of u is -1 at 1; expected 0 to 4"),
            ([5.0, 0.0], ValueError, "value of u is 5 at 0; expected 0 to 4"),
            ([np.inf, 0.0], ValueError, "value of u has 1 NaN or Inf"),
            (["a", "b"], TypeError, "value of u has dtype"),
        ],
    )
    def test_vectors_that_are_refused(self, value, error, message):
        u, p = bo.Variable(2, nonneg=True, upper=4.0, name="u"), bo.Parameter(2, name="u")
        with pytest.raises(error, match=message):
            u.value = value
        if "expected 0 to 4" not in message:
            with pytest.raises(error, match=message.replace("of u", "of parameter u")):
                p.value = value


SYMMETRIC_ARGUMENTS = {
    "nearest_correlation": lambda A: bo.nearest_correlation(A).X,
    "inner": lambda A: bo.inner(A, bo.PSD(3)).psd.popitem()[1].adjoint(np.ones(1)),
    "sparse inner": lambda A: bo.inner(sp.csr_array(A), bo.PSD(3)).psd.popitem()[1].adjoint(np.ones(1)),
    "graph": lambda A: read_graph(A - np.eye(3)).adjacency.toarray(),
    "sparse graph": lambda A: read_graph(sp.coo_array(A - np.eye(3))).adjacency.toarray(),
}


class TestAsymmetry:
    """Asymmetry by round-off is averaged, a little more warns, and larger asymmetry is refused."""

    @pytest.fixture(params=SYMMETRIC_ARGUMENTS)
    def consumer(self, request):
        return SYMMETRIC_ARGUMENTS[request.param]

    @staticmethod
    def skewed(by):
        A = np.array([[1.0, 0.9, 0.4], [0.9, 1.0, 0.3], [0.4, 0.3, 1.0]])
        A[0, 2] += by
        return A

    def mean(self, by):
        A = self.skewed(by)
        return (A + A.T) / 2

    def test_round_off_is_averaged(self, consumer):
        np.testing.assert_array_equal(consumer(self.skewed(1e-12)), consumer(self.mean(1e-12)))

    @pytest.mark.parametrize("by", [1e-9, 3e-7])
    def test_that_of_printed_digits_is_averaged_with_a_warning(self, consumer, by):
        A = self.skewed(by)
        pair = r"entry \(0, 2\) is 0\.4\d+ but entry \(2, 0\) is 0\.4\. Means are taken"
        with pytest.warns(bo.DataWarning, match=pair):
            found = consumer(A)
        np.testing.assert_array_equal(found, consumer(self.mean(by)))
        np.testing.assert_array_equal(A, self.skewed(by))

    def test_more_is_refused(self, consumer):
        with pytest.raises(
            ValueError, match=r"not symmetric: entry \(0, 2\) is 0.40001 but .* \(A \+ A.T\) / 2"
        ):
            consumer(self.skewed(1e-5))


SINGULAR = np.array([[1.0, 1.0], [1.0, 1.0]])
INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])


class TestBadInput:
    """Each gives one clear error that names the argument."""

    @pytest.mark.parametrize("div", [bo.logdet_div, bo.von_neumann_div, bo.frobenius_div])
    @pytest.mark.parametrize(
        ("X0", "error", "message"),
        [
            ([[1.0, np.nan], [np.nan, 1.0]], ValueError, r"X0 of \w+_div has 2 NaN"),
            ([[1.0, np.inf], [np.inf, 1.0]], ValueError, "NaN or Inf"),
            ([[1.0, 0.5], [0.4, 1.0]], ValueError, r"X0 of .* is not symmetric: entry \(0, 1\) is 0.5"),
            ([[1.0, 0.5]], ValueError, r"X0 of .* shape \(1, 2\); expected a square"),
            (np.eye(3), ValueError, "X0 of .* is 3 x 3; expected 2 x 2"),
            (np.eye(2) * 1j, TypeError, "X0 of .* is complex"),
            (np.array([[object(), 1], [1, 2]]), TypeError, "X0 of .* dtype object"),
            ([["a", "b"], ["b", "a"]], TypeError, "X0 of .* dtype"),
            ([[1.0], [1.0, 2.0]], ValueError, "X0 of .* ragged"),
            (1.0, ValueError, "X0 of .* 0 dimensions"),
        ],
    )
    def test_start(self, div, X0, error, message):
        with pytest.raises(error, match=message):
            div(bo.PSD(2), X0)

    @pytest.mark.parametrize("div", [bo.logdet_div, bo.von_neumann_div])
    def test_start_must_be_positive_definite(self, div):
        with pytest.raises(ValueError, match=r"smallest eigenvalue is -1 .*lift"):
            div(bo.PSD(2), INDEFINITE)
        with pytest.raises(ValueError, match="LowRank"):
            div(bo.PSD(2), SINGULAR)
        with pytest.raises(ValueError, match="3 x 3; expected 2 x 2"):
            div(bo.PSD(2), bo.LowRank(np.ones((3, 1))))

    def test_frobenius_takes_indefinite_but_not_low_rank(self):
        bo.frobenius_div(bo.PSD(2), INDEFINITE)
        with pytest.raises(TypeError, match="dense"):
            bo.frobenius_div(bo.PSD(2), bo.LowRank(np.ones((2, 1))))
        with pytest.raises(ValueError, match="weights"):
            bo.frobenius_div(bo.PSD(2), INDEFINITE, weights=np.zeros((2, 2)))

    @pytest.mark.parametrize(
        ("i", "j", "error", "message"),
        [
            ([], [], ValueError, "i of sq_distance is empty"),
            ([0], [5], ValueError, "j of sq_distance has index 5"),
            ([-6], [0], ValueError, "i of sq_distance has index -6"),
            ([0, 2], [1, 2], ValueError, "i == j == 2 at place 1"),
            ([0.5], [1], TypeError, "i of sq_distance has dtype float64"),
            ([0, 1, 2], [3, 4], ValueError, "lengths 3 and 2"),
            ([[0, 1]], [2], ValueError, r"shape \(1, 2\)"),
            (4, -1, ValueError, "i == j == 4"),
        ],
    )
    def test_distance_indices(self, i, j, error, message):
        with pytest.raises(error, match=message):
            bo.sq_distance(bo.PSD(5), i, j)

    def test_entries(self):
        X = bo.PSD(3, name="K")
        with pytest.raises(ValueError, match="index of K, 3 x 3"):
            X[0, 3]
        with pytest.raises(ValueError, match="index of K is empty"):
            X[[], []]

    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (lambda X: bo.inner(np.eye(4), X), ValueError, "A of inner is 4 x 4; expected 3 x 3"),
            (lambda X: bo.inner([], X), ValueError, "A of inner"),
            (
                lambda X: bo.inner([np.eye(3), np.triu(np.ones((3, 3)))], X),
                ValueError,
                r"A\[1\] of inner is not",
            ),
            (lambda X: bo.inner(sp.csr_array(np.triu(np.ones((3, 3)))), X), ValueError, "not symmetric"),
            (
                lambda X: bo.inner([np.eye(3), np.eye(2)], X),
                ValueError,
                r"A\[1\] of inner is 2 x 2; expected 3",
            ),
            (lambda X: bo.inner([[1, 2], [1]], X), ValueError, "A of inner is ragged"),
            (
                lambda X: bo.partial_trace(X, (1, 3), [[0], [0, 1]]),
                ValueError,
                "keep of partial_trace is ragged",
            ),
            (lambda X: bo.partial_trace(X, [[1], [3, 1]], 0), ValueError, "dims of partial_trace is ragged"),
            (lambda X: bo.inner([[[1], [1, 2]]], X), ValueError, r"A\[0\] of inner is ragged"),
            (
                lambda X: bo.inner(3, X),
                ValueError,
                "A of inner is 3; expected a matrix or matrices of order 3",
            ),
            (lambda X: bo.quad_form(np.ones((2, 4)), X), ValueError, "rows of length 3"),
            (lambda X: bo.quad_form(np.zeros((0, 3)), X), ValueError, "no rows"),
            (lambda X: bo.quad_form([[1, np.nan, 0]], X), ValueError, "Z of quad_form has 1 NaN"),
            (lambda X: bo.quad_form(sp.csr_array([[np.inf, 0, 0]]), X), ValueError, "NaN or Inf"),
            (lambda X: bo.diag(np.eye(3)), TypeError, "X of diag is ndarray; expected a bo.PSD"),
            (lambda X: bo.logdet_div(np.eye(3), np.eye(3)), TypeError, "X of logdet_div"),
            (lambda X: X[0, 1] + np.nan, ValueError, "NaN"),
            (lambda X: X[0, 1] <= 1j, TypeError, "complex"),
            (lambda X: X[0, 1] / 0, ValueError, r"\[0, 1\] by zero; expected a divisor without zeros"),
            (lambda X: X[0, 1] ** 2, TypeError, r"write bo.square\(X.*\[0, 1\]\)"),
            (lambda X: abs(X), TypeError, r"write bo.abs\(X"),
            (lambda X: X[0, 1] != 1, TypeError, "expected ==, <= or >="),
            (lambda X: bo.between(1, 0, 2), ValueError, "expected one with a variable"),
            (lambda X: bool(bo.lambda_max(X) <= 1), TypeError, "put it into the constraints"),
            (lambda X: bool(bo.norm1(X) <= 1), TypeError, "put it into the constraints"),
            (lambda X: X[0, 1] * X[0, 2], TypeError, "not affine"),
            (lambda X: bo.diag(X) + np.ones(4), ValueError, r"\(3,\) and constant \(4,\)"),
            (lambda X: np.ones((2, 4)) @ bo.diag(X), ValueError, "@ of shapes"),
            (lambda X: bo.soft(bo.diag(X) == 1, gamma=0), ValueError, "gamma of soft has the value 0"),
            (lambda X: bo.soft(bo.diag(X) == 1, gamma=-1), ValueError, "gamma of soft"),
            (lambda X: bo.soft(bo.diag(X) == 1, gamma=[1, 2]), ValueError, r"shape \(2,\); expected \(3,\)"),
            (lambda X: bo.soft(bo.diag(X) == 1, gamma=np.nan), ValueError, "gamma of soft"),
            (lambda X: bo.soft(bo.diag(X) == 1, penalty="hing"), ValueError, "penalty of soft is 'hing'"),
            (
                lambda X: bo.soft(bo.soft(bo.diag(X) == 1)),
                ValueError,
                "soft already; expected a hard constraint",
            ),
            (lambda X: bo.soft(3), TypeError, "soft takes a constraint; got int"),
            (
                lambda X: bo.between(bo.diag(X), 0, X[0, 0]),
                ValueError,
                "upper of between contains a variable",
            ),
            (lambda X: bo.Minimize(bo.diag(X)), ValueError, "expected a scalar, such as its bo.sum"),
            (lambda X: bo.Minimize(-bo.logdet_div(X, np.eye(3))), TypeError, "may be maximized only"),
            (lambda X: bo.Maximize(bo.logdet_div(X, np.eye(3))), TypeError, "may be minimized only"),
            (lambda X: bo.Problem(X), TypeError, "objective is PSD"),
            (lambda X: bo.Problem(bo.Minimize(bo.trace(X)), [3]), TypeError, "a constraint is 3"),
            (lambda X: bo.Problem(bo.Minimize(bo.trace(X)), [True]), TypeError, "a constraint is True"),
            (lambda X: bo.Problem(bo.Minimize(bo.Variable())), ValueError, "no bo.PSD variable"),
            (
                lambda X: bo.Problem(
                    bo.Minimize(2 * bo.logdet_div(X, np.eye(3)) + bo.logdet_div(X, np.eye(3)))
                ),
                ValueError,
                "2 divergences",
            ),
            (
                lambda X: bo.between(bo.diag(X), 0, [1, 2]),
                ValueError,
                r"upper of between has shape \(2,\); expected \(3,\)",
            ),
            (
                lambda X: bo.between(bo.diag(X) + 1, [0, 3, 0], 2),
                ValueError,
                r"between of diag\(X\d*\), row 1: lower is 3 but upper is 2",
            ),
            (
                lambda X: bo.between(X[0, 1], 1, 0),
                ValueError,
                r"between of X\d*\[0, 1\]: lower is 1 but upper is 0; expected lower <= upper",
            ),
            (lambda X: bo.PSD(2, name=3), TypeError, "name is 3; expected a string"),
            (lambda X: bo.PSD(2, name=""), ValueError, "name is empty"),
            (lambda X: bo.PSD(2, nonneg=True), TypeError, "nonneg"),
            (lambda X: bo.Variable(name=b"u"), TypeError, "name is b'u'"),
            (lambda X: bo.Parameter(name=("t",)), TypeError, "name is"),
            (
                lambda X: bo.Variable(nonneg="no", name="u"),
                TypeError,
                "nonneg of u is 'no'; expected True or False",
            ),
            (lambda X: bo.PSD(0), ValueError, "n is 0"),
            (lambda X: bo.PSD(2.5), TypeError, "n is 2.5"),
            (lambda X: bo.PSD(True), TypeError, "n is True"),
            (lambda X: bo.Variable(2, lower=1, upper=[2, 0]), ValueError, "lower is 1 but upper is 0 at 1"),
            (lambda X: bo.Variable(2, lower=[1, 2, 3]), ValueError, "lower of"),
            (lambda X: bo.Variable(nonneg=True, lower=1), ValueError, "not both"),
            (lambda X: bo.LowRank([1, 2]), ValueError, "factor has 1 dimensions"),
            (lambda X: bo.LowRank(np.zeros((3, 0))), ValueError, "at least one"),
            (lambda X: bo.LowRank([[np.nan]]), ValueError, "factor has 1 NaN"),
        ],
    )
    def test_message_names_the_argument(self, make, error, message):
        with pytest.raises(error, match=message):
            make(bo.PSD(3))

    def test_two_variables_of_one_name(self):
        X, Y = bo.PSD(2, name="X"), bo.PSD(2, name="X")
        with pytest.raises(ValueError, match="two variables are called 'X'"):
            bo.Problem(bo.Minimize(bo.trace(X) + bo.trace(Y)))

    def test_crossed_bounds(self):
        X, high = bo.PSD(2), bo.Parameter(2, value=[1, 2])  # numbers are refused at the declaration
        problem = bo.Problem(bo.Minimize(bo.trace(X)), [bo.between(bo.diag(X), [0, 3], high)])
        with pytest.raises(ValueError, match=r"constraint 0 .* row 1: lower bound 3 is above upper bound 2"):
            problem.solve()
        high.value = [1, 4]
        assert problem.solve().status == "optimal"

    @pytest.mark.parametrize("div", [bo.logdet_div, bo.von_neumann_div, bo.frobenius_div])
    def test_row_that_no_psd_matrix_meets(self, div):
        X = bo.PSD(3)
        problem = bo.Problem(bo.Minimize(div(X, np.eye(3))), [bo.sq_distance(X, [0, 1], [1, 2]) <= [1, -1]])
        with pytest.raises(bo.InfeasibleRowError, match=r"constraint 0 .*, row 1 .* never negative"):
            problem.solve()

    def test_row_infeasible_by_range_space(self):
        X = bo.PSD(3)
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(3))), [bo.sq_distance(X, 0, 1) <= 0])
        with pytest.raises(bo.InfeasibleRowError, match="LogDet keeps"):
            problem.solve()
        G = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])  # points 0 and 2 are equal
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(G))), [bo.sq_distance(X, 0, 2) >= 0.5])
        with pytest.raises(bo.InfeasibleRowError, match="always 0"):
            problem.solve()

    def test_soft_penalty_outside_its_domain(self):
        X = bo.PSD(2)
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(2))), [bo.soft(X[0, 1] >= -0.5)])
        with pytest.raises(ValueError, match=r'bound -0.5.*penalty="hinge"'):
            problem.solve()

    def test_unknown_solver_and_options(self):
        X = bo.PSD(2)
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(2))), [bo.trace(X) == 1])
        with pytest.raises(ValueError, match=r"unknown solver 'SCS'.*, backend='SCS'"):
            problem.solve(solver="SCS")
        with pytest.raises(ValueError, match="unknown solver 'bergman'; did you mean 'bregman'"):
            problem.solve(solver="bergman")
        with pytest.raises(TypeError, match="no option 'tool'; did you mean 'tol'"):
            problem.solve(solver="bregman", tool=1e-3)
        with pytest.raises(TypeError, match="no solver has an option 'metod'; did you mean 'method'"):
            problem.solve(metod="cyclic")
        with pytest.raises(ValueError, match="method is 'cylic'; did you mean 'cyclic'"):
            problem.solve(solver="bregman", method="cylic")
        with pytest.raises(ValueError, match="tol is -1"):
            problem.solve(tol=-1)
        with pytest.raises(TypeError, match=r"max_iter is 2.5"):
            problem.solve(max_iter=2.5)
        for solver in (3, None, int, [], Settings()):
            for ask in (problem.solve, problem.explain):
                with pytest.raises(TypeError, match=re.escape(f"solver is {solver!r}")):
                    ask(solver=solver)
        for warm_start in ("yes", 1, None, np.eye(2)):
            with pytest.raises(
                TypeError, match=r"(?s)warm_start is .*; expected True, False or the Solution"
            ):
                problem.solve(warm_start=warm_start)
        assert problem.solution is None
        assert X.value is None

    def test_arrays_are_never_modified(self, rng):
        X0, b, i, j, A = np.eye(3), np.ones(3), np.array([0, -1]), np.array([1, 1]), np.diag([1.0, 2.0, 3.0])
        kept = [a.copy() for a in (X0, b, i, j, A)]
        X = bo.PSD(3)
        bo.Problem(
            bo.Minimize(bo.logdet_div(X, X0) + bo.inner(A, X)),
            [bo.diag(X) == b, bo.sq_distance(X, i, j) <= 1.5],
        ).solve()
        for array, copy in zip((X0, b, i, j, A), kept, strict=True):
            np.testing.assert_array_equal(array, copy)

    @given(st.data())
    def test_a_spoilt_matrix_is_always_refused(self, data):
        n = data.draw(st.integers(2, 5))
        A = np.eye(n) + 0.1
        i, j = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
        kind = data.draw(st.sampled_from(["nan", "inf", "skew", "indefinite"]))
        if kind == "skew":
            j = (i + 1 + j % (n - 1)) % n
            A[i, j] += data.draw(st.floats(1e-5, 1e6))  # less than a millionth warns, see DataWarning
        elif kind == "indefinite":
            A[i, i] = -data.draw(st.floats(1e-6, 1e6))
        else:
            A[i, j] = A[j, i] = float(kind)
        for div in (bo.logdet_div, bo.von_neumann_div):
            with pytest.raises(ValueError, match="X0 of"):
                div(bo.PSD(n), A)

    @given(st.lists(st.integers(-8, 8), min_size=0, max_size=4), st.lists(st.integers(-8, 8), max_size=4))
    def test_indices_are_right_or_refused(self, i, j):
        n, X = 5, bo.PSD(5)
        good = (
            len(i) > 0
            and len(j) > 0
            and (len(i) == len(j) or 1 in (len(i), len(j)))
            and all(-n <= k < n for k in i + j)
        )
        if good:
            a, b = np.broadcast_arrays(np.array(i) % n, np.array(j) % n)
            good = bool((a != b).all())
        if not good:
            with pytest.raises((ValueError, TypeError), match="sq_distance"):
                bo.sq_distance(X, i, j)
            return
        X.value = np.diag(np.arange(5.0))
        np.testing.assert_allclose(bo.sq_distance(X, i, j).value, a + b)


def test_several_matrices_are_declared_and_refused_with_a_reason(capsys):
    X, Y = bo.PSD(2, name="X"), bo.PSD(2, name="Y")
    problem = bo.Problem(
        bo.Minimize(bo.logdet_div(X, np.eye(2)) + bo.logdet_div(Y, np.eye(2))), [X[0, 1] + Y[0, 1] >= 0.5]
    )
    problem.explain()
    said = capsys.readouterr().out
    assert "-> bregman" in said
    assert "1 matrix variable, the problem has 2" in said
    with pytest.raises(
        bo.UnsupportedProblemError, match=r"takes 1 matrix variable.*These do: bregman, path, cvxpy"
    ):
        problem.solve(solver="definiteboost")


# --- Magnitudes and sizes -----------------------------------------------------------------------------

EYE = np.eye(2)
BEYOND = {
    "price": lambda s: s * bo.trace(bo.PSD(2)),
    "bound": lambda s: bo.trace(bo.PSD(2)) <= s,
    "row": lambda s: bo.inner(s * EYE, bo.PSD(2)),
    "box": lambda s: bo.Variable(lower=-s),
    "gamma": lambda s: bo.soft(bo.trace(bo.PSD(2)) <= 1, gamma=s),
    "factor": lambda s: bo.LowRank(s * EYE),
    "correlation": lambda s: bo.nearest_correlation(s * EYE, divergence="von_neumann"),
    "weights": lambda s: bo.nearest_correlation(EYE, weights=s * np.ones((2, 2))),
    "margin": lambda s: bo.soft_margin((s * EYE, EYE)),
}


@pytest.mark.parametrize("size", [1e71, 1e155, 1e308])
@pytest.mark.parametrize("name", BEYOND)
def test_magnitudes_whose_squares_overflow_are_refused(name, size):
    number = re.escape(f"{size:.3g}")
    with pytest.raises(ValueError, match=rf"has magnitude {number}; expected (0 or \S+ to|at most) 1e.70"):
        BEYOND[name](size)


@pytest.mark.parametrize("divergence", ["frobenius", "logdet", "von_neumann"])
@pytest.mark.parametrize("size", [1e-60, 1.0, 1e60])
def test_within_the_magnitudes_units_do_not_matter(divergence, size):
    A = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]])
    found = bo.nearest_psd(size * A, lambda X: bo.trace(X) == 3 * size, divergence=divergence, tol=1e-8)
    at_one = bo.nearest_psd(A, lambda X: bo.trace(X) == 3, divergence=divergence, tol=1e-8)
    assert found.status == at_one.status == "optimal"
    np.testing.assert_allclose(found.X / size, at_one.X, atol=1e-5)


SIZES = {
    "order": lambda: bo.PSD(10**30),
    "entries": lambda: bo.sum(bo.PSD(10**7)),
    "vector": lambda: bo.Variable(10**13),
    "matrix": lambda: bo.Variable((10**10, 10**10)),
    "parameter": lambda: bo.Parameter(10**13),
    "beyond doubles": lambda: bo.Variable(10**5000),
    "product beyond doubles": lambda: bo.Variable((2**30,) * 50),
    "sparse": lambda: bo.frobenius_div(bo.PSD(10**7), sp.eye_array(10**7)),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_memory_does_not_hold_are_refused_before_they_are_made(name):
    with pytest.raises(ValueError, match=r"it would need [\d.e+]+ GB of memory|at most 2147483647"):
        SIZES[name]()


@pytest.mark.parametrize("solver", ["path", "psdboost", "cvxpy"])
def test_routes_refuse_matrices_that_memory_does_not_hold(solver):
    X = bo.PSD(4 * 10**5)
    problem = bo.Problem(bo.Minimize(X[0, 1]), [bo.trace(X) == 1])
    with pytest.raises(bo.UnsupportedProblemError, match=r"it would need [\d.]+ GB of memory"):
        problem.solve(solver=solver)


def test_a_ragged_index_is_named():
    X = bo.PSD(3, name="X")
    with pytest.raises(ValueError, match="index of X, 3 x 3"):
        X[[1], [[1], [1, 2]]]
    with pytest.raises(ValueError, match="penalty of soft is array"):
        bo.soft(X[0, 0] <= 1, penalty=np.eye(2))


@pytest.mark.parametrize("solver", [np.eye(2), ["path"], 3])
def test_a_solver_of_another_type_is_named(solver):
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] == 1])
    calls = (
        lambda: problem.solve(solver),
        lambda: problem.explain(solver),
        lambda: bo.nearest_correlation(np.eye(2), solver=solver),
        lambda: bo.nearest_correlation(np.eye(2), divergence="spectral", solver=solver),
        lambda: bo.solve_many([problem], solver=solver, progress=False),
    )
    for call in calls:
        with pytest.raises(TypeError, match=r"(?s)solver is .*; expected the name of a solver"):
            call()
