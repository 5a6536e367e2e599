"""Draw a map from some of the distances
=====================================

Two thirds of the flight distances between ten cities are known. The flattest
map that keeps them is a semidefinite program in the matrix of inner products.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import orthogonal_procrustes

import bregopt as bo

# %%
# Flying mileages (Kruskal and Wish 1978, Multidimensional Scaling).
cities = ["Atlanta", "Chicago", "Denver", "Houston", "Los Angeles", "Miami"]
cities += ["New York", "San Francisco", "Seattle", "Washington"]
upper = """587 1212 701 1936 604 748 2139 2182 543 920 940 1745 1188 713 1858
1737 597 879 831 1726 1631 949 1021 1494 1374 968 1420 1645 1891 1220 2339
2451 347 959 2300 1092 2594 2734 923 2571 2408 205 678 2442 2329"""
n = len(cities)
D = np.zeros((n, n))
D[np.triu_indices(n, 1)] = np.array(upper.split(), dtype=float) / 1000
D += D.T

# %%
# Two thirds of the distances are kept, to within 1 %. A small trace keeps the
# map flat.
rng = np.random.default_rng(3)
i, j = np.triu_indices(n, 1)
kept = rng.random(len(i)) < 2 / 3
i, j = i[kept], j[kept]
X = bo.PSD(n, name="X")
apart = bo.sq_distance(X, i, j)
near = [apart >= (0.99 * D[i, j]) ** 2, apart <= (1.01 * D[i, j]) ** 2]
problem = bo.Problem(bo.Minimize(bo.trace(X)), [*near, bo.sum(X, axis=0) == 0])
sol = problem.solve()
print(sol)

# %%
# Two eigenvectors of the answer are the map. It is turned so that three cities
# lie in their usual directions.
values, vectors = np.linalg.eigh(sol.X)
share = values[-2:].sum() / values.sum()
place = vectors[:, -2:] * np.sqrt(values[-2:])
corners = {"Seattle": (-1.2, 0.8), "Miami": (1.1, -0.9), "New York": (1.2, 0.4)}
at = [cities.index(city) for city in corners]
place = place @ orthogonal_procrustes(place[at], list(corners.values()))[0]
found = np.linalg.norm(place[:, None] - place, axis=2)
error = np.abs(found - D).max() * 1000
print(f"two directions have {share:.1%} of the trace")
print(f"no distance on the map errs by more than {error:.0f} miles")

# %%
# Lines are the distances that were given.
_, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
ax.plot(*place[np.stack([i, j])].transpose(2, 0, 1), color="0.85", lw=1)
ax.scatter(*place.T, zorder=2)
for city, (x, y) in zip(cities, place, strict=True):
    ax.annotate(city, (x, y), (4, 4), textcoords="offset points")
ax.axis("equal")
ax.set_axis_off()
