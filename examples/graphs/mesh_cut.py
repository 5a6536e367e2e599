"""Divide a mesh among eight processors
====================================

The mesh is a plate with two holes, with smaller triangles near the holes. A
search finds eight parts of equal size with few edges between them. A
semidefinite relaxation proves how few edges there can be.
"""

import numpy as np
import scipy.sparse as sp
from scipy.spatial import Delaunay

import bregopt as bo

HOLES = np.array(
    [[1.0, 1.0, 0.5], [3.1, 0.9, 0.35]]
)  # centers and radii, on a plate of 4 by 2
n = 800


def depth(points):
    """Return the distance from the nearest hole; inside it is negative."""
    apart = np.linalg.norm(points[:, None] - HOLES[None, :, :2], axis=2)
    return (apart - HOLES[:, 2]).min(axis=1)


# %%
# Random points, thinned so that their distance follows the local edge length.
rng = np.random.default_rng(0)
points = rng.uniform([0, 0], [4, 2], (40_000, 2))
near = depth(points)
keep = rng.random(len(points)) < 1 / (1 + 8 * np.maximum(near, 0))
points = points[(near > 0) & keep]
# Each next point is the candidate farthest from the points so far, in units of
# the local edge length.
length, chosen = 0.3 + np.minimum(depth(points), 1.0), [0]
apart = np.full(len(points), np.inf)
while len(chosen) < n:
    apart = np.minimum(
        apart, np.linalg.norm(points - points[chosen[-1]], axis=1)
    )
    chosen.append(int(np.argmax(apart / length)))
points = points[chosen]

# %%
# Their triangulation, without the triangles in the holes, is the mesh.
triangles = Delaunay(points).simplices
corners = points[triangles]
sides = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2)
slim = sides.max(axis=1) > 0.4  # slivers along the border
triangles = triangles[(depth(corners.mean(axis=1)) > 0) & ~slim]
i, j = np.concatenate(
    [triangles[:, pair] for pair in ([0, 1], [1, 2], [2, 0])]
).T
half = sp.csr_array((np.ones(len(i)), (i, j)), (n, n))
mesh = sp.csr_array((half + half.T) > 0, dtype=float)

# %%
# The relaxation of a mesh is not tight, so the bound is far below the cut. It
# says how much a better cut could save at most.
found = bo.partition(mesh, 8)
print(found)
least = np.ceil(found.bound - 1e-6)
print(f"{found.cut:g} of {mesh.nnz // 2} edges are cut")
print(f"no eight equal parts cut fewer than {least:g}")

# %%
# Edges between parts are drawn darker.
found.plot(pos=points)
