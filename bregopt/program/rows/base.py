"""Matrices stored by a factor; the base of row families, ``m`` rows ``<A_k, X>``; and general rows.

The latter are dense matrices, or few terms each: ``sum_t value_t X[i_t, j_t]``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import EPS, Array, IntArray, Mask, finite_array
from bregopt.records import PickledWithoutCache, cached_property, dataclass, replace

# `_LARGEST_LISTED` is the largest number of terms that are listed to find signs, `_LARGEST_FACTORED` the
# largest number of rows times their order that are factorized for it.
_LARGEST_LISTED, _LARGEST_FACTORED = 1_000_000, 20_000
_MANY_TERMS = 2_000  # below, the calls of a sparse product cost more than the terms
_MANY_ENTRIES = 0.05  # terms, relative to the entries, above which a product of low rank is formed


class LowRank:
    """The positive semidefinite matrix ``F F'``, stored by its factor.

    Parameters
    ----------
    factor : array_like of shape (n, r)
        The factor ``F``; it is copied. Its columns need not be independent.

    Raises
    ------
    TypeError, ValueError
        If the factor is not a finite real matrix with at least one row and one column.
    """

    __slots__ = ("factor",)
    factor: Array

    def __init__(self, factor: ArrayLike) -> None:
        self.factor = finite_array(factor, "factor", ndim=2)
        if self.factor.size == 0:
            raise ValueError(
                f"factor has shape {self.factor.shape}; expected at least one row and one column"
            )
        self.factor.setflags(write=False)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape ``(n, n)`` of the matrix."""
        return self.factor.shape[0], self.factor.shape[0]

    @property
    def rank(self) -> int:
        """The number of columns of the factor: the rank when they are independent."""
        return self.factor.shape[1]

    def dense(self) -> Array:
        """Return the ``n x n`` array."""
        return self.factor @ self.factor.T

    def diag(self) -> Array:
        """Return the diagonal, shape ``(n,)``."""
        return np.einsum("ij,ij->i", self.factor, self.factor)

    def trace(self) -> float:
        """Return the trace."""
        return float(np.vdot(self.factor, self.factor))

    def diagonal(self) -> Array:
        """Return the diagonal, under the name of NumPy's method."""
        return self.diag()

    def eigenvalues(self) -> Array:
        """Return the ``min(n, r)`` largest eigenvalues, ascending; the others are zero."""
        eigenvalues: Array = np.square(np.linalg.svd(self.factor, compute_uv=False)[::-1])
        return eigenvalues

    def __getitem__(self, key: Any) -> Any:
        """Return ``dense()[key]``, computing only those entries."""
        n = self.factor.shape[0]
        order = np.arange(n)
        i = np.broadcast_to(order[:, None], (n, n))[key]
        j = np.broadcast_to(order, (n, n))[key]
        return np.einsum("...r,...r->...", self.factor[i], self.factor[j])[()]

    def __matmul__(self, other: Any) -> Array:
        """Return ``X @ other``, by way of the factor."""
        product: Array = self.factor @ (self.factor.T @ other)
        return product

    def __rmatmul__(self, other: Any) -> Array:
        """Return ``other @ X``, by way of the factor."""
        product: Array = (other @ self.factor) @ self.factor.T
        return product

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        dense = self.dense()
        return dense if dtype is None else dense.astype(dtype)

    def __repr__(self) -> str:
        return f"LowRank(n={self.factor.shape[0]}, rank={self.rank})"

    def __getstate__(self) -> Array:
        return self.factor

    def __setstate__(self, factor: Array) -> None:
        self.factor = factor
        self.factor.setflags(write=False)  # pickle does not keep it


Matrix = Array | LowRank


def frobenius_norm(X: Matrix) -> float:
    """Return the Frobenius norm."""
    return float(np.linalg.norm(X.factor.T @ X.factor if isinstance(X, LowRank) else X))


