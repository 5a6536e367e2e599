"""Reports, plots, pairwise correlations and the command repair: against numpy, pandas and statsmodels."""

import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

import bregopt as bo
from bregopt import cli

A = np.array([[1.0, 0.9, 0.7, 0.1], [0.9, 1, 0.3, 0.4], [0.7, 0.3, 1, -0.6], [0.1, 0.4, -0.6, 1]])
LABELS = ["gold", "oil", "wheat", "rates"]


def frame(matrix=A, labels=LABELS):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(matrix, labels, labels)


def test_a_report_has_the_numbers_of_numpy():
    sol = bo.nearest_correlation(frame(), min_eigenvalue=0.05, upper=0.8, fixed=[[1, 2]])
    report, X = sol.report(), sol.X.to_numpy()
    assert report.distance == pytest.approx(np.linalg.norm(X - A))
    assert report.relative == pytest.approx(np.linalg.norm(X - A) / np.linalg.norm(A))
    assert report.largest == pytest.approx(np.abs(X - A).max())
    np.testing.assert_allclose(report.spectrum_before, np.linalg.eigvalsh(A))
    np.testing.assert_allclose(report.spectrum_after, np.linalg.eigvalsh(X), atol=1e-14)
    assert 0.05 - 1e-9 <= report.proven_eigenvalue <= np.linalg.eigvalsh(X)[0] + 1e-15
    assert report.diagonal_error == np.abs(X.diagonal() - 1).max()
    pairs = report.to_frame()
    assert len(pairs) == 6
    assert pairs.change.abs().is_monotonic_decreasing
    for row in pairs.itertuples():
        assert row.before == frame().loc[row.row, row.column]
        assert row.after == sol.X.loc[row.row, row.column]
        assert row.change == row.after - row.before
    notes = {(row.row, row.column): row.note for row in pairs.itertuples()}
    assert notes["oil", "wheat"] == "fixed"
    assert notes["gold", "oil"] == "at upper bound"
    rows = report.to_frame("rows").set_index("row")
    np.testing.assert_allclose(rows["sum after"][LABELS], X.sum(axis=1))
    np.testing.assert_allclose(rows["sum of |changes|"][LABELS], np.abs(X - A).sum(axis=1))
    summary = report.to_frame("summary").set_index("quantity").value
    assert summary["condition number after"] == pytest.approx(np.linalg.cond(X), rel=1e-6)
    assert summary["negative eigenvalues before"] == 1
    with pytest.raises(ValueError, match="table is 'pair'; expected one of summary, pairs"):
        report.to_frame("pair")


def test_a_report_prints():
    report = bo.nearest_correlation(frame(), upper=0.8).report()
    text = str(report)
    assert "4 x 4 matrix, repaired: optimal" in text
    assert "1 of 4 negative" in text
    assert "by a Cholesky factorization" in text
    assert "certified gap" in text
    html = report._repr_html_()
    assert html.count("<table>") == 3
    assert "wheat" in html
    assert repr(pickle.loads(pickle.dumps(report))) == text


@pytest.mark.parametrize("divergence", ["logdet", "von_neumann", "largest_entry", "spectral"])
def test_every_nearness_has_a_report(divergence):
    B = 0.6 * A + 0.4 * np.eye(4)
    report = bo.nearest_correlation(B, divergence, upper=0.5).report()
    assert report.proven_eigenvalue > -1e-6
    assert "at upper bound" in str(report)


def test_unknown_entries_and_covariances_have_reports():
    B = A.copy()
    B[0, 3] = B[3, 0] = np.nan
    report = bo.nearest_correlation(B, missing="unknown").report()
    assert "unknown" in str(report)
    assert np.isnan(report.spectrum_before).all()
    assert report.change[0, 3] == 0
    S = 4 * A
    report = bo.nearest_covariance(S, upper=3.0, min_eigenvalue=0.1).report()
    np.testing.assert_allclose(report.before, S)
    assert report.diagonal_error < 1e-12
    assert report.proven_eigenvalue > 0.1 - 1e-9
    assert "at upper bound" in str(report)


def test_sums_of_rows_are_of_the_known_entries():
    rng = np.random.default_rng(3)
    A = np.corrcoef(rng.normal(size=(6, 9)))
    i, j = np.triu_indices(6, 1)
    A[i[:4], j[:4]] = A[j[:4], i[:4]] = np.nan
    A[4, 5] = A[5, 4] = 0.99
    report = bo.nearest_correlation(A, missing="unknown", min_eigenvalue=0.1).report()
    rows = report.to_frame("rows").sort_values("row")
    known = np.isfinite(A)
    np.testing.assert_allclose(rows["sum before"], np.nansum(A, axis=1))
    np.testing.assert_allclose(rows["sum after"], np.where(known, report.after, 0).sum(axis=1))
    np.testing.assert_allclose(rows["sum after"] - rows["sum before"], rows["change"], atol=1e-12)


