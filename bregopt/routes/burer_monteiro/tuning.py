"""The numerical constants of the low-rank method."""

from __future__ import annotations

from bregopt.records import dataclass
from bregopt.routes.tuning import Tuning

__all__ = ["BurerMonteiroTuning"]


@dataclass(frozen=True, kw_only=True)
class BurerMonteiroTuning(Tuning):
    """Constants of the low-rank method, besides those of every method.

    Parameters
    ----------
    default_max_iter : int
        Limit on the trust-region steps where the option `max_iter` gives none.
    first_rank : int
        Columns of the first ``R``. Each column costs time in each product; with fewer columns more stages
        end at saddle points. For maximum cuts of order 5,000, 12 to 24 take the same time.
    first_rank_planes : int
        The same with planes. For balanced cuts of random graphs of order 5,000, 24 take half of the time of
        12.
    first_rank_large : int
        The same for large orders. For maximum cuts of order 20,000, 40 take half of the time of 24.
    first_rank_coarse : int
        The same for large orders and tolerances from `coarse_tol` on: the loss of 16 columns is 5e-3 of the
        value at order 20,000 and 100,000.
    coarse_tol : float
        The gap from which fewer columns do.
    large_order : int
        Largest order at which the first two ranks apply.
    first_stage_tol : float
        Norm of the gradient at which the first stage ends, relative to the value over the norm of ``R``.
    stage_tol_decrease : float
        Largest factor of this tolerance from stage to stage.
    stage_tol_fastest : float
        Least factor. A bound early may be all that a caller waits for.
    gap_share : float
        Fraction of the tolerance that the next stage's gap aims for, as the gap decreases with the gradient.
    least_stage_tol : float
        Least tolerance of a stage. Round-off prevents a smaller gradient.
    residual_stage_tol : float
        Least tolerance of a stage, relative to the primal residual. Minimizers need not be sharp before the
        rows hold.
    final_share : float
        Fraction of the tolerance that the last stages aim for, in the gradient and the rows. Below a half, so
        that these errors together stay within the tolerance.
    plane_share : float
        Fraction of the tolerance that the bounded multipliers of planes may cost.
    proof_share : float
        Loss to which a stage's bound is proven, as a fraction of that left by the tolerance or explained by
        the gradient. The loss of the proven bound decreases with the square of the work.
    added_columns : int
        Number of columns that may be added at a time, if `column_growth` allows fewer.
    column_growth : float
        Number of columns that may be added at a time, relative to the present ones. Adding several saves
        eigenvalue proofs.
    added_eigenvalue : float
        Largest eigenvalue whose eigenvector becomes a column, relative to the lowest eigenvalue; both are
        negative.
    lanczos_steps : int
        Lanczos steps for these eigenvalues.
    saddle_loss : float
        Loss in the bound that shows a saddle point, relative to the loss that the gradient explains.
    growth_rank_tol : float
        Singular values of ``R``, relative to the largest, whose columns are dropped before others are added.
    stage_rank_tol : float
        Singular values of ``R``, relative to the largest, whose columns are dropped after a stage.
    zero_row : float
        Length of a row of ``R``, relative to the root mean square of all, below which it is tried at zero
        once the gap is within the tolerance. Newton's method is slow there.
    stall_stages : int
        Stages without halving the error after which the method stalls, if the rows hold to the tolerance.
    stall_stages_infeasible : int
        The same if they do not. Multipliers of rows converge linearly, over more stages.
    start_perturbation : float
        Size of the random columns added to a start with too few columns, relative to the start.
    first_penalty : float
        First penalties of rows, relative to the mean norm of the cost's rows.
    penalty_growth : float
        Growth factor of a penalty.
    largest_penalty : float
        Largest penalty, relative to the first one. Above it the cost is round-off beside the penalty, and the
        method stalls. A point where the gradients of the rows vanish leads there without a step.
    penalty_residual : float
        Ratio of successive residuals of a row above which its penalty grows.
    plane_eigenvalue : float
        Eigenvalue assigned to the planes, relative to the largest of the rest. Larger ones cost digits of the
        rest.
    plane_singular_value : float
        Least singular value of ``R`` in the multipliers of planes, relative to the largest. These multipliers
        grow with its inverse square.
    multiplier_search_tol : float
        Accuracy of the search for the best multipliers of dependent planes and spheres, relative to its
        range. Each trial costs an eigenvalue.
    planes : int
        Largest number of rows ``<z z', X> <= 0`` that are treated as planes. The dense vectors of planes take
        part in each product.
    retraction_steps : int
        Limit on the steps of a retraction.
    retraction_tol : float
        Distance from the planes at which a retraction ends, relative to the norm of ``R``.
    normals_rank_tol : float
        Eigenvalues of the Gram matrix of the planes' tangent normals, at most one, that count as zero. The
        normals of planes and spheres are then linearly dependent.
    first_radius : float
        First radius of the trust region, relative to the norm of ``R``.
    least_radius : float
        Radius at which a stage ends, relative to the norm of ``R``.
    hessian_products : int
        Limit on the products with the Hessian in one step.
    cg_residual : float
        Residual that ends a step's conjugate gradients, relative to the first one.
    cg_exponent : float
        Power of the relative gradient that ends them if it is smaller. One makes the convergence quadratic.
    accepted_ratio : float
        Ratio of actual and predicted decrease above which a step is accepted.
    shrink_ratio : float
        The same ratio below which the radius shrinks to a quarter.
    grow_ratio : float
        The same ratio above which the radius doubles, after a step to the boundary of the region.
    plane_distance : float
        Distance from the planes, relative to the norm of ``R``, beyond which a step is refused. The
        retraction has failed then.
    preconditioner_floor : float
        Least entry of the diagonal preconditioner, relative to the largest.
    """

    # staircase.py
    default_max_iter: int = 3_000
    first_rank: int = 12
    first_rank_planes: int = 24
    first_rank_large: int = 40
    first_rank_coarse: int = 16
    coarse_tol: float = 5e-3
    large_order: int = 5_000
    first_stage_tol: float = 1e-2
    stage_tol_decrease: float = 0.1
    stage_tol_fastest: float = 0.03
    gap_share: float = 0.5
    least_stage_tol: float = 1e-13
    residual_stage_tol: float = 1e-2
    final_share: float = 0.3
    plane_share: float = 0.1
    proof_share: float = 0.9
    added_columns: int = 4
    column_growth: float = 0.5
    added_eigenvalue: float = 0.1
    lanczos_steps: int = 120
    saddle_loss: float = 3.0
    growth_rank_tol: float = 1e-5
    stage_rank_tol: float = 1e-4
    zero_row: float = 0.2
    stall_stages: int = 4
    stall_stages_infeasible: int = 12
    start_perturbation: float = 0.1
    # lagrangian.py
    first_penalty: float = 10.0
    penalty_growth: float = 4.0
    largest_penalty: float = 1e20
    penalty_residual: float = 0.25
    plane_eigenvalue: float = 1e3
    plane_singular_value: float = 1e-4
    multiplier_search_tol: float = 1e-6
    # surface.py
    planes: int = 16
    retraction_steps: int = 100
    retraction_tol: float = 1e-14
    normals_rank_tol: float = 1e-10
    # lagrangian.py, its trust region
    first_radius: float = 0.125
    least_radius: float = 1e-10
    hessian_products: int = 300
    cg_residual: float = 0.1
    cg_exponent: float = 1.0
    accepted_ratio: float = 0.05
    shrink_ratio: float = 0.25
    grow_ratio: float = 0.75
    plane_distance: float = 1e-12
    preconditioner_floor: float = 1e-3
