"""Newton's linear system, by whichever unknowns are fewer: the rows' multipliers or the entries of ``X``.

With ``T(S) = sym(X S K)`` in every block, for the primal-dual step ``K = inv(Z)``, the step solves

    dX = G + T(A*(dy)),     G = w K - X + sym(L K),
    A(dX) + B du + D dy = r,
    du + D_u dz = r_u,      B'dy + dz = q;

``dz`` is zero where a variable is free. Rows: ``(A T A* + D + B D_u B') dy = ...``, bordered by the columns
of free variables. Entries: where no ``D`` is zero, ``inv(T) dX + A*(inv(D) A(dX)) = ...``, in coordinates in
which ``X`` is the identity and ``K`` diagonal, so that ``T`` is a product entry by entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import LinearMap
from bregopt.program.rows import DenseRows, RankOne, RankTwo, Rows
from bregopt.solvers.engine.action import RowAction
from bregopt.solvers.engine.gram import Gram
from bregopt.solvers.engine.linear import DefiniteFactor, bordered, conjugate_gradients

__all__ = ["EntrySystem", "Pull", "RowSystem", "Scene", "Step", "System", "system_for"]

_LARGEST_DENSE = 6_000  # rows of a system that is formed
_LARGEST_FORMED_ENTRIES = 1_200
_FEW = 0.7  # of the rows, below which those that act are taken out
_PASSES = 2  # over the entries' system, the second for what the first leaves
_CG_STEPS = 300
_CG_TOL = 1e-3


@dataclass(frozen=True, eq=False)
class Scene:
    """Where a step starts from.

    Parameters
    ----------
    X, K : tuple of arrays of shape (n_b, n_b)
        Positive definite, or so on a face.
    root : array of shape (n, n)
        Lower Cholesky factor of the first ``X``.
    D : array of shape (m,)
        Infinite where a row asks for nothing.
    D_u : array of shape (k,)
        Infinite where a variable is free.
    """

    X: tuple[Array, ...]
    K: tuple[Array, ...]
    root: Array
    D: Array
    D_u: Array


@dataclass(frozen=True, eq=False)
class Pull:
    """Right-hand sides; `left` holds ``L`` of each block, None for zero."""

    weight: float
    left: tuple[Any, ...]
    r: Array
    r_u: Array
    q: Array


@dataclass(frozen=True, eq=False)
class Step:
    """What solves the system."""

    X: tuple[Array, ...]
    u: Array
    y: Array


Solve = Callable[[Pull], Step]


class System(Protocol):
    """Newton's system for one problem."""

    def factor(self, scene: Scene) -> Solve:
        """Return what solves the system for any right-hand sides."""
        ...


def system_for(A: LinearMap, B: Any, exact: Mask, fixed: bool = False, direct: bool = False) -> System:
    """Return the system with fewer unknowns; variables that are fixed need the one in the rows.

    Parameters
    ----------
    A : LinearMap
    B : csr_array of shape (m, k)
    exact : boolean array of shape (m,)
        Marks the rows that do not give way.
    fixed : bool
        Whether some variable does not.
    direct : bool
        Whether the system is always factorised; very many rows are left to conjugate gradients otherwise.
    """
    n, k, m = A.orders[0], B.shape[1], A.m
    if fixed or len(A.orders) > 1:
        return RowSystem(A, B, direct)
    held = int(exact.sum())
    # A system that is not formed takes about a hundred products with all rows.
    iterated = not direct and k == held == 0 and 200 * n**2 < m**2 / 3
    fewer = n * (n + 1) // 2 + k + held < m and (held == 0 or n * (n + 1) // 2 <= _LARGEST_DENSE)
    return EntrySystem(A, B, exact) if fewer or iterated else RowSystem(A, B, direct)


