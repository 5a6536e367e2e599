"""Nearness with entrywise weights: closed forms, bounds computed by NumPy, and every pattern of weights."""

import cvxpy as cp
import numpy as np
import peers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first, turns

import bregopt as bo
import bregopt.cvxpy
from bregopt.certify import PrimalDualPoint, certify
from bregopt.divergences import WeightedFrobenius
from bregopt.routes.projection import weights_lagrangian


def broken(n, seed):
    """Return a symmetric matrix with unit diagonal, entries in [-1, 1] and, mostly, negative eigenvalues."""
    A = np.triu(np.random.default_rng(seed).uniform(-1, 1, size=(n, n)), 1)
    return A + A.T + np.eye(n)


def weighted_bound(X, A, H, y):
    """Return a lower bound on the sum of squares of H o (X - A) over correlation matrices, by NumPy.

    Any psd S gives one: the minimum, entry by entry in [-1, 1], of the squares minus <S, X>. Here S is made
    of the gradient at `X` and the multipliers `y` of the diagonal.
    """
    S = 2 * H**2 * (X - A)
    np.fill_diagonal(S, -y)
    eigenvalues, V = np.linalg.eigh(S)
    S = (V * np.maximum(eigenvalues, 0)) @ V.T
    best = np.clip(A + np.divide(S, 2 * H**2, out=np.zeros_like(S), where=H > 0), -1, 1)
    best = np.where(H > 0, best, np.sign(S))
    np.fill_diagonal(best, 1.0)
    return float(np.sum(H**2 * (best - A) ** 2) - np.vdot(S, best))


def complementary(X, A, H):
    """Return the multipliers of the diagonal for which the gradient at `X` times `X` has no diagonal."""
    G = 2 * H**2 * (X - A)
    np.fill_diagonal(G, 0.0)
    return (G @ X).diagonal()


