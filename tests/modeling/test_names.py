"""Names of constraints and labels of data, in messages and in duals."""

import pickle

import numpy as np
import pytest

import bregopt as bo

pandas = pytest.importorskip("pandas")


def test_messages_show_the_name_of_a_constraint():
    X = bo.PSD(3, name="X")
    budget = (bo.trace(X) <= 1).named("budget")
    assert repr(budget) == "Constraint(budget: trace(X) <= 1, rows=1)"
    assert repr(bo.soft(budget, 2.0)) == "Constraint(budget: soft(trace(X) <= 1), rows=1)"
    impossible = bo.Problem(bo.Minimize(bo.trace(X)), [budget, (X[0, 0] <= -1).named("negative")])
    with pytest.raises(bo.InfeasibleRowError, match=r"constraint 1 \(negative: X\[0, 0\] <= -1\)"):
        impossible.solve()
    t = bo.Parameter(value=-3.0, name="t")
    crossed = bo.Problem(bo.Minimize(bo.trace(X)), [bo.between(bo.trace(X), 1, t).named("range")])
    with pytest.raises(ValueError, match=r"constraint 0 \(range: 1 <= trace\(X\) <= t\), row 0"):
        crossed.solve()


@pytest.mark.parametrize(("name", "error"), [("", ValueError), (3, TypeError), (None, TypeError)])
def test_a_name_is_a_string(name, error):
    with pytest.raises(error, match=r"the name of trace\(X\) <= 1"):
        (bo.trace(bo.PSD(2, name="X")) <= 1).named(name)


def test_names_are_unique():
    X = bo.PSD(2)
    rows = [(bo.trace(X) <= 1).named("a"), (X[0, 0] >= 0.1).named("a")]
    with pytest.raises(ValueError, match="two constraints are called 'a'"):
        bo.Problem(bo.Minimize(bo.trace(X)), rows)


def test_duals_by_name():
    X, x, t = bo.PSD(3), bo.Variable(2), bo.Variable()
    ball = (bo.norm2(x - X[0, 1]) <= t).named("ball")
    entry = (X[0, 1] >= 0.5).named("entry")
    sol = bo.Problem(bo.Minimize(bo.trace(X) + t), [ball, entry, bo.trace(X) <= 7]).solve()
    assert list(sol.duals_by_name) == ["ball", "entry"]
    assert sol.duals_by_name["ball"] == ball.dual_value == sol.duals[0]
    assert sol.duals_by_name["entry"] == entry.dual_value == pytest.approx(2, abs=1e-4)
    assert pickle.loads(pickle.dumps(sol)).duals_by_name["entry"] == entry.dual_value


def test_duals_keep_the_labels_of_a_pandas_bound():
    X = bo.PSD(3)
    least = pandas.Series([1.0, 2.0, 3.0], index=["a", "b", "c"])
    most = pandas.DataFrame(np.full((3, 3), 0.2), least.index, least.index)
    rows = [
        (bo.diag(X) >= least).named("least"),
        (X - 5 * np.eye(3) <= most).named("most"),
        bo.between(bo.diag(X), least, 9).named("range"),
        (bo.diag(X) <= 9).named("plain"),
    ]
    sol = bo.Problem(bo.Minimize(bo.trace(X)), rows).solve()
    assert list(sol.duals_by_name["least"].index) == ["a", "b", "c"]
    np.testing.assert_allclose(sol.duals_by_name["least"] - sol.duals_by_name["range"], 1, atol=1e-4)
    assert list(sol.duals_by_name["most"].columns) == ["a", "b", "c"]
    assert list(sol.duals_by_name["range"].index) == ["a", "b", "c"]
    assert isinstance(sol.duals_by_name["plain"], np.ndarray)


def test_no_duals_of_an_unbounded_problem():
    X = bo.PSD(2)
    sol = bo.Problem(bo.Maximize(bo.trace(X)), [(X[0, 1] >= 0.5).named("entry")]).solve()
    assert sol.status == "unbounded"
    assert sol.duals_by_name == {"entry": None}


def test_the_rows_of_a_nearest_correlation_have_names_and_labels():
    rng, names = np.random.default_rng(0), ["a", "b", "c", "d"]
    G = rng.uniform(-1, 1, size=(4, 4))
    A = pandas.DataFrame((G + G.T) / 2 + np.diag(1 - np.diag(G)), names, names)
    sol = bo.nearest_correlation(A, fixed=[[0, 1]], lower=0.1)
    assert list(sol.duals_by_name) == ["diagonal", "fixed", "bounds"]
    assert list(sol.duals_by_name["diagonal"].index) == names
    assert list(sol.duals_by_name["fixed"].index) == [("a", "b")]
    assert ("c", "d") in sol.duals_by_name["bounds"].index
    plain = bo.nearest_correlation(A.to_numpy(), fixed=[[0, 1]], lower=0.1)
    np.testing.assert_allclose(plain.duals_by_name["bounds"], sol.duals_by_name["bounds"])
    A.iloc[:3, :3] = [[1, 0.9, 0.9], [0.9, 1, -0.9], [0.9, -0.9, 1]]
    impossible = bo.nearest_correlation(A, fixed=[[0, 1], [0, 2], [1, 2]])
    titles = [row.title for row in impossible.conflict()]
    assert titles == [
        "diagonal[a]",
        "diagonal[b]",
        "diagonal[c]",
        "fixed[a, b]",
        "fixed[a, c]",
        "fixed[b, c]",
    ]


def test_names_from_cvxpy():
    cp = pytest.importorskip("cvxpy")
    Y = cp.Variable((3, 3), PSD=True)
    rows = [cp.trace(Y) <= 5, cp.diag(Y) >= 1, Y[0, 1] >= 0.5, Y[0, 2] >= 0.5]
    if not hasattr(rows[0], "set_label"):
        pytest.skip("this CVXPY has no labels")
    for row, label in zip(rows, ["budget", "variance", "entry", "entry"], strict=True):
        row.set_label(label)
    ours = bo.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(Y)), rows))
    assert [c.name for c in ours.constraints] == ["budget", "variance", None, None]
