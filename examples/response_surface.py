"""A response surface in three factors: forty runs, and what wear costs."""

from itertools import combinations_with_replacement, product

import numpy as np

import bregopt as bo

grid = np.array(list(product([-1.0, -0.5, 0.0, 0.5, 1.0], repeat=3)))
pairs = list(combinations_with_replacement(range(3), 2))
squares = [grid[:, i] * grid[:, j] for i, j in pairs]
model = np.column_stack([np.ones(len(grid)), grid, *squares])

design = bo.d_optimal(model)
print(design)
runs = design.rounded(40)
share = design.efficiency_of(runs)
print(f"40 runs at {np.count_nonzero(runs)} settings: efficiency {share:.1%}")

extreme, used = (np.abs(grid) == 1).sum(axis=1), (grid != 0).sum(axis=1)
# The face-centered composite design: center, faces and corners.
composite = (extreme == used) & np.isin(extreme, [0, 1, 3])
share = design.efficiency_of(composite.astype(float))
print(f"the face-centered composite design: {share:.1%}")

# Extreme settings of the first factor wear the machine.
wear = np.abs(grid[:, 0])
worn = bo.d_optimal(model, costs=wear, budget=0.5)
share = design.efficiency_of(worn.weights)
print(f"with half of the wear: {worn.status}, efficiency {share:.1%}")
