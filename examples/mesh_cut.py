"""Cut a mesh of real terrain in two equal halves for two processors, with few edges between them.

The elevation map around a fault in Tennessee, which matplotlib ships, is meshed by triangles, finer where
the ground is steep. A semidefinite relaxation of order 1,500, solved for a low-rank factor, gives the halves
and a proven lower bound on the number of edges between any halves. The mesh is drawn on the map.
"""

import matplotlib.cbook
import numpy as np
import scipy.sparse as sp
from matplotlib.colors import LightSource
from matplotlib.figure import Figure
from scipy.spatial import Delaunay

import bregopt as bo

elevation = matplotlib.cbook.get_sample_data("jacksboro_fault_dem.npz")["elevation"].astype(float)
steep = np.hypot(*np.gradient(elevation)).ravel()
rng = np.random.default_rng(0)
chosen = rng.choice(elevation.size, 1500, replace=False, p=(steep + 1) / (steep + 1).sum())
points = np.column_stack(np.unravel_index(chosen, elevation.shape))[:, ::-1].astype(float)

triangles = Delaunay(points).simplices
i, j = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]]).T
half = sp.csr_array((np.ones(len(i)), (i, j)), (1500, 1500))
mesh = sp.csr_array((half + half.T) > 0, dtype=float)

found = bo.min_balanced_cut(mesh, tol=1e-4)
print(found)
edges = np.argwhere(sp.triu(mesh).toarray())
between = found.partition[edges[:, 0]] != found.partition[edges[:, 1]]
least = np.ceil(found.bound - 1e-6)
print(f"{found.cut:g} of {len(edges)} edges cut; no equal halves share fewer than {least:g}")

figure = Figure(figsize=(8, 7), layout="constrained")
ax = figure.subplots()
ax.imshow(LightSource(azdeg=315, altdeg=45).hillshade(elevation, vert_exag=0.05), cmap="gray", alpha=0.6)
for sign, color in ((1, "tab:blue"), (-1, "tab:green")):
    inside = ~between & (found.partition[edges[:, 0]] == sign)
    ax.plot(*points[edges[inside]].T, color=color, lw=0.5)
ax.plot(*points[edges[between]].T, color="tab:red", lw=2)
ax.set_title(f"{found.cut:g} edges cut, proven at least {found.bound:.2f}")
ax.set_axis_off()
figure.savefig("mesh_cut.png", dpi=110)
print("drawn in mesh_cut.png")