class RowSystem:
    """The system in the multipliers."""

    def __init__(self, A: LinearMap, B: Any, direct: bool = False) -> None:
        self._A, self._B, self._Bt = A, sp.csr_array(B), sp.csr_array(B.T)
        blocks = range(len(A.orders))
        self._actions = [RowAction(A, b) for b in blocks]
        self._grams = [Gram(A, b) for b in blocks] if direct or A.m <= _LARGEST_DENSE else None

    def factor(self, scene: Scene) -> Solve:
        asked = np.flatnonzero(np.isfinite(scene.D))
        solve = self._iterative(scene, asked) if self._grams is None else self._direct(scene, asked)
        own = self._A.apply(scene.X)
        inverse = self._A.apply(scene.K)

        def step(pull: Pull) -> Step:
            held = np.isfinite(scene.D_u)
            drop = np.where(held, pull.r_u - np.where(held, scene.D_u, 0.0) * pull.q, 0.0)
            right = pull.r - (pull.weight * inverse - own) - self._B @ drop
            for action, L, K in zip(self._actions, pull.left, scene.K, strict=True):
                if L is not None:
                    right -= action.apply_product(L, K)
            dy = np.zeros(self._A.m)
            du = np.zeros(len(held))
            dy[asked], du[~held] = solve(right[asked], pull.q[~held])
            du[held] = drop[held] + scene.D_u[held] * (self._Bt @ dy)[held]
            return Step(tuple(self._moved(scene, pull, b, dy) for b in range(len(scene.X))), du, dy)

        return step

    def _moved(self, scene: Scene, pull: Pull, b: int, dy: Array) -> Array:
        """Return ``w K - X + sym((L + X A*(dy)) K)``."""
        X, K, L = scene.X[b], scene.K[b], pull.left[b]
        half = X @ self._actions[b].adjoint(dy)
        if L is not None:
            half += L
        half = half @ K
        moved = half + half.T
        moved *= 0.5
        moved -= X
        moved += pull.weight * K if pull.weight else 0.0
        return moved

    def _direct(self, scene: Scene, asked: IntArray) -> Callable[[Array, Array], tuple[Array, Array]]:
        assert self._grams is not None
        grams = self._grams
        if len(asked) < _FEW * self._A.m:
            grams = [Gram(self._A.slice(asked), b) for b in range(len(grams))]
        M = grams[0].assemble(scene.X[0], scene.K[0])
        for gram, X, K in zip(grams[1:], scene.X[1:], scene.K[1:], strict=True):
            M += gram.assemble(X, K)
        M = M[np.ix_(asked, asked)] if len(asked) < len(M) else M
        M[np.diag_indices(len(M))] += scene.D[asked]
        held = np.isfinite(scene.D_u)
        if not len(held):
            factor = DefiniteFactor(M)
            return lambda right, q: (factor.solve(right), q)
        bounded = self._B[asked][:, held]
        M += (bounded @ sp.diags_array(scene.D_u[held]) @ bounded.T).toarray()
        free = self._B[asked][:, ~held].toarray()
        return bordered(M, free)

    def _iterative(self, scene: Scene, asked: IntArray) -> Callable[[Array, Array], tuple[Array, Array]]:
        full = np.zeros(self._A.m)
        X, K = scene.X[0], scene.K[0]

        def operator(v: Array) -> Array:
            full[asked] = v
            moved = self._actions[0].apply_product(X @ self._actions[0].adjoint(full), K)
            product: Array = moved[asked] + scene.D[asked] * v
            return product

        diagonal = _diagonal(self._A, X, K)[asked] + scene.D[asked]
        return lambda right, q: (conjugate_gradients(operator, right, diagonal, _CG_TOL, _CG_STEPS), q)


class EntrySystem:
    """The system in the entries of one ``X``, the variables, and multipliers of rows that do not give way."""

    def __init__(self, A: LinearMap, B: Any, exact: Mask) -> None:
        self._A, self._B, self._exact = A, B.toarray(), np.flatnonzero(exact)
        n, k = A.orders[0], B.shape[1]
        self._formed = k + len(self._exact) > 0 or n * (n + 1) // 2 <= _LARGEST_FORMED_ENTRIES

    def factor(self, scene: Scene) -> Solve:
        # X = P P' and K = P diag(k) P'.
        X, K, B = scene.X[0], scene.K[0], self._B
        k, Q = np.linalg.eigh(_seen(scene.root, K))
        P = scene.root @ Q
        yielding = np.isfinite(scene.D)
        yielding[self._exact] = False
        E = np.where(yielding, 1 / np.where(yielding, scene.D, 1.0), 0.0)
        F = np.where(np.isfinite(scene.D_u), 1 / scene.D_u, 0.0)
        A = self._A.restrict(0, P)
        stiffness = 2 / (k[:, None] + k)
        factored = _Entries(A, B, E, F, stiffness, self._exact) if self._formed else None

        def step(pull: Pull) -> Step:
            L = pull.left[0]
            half = L @ K if L is not None else np.zeros_like(X)
            G = Q.T @ _seen(scene.root, pull.weight * K - X + (half + half.T) / 2) @ Q
            if factored is None:
                delta = _iterate_entries(A, E, stiffness, A.adjoint(E * pull.r) + stiffness * G)
                du, dy = pull.q, E * (pull.r - A.apply((delta,)))
            else:
                delta, du, dy = self._refined(factored, A, E, F, stiffness, G, pull)
            dX = P @ delta @ P.T
            return Step(((dX + dX.T) / 2,), du, dy)

        return step

    def _refined(
        self, factored: _Entries, A: LinearMap, E: Array, F: Array, stiffness: Array, G: Array, pull: Pull
    ) -> tuple[Array, Array, Array]:
        """Return the step, solved again for what it leaves of the equations.

        The multipliers follow from ``inv(D)`` times a difference that nearly cancels; what they miss is
        small, and the multipliers of what is left are so too.
        """
        B, exact = self._B, self._exact
        delta, du, dy = np.zeros_like(G), np.zeros_like(pull.q), np.zeros(A.m)
        r = pull.r
        for _ in range(_PASSES):
            left = stiffness * (G - delta) + A.adjoint(dy)
            left_u = pull.q - B.T @ dy - F * (pull.r_u - du)
            more, more_u, more_exact = factored.solve(
                left + A.adjoint(E * r), B.T @ (E * r) - left_u, r[exact]
            )
            move = E * (r - A.apply((more,)) - B @ more_u)
            move[exact] = more_exact
            delta, du, dy = delta + more, du + more_u, dy + move
            # Rows that give way hold by construction; of the others round-off is left.
            r = np.zeros_like(r)
            r[exact] = (pull.r - A.apply((delta,)) - B @ du)[exact]
        return delta, du, dy


