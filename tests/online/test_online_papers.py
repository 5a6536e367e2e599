"""Small runs of the experiments of the online papers."""

import importlib
from pathlib import Path

import pytest
from page_tables import assert_like_the_pages, assert_on_the_pages

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

PAPERS = Path(__file__).parents[2] / "examples" / "papers"


PICTURES = {
    "tsuda_kernels": ["tsuda_figure2", "tsuda_figure3"],
    "warmuth_mistakes": ["warmuth_mistakes"],
    "warmuth_pca": ["warmuth_pca"],
    "jain_noise": ["jain_noise"],
}


def printed(script, folder, capsys, monkeypatch, **quick):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.syspath_prepend(str(PAPERS))
    importlib.import_module(script).main(folder, **quick)
    assert sorted(p.stem for p in folder.glob("*.png")) == PICTURES[script]
    return capsys.readouterr().out


@pytest.mark.parametrize("script", PICTURES)
def test_experiment_prints_the_tables_of_its_page(script, tmp_path, capsys, monkeypatch):
    assert_like_the_pages(script, printed(script, tmp_path, capsys, monkeypatch, quick=True))


@pytest.mark.slow
@pytest.mark.parametrize("script", PICTURES)
def test_page_shows_the_numbers_of_the_experiment(script, tmp_path, capsys, monkeypatch):
    assert_on_the_pages(script, printed(script, tmp_path, capsys, monkeypatch))
