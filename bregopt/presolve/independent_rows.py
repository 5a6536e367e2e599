"""Equalities that depend on each other, or nearly so, are replaced by orthonormal combinations of them.

Newton's system squares the angle between rows: a row at distance 1e-6 from the span of the others is lost in
its round-off. Orthonormal rows from Householder's QR lose only the digits that the angle itself costs. With
``A = R'Q'`` and multipliers ``w`` of ``Q'``, those of ``A`` are ``y = inv(R) w``.

Where equalities are more than the unknowns, there is at most one new one for each unknown. On a range of
dimension ``r`` the unknowns are the ``r (r + 1) / 2`` entries of ``M``, however many rows there are. With the
``m`` equalities as unit vectors, the rows of ``F``, and their right-hand sides ``b``:

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
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import qr, solve_triangular

from bregopt.arrays import TINY, Array, IntArray, scattered
from bregopt.certify import Known, PrimalDualPoint, is_farkas
from bregopt.clock import checkpoint, remaining
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.presolve.svec import Svec, svec_rows, with_equalities
from bregopt.program import Answer, Program, Start
from bregopt.records import cached_property, dataclass, replace
from bregopt.rigorous import contradicts

__all__ = ["Condensed", "Independent", "IndependentColumns", "IndependentRows", "RedundantEqualities"]

# Distance of a unit row from the span of earlier ones up to which Newton's system loses digits.
_NEARLY_DEPENDENT = 1e-3
# That distance up to which a row counts as dependent: round-off of the data alone.
_DEPENDENT = 1e-11
# Inconsistency of a dependent row, relative to the largest bound, that is tolerated.
_INCONSISTENCY = 1e-9
# Multiplications of the QR factorization above which the rows are left as they are: a second.
_LARGEST_QR = 5e8
# Seconds that QR takes for each entry, at most: rows are left as they are if the time limit leaves less.
_QR_SECONDS = 1e-7
# Fraction of nonzeros in the rows below which their Gram matrix is a sparse product, and the multiplications
# of the dense one up to which that is formed all the same: a tenth of a millisecond.
_SPARSE_FRACTION, _FEW_PRODUCTS = 0.05, 1e6
# Number of unknowns above which the new rows, which are dense, cost more than they save.
_MOST_UNKNOWNS = 2_000
# Singular values of the equalities that are round-off of the data.
_CONDENSED_RANK = 1e-11
# Numbers in a chunk of rows that QR factorizes at a time: 8 MB.
_QR_CHUNK = 1_000_000


@dataclass(frozen=True, eq=False)
class Independent(Reduced):
    """A program with orthonormal equalities first, the other rows after them.

    Parameters
    ----------
    equal, others : int array
        Rows of `whole`: the equalities that are combined, and the rows that are not equalities.
    R : array of shape (e, e)
        Upper triangular, with ``A_equal = R' Q'``.
    farkas : array of shape (m,), optional
        The Farkas vector of equalities that contradict each other.
    """

    equal: IntArray
    others: IntArray
    R: Array
    farkas: Array | None = None

    @property
    def summary(self) -> str:
        return f"{len(self.equal)} nearly dependent equalities made orthonormal"

    def contradiction(self) -> Array | None:
        return self.farkas

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


# Pays on: 150 rows at angles of 1e-6.
class IndependentRows:
    """Replace equalities by orthonormal combinations where some are nearly dependent."""

    name: ClassVar[str] = "independent rows"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Independent | None:
        mask = program.bounds.equal & (program.row_sizes > 0)
        # Programs of the same coefficients with other bounds or costs have the same independent rows.
        known = program.A.plans.get(IndependentRows)
        if known is not None and known[0] is program.B and known[1] == mask.tobytes():
            return None
        equal, length = mask.nonzero()[0], Svec.of(program).width
        if len(equal) < 2 or len(equal) ** 2 * length > _LARGEST_QR:
            return None
        if remaining() < _QR_SECONDS * len(equal) * length:
            return None
        sizes, independent = program.row_sizes[equal], _disjoint(program, equal)
        if not independent:
            vectors = svec_rows(program, equal) / sizes[:, None]
            independent = _clearly_independent(vectors)
        if independent:
            program.A.plans[IndependentRows] = program.B, mask.tobytes()
            return None
        Q, R = np.linalg.qr(vectors.T)
        distance, b = np.abs(R.diagonal()), program.bounds.lo[equal] / sizes
        if len(distance) == len(equal) and distance.min() > _NEARLY_DEPENDENT:
            return None
        apart = distance > _DEPENDENT
        if len(distance) < len(equal) or not apart.all():
            own, others, T = _combinations(vectors)
            left = b[others] - b[own] @ T
            k = int(np.argmax(np.abs(left)))
            if abs(left[k]) > _INCONSISTENCY * np.abs(b).max():
                y = np.append(-T[:, k], 1.0) * np.sign(left[k])
                y[np.abs(y) <= _DEPENDENT * np.abs(y).max()] = 0.0
                rows = np.append(own, others[k])
                farkas = scattered(equal[rows], y / sizes[rows], program.m)
                refuted = contradicts(program, farkas)
                return Independent(program, program, equal, equal[:0], R, farkas) if refuted else None
        if len(distance) < len(equal) or not (apart & (distance <= _NEARLY_DEPENDENT)).any():
            return None
        if not apart.all():
            Q, R = np.linalg.qr(vectors[apart].T)
        right = solve_triangular(R, b[apart], trans=1)
        equal, sizes = equal[apart], sizes[apart]
        others = np.flatnonzero(~program.bounds.equal)
        return Independent(program, with_equalities(program, Q.T, right, others), equal, others, R * sizes)


@dataclass(frozen=True, eq=False)
class WithoutColumns(Reduced):
    """A program without free variables whose columns are combinations of others; these are zero.

    Parameters
    ----------
    kept, others : int array
        The variables of `program`, and those without.
    T : array of shape (kept, others)
        With ``B_others = B_kept T``.
    """

    kept: IntArray
    others: IntArray
    T: Array

    @property
    def summary(self) -> str:
        return f"{len(self.others)} free variables that others can replace are zero"

    def shrink(self, start: Start) -> Start:
        return replace(start, u=start.u[self.kept] + self.T @ start.u[self.others])

    def restore(self, answer: Answer) -> Answer:
        u = np.zeros(self.whole.k)
        u[self.kept] = answer.u
        return replace(answer, u=u)


# Pays on: one row with two free variables.
class IndependentColumns:
    """Leave out free variables whose columns are combinations of those of others.

    Newton's system is singular with them, and along the combination the variables grow beyond bounds.
    """

    name: ClassVar[str] = "independent columns"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> WithoutColumns | None:
        if not program.k or not program.m or program.A.plans.get(IndependentColumns) is program.B:
            return None
        free = program.free.nonzero()[0]
        if len(free) == 0 or len(free) ** 2 * program.m > _LARGEST_QR:
            return None
        vectors = program.columns_of(free).T
        sizes = np.linalg.norm(vectors, axis=1)
        sizes[sizes == 0] = 1.0
        vectors /= sizes[:, None]
        if _clearly_independent(vectors):
            program.A.plans[IndependentColumns] = program.B
            return None
        own, others, T = _combinations(vectors)
        if len(others) == 0:
            return None
        T *= sizes[others] / sizes[own, None]
        own, others = free[own], free[others]
        c = program.c
        if (
            np.abs(c[others] - c[own] @ T) > _DEPENDENT * (np.abs(c[others]) + np.abs(c[own]) @ np.abs(T))
        ).any():
            return None  # along the combination the objective has no bound
        kept = np.setdiff1d(np.arange(program.k), others)
        whole = np.zeros((len(kept), len(others)))
        whole[np.searchsorted(kept, own)] = T
        return WithoutColumns(program, program.of_variables(kept), kept, others, whole)


def _disjoint(program: Program, rows: IntArray) -> bool:
    """Whether rows without variables share no entry, as those on a diagonal: they are orthogonal."""
    A = program.A.slice(rows)
    if np.diff(program.B.indptr)[rows].any() or sum(term.rows.count() for term in A.terms) > len(rows):
        return False
    for b, n in enumerate(A.orders):
        entries = [term.rows.coordinates() for term in A.terms_of(b)]
        places = [np.minimum(t.i, t.j) * n + np.maximum(t.i, t.j) for t in entries]
        if places and len(np.unique(np.concatenate(places))) < sum(map(len, places)):
            return False
    return True


def _combinations(vectors: Array) -> tuple[IntArray, IntArray, Array]:
    """Return independent rows, the other rows, and ``T`` with ``others = T' independent``."""
    _, R, order = qr(vectors.T, mode="economic", pivoting=True)
    rank = int((np.abs(R.diagonal()) > _DEPENDENT).sum())
    T = solve_triangular(R[:rank, :rank], R[:rank, rank:]) if rank else R[:0, rank:]
    return order[:rank], order[rank:], T


