"""The ready-made problems against closed forms, CVXPY, and their own optimality conditions."""

import warnings

import cvxpy as cp
import numpy as np
import peers
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

import bregopt as bo
from bregopt.problems.correlation.infeasibility import cliques

HIGHAM = np.array([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]])
SOLVE = {"tol": 1e-8}


def broken(n, seed):
    """Return a symmetric matrix with unit diagonal, entries in [-1, 1] and negative eigenvalues."""
    rng = np.random.default_rng(seed)
    A = rng.uniform(-1, 1, size=(n, n))
    A = np.triu(A, 1)
    return A + A.T + np.eye(n)


def positive_definite(n, seed):
    G = np.random.default_rng(seed).normal(size=(n, n))
    S = G @ G.T / n + 0.3 * np.eye(n)
    d = np.sqrt(np.random.default_rng(seed + 1).uniform(0.5, 2, n) / np.diag(S))
    return d[:, None] * S * d


def confirm(sol, A, rows=lambda X: [], H=None, t=0.0):
    """Compare an answer with CVXPY's, and check in CVXPY that ours is feasible and has its value."""
    X = cp.Variable(A.shape, symmetric=True)
    distance = X - A if H is None else cp.multiply(np.sqrt(H), X - A)
    n = len(A)
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(distance)), [cp.diag(X) == 1, X >> t * np.eye(n), *rows(X)]
    )
    peers.ask(problem).confirms(sol, {X: sol.X})


