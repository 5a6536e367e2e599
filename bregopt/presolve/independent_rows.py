"""Nearly dependent equalities are replaced by orthonormal combinations of them.

Newton's system squares the angle between rows: a row at distance 1e-6 from the span of the others is lost in
its round-off. Orthonormal rows from Householder's QR lose only the digits that the angle itself costs. With
``A = R'Q'`` and multipliers ``w`` of ``Q'``, those of ``A`` are ``y = inv(R) w``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from bregopt.arrays import Array, IntArray
from bregopt.clock import remaining
from bregopt.presolve.constants import (
    DEPENDENT,
    INCONSISTENCY,
    LARGEST_QR,
    NEARLY_DEPENDENT,
    QR_SECONDS,
    SPARSE_FRACTION,
)
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.presolve.svec import Svec, svec_rows, with_equalities
from bregopt.program import Answer, Program, Start

__all__ = ["Independent", "IndependentRows"]


@dataclass(frozen=True, eq=False)
class Independent(Reduced):
    """A program with orthonormal equalities first, the other rows after them.

    Parameters
    ----------
    equal, others : int array
        Rows of `whole`: the equalities that are combined, and the rows that are not equalities.
    R : array of shape (e, e)
        Upper triangular, with ``A_equal = R' Q'``.
    """

    equal: IntArray
    others: IntArray
    R: Array

    @property
    def summary(self) -> str:
        return f"{len(self.equal)} nearly dependent equalities made orthonormal"

    def shrink(self, start: Start) -> Start:
        return replace(start, y=np.concatenate([self.R @ start.y[self.equal], start.y[self.others]]))

    def restore(self, answer: Answer) -> Answer:
        on_faces = None if answer.y_on_faces is None else self._multipliers(answer.y_on_faces)
        return replace(answer, y=self._multipliers(answer.y), y_on_faces=on_faces)

    def _multipliers(self, w: Array) -> Array:
        y, e = np.zeros(self.whole.m), len(self.equal)
        y[self.equal] = solve_triangular(self.R, w[:e])
        y[self.others] = w[e:]
        return y


class IndependentRows:
    """Replace equalities by orthonormal combinations where some are nearly dependent."""

    name: ClassVar[str] = "independent rows"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Independent | None:
        equal = np.flatnonzero(program.bounds.equal & (program.row_sizes > 0))
        length = Svec.of(program).width
        if len(equal) < 2 or len(equal) ** 2 * length > LARGEST_QR:
            return None
        if remaining() < QR_SECONDS * len(equal) * length or _disjoint(program, equal):
            return None
        sizes = program.row_sizes[equal]
        vectors = svec_rows(program, equal) / sizes[:, None]
        if _clearly_independent(vectors):
            return None
        Q, R = np.linalg.qr(vectors.T)
        distance = np.abs(R.diagonal())
        if len(distance) < len(equal) or distance.min() > NEARLY_DEPENDENT:
            return None
        apart = distance > DEPENDENT
        if not (apart & (distance <= NEARLY_DEPENDENT)).any():
            return None
        b = program.bounds.lo[equal] / sizes
        if not apart.all():
            Q, R = np.linalg.qr(vectors[apart].T)
        right = solve_triangular(R, b[apart], trans=1)
        left = b[~apart] - vectors[~apart] @ (Q @ right)
        if np.abs(left).max(initial=0.0) > INCONSISTENCY * np.abs(b).max():
            return None
        equal, sizes = equal[apart], sizes[apart]
        others = np.flatnonzero(~program.bounds.equal)
        return Independent(program, with_equalities(program, Q.T, right, others), equal, others, R * sizes)


def _disjoint(program: Program, rows: IntArray) -> bool:
    """Whether rows without variables share no entry, as those on a diagonal: they are orthogonal."""
    A = program.A.slice(rows)
    if program.B[rows].nnz or sum(term.rows.count() for term in A.terms) > len(rows):
        return False
    for b, n in enumerate(A.orders):
        entries = [term.rows.coordinates() for term in A.terms_of(b)]
        places = [np.minimum(t.i, t.j) * n + np.maximum(t.i, t.j) for t in entries]
        if places and len(np.unique(np.concatenate(places))) < sum(map(len, places)):
            return False
    return True


def _clearly_independent(vectors: Array) -> bool:
    """Whether the least eigenvalue of the Gram matrix of unit rows shows that none is nearly dependent.

    Its root is at most the distance of a row from the span of the others. Rows with disjoint entries, such as
    those on a diagonal, have the identity as Gram matrix. For max-cut of order 160 this takes a tenth of the
    time of QR.
    """
    sparse = sp.csr_array(vectors)
    few = sparse.nnz < SPARSE_FRACTION * vectors.size
    gram = (sparse @ sparse.T).toarray() if few else vectors @ vectors.T
    discs = 2 * gram.diagonal() - np.abs(gram).sum(axis=1)  # Gershgorin's lower bounds
    least = discs.min() if discs.min() > 0 else np.linalg.eigvalsh(gram)[0]
    return bool(least > 2 * NEARLY_DEPENDENT**2)
