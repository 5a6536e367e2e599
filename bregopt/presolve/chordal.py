"""Chordal sparsity: a large matrix of few entries in cost and rows is replaced by its clique submatrices.

The entries outside the aggregate pattern of cost and rows only have to make ``X`` psd. The pattern is
extended to a chordal one (:mod:`bregopt.presolve.cliques`). Then ``X`` has such entries if and only if its
clique submatrices are psd. Each of them becomes a matrix of its own, and equalities make them agree where
they overlap (Fukuda, Kojima, Murota, Nakata 2001, section 4). Estimated times of a Newton step on cliques
decide which are merged, and whether a block is split.

The multipliers ``y`` of the rows carry over: ``C - A*(y)`` is the sum of the cliques' psd matrices, as the
multipliers of the overlaps cancel. The matrix is completed: a partial matrix with a chordal pattern and psd
clique submatrices has a psd completion (Grone, Johnson, Sa, Wolkowicz 1984), and one whose rank is that of
the clique submatrix of largest rank (Dancis 1992).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from bregopt.arrays import Array, IntArray
from bregopt.certify.eigenvalue_bound import LARGEST_FORMED
from bregopt.linalg import root_of
from bregopt.presolve import LEAST_CHORDAL_ORDER, Reduced, Tolerances
from bregopt.presolve.cliques import Clique, CliqueTree, clique_tree, entries, merged
from bregopt.program import (
    Answer,
    Block,
    Bounds,
    LinearMap,
    LowRank,
    Matrix,
    Program,
    Start,
    StopReason,
    Term,
)
from bregopt.program.rows import Coordinates, DenseRows, Rows, SparseRows, placed_coordinates
from bregopt.records import cached_property, dataclass, replace

# Order above which none is looked for: the search and a program of so many cliques take ten seconds or more.
_LARGEST_CHORDAL_ORDER = 50_000
# Terms of cost and rows up to which they are listed: a second, and 200 MB.
_MOST_PATTERN_TERMS = 5_000_000
# Fraction of nonzeros up to which a pattern is sparse.
LARGEST_PATTERN = 0.25
# Operations of the search for cliques, relative to the cubed order, and at most (0.2 seconds): two percent of
# the time for the whole matrix.
SEARCH_SHARE, _MOST_SEARCH = 1e-3, 5e6
# Least number of vertices that a clique is expected to have besides its separator.
_LEAST_ELIMINATED = 10
# Fraction of the vertices from which those of degree 2 at most are eliminated alone: the cube of the number
# of others falls to half.
_LEAST_FRINGE = 0.2
# Order up to which the interior-point method stacks matrices of equal order, `_STACK_ORDER` of its plan.
LARGEST_STACKED = 40
# Nanoseconds of a Newton step, by which cliques are merged and a decomposition is chosen. Stacked matrices:
# for each, times its order squared, and for each stack.
_SMALL_CLIQUE_TIME, _SMALL_SQUARE_TIME, _GROUP_TIME = 4e4, 200.0, 2e5
# Larger matrices: for each, and times its order squared and cubed.
_LARGE_CLIQUE_TIME, _LARGE_SQUARE_TIME, _ORDER_TIME = 2e5, 40.0, 0.17
# The system: times the squared number of terms in a clique, for each multiplication in the factorization of a
# sparse system, and times the cubed number of rows of a dense one.
_TERM_TIME, _FRONT_TIME, _DENSE_TIME = 10.0, 0.35, 0.012
# Time of a step on cliques, relative to one on the whole matrix, below which they pay: estimates err as much.
_DECOMPOSED_SHARE = 0.6
# Multiple of the identity, relative to the largest diagonal entry, that makes singular clique submatrices
# definite.
_COMPLETION_NOISE = 1e-15
_COST = -1  # the number of the cost among the rows


# Pays on: max-cut of a band, n = 800.
def chordal_sparsity(program: Program, tolerances: Tolerances) -> Reduced | None:
    """Replace large sparse matrices by their clique submatrices, where that costs less."""
    candidates = [_may_be_decomposed(block) for block in program.blocks]
    if not any(candidates):
        return None
    return decomposed(program, candidates)


def _may_be_decomposed(block: Block) -> bool:
    """Whether a matrix is of such an order, linear and on no face."""
    on_face = block.face is not None and block.face.codimension > 0
    sized = LEAST_CHORDAL_ORDER <= block.n <= _LARGEST_CHORDAL_ORDER
    return sized and block.nearness is None and block.cap is None and not on_face


@dataclass(frozen=True, eq=False)
class Decomposed(Reduced):
    """A program in the clique submatrices.

    Parameters
    ----------
    trees : tuple of CliqueTree or None
        The cliques of each block of `whole`; None for a block that stays as it is.
    """

    trees: tuple[CliqueTree | None, ...]

    @property
    def summary(self) -> str:
        blocks = zip(self.whole.blocks, self.trees, strict=True)
        parts = [
            f"{block.name} of order {block.n} as {len(tree.vertices)} cliques of order {tree.width} at most"
            for block, tree in blocks
            if tree is not None
        ]
        return f"{', '.join(parts)}, with {self.program.m - self.whole.m} equalities where they overlap"

    def shrink(self, start: Start) -> Start:
        y = np.pad(start.y, (0, self.program.m - self.whole.m))
        X: list[Matrix] = []
        for tree, X_b in zip(self.trees, start.X, strict=False):  # a start may have no matrices
            X += [X_b] if tree is None else [X_b[np.ix_(v, v)] for v in tree.vertices]
        return replace(start, X=tuple(X), y=y, S=None)

    def restore(self, answer: Answer) -> Answer:
        y = answer.y[: self.whole.m]
        if answer.stop is StopReason.INFEASIBLE:
            return Answer.without_point(self.whole, y, answer.stop, answer.iterations)
        X: list[Matrix] = []
        left = iter(answer.X)
        for tree in self.trees:
            own = [next(left) for _ in range(1 if tree is None else len(tree.vertices))]
            X += own if tree is None else [_completed(tree, own, answer.stop is StopReason.UNBOUNDED)]
        return replace(answer, X=tuple(X), y=y, S=None)


def _completed(tree: CliqueTree, X: Sequence[Array], formed: bool) -> Matrix:
    """Return the completion: an array if it is small or to be `formed`, its factor otherwise."""
    R = completion(tree, X)
    return R @ R.T if formed or tree.n <= LARGEST_FORMED else LowRank(R)


def decomposed(program: Program, candidates: Sequence[bool]) -> Decomposed | None:
    """Return the program in the clique submatrices of some blocks, None where none takes less time so."""
    cliques = [_clique_terms(program, b) if tried else None for b, tried in enumerate(candidates)]
    if all(found is None for found in cliques):
        return None
    trees = tuple(None if found is None else found.tree for found in cliques)
    return Decomposed(program, _decomposed(program, cliques), trees)


def _clique_terms(program: Program, b: int) -> CliqueTerms | None:
    """Return the cliques of a matrix with their terms, None where they take no less time."""
    pattern, n = pattern_of(program, b), program.blocks[b].n
    if pattern is None:
        return None
    for most, eliminated in ((min(SEARCH_SHARE * n**3, _MOST_SEARCH), core), (10 * n, _fringe)):
        tree = clique_tree(pattern.matrix, most, eliminated)
        if len(tree.vertices) < 2:
            continue
        # Pays on: max-cut of a band, n = 800.
        tree = merged(tree, sizes_of(tree, pattern), work)
        if may_be_cheaper(tree, pattern):
            cliques = CliqueTerms.of(pattern, tree)
            if is_cheaper(cliques, pattern):
                return cliques
    return None


def _decomposed(program: Program, cliques: Sequence[CliqueTerms | None]) -> Program:
    """Return the program with cliques as blocks."""
    blocks: list[Block] = []
    terms: list[Term] = []
    m = program.m
    for b, found in enumerate(cliques):
        if found is None:
            terms += [replace(term, block=len(blocks)) for term in program.A.terms_of(b)]
            blocks.append(program.blocks[b])
            continue
        own, rows = found.blocks(program.blocks[b], m)
        terms += [Term(len(blocks) + c, at, family) for c, at, family in rows]
        blocks += own
        m += found.equalities
    more = m - program.m
    return replace(
        program,
        blocks=tuple(blocks),
        A=LinearMap(m, tuple(block.n for block in blocks), tuple(terms)),
        B=sp.csr_array(sp.vstack([program.B, sp.csr_array((more, program.k))], format="csr")),
        bounds=program.bounds.followed_by(Bounds.of_hard_rows(np.zeros(more), np.zeros(more))),
        labels=(),
        parameter_slopes=(),
    )


def work(clique: Clique) -> float:
    """Return the approximate nanoseconds that a clique adds to a Newton step.

    They are those of its products and factorizations, of the pairs of terms in its part of the Schur matrix,
    and of the elimination of its rows there.
    """
    linked = entries(clique.separator) + min(clique.shared, entries(clique.order))
    rows, terms = clique.rows + linked, clique.terms + linked
    return _matrix_time(clique.order) + _TERM_TIME * terms**2 + _elimination_time(rows / 2, rows)


def _elimination_time(eliminated: Any, front: Any) -> Any:
    """Return the nanoseconds of the elimination of some rows of dense fronts."""
    return _FRONT_TIME * (front**3 - (front - eliminated) ** 3) / 3


def _matrix_time(n: int) -> float:
    """Return the nanoseconds of products, factorizations and step lengths."""
    if n <= LARGEST_STACKED:
        return _SMALL_CLIQUE_TIME + _SMALL_SQUARE_TIME * n**2
    return _LARGE_CLIQUE_TIME + _LARGE_SQUARE_TIME * n**2 + _ORDER_TIME * n**3


def core(degrees: IntArray) -> int:
    """Return the number of vertices to eliminate, from the degrees of all in their order.

    The others take less time as one clique. Those that are eliminated are expected to make cliques of the
    best size, with as many vertices in the separator as the degree.
    """
    n = len(degrees)
    kinds, kind = np.unique(degrees, return_inverse=True)
    times = []
    for degree in kinds.tolist():
        sizes = [max(degree, _LEAST_ELIMINATED) * factor for factor in (1, 2, 4, 8)]
        shared = entries(degree)
        times.append(min(work(Clique(degree + own, degree, own, own, shared)) / own for own in sizes))
    eliminated = np.concatenate([[0.0], np.cumsum(np.array(times)[kind])])
    left = np.array([_matrix_time(k) + _TERM_TIME * k**2 + _DENSE_TIME * k**3 for k in range(n, -1, -1)])
    return int(np.argmin(eliminated + left))


def _fringe(degrees: IntArray) -> int:
    """Return the number of vertices of degree 2 at most, such as those of trees and paths; zero for few.

    Their elimination takes little time even if that of the others would take much.
    """
    count = int(np.argmax(np.append(degrees, 3) > 2))
    return count if count > _LEAST_FRINGE * len(degrees) else 0


def sizes_of(tree: CliqueTree, pattern: Pattern) -> list[Clique]:
    """Return the sizes of the cliques, with the entries that they share."""
    count, place = len(tree.vertices), pattern.places(tree)
    own = pattern.terms.row >= 0
    terms = np.bincount(place[own], minlength=count)
    pairs = np.unique(place[own] * pattern.m + pattern.terms.row[own])
    rows = np.bincount(pairs // max(pattern.m, 1), minlength=count)
    separators = np.array([len(separator) for separator in tree.separators])
    shared, linked = np.zeros(count, dtype=int), np.flatnonzero(tree.parent >= 0)
    np.add.at(shared, tree.parent[linked], entries(separators[linked]))
    orders = [len(v) for v in tree.vertices]
    columns = orders, *(column.tolist() for column in (separators, rows, terms, shared))
    return [Clique(*size) for size in zip(*columns, strict=True)]


def may_be_cheaper(tree: CliqueTree, pattern: Pattern) -> bool:
    """Whether cliques may take less time, by the time for their matrices alone."""
    return _matrices_time(tree) < _DECOMPOSED_SHARE * _whole_time(pattern)


def is_cheaper(cliques: CliqueTerms, pattern: Pattern) -> bool:
    """Whether a Newton step on the cliques takes much less time than one on the whole matrix."""
    own = cliques.terms.row >= 0
    terms = np.bincount(cliques.clique[own]).astype(float)
    system = _TERM_TIME * float(terms @ terms) + float(_elimination_time(*_fronts(cliques)).sum())
    return _matrices_time(cliques.tree) + system < _DECOMPOSED_SHARE * _whole_time(pattern)


def _matrices_time(tree: CliqueTree) -> float:
    orders = np.array([len(v) for v in tree.vertices])
    groups = len(np.unique(orders[orders <= LARGEST_STACKED]))
    return _GROUP_TIME * groups + sum(map(_matrix_time, orders.tolist()))


def _whole_time(pattern: Pattern) -> float:
    own = pattern.terms.row >= 0
    places = len(np.unique(pattern.terms.i[own] * pattern.n + pattern.terms.j[own]))
    rows = len(np.unique(pattern.terms.row[own]))
    return _matrix_time(pattern.n) + _TERM_TIME * places**2 + _DENSE_TIME * rows**3


def _fronts(cliques: CliqueTerms) -> tuple[Array, Array]:
    """Return the number of rows that are eliminated at each clique, and the order of the front there.

    From the leaves to the root, a row is eliminated at the first clique below which all of its cliques are.
    It is in all fronts on the paths from these to there.
    """
    parent, count = cliques.tree.parent, len(cliques.tree.vertices)
    own = cliques.terms.row >= 0
    row, clique = np.divmod(np.unique(cliques.terms.row[own] * count + cliques.clique[own]), count)
    begins = np.flatnonzero(np.diff(row, prepend=-1))
    ends = np.append(begins[1:], len(row)) - 1
    follows = np.flatnonzero(np.diff(row) == 0)
    last = _nearest_common(parent, clique[begins], clique[ends])
    # The sums over subtrees count the rows on each path once. The last element stands for above the roots.
    front = np.bincount(clique, minlength=count + 1)
    np.subtract.at(front, _nearest_common(parent, clique[follows], clique[follows + 1]), 1)
    np.subtract.at(front, parent[last], 1)
    for c in range(count - 1, -1, -1):
        front[parent[c]] += front[c]
    return np.bincount(last[last >= 0], minlength=count).astype(float), front[:count].astype(float)


def _nearest_common(parent: IntArray, a: IntArray, b: IntArray) -> IntArray:
    """Return the nearest common ancestor of each pair, -1 where there is none."""
    a, b = a.copy(), b.copy()
    while len(apart := np.flatnonzero(a != b)):
        lower, upper = np.maximum(a[apart], b[apart]), np.minimum(a[apart], b[apart])
        a[apart], b[apart] = upper, parent[lower]
    return a


def completion(tree: CliqueTree, X: Sequence[Array]) -> Array:
    """Return a factor ``R`` of a psd matrix ``R R'`` with given clique submatrices.

    From the root to the leaves: let a clique have the separator ``S`` and the other vertices ``N``, and let
    ``L`` be the Cholesky factor of its submatrix, ``S`` first. Then ``R_S = L_SS U`` with orthonormal rows of
    ``U``, and ``R_N = L_NS U + L_NN Q'``, where the columns of ``Q`` are orthonormal and ``U Q = 0``.

    Parameters
    ----------
    tree : CliqueTree
    X : sequence of arrays
        One psd matrix for each clique, on its vertices. Where two of them differ by round-off, the parent's
        entries count.

    Returns
    -------
    array of shape (n, tree.width)
        Rows of zeros for vertices in no clique.
    """
    R = np.zeros((tree.n, tree.width))
    if not any(X_c.any() for X_c in X):
        return R
    for L, S, N in zip(_roots(_agreeing(tree, X)), tree.separators, tree.residuals, strict=True):
        s = len(S)
        U = solve_triangular(L[:s, :s], R[S], lower=True, check_finite=False) if s else R[S]
        # QR makes the rows of U orthonormal up to signs, and continues them, as further columns are zero.
        Q, signs = np.linalg.qr(np.hstack([U.T, np.zeros((tree.width, len(N)))]))
        Q[:, :s] *= np.where(signs.diagonal()[:s] < 0, -1.0, 1.0)
        R[N] = L[s:] @ Q.T
    return R


def _agreeing(tree: CliqueTree, X: Sequence[Array]) -> list[Array]:
    """Return the matrices with the parents' entries where these overlap, separators first."""
    agreeing: list[Array] = []
    order = [np.concatenate(pair) for pair in zip(tree.separators, tree.residuals, strict=True)]
    for c, (vertices, S) in enumerate(zip(tree.vertices, tree.separators, strict=True)):
        place = np.searchsorted(vertices, order[c])
        own = X[c][np.ix_(place, place)]
        if len(S):
            above = order[tree.parent[c]]
            sort = np.argsort(above)
            at = sort[np.searchsorted(above, S, sorter=sort)]
            own[: len(S), : len(S)] = agreeing[tree.parent[c]][np.ix_(at, at)]
        agreeing.append(own)
    return agreeing


