"""Find irises far from their kind
===============================

The smallest ellipsoid around the flowers of a kind touches the extreme ones.
This example leaves some of these out, one by one. The loss of volume measures
how far away they were.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

import bregopt as bo

# %%
# The contact point with the largest weight is left out, five times.
iris = load_iris(as_frame=True)
for kind, name in enumerate(iris.target_names):
    flowers = iris.data[iris.target == kind]
    whole = bo.min_volume_ellipsoid(flowers)
    kept = flowers
    for _ in range(5):
        outlier = bo.min_volume_ellipsoid(kept).weights.idxmax()
        kept = kept.drop(index=outlier)
    core = bo.min_volume_ellipsoid(kept)
    share = np.exp(core.log_volume - whole.log_volume)
    inside = core.contains(iris.data[iris.target != kind]).sum()
    print(f"{name}: {len(whole.contact)} of {len(flowers)} flowers touch it")
    print(f"  without five of these it has {share:.0%} of the volume,")
    print(f"  and {inside} flowers of other kinds inside")

# %%
# In two of the four dimensions, the ellipses of each kind.
_, ax = plt.subplots(figsize=(6, 4.5), layout="constrained")
columns = ["petal length (cm)", "petal width (cm)"]
for kind in range(3):
    flowers = iris.data.loc[iris.target == kind, columns]
    bo.min_volume_ellipsoid(flowers).plot(ax=ax)
ax.set_xlabel(columns[0])
ax.set_ylabel(columns[1])
