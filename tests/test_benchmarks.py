"""Every benchmark is found by what it uses of the package: it can be loaded."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_benchmark_loads(name, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:  # a peer, or an extra
        if str(error.name).startswith(("bregopt", "nearness", "sdp")):
            raise
        pytest.skip(f"needs {error.name}")
