"""Tell threes from fives without a label
======================================

Tell handwritten threes from fives without a label, by cutting the graph of
neighbors in two.

Each of 365 digits of scikit-learn has edges to the five digits nearest to it. A
semidefinite program of order 365 finds the best cut into sides of nearly equal
size, and proves that it is the best. If matplotlib is installed, the graph is
drawn.
"""

import importlib.util
import math

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

import bregopt as bo

digits = load_digits()
chosen = np.isin(digits.target, [3, 5])
points, label = digits.data[chosen], digits.target[chosen]
near = kneighbors_graph(points, 5)
graph = near.maximum(
    near.T
)  # an edge if either digit is among the five nearest of the other

found = bo.min_balanced_cut(graph, imbalance=0.05)
print(found)
print(
    f"{found.cut:g} of {graph.nnz // 2} edges cut; no such sides cut fewer than {math.ceil(found.bound)}"
)
three = np.where(label == 3, 1, -1)
wrong = np.flatnonzero(
    found.partition != three * np.sign(found.partition @ three)
)
print(f"{len(wrong)} of {len(label)} digits are on the wrong side")

if importlib.util.find_spec("matplotlib"):
    from matplotlib.figure import Figure
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    edges = np.argwhere(graph.toarray())
    edges = edges[edges[:, 0] < edges[:, 1]]
    cut = edges[found.partition[edges[:, 0]] != found.partition[edges[:, 1]]]
    centered = points - points.mean(axis=0)
    place = (
        centered @ np.linalg.svd(centered)[2][:2].T
    )  # the two directions in which the digits differ most
    figure = Figure(figsize=(9, 6), layout="constrained")
    ax = figure.subplots()
    for ends, style in (
        (edges, {"color": "0.85", "lw": 0.5}),
        (cut, {"color": "tab:orange", "lw": 2}),
    ):
        ax.plot(*place[ends].T, zorder=1, **style)
    ax.scatter(
        *place.T,
        c=np.where(found.partition > 0, "tab:blue", "tab:green"),
        s=15,
        zorder=2,
    )
    for k in np.union1d(cut, wrong):
        image = OffsetImage(digits.images[chosen][k], zoom=3, cmap="gray_r")
        ax.add_artist(AnnotationBbox(image, place[k], pad=0.1))
    ax.set_title(f"{found.cut:g} edges cut, proven at least {found.bound:.2f}")
    ax.set_axis_off()
    figure.savefig("digit_cut.png", dpi=110)
    print("drawn in digit_cut.png")
