"""Learn a metric from triplets
============================

Learn a metric for wines from triplets, by the soft-margin program of PSDBoost
(Shen et al. 2008).
"""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.neighbors import KNeighborsClassifier

import bregopt as bo

points, label = load_wine(return_X_y=True)
points = (points - points.mean(axis=0)) / points.std(axis=0)
rng = np.random.default_rng(0)
order = rng.permutation(len(label))
train, test = order[::2], order[1::2]

# Each training wine has to be closer to the nearest wine of its class than to the nearest of another.
far, near = [], []
for i in train:
    relatives, strangers = (
        train[label[train] == label[i]],
        train[label[train] != label[i]],
    )
    relatives = relatives[relatives != i]
    near.append(
        points[i]
        - points[
            relatives[
                np.argmin(((points[relatives] - points[i]) ** 2).sum(axis=1))
            ]
        ]
    )
    far.append(
        points[i]
        - points[
            strangers[
                np.argmin(((points[strangers] - points[i]) ** 2).sum(axis=1))
            ]
        ]
    )

sol = bo.soft_margin((np.array(far), np.array(near)))
print(sol)
eigenvalues, V = np.linalg.eigh(sol.X)
root = V * np.sqrt(np.maximum(eigenvalues, 0))
for name, features in (("before", points), ("after", points @ root)):
    score = (
        KNeighborsClassifier(1)
        .fit(features[train], label[train])
        .score(features[test], label[test])
    )
    print(f"{name}: 1-NN error {1 - score:.1%}")
