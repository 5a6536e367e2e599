"""The correlation chapter: shrinking, condition, covariances, unknown entries, groups, pairs, norms.

Answers are compared with CVXPY, closed forms, optimality conditions and invariances, and every problem is
solved for the real matrices of the data folder.
"""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from peers import ask
from samples import turns
from scipy.linalg import eigh

import bregopt as bo

DIVERGENCES = ("frobenius", "logdet", "von_neumann")
NORMS = ("largest_entry", "spectral")


def indefinite(n, rng):
    A = np.triu(rng.uniform(-1, 1, (n, n)), 1)
    return A + A.T + np.eye(n)


def definite(n, rng):
    C = np.corrcoef(rng.normal(size=(n, n + 3)))
    return 0.9 * np.triu(C, 1) + 0.9 * np.triu(C, 1).T + np.eye(n)


def given(divergence, n, rng):
    return indefinite(n, rng) if divergence in ("frobenius", *NORMS) else definite(n, rng)


def distance(divergence, X, A, H=None):
    """Return the distance as a CVXPY expression."""
    if divergence == "frobenius":
        return cp.sum_squares(X - A if H is None else cp.multiply(H, X - A))
    if divergence == "logdet":
        return cp.trace(np.linalg.inv(A) @ X) - cp.log_det(X) + np.linalg.slogdet(A)[1] - len(A)
    return cp.max(cp.abs(X - A)) if divergence == "largest_entry" else cp.sigma_max(X - A)


def peer(divergence, A, rows=(), H=None, diagonal=None):
    """Return the CVXPY problem with rows that are functions of its matrix, and the matrix."""
    X = cp.Variable(A.shape, PSD=True)
    unit = cp.diag(X) == (np.ones(len(A)) if diagonal is None else diagonal)
    return cp.Problem(
        cp.Minimize(distance(divergence, X, A, H)), [unit, *(c for row in rows for c in row(X))]
    ), X


def is_correlation(X, least=0.0):
    X = np.asarray(X)
    return (
        np.array_equal(X, X.T)
        and np.abs(X.diagonal() - 1).max() <= 1e-7
        and np.linalg.eigvalsh(X)[0] >= least - 1e-7
    )


def real_matrices(data):
    for path in sorted((data / "nearcorr").glob("*.csv")):
        if not path.stem.endswith("_pattern"):
            A = np.loadtxt(path, delimiter=",")
            yield path.stem, (A + A.T) / 2


