"""Expressions with curvature: affine forms plus linear maps of atoms; comparisons, arguments, objectives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, MatrixLike, SparseMatrix, finite_array
from bregopt.modeling.affine import Formula, Named, as_factor, linear_map, product
from bregopt.modeling.block_matrices import bmat
from bregopt.modeling.complex_expressions import (
    ComplexForms,
    as_complex,
    is_hermitian,
    relabeled,
    vanishing_parts,
)
from bregopt.modeling.complex_variables import HermitianPSD
from bregopt.modeling.convex.atom import (
    Atom,
    check_bounded,
    check_equated,
    check_objective,
    curvature_of,
    is_symmetric,
    text_of,
)
from bregopt.modeling.expressions import (
    Expression,
    ExpressionLike,
    Operand,
    as_expression,
    check_not_empty,
    holds_complex,
)
from bregopt.modeling.variables import PSD
from bregopt.records import dataclass, replace


@dataclass(frozen=True, eq=False)
class Term:
    """``parameter * factor * matrix @ atom``.

    Parameters
    ----------
    atom : Atom
    text : str
        ``matrix @ atom`` in messages.
    factor : float
    matrix : csr_array of shape (rows, atom size), optional
        None stands for the identity.
    parameter : Expression, optional
        A scalar of parameters whose value must not be negative.
    """

    atom: Atom
    text: str
    factor: float = 1.0
    matrix: Any = None
    parameter: Expression | None = None

    @property
    def weights(self) -> Any:
        """``factor * matrix`` as a sparse matrix."""
        identity = sp.csr_array(sp.eye_array(self.atom.size))
        return self.factor * (identity if self.matrix is None else self.matrix)

    @property
    def weight_sign(self) -> int:
        """The sign of all weights, 0 if they have several."""
        own = 1 if self.factor > 0 else -1
        if self.matrix is None or not (self.matrix.data < 0).any():
            return own
        return 0 if (self.matrix.data > 0).any() else -own

    @property
    def direction(self) -> int:
        """1 if the term is convex, -1 if concave, 0 if its elements differ."""
        return self.weight_sign if self.atom.convex else -self.weight_sign

    @property
    def sign(self) -> int:
        """The sign of the term's values, 0 if it is not known."""
        return self.weight_sign * self.atom.sign

    @property
    def label(self) -> str:
        """The name of the term in messages."""
        factor = {1.0: "", -1.0: "-"}.get(self.factor, f"{self.factor:g} ")
        parameter = "" if self.parameter is None else f"{as_factor(self.parameter.label)} "
        return f"{factor}{parameter}{self.text}"

    def times(self, weight: Array) -> Term:
        """Return the term with each row times a weight; one number is a factor."""
        if weight.ndim == 0:
            return replace(self, factor=self.factor * float(weight))
        matrix = sp.csr_array(sp.diags_array(weight.ravel()) @ self._matrix())
        return replace(self, matrix=matrix, text=f"b * {self.text}")

    def mapped(self, S: Any, text: str) -> Term:
        """Return ``S @ term``."""
        return replace(self, matrix=sp.csr_array(S @ self._matrix()), text=text)

    def of(self, t: Expression) -> Expression:
        """Return the term with an affine expression in place of the atom, as a vector."""
        own = t.combined(self._matrix(), (self._matrix().shape[0],), t.label).times(self.factor)
        return own if self.parameter is None else product(self.parameter, own)

    def value(self) -> Any:
        """Return the value of the term as a vector, None if a variable or parameter has none."""
        own = self.atom.value
        if own is None or (self.parameter is not None and self.parameter.value is None):
            return None
        weight = 1.0 if self.parameter is None else float(np.asarray(self.parameter.value))
        return weight * (self.weights @ np.ravel(own))

    def _matrix(self) -> Any:
        return sp.csr_array(sp.eye_array(self.atom.size)) if self.matrix is None else self.matrix


