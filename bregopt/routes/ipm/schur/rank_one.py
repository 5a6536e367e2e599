"""The Schur matrix of rank-one terms ``w u u'``, by Hadamard products ``(U P U') o (U Q U')``."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, covers, span
from bregopt.cache import cached_property
from bregopt.clock import checkpoint
from bregopt.linalg import root_of
from bregopt.program.rows import Rows
from bregopt.routes.ipm.schur.place_products import PlaceProducts
from bregopt.routes.ipm.schur.placed_rows import block_of

__all__ = ["RankOneRows"]


class RankOneRows:
    """Rows ``sum w u u'``, in layers with at most one rank-one term of each row."""

    def __init__(self, layers: list[_Layer]) -> None:
        self._layers = layers

    @classmethod
    def of(cls, families: list[tuple[IntArray, Rows]]) -> RankOneRows | None:
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
