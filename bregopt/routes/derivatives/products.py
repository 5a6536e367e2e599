"""The derivative of one nearest correlation matrix in the given one, where Newton's method has left it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.routes.derivatives.anchors import symmetric_part
from bregopt.routes.derivatives.answers import check_exists
from bregopt.routes.derivatives.changes import Differentiability
from bregopt.routes.derivatives.derivative import labeled_like, unlabeled
from bregopt.routes.derivatives.stacked import StackedCorrelations

__all__ = ["Products"]


@dataclass(frozen=True, eq=False)
class Products:
    """Products with the derivative and its transpose: those of :class:`Derivative` in ``data`` alone.

    Parameters
    ----------
    at : StackedCorrelations
        A stack of one.
    """

    at: StackedCorrelations

    def vjp(self, G: Any, like: Any) -> Any:
        """Return the gradient of ``<G, X>``, with the labels of the answer `like`."""
        return self._product(self.at.vjp, G, like, "G")

    def jvp(self, dA: Any, like: Any) -> Any:
        """Return the change of the answer `like`, with its labels."""
        return self._product(self.at.jvp, dA, like, "data")

    def _product(self, product: Callable[[Array], Array], S: Any, like: Any, name: str) -> Any:
        at = self.at
        missed = float(np.abs(at.missed).max())
        check_exists(Differentiability(float(at.margins[0]), np.inf, np.inf, missed))
        S = symmetric_part(unlabeled(S, like, name), len(like), name)
        return labeled_like(product(S[None])[0], like)
