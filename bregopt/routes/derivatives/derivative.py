"""The derivative of an answer in the data of its problem, forwards and backwards.

First comes which answers are differentiated: what is accepted, refined, and near a point without a
derivative. One nearest correlation matrix is differentiated where Newton's method has left it.

A change of the data changes the optimality conditions by slopes ``E`` of the matrices' terms, right-hand
sides ``r`` of the rows that act, costs ``t`` of variables, and multipliers of hinges that are paid. The
answer changes by the solution of the linearized conditions; their matrix is symmetric, so that the gradient
of a function of the answer needs one system with the same matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bregopt.arrays import Array, finite_array, hermitian_matrix
from bregopt.errors import DataWarning, warn_caller
from bregopt.program import LowRank, Program
from bregopt.records import cached_property, dataclass
from bregopt.routes.derivatives.convex_terms import ConvexOptimum, refined_terms
from bregopt.routes.derivatives.optimum import Differentiability, Optimum, refined
from bregopt.routes.derivatives.stacks import SMALLEST_MARGIN, Congruence, StackedCorrelations
from bregopt.routes.derivatives.system import Adjoint, Anchor, Change, anchors_of, symmetric_part

SMALL_MARGIN = 1e-5  # below it a warning is given; this and the next ones are relative
RESIDUAL = 1e-10  # of the optimality conditions at which Newton's method ends
LARGEST_RESIDUAL = 1e-7  # at which the answer can still be differentiated
LARGEST_CHANGE = 0.05  # of an answer by its refinement
_SHOWN = 5  # unknown entries that a message names
_REASONS = {
    "eigenvalue": "an eigenvalue of X - Z is zero",
    "multiplier": "a row that acts has no multiplier",
    "slack": "a row without a multiplier is at its bound",
}
_CHANGED = (
    "the answer is not the one of its problem: X was changed after the solve, as some ready-made problems "
    "do, or it is inaccurate; expected the answer of a problem itself, at a smaller tol"
)


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
    restated = solution._restated
    if isinstance(restated, str):
        raise ValueError(restated)
    raw = solution._in_program or solution
    program = raw._program
    if raw.X is None or raw.duals is None:
        raise ValueError(f"the answer is {solution.status}; expected an optimal one to differentiate")
    if program is None:
        raise ValueError(
            "the answer has no program of its own, like one of a stack: solve the problem alone first"
        )
    compiled = solution._compiled or raw._compiled
    if program.tangent is not None:
        program = program.tangent.program
    _check_real(solution, program, compiled)
    if isinstance(solution.X, LowRank) and restated is not None:
        if len(restated.i):
            raise ValueError(
                "fixed keeps entries of a LowRank A, which change with its factor; derivatives need a dense A"
            )
        restated = None
    at, anchors = optimum_of(program, raw)
    chain = None if compiled is None else compiled.chain()
    places = columns(program)
    if isinstance(solution.u, Mapping):  # by name; slacks that follow from hinges are no variables
        u = {name: value for name, value in solution.u.items() if name in places}
    else:  # an answer in the program's terms
        u = {name: solution.u[place] for name, place in places.items()}
    found = Derivative(at, anchors, at.differentiability(), restated, chain, solution.X, u)
    _check_same(found)
    return found


def optimum_of(
    program: Program, answer: Any, enough: float = RESIDUAL
) -> tuple[Optimum | ConvexOptimum, tuple[Anchor, ...]]:
    """Return an answer to a program after Newton's method, and the data of each block.

    Parameters
    ----------
    program : Program
    answer : Solution
        In the program's terms.
    enough : float
        The residual of the optimality conditions at which Newton's method ends.

    Raises
    ------
    ValueError
        If derivatives of such a program are not known, or its optimality conditions have no linearization.
    """
    _check(program)
    reduced, anchors = anchors_of(program)
    if program.terms:
        return refined_terms(program, answer.X, answer.u, answer.duals, enough), anchors
    blocks = zip(answer.X, anchors, strict=True)
    X = [_on_range(X, anchor) if isinstance(X, LowRank) else X for X, anchor in blocks]
    return refined(reduced, X, answer.u, answer.duals, answer._S, enough), anchors


def check_exists(found: Differentiability, program: Program | None = None, X: Any = None) -> None:
    """Raise where the derivative does not exist, warn where the answer is near such a point.

    Parameters
    ----------
    found : Differentiability
    program : Program, optional
        Whose entries without weight may be the reason.
    X : DataFrame, optional
        The answer, whose labels name these entries.

    Raises
    ------
    ValueError
        If an eigenvalue, a multiplier or a slack is zero up to round-off, or the answer is not accurate.
    """
    if found.residual == np.inf:
        raise ValueError(f"the answer has no derivative: {_without_weight(program, X)}")
    if found.residual > LARGEST_RESIDUAL:
        raise ValueError(
            "the answer has no derivative that could be found: Newton's method ends at a residual of "
            f"{found.residual:.1e} of the optimality conditions; expected at most {LARGEST_RESIDUAL:g}. "
            + (
                _without_weight(program, X)
                or "Multipliers may not be unique or not attained; sol.differentiability() has the margins"
            )
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


def _without_weight(program: Program | None, X: Any = None) -> str:
    """Return what entries without weight do to an answer, and the remedy; empty if there are none."""
    for block in () if program is None else program.blocks:
        if block.nearness is not None and block.nearness.kind.weights:
            i, j = np.nonzero(np.triu(block.nearness.parameters["weights"] == 0, 1))
            names = getattr(X, "columns", range(block.n))
            shown = [f"({names[a]}, {names[b]})" for a, b in zip(i[:_SHOWN], j[:_SHOWN], strict=True)]
            if shown:
                some = ", ".join([*shown, *(["..."] if len(i) > _SHOWN else [])])
                return (
                    f"{len(i)} entries of {block.name} are unknown (their weight is 0), so the answer need "
                    f"not be unique in them: {some}. Give them a guess and a small weight, such as 0.1"
                )
    return ""


def _check_real(solution: Any, program: Program, compiled: Any) -> None:
    """Refuse complex data; with convex terms matrices may be Hermitian."""
    hermitian = any(np.iscomplexobj(own) for own in _all_of(solution.X))
    if hermitian and not program.terms:
        raise ValueError("the answer is Hermitian; derivatives are known for real matrices")
    if compiled is not None and compiled.is_complex:
        operands = [*compiled.variables, *compiled.parameters]
        if not program.terms or any(operand.whole is not operand for operand in operands):
            raise ValueError(
                "the problem has complex variables, parameters or matrix inequalities; derivatives are known "
                "for real ones"
            )


def _check(program: Program) -> None:
    """Refuse programs whose derivatives are not known."""
    if program.tangent is not None:
        raise ValueError(
            "the program has tangents in place of its convex terms; expected the terms themselves"
        )
    if program.cones.count:
        raise ValueError(
            f"the problem has {program.cones.count} second-order cones; derivatives are known for rows and "
            "matrices"
        )
    for block in program.blocks:
        if block.nearness is not None:
            kind = block.nearness.kind
            if not (kind.offers("spectrum") or kind.offers("weights")):
                raise ValueError(f"{kind.phrase()} has no spectrum, so its answers no derivative")
            if not kind.offers("anchor_derivative"):
                raise ValueError(f"{kind.phrase()} has no anchor_derivative, so its answers no derivative")
        if block.cap is not None and (block.nearness is None or block.nearness.kind.barrier):
            raise ValueError(
                f"{block.name} has a bound on its eigenvalues and neither the Frobenius nor the von Neumann "
                "divergence; write it as X << c I"
            )


def _check_same(derivative: Derivative) -> None:
    """Refuse an answer that was changed after the solve in a way that is not known here."""
    for own, anchor, M in zip(_all_of(derivative.X), derivative.anchors, derivative.optimum.X, strict=False):
        if isinstance(own, LowRank):
            continue
        own = real_form(own) if np.iscomplexobj(own) else own
        if np.shape(own) != M.shape:
            raise ValueError(_CHANGED)
        here = M if derivative.restated is None else derivative.restated.tangent(M)
        shift = np.asarray(own) - anchor.outside(here, derivative.optimum, None)
        if derivative.restated is not None:
            np.fill_diagonal(shift, 0.0)  # the restated matrix is shifted by a multiple of the identity
        moved = float(np.linalg.norm(shift))
        if moved > LARGEST_CHANGE * max(float(np.linalg.norm(here)), float(np.linalg.norm(own))):
            unknown = _without_weight(derivative.optimum.program, derivative.X)
            raise ValueError(f"the answer has no derivative: {unknown}" if unknown else _CHANGED)


def _on_range(X: LowRank, anchor: Any) -> Array:
    half: Array = anchor.V.T @ X.factor
    return half @ half.T


@dataclass(frozen=True, eq=False)
class Products:
    """Products with the derivative and its transpose: those of :class:`Derivative` in ``data`` alone.

    Parameters
    ----------
    at : StackedCorrelations
        A stack of one.
    """

    at: StackedCorrelations

    @classmethod
    def of(cls, divergence: str, A: Array, y: Array) -> Products:
        """Return those of the nearest correlation matrix to `A` with the multipliers `y` of its rows."""
        return cls(StackedCorrelations.of_rows(divergence, A[None], y[None]).refined())

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
        S = symmetric_part(_unlabeled(S, like, name), len(like), name)
        return _labeled_like(product(S[None])[0], like)


class Chain(Protocol):
    """The parameters of a problem, and how the data of its program depend on them."""

    def gradient(self, derivative: Derivative, found: Adjoint) -> dict[Any, Array]:
        """Return the gradients in all parameters."""
        ...

    def of_value(self, derivative: Derivative) -> dict[Any, Array]:
        """Return the gradients of the minimal value in all parameters."""
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

    optimum: Optimum | ConvexOptimum
    anchors: tuple[Anchor, ...]
    differentiability: Differentiability
    restated: Congruence | None
    chain: Chain | None
    X: Any
    u: Mapping[str, Any]

    def __repr__(self) -> str:
        at, found = self.optimum, self.differentiability
        matrices = [f"{block.name} ({block.n} x {block.n})" for block in at.program.blocks]
        return (
            f"Derivative of {', '.join([*matrices, *self.u])}, with vjp and jvp: {len(at.rows)} of "
            f"{at.program.m} rows act, margin {found.margin:.1e}, residual {found.residual:.1e}"
        )

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
        inside: list[Array | None] = [None] * len(at.X)
        for b, G in enumerate(given):
            if G is not None:
                inside[b] = self.anchors[b].inside(self._pulled(G, b))
        found = at.adjoint(inside, self._elements(u))
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
        found = at.tangent(Change(tuple(slopes), rows, total.u, total.paid))
        X = []
        for b in range(self.count):
            dX = found.X[b]
            assert dX is not None
            own = self.anchors[b].outside(dX, at, changes[b])
            X.append(own if self.restated is None else self.restated.tangent(own))
        return Tangent(self._like_answer(X), self._named(found.u), found.rows)

    def value(self) -> dict[Any, Array]:
        """Return the gradient of the optimal value in the parameters, by the envelope theorem.

        Returns
        -------
        dict from Parameter to array

        Raises
        ------
        ValueError
            If a parameter weighs soft rows, or the answer depends on it in a way that is not known here.
        """
        found = self.required_chain().of_value(self)
        return {p: -own if self.optimum.program.maximize else own for p, own in found.items()}

    @property
    def count(self) -> int:
        """The number of the user's matrices; those of matrix inequalities follow them."""
        return len(_all_of(self.X))

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
        none = (None,) * len(at.X)
        return Change(none, np.zeros(at.program.m), np.zeros(at.program.k), np.zeros(at.program.m))

    def _pulled(self, G: Any, b: int) -> Any:
        if self.restated is None:
            return G
        return self.restated.cotangent(symmetric_part(G, self.optimum.program.blocks[b].n, "G"))

    def _each(self, value: Any, name: str) -> list[Any]:
        """Return one value for each of the user's matrices, without labels."""
        if not isinstance(self.X, tuple):
            value = (value,)
        elif value is None:
            return [None] * len(self.X)
        elif not isinstance(value, tuple | list) or len(value) != len(self.X):
            raise TypeError(f"{name} is {type(value).__name__}; expected a tuple of {len(self.X)} matrices")
        given = [_unlabeled(own, X, name) for own, X in zip(value, _all_of(self.X), strict=True)]
        return [
            _hermitian_part(own, X, name) if own is not None and np.iscomplexobj(X) else own
            for own, X in zip(given, _all_of(self.X), strict=True)
        ]

    def _like_answer(self, found: Sequence[Array]) -> Any:
        """Return matrices with the labels of the answer, in a tuple if it is one."""
        parts = tuple(_labeled_like(own, like) for own, like in zip(found, _all_of(self.X), strict=True))
        return parts if isinstance(self.X, tuple) else parts[0]

    def _elements(self, u: Mapping[str, Any] | None) -> Array:
        """Return the gradients of all ordinary variables, shape ``(k,)``."""
        elements, places = np.zeros(self.optimum.program.k), columns(self.optimum.program)
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
        places = columns(self.optimum.program)
        return {name: _like(elements[places[name]], value) for name, value in self.u.items()}


def _all_of(X: Any) -> tuple[Any, ...]:
    """Return all matrices of an answer, whether it has one or several."""
    return X if isinstance(X, tuple) else (X,)


def columns(program: Program) -> dict[str, slice]:
    """Return the place of each ordinary variable by name."""
    places, start = {}, 0
    for name, size in program.columns:
        places[name] = slice(start, start + size)
        start += size
    return places


def _hermitian_part(value: Any, like: Any, name: str) -> Array:
    """Return half of the real form of a Hermitian matrix: inner products with it are those of the matrix."""
    return real_form(hermitian_matrix(value, name, len(like))) / 2


def real_form(M: Any) -> Array:
    """Return ``[Re M, -Im M; Im M, Re M]``."""
    return np.block([[M.real, -M.imag], [M.imag, M.real]])


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


def _labeled_like(found: Array, like: Any) -> Any:
    """Return a matrix with the labels of the answer, if it has some, complex if that is."""
    if np.iscomplexobj(like):
        n = len(like)
        return found[:n, :n] + 1j * found[n:, :n]
    if not hasattr(like, "columns"):
        return found
    return type(like)(found, index=like.index, columns=like.columns)
