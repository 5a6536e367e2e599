"""Atoms of eigenvalues and singular values: the largest, the smallest, sums; determinants and divergences.

A bound on the largest eigenvalue of a matrix variable is no row: it belongs to the variable. The logarithm of
a determinant and the divergence of a matrix variable are terms of objectives only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from bregopt.arrays import Array, positive_number
from bregopt.divergences import LogDet as LogDetDivergence
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.affine import Named, product
from bregopt.modeling.block_matrices import bmat
from bregopt.modeling.constraints import MatrixInequality
from bregopt.modeling.convex.atom import Atom, DivergenceTerm, Parts, Row, is_symmetric
from bregopt.modeling.convex.expression import (
    CurvedExpression,
    copies_of,
    curved,
    matrix_argument,
    symmetric_argument,
)
from bregopt.modeling.expressions import Expression, Operand
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.program.program import divergence_of
from bregopt.program.rows.base import Matrix
from bregopt.records import replace

__all__ = [
    "DivergenceAtom",
    "EigenvalueBound",
    "lambda_max",
    "lambda_min",
    "lambda_sum_largest",
    "log_det",
    "norm_nuc",
    "sigma_max",
    "started_from_cost",
]

_CONDITION = 1e4  # of the cost: beyond it, the determinant of the start is known to few digits
_ROUND_OFF = 1e-12  # part of the cost, relative to its largest entry, that the start may leave out


class LambdaMax(Atom):
    """The largest eigenvalue: ``t I - F`` is psd."""

    name = "lambda_max"

    def numbers(self, *values: Array) -> Any:
        return float(np.linalg.eigvalsh(values[0])[-1])

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        (F,) = arguments
        return [MatrixInequality(t.times(np.eye(F.shape[0])) - F, self.label)]

    @staticmethod
    def bound(factors: Sequence[float], atoms: Sequence[Any], bound: Expression, label: str) -> Any:
        X = atoms[0].arguments[0]
        taken = bound.is_constant and (bound.parameters or bound.constant[0] > 0)
        if len(atoms) > 1 or not isinstance(X, PSD) or not taken:
            return None
        if bound.parameters:
            return EigenvalueBound(X, bound.times(1 / factors[0]))
        cap = float(bound.constant[0]) / factors[0]
        return EigenvalueBound(X, positive_number(cap, f"the bound of lambda_max({X.name})"))


class LambdaMin(LambdaMax):
    """The smallest eigenvalue: ``F - t I`` is psd."""

    name, convex = "lambda_min", False

    def numbers(self, *values: Array) -> Any:
        return float(np.linalg.eigvalsh(values[0])[0])

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        return super().epigraph(-t, -arguments[0])

    @staticmethod
    def bound(factors: Sequence[float], atoms: Sequence[Any], bound: Expression, label: str) -> Any:
        return None


class LambdaSumLargest(Atom):
    """The sum of the `k` largest eigenvalues: ``k s + tr Z <= t`` with ``Z`` and ``Z + s I - F`` psd.

    In a real form there are `copies` of each eigenvalue.

    References
    ----------
    Alizadeh (1995), Interior point methods in semidefinite programming with applications to combinatorial
    optimization, SIAM J. Optim. 5, section 4.
    """

    name = "lambda_sum_largest"

    def __init__(self, F: Any, k: int, copies: int = 1) -> None:
        self.k, self.copies = k, copies
        super().__init__(F)

    @property
    def label(self) -> str:
        """The atom and its arguments in messages."""
        return f"{super().label[:-1]}, {self.k})"

    def numbers(self, *values: Array) -> Any:
        return float(np.linalg.eigvalsh(values[0])[-self.copies * self.k :].sum()) / self.copies

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        (F,) = arguments
        Z, s = PSD(F.shape[0]), Variable()
        trace = Z[np.arange(Z.n), np.arange(Z.n)].summed()
        excess = MatrixInequality(Z + s * np.eye(Z.n) - F, self.label)
        return [excess, self.k * s + trace / self.copies <= t]


def lambda_max(F: Operand) -> CurvedExpression:
    """Return the largest eigenvalue of a symmetric matrix; it is convex.

    ``bo.lambda_max(X) <= c``, with a matrix variable as a whole and a number ``c`` above 0, belongs to the
    variable: it is ``X <= c I`` and no row.

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
    return curved(LambdaMax(symmetric_argument(F, "F of lambda_max")))


