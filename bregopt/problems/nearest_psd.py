"""The nearest positive semidefinite matrix under any constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from bregopt.arrays import symmetric_matrix, unlike_sizes
from bregopt.errors import DataWarning, warn_caller
from bregopt.io.matrices import Labels, StackLike, is_stack, labeled, labels_of, opened
from bregopt.modeling.convex.expression import Minimize
from bregopt.modeling.problem import Declared, Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.arguments import largest_change, nearness
from bregopt.program.rows.base import LowRank
from bregopt.routes.registry import PANEL, StackOptions, check_arguments
from bregopt.routes.solution import Solution

if TYPE_CHECKING:
    from bregopt.problems.solutions import Solutions

_MOVED = 0.1  # change of an entry, in parts of both standard deviations, that is much

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

    Warns
    -----
    DataWarning
        If roots of diagonal entries differ by a factor above 10, as standard deviations in unlike units do,
        and an entry moves by more than a tenth of both roots.

    Examples
    --------
    >>> import bregopt as bo
    >>> bo.nearest_psd([[1, 2], [2, 1]]).X.round(6).tolist()
    [[1.5, 1.5], [1.5, 1.5]]
    """
    A = opened(A, "A")
    check_arguments(nearest_psd, options, PANEL if is_stack(A) else ())
    declarations: Any = [constraints] if callable(constraints) else constraints
    several = isinstance(declarations, Sequence) and not isinstance(declarations, str)
    if not several or not all(map(callable, declarations)):
        raise TypeError(
            f"constraints is {constraints!r}; expected a function of the matrix variable that returns "
            "constraints, or a sequence of such functions"
        )
    if is_stack(A):
        from bregopt.problems.nearest_stacks import nearest_psds  # only those with stacks wait

        return nearest_psds(nearest_psd, A, declarations, divergence, options)
    labels = labels_of(A, "A")
    target = A if isinstance(A, LowRank) else symmetric_matrix(A, "A")
    X = PSD(target.shape[0], name="X")
    problem = Problem(
        Minimize(nearness(divergence, X, target, "A")), [declare(X) for declare in declarations]
    )
    own: Any = options  # without those of stacks, as was checked
    solution = problem.solve(**own)
    if divergence == "frobenius":
        warn_of_units([(target, solution.X, labels, "")])
    return labeled(solution, labels)


def warn_of_units(answers: Iterable[tuple[Any, Any, Labels, str]]) -> None:
    """Warn where the distance in the Frobenius norm has moved entries of variables in unlike units by much.

    Parameters
    ----------
    answers : iterable of tuple
        The given matrix, the answer or None, labels or None, and which matrix of a stack it is.
    """
    worst, message = _MOVED, ("", "")
    for A, X, labels, which in answers:
        variances = np.zeros(1) if isinstance(A, LowRank) else np.diag(np.asarray(A, dtype=np.float64))
        found = unlike_sizes(np.sqrt(np.maximum(variances, 0.0)), labels)
        if found is not None and (variances > 0).all() and not isinstance(X, LowRank):
            moved, i, j = largest_change(np.asarray(A), X, np.sqrt(variances))
            if moved > worst:
                pair = f"{i} and {j}" if labels is None else f"{labels[i]} and {labels[j]}"
                worst, message = moved, (f"{found}{which}", f"that of {pair} moved by {moved:.2g}")
    units, change = message
    if units:
        warn_caller(
            f"roots of the diagonal of A go {units}, and the Frobenius norm hardly counts entries of small "
            f"ones: {change} times both roots. Of a covariance take bo.nearest_covariance, which keeps "
            "variances and measures correlations",
            DataWarning,
        )
