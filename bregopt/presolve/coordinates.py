"""Coordinates of ``X0``: ``X = V M V'`` on its range, and where it is well-conditioned.

**Range.** LogDet and von Neumann keep the range of a low-rank ``X0`` (Kulis et al. 2009, §4), so the whole
problem moves there, with ``M`` of the order of the rank. No ``n x n`` array is built. LogDet is invariant
under congruence: its ``V`` is scaled such that ``X0`` becomes the identity. The others need an orthonormal
``V``.

**Whitening.** With ``X0 = L L'`` and ``X = L M L'`` a LogDet divergence is ``tr M - logdet M - n``, and the
conditioning costs no precision. Rows lose their sparsity, so a well-conditioned ``X0`` is not whitened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from bregopt.arrays import Array, Mask, scattered
from bregopt.certify import Known, PrimalDualPoint
from bregopt.certify.point import DIVERGENT
from bregopt.divergences import Divergence
from bregopt.errors import InfeasibleRowError
from bregopt.presolve import Reduced, Tolerances
from bregopt.program import Answer, LowRank, Matrix, Nearness, Penalty, Program, Start, StopReason
from bregopt.program.program import divergence_of
from bregopt.program.rows import Rows
from bregopt.records import dataclass, replace

# Singular values of a factor that count as zero; the option `rank_tol` takes another value.
RANK_TOL = 1e-10
# Size of a sum, relative to that of its terms, below which a row is zero on the range. A row that is only
# round-off there would mislead any method.
_CANCELLATION = 1e-13
_TRIED = 10  # rows of one family and reason, until one is proven impossible
# Entries of the dense matrices of all rows above which no answer is sought in other coordinates: the search
# takes a second.
_LARGEST_FORMED = 1_000_000
# Up to this condition number of X0, Newton's method keeps the coordinates of the rows, which are sparse.
_WHITENED_CONDITION = 1e6


@dataclass(frozen=True, eq=False)
class RangeSpace:
    """``X = V M V'`` and ``X0 = V M0 V'``.

    Parameters
    ----------
    V : array of shape (n, r)
    M0 : array of shape (r, r), positive definite
    """

    V: Array
    M0: Array

    def lift(self, M: Array) -> LowRank:
        """Return ``V M V'`` by its factor; directions in which `M` vanishes are dropped."""
        eigenvalues, Q = np.linalg.eigh(M)
        positive = eigenvalues > 0
        if not positive.any():
            return LowRank(np.zeros((len(self.V), 1)))
        return LowRank(self.V @ (Q[:, positive] * np.sqrt(eigenvalues[positive])))


@dataclass(frozen=True, eq=False)
class OnRangeSpaces(Reduced):
    """A program with every low-rank block on its range space, without the rows that vanish there.

    Parameters
    ----------
    spaces : mapping from block to RangeSpace
    rank_tol : float
    impossible : int, optional
        A row that vanishes on the range up to round-off, and that may not be zero.
    """

    spaces: Mapping[int, RangeSpace]
    rank_tol: float
    impossible: int | None = None

    @property
    def summary(self) -> str:
        return "; ".join(self._summary(b, space) for b, space in self.spaces.items())

    def _summary(self, b: int, space: RangeSpace) -> str:
        block = self.whole.blocks[b]
        assert block.nearness is not None
        assert isinstance(block.nearness.X0, LowRank)
        columns = block.nearness.X0.factor.shape[1]
        rank = f"rank {space.V.shape[1]} of {columns} columns (rank_tol {self.rank_tol:g})"
        return f"{block.name} keeps the range of X0: {rank}"

    def contradiction(self) -> Array | None:
        if self.impossible is None:
            return None
        sign = 1.0 if self.whole.bounds.lo[self.impossible] > 0 else -1.0
        return scattered(np.array([self.impossible]), np.array([sign]), self.whole.m)

    def shrink(self, start: Start) -> Start:
        return replace(start, X=(), S=None) if self.spaces else start

    def restore(self, answer: Answer) -> Answer:
        if answer.stop is StopReason.INFEASIBLE:
            return answer
        X = tuple(self.spaces[b].lift(M) if b in self.spaces else M for b, M in enumerate(answer.X))
        return replace(answer, X=X)


