"""The experiments of the online papers run, in small."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

PAPERS = Path(__file__).parents[1] / "examples" / "papers"


@pytest.mark.parametrize(
    ("script", "pictures"),
    [
        ("tsuda_kernels", ["tsuda_figure2", "tsuda_figure3"]),
        ("warmuth_mistakes", ["warmuth_mistakes"]),
        ("jain_noise", ["jain_noise"]),
    ],
)
def test_experiment_runs(script, pictures, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    runpy.run_path(str(PAPERS / f"{script}.py"))["main"](tmp_path, quick=True)
    assert sorted(p.stem for p in tmp_path.glob("*.png")) == pictures
    assert capsys.readouterr().out.count("\n") > 4
