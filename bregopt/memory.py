"""The available memory, and the refusal of problems that need more, before any is allocated."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

__all__ = ["check_memory", "memory", "shortage"]

_SHARE = 0.8  # fraction of the memory that may be used; the system and existing data have the rest
_LEGIBLE = 1e12  # gigabytes, above which messages use an exponent
_CONTAINER = Path("/sys/fs/cgroup/memory.max")  # the limit of a container, "max" where there is none


def memory() -> int | None:
    """Return the number of bytes that this process may use, None where it is unknown.

    It is the least of the machine's memory, the limit of the container and the limit on the address
    space (``ulimit -v``).
    """
    found = [size for size in (_machine(), _container(), _address_space()) if size is not None]
    return min(found, default=None)


def shortage(needed: float) -> str | None:
    """Return the message that `needed` bytes are too many, None where they are available."""
    there = memory()
    if there is None or needed <= _SHARE * there:
        return None
    wanted = min(needed, sys.float_info.max) / 1e9  # an integer may be beyond all doubles
    size = f"{wanted:.1f}" if wanted < _LEGIBLE else f"{wanted:.1e}"
    return f"it would need {size} GB of memory, this machine has {there / 1e9:.1f} GB"


def check_memory(needed: float, name: str) -> None:
    """Raise a ValueError with `name` and both numbers if `needed` bytes are too many."""
    reason = shortage(needed)
    if reason is not None:
        raise ValueError(f"{name} is too large: {reason}")


def _machine() -> int | None:
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@cache
def _container() -> int | None:
    try:
        text = _CONTAINER.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft
