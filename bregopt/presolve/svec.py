"""Rows and points as vectors: ``svec`` of each matrix, then the variables; rows that are alike.

``svec(S)`` lists the entries on and above the diagonal, those above it times the root of two (Alizadeh,
Haeberly, Overton 1998). Inner products of vectors are those of matrices. Squared distances and quadratic
forms among sparse rows are recognized: solvers handle them faster.

*Parallel* rows are equal up to sign, such as those of two mirrored entries of a symmetric matrix. Hard ones
are one row with the tightest bounds, hinges on the same bounds are one with the sum of the prices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, Array, IntArray, Mask
from bregopt.certify import is_farkas
from bregopt.linalg import csr_of, rows_at
from bregopt.presolve import Reduced, Tolerances, with_multipliers
from bregopt.program import Answer, Bounds, LinearMap, Penalty, Program, Start, Term
from bregopt.program.rows import Coordinates, DenseRows, Distances, RankOne, Rows, SparseRows, upper_triangles
from bregopt.records import dataclass, replace

# Terms of all rows above which rows are not compared, of families of few terms and of all families.
_LARGEST_LISTED, _LARGEST_DENSE = 10_000_000, 1_000_000
_SUM_NOISE = 1e-12  # relative distance of two sums above which they are sums of other numbers
# Difference of two entries, relative to the row's largest, that counts as round-off of the data.
ENTRY_NOISE = 1e-12
# Of an entry: rows that are recognized are changed by this much. A row of rank two may be that near rank one.
_SAME = 4 * EPS
_HINGE = int(Penalty.HINGE)
# Rows ``w z'Xz``: their numbers, the supports of the ``z``, the ``z`` there, and the ``w``.
_Squares = tuple[IntArray, IntArray, Array, Array]
# Fraction of nonzeros above which the vectors of rank-one rows are stored dense.
_DENSE_FRACTION = 0.25


@dataclass(frozen=True)
class Svec:
    """The vectors of points with matrices of the given orders and `k` variables."""

    orders: tuple[int, ...]
    k: int

    @classmethod
    def of(cls, program: Program) -> Svec:
        """Return the vectors of the points of a program."""
        return cls(program.A.orders, program.k)

    @property
    def width(self) -> int:
        """The length of a vector."""
        return sum(n * (n + 1) // 2 for n in self.orders) + self.k

    def vectors(self, stacks: Sequence[Array], columns: Array) -> Array:
        """Return the vectors of stacks of matrices, one for each block, and of rows of variables."""
        return np.concatenate([*map(svec, stacks), columns], axis=1)

    def points(self, vectors: Array) -> tuple[list[Array], Array]:
        """Return the stack of matrices of each block and the variables of several vectors, its rows."""
        stacks, start = [], 0
        for n in self.orders:
            end = start + n * (n + 1) // 2
            stacks.append(smat(vectors[:, start:end], n))
            start = end
        return stacks, vectors[:, start:]


def svec(stack: Array) -> Array:
    """Return the vectors of symmetric matrices of order `n`, arrays of shape ``(..., n, n)``."""
    n = stack.shape[-1]
    entries = stack.reshape(*stack.shape[:-2], n * n)
    return entries.take(_places(n)[0], axis=-1) * _upper(n)[2]


def smat(vectors: Array, n: int) -> Array:
    """Return the symmetric matrices of order `n` of vectors, arrays of shape ``(..., n (n + 1) / 2)``."""
    entries = (vectors / _upper(n)[2]).take(_places(n)[1], axis=-1)
    return entries.reshape(*vectors.shape[:-1], n, n)


def _elements(t: Coordinates, n: int) -> tuple[IntArray, Array]:
    """Return the place of each term in the vector of its row, and its value there."""
    i, j = np.minimum(t.i, t.j), np.maximum(t.i, t.j)
    return i * n - i * (i + 1) // 2 + j, np.where(i == j, t.value, t.value / np.sqrt(2))


def _starts(orders: Sequence[int]) -> IntArray:
    """Return the place of the first entry of each matrix, and of the first variable."""
    return np.concatenate([[0], np.cumsum([n * (n + 1) // 2 for n in orders])]).astype(np.intp)


@lru_cache(maxsize=4)
def _upper(n: int) -> tuple[IntArray, IntArray, Array]:
    """Return the places of the entries on and above the diagonal, and their factors."""
    i, j = np.triu_indices(n)
    return i, j, np.where(i == j, 1.0, np.sqrt(2))


@lru_cache(maxsize=4)
def _places(n: int) -> tuple[IntArray, IntArray]:
    """Return the place in a matrix, row by row, of each element of its vector, and the other way round."""
    i, j, _ = _upper(n)
    places = np.empty((n, n), dtype=np.intp)
    places[i, j] = places[j, i] = np.arange(len(i))
    return i * n + j, places.ravel()


def svec_rows(program: Program, rows: IntArray) -> Array:
    """Return some rows as vectors, shape ``(len(rows), width)``."""
    A, width = program.A.slice(rows), Svec.of(program).width
    starts = _starts(A.orders)
    vectors, sparse = np.zeros((len(rows), width)), []
    for term in A.terms:
        n, start = A.orders[term.block], starts[term.block]
        if term.rows.few_terms and term.rows.products() is None:
            t = term.rows.coordinates()
            place, value = _elements(t, n)
            sparse.append((term.at[t.row] * width + start + place, value))
        else:
            own = (upper_triangles(term.rows) / _upper(n)[2][:, None]).T
            vectors[term.at, start : starts[term.block + 1]] += own
    if sparse:
        places, values = (np.concatenate(part) for part in zip(*sparse, strict=True))
        np.add.at(vectors.reshape(-1), places, values)
    vectors[:, starts[-1] :] = rows_at(program.B, rows).toarray()
    return vectors


def sparse_svec(A: LinearMap) -> Any:
    """Return the rows of a map as a CSR matrix, one vector each, for rows with few terms."""
    return _sparse(A, _elements)


def sparse_entries(A: LinearMap) -> Any:
    """Return the coefficients of the entries on and above the diagonals in rows with few terms, CSR."""
    return _sparse(A, lambda t, n: (_elements(t, n)[0], t.value))


def _sparse(A: LinearMap, elements: Callable[[Coordinates, int], tuple[IntArray, Array]]) -> Any:
    starts = _starts(A.orders)
    row, place, value = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)], [np.zeros(0)]
    for term in A.terms:
        t = term.rows.coordinates()
        own_place, own_value = elements(t, A.orders[term.block])
        row.append(term.at[t.row])
        place.append(starts[term.block] + own_place)
        value.append(own_value)
    index = np.concatenate(row), np.concatenate(place)
    vectors = csr_of(np.concatenate(value), *index, (A.m, int(starts[-1])))
    vectors.eliminate_zeros()
    return vectors


def svec_map(orders: Sequence[int], vectors: Any) -> LinearMap:
    """Return the map whose rows have the given vectors, a CSR matrix: the inverse of :func:`sparse_svec`."""
    triangles = [_upper(n) for n in orders]
    block = np.repeat(np.arange(len(orders)), [len(i) for i, *_ in triangles])
    i, j, lengths = (np.concatenate(part) for part in zip(*triangles, strict=True))
    row = np.repeat(np.arange(vectors.shape[0]), np.diff(vectors.indptr))
    by_block = np.argsort(block[vectors.indices], kind="stable")
    row, place = row[by_block], vectors.indices[by_block]
    value = vectors.data[by_block] * lengths[place]
    ends = np.searchsorted(block[place], np.arange(len(orders) + 1))
    terms = []
    for b, n in enumerate(orders):
        own = slice(ends[b], ends[b + 1])
        if ends[b] < ends[b + 1]:
            new = np.diff(row[own], prepend=-1) > 0
            at, local = row[own][new], np.cumsum(new) - 1
            coordinates = Coordinates(local, i[place[own]], j[place[own]], value[own])
            rows = SparseRows(len(at), n, coordinates)
            terms += [Term(b, at[local], family) for local, family in recognize(rows)]
    return LinearMap(vectors.shape[0], tuple(orders), tuple(terms))


def with_equalities(program: Program, vectors: Array, right: Array, others: IntArray) -> Program:
    """Return the program with the given equalities first, as vectors, and the rows `others` after them."""
    e, A = len(vectors), program.A.slice(others)
    stacks, columns = Svec.of(program).points(vectors)
    terms = [Term(b, np.arange(e), DenseRows(stack)) for b, stack in enumerate(stacks)]
    terms += [replace(term, at=term.at + e) for term in A.terms]
    return replace(
        program,
        A=LinearMap(e + len(others), A.orders, tuple(terms)),
        B=sp.csr_array(sp.vstack([sp.csr_array(columns), program.B[others]], format="csr")),
        bounds=Bounds.of_hard_rows(right, right).followed_by(program.bounds.slice(others)),
        labels=(),
        parameter_slopes=(),
    )


def recognize(rows: SparseRows) -> list[tuple[IntArray, Rows]]:
    """Return the rows by family, each family with the numbers of its rows.

    Rows ``w (X_ii + X_jj - 2 X_ij)`` become :class:`Distances`. Other rows ``w z'Xz`` with two or more
    entries in ``z`` become :class:`RankOne`. The remaining rows stay as they are.
    """
    t, left = rows.terms, np.ones(rows.m, dtype=bool)
    count = np.bincount(t.row, minlength=rows.m)
    support = np.bincount(t.row[t.i == t.j], minlength=rows.m)
    full = (support >= 2) & (count == support * (support + 1) // 2)
    squares: list[_Squares] = []
    found: list[tuple[IntArray, Rows]] = []
    for s in np.bincount(support[full]).nonzero()[0].tolist():
        own = _squares(rows, np.flatnonzero(full & (support == s)))
        left[own[0]] = False
        apart = _differences(own[2])
        if apart.any():
            at, place, _, weight = _taken(own, apart)
            found.append((at, Distances(rows.n, place[:, 0], place[:, 1], weight)))
        squares.append(_taken(own, ~apart))
    if any(len(at) for at, *_ in squares):
        found.append(_rank_one(rows.n, squares))
    rest = np.flatnonzero(left)
    return [*found, (rest, rows.slice(rest))] if len(rest) else found


def _squares(rows: SparseRows, at: IntArray) -> _Squares:
    """Return the rows that are ``w z'Xz``, the supports of the ``z``, the ``z`` there, and the ``w``.

    All rows `at` have the same number of diagonal entries. The terms of a row ``w z'Xz`` are the upper
    triangle of ``w z z'`` on the support of ``z``, row by row.
    """
    t = rows.terms
    start = np.searchsorted(t.row, at)
    s = int((np.sqrt(8 * (np.searchsorted(t.row, at[:1] + 1) - start[:1])[0] + 1) - 1) / 2 + 0.5)
    i, j, _ = _upper(s)
    term = start[:, None] + np.arange(len(i))
    place = t.i[term[:, i == j]]
    there = (t.i[term] == place[:, i]).all(axis=1) & (t.j[term] == place[:, j]).all(axis=1)
    value = t.value[term] / np.where(i == j, 1.0, 2.0)
    weight = value[:, 0]
    z = value[:, :s] / weight[:, None]
    miss = np.abs(weight[:, None] * z[:, i] * z[:, j] - value).max(axis=1)
    same = there & (miss <= _SAME * np.abs(value).max(axis=1))
    return at[same], place[same], z[same], weight[same]


def _taken(squares: _Squares, chosen: Mask) -> _Squares:
    at, place, z, weight = squares
    return at[chosen], place[chosen], z[chosen], weight[chosen]


def _differences(z: Array) -> Mask:
    """Return the mask of vectors ``(1, -1)``; every vector begins with one."""
    return np.abs(z[:, 1] + 1) <= _SAME if z.shape[1] == 2 else np.zeros(len(z), dtype=bool)


def _rank_one(n: int, squares: Sequence[_Squares]) -> tuple[IntArray, Rows]:
    """Return rows ``w z'Xz`` of several sizes of supports, in ascending order, as one family."""
    at, weight = (np.concatenate([part[k] for part in squares]) for k in (0, 3))
    place, z = (np.concatenate([part[k].ravel() for part in squares]) for k in (1, 2))
    order = np.argsort(at)
    row = np.repeat(np.argsort(order), np.concatenate([np.full(*part[1].shape) for part in squares]))
    if len(z) <= _DENSE_FRACTION * len(at) * n:
        return at[order], RankOne(csr_of(z, row, place, (len(at), n)), weight[order])
    Z = np.zeros((len(at), n))
    Z[row, place] = z
    return at[order], RankOne(Z, weight[order])