def range_spaces(program: Program, tolerances: Tolerances) -> OnRangeSpaces | None:
    """Restrict blocks with a low-rank ``X0`` to its range space; drop rows that vanish there.

    Raises
    ------
    InfeasibleRowError
        If no ``X`` meets a row, whatever the other rows are.
    """
    restricted, spaces = on_range_spaces(program, tolerances.rank_tol)
    reduced, impossible = _without_vanishing_rows(restricted, program, spaces)
    if reduced is program:
        return None
    return OnRangeSpaces(program, reduced, spaces, tolerances.rank_tol, impossible)


def on_range_spaces(program: Program, rank_tol: float) -> tuple[Program, dict[int, RangeSpace]]:
    """Return the program with every low-rank block on its range space, and those spaces by block."""
    spaces: dict[int, RangeSpace] = {}
    for b, block in enumerate(program.blocks):
        if block.nearness is not None and isinstance(block.nearness.X0, LowRank):
            spaces[b] = range_space(block.nearness.X0, block.nearness.kind, rank_tol, block.cap is not None)
            program = program.restrict(b, spaces[b].V, spaces[b].M0)
    return program, spaces


def range_space(
    X0: LowRank, kind: type[Divergence], rank_tol: float = RANK_TOL, orthonormal: bool = False
) -> RangeSpace:
    """Return the range space of `X0`, with ``V`` scaled for the divergence.

    Parameters
    ----------
    X0 : LowRank
    kind : subclass of Divergence
        One that keeps the range.
    rank_tol : float
        Singular values of the factor below this fraction of the largest count as zero.
    orthonormal : bool
        Whether the columns of ``V`` must be orthonormal, so that ``X`` and ``M`` have the same eigenvalues.

    Raises
    ------
    ValueError
        If ``X0`` is zero.
    """
    Q, R = scipy.linalg.qr(X0.factor, mode="economic")
    left, s, _ = scipy.linalg.svd(R)
    if s[0] == 0:
        raise ValueError("X0 is zero: a LowRank start needs a factor that is not zero")
    r = int(np.sum(s > rank_tol * s[0]))
    V, s = Q @ left[:, :r], s[:r]
    if kind.congruence_invariant and not orthonormal:
        return RangeSpace(V * s, np.eye(r))
    return RangeSpace(V, np.diag(s**2))


def with_complement(X0: Matrix, eps: float, rank_tol: float = RANK_TOL) -> Array:
    """Return the dense ``X0 + eps N``, with ``N`` the projection on the null space (Kulis et al. 2009, §6.5).

    Eigenvalues of magnitude at most `rank_tol` times the largest become `eps`.
    """
    eigenvalues, Q = np.linalg.eigh(np.asarray(X0))
    zero = np.abs(eigenvalues) <= rank_tol * np.abs(eigenvalues).max()
    lifted: Array = (Q * np.where(zero, eps, eigenvalues)) @ Q.T
    return (lifted + lifted.T) / 2


def _without_vanishing_rows(
    program: Program, original: Program, spaces: Mapping[int, RangeSpace]
) -> tuple[Program, int | None]:
    """Return the program without rows that vanish, and one that may not; refuse rows that no ``X`` meets.

    A row that vanishes on the range of ``X0`` is only round-off there, which would mislead any method. The
    penalty of a soft one is a constant.

    Parameters
    ----------
    program : Program
        Over the range space.
    original : Program
        As declared.
    spaces : mapping from block to RangeSpace
        Of the restricted blocks; they distinguish a row that is zero there from a small one.

    Raises
    ------
    InfeasibleRowError
        If no ``X`` meets a row, proven without a tolerance; the message names the row and the reason.
    """
    alone, empty = _alone(program), program.alone & (original.A.norms() == 0)
    if empty.any():
        lo, hi, kind = program.bounds.lo, program.bounds.hi, program.bounds.kind
        excluded = (lo > 0) | (hi < 0) | ((kind == Penalty.LOG) & (lo == 0))
        for k in np.flatnonzero(empty & excluded & ~program.bounds.finite_at_zero).tolist():
            raise InfeasibleRowError(_why_impossible(program, k, "is always 0: its coefficients are zero"), k)
    vanishing, noise = _vanishing_rows(program, original, spaces, alone)
    vanishing |= empty
    impossible = _refuse_impossible(program, original, vanishing, noise, alone)
    if not vanishing.any():
        return program, None
    bounds = program.bounds
    free = replace(
        bounds,
        lo=np.where(vanishing, -np.inf, bounds.lo),
        hi=np.where(vanishing, np.inf, bounds.hi),
        kind=np.where(vanishing, Penalty.HARD, bounds.kind),
        gamma=np.where(vanishing, np.inf, bounds.gamma),
    )
    paid = float(bounds.penalty(np.zeros(program.m))[vanishing].sum())
    return replace(program, bounds=free, offset=program.offset + paid), impossible


