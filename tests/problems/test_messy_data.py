"""Data as desks have them: unlike units, assets without data, stale prices, other labels, percent."""

import numpy as np
import pytest

import bregopt as bo

pd = pytest.importorskip("pandas")

NAMES = list("abcdefgh")


def indefinite(n=8, seed=1):
    rng = np.random.default_rng(seed)
    C = np.triu(rng.uniform(-1, 1, (n, n)), 1)
    return C + C.T + np.eye(n)


def covariances(spread, seed=1):
    scale = np.geomspace(1, spread, 8)
    return pd.DataFrame(indefinite(seed=seed) * np.outer(scale, scale), NAMES, NAMES), scale


class TestUnits:
    def test_unlike_units_are_measured_in_correlations(self):
        S, scale = covariances(1e7)
        with pytest.warns(bo.DataWarning, match=r"1 \(a\) to 1e\+07 \(h\). Changes of correl.*is 0.42, of e"):
            sol = bo.nearest_covariance(S)
        nearest = bo.nearest_correlation(indefinite())
        np.testing.assert_allclose(sol.X / np.outer(scale, scale), nearest.X, atol=1e-9)
        assert sol.value == pytest.approx(nearest.value, rel=1e-9)
        assert (np.diag(sol.X) == np.diag(S)).all()
        lower, upper = sol.verify().lower, sol.verify().upper
        assert lower <= sol.value + 1e-9
        assert upper >= sol.value - 1e-9

    @pytest.mark.parametrize("spread", [5, 1e7])
    def test_the_units_that_are_asked_for_are_measured(self, spread):
        S, scale = covariances(spread)
        by = {
            units: bo.nearest_covariance(S, units=units, tol=1e-9) for units in ("covariance", "correlation")
        }
        weighted = bo.nearest_correlation(indefinite(), weights=scale**2, tol=1e-9)
        np.testing.assert_allclose(by["covariance"].X / np.outer(scale, scale), weighted.X, atol=1e-5)
        plain = bo.nearest_correlation(indefinite(), tol=1e-9)
        np.testing.assert_allclose(by["correlation"].X / np.outer(scale, scale), plain.X, atol=1e-9)
        if spread < 10:
            assert bo.nearest_covariance(S).value == pytest.approx(by["covariance"].value, rel=1e-9)
            C = [own.X / np.outer(scale, scale) for own in by.values()]
            assert np.abs(C[0] - C[1]).max().max() > 0.05  # the question matters

    def test_multipliers_are_derivatives_in_the_bounds_on_covariances(self):
        """A row of the answer is a bound on a covariance, whose multiplier is the slope of the value."""
        S, scale = covariances(30)
        at, h = 0.2 * scale[0] * scale[1], 1e-4 * scale[0] * scale[1]
        value, duals = [], []
        for bound in (at - h, at, at + h):
            sol = bo.nearest_covariance(S, units="correlation", upper={("a", "b"): bound}, tol=1e-10)
            assert sol.X.loc["a", "b"] == pytest.approx(bound, rel=1e-9)
            value.append(sol.value)
            duals.append(abs(sol.duals[1]).max())
        assert abs(value[2] - value[0]) / (2 * h) == pytest.approx(duals[1], rel=1e-3)

    def test_what_goes_with_covariances_only(self):
        S, _ = covariances(50)
        with pytest.raises(bo.UnsupportedProblemError, match="max_condition is of covariances"):
            bo.nearest_covariance(S, max_condition=1e6, units="correlation")
        with pytest.warns(bo.DataWarning, match="Changes of covariances were measured.*max_condition"):
            sol = bo.nearest_covariance(S, max_condition=1e6)
        assert np.linalg.cond(sol.X) <= 1e6 * (1 + 1e-6)
        with pytest.raises(ValueError, match="units is 'percent'"):
            bo.nearest_covariance(S, units="percent")

    def test_logdet_is_the_same_in_all_units(self):
        scale = np.geomspace(1, 1e4, 8)
        rng = np.random.default_rng(3)
        G = rng.normal(size=(8, 30))
        S = G @ G.T * np.outer(scale, scale)
        values = [
            bo.nearest_covariance(S, "logdet", upper=None, lower=0.0, units=u).value
            for u in ("auto", "covariance")
        ]
        assert values[0] == pytest.approx(values[1], rel=1e-6)

    def test_stacks_measure_the_same_on_all_dates(self):
        dates = {k: covariances(spread, seed=k)[0] for k, spread in enumerate((5, 1e3, 8))}
        with pytest.warns(bo.DataWarning, match="in matrix [012]. For covariances pass units"):
            sols = bo.nearest_covariance(dates)
        for k, S in dates.items():
            one = bo.nearest_covariance(S, units="correlation")
            np.testing.assert_allclose(sols.X[k], one.X, rtol=1e-6, atol=1e-8 * np.abs(S.to_numpy()).max())
            assert sols[k].report().distance == pytest.approx(one.report().distance, rel=1e-6)
            assert sols.accuracy[k] >= sols[k].accuracy.largest / 10
            np.testing.assert_allclose(sols[k].duals[0], one.duals[0], rtol=1e-4, atol=1e-9)

    @pytest.mark.parametrize("units", ["covariance", "correlation"])
    def test_floors_in_stacks_are_those_of_covariances(self, units):
        stack = np.stack([covariances(4, seed=k)[0].to_numpy() for k in range(4)])
        sols = bo.nearest_covariance(stack, min_eigenvalue=0.3, units=units)
        for S, own in zip(stack, sols.X, strict=True):
            assert np.linalg.eigvalsh(own)[0] >= 0.3 - 1e-9
            one = bo.nearest_covariance(S, min_eigenvalue=0.3, units=units, solver="bregman", max_iter=300)
            np.testing.assert_allclose(own, one.X, atol=1e-5)
            assert (own.diagonal() == S.diagonal()).all()


