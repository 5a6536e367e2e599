"""Reductions: each turns a program into a simpler one, and an answer to that into an answer to the first.

Every route uses those in :data:`UNIVERSAL`, then the ones that it requests by name from :data:`REQUESTED`.
Both are in the order in which reductions are applied.
"""

from __future__ import annotations

from collections.abc import Collection
from pkgutil import resolve_name

from bregopt.presolve.reduction import Presolved, Reduced, Reduction, presolve, summaries

__all__ = [
    "REQUESTED",
    "UNIVERSAL",
    "Presolved",
    "Reduced",
    "Reduction",
    "presolve",
    "reductions",
    "register_reduction",
    "summaries",
]

# A new reduction is one file and one line here: its module and its class, which are loaded on first use.
UNIVERSAL: dict[str, str | Reduction] = {
    "range space": "coordinates:RangeSpaces",
    "fixed variables": "variables:FixedVariables",
    "boxes": "variables:Boxes",
}
REQUESTED: dict[str, str | Reduction] = {
    "least norm": "epigraphs:LeastNorm",
    "epigraphs": "variables:Dominated",
    "absolute values": "epigraphs:AbsoluteValues",
    "differences": "epigraphs:Differences",
    "slacks": "epigraphs:Slacks",
    "parallel rows": "variables:ParallelRows",
    "zero sums": "equalities:ZeroSums",
    "dual form": "dual_form:DualForm",
    "redundant equalities": "equalities:RedundantEqualities",
    "independent rows": "equalities:IndependentRows",
    "independent columns": "variables:IndependentColumns",
    "faces": "faces:Faces",
    "face coordinates": "faces:FaceCoordinates",
    "chordal sparsity": "chordal:Chordal",
    "whitening": "coordinates:Whitening",
    "scaling": "coordinates:Scaling",
}


def register_reduction(cls: type[Reduction]) -> type[Reduction]:
    """Add a reduction; also usable as a class decorator. It replaces one of the same name.

    A universal reduction is placed after the other universal ones, before those that routes ask for.

    Parameters
    ----------
    cls : class
        With the attributes and methods of :class:`Reduction`.
    """
    for known in (UNIVERSAL, REQUESTED):
        known.pop(cls.name, None)
    (UNIVERSAL if cls.universal else REQUESTED)[cls.name] = cls()
    return cls


def reductions(names: Collection[str]) -> list[Reduction]:
    """Return the reductions with the given names, in the order in which they are applied."""
    return [_loaded(known, name) for known in (UNIVERSAL, REQUESTED) for name in known if name in names]


def _loaded(known: dict[str, str | Reduction], name: str) -> Reduction:
    reduction = known[name]
    if isinstance(reduction, str):
        reduction = known[name] = resolve_name(f"{__name__}.{reduction}")()
    return reduction
