"""Warnings about the problems of a stack."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from bregopt.errors import DataWarning, warn_caller

__all__ = ["Warnings"]


class Warnings:
    """Warnings about single problems by position, given once for each category."""

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[type[Warning], str]]] = {}

    def add(self, k: int, message: str, category: type[Warning]) -> None:
        """Add a warning about the problem in position `k`, unless it has it."""
        own = self._of.setdefault(k, [])
        if (category, message) not in own:
            own.append((category, message))

    def include(self, part: Warnings, a: int) -> None:
        """Add the warnings about the problems from position `a` on."""
        for k, own in part._of.items():
            self._of[a + k] = own

    def messages(self, keys: Sequence[Hashable]) -> dict[Hashable, list[str]]:
        """Return the messages about each problem that has some, by its key."""
        return {keys[k]: [message for _, message in own] for k, own in sorted(self._of.items())}

    def give(self, keys: Sequence[Hashable], errors: Mapping[Hashable, Exception]) -> None:
        """Warn at the user's line, of the problems with an error and for each category."""
        if errors:
            key, error = next(iter(errors.items()))
            message = f"{type(error).__name__}: {error}"
            warn_caller(_counted("an error", len(errors), len(keys), key, message), DataWarning)
        by_category: dict[type[Warning], dict[int, str]] = {}
        for k, own in sorted(self._of.items()):
            for category, message in own:
                by_category.setdefault(category, {}).setdefault(k, message)
        for category, messages in by_category.items():
            k, message = next(iter(messages.items()))
            warn_caller(_counted("a warning", len(messages), len(keys), keys[k], message), category)


def _counted(what: str, count: int, total: int, key: Hashable, message: str) -> str:
    """Return how many matrices have something, and the message about the first one."""
    verb, first = ("has", "") if count == 1 else ("have", "the first is ")
    return f"{count} of {total} matrices {verb} {what}, {first}matrix {key!r}: {message}"
