"""A CVXPY problem, as it was written, in our language."""

from __future__ import annotations

from typing import Any

from bregopt.errors import import_whole
from bregopt.modeling.problem import Problem

__all__ = ["from_cvxpy"]


def from_cvxpy(problem: Any) -> Problem:
    """Return a CVXPY problem as one of ours, read as it was written: nothing is canonicalized.

    Parameters
    ----------
    problem : cvxpy.Problem
        Parameters that are added to rows become ours, with their current values; of others these are
        written in. Constraints come in the same order, psd constraints of anything but a variable as
        equations with a psd matrix.

    Returns
    -------
    Problem
        Its variables have the names of CVXPY's; of those with one name, the name and ``#`` and the number.

    Raises
    ------
    TypeError
        `problem` is no ``cvxpy.Problem``.
    UnsupportedProblemError
        Something in the problem cannot be said in our language; the message says what.
    ValueError
        A parameter has no value.
    """
    cp = import_whole("cvxpy")

    from bregopt.cvxpy.problems.lower import lower

    if not isinstance(problem, cp.Problem):
        raise TypeError(f"problem is {type(problem).__name__}; expected a cvxpy.Problem")
    return lower(problem).problem
