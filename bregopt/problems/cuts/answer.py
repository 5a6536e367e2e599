"""What the problems on partitions of graphs share: the checks of their arguments, answers, and drawings.

A drawing colors the vertices by their parts. Their positions are those of pivot scaling (Brandes and Pich
2007), refined by springs.
"""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import breadth_first_order, connected_components, dijkstra, reverse_cuthill_mckee

from bregopt.arrays import Array, IntArray, finite_array, is_one_of, rectangular
from bregopt.display import Axes, plot_convergence
from bregopt.errors import require
from bregopt.executors import check_executor
from bregopt.io.graphs import Graph
from bregopt.problems.cuts.branch_and_bound.certificate import CutCertificate
from bregopt.problems.cuts.proof import ENUMERATION
from bregopt.problems.cuts.triangles import LARGEST_ORDER
from bregopt.records import dataclass, replace
from bregopt.routes.registry import check_arguments, check_options
from bregopt.routes.solution import Solution

_LARGEST, _MOST_EDGES = 6_000, 50_000  # vertices and edges up to which the graph itself is drawn
_CLOSE = 1e-4  # a share that percents with one decimal do not show
_NAMED = 60  # vertices up to which names are shown
# Colors that color-blind readers tell apart (Okabe and Ito 2008); from the ninth part on the markers differ.
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
_DARK = (0, 2, 5)  # colors on which names are white
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_CUT = "#1a1a1a"
_PIXELS = 400  # of the picture of an adjacency matrix
_PIVOTS = 50  # of the layout
_STEPS = 60  # of the springs
_ALL_PAIRS = 600  # vertices up to which all pairs repel each other, and not near ones alone
_NEAR, _REACH = 60, 4.0  # vertices that repel a vertex of a larger graph, and their largest distance
# The longest move of the first step; steps fall to zero. Small graphs may unfold, large ones keep their form.
_FIRST_STEP, _FIRST_STEP_NEAR = 0.3, 3.0  # relative to the width; absolute
_NOISE = 0.05  # separates vertices with the same neighbors
_MARGIN = 1.0  # between the drawings of components


def generator(function: Callable[..., Any], seed: Any, options: Mapping[str, Any]) -> np.random.Generator:
    """Return the generator of a seed; check the options before any work."""
    if "warm_start" in options:
        raise TypeError("a cut has no option 'warm_start': each graph is a problem of its own")
    check_arguments(function, options, ("rounds",))
    rounds = options.get("rounds")
    if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int | np.integer)):
        raise TypeError(f"rounds is {rounds!r}; expected an integer, or None for as many as pay")
    if rounds is not None and rounds < 0:
        raise ValueError(f"rounds is {rounds}; expected at least 0, which takes one multilevel cycle")
    own = {name: value for name, value in options.items() if name not in ("solver", "rounds")}
    check_options(options.get("solver", "auto"), own if seed is None else {**own, "seed": seed})
    return np.random.default_rng(seed)


def check_bound(bound: Any, n: int) -> None:
    """Raise unless a kind of bound is known, and made for this number of vertices."""
    if bound is not False and not is_one_of(bound, ("auto", "sdp", "triangles")):
        raise ValueError(f"bound is {bound!r}; expected 'auto', 'sdp', 'triangles' or False")
    if bound == "triangles" and n > LARGEST_ORDER:
        raise ValueError(
            f"bound is 'triangles' and graph has {n} vertices; expected at most {LARGEST_ORDER}: use 'sdp'"
        )


def check_exact(exact: Any, executor: Any) -> None:
    """Raise unless `exact` is a bool, and an executor is given for it only."""
    if not isinstance(exact, bool):
        raise TypeError(f"exact is {exact!r}; expected True or False")
    check_executor(executor)
    if executor is not None and not exact:
        raise TypeError("executor is given without exact=True; expected both, as it bounds nodes of the tree")


