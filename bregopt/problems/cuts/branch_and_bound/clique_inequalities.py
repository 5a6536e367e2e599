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

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from bregopt.arrays import Array, IntArray, Mask
from bregopt.clock import CutShort, checkpoint
from bregopt.problems.cuts.branch_and_bound.leaves import (
    ENUMERATED,
    LARGEST_CLIQUE,
    Cliques,
    Form,
    Node,
    cut_bound,
)

_TRIANGLES, _LARGER = 400, 200  # rows of each kind that a round adds at most
_ENTRIES = 2**20  # of an array in separation
_VIOLATED = 0.05  # by which a row is violated at least
_NEARLY_TIGHT = 0.3  # triangles that rows of five vertices extend
_LARGER_FROM = 3  # the first round at the root with rows of five and seven; a child has them at once
_ITERATIONS, _MEMORY = 50, 8  # of L-BFGS-B in a round
_SHRINK, _SHARE = 0.7, 0.1  # of alpha n^2 / 2 from a round to the next; its least value, relative to the gap
_ROUNDS_ROOT, _ROUNDS = 17, 3  # before branching
AHEAD = 8  # rounds at the present gain that should close the gap: else the node branches
_DECIDED = 0.6  # |X_0i| of the vertex to branch on: one side closes soon, and the other one gains
DROPPED, SLACK = 1e-6, 0.02  # a multiplier and a slack beyond which a row is dropped
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


class Dual:
    """Multipliers of the program ``max <C, X>``, ``diag X = e``, ``T x + constants >= 0``, ``X`` psd.

    Parameters
    ----------
    C : array of shape (m, m)
    T : csr_array of shape (rows, m * m)
        On the entries ``x`` of ``X`` above the diagonal and on it, row by row.
    constants : array of shape (rows,)
    seen : function of a bound, of `y` of shape (m,), and of `z` of shape (rows,)
        Called at each evaluation.
    """

    def __init__(
        self, C: Array, T: Any, constants: Array, seen: Callable[[float, Array, Array], None]
    ) -> None:
        self._C, self.T, self._Tt = C, T, sp.csr_array(T.T)
        self.constants, self._seen = constants, seen
        self.X = np.eye(len(C))

    def matrix(self, y: Array, z: Array) -> Array:
        """Return ``M``."""
        m = len(y)
        half = (self._Tt @ z).reshape(m, m) / 2
        M: Array = self._C + half
        M += half.T
        M.ravel()[:: m + 1] -= y
        return M

    def evaluate(self, p: Array, alpha: float) -> tuple[float, Array]:
        """Return `F` and its gradient at `y` and `z`, one after the other."""
        m = len(self._C)
        y, z = p[:m], p[m:]
        values, V, count, _, _ = lapack.dsyevr(self.matrix(y, z), range="V", vl=0.0, vu=1e300)
        values, V = values[:count], V[:, :count]
        base = float(y.sum() + self.constants @ z)
        top = float(values[-1]) if count else 0.0
        self._seen(base + m * top, y + top, z)
        self.X = (V * (values / alpha)) @ V.T
        F = base + float(values @ values) / (2 * alpha) + alpha * m * m / 2
        return F, np.concatenate([1 - self.X.diagonal(), self.constants + self.T @ self.X.ravel()])

    def improved(
        self, y: Array, z: Array, alpha: float, steps: int = _ITERATIONS, free: Mask | None = None
    ) -> tuple[Array, Array]:
        """Return multipliers after a round of L-BFGS-B. Those of `free` rows, equations, have any sign."""
        from scipy.optimize import Bounds, minimize  # slow to import: small graphs do without it

        m = len(y)
        least = np.concatenate([np.full(m, -np.inf), np.zeros(len(z))])
        if free is not None:
            least[m:][free] = -np.inf
        found = minimize(
            self.evaluate,
            np.concatenate([y, z]),
            args=(alpha,),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(least, np.full(len(least), np.inf)),
            options={"maxiter": steps, "maxcor": _MEMORY, "ftol": 0.0, "gtol": 1e-9},
        )
        return found.x[:m], found.x[m:]

    def slacks(self) -> tuple[Array, Array]:
        """Return ``X`` scaled to a diagonal of ones, and ``T x + constants`` there."""
        root = np.sqrt(np.maximum(self.X.diagonal(), 1e-12))
        X = self.X / root / root[:, None]
        return X, self.T @ X.ravel() + self.constants


