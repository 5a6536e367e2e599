"""Optimal designs of experiments among candidates: D, A and E."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import EPS, symmetric_matrix
from bregopt.problems.logdet.design import Design
from bregopt.problems.logdet.design_task import design_task, solved_design
from bregopt.routes.base import Settings

__all__ = ["a_optimal", "d_optimal", "e_optimal"]

_TOL = 1e-8  # weights have about as many digits as the efficiency


def d_optimal(
    candidates: ArrayLike,
    lower: ArrayLike = 0.0,
    upper: ArrayLike | None = None,
    *,
    costs: ArrayLike | None = None,
    budget: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    tol: float = _TOL,
    time_limit: float | None = None,
) -> Design:
    """Return the weights ``w`` of candidates with the largest ``det(M0 + sum_i w_i M_i)``.

    Such a design has the smallest confidence ellipsoid for all parameters.

    Parameters
    ----------
    candidates : array_like or DataFrame of shape (m, n), or array_like of shape (m, n, n)
        The row of the model matrix for each possible experiment, with ``M_i = x_i x_i'``; or the information
        ``M_i`` of each, positive semidefinite.
    lower, upper : float or array_like of shape (m,)
        Bounds on the weights, whose sum is one. By default they are only nonnegative.
    costs : array_like of shape (m,) or (r, m), optional
    budget : float or array_like of shape (r,), optional
        ``costs @ w <= budget``.
    prior : array_like of shape (n, n), optional
        ``M0``, positive semidefinite: information from earlier runs or a Bayesian prior, in units of the
        information of all runs to come.
    tol : float
        Largest `gap` of an "optimal" answer, a part of the efficiency.
    time_limit : float, optional
        In seconds.

    Returns
    -------
    Design
        `weights` has the labels of a DataFrame's rows, `information` those of its columns.

    Raises
    ------
    TypeError, ValueError
        If the input is bad, no weights meet bounds and budgets, or the candidates do not determine all
        parameters.

    Warns
    -----
    ConvergenceWarning
        If the gap is above `tol`.

    References
    ----------
    Kiefer, Wolfowitz (1960), The equivalence of two extremum problems, Canadian J. Math. 12. Pukelsheim
    (1993), Optimal Design of Experiments.

    Examples
    --------
    >>> import numpy as np, bregopt as bo
    >>> x = np.linspace(-1, 1, 101)
    >>> design = bo.d_optimal(np.vander(x, 3))
    >>> x[design.support].tolist(), design.weights[design.support].round(4).tolist()
    ([-1.0, 0.0, 1.0], [0.3333, 0.3333, 0.3333])
    """
    task = design_task("D", candidates, lower, upper, costs, budget, prior)
    return solved_design(task, Settings(tol=tol, time_limit=time_limit))


def a_optimal(
    candidates: ArrayLike,
    lower: ArrayLike = 0.0,
    upper: ArrayLike | None = None,
    *,
    K: ArrayLike | None = None,
    costs: ArrayLike | None = None,
    budget: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    tol: float = _TOL,
    time_limit: float | None = None,
) -> Design:
    """Return the weights ``w`` of candidates with the smallest ``tr(K inv(M0 + sum_i w_i M_i))``.

    Such a design has the smallest mean variance of the parameters; or of predictions, where `K` is the mean
    of ``x x'`` over the region of interest (I-optimality).

    Parameters
    ----------
    K : array_like of shape (n, n), optional
        Positive definite; the identity by default.
    candidates, lower, upper, costs, budget, prior, tol, time_limit
        As for :func:`d_optimal`.

    Returns
    -------
    Design

    Raises
    ------
    TypeError, ValueError
        As for :func:`d_optimal`, or if `K` is not positive definite.

    Warns
    -----
    ConvergenceWarning
        If the gap is above `tol`.

    References
    ----------
    Pukelsheim (1993), Optimal Design of Experiments, chapter 6.
    """
    task = design_task("A", candidates, lower, upper, costs, budget, prior)
    n = task.candidates.n
    weights = np.eye(n) if K is None else symmetric_matrix(K, "K", n)
    least = float(np.linalg.eigvalsh(weights)[0])
    if least <= n * EPS * float(np.linalg.norm(weights)):
        raise ValueError(f"K has the eigenvalue {least:.3g}; expected a positive definite matrix")
    return solved_design(replace(task, K=weights), Settings(tol=tol, time_limit=time_limit))


def e_optimal(
    candidates: ArrayLike,
    lower: ArrayLike = 0.0,
    upper: ArrayLike | None = None,
    *,
    costs: ArrayLike | None = None,
    budget: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    tol: float = _TOL,
    time_limit: float | None = None,
) -> Design:
    """Return the weights ``w`` of candidates with the largest smallest eigenvalue of ``M0 + sum_i w_i M_i``.

    Such a design has the smallest variance of the combination of parameters that is known worst.

    Parameters
    ----------
    candidates, lower, upper, costs, budget, prior, tol, time_limit
        As for :func:`d_optimal`.

    Returns
    -------
    Design

    Raises
    ------
    TypeError, ValueError
        As for :func:`d_optimal`.

    Warns
    -----
    ConvergenceWarning
        If the gap is above `tol`.

    References
    ----------
    Pukelsheim, Studden (1993), E-optimal designs for polynomial regression, Annals of Statistics 21.
    """
    task = design_task("E", candidates, lower, upper, costs, budget, prior)
    return solved_design(task, Settings(tol=tol, time_limit=time_limit))
