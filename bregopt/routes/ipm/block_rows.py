"""The rows of one block: their Schur matrix, and their products with matrices that are never formed.

The Schur matrix is ``H_kl = <A_k, sym(P A_l Q)>`` for all pairs of rows. No ``A_k`` is multiplied out if its
structure allows a cheaper formula (Fujisawa, Kojima and Nakata 1997; for rank-one terms the Hadamard product
of the max-cut literature):

- rank-one terms ``w u u'``, and diagonal entries: a Hadamard product of two congruences,
  ``(U P U') o (U Q U')``;
- other rows: products of entries of ``P`` and ``Q``, or the rows applied to ``P A_l Q``
  (:mod:`bregopt.routes.ipm.schur`).

Where the minimizer of a block is a function of a spectrum, the Hessian of its term of the dual function is
such a matrix, too. The term is ``min_X <C - A*(y), X> + mu D(X, X0)``, with the minimizer ``X(y)``. Its
Hessian is ``-H``, where ``H v = A(X'[A*(v)])``, in the generalized sense where ``X(y)`` is singular (Qi and
Sun 2006). Nearness problems have their own ``X0``; augmented Lagrangians of linear programs have the last
iterate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, covers, span
from bregopt.clock import checkpoint
from bregopt.divergences import Spectrum
from bregopt.divergences.spectrum import DifferenceSpectrum, PositiveSpectrum
from bregopt.linalg import dense, root_of
from bregopt.program import LinearMap
from bregopt.program.rows import Coordinates, Rows, placed_coordinates
from bregopt.program.rows.algebra import dense_stack, upper_triangles
from bregopt.records import cached_property, dataclass
from bregopt.routes.ipm.schur import (
    Congruences,
    PlacedRows,
    PlaceProducts,
    block_of,
    split_by_cost,
)

# Fraction of the rows below which the requested rows of the Schur matrix are extracted first.
_SLICE_FRACTION = 0.7
# Terms per order above which a full matrix product costs less than one inner product a term.
_TERMS_PER_ORDER = 20
# Rows whose products are formed at a time: these stay in the cache.
_ROWS_AT_A_TIME = 256
_NONE = np.zeros(0, dtype=np.intp)
# Number of terms of all rows, relative to the entries of a matrix, up to which rows are evaluated term by
# term.
_SPARSE_FRACTION = 0.1
# Order from which ``A*(y)`` of such rows is a sparse matrix.
SPARSE_ORDER = 150
# Least diagonal entry of the dual Hessian, relative to that of the row alone. A singular point may have no
# curvature along a row, and the diagonal preconditions Newton's equation.
_LEAST_CURVATURE = 1e-8
# Entries of small matrices, which are formed in a few calls.
_AT_ONCE = 20_000
# Largest number of rows of a family, relative to the order, whose curvatures come from their rank-one terms.
# With more rows all entries together cost less.
_RANK_ONE_RATIO = 2


@dataclass(frozen=True, eq=False)
class _Formulas:
    """The formula for diagonal entries alone, or those for rank-one rows, many entries and few entries."""

    diagonal: _DiagonalRows | None
    rank_one: _RankOneRows | None
    congruences: Congruences | None
    products: PlaceProducts | None

    @property
    def only_rank_one(self) -> _RankOneRows | None:
        return self.rank_one if self.congruences is None and self.products is None else None


# Pays on: 500 quadratic forms, n = 40.
class Gram:
    """Assembles the Schur matrix of one block.

    Parameters
    ----------
    A : LinearMap
    block : int
    """

    def __init__(self, A: LinearMap, block: int = 0) -> None:
        self._A, self._block = A, block
        self._parts = A.terms_of(block)
        self._slice: tuple[IntArray, Gram] | None = None  # of the rows asked for last

    @cached_property
    def _formulas(self) -> _Formulas:
        """The formulas: some rows by rank-one terms, and the others by their entries."""
        low_rank = [t for t in self._parts if t.rows.rank is not None and not t.rows.single]
        m, n = self._A.m, self._A.orders[self._block]
        rank_one = _RankOneRows.of([(t.at, t.rows) for t in low_rank])
        others = placed_coordinates((t.at, t.rows) for t in self._parts if t not in low_rank)
        diagonal = _DiagonalRows.of(others, m) if rank_one is None else None
        placed = PlacedRows.of(others, m, n) if diagonal is None else None
        if placed is None:
            return _Formulas(diagonal, rank_one, None, None)
        many, placed = split_by_cost(placed, n)
        terms = [] if rank_one is None else rank_one.terms
        congruences = Congruences(placed, many, terms, n) if many else None
        products = PlaceProducts(placed.after(many), m) if many < len(placed.at) else None
        return _Formulas(None, rank_one, congruences, products)

    @cached_property
    def hadamard(self) -> bool:
        """Whether all rows are diagonal entries, or rank-one terms, one each."""
        rank = [term.rows.rank for term in self._parts]
        if all(term.rows.single for term in self._parts) or all(r == 1 for r in rank):
            rank_one = self._formulas.only_rank_one
            return self._formulas.diagonal is not None or (
                rank_one is not None and rank_one.one_per_row(self._A.m)
            )
        return False

    def assemble(self, P: Array, Q: Array, rows: IntArray | None = None, root: Array | None = None) -> Array:
        """Return the Schur matrix of all rows, or of some in ascending order.

        Parameters
        ----------
        P, Q : arrays of shape (n, n)
            Symmetric.
        rows : array of shape (k,), optional
            All rows by default.
        root : array of shape (n, n), optional
            The Cholesky factor of `P`, if known.

        Returns
        -------
        array of shape (m, m) or (k, k)
            Symmetric up to round-off.
        """
        if rows is not None and len(rows) == self._A.m:
            rows = None
        if self._formulas.diagonal is not None:
            H = self._formulas.diagonal.products(P, Q)
            return H if rows is None else H[np.ix_(rows, rows)]
        rank_one = self._formulas.only_rank_one
        if rank_one is not None and rank_one.one_per_row(self._A.m):
            return rank_one.products(P, Q, slice(None) if rows is None else rows, root)
        if rows is None:
            return self._all(P, Q, root)
        if len(rows) < _SLICE_FRACTION * self._A.m:
            known = self._slice
            if known is None or known[0] is not rows:
                known = self._slice = rows, Gram(self._A.slice(rows), self._block)
            return known[1].assemble(P, Q, root=root)
        return self._all(P, Q, root)[np.ix_(rows, rows)]

    def _all(self, P: Array, Q: Array, root: Array | None) -> Array:
        formulas = self._formulas
        H = np.zeros((self._A.m, self._A.m))
        if formulas.products is not None:
            formulas.products.add(H, P, Q)
        if formulas.congruences is not None:
            formulas.congruences.add(H, P, Q)
        if formulas.rank_one is not None:
            formulas.rank_one.add(H, P, Q, formulas.products, root)
        return H


class _RankOneRows:
    """Rows ``sum w u u'``, in layers with at most one rank-one term of each row."""

    def __init__(self, layers: list[_Layer]) -> None:
        self._layers = layers

    @classmethod
    def of(cls, families: list[tuple[IntArray, Rows]]) -> _RankOneRows | None:
        """Return the rank-one terms of families at indices of a stack; None without any."""
        layers = []
        for at, rows in families:
            p = rows.rank_one_terms()
            if p is None:
                continue
            if covers(span(p.row), rows.m):  # one each
                layers.append(_Layer(at, p.U, p.weight))
                continue
            order = np.argsort(p.row, kind="stable")
            first = np.searchsorted(p.row[order], p.row[order])
            layer_of = np.empty(len(order), dtype=np.intp)
            layer_of[order] = np.arange(len(order)) - first
            for k in range(int(layer_of.max(initial=-1)) + 1):
                own = np.flatnonzero(layer_of == k)
                layers.append(_Layer(at[p.row[own]], p.U[own], p.weight[own]))
        return cls(layers) if layers else None

    @property
    def terms(self) -> list[tuple[IntArray, Any, Array]]:
        """The rows, vectors and weights of each layer."""
        return [(layer.at, layer.U, layer.weight) for layer in self._layers]

    def one_per_row(self, m: int) -> bool:
        """Whether each row has exactly one rank-one term, in order."""
        return len(self._layers) == 1 and covers(self._layers[0].place, m)

    def products(self, P: Array, Q: Array, rows: IntArray | slice, root: Array | None) -> Array:
        """Return the products of the rank-one terms of some rows if all are :meth:`one_per_row`."""
        (layer,) = self._layers
        U, weight = layer.U[rows], layer.weight[rows]
        W = _congruence(U, P, root)
        W *= W if P is Q else _congruence(U, Q)
        if not layer.unweighted:
            W *= np.multiply.outer(weight, weight)
        return W

    def add(self, H: Array, P: Array, Q: Array, products: PlaceProducts | None, root: Array | None) -> None:
        """Add the products of rank-one terms with each other and with rows with few entries."""
        left, to_left = self._halves([layer.U for layer in self._layers], P, root)
        right, to_right = self._halves([layer.weighted for layer in self._layers], Q, None)
        for k, one in enumerate(self._layers):
            for j, other in enumerate(self._layers[k:], start=k):
                for first in range(0, len(one.at), _ROWS_AT_A_TIME):
                    checkpoint()
                    own = slice(first, first + _ROWS_AT_A_TIME)
                    # Of a layer with itself, these rows and those before suffice: the products are symmetric.
                    others = slice(own.stop if other is one else None)
                    W = _times(to_left[j][others], left[k][own])
                    W *= _times(to_right[j][others], right[k][own])
                    here = span(one.at[own])
                    H[block_of(here, span(other.at[others]))] += W
                    if other is one:
                        others, W = slice(first), W[:, :first]
                    H[block_of(span(other.at[others]), here)] += W.T
            if products is not None:
                mixed = products.mixed(one.U @ P, one.weighted @ Q)
                H[block_of(products.at, one.place)] += mixed
                H[block_of(one.place, products.at)] += mixed.T

    @staticmethod
    def _halves(vectors: list[Any], P: Array, root: Array | None) -> tuple[list[Any], list[Any]]:
        """Return the factors of the products ``U P V'`` on the left, and on the right.

        Both are ``U L`` with the Cholesky factor of `P` where that costs less.
        """
        if all(isinstance(U, np.ndarray) and len(P) <= len(U) for U in vectors):
            root = root_of(P) if root is None else root
            if root is not None:
                halves = [U @ root for U in vectors]
                return halves, halves
        return [U @ P for U in vectors], vectors