def lambda_min(F: Operand) -> CurvedExpression:
    """Return the smallest eigenvalue of a symmetric matrix; it is concave.

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
    return curved(LambdaMin(symmetric_argument(F, "F of lambda_min")))


def lambda_sum_largest(F: Operand, k: int) -> CurvedExpression:
    """Return the sum of the `k` largest eigenvalues of a symmetric matrix; it is convex.

    Parameters
    ----------
    F : PSD, or affine expression of shape (n, n)
        Symmetric or Hermitian.
    k : int
        From 1 to `n`; for `n` it is the trace, which is affine.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `F` is not affine, not square, not symmetric, or contains no variable, or `k` is no such integer.
    """
    copies = copies_of(F)
    argument = symmetric_argument(F, "F of lambda_sum_largest")
    n = argument.shape[0] // copies
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"k of lambda_sum_largest is {k!r}; expected an integer from 1 to {n}")
    if not 1 <= k <= n:
        raise ValueError(f"k of lambda_sum_largest is {k}; expected an integer from 1 to {n}")
    if k == n:
        return as_trace(argument) / copies
    return curved(LambdaMax(argument) if k == 1 else LambdaSumLargest(argument, int(k), copies))


def as_trace(F: Any) -> CurvedExpression:
    """Return the trace of a symmetric matrix in the place of an atom that is equal to it."""
    own = np.arange(F.shape[0])
    return CurvedExpression(F[own, own].summed())


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


class SigmaMax(Atom):
    """The largest singular value: ``[[t I, F], [F', t I]]`` is psd.

    For a symmetric `F`, ``t I - F`` and ``t I + F`` are.
    """

    name, sign = "sigma_max", 1

    def numbers(self, *values: Array) -> Any:
        return float(np.linalg.norm(values[0], 2))

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        (F,) = arguments
        p, q = F.shape
        if is_symmetric(F):
            limit = t.times(np.eye(p))
            return [MatrixInequality(limit - F, self.label), MatrixInequality(limit + F, self.label)]
        whole: Any = bmat([[t.times(np.eye(p)), F], [F.T, t.times(np.eye(q))]])
        return [MatrixInequality(whole, self.label)]


class NormNuc(Atom):
    """The sum of singular values: ``[[U, F], [F', V]]`` is psd with ``(tr U + tr V) / 2 <= t``.

    A symmetric `F` is a difference of two psd matrices, whose traces add up to ``t`` at most.

    References
    ----------
    Fazel, Hindi, Boyd (2001), A rank minimization heuristic with application to minimum order system
    approximation, Proceedings of the American Control Conference, lemma 2.
    """

    name, sign = "norm_nuc", 1

    def __init__(self, F: Any, copies: int = 1) -> None:
        self.copies = copies
        super().__init__(F)

    def numbers(self, *values: Array) -> Any:
        return float(np.linalg.norm(values[0], "nuc")) / self.copies

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        (F,) = arguments
        p, q = F.shape
        t = t.times(self.copies)
        if is_symmetric(F):
            P, N, own, upper = PSD(p), PSD(p), np.arange(p), np.triu_indices(p)
            return [P[upper] - N[upper] == F[upper], P[own, own].summed() + N[own, own].summed() <= t]
        W, own = PSD(p + q), np.arange(p + q)
        return [W[:p, p:] == F, W[own, own].summed() / 2 <= t]


def sigma_max(F: Operand) -> CurvedExpression:
    """Return the largest singular value of a matrix, its spectral norm; it is convex.

    Parameters
    ----------
    F : PSD, or affine expression of shape (p, q)
        Real or complex.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `F` is not affine, no matrix, or contains no variable.
    """
    F = matrix_argument(F, "F of sigma_max")
    return lambda_max(F) if isinstance(F, PSD) else curved(SigmaMax(F))


def norm_nuc(F: Operand) -> CurvedExpression:
    """Return the sum of the singular values of a matrix, its nuclear norm; it is convex.

    That of a matrix variable as a whole is its trace.

    Parameters
    ----------
    F : PSD, or affine expression of shape (p, q)
        Real or complex.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `F` is not affine, no matrix, or contains no variable.
    """
    copies = copies_of(F)
    F = matrix_argument(F, "F of norm_nuc")
    return as_trace(F) / copies if isinstance(F, PSD) else curved(NormNuc(F, copies))


# --- Terms of objectives only -------------------------------------------------------------------------------


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