# --- Families of rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Rows as a list of terms: row ``row[k]`` has the term ``value[k] * X[i[k], j[k]]``."""

    row: IntArray
    i: IntArray
    j: IntArray
    value: Array

    @classmethod
    def concatenated(cls, parts: Iterable[Coordinates]) -> Coordinates:
        """Return the terms of several lists."""
        fields = zip(*((t.row, t.i, t.j, t.value) for t in parts), strict=True)
        return cls(*map(np.concatenate, fields))

    def combined(self, y: Array, n: int) -> Any:
        """Return ``sum_k y_k A_k`` of order `n` as a sparse array."""
        half = self.value * y[self.row] / 2
        place = np.concatenate([self.i, self.j]), np.concatenate([self.j, self.i])
        return sp.csr_array((np.concatenate([half, half]), place), (n, n))

    def on_entries(self, m: int, n: int) -> Any:
        """Return the table, of shape ``(m, n^2)``, that maps any matrix to the rows at its symmetric part."""
        place = np.concatenate([self.i * n + self.j, self.j * n + self.i])
        return sp.csr_array((np.tile(self.value, 2) / 2, (np.tile(self.row, 2), place)), (m, n * n))


@dataclass(frozen=True, eq=False)
class RankOneTerms:
    """Rows as sums of few rank-one terms: row ``row[r]`` has the term ``weight[r] u_r u_r'``.

    The ``u`` are the rows of `U`, dense or CSR of shape ``(terms, n)``.
    """

    U: Any
    row: IntArray
    weight: Array


@dataclass(frozen=True, eq=False)
class Products:
    """Rows ``weight_k u_k' X w_k``; `U` and `W` are one object where they are equal.

    The ``u`` and ``w`` are the rows of `U` and `W`, dense or CSR of shape ``(m, n)``.
    """

    U: Any
    W: Any
    weight: Array


class Rows(ABC):
    """A family of `m` linear rows ``<A_k, X>`` over symmetric matrices of order `n`.

    A subclass must define `n`, `m`, `apply`, `adjoint`, `slice`, `scale` and `coordinates`. The other methods
    use dense matrices here, for a family without known structure; a subclass that overrides them is faster.

    Attributes
    ----------
    m : int
        The number of rows.
    n : int
        The order of ``X``.
    """

    rank: ClassVar[int | None] = None
    """An upper bound on the rank of a row and on its :meth:`rank_one_terms`; None without a bound."""
    single: ClassVar[bool] = False
    """Whether each row is one entry, which :meth:`coordinates` then lists in the order of the rows."""

    if TYPE_CHECKING:  # a subclass has them as fields or as properties

        @property
        def m(self) -> int: ...

        @property
        def n(self) -> int: ...

    @abstractmethod
    def apply(self, X: Matrix) -> Array:
        """Return ``<A_k, X>`` for every row, shape ``(m,)``."""

    @abstractmethod
    def adjoint(self, y: Array) -> Array:
        """Return ``sum_k y_k A_k``, a symmetric array of shape ``(n, n)``."""

    @abstractmethod
    def slice(self, rows: IntArray) -> Self:
        """Return the rows with the given indices; an index may repeat."""

    @abstractmethod
    def scale(self, weight: Array) -> Self:
        """Return the rows ``weight[k] * A_k``."""

    @abstractmethod
    def coordinates(self) -> Coordinates:
        """Return the rows term by term."""

    def followed_by(self, others: Sequence[Any]) -> Rows:
        """Return one family of these rows and of those of others, of the same class and :func:`storage`."""
        families = [self, *others]
        starts = np.cumsum([0, *(rows.m for rows in families)]).tolist()
        return SparseRows.of(starts.pop(), self.n, joined_terms(zip(starts, families, strict=True)))

    def restrict(self, V: Array) -> Rows:
        """Return the rows ``V' A_k V``: the same rows for ``X = V M V'``; `V` has shape ``(n, r)``."""
        stack = np.array([V.T @ A @ V for A in self._matrices()]).reshape(self.m, *2 * V.shape[1:])
        return DenseRows((stack + stack.transpose(0, 2, 1)) / 2)

    def norms(self) -> Array:
        """Return the Frobenius norms of the ``A_k``, shape ``(m,)``."""
        return np.array([float(np.linalg.norm(A)) for A in self._matrices()])

    def magnitude(self, s: Array) -> Array:
        """Return ``sum_ij |A_ij| s_i s_j``, an upper bound of a row on psd matrices with diagonal ``s^2``."""
        return np.array([float(s @ np.abs(A) @ s) for A in self._matrices()])

    def factor(self, k: int) -> tuple[Array, Array]:
        """Return ``(U, d)`` with ``A_k = U diag(d) U'``, `U` of shape ``(n, rank)`` of full column rank."""
        return eigen_factor(self.slice(np.array([k])).adjoint(np.ones(1)))

    def rank_one_terms(self) -> RankOneTerms | None:
        """Return the rows as rank-one terms, None where they may need many."""
        return None

    def count(self) -> int:
        """Return about how many terms :meth:`coordinates` would list, without listing them."""
        return len(self.coordinates().row)

    @property
    def few_terms(self) -> bool:
        """Whether there are so few terms that :meth:`coordinates` is the cheapest way to read the rows."""
        return self.count() <= _LARGEST_LISTED

    def products(self) -> Products | None:
        """Return the rows as products of two vectors, None where they are stored otherwise."""
        return None

    def nonzero(self) -> IntArray:
        """Return the indices of the nonzero rows, ascending; zero rows may be among them."""
        return np.arange(self.m)

    def definite_signs(self, asked: Mask | None = None) -> Array:
        """Return 1 for rows with psd ``A_k``, -1 for negative semidefinite ones, 0 for others or unknown.

        Rows outside the mask `asked`, if given, need only a cheap test.
        """
        signs = np.zeros(self.m)
        if self.count() > _LARGEST_LISTED:
            return signs
        t = self.coordinates()
        own = t.i == t.j
        positive, negative = (
            np.bincount(t.row[own & side], minlength=self.m) > 0 for side in (t.value > 0, t.value < 0)
        )
        mixed = np.bincount(t.row[~own], minlength=self.m) > 0
        signs[positive & ~negative & ~mixed], signs[negative & ~positive & ~mixed] = 1.0, -1.0
        uncertain = ((positive ^ negative) & mixed & (True if asked is None else asked)).nonzero()[0]
        if len(uncertain) * self.n > _LARGEST_FACTORED:
            return signs
        for k in uncertain:
            d = self.factor(int(k))[1]
            if len(d) and (d.min() > 0 or d.max() < 0):
                signs[k] = np.sign(d[0])
        return signs

    def _matrices(self) -> Iterator[Array]:
        """Yield the ``A_k``."""
        for k in range(self.m):
            yield self.slice(np.array([k])).adjoint(np.ones(1))


