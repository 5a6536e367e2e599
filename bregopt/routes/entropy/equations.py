"""Newton's equations of the method: scalings of the cones, and one factorization of the matrix in ``x``.

With the scaling ``V`` of Nesterov and Todd (1997), ``V X V = S``, the complementarity of a matrix is
``dS = hat - V dX V``. In the coordinates where both are ``diag(d)``, ``hat`` is ``2 R_ij / (d_i + d_j)``, and
``R = target I - diag(d)^2``, less the second order of an affine step (Mehrotra 1992; Todd, Toh and Tütüncü
1998). A vector in a second-order cone has the same form with the scaling ``W`` of its Jordan algebra.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from bregopt.arrays import EPS, Array, IntArray
from bregopt.program.convex_functions import hmat, hvec, hvec_length

_REFINEMENTS = 3
_LEAST_PIVOT = 0.1  # coefficient of a row in its own column, relative to its largest
# Shares of the diagonal, in units of round-off, that may make a matrix definite.
_SHIFTS = 4, 400, 40_000


class Scaling(Protocol):
    """The scaling of one cone at a point and its dual slack; vectors are coordinates."""

    def operator(self) -> Array:
        """Return the matrix ``V (x) V``."""
        ...

    def applied(self, dx: Array) -> Array:
        """Return the product with the operator."""
        ...

    def centered(self, target: float, affine: tuple[Array, Array] | None) -> Array:
        """Return ``hat``, the part of the step of the slack that no step of the point changes."""
        ...


class MatrixScaling:
    """The scaling of a definite ``X`` and its slack ``S``: ``P X P' = P'^-1 S P^-1 = diag(d)``."""

    def __init__(self, X: Any, S: Any) -> None:
        Lx, Ls = np.linalg.cholesky(X), np.linalg.cholesky(S)
        U, self._d, _ = np.linalg.svd(Ls.conj().T @ Lx)
        self._P = (U / np.sqrt(self._d)).conj().T @ Ls.conj().T
        self._V = self._P.conj().T @ self._P
        self._n, self._hermitian = len(X), np.iscomplexobj(X)

    def operator(self) -> Array:
        """Return the matrix of ``M -> V M V``."""
        return hvec(self._V @ _basis(self._n, self._hermitian) @ self._V)

    def applied(self, dx: Array) -> Array:
        """Return the vector of ``V dX V``."""
        return hvec(self._V @ self._matrix(dx) @ self._V)

    def centered(self, target: float, affine: tuple[Array, Array] | None) -> Array:
        """Return ``hat``."""
        P, d = self._P, self._d
        R = np.diag(target - d**2).astype(P.dtype)
        if affine is not None:
            dX, dS = map(self._matrix, affine)
            inverse = np.linalg.inv(P)
            product = (P @ dX @ P.conj().T) @ (inverse.conj().T @ dS @ inverse)
            R = R - (product + product.conj().T) / 2
        return hvec(P.conj().T @ (2 * R / (d[:, None] + d)) @ P)

    def _matrix(self, x: Array) -> Any:
        return hmat(x, self._n, self._hermitian)


class ConeScaling:
    """The scaling of a vector inside a second-order cone and its slack: ``W s = W^-1 x``."""

    def __init__(self, x: Array, s: Array) -> None:
        self._J = -np.ones(len(x))
        self._J[0] = 1.0
        inside = _determinant(x), _determinant(s)
        if min(inside) <= 0:  # underflow, at a vertex
            raise np.linalg.LinAlgError("a vector is on the boundary of its cone")
        a, b = np.sqrt(inside)
        unit_x, unit_s = x / a, s / b
        gamma = np.sqrt((1 + unit_x @ unit_s) / 2)
        self._w = (unit_x + self._J * unit_s) / (2 * gamma)
        self._eta = np.sqrt(a / b)
        self._lam = self._scaled(s)

    def operator(self) -> Array:
        """Return ``W^-2``."""
        turned = self._J * self._w
        return (2 * np.outer(turned, turned) - np.diag(self._J)) / self._eta**2

    def applied(self, dx: Array) -> Array:
        """Return ``W^-2 dx``."""
        turned = self._J * self._w
        return (2 * turned * (turned @ dx) - self._J * dx) / self._eta**2

    def centered(self, target: float, affine: tuple[Array, Array] | None) -> Array:
        """Return ``hat``."""
        lam = self._lam
        R = -_jordan(lam, lam)
        R[0] += target
        if affine is not None:
            R = R - _jordan(self._unscaled(affine[0]), self._scaled(affine[1]))
        # lam o v = R
        determinant = _determinant(lam)
        first = (lam[0] * R[0] - lam[1:] @ R[1:]) / determinant
        v = np.concatenate([[first], (R[1:] - first * lam[1:]) / lam[0]])
        return self._unscaled(v)

    def _scaled(self, s: Array) -> Array:
        """Return ``W s``."""
        w0, w1 = self._w[0], self._w[1:]
        first = self._w @ s
        return self._eta * np.concatenate([[first], s[1:] + (s[0] + w1 @ s[1:] / (1 + w0)) * w1])

    def _unscaled(self, x: Array) -> Array:
        """Return ``W^-1 x``."""
        w0, w1 = self._w[0], self._w[1:]
        first = w0 * x[0] - w1 @ x[1:]
        return np.concatenate([[first], x[1:] + (-x[0] + w1 @ x[1:] / (1 + w0)) * w1]) / self._eta


def _determinant(x: Array) -> float:
    norm = float(np.linalg.norm(x[1:]))
    return float((x[0] - norm) * (x[0] + norm))


def _jordan(x: Array, y: Array) -> Array:
    return np.concatenate([[x @ y], x[0] * y[1:] + y[0] * x[1:]])


@lru_cache(maxsize=8)
def _basis(n: int, hermitian: bool) -> Any:
    """Return the matrices of the unit vectors."""
    return hmat(np.eye(hvec_length(n, hermitian)), n, hermitian)


def length_of(X: Any, D: Any) -> float:
    """Return the length of the step `D` at which a definite matrix becomes singular."""
    R = np.linalg.inv(np.linalg.cholesky(X))
    least = float(np.linalg.eigvalsh(R @ D @ R.conj().T)[0])
    return -1 / least if least < 0 else np.inf


def length_in_cone(x: Array, dx: Array) -> float:
    """Return the length of the step at which a vector leaves its second-order cone."""
    a, b, c = _determinant(dx), x[0] * dx[0] - x[1:] @ dx[1:], _determinant(x)
    axis = -x[0] / dx[0] if dx[0] < 0 else np.inf
    root = b * b - a * c
    if root < 0 or (a >= 0 and b >= 0):
        return float(axis)
    # The smaller positive root of c + 2 b t + a t^2, without cancellation.
    t = c / (-b + np.sqrt(root)) if b < 0 else (b + np.sqrt(root)) / -a
    return float(min(axis, t))


class MatrixCone:
    """The psd matrices of one block."""

    def __init__(self, own: Any) -> None:
        self.place, self.identity, self.degree = own.place, own.identity, own.n
        self._matrix = own.matrix_of

    def central(self, x: Array, dual: Array, near: Array) -> Array:
        """Return the slack on the central path that is as large as the gradient, in the norm of the point."""
        d, U = np.linalg.eigh(self._matrix(x))
        root = U * np.sqrt(d)
        size = np.abs(np.linalg.eigvalsh(root.conj().T @ self._matrix(dual) @ root)).max()
        return hvec((U * (size / d)) @ U.conj().T)

    def inverse(self, x: Array, mu: float) -> Array:
        """Return ``mu X^-1``."""
        d, U = np.linalg.eigh(self._matrix(x))
        return hvec((U * (mu / d)) @ U.conj().T)

    def scaling(self, x: Array, S: Array) -> Scaling:
        """Return the scaling at a point and its slack."""
        return MatrixScaling(self._matrix(x), self._matrix(S))

    def length(self, x: Array, dx: Array) -> float:
        """Return the length of a step to the boundary."""
        return length_of(self._matrix(x), self._matrix(dx))


class VectorCone:
    """A second-order cone."""

    degree = 1

    def __init__(self, place: IntArray) -> None:
        self.place = place
        self.identity = np.zeros(len(place))
        self.identity[0] = 1.0

    def central(self, x: Array, dual: Array, near: Array) -> Array:
        """Return the nearer slack: these cones are small."""
        return near

    def inverse(self, x: Array, mu: float) -> Array:
        """Return ``mu x^-1`` in the Jordan algebra."""
        inverse = -x * (2 * mu / (x[0] ** 2 - x[1:] @ x[1:]))
        inverse[0] *= -1
        return inverse

    def scaling(self, x: Array, S: Array) -> Scaling:
        """Return the scaling at a point and its slack."""
        return ConeScaling(x, S)

    def length(self, x: Array, dx: Array) -> float:
        """Return the length of a step to the boundary."""
        return length_in_cone(x, dx)


class OwnColumns(NamedTuple):
    """The solutions ``x = x0 + N z`` of equalities that have columns of their own, such as slack matrices.

    Parameters
    ----------
    rows, columns : int array of shape (p,)
        Each of the rows has one of the columns, which no other row has.
    pivot : array of shape (p,)
        The coefficients there.
    N : sparse array of shape (n, n - p)
    others : int array
        The other rows.
    """

    rows: IntArray
    columns: IntArray
    pivot: Array
    N: Any
    others: IntArray


def own_columns(E: Array) -> OwnColumns | None:
    """Return the columns of the rows, None where no row has a column of its own with a large coefficient."""
    size, n = np.abs(E), E.shape[1]
    alone = np.where(np.count_nonzero(E, axis=0) == 1, size, 0.0)
    largest = alone.max(axis=1, initial=0.0)
    rows = np.flatnonzero((largest > 0) & (largest >= _LEAST_PIVOT * size.max(axis=1, initial=0.0)))
    if not len(rows):
        return None
    columns = alone[rows].argmax(axis=1)
    left, pivot = np.delete(np.arange(n), columns), E[rows, columns]
    if not len(left):
        return None
    N = np.zeros((n, len(left)))
    N[left, np.arange(len(left))] = 1.0
    N[columns] = -E[np.ix_(rows, left)] / pivot[:, None]
    return OwnColumns(rows, columns, pivot, sp.csr_array(N), np.delete(np.arange(len(E)), rows))


# Pays on: the least ellipsoid of 28 points through CVXPY.
class ReducedSystem:
    """The equations of :class:`DenseSystem` in the ``z`` of rows with columns of their own."""

    def __init__(self, K: Array, E: Array, own: OwnColumns) -> None:
        self._K, self._E, self._own = K, E, own
        self._rest = DenseSystem(own.N.T @ (K @ own.N), E[own.others] @ own.N)

    def solve(self, b: Array, r: Array) -> tuple[Array, Array]:
        """Return ``dx`` and ``dnu``, refined."""
        own, dx, dnu = self._own, np.zeros(len(b)), np.zeros(len(r))
        for _ in range(2):
            rest, missed = b - self._K @ dx + self._E.T @ dnu, r - self._E @ dx
            x, nu = np.zeros(len(b)), np.zeros(len(r))
            x[own.columns] = missed[own.rows] / own.pivot
            z, nu[own.others] = self._rest.solve(
                own.N.T @ (rest - self._K @ x), missed[own.others] - self._E[own.others] @ x
            )
            x += own.N @ z
            nu[own.rows] = (self._K @ x - rest)[own.columns] / own.pivot
            dx, dnu = dx + x, dnu + nu
        return dx, dnu


class DenseSystem:
    """``K dx - E' dnu = b``, ``E dx = r`` by Cholesky factorizations of ``K + E'E`` and of the rows."""

    def __init__(self, K: Array, E: Array) -> None:
        self._K, self._E = K, E
        diagonal = K.diagonal()
        self._unit = 1 / np.sqrt(np.maximum(diagonal, EPS * float(np.abs(diagonal).max(initial=0.0))))
        self._rows = E * self._unit
        scaled = K * self._unit * self._unit[:, None] + self._rows.T @ self._rows
        self._root = _root_of(scaled, np.ones(len(K)))
        if len(E):
            self._half = _solved(self._root, self._rows.T)
            M = self._rows @ self._half
            self._schur = _root_of(M, M.diagonal().copy())

    def solve(self, b: Array, r: Array) -> tuple[Array, Array]:
        """Return ``dx`` and ``dnu``, refined."""
        dx, dnu = np.zeros(len(b)), np.zeros(len(r))
        for _ in range(_REFINEMENTS):
            rest, missed = b - self._K @ dx + self._E.T @ dnu, r - self._E @ dx
            x, nu = self._once(rest * self._unit, missed)
            dx, dnu = dx + x * self._unit, dnu + nu
        return dx, dnu

    def _once(self, b: Array, r: Array) -> tuple[Array, Array]:
        if not len(r):
            return _solved(self._root, b), r
        y = _solved(self._root, b + self._rows.T @ r)
        nu = _solved(self._schur, r - self._rows @ y)
        return y + self._half @ nu, nu


class DiagonalSystem:
    """The same equations with a diagonal ``K``."""

    def __init__(self, diagonal: Array, E: Array) -> None:
        self._K, self._E = diagonal, E
        self._half = E / diagonal
        if len(E):
            M = self._half @ E.T
            self._schur = _root_of(M, M.diagonal().copy())

    def solve(self, b: Array, r: Array) -> tuple[Array, Array]:
        """Return ``dx`` and ``dnu``, refined once."""
        if not len(r):
            return b / self._K, r
        dx, dnu = np.zeros(len(b)), np.zeros(len(r))
        for _ in range(2):
            rest, missed = b - self._K * dx + self._E.T @ dnu, r - self._E @ dx
            nu = _solved(self._schur, missed - self._half @ rest)
            dx, dnu = dx + (rest + self._E.T @ nu) / self._K, dnu + nu
        return dx, dnu


def _root_of(M: Array, diagonal: Array) -> Array:
    """Return the Cholesky factor of a matrix plus the least share of a diagonal that makes it definite.

    Refined steps do not need the exact factor. SciPy's checks take longer than LAPACK with a small matrix.
    """
    for share in _SHIFTS:
        M[np.diag_indices(len(M))] += share * EPS * diagonal
        root, info = lapack.dpotrf(M.T, lower=1, clean=0)
        if info == 0:
            return root
    raise np.linalg.LinAlgError("the matrix is not positive definite")


def _solved(root: Array, b: Array) -> Array:
    return lapack.dpotrs(root, b, lower=1)[0]
