"""Optimal designs of experiments among candidates, D, A and E, and the proof of their efficiency."""

from __future__ import annotations

import warnings
from math import log
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import (
    EPS,
    LARGEST_COLUMN_SPREAD,
    Array,
    ArrayOrFrame,
    ArrayOrSeries,
    IntArray,
    check_columns,
    finite_array,
    positive_integer,
    scattered,
    symmetric_matrix,
    symmetrized,
    unlike_sizes,
)
from bregopt.clock import threads_for
from bregopt.display import Axes
from bregopt.errors import ConvergenceWarning, DataWarning, warn_caller
from bregopt.io.matrices import framed, is_pandas
from bregopt.modeling.atoms import inner, quad_form, trace
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.convex.expression import Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Variable
from bregopt.problems.logdet.answer import ProvenAnswer, draw_design, verdict
from bregopt.problems.logdet.candidates import (
    INFORMATION_ROUND_OFF,
    Candidates,
    WeightBounds,
    congruent,
    criterion_value,
    efficiency,
    root_inside,
    weight_bounds,
)
from bregopt.problems.logdet.exact_designs import ExactDesign, apportioned, exact_design
from bregopt.problems.logdet.interior_point import Model, optimal_weights
from bregopt.records import dataclass, replace
from bregopt.routes.base import Seed, Settings

if TYPE_CHECKING:
    import pandas as pd

_TOL = 1e-8  # weights have about as many digits as the efficiency
_FINE = 1e-9  # largest tolerance of the program of E: its multipliers are less accurate than its value


