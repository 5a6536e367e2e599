"""Psd constraints: those that say that a variable is psd, and those on other affine matrices.

Each of the others has a psd matrix of its own, and rows that equate the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.cvxpy.problems.affine import Coefficients, Elements, joined, rows_of
from bregopt.cvxpy.problems.variables import (
    EntriesForm,
    VariableForm,
    VectorForm,
    box,
    expression_of,
    is_matrix,
    is_mirrored,
    is_square,
    places,
    upper_entries,
)
from bregopt.modeling.complex_expressions import hermitian_parts
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.expressions import Expression
from bregopt.modeling.variables import PSD
from bregopt.program.rows import Entries, Rows, add_rows
from bregopt.records import dataclass, replace

__all__ = [
    "Claim",
    "Link",
    "claim_of",
    "coefficients",
    "compared",
    "is_real_form",
    "is_symmetric",
    "is_symmetric_array",
    "is_symmetric_map",
    "links_of",
]

_ROUND_OFF = 1e-12  # relative to the largest coefficient


@dataclass(frozen=True, eq=False)
class Claim:
    """``scale (sign X - shift)`` is psd, with ``X`` the symmetric part of a variable and scale > 0."""

    variable: Any
    sign: float
    scale: float
    shift: Array


def is_symmetric(matrix: Any) -> bool:
    """Whether an affine square matrix is symmetric for all values of its variables, up to round-off."""
    rows = rows_of(matrix)
    return is_symmetric_map(rows, matrix.shape) and is_symmetric_array(rows.constant, matrix.shape)


def is_symmetric_map(rows: Coefficients, shape: tuple[int, ...]) -> bool:
    """Whether the coefficients of the elements of an expression of that shape are symmetric."""
    if len(shape) != 2 or shape[0] != shape[1]:
        return False
    mirror = _transposed(shape[0])
    slopes = [coefficients(v, rows) for v in rows.variables]
    return all(abs(slope - slope[mirror]).max() <= _ROUND_OFF * abs(slope).max() for slope in slopes)


def is_symmetric_array(values: Array, shape: tuple[int, ...]) -> bool:
    """Whether the square matrix with these entries, by columns, is symmetric up to round-off."""
    skew = np.abs(values - values[_transposed(shape[0])]).max(initial=0.0)
    return bool(skew <= _ROUND_OFF * np.abs(values).max(initial=0.0))


def is_real_form(rows: Coefficients, order: int) -> bool:
    """Whether an affine matrix is ``[A, -B; B, A]``, the real form of ``A + iB``, for all values."""
    n, odd = divmod(order, 2)
    if odd:
        return False
    number = np.arange(4 * n * n).reshape((2 * n, 2 * n), order="F")
    first, second = number[:n].ravel(), np.hstack([number[n:, n:], number[n:, :n]]).ravel()
    sign = np.tile(np.repeat([1.0, -1.0], n), n)
    if (rows.constant[first] != sign * rows.constant[second]).any():
        return False
    slopes = [coefficients(v, rows) for v in rows.variables]
    return all(abs(slope[first] - sp.diags_array(sign) @ slope[second]).max() == 0 for slope in slopes)


def _transposed(n: int) -> IntArray:
    """Return the number of each entry's mirror image, by columns."""
    return np.arange(n * n).reshape(n, n).T.ravel()


def coefficients(leaf: Any, rows: Coefficients) -> Any:
    """Return the coefficients of a variable or parameter in rows, with those of mirrored entries added up."""
    by_element, forms = rows.elements | (rows.parameters or {}), rows.quadratics
    row, at, weight = joined([*by_element.get(leaf, []), *(q.elements() for q in forms.get(leaf, []))])
    if is_mirrored(leaf):
        at = upper_entries(at, leaf.shape[0])
    return sp.csr_array((weight, (row, at)), (rows.m, leaf.size))


def claim_of(matrix: Any) -> Claim | None:
    """Return the claim on a variable's symmetric part that is equivalent to an affine matrix's being psd.

    None unless the symmetric part of the matrix is a multiple of that of one variable, plus a constant.
    """
    if all(variable.shape != matrix.shape for variable in matrix.variables()):
        return None
    n, rows = matrix.shape[0], rows_of(matrix)
    if len(rows.variables) != 1 or rows.quadratics:
        return None
    (X,) = rows.variables
    if X.shape != matrix.shape or not (is_matrix(X) or is_square(X)):
        return None
    row, at, weight = joined(rows.elements[X])
    to = upper_entries(np.arange(n * n), n)
    own = to[row] == to[at]
    slope, count = np.bincount(to[row[own]], weight[own], n * n), np.bincount(to, minlength=n * n)
    scale = float(slope.sum()) / n**2
    if scale == 0 or weight[~own].any() or (slope != scale * count).any():
        return None
    constant = rows.constant.reshape((n, n), order="F")
    return Claim(X, float(np.sign(scale)), abs(scale), -(constant + constant.T) / (2 * abs(scale)))


