"""The divergence of a block, anchored at its ``X0``."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from bregopt.divergences import Divergence
from bregopt.program.program import Nearness

__all__ = ["divergence_of"]

# Computed once for each nearness term; dropped with it.
_anchored: WeakKeyDictionary[Nearness, Divergence] = WeakKeyDictionary()


def divergence_of(nearness: Nearness) -> Divergence:
    """Return the divergence anchored at a block's dense ``X0``; computed once for each nearness term."""
    if nearness not in _anchored:
        make: Any = nearness.kind
        _anchored[nearness] = make(np.asarray(nearness.X0), **nearness.parameters)
    return _anchored[nearness]
