"""Constraints: affine bodies between two bounds, vectors in cones, psd matrices, and generated rows.

A linear matrix inequality, ``F psd`` for an affine symmetric ``F``, is a psd matrix of its own, and rows that
equate the entries on and above the diagonals. Presolve reads matrices that rows define as the dual of their
inequalities where that is smaller (:mod:`bregopt.presolve.dual_form`). The inequality ``X >> 0`` of a matrix
variable is its own cone.

Of constraints with too many rows to write down, a function yields those that a point violates.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.modeling.affine import Affine, Named, random_values
from bregopt.program import Matrix, Program
from bregopt.program.program import divergence_of
from bregopt.program.rows import Entries
from bregopt.records import dataclass

# It takes the matrix of the answer, or a tuple of several, and returns constraints.
Separator = Callable[..., "Constraint | Iterable[Constraint] | None"]


@dataclass(frozen=True, eq=False)
class SoftPenalty:
    """The weight and the kind of a soft constraint's penalty."""

    gamma: Any  # array of one weight per row, or an Affine of parameters
    kind: str | None  # "divergence", "hinge", "square" or "log"; None for the default of the objective


class Constraint(Named):
    """``lower <= body <= upper``, elementwise; built by comparisons, :func:`between` and :func:`soft`.

    Attributes
    ----------
    body : Expression
        The part with variables.
    lower, upper : Expression or None
        Constants and parameters, of the shape of the body; one object for an equality.
    name : str or None
        The name given by :meth:`named`.
    dual_value : float or array of that shape, or None
        Set by :meth:`bregopt.Problem.solve`, with CVXPY's signs. For inequalities it is not negative. For
        ``left == right`` it is the ``v`` of the Lagrangian ``f + v (left - right)``, for two-sided
        constraints that of ``f + v (body - bound)``. If the problem is infeasible it is, as in CVXPY, this
        constraint's part of a Farkas vector: the multipliers of a combination of the rows that no
        ``X psd`` meets. None if the problem is unbounded.
    """

    may_be_soft = True

    def __init__(
        self,
        body: Affine,
        lower: Affine | None,
        upper: Affine | None,
        sense: str,
        penalty: SoftPenalty | None = None,
        mirrored: bool = False,
    ) -> None:
        self.body, self.lower, self.upper, self.sense = body, lower, upper, sense
        self.penalty = penalty
        self.mirrored = mirrored  # whether the user wrote the bound on the left
        self.dual_value: Array | float | None = None
        self.convex_part: Any = None  # a ConvexPart that is added to the body, below an upper bound
        self.is_domain = False  # whether it is implied by an atom, so that nobody asks for its dual
        self.axes: tuple[Any, ...] | None = None  # labels of the rows, one pandas index for each axis

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the body."""
        return self.body.shape

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.body.size

    @property
    def label(self) -> str:  # type: ignore[override]
        """The constraint as text."""
        if self.source_text is not None:
            return str(self.source_text)
        if self.penalty is not None and self.penalty.kind == "log":
            bound = _text(self.lower)
            shift = f" + {bound[1:]}" if bound.startswith("-") else f" - {bound}"
            return f"log({self.body.label}{'' if bound in ('0', '-0') else shift})"
        if self.sense == "between":
            text = f"{_text(self.lower)} <= {self.body.label} <= {_text(self.upper)}"
        else:
            text = f"{self.body.label} {self.sense} {_text(self.lower if self.upper is None else self.upper)}"
        return text if self.penalty is None else f"soft({text})"

    def dual_from_multiplier(self, y: Array) -> Array | float:
        """Return the dual in CVXPY's sign from the multipliers of the rows (positive at lower bounds)."""
        kept = self.sense == ">=" or (self.sense == "==" and self.mirrored)
        signed, shape = (y if kept else -y) + 0.0, self.body.shape  # no negative zeros
        return signed.reshape(shape) if shape else float(signed[0])

    def __repr__(self) -> str:
        return f"Constraint({self.title}, rows={self.size})"


