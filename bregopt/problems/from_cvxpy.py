"""A CVXPY problem, as it was written, in our modeling language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bregopt.errors import import_whole
from bregopt.modeling.problem import Problem

if TYPE_CHECKING:
    import cvxpy

__all__ = ["from_cvxpy"]


def from_cvxpy(problem: cvxpy.Problem) -> Problem:
    """Return a CVXPY problem as one of ours, read as it was written: nothing is canonicalized.

    Parameters
    ----------
    problem : cvxpy.Problem
        Parameters that are added to rows become ours, with their current values; other parameters are
        replaced by their values. Constraints keep their order. A psd constraint on anything but a variable
        becomes an equation with a psd matrix.

    Returns
    -------
    Problem
        Its variables have the names of CVXPY's; equal names are followed by ``#`` and the variable's id.

    Raises
    ------
    TypeError
        If `problem` is no ``cvxpy.Problem``.
    UnsupportedProblemError
        If our modeling language cannot express a part of the problem; the message names it.
    ValueError
        If a parameter has no value, or the problem does not fit in memory.
    """
    cp = import_whole("cvxpy")

    from bregopt.cvxpy.problems.lower import lower

    if not isinstance(problem, cp.Problem):
        raise TypeError(f"problem is {type(problem).__name__}; expected a cvxpy.Problem")
    return lower(problem).problem
