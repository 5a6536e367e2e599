"""The base of convex and concave atoms, what an atom becomes in a program, and the rules of composition.

Of a symmetric matrix among the arguments mirrored elements are one.

The rules are those of disciplined convex programming (Grant, Boyd, Ye 2006): a sum has the curvature that its
terms share, and ``f(g(x))`` is convex if ``f`` is convex and ``g`` is affine, or convex where ``f`` is
nondecreasing, or concave where ``f`` is nonincreasing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import Array
from bregopt.modeling.affine import Affine, random_values
from bregopt.modeling.constraints import Constraint, MatrixInequality, SecondOrderConstraint, SoftPenalty
from bregopt.modeling.expressions import Expression
from bregopt.modeling.variables import PSD, Parameter
from bregopt.program import Nearness
from bregopt.program.convex_functions import ConvexFunction
from bregopt.program.rows.base import Matrix
from bregopt.records import dataclass, replace

Row = Constraint | MatrixInequality | SecondOrderConstraint
_ROUND_OFF = 1e-12  # relative difference of mirrored elements that counts as none


@dataclass(frozen=True, eq=False)
class DivergenceTerm:
    """``weight * D(X, X0)``, where the weight is a number times at most one scalar of parameters.

    `X0` and the `parameters` of the divergence may be a :class:`Parameter`; `current` then returns the atom
    with their values, and `complemented` tells whether it lifts the null space of ``X0``. If the variable is
    Hermitian, ``X`` and ``X0`` are real forms, with `copies` of each eigenvalue.
    """

    divergence: str
    X: PSD
    X0: Matrix | Parameter
    weight: float = 1.0
    parameter: Expression | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    current: Callable[[], Any] | None = None
    copies: int = 1
    complemented: bool = False

    @property
    def data(self) -> tuple[Parameter, ...]:
        """The parameters among ``X0`` and the parameters of the divergence."""
        return tuple(p for p in (self.X0, *self.parameters.values()) if isinstance(p, Parameter))

    def nearness(self, mu: float) -> Nearness:
        """Return the divergence with a weight, at the current values of parameters."""
        own = self if self.current is None else self.current()
        assert not isinstance(own.X0, Parameter)
        return Nearness(self.divergence, own.X0, mu, own.parameters)


@dataclass(frozen=True, eq=False)
class ConvexPart:
    """``weight @ f(arguments)``, times at most one scalar of parameters."""

    function: ConvexFunction
    arguments: Expression
    weight: Array
    parameter: Expression | None = None


@dataclass(frozen=True, eq=False)
class Parts:
    """An atom in an objective as rows, divergences, convex terms and an affine expression."""

    rows: Sequence[Row] = ()
    divergences: Sequence[DivergenceTerm] = ()
    affine: Expression | None = None
    terms: Sequence[ConvexPart] = ()


class Atom(ABC):
    """A convex or concave function of operands, of a fixed shape.

    A subclass defines `numbers` and `epigraph`, and what differs from the defaults here.

    Attributes
    ----------
    name : str
    convex : bool
        Whether it is convex; otherwise it is concave.
    objective_only : bool
        Whether it has no epigraph.
    rises, even : bool
        Whether it is nondecreasing in all arguments, or in their absolute values.
    paid_as : (sense, kind) or None
        Of the soft rows with zero that it is in an objective, element by element.
    arguments : tuple of Operand
    shape : tuple of int
    sign : int
        1 if its values are never negative, -1 if never positive, otherwise 0.
    divergence : str or None
        The name of a divergence, None for other atoms.
    """

    name: ClassVar[str]
    convex: ClassVar[bool] = True
    objective_only: ClassVar[bool] = False
    rises: ClassVar[bool] = False
    even: ClassVar[bool] = False
    paid_as: ClassVar[tuple[str, str] | None] = None
    sign: int = 0
    divergence: str | None = None

    def __init__(self, *arguments: Any, shape: tuple[int, ...] = ()) -> None:
        self.arguments, self.shape = arguments, shape
        check_composition(self)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def label(self) -> str:
        """The atom and its arguments in messages."""
        return f"{self.name}({', '.join(text_of(a) for a in self.arguments)})"

    @property
    def value(self) -> Any:
        """The number or array at the current values, None if a variable or parameter has none."""
        values = [a.value for a in self.arguments]
        if any(value is None for value in values):
            return None
        return self.numbers(*(np.asarray(value) for value in values))

    def monotonicity(self) -> tuple[int, ...]:
        """Return for each argument 1 if the atom is nondecreasing in it, -1 if nonincreasing, otherwise 0."""
        return tuple(sign_of(a) if self.even else int(self.rises) for a in self.arguments)

    def leaves(self) -> Iterable[Any]:
        """Yield the variables and matrix variables that occur in the arguments."""
        for argument in self.arguments:
            yield from leaves(argument)

    @abstractmethod
    def numbers(self, *values: Array) -> Any:
        """Return the value at numerical arguments."""

    @abstractmethod
    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        """Return rows and cones that hold, for some values of new variables, if and only if ``t >= atom``.

        For a concave atom it is ``t <= atom``. All arguments are affine.
        """

    def paid(self, weights: Array, parameter: Expression | None, *arguments: Any) -> Parts | None:
        """Return ``weights @ atom``, times a parameter, as parts of a minimized objective.

        None takes the epigraph. The sign of the weights makes the term convex, and arguments are affine.
        """
        if self.paid_as is None:
            return None
        (x,), (sense, kind) = arguments, self.paid_as
        return Parts([soft_rows(x, sense, np.abs(weights) * np.ones(x.size), parameter, kind)])

    @staticmethod
    def bound(factors: Sequence[float], atoms: Sequence[Any], bound: Expression, label: str) -> Any:
        """Return a constraint of its own for ``factors @ atoms <= bound``, None for an epigraph."""
        return None


def leaves(e: Any) -> Iterable[Any]:
    """Yield the variables and matrix variables that occur in an operand."""
    if isinstance(e, Affine):
        yield from (*e.operands("psd"), *e.operands("variables"))
    elif hasattr(e, "terms"):
        yield from leaves(e.affine)
        for term in e.terms:
            yield from term.atom.leaves()
    else:
        yield e


def soft_rows(
    e: Expression, sense: str, weights: Array, parameter: Expression | None, kind: str
) -> Constraint:
    """Return rows ``e sense 0`` whose violations, their squares, or minus logarithms, are paid by weights.

    Mirrored elements of a symmetric matrix are one row.
    """
    if is_symmetric(e):
        n, both = e.shape[0], weights.reshape(e.shape)
        weights = (np.triu(both) + np.tril(both, -1).T)[np.triu_indices(n)]
    e, _ = distinct(e)
    gamma: Any = weights
    if not weights.all():
        paying = np.flatnonzero(weights)
        e, gamma = e.taken(paying, (len(paying),), e.label), weights[paying]
    if parameter is not None:
        gamma = parameter.times(gamma)
    bound = e.constant_part().times(-1.0)
    lower, upper = None if sense == "<=" else bound, None if sense == ">=" else bound
    return Constraint(e.variable_part(), lower, upper, sense, SoftPenalty(gamma, kind))


def replaced(e: Affine, u: Any, value: Expression) -> Affine:
    """Return an affine expression with an expression in place of a variable."""
    matrix = e.variables.get(u)
    if matrix is None:
        return e
    return e.without(u).plus(value.combined(matrix, e.shape, e.label))


def distinct(e: Expression) -> tuple[Expression, Array]:
    """Return the elements as a vector, with multiplicities: mirrored ones of a symmetric matrix are one."""
    if not is_symmetric(e):
        return replace(e, shape=(e.size,)), np.ones(e.size)
    n = e.shape[0]
    i, j = np.triu_indices(n)
    return e.taken(n * i + j, (len(i),), e.label), np.where(i == j, 1.0, 2.0)


def svec(e: Expression) -> Expression:
    """Return a vector of the same Euclidean norm; mirrored elements of a symmetric matrix are one."""
    elements, count = distinct(e)
    return elements if elements.size == e.size else elements.times(np.sqrt(count))


def is_symmetric(e: Affine, at_zero: bool = False) -> bool:
    """Whether an affine expression is a symmetric matrix of order two or more.

    Parameters
    ----------
    e : Affine
    at_zero : bool
        Whether all parameters are zero; otherwise they have any values.
    """
    if len(e.shape) != 2 or e.shape[0] != e.shape[1] or e.shape[0] < 2:
        return False
    values = random_values(e)
    if at_zero:
        values |= {p: np.zeros(p.size) for p in e.operands("parameters")}
    F = np.asarray(e.at(values))
    return bool(np.abs(F - F.T).max() <= _ROUND_OFF * np.abs(F).max())


class Curvature(StrEnum):
    """The curvature of an expression."""

    AFFINE = "affine"
    CONVEX = "convex"
    CONCAVE = "concave"
    UNKNOWN = "neither convex nor concave"


_RULES = {
    "above": "a concave expression may be bounded from below only",
    "below": "a convex expression may be bounded from above only",
    "minimized": "a concave expression may be maximized only",
    "maximized": "a convex expression may be minimized only",
    "equated": "only affine expressions may be equated",
}
_MONOTONE = {1: "nondecreasing", -1: "nonincreasing", 0: "not monotone"}
_PLACES = ("its argument", "its second argument", "its third argument")


def curvature_of(e: Any) -> Curvature:
    """Return the curvature of an operand by the rule for sums."""
    terms = getattr(e, "terms", ())
    if not terms:
        return Curvature.AFFINE
    directions = {term.direction for term in terms}
    return {(1,): Curvature.CONVEX, (-1,): Curvature.CONCAVE}.get(tuple(directions), Curvature.UNKNOWN)


def sign_of(e: Any) -> int:
    """Return 1 if all elements of an operand are known to be from 0 up, -1 if from 0 down, otherwise 0."""
    terms = getattr(e, "terms", ())
    affine = e.affine if terms else e.expression()
    signs = {term.sign for term in terms}
    if affine.constant.any() or not affine.is_constant or affine.parameters:
        signs.add(_affine_sign(affine))
    return signs.pop() if len(signs) == 1 else 0


def check_bounded(left: Any, right: Any, sense: str) -> None:
    """Raise a TypeError unless the lesser side of a comparison is convex and the greater one concave."""
    lesser, greater = (left, right) if sense == "<=" else (right, left)

    def written() -> str:
        return f"{text_of(left)} {sense} {text_of(right)}"

    _require(lesser, Curvature.CONVEX, written, "above")
    _require(greater, Curvature.CONCAVE, written, "below")
    for side in (left, right):
        _refuse_unbounded(side, written)


def check_equated(left: Any, right: Any) -> None:
    """Raise a TypeError unless both sides of an equation are affine."""

    def written() -> str:
        return f"{text_of(left)} == {text_of(right)}"

    _require(left, Curvature.AFFINE, written, "equated")
    _require(right, Curvature.AFFINE, written, "equated")


def check_objective(objective: Any) -> None:
    """Raise a TypeError unless an objective is convex and minimized, or concave and maximized."""
    minimized = objective.sign > 0
    wanted = Curvature.CONVEX if minimized else Curvature.CONCAVE
    _require(objective.expression, wanted, lambda: repr(objective), "minimized" if minimized else "maximized")


def check_composition(atom: Any) -> None:
    """Raise a TypeError unless an atom of its arguments has the curvature of the atom."""
    for k, argument in enumerate(atom.arguments):
        found = curvature_of(argument)
        if found is Curvature.AFFINE:
            continue
        rises = atom.monotonicity()[k]
        wanted = rises if atom.convex else -rises
        needed = {1: Curvature.CONVEX, -1: Curvature.CONCAVE, 0: Curvature.AFFINE}[wanted]
        place = _PLACES[k] if len(atom.arguments) <= len(_PLACES) else f"argument {k}"
        own = Curvature.CONVEX if atom.convex else Curvature.CONCAVE
        _refuse_unbounded(argument, lambda: str(atom.label))
        if found is not needed:
            raise TypeError(
                f"{atom.label} is not {own}: {atom.name} is {own} and {_MONOTONE[rises]} here, so {place} "
                f"must be {needed if needed is Curvature.AFFINE else f'affine or {needed}'}, and "
                f"{_said(argument, found)}"
            )


def text_of(side: Any) -> str:
    """Return the text of an operand, or of numbers, in a message."""
    side = side.affine if hasattr(side, "terms") and not side.terms else side
    if isinstance(side, Affine) and side.is_constant and not side.parameters:
        return f"{side.constant[0]:g}" if np.ptp(side.constant) == 0 else "b"
    return str(getattr(side, "full_label", None) or side.name)


def _require(e: Any, wanted: Curvature, written: Callable[[], str], rule: str) -> None:
    found = curvature_of(e)
    if found not in (Curvature.AFFINE, wanted):
        raise TypeError(f"{written()} is not convex: {_said(e, found)}, and {_RULES[rule]}")


def _said(e: Any, found: Curvature) -> str:
    """Return a clause on the curvature that was found."""
    if found is not Curvature.UNKNOWN:
        return f"{text_of(e)} is {found}"
    parts = {1: Curvature.CONVEX, -1: Curvature.CONCAVE, 0: Curvature.UNKNOWN}
    named = [f"{term.label} ({parts[term.direction]})" for term in e.terms]
    return f"{text_of(e)} is {found}: it adds {' and '.join(named)}"


def _refuse_unbounded(e: Any, written: Callable[[], str]) -> None:
    """Refuse atoms that may stand in an objective only."""
    for term in getattr(e, "terms", ()):
        if term.atom.objective_only:
            raise TypeError(f"{written()}: a divergence may be minimized only, as a term of the objective")


def _affine_sign(e: Affine) -> int:
    if e.parameters or e.products:
        return 0
    signs = {float(s) for s in np.unique(np.sign(e.constant)) if s}
    for u, matrix in e.variables.items():
        own = np.where(u.lower >= 0, 1.0, np.where(u.upper <= 0, -1.0, np.nan))
        found = np.sign(matrix.data) * own[matrix.indices]
        signs |= set(np.unique(found[matrix.data != 0]).tolist())
    for rows in e.psd.values():
        at = rows.nonzero()
        signs |= {float(s) or np.nan for s in rows.definite_signs()[at]}
    return int(signs.pop()) if signs in ({1.0}, {-1.0}) else 0