class TestNearestCorrelation:
    def test_higham_2002(self):
        sol = bo.nearest_correlation(HIGHAM, **SOLVE)
        expected = [[1, 0.7607, 0.1573], [0.7607, 1, 0.7607], [0.1573, 0.7607, 1]]
        np.testing.assert_allclose(sol.X, expected, atol=5e-5)

    @pytest.mark.parametrize(("n", "seed"), [(2, 0), (4, 1), (6, 2), (8, 3)])
    def test_plain_agrees_with_cvxpy(self, n, seed):
        A = broken(n, seed)
        sol = bo.nearest_correlation(A, **SOLVE)
        assert sol.status == "optimal"
        confirm(sol, A)
        assert (np.diag(sol.X) == 1).all()
        assert np.linalg.eigvalsh(sol.X)[0] >= -1e-12

    @pytest.mark.parametrize("as_mask", [True, False])
    def test_fixed_entries_stay(self, as_mask):
        A = broken(6, 4) * 0.6 + 0.4 * np.eye(6)
        pairs = np.array([[0, 1], [4, 2]])
        fixed = pairs
        if as_mask:
            fixed = np.zeros((6, 6), dtype=bool)
            fixed[pairs[:, 0], pairs[:, 1]] = fixed[pairs[:, 1], pairs[:, 0]] = True
        sol = bo.nearest_correlation(A, fixed=fixed, **SOLVE)
        confirm(sol, A, lambda X: [X[i, j] == A[i, j] for i, j in pairs])
        np.testing.assert_allclose(sol.X[0, 1], A[0, 1], atol=1e-7)

    def test_bounds(self):
        A = broken(5, 5)
        upper = np.full((5, 5), 0.4)
        i, j = np.triu_indices(5, 1)
        sol = bo.nearest_correlation(A, lower=-0.2, upper=upper, **SOLVE)
        confirm(sol, A, lambda X: [X[i, j] <= 0.4, X[i, j] >= -0.2])

    def test_least_eigenvalue(self):
        A = broken(5, 6)
        sol = bo.nearest_correlation(A, min_eigenvalue=0.1, **SOLVE)
        confirm(sol, A, t=0.1)
        assert np.linalg.eigvalsh(sol.X)[0] >= 0.1 - 1e-9
        assert (np.diag(sol.X) == 1).all()

    def test_weights_of_rows(self):
        A, w = broken(5, 7), np.array([1.0, 4.0, 0.25, 2.0, 1.0])
        sol = bo.nearest_correlation(A, weights=w, **SOLVE)
        confirm(sol, A, H=np.outer(w, w))

    def test_weights_of_entries(self):
        A, H = broken(4, 8), np.random.default_rng(9).uniform(0.5, 2, (4, 4))
        H = (H + H.T) / 2
        sol = bo.nearest_correlation(A, weights=H, tol=1e-6)
        confirm(sol, A, H=H**2)

    @pytest.mark.parametrize("divergence", ["logdet", "von_neumann"])
    def test_divergences_meet_their_optimality_condition(self, divergence):
        # The gradient of D(., A) at the answer is diagonal, as only the diagonal is fixed.
        A = positive_definite(5, 10)
        sol = bo.nearest_correlation(A, divergence, tol=1e-10)
        if divergence == "logdet":
            gradient = np.linalg.inv(A) - np.linalg.inv(sol.X)
        else:
            (a, P), (x, Q) = np.linalg.eigh(A), np.linalg.eigh(sol.X)
            gradient = (Q * np.log(x)) @ Q.T - (P * np.log(a)) @ P.T
        np.testing.assert_allclose(gradient - np.diag(np.diag(gradient)), 0, atol=1e-4)
        np.testing.assert_allclose(np.diag(gradient), -sol.duals[0], atol=1e-4)

    @pytest.mark.parametrize("n", [3, 5, 8])
    @pytest.mark.parametrize("kind", ["vector", "matrix"])
    def test_everything_at_once_agrees_with_cvxpy(self, n, kind):
        rng = np.random.default_rng(n)
        A = 0.5 * broken(n, n) + 0.5 * np.eye(n)
        if kind == "vector":
            weights = rng.uniform(0.5, 2, n)
            H, t = np.outer(weights, weights), 0.05
        else:
            weights = rng.uniform(0.5, 2, (n, n))
            weights = (weights + weights.T) / 2
            H, t = weights**2, 0.1
        i, j = (k[1:] for k in np.triu_indices(n, 1))  # entry 0, 1 is fixed
        sol = bo.nearest_correlation(
            A, fixed=[[0, 1]], lower=-0.3, upper=0.35, min_eigenvalue=t, weights=weights, tol=1e-7
        )
        assert sol.status == "optimal"
        confirm(sol, A, lambda X: [X[0, 1] == A[0, 1], X[i, j] >= -0.3, X[i, j] <= 0.35], H=H, t=t)
        assert np.linalg.eigvalsh(sol.X)[0] >= t - 1e-6

    @pytest.mark.parametrize(("n", "seed"), [(2, 60), (4, 61), (8, 62)])
    def test_logdet_with_bounds_agrees_with_cvxpy(self, n, seed):
        A = positive_definite(n, seed)
        i, j = (k[1:] for k in np.triu_indices(n, 1))
        X = cp.Variable((n, n), PSD=True)
        rows = [cp.diag(X) == 1, X[0, 1] == A[0, 1]]
        if n > 2:
            rows += [X[i, j] >= -0.1, X[i, j] <= 0.2]
        objective = cp.trace(np.linalg.inv(A) @ X) - cp.log_det(X) + np.linalg.slogdet(A)[1] - n
        sol = bo.nearest_correlation(A, "logdet", fixed=[[0, 1]], lower=-0.1, upper=0.2, **SOLVE)
        peers.ask(cp.Problem(cp.Minimize(objective), rows)).confirms(sol, {X: sol.X})
        assert (np.diag(sol.X) == 1).all() or np.abs(np.diag(sol.X) - 1).max() < 1e-8

    @pytest.mark.parametrize("divergence", ["frobenius", "von_neumann"])
    def test_optimality_conditions_with_bounds(self, divergence):
        # Stationarity; multipliers have the signs of their bounds, and are zero if a bound is slack.
        A = positive_definite(6, 63)
        sol = bo.nearest_correlation(A, divergence, lower=-0.1, upper=0.1, tol=1e-9)
        if divergence == "frobenius":
            gradient = 2 * (sol.X - A)
        else:
            (a, P), (x, Q) = np.linalg.eigh(A), np.linalg.eigh(sol.X)
            gradient = (Q * np.log(x)) @ Q.T - (P * np.log(a)) @ P.T
        assert np.linalg.eigvalsh(sol.X)[0] > 0.01  # X psd is slack: its multiplier is zero
        entries = np.triu_indices(6, 1)
        slope, value = gradient[entries], sol.X[entries]
        inside = (value > -0.1 + 1e-5) & (value < 0.1 - 1e-5)
        assert inside.any()
        assert not inside.all()
        np.testing.assert_allclose(slope[inside], 0, atol=1e-4)
        assert (slope[value <= -0.1 + 1e-5] > -1e-4).all()
        assert (slope[value >= 0.1 - 1e-5] < 1e-4).all()

    @given(seed=st.integers(0, 1000), n=st.integers(2, 6))
    def test_signs(self, seed, n):
        A, signs = broken(n, seed), np.random.default_rng(seed).choice([-1.0, 1.0], n)
        plain, turned = (bo.nearest_correlation(B, **SOLVE) for B in (A, signs[:, None] * A * signs))
        np.testing.assert_allclose(turned.X, signs[:, None] * plain.X * signs, atol=1e-4)
        assert turned.value == pytest.approx(plain.value, abs=1e-6)

    @given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-4, 0.5, 3.0, 1e4]))
    def test_scaled_weights_scale_the_value(self, seed, scale):
        A, w = broken(4, seed), np.random.default_rng(seed).uniform(0.5, 2, 4)
        plain, scaled = (bo.nearest_correlation(A, weights=v, **SOLVE) for v in (w, scale * w))
        np.testing.assert_allclose(scaled.X, plain.X, atol=1e-4)
        assert scaled.value == pytest.approx(scale**2 * plain.value, rel=1e-4, abs=1e-6 * scale**2)

    def test_vectors_of_weights_are_matrices_of_rank_one(self):
        A, w = broken(4, 13), np.array([0.5, 1.0, 2.0, 1.5])
        by_rows = bo.nearest_correlation(A, weights=w, tol=1e-7)
        by_entries = bo.nearest_correlation(A, weights=np.sqrt(np.outer(w, w)), tol=1e-7)
        np.testing.assert_allclose(by_entries.X, by_rows.X, atol=1e-3)

    @given(seed=st.integers(0, 1000), n=st.integers(1, 6))
    def test_the_answer_is_a_correlation_matrix_and_stays(self, seed, n):
        first = bo.nearest_correlation(broken(n, seed), **SOLVE).X
        assert (np.diag(first) == 1).all()
        assert np.linalg.eigvalsh(first)[0] >= -1e-12
        np.testing.assert_array_equal(first, first.T)
        again = bo.nearest_correlation(first, **SOLVE)
        assert again.value == pytest.approx(0, abs=1e-12)
        np.testing.assert_allclose(again.X, first, atol=1e-6)

    @given(
        seed=st.integers(0, 1000), t=st.sampled_from([0.0, 0.05, 0.3]), hi=st.sampled_from([1.0, 0.5, 0.1])
    )
    def test_no_digit_is_lost_by_weights(self, seed, t, hi):
        w = np.random.default_rng(seed).uniform(0.3, 3, 7)
        sol = bo.nearest_correlation(broken(7, seed), weights=w, min_eigenvalue=t, upper=hi)
        assert (np.diag(sol.X) == 1).all()
        np.testing.assert_array_equal(sol.X, sol.X.T)

    def test_stopped_before_it_began(self):
        with pytest.warns(bo.ConvergenceWarning):
            sol = bo.nearest_correlation(broken(7, 0), time_limit=1e-9)
        assert sol.status == "user_limit"

    def test_a_correlation_matrix_stays(self):
        A = bo.nearest_correlation(broken(6, 11), min_eigenvalue=0.05, **SOLVE).X
        sol = bo.nearest_correlation(A, **SOLVE)
        assert sol.value == pytest.approx(0, abs=1e-12)
        np.testing.assert_allclose(sol.X, A, atol=1e-8)

    @given(seed=st.integers(0, 1000), n=st.integers(2, 6))
    def test_permutations(self, seed, n):
        A = broken(n, seed)
        order = np.random.default_rng(seed).permutation(n)
        plain = bo.nearest_correlation(A, **SOLVE).X
        moved = bo.nearest_correlation(A[np.ix_(order, order)], **SOLVE).X
        np.testing.assert_allclose(moved, plain[np.ix_(order, order)], atol=1e-4)

    def test_low_rank_start_keeps_its_range(self):
        G = np.random.default_rng(12).normal(size=(8, 6))
        sol = bo.nearest_correlation(bo.LowRank(G), "logdet", tol=1e-8)
        assert isinstance(sol.X, bo.LowRank)
        np.testing.assert_allclose(sol.X.diag(), 1, atol=1e-7)
        assert np.linalg.matrix_rank(np.hstack([G, sol.X.factor])) == 6

    def test_labels_come_back(self):
        pandas = pytest.importorskip("pandas")
        names = ["a", "b", "c"]
        frame = pandas.DataFrame(HIGHAM, index=names, columns=names)
        X = bo.nearest_correlation(frame).X
        assert list(X.index) == list(X.columns) == names
        np.testing.assert_allclose(X.to_numpy(), bo.nearest_correlation(HIGHAM).X)
        with pytest.raises(ValueError, match="upper is a DataFrame with other labels"):
            bo.nearest_correlation(frame, upper=frame.rename(index={"a": "z"}, columns={"a": "z"}))
        with pytest.raises(ValueError, match="A is a DataFrame whose index and columns differ"):
            bo.nearest_correlation(frame.rename(index={"a": "z"}))

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"A": [[1, np.nan], [np.nan, 1]]}, ValueError, "A"),
            ({"A": [[1, 2], [3, 1]]}, ValueError, "A"),
            ({"A": [[1, 2, 3]]}, ValueError, "A"),
            ({"A": [[1, 1j], [-1j, 1]]}, TypeError, "A"),
            ({"A": "matrix"}, FileNotFoundError, "A"),
            ({"divergence": "logdat"}, ValueError, "logdet"),
            ({"divergence": "logdet"}, ValueError, "A is not positive definite"),
            ({"fixed": np.ones((2, 2), dtype=bool)}, ValueError, "fixed has shape"),
            ({"fixed": [[0, 5]]}, (ValueError, IndexError), "fixed"),
            ({"fixed": [[0.5, 1.0]]}, TypeError, "fixed"),
            ({"fixed": [[0, 1, 2]]}, ValueError, "fixed"),
            ({"fixed": [[0, 1], [2]]}, ValueError, "fixed is ragged"),
            ({"fixed": "all"}, TypeError, "fixed has dtype"),
            ({"fixed": np.eye(3, k=1, dtype=bool)}, ValueError, "fixed is not symmetric"),
            ({"A": 2 * HIGHAM, "fixed": [[0, 1]]}, ValueError, "fixed keeps entry"),
            ({"lower": [[1], [1, 2]]}, ValueError, "lower is ragged"),
            ({"lower": np.nan}, ValueError, "lower has 1 NaN"),
            ({"upper": np.ones((2, 2))}, ValueError, "upper is 2 x 2"),
            ({"upper": "a"}, TypeError, "upper has dtype"),
            ({"min_eigenvalue": None}, TypeError, "min_eigenvalue"),
            ({"min_eigenvalue": [0.1]}, ValueError, "min_eigenvalue"),
            ({"divergence": "logdet", "A": np.eye(3), "weights": np.ones(3)}, ValueError, "weights"),
            ({"divergence": ["logdet"]}, ValueError, "divergence"),
            ({"divergence": None}, ValueError, "divergence"),
            ({"A": bo.LowRank(np.ones((3, 1)))}, TypeError, "A is LowRank"),
            ({"A": None}, TypeError, "A is of type NoneType"),
            ({"A": np.zeros((0, 0))}, ValueError, "A is empty"),
            ({"weights": [1.0, np.inf, 1.0]}, ValueError, "weights"),
            ({"weights": [[1, 2, 1], [1, 1, 1], [1, 1, 1]]}, ValueError, "weights is not symmetric"),
            ({"tol": 0}, ValueError, "tol"),
            ({"lower": 0.5, "upper": 0.2}, ValueError, "lower is 0.5 but upper is 0.2"),
            ({"upper": -1.5}, ValueError, "upper"),
            ({"lower": np.inf}, ValueError, "lower"),
            ({"min_eigenvalue": 1.0}, ValueError, "min_eigenvalue"),
            ({"min_eigenvalue": -0.1}, ValueError, "min_eigenvalue"),
            ({"weights": [1.0, -1.0, 1.0]}, ValueError, "weights"),
            ({"weights": [1.0, 1.0]}, ValueError, "weights has shape"),
            ({"tolerance": 1e-3}, TypeError, "tolerance"),
            ({"solver": "bregmann"}, ValueError, "bregman"),
        ],
    )
    def test_bad_input_is_named(self, arguments, error, message):
        with pytest.raises(error, match=message):
            bo.nearest_correlation(**{"A": HIGHAM, **arguments})