def test_reports_state_the_request():
    B = A.copy()
    B[0, 3] = B[3, 0] = np.nan
    solution = bo.nearest_correlation(B, fixed=[[0, 1], [1, 2]], min_eigenvalue=0.01, missing="unknown")
    report = solution.report()
    largest = np.abs(solution.X - A)[[0, 1], [1, 2]].max()
    assert report.facts["kept"] == f"2 entries, largest change {largest:.1e}"
    assert report.facts["unknown"] == "1 pair"
    assert report.facts["floor"] == "0.01"
    assert "1 pair" in report.html(3)
    plain = bo.nearest_correlation(A).report()
    assert not {"kept", "unknown", "floor"} & plain.facts.keys()


def test_a_stack_has_reports_too():
    panel = bo.nearest_correlation(np.stack([A, np.eye(4)]), min_eigenvalue=0.01)
    one = bo.nearest_correlation(A, min_eigenvalue=0.01).report()
    np.testing.assert_allclose(panel[0].report().change, one.change, atol=1e-5)
    assert panel[1].report().distance == pytest.approx(0, abs=1e-12)


def test_no_answer_has_no_report():
    sol = bo.nearest_correlation(np.eye(3), upper=-0.9)
    for ask in (sol.report, sol.plot):
        with pytest.raises(ValueError, match="there is no answer to report: the status is infeasible"):
            ask()


def test_plots_have_four_axes():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    sol = bo.nearest_correlation(frame(), min_eigenvalue=0.01)
    axes = sol.plot()
    assert [ax.get_title() for ax in axes] == ["before", "after", "change", "eigenvalues"]
    np.testing.assert_array_equal(axes[0].images[0].get_array(), A)
    np.testing.assert_array_equal(axes[2].images[0].get_array(), sol.X.to_numpy() - A)
    assert axes[0].images[0].get_clim() == (-1.0, 1.0)
    np.testing.assert_allclose(axes[3].lines[0].get_ydata(), np.linalg.eigvalsh(A)[::-1], atol=1e-12)
    _, own = pyplot.subplots(1, 4)
    assert sol.plot(own)[0] is own[0]
    with pytest.raises(ValueError, match="expected 4"):
        sol.plot(own[:2])
    pyplot.close("all")


def test_reports_go_to_files(tmp_path):
    report = bo.nearest_correlation(frame(), min_eigenvalue=0.01).report()
    report.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "wheat" in page
    pytest.importorskip("openpyxl")
    import pandas as pd

    report.to_excel(tmp_path / "report.xlsx")
    sheets = pd.read_excel(tmp_path / "report.xlsx", sheet_name=None)
    assert list(sheets) == ["summary", "pairs", "rows", "spectrum", "correlation"]
    np.testing.assert_allclose(sheets["pairs"].change, report.to_frame().change)


def test_excel_without_openpyxl_names_the_extra(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"bregopt\[excel\]"):
        bo.nearest_correlation(A).report().to_excel(tmp_path / "report.xlsx")


def returns(seed, dates=30, n=5, share=0.3):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(dates, n)) * 10.0 ** rng.integers(-3, 4, n) + rng.normal(size=n)
    values[rng.random(values.shape) < share] = np.nan
    return values


@pytest.mark.filterwarnings("ignore:.*no correlation is known:bregopt.DataWarning")
@examples(15)
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.0, 0.3, 0.8]), least=st.integers(2, 9))
def test_pairwise_correlations_are_those_of_pandas(seed, share, least):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(returns(seed, share=share), columns=list("abcde"))
    before = table.copy()
    seen = table.notna().to_numpy(dtype=float)
    counts = seen.T @ seen
    found, weights = bo.pairwise_correlation(table, min_samples=least)
    expected = table.corr(min_periods=least)
    pd.testing.assert_frame_equal(table, before)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert list(found.columns) == list(weights.index) == list("abcde")
    np.testing.assert_allclose(
        weights, np.sqrt(np.where(expected.notna(), counts, 0) / counts.max()), atol=1e-12
    )


def test_pairwise_correlations_lead_to_a_valid_matrix_in_one_call():
    found, weights = bo.pairwise_correlation(returns(1, share=0.6))
    sol = bo.nearest_correlation(found, weights=weights, min_eigenvalue=0.01, missing="unknown")
    assert np.linalg.eigvalsh(sol.X)[0] > 0.01 - 1e-8
    counts = weights**2
    plain = bo.nearest_correlation(found, min_eigenvalue=0.01, missing="unknown")

    def cost(X):
        return np.nansum(counts * (X - found) ** 2)

    assert cost(sol.X) <= cost(plain.X) + 1e-9


