"""What the answers to problems on partitions of graphs share."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import IntArray
from bregopt.io.graphs import Graph
from bregopt.plotting import Axes, plot_convergence
from bregopt.routes.solution import Solution

__all__ = ["PartedGraph"]


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