def _roots(X: Sequence[Array]) -> list[Array]:
    """Return Cholesky factors, after a multiple of the identity that makes all matrices definite.

    Where round-off makes one of them indefinite, its nearest psd matrix would not agree with the others.
    """
    roots = [root_of(X_c) for X_c in X]
    least = [float(np.linalg.eigvalsh(X_c)[0]) for X_c, root in zip(X, roots, strict=True) if root is None]
    noise = _COMPLETION_NOISE * max(float(X_c.diagonal().max()) for X_c in X) if least else 0.0
    shift = 2 * max(-min(least, default=0.0), 0.0) + noise
    while any(root is None for root in roots):
        if not math.isfinite(shift):
            raise np.linalg.LinAlgError("a clique submatrix is not finite")
        roots = [root_of(X_c + shift * np.eye(len(X_c))) for X_c in X]
        shift *= 10
    return [root for root in roots if root is not None]


@dataclass(frozen=True, eq=False)
class Pattern:
    """The terms of the cost and the rows of a block.

    Parameters
    ----------
    n, m : int
        The order of the block, and the number of rows of the program.
    terms : Coordinates
        With ``i <= j``, each entry of a row once, sorted by row; row -1 is the cost.
    """

    n: int
    m: int
    terms: Coordinates

    @cached_property
    def matrix(self) -> Any:
        """The aggregate pattern, a symmetric csr_array of shape ``(n, n)``."""
        t = self.terms
        index = np.concatenate([t.i, t.j]), np.concatenate([t.j, t.i])
        return sp.csr_array((np.ones(2 * len(t.i)), index), (self.n, self.n))

    @property
    def bandwidth(self) -> int:
        """The bandwidth of the pattern after it is ordered by reverse Cuthill-McKee."""
        if not len(self.terms.i):
            return 0
        from scipy.sparse.csgraph import reverse_cuthill_mckee  # slow to import, seldom needed

        ends = np.concatenate([self.terms.i, self.terms.j])
        vertices, own = np.unique(ends, return_inverse=True)  # the others have no neighbor
        k = len(vertices)
        i, j = own.reshape(2, -1)
        matrix = sp.csr_array((np.ones(len(ends)), (own, np.concatenate([j, i]))), (k, k))
        place = np.empty(k, dtype=np.intp)
        place[reverse_cuthill_mckee(matrix, symmetric_mode=True)] = np.arange(k)
        return int(np.abs(place[i] - place[j]).max(initial=0))

    def places(self, tree: CliqueTree) -> IntArray:
        """Return a clique with both vertices of each term: the home of the vertex farther from the root.

        Parents come before their children, so it is the larger of the two homes.
        """
        return np.maximum(tree.home[self.terms.i], tree.home[self.terms.j])


