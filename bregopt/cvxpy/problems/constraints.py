"""The constraints of a CVXPY problem: those that require a matrix to be psd, and those that are rows of ours.

Some of the former say that a variable is psd. Each of the others has a psd matrix of its own, and rows that
equate the two.

A loop declares thousands of scalar constraints, such as ``X[i, j] == X[k, l]``. Their terms are collected as
numbers, and become arrays once for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from math import isfinite
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.cvxpy.problems.affine import (
    Coefficients,
    Elements,
    constant_value,
    is_affine,
    joined,
    rows_of,
    scalar_terms,
)
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
from bregopt.errors import UnsupportedProblemError
from bregopt.linalg import added_up, csr_of
from bregopt.modeling.complex_expressions import hermitian_parts
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.expressions import Expression
from bregopt.modeling.variables import PSD, Parameter
from bregopt.presolve.svec import recognize
from bregopt.program.rows import Coordinates, Entries, Rows, SparseRows, add_rows
from bregopt.records import Text, dataclass, replace

SENSES = {"Equality": "==", "Zero": "==", "Inequality": "<=", "NonPos": "<=", "NonNeg": ">="}
KINDS = frozenset({*SENSES, "PSD", "SOC", "ExpCone"})  # the names of all kinds of constraints that are read
_ROUND_OFF = 1e-12  # relative to the largest coefficient
_CONSTANT_TOL = 1e-9  # largest violation of a constraint without variables that counts as holding
_LONGEST = 60  # characters of a constraint's text


def is_read(c: Any) -> bool:
    """Whether a constraint is read as it is: all its arguments are affine, or its kind is refused later."""
    return type(c).__name__ not in KINDS or all(map(is_affine, c.args))


# --- Psd constraints ----------------------------------------------------------------------------------------


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
    return all(_agree(v, rows, mirror, np.ones(rows.m), _ROUND_OFF) for v in rows.variables)


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
    other, signs = np.empty(4 * n * n, dtype=np.intp), np.empty(4 * n * n)
    other[first], other[second] = second, first
    signs[first] = signs[second] = sign
    return all(_agree(v, rows, other, signs, 0.0) for v in rows.variables)


def _agree(leaf: Any, rows: Coefficients, other: IntArray, sign: Array, tol: float) -> bool:
    """Whether each row has the coefficients of another one in a variable, times signs, up to a tolerance.

    It is relative to the largest coefficient. SciPy's differences take twenty times the calls.
    """
    value, row, at = added_up(*_entries_of(leaf, rows), leaf.size)
    both = np.concatenate([value, -sign[row] * value])
    left, *_ = added_up(both, np.concatenate([row, other[row]]), np.concatenate([at, at]), leaf.size)
    return bool(np.abs(left).max(initial=0.0) <= tol * np.abs(value).max(initial=0.0))


def _transposed(n: int) -> IntArray:
    """Return the number of each entry's mirror image, by columns."""
    return np.arange(n * n).reshape(n, n).T.ravel()


def coefficients(leaf: Any, rows: Coefficients) -> Any:
    """Return the coefficients of a variable or parameter in rows, with those of mirrored entries added up."""
    return csr_of(*_entries_of(leaf, rows), (rows.m, leaf.size))


def _entries_of(leaf: Any, rows: Coefficients) -> tuple[Array, IntArray, IntArray]:
    """Return the coefficients of a variable or parameter: values, rows, and elements, with repetitions."""
    by_element, forms = rows.elements | (rows.parameters or {}), rows.quadratics
    row, at, weight = joined([*by_element.get(leaf, []), *(q.elements() for q in forms.get(leaf, []))])
    return weight, row, upper_entries(at, leaf.shape[0]) if is_mirrored(leaf) else at


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
        own = added_up(weight, row, places(other)[at], other.size)
        single += np.bincount(own[1][own[0] != 0], minlength=rows.m)
        if other is variable:
            factor, row_of, element = (part[own[0] != 0] for part in own)
    alone = np.flatnonzero(single[row_of] == 1)
    found, first = np.unique(element[alone], return_index=True)
    # A variable in several entries, such as t in t I, is one of a matrix inequality in few variables.
    if len(found) <= place.max() or len(element) > len(found):
        return None
    own_rows = row_of[alone[first]]
    entries, constant = link.entries.slice(own_rows), rows.constant[own_rows]
    form = EntriesForm(link.block, entries, factor[alone[first]], constant, place, variable.shape)
    return form, own_rows


def compared(body: Expression, sense: str) -> Constraint:
    """Return the constraint ``body sense 0`` for an expression that has variables."""
    parameters = {p: -slopes for p, slopes in body.parameters.items()}
    bound = Expression(body.shape, 0.0 - body.constant, parameters=parameters)
    lower, upper = (bound if sense in sides else None for sides in (("==", ">="), ("==", "<=")))
    return Constraint(body.variable_part(), lower, upper, sense)


# --- Rows ---------------------------------------------------------------------------------------------------


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
