"""Inequalities that all points meet with equality, as rows imply it together.

**Relations.** Let weights ``r`` of rows have ``sum_k r_k A_k = 0``, positive ones at lower bounds, negative
ones at upper bounds, any at equalities, and let the bounds sum to zero in the same way. Then each of these
inequalities holds with equality at every ``X``. They leave ``X`` no interior, and multipliers may grow along
``r`` without end; equalities do not. A multiplier that has the wrong sign as one of an inequality gets it by
adding a multiple of ``r``, which changes neither ``A*(y)`` nor the dual value.

**Sums of zero.** In relaxations of assignments the rows ``sum_j X_kj = X_0k`` and ``X_kk = X_0k`` leave the
sum of the ``X_kj`` beside the diagonal no value but zero, so that with ``X >= 0`` each of them is zero.
Further rows may then be such sums.

1. Equalities ``X_ij = X_kl`` make classes of equal entries.
2. A row with bound zero is a sum of entries ``s_j > 0`` that own rows keep nonnegative, with one entry for
   each class and without the entries that are zero already.
3. The rows of these entries become equalities. The sums, which are then implied, are left out.

**Other rows.** The relation with most rows is the answer to a linear program. It is sought only where
multipliers grew so much that they cancel each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask, scattered
from bregopt.certify import is_farkas
from bregopt.presolve import Reduced, Tolerances, with_multipliers
from bregopt.presolve.svec import coefficients, comparable, sparse_entries
from bregopt.program import Answer, Bounds, Program, Start
from bregopt.records import dataclass, replace

# Terms of all rows above which none is searched.
_LARGEST_LISTED = 2_000_000
# Coefficient of a class, relative to the largest of its row, that may be round-off of a sum.
_UNSURE = 1e-9
# Size of A*(y) and B'y, relative to their terms, up to which multipliers cancel each other.
_CANCELED = 1e-3
# Coefficients of all rows above which no relation is sought: the linear program takes a second.
_LARGEST_RELATED = 500_000
# What is left of a relation, for rows of norm one, that is round-off.
_RELATION_NOISE = 1e-13


class _Relation(NamedTuple):
    """Rows with ``sum_k weight_k A_k = 0``, where weights are positive at lower bounds.

    Parameters
    ----------
    rows : int array
    weight : array
    entries : int
        The number of inequalities that become equalities, the first rows: those of the entries of a sum.
    """

    rows: IntArray
    weight: Array
    entries: int


@dataclass(frozen=True, eq=False)
class WithEqualities(Reduced):
    """A program with equalities for inequalities that relations make tight.

    Parameters
    ----------
    kept : int array
        The remaining rows.
    relations : tuple of _Relation
        In the order in which they were found: each may use the equalities of those before it.
    """

    kept: IntArray
    relations: tuple[_Relation, ...]

    @property
    def summary(self) -> str:
        count = sum(relation.entries for relation in self.relations)
        return f"{count} {'entries' if count > 1 else 'entry'} of sums that are zero"

    def contradiction(self) -> Array | None:
        """Return a Farkas vector where an entry of a sum has to be positive."""
        for relation in self.relations:
            if (relation.weight * self._bound(relation) > 0)[: relation.entries].any():
                y = np.zeros(self.whole.m)
                y[relation.rows] = relation.weight
                y = self._lifted(y)
                if is_farkas(self.whole, y):
                    return y
        return None

    def shrink(self, start: Start) -> Start:
        return replace(start, y=start.y[self.kept])

    def restore(self, answer: Answer) -> Answer:
        return with_multipliers(answer, self._multipliers)

    def _multipliers(self, own: Array) -> Array:
        y = scattered(self.kept, own, self.whole.m)
        return self._lifted(y)

    def _lifted(self, y: Array) -> Array:
        """Return multipliers with the signs of inequalities, where those of entries have any sign."""
        for relation in reversed(self.relations):
            entries, weight = relation.rows[: relation.entries], relation.weight[: relation.entries]
            t = float((-y[entries] / weight).max())
            if t > 0:
                y[relation.rows] += t * relation.weight
        return y

    def _bound(self, relation: _Relation) -> Array:
        bounds = self.whole.bounds
        return np.where(relation.weight > 0, bounds.lo[relation.rows], bounds.hi[relation.rows])


# Pays on: a lifted assignment of size 3.
def zero_sums(program: Program, tolerances: Tolerances) -> WithEqualities | None:
    """Fix nonnegative entries to zero whose sum is zero."""
    bounds = program.bounds
    zero = bounds.hard & ((bounds.lo == 0) | (bounds.hi == 0))
    if not (zero & bounds.equal).any() or not (zero & ~bounds.equal).any():
        return None
    if sum(term.count for term in program.A.terms) > _LARGEST_LISTED:
        return None
    relations, implied = _Search(program).relations()
    if not relations:
        return None
    entries = np.concatenate([r.rows[: r.entries] for r in relations])
    lo, hi = bounds.lo.copy(), bounds.hi.copy()
    lo[entries] = hi[entries] = 0.0
    kept = np.flatnonzero(~implied)
    fixed = replace(program, bounds=Bounds(lo, hi, bounds.kind, bounds.gamma)).of_rows(kept)
    return WithEqualities(program, fixed, kept, tuple(relations))


class _Search:
    """The classes of entries, the rows that bound one entry, and those that may be sums."""

    def __init__(self, program: Program) -> None:
        bounds, rows = program.bounds, sparse_entries(program.A)
        alone = bounds.hard & (np.diff(program.B.indptr) == 0)
        zero, count, start = (bounds.lo == 0) | (bounds.hi == 0), np.diff(rows.indptr), rows.indptr[:-1]
        self._rows, self._bounds = rows, bounds
        two = np.flatnonzero(alone & bounds.equal & zero & (count == 2))
        first = start[two]
        opposite = rows.data[first] == -rows.data[first + 1]
        two, first = two[opposite], first[opposite]
        self._classes = _Classes(two, rows.indices[[first, first + 1]], rows.data[first])
        self._of = self._classes.numbers(rows.shape[1])
        single = np.flatnonzero(alone & (count == 1))
        end = np.where(rows.data[start[single]] > 0, bounds.lo[single], bounds.hi[single])
        single = single[(end * rows.data[start[single]] >= 0) & np.isfinite(end)]
        self._bounding: dict[int, list[int]] = {}  # the rows that bound the entries of each class
        for k, c in zip(single.tolist(), self._of[rows.indices[start[single]]].tolist(), strict=True):
            self._bounding.setdefault(c, []).append(k)
        self._sums = np.flatnonzero(alone & zero & (count > 1))

    def relations(self) -> tuple[list[_Relation], Mask]:
        """Return the sums that are zero, one after the other, and the rows that they imply."""
        width, bounds, found = self._rows.shape[1], self._bounds, list[_Relation]()
        in_class = sp.csr_array((np.ones(width), (np.arange(width), self._of)), (width, width))
        table = sp.csr_array(self._rows[self._sums] @ in_class)
        table.eliminate_zeros()
        row = np.repeat(np.arange(len(self._sums)), np.diff(table.indptr))
        size = abs(table).max(axis=1).toarray().ravel() if len(self._sums) else np.zeros(0)
        unsure = np.abs(table.data) <= _UNSURE * size[row]
        zero, bounded = np.zeros(width, dtype=bool), np.zeros(width, dtype=bool)
        for c, rows in self._bounding.items():
            bounded[c], fixed = True, [k for k in rows if bounds.lo[k] == 0 == bounds.hi[k]]
            if fixed:
                zero[c], self._bounding[c] = True, fixed

        def without(terms: Mask) -> Mask:
            """Return the sums with none of the given terms."""
            return np.bincount(row[terms], minlength=len(self._sums)) == 0

        done = without(np.ones(len(row), dtype=bool))  # rows of two equal entries
        empty = done
        while True:
            left, before = ~zero[table.indices], zero.copy()
            done = without(left)
            for sign, end in ((1.0, bounds.hi), (-1.0, bounds.lo)):
                wrong = unsure | (left & ~(bounded[table.indices] & (sign * table.data > 0)))
                for k in np.flatnonzero(~done & without(wrong) & (end[self._sums] == 0)).tolist():
                    terms = slice(table.indptr[k], table.indptr[k + 1])
                    own = table.indices[terms]
                    if not zero[own].all():
                        new = ~before[own]
                        found.append(
                            self._relation(int(self._sums[k]), sign, own, sign * table.data[terms], new)
                        )
                        zero[own] = True
            if (zero == before).all():
                break
        implied = np.zeros(bounds.m, dtype=bool)
        implied[self._sums[done & ~empty]] = True
        return found, implied

    def _relation(self, k: int, sign: float, own: IntArray, size: Array, new: Mask) -> _Relation:
        """Return the relation of a row, with the classes in it, their sizes, and which are new."""
        weight: dict[int, float] = {}
        data, start = self._rows.data, self._rows.indptr
        order = np.argsort(~new, kind="stable")
        for c, part in zip(own[order].tolist(), size[order].tolist(), strict=True):
            own_rows = self._bounding[c]
            weight |= {j: part / (len(own_rows) * float(data[start[j]])) for j in own_rows}
        count = sum(len(self._bounding[c]) for c in own[new].tolist())
        weight[k] = -sign
        rows, value = np.array(list(weight)), np.array(list(weight.values()))
        left = self._rows[rows].T @ value
        for j, w in self._classes.combination(left).items():
            weight[j] = weight.get(j, 0.0) - w
        return _Relation(np.array(list(weight)), np.array(list(weight.values())), count)


class _Classes:
    """Classes of entries that rows of two terms equate, as trees."""

    def __init__(self, rows: IntArray, pairs: IntArray, value: Array) -> None:
        beside: dict[int, list[tuple[int, int, float]]] = {}
        for k, i, j, v in zip(rows.tolist(), *pairs.tolist(), value.tolist(), strict=True):
            beside.setdefault(i, []).append((j, k, -v))
            beside.setdefault(j, []).append((i, k, v))
        self._up: dict[int, tuple[int, int, float]] = {}  # the next entry, the row, its coefficient here
        self._root: dict[int, int] = {}
        for root in beside:
            if root in self._root:
                continue
            self._root[root], reached = root, [root]
            for entry in reached:
                for other, k, v in beside[entry]:
                    if other not in self._root:
                        self._root[other], self._up[other] = root, (entry, k, v)
                        reached.append(other)

    def numbers(self, width: int) -> IntArray:
        """Return the class of each of `width` entries: one of its entries."""
        of = np.arange(width)
        of[list(self._root)] = list(self._root.values())
        return of

    def combination(self, vector: Array) -> dict[int, float]:
        """Return weights of rows that sum up to a vector, whose sum in each class is zero."""
        weight: dict[int, float] = {}
        for entry in np.flatnonzero(vector).tolist():
            at = entry
            while at in self._up:
                at, k, v = self._up[at]
                weight[k] = weight.get(k, 0.0) + float(vector[entry]) / v
        return weight


# --- Other rows -----------------------------------------------------------------------------------------


def tight_rows(program: Program, y: Array) -> WithEqualities | None:
    """Return the program with equalities for all inequalities that rows together make tight.

    None is returned where there are none, or where the multipliers do not cancel each other.

    Parameters
    ----------
    program : Program
    y : array of shape (m,)
        Multipliers of an answer that has not met its tolerance.
    """
    bounds = program.bounds
    above, below = np.isfinite(bounds.hi), np.isfinite(bounds.lo)
    loose = bounds.hard & (above != below)
    if not loose.any() or not _cancel(program, y) or not comparable(program):
        return None
    rows = coefficients(program)
    if rows.nnz > _LARGEST_RELATED:
        return None
    relation = _largest_relation(program, rows, loose, bounds.hard & bounds.equal)
    if relation is None:
        return None
    tight = relation.rows[: relation.entries]
    lo, hi = bounds.lo.copy(), bounds.hi.copy()
    lo[tight] = hi[tight] = np.where(above, hi, lo)[tight]
    fixed = replace(program, bounds=Bounds(lo, hi, bounds.kind, bounds.gamma))
    return WithEqualities(program, fixed, np.arange(program.m), (relation,))


def _cancel(program: Program, y: Array) -> bool:
    """Whether ``A*(y)`` and ``B'y`` are small beside their terms."""
    parts = [*(program.A.adjoint(y, b) for b in range(len(program.blocks))), program.Bt @ y]
    left = np.linalg.norm([np.linalg.norm(part) for part in parts])
    return bool(left <= _CANCELED * float(np.abs(y) @ program.row_sizes))


