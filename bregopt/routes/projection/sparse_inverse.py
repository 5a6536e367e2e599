"""The matrix of a given pattern that maximizes ``log det K - <C, K>``.

Its inverse agrees with ``C`` on the pattern, and is the completion of ``C`` of largest determinant
(Dempster 1972, Covariance selection, Biometrics 28; Grone, Johnson, Sa, Wolkowicz 1984, Positive definite
completions of partial Hermitian matrices). For a chordal pattern it is a sum of inverses of clique
submatrices; otherwise Newton's method finds it (Dahl, Vandenberghe, Roychowdhury 2008, Covariance selection
for nonchordal graphs via chordal embedding, Optim. Methods Softw. 23).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve

from bregopt.arrays import Array, IntArray
from bregopt.cache import cached_property
from bregopt.clock import checkpoint
from bregopt.linalg import inverse_of, root_of
from bregopt.presolve.cliques import chordal_tree
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["Pattern", "closed_form", "newton_direction", "tree_inverse"]


@dataclass(frozen=True, eq=False)
class Pattern:
    """A symmetric pattern with the whole diagonal: the pairs ``i < j``, after them the diagonal.

    Parameters
    ----------
    n : int
    i, j : int array
    """

    n: int
    i: IntArray
    j: IntArray

    @classmethod
    def of(cls, n: int, i: IntArray, j: IntArray) -> Pattern:
        """Return the pattern of some pairs off the diagonal, each given once."""
        diagonal = np.arange(n)
        ends = np.minimum(i, j), np.maximum(i, j)
        return cls(n, *(np.concatenate([end, diagonal]).astype(np.intp) for end in ends))

    @property
    def pairs(self) -> int:
        """The number of pairs off the diagonal."""
        return len(self.i) - self.n

    def matrix(self, values: Array) -> Array:
        """Return the symmetric matrix with the values on the pattern, zero elsewhere."""
        M = np.zeros((self.n, self.n))
        M[self.i, self.j] = M[self.j, self.i] = values
        return M

    def sparse(self, values: Array) -> Any:
        """Return that matrix in sparse form."""
        i, j, k = self.i, self.j, self.pairs
        entries = np.concatenate([values, values[:k]])
        at = np.concatenate([i, j[:k]]), np.concatenate([j, i[:k]])
        return sp.csr_array((entries, at), (self.n, self.n))

    @cached_property
    def unit(self) -> Array:
        """The norm of the symmetric matrix with one at an entry, and zero elsewhere."""
        return np.where(self.i == self.j, 1.0, np.sqrt(2.0))

    @cached_property
    def neighbors(self) -> list[set[int]]:
        """The neighbors of each vertex."""
        found: list[set[int]] = [set() for _ in range(self.n)]
        for a, b in zip(self.i[: self.pairs].tolist(), self.j[: self.pairs].tolist(), strict=True):
            found[a].add(b)
            found[b].add(a)
        return found


def closed_form(pattern: Pattern, C: Array) -> tuple[Array | None, IntArray | None]:
    """Return the maximizer for a chordal pattern, None for another one.

    ``K`` is the sum of the inverses of the clique submatrices, less those of the separators.

    Parameters
    ----------
    pattern : Pattern
    C : array of shape (n, n)
        Entries outside the pattern are ignored.

    Returns
    -------
    array of shape (n, n) or None
    int array or None
        A clique whose submatrix of `C` is not positive definite, where there is one: no maximizer exists.
    """
    tree = chordal_tree(pattern.neighbors)
    if tree is None:
        return None, None
    K = np.zeros((pattern.n, pattern.n))
    for vertices, separator in zip(tree.vertices, tree.separators, strict=True):
        checkpoint()
        for members, sign in ((vertices, 1.0), (separator, -1.0)):
            at = np.ix_(members, members)
            root = root_of(C[at])
            if root is None:
                return None, vertices
            if len(members):
                K[at] += sign * inverse_of(root)
    return K, None


def tree_inverse(pattern: Pattern, C: Array) -> Array:
    """Return the maximizer for a spanning forest of the pattern with the largest entries of `C`.

    `C` has a unit diagonal, and entries between -1 and 1 on the pattern.
    """
    from scipy.sparse.csgraph import minimum_spanning_tree  # SciPy's graphs load slowly

    k = pattern.pairs
    at = pattern.i[:k].astype(np.int32), pattern.j[:k].astype(np.int32)  # SciPy 1.13 takes no others
    length = sp.csr_array((2.0 - np.abs(C[at]), at), (pattern.n, pattern.n))
    i, j = minimum_spanning_tree(length).nonzero()
    r = C[i, j]
    share = r**2 / (1 - r**2)
    K = np.diag(1 + np.bincount(i, share, pattern.n) + np.bincount(j, share, pattern.n))
    K[i, j] = K[j, i] = -r / (1 - r**2)
    return K


def newton_direction(pattern: Pattern, W: Array, gradient: Array, tuning: ProjectionTuning) -> Array:
    """Return the values ``D`` on the pattern for which ``W D W`` has the entries of the gradient there.

    Parameters
    ----------
    pattern : Pattern
    W : array of shape (n, n)
        The inverse of ``K``.
    gradient : array
        ``W - C`` on the pattern.
    tuning : ProjectionTuning
    """
    g = gradient * pattern.unit
    formed = len(g) <= tuning.formed_pattern
    scaled = _factored(pattern, W, g) if formed else _conjugate_gradients(pattern, W, g, tuning)
    return scaled / pattern.unit


def _factored(pattern: Pattern, W: Array, g: Array) -> Array:
    """Return Newton's direction in an orthonormal basis, by Cholesky's factorization."""
    i, j = pattern.i, pattern.j
    H = W[np.ix_(i, i)] * W[np.ix_(j, j)] + W[np.ix_(i, j)] * W[np.ix_(j, i)]
    share = np.where(i == j, np.sqrt(0.5), 1.0)
    H *= share[:, None]
    H *= share
    root = root_of(H)
    if root is None:  # a diverging K
        return np.zeros_like(g)
    direction: Array = cho_solve((root, True), g, check_finite=False)
    return direction


def _conjugate_gradients(pattern: Pattern, W: Array, g: Array, tuning: ProjectionTuning) -> Array:
    """Return Newton's direction in an orthonormal basis, to a residual that falls with the gradient."""
    i, j, unit, d = pattern.i, pattern.j, pattern.unit, W.diagonal()
    preconditioner = 1 / np.where(i == j, d[i] * d[j], d[i] * d[j] + W[i, j] ** 2)
    size = float(np.linalg.norm(g))
    enough = size * min(tuning.pattern_cg_tol, size)
    rows = W[i] if len(g) <= tuning.sparse_pattern * W.size else None
    x, r = np.zeros(len(g)), g
    z = preconditioner * r
    p, rho = z, float(r @ z)
    for _ in range(tuning.cg_steps):
        checkpoint()
        PW = pattern.sparse(p / unit) @ W
        if rows is None:
            q = (W @ PW)[i, j] * unit
        else:
            q = np.einsum("kn,kn->k", rows, np.ascontiguousarray(PW.T)[j]) * unit
        alpha = rho / float(p @ q)
        x, r = x + alpha * p, r - alpha * q
        if float(np.linalg.norm(r)) <= enough:
            break
        z = preconditioner * r
        rho, before = float(r @ z), rho
        p = z + rho / before * p
    return x