def number_of_parts(k: Any, n: int) -> None:
    """Raise unless `n` vertices have `k` parts."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"k is {k!r}; expected an integer")
    if not 2 <= k <= n:
        raise ValueError(f"k is {k}; expected 2 to {n}, the number of vertices")


def part_sizes(sizes: Any, k: int, n: int) -> list[int]:
    """Return the sizes of `k` parts of `n` vertices; by default they differ by one at most."""
    if sizes is None:
        return [(n + part) // k for part in reversed(range(k))]
    array = rectangular(sizes, "sizes")
    if array.shape != (k,) or array.dtype.kind not in "iu":
        raise ValueError(f"sizes is {sizes!r}; expected {k} integers")
    if array.min() < 1 or array.sum() != n:
        raise ValueError(
            f"sizes is {sizes!r}, with sum {array.sum()}; expected sizes of at least 1 with sum {n}"
        )
    return [int(size) for size in array]


def first_sizes(n: int, imbalance: Any, sizes: Sequence[int] | None) -> tuple[int, int]:
    """Return the smallest and the largest allowed size of the first of two sides."""
    if sizes is not None:
        if imbalance != 0.0:
            raise TypeError("sizes and imbalance are given; expected one of them")
        first, _ = part_sizes(sizes, 2, n)
        return first, first
    fraction = float(finite_array(imbalance, "imbalance", ndim=0))
    if not 0 <= fraction < 1:
        raise ValueError(f"imbalance is {fraction:g}; expected 0 <= imbalance < 1")
    slack = int(np.floor(fraction * n + 1e-9))  # 1e-9 covers the round-off of the product
    slack = max(slack - (slack - n) % 2, n % 2)  # the difference of the sides has the parity of n
    return max((n - slack) // 2, 1), min((n + slack) // 2, n - 1)


@dataclass(frozen=True, eq=False, repr=False)
class PartedGraph(Solution, ABC):
    """A graph in parts: `cut` is the weight between them, and no allowed partition is better than `bound`.

    Attributes
    ----------
    graph : Graph
        Its `adjacency`, a csr_array, and its `nodes`, the user's names of the vertices.
    cut, bound : float
    optimal : bool
    timings : dict from str to float
        Those of the relaxation; "call" is the time of the whole call in seconds.
    certificate : CutCertificate or None
        With ``exact=True`` the leaves of the tree: ``certificate.save(file)`` writes them, and ``bregopt
        verify FILE`` proves the bound again.
    nodes, open : int
        With ``exact=True`` the nodes of the tree that were bounded, and those whose bound does not prove the
        cut yet.
    """

    _heading: ClassVar[str] = "relaxation"

    graph: Graph = field(kw_only=True)
    cut: float = np.nan
    bound: float = np.nan
    optimal: bool = False
    certificate: CutCertificate | None = None
    nodes: int = 0
    open: int = 0
    _plan: tuple[str, ...] = ()

    @property
    @abstractmethod
    def _numbers(self) -> IntArray:
        """The number of its part for each vertex, in the order of the graph."""

    @property
    def _proven(self) -> str:
        """The word for the bound: "least" or "most"."""
        return "least"

    @property
    def assignments(self) -> dict[Any, int]:
        """The number of its part for each vertex by its name."""
        return dict(zip(self.graph.nodes, self._numbers.tolist(), strict=True))

    def plot(self, ax: Axes | None = None, pos: Mapping[Any, ArrayLike] | ArrayLike | None = None) -> Axes:
        """Draw the graph in the colors of its parts, with the edges between parts in black.

        From 6,000 vertices or 50,000 edges on the picture is the adjacency matrix, sorted by parts.

        Parameters
        ----------
        ax : matplotlib axes, optional
            The default is a new figure.
        pos : dict from vertex to pair of floats, or array of shape (n, 2), optional
            Positions of the vertices, as networkx's layouts return them. With them any graph is drawn.

        Returns
        -------
        matplotlib axes
        """
        return draw_parts(self.graph, self._numbers, self._title, pos, ax)

    def plot_convergence(self, ax: Axes | None = None) -> Axes:
        """Draw the gap and the residual of the relaxation against its iterations; returns the axes."""
        return plot_convergence(self.history, self.solver, ax)

    def explain(self) -> None:
        """Print how the bound was found, and why so.

        Raises
        ------
        ValueError
            If there is no tree, as the answer was not found with ``exact=True``.
        """
        if self.certificate is None:
            raise ValueError("the answer has no tree to explain; expected one of exact=True")
        sys.stdout.write("".join(f"{line}\n" for line in self._plan))

    def __repr__(self) -> str:
        lines = [self._sentence]
        if self.certificate is not None:
            return "\n".join([*lines, *(f"  {name:<8} {fact}" for name, fact in self._tree().items())])
        if "call" in self.timings:
            lines.append(f"  total time {self.timings['call']:.3g} s")
        if self._note:
            lines.append(f"  note       {self._note}")
        if self.solver == ENUMERATION:
            return "\n".join([*lines, f"  stopped    {self.stop_reason}"])
        return "\n".join([*lines, super().__repr__()])

    def timed(self, begin: float) -> Self:
        """Return the answer with the time of the whole call, which began at this time of the clock."""
        return replace(self, timings={**self.timings, "call": time.perf_counter() - begin})

    @property
    def _verdict(self) -> str:
        return f"proven at {self._proven} {self.bound:.6g}{self._conclusion}"

    @property
    def _conclusion(self) -> str:
        """What the bound says of the cut; a share is rounded up, so that it holds."""
        if self.optimal:
            return ", so optimal"
        least, most = sorted((self.cut, self.bound))
        if least <= 0 or most > 2 * least:  # beyond 100 % the two numbers say it better
            return ""
        missing, side = (most - least) / self.bound, "above" if self._proven == "least" else "below"
        if missing < _CLOSE:
            return f", so within {1.01 * missing:.1e} of the best"
        return f", so at most {math.ceil(1000 * missing) / 10:g}% {side} the best"

    @property
    @abstractmethod
    def _sentence(self) -> str:
        """The cut, its parts and its bound in one line."""

    @property
    def _note(self) -> str:
        """What the answer leaves out of the graph."""
        count = int((self.graph.loops != 0).sum())
        return (
            f"loops at {count} vert{'ex' if count == 1 else 'ices'} ignored: no partition cuts them"
            if count
            else ""
        )

    @property
    def _title(self) -> str:
        sizes = np.bincount(self._numbers)
        if sizes.min() == sizes.max():
            spread = f"{sizes[0]}"
        elif len(sizes) <= 4:
            spread = ", ".join(map(str, sizes))
        else:
            spread = f"{sizes.min()} to {sizes.max()}"
        return f"cut {self.cut:.6g}, {self._verdict}\n{len(sizes)} parts of {spread} vertices"

    def _facts(self) -> dict[str, str]:
        own = super()._facts() if self.certificate is None else self._tree()
        facts = {"cut": self._sentence.removeprefix("cut of "), **own}
        if self._note:
            facts.setdefault("note", self._note)
        if self.solver == ENUMERATION:
            facts["effort"] = f"{self.iterations:,} partitions"
        return facts

    def _tree(self) -> dict[str, str]:
        """Return the facts of a card on branch and bound."""
        nodes = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        facts = {"tree": f"{nodes}, {self.open} open", "gap": f"{self.gap:.1e}"}
        if "call" in self.timings:
            facts["effort"] = f"{self.timings['call']:.3g} s"
        note = {"note": self._note} if self._note else {}
        return {**facts, **note, "stopped": self.stop_reason}


def draw_parts(graph: Graph, part: IntArray, title: str, pos: Any = None, ax: Any = None) -> Any:
    """Draw a graph, or from some thousand vertices on its adjacency matrix sorted by parts.

    Parameters
    ----------
    graph : Graph
    part : int array of shape (n,)
        The number of its part for each vertex.
    title : str
    pos : dict from vertex to pair of floats, or array of shape (n, 2), optional
        Positions, as networkx's layouts return them. With them a graph of any size is drawn.
    ax : matplotlib axes, optional
        The default is a new figure.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    ImportError
        If matplotlib is not installed; the message names the extra.
    TypeError, ValueError
        If `pos` does not have a finite position for each vertex.
    """
    pyplot = require("matplotlib.pyplot", "plot")
    places = None if pos is None else _positions(graph, pos)
    if ax is None:
        _, ax = pyplot.subplots(figsize=(7, 5), layout="constrained")
    if places is None and (graph.n > _LARGEST or graph.adjacency.nnz > 2 * _MOST_EDGES):
        _draw_matrix(graph, part, ax)
    else:
        _draw_graph(graph, part, layout(graph.adjacency) if places is None else places, ax)
    ax.set_title(title, fontsize=10)
    return ax


def _positions(graph: Graph, pos: Any) -> Array:
    """Return the user's positions in the order of the graph."""
    if isinstance(pos, dict):
        missing = [node for node in graph.nodes if node not in pos]
        if missing:
            raise ValueError(f"pos has no position of vertex {missing[0]!r}; expected one for each vertex")
        pos = [pos[node] for node in graph.nodes]
    places = finite_array(pos, "pos", ndim=2)
    if places.shape != (graph.n, 2):
        raise ValueError(f"pos has shape {places.shape}; expected {(graph.n, 2)}, a point for each vertex")
    return places


