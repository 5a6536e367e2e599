"""Affine atoms of a matrix variable, each as one vectorized row family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import (
    Array,
    IntArray,
    finite_array,
    index_array,
    rectangular,
    symmetric_matrix,
    symmetrized,
)
from bregopt.modeling.complex_expressions import ComplexExpression
from bregopt.modeling.expressions import Expression, as_expression
from bregopt.modeling.hermitian import HermitianPSD, half_embedded, hermitian_forms
from bregopt.modeling.variables import PSD
from bregopt.program.rows import Coordinates, DenseRows, Distances, Entries, RankOne, SparseRows

__all__ = ["diag", "inner", "quad_form", "sq_distance", "sum", "trace"]

# A stack of matrices with at most this fraction of nonzeros is stored by its terms.
_SPARSE_SHARE = 0.2


def diag(X: Any) -> Any:
    """Return the diagonal of a matrix variable, or of a complex expression.

    Parameters
    ----------
    X : PSD or ComplexExpression

    Returns
    -------
    Expression
        Shape ``(n,)``; complex unless `X` is a variable.

    Raises
    ------
    TypeError
        If `X` is no matrix variable.
    """
    if isinstance(X, ComplexExpression):
        entries = X[np.diag_indices(X.shape[0])]
        return replace(entries.real, label=f"diag({X.label})") if isinstance(X, HermitianPSD) else entries
    order = np.arange(_matrix(X, "diag").n)
    return Expression(
        (X.n,), np.zeros(X.n), {X: Entries(X.n, order, order, np.ones(X.n))}, label=f"diag({X.name})"
    )


def trace(X: Any) -> Any:
    """Return the trace of a matrix variable, or of a complex expression.

    Parameters
    ----------
    X : PSD or ComplexExpression

    Returns
    -------
    Expression
        A scalar; complex unless `X` is a variable.

    Raises
    ------
    TypeError
        If `X` is no matrix variable.
    """
    if isinstance(X, HermitianPSD):
        return replace(sum(diag(X)), label=f"trace({X.name})")
    if isinstance(X, ComplexExpression):
        return sum(diag(X))
    order = np.arange(_matrix(X, "trace").n)
    terms = Coordinates(np.zeros(X.n, dtype=np.intp), order, order, np.ones(X.n))
    return Expression((), np.zeros(1), {X: SparseRows(1, X.n, terms)}, label=f"trace({X.name})")


def inner(A: Any, X: PSD) -> Expression:
    """Return ``<A, X> = tr(A X)``.

    Parameters
    ----------
    A : array_like or sparse of shape (n, n), a list of those, or array_like of shape (m, n, n)
        Symmetric, or Hermitian for a Hermitian variable.
    X : PSD

    Returns
    -------
    Expression
        A scalar for one matrix, shape ``(m,)`` for several.

    Raises
    ------
    TypeError, ValueError
        If `A` is not symmetric, not of the order of `X`, not finite real numbers, or has no matrix.
    """
    n = _matrix(X, "inner").n
    single, stack = _matrices(A)
    if not stack:
        raise ValueError(f"A of inner is {A!r}; expected a matrix or matrices of order {n}")
    names = ["A of inner"] if single else [f"A[{k}] of inner" for k in range(len(stack))]
    if isinstance(X, HermitianPSD):
        X, stack = X.block, [half_embedded(a, name, n) for a, name in zip(stack, names, strict=True)]
    if all(sp.issparse(matrix) for matrix in stack):
        rows: SparseRows | DenseRows = _sparse_rows(stack, X.n, names)
    else:
        dense = np.array([symmetric_matrix(a, name, X.n) for a, name in zip(stack, names, strict=True)])
        rows = DenseRows(dense)
        if np.count_nonzero(dense) <= _SPARSE_SHARE * dense.size:
            rows = SparseRows.of(rows.m, X.n, rows.coordinates())
    return Expression(() if single else (rows.m,), np.zeros(rows.m), {X: rows}, label=f"inner(A, {X.name})")


def quad_form(Z: Any, X: PSD) -> Expression:
    """Return ``z'X z`` for each row ``z`` of `Z`, ``z*X z`` for a Hermitian variable.

    Parameters
    ----------
    Z : array_like or sparse of shape (m, n), or array_like of shape (n,)
    X : PSD

    Returns
    -------
    Expression
        Shape ``(m,)``; a scalar for a single vector.

    Raises
    ------
    TypeError, ValueError
        If `Z` has another shape, no row, or numbers that are not finite and real.
    """
    _matrix(X, "quad_form")
    if isinstance(X, HermitianPSD):
        return hermitian_forms(Z, X)
    if sp.issparse(Z):
        matrix: Any = sp.csr_array(Z)
        matrix = sp.csr_array(
            (finite_array(matrix.data, "Z of quad_form"), matrix.indices, matrix.indptr), matrix.shape
        )
        shape: tuple[int, ...] = (matrix.shape[0],)
    else:
        given = finite_array(Z, "Z of quad_form", ndim=(1, 2))
        matrix, shape = np.atleast_2d(given), given.shape[:-1]
    if matrix.shape[1] != X.n:
        raise ValueError(f"Z of quad_form has shape {matrix.shape}; expected rows of length {X.n}")
    m = matrix.shape[0]
    if m == 0:
        raise ValueError("Z of quad_form has no rows; expected at least one")
    return Expression(shape, np.zeros(m), {X: RankOne(matrix, np.ones(m))}, label=f"quad_form(Z, {X.name})")


def sq_distance(X: PSD, i: Any, j: Any) -> Expression:
    """Return the squared distances ``X[i, i] + X[j, j] - 2 X[i, j]``.

    Parameters
    ----------
    X : PSD
        A Gram matrix.
    i, j : int or array_like of int
        Broadcast against each other.

    Returns
    -------
    Expression
        A scalar for two integers, otherwise of shape ``(m,)``.

    Raises
    ------
    TypeError, ValueError
        If indices are empty, out of range, equal, or not integers.
    """
    _matrix(X, "sq_distance")
    scalar = np.ndim(i) == 0 and np.ndim(j) == 0
    first, second = _pairs(i, j, X.n)
    same = np.flatnonzero(first == second)
    if len(same):
        raise ValueError(
            f"sq_distance has i == j == {int(first[same[0]])} at place {int(same[0])}: "
            "the distance of a point to itself is always 0"
        )
    m = len(first)
    if isinstance(X, HermitianPSD):
        own = diag(X)
        distances = own[first] + own[second] - 2 * X[first, second].real
        return distances[0] if scalar else distances
    return Expression(
        () if scalar else (m,),
        np.zeros(m),
        {X: Distances(X.n, first, second, np.ones(m))},
        label=f"sq_distance({X.name}, {_index_text(i)}, {_index_text(j)})",
    )


def sum(expression: Any) -> Any:
    """Return the sum of all elements of an expression.

    Parameters
    ----------
    expression : Expression, variable, parameter or array_like

    Returns
    -------
    Expression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If numbers are not finite and real, or there are none.
    """
    if isinstance(expression, ComplexExpression):
        return ComplexExpression(sum(expression.real), sum(expression.imag), f"sum({expression.label})")
    return as_expression(expression, "expression of sum").summed()


def _matrix(X: Any, atom: str) -> PSD | HermitianPSD:
    if not isinstance(X, PSD | HermitianPSD):
        raise TypeError(f"X of {atom} is {type(X).__name__}; expected a bo.PSD variable")
    return X


def _matrices(A: Any) -> tuple[bool, list[Any]]:
    """Return whether `A` of inner is one matrix, and the list of matrices, empty for a scalar."""
    if sp.issparse(A):
        return True, [A]
    if isinstance(A, list | tuple):
        rows = len(A) > 0 and not sp.issparse(A[0]) and rectangular(A[0], "A[0] of inner").ndim == 1
        return (True, [A]) if rows else (False, list(A))
    stack = rectangular(A, "A of inner")
    if stack.ndim == 2:
        return True, [A]
    return False, list(stack) if stack.ndim else []


def _index_text(index: Any) -> str:
    """Return the text of an index in a label; of an array only the first index is shown."""
    numbers = np.ravel(index)
    if np.ndim(index) == 0:
        return str(int(numbers[0]))
    return f"[{int(numbers[0])}, ...]" if len(numbers) > 1 else f"[{int(numbers[0])}]"


def _pairs(i: Any, j: Any, n: int) -> tuple[IntArray, IntArray]:
    first = index_array(i, "i of sq_distance", n)
    second = index_array(j, "j of sq_distance", n)
    try:
        first, second = np.broadcast_arrays(first, second)
    except ValueError:
        raise ValueError(
            f"i and j of sq_distance have lengths {len(first)} and {len(second)}; expected the same"
        ) from None
    return first.copy(), second.copy()


def _sparse_rows(stack: list[Any], n: int, names: list[str]) -> SparseRows:
    parts: list[tuple[IntArray, IntArray, IntArray, Array]] = []
    for k, (matrix, name) in enumerate(zip(stack, names, strict=True)):
        if matrix.shape != (n, n):
            raise ValueError(f"{name} has shape {matrix.shape}; expected {n} x {n}")
        finite_array(sp.coo_array(matrix).data, name)
        A = sp.coo_array(symmetrized(sp.csr_array(matrix, dtype=float), name))
        i, j = (np.asarray(index, dtype=np.intp) for index in A.coords)
        parts.append((np.full(A.nnz, k, dtype=np.intp), i, j, A.data))
    fields = (np.concatenate(column) for column in zip(*parts, strict=True))
    return SparseRows.of(len(stack), n, Coordinates(*fields))
