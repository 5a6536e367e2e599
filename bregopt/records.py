"""Dataclasses of which nothing is compiled when a module is imported, and values that are computed once.

The standard library writes the source of the methods of a dataclass and compiles it: half a millisecond for
a frozen class of six fields, and this package has three hundred. Here the same methods are closures over the
names of the fields. Type checkers see the library's own functions. `fields`, `asdict`, `is_dataclass`,
:func:`inspect.signature` and dataclasses that users derive find what they expect: attributes of the
library's class of the same fields, which is made when it is first asked for.

Properties and functions of one object keep their values without a lock. Before Python 3.12
``functools.cached_property`` holds one lock for all objects of a class while it computes. A process that is
forked meanwhile, by another thread, never gets it. Without a lock two threads may compute a value twice; both
find the same.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field, make_dataclass
from functools import cache
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, kw_only=False):
        """Return the class with the methods of a dataclass; those that it defines itself stay."""

        def completed(cls):
            cls.__record__ = _Record(cls, frozen, eq, kw_only)
            methods = {"__init__": _constructor(cls.__record__), "__replace__": replace}
            methods |= _REPR if repr else {}
            methods |= ({**_EQ, "__hash__": _hash} if frozen else {**_EQ, "__hash__": None}) if eq else {}
            methods |= _FROZEN if frozen else {}
            for name, method in methods.items():
                if name not in vars(cls):
                    setattr(cls, name, method)
            for name, asked in _OF_LIBRARY.items():
                setattr(cls, name, asked)
            return cls

        return completed if cls is None else completed(cls)

    def replace(item, /, **changes):
        """Return a copy with other values of some fields."""
        names = _names(type(item))
        if names is None:  # of a dataclass of the standard library
            return dataclasses.replace(item, **changes)
        if not changes.keys() <= set(names):
            return type(item)(**{name: getattr(item, name) for name in names} | changes)  # a TypeError
        new, record = object.__new__(type(item)), item.__record__  # a constructor takes four times as long
        for name in names:
            _put(new, name, changes[name] if name in changes else getattr(item, name))
        if record.unfinished:
            record.finish(new)
        return new


__all__ = ["PickledWithoutCache", "Text", "cached_property", "dataclass", "field_names", "kept", "replace"]


def field_names(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields that the constructor of a dataclass takes."""
    names = _names(cls)
    return tuple(own.name for own in dataclasses.fields(cls) if own.init) if names is None else names


def _names(cls: Any) -> tuple[str, ...] | None:
    """Return the names of the arguments of a constructor, None if it is not one of this module."""
    record = getattr(cls, "__record__", None)
    return record.names if record is not None and cls.__init__ is record.cls.__init__ else None


_NONE: dict[str, Any] = {}


class _Record:
    """The fields of a class, those of its bases first; their defaults become attributes of the class."""

    def __init__(self, cls: Any, frozen: bool, eq: bool, kw_only: bool) -> None:
        self.cls, self.frozen, self.eq = cls, frozen, eq
        self.types: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self.specified: dict[str, Field[Any]] = {}  # by `field`
        self.keywords: frozenset[str] = frozenset()
        for base in cls.__mro__[:0:-1]:
            if "__record__" in vars(base):
                self._take(base.__record__)
        for name, annotation in cls.__annotations__.items():
            if "ClassVar" not in str(annotation):
                self._add(name, annotation, vars(cls).get(name, MISSING), kw_only)
        taken = [name for name in self.types if name not in self.specified or self.specified[name].init]
        self.positional = tuple(name for name in taken if name not in self.keywords)
        self.names = self.positional + tuple(name for name in taken if name in self.keywords)
        self.made = {
            name: own.default_factory
            for name, own in self.specified.items()
            if own.default_factory is not MISSING
        }
        self.internal = tuple(name for name in self.made if not self.specified[name].init)
        self.prepares = hasattr(cls, "__post_init__")
        self.unfinished = bool(self.internal) or self.prepares
        # Many classes have none of these. Python's collector counts objects, and waits longer with fewer.
        self.defaults = self.defaults or _NONE
        self.specified = self.specified or _NONE
        self.made = self.made or _NONE

    def finish(self, item: Any) -> None:
        """Set the fields that no argument gives, and let the class prepare the object."""
        for name in self.internal:
            _put(item, name, self.made[name]())
        if self.prepares:
            item.__post_init__()

    def _take(self, base: _Record) -> None:
        """Add the fields of a base."""
        self.types |= base.types
        self.defaults |= base.defaults
        self.specified |= base.specified
        self.keywords |= base.keywords

    def _add(self, name: str, annotation: Any, given: Any, kw_only: bool) -> None:
        """Add a field of the class itself, given by its default or by `field`."""
        for known in (self.defaults, self.specified):
            known.pop(name, None)
        self.types[name] = annotation
        default = given
        if isinstance(given, Field):
            self.specified[name], default = given, given.default
            kw_only = kw_only if given.kw_only is MISSING else given.kw_only
            delattr(self.cls, name)
        self.keywords = self.keywords | {name} if kw_only else self.keywords - {name}
        if default is not MISSING:
            self.defaults[name] = default
            setattr(self.cls, name, default)

    def as_fields(self) -> list[tuple[str, Any, Field[Any]]]:
        """Return names, types and the library's descriptions of the fields."""
        found = []
        for name, annotation in self.types.items():
            own = self.specified.get(name) or field(default=self.defaults.get(name, MISSING))
            own.kw_only = name in self.keywords
            found.append((name, annotation, own))
        return found


