"""The rows of nearest correlation matrices in the modeling language."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.io.pandas_labels import pair_labels
from bregopt.modeling.atoms import diag
from bregopt.modeling.bounds import between
from bregopt.modeling.constraints import Constraint
from bregopt.problems.correlation.request import Request

__all__ = ["correlation_rows"]


def correlation_rows(Y: Any, request: Request) -> list[Constraint]:
    """Return the named rows on the entries of ``D X D`` in terms of ``Y = S (X - Diag(t)) S``."""
    t, fixed, bounded = request.shift, request.fixed, request.bounded
    unit = np.ones(request.n) if request.scale is None else request.scale
    s = request.s / unit
    rows = [(diag(Y) / s**2 == unit**2 * (1 - t)).named("diagonal")]
    if len(fixed.i):
        entries = Y[fixed.i, fixed.j] / (s[fixed.i] * s[fixed.j])
        rows.append((entries == fixed.lo * unit[fixed.i] * unit[fixed.j]).named("fixed"))
    if len(bounded.i):
        entries = Y[bounded.i, bounded.j] / (s[bounded.i] * s[bounded.j])
        largest = unit[bounded.i] * unit[bounded.j]
        rows.append(between(entries, bounded.lo * largest, bounded.hi * largest).named("bounds"))
    if request.labels is not None:
        pairs = {"fixed": fixed, "bounds": bounded}
        for row in rows:
            own = pairs.get(row.name or "")
            row.axes = (request.labels if own is None else pair_labels(request.labels, own.i, own.j),)
    return rows
