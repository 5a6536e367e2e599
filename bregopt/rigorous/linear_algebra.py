"""Proven linear algebra: definite matrices, eigenvalues and determinants, and solutions of linear equations.

Every result holds for each matrix of the :class:`~bregopt.rigorous.ball.Ball` given.

Let ``A`` have full row rank, and ``r = b - A x``. The least change of ``x`` that solves the equations is
``A'(A A')^-1 r``, of norm ``(r'(A A')^-1 r)^(1/2) <= ||r|| / lambda_min(A A')^(1/2)``. So a proven least
eigenvalue of ``A A'`` and an enclosure of ``r`` prove a solution within that radius of ``x``, for every ``A``
within given radii (Jansson, Chaykin and Keil 2007, §4, bound the change by interval solutions instead).

On the boundary of the cone radii prove nothing. Doubles are rational numbers, and elimination in fractions
decides about small matrices and systems without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray
from bregopt.linalg import factorized, root_of
from bregopt.records import dataclass
from bregopt.rigorous.ball import UNIT, Ball, down, gamma, inflated, log, up

_TRIALS = 6
_SHARP = 20  # of the norm in round-offs: above the distance of a factorization, in Frobenius' norm
_GROWTH = 8.0  # of the distance from the estimate, from one trial to the next
LARGEST_SYSTEM = 6000  # equations whose normal matrix is factorized densely
_ROUNDS = 4  # of refinement
_POWER_STEPS = 5
_DENSE = 0.05  # share of nonzeros above which a dense product is faster
LARGEST_PARTS = 64  # doubles whose sum is a number of a file

Vector = dict[Any, Fraction]  # the numbers that are not zero
Rational = list[list[Fraction]]


def proven_shift(W: Array, t: float) -> float | None:
    """Return a proven lower bound on the eigenvalues of `W`, slightly below `t`; None where none is found.

    Forming the float matrix ``fl(W - t I)`` moves its diagonal by at most ``u``.
    """
    shifted = W.copy()
    diagonal = W.diagonal() - t
    shifted[np.diag_indices(len(W))] = diagonal
    error = cholesky_error(shifted)
    if error is None:
        return None
    found = t - inflated(error + UNIT * float(diagonal.max()))
    return found - UNIT * abs(found) - TINY


def cholesky_error(M: Array, overwrite: bool = False) -> float | None:
    """Return how far below zero an eigenvalue of `M` can be, None where Cholesky's factorization fails.

    If it ends, the float matrix has no eigenvalue below ``-gamma_(n+1) / (1 - gamma_(n+1))`` times its trace
    (Rump 2006, §2; Higham 2002, theorems 10.3 and 10.5, for every order of operations). Divisions may be
    products with reciprocals, as in BLAS's triangular solves: the index is larger by that rounding. The
    factor may `overwrite` the matrix.
    """
    n, diagonal = len(M), M.diagonal()
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        return None
    size, largest = float(diagonal.sum()), float(diagonal.max())
    root, ended = factorized(M, overwrite)
    if not (ended and np.isfinite(root.diagonal()).all()):
        return None
    error = gamma(n + 4) * size * (1 + gamma(n + 1)) + n * (n + largest) * TINY  # TINY: underflow
    return float(inflated(error))


def exceeds(W: Ball, least: float) -> bool:
    """Whether no eigenvalue is below `least`, proven by one factorization, or by the diagonal alone."""
    n = len(W.mid)
    if n <= 1 or not (W.mid.any() or W.rad.any()):
        return least_eigenvalue(W) >= least
    spread = Ball(np.zeros_like(W.mid), W.rad).symmetric_norm()
    step = _step(W.mid)
    if not math.isfinite(spread + step):
        return False
    found = proven_shift(W.mid, least + 2 * spread + step)
    if found is not None and found - inflated(spread) - UNIT * abs(found) >= least:
        return True
    return _exceeds_sharply(W.mid, up(least + spread))


def _exceeds_sharply(W: Array, least: float) -> bool:
    """Whether ``W - s I``, for an ``s`` above `least`, is near some ``L L'``, whose product is enclosed.

    The distance is near one rounding of each entry. Before a factorization is known, its bound is larger by
    the order.
    """
    shift = up(least + _SHARP * UNIT * Ball.exact(W).frobenius())
    M = W.copy()
    M[np.diag_indices(len(W))] -= shift
    root = root_of(M)
    if root is None:
        return False
    distance = (Ball.exact(W) - Ball.exact(root) @ root.T - shift * np.eye(len(W))).frobenius()
    return down(shift - distance) >= least


def _step(W: Array) -> float:
    """Return a distance from an eigenvalue at which a factorization proves it, in spite of round-off."""
    n, size = len(W), float(np.abs(W).max())
    return 4 * inflated(gamma(n + 2) * (float(np.abs(W.diagonal()).sum()) + UNIT * size)) + TINY


def least_eigenvalue(W: Ball, at_least: float | None = None) -> float:
    """Return a proven lower bound on the eigenvalues, ``-inf`` where the radius is infinite.

    Parameters
    ----------
    W : Ball of shape (n, n)
        Symmetric.
    at_least : float, optional
        No larger bound is needed: a factorization at this shift replaces the eigenvalues if it ends.
    """
    n = len(W.mid)
    if n == 0:
        return math.inf
    occupied = (W.mid != 0).any(axis=0) | (W.rad != 0).any(axis=0)
    if not occupied.all():  # the others have the eigenvalue zero
        return min(0.0, least_eigenvalue(W[np.ix_(occupied, occupied)], at_least))
    spread = Ball(np.zeros_like(W.mid), W.rad).symmetric_norm()
    size = float(np.abs(W.mid).max())
    if not (math.isfinite(spread) and math.isfinite(size)):
        return -math.inf
    if n == 1:
        return float(W.lo[0, 0])
    step = _step(W.mid)
    if at_least is not None:
        found = proven_shift(W.mid, at_least + 2 * spread + step)
        if found is not None and found - inflated(spread) > at_least:
            return found - inflated(spread) - UNIT * abs(found)
    estimate = float(np.linalg.eigvalsh(W.mid)[0])
    step += gamma(n + 2) * n * abs(estimate)
    for _ in range(_TRIALS):
        found = proven_shift(W.mid, estimate - step)
        if found is not None:
            below = found - inflated(spread)
            return below - UNIT * abs(below)
        step *= _GROWTH
    rows = inflated(np.abs(W.mid).sum(axis=1) * (1 + gamma(n + 1)))  # Gershgorin's discs
    return -float(rows.max()) - inflated(spread)


def spectral_norm(M: Ball) -> float:
    """Return an upper bound on the spectral norm."""
    return inflated(math.sqrt(max(-least_eigenvalue(-(M.T @ M)), 0.0))) if M.mid.size else 0.0


def eigenvalues(W: Ball) -> Ball:
    """Return enclosures of the eigenvalues, in ascending order.

    Let ``Q`` be the computed eigenvectors, ``D`` the computed eigenvalues, and ``H`` the polar factor of
    ``Q``, orthogonal with ``||Q - H|| <= ||Q'Q - I|| = delta`` for ``delta < 1`` (Higham 2008, Functions of
    Matrices, lemma 8.17). Then ``W - H D H'`` has a norm of at most ``||W - Q D Q'|| + delta (2 + delta)
    ||D||``, and Weyl's inequality bounds each eigenvalue.
    """
    values, distance = decomposition(W)[1:]
    return Ball(values, np.full(len(values), distance))


def decomposition(W: Ball) -> tuple[Array, Array, float]:
    """Return ``Q``, ``d`` and a bound on ``||W - H diag(d) H'||``, ``H`` the orthogonal factor of ``Q``.

    ``H`` is as close to ``Q`` as :func:`orthogonality` says.
    """
    n = len(W.mid)
    if not np.isfinite(W.rad).all():
        return np.eye(n), np.zeros(n), math.inf
    d, Q = np.linalg.eigh(W.mid)
    delta = orthogonality(Q)
    if not delta < 0.5:
        return Q, d, math.inf
    residual = (W - (Ball.exact(Q) * d) @ Q.T).frobenius()
    size = float(np.abs(d).max(initial=0.0))
    return Q, d, inflated(residual + delta * (2 + delta) * size)


def orthogonality(Q: Array) -> float:
    """Return an upper bound on ``||Q'Q - I||``, which bounds the distance from an orthogonal matrix."""
    return (Ball.exact(Q.T) @ Q - np.eye(Q.shape[1])).frobenius()


