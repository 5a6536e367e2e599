"""The divergence of a block, anchored at its ``X0``."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from bregopt.divergences import DIVERGENCES, Divergence, WeightedFrobenius
from bregopt.program.program import Nearness

__all__ = ["divergence_of"]

# Factorized once for each nearness term; dropped with it.
_anchored: WeakKeyDictionary[Nearness, Divergence] = WeakKeyDictionary()


def divergence_of(nearness: Nearness) -> Divergence:
    """Return the divergence anchored at a block's dense ``X0``; factorized once and kept while it lives."""
    if nearness not in _anchored:
        X0 = np.asarray(nearness.X0)
        if nearness.weights is None:
            _anchored[nearness] = DIVERGENCES[nearness.divergence](X0)
        else:
            _anchored[nearness] = WeightedFrobenius(X0, nearness.weights)
    return _anchored[nearness]
