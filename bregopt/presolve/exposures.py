"""Rows that expose a face: combinations ``F`` of rows that are psd and imply ``<F, X> <= 0``.

Single rows are tried first, on one face after the other, and then combinations of rows on the diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.clock import checkpoint
from bregopt.linalg import dense
from bregopt.presolve.constants import DEFINITE_PROBES, FACE_NOISE, LARGEST_LINEAR_PROGRAM
from bregopt.program import Face, LowRank, Program
from bregopt.program.rows import Rows

__all__ = ["Exposure", "exposures_of"]


@dataclass(frozen=True, eq=False)
class Exposure:
    """Rows whose combination ``F = sum weight A_k`` is psd on a face and fixed to zero.

    Parameters
    ----------
    block : int
    rows : int array
    weight : array
        Positive on ``<=`` rows, negative on ``>=`` rows.
    before : array of shape (n, q)
        The directions removed earlier.
    directions : array of shape (n, r)
        The range of ``F`` on the face, in the coordinates of ``X``.
    """

    block: int
    rows: IntArray
    weight: Array
    before: Array
    directions: Array


def exposures_of(program: Program) -> tuple[Exposure, ...]:
    """Return the exposures, one after the other, until no row exposes a smaller face.

    Only rows that depend on one matrix alone expose faces. A matrix with a divergence that is infinite on the
    boundary of the cone is on no face.
    """
    removed = [np.zeros((block.n, 0)) for block in program.blocks]
    exposures: list[Exposure] = []
    used = np.zeros(program.m, dtype=bool)
    near = [block.nearness for block in program.blocks]
    interior = {b for b, own in enumerate(near) if own is not None and not own.kind.finite_on_boundary}
    alone = {t.block for t in program.A.terms if program.in_one_matrix[t.place].any()}
    searched = sorted(alone - interior)
    while searched:
        b = searched.pop()
        exposure = _exposure(program, b, removed[b], used)
        if exposure is not None:
            removed[b] = np.column_stack([exposure.before, exposure.directions])
            used[exposure.rows] = True
            exposures.append(exposure)
            searched.append(b)
    return tuple(exposures)


def _exposure(program: Program, b: int, before: Array, used: Mask) -> Exposure | None:
    """Return an exposure on one block's face without the directions `before`, None where there is none."""
    face = Face(before)
    if face.order == 0:
        return None
    rows, weight, ranges = [], [], []
    for k, sign, A in _pinned(program, b, face, used):
        own = _range_of(sign * face.compress(A))
        if own is not None:
            rows.append(k)
            weight.append(sign / float(np.linalg.norm(A)))
            ranges.append(own / max(float(np.linalg.norm(own)), TINY))
    if rows:
        left, s, _ = np.linalg.svd(np.column_stack(ranges), full_matrices=False)
        new = left[:, s > 1e-8 * s.max()]
        return Exposure(b, np.array(rows), np.array(weight), before, face.embed(new))
    return None if before.shape[1] else _diagonal_exposure(program, b)


def _pinned(program: Program, b: int, face: Face, used: Mask) -> Iterator[tuple[int, float, Array]]:
    """Yield ``(k, sign, A_k)`` for hard rows ``<sign A_k, X> <= 0`` of one block whose matrix may be psd."""
    bounds = program.bounds
    alone = program.in_one_matrix & ~used
    for term in program.A.terms_of(b):
        for sign, end in ((1.0, bounds.hi), (-1.0, bounds.lo)):
            candidate = np.flatnonzero(alone[term.at] & (end[term.at] == 0))
            if len(candidate) == 0:
                continue
            rows = term.rows.slice(candidate)
            for local in np.flatnonzero(_may_be_psd(rows, sign, face)):
                checkpoint()
                unit = np.zeros(rows.m)
                unit[local] = 1.0
                yield int(term.at[candidate[local]]), sign, rows.adjoint(unit)


def _may_be_psd(rows: Rows, sign: float, face: Face) -> Mask:
    """Return which ``sign A_k`` may be psd and nonzero: by diagonals, or by random vectors on a face."""
    if face.codimension == 0:
        values = sign * _diagonals(rows)
    else:
        V = face.embed(np.random.default_rng(0).normal(size=(face.order, DEFINITE_PROBES)))
        values = sign * np.column_stack([rows.apply(LowRank(v[:, None])) for v in V.T])
    mask: Mask = np.asarray((values >= 0).all(axis=1) & (values > 0).any(axis=1))
    return mask