@dataclass(frozen=True, eq=False)
class Link:
    """A psd matrix that equals an affine one, and the rows that say so.

    Parameters
    ----------
    block : PSD
    entries : Rows
        Entries of `block` that determine it: those on and above the diagonal, or the parts of such entries
        of the Hermitian matrix whose real form `block` is.
    rows : Coefficients
        The same entries of the affine matrix.
    left : int array
        The rows that are left to equate.
    """

    block: PSD
    entries: Rows
    rows: Coefficients
    left: IntArray

    @classmethod
    def of(cls, F: Any, name: str) -> Link:
        """Return a new matrix that equals the symmetric part of an affine one."""
        n, given = F.shape[0], rows_of(F)
        block, entries, i, j = _hermitian(n // 2, name) if is_real_form(given, n) else _symmetric(n, name)
        m, above, below = len(i), i + n * j, j + n * i
        if given.quadratics:  # forms are stored by their vectors
            row = np.tile(np.arange(m), 2)
            half = Elements(row, np.concatenate([above, below]), np.full(2 * m, 0.5))
            return cls(block, entries, rows_of(F, half, m), np.arange(m))
        place, share = np.full(n * n, -1), np.ones(n * n)
        place[above] = place[below] = np.arange(m)
        share[above[i != j]] = share[below[i != j]] = 0.5
        rows = given.gathered(place, share, m)
        return cls(block, entries, rows, np.arange(len(i)))

    def known_as(self, others: Iterable[Link], forms: dict[Any, VariableForm]) -> PSD | None:
        """Return the matrix of another link whose entries the affine matrix has, None if there is none."""
        body = expression_of(self.rows, forms, "")
        if body.variables or body.constant.any():
            return None
        for other in others:
            if set(body.psd) == {other.block} and other.entries.m == body.size:
                minus = other.entries.scale(-np.ones(body.size))
                if not len(add_rows(body.psd[other.block], minus).nonzero()):
                    return other.block
        return None

    def equations(self, forms: dict[Any, VariableForm]) -> list[Constraint]:
        """Return the rows that equate the entries."""
        if not len(self.left):
            return []
        n, k = self.block.n, self.left
        body = expression_of(self.rows, forms, f"entries of a psd matrix of order {n}")
        own = self.entries.slice(k).scale(-np.ones(len(k)))
        minus = Expression(
            (len(k),), np.zeros(len(k)), {self.block: own}, label=f"entries of {self.block.name}"
        )
        return [compared(body.taken(k, (len(k),), body.label).plus(minus), "==")]


def _symmetric(n: int, name: str) -> tuple[PSD, Rows, IntArray, IntArray]:
    """Return a psd matrix, its entries on and above the diagonal, and their places."""
    i, j = np.triu_indices(n)
    return PSD(n, name=name), Entries(n, i, j, np.ones(len(i))), i, j


def _hermitian(n: int, name: str) -> tuple[PSD, Rows, IntArray, IntArray]:
    """Return the real form of a Hermitian matrix, the parts of its entries, and their places in it."""
    X: Any = PSD(n, name=name, hermitian=True)
    (i, j), (above, right) = np.triu_indices(n), np.triu_indices(n, 1)
    entries = Expression.concatenated(hermitian_parts(X)).psd[X.block]
    return X.block, entries, np.concatenate([i, n + above]), np.concatenate([j, right])


def links_of(claims: dict[Any, Claim | None], forms: dict[Any, VariableForm]) -> dict[Any, Link]:
    """Return the matrices of psd constraints on affine matrices.

    Variables that are entries of them get that form. As free variables, which rows equate with the entries,
    they would cost Newton's method a column and a row each.
    """
    links = {}
    claimed = {claim.variable for claim in claims.values() if claim is not None}
    for number, (c, claim) in enumerate(claims.items()):
        if claim is not None:
            continue
        link = Link.of(c.args[0], f"S{number}")
        for variable in link.rows.variables:
            free = isinstance(forms[variable], VectorForm) and variable not in claimed
            found = _entries(link, variable) if free else None
            if found is not None:
                forms[variable], rows = found
                link = replace(link, left=np.setdiff1d(link.left, rows))
        links[c] = link
    return links


def _entries(link: Link, variable: Any) -> tuple[EntriesForm, IntArray] | None:
    """Return a variable as entries of the matrix of a link, and its rows there; None if it is not."""
    place, rows = places(variable), link.rows
    ends, single = box(variable), np.zeros(rows.m, dtype=int)
    if np.isfinite(ends).any() or (place < 0).any() or rows.quadratics:
        return None
    for other, parts in rows.elements.items():
        row, at, weight = joined(parts)
        own = sp.csr_array((weight, (row, places(other)[at])), (rows.m, other.size))
        own.eliminate_zeros()
        single += np.diff(own.indptr)
        if other is variable:
            factors = own
    row, at = np.flatnonzero((np.diff(factors.indptr) == 1) & (single == 1)), factors.indices
    found, first = np.unique(at[factors.indptr[row]], return_index=True)
    # A variable in several entries, such as t in t I, is one of a matrix inequality in few variables.
    if len(found) <= place.max() or factors.nnz > len(found):
        return None
    row = row[first]
    factor, constant = factors.data[factors.indptr[row]], rows.constant[row]
    entries = link.entries.slice(row)
    return EntriesForm(link.block, entries, factor, constant, place, variable.shape), row


def compared(body: Expression, sense: str) -> Constraint:
    """Return the constraint ``body sense 0`` for an expression that has variables."""
    parameters = {p: -slopes for p, slopes in body.parameters.items()}
    bound = Expression(body.shape, 0.0 - body.constant, parameters=parameters)
    lower, upper = (bound if sense in sides else None for sides in (("==", ">="), ("==", "<=")))
    return Constraint(body.variable_part(), lower, upper, sense)