@dataclass(frozen=True, eq=False, repr=False)
class CurvedExpression(Operand, Formula):
    """An affine expression plus terms of atoms; built by atoms and arithmetic, not by hand.

    Parameters
    ----------
    affine : Expression
    terms : tuple of Term
    """

    affine: Expression
    terms: tuple[Term, ...] = ()
    absorbs_expressions = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.affine.shape

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.affine.size

    @property
    def curvature(self) -> str:
        """One of "affine", "convex", "concave", and "neither convex nor concave"."""
        return str(curvature_of(self))

    @property
    def label(self) -> str:  # type: ignore[override]
        """The name of the expression in messages."""
        parts = [term.label for term in self.terms]
        if not self.affine.is_constant or self.affine.constant.any() or not parts:
            parts.append(self.affine.full_label)
        return " + ".join(parts).replace("+ -", "- ")

    @property
    def value(self) -> Array | float | None:
        """The number or array at the current values, None if a variable or parameter has none."""
        total = self.affine.value
        for term in self.terms:
            part = term.value()
            if part is None or total is None:
                return None
            total = total + part.reshape(self.shape)
        return total if self.shape or total is None else float(np.asarray(total).item())

    def expression(self) -> Expression:
        """Return the affine expression; refuse terms with curvature."""
        if self.terms:
            raise TypeError(
                f"{self.label} is {self.curvature}, and not affine, as is needed here; a convex expression "
                "may be minimized or bounded from above, a concave one maximized or bounded from below"
            )
        return self.affine

    @property
    def divergences(self) -> frozenset[str]:
        """The names of the divergences among the terms."""
        return frozenset(t.atom.divergence for t in self.terms if t.atom.divergence is not None)

    def __add__(self, other: Any) -> CurvedExpression:
        a, b = self, as_curved(other)
        if a.shape != b.shape:
            shape = a.affine.broadcast_with(b.affine)[0].shape
            a, b = a.broadcast_to(shape), b.broadcast_to(shape)
        return CurvedExpression(a.affine.plus(b.affine), a.terms + b.terms)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self.times(np.array(-1.0))

    def __pos__(self) -> Any:
        return self

    def __sub__(self, other: Any) -> CurvedExpression:
        return self + (-as_curved(other))

    def __rsub__(self, other: Any) -> CurvedExpression:
        return (-self) + other

    def __mul__(self, factor: Any) -> CurvedExpression:
        if isinstance(factor, Operand):
            return self._weighed_by(factor)
        numbers = finite_array(factor, f"factor of {self.label}")
        check_not_empty(numbers, f"factor of {self.label}")
        return self.times(numbers)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Any:
        if isinstance(divisor, Operand):
            raise TypeError(f"{self!r} over {divisor!r} is not convex: a ratio of expressions is not")
        number = finite_array(divisor, f"divisor of {self.label}")
        if (number == 0).any():
            raise ValueError(f"division of {self.label} by zero; expected a divisor without zeros")
        with np.errstate(over="ignore"):
            return self * (1 / number)

    def __matmul__(self, matrix: Any) -> CurvedExpression:
        numbers = _matrix(matrix, self)
        affine = self.affine @ numbers  # refuses shapes that do not go together
        return self._mapped(affine, linear_map(numbers, self.size, left=False), f"{self.label} @ A")

    def __rmatmul__(self, matrix: Any) -> Any:
        numbers = _matrix(matrix, self)
        affine = numbers @ self.affine  # refuses shapes that do not go together
        return self._mapped(affine, linear_map(numbers, self.size), f"A @ {self.label}")

    def __getitem__(self, key: Any) -> CurvedExpression:
        part = self.affine[key]
        rows = np.arange(self.size).reshape(self.shape)[key]
        return self._taken(np.ravel(rows), part, "[...]")

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError(f"{self.label} is a scalar: it has no elements to iterate over")
        return (self[k] for k in range(self.shape[0]))

    def __le__(self, other: Any) -> Any:
        return bounded(self, as_curved(other, f"the bound of {self.label}"), "<=")

    def __ge__(self, other: Any) -> Any:
        return bounded(self, as_curved(other, f"the bound of {self.label}"), ">=")

    def __eq__(self, other: Any) -> Any:
        check_equated(self, as_curved(other, f"the value of {self.label}"))
        return self.expression() == other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return self.label

    def times(self, factor: Array) -> CurvedExpression:
        """Return the product with numbers, broadcast as NumPy does; zero terms are left out."""
        if factor.ndim == 0 and factor == 0:
            return CurvedExpression(self.affine.times(0.0))
        e = self if factor.ndim == 0 else self.broadcast_to(np.broadcast_shapes(self.shape, factor.shape))
        weight = factor if factor.ndim == 0 else np.broadcast_to(factor, e.shape)
        return CurvedExpression(e.affine.times(factor), tuple(t.times(weight) for t in e.terms))

    def summed(self, axis: int | None = None) -> CurvedExpression:
        """Return the sum of all elements, or the sums along an axis."""
        total = self.affine.summed(axis)
        if not self.shape:
            return replace(self, affine=total)
        numbers = np.arange(self.size).reshape(self.shape)
        places = numbers.reshape(1, -1) if axis is None else np.moveaxis(numbers, axis, -1)
        columns, count = places.ravel(), places.shape[-1]
        S = sp.csr_array(
            (np.ones(self.size), columns, np.arange(0, self.size + 1, count)), (total.size, self.size)
        )
        return CurvedExpression(total, tuple(t.mapped(S, f"sum({t.text})") for t in self.terms))

    def combined(self, S: MatrixLike, shape: tuple[int, ...]) -> CurvedExpression:
        """Return the combinations of elements in a CSR matrix, in a shape of their own."""
        text = f"linear_map(A, {self.label})"
        return self._mapped(self.affine.combined(S, shape, text), S, text)

    def broadcast_to(self, shape: tuple[int, ...]) -> CurvedExpression:
        """Return the array repeated to a shape, as NumPy does."""
        if shape == self.shape:
            return self
        rows = np.broadcast_to(np.arange(self.size).reshape(self.shape), shape).ravel()
        return self._taken(rows, self.affine.broadcast_to(shape), "")

    def _taken(self, rows: Any, affine: Expression, suffix: str) -> CurvedExpression:
        S = sp.csr_array((np.ones(len(rows)), (np.arange(len(rows)), rows)), (len(rows), self.size))
        return CurvedExpression(affine, tuple(t.mapped(S, t.text + suffix) for t in self.terms))

    def _mapped(self, affine: Any, S: Any, text: str) -> CurvedExpression:
        return CurvedExpression(affine, tuple(t.mapped(S, text) for t in self.terms))

    def _weighed_by(self, factor: Operand) -> CurvedExpression:
        """Return the product with a scalar of parameters, by the rules of DPP."""
        written = f"{factor!r} * ({self!r})"
        if isinstance(factor, CurvedExpression) and factor.terms:
            raise TypeError(f"{written} is not convex: a product of expressions is not")
        weight = factor.expression()
        if not weight.is_constant:
            raise TypeError(f"{written} is not convex: a product of expressions is not")
        if weight.shape:
            raise TypeError(f"{written}: expected a scalar number or parameter as the weight")
        if any(t.parameter is not None for t in self.terms):
            raise TypeError(
                f"{written} is a product of two parameters; by the rules of disciplined parametrized "
                "programming (DPP) one factor must be without: declare one bo.Parameter for the product of "
                "the two, and set its value"
            )
        terms = tuple(replace(t, parameter=weight) for t in self.terms)
        return CurvedExpression(product(weight, self.affine), terms)


