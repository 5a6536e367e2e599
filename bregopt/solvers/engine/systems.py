"""Newton's linear system, by whichever unknowns are fewer: the rows' multipliers or the entries of ``X``.

With ``T(S) = sym(X S K)``, for the primal-dual step ``K = inv(Z)``, the step solves

    dX = G + T(A*(dy)),        A(dX) + D dy = r.

Rows: ``(A T A* + D) dy = r - A(G)``. Entries: where no ``D`` is zero, ``inv(T) dX + A*(inv(D) A(dX)) =
inv(T) G + A*(inv(D) r)``, in coordinates in which ``X`` is the identity and ``K`` diagonal, so that
``T`` is a product entry by entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular

from bregopt.arrays import Array, IntArray
from bregopt.program import LinearMap
from bregopt.program.rows import Rows

__all__ = ["EntrySystem", "Newton", "RowSystem", "System", "conjugate_gradients", "system_for"]

_LARGEST_DENSE = 6_000  # rows of a system that is formed
_LARGEST_FORMED_ENTRIES = 1_200
_FAR = 1e6
_CG_STEPS = 300
_CG_TOL = 1e-3


@dataclass(frozen=True, eq=False)
class Newton:
    """What a step is made from.

    Parameters
    ----------
    X, K : array of shape (n, n)
        Positive definite.
    root : array of shape (n, n)
        Lower Cholesky factor of ``X``.
    G : array of shape (n, n)
        The step where no row acts.
    D, r : array of shape (m,)
        Of the rows; ``D`` infinite where a row asks for nothing.
    """

    X: Array
    K: Array
    root: Array
    G: Array
    D: Array
    r: Array


class System(Protocol):
    """Solves Newton's system."""

    def solve(self, at: Newton) -> tuple[Array, Array]:
        """Return ``dX`` and ``dy``."""
        ...


def system_for(A: LinearMap, some_equal: bool) -> System:
    """Return the system with fewer unknowns; equalities need the one in the rows."""
    n = A.orders[0]
    if some_equal or n * (n + 1) // 2 >= A.m:
        return RowSystem(A)
    return EntrySystem(A)


class RowSystem:
    """The system in the multipliers."""

    def __init__(self, A: LinearMap) -> None:
        self._A = A
        self._gram = _Gram(A) if A.m <= _LARGEST_DENSE else None

    def solve(self, at: Newton) -> tuple[Array, Array]:
        dy = np.zeros(self._A.m)
        asked = np.isfinite(at.D)
        right = (at.r - self._A.apply((at.G,)))[asked]
        if self._gram is not None:
            H = self._gram.assemble(at.X, at.K)
            H = H if asked.all() else H[np.ix_(asked, asked)]
            H[np.diag_indices(len(H))] += at.D[asked]
            dy[asked] = solve_definite(H, right)
        else:
            dy[asked] = self._iterate(at, asked, right)
        return at.G + _moved(at, self._A.adjoint(dy)), dy

    def _iterate(self, at: Newton, asked: Array, right: Array) -> Array:
        full = np.zeros(self._A.m)

        def operator(v: Array) -> Array:
            full[asked] = v
            product: Array = self._A.apply((_moved(at, self._A.adjoint(full)),))[asked] + at.D[asked] * v
            return product

        diagonal = _diagonal(self._A, at)[asked] + at.D[asked]
        return conjugate_gradients(operator, right, diagonal, _CG_TOL, _CG_STEPS)


class EntrySystem:
    """The system in the entries of ``X``, for rows that all give way."""

    def __init__(self, A: LinearMap) -> None:
        self._A = A
        n = A.orders[0]
        self._formed = n * (n + 1) // 2 <= _LARGEST_FORMED_ENTRIES

    def solve(self, at: Newton) -> tuple[Array, Array]:
        # X = B B' and K = B diag(k) B'.
        k, Q = np.linalg.eigh(_seen(at.root, at.K))
        B = at.root @ Q
        E = np.where(np.isfinite(at.D), 1 / at.D, 0.0)
        A = self._A.restrict(0, B)
        stiffness = 2 / (k[:, None] + k)
        right = A.adjoint(E * at.r) + stiffness * (Q.T @ _seen(at.root, at.G) @ Q)
        if self._formed:
            delta = _solve_entries(A, E, stiffness, right)
        else:
            delta = _iterate_entries(A, E, stiffness, right)
        dX = B @ delta @ B.T
        dX = (dX + dX.T) / 2
        return dX, E * (at.r - self._A.apply((dX,)))


