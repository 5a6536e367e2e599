"""Bordered and very large systems of linear equations, and the ordinary variables that border them.

The equations of the variables are ``du + D_u dz = r_u`` with ``D_u = diag(d) + P P'``: each second-order cone
has a column ``p`` of ``P``, and its variables are in no other. Free and nearly free variables border the
system in the multipliers of the rows, with ``inv(D_u)`` in its corner. The others are eliminated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, lu_factor, lu_solve

from bregopt import linalg
from bregopt.arrays import TINY, Array, Mask
from bregopt.clock import checkpoint
from bregopt.linalg import ZERO_DIAGONAL, DefiniteFactor, dense, symmetrize
from bregopt.program import NO_CONES, SecondOrderCones
from bregopt.records import cached_property, dataclass

# Share of the entries of a sparse matrix from which it is added or multiplied as a dense one.
_FULL = 0.2
# Relative residual at which conjugate gradients for a Newton step end, and the limit on their steps. The next
# Newton step corrects the error.
CG_TOL, CG_STEPS = 1e-3, 300
# Length of a step along a direction without curvature, relative to the preconditioned one.
_FLAT_STEP = 1e6
# Limit on the new corrections of a step whose system is formed. With half as many some of the ill-
# conditioned problems of SDPLIB (hinf, qap) lose a digit. More gain little, and each holds its matrices.
_REFINEMENTS = 8


@dataclass(frozen=True, eq=False)
class VariableMetric:
    """``D_u``, and the variables that border the system.

    Parameters
    ----------
    d : array of shape (k,)
        Infinite for a free variable.
    bordering : boolean array of shape (k,)
        All variables of a cone, or none.
    cones : SecondOrderCones
    p : array of shape (size,), optional
        The columns of ``P``. In a cone ``inv(D_u)`` is ``diag(1 / d) + q q'`` with ``q = p / d``.
    """

    d: Array
    bordering: Mask
    cones: SecondOrderCones = NO_CONES
    p: Array | None = None

    @classmethod
    def split(
        cls, d: Array, cones: SecondOrderCones, p: Array | None, B: Any, diagonal: Array, ratio: float
    ) -> VariableMetric:
        """Return the metric; free variables and those nearly free border the system.

        Eliminating such a variable would cancel the digits of the rows that share it. Its term is more than
        `ratio` times the rest of the diagonal entry of at least two rows.

        Parameters
        ----------
        d, cones, p
            Those of the metric.
        B : array or csr_array of shape (rows, k)
        diagonal : array of shape (rows,)
        ratio : float
        """
        bordering: Mask = np.isinf(d)
        if not bordering.all():
            own = np.where(bordering, 0.0, d)
            if p is not None:
                own[cones.index] += p**2
            # Pays on: 300 equalities, 8 variables of wide bounds, n = 25.
            bordering |= _exceeding(B, own, diagonal, ratio)
        if p is not None:  # a cone as a whole
            marked = np.maximum.reduceat(bordering[cones.index], cones.starts)
            bordering[cones.index] = marked[cones.owner]
        return cls(d, bordering, cones, p)

    @cached_property
    def borders(self) -> bool:
        """Whether variables border the system."""
        return bool(np.logical_or.reduce(self.bordering))

    @property
    def corner(self) -> Array:
        """``inv(D_u)`` of the bordering variables, shape ``(bordering, bordering)``."""
        inverse = np.diag(1 / self.d[self.bordering])
        if self._inverse_columns is not None:
            own = np.flatnonzero(self.bordering[self.cones.index])
            place = (np.cumsum(self.bordering) - 1)[self.cones.index[own]]
            q, owner = self._inverse_columns[own], self.cones.owner[own]
            inverse[np.ix_(place, place)] += np.outer(q, q) * (owner[:, None] == owner)
        return inverse

    @property
    def products(self) -> Array:
        """The entries of ``inv(D_u)`` beside its diagonal part, for the pairs of variables in one cone."""
        q, (one, other) = self._inverse_columns, self.cones.pairs
        return np.zeros(0) if q is None else q[one] * q[other]

    def quotient(self, v: Array) -> Array:
        """Return ``inv(D_u) v`` for a vector of the bordering variables."""
        whole = np.zeros(len(self.d))
        whole[self.bordering] = v
        quotient: Array = whole / self.d
        if self._inverse_columns is not None:
            q, index = self._inverse_columns, self.cones.index
            quotient[index] += q * self.cones.inner(q, whole[index])[self.cones.owner]
        return quotient[self.bordering]

    def product(self, v: Array) -> Array:
        """Return ``D_u v`` of the eliminated variables, zero for the others."""
        product: Array = self._eliminated * v
        if self._columns is not None:
            index, owner = self.cones.index, self.cones.owner
            product[index] += self._columns * self.cones.inner(self._columns, v[index])[owner]
        return product

    def add_gram(self, M: Array, B: Any) -> None:
        """Add ``B D_u B'`` of the eliminated variables to `M`."""
        if self.bordering.all():
            return
        d, p, cones = self._eliminated, self._columns, self.cones
        if isinstance(B, np.ndarray):
            gram = (B * d) @ B.T
            if p is not None:
                BP = np.add.reduceat(B[:, cones.index] * p, cones.starts, axis=1)
                gram += BP @ BP.T
            M += gram
            return
        _add_product(M, _scaled(B, d), B)
        if p is not None:
            BP = B @ sp.csr_array((p, (cones.index, cones.owner)), (len(d), cones.count))
            _add_product(M, BP, BP)

    @cached_property
    def _eliminated(self) -> Array:
        """``d`` of the eliminated variables, zero for the others."""
        return np.where(self.bordering, 0.0, self.d)

    @cached_property
    def _columns(self) -> Array | None:
        """``p`` of the eliminated variables, zero for the others; None without any."""
        if self.p is None or self.bordering[self.cones.index].all():
            return None
        return np.where(self.bordering[self.cones.index], 0.0, self.p)

    @cached_property
    def _inverse_columns(self) -> Array | None:
        """``q`` of the bordering variables, zero for the others; None without any."""
        if self.p is None or not self.bordering[self.cones.index].any():
            return None
        return np.where(self.bordering[self.cones.index], self.p / self.d[self.cones.index], 0.0)


