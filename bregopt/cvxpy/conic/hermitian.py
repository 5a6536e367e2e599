"""Hermitian matrices, which CVXPY states as real ones of twice the order.

The Hermitian matrix ``Y + i Z`` is psd if the real one ``[[Y, -Z], [Z, Y]]`` is. The real matrices of this
form are those with ``J S J' = S``, for ``J = [[0, -I], [I, 0]]``. Read directly, such a matrix has a row for
each pair of entries that are equal, or equal up to sign: 3,600 at order 60, beside 240 of phase retrieval.

No such row is needed. Let each variable of such matrices have two copies, one in the first entry of each
pair and one in the second, and let their mean replace it elsewhere. Then ``S`` may be any psd matrix. Its
mean with ``J S J'`` is psd, too, and is the matrix of the means of copies. Multipliers ``z`` of the program
with copies meet the equations of both copies, so they meet their sum, which is that of the variable.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.cvxpy.cones import triangle
from bregopt.cvxpy.conic.form import Conic
from bregopt.records import replace

__all__ = ["Copies", "with_copies"]


class Copies(NamedTuple):
    """A program with two copies of the variables of Hermitian matrices.

    Parameters
    ----------
    conic : Conic
    mean : csr_array
        It maps the ``x`` of this program to that of the given one.
    paired : csr_array
        It maps ``z`` to one with matrices of the form.
    """

    conic: Conic
    mean: Any
    paired: Any


class _Pairs(NamedTuple):
    """The rows of a real matrix of order ``2 n``: pairs of entries, and entries that are zero.

    Parameters
    ----------
    first, second : int array
    zero : int array
    sign : array
        The second entry of a pair is the first one times the sign.
    """

    first: IntArray
    second: IntArray
    zero: IntArray
    sign: Array


# Pays on: phase retrieval of complex signals, n = 36.
def with_copies(conic: Conic) -> Copies | None:
    """Return the program with copies of the variables of Hermitian matrices, None where there are none."""
    found = [
        _Pairs(span.start + own.first, span.start + own.second, span.start + own.zero, own.sign)
        for order, span in zip(conic.orders, conic.spans, strict=True)
        if order % 2 == 0 and _has_form(conic, span, own := _pairs(order))
    ]
    if not found:
        return None
    first, second, zero, sign = (np.concatenate(part) for part in zip(*found, strict=True))
    A, (m, k) = sp.coo_array(conic.A), conic.A.shape
    in_first, in_second, copied = np.zeros(m, dtype=bool), np.zeros(m, dtype=bool), np.zeros(k, dtype=bool)
    in_first[first] = in_second[second] = True
    copied[A.col[in_first[A.row]]] = True
    if not copied.any():
        return None
    twice = np.flatnonzero(copied)
    place = np.arange(k)
    place[twice] = k + np.arange(len(twice))  # of the second copies
    shared = copied[A.col] & ~in_first[A.row] & ~in_second[A.row]
    # Entries that are zero in the mean are variables of their own.
    count = k + len(twice) + len(zero)
    entries = np.concatenate([np.where(shared, A.data / 2, A.data), A.data[shared] / 2, np.ones(len(zero))])
    rows = np.concatenate([A.row, A.row[shared], zero])
    columns = np.concatenate(
        [
            np.where(in_second[A.row], place[A.col], A.col),
            place[A.col[shared]],
            np.arange(count - len(zero), count),
        ]
    )
    share = np.where(copied, 0.5, 1.0)
    of = np.append(np.arange(k), twice)
    mean = sp.csr_array((share[of], (of, np.arange(len(of)))), (k, count))
    own = sp.csr_array((entries, (rows, columns)), (m, count))
    return Copies(replace(conic, A=own, c=mean.T @ conic.c), mean, _paired(m, first, second, zero, sign))


def _paired(m: int, first: IntArray, second: IntArray, zero: IntArray, sign: Array) -> Any:
    """Return the map of ``z`` to its mean over the pairs."""
    alone = np.ones(m)
    alone[first] = alone[second] = 0.5
    alone[zero] = 0.0
    across = sp.csr_array((sign / 2, (first, second)), (m, m))
    return sp.csr_array(sp.diags_array(alone) + across + across.T)


@cache
def _pairs(order: int) -> _Pairs:
    """Return the pairs of entries of a matrix, by their numbers in its triangle."""
    n, (i, j, _) = order // 2, triangle(order)
    number = np.empty((order, order), dtype=np.intp)
    number[i, j] = np.arange(len(i))
    Y, Z = np.flatnonzero(j < n), np.flatnonzero((i < j - n) & (i < n))
    second = np.concatenate([number[i[Y] + n, j[Y] + n], number[j[Z] - n, i[Z] + n]])
    sign = np.concatenate([np.ones(len(Y)), -np.ones(len(Z))])
    return _Pairs(np.concatenate([Y, Z]), second, number[np.arange(n), np.arange(n, order)], sign)


def _has_form(conic: Conic, span: slice, pairs: _Pairs) -> bool:
    """Whether a matrix is ``[[Y, -Z], [Z, Y]]`` for all values of the variables."""
    first, second, zero, sign = pairs
    count, b = np.diff(conic.A.indptr[span.start : span.stop + 1]), conic.b[span]
    if count[zero].any() or b[zero].any() or (count[first] != count[second]).any():
        return False
    if (b[second] != sign * b[first]).any():
        return False
    A = conic.A[span]
    return not (sp.diags_array(sign) @ A[first] - A[second]).count_nonzero()
