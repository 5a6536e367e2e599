"""Equalities that others imply: combinations of rows that vanish, proven in exact arithmetic.

A row that is stated twice, or that is the sum of others, makes equations singular, although it asks for
nothing. A pivoted Cholesky factorization finds the rows that depend on others up to round-off, and their
coefficients. Integers near these prove the combinations of rows of integers; elimination in fractions decides
about others. Ends of rows count, too: doubles may hide a contradiction, such as ``0.1 x = 1`` beside
``0.30000000000000004 x = 3``.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.rigorous.linear_algebra import Vector, eliminated, terms_of

__all__ = ["Relations", "are_integers", "as_integers", "product_of_integers", "relations_of"]

_LARGEST = 2.0**53  # below it, sums of integers are exact
_DENOMINATORS = (0, 50, 500, 10_000)  # ends of those that are tried at once: most are small
_ROUNDED = 1e-5  # of a multiple, the distance from an integer that counts as round-off
_FEW = 20  # entries of a row, those farthest from integers, that are tried with all denominators at once
_DEPENDENT = 1e-9  # squared distance of a unit row from the span of others that counts as zero
_NEAR = 1e-13  # the same for rows that are refused where they are not proven to depend on others
_ZERO = 1e-9  # coefficient of a unit row that counts as zero
_LARGEST_ELIMINATION = 100_000  # terms of a row times the square of the others


class Relations(NamedTuple):
    """Rows that depend on others.

    Parameters
    ----------
    implied : int array of shape (d,)
        Rows that are proven to vanish where the others do.
    combinations : array of shape (d, m)
        Of rows, that vanish with their ends; each has one implied row. The coefficients are rounded.
    unproven : int array
        Rows that depend on others up to round-off, of which no such combination is found.
    """

    implied: IntArray
    combinations: Array
    unproven: IntArray


def relations_of(rows: Any, b: Array, unit: Array) -> Relations:
    """Return the rows that others imply, with their right sides.

    Parameters
    ----------
    rows : csr_array of shape (m, p)
    b : array of shape (m,)
    unit : array of shape (p,)
        Weights of columns, in whose norm distances are measured.
    """
    if not len(b):  # LAPACK takes no empty matrices
        return Relations(np.zeros(0, dtype=np.intp), np.zeros((0, 0)), np.zeros(0, dtype=np.intp))
    weighted = rows * unit
    size = np.asarray(abs(weighted).max(axis=1).toarray() if rows.shape[1] else np.zeros(len(b))).ravel()
    size[size == 0] = 1.0
    weighted = sp.csr_array(sp.diags_array(1 / size) @ weighted)
    gram = (weighted @ weighted.T).toarray()
    norm = np.sqrt(np.maximum(gram.diagonal(), 1.0))  # that of a row of zeros is zero
    size *= norm
    L, order, rank, _ = scipy.linalg.lapack.dpstrf(gram / np.outer(norm, norm), tol=_DEPENDENT, lower=1)
    kept, others = order[:rank] - 1, order[rank:] - 1
    L = np.tril(L[:, :rank])
    right = L[rank:].T
    M = scipy.linalg.solve_triangular(L[:rank], right, lower=True, trans=1).T if rank else right.T
    distance = gram.diagonal()[others] / norm[others] ** 2 - (L[rank:] ** 2).sum(axis=1)
    found = np.zeros((len(others), len(b)))
    N, factor = as_integers(M * size[others][:, None] / size[kept])
    found[:, kept] = N
    found[np.arange(len(others)), others] = -factor
    whole = sp.csr_array(sp.hstack([rows, sp.csr_array(b[:, None])]))
    product = product_of_integers(sp.csr_array(found), whole) if are_integers(whole.data) else None
    if product is None:
        proven = np.zeros(len(others), dtype=bool)
    else:
        proven = (factor > 0) & (abs(product).sum(axis=1) == 0)
    for d in np.flatnonzero(~proven):
        used = np.abs(M[d]) > _ZERO
        found[d, kept] = np.where(used, M[d], 0.0) * size[others[d]] / size[kept]
        found[d, others[d]] = -1.0
        proven[d] = _is_combination(whole, kept[used].tolist(), int(others[d]))
    return Relations(others[proven], found[proven], others[~proven & (distance <= _NEAR)])


def _is_combination(rows: Any, kept: list[int], last: int) -> bool:
    """Whether the last row is a combination of some others, by elimination in fractions."""
    if len(kept) ** 2 * int(np.diff(rows.indptr)[[*kept, last]].max()) > _LARGEST_ELIMINATION:
        return False
    table = rows[[*kept, last]]
    vectors: list[Vector] = [{} for _ in range(table.shape[0])]
    for k, p, a in terms_of(table):
        vectors[k][p] = Fraction(a)
    return len(eliminated(vectors)) == len(eliminated(vectors[:-1]))


def as_integers(M: Array) -> tuple[Array, Array]:
    """Return the least multiples of rows that are integers, and the factors; zero where there are none."""
    N, factor = np.zeros_like(M), np.zeros(len(M))
    far = np.abs(M - np.rint(M))
    for k, row in enumerate(M):
        own = row[np.argsort(far[k])[-_FEW:]] if far[k].max(initial=0.0) > _ROUNDED else row[:0]
        q = next((q for q in _denominators(own) if _miss(q * row) <= _ROUNDED), 0)
        N[k], factor[k] = np.rint(q * row), q
    return N, factor


def _denominators(own: Array) -> Iterator[int]:
    """Yield the factors of some numbers that make them integers, the least first."""
    for below, last in pairwise(_DENOMINATORS):
        every = np.arange(below + 1, last + 1)
        yield from every[_miss(every[:, None] * own) <= _ROUNDED].tolist()


def _miss(M: Array) -> Any:
    """Return the largest distance of a row from integers."""
    return np.abs(M - np.rint(M)).max(axis=-1, initial=0.0)


def are_integers(x: Array) -> bool:
    """Whether all numbers are integers that floating point counts exactly."""
    return bool((x == np.rint(x)).all() and np.abs(x).max(initial=0.0) < _LARGEST)


def product_of_integers(P: Any, Q: Any) -> Any | None:
    """Return the product of integers, None where it might not be exact."""
    size = abs(P) @ abs(Q)
    largest = np.max(size.data if sp.issparse(size) else size, initial=0.0)
    return P @ Q if largest < _LARGEST else None
