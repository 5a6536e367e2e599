"""Many blocks: the Schur matrix of a stack of small ones, and a sparse system where each meets few rows.

**Stacks.** For blocks of equal order, arrays of shape ``(B, n, n)``, the Schur matrix is
``H_kl = sum_b <A_kb, sym(X_b A_lb K_b)>``, by the cheaper of two formulas (Fujisawa, Kojima and Nakata 1997):

- rows with few terms: products of entries of ``X`` and ``K`` on the distinct places of the terms, and from
  these the pairs of terms in one block;
- rows with many terms: ``tr(A_k X A_l K)``, as inner products of the ``A_k X`` and the ``(A_l K)'``.

**Sparse systems.** Where each block meets few rows, as clique submatrices do
(:mod:`bregopt.presolve.chordal`), Newton's system in the multipliers of the rows is sparse. Its pattern is
found once. Each step sums the values into it and factorizes it (SuperLU; Demmel, Eisenstat, Gilbert, Li and
Liu 1999). With variables the system is ``[[M + D, B], [B', -inv(D_u)]]``. So it is for one matrix in
powers of its entries, or in many small norms: most rows read only variables, in small second-order cones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError
from scipy.sparse.linalg import SuperLU, splu

from bregopt.arrays import Array, IntArray
from bregopt.clock import checkpoint
from bregopt.linalg import DEFINITE_RESIDUAL, ZERO_DIAGONAL
from bregopt.presolve.cliques import eliminate
from bregopt.program import NO_CONES, LinearMap, SecondOrderCones
from bregopt.program.rows import placed_coordinates
from bregopt.records import cached_property, dataclass
from bregopt.routes.ipm.block_rows import BlockSchur
from bregopt.routes.ipm.linear_solvers import VariableMetric
from bregopt.routes.ipm.plan import Plan, ScalingPoint
from bregopt.routes.ipm.row_system import RowSystem

# Numbers that the formula for the Schur matrix of a stack may store (0.4 GB).
_STACK_NUMBERS = 5e7
# Products of entries of a stack that are computed at a time (2 MB).
_STACK_CHUNK = 250_000
# Approximate nanoseconds of a product of two distinct entries of a block in a stack.
_PLACE_COST = 10.0
# Approximate nanoseconds of adding a number to the Schur matrix at a place that varies.
_PAIR_COST = 6.0
# Approximate nanoseconds of one multiplication inside small matrix products.
_FLOP_COST = 0.12
# Pairs of rows that meet one block, relative to all pairs, up to which the system may be sparse.
_SPARSE_SCHUR = 0.3
# Operations of the search for its fill, relative to the cubed number of rows. The search then takes a few
# percent of the time of a dense system.
_SEARCH_SHARE = 3e-4
# Nonzeros of its factor, relative to a dense one, up to which it is sparse.
_SPARSE_FACTOR = 0.3
# Shift of the diagonal of a system with variables, relative to the largest entry of its column. All pivots
# are then on the diagonal, in any order (Vanderbei 1995), and refinement takes back what it changes.
_SHIFT = 1e-10
# Limit on the refinements of a solution. They end earlier if the residual grows.
_REFINEMENTS = 3


# --- Stacks ---------------------------------------------------------------------------------------------


class StackRows:
    """The rows of a stack: their part of the Schur matrix.

    Parameters
    ----------
    terms : StackTerms
    """

    def __init__(self, terms: StackTerms) -> None:
        self._terms = terms

    @staticmethod
    def fits(terms: StackTerms) -> bool:
        """Whether the arrays of the cheaper formula of the Schur matrix fit the memory for stacks."""
        return _formula(terms).numbers(terms) <= _STACK_NUMBERS

    @cached_property
    def formula(self) -> TermSchur | ProductSchur:
        """The cheaper formula of the Schur matrix."""
        return _formula(self._terms)(self._terms)

    def schur(self, X: Array, K: Array, rows: IntArray | None = None, root: Array | None = None) -> Array:
        """Return ``<A_k, sym(X A_l K)>``, summed over the blocks, for all rows or for some."""
        H = self.formula.assemble(X, K)
        return H if rows is None or len(rows) == len(H) else H[np.ix_(rows, rows)]

    def magnitudes(self, X: Array) -> Array:
        """Return the largest ``sum_ij |A_ij| s_i s_j`` of each row in a block, with ``s^2 = diag(X)``."""
        t = self._terms
        s = np.sqrt(np.maximum(np.einsum("bii->bi", X), 0.0))
        largest = np.zeros(t.m)
        if len(t.first):
            sums = np.add.reduceat(np.abs(t.value) * s[t.block, t.i] * s[t.block, t.j], t.first)
            np.maximum.at(largest, t.row[t.first], sums)
        return largest


def _formula(terms: StackTerms) -> type[TermSchur] | type[ProductSchur]:
    """Return the cheaper formula of the Schur matrix."""
    by_terms = TermSchur.cost(terms) <= ProductSchur.cost(terms)
    return TermSchur if by_terms else ProductSchur


@dataclass(frozen=True, eq=False)
class StackTerms:
    """The terms of all rows in a stack: row ``row[k]`` has ``value[k] * X[block[k], i[k], j[k]]``.

    Parameters
    ----------
    m, count, n : int
        Number of rows, of blocks, and the order of the blocks.
    row, block, i, j : int arrays
        Sorted by block, then by row; ``i <= j``.
    value : array
    """

    m: int
    count: int
    n: int
    row: IntArray
    block: IntArray
    i: IntArray
    j: IntArray
    value: Array

    @classmethod
    def of(cls, A: LinearMap, blocks: Sequence[int]) -> StackTerms:
        """Return the terms in some blocks of equal order."""
        own = enumerate(map(A.terms_of, blocks))
        t = placed_coordinates((b * A.m + term.at, term.rows) for b, terms in own for term in terms)
        k = np.argsort(t.row, kind="stable")
        (block, row), i, j = np.divmod(t.row[k], A.m), t.i[k], t.j[k]
        lower, upper = np.minimum(i, j), np.maximum(i, j)
        return cls(A.m, len(blocks), A.orders[blocks[0]], row, block, lower, upper, t.value[k])

    @cached_property
    def first(self) -> IntArray:
        """The first term of each row in each block that it meets."""
        return np.flatnonzero(np.diff(self.block * self.m + self.row, prepend=-1))

    @cached_property
    def rows_per_block(self) -> IntArray:
        """The number of rows that meet each block."""
        return np.bincount(self.block[self.first], minlength=self.count)

    @cached_property
    def terms_per_block(self) -> IntArray:
        """The number of terms in each block."""
        return np.bincount(self.block, minlength=self.count)

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:
        """The distinct entries ``i * n + j`` of all terms, and the number of each term's entry among them."""
        places, place = np.unique(self.i * self.n + self.j, return_inverse=True)
        return places, place.ravel()


