"""Constraints with too many rows to write down: a function yields those that a point violates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import IntArray, Mask
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.expressions import Operand
from bregopt.modeling.naming import Named
from bregopt.program import Matrix

__all__ = ["CutRows", "cut_rows", "some_rows"]

# It takes the matrix of the answer, or a tuple of several, and returns constraints.
Separator = Callable[..., Constraint | Iterable[Constraint] | None]


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
        array = isinstance(found, str | bytes | np.ndarray | Operand) or sp.issparse(found)
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
