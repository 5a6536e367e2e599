"""Our form of each CVXPY variable: a psd matrix, possibly shifted and negated, or ordinary variables."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.cvxpy.problems.affine import Coefficients, Elements, Quadratics, elements_at, joined, rows_of
from bregopt.errors import UnsupportedProblemError
from bregopt.linalg import csr_of
from bregopt.modeling.expressions import Expression
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.presolve.svec import recognize
from bregopt.program.rows import (
    Coordinates,
    DenseRows,
    Entries,
    RankOne,
    Rows,
    SparseRows,
    add_rows,
)
from bregopt.records import dataclass

_FOREIGN = ("complex", "imag", "hermitian", "boolean", "integer")
# Rows with at most this share of nonzeros are stored as sparse terms.
_SPARSE_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class MatrixForm:
    """A symmetric CVXPY variable ``X = sign (M + shift)`` with our psd matrix ``M``."""

    psd: PSD
    sign: float
    shift: Array

    def value(self) -> Array:
        """Return ``X`` from the value of ``M``, which is zero if no row contains ``M``."""
        M = self.psd.value
        return self.sign * (self.shift if M is None else np.asarray(M) + self.shift)

    def parts(
        self, m: int, elements: Sequence[Elements], quadratics: Sequence[Quadratics]
    ) -> tuple[Array, dict[Any, Any], dict[Any, Any]]:
        """Return the constant, the matrix part and the vector part that this gives `m` rows."""
        n, constant = self.psd.n, np.zeros(m)
        families: list[Rows] = []
        if elements:
            row, at, weight = joined(elements)
            terms = Coordinates(row, at % n, at // n, self.sign * weight)
            constant += np.bincount(row, terms.value * self.shift[terms.i, terms.j], m)
            families.append(_family(SparseRows.of(m, n, terms)))
        for forms in _rank_one(m, n, quadratics):
            turned = forms.scale(np.full(m, self.sign))
            constant += turned.apply(self.shift)
            families.append(turned)
        return constant, {self.psd: functools.reduce(add_rows, families)}, {}


@dataclass(frozen=True, eq=False)
class VectorForm:
    """A CVXPY variable whose elements, by columns, are ``u[place]``, or zero where `place` is negative."""

    u: Variable
    place: IntArray
    shape: tuple[int, ...]

    def value(self) -> Array:
        """Return the variable from the value of ours; a point within its bounds if no row contains it."""
        u = np.clip(0.0, self.u.lower, self.u.upper) if self.u.value is None else self.u.value
        return np.where(self.place >= 0, np.ravel(u)[self.place], 0.0).reshape(self.shape, order="F")

    def parts(
        self, m: int, elements: Sequence[Elements], quadratics: Sequence[Quadratics]
    ) -> tuple[Array, dict[Any, Any], dict[Any, Any]]:
        """Return the constant, the matrix part and the vector part that this gives `m` rows."""
        row, at, weight = joined([*elements, *(q.elements() for q in quadratics)])
        column = self.place[at]
        kept = column >= 0
        coefficients = csr_of(weight[kept], row[kept], column[kept], (m, self.u.size))
        return np.zeros(m), {}, {self.u: coefficients} if (self.place >= 0).any() else {}


@dataclass(frozen=True, eq=False)
class EntriesForm:
    """A CVXPY variable whose elements are entries of a psd matrix ``S``, up to constants and factors.

    Parameters
    ----------
    psd : PSD
    entries : Rows
        The free elements are ``(entries(S) - constant) / factor``.
    factor, constant : array of shape (k,)
    place : int array
        The number of each element, by columns, among the free ones.
    shape : tuple of int
    """

    psd: PSD
    entries: Rows
    factor: Array
    constant: Array
    place: IntArray
    shape: tuple[int, ...]

    def value(self) -> Array:
        """Return the variable from the value of ``S``, which is zero if no row contains ``S``."""
        S = np.zeros(self.psd.shape) if self.psd.value is None else np.asarray(self.psd.value)
        free = (self.entries.apply(S) - self.constant) / self.factor
        return free[self.place].reshape(self.shape, order="F")

    def parts(
        self, m: int, elements: Sequence[Elements], quadratics: Sequence[Quadratics]
    ) -> tuple[Array, dict[Any, Any], dict[Any, Any]]:
        """Return the constant, the matrix part and the vector part that this gives `m` rows."""
        row, at, weight = joined([*elements, *(q.elements() for q in quadratics)])
        column = self.place[at]
        share = weight / self.factor[column]
        t = self.entries.slice(column).coordinates()
        terms = Coordinates(row[t.row], t.i, t.j, t.value * share[t.row])
        constant: Array = -np.bincount(row, share * self.constant[column], m).astype(float)
        return constant, {self.psd: _family(SparseRows.of(m, self.psd.n, terms))}, {}


@dataclass(frozen=True, eq=False)
class SquareForm:
    """A CVXPY variable of which only the symmetric part is psd: that part, and the skew-symmetric part.

    Parameters
    ----------
    matrix : MatrixForm
    skew : Variable
        The skew-symmetric part, by its entries above the diagonal, row by row.
    """

    matrix: MatrixForm
    skew: Variable

    def value(self) -> Array:
        """Return the variable from the values of both parts."""
        n, u = self.matrix.psd.n, self.skew.value
        skew = np.zeros((n, n))
        skew[np.triu_indices(n, 1)] = 0.0 if u is None else np.ravel(u)
        value: Array = self.matrix.value() + skew - skew.T
        return value

    def parts(
        self, m: int, elements: Sequence[Elements], quadratics: Sequence[Quadratics]
    ) -> tuple[Array, dict[Any, Any], dict[Any, Any]]:
        """Return the constant, the matrix part and the vector part that this gives `m` rows."""
        constant, psd, _ = self.matrix.parts(m, elements, quadratics)
        n = self.matrix.psd.n
        row, at, weight = joined(elements)
        i, j = at % n, at // n
        off = i != j
        low, high = np.minimum(i, j)[off], np.maximum(i, j)[off]
        column = low * n - low * (low + 1) // 2 + high - low - 1
        signed = np.where(i < j, weight, -weight)[off]
        return constant, psd, {self.skew: csr_of(signed, row[off], column, (m, self.skew.size))}


VariableForm = EntriesForm | MatrixForm | VectorForm | SquareForm


def check_variable(variable: Any) -> None:
    """Refuse a variable that is complex, takes discrete values, or is a stack of symmetric matrices.

    Raises
    ------
    UnsupportedProblemError
    """
    for attribute in _FOREIGN:
        if variable.attributes.get(attribute):
            raise UnsupportedProblemError(f"variable {variable.name()} is {attribute}")
    if is_mirrored(variable) and len(variable.shape) != 2:
        raise UnsupportedProblemError(
            f"variable {variable.name()} is a stack of symmetric matrices, of shape {variable.shape}"
        )


def is_matrix(variable: Any) -> bool:
    """Whether a variable is symmetric with no entry fixed: it may become a psd matrix."""
    attributes = variable.attributes
    symmetric = is_mirrored(variable) or variable.shape == (1, 1)
    return symmetric and not attributes["diag"] and not attributes.get("sparsity")


def is_square(variable: Any) -> bool:
    """Whether a variable is a square matrix with independent entries, none of them fixed."""
    attributes, shape = variable.attributes, variable.shape
    bound = is_mirrored(variable) or attributes["diag"] or attributes.get("sparsity")
    return len(shape) == 2 and 1 < shape[0] == shape[1] and not bound


def is_mirrored(variable: Any) -> bool:
    """Whether CVXPY keeps a variable symmetric."""
    attributes = variable.attributes
    return bool(attributes["symmetric"] or attributes["PSD"] or attributes["NSD"])


def psd_part(form: VariableForm) -> MatrixForm | None:
    """Return the part of a variable that is a psd matrix, None if there is none."""
    if isinstance(form, SquareForm):
        return form.matrix
    return form if isinstance(form, MatrixForm) else None


def matrix(variable: Any, name: str, sign: float = 1.0, shift: Array | None = None) -> MatrixForm:
    """Return a symmetric CVXPY variable as a psd matrix."""
    n = variable.shape[0]
    return MatrixForm(PSD(n, name=name), sign, np.zeros((n, n)) if shift is None else shift)


def square(variable: Any, name: str, sign: float, shift: Array) -> SquareForm:
    """Return a square CVXPY variable as a psd matrix and a skew-symmetric part."""
    n = variable.shape[0]
    return SquareForm(
        matrix(variable, name, sign, shift), Variable(n * (n - 1) // 2, name=f"{name}'s skew part")
    )


def vector(variable: Any, name: str) -> VectorForm:
    """Return a CVXPY variable as ordinary variables, with the bounds that are finite for all its elements."""
    place = places(variable)
    k = int(place.max(initial=-1)) + 1
    if k == 0:  # no element, or none that is free
        return VectorForm(Variable(name=name), place, variable.shape)
    first = np.unique(place, return_index=True)[1][-k:]
    lower, upper = (end[first] if np.isfinite(end).all() else None for end in box(variable))
    return VectorForm(Variable(k, name=name, lower=lower, upper=upper), place, variable.shape)


def box(variable: Any) -> tuple[Array, Array]:
    """Return the bounds that attributes set on the elements of a variable, by columns."""
    attributes = variable.attributes
    below, above = attributes.get("bounds") or (None, None)
    lower, upper = _bound(below, variable, -np.inf), _bound(above, variable, np.inf)
    if attributes["nonneg"] or attributes["pos"]:
        lower = np.maximum(lower, 0.0)
    if attributes["nonpos"] or attributes["neg"]:
        upper = np.minimum(upper, 0.0)
    return lower, upper


def expression_of(
    rows: Coefficients,
    forms: dict[Any, VariableForm],
    label: str,
    parameters: dict[Any, Parameter] | None = None,
) -> Expression:
    """Return rows of CVXPY variables and parameters as one affine expression of ours."""
    constant = rows.constant.copy()
    psd: dict[Any, Any] = {}
    vectors: dict[Any, Any] = {}
    for variable in rows.variables:
        parts = forms[variable].parts(
            rows.m, rows.elements.get(variable, []), rows.quadratics.get(variable, [])
        )
        constant += parts[0]
        for S, family in parts[1].items():
            psd[S] = add_rows(psd[S], family) if S in psd else family
        vectors.update(parts[2])
    added = {
        (parameters or {})[p]: _parameter_slopes(rows.m, p, elements)
        for p, elements in (rows.parameters or {}).items()
    }
    return Expression((rows.m,), constant, psd, vectors, added, label=label)


def elements_of(e: Any, at: IntArray, forms: dict[Any, VariableForm], label: str) -> Expression:
    """Return some elements of an affine expression of CVXPY's, by columns, as a vector of ours."""
    return expression_of(rows_of(e, elements_at(at), len(at)), forms, label)