_put = object.__setattr__  # attributes are read more slowly once an object's dict was asked for


def _constructor(record: _Record) -> Any:
    """Return ``__init__`` of a class."""
    positional, names, defaults = record.positional, record.names, record.defaults
    whole = len(names) if positional == names else -1

    def construct(self: Any, *values: Any, **named: Any) -> None:
        for name, value in zip(positional, values):  # noqa: B905 - `strict` takes a tenth of the time
            _put(self, name, value)
        if named or len(values) != whole:
            unused = len(named)
            for name in names[len(values) :]:
                if name in named:
                    _put(self, name, named[name])
                    unused -= 1
                elif name in defaults:
                    _put(self, name, defaults[name])
                elif name in record.made:
                    _put(self, name, record.made[name]())
                else:
                    unused = -1
                    break
            if unused or len(values) > len(positional):
                _library_class(record.cls)(*values, **named)  # raises the TypeError
        if record.unfinished:
            record.finish(self)

    construct.__annotations__ = {name: record.types[name] for name in record.names} | {"return": None}
    return construct


@recursive_repr()
def _repr(self: Any) -> str:
    record = self.__record__
    shown = [name for name in record.types if name not in record.specified or record.specified[name].repr]
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _values(item: Any) -> tuple[Any, ...]:
    return tuple(getattr(item, name) for name in item.__record__.types)


def _equal(self: Any, other: Any) -> Any:
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _assign(self: Any, name: str, value: Any) -> None:
    if self.__record__.cls is type(self) or name in self.__record__.types:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    _put(self, name, value)  # an attribute of a derived class


def _delete(self: Any, name: str) -> None:
    if self.__record__.cls is type(self) or name in self.__record__.types:
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


_REPR = {"__repr__": _repr}
_EQ = {"__eq__": _equal}
_FROZEN = {"__setattr__": _assign, "__delattr__": _delete}


class _OfLibrary:
    """An attribute that a class shares with the library's class of the same fields."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, item: Any, owner: Any) -> Any:
        """Return the attribute; a class with a constructor of its own has its own signature."""
        own = owner.__record__.cls
        if self.name != "__signature__":
            return getattr(_library_class(own), self.name)
        if item is not None or owner.__init__ is not own.__init__:
            raise AttributeError(self.name)
        return inspect.signature(_library_class(own))


_OF_LIBRARY = {
    name: _OfLibrary(name) for name in ("__dataclass_fields__", "__dataclass_params__", "__signature__")
}


@cache
def _library_class(cls: Any) -> type[Any]:
    """Return the dataclass that the standard library makes of the fields of a class."""
    own = cls.__record__
    return make_dataclass(cls.__name__, own.as_fields(), frozen=own.frozen, eq=own.eq)


Item = TypeVar("Item")
Value = TypeVar("Value")

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
    """A base class; pickles leave out the values that an object keeps, which may be larger than the data."""

    def __getstate__(self) -> dict[str, Any]:
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not (name.endswith("()") or isinstance(getattr(kind, name, None), cached_property))
        }


class Text:
    """A text that is formed when somebody reads it, or pickles it.

    NumPy takes as long to write a short array as Newton's method for a step.
    """

    def __init__(self, form: Callable[[], str]) -> None:
        self._form: Callable[[], str] | None = form
        self._text = ""

    def __str__(self) -> str:
        if self._form is not None:
            self._text, self._form = self._form(), None
        return self._text

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str | Text) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __getstate__(self) -> dict[str, Any]:
        return {"_text": str(self), "_form": None}


class kept(Generic[Item, Value]):  # noqa: N801
    """A function of one object, whose value is computed once and kept with the object."""

    def __init__(self, function: Callable[[Item], Value]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._name = function, f"{function.__name__}()"

    def __call__(self, item: Item) -> Value:
        """Return the value of an object, computed at the first call."""
        values, name = item.__dict__, self._name
        if name not in values:
            values[name] = self._function(item)
        value: Value = values[name]
        return value

    def give(self, item: Item, value: Value) -> None:
        """Keep a value that is known already."""
        item.__dict__[self._name] = value