def triangular_inverse(W: Array) -> Array | None:
    """Return an approximate inverse of the lower Cholesky factor, lower triangular; None without a factor."""
    from scipy.linalg import lapack

    root = root_of(W)
    if root is None:
        return None
    inverse, info = lapack.dtrtri(root, lower=1)
    found: Array = np.tril(inverse)
    return found if info == 0 and np.isfinite(found).all() and (found.diagonal() > 0).all() else None


def log_det(W: Ball) -> Ball:
    """Return the logarithm of the determinant; an infinite radius where no matrix is proven definite.

    For any lower triangular ``Y``, ``logdet W = logdet(I + F) - 2 sum_i log Y_ii`` with
    ``F = Y W Y' - I``, and ``|logdet(I + F) - tr F| <= ||F||_F^2 / (2 (1 - ||F||_F))`` (the series of the
    logarithm). ``Y`` is the inverse of the computed Cholesky factor.
    """
    nothing = Ball(np.asarray(0.0), np.asarray(math.inf))
    Y = triangular_inverse(W.mid) if np.isfinite(W.rad).all() else None
    if Y is None:
        return nothing
    return near_identity(whitened(Y, W)) - 2 * log(Ball.exact(Y.diagonal())).sum()


def whitened(Y: Array, W: Ball) -> Ball:
    """Return ``Y W Y' - I``."""
    return Ball.exact(Y) @ W @ Y.T - np.eye(len(Y))


