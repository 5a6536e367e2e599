"""The derivative of an answer in the data of its problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from bregopt.arrays import Array, finite_array
from bregopt.errors import DataWarning, warn_caller
from bregopt.program import LowRank, Program
from bregopt.routes.derivatives.anchors import Anchor, anchors_of, symmetric_part
from bregopt.routes.derivatives.changes import Adjoint, Change, Differentiability
from bregopt.routes.derivatives.linearized import adjoint, tangent
from bregopt.routes.derivatives.optimum import Optimum, refined
from bregopt.routes.derivatives.restated import Congruence
from bregopt.routes.derivatives.tuning import (
    LARGEST_CHANGE,
    LARGEST_RESIDUAL,
    SMALL_MARGIN,
    SMALLEST_MARGIN,
)

__all__ = ["Derivative", "Gradient", "Tangent", "derivative_of"]

_REASONS = {
    "eigenvalue": "an eigenvalue of X - Z is zero",
    "multiplier": "a row that acts has no multiplier",
    "slack": "a row without a multiplier is at its bound",
}


class Chain(Protocol):
    """The parameters of a problem, and how the data of its program depend on them."""

    def gradient(self, derivative: Derivative, found: Adjoint) -> dict[Any, Array]:
        """Return the gradients in all parameters."""
        ...

    def change(self, derivative: Derivative, changes: Mapping[Any, Any]) -> Change:
        """Return the effect of changes of parameters on the optimality conditions."""
        ...


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of a function of the answer.

    Attributes
    ----------
    data : array, DataFrame, or a tuple of those
        In the matrix that ``X`` is near to, symmetric; in the factor of a ``LowRank`` one; in the cost matrix
        of a linear objective.
    parameters : dict from Parameter to array
    """

    data: Any
    _derivative: Derivative
    _found: Adjoint

    @cached_property
    def parameters(self) -> dict[Any, Array]:
        """The gradients in the parameters of the problem."""
        return self._derivative.required_chain().gradient(self._derivative, self._found)


@dataclass(frozen=True, eq=False)
class Tangent:
    """The change of an answer.

    Attributes
    ----------
    X : array, DataFrame, or a tuple of those
    u : dict from str to float or array
        Of ordinary variables by name.
    y : array of shape (m,)
        Of the multipliers of all rows, in the order of the constraints; positive at lower bounds.
    """

    X: Any
    u: dict[str, Any]
    y: Array


