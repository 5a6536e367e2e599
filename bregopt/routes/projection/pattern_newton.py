"""LogDet problems whose rows fix entries: Newton's method on the pattern of a sparse ``X`` or ``Z``.

Two problems have this form, and each is the dual of the other. In the completion of largest determinant the
rows fix entries of ``X``, and ``Z = C - A*(y)`` is zero elsewhere. In covariance selection the rows are
``X_ij = 0``, and ``X`` is sparse itself.

Both need the matrix of a given pattern that maximizes ``log det K - <C, K>``. Its inverse agrees with ``C``
on the pattern, and is the completion of ``C`` of largest determinant (Dempster 1972, Covariance selection,
Biometrics 28; Grone, Johnson, Sa, Wolkowicz 1984, Positive definite completions of partial Hermitian
matrices). For a chordal pattern it is a sum of inverses of clique submatrices; otherwise Newton's method
finds it (Dahl, Vandenberghe, Roychowdhury 2008, Covariance selection for nonchordal graphs via chordal
embedding, Optim. Methods Softw. 23).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve

from bregopt.arrays import Array, IntArray
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.clock import checkpoint
from bregopt.linalg import conjugate_gradients, inverse_of, log_det, root_of
from bregopt.presolve.cliques import chordal_tree
from bregopt.program import Answer, Program, StopReason
from bregopt.program.program import divergence_of
from bregopt.records import cached_property, dataclass
from bregopt.rigorous import contradicts, recedes
from bregopt.routes.ipm.logdet_newton import LogDetProblem
from bregopt.routes.progress import Method, Monitor, Progress

# Least change of the objective in a line search, relative to the slope (Armijo).
_ARMIJO = 1e-4
# Entries of a pattern up to which its Newton matrix is formed and factorized (``benchmarks/logdet.py
# completion`` measures both), and limit on the conjugate gradient steps that replace it.
_FORMED_ENTRIES, _CG_STEPS = 250, 200
# Entries of the pattern of a sparse ``X`` for each row, up to which Newton's method on them is faster than
# the system of the rows: 2.6 times at order 500 with about as many of both.
_PATTERN_RATIO = 4
# Limit on the steps where the option `max_iter` gives none.
_LIMIT = 100
# Steps without a better certificate after which the method has stalled. Where the given entries leave no
# positive definite matrix, the sparse matrix diverges.
_PATIENCE = 15
# Least step length.
_SHORTEST_STEP = 1e-10
# Largest entry of the sparse matrix, for a unit diagonal of its inverse, beyond which it may diverge.
_DIVERGED_ENTRY = 1e7
# Entries of a pattern, as a fraction of all, up to which conjugate gradients compute single inner products in
# place of whole matrices.
_SPARSE_PATTERN = 0.03
# Largest relative residual of the conjugate gradients. It falls with the gradient.
_CG_TOL = 0.1

_SINGULAR = "The given entries leave no positive definite matrix, or only nearly singular ones."
_NO_VARIABLES = np.zeros(0)


@dataclass(frozen=True, eq=False)
class FixedEntries:
    """A LogDet problem in one matrix whose rows fix entries of it.

    Parameters
    ----------
    program : Program
    pattern : Pattern
        Of the sparse matrix.
    i, j, weight : array of shape (m,)
        The rows ``weight X_ij``.
    C : array of shape (n, n)
        The linear term divided by ``mu``: the problem is ``min <C, X> - logdet X``.
    completes : bool
        Whether ``Z`` is the sparse matrix, otherwise ``X`` is.
    """

    program: Program
    pattern: Pattern
    i: IntArray
    j: IntArray
    weight: Array
    C: Array
    completes: bool

    @property
    def mu(self) -> float:
        """The weight of the divergence."""
        nearness = self.program.blocks[0].nearness
        assert nearness is not None
        return nearness.mu

    @cached_property
    def given(self) -> Array:
        """The matrix whose entries on the pattern the inverse of the sparse matrix has, shape ``(n, n)``."""
        if not self.completes:
            return self.C
        given = np.zeros_like(self.C)
        given[self.i, self.j] = given[self.j, self.i] = self.program.bounds.lo / self.weight
        return given

    def multipliers(self, Z: Array) -> Array:
        """Return ``y`` with ``C - A*(y) = mu Z`` where the rows are."""
        shares = np.where(self.i == self.j, 1.0, 2.0)
        return self.mu * (self.C - Z)[self.i, self.j] * shares / self.weight


def fixed_entries(program: Program) -> FixedEntries | None:
    """Return a program in the form that :func:`pattern_newton` takes, None for another one."""
    single = program.m > 0 and all(term.rows.single for term in program.A.terms)
    if len(program.blocks) > 1 or program.k or not single or not program.bounds.equal.all():
        return None
    block = program.blocks[0]
    if block.nearness is None or not block.nearness.kind.barrier or block.cap is not None:
        return None
    i, j, weight = np.zeros(program.m, dtype=np.intp), np.zeros(program.m, dtype=np.intp), np.zeros(program.m)
    for term in program.A.terms:
        t = term.rows.coordinates()
        i[term.at], j[term.at], weight[term.at] = np.minimum(t.i, t.j), np.maximum(t.i, t.j), t.value
    on_diagonal, n = i == j, block.n
    divergence: Any = divergence_of(block.nearness)
    C = block.C / block.nearness.mu + divergence.inverse
    completes = (
        int(on_diagonal.sum()) == n and np.count_nonzero(C) <= n and not C[~np.eye(n, dtype=bool)].any()
    )
    selects = not on_diagonal.any() and not program.bounds.lo.any() and bool((C.diagonal() > 0).all())
    if not (completes or selects) or not weight.all() or len(np.unique(i * n + j)) < program.m:
        return None
    if completes:
        positive = (program.bounds.lo / weight)[on_diagonal] > 0
        pattern = Pattern.of(n, i[~on_diagonal], j[~on_diagonal])
        return FixedEntries(program, pattern, i, j, weight, C, True) if positive.all() else None
    free = np.triu(np.ones((n, n), dtype=bool), 1)
    free[i, j] = False
    pattern = Pattern.of(n, *np.nonzero(free))
    few = len(pattern.i) <= _PATTERN_RATIO * program.m
    return FixedEntries(program, pattern, i, j, weight, C, False) if few else None


def pattern_newton(problem: FixedEntries, settings: Any, progress: Progress) -> Answer | None:
    """Solve such a problem; None where it stalls or a proof fails, for another method."""
    pattern, scaled = problem.pattern, _Scaled(problem)
    K, clique = _closed_form(pattern, scaled.C)
    if K is None and clique is None:
        clique = _clique_of_two(pattern, scaled.on_pattern)
        K = _tree_inverse(pattern, scaled.C) if clique is None else None
    if K is None:
        assert clique is not None
        v = np.zeros(pattern.n)
        v[clique] = np.linalg.eigh(scaled.C[np.ix_(clique, clique)])[1][:, 0]
        X, y = np.diag(problem.given.diagonal()), np.zeros(problem.program.m)
        singular = Answer((X,), _NO_VARIABLES, y, StopReason.STALLED, 0, detail=_SINGULAR)
        return _proof(problem, np.outer(v, v) / scaled.units, 0) or singular
    first = scaled.at(K)
    if first is None:
        return None
    limit = settings.max_iter or _LIMIT
    monitor = Monitor(problem.program, settings, progress)
    found = monitor.follow(_PatternNewton(scaled, progress), first, limit)
    if found.proof is not None:
        return found.proof
    if found.stop is StopReason.STALLED and found.at.K.diagonal().max() < _DIVERGED_ENTRY:
        return None
    detail = _SINGULAR if found.stop is StopReason.STALLED else ""
    return Answer(found.at.definite_X, _NO_VARIABLES, found.at.y, found.stop, found.step, detail=detail)


def _clique_of_two(pattern: Pattern, values: Array) -> IntArray | None:
    """Return a pair whose entry of a matrix with unit diagonal is not between -1 and 1, None without one."""
    beyond = np.flatnonzero(np.abs(values[: pattern.pairs]) >= 1)
    return np.array([pattern.i[beyond[0]], pattern.j[beyond[0]]]) if len(beyond) else None


def _proof(problem: FixedEntries, D: Array, step: int) -> Answer | None:
    """Return the proof by a psd matrix of the pattern that there is no solution, None if it is none.

    If ``<C, D> <= 0``, log det K - <C, K> grows without end along ``D``, and no positive definite matrix has
    the entries of ``C`` on the pattern.
    """
    program = problem.program
    if not problem.completes:
        ray = recedes(program, (D,), _NO_VARIABLES)
        return Answer((D,), _NO_VARIABLES, np.zeros(program.m), StopReason.UNBOUNDED, step) if ray else None
    y = problem.multipliers(problem.C + D) / problem.mu
    proven = contradicts(program, y)
    return Answer.without_point(program, y, StopReason.INFEASIBLE, step) if proven else None


class _Point:
    """A sparse matrix ``K`` of the scaled problem, its root and its inverse, as a point of the problem.

    The dense one of ``X`` and ``Z`` is the inverse with the given entries on the pattern. It need not be
    definite; `definite_X` then misses given entries instead.
    """

    def __init__(self, problem: _Scaled, K: Array, root: Array) -> None:
        self.K, self.root, self.W = K, root, inverse_of(root)
        own, pattern, scale = problem.own, problem.own.pattern, problem.scale
        self.gradient: Array = self.W[pattern.i, pattern.j] - problem.on_pattern
        dense = self.W.copy()
        dense[pattern.i, pattern.j] = dense[pattern.j, pattern.i] = problem.on_pattern
        dense_root = root_of(dense)
        dense *= problem.units
        sparse = K / problem.units
        roots = [root / scale[:, None], None if dense_root is None else scale[:, None] * dense_root]
        X, Z, (X_root, Z_root) = (dense, sparse, roots[::-1]) if own.completes else (sparse, dense, roots)
        self.X = (X,)
        self.definite_X = (X if X_root is not None else self.W * problem.units,)
        self.X_root = None if X_root is None else (X_root,)
        self.Z_root = None if Z_root is None else (math.sqrt(own.mu) * Z_root,)
        self.y = own.multipliers(Z)
        self.activity: Array = own.weight * X[own.i, own.j]


class _Scaled:
    """The problem with a unit diagonal of the given matrix."""

    def __init__(self, own: FixedEntries) -> None:
        self.own = own
        self.scale = np.sqrt(own.given.diagonal())
        self.units = np.outer(self.scale, self.scale)
        self.C = own.given / self.units
        np.fill_diagonal(self.C, 1.0)
        self.on_pattern = self.C[own.pattern.i, own.pattern.j]

    def at(self, K: Array) -> _Point | None:
        """Return the point at a matrix of the pattern, None if it is not positive definite."""
        root = root_of(K)
        return None if root is None else _Point(self, K, root)


class _PatternNewton(Method):
    """Newton's method for ``max log det K - <C, K>`` on a pattern, with a line search."""

    tests_multipliers = False
    doubles_digits = True

    def __init__(self, problem: _Scaled, progress: Progress) -> None:
        self._problem, self._certified = problem, LogDetProblem(problem.own.program, progress)
        self.patience = _PATIENCE

    def certificate(self, at: Any) -> Certificate:
        if at.X_root is not None:
            return self._certified.certificate(at)
        known = Known(activity=at.activity, divergences=(math.inf,), cone_residual=0.0)
        return certify(PrimalDualPoint(self._problem.own.program, at.X, _NO_VARIABLES, at.y, **known))

    def proof(self, at: _Point, before: Array, certificate: Certificate, step: int) -> Answer | None:
        """Return the proof that there is no solution if ``K`` is one."""
        shares = self._problem.own.pattern.unit**2
        entries = at.K[self._problem.own.pattern.i, self._problem.own.pattern.j]
        if float(self._problem.on_pattern @ (shares * entries)) > 0:
            return None
        return _proof(self._problem.own, at.K / self._problem.units, step)

    def advance(self, at: _Point) -> _Point | None:
        pattern = self._problem.own.pattern
        step = newton_direction(pattern, at.W, at.gradient)
        shares = pattern.unit**2
        slope = float(at.gradient @ (shares * step))
        falls, value, t = float(self._problem.on_pattern @ (shares * step)), log_det(at.root), 1.0
        if not slope > 0:
            return None
        D = pattern.matrix(step)
        while t > _SHORTEST_STEP:
            K = at.K + t * D
            root = root_of(K)
            if root is not None and log_det(root) - value - t * falls >= _ARMIJO * t * slope:
                return _Point(self._problem, K, root)
            t /= 2
        return None


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


