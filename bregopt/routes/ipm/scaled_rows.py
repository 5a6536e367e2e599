"""Newton's system of few rows by an orthogonal factorization in scaled coordinates.

With ``X = L L'`` and ``inv(Z) = M'M``, each matrix step is ``dX = sym(M'V L')`` with a matrix ``V``, and a row
has the value ``<A_k, dX> = <G_k, V>`` with ``G_k = M A_k L``. The system is a least-squares problem in ``V``:

    V = V_0 + sum_k dy_k G_k,   <G_k, V> = r_k,   V_0 = M (w I + R) inv(L)' - inv(M)'L.

Near the solution the Schur matrix ``G'G`` loses the digits of its least eigenvalues, and the rows' residuals
grow. The factorization ``G = Q R`` by reflections keeps them: ``Q'V`` has the leading part ``inv(R)'r``, and the
trailing part of ``Q'V_0`` (Björck 1996, Numerical methods for least squares problems, section 4.3). On the
central path ``V_0`` has entries of one size, however close ``X`` and ``Z`` are to the boundary.

A row with a slack, ``D dy``, and a bounded variable, ``du = r_u - D_u (q - B'dy)``, are further coordinates,
with ``sqrt(D)`` and ``sqrt(D_u) B'``. Free variables ``F`` border the system; the coordinates ``F'dy``, which
are known, make it definite without them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, lapack

from bregopt.arrays import Array
from bregopt.linalg import dense, symmetrize
from bregopt.program import Program
from bregopt.routes.ipm.cones import automorphism
from bregopt.routes.ipm.plan import Group, Plan, RightHandSide, ScalingPoint, Solve, Step

__all__ = ["ScaledRows"]

# Coordinates times the square of the number of rows up to which the factorization takes no longer than the
# Schur matrix with its checks, and up to which it takes the place of corrections for lost digits.
_FEW, _AFFORDABLE = 1e5, 1e7
# Part of a row that others do not have, relative to the row, below which it is round-off.
_DEPENDENT = 1e-14
_LEAST_RANK = 1e-8  # the same of the rows as they are, from which they are dependent
_PANEL = 32  # reflectors that LAPACK applies together, in its work space


class ScaledRows:
    """The system in scaled coordinates.

    Parameters
    ----------
    plan : Plan
    B : array or csr_array of shape (m, k)
    listed : array of shape (m, plan.size)
        The rows.
    """

    direct = True

    def __init__(self, plan: Plan, B: Any, listed: Array) -> None:
        self.plan, self.B = plan, dense(B)
        self.rows = [
            group.cone.restricted(listed[:, group.part].reshape(-1, *group.shape)) for group in plan.groups
        ]

    # Pays on: hinf1.
    @classmethod
    def of(cls, plan: Plan, program: Program, lost_digits: bool = False) -> ScaledRows | None:
        """Return the system where it costs less than one in the rows, or an affordable exact one."""
        listed, coordinates = plan.listed, plan.size + program.k + program.m
        most = _AFFORDABLE if lost_digits else _FEW
        if not isinstance(listed, np.ndarray) or coordinates * plan.m**2 > most:
            return None
        if (program.u_lo == program.u_hi).any() or not _independent(plan, program, listed):
            return None
        return cls(plan, program.B, listed)

    def factor(self, scaling_point: ScalingPoint) -> Solve:
        return _Factorized(self, scaling_point)


def _independent(plan: Plan, program: Program, listed: Array) -> bool:
    """Whether the rows are independent, and so are the columns of free variables; kept with the rows.

    Of dependent ones the factors are round-off, and so are the steps.
    """
    free = np.isinf(program.u_lo) & np.isinf(program.u_hi) & ~program.in_cones
    known = plan.A.plans.get(ScaledRows)
    if known is None or known[0] is not program.B or not np.array_equal(known[1], free):
        B = dense(program.B)
        rows, columns = np.concatenate([listed, B], axis=1), B[:, free].T
        known = plan.A.plans[ScaledRows] = program.B, free, _has_full_rank(rows) and _has_full_rank(columns)
    return bool(known[2])


def _has_full_rank(G: Array) -> bool:
    m, size = G.shape
    if m == 0:
        return True
    if m > size:
        return False
    R = lapack.dgeqrf(G.T, lwork=_PANEL * m)[0]
    return bool((np.abs(R.diagonal()) > _LEAST_RANK * np.sqrt(np.add.reduce(G * G, axis=1))).all())


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
        plan = system.plan
        bounded = np.isfinite(at.D)
        own: Any = slice(None) if np.logical_and.reduce(bounded) else bounded.nonzero()[0]
        self._plan, self._own = plan, own
        self._blocks = [_ScaledGroup(*parts) for parts in zip(plan.groups, at.roots, at.Z_roots, strict=True)]
        G = [block.rows(A[own]) for block, A in zip(self._blocks, system.rows, strict=True)]
        self._variables, D = None, at.D[own]
        F = None
        if len(at.D_u):
            self._variables, B = _ScaledVariables(at), system.B[own]
            G.append(self._variables.rows(B))
            free = self._variables.free
            F = B[:, free] if np.logical_or.reduce(free) else None
        if np.logical_or.reduce(D > 0):
            G.append(np.diag(np.sqrt(D)))
        if F is not None:
            squares = sum(np.einsum("ij,ij->i", part, part) for part in G)
            size = np.add.reduce(F**2 / np.where(squares > 0, squares, np.inf)[:, None])
            self._weight = 1 / np.where(size > 0, size, 1.0)
            G.append(F * np.sqrt(self._weight))
        self._Q, self._tau, self._R = _reflected(G[0] if len(G) == 1 else np.concatenate(G, axis=1))
        self._F = F
        if F is not None:
            self._P, self._R_free = np.linalg.qr(lapack.dtrtrs(self._R, F, trans=1)[0])

    def __call__(self, rhs: RightHandSide) -> Step:
        """Return the step."""
        plan, own, F, R = self._plan, self._own, self._F, self._R
        right, q, du, variables = rhs.r[own], rhs.q, rhs.r_u, self._variables
        V = np.zeros((len(self._Q), 1), order="F")
        end = self._put_constants(rhs, V[:, 0])
        if variables is not None:
            free, of_variables = variables.free, slice(end, end + len(q))
            V[of_variables, 0] = variables.constant(du, q)
            if F is not None:
                right = right + F @ (self._weight * q[free])
        V = lapack.dormqr("L", "T", self._Q, self._tau, V, _PANEL, overwrite_c=1)[0]
        goal = lapack.dtrtrs(R, right, trans=1)[0]
        change = goal - V[: len(R), 0]
        if F is not None:
            along = self._P.T @ change - lapack.dtrtrs(self._R_free, q[free], trans=1)[0]
            change, goal = change - self._P @ along, goal - self._P @ along
        V[: len(R), 0] = goal
        V = lapack.dormqr("L", "N", self._Q, self._tau, V, _PANEL, overwrite_c=1)[0]
        if variables is not None:
            du = variables.step(V[of_variables, 0])
            if F is not None:
                du[free] = lapack.dtrtrs(self._R_free, along)[0]
        dy = lapack.dtrtrs(R, change)[0]
        if not isinstance(own, slice):
            dy, solved = np.zeros(plan.m), dy
            dy[own] = solved
        return Step(self._matrices(V[:, 0]), du, dy, plan.adjoint(dy))

    def _put_constants(self, rhs: RightHandSide, V: Array) -> int:
        """Set ``V_0`` of all groups, and return its length."""
        plan, end = self._plan, 0
        weights = None if isinstance(rhs.weight, float) else plan.views(rhs.weight)
        for g, block in enumerate(self._blocks):
            weight = rhs.weight if weights is None else float(weights[g].flat[0])
            part = block.constant(weight, None if rhs.R is None else rhs.R[g])
            start, end = end, end + part.size
            V[start:end] = part.ravel()
        return end

    def _matrices(self, V: Array) -> Array:
        """Return ``dX`` of all groups, flat."""
        parts, end = [], 0
        for block in self._blocks:
            start, end = end, end + block.size
            parts.append(block.matrices(V[start:end]).ravel())
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _reflected(G: Array) -> tuple[Array, Array, Array]:
    """Return reflectors, their factors and ``R`` of ``G' = Q R``; a dependent row gets its own coordinate."""
    m = len(G)
    squares = np.add.reduce(G * G, axis=1)
    if not math.isfinite(np.add.reduce(squares)):
        raise LinAlgError("the scaled rows are not finite")
    least = _DEPENDENT * np.sqrt(np.where(squares > 0, squares, 1.0))
    if G.shape[1] >= m:
        Q, tau, _, _ = lapack.dgeqrf(G.T, lwork=_PANEL * m)
        if np.logical_and.reduce(np.abs(Q.diagonal()) >= least):
            return Q, tau, Q[:m]
    Q, tau, _, _ = lapack.dgeqrf(np.concatenate([G, np.diag(least)], axis=1).T, lwork=_PANEL * m)
    return Q, tau, Q[:m]