class TestUnitsElsewhere:
    def test_nearest_psd_warns_where_entries_of_small_variables_move(self):
        S, _ = covariances(1e4)
        with pytest.warns(bo.DataWarning, match=r"from 1 \(a\) to 1e\+04 \(h\).*take bo.nearest_covariance"):
            X = bo.nearest_psd(S).X
        size = np.sqrt(np.diag(S))
        assert (np.abs(X - S) / np.outer(size, size)).to_numpy().max() > 1
        stack = {"calm": covariances(5)[0], "wild": S}
        with pytest.warns(bo.DataWarning, match="in matrix 'wild'") as caught:
            bo.nearest_psd(stack)
        assert len(caught) == 1

    def test_gram_matrices_and_like_units_do_not_warn(self, recwarn):
        rng = np.random.default_rng(0)
        G = rng.normal(size=(8, 3)) * np.geomspace(1, 1e5, 8)[:, None]
        bo.nearest_psd(G @ G.T)
        bo.nearest_psd(np.stack([G @ G.T] * 2))
        bo.nearest_psd(covariances(5)[0])
        bo.nearest_psd(indefinite() - np.eye(8))  # with zeros on the diagonal
        assert not recwarn.list

    def test_one_alpha_does_not_suit_unlike_units(self, recwarn):
        rng = np.random.default_rng(0)
        S = pd.DataFrame(np.cov(rng.normal(size=(8, 50))), NAMES, NAMES)
        bo.graphical_lasso(S, 0.1)
        assert not recwarn.list
        scale = np.geomspace(1, 30, 8)
        with pytest.warns(
            bo.DataWarning, match=r"standard deviations in S go from .* \(a\) to .*standardize"
        ):
            bo.graphical_lasso(S * np.outer(scale, scale), 0.1)


class TestUnknown:
    def returns(self, dates=120):
        rng = np.random.default_rng(0)
        table = pd.DataFrame(rng.normal(size=(dates, 5)) + rng.normal(size=(dates, 1)), columns=list("abcde"))
        table.loc[:99, "d"] = np.nan  # a short history
        table["stale"] = np.where(np.arange(dates) < 60, rng.normal(size=dates), 0.0)
        table.loc[:59, "c"] = np.nan  # with which `stale` has no variation in common
        return table

    def test_derivatives_name_the_unknown_entries_where_the_answer_is_not_unique(self):
        A = pd.DataFrame(0.5 * np.eye(6) + 0.5, list("abcdef"), list("abcdef"))
        A.loc["a", ["b", "c", "d"]] = A.loc[["b", "c", "d"], "a"] = np.nan
        sol = bo.nearest_correlation(A, missing="unknown")
        with pytest.raises(ValueError, match=r"3 entries .* in them: \(a, b\), \(a, c\), \(a, d\). Give"):
            sol.vjp(np.ones((6, 6)))

    def test_changes_of_unknown_entries_do_not_count(self):
        A = pd.DataFrame(indefinite(), NAMES, NAMES)
        A.loc["a", "b"] = A.loc["b", "a"] = np.nan
        sol, rng = bo.nearest_correlation(A, missing="unknown", min_eigenvalue=0.01), np.random.default_rng(0)
        change = pd.DataFrame(rng.normal(size=(8, 8)), NAMES, NAMES)
        change = change + change.T
        expected = sol.jvp(change)
        change.loc["a", "b"] = change.loc["b", "a"] = np.nan
        pd.testing.assert_frame_equal(sol.jvp(change), expected)
        np.testing.assert_array_equal(sol.jvp(change.to_numpy()), expected)

    def test_stale_pairs_and_short_histories_are_unknown_with_their_reasons(self):
        with pytest.warns(bo.DataWarning, match="column d"):
            found = bo.pairwise_correlation(self.returns(), min_samples=30)
        A, weights = found
        np.testing.assert_allclose(A, self.returns().corr(min_periods=30), atol=1e-12)
        reasons = found.to_frame().set_index(["row", "column"]).reason
        assert reasons["c", "stale"] == "no variation"
        assert reasons["a", "d"] == "few dates"
        assert found.counts.loc["a", "d"] == 20
        assert not weights.to_numpy()[np.isnan(A)].any()
        assert "5 with fewer than 30 common dates" in repr(found)
        assert "1 with no variation" in repr(found)

    def test_an_asset_without_data_is_left_out_and_gets_no_weight(self):
        """B2 of the audit: such an asset had correlations of zero, and 13 % of a portfolio."""
        with pytest.warns(bo.DataWarning, match="column d of returns: no correlation is known"):
            A, weights = bo.pairwise_correlation(self.returns(), min_samples=30)
        with pytest.warns(bo.DataWarning, match="row 'd' of A has no number off the diagonal"):
            sol = bo.nearest_correlation(A, weights=weights, missing="unknown", min_eigenvalue=0.05)
        rest = [name for name in A if name != "d"]
        one = bo.nearest_correlation(
            A.loc[rest, rest], weights=weights.loc[rest, rest], missing="unknown", min_eigenvalue=0.05
        )
        pd.testing.assert_frame_equal(sol.X.loc[rest, rest], one.X)
        assert sol.X["d"].isna().all()
        assert sol.left_out == ("d",)

    def test_single_matrices_panels_and_stacks_follow_one_rule(self):
        A = self.returns().corr(min_periods=30).to_numpy()
        with pytest.warns(bo.DataWarning, match="no number off"):
            single = bo.nearest_correlation(A, missing="unknown").X
        with pytest.warns(bo.DataWarning, match="no number off"):
            stack = bo.nearest_correlation(np.stack([A, A]), missing="unknown").X
        S = self.returns().cov(min_periods=30).to_numpy()
        with pytest.warns(bo.DataWarning, match="no number off"):
            covariance = bo.nearest_covariance(S, missing="unknown").X
        assert np.isnan(single[3]).all()
        assert np.isnan(single[:, 3]).all()
        np.testing.assert_allclose(stack[1], single, atol=1e-5)
        np.testing.assert_array_equal(np.isnan(covariance), np.isnan(single))