def of_entries(n, rng, kind):
    """Return symmetric weights of a pattern."""
    draw = {
        "uniform": lambda: rng.uniform(0.1, 1, (n, n)),
        "near zero": lambda: 10 ** rng.uniform(-3, 0, (n, n)),
        "one or ten": lambda: rng.choice([1.0, 10.0], (n, n)),
        "one or hundred": lambda: rng.choice([1.0, 100.0], (n, n)),
        "zeros": lambda: rng.choice([0.0, 1.0], (n, n), p=[0.3, 0.7]),
        "mostly zeros": lambda: rng.choice([0.0, 1.0], (n, n), p=[0.8, 0.2]),
        "rank one": lambda: np.sqrt(np.multiply.outer(*[10 ** rng.uniform(-1, 1, n)] * 2)),
        "block": lambda: np.where(np.add.outer(*[np.arange(n) >= max(n // 4, 2)] * 2) > 0, 1.0, 10.0),
        "a row unknown": lambda: np.where(np.add.outer(*[np.arange(n) == 0] * 2), 0.0, 1.0),
    }[kind]()
    H = np.triu(draw, 1)
    return H + H.T + np.eye(n)


PATTERNS = (
    "uniform", "near zero", "one or ten", "one or hundred", "zeros", "mostly zeros", "rank one", "block",
    "a row unknown",
)  # fmt: skip


def audited():
    """Yield problems for which version 0.1.0 found the answer without a proof."""
    A = np.array([[1, 0.9, -0.4], [0.9, 1, 0.3], [-0.4, 0.3, 1]])
    H = np.ones((3, 3))
    H[0, 1] = H[1, 0] = 10
    yield A, H
    H = np.ones((10, 10))
    H[:2, :2] = 3
    yield broken(10, 0), H
    A = np.array([[1, -0.55, -0.15, -0.1], [-0.55, 1, 0.9, 0.9], [-0.15, 0.9, 1, 0.9], [-0.1, 0.9, 0.9, 1]])
    H = np.ones((4, 4))
    H[1:, 1:] = 100
    yield A, H
    H = np.ones((60, 60))
    H[:10, :10] = 10
    yield broken(60, 1), H


class TestWeightsOfEntries:
    """The distance with entrywise weights, some of them zero."""

    @pytest.mark.parametrize(("A", "H"), list(audited()), ids=["three", "ten", "a block of 100", "sixty"])
    def test_ends_with_its_proof(self, A, H):
        sol = bo.nearest_correlation(A, weights=H, tol=1e-11)
        assert sol.status == "optimal"
        assert (np.diag(sol.X) == 1).all()
        assert np.linalg.eigvalsh(sol.X)[0] >= -1e-12
        assert sol.value == pytest.approx(np.sum(H**2 * (sol.X - A) ** 2), rel=1e-12)
        bound = weighted_bound(sol.X, A, H, complementary(sol.X, A, H))
        assert sol.value * (1 - 1e-2) <= bound <= sol.value * (1 + 1e-12)
        unit = max(sol.value, np.sum((H * A) ** 2) / 100)
        assert abs(sol.dual_value - sol.value) <= 1e-11 * unit

    @given(
        kind=st.sampled_from(PATTERNS),
        A=st.sampled_from(["broken", "minus one", "large", "already one"]),
        n=st.integers(2, 9),
        seed=st.integers(0, 1000),
    )
    def test_every_pattern_is_optimal(self, kind, A, n, seed):
        rng = np.random.default_rng(seed)
        H, F = of_entries(n, rng, kind), rng.normal(size=(n, n + 2))
        target = {
            "broken": broken(n, seed),
            "minus one": 2 * np.eye(n) - np.ones((n, n)),
            "large": 5 * broken(n, seed) - 4 * np.eye(n),
            "already one": np.corrcoef(F),
        }[A]
        target = (target + target.T) / 2
        sol = bo.nearest_correlation(target, weights=H)
        assert sol.status == "optimal"
        unit = max(sol.value, np.sum((H * target) ** 2) / 100)
        # No correlation matrix is better: not on the way to others, and not any of these.
        G = 2 * H**2 * (sol.X - target)
        for other in (np.corrcoef(F), np.eye(n), np.ones((n, n)), np.corrcoef(F[:, :3])):
            assert np.sum(H**2 * (other - target) ** 2) >= sol.value - 1e-5 * unit
            way = other - sol.X
            assert np.vdot(G, way) >= -2 * np.sqrt(1e-6 * unit * np.sum((H * way) ** 2)) - 1e-5 * unit

    @pytest.mark.parametrize(
        ("seed", "options"), turns(range(12), [{}, {"fixed": [[0, 1], [1, 2]]}, {"min_eigenvalue": 1e-3}])
    )
    def test_a_matrix_that_meets_all_rows_is_its_own_answer(self, seed, options):
        # Multipliers of the size of round-off would prove no better bound than minus 1e-16 times the matrix.
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 12))
        A, H = np.corrcoef(rng.normal(size=(n, 3 * n))), of_entries(n, rng, ("uniform", "zeros")[seed % 2])
        sol = bo.nearest_correlation(A, weights=H, lower=-0.97, upper=0.97, **options)
        assert sol.status == "optimal"
        assert sol.iterations <= 50
        assert abs(sol.dual_value) <= sol.value + sol.error <= 1e-20

    @pytest.mark.parametrize("seed", [0, 2, 4, 6])
    def test_the_bound_of_a_small_distance_loses_no_digits(self, seed):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(6, 13))
        C, E = np.corrcoef(rng.normal(size=(n, n - 1))), rng.normal(size=(n, n)) * 3e-3
        A, H = np.clip(C + np.triu(E, 1) + np.triu(E, 1).T, -1, 1), of_entries(n, rng, "uniform")
        sol = bo.nearest_correlation(A, weights=H, min_eigenvalue=1e-3, tol=1e-11)
        assert 1e-6 < sol.value < 1e-3
        assert sol.status == "optimal"

    @pytest.mark.parametrize(
        ("kind", "options"),
        turns(
            ["uniform", "one or ten", "zeros", "mostly zeros", "near zero"],
            [{}, {"lower": -0.3, "upper": 0.4}, {"min_eigenvalue": 0.3}],
        ),
    )
    def test_larger_orders(self, kind, options):
        n, rng = 40, np.random.default_rng(3)
        A, H = broken(n, 3), of_entries(n, rng, kind)
        sol = bo.nearest_correlation(A, weights=H, **options)
        assert sol.status == "optimal"
        assert np.linalg.eigvalsh(sol.X)[0] >= options.get("min_eigenvalue", 0.0) - 1e-6
        off = sol.X[~np.eye(n, dtype=bool)]
        assert off.min() >= options.get("lower", -1.0) - 1e-6
        assert off.max() <= options.get("upper", 1.0) + 1e-6

    @pytest.mark.parametrize("weight", [0.5, 3.0])
    def test_two_by_two(self, weight):
        # The entry is as large as the diagonal and the least eigenvalue allow.
        sol = bo.nearest_correlation(
            [[1, 3], [3, 1]], weights=[[1, weight], [weight, 1]], min_eigenvalue=0.25, tol=1e-8
        )
        assert sol.X[0, 1] == pytest.approx(0.75, abs=1e-7)
        assert sol.value == pytest.approx(2 * weight**2 * 2.25**2, rel=1e-7)

    def test_a_single_one(self):
        assert bo.nearest_correlation([[1.0]], weights=[[2.0]]).X[0, 0] == 1

    @examples(4)
    @given(seed=st.integers(0, 1000), other=st.floats(-5, 5))
    def test_an_entry_of_weight_zero_does_not_count(self, seed, other):
        A, rng = broken(5, seed), np.random.default_rng(seed)
        H = of_entries(5, rng, "uniform")
        H[0, 3] = H[3, 0] = 0
        B = A.copy()
        B[0, 3] = B[3, 0] = other
        first, second = (bo.nearest_correlation(M, weights=H, tol=1e-8) for M in (A, B))
        assert first.value == pytest.approx(second.value, rel=1e-10)
        np.testing.assert_array_equal(first.X, second.X)
        X = bo.PSD(5)
        pairs = [(i, j) for i in range(5) for j in range(i) if (i, j) != (3, 0)]
        rows = [bo.diag(X) == 1]
        rows += [bo.soft(X[i, j] == A[i, j], 2 * H[i, j] ** 2, "divergence") for i, j in pairs]
        D = bo.frobenius_div(X, np.eye(5), weights=np.eye(5))
        assert bo.Problem(bo.Minimize(D), rows).solve(tol=1e-7).value == pytest.approx(first.value, rel=1e-5)

    def test_a_completion(self):
        # Two consistent entries leave an interval for the third, from 0.62 to 1.
        A = np.array([[1, 0.9, -1], [0.9, 1, 0.9], [-1, 0.9, 1]])
        H = np.ones((3, 3))
        H[0, 2] = H[2, 0] = 0
        sol = bo.nearest_correlation(A, weights=H, tol=1e-9)
        assert sol.status == "optimal"
        np.testing.assert_allclose(sol.X[[0, 1], [1, 2]], 0.9, atol=1e-4)
        assert 0.62 - 1e-3 <= sol.X[0, 2] <= 1

    @pytest.mark.parametrize(("n", "rank"), [(9, 6), (11, 8), (13, 7), (22, 6), (5, 2)])
    def test_a_singular_matrix_with_unknown_entries_is_at_distance_zero(self, n, rank):
        rng = np.random.default_rng(n)
        G = rng.normal(size=(n, rank))
        A = G @ G.T / np.outer(np.linalg.norm(G, axis=1), np.linalg.norm(G, axis=1))
        np.fill_diagonal(A, 1.0)
        H = np.ones((n, n))
        i, j = rng.integers(n, size=(2, 4))
        H[i, j] = H[j, i] = 0.0
        np.fill_diagonal(H, 1.0)
        X = bo.PSD(n)
        sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, A * H, weights=H)), [bo.diag(X) == 1]).solve()
        assert sol.status == "optimal"
        np.testing.assert_allclose(sol.X[H > 0], A[H > 0], atol=1e-9)

    def test_a_chain_that_is_out_of_reach(self):
        # X01 = 1 makes the first two one, so that X02 = X12, which is known.
        A, H = np.eye(3), np.eye(3)
        for i, j, value in ((0, 1, 2.0), (1, 2, 0.5)):
            A[i, j] = A[j, i] = value
            H[i, j] = H[j, i] = 1
        sol = bo.nearest_correlation(A, weights=H, tol=1e-9)
        assert sol.value == pytest.approx(2, rel=1e-7)
        np.testing.assert_allclose(sol.X[[0, 0, 1], [1, 2, 2]], [1, 0.5, 0.5], atol=1e-3)

    @pytest.mark.parametrize("n", first(1, [5, 6]))
    @examples(6)
    @given(seed=st.integers(0, 1000), kind=st.sampled_from(PATTERNS), scale=st.sampled_from([1e-3, 7.0, 1e3]))
    def test_order_and_scale_change_nothing(self, n, seed, kind, scale):
        rng = np.random.default_rng(seed)
        A, H, order = broken(n, seed), of_entries(n, rng, kind), rng.permutation(n)
        sol = bo.nearest_correlation(A, weights=H, tol=1e-8)
        moved = bo.nearest_correlation(A[np.ix_(order, order)], weights=H[np.ix_(order, order)], tol=1e-8)
        larger = bo.nearest_correlation(A, weights=scale * H, tol=1e-8)
        unit = np.sum((H * A) ** 2)
        assert {sol.status, moved.status, larger.status} == {"optimal"}
        assert moved.value == pytest.approx(sol.value, abs=1e-7 * unit)
        assert larger.value == pytest.approx(scale**2 * sol.value, abs=1e-7 * unit * scale**2)

    def test_fixed_blocks_stay(self):
        n, rng = 12, np.random.default_rng(4)
        A, H = broken(n, 4), of_entries(n, rng, "one or ten")
        A[:5, :5] = np.corrcoef(rng.normal(size=(5, 9)))
        A = (A + A.T) / 2
        mask = np.zeros((n, n), dtype=bool)
        mask[:5, :5] = ~np.eye(5, dtype=bool)
        sol = bo.nearest_correlation(A, weights=H, fixed=mask)
        assert sol.status == "optimal"
        np.testing.assert_allclose(sol.X[mask], A[mask], atol=1e-7)

    def test_the_interior_point_alone_proves_entries_fixed_far_from_the_target(self, monkeypatch):
        n, rng = 10, np.random.default_rng(5)
        A, H, C = broken(n, 5), of_entries(n, rng, "uniform"), np.corrcoef(rng.normal(size=(4, 9)))
        i, j = np.triu_indices(4, 1)
        monkeypatch.setattr(weights_lagrangian._Weighted, "_lagrangian", lambda *_: None)
        moved, values = A.copy(), []
        moved[i, j] = moved[j, i] = C[i, j]
        for target in (A, moved):
            X = bo.PSD(n)
            D = bo.frobenius_div(X, target, weights=H)
            sol = bo.Problem(bo.Minimize(D), [bo.diag(X) == 1, X[i, j] == C[i, j]]).solve(tol=1e-9)
            assert sol.status == "optimal"
            values.append(sol.value)
        constant = 2 * np.sum((H * (A - moved))[i, j] ** 2)  # of the fixed entries
        assert values[0] == pytest.approx(values[1] + constant, rel=1e-8)

    @pytest.mark.parametrize("n", [8, 40])
    def test_warm_starts(self, n):
        X = bo.PSD(n)
        D = bo.frobenius_div(X, broken(n, 5), weights=of_entries(n, np.random.default_rng(5), "zeros"))
        prob = bo.Problem(bo.Minimize(D), [bo.diag(X) == 1])
        cold = prob.solve()
        warm = prob.solve(warm_start=True)
        assert warm.status == "optimal"
        assert warm.iterations == 0 < cold.iterations
        looser = bo.Problem(bo.Minimize(D), [bo.diag(X) == 1.1]).solve(warm_start=cold)
        assert looser.status == "optimal"

    def test_stopped_early_it_says_so(self):
        A, H = broken(40, 6), of_entries(40, np.random.default_rng(6), "one or hundred")
        for limit in ({"max_iter": 2}, {"time_limit": 1e-3}):
            with pytest.warns(bo.ConvergenceWarning):
                sol = bo.nearest_correlation(A, weights=H, **limit)
            assert sol.status == "user_limit"
            assert np.isfinite(sol.value)

    def test_negative_weights_are_refused(self):
        with pytest.raises(ValueError, match="weights has the value -1; expected numbers from 0"):
            bo.nearest_correlation(np.eye(2), weights=[[1, -1], [-1, 1]])
        with pytest.raises(ValueError, match="above 0 for rows"):
            bo.nearest_correlation(np.eye(2), weights=[0, 1])
        with pytest.raises(ValueError, match="all 0"):
            bo.nearest_correlation(np.eye(2), weights=np.zeros((2, 2)))


