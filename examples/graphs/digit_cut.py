"""Separate threes from fives without labels
=========================================

Each of 365 handwritten digits has edges to the five digits nearest to it. This
example finds the best cut of this graph into two sides of nearly equal size.
The cut separates threes from fives, although it uses no labels.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

import bregopt as bo

digits = load_digits()
chosen = np.isin(digits.target, [3, 5])
points, label = digits.data[chosen], digits.target[chosen]
near = kneighbors_graph(points, 5)
graph = near.maximum(near.T)  # either digit is near to the other

# %%
# The sides may differ in size by 5 %. The bound proves that no such sides cut
# fewer edges.
found = bo.min_balanced_cut(graph, imbalance=0.05)
print(found)

# %%
# The labels are used only here, to count errors.
three = np.where(label == 3, 1, -1)
side = found.partition * np.sign(found.partition @ three)
wrong = np.flatnonzero(side != three)
print(f"{len(wrong)} of {len(label)} digits are on the wrong side")

# %%
# The digits in the two directions in which they differ most. Those with edges
# to the other side, and those on the wrong side, are shown.
edges = np.argwhere(graph.toarray())
edges = edges[edges[:, 0] < edges[:, 1]]
cut = edges[side[edges[:, 0]] != side[edges[:, 1]]]
centered = points - points.mean(axis=0)
place = centered @ np.linalg.svd(centered)[2][:2].T
_, ax = plt.subplots(figsize=(6.6, 4.6), layout="constrained")
ax.plot(*place[edges].T, color="0.85", lw=0.5, zorder=1)
ax.plot(*place[cut].T, color="tab:orange", lw=2, zorder=1)
color = np.where(side > 0, "tab:blue", "tab:green")
ax.scatter(*place.T, c=color, s=15, zorder=2)
for k in np.union1d(cut, wrong):
    image = OffsetImage(digits.images[chosen][k], zoom=2, cmap="gray_r")
    ax.add_artist(AnnotationBbox(image, place[k], pad=0.1))
ax.set_axis_off()