class TermSchur:
    """The Schur matrix from pairs of terms."""

    def __init__(self, terms: StackTerms) -> None:
        t = terms
        self._m = t.m
        places, place = t.places
        self._i, self._j = np.divmod(places, t.n)
        d = len(places)
        # Each pair of terms of one block once, the pair of a term with itself by half.
        first, second = _pairs_of_items(t.terms_per_block)
        self._source = (t.block[first] * d + place[first]) * d + place[second]
        self.target = t.row[first] * t.m + t.row[second]
        self._weight = t.value[first] * t.value[second]
        self._weight[first == second] /= 2
        self._chunk = max(1, _STACK_CHUNK // max(d * d, 1))

    @staticmethod
    def cost(terms: StackTerms) -> float:
        """Return the approximate nanoseconds of the formula."""
        places, pairs = len(terms.places[0]), float((terms.terms_per_block.astype(float) ** 2).sum()) / 2
        return _PLACE_COST * terms.count * places**2 + _PAIR_COST * pairs

    @staticmethod
    def numbers(terms: StackTerms) -> float:
        """Return how many numbers the formula stores."""
        places = len(terms.places[0])
        return terms.count * places**2 + 3 * float((terms.terms_per_block.astype(float) ** 2).sum()) / 2

    def values(self, X: Array, K: Array) -> Array:
        d = len(self._i)
        products = np.empty((len(X), d, d))
        for b in range(0, len(X), self._chunk):
            checkpoint()
            own = slice(b, b + self._chunk)
            products[own] = self._place_products(X[own], K[own])
        values = products.ravel().take(self._source)
        values *= self._weight
        return values

    def assemble(self, X: Array, K: Array) -> Array:
        H = np.bincount(self.target, self.values(X, K), self._m**2).astype(float, copy=False)
        H = H.reshape(self._m, self._m)
        return H + H.T

    def _place_products(self, X: Array, K: Array) -> Array:
        """Return ``<E_p, sym(X E_q K)>`` for the places ``E = (e_i e_j' + e_j e_i') / 2``."""
        i, j = self._i, self._j
        Xi, Xj, Ki, Kj = X.take(i, 1), X.take(j, 1), K.take(i, 1), K.take(j, 1)
        total: Array = Xi.take(i, 2) * Kj.take(j, 2)
        total += Xj.take(j, 2) * Ki.take(i, 2)
        mixed = Xi.take(j, 2) * Kj.take(i, 2)
        total += mixed
        total += mixed.swapaxes(1, 2)
        total /= 4
        return total


class ProductSchur:
    """The Schur matrix from products with dense rows, in groups of blocks that meet about as many rows."""

    def __init__(self, terms: StackTerms) -> None:
        self._m = terms.m
        self._groups = [_DenseRows(terms, blocks) for blocks in _similar(terms.rows_per_block)]

    @staticmethod
    def cost(terms: StackTerms) -> float:
        """Return the approximate nanoseconds of the formula."""
        rows, n = terms.rows_per_block.astype(float), terms.n
        flops = 2 * rows * n**3 + rows**2 * n**2
        return float((_FLOP_COST * flops + _PAIR_COST * rows**2).sum())

    @staticmethod
    def numbers(terms: StackTerms) -> float:
        """Return how many numbers the formula stores."""
        rows = terms.rows_per_block.astype(float)
        return float((4 * rows * terms.n**2 + 2 * rows**2).sum())

    @cached_property
    def target(self) -> IntArray:
        return np.concatenate([np.zeros(0, dtype=np.intp), *(group.target.ravel() for group in self._groups)])

    def values(self, X: Array, K: Array) -> Array:
        return np.concatenate([np.zeros(0), *(group.products(X, K).ravel() / 2 for group in self._groups)])

    def assemble(self, X: Array, K: Array) -> Array:
        H = np.zeros((self._m, self._m))
        for group in self._groups:
            checkpoint()
            group.add(H, X, K)
        return H


class _DenseRows:
    """The rows of some blocks as dense matrices, an array of shape ``(blocks, rows, n, n)``."""

    def __init__(self, terms: StackTerms, blocks: IntArray) -> None:
        t, n = terms, terms.n
        position = np.full(t.count, -1)
        position[blocks] = np.arange(len(blocks))
        own = np.flatnonzero(position[t.block] >= 0)
        block, row = position[t.block[own]], t.row[own]
        change = np.diff(block * t.m + row, prepend=-1) != 0
        number = np.cumsum(change) - 1  # of the row among the rows of all these blocks
        starts = number[np.flatnonzero(np.diff(block, prepend=-1))]
        local = number - starts[block]
        width = int(local.max()) + 1
        # A block with fewer rows has rows of zeros, which count as its row 0.
        self._rows = np.zeros((len(blocks), width), dtype=np.intp)
        self._rows[block, local] = row
        A = np.zeros((len(blocks), width, n, n))
        for i, j in ((t.i, t.j), (t.j, t.i)):
            np.add.at(A, (block, local, i[own], j[own]), t.value[own] / 2)
        self._A, self._blocks, self._n, self._m = A, blocks, n, t.m
        self._same = bool((self._rows == self._rows[0]).all()) and width == len(np.unique(self._rows[0]))

    @cached_property
    def target(self) -> IntArray:
        """The places in the Schur matrix, shape ``(blocks, rows, rows)``."""
        return self._rows[:, :, None] * self._m + self._rows[:, None, :]

    def products(self, X: Array, K: Array) -> Array:
        """Return ``tr(A_k X A_l K)`` for the pairs of rows of each block, shape ``(blocks, rows, rows)``."""
        count, width = self._rows.shape
        n = self._n
        tall = self._A.reshape(count, width * n, n)
        left = (tall @ X[self._blocks]).reshape(count, width, n * n)
        right = (tall @ K[self._blocks]).reshape(count, width, n, n).swapaxes(2, 3)
        return left @ right.reshape(count, width, n * n).swapaxes(1, 2)

    def add(self, H: Array, X: Array, K: Array) -> None:
        """Add the part of these blocks to the Schur matrix."""
        G = self.products(X, K)
        if self._same:
            H[self._rows[0][:, None], self._rows[0]] += np.add.reduce(G)
            return
        H += np.bincount(self.target.ravel(), G.ravel(), self._m**2).reshape(self._m, self._m)


def _similar(counts: IntArray) -> Iterator[IntArray]:
    """Yield groups of blocks whose counts differ by a factor of at most two; not those without rows."""
    size = np.frexp(counts)[1]
    for power in np.unique(size[counts > 0]):
        yield np.flatnonzero((size == power) & (counts > 0))


def _pairs_of_items(counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return all pairs ``first <= second`` of items in one group, for consecutive groups of these sizes."""
    ends = np.repeat(np.cumsum(counts), counts)
    items = np.arange(len(ends))
    partners = ends - items
    first = np.repeat(items, partners)
    offset = np.arange(len(first)) - np.repeat(np.cumsum(partners) - partners, partners)
    return first, first + offset


# --- Sparse systems -------------------------------------------------------------------------------------


class SparseRowSystem(RowSystem):
    """The system in the multipliers of the rows, with a sparse matrix.

    Parameters
    ----------
    plan : Plan
    B : csr_array of shape (m, k)
    cones : SecondOrderCones
        Of the variables.
    """

    sparse = True

    def __init__(self, plan: Plan, B: Any, cones: SecondOrderCones) -> None:
        super().__init__(plan, B, direct=True)
        self._formulas = [group.rows.formula for group in plan.groups]
        self._pattern = _Pattern(plan.m, self._formulas, B, cones)

    @classmethod
    def of(cls, plan: Plan, B: Any, cones: SecondOrderCones) -> SparseRowSystem | None:
        """Return the system, None where the matrix or its factor is not sparse."""
        return cls(plan, B, cones) if math.isfinite(sparse_fill(plan.A, B, cones)) else None

    def _factorized(
        self, scaling_point: ScalingPoint, bounded: IntArray
    ) -> tuple[VariableMetric, Callable[[Array, Array], tuple[Array, Array]]]:
        D, D_u = scaling_point.D, scaling_point.D_u
        m, k, count = self.plan.m, len(D_u), len(bounded)
        metric = VariableMetric(D_u, np.ones(k, dtype=bool), scaling_point.cones, scaling_point.p_u)
        parts = zip(self._formulas, scaling_point.X_parts, scaling_point.K_parts, strict=True)
        values = np.concatenate([formula.values(X, K) for formula, X, K in parts])
        matrix = self._pattern.matrix(values, np.where(np.isfinite(D), D, 0.0), 1 / D_u, metric.products)
        if count < m:
            kept = np.concatenate([bounded, np.arange(m, m + k)])
            matrix = matrix[kept][:, kept]
        checkpoint()
        factor = SparseFactor(matrix, count)

        def solve(b: Array, q: Array) -> tuple[Array, Array]:
            x = factor.solve(np.concatenate([b, q]))
            return x[:count], x[count:]

        return metric, solve


class _Pattern:
    """The pattern of ``[[M + D, B], [B', -inv(D_u)]]``, and the place of each value in it."""

    def __init__(
        self,
        m: int,
        formulas: Sequence[BlockSchur | TermSchur | ProductSchur],
        B: Any,
        cones: SecondOrderCones,
    ) -> None:
        entries = sp.coo_array(B)
        size = m + B.shape[1]
        first, second = np.divmod(np.concatenate([formula.target for formula in formulas]), m)
        diagonal = np.arange(size)
        one, other = (m + cones.index[k] for k in cones.pairs)
        column = np.concatenate([second, first, diagonal, entries.col + m, entries.row, one])
        row = np.concatenate([first, second, diagonal, entries.row, entries.col + m, other])
        places, place = np.unique(column * size + row, return_inverse=True)
        self._place, self._B = place.ravel().astype(np.intp), entries.data
        column, row = np.divmod(places, size)
        self._indices, self._indptr = row.astype(np.int32), np.searchsorted(column, np.arange(size + 1))
        self._size = size

    def matrix(self, values: Array, D: Array, E: Array, products: Array) -> Any:
        """Return the matrix; ``inv(D_u)`` is the diagonal `E` plus `products` of variables in one cone."""
        data = np.concatenate([values, values, D, -E, self._B, self._B, -products])
        summed = np.bincount(self._place, data, len(self._indices))
        return sp.csc_array((summed, self._indices, self._indptr), (self._size, self._size))


def sparse_fill(A: LinearMap, B: Any, cones: SecondOrderCones) -> float:
    """Return about the number of nonzeros in a factor, infinite where it or its matrix is not sparse."""
    m = A.m
    if _pairs(A) > _SPARSE_SCHUR * m**2:
        return math.inf
    fill = fill_of(A, B, _SEARCH_SHARE * m**3, cones)
    return fill if fill <= _SPARSE_FACTOR * m**2 / 2 else math.inf


def _pairs(A: LinearMap) -> float:
    """Return an upper bound on the pairs of rows that meet one block."""
    count = np.zeros(len(A.orders))
    for term in A.terms:
        count[term.block] += len(term.at)
    return float(count @ count)


def fill_of(A: LinearMap, B: Any, most: float, cones: SecondOrderCones = NO_CONES) -> float:
    """Return about the number of nonzeros in a factor of ``[[M + D, B], [B', -inv(D_u)]]``.

    Rows that meet the same blocks and variables have the same pattern: each kind of row is eliminated at
    once.

    Parameters
    ----------
    A : LinearMap
    B : csr_array of shape (m, k)
    most : float
        Limit on the operations of the search.
    cones : SecondOrderCones, optional

    Returns
    -------
    float
        Infinite if the limit is reached.
    """
    kind, weight, incidence = _kinds(A, B)
    blocks, kinds = len(A.orders), len(weight)
    columns = sp.csc_array(incidence)
    neighbors: dict[int, set[int]] = {v: set() for v in range(kinds + B.shape[1])}
    for j, (start, end) in enumerate(pairwise(columns.indptr.tolist())):
        met = set(kind[columns.indices[start:end]].tolist())
        most -= len(met) ** 2
        if most < 0:
            return math.inf
        if j >= blocks:
            neighbors[kinds + j - blocks] |= met
        for v in met:
            neighbors[v] |= met - {v} if j < blocks else {kinds + j - blocks}
    for cone in np.split(kinds + cones.index, cones.starts[1:]):
        met = set(cone.tolist())
        for v in met:
            neighbors[v] |= met - {v}
    order = eliminate(neighbors, most)
    if neighbors:
        return math.inf
    size = [*weight, *[1] * B.shape[1]]
    return float(sum(size[v] * ((size[v] + 1) / 2 + sum(size[u] for u in later)) for v, later in order))


def _kinds(A: LinearMap, B: Any) -> tuple[Any, list[int], Any]:
    """Return the kind of each row, the number of rows of each kind, and what each row meets."""
    at = np.concatenate([np.zeros(0, dtype=np.intp), *(term.at for term in A.terms)])
    block = np.repeat([term.block for term in A.terms], [len(term.at) for term in A.terms]).astype(np.intp)
    meets = sp.csr_array((np.ones(len(at)), (at, block)), (A.m, len(A.orders)))
    incidence = sp.csr_array(sp.hstack([meets, B], format="csr"))
    incidence.sort_indices()
    number: dict[bytes, int] = {}
    ends = incidence.indptr.tolist()
    kind = [
        number.setdefault(incidence.indices[start:end].tobytes(), len(number))
        for start, end in pairwise(ends)
    ]
    return np.array(kind), np.bincount(kind).tolist(), incidence


class SparseFactor:
    """A factorized symmetric matrix, its diagonal increased slightly where rows are dependent.

    Parameters
    ----------
    S : csc_array of shape (n, n)
        Its leading block is positive semidefinite, its trailing block negative semidefinite.
    definite : int
        The order of the leading block.

    Raises
    ------
    LinAlgError
        If the matrix is not finite, or not factorized even after its diagonal is doubled.
    """

    def __init__(self, S: Any, definite: int) -> None:
        if not np.isfinite(S.data).all():
            raise LinAlgError("the matrix is not finite")
        self._S = S
        n = S.shape[0]
        sizes = np.maximum.reduceat(np.abs(S.data), S.indptr[:-1])  # each diagonal entry is stored
        sizes = np.where(sizes > ZERO_DIAGONAL, sizes, 1.0) * np.repeat([1.0, -1.0], [definite, n - definite])
        extra, factor = 0.0 if definite == n else _SHIFT, None
        while factor is None:
            checkpoint()
            if extra > 1:
                raise LinAlgError("the matrix is out of the range of doubles")
            factor = _factor(S + sp.diags_array(extra * sizes) if extra else S, definite)
            extra = max(10 * extra, 1e-14)
        self._factor = factor

    def solve(self, right: Array) -> Array:
        """Return the solution, refined while that reduces the residual."""
        if len(right) == 0:
            return right
        x = self._factor.solve(right)
        residual = right - self._S @ x
        size = float(residual @ residual)
        for _ in range(_REFINEMENTS):
            if size <= DEFINITE_RESIDUAL**2 * float(right @ right):
                break
            refined = x + self._factor.solve(residual)
            residual = right - self._S @ refined
            size, before = float(residual @ residual), size
            if not size < before:
                break
            x = refined
        return x


def _factor(S: Any, definite: int) -> SuperLU | None:
    """Return the factorization with diagonal pivots, None where they have not the signs of the blocks."""
    try:
        factor = splu(
            sp.csc_array(S),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except RuntimeError:
        return None
    if definite == S.shape[0] and not (factor.U.diagonal() > 0).all():
        return None
    return factor
