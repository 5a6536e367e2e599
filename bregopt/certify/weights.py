"""How far ``X`` is from the optimum of a weighted sum of squares ``mu |H o (X - X0)|^2``, entry by entry.

With a multiplier ``Z`` of ``X psd`` the minimizer ``X_y`` of the Lagrangian is known entry by entry, and the
inequality of :mod:`bregopt.certify.accuracy` has one more term: for the optimum ``X* = F + E``

    mu |H o E|^2 + <Z, X*> <= f(F) - d(y, Z) = mu |H o (F - X_y)|^2 + <Z, F> + the rows' terms.

The first term alone bounds an entry by a radius divided by its weight: poorly where weights are small, not at
all where they are zero. The second one bounds these entries, too, as a psd matrix near ``F`` turns its range
only. Let ``V = (N, P)`` be eigenvectors of ``Z``, those of its eigenvalues ``z`` above zero first, with
``P'FP = diag(x)``. As ``Y = V'X*V`` is psd and ``Y_PP <= diag(x) + |E|``,

    <Z, X*> >= sum_ij Y_ij^2 z_i / (x_j + |E|)  over the pairs of N and P,  and  tr Y_NN <= <Z, X*> / min z.

So ``E`` without its part in ``N`` lies in an ellipsoid ``T'KT / 2 <= e^2``. ``K`` is the matrix of Newton's
method for the optimality conditions (:mod:`bregopt.routes.derivatives`), and ``|T_ab| <= e sqrt(2 m'K^-1 m)``
for the coordinates ``m`` of an entry. The new bound makes ``|E|`` smaller, which gives a better ``K``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

from bregopt.arrays import EPS, TINY, Array, IntArray
from bregopt.certify.restoration import Restored
from bregopt.certify.slacks import diagonal_bounds
from bregopt.linalg import factorized
from bregopt.program.program import Program

# The order up to which the coordinates of a matrix, 5,050 then, are the unknowns of a dense system. It takes
# two seconds and a gigabyte.
# Pays on: weights over six decades, n = 80.
LARGEST_ORDER = 100
_ROUNDS, _ENOUGH = 6, 1e-9  # until all bounds are this fraction of the largest diagonal entry
_SLACK = 1.001  # for the rounding of the bounds themselves
_PART = 10  # by which the part in N is smaller than the others
_AT_ONCE = 2_000_000  # elements of the system that are gathered in one call


class WeightedTerms(NamedTuple):
    """The terms of ``f(F) - d(y, Z)``.

    Parameters
    ----------
    known : float
        The terms that are known: all but those of entries without weight.
    square : tuple of float
        For each block ``mu |H o (F - X_y)|^2``, a part of `known`.
    slopes : tuple of arrays of shape (n_b, n_b)
        Bounds on the slope of the Lagrangian at entries without weight, zero at others.
    changes : tuple of arrays of shape (n_b, n_b)
        Bounds on ``|E|`` at entries without weight, by which the slopes are multiplied.
    spectra : tuple of pairs (z, V)
        The eigenvalues of each ``Z``, ascending, and the eigenvectors. Those at round-off are zero.
    """

    known: float
    square: tuple[float, ...]
    slopes: tuple[Array, ...]
    changes: tuple[Array, ...]
    spectra: tuple[tuple[Array, Array], ...]

    @property
    def excess(self) -> float:
        """The sum of all terms."""
        return self.excess_for(self.changes)

    def excess_for(self, changes: Sequence[Array]) -> float:
        """Return the sum of all terms for other bounds on the changes."""
        pairs = zip(self.slopes, changes, strict=True)
        return self.known + sum(float(np.vdot(slope, change)) for slope, change in pairs)


def weighted_terms(
    program: Program, near: Restored, y: Array, S: Sequence[Array | None], of_rows: float
) -> WeightedTerms | None:
    """Return the terms at a feasible point and its multipliers.

    An entry without weight has no minimizer. There the slope of the Lagrangian counts, times the largest
    change of the entry that the rows on the diagonal allow; None where they allow any.

    Parameters
    ----------
    program : Program
        All blocks have weighted squares.
    near : Restored
    y : array of shape (m,)
    S : sequence of arrays of shape (n_b, n_b)
        The multipliers of ``X psd``; their psd parts count.
    of_rows : float
        The rows' terms.
    """
    known, square, slopes, changes, spectra = of_rows, [], [], [], []
    for b, block in enumerate(program.blocks):
        multiplier, F = S[b], near.X[b]
        if multiplier is None:
            return None
        mu, X0, H = _objective(program, b)
        z, V, first = _positive_part(multiplier)
        Q, own = V[:, first:], z[first:]
        Z = (Q * own) @ Q.T
        W = block.C - program.A.adjoint(y, b)
        slope = np.abs(2 * mu * H**2 * (F - X0) + W - Z)
        rest = near.left(b, F)
        terms = 2 * mu * H**2 * (np.abs(F) + np.abs(X0)) + np.abs(block.C) + np.abs(W)
        slope += EPS * (4 * terms + (len(own) + 2) / 2 * ((np.abs(Q) * own) @ np.abs(Q).T))
        slope += 2 * mu * H**2 * np.abs(rest + rest.T)
        distance = np.divide(slope, 2 * H, out=np.zeros_like(F), where=H > 0)
        square.append(float(np.linalg.norm(distance)) ** 2 / mu)
        largest = diagonal_bounds(program)[b] if (H == 0).any() else np.zeros(block.n)
        if not np.isfinite(largest).all():
            return None
        changes.append(np.where(H == 0, np.abs(F) + np.sqrt(np.outer(largest, largest)), 0.0))
        slopes.append(np.where(H == 0, slope, 0.0))
        spectra.append((z, V))
        x, U, first = _positive_part(F)
        N, P = Q * np.sqrt(own), U[:, first:] * np.sqrt(x[first:])
        known += float(np.linalg.norm(N.T @ P) + np.linalg.norm(N.T @ near.left(b, P))) ** 2
    known += sum(square)
    return WeightedTerms(known, tuple(square), tuple(slopes), tuple(changes), tuple(spectra))


def _objective(program: Program, b: int) -> tuple[float, Array, Array]:
    """Return ``mu``, ``X0`` and the weights of a block."""
    nearness = program.blocks[b].nearness
    assert nearness is not None
    return nearness.mu, np.asarray(nearness.X0), np.asarray(nearness.parameters["weights"], dtype=np.float64)


def _positive_part(S: Array) -> tuple[Array, Array, int]:
    """Return the eigenvalues, zero at round-off, the eigenvectors, and where the positive ones start."""
    w, V = np.linalg.eigh(S)
    first = int(np.searchsorted(w, len(w) * EPS * max(float(w[-1]), 0.0), side="right"))
    w[:first] = 0.0
    return w, V, first


def entries_by_curvature(
    program: Program, near: Restored, terms: WeightedTerms, entries: Sequence[Array]
) -> list[Array]:
    """Return sharper bounds on the distance of the optimum from a feasible point.

    Parameters
    ----------
    program : Program
    near : Restored
    terms : WeightedTerms
    entries : sequence of arrays of shape (n_b, n_b)
        Bounds on ``|X* - F|``, infinite where unknown.
    """
    bounds = [np.where(np.isfinite(own), own, c) for own, c in zip(entries, terms.changes, strict=True)]
    enough = _ENOUGH * max(float(F.diagonal().max()) for F in near.X)
    for _ in range(_ROUNDS):
        before = max(float(own.max()) for own in bounds)
        excess = terms.excess_for([np.minimum(*pair) for pair in zip(terms.changes, bounds, strict=True)])
        for b, block in enumerate(program.blocks):
            if block.n > LARGEST_ORDER:
                continue
            found = _ellipsoid(program, b, near.X[b], terms.spectra[b], excess, bounds[b])
            if found is None:
                continue
            bounds[b] = np.minimum(bounds[b], _SLACK * found)
        largest = max(float(own.max()) for own in bounds)
        if largest <= enough or not largest < before / 2:
            break
    return bounds


def _ellipsoid(
    program: Program, b: int, F: Array, spectrum: tuple[Array, Array], excess: float, entries: Array
) -> Array | None:
    """Return bounds on ``|X* - F|`` by the ellipsoid, None where it is not bounded."""
    mu, _, H = _objective(program, b)
    z, V = spectrum
    n, largest = len(F), math.sqrt(mu) * float(H.max())
    # The part in N is small where its eigenvalues are large. The others are zero, as that omits a psd term.
    p = int(np.searchsorted(z, _PART * largest * math.sqrt(excess), side="right"))
    P, N, z = V[:, :p], V[:, p:], z[p:]
    x, U = np.linalg.eigh(P.T @ F @ P)
    V = np.hstack([N, P @ U])
    k = n - p
    ratio = np.zeros((n, n))
    ratio[:k, k:] = cone_curvature(z, x, float(np.linalg.norm(entries)))
    tangent = np.ones((n, n), dtype=bool)
    tangent[:k, :k] = False
    rotated = V.T @ F @ V
    in_N = float(np.linalg.norm(rotated[:k, :k])) + (excess / float(z[0]) if k else 0.0)
    e = math.sqrt(excess) + float(np.linalg.norm(np.sqrt(ratio) * rotated)) + largest * in_N
    if k == n:
        return np.full((n, n), in_N)
    i, j = np.nonzero(np.triu(tangent))
    K, scale = curvature_of(V, 2 * mu * H**2, ratio, i, j)
    noise = len(i) * EPS * (len(i) + 4 * n + 20)  # of the elements of K, and of its factorization
    K[np.diag_indices(len(i))] -= noise
    root, definite = factorized(K, overwrite=True)
    if not definite:
        return None
    a, c = np.triu_indices(n)
    unit = scale * np.where(i == j, 0.5, np.sqrt(0.5))
    bound, width = np.zeros((n, n)), max(1, _AT_ONCE // len(i))
    for start in range(0, len(a), width):
        first, second = a[start : start + width], c[start : start + width]
        M = (V[first][:, i] * V[second][:, j] + V[first][:, j] * V[second][:, i]) * unit
        half = blas.dtrsm(1.0, root, M.T, lower=1, overwrite_b=1)
        bound[first, second] = e * np.sqrt(2 * np.einsum("ij,ij->j", half, half)) + in_N
    return np.maximum(bound, bound.T)


def cone_curvature(z: Array, x: Array, size: float) -> Array:
    """Return the factors of ``Y_ij^2`` in the lower bound of ``<Z, X*>``, shape (len(z), len(x)).

    Parameters
    ----------
    z, x : array
        The eigenvalues of ``Z`` above zero, and those of ``P'FP``.
    size : float
        A bound on ``|X* - F|``.
    """
    return z[:, None] / np.maximum(np.maximum(x, 0.0) + size, TINY)


def curvature_of(V: Array, squares: Array, ratio: Array, i: IntArray, j: IntArray) -> tuple[Array, Array]:
    """Return the matrix of ``<T, S o T> + sum_ij r_ij (V'TV)_ij^2`` for matrices ``T`` of a tangent space.

    The coordinates are ``(V'TV)_ij``, times the root of two off the diagonal, which keeps the norm. The
    products of two eigenvectors, entry by entry, give all elements of the matrix by one congruence.

    Parameters
    ----------
    V : array of shape (n, n)
        Orthogonal.
    squares, ratio : array of shape (n, n)
        ``S`` and ``r >= 0``; the latter for ``i < j``.
    i, j : int array of shape (t,)
        The places of the tangent space on and above the diagonal.

    Returns
    -------
    array of shape (t, t)
        The matrix, with a diagonal of ones.
    array of shape (t,)
        By which its rows and columns are multiplied.
    """
    a, b = np.triu_indices(len(V))
    at = np.empty(V.shape, dtype=np.intp)
    at[a, b] = at[b, a] = np.arange(len(a))
    pairs = V[:, a] * V[:, b]
    G = pairs.T @ (squares @ pairs)
    unit = np.where(i == j, np.sqrt(0.5), 1.0)
    diagonal = unit**2 * (G[at[i, i], at[j, j]] + G[at[i, j], at[i, j]]) + ratio[i, j]
    scale = 1 / np.sqrt(np.maximum(diagonal, TINY))
    unit *= scale
    K = np.empty((len(i), len(i)))
    width = max(1, _AT_ONCE // max(len(i), 1))
    for start in range(0, len(i), width):
        part = slice(start, start + width)
        first, second = i[part, None], j[part, None]
        K[part] = G[at[first, i], at[second, j]]
        K[part] += G[at[first, j], at[second, i]]
        K[part] *= unit[part, None] * unit
    K[np.diag_indices(len(i))] = diagonal * scale**2
    return K, scale
