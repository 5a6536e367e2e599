"""Shared fixtures: seeded randomness, and the folder of real data where it is there."""

import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile("bregopt", deadline=None, max_examples=40, derandomize=True)
hypothesis.settings.load_profile("bregopt")

DATA = Path(os.environ.get("BREGOPT_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


@pytest.fixture(scope="session")
def data():
    """The folder of real data sets; tests that want it are skipped where it is not."""
    if not DATA.is_dir():
        pytest.skip(f"no data folder at {DATA}; set BREGOPT_DATA")
    return DATA