def _exceeding(B: Any, d: Array, diagonal: Array, ratio: float) -> Mask:
    """Return which variables have terms ``d_j B_kj^2`` above `ratio` times the rest of two rows or more.

    The rest is the `diagonal` entry. Where the variables with terms above it are as many as the rows of these
    terms or more, as in rows without a matrix, they leave each other digits, and the rest has their terms.
    """
    if isinstance(B, np.ndarray):
        terms = B**2 * d
        large = terms > ratio * diagonal[:, None]
        columns, rows = np.logical_or.reduce(large), np.logical_or.reduce(large, axis=1)
        if np.count_nonzero(columns) >= np.count_nonzero(rows):
            rest = (diagonal + np.add.reduce(terms, axis=1))[:, None] - terms
            large = terms > ratio * rest
        several: Mask = np.add.reduce(large) > 1  # sums of booleans are integers
        return several
    row = np.repeat(np.arange(B.shape[0]), np.diff(B.indptr))
    terms = B.data**2 * d[B.indices]
    large = terms > ratio * diagonal[row]
    if len(np.unique(B.indices[large])) >= len(np.unique(row[large])):
        rest = (diagonal + np.bincount(row, terms, len(diagonal)))[row] - terms
        large = terms > ratio * rest
    return np.bincount(B.indices[large], minlength=B.shape[1]) > 1


def _scaled(B: Any, d: Array) -> Any:
    """Return ``B diag(d)`` of a CSR matrix, without the columns whose factor is zero."""
    data = B.data * d[B.indices]
    if d.all():
        return sp.csr_array((data, B.indices, B.indptr), B.shape)
    scaled = sp.csr_array((data, B.indices, B.indptr), B.shape, copy=True)
    scaled.eliminate_zeros()
    return scaled


def _add_product(M: Array, left: Any, right: Any) -> None:
    """Add the product ``left right'`` of sparse matrices to `M`, entry by entry where it has few."""
    if left.nnz > _FULL * left.shape[0] * left.shape[1]:
        M += dense(left) @ dense(right).T
        return
    G = left @ right.T
    if G.nnz > _FULL * M.size:
        M += G.toarray()
        return
    row = np.repeat(np.arange(len(M)), np.diff(G.indptr))
    M[row, G.indices] += G.data  # a product has each of its entries once


def conjugate_gradients(
    operator: Callable[[Array], Array],
    right: Array,
    diagonal: Array,
    tol: float,
    limit: int,
) -> Array:
    """Solve a positive semidefinite system, preconditioned by its diagonal, to a relative residual."""
    x, flat = linalg.conjugate_gradients(operator, right, lambda r: r / diagonal, tol, limit)
    return x if flat is None else x + _FLAT_STEP * flat  # no curvature along it: take a long step