class TestShrinking:
    def test_alpha_is_that_of_the_smallest_generalized_eigenvalue(self, rng):
        for t in (0.0, 0.05):
            A, T = indefinite(12, rng), definite(12, rng) * 0.5 + 0.5 * np.eye(12)
            mu = eigh(A - t * np.eye(12), T - t * np.eye(12), eigvals_only=True)[0]
            sol = bo.shrink_correlation(A, T, min_eigenvalue=t)
            assert sol.status == "optimal"
            assert sol.value == sol.u["alpha"] == pytest.approx(mu / (mu - 1), rel=1e-12)
            assert sol.dual_value <= sol.value
            assert sol.gap <= 1e-12
            assert is_correlation(sol.X, t)
            np.testing.assert_allclose(sol.X, A + sol.value * (T - A), atol=1e-12)

    def test_bound_and_multiplier_agree_with_cvxpy(self, rng):
        A, n = indefinite(8, rng), 8
        alpha = cp.Variable()
        psd = A + alpha * (np.eye(n) - A) >> 0
        other = ask(cp.Problem(cp.Minimize(alpha), [psd, alpha >= 0]))
        sol = bo.shrink_correlation(A)
        other.agrees(sol.value, sol.error)
        other.near(sol.duals[0].dense(), other.duals[0], 1e-4)
        assert np.vdot(sol.duals[0].dense(), np.eye(n) - A) == pytest.approx(1)
        assert abs(np.vdot(sol.duals[0].dense(), sol.X)) < 1e-10

    def test_higham_strabic_sego(self):
        A = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]  # its smallest eigenvalue is 1 - sqrt(2)
        assert bo.shrink_correlation(A).value == pytest.approx(1 - 1 / np.sqrt(2), abs=1e-14)

    def test_fixed_entries_stay(self, rng):
        A = indefinite(10, rng)
        A[:4, :4] = definite(4, rng)
        mask = np.zeros((10, 10), dtype=bool)
        mask[:4, :4] = True
        sol = bo.shrink_correlation(A, fixed=mask, min_eigenvalue=0.01)
        np.testing.assert_array_equal(sol.X[:4, :4], A[:4, :4])
        T = np.where(mask, A, np.eye(10))
        assert sol.value == pytest.approx(bo.shrink_correlation(A, T, min_eigenvalue=0.01).value, abs=1e-12)
        assert sol.value == pytest.approx(
            bo.shrink_correlation(A, weights=mask.astype(float), min_eigenvalue=0.01).value, abs=1e-12
        )

    def test_weights_shrink_entries_by_different_amounts(self, rng):
        A, H = indefinite(9, rng), rng.uniform(0, 0.3, (9, 9))
        H = (H + H.T) / 2
        sol = bo.shrink_correlation(A, weights=H)
        T = H * A + (1 - H) * np.eye(9)
        np.testing.assert_allclose(sol.X, A + sol.value * (T - A), atol=1e-12)
        assert is_correlation(sol.X)

    def test_a_correlation_matrix_is_its_own(self, rng):
        A = definite(7, rng)
        sol = bo.shrink_correlation(A)
        assert sol.value == sol.dual_value == 0
        np.testing.assert_array_equal(sol.X, A)

    def test_lanczos_and_the_dense_method_agree(self, rng, monkeypatch):
        from bregopt.problems.correlation import estimates

        A, T = indefinite(60, rng), definite(60, rng) * 0.5 + 0.5 * np.eye(60)
        dense = [bo.shrink_correlation(A, target).value for target in (None, T)]
        monkeypatch.setattr(estimates, "_LANCZOS", 10)
        lanczos = [bo.shrink_correlation(A, target) for target in (None, T)]
        assert [sol.value for sol in lanczos] == pytest.approx(dense, abs=1e-10)
        assert min(sol.iterations for sol in lanczos) > 1

    def test_permutations_and_signs(self, rng):
        A, T = indefinite(8, rng), definite(8, rng) * 0.5 + 0.5 * np.eye(8)
        value, p, d = bo.shrink_correlation(A, T).value, rng.permutation(8), rng.choice([-1, 1], 8)
        assert bo.shrink_correlation(A[np.ix_(p, p)], T[np.ix_(p, p)]).value == pytest.approx(
            value, abs=1e-12
        )
        D = np.outer(d, d)
        assert bo.shrink_correlation(A * D, T * D).value == pytest.approx(value, abs=1e-12)

    def test_labels_stay(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame([[1, 1, 0], [1, 1, 1], [0, 1, 1.0]], list("abc"), list("abc"))
        assert list(bo.shrink_correlation(frame).X.columns) == list("abc")

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"A": 2 * np.eye(3)}, ValueError, "A has 2 on the diagonal"),
            ({"A": [np.eye(3)]}, TypeError, "expected one matrix"),
            ({"A": bo.LowRank(np.ones((3, 1)))}, TypeError, "A is LowRank"),
            ({"target": np.ones((3, 3))}, ValueError, "target has the eigenvalue"),
            ({"target": np.eye(4)}, ValueError, "target is 4 x 4"),
            ({"weights": 2 * np.ones((3, 3))}, ValueError, "from 0 to 1"),
            ({"min_eigenvalue": 1.0}, ValueError, "min_eigenvalue"),
            ({"fixed": [[0, 1], [1, 2], [0, 2]]}, ValueError, "fixed keeps all entries of 0, 1, 2"),
        ],
    )
    def test_bad_input_is_named(self, arguments, error, message):
        A = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
        with pytest.raises(error, match=message):
            bo.shrink_correlation(**{"A": A, **arguments})