class _Layer:
    """Rank-one terms of different rows: the ``u`` in the rows of `U`, and their weights."""

    def __init__(self, at: IntArray, U: Any, weight: Array) -> None:
        self.at, self.place, self.U, self.weight = at, span(at), U, weight
        self.unweighted = bool((weight == 1).all())

    @cached_property
    def weighted(self) -> Any:
        """The ``w u``."""
        if sp.issparse(self.U):
            return sp.csr_array(sp.diags_array(self.weight) @ self.U)
        return self.weight[:, None] * self.U


def _congruence(U: Any, P: Array, root: Array | None = None) -> Array:
    """Return ``U P U'``, by the Cholesky factor of `P` if that costs less."""
    if isinstance(U, np.ndarray) and len(P) <= len(U):
        root = root_of(P) if root is None else root
        if root is not None:
            half = U @ root
            return half @ half.T  # a matrix and its own transpose: half the cost
    return _times(U, U @ P)


def _times(U: Any, half: Array) -> Array:
    """Return ``half U'``."""
    return (U @ half.T).T if sp.issparse(U) else half @ U.T


@dataclass(frozen=True, eq=False)
class _DiagonalRows:
    """All rows of the stack, in order, as ``weight_k X_ii``.

    Parameters
    ----------
    block : index
        The block of ``X`` of the diagonal entries.
    weight : array of shape (m,), optional
        None stands for ones.
    """

    block: Any
    weight: Array | None

    @classmethod
    def of(cls, t: Coordinates, m: int) -> _DiagonalRows | None:
        """Return the rows of a stack of `m` with these terms; None if others are among them."""
        if m == 0 or len(t.row) != m or not covers(span(t.row), m) or not np.array_equal(t.i, t.j):
            return None
        return cls(block_of(t.i, t.i), None if (t.value == 1).all() else t.value)

    def products(self, P: Array, Q: Array) -> Array:
        """Return the Schur matrix."""
        H: Array = P[self.block] * Q[self.block]
        return H if self.weight is None else self.weight[:, None] * H * self.weight


