"""The terms of blocks in a bound: slacks ``C - A*(y)``, their smallest eigenvalues, and bounds on traces.

The product of an eigenvalue and a trace bounds ``<C - A*(y), X>`` from below. So with a bound on the trace,
which the rows imply, any multipliers give a rigorous bound on the optimum. With a positive definite cost a
fraction of the multipliers does (:func:`definite_cost`). Over a cap on the
eigenvalues every linear function has a minimum. A divergence that is not built in states the minimum of its
own term; values at some matrices check it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, scattered
from bregopt.certify.eigenvalue_bound import LARGEST_FORMED, ROUND_OFF, smallest_eigenvalue
from bregopt.divergences import BUILT_IN, Divergence, psd_part
from bregopt.linalg import eigenvalues_of, root_of
from bregopt.program.bounds import Bounds, Face
from bregopt.program.linear_map import (
    LinearMap,
    SparsePlusLowRank,
    Term,
    sparse_plus_low_rank,
)
from bregopt.program.program import Nearness, Program, divergence_of
from bregopt.program.rows import SparseRows
from bregopt.program.rows.base import LowRank, Matrix
from bregopt.records import dataclass, kept, replace

# Relative round-off of a sum of bounds on the diagonal.
_SUM_NOISE = 1e-9
# Least entry of the relative diagonal, as a fraction of its mean.
_LEAST_SCALE = 1e-2
# Steps of the projected gradient method that checks a divergence's bound on the minimum.
_DESCENT_STEPS = 30


@dataclass(frozen=True, eq=False)
class TraceBound:
    """``tr X <= value``, or ``tr X = value`` where `exact`.

    Parameters
    ----------
    value : float
    exact : bool
    multipliers : array of shape (m,)
        Of the rows that imply it: ``t >= 0`` with ``t'hi = value`` and ``A*(t) - I`` psd, zero if `exact`.
    """

    value: float
    exact: bool
    multipliers: Array

    def least(self, smallest_eigenvalue: float) -> float:
        """Return the least ``<W, X>`` over these psd ``X``, from the smallest eigenvalue of ``W``."""
        return self.value * (smallest_eigenvalue if self.exact else min(0.0, smallest_eigenvalue))


def trace_bound(program: Program, block: int) -> TraceBound | None:
    """Return the best trace bound that hard rows of one block imply, or None.

    It follows from a row ``sum_i w_i X_ii <= b`` with all ``w_i > 0``, or from several of them with parts of
    the diagonal, as a partial trace has, for each entry that with the least ``b``, relative to its weights.
    """
    n, bounds = program.blocks[block].n, program.bounds
    row, i, w = _diagonal_rows(program, block)
    if not len(row):
        return None
    count = np.bincount(row)
    best: TraceBound | None = None
    for k in (count == n).nonzero()[0]:
        own = w[row == k]
        level = bool(bounds.lo[k] == bounds.hi[k] and own.max() - own.min() <= 1e-14 * own.max())
        t = scattered(k, 1 / own.min(), program.m)
        best = _tighter(best, TraceBound(float(bounds.hi[k] / own.min()), level, t))
    for used in (count[row] == 1, count[row] > 0):
        own = _covering(program, n, row[used], i[used], w[used])
        best = best if own is None else _tighter(best, own)
        if np.logical_and.reduce(used):
            break
    return best


def _covering(program: Program, n: int, row: IntArray, i: IntArray, w: Array) -> TraceBound | None:
    """Return the trace bound of the rows that are the tightest on an entry, None if an entry has none."""
    if len(i) < n:
        return None
    bounds, m = program.bounds, program.m
    if not np.logical_and.reduce(np.bincount(i, minlength=n)):
        return None
    taken = row
    if len(i) > n:
        share = bounds.hi[row] / np.bincount(row, w)[row]
        order = np.lexsort((row, share, i))  # the first of equal ones
        taken = row[order[np.unique(i[order], return_index=True)[1]]]
    is_used = np.zeros(m, dtype=bool)
    is_used[taken] = True
    used, own = is_used.nonzero()[0], is_used[row]
    least, largest = np.inf + np.zeros(m), np.zeros(m)
    np.minimum.at(least, row[own], w[own])
    np.maximum.at(largest, row[own], w[own])
    least, largest = least[used], largest[used]
    even = (largest - least <= 1e-14 * largest) & (bounds.lo[used] == bounds.hi[used])
    level = np.add.reduce(own) == n and bool(np.logical_and.reduce(even))
    value = float(np.add.reduce(bounds.hi[used] / least))
    return TraceBound(value, level, scattered(used, 1 / least, m))


def _diagonal_rows(program: Program, block: int) -> tuple[IntArray, IntArray, Array]:
    """Return the terms ``w X_ii`` of hard rows ``sum w_i X_ii <= b``: their rows, ``i`` and ``w > 0``."""
    row, i, w = program.A.on_diagonal(block)
    hi = program.bounds.hi
    candidate = program.in_one_matrix & np.isfinite(hi) & (hi >= 0)
    candidate[row[w <= 0]] = False
    kept = candidate[row]
    return row[kept], i[kept], w[kept]


def _tighter(a: TraceBound | None, b: TraceBound) -> TraceBound:
    if a is None or b.value < a.value or (b.value == a.value and b.exact):
        return b
    return a


@kept
def trace_bounds(program: Program) -> tuple[TraceBound | None, ...]:
    """Return :func:`trace_bound` of every block; computed once for a program and tangents of equal rows."""
    tangent = program.tangent
    if tangent is not None and program.A is tangent.program.A and program.B is tangent.program.B:
        return trace_bounds(tangent.program)
    return tuple([trace_bound(program, b) for b in range(len(program.blocks))])


def inherit_trace_bounds(program: Program, whole: Program, kept: IntArray) -> None:
    """Give a program of some rows the trace bounds of the whole; the other rows are zero on its matrices."""
    own = (
        None if bound is None else replace(bound, multipliers=bound.multipliers[kept])
        for bound in trace_bounds(whole)
    )
    trace_bounds.give(program, tuple(own))


def with_trace_row(program: Program, block: int, value: float) -> Program:
    """Return the program with a last row ``tr X <= value`` on one block."""
    n = program.blocks[block].n
    row = Term(block, np.array([program.m]), SparseRows.trace(n))
    return replace(
        program,
        A=LinearMap(program.m + 1, program.A.orders, (*program.A.terms, row)),
        B=sp.vstack([program.B, sp.csr_array((1, program.k))], format="csr"),
        bounds=program.bounds.followed_by(Bounds.of_hard_rows(np.array([-np.inf]), np.array([value]))),
        labels=(*program.labels, (f"the bound on the trace of {program.blocks[block].name}", 1)),
    )


class DefiniteCost(NamedTuple):
    """A cost ``C`` for which ``C - least D`` is psd, ``D`` being its diagonal.

    Parameters
    ----------
    least : float
        Positive.
    diagonal : array of shape (n,)
        Positive.
    """

    least: float
    diagonal: Array


@kept
def definite_cost(program: Program) -> DefiniteCost | None:
    """Return the cost of a program in one matrix with hard rows, None unless it is diagonally dominant.

    Without a bound on the trace, a fraction of the multipliers is then feasible. Let ``C - c D`` and
    ``C - A*(y) + e D`` be psd. So is ``(c + e) C - c A*(y)``, which is
    ``e (C - c D) + c (C - A*(y) + e D)``: the fraction is ``c / (c + e)``.
    """
    alone = len(program.blocks) == 1 and program.k == 0 and not program.curved and program.bounds.all_hard
    sparse = sparse_plus_low_rank(program)[0] if alone else None
    diagonal = np.zeros(1) if sparse is None else sparse.cost.S.diagonal()
    if sparse is None or not (diagonal > 0).all():
        return None
    least = sparse.cost.scaled(1 / np.sqrt(diagonal)).ends()[0] - ROUND_OFF  # the lower end of the discs
    return DefiniteCost(least, diagonal) if least > 0 else None


def feasible_fraction(program: Program, W: Array | SparsePlusLowRank | None, smallest: float) -> float | None:
    """Return the feasible fraction of the multipliers of a slack ``W``, None where the cost gives none.

    `smallest` is a negative lower bound on its eigenvalues, as :func:`least_relative_eigenvalue` gives it.
    """
    cost = definite_cost(program)
    if cost is None or W is None or W.shape[0] != len(cost.diagonal):  # on a face
        return None
    if isinstance(W, np.ndarray):
        root = np.sqrt(cost.diagonal)
        smallest = least_eigenvalue(W / np.outer(root, root))
    return cost.least / (cost.least - smallest)


@kept
def diagonal_bounds(program: Program) -> tuple[Array, ...]:
    """Return :func:`_diagonal_bound` of every block; computed once for each program."""
    return tuple(_diagonal_bound(program, b) for b in range(len(program.blocks)))


def _diagonal_bound(program: Program, block: int) -> Array:
    """Return upper bounds on each ``X_ii``, each from one hard row on the diagonal; infinite without one.

    A row ``sum_i w_i X_ii <= b`` with all ``w_i`` positive bounds each of its entries by ``b / w_i``.
    """
    largest = np.full(program.blocks[block].n, np.inf)
    at, i, w = _diagonal_rows(program, block)
    np.minimum.at(largest, i, program.bounds.hi[at] / w)
    return largest


def slack(
    program: Program, b: int, y: Array, X: Matrix, faces: Sequence[Face] | None = None
) -> Array | SparsePlusLowRank:
    """Return ``C - A*(y)`` of a linear block; sparse plus low rank where ``X`` is large and a LowRank."""
    block = program.blocks[b]
    if isinstance(X, LowRank) and block.n > LARGEST_FORMED and faces is None:
        own = sparse_plus_low_rank(program)[b]
        if own is not None:
            return own.cost - own.rows.adjoint(y)
    W = block.C - program.A.adjoint(y, b)
    return W if faces is None else faces[b].compress(W)


def least_eigenvalue(S: Array | SparsePlusLowRank, above_zero: bool = False) -> float:
    """Return the smallest eigenvalue; if positive, it is replaced by zero unless `above_zero`.

    A Cholesky factorization then replaces the eigenvalues.
    """
    if isinstance(S, SparsePlusLowRank):
        return smallest_eigenvalue(S)
    if len(S) == 0:  # the face of a matrix that the rows fix to zero
        return 0.0
    if not above_zero and root_of(S) is not None:
        return 0.0
    smallest = float(eigenvalues_of(S)[0])  # above zero where round-off alone stops the factorization
    return smallest if above_zero else min(smallest, 0.0)


def least_eigenvalues(matrices: Sequence[Array], above_zero: Sequence[bool]) -> list[float]:
    """Return :func:`least_eigenvalue` of each matrix; arrays of equal shape are decomposed as one stack."""
    found = [0.0] * len(matrices)
    alike: dict[Any, list[int]] = {}
    for k, (S, above) in enumerate(zip(matrices, above_zero, strict=True)):
        alike.setdefault((S.shape, above), []).append(k)
    for own in alike.values():
        if len(own) == 1:
            found[own[0]] = least_eigenvalue(matrices[own[0]], above_zero[own[0]])
            continue
        stack, above = np.stack([np.asarray(matrices[k]) for k in own]), above_zero[own[0]]
        if stack.size and (above or not _all_definite(stack)):
            eigenvalues = np.linalg.eigvalsh(stack)[:, 0]
            for k, value in zip(own, eigenvalues.tolist(), strict=True):
                found[k] = value if above else min(value, 0.0)
    return found


def _all_definite(stack: Array) -> bool:
    """Whether every matrix of a stack has a Cholesky factor."""
    try:
        np.linalg.cholesky(stack)
    except np.linalg.LinAlgError:
        return False
    return True


def relative_diagonal(W: SparsePlusLowRank) -> Array:
    """Return the diagonal of the sparse part, or a fraction of its mean where it is smaller."""
    D: Array = W.S.diagonal()
    mean = float(np.abs(D).mean())
    return np.maximum(D, _LEAST_SCALE * mean) if mean > 0 else np.ones(W.n)


def least_relative_eigenvalue(
    program: Program, b: int, W: SparsePlusLowRank, row_terms: float, loss: float
) -> float:
    """Return a lower bound ``t`` on the smallest eigenvalue relative to a diagonal ``D``: ``W - t D`` is psd.

    If the bound on the trace is the sum of bounds on the diagonal of ``X``, ``D`` is near the diagonal of
    ``W``, and so large that ``<D, X>`` is at most the bound on the trace. Without a bound on the trace it is
    the diagonal of a definite cost. Otherwise it is the identity.

    Parameters
    ----------
    program : Program
    b : int
        The block.
    W : SparsePlusLowRank
        Its slack.
    row_terms : float
        The rows' terms of the bound.
    loss : float
        The loss in the value of the bound that matters; it is proven no sharper. Zero proves the sharpest.
    """
    trace, diagonal = trace_bounds(program)[b], diagonal_bounds(program)[b]
    if trace is None and (cost := definite_cost(program)):
        enough = -loss * cost.least / max(abs(row_terms), TINY) if loss > 0 else None
        return smallest_eigenvalue(W, cost.diagonal, enough)
    if trace is None or trace.value <= 0:
        return smallest_eigenvalue(W)
    enough = -loss / trace.value if loss > 0 else None
    if not diagonal.sum() <= trace.value * (1 + _SUM_NOISE):
        return smallest_eigenvalue(W, None, enough)
    D = relative_diagonal(W)
    D *= trace.value / float(D @ diagonal)
    t = smallest_eigenvalue(W, D, enough)
    return t + ROUND_OFF * W.n * min(t, 0.0)  # D @ diagonal has round-off


def capped_term(nearness: Nearness | None, W: Array, X: Array, cap: float) -> float:
    """Return a lower bound on ``<W, .> + mu D(., X0)`` over matrices with eigenvalues from zero to `cap`.

    It is the minimum itself, except where a divergence has no closed form for it. For any psd ``S``,
    ``<S, X> <= cap tr S``. So its bound without the cap at ``W + S``, less ``cap tr S``, is a bound. The
    negative part of the gradient at `X` makes it tight at the optimum.
    """
    if nearness is None:
        return cap * float(np.minimum(np.linalg.eigvalsh(W), 0.0).sum())
    divergence: Any = divergence_of(nearness)
    mu = nearness.mu
    if divergence.takes_cap:
        least = divergence.dual_term(W, mu, X, cap)
    else:
        S = psd_part(-W - mu * divergence.gradient(X))
        least = divergence.dual_term(W + S, mu, X) - cap * float(S.trace())
    return min(least, least_seen(divergence, W, mu, X, cap))


def least_seen(divergence: Divergence, W: Array, mu: float, X: Array, cap: float | None = None) -> float:
    """Return the least ``<W, Y> + mu D(Y, X0)`` over some psd ``Y``; infinite for built-in divergences.

    The eigenvalues of ``Y`` are at most `cap`.

    Every valid lower bound on the minimum is at most this. The ``Y`` are the iterates of a projected gradient
    method from `X`.
    """
    if type(divergence) in BUILT_IN:
        return np.inf

    def objective(Y: Array) -> float:
        value = float(np.vdot(W, Y)) + mu * divergence.value(Y)
        return value if np.isfinite(value) else np.inf

    largest = np.inf if cap is None else cap
    Y = psd_part(X, largest)
    least, step = objective(Y), 1.0
    for _ in range(_DESCENT_STEPS):
        slope = W + mu * divergence.gradient(Y)
        size = float(np.linalg.norm(slope))
        if not 0 < size < np.inf:
            break
        new = psd_part(Y - step * max(float(np.linalg.norm(Y)), TINY) / size * slope, largest)
        value = objective(new)
        Y, least, step = (new, value, 2 * step) if value < least else (Y, least, step / 4)
    return least
