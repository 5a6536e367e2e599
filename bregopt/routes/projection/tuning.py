"""The numerical constants of the projection methods."""

from __future__ import annotations

from bregopt.records import dataclass
from bregopt.routes.graphical_lasso.problem import LassoTuning
from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.working_set import WorkingSetTuning

__all__ = ["ProjectionTuning"]


@dataclass(frozen=True, kw_only=True)
class ProjectionTuning(WorkingSetTuning):
    """Constants of the projection methods, besides those of the working set.

    The methods for elementwise weights work in scaled entries: the mean weight is one, and so is the order of
    magnitude of the eigenvalues (:mod:`bregopt.routes.projection.weights`).

    Parameters
    ----------
    interior : InteriorPointTuning
        Constants of the interior-point method for LogDet.
    lasso : LassoTuning
        Constants of sparse inverse covariance estimation.
    working_set_rows : int
        Number of rows that can be inactive above which a method runs on a working set. With fewer rows the
        steps of one run on all rows cost less than the rounds.
    working_set_ratio : int
        The same number, relative to the order of the matrix; the larger of the two counts.
    pass_rows : int
        Least number of smooth soft rows for which L-BFGS over the rows comes before Newton's method.
    pass_ratio : int
        The same number, relative to the order of the matrix. With fewer rows a pass and the preconditioner
        cost more than a tenth of a Newton step (``benchmarks/many.py methods``).
    pass_order : int
        Least order of the matrix for that with LogDet. Below it a Newton step costs a few passes only.
    pass_curvature : float
        Largest curvature of the penalties relative to LogDet, along one direction, at the first point. With
        heavier penalties L-BFGS takes a hundred passes and more.
    pass_growth : float
        Largest logarithm of the factors by which the first step, at full length, multiplies eigenvalues, for
        LogDet. Line searches limit it to one.
    pass_exponential_curvature : float
        The largest curvature for von Neumann, whose Newton steps cost fewer passes.
    pass_exponential_growth : float
        The same for the first step.
    pass_limit : int
        Passes after which Newton's method takes over.
    armijo_fraction : float
        Least change of the objective in a line search, relative to the slope (Armijo), for the dual Newton
        method, the augmented Lagrangian and Newton's method on a pattern.
    cg_steps : int
        Limit on conjugate gradient steps for one Newton direction, for both and on a pattern.
    newton_limit : int
        Limit on the steps of the dual Newton method where the option `max_iter` gives none.
    newton_noise : float
        Difference of the dual function, relative to its magnitude, that counts as round-off in a line search.
    shortest_newton_step : float
        Least step length along Newton's direction. Below it the direction is the scaled gradient.
    shortest_gradient_step : float
        Least step length along the scaled gradient. Below it the method has stalled.
    least_curvature : float
        Least diagonal entry of the dual Hessian, relative to that of the row alone. A singular point may have
        no curvature along a row, and the diagonal preconditions Newton's equation.
    start_trials : int
        Limit on increases of the divergence's weight in the search for a first point. The exponential of von
        Neumann overflows at zero multipliers if the linear cost is large.
    start_growth : float
        Factor of one such increase.
    formed_pattern : int
        Entries of a pattern up to which its Newton matrix is formed and factorized, in place of conjugate
        gradients (``benchmarks/logdet.py completion`` measures both).
    cycle_limit : int
        Limit on the cycles of the cyclic methods where the option `max_iter` gives none.
    weighted_limit : int
        Limit on the Newton steps for elementwise weights where the option `max_iter` gives none, and on those
        of the last phase in any case.
    first_interior_unknowns : int
        Largest number of unknowns for which elementwise weights begin with the interior point: orders up to
        about 25, where it is faster than the augmented Lagrangian.
    interior_steps : int
        Limit on the steps of the interior point before the augmented Lagrangian takes over.
    lagrangian_steps : int
        Limit on the Newton steps of the augmented Lagrangian before the interior point takes over.
    refined_residual : float
        Residual of the optimality conditions at which Newton's method for them ends.
    converged_residual : float
        Residual at which it has converged, where round-off prevents less.
    certificate_steps : int
        Steps from one certificate to the next above that complementarity.
    step_fraction : float
        Fraction of the step to the boundary that the interior point takes.
    first_penalty : float
        First penalty parameter of the augmented Lagrangian, for a mean weight of one.
    penalty_growth : float
        Its growth from round to round. With four or more, later rounds take many Newton steps
        (the weights in ``benchmarks/nearness.py``).
    round_gradient : float
        Norm of the gradient that ends a round, relative to the distance from the psd cone and the rows.
    cg_tol : float
        Largest relative residual of the augmented Lagrangian's Newton equation.
    short_step : float
        Largest length of a short step.
    """

    interior: InteriorPointTuning = InteriorPointTuning()
    lasso: LassoTuning = LassoTuning()
    # The route.
    working_set_rows: int = 300
    working_set_ratio: int = 3
    pass_rows: int = 3_000
    pass_ratio: int = 200
    pass_order: int = 16
    pass_curvature: float = 300.0
    pass_growth: float = 20.0
    pass_exponential_curvature: float = 7.0
    pass_exponential_growth: float = 8.0
    pass_limit: int = 60
    # The dual Newton method and the augmented Lagrangian.
    armijo_fraction: float = 1e-4
    cg_steps: int = 200
    # The dual Newton method.
    newton_limit: int = 500
    newton_noise: float = 1e-13
    shortest_newton_step: float = 1e-3
    shortest_gradient_step: float = 1e-12
    least_curvature: float = 1e-8
    start_trials: int = 8
    start_growth: float = 10.0
    # Newton's method on a pattern of entries.
    formed_pattern: int = 250
    # The cyclic methods.
    cycle_limit: int = 20_000
    # Elementwise weights: the scaling, and the methods in turn.
    weighted_limit: int = 2_000
    first_interior_unknowns: int = 330
    interior_steps: int = 100
    lagrangian_steps: int = 80
    refined_residual: float = 1e-13
    converged_residual: float = 1e-9
    certificate_steps: int = 10
    # Elementwise weights: the interior point.
    step_fraction: float = 0.99
    # Elementwise weights: the augmented Lagrangian.
    first_penalty: float = 2.0
    penalty_growth: float = 2.5
    round_gradient: float = 1.0
    cg_tol: float = 0.03
    short_step: float = 0.3
