"""The nearest positive semidefinite matrix under any constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from bregopt.arrays import symmetric_matrix
from bregopt.io.matrices import opened
from bregopt.io.pandas_labels import labeled, labels_of
from bregopt.io.stacks import StackLike, is_stack
from bregopt.modeling.objectives import Minimize
from bregopt.modeling.problem import Declared, Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.arguments import PANEL, check_arguments, nearness
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.routes.options import StackOptions
from bregopt.routes.solution import Solution

if TYPE_CHECKING:
    from bregopt.problems.solutions import Solutions

__all__ = ["nearest_psd"]

Declare = Callable[[PSD], Declared | Sequence[Declared]]


def nearest_psd(
    A: StackLike,
    constraints: Declare | Sequence[Declare] = (),
    divergence: str = "frobenius",
    **options: Unpack[StackOptions],
) -> Solution | Solutions:
    """Return the positive semidefinite matrix nearest to `A` that meets the constraints.

    Parameters
    ----------
    A : array_like or DataFrame of shape (n, n), or LowRank; or a stack of these; or the path of a file
        Symmetric; positive definite or ``LowRank`` for LogDet and von Neumann. Stacks and files are those of
        :func:`nearest_correlation`.
    constraints : callable, or sequence of callables
        Each takes the matrix variable and returns a constraint or a list of them, for instance
        ``lambda X: [bo.diag(X) == 1, X[0, 1] >= 0]``.
    divergence : {"frobenius", "logdet", "von_neumann"}
    **options
        Options of :meth:`bregopt.Problem.solve`.

    Returns
    -------
    Solution, or Solutions of a stack
        ``X`` is a DataFrame if `A` is one.

    Raises
    ------
    TypeError, ValueError
        If the input is bad; the message names the argument. A bad matrix of a stack raises nothing: its
        status is "error".

    Examples
    --------
    >>> import bregopt as bo
    >>> bo.nearest_psd([[1, 2], [2, 1]]).X.round(6).tolist()
    [[1.5, 1.5], [1.5, 1.5]]
    """
    A = opened(A, "A")
    check_arguments(nearest_psd, options, PANEL if is_stack(A) else ())
    declarations = _declarations(constraints)
    if is_stack(A):
        from bregopt.problems.nearest_stacks import nearest_psds  # only those with stacks wait

        return nearest_psds(nearest_psd, A, declarations, divergence, options)
    labels = labels_of(A, "A")
    target = _target(A)
    X = PSD(target.shape[0], name="X")
    problem = Problem(
        Minimize(nearness(divergence, X, target, "A")), [declare(X) for declare in declarations]
    )
    own: Any = options  # without those of stacks, as was checked
    return labeled(problem.solve(**own), labels)


def _declarations(constraints: Any) -> Sequence[Callable[[PSD], Any]]:
    """Return functions that declare constraints, one function too."""
    given: Any = [constraints] if callable(constraints) else constraints
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(map(callable, given)):
        raise TypeError(
            f"constraints is {constraints!r}; expected a function of the matrix variable that returns "
            "constraints, or a sequence of such functions"
        )
    return given


def _target(A: Any) -> Matrix:
    return A if isinstance(A, LowRank) else symmetric_matrix(A, "A")
