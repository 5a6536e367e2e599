"""The divergence of a matrix variable from a matrix, as an atom of objectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.modeling.convex.atom import Atom, DivergenceTerm, Parts
from bregopt.modeling.variables import PSD, Parameter
from bregopt.program import Nearness
from bregopt.program.anchor import divergence_of
from bregopt.program.lowrank import Matrix

__all__ = ["DivergenceAtom"]


class DivergenceAtom(Atom):
    """``D(X, X0)``."""

    objective_only, sign = True, 1
    divergence: str

    def __init__(self, divergence: str, X: PSD, X0: Matrix, parameters: Mapping[str, Any]) -> None:
        self.divergence, self.X, self.X0, self.parameters = divergence, X, X0, parameters
        super().__init__()

    @property
    def label(self) -> str:
        """The divergence in messages."""
        return f"{self.divergence}_div({self.X.name})"

    @property
    def value(self) -> float | None:
        """The value at the current matrix, None if there is none."""
        if self.X.value is None:
            return None
        nearness = Nearness(self.divergence, np.asarray(self.X0), parameters=self.parameters)
        return float(divergence_of(nearness).value(np.asarray(self.X.value)))

    def leaves(self) -> Iterable[Any]:
        """Yield the matrix variable."""
        yield self.X

    def paid(self, weights: Array, parameter: Parameter | None, *arguments: Any) -> Parts | None:
        """Return the divergence itself."""
        weight = float(weights[0])
        return Parts(
            divergences=[DivergenceTerm(self.divergence, self.X, self.X0, weight, parameter, self.parameters)]
        )