def curved(atom: Atom) -> CurvedExpression:
    """Return an atom as an expression."""
    zero = Expression(atom.shape, np.zeros(atom.size), label="0")
    return CurvedExpression(zero, (Term(atom, atom.label),))


def as_curved(value: Any, name: str = "constant") -> CurvedExpression:
    """Return an operand or numbers as an expression that may have curvature."""
    return value if isinstance(value, CurvedExpression) else CurvedExpression(as_expression(value, name))


def _matrix(matrix: Any, e: CurvedExpression) -> Any:
    if isinstance(matrix, Operand):
        raise TypeError(f"{e!r} @ {matrix!r} is not convex: a product of expressions is not")
    return matrix if sp.issparse(matrix) else finite_array(matrix, "factor of @", (1, 2))


class ConvexConstraint(Named):
    """``body <= 0`` for a convex expression, elementwise; built by ``<=`` and ``>=``.

    Attributes
    ----------
    body : CurvedExpression
        The lesser side minus the greater one.
    dual_value : float or array of the shape of the body, or None
        Set by :meth:`bregopt.Problem.solve`, with CVXPY's sign: the decrease of the optimum for a unit more
        of the greater side, never negative. If the problem is infeasible it is this constraint's part of a
        Farkas vector.
    """

    def __init__(self, body: CurvedExpression, label: str) -> None:
        self.body, self.label = body, label
        self.dual_value: Array | float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the body."""
        shape: tuple[int, ...] = self.body.shape
        return shape

    @property
    def size(self) -> int:
        """The number of inequalities."""
        return int(self.body.size)

    def set_dual(self, parts: Iterable[tuple[SparseMatrix, Array]] | None) -> None:
        """Set the dual from the multipliers of rows and cones and their derivatives in the greater side."""
        if parts is None:
            self.dual_value = None
            return
        total = np.maximum(sum((slope.T @ y for slope, y in parts), np.zeros(self.size)), 0.0)
        self.dual_value = total.reshape(self.shape) if self.shape else float(total[0])

    def __repr__(self) -> str:
        return f"ConvexConstraint({self.title}, rows={self.size})"


def bounded(left: Any, right: Any, sense: str) -> Any:
    """Return the constraint ``left sense right`` of expressions that may have curvature.

    A bound on a norm or on a sum of squares is a second-order cone, and one on the largest eigenvalue of a
    matrix variable belongs to the variable.

    Raises
    ------
    TypeError
        If it is not convex; the message names the rule.
    """
    check_bounded(left, right, sense)
    if not left.terms and not right.terms:
        a, b = left.affine, right.affine
        return a <= b if sense == "<=" else a >= b
    label = f"{text_of(left)} {sense} {text_of(right)}"
    lesser, greater = (left, right) if sense == "<=" else (right, left)
    own = None if greater.terms else _own_constraint(lesser, greater.affine, label)
    return ConvexConstraint(lesser - greater, label) if own is None else own


def _own_constraint(e: Any, bound: Any, label: str) -> Any:
    """Return the constraint that a class of atoms has for its bounds, None if it has none."""
    kinds = {type(term.atom) for term in e.terms}
    plain = all(t.matrix is None and t.parameter is None for t in e.terms)
    if len(kinds) > 1 or not plain or e.size > 1 or bound.size > 1:
        return None
    if not e.affine.is_constant or e.affine.parameters or e.affine.constant.any():
        bound = bound.plus(e.affine.times(-1.0))
    factors, atoms = [t.factor for t in e.terms], [t.atom for t in e.terms]
    return kinds.pop().bound(factors, atoms, bound, label)


def curved_argument(x: Any, name: str) -> Any:
    """Return an operand as an affine expression or one with curvature; `name` is its name in messages.

    Raises
    ------
    TypeError, ValueError
        If it is no operand, or contains no variable.
    """
    if isinstance(x, CurvedExpression):
        return x if x.terms else x.affine
    e = as_expression(x, name)
    if e.is_constant:
        raise ValueError(f"{name} contains no variable; expected an expression with one")
    return e


def euclidean_argument(x: Any, name: str) -> Any:
    """Return an argument of a Euclidean norm; of a complex one a real vector of the same norm."""
    if isinstance(x, ComplexForms):
        whole, weight = x, np.ones(())
        if is_hermitian(x):  # mirrored elements are one
            i, j = np.triu_indices(x.shape[0])
            whole, weight = x[i, j], np.where(i == j, 1.0, np.sqrt(2.0))
        kept = np.flatnonzero(~np.concatenate([part.ravel() for part in vanishing_parts(whole)]))
        if len(kept):
            vector = Expression.concatenated([whole.real * weight, whole.imag * weight])
            x = vector.taken(kept, (len(kept),), x.label)
    return curved_argument(x, name)


def complex_argument(x: Any, name: str) -> Any:
    """Return the argument of an absolute value: a complex one as it is, one without imaginary part as real.

    Raises
    ------
    TypeError, ValueError
        If it is no operand, or contains no variable.
    """
    x = as_complex(x, name) if holds_complex(x) else x
    if not isinstance(x, ComplexForms) or vanishing_parts(x)[1].all():
        return curved_argument(x, name)
    if x.real.is_constant and x.imag.is_constant:
        raise ValueError(f"{name} contains no variable; expected an expression with one")
    return x


def copies_of(F: Any) -> int:
    """Return how often each eigenvalue or singular value of a matrix occurs in its real form."""
    return 2 if isinstance(F, ComplexForms) else 1


def matrix_argument(F: Any, name: str) -> Any:
    """Return a matrix variable as it is, or an affine expression of shape ``(p, q)``.

    Of a complex matrix it is the real form ``[Re F, -Im F; Im F, Re F]``, with all values twice.
    """
    if isinstance(F, HermitianPSD):
        F = F.block
    if isinstance(F, PSD):
        return F
    if isinstance(F, ComplexForms) and len(F.shape) == 2:
        F = relabeled(bmat([[F.real, -F.imag], [F.imag, F.real]]), F.label)
    e = as_expression(F, name)
    if e.is_constant:
        raise ValueError(f"{name} contains no variable; expected an expression with one")
    if len(e.shape) != 2:
        raise ValueError(f"{name} has shape {e.shape}; expected a matrix")
    return e


def symmetric_argument(F: Any, name: str) -> Any:
    """Return a matrix variable as it is, or an affine expression that is a symmetric matrix."""
    e = matrix_argument(F, name)
    if isinstance(e, PSD):
        return e
    n = e.shape[0]
    if e.shape != (n, n):
        raise ValueError(f"{name} has shape {e.shape}; expected a square matrix")
    if n > 1 and not is_symmetric(e, at_zero=True):
        if isinstance(F, ComplexForms):
            raise ValueError(
                f"{name}, {F.label}, is not Hermitian; expected F with F[i, j] == conj(F[j, i]), as "
                "(F + F.H) / 2, or a variable that is declared with hermitian=True"
            )
        raise ValueError(
            f"{name}, {e.label}, is not symmetric; expected F with F[i, j] == F[j, i], as (F + F.T) / 2"
        )
    return e


# --- Objectives ------------------------------------------------------------------------------------------


class Minimize(Formula):
    """Minimize a convex objective.

    Parameters
    ----------
    expression : objective
        A scalar: affine, convex, or a sum that includes divergences with weights above 0.

    Raises
    ------
    TypeError, ValueError
        If the expression is not a scalar, or not convex.
    """

    sign = 1.0

    def __init__(self, expression: ExpressionLike) -> None:
        self.expression = as_objective(expression)
        if self.expression.terms:
            check_objective(self)

    @property
    def label(self) -> str:  # type: ignore[override]
        """The name of the expression in messages."""
        return self.expression.label if self.source_text is None else str(self.source_text)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label})"


class Maximize(Minimize):
    """Maximize a concave objective.

    Parameters
    ----------
    expression : objective
        A scalar: affine, concave, or a sum that includes divergences with weights below 0.

    Raises
    ------
    TypeError, ValueError
        If the expression is not a scalar, or not concave.
    """

    sign = -1.0


def as_objective(value: Any) -> CurvedExpression:
    """Return an expression or number as an objective, a scalar."""
    if isinstance(value, Minimize):
        raise TypeError("an objective inside an objective; expected an expression")
    e = as_curved(value)
    shape = e.affine.shape
    if math.prod(shape) != 1:
        raise ValueError(f"the objective {e.label} has shape {shape}; expected a scalar, such as its bo.sum")
    return e.summed() if shape else e