def _diagonals(rows: Rows) -> Array:
    """Return the diagonals of the ``A_k``, shape ``(m, n)``."""
    forms = rows.rank_one_terms()
    if forms is not None:
        diagonals = np.zeros((rows.m, rows.n))
        np.add.at(diagonals, forms.row, forms.weight[:, None] * dense(forms.U) ** 2)
        return diagonals
    t = rows.coordinates()
    own = t.i == t.j
    flat = np.bincount(t.row[own] * rows.n + t.i[own], t.value[own], minlength=rows.m * rows.n)
    return flat.astype(float).reshape(rows.m, rows.n)


def _range_of(A: Array) -> Array | None:
    """Return a basis of the range of a psd matrix by pivoted Cholesky steps, None if it is not psd."""
    size = float(np.abs(A).max())
    if size <= FACE_NOISE:
        return None
    tol = len(A) * FACE_NOISE * size
    packed, pivot, rank, _ = scipy.linalg.lapack.dpstrf(A, tol=tol, lower=1)
    L = np.zeros((len(A), rank))
    L[pivot - 1] = np.tril(packed)[:, :rank]
    return L if np.abs(A - L @ L.T).max() <= 10 * tol else None


def _diagonal_exposure(program: Program, b: int) -> Exposure | None:
    """Return the combination of rows on the diagonal that fixes the most entries to zero, if there is one.

    It solves the linear program ``max sum t`` subject to ``0 <= t <= 1``, ``t <= sum_k weight_k diag(A_k)``,
    ``weight'b <= 0``, with one weight for each bound of a row.
    """
    at, W = _diagonal_rows(program, b)
    if len(at) < 2 or W.size > LARGEST_LINEAR_PROGRAM or (W != 0).sum(axis=1).max() < 2:
        return None
    from scipy.optimize import linprog  # slow to import, seldom needed

    lo, hi = program.bounds.lo[at], program.bounds.hi[at]
    up, down = np.flatnonzero(np.isfinite(hi)), np.flatnonzero(np.isfinite(lo))
    ends, n = len(up) + len(down), W.shape[1]
    above = np.column_stack([-np.vstack([W[up], -W[down]]).T, np.eye(n)])
    asked = np.concatenate([hi[up], -lo[down], np.zeros(n)])
    box = [(0, None)] * ends + [(0, 1)] * n
    cost = np.concatenate([np.zeros(ends), -np.ones(n)])
    answer = linprog(cost, A_ub=np.vstack([above, asked]), b_ub=np.zeros(n + 1), bounds=box)
    if answer.status != 0 or -answer.fun < 0.5:
        return None
    p = answer.x[:ends] * np.repeat([1.0, -1.0], [len(up), len(down)])
    weight = np.bincount(np.concatenate([up, down]), p, len(at)).astype(float)
    fixed = np.flatnonzero(weight @ W > 0.5)
    return Exposure(b, at, weight, np.zeros((n, 0)), np.eye(n)[:, fixed])


def _diagonal_rows(program: Program, b: int) -> tuple[IntArray, Array]:
    """Return the rows that depend on the diagonal of one block only, and their weights there."""
    places, weights = [np.zeros(0, dtype=np.intp)], [np.zeros((0, program.blocks[b].n))]
    for term in program.A.terms_of(b):
        if term.rows.count() > LARGEST_LINEAR_PROGRAM or not program.in_one_matrix[term.at].any():
            continue
        t = term.rows.coordinates()
        spoiled = np.zeros(term.rows.m, dtype=bool)
        spoiled[t.row[t.i != t.j]] = True
        chosen = np.flatnonzero(program.in_one_matrix[term.at] & ~spoiled)
        if len(chosen) * term.rows.n > LARGEST_LINEAR_PROGRAM:
            continue
        places.append(term.at[chosen])
        weights.append(_diagonals(term.rows.slice(chosen)))
    return np.concatenate(places), np.concatenate(weights)
