"""Newton's system in coordinates in which ``X`` is the identity, for few rows.

With ``X = L L'`` and ``inv(Z) = M'M``, each matrix step is ``dX = sym(M'V L')`` with a matrix
``V``, and a row has the value ``<A_k, dX> = <G_k, V>`` with ``G_k = M A_k L``. The system is a least-squares
problem:

    V = V_0 + sum_k dy_k G_k,   <G_k, V> = r_k,   V_0 = M (w I + R) inv(L)' - inv(M)'L.

Near the solution the Schur matrix ``G'G`` loses the digits of its least eigenvalues, and the residuals of the
rows grow. The factorization ``G = Q T`` by reflections keeps them: ``Q'V`` has the leading part ``inv(T)'r``,
and the trailing part of ``Q'V_0`` (Björck 1996, Numerical methods for least squares problems, section 5.1).
On the central path ``V_0`` has entries of one size, however close ``X`` and ``Z`` are to the boundary.

The slack of a row, ``D dy``, and bounded variables, ``du = r_u - D_u (q - B'dy)``, are further coordinates,
with the rows ``sqrt(D)`` and ``sqrt(D_u) B'``. Free variables have columns ``F = Y_1 S``. With an orthogonal
``(Y_1, Y_2)`` they leave the rows ``Y_2'A``, and ``dy = Y_1 inv(S)'q + Y_2 v``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, lapack

from bregopt.arrays import Array, Mask
from bregopt.linalg import dense, symmetrize
from bregopt.program import Program
from bregopt.routes.ipm.cones import Cone, automorphism
from bregopt.routes.ipm.plan import Plan, RightHandSide, ScalingPoint, Solve, Step

# Coordinates times the square of the number of rows up to which the factorization takes no longer than the
# Schur matrix with its checks, up to which it takes the place of corrections for lost digits, and up to which
# it follows a path that stalls.
_FEW, SOME, MANY = 1e5, 1e7, 2e10
_MOST_COORDINATES = 3e7  # of all rows, which are dense: 240 MB
# Part of a row that others do not have, relative to the row, below which it is round-off.
_DEPENDENT = 1e-14
_LEAST_RANK = 1e-8  # the same of the rows as they are, from which they are dependent
# Of a group: its cone, ``L``, ``inv(L)``, ``M`` and ``inv(M)'L``.
_Coordinates = tuple[Cone, Array, Array, Array, Array]
_PANEL = 32  # reflectors that LAPACK applies together, in its work space


class ScaledRows:
    """The system in scaled coordinates.

    Parameters
    ----------
    plan : Plan
    B : array of shape (m, k)
    bounded : boolean array of shape (m,)
        Marks the rows with a finite bound.
    free : boolean array of shape (k,)
        Marks the variables without bounds, whose columns are independent.

    Attributes
    ----------
    own : slice or int array
        The rows with a finite bound.
    border : _Border or None
        The columns of free variables.
    rows : list of array
        The combinations of rows without free variables, in the coordinates of each group's cone.
    columns : array
        Their columns of the other variables.
    """

    direct, lost_digits = True, False

    def __init__(self, plan: Plan, B: Array, bounded: Mask, free: Mask) -> None:
        self.plan, self.B, self.free, self.border = plan, B, free, None
        self.own: Any = slice(None) if np.logical_and.reduce(bounded) else bounded.nonzero()[0]
        rows, self.columns = dense(plan.listed)[self.own], B[self.own]
        if np.logical_or.reduce(free):
            self.border = _Border(self.columns[:, free], rows)
            rows, self.columns = self.border.combined(rows), self.border.combined(self.columns)
        self.rows = [
            group.cone.restricted(rows[:, group.part].reshape(-1, *group.shape)) for group in plan.groups
        ]

    # Pays on: hinf1.
    @classmethod
    def of(cls, plan: Plan, program: Program, most: float = _FEW) -> ScaledRows | None:
        """Return the system, None where it costs more than `most` or rows are dependent; kept with the plan.

        The factors of dependent rows are round-off.
        """
        inside = any(plan.weights)  # a log-determinant keeps X off the boundary
        if inside or plan.listed is None or scaled_work(program) > min(most, _MOST_COORDINATES * program.m):
            return None
        if np.logical_or.reduce(program.u_lo == program.u_hi):
            return None
        bounded = np.isfinite(program.bounds.lo) | np.isfinite(program.bounds.hi)
        free = np.isinf(program.u_lo) & np.isinf(program.u_hi) & ~program.in_cones
        kind, known = bounded.tobytes() + free.tobytes(), plan.scaled
        if known is None or known[0] is not program.B or known[1] != kind:
            B = dense(program.B) if program.k else np.zeros((plan.m, 0))
            known = plan.scaled = program.B, kind, cls._made(plan, B, bounded, free)
        return known[2]

    @classmethod
    def _made(cls, plan: Plan, B: Array, bounded: Mask, free: Mask) -> ScaledRows | None:
        if not np.logical_or.reduce(bounded) or not _has_full_rank(B[bounded][:, free].T):
            return None
        system = cls(plan, B, bounded, free)
        if not len(system.columns):  # the free variables determine all multipliers
            return None
        parts = [own.reshape(len(own), math.prod(own.shape[1:])) for own in (*system.rows, system.columns)]
        return system if _has_full_rank(np.concatenate(parts, axis=1)) else None

    def factor(self, scaling_point: ScalingPoint) -> Solve:
        return _Factorized(self, scaling_point)


def scaled_work(program: Program) -> float:
    """Return the coordinates times the square of the number of rows."""
    return float(sum([n * n for n in program.A.orders]) + program.k + program.m) * program.m**2


def _has_full_rank(G: Array) -> bool:
    m, size = G.shape
    if m == 0 or m > size:
        return m == 0
    T = lapack.dgeqrf(G.T, lwork=_PANEL * m)[0]
    least = _LEAST_RANK * np.sqrt(np.add.reduce(G**2, axis=1))
    return bool(np.logical_and.reduce(np.abs(T.diagonal()) > least))


class _Border:
    """The columns of free variables, ``F = Y_1 S`` for rows of unit length.

    Parameters
    ----------
    F : array of shape (m, f)
    rows : array of shape (m, size)
        The other coefficients of the rows.
    """

    def __init__(self, F: Array, rows: Array) -> None:
        f = F.shape[1]
        squares = np.add.reduce(rows**2, axis=1) + np.add.reduce(F**2, axis=1)
        self._unit = 1 / np.sqrt(np.where(squares > 0, squares, 1.0))
        Y, S = np.linalg.qr(self._unit[:, None] * F, mode="complete")
        self._Y_1, self._S = self._unit[:, None] * Y[:, :f], S[:f]
        self.Y_2 = self._unit[:, None] * Y[:, f:]

    def combined(self, rows: Array) -> Array:
        """Return the combinations of rows without free variables."""
        return self.Y_2.T @ rows

    def multipliers(self, q: Array) -> Array:
        """Return the ``dy`` with ``F'dy = q`` of no combination."""
        return self._Y_1 @ lapack.dtrtrs(self._S, q, trans=1)[0]

    def variables(self, missing: Array) -> Array:
        """Return the ``du`` with ``F du = missing``."""
        return lapack.dtrtrs(self._S, self._Y_1.T @ missing)[0]