class RowAction:
    """``A`` and ``A*`` of one block.

    Parameters
    ----------
    A : LinearMap
    block : int

    Attributes
    ----------
    by_term : bool
        Whether the rows have so few terms that they are evaluated term by term.
    by_entry : bool
        Whether they have so few that products are not formed for them.
    sparse : bool
        Whether ``A*(y)`` is a sparse matrix.
    """

    def __init__(self, A: LinearMap, block: int = 0) -> None:
        self._A, self._block, self._n = A, block, A.orders[block]
        self._parts = A.terms_of(block)
        count = sum(term.count for term in self._parts)
        self.by_term = count <= _SPARSE_FRACTION * self._n**2
        self.by_entry = self.by_term and count <= _TERMS_PER_ORDER * self._n
        self.sparse = self.by_term and self._n >= SPARSE_ORDER

    @cached_property
    def _terms(self) -> Coordinates:
        return placed_coordinates((term.at, term.rows) for term in self._parts)

    @cached_property
    def _pattern(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """The entries of ``A*(y)``, the entry of each term and of its mirror image, and CSR's indices."""
        t, n = self._terms, self._n
        entries, entry = np.unique(np.concatenate([t.i * n + t.j, t.j * n + t.i]), return_inverse=True)
        line, column = np.divmod(entries, self._n)
        return entries, entry.ravel(), column, np.searchsorted(line, np.arange(self._n + 1))

    @cached_property
    def _adjoint_map(self) -> Any:
        """The linear map from ``y`` to the entries of ``A*(y)``."""
        t, (entries, entry, _, _) = self._terms, self._pattern
        half = np.concatenate([t.value, t.value]) / 2
        return sp.csr_array((half, (entry, np.tile(t.row, 2))), (len(entries), self._A.m))

    def adjoint(self, y: Array) -> Any:
        """Return ``A*(y)``, sparse if the rows are sparse and the order is large."""
        if not self.sparse:
            return self._A.adjoint(y, self._block)
        _, _, column, start = self._pattern
        return sp.csr_array((self._adjoint_map @ y, column, start), (self._n, self._n))

    def in_pattern(self, S: Array) -> Any:
        """Return an ``A*(y)``, given with its zeros, as a sparse matrix."""
        entries, _, column, start = self._pattern
        return sp.csr_array((S.ravel()[entries], column, start), (self._n, self._n))

    def apply(self, S: Array) -> Array:
        """Return ``A(S)`` for a symmetric matrix, shape ``(m,)``."""
        if len(self._A.orders) == 1:
            return self._A.apply((S,))
        activity = np.zeros(self._A.m)
        for term in self._parts:
            activity[term.place] += term.rows.apply(S)
        return activity

    def apply_symmetric_part(self, F: Array) -> Array:
        """Return ``A(sym(F))`` for any matrix, shape ``(m,)``."""
        return self.apply((F + F.T) / 2)

    def schur(self, X: Array, K: Array, rows: IntArray | None = None, root: Array | None = None) -> Array:
        """Return the Schur matrix ``<A_k, sym(X A_l K)>`` of all rows, or of some in ascending order.

        `root` is the Cholesky factor of ``X``, possibly on a face.
        """
        whole = root is not None and len(root) == self._n
        return self._gram.assemble(X, K, rows, root if whole else None)

    @property
    def hadamard(self) -> bool:
        """Whether the Schur matrix is an entrywise product of matrices of its order."""
        return self._gram.hadamard

    @cached_property
    def formula(self) -> BlockSchur:
        """The Schur matrix of the rows that meet the block."""
        return BlockSchur(self._A, self._block)

    @cached_property
    def _gram(self) -> Gram:
        return Gram(self._A, self._block)

    def magnitudes(self, X: Array) -> Array:
        """Return the largest ``sum_ij |A_ij| s_i s_j`` over the terms of each row, with ``s^2 = diag(X)``."""
        largest, s = np.zeros(self._A.m), np.sqrt(np.maximum(X.diagonal(), 0.0))
        for term in self._parts:
            largest[term.place] = np.maximum(largest[term.place], term.rows.magnitude(s))
        return largest

    def apply_product(self, L: Array, R: Array) -> Array:
        """Return ``A(sym(L R'))``, shape ``(m,)``."""
        if not self.by_term:
            return self.apply_symmetric_part(L @ R.T)
        i, j = self._term_indices
        if not self.by_entry:
            full = L @ R.T
            entry = (full[i, j] + full[j, i]) / 2
        else:
            if not isinstance(i, slice):
                L, R = np.ascontiguousarray(L), np.ascontiguousarray(R)
            entry = np.einsum("kp,kp->k", L[i], R[j])
            if i is not j:
                entry = (entry + np.einsum("kp,kp->k", R[i], L[j])) / 2
        t = self._terms
        return np.bincount(t.row, weights=t.value * entry, minlength=self._A.m).astype(float)

    @cached_property
    def _term_indices(self) -> tuple[IntArray | slice, IntArray | slice]:
        """The row and column indices of the terms; one object for both if all are on the diagonal."""
        t = self._terms
        i = span(t.i)
        return (i, i) if np.array_equal(t.i, t.j) else (i, span(t.j))


class BlockSchur:
    """The Schur matrix of one block that meets few rows, as numbers at places.

    Parameters
    ----------
    A : LinearMap
    block : int

    Attributes
    ----------
    target : int array
        Places ``k * m + l``.
    """

    def __init__(self, A: LinearMap, block: int) -> None:
        met = np.unique(np.concatenate([_NONE, *(term.at for term in A.terms_of(block))]))
        self._gram = Gram(A.slice(met).of_block(block))
        self.target: IntArray = np.add.outer(met * A.m, met).ravel()

    def values(self, X: Array, K: Array) -> Array:
        """Return numbers at these places: the Schur matrix is their sum plus its transpose."""
        if len(self.target) == 0:
            return np.zeros(0)
        return self._gram.assemble(X, K).ravel() / 2


# --- Hessians of dual functions -------------------------------------------------------------------------


def hessian_product(action: RowAction, spectrum: Spectrum, v: Array) -> Array:
    """Return ``H v`` for the rows of one block, shape ``(m,)``."""
    return derivative_activity(action, spectrum, action.adjoint(v))


def derivative_activity(action: RowAction, spectrum: Spectrum, S: Any) -> Array:
    """Return the activity of the derivative of the minimizer along a dense or sparse `S`, shape ``(m,)``."""
    moved = spectrum.derivative(S)
    if not action.by_term:
        return action.apply_symmetric_part(moved.unsymmetric(dense(S)))
    activity = action.apply_product(moved.L, moved.R)
    if moved.share:
        activity += moved.share * action.apply(dense(S))
    return activity if moved.M is None else activity + action.apply(moved.M)


def has_gram(spectrum: Any) -> bool:
    """Whether ``H`` is given by the divided differences of the spectrum."""
    own = getattr(type(spectrum), "derivative", None)
    return own in (DifferenceSpectrum.derivative, PositiveSpectrum.derivative)


def dual_hessian(A: LinearMap, spectrum: Any) -> Array:
    """Return ``H`` of the rows of one block as a matrix, shape (m, m)."""
    differences: Array = spectrum.differences
    n = len(differences)
    if A.m * n**2 <= _AT_ONCE:
        products = np.zeros((A.m, n, n))
        for term in A.terms:
            products[term.at] += dense_stack(term.rows.restrict(spectrum.V))
        flat = products.reshape(A.m, -1)
        return np.asarray((flat * differences.ravel()) @ flat.T)
    inside = hessian_factor(A, spectrum)
    return np.asarray(inside @ inside.T)


def hessian_factor(A: LinearMap, spectrum: Any) -> Array:
    """Return ``F`` with ``H = F F'``, with a column for each entry on and above the diagonal."""
    differences: Array = spectrum.differences
    i, j = np.triu_indices(len(differences))
    inside = np.zeros((A.m, len(i)))
    for term in A.terms:
        inside[term.at] += upper_triangles(term.rows.restrict(spectrum.V)).T
    inside *= np.sqrt(differences[i, j] * np.where(i == j, 1.0, 0.5))
    return inside


@dataclass(frozen=True, eq=False)
class GivenDifferences(DifferenceSpectrum):
    """Divided differences that are given, in the basis ``V``."""

    V: Array
    given: Array

    @property
    def typical_derivative(self) -> float:
        return 0.0

    @property
    def differences(self) -> Array:
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

    def __call__(self, spectrum: DifferenceSpectrum) -> Array:
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
