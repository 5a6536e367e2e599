"""Decide whether two wines are of one kind
========================================

Two learners see pairs of wines, of one cultivar or of two, and judge new pairs.
DefiniteBoost solves one problem over all pairs. Matrix Winnow reads them one by
one.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.metrics import roc_auc_score, roc_curve

from bregopt.learn import PairDefiniteBoost, pairs_from_labels
from bregopt.online import OnlineToBatch, PairWinnow

points, label = load_wine(return_X_y=True)
points = (points - points.mean(axis=0)) / points.std(axis=0)
same, different = pairs_from_labels(label, n_pairs=1000)
count = len(same) + len(different)
order = np.random.default_rng(0).permutation(count)
pairs = points[np.concatenate([same, different])][order]
similar = np.repeat([1, -1], [len(same), len(different)])[order]
train, test = slice(500), slice(500, None)

# %%
# Both learn from the same 500 pairs.
boost = PairDefiniteBoost().fit(pairs[train], similar[train])
winnow = OnlineToBatch(PairWinnow(radius=5.0))
winnow.fit(pairs[train], similar[train])
print(f"DefiniteBoost: certified gap {boost.gap_:.0e}")
print(f"Winnow: {winnow.learner_.mistakes_} mistakes in one pass")

# %%
# How well they rank new pairs, compared with the Euclidean distance.
distance = np.linalg.norm(pairs[:, 0] - pairs[:, 1], axis=1)
scores = {
    "Euclidean distance": -distance[test],
    "DefiniteBoost": boost.decision_function(pairs[test]),
    "vote of Winnow": winnow.decision_function(pairs[test]),
}
for name, score in scores.items():
    print(f"{name}: area {roc_auc_score(similar[test], score):.3f}")

# %%
_, ax = plt.subplots(figsize=(5, 5), layout="constrained")
for name, score in scores.items():
    wrong, right, _ = roc_curve(similar[test], score)
    ax.plot(wrong, right, label=name)
ax.set_xlabel("pairs of two cultivars taken for one")
ax.set_ylabel("pairs of one cultivar found")
ax.legend(frameon=False)
