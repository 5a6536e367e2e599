"""A problem as a differentiable function of its parameters, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.errors import SolverError
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.routes import routing
from bregopt.routes.derivatives.derivative import Derivative, check_exists, optimum_of
from bregopt.routes.derivatives.tuning import LARGEST_RESIDUAL

__all__ = ["ProblemFunction"]

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
        named = {v.name: v.with_elements(u[place]) for v, place in problem._compiled.variable_slices()}
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
        slices = self._problem._compiled.variable_slices()
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