def orientation(rows: Any) -> Array:
    """Return the sign of the first coefficient of each row of a CSR matrix; 1 for a row of zeros."""
    used, sign = np.diff(rows.indptr) > 0, np.ones(rows.shape[0])
    sign[used] = np.sign(rows.data[rows.indptr[:-1][used]])
    return sign


def alike(rows: Any, sign: Array, *labels: Array | IntArray) -> IntArray | None:
    """Return the groups of rows that are equal, times their signs, and have equal labels.

    Parameters
    ----------
    rows : csr_array of shape (m, width)
        Without stored zeros, and with sorted columns.
    sign : array of shape (m,)
    *labels : arrays of shape (m,)

    Returns
    -------
    int array of shape (m,), or None
        A number for each row, the same for those of a group; None if each row is alone, as rows of zeros are.
    """
    used = np.diff(rows.indptr) > 0
    key = sign * (rows @ np.random.default_rng(0).uniform(1.0, 2.0, rows.shape[1]))
    order = np.lexsort((*labels, key, ~used))
    a, b = order[:-1], order[1:]
    same = used[a] & used[b]
    for label in (key, *labels):
        same &= label[a] == label[b]
    count = np.diff(rows.indptr)
    same &= count[a] == count[b]
    if not same.any():
        return None
    left, right = (rows_at(rows, k[same], sign[k[same]]) for k in (a, b))
    own = np.repeat(np.arange(left.shape[0]), np.diff(left.indptr))
    differ = (left.indices != right.indices) | (left.data != right.data)
    same[same] = np.bincount(own[differ], minlength=left.shape[0]) == 0
    group = np.empty(len(order), dtype=np.intp)
    group[order] = np.cumsum(np.concatenate([[True], ~same])) - 1
    return group


