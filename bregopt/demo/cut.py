"""Minimum balanced cut of Zachary's karate club (networkx), with a proof of how good it is.

The club split in two, and the sides are known. The semidefinite relaxation (Kulis et al. 2009, §6.4) gives
a lower bound on every balanced cut; rounding gives a cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

import bregopt as bo
from bregopt.demo.report import Case, Line, agree
from bregopt.errors import require

__all__ = ["run"]


def run(verbose: bool) -> Case:
    """Cut the club in two halves and compare with the split that happened."""
    networkx = require("networkx", "graph")
    graph = networkx.karate_club_graph()
    cut = bo.min_balanced_cut(graph, verbose=verbose)
    reference = relaxation(networkx.laplacian_matrix(graph, weight=None)).solve(solver="cvxpy")
    line = Line("balanced cut", cut, reference, agree(cut, reference))
    known = np.array([1 if graph.nodes[v]["club"] == "Mr. Hi" else -1 for v in graph])
    differ = int(min(np.sum(cut.partition != known), np.sum(cut.partition != -known)))
    proof = ": no halves cut fewer" if cut.optimal else ""
    crossing = sum(known[i] != known[j] for i, j in graph.edges())
    findings = [
        f"cut of {cut.cut:g} edges, proven at least {cut.bound:.2f}{proof}",
        f"the split that happened crosses {crossing} edges and differs in {differ} of {len(known)} members",
    ]
    return Case(
        "balanced_cut", [line], findings, lambda figure: _draw(figure, networkx, graph, cut.partition, known)
    )


def relaxation(L: Any) -> bo.Problem:
    """Return the semidefinite relaxation, min <L, X> / 4 with unit diagonal and e'Xe = 0.

    The variable is ``Y`` in ``X = V Y V'`` with a basis ``V`` of the vectors orthogonal to ``e``. The problem
    in ``X`` has no interior: general solvers miss its optimum by more than they report.
    """
    V = np.asarray(scipy.linalg.null_space(np.ones((1, L.shape[0]))))
    Y = bo.PSD(V.shape[1], name="Y")
    return bo.Problem(bo.Minimize(bo.inner(V.T @ (L / 4) @ V, Y)), [bo.quad_form(V, Y) == 1])


def _draw(figure: Any, networkx: Any, graph: Any, partition: Any, known: Any) -> None:
    figure.set_size_inches(10, 4.2)
    place = networkx.spring_layout(graph, seed=3)
    for ax, side, title in zip(
        figure.subplots(1, 2),
        (partition, known),
        ("minimum balanced cut", "the split that happened"),
        strict=True,
    ):
        crossing = [side[i] != side[j] for i, j in graph.edges()]
        networkx.draw_networkx_edges(
            graph,
            place,
            ax=ax,
            edge_color=["tab:orange" if c else "0.75" for c in crossing],
            width=[1.8 if c else 0.7 for c in crossing],
        )
        colors = ["tab:blue" if s > 0 else "tab:green" for s in side * side[0]]
        networkx.draw_networkx_nodes(graph, place, ax=ax, node_color=colors, node_size=90)
        networkx.draw_networkx_labels(graph, place, ax=ax, font_size=6, font_color="white")
        ax.set_title(f"{title}: {sum(crossing)} edges cut")
        ax.set_axis_off()
