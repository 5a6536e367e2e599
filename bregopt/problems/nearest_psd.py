"""The nearest positive semidefinite matrix under any constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from bregopt.arrays import symmetric_matrix, unlike_sizes
from bregopt.errors import DataWarning, warn_caller
from bregopt.io.matrices import opened
from bregopt.io.pandas_labels import Labels, labeled, labels_of
from bregopt.io.stacks import StackLike, is_stack
from bregopt.modeling.objectives import Minimize
from bregopt.modeling.problem import Declared, Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.arguments import PANEL, check_arguments, largest_change, nearness
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.routes.options import StackOptions
from bregopt.routes.solution import Solution

if TYPE_CHECKING:
    from bregopt.problems.solutions import Solutions

__all__ = ["moved_by_units", "nearest_psd", "warn_of_units"]

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
    solution = problem.solve(**own)
    if divergence == "frobenius":
        warn_of_units(target, moved_by_units(target, solution.X), labels)
    return labeled(solution, labels)


def moved_by_units(A: Any, X: Any) -> tuple[float, int, int]:
    """Return the largest change of an entry, in parts of the roots of both diagonal entries, and its place.

    It is zero where these roots do not differ as those of variables in unlike units do.
    """
    if isinstance(A, LowRank) or isinstance(X, LowRank):
        return 0.0, 0, 0
    variances = np.diag(np.asarray(A, dtype=np.float64))
    if (variances <= 0).any() or unlike_sizes(np.sqrt(variances)) is None:
        return 0.0, 0, 0
    return largest_change(np.asarray(A), X, np.sqrt(variances))


def warn_of_units(A: Any, moved: tuple[float, int, int], labels: Labels, where: str = "") -> None:
    """Warn where the distance in the Frobenius norm has moved entries of small variables by much."""
    size, i, j = moved
    if size > _MOVED:
        names = range(len(A)) if labels is None else labels
        found = unlike_sizes(np.sqrt(np.diag(np.asarray(A, dtype=np.float64))), labels)
        warn_caller(
            f"roots of the diagonal of A go {found}{where}, and the Frobenius norm hardly counts entries of "
            f"small ones: that of {names[i]} and {names[j]} moved by {size:.2g} times both roots. Of a "
            "covariance take bo.nearest_covariance, which keeps variances and measures correlations",
            DataWarning,
        )


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
