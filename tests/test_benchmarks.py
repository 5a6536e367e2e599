"""Benchmarks find what they use of the package, and print the tables that stand in their results."""

import importlib
import sys
from pathlib import Path

import pytest
from page_tables import pages

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
DATA = Path(__file__).parents[2] / "shared" / "data"


def loaded(name, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:  # a peer, or an extra
        if str(error.name).startswith(("bregopt", "nearness", "sdp")):
            raise
        pytest.skip(f"needs {error.name}")


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_benchmark_loads(name, monkeypatch):
    loaded(name, monkeypatch)


def table_of(text):
    """Return the titles of the first table in a text, and what its lines are about."""
    table = pages.TABLE.findall(text)[0]
    return pages.titles(table), [pages.titles(line)[0] for line in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("name", "small", "needed"),
    [
        ("lowering", ["--orders", "6", "--constraints", "10"], None),
        ("sweep", ["--sides", "2", "--order", "21"], None),
        ("large_cuts", ["--only", "gpp100", "--data", str(DATA)], "sdplib/gpp100.dat-s.gz"),
    ],
)
def test_a_small_run_prints_the_table_of_the_results(name, small, needed, monkeypatch, capsys):
    if needed is not None and not (DATA / needed).exists():
        pytest.skip(f"needs {needed}")
    before = (BENCHMARKS / "results" / f"{name}.md").read_text()
    module = loaded(name, monkeypatch)
    monkeypatch.setattr(sys, "argv", [name, *small])
    module.main()
    (titles, lines), (saved_titles, saved_lines) = table_of(capsys.readouterr().out), table_of(before)
    assert titles == saved_titles
    assert {line for line in lines if not line.isdigit()} <= set(saved_lines)
    assert (BENCHMARKS / "results" / f"{name}.md").read_text() == before  # only full runs are saved


def test_results_have_the_columns_that_their_benchmarks_print(monkeypatch):
    headings = {
        "definiteboost": loaded("definiteboost", monkeypatch).HEAD,
        "nearness": "\n".join(loaded("nearness", monkeypatch).Table().lines) + "\n",
    }
    for name, heading in headings.items():
        assert (BENCHMARKS / "results" / f"{name}.md").read_text().startswith(heading), name
