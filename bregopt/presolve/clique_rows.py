"""The rows of a program in clique submatrices, and the equalities where these overlap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from bregopt.arrays import IntArray
from bregopt.cache import cached_property
from bregopt.presolve.cliques import CliqueTree
from bregopt.presolve.constants import LARGEST_PATTERN, MOST_PATTERN_TERMS
from bregopt.program import Block, Program
from bregopt.program.rows import Coordinates, DenseRows, Rows, SparseRows

__all__ = ["CliqueTerms", "Pattern", "pattern_of"]

_COST = -1  # the number of the cost among the rows


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
    most = min(LARGEST_PATTERN * n**2 / 2, MOST_PATTERN_TERMS)
    if not families or any(_is_full(rows, most) for _, rows in families):
        return None
    stored = sum(rows.count() for _, rows in families if not isinstance(rows, DenseRows))
    if stored > MOST_PATTERN_TERMS:
        return None
    listed = [(at, rows.coordinates()) for at, rows in families]
    if sum(len(t.row) for _, t in listed) > MOST_PATTERN_TERMS:
        return None
    row = np.concatenate([at[t.row] for at, t in listed])
    i, j, value = (np.concatenate([getattr(t, name) for _, t in listed]) for name in ("i", "j", "value"))
    if len(np.unique(np.minimum(i, j) * n + np.maximum(i, j))) > most:
        return None
    return Pattern(n, program.m, SparseRows.of(program.m, n, Coordinates(row, i, j, value)).terms)


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