def _closed_form(pattern: Pattern, C: Array) -> tuple[Array | None, IntArray | None]:
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


def _tree_inverse(pattern: Pattern, C: Array) -> Array:
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


def newton_direction(pattern: Pattern, W: Array, gradient: Array) -> Array:
    """Return the values ``D`` on the pattern for which ``W D W`` has the entries of the gradient there.

    Parameters
    ----------
    pattern : Pattern
    W : array of shape (n, n)
        The inverse of ``K``.
    gradient : array
        ``W - C`` on the pattern.
    """
    g = gradient * pattern.unit
    formed = len(g) <= _FORMED_ENTRIES
    scaled = _factored(pattern, W, g) if formed else _conjugate_gradients(pattern, W, g)
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
    return cho_solve((root, True), g, check_finite=False)


def _conjugate_gradients(pattern: Pattern, W: Array, g: Array) -> Array:
    """Return Newton's direction in an orthonormal basis, to a residual that falls with the gradient."""
    i, j, unit, d = pattern.i, pattern.j, pattern.unit, W.diagonal()
    preconditioner = 1 / np.where(i == j, d[i] * d[j], d[i] * d[j] + W[i, j] ** 2)
    rows = W[i] if len(g) <= _SPARSE_PATTERN * W.size else None

    def product(p: Array) -> Array:
        PW = pattern.sparse(p / unit) @ W
        if rows is None:
            return np.asarray((W @ PW)[i, j] * unit)
        return np.einsum("kn,kn->k", rows, np.ascontiguousarray(PW.T)[j]) * unit

    tol = min(_CG_TOL, float(np.linalg.norm(g)))
    return conjugate_gradients(product, g, lambda r: preconditioner * r, tol, _CG_STEPS)[0]