class TestLabels:
    A = pd.DataFrame(indefinite(), NAMES, NAMES)

    def test_groups_of_other_assets_do_not_count(self):
        sectors = dict(zip(NAMES, "xxyyzzxx", strict=True))
        expected = bo.nearest_correlation(self.A, groups=list(sectors.values())).X
        more = {"other": "w", **{name: sectors[name] for name in reversed(NAMES)}}
        for groups in (more, pd.Series(more)):
            pd.testing.assert_frame_equal(bo.nearest_correlation(self.A, groups=groups).X, expected)
        with pytest.raises(ValueError, match="groups lacks 'h'"):
            bo.nearest_correlation(self.A, groups=pd.Series(sectors).drop("h"))

    def test_a_list_of_labels_is_a_block(self):
        block = ["a", "c", "f"]
        sol = bo.nearest_correlation(self.A, fixed=block)
        pairs = bo.nearest_correlation(self.A, fixed=[["a", "c"], ["c", "f"], ["f", "a"]])
        assert sol.status == pairs.status
        with pytest.raises(TypeError, match="fixed is a set, which has no order; pass a list"):
            bo.nearest_correlation(self.A, fixed=set(block))
        shrunk = bo.shrink_correlation(self.A / 3 + 2 * np.eye(8) / 3, fixed=block)
        np.testing.assert_array_equal(
            shrunk.X.loc[block, block], (self.A / 3 + 2 * np.eye(8) / 3).loc[block, block]
        )

    @pytest.mark.parametrize(
        ("word", "ours"),
        [
            ("floor", "min_eigenvalue"),
            ("kept", "fixed"),
            ("condition", "max_condition"),
            ("unknown", "missing"),
        ],
    )
    def test_words_of_reports_lead_to_the_arguments(self, word, ours):
        with pytest.raises(TypeError, match=f"did you mean '{ours}'"):
            bo.nearest_correlation(self.A, **{word: 0.1})

    def test_the_bound_of_a_report_is_an_attribute(self):
        sol = bo.nearest_correlation(self.A)
        assert sol.bound == sol.dual_value <= sol.value

    def test_answers_in_place_of_matrices_are_named(self):
        for answer, kind in (
            (bo.nearest_correlation(self.A), "CorrelationSolution, whose attribute X"),
            (bo.pairwise_correlation(np.eye(3)), "PairwiseCorrelation, whose attribute A"),
        ):
            with pytest.raises(TypeError, match=f"A is of type {kind} is a matrix"):
                bo.nearest_correlation(answer)


def test_percent_is_recognized():
    C = np.clip(indefinite(), -0.9, 0.9) + 0.1 * np.eye(8)
    with pytest.warns(bo.DataWarning, match="A has 100 on the diagonal.*pass A / 100"):
        bo.nearest_correlation(100 * C)
    with pytest.warns(bo.DataWarning, match="entries up to .* off the diagonal.*pass A / 100, with ones"):
        bo.nearest_correlation(100 * C - 99 * np.eye(8))
    with pytest.raises(ValueError, match=r"A has 100 on the diagonal.*pass A / 100"):
        bo.shrink_correlation(100 * C)