class Corrections:
    """Corrections to the solutions of one system, which all its right-hand sides share.

    Plain refinement converges slowly, or diverges, once the factorization has lost the digits of the least
    eigenvalues. These are few, and the method of generalized conjugate residuals (Eisenstat, Elman, Schultz
    1983) takes about one correction for each. The images of corrections are computed from the corrections
    themselves, with their round-off. So no correction increases the residual. The corrections of one
    right-hand side already contain most of what the next one needs.
    """

    def __init__(self) -> None:
        self._made: list[tuple[Array, Array]] = []  # images, which are orthonormal, and corrections

    def refined(
        self,
        residual: Array,
        solution: Array,
        correction: Callable[[Array], tuple[Array, Array]],
        enough: float,
    ) -> Array:
        """Return a solution plus the combination of corrections that leaves the least residual.

        Parameters
        ----------
        residual : array of shape (m,)
            Of the `solution`.
        solution : array
        correction : callable
            Returns the image of an approximate solution for a residual, and that solution.
        enough : float
            Norm of a residual that is not refined.
        """
        for image, made in self._made:
            along = image @ residual
            residual, solution = residual - along * image, solution + along * made
        for _ in range(_REFINEMENTS):
            if not float(residual @ residual) > enough**2 or not self._add(*correction(residual)):
                break
            image, made = self._made[-1]
            along = image @ residual
            residual, solution = residual - along * image, solution + along * made
        return solution

    def _add(self, image: Array, solution: Array) -> bool:
        """Add a correction, its image orthogonal to those of the others; False if nothing is left of it."""
        for other, made in self._made:
            along = other @ image
            image, solution = image - along * other, solution - along * made
        length = math.sqrt(image @ image)
        if not 0 < length < math.inf:
            return False
        self._made.append((image / length, solution / length))
        return True


def bordered(
    M: Array, F: Array, corner: Array | None = None
) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return the solver of ``M y + F u = b, F'y - E u = q``, with `corner` for ``E``.

    Parameters
    ----------
    M : array of shape (m, m)
        Positive semidefinite.
    F : array of shape (m, k)
    corner : array of shape (k, k), optional
        Positive semidefinite; zero by default.
    """
    if F.shape[1] == 0:
        factor = DefiniteFactor(M)
        return lambda b, q: (factor.solve(b, refined=False), q)
    E = np.zeros((F.shape[1],) * 2) if corner is None else corner
    try:
        return _solver_by_elimination(M, F, E)
    except LinAlgError:
        return _solver_of_whole(M, F, E)


def _solver_by_elimination(M: Array, F: Array, E: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return the solver of the bordered system, without refinement, by elimination of ``y``.

    ``M`` may be nearly singular where the whole system is not. Adding ``F R`` times the second equations
    to the first makes it definite, with a diagonal ``R`` and a term ``F R F'`` of the size of ``M``. With
    ``w = (I - R E) u``, where ``||R E|| <= 1/2``,

        (M + F R F') y + F w = b + F R q,     F'y - E inv(I - R E) w = q.
    """
    diagonal = M.diagonal()
    size = np.add.reduce(F**2 / np.where(diagonal > ZERO_DIAGONAL, diagonal, np.inf)[:, None])
    size[size == 0] = 1.0  # only in rows without a size of their own
    R = 1 / (size + 2 * np.add.reduce(np.abs(E), axis=1))
    growth = np.linalg.inv(np.eye(len(E)) - R[:, None] * E) if np.logical_or.reduce(E, axis=None) else None
    FR = F * R
    checkpoint()
    factor = DefiniteFactor(M + FR @ F.T, repair=False)
    inverse = factor.solve(F, refined=False)
    border = DefiniteFactor(F.T @ inverse + (0.0 if growth is None else symmetrize(E @ growth)), repair=False)

    def solve(b: Array, q: Array) -> tuple[Array, Array]:
        y = factor.solve(b + FR @ q, refined=False)
        w = border.solve(F.T @ y - q, refined=False)
        return y - inverse @ w, w if growth is None else growth @ w

    return solve


def _solver_of_whole(M: Array, F: Array, E: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return the solver of the bordered system as a whole, regularized at the level of round-off."""
    m, f = F.shape
    whole = np.block([[M, F], [F.T, -E]])
    scale = 1 / np.sqrt(np.maximum(np.abs(whole).max(axis=1), TINY))
    regularized = scale[:, None] * whole * scale + 1e-14 * np.diag([1.0] * m + [-1.0] * f)
    lu = lu_factor(regularized, check_finite=False)  # a step that is not finite is rejected

    def solve(b: Array, q: Array) -> tuple[Array, Array]:
        x = scale * lu_solve(lu, scale * np.concatenate([b, q]), check_finite=False)
        return x[:m], x[m:]

    return solve
