"""Atoms of objectives: the divergence of a matrix variable, and the logarithm of a determinant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from bregopt.arrays import Array
from bregopt.divergences import LogDet as LogDetDivergence
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.affine import product
from bregopt.modeling.convex.atom import Atom, DivergenceTerm, Parts, Row
from bregopt.modeling.convex.eigenvalues import as_trace
from bregopt.modeling.convex.expression import CurvedExpression, copies_of, curved, symmetric_argument
from bregopt.modeling.expressions import Expression, Operand
from bregopt.modeling.variables import PSD, Parameter
from bregopt.program.program import divergence_of
from bregopt.program.rows.base import Matrix
from bregopt.records import replace

__all__ = ["DivergenceAtom", "log_det", "started_from_cost"]

_CONDITION = 1e4  # of the cost: beyond it, the determinant of the start is known to few digits
_ROUND_OFF = 1e-12  # part of the cost, relative to its largest entry, that the start may leave out


class DivergenceAtom(Atom):
    """``D(X, X0)``; for a Hermitian variable with `copies` of each eigenvalue in the real form ``X``.

    The `options` are keywords that `current` takes into account at the values of parameters.
    """

    objective_only, sign = True, 1
    divergence: str

    def __init__(
        self,
        divergence: str,
        X: PSD,
        X0: Matrix | Parameter,
        parameters: Mapping[str, Any],
        current: Callable[[], Any] | None = None,
        copies: int = 1,
        options: Mapping[str, float] | None = None,
    ) -> None:
        self.divergence, self.X, self.X0, self.parameters = divergence, X, X0, parameters
        self._current, self._copies, self.options = current, copies, options or {}
        super().__init__()

    @property
    def label(self) -> str:
        """The divergence in messages."""
        further = "".join(f", {name}" for name in self.parameters)
        return f"{self.divergence}_div({self.X.name}{further})"

    @property
    def value(self) -> float | None:
        """The value at the current matrix, None if there is none."""
        if self.X.value is None or any(p.value is None for p in self._term(1.0, None).data):
            return None
        return self.numbers(np.asarray(self.X.value))

    def numbers(self, *values: Array) -> float:
        """Return the divergence of a matrix, at the current values of parameters."""
        nearness = self._term(1.0, None).nearness(1.0)
        return float(divergence_of(nearness).value(values[0])) / self._copies

    def epigraph(self, t: Expression, *arguments: Expression) -> NoReturn:
        """Refuse an epigraph, which no route takes."""
        raise UnsupportedProblemError(f"{self.label} has no epigraph; expected it as a term of an objective")

    def leaves(self) -> Iterable[Any]:
        """Yield the matrix variable."""
        yield self.X

    def paid(self, weights: Array, parameter: Expression | None, *arguments: Any) -> Parts | None:
        """Return the divergence itself."""
        return Parts(divergences=[self._term(float(weights[0]), parameter)])

    def _term(self, weight: float, parameter: Expression | None) -> DivergenceTerm:
        now = None if self._current is None else self._at_values
        return DivergenceTerm(
            *(self.divergence, self.X, self.X0, weight, parameter, self.parameters, now, self._copies),
            complemented="complement" in self.options,
        )

    def _at_values(self) -> Any:
        """Return the atom at the current values of parameters."""
        assert self._current is not None
        (term,) = self._current().terms
        return term.atom


class LogDet(Atom):
    """``log det F``; in an objective it is ``tr X - n - D(X, I)`` with the LogDet divergence ``D``."""

    name, convex = "log_det", False

    def __init__(self, F: Any, copies: int = 1) -> None:
        self.copies = copies
        super().__init__(F)

    def numbers(self, *values: Array) -> Any:
        sign, logarithm = np.linalg.slogdet(values[0])
        return float(logarithm) / self.copies if sign > 0 else -np.inf

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        raise UnsupportedProblemError(
            f"{self.label} is in a constraint, or inside another function, which no route takes; expected it "
            "as a term of an objective that is maximized. Maximize the log_det and bound the rest instead"
        )

    def paid(self, weights: Array, parameter: Expression | None, *arguments: Any) -> Parts | None:
        (F,), weight = arguments, -float(weights[0]) / self.copies
        X, rows = (F, []) if isinstance(F, PSD) else _named(F)
        near = DivergenceTerm("logdet", X, np.eye(X.n), weight, parameter)
        rest = weight * (X.n - as_trace(X).affine)
        return Parts(rows, [near], rest if parameter is None else product(parameter, rest))


def log_det(F: Operand) -> CurvedExpression:
    """Return the logarithm of the determinant of a symmetric matrix; it is concave.

    It is minus infinity where the matrix is not positive definite. It may be maximized, and stands in
    no constraint.

    Parameters
    ----------
    F : PSD, or affine expression of shape (n, n)
        Symmetric or Hermitian.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `F` is not affine, not square, not symmetric, or contains no variable.
    """
    return curved(LogDet(symmetric_argument(F, "F of log_det"), copies_of(F)))


def started_from_cost(term: DivergenceTerm, affine: Expression) -> tuple[DivergenceTerm, Expression]:
    """Return ``mu D(X, I) + <W, X>`` as ``mu D(X, X0)`` and a constant, where the cost allows it.

    The minimum without rows is then the start, and routes take half the steps.
    """
    X, mu = term.X, term.weight
    if X not in affine.psd or term.parameter is not None:
        return term, affine
    W = affine.psd[X].adjoint(np.ones(1)) + mu * np.eye(X.n)
    found = LogDetDivergence.completed(mu, W, 1.0)
    # What the start leaves out of the cost is paid at matrices as large as the start.
    condition = float(np.abs(found.X0).max() * np.abs(W).max()) / mu
    if np.abs(found.left).max() > _ROUND_OFF * np.abs(W).max() or condition > _CONDITION:
        return term, affine
    rest = replace(affine, psd={Y: rows for Y, rows in affine.psd.items() if Y is not X})
    return replace(term, X0=found.X0), rest + (found.constant - mu * X.n)


def _named(F: Expression) -> tuple[PSD, list[Row]]:
    """Return a new matrix variable, and rows that equate it with an affine symmetric matrix."""
    X = PSD(F.shape[0])
    upper = np.triu_indices(X.n)
    return X, [X[upper] - F[upper] == 0]
