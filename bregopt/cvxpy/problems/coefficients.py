"""Rows of coefficients of CVXPY's variables and parameters, and the elements that they weigh.

A row is a weighted sum of elements of an expression. Elements are numbered by columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.errors import UnsupportedProblemError
from bregopt.records import dataclass

__all__ = [
    "Coefficients",
    "ConvexTerm",
    "Elements",
    "Quadratics",
    "broadcast",
    "constant_value",
    "every_element",
    "joined",
    "one_number",
]


@dataclass(frozen=True, eq=False)
class Elements:
    """Weighted elements of an expression: row ``row[k]`` holds ``weight[k]`` times element ``at[k]``."""

    row: IntArray
    at: IntArray
    weight: Array

    def moved(self, at: IntArray) -> Elements:
        """Return the same rows and weights on the elements `at` of an argument."""
        return Elements(self.row, at, self.weight)

    def times(self, weight: Any) -> Elements:
        """Return the elements with their weights multiplied."""
        return Elements(self.row, self.at, self.weight * weight)

    def taken(self, k: IntArray, at: IntArray, weight: Any) -> Elements:
        """Return ``weight[l]`` times element ``at[l]`` of an argument for element ``k[l]``, for all ``l``."""
        return Elements(self.row[k], at, self.weight[k] * weight)


@dataclass(frozen=True, eq=False)
class Quadratics:
    """Row ``row[k]`` holds ``weight[k] z_k'X z_k``; the ``z_k`` are the rows of `Z`."""

    row: IntArray
    Z: Array
    weight: Array

    def elements(self) -> Elements:
        """Return the forms term by term."""
        m, n = self.Z.shape
        weight = (self.weight[:, None, None] * self.Z[:, :, None] * self.Z[:, None, :]).ravel()
        return Elements(np.repeat(self.row, n * n), np.tile(np.arange(n * n), m), weight)


@dataclass(frozen=True, eq=False)
class ConvexTerm:
    """Weighted elements of an atom in an objective that is not affine."""

    name: str
    atom: Any
    elements: Elements


@dataclass(eq=False)
class Coefficients:
    """The coefficients of `m` rows: constants, and weighted elements of variables and parameters.

    Parameters
    ----------
    m : int
    constant : array of shape (m,)
    elements : dict from cvxpy.Variable to list of Elements
    quadratics : dict from cvxpy.Variable to list of Quadratics
        Quadratic forms of symmetric variables.
    convex_terms : list of ConvexTerm, or None if everything must be affine
    parameters : dict from cvxpy.Parameter to list of Elements, or None if their values are substituted
        Parameters that are added to the rows.
    frozen : set of cvxpy.Parameter
        Parameters whose values are substituted, because they are factors or arguments of other atoms.
    """

    m: int
    constant: Array
    elements: dict[Any, list[Elements]] = field(default_factory=dict)
    quadratics: dict[Any, list[Quadratics]] = field(default_factory=dict)
    convex_terms: list[ConvexTerm] | None = None
    parameters: dict[Any, list[Elements]] | None = None
    frozen: set[Any] = field(default_factory=set)

    @property
    def variables(self) -> list[Any]:
        """The variables of the rows, each once."""
        return list(dict.fromkeys([*self.elements, *self.quadratics]))

    def numbers(self, expression: Any, keep_sparse: bool = False) -> Any:
        """Return the value of a constant expression; its parameters become `frozen`."""
        self.frozen.update(expression.parameters())
        return constant_value(expression, keep_sparse)

    def add_constant(self, elements: Elements, value: Array) -> None:
        """Add weighted elements of a constant expression, whose values are given by columns."""
        self.constant += np.bincount(elements.row, elements.weight * value[elements.at], self.m)


def every_element(expression: Any) -> Elements:
    """Return a row for each element of an expression, by columns."""
    order = np.arange(expression.size)
    return Elements(order, order, np.ones(expression.size))


def one_number(expression: Any) -> float:
    """Return the value of a constant scalar expression."""
    return float(constant_value(expression).ravel()[0])


def broadcast(argument: Any, shape: tuple[int, ...], at: IntArray) -> IntArray:
    """Return the elements of an argument at the elements `at` of the shape that it is broadcast to."""
    if argument.shape == shape:
        return at
    numbers = np.arange(argument.size).reshape(argument.shape, order="F")
    return np.broadcast_to(numbers, shape).ravel(order="F")[at]


def constant_value(expression: Any, keep_sparse: bool = False) -> Any:
    """Return the value of a constant expression as an array; `keep_sparse` keeps a sparse value sparse."""
    value = expression.value
    if value is None:
        names = ", ".join(p.name() for p in expression.parameters() if p.value is None)
        raise ValueError(f"parameter {names} of the CVXPY problem has no value; set .value before solving")
    if np.iscomplexobj(value.data if sp.issparse(value) else value):
        raise UnsupportedProblemError("it has complex numbers")
    if sp.issparse(value):
        return value if keep_sparse else value.toarray()
    return np.asarray(value, dtype=float)


def joined(parts: Sequence[Elements]) -> tuple[IntArray, IntArray, Array]:
    """Return the concatenated rows, elements and weights of several collections."""
    row, at, weight = (np.concatenate([getattr(p, name) for p in parts]) for name in ("row", "at", "weight"))
    return row, at, weight
