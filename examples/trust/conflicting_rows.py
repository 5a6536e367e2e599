"""Find the rows that contradict each other
========================================

Twelve bounds on the distances of four points contradict each other. This
example finds six of them that already do. Without any one of these six, the
others can be satisfied.
"""

import matplotlib.pyplot as plt
import numpy as np

import bregopt as bo

# %%
# Bounds on the squared distances (made-up numbers): three points are near a
# fourth, and far from each other.
X = bo.PSD(4, name="X")
bounds = {
    (0, 1): (0.9, 1.1),
    (0, 2): (0.9, 1.1),
    (0, 3): (0.9, 1.1),
    (1, 2): (3.5, 4.5),
    (1, 3): (3.5, 4.5),
    (2, 3): (3.5, 4.5),
}
rows = []
for (i, j), (least, most) in bounds.items():
    apart = bo.sq_distance(X, i, j)
    rows.append((apart >= least).named(f"{i} and {j} not near"))
    rows.append((apart <= most).named(f"{i} and {j} not far"))
problem = bo.Problem(bo.Minimize(bo.trace(X)), rows)
sol = problem.solve()
print(sol.status)

# %%
# The multipliers of the proof show which rows matter. Further solves remove the
# rows that are not needed.
conflict = sol.conflict()
print(conflict)

# %%
# Three points at a squared distance of at most 1.1 from a fourth are at most
# 3.3 from each other, on average. With lower bounds of 3 there is a solution.
for i, j in ((1, 2), (1, 3), (2, 3)):
    bounds[i, j] = (3.0, 4.5)
mended = [
    bo.between(bo.sq_distance(X, i, j), least, most)
    for (i, j), (least, most) in bounds.items()
]
sol = bo.Problem(bo.Minimize(bo.trace(X)), mended).solve()
print(sol.status)

# %%
# The answer has rank two: its points lie in a plane.
values, vectors = np.linalg.eigh(sol.X)
place = vectors[:, -2:] * np.sqrt(values[-2:])
_, ax = plt.subplots(figsize=(4, 4), layout="constrained")
for (i, j), (least, _) in bounds.items():
    ax.plot(*place[[i, j]].T, color="tab:orange" if least == 3 else "0.7")
ax.scatter(*place.T, zorder=2)
for k, (x, y) in enumerate(place):
    ax.annotate(str(k), (x, y), (6, 6), textcoords="offset points")
ax.axis("equal")
ax.set_axis_off()