class Work:
    """The rounds at one node. Those of partitions have other rows.

    Parameters
    ----------
    form : Form
    node : Node
    target, ahead : float
        As for :func:`bounded`.
    """

    steps = _ITERATIONS

    def __init__(self, form: Form, node: Node, target: float, ahead: float) -> None:
        self.form, self.path, self.target, self.ahead = form, node.path, target, ahead
        self.group, self.sign = node.groups(form.n)
        self.m = int(self.group.max()) + 1
        self.first = np.unique(self.group, return_index=True)[1]
        P = np.zeros((form.n, self.m))
        P[np.arange(form.n), self.group] = self.sign
        self.C = P.T @ form.C @ P
        self.constant = form.half
        self.rows: Any = node.rows
        self.best, self.kept = np.inf, node.rows
        self.dual = self._dual(self.rows)

    def run(self) -> Outcome:
        """Take rounds; return what they found."""
        if self._few():
            return self._outcome(None)
        is_root = not self.path
        if is_root:
            top = float(lapack.dsyevr(self.C, compute_v=0)[0][-1])
            self.rows = self.rows._replace(y=self._spread(np.full(self.m, top)))
        with suppress(_Closed, CutShort):
            self._rounds(is_root)
        X, _ = self.dual.slacks()
        g, h = self._pair(X)
        return self._outcome((int(self.first[g]), int(self.first[h])), X)

    def _few(self) -> bool:
        """Whether all cuts of the node are compared."""
        return self.m <= ENUMERATED

    def _pair(self, X: Array) -> tuple[int, int]:
        """Return the groups to branch on."""
        return 0, 1 + int(np.argmin(np.abs(np.abs(X[0, 1:]) - _DECIDED)))

    def _rounds(self, is_root: bool) -> None:
        y: Array = np.bincount(self.group, self.rows.y, self.m).astype(float)
        z = self.rows.z
        self.dual.evaluate(np.concatenate([y, z]), 1.0)
        gap = self._gap(self.best)
        level, gains = gap, [self.best]
        for number in range(1, 1000):
            checkpoint(self.m)
            y, z = self.dual.improved(y, z, 2 * level / self.m**2, self.steps, self._free())
            self.rows = self.rows._replace(y=self._spread(y), z=z)
            gap = max(self._gap(self.best), 0.0)
            gains.append(self.best)
            if number >= (_ROUNDS_ROOT if is_root else _ROUNDS):
                gain = (gains[-4] - gains[-1]) / 3 if len(gains) > 3 else np.inf
                if gain * self.ahead < gap:
                    return
            z = self._separate(with_larger=number >= _LARGER_FROM or not is_root)
            level = max(_SHRINK * level, min(level, _SHARE * gap))

    def _gap(self, bound: float) -> float:
        return bound + self.constant - self.target

    def _free(self) -> Mask | None:
        """Return which rows are equations: of cliques none."""
        return None

    def _dual(self, rows: Any) -> Dual:
        """Return the program of the groups. Pairs inside of a group stay, on the diagonal."""
        row, i, j, b = rows.terms()
        g, h = self.group[i], self.group[j]
        place = np.minimum(g, h) * self.m + np.maximum(g, h)
        values = (b * self.sign[i] * self.sign[j]).astype(float)
        T = sp.csr_array((values, (row, place)), (len(rows.z), self.m**2))
        return Dual(self.C, T, rows.constants, self._seen)

    def _spread(self, y: Array) -> Array:
        """Return multipliers of vertices: those of a group stand at its first vertex."""
        whole = np.zeros(self.form.n)
        whole[self.first] = y
        return whole

    def _seen(self, bound: float, y: Array, z: Array) -> None:
        """Keep the best bound, and end the work below the target."""
        if bound < self.best:
            self.best, self.kept = bound, self.rows._replace(y=self._spread(y), z=z.copy())
            if self._gap(bound) < 0 and self._proven():
                raise _Closed

    def _proven(self) -> bool:
        """Whether rounded multipliers prove the target."""
        return cut_bound(self.form, Node(self.path, self._rounded())) < self.target

    def _rounded(self) -> Any:
        """Return the best multipliers with 24 digits, and no eigenvalue of ``M`` above zero.

        Folds of a child keep ``M`` negative, so its bound is no larger.
        """
        rows = self._used(self.kept, self.kept.z.astype(np.float32).astype(float))
        y = np.asarray(np.bincount(self.group, rows.y, self.m), dtype=float)
        M = self._dual(rows).matrix(y, rows.z)
        top = float(lapack.dsyevr(M, compute_v=0, range="I", il=self.m, iu=self.m)[0][0]) + _BELOW
        return rows._replace(y=self._spread(y + top))

    def _used(self, rows: Any, z: Array) -> Any:
        """Return rows with these multipliers, without those of multiplier zero."""
        used = np.flatnonzero(z > 0)
        return Cliques(rows.support[used], rows.sign[used], z[used], rows.y)

    def _separate(self, with_larger: bool) -> Array:
        """Drop rows without use, and add violated ones; return the multipliers."""
        X, slack = self.dual.slacks()
        useful = np.flatnonzero((self.rows.z > DROPPED) | (slack < SLACK))
        support, sign = self.rows.support[useful], self.rows.sign[useful]
        excess, triples, (a, _, c) = triangles(X, _TRIANGLES, -_NEARLY_TIGHT if with_larger else _VIOLATED)
        three = (_padded(triples), _padded(np.array([np.ones_like(a), -a, a * c]).astype(np.intp)))
        found = [tuple(part[excess > _VIOLATED] for part in three)]
        if with_larger:
            five = _extended(X, *(part[:_LARGER] for part in three))
            found += [five, _extended(X, *five)]
        new = [np.concatenate(part) for part in zip(*found, strict=True)]
        vertices = np.where(new[1] != 0, self.first[new[0]], 0)
        signs = new[1] * self.sign[vertices]
        order = np.argsort(np.where(signs != 0, vertices, np.iinfo(np.intp).max), axis=1)
        new_support, new_sign = (np.take_along_axis(part, order, axis=1) for part in (vertices, signs))
        new_sign = new_sign * new_sign[:, :1]  # rows have ascending vertices, and the first sign is 1
        fresh = unknown(np.hstack([support, sign]), np.hstack([new_support, new_sign]))
        self.rows = Cliques(
            np.concatenate([support, new_support[fresh]]),
            np.concatenate([sign, new_sign[fresh]]),
            np.concatenate([self.rows.z[useful], np.zeros(len(fresh))]),
            self.rows.y,
        )
        self.dual = self._dual(self.rows)
        return self.rows.z

    def _outcome(self, pair: tuple[int, int] | None, X: Array | None = None) -> Outcome:
        node = Node(self.path, self.kept if pair is None else self._rounded())
        return Outcome(node, cut_bound(self.form, node), pair, self._side(X))

    def _side(self, X: Array | None) -> IntArray:
        """Return the best cut of a node with few groups, otherwise the best of some roundings."""
        if X is None:
            return enumerated_side(self.form, self.group, self.sign)
        values, V = np.linalg.eigh(X)
        F = V * np.sqrt(np.maximum(values, 0.0))
        normals = np.random.default_rng(0).normal(size=(len(X), _HYPERPLANES))
        sides = np.where(F @ normals >= 0, 1, -1).T
        found = [improved(self.form, side[self.group] * self.sign) for side in sides]
        return max(found, key=self.form.cut)


