"""A problem as text, LaTeX and HTML."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from bregopt.modeling.affine import Formula
from bregopt.modeling.complex_variables import ComplexOperand
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.notation import HTML, LATEX, UNICODE, Style, written
from bregopt.modeling.variables import PSD, Variable
from bregopt.tables import html_table, latex_table, latex_text

__all__ = ["as_html", "as_latex", "as_text"]

_SHOWN = 20  # constraints; of more, all but the last few are left out
_SYMBOLS = "≤≥⪰⪯−‖⟨⟩Σλᵀᴴ₀²…×"


class _Line(NamedTuple):
    """One line: its heading, the name of a constraint, its formula and its number of rows."""

    head: str
    name: str
    formula: str
    note: str


def as_text(problem: Any) -> str:
    """Return the problem as text, in mathematical symbols if the terminal has them."""
    lines = _lines(problem, UNICODE if _has_symbols() else None)
    return "\n".join(
        f"{line.head:<12}{line.name and f'{line.name}: '}{line.formula}{line.note and f'   ({line.note})'}"
        for line in lines
    )


def as_latex(problem: Any) -> str:
    """Return the problem as a LaTeX array."""
    rows = [
        (latex_text(line.head), line.formula, latex_text(line.name or line.note))
        for line in _lines(problem, LATEX)
    ]
    return latex_table((), rows, left=3, math=True)


def as_html(problem: Any) -> str:
    """Return the problem as an HTML table."""
    rows = [
        (line.head, line.formula, HTML.word(line.name and f"({line.name})"), HTML.word(line.note))
        for line in _lines(problem, HTML)
    ]
    status = "" if problem.solution is None else f"{problem.status}, value {problem.value:.8g}"
    return html_table((), rows, left=4, caption=status, math=True)


def _has_symbols() -> bool:
    """Whether the output can show the symbols; text that is written elsewhere can."""
    encoding = getattr(sys.stdout, "encoding", None)
    try:
        _SYMBOLS.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _lines(problem: Any, style: Style | None) -> Iterator[_Line]:
    """Yield the lines of a problem; without a style its formulas are labels."""
    objective = problem.objective
    head = type(objective).__name__.lower()
    yield _Line(head, "", _formula(objective, style), "")
    constraints = problem.constraints
    left_out = len(constraints) - _SHOWN if len(constraints) > _SHOWN + 1 else 0
    for k, c in enumerate(constraints[: _SHOWN - 1] if left_out else constraints):
        rows = f"{c.size} rows" if c.size > 1 and isinstance(c, Constraint) else ""
        yield _Line("" if k else "subject to", c.name or "", _formula(c, style), rows)
    if left_out:
        yield _Line("", "", "..." if style is None else style.sign("…"), f"{left_out} more constraints")
        yield _Line("", constraints[-1].name or "", _formula(constraints[-1], style), "")
    matrices = [_matrix(X, style) for X in problem.matrices]
    comma = r",\quad " if style is LATEX else ", "
    yield _Line("over", "", comma.join([*matrices, *(_variable(u, style) for u in problem.variables)]), "")


def _formula(item: Formula, style: Style | None) -> str:
    return item.full_label if style is None else written(item.full_label, style)


def _matrix(X: PSD, style: Style | None) -> str:
    """Return the domain of a matrix."""
    if style is None:
        return f"{X.name} {X.n} x {X.n} {'Hermitian ' if X.is_hermitian else ''}psd"
    if style is LATEX:
        return f"{style.name(X.name)} \\in \\mathbb{{{'H' if X.is_hermitian else 'S'}}}_+^{{{X.n}}}"
    of_kind = ", Hermitian" if X.is_hermitian else ""
    return f"{style.name(X.name)} {style.sign('⪰')} 0 ({X.n} × {X.n}{of_kind})"


def _complex(u: ComplexOperand, style: Style | None) -> str:
    """Return the domain of a complex variable."""
    kind = "Hermitian" if u.is_hermitian else "complex"
    if style is None:
        return f"{u.name}{f' {u.shape}' if u.shape else ''} {kind}"
    if style is LATEX:
        space, power = (
            ("H", str(u.shape[0])) if u.is_hermitian else ("C", r" \times ".join(map(str, u.shape)))
        )
        return f"{style.name(u.name)} \\in \\mathbb{{{space}}}{f'^{{{power}}}' if u.shape else ''}"
    return (
        f"{style.name(u.name)} ({', '.join([*([' × '.join(map(str, u.shape))] if u.shape else []), kind])})"
    )


def _variable(u: Variable | ComplexOperand, style: Style | None) -> str:
    """Return the domain of an ordinary variable: its box and its shape."""
    if isinstance(u, ComplexOperand):
        return _complex(u, style)
    low, high = (float(end[0]) if (end == end[0]).all() else math.nan for end in (u.lower, u.upper))
    lower = "" if low == -math.inf else f"{'lower' if math.isnan(low) else f'{low:g}'} <= "
    upper = "" if high == math.inf else f" <= {'upper' if math.isnan(high) else f'{high:g}'}"
    box = f"{u.name} >= {lower[:-4]}" if lower and not upper else f"{lower}{u.name}{upper}"
    if style is None:
        return f"{box}{f' {u.shape}' if u.shape else ''}{' symmetric' if u.symmetric else ''}"
    shown = written(box, style)
    if not u.shape:
        return shown
    if style is LATEX:
        space, power = ("S", str(u.shape[0])) if u.symmetric else ("R", r" \times ".join(map(str, u.shape)))
        inside = f"{style.name(u.name)} \\in \\mathbb{{{space}}}^{{{power}}}"
        return inside if box == u.name else f"{inside},\\; {shown}"
    return f"{shown} ({' × '.join(map(str, u.shape))}{', symmetric' if u.symmetric else ''})"
