"""The bound of a node of a dense graph: semidefinite, with clique inequalities of 3, 5 and 7 vertices.

In rounds, the multipliers of the rows at hand are improved, and violated rows are added. The function of
multipliers is that of BiqCrunch, which is smooth:

    F(y, z) = e'y + sum_t z_t (|b_t|^2 - 1) / 2 + |M_+|^2 / (2 alpha) + alpha n^2 / 2

Its gradient comes from ``X = M_+ / alpha``, and L-BFGS-B keeps ``z >= 0``. Any multipliers prove the bound
``e'y + sum_t z_t (|b_t|^2 - 1) / 2 + n lambda_max(M)``, which is never above `F`, so each evaluation may end
the work. ``alpha`` falls with the rounds: rows lead and the precision follows.

Triangles are separated by comparing all of them. Rows of five and seven vertices extend nearly tight rows of
three and five by the pair that lowers ``b'Xb`` most.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from scipy.linalg import lapack

from bregopt.arrays import Array, IntArray
from bregopt.clock import CutShort, checkpoint
from bregopt.problems.cuts.branch_and_bound.leaves import (
    ENUMERATED,
    LARGEST_CLIQUE,
    Cliques,
    Form,
    Node,
    cut_bound,
)
from bregopt.threads import threads_for

__all__ = ["Outcome", "bounded", "improved"]

_TRIANGLES, _LARGER = 400, 200  # rows of each kind that a round adds at most
_VIOLATED = 0.05  # by which a row is violated at least
_NEARLY_TIGHT = 0.3  # triangles that rows of five vertices extend
_LARGER_FROM = 3  # the first round at the root with rows of five and seven; a child has them at once
_ITERATIONS, _MEMORY = 50, 8  # of L-BFGS-B in a round
_SHRINK, _SHARE = 0.7, 0.1  # of alpha n^2 / 2 from a round to the next; its least value, relative to the gap
_ROUNDS_ROOT, _ROUNDS = 17, 3  # before branching
_AHEAD = 8  # rounds at the present gain that should close the gap: else the node branches
_DROPPED, _SLACK = 1e-6, 0.02  # a multiplier and a slack beyond which a row is dropped
_BELOW = 1e-8  # zero: the largest eigenvalue of M, so that a factorization proves it
_HYPERPLANES = 10  # that round X


class Outcome(NamedTuple):
    """What work on a node found.

    Parameters
    ----------
    node : Node
        With the multipliers that prove the bound.
    bound : float
        Proven with all rounding errors, in the units of the form.
    pair : (int, int) or None
        Vertices in two groups, to branch on; None where every cut of the node is enumerated.
    side : int array of shape (n,)
        The best cut that was seen.
    """

    node: Node
    bound: float
    pair: tuple[int, int] | None
    side: IntArray


class _Closed(Exception):  # noqa: N818
    """The bound reached the target."""


class _Folded:
    """Rows on the groups of a node: ``T x + constants >= 0`` for the entries ``x`` of ``X``.

    Pairs inside of a group stay, on the diagonal: so a child begins with the bound of its parent.
    """

    def __init__(self, rows: Cliques, group: IntArray, sign: IntArray) -> None:
        m = int(group.max()) + 1
        row, i, j, b = rows.terms()
        g, h = group[i], group[j]
        place = np.minimum(g, h) * m + np.maximum(g, h)
        values = (b * sign[i] * sign[j]).astype(float)
        self.T = sp.csr_array((values, (row, place)), (len(rows.z), m * m))
        self.T.sum_duplicates()
        self.Tt = sp.csr_array(self.T.T)
        self.constants = rows.constants


def bounded(form: Form, node: Node, target: float) -> Outcome:
    """Bound the cuts of a node, until the bound is below the target or further rounds gain too little.

    Parameters
    ----------
    form : Form
    node : Node
        With clique rows.
    target : float
        A proven bound below it ends the work.
    """
    work = _Work(form, node, target)
    with threads_for(form.n):
        return work.run()


class _Work:
    """The rounds at one node."""

    def __init__(self, form: Form, node: Node, target: float) -> None:
        assert isinstance(node.rows, Cliques)
        self.form, self.path, self.target = form, node.path, target
        self.group, self.sign = node.groups(form.n)
        self.m = int(self.group.max()) + 1
        self.first = np.unique(self.group, return_index=True)[1]
        P = np.zeros((form.n, self.m))
        P[np.arange(form.n), self.group] = self.sign
        self.C = P.T @ form.C @ P
        self.rows, self.given = node.rows, node.rows
        self.best, self.kept = np.inf, node.rows
        self.X = np.eye(self.m)

    def run(self) -> Outcome:
        """Take rounds; return what they found."""
        if self.m <= ENUMERATED:
            return self._outcome(None)
        is_root = not len(self.given.z) and not self.path
        if is_root:
            top = float(lapack.dsyevr(self.C, compute_v=0)[0][-1])
            y = np.zeros(self.form.n)
            y[self.first] = top
            self.rows = self.rows._replace(y=y)
        self._fold()
        with suppress(_Closed, CutShort):
            self._rounds(is_root)
        X = _unit(self.X)
        away = 1 + int(np.argmax(np.abs(X[0, 1:])))
        return self._outcome((int(self.first[0]), int(self.first[away])), X)

    def _rounds(self, is_root: bool) -> None:
        gap = self._gap(self._evaluate(self._start(), 0.0, False)[0])
        level, gains = gap, [self.best]
        for number in range(1, 1000):
            checkpoint(self.m)
            self._improve(2 * level / self.m**2)
            gap = max(self._gap(self.best), 0.0)
            gains.append(self.best)
            if number >= (_ROUNDS_ROOT if is_root else _ROUNDS):
                gain = (gains[-4] - gains[-1]) / 3 if len(gains) > 3 else np.inf
                if gain * _AHEAD < gap:
                    return
            self._separate(with_larger=number >= _LARGER_FROM or not is_root)
            level = max(_SHRINK * level, min(level, _SHARE * gap))

    def _gap(self, bound: float) -> float:
        return bound + self.form.half - self.target

    def _fold(self) -> None:
        self.folded = _Folded(self.rows, self.group, self.sign)

    def _start(self) -> Array:
        return np.concatenate([np.bincount(self.group, self.rows.y, self.m), self.rows.z])

    def _improve(self, alpha: float) -> None:
        """Improve the multipliers by L-BFGS-B."""
        count = len(self.rows.z)
        bounds = scipy.optimize.Bounds(
            np.concatenate([np.full(self.m, -np.inf), np.zeros(count)]), np.full(self.m + count, np.inf)
        )
        found = scipy.optimize.minimize(
            self._evaluate,
            self._start(),
            args=(alpha,),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": _ITERATIONS, "maxcor": _MEMORY, "ftol": 0.0, "gtol": 1e-9},
        )
        self.rows = self.rows._replace(y=self._spread(found.x[: self.m]), z=found.x[self.m :])

    def _spread(self, y: Array) -> Array:
        """Return multipliers of vertices: those of a group stand at its first vertex."""
        whole = np.zeros(self.form.n)
        whole[self.first] = y
        return whole

    def _evaluate(self, p: Array, alpha: float, smooth: bool = True) -> tuple[float, Array]:
        """Return `F` and its gradient; keep the best bound, and end the work below the target."""
        m, folded = self.m, self.folded
        y, z = p[:m], p[m:]
        M = self._matrix(y, z, folded)
        values, V, count, _, _ = lapack.dsyevr(M, range="V", vl=0.0, vu=1e300)
        values, V = values[:count], V[:, :count]
        base = float(y.sum() + folded.constants @ z)
        top = float(values[-1]) if count else 0.0
        if base + m * top < self.best:
            self.best = base + m * top
            self.kept = self.rows._replace(y=self._spread(y + top), z=z.copy())
            if self._gap(self.best) < 0 and self._proven():
                raise _Closed
        if not smooth:
            return self.best, p
        self.X = (V * (values / alpha)) @ V.T
        F = base + float(values @ values) / (2 * alpha) + alpha * m * m / 2
        return F, np.concatenate([1 - self.X.diagonal(), folded.constants + folded.T @ self.X.ravel()])

    def _proven(self) -> bool:
        """Whether rounded multipliers prove the target."""
        return cut_bound(self.form, Node(self.path, self._rounded())) < self.target

    def _rounded(self) -> Cliques:
        """Return the best multipliers with 24 digits, and no eigenvalue of ``M`` above zero.

        Folds of a child keep ``M`` negative, so its bound is no larger.
        """
        z = self.kept.z.astype(np.float32).astype(float)
        used = np.flatnonzero(z > 0)
        rows = Cliques(self.kept.support[used], self.kept.sign[used], z[used], self.kept.y)
        y = np.asarray(np.bincount(self.group, rows.y, self.m), dtype=float)
        M = self._matrix(y, rows.z, _Folded(rows, self.group, self.sign))
        top = float(lapack.dsyevr(M, compute_v=0, range="I", il=self.m, iu=self.m)[0][0]) + _BELOW
        return rows._replace(y=self._spread(y + top))

    def _matrix(self, y: Array, z: Array, folded: _Folded) -> Array:
        half = (folded.Tt @ z).reshape(self.m, self.m) / 2
        M: Array = self.C + half
        M += half.T
        M.ravel()[:: self.m + 1] -= y
        return M

    def _separate(self, with_larger: bool) -> None:
        """Drop rows without use, and add violated ones."""
        X = _unit(self.X)
        slack = self.folded.T @ X.ravel() + self.folded.constants
        useful = np.flatnonzero((self.rows.z > _DROPPED) | (slack < _SLACK))
        support, sign = self.rows.support[useful], self.rows.sign[useful]
        found = [_triangles(X, _TRIANGLES, _VIOLATED)]
        if with_larger:
            three = _triangles(X, _LARGER, -_NEARLY_TIGHT)
            five = _extended(X, *three)
            found += [five, _extended(X, *five)]
        new = [np.concatenate(part) for part in zip(*found, strict=True)]
        vertices = np.where(new[1] != 0, self.first[new[0]], 0)
        new_support, new_sign = _canonical(vertices, new[1] * self.sign[vertices])
        known = {key.tobytes() for key in np.concatenate([support, sign], axis=1)}
        fresh = []
        for k, key in enumerate(np.concatenate([new_support, new_sign], axis=1)):
            if (text := key.tobytes()) not in known:
                known.add(text)
                fresh.append(k)
        self.rows = Cliques(
            np.concatenate([support, new_support[fresh]]),
            np.concatenate([sign, new_sign[fresh]]),
            np.concatenate([self.rows.z[useful], np.zeros(len(fresh))]),
            self.rows.y,
        )
        self._fold()

    def _outcome(self, pair: tuple[int, int] | None, X: Array | None = None) -> Outcome:
        node = Node(self.path, self.kept if pair is None else self._rounded())
        bound = cut_bound(self.form, node)
        if pair is None:
            side = enumerated_side(self.form, self.group, self.sign)
        else:
            assert X is not None
            side = _best_rounding(self.form, X, self.group, self.sign)
        return Outcome(node, bound, pair, side)


def _unit(X: Array) -> Array:
    """Return a psd matrix scaled to a diagonal of ones."""
    root = np.sqrt(np.maximum(X.diagonal(), 1e-12))
    return X / root / root[:, None]


# --- Separation ---------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _triples(m: int) -> tuple[IntArray, ...]:
    return tuple(np.array(list(combinations(range(m), 3)), dtype=np.intp).T)


_SIGNS = np.array([(1, 1, 1), (-1, 1, 1), (1, 1, -1), (1, -1, 1)])  # of b: pairs (+++), (--+), (+--), (-+-)


def _triangles(X: Array, most: int, violated: float) -> tuple[IntArray, IntArray]:
    """Return the triangles that are violated most, as supports and signs of shape (rows, 7)."""
    i, j, k = _triples(len(X))
    X = X.astype(np.float32)
    a, b, c = X[i, j], X[i, k], X[j, k]
    values = np.array([a + b + c, c - a - b, a - b - c, b - a - c])
    least = values.min(axis=0)
    at = np.flatnonzero(least < -1 - violated)
    if len(at) > most:
        at = at[np.argpartition(least[at], most)[:most]]
    support, sign = (np.zeros((len(at), LARGEST_CLIQUE), dtype=np.intp) for _ in range(2))
    support[:, :3] = np.array([i[at], j[at], k[at]]).T
    sign[:, :3] = _SIGNS[np.argmin(values[:, at], axis=0)]
    return support, sign


def _extended(X: Array, support: IntArray, sign: IntArray) -> tuple[IntArray, IntArray]:
    """Return violated rows, each one of the given rows and the best pair of other vertices.

    With ``u = Xb``, a pair of signs ``s, t`` at ``p, q`` adds ``2 + 2 s u_p + 2 t u_q + 2 s t X_pq`` to
    ``b'Xb``. For equal signs the best is ``X_pq - |u_p + u_q|``, for others ``-X_pq - |u_p - u_q|``.
    """
    count, n = len(support), len(X)
    if not count:
        return support, sign
    rows = np.arange(count)
    b = np.zeros((count, n))
    np.add.at(b, (rows[:, None], support), sign)
    u = b @ X
    size = np.einsum("ki,ki->k", u, b)
    low, u = X.astype(np.float32), u.astype(np.float32)
    u[b != 0] = np.nan
    equal = low - np.abs(u[:, :, None] + u[:, None, :])
    other = -low - np.abs(u[:, :, None] - u[:, None, :])
    best = np.fmin(equal, other)
    best[:, np.arange(n), np.arange(n)] = np.inf
    best = np.where(np.isnan(best), np.inf, best).reshape(count, -1)
    at = best.argmin(axis=1)
    value = (size + 1 + 2 * best[rows, at]) / 2  # of the row
    kept = np.flatnonzero(value < -_VIOLATED)
    kept = kept[np.argsort(value[kept])]
    p, q = np.divmod(at[kept], n)
    same = equal[kept, p, q] <= other[kept, p, q]
    up, uq = u[kept, p], u[kept, q]
    s = np.where(np.where(same, up + uq, up - uq) > 0, -1, 1)
    support, sign = support[kept].copy(), sign[kept].copy()
    size_before, own = (sign != 0).sum(axis=1), np.arange(len(kept))
    support[own, size_before], sign[own, size_before] = p, s
    support[own, size_before + 1], sign[own, size_before + 1] = q, np.where(same, s, -s)
    return support, sign


def _canonical(support: IntArray, sign: IntArray) -> tuple[IntArray, IntArray]:
    """Return rows with ascending vertices, the first sign 1."""
    order = np.argsort(np.where(sign != 0, support, np.iinfo(np.intp).max), axis=1)
    support, sign = (np.take_along_axis(part, order, axis=1) for part in (support, sign))
    return support, sign * sign[:, :1]


# --- Cuts ---------------------------------------------------------------------------------------------


def _best_rounding(form: Form, X: Array, group: IntArray, sign: IntArray) -> IntArray:
    """Return the best of some cuts by hyperplanes, improved by moves of single vertices."""
    values, V = np.linalg.eigh(X)
    F = V * np.sqrt(np.maximum(values, 0.0))
    normals = np.random.default_rng(0).normal(size=(len(X), _HYPERPLANES))
    sides = np.where(F @ normals >= 0, 1, -1).T
    found = [improved(form, side[group] * sign) for side in sides]
    return max(found, key=form.cut)


def improved(form: Form, side: IntArray) -> IntArray:
    """Return a cut that no move of one vertex improves."""
    side, C = side.copy(), form.C
    pull = C @ side
    for _ in range(10 * len(side)):
        gain = -side * pull  # a move adds four times this
        v = int(np.argmax(gain))
        if gain[v] <= 1e-12:
            break
        pull -= 2 * side[v] * C[:, v]
        side[v] = -side[v]
    return side


def enumerated_side(form: Form, group: IntArray, sign: IntArray) -> IntArray:
    """Return the best cut of a node with few groups."""
    m = int(group.max()) + 1
    signs = np.array(np.meshgrid(*[[1, -1]] * (m - 1), indexing="ij")).reshape(m - 1, -1).T
    u = np.column_stack([np.ones(len(signs), dtype=np.intp), signs]) if m > 1 else np.ones((1, 1), np.intp)
    P = np.zeros((form.n, m))
    P[np.arange(form.n), group] = sign
    best = u[int(np.argmax(np.einsum("ki,ki->k", u @ (P.T @ form.C @ P), u)))]
    side: IntArray = best[group] * sign
    return side