# --- Separation ---------------------------------------------------------------------------------------


def triangles(X: Array, most: int, violated: float, both: bool = True) -> tuple[Array, IntArray, Array]:
    """Return the triangles ``a X_ij + b X_im + c X_jm <= 1`` that are violated most, those first.

    Of the two rows with a sign ``c``, that with the larger left side has ``|X_ij - c X_im|`` there.

    Parameters
    ----------
    X : array of shape (n, n)
        With a diagonal of ones.
    most : int
    violated : float
        By which a row is violated at least.
    both : bool
        Whether ``abc = -1`` is all that signs have to meet; else two of them are 1.

    Returns
    -------
    excess : array of shape (rows,)
    triples : int array of shape (3, rows)
        The vertices ``i < j < m``.
    signs : array of shape (3, rows)
    """
    X = X.astype(np.float32)  # in half of the time; it only chooses rows
    excess, triples = np.zeros(0), np.zeros((4, 0), dtype=np.intp)
    for i in range(len(X) - 2):
        row, rest = X[i, i + 1 :], X[i + 1 :, i + 1 :]
        for c in (-1, 1):
            over = np.subtract.outer(row, c * row)
            if both or c > 0:
                np.abs(over, out=over)
            over += c * rest
            at = np.flatnonzero(over > 1 + violated)
            j, m = np.divmod(at, len(row))
            at, j, m = at[j < m], j[j < m] + i + 1, m[j < m] + i + 1
            excess = np.append(excess, over.ravel()[at] - 1)
            triples = np.append(triples, np.array([np.full(len(at), i), j, m, np.full(len(at), c)]), axis=1)
            if len(excess) > 2 * most:
                kept = np.argpartition(-excess, most)[:most]
                excess, triples = excess[kept], triples[:, kept]
                violated = float(excess.min())
    order = np.argsort(-excess)[:most]
    i, j, m, c = triples[:, order]
    a = np.where((X[i, j] < c * X[i, m]) & (both | (c > 0)), -1.0, 1.0)
    return excess[order], triples[:3, order], np.array([a, -c * a, c])


