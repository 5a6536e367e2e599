"""Parameters and drawn examples of which some are in the default run, and more in that of the slow tests."""

from __future__ import annotations

import hypothesis
import pytest


def first(count, values):
    """Return the values as parameters; those after the first `count` are slow. A tuple has several."""
    values = list(values)
    rest = (value if isinstance(value, tuple) else (value,) for value in values[count:])
    return [*values[:count], *(pytest.param(*value, marks=pytest.mark.slow) for value in rest)]


def examples(count):
    """Return hypothesis' settings of a test that draws `count` examples, or four times as many with a seed."""
    seeded = hypothesis.settings.get_profile("seeded").max_examples
    times = 4 if hypothesis.settings().max_examples == seeded else 1
    return hypothesis.settings(max_examples=times * count)
