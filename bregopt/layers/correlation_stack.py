"""Nearest correlation matrices of a stack as one differentiable function, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.errors import SolverError
from bregopt.problems.nearest import nearest_correlation
from bregopt.problems.objective import divergence_class
from bregopt.routes.derivatives.stacked import StackedCorrelations

__all__ = ["CorrelationStack"]

_ENOUGH, _STEPS = 1e-13, 4  # the error of the diagonal at which Newton's method ends, and its steps
_CHUNK = 2_000_000  # numbers of the products that are formed at once


@dataclass(frozen=True)
class _Stack:
    """The only parameter of the function."""

    shape: tuple[int, ...]
    name: str = "A"


class CorrelationStack:
    """The nearest correlation matrices to those of an array, with the methods of a ``ProblemFunction``.

    Parameters
    ----------
    shape : (int, int, int)
        The number of matrices and their order.
    divergence : {"frobenius", "logdet", "von_neumann"}
    options : dict
        Of :meth:`bregopt.Problem.solve`.
    """

    def __init__(self, shape: tuple[int, int, int], divergence: str, options: dict[str, Any]) -> None:
        divergence_class(divergence)
        self.parameters = (_Stack(shape),)
        self.shapes: list[tuple[int, ...]] = [shape]
        self.state_size = shape[0] * shape[1]
        self._divergence, self._options = divergence, options

    def value(self, A: Array) -> tuple[list[Array], Array]:
        """Return the matrices, and their multipliers as the state."""
        A = _symmetric(A)
        found: Any = nearest_correlation(A, self._divergence, **self._options)
        wrong = np.flatnonzero(~np.isin(found.status, ("optimal", "optimal_inaccurate")))
        if len(wrong):
            k = int(wrong[0])
            raise SolverError(f"matrix {k} of the stack is {found.status[k]}. {found[k].stop_reason}")
        share = -0.5 if self._divergence == "frobenius" else -1.0
        v = np.array([share * np.asarray(found[k].duals[0]) for k in range(len(A))])
        X, moved = np.empty_like(A), np.empty_like(v)
        for part in self._parts():
            at = StackedCorrelations(self._divergence, A[part], v[part])
            for _ in range(_STEPS):
                if np.abs(at.missed).max() <= _ENOUGH:
                    break
                at = at.refined()
            X[part], moved[part] = at.X, at.v
        return [X], moved.ravel()

    def vjp(self, values: Sequence[Array], state: Array, cotangents: Sequence[Any]) -> list[Array]:
        """Return the gradients in the given matrices."""
        (A,), (G,) = values, cotangents
        return [self._products(_symmetric(A), state, _symmetric(G), backward=True)]

    def jvp(self, values: Sequence[Array], state: Array, tangents: Sequence[Any]) -> list[Array]:
        """Return the changes of the matrices."""
        (A,), (dA,) = values, tangents
        return [self._products(_symmetric(A), state, _symmetric(dA), backward=False)]

    def _products(self, A: Array, state: Array, S: Array, backward: bool) -> Array:
        v, found = np.asarray(state).reshape(A.shape[:2]), np.empty_like(A)
        for part in self._parts():
            at = StackedCorrelations(self._divergence, A[part], v[part])
            at.check_exists()
            found[part] = at.vjp(S[part]) if backward else at.jvp(S[part])
        return found

    def _parts(self) -> list[slice]:
        """Return slices of matrices that fit the cache."""
        count, n, _ = self.shapes[0]
        width = max(1, _CHUNK // n**3)
        return [slice(a, min(a + width, count)) for a in range(0, count, width)]


def _symmetric(A: Any) -> Array:
    given = np.asarray(A, dtype=float)
    return (given + np.swapaxes(given, 1, 2)) / 2
