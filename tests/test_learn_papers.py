"""Small runs of the experiments on learned metrics and kernels, if their data are available."""

import importlib
import sys
from pathlib import Path

import pytest
from page_tables import assert_like_the_pages

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

PAPERS = Path(__file__).parents[1] / "examples" / "papers"
DATA = Path(__file__).parents[2] / "shared" / "data" / "uci"


def run(script, monkeypatch, folder, needed, arguments=(), **constants):
    """Run a script with other module constants, on the data of the folder beside the project."""
    missing = [name for name in needed if not (DATA / name).exists()]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    monkeypatch.syspath_prepend(str(PAPERS))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    module = importlib.import_module(script)
    for name, value in constants.items():
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(sys, "argv", [script, "--data", str(DATA), "--output", str(folder), *arguments])
    module.main()
    assert [p.name for p in folder.glob("*.png")] == [f"{script}.png"]


def cells(text):
    """Return the cells of the lines of tables."""
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]


@pytest.mark.slow
def test_digits(tmp_path, monkeypatch, capsys):
    needed = ["pendigits.tra", "pendigits.tes"]
    run("digits", monkeypatch, tmp_path, needed, ["--runs", "2"], COUNTS=(30, 120), CYCLES=(1, 5))
    text = capsys.readouterr().out
    assert_like_the_pages("digits", text)
    lines = {tuple(line[:2]): line for line in cells(text)}
    for divergence in ("LogDet", "von Neumann"):  # pairs help the clusters
        assert float(lines[divergence, "120"][5].split()[0]) > 0.1


def test_uci_metrics(tmp_path, monkeypatch, capsys):
    sets = {"iris": -1}
    run("uci_metrics", monkeypatch, tmp_path, ["iris.data"], ["--runs", "1"], SETS=sets, SLOW_RUNS=1)
    text = capsys.readouterr().out
    assert_like_the_pages("uci_metrics", text)
    assert text.count("| iris |") == 2
    assert "converged" in text


def test_psdboost(tmp_path, monkeypatch, capsys):
    routes = {"semidefinite master": {"solver": "psdboost", "master": "psd"}, "path": {"solver": "path"}}
    colors = dict.fromkeys(routes, "#000000")
    needed = ["pendigits.tra", "pendigits.tes"]
    draws = ["--draws", "1"]
    run("psdboost", monkeypatch, tmp_path, needed, draws, ROUTES=routes, COLORS=colors, PRICES=(10.0,))
    text = capsys.readouterr().out
    assert_like_the_pages("psdboost", text)
    values = [line[4] for line in cells(text) if line[1] in routes]
    assert len(values) == 4
    for a, b in ((values[0], values[1]), (values[2], values[3])):
        assert float(a) == pytest.approx(float(b), rel=1e-4)


@pytest.mark.slow
def test_mnist(tmp_path, monkeypatch, capsys):
    needed = [
        f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
    ]
    small = {"IMAGES": 4000, "HELD_OUT": 500, "COUNTS": (500,), "TOTAL_PRICES": (10, 1000)}
    run("mnist", monkeypatch, tmp_path, needed, **small)
    text = capsys.readouterr().out
    assert_like_the_pages("mnist", text)
    lines = [line for line in cells(text) if line[0] in ("Euclidean", "LogDet", "von Neumann")]
    errors = [float(line[3]) for line in lines]
    assert len(errors) == 3
    assert errors[0] < 10
    assert max(errors[1:]) < errors[0] + 0.5  # 500 pairs change little


@pytest.mark.slow
def test_spambase_and_nursery(tmp_path, monkeypatch, capsys):
    needed = ["spambase.data", "nursery.data"]
    run("spambase_nursery", monkeypatch, tmp_path, needed, ["--runs", "1"], COUNTS=(50,))
    text = capsys.readouterr().out
    assert_like_the_pages("spambase_nursery", text)
    lines = cells(text)
    assert [line[0] for line in lines] == ["divergence", "LogDet", "von Neumann"] * 2
