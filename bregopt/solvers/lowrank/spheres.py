"""What fixes the size of ``R``: each of its rows has a given length, or all of it has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.program import Program, TraceBound, trace_bound

__all__ = ["Spheres", "read_spheres"]


@dataclass(frozen=True, eq=False)
class Spheres:
    """The matrices ``R`` whose rows are of the given squared lengths, or which are of one length as a whole.

    Parameters
    ----------
    square : array of shape (n,) or (1,)
        Squared lengths of the rows, or of the whole.
    rows : int array of the same shape
        The rows of the program that say so,
    weight : array of the same shape
        and by what they multiply a squared length.
    """

    square: Array
    rows: IntArray
    weight: Array

    @property
    def trace(self) -> float:
        """The trace of ``R R'``."""
        return float(self.square.sum())

    def share(self, G: Array, R: Array) -> Array:
        """Return the multipliers ``s`` for which ``G - s R`` is tangent, a column; one row or all of `R`."""
        dots: Array = np.einsum("nk,nk->n", G, R)
        if len(self.square) == 1:
            dots = dots.sum(keepdims=True)
        return (dots / self.square)[:, None]

    def tangent(self, V: Array, R: Array) -> Array:
        """Return `V` without its part across the spheres."""
        tangent: Array = V - self.share(V, R) * R
        return tangent

    def retract(self, R: Array) -> Array:
        """Return the nearest point; a row that is zero becomes one with a single entry."""
        if len(self.square) == 1:
            whole = R if R.any() else np.ones_like(R)
            return whole * np.sqrt(self.square / np.vdot(whole, whole))
        length = np.linalg.norm(R, axis=1)
        if not length.all():
            R = R.copy()
            R[length == 0, 0] = length[length == 0] = 1.0
        return R * (np.sqrt(self.square) / length)[:, None]


def read_spheres(program: Program) -> Spheres | None:
    """Return what the rows of a program in one block fix: its diagonal or its trace; None if neither.

    The diagonal must be above zero.
    """
    bound = trace_bound(program, 0)
    if bound is None or not bound.exact or bound.value <= 0:
        return None
    rows = np.flatnonzero(bound.multipliers)
    if len(rows) == 1:
        return Spheres(np.array([bound.value]), rows, 1 / bound.multipliers[rows])
    entry = _entries(program, bound)
    rows = rows[np.argsort(entry[rows])]
    weight = 1 / bound.multipliers[rows]
    square = program.bounds.hi[rows] / weight
    return Spheres(square, rows, weight) if (square > 0).all() else None


def _entries(program: Program, bound: TraceBound) -> IntArray:
    """Return for each row that fixes a diagonal entry, which one."""
    entry = np.full(program.m, -1)
    for term in program.A.terms:
        own = np.flatnonzero(bound.multipliers[term.at])
        if len(own):
            t = term.rows.slice(own).coordinates()
            entry[term.at[own[t.row]]] = t.i
    return entry
