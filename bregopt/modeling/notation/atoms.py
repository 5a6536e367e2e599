"""How atoms are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bregopt.modeling.notation.styles import APPLIED, ATOM, PRODUCT, Piece, Style, tight

__all__ = ["ATOMS"]

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
    return Piece(f"{s.sign('Σ')} {tight(s, summed, ATOM)}", APPLIED)


def _over(s: Style, x: Sequence[Piece]) -> Piece:
    return Piece(f"{s.norm(x[0].text, '', '2')} / {tight(s, x[1], ATOM)}", PRODUCT)


# A new atom is one line here, if its name and arguments are not as it is written.
ATOMS: dict[str, Written] = {
    "trace": _applied("tr"),
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
    "square": lambda s, x: Piece(s.sup(tight(s, x[0], ATOM), "2")),
    "maximum": _applied("max"),
    "minimum": _applied("min"),
    "quad_over_lin": _over,
    "pos": lambda s, x: Piece(s.sub(tight(s, x[0], ATOM), "+")),
    "lambda_max": _spectral("λ", "max"),
    "lambda_min": _spectral("λ", "min"),
    "sigma_max": _spectral("σ", "max"),
    "logdet_div": _divergence("LogDet"),
    "von_neumann_div": _divergence("vN"),
    "frobenius_div": _frobenius,
}
