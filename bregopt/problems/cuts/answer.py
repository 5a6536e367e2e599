"""What the problems on partitions of graphs share: the checks of their arguments, and their answers."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import IntArray, finite_array, rectangular
from bregopt.errors import is_one_of
from bregopt.io.graphs import Graph
from bregopt.plotting import Axes, plot_convergence
from bregopt.problems.arguments import check_arguments
from bregopt.problems.cuts.triangles import LARGEST_ORDER
from bregopt.records import dataclass, replace
from bregopt.routes.options import check_options
from bregopt.routes.solution import Solution

__all__ = ["PartedGraph", "check_bound", "first_sizes", "generator", "number_of_parts", "part_sizes"]


def generator(function: Callable[..., Any], seed: Any, options: Mapping[str, Any]) -> np.random.Generator:
    """Return the generator of a seed; check the options before any work."""
    if "warm_start" in options:
        raise TypeError("a cut has no option 'warm_start': each graph is a problem of its own")
    check_arguments(function, options)
    own = {name: value for name, value in options.items() if name != "solver"}
    check_options(options.get("solver", "auto"), own if seed is None else {**own, "seed": seed})
    return np.random.default_rng(seed)


def check_bound(bound: Any, n: int) -> None:
    """Raise unless a kind of bound is known, and made for this number of vertices."""
    if bound is not False and not is_one_of(bound, ("sdp", "triangles")):
        raise ValueError(f"bound is {bound!r}; expected 'sdp', 'triangles' or False")
    if bound == "triangles" and n > LARGEST_ORDER:
        raise ValueError(
            f"bound is 'triangles' and graph has {n} vertices; expected at most {LARGEST_ORDER}: use 'sdp'"
        )


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
    """

    _heading: ClassVar[str] = "relaxation"

    graph: Graph = field(kw_only=True)
    cut: float = np.nan
    bound: float = np.nan
    optimal: bool = False

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
        from bregopt.problems.cuts.drawing import draw_parts  # with what only drawings need

        return draw_parts(self.graph, self._numbers, self._title, pos, ax)

    def plot_convergence(self, ax: Axes | None = None) -> Axes:
        """Draw the gap and the residual of the relaxation against its iterations; returns the axes."""
        return plot_convergence(self.history, self.solver, ax)

    def __repr__(self) -> str:
        lines = [self._sentence]
        if "call" in self.timings:
            lines.append(f"  total time {self.timings['call']:.3g} s")
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
        return f", so at most {math.ceil(1000 * missing) / 10:g}% {side} the best"

    @property
    @abstractmethod
    def _sentence(self) -> str:
        """The cut, its parts and its bound in one line."""

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
        return {"cut": self._sentence.removeprefix("cut of "), **super()._facts()}
