"""The Hessian of a block's term of the dual function, where its minimizer is a function of a spectrum.

The term is ``min_X <C - A*(y), X> + mu D(X, X0)``, with the minimizer ``X(y)``. Its Hessian is ``-H``, where
``H v = A(X'[A*(v)])``, in the generalized sense where ``X(y)`` is singular (Qi and Sun 2006). Nearness
problems have their own ``X0``; augmented Lagrangians of linear programs have the last iterate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray
from bregopt.divergences import Spectrum
from bregopt.divergences.spectrum import DifferenceSpectrum, PositiveSpectrum
from bregopt.program import LinearMap
from bregopt.program.rows import Rows
from bregopt.program.rows.algebra import dense_stack, upper_triangles
from bregopt.records import dataclass
from bregopt.routes.ipm.schur.gram import RowAction

__all__ = ["GivenDifferences", "RowCurvature", "gram", "has_gram", "hessian_product"]

# Least diagonal entry of the dual Hessian, relative to that of the row alone. A singular point may have no
# curvature along a row, and the diagonal preconditions Newton's equation.
_LEAST_CURVATURE = 1e-8
# Entries of small matrices, which are formed in a few calls.
_AT_ONCE = 20_000
# Largest number of rows of a family, relative to the order, whose curvatures come from their rank-one terms.
# With more rows all entries together cost less.
_RANK_ONE_RATIO = 2


def hessian_product(action: RowAction, spectrum: Spectrum, v: Array) -> Array:
    """Return ``H v`` for the rows of one block, shape ``(m,)``."""
    S = action.adjoint(v)
    moved = spectrum.derivative(S)
    activity = action.apply_product(moved.L, moved.R)
    if moved.share:
        activity += moved.share * action.apply(S.toarray() if sp.issparse(S) else S)
    if moved.M is not None:
        activity += action.apply(moved.M)
    return activity


def has_gram(spectrum: Any) -> bool:
    """Whether ``H`` is given by the divided differences of the spectrum."""
    own = getattr(type(spectrum), "derivative", None)
    return own in (DifferenceSpectrum.derivative, PositiveSpectrum.derivative)


def gram(A: LinearMap, spectrum: Any) -> Array:
    """Return ``H`` of the rows of one block as a matrix, shape (m, m)."""
    differences: Array = spectrum.differences
    n = len(differences)
    if A.m * n**2 <= _AT_ONCE:
        products = np.zeros((A.m, n, n))
        for term in A.terms:
            products[term.at] += dense_stack(term.rows.restrict(spectrum.V))
        flat = products.reshape(A.m, -1)
        return np.asarray((flat * differences.ravel()) @ flat.T)
    i, j = np.triu_indices(n)
    inside = np.zeros((A.m, len(i)))
    for term in A.terms:
        inside[term.at] += upper_triangles(term.rows.restrict(spectrum.V)).T
    inside *= np.sqrt(differences[i, j] * np.where(i == j, 1.0, 0.5))
    return np.asarray(inside @ inside.T)


@dataclass(frozen=True, eq=False)
class GivenDifferences(DifferenceSpectrum):
    """Divided differences that are given, in the basis ``V``."""

    V: Array
    given: Array

    @property
    def typical_derivative(self) -> float:  # noqa: D102
        return 0.0

    @property
    def differences(self) -> Array:  # noqa: D102
        return self.given


class RowCurvature:
    """The approximate diagonal of ``H`` for the rows of one block, as a function of the spectrum.

    Parameters
    ----------
    A : LinearMap
    """

    def __init__(self, A: LinearMap) -> None:
        self._squares = A.norms() ** 2
        self._terms = [_TermCurvature(term.at, term.rows, A.orders[0]) for term in A.terms]

    def __call__(self, spectrum: Spectrum | DifferenceSpectrum) -> Array:
        """Return the diagonal, bounded away from zero."""
        diagonal = np.zeros(len(self._squares))
        of_entries: Array | None = None
        for term in self._terms:
            if term.diagonal is not None:
                i, weight = term.diagonal
                diagonal[term.at] += weight**2 * spectrum.curvature(spectrum.V[i])
            elif term.rank_one is not None:
                p = term.rank_one
                part = p.weight**2 * spectrum.curvature(p.U @ spectrum.V)
                diagonal[term.at] += np.bincount(p.row, weights=part, minlength=term.rows.m)
            else:
                of_entries = spectrum.entry_curvature() if of_entries is None else of_entries
                t = term.entries or term.rows.coordinates()
                part = t.value**2 * of_entries[t.i, t.j] * np.where(t.i == t.j, 1.0, 0.5)
                diagonal[term.at] += np.bincount(t.row, weights=part, minlength=term.rows.m)
        least = _LEAST_CURVATURE * spectrum.typical_derivative * self._squares
        return np.maximum(diagonal, np.where(least > 0, least, TINY))


class _TermCurvature:
    """One term of the rows in the form that gives the curvature at the lower cost.

    `diagonal` are the indices and weights of diagonal entries; `entries` are its coordinates if each row has
    few; `rank_one` are its rank-one terms. Curvatures along vectors are used where they cost less than those
    of all entries together.
    """

    def __init__(self, at: IntArray, rows: Rows, n: int) -> None:
        self.at, self.rows = at, rows
        self.entries = rows.coordinates() if rows.few_terms else None
        few = (rows.rank is not None and not rows.few_terms) or rows.m <= _RANK_ONE_RATIO * n
        own = self.entries if few and rows.single else None
        on_diagonal = own is not None and np.array_equal(own.i, own.j)
        self.diagonal = (own.i, own.value) if own is not None and on_diagonal else None
        self.rank_one = rows.rank_one_terms() if few and self.diagonal is None else None
