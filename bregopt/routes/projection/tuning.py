"""The numerical constants of the projection methods."""

from __future__ import annotations

from bregopt.records import dataclass
from bregopt.routes.graphical_lasso.tuning import LassoTuning
from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.tuning import WorkingSetTuning

__all__ = ["ProjectionTuning"]


@dataclass(frozen=True, kw_only=True)
class ProjectionTuning(WorkingSetTuning):
    """Constants of the projection methods, besides those of the working set.

    The methods for elementwise weights work in scaled entries: the mean weight is one, and so is the order of
    magnitude of the eigenvalues (:mod:`bregopt.routes.projection.scaled_nearness`).

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
    rank_one_ratio : int
        Largest number of rows of a family, relative to the order, whose curvatures come from their rank-one
        terms. With more rows all entries together cost less.
    start_trials : int
        Limit on increases of the divergence's weight in the search for a first point. The exponential of von
        Neumann overflows at zero multipliers if the linear cost is large.
    start_growth : float
        Factor of one such increase.
    start_decrease : float
        Divisor of the weight from one first point to the next. The next starts at the last answer.
    start_tol : float
        Tolerance of the answers at larger weights. They are starts only.
    start_steps : int
        Limit on the Newton steps at each larger weight.
    pattern_ratio : int
        Entries of the pattern of a sparse ``X`` for each row, up to which Newton's method on them is faster
        than the system of the rows: 2.6 times at order 500 with about as many of both.
    pattern_limit : int
        Limit on the steps of that method where the option `max_iter` gives none.
    pattern_patience : int
        Its steps without a better certificate after which it has stalled. Where the given entries leave no
        positive definite matrix, the sparse matrix diverges.
    shortest_pattern_step : float
        Its least step length.
    diverged_entry : float
        Largest entry of the sparse matrix, for a unit diagonal of its inverse, beyond which it may diverge.
    formed_pattern : int
        Entries of a pattern up to which its Newton matrix is formed and factorized, in place of conjugate
        gradients (``benchmarks/logdet.py completion`` measures both).
    sparse_pattern : float
        Entries of a pattern, as a fraction of all, up to which conjugate gradients compute single inner
        products in place of whole matrices.
    pattern_cg_tol : float
        Largest relative residual of these conjugate gradients. It falls with the gradient.
    interior_numbers : int
        Largest array of the interior point on the dual: two bounds a row, a number for each entry of ``X``.
    interior_decrease : float
        Factor of its barrier parameter after a step that was not short.
    proximal_weight : float
        First weight of the proximal term of a matrix without a divergence, relative to the divergences.
    proximal_decrease : float
        Factor of that weight from step to step. With a small one Newton's method takes more steps.
    proximal_tol : float
        Tolerance of each step, relative to that of the answer.
    proximal_limit : int
        Limit on the proximal steps where the option `max_iter` gives none.
    proximal_patience : int
        Proximal steps without a better certificate after which the method has stalled.
    cycle_limit : int
        Limit on the cycles of the cyclic methods where the option `max_iter` gives none.
    certificate_divisor : int
        The cyclic method certifies its point once more after the cycles so far, divided by this, at least
        after one. A certificate may cost more than a cycle.
    hildreth_sweeps : int
        Limit on sweeps over the rows for one eigendecomposition, if the rows are not orthogonal.
    hildreth_decrease : float
        Largest change of a multiplier that ends the sweeps, relative to the first sweep.
    farkas_rounds : int
        Rounds of Dykstra's method between two tests for a Farkas vector, which is the change of the
        multipliers over these rounds. Below `farkas_residual` none is tested.
    sinkhorn_steps : int
        Steps of the scaling to equal row means of the weights (Sinkhorn and Knopp).
    sinkhorn_floor : float
        Weight added to all weights for that scaling, relative to the mean weight. Zero weights may prevent
        equal row means.
    weighted_limit : int
        Limit on the Newton steps for elementwise weights where the option `max_iter` gives none, and on those
        of the last phase in any case.
    first_interior_unknowns : int
        Largest number of unknowns for which elementwise weights begin with the interior point: orders up to
        about 25, where it is faster than the augmented Lagrangian.
    largest_interior_unknowns : int
        Largest number of unknowns for which the interior point takes over from the augmented Lagrangian:
        orders up to about 60, where it solves problems that the other does not.
    interior_steps : int
        Limit on the steps of the interior point before the augmented Lagrangian takes over.
    lagrangian_steps : int
        Limit on the Newton steps of the augmented Lagrangian before the interior point takes over.
    lagrangian_patience : int
        Rounds of the augmented Lagrangian without a better certificate after which it has stalled.
    refined_entries : int
        Largest number of entries for which Newton's method for the optimality conditions takes over once the
        tolerance is met; there its equation is factorized.
    refined_residual : float
        Residual of the optimality conditions at which that method ends.
    converged_residual : float
        Residual at which it has converged, where round-off prevents less.
    certified_complementarity : float
        Complementarity of an interior point, relative to the tolerance times the objective's scale, up to
        which every step is certified. A certificate costs half a step.
    certificate_steps : int
        Steps from one certificate to the next above that complementarity.
    step_fraction : float
        Fraction of the step to the boundary that the interior point takes.
    shortest_interior_step : float
        Step length at which the interior point stops.
    centering_exponent : int
        Power of the predictor's decrease of complementarity that gives the centering parameter (Mehrotra).
    least_centering : float
        Least centering parameter.
    first_penalty : float
        First penalty parameter of the augmented Lagrangian, for a mean weight of one.
    penalty_growth : float
        Its growth from round to round. With four or more, later rounds take many Newton steps
        (the weights in ``benchmarks/nearness.py``).
    largest_penalty : float
        Its largest value.
    round_gradient : float
        Norm of the gradient that ends a round, relative to the distance from the psd cone and the rows.
    zero_gradient : float
        Norm of a gradient that counts as zero, relative to the linear term. It is round-off.
    round_off_gradients : float
        Multiple of `zero_gradient` below which a gradient that does not halve ends a round.
    round_steps : int
        Limit on the Newton steps of one round.
    cg_tol : float
        Largest relative residual of the augmented Lagrangian's Newton equation.
    shortest_lagrangian_step : float
        Least step length of the augmented Lagrangian.
    objective_noise : float
        Difference of the augmented Lagrangian, relative to its magnitude, that counts as round-off. The slope
        decides then.
    first_damping : float
        First multiple of the identity added to Newton's equation, relative to the mean weight.
    least_damping : float
        Its least value.
    largest_damping : float
        Its largest value. A round ends if no step succeeds there.
    damping_decrease : float
        Its factor after a full step.
    damping_increase : float
        Its factor after a short step.
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
    rank_one_ratio: int = 2
    start_trials: int = 8
    start_growth: float = 10.0
    start_decrease: float = 2.0
    start_tol: float = 1e-3
    start_steps: int = 50
    # Newton's method on a pattern of entries.
    pattern_ratio: int = 4
    pattern_limit: int = 100
    pattern_patience: int = 15
    shortest_pattern_step: float = 1e-10
    diverged_entry: float = 1e7
    formed_pattern: int = 250
    sparse_pattern: float = 0.03
    pattern_cg_tol: float = 0.1
    # The interior point on the dual.
    interior_numbers: int = 20_000_000
    interior_decrease: float = 0.1
    # The proximal point method.
    proximal_weight: float = 0.1
    proximal_decrease: float = 0.3
    proximal_tol: float = 0.1
    proximal_limit: int = 100
    proximal_patience: int = 8
    # The cyclic methods.
    cycle_limit: int = 20_000
    certificate_divisor: int = 10
    hildreth_sweeps: int = 20
    hildreth_decrease: float = 1e-3
    farkas_rounds: int = 25
    # Elementwise weights: the scaling, and the methods in turn.
    sinkhorn_steps: int = 60
    sinkhorn_floor: float = 1e-3
    weighted_limit: int = 2_000
    first_interior_unknowns: int = 330
    largest_interior_unknowns: int = 2_000
    interior_steps: int = 100
    lagrangian_steps: int = 80
    lagrangian_patience: int = 8
    refined_entries: int = 625
    refined_residual: float = 1e-13
    converged_residual: float = 1e-9
    certified_complementarity: float = 3.0
    certificate_steps: int = 10
    # Elementwise weights: the interior point.
    step_fraction: float = 0.99
    shortest_interior_step: float = 1e-5
    centering_exponent: int = 3
    least_centering: float = 1e-10
    # Elementwise weights: the augmented Lagrangian.
    first_penalty: float = 2.0
    penalty_growth: float = 2.5
    largest_penalty: float = 1e9
    round_gradient: float = 1.0
    zero_gradient: float = 1e-13
    round_off_gradients: float = 1e3
    round_steps: int = 50
    cg_tol: float = 0.03
    shortest_lagrangian_step: float = 1e-6
    objective_noise: float = 1e-11
    first_damping: float = 1e-3
    least_damping: float = 1e-6
    largest_damping: float = 1.0
    damping_decrease: float = 0.1
    damping_increase: float = 10.0
    short_step: float = 0.3