def unknown(known: IntArray, rows: IntArray) -> list[int]:
    """Return the numbers of the rows, each once, that are none of the known ones."""
    first = {row.tobytes(): k for k, row in reversed(list(enumerate(rows)))}
    for row in known:
        first.pop(row.tobytes(), None)
    return sorted(first.values())


def _padded(rows: IntArray) -> IntArray:
    """Return arrays of three rows as columns, with zeros beside them."""
    return np.pad(rows.T, ((0, 0), (0, LARGEST_CLIQUE - 3)))


def _extended(X: Array, support: IntArray, sign: IntArray) -> tuple[IntArray, IntArray]:
    """Return violated rows, each one of the given rows and the best pair of other vertices.

    With ``u = Xb``, a pair of signs ``s, t`` at ``p, q`` adds ``2 + 2 s u_p + 2 t (u_q + s X_pq)`` to
    ``b'Xb``. For given ``s``, ``p`` and ``q`` the best ``t`` makes the last term negative.
    """
    count, n = len(support), len(X)
    if not count:
        return support, sign
    rows, vertices = np.arange(count), np.arange(n)
    row, place = np.nonzero(sign)
    taken = support[row, place]
    b = np.zeros((count, n))
    b[row, taken] = sign[row, place]
    u = b @ X
    size = np.einsum("ki,ki->k", u, b)
    u, own = u.astype(np.float32), X.astype(np.float32)
    best = np.empty((2, count, n), dtype=np.float32)  # for both s and all p
    for part in np.array_split(rows, 1 + count * n * n // _ENTRIES):
        near, barred = u[part], b[part] != 0
        for k, s in enumerate((1, -1)):
            fall = near[:, None, :] + s * own
            np.abs(fall, out=fall)
            fall[:, vertices, vertices] = 0.0
            np.copyto(fall, 0.0, where=barred[:, None])
            best[k, part] = np.where(barred, np.inf, s * near - fall.max(axis=2))
    which, p = np.divmod(best.transpose(1, 0, 2).reshape(count, -1).argmin(axis=1), n)
    s = 1 - 2 * which
    value = (size + 1 + 2 * best[which, rows, p]) / 2  # of the row
    kept = np.flatnonzero(value < -_VIOLATED)
    kept = kept[np.argsort(value[kept])]
    p, s, rest, mine = p[kept], s[kept], u[kept], np.arange(len(kept))
    rest = rest + s[:, None] * own[p]
    free = b[kept] == 0
    free[mine, p] = False
    q = np.where(free, np.abs(rest), -1.0).argmax(axis=1)
    support, sign = support[kept].copy(), sign[kept].copy()
    for v, at_v in ((p, s), (q, np.where(rest[mine, q] > 0, -1, 1))):
        end = (sign != 0).sum(axis=1)
        support[mine, end], sign[mine, end] = v, at_v
    return support, sign


# --- Cuts ---------------------------------------------------------------------------------------------


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
