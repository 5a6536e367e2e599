"""Irises far from their kind: smallest ellipsoids, peeled at contact points."""

import numpy as np
from sklearn.datasets import load_iris

import bregopt as bo

iris = load_iris(as_frame=True)
for kind, name in enumerate(iris.target_names):
    flowers = iris.data[iris.target == kind]
    whole = bo.min_volume_ellipsoid(flowers)
    # Leave out the contact point with the largest weight, five times.
    kept, left_out = flowers, []
    for _ in range(5):
        outlier = bo.min_volume_ellipsoid(kept).weights.idxmax()
        left_out.append(int(outlier))
        kept = kept.drop(index=outlier)
    core = bo.min_volume_ellipsoid(kept)
    share = np.exp(core.log_volume - whole.log_volume)
    inside = core.contains(iris.data[iris.target != kind]).sum()
    print(f"{name}: {len(whole.contact)} of {len(flowers)} flowers touch it")
    print(f"  without {left_out} it has {share:.0%} of the volume,")
    print(f"  and {inside} flowers of other kinds inside")