class TestIndefiniteFixedBlocks:
    """They make the problem infeasible, and the answer names the block and its eigenvalue."""

    BLOCK = np.array([[1.0, 0.9, -0.4], [0.9, 1.0, 0.3], [-0.4, 0.3, 1.0]])  # it has an eigenvalue of -0.119

    def planted(self, n, at):
        A, mask = np.eye(n), np.zeros((n, n), dtype=bool)
        A[np.ix_(at, at)] = self.BLOCK
        mask[np.ix_(at, at)] = True
        return A, mask

    @pytest.mark.parametrize("at", [[0, 1, 2], [2, 3, 4], [6, 1, 3]])
    @pytest.mark.parametrize(
        "options", [{}, {"min_eigenvalue": 0.05}, {"weights": np.arange(1.0, 8.0)}, {"lower": -0.9}]
    )
    def test_the_block_is_named(self, at, options):
        A, mask = self.planted(7, at)
        mask[0, 5] = mask[5, 0] = True  # one more pair, of a definite block
        sol = bo.nearest_correlation(A, fixed=mask, **options)
        assert sol.status == "infeasible"
        least = np.linalg.eigvalsh(self.BLOCK)[0]
        named = ", ".join(str(k) for k in sorted(at))
        assert f"all entries of {named}, " in sol.stop_reason
        assert f"eigenvalue {least:.3g}, below {options.get('min_eigenvalue', 0):g}" in sol.stop_reason
        assert repr(sol).endswith(sol.stop_reason)

    def test_by_labels_and_of_overlapping_blocks_the_worst(self):
        pandas = pytest.importorskip("pandas")
        A, mask = self.planted(9, [3, 4, 5])
        A[np.ix_([5, 6, 7], [5, 6, 7])] = [[1, 0.95, -0.9], [0.95, 1, 0.9], [-0.9, 0.9, 1]]
        mask[np.ix_([5, 6, 7], [5, 6, 7])] = True
        worst = np.linalg.eigvalsh(A[5:8, 5:8])[0]
        sol = bo.nearest_correlation(pandas.DataFrame(A, list("abcdefghi"), list("abcdefghi")), fixed=mask)
        assert (
            f"all entries of f, g, h, and with a unit diagonal this block has the eigenvalue {worst:.3g}"
            in (sol.stop_reason)
        )

    def test_many_members_are_counted(self):
        A = np.full((12, 12), -0.5) + 1.5 * np.eye(12)
        sol = bo.nearest_correlation(A, fixed=np.ones((12, 12), dtype=bool))
        assert "all entries of 0, 1, 2, 3, 4, 5 and 6 more, " in sol.stop_reason

    def test_no_block_is_blamed_where_none_alone_is_wrong(self):
        A = np.eye(4)
        cycle = [[0, 1], [1, 2], [2, 3], [3, 0]]
        for (i, j), value in zip(cycle, [1.0, 1.0, 1.0, -1.0], strict=True):
            A[i, j] = A[j, i] = value
        sol = bo.nearest_correlation(A, fixed=cycle)
        assert sol.status == "infeasible"
        assert "fixed keeps" not in sol.stop_reason

    @pytest.mark.parametrize("seed", range(20))
    def test_all_blocks_of_chordal_patterns_are_found(self, seed):
        """Each vertex joins a part of an earlier clique, which gives every chordal pattern."""
        rng = np.random.default_rng(seed)
        n, known = 12, [{0}]
        pattern = np.zeros((n, n), dtype=bool)
        for v in range(1, n):
            base = sorted(known[rng.integers(len(known))])
            chosen = rng.permutation(base)[: rng.integers(0, len(base) + 1)]
            pattern[v, chosen] = pattern[chosen, v] = True
            known.append({v, *chosen.tolist()})
        maximal = {frozenset(c) for c in known if not any(c < other for other in known)}
        order = rng.permutation(n)
        found = {frozenset(order[list(c)].tolist()) for c in cliques(pattern[np.ix_(order, order)])}
        assert maximal <= found


