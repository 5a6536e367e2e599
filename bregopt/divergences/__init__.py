"""Bregman matrix divergences: value, gradient, conjugate and one-row projection.

A new divergence is one file with a class that offers the methods of :class:`Divergence`, one line in
:data:`DIVERGENCES`, and a :class:`~bregopt.divergences.projection.Point` where rows are to be projected on
one at a time.
"""

from bregopt.divergences.base import Divergence
from bregopt.divergences.frobenius import Frobenius, WeightedFrobenius, psd_part
from bregopt.divergences.logdet import LogDet, LogDetPoint
from bregopt.divergences.projection import Line, Point, line_root
from bregopt.divergences.spectrum import Spectrum
from bregopt.divergences.von_neumann import VonNeumann, VonNeumannPoint

DIVERGENCES: dict[str, type[LogDet] | type[VonNeumann] | type[Frobenius]] = {
    "logdet": LogDet,
    "von_neumann": VonNeumann,
    "frobenius": Frobenius,
}

__all__ = [
    "DIVERGENCES",
    "Divergence",
    "Frobenius",
    "Line",
    "LogDet",
    "LogDetPoint",
    "Point",
    "Spectrum",
    "VonNeumann",
    "VonNeumannPoint",
    "WeightedFrobenius",
    "line_root",
    "psd_part",
]
