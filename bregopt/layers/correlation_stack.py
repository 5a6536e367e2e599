"""Nearest correlation matrices as one differentiable function, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.arrays import LARGEST, SMALLEST, Array, IntArray
from bregopt.divergences.stacks import STACKED
from bregopt.errors import SolverError
from bregopt.linalg import is_definite
from bregopt.problems.arguments import divergence_class, has_method, stack_answer, stack_settings
from bregopt.problems.correlation.nearest import nearest_correlation
from bregopt.problems.correlation.solve import CorrelationRows
from bregopt.problems.stacks import width_of
from bregopt.records import dataclass
from bregopt.routes.derivatives.stacked import StackedCorrelations
from bregopt.routes.options import check_options, time_limit
from bregopt.threads import threads_for

__all__ = ["CorrelationStack"]


@dataclass(frozen=True)
class _Stack:
    """The only parameter of the function."""

    shape: tuple[int, ...]
    name: str = "A"


class CorrelationStack:
    """The nearest correlation matrices to those of an array, with the methods of a ``ProblemFunction``.

    Parameters
    ----------
    shape : (int, int) or (int, int, int)
        The order of one matrix, or the number of matrices and their order.
    divergence : {"frobenius", "logdet", "von_neumann"}
    options : dict
        Of :meth:`bregopt.Problem.solve`.

    Raises
    ------
    TypeError, ValueError
        If the shape, the divergence or an option is bad.
    """

    def __init__(self, shape: tuple[int, ...], divergence: str, options: Mapping[str, Any]) -> None:
        if len(shape) not in (2, 3) or shape[-1] != shape[-2]:
            raise ValueError(f"A has shape {tuple(shape)}; expected (n, n) or (B, n, n)")
        self._kind = divergence_class(divergence)
        given = {name: value for name, value in options.items() if name != "solver"}
        check_options(options.get("solver", "auto"), given)
        self.parameters = (_Stack(tuple(shape)),)
        self.shapes: list[tuple[int, ...]] = [tuple(shape)]
        self._of_stack = (1, *shape)[-3:]
        self.state_size = self._of_stack[0] * self._of_stack[1]
        self._divergence, self._options = divergence, options
        stacks = has_method(divergence, options) and 0 < shape[-1] <= STACKED[divergence].largest_order
        self._settings = stack_settings(options) if stacks else None  # of the stacked method

    def value(self, A: Array) -> tuple[list[Array], Array]:
        """Return the matrices, and their multipliers as the state.

        Raises
        ------
        SolverError
            If a matrix has no optimal answer.
        TypeError, ValueError
            If the array is bad.
        """
        A = self._symmetric(A)
        X, v = np.empty_like(A), np.empty(A.shape[:2])
        with clock.limited(time_limit(self._options)), threads_for(A.shape[1]):
            for part in self._parts():
                at = self._answers(A[part], part.start)
                X[part], v[part] = at.X, at.v
        return [X.reshape(self.shapes[0])], v.ravel()

    def vjp(self, values: Sequence[Array], state: Array, cotangents: Sequence[Any]) -> list[Array]:
        """Return the gradients in the given matrices."""
        (A,), (G,) = values, cotangents
        return [self._products(A, state, G, backward=True)]

    def jvp(self, values: Sequence[Array], state: Array, tangents: Sequence[Any]) -> list[Array]:
        """Return the changes of the matrices."""
        (A,), (dA,) = values, tangents
        return [self._products(A, state, dA, backward=False)]

    def _products(self, A: Array, state: Array, S: Array, backward: bool) -> Array:
        A, S = self._symmetric(A), self._symmetric(S)
        v, found = np.asarray(state).reshape(A.shape[:2]), np.empty_like(A)
        for part in self._parts():
            at = StackedCorrelations(self._divergence, A[part], v[part])
            at.check_exists(self._name, part.start)
            found[part] = at.vjp(S[part]) if backward else at.jvp(S[part])
        return found.reshape(self.shapes[0])

    def _answers(self, A: Array, first: int) -> StackedCorrelations:
        """Return the matrices after Newton's method, which starts at certified answers.

        Those that the stacked method does not take, or leaves, are solved alone.

        Parameters
        ----------
        A : array of shape (b, n, n)
        first : int
            The number of the first matrix in the whole stack.
        """
        y, regular = np.full(A.shape[:2], np.nan), self._regular(A)
        if len(regular):
            rows = CorrelationRows.of_diagonals(len(regular), A.shape[1])
            answer = stack_answer(rows.problem(A[regular], self._divergence), self._settings)
            if answer is not None:
                y[regular[answer.solved]] = answer.y
        for k in np.flatnonzero(np.isnan(y).any(axis=1)).tolist():
            y[k] = self._alone(A[k], self._name(first + k))
        return StackedCorrelations.of_rows(self._divergence, A, y).refined()

    def _regular(self, A: Array) -> IntArray:
        """Return the indices of the matrices that the stacked method takes."""
        if self._settings is None:
            return np.zeros(0, dtype=np.intp)
        largest = np.abs(A).max(axis=(1, 2))
        regular = np.flatnonzero((largest <= LARGEST) & (largest >= SMALLEST))
        if self._kind.definite_start:
            regular = np.array([k for k in regular if is_definite(A[k])], dtype=np.intp)
        return regular

    def _alone(self, A: Array, name: str) -> Array:
        """Return the multipliers of one matrix."""
        try:
            found: Any = nearest_correlation(A, self._divergence, **self._options)
        except (TypeError, ValueError) as error:
            error.add_note(f"It is {name}.")
            raise
        if found.status not in ("optimal", "optimal_inaccurate"):
            raise SolverError(f"{name} is {found.status}. {found.stop_reason}")
        return -np.asarray(found.duals[0])

    def _name(self, k: int) -> str:
        return "A" if len(self.shapes[0]) == 2 else f"matrix {k} of the stack"

    def _parts(self) -> Iterator[slice]:
        """Yield slices of matrices that fit the cache."""
        count, n, _ = self._of_stack
        width = width_of(n)
        return (slice(a, min(a + width, count)) for a in range(0, count, width))

    def _symmetric(self, A: Any) -> Array:
        given = np.asarray(A, dtype=float).reshape(self._of_stack)
        return (given + np.swapaxes(given, 1, 2)) / 2