class TestCovariancesAreNoCorrelations:
    @pytest.mark.parametrize("scale", [0.01, 20.0])
    def test_they_are_taken_with_a_warning_that_says_how_to_make_some(self, scale):
        pandas = pytest.importorskip("pandas")
        returns = scale * np.random.default_rng(0).normal(size=(60, 3)) * [1.0, 2.0, 3.0]
        frame = pandas.DataFrame(returns, columns=["a", "b", "c"])
        with pytest.warns(
            bo.DataWarning, match=r"on the diagonal, at [ac], .* pass A / np.outer\(s, s\) with s = "
        ):
            bo.nearest_correlation(frame.cov())
        s = np.sqrt(np.diag(frame.cov()))
        found = bo.nearest_correlation(frame.cov() / np.outer(s, s)).X
        np.testing.assert_allclose(found, frame.corr(), atol=1e-7)

    def test_diagonals_near_one_are_correlations(self):
        found = bo.nearest_correlation(HIGHAM - 0.2 * np.eye(3)).X
        np.testing.assert_allclose(found, bo.nearest_correlation(HIGHAM).X, atol=1e-6)

    def test_priors_of_any_scale_are_fine_in_logdet(self):
        assert bo.nearest_correlation(3 * np.eye(2), "logdet").status == "optimal"
        assert bo.nearest_correlation(bo.LowRank(3 * np.eye(2)), "von_neumann").status == "optimal"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bo.nearest_correlation(HIGHAM, min_eig=0.1), "nearest_correlation .* mean 'min_eigenvalue'"),
        (lambda: bo.nearest_correlation(HIGHAM, weigths=1), "nearest_correlation .* mean 'weights'"),
        (lambda: bo.nearest_correlation(HIGHAM, warmstart=True), "nearest_correlation .* mean 'warm_start'"),
        (lambda: bo.nearest_correlation(HIGHAM, metod="cyclic"), "nearest_correlation .* mean 'method'"),
        (
            lambda: bo.nearest_correlation(HIGHAM, solver="path", method="cyclic"),
            "'method' with solver='path'",
        ),
        (lambda: bo.nearest_psd(HIGHAM, constraint=[]), "nearest_psd .* mean 'constraints'"),
        (lambda: bo.learn_kernel(np.eye(3), [[0, 1]], [], gama=1), "learn_kernel .* mean 'gamma'"),
        (lambda: bo.soft_margin((np.ones((1, 2)),) * 2, c=1.0), "soft_margin .* mean 'C'"),
        (lambda: bo.max_cut(np.ones((3, 3)) - np.eye(3), weight=1), "max_cut .* mean 'weights'"),
        (
            lambda: bo.min_balanced_cut([(0, 1), (1, 2)], inbalance=0.2),
            "min_balanced_cut .* mean 'imbalance'",
        ),
        (lambda: bo.lovasz_theta([(0, 1), (1, 2)], toll=1), "lovasz_theta .* mean 'tol'"),
    ],
)
def test_unknown_arguments_are_told_beside_the_functions_own(call, message):
    with pytest.raises(TypeError, match=message.replace(" .* mean", r" has no option '\w+'; did you mean")):
        call()


