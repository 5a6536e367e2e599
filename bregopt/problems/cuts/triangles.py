"""Rows that all partitions satisfy, generated where violated, and the relaxation with them, by splitting.

Of a partition in ``k`` parts, ``X_ij`` is 1 if ``i`` and ``j`` share a part and ``-1/(k-1)`` if not. So
``X_ij >= -1/(k-1)``, and ``X_ij + X_im - X_jm <= 1``: if ``i`` shares its part with ``j`` and with ``m``,
they share it, too. In two parts also ``X_ij + X_im + X_jm >= -1``, as two of three vertices share a part.
There are too many rows to write them all down. A relaxation with some of them is

    min <C, X>   with   X psd,   Y in the polyhedron of the rows,   X = Y

The alternating direction method of multipliers projects on either set in turn: on psd matrices by an
eigendecomposition, on the rows by gradient steps on their multipliers. So 10,000 rows cost little more than
none, and the next rows begin where these ended. As the diagonal of ``X`` is given, so is its trace, and the
multipliers of any step prove a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray
from bregopt.certify import PrimalDualPoint, certify
from bregopt.clock import CutShort, checkpoint
from bregopt.divergences import psd_part
from bregopt.modeling.bounds import cut_rows
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.cuts.proof import TOL, Proof, relaxed
from bregopt.program import Answer, Program, Start, StopReason
from bregopt.records import cached_property, dataclass
from bregopt.routes import base
from bregopt.routes.progress import Progress, reason
from bregopt.routes.solution import Solution
from bregopt.threads import threads_for

__all__ = ["LARGEST_ORDER", "Splitting", "tightened", "violated_rows"]

LARGEST_ORDER = 500  # of graphs for which rows are generated
_ROWS = 5  # of a round, relative to the vertices
_VIOLATED = 1e-3  # rows that are violated by less are not added
_PATIENCE, _GAIN = 40, 0.02  # the least gain of so many certificates, relative to the distance of the cut
_STEPS = 5_000
_CHECKED = 10  # steps between certificates
_OVERSTEP = 1.6  # length of the steps of the multipliers of X = Y; the method converges below 1.618
_UNEQUAL, _CHANGE = 4.0, 1.3  # ratio of the residuals from which the penalty changes, and by how much
_SCALINGS, _NEAR = 30, 1e-6  # of a matrix for its certificate, and the miss of e'Xe that needs no further one
_LOSS = 1e-7  # of the bound by a finite multiplier of e'Xe = 0, relative to ||C||
_PROJECTION_STEPS = 15  # of a projection; the next one continues from its multipliers
_POWERS = 20  # of the matrix whose norm bounds the curvature
_MARGIN = 1.1  # of that norm, which powers approach from below


def tightened(
    problem: Problem,
    X: PSD,
    k: float,
    proof: Proof,
    best: Callable[[], IntArray],
    options: Mapping[str, Any],
    improve: Callable[[Any], None] = lambda value: None,
) -> Solution:
    """Return the answer to a relaxation with generated rows, and add the bounds of all rounds to the proof.

    Parameters
    ----------
    problem : Problem
    X : PSD
        Its variable.
    k : int or infinity
        The number of parts; infinite where any number is allowed. Then ``X_ij`` is 0 for other parts.
    proof : Proof
    best : function
        Returns the best partition so far.
    options : dict
        Of the solves.
    improve : function of a matrix
        Called with the answer of the first round, to find a better cut.
    """
    searched = False
    distances: list[float] = []

    def triangles(value: Any) -> list[Constraint]:
        nonlocal searched
        if not searched:
            improve(value)
            searched = True
        return violated_rows(X, np.asarray(value), k)

    def stalled() -> bool:
        distances.append(proof.distance(best()))
        return len(distances) > _PATIENCE and distances[-1] > (1 - _GAIN) * distances[-1 - _PATIENCE]

    tighter = Problem(problem.objective, [*problem.constraints, cut_rows(triangles)])
    return relaxed(tighter, proof, best, {"solver": Splitting, "tol": TOL, **options}, stalled)


def violated_rows(X: PSD, value: Array, k: float) -> list[Constraint]:
    """Return constraints with the rows that a matrix violates most."""
    most, least = _ROWS * X.n, -1.0 / (k - 1)
    found: list[Constraint] = []
    if k > 2:
        i, j = np.triu_indices(X.n, 1)
        i, j = _largest(least - value[i, j], most, i, j)
        if len(i):
            found.append(X[i, j] >= least)
    i, j, m, signs = _triangles(value, most, both=k == 2)
    if len(i):
        a, b, c = signs
        found.append(a * X[i, j] + b * X[i, m] + c * X[j, m] <= 1.0)
    return found


def _triangles(value: Array, most: int, both: bool) -> tuple[IntArray, IntArray, IntArray, Array]:
    """Return the triples ``i < j < m`` whose rows are violated most, and the signs in the rows, (3, rows).

    Of the two rows with a sign ``c`` of ``X_jm``, that with the larger left side has ``|X_ij - c X_im|``
    there. Without `both`, only rows with two positive signs are meant.
    """
    value = value.astype(np.float32)  # in half of the time; it only chooses rows
    excess, triples, least = np.zeros(0), np.zeros((4, 0), dtype=np.intp), _VIOLATED
    for i in range(len(value) - 2):
        row, rest = value[i, i + 1 :], value[i + 1 :, i + 1 :]
        for c in (-1, 1):
            over = np.subtract.outer(row, c * row)
            if both or c > 0:
                np.abs(over, out=over)
            over += c * rest
            at = np.flatnonzero(over > 1 + least)
            j, m = np.divmod(at, len(row))
            at, j, m = at[j < m], j[j < m] + i + 1, m[j < m] + i + 1
            excess = np.append(excess, over.ravel()[at] - 1)
            triples = np.append(triples, np.array([np.full(len(at), i), j, m, np.full(len(at), c)]), axis=1)
            if len(excess) > 2 * most:
                kept = np.argpartition(-excess, most)[:most]
                excess, triples = excess[kept], triples[:, kept]
                least = float(excess.min())
    i, j, m, c = triples[:, np.argsort(-excess)[:most]]
    a = np.where((value[i, j] < c * value[i, m]) & (both | (c > 0)), -1.0, 1.0)
    return i, j, m, np.array([a, -c * a, c])


def _largest(excess: Array, most: int, *index: IntArray) -> tuple[IntArray, ...]:
    """Return the indices of the largest violations."""
    at = np.flatnonzero(excess > _VIOLATED)
    if len(at) > most:
        at = at[np.argpartition(-excess[at], most)[:most]]
    return tuple(part[at] for part in index)


class Splitting:
    """The alternating direction method of multipliers for relaxed partitions.

    It takes the programs whose rows :func:`_read_rows` reads.
    """

    name: ClassVar[str] = "splitting"
    summary: ClassVar[str] = "relaxed partitions with generated rows"
    citation: ClassVar[str] = (
        "Wen, Goldfarb, Yin (2010), Alternating direction augmented Lagrangian methods for semidefinite "
        "programming, Math. Program. Comput. 2; de Meijer, Sotirov, Wiegele, Zhao (2023), Partitioning "
        "through projections: strong SDP bounds for large graph partition problems, Comput. Oper. Res. 151"
    )
    capabilities: ClassVar[base.Capabilities] = base.Capabilities(
        objectives=frozenset({"linear"}), blocks=1, variables=False
    )
    Settings: ClassVar[type[base.Settings]] = base.Settings

    def refusal(self, program: Program, settings: Any) -> str | None:
        """Return None; relaxed partitions have such rows only."""
        return None

    def choice(self, program: Program, settings: Any) -> str:
        """Return no reason: there is one method."""
        return ""

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        """Take steps until the certificate meets the tolerance."""
        steps = _Steps(program, start)
        stop = StopReason.MAX_ITER
        with threads_for(program.blocks[0].n):
            try:
                for k in range(1, 1 + (settings.max_iter or _STEPS)):
                    checkpoint(program.blocks[0].n)
                    steps.step()
                    if k % _CHECKED == 0:
                        point = PrimalDualPoint(program, (steps.near(),), np.zeros(0), steps.multipliers())
                        certificate = certify(point)
                        progress.record(k, certificate)
                        if certificate.meets(settings.tol):
                            stop = StopReason.CONVERGED
                            break
                        steps.balance()
            except CutShort as cut:
                stop = reason(cut)
            return Answer((steps.near(),), np.zeros(0), steps.multipliers(), stop, k, S=(steps.S,))


class _Steps:
    """The iterates: ``X``, ``Y``, multipliers `z` of the rows, and ``S`` of ``X = Y``."""

    def __init__(self, program: Program, start: Start | None) -> None:
        self._C, self._m = program.blocks[0].C, program.m
        self._polyhedron, self._places = _read_rows(program)
        n = len(self._C)
        self._size = float(np.linalg.norm(self._C))
        self._penalty = self._size / n if self._size else 1.0
        self._centered = self._polyhedron.total == (0.0, 0.0)  # then X e = 0
        self.X, self.S = np.diag(self._polyhedron.diagonal), np.zeros((n, n))
        self._y, self._slack = np.zeros(self._m), self._C
        if start is not None and start.X and start.S is not None and start.S[0] is not None:
            self.X, self.S, self._y = np.asarray(start.X[0]), start.S[0], start.y
        self._z = self._y[self._places.sparse] / self._penalty
        self._primal = self._dual = 0.0

    def step(self) -> None:
        """Project on the rows, then on psd matrices; update the multipliers of ``X = Y``."""
        W = self.X - (self._C - self.S) / self._penalty
        Y, self._z, shift = self._polyhedron.project(W, self._z)
        missing = self._polyhedron.diagonal - W.diagonal()
        self._y = self._penalty * self._places.multipliers(missing, self._z, shift, self._m)
        self._slack = self._C - self._penalty * (Y - W)
        V, before = Y - self.S / self._penalty, self.X
        self.X = psd_part(_centered(V) if self._centered else V)
        self.S = self.S - _OVERSTEP * self._penalty * (Y - self.X)
        self._primal = float(np.linalg.norm(Y - self.X)) / len(Y)
        self._dual = self._penalty * float(np.linalg.norm(self.X - before)) / max(self._size, TINY)

    def balance(self) -> None:
        """Change the penalty where one residual is much larger than the other."""
        factor = 1.0
        if self._primal > _UNEQUAL * self._dual:
            factor = _CHANGE
        elif self._dual > _UNEQUAL * self._primal:
            factor = 1 / _CHANGE
        self._penalty *= factor
        self._z = self._z / factor

    def near(self) -> Array:
        """Return a psd matrix near ``X`` with the given diagonal, and with ``e'Xe`` between its bounds.

        Congruences keep it psd. In turn one scales the part along ``e``, where the steps converge slowly, and
        the other scales the diagonal.
        """
        X, diagonal, (low, high) = self.X, self._polyhedron.diagonal, self._polyhedron.total
        n = len(X)
        for _ in range(_SCALINGS):
            own = X.diagonal()
            scale = np.sqrt(np.divide(diagonal, own, where=own > 0, out=np.ones(n)))
            X = scale[:, None] * X * scale
            sums = X.sum(axis=0)
            total = float(sums.sum())
            wanted = min(max(total, low), high)
            if abs(total - wanted) <= _NEAR * max(wanted, 1.0) or min(total, wanted) <= 0:
                break
            share = (math.sqrt(wanted / total) - 1) / n
            half = share * sums + share**2 * total / 2
            X = X + half + half[:, None]
        return X

    def multipliers(self) -> Array:
        """Return the multipliers of all rows.

        Where ``e'Xe = 0``, a large one makes the matrix ``C - A*(y)`` as definite as it is on the complement
        of ``e``, up to a small loss (by Schur complements).
        """
        if not self._centered:
            return self._y
        e = np.ones(len(self._slack)) / np.sqrt(len(self._slack))
        along = self._slack @ e
        across = along - (along @ e) * e
        definite = len(e) * float(across @ across) / max(_LOSS * self._size, TINY)
        y = self._y.copy()
        y[self._places.total] -= max(definite - along @ e, 0.0) / len(e) / self._places.weight
        return y


def _centered(V: Array) -> Array:
    """Return ``P V P`` for the projection ``P`` on the complement of ``e``."""
    mean = V.mean(axis=0)
    centered: Array = V - mean - mean[:, None] + mean.mean()
    return centered


@dataclass(frozen=True, eq=False)
class _Polyhedron:
    """Symmetric ``Y`` with a given diagonal, ``lo <= T y <= hi`` for entries ``y``, and a bounded ``e'Ye``.

    Parameters
    ----------
    diagonal : array of shape (n,)
    i, j : int array of shape (entries,)
        The entries above the diagonal in the rows of `T`.
    T : csr_array of shape (rows, entries)
    lo, hi : array of shape (rows,)
    total : pair of float
        The bounds of ``e'Ye``.
    """

    diagonal: Array
    i: IntArray
    j: IntArray
    T: Any
    lo: Array
    hi: Array
    total: tuple[float, float]

    def project(self, W: Array, z: Array) -> tuple[Array, Array, float]:
        """Return ``Y`` near ``W`` of shape (n, n), the multipliers of `T`, and that of ``e'Ye``.

        Accelerated gradient steps on the multipliers, from `z`, approach the projection (Nesterov 1983, with
        the restarts of O'Donoghue and Candes 2015).
        """
        n, w = len(W), W[self.i, self.j]
        others = float(W.sum() - np.trace(W))
        best = point = z
        t = 1.0
        for _ in range(_PROJECTION_STEPS if len(z) else 0):
            half = self._Tt @ point / 2
            gradient = self.T @ (w + half + self._shift(others + 2 * half.sum(), n))
            moved = point - gradient / self._curvature
            following = np.maximum(moved + self.lo / self._curvature, 0.0)
            following += np.minimum(moved + self.hi / self._curvature, 0.0)
            if (point - following) @ (following - best) > 0:
                t = 1.0
            grown = (1 + np.sqrt(1 + 4 * t * t)) / 2
            point = following + (t - 1) / grown * (following - best)
            best, t = following, grown
        half = self._Tt @ best / 2
        shift = self._shift(others + 2 * half.sum(), n)
        Y = W + shift
        Y[self.i, self.j] += half
        Y[self.j, self.i] += half
        Y[np.diag_indices(n)] = self.diagonal
        return Y, best, shift

    def _shift(self, others: float, n: int) -> float:
        """Return what all entries off the diagonal need for their sum to be between its bounds."""
        low, high = (end - self.diagonal.sum() for end in self.total)
        return float(np.clip(others, low, high) - others) / max(n * (n - 1), 1)

    @cached_property
    def _Tt(self) -> Any:
        return sp.csr_array(self.T.T)

    @cached_property
    def _curvature(self) -> float:
        """An upper bound on the norm of ``T T' / 2``, estimated by powers."""
        m = self.T.shape[0]
        v = 1 + np.random.default_rng(0).normal(size=m)  # ones alone may be orthogonal to the largest
        norm = 1.0
        for _ in range(_POWERS):
            v = self.T @ (self._Tt @ (v / np.linalg.norm(v))) / 2
            norm = float(np.linalg.norm(v))
        return _MARGIN * norm


@dataclass(frozen=True, eq=False)
class _Places:
    """Where the rows of a polyhedron are in a program.

    Parameters
    ----------
    diagonal : int array of shape (n,)
        The row of each diagonal entry.
    weights : array of shape (n,)
        The weight of the entry in its row.
    sparse : int array of shape (rows of `T`,)
    total : int array of shape (0,) or (1,)
        The row on ``e'Xe``.
    weight : float
        Of ``e'Xe`` in that row.
    """

    diagonal: IntArray
    weights: Array
    sparse: IntArray
    total: IntArray
    weight: float

    def multipliers(self, missing: Array, z: Array, shift: float, m: int) -> Array:
        """Return multipliers ``y`` of all rows, shape (m,).

        Parameters
        ----------
        missing : array of shape (n,)
            The diagonal of ``A*(y)``.
        z : array of shape (rows of `T`,)
        shift : float
            The multiplier of ``e'Xe``.
        m : int
        """
        y = np.zeros(m)
        y[self.sparse] = z
        y[self.diagonal] = (missing - shift) / self.weights
        y[self.total] = shift / self.weight
        return y


def _read_rows(program: Program) -> tuple[_Polyhedron, _Places]:
    """Return the rows of a program as a polyhedron, and their places.

    The program has one matrix, an equality row for each diagonal entry, rows of entries off the diagonal, and
    at most one row on ``e'Xe``, which alone has entries both on and off the diagonal.
    """
    n, bounds = program.blocks[0].n, program.bounds
    terms = [(term.at, term.rows.coordinates()) for term in program.A.terms]
    rows = np.concatenate([at[t.row] for at, t in terms])
    i = np.concatenate([np.minimum(t.i, t.j) for _, t in terms])
    j = np.concatenate([np.maximum(t.i, t.j) for _, t in terms])
    values = np.concatenate([t.value for _, t in terms])
    total = np.intersect1d(rows[i == j], rows[i != j])
    on, off = ((mask & ~np.isin(rows, total)).nonzero()[0] for mask in (i == j, i != j))
    on = on[np.argsort(i[on])]
    sparse, local = np.unique(rows[off], return_inverse=True)
    entries, column = np.unique(i[off] * n + j[off], return_inverse=True)
    weight = float(values[(rows == total[0]) & (i == j)][0]) if len(total) else 1.0
    ends = (
        [float(end[total[0]]) / weight for end in (bounds.lo, bounds.hi)] if len(total) else [-np.inf, np.inf]
    )
    polyhedron = _Polyhedron(
        diagonal=bounds.lo[rows[on]] / values[on],
        i=entries // n,
        j=entries % n,
        T=sp.csr_array((values[off], (local, column)), (len(sparse), len(entries))),
        lo=bounds.lo[sparse],
        hi=bounds.hi[sparse],
        total=(ends[0], ends[1]),
    )
    return polyhedron, _Places(rows[on], values[on], sparse, total, weight)