def leaders(group: IntArray) -> tuple[IntArray, IntArray]:
    """Return the first member of each group, ascending, and the place of that of each member among them."""
    _, leader, of = np.unique(group, return_index=True, return_inverse=True)
    left = np.sort(leader)
    return left, np.searchsorted(left, leader)[np.ravel(of)]


def oriented(bounds: Bounds, sign: Array) -> tuple[Array, Array]:
    """Return the bounds of rows times signs."""
    return np.where(sign > 0, bounds.lo, -bounds.hi), np.where(sign > 0, bounds.hi, -bounds.lo)


def without_round_off(c: Array, A: Any, price: Array) -> Array:
    """Return ``c + A'price``, zero where that is round-off: a cost of round-off seems to fall without end."""
    if not price.any():
        return c
    total = c + A.T @ price
    return np.where(np.abs(total) > ENTRY_NOISE * (np.abs(c) + abs(A).T @ np.abs(price)), total, 0.0)


def all_differ(program: Program) -> bool:
    """Whether no two rows have the same sum of coefficients, up to sign; kept with the rows.

    The sum has a weight for each entry of a matrix, and the same for all variables.
    """
    known = program.A.plans.get(all_differ)
    if known is None or known[0] is not program.B:
        rng = np.random.default_rng(0)
        weights = [rng.uniform(1.0, 2.0, (n, n)) for n in program.A.orders]
        sums = program.activity([W + W.T for W in weights], np.ones(program.k))
        size = np.sort(np.abs(sums))
        known = program.A.plans[all_differ] = program.B, bool((np.diff(size) > _SUM_NOISE * size[1:]).all())
    return bool(known[1])