def pattern_of(program: Program, b: int) -> Pattern | None:
    """Return the terms of one block, None where they are too many for a sparse pattern."""
    n = program.blocks[b].n
    families = [(term.at, term.rows) for term in program.A.terms_of(b)]
    if (cost := program.blocks[b].cost) is not None:
        families.insert(0, (np.array([_COST]), cost))
    most = min(LARGEST_PATTERN * n**2 / 2, _MOST_PATTERN_TERMS)
    if not families or any(_is_full(rows, most) for _, rows in families):
        return None
    stored = sum(rows.count() for _, rows in families if not isinstance(rows, DenseRows))
    if stored > _MOST_PATTERN_TERMS:
        return None
    t = placed_coordinates(families)
    if len(t.row) > _MOST_PATTERN_TERMS:
        return None
    if len(np.unique(np.minimum(t.i, t.j) * n + np.maximum(t.i, t.j))) > most:
        return None
    return Pattern(n, program.m, SparseRows.of(program.m, n, t).terms)


def _is_full(rows: Rows, most: float) -> bool:
    """Whether the first row of a family alone has more entries, as in most dense families."""
    first = rows.slice(np.zeros(1, dtype=np.intp))
    if isinstance(first, DenseRows):
        return int(np.count_nonzero(first.stack)) > 2 * most
    return first.count() > most


