"""Labels and problems in mathematical notation: for terminals, LaTeX and HTML.

The label of an expression or constraint is text in the language itself, such as ``trace(X) <= 1``.
:func:`written` reads such a text, by recursive descent over its tokens, and writes it in a :class:`Style`.
:data:`ATOMS` says how an atom is written; other functions are written as they are. A label that cannot be
read, such as one with an unusual name, is shown as it is.
"""

from __future__ import annotations

import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from bregopt.display import escaped, html_table, latex_table, latex_text
from bregopt.modeling.affine import Formula
from bregopt.modeling.complex_variables import ComplexOperand
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.variables import PSD, Variable
from bregopt.records import dataclass

_TOKEN = re.compile(
    r"(?P<space>\s*)(?:(?P<number>\d+\.?\d*(?:e[-+]?\d+)?)|(?P<name>[^\W\d]\w*)"
    r"|(?P<mark><=|>=|==|>>|<<|\.\.\.|\.(?:T|H|real|imag)\b|[-+*/@()\[\],:=])|(?P<other>\S))"
)
_SIDES = re.compile(r" (<=|>=|==|>>|<<) ")
_RELATIONS = {"<=": "≤", ">=": "≥", "==": "=", ">>": "⪰", "<<": "⪯"}
SUM, PRODUCT, APPLIED, ATOM = range(4)
_NAMES = "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi psi omega"
_GREEK = dict(zip(_NAMES.split(), "αβγδεζηθκλμνξρστφψω", strict=True))
_SHOWN = 20  # constraints; of more, all but the last few are left out
_SYMBOLS = "≤≥⪰⪯−‖⟨⟩Σλᵀᴴ₀²…×"


def written(label: str, style: Style) -> str:
    """Return a label in a style; as it is where it cannot be read."""
    try:
        return _Reader(label, style).read()
    except _UnreadableError:
        sides = _SIDES.split(label)
        if len(sides) == 1:
            return style.word(label)
        return " ".join(style.sign(_RELATIONS[s]) if s in _RELATIONS else written(s, style) for s in sides)


class _UnreadableError(ValueError):
    """The label is no text of the language."""


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    spaced: bool  # whether a space stands before it
    start: int


