"""Bregman matrix divergences with all their properties.

A new divergence is one file with a subclass of :class:`Divergence`, or of :class:`TraceDivergence` where a
scalar function generates it, and one line of :func:`register_divergence`.
"""

from __future__ import annotations

from bregopt.divergences.base import Divergence
from bregopt.divergences.frobenius import Frobenius, WeightedFrobenius, psd_part
from bregopt.divergences.logdet import LogDet, LogDetPoint, ReciprocalSpectrum
from bregopt.divergences.rows import PENALTY_DEGREES, SCALARS, Line, Penalty, ProjectionPoint, line_root
from bregopt.divergences.spectrum import Spectrum
from bregopt.divergences.trace_function import CONDITIONED, TraceDivergence
from bregopt.divergences.von_neumann import VonNeumann, VonNeumannPoint
from bregopt.errors import did_you_mean

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

DIVERGENCES: dict[str, type[Divergence]] = {cls.name: cls for cls in (LogDet, VonNeumann, Frobenius)}
BUILT_IN: frozenset[type[Divergence]] = frozenset(
    (*DIVERGENCES.values(), WeightedFrobenius, *CONDITIONED.values())
)
_TAKEN = frozenset(DIVERGENCES)


def register_divergence(cls: type[Divergence]) -> type[Divergence]:
    """Add a divergence; also usable as a class decorator.

    Parameters
    ----------
    cls : class
        A subclass of :class:`Divergence`, or of :class:`TraceDivergence`, with a name. It replaces a plug-in
        of the same name.

    Raises
    ------
    TypeError
        If `cls` is not such a class, or lacks a method.
    ValueError
        If its name is that of a built-in divergence.
    """
    if not isinstance(cls, type) or not issubclass(cls, Divergence):
        raise TypeError(f"cls is {cls!r}; expected a subclass of bregopt.divergences.Divergence")
    missing = sorted(cls.__abstractmethods__) + ([] if hasattr(cls, "name") else ["name"])
    if missing:
        raise TypeError(f"{cls.__name__} lacks {', '.join(missing)}")
    if cls.name in _TAKEN:
        raise ValueError(
            f"{cls.__name__} is called {cls.name!r}, as a divergence of bregopt; expected another"
        )
    DIVERGENCES[cls.name] = cls
    return cls


def divergence_named(given: str | type[Divergence]) -> type[Divergence]:
    """Return the registered divergence of a name, or of the name of a class.

    Raises
    ------
    TypeError, ValueError
        If `given` is neither a name nor a class, or no divergence of that name is registered.
    """
    if isinstance(given, type) and issubclass(given, Divergence):
        given = given.name
    if not isinstance(given, str):
        raise TypeError(f"divergence is {given!r}; expected the name of a divergence")
    if given not in DIVERGENCES:
        raise ValueError(f"divergence is {given!r}{did_you_mean(given, DIVERGENCES)}")
    return DIVERGENCES[given]
