"""Linear matrix inequalities, ``F psd`` for an affine symmetric matrix ``F``.

Such an inequality is a psd matrix of its own, and rows that equate the entries on and above the diagonals.
Presolve reads matrices that rows define as the dual of their inequalities where that is smaller
(:mod:`bregopt.presolve.dual_form`). The inequality ``X >> 0`` of a variable ``X`` is its own cone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.modeling.affine import Affine
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.naming import Named
from bregopt.program import Program
from bregopt.program.program import divergence_of
from bregopt.program.rows import Entries
from bregopt.records import dataclass

__all__ = [
    "InequalityRows",
    "MatrixInequality",
    "matrix_inequality",
    "multiplier_of_cone",
    "rows_of_inequalities",
]

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

        An affine matrix that is symmetric at a random point is symmetric everywhere, with probability one.

        Raises
        ------
        ValueError
            If two mirrored entries differ.
        """
        rng = np.random.default_rng(0)
        values: dict[Any, Array] = dict(parameters)
        for X in self.body.operands("psd"):
            G = rng.standard_normal((X.n, X.n))
            values[X] = (G + G.T) / 2
        for u in self.body.operands("variables"):
            values[u] = rng.standard_normal(u.size)
        F = np.asarray(self.body.at(values))
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


@dataclass(frozen=True, eq=False)
class InequalityRows:
    """Matrices that are new, the rows that equate them, and the matrix of each inequality."""

    matrices: tuple[Any, ...]
    rows: tuple[Constraint, ...]
    of: tuple[Any, ...]


_NONE = InequalityRows((), (), ())


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


def rows_of_inequalities(inequalities: Sequence[MatrixInequality], new: Any) -> InequalityRows:
    """Return inequalities as matrices and rows.

    Parameters
    ----------
    inequalities : sequence of MatrixInequality
    new : function
        Returns a new psd variable of an order and a name.
    """
    if not inequalities:
        return _NONE
    matrices, rows, of = [], [], []
    for number, inequality in enumerate(inequalities):
        Z = inequality.own
        if Z is None:
            Z = new(inequality.n, name=f"slack {number} of {inequality.label}")
            matrices.append(Z)
            rows.append(_equated(inequality, Z))
        of.append(Z)
    return InequalityRows(tuple(matrices), tuple(rows), tuple(of))


def _is_zero(e: Affine) -> bool:
    return e.is_constant and not e.parameters and not e.constant.any()


def _equated(inequality: MatrixInequality, Z: Any) -> Constraint:
    """Return the rows ``F - Z = 0`` of the entries on and above the diagonal."""
    n = inequality.n
    i, j = np.triu_indices(n)
    m = len(i)
    upper = inequality.body.taken(i * n + j, (m,), inequality.label)
    bound = upper.constant_part().times(-1.0)
    body = upper.variable_part()
    own = Affine((m,), np.zeros(m), {Z: Entries(n, i, j, -np.ones(m))}, label=inequality.label)
    rows = Constraint(body.plus(own), bound, bound, "==")
    rows.source = inequality
    return rows


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
