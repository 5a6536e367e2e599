"""Equalities that are more than the unknowns are replaced by orthonormal ones, at most one for each unknown.

On a range of dimension ``r`` the unknowns are the ``r (r + 1) / 2`` entries of ``M``, however many rows there
are. With the ``m`` equalities as unit vectors, the rows of ``F``, and their right-hand sides ``b``:

- ``F = Q R`` is factorized in chunks of rows (Demmel, Grigori, Hoemmen, Langou 2012, Communication-optimal
  parallel and sequential QR), and ``R = W diag(s) V'``. No array has more than a chunk's rows.
- ``V'x = inv(s) W'Q'b`` are the new equalities. Their solutions are those of ``F x = b`` if there is one, and
  otherwise its least-squares solutions.
- ``b - F x`` is then orthogonal to all columns of ``F``: a combination of the equalities that has no effect
  on ``X`` and asks for ``||b - F x||^2``, a Farkas vector.
- Multipliers ``w`` of the new equalities give those of least norm of the given ones, ``y = F V inv(s)^2 w``,
  by the corrected seminormal equations (Bjorck 1987).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.cache import cached_property
from bregopt.certify import Known, PrimalDualPoint, is_farkas
from bregopt.clock import checkpoint
from bregopt.presolve.constants import CONDENSED_RANK, MOST_UNKNOWNS, QR_CHUNK
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.presolve.svec import Svec, svec_rows, with_equalities
from bregopt.program import Answer, Program, Start

__all__ = ["Condensed", "RedundantEqualities"]


@dataclass(frozen=True, eq=False)
class Condensed(Reduced):
    """A program with orthonormal equalities first, the other rows after them.

    Parameters
    ----------
    equal, others : int array
        Rows of `whole`: the equalities that are replaced, and the other rows.
    V : array of shape (unknowns, e)
        The new equalities as vectors.
    s : array of shape (e,)
        The singular values of the given ones, as unit vectors.
    farkas : array of shape (m,), optional
        The Farkas vector of equalities that contradict each other.
    """

    equal: IntArray
    others: IntArray
    V: Array
    s: Array
    farkas: Array | None
    margin: ClassVar[float] = 0.1  # multipliers and violations that are summed over many more rows

    @property
    def summary(self) -> str:
        return f"{len(self.equal)} equalities in {len(self.V)} unknowns condensed to {len(self.s)}"

    def contradiction(self) -> Array | None:
        return self.farkas

    def shrink(self, start: Start) -> Start:
        return replace(start, y=np.concatenate([self._combined(start.y[self.equal]), start.y[self.others]]))

    def restore(self, answer: Answer) -> Answer:
        on_faces = None if answer.y_on_faces is None else self._multipliers(answer.y_on_faces)
        return replace(answer, y=self._multipliers(answer.y), y_on_faces=on_faces)

    def missed(self, X: Sequence[Array], u: Array, activity: Array) -> float:
        # The new equalities hold for least-squares solutions of the given ones too.
        zero = np.zeros(self.whole.m)
        return PrimalDualPoint(self.whole, X, u, zero, **Known(cone_residual=0.0)).primal_residual

    def contradiction_of(self, x: Array, tol: float) -> Array | None:
        """Return a Farkas vector that a least-squares solution shows, None where it shows none.

        It misses the equalities by more than `tol`, or it is their only solution and misses a row or cone.
        """
        given, whole = self._equalities, self.whole
        (*stacks,), columns = Svec.of(given).points(x[None])
        X, u = tuple(S[0] for S in stacks), columns[0]
        point = PrimalDualPoint(given, X, u, np.zeros(given.m), **Known(cone_residual=0.0))
        candidates = []
        if point.primal_residual > tol:
            left = (given.bounds.lo - point.activity) / self._sizes**2
            y = np.zeros(whole.m)
            # The second projection leaves round-off relative to the residual, not to the bounds.
            y[self.equal] = left - self._of_least_norm(self._combined(left))
            candidates.append(y)
        elif len(self.s) == len(self.V):
            candidates += [self._multipliers(w) for w in self._refutations(X, u, tol)]
        return next((y for y in candidates if is_farkas(whole, y)), None)

    def _refutations(self, X: Sequence[Array], u: Array, tol: float) -> Iterator[Array]:
        """Yield multipliers of `program` that show that its only solution misses a row or cone."""
        program, e = self.program, len(self.s)
        activity, w = program.activity(X, u), np.zeros(program.m)
        missed = program.bounds.missed(activity)
        k = int(np.argmax(missed / np.maximum(program.row_sizes, TINY)))
        if missed[k] > tol * max(abs(activity[k]), program.bounds.sizes[k]):
            w[k] = 1.0 if activity[k] < program.bounds.lo[k] else -1.0
            w[:e] -= w[k] * (svec_rows(program, np.array([k]))[0] @ self.V)
            yield w
        for b, S in enumerate(X):
            eigenvalues, Q = np.linalg.eigh(S)
            if eigenvalues[0] < -tol * abs(eigenvalues[-1]):
                cones = [np.zeros((1, n, n)) for n in program.A.orders]
                cones[b] = -np.outer(Q[:, 0], Q[:, 0])[None]
                vector = Svec.of(program).vectors(cones, np.zeros((1, program.k)))[0]
                yield np.concatenate([vector @ self.V, np.zeros(program.m - e)])

    @cached_property
    def _equalities(self) -> Program:
        A, bounds = self.whole.A.slice(self.equal), self.whole.bounds.slice(self.equal)
        return replace(self.whole, A=A, B=self.whole.B[self.equal], bounds=bounds, labels=())

    @property
    def _sizes(self) -> Array:
        return self.whole.row_sizes[self.equal]

    def _multipliers(self, w: Array) -> Array:
        own, y = w[: len(self.s)], np.zeros(self.whole.m)
        y[self.equal] = self._of_least_norm(own)
        y[self.equal] += self._of_least_norm(own - self._combined(y[self.equal]))  # corrects the round-off
        y[self.others] = w[len(self.s) :]
        return y

    def _of_least_norm(self, w: Array) -> Array:
        """Return the least multipliers of the given equalities with the effect of those of the new ones."""
        stacks, columns = Svec.of(self.whole).points((self.V @ (w / self.s**2))[None])
        activity = self._equalities.activity(tuple(S[0] for S in stacks), columns[0])
        least: Array = activity / self._sizes**2
        return least

    def _combined(self, y: Array) -> Array:
        """Return the multipliers of the new equalities with the effect of those of the given ones."""
        program = self._equalities
        stacks = [program.A.adjoint(y, b)[None] for b in range(len(program.blocks))]
        combined: Array = Svec.of(program).vectors(stacks, (y @ program.B)[None])[0] @ self.V
        return combined


class RedundantEqualities:
    """Replace equalities by orthonormal ones where they are more than the unknowns."""

    name: ClassVar[str] = "redundant equalities"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Condensed | None:
        width = Svec.of(program).width
        if program.m <= width or width > MOST_UNKNOWNS:
            return None
        mask = program.bounds.equal & (program.row_sizes > 0)
        equal, others = np.flatnonzero(mask), np.flatnonzero(~mask)
        if len(equal) <= width:
            return None
        R = _triangular_factor(program, equal)
        W, s, Vt = np.linalg.svd(R[:width, :width])
        s = s[s > CONDENSED_RANK * s[0]]
        V, right = Vt[: len(s)].T, (W.T @ R[:width, width])[: len(s)] / s
        reduced = with_equalities(program, V.T, right, others)
        found = Condensed(program, reduced, equal, others, V, s, None)
        contradiction = found.contradiction_of(V @ right, tolerances.tol)
        return found if contradiction is None else replace(found, farkas=contradiction)


def _triangular_factor(program: Program, equal: IntArray) -> Array:
    """Return ``R`` of the QR factorization of ``[F b]``."""
    width = Svec.of(program).width + 1
    R = np.zeros((0, width))
    for rows in np.array_split(equal, -(-len(equal) * width // QR_CHUNK)):
        checkpoint()
        chunk = np.column_stack([svec_rows(program, rows), program.bounds.lo[rows]])
        R = np.linalg.qr(np.vstack([R, chunk / program.row_sizes[rows, None]])).R
    return R
