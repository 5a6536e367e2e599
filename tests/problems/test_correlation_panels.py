"""Panels of correlation matrices: warm starts, executors, missing assets, the frame of results."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

import bregopt as bo
from bregopt.problems import stacks


def rolling(dates, n, window=20, seed=0, share=0.3):
    """Pairwise-complete correlations of windows that move by one date."""
    rng = np.random.default_rng(seed)
    returns = rng.normal(size=(window + dates, 2)) @ rng.normal(size=(2, n)) + rng.normal(
        size=(window + dates, n)
    )
    returns[rng.random(returns.shape) < share] = np.nan
    return np.stack([bo.pairwise_correlation(returns[t : t + window]).A for t in range(dates)])


def cvxpy_distance(A, floor, upper):
    cp = pytest.importorskip("cvxpy")
    n = len(A)
    X = cp.Variable((n, n), symmetric=True)
    rows = [X >> floor * np.eye(n), cp.diag(X) == 1, X - np.diag(np.full(n, 1.0)) <= upper]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X - A)), rows)
    problem.solve(solver="CLARABEL")
    return problem.value


@pytest.mark.parametrize("bounds", [{}, {"lower": -0.3, "upper": 0.5}, {"fixed": [[0, 1]], "upper": 0.9}])
def test_warm_starts_change_nothing_but_the_way(bounds):
    A = rolling(70, 30)
    cold = bo.nearest_correlation(A, min_eigenvalue=0.01, tol=1e-9, **bounds)
    warm = bo.nearest_correlation(A, min_eigenvalue=0.01, tol=1e-9, warm_start="chain", **bounds)
    assert (warm.status == "optimal").all()
    np.testing.assert_allclose(warm.X, cold.X, atol=2e-4)
    np.testing.assert_allclose(warm.value, cold.value, rtol=1e-8)
    assert (warm.gap <= 1e-9).all()


def test_warm_starts_take_fewer_steps(monkeypatch):
    monkeypatch.setattr("bregopt.problems.stacks._SLICE", 2 * 30**2)  # two chains
    A = rolling(40, 30, window=60)
    cold, warm = (bo.nearest_correlation(A, warm_start=start) for start in (False, "chain"))
    assert warm.iterations.mean() < cold.iterations.mean() - 0.5


def test_bounds_of_all_entries_agree_with_cvxpy():
    A = rolling(4, 12)
    panel = bo.nearest_correlation(A, min_eigenvalue=0.05, upper=0.3, warm_start="chain", tol=1e-9)
    for own, value in zip(A, panel.value, strict=True):
        assert value == pytest.approx(cvxpy_distance(own, 0.05, 0.3), rel=1e-5)


@pytest.mark.parametrize("n", [30, 40])
def test_the_working_set_of_bounds_gives_the_answer_to_all_of_them(n):
    A = rolling(6, n, window=30)  # at order 40 there are more bounds than a method without it takes
    panel = bo.nearest_correlation(A, min_eigenvalue=0.01, lower=-0.2, upper=0.4, tol=1e-8)
    assert not panel._single
    off = panel.X[:, *np.triu_indices(n, 1)]
    assert off.min() >= -0.2 - 1e-7
    assert off.max() <= 0.4 + 1e-7
    for k in (0, 5):
        one = bo.nearest_correlation(A[k], min_eigenvalue=0.01, lower=-0.2, upper=0.4, tol=1e-8)
        assert panel.value[k] == pytest.approx(one.value, rel=1e-7)


def test_executors_give_the_same_answers(monkeypatch):
    monkeypatch.setattr(stacks, "_CHAIN", 2)
    monkeypatch.setattr("bregopt.problems.stacks._SLICE", 4 * 8**2)
    A = rolling(30, 8)
    options = {"min_eigenvalue": 0.01, "warm_start": "chain", "lower": np.linspace(-0.9, -0.5, 30)}
    serial = bo.nearest_correlation(A, **options)
    with ThreadPoolExecutor(3) as pool:
        threads = bo.nearest_correlation(A, executor=pool, **options)
    np.testing.assert_array_equal(threads.X, serial.X)
    np.testing.assert_array_equal(threads.gap, serial.gap)


def test_processes_give_the_same_answers(processes):
    A = dict(enumerate(rolling(6, 8)))
    A[2] = "no matrix"
    with pytest.warns(bo.DataWarning, match="matrix 2"):
        panel = bo.nearest_correlation(A, executor=processes)
    assert panel.status.tolist() == ["optimal"] * 2 + ["error"] + ["optimal"] * 3
    del A[2]
    serial = bo.nearest_correlation(A)
    for day in A:
        np.testing.assert_allclose(panel.X[day], serial.X[day], atol=1e-9)


def test_a_worker_that_fails_leaves_errors():
    class Broken(ThreadPoolExecutor):
        def submit(self, *_, **__):
            return super().submit(lambda: 1 / 0)

    with (
        Broken(1) as pool,
        pytest.warns(bo.DataWarning, match="3 of 3 matrices have an error, the first is matrix 0: ZeroDiv"),
    ):
        panel = bo.nearest_correlation(rolling(3, 5), executor=pool)
    assert (panel.status == "error").all()
    assert isinstance(panel.errors[0], ZeroDivisionError)
    assert np.isnan(panel.X).all()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"executor": 3}, TypeError, "executor is 3"),
        ({"progress": 1}, TypeError, "progress is 1"),
        ({"warm_start": True}, ValueError, "warm_start is True"),
    ],
)
def test_options_of_panels_are_checked(options, error, text):
    with pytest.raises(error, match=text):
        bo.nearest_correlation(rolling(2, 4), **options)


def test_one_matrix_has_no_executor():
    with pytest.raises(TypeError, match="no option 'executor'"):
        bo.nearest_correlation(np.eye(3), executor=None)


@pytest.mark.filterwarnings("ignore:.*no number off the diagonal:bregopt.DataWarning")
@examples(7)
@given(
    missing=st.lists(st.sets(st.integers(0, 5), max_size=4), min_size=3, max_size=8),
    kind=st.sampled_from(["array", "frame", "short frame", "dict"]),
    warm=st.sampled_from([False, "chain"]),
)
def test_missing_assets_are_left_out(missing, kind, warm):
    pd = pytest.importorskip("pandas")
    labels = list("abcdef")
    A = rolling(len(missing), 6, share=0.2)
    lower = np.full((6, 6), -0.8)
    lower[0, 1] = lower[1, 0] = 0.1
    for own, rows in zip(A, missing, strict=True):
        own[list(rows)] = np.nan
        own[:, list(rows)] = np.nan
    data, bounds = A, lower
    if kind != "array":
        bounds = pd.DataFrame(lower, labels, labels)
        frames = {k: pd.DataFrame(own, labels, labels) for k, own in enumerate(A)}
        data = {k: own.dropna(how="all").dropna(axis=1, how="all") for k, own in frames.items()}
        if kind == "frame":
            data = pd.concat(frames)
        elif kind == "short frame":
            data = pd.concat({k: frames[k].loc[own.index] for k, own in data.items()})
    panel = bo.nearest_correlation(data, lower=bounds, min_eigenvalue=0.02, warm_start=warm)
    for k, rows in enumerate(missing):
        there = [r for r in range(6) if r not in rows]
        one = bo.nearest_correlation(
            A[k][np.ix_(there, there)], lower=lower[np.ix_(there, there)], min_eigenvalue=0.02
        )
        np.testing.assert_allclose(panel[k].X, one.X, atol=5e-3)
        assert panel[k].value == pytest.approx(one.value, rel=1e-5, abs=1e-9)
    if kind == "array":
        np.testing.assert_array_equal(np.isnan(panel.X), np.isnan(A))


@pytest.mark.filterwarnings("ignore:.*no number off the diagonal:bregopt.DataWarning")
def test_bounds_by_labels_and_groups_follow_the_assets():
    pd = pytest.importorskip("pandas")
    labels = list("abcd")
    frame = pd.DataFrame(rolling(2, 4, share=0.0).reshape(8, 4), columns=labels)
    frame.index = pd.MultiIndex.from_product([["monday", "tuesday"], labels])
    frame.loc[("tuesday", "b")] = np.nan
    frame.loc[("tuesday", slice(None)), "b"] = np.nan
    bounds = {("a", "b"): 0.4, ("a", ("b", "c")): 0.3}
    panel = bo.nearest_correlation(frame, lower=bounds)
    assert panel["monday"].X.loc["a", "b"] >= 0.4 - 1e-6
    assert panel["tuesday"].X.shape == (3, 3)
    assert panel["tuesday"].X.loc["a", "c"] >= 0.3 - 1e-6
    assert panel["tuesday"].left_out == ("b",)
    assert "row 'b' of A" in panel.to_frame().warnings["tuesday"]
    for fixed in ([["a", "b"], ["a", "c"]], ["a", "b", "c"]):  # of the block, tuesday has one pair
        kept = bo.nearest_correlation(frame, fixed=fixed)
        assert kept["tuesday"].X.loc["a", "c"] == frame.loc[("tuesday", "a"), "c"]
        assert kept["monday"].X.loc["a", "b"] == frame.loc[("monday", "a"), "b"]
    grouped = bo.nearest_correlation(frame, groups={"a": 1, "b": 1, "c": 2, "d": 2})
    assert (grouped.status == "optimal").all()
    array = frame.to_numpy().reshape(2, 4, 4)
    other = bo.nearest_correlation(array, lower={(0, 1): 0.4, (0, (1, 2)): 0.3})
    np.testing.assert_allclose(other.X[1], panel.X.loc["tuesday"], atol=1e-6)
    pairs = bo.nearest_correlation(array, fixed=[[0, 1], [2, 3]])
    assert pairs.X[1, 2, 3] == pytest.approx(array[1, 2, 3], abs=1e-6)


def test_a_list_keeps_labels_and_orders():
    pd = pytest.importorskip("pandas")
    A = rolling(2, 4, share=0.0)
    frames = [
        pd.DataFrame(A[0], list("abcd"), list("abcd")),
        pd.DataFrame(A[1], *[list("abcd")] * 2).iloc[:3, :3],
    ]
    panel = bo.nearest_correlation(frames, lower={("a", "b"): 0.2}, warm_start="chain")
    assert list(panel.X[1].columns) == list("abc")
    assert panel[-1].X.loc["a", "b"] >= 0.2 - 1e-6
    assert panel.to_frame().status.tolist() == ["optimal"] * 2
    bare = bo.nearest_correlation([A[0], A[1][:3, :3]])
    assert [X.shape for X in bare.X] == [(4, 4), (3, 3)]


@pytest.mark.parametrize("missing", ["error", "unknown"])
def test_a_date_without_assets_has_no_answer(missing):
    A = rolling(2, 4, share=0.0)
    A[0] = np.nan
    with pytest.warns(bo.DataWarning, match="matrix 0: ValueError: the matrix has no number off"):
        panel = bo.nearest_correlation(A, missing=missing)
    assert panel.status.tolist() == ["error", "optimal"]
    assert np.isnan(panel.X[0]).all()


def test_one_tidy_frame_with_the_failures():
    pd = pytest.importorskip("pandas")
    A = rolling(5, 6)
    A[1, 0, 2] = A[1, 2, 0] = np.inf
    days = pd.date_range("2024-01-01", periods=5)
    upper = dict.fromkeys(days, 1.0)
    upper[days[3]] = -0.9
    with pytest.warns(bo.DataWarning, match="2024-01-02"):
        panel = bo.nearest_correlation(dict(zip(days, A, strict=True)), upper=upper, warm_start="chain")
    table = panel.to_frame()
    assert list(table.index) == list(days)
    assert table.status.tolist() == ["optimal", "error", "optimal", "infeasible", "optimal"]
    assert table.reason.str.len().gt(0).tolist() == [False, True, False, True, False]
    assert "Inf" in table.reason.iloc[1]
    X = panel[days[0]].X
    assert table.distance.iloc[0] == pytest.approx(np.linalg.norm(X - A[0]))
    assert table.smallest_eigenvalue.iloc[0] == pytest.approx(np.linalg.eigvalsh(X)[0], abs=1e-12)
    assert table.seconds[table.status == "optimal"].gt(0).all()
    again = pickle.loads(pickle.dumps(panel))
    pd.testing.assert_frame_equal(again.to_frame(), table)
    assert "by the size of their change" in str(again[days[2]].report())


def test_a_time_limit_leaves_the_dates_that_are_done():
    A = rolling(400, 30)
    with ThreadPoolExecutor(1) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        panel = bo.nearest_correlation(A, executor=pool, warm_start="chain", time_limit=0.05)
    assert set(panel.status) <= {"optimal", "user_limit"}
    assert len(panel.to_frame()) == 400


def test_a_bar_counts_the_matrices(capsys):
    pytest.importorskip("tqdm")
    bo.nearest_correlation(rolling(3, 4), progress=True)
    assert "3/3" in capsys.readouterr().err
