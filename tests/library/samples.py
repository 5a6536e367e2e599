"""Parameters of which some are in the default run, and all in that of the slow tests."""

from __future__ import annotations

import pytest


def first(count, values):
    """Return the values as parameters; those after the first `count` are slow. A tuple has several."""
    values = list(values)
    rest = (value if isinstance(value, tuple) else (value,) for value in values[count:])
    return [*values[:count], *(pytest.param(*value, marks=pytest.mark.slow) for value in rest)]