def near_identity(F: Ball) -> Ball:
    """Return ``logdet(I + F)`` of symmetric ``F`` of Frobenius norm below one."""
    size = F.frobenius()
    if not size < 0.5:
        return Ball(np.asarray(0.0), np.asarray(math.inf))
    trace = F[np.diag_indices(len(F.mid))].sum()
    return Ball(trace.mid, np.asarray(inflated(trace.rad + size * size / (2 * (1 - size)))))


class Part(NamedTuple):
    """One part of the unknowns.

    Parameters
    ----------
    A : csr_array of shape (rows, p)
    rad : csr_array of the same shape, or None
    share : array of shape (p,)
        The squared norm of a change ``d`` is ``sum d^2 / share``; 1/2 for pairs of entries of a matrix.
    columns : int array
        The unknowns that may change.
    """

    A: Any
    rad: Any
    share: Array
    columns: IntArray


State = TypeVar("State")


class Found(NamedTuple, Generic[State]):
    """An approximate solution, and the distance within which an exact one exists."""

    x: State
    radius: float


@dataclass(frozen=True, eq=False)
class Rows:
    """Equations, scaled by powers of two to rows of norms near one, with their normal matrix.

    Parameters
    ----------
    parts : list of (Part, csr_array)
        Each with its scaled columns.
    scale : array of shape (rows,)
    solve : callable or None
        The solution of a system with the computed normal matrix; None where there is none.
    least : float
        A proven lower bound on the eigenvalues of the exact one; not above zero where nothing is proven.
    """

    parts: list[tuple[Part, Any]]
    scale: Array
    solve: Callable[[Array], Array] | None
    least: float

    @classmethod
    def of(cls, parts: Sequence[Part], rows: IntArray) -> Rows:
        """Return the given rows."""
        own = [_chosen(part.A, rows, part.columns) for part in parts]
        size = np.zeros(len(rows))
        for part, A in zip(parts, own, strict=True):
            size += squares(A, part.share[part.columns])
        exponent = np.where(size > 0, -np.round(np.log2(np.where(size > 0, size, 1.0)) / 2), 0.0)
        scale = 2.0**exponent  # exact
        scaled = [_scaled(A, scale) for A in own]
        diagonal, spread, terms = np.zeros(len(rows)), np.zeros(len(rows)), 1
        for part, A in zip(parts, scaled, strict=True):
            share = part.share[part.columns]
            diagonal += squares(A, share)
            terms += int(np.diff(A.indptr).max(initial=0)) + 2
            if part.rad is not None:
                spread += squares(_scaled(_chosen(part.rad, rows, part.columns), scale), share)
        norms, spread = (np.sqrt(part) * (1 + gamma(terms + 4)) for part in (diagonal, spread))
        # Summing a_i'a_j has an error of at most gamma ||a_i|| ||a_j||, and radii r_i change it by at most
        # ||a_i|| ||r_j|| + ||r_i|| (||a_j|| + ||r_j||): outer products of vectors, whose norms are known.
        length, apart = Ball.exact(norms).frobenius(), Ball.exact(spread).frobenius()
        error = gamma(terms + 4) * length**2 + 2 * length * apart + apart**2 + len(rows) * terms * TINY
        error, own = inflated(error), list(zip(parts, scaled, strict=True))
        if all(np.bincount(A.indices).max(initial=0) <= 1 for A in scaled) and diagonal.all():
            return cls(own, scale, lambda r: r / diagonal, float(diagonal.min(initial=np.inf)) - error)
        G = np.sum([_normal(A, part.share[part.columns]) for part, A in own], axis=0)
        least, solve = _factorized((G + G.T) / 2, error)
        return cls(own, scale, solve, least)

    def change(self, r: Array) -> list[Array]:
        """Return the least change that raises the rows by about `r`, for the columns of each part."""
        assert self.solve is not None
        solved = self.solve(self.scale * r)
        return [part.share[part.columns] * (A.T @ solved) for part, A in self.parts]

    def radius(self, r: Ball) -> float:
        """Return a proven distance to a solution from a point with the residual `r`; inf if there is none."""
        if not self.least > 0:
            return math.inf
        size = Ball(r.mid * self.scale, r.rad * self.scale).frobenius()
        return up(inflated(size / math.sqrt(self.least) * (1 + 4 * UNIT)))


