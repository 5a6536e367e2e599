"""Log-determinants, which CVXPY states with logarithms, as terms of the objective.

For ``log det F`` of an affine matrix of order ``n`` it has variables ``t`` and an upper triangular ``Z`` with
the diagonal ``d``, the matrix ``[[diag(d), Z], [Z', F]]`` of order ``2 n``, which is psd, and
``exp(t_i) <= d_i``. The largest sum of the ``t`` is the log-determinant: with ``F = R'R`` and ``R`` upper
triangular, ``d_i = R_ii^2`` and ``Z = diag(R_ii) R``.

Where the sum of the ``t`` is a term of the objective alone, ``log det F`` itself takes its place: there are
``n (n + 3) / 2`` variables and ``n`` exponential cones less, and a matrix of half the order. If ``M`` is the
multiplier of ``F``, that of the matrix of order ``2 n`` is ``N M N'`` with ``N = [-diag(1 / R_ii) R; I]``,
which spans the null space of that matrix, and that of ``exp(t_i) <= d_i`` is ``w (-1, t_i - 1, 1 / d_i)``. At
the optimum ``M`` is ``w inv(F)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import EPS, Array, IntArray, Mask
from bregopt.cvxpy.conic_program import Conic, others, triangle
from bregopt.records import dataclass

__all__ = ["WithLogDets", "with_log_dets"]

_SAME = 4 * EPS  # distance of a coefficient from one, or from the root of two


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
