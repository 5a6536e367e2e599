"""Psd matrices that meet the hard rows up to round-off, near matrices that miss them a little.

A congruence ``T X T'`` keeps a matrix psd and on its face. With ``T = I + K`` and ``K = A*(t)`` the rows move
by ``A(K X + X K)`` to first order, a psd system in ``t``; Newton's method on it converges quadratically. The
inner product with a multiplier ``Z`` of ``X psd``, for which ``Z X = 0``, is ``<Z, K X K>``. It grows with
the square of the miss, where a shift along the rows alone would change it to first order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array, Mask
from bregopt.linalg import conjugate_gradients
from bregopt.program.program import Program
from bregopt.program.rows import Coordinates, placed_coordinates

_STEPS = 8
_CLOSE, _LSMR_STEPS = 1e-10, 500  # where least squares end
_MOVES = 3  # of a matrix to its rows: each counts inequalities that the one before violates
_FARTHEST = 0.5  # norm of K beyond which the rows are not near
_CG_STEPS, _CG_RATIO = 200, 1e-3
_ROUND_OFF = 4 * EPS  # of an activity, relative to its terms
_SLIGHT = 1e-12  # norm of a change that need not be known by its entries


class Restored(NamedTuple):
    """Matrices on the hard rows.

    Parameters
    ----------
    T : tuple of arrays of shape (n_b, n_b) or (n_b,)
        The congruences, one for each block; the diagonal of one that is diagonal.
    X : tuple of arrays of shape (n_b, n_b)
        ``T X T'``, exactly symmetric.
    activity : array of shape (m,)
        With the bounds themselves of the rows in `held`.
    held : boolean array of shape (m,)
        The rows that are equalities there.
    rest : tuple of arrays of shape (n_b, n_b) or (n_b,)
        A change ``K`` that removes a residual as large as the round-off that is left, an estimate. Where rows
        nearly leave no interior ``K`` is large, but ``K X`` is small.
    """

    T: tuple[Array, ...]
    X: tuple[Array, ...]
    activity: Array
    held: Mask
    rest: tuple[Array, ...]

    def moved(self, b: int, P: Array) -> Array:
        """Return ``T P`` for one block."""
        return _times(self.T[b], P)

    def changed(self, b: int, P: Array) -> Array:
        """Return ``K P`` with ``K = T - I`` for one block."""
        T = self.T[b]
        return T @ P - P if T.ndim == 2 else (T - 1)[:, None] * P

    def left(self, b: int, P: Array) -> Array:
        """Return ``K P`` of the rest for one block."""
        return _times(self.rest[b], P)

    def square(self, b: int) -> float:
        """Return the trace of ``K^2`` for one block."""
        T = self.T[b]
        return float(
            np.sum((T - np.eye(len(T))) * (T.T - np.eye(len(T)))) if T.ndim == 2 else np.sum((T - 1) ** 2)
        )


def _times(T: Array, P: Array) -> Array:
    return T @ P if T.ndim == 2 else T[:, None] * P


def restored(program: Program, X: Sequence[Array], u: Array, y: Array) -> Restored | None:
    """Return matrices on the hard rows near psd matrices, None if there are none near.

    Inequalities that are violated, or at their bounds by the sign of their multipliers, become equalities.

    Parameters
    ----------
    program : Program
    X : sequence of arrays of shape (n_b, n_b)
        Psd.
    u : array of shape (k,)
        The ordinary variables stay.
    y : array of shape (m,)
    """
    scaled = _scaled(program, X, u, y)
    if scaled is not None:
        return scaled
    T = [np.eye(len(own)) for own in X]
    moved, largest = list(X), np.inf
    held = np.zeros(program.m, dtype=bool)
    moves = 0.0
    for step in range(_STEPS):
        activity = program.activity(moved, u)
        held |= _acting(program, moved, activity, y)
        residual = np.where(held, _target(program, activity, y) - activity, 0.0)
        noise = _ROUND_OFF * (program.bounds.sizes + program.A.norms() * _size(moved))
        size = float(np.linalg.norm(residual))
        if (np.abs(residual) <= noise).all() or (step and size > largest / 2):
            near = bool((np.abs(residual) <= 100 * noise).all())
            if not near:
                return None
            left = EPS + (moves * size / largest if step and size else 0.0)
            slight = [np.full(len(own), left) for own in moved]
            rest = slight if left <= _SLIGHT else _rest(program, moved, noise, held)
            exact = activity + residual
            return Restored(tuple(T), _with_entries(program, moved, exact, held), exact, held, tuple(rest))
        K = _changes(program, moved, residual, held)
        moves = math.sqrt(sum(float(np.square(own.data if sp.issparse(own) else own).sum()) for own in K))
        if not moves <= _FARTHEST:
            return None
        largest = size
        T = [own + change @ own for own, change in zip(T, K, strict=True)]
        moved = [_congruent(own, change) for own, change in zip(moved, K, strict=True)]
    return None


def on_rows(program: Program, X: Sequence[Array], u: Array) -> tuple[Array, ...]:
    """Return the matrices after the least change that removes violations of hard rows.

    A change that violates other inequalities is followed by one that keeps them, too. The matrices are psd up
    to these changes only. LSMR (Fong, Saunders 2011) takes rows that repeat each other.
    """
    from scipy.sparse.linalg import LinearOperator, lsmr  # few answers wait

    A, bounds, sizes = program.A, program.bounds, program.A.norms()
    shapes, ends = [own.shape for own in X], np.cumsum([own.size for own in X])

    def matrices(flat: Array) -> list[Array]:
        parts = np.split(flat, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    moved, acting = tuple(X), bounds.equal & (sizes > 0)
    for move in range(_MOVES):
        activity = program.activity(moved, u)
        residual = np.where(bounds.hard, np.clip(activity, bounds.lo, bounds.hi) - activity, 0.0)
        violated = (residual != 0) & ~acting & (sizes > 0)
        if move and not violated.any():
            break
        acting = acting | violated
        weight = np.divide(1.0, sizes, out=np.zeros(program.m), where=acting)

        def adjoint(w: Array, weight: Array = weight) -> Array:
            return np.concatenate([np.ravel(A.adjoint(weight * w, b)) for b in range(len(X))])

        def forward(v: Array, weight: Array = weight) -> Array:
            return weight * A.apply(matrices(v))

        operator = LinearOperator((program.m, int(ends[-1])), forward, adjoint, dtype=float)
        change = lsmr(operator, weight * residual, atol=_CLOSE, btol=_CLOSE, maxiter=_LSMR_STEPS)[0]
        moved = tuple(own + part for own, part in zip(moved, matrices(change), strict=True))
    return moved


def _scaled(program: Program, X: Sequence[Array], u: Array, y: Array) -> Restored | None:
    """Return the matrices scaled to meet rows on their diagonals alone; None if there are others."""
    terms, seen = program.A.terms, set[tuple[int, int]]()
    if program.k or not terms or not program.bounds.all_hard:
        return None
    activity = program.activity(X, u)
    held = _acting(program, X, activity, y)
    target = np.where(held, _target(program, activity, y), activity)
    if not (np.abs(target - activity) <= _FARTHEST * np.abs(activity)).all():
        return None
    T = [np.ones(len(own)) for own in X]
    for term in terms:
        if not term.rows.single:
            return None
        t = term.rows.coordinates()
        places = [(term.block, int(i)) for i in t.i]
        if (t.i != t.j).any() or len(set(places)) < len(places) or seen.intersection(places):
            return None
        seen.update(places)
        at = term.at[t.row]
        T[term.block][t.i] = np.sqrt(target[at] / np.where(activity[at] == 0, 1.0, activity[at]))
    moved = [d[:, None] * own * d for d, own in zip(T, X, strict=True)]
    exact = np.where(held, target, program.activity(moved, u))
    rest = tuple(np.full(len(own), EPS) for own in moved)
    return Restored(tuple(T), _with_entries(program, moved, exact, held), exact, held, rest)


def _with_entries(program: Program, X: Sequence[Array], exact: Array, held: Mask) -> tuple[Array, ...]:
    """Return the matrices with the entries that rows prescribe, which round-off may have changed."""
    own = tuple(X_b.copy() for X_b in X)
    for term in program.A.terms:
        if not term.rows.single or program.k:
            continue
        t = term.rows.coordinates()
        alone = held[term.at[t.row]] & program.A.in_one_block[term.at[t.row]] & (t.value != 0)
        i, j = t.i[alone], t.j[alone]
        own[term.block][i, j] = own[term.block][j, i] = exact[term.at[t.row[alone]]] / t.value[alone]
    return own


def _congruent(X: Array, K: Any) -> Array:
    """Return ``(I + K) X (I + K)``."""
    half = X + K @ X
    M: Array = half + (K @ half.T).T
    return (M + M.T) / 2


def _size(X: Sequence[Array]) -> float:
    return max((float(np.linalg.norm(own)) for own in X), default=0.0)


def _acting(program: Program, X: Sequence[Array], activity: Array, y: Array) -> Mask:
    """Return the mask of the hard rows that are equalities, violated, or at their bounds.

    A row with a multiplier is at its bound if its slack is below the change of its activity that the
    multiplier causes (a primal-dual active set).
    """
    bounds = program.bounds
    slack = np.where(y > 0, activity - bounds.lo, bounds.hi - activity)
    response = np.zeros(program.m)
    for b in program.curved:
        nearness = program.blocks[b].nearness
        if nearness is not None:
            mean = max(float(X[b].trace()) / len(X[b]), TINY)
            degree = nearness.kind.degree
            power = 0 if degree is None else 2 - degree
            response += program.A.of_block(b).norms() ** 2 * mean**power / nearness.mu
    at_bound = (y != 0) & (slack <= np.abs(y) * response)
    return bounds.hard & (bounds.equal | (bounds.violation(activity) > 0) | at_bound)


def _target(program: Program, activity: Array, y: Array) -> Array:
    """Return the bound that each row is to meet; its activity where it has none on that side."""
    lo, hi = program.bounds.lo, program.bounds.hi
    upper = (activity > hi) | ((activity >= lo) & (y < 0))
    end = np.where(upper, hi, lo)
    return np.where(np.isfinite(end), end, activity)


def _changes(program: Program, X: Sequence[Array], residual: Array, held: Mask) -> list[Any]:
    """Return the least ``K = A*(t)`` for which the rows move by the residual to first order."""
    parts, t = _shares(program, X, residual, held)
    return [part.adjoint(t) for part in parts]


def _rest(program: Program, X: Sequence[Array], noise: Array, held: Mask) -> list[Array]:
    """Return the change for a residual of that size, in the direction that needs the largest."""
    _, t = _shares(program, X, np.where(held, noise, 0.0), held)
    size = float(np.linalg.norm(noise * t))
    found = _changes(program, X, noise**2 * t / max(size, TINY), held)
    return [own.toarray() if sp.issparse(own) else own for own in found]


def _shares(
    program: Program, X: Sequence[Array], residual: Array, held: Mask
) -> tuple[list[_Entries | _Rows], Array]:
    """Return the rows of each block, and the ``t`` for which ``A*(t)`` moves the rows by the residual."""
    parts = [_held_part(program, b, held) for b in range(len(X))]

    def product(t: Array) -> Array:
        moved = np.zeros(len(t))
        for part, own in zip(parts, X, strict=True):
            moved += part.moved(part.adjoint(t), own)
        return np.where(held, moved, 0.0)

    return parts, least_solution(product, residual, _diagonal(program, X))


def _held_part(program: Program, b: int, held: Mask) -> _Entries | _Rows:
    """Return the rows of one block, those in `held` alone where all are on single entries."""
    terms = program.A.terms_of(b)
    if not terms or not all(term.rows.single for term in terms):
        return _Rows(program, b)
    t = placed_coordinates((term.at, term.rows) for term in terms)
    kept = held[t.row]
    own = Coordinates(t.row[kept], t.i[kept], t.j[kept], t.value[kept])
    return _Entries(program.m, program.blocks[b].n, own)


class _Entries(NamedTuple):
    """Rows on single entries, whose matrices are sparse."""

    m: int
    n: int
    terms: Coordinates

    def adjoint(self, t: Array) -> Any:
        """Return ``A*(t)``."""
        return self.terms.combined(t, self.n)

    def moved(self, K: Any, X: Array) -> Array:
        """Return ``A(K X + X K)``."""
        half, own = K @ X, self.terms
        both = half[own.i, own.j] + half[own.j, own.i]
        return np.bincount(own.row, own.value * both, self.m).astype(float)


class _Rows(NamedTuple):
    """Rows of any kind."""

    program: Program
    b: int

    def adjoint(self, t: Array) -> Any:
        """Return ``A*(t)``."""
        return np.asarray(self.program.A.adjoint(t, self.b))

    def moved(self, K: Any, X: Array) -> Array:
        """Return ``A(K X + X K)``."""
        half = K @ X
        return self.program.A.of_block(self.b).apply((half + half.T,))


def _diagonal(program: Program, X: Sequence[Array]) -> Array:
    """Return the diagonal of the system, ``2 <A_k^2, X>``, roughly where rows have several entries."""
    diagonal = np.zeros(program.m)
    for term in program.A.terms:
        own = X[term.block].diagonal()
        if term.rows.single:
            t = term.rows.coordinates()
            half = np.where(t.i == t.j, 1.0, 0.5) * (own[t.i] + own[t.j])
            diagonal[term.at[t.row]] += t.value**2 * np.maximum(half, 0.0)
        else:
            diagonal[term.at] += 2 * term.norms**2 * max(float(own.mean()), 0.0)
    return np.where(diagonal > 0, diagonal, 1.0)


def least_solution(product: Callable[[Array], Array], right: Array, diagonal: Array) -> Array:
    """Return the solution of a psd system with Jacobi's preconditioner, of least norm in that metric."""
    return conjugate_gradients(product, right, lambda r: r / diagonal, _CG_RATIO, _CG_STEPS, EPS)[0]
