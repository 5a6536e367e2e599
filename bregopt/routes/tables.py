"""Tables as text, with aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["table_lines"]


def table_lines(titles: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return the lines of a table; the first `left` columns are aligned on the left, others on the right."""
    table = [titles, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    align = [str.ljust if k < left else str.rjust for k in range(len(titles))]
    lines = [
        "  ".join(put(cell, width) for put, cell, width in zip(align, cells, widths, strict=True))
        for cells in table
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]