def test_options_of_routes_still_pass():
    assert (
        bo.nearest_correlation(HIGHAM, solver="bregman", method="cyclic", warm_start=False).status
        == "optimal"
    )


class TestNearestPsd:
    @given(seed=st.integers(0, 1000), n=st.integers(1, 6), scale=st.sampled_from([1e-6, 1.0, 1e6]))
    def test_without_constraints_it_cuts_the_negative_eigenvalues(self, seed, n, scale):
        A = scale * np.random.default_rng(seed).normal(size=(n, n))
        A = A + A.T
        w, Q = np.linalg.eigh(A)
        expected = (Q * np.maximum(w, 0)) @ Q.T
        sol = bo.nearest_psd(A)
        np.testing.assert_allclose(sol.X, expected, atol=1e-7 * scale * max(1, np.abs(A / scale).max()))
        assert sol.value == pytest.approx(
            float(np.sum(np.minimum(w, 0) ** 2)), rel=1e-6, abs=1e-12 * scale**2
        )

    @pytest.mark.parametrize("divergence", ["frobenius", "logdet", "von_neumann"])
    def test_constraints_by_functions(self, divergence):
        A = positive_definite(4, 20)
        sol = bo.nearest_psd(
            A, [lambda X: X[0, 1] >= 0.5, lambda X: [bo.trace(X) == 3, X[2, 2] <= 0.6]], divergence, tol=1e-8
        )
        assert sol.status == "optimal"
        assert sol.X[0, 1] >= 0.5 - 1e-6
        assert np.trace(sol.X) == pytest.approx(3)
        assert sol.X[2, 2] <= 0.6 + 1e-6
        assert len(sol.duals) == 3

    @given(seed=st.integers(0, 1000), n=st.integers(2, 6))
    def test_constraints_agree_with_cvxpy(self, seed, n):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(n, n))
        A = A + A.T
        sol = bo.nearest_psd(A, [lambda X: bo.trace(X) == n, lambda X: X[0, 1] >= 0.1], tol=1e-7)
        X = cp.Variable((n, n), PSD=True)
        problem = cp.Problem(cp.Minimize(cp.sum_squares(X - A)), [cp.trace(X) == n, X[0, 1] >= 0.1])
        peers.ask(problem).confirms(sol, {X: sol.X})

    def test_low_rank(self):
        G = np.random.default_rng(21).normal(size=(6, 2))
        sol = bo.nearest_psd(bo.LowRank(G), lambda X: bo.trace(X) == 1, "logdet", tol=1e-8)
        assert isinstance(sol.X, bo.LowRank)
        assert sol.X.trace() == pytest.approx(1)
        # inv(N) - I is a multiple of G'G, by the multiplier of the trace.
        P = np.linalg.pinv(G)
        excess = np.linalg.inv(P @ sol.X.dense() @ P.T) - np.eye(2)
        scale = np.vdot(excess, G.T @ G) / np.vdot(G.T @ G, G.T @ G)
        np.testing.assert_allclose(excess, scale * G.T @ G, atol=1e-5)

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"A": [[1, 2], [3, 1]]}, ValueError, "A is not symmetric"),
            ({"A": [[1, 2], [2]]}, ValueError, "A is ragged"),
            ({"divergence": "logdat"}, ValueError, "did you mean 'logdet'"),
            ({"divergence": "von_neumann", "A": -np.eye(2)}, ValueError, "A is not positive definite"),
            ({"constraints": lambda X: None}, TypeError, "constraint"),
            ({"constraints": lambda X: True}, TypeError, "constraint"),
            ({"constraints": lambda X: bo.trace(X) == -1}, bo.InfeasibleRowError, "trace"),
            ({"max_iter": 0}, ValueError, "max_iter"),
        ],
    )
    def test_bad_input_is_named(self, arguments, error, message):
        with pytest.raises(error, match=message):
            bo.nearest_psd(**{"A": np.eye(2), **arguments})

    @pytest.mark.parametrize("constraints", ["diag", 5, [1], [bo.diag(bo.PSD(2)) == 1]])
    def test_constraints_that_are_not_functions(self, constraints):
        with pytest.raises(TypeError, match="constraints"):
            bo.nearest_psd(np.eye(2), constraints)