@dataclass(frozen=True, eq=False)
class CliqueTerms:
    """The terms of a block in its clique submatrices, and equalities where these overlap.

    Parameters
    ----------
    tree : CliqueTree
    m : int
        Number of the first equality; the others follow.
    clique : int array
        The clique of each term.
    terms : Coordinates
        In the vertices of the block; row -1 is the cost.
    """

    tree: CliqueTree
    m: int
    clique: IntArray
    terms: Coordinates

    @classmethod
    def of(cls, pattern: Pattern, tree: CliqueTree) -> CliqueTerms:
        """Return the terms of a pattern, and the equalities.

        Each entry links a clique with the next that has it. If the parent had all links, a clique with many
        children would fill the Schur matrix.
        """
        several = np.bincount(np.concatenate(tree.vertices), minlength=tree.n) > 1
        shared = [v[several[v]] for v in tree.vertices]
        upper = [np.triu_indices(len(v)) for v in shared]
        clique = np.repeat(np.arange(len(shared)), [len(a) for a, _ in upper])
        i = np.concatenate([v[a] for v, (a, _) in zip(shared, upper, strict=True)])
        j = np.concatenate([v[b] for v, (_, b) in zip(shared, upper, strict=True)])
        sort = np.lexsort((clique, i * tree.n + j))
        i, j, clique = i[sort], j[sort], clique[sort]
        first = np.flatnonzero((np.diff(i) == 0) & (np.diff(j) == 0))
        both, t = np.concatenate([first, first + 1]), pattern.terms
        link = np.arange(pattern.m, pattern.m + len(first))
        terms = Coordinates(
            np.concatenate([t.row, link, link]),
            np.concatenate([t.i, i[both]]),
            np.concatenate([t.j, j[both]]),
            np.concatenate([t.value, np.repeat([1.0, -1.0], len(first))]),
        )
        return cls(tree, pattern.m, np.concatenate([pattern.places(tree), clique[both]]), terms)

    @property
    def equalities(self) -> int:
        """The number of equalities."""
        return int(self.terms.row.max(initial=self.m - 1)) + 1 - self.m

    def blocks(self, block: Block, m: int) -> tuple[list[Block], list[tuple[int, IntArray, SparseRows]]]:
        """Return the clique submatrices as blocks, and the rows in each clique that has some.

        Parameters
        ----------
        block : Block
        m : int
            Number of the first equality in the new program.
        """
        tree, t = self.tree, self.terms
        orders = np.array([len(v) for v in tree.vertices])
        start = np.cumsum(orders) - orders
        keys = np.repeat(np.arange(len(orders)), orders) * tree.n + np.concatenate(tree.vertices)
        i, j = (np.searchsorted(keys, self.clique * tree.n + v) - start[self.clique] for v in (t.i, t.j))
        row = np.where(t.row < self.m, t.row, t.row - self.m + m)
        families = list(_families(orders, self.clique, Coordinates(row, i, j, t.value)))
        costs = {c: rows for c, at, rows in families if at[0] == _COST}
        blocks = [
            replace(block, name=f"{block.name}, clique {c}", n=int(n), cost=costs.get(c))
            for c, n in enumerate(orders)
        ]
        return blocks, [family for family in families if family[1][0] != _COST]


def _families(
    orders: IntArray, clique: IntArray, terms: Coordinates
) -> Iterator[tuple[int, IntArray, SparseRows]]:
    """Yield the costs and the rows of each clique: its number, the numbers of its rows, and the rows."""
    group = 2 * clique + (terms.row != _COST)
    order = np.lexsort((terms.row, group))
    ends = np.flatnonzero(np.diff(group[order])) + 1
    for own in np.split(order, ends):
        at, row = np.unique(terms.row[own], return_inverse=True)
        c = int(clique[own[0]])
        local = Coordinates(row.ravel(), terms.i[own], terms.j[own], terms.value[own])
        yield c, at, SparseRows(len(at), int(orders[c]), local)
