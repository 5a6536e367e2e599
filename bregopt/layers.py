"""Problems as differentiable functions of NumPy arrays.

:mod:`bregopt.torch` and :mod:`bregopt.jax` wrap them for automatic differentiation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.arrays import LARGEST, SMALLEST, Array, IntArray
from bregopt.clock import threads_for
from bregopt.errors import SolverError
from bregopt.linalg import is_definite
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.problems.arguments import divergence_class
from bregopt.problems.correlation.nearest import CorrelationRows, nearest_correlation
from bregopt.problems.stacks import width_of
from bregopt.program.stacks import STACKED
from bregopt.records import dataclass
from bregopt.routes import routing
from bregopt.routes.derivatives.derivative import LARGEST_RESIDUAL, Derivative, check_exists, optimum_of
from bregopt.routes.derivatives.stacks import StackedCorrelations
from bregopt.routes.registry import check_options, stack_answer, stack_settings, takes_stacks, time_limit

_ENOUGH = 1e-13  # residual of the optimality conditions: finite differences of answers have some digits then


class ProblemFunction:
    """The answer of a problem as a function of parameters, with derivatives.

    Its value is the answer after Newton's method, so that it is smooth to nearly all digits. A derivative
    needs the parameters and the `state` that goes with the value, an array, and no second solve.

    Parameters
    ----------
    problem : Problem
    parameters : sequence of Parameter
        Of the problem; other parameters keep their values. Of one that is an ``X0`` or elementwise weights
        the symmetric part is used.
    variables : sequence of PSD or Variable
        Of the problem.
    solver, options
        Of :meth:`bregopt.Problem.solve`.

    Raises
    ------
    TypeError, ValueError
        If a parameter or variable is not one of the problem, or none is given.
    """

    def __init__(
        self,
        problem: Problem,
        parameters: Sequence[Parameter],
        variables: Sequence[PSD | Variable],
        solver: Any = "auto",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(problem, Problem):
            raise TypeError(f"problem is {type(problem).__name__}; expected a bo.Problem")
        self.parameters = _members(parameters, problem.parameters, "parameters")
        known = (*problem.matrices, *problem.variables)
        self.variables = _members(variables, known, "variables")
        self._problem, self._solver, self._options = problem, solver, dict(options or {})
        if any(getattr(X, "is_hermitian", False) for X in problem.matrices):
            raise ValueError("the problem has a Hermitian variable; layers take real ones")
        if problem._compiled.is_complex:
            raise ValueError(
                "the problem has complex variables, parameters or matrix inequalities; layers take real ones"
            )
        terms = problem._compiled.divergences
        self._symmetric = {p for term in terms for p in term.data}
        self._orders = [block.n for block in problem._compiled.template.blocks]
        self._lock = Lock()

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the variables."""
        return [tuple(x.shape) for x in self.variables]

    @property
    def state_size(self) -> int:
        """The number of elements of the state: matrices, variables and multipliers."""
        template = self._problem._compiled.template
        return sum(n**2 for n in self._orders) + template.k + template.m

    def batch(self, shapes: Sequence[tuple[int, ...]]) -> int | None:
        """Return the length of the batch that values of these shapes are, None if they are one point.

        Raises
        ------
        TypeError, ValueError
            If their number or a shape is wrong, or batches differ in length.
        """
        if len(shapes) != len(self.parameters):
            raise TypeError(
                f"got {len(shapes)} values; expected {len(self.parameters)}, one for each parameter"
            )
        lengths = {}
        for shape, p in zip(shapes, self.parameters, strict=True):
            if tuple(shape[-len(p.shape) :] if p.shape else ()) != p.shape or len(shape) > len(p.shape) + 1:
                raise ValueError(
                    f"the value of {p.name} has shape {tuple(shape)}; expected {p.shape}, or one more "
                    "dimension before it for a batch"
                )
            if len(shape) > len(p.shape):
                lengths[p.name] = shape[0]
        if len(set(lengths.values())) > 1:
            raise ValueError(f"batches have different lengths: {lengths}")
        return next(iter(lengths.values()), None)

    def value(self, *values: Array) -> tuple[list[Array], Array]:
        """Return the variables at the given values of the parameters, and the state.

        Raises
        ------
        SolverError
            If the problem has no optimal answer at these values.
        """
        with self._at(values):
            program = self._problem.program()
            raw = routing.solve(program, self._solver, **self._options)
        if raw.X is None or raw.status not in ("optimal", "optimal_inaccurate"):
            raise SolverError(f"the problem is {raw.status} at these parameters. {raw.stop_reason}")
        X, (_, u, y) = [np.asarray(M) for M in raw.X], raw._point
        try:
            at, anchors = optimum_of(program, raw, _ENOUGH)
        except ValueError:  # an answer without a derivative is still an answer
            pass
        else:
            if at.residual <= LARGEST_RESIDUAL:
                X = [anchor.lifted(M) for anchor, M in zip(anchors, at.X, strict=True)]
                u, y = at.u, at.y
        return self._variables(X, u), np.concatenate([*(M.ravel() for M in X), u, y])

    def vjp(self, values: Sequence[Array], state: Array, cotangents: Sequence[Any]) -> list[Array]:
        """Return the gradients in the parameters of a function with given gradients in the variables."""
        derivative = self._derivative(values, state)
        X, u = self._by_kind(cotangents)
        found = derivative.vjp(X, u).parameters
        return [found[p] for p in self.parameters]

    def jvp(self, values: Sequence[Array], state: Array, tangents: Sequence[Any]) -> list[Array]:
        """Return the changes of the variables as the parameters change."""
        derivative = self._derivative(values, state)
        found = derivative.jvp(parameters=dict(zip(self.parameters, tangents, strict=True)))
        X = found.X if isinstance(found.X, tuple) else (found.X,)
        by_name = {x.name: own for x, own in zip(self._problem.matrices, X, strict=True)} | found.u
        return [np.asarray(by_name[x.name], dtype=float) for x in self.variables]

    def _derivative(self, values: Sequence[Array], state: Array) -> Derivative:
        """Return the derivative at a state."""
        problem, template = self._problem, self._problem._compiled.template
        ends = np.cumsum([*(n**2 for n in self._orders), template.k])
        *matrices, u, y = np.split(np.asarray(state, dtype=float), ends)
        X = [M.reshape(n, n) for M, n in zip(matrices, self._orders, strict=True)]
        with self._at(values):
            program = problem.program()
            at, anchors = optimum_of(program, _Point(X, u, y))
        found = at.differentiability()
        check_exists(found, program)
        own = tuple(X[: len(problem.matrices)])
        named = {v.name: v.with_elements(u[place]) for v, place in problem._compiled.variable_slices}
        chain = problem._compiled.chain()
        return Derivative(at, anchors, found, None, chain, own if len(own) != 1 else own[0], named)

    @contextmanager
    def _at(self, values: Sequence[Array]) -> Iterator[None]:
        """Give the parameters these values inside the block."""
        with self._lock:
            before = [p.value for p in self.parameters]
            try:
                for p, value in zip(self.parameters, values, strict=True):
                    given = np.asarray(value, dtype=float)
                    p.value = (given + given.T) / 2 if p in self._symmetric else given
                yield
            finally:
                for p, value in zip(self.parameters, before, strict=True):
                    p._value = value

    def _variables(self, X: Sequence[Array], u: Array) -> list[Array]:
        slices = self._problem._compiled.variable_slices
        values: dict[Any, Any] = {v: v.with_elements(u[place]) for v, place in slices}
        values |= dict(zip(self._problem.matrices, X, strict=False))
        return [np.asarray(values[x], dtype=float) for x in self.variables]

    def _by_kind(self, cotangents: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
        given = dict(zip(self.variables, cotangents, strict=True))
        X = [given.get(M) for M in self._problem.matrices]
        u = {v.name: given[v] for v in self._problem.variables if v in given}
        return (tuple(X) if len(X) != 1 else X[0]), u


class _Point:
    """A point in the program's terms, with the names of a Solution."""

    def __init__(self, X: Sequence[Array], u: Array, duals: Array) -> None:
        self.X, self.u, self.duals, self._S = X, u, duals, None


def _members(given: Any, known: Sequence[Any], name: str) -> tuple[Any, ...]:
    """Return operands of the problem, after checks."""
    if not isinstance(given, Sequence) or not given:
        raise TypeError(f"{name} is {given!r}; expected a list of {name} of the problem")
    for k, item in enumerate(given):
        if not any(item is other for other in known):
            names = ", ".join(other.name for other in known) or "none"
            raise ValueError(f"{name}[{k}] is {item!r}, which is not in the problem; it has {names}")
    return tuple(given)


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
        stacks = takes_stacks(divergence, options) and 0 < shape[-1] <= STACKED[divergence].largest_order
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