def _parameter_slopes(m: int, parameter: Any, elements: Sequence[Elements]) -> Any:
    """Return the coefficients of a parameter in `m` rows; CVXPY orders elements by columns, we by rows."""
    row, at, weight = joined(elements)
    ours = np.arange(parameter.size).reshape(parameter.shape).ravel(order="F")
    return csr_of(weight, row, ours[at], (m, parameter.size))


def _family(rows: SparseRows) -> Rows:
    """Return rows in the most structured family that contains them all."""
    t, m = rows.terms, rows.m
    if len(t.row) == m and np.array_equal(t.row, np.arange(m)):
        return Entries(rows.n, t.i, t.j, t.value)
    (_, family), *others = recognize(rows)
    if not others and family.rank is not None:
        return family
    if len(t.row) > _SPARSE_SHARE * m * rows.n**2:
        return DenseRows(np.array([rows.slice(np.array([k])).adjoint(np.ones(1)) for k in range(m)]))
    return rows


def _rank_one(m: int, n: int, quadratics: Sequence[Quadratics]) -> list[RankOne]:
    """Return quadratic forms as families of `m` rows; each family has at most one form per row."""
    if not quadratics:
        return []
    row = np.concatenate([q.row for q in quadratics])
    Z = np.concatenate([q.Z for q in quadratics])
    weight = np.concatenate([q.weight for q in quadratics])
    order = np.argsort(row, kind="stable")
    row = row[order]
    turn = np.arange(len(row)) - np.searchsorted(row, row)  # the number of the form within its row
    families = []
    for k in range(int(turn.max()) + 1):
        mine = turn == k
        forms, weights = np.zeros((m, n)), np.ones(m)
        forms[row[mine]], weights[row[mine]] = Z[order[mine]], weight[order[mine]]
        families.append(RankOne(forms, weights))
    return families


