"""Slack matrices ``C - A*(y)`` of linear blocks, and their smallest eigenvalues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.constants import FAMILY_NOISE, LARGEST_FORMED, ROUND_OFF
from bregopt.certify.eigenvalue_bound import relative_diagonal, smallest_eigenvalue
from bregopt.certify.trace_bound import TraceBound
from bregopt.program.face import Face
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.program import Program
from bregopt.program.sparse_plus_low_rank import SparseLowRankProgram, SparsePlusLowRank, sparse_plus_low_rank

__all__ = ["least_eigenvalue", "least_eigenvalues", "least_relative_eigenvalue", "slack"]

# Computed once for each program; dropped with it.
_sparse_low_rank: WeakKeyDictionary[Program, tuple[SparseLowRankProgram | None, ...]] = WeakKeyDictionary()


def slack(
    program: Program, b: int, y: Array, X: Matrix, faces: Sequence[Face] | None = None
) -> Array | SparsePlusLowRank:
    """Return ``C - A*(y)`` of a linear block; sparse plus low rank where ``X`` is large and a LowRank."""
    block = program.blocks[b]
    if isinstance(X, LowRank) and block.n > LARGEST_FORMED and faces is None:
        own = _sparse_low_rank_programs(program)[b]
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
    if not above_zero:
        try:
            np.linalg.cholesky(S)
        except np.linalg.LinAlgError:
            pass
        else:
            return 0.0
    smallest = float(np.linalg.eigvalsh(S)[0])  # above zero where round-off alone stops the factorization
    return smallest if above_zero else min(smallest, 0.0)


def least_relative_eigenvalue(
    W: SparsePlusLowRank, trace: TraceBound | None, diagonal: Array, loss: float
) -> float:
    """Return a lower bound ``t`` on the smallest eigenvalue relative to a diagonal ``D``: ``W - t D`` is psd.

    If the trace bound is the sum of bounds on the diagonal of ``X``, ``D`` is near the diagonal of ``W``, and
    so large that ``<D, X>`` is at most the bound on the trace. Otherwise it is the identity.

    Parameters
    ----------
    W : SparsePlusLowRank
    trace : TraceBound, optional
        The bound on ``tr X``.
    diagonal : array of shape (n,)
        The bounds on ``diag(X)``.
    loss : float
        The loss in the value of the bound that matters; it is proven no sharper. Zero proves the sharpest.
    """
    if trace is None or trace.value <= 0:
        return smallest_eigenvalue(W)
    enough = -loss / trace.value if loss > 0 else None
    if not diagonal.sum() <= trace.value * (1 + FAMILY_NOISE):
        return smallest_eigenvalue(W, None, enough)
    D = relative_diagonal(W)
    D *= trace.value / float(D @ diagonal)
    t = smallest_eigenvalue(W, D, enough)
    return t + ROUND_OFF * W.n * min(t, 0.0)  # D @ diagonal has round-off


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


def _sparse_low_rank_programs(program: Program) -> tuple[SparseLowRankProgram | None, ...]:
    if program not in _sparse_low_rank:
        blocks = range(len(program.blocks))
        _sparse_low_rank[program] = tuple(sparse_plus_low_rank(program, b) for b in blocks)
    return _sparse_low_rank[program]