def nearest_solution(
    rows: Rows,
    x: State,
    residual: Callable[[State], Ball],
    moved: Callable[[State, list[Array]], State],
) -> Found[State] | None:
    """Return a refined solution and its proven distance from an exact one, None where nothing is proven.

    Parameters
    ----------
    rows : Rows
    x : State
        The unknowns, from which refinement starts.
    residual : callable
        From the unknowns to a ball around what the rows lack.
    moved : callable
        From the unknowns and the change of each part to other unknowns.
    """
    if not rows.least > 0:
        return None
    r = residual(x)
    found = Found(x, rows.radius(r))
    for _ in range(_ROUNDS if rows.solve is not None else 0):
        if (np.abs(r.mid) <= r.rad).all():  # round-off, which no change reduces
            break
        closer = moved(found.x, rows.change(r.mid))
        r = residual(closer)
        last, radius = found, rows.radius(r)
        if not radius < last.radius:
            break
        found = Found(closer, radius)
        if radius >= last.radius / 4:
            break
    return found if math.isfinite(found.radius) else None


def _factorized(G: Array, error: float) -> tuple[float, Callable[[Array], Array] | None]:
    """Return a proven bound on the least eigenvalue of every matrix within `error` of `G`, and its solve.

    Inverse iteration estimates the eigenvalue, and half of the estimate is proven by a second factorization.
    """
    try:
        root = scipy.linalg.cho_factor(G, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return -math.inf, None
    solve = partial(scipy.linalg.cho_solve, root, check_finite=False)
    v = np.random.default_rng(0).normal(size=len(G))
    for _ in range(_POWER_STEPS):
        v /= float(np.abs(v).max())
        v = solve(v)
        if not np.isfinite(v).all():
            return -math.inf, None
    estimate = 1 / max(float(np.abs(v).max()), TINY)
    for share in (0.5, 0.1):
        found = proven_shift(G, share * estimate)
        if found is not None:
            return found - inflated(error), solve
    return -math.inf, None


def squares(A: Any, share: Array) -> Array:
    """Return the sums of squares of the rows of a CSR array, weighted by a share for each column."""
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    return np.bincount(row, A.data**2 * share[A.indices], A.shape[0]).astype(float)


def _chosen(A: Any, rows: IntArray, columns: IntArray) -> Any:
    """Return some rows and columns of a CSR array, each in ascending order."""
    A = A if len(rows) == A.shape[0] else A[rows]
    return A if len(columns) == A.shape[1] else sp.csr_array(A[:, columns])


def _scaled(A: Any, scale: Array) -> Any:
    """Return a CSR array with its rows multiplied by powers of two."""
    A = A.copy()
    A.data *= np.repeat(scale, np.diff(A.indptr))
    return A


def _normal(A: Any, share: Array) -> Array:
    """Return ``A diag(share) A'`` as a dense array."""
    if A.nnz > _DENSE * A.shape[0] * A.shape[1]:
        D = A.toarray()
        product: Array = (D * share) @ D.T
        return product
    found: Array = (sp.csr_array(A * share) @ A.T).toarray()
    return found


# --- Fractions --------------------------------------------------------------------------------------


def terms_of(A: Any) -> Iterator[tuple[int, int, float]]:
    """Yield the row, column and value of the entries of a sparse array that are not zero."""
    coo = A.tocoo()
    for row, column, value in zip(coo.row.tolist(), coo.col.tolist(), coo.data.tolist(), strict=True):
        if value:
            yield row, column, value


def sums_of_doubles(numbers: Sequence[Fraction]) -> Array:
    """Return numbers as sums of doubles, one row for each part, the largest first, up to `LARGEST_PARTS`."""
    parts: list[list[float]] = []
    rest = list(numbers)
    while (any(rest) and len(parts) <= LARGEST_PARTS) or not parts:
        parts.append([float(x) for x in rest])
        rest = [x - Fraction(part) for x, part in zip(rest, parts[-1], strict=True)]
    return np.array(parts)


def fractions_of(parts: Array) -> list[Fraction]:
    """Return sums of doubles, one row for each part."""
    return [sum(map(Fraction, column), Fraction(0)) for column in parts.T.tolist()]


def as_fractions(M: Array) -> Rational:
    """Return a matrix of doubles in fractions."""
    return [[Fraction(x) for x in row] for row in M.tolist()]


def total_of(row: Vector, v: Vector) -> Fraction:
    """Return the inner product of two vectors."""
    return sum((a * v[k] for k, a in row.items() if k in v), Fraction(0))


def product_of(A: Rational, B: Rational) -> Rational:
    """Return a product."""
    columns = list(zip(*B, strict=True))
    return [
        [sum((a * b for a, b in zip(row, column, strict=True) if a and b), Fraction(0)) for column in columns]
        for row in A
    ]


def ldl(M: Rational) -> tuple[Rational, list[Fraction]] | None:
    """Return ``L`` and ``d > 0`` with ``M = L diag(d) L'``, None if the symmetric matrix is not psd.

    The largest diagonal entry that is left is the next pivot. All steps are in integers (Bareiss 1968).
    """
    common = math.lcm(*(x.denominator for row in M for x in row)) if M else 1
    rest = [[x.numerator * (common // x.denominator) for x in row] for row in M]
    left, last = list(range(len(M))), 1
    columns: list[list[Fraction]] = []
    d: list[Fraction] = []
    while left:
        k = max(left, key=lambda i: rest[i][i])
        pivot, column = rest[k][k], rest[k]
        if pivot <= 0 or any(rest[i][i] < 0 for i in left):
            break
        d.append(Fraction(pivot, last * common))
        columns.append([Fraction(column[i], pivot) if i in left else Fraction(0) for i in range(len(M))])
        left.remove(k)
        for i in left:
            row = rest[i]
            for j in left:
                row[j] = (pivot * row[j] - column[i] * column[j]) // last
        last = pivot
    if any(rest[i][j] for i in left for j in left):
        return None
    return [[column[i] for column in columns] for i in range(len(M))], d


def is_psd(M: Rational) -> bool:
    """Whether a symmetric matrix is psd. Doubles refuse most others before integers of many digits would."""
    near = np.array(M, dtype=float).reshape(len(M), len(M))
    if np.isfinite(near).all() and len(M):
        values = np.linalg.eigvalsh(near)
        if values[0] < -16 * len(M) * UNIT * float(np.abs(values).max()):
            return False
    return ldl(M) is not None


def solution(A: Rational, B: Rational) -> Rational:
    """Return the solution of ``A X = B`` for a regular ``A``, by elimination in integers (Bareiss 1968)."""
    m, rows = len(A), []
    for row, right in zip(A, B, strict=True):
        common = math.lcm(*(x.denominator for x in (*row, *right)))
        rows.append([x.numerator * (common // x.denominator) for x in (*row, *right)])
    last = 1
    for k in range(m):
        p = max(range(k, m), key=lambda i: abs(rows[i][k]))
        rows[k], rows[p] = rows[p], rows[k]
        pivot, top = rows[k][k], rows[k]
        for i in range(k + 1, m):
            own = rows[i]
            rows[i] = [(pivot * x - own[k] * y) // last for x, y in zip(own, top, strict=True)]
        last = pivot
    X: Rational = [[]] * m
    for k in reversed(range(m)):
        later = [(j, rows[k][j]) for j in range(k + 1, m) if rows[k][j]]
        ends = enumerate(rows[k][m:])
        X[k] = [(end - sum((a * X[j][c] for j, a in later), Fraction(0))) / rows[k][k] for c, end in ends]
    return X


def eliminated(equations: Iterable[Vector], most: float = math.inf) -> dict[Any, Vector]:
    """Return the unknowns that equations determine, each with its sum of others: it is ``-sum a_k x_k``.

    None is determined if that adds more than `most` terms.
    """
    pivots: dict[Any, Vector] = {}
    added = 0
    for equation in equations:
        row = dict(equation)
        for p in [k for k in row if k in pivots]:
            added += len(pivots[p])
            add_multiple(row, pivots[p], -row.pop(p))
        if not row:
            continue
        p = max(row, key=lambda k: abs(row[k]))
        unit = row.pop(p)
        row = {k: a / unit for k, a in row.items()}
        for other in pivots.values():
            if p in other:
                added += len(row)
                add_multiple(other, row, -other.pop(p))
        if added > most:
            return {}
        pivots[p] = row
    return pivots


def add_multiple(row: Vector, other: Vector, factor: Fraction) -> None:
    """Add a multiple of another row."""
    for k, a in other.items():
        total = row.get(k, Fraction(0)) + factor * a
        if total:
            row[k] = total
        else:
            row.pop(k, None)