class _Entries:
    """The system in the entries on and above the diagonal, the variables and some multipliers, formed."""

    def __init__(self, A: LinearMap, B: Any, E: Array, F: Array, stiffness: Array, exact: IntArray) -> None:
        n, k = A.orders[0], B.shape[1]
        self._i, self._j = i, j = np.triu_indices(n)
        self._n, self._twice = n, np.where(i == j, 1.0, 2.0)
        size = len(i)
        S = np.zeros((size + k, size + k))
        S[np.diag_indices(size)] = stiffness[i, j] * self._twice
        border = np.zeros((size + k, len(exact)))
        place = np.full(A.m, -1)
        place[exact] = np.arange(len(exact))
        for term in A.terms:
            own = np.flatnonzero(place[term.at] >= 0)
            if len(own):
                border[:size, place[term.at[own]]] = _features(term.rows.slice(own), np.ones(len(own)))
            active = np.flatnonzero(E[term.at])
            for chunk in np.array_split(active, max(1, len(active) * size // 5_000_000)):
                # With one matrix on both sides the product costs half.
                root = np.sqrt(E[term.at[chunk]])
                weighted = _features(term.rows.slice(chunk), root)
                S[:size, :size] += weighted @ weighted.T
                if k:
                    S[:size, size:] += weighted @ (root[:, None] * B[term.at[chunk]])
        if k:
            S[size:, :size] = S[:size, size:].T
            S[size:, size:] = B.T @ (E[:, None] * B) + np.diag(F)
            border[size:] = B[exact].T
        self._solve = bordered(S, border, refinements=0)  # :meth:`EntrySystem._refined` does that

    def solve(self, right: Array, right_u: Array, r: Array) -> tuple[Array, Array, Array]:
        """Return the entries, the variables, and the multipliers of the exact rows."""
        size = len(self._i)
        x, against = self._solve(np.concatenate([right[self._i, self._j] * self._twice, right_u]), r)
        delta = np.zeros((self._n, self._n))
        delta[self._i, self._j] = x[:size]
        return delta + np.triu(delta, 1).T, x[size:], -against


def _features(rows: Rows, scale: Array) -> Array:
    """Return the entries on and above the diagonals of ``scale_k A_k``, those above it twice.

    For rows of a family as `restrict` makes it.

    Returns
    -------
    array of shape (n (n + 1) / 2, m)
        Row by row of the matrices, as ``numpy.triu_indices`` has them.
    """
    if isinstance(rows, RankOne):
        U, W = _dense(rows.Z), _dense(rows.Z)
    elif isinstance(rows, RankTwo):
        U, W = _dense(rows.U), _dense(rows.W)
    else:
        assert isinstance(rows, DenseRows)
        i, j = np.triu_indices(rows.n)
        return np.where(i == j, 1.0, 2.0)[:, None] * rows.stack[:, i, j].T * scale
    U, W = U.T * (scale * rows.weight), np.ascontiguousarray(W.T)
    n, start = rows.n, 0
    features = np.empty((n * (n + 1) // 2, rows.m))
    for a in range(n):
        part = features[start : start + n - a]
        np.multiply(U[a:], W[a], out=part)
        part += W[a:] * U[a]
        part[0] *= 0.5
        start += n - a
    return features


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


def _seen(root: Array, S: Array) -> Array:
    """Return ``inv(L) S inv(L)'``."""
    half = solve_triangular(root, solve_triangular(root, S, lower=True).T, lower=True)
    seen: Array = (half + half.T) / 2
    return seen


def _diagonal(A: LinearMap, X: Array, K: Array) -> Array:
    """Return about the diagonal of ``A T A*``; exactly where rows are of rank one."""
    diagonal = np.zeros(A.m)
    for term in A.terms:
        pieces = term.rows.pieces()
        if pieces is None:
            mean = float(np.trace(X) * np.trace(K)) / len(X) ** 2
            diagonal[term.at] += term.rows.norms() ** 2 * mean
            continue
        part = pieces.weight**2 * _forms(pieces.U, X) * _forms(pieces.U, K)
        diagonal[term.at] += np.bincount(pieces.row, weights=part, minlength=term.rows.m)
    return np.maximum(diagonal, np.finfo(float).tiny)


def _forms(U: Any, P: Array) -> Array:
    """Return ``u'P u`` for each row of `U`."""
    half = U @ P
    forms = U.multiply(half).sum(axis=1) if sp.issparse(U) else np.einsum("ri,ri->r", U, half)
    return np.asarray(forms).ravel()


def _dense(U: Any) -> Array:
    dense: Array = U.toarray() if sp.issparse(U) else U
    return dense