class TestLearnKernel:
    @pytest.mark.parametrize("gamma", [None, 0.5])
    def test_logdet_agrees_with_cvxpy(self, gamma):
        K0 = positive_definite(5, 30)
        similar, dissimilar = np.array([[0, 1], [2, 3]]), np.array([[0, 4]])
        sol = bo.learn_kernel(K0, similar, dissimilar, gamma=gamma, tol=1e-8)

        def distance(K, pairs):
            return [K[i, i] + K[j, j] - 2 * K[i, j] for i, j in pairs]

        near, far = 0.75 * np.array(distance(K0, similar)), 1.25 * np.array(distance(K0, dissimilar))
        K = cp.Variable((5, 5), PSD=True)
        objective = cp.trace(np.linalg.inv(K0) @ K) - cp.log_det(K) + np.linalg.slogdet(K0)[1] - 5
        d, e = cp.hstack(distance(K, similar)), cp.hstack(distance(K, dissimilar))
        if gamma is None:
            rows = [d <= near, e >= far]
        else:
            bends = [cp.Variable(2), cp.Variable(1)]
            for bend, b in zip(bends, (near, far), strict=True):
                objective += gamma * cp.sum(cp.multiply(1 / b, bend) - cp.log(bend) + np.log(b) - 1)
            rows = [d <= bends[0], e >= bends[1]]
        peer = peers.ask(cp.Problem(cp.Minimize(objective), rows))
        peer.confirms(sol, {K: sol.X} if gamma is None else None)
        assert [np.shape(d) for d in sol.duals] == [(2,), (1,)]

    @pytest.mark.parametrize("divergence", ["logdet", "von_neumann", "frobenius"])
    def test_pairs_move_as_asked(self, divergence):
        K0 = positive_definite(6, 31)
        sol = bo.learn_kernel(K0, [[0, 1]], [[2, 5]], upper=0.3, lower=[4.0], divergence=divergence, tol=1e-8)
        X = sol.X
        assert X[0, 0] + X[1, 1] - 2 * X[0, 1] <= 0.3 + 1e-6
        assert X[2, 2] + X[5, 5] - 2 * X[2, 5] >= 4.0 - 1e-6

    @pytest.mark.parametrize("seed", range(4))
    def test_von_neumann_meets_its_optimality_conditions(self, seed):
        K0 = positive_definite(5, 70 + seed)
        pairs = np.array([[0, 1], [2, 3], [0, 4]])
        sol = bo.learn_kernel(K0, pairs[:2], pairs[2:], divergence="von_neumann", tol=1e-9)
        y = np.concatenate(sol.duals)
        (a, P), (x, Q) = np.linalg.eigh(K0), np.linalg.eigh(sol.X)
        gradient = (Q * np.log(x)) @ Q.T - (P * np.log(a)) @ P.T
        Z = np.eye(5)[pairs[:, 0]] - np.eye(5)[pairs[:, 1]]
        signs = np.array([-1.0, -1.0, 1.0])
        np.testing.assert_allclose(gradient, (Z.T * (signs * y)) @ Z, atol=1e-5)
        assert (y >= 0).all()
        d, d0 = (np.einsum("ri,ij,rj->r", Z, K, Z) for K in (sol.X, K0))
        slack = signs * (d - np.array([0.75, 0.75, 1.25]) * d0)
        assert (slack >= -1e-6).all()
        np.testing.assert_allclose(y * slack, 0, atol=1e-5)

    def test_softer_bounds_bend_more(self):
        K0 = positive_definite(5, 33)
        moved = []
        for gamma in (0.01, 1.0, 100.0):
            X = bo.learn_kernel(K0, [[0, 1]], [], gamma=gamma, tol=1e-8).X
            moved.append(X[0, 0] + X[1, 1] - 2 * X[0, 1])
        d0 = K0[0, 0] + K0[1, 1] - 2 * K0[0, 1]
        assert d0 > moved[0] > moved[1] > moved[2] > 0.75 * d0
        assert moved[2] == pytest.approx(0.75 * d0, rel=1e-2)

    def test_contradictory_pairs_are_infeasible(self):
        assert bo.learn_kernel(np.eye(3), [[0, 1]], [[1, 0]]).status == "infeasible"
        assert bo.learn_kernel(np.eye(3), [[0, 1]], [[1, 0]], gamma=1.0).status == "optimal"

    @pytest.mark.parametrize("divergence", ["logdet", "von_neumann"])
    def test_low_rank_is_the_full_problem_on_the_range(self, divergence):
        G = np.random.default_rng(32).normal(size=(7, 3))
        sol = bo.learn_kernel(
            bo.LowRank(G), [[0, 1], [2, 3]], [[4, 5]], gamma=1.0, divergence=divergence, tol=1e-8
        )
        assert isinstance(sol.X, bo.LowRank)
        assert sol.X.shape == (7, 7)
        assert sol.rank == 3
        # In an orthonormal basis of the range K0 is 3 x 3 and positive definite, and so is the answer.
        Q, R = np.linalg.qr(G)
        K = bo.PSD(3)
        divergences = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}
        d = bo.quad_form(np.array([Q[0] - Q[1], Q[2] - Q[3], Q[4] - Q[5]]), K)
        d0 = np.sum(np.array([G[0] - G[1], G[2] - G[3], G[4] - G[5]]) ** 2, axis=1)
        rows = [bo.soft(d[:2] <= 0.75 * d0[:2], 1.0), bo.soft(d[2:] >= 1.25 * d0[2:], 1.0)]
        small = bo.Problem(bo.Minimize(divergences[divergence](K, R @ R.T)), rows).solve(tol=1e-8)
        assert sol.value == pytest.approx(small.value, abs=1e-6)
        np.testing.assert_allclose(sol.X.dense(), Q @ small.X @ Q.T, atol=1e-4)

    def test_empty_sides(self):
        K0 = np.eye(3)
        assert len(bo.learn_kernel(K0, [[0, 1]], []).duals) == 1
        assert len(bo.learn_kernel(K0, [], [[0, 1]]).duals) == 1
        with pytest.raises(ValueError, match="both empty"):
            bo.learn_kernel(K0, [], [])

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"similar": [[0, 0]]}, ValueError, "similar pairs point 0 with itself"),
            ({"similar": [[0, 7]]}, ValueError, "similar has index 7"),
            ({"dissimilar": [[0, -1]]}, ValueError, "dissimilar has index -1"),
            ({"similar": [[0.0, 1.0]]}, TypeError, "similar has dtype"),
            ({"similar": [0, 1]}, ValueError, "similar has shape"),
            ({"similar": [[0, 1], [2]]}, ValueError, "similar is ragged"),
            ({"similar": None}, ValueError, "similar and dissimilar are both empty"),
            ({"dissimilar": [["a", "b"]]}, TypeError, "dissimilar has dtype"),
            ({"dissimilar": [[0, 2]], "lower": np.nan}, ValueError, "lower"),
            ({"lower": 1.0}, ValueError, "lower is given but dissimilar has no pairs"),
            ({"upper": "a"}, TypeError, "upper"),
            ({"gamma": [1.0]}, ValueError, "gamma"),
            ({"gamma": np.inf}, ValueError, "gamma"),
            ({"shrink": 0.0}, ValueError, "shrink"),
            ({"shrink": "a"}, TypeError, "shrink"),
            ({"K0": -np.eye(3)}, ValueError, "K0 is not positive definite"),
            ({"K0": -np.eye(3), "divergence": "frobenius"}, ValueError, "not apart in K0"),
            ({"K0": [[1, 2], [3]]}, ValueError, "K0 is ragged"),
            ({"K0": bo.LowRank(np.eye(3)), "divergence": "frobenius"}, TypeError, "K0 is LowRank"),
            ({"divergence": ["logdet"]}, ValueError, "divergence"),
            ({"tolerance": 1e-3}, TypeError, "tolerance"),
            ({"gamma": 0.0}, ValueError, "gamma"),
            ({"gamma": -1}, ValueError, "gamma"),
            ({"shrink": 1.0}, ValueError, "shrink"),
            ({"upper": 0.0}, ValueError, "upper"),
            ({"upper": [1.0, 2.0]}, ValueError, "upper has 2 values"),
            ({"K0": np.zeros((3, 3))}, ValueError, "K0"),
            ({"divergence": "euclid"}, ValueError, "divergence"),
        ],
    )
    def test_bad_input_is_named(self, arguments, error, message):
        with pytest.raises(error, match=message):
            bo.learn_kernel(**{"K0": np.eye(3), "similar": [[0, 1]], "dissimilar": [], **arguments})

    def test_points_that_coincide_have_no_default_bound(self):
        with pytest.raises(ValueError, match="points 0 and 1 of pair 0 are not apart in K0"):
            bo.learn_kernel(bo.LowRank(np.array([[1.0], [1.0], [2.0]])), [[0, 1]], [])