def _draw_graph(graph: Graph, part: IntArray, places: Array, ax: Any) -> None:
    """Draw edges inside parts in their colors, edges between parts in black, then the vertices."""
    collections: Any = require("matplotlib.collections", "plot")
    edges = sp.triu(graph.adjacency).tocoo()
    lines = places[np.column_stack([edges.row, edges.col])]
    between = part[edges.row] != part[edges.col]
    inner_width, width = _line_width(~between, graph.n), _line_width(between, graph.n)
    for number in range(part.max() + 1):
        inside = ~between & (part[edges.row] == number)
        color = _COLORS[number % len(_COLORS)]
        ax.add_collection(
            collections.LineCollection(lines[inside], colors=color, linewidths=inner_width, alpha=0.45)
        )
    ax.add_collection(
        collections.LineCollection(lines[between], colors=_CUT, linewidths=1.5 * width, zorder=1.5)
    )
    named = graph.n <= _NAMED
    area = 170.0 if named else min(max(15_000 / graph.n, 2.0), 60.0)  # square points
    for number in range(part.max() + 1):
        ax.scatter(
            *places[part == number].T,
            s=area,
            color=_COLORS[number % len(_COLORS)],
            marker=_MARKERS[number // len(_COLORS) % len(_MARKERS)],
            edgecolors="white" if graph.n <= 1_000 else "none",
            linewidths=0.5,
            zorder=2,
        )
    if named:
        for node, (x, y), number in zip(graph.nodes, places, part, strict=True):
            ink = "white" if number % len(_COLORS) in _DARK else "black"
            ax.text(x, y, str(node), fontsize=7, color=ink, ha="center", va="center", zorder=3)
    ax.set_aspect("equal")
    ax.margins(0.03)
    ax.set_axis_off()


def _line_width(shown: Any, n: int) -> float:
    """Return a width in points that falls with the number of lines."""
    return float(np.clip(40 / np.sqrt(max(shown.sum(), n)), 0.25, 1.2))


def _draw_matrix(graph: Graph, part: IntArray, ax: Any) -> None:
    """Draw the density of the entries, those inside parts in their colors and those between parts black."""
    colors: Any = require("matplotlib.colors", "plot")
    n = graph.n
    order = reverse_cuthill_mckee(graph.adjacency, symmetric_mode=True)
    order = order[np.argsort(part[order], kind="stable")]
    place = np.empty(n, dtype=np.intp)
    place[order] = np.arange(n)
    edges = graph.adjacency.tocoo()
    cell = place[edges.row] * _PIXELS // n * _PIXELS + place[edges.col] * _PIXELS // n
    inks = np.array([colors.to_rgb(_COLORS[number % len(_COLORS)]) for number in range(part.max() + 1)])
    between = (part[edges.row] != part[edges.col])[:, None]
    ink = 1.0 - np.where(between, colors.to_rgb(_CUT), inks[part[edges.row]])
    count = np.bincount(cell, minlength=_PIXELS**2).astype(float)
    strength = np.log1p(count) / np.log1p(max(np.quantile(count[cell], 0.99), 1.0) if len(cell) else 1.0)
    mean: Array = np.column_stack([np.bincount(cell, channel, _PIXELS**2) for channel in ink.T])
    mean /= np.maximum(count, 1.0)[:, None]
    picture = 1.0 - mean * np.minimum(strength, 1.0)[:, None]
    ax.imshow(picture.reshape(_PIXELS, _PIXELS, 3), extent=(0, n, n, 0), interpolation="nearest")
    for border in np.cumsum(np.bincount(part))[:-1]:
        ax.axhline(border, color="0.5", linewidth=0.6)
        ax.axvline(border, color="0.5", linewidth=0.6)
    ax.set_xlabel("vertices, sorted by parts")
    ax.set_xticks([0, n])
    ax.set_yticks([0, n])


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
    places = _springs(links, _pivot_scaling(links))
    centered = places - places.mean(axis=0)  # turned such that the drawing is wider than high
    return centered @ np.linalg.svd(centered, full_matrices=False)[2].T


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
