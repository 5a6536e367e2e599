"""Learn a metric from labels
==========================

The features of scikit-learn's wines have units that differ by a factor of a
thousand, so one feature dominates the Euclidean distance. A learned metric
brings wines of one cultivar together.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from bregopt.learn import GridSearchCV, LogDetMetricLearner, pairs_from_labels

frame = load_wine(as_frame=True)
train, test, label, test_label = train_test_split(
    frame.data,
    frame.target,
    test_size=0.5,
    stratify=frame.target,
    random_state=0,
)
plain = KNeighborsClassifier(4).fit(train, label)
print(f"Euclidean: 4-NN error {1 - plain.score(test, test_label):.1%}")

# %%
# The learner is an estimator of scikit-learn. Cross-validation chooses the
# weight of its bounds on distances; ``executor=`` would solve the problems of
# all weights and folds on several processes. The metric starts from the inverse
# covariance of the features, which makes units the same.
own = LogDetMetricLearner(prior="covariance")
model = make_pipeline(own, KNeighborsClassifier(4))
grid = {"logdetmetriclearner__gamma": [0.01, 0.1, 1.0]}
search = GridSearchCV(model, grid, cv=2).fit(train, label)
learner = search.best_estimator_[0]
error = 1 - search.score(test, test_label)
print(f"learned from labels: 4-NN error {error:.1%}")
print(f"{sum(learner.n_pairs_)} pairs, certified gap {learner.gap_:.0e}")

# %%
# With this start forty pairs are enough.
similar, dissimilar = pairs_from_labels(label, n_pairs=40)
few = LogDetMetricLearner(prior="covariance")
few.fit(train, similar=similar, dissimilar=dissimilar)
nearest = KNeighborsClassifier(4).fit(few.transform(train), label)
error = 1 - nearest.score(few.transform(test), test_label)
print(f"learned from 40 pairs: 4-NN error {error:.1%}")

# %%
# Wines that the learner has not seen, in the plane through the means of the
# three cultivars: in the given features and in the learned metric.
_, axes = plt.subplots(1, 2, figsize=(6.6, 3.3), layout="constrained")
spaces = {
    "Euclidean distance": (train.to_numpy(), test.to_numpy()),
    "learned metric": (learner.transform(train), learner.transform(test)),
}
for ax, (title, (seen, new)) in zip(axes, spaces.items(), strict=True):
    means = np.array([seen[label == kind].mean(axis=0) for kind in range(3)])
    plane = np.linalg.svd(means - means.mean(axis=0))[2][:2]
    for kind, name in enumerate(frame.target_names):
        ax.scatter(*plane @ new[test_label == kind].T, s=16, label=name)
    ax.set_title(title)
    ax.set_xticks([])
    ax.set_yticks([])
axes[0].legend(title="cultivar", frameon=False)
