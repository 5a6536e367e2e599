"""Dataclasses that compile nothing behave as the standard library's."""

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from dataclasses import field
from typing import ClassVar

import pytest

import bregopt
from bregopt import records
from bregopt.records import field_names


def point(dataclass):
    """Return classes of points, made by a decorator."""

    @dataclass(frozen=True)
    class Point:
        """A point."""

        unit: ClassVar[str] = "m"
        x: float
        y: float = 0.0
        names: list[str] = field(default_factory=list, repr=False, compare=False)

    return Point


def marked(dataclass):
    Point = point(dataclass)

    @dataclass(frozen=True, kw_only=True)
    class Marked(Point):
        color: str
        size: int = field(default=3, init=False)
        found: dict[str, int] = field(default_factory=dict, init=False)

    return Marked


Point, Marked = point(records.dataclass), marked(records.dataclass)
CALLS = [
    ((1.0,), {}),
    ((1.0, 2.0), {}),
    ((), {"y": 2.0, "x": 1.0}),
    ((1.0,), {"names": ["a"], "color": "red"}),
    ((), {"color": "red"}),
    ((), {}),
    ((1.0, 2.0, [], 4.0), {}),
    ((1.0,), {"x": 1.0}),
    ((1.0,), {"z": 1.0}),
    ((), {"color": "red", "size": 2}),
]


def outcome(make, args, named):
    """Return the values of the attributes in order with repr, or the message of the error."""
    try:
        made = make(*args, **named)
    except TypeError as error:
        return str(error).split(".")[-1]
    return list(vars(made).items()), repr(made).split("(", 1)[1]


@pytest.mark.parametrize("make", [point, marked])
@pytest.mark.parametrize(("args", "named"), CALLS)
def test_constructor_and_repr_are_those_of_the_library(make, args, named):
    assert outcome(make(records.dataclass), args, named) == outcome(make(dataclasses.dataclass), args, named)


def test_a_field_that_repeats_a_base_s_keeps_its_place():
    @records.dataclass
    class Origin(Point):
        z: float = 0.0
        x: float = 0.0

    assert field_names(Origin) == ("x", "y", "names", "z")
    assert field_names(Marked) == ("x", "y", "names", "color")


def test_the_library_s_functions_know_the_fields():
    a = Point(1.0, 2.0, ["a"])
    assert dataclasses.is_dataclass(a)
    assert dataclasses.asdict(a) == {"x": 1.0, "y": 2.0, "names": ["a"]}
    assert [f.name for f in dataclasses.fields(Marked)] == ["x", "y", "names", "color", "size", "found"]
    assert dataclasses.replace(a, y=3.0).y == records.replace(a, y=3.0).y == 3.0
    assert str(inspect.signature(Marked)) == str(inspect.signature(marked(dataclasses.dataclass)))


def test_frozen_objects_refuse_changes_and_are_copied_whole():
    a = Point(1.0, 2.0)
    for change in (lambda: setattr(a, "x", 3.0), lambda: delattr(a, "x"), lambda: setattr(a, "new", 3.0)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    for b in (copy.copy(a), copy.deepcopy(a)):
        assert b == a
        assert vars(b) == vars(a)


def test_equal_values_are_equal_and_have_one_hash():
    @records.dataclass(frozen=True)
    class Pair:
        x: float
        y: float

    @records.dataclass
    class Open:
        x: float

    assert Pair(1.0, 2.0) == Pair(1.0, 2.0) != Pair(1.0, 3.0)
    assert hash(Pair(1.0, 2.0)) == hash(Pair(1.0, 2.0))
    assert Pair(1.0, 2.0) != (1.0, 2.0)
    assert Open.__hash__ is None


def test_a_dataclass_of_the_library_may_derive_from_one_of_ours():
    @dataclasses.dataclass(frozen=True)
    class Named(Point):
        name: str = ""

    a = Named(1.0, name="a")
    assert field_names(Named) == ("x", "y", "names", "name")
    assert records.replace(a, y=2.0) == Named(1.0, 2.0, name="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.x = 2.0


def every_dataclass():
    """Return the dataclasses of this package."""
    found = set()
    for module in pkgutil.walk_packages(bregopt.__path__, "bregopt."):
        if module.name.split(".")[-1] in ("__main__", "jax", "torch"):
            continue
        try:
            own = vars(importlib.import_module(module.name)).values()
        except ImportError:  # of an optional package
            continue
        found |= {cls for cls in own if isinstance(cls, type) and cls.__module__ == module.name}
    return {cls for cls in found if "__dataclass_fields__" in vars(cls)}


def test_every_dataclass_of_the_package_is_one_to_the_library():
    for cls in every_dataclass():
        assert {*field_names(cls)} <= {f.name for f in dataclasses.fields(cls)}, cls


def test_answers_are_pickled_and_stay_frozen():
    sol = bregopt.nearest_correlation([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    again = pickle.loads(pickle.dumps(sol))
    assert repr(again) == repr(sol)
    with pytest.raises(dataclasses.FrozenInstanceError):
        again.value = 0.0