def comparable(program: Program) -> bool:
    """Whether all rows are listed by few terms, or by few enough."""
    rows = [term.rows for term in program.A.terms]
    few, count = all(own.few_terms for own in rows), sum(own.count() for own in rows)
    return count <= (_LARGEST_LISTED if few else _LARGEST_DENSE)


def coefficients(program: Program) -> Any:
    """Return the coefficients of all rows as one CSR matrix, entries of matrices first."""
    both = sp.csr_array(sp.hstack([sparse_svec(program.A), program.B], format="csr"))
    both.sum_duplicates()
    both.eliminate_zeros()
    return both


# --- Parallel rows --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Merged(Reduced):
    """A program in which one row stands for all that are parallel to it.

    Parameters
    ----------
    left : int array
        The remaining rows.
    of : int array of shape (m,)
        The place among them of the row that stands for each.
    sign : array of shape (m,)
        Its sign in that.
    farkas : array of shape (m,), optional
        A Farkas vector, where two rows contradict each other.
    """

    left: IntArray
    of: IntArray
    sign: Array
    farkas: Array | None = None

    rescales: ClassVar[bool] = True  # each of the rows counts in the norm of the violations

    def contradiction(self) -> Array | None:
        return self.farkas

    @property
    def summary(self) -> str:
        count = self.whole.m - len(self.left)
        return f"{count} row{'s' if count > 1 else ''} parallel to another"

    def shrink(self, start: Start) -> Start:
        return replace(start, y=np.bincount(self.of, self.sign * start.y, len(self.left)).astype(float))

    def restore(self, answer: Answer) -> Answer:
        return with_multipliers(answer, self._multipliers)

    def _multipliers(self, own: Array) -> Array:
        """Return multipliers of all rows: those with the tightest bound share one, hinges by their prices."""
        bounds, y = self.whole.bounds, own[self.of]
        lo, hi = oriented(bounds, self.sign)
        tight = np.where(y > 0, lo == self.program.bounds.lo[self.of], hi == self.program.bounds.hi[self.of])
        weight = np.where(bounds.kind == _HINGE, bounds.gamma, 1.0) * tight
        total = np.bincount(self.of, weight, len(self.left))[self.of]
        return self.sign * y * np.divide(weight, total, out=np.zeros(len(y)), where=total > 0)


