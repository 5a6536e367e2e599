"""The constraints of a CVXPY problem that are rows of ours.

A loop declares thousands of scalar constraints, such as ``X[i, j] == X[k, l]``. Their terms are collected as
numbers, and become arrays once for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from math import isfinite
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.cvxpy.problems.affine import Elements, constant_value, rows_of, scalar_terms
from bregopt.cvxpy.problems.convex_atoms import SENSES
from bregopt.cvxpy.problems.psd_constraints import compared, is_symmetric_map
from bregopt.cvxpy.problems.variables import VariableForm, expression_of
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.expressions import Expression
from bregopt.modeling.variables import Parameter
from bregopt.presolve.svec import recognize
from bregopt.program.rows import Coordinates, Rows, SparseRows, add_rows
from bregopt.records import Text

__all__ = ["numbered", "rows_of_constraints", "text_of"]

_LONGEST = 60  # characters of a constraint's text
_CONSTANT_TOL = 1e-9  # largest violation of a constraint without variables that counts as holding


def rows_of_constraints(
    problem: Any,
    given: dict[Any, Any],
    forms: dict[Any, VariableForm],
    parameters: dict[Any, Parameter],
    written: set[Any],
) -> tuple[dict[Any, Constraint], set[Any], list[Any]]:
    """Return the constraints that are rows, the symmetric ones among them, and those without variables.

    Parameters
    ----------
    problem : cvxpy.Problem
    given : dict
        The user's constraint in place of which another one is read.
    forms : dict from cvxpy.Variable to VariableForm
    parameters : dict from cvxpy.Parameter to Parameter
    written : set of cvxpy.Parameter
        Parameters whose values are substituted in rows are added.

    Raises
    ------
    UnsupportedProblemError
        If a constraint is not affine, or has no variable and does not hold.
    """
    rows, symmetric, trivial = {}, set(), []
    counts = Counter(getattr(c, "label", None) for c in problem.constraints)  # CVXPY's names may repeat
    sides = {
        c: (number, *_sides(c)) for number, c in enumerate(problem.constraints) if type(c).__name__ in SENSES
    }
    scalars = _scalars({c: own[:2] for c, own in sides.items() if c.size == 1}, forms)
    for c, (number, expression, sense) in sides.items():
        body = scalars.get(c)
        if body is None:
            with numbered(number):
                found = rows_of(expression, parametric=True)
                if not found.variables:  # the values of parameters decide whether it holds
                    found = rows_of(expression)
            written |= found.frozen
            body = expression_of(found, forms, f"CVXPY's constraint {number}", parameters)
            if is_symmetric_map(found, c.shape):
                symmetric.add(c)
        if not body.is_constant:
            rows[c] = compared(body, sense)
            rows[c].source_text = Text(partial(text_of, given.get(c, c)))
            if counts[label := getattr(c, "label", None)] == 1 and label:
                rows[c].named(label)
        elif _holds(body.constant, sense):
            trivial.append(c)
        else:
            raise UnsupportedProblemError(f"constraint {number} has no variable and does not hold")
    return rows, symmetric, trivial


def _sides(constraint: Any) -> tuple[Any, str]:
    """Return a constraint as an expression compared with 0, with ``X >= 1`` the right way round.

    CVXPY keeps it as ``1 <= X``; its dual is that of ``X - 1 >= 0``, too.
    """
    if type(constraint).__name__ == "Inequality" and constraint.args[0].is_constant():
        return -constraint.expr, ">="
    return constraint.expr, SENSES[type(constraint).__name__]


def _holds(value: Array, sense: str) -> bool:
    violation = np.abs(value) if sense == "==" else value if sense == "<=" else -value
    return bool((violation <= _CONSTANT_TOL).all())


def text_of(formula: Any) -> str:
    """Return a constraint or expression as CVXPY prints it, in one line that is cut short."""
    label = getattr(formula, "label", None)
    with np.printoptions(threshold=_LONGEST):  # of arrays too long for a line, only ends are formatted
        text = " ".join(str(formula).removeprefix(f"{label}: ").split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


@contextmanager
def numbered(number: int) -> Iterator[None]:
    """Add the number of the constraint to an error."""
    try:
        yield
    except UnsupportedProblemError as error:
        raise UnsupportedProblemError(f"constraint {number}: {error}") from None


# --- Scalar constraints -------------------------------------------------------------------------------


class _Scalar(NamedTuple):
    """A scalar constraint as a sum: its terms by variables, with elements and weights, and a constant."""

    constant: float
    terms: dict[Any, list[tuple[int, float]]]

    @classmethod
    def of(cls, expression: Any) -> _Scalar | None:
        """Return an expression, None if it is another one, has no variable, or a number is not finite."""
        terms: dict[Any, list[tuple[int, float]]] = {}
        constant = 0.0
        for leaf, at, weight in scalar_terms(expression) or ():
            if isinstance(leaf, cp.Variable):
                terms.setdefault(leaf, []).append((at, weight))
            else:
                constant += weight * float(constant_value(leaf).ravel(order="F")[at])
        finite = isfinite(constant + sum(weight for own in terms.values() for _, weight in own))
        return cls(constant, terms) if terms and finite else None


# Pays on: moments of a cycle of 9.
def _scalars(given: dict[Any, tuple[int, Any]], forms: dict[Any, VariableForm]) -> dict[Any, Expression]:
    """Return our expressions of those that are sums of elements of variables, read together."""
    read = ((c, _Scalar.of(expression)) for c, (_, expression) in given.items())
    scalars = {c: scalar for c, scalar in read if scalar is not None}
    terms = [scalar.terms for scalar in scalars.values()]
    constant = np.array([scalar.constant for scalar in scalars.values()])
    psd: list[dict[Any, Rows]] = [{} for _ in terms]
    variables: list[dict[Any, Any]] = [{} for _ in terms]
    alike: dict[tuple[Any, int], list[int]] = {}  # rows with equally many terms are of one family, or of few
    for k, own in enumerate(terms):
        for variable, parts in own.items():
            alike.setdefault((variable, len(parts)), []).append(k)
    for (variable, count), numbers in alike.items():
        term = np.array([terms[k][variable] for k in numbers]).reshape(-1, 2)
        row = np.repeat(np.arange(len(numbers)), count)
        elements = Elements(row, term[:, 0].astype(np.intp), term[:, 1])
        added, families, matrices = forms[variable].parts(len(numbers), [elements], [])
        constant[numbers] += added
        for S, rows in families.items():
            for k, own_rows in zip(numbers, _one_by_one(rows), strict=True):
                psd[k][S] = add_rows(psd[k][S], own_rows) if S in psd[k] else own_rows
        for u, matrix in matrices.items():
            for k, (start, end) in zip(numbers, pairwise(matrix.indptr.tolist()), strict=True):
                part = matrix.data[start:end], matrix.indices[start:end], [0, end - start]
                variables[k][u] = sp.csr_array(part, (1, u.size))
    return {
        c: Expression((1,), own, in_psd, in_variables, label=f"CVXPY's constraint {given[c][0]}")
        for c, own, in_psd, in_variables in zip(scalars, constant[:, None], psd, variables, strict=True)
    }


def _one_by_one(rows: Rows) -> list[Rows]:
    """Return each row of a family, in the most structured family that contains it."""
    each: list[Any] = [None] * rows.m
    for at, family in recognize(rows) if isinstance(rows, SparseRows) else [(np.arange(rows.m), rows)]:
        parts = _apart(family) if isinstance(family, SparseRows) else _slices(family)
        for number, part in zip(at.tolist(), parts, strict=True):
            each[number] = part
    return each


def _slices(rows: Rows) -> Iterator[Rows]:
    return (rows.slice(np.array([k])) for k in range(rows.m))


def _apart(rows: SparseRows) -> Iterator[SparseRows]:
    """Yield each row; its own `slice` would look for the ends of all rows each time."""
    t, ends = rows.terms, np.searchsorted(rows.terms.row, np.arange(rows.m + 1))
    for start, end in pairwise(ends.tolist()):
        own, first = slice(start, end), np.zeros(end - start, dtype=np.intp)
        yield SparseRows(1, rows.n, Coordinates(first, t.i[own], t.j[own], t.value[own]))
