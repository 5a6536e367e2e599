"""Exact designs against all numbers of runs, and their efficiency against the bound."""

import itertools

import numpy as np
import pytest
from samples import turns

import bregopt as bo

CRITERIA = {"D": bo.d_optimal, "A": bo.a_optimal, "E": bo.e_optimal}


def quality(criterion, M):
    """Return a number that is larger for better information."""
    eigenvalues = np.linalg.eigvalsh(M)
    if eigenvalues[0] <= 1e-12:
        return -np.inf
    return {"D": np.log(eigenvalues).sum(), "A": -(1 / eigenvalues).sum(), "E": eigenvalues[0]}[criterion]


def information(X, counts):
    return (X.T * counts) @ X / counts.sum()


def all_counts(m, runs):
    for chosen in itertools.combinations_with_replacement(range(m), runs):
        yield np.bincount(chosen, minlength=m)


@pytest.mark.parametrize(("criterion", "seed"), turns(CRITERIA, range(3)))
def test_small_designs_are_the_best_of_all(criterion, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(7, 3)) * [1.0, 5.0, 0.2]
    design = CRITERIA[criterion](X)
    for runs in (3, 4, 6):
        best = max(quality(criterion, information(X, counts)) for counts in all_counts(7, runs))
        found = design.exact(runs, starts=12)
        assert found.runs == runs
        own = quality(criterion, information(X, found.counts))
        assert best - own <= (0.02 * best if criterion == "E" else 1e-9 * abs(best))  # E has local optima
        np.testing.assert_allclose(found.information, information(X, found.counts))
        shares = design.efficiency_of(found.counts)
        assert found.efficiency == pytest.approx(shares, abs=1e-12)
        assert found.gap == pytest.approx(1 - shares, abs=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_no_exchange_improves_a_design_and_rounding_is_no_better(criterion):
    x = np.linspace(-1, 1, 41)
    X = np.vander(x, 4)
    design = CRITERIA[criterion](X)
    for runs in (5, 9, 14):
        found = design.exact(runs)
        own = quality(criterion, information(X, found.counts))
        if runs >= len(design.support):
            assert own >= quality(criterion, information(X, design.rounded(runs))) - 1e-12
        for i in np.flatnonzero(found.counts):
            for j in range(41):
                other = found.counts.copy()
                other[i] -= 1
                other[j] += 1
                assert quality(criterion, information(X, other)) <= own + 1e-8 * max(abs(own), 1)


def test_a_design_of_equal_shares_is_proven_optimal():
    """Quadratic regression has three points of equal weight: each multiple of three runs is the best."""
    x = np.linspace(-1, 1, 21)
    found = bo.d_optimal(np.vander(x, 3)).exact(9)
    assert found.status == "optimal"
    assert x[found.counts > 0].tolist() == [-1.0, 0.0, 1.0]
    assert set(found.counts.tolist()) == {0, 3}
    other = bo.d_optimal(np.vander(x, 3)).exact(10)
    assert other.status == "locally_optimal"
    assert 0.9 < other.efficiency < 1


@pytest.mark.parametrize("criterion", CRITERIA)
def test_bounds_and_budgets_hold_for_the_runs(criterion):
    rng = np.random.default_rng(4)
    X, costs = rng.normal(size=(8, 2)), rng.uniform(1, 3, 8)
    upper, lower = np.full(8, 0.3), np.r_[0.1, np.zeros(7)]
    design = CRITERIA[criterion](X, lower, upper, costs=costs, budget=2.0)
    found = design.exact(10, starts=8)
    assert found.counts.max() <= 3
    assert found.counts[0] >= 1
    assert costs @ found.counts <= 20 * (1 + 1e-9)
    allowed = [
        counts
        for counts in all_counts(8, 10)
        if counts.max() <= 3 and counts[0] >= 1 and costs @ counts <= 20 * (1 + 1e-9)
    ]
    best = max(quality(criterion, information(X, counts)) for counts in allowed)
    own = quality(criterion, information(X, found.counts))
    assert own <= best + 1e-9
    assert own >= best - 0.05 * abs(best)
    assert found.efficiency <= 1


@pytest.mark.parametrize("criterion", CRITERIA)
def test_priors_matrices_and_weights_of_parameters(criterion):
    rng = np.random.default_rng(1)
    G = rng.normal(size=(6, 3, 2))
    matrices, prior = np.einsum("mij,mkj->mik", G, G), 0.1 * np.eye(3)
    options = {"K": np.diag([1.0, 2.0, 3.0])} if criterion == "A" else {}
    design = CRITERIA[criterion](matrices, prior=prior, **options)
    found = design.exact(4, starts=10)

    def value(counts):
        M = prior + np.tensordot(counts / 4, matrices, 1)
        if criterion == "A":
            return -np.trace(options["K"] @ np.linalg.inv(M))
        return quality(criterion, M)

    assert value(found.counts) == pytest.approx(max(map(value, all_counts(6, 4))), rel=1e-9)


def test_labels_units_and_seeds():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    X = pd.DataFrame(rng.normal(size=(9, 3)), [f"run {k}" for k in range(9)], list("abc"))
    found = bo.a_optimal(X).exact(5)
    assert found.counts.index.tolist() == X.index.tolist()
    assert found.information.columns.tolist() == list("abc")
    assert "5, on 3 candidates" in repr(found)
    assert "proven" in repr(found)
    for solve in CRITERIA.values():
        large, small = (solve(X * unit).exact(5, seed=3, starts=20) for unit in (1e6, 1e-6))
        assert large.efficiency == pytest.approx(small.efficiency, rel=1e-6)
        again = solve(X * 1e6).exact(5, seed=3, starts=20)
        pd.testing.assert_series_equal(large.counts, again.counts)


@pytest.mark.parametrize(
    ("options", "arguments", "error", "text"),
    [
        ({}, {"runs": 2}, ValueError, "runs is 2; expected at least 3"),
        ({}, {"runs": 2.5}, TypeError, "runs is 2.5"),
        ({}, {"runs": 4, "starts": 0}, ValueError, "starts"),
        ({}, {"runs": 4, "seed": -1}, ValueError, "seed"),
        ({"upper": 0.15}, {"runs": 6}, ValueError, "the bounds on the shares allow 0 to 0 whole runs"),
        ({"costs": np.arange(1.0, 9), "budget": 1.76}, {"runs": 3}, ValueError, "larger budget"),
    ],
)
def test_bad_requests_are_named(options, arguments, error, text):
    X = np.random.default_rng(0).normal(size=(8, 3))
    design = bo.d_optimal(X, **options)
    with pytest.raises(error, match=text):
        design.exact(**arguments)