@dataclass(frozen=True, eq=False, repr=False)
class Design(ProvenAnswer):
    """Weights of candidates with the information matrix ``M = M0 + sum_i w_i M_i``.

    Attributes
    ----------
    criterion : str
        "D", "A" or "E".
    weights : array or Series of shape (m,)
        The share of the runs that each candidate takes; their sum is one.
    support : int array or Index
        The candidates with weight.
    information : array or DataFrame of shape (n, n)
        ``M``.
    value, bound : float
        ``log det M``, ``tr(K inv(M))`` or the smallest eigenvalue, and the proven bound on that of every
        allowed design.
    efficiency : float
        Proven: the design needs no more than ``1 / efficiency`` times the runs of the best one.
    gap : float
        ``1 - efficiency``.
    sensitivity : array or Series of shape (m,)
        ``<M_i, S>`` with ``S`` of ``inv(M)``, ``inv(M) K inv(M)``, or a convex combination of the projections
        on eigenvectors of the smallest eigenvalue. Its weighted mean is `level`.
    level : float
        ``<M - M0, S>``. By the equivalence theorem of Kiefer and Wolfowitz (1960) an optimal design without
        bounds and budgets has no sensitivity above it.
    """

    title: ClassVar[str] = "design"

    criterion: str
    weights: ArrayOrSeries
    support: IntArray | pd.Index[Any]
    information: ArrayOrFrame
    value: float
    bound: float
    efficiency: float
    sensitivity: ArrayOrSeries
    level: float
    _candidates: Any = None
    _prior: Any = None
    _K: Any = None
    _bounds: Any = None

    def rounded(self, runs: int) -> IntArray | pd.Series[int]:
        """Return how many of `runs` experiments each candidate gets, by efficient apportionment.

        The counts sum to `runs`, and each candidate of the support has one at least. Bounds and budgets are
        those of weights, which counts meet only roughly.

        Parameters
        ----------
        runs : int
            At least the number of candidates in the support.

        Returns
        -------
        int array or Series of shape (m,)

        References
        ----------
        Pukelsheim, Rieder (1992), Efficient rounding of approximate designs, Biometrika 79.
        """
        counts = apportioned(np.asarray(self.weights), positive_integer(runs, "runs"))
        return framed(counts, getattr(self.weights, "index", None))

    def exact(self, runs: int, *, starts: int = 5, seed: Seed = 0) -> ExactDesign:
        """Return numbers of runs that no exchange of one run for another improves, with a proven efficiency.

        It begins with :meth:`rounded`, or with other draws from the weights, and exchanges single runs
        (Fedorov 1972) as long as the criterion improves. Bounds and budgets are those of the shares.

        Parameters
        ----------
        runs : int
            The number of all runs.
        starts : int
            Number of beginnings; the best end counts.
        seed : int, at least 0, numpy.random.Generator or SeedSequence
            Of the draws.

        Returns
        -------
        ExactDesign

        Raises
        ------
        TypeError, ValueError
            If the input is bad, the runs do not determine all parameters, or none within bounds and budgets
            were found.

        References
        ----------
        Fedorov (1972), Theory of Optimal Experiments, §3.2; Atkinson, Donev, Tobias (2007), Optimum
        Experimental Designs, with SAS, chapter 12.
        """
        found = exact_design(
            self.criterion,
            self._candidates,
            self._bounds,
            np.asarray(self.weights),
            positive_integer(runs, "runs"),
            self._prior,
            self._K,
            self.bound,
            positive_integer(starts, "starts"),
            np.random.default_rng(Settings(seed=seed).seed),
        )
        rows, columns = getattr(self.weights, "index", None), getattr(self.information, "columns", None)
        information = framed(found.information, columns, columns)
        return replace(found, counts=framed(found.counts, rows), information=information)

    def efficiency_of(self, weights: ArrayLike) -> float:
        """Return a proven lower bound on the efficiency of other weights, or of counts of runs.

        Parameters
        ----------
        weights : array_like of shape (m,)
            None below 0, with any positive sum.
        """
        w = finite_array(weights, "weights", ndim=1)
        if w.shape != (len(self._candidates),) or w.min() < 0 or not w.any():
            raise ValueError(
                f"weights has shape {w.shape}; expected {(len(self._candidates),)}, none below 0, not all 0"
            )
        M = self._candidates.information(w / w.sum())
        value = criterion_value(self.criterion, M if self._prior is None else M + self._prior, self._K)
        return min(efficiency(self.criterion, value, self.bound, len(M)), 1.0)

    def plot(self, places: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
        """Draw the sensitivities of the candidates, and their weights.

        Parameters
        ----------
        places : array_like of shape (m,) or (m, 2), optional
            The settings of the factors. By default the columns of the candidates that are not constant, if
            there are one or two of them. Otherwise the candidates are drawn by their sensitivity, those with
            weight under their labels or settings.
        ax : matplotlib axes, optional
            The default is a new figure.

        Returns
        -------
        matplotlib axes
        """
        X = self._candidates.X if self._candidates.are_rows else None
        names = getattr(self.weights, "index", None), getattr(self.information, "columns", None)
        ax = draw_design(
            np.asarray(self.sensitivity), np.asarray(self.weights), self.level, X, places, names, ax
        )
        title = f"{self.criterion}-optimal: {len(self.support)} of {len(self.weights)} candidates"
        ax.set_title(title, fontsize=10)
        return ax

    def _facts(self) -> dict[str, str]:
        names = {"D": "log det M", "A": "tr K inv(M)", "E": "smallest eigenvalue of M"}
        return {
            "value": f"{self.value:.8g}   bound {self.bound:.8g}   {names[self.criterion]}",
            "efficiency": f"at least 1 - {self.gap:.1e}, proven",
            "support": f"{len(self.support)} of {len(self.weights)} candidates",
            "effort": f"{self.iterations} steps",
        }


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
    task = _design_task("D", candidates, lower, upper, costs, budget, prior)
    return _solved_design(task, Settings(tol=tol, time_limit=time_limit))


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
    DataWarning
        If the columns of rows have sizes that differ by a factor above 1,000, and no `K` is given.

    References
    ----------
    Pukelsheim (1993), Optimal Design of Experiments, chapter 6.
    """
    task = _design_task("A", candidates, lower, upper, costs, budget, prior)
    n = task.candidates.n
    if K is None:
        _warn_of_units(task, "sums the variances", "pass K, such as np.diag(size**2) with their sizes")
    weights = np.eye(n) if K is None else symmetric_matrix(K, "K", n)
    least = float(np.linalg.eigvalsh(weights)[0])
    if least <= n * EPS * float(np.linalg.norm(weights)):
        raise ValueError(f"K has the eigenvalue {least:.3g}; expected a positive definite matrix")
    return _solved_design(replace(task, K=weights), Settings(tol=tol, time_limit=time_limit))


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
    DataWarning
        If the columns of rows have sizes that differ by a factor above 1,000.

    References
    ----------
    Pukelsheim, Studden (1993), E-optimal designs for polynomial regression, Annals of Statistics 21.
    """
    task = _design_task("E", candidates, lower, upper, costs, budget, prior)
    _warn_of_units(task, "compares the variances", "divide the columns by their sizes")
    return _solved_design(task, Settings(tol=tol, time_limit=time_limit))


@dataclass(frozen=True, eq=False)
class _DesignTask:
    """What the arguments of a design say; `given` are the candidates of the user, for their labels."""

    criterion: str
    given: Any
    candidates: Candidates
    bounds: WeightBounds
    prior: Array | None
    K: Array | None = None


@dataclass(frozen=True, eq=False)
class _Found:
    """Weights, sensitivities in the user's units, and the bound on the efficiency."""

    u: Array
    sensitivity: Array
    efficiency: float
    steps: int


def _design_task(
    criterion: str, given: Any, lower: Any, upper: Any, costs: Any, budget: Any, prior: Any
) -> _DesignTask:
    """Check the arguments that all criteria have."""
    X = finite_array(given, "candidates", ndim=(2, 3))
    if 0 in X.shape or (X.ndim == 3 and X.shape[1] != X.shape[2]):
        raise ValueError(
            f"candidates has shape {X.shape}; expected (m, n), or (m, n, n) with square matrices"
        )
    check_columns(X, "candidates")
    n = X.shape[1]
    if X.ndim == 3:
        X = np.array([symmetrized(M, f"candidates[{k}]") for k, M in enumerate(X)])
        least = np.linalg.eigvalsh(X)[:, 0] + n * INFORMATION_ROUND_OFF * np.linalg.norm(X, axis=(1, 2))
        if least.min() < 0:
            k = int(least.argmin())
            raise ValueError(f"candidates[{k}] has the eigenvalue {least[k]:.3g}; expected no negative one")
    M0 = None if prior is None else symmetric_matrix(prior, "prior", n)
    if M0 is not None and np.linalg.eigvalsh(M0)[0] < -n * INFORMATION_ROUND_OFF * np.linalg.norm(M0):
        raise ValueError(
            f"prior has the eigenvalue {np.linalg.eigvalsh(M0)[0]:.3g}; expected no negative one"
        )
    return _DesignTask(
        criterion, given, Candidates(X), weight_bounds(len(X), lower, upper, costs, budget), M0
    )


def _warn_of_units(task: _DesignTask, does: str, remedy: str) -> None:
    """Warn where columns of rows have sizes that make a criterion one of a few parameters; D has no units."""
    if not task.candidates.are_rows:
        return
    size = np.sqrt(np.mean(task.candidates.X**2, axis=0))
    found = unlike_sizes(size, getattr(task.given, "columns", None), LARGEST_COLUMN_SPREAD)
    if found is not None:
        warn_caller(
            f"columns of candidates have sizes {found}: {task.criterion}-optimality {does} of parameters in "
            f"unlike units. To compare like ones {remedy}, or take bo.d_optimal",
            DataWarning,
        )


def _solved_design(task: _DesignTask, settings: Settings) -> Design:
    """Return the design with its certificate."""
    with clock.limited(settings.time_limit), threads_for(task.candidates.n):
        L = root_inside(task.candidates, task.bounds, task.prior)
        found = _e_found(task, settings) if task.criterion == "E" else _smooth(task, L, settings.tol)
        M = task.candidates.information(found.u)
        if task.prior is not None:
            M += task.prior
        value = criterion_value(task.criterion, M, task.K)
        fields = verdict(1 - found.efficiency, settings.tol, f"{task.criterion.lower()}_optimal")
    support, rows, columns = np.flatnonzero(found.u), None, None
    if is_pandas(task.given, "DataFrame"):
        rows, columns = task.given.index, task.given.columns
    bound = 0.0 if task.criterion == "A" else np.inf  # none is known where the efficiency is zero
    if found.efficiency and task.criterion == "D":
        bound = value - len(M) * log(found.efficiency)
    elif found.efficiency:
        bound = value * found.efficiency if task.criterion == "A" else value / found.efficiency
    return Design(
        **fields,
        weights=framed(found.u, rows),
        support=support if rows is None else rows[support],
        information=framed(M, columns, columns),
        sensitivity=framed(found.sensitivity, rows),
        iterations=found.steps,
        criterion=task.criterion,
        value=value,
        bound=bound,
        efficiency=found.efficiency,
        level=float(found.u @ found.sensitivity),
        _candidates=task.candidates,
        _prior=task.prior,
        _K=task.K,
        _bounds=task.bounds,
    )


def _smooth(task: _DesignTask, L: Array, tol: float) -> _Found:
    """Return D- or A-optimal weights, found in coordinates in which the information is near the identity."""
    white = task.candidates.whitened(L)
    prior = None if task.prior is None else congruent(L, task.prior)
    K, unit = None, 1.0
    if task.K is not None:
        K = congruent(L, task.K)
        unit = float(K.trace()) / len(K)
        K = K / unit
    free = np.flatnonzero(task.bounds.free)
    rest = task.bounds.fixed()
    base = white.information(rest) if rest.any() else None
    fixed = base if prior is None else prior if base is None else prior + base
    u, prices, steps = rest, np.zeros(len(task.bounds.budget)), 0
    if len(free):
        model = Model(white[free], task.bounds.among(free), K, fixed)
        found = optimal_weights(model, model.bounds.inside(), tol / 2)
        u = task.bounds.allowed(rest + scattered(free, found.u, len(rest)))
        prices, steps = found.prices, found.steps
    whole = Model(white, task.bounds, K, prior)
    local = whole.local(whole.information(u))
    assert local is not None
    return _Found(u, local.g * unit, whole.efficiency(local, prices), steps)


def _e_found(task: _DesignTask, settings: Settings) -> _Found:
    """Return E-optimal weights."""
    n, bounds = task.candidates.n, task.bounds
    unit = float(task.candidates.traces().max()) or 1.0
    X = task.candidates.X / (np.sqrt(unit) if task.candidates.are_rows else unit)
    scaled = Candidates(X)
    prior = np.zeros((n, n)) if task.prior is None else task.prior / unit
    free = np.flatnonzero(bounds.free)
    rest = bounds.fixed()
    u, Z, prices, steps = rest, np.zeros((n, n)), np.zeros(len(bounds.budget)), 0
    if len(free):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the certificate of the weights says it
            more, Z, prices, steps = _e_weights(
                scaled[free], bounds.among(free), prior + scaled.information(rest), settings.tol / 4
            )
        u = bounds.allowed(rest + scattered(free, more, len(rest)))
        least = float(np.linalg.eigvalsh(prior + scaled.information(u))[0])
        u = bounds.allowed(bounds.settled(u, scaled.inner(Z) / Z.trace(), prices, least)) if least > 0 else u
    M = prior + scaled.information(u)
    if not Z.any():  # no weight is free: the eigenvector proves the eigenvalue
        vector = np.linalg.eigh(M)[1][:, :1]
        Z = vector @ vector.T
    Z = Z / Z.trace()
    g = scaled.inner(Z)
    most = float(np.vdot(prior, Z)) + bounds.greatest(g, prices)
    least = float(np.linalg.eigvalsh(M)[0]) - n * EPS * float(np.linalg.norm(M))
    return _Found(u, g * unit, min(max(least, 0.0) / most, 1.0), steps)


def _e_weights(
    candidates: Candidates, bounds: WeightBounds, prior: Array, tol: float
) -> tuple[Array, Array, Array, int]:
    """Return weights of a large smallest eigenvalue, and what bounds it for all weights.

    The smallest eigenvalue of ``M(u)`` is at most ``<M(u), Z>`` for each psd ``Z`` of trace one. The program
    minimizes the largest such value of the polytope, which is ``t`` and the cost of bounds and budgets. The
    weights above their lower bounds are the multipliers of its rows ``<M_i, Z> <= t + p_i + (C'y)_i``. The
    matrices have traces of about one. Weights, ``Z``, the prices ``y`` of the budgets and the number of steps
    are returned.
    """
    given = prior + candidates.information(bounds.lower)
    left = bounds.total - float(bounds.lower.sum())
    Z, t = PSD(candidates.n, name="Z"), Variable(name="t")
    sensitivity = quad_form(candidates.X, Z) if candidates.are_rows else inner(candidates.X, Z)
    price: Any = t
    cost: Any = left * t + inner(given, Z)
    room = np.minimum(bounds.upper - bounds.lower, left)
    if np.isfinite(bounds.upper).any():
        p = Variable(len(candidates), nonneg=True, name="p")
        price, cost = price + p, cost + room @ p
    if len(bounds.budget):
        y = Variable(len(bounds.budget), nonneg=True, name="y")
        price, cost = price + bounds.costs.T @ y, cost + (bounds.budget - bounds.costs @ bounds.lower) @ y
    rows: list[Constraint] = [sensitivity <= price, trace(Z) == 1]
    sol = Problem(Minimize(cost), rows).solve(tol=min(tol, _FINE))
    if sol.X is None or sol.duals is None:
        return bounds.inside(), np.eye(candidates.n), np.zeros(len(bounds.budget)), sol.iterations
    u = bounds.lower + np.maximum(np.atleast_1d(sol.duals[0]), 0.0)
    prices = np.maximum(np.atleast_1d(sol.u["y"]), 0.0) if len(bounds.budget) else np.zeros(0)
    return u, np.asarray(sol.X), prices, sol.iterations
