"""Values of objects that are computed once, without a lock: properties, and functions of one object.

Before Python 3.12 ``functools.cached_property`` holds one lock for all objects of a class while it computes.
A process that is forked meanwhile, by another thread, never gets it. Without a lock two threads may compute
a value twice; both find the same.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["PickledWithoutCache", "cached_property", "kept"]

Item = TypeVar("Item")
Value = TypeVar("Value")
_MISSING: Any = object()

if TYPE_CHECKING or sys.version_info >= (3, 12):
    cached_property = functools.cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801
        """A property that replaces itself by its value at the first access."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Return the value of an object."""
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


class PickledWithoutCache:
    """A base class; the pickle of an object has no cached properties, which may be larger than the data."""

    def __getstate__(self) -> dict[str, Any]:
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(kind, name, None), cached_property)
        }


class kept(Generic[Item, Value]):  # noqa: N801
    """A function of one object, whose `values` are kept as long as the objects."""

    def __init__(self, function: Callable[[Item], Value]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.values: WeakKeyDictionary[Item, Value] = WeakKeyDictionary()

    def __call__(self, item: Item) -> Value:
        """Return the value of an object, computed at the first call."""
        value: Value = self.values.get(item, _MISSING)
        if value is _MISSING:
            value = self.values[item] = self._function(item)
        return value