def compare(left: Affine, right: Affine, sense: str) -> Constraint:
    """Return the constraint ``left sense right``; a side without variables becomes the bound."""
    mirrored, separate = left.is_constant, right.is_constant
    if mirrored and separate:
        raise ValueError(
            f"{left.label} {sense} {right.label} has no variable; expected one on at least one side"
        )
    if mirrored:
        left, right = right, left
        sense = {"<=": ">=", ">=": "<=", "==": "=="}[sense]
    if (mirrored or separate) and not left.parameters and not np.logical_or.reduce(left.constant):
        body, bound = left.broadcast_with(right)
    else:
        difference = left.plus(right.times(-1.0))
        body, bound = difference.variable_part(), difference.constant_part().times(-1.0)
    lower = None if sense == "<=" else bound
    upper = None if sense == ">=" else bound
    return Constraint(body, lower, upper, sense, mirrored=mirrored)


def _text(bound: Affine | None) -> str:
    if bound is None:
        return ""
    if bound.parameters:
        return "+".join(p.name for p in bound.parameters)
    first = bound.constant[0]
    return f"{first:g}" if (bound.constant == first).all() else "b"


class SecondOrderConstraint(Named):
    """Vectors ``(t, v)`` of affine forms with ``||v|| <= t``.

    Attributes
    ----------
    body : Expression
        The vectors one after the other, each with its ``t`` first.
    dimensions : int array
        The length of each vector.
    dual_value : float or None
        Set by :meth:`bregopt.Problem.solve`: the decrease of the optimum for a unit more of the bound that
        the user wrote. If the problem is infeasible it is this constraint's part of a Farkas vector.
    multipliers : array of the shape of the body, or None
        Of each vector: ``z`` in the same cone, with ``z'(t, v) = 0`` at an optimum.
    """

    def __init__(self, body: Affine, dimensions: IntArray, label: str, of_bound: Array) -> None:
        self.body, self.dimensions, self.label = body, dimensions, label
        self._of_bound = of_bound  # d(body) / d(bound)
        self.dual_value: float | None = None
        self.multipliers: Array | None = None

    @property
    def size(self) -> int:
        """The number of elements of all vectors."""
        return self.body.size

    def set_multipliers(self, z: Array | None) -> None:
        """Set the multipliers of the vectors and of the bound."""
        self.multipliers = z
        self.dual_value = None if z is None else float(self._of_bound @ z)

    def __repr__(self) -> str:
        return f"SecondOrderConstraint({self.title}, dimension={int(self.dimensions.sum())})"


_ROUND_OFF = 1e-10  # asymmetry up to this fraction of the largest entry is that of double precision