def _vanishing_rows(
    program: Program, original: Program, spaces: Mapping[int, RangeSpace], alone: Mask
) -> tuple[Mask, Array]:
    """Return the mask of rows that are zero for every ``X``, and a bound on their round-off."""
    vanishing, noise = np.zeros(program.m, dtype=bool), np.zeros(program.m)
    for term, before in zip(program.A.terms, original.A.terms, strict=True):
        space = spaces.get(term.block)
        zero = _vanishes(before.rows, space, term.norms)
        if zero.any():
            vanishing[term.place] = zero & alone[term.place]
            noise[term.place] = np.where(zero, _CANCELLATION * before.norms * _extent(space), 0.0)
    return vanishing, noise


def _alone(program: Program) -> Mask:
    """Return the mask of rows that depend on one matrix only."""
    read = np.zeros(program.m)
    for term in program.A.terms:
        read[term.place] += 1
    mask: Mask = read == 1
    return mask & program.alone if program.k else mask


def _refuse_impossible(
    program: Program, original: Program, vanishing: Mask, noise: Array, alone: Mask
) -> int | None:
    """Raise for a row that no psd ``X`` of the given range meets: hard, or of infinite penalty at zero.

    Return a row that may not be zero but vanishes, though only up to round-off.
    """
    bounds, unproven = program.bounds, None
    checked = alone & ~bounds.finite_at_zero
    for term, before in zip(program.A.terms, original.A.terms, strict=True):
        nearness, at = program.blocks[term.block].nearness, term.place
        start = original.blocks[term.block].nearness
        X0 = None if start is None else start.X0
        F = X0.factor if isinstance(X0, LowRank) else None
        interior = nearness is not None and not nearness.kind.finite_on_boundary
        if not checked[at].any():
            continue
        zero, lo, hi = vanishing[at], bounds.lo[at], bounds.hi[at]
        log = (bounds.kind[at] == Penalty.LOG) & (lo == 0)  # it asks for more than its bound
        excludes_zero = (lo > 0) | (hi < 0) | log | (interior & ((lo == 0) | (hi == 0)))
        sign = np.where(zero, 0.0, term.rows.definite_signs(excludes_zero & checked[at]))
        suspected = checked[at] & (zero | ((sign > 0) & (hi <= 0)) | ((sign < 0) & (lo >= 0)))
        if not suspected.any():
            continue
        from bregopt.rigorous.fractions.multipliers import keeps_sign  # only suspected rows wait

        missed = (lo > noise[at]) | (hi < -noise[at]) | log
        kept = f"0 for every X with the range of X0, which {_class_name(nearness)} keeps"
        reasons = {
            "has no effect on matrices in the range of X0, where it is always 0": zero & missed,
            "is never negative for psd X": (sign > 0) & (hi < 0),
            "is never positive for psd X": (sign < 0) & ((lo > 0) | log),
            f"is above {kept}": interior & (sign > 0) & (hi == 0),
            f"is below {kept}": interior & (sign < 0) & (lo == 0),
        }
        for reason, refused in reasons.items():
            for own in np.flatnonzero(refused & checked[at])[:_TRIED].tolist():
                k, above = int(term.at[own]), bool((lo[own] > 0) | log[own] | (sign[own] < 0))
                if keeps_sign(before.rows.slice(np.array([own])), -1.0 if above else 1.0, F):
                    raise InfeasibleRowError(_why_impossible(program, k, reason), k)
                if zero[own]:
                    unproven = k
    return unproven


def _class_name(nearness: Nearness | None) -> str:
    return "" if nearness is None else nearness.kind.__name__


def _why_impossible(program: Program, k: int, reason: str) -> str:
    lo, hi = program.bounds.lo[k], program.bounds.hi[k]
    asked = f"== {hi:g}" if lo == hi else f">= {lo:g}" if np.isinf(hi) else f"<= {hi:g}"
    if program.bounds.kind[k] == Penalty.LOG:
        return (
            f"{program.row_name(k)} needs an argument above 0, which asks for a value > {lo:g}, but it "
            f"{reason}: the logarithm is minus infinity for every X"
        )
    return (
        f"{program.row_name(k)} asks for a value {asked}, but it {reason}: no X can meet it. "
        "Make it soft with bo.soft(...), change the bound, or change X0"
    )


