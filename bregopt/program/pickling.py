"""Pickles of data without the values that are computed from them."""

from __future__ import annotations

from typing import Any

from bregopt.cache import cached_property

__all__ = ["PickledWithoutCache"]


class PickledWithoutCache:
    """A base class; the pickle of an object has no cached properties, which may be larger than the data."""

    def __getstate__(self) -> dict[str, Any]:
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(kind, name, None), cached_property)
        }
