"""The divergence of a matrix variable from a matrix, as an atom of objectives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from bregopt.arrays import Array
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.convex.atom import Atom, DivergenceTerm, Parts
from bregopt.modeling.expressions import Expression
from bregopt.modeling.variables import PSD, Parameter
from bregopt.program.lowrank import Matrix
from bregopt.program.program import divergence_of

__all__ = ["DivergenceAtom"]


class DivergenceAtom(Atom):
    """``D(X, X0)``; for a Hermitian variable with `copies` of each eigenvalue in the real form ``X``.

    The `options` are keywords that `current` takes into account at the values of parameters.
    """

    objective_only, sign = True, 1
    divergence: str

    def __init__(
        self,
        divergence: str,
        X: PSD,
        X0: Matrix | Parameter,
        parameters: Mapping[str, Any],
        current: Callable[[], Any] | None = None,
        copies: int = 1,
        options: Mapping[str, float] | None = None,
    ) -> None:
        self.divergence, self.X, self.X0, self.parameters = divergence, X, X0, parameters
        self._current, self._copies, self.options = current, copies, options or {}
        super().__init__()

    @property
    def label(self) -> str:
        """The divergence in messages."""
        further = "".join(f", {name}" for name in self.parameters)
        return f"{self.divergence}_div({self.X.name}{further})"

    @property
    def value(self) -> float | None:
        """The value at the current matrix, None if there is none."""
        if self.X.value is None or any(p.value is None for p in self._term(1.0, None).data):
            return None
        return self.numbers(np.asarray(self.X.value))

    def numbers(self, *values: Array) -> float:
        """Return the divergence of a matrix, at the current values of parameters."""
        nearness = self._term(1.0, None).nearness(1.0)
        return float(divergence_of(nearness).value(values[0])) / self._copies

    def epigraph(self, t: Expression, *arguments: Expression) -> NoReturn:
        """Refuse an epigraph, which no route takes."""
        raise UnsupportedProblemError(f"{self.label} has no epigraph; expected it as a term of an objective")

    def leaves(self) -> Iterable[Any]:
        """Yield the matrix variable."""
        yield self.X

    def paid(self, weights: Array, parameter: Expression | None, *arguments: Any) -> Parts | None:
        """Return the divergence itself."""
        return Parts(divergences=[self._term(float(weights[0]), parameter)])

    def _term(self, weight: float, parameter: Expression | None) -> DivergenceTerm:
        now = None if self._current is None else self._at_values
        return DivergenceTerm(
            *(self.divergence, self.X, self.X0, weight, parameter, self.parameters, now, self._copies),
            complemented="complement" in self.options,
        )

    def _at_values(self) -> Any:
        """Return the atom at the current values of parameters."""
        assert self._current is not None
        (term,) = self._current().terms
        return term.atom
