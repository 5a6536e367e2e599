"""Parameters and drawn examples of which some are in the default run, and more in that of the slow tests."""

from __future__ import annotations

import itertools

import hypothesis
import pytest


def first(count, values):
    """Return the values as parameters; those after the first `count` are slow. A tuple has several."""
    values = list(values)
    rest = (value if isinstance(value, tuple) else (value,) for value in values[count:])
    return [*values[:count], *(pytest.param(*value, marks=pytest.mark.slow) for value in rest)]


def turns(*lists):
    """Return the product of lists as parameters; values take turns by default, and the others are slow.

    Each value has its turn. In the default run any values of all lists but one meet a value of that list: of
    three lists, each pair of values. Values that are slow anyway stay so.
    """
    columns = [[v if isinstance(v, type(pytest.param())) else pytest.param(v) for v in own] for own in lists]
    counts = [sum(not value.marks for value in column) for column in columns]
    period = min((count for count in counts if count > 1), default=1)
    found = []
    for chosen in itertools.product(*(enumerate(column) for column in columns)):
        marks = [mark for _, value in chosen for mark in value.marks]
        if sum(place for place, _ in chosen) % period:
            marks.append(pytest.mark.slow)
        found.append(pytest.param(*(one for _, value in chosen for one in value.values), marks=marks))
    return found


def examples(count):
    """Return hypothesis' settings of a test that draws `count` examples, four times as many with a seed."""
    seeded = hypothesis.settings.get_profile("seeded").max_examples
    times = 4 if hypothesis.settings().max_examples == seeded else 1
    return hypothesis.settings(max_examples=times * count)