class _ScaledGroup:
    """The coordinates of a group, ``dX = sym(M'V L')``.

    Parameters
    ----------
    group : Group
    root, Z_root : array
        Of ``X`` and ``Z``.
    """

    def __init__(self, group: Group, root: Array, Z_root: Array) -> None:
        self._cone, self._shape = group.cone, group.shape
        self._L, self._inverse_L = group.cone.factors(root)
        C, self._M = group.cone.factors(Z_root)
        self._centered = C.swapaxes(-1, -2) @ self._L
        self.size = C.size

    def rows(self, A: Array) -> Array:
        """Return ``M A_k L`` of rows in the coordinates of the cone, flat."""
        G: Array = self._M @ (A @ self._L)
        return G.reshape(len(A), self.size)

    def constant(self, weight: float, R: Array | None) -> Array:
        """Return ``M (w I + R) inv(L)' - inv(M)'L``."""
        if R is None and not weight:
            return -self._centered
        half = self._M if R is None else self._M @ self._cone.restricted(R)
        if weight and R is None:
            half = weight * half
        elif weight:
            half = half + weight * self._M
        V: Array = half @ self._inverse_L.swapaxes(-1, -2)
        return V - self._centered

    def matrices(self, V: Array) -> Array:
        """Return the step at flat coordinates."""
        half = self._M.swapaxes(-1, -2) @ V.reshape(self._M.shape) @ self._L.swapaxes(-1, -2)
        return self._cone.extended(symmetrize(half))