class TestGeneralRows:
    """Weights with rows other than those of a correlation matrix."""

    @pytest.mark.parametrize(("scale", "n"), turns([1e-6, 1.0, 1e6], [5, 30]))
    def test_rows_of_every_kind(self, n, scale):
        rng = np.random.default_rng(n)
        A, H = scale * broken(n, n), of_entries(n, rng, "zeros")
        values = []
        for unit in (1.0, scale):
            X = bo.PSD(n)
            D = bo.frobenius_div(X, A * (unit / scale), weights=H)
            rows = [bo.trace(X) == n * unit, bo.sq_distance(X, 0, 1) <= 0.3 * unit, X[0, 2] >= 0.1 * unit]
            sol = bo.Problem(bo.Minimize(D + 0.1 * unit * X[3, 3]), rows).solve()
            assert sol.status == "optimal"
            values.append(sol.value / unit**2)
        assert values[1] == pytest.approx(values[0], rel=1e-5)

    @pytest.mark.parametrize("penalty", ["hinge", "divergence"])
    def test_soft_rows_pay_as_if_they_were_written_out(self, penalty):
        n, rng = 5, np.random.default_rng(8)
        A, H = broken(n, 8), of_entries(n, rng, "one or ten")
        X = bo.PSD(n)
        rows = [
            bo.diag(X) == 1,
            bo.soft(X[0, 1] >= 0.9, 2.0, penalty),
            bo.soft(bo.trace(X) <= 4, 0.5, penalty),
        ]
        sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, A, weights=H)), rows).solve(tol=1e-8)
        missed = np.maximum([0.9 - sol.X[0, 1], 1.0], 0)
        paid = np.array([2.0, 0.5]) @ (missed if penalty == "hinge" else missed**2)
        assert sol.status == "optimal"
        assert sol.value == pytest.approx(np.sum((H * (sol.X - A)) ** 2) + paid, rel=1e-6)
        for shift in (-1e-2, 1e-2):  # no other value of the entry is better
            held = bo.Problem(
                bo.Minimize(bo.frobenius_div(X, A, weights=H)),
                [bo.diag(X) == 1, X[0, 1] == sol.X[0, 1] + shift],
            ).solve(tol=1e-8)
            missed = max(0.9 - sol.X[0, 1] - shift, 0)
            other = held.value + 2.0 * (missed if penalty == "hinge" else missed**2) + 0.5
            assert other >= sol.value * (1 - 1e-6)

    @pytest.mark.parametrize("penalty", ["hinge", "divergence"])
    def test_soft_distances_beside_weights_of_zero_one_and_a_hundred(self, penalty):
        n, rng = 12, np.random.default_rng(5)
        A, H = broken(n, 5), rng.choice([0.0, 1.0, 100.0], size=(n, n))
        H = np.triu(H) + np.triu(H, 1).T
        i, j = np.array([pair for pair in rng.integers(n, size=(20, 2)) if pair[0] != pair[1]]).T
        X = bo.PSD(n)
        near = bo.soft(bo.sq_distance(X, i, j) <= 1.2, 2.0, penalty)
        problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A, weights=H)), [bo.diag(X) == 1, near])
        sol = problem.solve()
        assert sol.status == "optimal"
        peers.ask(problem).confirms(sol)

    def test_bounds_on_one_side_of_rows_alone(self):
        A, H = broken(4, 10), of_entries(4, np.random.default_rng(10), "zeros")
        X = bo.PSD(4)
        rows = [bo.sq_distance(X, i, i + 1) <= 0.3 for i in range(3)]
        sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, A, weights=H)), rows).solve(max_iter=40)
        assert sol.status == "optimal"

    def test_a_matrix_without_rows(self):
        # The psd part in the known block; the unknown diagonal makes room for the rest.
        H = np.array([[0.0, 1.0], [1.0, 1.0]])
        X = bo.PSD(2)
        sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, [[-7, 2], [2, 3]], weights=H))).solve()
        assert sol.status == "optimal"
        assert sol.value == pytest.approx(0, abs=1e-6)
        assert sol.X[0, 0] * sol.X[1, 1] >= 4 - 1e-2

    @pytest.mark.parametrize("n", [3, 30])
    def test_contradictions_are_proven(self, n):
        X = bo.PSD(n)
        D = bo.frobenius_div(X, np.eye(n), weights=of_entries(n, np.random.default_rng(1), "one or ten"))
        sol = bo.Problem(bo.Minimize(D), [bo.diag(X) == 1, X[0, 1] >= 1.5]).solve(solver="bregman")
        assert sol.status == "infeasible"
        crossed = bo.Problem(bo.Minimize(D), [X[0, 1] >= 0.5, X[0, 1] <= 0.4]).solve(solver="bregman")
        assert crossed.status == "infeasible"

    def test_squares_of_some_entries_in_cvxpy(self):
        def problem():
            X = cp.Variable((3, 3), PSD=True)
            return cp.Problem(cp.Minimize(cp.sum_squares(X[0]) + cp.trace(X)), [X[0, 1] == 1])

        ours, theirs = problem(), problem()
        assert ours.solve(method="bregopt", strict=True) == pytest.approx(theirs.solve(), rel=1e-4)
        # X11 = 1 / X00 makes room for the entry, so that X00^2 + X00 + 1 / X00 is least; and 2 for the entry.
        a = np.roots([2, 1, 0, -1])
        a = a[np.isreal(a)].real[0]
        assert ours.value == pytest.approx(a**2 + 1 + a + 1 / a, rel=1e-5)


