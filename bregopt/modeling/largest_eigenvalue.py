"""An upper bound on the eigenvalues of a matrix variable as a whole."""

from __future__ import annotations

from typing import NoReturn

from bregopt.modeling.variables import PSD

__all__ = ["EigenvalueBound"]


class EigenvalueBound:
    """The constraint ``X <= cap I``, built by ``bo.lambda_max(X) <= cap``.

    It is no row, so it has no multiplier: `dual_value` stays None.

    Attributes
    ----------
    X : PSD
    cap : float
    """

    size = 0  # rows
    dual_value = None

    def __init__(self, X: PSD, cap: float) -> None:
        self.X, self.cap = X, cap

    @property
    def label(self) -> str:
        """The constraint in messages."""
        return f"lambda_max({self.X.name}) <= {self.cap:g}"

    def __bool__(self) -> NoReturn:
        raise TypeError("a constraint has no truth value")

    def __repr__(self) -> str:
        return f"EigenvalueBound({self.label})"