class WeightedRows(Rows):
    """Rows with a weight each; `by_row` names the fields that have an element or a vector for each row."""

    by_row: ClassVar[tuple[str, ...]]
    weight: Array

    @property
    def m(self) -> int:
        return len(self.weight)

    def followed_by(self, others: Sequence[Any]) -> Self:
        return joined(self, others, *self.by_row)

    def slice(self, rows: IntArray) -> Self:
        family: Any = self
        part: Self = replace(family, **{name: getattr(self, name)[rows] for name in self.by_row})
        return part

    def scale(self, weight: Array) -> Self:
        family: Any = self
        scaled: Self = replace(family, weight=self.weight * weight)
        return scaled


RowFamily = Rows  # for families of your own
Family = TypeVar("Family", bound=Rows)


# --- General rows -------------------------------------------------------------------------------------------


def storage(rows: Rows) -> tuple[bool, ...]:
    """Return which of the factors of a family are sparse; families with equal answers can be joined."""
    return tuple([sp.issparse(getattr(rows, name)) for name in ("L", "R", "Z", "U") if hasattr(rows, name)])


def joined(rows: Family, others: Sequence[Any], *names: str) -> Family:
    """Return the rows of several families, whose fields of these names are put one below the other."""
    first: Any = rows
    family: Family = replace(
        first, **{name: stacked([getattr(own, name) for own in (rows, *others)]) for name in names}
    )
    return family


def stacked(parts: Sequence[Any]) -> Any:
    """Return arrays, or sparse matrices, one below the other."""
    return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)


def joined_terms(parts: Iterable[tuple[int, Rows]]) -> Coordinates:
    """Return the terms of families, each of which starts at the given row."""
    shifted = [(start, rows.coordinates()) for start, rows in parts]
    fields = zip(*((t.row + start, t.i, t.j, t.value) for start, t in shifted), strict=True)
    return Coordinates(*map(np.concatenate, fields))


def placed_coordinates(families: Iterable[tuple[IntArray, Rows]]) -> Coordinates:
    """Return the terms of families whose rows ``k`` are the rows ``at[k]`` of a stack."""
    none = np.zeros(0, dtype=np.intp)
    parts = [(at[t.row], t.i, t.j, t.value) for at, rows in families for t in [rows.coordinates()]]
    return Coordinates(*map(np.concatenate, zip((none, none, none, np.zeros(0)), *parts, strict=True)))