class _Reader:
    """Recursive descent over the tokens of a label."""

    def __init__(self, label: str, style: Style) -> None:
        self._label, self._style = label, style
        self._tokens = [
            _Token(
                match.lastgroup or "", match[match.lastgroup or 0], bool(match["space"]), match.end("space")
            )
            for match in _TOKEN.finditer(label)
        ]
        self._at = 0

    def read(self) -> str:
        piece = self._relation()
        if self._at < len(self._tokens):
            raise _UnreadableError
        return piece.text

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _Token("end", "", False, 0)

    def _taken(self, *texts: str) -> str | None:
        """Return the next mark and pass it, if it is one of these."""
        token = self._next
        if token.kind != "mark" or token.text not in texts:
            return None
        self._at += 1
        return token.text

    def _expect(self, text: str) -> None:
        if self._taken(text) is None:
            raise _UnreadableError

    def _relation(self) -> Piece:
        piece = self._sum()
        while (mark := self._taken(*_RELATIONS)) is not None:
            right = self._sum()
            piece = Piece(f"{piece.text} {self._style.sign(_RELATIONS[mark])} {right.text}", SUM)
        return piece

    def _sum(self) -> Piece:
        minus = self._style.sign("−")
        first = self._taken("-", "+")
        piece = self._product()
        if first == "-":
            piece = Piece(minus + _tight(self._style, piece, PRODUCT), SUM)
        while (mark := self._taken("+", "-")) is not None:
            right = self._product()
            piece = Piece(f"{piece.text} {'+' if mark == '+' else minus} {right.text}", SUM)
        return piece

    def _product(self) -> Piece:
        style, piece = self._style, self._factor()
        while True:
            mark = self._taken("@", "*", "/")
            token = self._next
            if mark is None and not (token.kind in ("number", "name") or token.text == "("):
                return piece
            right = self._factor()
            left = style.grouped(piece.text) if piece.level == APPLIED else _tight(style, piece, PRODUCT)
            other = _tight(style, right, APPLIED)
            joined = f"{left} / {other}" if mark == "/" else style.spaced(left, other)
            piece = Piece(joined, PRODUCT)

    def _factor(self) -> Piece:
        style, piece = self._style, self._primary()
        while True:
            if self._next.text == "[" and not self._next.spaced:
                piece = Piece(style.index(_tight(style, piece, ATOM), self._bracket()))
            elif (mark := self._taken(".T", ".H")) is not None:
                piece = Piece(style.sup(_tight(style, piece, ATOM), mark[1:]))
            elif (mark := self._taken(".real", ".imag")) is not None:
                piece = ATOMS[mark[1:]](style, [piece])
            else:
                return piece

    def _primary(self) -> Piece:
        token, style = self._next, self._style
        self._at += 1
        if token.kind == "number":
            return Piece(style.number(token.text))
        if token.text == "...":
            return Piece(style.sign("…"))
        if token.text == "[":
            self._at -= 1
            return Piece(style.word(f"[{self._bracket()}]".replace("...", "…")))
        if token.text == "(":
            inside = self._relation()
            self._expect(")")
            return Piece(style.grouped(inside.text))
        if token.kind != "name":
            raise _UnreadableError
        if token.text == "affine" and self._next.text == "expression":
            self._at += 1
            return Piece(style.word("affine expression"))
        if self._next.text == "(" and not self._next.spaced:
            return self._call(token.text)
        return Piece(style.name(token.text))

    def _call(self, name: str) -> Piece:
        style = self._style
        arguments: list[Piece] = []
        self._expect("(")
        while not arguments or self._taken(","):
            arguments.append(self._relation())
            if self._taken("="):
                arguments[-1] = Piece(f"{arguments[-1].text} = {self._relation().text}")
        self._expect(")")
        if name == "soft":
            return Piece(style.spaced(arguments[0].text, style.word("(soft)")), SUM)
        if name in ATOMS:
            try:
                return ATOMS[name](style, arguments)
            except (IndexError, ValueError):  # another number of arguments
                pass
        return Piece(style.call(style.function(name), *(piece.text for piece in arguments)))

    def _bracket(self) -> str:
        """Return the text between brackets, and pass them."""
        self._expect("[")
        begin, depth = self._tokens[self._at - 1].start + 1, 1
        while depth:
            token = self._next
            if token.kind == "end":
                raise _UnreadableError
            depth += (token.text == "[") - (token.text == "]")
            self._at += 1
        return self._label[begin : token.start].strip()


@dataclass(frozen=True)
class Piece:
    """A written part of a formula, and its loosest operation: a sum, a product, or a function as in ``tr X``.

    At the level `ATOM` it needs no parentheses.
    """

    text: str
    level: int = ATOM


class Style(ABC):
    """How mathematics is written for one medium."""

    symbols: ClassVar[dict[str, str]]
    """The symbols of relations and other signs, where they differ from Unicode."""

    @abstractmethod
    def name(self, name: str) -> str:
        """Return the name of a variable or of data."""

    @abstractmethod
    def word(self, word: str) -> str:
        """Return upright text, such as the name of a function."""

    @abstractmethod
    def sub(self, base: str, index: str) -> str:
        """Return a base with a subscript."""

    @abstractmethod
    def sup(self, base: str, power: str) -> str:
        """Return a base with a superscript."""

    @abstractmethod
    def index(self, base: str, entries: str) -> str:
        """Return the entries of an array."""

    def number(self, number: str) -> str:
        """Return a number."""
        return number

    def function(self, name: str) -> str:
        """Return the name of a function."""
        return self.word(name)

    def sign(self, sign: str) -> str:
        """Return a symbol given in Unicode."""
        return self.symbols.get(sign, sign)

    def grouped(self, text: str, left: str = "(", right: str = ")") -> str:
        """Return a part in parentheses, or in other delimiters."""
        return f"{self.sign(left)}{text}{self.sign(right)}"

    def spaced(self, *parts: str) -> str:
        """Return factors beside each other."""
        return " ".join(parts)

    def norm(self, x: str, index: str = "", power: str = "") -> str:
        """Return the norm of something."""
        base = self.grouped(x, "‖", "‖")
        base = self.sub(base, index) if index else base
        return self.sup(base, power) if power else base

    def call(self, function: str, *arguments: str) -> str:
        """Return a function of arguments."""
        return function + self.grouped(", ".join(arguments))


