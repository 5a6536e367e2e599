"""The surface of ``R``: its rows, or all of it, on spheres, and orthogonal to a few vectors.

A row ``<z z', X> <= 0``, such as ``e'Xe == 0``, has no interior point: it means ``z'R = 0``, which is linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.certify import TraceBound, trace_bound
from bregopt.program import Program, SparseLowRankProgram, SparseLowRankRows
from bregopt.routes.burer_monteiro.tuning import BurerMonteiroTuning

__all__ = ["Surface", "Tangent", "read_surface"]


@dataclass(frozen=True, eq=False)
class Surface:
    """The matrices ``R`` with rows of given lengths, or of one total length, and with ``Q'R = 0``.

    Parameters
    ----------
    square : array of shape (n,) or (1,)
        Squared lengths of the rows, or of the whole matrix.
    rows : int array of the same shape
        The rows of the program that fix them.
    weight : array of the same shape
        The factors of the squared lengths in these rows.
    Q : array of shape (n, q)
        Orthonormal.
    planes : int array
        The rows of the program that fix ``Q'R`` to zero.
    unit_multipliers : array of the same shape
        The least multipliers for which the sum of these rows is at least ``Q Q'``.
    tuning : BurerMonteiroTuning
    """

    square: Array
    rows: IntArray
    weight: Array
    Q: Array
    planes: IntArray
    unit_multipliers: Array
    tuning: BurerMonteiroTuning

    @property
    def trace(self) -> float:
        """The trace of ``R R'``."""
        return float(self.square.sum())

    def sphere_coefficients(self, V: Array, R: Array) -> Array:
        """Return the column ``s`` for which ``V - s R`` is tangent to the spheres, or a single number."""
        dots: Array = np.einsum("nk,nk->n", V, R)
        if len(self.square) == 1:
            dots = dots.sum(keepdims=True)
        return (dots / self.square)[:, None]

    def retract(self, R: Array) -> Array:
        """Return a nearby point of the surface, by Newton's method if there are planes.

        Far from the planes, where Newton's method may fail, it projects onto planes and spheres in turn.
        """
        R = self._on_spheres(R)
        distance = self.plane_distance(R)
        for _ in range(self.tuning.retraction_steps):
            if distance <= self.tuning.retraction_tol:
                break
            across = self.Q.T @ R
            new = self._on_spheres(R - self.Q @ Tangent(self, R).solve(across))
            if self.plane_distance(new) > distance / 2:
                new = self._on_spheres(R - self.Q @ across)
            R, distance = new, self.plane_distance(new)
        return R

    def plane_distance(self, R: Array) -> float:
        """Return the distance of `R` from the planes, relative to its norm."""
        return float(np.linalg.norm(self.Q.T @ R)) / np.sqrt(self.trace)

    def _on_spheres(self, R: Array) -> Array:
        """Return the nearest point of the spheres; a zero row becomes one with a single entry."""
        if len(self.square) == 1:
            whole = R if R.any() else np.ones_like(R)
            return whole * np.sqrt(self.square / np.vdot(whole, whole))
        length = np.linalg.norm(R, axis=1)
        if not length.all():
            R = R.copy()
            R[length == 0, 0] = length[length == 0] = 1.0
        return R * (np.sqrt(self.square) / length)[:, None]


