"""The data of a conic program with second-order and psd cones, as CVXPY lays it out for Clarabel.

Two terms of the objective take another form here: a convex quadratic becomes a second-order cone, and
log-determinants, which CVXPY states with logarithms, are terms of their own again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask
from bregopt.program import SecondOrderCones
from bregopt.records import cached_property, dataclass, replace

_ROOT = np.sqrt(2.0)
_ZERO = 1e-14  # relative to the largest eigenvalue: smaller ones are round-off of zero
_SAME = 4 * EPS  # distance of a coefficient from one, or from the root of two


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
        triangles = [of_order[n] for n in self.orders] or [triangle(0)]
        i, j, weight = (np.concatenate(part) for part in zip(*triangles, strict=True))
        block = np.repeat(np.arange(len(triangles)), [len(part.i) for part in triangles])
        return Places(block, i, j, weight)

    @cached_property
    def _entries(self) -> tuple[IntArray, IntArray]:
        """The number of each psd row's entry, and of its mirror image, among the entries of all matrices."""
        block, i, j, _ = self.places
        orders = np.array(self.orders, dtype=np.intp)
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
        rows: Array = self.places.weight * np.concatenate([np.zeros(0), *map(np.ravel, S)])[at]
        return rows


def others(chosen: IntArray, count: int) -> IntArray:
    """Return the numbers below `count` that are not chosen."""
    left = np.ones(count, dtype=bool)
    left[chosen] = False
    return np.flatnonzero(left)


# --- Squares ---------------------------------------------------------------------------------------------
#
# A convex quadratic objective becomes one more second-order cone. The term ``x'P x / 2`` with ``P = L L'``
# becomes a variable ``t >= ||L'x||^2 / 2``, that is
#
#     (t / sigma + sigma / 2, t / sigma - sigma / 2, L'x)   in the second-order cone,
#
# for any ``sigma > 0``. At ``sigma = ||L'x||`` the second entry is zero at the optimum. Each element of ``x``
# may be as large as the largest ``|b_k| / ||A_k||`` of the rows that hold it.


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


# Pays on: least squares of a matrix in units of 1e4, n = 25.
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


# --- Log-determinants ------------------------------------------------------------------------------------
#
# For ``log det F`` of an affine matrix of order ``n`` CVXPY has variables ``t`` and an upper triangular ``Z``
# with the diagonal ``d``, the matrix ``[[diag(d), Z], [Z', F]]`` of order ``2 n``, which is psd, and
# ``exp(t_i) <= d_i``. The largest sum of the ``t`` is the log-determinant: with ``F = R'R`` and ``R`` upper
# triangular, ``d_i = R_ii^2`` and ``Z = diag(R_ii) R``.
#
# Where the sum of the ``t`` is a term of the objective alone, ``log det F`` itself takes its place: there are
# ``n (n + 3) / 2`` variables and ``n`` exponential cones less, and a matrix of half the order. If ``M`` is
# the multiplier of ``F``, that of the matrix of order ``2 n`` is ``N M N'`` with ``N = [-diag(1 / R_ii) R;
# I]``, which spans the null space of that matrix, and that of ``exp(t_i) <= d_i`` is ``w (-1, t_i - 1, 1 /
# d_i)``. At the optimum ``M`` is ``w inv(F)``.


class LogDet(NamedTuple):
    """One log-determinant.

    Parameters
    ----------
    cone : int
        The number of the matrix of order ``2 n``.
    weight : float
    t : int array of shape (n,)
        The variables of the logarithms.
    Z : int array of shape (n, n)
        The variables on and above the diagonal of ``Z``.
    exponentials : int array of shape (n,)
        The numbers of their cones.
    """

    cone: int
    weight: float
    t: IntArray
    Z: IntArray
    exponentials: IntArray

    @property
    def order(self) -> int:
        """``n``."""
        return len(self.t)


@dataclass(frozen=True, eq=False)
class WithLogDets:
    """A program with terms in place of logarithms.

    Parameters
    ----------
    given, conic : Conic
        With the logarithms, and with the terms.
    variables, rows : int array
        Of `given` that are left in `conic`.
    found : tuple of LogDet
    """

    given: Conic
    conic: Conic
    variables: IntArray
    rows: IntArray
    found: tuple[LogDet, ...]

    def reading(self, inner: Any) -> OfLogarithms:
        """Return a reading of the program with terms as one of the given program."""
        return OfLogarithms(self, inner)

    def x(self, own: Array) -> Array:
        """Return the ``x`` of the given program."""
        x = np.zeros(len(self.given.c))
        x[self.variables] = own
        for term in self.found:
            R, upper = self._root(term, own), np.triu_indices(term.order)
            r = R.diagonal()
            x[term.Z[upper]] = (r[:, None] * R)[upper]
            x[term.t] = 2 * np.log(r)
        return x

    def z(self, x: Array, own: Array, priced: bool) -> Array:
        """Return the ``z`` of the given program; that of a Farkas vector has no prices of logarithms."""
        z = np.zeros(len(self.given.b))
        z[self.rows] = own
        for term in self.found if priced else ():
            n, R = term.order, self._root(term, x)
            r = R.diagonal()
            N = np.vstack([-R / r[:, None], np.eye(n)])
            span, (i, j, weight) = self.given.spans[term.cone], triangle(2 * n)
            M = np.zeros((2 * n, 2 * n))
            M[i, j] = z[span] / weight
            M = M[n:, n:] + np.triu(M[n:, n:], 1).T
            z[span] = weight * (N @ M @ N.T)[i, j]
            first = len(z) - 3 * self.given.exponential + 3 * term.exponentials
            z[first], z[first + 1], z[first + 2] = (
                -term.weight,
                term.weight * (2 * np.log(r) - 1),
                term.weight / r**2,
            )
        return z

    def _root(self, term: LogDet, x: Array) -> Array:
        """Return ``R`` at the ``x`` of the program with terms; if ``F`` is not definite, of one nearby."""
        span, n = self.conic.spans[term.cone], term.order
        (i, j, weight), F = triangle(n), np.zeros((n, n))
        F[i, j] = F[j, i] = (self.conic.b[span] - self.conic.A[span] @ x) / weight
        values, Q = np.linalg.eigh(F)
        least = EPS * max(float(values[-1]), EPS)
        root: Array = scipy.linalg.qr(np.sqrt(np.maximum(values, least))[:, None] * Q.T, mode="r")[0]
        return root * np.sign(root.diagonal())[:, None]