class _Unicode(Style):
    symbols: ClassVar[dict[str, str]] = {"F": ""}  # there is no such subscript
    _SUB = str.maketrans("0123456789+", "₀₁₂₃₄₅₆₇₈₉₊")
    _SUP = str.maketrans("0123456789TH", "⁰¹²³⁴⁵⁶⁷⁸⁹ᵀᴴ")

    def name(self, name: str) -> str:
        return _GREEK.get(name, name)

    def word(self, word: str) -> str:
        return word

    def sub(self, base: str, index: str) -> str:
        if not index:
            return base
        return base + (index.translate(self._SUB) if index.isdigit() or index == "+" else f"_{index}")

    def sup(self, base: str, power: str) -> str:
        return base + power.translate(self._SUP)

    def index(self, base: str, entries: str) -> str:
        return f"{base}[{entries.replace('...', '…')}]"


class _Latex(Style):
    symbols: ClassVar[dict[str, str]] = {
        "≤": r"\le",
        "≥": r"\ge",
        "⪰": r"\succeq",
        "⪯": r"\preceq",
        "−": "-",
        "…": r"\cdots",
        "∘": r"\circ",
        "⟨": r"\langle ",
        "⟩": r"\rangle",
        "Σ": r"\textstyle\sum",
        "λ": r"\lambda",
        "σ": r"\sigma",
        "∞": r"\infty",
    }

    def name(self, name: str) -> str:
        base, index = _base_and_index(name)
        shown = f"\\{base}" if base in _GREEK else base if len(base) == 1 else f"\\mathit{{{base}}}"
        return self.sub(shown, index if index.isdigit() else self.word(index)) if index else shown

    def word(self, word: str) -> str:
        return f"\\mathrm{{{word}}}" if word.isalnum() else latex_text(word)

    def sub(self, base: str, index: str) -> str:
        return f"{{{base}}}_{{{index}}}" if "_" in base else f"{base}_{{{index}}}"

    def sup(self, base: str, power: str) -> str:
        return f"{base}^{{{power if power != 'T' else chr(92) + 'top'}}}"

    def index(self, base: str, entries: str) -> str:
        return self.sub(base, entries.replace("...", r"\ldots").replace(" ", ""))

    def number(self, number: str) -> str:
        digits, e, power = number.partition("e")
        if not e:
            return number
        return f"10^{{{int(power)}}}" if digits == "1" else f"{digits} \\cdot 10^{{{int(power)}}}"

    def grouped(self, text: str, left: str = "(", right: str = ")") -> str:
        if left == right:
            bar = {"‖": "Vert", "|": "vert"}[left]
            return f"\\l{bar} {text} \\r{bar}"
        return super().grouped(text, left, right)

    def function(self, name: str) -> str:
        return f"\\operatorname{{{name.replace('_', chr(92) + '_').replace(' ', chr(92) + ',')}}}"

    def spaced(self, *parts: str) -> str:
        return r"\,".join(parts)


def _base_and_index(name: str) -> tuple[str, str]:
    """Return the parts of a name such as ``x_max`` or ``x2``."""
    base, _, index = name.partition("_")
    digits = None if index else re.fullmatch(r"(\D+)(\d+)", base)
    return (base, index) if digits is None else (digits[1], digits[2])


class _Html(_Unicode):
    symbols: ClassVar[dict[str, str]] = {}

    def name(self, name: str) -> str:
        base, index = _base_and_index(name)
        shown = f"<i>{escaped(_GREEK.get(base, base))}</i>"
        return self.sub(shown, escaped(index)) if index else shown

    def word(self, word: str) -> str:
        return escaped(word)

    def sub(self, base: str, index: str) -> str:
        return f"{base}<sub>{index}</sub>" if index else base

    def sup(self, base: str, power: str) -> str:
        return f"{base}<sup>{power}</sup>"

    def index(self, base: str, entries: str) -> str:
        return self.sub(base, escaped(entries.replace("...", "…")))


