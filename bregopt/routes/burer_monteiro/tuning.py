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
    first_rank : int
        Columns of the first ``R``. Each column costs time in each product; with fewer columns more stages
        end at saddle points. For maximum cuts of order 5,000, 12 to 24 take the same time.
    first_rank_planes : int
        The same with planes. For balanced cuts of random graphs of order 5,000, 24 take half of the time of
        12.
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
    residual_stage_tol : float
        Least tolerance of a stage, relative to the primal residual. Minimizers need not be sharp before the
        rows hold.
    proof_share : float
        Loss to which a stage's bound is proven, as a fraction of that left by the tolerance or explained by
        the gradient. The loss of the proven bound decreases with the square of the work.
    saddle_loss : float
        Loss in the bound that shows a saddle point, relative to the loss that the gradient explains.
    stage_rank_tol : float
        Singular values of ``R``, relative to the largest, whose columns are dropped after a stage.
    first_penalty : float
        First penalties of rows, relative to the mean norm of the cost's rows.
    penalty_growth : float
        Growth factor of a penalty.
    retraction_tol : float
        Distance from the planes at which a retraction ends, relative to the norm of ``R``.
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
    first_rank: int = 12
    first_rank_planes: int = 24
    large_order: int = 5_000
    first_stage_tol: float = 1e-2
    stage_tol_decrease: float = 0.1
    stage_tol_fastest: float = 0.03
    gap_share: float = 0.5
    residual_stage_tol: float = 1e-2
    proof_share: float = 0.9
    saddle_loss: float = 3.0
    stage_rank_tol: float = 1e-4
    # lagrangian.py
    first_penalty: float = 10.0
    penalty_growth: float = 4.0
    # surface.py
    retraction_tol: float = 1e-14
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
