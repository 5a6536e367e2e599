"""Positions of vertices in the plane: pivot scaling (Brandes and Pich 2007), refined by springs."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, connected_components, dijkstra

from bregopt.arrays import Array, IntArray

__all__ = ["layout"]

_PIVOTS = 50
_STEPS = 60
_ALL_PAIRS = 600  # vertices up to which all pairs repel each other, and not near ones alone
_NEAR, _REACH = 60, 4.0  # vertices that repel a vertex of a larger graph, and their largest distance
# The longest move of the first step; steps fall to zero. Small graphs may unfold, large ones keep their form.
_FIRST_STEP, _FIRST_STEP_NEAR = 0.3, 3.0  # relative to the width; absolute
_NOISE = 0.05  # separates vertices with the same neighbors
_MARGIN = 1.0  # between the drawings of components


def layout(adjacency: Any) -> Array:
    """Return positions of shape ``(n, 2)``: neighbors are about a unit apart, other vertices farther.

    The components stand side by side, the largest first. Weights do not matter.

    Parameters
    ----------
    adjacency : csr_array of shape (n, n)
        Symmetric.

    References
    ----------
    Brandes, Pich (2007), Eigensolver methods for progressive multidimensional scaling of large data.
    Fruchterman, Reingold (1991), Graph drawing by force-directed placement.
    """
    links = sp.csr_array(adjacency != 0, dtype=float)
    _, component = connected_components(links, directed=False)
    order = np.argsort(component, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(component))[:-1])
    drawings = [_component(links[vertices][:, vertices]) for vertices in members]
    places = np.empty((len(component), 2))
    for vertices, drawing, corner in zip(members, drawings, _packed(drawings), strict=True):
        places[vertices] = drawing - drawing.min(axis=0) + corner
    return places


def _component(links: Any) -> Array:
    """Return positions of the vertices of a connected graph."""
    # Older versions of SciPy search paths with 32-bit indices only.
    links = sp.csr_array(
        (links.data, links.indices.astype(np.int32), links.indptr.astype(np.int32)), links.shape
    )
    n = links.shape[0]
    if n == 1:
        return np.zeros((1, 2))
    return _principal_axes(_springs(links, _pivot_scaling(links)))


def _pivot_scaling(links: Any) -> Array:
    """Return the two principal coordinates of the distances to pivots, each far from those before it."""
    n = links.shape[0]
    nearest = np.full(n, np.inf)
    pivot = int(breadth_first_order(links, 0, directed=False)[0][-1])
    columns = []
    for _ in range(min(_PIVOTS, n)):
        distance = dijkstra(links, directed=False, indices=pivot, unweighted=True)
        columns.append(distance)
        nearest = np.minimum(nearest, distance)
        pivot = int(np.argmax(nearest))
    squares = np.array(columns).T ** 2
    centered = -0.5 * (squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean())
    U, lengths, _ = np.linalg.svd(centered, full_matrices=False)
    scores = (U * np.sqrt(lengths))[:, :2]
    # A standard deviation of a third of the width of n unit squares; without outliers, which trees have.
    scale = np.sqrt(n) / 3 / max(np.median(np.abs(scores[:, 0])), 1e-12) / 1.5
    return np.clip(scale * scores, -np.sqrt(n), np.sqrt(n)) + _NOISE * np.random.default_rng(0).normal(
        size=(n, 2)
    )


def _springs(links: Any, places: Array) -> Array:
    """Return positions after steps along the forces of Fruchterman and Reingold."""
    n = len(places)
    ends = sp.triu(links).tocoo()
    i, j = ends.row, ends.col
    first = _FIRST_STEP * np.sqrt(n) if n <= _ALL_PAIRS else _FIRST_STEP_NEAR
    for step in np.linspace(first, 0.0, _STEPS, endpoint=False):
        p, q = _near_pairs(places)
        repelled = places[p] - places[q]
        repelled /= np.maximum(np.einsum("ij,ij->i", repelled, repelled), 1e-4)[:, None]
        pulled = places[j] - places[i]
        pulled *= np.sqrt(np.einsum("ij,ij->i", pulled, pulled))[:, None]
        force = _scattered(p, q, repelled, n) + _scattered(i, j, pulled, n)
        length = np.sqrt(np.einsum("ij,ij->i", force, force))[:, None]
        places = places + force * np.minimum(step / np.maximum(length, 1e-12), 1.0)
    return places


def _near_pairs(places: Array) -> tuple[IntArray, IntArray]:
    """Return the pairs of vertices that repel each other."""
    n = len(places)
    if n <= _ALL_PAIRS:
        i, j = np.triu_indices(n, 1)
        return i, j
    from scipy.spatial import cKDTree  # 0.05 s, which `import bregopt` does without

    near = cKDTree(places).query(places, _NEAR + 1, distance_upper_bound=_REACH)[1][:, 1:]
    i, k = np.nonzero(near < n)
    return i, near[i, k]


def _scattered(i: IntArray, j: IntArray, force: Array, n: int) -> Array:
    """Return the sum of forces on each vertex: `force` acts on `i`, and its opposite on `j`."""
    axes = [np.bincount(i, axis, n) - np.bincount(j, axis, n) for axis in force.T]
    return np.column_stack(axes)


def _principal_axes(places: Array) -> Array:
    """Return positions turned so that the drawing is wider than high."""
    centered = places - places.mean(axis=0)
    return centered @ np.linalg.svd(centered, full_matrices=False)[2].T


def _packed(drawings: list[Array]) -> list[Array]:
    """Return the lower left corners of drawings in rows, the highest first."""
    sizes = np.array([np.ptp(drawing, axis=0) + _MARGIN for drawing in drawings])
    width = max(float(sizes[:, 0].max()), float(np.sqrt(1.5 * sizes.prod(axis=1).sum())))
    corners = np.empty_like(sizes)
    x = y = height = 0.0
    for k in np.argsort(-sizes[:, 1], kind="stable"):
        if x > 0 and x + sizes[k, 0] > width:
            x, y, height = 0.0, y - height, 0.0
        corners[k] = x, y - sizes[k, 1]
        x, height = x + sizes[k, 0], max(height, sizes[k, 1])
    return list(corners)
