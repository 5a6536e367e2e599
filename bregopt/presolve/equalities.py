"""Equalities that others imply, or nearly so.

**Nearly dependent rows.** Newton's system squares the angle between rows: a row at distance 1e-6 from the
span of the others is lost in its round-off. Orthonormal rows from Householder's QR lose only the digits that
the angle itself costs. With ``A = R'Q'`` and multipliers ``w`` of ``Q'``, those of ``A`` are
``y = inv(R) w``.

**More equalities than unknowns.** Then there is at most one new one for each unknown. On a range of dimension
``r`` the unknowns are the ``r (r + 1) / 2`` entries of ``M``, however many rows there are. With the ``m``
equalities as unit vectors, the rows of ``F``, and their right-hand sides ``b``:

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

import numpy as np
import scipy.sparse as sp
from scipy.linalg import qr, solve_triangular

from bregopt.arrays import TINY, Array, IntArray, Mask, scattered
from bregopt.certify import Known, PrimalDualPoint, is_farkas
from bregopt.clock import checkpoint, remaining
from bregopt.linalg import root_of
from bregopt.presolve import Reduced, Tolerances, with_multipliers
from bregopt.presolve.svec import Svec, svec_rows, with_equalities
from bregopt.program import Answer, Program, Start
from bregopt.records import cached_property, dataclass, replace
from bregopt.rigorous import contradicts

# Distance of a unit row from the span of earlier ones up to which Newton's system loses digits.
_NEARLY_DEPENDENT = 1e-3
# That distance up to which a row counts as dependent: round-off of the data alone.
DEPENDENT = 1e-11
# Inconsistency of a dependent row, relative to the largest bound, that is tolerated.
_INCONSISTENCY = 1e-9
# Multiplications of the QR factorization above which the rows are left as they are: a second.
LARGEST_QR = 5e8
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


# --- Nearly dependent rows, and more rows than unknowns -------------------------------------------------


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
        return with_multipliers(answer, self._multipliers)

    def _multipliers(self, w: Array) -> Array:
        y, e = np.zeros(self.whole.m), len(self.equal)
        y[self.equal] = solve_triangular(self.R, w[:e])
        y[self.others] = w[e:]
        return y


# Pays on: 150 rows at angles of 1e-6.
def independent_rows(program: Program, tolerances: Tolerances) -> Independent | None:
    """Replace equalities by orthonormal combinations where some are nearly dependent."""
    mask = program.bounds.equal & (program.row_sizes > 0)
    if are_independent(program, mask) or _too_many(program, mask):
        return None
    equal = mask.nonzero()[0]
    sizes = program.row_sizes[equal]
    vectors = svec_rows(program, equal) / sizes[:, None]
    Q, R = np.linalg.qr(vectors.T)
    distance, b = np.abs(R.diagonal()), program.bounds.lo[equal] / sizes
    if len(distance) == len(equal) and distance.min() > _NEARLY_DEPENDENT:
        return None
    apart = distance > DEPENDENT
    if len(distance) < len(equal) or not apart.all():
        own, others, T = combinations(vectors)
        left = b[others] - b[own] @ T
        k = int(np.argmax(np.abs(left)))
        if abs(left[k]) > _INCONSISTENCY * np.abs(b).max():
            y = np.append(-T[:, k], 1.0) * np.sign(left[k])
            y[np.abs(y) <= DEPENDENT * np.abs(y).max()] = 0.0
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


def are_independent(program: Program, mask: Mask) -> bool:
    """Whether the marked rows are clearly independent, so that no two are parallel; kept with the rows.

    Programs of the same coefficients with other bounds or costs have the same independent rows.
    """
    known = program.A.plans.get(are_independent)
    if known is not None and known[0] is program.B and known[1] == mask.tobytes():
        return True
    if _too_many(program, mask):
        return False
    rows = mask.nonzero()[0]
    independent = not np.diff(program.B.indptr)[rows].any() and program.A.slice(rows).disjoint
    if not independent:
        independent = clearly_independent(svec_rows(program, rows) / program.row_sizes[rows, None])
    if independent:
        program.A.plans[are_independent] = program.B, mask.tobytes()
    return independent


def _too_many(program: Program, mask: Mask) -> bool:
    """Whether the marked rows are none or one, or too many for the time that is left."""
    count, length = int(np.add.reduce(mask)), Svec.of(program).width
    return count < 2 or count**2 * length > LARGEST_QR or remaining() < _QR_SECONDS * count * length


def combinations(vectors: Array) -> tuple[IntArray, IntArray, Array]:
    """Return independent rows, the other rows, and ``T`` with ``others = T' independent``."""
    _, R, order = qr(vectors.T, mode="economic", pivoting=True)
    rank = int((np.abs(R.diagonal()) > DEPENDENT).sum())
    T = solve_triangular(R[:rank, :rank], R[:rank, rank:]) if rank else R[:0, rank:]
    return order[:rank], order[rank:], T


def clearly_independent(vectors: Array) -> bool:
    """Whether the least eigenvalue of the Gram matrix of unit rows shows that none is nearly dependent.

    Its root is at most the distance of a row from the span of the others. Gershgorin's discs bound it, else a
    Cholesky factorization. For max-cut of order 160 this takes a tenth of the time of QR.
    """
    large = len(vectors) * vectors.size > _FEW_PRODUCTS
    if large and np.count_nonzero(vectors) < _SPARSE_FRACTION * vectors.size:
        sparse = sp.csr_array(vectors)
        gram = (sparse @ sparse.T).toarray()
    else:
        gram = vectors @ vectors.T
    least = 2 * _NEARLY_DEPENDENT**2
    if (2 * gram.diagonal() - np.abs(gram).sum(axis=1)).min() > least:
        return True
    gram.flat[:: len(gram) + 1] -= least
    return root_of(gram) is not None


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

    @property
    def margin(self) -> float:
        return 0.1  # multipliers and violations are summed over many more rows

    @property
    def summary(self) -> str:
        return f"{len(self.equal)} equalities in {len(self.V)} unknowns condensed to {len(self.s)}"

    def contradiction(self) -> Array | None:
        return self.farkas

    def shrink(self, start: Start) -> Start:
        return replace(start, y=np.concatenate([self._combined(start.y[self.equal]), start.y[self.others]]))

    def restore(self, answer: Answer) -> Answer:
        return with_multipliers(answer, self._multipliers)

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
        return self.whole.of_rows(self.equal)

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
        return activity / self._sizes**2

    def _combined(self, y: Array) -> Array:
        """Return the multipliers of the new equalities with the effect of those of the given ones."""
        program = self._equalities
        stacks = [program.A.adjoint(y, b)[None] for b in range(len(program.blocks))]
        return Svec.of(program).vectors(stacks, (y @ program.B)[None])[0] @ self.V


# Pays on: 400 equalities that contradict each other, von Neumann.
def redundant_equalities(program: Program, tolerances: Tolerances) -> Condensed | None:
    """Replace equalities by orthonormal ones where they are more than the unknowns.

    It pays on the LogDet and von Neumann nearness of a matrix of order 8 with 400 equalities: a third of the
    time, and nine tenths where these hold to nine digits or contradict each other. Without it these end
    without a proof.
    """
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
