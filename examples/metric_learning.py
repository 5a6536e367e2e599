"""Learn a metric from labels, in a pipeline, and choose the weight of its bounds by cross-validation.

The features of scikit-learn's wines are not scaled: their units differ by a factor of a thousand. The second
learner starts from the covariance and learns from forty pairs only.
"""

from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from bregopt.learn import GridSearchCV, LogDetMetricLearner, pairs_from_labels

frame = load_wine(as_frame=True)
train, test, label, test_label = train_test_split(
    frame.data, frame.target, test_size=0.5, stratify=frame.target, random_state=0
)

plain = KNeighborsClassifier(4).fit(train, label)
print(f"Euclidean: 4-NN error {1 - plain.score(test, test_label):.1%}")

model = make_pipeline(LogDetMetricLearner(), KNeighborsClassifier(4))
search = GridSearchCV(model, {"logdetmetriclearner__gamma": [0.01, 0.1, 1.0]}, cv=2).fit(train, label)
learner = search.best_estimator_[0]
print(f"LogDet from labels: 4-NN error {1 - search.score(test, test_label):.1%}")
print(f"  gamma {learner.gamma:g}, {sum(learner.n_pairs_)} pairs, certified gap {learner.gap_:.0e}")

similar, dissimilar = pairs_from_labels(label, n_pairs=40)
told = LogDetMetricLearner(prior="covariance").fit(train, similar=similar, dissimilar=dissimilar)
few = KNeighborsClassifier(4).fit(told.transform(train), label)
print(f"LogDet from 40 pairs: 4-NN error {1 - few.score(told.transform(test), test_label):.1%}")
