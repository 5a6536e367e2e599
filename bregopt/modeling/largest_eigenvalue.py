"""An upper bound on the eigenvalues of a matrix variable as a whole."""

from __future__ import annotations

from bregopt.arrays import positive_number
from bregopt.modeling.expressions import Expression
from bregopt.modeling.naming import Named
from bregopt.modeling.psd import PSD

__all__ = ["EigenvalueBound"]


class EigenvalueBound(Named):
    """The constraint ``X <= cap I``, built by ``bo.lambda_max(X) <= cap``.

    It is no row, so it has no multiplier: `dual_value` stays None.

    Attributes
    ----------
    X : PSD
    cap : float or Expression
        A number, or a scalar of parameters.
    """

    size = 0  # rows
    dual_value = None

    def __init__(self, X: PSD, cap: float | Expression) -> None:
        self.X, self.cap = X, cap
        text = cap.label if isinstance(cap, Expression) else f"{cap:g}"
        self.label = f"lambda_max({X.name}) <= {text}"

    @property
    def value(self) -> float:
        """The bound at the current values of parameters."""
        cap = self.cap.value if isinstance(self.cap, Expression) else self.cap
        return positive_number(cap, f"the bound of lambda_max({self.X.name})")

    def __repr__(self) -> str:
        return f"EigenvalueBound({self.title})"