class TestCondition:
    @pytest.mark.parametrize(
        ("divergence", "extra"),
        turns(["frobenius", "logdet"], [{}, {"min_eigenvalue": 0.2}, {"upper": 0.3, "fixed": [[0, 1]]}]),
    )
    def test_agrees_with_cvxpy(self, divergence, extra, rng):
        n, kappa = 6, 8.0
        A = given(divergence, n, rng)
        A[0, 1] = A[1, 0] = 0.25
        sol = bo.nearest_correlation(A, divergence, max_condition=kappa, tol=1e-8, **extra)
        t = cp.Variable()
        rows = [
            lambda X: [X >> t * np.eye(n), X << kappa * t * np.eye(n), t >= extra.get("min_eigenvalue", 0)]
        ]
        if "upper" in extra:
            rows.append(lambda X: [X[0, 1] == A[0, 1], cp.upper_tri(X) <= 0.3])
        problem, _ = peer(divergence, A, rows)
        assert sol.status == "optimal"
        ask(problem).agrees(sol.value, sol.error)
        assert np.linalg.cond(sol.X) <= kappa * (1 + 1e-9)
        assert (sol.X.diagonal() == 1).all()

    @pytest.mark.parametrize("divergence", DIVERGENCES)
    def test_a_bound_that_does_not_act_changes_nothing(self, divergence, rng):
        A = definite(8, rng)
        A[0, 1] = A[1, 0] = A[0, 1] + 0.05
        free = bo.nearest_correlation(A, divergence, upper=0.4, tol=1e-9)
        kappa = 1.01 * np.linalg.cond(free.X)
        wide = bo.nearest_correlation(A, divergence, upper=0.4, tol=1e-9, max_condition=kappa)
        np.testing.assert_allclose(wide.X, free.X, atol=1e-6)
        assert wide.value == pytest.approx(free.value, abs=1e-7)

    def test_von_neumann_is_optimal_among_matrices_nearby(self, rng):
        A = definite(6, rng)
        sol = bo.nearest_correlation(A, "von_neumann", max_condition=4.0, tol=1e-9)
        X = bo.PSD(6)
        objective = bo.von_neumann_div(X, A)
        for other in (np.eye(6), bo.nearest_correlation(A, max_condition=4.0).X):
            for share in (1e-3, 0.1, 0.5):
                mixed = (1 - share) * sol.X + share * other
                assert objective.terms[0].atom.numbers(mixed) >= sol.value - 1e-9

    def test_condition_one_leaves_the_identity(self, rng):
        sol = bo.nearest_correlation(indefinite(5, rng), max_condition=1.0)
        np.testing.assert_allclose(sol.X, np.eye(5), atol=1e-7)

    def test_order_100_within_the_steps(self, rng):
        sol = bo.nearest_correlation(indefinite(100, rng), max_condition=100, tol=1e-8)
        assert sol.status == "optimal"
        assert sol.iterations <= 10
        assert np.linalg.cond(sol.X) <= 100 * (1 + 1e-10)

    @pytest.mark.parametrize("divergence", ["logdet", "von_neumann"])
    def test_a_floor_goes_with_all_divergences(self, divergence, rng):
        A = definite(6, rng)
        sol = bo.nearest_correlation(A, divergence, min_eigenvalue=0.3, tol=1e-8)
        assert sol.status == "optimal"
        assert np.linalg.eigvalsh(sol.X)[0] >= 0.3 - 1e-12
        if divergence == "logdet":
            problem, _ = peer("logdet", A, [lambda X: [X >> 0.3 * np.eye(6)]])
            ask(problem).agrees(sol.value, sol.error)

    def test_stacks_take_it(self, rng):
        A = np.stack([indefinite(5, rng) for _ in range(3)])
        sols = bo.nearest_correlation(A, max_condition=[10.0, 20.0, 30.0])
        assert (np.linalg.cond(sols.X) <= np.array([10, 20, 30]) * (1 + 1e-9)).all()

    def test_refusals(self, rng):
        A = indefinite(4, rng)
        with pytest.raises(ValueError, match=r"max_condition is 0\.5"):
            bo.nearest_correlation(A, max_condition=0.5)
        with pytest.raises(bo.UnsupportedProblemError, match="does not go with weights"):
            bo.nearest_correlation(A, max_condition=5, weights=[1.0, 2, 3, 4])
        with pytest.raises(bo.UnsupportedProblemError, match="does not go with groups"):
            bo.nearest_correlation(A, max_condition=5, groups=[0, 0, 1, 1])
        with pytest.raises(ValueError, match="A is LowRank"):
            bo.nearest_correlation(bo.LowRank(rng.normal(size=(4, 2))), "logdet", max_condition=5)


