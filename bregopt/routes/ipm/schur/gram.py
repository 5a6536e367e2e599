"""The Schur matrix of one block, assembled from the formulas for its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.cache import cached_property
from bregopt.program import LinearMap
from bregopt.routes.ipm.schur.congruences import Congruences
from bregopt.routes.ipm.schur.diagonal import DiagonalRows
from bregopt.routes.ipm.schur.place_products import PlaceProducts
from bregopt.routes.ipm.schur.placed_rows import PlacedRows
from bregopt.routes.ipm.schur.rank_one import RankOneRows
from bregopt.routes.ipm.schur.split import split_by_cost
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["Gram"]


@dataclass(frozen=True, eq=False)
class _Formulas:
    """The formula for diagonal entries alone, or those for rank-one rows, many entries and few entries."""

    diagonal: DiagonalRows | None
    rank_one: RankOneRows | None
    congruences: Congruences | None
    products: PlaceProducts | None

    @property
    def only_rank_one(self) -> RankOneRows | None:
        return self.rank_one if self.congruences is None and self.products is None else None


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
        rank_one = RankOneRows.of([(t.at, t.rows) for t in low_rank])
        others = [(t.at, t.rows.coordinates()) for t in self._parts if t not in low_rank]
        diagonal = DiagonalRows.of(others, m) if rank_one is None else None
        placed = PlacedRows.of(others, m, n) if diagonal is None else None
        if placed is None:
            return _Formulas(diagonal, rank_one, None, None)
        many, placed = split_by_cost(placed, n, tuning)
        congruences = Congruences(placed, many, low_rank, n, tuning) if many else None
        products = PlaceProducts(placed.after(many), m, tuning) if many < len(placed.at) else None
        return _Formulas(None, rank_one, congruences, products)

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
        rank_one = self._formulas.only_rank_one
        if rank_one is not None and rank_one.one_per_row(self._A.m):
            return rank_one.products(P, Q, slice(None) if rows is None else rows, root)
        if rows is None:
            return self._all(P, Q)
        if len(rows) < self._tuning.slice_fraction * self._A.m:
            return Gram(self._A.slice(rows), self._tuning, self._block).assemble(P, Q)
        return self._all(P, Q)[np.ix_(rows, rows)]

    def _all(self, P: Array, Q: Array) -> Array:
        formulas = self._formulas
        if formulas.diagonal is not None:
            return formulas.diagonal.products(P, Q)
        H = np.zeros((self._A.m, self._A.m))
        if formulas.products is not None:
            formulas.products.add(H, P, Q)
        if formulas.congruences is not None:
            formulas.congruences.add(H, P, Q)
        if formulas.rank_one is not None:
            formulas.rank_one.add(H, P, Q, formulas.products)
        return H
