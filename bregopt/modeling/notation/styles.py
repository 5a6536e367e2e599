"""Styles: how mathematics is written in a terminal, in LaTeX and in HTML."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from bregopt.tables import escaped, latex_text

__all__ = ["APPLIED", "ATOM", "HTML", "LATEX", "PRODUCT", "SUM", "UNICODE", "Piece", "Style", "tight"]

SUM, PRODUCT, APPLIED, ATOM = range(4)
_NAMES = "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi psi omega"
_GREEK = dict(zip(_NAMES.split(), "αβγδεζηθκλμνξρστφψω", strict=True))


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
    _SUP = str.maketrans("0123456789T", "⁰¹²³⁴⁵⁶⁷⁸⁹ᵀ")

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
        base, _, index = name.partition("_")
        if not index and (digits := re.fullmatch(r"(\D+)(\d+)", base)):
            base, index = digits.groups()
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


class _Html(_Unicode):
    symbols: ClassVar[dict[str, str]] = {}

    def name(self, name: str) -> str:
        base, _, index = name.partition("_")
        if not index and (digits := re.fullmatch(r"(\D+)(\d+)", base)):
            base, index = digits.groups()
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


def tight(style: Style, piece: Piece, level: int) -> str:
    """Return a part, in parentheses if its operation is looser than the one around it."""
    return piece.text if piece.level >= level else style.grouped(piece.text)
