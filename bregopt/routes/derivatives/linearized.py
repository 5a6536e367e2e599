"""Derivatives of the answer of a program in all of its data, forwards and backwards.

A change of the data changes the optimality conditions by slopes ``E`` of the matrices' terms, right-hand
sides ``r`` of the rows that act, costs ``t`` of variables, and multipliers of hinges that are paid. The
answer changes by the solution of the linearized conditions; their matrix is symmetric, so that the gradient
of a function of the answer needs one system with the same matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bregopt.arrays import Array
from bregopt.routes.derivatives.changes import Adjoint, Change
from bregopt.routes.derivatives.optimum import Optimum
from bregopt.routes.derivatives.system import Unknowns
from bregopt.routes.derivatives.tuning import CG_TOL

__all__ = ["adjoint", "tangent"]


def tangent(at: Optimum, change: Change) -> Change:
    """Return the change of the answer."""
    program, rows, right = at.program, change.rows[at.rows], change.u
    paid = change.paid.any()
    if paid:
        right = right - program.Bt @ change.paid if program.k else right
    slopes: list[Array | None] = []
    faces: list[Array | None] = []
    for b, (point, slope) in enumerate(zip(at.points, change.X, strict=True)):
        if paid:
            moved = program.A.adjoint(change.paid, b)
            slope = -moved if slope is None else slope - moved
        slopes.append(slope)
        if slope is not None:
            rows = rows + point.image(slope)
        faces.append(_on_face(point.face, slope))
    unknown = Unknowns(rows, tuple(faces), right[at.variables])
    solution = at.system.solve(unknown, CG_TOL, checked=bool(change.rows.any()))
    y, u = change.paid.copy(), np.zeros(program.k)
    y[at.rows], u[at.variables] = solution.rows, solution.variables
    X = []
    for b, (point, slope) in enumerate(zip(at.points, slopes, strict=True)):
        S = at.A.adjoint(solution.rows, b)
        dX = point.derivative(S if slope is None else S - slope)
        X.append(_plus_face(dX, point.face, solution.faces[b]))
    return Change(tuple(X), y, u, np.zeros(program.m))


def adjoint(at: Optimum, X: Sequence[Array | None], u: Array) -> Adjoint:
    """Return the gradient of ``sum <G_b, X_b> + g'u``.

    Parameters
    ----------
    at : Optimum
    X : sequence of arrays of shape (n_b, n_b) or None
        The ``G_b``, symmetric.
    u : array of shape (k,)
        The ``g``.
    """
    program = at.program
    rows = np.zeros(len(at.rows))
    for point, G in zip(at.points, X, strict=True):
        if G is not None:
            rows = rows + point.image(G)
    faces = tuple(_on_face(point.face, G) for point, G in zip(at.points, X, strict=True))
    solution = at.system.solve(Unknowns(rows, faces, u[at.variables]), CG_TOL)
    w, v = np.zeros(program.m), np.zeros(program.k)
    w[at.rows], v[at.variables] = solution.rows, solution.variables
    slopes = []
    for b, (point, G) in enumerate(zip(at.points, X, strict=True)):
        S = -at.A.adjoint(solution.rows, b)
        moved = point.derivative(S if G is None else G + S)
        inside = solution.faces[b]
        slopes.append(_plus_face(moved, point.face, None if inside is None else -inside))
    paid = np.where(at.active.paid, program.A.apply(slopes), 0.0) if at.active.paid.any() else 0 * w
    if program.k and paid.any():
        paid -= np.where(at.active.paid, program.B @ v, 0.0)
    return Adjoint(tuple(slopes), w, v, paid)


def _on_face(V: Array | None, S: Array | None) -> Array | None:
    if V is None:
        return None
    return np.zeros((V.shape[1],) * 2) if S is None else V.T @ S @ V


def _plus_face(S: Array, V: Array | None, inside: Array | None) -> Array:
    return S if V is None or inside is None else S + V @ inside @ V.T
