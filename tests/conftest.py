"""Shared fixtures: seeded randomness, and the folder of real data where it is there."""

import os
from pathlib import Path

import hypothesis
import numpy as np
import peers
import pytest

# Every run draws the same examples, unless `pytest --hypothesis-seed=N` asks for others.
hypothesis.settings.register_profile("bregopt", deadline=None, max_examples=40, derandomize=True)
hypothesis.settings.register_profile(
    "seeded", hypothesis.settings.get_profile("bregopt"), derandomize=False, database=None
)
hypothesis.settings.load_profile("bregopt")

DATA = Path(os.environ.get("BREGOPT_DATA", Path(__file__).parents[2] / "shared" / "data"))


def pytest_configure(config):
    if config.getoption("--hypothesis-seed", None) is not None:
        hypothesis.settings.load_profile("seeded")
    if peers.LOOSE != 1:
        peers.loosen(peers.LOOSE)


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


@pytest.fixture(scope="session")
def data():
    """The folder of real data sets; tests that want it are skipped where it is not."""
    if not DATA.is_dir():
        pytest.skip(f"no data folder at {DATA}; set BREGOPT_DATA")
    return DATA
