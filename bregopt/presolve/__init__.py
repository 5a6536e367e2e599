"""Reductions: a program becomes a simpler one, and the answer to that one an answer to the first.

:data:`REDUCTIONS` has them in the order in which they are applied.
"""

from __future__ import annotations

from collections.abc import Collection

from bregopt.presolve.boxes import Boxes
from bregopt.presolve.faces import Faces
from bregopt.presolve.independent_rows import IndependentRows
from bregopt.presolve.range_space import RangeSpaces
from bregopt.presolve.reduction import Presolved, Reduced, Reduction, presolve
from bregopt.presolve.scaling import Scaling
from bregopt.presolve.slacks import Slacks
from bregopt.presolve.whitening import Whitening

__all__ = ["REDUCTIONS", "Presolved", "Reduced", "Reduction", "presolve", "reductions", "register_reduction"]

# A new reduction is one line here and its file.
REDUCTIONS: list[Reduction] = [
    RangeSpaces(),
    Boxes(),
    Slacks(),
    IndependentRows(),
    Faces(),
    Whitening(),
    Scaling(),
]


def register_reduction(cls: type[Reduction]) -> type[Reduction]:
    """Add a reduction; also usable as a class decorator. One of the same name is replaced.

    A universal one comes after the other universal ones, so that those which a route asks for come last.

    Parameters
    ----------
    cls : class
        With the attributes and methods of :class:`Reduction`.
    """
    others = [known for known in REDUCTIONS if known.name != cls.name]
    REDUCTIONS[:] = sorted([*others, cls()], key=lambda reduction: not reduction.universal)
    return cls


def reductions(names: Collection[str]) -> list[Reduction]:
    """Return the reductions of some names, in order."""
    return [reduction for reduction in REDUCTIONS if reduction.name in names]