def _extent(space: RangeSpace | None) -> float:
    """Return the size of ``V V'``."""
    return 1.0 if space is None else float(np.linalg.norm(space.V, 2) ** 2)


def _vanishes(rows: Rows, space: RangeSpace | None, size: Array) -> Mask:
    """Return the mask of rows, of the given norms on the range, that are zero there up to round-off."""
    if space is None:
        return size == 0
    if rows.single:
        t, length = rows.coordinates(), np.linalg.norm(space.V, axis=1)
        return np.minimum(length[t.i], length[t.j]) <= _CANCELLATION * length.max()
    if rows.rank == 1:
        forms = rows.rank_one_terms()
        assert forms is not None
        projected, terms = forms.U @ space.V, abs(forms.U) @ np.abs(space.V)
        return np.linalg.norm(projected, axis=1) <= _CANCELLATION * np.linalg.norm(terms, axis=1)
    return size <= _CANCELLATION * rows.norms() * _extent(space)


# --- Whitening and scaling ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Whitened(Reduced):
    """A program in ``M`` for ``X = L M L'``, in some of its blocks.

    Parameters
    ----------
    L : mapping from block to array of shape (n, n)
        Lower triangular, with ``X0 = L L'``.
    """

    L: Mapping[int, Array]

    @property
    def summary(self) -> str:
        return "coordinates in which X0 is the identity"

    def shrink(self, start: Start) -> Start:
        return replace(start, X=())

    def restore(self, answer: Answer) -> Answer:
        return replace(answer, X=self._restored(answer.X))

    def missed(self, X: Sequence[Array], u: Array, activity: Array) -> float:
        # A residual that is relatively small in these coordinates may be large in the given ones.
        known = Known(activity=activity, cone_residual=0.0)
        y = np.zeros(self.whole.m)
        return PrimalDualPoint(self.whole, self._restored(X), u, y, **known).primal_residual

    def _restored(self, X: Sequence[Array]) -> tuple[Array, ...]:
        lifted = (self.L[b] @ M @ self.L[b].T if b in self.L else M for b, M in enumerate(X))
        return tuple((M + M.T) / 2 for M in lifted)


class InCoordinatesOfAnswer(Whitened):
    """A linear program in coordinates in which a large approximate answer is of the size of the rows."""

    rescales: ClassVar[bool] = True

    @property
    def summary(self) -> str:
        return "coordinates in which X is of the size of the rows"


def in_coordinates_of_answer(
    program: Program, X: Sequence[Matrix], size: float
) -> InCoordinatesOfAnswer | None:
    """Return a program in coordinates in which eigenvalues of `X` above `size` are one.

    It is None where all of them are of the order of `size`, or the rows, which become dense, are too large.

    An optimum may be as large as one over a small eigenvalue of the data. Products of ``X`` with the data
    lose that eigenvalue in the given coordinates, and in these they do not.
    """
    if program.m * sum(n**2 for n in program.A.orders) > _LARGEST_FORMED:
        return None
    turned, factors = program, {}
    for b, (block, X_b) in enumerate(zip(program.blocks, X, strict=True)):
        if block.cap is not None or block.nearness is not None:
            continue
        eigenvalues, Q = np.linalg.eigh(np.asarray(X_b))
        if eigenvalues[-1] > DIVERGENT * size:
            factors[b] = Q * np.sqrt(np.maximum(eigenvalues / size, 1.0))
            turned = turned.restrict(b, factors[b])
    return InCoordinatesOfAnswer(program, turned, factors) if factors else None


# Pays on: LogDet from a matrix of condition 1e11.
def whitening(program: Program, tolerances: Tolerances) -> Whitened | None:
    """Change the coordinates of LogDet blocks so that ``X0 = I``, where it is ill conditioned."""
    white, factors = program, {}
    for b, block in enumerate(program.blocks):
        nearness = block.nearness
        if nearness is None or not nearness.kind.barrier or isinstance(nearness.X0, LowRank):
            continue
        if block.cap is not None:  # a congruence changes the eigenvalues
            continue
        divergence: Any = divergence_of(nearness)
        if _condition(divergence.L) > _WHITENED_CONDITION:
            factors[b] = divergence.L
            white = white.restrict(b, divergence.L, np.eye(block.n))
    return Whitened(program, white, factors) if factors else None


def _condition(L: Array) -> float:
    """Return a lower bound on the condition number of ``L L'``."""
    diagonal = L.diagonal()
    return float((diagonal.max() / diagonal.min()) ** 2)
