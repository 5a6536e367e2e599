"""The numerical constants of the interior-point method."""

from __future__ import annotations

from bregopt.records import dataclass
from bregopt.routes.tuning import WorkingSetTuning

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
    inner_error : float
        Gap and residuals at which an iterate is kept for proofs, which need a point inside the cones.
    stall_steps : int
        Steps without progress after which the method stalls and returns its best iterate.
    primal_divergence : float
        Scale of the bounds, relative to a primal iterate, below which that iterate diverges and is tested
        for a ray.
    dual_divergence : float
        Size of the costs, relative to the multipliers times the row sizes, below which the multipliers
        diverge and are tested for a Farkas vector. At a smaller ratio the method may stall before it finds
        the proof.
    ray_least_trace : float
        Trace of a block of a ray, relative to the largest, below which the block is set to zero.
    farkas_least_multiplier : float
        Multiplier times row size of a Farkas vector, relative to the largest, below which the multiplier is
        set to zero.
    least_step_fraction : float
        Fraction of the step to the boundary that is taken after a short predictor step, so step lengths of at
        least its inverse allow the full step. A larger one leaves the next iterate close to the boundary,
        where steps are short; a smaller one takes more steps.
    largest_step_fraction : float
        The same after a full predictor step; below one, as the next iterate has to be positive definite.
    least_step : float
        Step length at which the method stalls, and up to which a step length counts as zero.
    step_decrease : float
        Factor that shortens a step out of the cone, squared at each further trial. Step lengths are
        estimates, so most such steps are only slightly too long.
    step_length_tol : float
        Relative tolerance of the step length of a corrector. A smaller one takes more Cholesky
        factorizations, a larger one shortens the step.
    predictor_length_tol : float
        Relative tolerance of that of a predictor, which only determines the centering parameter.
    least_centering : float
        Least centering parameter. At zero the step would aim at the boundary itself.
    centering_exponent : float
        Least exponent of the centering parameter where steps are expensive. A larger one takes fewer, less
        central steps.
    centering_exponent_order : int
        Sum of the matrices' orders from which that exponent applies, once ``C - A*(y) = Z`` holds; below, the
        least exponent is 1.
    full_step_exponent : float
        Exponent of the centering parameter after a full predictor step; smaller with the square of a shorter
        step's length.
    corrector_ratio : float
        Step length of a corrector, relative to the square of the predictor's, below which the step is also
        tried without second-order terms. Near a singular solution these may be round-off.
    weight_ratio : float
        Ratio of the mean eigenvalue of ``X Z`` to the weight of LogDet above which it decreases along the
        central path; below, only the slacks' products decrease. An ill-conditioned start begins far above it.
    largest_multiplier : float
        Multiplier beyond which an iterate is not on a central path.
    dual_round_off : float
        Norm of ``C - A*(y) - Z``, relative to ``Z``, that counts as zero.
    trial_order : int
        Order from which a step length comes from trial Cholesky factorizations; below, from an eigenvalue,
        whose cost is mostly overhead at small orders.
    lanczos_order : int
        Order from which a step length comes from an eigenvalue estimate of Lanczos, whose steps cost ``n^2``
        operations; trial factorizations cost ``n^3``.
    lanczos_steps : int
        Limit on the steps of that estimate.
    lanczos_tol : float
        Relative residual at which that estimate ends. The residual shortens the step; a smaller one takes
        more steps of Lanczos.
    least_first_slack : float
        Least first slack, relative to the larger of a bound and its activity.
    cancellation : float
        First activity, relative to the size of its terms, that counts as zero. A first slack relative to
        round-off would give a multiplier of 1e17.
    largest_first_slack : float
        Largest first slack of a bound whose multiplier is known, in the same unit.
    warm_hinge_distance : float
        Least distance of a hinge's known multiplier from its price, relative to the price.
    first_primal_scale : float
        Size of a first ``X``, or distance of a first variable from its bound, relative to the scale of the
        bounds.
    least_first_eigenvalue : float
        Least eigenvalue of a first ``X`` that meets the equalities, relative to the mean. Where the rows
        leave ``X`` no interior, the matrix of least norm is singular but for round-off.
    first_dual_scale : float
        Size of a first ``Z``, relative to that of the costs.
    identity_tol : float
        Largest entrywise difference between ``A*(y)`` and the identity.
    dual_shift : float
        Factor on the shift by Gershgorin's bound that makes the first ``Z`` positive definite.
    first_hinge_distance : float
        Distance of a hinge's first multiplier from the ends of its range, relative to its price.
    warm_distance : float
        Distance of a warm start from the boundary, relative to the mean eigenvalue, the width of a box, or as
        the weight of a known interior point.
    largest_formed_rows : int
        Number of rows up to which the system in the rows is formed if conjugate gradients could solve it.
        6,000 rows take 0.3 GB.
    border_ratio : float
        Term of a nearly free variable, relative to a row's diagonal entry, above which the variable borders
        the system. Its elimination would cancel digits.
    largest_formed_entries : int
        Number of entries of ``X`` up to which the system in the entries is formed if conjugate gradients
        could solve it.
    largest_bordered_entries : int
        The same if rows have ``D = 0``, which require a formed system.
    iterated_products : int
        Products with all rows that conjugate gradients take, to compare their cost with a factorization's.
    largest_features : int
        Numbers in the vectors of the rows that are stored at a time (40 MB).
    gram_transform_entries : int
        Entries of ``X`` up to which transforming the Gram matrix costs less than transforming all rows.
    entry_residual : float
        Residual of the system in the entries, relative to the right-hand side, above which it is refined.
    cg_steps : int
        Limit on the steps of conjugate gradients.
    cg_tol : float
        Relative residual at which they end. The next Newton step corrects the error.
    zero_curvature_step : float
        Length of a step along a direction without curvature, relative to the preconditioned one.
    refinements : int
        Limit on the new corrections of a step whose system is formed. With half as many some of the
        ill-conditioned problems of SDPLIB (hinf, qap) lose a digit. More gain little, and each holds its
        matrices.
    least_refined_residual : float
        Residual of a step, relative to the right-hand side, above which it is refined.
    largest_refined_residual : float
        The same up to which it is refined. If no point meets the rows, the residual is larger, and
        corrections would only be large.
    definite_residual : float
        Residual of a definite system, relative to the right-hand side, above which it is refined.
    least_pivot : float
        Least pivot of a definite system, relative to the root of its diagonal entry; its square is round-off.
    zero_diagonal : float
        Diagonal entry up to which a row of a system is a row of zeros.
    sparse_rows : int
        Number of rows from which a sparse system is looked for; a smaller dense one takes a few milliseconds.
    sparse_schur : float
        Pairs of rows that meet one block, relative to all pairs, up to which the system may be sparse.
    sparse_search : float
        Operations of the search for its fill, relative to the cubed number of rows. The search then takes a
        few percent of the time of a dense system.
    sparse_factor : float
        Nonzeros of its factor, relative to a dense one, up to which it is sparse.
    sparse_pivot : float
        Diagonal entry, relative to the largest of its column, that is a pivot of a quasi-definite system. A
        smaller one keeps the factor sparser and loses more digits.
    sparse_refinements : int
        Limit on the refinements of a solution. They end earlier if the residual grows.
    sparse_fraction : float
        Number of terms of all rows, relative to the entries of a matrix, up to which rows are evaluated term
        by term.
    sparse_order : int
        Order from which ``A*(y)`` of such rows is a sparse matrix.
    terms_per_order : int
        Terms per order above which a full matrix product costs less than one inner product a term.
    slice_fraction : float
        Fraction of the rows below which the requested rows of the Schur matrix are extracted first.
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
    least_congruences : int
        Number of these products up to which they may have twice as many entries: products of sparse rows with
        fewer columns are slow.
    support_fraction : float
        Lines of ``A_l`` that are not zero, relative to its order, up to which only those are multiplied.
    dense_rows_fraction : float
        Fraction of nonzeros above which rows are multiplied as a dense matrix, near the ratio of `flop_cost`
        and `sparse_cost`.
    dense_rows_size : int
        Entries up to which they are dense at any fraction, since calls with sparse matrices are slow.
    stack_order : int
        Largest order of the blocks of a stack. The calls for larger blocks cost less than their arithmetic.
    stack_terms : int
        Largest number of terms of all rows in a stack.
    stack_numbers : float
        Numbers that the formula for the Schur matrix of a stack may store (0.4 GB).
    stack_chunk : int
        Products of entries of a stack that are computed at a time (2 MB).
    stack_place_cost : float
        Approximate nanoseconds of a product of two distinct entries of a block in a stack.
    stack_pair_cost : float
        Approximate nanoseconds of adding a number to the Schur matrix at a place that varies.
    stack_flop_cost : float
        Approximate nanoseconds of one multiplication inside small matrix products.
    dense_stack : float
        Fraction of nonzeros from which the rows on the flat vector are a dense matrix.
    sample_rows : int
        Least number of rows in a first working set.
    sample_orders : int
        The same, relative to the largest order.
    sample_ratio : int
        Number of rows that can be inactive, relative to a first working set, above which one is used.
    working_set_flops : float
        Operations of a Newton step on all rows above which a working set is used.
    sample_tol : float
        Least tolerance of the problem with a sample of the rows, which only estimates the active set.
    logdet_steps : int
        Limit on the steps of Newton's method for LogDet if ``max_iter`` is None.
    centering_trials : int
        Trials of ``nu`` for a first iterate of LogDet, each a tenth of the last.
    warm_steps : int
        Limit on the steps from an earlier answer of LogDet. Near the answer that method takes two to four
        steps; far from it the method may not converge.
    active_least_step : float
        Least step length of Newton's method in the active rows; a shorter step means that the answer is far.
    soft_steps : int
        Limit on the steps of Newton's method on soft rows, which is slow if prices are far above the
        divergence's weight.
    soft_largest_price : float
        Largest price of relaxing a bound by its own size, relative to the weight of the divergence, in that
        method. At a larger one the multiplier is round-off.
    response_rounds : int
        Rounds of multipliers for its first iterate. A round costs a factorization.
    more_response_rounds : int
        The same if a Newton step costs far more than a round. So 3,000 distances at order 300 take two steps.
    response_flops : float
        Operations of such a step.
    response_decrease : float
        Factor between trial fractions of a response.
    response_trials : int
        Number of fractions of the response tried for the iterate from which ``X`` moves alone.
    joint_gap_ratio : float
        Ratio of the gaps after and before a joint step above which ``X`` moves alone. With far more rows than
        entries, or at high prices, joint steps make little progress (found on 100,000 pairs of MNIST).
    least_search_step : float
        Step length at which a line search keeps the old point.
    """

    # central_path.py
    steps: int = 100
    path_share: float = 0.5
    inner_error: float = 1e-2
    stall_steps: int = 20
    primal_divergence: float = 1e-3
    dual_divergence: float = 0.1
    ray_least_trace: float = 1e-9
    farkas_least_multiplier: float = 1e-12
    # engine.py
    least_step_fraction: float = 0.9
    largest_step_fraction: float = 0.99
    least_step: float = 1e-7
    step_decrease: float = 0.95
    step_length_tol: float = 0.04
    predictor_length_tol: float = 0.15
    least_centering: float = 1e-3
    centering_exponent: float = 2.0
    centering_exponent_order: int = 130
    full_step_exponent: float = 3.0
    corrector_ratio: float = 0.3
    weight_ratio: float = 20.0
    largest_multiplier: float = 1e100
    dual_round_off: float = 1e-11
    # cones.py
    trial_order: int = 40
    lanczos_order: int = 130
    lanczos_steps: int = 40
    lanczos_tol: float = 0.01
    # bound_state.py
    least_first_slack: float = 0.1
    cancellation: float = 1e-10
    largest_first_slack: float = 1e3
    warm_hinge_distance: float = 1e-3
    # start.py
    first_primal_scale: float = 10.0
    least_first_eigenvalue: float = 1e-6
    first_dual_scale: float = 10.0
    identity_tol: float = 1e-9
    dual_shift: float = 1.1
    first_hinge_distance: float = 1e-2
    warm_distance: float = 0.05
    # row_system.py, entry_system.py, systems.py
    largest_formed_rows: int = 6_000
    border_ratio: float = 1e4
    largest_formed_entries: int = 1_200
    largest_bordered_entries: int = 6_000
    iterated_products: int = 100
    largest_features: int = 5_000_000
    gram_transform_entries: int = 80
    entry_residual: float = 1e-11
    cg_steps: int = 300
    cg_tol: float = 1e-3
    # linear_solvers.py, row_system.py
    zero_curvature_step: float = 1e6
    refinements: int = 8
    least_refined_residual: float = 1e-13
    largest_refined_residual: float = 1e-4
    definite_residual: float = 1e-13
    least_pivot: float = 1e-7
    zero_diagonal: float = 1e-200
    # sparse_row_system.py
    sparse_rows: int = 150
    sparse_schur: float = 0.3
    sparse_search: float = 3e-4
    sparse_factor: float = 0.3
    sparse_pivot: float = 1e-2
    sparse_refinements: int = 3
    # row_action.py
    sparse_fraction: float = 0.1
    sparse_order: int = 150
    terms_per_order: int = 20
    # schur/
    slice_fraction: float = 0.7
    product_cost: float = 5.0
    sparse_cost: float = 0.3
    flop_cost: float = 0.04
    gather_cost: float = 0.6
    call_cost: float = 3e4
    strip_products: int = 100_000
    least_strip: int = 16
    tile_products: int = 32_000
    congruence_entries: int = 100_000
    least_congruences: int = 8
    support_fraction: float = 0.7
    dense_rows_fraction: float = 0.15
    dense_rows_size: int = 4_000
    # plan.py, stack_rows.py
    stack_order: int = 40
    stack_terms: int = 5_000_000
    stack_numbers: float = 5e7
    stack_chunk: int = 250_000
    stack_place_cost: float = 10.0
    stack_pair_cost: float = 6.0
    stack_flop_cost: float = 0.12
    dense_stack: float = 0.1
    # path_route.py, working_set_start.py
    sample_rows: int = 300
    sample_orders: int = 4
    sample_ratio: int = 3
    working_set_flops: float = 4e9
    sample_tol: float = 1e-2
    # logdet_newton.py
    logdet_steps: int = 200
    centering_trials: int = 12
    warm_steps: int = 12
    active_least_step: float = 0.1
    # soft_newton.py
    soft_steps: int = 20
    soft_largest_price: float = 1e6
    response_rounds: int = 4
    more_response_rounds: int = 10
    response_flops: float = 1e9
    response_decrease: float = 0.25
    response_trials: int = 8
    joint_gap_ratio: float = 0.7
    least_search_step: float = 1e-12
