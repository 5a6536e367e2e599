"""Metrics, kernels, correlations and sparse inverse covariances as scikit-learn estimators.

They need ``pip install 'bregopt[learn]'``; ``import bregopt`` alone never imports scikit-learn.
"""

from bregopt.errors import require

require("sklearn", "learn")

from bregopt.learn.correlation import NearestCorrelation  # noqa: E402
from bregopt.learn.graphical_lasso import (  # noqa: E402
    GraphicalLasso,
    GraphicalLassoCV,
    StabilitySelection,
)
from bregopt.learn.grid_search import GridSearchCV  # noqa: E402
from bregopt.learn.kernel import KernelLearner  # noqa: E402
from bregopt.learn.metric import (  # noqa: E402
    LogDetMetricLearner,
    SoftMarginMetricLearner,
    VonNeumannMetricLearner,
)
from bregopt.learn.pairs import (  # noqa: E402
    PairDefiniteBoost,
    idealised_bounds,  # noqa: F401 - deprecated
    idealized_bounds,
    pairs_from_labels,
    percentile_bounds,
    triplets_from_labels,
)

__all__ = [
    "GraphicalLasso",
    "GraphicalLassoCV",
    "GridSearchCV",
    "KernelLearner",
    "LogDetMetricLearner",
    "NearestCorrelation",
    "PairDefiniteBoost",
    "SoftMarginMetricLearner",
    "StabilitySelection",
    "VonNeumannMetricLearner",
    "idealized_bounds",
    "pairs_from_labels",
    "percentile_bounds",
    "triplets_from_labels",
]
