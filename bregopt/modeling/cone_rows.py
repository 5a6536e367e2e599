"""Second-order constraints as cones of ordinary variables.

An element of a constraint's vectors that is a free variable is in the cone itself. Any other element is
equated with a new variable, by a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import IntArray, Mask
from bregopt.modeling.affine import Affine
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.second_order import SecondOrderConstraint
from bregopt.modeling.variables import Variable
from bregopt.program import NO_CONES, SecondOrderCones

__all__ = ["ConeRows", "rows_of_cones"]


@dataclass(frozen=True, eq=False)
class ConeRows:
    """The cones, the variables that are new, and the rows that equate them with affine elements."""

    cones: SecondOrderCones
    variables: tuple[Variable, ...]
    rows: tuple[Constraint, ...]


def rows_of_cones(given: Sequence[Variable], constraints: Sequence[SecondOrderConstraint]) -> ConeRows:
    """Return second-order constraints as cones of the `given` variables and of new ones after them."""
    if not constraints:
        return ConeRows(NO_CONES, (), ())
    ends = np.cumsum([0, *(u.size for u in given)])
    first = dict(zip(given, ends.tolist(), strict=False))
    free = np.concatenate([np.zeros(0), *(np.isinf(u.lower) & np.isinf(u.upper) for u in given)]).astype(bool)
    index, variables, rows, count = [], [], [], int(ends[-1])
    for number, constraint in enumerate(constraints):
        members = _own_variables(constraint.body, first, free)
        free[members[members >= 0]] = False
        left = np.flatnonzero(members < 0)
        if len(left):
            variables.append(Variable(len(left), name=f"cone {number} of {constraint.label}"))
            rows.append(_equated(constraint, left, variables[-1]))
            members[left] = count + np.arange(len(left))
            count += len(left)
        index.append(members)
    dimensions = np.concatenate([constraint.dimensions for constraint in constraints])
    return ConeRows(SecondOrderCones(np.concatenate(index), dimensions), tuple(variables), tuple(rows))


def _own_variables(body: Affine, first: dict[Variable, int], free: Mask) -> IntArray:
    """Return the number of the free variable that each element is, -1 for other elements."""
    members = np.full(body.size, -1)
    plain = body.constant == 0
    for rows in body.psd.values():
        plain[rows.nonzero()] = False
    for slope in (*body.parameters.values(), *(product.weights for product in body.products)):
        plain &= np.diff(slope.indptr) == 0
    count = sum(
        (np.diff(matrix.indptr) for matrix in body.variables.values()), np.zeros(body.size, dtype=int)
    )
    for u, matrix in body.variables.items():
        row, number = np.repeat(np.arange(body.size), np.diff(matrix.indptr)), first[u] + matrix.indices
        single = plain[row] & (count[row] == 1) & (matrix.data == 1) & free[number]
        members[row[single]] = number[single]
    _, at = np.unique(members, return_index=True)
    once = np.zeros(body.size, dtype=bool)
    once[at] = True  # of equal elements the first one is the variable
    return np.where(once, members, -1)


def _equated(constraint: SecondOrderConstraint, left: IntArray, u: Variable) -> Constraint:
    """Return the rows that equate some elements of a constraint's vectors with a new variable."""
    part = constraint.body.taken(left, (len(left),), constraint.label)
    bound: Affine = part.constant_part().times(-1.0)
    own = part.variable_part()
    n = len(left)
    minus = sp.csr_array((-np.ones(n), np.arange(n), np.arange(n + 1)), (n, n))
    body = replace(own, variables={**own.variables, u: minus})
    rows = Constraint(body, bound, bound, "==")
    rows.source = constraint
    return rows