@dataclass(frozen=True, eq=False)
class Derivative:
    """The derivative of an answer, as products with it and with its transpose.

    Attributes
    ----------
    differentiability : Differentiability
        How far the answer is from one without a derivative.
    """

    optimum: Optimum
    anchors: tuple[Anchor, ...]
    differentiability: Differentiability
    restated: Congruence | None
    chain: Chain | None
    X: Any
    u: Mapping[str, Any]

    def vjp(self, X: Any = None, u: Mapping[str, Any] | None = None) -> Gradient:
        """Return the gradient of ``<G, X> + sum <g, u>``: a vector-Jacobian product.

        Parameters
        ----------
        X : array_like of shape (n, n), DataFrame, or a tuple of those
            ``G``: the gradient of a function of the answer in ``X``. Its symmetric part counts.
        u : mapping from str to array_like
            The gradients in ordinary variables by name.

        Returns
        -------
        Gradient

        Raises
        ------
        TypeError, ValueError
            If a shape or name is wrong, or the derivative does not exist.
        """
        at = self.optimum
        given = self._each(X, "X")
        inside: list[Array | None] = [None] * len(at.points)
        for b, G in enumerate(given):
            if G is not None:
                inside[b] = self.anchors[b].inside(self._pulled(G, b))
        found = adjoint(at, inside, self._elements(u))
        data = []
        for b in range(self.count):
            pulled = None if given[b] is None else self._pulled(given[b], b)
            own = self.anchors[b].gradient(at, found, pulled)
            if self.restated is not None:
                own = self.restated.gradient(own, found.rows)
            data.append(own)
        return Gradient(self._like_answer(data), self, found)

    def jvp(self, data: Any = None, parameters: Mapping[Any, Any] | None = None) -> Tangent:
        """Return the change of the answer as the data change: a Jacobian-vector product.

        Parameters
        ----------
        data : array_like, DataFrame, or a tuple of those
            The change of the matrix that ``X`` is near to; of the factor of a ``LowRank`` one; of the cost
            matrix of a linear objective.
        parameters : mapping from Parameter to array_like
            The changes of parameters; others keep their values.

        Returns
        -------
        Tangent

        Raises
        ------
        TypeError, ValueError
            If a shape or name is wrong, or the derivative does not exist.
        """
        at = self.optimum
        changes = self._each(data, "data")
        total = self._chained(parameters)
        slopes, rows = list(total.X), total.rows.copy()
        for b, change in enumerate(changes):
            if change is None:
                continue
            if self.restated is not None:
                n = at.program.blocks[b].n
                change, moved_rows = self.restated.change(symmetric_part(change, n, "data"), at.program.m)
                rows += moved_rows
                changes[b] = change
            moved = self.anchors[b].moved(at, change)
            slope = slopes[b]
            slopes[b] = moved.slope if slope is None else slope + moved.slope
            if moved.rows is not None:
                rows += moved.rows
        found = tangent(at, Change(tuple(slopes), rows, total.u, total.paid))
        X = []
        for b in range(self.count):
            dX = found.X[b]
            assert dX is not None
            own = self.anchors[b].outside(dX, at, changes[b])
            X.append(own if self.restated is None else self.restated.tangent(own))
        return Tangent(self._like_answer(X), self._named(found.u), found.rows)

    @property
    def count(self) -> int:
        """The number of the user's matrices; those of matrix inequalities follow them."""
        return len(self.X) if isinstance(self.X, tuple) else 1

    def required_chain(self) -> Chain:
        """Return the chain, or raise a ValueError without one."""
        if self.chain is None:
            raise ValueError(
                "the answer was pickled, without the parameters of its problem; differentiate in them before"
            )
        return self.chain

    def _chained(self, parameters: Mapping[Any, Any] | None) -> Change:
        at = self.optimum
        if parameters:
            return self.required_chain().change(self, parameters)
        none = (None,) * len(at.points)
        return Change(none, np.zeros(at.program.m), np.zeros(at.program.k), np.zeros(at.program.m))

    def _pulled(self, G: Any, b: int) -> Any:
        if self.restated is None:
            return G
        return self.restated.cotangent(symmetric_part(G, self.optimum.program.blocks[b].n, "G"))

    def _each(self, value: Any, name: str) -> list[Any]:
        """Return one value for each of the user's matrices, without labels."""
        if not isinstance(self.X, tuple):
            return [_unlabeled(value, self.X, name)]
        if value is None:
            return [None] * len(self.X)
        if not isinstance(value, tuple | list) or len(value) != len(self.X):
            raise TypeError(f"{name} is {type(value).__name__}; expected a tuple of {len(self.X)} matrices")
        return [_unlabeled(own, X, name) for own, X in zip(value, self.X, strict=True)]

    def _like_answer(self, found: Sequence[Array]) -> Any:
        """Return matrices with the labels of the answer, in a tuple if it is one."""
        X = self.X if isinstance(self.X, tuple) else (self.X,)
        parts = tuple(_labeled(own, like) for own, like in zip(found, X, strict=True))
        return parts if isinstance(self.X, tuple) else parts[0]

    def _elements(self, u: Mapping[str, Any] | None) -> Array:
        """Return the gradients of all ordinary variables, shape ``(k,)``."""
        elements, places = np.zeros(self.optimum.program.k), _columns(self.optimum.program)
        for name, value in (u or {}).items():
            if name not in places:
                raise ValueError(f"u has {name!r}; expected names of variables: {', '.join(places)}")
            place, like = places[name], np.asarray(self.u[name])
            given = finite_array(value, f"u[{name!r}]")
            if given.shape != like.shape:
                raise ValueError(f"u[{name!r}] has shape {given.shape}; expected {like.shape}")
            if like.size == place.stop - place.start:
                elements[place] = given.ravel()
            else:  # a symmetric matrix, whose elements are on and above the diagonal
                i, j = np.triu_indices(len(like))
                elements[place] = np.where(i == j, 1.0, 2.0) * ((given + given.T) / 2)[i, j]
        return elements

    def _named(self, elements: Array) -> dict[str, Any]:
        """Return the changes of the user's variables by name."""
        places = _columns(self.optimum.program)
        return {name: _like(elements[places[name]], value) for name, value in self.u.items()}


def derivative_of(solution: Any) -> Derivative:
    """Return the derivative of an answer, without a check of its existence.

    Parameters
    ----------
    solution : Solution

    Raises
    ------
    ValueError
        If there is no answer, or its optimality conditions have no linearization.
    """
    raw = solution if solution._raw is None else solution._raw
    program = raw._program
    if raw.X is None or raw.duals is None or program is None:
        raise ValueError(f"the answer is {solution.status}; expected an optimal one to differentiate")
    _check(program, solution.X)
    reduced, anchors = anchors_of(program)
    X = [
        _on_range(X, anchor) if isinstance(X, LowRank) else X
        for X, anchor in zip(raw.X, anchors, strict=True)
    ]
    at = refined(reduced, X, raw.u, raw.duals, raw._S)
    restated = solution._restated
    if isinstance(solution.X, LowRank) and restated is not None:
        if len(restated.i):
            raise ValueError(
                "fixed entries of a LowRank A change with its factor; their derivative is not known"
            )
        restated = None
    chain = None if solution._compiled is None else solution._compiled.chain()
    found = Derivative(
        at, anchors, at.differentiability(), restated, chain, solution.X, _variables(solution, program)
    )
    _check_same(found)
    return found