class OfLogarithms:
    """A reading of the program with terms, for the given program."""

    dual: ClassVar[bool] = False

    def __init__(self, terms: WithLogDets, inner: Any) -> None:
        self._terms, self._inner, self.program = terms, inner, inner.program

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer."""
        return self._terms.x(self._inner.x(S, u, y))

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return the ``z`` of an answer, or of a Farkas vector."""
        x = self._inner.x(S, u, y) if priced else np.zeros(len(self._terms.conic.c))
        return self._terms.z(x, self._inner.z(S, u, y, priced), priced)


# Pays on: a sparse inverse covariance through CVXPY, n = 10.
def with_log_dets(conic: Conic) -> WithLogDets | None:
    """Return the program with terms in place of the logarithms that state them, None without any."""
    logarithms = _logarithms(conic)
    found = tuple(
        term for b, n in enumerate(conic.orders) if (term := _log_det(conic, b, n, logarithms)) is not None
    )
    if not found:
        return None
    first = len(conic.b) - 3 * conic.exponential
    gone: list[Any] = [(first + 3 * term.exponentials[:, None] + np.arange(3)).ravel() for term in found]
    orders, weights = list(conic.orders), [0.0] * len(conic.orders)
    for term in found:
        i, _, _ = triangle(2 * term.order)
        gone.append(conic.spans[term.cone].start + np.flatnonzero(i < term.order))
        orders[term.cone], weights[term.cone] = term.order, term.weight
    rows = others(np.concatenate(gone), len(conic.b))
    removed = [term.Z[np.triu_indices(term.order)] for term in found]
    variables = others(np.concatenate([*removed, *(term.t for term in found)]), len(conic.c))
    smaller = Conic(
        A=sp.csr_array(conic.A[rows][:, variables]),
        b=conic.b[rows],
        c=conic.c[variables],
        zero=conic.zero,
        nonneg=conic.nonneg,
        soc=conic.soc,
        orders=tuple(orders),
        exponential=conic.exponential - sum(term.order for term in found),
        log_dets=tuple(weights),
    )
    return WithLogDets(conic, smaller, variables, rows, found)


def _logarithms(conic: Conic) -> dict[int, tuple[int, int]]:
    """Return the exponential cone and the ``t`` of each variable ``d`` with ``exp(t) <= d``.

    The ``t`` are in the objective and in no other row.
    """
    A, first = conic.A, len(conic.b) - 3 * conic.exponential
    start, count = A.indptr[first:-1].reshape(-1, 3), np.diff(A.indptr)[first:].reshape(-1, 3)
    of_one = (count == [1, 0, 1]).all(axis=1) & (conic.b[first:].reshape(-1, 3) == [0, 1, 0]).all(axis=1)
    cones = np.flatnonzero(of_one)
    at = start[cones][:, [0, 2]]
    alone = np.bincount(A.indices, minlength=len(conic.c)) == 1
    (t, d), unit = A.indices[at].T, (A.data[at] == -1).all(axis=1)
    good = unit & alone[t] & (conic.c[t] < 0) & (conic.c[d] == 0)
    return {int(v): (int(k), int(u)) for k, u, v in zip(cones[good], t[good], d[good], strict=True)}


def _log_det(conic: Conic, cone: int, order: int, logarithms: dict[int, tuple[int, int]]) -> LogDet | None:
    """Return the log-determinant that a psd matrix states, None if it states none."""
    n, span, A = order // 2, conic.spans[cone], conic.A
    if order % 2 or order == 0:
        return None
    (i, j, weight), start = triangle(order), A.indptr[span]
    count, used = np.diff(A.indptr)[span], np.bincount(A.indices, minlength=len(conic.c))

    def are_variables(rows: Mask) -> bool:
        """Whether these entries are variables alone."""
        value = A.data[start[rows]] if (count[rows] == 1).all() else np.zeros(1)
        return bool((np.abs(value + weight[rows][: len(value)]) <= _SAME * weight[0]).all())

    left = i < n
    zero = left & ((i != j) & (j < n) | (j - n < i) & (j >= n))
    if count[zero].any() or conic.b[span][left].any() or not are_variables(left & ~zero):
        return None
    Z, column = np.full((n, n), -1), A.indices[start]
    corner = left & ~zero & (j >= n)
    Z[i[corner], j[corner] - n] = column[corner]
    d = Z.diagonal()
    above = Z[np.triu_indices(n, 1)]
    found = [logarithms.get(v) for v in d.tolist()]
    if (column[left & (i == j)] != d).any() or None in found or len(set(d.tolist())) < n:
        return None
    if (used[d] != 3).any() or (used[above] != 1).any() or conic.c[above].any():
        return None
    exponentials, t = np.array(found, dtype=np.intp).T
    weights = -conic.c[t]
    if (weights != weights[0]).any():
        return None
    return LogDet(cone, float(weights[0]), t, Z, exponentials)
