"""Shared fixtures: a seeded generator, a clock that is equal on all machines, the folder of real data."""

import os

# `pytest -n` starts a process for each core; with threads of BLAS beside them the suite takes twice as long.
# BLAS reads the variable when it is loaded, and scripts in processes of their own inherit it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# isort: split
import gc
import itertools
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import numpy as np
import pytest
from hypothesis.internal.conjecture import providers

# The process that hands out the tests of `pytest -n` needs neither the package nor CVXPY: they come later.

pytest.register_assert_rewrite("page_tables")  # so that a failure shows the lines that differ

# Every run draws the same examples, unless `pytest --hypothesis-seed=N` asks for others.
hypothesis.settings.register_profile("bregopt", deadline=None, max_examples=10, derandomize=True)
hypothesis.settings.register_profile(
    "seeded", hypothesis.settings.get_profile("bregopt"), derandomize=False, database=None, max_examples=40
)
# Where only a failure counts, as in tests/library/mutations.py, its example need not become small.
hypothesis.settings.register_profile(
    "first_failure",
    hypothesis.settings.get_profile("bregopt"),
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
)
hypothesis.settings.load_profile("bregopt")
# Hypothesis would also draw numbers that stand in the modules loaded so far, which differ between workers.
providers._get_local_constants = lambda: providers._local_constants

DATA = Path(os.environ.get("BREGOPT_DATA", Path(__file__).parents[2] / "shared" / "data"))


def pytest_configure(config):
    # A shell disables Ctrl-C in background processes, and the tests of Ctrl-C send it to themselves.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--hypothesis-seed", None) is not None:
        hypothesis.settings.load_profile("seeded")
    if "BREGOPT_TEST_PEER_LOOSE" in os.environ:
        import peers

        peers.loosen(peers.LOOSE)
    gc.set_threshold(20_000)  # by default it looks for garbage 30 times as often, a fortieth of the CPU time


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # twelve thousand tests would be visited by each full collection, in a third of a second


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


@pytest.fixture
def ticking(monkeypatch):
    """Let each reading of the clock take a second: a limit ends a solve at the same step on all machines."""
    from bregopt import clock

    looks = itertools.count()
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: next(looks)))
    monkeypatch.setattr(clock, "_measured", lambda: 0.0)


@pytest.fixture
def plug_ins():
    """Remove after a test the plug-ins that it registers."""
    from bregopt.divergences import DIVERGENCES
    from bregopt.presolve import REQUESTED, UNIVERSAL
    from bregopt.routes import registry

    registries = (registry._registered, DIVERGENCES, UNIVERSAL, REQUESTED)
    before = [dict(held) for held in registries]
    yield
    for held, known in zip(registries, before, strict=True):
        held.clear()
        held.update(known)


@pytest.fixture(scope="session")
def processes():
    """Two processes, shared by tests that neither end nor patch them, as their start takes a second."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="session")
def data():
    """The folder of real data sets; tests that need it are skipped if it is missing."""
    if not DATA.is_dir():
        pytest.skip(f"no data folder at {DATA}; set BREGOPT_DATA")
    return DATA
