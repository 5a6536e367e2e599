"""A convex quadratic objective of a conic program as one more second-order cone.

The term ``x'P x / 2`` with ``P = L L'`` becomes a variable ``t >= ||L'x||^2 / 2``, that is

    (t / sigma + sigma / 2, t / sigma - sigma / 2, L'x)   in the second-order cone,

for any ``sigma > 0``. At ``sigma = ||L'x||`` the second entry is zero at the optimum. The best guess that the
data allow is the root of ``||P||`` times the largest ``|b_k| / ||A_k||``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.cvxpy.conic.form import Conic
from bregopt.records import dataclass

__all__ = ["QuadraticCost", "with_quadratic_cost"]

_ZERO = 1e-14  # relative to the largest eigenvalue: smaller ones are round-off of zero


@dataclass(frozen=True, eq=False)
class QuadraticCost:
    """A conic program with a linear cost in place of a quadratic one.

    Parameters
    ----------
    conic : Conic
        Its last variable is ``t``, and its last second-order cone the one above.
    P : csr_array of shape (k, k)
    L : csr_array of shape (k, r)
    sigma : float
    """

    conic: Conic
    P: Any
    L: Any
    sigma: float

    @property
    def _rows(self) -> slice:
        """The rows of the last second-order cone."""
        return slice(self.conic.first_psd - self.conic.soc[-1], self.conic.first_psd)

    def value(self, x: Array) -> float:
        """Return the objective at ``x``, without ``t``."""
        return float(self.conic.c[:-1] @ x + x @ (self.P @ x) / 2)

    def shortened(self, x: Array, z: Array | None) -> tuple[Array, Array | None]:
        """Return ``x`` and ``z`` without ``t`` and its cone."""
        return x[:-1], None if z is None else np.delete(z, self._rows)

    def extended(self, x: Array, z: Array) -> tuple[Array, Array]:
        """Return an optimal ``x`` and ``z`` with the best ``t`` and the multipliers of its cone."""
        w, sigma = self.L.T @ x, self.sigma
        t = float(w @ w) / 2
        own = np.concatenate([[t / sigma + sigma / 2, sigma / 2 - t / sigma], -w])
        return np.append(x, t), np.insert(z, self._rows.start, own)

    def extended_proof(self, x: Array, z: Array) -> tuple[Array, Array]:
        """Return a ray ``x`` and a Farkas vector ``z`` with zeros for ``t`` and its cone."""
        return np.append(x, 0.0), np.insert(z, self._rows.start, np.zeros(self.conic.soc[-1]))


def with_quadratic_cost(conic: Conic, P: Any) -> QuadraticCost:
    """Return the conic program with ``x'P x / 2`` added to its cost.

    Parameters
    ----------
    conic : Conic
    P : sparse array of shape (k, k), symmetric and psd up to round-off
        CVXPY makes no others.
    """
    P = sp.csr_array(P, dtype=float)
    L = _factor(P)
    rows = np.sqrt(np.asarray((conic.A**2).sum(axis=1)).ravel())
    largest = float(np.max(np.abs(conic.b[rows > 0]) / rows[rows > 0], initial=0.0))
    sigma = float(np.sqrt(np.abs(P.data).max())) * largest or 1.0
    k, r = L.shape
    axis = sp.csr_array(np.array([[1 / sigma], [1 / sigma]]))
    own = sp.block_array([[sp.csr_array((2, k)), -axis], [-L.T, sp.csr_array((r, 1))]], format="csr")
    given = sp.hstack([conic.A, sp.csr_array((len(conic.b), 1))], format="csr")
    split, right = conic.first_psd, np.concatenate([[sigma / 2, -sigma / 2], np.zeros(r)])
    extended = Conic(
        A=sp.csr_array(sp.vstack([given[:split], own, given[split:]], format="csr")),
        b=np.concatenate([conic.b[:split], right, conic.b[split:]]),
        c=np.append(conic.c, 1.0),
        zero=conic.zero,
        nonneg=conic.nonneg,
        soc=(*conic.soc, r + 2),
        orders=conic.orders,
    )
    return QuadraticCost(extended, P, L, sigma)


def _factor(P: Any) -> Any:
    """Return ``L`` with ``P = L L'``, a column for each nonzero eigenvalue."""
    used = np.flatnonzero(np.diff(P.indptr))
    inner = P[used][:, used]
    if inner.nnz == len(used) and (inner.diagonal() != 0).all():
        eigenvalues, Q = inner.diagonal(), sp.eye_array(len(used), format="csr")
    else:
        eigenvalues, Q = np.linalg.eigh(inner.toarray())
    largest = np.abs(eigenvalues).max()
    kept = np.flatnonzero(eigenvalues > _ZERO * largest)
    columns = sp.coo_array(Q[:, kept] * np.sqrt(eigenvalues[kept]))
    return sp.csr_array((columns.data, (used[columns.row], columns.col)), (P.shape[0], len(kept)))