class MatrixInequality(Named):
    """``left >> right``: the difference of two affine symmetric matrices is positive semidefinite.

    Attributes
    ----------
    body : Expression
        ``left - right``, of shape ``(n, n)``.
    dual_value : array of shape (n, n), or None
        Set by :meth:`bregopt.Problem.solve`, with CVXPY's sign: the symmetric psd ``S`` of the Lagrangian
        ``f - <S, left - right>``. If the problem is infeasible it is this constraint's part of a Farkas
        vector. None if the problem is unbounded.
    """

    def __init__(self, body: Affine, label: str) -> None:
        self.body, self.label = body, label
        self.dual_value: Array | None = None

    @property
    def n(self) -> int:
        """The order of the matrix."""
        return self.body.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape ``(n, n)``."""
        return self.body.shape

    @property
    def size(self) -> int:
        """The number of entries on and above the diagonal."""
        return self.n * (self.n + 1) // 2

    @property
    def own(self) -> Any:
        """The variable that the body is as a whole, None for other bodies."""
        e = self.body
        if len(e.psd) != 1 or e.variables or e.parameters or e.products or e.constant.any():
            return None
        ((X, rows),) = e.psd.items()
        if not isinstance(rows, Entries) or rows.n != self.n or not (rows.weight == 1).all():
            return None
        i, j = np.indices(self.shape).reshape(2, -1)
        return X if np.array_equal(rows.i, i) and np.array_equal(rows.j, j) else None

    def check_symmetric(self, parameters: Mapping[Hashable, Array]) -> None:
        """Refuse a body that is not symmetric at given values of the parameters.

        Raises
        ------
        ValueError
            If two mirrored entries differ.
        """
        F = np.asarray(self.body.at({**random_values(self.body), **parameters}))
        skew = np.abs(F - F.T)
        if skew.max() <= _ROUND_OFF * np.abs(F).max():
            return
        i, j = (int(k[0]) for k in np.nonzero(skew > _ROUND_OFF * np.abs(F).max()))
        raise ValueError(
            f"{self.label}: the difference E of the two sides is not symmetric: its entries [{i}, {j}] and "
            f"[{j}, {i}] are different expressions; expected a symmetric matrix. If only the symmetric part "
            "is to be psd, as CVXPY reads it, write (E + E.T) / 2 >> 0; a variable may be declared with "
            "symmetric=True"
        )

    def __repr__(self) -> str:
        return f"MatrixInequality({self.title}, order={self.n})"


def matrix_inequality(left: Affine, right: Affine, label: str) -> MatrixInequality:
    """Return the constraint that ``left - right`` is positive semidefinite.

    Raises
    ------
    ValueError
        If the difference is not a square symmetric matrix, holds no variable, or a scalar other than zero
        stands for a matrix.
    """
    for side in (left, right):
        if side.shape == () and not _is_zero(side):
            name = side.label if side.parameters or not side.is_constant else f"{side.constant[0]:g}"
            raise ValueError(
                f"{label}: {name} is a scalar; expected a square matrix or 0. For a multiple of the identity "
                "write t * np.eye(n); scalars are compared by >= and <="
            )
    body = left if _is_zero(right) else left.plus(right.times(-1.0))
    body = body.broadcast_to(np.broadcast_shapes(left.shape, right.shape))
    if len(body.shape) != 2 or body.shape[0] != body.shape[1]:
        raise ValueError(f"{label}: the matrix has shape {body.shape}; expected a square matrix")
    if body.is_constant:
        raise ValueError(f"{label} has no variable; expected one on at least one side")
    inequality = MatrixInequality(body, label)
    inequality.check_symmetric({p: np.zeros(p.shape) for p in body.operands("parameters")})
    return inequality


def _is_zero(e: Affine) -> bool:
    return e.is_constant and not e.parameters and not e.constant.any()


def multiplier_of_cone(program: Program, b: int, X: Any, y: Array, S: Array | None) -> Array:
    """Return ``C + mu grad D(X) - A*(y)`` of a matrix: the multiplier of ``X psd``.

    It is zero for essentially smooth divergences, whose optimum is in the interior of the cone. For a Farkas
    vector ``y`` the objective is left out.

    Parameters
    ----------
    program : Program
    b : int
        The number of the block.
    X : array or None
        The value of the matrix; None for a Farkas vector.
    y : array of shape (m,)
    S : array or None
        The multiplier that a route found itself.
    """
    block = program.blocks[b]
    if X is None:
        return -program.A.adjoint(y, b)
    if S is not None:
        return np.asarray(S)
    if block.nearness is None:
        return block.C - program.A.adjoint(y, b)
    if block.nearness.kind.essentially_smooth:
        return np.zeros((block.n, block.n))
    gradient = divergence_of(block.nearness).gradient(np.asarray(X))
    multiplier: Array = block.C + block.nearness.mu * gradient - program.A.adjoint(y, b)
    return multiplier


# --- Generated rows -----------------------------------------------------------------------------------------


class CutRows(Named):
    """Rows that are generated while the problem is solved; built by :func:`cut_rows`.

    Attributes
    ----------
    separate : callable
        The function that yields violated rows.
    constraints : tuple of Constraint
        The rows of the last solve; the others that the function knows hold without them.
    name : str or None
        The name given by :meth:`named`.
    dual_value : tuple of float or array
        The duals of `constraints`, as :attr:`bregopt.Constraint.dual_value`.
    """

    axes = None

    def __init__(self, separate: Separator) -> None:
        self.separate = separate
        self.constraints: tuple[Constraint, ...] = ()

    @property
    def label(self) -> str:  # type: ignore[override]
        """The constraint as text."""
        return f"cut_rows({getattr(self.separate, '__name__', type(self.separate).__name__)})"

    @property
    def size(self) -> int:
        """The number of rows of the last solve."""
        return sum(c.size for c in self.constraints)

    @property
    def dual_value(self) -> tuple[Any, ...] | None:
        """The duals of the rows of the last solve, None without any."""
        values = tuple(c.dual_value for c in self.constraints)
        return None if any(value is None for value in values) else values

    def violated(self, X: Matrix | tuple[Matrix, ...]) -> tuple[Constraint, ...]:
        """Return the constraints that the function yields at a point.

        Raises
        ------
        TypeError
            If it yields anything but hard constraints with affine rows.
        """
        return tuple(self._checked(self.separate(X)))

    def _checked(self, found: Any) -> Iterable[Constraint]:
        if found is None:
            return
        if isinstance(found, Constraint):
            if found.penalty is not None:
                raise TypeError(f"{self.title} yields {found.title}; expected hard rows, not soft ones")
            yield found
            return
        array = isinstance(found, str | bytes) or hasattr(found, "shape")
        if array or not isinstance(found, Iterable):
            raise TypeError(
                f"{self.title} yields {found!r}; expected comparisons of affine expressions, a list of "
                "those, or None where no row is violated"
            )
        for c in found:
            if c is None:
                raise TypeError(f"{self.title} yields None in a list; expected comparisons of expressions")
            yield from self._checked(c)

    def __repr__(self) -> str:
        return f"CutRows({self.title}, rows={self.size})"


def cut_rows(separate: Separator) -> CutRows:
    """Return a constraint whose rows a function yields, as far as they are needed.

    A solve then goes in rounds. Each one solves the problem with the rows so far, from the last answer, and
    passes its answer to the function. Rows that the function yields are added; rows that no longer matter
    are dropped. The rounds end when the answer meets all rows that the function yields, to the tolerance of
    the solve. The bound of each round is a bound of the whole problem.

    Parameters
    ----------
    separate : callable
        ``separate(X)`` takes the matrix of the answer (a tuple of several) and returns constraints that it
        violates, such as ``X_variable[i, j] >= 0`` with index arrays, or a list of those, or None. `value` of
        the variables is set, too. The rows must hold for all solutions that are wanted, and must have the
        variables of the problem only. Rows that are not violated are left out.

    Returns
    -------
    CutRows
        Its `constraints` are the rows of the last solve, with their duals.

    Raises
    ------
    TypeError
        If `separate` is not callable.

    Examples
    --------
    >>> import numpy as np
    >>> import bregopt as bo
    >>> A = np.array([[2.0, -1, 1], [-1, 2, 1], [1, 1, 2]])
    >>> X = bo.PSD(3)
    >>> def below_zero(value):
    ...     i, j = np.nonzero(np.triu(value < 0, 1))
    ...     return X[i, j] >= 0 if len(i) else None
    >>> prob = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.cut_rows(below_zero)])
    >>> round(prob.solve().value, 4)
    2.0
    """
    if not callable(separate):
        raise TypeError(f"separate of cut_rows is {separate!r}; expected a function of the matrix")
    return CutRows(separate)


def some_rows(c: Constraint, kept: Mask | IntArray) -> Constraint:
    """Return a constraint with some of the rows of another one, in one dimension unless all are kept."""
    rows = np.arange(c.size)[kept]
    if len(rows) == c.size:
        return c
    shape = (len(rows),)
    lower, upper = (None if end is None else end.taken(rows, shape, end.label) for end in (c.lower, c.upper))
    part = Constraint(c.body.taken(rows, shape, c.body.label), lower, upper, c.sense, mirrored=c.mirrored)
    part.name = c.name
    if c.axes is not None and len(c.axes) == 1:
        part.axes = (c.axes[0][rows],)
    return part