UNICODE, LATEX, HTML = _Unicode(), _Latex(), _Html()


def _tight(style: Style, piece: Piece, level: int) -> str:
    """Return a part, in parentheses if its operation is looser than the one around it."""
    return piece.text if piece.level >= level else style.grouped(piece.text)


Written = Callable[[Style, Sequence[Piece]], Piece]


def _applied(symbol: str) -> Written:
    """Return how a function with a name of its own is written: ``tr X``, ``tr(X + Y)``."""

    def write(s: Style, x: Sequence[Piece]) -> Piece:
        if len(x) == 1 and x[0].level == ATOM:
            return Piece(f"{s.function(symbol)} {x[0].text}", APPLIED)
        return Piece(s.call(s.function(symbol), *(piece.text for piece in x)))

    return write


def _spectral(letter: str, index: str) -> Written:
    return lambda s, x: Piece(s.call(s.sub(s.sign(letter), s.word(index)), *(piece.text for piece in x)))


def _norm(index: str = "", power: str = "") -> Written:
    return lambda s, x: Piece(s.norm(x[0].text, s.sign(index), power))


def _divergence(name: str) -> Written:
    return lambda s, x: Piece(s.call(s.sub(s.name("D"), s.word(name)), x[0].text, s.sub(x[0].text, "0")))


def _frobenius(s: Style, x: Sequence[Piece]) -> Piece:
    difference = f"{x[0].text} {s.sign('−')} {s.sub(x[0].text, '0')}"
    if len(x) > 1:
        difference = f"{s.name('H')} {s.sign('∘')} {s.grouped(difference)}"
    return Piece(s.norm(difference, s.sign("F"), "2"))


def _quad_form(s: Style, x: Sequence[Piece]) -> Piece:
    Z, X = (piece.text for piece in x)
    one = Z == s.name("z")
    parts = (s.sup(Z, "T"), X, Z) if one else (Z, X, s.sup(Z, "T"))
    return Piece(s.spaced(*parts), PRODUCT) if one else Piece(s.call(s.function("diag"), s.spaced(*parts)))


def _sum(s: Style, x: Sequence[Piece]) -> Piece:
    (summed,) = x
    return Piece(f"{s.sign('Σ')} {_tight(s, summed, ATOM)}", APPLIED)


def _over(s: Style, x: Sequence[Piece]) -> Piece:
    return Piece(f"{s.norm(x[0].text, '', '2')} / {_tight(s, x[1], ATOM)}", PRODUCT)


# A new atom is one line here, if its name and arguments are not as it is written.
ATOMS: dict[str, Written] = {
    "trace": _applied("tr"),
    "real": _applied("Re"),
    "imag": _applied("Im"),
    "conj": lambda s, x: Piece(s.sup(_tight(s, x[0], ATOM), "*")),
    "sum": _sum,
    "log": _applied("log"),
    "log_det": _applied("log det"),
    "inner": lambda s, x: Piece(s.grouped(", ".join(piece.text for piece in x), "⟨", "⟩")),
    "quad_form": _quad_form,
    "sq_distance": lambda s, x: Piece(
        s.call(s.sup(s.sub(s.name("d"), x[0].text), "2"), *(piece.text for piece in x[1:]))
    ),
    "abs": lambda s, x: Piece(s.grouped(x[0].text, "|", "|")),
    "norm1": _norm("1"),
    "norm2": _norm(),
    "norm_inf": _norm("∞"),
    "norm_nuc": _norm("*"),
    "sum_squares": _norm(power="2"),
    "square": lambda s, x: Piece(s.sup(_tight(s, x[0], ATOM), "2")),
    "maximum": _applied("max"),
    "minimum": _applied("min"),
    "quad_over_lin": _over,
    "pos": lambda s, x: Piece(s.sub(_tight(s, x[0], ATOM), "+")),
    "lambda_max": _spectral("λ", "max"),
    "lambda_min": _spectral("λ", "min"),
    "sigma_max": _spectral("σ", "max"),
    "logdet_div": _divergence("LogDet"),
    "von_neumann_div": _divergence("vN"),
    "frobenius_div": _frobenius,
}


# --- A problem ----------------------------------------------------------------------------------------------


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
