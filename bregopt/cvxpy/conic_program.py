"""The data of a conic program with second-order and psd cones, as CVXPY lays it out for Clarabel.

A convex quadratic objective becomes one more second-order cone. The term ``x'P x / 2`` with ``P = L L'``
becomes a variable ``t >= ||L'x||^2 / 2``, that is

    (t / sigma + sigma / 2, t / sigma - sigma / 2, L'x)   in the second-order cone,

for any ``sigma > 0``. At ``sigma = ||L'x||`` the second entry is zero at the optimum. Each element of ``x``
may be as large as the largest ``|b_k| / ||A_k||`` of the rows that hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray
from bregopt.program import SecondOrderCones
from bregopt.records import cached_property, dataclass, replace

__all__ = [
    "Conic",
    "Names",
    "Places",
    "QuadraticCost",
    "Triangle",
    "others",
    "triangle",
    "with_quadratic_cost",
]

_ROOT = np.sqrt(2.0)
_ZERO = 1e-14  # relative to the largest eigenvalue: smaller ones are round-off of zero


class Triangle(NamedTuple):
    """The entry of each row of a psd matrix, which is ``weight * S[i, j]``, ``i <= j``."""

    i: IntArray
    j: IntArray
    weight: Array


def triangle(n: int) -> Triangle:
    """Return the entries and weights of the rows of a psd matrix of order `n`."""
    j, i = np.tril_indices(n)
    return Triangle(i, j, np.where(i == j, 1.0, _ROOT))


class Places(NamedTuple):
    """The entry of each psd row, which is ``weight * S[i, j]`` of a block."""

    block: IntArray
    i: IntArray
    j: IntArray
    weight: Array


@dataclass(frozen=True, eq=False)
class Conic:
    """The data of ``minimize c'x subject to A x + s = b``.

    Parameters
    ----------
    A : csr_array of shape (m, k)
    b : array of shape (m,)
    c : array of shape (k,)
    zero, nonneg : int
        Numbers of rows of the zero cone and of the nonnegative numbers, which come first.
    soc : tuple of int
        Dimensions of the second-order cones, whose rows come next.
    orders : tuple of int
        Orders of the psd matrices, whose rows come next.
    exponential : int
        The number of exponential cones, of three rows each at the end.
    log_dets : tuple of float, optional
        Weights ``w`` of terms ``-w log det S`` of the psd matrices in the objective; empty for none.
    """

    A: Any
    b: Array
    c: Array
    zero: int
    nonneg: int
    soc: tuple[int, ...]
    orders: tuple[int, ...]
    exponential: int = 0
    log_dets: tuple[float, ...] = ()

    @property
    def linear(self) -> int:
        """The number of rows of the zero cone and of the nonnegative numbers."""
        return self.zero + self.nonneg

    @property
    def first_psd(self) -> int:
        """The number of rows that are not of a psd matrix."""
        return self.linear + sum(self.soc)

    @property
    def cone_sizes(self) -> tuple[Any, ...]:
        """The numbers of rows of all cones."""
        return self.zero, self.nonneg, self.soc, self.orders, self.exponential

    @property
    def stated_constant(self) -> float:
        """The constant by which the divergences of log-determinants are too small."""
        return sum(w * n for w, n in zip(self.log_dets, self.orders, strict=False))

    def has_rows_of(self, other: Conic) -> bool:
        """Whether another program has the same ``A`` and cones."""
        A, B = self.A, other.A
        parts = ((A.indptr, B.indptr), (A.indices, B.indices), (A.data, B.data))
        same = self.cone_sizes == other.cone_sizes and A.shape == B.shape
        return same and (A is B or all(np.array_equal(a, b) for a, b in parts))

    def with_numbers(self, b: Array, c: Array) -> Conic:
        """Return the program with another ``b`` and ``c``, and with all that is known of its rows."""
        other = replace(self, b=b, c=c)
        vars(other).update({**vars(self), "b": b, "c": c})
        return other

    @cached_property
    def At(self) -> Any:
        """The transpose of ``A``, for products."""
        return self.A.T

    def cones(self, first: int) -> SecondOrderCones:
        """Return the second-order cones, if their rows are the variables from the number `first` on."""
        ends = np.cumsum([first, *self.soc])
        return SecondOrderCones.of([np.arange(*pair) for pair in pairwise(ends.tolist())])

    @cached_property
    def spans(self) -> list[slice]:
        """The rows of each psd matrix."""
        ends = np.cumsum([self.first_psd, *(n * (n + 1) // 2 for n in self.orders)])
        return [slice(*pair) for pair in pairwise(ends.tolist())]

    @cached_property
    def places(self) -> Places:
        """The block, entry and weight of each psd row."""
        of_order = {n: triangle(n) for n in set(self.orders)}
        triangles = [of_order[n] for n in self.orders]
        i, j, weight = (np.concatenate(part) for part in zip(*triangles, strict=True))
        block = np.repeat(np.arange(len(self.orders)), [len(part.i) for part in triangles])
        return Places(block, i, j, weight)

    @cached_property
    def _entries(self) -> tuple[IntArray, IntArray]:
        """The number of each psd row's entry, and of its mirror image, among the entries of all matrices."""
        block, i, j, _ = self.places
        orders = np.array(self.orders)
        n, first = orders[block], (np.cumsum(orders**2) - orders**2)[block]
        return first + i * n + j, first + j * n + i

    def matrices(self, triangles: Array) -> list[Array]:
        """Return the symmetric matrices whose psd rows are given."""
        ends = np.cumsum([n * n for n in self.orders])
        flat = np.zeros(ends[-1])
        at, mirrored = self._entries
        flat[at] = flat[mirrored] = triangles / self.places.weight
        return [part.reshape(n, n) for part, n in zip(np.split(flat, ends[:-1]), self.orders, strict=True)]

    def triangles(self, S: Sequence[Array]) -> Array:
        """Return the psd rows of matrices."""
        at, _ = self._entries
        rows: Array = self.places.weight * np.concatenate([np.ravel(S_b) for S_b in S])[at]
        return rows