class _Factorized:
    """The solver of the system at one point.

    Parameters
    ----------
    system : ScaledRows
    at : ScalingPoint

    Raises
    ------
    LinAlgError
        If the coordinates overflow.
    """

    def __init__(self, system: ScaledRows, at: ScalingPoint) -> None:
        self._system, self._at, self._D = system, at, at.D[system.own]
        self._groups: list[_Coordinates] = []
        G = []
        groups = zip(system.plan.groups, system.rows, at.roots, at.Z_roots, strict=True)
        for group, A, root, Z_root in groups:
            (L, inverse_L), (C, M) = group.cone.factors((root, Z_root))
            self._groups.append((group.cone, L, inverse_L, M, C.swapaxes(-1, -2) @ L))
            G.append((M @ (A @ L)).reshape(len(A), M.size))
        self._variables = _ScaledVariables(at, system.free) if len(at.D_u) else None
        if self._variables is not None:
            self._first = sum([own.shape[1] for own in G])  # their first coordinate
            G.append(self._variables.rows(system.columns))
        if np.logical_or.reduce(self._D > 0):
            slacks = np.diag(np.sqrt(self._D))
            G.append(slacks if system.border is None else system.border.combined(slacks))
        self._Q, self._tau, self._T = _reflected(G[0] if len(G) == 1 else np.concatenate(G, axis=1))

    def __call__(self, rhs: RightHandSide) -> Step:
        """Return the step."""
        system, border, variables = self._system, self._system.border, self._variables
        plan, own, dy = system.plan, system.own, np.zeros(system.plan.m)
        right = rhs.r[own]
        if border is not None:
            dy[own] = border.multipliers(rhs.q[system.free])
            rhs = self._beyond(rhs, dy)
            right = border.combined(right - self._D * dy[own])
        v, V = self._solved(rhs, right)
        dy[own] += v if border is None else border.Y_2 @ v
        parts, end = [], 0
        for cone, L, _, M, _ in self._groups:
            start, end = end, end + M.size
            dX_g = symmetrize(M.swapaxes(-1, -2) @ V[start:end].reshape(M.shape) @ L.swapaxes(-1, -2))
            parts.append((cone.extended(dX_g) if cone.is_face else dX_g).ravel())
        dX, du = parts[0] if len(parts) == 1 else np.concatenate(parts), rhs.r_u
        if variables is not None:
            du = variables.step(V[self._first : self._first + len(du)])
            if border is not None:
                left = plan.apply(dX) + system.B @ du
                du[system.free] = border.variables((rhs.r - left)[own] - self._D * dy[own])
        return Step(dX, du, dy, plan.adjoint(dy))

    def _beyond(self, rhs: RightHandSide, dy: Array) -> RightHandSide:
        """Return the right-hand sides of the steps that remain after given multipliers, slacks apart."""
        plan, X = self._system.plan, self._at.X_parts
        R = [S @ X_g for S, X_g in zip(plan.views(plan.adjoint(dy)), X, strict=True)]
        if rhs.R is not None:
            R = [own if given is None else own + given for own, given in zip(R, rhs.R, strict=True)]
        return rhs._replace(R=R, q=rhs.q - dy @ self._system.B)

    def _solved(self, rhs: RightHandSide, right: Array) -> tuple[Array, Array]:
        """Return ``v`` and ``V``."""
        V, T, end, weight = np.zeros((len(self._Q), 1), order="F"), self._T, 0, float(rhs.weight)
        for g, (cone, _, inverse_L, M, centered) in enumerate(self._groups):
            start, end = end, end + M.size
            R, V_0 = None if rhs.R is None else rhs.R[g], -centered
            if R is not None or weight:
                half = weight * M
                if R is not None:
                    half += M @ (cone.restricted(R) if cone.is_face else R)
                V_0 += half @ inverse_L.swapaxes(-1, -2)
            V[start:end, 0] = V_0.ravel()
        if self._variables is not None:
            V[end : end + len(rhs.q), 0] = self._variables.constant(rhs.r_u, rhs.q)
        V = lapack.dormqr("L", "T", self._Q, self._tau, V, _PANEL, overwrite_c=1)[0]
        goal = lapack.dtrtrs(T, right, trans=1)[0]
        v = lapack.dtrtrs(T, goal - V[: len(T), 0])[0]
        V[: len(T), 0] = goal
        return v, lapack.dormqr("L", "N", self._Q, self._tau, V, _PANEL, overwrite_c=1)[0][:, 0]


