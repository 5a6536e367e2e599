"""Plan forty runs of an experiment
================================

A response surface in three factors has ten coefficients. The D-optimal design
gives the settings to measure at. It also shows how much less information other
designs give.
"""

from itertools import combinations_with_replacement, product

import matplotlib.pyplot as plt
import numpy as np

import bregopt as bo

# %%
# Candidates are the points of a grid, rows of the model their monomials.
grid = np.array(list(product([-1.0, -0.5, 0.0, 0.5, 1.0], repeat=3)))
pairs = list(combinations_with_replacement(range(3), 2))
squares = [grid[:, i] * grid[:, j] for i, j in pairs]
model = np.column_stack([np.ones(len(grid)), grid, *squares])
design = bo.d_optimal(model)
print(design)

# %%
# The weights are rounded to forty runs.
runs = design.rounded(40)
share = design.efficiency_of(runs)
print(f"40 runs at {np.count_nonzero(runs)} settings: efficiency {share:.1%}")

# %%
# The face-centered composite design has the center, the faces and the corners.
extreme, used = (np.abs(grid) == 1).sum(axis=1), (grid != 0).sum(axis=1)
composite = (extreme == used) & np.isin(extreme, [0, 1, 3])
share = design.efficiency_of(composite.astype(float))
print(f"the face-centered composite design: {share:.1%}")

# %%
# Extreme settings of the first factor wear the machine. Half of the wear costs
# this much efficiency.
wear = np.abs(grid[:, 0])
worn = bo.d_optimal(model, costs=wear, budget=0.5)
share = design.efficiency_of(worn.weights)
print(f"with half of the wear: {worn.status}, efficiency {share:.1%}")

# %%
# Both designs; the area of a point is its share of the runs.
figure = plt.figure(figsize=(7, 3.4), layout="constrained")
for k, (name, of) in enumerate(
    {"D-optimal": design, "less wear": worn}.items()
):
    ax = figure.add_subplot(1, 2, k + 1, projection="3d")
    ax.scatter(*grid.T, s=2000 * np.asarray(of.weights))
    ax.set_title(name)
    ax.set_xlabel("first factor")