class TestBound:
    """The bound of a multiplier of X psd."""

    @given(seed=st.integers(0, 1000), kind=st.sampled_from(PATTERNS), bounded=st.booleans())
    def test_no_matrix_is_below_it(self, seed, kind, bounded):
        n, rng = 4, np.random.default_rng(seed)
        H = of_entries(n, rng, kind)
        np.fill_diagonal(H, rng.choice([0.0, 1.0], n))
        X0, W, S, F = (G @ G.T for G in rng.normal(size=(4, n, n)))
        largest = np.full(n, 2.0 if bounded else np.inf)
        bound = WeightedFrobenius(X0, H).dual_term(W, 0.7, F, 0.1 * S, largest)
        for _ in range(20):
            G = rng.normal(size=(n, n)) * 10 ** rng.uniform(-2, 1)
            X = G @ G.T
            X *= min(1.0, 2 / X.diagonal().max()) if bounded else 1.0
            value = np.vdot(W, X) + 0.7 * np.sum((H * (X - X0)) ** 2)
            assert value >= bound - 1e-9 * abs(bound)

    def test_an_answer_has_it_from_the_multiplier_of_psd(self):
        # By NumPy: the minimum of each entry of the Lagrangian, at the answer's multipliers.
        n = 8
        A, H = broken(n, 9), of_entries(n, np.random.default_rng(9), "one or ten")
        X = bo.PSD(n)
        prob = bo.Problem(bo.Minimize(bo.frobenius_div(X, A, weights=H)), [bo.diag(X) == 1])
        sol = prob.solve(tol=1e-8)
        program, raw = prob.program(), sol._raw
        y, (S,) = raw.duals, raw._S
        R = -np.diag(y) - S
        least = np.sum(y) + np.vdot(R, A) - np.sum((R / H) ** 2) / 4
        assert np.linalg.eigvalsh(S)[0] >= -1e-12 * np.linalg.norm(S)
        assert sol.dual_value == pytest.approx(least, rel=1e-9)
        alone = certify(PrimalDualPoint(program, raw.X, raw.u, y))  # without S the gradient replaces it
        assert alone.dual <= sol.value * (1 + 1e-9)
        assert alone.dual == pytest.approx(sol.value, rel=1e-2)