def check_exists(found: Differentiability) -> None:
    """Raise where the derivative does not exist, warn where the answer is near such a point.

    Raises
    ------
    ValueError
        If an eigenvalue, a multiplier or a slack is zero up to round-off, or the answer is not accurate.
    """
    if found.residual > LARGEST_RESIDUAL:
        raise ValueError(
            "the answer has no derivative that could be found: Newton's method ends at a residual of "
            f"{found.residual:.1e} of the optimality conditions; expected at most {LARGEST_RESIDUAL:g}. "
            "Multipliers may not be unique or not attained; sol.differentiability() has the margins"
        )
    where = min(_REASONS, key=lambda name: float(getattr(found, name)))
    if found.margin < SMALLEST_MARGIN:
        raise ValueError(
            f"the answer has no derivative: {_REASONS[where]} ({found.margin:.1e}, relative; expected above "
            f"{SMALLEST_MARGIN:g}). Nearby data have different one-sided derivatives"
        )
    if found.margin < SMALL_MARGIN:
        warn_caller(
            f"the derivative is valid for very small changes of the data only: {_REASONS[where]} but for "
            f"{found.margin:.1e}, relative",
            DataWarning,
        )


def _check(program: Program, X: Any) -> None:
    if program.cones.count:
        raise ValueError(
            f"the problem has {program.cones.count} second-order cones; derivatives are known for rows and "
            "matrices"
        )
    if any(np.iscomplexobj(own) for own in (X if isinstance(X, tuple) else (X,))):
        raise ValueError("the answer is Hermitian; derivatives are known for real matrices")
    for block in program.blocks:
        if block.nearness is not None and not any(map(block.nearness.kind.offers, ("spectrum", "weights"))):
            raise ValueError(f"{block.nearness.kind.phrase()} has no spectrum, so its answers no derivative")
        if block.cap is not None and (block.nearness is None or block.nearness.kind.barrier):
            raise ValueError(
                f"{block.name} has a bound on its eigenvalues and neither the Frobenius nor the von Neumann "
                "divergence; write it as X << c I"
            )


def _check_same(derivative: Derivative) -> None:
    """Refuse an answer that was changed after the solve in a way that is not known here."""
    X = derivative.X if isinstance(derivative.X, tuple) else (derivative.X,)
    for own, anchor, point in zip(X, derivative.anchors, derivative.optimum.points, strict=False):
        if isinstance(own, LowRank):
            continue
        here = point.X if derivative.restated is None else derivative.restated.tangent(point.X)
        shift = np.asarray(own) - anchor.outside(here, derivative.optimum, None)
        if derivative.restated is not None:
            np.fill_diagonal(shift, 0.0)  # the restated matrix is shifted by a multiple of the identity
        moved = float(np.linalg.norm(shift))
        if moved > LARGEST_CHANGE * max(float(np.linalg.norm(here)), float(np.linalg.norm(own))):
            raise ValueError(
                f"the answer moves by {moved:.1e} when it is refined; expected a more accurate one (a "
                "smaller tol), or the answer of the problem itself if X was changed after the solve"
            )


def _variables(solution: Any, program: Program) -> Mapping[str, Any]:
    """Return the values of the variables by name; an answer in the program's terms has all in one array."""
    if isinstance(solution.u, Mapping):
        return solution.u
    return {name: solution.u[place] for name, place in _columns(program).items()}


def _on_range(X: LowRank, anchor: Any) -> Array:
    half: Array = anchor.V.T @ X.factor
    return half @ half.T


def _columns(program: Program) -> dict[str, slice]:
    """Return the place of each ordinary variable by name."""
    places, start = {}, 0
    for name, size in program.columns:
        places[name] = slice(start, start + size)
        start += size
    return places


def _like(elements: Array, value: Any) -> Any:
    """Return elements of a variable in the shape of its value."""
    shape = np.shape(value)
    if len(elements) == np.size(value):
        return elements.reshape(shape) if shape else float(elements[0])
    matrix = np.zeros(shape)
    i, j = np.triu_indices(shape[0])
    matrix[i, j] = matrix[j, i] = elements
    return matrix


def _unlabeled(value: Any, like: Any, name: str) -> Any:
    """Return a matrix without its labels, after comparing them with those of the answer."""
    index = getattr(value, "index", None)
    own = getattr(like, "index", None)
    if index is None or callable(index) or own is None:
        return value
    if not (own.equals(index) and own.equals(value.columns)):
        raise ValueError(
            f"{name} is a DataFrame with other labels; expected those of the answer, in its order"
        )
    return value.to_numpy()


def _labeled(found: Array, like: Any) -> Any:
    if not hasattr(like, "columns"):
        return found
    return type(like)(found, index=like.index, columns=like.columns)
