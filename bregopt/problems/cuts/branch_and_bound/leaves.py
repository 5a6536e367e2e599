r"""Nodes of the tree, and the proof of a bound at each, with all rounding errors.

A node holds the cuts with some pairs of vertices on one side, and others on two: ``x_i = s_i u_g`` for the
vertices ``i`` of a group ``g``. So the graph is folded, and each group is one sign ``u_g``. Multipliers of
rows that all cuts satisfy bound the cuts of a node. Rows and multipliers are those of the whole piece, so a
child begins with the bound of its parent.

*Clique rows.* For integers ``b`` with an odd sum ``|b'x| >= 1``, so ``b'Xb >= 1`` for ``X = xx'``. Written
off the diagonal, with ``b`` of entries 1 and -1 at an odd number of vertices, the row is

    sum_{i<j} b_i b_j x_i x_j + (|b|^2 - 1) / 2 >= 0

For multipliers ``z >= 0`` and any ``y``, let ``M = C - Diag y + sum_t (z_t / 2) offdiag(b_t b_t')``. Then
``x'Cx <= e'y + sum_t z_t (|b_t|^2 - 1) / 2 + u'Mu`` with the folded ``M``, and ``u'Mu`` is at most the number
of groups times the largest eigenvalue (Helmberg, Rendl, Weismantel 2000; Krislock, Malick, Roupin 2014).

*Cycle rows.* A closed walk changes sides an even number of times. If ``F`` is an odd set of its edges, then
``x(F) - x(C \ F) <= |F| - 1``, ``x_e`` being 1 for an edge of the cut. With multipliers ``z >= 0``, the cut
is at most ``sum_t z_t (|F_t| - 1)`` plus, for each pair of groups, the larger value of what is left of its
weight (Barahona, Mahjoub 1986; safe bounds: Neumaier, Shcherbina 2004).

*Rows of triples* bound partitions in ``k`` parts of given sizes, whose weights are those of the edges less
than zero: ``X_ij`` is 1 for ``i`` and ``j`` in one part and ``-1/(k-1)`` for others. Pairs have ``X_ij >=
-1/(k-1)``, triples ``X_ij + X_im - X_jm <= 1``. Sizes fix ``e'Xe``, and a node puts pairs in one group, or
apart: then the row of the pair is an equation, and its multiplier has any sign. The cut is linear in ``X``.

*Enumeration.* Few groups have few cuts, and all are compared.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.problems.cuts.branch_and_bound.reduction import Piece
from bregopt.problems.cuts.coarsening import SignGraph
from bregopt.records import cached_property, dataclass
from bregopt.rigorous.ball import UNIT, Ball, gamma, inflated, up
from bregopt.rigorous.linear_algebra import least_eigenvalue

ENUMERATED = 14  # groups up to which all cuts of a node are compared
_LABELINGS = 2**13  # the same for partitions
LARGEST_CLIQUE = 7
_PAIRS = np.array(list(combinations(range(LARGEST_CLIQUE), 2))).T


@dataclass(frozen=True, eq=False)
class Form:
    """A piece in doubles: its weights times a power of two, the largest between 1/2 and 1.

    Parameters
    ----------
    n : int
    i, j : int arrays of shape (m,)
    weights : Ball of shape (m,)
    exponent : int
        The weights are those of the piece times ``2^-exponent``.
    sizes : tuple of int
        Those of three parts or more; none for two sides.
    """

    n: int
    i: IntArray
    j: IntArray
    weights: Ball
    exponent: int
    sizes: tuple[int, ...] = ()

    @classmethod
    def of(cls, piece: Piece, sizes: tuple[int, ...] = ()) -> Form:
        """Return a piece in doubles; radii cover the rounding of its fractions."""
        largest = max(map(abs, piece.weights), default=Fraction(1))
        exponent = math.frexp(float(largest))[1]
        scale = Fraction(2) ** -exponent
        exact = [scale * w for w in piece.weights]
        mid = [float(w) for w in exact]
        off = [float(abs(w - Fraction(m))) * (1 + 4 * UNIT) for w, m in zip(exact, mid, strict=True)]
        return cls(piece.n, piece.i, piece.j, Ball(np.array(mid), np.array(off)), exponent, sizes)

    @cached_property
    def C(self) -> Array:
        """The matrix with the cut ``half + x'Cx``: a quarter of the adjacency matrix, negative."""
        C = np.zeros((self.n, self.n))
        C[self.i, self.j] = C[self.j, self.i] = -self.weights.mid / 4
        return C

    @cached_property
    def signs(self) -> SignGraph:
        """The graph for moves of single vertices."""
        half = sp.csr_array((-self.weights.mid, (self.i, self.j)), (self.n, self.n))
        return SignGraph(sp.csr_array(half + half.T), np.ones(self.n, dtype=np.intp), 0, self.n)

    @cached_property
    def half(self) -> float:
        """Half of all weights, rounded upward."""
        return up(math.fsum(self.weights.mid.tolist()) / 2) + inflated(float(self.weights.rad.sum()))

    def cut(self, side: IntArray) -> float:
        """Return the weight of the edges between two sides."""
        return float(self.weights.mid[side[self.i] != side[self.j]].sum())

    def fold(self, node: Node) -> Any:
        """Return the map from pairs of groups to edges, and the value of each edge where all pairs are 0.

        The cut variable of an edge is ``constant + A x`` for those ``x`` of pairs of groups.

        Returns
        -------
        A : csr_array of shape (m, pairs)
        constant : array of shape (m,)
        pairs : tuple of two int arrays
            The groups of each pair.
        """
        group, sign = node.groups(self.n)
        g, h = group[self.i], group[self.j]
        turn = sign[self.i] * sign[self.j]
        low, high, own = np.minimum(g, h), np.maximum(g, h), g != h
        places, column = np.unique(low[own] * self.n + high[own], return_inverse=True)
        m = len(self.i)
        A = sp.csr_array((turn[own].astype(float), (np.flatnonzero(own), column)), (m, len(places)))
        return A, (turn < 0).astype(float), (places // self.n, places % self.n)


class Cliques(NamedTuple):
    """Clique rows, with the multipliers of the diagonal.

    Parameters
    ----------
    support, sign : int arrays of shape (rows, 7)
        The vertices of each row and their ``b``, padded with zeros.
    z : array of shape (rows,)
    y : array of shape (n,)
        For each vertex of the piece; that of a group is the sum.
    """

    support: IntArray
    sign: IntArray
    z: Array
    y: Array

    @classmethod
    def none(cls, n: int) -> Cliques:
        """Return no rows."""
        empty = np.zeros((0, LARGEST_CLIQUE), dtype=np.intp)
        return cls(empty, empty, np.zeros(0), np.zeros(n))

    @property
    def constants(self) -> Array:
        """The numbers ``(|b|^2 - 1) / 2``."""
        return (np.abs(self.sign).sum(axis=1) - 1) / 2

    def terms(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return row, two vertices and coefficient of all terms ``b_i b_j x_i x_j``."""
        i, j = self.support[:, _PAIRS[0]], self.support[:, _PAIRS[1]]
        product = self.sign[:, _PAIRS[0]] * self.sign[:, _PAIRS[1]]
        row, pair = np.nonzero(product)
        return row, i[row, pair], j[row, pair], product[row, pair]


class Cycles(NamedTuple):
    """Cycle rows. Each is a closed walk, perhaps with jumps inside of groups.

    Parameters
    ----------
    start : int array of shape (rows + 1,)
        Where the steps of each row begin.
    edge : int array of shape (steps,)
    back : bool array of shape (steps,)
        Whether the step goes from the edge's `j` to its `i`.
    odd : bool array of shape (steps,)
        Whether the edge is in ``F``.
    z : array of shape (rows,)
    """

    start: IntArray
    edge: IntArray
    back: Mask
    odd: Mask
    z: Array

    @classmethod
    def none(cls) -> Cycles:
        """Return no rows."""
        empty = np.zeros(0, dtype=np.intp)
        return cls(np.zeros(1, dtype=np.intp), empty, empty > 0, empty > 0, np.zeros(0))

    @property
    def constants(self) -> Array:
        """The numbers ``|F| - 1``."""
        return np.add.reduceat(self.odd.astype(float), self.start[:-1]) - 1 if len(self.z) else self.z

    def matrix(self, m: int) -> Any:
        """Return the rows on the cut variables of `m` edges, a csr_array."""
        signs = np.where(self.odd, 1.0, -1.0)
        return sp.csr_array((signs, self.edge.copy(), self.start), (len(self.z), m))  # it sorts in place

    def taken(self, rows: IntArray) -> Cycles:
        """Return some of the rows."""
        sizes = np.diff(self.start)[rows]
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        at = np.arange(start[-1]) + np.repeat(self.start[rows] - start[:-1], sizes)
        return Cycles(start, self.edge[at], self.back[at], self.odd[at], self.z[rows])


class Triples(NamedTuple):
    """Rows of pairs and triples of vertices, with the multipliers of the diagonal.

    Parameters
    ----------
    vertices : int array of shape (rows, 3)
        Ascending; the last two are equal where the row is that of a pair.
    signs : int array of shape (rows, 3)
        The coefficients of the pairs ``ij``, ``im`` and ``jm``.
    z : array of shape (1 + rows,)
        The multiplier of the sizes, then those of the rows.
    y : array of shape (n,)
        For each vertex; that of a group is the sum.
    """

    vertices: IntArray
    signs: IntArray
    z: Array
    y: Array

    @classmethod
    def none(cls, n: int) -> Triples:
        """Return no rows."""
        empty = np.zeros((0, 3), dtype=np.intp)
        return cls(empty, empty, np.zeros(1), np.zeros(n))

    def constants(self, sizes: tuple[int, ...]) -> Array:
        """Return the constants of all rows, that of the sizes first."""
        k, n = len(sizes), sum(sizes)
        spread = (k * sum(size**2 for size in sizes) - n**2) / (k - 1)
        return np.append(-spread * 2.0 ** -n.bit_length(), np.where(self.signs[:, 1] == 0, 1 / (k - 1), 1.0))

    def matrix(self, group: IntArray) -> Any:
        """Return the coefficients on the upper triangle of the groups' matrix, a csr_array."""
        m = int(group.max()) + 1
        share = np.bincount(group).astype(float)
        unit = 2.0 ** -len(group).bit_length()  # the row of the sizes is of the size of others, and exact
        every = np.triu(2 * np.outer(share, share), 1) + np.diag(share**2)
        ends = group[self.vertices[:, [0, 0, 1]]], group[self.vertices[:, [1, 2, 2]]]
        place = np.minimum(*ends) * m + np.maximum(*ends)
        row = np.repeat(np.arange(len(place)), 3)
        rows = (self.signs.ravel().astype(float), (row, place.ravel()))
        return sp.csr_array(
            sp.vstack(
                [
                    sp.csr_array(unit * every.reshape(1, -1)),
                    sp.csr_array(rows, shape=(len(place), m * m)),
                ]
            )
        )

    def apart(self, group: IntArray, path: tuple[tuple[int, int, int], ...]) -> Mask:
        """Return which rows are equations: the first, and those of pairs that a path puts apart."""
        pairs = {tuple(sorted((group[i], group[j]))) for i, j, s in path if s < 0}
        i, j, _ = group[self.vertices].T
        ends = zip(
            np.minimum(i, j).tolist(),
            np.maximum(i, j).tolist(),
            (self.signs[:, 1] == 0).tolist(),
            strict=True,
        )
        return np.array([True, *(alone and (g, h) in pairs for g, h, alone in ends)])


class Node(NamedTuple):
    """Cuts that are bounded together.

    Parameters
    ----------
    path : tuple of (int, int, int)
        Pairs of vertices, and 1 where they are on one side, -1 where they are on two.
    rows : Cliques, Cycles or Triples
    """

    path: tuple[tuple[int, int, int], ...]
    rows: Cliques | Cycles | Triples

    def groups(self, n: int) -> tuple[IntArray, IntArray]:
        """Return the group and the sign of each vertex. Groups of partitions have one sign."""
        joined = isinstance(self.rows, Triples)
        return folded(n, tuple(step for step in self.path if step[2] > 0) if joined else self.path)


def folded(n: int, path: tuple[tuple[int, int, int], ...]) -> tuple[IntArray, IntArray]:
    """Return the group and the sign of each of `n` vertices; groups are numbered by their first vertices.

    Raises
    ------
    ValueError
        If a pair is in one group already.
    """
    group, sign = np.arange(n), np.ones(n, dtype=np.intp)
    for i, j, s in path:
        a, b = sorted((group[i], group[j]))
        if a == b:
            raise ValueError(f"vertices {i} and {j} of a path are in one group already")
        at = group == b
        sign[at] *= s * sign[i] * sign[j]
        group[at] = a
    return np.unique(group, return_inverse=True)[1].reshape(n), sign


def cut_bound(form: Form, node: Node) -> float:
    """Return a proven upper bound on the cuts of a node, in the units of the form."""
    group, sign = node.groups(form.n)
    if isinstance(node.rows, Triples):
        return _partitioned(form, node, node.rows, group)
    if group.max(initial=0) < ENUMERATED:
        return _enumerated(form, group, sign)
    if isinstance(node.rows, Cliques):
        return _semidefinite(form, node.rows, group, sign)
    return _linear(form, node, node.rows)


def labelings(form: Form, node: Node, group: IntArray) -> IntArray | None:
    """Return all partitions of a node into parts of the sizes asked for, or None for many.

    The shape is (count, groups). Parts are numbered in the order of their first groups.
    """
    k, largest, share = len(form.sizes), max(form.sizes), np.bincount(group)
    apart = np.zeros((len(share), len(share)), dtype=bool)
    for i, j, s in node.path:
        if s < 0:
            apart[group[i], group[j]] = apart[group[j], group[i]] = True
    found, used = np.zeros((1, 0), dtype=np.intp), np.zeros((1, k), dtype=np.intp)
    for g in range(len(share)):
        new = np.minimum((used > 0).sum(axis=1), k - 1)  # the first empty part
        row, part = np.nonzero(np.arange(k) <= new[:, None])
        near = found[row][:, apart[g, :g]] == part[:, None]
        fits = ~near.any(axis=1) & (used[row, part] + share[g] <= largest)
        row, part = row[fits], part[fits]
        if len(row) > _LABELINGS:
            return None
        found, used = np.column_stack([found[row], part]), used[row]
        used[np.arange(len(row)), part] += share[g]
    return found[(np.sort(used, axis=1) == np.sort(form.sizes)).all(axis=1)]


def _partitioned(form: Form, node: Node, rows: Triples, group: IntArray) -> float:
    """Return the bound of a node of partitions: minus infinity if it holds none."""
    m, k = int(group.max()) + 1, len(form.sizes)
    part = labelings(form, node, group)
    if part is not None:
        if not len(part):
            return -math.inf
        size = float(form.weights.magnitude.sum())
        cut = (part[:, group[form.i]] != part[:, group[form.j]]) @ form.weights.mid
        return up(float(cut.max())) + inflated(gamma(len(form.i) + 4) * size + float(form.weights.rad.sum()))
    # In units of a part: the cut is factor * sum w_ij (1 - X_ij).
    factor = (k - 1) / k
    T, constants = rows.matrix(group), rows.constants(form.sizes)
    C = np.zeros((m, m))
    low, high = np.minimum(group[form.i], group[form.j]), np.maximum(group[form.i], group[form.j])
    np.add.at(C, (low, high), -factor * form.weights.mid)
    most = int(np.diff(sp.csc_array(T).indptr).max(initial=0)) + len(form.i) + form.n
    half = (C + (T.T @ rows.z).reshape(m, m)) / 2
    magnitude = np.zeros((m, m))
    np.add.at(magnitude, (low, high), factor * form.weights.magnitude)
    magnitude = (magnitude + (abs(T).T @ np.abs(rows.z)).reshape(m, m)) / 2
    y = np.bincount(group, rows.y, m)
    M = np.asarray(half + half.T - np.diag(y), dtype=float)
    magnitude = magnitude + magnitude.T + np.diag(np.bincount(group, np.abs(rows.y), m))
    rad = gamma(2 * most + 16) * magnitude + float(form.weights.rad.sum())
    top = -m * least_eigenvalue(Ball(-M, inflated(rad)))
    terms = np.concatenate([rows.y, rows.z * constants, factor * form.weights.mid])
    spare = gamma(16) * math.fsum(np.abs(terms).tolist()) + float(form.weights.rad.sum())
    return up(up(math.fsum(terms.tolist()) + inflated(spare)) + up(top))


def _enumerated(form: Form, group: IntArray, sign: IntArray) -> float:
    """Return the largest cut of a node with few groups."""
    m = int(group.max(initial=0)) + 1
    signs = np.array(np.meshgrid(*[[1, -1]] * (m - 1), indexing="ij")).reshape(m - 1, -1).T
    u = np.column_stack([np.ones(len(signs), dtype=np.intp), signs]) if m > 1 else np.ones((1, 1), np.intp)
    g, h, turn = group[form.i], group[form.j], sign[form.i] * sign[form.j]
    W = np.zeros((m, m))
    np.add.at(W, (g, h), turn * form.weights.mid)
    # A cut is half of all weights, less half of u'Wu.
    total = math.fsum(form.weights.mid.tolist())
    size = float(form.weights.magnitude.sum())
    error = gamma(len(form.i) + 2 * m * m + 4) * size + float(form.weights.rad.sum())
    least = float(np.einsum("ki,ki->k", u @ W, u).min())
    return up((total - least) / 2) + inflated(error) if len(form.i) else 0.0


def _semidefinite(form: Form, rows: Cliques, group: IntArray, sign: IntArray) -> float:
    """Return the bound of clique rows: one sum, and one proven eigenvalue."""
    m = int(group.max()) + 1
    row, i, j, b = rows.terms()
    ends = np.concatenate([form.i, i]), np.concatenate([form.j, j])
    mid = np.concatenate([-form.weights.mid / 4, rows.z[row] * b / 2])
    place, turn = group[ends[0]] * m + group[ends[1]], sign[ends[0]] * sign[ends[1]]
    half = np.bincount(place, turn * mid, m * m).reshape(m, m)
    size = np.bincount(place, np.abs(mid), m * m).reshape(m, m)
    rad = np.bincount(place[: len(form.i)], form.weights.rad / 4, m * m).reshape(m, m)
    most = int(np.bincount(place, minlength=m * m).max()) + form.n
    y = np.bincount(group, rows.y, m)
    M = np.asarray(half + half.T - np.diag(y), dtype=float)
    size = size + size.T + np.diag(np.bincount(group, np.abs(rows.y), m))
    error = gamma(2 * most + 8) * size + rad + rad.T
    lower = least_eigenvalue(Ball(-M, inflated(error)))
    base = up(math.fsum([*rows.y.tolist(), *(rows.z * rows.constants).tolist()]))
    base += 2 * UNIT * float((rows.z * rows.constants).sum())
    top = -m * lower
    # Each of the three sums rounds once.
    return up(up(base + up(top)) + form.half)


def _linear(form: Form, node: Node, rows: Cycles) -> float:
    """Return the bound of cycle rows: what multipliers leave of the weights, at its larger value."""
    A, constant, _ = form.fold(node)
    R = rows.matrix(len(form.i))
    z: Array = rows.z
    most = int(np.bincount(rows.edge, minlength=1).max())
    taken = Ball(np.asarray(R.T @ z, dtype=float), gamma(most + 2) * (abs(R).T @ z))
    left = form.weights - taken
    mid, rad = A.T @ left.mid, abs(A).T @ left.rad
    rad = rad + gamma(len(form.i) + 2) * (abs(A).T @ np.abs(left.mid))
    inside = left.mid * constant
    terms = [*(rows.z * rows.constants).tolist(), *np.maximum(mid + inflated(rad), 0.0).tolist()]
    spare = float((left.rad * constant).sum() + UNIT * ((rows.z * rows.constants).sum() + np.abs(mid).sum()))
    return up(math.fsum([*terms, *inside.tolist()])) + 2 * inflated(spare) + 0.0
