"""The numerical constants of the interior-point method."""

from __future__ import annotations

from bregopt.records import dataclass
from bregopt.routes.working_set import WorkingSetTuning

__all__ = ["InteriorPointTuning"]


@dataclass(frozen=True, kw_only=True)
class InteriorPointTuning(WorkingSetTuning):
    """Constants of the interior-point method, besides those of the working set.

    Parameters
    ----------
    steps : int
        Limit on the steps along the central path if ``max_iter`` is None.
    path_share : float
        Fraction of the tolerance that the certificate on the path has to meet. The rest is for round-off in
        the certificate of the whole problem.
    stall_steps : int
        Steps without progress after which the method stalls and returns its best iterate.
    least_step_fraction : float
        Fraction of the step to the boundary that is taken after a short predictor step, so step lengths of at
        least its inverse allow the full step. A larger one leaves the next iterate close to the boundary,
        where steps are short; a smaller one takes more steps.
    largest_step_fraction : float
        The same after a full predictor step; below one, as the next iterate has to be positive definite.
    least_centering : float
        Least centering parameter. At zero the step would aim at the boundary itself.
    full_step_exponent : float
        Exponent of the centering parameter after a full predictor step; smaller with the square of a shorter
        step's length.
    first_primal_scale : float
        Size of a first ``X``, or distance of a first variable from its bound, relative to the scale of the
        bounds.
    first_dual_scale : float
        Size of a first ``Z``, relative to that of the costs.
    largest_formed_rows : int
        Number of rows up to which the system in the rows is formed if conjugate gradients could solve it.
        6,000 rows take 0.3 GB.
    largest_formed_entries : int
        Number of entries of ``X`` up to which the system in the entries is formed if conjugate gradients
        could solve it.
    largest_features : int
        Numbers in the vectors of the rows that are stored at a time (40 MB).
    cg_steps : int
        Limit on the steps of conjugate gradients.
    cg_tol : float
        Relative residual at which they end. The next Newton step corrects the error.
    refinements : int
        Limit on the new corrections of a step whose system is formed. With half as many some of the
        ill-conditioned problems of SDPLIB (hinf, qap) lose a digit. More gain little, and each holds its
        matrices.
    sparse_fraction : float
        Number of terms of all rows, relative to the entries of a matrix, up to which rows are evaluated term
        by term.
    sparse_order : int
        Order from which ``A*(y)`` of such rows is a sparse matrix.
    product_cost : float
        Approximate nanoseconds of one entry of the matrix of pairs of places. This and the next four costs
        are measured by ``benchmarks/schur.py``.
    sparse_cost : float
        Approximate nanoseconds of one multiplication in a product of a sparse matrix and a dense one.
    flop_cost : float
        Approximate nanoseconds of one multiplication in a product of dense matrices.
    gather_cost : float
        Approximate nanoseconds of reading one entry of ``P A_l Q``.
    call_cost : float
        Approximate nanoseconds of the calls for one chunk of products ``P A_l Q``.
    strip_products : int
        Products for pairs of places that are kept at a time (0.8 MB). Larger arrays are new memory each time,
        whose pages cost more than the products.
    least_strip : int
        Least number of columns of a strip of these. Products with sparse matrices of fewer columns are slow.
    tile_products : int
        Products that are computed at a time (256 kB, so that a few arrays stay in the cache).
    congruence_entries : int
        Entries of products ``P A_l Q`` in memory at a time (0.8 MB, near the size of a cache), or one product
        if that has more.
    dense_rows_size : int
        Entries up to which they are dense at any fraction, since calls with sparse matrices are slow.
    sample_rows : int
        Least number of rows in a first working set.
    sample_orders : int
        The same, relative to the largest order.
    sample_ratio : int
        Number of rows that can be inactive, relative to a first working set, above which one is used.
    working_set_flops : float
        Operations of a Newton step on all rows above which a working set is used.
    logdet_steps : int
        Limit on the steps of Newton's method for LogDet if ``max_iter`` is None.
    soft_steps : int
        Limit on the steps of Newton's method on soft rows, which is slow if prices are far above the
        divergence's weight.
    """

    # central_path.py
    steps: int = 100
    path_share: float = 0.5
    stall_steps: int = 20
    # engine.py
    least_step_fraction: float = 0.9
    largest_step_fraction: float = 0.99
    least_centering: float = 1e-3
    full_step_exponent: float = 3.0
    # cones.py
    # bound_state.py
    # start.py
    first_primal_scale: float = 10.0
    first_dual_scale: float = 10.0
    # row_system.py, entry_system.py, systems.py
    largest_formed_rows: int = 6_000
    largest_formed_entries: int = 1_200
    largest_features: int = 5_000_000
    cg_steps: int = 300
    cg_tol: float = 1e-3
    # linear_solvers.py, row_system.py
    refinements: int = 8
    # sparse_row_system.py
    # row_action.py
    sparse_fraction: float = 0.1
    sparse_order: int = 150
    # schur/
    product_cost: float = 5.0
    sparse_cost: float = 0.3
    flop_cost: float = 0.04
    gather_cost: float = 0.6
    call_cost: float = 3e4
    strip_products: int = 100_000
    least_strip: int = 16
    tile_products: int = 32_000
    congruence_entries: int = 100_000
    dense_rows_size: int = 4_000
    # plan.py, stack_rows.py
    # path_route.py, working_set_start.py
    sample_rows: int = 300
    sample_orders: int = 4
    sample_ratio: int = 3
    working_set_flops: float = 4e9
    # logdet_newton.py
    logdet_steps: int = 200
    # soft_newton.py
    soft_steps: int = 20
