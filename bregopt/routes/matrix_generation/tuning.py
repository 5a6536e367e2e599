"""The numerical constants of matrix generation."""

from __future__ import annotations

from bregopt.records import dataclass
from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.tuning import Tuning

__all__ = ["MatrixGenerationTuning"]


@dataclass(frozen=True, kw_only=True)
class MatrixGenerationTuning(Tuning):
    """Constants of matrix generation, besides those of every method.

    `progress_ratio` applies to the gaps of the rounds.

    Parameters
    ----------
    interior : InteriorPointTuning
        Constants of the interior-point method that solves the semidefinite master.
    linear_cuts : int
        Eigenvectors added in each round of the linear master. On margin SDPs 3 to 5 were best, and 24 were
        slower.
    semidefinite_cuts : int
        Eigenvectors added in each round of the semidefinite master.
    many_rows_cuts : int
        The same for many rows. A master with many rows costs more with each direction.
    many_rows : int
        Number of rows from which `many_rows_cuts` applies.
    default_max_iter : int
        Limit on the number of rounds where the option `max_iter` gives none.
    linear_patience : int
        Rounds of the linear master without progress after which the method stalls. Its gap may stay for many
        rounds, as its multipliers jump between vertices.
    semidefinite_patience : int
        The same for the semidefinite master, whose multipliers are central.
    doubling_ratio : float
        Ratio of successive gaps above which the next round of the semidefinite master adds twice as many
        eigenvectors.
    least_reward : float
        Reward of a direction above which it is added to the linear master, relative to the size of
        ``A*(y) - C``. Smaller rewards are round-off.
    bound_loss : float
        Largest loss in the proof of a bound, relative to the gap. A smaller one makes the Cholesky
        factorization that proves it fail more often.
    lanczos_tol_ratio : float
        Tolerance of Lanczos's method, relative to that loss.
    largest_lanczos_tol : float
        Largest tolerance of Lanczos's method, also used before there is a gap.
    sampling_rows : int
        Number of hinge rows from which the problem of a random sample of them is solved first. It gives the
        first point and working set.
    sample_rows : int
        Least number of hinge rows in the sample.
    sample_fraction : float
        Number of hinge rows in the sample, relative to all.
    sample_tol : float
        Tolerance of the sample's problem.
    sample_working_set : float
        Size of the first working set, relative to the number of rows of the sample's problem.
    truncation_tol : float
        Largest gap and residual of an answer from which eigenvalues are dropped, relative to the tolerance.
        Below one, so that the certificate of the route still meets the tolerance after round-off.
    truncation_limits : tuple of float
        Limits below which eigenvalues are dropped from the answer, relative to the trace, tried in order.
    zero_eigenvalue : float
        Largest eigenvalue that counts as zero, relative to the trace.
    balancing_steps : int
        Limit on the corrections that make the dual residual of unbounded variables zero. One suffices unless
        a multiplier reaches an end of its range.
    simplex_tol : float
        Feasibility tolerance of HiGHS for a master scaled to size one. HiGHS takes 1e-10 or more.
    least_columns : int
        Number of columns of the linear master up to which none is dropped.
    column_ratio : float
        Number of columns of the linear master, relative to those in use, up to which none is dropped.
    idle_rounds : int
        Rounds without use after which a column may be dropped.
    pool_columns : int
        Largest number of dropped directions that are stored and priced again.
    aggregate_rank_tol : float
        Singular values of the current factor, relative to the largest, below which its eigenvectors do not
        replace dropped columns.
    simplex_seconds : float
        Seconds of the first run of HiGHS between two checkpoints. Ctrl-C does not reach HiGHS, and each run
        starts from the last basis.
    simplex_seconds_growth : float
        Growth factor of these runs, so that one is eventually long enough for a simplex step.
    decomposed_order : int
        Largest order at which all eigenvalues of ``A*(y) - C`` are computed, instead of a few by Lanczos's
        method.
    lanczos_vectors : float
        Lanczos vectors for each requested eigenvector, besides ten.
    lanczos_restarts : int
        Limit on the restarts of Lanczos's method. The estimates need not converge, as the bound is proven
        apart from them.
    first_master_tol : float
        Tolerance of the first semidefinite master.
    master_tol_ratio : float
        Tolerance of the next semidefinite master, relative to the gap.
    least_master_tol : float
        Least tolerance of a semidefinite master, relative to that of the problem.
    finest_master_tol : float
        Its least value after a round without a smaller gap, from which on it decreases by `master_tol_ratio`.
    memory_rounds : int
        Rounds for which an unused direction stays in the basis.
    used_eigenvalue : float
        Least eigenvalue of a used direction, relative to the trace times the square root of the master's
        tolerance. The eigenvalues of unused directions on the central path are of the order of the
        tolerance.
    basis_rank_tol : float
        Singular values of the directions, relative to the largest, below which they are linearly dependent.
    least_working_set : int
        Size of the working set up to which no rows leave, and number of rows that may join at once. So few
        rows cost little.
    joining_growth : float
        Number of rows that may join at once besides these, relative to the working set.
    end_distance : float
        Distance of a multiplier from an end of its range that counts as at the end, relative to the range.
    end_rounds : int
        Rounds at an end after which a row is fixed there.
    first_price : float
        First price of violating a hard row, relative to a guess of the row's multiplier.
    price_growth : float
        Growth factor of these prices.
    price_raises : int
        Limit on the number of times that they grow.
    price_reached : float
        Multiplier of a hard row, relative to its price, from which the price may be too small.
    penalty_gap : float
        Gap, relative to the penalties paid for hard rows, below which these rows stay violated at the present
        prices.
    ray_size : float
        Size of an ordinary variable of a stalled master, relative to the scale of the bounds, above which it
        is on a ray.
    first_smoothing : float
        First weight of the best multipliers in the priced ones. On margin SDPs 0.8 to 0.9 was best.
    largest_smoothing : float
        Largest such weight. At one the master's multipliers would never be priced.
    smoothing_increase : float
        Increase of the weight at a step, relative to its distance from one.
    smoothing_decrease : float
        Decrease of the weight at a step.
    """

    interior: InteriorPointTuning = InteriorPointTuning()
    # route.py
    linear_cuts: int = 5
    semidefinite_cuts: int = 16
    many_rows_cuts: int = 8
    many_rows: int = 2_500
    # generation.py
    default_max_iter: int = 5_000
    linear_patience: int = 500
    semidefinite_patience: int = 8
    doubling_ratio: float = 0.5
    least_reward: float = 1e-11
    bound_loss: float = 0.02
    lanczos_tol_ratio: float = 0.1
    largest_lanczos_tol: float = 1e-2
    sampling_rows: int = 2_000
    sample_rows: int = 1_000
    sample_fraction: float = 0.1
    sample_tol: float = 1e-2
    sample_working_set: float = 0.5
    truncation_tol: float = 0.9
    # incumbent.py
    truncation_limits: tuple[float, ...] = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10)
    zero_eigenvalue: float = 1e-14
    balancing_steps: int = 3
    # linear_master.py
    simplex_tol: float = 1e-9
    least_columns: int = 2_000
    column_ratio: float = 4.0
    idle_rounds: int = 50
    pool_columns: int = 2_000
    aggregate_rank_tol: float = 1e-4
    simplex_seconds: float = 0.2
    simplex_seconds_growth: float = 1.1
    # oracle.py
    decomposed_order: int = 700
    lanczos_vectors: float = 2.5
    lanczos_restarts: int = 30
    # semidefinite_master.py
    first_master_tol: float = 1e-2
    master_tol_ratio: float = 0.1
    least_master_tol: float = 0.2
    finest_master_tol: float = 1e-13
    memory_rounds: int = 3
    used_eigenvalue: float = 1e-2
    basis_rank_tol: float = 1e-8
    least_working_set: int = 300
    joining_growth: float = 0.5
    end_distance: float = 1e-2
    end_rounds: int = 2
    first_price: float = 3.0
    price_growth: float = 10.0
    price_raises: int = 9
    price_reached: float = 0.9
    penalty_gap: float = 0.5
    ray_size: float = 1e6
    # generation.py, its smoothing
    first_smoothing: float = 0.8
    largest_smoothing: float = 0.98
    smoothing_increase: float = 0.1
    smoothing_decrease: float = 0.1
