"""The reader of labels: recursive descent over the tokens of a text in the language."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bregopt.modeling.notation.atoms import ATOMS
from bregopt.modeling.notation.styles import APPLIED, ATOM, PRODUCT, SUM, Piece, Style, tight

__all__ = ["written"]

_TOKEN = re.compile(
    r"(?P<space>\s*)(?:(?P<number>\d+\.?\d*(?:e[-+]?\d+)?)|(?P<name>[^\W\d]\w*)"
    r"|(?P<mark><=|>=|==|>>|<<|\.\.\.|\.T\b|[-+*/@()\[\],:=])|(?P<other>\S))"
)
_SIDES = re.compile(r" (<=|>=|==|>>|<<) ")
_RELATIONS = {"<=": "≤", ">=": "≥", "==": "=", ">>": "⪰", "<<": "⪯"}


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
            piece = Piece(minus + tight(self._style, piece, PRODUCT), SUM)
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
            left = style.grouped(piece.text) if piece.level == APPLIED else tight(style, piece, PRODUCT)
            other = tight(style, right, APPLIED)
            joined = f"{left} / {other}" if mark == "/" else style.spaced(left, other)
            piece = Piece(joined, PRODUCT)

    def _factor(self) -> Piece:
        style, piece = self._style, self._primary()
        while True:
            if self._next.text == "[" and not self._next.spaced:
                piece = Piece(style.index(tight(style, piece, ATOM), self._bracket()))
            elif self._taken(".T"):
                piece = Piece(style.sup(tight(style, piece, ATOM), "T"))
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
