"""The coefficients of a program that depend on parameters, as affine functions of their values.

The places of the coefficients are compiled once; at each solve one sparse product gives the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.linalg import lean
from bregopt.modeling.affine import Affine
from bregopt.program import Term
from bregopt.program.rows import Coordinates, Rows, SparseRows
from bregopt.records import PickledWithoutCache, cached_property, dataclass

__all__ = ["AffineNumbers", "ParametricMatrix", "ParametricParts", "multiplied_matrices", "sparse_rows"]


@dataclass(frozen=True, eq=False)
class AffineNumbers(PickledWithoutCache):
    """The numbers ``constant + slope @ values`` at the values of all parameters; without slope constants."""

    constant: Array
    slope: Any

    def at(self, values: Array) -> Array:
        """Return the numbers at the concatenated values of all parameters."""
        numbers: Array = self.constant if self.slope is None else self.constant + self._products @ values
        return numbers

    @cached_property
    def _products(self) -> Any:
        """The slope in its fastest form for products."""
        return lean(self.slope)


@dataclass(frozen=True, eq=False)
class ParametricMatrix:
    """A sparse matrix with elements affine in parameters at `places`, sorted, and zeros elsewhere."""

    shape: tuple[int, int]
    places: IntArray
    numbers: AffineNumbers

    def at(self, values: Array) -> Any:
        """Return the matrix at the values of all parameters, in CSR form without zeros."""
        numbers = self.numbers.at(values)
        kept = np.flatnonzero(numbers)
        return sp.csr_array((numbers[kept], np.divmod(self.places[kept], self.shape[1])), self.shape)


@dataclass(frozen=True, eq=False)
class ParametricParts:
    """The coefficients of a program that depend on parameters.

    Parameters
    ----------
    rows, costs : dict from int to ParametricMatrix
        Of the matrix variables, by the number of the block; a column for each entry.
    B, c : ParametricMatrix or None
        Of the ordinary variables; None where no coefficient depends on a parameter.
    """

    rows: dict[int, ParametricMatrix] = field(default_factory=dict)
    costs: dict[int, ParametricMatrix] = field(default_factory=dict)
    B: ParametricMatrix | None = None
    c: ParametricMatrix | None = None

    @classmethod
    def of(
        cls,
        blocks: Mapping[Any, int],
        columns: Mapping[Any, int],
        elements: Mapping[Any, slice],
        bodies: Sequence[tuple[int, Affine]],
        goal: Affine,
    ) -> ParametricParts:
        """Return the parts of rows and of an objective.

        Parameters
        ----------
        blocks : mapping from PSD to int
        columns : mapping from Variable to int
            The first column of each.
        elements : mapping from Parameter
            The places of each in the values of all parameters.
        bodies : sequence of (int, Affine)
            The rows, each array with its first one.
        goal : Affine
        """
        m, k = sum(e.size for _, e in bodies), sum(u.size for u in columns)
        rows, costs = {}, {}
        for X, b in blocks.items():
            own = [(start, e) for start, e in bodies if X in multiplied_matrices(e)]
            if own:
                rows[b] = _parametric_matrix(own, {X: 0}, (m, X.n**2), elements)
            if X in multiplied_matrices(goal):
                costs[b] = _parametric_matrix([(0, goal)], {X: 0}, (1, X.n**2), elements)
        B, c = (
            _parametric_matrix(part, columns, (size, k), elements) if _multiplies_variables(part) else None
            for part, size in ((bodies, m), ([(0, goal)], 1))
        )
        return cls(rows, costs, B, c)

    def terms(self, orders: Sequence[int], values: Array) -> Iterator[Term]:
        """Yield the nonzero rows of each matrix variable at the values of all parameters."""
        for b, matrix in self.rows.items():
            table = matrix.at(values)
            at = np.flatnonzero(np.diff(table.indptr))
            if len(at):
                yield Term(b, at, sparse_rows(table[at], orders[b]))


def multiplied_matrices(e: Affine) -> set[Any]:
    """Return the matrix variables that parameters multiply."""
    return {X for product in e.products for X in product.factor.psd}


def _multiplies_variables(bodies: Iterable[tuple[int, Affine]]) -> bool:
    return any(product.factor.variables for _, e in bodies for product in e.products)


def _parametric_matrix(
    bodies: Iterable[tuple[int, Affine]],
    columns: Mapping[Any, int],
    shape: tuple[int, int],
    elements: Mapping[Any, slice],
) -> ParametricMatrix:
    """Return the coefficients of operands in the rows of arrays.

    Parameters
    ----------
    bodies : iterable of (int, Affine)
        Each with its first row.
    columns : mapping from PSD or Variable
        The operands, each with the first of its columns. A matrix has a column for each entry.
    shape : (int, int)
    elements : mapping from Parameter
        The places of each parameter in the values of all parameters.
    """
    count = sum(place.stop - place.start for place in elements.values())
    places, values, of = [np.zeros(0, dtype=np.intp)], [np.zeros(0)], [np.zeros(0, dtype=np.intp)]
    for start, body in bodies:
        identity = sp.csr_array(sp.eye_array(body.size, format="csr"))
        parts: list[tuple[Any, IntArray, Affine]] = [(identity, np.full(body.size, -1), body)]
        parts += [(p.weights, elements[p.parameter].start + p.at, p.factor) for p in body.products]
        for weights, at, factor in parts:
            for operand, column in columns.items():
                table = _table(factor, operand)
                if table is not None:
                    row, own, value, term = _weighed(weights, table)
                    places.append((start + row) * shape[1] + column + own)
                    values.append(value)
                    of.append(at[term])
    unique, where = np.unique(np.concatenate(places), return_inverse=True)
    value, element = np.concatenate(values), np.concatenate(of)
    fixed = element < 0
    constant = np.bincount(where[fixed], value[fixed], len(unique)).astype(float)
    slope = sp.csr_array((value[~fixed], (where[~fixed], element[~fixed])), (len(unique), count))
    return ParametricMatrix(shape, unique, AffineNumbers(constant, slope))


def sparse_rows(table: Any, n: int) -> SparseRows:
    """Return the rows of a CSR matrix with a column for each entry of a matrix of order `n`."""
    row = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    i, j = np.divmod(table.indices.astype(np.intp), n)
    return SparseRows(table.shape[0], n, Coordinates(row, i, j, table.data))


def _table(e: Affine, operand: Any) -> Any:
    """Return the coefficients of an operand as a CSR matrix, None where it does not occur."""
    rows: Rows | None = e.psd.get(operand)
    if rows is None:
        return e.variables.get(operand)
    t = rows.coordinates()
    column = np.minimum(t.i, t.j) * rows.n + np.maximum(t.i, t.j)
    return sp.csr_array((t.value, (t.row, column)), (rows.m, rows.n**2))


def _weighed(weights: Any, table: Any) -> tuple[IntArray, IntArray, Array, IntArray]:
    """Return the products of nonzeros ``weights[l, t] table[t, k]``: ``l``, ``k``, their values and ``t``."""
    count = np.diff(table.indptr)[weights.indices]
    each = np.repeat(np.arange(weights.nnz), count)
    at = np.arange(len(each)) + np.repeat(table.indptr[weights.indices] - np.cumsum(count) + count, count)
    row = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))[each]
    value = weights.data[each] * table.data[at]
    return row, table.indices[at].astype(np.intp), value, weights.indices[each].astype(np.intp)
