"""The demo runs, agrees with CVXPY, and writes four pictures; its findings match the data."""

from dataclasses import replace

import numpy as np
import pytest

from bregopt import demo

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
pytest.importorskip("networkx")


def test_main_job(tmp_path, capsys):
    assert demo.main(tmp_path / "pictures", verbose=False) == 0
    out = capsys.readouterr().out
    assert "Every answer agrees with CVXPY" in out
    assert out.splitlines()[-1].startswith("Try next: bregopt repair")
    table = out.splitlines()[-9:-3]
    assert [line.split("  ")[0] for line in table[-5:]] == [
        "nearest correlation",
        "kernel, LogDet",
        "kernel, von Neumann",
        "margin metric",
        "balanced cut",
    ]
    pictures = sorted((tmp_path / "pictures").iterdir())
    assert [p.name for p in pictures] == [
        "balanced_cut.png",
        "kernel_learning.png",
        "margin_metric.png",
        "nearest_correlation.png",
    ]
    assert all(p.read_bytes().startswith(b"\x89PNG") and p.stat().st_size > 20_000 for p in pictures)


def test_the_correlation_matrix_is_really_broken():
    names, A = demo.broken_correlation()
    assert len(names) == len(A) == 10
    np.testing.assert_array_equal(A, A.T)
    assert np.linalg.eigvalsh(A)[0] < -0.1


def test_a_case_that_disagrees_fails_the_demo(tmp_path, monkeypatch, capsys):
    def run(verbose):
        case = demo.correlation_case(verbose)
        other = [replace(line.reference, value=line.reference.value + 1) for line in case.lines]
        lines = [replace(line, reference=own) for line, own in zip(case.lines, other, strict=True)]
        return replace(case, lines=lines)

    monkeypatch.setattr(demo, "_CASES", (("broken", run),))
    assert demo.main(tmp_path, verbose=False) == 4
    assert "NOT every answer agrees" in capsys.readouterr().out
