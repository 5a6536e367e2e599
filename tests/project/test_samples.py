"""The samples of tests/library/samples.py: what the default run has of many parameters and examples."""

import itertools

import hypothesis
import pytest
from samples import examples, first, turns


def by_default(parameters):
    return [parameter.values for parameter in parameters if not parameter.marks]


@pytest.mark.parametrize("lists", [("ab", "xyz"), ("ab", "xyz", range(4)), ("abc", "xyz", "uvw", range(2))])
def test_values_of_all_lists_but_one_meet_by_default(lists):
    found = turns(*lists)
    assert [parameter.values for parameter in found] == list(itertools.product(*lists))
    here = by_default(found)
    assert 0 < len(here) < len(found)
    for places in itertools.combinations(range(len(lists)), len(lists) - 1):
        met = {tuple(values[place] for place in places) for values in here}
        assert met == set(itertools.product(*(lists[place] for place in places)))


def test_slow_values_take_no_turns():
    found = turns(first(1, "abc"), "xyz", first(2, range(5)))
    assert by_default(found) == [("a", "x", 0), ("a", "y", 1), ("a", "z", 0)]
    assert len(found) == 45


def test_the_first_values_are_those_of_the_default_run():
    assert first(2, "ab") == ["a", "b"]
    kept, *rest = first(1, [("a", 1), ("b", 2), ("c", 3)])
    assert kept == ("a", 1)
    assert [(one.values, one.marks) for one in rest] == [
        (("b", 2), (pytest.mark.slow,)),
        (("c", 3), (pytest.mark.slow,)),
    ]


@pytest.fixture
def profile():
    """Load a profile of hypothesis, and the current one after the test."""
    current = hypothesis.settings.get_current_profile_name()
    yield hypothesis.settings.load_profile
    hypothesis.settings.load_profile(current)


@pytest.mark.parametrize(("name", "count"), [("bregopt", 5), ("first_failure", 5), ("seeded", 20)])
def test_a_seed_draws_four_times_as_many_examples(name, count, profile):
    profile(name)
    assert examples(5).max_examples == count