def test_full_returns_agree_with_statsmodels():
    tools = pytest.importorskip("statsmodels.stats.correlation_tools")
    found, _ = bo.pairwise_correlation(returns(3, share=0.5))
    found = np.nan_to_num(found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = tools.corr_nearest(found, threshold=1e-12, n_fact=1000)
    ours = bo.nearest_correlation(found, tol=1e-9)
    assert ours.report().distance <= np.linalg.norm(theirs - found) + 1e-6


@pytest.mark.parametrize(
    ("values", "options", "error", "text"),
    [
        ([[1.0, np.inf], [2, 3]], {}, ValueError, "infinite in row 0, column 1"),
        ([1.0, 2.0], {}, ValueError, r"shape \(2,\)"),
        ([["a"]], {}, TypeError, "dtype"),
        ([[1j, 2]], {}, TypeError, "complex128"),
        ([[1.0, 2]], {"min_samples": 1}, ValueError, "min_samples is 1"),
        ([[1.0, 2]], {"min_samples": 2.5}, TypeError, "min_samples is 2.5"),
    ],
)
def test_bad_returns_are_named(values, options, error, text):
    with pytest.raises(error, match=text):
        bo.pairwise_correlation(values, **options)


def write_csv(folder, matrix=A, labels=LABELS):
    path = folder / "matrix.csv"
    lines = [",".join(["", *labels])]
    lines += [",".join([label, *map(str, row)]) for label, row in zip(labels, matrix.tolist(), strict=True)]
    path.write_text("\n".join(lines))
    return path


def test_repair_writes_a_matrix_and_a_report(tmp_path, capsys):
    path, out = write_csv(tmp_path), tmp_path / "repaired.csv"
    html = tmp_path / "report.html"
    arguments = [
        "repair",
        path,
        "--min-eigenvalue",
        "0.01",
        "--upper",
        "0.8",
        "--output",
        out,
        "--report",
        html,
    ]
    assert cli.main([str(each) for each in arguments]) == 0
    assert "certified gap" in capsys.readouterr().out
    assert "gold" in html.read_text()
    pd = pytest.importorskip("pandas")
    X = pd.read_csv(out, index_col=0)
    assert list(X.index) == list(X.columns) == LABELS
    expected = bo.nearest_correlation(A, min_eigenvalue=0.01, upper=0.8).X
    np.testing.assert_allclose(X, expected, atol=1e-12)


def test_repair_prints_its_report(tmp_path, capsys):
    assert cli.main(["repair", str(write_csv(tmp_path))]) == 0
    printed = capsys.readouterr().out
    assert "all 6 pairs, by the size of their change" in printed
    assert "wheat" in printed
    text = tmp_path / "report.txt"
    assert cli.main(["repair", str(write_csv(tmp_path)), "--report", str(text)]) == 0
    assert "wheat" in text.read_text()


def test_repair_tells_what_it_cannot_do(tmp_path, capsys):
    path = str(write_csv(tmp_path))
    assert cli.main(["repair", path, "--upper", "-0.9"]) == 3
    assert "infeasible" in capsys.readouterr().out
    assert cli.main(["repair", path, "--min-eigenvalue", "2"]) == 2
    assert cli.main(["repair", str(Path(tmp_path) / "none.csv")]) == 2
    for bad in (["--report", "report.pdf"], ["--output", "none/x.csv"]):
        with pytest.raises(SystemExit):
            cli.main(["repair", path, *bad])


def test_the_real_matrices_have_reports():
    folder = Path(os.environ.get("BREGOPT_DATA", "none")) / "nearcorr"
    if not folder.is_dir():
        pytest.skip("needs BREGOPT_DATA")
    for path in sorted(folder.glob("*.csv")):
        if path.stem.endswith("_pattern"):
            continue
        matrix = np.loadtxt(path, delimiter=",")
        matrix = (matrix + matrix.T) / 2
        sol = bo.nearest_correlation(matrix, min_eigenvalue=1e-3)
        report = sol.report()
        assert sol.status == "optimal", path.stem
        assert report.proven_eigenvalue >= 1e-3 - 1e-10, path.stem
        assert report.distance == pytest.approx(np.linalg.norm(sol.X - matrix)), path.stem


@pytest.mark.filterwarnings("ignore:.*no correlation is known:bregopt.DataWarning")
def test_a_number_of_samples_beyond_floats():
    found = bo.pairwise_correlation(np.random.default_rng(0).normal(size=(5, 2)), min_samples=10**400)
    assert np.isnan(found.A).all()
    assert not found.weights.any()