class Tangent:
    """The tangent space at a point.

    Parameters
    ----------
    surface : Surface
    R : array of shape (n, k)
    """

    def __init__(self, surface: Surface, R: Array) -> None:
        self._surface, self._R = surface, R
        self._inverse: Array | None = None
        self._normals: Array | None = None
        Q, n, size = surface.Q, len(R), surface.Q.shape[1] * R.shape[1]
        if size and len(surface.square) == n:
            # A normal of the planes has a component along the normals of the spheres.
            T = (Q[:, :, None] * (R / np.sqrt(surface.square)[:, None])[:, None, :]).reshape(n, size)
            self._normals = np.eye(size) - T.T @ T
            self._inverse = np.asarray(
                np.linalg.pinv(self._normals, surface.tuning.normals_rank_tol, hermitian=True)
            )

    def solve(self, across: Array) -> Array:
        """Return ``B`` for which ``Q'`` times the tangent part of ``Q B`` is `across`; shape ``(q, k)``."""
        return across if self._inverse is None else (self._inverse @ across.ravel()).reshape(across.shape)

    @property
    def dependent(self) -> list[Array]:
        """The ``B`` with ``Q B`` also normal to the spheres, as when all rows of ``R`` are parallel."""
        if self._normals is None:
            return []
        values, vectors = np.linalg.eigh(self._normals)
        shape = self._surface.Q.shape[1], self._R.shape[1]
        null = np.abs(values) <= self._surface.tuning.normals_rank_tol
        return [b.reshape(shape) for b in vectors.T[null]]

    def split(self, V: Array) -> tuple[Array, Array, Array]:
        """Return ``s``, ``B`` and the tangent ``V - Q B - s R``."""
        surface, R = self._surface, self._R
        Q, s = surface.Q, surface.sphere_coefficients(V, R)
        if Q.shape[1] == 0:
            return s, np.zeros((0, R.shape[1])), V - s * R
        B = self.solve(Q.T @ (V - s * R))
        V = V - Q @ B
        s = surface.sphere_coefficients(V, R)
        return s, B, V - s * R

    def project(self, V: Array) -> Array:
        """Return the tangent part."""
        return self.split(V)[2]


def read_surface(
    program: Program, sparse: SparseLowRankProgram, tuning: BurerMonteiroTuning
) -> Surface | None:
    """Return the surface of a program in one block with fixed diagonal or trace; None if neither.

    The diagonal must be positive.
    """
    bound = trace_bound(program, 0)
    if bound is None or not bound.exact or bound.value <= 0:
        return None
    rows = np.flatnonzero(bound.multipliers)
    square = np.array([bound.value])
    if len(rows) > 1:
        rows = rows[np.argsort(_entries(program, bound)[rows])]
        square = program.bounds.hi[rows] * bound.multipliers[rows]
    if not (square > 0).all():
        return None
    planes = _planes(program, sparse.rows, tuning.planes)
    return Surface(square, rows, 1 / bound.multipliers[rows], *planes, tuning)


def _entries(program: Program, bound: TraceBound) -> IntArray:
    """Return the diagonal entry that each row fixes, -1 for other rows."""
    entry = np.full(program.m, -1)
    for term in program.A.terms:
        own = np.flatnonzero(bound.multipliers[term.at])
        if len(own):
            t = term.rows.slice(own).coordinates()
            entry[term.at[own[t.row]]] = t.i
    return entry


def _planes(program: Program, rows: SparseLowRankRows, count: int) -> tuple[Array, IntArray, Array]:
    """Return a basis, the rows and the unit multipliers of at most `count` planes that rows prescribe."""
    own = np.flatnonzero(_fixed_to_zero(program, rows.at, rows.weight))
    vectors, at, weight = [rows.Z[own]], [rows.at[own]], [rows.weight[own]]
    for term in program.A.terms:
        if term.rows.rank == 1:
            fixed = _fixed_to_zero(program, term.at, term.rows.definite_signs())
            own = np.flatnonzero(fixed & ~np.isin(term.at, rows.at))[:count]
            terms = term.rows.slice(own).rank_one_terms()
            assert terms is not None
            vectors.append(terms.U if isinstance(terms.U, np.ndarray) else terms.U.toarray())
            at.append(term.at[own])
            weight.append(terms.weight)
    Z, rows_at, size = np.vstack(vectors), np.concatenate(at), np.concatenate(weight)
    length = np.linalg.norm(Z, axis=1)
    kept = np.flatnonzero(length)[:count]
    Z = Z[kept] / length[kept, None]
    U, s, _ = np.linalg.svd(Z.T, full_matrices=False)
    independent = s > 1e-8
    unit_multipliers = 1 / (size[kept] * length[kept] ** 2)
    if independent.any():
        unit_multipliers /= s[independent].min() ** 2
    return U[:, independent], rows_at[kept], unit_multipliers


def _fixed_to_zero(program: Program, at: IntArray, weight: Array) -> Mask:
    """Return the mask of the rows ``weight <z z', X>`` that fix the square to zero."""
    lo, hi = program.bounds.lo[at], program.bounds.hi[at]
    mask: Mask = ((weight > 0) & (hi == 0)) | ((weight < 0) & (lo == 0))
    return mask