def _reflected(G: Array) -> tuple[Array, Array, Array]:
    """Return reflectors, their factors and ``T`` of ``G' = Q T``; a dependent row gets its own coordinate."""
    m = len(G)
    squares = np.add.reduce(G * G, axis=1)
    if not math.isfinite(np.add.reduce(squares)):
        raise LinAlgError("the scaled rows are not finite")
    least = _DEPENDENT * np.sqrt(squares)
    if G.shape[1] >= m:
        Q, tau, _, _ = lapack.dgeqrf(G.T, lwork=_PANEL * m)
        if np.logical_and.reduce(np.abs(Q.diagonal()) > least):
            return Q, tau, Q[:m]
    own = np.diag(least + (least == 0) * _DEPENDENT)
    Q, tau, _, _ = lapack.dgeqrf(np.concatenate([G, own], axis=1).T, lwork=_PANEL * m)
    return Q, tau, Q[:m]


class _ScaledVariables:
    """The coordinates of the bounded variables, ``du = S v`` with a symmetric root ``S`` of ``D_u``.

    In a second-order cone ``D_u`` is ``eta^2 (2 w w' - J)`` with ``w'J w = 1``, and ``S`` is ``eta`` times
    the automorphism of the cone that maps its axis to ``w``.

    Parameters
    ----------
    at : ScalingPoint
    free : boolean array of shape (k,)
        Marks the variables without coordinate.
    """

    def __init__(self, at: ScalingPoint, free: Mask) -> None:
        root = np.sqrt(np.abs(at.D_u))
        root[free] = 0.0
        self._root: Array = root
        self._inverse: Array = np.divide(1.0, root, out=np.zeros(len(root)), where=root > 0)
        if at.p_u is not None:
            cones, index = at.cones, at.cones.index
            eta, place = root[index], np.ix_(index, index)
            V = automorphism(cones, at.p_u / (math.sqrt(2) * eta))
            self._root, self._inverse = np.diag(root), np.diag(self._inverse)
            self._root[place] = eta * V
            self._inverse[place] = cones.J[:, None] * V * (cones.J / eta)

    def rows(self, B: Array) -> Array:
        """Return ``B S``."""
        return B @ self._root if self._root.ndim == 2 else B * self._root

    def constant(self, r: Array, q: Array) -> Array:
        """Return ``inv(S) r - S q``."""
        if self._root.ndim == 2:
            return self._inverse @ r - self._root @ q
        return self._inverse * r - self._root * q

    def step(self, v: Array) -> Array:
        """Return ``S v``."""
        return self._root @ v if self._root.ndim == 2 else self._root * v