class _ScaledVariables:
    """The coordinates of the bounded variables, ``du = S v`` with a symmetric root ``S`` of ``D_u``.

    In a second-order cone ``D_u`` is ``eta^2 (2 w w' - J)`` with ``w'J w = 1``, and ``S`` is ``eta`` times the
    automorphism of the cone that maps its axis to ``w``.

    Attributes
    ----------
    free : boolean array of shape (k,)
    """

    def __init__(self, at: ScalingPoint) -> None:
        self.free = np.isinf(at.D_u)
        self._root: Array = np.sqrt(np.where(self.free, 0.0, np.abs(at.D_u)))
        self._inverse: Array = np.where(self._root > 0, 1 / np.where(self._root > 0, self._root, 1.0), 0.0)
        if at.p_u is not None:
            cones, index = at.cones, at.cones.index
            eta, place = self._root[index], np.ix_(index, index)
            V = automorphism(cones, at.p_u / (math.sqrt(2) * eta))
            S, inverse = np.diag(self._root), np.diag(self._inverse)
            S[place], inverse[place] = eta * V, (cones.J / eta) * (V * cones.J[:, None])
            self._root, self._inverse = S, inverse

    def rows(self, B: Array) -> Array:
        """Return ``B S``."""
        return B @ self._root if self._root.ndim == 2 else B * self._root

    def constant(self, r: Array, q: Array) -> Array:
        """Return ``inv(S) r - S q``, zero for free variables."""
        if self._root.ndim == 2:
            return self._inverse @ r - self._root @ q
        return self._inverse * r - self._root * q

    def step(self, v: Array) -> Array:
        """Return ``S v``."""
        return self._root @ v if self._root.ndim == 2 else self._root * v