def symmetric_scatter(n: int, i: IntArray, j: IntArray, value: Array) -> Array:
    """Return ``sum_k value_k (e_i e_j' + e_j e_i') / 2``, shape ``(n, n)``."""
    if 8 * len(value) > n * n:
        dense = np.bincount(i * n + j, weights=value, minlength=n * n).reshape(n, n)
        return (dense + dense.T) / 2
    sparse = np.zeros(n * n)
    np.add.at(sparse, i * n + j, value / 2)
    np.add.at(sparse, j * n + i, value / 2)
    return sparse.reshape(n, n)


def eigen_factor(A: Array) -> tuple[Array, Array]:
    """Return ``(U, d)`` with ``A = U diag(d) U'``, dropping the null space of the symmetric `A`."""
    d, U = np.linalg.eigh(A)
    keep = np.abs(d) > 8 * len(d) * EPS * np.abs(d).max(initial=0.0)
    return U[:, keep], d[keep]


@dataclass(frozen=True, eq=False)
class DenseRows(Rows):
    """Rows given by a stack of symmetric matrices, shape ``(m, n, n)``."""

    few_terms: ClassVar[bool] = False

    stack: Array

    @property
    def m(self) -> int:
        return self.stack.shape[0]

    @property
    def n(self) -> int:
        return self.stack.shape[1]

    def apply(self, X: Matrix) -> Array:
        if isinstance(X, LowRank):
            return np.einsum("kir,ir->k", self.stack @ X.factor, X.factor)
        return self.stack.reshape(len(self.stack), -1) @ X.ravel()

    def adjoint(self, y: Array) -> Array:
        return (y @ self.stack.reshape(len(self.stack), -1)).reshape(self.stack.shape[1:])

    def restrict(self, V: Array) -> DenseRows:
        restricted = V.T @ self.stack @ V
        return DenseRows((restricted + restricted.transpose(0, 2, 1)) / 2)

    def followed_by(self, others: Sequence[Any]) -> DenseRows:
        return joined(self, others, "stack")

    def slice(self, rows: IntArray) -> DenseRows:
        return DenseRows(self.stack[rows])

    def scale(self, weight: Array) -> DenseRows:
        return DenseRows(weight[:, None, None] * self.stack)

    def norms(self) -> Array:
        return np.sqrt(np.add.reduce(self.stack * self.stack, axis=(1, 2)))

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.stack).reshape(self.m, -1) @ np.outer(s, s).ravel()

    def factor(self, k: int) -> tuple[Array, Array]:
        return eigen_factor(self.stack[k])

    def coordinates(self) -> Coordinates:
        row, i, j = np.nonzero(self.stack)
        return Coordinates(row, i, j, self.stack[row, i, j])

    def count(self) -> int:
        return self.stack.size