class TestCovariance:
    @pytest.mark.parametrize(
        ("divergence", "extra"),
        [
            ("frobenius", {}),
            ("frobenius", {"min_eigenvalue": 0.01}),
            ("frobenius", {"weights": np.arange(1.0, 7.0)}),
            ("frobenius", {"weights": np.ones((6, 6)) + np.eye(6)}),
            ("frobenius", {"lower": 0.0}),
            ("logdet", {"upper": 0.05}),
            ("largest_entry", {}),
            ("spectral", {"min_eigenvalue": 0.01}),
        ],
    )
    def test_agrees_with_cvxpy(self, divergence, extra, rng):
        s = rng.uniform(0.3, 3, 6)
        S = given(divergence, 6, rng) * np.outer(s, s)
        sol = bo.nearest_covariance(S, divergence, tol=1e-8, **extra)
        w = extra.get("weights")
        H = None if w is None else np.sqrt(np.outer(w, w)) if w.ndim == 1 else w
        rows = []
        if "min_eigenvalue" in extra:
            rows.append(lambda X: [X >> 0.01 * np.eye(6)])
        if "lower" in extra:
            rows.append(lambda X: [cp.upper_tri(X) >= 0])
        if "upper" in extra:
            rows.append(lambda X: [cp.upper_tri(X) <= 0.05])
        problem, _ = peer(divergence, S, rows, H, S.diagonal())
        ask(problem).agrees(sol.value, sol.error)
        np.testing.assert_allclose(sol.X.diagonal(), S.diagonal(), rtol=1e-7)
        assert np.linalg.eigvalsh(sol.X)[0] >= extra.get("min_eigenvalue", 0) - 1e-7

    def test_duals_are_derivatives_in_the_variances(self, rng):
        s = rng.uniform(0.5, 2, 5)
        S = indefinite(5, rng) * np.outer(s, s)
        sol, h = bo.nearest_covariance(S, tol=1e-10), 1e-4
        values = []
        for change in (h, -h):
            v = S.diagonal().copy()
            v[2] += change
            values.append(ask(peer("frobenius", S, (), None, v)[0]).value)
        slope = (values[0] - values[1]) / (2 * h)
        assert -sol.duals[0][2] == pytest.approx(slope, abs=1e-3)

    def test_units_scale_the_answer(self, rng):
        s = rng.uniform(0.5, 2, 5)
        S = indefinite(5, rng) * np.outer(s, s)
        one, thousand = bo.nearest_covariance(S, tol=1e-9), bo.nearest_covariance(1e3 * S, tol=1e-9)
        np.testing.assert_allclose(thousand.X, 1e3 * one.X, rtol=1e-6, atol=1e-6)

    def test_condition_and_labels(self, rng):
        pandas = pytest.importorskip("pandas")
        s = rng.uniform(0.5, 2, 4)
        S = pandas.DataFrame(indefinite(4, rng) * np.outer(s, s), list("abcd"), list("abcd"))
        sol = bo.nearest_covariance(S, max_condition=60, lower={("a", "b"): 0.01})
        assert list(sol.X.index) == list("abcd")
        assert np.linalg.cond(sol.X) <= 60 * (1 + 1e-9)
        assert sol.X.loc["a", "b"] >= 0.01 - 1e-7
        assert (np.diag(sol.X) == np.diag(S)).all()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"S": np.diag([1.0, 0.0])}, "S has the variance 0 at 1"),
            ({"S": [[1, 0], [0, np.nan]], "missing": "unknown"}, "S has the variance NaN at 1"),
            ({"S": [[1, 0], [0, np.nan]]}, "S has 1 NaN"),
            ({"min_eigenvalue": 2.0}, "below the least variance, 1 at 0"),
            ({"lower": 3.0}, "lower is 3 at"),
            ({"lower": {("a", 1): 0.1}}, "'a' is no label"),
        ],
    )
    def test_bad_input_is_named(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            bo.nearest_covariance(**{"S": np.diag([1.0, 4.0]), **arguments})

    def test_an_indefinite_fixed_block_is_named_with_its_variances(self):
        S = np.diag([1.0, 4, 9]) + 0.0
        S[0, 1] = S[1, 0] = 1.9
        S[1, 2] = S[2, 1] = 5.9
        S[0, 2] = S[2, 0] = -2.9
        sol = bo.nearest_covariance(S, fixed=[[0, 1], [1, 2], [0, 2]])
        assert sol.status == "infeasible"
        assert "with the variances this block has the eigenvalue" in sol.stop_reason


class TestUnknown:
    def test_unknown_entries_are_those_of_weight_zero(self, rng):
        A, H = indefinite(8, rng), np.ones((8, 8))
        N = A.copy()
        for i, j in ((0, 3), (2, 5), (1, 7)):
            N[i, j] = N[j, i] = np.nan
            H[i, j] = H[j, i] = 0
        for weights in (None, rng.uniform(0.5, 2, 8)):
            own = H if weights is None else H * np.sqrt(np.outer(weights, weights))
            sol = bo.nearest_correlation(N, missing="unknown", weights=weights)
            same = bo.nearest_correlation(A, weights=own)
            assert abs(sol.value - same.value) <= sol.error + same.error
            assert is_correlation(sol.X)

    @pytest.mark.parametrize("diagonal", [1.0, np.nan])
    def test_a_row_without_data_is_left_out(self, rng, diagonal):
        N = indefinite(6, rng)
        rest = bo.nearest_correlation(N[1:, 1:])
        N[0] = N[:, 0] = np.nan
        N[0, 0] = diagonal
        with pytest.warns(bo.DataWarning, match="row 0 of A has no number off the diagonal"):
            sol = bo.nearest_correlation(N, missing="unknown")
        np.testing.assert_allclose(sol.X[1:, 1:], rest.X, atol=1e-12)
        assert np.isnan(sol.X[0]).all()
        assert np.isnan(sol.X[:, 0]).all()
        assert sol.left_out == (0,)
        assert sol.rank == rest.rank
        assert "left out" in str(sol.report())
        G = rng.normal(size=(6, 6))
        np.testing.assert_allclose(sol.vjp(G)[1:, 1:], rest.vjp(G[1:, 1:]), atol=1e-10)
        assert not sol.vjp(G)[0].any()
        assert not sol.jvp(G + G.T)[:, 0].any()

    @pytest.mark.parametrize("divergence", ["logdet", "von_neumann"])
    def test_divergences_start_from_the_completion_of_largest_determinant(self, divergence, rng):
        A = definite(7, rng)
        N = A.copy()
        N[0, 5] = N[5, 0] = N[1, 6] = N[6, 1] = np.nan
        sol = bo.nearest_correlation(N, divergence, missing="unknown")
        assert np.abs(np.linalg.inv(sol.X)[[0, 1], [5, 6]]).max() < 1e-4
        np.testing.assert_allclose(sol.X[~np.isnan(N)], A[~np.isnan(N)], atol=1e-5)

    def test_without_a_definite_completion_it_is_refused(self):
        N = np.eye(4)
        N[0, 1] = N[1, 0] = N[0, 2] = N[2, 0] = 0.9
        N[1, 2] = N[2, 1] = -0.9
        N[0, 3] = N[3, 0] = np.nan
        with pytest.raises(ValueError, match="no positive definite completion"):
            bo.nearest_correlation(N, "logdet", missing="unknown")

    def test_the_largest_entry_ignores_them(self, rng):
        N = indefinite(6, rng)
        full = bo.nearest_correlation(N, "largest_entry")
        N[0, 1] = N[1, 0] = np.nan
        assert bo.nearest_correlation(N, "largest_entry", missing="unknown").value <= full.value + full.error

    def test_stacks_have_them(self, rng):
        A = np.stack([indefinite(5, rng) for _ in range(3)])
        A[1, 0, 2] = A[1, 2, 0] = np.nan
        sols = bo.nearest_correlation(A, missing="unknown")
        assert (sols.status == "optimal").all()
        single = bo.nearest_correlation(A[1], missing="unknown")
        assert sols.value[1] == pytest.approx(single.value)

    def test_nothing_is_repaired_silently(self, rng):
        N = indefinite(4, rng)
        N[0, 1] = N[1, 0] = np.nan
        with pytest.raises(ValueError, match="missing='unknown'"):
            bo.nearest_correlation(N)
        with pytest.raises(ValueError, match=r"fixed keeps entry \(0, 1\), which is NaN"):
            bo.nearest_correlation(N, missing="unknown", fixed=[[0, 1]])
        with pytest.raises(ValueError, match="missing is 'maybe'"):
            bo.nearest_correlation(N, missing="maybe")
        with pytest.raises(bo.UnsupportedProblemError, match="takes no unknown entries"):
            bo.nearest_correlation(N, "spectral", missing="unknown")
        with pytest.raises(bo.UnsupportedProblemError, match="does not go with unknown entries"):
            bo.nearest_correlation(N, max_condition=9, missing="unknown")
        N[0, 1] = 0.5
        with pytest.raises(ValueError, match=r"A is NaN at one of the entries \(0, 1\) and \(1, 0\)"):
            bo.nearest_correlation(N, missing="unknown")


class TestGroups:
    at = np.array(list("aabbbcd"))

    def equal(self, X):
        """Return CVXPY's constraints that the blocks are constant."""
        n, first, rows = len(self.at), {}, []
        for i in range(n):
            for j in range(i):
                pair = (*sorted((self.at[i], self.at[j])),)
                if pair in first:
                    rows.append(X[i, j] == X[first[pair]])
                first.setdefault(pair, (i, j))
        return rows

    @pytest.mark.parametrize(
        ("divergence", "extra"),
        turns(
            ["frobenius", "logdet"],
            [{}, {"min_eigenvalue": 0.2}, {"lower": {("a", "b"): 0.1}}, {"upper": {("b", "b"): 0.05}}],
        ),
    )
    def test_agrees_with_cvxpy(self, divergence, extra, rng):
        A = given(divergence, 7, rng)
        sol = bo.nearest_correlation(A, divergence, groups=self.at, tol=1e-8, **extra)
        rows = [self.equal]
        if "min_eigenvalue" in extra:
            rows.append(lambda X: [X >> 0.2 * np.eye(7)])
        if "lower" in extra:
            rows.append(lambda X: [X[0, 2] >= 0.1])
        if "upper" in extra:
            rows.append(lambda X: [X[2, 3] <= 0.05])
        problem, K = peer(divergence, A, rows)
        other = ask(problem)
        other.agrees(sol.value, sol.error)
        other.near(sol.X, K.value, 1e-3)
        assert is_correlation(sol.X, extra.get("min_eigenvalue", 0.0))
        assert len(np.unique(sol.X[np.ix_(self.at == "a", self.at == "b")])) == 1

    def test_weights_and_unknown_entries(self, rng):
        A, H = indefinite(7, rng), rng.uniform(0.2, 2, (7, 7))
        H = (H + H.T) / 2
        N = A.copy()
        N[0, 2] = N[2, 0] = np.nan
        own = np.where(np.isnan(N), 0, H)
        sol = bo.nearest_correlation(N, weights=H, groups=self.at, missing="unknown", tol=1e-8)
        problem, _ = peer("frobenius", A, [self.equal], own)
        ask(problem).agrees(sol.value, sol.error)

    def test_fixed_entries_fix_their_block(self, rng):
        A = indefinite(7, rng)
        A[0, 2] = A[2, 0] = 0.3
        sol = bo.nearest_correlation(A, groups=self.at, fixed=[[0, 2]])
        np.testing.assert_allclose(sol.X[np.ix_(self.at == "a", self.at == "b")], 0.3, atol=1e-6)
        A[1, 2] = A[2, 1] = 0.4
        with pytest.raises(ValueError, match="groups 'a' and 'b' ask for"):
            bo.nearest_correlation(A, groups=self.at, fixed=[[0, 2], [1, 2]])
        with pytest.raises(ValueError, match=r"at most -0\.6 within the group 'b'.* least -0\.5"):
            bo.nearest_correlation(A, groups=self.at, upper={("b", "b"): -0.6})

    def test_von_neumann_of_one_group_is_a_scalar_problem(self, rng):
        A = definite(5, rng)
        sol = bo.nearest_correlation(A, "von_neumann", groups=["x"] * 5, tol=1e-9)
        X = bo.PSD(5)
        term = bo.von_neumann_div(X, A).terms[0].atom

        def value(r):
            return term.numbers((1 - r) * np.eye(5) + r)

        r = sol.X[0, 1]
        assert value(r) == pytest.approx(sol.value, abs=1e-8)
        assert min(value(r + h) for h in (-1e-3, 1e-3)) > sol.value - 1e-10

    def test_groups_of_one_row_change_nothing(self, rng):
        A = indefinite(5, rng)
        one, plain = bo.nearest_correlation(A, groups=range(5)), bo.nearest_correlation(A)
        assert abs(one.value - plain.value) <= one.error + plain.error

    def test_labels(self, rng):
        pandas = pytest.importorskip("pandas")
        names = ["u", "v", "w", "x"]
        A = pandas.DataFrame(indefinite(4, rng), names, names)
        sectors = {"x": "second", "u": "first", "w": "second", "v": "first"}
        sol = bo.nearest_correlation(A, groups=sectors)
        series = bo.nearest_correlation(A, groups=pandas.Series(sectors)[names])
        assert sol.X.equals(series.X)
        assert sol.X.loc["u", "w"] == sol.X.loc["v", "x"]
        with pytest.raises(ValueError, match="groups lacks 'x'"):
            bo.nearest_correlation(A, groups={"u": 1, "v": 1, "w": 1})

    @pytest.mark.parametrize(
        ("groups", "error", "message"),
        [
            ("ab", TypeError, "groups is 'ab'"),
            ([1, 1], ValueError, "groups has 2 names"),
            ([1, 1, None], ValueError, "groups has no name at 2"),
            ({0: "a", 1: "a", 2: "b", 3: "b"}, ValueError, "unknown label 3"),
        ],
    )
    def test_bad_groups_are_named(self, groups, error, message):
        with pytest.raises(error, match=message):
            bo.nearest_correlation(np.eye(3), groups=groups)

    def test_norms_are_refused(self):
        with pytest.raises(bo.UnsupportedProblemError, match="divergence='spectral'"):
            bo.nearest_correlation(np.eye(3), "spectral", groups=[0, 0, 1])


class TestPairs:
    def test_pairs_are_entries_of_an_array(self, rng):
        pandas = pytest.importorskip("pandas")
        names = ["equities", "bonds", "credit", "property"]
        A = pandas.DataFrame(indefinite(4, rng), names, names)
        by_label = bo.nearest_correlation(
            A, lower={("equities", ("credit", "property")): 0.2}, upper={("bonds", "credit"): -0.1}
        )
        lower, upper = -np.ones((4, 4)), np.ones((4, 4))
        lower[0, 2:] = lower[2:, 0] = 0.2
        upper[1, 2] = upper[2, 1] = -0.1
        by_array = bo.nearest_correlation(np.asarray(A), lower=lower, upper=upper)
        np.testing.assert_allclose(by_label.X, by_array.X, atol=1e-12)

    def test_bounds_that_contradict_are_infeasible(self):
        sol = bo.nearest_correlation(np.eye(4), upper={((0, 1, 2), (0, 1, 2)): -0.9})
        assert sol.status == "infeasible"

    def test_the_tightest_bound_counts(self, rng):
        sol = bo.nearest_correlation(indefinite(4, rng), lower={(0, (1, 2)): 0.1, (1, 0): 0.3, (0, 2): -0.5})
        assert sol.X[0, 1] >= 0.3 - 1e-7
        assert sol.X[0, 2] >= 0.1 - 1e-7

    def test_stacks_share_them(self, rng):
        A = np.stack([indefinite(4, rng) for _ in range(3)])
        sols = bo.nearest_correlation(A, lower={(0, 1): 0.2})
        assert (sols.X[:, 0, 1] >= 0.2 - 1e-6).all()

    @pytest.mark.parametrize(
        ("lower", "error", "message"),
        [
            ({"ab": 1}, TypeError, "lower is a dict with other keys than pairs"),
            ({}, TypeError, "lower is a dict with other keys than pairs"),
            ({(0, 9): 0.1}, ValueError, "9 is no label of A"),
            ({(0, 0): 0.1}, ValueError, "on the diagonal"),
            ({(0, 1): np.nan}, ValueError, "NaN"),
            ({(0, 1): 1.5}, ValueError, r"lower is 1\.5 but upper is 1"),
        ],
    )
    def test_bad_pairs_are_named(self, lower, error, message):
        with pytest.raises(error, match=message):
            bo.nearest_correlation(np.eye(3), lower=lower)

    def test_a_name_of_two_things_is_refused(self):
        with pytest.raises(ValueError, match="is a label of A and a group"):
            bo.nearest_correlation(np.eye(3), groups=[0, 0, 1], lower={(0, 1): 0.1})


class TestNorms:
    @pytest.mark.parametrize(
        ("divergence", "extra"),
        turns(
            NORMS,
            [
                {},
                {"min_eigenvalue": 0.1},
                {"fixed": [[0, 1]], "upper": 0.4},
                {"max_condition": 15.0},
                {"max_condition": 15.0, "min_eigenvalue": 0.1},
                {"weights": np.array([0.5, 1, 2, 1.5, 0.7, 1.2])},
            ],
        ),
    )
    def test_agrees_with_cvxpy(self, divergence, extra, rng):
        n = 6
        A, rows = indefinite(n, rng), []
        A[0, 1] = A[1, 0] = 0.2
        sol = bo.nearest_correlation(A, divergence, **extra)
        t = cp.Variable()
        if "min_eigenvalue" in extra:
            rows.append(lambda X: [X >> 0.1 * np.eye(n)])
        if "fixed" in extra:
            rows.append(lambda X: [X[0, 1] == 0.2, cp.upper_tri(X) <= 0.4])
        if "max_condition" in extra:
            rows.append(lambda X: [X >> t * np.eye(n), X << 15 * t * np.eye(n)])
        problem, K = peer(divergence, A, rows)
        if "weights" in extra:
            W = np.sqrt(np.outer(extra["weights"], extra["weights"]))
            problem = cp.Problem(
                cp.Minimize(distance(divergence, cp.multiply(W, K), W * A)), problem.constraints
            )
        assert sol.status == "optimal"
        ask(problem).agrees(sol.value, sol.error)
        assert is_correlation(sol.X, extra.get("min_eigenvalue", 0.0))

    def test_the_spectral_distance_is_at_least_the_largest_negative_eigenvalue(self, rng):
        A = indefinite(8, rng)
        sol = bo.nearest_correlation(A, "spectral")
        assert sol.value >= -np.linalg.eigvalsh(A)[0] - sol.error - 1e-12
        assert np.abs(np.linalg.eigvalsh(sol.X - A)).max() <= sol.value + 1e-7

    @pytest.mark.parametrize(
        "extra", [{}, {"min_eigenvalue": 0.05}, {"weights": np.arange(1.0, 9)}, {"lower": -0.6}]
    )
    def test_the_smallest_eigenvalue_decides_the_spectral_distance(self, extra, rng):
        A = indefinite(8, rng)
        quick, path = (
            bo.nearest_correlation(A, "spectral", solver=name, **extra) for name in ("auto", "path")
        )
        assert quick.status == path.status == "optimal"
        assert abs(quick.value - path.value) <= quick.error + path.error
        for ours, other in zip(quick.duals, path.duals, strict=True):
            np.testing.assert_allclose(ours, other, atol=1e-3)
        root = np.sqrt(extra.get("weights", np.ones(8)))
        E = root[:, None] * (quick.X - A) * root
        assert np.linalg.norm(E, 2) == pytest.approx(quick.value)

    def test_a_correlation_matrix_has_distance_zero(self, rng):
        A = definite(60, rng)
        sol = bo.nearest_correlation(A, "spectral")
        assert sol.status == "optimal"
        assert sol.value < 1e-12
        np.testing.assert_allclose(sol.X, A, atol=1e-12)

    def test_spectral_at_order_150(self, rng):
        A = indefinite(150, rng)
        sol = bo.nearest_correlation(A, "spectral")
        assert sol.status == "optimal"
        assert sol.value == pytest.approx(-np.linalg.eigvalsh(A)[0], rel=1e-9)
        assert is_correlation(sol.X)

    @pytest.mark.parametrize("divergence", NORMS)
    def test_permutations_and_signs(self, divergence, rng):
        A, p, d = indefinite(6, rng), rng.permutation(6), rng.choice([-1, 1], 6)
        sols = [bo.nearest_correlation(M, divergence) for M in (A, A[np.ix_(p, p)], A * np.outer(d, d))]
        for other in sols[1:]:
            assert abs(other.value - sols[0].value) <= other.error + sols[0].error

    def test_each_distance_is_least_in_its_norm(self, rng):
        A = indefinite(7, rng)
        spectral, entry = (bo.nearest_correlation(A, name) for name in NORMS[::-1])
        assert np.abs(entry.X - A).max() <= np.abs(spectral.X - A).max() + 1e-6
        assert np.linalg.norm(spectral.X - A, 2) <= np.linalg.norm(entry.X - A, 2) + 1e-6

    def test_refusals(self, rng):
        A = indefinite(4, rng)
        with pytest.raises(bo.UnsupportedProblemError, match="takes no weights of entries"):
            bo.nearest_correlation(A, "spectral", weights=np.ones((4, 4)))
        with pytest.raises(TypeError, match="A is LowRank"):
            bo.nearest_correlation(bo.LowRank(np.ones((4, 1))), "spectral")


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_permutations_and_signs_of_all_arguments(divergence, rng):
    A, p, d = given(divergence, 6, rng), rng.permutation(6), rng.choice([-1, 1], 6)
    D = np.outer(d, d)
    options = {"max_condition": 6.0, "tol": 1e-8}
    one = bo.nearest_correlation(A, divergence, **options)
    turned = bo.nearest_correlation(A[np.ix_(p, p)], divergence, **options)
    signed = bo.nearest_correlation(A * D, divergence, **options)
    np.testing.assert_allclose(turned.X, one.X[np.ix_(p, p)], atol=1e-5)
    np.testing.assert_allclose(signed.X, one.X * D, atol=1e-5)


class TestRealMatrices:
    def test_every_problem_of_every_matrix(self, data):
        for name, A in real_matrices(data):
            n, least = len(A), np.linalg.eigvalsh(A)[0]
            shrunk = bo.shrink_correlation(A, min_eigenvalue=1e-3)
            assert shrunk.status == "optimal", name
            assert is_correlation(shrunk.X, 1e-3), name
            mu = (least - 1e-3) / (1 - 1e-3)
            assert shrunk.value == pytest.approx(max(mu / (mu - 1), 0), abs=1e-9), name
            sol = bo.nearest_correlation(A, max_condition=1e3, tol=1e-8)
            assert sol.status == "optimal", name
            assert np.linalg.cond(sol.X) <= 1e3 * (1 + 1e-9), name
            scale = np.linspace(1, 3, n)
            sol = bo.nearest_covariance(A * np.outer(scale, scale), min_eigenvalue=1e-3)
            assert sol.status == "optimal", name
            sol = bo.nearest_correlation(A, groups=np.arange(n) // 3, min_eigenvalue=1e-3)
            assert sol.status == "optimal", name
            if n <= 25:
                N = A.copy()
                N[0, -1] = N[-1, 0] = np.nan
                assert bo.nearest_correlation(N, missing="unknown").status == "optimal", name
                for norm in NORMS:
                    assert bo.nearest_correlation(A, norm).status == "optimal", name

    @pytest.mark.parametrize("name", ["fing97", "usgs13"])
    def test_fixed_blocks_are_kept_by_shrinking(self, name, data):
        A, pattern = (
            np.loadtxt(data / "nearcorr" / f"{name}{end}.csv", delimiter=",") for end in ("", "_pattern")
        )
        A, fixed = (A + A.T) / 2, pattern == 1
        sol = bo.shrink_correlation(A, fixed=fixed)
        assert sol.status == "optimal"
        np.testing.assert_array_equal(sol.X[fixed], A[fixed])
        assert is_correlation(sol.X)


@pytest.mark.parametrize("divergence", [*DIVERGENCES, *NORMS])
def test_order_one(divergence):
    assert bo.nearest_correlation([[1.0]], divergence).X == pytest.approx(1)
    if divergence in DIVERGENCES:
        assert bo.nearest_correlation([[1.0]], divergence, groups=["a"], max_condition=None).X == 1
        assert bo.nearest_correlation([[1.0]], divergence, max_condition=1).X == 1


@pytest.mark.parametrize("A", [np.full((3, 3), np.nan), [[1, np.nan], [np.nan, 1]]])
def test_nothing_is_known(A):
    with pytest.raises(ValueError, match="A has no number off the diagonal"):
        bo.nearest_correlation(A, missing="unknown")


@pytest.mark.parametrize("divergence", ["frobenius", "largest_entry"])
def test_weights_that_are_all_zero_are_refused_by_name(divergence):
    with pytest.raises(ValueError, match=r"^weights are all 0"):
        bo.nearest_correlation(np.eye(3), divergence, weights=np.zeros((3, 3)))


HOSTILE = (np.nan, np.inf, -1.0, "x", object(), [], {}, {"a": 1}, [1, 2], np.ones((2, 2)), 1j, b"", lambda: 0)


def refused_by_name(name, call):
    """Return the answer of a call, or None if it is refused with a message that names the argument."""
    try:
        return call()
    except (TypeError, ValueError) as error:
        message = str(error)
    assert name in message
    return None


@pytest.mark.parametrize("name", ["max_condition", "groups", "missing", "lower", "upper", "fixed"])
@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_arguments_are_named(name, value, rng):
    A = definite(4, rng)
    for call in (bo.nearest_correlation, bo.nearest_covariance):
        sol = refused_by_name(name, lambda call=call: call(A, **{name: value}))
        assert sol is None or sol.X is None or is_correlation(sol.X)


@pytest.mark.parametrize("name", ["target", "fixed", "weights", "min_eigenvalue"])
@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_arguments_of_shrinking_are_named(name, value, rng):
    A = definite(4, rng)
    sol = refused_by_name(name, lambda: bo.shrink_correlation(A, **{name: value}))
    assert sol is None or is_correlation(sol.X)


def test_pairs_of_labels_are_fixed(rng):
    pandas = pytest.importorskip("pandas")
    names = ["bonds", "credit", "equities", "gold"]
    A = pandas.DataFrame(indefinite(4, rng), names, names)
    by_label, by_index = (
        bo.nearest_correlation(A, fixed=fixed).X for fixed in ([("gold", "bonds")], [(3, 0)])
    )
    assert by_label.equals(by_index)
    assert by_label.loc["bonds", "gold"] == pytest.approx(A.loc["bonds", "gold"], abs=1e-7)
    with pytest.raises(ValueError, match="fixed has 'golds', which is no label of A; did you mean 'gold'"):
        bo.nearest_correlation(A, fixed=[("golds", "bonds")])


def test_arguments_of_strange_types_are_named():
    pandas = pytest.importorskip("pandas")
    A = pandas.DataFrame(np.eye(2), index=["a", "b"], columns=["a", "b"])
    with pytest.raises(ValueError, match="divergence is "):
        bo.nearest_correlation(np.eye(2), divergence=sp.csr_array(np.eye(2)))
    with pytest.raises(ValueError, match="is no label of A"):
        bo.nearest_correlation(A, fixed=np.array([["a", {"b": 1}]], dtype=object))
    with pytest.raises(ValueError, match="warm_start is "):
        bo.nearest_correlation(np.array([np.eye(2)]), warm_start=sp.csr_array(np.eye(2)))
    with pytest.raises(ValueError, match="max_condition is ragged"):
        bo.nearest_correlation(np.array([np.eye(2)]), max_condition=[[1], [1, 2]])