def _clearly_independent(vectors: Array) -> bool:
    """Whether the least eigenvalue of the Gram matrix of unit rows shows that none is nearly dependent.

    Its root is at most the distance of a row from the span of the others. Rows with disjoint entries, such as
    those on a diagonal, have the identity as Gram matrix. For max-cut of order 160 this takes a tenth of the
    time of QR.
    """
    large = len(vectors) * vectors.size > _FEW_PRODUCTS
    if large and np.count_nonzero(vectors) < _SPARSE_FRACTION * vectors.size:
        sparse = sp.csr_array(vectors)
        gram = (sparse @ sparse.T).toarray()
    else:
        gram = vectors @ vectors.T
    discs = 2 * gram.diagonal() - np.abs(gram).sum(axis=1)  # Gershgorin's lower bounds
    least = discs.min() if discs.min() > 0 else np.linalg.eigvalsh(gram)[0]
    return bool(least > 2 * _NEARLY_DEPENDENT**2)


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


# Pays on: 400 equalities that contradict each other, von Neumann.
class RedundantEqualities:
    """Replace equalities by orthonormal ones where they are more than the unknowns.

    It pays on the LogDet and von Neumann nearness of a matrix of order 8 with 400 equalities: a third of the
    time, and nine tenths where these hold to nine digits or contradict each other. Without it these end
    without a proof.
    """

    name: ClassVar[str] = "redundant equalities"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Condensed | None:
        width = Svec.of(program).width
        if program.m <= width or width > _MOST_UNKNOWNS:
            return None
        mask = program.bounds.equal & (program.row_sizes > 0)
        equal, others = np.flatnonzero(mask), np.flatnonzero(~mask)
        if len(equal) <= width:
            return None
        R = _triangular_factor(program, equal)
        W, s, Vt = np.linalg.svd(R[:width, :width])
        s = s[s > _CONDENSED_RANK * s[0]]
        V, right = Vt[: len(s)].T, (W.T @ R[:width, width])[: len(s)] / s
        reduced = with_equalities(program, V.T, right, others)
        found = Condensed(program, reduced, equal, others, V, s, None)
        contradiction = found.contradiction_of(V @ right, tolerances.tol)
        return found if contradiction is None else replace(found, farkas=contradiction)


def _triangular_factor(program: Program, equal: IntArray) -> Array:
    """Return ``R`` of the QR factorization of ``[F b]``."""
    width = Svec.of(program).width + 1
    R = np.zeros((0, width))
    for rows in np.array_split(equal, -(-len(equal) * width // _QR_CHUNK)):
        checkpoint()
        chunk = np.column_stack([svec_rows(program, rows), program.bounds.lo[rows]])
        R = np.linalg.qr(np.vstack([R, chunk / program.row_sizes[rows, None]])).R
    return R