def places(variable: Any) -> IntArray:
    """Return the number of each element of a variable among the free elements, negative for fixed zeros."""
    attributes, shape = variable.attributes, variable.shape
    free = np.ones(shape, dtype=bool)
    if attributes["diag"]:
        free = np.eye(shape[0], dtype=bool)
    if attributes.get("sparsity"):
        free = np.zeros(shape, dtype=bool)
        free[tuple(np.asarray(index, dtype=np.intp) for index in attributes["sparsity"])] = True
    if is_mirrored(variable):
        free = np.tril(free | free.T)
    flat = free.ravel(order="F")
    place = np.where(flat, np.cumsum(flat) - 1, -1)
    if is_mirrored(variable):
        lower = place.reshape(shape, order="F")
        place = np.maximum(lower, lower.T).ravel(order="F")
    return place


def _bound(value: Any, variable: Any, default: float) -> Array:
    if value is None:
        return np.full(variable.size, default)
    value = getattr(value, "value", value)
    return np.broadcast_to(np.asarray(value, dtype=float), variable.shape).ravel(order="F").copy()


def upper_entries(at: IntArray, n: int) -> IntArray:
    """Return the numbers of entries, with those below the diagonal replaced by their mirror images'."""
    i, j = at % n, at // n
    return np.minimum(i, j) + n * np.maximum(i, j)
