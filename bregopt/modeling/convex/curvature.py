"""Curvature and sign of expressions, and the rules by which convex problems are composed.

The rules are those of disciplined convex programming (Grant, Boyd, Ye 2006): a sum has the curvature that its
terms share, and ``f(g(x))`` is convex if ``f`` is convex and ``g`` is affine, or convex where ``f`` is
nondecreasing, or concave where ``f`` is nonincreasing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import numpy as np

from bregopt.modeling.affine import Affine

__all__ = [
    "Curvature",
    "check_bounded",
    "check_composition",
    "check_equated",
    "check_objective",
    "curvature_of",
    "sign_of",
]


class Curvature(StrEnum):
    """The curvature of an expression."""

    AFFINE = "affine"
    CONVEX = "convex"
    CONCAVE = "concave"
    UNKNOWN = "neither convex nor concave"


_RULES = {
    "above": "a concave expression may be bounded from below only",
    "below": "a convex expression may be bounded from above only",
    "minimized": "a concave expression may be maximized only",
    "maximized": "a convex expression may be minimized only",
    "equated": "only affine expressions may be equated",
}
_MONOTONE = {1: "nondecreasing", -1: "nonincreasing", 0: "not monotone"}
_PLACES = ("its argument", "its second argument", "its third argument")


def curvature_of(e: Any) -> Curvature:
    """Return the curvature of an operand by the rule for sums."""
    directions = {term.direction for term in getattr(e, "terms", ())}
    if not directions:
        return Curvature.AFFINE
    return {(1,): Curvature.CONVEX, (-1,): Curvature.CONCAVE}.get(tuple(directions), Curvature.UNKNOWN)


def sign_of(e: Any) -> int:
    """Return 1 if all elements of an operand are known to be from 0 up, -1 if from 0 down, otherwise 0."""
    terms = getattr(e, "terms", ())
    affine = e.affine if terms else e.expression()
    signs = {term.sign for term in terms}
    if affine.constant.any() or not affine.is_constant or affine.parameters:
        signs.add(_affine_sign(affine))
    return signs.pop() if len(signs) == 1 else 0


def check_bounded(left: Any, right: Any, sense: str) -> None:
    """Raise a TypeError unless the lesser side of a comparison is convex and the greater one concave."""
    lesser, greater = (left, right) if sense == "<=" else (right, left)

    def written() -> str:
        return f"{text_of(left)} {sense} {text_of(right)}"

    _require(lesser, Curvature.CONVEX, written, "above")
    _require(greater, Curvature.CONCAVE, written, "below")
    for side in (left, right):
        _refuse_unbounded(side, written)


def check_equated(left: Any, right: Any) -> None:
    """Raise a TypeError unless both sides of an equation are affine."""

    def written() -> str:
        return f"{text_of(left)} == {text_of(right)}"

    _require(left, Curvature.AFFINE, written, "equated")
    _require(right, Curvature.AFFINE, written, "equated")


def check_objective(objective: Any) -> None:
    """Raise a TypeError unless an objective is convex and minimized, or concave and maximized."""
    minimized = objective.sign > 0
    wanted = Curvature.CONVEX if minimized else Curvature.CONCAVE
    _require(objective.expression, wanted, lambda: repr(objective), "minimized" if minimized else "maximized")


def check_composition(atom: Any) -> None:
    """Raise a TypeError unless an atom of its arguments has the curvature of the atom."""
    for k, argument in enumerate(atom.arguments):
        found = curvature_of(argument)
        if found is Curvature.AFFINE:
            continue
        rises = atom.monotonicity()[k]
        wanted = rises if atom.convex else -rises
        needed = {1: Curvature.CONVEX, -1: Curvature.CONCAVE, 0: Curvature.AFFINE}[wanted]
        place = _PLACES[k] if len(atom.arguments) <= len(_PLACES) else f"argument {k}"
        own = Curvature.CONVEX if atom.convex else Curvature.CONCAVE
        _refuse_unbounded(argument, lambda: str(atom.label))
        if found is not needed:
            raise TypeError(
                f"{atom.label} is not {own}: {atom.name} is {own} and {_MONOTONE[rises]} here, so {place} "
                f"must be {needed if needed is Curvature.AFFINE else f'affine or {needed}'}, and "
                f"{_said(argument, found)}"
            )


def text_of(side: Any) -> str:
    """Return the text of an operand, or of numbers, in a message."""
    side = side.affine if hasattr(side, "terms") and not side.terms else side
    if isinstance(side, Affine) and side.is_constant and not side.parameters:
        return f"{side.constant[0]:g}" if np.ptp(side.constant) == 0 else "b"
    return str(getattr(side, "full_label", None) or side.name)


def _require(e: Any, wanted: Curvature, written: Callable[[], str], rule: str) -> None:
    found = curvature_of(e)
    if found not in (Curvature.AFFINE, wanted):
        raise TypeError(f"{written()} is not convex: {_said(e, found)}, and {_RULES[rule]}")


def _said(e: Any, found: Curvature) -> str:
    """Return a clause on the curvature that was found."""
    if found is not Curvature.UNKNOWN:
        return f"{text_of(e)} is {found}"
    parts = {1: Curvature.CONVEX, -1: Curvature.CONCAVE, 0: Curvature.UNKNOWN}
    named = [f"{term.label} ({parts[term.direction]})" for term in e.terms]
    return f"{text_of(e)} is {found}: it adds {' and '.join(named)}"


def _refuse_unbounded(e: Any, written: Callable[[], str]) -> None:
    """Refuse atoms that may stand in an objective only."""
    for term in getattr(e, "terms", ()):
        if term.atom.objective_only:
            raise TypeError(f"{written()}: a divergence may be minimized only, as a term of the objective")


def _affine_sign(e: Affine) -> int:
    if e.parameters or e.products:
        return 0
    signs = {float(s) for s in np.unique(np.sign(e.constant)) if s}
    for u, matrix in e.variables.items():
        own = np.where(u.lower >= 0, 1.0, np.where(u.upper <= 0, -1.0, np.nan))
        found = np.sign(matrix.data) * own[matrix.indices]
        signs |= set(np.unique(found[matrix.data != 0]).tolist())
    for rows in e.psd.values():
        at = rows.nonzero()
        signs |= {float(s) or np.nan for s in rows.definite_signs()[at]}
    return int(signs.pop()) if signs in ({1.0}, {-1.0}) else 0
