"""What leaves the session: workbooks, CSV files and pages hold matrices with labels, and run nothing."""

import numpy as np
import pytest
from samples import first

import bregopt as bo

pd = pytest.importorskip("pandas")

HOSTILE = ["=cmd|' /C calc'!A0", "+SUM(A1)", "-1+1", "@x", "<script>alert(1)</script>", "plain"]


def panel(dates=40, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        rng.normal(size=(dates, 6)) + rng.normal(size=(dates, 1)),
        columns=list("abcdef"),
        index=pd.date_range("2026-01-01", periods=dates),
    )
    table[rng.random(table.shape) < 0.3] = np.nan
    table.loc["2026-01-01":"2026-01-15", "d"] = np.nan
    return table.rolling(12, min_periods=4).corr().loc["2026-01-10":]


@pytest.fixture(scope="module")
def solved():
    with pytest.warns(bo.DataWarning, match="no number off the diagonal"):
        return panel(), bo.nearest_correlation(panel(), missing="unknown", min_eigenvalue=0.02)


def test_files_hold_the_repaired_matrix_with_its_labels(tmp_path):
    A = pd.DataFrame([[1, 0.9, 0.7], [0.9, 1, -0.3], [0.7, -0.3, 1.0]], list("abc"), list("abc"))
    S = A * np.outer([1, 2, 3], [1, 2, 3])
    for sol, name in ((bo.nearest_correlation(A), "correlation"), (bo.nearest_covariance(S), "covariance")):
        report = sol.report()
        report.to_csv(tmp_path / "matrix.csv")
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "matrix.csv", index_col=0), sol.X)
        pytest.importorskip("openpyxl")
        report.to_excel(tmp_path / "matrix.xlsx")
        sheets = pd.read_excel(tmp_path / "matrix.xlsx", sheet_name=None, index_col=0)
        pd.testing.assert_frame_equal(sheets[name], sol.X, check_names=False)
        deviation = np.sqrt(np.diag(sol.X))
        np.testing.assert_allclose(sheets["correlation"], sol.X / np.outer(deviation, deviation), atol=1e-12)


def test_labels_are_text_in_all_files(tmp_path):
    pytest.importorskip("openpyxl")
    import openpyxl

    rng = np.random.default_rng(1)
    A = np.triu(rng.uniform(-1, 1, (6, 6)), 1)
    frame = pd.DataFrame(A + A.T + np.eye(6), HOSTILE, HOSTILE)
    single = bo.nearest_correlation(frame).report()
    many = bo.nearest_correlation({"=1+1": frame, "b": frame}).report()
    for report in (single, many):
        report.to_excel(tmp_path / "book.xlsx")
        for sheet in openpyxl.load_workbook(tmp_path / "book.xlsx"):
            assert "f" not in {cell.data_type for row in sheet.iter_rows() for cell in row}
        for table in report.names:
            report.to_csv(tmp_path / "table.csv", table)
            cells = pd.read_csv(tmp_path / "table.csv", header=None, dtype=str, keep_default_na=False)
            run = [cell for cell in cells.to_numpy().ravel() if cell[:1] in tuple("=+-@")]
            assert all(np.isfinite(float(cell)) for cell in run)  # numbers below zero
        report.to_html(tmp_path / "page.html")
        assert "<script>alert" not in (tmp_path / "page.html").read_text()


def test_a_panel_has_one_report_that_adds_up_its_dates(solved):
    A, sols = solved
    report = sols.report()
    dates = report.to_frame("dates").set_index("date")
    single = {key: sols[key].report() for key in sols.keys if sols[key].X is not None}
    for key, one in single.items():
        assert dates.distance[key] == pytest.approx(one.distance, abs=1e-12)
        assert dates["largest change of a correlation"][key] == pytest.approx(one.largest, abs=1e-12)
        assert dates["smallest eigenvalue after"][key] == pytest.approx(one.spectrum_after[0], abs=1e-10)
        filled = np.where(np.isnan(one.before), one.after, one.before)
        assert dates["smallest eigenvalue before"][key] == pytest.approx(
            np.linalg.eigvalsh(filled)[0], abs=1e-10
        )
    assert dates["rows left out"].sum() == sum(len(sols[key].left_out) for key in sols.keys)
    pairs = report.to_frame("pairs").set_index(["row", "column"])
    change = (sols.X - A).abs()
    of_pair = change.xs("a", level=1)["c"].dropna()
    assert pairs.dates["a", "c"] == len(of_pair)
    assert pairs.moved["a", "c"] == (of_pair > 0.01).sum()
    assert pairs["mean"]["a", "c"] == pytest.approx(of_pair.mean())
    assert pairs.largest["a", "c"] == pytest.approx(of_pair.max())
    assert pairs["on"]["a", "c"] == of_pair.idxmax()
    assert pairs.moved.is_monotonic_decreasing
    worst = max(single, key=lambda key: single[key].distance)
    assert f"at {worst}" in report.facts["change"]
    assert str(report).splitlines()[0].startswith(f"{len(sols)} matrices of 6 labels, repaired: ")


