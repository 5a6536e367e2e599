"""Online learning of positive definite matrices, with bounds on loss and mistakes.

The learners follow scikit-learn: ``partial_fit``, ``predict``, ``score``. Underneath, the modules `meg`,
`burg`, `matrix_burg`, `winnow` and `general_winnow` hold pure functions ``init``, ``predict`` and ``update``
on arrays, and `gradient` two updates to compare with.
"""

from bregopt.errors import require

require("sklearn.base", "learn")  # says what to install, before the modules below look for it

from bregopt.online.burg_learners import BurgGradient, MatrixBurgGradient  # noqa: E402
from bregopt.online.classifiers import GeneralMatrixWinnow, MatrixWinnow  # noqa: E402
from bregopt.online.meg_learner import MEG  # noqa: E402
from bregopt.online.metric import OnlineLogDetMetric  # noqa: E402

__all__ = [
    "MEG",
    "BurgGradient",
    "GeneralMatrixWinnow",
    "MatrixBurgGradient",
    "MatrixWinnow",
    "OnlineLogDetMetric",
]