def _solve_entries(A: LinearMap, E: Array, stiffness: Array, right: Array) -> Array:
    """Form and solve the system in the entries on and above the diagonal."""
    n = len(right)
    i, j = np.triu_indices(n)
    twice = np.where(i == j, 1.0, 2.0)
    S = np.diag(stiffness[i, j] * twice)
    for term in A.terms:
        active = np.flatnonzero(E[term.at])
        for chunk in np.array_split(active, max(1, len(active) * len(i) // 5_000_000)):
            features = _features(term.rows.slice(chunk), i, j) * twice
            S += features.T @ (E[term.at[chunk]][:, None] * features)
    delta = np.zeros((n, n))
    delta[i, j] = solve_definite(S, right[i, j] * twice)
    return delta + np.triu(delta, 1).T


def _features(rows: Rows, i: IntArray, j: IntArray) -> Array:
    """Return the entries ``(A_k)_ij`` of all rows, shape ``(m, len(i))``."""
    pieces = rows.pieces()
    if pieces is None:
        t = rows.coordinates()
        stack = np.zeros((rows.m, rows.n, rows.n))
        np.add.at(stack, (t.row, t.i, t.j), t.value / 2)
        np.add.at(stack, (t.row, t.j, t.i), t.value / 2)
        return stack[:, i, j]
    U = _dense(pieces.U)
    parts = pieces.weight[:, None] * U[:, i] * U[:, j]
    if len(parts) == rows.m:
        return parts
    total: Array = sp.csr_array((np.ones(len(parts)), (pieces.row, np.arange(len(parts))))) @ parts
    return total


def _iterate_entries(A: LinearMap, E: Array, stiffness: Array, right: Array) -> Array:
    """Solve the system in the entries by conjugate gradients; only rows that act take part."""
    n = len(right)
    active = np.flatnonzero(E > 1e-12 * E.max(initial=0.0))
    A, E = A.slice(active), E[active]

    def operator(v: Array) -> Array:
        delta = v.reshape(n, n)
        return (stiffness * delta + A.adjoint(E * A.apply((delta,)))).ravel()

    diagonal = stiffness.copy()
    for term in A.terms:
        pieces = term.rows.pieces()
        if pieces is not None:
            square = _dense(pieces.U) ** 2
            diagonal += square.T @ ((E[term.at[pieces.row]] * pieces.weight**2)[:, None] * square)
    return conjugate_gradients(operator, right.ravel(), diagonal.ravel(), _CG_TOL, _CG_STEPS).reshape(n, n)


class _Gram:
    """Assembles ``<A_k, P A_l Q>`` of all pairs of rows.

    Rows of low rank are sums of pieces ``d u u'``, for which it is a Hadamard product,
    ``(U P U') o (U Q U')`` with the ``u`` in the rows of ``U``. Other rows are multiplied out one by one.
    """

    def __init__(self, A: LinearMap) -> None:
        self._A = A
        self._full: list[tuple[IntArray, Rows]] = []
        vectors, rows, weights = [], [np.zeros(0, dtype=np.intp)], [np.zeros(0)]
        for term in A.terms:
            pieces = term.rows.pieces()
            if pieces is None:
                self._full.append((term.at, term.rows))
                continue
            vectors.append(pieces.U)
            rows.append(term.at[pieces.row])
            weights.append(pieces.weight)
        self._row, self._weight = np.concatenate(rows), np.concatenate(weights)
        sparse = all(sp.issparse(U) for U in vectors)
        self._U: Any = None
        if vectors:
            self._U = sp.vstack(vectors, format="csr") if sparse else np.vstack([_dense(U) for U in vectors])
        self._of_pieces = np.unique(self._row)

    def assemble(self, P: Array, Q: Array) -> Array:
        """Return the symmetric matrix of all pairs, shape ``(m, m)``."""
        m = self._A.m
        H = np.zeros((m, m))
        if self._U is not None:
            W = _congruence(self._U, P)
            W *= _congruence(self._U, Q)
            if len(self._of_pieces) == len(self._row) == m and (self._row == np.arange(m)).all():
                H = self._weight[:, None] * W * self._weight
            else:
                pieces = len(self._row)
                S = sp.csr_array((self._weight, (self._row, np.arange(pieces))), (m, pieces))
                H = S @ (S @ W).T
        for at, rows in self._full:
            for local, k in enumerate(at):
                unit = np.zeros(rows.m)
                unit[local] = 1.0
                S = P @ rows.adjoint(unit) @ Q
                column = self._A.apply(((S + S.T) / 2,))
                H[:, k] += column
                H[k, self._of_pieces] += column[self._of_pieces]
        symmetric: Array = (H + H.T) / 2
        return symmetric


def solve_definite(S: Array, right: Array) -> Array:
    """Solve a positive definite system, with a little more on its diagonal where rows are dependent."""
    diagonal = np.maximum(S.diagonal().copy(), np.finfo(float).tiny)
    scale = 1 / np.sqrt(diagonal)
    S = scale[:, None] * S * scale
    extra = 0.0
    while True:
        try:
            factor = cho_factor(S + extra * np.eye(len(S)) if extra else S)
            break
        except LinAlgError:
            extra = max(10 * extra, 1e-14)
    b = scale * right
    x = cho_solve(factor, b)
    for _ in range(3 if extra else 1):
        x += cho_solve(factor, b - S @ x)
    return scale * x


def conjugate_gradients(
    operator: Callable[[Array], Array], right: Array, diagonal: Array, tol: float, limit: int
) -> Array:
    """Solve a positive semidefinite system, preconditioned by its diagonal, to a relative residual."""
    x = np.zeros_like(right)
    r = right.copy()
    z = r / diagonal
    p = z
    rz = float(r @ z)
    enough = tol**2 * rz
    for _ in range(limit):
        if rz <= enough:
            break
        Hp = operator(p)
        curvature = float(p @ Hp)
        if curvature <= 1e-14 * float(p @ (diagonal * p)):
            return x + _FAR * rz / float(p @ (diagonal * p)) * p  # nothing holds it back: see where it leads
        alpha = rz / curvature
        x = x + alpha * p
        r = r - alpha * Hp
        z = r / diagonal
        rz, old = float(r @ z), rz
        p = z + (rz / old) * p
    return x


def _seen(root: Array, S: Array) -> Array:
    """Return ``inv(L) S inv(L)'``."""
    half = solve_triangular(root, solve_triangular(root, S, lower=True).T, lower=True)
    seen: Array = (half + half.T) / 2
    return seen


def _moved(at: Newton, S: Array) -> Array:
    """Return ``sym(X S K)``."""
    half = at.X @ S @ at.K
    moved: Array = (half + half.T) / 2
    return moved


def _diagonal(A: LinearMap, at: Newton) -> Array:
    """Return about the diagonal of ``A T A*``; exactly where rows are of rank one."""
    diagonal = np.zeros(A.m)
    for term in A.terms:
        pieces = term.rows.pieces()
        if pieces is None:
            mean = float(np.trace(at.X) * np.trace(at.K)) / len(at.X) ** 2
            diagonal[term.at] += term.rows.norms() ** 2 * mean
            continue
        part = pieces.weight**2 * _forms(pieces.U, at.X) * _forms(pieces.U, at.K)
        diagonal[term.at] += np.bincount(pieces.row, weights=part, minlength=term.rows.m)
    return np.maximum(diagonal, np.finfo(float).tiny)


def _forms(U: Any, P: Array) -> Array:
    """Return ``u'P u`` for each row of `U`."""
    half = U @ P
    forms = U.multiply(half).sum(axis=1) if sp.issparse(U) else np.einsum("ri,ri->r", U, half)
    return np.asarray(forms).ravel()


def _congruence(U: Any, P: Array) -> Array:
    """Return ``U P U'``."""
    half = U @ P
    product: Array = (U @ half.T) if sp.issparse(U) else half @ U.T
    return product


def _dense(U: Any) -> Array:
    dense: Array = U.toarray() if sp.issparse(U) else U
    return dense
