"""Affine atoms, of matrix variables as one vectorized row family each, and inner products with matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import (
    Array,
    IntArray,
    MatrixLike,
    complex_array,
    finite_array,
    index_array,
    rectangular,
    symmetric_matrix,
    symmetrized,
)
from bregopt.modeling.affine import product
from bregopt.modeling.complex_expressions import ComplexExpression, ComplexForms, as_complex, conj, relabeled
from bregopt.modeling.complex_variables import HermitianPSD, half_embedded, hermitian_forms
from bregopt.modeling.convex.expression import CurvedExpression
from bregopt.modeling.expressions import Expression, ExpressionLike, Operand, as_expression, holds_complex
from bregopt.modeling.variables import PSD
from bregopt.program.rows import Coordinates, DenseRows, Distances, Entries, RankOne, SparseRows
from bregopt.records import replace

# A stack of matrices with at most this fraction of nonzeros is stored by its terms.
_SPARSE_SHARE = 0.2


@overload
def diag(X: ComplexForms) -> ComplexExpression: ...  # type: ignore[overload-overlap]


@overload
def diag(X: ExpressionLike) -> Expression: ...


def diag(X: Any) -> Any:
    """Return the diagonal of a square matrix, or the diagonal matrix of a vector.

    Parameters
    ----------
    X : PSD, or any expression of shape (n, n) or (n,)

    Returns
    -------
    Expression
        Shape ``(n,)`` of a matrix, ``(n, n)`` of a vector. Complex for a complex expression, but real for a
        Hermitian variable.

    Raises
    ------
    TypeError, ValueError
        If `X` is no square matrix and no vector.
    """
    if isinstance(X, HermitianPSD):
        return replace(X[np.diag_indices(X.n)].real, label=f"diag({X.name})")
    if isinstance(X, ComplexForms):
        return ComplexExpression(diag(X.real), diag(X.imag), f"diag({X.label})")
    if isinstance(X, PSD):
        order = np.arange(X.n)
        rows = Entries(X.n, order, order, np.ones(X.n))
        return Expression((X.n,), np.zeros(X.n), {X: rows}, label=f"diag({X.name})")
    e = _operand(X, "diag")
    if len(e.shape) != 1:
        return _diagonal(e, "diag")
    n, order = e.size, np.arange(e.size)
    S = sp.csr_array((np.ones(n), (order * (n + 1), order)), (n * n, n))
    return e.combined(S, (n, n), f"diag({e.label})")


@overload
def trace(X: ComplexForms) -> ComplexExpression: ...  # type: ignore[overload-overlap]


@overload
def trace(X: ExpressionLike) -> Expression: ...


def trace(X: Any) -> Any:
    """Return the trace of a square matrix; that of a Hermitian variable is real.

    Parameters
    ----------
    X : PSD, or any expression of shape (n, n), such as ``M @ X``

    Returns
    -------
    Expression
        A scalar; complex unless `X` is a variable.

    Raises
    ------
    TypeError, ValueError
        If `X` is no square matrix.
    """
    if isinstance(X, HermitianPSD):
        diagonal: Any = diag(X)  # real
        return replace(diagonal.summed(), label=f"trace({X.name})")
    if isinstance(X, ComplexForms):
        return ComplexExpression(trace(X.real), trace(X.imag), f"trace({X.label})")
    if not isinstance(X, PSD):
        e = _operand(X, "trace")
        return replace(_diagonal(e, "trace").summed(), label=f"trace({e.label})")
    return Expression((), np.zeros(1), {X: SparseRows.trace(X.n)}, label=f"trace({X.name})")


def _diagonal(e: Expression, atom: str) -> Expression:
    if len(e.shape) != 2 or e.shape[0] != e.shape[1]:
        expected = "a square matrix or a vector" if atom == "diag" else "a square matrix"
        raise ValueError(f"X of {atom} has shape {e.shape}; expected {expected}")
    n = e.shape[0]
    return e.taken(np.arange(n) * (n + 1), (n,), f"diag({e.label})")


@overload
def quad_form(Z: MatrixLike, X: PSD) -> Expression: ...


@overload
def quad_form(Z: MatrixLike, X: Operand) -> Expression | ComplexExpression: ...


def quad_form(Z: Any, X: Any) -> Any:
    """Return ``z*X z`` for each row ``z`` of `Z`, which is ``z'X z`` for real numbers.

    Parameters
    ----------
    Z : array_like or sparse of shape (m, n), or array_like of shape (n,)
        Real, or complex for an `X` that is no real variable.
    X : PSD, or affine expression of shape (n, n)

    Returns
    -------
    Expression or ComplexExpression
        Shape ``(m,)``; a scalar for a single vector. Complex for complex expressions but variables, with a
        zero imaginary part if `X` is Hermitian.

    Raises
    ------
    TypeError, ValueError
        If `Z` has another shape, no row, or numbers that are not finite, or not real for a real variable.
    """
    if isinstance(X, HermitianPSD):
        return hermitian_forms(Z, X)
    if not isinstance(X, PSD):
        return _forms_of_expression(Z, _array(_operand(X, "quad_form")))
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
    return Expression(
        shape,
        np.zeros(m),
        {X: RankOne(matrix, np.ones(m))},
        label=f"quad_form({'Z' if shape else 'z'}, {X.name})",
    )


def _forms_of_expression(Z: Any, F: Any) -> Any:
    rows = (complex_array if holds_complex(Z) else finite_array)(Z, "Z of quad_form", ndim=(1, 2))
    if F.shape != 2 * rows.shape[-1:]:
        raise ValueError(
            f"Z of quad_form has shape {rows.shape} and X has {F.shape}; expected rows of the order of a "
            "square matrix"
        )
    label = f"quad_form({'Z' if rows.ndim > 1 else 'z'}, {F.label})"
    return relabeled(sum((rows.conj() @ F) * rows, axis=-1), label)


def sq_distance(X: PSD, i: ArrayLike, j: ArrayLike) -> Expression:
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
    scalar = rectangular(i, "i").ndim == rectangular(j, "j").ndim == 0
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


@overload
def sum(expression: ComplexForms, axis: int | None = None) -> ComplexExpression: ...  # type: ignore[overload-overlap]


@overload
def sum(expression: CurvedExpression, axis: int | None = None) -> CurvedExpression: ...  # type: ignore[overload-overlap]


@overload
def sum(expression: ExpressionLike, axis: int | None = None) -> Expression: ...


def sum(expression: Any, axis: int | None = None) -> Any:
    """Return the sum of all elements of an expression, or the sums along an axis.

    Parameters
    ----------
    expression : Expression, CurvedExpression, variable, parameter or array_like
    axis : int, optional
        The axis that is summed, as in NumPy; None for all.

    Returns
    -------
    Expression
        A scalar, or an array without that axis.

    Raises
    ------
    TypeError, ValueError
        If numbers are not finite, there are none, or the expression has no such axis.
    """
    if holds_complex(expression):
        z = as_complex(expression, "expression of sum")
        real, imag = (sum(part, axis) for part in (z.real, z.imag))
        return ComplexExpression(real, imag, f"sum({z.label}{'' if axis is None else f', axis={axis}'})")
    e = expression
    if not isinstance(e, CurvedExpression):
        e = as_expression(expression, "expression of sum")
    if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int | np.integer)):
        raise TypeError(f"axis of sum is {axis!r}; expected an integer or None")
    if axis is not None and not -len(e.shape) <= axis < len(e.shape):
        raise ValueError(f"axis of sum is {axis}, but {e.label} has shape {e.shape}")
    return e.summed(axis)


def _operand(X: Any, atom: str) -> Any:
    """Return an operand as an expression, real or complex; refuse numbers."""
    if not isinstance(X, Operand):
        raise TypeError(
            f"X of {atom} is {type(X).__name__}; expected a bo.PSD variable or an expression; for numbers "
            f"there is np.{atom}"
        )
    return _array(X)


def _matrix(X: Any, atom: str) -> PSD | HermitianPSD:
    if not isinstance(X, PSD | HermitianPSD):
        raise TypeError(f"X of {atom} is {type(X).__name__}; expected a bo.PSD variable")
    return X


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


@overload
def inner(A: MatrixLike | Sequence[MatrixLike], X: PSD) -> Expression: ...


@overload
def inner(A: Operand | MatrixLike | Sequence[MatrixLike], X: Operand) -> Expression | ComplexExpression: ...


def inner(A: Any, X: Any) -> Any:
    """Return ``<A, X>``, the sum of the products of ``conj(A)`` and ``X``: ``tr(A X)`` for a Hermitian ``A``.

    Parameters
    ----------
    A : array_like or sparse of shape (n, n), a list of those, or array_like of shape (m, n, n); or Parameter
        Real or complex; symmetric if `X` is a psd variable, Hermitian if that or `A` is complex.
    X : PSD, or any expression of the shape of `A`

    Returns
    -------
    Expression or ComplexExpression
        A scalar for one matrix, shape ``(m,)`` for several. Real for a psd variable; complex for other
        complex matrices, with a zero imaginary part if both are Hermitian.

    Raises
    ------
    TypeError, ValueError
        If `A` is not of the shape of `X`, not finite numbers, has no matrix, or is not symmetric (Hermitian)
        for a psd variable `X`.
    """
    if isinstance(A, Operand):
        return _inner_of_expressions(_array(A), _array(X, "X of inner"))
    if not isinstance(X, PSD | HermitianPSD):
        return _inner_of_expression(A, _array(X, "X of inner"))
    block: Any = X
    n = block.n
    single, stack = _matrices(A)
    if not stack:
        raise ValueError(f"A of inner is {A!r}; expected a matrix or matrices of order {n}")
    names = ["A of inner"] if single else [f"A[{k}] of inner" for k in range(len(stack))]
    if isinstance(X, HermitianPSD):
        block, stack = X.block, [half_embedded(a, name, n) for a, name in zip(stack, names, strict=True)]
    elif holds_complex(stack):  # of a Hermitian matrix the imaginary part is orthogonal to a symmetric one
        stack = [_real_part(a, name, n) for a, name in zip(stack, names, strict=True)]
    m, rows = len(stack), _as_rows(stack, names, block.n)
    return Expression(() if single else (m,), np.zeros(m), {block: rows}, label=f"inner(A, {block.name})")


def _as_rows(stack: list[Any], names: list[str], n: int) -> SparseRows | DenseRows:
    """Return symmetric matrices as rows, sparse where they are or have few nonzeros."""
    if sp.issparse(stack[0]) and all(map(sp.issparse, stack)):
        return _sparse_rows(stack, n, names)
    dense = np.empty((len(stack), n, n))
    for k, A in enumerate(stack):
        dense[k] = symmetric_matrix(A, names[k], n)
    rows = DenseRows(dense)
    if np.count_nonzero(dense) <= _SPARSE_SHARE * dense.size:
        return SparseRows.of(len(stack), n, rows.coordinates())
    return rows


def _array(X: Any, name: str = "constant") -> Any:
    """Return an operand or numbers as an expression, complex where they are."""
    return as_complex(X, name) if holds_complex(X) else as_expression(X, name)


def _real_part(A: Any, name: str, n: int) -> Any:
    """Return the real part of a Hermitian matrix, dense or sparse."""
    half = half_embedded(A, name, n)  # whose checks are those of a Hermitian variable
    return 2 * half[:n, :n]


def _inner_of_expressions(A: Any, e: Any) -> Any:
    if A.shape != e.shape:
        raise ValueError(f"A of inner has shape {A.shape}; expected {e.shape}")
    label = f"inner({A.label}, {e.label})"
    if isinstance(A, ComplexForms) or isinstance(e, ComplexForms):
        products: Any = conj(A) * e
        return relabeled(sum(products), label)
    return replace(product(A, e).summed(), label=label)


def _inner_of_expression(A: Any, e: Any) -> Any:
    if len(e.shape) != 2:
        raise ValueError(f"X of inner has shape {e.shape}; expected a matrix")
    single, stack = _matrices(A)
    given = complex_array if holds_complex(stack) else finite_array
    flat = [given(a, "A of inner", ndim=2) for a in stack]
    for matrix in flat:
        if matrix.shape != e.shape:
            raise ValueError(f"A of inner has shape {matrix.shape}; expected {e.shape}")
    if not flat:
        raise ValueError(f"A of inner is {A!r}; expected a matrix or matrices of shape {e.shape}")
    label, rows = f"inner(A, {e.label})", np.array([matrix.ravel() for matrix in flat])
    if given is complex_array or isinstance(e, ComplexForms):
        products = rows.conj() @ e[np.divmod(np.arange(rows.shape[1]), e.shape[1])]
        return relabeled(products[0] if single else products, label)
    return e.combined(sp.csr_array(rows), () if single else (len(flat),), label)


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