def others(chosen: IntArray, count: int) -> IntArray:
    """Return the numbers below `count` that are not chosen."""
    left = np.ones(count, dtype=bool)
    left[chosen] = False
    return np.flatnonzero(left)


class Names(NamedTuple):
    """Variables that name affine expressions, the equations that say so, and their factors there."""

    variables: IntArray
    rows: IntArray
    factors: Array


@dataclass(frozen=True, eq=False)
class QuadraticCost:
    """A conic program with a linear cost in place of a quadratic one.

    CVXPY states the square of an affine expression as that of a variable, and an equation. Such variables are
    eliminated: the square of ``X - A`` has half as many elements, as mirrored ones are equal.

    Parameters
    ----------
    conic : Conic
        Its last variable is ``t``, and its last second-order cone the one above.
    P : csr_array of shape (k, k)
    L : csr_array of shape (k, r)
    sigma : float
    given : Conic
        The program without the quadratic cost.
    names : Names
        The variables that are eliminated.
    """

    conic: Conic
    P: Any
    L: Any
    sigma: float
    given: Conic
    names: Names

    @property
    def _kept(self) -> tuple[IntArray, IntArray]:
        """The variables and rows that are not eliminated."""
        m, k = self.given.A.shape
        return others(self.names.variables, k), others(self.names.rows, m)

    @property
    def _cone(self) -> slice:
        """The rows of the last second-order cone."""
        return slice(self.conic.first_psd - self.conic.soc[-1], self.conic.first_psd)

    def value(self, x: Array) -> float:
        """Return the objective at ``x``, without ``t``."""
        return float(self.given.c @ x + x @ (self.P @ x) / 2)

    def shortened(self, x: Array, z: Array | None) -> tuple[Array, Array | None]:
        """Return ``x`` and ``z`` of the given program."""
        (variables, rows), given, names = self._kept, self.given, self.names
        whole, multipliers = np.zeros(len(given.c)), np.zeros(len(given.b))
        whole[variables] = x[:-1]
        whole[names.variables] = (given.b - given.A @ whole)[names.rows] / names.factors
        if z is None:
            return whole, None
        multipliers[rows] = np.delete(z, self._cone)
        multipliers[names.rows] = (self.L @ z[self._cone][2:])[names.variables] / names.factors
        return whole, multipliers

    def extended(self, x: Array, z: Array) -> tuple[Array, Array]:
        """Return an optimal ``x`` and ``z`` with the best ``t`` and the multipliers of its cone."""
        w, sigma, (variables, rows) = self.L.T @ x, self.sigma, self._kept
        t = float(w @ w) / 2
        own = np.concatenate([[t / sigma + sigma / 2, sigma / 2 - t / sigma], -w])
        return np.append(x[variables], t), np.insert(z[rows], self._cone.start, own)

    def extended_proof(self, x: Array, z: Array) -> tuple[Array, Array]:
        """Return a ray ``x`` and a Farkas vector ``z`` with zeros for ``t`` and its cone."""
        (variables, rows), own = self._kept, np.zeros(self.conic.soc[-1])
        return np.append(x[variables], 0.0), np.insert(z[rows], self._cone.start, own)


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
    size = np.abs(conic.b) / np.maximum(np.sqrt((conic.A**2).sum(axis=1)), TINY)
    largest = abs(conic.A).sign().multiply(size[:, None]).max(axis=0).toarray().ravel()
    sigma = float(np.sqrt((L**2).sum(axis=1) @ largest**2)) or 1.0
    names = _names(conic, P)
    (m, k), r, equations = conic.A.shape, L.shape[1], names.rows
    variables, rows = others(names.variables, k), others(equations, m)
    # Of a name, L'x is L'(b - A x) / a with the numbers of its equation.
    defined = sp.csr_array(L[names.variables].T @ sp.diags_array(1 / names.factors))
    axis = sp.csr_array(np.array([[1 / sigma], [1 / sigma]]))
    tail = defined @ conic.A[equations][:, variables] - L[variables].T
    own = sp.block_array(
        [[sp.csr_array((2, len(variables))), -axis], [tail, sp.csr_array((r, 1))]], format="csr"
    )
    given = sp.hstack([conic.A[rows][:, variables], sp.csr_array((len(rows), 1))], format="csr")
    split, right = conic.first_psd - len(equations), np.array([sigma / 2, -sigma / 2])
    b = conic.b[rows]
    extended = Conic(
        A=sp.csr_array(sp.vstack([given[:split], own, given[split:]], format="csr")),
        b=np.concatenate([b[:split], right, defined @ conic.b[equations], b[split:]]),
        c=np.append(conic.c[variables], 1.0),
        zero=conic.zero - len(equations),
        nonneg=conic.nonneg,
        soc=(*conic.soc, r + 2),
        orders=conic.orders,
        exponential=conic.exponential,
        log_dets=conic.log_dets,
    )
    return QuadraticCost(extended, P, L, sigma, conic, names)


# Pays on: least squares of a matrix beside a cost, n = 30.
def _names(conic: Conic, P: Any) -> Names:
    """Return the variables that name affine expressions whose squares are paid.

    They have no other cost and are in one equation each, which has one of them.
    """
    m, k = conic.A.shape
    paid = (P.diagonal() > 0) & (conic.c == 0)
    row, column = np.repeat(np.arange(m), np.diff(conic.A.indptr)), conic.A.indices
    single = paid & (np.bincount(column, minlength=k) == 1)
    own = single[column] & (row < conic.zero)
    alone = own & (np.bincount(row[own], minlength=m) == 1)[row] & (np.diff(conic.A.indptr)[row] > 1)
    return Names(column[alone].astype(np.intp), row[alone], conic.A.data[alone])


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
