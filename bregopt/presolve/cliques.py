"""Clique trees: a sparse pattern is extended to a chordal one, whose cliques form a tree.

Vertices are eliminated in the order of least degree. The cliques of the filled pattern form a tree in which
those that contain a vertex are connected (Blair and Peyton 1993). Small cliques are merged with their parents
where that lowers an estimate of the work (Nakata, Fujisawa, Fukuda, Kojima, Murota 2003, section 4).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import IntArray
from bregopt.records import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class CliqueTree:
    """Cliques that cover a pattern of order `n`, each before its descendants.

    Parameters
    ----------
    n : int
    vertices : tuple of int arrays
        The vertices of each clique, ascending.
    parent : int array
        The number of each clique's parent, -1 for a root.
    home : int array of shape (n,)
        The clique nearest to the root that contains a vertex; -1 for a vertex in no clique.
    """

    n: int
    vertices: tuple[IntArray, ...]
    parent: IntArray
    home: IntArray

    @property
    def width(self) -> int:
        """The order of the largest clique."""
        return max(map(len, self.vertices))

    @cached_property
    def residuals(self) -> tuple[IntArray, ...]:
        """The vertices of each clique that its parent does not contain."""
        return tuple(v[self.home[v] == c] for c, v in enumerate(self.vertices))

    @cached_property
    def separators(self) -> tuple[IntArray, ...]:
        """The vertices that each clique shares with its parent."""
        return tuple(v[self.home[v] != c] for c, v in enumerate(self.vertices))


@dataclass(frozen=True)
class Clique:
    """The sizes on which the work for a clique depends.

    Parameters
    ----------
    order : int
        Number of vertices.
    separator : int
        Number of vertices shared with the parent.
    rows, terms : int
        Number of the problem's rows in the clique, and of their terms.
    shared : int
        Number of entries that the children share with the clique.
    """

    order: int
    separator: int
    rows: int
    terms: int
    shared: int

    def merged(self, child: Clique) -> Clique:
        """Return the union with a child."""
        return Clique(
            self.order + child.order - child.separator,
            self.separator,
            self.rows + child.rows,
            self.terms + child.terms,
            self.shared + child.shared - entries(child.separator),
        )


def entries(order: Any) -> Any:
    """Return the number of entries on and above the diagonal, of one order or of several."""
    return order * (order + 1) // 2


def clique_tree(pattern: Any, most: float, core: Callable[[IntArray], int]) -> CliqueTree:
    """Return the cliques of a chordal extension of a pattern.

    Parameters
    ----------
    pattern : csr_array of shape (n, n)
        Symmetric. A vertex without entries, on the diagonal or off it, is in no clique.
    most : float
        Limit on the operations of elimination. The vertices that are left make one clique for each connected
        component.
    core : callable
        Returns the number of vertices to eliminate, from the degrees of all of them; the others are left.
    """
    ends = pattern.indptr
    used = np.flatnonzero(np.diff(ends)).tolist()
    neighbors = {v: set(pattern.indices[ends[v] : ends[v + 1]].tolist()) - {v} for v in used}
    eliminated = eliminate(neighbors, most)
    degrees = [len(later) for _, later in eliminated] + [len(neighbors)] * len(neighbors)
    count = min(core(np.array(degrees, dtype=np.intp)), len(eliminated))
    neighbors.update(eliminated[count:])
    return _tree(pattern.shape[0], eliminated[:count], _components(neighbors))


def chordal_tree(neighbors: Sequence[set[int]]) -> CliqueTree | None:
    """Return the cliques of a chordal graph, None for another graph.

    The order of maximum cardinality search is tested for fill (Tarjan, Yannakakis 1984, Simple linear-time
    algorithms to test chordality of graphs, SIAM J. Comput. 13).

    Parameters
    ----------
    neighbors : sequence of set of int
        Those of each vertex.
    """
    n = len(neighbors)
    numbered, count = [-1] * n, [0] * n  # the places in the order, and the number of earlier neighbors
    queue = [(0, v) for v in range(n)]
    eliminated: list[tuple[int, set[int]]] = []
    while queue:
        earlier, v = heapq.heappop(queue)
        if numbered[v] >= 0 or -earlier != count[v]:
            continue
        before = {u for u in neighbors[v] if numbered[u] >= 0}
        if before:
            last = max(before, key=numbered.__getitem__)
            if not before - {last} <= neighbors[last]:
                return None
        numbered[v] = len(eliminated)
        eliminated.append((v, before))
        for u in neighbors[v] - before:
            count[u] += 1
            heapq.heappush(queue, (-count[u], u))
    return _tree(n, eliminated[::-1], [])


def eliminate(neighbors: dict[int, set[int]], most: float) -> list[tuple[int, set[int]]]:
    """Return vertices in the order of least degree, each with its neighbors at its elimination.

    Parameters
    ----------
    neighbors : dict of int to set of int
        It is changed: the vertices that are left stay there, with their neighbors.
    most : float
        Limit on the operations.
    """
    queue = [(len(others), v) for v, others in neighbors.items()]
    heapq.heapify(queue)
    order: list[tuple[int, set[int]]] = []
    while queue and most > 0:
        degree, v = heapq.heappop(queue)
        if v not in neighbors or degree != len(neighbors[v]):
            continue
        if degree == len(neighbors) - 1:  # the rest is a clique
            rest = sorted(neighbors)
            order += [(v, set(rest[k:])) for k, v in enumerate(rest, start=1)]
            neighbors.clear()
            break
        most -= (degree + 1) ** 2
        clique = neighbors.pop(v)
        order.append((v, clique))
        for u in clique:
            others = neighbors[u]
            others |= clique
            others -= {u, v}
            heapq.heappush(queue, (len(others), u))
    return order


def _components(neighbors: dict[int, set[int]]) -> list[set[int]]:
    """Return the connected components of a graph, whose edges are listed at one of their ends at least."""
    component: dict[int, set[int]] = {v: {v} for v in neighbors}
    for v, others in neighbors.items():
        for u in others:
            one, other = component[v], component[u]
            if one is not other:
                small, large = sorted((one, other), key=len)
                large |= small
                component.update(dict.fromkeys(small, large))
    return list({id(vertices): vertices for vertices in component.values()}.values())


def _tree(n: int, eliminated: list[tuple[int, set[int]]], roots: list[set[int]]) -> CliqueTree:
    """Return the cliques of an elimination, from its last vertex to its first, below the cliques `roots`.

    Cliques with equal separators form a chain instead of being siblings, so that they can be merged.
    """
    position = {v: k for k, (v, _) in enumerate(eliminated)}
    home = np.full(n, -1)
    cliques, parent = [set(vertices) for vertices in roots], [-1] * len(roots)
    for c, vertices in enumerate(roots):
        home[list(vertices)] = c
    last_with: dict[frozenset[int], int] = {}
    for v, later in reversed(eliminated):
        above = int(home[min(later, key=lambda u: position.get(u, n))]) if later else -1
        if later and len(later) == len(cliques[above]):
            cliques[above].add(v)
            home[v] = above
            continue
        separator = frozenset(later)
        home[v] = len(cliques)
        parent.append(last_with.get(separator, above) if later else -1)
        last_with[separator] = len(cliques)
        cliques.append({v, *later})
    return CliqueTree(n, tuple(np.array(sorted(c)) for c in cliques), np.array(parent, dtype=np.intp), home)


def merged(tree: CliqueTree, sizes: Sequence[Clique], work: Callable[[Clique], float]) -> CliqueTree:
    """Return the tree after merging cliques with their parents, the largest saving of work first.

    Parameters
    ----------
    tree : CliqueTree
    sizes : sequence of Clique
        One for each clique.
    work : callable
        The work for a clique.

    Returns
    -------
    CliqueTree
        With the cliques in preorder.
    """
    now, into = list(sizes), list(range(len(sizes)))
    times = [work(clique) for clique in now]

    def root(c: int) -> int:
        while into[c] != c:
            into[c] = into[into[c]]
            c = into[c]
        return c

    def saving(c: int) -> float:
        above = root(parent[c])
        return times[above] + times[c] - work(now[above].merged(now[c]))

    parent = tree.parent.tolist()
    queue = [(-saving(c), c) for c in range(len(now)) if parent[c] >= 0]
    heapq.heapify(queue)
    while queue:
        estimate, c = heapq.heappop(queue)
        exact = -saving(c)
        if exact >= 0:
            continue
        if exact > estimate and queue and exact > queue[0][0]:
            heapq.heappush(queue, (exact, c))
            continue
        above = root(parent[c])
        now[above] = now[above].merged(now[c])
        times[above], into[c] = work(now[above]), above
    return _joined(tree, np.array([root(c) for c in range(len(now))]))


def _joined(tree: CliqueTree, root: IntArray) -> CliqueTree:
    """Return the tree with each clique merged into the one with the number in `root`."""
    left = np.unique(root)
    above = np.where(tree.parent[left] >= 0, root[tree.parent[left]], -1)
    order = _preorder(left.tolist(), above.tolist())
    number = np.full(len(root) + 1, -1)  # the last element is that of no clique
    number[order] = np.arange(len(order))
    number[:-1] = number[root]
    parts: list[list[IntArray]] = [[] for _ in order]
    for c, vertices in zip(number, tree.vertices, strict=False):
        parts[c].append(vertices)
    parent = np.empty(len(order), dtype=np.intp)
    parent[number[left]] = number[above]
    return CliqueTree(tree.n, tuple(np.unique(np.concatenate(p)) for p in parts), parent, number[tree.home])


def _preorder(nodes: list[int], parents: list[int]) -> list[int]:
    """Return the nodes of a forest, each followed by its descendants; the parent of a root is -1."""
    children: dict[int, list[int]] = {}
    for node, above in zip(nodes, parents, strict=True):
        children.setdefault(above, []).append(node)
    order: list[int] = []
    waiting = children.get(-1, [])[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += children.get(order[-1], [])[::-1]
    return order