@dataclass(frozen=True, eq=False)
class SparseRows(PickledWithoutCache, Rows):
    """Rows given by their terms, sorted by row; four arrays of one length."""

    few_terms: ClassVar[bool] = True

    m: int
    n: int
    terms: Coordinates

    @classmethod
    def of(cls, m: int, n: int, terms: Coordinates) -> SparseRows:
        """Return the rows, with the terms of each entry summed and zeros dropped."""
        i, j = np.minimum(terms.i, terms.j), np.maximum(terms.i, terms.j)
        # One 64-bit key for (row, i, j), which does not overflow while m n^2 is below 2^63.
        key = (terms.row * n + i) * n + j
        order = key.argsort(kind="stable")
        key, value = key[order], terms.value[order].astype(float, copy=False)
        first = np.ones(len(key), dtype=bool)
        np.not_equal(key[1:], key[:-1], out=first[1:])
        if not first.all():
            start = first.nonzero()[0]
            order, value = order[start], np.add.reduceat(value, start)
        kept = value != 0
        if not kept.all():
            order, value = order[kept], value[kept]
        return cls(m, n, Coordinates(terms.row[order], i[order], j[order], value))

    @classmethod
    def trace(cls, n: int, weight: float = 1.0) -> SparseRows:
        """Return one row, a multiple of the trace."""
        each = np.arange(n)
        return cls(1, n, Coordinates(np.zeros(n, dtype=np.intp), each, each, np.full(n, weight)))

    def apply(self, X: Matrix) -> Array:
        t = self.terms
        if isinstance(X, LowRank) and len(t.row) > _MANY_ENTRIES * self.n**2:
            X = X.dense()
        if isinstance(X, LowRank):
            entry = np.einsum("kr,kr->k", X.factor[t.i], X.factor[t.j])
        elif len(t.row) <= _MANY_TERMS:
            entry = X[t.i, t.j]
        else:
            activity: Array = self._table @ X.ravel(order="K")  # a symmetric matrix in either order
            return activity
        return np.bincount(t.row, weights=t.value * entry, minlength=self.m).astype(float)

    def adjoint(self, y: Array) -> Array:
        t, n = self.terms, self.n
        if not self._many_terms:
            return symmetric_scatter(n, t.i, t.j, t.value * y[t.row])
        half = (self._table_transposed @ y).reshape(n, n)
        return (half + half.T) / 2

    @property
    def _many_terms(self) -> bool:
        """Whether products with a table cost less than a look at each term."""
        return len(self.terms.row) > max(_MANY_TERMS, self.n**2)

    @cached_property
    def _table(self) -> Any:
        """The rows as a CSR matrix over all entries of ``X``."""
        t = self.terms
        ends = np.searchsorted(t.row, np.arange(self.m + 1))
        return sp.csr_array((t.value, t.i * self.n + t.j, ends), shape=(self.m, self.n**2))

    @cached_property
    def _absolute_table(self) -> Any:
        return abs(self._table)

    @cached_property
    def _table_transposed(self) -> Any:
        return self._table.T

    def restrict(self, V: Array) -> DenseRows:
        t, r = self.terms, V.shape[1]
        stack = np.empty((self.m, r, r))
        ends = np.searchsorted(t.row, np.arange(self.m + 1))
        for k in range(self.m):
            span = slice(ends[k], ends[k + 1])
            half = V[t.i[span]].T @ (t.value[span, None] * V[t.j[span]])
            stack[k] = (half + half.T) / 2
        return DenseRows(stack)

    def followed_by(self, others: Sequence[Any]) -> SparseRows:
        starts = np.cumsum([0, self.m, *(rows.m for rows in others)]).tolist()
        return SparseRows(starts.pop(), self.n, joined_terms(zip(starts, (self, *others), strict=True)))

    def slice(self, rows: IntArray) -> SparseRows:
        t = self.terms
        ends = np.searchsorted(t.row, np.arange(self.m + 1))
        count = ends[rows + 1] - ends[rows]
        new = np.repeat(np.arange(len(rows)), count)
        old = np.arange(len(new)) + np.repeat(ends[rows] - np.cumsum(count) + count, count)
        return SparseRows(len(rows), self.n, Coordinates(new, t.i[old], t.j[old], t.value[old]))

    def scale(self, weight: Array) -> SparseRows:
        t = self.terms
        return replace(self, terms=replace(t, value=t.value * weight[t.row]))

    def norms(self) -> Array:
        t = self.terms
        square = np.where(t.i == t.j, t.value**2, t.value**2 / 2)
        return np.sqrt(np.bincount(t.row, weights=square, minlength=self.m))

    def magnitude(self, s: Array) -> Array:
        t = self.terms
        if self._many_terms:
            magnitude: Array = self._absolute_table @ np.outer(s, s).ravel()
            return magnitude
        part = np.abs(t.value) * s[t.i] * s[t.j]
        return np.bincount(t.row, weights=part, minlength=self.m).astype(float)

    def factor(self, k: int) -> tuple[Array, Array]:
        t = self.terms
        span = slice(*np.searchsorted(t.row, [k, k + 1]))
        support, local = np.unique(np.concatenate([t.i[span], t.j[span]]), return_inverse=True)
        i, j = np.split(local.ravel(), 2)
        small, d = eigen_factor(symmetric_scatter(len(support), i, j, t.value[span]))
        U = np.zeros((self.n, len(d)))
        U[support] = small
        return U, d

    def coordinates(self) -> Coordinates:
        return self.terms

    def count(self) -> int:
        return len(self.terms.row)

    def nonzero(self) -> IntArray:
        return np.bincount(self.terms.row, minlength=self.m).nonzero()[0]
