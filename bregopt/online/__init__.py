"""Online learning of positive definite matrices, with bounds on loss and mistakes.

The learners follow scikit-learn: ``partial_fit``, ``predict``, ``score``. Underneath, the modules `meg`,
`burg`, `matrix_burg`, `winnow`, `general_winnow` and `kernel_winnow` hold pure functions on arrays, such as
``init``, ``predict`` and ``update``, `pca` those of on-line PCA, and `gradient` two updates to compare with.
"""

from bregopt.errors import require

require("sklearn.base", "learn")  # says what to install, before the modules below look for it

from bregopt.online.burg import BurgGradient  # noqa: E402
from bregopt.online.general_winnow import GeneralMatrixWinnow  # noqa: E402
from bregopt.online.kernel_winnow import KernelWinnow  # noqa: E402
from bregopt.online.learner import OnlineToBatch  # noqa: E402
from bregopt.online.losses import Loss, huber  # noqa: E402
from bregopt.online.matrix_burg import MatrixBurgGradient, OnlineLogDetMetric  # noqa: E402
from bregopt.online.meg import MEG  # noqa: E402
from bregopt.online.pca import OnlinePCA  # noqa: E402
from bregopt.online.winnow import MatrixWinnow, PairWinnow  # noqa: E402

__all__ = [
    "MEG",
    "BurgGradient",
    "GeneralMatrixWinnow",
    "KernelWinnow",
    "Loss",
    "MatrixBurgGradient",
    "MatrixWinnow",
    "OnlineLogDetMetric",
    "OnlinePCA",
    "OnlineToBatch",
    "PairWinnow",
    "huber",
]
