"""Tell whether two wines are of one kind
======================================

Classify pairs of wines as of one cultivar or of two, by DefiniteBoost and by a
vote of Matrix Winnow.
"""

import numpy as np
from sklearn.datasets import load_wine

from bregopt.learn import PairDefiniteBoost, pairs_from_labels
from bregopt.online import OnlineToBatch, PairWinnow

points, label = load_wine(return_X_y=True)
points = (points - points.mean(axis=0)) / points.std(axis=0)
same, different = pairs_from_labels(label, n_pairs=1000)
order = np.random.default_rng(0).permutation(len(same) + len(different))
pairs = points[np.concatenate([same, different])][order]
similar = np.repeat([1, -1], [len(same), len(different)])[order]
train, test = np.arange(500), np.arange(500, len(order))

distance = np.linalg.norm(pairs[:, 0] - pairs[:, 1], axis=1)
threshold = max(
    distance[train],
    key=lambda t: np.mean((distance[train] <= t) == (similar[train] > 0)),
)
print(
    f"Euclidean distance: error {np.mean((distance[test] <= threshold) != (similar[test] > 0)):.1%}"
)

boosted = PairDefiniteBoost().fit(pairs[train], similar[train])
print(
    f"DefiniteBoost: error {1 - boosted.score(pairs[test], similar[test]):.1%}, gap {boosted.gap_:.1e}"
)

vote = OnlineToBatch(PairWinnow(radius=5.0)).fit(pairs[train], similar[train])
print(f"vote of Winnow: error {1 - vote.score(pairs[test], similar[test]):.1%}")
print(
    f"one pass over {len(train)} pairs made {vote.learner_.mistakes_} mistakes"
)
