"""Bregman matrix divergences with all their properties.

A new divergence is one file with a subclass of :class:`Divergence`, or of :class:`TraceDivergence` where a
scalar function generates it, and one line of :func:`register_divergence`.
"""

from bregopt.divergences.base import Divergence
from bregopt.divergences.frobenius import Frobenius, WeightedFrobenius, psd_part
from bregopt.divergences.logdet import LogDet, LogDetPoint
from bregopt.divergences.logdet_spectrum import ReciprocalSpectrum
from bregopt.divergences.projection import Line, ProjectionPoint, line_root
from bregopt.divergences.registry import BUILT_IN, DIVERGENCES, divergence_named, register_divergence
from bregopt.divergences.scalar import PENALTY_DEGREES, SCALARS, Penalty
from bregopt.divergences.spectrum import Spectrum
from bregopt.divergences.trace_function import TraceDivergence
from bregopt.divergences.von_neumann import VonNeumann, VonNeumannPoint

__all__ = [
    "BUILT_IN",
    "DIVERGENCES",
    "PENALTY_DEGREES",
    "SCALARS",
    "Divergence",
    "Frobenius",
    "Line",
    "LogDet",
    "LogDetPoint",
    "Penalty",
    "ProjectionPoint",
    "ReciprocalSpectrum",
    "Spectrum",
    "TraceDivergence",
    "VonNeumann",
    "VonNeumannPoint",
    "WeightedFrobenius",
    "divergence_named",
    "line_root",
    "psd_part",
    "register_divergence",
]
