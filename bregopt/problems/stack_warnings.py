"""Warnings about the problems of a stack."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from bregopt.errors import warn_caller

__all__ = ["Warnings"]


class Warnings:
    """Warnings about single problems, given once for each category."""

    def __init__(self) -> None:
        self._first: dict[type[Warning], tuple[int, str]] = {}
        self._count: dict[type[Warning], int] = {}

    def add(self, k: int, message: str, category: type[Warning]) -> None:
        """Add a warning about the problem in position `k`."""
        self._first.setdefault(category, (k, message))
        self._count[category] = self._count.get(category, 0) + 1

    def include(self, part: Warnings, a: int) -> None:
        """Add the warnings about the problems from position `a` on."""
        for category, (k, message) in part._first.items():
            first = self._first.setdefault(category, (a + k, message))
            self._first[category] = min(first, (a + k, message))
            self._count[category] = self._count.get(category, 0) + part._count[category]

    def give(self, keys: Sequence[Hashable]) -> None:
        """Warn at the user's line."""
        for category, (k, message) in self._first.items():
            more = self._count[category] - 1
            others = f" ({more} more of {len(keys)} matrices have such a warning)" if more else ""
            warn_caller(f"matrix {keys[k]!r}: {message}{others}", category)
