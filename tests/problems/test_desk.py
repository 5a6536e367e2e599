"""From messy data to a decision: tasks of quants and statisticians on data that packages bring."""

import numpy as np
import pytest

import bregopt as bo

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def macro():
    datasets = pytest.importorskip("statsmodels.datasets")
    data = datasets.macrodata.load_pandas().data
    data.index = pd.period_range("1959Q1", periods=len(data), freq="Q").to_timestamp()
    return data.drop(columns=["year", "quarter"])


@pytest.fixture(scope="module")
def stocks():
    cbook = pytest.importorskip("matplotlib.cbook")
    with cbook.get_sample_data("Stocks.csv") as file:
        prices = pd.read_csv(file, comment="#", index_col="Date", parse_dates=True)
    return np.log(prices.resample(pd.offsets.MonthEnd()).last()).diff()


def correlations(S):
    deviation = np.sqrt(np.diag(S))
    return np.asarray(S) / np.outer(deviation, deviation)


def test_covariances_of_macroeconomic_series_keep_their_correlations(macro):
    """B1: pairwise covariances of series in percent and in billions."""
    S = macro.mask(np.random.default_rng(5).random(macro.shape) < 0.3).tail(60).cov()
    C, deviation = correlations(S), np.sqrt(np.diag(S))
    assert np.linalg.eigvalsh(C)[0] < -0.01
    with pytest.warns(bo.DataWarning, match="Changes of correlations were measured"):
        sol = bo.nearest_covariance(S)
    best = bo.nearest_correlation(C)
    np.testing.assert_allclose(sol.X / np.outer(deviation, deviation), best.X, atol=1e-8)
    other = bo.nearest_covariance(S, units="covariance").X
    moved = [np.linalg.norm(correlations(X) - C) for X in (sol.X, other)]
    assert moved[0] < 0.7 * moved[1]
    assert (np.diag(sol.X) == np.diag(S)).all()


def test_rolling_covariances_are_repaired_in_one_line(macro):
    changes = macro.diff().dropna().mask(np.random.default_rng(1).random((202, 12)) < 0.2)
    windows = changes.rolling(24, min_periods=8).cov()
    windows = windows.groupby(level=0).filter(lambda own: own.notna().all(axis=None))
    panel = windows.loc[windows.index.get_level_values(0).unique()[::25]]
    with pytest.warns(bo.DataWarning, match="Changes of correlations were measured"):
        sols = bo.nearest_covariance(panel)
    assert (sols.status == "optimal").all()
    for date in sols.keys:
        S, X = panel.loc[date], sols.X.loc[date]
        assert np.linalg.eigvalsh(correlations(X))[0] > -1e-12
        assert (np.diag(X) == np.diag(S)).all()
        np.testing.assert_allclose(correlations(X), bo.nearest_correlation(correlations(S)).X, atol=1e-5)
    report, first = sols.report().to_frame("dates").set_index("date"), sols.keys[0]
    change = np.linalg.norm(sols.X.loc[first] - panel.loc[first])
    assert report.distance[first] == pytest.approx(change, rel=1e-9)


def test_a_stock_that_is_listed_later_gets_no_weight_before(stocks):
    """B2: Dell has no months before August 2016; zeros made it a perfect diversifier."""
    early = stocks.loc["2014-01":"2015-12"]
    assert early["DELL"].isna().all()
    with pytest.warns(bo.DataWarning, match="column DELL of returns"):
        A, weights = bo.pairwise_correlation(early, min_samples=12)
    with pytest.warns(bo.DataWarning, match="row 'DELL' of A"):
        sol = bo.nearest_correlation(A, weights=weights, missing="unknown", min_eigenvalue=0.05)
    assert sol.left_out == ("DELL",)
    known = sol.X.dropna(how="all").dropna(axis=1, how="all")
    assert list(known) == [name for name in A if name != "DELL"]
    deviation = early[known.columns].std()
    w = np.linalg.solve(known * np.outer(deviation, deviation), np.ones(9))
    assert np.isfinite(w).all()


def test_the_panel_of_stocks_has_one_report(stocks):
    panel = stocks.rolling(18, min_periods=6).corr().loc["2015-12":"2017-06"]
    with pytest.warns(bo.DataWarning, match="no number off the diagonal"):
        sols = bo.nearest_correlation(panel, missing="unknown", min_eigenvalue=0.01, warm_start="chain")
    report = sols.report()
    rows = report.to_frame("rows").set_index("row")
    listed = panel.xs("IBM", level=1)["DELL"].notna().sum()
    assert rows["dates"]["DELL"] == listed < rows["dates"]["IBM"] == len(sols)
    assert report.left_out.sum() == len(sols) - listed
    assert report.after.min() >= 0.01 - 1e-9
    top = report.to_frame("pairs").head(5)
    assert "DELL" in set(top.row) | set(top.column)  # of the fewest months


def test_the_risk_of_a_portfolio_has_its_derivative(stocks):
    """B6: weights by months, a floor, and an unknown pair, where the answer is unique."""
    recent = stocks.loc["2015-12":"2017-03"]
    A, weights = bo.pairwise_correlation(recent)
    A.loc["AMZN", "DELL"] = A.loc["DELL", "AMZN"] = np.nan
    deviation = recent.std().to_numpy()

    def risk(matrix):
        X = bo.nearest_correlation(
            matrix, weights=weights, missing="unknown", min_eigenvalue=0.01, tol=1e-11
        ).X.to_numpy()
        S = X * np.outer(deviation, deviation)
        return 1 / np.sqrt(np.linalg.inv(S).sum()), X

    volatility, X = risk(A)
    w = np.linalg.solve(X * np.outer(deviation, deviation), np.ones(10))
    w *= deviation / w.sum()
    sol = bo.nearest_correlation(A, weights=weights, missing="unknown", min_eigenvalue=0.01, tol=1e-11)
    slope = 2 * sol.vjp(np.outer(w, w) / (2 * volatility))
    assert slope.loc["AMZN", "DELL"] == 0
    for a, b in (("IBM", "AAPL"), ("DELL", "^GSPC")):
        ends = []
        for h in (1e-4, -1e-4):
            moved = A.copy()
            moved.loc[a, b] += h
            moved.loc[b, a] += h
            ends.append(risk(moved)[0])
        assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(slope.loc[a, b], rel=1e-3, abs=1e-6)


def test_patients_for_a_trial_are_an_exact_design():
    """Thirty of 442 patients that tell most of ten coefficients, beside random choices."""
    sklearn = pytest.importorskip("sklearn.datasets")
    X = sklearn.load_diabetes(as_frame=True, scaled=False).data
    X = (X - X.mean()) / X.std()
    design = bo.d_optimal(X, upper=1 / 30)
    found = design.exact(30, starts=2)
    assert found.counts.max() == 1
    assert found.counts.sum() == 30
    assert found.efficiency > 0.97
    rng = np.random.default_rng(0)
    for _ in range(20):
        chosen = np.isin(np.arange(442), rng.choice(442, 30, replace=False))
        assert design.efficiency_of(chosen.astype(float)) < 0.8