def test_the_plot_of_a_panel_shows_its_numbers(solved):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    _, sols = solved
    axes, report = sols.plot(), sols.report()
    np.testing.assert_array_equal(axes[0].lines[0].get_ydata(), report.distance)
    np.testing.assert_array_equal(axes[1].lines[1].get_ydata(), report.after)
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_array_equal(axes[2].images[0].get_array()[off], report.mean[off])
    pyplot.close("all")


def test_stacks_of_psd_matrices_and_of_arrays_have_reports():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(3, 5, 5))
    sols = bo.nearest_psd(M + M.transpose(0, 2, 1))
    report = sols.report()
    expected = np.linalg.norm(sols.X - M - M.transpose(0, 2, 1), axis=(1, 2))
    np.testing.assert_allclose(report.distance, expected)
    assert "3 optimal" in repr(report)
    assert report._repr_html_().count("<table>") == 3


@pytest.fixture
def _drawn():
    pytest.importorskip("matplotlib").use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.mark.usefixtures("_drawn")
@pytest.mark.parametrize(
    "keys", [pd.period_range("2024-01", periods=3, freq="M"), [("a", 1), ("a", 2), ("b", 1)], ["a", 2, "c"]]
)
def test_dates_of_any_kind_are_drawn(keys):
    C = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
    axes = bo.nearest_correlation(dict.fromkeys(keys, C)).plot()
    axes[0].figure.canvas.draw()
    shown = [label.get_text() for label in axes[0].get_xticklabels()]
    assert shown == [str(key) for key in keys]


@pytest.mark.usefixtures("_drawn")
def test_matrices_without_a_change_are_drawn_as_such():
    C = 0.5 * np.eye(4) + 0.5
    single, panel = bo.nearest_correlation(C).plot(), bo.nearest_correlation(np.stack([C, C])).plot()
    assert single[2].get_title() == panel[0].get_title() == "change: none"
    assert single[2].images[0].get_clim() == (-1.0, 1.0)


@pytest.mark.usefixtures("_drawn")
def test_covariances_of_unlike_units_are_drawn_as_correlations():
    C, scale = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]), np.array([1e-3, 1, 20])
    sol = bo.nearest_covariance(C * np.outer(scale, scale), units="covariance")
    axes = sol.plot()
    assert axes[0].get_title() == "before, as correlations"
    np.testing.assert_allclose(axes[0].images[0].get_array(), C)
    np.testing.assert_allclose(axes[1].images[0].get_array(), sol.X / np.outer(scale, scale))
    alike = bo.nearest_covariance(C * [[1, 2, 3], [2, 4, 6], [3, 6, 9]])
    assert alike.plot()[0].images[0].get_clim() == (-9.0, 9.0)


@pytest.mark.usefixtures("_drawn")
def test_of_many_edges_and_curves_the_largest_are_drawn():
    from bregopt.display import plot_graph, plot_path

    rng = np.random.default_rng(0)
    partial = np.triu(rng.normal(size=(60, 60)), 1)
    ax = plot_graph(partial + partial.T)
    assert ax.get_title().startswith("1770 edges, the 500 largest drawn")
    widths = ax.collections[0].get_linewidths()
    least = np.sort(np.abs(partial[np.triu_indices(60, 1)]))[-500]
    assert min(widths) == pytest.approx(0.3 + 3 * least / np.abs(partial).max())
    curves = rng.normal(size=(4, 700)) * np.arange(700)
    ax = plot_path(np.geomspace(1, 0.1, 4), curves, "partial correlation")
    assert ax.get_title() == "the 500 largest of 699 curves"
    drawn = {tuple(line.get_ydata()) for line in ax.lines}
    assert drawn == {tuple(curve) for curve in curves.T[np.argsort(-np.abs(curves).max(axis=0))[:500]]}


@pytest.mark.parametrize("n", first(2, [5, 60, 120]))
def test_labels_at_any_order_and_unknown_entries_unlike_zero(n):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    from bregopt.display import plot_correlation

    labels = [f"a${k}$" for k in range(n)]
    before = np.eye(n)
    before[0, 1] = before[1, 0] = np.nan
    axes = plot_correlation(before, np.eye(n), labels)
    axes[0].figure.canvas.draw()
    ticks = axes[0].get_yticklabels()
    assert 3 <= len(ticks) <= 25
    assert ticks[1].get_text() == labels[int(axes[0].get_yticks()[1])].replace("$", r"\$")
    assert axes[0].get_facecolor() != axes[0].images[0].cmap(0.5)  # that of zero
    assert np.ma.masked_invalid(axes[0].images[0].get_array()).mask[0, 1]
    assert np.isfinite(axes[3].lines[0].get_ydata()).all()
    pyplot.close("all")
