"""The Schur matrix of one block, assembled from the formulas for its rows.

Those of rank-one terms and of diagonal entries, Hadamard products, are here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, covers, span
from bregopt.clock import checkpoint
from bregopt.linalg import root_of
from bregopt.program import LinearMap
from bregopt.program.rows import Coordinates, Rows
from bregopt.records import cached_property, dataclass
from bregopt.routes.ipm.schur.congruences import Congruences, split_by_cost
from bregopt.routes.ipm.schur.place_products import PlacedRows, PlaceProducts, block_of
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["Gram"]

# Fraction of the rows below which the requested rows of the Schur matrix are extracted first.
_SLICE_FRACTION = 0.7


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
    tuning : InteriorPointTuning
    block : int
    """

    def __init__(self, A: LinearMap, tuning: InteriorPointTuning, block: int = 0) -> None:
        self._A, self._tuning, self._block = A, tuning, block
        self._parts = A.terms_of(block)

    @cached_property
    def _formulas(self) -> _Formulas:
        tuning, m, n = self._tuning, self._A.m, self._A.orders[self._block]
        low_rank = [t for t in self._parts if t.rows.rank is not None and not t.rows.single]
        rank_one = _RankOneRows.of([(t.at, t.rows) for t in low_rank])
        others = [(t.at, t.rows.coordinates()) for t in self._parts if t not in low_rank]
        diagonal = _DiagonalRows.of(others, m) if rank_one is None else None
        placed = PlacedRows.of(others, m, n) if diagonal is None else None
        if placed is None:
            return _Formulas(diagonal, rank_one, None, None)
        many, placed = split_by_cost(placed, n, tuning)
        congruences = Congruences(placed, many, low_rank, n, tuning) if many else None
        products = PlaceProducts(placed.after(many), m, tuning) if many < len(placed.at) else None
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
            return self._all(P, Q)
        if len(rows) < _SLICE_FRACTION * self._A.m:
            return Gram(self._A.slice(rows), self._tuning, self._block).assemble(P, Q)
        return self._all(P, Q)[np.ix_(rows, rows)]

    def _all(self, P: Array, Q: Array) -> Array:
        formulas = self._formulas
        H = np.zeros((self._A.m, self._A.m))
        if formulas.products is not None:
            formulas.products.add(H, P, Q)
        if formulas.congruences is not None:
            formulas.congruences.add(H, P, Q)
        if formulas.rank_one is not None:
            formulas.rank_one.add(H, P, Q, formulas.products)
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

    def add(self, H: Array, P: Array, Q: Array, products: PlaceProducts | None) -> None:
        """Add the products of rank-one terms with each other and with rows with few entries."""
        halves = [(layer.U @ P, layer.weighted @ Q) for layer in self._layers]
        for k, (one, (left, right)) in enumerate(zip(self._layers, halves, strict=True)):
            for other in self._layers[k:]:
                checkpoint()
                W = _times(other.U, left)
                checkpoint()
                W *= _times(other.weighted, right)
                checkpoint()
                H[block_of(one.place, other.place)] += W
                if other is not one:
                    H[block_of(other.place, one.place)] += W.T
            if products is not None:
                mixed = products.mixed(left, right)
                H[block_of(products.at, one.place)] += mixed
                H[block_of(one.place, products.at)] += mixed.T


class _Layer:
    """Rank-one terms of different rows: the ``u`` in the rows of `U`, and their weights."""

    def __init__(self, at: IntArray, U: Any, weight: Array) -> None:
        self.place, self.U, self.weight = span(at), U, weight
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
            product: Array = half @ half.T  # a matrix and its own transpose: half the cost
            return product
    return _times(U, U @ P)


def _times(U: Any, half: Array) -> Array:
    """Return ``half U'``."""
    product: Array = (U @ half.T).T if sp.issparse(U) else half @ U.T
    return product


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
    def of(cls, families: list[tuple[IntArray, Coordinates]], m: int) -> _DiagonalRows | None:
        """Return the rows of families at indices of a stack of `m`; None if others are among them."""
        if m == 0 or sum(len(t.row) for _, t in families) != m:
            return None
        row = np.concatenate([at[t.row] for at, t in families])
        i, j, value = (np.concatenate([getattr(t, f) for _, t in families]) for f in ("i", "j", "value"))
        if not covers(span(row), m) or not np.array_equal(i, j):
            return None
        return cls(block_of(i, i), None if (value == 1).all() else value)

    def products(self, P: Array, Q: Array) -> Array:
        """Return the Schur matrix."""
        H: Array = P[self.block] * Q[self.block]
        return H if self.weight is None else self.weight[:, None] * H * self.weight