# Pays on: embedding of distances, n = 20.
def parallel_rows(program: Program, tolerances: Tolerances) -> Merged | None:
    """Merge hard rows, and hinges on the same bounds, that are equal up to sign; other penalties stay."""
    if not comparable(program):
        return None
    rows = coefficients(program)
    first = orientation(rows)
    lo, hi = oriented(program.bounds, first)
    kind, alone = program.bounds.kind, 2 + np.arange(program.m)
    hinge = kind == _HINGE
    # Hinges merge with those on the same bounds alone, hard rows with all hard ones.
    label = np.where(hinge | program.bounds.hard, hinge, alone)
    group = alike(rows, first, np.where(hinge, hi, 0.0), np.where(hinge, lo, 0.0), label)
    if group is None:
        return None
    return _merged(program, group, first, lo, hi)


def _merged(program: Program, group: IntArray, first: Array, lo: Array, hi: Array) -> Merged | None:
    count = int(group.max()) + 1
    tightest = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(tightest[0], group, lo)
    np.minimum.at(tightest[1], group, hi)
    crossed, farkas = tightest[0] > tightest[1], None
    if crossed.any():  # they stay apart, and contradict each other if that is more than round-off
        rows = np.flatnonzero(group == np.argmax(crossed))
        y = np.zeros(program.m)
        for k, price in ((rows[np.argmax(lo[rows])], 1.0), (rows[np.argmin(hi[rows])], -1.0)):
            y[k] += price * first[k]
        farkas = y if is_farkas(program, y) else None
        group = np.where(crossed[group], count + np.arange(program.m), group)
    left, of = leaders(group)
    if len(left) == program.m and farkas is None:
        return None
    bounds, sign = program.bounds.slice(left), first * first[left][of]
    own = oriented(program.bounds, sign)
    lo, hi = np.full(len(left), -np.inf), np.full(len(left), np.inf)
    np.maximum.at(lo, of, own[0])
    np.minimum.at(hi, of, own[1])
    hinges = np.where(program.bounds.kind == _HINGE, program.bounds.gamma, 0.0)
    gamma = np.where(bounds.kind == _HINGE, np.bincount(of, hinges), bounds.gamma)
    merged = replace(program.of_rows(left), bounds=replace(bounds, lo=lo, hi=hi, gamma=gamma))
    return Merged(program, merged, left, of, sign, farkas)
