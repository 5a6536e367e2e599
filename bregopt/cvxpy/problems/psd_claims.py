"""Which matrices of a CVXPY problem are symmetric, and which say that a variable is psd."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.cvxpy.problems.affine_reader import rows_of
from bregopt.cvxpy.problems.coefficients import Coefficients, joined
from bregopt.cvxpy.problems.variables import is_matrix, is_mirrored, is_square, upper_entries
from bregopt.records import dataclass

__all__ = ["Claim", "claim_of", "is_real_form", "is_symmetric", "is_symmetric_array", "is_symmetric_map"]

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
    slopes = [_coefficients(v, rows) for v in rows.variables]
    return all(abs(slope - slope[mirror]).max() <= _ROUND_OFF * abs(slope).max() for slope in slopes)


def is_symmetric_array(values: Array, shape: tuple[int, ...]) -> bool:
    """Whether the square matrix with these entries, by columns, is symmetric up to round-off."""
    skew = np.abs(values - values[_transposed(shape[0])]).max(initial=0.0)
    return bool(skew <= _ROUND_OFF * np.abs(values).max(initial=0.0))


def is_real_form(matrix: Any) -> bool:
    """Whether an affine matrix is ``[A, -B; B, A]``, the real form of ``A + iB``, for all values."""
    n, odd = divmod(matrix.shape[0], 2)
    if odd:
        return False
    number = np.arange(4 * n * n).reshape((2 * n, 2 * n), order="F")
    first, second = number[:n].ravel(), np.hstack([number[n:, n:], number[n:, :n]]).ravel()
    sign = np.tile(np.repeat([1.0, -1.0], n), n)
    rows = rows_of(matrix)
    if (rows.constant[first] != sign * rows.constant[second]).any():
        return False
    slopes = [_coefficients(v, rows) for v in rows.variables]
    return all(abs(slope[first] - sp.diags_array(sign) @ slope[second]).max() == 0 for slope in slopes)


def _transposed(n: int) -> IntArray:
    """Return the number of each entry's mirror image, by columns."""
    return np.arange(n * n).reshape(n, n).T.ravel()


def _coefficients(variable: Any, rows: Coefficients) -> Any:
    """Return the coefficients of a variable in rows, with those of mirrored entries added up."""
    row, at, weight = joined(
        [*rows.elements.get(variable, []), *(q.elements() for q in rows.quadratics.get(variable, []))]
    )
    if is_mirrored(variable):
        at = upper_entries(at, variable.shape[0])
    return sp.csr_array((weight, (row, at)), (rows.m, variable.size))


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
    slope = _coefficients(X, rows).tocoo()
    to = upper_entries(np.arange(n * n), n)
    row, column = to[slope.coords[0]], to[slope.coords[1]]
    symmetric = sp.csr_array((slope.data, (row, column)), (n * n, n * n))
    count = np.bincount(to, minlength=n * n).astype(float)
    scale = float(symmetric.trace()) / n**2
    if scale == 0 or abs(symmetric - scale * sp.diags_array(count)).max() > 0:
        return None
    constant = rows.constant.reshape((n, n), order="F")
    return Claim(X, float(np.sign(scale)), abs(scale), -(constant + constant.T) / (2 * abs(scale)))
