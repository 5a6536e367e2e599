"""Tables as text, HTML and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["escaped", "html_table", "latex_table", "latex_text", "table_lines"]


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


def html_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], left: int, caption: str = "", math: bool = False
) -> str:
    """Return the table as HTML; with `math` the cells are HTML already."""
    shown = (lambda cell: cell) if math else escaped
    sides = ["left" if k < left else "right" for k in range(max(map(len, [titles, *rows])))]

    def line(cells: Sequence[str], tag: str) -> str:
        inside = (
            f'<{tag} style="text-align: {side}">{shown(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{''.join(inside)}</tr>"

    above = f'<caption style="text-align: left">{escaped(caption)}</caption>' if caption else ""
    head = f"<thead>{line(titles, 'th')}</thead>" if titles else ""
    body = "\n".join(line(cells, "td") for cells in rows)
    return f"<table>{above}{head}<tbody>\n{body}\n</tbody></table>"


def latex_table(titles: Sequence[str], rows: Sequence[Sequence[str]], left: int, math: bool = False) -> str:
    """Return the table as a LaTeX array; with `math` the cells are LaTeX already."""
    shown = (lambda cell: cell) if math else latex_text
    columns = max(map(len, [titles, *rows]))
    lines = [" & ".join(map(shown, cells)) + r" \\" for cells in rows]
    if titles:
        lines = [" & ".join(map(latex_text, titles)) + r" \\ \hline", *lines]
    inside = "\n".join(lines)
    return f"\\begin{{array}}{{{'l' * min(left, columns)}{'r' * (columns - left)}}}\n{inside}\n\\end{{array}}"


def escaped(text: str) -> str:
    """Return text for HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def latex_text(text: str) -> str:
    """Return text for LaTeX in mathematical mode."""
    plain = re.sub(r"([#$%&_{}])", r"\\\1", text.replace("\\", r"\textbackslash "))
    return f"\\text{{{plain}}}" if text else ""