class TestSoftMargin:
    @pytest.mark.parametrize("sparse", [False, True])
    def test_agrees_with_clarabel(self, sparse):
        rng = np.random.default_rng(40)
        far, near = 2 * rng.normal(size=(30, 4)), rng.normal(size=(30, 4))
        far[:, 2] = near[:, 2] = 0.0
        given_pair = (sp.csr_array(far), sp.csr_array(near)) if sparse else (far, near)
        sol = bo.soft_margin(given_pair, C=0.2, tol=1e-7)
        X, rho, xi = cp.Variable((4, 4), PSD=True), cp.Variable(), cp.Variable(30, nonneg=True)
        margins = cp.hstack(
            [cp.trace((np.outer(f, f) - np.outer(g, g)) @ X) for f, g in zip(far, near, strict=True)]
        )
        problem = cp.Problem(cp.Maximize(rho - 0.2 * cp.sum(xi)), [margins >= rho - xi, cp.trace(X) == 1])
        assert sol.solver == "path"
        peers.ask(problem).confirms(sol, {X: sol.X, rho: sol.u["rho"], xi: sol.u["xi"]})
        assert sol.u["xi"].shape == (30,)

    def test_the_margin_has_a_derivative(self):
        """In the cost of ``X``, whose multiple ``t`` adds ``-t`` times the trace, 1, to the objective."""
        rng = np.random.default_rng(43)
        sol = bo.soft_margin((2 * rng.normal(size=(10, 3)), rng.normal(size=(10, 3))), C=0.4, tol=1e-9)
        derivative = sol.derivative()
        assert list(derivative.u) == ["rho"]
        moved = derivative.jvp(np.eye(3))
        assert moved.u["rho"] == pytest.approx(0.0, abs=1e-9)
        np.testing.assert_allclose(moved.X, 0.0, atol=1e-9)

    def test_repeated_comparisons_share_their_price(self):
        rng = np.random.default_rng(41)
        far, near = 2 * rng.normal(size=(15, 3)), rng.normal(size=(15, 3))
        once = bo.soft_margin((far, near), C=0.4, tol=1e-7)
        twice = bo.soft_margin((np.vstack([far, far]), np.vstack([near, near])), C=0.2, tol=1e-7)
        assert twice.value == pytest.approx(once.value, abs=1e-5)

    @examples(6)
    @given(seed=st.integers(0, 1000), price=st.sampled_from([1.0, 1.5, 5.0, 50.0]))
    def test_the_answer_is_what_it_says(self, seed, price):
        rng = np.random.default_rng(seed)
        far, near = 1.5 * rng.normal(size=(12, 3)), rng.normal(size=(12, 3))
        sol = bo.soft_margin((far, near), C=price / 12, tol=1e-6)
        margins = np.einsum("ri,ij,rj->r", far, sol.X, far) - np.einsum("ri,ij,rj->r", near, sol.X, near)
        assert np.trace(sol.X) == pytest.approx(1)
        assert np.linalg.eigvalsh(sol.X)[0] >= -1e-12
        assert (margins >= sol.u["rho"] - sol.u["xi"] - 1e-5).all()
        assert (sol.u["xi"] >= 0).all()
        assert sol.value == pytest.approx(sol.u["rho"] - price / 12 * sol.u["xi"].sum())
        assert sol.dual_value >= sol.value - 1e-9

    def test_columns_of_data_frames_name_the_metric(self):
        pandas = pytest.importorskip("pandas")
        rng = np.random.default_rng(42)
        far, near = 2 * rng.normal(size=(10, 3)), rng.normal(size=(10, 3))
        names = ["height", "width", "depth"]
        framed = [pandas.DataFrame(part, columns=names) for part in (far, near)]
        plain = bo.soft_margin((far, near))
        for comparisons in (framed, (framed[0], near), (far, framed[1])):
            X = bo.soft_margin(comparisons).X
            assert isinstance(X, pandas.DataFrame)
            assert list(X.index) == list(X.columns) == names
            np.testing.assert_allclose(X.to_numpy(), plain.X, atol=1e-9)
        with pytest.raises(ValueError, match="different columns; expected the same, in one order"):
            bo.soft_margin((framed[0], framed[1][names[::-1]]))
        twice = [part.set_axis(["a", "b", "a"], axis="columns") for part in framed]
        with pytest.raises(ValueError, match="column 'a' twice"):
            bo.soft_margin(twice)

    def test_sparse_rows_are_never_modified(self):
        far = sp.csr_array(
            (np.array([1.0, 2, 3, 4]), np.array([1, 0, 1, 0]), np.array([0, 2, 4])), shape=(2, 2)
        )
        data, indices = far.data.copy(), far.indices.copy()
        bo.soft_margin((far, 0.1 * np.eye(2)))
        np.testing.assert_array_equal(far.data, data)
        np.testing.assert_array_equal(far.indices, indices)

    @pytest.mark.parametrize(
        ("comparisons", "options", "error", "message"),
        [
            (np.eye(3), {}, TypeError, "comparisons"),
            ((np.eye(3), np.eye(2)), {}, ValueError, "shapes"),
            ((np.zeros((0, 2)), np.zeros((0, 2))), {}, ValueError, "at least one row"),
            ((np.full((1, 2), np.nan), np.ones((1, 2))), {}, ValueError, "far of comparisons"),
            ((np.ones((2, 2)), np.ones((2, 2)) * 1j), {}, TypeError, "near of comparisons"),
            ((np.ones((4, 2)), np.ones((4, 2))), {"C": 0.2}, ValueError, "at least 1/4"),
            ((np.ones((4, 2)), np.ones((4, 2))), {"C": 0.0}, ValueError, "C is 0"),
            ((np.ones((4, 2)), np.ones((4, 2))), {"C": "a"}, TypeError, "C has dtype"),
            ((np.ones((4, 2)), np.ones((4, 2))), {"C": np.inf}, ValueError, "C has 1 NaN or Inf"),
            (None, {}, TypeError, "comparisons is NoneType"),
            ((np.ones(2), np.ones(2)), {}, ValueError, "far of comparisons has 1 dimensions"),
            ((sp.coo_array(np.ones(2)), np.ones(2)), {}, ValueError, "far of comparisons has 1 dimensions"),
            (([[1], [1, 2]], np.ones((2, 2))), {}, ValueError, "far of comparisons is ragged"),
            (
                (np.ones((2, 2)), sp.csr_array(1j * np.eye(2))),
                {},
                TypeError,
                "near of comparisons is complex",
            ),
            ((np.ones((4, 2)), np.ones((4, 2))), {"cuts": 3}, TypeError, "cuts"),
        ],
    )
    def test_bad_input_is_named(self, comparisons, options, error, message):
        with pytest.raises(error, match=message):
            bo.soft_margin(comparisons, **options)


def test_arguments_are_never_modified():
    A, K0 = broken(5, 50), positive_definite(5, 51)
    pairs = np.array([[0, 1], [1, 2]])
    far, near = np.random.default_rng(52).normal(size=(2, 10, 3))
    weights, fixed = np.ones(5), np.zeros((5, 5), dtype=bool)
    arrays = [A, K0, pairs, far, near, weights, fixed]
    for array in arrays:
        array.setflags(write=False)
    copies = [array.copy() for array in arrays]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bo.nearest_correlation(A, weights=weights, fixed=fixed)
        bo.nearest_psd(A)
        bo.learn_kernel(K0, pairs, [])
        bo.soft_margin((far, near))
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
