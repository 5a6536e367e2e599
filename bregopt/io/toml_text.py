"""Plain values written as TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["toml_text"]


def toml_text(document: Mapping[str, Any]) -> str:
    """Return a document as TOML: plain values first, then a table for each value that is a mapping.

    Parameters
    ----------
    document : mapping from str
        Finite numbers, strings, lists and mappings. A key with dots stands for nested tables.
    """
    plain = {key: value for key, value in document.items() if not isinstance(value, Mapping)}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items()]
    for key, table in document.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{key}]", *(f"{name} = {_value(part)}" for name, part in table.items())]
    return "\n".join([*lines, ""]).lstrip()


def _value(value: Any) -> str:
    """Return a value as TOML: the JSON text of numbers and strings is also TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_value(part)}" for name, part in value.items()) + " }"
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return "\n".join(["[", *(f"  {_value(part)}," for part in value), "]"])
    if isinstance(value, list):
        return "[" + ", ".join(_value(part) for part in value) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
