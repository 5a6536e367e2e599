"""The largest eigenvalue of a matrix variable, and the one constraint that it takes: an upper bound."""

from __future__ import annotations

from typing import Any, NoReturn

from bregopt.arrays import positive_number
from bregopt.modeling.expressions import Expression, Operand
from bregopt.modeling.hermitian import HermitianPSD
from bregopt.modeling.naming import Named
from bregopt.modeling.variables import PSD

__all__ = ["EigenvalueBound", "LargestEigenvalue", "lambda_max"]

_RULE = "expected bo.lambda_max(X) <= c with a number or parameter c above 0, alone on its side"


def lambda_max(X: PSD) -> LargestEigenvalue:
    """Return the largest eigenvalue of `X`, to be bounded from above: ``bo.lambda_max(X) <= c``.

    It is not affine, so it takes no arithmetic, no other comparison, and no place in an objective.

    Raises
    ------
    TypeError
        If `X` is not a variable as a whole.
    """
    if isinstance(X, HermitianPSD):
        X = X.block
    if not isinstance(X, PSD):
        raise TypeError(
            f"X of lambda_max is {type(X).__name__}; expected a bo.PSD variable as a whole. For the largest "
            "eigenvalue of an expression, declare a second variable and rows that equate the two"
        )
    return LargestEigenvalue(X)


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

    def __bool__(self) -> NoReturn:
        raise TypeError("a constraint has no truth value")

    def __repr__(self) -> str:
        return f"EigenvalueBound({self.title})"


class LargestEigenvalue(Operand):
    """The largest eigenvalue of a variable, for an upper bound."""

    __array_ufunc__ = None  # type: ignore[assignment] # NumPy leaves comparisons to this class

    def __init__(self, X: PSD) -> None:
        self.X = X

    def __le__(self, cap: Any) -> EigenvalueBound:  # type: ignore[override]
        if isinstance(cap, Operand):
            e = cap.expression()
            if not e.is_constant or e.shape:
                self.expression()
            return EigenvalueBound(self.X, e)
        return EigenvalueBound(self.X, positive_number(cap, f"the bound of lambda_max({self.X.name})"))

    def __ge__(self, other: Any) -> NoReturn:
        raise TypeError(f"lambda_max({self.X.name}) >= ... is not convex; {_RULE}")

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError(f"lambda_max({self.X.name}) == ... is not convex; {_RULE}")

    __hash__ = None  # type: ignore[assignment]

    def expression(self) -> NoReturn:
        """Refuse any use as an affine expression."""
        raise TypeError(f"lambda_max({self.X.name}) is not affine; {_RULE}")

    def __repr__(self) -> str:
        return f"lambda_max({self.X.name})"
