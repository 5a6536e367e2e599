"""Reductions: each turns a program into a simpler one, and an answer to that into an answer to the first.

:data:`REDUCTIONS` lists them in the order in which they are applied.
"""

from __future__ import annotations

from collections.abc import Collection

from bregopt.presolve.boxes import Boxes
from bregopt.presolve.chordal import Chordal
from bregopt.presolve.dual_form import DualForm
from bregopt.presolve.faces import Faces
from bregopt.presolve.independent_rows import IndependentRows
from bregopt.presolve.range_space import RangeSpaces
from bregopt.presolve.reduction import Presolved, Reduced, Reduction, presolve, summaries
from bregopt.presolve.redundant_equalities import RedundantEqualities
from bregopt.presolve.scaling import Scaling
from bregopt.presolve.slacks import Slacks
from bregopt.presolve.whitening import Whitening

__all__ = [
    "REDUCTIONS",
    "Presolved",
    "Reduced",
    "Reduction",
    "presolve",
    "reductions",
    "register_reduction",
    "summaries",
]

# A new reduction is one file and one line here.
REDUCTIONS: list[Reduction] = [
    RangeSpaces(),
    Boxes(),
    Slacks(),
    DualForm(),
    RedundantEqualities(),
    IndependentRows(),
    Faces(),
    Chordal(),
    Whitening(),
    Scaling(),
]


def register_reduction(cls: type[Reduction]) -> type[Reduction]:
    """Add a reduction; also usable as a class decorator. It replaces one of the same name.

    A universal reduction is placed after the other universal ones, before those that routes ask for.

    Parameters
    ----------
    cls : class
        With the attributes and methods of :class:`Reduction`.
    """
    others = [known for known in REDUCTIONS if known.name != cls.name]
    REDUCTIONS[:] = sorted([*others, cls()], key=lambda reduction: not reduction.universal)
    return cls


def reductions(names: Collection[str]) -> list[Reduction]:
    """Return the reductions with the given names, in the order of :data:`REDUCTIONS`."""
    return [reduction for reduction in REDUCTIONS if reduction.name in names]