def _largest_relation(program: Program, rows: Any, loose: Mask, equal: Mask) -> _Relation | None:
    """Return a relation of the most inequalities; None if there is none, or none up to round-off.

    A linear program maximizes ``sum_k min(r_k, 1)``.
    """
    from scipy.optimize import linprog  # slow to import, seldom needed

    bounds, used = program.bounds, program.row_sizes > 0
    own, fixed = np.flatnonzero(loose & used), np.flatnonzero(equal & used)
    both, count = np.concatenate([own, fixed]), len(own)
    bound = np.where(np.isfinite(bounds.hi), bounds.hi, bounds.lo)[both]
    sign = np.where(equal | np.isfinite(bounds.lo), 1.0, -1.0)[both]
    size = sign / program.row_sizes[both]
    columns = (sp.diags_array(size) @ sp.hstack([rows[both], bound[:, None]])).T.tocsr()
    columns = columns[np.diff(columns.indptr) > 0]
    found = linprog(
        np.repeat([-1.0, 0.0], [count, len(both)]),
        A_eq=sp.hstack([columns[:, :count], columns]),
        b_eq=np.zeros(columns.shape[0]),
        bounds=[(0, 1)] * count + [(0, None)] * count + [(None, None)] * len(fixed),
    )
    if found.status != 0 or not (found.x[:count] > 0.5).any():
        return None
    weight = found.x[count:]
    weight[:count] += found.x[:count]
    tight = np.append(found.x[:count] > 0.5, weight[count:] != 0)
    weight, M = weight[tight], columns[:, tight].toarray()
    weight -= np.linalg.lstsq(M, M @ weight, rcond=None)[0]  # that of the linear program has a few digits
    entries, left = int(tight[:count].sum()), np.abs(M @ weight).max()
    if weight[:entries].min() <= 0 or left > _RELATION_NOISE * np.abs(weight).sum():
        return None
    return _Relation(both[tight], weight * size[tight], entries)
