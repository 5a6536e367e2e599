"""Psd constraints on affine matrices: a psd matrix for each, and the rows that equate the two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import IntArray
from bregopt.cvxpy.problems.affine_reader import rows_of
from bregopt.cvxpy.problems.coefficients import Coefficients, Elements, joined
from bregopt.cvxpy.problems.psd_claims import Claim
from bregopt.cvxpy.problems.variables import (
    EntriesForm,
    VariableForm,
    VectorForm,
    box,
    expression_of,
    places,
)
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.expressions import Expression
from bregopt.modeling.variables import PSD
from bregopt.program.rows import Entries

__all__ = ["Link", "compared", "links_of"]


@dataclass(frozen=True, eq=False)
class Link:
    """A psd matrix that equals an affine one, the `rows` of its upper triangle, and those left to equate."""

    block: PSD
    rows: Coefficients
    left: IntArray

    @classmethod
    def of(cls, F: Any, name: str) -> Link:
        """Return a new matrix that equals the symmetric part of an affine one."""
        n = F.shape[0]
        i, j = np.triu_indices(n)
        row = np.tile(np.arange(len(i)), 2)
        at = np.concatenate([i + n * j, j + n * i])
        rows = rows_of(F, Elements(row, at, np.full(len(row), 0.5)), len(i))
        return cls(PSD(n, name=name), rows, np.arange(len(i)))

    def equations(self, forms: dict[Any, VariableForm]) -> list[Constraint]:
        """Return the rows that equate the entries."""
        if not len(self.left):
            return []
        n, k = self.block.n, self.left
        i, j = (index[k] for index in np.triu_indices(n))
        body = expression_of(self.rows, forms, f"entries of a psd matrix of order {n}")
        own = Entries(n, i, j, -np.ones(len(k)))
        minus = Expression(
            (len(k),), np.zeros(len(k)), {self.block: own}, label=f"entries of {self.block.name}"
        )
        return [compared(body.taken(k, (len(k),), body.label).plus(minus), "==")]


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
            found = _entries(link.rows, variable, link.block) if free else None
            if found is not None:
                forms[variable], rows = found
                link = replace(link, left=np.setdiff1d(link.left, rows))
        links[c] = link
    return links


def _entries(rows: Coefficients, variable: Any, S: PSD) -> tuple[EntriesForm, IntArray] | None:
    """Return a variable as entries of the matrix whose upper triangle is given, and its rows; None otherwise.

    Parameters
    ----------
    rows : Coefficients
        Those of the entries on and above the diagonal, row by row.
    variable : cvxpy.Variable
    S : PSD
        The matrix.
    """
    place, i_of, j_of = places(variable), *np.triu_indices(S.n)
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
    return EntriesForm(S, i_of[row], j_of[row], factor, constant, place, variable.shape), row


def compared(body: Expression, sense: str) -> Constraint:
    """Return the constraint ``body sense 0`` for an expression that has variables."""
    bound = -body.constant_part()
    lower, upper = (bound if sense in sides else None for sides in (("==", ">="), ("==", "<=")))
    return Constraint(body.variable_part(), lower, upper, sense)
