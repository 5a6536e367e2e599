"""Estimated times of a Newton step on cliques: they decide which are merged, and whether a block is split."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.presolve.clique_rows import CliqueTerms, Pattern
from bregopt.presolve.cliques import Clique, CliqueTree, entries
from bregopt.presolve.constants import (
    DECOMPOSED_SHARE,
    DENSE_TIME,
    FRONT_TIME,
    GROUP_TIME,
    LARGE_CLIQUE_TIME,
    LARGE_SQUARE_TIME,
    LARGEST_STACKED,
    LEAST_ELIMINATED,
    LEAST_FRINGE,
    ORDER_TIME,
    SMALL_CLIQUE_TIME,
    SMALL_SQUARE_TIME,
    TERM_TIME,
)

__all__ = ["core", "fringe", "is_cheaper", "may_be_cheaper", "sizes_of", "work"]


def work(clique: Clique) -> float:
    """Return the approximate nanoseconds that a clique adds to a Newton step.

    They are those of its products and factorizations, of the pairs of terms in its part of the Schur matrix,
    and of the elimination of its rows there.
    """
    linked = entries(clique.separator) + min(clique.shared, entries(clique.order))
    rows, terms = clique.rows + linked, clique.terms + linked
    return _matrix_time(clique.order) + TERM_TIME * terms**2 + _elimination_time(rows / 2, rows)


def _elimination_time(eliminated: Any, front: Any) -> Any:
    """Return the nanoseconds of the elimination of some rows of dense fronts."""
    return FRONT_TIME * (front**3 - (front - eliminated) ** 3) / 3


def _matrix_time(n: int) -> float:
    """Return the nanoseconds of products, factorizations and step lengths."""
    if n <= LARGEST_STACKED:
        return SMALL_CLIQUE_TIME + SMALL_SQUARE_TIME * n**2
    return LARGE_CLIQUE_TIME + LARGE_SQUARE_TIME * n**2 + ORDER_TIME * n**3


def core(degrees: IntArray) -> int:
    """Return the number of vertices to eliminate, from the degrees of all in their order.

    The others take less time as one clique. Those that are eliminated are expected to make cliques of the
    best size, with as many vertices in the separator as the degree.
    """
    n = len(degrees)
    kinds, kind = np.unique(degrees, return_inverse=True)
    times = []
    for degree in kinds.tolist():
        sizes = [max(degree, LEAST_ELIMINATED) * factor for factor in (1, 2, 4, 8)]
        shared = entries(degree)
        times.append(min(work(Clique(degree + own, degree, own, own, shared)) / own for own in sizes))
    eliminated = np.concatenate([[0.0], np.cumsum(np.array(times)[kind])])
    left = np.array([_matrix_time(k) + TERM_TIME * k**2 + DENSE_TIME * k**3 for k in range(n, -1, -1)])
    return int(np.argmin(eliminated + left))


def fringe(degrees: IntArray) -> int:
    """Return the number of vertices of degree 2 at most, such as those of trees and paths; zero for few.

    Their elimination takes little time even if that of the others would take much.
    """
    count = int(np.argmax(np.append(degrees, 3) > 2))
    return count if count > LEAST_FRINGE * len(degrees) else 0


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
    return _matrices_time(tree) < DECOMPOSED_SHARE * _whole_time(pattern)


def is_cheaper(cliques: CliqueTerms, pattern: Pattern) -> bool:
    """Whether a Newton step on the cliques takes much less time than one on the whole matrix."""
    own = cliques.terms.row >= 0
    terms = np.bincount(cliques.clique[own]).astype(float)
    system = TERM_TIME * float(terms @ terms) + float(_elimination_time(*_fronts(cliques)).sum())
    return _matrices_time(cliques.tree) + system < DECOMPOSED_SHARE * _whole_time(pattern)


def _matrices_time(tree: CliqueTree) -> float:
    orders = np.array([len(v) for v in tree.vertices])
    groups = len(np.unique(orders[orders <= LARGEST_STACKED]))
    return GROUP_TIME * groups + sum(map(_matrix_time, orders.tolist()))


def _whole_time(pattern: Pattern) -> float:
    own = pattern.terms.row >= 0
    places = len(np.unique(pattern.terms.i[own] * pattern.n + pattern.terms.j[own]))
    rows = len(np.unique(pattern.terms.row[own]))
    return _matrix_time(pattern.n) + TERM_TIME * places**2 + DENSE_TIME * rows**3


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
