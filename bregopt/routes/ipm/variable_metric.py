"""The terms of the ordinary variables in Newton's system, and which of them border it.

The equations of the variables are ``du + D_u dz = r_u`` with ``D_u = diag(d) + P P'``: each second-order cone
has a column ``p`` of ``P``, and its variables are in no other. Free and nearly free variables border the
system in the multipliers of the rows, with ``inv(D_u)`` in its corner. The others are eliminated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.linalg import dense
from bregopt.program import NO_CONES, SecondOrderCones
from bregopt.records import cached_property, dataclass

__all__ = ["VariableMetric"]

# Share of the entries of a sparse matrix from which it is added or multiplied as a dense one.
_FULL = 0.2


@dataclass(frozen=True, eq=False)
class VariableMetric:
    """``D_u``, and the variables that border the system.

    Parameters
    ----------
    d : array of shape (k,)
        Infinite for a free variable.
    bordering : boolean array of shape (k,)
        All variables of a cone, or none.
    cones : SecondOrderCones
    p : array of shape (size,), optional
        The columns of ``P``. In a cone ``inv(D_u)`` is ``diag(1 / d) + q q'`` with ``q = p / d``.
    """

    d: Array
    bordering: Mask
    cones: SecondOrderCones = NO_CONES
    p: Array | None = None

    @classmethod
    def split(
        cls, d: Array, cones: SecondOrderCones, p: Array | None, B: Any, diagonal: Array, ratio: float
    ) -> VariableMetric:
        """Return the metric; free variables and those nearly free border the system.

        Eliminating such a variable would cancel the digits of the rows that share it. Its term is more than
        `ratio` times the `diagonal` entry of at least two rows.

        Parameters
        ----------
        d, cones, p
            Those of the metric.
        B : array or csr_array of shape (rows, k)
        diagonal : array of shape (rows,)
        ratio : float
        """
        bordering: Mask = np.isinf(d)
        if not bordering.all():
            own = np.where(bordering, 0.0, d)
            if p is not None:
                own[cones.index] += p**2
            # Pays on: matrix inequality in 10 variables of wide bounds.
            bordering |= _large_terms(B, own, ratio * diagonal) > 1
        if p is not None:  # a cone as a whole
            marked = np.maximum.reduceat(bordering[cones.index], cones.starts)
            bordering[cones.index] = marked[cones.owner]
        return cls(d, bordering, cones, p)

    @cached_property
    def borders(self) -> bool:
        """Whether variables border the system."""
        return bool(np.logical_or.reduce(self.bordering))

    @property
    def corner(self) -> Array:
        """``inv(D_u)`` of the bordering variables, shape ``(bordering, bordering)``."""
        inverse = np.diag(1 / self.d[self.bordering])
        if self._inverse_columns is not None:
            own = np.flatnonzero(self.bordering[self.cones.index])
            place = (np.cumsum(self.bordering) - 1)[self.cones.index[own]]
            q, owner = self._inverse_columns[own], self.cones.owner[own]
            inverse[np.ix_(place, place)] += np.outer(q, q) * (owner[:, None] == owner)
        return inverse

    def quotient(self, v: Array) -> Array:
        """Return ``inv(D_u) v`` for a vector of the bordering variables."""
        whole = np.zeros(len(self.d))
        whole[self.bordering] = v
        quotient: Array = whole / self.d
        if self._inverse_columns is not None:
            q, index = self._inverse_columns, self.cones.index
            quotient[index] += q * self.cones.inner(q, whole[index])[self.cones.owner]
        return quotient[self.bordering]

    def product(self, v: Array) -> Array:
        """Return ``D_u v`` of the eliminated variables, zero for the others."""
        product: Array = self._eliminated * v
        if self._columns is not None:
            index, owner = self.cones.index, self.cones.owner
            product[index] += self._columns * self.cones.inner(self._columns, v[index])[owner]
        return product

    def add_gram(self, M: Array, B: Any) -> None:
        """Add ``B D_u B'`` of the eliminated variables to `M`."""
        if self.bordering.all():
            return
        d, p, cones = self._eliminated, self._columns, self.cones
        if isinstance(B, np.ndarray):
            gram = (B * d) @ B.T
            if p is not None:
                BP = np.add.reduceat(B[:, cones.index] * p, cones.starts, axis=1)
                gram += BP @ BP.T
            M += gram
            return
        _add_product(M, _scaled(B, d), B)
        if p is not None:
            BP = B @ sp.csr_array((p, (cones.index, cones.owner)), (len(d), cones.count))
            _add_product(M, BP, BP)

    @cached_property
    def _eliminated(self) -> Array:
        """``d`` of the eliminated variables, zero for the others."""
        return np.where(self.bordering, 0.0, self.d)

    @cached_property
    def _columns(self) -> Array | None:
        """``p`` of the eliminated variables, zero for the others; None without any."""
        if self.p is None or self.bordering[self.cones.index].all():
            return None
        return np.where(self.bordering[self.cones.index], 0.0, self.p)

    @cached_property
    def _inverse_columns(self) -> Array | None:
        """``q`` of the bordering variables, zero for the others; None without any."""
        if self.p is None or not self.bordering[self.cones.index].any():
            return None
        return np.where(self.bordering[self.cones.index], self.p / self.d[self.cones.index], 0.0)


def _large_terms(B: Any, d: Array, least: Array) -> IntArray:
    """Return, for each variable, the number of rows with ``d_j B_kj^2`` above ``least_k``."""
    if isinstance(B, np.ndarray):
        return np.add.reduce(B**2 * d > least[:, None])  # sums of booleans are integers
    row = np.repeat(np.arange(B.shape[0]), np.diff(B.indptr))
    large = B.data**2 * d[B.indices] > least[row]
    return np.bincount(B.indices[large], minlength=B.shape[1])


def _scaled(B: Any, d: Array) -> Any:
    """Return ``B diag(d)`` of a CSR matrix, without the columns whose factor is zero."""
    data = B.data * d[B.indices]
    if d.all():
        return sp.csr_array((data, B.indices, B.indptr), B.shape)
    scaled = sp.csr_array((data, B.indices, B.indptr), B.shape, copy=True)
    scaled.eliminate_zeros()
    return scaled


def _add_product(M: Array, left: Any, right: Any) -> None:
    """Add the product ``left right'`` of sparse matrices to `M`, entry by entry where it has few."""
    if left.nnz > _FULL * left.shape[0] * left.shape[1]:
        M += dense(left) @ dense(right).T
        return
    G = left @ right.T
    if G.nnz > _FULL * M.size:
        M += G.toarray()
        return
    row = np.repeat(np.arange(len(M)), np.diff(G.indptr))
    M[row, G.indices] += G.data  # a product has each of its entries once
